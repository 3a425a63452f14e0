"""Tells what all rows of a problem share from what is linear in the labels of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from spen.energies.base import Problem, SumProblem, total
from spen.energies.form import Block, Form
from spen.energies.pairwise import PairwiseProblem
from spen.inference.pairwise_form import PairwiseForm

Shared = Callable[[Tensor], Tensor]
"""A function of labels that no row has its own of: labellings (m, L) → (m,)."""


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
            return _of_sum(problem)
        if isinstance(problem, PairwiseProblem):
            return _of_pairs(problem)
        if isinstance(problem, PairwiseForm) and len(problem.weights) == 1:
            return SharedParts(problem.unary, ((None, problem.weights[0] / 2),))
        return None if problem.form is None else _of_form(problem.form)


def _of_sum(problem: SumProblem) -> SharedParts | None:
    parts = [SharedParts.of(term) for term in problem.terms]
    present = [part for part in parts if part is not None]
    if len(present) < len(parts):
        return None
    return SharedParts(
        total([part.unary for part in present]),
        tuple(pair for part in present for pair in part.pairs),
        tuple(function for part in present for function in part.functions),
    )


def _of_pairs(problem: PairwiseProblem) -> SharedParts:
    factors, n_labels = problem.factors, problem.pairs.shape[1]
    tables = problem.pairs.reshape(-1, n_labels, n_labels)
    columns = [None if bool((column == 1).all()) else column for column in factors.unbind(1)]
    pairs = tuple(zip(columns, tables.unbind(), strict=True))
    return SharedParts(problem.bias.expand(factors.shape[0], -1), pairs)


def _of_form(form: Form) -> SharedParts | None:
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
