"""Pairwise terms of a problem, which discrete solvers read, and what its rows share.

On labels of 0 and 1, y_i² = y_i. So squares of measurements, quadratic terms and pairs are all
one thing there: a unary term of each label, and a weight of each pair.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from spen.batch.context import take
from spen.domains import Domain, UnitBox, held_labels
from spen.energies.base import Problem, SumProblem, total
from spen.energies.form import Block
from spen.energies.pairwise import PairwiseProblem
from spen.errors import InputError

PAIRS_AT_ONCE = 2**21
"""Pair weights of all rows that a solver lays out at a time, to bound memory."""


@dataclass(frozen=True)
class PairwiseForm(Problem):
    """constant + Σ_i unary_i y_i + Σ_{i<j} weights_ij y_i y_j.

    Attributes:
        constant: (n,).
        unary: (n, L).
        weights: (n, L, L), or (1, L, L) when all rows share them; symmetric, zero on the diagonal.

    >>> import torch
    >>> weights = torch.tensor([[[0.0, 2.0], [2.0, 0.0]]])
    >>> form = PairwiseForm(torch.zeros(1), torch.tensor([[-1.0, -3.0]]), weights)
    >>> form.value(torch.ones(1, 2))
    tensor([-2.])
    """

    constant: Tensor
    unary: Tensor
    weights: Tensor

    def value(self, y: Tensor) -> Tensor:
        return self.constant + (self.unary * y).sum(1) + (self._slope(y) * y).sum(1) / 2

    def value_and_gradient(self, y: Tensor) -> tuple[Tensor, Tensor]:
        return self.value(y), self.unary + self._slope(y)

    def _slope(self, y: Tensor) -> Tensor:
        """Return Σ_j weights_ij y_j, (n, L)."""
        if len(self.weights) == 1:
            return y @ self.weights[0]
        return (self.weights @ y[:, :, None]).squeeze(2)

    def select(self, rows: Tensor) -> PairwiseForm:
        weights = self.weights if len(self.weights) == 1 else self.weights[rows]
        return PairwiseForm(self.constant[rows], self.unary[rows], weights)

    @property
    def rows_like(self) -> Tensor:
        return self.unary

    def condition(self, known: Tensor | None) -> PairwiseForm:
        """Return the same energies with known labels in the constant: they have no terms left."""
        if known is None:
            return self
        free = torch.isnan(known)
        held = torch.nan_to_num(known, nan=0.0)
        unary = torch.where(free, self.unary + self._slope(held), 0.0)
        weights = self.weights * (free[:, :, None] & free[:, None, :])
        return PairwiseForm(self.value(held), unary, weights)

    def double(self) -> PairwiseForm:
        """Return the form in float64."""
        return PairwiseForm(self.constant.double(), self.unary.double(), self.weights.double())

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Return unary terms and weights in float64; what is not finite becomes zero."""
        unary, weights = (
            torch.where(terms.isfinite(), terms, 0.0).double().contiguous().cpu().numpy()
            for terms in (self.unary, self.weights)
        )
        return unary, weights

    def largest(self) -> Tensor:
        """Return the size of the largest term of each row, (n,)."""
        return torch.maximum(self.unary.abs().amax(1), self.weights.abs().amax((1, 2)))

    def finite(self) -> Tensor:
        """Return which rows have finite terms only, (n,)."""
        rows = self.unary.isfinite().all(1) & self.constant.isfinite()
        return rows & self.weights.isfinite().all((1, 2))


def read_pairwise(problem: Problem, solver: str) -> PairwiseForm:
    """Return the pairwise form of a problem; both have the same energy at every labelling.

    It is differentiable in whatever the problem is.

    Args:
        problem: local and pairwise energies, squares, Hamming and squared loss augmentation,
            and sums of them.
        solver: who asks, for the error when the problem is something else.

    >>> import torch
    >>> from spen import Form
    >>> form = read_pairwise(Form(quadratic=torch.tensor([[4.0, 2.0]])), "Exact")
    >>> form.unary
    tensor([[2., 1.]])
    """
    check_no_entropy(problem, solver)
    rows = problem.rows_like.shape[0]
    constants, unaries, weights = [], [], []
    for part in parts_of(problem):
        if isinstance(part.rest, Block):
            raise _not_pairwise(solver, f"measurements through {part.rest.nonlinearity.name}")
        if part.rest is not None:
            raise _not_pairwise(solver, type(part.rest).__name__)
        unary = part.unary
        if part.tables is not None:
            tables = part.tables
            if (factors := part.factors) is not None:
                if not factors.requires_grad and bool((factors == factors[:1]).all()):
                    factors = factors[:1]
                tables = torch.einsum("nk,kij->nij", factors, tables)
            # The diagonal of y·A y is unary; both orders of a pair are one weight.
            diagonal = tables.diagonal(dim1=-2, dim2=-1)
            unary = total([unary, diagonal])
            weights.append(tables + tables.mT - 2 * torch.diag_embed(diagonal))
        unaries.append(unary)
        constants.append(part.constant)
    unary = total(unaries)
    if unary is None:
        raise _not_pairwise(solver, "a constant")
    constant = total([unary.new_zeros(rows), *constants])
    weight = total([unary.new_zeros(1, unary.shape[1], unary.shape[1]), *weights])
    assert constant is not None
    assert weight is not None
    return PairwiseForm(constant, unary.expand(rows, -1), weight)


def check_no_entropy(problem: Problem, solver: str) -> None:
    """Raise where a problem has an entropy term, whose minimum is no labelling."""
    if problem.entropy_weight is not None:
        raise InputError(
            f"{solver} looks for a labelling, but the entropy term of this problem has its "
            "minimum between labels. Leave the entropy at 0, or choose Descent()."
        )


def conditioned(
    problem: Problem, domain: Domain, known: Tensor | None, solver: str
) -> Iterator[tuple[PairwiseForm, Tensor | None]]:
    """Yield the pairwise form of some rows at a time, known labels held, and those labels.

    Args:
        problem: what to minimise.
        domain: where y lives; sets of labels only.
        known: (n, L) labels to hold: 1, 0, or nan for those to infer.
        solver: who asks, for errors.
    """
    if not isinstance(domain, UnitBox):
        raise InputError(
            f"{solver} is for sets of labels, on a UnitBox; the domain is {domain}. "
            "Choose Descent()."
        )
    like = problem.rows_like
    known = held_labels(domain, known, like, problem.mask)
    size = max(1, PAIRS_AT_ONCE // domain.size**2)
    for rows in torch.arange(like.shape[0], device=like.device).split(size):
        whole = len(rows) == like.shape[0]
        part, held = (problem if whole else problem.select(rows)), take(known, rows)
        yield read_pairwise(part, solver).condition(held), held


@dataclass(frozen=True)
class Part:
    """One summand of a problem: constant + unary·y + Σ_k factor_k y·A_k y, on labels of 0 and 1.

    Such are local and pairwise energies, squares, and loss augmentation but for the log loss.

    Attributes:
        unary: (n, L), or (1, L) when all rows share it; None for zero.
        constant: (n,) or (1,), or None for zero.
        tables: the A_k, (k, L, L), or None for none of them.
        factors: (n, k) how much each row has of each table; None where a single table is that of
            all rows, or each row has one of its own.
        rest: what is no such sum: measurements through a nonlinearity, or some other problem.
    """

    unary: Tensor | None = None
    constant: Tensor | None = None
    tables: Tensor | None = None
    factors: Tensor | None = None
    rest: Block | Problem | None = None

    @property
    def is_shared(self) -> bool:
        """Whether all rows have the same tables and the same measurements."""
        if self.rest is not None:
            return isinstance(self.rest, Block) and self.rest.bias.ndim == 1
        return self.tables is None or self.factors is not None or len(self.tables) == 1


def parts_of(problem: Problem) -> Iterator[Part]:
    """Yield the summands of a problem without its entropy.

    >>> import torch
    >>> import spen
    >>> energy = spen.LocalEnergy(2, 4) + spen.PairwiseEnergy(4)
    >>> local, pairs = parts_of(energy.bind(spen.Context(torch.zeros(3, 2))))
    >>> local.unary.shape, pairs.tables.shape
    (torch.Size([3, 4]), torch.Size([1, 4, 4]))
    """
    if isinstance(problem, SumProblem):
        for term in problem.terms:
            yield from parts_of(term)
    elif isinstance(problem, PairwiseProblem):
        n_labels = problem.bias.shape[0]
        tables = problem.pairs.reshape(-1, n_labels, n_labels)
        yield Part(problem.bias[None], tables=tables, factors=problem.factors)
    elif isinstance(problem, PairwiseForm):
        yield Part(problem.unary, problem.constant, problem.weights / 2)
    elif (form := problem.form) is not None:
        halved = None if form.quadratic is None else form.quadratic / 2
        yield Part(total([form.linear, halved]), form.constant)
        for block in form.blocks:
            if block.nonlinearity.name != "square":
                yield Part(rest=block)
                continue
            # c·(C y + b)² = y·Cᵀ(c∘C) y + 2 (c∘b)·C y + c·b²
            measured, bias = block.measurements, torch.atleast_2d(block.bias)
            weighted = block.readout * bias
            table = measured.T @ (block.readout[:, None] * measured)
            yield Part(2 * weighted @ measured, (weighted * bias).sum(1), table[None])
    else:
        yield Part(rest=problem)


def _not_pairwise(solver: str, received: str) -> InputError:
    return InputError(
        f"{solver} needs a pairwise energy of labels: LocalEnergy, PairwiseEnergy, Hamming or "
        f"squared loss augmentation, or a sum of them; received {received}. Choose Descent(), or "
        "Exact() where the labels are few."
    )
