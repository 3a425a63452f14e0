"""The linear relaxation of a binary pairwise model: a lower bound, and often the answer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from spen.domains import Domain
from spen.energies.base import Problem
from spen.inference.base import Inference, Solution, Status, join_solutions
from spen.inference.discrete.pairwise import PairwiseForm, conditioned, read_pairwise
from spen.kernels.cpu.discrete import roof_duals


@dataclass(frozen=True)
class RelaxedPairs(Problem):
    """A pairwise energy whose y_i y_j has a variable of its own, at its best for the given y.

    In the local polytope that variable lies between max(0, y_i + y_j − 1) and min(y_i, y_j), and
    the sign of its weight says at which end. The sum is convex in y, no larger than the energy
    anywhere in the box, and the same at labels.

    >>> import torch
    >>> weights = torch.tensor([[[0.0, 2.0], [2.0, 0.0]]])
    >>> form = PairwiseForm(torch.zeros(1), torch.tensor([[-1.0, -1.0]]), weights)
    >>> half = torch.full((1, 2), 0.5)
    >>> form.value(half), RelaxedPairs(form).value(half)
    (tensor([-0.5000]), tensor([-1.]))
    """

    pairs: PairwiseForm

    def value(self, y: Tensor) -> Tensor:
        weights, one, other = self.pairs.weights, y[:, :, None], y[:, None, :]
        together = torch.where(weights < 0, torch.minimum(one, other), torch.relu(one + other - 1))
        unary = (self.pairs.unary * y).sum(1)
        return self.pairs.constant + unary + (weights * together).sum((1, 2)) / 2

    def select(self, rows: Tensor) -> RelaxedPairs:
        return RelaxedPairs(self.pairs.select(rows))

    @property
    def rows_like(self) -> Tensor:
        return self.pairs.rows_like


@dataclass(frozen=True)
class LinearRelaxation(Inference):
    """Minimise the linear relaxation (the local polytope) of a binary pairwise energy.

        y = argmin Σ_i s_i y_i + Σ_ij w_ij v_ij,   max(0, y_i + y_j − 1) ≤ v_ij ≤ min(y_i, y_j)

    with y (n, L) between 0 and 1. The solution is found by roof duality, one maximum flow a row,
    and holds 0, ½ and 1. Where a label is not ½ it has that value in some best labelling; where
    none is ½, y is one. ``Solution.energy`` is the relaxed objective: a lower bound of the energy
    of all labellings. ``gap`` is how far the energy of ``domain.round(y)`` is above it.

    The relaxation sees more violated margins than there are, so a hinge trained with it bounds
    the exact one from above (over-generation: Finley & Joachims, "Training structural SVMs when
    exact inference is intractable", 2008). It takes the energy from ``relax``, because the
    energy of a fractional y is not what was minimised.

    It honours ``known`` labels; a start changes nothing. Numba makes it tens of times quicker.

    >>> import torch
    >>> import spen
    >>> pairs = spen.PairwiseEnergy(2)
    >>> with torch.no_grad():
    ...     _ = pairs.weight.copy_(torch.tensor([[0.0, 2.0], [2.0, 0.0]]))
    ...     _ = pairs.bias.copy_(torch.tensor([-1.0, -3.0]))
    >>> problem = pairs.bind(spen.Context(torch.zeros(1, 1)))
    >>> solution = LinearRelaxation().solve(problem, spen.UnitBox(2))
    >>> solution.y, solution.energy, solution.gap
    (tensor([[0., 1.]]), tensor([-3.]), tensor([0.]))
    """

    @torch.no_grad()
    def solve(
        self,
        problem: Problem,
        domain: Domain,
        start: Tensor | None = None,
        known: Tensor | None = None,
    ) -> Solution:
        parts = conditioned(problem, domain, known, type(self).__name__)
        return join_solutions([_solve(form, held, domain) for form, held in parts])

    def relax(self, problem: Problem) -> Problem:
        return RelaxedPairs(read_pairwise(problem, type(self).__name__))


def _solve(form: PairwiseForm, known: Tensor | None, domain: Domain) -> Solution:
    """Solve the rows of a form in float64, whatever its type is."""
    finite = form.finite()
    found, paths, backend = roof_duals(*form.arrays())
    y = torch.from_numpy(found).to(form.unary)
    bound = RelaxedPairs(form).value(y)
    gap = (form.value(domain.round(y)) - bound).clamp_min(0)
    return Solution(
        y=y if known is None else domain.hold(y, known),
        energy=bound,
        steps=torch.from_numpy(paths).to(y.device),
        status=torch.where(finite, Status.OPTIMAL, Status.DIVERGED),
        backend=backend,
        gap=torch.where(finite, gap, torch.inf),
    )
