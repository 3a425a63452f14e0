"""Losses of what inference returns, back-propagated through its steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from spen.batch.context import Context, masked
from spen.domains import Domain
from spen.errors import InputError, check_settings
from spen.inference.backward import Implicit
from spen.inference.base import Inference, Solution
from spen.inference.descent import Descent, solve_through, y_through
from spen.objectives.base import (
    STARTS,
    Objective,
    Start,
    known_or_nan,
    reveal_labels,
    target_of,
)
from spen.objectives.label_wise import log_loss_of_marks

if TYPE_CHECKING:
    from spen.model import SPEN


class ThroughSteps(Objective):
    """An objective that differentiates the steps of a descent, and predicts what they reach."""

    def predict(self, model: SPEN, inference: Inference, context: Context) -> Solution:
        problem, start = model.pose(context, self.start, self.entropy)
        domain = model.domain.of_batch(context)
        return solve_through(inference, problem, domain, start, context.known)


@dataclass(frozen=True)
class UnrolledLikelihood(ThroughSteps):
    """The log loss of the iterate y_T that a fixed number of steps reaches.

        loss = −Σ_i t_i log y_Ti + (1 − t_i) log(1 − y_Ti),   t (n, L) → (n,)

    It is ``EndToEnd("log", "last")`` with what label sets want beside it: revealed labels, missing
    labels and the soft F1. With entropy τ above zero it is the entropy-smoothed likelihood: y
    then tends to the minimiser of E − τH, which with τ = 1 is the mean-field estimate of
    P(y) ∝ exp(−E(y)), and probabilities come out calibrated.

    Smooth nonlinearities (SoftPlus) are wanted: the gradient passes through g''. The descent's
    own ``backward`` differentiates its steps, or ``Unrolled()`` where that is Detached.

    With ``reveal`` above zero, training also shows each row a random part of its true labels
    and adds the log loss of the others, so that the energy learns what labels say about each
    other. This second loss trains the global energies alone. ``free=False`` leaves the first one
    out, and the second trains everything: rows of which hardly anything is shown teach what to
    say of rows of which nothing is. That is for energies over scores that do not learn.

    Args:
        entropy: τ, the weight of the entropy in the energy that is minimised.
        start: where inference begins: "uniform", or the "local" model's output.
        reveal: the largest share of labels that a row is shown; its own is drawn below that.
        missing: the share of true labels that are marked 0; see ``log_loss_of_marks``. What
            ``reveal`` shows are the marks as they are, zeros included.
        f1: the weight of the row's 1 − F1, computed of y as it is, beside its log loss. The
            log loss alone leaves it to decoding to see that a label's right threshold depends
            on what else a row has; with this, the energy learns some of it.
        free: whether the loss with nothing revealed counts too.

    >>> from spen import Context, Descent, Identity, LocalEnergy, SPEN, Stopping, UnitBox
    >>> model = SPEN(Identity(8), LocalEnergy(8, 4), UnitBox(4), seed=0)
    >>> context = Context(torch.ones(2, 8), torch.tensor([[1.0, 0, 0, 1], [0, 1, 0, 0]]))
    >>> five = Descent(stopping=Stopping(max_steps=5))
    >>> UnrolledLikelihood(entropy=1.0).loss(model, five, context).shape
    torch.Size([2])
    """

    entropy: float = 0.0
    start: Start = "uniform"
    reveal: float = 0.0
    missing: float = 0.0
    f1: float = 0.0
    free: bool = True

    def __post_init__(self) -> None:
        shares, weights = dict.fromkeys(("missing", "reveal"), "share"), "zero or more"
        check_settings(self, **shares, entropy=weights, f1=weights, start=STARTS)

    def loss(
        self,
        model: SPEN,
        inference: Inference,
        context: Context,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        target, counted = target_of(context), context.counted
        domain = model.domain.of_batch(context)
        given = reveal_labels(context, target, self.reveal, generator)
        if given is not None and not self.free:
            problem, start = model.pose(context, self.start, self.entropy, generator)
            y = y_through(inference, problem, domain, start, given)
            hidden = torch.isnan(given)
            counted = hidden if counted is None else torch.where(hidden, counted, 0.0)
            return self._loss_at(y, target, counted, domain)
        free, start = model.pose(context, self.start, self.entropy, generator)
        if given is None:
            y = y_through(inference, free, domain, start, context.known)
            return self._loss_at(y, target, counted, domain)
        # Features do not learn from what labels say about each other, nor do local energies.
        beside = replace(context, features=context.features.detach(), known=given)
        held = model.smoothed(beside, self.entropy, generator, train_local=False)
        if (both := free.stack(held)) is None:
            y = y_through(inference, free, domain, start, context.known)
            y_given = y_through(inference, held, domain, start, given)
        else:
            known = torch.cat([known_or_nan(context, target), given])
            twice = None if start is None else torch.cat([start, start])
            y, y_given = y_through(inference, both, domain, twice, known).chunk(2)
        left = masked(self._log_loss(y_given, target, domain), counted)
        hidden = torch.where(torch.isnan(given), left, 0.0)
        return self._loss_at(y, target, counted, domain) + hidden.sum(1)

    def _log_loss(self, y: Tensor, target: Tensor, domain: Domain) -> Tensor:
        return log_loss_of_marks(domain, domain.to_dual(y), target, self.missing)

    def _loss_at(self, y: Tensor, target: Tensor, counted: Tensor | None, domain: Domain) -> Tensor:
        """Return the loss of each row at y."""
        loss = masked(self._log_loss(y, target, domain), counted).sum(1)
        if not self.f1:
            return loss
        counts = masked(torch.ones_like(y), counted)
        both, sizes = (counts * y * target).sum(1), (counts * (y + target)).sum(1)
        return loss + self.f1 * (1 - 2 * both / sizes.clamp_min(1e-6))


@dataclass(frozen=True)
class EndToEnd(ThroughSteps):
    """Δ(t, y_T) of the last iterate, or the mean of Δ(t, y_t) over all iterates.

    Targets are (n, L), losses (n,).

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
        target, domain = target_of(context), model.domain.of_batch(context)
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

    def _loss_at(self, domain: Domain, y: Tensor, target: Tensor, counted: Tensor | None) -> Tensor:
        """Return the loss of each row, (n,)."""
        if self.delta == "log":
            return masked(domain.log_loss(y, target), counted).sum(1)
        squares = (y - target).square() / domain.wrong_entries_per_error
        return masked(squares, counted).sum(1)
