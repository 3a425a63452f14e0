"""Rows of (column, value) pairs on their way to a matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from spen.data.dataset import check_dense


@dataclass(frozen=True)
class Entries:
    """What the rows hold, before it is known to be a matrix.

    Attributes:
        starts: (rows + 1,) where in the entries each row begins; the last is their number.
        columns: (entries,) whole numbers.
        values: (entries,) numbers.

    >>> entries = Entries(np.array([0, 2, 3]), np.array([4, 1, 0]), np.array([1.0, 2.0, 0.0]))
    >>> entries.in_order().matrix(5, np.float32).toarray().tolist()
    [[0.0, 2.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0, 0.0]]
    """

    starts: np.ndarray
    columns: np.ndarray
    values: np.ndarray

    def where(self, keep: np.ndarray) -> Entries:
        """Return the entries of a mask, in the same rows."""
        if keep.all():
            return self
        before = np.concatenate(([0], np.cumsum(keep)))
        return Entries(before[self.starts], self.columns[keep], self.values[keep])

    def in_order(self) -> Entries | None:
        """Return the rows with columns increasing, or None where a row has a column twice."""
        step = np.diff(self.columns)
        # The step from one row's last entry to the next row's first may go anywhere.
        joint = self.starts[1:-1] - 1
        step[joint[(joint >= 0) & (joint < len(step))]] = 1
        if (step > 0).all():
            return self
        row = np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))
        order = np.lexsort((self.columns, row))
        columns, row = self.columns[order], row[order]
        if ((columns[1:] == columns[:-1]) & (row[1:] == row[:-1])).any():
            return None
        return Entries(self.starts, columns, self.values[order])

    def matrix(self, n_columns: int, dtype: Any) -> sparse.csr_matrix:
        """Return the rows, which must be in order, as a sparse matrix without stored zeros."""
        kept = self.where(self.values != 0)
        parts = kept.values.astype(dtype), kept.columns.astype(np.int32), kept.starts
        return sparse.csr_matrix(parts, shape=(len(self.starts) - 1, n_columns))

    def labels(self, n_labels: int, source: object) -> Any:
        """Return the rows as Y: sparse int8, or dense float32 with nan if a label is missing.

        Args:
            n_labels: the number of columns.
            source: where the rows come from, for errors.
        """
        if not np.isnan(self.values).any():
            return self.matrix(n_labels, np.int8)
        check_dense(len(self.starts) - 1, n_labels, source)
        return self.matrix(n_labels, np.float32).toarray()
