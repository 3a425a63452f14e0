"""The best labelling of each row, by looking at all of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from spen.batch.context import take
from spen.domains import Domain, Simplex, UnitBox
from spen.energies.base import Problem
from spen.errors import InputError
from spen.inference.shared_parts import SharedParts

MOST_LABELLINGS = 2**20
"""Labellings of a row that are looked at; beyond twenty labels, other ways are quicker."""

AT_ONCE, AT_ONCE_ON_GPU = 2**17, 2**25
"""Energies that are computed at a time: what fits in a processor's cache."""


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
    rows = problem.rows_like.shape[0]
    grid = _Grid.of(domain, problem.rows_like)
    parts = SharedParts.of(problem)
    size = AT_ONCE_ON_GPU if problem.rows_like.is_cuda else AT_ONCE
    chunks = torch.arange(rows, device=problem.rows_like.device).split(max(1, size // grid.count))
    if parts is None:
        found = [_search(problem.select(c), take(known, c), grid, size) for c in chunks]
    else:
        table = _Table.of(parts, grid, problem.rows_like, size)
        found = [_search_table(table.select(chunk), take(known, chunk), grid) for chunk in chunks]
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
        one = torch.eye(choices).to(like) if isinstance(domain, Simplex) else _on_and_off(like)
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
        unary: (n, L).
        common: (h, l) the part that all rows share.
        factors: (n, k) how much each row has of the other parts.
        others: (k, h l) those.
    """

    unary: Tensor
    common: Tensor
    factors: Tensor
    others: Tensor

    @staticmethod
    def of(parts: SharedParts, grid: _Grid, like: Tensor, size: int) -> _Table:
        common = like.new_zeros(len(grid.high), len(grid.low))
        others, factors = [], []
        for factor, table in parts.pairs:
            if factor is None:
                common += grid.quadratic(table)
            else:
                others.append(grid.quadratic(table).flatten())
                factors.append(factor)
        for function in parts.functions:
            for first in range(0, grid.count, size):
                last = min(first + size, grid.count)
                common.view(-1)[first:last] += function(grid.labellings(first, last))
        rows, columns = like.shape[0], grid.low.shape[1] + grid.high.shape[1]
        return _Table(
            like.new_zeros(rows, columns) if parts.unary is None else parts.unary,
            common,
            torch.stack(factors, 1) if factors else like.new_zeros(rows, 0),
            torch.stack(others) if others else like.new_zeros(0, grid.count),
        )

    def select(self, rows: Tensor) -> _Table:
        return _Table(self.unary[rows], self.common, self.factors[rows], self.others)

    def of_rows(self) -> Tensor:
        """Return what is left without the unary terms, (1 or n, h, l)."""
        if not len(self.others):
            return self.common[None]
        return self.common + (self.factors @ self.others).reshape(-1, *self.common.shape)


def _search_table(table: _Table, known: Tensor | None, grid: _Grid) -> Tensor:
    unary_low, unary_high = grid.halves(table.unary)
    low, high = unary_low @ grid.low.T, unary_high @ grid.high.T
    if known is not None:
        known_low, known_high = grid.halves(known)
        low = low.masked_fill(_contradict(known_low, grid.low), torch.inf)
        high = high.masked_fill(_contradict(known_high, grid.high), torch.inf)
    shared = table.of_rows()
    # The least over low halves first, and where it is once the high half is known: finding
    # places costs several times what finding minima does.
    best_high = ((low[:, None, :] + shared).amin(2) + high).argmin(1)
    rows = torch.arange(len(low), device=low.device)
    beside = shared[0, best_high] if len(shared) == 1 else shared[rows, best_high]
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
    if isinstance(domain, Simplex):
        return domain.positions, domain.n_classes
    raise InputError(
        f"Exact knows the labellings of a UnitBox and of a Simplex; the domain is {domain}."
    )


def _on_and_off(like: Tensor) -> Tensor:
    return like.new_tensor([[0.0], [1.0]])


def _product(one: Tensor, positions: int) -> Tensor:
    """Return every labelling of some positions, from those of one; the first varies fastest."""
    labellings = one.new_zeros(1, 0)
    for _ in range(positions):
        earlier = labellings.repeat(len(one), 1)
        labellings = torch.cat([earlier, one.repeat_interleave(len(labellings), 0)], 1)
    return labellings
