"""Tables of X and Y: CSV files with a line of column names, and NumPy archives."""

from __future__ import annotations

import csv
import math
import re
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from scipy import sparse

from spen.batch.splits import Split
from spen.data import reader
from spen.data.dataset import Numbered, check_columns, check_dense, check_size
from spen.data.reader import Options, RowReader, Rows, TextFile, TextReader, read_value, shown
from spen.errors import InputError

DELIMITERS = (",", ";", "\t")
_PLAIN_NUMBER = r"[+-]?+(?:[0-9]{1,40}+\.?+[0-9]{0,40}+|\.[0-9]{1,40}+)(?:[eE][+-]?+[0-9]{1,4}+)?+"
MISSING = frozenset({"", "?", "nan", "na", "n/a", "null", "none"})
TRUTH = {"true": "1", "false": "0"}

_ROW_NUMBERS = ("train", "valid", "test")
_SPARSE_PARTS = ("data", "indices", "indptr", "shape")
_NAMES = {"X", "Y", "feature_names", "label_names", *_ROW_NUMBERS}
_NAMES |= {f"{name}_{part}" for name in "XY" for part in _SPARSE_PARTS}
_MADE_OF = {"X": 5, "X_data": 5, "X_indices": 4, "X_indptr": 4}
_MADE_OF |= {"Y_data": 4, "Y_indices": 4, "Y_indptr": 4}
"""Bytes of what is made of a number of each array; dense labels are looked at first."""

_OF_A_NAME = 160
BLOCK = 1 << 20
"""Cells of labels that are looked at together."""
_LAYOUT = (
    "X and Y, or X_data, X_indices, X_indptr, X_shape and the same for Y (the parts of a CSR "
    "matrix); feature_names, label_names, train, valid and test if you like"
)


class WordsError(InputError):
    """A cell of words, or an empty one, where all must hold numbers."""


@dataclass(frozen=True)
class CsvHead:
    """The first line of a CSV file, which names the columns.

    Attributes:
        names: of the columns.
        delimiter: between cells: a comma, a semicolon or a tab, whichever the line has most of.
        encoding: of the file.
        lines: how many lines stand above the rows.
    """

    names: list[str]
    delimiter: str
    encoding: str
    lines: int

    @classmethod
    def of(cls, file: TextFile) -> CsvHead:
        """Read the first line of a file that is not empty."""
        raw = next((raw for raw in file.raw_lines() if raw.strip()), None)
        if raw is None:
            raise reader.fault(file.path, 1, "the file is empty.")
        encoding = reader.encoding_of(raw)
        text = file.decode(raw, encoding)
        head = cls([], max(DELIMITERS, key=text.count), encoding, file.line)
        head.names.extend(name.strip() for name in next(head.rows([text], file), [""]))
        head._check(file)
        return head

    def rows(self, lines: Iterable[str], file: TextFile) -> Iterator[list[str]]:
        """Yield the cells of each row of some lines; a quoted cell may go over several."""
        style: dict[str, Any] = {"skipinitialspace": True, "strict": True}
        try:
            yield from csv.reader(lines, delimiter=self.delimiter, **style)
        except csv.Error as problem:
            what = f"the cells cannot be told apart ({problem}). A quoted cell must have an end."
            raise file.fault(what, kind=WordsError) from None

    def check(self, cells: list[str], file: TextFile) -> None:
        """Raise unless there is a cell for each column."""
        if len(cells) != len(self.names):
            what = f"the row has {len(cells)} cells, but the first line names "
            raise file.fault(f"{what}{len(self.names)} columns.")

    def _check(self, file: TextFile) -> None:
        seen: dict[str, int] = {}
        for i, name in enumerate(self.names, 1):
            if not name:
                what = f"column {i} has no name. A table saved with its row numbers has such a "
                raise file.fault(f"{what}column: save it without them.")
            if seen.setdefault(name, i) < i:
                what = f"columns {seen[name]} and {i} are both called {shown(name)}."
                raise file.fault(what)


class CsvReader(TextReader):
    """The rows of a CSV file of numbers whose first line names the columns.

    All cells must hold numbers, or true and false; a label may be missing (an empty cell, ``?`` or
    ``nan``), a feature may not. ``spen.data.words`` reads other tables.

    Args:
        path: the file.
        options: how to read it. Its labels are the names of the label columns, or how many
            come first (negative: last).
    """

    format = "csv"
    is_dense = True

    def __init__(self, path: Path, options: Options) -> None:
        super().__init__(path)
        self._head = CsvHead.of(self.file)
        self.header_lines, self.encoding = self._head.lines, self._head.encoding
        names = self._head.names
        labels = reader.pick_labels(path, names, "column", options)
        self.lay_out([[name] for name in names], labels)
        cell, sign = _PLAIN_NUMBER, re.escape(self._head.delimiter)
        self._plain = re.compile(rf"{cell}(?:{sign}{cell}){{{len(names) - 1}}}+")

    def parts(self) -> Iterator[Split]:
        """Yield the rows, a block of lines at a time."""
        lines: list[tuple[int, bytes]] = []
        size = 0
        for raw in self.file.raw_lines(self.header_lines):
            lines.append((self.file.line, raw))
            size += len(raw) + 1
            if size >= reader.BLOCK:
                yield self._block(lines)
                lines, size = [], 0
        yield self._block(lines)

    def _block(self, lines: list[tuple[int, bytes]]) -> Split:
        """Return the rows of some lines, all at once if all of their cells are plain numbers."""
        texts = [raw.decode("latin-1") for _, raw in lines]
        if texts and all(map(self._plain.fullmatch, texts)):
            sign = self._head.delimiter
            values = np.array([[*map(float, text.split(sign))] for text in texts])
            is_label = np.isin(np.arange(values.shape[1]), list(self.labels))
            X, Y = values[:, ~is_label], values[:, is_label]
            if np.abs(X).max() <= reader.LARGEST_VALUE and np.isin(Y, (0, 1)).all():
                labels = sparse.csr_matrix(Y.astype(np.int8)) if Y.shape[1] else None
                return Split(X.astype(np.float32), labels)
        rows = Rows()
        for self.file.line, raw in lines:  # where something is wrong, that says where
            self.add_row(rows, self.file.decode(raw, self.encoding))
        return self.split(rows)

    def add_row(self, rows: Rows, text: str) -> None:
        """Add the row of a line that is not empty."""
        if not text.strip():
            return
        cells = next(self._head.rows([text], self.file))
        self._head.check(cells, self.file)
        values = (self._read_cell(i, cell.strip()) for i, cell in enumerate(cells))
        rows.add(dict(zip(self.starts, values, strict=True)))

    def _read_cell(self, i: int, cell: str) -> float:
        is_label, word, kind = i in self.labels, cell.lower(), InputError
        if is_label and word in MISSING:
            return np.nan
        value, why = read_value(TRUTH.get(word, cell))
        if word in MISSING:
            what, kind = "the value is missing. Fill it, or drop the row.", WordsError
        elif why:
            kind = WordsError if np.isnan(value) else InputError
            what = f"{shown(cell)} is {why}."
        elif is_label and value not in (0, 1):
            what = f"a label holds {shown(cell)}; expected 0 or 1."
        else:
            return value
        column = f"column {i + 1} ({shown(self._head.names[i])})"
        raise kind(f"{self.path}, line {self.file.line}, {column}: {what}")


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
        self._arrays, names = _load_arrays(path)
        X, Y = self._take_matrix("X", np.float32), self._take_matrix("Y")
        if X is None or (Y is None and options.labels_required):
            has = ", ".join(shown(name)[1:-1] for name in names[:20]) or "nothing"
            raise InputError(f"{path} holds the arrays {has}; expected {_LAYOUT}.")
        (n_rows, n_features), n_labels = X.shape, 0 if Y is None else Y.shape[1]
        if Y is not None and Y.shape[0] != n_rows:
            raise self._fault(f"X has {n_rows} rows and Y has {Y.shape[0]}.")
        check_columns(path, n_features, n_labels)
        self._check_features(X)
        self._rows = Split(X, None if Y is None else self._read_labels(Y))
        self.feature_names = self._take_names("feature_names", n_features)
        self.feature_names = self.feature_names or Numbered("x", n_features)
        self.label_names = ()
        if Y is not None:
            given = self._take_names("label_names", n_labels)
            self.label_names = given or reader.name_labels(path, options.labels, n_labels)
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

    def _take_matrix(self, name: str, dtype: Any = None) -> Any:
        """Return a matrix of numbers, dense or CSR, as this type; None if it is not there."""
        matrix: Any = self._arrays.pop(name, None)
        if matrix is not None:
            if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
                what = f"{name} must be a matrix of numbers with two dimensions; it has "
                raise self._fault(f"{what}shape {matrix.shape} and type {matrix.dtype}.")
            with np.errstate(over="ignore", invalid="ignore"):
                matrix = matrix.astype(dtype or matrix.dtype, copy=False)
        elif all(f"{name}_{part}" in self._arrays for part in _SPARSE_PARTS):
            matrix = self._take_parts(name, dtype)
        if matrix is not None and not matrix.shape[1]:
            raise self._fault(f"{name} has no columns.")
        return matrix

    def _take_parts(self, name: str, dtype: Any) -> sparse.csr_matrix:
        data, indices, indptr, shape = (self._arrays.pop(f"{name}_{p}") for p in _SPARSE_PARTS)
        are_whole = all(array.dtype.kind in "iu" for array in (indices, indptr, shape))
        if data.dtype.kind not in "biuf" or not are_whole:
            raise self._fault(f"the parts of {name} must hold numbers, all but the data whole.")
        sizes = shape.tolist()
        if shape.shape != (2,) or not all(0 <= size <= reader.LARGEST_COLUMN for size in sizes):
            raise self._fault(f"{name}_shape must be the numbers of rows and columns.")
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                data = data.astype(dtype or data.dtype, copy=False)
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

    def _check_features(self, X: Any) -> None:
        bad = np.isfinite(X.data if sparse.issparse(X) else X)
        np.logical_not(bad, out=bad)
        if bad.any():
            place = np.unravel_index(int(bad.argmax()), bad.shape)
            where = "" if sparse.issparse(X) else " in row {}, column {}".format(*place)
            raise self._fault(f"X must hold finite numbers of single precision{where}.")

    def _read_labels(self, Y: Any) -> Any:
        values = Y.data if sparse.issparse(Y) else Y
        step, are_missing, ones = max(1, BLOCK // max(1, values[:1].size)), False, 0
        for block in (values[i : i + step] for i in range(0, len(values), step)):
            missing, on = np.isnan(block), block == 1
            if not (missing | on | (block == 0)).all():
                raise self._fault("Y must hold only 0 and 1, or nan for a missing label.")
            are_missing, ones = are_missing or bool(missing.any()), ones + int(on.sum())
        if are_missing:
            check_dense(Y.shape[0], Y.shape[1], self.path)
            return (Y.toarray() if sparse.issparse(Y) else Y).astype(np.float32, copy=False)
        if not sparse.issparse(Y):
            check_size(self.path, 5 * ones + 4 * len(Y), "labels")
            return _sparse_of_ones(Y, ones, step)
        Y = sparse.csr_matrix(Y, dtype=np.int8)
        Y.eliminate_zeros()
        return Y

    def _take_names(self, key: str, count: int) -> tuple[str, ...]:
        if key not in self._arrays:
            return ()
        names = self._arrays.pop(key)
        if names.dtype.kind == "U" and names.shape == (count,):
            check_size(self.path, _OF_A_NAME * count + names.nbytes, "names")
            try:
                found = tuple(names.tolist())
                "".join(found).encode()
            except (SystemError, UnicodeError):
                raise self._fault(f"{key} holds what is no text.") from None
            if len(set(found)) == count:
                return found
        raise self._fault(f"{key} must be an array of {count} different names.")


def _sparse_of_ones(Y: np.ndarray, ones: int, step: int) -> sparse.csr_matrix:
    """Return a dense matrix with so many ones in CSR form, some rows at a time.

    scipy would take many times the memory.
    """
    kind = np.int32 if ones < 2**31 else np.int64
    indices, indptr, place = np.empty(ones, kind), np.zeros(len(Y) + 1, kind), 0
    for row in range(0, len(Y), step):
        block = Y[row : row + step]
        columns = np.nonzero(block)[1]
        indices[place : place + len(columns)] = columns
        indptr[row + 1 : row + 1 + len(block)] = np.count_nonzero(block, axis=1)
        place += len(columns)
    np.cumsum(indptr, out=indptr)
    return sparse.csr_matrix((np.ones(ones, np.int8), indices, indptr), shape=Y.shape)


def _load_arrays(path: Path) -> tuple[dict[str, np.ndarray], list[str]]:
    """Return the arrays that are of use, and the names of all that there are."""
    try:
        with reader.open_file(path) as file, zipfile.ZipFile(file) as archive:
            members = {m.filename.removesuffix(".npy"): m for m in archive.infolist()}
            used = {name: member for name, member in members.items() if name in _NAMES}
            size = sum(_size(archive, name, member) for name, member in used.items())
            check_size(path, size, "arrays")
            arrays = {name: _load_array(archive, member) for name, member in used.items()}
            return arrays, sorted(members)
    except (InputError, MemoryError):
        raise
    # Broken archives raise whatever zipfile, zlib and numpy happen to stumble over.
    except Exception as problem:
        raise InputError(
            f"{path} cannot be read as an npz file ({type(problem).__name__}: {problem}). "
            "It may be cut short, or hold objects that numpy would have to unpickle."
        ) from None


def _size(archive: zipfile.ZipFile, name: str, member: zipfile.ZipInfo) -> int:
    """Return the bytes that an array takes as it is and as what is made of it."""
    with archive.open(member) as file:
        # numpy would allocate what the array's head declares before it reads any of it.
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read(file)
        count = math.prod(shape)
        if count * dtype.itemsize != member.file_size - file.tell():
            raise ValueError(f"array {member.filename} does not have the size that it declares")
    return member.file_size + _MADE_OF.get(name, 0) * count


def _load_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(member) as file:
        return npy.read_array(file, allow_pickle=False)
