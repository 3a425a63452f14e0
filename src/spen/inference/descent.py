"""The one iterative loop: gradient descent on y, each example stopping by itself."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from spen.domains import Domain
from spen.energies.base import Problem
from spen.errors import InputError, choose
from spen.inference.backward import Backward, Detached
from spen.inference.base import Inference, Solution, Status, Trace
from spen.inference.bundle import MirrorBundle
from spen.inference.fused import solve_fused
from spen.inference.rule import Iterate, Rule, State
from spen.inputs import positive, whole

EXAMPLES = {"rule": "MirrorDescent(lr=0.1)", "stopping": "Stopping(100)", "backward": "Unrolled()"}

BACKENDS = ("auto", "fused", "general")

CHECK_EVERY_ON_GPU = 10
"""Asking a GPU whether anything is left to do makes the host wait, so it is asked rarely."""

COMPACT_BELOW = 0.5
"""Dropping finished rows costs a copy, so it waits until it halves the work."""

ROW_TILE = 8
"""Matrix products round differently for the last rows of a batch that is not a multiple of
this, and the kinks of an energy can make much of that. So batches are filled up to it."""


@dataclass(frozen=True)
class Stopping:
    """When a descent ends. Either tolerance ends an example; zero turns one off.

    Args:
        max_steps: the most steps.
        objective_rtol: the relative change of the objective below which an example ends.
        iterate_atol: the largest change of any label below which an example ends.
        scope: "example": an example that has converged is frozen, so its answer does
            not depend on its neighbours. "batch": all go on until the batch ends.
        fraction: the share of the batch that must converge before the batch ends; below 1
            it is the paper's way to cut off slow examples.
    """

    max_steps: int = 100
    objective_rtol: float = 1e-5
    iterate_atol: float = 1e-4
    scope: Literal["example", "batch"] = "example"
    fraction: float = 1.0

    def __post_init__(self) -> None:
        whole(self.max_steps, "max_steps")
        positive(self.objective_rtol, "objective_rtol", zero=True)
        positive(self.iterate_atol, "iterate_atol", zero=True)
        choose(self.scope, {"example": 0, "batch": 0}, "scope")
        positive(self.fraction, "fraction")
        if self.fraction > 1:
            raise InputError(f"fraction must be above 0 and at most 1; received {self.fraction!r}.")

    def met(self, y: Tensor, last_y: Tensor, value: Tensor, last_value: Tensor) -> Tensor:
        """Return which examples meet a tolerance, (n,)."""
        change = (value - last_value).abs()
        scale = torch.maximum(value.abs(), last_value.abs())
        settled = change < self.objective_rtol * scale
        return settled | ((y - last_y).abs().amax(1) < self.iterate_atol)


@dataclass(frozen=True)
class _Work:
    """The rows still in the loop, every field rows first."""

    rows: Tensor
    known: Tensor | None
    state: State
    tau: Tensor | None
    y: Tensor
    value: Tensor
    gradient: Tensor
    best_y: Tensor
    best_value: Tensor
    steps: Tensor
    status: Tensor

    def select(self, rows: Tensor) -> _Work:
        optional = {"known": self.known, "tau": self.tau}
        present = {name: t[rows] for name, t in optional.items() if t is not None}
        names = ("rows", "y", "value", "gradient", "best_y", "best_value", "steps", "status")
        chosen = {name: getattr(self, name)[rows] for name in names}
        return replace(self, **present, **chosen, state=self.state.select(rows))


@dataclass(frozen=True)
class Descent(Inference):
    """Minimise by gradient steps on y.

    Args:
        rule: how one step is made.
        stopping: when to end.
        backward: how the solution is differentiated.
        trace: keep every iterate in ``Solution.trace``.
        backend: "auto" runs the whole descent in one kernel where one can, and step by step
            otherwise; "fused" insists on a kernel, "general" on single steps.

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
    backend: Literal["auto", "fused", "general"] = "auto"

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
        return (backward or self.backward).run(self, problem, domain, start, known)

    def minimise(
        self, problem: Problem, domain: Domain, start: Tensor, known: Tensor | None
    ) -> Solution:
        """Descend until every example has ended; return the best iterate of each."""
        if self.backend != "general":
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
        problem, tau = self._split_entropy(problem)
        work = self._begin(problem, tau, domain, start, known)
        trace = [(work.y, work.value)] if self.trace else None
        finished: list[_Work] = []
        check_every = CHECK_EVERY_ON_GPU if start.is_cuda else 1
        freezes = stopping.scope == "example"
        step, dropped_converged = 0, 0

        for step in range(1, stopping.max_steps + 1):
            last_y, last_value = work.y, work.value
            work = self._advance(work, problem, domain)
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
                work, problem = work.select(kept), problem.select(kept)
                dropped_converged = converged - int((work.status == Status.CONVERGED).sum())

        cut_off = Status.BATCH_STOPPED if step < stopping.max_steps else Status.MAX_STEPS
        running = work.status == Status.RUNNING
        work = replace(work, status=work.status.masked_fill(running, cut_off))
        return _gather([*finished, work], trace)

    def unroll(
        self, problem: Problem, domain: Domain, start: Tensor, known: Tensor | None
    ) -> Solution:
        """Make exactly ``max_steps`` differentiable steps; return the last iterate.

        Where no gradients are recorded, a kernel may make them.
        """
        if self.backend != "general":
            fused = solve_fused(self, problem, domain, start, known, fixed=True)
            if isinstance(fused, Solution):
                return fused
            self._unless_fused(fused)
        problem, tau = self._split_entropy(problem)
        state = self.rule.init(start, domain)
        y = start if known is None else domain.hold(start, known)
        iterates = [y]
        for _ in range(self.stopping.max_steps):
            # Most rules need no energies: those are computed for the last iterate, or for a trace.
            if self.rule.uses_value:
                value, gradient = _evaluate(problem, tau, domain, y, known)
            else:
                value, gradient = None, _free(problem.gradient(y), known)
            state, y = self.rule.step(state, Iterate(y, value, gradient), tau, known, domain)
            iterates = [*iterates, y] if self.trace else [y]
        values = [_with_entropy(problem.value(each), tau, domain, each) for each in iterates]
        rows = torch.arange(start.shape[0], device=start.device)
        return Solution(
            y=y,
            energy=values[-1],
            steps=torch.full_like(rows, self.stopping.max_steps),
            status=torch.full_like(rows, Status.COMPLETED),
            trace=_stack(list(zip(iterates, values, strict=True)) if self.trace else None),
        )

    def _split_entropy(self, problem: Problem) -> tuple[Problem, Tensor | None]:
        """Hand the entropy to a rule that applies it itself; leave it in the problem otherwise."""
        tau = problem.entropy_weight if self.rule.applies_entropy else None
        return (problem, None) if tau is None else (problem.without_entropy(), tau)

    def _begin(
        self,
        problem: Problem,
        tau: Tensor | None,
        domain: Domain,
        start: Tensor,
        known: Tensor | None,
    ) -> _Work:
        state = self.rule.init(start, domain)
        y = start if known is None else domain.hold(start, known)
        value, gradient = _evaluate(problem, tau, domain, y, known)
        n = start.shape[0]
        return _Work(
            rows=torch.arange(n, device=start.device),
            known=known,
            state=state,
            tau=tau,
            y=y,
            value=value,
            gradient=gradient,
            best_y=y,
            best_value=value,
            steps=torch.zeros(n, dtype=torch.int64, device=start.device),
            status=torch.full((n,), Status.RUNNING, device=start.device),
        )

    def _advance(self, work: _Work, problem: Problem, domain: Domain) -> _Work:
        """Make one step for every row."""
        here = Iterate(work.y, work.value, work.gradient)
        state, y = self.rule.step(work.state, here, work.tau, work.known, domain)
        value, gradient = _evaluate(problem, work.tau, domain, y, work.known)
        return replace(work, state=state, y=y, value=value, gradient=gradient)


def _evaluate(
    problem: Problem, tau: Tensor | None, domain: Domain, y: Tensor, known: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the whole objective, and the gradient that the rule wants."""
    value, gradient = problem.value_and_gradient(y)
    return _with_entropy(value, tau, domain, y), _free(gradient, known)


def _with_entropy(value: Tensor, tau: Tensor | None, domain: Domain, y: Tensor) -> Tensor:
    return value if tau is None else value + tau * domain.negative_entropy(y)


def _free(gradient: Tensor, known: Tensor | None) -> Tensor:
    """Zero the gradient of labels that are held."""
    return gradient if known is None else gradient.masked_fill(~torch.isnan(known), 0.0)


def _with_ballast(running: Tensor, left: int) -> tuple[Tensor, Tensor]:
    """Return which rows to keep, enough finished ones for a full tile (see ROW_TILE) among
    them, and which to drop: as numbers, because the size of a masked part is asked for anew
    with every tensor."""
    order = (~running).to(torch.int8).argsort(stable=True)
    size = left + -left % ROW_TILE
    return order[:size].sort().values, order[size:]


def _gather(parts: list[_Work], trace: list[tuple[Tensor, Tensor]] | None) -> Solution:
    """Put the rows back into the order in which they came."""
    order = torch.cat([part.rows for part in parts]).argsort()
    return Solution(
        y=torch.cat([part.best_y for part in parts])[order],
        energy=torch.cat([part.best_value for part in parts])[order],
        steps=torch.cat([part.steps for part in parts])[order],
        status=torch.cat([part.status for part in parts])[order],
        trace=_stack(trace),
    )


def _stack(trace: list[tuple[Tensor, Tensor]] | None) -> Trace | None:
    if trace is None:
        return None
    ys, energies = zip(*trace, strict=True)
    return Trace(torch.stack(ys), torch.stack(energies))
