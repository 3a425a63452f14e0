"""The records that hold a data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from spen.batch.splits import Split
from spen.errors import InputError

LARGEST_DENSE = 1 << 32
"""Bytes that a dense matrix of labels may take."""


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
