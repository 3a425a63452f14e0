"""The verb ``solve`` and what it returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from spen.domains import Domain
from spen.energies.base import Problem
from spen.errors import InputError


class Status(IntEnum):
    """How the solve of one example ended; ``sentence`` says it in words.

    >>> Status.CONVERGED.sentence, int(Status.CONVERGED)
    ('A tolerance was met.', 1)
    """

    sentence: str
    """The status as a full sentence."""

    def __new__(cls, code: int, sentence: str) -> Status:
        status = int.__new__(cls, code)
        status._value_ = code
        status.sentence = sentence
        return status

    RUNNING = 0, "The solve is still under way."
    CONVERGED = 1, "A tolerance was met."
    MAX_STEPS = 2, "The step limit was reached before a tolerance was met."
    BATCH_STOPPED = 3, "Enough of the batch had converged, so this example was stopped."
    DIVERGED = 4, "The energy or its gradient was not finite; the best earlier iterate stands."
    COMPLETED = 5, "The fixed number of steps was made, as asked."
    OPTIMAL = 6, "The minimum was found."
    TIME_LIMIT = 7, "The time limit was reached; the best labelling so far stands."
    FAILED = 8, "The solver failed, so this answer may be far from a minimum."


CUT_OFF = (Status.MAX_STEPS, Status.DIVERGED, Status.TIME_LIMIT, Status.FAILED)
"""Endings that nobody asked for: the answer may not be what the solver looks for."""

_IS_CUT_OFF = np.array([code in CUT_OFF for code in range(len(Status))])


@dataclass(frozen=True)
class Trace:
    """Every iterate of a solve, the start included.

    Attributes:
        y: (steps + 1, n, L); an example that has ended repeats its last iterate.
        energy: (steps + 1, n) the objective at each.
    """

    y: Tensor
    energy: Tensor


@dataclass(frozen=True)
class Solution:
    """What a solve returns, per example.

    Attributes:
        y: (n, L) the minimiser that was found, not rounded.
        energy: (n,) the objective that was minimised, at y.
        steps: (n,) how many steps were made.
        status: (n,) codes of :class:`Status`.
        backend: which code ran: "general", "compiled", "fused-cpu" or "fused-cuda".
        trace: the iterates, where they were asked for.
        gap: (n,) how far the energy may be above the least one, where the solver knows: that of
            the nearest labelling above any labelling's for exact solvers and relaxations, the
            Frank-Wolfe gap for convex energies; 0 is a proof.

    >>> from spen import Context, Descent, LocalEnergy, UnitBox
    >>> problem = LocalEnergy(n_features=8, n_labels=4).bind(Context(torch.ones(2, 8)))
    >>> solution = Descent().solve(problem, UnitBox(4))
    >>> solution.y.shape, solution.energy.shape, solution.converged.tolist()
    (torch.Size([2, 4]), torch.Size([2]), [True, True])
    >>> solution.describe()
    '2 examples, ... A tolerance was met.'
    """

    y: Tensor
    energy: Tensor
    steps: Tensor
    status: Tensor
    backend: str = "general"
    trace: Trace | None = None
    gap: Tensor | None = None

    @property
    def converged(self) -> Tensor:
        """True where a tolerance was met, or the minimum found, (n,)."""
        return (self.status == Status.CONVERGED) | (self.status == Status.OPTIMAL)

    @property
    def cut_off(self) -> Tensor:
        """True where a limit or a failure ended the solve, not what the solver looks for, (n,).

        It is on the host, where warnings are made, and a look-up by NumPy, because a prediction
        of a single row is hardly longer than PyTorch's.
        """
        return torch.from_numpy(_IS_CUT_OFF[self.status.cpu().numpy()])

    @property
    def iterates(self) -> Tensor:
        """Every iterate of a traced solve, the start included, (steps + 1, n, L)."""
        if self.trace is None:
            raise InputError("This solve kept no trace. Solve with Descent(trace=True).")
        return self.trace.y

    def describe(self) -> str:
        """Say how the solve went.

        >>> done = torch.tensor([Status.CONVERGED, Status.MAX_STEPS])
        >>> Solution(torch.zeros(2, 1), torch.zeros(2), torch.tensor([3, 9]), done).describe()
        '2 examples, 6.0 steps on average, 9 at most. 1: A tolerance was met. 1: The step limit
        was reached before a tolerance was met.'
        """
        codes, counts = self.status.unique(return_counts=True)
        endings = " ".join(
            f"{count}: {Status(code).sentence}"
            for code, count in zip(codes.tolist(), counts.tolist(), strict=True)
        )
        steps = self.steps.double()
        return (
            f"{len(steps)} examples, {steps.mean():.1f} steps on average, "
            f"{int(steps.max())} at most. {endings}"
        )

    def first(self, rows: int) -> Solution:
        """Return the solution of the first rows."""
        trace = self.trace and Trace(self.trace.y[:, :rows], self.trace.energy[:, :rows])
        fields = (self.y, self.energy, self.steps, self.status)
        gap = None if self.gap is None else self.gap[:rows]
        first = (field[:rows] for field in fields)
        return Solution(*first, backend=self.backend, trace=trace, gap=gap)


def join_solutions(parts: Sequence[Solution]) -> Solution:
    """Put the solutions of consecutive batches together."""
    if len(parts) == 1:
        return parts[0]
    if parts[0].trace is not None:
        raise InputError(
            "A trace is kept for one batch of examples only. Solve fewer rows, or raise batch_size."
        )
    names = ("y", "energy", "steps", "status")
    joined = (torch.cat([getattr(part, name) for part in parts]) for name in names)
    gaps = [part.gap for part in parts if part.gap is not None]
    gap = torch.cat(gaps) if gaps else None
    return Solution(*joined, backend=parts[0].backend, gap=gap)


class Task(NamedTuple):
    """What one solve is given, checked.

    Attributes:
        problem: the energies of a batch.
        domain: where y lives.
        start: (n, L) a point of the domain.
        known: (n, L) labels to hold fixed, nan for those to infer.
    """

    problem: Problem
    domain: Domain
    start: Tensor
    known: Tensor | None


class Inference(ABC):
    """A way to minimise a problem over a domain: y = argmin E(y), for each row of y (n, L).

    All methods have the one verb ``solve``, so that each can stand for another.

    >>> from spen import Descent, Exact, Form, UnitBox
    >>> problem = Form(linear=torch.tensor([[1.0, -1.0]]))
    >>> [method.solve(problem, UnitBox(2)).y.round().tolist() for method in (Descent(), Exact())]
    [[[0.0, 1.0]], [[0.0, 1.0]]]
    """

    @abstractmethod
    def solve(
        self,
        problem: Problem,
        domain: Domain,
        start: Tensor | None = None,
        known: Tensor | None = None,
    ) -> Solution:
        """Minimise each example's energy.

        Args:
            problem: the energies of a batch.
            domain: where y lives.
            start: (n, L) where to begin, where that matters.
            known: (n, L) labels to hold fixed: 1, 0, or nan for those to infer.
        """

    def relax(self, problem: Problem) -> Problem:
        """Return the problem that this method really minimises; the same one for most."""
        return problem
