"""The figures that describe a data set, computed without making anything dense."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from spen.batch.splits import RowDigests
from spen.data.dataset import Dataset
from spen.errors import InputError


@dataclass(frozen=True)
class Summary:
    """What ``spen data show`` tells. Labels are counted over all parts together.

    Attributes:
        name: the data set's name.
        rows: part → number of rows, in the order train, valid, test.
        n_features, n_labels: columns.
        cardinality: labels per row that are on.
        density: the share of observed labels that are on.
        missing: the share of labels that are not observed.
        unlabelled: the share of rows on which no label is on.
        labelsets: how many different label sets there are, the empty one included.
        top_labels: (name, rows) of the most frequent labels.
        top_pairs: (name, name, rows) of the labels most often on together.
        repeated: test rows whose features equal those of some training row; None without a
            test part.
    """

    name: str
    rows: dict[str, int]
    n_features: int
    n_labels: int
    cardinality: float
    density: float
    missing: float
    unlabelled: float
    labelsets: int
    top_labels: tuple[tuple[str, int], ...]
    top_pairs: tuple[tuple[str, str, int], ...]
    repeated: int | None


def summarise(data: Dataset, top: int = 10) -> Summary:
    """Return the figures of a data set; a missing label (nan) counts as off.

    >>> from spen import exclusive_blocks
    >>> figures = summarise(exclusive_blocks(100, 50))
    >>> figures.rows, figures.cardinality, figures.density, figures.repeated
    ({'train': 100, 'test': 50}, 4.0, 0.25, 0)
    """
    parts = {"train": data.train, "valid": data.valid, "test": data.test}
    parts = {name: part for name, part in parts.items() if part is not None}
    if any(part.Y is None for part in parts.values()):
        raise InputError(f"The rows of {data.name} have no labels, so there is nothing to count.")
    on = sparse.csr_array(sparse.vstack([_labels_on(part.Y) for part in parts.values()]))
    missing = sum(_count_missing(part.Y) for part in parts.values())
    n_rows, n_labels = on.shape  # type: ignore[misc]
    sizes = np.diff(on.indptr)
    observed = n_rows * n_labels - missing
    return Summary(
        name=data.name,
        rows={name: len(part) for name, part in parts.items()},
        n_features=data.train.X.shape[1],
        n_labels=n_labels,
        cardinality=float(on.nnz / max(n_rows, 1)),
        density=float(on.nnz / max(observed, 1)),
        missing=float(missing / max(n_rows * n_labels, 1)),
        unlabelled=float((sizes == 0).sum() / max(n_rows, 1)),
        labelsets=len(RowDigests.of(on).values),
        top_labels=_top_labels(on, data.label_names, top),
        top_pairs=_top_pairs(on, data.label_names, top),
        repeated=None if data.test is None else int(repeated_rows(data.train.X, data.test.X).sum()),
    )


def repeated_rows(train_X: Any, test_X: Any) -> np.ndarray:
    """Return for each test row whether its features equal those of some training row.

    >>> repeated_rows([[1.0, 0.0]], [[1.0, 0.0], [0.0, 0.0]])
    array([ True, False])
    """
    return RowDigests.of(train_X).contains(test_X)


def _labels_on(Y: Any) -> sparse.csr_array:
    """Return a matrix that holds a 1 where a label is on, and nothing elsewhere."""
    if not sparse.issparse(Y):
        return sparse.csr_array(np.asarray(Y) == 1, dtype=np.int64)
    on = sparse.csr_array(Y, copy=True)
    on.data = (on.data == 1).astype(np.int64)
    on.eliminate_zeros()
    return on


def _count_missing(Y: Any) -> int:
    return int(np.isnan(Y.data if sparse.issparse(Y) else np.asarray(Y, dtype=float)).sum())


def _top_labels(on: sparse.csr_array, names: Any, top: int) -> tuple[tuple[str, int], ...]:
    counts = np.bincount(on.indices, minlength=on.shape[1])  # type: ignore[misc]
    order = np.argsort(-counts, kind="stable")[:top]
    return tuple((names[i], int(counts[i])) for i in order if counts[i])


def _top_pairs(on: sparse.csr_array, names: Any, top: int) -> tuple[tuple[str, str, int], ...]:
    pairs = sparse.coo_array(sparse.triu(on.T @ on, k=1))
    first, second, counts = pairs.row, pairs.col, np.asarray(pairs.data)
    order = np.lexsort((second, first, np.negative(counts)))[:top]
    return tuple((names[first[i]], names[second[i]], int(counts[i])) for i in order)
