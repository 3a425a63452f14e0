"""Rows and batches: dense, sparse, or of any kind, handed to the feature network batch by batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy import sparse
from torch import Tensor

from spen.batch.groups import in_turns, linear
from spen.batch.inputs import LARGEST_PASSED_BATCH, InputBatch, InputRows
from spen.batch.limits import VECTOR
from spen.errors import InputError, check_whole


@dataclass(frozen=True)
class SparseBatch:
    """Some rows of a sparse matrix, in compressed rows.

    Attributes:
        columns: (entries,) the column of each entry, row by row.
        values: (entries,) the entries.
        offsets: (n + 1,) where each row begins.
        n_columns: the width of the matrix.
        copies: how often the last row stands there once more; it is kept, and computed, once.

    >>> densify(SparseRows(sparse.csr_array([[0.0, 2.0], [1.0, 0.0]]))[torch.tensor([0])])
    tensor([[0., 2.]])
    """

    columns: Tensor
    values: Tensor
    offsets: Tensor
    n_columns: int
    copies: int = 0

    @property
    def shape(self) -> torch.Size:
        """(rows, columns)."""
        return torch.Size((self.offsets.shape[0] - 1 + self.copies, self.n_columns))

    def to_dense(self) -> Tensor:
        """Return the rows as a dense matrix."""
        counts = self.offsets.diff()
        rows = torch.repeat_interleave(counts, output_size=self.columns.shape[0])
        dense = self.values.new_zeros(counts.shape[0], self.n_columns)
        dense[rows, self.columns] = self.values
        return with_copies(dense, self.copies)


@dataclass(frozen=True)
class PaddedRows:
    """The rows of a sparse matrix on a device, filled up to one length.

    Batches are cut out of it, and made dense, without asking the host for anything: on a GPU
    a wait for the host costs more than a batch does.

    Attributes:
        columns: (n, most entries of a row) the column of each entry; n_columns where there
            is none.
        values: of the same shape.
        n_columns: the width of the matrix.
    """

    columns: Tensor
    values: Tensor
    n_columns: int

    @classmethod
    def of(cls, matrix: Any, device: torch.device) -> PaddedRows:
        """Copy a CSR matrix to a device."""
        width = matrix.shape[1]
        counts = np.diff(matrix.indptr)
        place = np.arange(counts.max(initial=0))[None, :] < counts[:, None]
        columns = np.full(place.shape, width, np.int64)
        values = np.zeros(place.shape, matrix.dtype)
        columns[place], values[place] = matrix.indices, matrix.data
        return cls(torch.from_numpy(columns).to(device), torch.from_numpy(values).to(device), width)

    def __getitem__(self, rows: Tensor) -> Tensor:
        columns, values = self.columns[rows], self.values[rows]
        dense = values.new_zeros(len(rows), self.n_columns + 1)
        return dense.scatter_(1, columns, values)[:, :-1]

    @staticmethod
    def fits(matrix: Any) -> bool:
        """Return whether the copy, and a dense batch, are small beside a GPU's memory."""
        longest = int(np.diff(matrix.indptr).max(initial=0))
        return matrix.shape[0] * longest <= LARGEST_COPY and matrix.shape[1] <= WIDEST_COPY


LARGEST_COPY, WIDEST_COPY = 2**27, 2**15
"""Entries, of 12 bytes, and columns of a matrix that is held on a GPU."""


def compressed_rows(matrix: Any, name: str) -> Any:
    """Return a sparse matrix in compressed rows, each in order and without repetitions.

    The caller's matrix stays as it is, and is what comes back where it is like that already. One
    whose indices lie outside of it is refused: scipy would read and write what is not its own.

    Args:
        matrix: of any of scipy's sparse formats.
        name: what errors call it.

    >>> compressed_rows(sparse.csr_array(([1.0, 2.0], [1, 1], [0, 2]), shape=(1, 2)), "X").data
    array([3.])
    >>> broken = sparse.csr_array(np.eye(2))
    >>> broken.indices[0] = 9
    >>> compressed_rows(broken, "X")
    Traceback (most recent call last):
    ...
    spen.errors.InputError: X is not a sound sparse matrix: indices must be < 2. Build it anew.
    """
    if matrix.ndim != 2:
        raise InputError(f"{name} must have two dimensions; received shape {matrix.shape}.")
    if matrix.format == "csr" and _is_in_order(matrix):
        return matrix
    try:
        copy = _with_own_parts(matrix).tocsr(copy=True)
        copy.check_format()
    except (ValueError, TypeError, IndexError, OverflowError) as problem:
        reason = f"{name} is not a sound sparse matrix: {problem}."
        raise InputError(f"{reason} Build it anew.") from None
    copy.sum_duplicates()
    return copy


def _is_in_order(matrix: Any) -> bool:
    """Return whether compressed rows are sound, in order and without repetitions.

    By hand, and whatever the matrix says of itself: its flags may be out of date, asking for them
    changes them, and a single row must not wait for scipy.
    """
    offsets, columns, values = matrix.indptr, matrix.indices, matrix.data
    rows, width = matrix.shape
    if not (_holds_indices(offsets) and _holds_indices(columns) and isinstance(values, np.ndarray)):
        return False
    if offsets.shape != (rows + 1,) or offsets[0] != 0:
        return False
    entries = int(offsets[-1])
    if columns.shape != (entries,) or values.shape != (entries,):
        return False
    if rows > 1 and (offsets[1:] < offsets[:-1]).any():
        return False
    rises = columns[1:] > columns[:-1]
    if rises.all():
        return not entries or bool(columns[0] >= 0 and columns[-1] < width)
    if columns.min() < 0 or columns.max() >= width:
        return False
    # A row may begin before where the last one ended.
    rises[offsets[(offsets > 0) & (offsets < entries)] - 1] = True
    return bool(rises.all())


def _holds_indices(part: Any) -> bool:
    return isinstance(part, np.ndarray) and (part.dtype == np.int32 or part.dtype == np.int64)


def _with_own_parts(matrix: Any) -> Any:
    """Return a sparse matrix of the same arrays, checked by scipy, that scipy may change."""
    values: Any = getattr(matrix, "data", None)  # a DOK matrix has none
    if getattr(values, "dtype", None) == np.float16:
        values = values.astype(np.float32)  # scipy cannot add up its own half-precision numbers
    if matrix.format in ("csr", "csc", "bsr"):
        own = type(matrix)((values, matrix.indices, matrix.indptr), shape=matrix.shape)
        own.check_format()
        if (own.indptr[1:] < own.indptr[:-1]).any():  # which scipy does not see of no entries
            raise ValueError("indptr must be a non-decreasing sequence")
        return own
    if matrix.format == "coo":
        return type(matrix)((values, (matrix.row, matrix.col)), shape=matrix.shape)
    if matrix.format == "dia":
        return type(matrix)((values, matrix.offsets), shape=matrix.shape)
    if matrix.format == "lil" and [*map(len, values)] != [*map(len, matrix.rows)]:
        raise ValueError("its rows have more columns than values, or fewer")
    return matrix


class SparseRows:
    """A sparse matrix on the host, whose rows become batches on a device when asked for.

    For a GPU a matrix that is small enough is copied there once, and its batches are dense.
    """

    def __init__(
        self,
        matrix: Any,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
        name: str = "The matrix",
    ) -> None:
        plain = np.float64 if dtype == torch.float64 else np.float32
        rows = compressed_rows(matrix, name)
        if not isinstance(rows, sparse.csr_array) or rows.dtype != plain:
            with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
                rows = sparse.csr_array(rows, dtype=plain)
        self.matrix = rows
        self.dtype = dtype
        self.device = torch.device("cpu") if device is None else device
        self._copy: PaddedRows | None = None
        if self.device.type == "cuda" and PaddedRows.fits(self.matrix):
            self._copy = PaddedRows.of(self.matrix, self.device)

    @property
    def shape(self) -> torch.Size:
        """(rows, columns)."""
        rows, columns = self.matrix.shape  # type: ignore[misc]
        return torch.Size((rows, columns))

    def __getitem__(self, rows: Tensor) -> Inputs:
        if self._copy is not None:
            return self._copy[rows]
        part = self.matrix[rows.cpu().numpy()]
        return self._batch(part.indices, part.data, part.indptr)

    def span(self, first: int, last: int, copies: int) -> Inputs:
        """Return the rows from ``first`` up to ``last``, and then copies of the last of them."""
        if self._copy is not None:
            rows = torch.arange(first, last + copies, device=self.device)
            return self._copy[rows.clamp_max_(last - 1)]
        # Cut out by hand, because indexing by scipy takes longer than predicting a row does.
        offsets = self.matrix.indptr[first : last + 1]
        begin, end = offsets[0], offsets[-1]
        columns, values = self.matrix.indices[begin:end], self.matrix.data[begin:end].copy()
        return self._batch(columns, values, offsets - begin, copies)

    def _batch(
        self, columns: np.ndarray, values: np.ndarray, offsets: np.ndarray, copies: int = 0
    ) -> SparseBatch:
        return SparseBatch(
            torch.from_numpy(columns.astype(np.int64)).to(self.device),
            torch.from_numpy(values).to(self.device),
            torch.from_numpy(offsets.astype(np.int64)).to(self.device),
            self.shape[1],
            copies,
        )

    def parts(self) -> tuple[Tensor, ...]:
        """Return the arrays that make up the matrix."""
        return tuple(
            torch.from_numpy(array)
            for array in (self.matrix.indptr, self.matrix.indices, self.matrix.data)
        )


Inputs = Tensor | SparseBatch | InputBatch
"""What a feature network gets: one batch, dense or sparse, or of inputs of any kind."""

Rows = Tensor | SparseRows | InputRows
"""Rows of inputs or labels: a matrix, a sparse matrix on the host, or inputs of any kind."""


def affine(batch: Tensor | SparseBatch, weight: Tensor, bias: Tensor) -> Tensor:
    """Return x W + b, for weight (columns, outputs), or of k models side by side (k, columns,
    outputs), and a batch that is dense or sparse.

    >>> rows = SparseRows(sparse.csr_array([[0.0, 2.0], [1.0, 0.0]]))
    >>> affine(rows[torch.tensor([0])], torch.eye(2), torch.ones(2))
    tensor([[1., 3.]])
    """
    if isinstance(batch, Tensor) and weight.ndim == 3:
        return linear(batch, weight.mT, bias)
    if isinstance(batch, Tensor):
        return torch.addmm(bias, batch, weight)
    columns = batch.columns
    if weight.ndim == 3:
        # All models' weights one below the other, and every entry picks from its own model's.
        counts = batch.offsets.diff()
        rows = torch.repeat_interleave(counts, output_size=columns.shape[0])
        columns = columns + rows % weight.shape[0] * weight.shape[1]
        bias = in_turns(bias, counts.shape[0])
        weight = weight.flatten(0, 1)
    picked = F.embedding_bag(
        columns,
        weight,
        batch.offsets,
        mode="sum",
        per_sample_weights=batch.values,
        include_last_offset=True,
    )
    return with_copies(picked + bias, batch.copies)


def densify(batch: Any) -> Any:
    """Return a batch with a dense tensor in place of a sparse one."""
    return batch.to_dense() if isinstance(batch, SparseBatch) else batch


def whole_batch(rows: Rows) -> Inputs:
    """Return all rows as one batch."""
    return rows if isinstance(rows, Tensor) else rows.span(0, rows.shape[0], 0)


def filled_batch(rows: Rows, first: int, last: int, tile: int) -> Inputs:
    """Return a batch of rows from ``first`` up to ``last``, filled up as ``filled_rows`` does."""
    if isinstance(rows, Tensor):
        return filled_rows(rows, first, last, tile)
    return rows.span(first, last, (first - last) % tile)


def filled_rows(matrix: Tensor, first: int, last: int, tile: int) -> Tensor:
    """Return the rows from ``first`` up to ``last``, and copies of the last of them, until there
    are a multiple of ``tile``.

    >>> filled_rows(torch.tensor([[0.0], [1.0], [2.0]]), 0, 2, tile=4).ravel()
    tensor([0., 1., 1., 1.])
    """
    return with_copies(matrix[first:last], (first - last) % tile)


def with_copies(matrix: Tensor, copies: int) -> Tensor:
    """Return a matrix with so many copies of its last row after it."""
    return torch.cat([matrix, matrix[-1:].expand(copies, -1)]) if copies else matrix


def row_spans(rows: Rows, at_most: int) -> list[tuple[int, int]]:
    """Split rows into spans of ``at_most``, fewer where rows are very wide.

    >>> row_spans(torch.zeros(10, 3), at_most=4)
    [(0, 4), (4, 8), (8, 10)]
    """
    if not isinstance(at_most, int) or at_most < 1:
        check_whole(at_most, "batch_size")
    count, width = rows.shape
    largest = LARGEST_PASSED_BATCH if isinstance(rows, InputRows) else LARGEST_DENSE_BATCH
    fitting = largest // max(width, 1)
    # Parts of a chunk, so that where chunks are cut does not show.
    step = min(at_most, fitting if fitting >= VECTOR else 16 if fitting >= 16 else 8)
    return [(first, min(first + step, count)) for first in range(0, count, step)]


def row_batches(rows: Rows, at_most: int) -> list[Tensor]:
    """Return the row numbers of each of the ``row_spans``.

    >>> [len(batch) for batch in row_batches(torch.zeros(10, 3), 4)]
    [4, 4, 2]
    """
    device = rows.order_device if isinstance(rows, InputRows) else rows.device
    spans = row_spans(rows, at_most)
    return [torch.arange(first, last, device=device) for first, last in spans]


LARGEST_DENSE_BATCH = 2**25
"""Entries of the largest batch that is made dense at a time: 128 MiB of float32."""
