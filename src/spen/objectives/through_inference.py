"""What objectives that differentiate inference have in common."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from spen.domains import Domain
from spen.energies.base import Problem
from spen.errors import InputError
from spen.inference.backward import Detached, Unrolled
from spen.inference.base import Inference, Solution
from spen.inference.descent import Descent


def differentiable(inference: Inference) -> Descent:
    """Return a descent whose solutions can be differentiated: by its own ``backward``, or where
    that is Detached through all of its steps.

    >>> differentiable(Descent()).backward
    Unrolled(checkpoint=False)
    """
    if not isinstance(inference, Descent):
        raise InputError(
            "This objective differentiates the steps of a Descent; "
            f"received {type(inference).__name__}."
        )
    if not isinstance(inference.backward, Detached):
        return inference
    return replace(inference, backward=Unrolled())


def solve_through(
    inference: Inference,
    problem: Problem,
    domain: Domain,
    start: Tensor | None,
    known: Tensor | None,
) -> Solution:
    """Minimise so that the solution can be differentiated (see ``differentiable``)."""
    return differentiable(inference).solve(problem, domain, start, known)
