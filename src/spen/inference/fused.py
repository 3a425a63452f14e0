"""The fused path: the whole descent in one kernel, where the problem allows it."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from spen.domains import Domain, UnitBox
from spen.energies.base import Problem
from spen.energies.form import Form
from spen.inference.base import Solution
from spen.inference.bundle import MirrorBundle
from spen.inference.rule import Rule
from spen.inference.rules import MirrorDescent, ProjectedGradient
from spen.kernels.interface import Limits, StepRule

if TYPE_CHECKING:
    from spen.inference.descent import Descent

KERNELS = {"cpu": "spen.kernels.cpu", "cuda": "spen.kernels.cuda"}
"""Where the kernels of a device are."""


def solve_fused(
    descent: Descent,
    problem: Problem,
    domain: Domain,
    start: Tensor,
    known: Tensor | None,
    *,
    fixed: bool = False,
) -> Solution | str:
    """Minimise in one kernel, or say why none can.

    Args:
        descent: the rule, and when to stop.
        problem: the energies of a batch.
        domain: where y lives.
        start: (n, L) a point of the domain.
        known: (n, L) labels to hold fixed, nan for those to infer.
        fixed: make exactly ``max_steps`` steps, and return the last iterate.
    """
    if descent.trace:
        return "a kernel keeps no trace of its iterates"
    if torch.is_grad_enabled():
        return "a kernel's answer cannot be differentiated, and gradients are being recorded"
    stopping = descent.stopping
    if not fixed and (stopping.scope != "example" or stopping.fraction < 1):
        return 'kernels stop each example by itself (scope="example", fraction=1)'
    if not isinstance(domain, UnitBox):
        return f"the kernels are for UnitBox, and the domain is {domain}"
    form = problem.form
    if form is None:
        return "the energy has no canonical form (see spen.Form)"
    step = step_of(descent.rule)
    if step is None:
        return f"the kernels do not know the rule {descent.rule}"
    if fixed and start.is_cuda:
        return "the kernel for GPUs makes no fixed number of steps"
    if fixed and not isinstance(descent.rule, MirrorDescent):
        # The last iterate of the others hangs on how numbers round, and it was trained as it is.
        return f"the kernels make no fixed number of steps of {descent.rule}"
    kernel = _kernel(start.device.type)
    if isinstance(kernel, str):
        return kernel
    if (reason := kernel.refusal(form, step, start, known)) is not None:
        return reason
    limits = Limits(stopping.max_steps, stopping.objective_rtol, stopping.iterate_atol, fixed)
    return _run(kernel, form, step, limits, start, known)


def step_of(rule: Rule) -> StepRule | None:
    """Return a rule in plain numbers, or None where kernels do not know it.

    >>> step = step_of(MirrorDescent(lr=0.5, momentum=0.0))
    >>> step.space, step.lr, step.is_bundle
    ('dual', 0.5, False)
    """
    # A subclass may make its steps in any other way.
    if type(rule) is MirrorDescent:
        return StepRule("dual", rule.lr, rule.momentum, rule.decay)
    if type(rule) is MirrorBundle:
        return StepRule("dual", reach=rule.reach, grow=rule.grow, shrink=rule.shrink)
    if type(rule) is ProjectedGradient:
        return StepRule("primal", rule.lr, rule.momentum, rule.decay)
    return None


@functools.cache
def _kernel(device: str) -> ModuleType | str:
    if device not in KERNELS:
        return f"there is no kernel for the device {device!r}"
    return importlib.import_module(KERNELS[device])


def _run(
    kernel: ModuleType,
    form: Form,
    step: StepRule,
    limits: Limits,
    start: Tensor,
    known: Tensor | None,
) -> Solution:
    y, energy, steps, status = kernel.minimise(form, step, limits, start, known)
    return Solution(y, energy, steps, status, backend=f"fused-{start.device.type}")
