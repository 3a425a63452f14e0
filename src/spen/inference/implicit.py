"""The gradient of a minimiser by the implicit function theorem, whatever steps led to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from spen.domains import Domain
from spen.energies.base import Problem
from spen.errors import InputError, check_positive, check_whole
from spen.inference.backward import Backward
from spen.inference.base import Solution

if TYPE_CHECKING:
    from spen.inference.descent import Descent


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
        check_positive(self.damping, "damping", zero=True)
        check_positive(self.tolerance, "tolerance")
        check_whole(self.iterations, "iterations")

    def run(
        self,
        descent: Descent,
        problem: Problem,
        domain: Domain,
        start: Tensor,
        known: Tensor | None,
    ) -> Solution:
        tau = _weight_of_entropy(problem)
        with torch.no_grad():
            found = descent.minimise(problem, domain, start, known)
        if not torch.is_grad_enabled():
            return found
        energy = problem.without_entropy()
        y = _Minimiser.apply(
            energy.gradient(found.y),
            found.y,
            lambda v: self._solve(energy, tau, domain, found.y, v),
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
