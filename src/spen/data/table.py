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
from spen.data import reader
from spen.data.dataset import Numbered, check_dense
from spen.data.reader import Options, RowReader, Rows, TextReader, read_value, shown
from spen.errors import InputError

DELIMITERS = (",", ";", "\t")
_MISSING = frozenset({"", "?", "nan", "na", "n/a", "null", "none"})
_TRUTH = {"true": "1", "false": "0"}

_ROW_NUMBERS = ("train", "valid", "test")
_SPARSE_PARTS = ("data", "indices", "indptr", "shape")
_SMALL = 1 << 30
_RATIO = 200
_LAYOUT = (
    "X and Y, or X_data, X_indices, X_indptr, X_shape and the same for Y (the parts of a CSR "
    "matrix); feature_names, label_names, train, valid and test if you like"
)


class CsvReader(TextReader):
    """The rows of a CSV file whose first line names the columns.

    Cells are separated by commas, semicolons or tabs, whichever the first line has most of.
    All must hold numbers, or true and false; a label may be missing (an empty cell, ``?`` or
    ``nan``), a feature may not.

    Args:
        path: the file.
        options: how to read it. Its labels are the names of the label columns, or how many
            come first (negative: last).
    """

    format = "csv"
    is_dense = True

    def __init__(self, path: Path, options: Options) -> None:
        super().__init__(path)
        raw = next((raw for raw in self.file.raw_lines() if raw.strip()), None)
        if raw is None:
            raise reader.fault(path, 1, "the file is empty.")
        self.header_lines, self.encoding = self.file.line, reader.encoding_of(raw)
        text = self.file.decode(raw, self.encoding)
        self._delimiter = max(DELIMITERS, key=text.count)
        self._names = [name.strip() for name in self._cells(text)]
        self._check_names()
        labels: set[int] = set()
        if options.labels is not None:
            labels = reader.pick_labels(path, self._names, "column", options)
        elif options.labels_required:
            few = ", ".join(shown(name) for name in self._names[:8])
            more = f", … ({len(self._names)} in all)" if len(self._names) > 8 else ""
            raise InputError(
                f"{path} does not say which columns are labels. Give labels=: their names, or how "
                f"many come first (negative: last). Its columns: {few}{more}."
            )
        self.lay_out([[name] for name in self._names], labels)

    def add_row(self, rows: Rows, text: str) -> None:
        """Add the row of a line that is not empty."""
        if not text.strip():
            return
        cells = self._cells(text)
        if len(cells) != len(self._names):
            what = f"the row has {len(cells)} cells, but the first line names "
            raise self.file.fault(f"{what}{len(self._names)} columns.")
        values = (self._read_cell(i, cell.strip()) for i, cell in enumerate(cells))
        rows.add(dict(zip(self.starts, values, strict=True)))

    def _read_cell(self, i: int, cell: str) -> float:
        is_label, word = i in self.labels, cell.lower()
        if is_label and word in _MISSING:
            return np.nan
        value, why = read_value(_TRUTH.get(word, cell))
        if word in _MISSING:
            what = "the value is missing. Fill it, or drop the row."
        elif why:
            advice = " Turn words into numbers first." if np.isnan(value) else ""
            what = f"{shown(cell)} is {why}.{advice}"
        elif is_label and value not in (0, 1):
            what = f"a label holds {shown(cell)}; expected 0 or 1."
        else:
            return value
        column = f"column {i + 1} ({shown(self._names[i])})"
        raise InputError(f"{self.path}, line {self.file.line}, {column}: {what}")

    def _cells(self, text: str) -> list[str]:
        style = {"delimiter": self._delimiter, "skipinitialspace": True, "strict": True}
        try:
            return next(csv.reader([text], **style), [""])
        except csv.Error as problem:
            what = f"the cells cannot be told apart ({problem}). A cell must end on its line."
            raise self.file.fault(what) from None

    def _check_names(self) -> None:
        seen: dict[str, int] = {}
        for i, name in enumerate(self._names, 1):
            if not name:
                what = f"column {i} has no name. A table saved with its row numbers has such a "
                raise self.file.fault(f"{what}column: save it without them.")
            if seen.setdefault(name, i) < i:
                what = f"columns {seen[name]} and {i} are both called {shown(name)}."
                raise self.file.fault(what)


class NpzReader(RowReader):
    """The rows of an npz file.

    It holds ``X`` (rows, features) and ``Y`` (rows, labels), or for either the parts of a CSR
    matrix: ``X_data``, ``X_indices``, ``X_indptr``, ``X_shape``. It may hold ``feature_names``
    and ``label_names``, and the row numbers ``train``, ``valid``, ``test``. Pickled objects
    are refused.

    Args:
        path: the file.
        options: how to read it. Its labels are names for those of a file that has none.
    """

    format = "npz"

    def __init__(self, path: Path, options: Options) -> None:
        self.path = path
        self._arrays = _load_arrays(path)
        X, Y = self._find_matrix("X"), self._find_matrix("Y")
        if X is None or (Y is None and options.labels_required):
            has = ", ".join(sorted(self._arrays)) or "nothing"
            raise InputError(f"{path} holds the arrays {has}; expected {_LAYOUT}.")
        if Y is not None and Y.shape[0] != X.shape[0]:
            raise self._fault(f"X has {X.shape[0]} rows and Y has {Y.shape[0]}.")
        self._rows = Split(self._read_features(X), None if Y is None else self._read_labels(Y))
        n_rows, n_features = X.shape
        self.feature_names = self._find_names("feature_names", n_features)
        self.feature_names = self.feature_names or Numbered("x", n_features)
        self.label_names = ()
        if Y is not None:
            names = self._find_names("label_names", Y.shape[1])
            self.label_names = names or reader.name_labels(path, options.labels, Y.shape[1])
        self._parts = {part: self._arrays[part] for part in _ROW_NUMBERS if part in self._arrays}
        for part, rows in self._parts.items():
            is_fine = rows.ndim == 1 and rows.dtype.kind in "iu" and rows.size
            if not is_fine or rows.min() < 0 or rows.max() >= n_rows:
                raise self._fault(f"{part} must hold row numbers from 0 to {n_rows - 1}.")
        del self._arrays

    def parts(self) -> Iterator[Split]:
        """Yield all rows; an archive cannot be read in parts."""
        yield self._rows

    def divide(self, total: int) -> dict[str, np.ndarray]:
        """Return the row numbers of the parts that the archive names."""
        if self._parts and "train" not in self._parts:
            raise InputError(f"{self.path} names test rows but no train rows.")
        return self._parts

    def _fault(self, what: str) -> InputError:
        return InputError(f"{self.path}: {what}")

    def _find_matrix(self, name: str) -> Any:
        """Return a matrix of numbers, dense or CSR, or None if it is not there."""
        matrix: Any = self._arrays.get(name)
        if matrix is not None and (matrix.ndim != 2 or matrix.dtype.kind not in "biuf"):
            what = f"{name} must be a matrix of numbers with two dimensions; it has "
            raise self._fault(f"{what}shape {matrix.shape} and type {matrix.dtype}.")
        if matrix is None and all(f"{name}_{part}" in self._arrays for part in _SPARSE_PARTS):
            matrix = self._build_matrix(name)
        if matrix is not None and not matrix.shape[1]:
            raise self._fault(f"{name} has no columns.")
        return matrix

    def _build_matrix(self, name: str) -> sparse.csr_matrix:
        data, indices, indptr, shape = (self._arrays[f"{name}_{part}"] for part in _SPARSE_PARTS)
        are_whole = all(array.dtype.kind in "iu" for array in (indices, indptr, shape))
        if data.dtype.kind not in "biuf" or not are_whole:
            raise self._fault(f"the parts of {name} must hold numbers, all but the data whole.")
        sizes = shape.tolist()
        if shape.shape != (2,) or not all(0 <= size <= reader.LARGEST_COLUMN for size in sizes):
            raise self._fault(f"{name}_shape must be the numbers of rows and columns.")
        try:
            matrix = sparse.csr_matrix((data, indices, indptr), shape=tuple(sizes))
            matrix.check_format(full_check=True)
        except (ValueError, OverflowError, IndexError) as problem:
            what = f"the parts of {name} do not make a CSR matrix; {problem}."
            raise self._fault(what) from None
        before = matrix.nnz
        matrix.sum_duplicates()
        if matrix.nnz != before:
            raise self._fault(f"some row of {name} has a column twice.")
        return matrix

    def _read_features(self, X: Any) -> Any:
        with np.errstate(over="ignore", invalid="ignore"):
            X = X.astype(np.float32)
        bad = np.argwhere(~np.isfinite(X.data if sparse.issparse(X) else X))
        if len(bad):
            where = "" if sparse.issparse(X) else " in row {}, column {}".format(*bad[0])
            raise self._fault(f"X must hold finite numbers of single precision{where}.")
        return X

    def _read_labels(self, Y: Any) -> Any:
        values = Y.data if sparse.issparse(Y) else Y
        missing = np.isnan(values)
        if not (missing | (values == 0) | (values == 1)).all():
            raise self._fault("Y must hold only 0 and 1, or nan for a missing label.")
        if missing.any():
            check_dense(Y.shape[0], Y.shape[1], self.path)
            return (Y.toarray() if sparse.issparse(Y) else Y).astype(np.float32)
        Y = sparse.csr_matrix(Y, dtype=np.int8)
        Y.eliminate_zeros()
        return Y

    def _find_names(self, key: str, count: int) -> tuple[str, ...]:
        if key not in self._arrays:
            return ()
        names = self._arrays[key]
        if names.dtype.kind != "U" or names.shape != (count,) or len(set(names.tolist())) != count:
            raise self._fault(f"{key} must be an array of {count} different names.")
        return tuple(names.tolist())


def _load_arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        with reader.open_file(path) as file, zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            size = path.stat().st_size
            whole = sum(member.file_size for member in members)
            if whole > max(_SMALL, _RATIO * size):
                raise InputError(
                    f"{path} has {size} bytes and would unpack to {whole}. Save it again with "
                    "numpy.savez, without compression."
                )
            names = [member.filename.removesuffix(".npy") for member in members]
            return {n: _load_array(archive, m) for n, m in zip(names, members, strict=True)}
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
