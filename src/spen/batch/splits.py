"""Splits: rows of inputs and labels, how they are parted, and which rows two of them share."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from spen.batch.arrays import unmasked
from spen.batch.inputs import InputRows, Ragged
from spen.batch.rows import compressed_rows
from spen.errors import InputError

BLOCK_ROWS = 4096
"""Rows of a dense matrix that are looked at together."""


@dataclass(frozen=True)
class Split:
    """Rows of inputs and labels, as arrays or as scipy matrices in CSR form.

    Attributes:
        X: (n, features) numbers, or a DataFrame of words; (n,) lists of tokens; inputs of any
            kind, as ``read_inputs`` returns them.
        Y: (n, labels) of 0 and 1; nan marks a missing label; (n,) lists of tags. None: the rows
            have no labels.
        weight: (n,) the weight of each row in training; None means one.

    >>> rows = Split(sparse.csr_matrix(np.eye(3)), sparse.csr_matrix([[1], [0], [1]]))
    >>> len(rows), rows.rows([0, 2]).Y.toarray().tolist()
    (3, [[1], [1]])
    """

    X: Any
    Y: Any
    weight: Any = None

    def __len__(self) -> int:
        # A sparse matrix has a shape, but refuses len().
        return self.X.shape[0] if hasattr(self.X, "shape") else len(self.X)

    def rows(self, index: Any) -> Split:
        """Return some of the rows."""
        labels = None if self.Y is None else _rows_of(self.Y, index)
        weight = None if self.weight is None else self.weight[index]
        return Split(_rows_of(self.X, index), labels, weight)

    def joined(self, others: Split) -> Split:
        """Return these rows and then others; those without weights weigh 1.

        >>> Split(np.eye(2), np.ones((2, 1))).joined(Split(np.ones((1, 2)), np.zeros((1, 1)))).Y.T
        array([[1., 1., 0.]])
        """
        weight = None
        if self.weight is not None or others.weight is not None:
            both = (np.ones(len(s)) if s.weight is None else s.weight for s in (self, others))
            weight = np.concatenate(list(both))
        return Split(_stacked(self.X, others.X), _stacked(self.Y, others.Y), weight)


def _stacked(above: Any, below: Any) -> Any:
    if isinstance(above, InputRows):
        return above.joined(below)
    if sparse.issparse(above) and sparse.issparse(below):
        return sparse.vstack([above, below], format="csr")
    dense = (part.toarray() if sparse.issparse(part) else part for part in (above, below))
    return np.concatenate(list(dense))


def _rows_of(matrix: Any, index: Any) -> Any:
    if sparse.issparse(matrix):
        matrix = compressed_rows(matrix, "A split")
    return getattr(matrix, "iloc", matrix)[index]


def hold_out(split: Split, share: float, seed: int) -> tuple[Split, Split]:
    """Return (kept, held out), a random split of the rows that depends on the seed alone.

    >>> kept, held = hold_out(Split(np.zeros((10, 2)), np.zeros((10, 1))), 0.2, seed=0)
    >>> len(kept), len(held)
    (8, 2)
    """
    for name, part in (("X", split.X), ("Y", split.Y)):
        if isinstance(part, Mapping | list | tuple):
            raise InputError(
                f"{name} of a split must be an array, a sparse matrix or a DataFrame; received a "
                f"{type(part).__name__}. Make a DataFrame of columns, and of sets of labels a "
                "matrix of 0 and 1."
            )
    cut = round(share * len(split)) if 0 < share < 1 else 0
    if not 0 < cut < len(split):
        raise InputError(
            f"Holding out a share of {share} of {len(split)} rows must leave rows on both sides. "
            "Give a share between 0 and 1, or more rows."
        )
    order = np.random.default_rng(seed).permutation(len(split))
    return split.rows(np.sort(order[cut:])), split.rows(np.sort(order[:cut]))


@dataclass(frozen=True)
class RowDigests:
    """A set of rows, each known by a 64-bit digest of its non-zero entries.

    Values are compared as float32, in which a model computes, so that a row is the same
    row dense or sparse, in float32 or float64. Two different rows have one digest with a
    chance of 1 in 2⁶⁴.

    Attributes:
        values: (rows,) sorted int64, without repetitions; fit to be stored.

    >>> seen = RowDigests.of(np.array([[0.0, 1.0], [2.0, 0.0]]))
    >>> seen.contains(sparse.csr_array([[0.0, 1.0], [0.0, 3.0]]))
    array([ True, False])
    """

    values: np.ndarray

    @classmethod
    def of(cls, X: Any) -> RowDigests:
        """Return the set of the rows of a matrix, (n, features), dense or sparse."""
        return cls(np.unique(row_digests(X)))

    def contains(self, X: Any) -> np.ndarray:
        """Return for each row of a matrix whether it is in the set, (n,) of bool."""
        return np.isin(row_digests(X), self.values)

    def __or__(self, other: RowDigests) -> RowDigests:
        """Return the rows of both, for matrices that come in pieces."""
        return RowDigests(np.union1d(self.values, other.values))


def row_digests(X: Any) -> np.ndarray:
    """Return a digest for each row, (n,) of int64: see ``RowDigests``."""
    if isinstance(X, InputRows):
        return _digests_of_inputs(X)
    if sparse.issparse(X):
        return _sparse_digests(compressed_rows(X, "The matrix of rows"))
    X = np.asarray(unmasked(X))
    if X.ndim != 2:
        raise InputError(f"Rows must be those of a matrix; received shape {X.shape}.")
    blocks = [X[i : i + BLOCK_ROWS] for i in range(0, len(X), BLOCK_ROWS)]
    empty = np.empty(0, np.int64)
    return np.concatenate([empty, *(_sparse_digests(_float32(block)) for block in blocks)])


def _sparse_digests(X: Any) -> np.ndarray:
    rows = sparse.csr_array(X, copy=True)
    rows.data = _float32(rows.data)
    rows.eliminate_zeros()
    rows.data[np.isnan(rows.data)] = np.nan  # one bit pattern out of many
    columns = memoryview(rows.indices.astype("<i8").tobytes())
    entries = memoryview(rows.data.astype("<f4").tobytes())
    digests = bytearray()
    for begin, end in pairwise(map(int, rows.indptr)):
        digest = hashlib.blake2b(columns[8 * begin : 8 * end], digest_size=8)
        digest.update(entries[4 * begin : 4 * end])
        digests += digest.digest()
    return np.frombuffer(bytes(digests), "<i8").astype(np.int64)


def _digests_of_inputs(X: InputRows) -> np.ndarray:
    digests = bytearray()
    for row in range(len(X)):
        digest = hashlib.blake2b(digest_size=8)
        for name, field in X.fields.items():
            if isinstance(field, Ragged):
                values = field.ids[field.offsets[row] : field.offsets[row + 1]]
            else:
                values = field[row].float() if field.is_floating_point() else field[row]
            digest.update(f"{name} {values.shape}".encode())
            digest.update(values.contiguous().cpu().numpy().tobytes())
        digests += digest.digest()
    return np.frombuffer(bytes(digests), "<i8").astype(np.int64)


def _float32(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return values.astype(np.float32)
