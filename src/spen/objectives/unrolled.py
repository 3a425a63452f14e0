"""The unrolled likelihood: back-propagation through the steps of inference."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from spen.batch.context import Context, masked
from spen.errors import check_positive, check_share, choose
from spen.inference.base import Inference, Solution
from spen.objectives.base import STARTS, Objective, Start, target_of
from spen.objectives.marks import log_loss_of_marks
from spen.objectives.through_inference import solve_through

if TYPE_CHECKING:
    from spen.model import SPEN


@dataclass(frozen=True)
class UnrolledLikelihood(Objective):
    """The log loss of the iterate that a fixed number of steps reaches.

    It is ``EndToEnd("log", "last")`` with what label sets want beside it: revealed labels, missing
    labels and the soft F1. With entropy τ above zero it is the entropy-smoothed likelihood: y
    then tends to the minimiser of E − τH, which with τ = 1 is the mean-field estimate of
    P(y) ∝ exp(−E(y)), and probabilities come out calibrated.

    Smooth nonlinearities (SoftPlus) are wanted: the gradient passes through g''. The descent's
    own ``backward`` differentiates its steps, or ``Unrolled()`` where that is Detached.

    With ``reveal`` above zero, training also shows each row a random part of its true labels
    and adds the log loss of the others, so that the energy learns what labels say about each
    other. This second loss trains the global energies alone.

    Args:
        entropy: τ, the weight of the entropy in the energy that is minimised.
        start: where inference begins: "uniform", or the "local" model's output.
        reveal: the largest share of labels that a row is shown; its own is drawn below that.
        missing: the share of true labels that are marked 0; see ``log_loss_of_marks``. What
            ``reveal`` shows are the marks as they are, zeros included.
        f1: the weight of the row's 1 − F1, computed of y as it is, beside its log loss. The
            log loss alone leaves it to decoding to see that a label's right threshold depends
            on what else a row has; with this, the energy learns some of it.
    """

    entropy: float = 0.0
    start: Start = "uniform"
    reveal: float = 0.0
    missing: float = 0.0
    f1: float = 0.0

    def __post_init__(self) -> None:
        check_share(self.missing, "missing")
        check_positive(self.f1, "f1", zero=True)
        check_positive(self.entropy, "entropy", zero=True)
        check_share(self.reveal, "reveal")
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
            return self._loss_of(model, y, context)
        given = self._revealed(context, generator)
        y, y_given = self._solve_both(model, inference, context, given, generator)
        left = masked(self._log_loss(model, y_given, target), context.counted)
        hidden = torch.where(torch.isnan(known_of(given)), left, 0.0)
        return self._loss_of(model, y, context) + hidden.sum(1)

    def predict(self, model: SPEN, inference: Inference, context: Context) -> Solution:
        return self._solve(model, inference, context, None)

    def _log_loss(self, model: SPEN, y: Tensor, target: Tensor) -> Tensor:
        domain = model.domain
        return log_loss_of_marks(domain, domain.to_dual(y), target, self.missing)

    def _loss_of(self, model: SPEN, y: Tensor, context: Context) -> Tensor:
        """Return the loss of each row at y."""
        target = target_of(context)
        loss = masked(self._log_loss(model, y, target), context.counted).sum(1)
        if not self.f1:
            return loss
        counts = masked(torch.ones_like(y), context.counted)
        both, sizes = (counts * y * target).sum(1), (counts * (y + target)).sum(1)
        return loss + self.f1 * (1 - 2 * both / sizes.clamp_min(1e-6))

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
        problem, start = model.pose(context, self.start, self.entropy, generator)
        return solve_through(inference, problem, model.domain, start, context.known)

    def _solve_both(
        self,
        model: SPEN,
        inference: Inference,
        context: Context,
        given: Context,
        generator: torch.Generator,
    ) -> tuple[Tensor, Tensor]:
        """Return y of the batch, and of the batch with labels given, in one solve if possible."""
        domain = model.domain
        free, start = model.pose(context, self.start, self.entropy, generator)
        held = model.smoothed(given, self.entropy, generator, train_local=False)
        if (both := free.stack(held)) is None:
            y = solve_through(inference, free, domain, start, context.known).y
            return y, solve_through(inference, held, domain, start, given.known).y
        known = torch.cat([known_of(context), known_of(given)])
        twice = None if start is None else torch.cat([start, start])
        first, second = solve_through(inference, both, domain, twice, known).y.chunk(2)
        return first, second


def known_of(context: Context) -> Tensor:
    """Return the known labels of a context: nan everywhere where it has none."""
    if context.known is not None:
        return context.known
    return torch.full_like(target_of(context), torch.nan)
