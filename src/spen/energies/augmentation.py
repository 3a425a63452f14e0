"""Loss augmentation: −Δ as one more energy term, so that one ``solve`` serves training too."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from spen.batch.context import Context, masked, take
from spen.domains import Domain
from spen.energies.base import Energy, Problem
from spen.energies.form import Form
from spen.errors import InputError, check_positive
from spen.losses import loss_named


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
        self.loss = loss_named(loss)
        self.loss_name = loss
        self.margin = margin

    def bind(self, context: Context, generator: torch.Generator | None = None) -> Problem:
        if context.target is None:
            raise InputError("Loss augmentation needs a target; the context has none.")
        target, counted = context.target, context.counted
        coefficients = self.loss.polynomial(target)
        if coefficients is None:
            return LogLossProblem(self.domain, target, counted, self.margin)
        linear, quadratic = coefficients
        each = self.margin / self.domain.wrong_entries_per_error
        return Form(
            constant=-each * masked(target, counted).sum(1),
            linear=-each * masked(linear, counted),
            quadratic=None if quadratic is None else -each * masked(quadratic, counted),
        )

    def extra_repr(self) -> str:
        return f"domain={self.domain}, loss={self.loss_name!r}, margin={self.margin}"


@dataclass(frozen=True)
class LogLossProblem(Problem):
    """−margin · (log loss): unbounded below, so only the clamp on duals keeps it finite."""

    domain: Domain
    target: Tensor
    counted: Tensor | None
    margin: float

    def value(self, y: Tensor) -> Tensor:
        loss = self.domain.log_loss(y, self.target)
        return -self.margin * masked(loss, self.counted).sum(1)

    def value_and_gradient(self, y: Tensor) -> tuple[Tensor, Tensor]:
        gradient = self.domain.log_loss_gradient(y, self.target, self.counted)
        return self.value(y), -self.margin * gradient

    def select(self, rows: Tensor) -> LogLossProblem:
        return replace(self, target=self.target[rows], counted=take(self.counted, rows))

    @property
    def rows_like(self) -> Tensor:
        return self.target
