"""Pairwise terms of a problem, which discrete solvers read, and what its rows share.

On labels of 0 and 1, y_i² = y_i. So squares of measurements, quadratic terms and pairs are all
one thing there: a unary term of each label, and a weight of each pair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from spen.batch.context import take
from spen.domains import Domain, UnitBox
from spen.energies.base import Problem, SumProblem, total
from spen.energies.form import Block, Form
from spen.energies.pairwise import PairwiseProblem
from spen.errors import InputError

PAIRS_AT_ONCE = 2**21
"""Pair weights of all rows that a solver lays out at a time, to bound memory."""


Shared = Callable[[Tensor], Tensor]
"""A function of labels that no row has its own of: labellings (m, L) → (m,)."""


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
        shared = len(self.weights) == 1
        return PairwiseForm(
            self.constant[rows],
            self.unary[rows],
            self.weights if shared else self.weights[rows],
        )

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
    rows = problem.rows_like.shape[0]
    terms = list(_terms(problem, solver))
    unary = total([term.unary for term in terms])
    if unary is None:
        raise _not_pairwise(solver, "a constant")
    constant = total([unary.new_zeros(rows), *(term.constant for term in terms)])
    none = unary.new_zeros(1, unary.shape[1], unary.shape[1])
    weights = total([none, *(term.weights for term in terms)])
    assert constant is not None
    assert weights is not None
    return PairwiseForm(constant, unary.expand(rows, -1), weights)


def checked_known(problem: Problem, domain: Domain, known: Tensor | None) -> Tensor | None:
    """Return known labels in the problem's type, with what they decide filled in."""
    if known is None:
        return None
    domain.check_shape(known, problem.rows_like.shape[0], "known")
    return domain.complete_known(known.to(problem.rows_like))


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
    like, known = problem.rows_like, checked_known(problem, domain, known)
    size = max(1, PAIRS_AT_ONCE // domain.size**2)
    for rows in torch.arange(like.shape[0], device=like.device).split(size):
        whole = len(rows) == like.shape[0]
        part, held = (problem if whole else problem.select(rows)), take(known, rows)
        yield read_pairwise(part, solver).condition(held), held


@dataclass(frozen=True)
class _Terms:
    """What one part of a problem adds: (n,), (n, L) or (1, L), (n, L, L) or (1, L, L)."""

    unary: Tensor | None = None
    constant: Tensor | None = None
    weights: Tensor | None = None


def _terms(problem: Problem, solver: str) -> Iterator[_Terms]:
    if isinstance(problem, SumProblem):
        for part in problem.terms:
            yield from _terms(part, solver)
    elif isinstance(problem, PairwiseProblem):
        yield _of_pairs(problem)
    elif isinstance(problem, PairwiseForm):
        yield _Terms(problem.unary, problem.constant, problem.weights)
    elif problem.form is not None:
        yield from _of_form(problem.form, solver)
    else:
        raise _not_pairwise(solver, type(problem).__name__)


def _of_pairs(problem: PairwiseProblem) -> _Terms:
    n_labels = problem.pairs.shape[1]
    tables = problem.pairs.reshape(-1, n_labels, n_labels)
    factors = problem.factors
    if not factors.requires_grad and bool((factors == factors[:1]).all()):
        factors = factors[:1]
    weights, diagonal = _split(torch.einsum("nk,kij->nij", factors, tables))
    return _Terms(problem.bias + diagonal, weights=weights)


def _of_form(form: Form, solver: str) -> Iterator[_Terms]:
    if form.tau is not None:
        raise InputError(
            f"{solver} looks for a labelling, but the entropy term of this problem has its "
            "minimum between labels. Leave the entropy at 0, or choose Descent()."
        )
    halved = None if form.quadratic is None else form.quadratic / 2
    yield _Terms(total([form.linear, halved]), form.constant)
    for block in form.blocks:
        if block.nonlinearity.name != "square":
            raise _not_pairwise(solver, f"measurements through {block.nonlinearity.name}")
        yield _of_square(block)


def _of_square(block: Block) -> _Terms:
    """Expand c·(C y + b)² = y·Cᵀ(c∘C) y + 2 (c∘b)·C y + c·b²."""
    table = block.measurements.T @ (block.readout[:, None] * block.measurements)
    weights, diagonal = _split(table[None])
    bias = block.bias.expand(1, -1) if block.bias.ndim == 1 else block.bias
    weighted = block.readout * bias
    return _Terms(diagonal + 2 * weighted @ block.measurements, (weighted * bias).sum(1), weights)


def _split(tables: Tensor) -> tuple[Tensor, Tensor]:
    """Return weights and unary terms of y·A y, from A (…, L, L)."""
    diagonal = tables.diagonal(dim1=-2, dim2=-1)
    return tables + tables.mT - 2 * torch.diag_embed(diagonal), diagonal


def _not_pairwise(solver: str, received: str) -> InputError:
    return InputError(
        f"{solver} needs a pairwise energy of labels: LocalEnergy, PairwiseEnergy, Hamming or "
        f"squared loss augmentation, or a sum of them; received {received}. Choose Descent(), or "
        "Exact() where the labels are few."
    )


@dataclass(frozen=True)
class SharedParts:
    """E(y) = unary·y + Σ_k factor_k y·A_k y + Σ_k φ_k(y) + a constant, on labels of 0 and 1.

    Such are local, pairwise and label energies, loss augmentation, and their sums. Rows have
    unary terms and factors of their own; what they share is worth a table of all labellings.

    Attributes:
        unary: (n, L), or None for zero.
        pairs: each A_k (L, L) with its factor (n,), None for one.
        functions: each φ_k: measurements through a nonlinearity.

    >>> import torch
    >>> import spen
    >>> energy = spen.LocalEnergy(2, 4) + spen.PairwiseEnergy(4)
    >>> parts = SharedParts.of(energy.bind(spen.Context(torch.zeros(3, 2))))
    >>> parts.unary.shape, len(parts.pairs), len(parts.functions)
    (torch.Size([3, 4]), 1, 0)
    """

    unary: Tensor | None = None
    pairs: tuple[tuple[Tensor | None, Tensor], ...] = ()
    functions: tuple[Shared, ...] = ()

    @staticmethod
    def of(problem: Problem) -> SharedParts | None:
        """Return the parts of a problem, or None where it is not such a sum."""
        if isinstance(problem, SumProblem):
            return _share_sum(problem)
        if isinstance(problem, PairwiseProblem):
            return _share_pairs(problem)
        if isinstance(problem, PairwiseForm) and len(problem.weights) == 1:
            return SharedParts(problem.unary, ((None, problem.weights[0] / 2),))
        return None if problem.form is None else _share_form(problem.form)


def _share_sum(problem: SumProblem) -> SharedParts | None:
    parts = [SharedParts.of(term) for term in problem.terms]
    present = [part for part in parts if part is not None]
    if len(present) < len(parts):
        return None
    return SharedParts(
        total([part.unary for part in present]),
        tuple(pair for part in present for pair in part.pairs),
        tuple(function for part in present for function in part.functions),
    )


def _share_pairs(problem: PairwiseProblem) -> SharedParts:
    factors, n_labels = problem.factors, problem.pairs.shape[1]
    tables = problem.pairs.reshape(-1, n_labels, n_labels)
    columns = [None if bool((column == 1).all()) else column for column in factors.unbind(1)]
    pairs = tuple(zip(columns, tables.unbind(), strict=True))
    return SharedParts(problem.bias.expand(factors.shape[0], -1), pairs)


def _share_form(form: Form) -> SharedParts | None:
    halved = None if form.quadratic is None else form.quadratic / 2
    unary, pairs, functions = total([form.linear, halved]), [], []
    for block in form.blocks:
        if block.nonlinearity.name == "square":
            # c·(C y + b)² = y·Cᵀ(c∘C) y + 2 (c∘b)·C y + a constant
            C, readout = block.measurements, block.readout
            slope = 2 * (readout * block.bias) @ C
            unary = total([unary, slope.expand(form.rows_like.shape[0], -1)])
            pairs.append((None, C.T @ (readout[:, None] * C)))
        elif block.bias.ndim == 1:
            functions.append(_measured(block))
        else:
            return None
    return SharedParts(unary, tuple(pairs), tuple(functions))


def _measured(block: Block) -> Shared:
    g, C, bias, readout = (
        block.nonlinearity.value,
        block.measurements,
        block.bias,
        block.readout,
    )
    return lambda y: g(F.linear(y, C) + bias) @ readout
