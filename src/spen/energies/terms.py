"""Terms that shape inference: entropy, learned step sizes, and loss augmentation.

Entropy softens the minimiser. Loss augmentation is −Δ as one more energy term, so that one
``solve`` serves training too. On labels of 0 and 1, the Hamming and the squared loss both are the
number of wrong labels; the log loss is the cross-entropy. In between they differ, which is what
loss-augmented inference sees.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spen.batch.context import Context, masked
from spen.batch.positions import at_positions
from spen.domains import Domain
from spen.energies.base import Energy, Problem, RecordProblem
from spen.energies.form import Form
from spen.errors import InputError, check_positive, check_whole, choose

_NEUTRAL = 0.541324854612918
"""softplus of this is 1."""


class Entropy(Energy):
    """E(y) = −τ H(y): the larger τ, the softer the prediction.

    Of label sets H(y) = −Σ_i y_i log y_i + (1 − y_i) log(1 − y_i), of classes −Σ_k y_k log y_k;
    y is (n, L).

    Mirror descent applies it exactly (it divides the dual by 1 + ητ), as if the
    iterates were normalised at a temperature.

    Args:
        domain: says which entropy H is.
        weight: τ.

    >>> from spen import UnitBox
    >>> Entropy(UnitBox(2), weight=1.0)(torch.zeros(1, 1), torch.tensor([[0.5, 0.5]]))   # −2 log 2
    tensor([-1.3863])
    """

    def __init__(self, domain: Domain, weight: float = 1.0) -> None:
        super().__init__()
        check_positive(weight, "The entropy weight", zero=True)
        self.n_labels = domain.size
        self.domain = domain
        self.weight = weight

    def bind(self, context: Context, generator: torch.Generator | None = None) -> Form:
        tau = context.features.new_full((context.n_rows,), self.weight)
        return Form(tau=tau, domain=self.domain.of_batch(context), mask=context.mask)

    def extra_repr(self) -> str:
        return f"domain={self.domain}, weight={self.weight}"


class StepRates(Energy):
    """E(y) = 0, and a learned factor r_t > 0 of the step size for each step of inference.

    r is (steps,). A step of size η r_t on E is a step of size η on r_t E: how steep the energy is
    to be at step t is learned along with it. So the factors are parameters of the energy, trained
    and saved like all others, and a rule with a step size (``MirrorDescent``,
    ``ProjectedGradient``) applies them. They start at 1; steps beyond the last one that has a
    factor take the last.

    Only objectives that differentiate the steps train them (``EndToEnd``). No kernel knows them,
    so inference takes the general path.

    Args:
        n_labels: L.
        steps: how many steps have a factor of their own.

    >>> StepRates(4, steps=2).rates()
    tensor([1., 1.], grad_fn=<SoftplusBackward0>)
    """

    def __init__(self, n_labels: int, steps: int) -> None:
        super().__init__()
        check_whole(n_labels, "n_labels")
        check_whole(steps, "steps")
        self.n_labels = n_labels
        # A bias by name: a weight decay would draw the factors to zero, and there nothing moves.
        self.rate_bias = nn.Parameter(torch.zeros(steps))

    def rates(self) -> Tensor:
        """Return r, (steps,)."""
        return F.softplus(self.rate_bias + _NEUTRAL)

    def bind(self, context: Context, generator: torch.Generator | None = None) -> Problem:
        return RatesProblem(self.rates(), context.features.new_zeros(context.n_rows))

    def reset(self, generator: torch.Generator) -> None:
        nn.init.zeros_(self.rate_bias)

    def extra_repr(self) -> str:
        return f"n_labels={self.n_labels}, steps={len(self.rate_bias)}"


@dataclass(frozen=True)
class RatesProblem(RecordProblem):
    """Zero, with the factors of a rule's steps."""

    rates: Tensor
    zeros: Tensor
    with_rows = ("zeros",)

    def value(self, y: Tensor) -> Tensor:
        return self.zeros + 0 * y.sum(1)

    def value_and_gradient(self, y: Tensor) -> tuple[Tensor, Tensor]:
        return self.value(y), torch.zeros_like(y)

    @property
    def is_convex(self) -> bool:
        return True

    @property
    def step_rates(self) -> Tensor:
        return self.rates


Polynomial = Callable[[Tensor], tuple[Tensor, Tensor | None]]
"""From a target t to (l, q), where a label's loss is t + l y + ½ q y²."""


def _hamming(target: Tensor) -> tuple[Tensor, None]:
    """Δ = Σ t(1 − y) + (1 − t) y, linear in y."""
    return 1 - 2 * target, None


def _squared(target: Tensor) -> tuple[Tensor, Tensor]:
    """Δ = Σ (y − t)²; t² is t on labels."""
    return -2 * target, torch.full_like(target, 2.0)


LOSSES: dict[str, Polynomial | None] = {"hamming": _hamming, "squared": _squared, "log": None}
"""The losses Δ by name. The log loss −Σ t log y + (1 − t) log(1 − y), on a Simplex −Σ t log y, is
no polynomial; the domain computes it."""


class LossAugmentation(Energy):
    """E(y) = −margin · Δ(y, target), y (n, L): the term that equation 9 adds to the energy.

    The target, and which of it was observed, come from the context.

    Args:
        domain: where y lives.
        loss: Δ: hamming (linear in y), squared or log.
        margin: how much each wrong label is worth.

    >>> from spen import UnitBox
    >>> context = Context(torch.zeros(1, 1), target=torch.tensor([[1.0, 0.0, 1.0]]))
    >>> problem = LossAugmentation(UnitBox(3), margin=2.0).bind(context)
    >>> problem.value(torch.tensor([[0.0, 0.0, 1.0]]))      # one label is wrong
    tensor([-2.])
    """

    def __init__(self, domain: Domain, loss: str = "hamming", margin: float = 1.0) -> None:
        super().__init__()
        check_positive(margin, "margin")
        self.n_labels = domain.size
        self.domain = domain
        self.polynomial = choose(loss, LOSSES, "loss")
        self.loss_name = loss
        self.margin = margin

    def bind(self, context: Context, generator: torch.Generator | None = None) -> Problem:
        if context.target is None:
            raise InputError("Loss augmentation needs a target; the context has none.")
        target, counted = context.target, context.counted
        domain = self.domain.of_batch(context)
        domain.check_shape(target, context.n_rows, "target")
        target = at_positions(target, context.mask)
        if self.polynomial is None:
            return LogLossProblem(domain, target, counted, self.margin, context.mask)
        linear, quadratic = self.polynomial(target)
        each = self.margin / domain.wrong_entries_per_error
        return Form(
            constant=-each * domain.sum(masked(target, counted)),
            linear=-each * masked(linear, counted),
            quadratic=None if quadratic is None else -each * masked(quadratic, counted),
            mask=context.mask,
        )

    def extra_repr(self) -> str:
        return f"domain={self.domain}, loss={self.loss_name!r}, margin={self.margin}"


@dataclass(frozen=True)
class LogLossProblem(RecordProblem):
    """−margin · (log loss): unbounded below, so only the clamp on duals keeps it finite."""

    domain: Domain
    target: Tensor
    counted: Tensor | None
    margin: float
    mask: Tensor | None = None
    with_rows = ("target", "counted", "mask")

    def value(self, y: Tensor) -> Tensor:
        loss = self.domain.log_loss(y, self.target)
        return -self.margin * self.domain.sum(masked(loss, self.counted))

    def value_and_gradient(self, y: Tensor) -> tuple[Tensor, Tensor]:
        gradient = self.domain.log_loss_gradient(y, self.target, self.counted)
        return self.value(y), -self.margin * at_positions(gradient, self.mask)
