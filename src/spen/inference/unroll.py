"""A fixed number of steps, recorded so that they can be differentiated."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from spen.domains import Domain
from spen.energies.base import Problem
from spen.inference.base import Solution, Status, Trace
from spen.inference.evaluation import Prepared, prepare
from spen.inference.rule import Iterate, Rule, State


@dataclass(frozen=True)
class Walk:
    """Steps of one rule on one problem, from any state on.

    Attributes:
        rule: how one step is made.
        prepared: the problem, as the rule wants it.
        domain: where y lives.
        known: (n, L) labels to hold fixed, nan for those to infer.
        traced: whether all iterates are wanted, or the last one alone.
    """

    rule: Rule
    prepared: Prepared
    domain: Domain
    known: Tensor | None
    traced: bool

    def go(self, state: State, y: Tensor, steps: int) -> tuple[State, list[Tensor]]:
        """Make some steps from y; return the last state, and the iterates that are wanted."""
        prepared, iterates = self.prepared, []
        for _ in range(steps):
            # Most rules need no energies: those are computed for the last iterate, or for a trace.
            if self.rule.uses_value:
                value, gradient = prepared.evaluate(y, self.domain, self.known)
            else:
                value, gradient = None, prepared.gradient(y, self.known)
            here = Iterate(y, value, gradient, prepared.rates)
            state, y = self.rule.step(state, here, prepared.tau, self.known, self.domain)
            iterates = [*iterates, y] if self.traced else [y]
        return state, iterates

    def go_in_segments(self, state: State, y: Tensor, steps: int) -> tuple[State, list[Tensor]]:
        """Make the same steps in about √steps segments, of which only the ends are kept.

        The backward pass makes the steps of one segment again at a time. So at most about
        √steps ends and the √steps steps of one segment are in memory, for one more forward pass.
        """
        iterates = [y]
        for length in _segments(steps):
            state, found = checkpoint(
                self.go, state, iterates[-1], length, use_reentrant=False, preserve_rng_state=False
            )
            iterates = [*iterates, *found] if self.traced else found
        return state, iterates[1:] if self.traced else iterates


def unroll(
    rule: Rule,
    problem: Problem,
    domain: Domain,
    start: Tensor,
    known: Tensor | None,
    steps: int,
    *,
    differentiated: int | None = None,
    in_segments: bool = False,
    traced: bool = False,
) -> Solution:
    """Make exactly ``steps`` steps; return the last iterate.

    Args:
        rule: how one step is made.
        problem: the energies of a batch.
        domain: where y lives.
        start: (n, L) a point of the domain.
        known: (n, L) labels to hold fixed, nan for those to infer.
        steps: how many.
        differentiated: how many of them, the last ones, are differentiated; None is all.
        in_segments: keep the ends of segments only (see ``Walk.go_in_segments``).
        traced: keep every iterate in ``Solution.trace``.
    """
    walk = Walk(rule, prepare(problem, rule), domain, known, traced)
    state = rule.init(start, domain)
    y = start if known is None else domain.hold(start, known)
    iterates = [y]
    constant = 0 if differentiated is None else max(0, steps - differentiated)
    if constant:
        with torch.no_grad():
            state, found = walk.go(state, y, constant)
        iterates = [*iterates, *found] if traced else found
    go = walk.go_in_segments if in_segments and torch.is_grad_enabled() else walk.go
    if steps > constant:
        state, found = go(state, iterates[-1], steps - constant)
        iterates = [*iterates, *found] if traced else found
    rows = torch.arange(start.shape[0], device=start.device)
    return Solution(
        y=iterates[-1],
        energy=walk.prepared.value(iterates[-1], domain),
        steps=torch.full_like(rows, steps),
        status=torch.full_like(rows, Status.COMPLETED),
        trace=_trace(walk, iterates) if traced else None,
    )


def _segments(steps: int) -> list[int]:
    """Divide steps into about √steps segments of about as many.

    >>> _segments(10)
    [4, 4, 2]
    """
    length = math.ceil(math.sqrt(steps))
    return [min(length, steps - first) for first in range(0, steps, length)]


def _trace(walk: Walk, iterates: list[Tensor]) -> Trace:
    with torch.no_grad():
        energies = [walk.prepared.value(each, walk.domain) for each in iterates]
    return Trace(torch.stack(iterates), torch.stack(energies))
