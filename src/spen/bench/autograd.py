"""The loop that one writes without this library: what the kernels are compared with."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from spen.domains import Domain
from spen.energies.base import Problem
from spen.inference.descent import Stopping
from spen.inference.rule import Iterate, Rule


class LoopResult(NamedTuple):
    """The best iterate of each row (n, L), its energy (n,), and the steps (n,) it took."""

    y: Tensor
    energy: Tensor
    steps: Tensor


@torch.no_grad()
def autograd_loop(
    problem: Problem, domain: Domain, rule: Rule, stopping: Stopping, start: Tensor
) -> LoopResult:
    """Minimise by PyTorch's own means: autograd for the gradient, all rows in every step.

    The same rule, tolerances and best iterates as ``spen.Descent``, so the same answers. It
    looks after each step whether a row is left that has not converged.

    Args:
        problem: the energies of a batch; only its value is used.
        domain: where y lives.
        rule: how a step is made.
        stopping: the tolerances.
        start: (n, L).

    >>> from spen import Form, MirrorDescent, UnitBox
    >>> problem, domain = Form(linear=torch.tensor([[2.0, -2.0]])), UnitBox(2)
    >>> start = domain.uniform(problem.rows_like)
    >>> autograd_loop(problem, domain, MirrorDescent(), Stopping(100), start).y.round()
    tensor([[0., 1.]])
    """
    tau = problem.entropy_weight if rule.applies_entropy else None
    smooth = problem if tau is None else problem.without_entropy()

    def evaluate(at: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            leaf = at.detach().requires_grad_()
            energy = smooth.value(leaf)
            (gradient,) = torch.autograd.grad(energy.sum(), leaf)
        value = energy.detach()
        return value if tau is None else value + tau * domain.negative_entropy(at), gradient

    y, state = start, rule.init(start, domain)
    value, gradient = evaluate(y)
    best_y, best = y, value
    running = torch.ones(start.shape[0], dtype=torch.bool, device=start.device)
    steps = torch.zeros_like(running, dtype=torch.int64)
    for _ in range(stopping.max_steps):
        last_y, last_value = y, value
        state, y = rule.step(state, Iterate(y, value, gradient), tau, None, domain)
        value, gradient = evaluate(y)
        better = running & (value < best)
        best_y = torch.where(better[:, None], y, best_y)
        best = torch.where(better, value, best)
        steps += running
        running &= ~stopping.met(y, last_y, value, last_value)
        if not running.any():
            break
    return LoopResult(best_y, best, steps)
