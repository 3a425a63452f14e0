"""How to differentiate a solve with respect to the parameters: an object of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from spen.domains import Domain
from spen.energies.base import Problem
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
    """

    def run(
        self,
        descent: Descent,
        problem: Problem,
        domain: Domain,
        start: Tensor,
        known: Tensor | None,
    ) -> Solution:
        return descent.unroll(problem, domain, start, known)
