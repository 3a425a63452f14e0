"""Losses Δ(y, target) between a relaxed output and labels.

On labels of 0 and 1, the Hamming and the squared loss both are the number of wrong
labels; the log loss is the cross-entropy. In between they differ, which is what
loss-augmented inference sees.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from spen.errors import choose


class Loss(ABC):
    """A loss that is summed over labels."""

    @abstractmethod
    def polynomial(self, target: Tensor) -> tuple[Tensor, Tensor | None] | None:
        """Return (l, q) where a label's loss is t + l y + ½ q y², or None if it is not so."""


class HammingLoss(Loss):
    """Δ = Σ t(1 − y) + (1 − t) y, linear in y."""

    def polynomial(self, target: Tensor) -> tuple[Tensor, Tensor | None]:
        return 1 - 2 * target, None


class SquaredLoss(Loss):
    """Δ = Σ (y − t)²; t² is t on labels."""

    def polynomial(self, target: Tensor) -> tuple[Tensor, Tensor | None]:
        return -2 * target, torch.full_like(target, 2.0)


class LogLoss(Loss):
    """Δ = −Σ t log y + (1 − t) log(1 − y); on a Simplex −Σ t log y. The domain computes it."""

    def polynomial(self, target: Tensor) -> None:
        return None


LOSSES: dict[str, Loss] = {"hamming": HammingLoss(), "squared": SquaredLoss(), "log": LogLoss()}


def loss_named(name: str) -> Loss:
    """Return a loss by name: hamming, squared or log."""
    return choose(name, LOSSES, "loss")
