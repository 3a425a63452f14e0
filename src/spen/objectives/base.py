"""Objectives: what training minimises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from spen.batch.context import Context
from spen.errors import InputError
from spen.inference.base import Inference, Solution

if TYPE_CHECKING:
    from spen.model import SPEN


Start = Literal["uniform", "local", "chain"]
STARTS = ("uniform", "local", "chain")
"""Where inference may begin: the domain's centre, the local model's output, or the marginals of
the local scores and chains among the energies."""


class Objective(ABC):
    """A training loss: ``loss(model, inference, context)`` → (n,).

    It says itself which inference it needs.

    Attributes:
        start: where the inference of a prediction begins.
        entropy: τ of the entropy that a prediction minimises along with the energy.

    >>> from spen import CrossEntropy, UnrolledLikelihood
    >>> CrossEntropy().entropy, UnrolledLikelihood(entropy=0.5).entropy
    (1.0, 0.5)
    """

    start: Start = "uniform"
    entropy: float = 0.0

    @abstractmethod
    def loss(
        self,
        model: SPEN,
        inference: Inference,
        context: Context,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return the loss of each example, (n,), differentiable in the parameters."""

    @abstractmethod
    def predict(self, model: SPEN, inference: Inference, context: Context) -> Solution:
        """Return the solution whose soft labels y (n, L) this objective trains."""


def target_of(context: Context) -> Tensor:
    """Return the target of a context, or say that it is missing."""
    if context.target is None:
        raise InputError("An objective needs a target; the context has none.")
    return context.target


def reveal_labels(
    context: Context, target: Tensor, most: float, generator: torch.Generator | None
) -> Tensor | None:
    """Return the known labels (n, L) with some of the true ones among them; None to reveal none.

    Args:
        context: of the batch; labels that it did not observe stay hidden.
        target: (n, L) the true labels.
        most: the largest share of labels that a row is shown; its own is drawn evenly below that.
        generator: draws; None means prediction.
    """
    if not most or generator is None:
        return None
    like = {"generator": generator, "dtype": target.dtype, "device": target.device}
    rows, labels = target.shape
    shown = torch.rand(rows, labels, **like) < most * torch.rand(rows, 1, **like)
    if context.observed is not None:
        shown = shown & context.observed
    return torch.where(shown, target, known_or_nan(context, target))


def known_or_nan(context: Context, target: Tensor) -> Tensor:
    """Return the known labels of a context: nan everywhere where it has none."""
    return torch.full_like(target, torch.nan) if context.known is None else context.known
