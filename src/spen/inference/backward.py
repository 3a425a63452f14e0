"""How to differentiate a solve with respect to the parameters: an object of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from spen.domains import Domain
from spen.energies.base import Problem
from spen.errors import check_whole
from spen.inference.base import Solution

if TYPE_CHECKING:
    from spen.inference.descent import Descent


class Backward(ABC):
    """Runs a descent so that its solution has the wanted gradient."""

    @abstractmethod
    def run(
        self,
        descent: Descent,
        problem: Problem,
        domain: Domain,
        start: Tensor,
        known: Tensor | None,
    ) -> Solution:
        """Solve with the descent's rule and stopping."""


@dataclass(frozen=True)
class Detached(Backward):
    """The solution is a constant: nothing is differentiated. What the hinge needs."""

    def run(
        self,
        descent: Descent,
        problem: Problem,
        domain: Domain,
        start: Tensor,
        known: Tensor | None,
    ) -> Solution:
        with torch.no_grad():
            return descent.minimise(problem, domain, start, known)


@dataclass(frozen=True)
class Unrolled(Backward):
    """Back-propagates through every step.

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

    def run(
        self,
        descent: Descent,
        problem: Problem,
        domain: Domain,
        start: Tensor,
        known: Tensor | None,
    ) -> Solution:
        return descent.unroll(problem, domain, start, known, in_segments=self.checkpoint)


@dataclass(frozen=True)
class Truncated(Backward):
    """Back-propagates through the last steps alone; those before them are constants.

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

    def run(
        self,
        descent: Descent,
        problem: Problem,
        domain: Domain,
        start: Tensor,
        known: Tensor | None,
    ) -> Solution:
        return descent.unroll(problem, domain, start, known, differentiated=self.steps)
