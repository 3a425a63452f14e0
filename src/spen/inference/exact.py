"""The labelling of least energy: by enumeration where labels are few, else by branch and bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from spen.domains import Domain
from spen.energies.base import Problem
from spen.errors import InputError, check_positive, choose
from spen.inference.base import Inference, Solution, Status, join_solutions
from spen.inference.enumeration import MOST_LABELLINGS, best_labellings, count_labellings
from spen.inference.integer_program import solve_program
from spen.inference.maxflow import roof_duals
from spen.inference.pairwise_form import PairwiseForm, checked_known, conditioned
from spen.inference.relaxed import RelaxedPairs

PROVEN = 1e-6
"""The gap, as a share of the row's largest term, up to which HiGHS's optimum counts as one: it
keeps its constraints to about this."""


@dataclass(frozen=True)
class Exact(Inference):
    """Find the labelling of least energy.

    Up to about a million labellings (twenty labels) are enumerated, of any energy; what rows share
    is computed once. Beyond that the energy must be pairwise: roof duality decides what labels
    it can, and HiGHS solves an integer program for those that are left, row by row.

    ``gap`` is 0 after an enumeration. A program that ends early gives its best labelling, says
    so in ``status``, and ``gap`` says how much lower the least energy could be.

    It honours ``known`` labels; a start changes nothing. ``steps`` counts labellings, or the
    nodes of the program's tree.

    Args:
        method: "enumeration", "milp", or "auto" for the first where it can be.
        time_limit: seconds that the integer program of one row may take.

    >>> import torch
    >>> import spen
    >>> pairs = spen.PairwiseEnergy(2)
    >>> with torch.no_grad():
    ...     _ = pairs.weight.copy_(torch.tensor([[0.0, 2.0], [2.0, 0.0]]))
    ...     _ = pairs.bias.copy_(torch.tensor([-1.0, -3.0]))
    >>> problem = pairs.bind(spen.Context(torch.zeros(1, 1)))
    >>> solution = Exact().solve(problem, spen.UnitBox(2))
    >>> solution.y, solution.energy, solution.gap
    (tensor([[0., 1.]]), tensor([-3.]), tensor([0.]))
    """

    method: Literal["auto", "enumeration", "milp"] = "auto"
    time_limit: float = 60.0

    def __post_init__(self) -> None:
        choose(self.method, dict.fromkeys(("auto", "enumeration", "milp")), "method")
        check_positive(self.time_limit, "time_limit")

    @torch.no_grad()
    def solve(
        self,
        problem: Problem,
        domain: Domain,
        start: Tensor | None = None,
        known: Tensor | None = None,
    ) -> Solution:
        if self._enumerates(domain):
            return _enumerate(problem, domain, known)
        parts = conditioned(problem, domain, known, f"Exact of {domain.size} labels")
        return join_solutions([self._branch(form, held, domain) for form, held in parts])

    def _enumerates(self, domain: Domain) -> bool:
        if self.method == "milp":
            return False
        few = count_labellings(domain) <= MOST_LABELLINGS
        if self.method == "enumeration" and not few:
            raise InputError(
                f"{domain} has more than {MOST_LABELLINGS} labellings, which are too many to "
                "enumerate. Choose method='milp', for pairwise energies."
            )
        return few

    def _branch(self, form: PairwiseForm, known: Tensor | None, domain: Domain) -> Solution:
        """Solve an integer program for what roof duality leaves open in each row."""
        unary, weights = form.arrays()
        halves, _, _ = roof_duals(unary, weights)
        if known is not None:
            # What is known has no terms left, so that any value will do.
            halves[~torch.isnan(known).cpu().numpy()] = 0.0
        shared = len(weights) == 1
        programs = [
            _decide(halves[row], unary[row], weights[0 if shared else row], self.time_limit)
            for row in range(len(halves))
        ]
        like, doubled = form.unary, form.double()
        found = np.reshape([program.y for program in programs], halves.shape)
        y = torch.from_numpy(found).to(doubled.unary)
        nodes, codes = (
            torch.tensor([getattr(p, name) for p in programs], dtype=torch.int64).to(like.device)
            for name in ("nodes", "status")
        )
        bounds = doubled.constant + doubled.constant.new_tensor([p.bound for p in programs])
        relaxed = RelaxedPairs(doubled).value(torch.from_numpy(halves).to(y))
        energy = doubled.value(y)
        gap = (energy - torch.maximum(bounds, relaxed)).clamp_min(0)
        proven = gap <= PROVEN * doubled.largest()
        status = torch.where((codes == Status.OPTIMAL) & ~proven, Status.FAILED, codes)
        finite = form.finite()
        return Solution(
            y=(y if known is None else domain.hold(y, known)).to(like),
            energy=energy.to(like),
            steps=nodes,
            status=torch.where(finite, status, Status.DIVERGED),
            backend="milp",
            gap=torch.where(finite, gap, torch.inf).to(like),
        )


def _enumerate(problem: Problem, domain: Domain, known: Tensor | None) -> Solution:
    if problem.entropy_weight is not None:
        raise InputError(
            "Exact looks for a labelling, but the entropy term of this problem has its minimum "
            "between labels. Leave the entropy at 0, or choose Descent()."
        )
    known = checked_known(problem, domain, known)
    y = best_labellings(problem, domain, known)
    energy = problem.value(y)
    finite = energy.isfinite()
    return Solution(
        y=y,
        energy=energy,
        steps=torch.full_like(finite, count_labellings(domain), dtype=torch.int64),
        status=torch.where(finite, Status.OPTIMAL, Status.DIVERGED),
        backend="enumeration",
        gap=torch.where(finite, torch.zeros_like(energy), torch.inf),
    )


class _Decided(NamedTuple):
    """A labelling (L,), a bound of all of them, the nodes that were looked at, and a Status."""

    y: np.ndarray
    bound: float
    nodes: int
    status: Status


def _decide(
    halves: np.ndarray, unary: np.ndarray, weights: np.ndarray, time_limit: float
) -> _Decided:
    """Find the best labels where roof duality says ½. The others are right in a best labelling."""
    is_open = halves == 0.5
    y = np.where(is_open, 0.0, halves)
    energy = float(unary @ y + y @ weights @ y / 2)
    if not is_open.any():
        return _Decided(y, energy, 0, Status.OPTIMAL)
    slopes = (unary + weights @ y)[is_open]
    program = solve_program(slopes, weights[np.ix_(is_open, is_open)], time_limit)
    if program.y is not None:
        y[is_open] = program.y
    return _Decided(y, energy + program.bound, program.nodes, program.status)
