"""Tables of X and Y: CSV files with a line of column names, and NumPy archives."""

from __future__ import annotations

import csv
import math
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from scipy import sparse

from spen.batch.splits import Split
from spen.data.dataset import check_dense
from spen.data.reader import (
    LARGEST_COLUMN,
    LARGEST_VALUE,
    Labels,
    Numbered,
    RowReader,
    blocks,
    decode,
    encoding_of,
    fault,
    name_labels,
    number,
    numbered_lines,
    open_file,
    pick_labels,
    shown,
)
from spen.errors import InputError

DELIMITERS = (",", ";", "\t")
_MISSING = frozenset({"", "?", "nan", "na", "n/a", "null", "none"})
_TRUTH = {"true": 1.0, "false": 0.0}

_ROW_NUMBERS = ("train", "valid", "test")
_SPARSE_PARTS = ("data", "indices", "indptr", "shape")
_SMALL = 1 << 30
_RATIO = 200
_LAYOUT = (
    "X and Y, or X_data, X_indices, X_indptr, X_shape and the same for Y (the parts of a CSR "
    "matrix); feature_names, label_names, train, valid and test if you like"
)


class CsvReader(RowReader):
    """The rows of a CSV file whose first line names the columns.

    Cells are separated by commas, semicolons or tabs, whichever the first line has most of.
    All must hold numbers, or true and false; a label may be missing (an empty cell, ``?`` or
    ``nan``), a feature may not.

    Args:
        path: the file.
        labels: the names of the label columns, or how many come first (negative: last).
        labels_required: whether a file without labels is a mistake.
    """

    format = "csv"

    def __init__(self, path: Path, labels: Labels, labels_required: bool) -> None:
        self.path = path
        with open_file(path) as file:
            filled = ((i, raw) for i, raw in numbered_lines(path, file) if raw.strip())
            line, raw = next(filled, (1, b""))
            encoding = encoding_of(raw)
            self._start = file.tell(), line + 1, encoding
        if not raw:
            raise fault(path, line, "the file is empty.")
        text = decode(path, line, raw, encoding)
        self._delimiter = max(DELIMITERS, key=text.count)
        self._names = [name.strip() for name in self._cells(text, line)]
        self._check_names(line)
        if labels is None and labels_required:
            few = ", ".join(shown(name) for name in self._names[:8])
            more = f", … ({len(self._names)} in all)" if len(self._names) > 8 else ""
            raise InputError(
                f"{path} does not say which columns are labels. Give labels=: their names, or how "
                f"many come first (negative: last). Its columns: {few}{more}."
            )
        chosen: set[int] = set()
        if labels is not None:
            chosen = pick_labels(path, self._names, "column", labels, labels_required)
        self._is_label = np.isin(np.arange(len(self._names)), list(chosen))
        self.label_names = tuple(self._names[i] for i in sorted(chosen))
        self.feature_names = tuple(n for i, n in enumerate(self._names) if i not in chosen)
        if not self.feature_names:
            raise InputError(f"{path} has only labels and no features.")

    def parts(self) -> Iterator[Split]:
        """Yield the rows block by block."""
        for lines in blocks(self.path, *self._start):
            rows = [self._row(text, line) for line, text in lines if text.strip()]
            table = np.array(rows, np.float64).reshape(-1, len(self._names))
            X, labels = table[:, ~self._is_label].astype(np.float32), table[:, self._is_label]
            if not self.label_names:
                yield Split(X, None)
            elif np.isnan(labels).any():
                yield Split(X, labels.astype(np.float32))
            else:
                yield Split(X, sparse.csr_matrix(labels.astype(np.int8)))

    def _row(self, text: str, line: int) -> list[float]:
        cells = self._cells(text, line)
        if len(cells) != len(self._names):
            what = f"the row has {len(cells)} cells, but the first line names "
            raise fault(self.path, line, f"{what}{len(self._names)} columns.")
        return [self._value(i, cell.strip(), line) for i, cell in enumerate(cells)]

    def _value(self, i: int, cell: str, line: int) -> float:
        value = _TRUTH.get(cell.lower(), number(cell))
        if value is None and cell.lower() in _MISSING:
            if self._is_label[i]:
                return np.nan
            raise self._wrong(i, line, "the value is missing. Fill it, or drop the row.")
        if value is None:
            what = f"{shown(cell)} is not a number. Turn words into numbers first."
            raise self._wrong(i, line, what)
        if abs(value) > LARGEST_VALUE:
            raise self._wrong(i, line, f"{shown(cell)} is too large for single precision.")
        if self._is_label[i] and value not in (0, 1):
            raise self._wrong(i, line, f"a label holds {shown(cell)}; expected 0 or 1.")
        return value

    def _wrong(self, i: int, line: int, what: str) -> InputError:
        return fault(self.path, line, what, column=f"{i + 1} ({shown(self._names[i])})")

    def _cells(self, text: str, line: int) -> list[str]:
        style = {"delimiter": self._delimiter, "skipinitialspace": True, "strict": True}
        try:
            return next(csv.reader([text], **style), [""])
        except csv.Error as problem:
            what = f"the cells cannot be told apart ({problem}). A cell must end on its line."
            raise fault(self.path, line, what) from None

    def _check_names(self, line: int) -> None:
        seen: dict[str, int] = {}
        for i, name in enumerate(self._names, 1):
            if not name:
                what = f"column {i} has no name. A table saved with its row numbers has such a "
                raise fault(self.path, line, f"{what}column: save it without them.")
            if seen.setdefault(name, i) < i:
                what = f"columns {seen[name]} and {i} are both called {shown(name)}."
                raise fault(self.path, line, what)


class NpzReader(RowReader):
    """The rows of an npz file.

    It holds ``X`` (rows, features) and ``Y`` (rows, labels), or for either the parts of a CSR
    matrix: ``X_data``, ``X_indices``, ``X_indptr``, ``X_shape``. It may hold ``feature_names``
    and ``label_names``, and the row numbers ``train``, ``valid``, ``test``. Pickled objects
    are refused.

    Args:
        path: the file.
        labels: names for the labels where the file has none.
        labels_required: whether a file without Y is a mistake.
    """

    format = "npz"

    def __init__(self, path: Path, labels: Labels, labels_required: bool) -> None:
        self.path = path
        self._arrays = _load_arrays(path)
        X, Y = self._matrix("X"), self._matrix("Y")
        if X is None or (Y is None and labels_required):
            has = ", ".join(sorted(self._arrays)) or "nothing"
            raise InputError(f"{path} holds the arrays {has}; expected {_LAYOUT}.")
        for name, matrix in (("X", X), ("Y", Y)):
            if matrix is not None and not matrix.shape[1]:
                raise InputError(f"{path}: {name} has no columns.")
        self._check_finite(X)
        if Y is not None and Y.shape[0] != X.shape[0]:
            raise InputError(f"{path}: X has {X.shape[0]} rows and Y has {Y.shape[0]}.")
        self._rows = Split(X.astype(np.float32), None if Y is None else self._labels(Y))
        n_features = X.shape[1]
        self.feature_names = self._names("feature_names", n_features) or Numbered("x", n_features)
        self.label_names = ()
        if Y is not None:
            names = self._names("label_names", Y.shape[1])
            self.label_names = names or name_labels(path, labels, Y.shape[1])
        self._parts = {
            name: self._row_numbers(name) for name in _ROW_NUMBERS if name in self._arrays
        }
        del self._arrays

    def parts(self) -> Iterator[Split]:
        """Yield all rows; an archive cannot be read in parts."""
        yield self._rows

    def divide(self, total: int) -> dict[str, np.ndarray]:
        """Return the row numbers of the parts that the archive names."""
        if self._parts and "train" not in self._parts:
            raise InputError(f"{self.path} names test rows but no train rows.")
        return self._parts

    def _matrix(self, name: str) -> Any:
        """Return a matrix of numbers, dense or CSR, or None if it is not there."""
        matrix = self._arrays.get(name)
        if matrix is not None and (matrix.ndim != 2 or matrix.dtype.kind not in "biuf"):
            raise InputError(
                f"{self.path}: {name} must be a matrix of numbers with two dimensions; it has "
                f"shape {matrix.shape} and type {matrix.dtype}."
            )
        parts = [self._arrays.get(f"{name}_{part}") for part in _SPARSE_PARTS]
        if matrix is not None or any(part is None for part in parts):
            return matrix
        data, indices, indptr, shape = (np.asarray(part) for part in parts)
        are_whole = all(array.dtype.kind in "iu" for array in (indices, indptr, shape))
        if data.dtype.kind not in "biuf" or not are_whole:
            what = f"the parts of {name} must hold numbers, all but the data whole."
            raise InputError(f"{self.path}: {what}")
        sizes = shape.tolist()
        if shape.shape != (2,) or not all(0 <= size <= LARGEST_COLUMN for size in sizes):
            what = f"{name}_shape must be the numbers of rows and columns."
            raise InputError(f"{self.path}: {what}")
        try:
            matrix = sparse.csr_matrix((data, indices, indptr), shape=tuple(sizes))
            matrix.check_format(full_check=True)
        except (ValueError, OverflowError, IndexError) as problem:
            what = f"the parts of {name} do not make a CSR matrix; {problem}."
            raise InputError(f"{self.path}: {what}") from None
        before = matrix.nnz
        matrix.sum_duplicates()
        if matrix.nnz != before:
            raise InputError(f"{self.path}: some row of {name} has a column twice.")
        return matrix

    def _check_finite(self, X: Any) -> None:
        values = X.data if sparse.issparse(X) else X
        with np.errstate(invalid="ignore"):
            bad = ~(np.abs(values.astype(np.float64, copy=False)) <= LARGEST_VALUE)
        if bad.any():
            row_column = "" if sparse.issparse(X) else " in row {}, column {}"
            where = row_column.format(*np.argwhere(bad)[0])
            raise InputError(f"{self.path}: X must hold finite numbers of single precision{where}.")

    def _labels(self, Y: Any) -> Any:
        values = Y.data if sparse.issparse(Y) else Y
        missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, bool)
        if not (missing | (values == 0) | (values == 1)).all():
            raise InputError(f"{self.path}: Y must hold only 0 and 1, or nan for a missing label.")
        if missing.any():
            check_dense(Y.shape[0], Y.shape[1], self.path)
            return (Y.toarray() if sparse.issparse(Y) else Y).astype(np.float32)
        Y = sparse.csr_matrix(Y, dtype=np.int8)
        Y.eliminate_zeros()
        return Y

    def _names(self, key: str, count: int) -> tuple[str, ...]:
        if key not in self._arrays:
            return ()
        names = self._arrays[key]
        if names.dtype.kind != "U" or names.shape != (count,) or len(set(names.tolist())) != count:
            raise InputError(f"{self.path}: {key} must be an array of {count} different names.")
        return tuple(names.tolist())

    def _row_numbers(self, name: str) -> np.ndarray:
        rows, count = self._arrays[name], len(self._rows)
        fine = rows.ndim == 1 and rows.dtype.kind in "iu" and rows.size
        if not fine or rows.min() < 0 or rows.max() >= count:
            raise InputError(f"{self.path}: {name} must hold row numbers from 0 to {count - 1}.")
        return rows


def _load_arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        with open_file(path) as file, zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            size = path.stat().st_size
            whole = sum(member.file_size for member in members)
            if whole > max(_SMALL, _RATIO * size):
                raise InputError(
                    f"{path} has {size} bytes and would unpack to {whole}. Save it again with "
                    "numpy.savez, without compression."
                )
            return {
                member.filename.removesuffix(".npy"): _load_array(archive, member)
                for member in members
            }
    except InputError:
        raise
    # Broken archives raise whatever zipfile, zlib and numpy happen to stumble over.
    except Exception as problem:
        raise InputError(
            f"{path} cannot be read as an npz file ({type(problem).__name__}: {problem}). "
            "It may be cut short, or hold objects that numpy would have to unpickle."
        ) from None


def _load_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(member) as file:
        # numpy would allocate what the array's head declares before it reads any of it.
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read(file)
        if math.prod(shape) * dtype.itemsize != member.file_size - file.tell():
            raise ValueError(f"array {member.filename} does not have the size that it declares")
        file.seek(0)
        return npy.read_array(file, allow_pickle=False)
