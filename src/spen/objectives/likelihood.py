"""Label-wise cross-entropy: how the local energy is pre-trained, and what an MLP is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from spen.batch.context import Context, masked
from spen.errors import check_share
from spen.inference.base import Inference, Solution, Status
from spen.objectives.base import Objective, target_of
from spen.objectives.marks import log_loss_of_marks

if TYPE_CHECKING:
    from spen.model import SPEN


@dataclass(frozen=True)
class CrossEntropy(Objective):
    """The log loss of σ(−local scores) (softmax on a Simplex). It needs no inference.

    Args:
        missing: the share of true labels that are marked 0; see ``log_loss_of_marks``.
    """

    missing: float = 0.0

    start = "local"
    entropy = 1.0

    def __post_init__(self) -> None:
        check_share(self.missing, "missing")

    def neutral_scores(self, shares: Tensor) -> Tensor:
        """Return the score z of labels that are on in these shares of rows, (L,)."""
        return torch.logit(shares)

    def loss(
        self,
        model: SPEN,
        inference: Inference,
        context: Context,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        dual, target = -model.local_scores(context), target_of(context)
        each = log_loss_of_marks(model.domain, dual, target, self.missing)
        return masked(each, context.counted).sum(1)

    def predict(self, model: SPEN, inference: Inference, context: Context) -> Solution:
        """The minimiser of the local energy with entropy weight 1, which is known at once."""
        scores, domain = model.local_scores(context), model.domain
        y = domain.to_primal(-scores)
        if context.known is not None:
            y = domain.hold(y, domain.complete_known(context.known))
        return Solution(
            y=y,
            energy=(scores * y).sum(1) + domain.negative_entropy(y),
            steps=torch.zeros(len(y), dtype=torch.int64, device=y.device),
            status=torch.full((len(y),), Status.CONVERGED, device=y.device),
        )
