"""Label-wise squared error: the other loss of low-rank linear models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from spen.batch.context import Context, masked
from spen.errors import InputError
from spen.inference.base import Inference
from spen.objectives.base import target_of
from spen.objectives.likelihood import CrossEntropy

if TYPE_CHECKING:
    from spen.model import SPEN


@dataclass(frozen=True)
class SquaredError(CrossEntropy):
    """The squared error of the local scores as a regression on the labels.

    A score z is a log-odds elsewhere, and it stays one: z regresses 4 (t − ½), because 4 (p − ½)
    is the straight line that touches the log-odds of p at ½. So predictions are σ(z), strictly
    inside (0, 1), and calibration does the rest. The error is divided by 16, which makes it
    (p − t)² in the regression's own p = ½ + z / 4.

    This is the squared loss of Yu, Jain, Kar & Dhillon, "Large-scale Multi-label Learning with
    Missing Labels", ICML 2014. Labels that are known to be missing do not count in it, but it
    has no likelihood to say that zeros are partly missing: ``missing`` must be 0.

    >>> import spen
    >>> model = spen.SPEN(spen.Identity(1), spen.LocalEnergy(1, 2), spen.UnitBox(2)).double()
    >>> _ = torch.nn.init.zeros_(model.energy.weight)
    >>> context = model.context([[1.0]], target=[[1.0, 0.0]])
    >>> SquaredError().loss(model, spen.Descent(), context).item()
    0.5
    """

    def __post_init__(self) -> None:
        if self.missing:
            raise InputError(
                f"SquaredError has no model of missing labels; received missing={self.missing!r}. "
                "Leave it at 0, or choose CrossEntropy."
            )

    def neutral_scores(self, shares: Tensor) -> Tensor:
        return 4 * (shares - 0.5)

    def loss(
        self,
        model: SPEN,
        inference: Inference,
        context: Context,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        wanted = 4 * (target_of(context) - 0.5)
        error = (-model.local_scores(context) - wanted).square() / 16
        return masked(error, context.counted).sum(1)
