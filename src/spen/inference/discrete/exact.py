"""The labelling of least energy: by enumeration where labels are few, else by branch and bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp
from torch import Tensor

from spen.batch.context import take
from spen.batch.positions import at_positions
from spen.domains import Domain, Simplex, UnitBox, held_labels
from spen.energies.base import Problem, total
from spen.energies.form import Block
from spen.errors import InputError, check_settings
from spen.inference.base import Inference, Solution, Status, join_solutions
from spen.inference.discrete.pairwise import (
    PairwiseForm,
    Part,
    check_no_entropy,
    conditioned,
    parts_of,
)
from spen.inference.discrete.relaxed import RelaxedPairs
from spen.kernels.cpu.discrete import roof_duals

MOST_LABELLINGS = 2**20
"""Labellings of a row that are looked at; beyond twenty labels, other ways are quicker."""

AT_ONCE, AT_ONCE_ON_GPU = 2**17, 2**25
"""Energies that are computed at a time: what fits in a processor's cache."""

PROVEN = 1e-6
"""The gap, as a share of the row's largest term, up to which HiGHS's optimum counts as one: it
keeps its constraints to about this."""

LARGEST = 1e3
"""What the largest coefficient is scaled to: HiGHS ends within 1e-6 of the optimum, absolutely."""


@dataclass(frozen=True)
class Exact(Inference):
    """Find the labelling of least energy, y = argmin E(y) over y in {0, 1}^L, for each row: (n, L).

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
        check_settings(self, method=("auto", "enumeration", "milp"), time_limit="positive")

    @torch.no_grad()
    def solve(
        self,
        problem: Problem,
        domain: Domain,
        start: Tensor | None = None,
        known: Tensor | None = None,
    ) -> Solution:
        if self.method != "milp" and count_labellings(domain) <= MOST_LABELLINGS:
            return _enumerate(problem, domain, known)
        if self.method == "enumeration":
            raise InputError(
                f"{domain} has more than {MOST_LABELLINGS} labellings, which are too many to "
                "enumerate. Choose method='milp', for pairwise energies."
            )
        parts = conditioned(problem, domain, known, f"Exact of {domain.size} labels")
        return join_solutions([self._branch(form, held, domain) for form, held in parts])

    def _branch(self, form: PairwiseForm, known: Tensor | None, domain: Domain) -> Solution:
        """Solve an integer program for what roof duality leaves open in each row."""
        unary, weights = form.arrays()
        halves, _, _ = roof_duals(unary, weights)
        if known is not None:
            # What is known has no terms left, so that any value will do.
            halves[~torch.isnan(known).cpu().numpy()] = 0.0
        tables = np.broadcast_to(weights, (len(halves), *weights.shape[1:]))
        rows = zip(halves, unary, tables, strict=True)
        programs = [_fill_open(*row, self.time_limit) for row in rows]
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
    check_no_entropy(problem, "Exact")
    known = held_labels(domain, known, problem.rows_like, problem.mask)
    if problem.mask is not None and known is not None:
        # Any class will do where there is no position: it has no say, and is taken off again.
        first = torch.arange(domain.size, device=known.device) % _shape(domain)[1] == 0
        absent = ~at_positions(torch.ones_like(known), problem.mask).bool()
        y = best_labellings(problem, domain, torch.where(absent & first, 1.0, known))
        y = at_positions(y, problem.mask)
    else:
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


def _fill_open(
    halves: np.ndarray, unary: np.ndarray, weights: np.ndarray, time_limit: float
) -> Program:
    """Find the best labels where roof duality says ½. The others are right in a best labelling."""
    is_open = halves == 0.5
    y = np.where(is_open, 0.0, halves)
    energy = float(unary @ y + y @ weights @ y / 2)
    if not is_open.any():
        return Program(y, energy, 0, Status.OPTIMAL)
    slopes = (unary + weights @ y)[is_open]
    program = solve_program(slopes, weights[np.ix_(is_open, is_open)], time_limit)
    y[is_open] = program.y
    return program._replace(y=y, bound=energy + program.bound)


# Enumeration: the best labelling of each row, by looking at all of them ----------------------


def count_labellings(domain: Domain) -> int:
    """Return how many labellings a domain has.

    >>> count_labellings(UnitBox(14)), count_labellings(Simplex(3, positions=2))
    (16384, 9)
    """
    positions, choices = _shape(domain)
    return choices**positions


def best_labellings(problem: Problem, domain: Domain, known: Tensor | None = None) -> Tensor:
    """Return the labelling of least energy of each row, (n, L); the first one of equals.

    Args:
        problem: any; where its rows share all but unary terms, only those are computed anew.
        domain: a UnitBox or a Simplex, small enough.
        known: (n, L) labels to hold: 1, 0, or nan for those to infer.

    >>> from spen import Form
    >>> best_labellings(Form(linear=torch.tensor([[1.0, -2.0]])), UnitBox(2))
    tensor([[0., 1.]])
    """
    like, parts = problem.rows_like, list(parts_of(problem))
    grid = _Grid.of(domain, like)
    size = AT_ONCE_ON_GPU if like.is_cuda else AT_ONCE
    chunks = torch.arange(len(like), device=like.device).split(max(1, size // grid.count))
    if all(part.is_shared for part in parts):
        table = _Table.of(parts, grid, like, size)
        return torch.cat([table.search(chunk, take(known, chunk)) for chunk in chunks])
    found = [_search(problem.select(chunk), take(known, chunk), grid, size) for chunk in chunks]
    return torch.cat(found)


@dataclass(frozen=True)
class _Grid:
    """All labellings, as pairs of one for the first positions and one for the others.

    Attributes:
        low: (l, columns) every labelling of the first half of the positions.
        high: (h, other columns) of the second half.
    """

    low: Tensor
    high: Tensor

    @staticmethod
    def of(domain: Domain, like: Tensor) -> _Grid:
        positions, choices = _shape(domain)
        is_simplex = isinstance(domain, Simplex)
        one = (torch.eye(choices) if is_simplex else torch.tensor([[0.0], [1.0]])).to(like)
        return _Grid(_product(one, positions - positions // 2), _product(one, positions // 2))

    @property
    def count(self) -> int:
        return len(self.low) * len(self.high)

    def labellings(self, first: int, last: int) -> Tensor:
        """Return some of the labellings, (last − first, L); those of one high half in a row."""
        index = torch.arange(first, last, device=self.low.device)
        return self.at(index // len(self.low), index % len(self.low))

    def at(self, high: Tensor, low: Tensor) -> Tensor:
        return torch.cat([self.low[low], self.high[high]], 1)

    def quadratic(self, table: Tensor) -> Tensor:
        """Return y·A y of all labellings, (h, l), without laying them out."""
        cut = self.low.shape[1]
        across = self.high @ (table[cut:, :cut] + table[:cut, cut:].T) @ self.low.T
        of_low = ((self.low @ table[:cut, :cut]) * self.low).sum(1)
        of_high = ((self.high @ table[cut:, cut:]) * self.high).sum(1)
        return across + of_low + of_high[:, None]

    def halves(self, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Split columns as the labellings are."""
        cut = self.low.shape[1]
        return columns[:, :cut], columns[:, cut:]


@dataclass(frozen=True)
class _Table:
    """The energies of all labellings: those of rows in halves, and what rows share.

    Attributes:
        grid: the labellings.
        unary: (n, L).
        common: (h, l) the part that all rows share.
        factors: (n, k) how much each row has of the other parts.
        others: (k, h l) those.
    """

    grid: _Grid
    unary: Tensor
    common: Tensor
    factors: Tensor
    others: Tensor

    @staticmethod
    def of(parts: list[Part], grid: _Grid, like: Tensor, size: int) -> _Table:
        common = like.new_zeros(len(grid.high), len(grid.low))
        others, factors = [like.new_zeros(0, grid.count)], [like.new_zeros(len(like), 0)]
        for part in parts:
            for k, table in enumerate(() if part.tables is None else part.tables):
                factor = None if part.factors is None else part.factors[:, k : k + 1]
                if factor is None or bool((factor == 1).all()):
                    common += grid.quadratic(table)
                else:
                    others.append(grid.quadratic(table).reshape(1, -1))
                    factors.append(factor)
            if isinstance(block := part.rest, Block):
                for first in range(0, grid.count, size):
                    last = min(first + size, grid.count)
                    z = F.linear(grid.labellings(first, last), block.measurements) + block.bias
                    common.view(-1)[first:last] += block.nonlinearity.value(z) @ block.readout
        columns = grid.low.shape[1] + grid.high.shape[1]
        unary = total([like.new_zeros(len(like), columns), *(part.unary for part in parts)])
        assert unary is not None
        return _Table(grid, unary, common, torch.cat(factors, 1), torch.cat(others))

    def search(self, rows: Tensor, known: Tensor | None) -> Tensor:
        """Return the best labelling of some rows, (rows, L)."""
        grid, shared = self.grid, self.common[None]
        if len(self.others):
            of_rows = self.factors[rows] @ self.others
            shared = self.common + of_rows.reshape(-1, *self.common.shape)
        unary_low, unary_high = grid.halves(self.unary[rows])
        low, high = unary_low @ grid.low.T, unary_high @ grid.high.T
        if known is not None:
            known_low, known_high = grid.halves(known)
            low = low.masked_fill(_contradict(known_low, grid.low), torch.inf)
            high = high.masked_fill(_contradict(known_high, grid.high), torch.inf)
        # The least over low halves first, and where it is once the high half is known: finding
        # places costs several times what finding minima does.
        best_high = ((low[:, None, :] + shared).amin(2) + high).argmin(1)
        each = torch.arange(len(rows), device=rows.device)
        beside = shared.expand(len(rows), -1, -1)[each, best_high]
        return grid.at(best_high, (low + beside).argmin(1))


def _search(problem: Problem, known: Tensor | None, grid: _Grid, size: int) -> Tensor:
    """Ask the problem itself for every energy."""
    rows = torch.arange(problem.rows_like.shape[0], device=problem.rows_like.device)
    best = problem.rows_like.new_full((len(rows),), torch.inf)
    found = grid.labellings(0, 1).repeat(len(rows), 1)
    for first in range(0, grid.count, size):
        y = grid.labellings(first, min(first + size, grid.count))
        repeated = problem.select(rows.repeat_interleave(len(y)))
        values = repeated.value(y.repeat(len(rows), 1)).reshape(len(rows), len(y))
        if known is not None:
            values = values.masked_fill(_contradict(known, y), torch.inf)
        least, place = values.min(1)
        # A row that meets nan keeps that labelling, so that its energy tells.
        better = (least < best) | least.isnan()
        best = torch.where(better, least, best)
        found = torch.where(better[:, None], y[place], found)
    return found


def _contradict(known: Tensor, labellings: Tensor) -> Tensor:
    """Return which labellings (m, c) differ from the known labels (n, c), (n, m)."""
    on, off = (known == 1).to(labellings), (known == 0).to(labellings)
    return on @ (1 - labellings).T + off @ labellings.T > 0.5


def _shape(domain: Domain) -> tuple[int, int]:
    """Return how many positions a domain has, and how many choices each."""
    if isinstance(domain, UnitBox):
        return domain.n_labels, 2
    if isinstance(domain, Simplex) and domain.positions is not None:
        return domain.positions, domain.n_classes
    raise InputError(
        f"Exact knows the labellings of a UnitBox and of a Simplex; the domain is {domain}."
    )


def _product(one: Tensor, positions: int) -> Tensor:
    """Return every labelling of some positions, from those of one; the first varies fastest."""
    labellings = one.new_zeros(1, 0)
    for _ in range(positions):
        earlier = labellings.repeat(len(one), 1)
        labellings = torch.cat([earlier, one.repeat_interleave(len(labellings), 0)], 1)
    return labellings


# Branch and bound: the best labelling of one row as a mixed-integer linear program (HiGHS) ----

# Every y_i y_j becomes a variable z with z ≥ y_i + y_j − 1 where its weight is positive, or
# z ≤ y_i and z ≤ y_j where it is negative. At labels of 0 and 1 the best z is the product.


class Program(NamedTuple):
    """What the solver found for one row.

    Attributes:
        y: (L,) of 0 and 1; zeros where no labelling was found.
        bound: no labelling has less energy.
        nodes: how many nodes of its tree were looked at.
        status: OPTIMAL, TIME_LIMIT or FAILED.
    """

    y: np.ndarray
    bound: float
    nodes: int
    status: Status


def solve_program(unary: np.ndarray, weights: np.ndarray, time_limit: float) -> Program:
    """Minimise u·y + Σ_{i<j} w_ij y_i y_j over labels.

    Args:
        unary: (L,).
        weights: (L, L) symmetric, zero on the diagonal.
        time_limit: seconds.

    >>> program = solve_program(np.array([-1.0, -3.0]), np.array([[0.0, 2.0], [2.0, 0.0]]), 10.0)
    >>> program.y, float(program.bound)
    (array([0., 1.]), -3.0)
    """
    n_labels = len(unary)
    one, other = np.nonzero(np.triu(weights, 1))
    pair_weights = weights[one, other]
    costs = np.concatenate([unary, pair_weights])
    largest = np.abs(costs).max()
    scale = LARGEST / largest if largest > 0 else 1.0
    result = milp(
        scale * costs,
        integrality=np.arange(len(costs)) < n_labels,
        bounds=Bounds(0, 1),
        constraints=_linearised(one, other, pair_weights > 0, n_labels),
        options={"time_limit": time_limit, "mip_rel_gap": 0.0},
    )
    return Program(
        y=np.zeros(n_labels) if result.x is None else np.round(result.x[:n_labels]),
        bound=-np.inf if result.mip_dual_bound is None else result.mip_dual_bound / scale,
        nodes=result.mip_node_count or 0,
        status={0: Status.OPTIMAL, 1: Status.TIME_LIMIT}.get(result.status, Status.FAILED),
    )


def _linearised(
    one: np.ndarray, other: np.ndarray, positive: np.ndarray, n_labels: int
) -> list[LinearConstraint]:
    """Tie z of each pair to y, by the sign of its weight."""
    n_pairs = len(one)
    if not n_pairs:
        return []
    here = np.arange(n_pairs)
    shape = (n_pairs, n_labels)
    ones = sparse.csr_array((np.ones(n_pairs), (here, one)), shape)
    others = sparse.csr_array((np.ones(n_pairs), (here, other)), shape)
    z = sparse.eye_array(n_pairs, format="csr")
    ties = (
        (positive, [ones + others, -z], 1.0),  # y_i + y_j − z ≤ 1
        (~positive, [-ones, z], 0.0),  # z ≤ y_i
        (~positive, [-others, z], 0.0),  # z ≤ y_j
    )
    return [
        LinearConstraint(sparse.hstack([part[here[rows]] for part in parts]), ub=limit)
        for rows, parts, limit in ties
        if rows.any()
    ]
