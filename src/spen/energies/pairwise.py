"""The energy of a pairwise CRF: all L² weights, a low-rank table, or weights that depend on x."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spen.batch.context import Context
from spen.energies.base import Energy, Problem, RecordProblem
from spen.energies.form import Block, Form, nonlinearity
from spen.errors import check_settings, check_whole
from spen.features import fill_fan_in, fill_normal


class PairwiseEnergy(Energy):
    """E^crf(y) = y·S y + s·y, the paper's equation 7.

    y is (n, L). S is symmetric with a zero diagonal (y_i² = y_i on labels, so a diagonal would
    only repeat s). With a rank r, S is the off-diagonal part of Vᵀ diag(w) V, whose
    cost is linear in L. All weights but V start at zero, so a new energy is zero.

    Args:
        n_labels: L.
        rank: r, or None for all pairs.

    >>> energy = PairwiseEnergy(n_labels=2)
    >>> with torch.no_grad():
    ...     _ = energy.weight.copy_(torch.tensor([[0.0, 2.0], [2.0, 0.0]]))
    >>> energy(torch.zeros(3, 1), torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]]))
    tensor([0., 0., 4.], grad_fn=...)
    """

    def __init__(self, n_labels: int, rank: int | None = None) -> None:
        super().__init__()
        self.n_labels = n_labels
        self.rank = rank
        check_settings(self, "rank", n_labels="whole", rank="whole")
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
            return _symmetric(self.weight)
        return _symmetric(self.factors.T @ (self.readout[:, None] * self.factors))

    def bind(self, context: Context, generator: torch.Generator | None = None) -> Problem:
        rows = context.n_rows
        if self.rank is None:
            return PairwiseProblem(self.pairs(), self.bias, self.bias.new_ones(rows, 1))
        diagonal = self.readout @ self.factors.square()
        zeros, square = self.bias.new_zeros(self.rank), nonlinearity("square")
        return Form(
            linear=self.bias.expand(rows, -1),
            quadratic=(-2 * diagonal).expand(rows, -1),
            blocks=(Block(self.factors, zeros, self.readout, square),),
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


class ConditionalPairwiseEnergy(Energy):
    """E(y) = y·S(x) y + s·y: a pairwise CRF whose pairs depend on x, as deep mean field has.

    S(x) = Σ_k h_k(x) S_k with h(x) = 1 + W F(x): some tables of pairs, each symmetric with a zero
    diagonal, and how much each counts for this example. A step costs one matrix product a table.

    S and s start at zero, so a new energy is zero and its first gradient reaches them. W starts
    at zero in the first term; in further ones it is drawn, or all terms would learn the same.

    Args:
        n_features: f, the width of F(x).
        n_labels: L.
        terms: the number of tables.

    >>> energy = ConditionalPairwiseEnergy(n_features=2, n_labels=3, terms=2)
    >>> energy.pairs().shape, energy.factors(Context(torch.zeros(5, 2))).shape
    (torch.Size([2, 3, 3]), torch.Size([5, 2]))
    """

    def __init__(self, n_features: int, n_labels: int, terms: int = 1) -> None:
        super().__init__()
        self.n_features = n_features
        self.n_labels = n_labels
        check_settings(self, n_features="whole", n_labels="whole")
        check_whole(terms, "terms")
        self.weight = nn.Parameter(torch.empty(terms, n_labels, n_labels))
        self.feature_weight = nn.Parameter(torch.empty(terms, n_features))
        self.bias = nn.Parameter(torch.empty(n_labels))
        self.reset(torch.Generator().manual_seed(0))

    def pairs(self) -> Tensor:
        """Return the tables S_k, (terms, L, L): symmetric, zero on the diagonal."""
        return _symmetric(self.weight)

    def factors(self, context: Context) -> Tensor:
        """Return h(x) = 1 + W F(x), (n, terms): how much each table counts."""
        return 1 + F.linear(context.features, self.feature_weight)

    def bind(self, context: Context, generator: torch.Generator | None = None) -> Problem:
        return PairwiseProblem(self.pairs().flatten(0, 1), self.bias, self.factors(context))

    def reset(self, generator: torch.Generator) -> None:
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)
        nn.init.zeros_(self.feature_weight)
        fill_fan_in(self.feature_weight[1:], generator)

    def extra_repr(self) -> str:
        return (
            f"n_features={self.n_features}, n_labels={self.n_labels}, terms={self.weight.shape[0]}"
        )


@dataclass(frozen=True)
class PairwiseProblem(RecordProblem):
    """y·S y + s·y with S = Σ_k h_k S_k, the S_k symmetric.

    Attributes:
        pairs: the S_k below each other, (k L, L), shared by all rows.
        bias: s, (L,), shared by all rows.
        factors: h, (n, k).
    """

    pairs: Tensor
    bias: Tensor
    factors: Tensor
    with_rows = ("factors",)

    def value(self, y: Tensor) -> Tensor:
        return self.value_and_gradient(y)[0]

    def value_and_gradient(self, y: Tensor) -> tuple[Tensor, Tensor]:
        # S y, (n, L), the sum over k left to one matrix product.
        slope = (self.factors[:, :, None] * y[:, None, :]).flatten(1) @ self.pairs
        return ((slope + self.bias) * y).sum(1), 2 * slope + self.bias

    def flips(self, y: Tensor) -> Tensor:
        # With a zero diagonal, the energy is linear in each label by itself.
        return (1 - 2 * y) * self.gradient(y)


def _symmetric(weight: Tensor) -> Tensor:
    """Return the symmetric part of tables (…, L, L), with a zero diagonal."""
    table = (weight + weight.mT) / 2
    return table - torch.diag_embed(table.diagonal(dim1=-2, dim2=-1))
