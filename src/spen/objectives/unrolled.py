"""The unrolled likelihood: back-propagation through the steps of inference."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from spen.context import Context, masked
from spen.errors import InputError, choose
from spen.inference.backward import Unrolled
from spen.inference.base import Inference, Solution
from spen.inference.descent import Descent
from spen.inputs import positive
from spen.objectives.base import STARTS, Objective, Start, target_of

if TYPE_CHECKING:
    from spen.model import SPEN


@dataclass(frozen=True)
class UnrolledLikelihood(Objective):
    """The log loss of the iterate that a fixed number of steps reaches.

    Smooth nonlinearities (SoftPlus) are wanted: the gradient passes through g''.

    Args:
        entropy: τ, the weight of the entropy in the energy that is minimised.
        start: where inference begins: "uniform", or the "local" model's output.
    """

    entropy: float = 0.0
    start: Start = "uniform"

    def __post_init__(self) -> None:
        positive(self.entropy, "entropy", zero=True)
        choose(self.start, dict.fromkeys(STARTS), "start")

    def loss(
        self,
        model: SPEN,
        inference: Inference,
        context: Context,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        y = self._solve(model, inference, context, generator).y
        each = model.domain.log_loss(y, target_of(context))
        return masked(each, context.counted).sum(1)

    def predict(self, model: SPEN, inference: Inference, context: Context) -> Solution:
        return self._solve(model, inference, context, None)

    def _solve(
        self,
        model: SPEN,
        inference: Inference,
        context: Context,
        generator: torch.Generator | None,
    ) -> Solution:
        if not isinstance(inference, Descent):
            raise InputError(
                "The unrolled likelihood differentiates the steps of a Descent; "
                f"received {type(inference).__name__}."
            )
        problem = model.smoothed(context, self.entropy, generator)
        start = model.starting_point(context, self.start)
        unrolled = replace(inference, backward=Unrolled())
        return unrolled.solve(problem, model.domain, start, context.known)
