"""The quick ways of a descent: all in one kernel, or steps that torch.compile puts together."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from spen.domains import Domain, UnitBox
from spen.energies.base import Problem
from spen.errors import InputError
from spen.inference.base import Solution, Task
from spen.inference.rules import MirrorBundle, MirrorDescent, ProjectedGradient, Rule
from spen.kernels import cpu, cuda
from spen.kernels.interface import Limits, StepRule

if TYPE_CHECKING:
    from spen.inference.descent import Descent

KERNELS = {"cpu": cpu, "cuda": cuda}
"""The kernels of a device."""


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
    device = start.device.type
    if device not in KERNELS:
        return f"there is no kernel for the device {device!r}"
    kernel = KERNELS[device]
    if (reason := kernel.refusal(form, step, start, known)) is not None:
        return reason
    tolerances = float(stopping.objective_rtol), float(stopping.iterate_atol)
    limits = Limits(int(stopping.max_steps), *tolerances, fixed, stopping.needs_both)
    found = kernel.minimise(form, step, limits, start, known)
    return Solution(*found, backend=f"fused-{device}")


def solve_if_fused(descent: Descent, task: Task, *, fixed: bool = False) -> Solution | None:
    """Minimise as ``solve_fused``; None where no kernel can, or the backend wants none."""
    if descent.backend not in ("auto", "fused"):
        return None
    found = solve_fused(descent, *task, fixed=fixed)
    if isinstance(found, Solution):
        return found
    if descent.backend == "fused":
        raise InputError(
            f'backend="fused" was asked for, but {found}. Use backend="auto", which takes '
            "the general path then."
        )
    return None


def step_of(rule: Rule) -> StepRule | None:
    """Return a rule in plain numbers, or None where kernels do not know it.

    >>> step = step_of(MirrorDescent(lr=0.5, momentum=0.0))
    >>> step.primal, step.lr, step.reach
    (False, 0.5, 0.0)
    """
    # A subclass may make its steps in any other way.
    if type(rule) not in (MirrorDescent, MirrorBundle, ProjectedGradient):
        return None
    settings = {name: float(value) for name, value in vars(rule).items()}
    return StepRule(**settings, primal=type(rule) is ProjectedGradient)


Step = Callable[..., Any]


@functools.cache
def compiled(step: Step) -> _CompiledStep:
    """Return a step that torch.compile makes at its first call, and that works in any case.

    Making it takes half a minute, once a process, and needs a C++ compiler on a CPU or Triton
    on a GPU. Where it cannot be made, that is said once, and the step stays as it is.

    Args:
        step: the function of tensors to make faster.

    >>> double = compiled(lambda x: 2 * x)
    >>> compiled(double) is compiled(double)
    True
    """
    return _CompiledStep(step)


class _CompiledStep:
    def __init__(self, plain: Step) -> None:
        self.plain = plain
        self.fast: Step | None = None
        self.failed = False

    def __call__(self, *arguments: Any) -> Any:
        if self.failed:
            return self.plain(*arguments)
        try:
            with warnings.catch_warnings():
                # Torch's own compiler is built with parts of torch that it warns of.
                warnings.simplefilter("ignore", DeprecationWarning)
                # Batches shrink while rows end, and each size would be compiled for itself.
                self.fast = self.fast or torch.compile(self.plain, dynamic=True)
                return self.fast(*arguments)
        except Exception as problem:
            # What is wrong with the step itself is raised here, by the step itself.
            answer = self.plain(*arguments)
            self.failed = True
            reason = str(problem).strip().splitlines() or [type(problem).__name__]
            warnings.warn(
                "torch.compile could not compile the steps of inference, which go on uncompiled: "
                f"{reason[0]}",
                RuntimeWarning,
                stacklevel=2,
            )
            return answer
