"""Loss augmentation: −Δ as one more energy term, so that one ``solve`` serves training too.

On labels of 0 and 1, the Hamming and the squared loss both are the number of wrong labels; the
log loss is the cross-entropy. In between they differ, which is what loss-augmented inference sees.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from spen.batch.context import Context, masked
from spen.domains import Domain
from spen.energies.base import Energy, Problem, RecordProblem
from spen.energies.form import Form
from spen.errors import InputError, check_positive, choose

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
    """−margin · Δ(y, target), the term that equation 9 adds to the energy.

    The target, and which of it was observed, come from the context.

    Args:
        domain: where y lives.
        loss: Δ: hamming (linear in y), squared or log.
        margin: how much each wrong label is worth.
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
        if self.polynomial is None:
            return LogLossProblem(self.domain, target, counted, self.margin)
        linear, quadratic = self.polynomial(target)
        each = self.margin / self.domain.wrong_entries_per_error
        return Form(
            constant=-each * masked(target, counted).sum(1),
            linear=-each * masked(linear, counted),
            quadratic=None if quadratic is None else -each * masked(quadratic, counted),
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
    with_rows = ("target", "counted")

    def value(self, y: Tensor) -> Tensor:
        loss = self.domain.log_loss(y, self.target)
        return -self.margin * masked(loss, self.counted).sum(1)

    def value_and_gradient(self, y: Tensor) -> tuple[Tensor, Tensor]:
        gradient = self.domain.log_loss_gradient(y, self.target, self.counted)
        return self.value(y), -self.margin * gradient
