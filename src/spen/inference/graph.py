"""A descent as part of a graph that leaves Python: its steps are a loop of the graph itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from spen.energies.base import Problem, RecordProblem, SumProblem
from spen.energies.convex import ConvexProblem
from spen.energies.form import Block
from spen.inference.backward import Backward, Truncated, Unrolled
from spen.inference.base import Solution, Status, Task
from spen.inference.descent import CONVERGED, RUNNING, Work
from spen.inference.polished import LEAST_GAIN, Polished
from spen.inference.rules import prepare

if TYPE_CHECKING:
    from spen.inference.descent import Descent

UNROLLED = 16
"""Steps of a fixed number up to which a graph has them one after the other, without a loop."""


@dataclass(frozen=True)
class AsGraph(Backward):
    """Runs a descent while ``torch.export`` traces it; it is not differentiated.

    Each row stops by itself, as in ``Descent``: a loop of the graph goes on while any row runs.

    Args:
        fixed: make exactly ``max_steps`` steps and return the last iterate, as ``Unrolled`` does.
    """

    fixed: bool = False

    @staticmethod
    def of(descent: Descent, through_steps: bool) -> Descent:
        """Return a descent that can be traced, and answers as this one does.

        Args:
            descent: of predictions.
            through_steps: whether the objective differentiates its steps (see ``solve_through``).
        """
        kept = isinstance(descent.backward, Unrolled | Truncated)
        stops = type(descent.backward).__name__ == "Implicit"
        fixed = kept or (through_steps and not stops)
        return replace(descent, backward=AsGraph(fixed), backend="general", trace=False)

    def run(self, descent: Descent, task: Task) -> Solution:
        if self.fixed and descent.stopping.max_steps <= UNROLLED:
            return Unrolled().run(descent, task)
        return self._steps(descent, task) if self.fixed else self._until_stopped(descent, task)

    def _steps(self, descent: Descent, task: Task) -> Solution:
        prepared, steps = prepare(task, descent.rule), descent.stopping.max_steps
        # The first step is made outside: there a rule's state gets its final shape.
        state, y = prepared.step(*prepared.begin(task.start))

        def step(loop: Any) -> Any:
            prepared, count, state, y = loop
            return prepared, count + 1, *prepared.step(state, y)

        count = torch.ones((), dtype=torch.int64)
        first = (prepared, count, state, y)
        _, _, _, y = repeat(lambda loop: loop[1] < steps, step, first)
        made = torch.full_like(y[:, 0], steps, dtype=torch.int64)
        return Solution(y, prepared.value(y), made, torch.full_like(made, Status.COMPLETED))

    def _until_stopped(self, descent: Descent, task: Task) -> Solution:
        prepared, stopping = prepare(task, descent.rule), descent.stopping

        def step(loop: Any) -> Any:
            prepared, count, work = loop
            after, _ = work.advance(prepared).judge(work.y, work.value, stopping)
            return prepared, count + 1, after

        def goes_on(loop: Any) -> Tensor:
            _, count, work = loop
            left = (work.status == RUNNING).sum()
            converged = (work.status == CONVERGED).sum()
            wanted = stopping.fraction * (converged + left) - 1e-9
            enough = (wanted > 0) & (converged >= wanted)
            return (count < stopping.max_steps) & (left > 0) & ~enough

        count = torch.zeros((), dtype=torch.int64)
        first = step((prepared, count, Work.begin(prepared, task.start)))
        _, count, work = repeat(goes_on, step, first)
        cut_off = torch.where(count < stopping.max_steps, Status.BATCH_STOPPED, Status.MAX_STEPS)
        running = work.status == RUNNING
        status = torch.where(running, cut_off, work.status)
        return Solution(work.best_y, work.best_value, work.steps, status)


def polish(problem: Problem, y: Tensor, known: Tensor | None) -> Tensor:
    """Flip labels of labellings (n, L) as ``Polished`` does, as a loop of a graph."""
    settings = Polished()
    problem = problem.without_entropy()
    candidates = min(settings.candidates, y.shape[1])

    def flip(loop: Any) -> Any:
        problem, known, count, y, energy, going = loop
        change = problem.gradient(y) * (1 - 2 * y)
        if known is not None:
            change = change.masked_fill(~known.isnan(), torch.inf)
        likely = change.topk(candidates, largest=False)
        row = torch.arange(y.shape[0])[:, None].expand(-1, candidates).reshape(-1)
        at = likely.indices.reshape(-1, 1)
        flipped = y[row]
        flipped = flipped.scatter(1, at, 1 - flipped.gather(1, at))
        values = problem.select(row).value(flipped).reshape(-1, candidates)
        # Labels that are held stay, however good a flip would be.
        values = torch.where(likely.values < torch.inf, values, torch.inf)
        value, best = values.min(1)
        lower = value < energy - LEAST_GAIN * energy.abs()
        lower = going & (lower | (value.isfinite() & ~energy.isfinite()))
        at = likely.indices.gather(1, best[:, None])
        better = y.scatter(1, at, 1 - y.gather(1, at))
        y = torch.where(lower[:, None], better, y)
        return problem, known, count + 1, y, torch.where(lower, value, energy), lower

    def goes_on(loop: Any) -> Tensor:
        return (loop[2] < settings.flips) & loop[5].any()

    count, energy = torch.zeros((), dtype=torch.int64), problem.value(y)
    first = (problem, known, count, y, energy, torch.ones_like(energy, dtype=torch.bool))
    return repeat(goes_on, flip, first)[3]


def repeat(goes_on: Callable[[Any], Tensor], step: Callable[[Any], Any], first: Any) -> Any:
    """Return what steps make of ``first`` while ``goes_on`` is true, by ``torch.while_loop``.

    Tensors are found in tuples and dataclasses. All of them are handed to the loop and come out of
    it: a graph's loop sees nothing from outside.
    """
    tensors = tensors_of(first)

    def cond(*parts: Tensor) -> Tensor:
        return goes_on(with_tensors(first, iter(parts)))

    def body(*parts: Tensor) -> tuple[Tensor, ...]:
        # What goes through as it is must be another tensor all the same.
        return tuple(part.clone() for part in tensors_of(step(with_tensors(first, iter(parts)))))

    loop: Any = getattr(torch, "while_loop")  # noqa: B009
    found = loop(cond, body, tuple(part.clone() for part in tensors))
    return with_tensors(first, iter(found))


def tensors_of(thing: Any) -> list[Tensor]:
    """Return the tensors in nested tuples and dataclasses, in order."""
    if isinstance(thing, Tensor):
        return [thing]
    return [tensor for _, part in _parts(thing) for tensor in tensors_of(part)]


def with_tensors(thing: Any, tensors: Iterator[Tensor]) -> Any:
    """Return the same with other tensors, in that order.

    >>> with_tensors((torch.zeros(1), "a"), iter([torch.ones(1)]))
    (tensor([1.]), 'a')
    """
    if isinstance(thing, Tensor):
        return next(tensors)
    changed = {name: with_tensors(part, tensors) for name, part in _parts(thing)}
    if isinstance(thing, SumProblem):
        return SumProblem(list(changed.values()))
    if isinstance(thing, tuple):
        return type(thing)(*changed.values()) if hasattr(thing, "_fields") else (*changed.values(),)
    return replace(thing, **changed) if changed else thing


def _parts(thing: Any) -> list[tuple[str, Any]]:
    """Return the parts of a thing that tensors may be in, by name."""
    if isinstance(thing, tuple | SumProblem):
        parts = thing.terms if isinstance(thing, SumProblem) else thing
        return [(str(number), part) for number, part in enumerate(parts)]
    if isinstance(thing, RecordProblem | ConvexProblem | Block | Work):
        return [(each.name, getattr(thing, each.name)) for each in fields(thing)]
    return []
