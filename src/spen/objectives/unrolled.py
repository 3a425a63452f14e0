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
from spen.inputs import positive, share
from spen.objectives.base import STARTS, Objective, Start, target_of

if TYPE_CHECKING:
    from spen.model import SPEN


@dataclass(frozen=True)
class UnrolledLikelihood(Objective):
    """The log loss of the iterate that a fixed number of steps reaches.

    Smooth nonlinearities (SoftPlus) are wanted: the gradient passes through g''.

    With ``reveal`` above zero, training also shows each row a random part of its true labels
    and adds the log loss of the others, so that the energy learns what labels say about each
    other. This second loss trains the global energies alone.

    Args:
        entropy: τ, the weight of the entropy in the energy that is minimised.
        start: where inference begins: "uniform", or the "local" model's output.
        reveal: the largest share of labels that a row is shown; its own is drawn below that.
    """

    entropy: float = 0.0
    start: Start = "uniform"
    reveal: float = 0.0

    def __post_init__(self) -> None:
        positive(self.entropy, "entropy", zero=True)
        share(self.reveal, "reveal")
        choose(self.start, dict.fromkeys(STARTS), "start")

    def loss(
        self,
        model: SPEN,
        inference: Inference,
        context: Context,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        target = target_of(context)
        if not self.reveal or generator is None:
            y = self._solve(model, inference, context, generator).y
            return masked(model.domain.log_loss(y, target), context.counted).sum(1)
        given = self._revealed(context, generator)
        y, y_given = self._solve_both(model, inference, context, given, generator)
        free = masked(model.domain.log_loss(y, target), context.counted)
        left = masked(model.domain.log_loss(y_given, target), context.counted)
        return (free + torch.where(torch.isnan(known_of(given)), left, 0.0)).sum(1)

    def predict(self, model: SPEN, inference: Inference, context: Context) -> Solution:
        return self._solve(model, inference, context, None)

    def _revealed(self, context: Context, generator: torch.Generator) -> Context:
        """Return the batch with some of its labels known, and features that do not learn."""
        target = target_of(context)

        def uniform(*shape: int) -> Tensor:
            return torch.rand(shape, generator=generator, dtype=target.dtype, device=target.device)

        rows, labels = target.shape
        shown = uniform(rows, labels) < self.reveal * uniform(rows, 1)
        if context.observed is not None:
            shown = shown & context.observed
        known = torch.where(shown, target, known_of(context))
        return replace(context, features=context.features.detach(), known=known)

    def _solve(
        self,
        model: SPEN,
        inference: Inference,
        context: Context,
        generator: torch.Generator | None,
    ) -> Solution:
        problem = model.smoothed(context, self.entropy, generator)
        start = model.starting_point(context, self.start)
        return _unrolled(inference).solve(problem, model.domain, start, context.known)

    def _solve_both(
        self,
        model: SPEN,
        inference: Inference,
        context: Context,
        given: Context,
        generator: torch.Generator,
    ) -> tuple[Tensor, Tensor]:
        """Return y of the batch, and of the batch with labels given, in one solve if possible."""
        unrolled, start = _unrolled(inference), model.starting_point(context, self.start)
        free = model.smoothed(context, self.entropy, generator)
        held = model.smoothed(given, self.entropy, generator, train_local=False)
        if (both := free.stack(held)) is None:
            y = unrolled.solve(free, model.domain, start, context.known).y
            return y, unrolled.solve(held, model.domain, start, given.known).y
        known = torch.cat([known_of(context), known_of(given)])
        solution = unrolled.solve(both, model.domain, torch.cat([start, start]), known)
        first, second = solution.y.chunk(2)
        return first, second


def _unrolled(inference: Inference) -> Descent:
    if not isinstance(inference, Descent):
        raise InputError(
            "The unrolled likelihood differentiates the steps of a Descent; "
            f"received {type(inference).__name__}."
        )
    return replace(inference, backward=Unrolled())


def known_of(context: Context) -> Tensor:
    """Return the known labels of a context: nan everywhere where it has none."""
    if context.known is not None:
        return context.known
    return torch.full_like(target_of(context), torch.nan)
