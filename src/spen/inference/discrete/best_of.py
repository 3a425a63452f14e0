"""The best of a chain's best taggings, by energies that are no chains."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from spen.batch.context import take
from spen.batch.limits import limits
from spen.domains import Domain
from spen.energies.base import Problem, SumProblem, add_problems
from spen.energies.chain import ChainProblem
from spen.energies.form import Form
from spen.errors import InputError, check_settings
from spen.inference.base import Inference, Solution, Status, join_solutions
from spen.inference.discrete.viterbi import Viterbi


@dataclass(frozen=True)
class BestOf(Inference):
    """Take the n taggings that the chain finds best, and of them the one of least energy.

        y = argmin E(y) over the n taggings of least E_chain(y),   y (rows, T K)

    The chain is made of the local scores and chains among the energies (and of Hamming or squared
    loss augmentation), which are exact; all energies together choose. So it is never worse in
    energy than ``Viterbi``'s answer for the chain, and exact once n is the number of taggings.
    Known classes are honoured and forbidden transitions never taken.

    A start changes nothing. ``steps`` counts the taggings that were looked at.

    Args:
        n: how many taggings of each row the energy chooses from.

    >>> import spen
    >>> chain = spen.ChainEnergy(2).bind(spen.Context(torch.zeros(1, 3, 1)))
    >>> wider = spen.SkipChainEnergy(2, skips=(2,))
    >>> _ = torch.nn.init.eye_(wider.transitions.data[0])       # positions 0 and 2 should differ
    >>> scores = spen.Form(linear=torch.tensor([[0.0, 1.0, 0.0, 1.0, 0.0, 0.1]]))
    >>> problem = scores + chain + wider.bind(spen.Context(torch.zeros(1, 3, 1)))
    >>> BestOf(4).solve(problem, spen.Simplex(2, positions=3)).y
    tensor([[1., 0., 1., 0., 0., 1.]])
    """

    n: int = 16

    def __post_init__(self) -> None:
        check_settings(self, n="whole")

    @torch.no_grad()
    def solve(
        self,
        problem: Problem,
        domain: Domain,
        start: Tensor | None = None,
        known: Tensor | None = None,
    ) -> Solution:
        rows, like = problem.rows_like.shape[0], problem.rows_like
        # So many that all of their candidates fit in memory.
        at_once = limits.rows_at_once(self.n * domain.size)
        parts = []
        for first in range(0, rows, at_once):
            some = torch.arange(first, min(first + at_once, rows), device=like.device)
            whole = at_once >= rows
            held = take(known, some)
            parts.append(self._solve(problem if whole else problem.select(some), domain, held))
        return join_solutions(parts)

    def _solve(self, problem: Problem, domain: Domain, known: Tensor | None) -> Solution:
        chain, others = split_chain(problem)
        found = Viterbi().best(chain, domain, self.n, known)
        # What the chain costs is known already.
        y, energies = found.y, found.energy
        if others is not None:
            energies = energies + candidate_values(others, y)
        energy, place = energies.min(1)
        rows = torch.arange(len(place), device=place.device)
        finite = energy.isfinite()
        return Solution(
            y=y[rows, place],
            energy=energy,
            steps=found.energy.isfinite().sum(1),
            # In arithmetic, because torch.where copies its numbers to the GPU, and waits.
            status=Status.DIVERGED + finite * (Status.COMPLETED - Status.DIVERGED),
        )


def split_chain(problem: Problem) -> tuple[Problem, Problem | None]:
    """Return the terms of a problem that exact inference for chains knows, and all others."""
    terms = problem.terms if isinstance(problem, SumProblem) else (problem,)
    known, others = [], []
    for term in terms:
        is_form = isinstance(term, Form) and not term.blocks
        (known if is_form or isinstance(term, ChainProblem) else others).append(term)
    if not known:
        raise InputError(
            "There is no chain among the energies, nor a local score, whose best taggings could be "
            "looked at. Add LocalEnergy and ChainEnergy, or choose Descent()."
        )
    return add_problems(known), add_problems(others) if others else None


def candidate_values(problem: Problem, y: Tensor) -> Tensor:
    """Return the energies (rows, n) of n taggings of each row, (rows, n, L)."""
    rows, n = y.shape[:2]
    each = torch.arange(rows, device=y.device).repeat_interleave(n)
    return problem.select(each).value(y.flatten(0, 1)).reshape(rows, n)
