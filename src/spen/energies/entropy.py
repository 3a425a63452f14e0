"""Terms that shape inference: entropy, which softens the minimiser, and learned step sizes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spen.batch.context import Context
from spen.domains import Domain
from spen.energies.base import Energy, Problem, RecordProblem
from spen.energies.form import Form
from spen.errors import check_positive, check_whole

_NEUTRAL = 0.541324854612918
"""softplus of this is 1."""


class Entropy(Energy):
    """−τ H(y): the larger τ, the softer the prediction.

    Mirror descent applies it exactly (it divides the dual by 1 + ητ), as if the
    iterates were normalised at a temperature.

    Args:
        domain: says which entropy H is.
        weight: τ.
    """

    def __init__(self, domain: Domain, weight: float = 1.0) -> None:
        super().__init__()
        check_positive(weight, "The entropy weight", zero=True)
        self.n_labels = domain.size
        self.domain = domain
        self.weight = weight

    def bind(self, context: Context, generator: torch.Generator | None = None) -> Form:
        tau = context.features.new_full((context.n_rows,), self.weight)
        return Form(tau=tau, domain=self.domain)

    def extra_repr(self) -> str:
        return f"domain={self.domain}, weight={self.weight}"


class StepRates(Energy):
    """E(y) = 0, and a learned factor r_t > 0 of the step size for each step of inference.

    A step of size η r_t on E is a step of size η on r_t E: how steep the energy is to be at step
    t is learned along with it. So the factors are parameters of the energy, trained and saved
    like all others, and a rule with a step size (``MirrorDescent``, ``ProjectedGradient``)
    applies them. They start at 1; steps beyond the last one that has a factor take the last.

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
