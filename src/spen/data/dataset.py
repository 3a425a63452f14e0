"""The records that hold a data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from spen.errors import InputError

LARGEST_DENSE = 1 << 32
"""Bytes that a dense matrix of labels may take."""


@dataclass(frozen=True)
class Split:
    """Rows of inputs and labels, as arrays or as scipy matrices in CSR form.

    Attributes:
        X: (n, features) numbers.
        Y: (n, labels) of 0 and 1; nan marks a missing label. None: the rows have no labels.
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
        labels = None if self.Y is None else self.Y[index]
        weight = None if self.weight is None else self.weight[index]
        return Split(self.X[index], labels, weight)


@dataclass(frozen=True)
class Dataset:
    """A training part and, where there is one, a test and a validation part, with names.

    Attributes:
        name: what to call it in tables.
        train: the Split to learn from.
        test: the Split to judge by, or None.
        feature_names: the name of each column of X.
        label_names: the name of each column of Y.
        valid: the Split to tune by where the data set comes with one, or None.
    """

    name: str
    train: Split
    # Any stands for Split | None: most data sets have a test part, and code says data.test.X.
    test: Any
    feature_names: Sequence[str]
    label_names: Sequence[str]
    valid: Split | None = None


def hold_out(split: Split, share: float, seed: int) -> tuple[Split, Split]:
    """Return (kept, held out), a random split of the rows that depends on the seed alone.

    >>> kept, held = hold_out(Split(np.zeros((10, 2)), np.zeros((10, 1))), 0.2, seed=0)
    >>> len(kept), len(held)
    (8, 2)
    """
    cut = round(share * len(split)) if 0 < share < 1 else 0
    if not 0 < cut < len(split):
        raise InputError(
            f"Holding out a share of {share} of {len(split)} rows must leave rows on both sides. "
            "Give a share between 0 and 1, or more rows."
        )
    order = np.random.default_rng(seed).permutation(len(split))
    return split.rows(np.sort(order[cut:])), split.rows(np.sort(order[:cut]))


def join(parts: Sequence[Split], source: object = "The data") -> Split:
    """Return the rows of all parts, one below the other.

    X and Y are sparse where they are sparse in every part; weights that are missing are one.
    ``source`` says in an error where the rows come from.

    >>> join([Split(np.zeros((2, 3)), None), Split(np.ones((1, 3)), None)]).X.shape
    (3, 3)
    """
    if len(parts) == 1:
        return parts[0]
    weight = None
    if any(part.weight is not None for part in parts):
        weight = np.concatenate(
            [np.ones(len(p), np.float32) if p.weight is None else p.weight for p in parts]
        )
    labels = None if parts[0].Y is None else _stack([part.Y for part in parts], source)
    return Split(_stack([part.X for part in parts], source), labels, weight)


def check_dense(rows: int, labels: int, source: object) -> None:
    """Raise if a dense matrix of labels, which missing ones need, would be too large."""
    if 4 * rows * labels > LARGEST_DENSE:
        raise InputError(
            f"{source}: missing labels need a dense matrix, and {rows} rows of {labels} labels are "
            "too many for one. Leave out the rows with missing labels, or read in chunks."
        )


def _stack(matrices: Sequence[Any], source: object) -> Any:
    if all(sparse.issparse(matrix) for matrix in matrices):
        return sparse.csr_matrix(sparse.vstack(matrices, format="csr"))
    if any(sparse.issparse(matrix) for matrix in matrices):
        check_dense(sum(matrix.shape[0] for matrix in matrices), matrices[0].shape[1], source)
    return np.concatenate([m.toarray() if sparse.issparse(m) else m for m in matrices])
