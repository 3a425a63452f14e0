"""The one iterative loop: gradient descent on y, each example stopping by itself."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from spen.batch.context import take
from spen.domains import Domain
from spen.energies.base import Problem
from spen.errors import InputError, choose
from spen.inference.backward import Backward, Detached
from spen.inference.base import Inference, Solution, Status, Trace
from spen.inference.bundle import MirrorBundle
from spen.inference.compiled import compiled
from spen.inference.evaluation import Prepared, prepare
from spen.inference.fused import solve_fused
from spen.inference.rule import Iterate, Rule, State
from spen.inference.stopping import Stopping
from spen.inference.unroll import unroll

EXAMPLES = {"rule": "MirrorDescent(lr=0.1)", "stopping": "Stopping(100)", "backward": "Unrolled()"}

BACKENDS = ("auto", "fused", "general", "compiled")

CHECK_EVERY_ON_GPU = 10
"""Asking a GPU whether anything is left to do makes the host wait, so it is asked rarely."""

COMPACT_BELOW = 0.5
"""Dropping finished rows costs a copy, so it waits until it halves the work."""

ROW_TILE = 8
"""Matrix products round differently for the last rows of a batch that is not a multiple of
this, and the kinks of an energy can make much of that. So batches are filled up to it."""


@dataclass(frozen=True)
class _Work:
    """The rows still in the loop, every field rows first."""

    rows: Tensor
    known: Tensor | None
    state: State
    y: Tensor
    value: Tensor
    gradient: Tensor
    best_y: Tensor
    best_value: Tensor
    steps: Tensor
    status: Tensor

    def select(self, rows: Tensor) -> _Work:
        names = ("rows", "y", "value", "gradient", "best_y", "best_value", "steps", "status")
        chosen = {name: getattr(self, name)[rows] for name in names}
        known = take(self.known, rows)
        return replace(self, **chosen, known=known, state=self.state.select(rows))


@dataclass(frozen=True)
class Descent(Inference):
    """Minimise by gradient steps on y.

    Args:
        rule: how one step is made.
        stopping: when to end.
        backward: how the solution is differentiated.
        trace: keep every iterate in ``Solution.trace``.
        backend: "auto" runs the whole descent in one kernel where one can, and step by step
            otherwise; "fused" insists on a kernel, "general" on single steps. "compiled" makes
            single steps too, put together by torch.compile: faster for energies that no kernel
            knows, after half a minute of compiling. Unrolled steps are never compiled.

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

    def __post_init__(self) -> None:
        choose(self.backend, dict.fromkeys(BACKENDS), "backend")
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
        like = problem.rows_like
        if start is None:
            start = domain.uniform(like[:1]).expand(like.shape[0], -1)
        else:
            domain.check_shape(start, like.shape[0], "start")
            start = domain.project(start.to(like))
        if known is not None:
            domain.check_shape(known, like.shape[0], "known")
            known = domain.complete_known(known.to(like))
        found = (backward or self.backward).run(self, problem, domain, start, known)
        return _certified(found, problem, domain, known)

    def minimise(
        self, problem: Problem, domain: Domain, start: Tensor, known: Tensor | None
    ) -> Solution:
        """Descend until every example has ended; return the best iterate of each."""
        if self.backend in ("auto", "fused"):
            fused = solve_fused(self, problem, domain, start, known)
            if isinstance(fused, Solution):
                return fused
            self._unless_fused(fused)
        return self._minimise_by_steps(problem, domain, start, known)

    def _unless_fused(self, reason: str) -> None:
        if self.backend == "fused":
            raise InputError(
                f'backend="fused" was asked for, but {reason}. Use backend="auto", which takes '
                "the general path then."
            )

    def _minimise_by_steps(
        self, problem: Problem, domain: Domain, start: Tensor, known: Tensor | None
    ) -> Solution:
        stopping = self.stopping
        prepared = prepare(problem, self.rule)
        work = self._begin(prepared, domain, start, known)
        trace = [(work.y, work.value)] if self.trace else None
        finished: list[_Work] = []
        check_every = CHECK_EVERY_ON_GPU if start.is_cuda else 1
        freezes = stopping.scope == "example"
        step, dropped_converged = 0, 0
        by_compiler = self.backend == "compiled"
        advance = compiled(Descent._advance) if by_compiler else Descent._advance

        for step in range(1, stopping.max_steps + 1):
            last_y, last_value = work.y, work.value
            work = advance(self, work, prepared, domain)
            running = work.status == Status.RUNNING
            moving = running if freezes else work.status != Status.DIVERGED
            # A gradient that is not finite makes the next value so.
            finite = torch.isfinite(work.value)
            ended = stopping.met(work.y, last_y, work.value, last_value) | ~finite
            # In arithmetic, because torch.where copies its numbers to the GPU, and waits.
            ending = Status.DIVERGED - finite * (Status.DIVERGED - Status.CONVERGED)
            # Written so that a best value of nan, from a bad start, is improved on too.
            better = moving & finite & ~(work.value >= work.best_value)
            work = replace(
                work,
                best_y=torch.where(better[:, None], work.y, work.best_y),
                best_value=torch.where(better, work.value, work.best_value),
                steps=work.steps + moving,
                status=torch.where(running & ended, ending, work.status),
            )
            if trace is not None:
                # A frozen example stands still in its trace.
                y = torch.where(moving[:, None], work.y, trace[-1][0])
                trace.append((y, torch.where(moving, work.value, trace[-1][1])))
            if step % check_every:
                continue
            running = work.status == Status.RUNNING
            counts = torch.stack([running, work.status == Status.CONVERGED]).sum(1)
            left, converged = counts.tolist()
            converged += dropped_converged
            if left == 0 or converged >= stopping.fraction * (converged + left) - 1e-9 > 0:
                break
            if freezes and trace is None and left < COMPACT_BELOW * work.rows.shape[0]:
                kept, dropped = _with_ballast(running, left)
                finished.append(work.select(dropped))
                work, prepared = work.select(kept), prepared.select(kept)
                dropped_converged = converged - int((work.status == Status.CONVERGED).sum())

        cut_off = Status.BATCH_STOPPED if step < stopping.max_steps else Status.MAX_STEPS
        running = work.status == Status.RUNNING
        work = replace(work, status=work.status.masked_fill(running, cut_off))
        return _gather([*finished, work], trace, "compiled" if by_compiler else "general")

    def unroll(
        self,
        problem: Problem,
        domain: Domain,
        start: Tensor,
        known: Tensor | None,
        *,
        differentiated: int | None = None,
        in_segments: bool = False,
    ) -> Solution:
        """Make exactly ``max_steps`` differentiable steps; return the last iterate.

        Where no gradients are recorded, a kernel may make them. ``differentiated`` and
        ``in_segments`` are those of ``spen.inference.unroll``.
        """
        if self.backend in ("auto", "fused"):
            fused = solve_fused(self, problem, domain, start, known, fixed=True)
            if isinstance(fused, Solution):
                return fused
            self._unless_fused(fused)
        return unroll(
            self.rule,
            problem,
            domain,
            start,
            known,
            self.stopping.max_steps,
            differentiated=differentiated,
            in_segments=in_segments,
            traced=self.trace,
        )

    def _begin(
        self, prepared: Prepared, domain: Domain, start: Tensor, known: Tensor | None
    ) -> _Work:
        state = self.rule.init(start, domain)
        y = start if known is None else domain.hold(start, known)
        value, gradient = prepared.evaluate(y, domain, known)
        n = start.shape[0]
        return _Work(
            rows=torch.arange(n, device=start.device),
            known=known,
            state=state,
            y=y,
            value=value,
            gradient=gradient,
            best_y=y,
            best_value=value,
            steps=torch.zeros(n, dtype=torch.int64, device=start.device),
            status=torch.full((n,), Status.RUNNING, device=start.device),
        )

    def _advance(self, work: _Work, prepared: Prepared, domain: Domain) -> _Work:
        """Make one step for every row."""
        here = Iterate(work.y, work.value, work.gradient, prepared.rates)
        state, y = self.rule.step(work.state, here, prepared.tau, work.known, domain)
        value, gradient = prepared.evaluate(y, domain, work.known)
        return replace(work, state=state, y=y, value=value, gradient=gradient)


def _certified(found: Solution, problem: Problem, domain: Domain, known: Tensor | None) -> Solution:
    """Add how far the energy may be above its minimum, where it is convex and final."""
    # To ask a GPU whether a problem is convex makes the host wait; training does without.
    training_on_gpu = torch.is_grad_enabled() and found.y.is_cuda
    if found.y.requires_grad or training_on_gpu or not problem.is_convex:
        return found
    tau = problem.entropy_weight
    with torch.no_grad():
        if tau is None or not bool((tau > 0).all()):
            gap = domain.frank_wolfe_gap(found.y, problem.gradient(found.y), known)
        else:
            gradient = problem.without_entropy().gradient(found.y)
            gap = domain.entropic_gap(found.y, gradient, tau, known)
    return replace(found, gap=gap)


def _with_ballast(running: Tensor, left: int) -> tuple[Tensor, Tensor]:
    """Return which rows to keep, enough finished ones for a full tile (see ROW_TILE) among
    them, and which to drop: as numbers, because the size of a masked part is asked for anew
    with every tensor."""
    order = (~running).to(torch.int8).argsort(stable=True)
    size = left + -left % ROW_TILE
    return order[:size].sort().values, order[size:]


def _gather(
    parts: list[_Work], trace: list[tuple[Tensor, Tensor]] | None, backend: str
) -> Solution:
    """Put the rows back into the order in which they came."""
    order = torch.cat([part.rows for part in parts]).argsort()
    return Solution(
        y=torch.cat([part.best_y for part in parts])[order],
        energy=torch.cat([part.best_value for part in parts])[order],
        steps=torch.cat([part.steps for part in parts])[order],
        status=torch.cat([part.status for part in parts])[order],
        trace=_stack(trace),
        backend=backend,
    )


def _stack(trace: list[tuple[Tensor, Tensor]] | None) -> Trace | None:
    if trace is None:
        return None
    ys, energies = zip(*trace, strict=True)
    return Trace(torch.stack(ys), torch.stack(energies))
