"""The energy of a pairwise CRF, with all L² weights or a low-rank table of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from spen.context import Context
from spen.energies.base import Energy, Problem
from spen.energies.form import Block, Form
from spen.energies.nonlinearities import nonlinearity
from spen.initialisation import fill_normal
from spen.inputs import whole


class PairwiseEnergy(Energy):
    """E^crf(y) = y·S y + s·y, the paper's equation 7.

    S is symmetric with a zero diagonal (y_i² = y_i on labels, so a diagonal would
    only repeat s). With a rank r, S is the off-diagonal part of Vᵀ diag(w) V, whose
    cost is linear in L. All weights but V start at zero, so a new energy is zero.

    Args:
        n_labels: L.
        rank: r, or None for all pairs.
    """

    def __init__(self, n_labels: int, rank: int | None = None) -> None:
        super().__init__()
        whole(n_labels, "n_labels")
        whole(1 if rank is None else rank, "rank")
        self.n_labels = n_labels
        self.rank = rank
        self.bias = nn.Parameter(torch.empty(n_labels))
        if rank is None:
            self.weight = nn.Parameter(torch.empty(n_labels, n_labels))
        else:
            self.factors = nn.Parameter(torch.empty(rank, n_labels))
            self.readout = nn.Parameter(torch.empty(rank))
        self.reset(torch.Generator().manual_seed(0))

    def pairs(self) -> Tensor:
        """Return S, (L, L): symmetric, zero on the diagonal."""
        if self.rank is None:
            table = (self.weight + self.weight.T) / 2
        else:
            table = self.factors.T @ (self.readout[:, None] * self.factors)
        return table - torch.diag(table.diagonal())

    def bind(self, context: Context, generator: torch.Generator | None = None) -> Problem:
        rows = context.n_rows
        if self.rank is None:
            return PairwiseProblem(self.pairs(), self.bias, self.bias.new_zeros(rows))
        diagonal = self.readout @ self.factors.square()
        block = Block(
            self.factors, self.bias.new_zeros(self.rank), self.readout, nonlinearity("square")
        )
        return Form(
            linear=self.bias.expand(rows, -1),
            quadratic=(-2 * diagonal).expand(rows, -1),
            blocks=(block,),
        )

    def reset(self, generator: torch.Generator) -> None:
        nn.init.zeros_(self.bias)
        if self.rank is None:
            nn.init.zeros_(self.weight)
        else:
            fill_normal(self.factors, self.n_labels**-0.5, generator)
            nn.init.zeros_(self.readout)

    def extra_repr(self) -> str:
        return f"n_labels={self.n_labels}, rank={self.rank}"


@dataclass(frozen=True)
class PairwiseProblem(Problem):
    """y·S y + s·y with a full symmetric S."""

    pairs: Tensor
    bias: Tensor
    zeros: Tensor

    def value(self, y: Tensor) -> Tensor:
        return ((y @ self.pairs + self.bias) * y).sum(1)

    def value_and_gradient(self, y: Tensor) -> tuple[Tensor, Tensor]:
        slope = y @ self.pairs
        return ((slope + self.bias) * y).sum(1), 2 * slope + self.bias

    def select(self, rows: Tensor) -> PairwiseProblem:
        return replace(self, zeros=self.zeros[rows])

    @property
    def rows_like(self) -> Tensor:
        return self.zeros
