"""Losses Δ(y, target) between a relaxed output and labels. Each counts wrong labels.

On labels of 0 and 1, the Hamming and the squared loss both are the number of wrong
labels; the log loss is the cross-entropy. In between they differ, which is what
loss-augmented inference sees.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor

from spen.context import masked
from spen.domains import Domain
from spen.errors import choose


class Loss(ABC):
    """A loss, summed over the labels that were observed."""

    name: ClassVar[str]

    @abstractmethod
    def per_label(self, y: Tensor, target: Tensor, domain: Domain) -> Tensor:
        """Return each label's share of the loss, (n, L)."""

    def value(
        self, y: Tensor, target: Tensor, domain: Domain, observed: Tensor | None = None
    ) -> Tensor:
        """Return the loss of each row, (n,)."""
        return masked(self.per_label(y, target, domain), observed).sum(1)


class HammingLoss(Loss):
    """Δ = Σ t(1 − y) + (1 − t) y, linear in y."""

    name = "hamming"

    def per_label(self, y: Tensor, target: Tensor, domain: Domain) -> Tensor:
        return (target + (1 - 2 * target) * y) / domain.wrong_entries_per_error


class SquaredLoss(Loss):
    """Δ = Σ (y − t)²."""

    name = "squared"

    def per_label(self, y: Tensor, target: Tensor, domain: Domain) -> Tensor:
        return (y - target).square() / domain.wrong_entries_per_error


class LogLoss(Loss):
    """Δ = −Σ t log y + (1 − t) log(1 − y); on a Simplex −Σ t log y."""

    name = "log"

    def per_label(self, y: Tensor, target: Tensor, domain: Domain) -> Tensor:
        return domain.log_loss(y, target)


LOSSES: dict[str, Loss] = {loss.name: loss for loss in (HammingLoss(), SquaredLoss(), LogLoss())}


def loss_named(name: str) -> Loss:
    """Return a loss by name: hamming, squared or log."""
    return choose(name, LOSSES, "loss")
