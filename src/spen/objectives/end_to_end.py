"""End-to-end training: the loss of what inference returns, through its steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from spen.batch.context import Context, masked
from spen.domains import Domain
from spen.errors import InputError, check_settings
from spen.inference.backward import Implicit
from spen.inference.base import Inference, Solution
from spen.inference.descent import Descent, solve_through
from spen.objectives.base import STARTS, Objective, Start, target_of

if TYPE_CHECKING:
    from spen.model import SPEN


@dataclass(frozen=True)
class EndToEnd(Objective):
    """Δ(t, y_T) of the last iterate, or the mean of Δ(t, y_t) over all iterates.

    With ``weighting="all"`` iterate t of T counts in proportion to 1 / (T − t + 1), as published
    (Belanger, Yang & McCallum, "End-to-End Learning for Structured Prediction Energy Networks",
    ICML 2017), so that early steps learn to make headway. Weights are divided by their sum, and
    the loss is as large as that of one iterate.

    The descent's own ``backward`` differentiates its steps, or ``Unrolled()`` where that is
    Detached. ``StepRates`` among the energies learn the size of each step too.

    Args:
        delta: Δ: "log", the cross-entropy of labels, or "squared", Σ (y − t)² (on a Simplex half
            of it, which counts wrong labels).
        weighting: "last" or "all".
        entropy: τ, the weight of the entropy in the energy that is minimised.
        start: where inference begins: "uniform", or the "local" model's output.

    >>> EndToEnd("log", "all").weights(3, torch.ones(())).tolist()
    [0.1818..., 0.2727..., 0.5454...]
    """

    delta: Literal["log", "squared"] = "log"
    weighting: Literal["last", "all"] = "last"
    entropy: float = 0.0
    start: Start = "uniform"

    def __post_init__(self) -> None:
        names = {"delta": ("log", "squared"), "weighting": ("last", "all"), "start": STARTS}
        check_settings(self, **names, entropy="zero or more")

    def loss(
        self,
        model: SPEN,
        inference: Inference,
        context: Context,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        target, domain = target_of(context), model.domain
        every = self.weighting == "all"
        if every and isinstance(inference, Descent) and isinstance(inference.backward, Implicit):
            raise InputError(
                'weighting="all" needs the gradient of every iterate; Implicit gives that of the '
                'minimum alone. Use Unrolled() or Truncated(k), or weighting="last".'
            )
        problem, start = model.pose(context, self.start, self.entropy, generator)
        found = solve_through(inference, problem, domain, start, context.known, trace=every)
        if not every:
            return self._loss_at(domain, found.y, target, context.counted)
        iterates = found.iterates[1:]
        steps, counted = len(iterates), context.counted
        each = self._loss_at(
            domain,
            iterates.flatten(0, 1),
            target.repeat(steps, 1),
            None if counted is None else counted.repeat(steps, 1),
        )
        return self.weights(steps, target) @ each.reshape(steps, -1)

    def weights(self, steps: int, like: Tensor) -> Tensor:
        """Return how much each of some iterates counts, (steps,)."""
        raw = 1 / torch.arange(steps, 0, -1, dtype=like.dtype, device=like.device)
        return raw / raw.sum()

    def predict(self, model: SPEN, inference: Inference, context: Context) -> Solution:
        problem, start = model.pose(context, self.start, self.entropy)
        return solve_through(inference, problem, model.domain, start, context.known)

    def _loss_at(self, domain: Domain, y: Tensor, target: Tensor, counted: Tensor | None) -> Tensor:
        """Return the loss of each row, (n,)."""
        if self.delta == "log":
            return masked(domain.log_loss(y, target), counted).sum(1)
        squares = (y - target).square() / domain.wrong_entries_per_error
        return masked(squares, counted).sum(1)
