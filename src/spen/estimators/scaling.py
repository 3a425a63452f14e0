"""Features on one scale, which is what networks train well on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted, validate_data

from spen.errors import InputError

MOSTLY_ZERO = 0.7
"""The share of zeros from which on a matrix is taken for counts, words or flags."""

FARTHEST = 6.0
"""Standardised features are cut off here: one odd value must not decide a prediction."""


COLUMNS_AT_ONCE = 2**22
"""Entries of the columns that are measured together, to bound memory."""


@dataclass(frozen=True)
class Scaling:
    """One of two rules, chosen by how many entries are zero: not by what holds them.

    Features that vary are standardised: x ↦ (x − shift) / scale, within ±6. Features that
    are mostly zero stay sparse: each column is divided by the root mean square of what is not
    zero, and then each row is brought to one length.

    Attributes:
        shift: (d,) the mean of each column, or None by the rule for sparse features.
        scale: (d,) what each column is divided by.
        length: the length of a row, or None by the rule for dense features.

    Without shift and length, rows are left as they are.
    """

    shift: np.ndarray | None
    scale: np.ndarray
    length: float | None

    @classmethod
    def of(cls, X: Any) -> Scaling:
        """Choose the rule, and measure the columns of X.

        >>> Scaling.of(np.array([[1.0, 5.0], [3.0, 5.0]])).transform(np.array([[4.0, 6.0]]))
        array([[2., 1.]], dtype=float32)
        >>> words = sparse.csr_array([[3.0, 0.0, 4.0, 0, 0, 0, 0]])
        >>> Scaling.of(words).transform([[0.0, 0, 1.0, 0, 0, 0, 0]]).toarray()[0, 2]
        np.float32(1.4142135)
        """
        rows, width = X.shape
        # Not by scipy, which would sum duplicates in the caller's matrix.
        entries = len(_entries(X)[0]) if sparse.issparse(X) else np.count_nonzero(X)
        if entries < (1 - MOSTLY_ZERO) * rows * width:
            return cls._of_sparse(X, float(np.sqrt(max(entries / max(rows, 1), 1.0))))
        # What is not mostly zero takes no more memory as an array than it takes as a sparse matrix.
        columns = X.tocsc() if sparse.issparse(X) else np.asarray(X)
        step = max(16, COLUMNS_AT_ONCE // max(rows, 1))
        blocks = [_mean_and_spread(columns[:, k : k + step]) for k in range(0, width, step)]
        mean, spread = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
        return cls(mean, spread, None)

    @classmethod
    def _of_sparse(cls, X: Any, length: float) -> Scaling:
        values, columns, _, (_, width) = _entries(X)
        size = np.abs(values).astype(np.float64)
        largest = np.zeros(width)
        np.maximum.at(largest, columns, size)
        # Relative to the largest of each column, so that no square overflows.
        shares = size / np.where(largest > 0, largest, 1.0)[columns]
        squares = np.bincount(columns, shares**2, minlength=width)
        counts = np.bincount(columns, minlength=width)
        size = largest * np.sqrt(squares / np.maximum(counts, 1))
        return cls(None, np.where(size > 0, size, 1.0), length)

    @classmethod
    def of_blocks(
        cls, blocks: Callable[[], Iterator[Any]], rows: int, width: int, entries: int
    ) -> Scaling:
        """Choose the rule, and measure the columns, as ``of`` does, of rows that come in blocks.

        Args:
            blocks: returns the blocks, dense or sparse.
            rows: how many rows there are in all.
            width: how many columns.
            entries: how many entries are not zero.

        >>> X = np.array([[1.0, 5.0], [3.0, 5.0], [2.0, 8.0]])
        >>> parts = Scaling.of_blocks(lambda: iter([X[:2], X[2:]]), 3, 2, 6)
        >>> np.allclose(parts.scale, Scaling.of(X).scale)
        True
        """
        if entries < (1 - MOSTLY_ZERO) * rows * width:
            length = float(np.sqrt(max(entries / max(rows, 1), 1.0)))
            return cls._of_sparse_blocks(blocks(), width, length)
        count, mean, squares = 0, np.zeros(width), np.zeros(width)
        for block in blocks():
            dense = block.toarray() if sparse.issparse(block) else np.asarray(block)
            values = dense.astype(np.float64)
            count += len(values)
            own = values.mean(axis=0)
            values -= own
            # Means of blocks are near each other, so that little is lost in the difference.
            apart = own - mean
            mean += apart * (len(values) / count)
            squares += np.einsum("ij,ij->j", values, values)
            squares += apart**2 * (len(values) * (count - len(values)) / count)
        spread = np.sqrt(squares / max(count, 1))
        return cls(mean, np.where(spread > 1e-12 * np.abs(mean), spread, 1.0), None)

    @classmethod
    def _of_sparse_blocks(cls, blocks: Iterator[Any], width: int, length: float) -> Scaling:
        largest, squares, counts = np.zeros(width), np.zeros(width), np.zeros(width)
        for block in blocks:
            values, columns, _, _ = _entries(block)
            size, before = np.abs(values).astype(np.float64), largest.copy()
            np.maximum.at(largest, columns, size)
            # Relative to the largest so far, so that no square overflows.
            safe = np.where(largest > 0, largest, 1.0)
            squares *= (before / safe) ** 2
            squares += np.bincount(columns, (size / safe[columns]) ** 2, minlength=width)
            counts += np.bincount(columns, minlength=width)
        size = largest * np.sqrt(squares / np.maximum(counts, 1))
        return cls(None, np.where(size > 0, size, 1.0), length)

    @property
    def sparse(self) -> bool:
        """Whether the features are mostly zero."""
        return self.length is not None

    def transform(self, X: Any) -> Any:
        """Return the scaled rows as float32; by the rule for sparse features, as CSR."""
        if self.length is None and self.shift is None:
            return X
        if self.length is None:
            dense = X.toarray() if sparse.issparse(X) else np.asarray(X)
            # A difference that overflows is far away, on its side.
            with np.errstate(over="ignore"):
                scaled = (dense - self.shift) / self.scale
            return np.clip(scaled, -FARTHEST, FARTHEST).astype(np.float32, order="C")
        values, columns, offsets, shape = _entries(X)
        values = values / self.scale[columns]
        rows = np.repeat(np.arange(shape[0]), offsets[1:] - offsets[:-1])
        norms = _norms(values, rows, shape[0])
        odd = ~((norms > NEAR_ZERO) & (norms < FAR))
        if odd.any():
            # Squares of very large or small entries vanish or overflow; those of shares do not.
            largest = np.zeros(shape[0])
            np.maximum.at(largest, rows, np.abs(values))
            values /= np.where(odd & (largest > 0), largest, 1.0)[rows]
            norms = _norms(values, rows, shape[0])
        values *= self.length / np.maximum(norms[rows], _TINY)
        return sparse.csr_array((values.astype(np.float32), columns, offsets), shape=shape)


AS_THEY_ARE = Scaling(None, np.ones(0), None)
"""Leaves rows as they are."""

_TINY = np.finfo(float).tiny

NEAR_ZERO, FAR = 1e-140, 1e140
"""Lengths of rows between which no square that matters vanishes or overflows."""


def _mean_and_spread(columns: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of each column, and its standard deviation, or 1 for a constant one."""
    dense = columns.toarray() if sparse.issparse(columns) else columns
    # One type and order in memory, because sums are rounded by both.
    values = np.array(dense, dtype=np.float64, order="C")
    # Powers of two change no digit, and then no square vanishes or overflows.
    _, exponent = np.frexp(np.abs(values).max(axis=0))
    values = np.ldexp(values, -exponent, out=values)
    mean, spread = values.mean(axis=0), values.std(axis=0)
    # What rounding leaves of a constant column is not a scale.
    real = spread > 1e-12 * np.abs(mean)
    return np.ldexp(mean, exponent), np.where(real, np.ldexp(spread, exponent), 1.0)


def _norms(values: np.ndarray, rows: np.ndarray, count: int) -> np.ndarray:
    with np.errstate(over="ignore", under="ignore"):
        return np.sqrt(np.bincount(rows, values * values, minlength=count))


def _entries(X: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[int, int]]:
    """Return what is not zero, in compressed rows: values, columns, offsets; and the shape.

    They may be the matrix's own arrays. By hand, because scipy takes longer to build a matrix
    than a row takes to be predicted.
    """
    if not sparse.issparse(X):
        dense = np.asarray(X)
        rows, columns = np.nonzero(dense)
        offsets = np.zeros(len(dense) + 1, columns.dtype)
        np.cumsum(np.bincount(rows, minlength=len(dense)), out=offsets[1:])
        return dense[rows, columns], columns, offsets, dense.shape
    plain: Any = X.tocsr()
    if not (plain.has_canonical_format and plain.data.all()):
        # A copy, because the caller's matrix stays as it is. Zeros that are written out are no
        # entries: which inputs are dropped in training is drawn entry by entry.
        plain = plain.astype(np.float64, copy=True)
        plain.sum_duplicates()
        plain.eliminate_zeros()
    return plain.data, plain.indices, plain.indptr, plain.shape


CHECKS: dict[str, Any] = {"accept_sparse": "csr", "dtype": [np.float64, np.float32]}
"""What a classifier's rows must be, in the words of scikit-learn's ``check_array``."""


def checked_rows(estimator: Any, X: Any) -> Any:
    """Return rows for a fitted estimator to predict, or raise as scikit-learn does.

    One row takes scikit-learn longer to check than to predict, so what can be seen at a glance
    to pass all checks, and to come back as it is, skips them.

    Args:
        estimator: that ``fit`` has given its n_features_in_, and an encoder_ if it takes tables.
        X: (n, d) numbers, in any form that ``check_array`` takes, or a table.
    """
    encoder = vars(estimator).get("encoder_")
    if encoder is not None:
        X = encoder.transform(X)
    if not _surely_good(X, vars(estimator)):
        check_is_fitted(estimator)
        return validate_data(estimator, X, reset=False, **CHECKS)
    return X


@contextmanager
def numbers_wanted() -> Iterator[None]:
    """Say what to do about rows that hold gaps or words, which scikit-learn refuses."""
    try:
        # Numbers that are too large for float32 are refused in words; numpy's are no news then.
        with np.errstate(over="ignore", invalid="ignore"):
            yield
    except ValueError as problem:
        said = str(problem)
        if "inhomogeneous shape" in said:
            raise InputError(
                f"X must be a matrix, with rows of one length ({said}). Lists of ids, which may "
                "differ, are for a network of your own: pass features=, a module that takes them."
            ) from None
        if "contains NaN" in said:
            raise InputError(
                "X contains NaN: some numbers are missing. Fill them in, or fit with "
                "encoder=spen.TableEncoder() on a DataFrame, which learns what to put there."
            ) from None
        if "could not convert string" in said or "float() argument" in said:
            raise InputError(
                f"X must hold numbers ({said}). A table with words is taken as a DataFrame, a dict "
                "of columns, or a list of texts."
            ) from None
        raise


def _surely_good(X: Any, attributes: dict[str, Any]) -> bool:
    """Return whether an array or a CSR matrix passes; False where it takes a closer look."""
    # Subclasses may behave in any other way; and where features have names, their lack is told.
    if type(X) not in _PLAIN or "feature_names_in_" in attributes or X.ndim != 2:
        return False
    if X.shape[0] == 0 or X.shape[1] != attributes.get("n_features_in_"):
        return False
    values = X if isinstance(X, np.ndarray) else X.data
    if values.dtype != np.float64 and values.dtype != np.float32:
        return False
    # A sum is finite only where all its terms are; where it overflows, they may still be.
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(values.sum()))


_PLAIN = (np.ndarray, sparse.csr_array, sparse.csr_matrix)
