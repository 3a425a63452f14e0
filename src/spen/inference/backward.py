"""Ways to differentiate a solve with respect to the parameters: objects of their own."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from spen.domains import Domain
from spen.energies.base import Problem
from spen.errors import InputError, check_settings, check_whole
from spen.inference.base import Solution, Status, Task, Trace
from spen.inference.fused import solve_if_fused
from spen.inference.rules import State, prepare

if TYPE_CHECKING:
    from spen.inference.descent import Descent


class Backward(ABC):
    """Runs a descent so that its solution has the wanted gradient."""

    @abstractmethod
    def run(self, descent: Descent, task: Task) -> Solution:
        """Solve with the descent's rule and stopping."""


@dataclass(frozen=True)
class Detached(Backward):
    """The solution is a constant, ∂y/∂parameters = 0: what the hinge needs, and the default.

    >>> from spen import Context, Descent, LocalEnergy, UnitBox
    >>> problem = LocalEnergy(n_features=8, n_labels=4).bind(Context(torch.ones(2, 8)))
    >>> descent = Descent(backward=Detached())
    >>> descent.solve(problem, UnitBox(4)).y.requires_grad
    False
    """

    def run(self, descent: Descent, task: Task) -> Solution:
        with torch.no_grad():
            return descent.minimise(*task)


@dataclass(frozen=True)
class Unrolled(Backward):
    """Back-propagates through every step.

        y_{t+1} = step(y_t), differentiated for t = 0, …, max_steps − 1

    Makes exactly ``max_steps`` steps and returns the last iterate, so that training
    and prediction run the same computation.

    Args:
        checkpoint: keep about √steps iterates and make the steps between them again in the
            backward pass. Memory then grows with the square root of the steps, and training
            takes one more forward pass.

    >>> Unrolled(checkpoint=True)
    Unrolled(checkpoint=True)
    """

    checkpoint: bool = False

    def run(self, descent: Descent, task: Task) -> Solution:
        return _unroll(descent, task, in_segments=self.checkpoint)


@dataclass(frozen=True)
class Truncated(Backward):
    """Back-propagates through the last steps alone; those before them are constants.

        y_{t+1} = step(y_t), differentiated for t = max_steps − steps, …, max_steps − 1

    Makes exactly ``max_steps`` steps, as ``Unrolled`` does. Memory and time of the backward pass
    grow with ``steps``, whatever ``max_steps`` is; the gradient leaves out how the parameters
    got the iterates to where the last steps begin.

    Args:
        steps: how many steps, the last ones, are differentiated.

    >>> Truncated(3)
    Truncated(steps=3)
    """

    steps: int

    def __post_init__(self) -> None:
        check_whole(self.steps, "steps")

    def run(self, descent: Descent, task: Task) -> Solution:
        return _unroll(descent, task, differentiated=self.steps)


def _unroll(
    descent: Descent, task: Task, *, differentiated: int | None = None, in_segments: bool = False
) -> Solution:
    """Make exactly ``max_steps`` steps; return the last iterate.

    Where no gradients are recorded, a kernel may make them.

    Args:
        descent: the rule, and how many steps.
        task: what to minimise, and from where.
        differentiated: how many of the steps, the last ones, are differentiated; None is all.
        in_segments: make the steps in about √steps segments, of which only the ends are kept. The
            backward pass makes the steps of one segment again at a time. So at most about √steps
            ends and the √steps steps of one segment are in memory, for one more forward pass.
    """
    if (fused := solve_if_fused(descent, task, fixed=True)) is not None:
        return fused
    prepared = prepare(task, descent.rule)

    def advance(state: State, y: Tensor, steps: int) -> tuple[State, list[Tensor]]:
        """Make some steps from y; return the last state, and all iterates or the last one."""
        iterates = []
        for _ in range(steps):
            state, y = prepared.step(state, y)
            iterates = [*iterates, y] if descent.trace else [y]
        return state, iterates

    steps, segmented = descent.stopping.max_steps, in_segments and torch.is_grad_enabled()
    last = steps if differentiated is None else min(steps, differentiated)
    state, first = prepared.begin(task.start)
    iterates = [first]
    with torch.no_grad():
        state, found = advance(state, first, steps - last)
    iterates += found
    for length in _segments(last) if segmented else [last]:
        if segmented:
            state, found = checkpoint(
                advance, state, iterates[-1], length, use_reentrant=False, preserve_rng_state=False
            )
        else:
            state, found = advance(state, iterates[-1], length)
        iterates = [*iterates, *found] if descent.trace else found
    trace = None
    if descent.trace:
        with torch.no_grad():
            energies = [prepared.value(each) for each in iterates]
        trace = Trace(torch.stack(iterates), torch.stack(energies))
    rows = torch.arange(first.shape[0], device=first.device)
    return Solution(
        y=iterates[-1],
        energy=prepared.value(iterates[-1]),
        steps=torch.full_like(rows, steps),
        status=torch.full_like(rows, Status.COMPLETED),
        trace=trace,
    )


def _segments(steps: int) -> list[int]:
    """Divide steps into about √steps segments of about as many.

    >>> _segments(10)
    [4, 4, 2]
    """
    length = math.ceil(math.sqrt(steps))
    return [min(length, steps - first) for first in range(0, steps, length)]


@dataclass(frozen=True)
class Implicit(Backward):
    """Differentiates the minimiser itself: y solves θ = −∇E(y)/τ with y = to_primal(θ).

    With H the energy's second derivative, W = ∂y/∂θ and v the gradient of the loss in y, the
    gradient in the parameters is −λ·∂∇E, where

        (τ W⁻¹ + H) λ = v.

    That is solved by conjugate gradients, in the metric of W: with m measurements they take at
    most m + 1 iterations, each as long as a step of descent. Memory does not depend on the
    steps. Labels that are known do not move, and have no part in it.

    The descent makes as many steps as its tolerances ask for, so these should be tight: the
    gradient is that of the minimum. Where the energy bends down, so that y is no minimum, λ is
    what was found before that showed.

    Args:
        damping: added to τ in the equation for λ. It bounds the gradient where a minimum is
            nearly flat.
        iterations: the most iterations of conjugate gradients.
        tolerance: the relative residual at which a row's are done.

    >>> import spen
    >>> spen.Descent(backward=Implicit()).backward
    Implicit(damping=0.0, iterations=100, tolerance=1e-06)
    """

    damping: float = 0.0
    iterations: int = 100
    tolerance: float = 1e-6

    def __post_init__(self) -> None:
        check_settings(self, damping="zero or more", tolerance="positive", iterations="whole")

    def run(self, descent: Descent, task: Task) -> Solution:
        tau = _weight_of_entropy(task.problem)
        with torch.no_grad():
            found = descent.minimise(*task)
        if not torch.is_grad_enabled():
            return found
        energy = task.problem.without_entropy()
        y = _Minimiser.apply(
            energy.gradient(found.y),
            found.y,
            lambda v: self._solve(energy, tau, task.domain, found.y, v),
        )
        return replace(found, y=y)

    def _solve(
        self, energy: Problem, tau: Tensor, domain: Domain, y: Tensor, wanted: Tensor
    ) -> Tensor:
        """Return λ for v = ``wanted``, (n, L)."""
        weight = tau[:, None] + self.damping
        with torch.enable_grad():
            point = y.detach().requires_grad_()
            slope = energy.gradient(point)

        def bend(direction: Tensor) -> Tensor:
            if not slope.requires_grad:
                return torch.zeros_like(direction)
            return torch.autograd.grad(
                slope, point, direction, retain_graph=True, materialize_grads=True
            )[0]

        return conjugate_gradients(
            lambda raw, spread: weight * raw + bend(spread),
            lambda raw: domain.spread(y, raw),
            wanted,
            self.iterations,
            self.tolerance,
        )


class _Minimiser(torch.autograd.Function):
    """y as it is, whose gradient goes to the energy's slope there, through a linear solve."""

    @staticmethod
    def forward(ctx: Any, slope: Tensor, y: Tensor, solve: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.solve = solve
        return y.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return -ctx.solve(gradients[0]), None, None


@torch.no_grad()
def conjugate_gradients(
    apply: Callable[[Tensor, Tensor], Tensor],
    precondition: Callable[[Tensor], Tensor],
    wanted: Tensor,
    iterations: int,
    tolerance: float,
) -> Tensor:
    """Solve K x = v for each row, with the preconditioner W whose inverse is part of K.

    W need not have an inverse: every direction p is W s for an s that is kept beside it, and K is
    applied to both, so that its part τ W⁻¹ p is τ s.

    Args:
        apply: (s, p) ↦ K p, where p = W s.
        precondition: r ↦ W r.
        wanted: v, (n, L).
        iterations: the most iterations.
        tolerance: the relative residual, in the norm of W, at which a row is done.

    >>> one = torch.tensor([[3.0, 8.0]])
    >>> conjugate_gradients(lambda s, p: s + 2 * p, lambda r: r, one, 10, 1e-6)
    tensor([[1.0000, 2.6667]])
    """
    solution, residual = torch.zeros_like(wanted), wanted
    raw, spread = wanted, precondition(wanted)
    size = (residual * spread).sum(1, keepdim=True)
    enough = tolerance**2 * size
    going = size > 0
    for _ in range(iterations):
        if not bool(going.any()):
            break
        applied = apply(raw, spread)
        curvature = (spread * applied).sum(1, keepdim=True)
        # Along a direction that bends down there is no minimum: what was found before stands.
        going = going & (curvature > 0)
        length = torch.where(going, size / curvature, 0.0)
        solution = solution + length * spread
        residual = residual - length * applied
        smoothed = precondition(residual)
        new_size = (residual * smoothed).sum(1, keepdim=True)
        going = going & (new_size > enough)
        turn = torch.where(going, new_size / size, 0.0)
        raw, spread, size = residual + turn * raw, smoothed + turn * spread, new_size
    return solution


def _weight_of_entropy(problem: Problem) -> Tensor:
    """Return τ, or say why this problem's minimiser cannot be differentiated."""
    tau = problem.entropy_weight
    if tau is None or not bool((tau > 0).all()):
        received = "none" if tau is None else f"{tau.min().item():g}"
        raise InputError(
            "Implicit needs an entropy weight above zero in every example, or minimisers are at "
            f"corners, where they do not move; received {received}. Give the objective "
            "entropy=1.0, or add spen.Entropy(domain, 1.0) to the energy."
        )
    if not problem.is_smooth:
        raise InputError(
            "Implicit needs a smooth energy, and this one has kinks (relu or hardtanh), at which "
            'minimisers sit. Use nonlinearity="softplus", or Unrolled().'
        )
    return tau
