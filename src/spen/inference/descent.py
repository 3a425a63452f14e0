"""The one iterative loop: gradient descent on y, each example stopping by itself."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Literal

import torch
from torch import Tensor

from spen.batch.positions import ROW_TILE
from spen.domains import Domain, held_labels
from spen.energies.base import Problem
from spen.errors import InputError, check_settings, check_whole, one_of
from spen.inference.backward import Backward, Detached, Unrolled
from spen.inference.base import Inference, Solution, Status, Task, Trace
from spen.inference.fused import compiled, solve_if_fused
from spen.inference.rules import MirrorBundle, Prepared, Rule, State, prepare
from spen.inference.shortlist import lengthened, shortened
from spen.inference.written import steps_written_out

EXAMPLES = {"rule": "MirrorDescent(lr=0.1)", "stopping": "Stopping(100)", "backward": "Unrolled()"}

BACKENDS = ("auto", "fused", "general", "compiled")

CHECK_EVERY_ON_GPU = 10
"""Asking a GPU whether anything is left to do makes the host wait, so it is asked rarely."""

RUNNING, CONVERGED, DIVERGED = map(int, (Status.RUNNING, Status.CONVERGED, Status.DIVERGED))
"""As plain numbers, which torch's tracers compare with tensors as everybody else does."""

COMPACT_BELOW = 0.5
"""Dropping finished rows costs a copy, so it waits until it halves the work."""


@dataclass(frozen=True)
class Stopping:
    """When a descent ends: by its tolerances, of which zero turns one off, or after so many steps.

    Args:
        max_steps: the most steps.
        objective_rtol: the relative change of the objective below which an example ends.
        iterate_atol: the largest change of any label below which an example ends.
        require: "either": one tolerance ends an example, as in the paper. "both": it ends in a
            step that meets both (of those that are on). A slow rule meets the first long before
            it has arrived, so rules are best compared by "both".
        scope: "example": an example that has converged is frozen, so its answer does
            not depend on its neighbours. "batch": all go on until the batch ends.
        fraction: the share of the batch that must converge before the batch ends; below 1
            it is the paper's way to cut off slow examples.

    >>> Stopping(max_steps=20, objective_rtol=1e-3).scope
    'example'
    """

    max_steps: int = 100
    objective_rtol: float = 1e-5
    iterate_atol: float = 1e-4
    scope: Literal["example", "batch"] = "example"
    fraction: float = 1.0
    require: Literal["either", "both"] = "either"

    def __post_init__(self) -> None:
        tolerances = dict.fromkeys(("objective_rtol", "iterate_atol"), "zero or more")
        words = {"scope": ("example", "batch"), "require": ("either", "both")}
        check_settings(self, max_steps="steps", fraction="positive", **words, **tolerances)
        if self.fraction > 1:
            raise InputError(f"fraction must be above 0 and at most 1; received {self.fraction!r}.")

    @property
    def needs_both(self) -> bool:
        """Whether an example must meet both tolerances: one that is off is asked of none."""
        return self.require == "both" and self.objective_rtol > 0 and self.iterate_atol > 0

    def met(self, y: Tensor, last_y: Tensor, value: Tensor, last_value: Tensor) -> Tensor:
        """Return which examples meet their tolerances, (n,)."""
        change = (value - last_value).abs()
        scale = torch.maximum(value.abs(), last_value.abs())
        settled = change < self.objective_rtol * scale
        still = (y - last_y).abs().amax(1) < self.iterate_atol
        return settled & still if self.needs_both else settled | still


@dataclass(frozen=True)
class Work:
    """The rows still in the loop, every field rows first."""

    rows: Tensor
    state: State
    y: Tensor
    value: Tensor
    gradient: Tensor
    best_y: Tensor
    best_value: Tensor
    steps: Tensor
    status: Tensor

    @staticmethod
    def begin(prepared: Prepared, start: Tensor) -> Work:
        rows = torch.arange(start.shape[0], device=start.device)
        state, y = prepared.begin(start)
        value, gradient = prepared.evaluate(y)
        steps, status = torch.zeros_like(rows), torch.full_like(rows, Status.RUNNING)
        return Work(rows, state, y, value, gradient, y, value, steps, status)

    def advance(self, prepared: Prepared) -> Work:
        """Make one step for every row."""
        state, y = prepared.step(self.state, self.y, self.value, self.gradient)
        value, gradient = prepared.evaluate(y)
        return replace(self, state=state, y=y, value=value, gradient=gradient)

    def judge(self, last_y: Tensor, last_value: Tensor, stopping: Stopping) -> tuple[Work, Tensor]:
        """End the rows that have converged or diverged since the last step, and keep the best of
        each; return which rows have moved, (n,), too."""
        running = self.status == RUNNING
        moving = running if stopping.scope == "example" else self.status != DIVERGED
        # A gradient that is not finite makes the next value so.
        finite = torch.isfinite(self.value)
        ended = stopping.met(self.y, last_y, self.value, last_value) | ~finite
        # In arithmetic, because torch.where copies its numbers to the GPU, and waits.
        ending = DIVERGED - finite * (DIVERGED - CONVERGED)
        # Written so that a best value of nan, from a bad start, is improved on too.
        better = moving & finite & ~(self.value >= self.best_value)
        judged = replace(
            self,
            best_y=torch.where(better[:, None], self.y, self.best_y),
            best_value=torch.where(better, self.value, self.best_value),
            steps=self.steps + moving,
            status=torch.where(running & ended, ending, self.status),
        )
        return judged, moving

    def select(self, rows: Tensor) -> Work:
        state, names = self.state.select(rows), [each.name for each in fields(self)]
        chosen = {name: getattr(self, name)[rows] for name in names if name != "state"}
        return Work(**chosen, state=state)


@dataclass(frozen=True)
class Descent(Inference):
    """Minimise by gradient steps on y (n, L): y ← step(y, ∇E(y)), as its rule says.

    Args:
        rule: how one step is made.
        stopping: when to end.
        backward: how the solution is differentiated.
        trace: keep every iterate in ``Solution.trace``.
        backend: "auto" runs the whole descent in one kernel where one can, and step by step
            otherwise; "fused" insists on a kernel, "general" on single steps. "compiled" makes
            single steps too, put together by torch.compile: faster for energies that no kernel
            knows, after half a minute of compiling. Unrolled steps are never compiled.
        shortlist: of many labels, how many of each row are inferred: those that score highest by
            themselves. All others are held at zero, so that a step costs no more for a million
            labels than for as many as are on the list. None infers all.

    >>> import torch
    >>> from spen import Form, UnitBox
    >>> problem = Form(linear=torch.tensor([[2.0, -2.0]]))
    >>> Descent().solve(problem, UnitBox(2)).y.round()
    tensor([[0., 1.]])
    """

    rule: Rule = field(default_factory=MirrorBundle)
    stopping: Stopping = field(default_factory=Stopping)
    backward: Backward = field(default_factory=Detached)
    trace: bool = False
    backend: Literal["auto", "fused", "general", "compiled"] = "auto"
    shortlist: int | None = None

    def __post_init__(self) -> None:
        if self.shortlist is not None:
            check_whole(self.shortlist, "shortlist")
        if self.backend not in BACKENDS:
            one_of(self.backend, BACKENDS, "backend")
        kinds = {"rule": Rule, "stopping": Stopping, "backward": Backward}
        for name, kind in kinds.items():
            if not isinstance(getattr(self, name), kind):
                raise InputError(
                    f"{name} must be a {kind.__name__}, such as {EXAMPLES[name]}; "
                    f"received {getattr(self, name)!r}."
                )

    def solve(
        self,
        problem: Problem,
        domain: Domain,
        start: Tensor | None = None,
        known: Tensor | None = None,
        backward: Backward | None = None,
    ) -> Solution:
        """Minimise each example's energy, as ``Inference.solve``.

        Args:
            problem: the energies of a batch.
            domain: where y lives.
            start: (n, L) where to begin; None is the domain's centre.
            known: (n, L) labels to hold fixed: 1, 0, or nan for those to infer.
            backward: how this solution is differentiated, instead of the descent's own way.
        """
        if start is not None:
            like = problem.rows_like
            domain.check_shape(start, like.shape[0], "start")
            start = domain.project(start.to(like))
        return self._solve_from(start, problem, domain, known, backward)

    def _solve_from(
        self,
        start: Tensor | None,
        problem: Problem,
        domain: Domain,
        known: Tensor | None,
        backward: Backward | None,
    ) -> Solution:
        """Minimise from a start that lies in the domain."""
        task = _task(problem, domain, start, known)
        if self.shortlist is not None and self.shortlist < domain.size:
            shorter, chosen = shortened(task, self.shortlist)
            found = replace(self, shortlist=None).solve(*shorter, backward)
            return lengthened(found, chosen, domain.size)
        return self._run(task, backward)

    def _run(self, task: Task, backward: Backward | None) -> Solution:
        found = (backward or self.backward).run(self, task)
        return _add_gap(found, task.problem, task.domain, task.known)

    def minimise(
        self, problem: Problem, domain: Domain, start: Tensor, known: Tensor | None
    ) -> Solution:
        """Descend until every example has ended; return the best iterate of each."""
        task = Task(problem, domain, start, known)
        if (fused := solve_if_fused(self, task)) is not None:
            return fused
        stopping = self.stopping
        prepared = prepare(task, self.rule)
        work = Work.begin(prepared, start)
        trace = [(work.y, work.value)] if self.trace else None
        finished: list[Work] = []
        check_every = CHECK_EVERY_ON_GPU if start.is_cuda else 1
        freezes = stopping.scope == "example"
        # All steps are made, by whatever rows: nobody need be asked.
        never_ends = stopping.objective_rtol == stopping.iterate_atol == 0
        step, dropped_converged = 0, 0
        by_compiler = self.backend == "compiled"
        advance = compiled(Work.advance) if by_compiler else Work.advance

        for step in range(1, stopping.max_steps + 1):
            last_y, last_value = work.y, work.value
            work, moving = advance(work, prepared).judge(last_y, last_value, stopping)
            if trace is not None:
                # A frozen example stands still in its trace.
                y = torch.where(moving[:, None], work.y, trace[-1][0])
                trace.append((y, torch.where(moving, work.value, trace[-1][1])))
            if never_ends or step % check_every:
                continue
            running = work.status == Status.RUNNING
            counts = torch.stack([running, work.status == Status.CONVERGED]).sum(1)
            left, converged = counts.tolist()
            converged += dropped_converged
            if left == 0 or converged >= stopping.fraction * (converged + left) - 1e-9 > 0:
                break
            if freezes and trace is None and left < COMPACT_BELOW * work.rows.shape[0]:
                kept, dropped = _split_rows(running, left)
                finished.append(work.select(dropped))
                work, prepared = work.select(kept), prepared.select(kept)
                dropped_converged = converged - int((work.status == Status.CONVERGED).sum())

        cut_off = Status.BATCH_STOPPED if step < stopping.max_steps else Status.MAX_STEPS
        running = work.status == Status.RUNNING
        work = replace(work, status=work.status.masked_fill(running, cut_off))
        return _gather([*finished, work], trace, "compiled" if by_compiler else "general")


def _add_gap(found: Solution, problem: Problem, domain: Domain, known: Tensor | None) -> Solution:
    """Add how far the energy may be above its minimum, where it is convex and final."""
    # To ask a GPU whether a problem is convex makes the host wait; training does without.
    training_on_gpu = torch.is_grad_enabled() and found.y.is_cuda
    # A graph that is being traced (see spen.inference.graph) has no numbers to ask.
    traced = torch.compiler.is_compiling()
    if found.y.requires_grad or training_on_gpu or traced or not problem.is_convex:
        return found
    tau = problem.entropy_weight
    with torch.no_grad():
        if tau is None or not bool((tau > 0).all()):
            gap = domain.frank_wolfe_gap(found.y, problem.gradient(found.y), known)
        else:
            gradient = problem.without_entropy().gradient(found.y)
            gap = domain.entropic_gap(found.y, gradient, tau, known)
    return replace(found, gap=gap)


def _split_rows(running: Tensor, left: int) -> tuple[Tensor, Tensor]:
    """Return which rows to keep, enough finished ones for a full tile (see ROW_TILE) among
    them, and which to drop: as numbers, because the size of a masked part is asked for anew
    with every tensor."""
    order = (~running).to(torch.int8).argsort(stable=True)
    size = left + -left % ROW_TILE
    return order[:size].sort().values, order[size:]


def _gather(parts: list[Work], trace: list[tuple[Tensor, Tensor]] | None, backend: str) -> Solution:
    """Put the rows back into the order in which they came."""
    order = torch.cat([part.rows for part in parts]).argsort()
    names = ("best_y", "best_value", "steps", "status")
    found = [torch.cat([getattr(part, name) for part in parts])[order] for name in names]
    kept = None if trace is None else Trace(*map(torch.stack, zip(*trace, strict=True)))
    return Solution(*found, trace=kept, backend=backend)


def solve_through(
    inference: Inference,
    problem: Problem,
    domain: Domain,
    start: Tensor | None,
    known: Tensor | None,
    *,
    trace: bool = False,
) -> Solution:
    """Minimise so that the solution can be differentiated: by the descent's own ``backward``, or
    where that is Detached through all of its steps. A start must lie in the domain."""
    descent, backward = _differentiable(inference)
    descent = replace(descent, trace=True) if trace else descent
    if _has_own_solve(descent):
        return descent.solve(problem, domain, start, known, backward)
    return descent._solve_from(start, problem, domain, known, backward)


def y_through(
    inference: Inference,
    problem: Problem,
    domain: Domain,
    start: Tensor | None,
    known: Tensor | None,
) -> Tensor:
    """Return the y of ``solve_through`` alone, for a loss, which asks for no energy."""
    descent, backward = _differentiable(inference)
    plain = type(descent) is Descent and descent.shortlist is None
    if not plain or not torch.is_grad_enabled():
        return solve_through(inference, problem, domain, start, known).y
    task = _task(problem, domain, start, known)
    y = steps_written_out(descent, task) if backward == Unrolled() else None
    return backward.run(descent, task).y if y is None else y


def _task(problem: Problem, domain: Domain, start: Tensor | None, known: Tensor | None) -> Task:
    """Return what is to be solved from a start that lies in the domain; None is its centre."""
    like = problem.rows_like
    if start is None:
        start = domain.uniform(like[:1]).expand(like.shape[0], -1)
    return Task(problem, domain, start, held_labels(domain, known, like, problem.mask))


def _has_own_solve(descent: Descent) -> bool:
    """Whether somebody's subclass overrides ``solve`` and knows nothing of ``_solve_from``."""
    kinds = (kind for kind in type(descent).__mro__ if {"solve", "_solve_from"} & vars(kind).keys())
    return "_solve_from" not in vars(next(kinds))


def _differentiable(inference: Inference) -> tuple[Descent, Backward]:
    """Return a descent, and how its solution is differentiated."""
    if not isinstance(inference, Descent):
        raise InputError(
            "This objective differentiates the steps of a Descent; "
            f"received {type(inference).__name__}."
        )
    detached = isinstance(inference.backward, Detached)
    return inference, Unrolled() if detached else inference.backward
