"""Label-wise cross-entropy: how the local energy is pre-trained, and what an MLP is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from spen.context import Context, masked
from spen.inference.base import Inference
from spen.objectives.base import Objective, target_of

if TYPE_CHECKING:
    from spen.model import SPEN


@dataclass(frozen=True)
class CrossEntropy(Objective):
    """The log loss of σ(−local scores) (softmax on a Simplex). It needs no inference."""

    def loss(
        self,
        model: SPEN,
        inference: Inference,
        context: Context,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        each = model.domain.log_loss_of_dual(-model.local_scores(context), target_of(context))
        return masked(each, context.observed).sum(1)

    def predict(self, model: SPEN, inference: Inference, context: Context) -> Tensor:
        y = model.domain.to_primal(-model.local_scores(context))
        known = context.known
        return y if known is None else model.domain.hold(y, model.domain.complete_known(known))
