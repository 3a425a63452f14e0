"""The records that hold a data set, and the figures that describe one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from spen.batch.limits import in_words, limits
from spen.batch.splits import RowDigests, Split
from spen.errors import InputError

TIMES = 10
"""How many times its size a file may take in memory while it is read, beside limits.growth."""


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
        label_column: the column of a table that holds all labels of a row; None: each has its own.

    >>> rows = Split(np.eye(3), np.array([[1], [0], [1]]))
    >>> data = Dataset("mine", rows, None, feature_names=("a", "b", "c"), label_names=("sun",))
    >>> len(data.train), data.train.X.shape, data.train.Y.shape     # (n, d) and (n, L)
    (3, (3, 3), (3, 1))
    """

    name: str
    train: Split
    # Any stands for Split | None: most data sets have a test part, and code says data.test.X.
    test: Any
    feature_names: Sequence[str]
    label_names: Sequence[str]
    valid: Split | None = None
    label_column: str | None = None


class Numbered(Sequence[str]):
    """The names ``x0``, ``x1``, … (or from another number on), made when asked for.

    A text file may declare billions of columns in its first line, and that must not cost
    memory; in all else this is the tuple of those names.

    >>> names = Numbered("x", 3)
    >>> names[-1], list(names), names == ("x0", "x1", "x2")
    ('x2', ['x0', 'x1', 'x2'], True)
    """

    def __init__(self, prefix: str, count: int, start: int = 0) -> None:
        self.prefix = prefix
        self.numbers = range(start, start + count)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(f"{self.prefix}{i}" for i in self.numbers[index])
        return f"{self.prefix}{self.numbers[index]}"

    def __eq__(self, other: Any) -> bool:
        if isinstance(other, Numbered):
            return repr(self) == repr(other)
        is_alike = isinstance(other, list | tuple) and len(self) == len(other)
        return is_alike and tuple(self) == tuple(other)

    # Equal to a tuple, so it would have to hash like one, which means making all names.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Numbered({self.prefix!r}, {len(self)}, {self.numbers.start})"


def join(parts: Iterable[Split], source: object = "The data") -> Split:
    """Return the rows of all parts, one below the other.

    X and Y are sparse where they are sparse in every part; weights that are missing are one.
    ``source`` says in an error where the rows come from. Of parts that nobody else holds, each
    array is let go when it is copied, so that not everything is there twice.

    >>> join([Split(np.zeros((2, 3)), None), Split(np.ones((1, 3)), None)]).X.shape
    (3, 3)
    """
    parts = list(parts)
    if len(parts) == 1:
        return parts[0]
    weight = None
    if any(part.weight is not None for part in parts):
        weight = np.concatenate(
            [np.ones(len(p), np.float32) if p.weight is None else p.weight for p in parts]
        )
    features, labels = [part.X for part in parts], [part.Y for part in parts]
    parts.clear()
    X = _stack(features, source)
    return Split(X, None if labels[0] is None else _stack(labels, source), weight)


def regroup(parts: Iterable[Split], rows: int) -> Iterator[Split]:
    """Yield the rows of all parts, so many at a time; the last ones may be fewer.

    >>> [len(part) for part in regroup([Split(np.zeros((5, 1)), None)], 2)]
    [2, 2, 1]
    """
    waiting: list[Split] = []
    for part in parts:
        waiting += [part] if len(part) else []
        count = sum(map(len, waiting))
        if count < rows:
            continue
        joined, whole = join(waiting), count - count % rows
        for start in range(0, whole, rows):
            yield joined.rows(slice(start, start + rows))
        waiting = [joined.rows(slice(whole, count))] if whole < count else []
    if waiting:
        yield join(waiting)


def check_size(source: object, size: int, what: str = "matrices", held: int | None = None) -> None:
    """Raise if reading takes more memory than limits allow, or than the file's size explains.

    Args:
        source: where the rows come from; a path where that is a file.
        size: the bytes that are there at the same time while it is read.
        what: takes them.
        held: those of them that stay; None: all.
    """
    limits.check(size if held is None else held, "table", f"{source} holds {what}")
    if isinstance(source, Path):
        bytes_there = source.stat().st_size
        story = f"{source} has {in_words(bytes_there)}, but reading it takes {what}"
        limits.check(size, "growth", story, beside=TIMES * bytes_there)


def check_columns(source: object, n_features: int, n_labels: int) -> None:
    """Raise if so many columns could not be dealt with: a number for each, a name for a label."""
    what = f"{n_features:,} features and {n_labels:,} labels, a number for each and names"
    check_size(source, 8 * n_features + 64 * n_labels, what)


def check_dense(rows: int, labels: int, source: object) -> None:
    """Raise if a dense matrix of labels, which missing ones need, would be too large."""
    size = 4 * rows * labels
    check_size(source, 2 * size, "a dense matrix, since labels are missing,", held=size)


def _stack(matrices: list[Any], source: object) -> Any:
    """Return matrices one below the other; the list is emptied."""
    if hasattr(matrices[0], "iloc"):
        import pandas as pd

        return pd.concat(matrices, ignore_index=True)
    if matrices[0].ndim == 1:
        return _concatenate(matrices)
    shape = sum(matrix.shape[0] for matrix in matrices), matrices[0].shape[1]
    if all(sparse.issparse(matrix) for matrix in matrices):
        parts = [[m.data for m in matrices], [m.indices for m in matrices]]
        ends = [m.indptr[1:] for m in matrices]
        matrices.clear()
        data, indices = map(_concatenate, parts)
        indptr = np.zeros(shape[0] + 1, np.int32 if len(data) < 2**31 else np.int64)
        row = 0
        for end in ends:
            indptr[row + 1 : row + 1 + len(end)] = end
            indptr[row + 1 : row + 1 + len(end)] += indptr[row]
            row += len(end)
        return sparse.csr_matrix((data, indices, indptr), shape=shape)
    if any(sparse.issparse(matrix) for matrix in matrices):
        check_dense(*shape, source)
    return np.concatenate([m.toarray() if sparse.issparse(m) else m for m in matrices])


def _concatenate(arrays: list[np.ndarray]) -> np.ndarray:
    """Return arrays one after the other; the list is emptied."""
    whole = np.concatenate(arrays)
    arrays.clear()
    return whole


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
    check_sets(data, "counts")
    labels = [sparse.csr_array(part.Y, dtype=np.float32) for part in parts.values()]
    stacked = sparse.csr_array(sparse.vstack(labels))
    missing = int(np.isnan(stacked.data).sum())
    on = sparse.csr_array(stacked == 1, dtype=np.int64)
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


def check_sets(data: Dataset, does: str) -> None:
    """Raise where rows are sequences with a tag for each token, and not sets of labels."""
    if data.train.Y is not None and data.train.Y.ndim == 1:
        raise InputError(
            f"{data.name} holds sequences, with a tag for each token; this {does} sets of labels."
        )


def repeated_rows(train_X: Any, test_X: Any) -> np.ndarray:
    """Return for each test row whether its features equal those of some training row.

    >>> repeated_rows([[1.0, 0.0]], [[1.0, 0.0], [0.0, 0.0]])
    array([ True, False])
    """
    if hasattr(train_X, "itertuples"):
        seen = set(map(str, train_X.itertuples(index=False)))
        return np.array([str(row) in seen for row in test_X.itertuples(index=False)])
    return RowDigests.of(train_X).contains(test_X)


def _top_labels(on: sparse.csr_array, names: Any, top: int) -> tuple[tuple[str, int], ...]:
    counts = np.bincount(on.indices, minlength=on.shape[1])  # type: ignore[misc]
    order = np.argsort(-counts, kind="stable")[:top]
    return tuple((names[i], int(counts[i])) for i in order if counts[i])


def _top_pairs(on: sparse.csr_array, names: Any, top: int) -> tuple[tuple[str, str, int], ...]:
    pairs = sparse.coo_array(sparse.triu(on.T @ on, k=1))
    first, second, counts = pairs.row, pairs.col, np.asarray(pairs.data)
    order = np.lexsort((second, first, np.negative(counts)))[:top]
    return tuple((names[first[i]], names[second[i]], int(counts[i])) for i in order)
