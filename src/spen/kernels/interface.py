"""The interface of kernels: what they are given and return, in plain numbers and tensors.

A kernel module has two functions,

    refusal(form, step, start, known) → why it cannot, in words, or None where it can
    minimise(form, step, limits, start, known) → Fused

and does exactly what the general descent does on the unit box: each row makes steps until it
meets a tolerance by itself, and its best iterate is returned. Where ``limits.fixed`` is set it
makes so many steps, and its last iterate is returned: what the unrolled descent does.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

CONVERGED, MAX_STEPS, DIVERGED, COMPLETED = 1, 2, 4, 5
"""How a row ended: the codes of ``spen.inference.base.Status`` that a kernel can give."""

KINDS = {"relu": 0, "hardtanh": 1, "softplus": 2, "sigmoid": 3, "square": 4}
"""The nonlinearities by name, as the numbers that the kernels know them by."""


class StepRule(NamedTuple):
    """How one step is made, in plain numbers: a gradient rule, or the bundle rule.

    The gradient rule, with u the point in its own space,

        u ← u − η_t ∇E + momentum · (u − u_previous),   η_t = lr / (1 + decay · t)

    In the dual space u is then divided by 1 + η_t τ, clamped, and y = σ(u); the gradient is
    that of the form without its entropy. In the primal space u is y itself, projected on the
    box; the gradient includes the entropy's.

    A ``reach`` above 0 says that the rule is ``spen.MirrorBundle(reach, grow, shrink)``, in
    the dual space, whose docstring has the formula.

    Kernels are compiled for numbers of these types, so 1.0 is not 1 here.

    >>> StepRule(lr=0.1, momentum=0.95).reach
    0.0
    """

    lr: float = 0.0
    momentum: float = 0.0
    decay: float = 0.0
    reach: float = 0.0
    grow: float = 1.0
    shrink: float = 1.0
    primal: bool = False


class Limits(NamedTuple):
    """When a row ends: after ``max_steps``, or when it meets either tolerance (0: off).

    With ``both``, which is for two that are on, it must meet them in the same step. With
    ``fixed``, after ``max_steps`` in any case, at the iterate that it has come to.

    >>> Limits(max_steps=100, objective_rtol=1e-5, iterate_atol=1e-4).max_steps
    100
    """

    max_steps: int
    objective_rtol: float
    iterate_atol: float
    fixed: bool = False
    both: bool = False


class Fused(NamedTuple):
    """What a kernel returns, on the device of its inputs.

    Attributes:
        y: (n, L) the best iterate of each row, or its last one.
        energy: (n,) the objective there, the entropy included.
        steps: (n,) int64, how many steps were made.
        status: (n,) int64, CONVERGED, MAX_STEPS, DIVERGED or COMPLETED.
    """

    y: Tensor
    energy: Tensor
    steps: Tensor
    status: Tensor
