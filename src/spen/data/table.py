"""Tables of numbers with a line of column names: CSV files."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy import sparse

from spen.batch.splits import Split
from spen.data.digits import LARGEST_VALUE, number
from spen.data.grammar import number_table
from spen.data.labels import LabelChoice, Labels, pick
from spen.data.lines import blocks, decode, encoding_of, fault, numbered_lines, open_file, shown
from spen.data.reader import RowReader
from spen.errors import InputError

DELIMITERS = (",", ";", "\t")
_MISSING = frozenset({"", "?", "nan", "na", "n/a", "null", "none"})
_TRUTH = {"true": 1.0, "false": 0.0}


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
        self._line, raw, self._offset = _header(path)
        self._encoding = encoding_of(raw)
        text = decode(path, self._line, raw, self._encoding)
        self._delimiter = max(DELIMITERS, key=text.count)
        self._names = self._cells(text, self._line)
        self._check_names()
        if labels is None and labels_required:
            raise InputError(
                f"{path} does not say which columns are labels. Give labels=: their names, or how "
                f"many come first (negative: last). Its columns: {_few(self._names)}."
            )
        choice = LabelChoice(path, self._names, "column", labels_required)
        chosen = set() if labels is None else pick(choice, labels)
        self._is_label = np.array([i in chosen for i in range(len(self._names))])
        self.label_names = tuple(self._names[i] for i in sorted(chosen))
        self.feature_names = tuple(n for i, n in enumerate(self._names) if i not in chosen)
        if not self.feature_names:
            raise InputError(f"{path} has only labels and no features.")

    def parts(self) -> Iterator[Split]:
        """Yield the rows block by block."""
        delimiter = self._delimiter.encode()
        for line, block in blocks(self.path, self._offset, self._line + 1):
            table = number_table(block, delimiter, len(self._names))
            if table is not None:
                labels = table[:, self._is_label]
                table = None if ((labels != 0) & (labels != 1)).any() else table
            yield self._split(self._read_carefully(line, block) if table is None else table)

    def _split(self, table: np.ndarray) -> Split:
        X = table[:, ~self._is_label].astype(np.float32)
        if not self.label_names:
            return Split(X, None)
        labels = table[:, self._is_label]
        if np.isnan(labels).any():
            return Split(X, labels.astype(np.float32))
        return Split(X, sparse.csr_matrix(labels.astype(np.int8)))

    def _read_carefully(self, first_line: int, block: bytes) -> np.ndarray:
        rows: list[list[float]] = []
        for line, raw in enumerate(block.split(b"\n")[:-1], first_line):
            text = decode(self.path, line, raw, self._encoding).rstrip("\r")
            if not text.strip():
                continue
            cells = self._cells(text, line)
            if len(cells) != len(self._names):
                what = f"the row has {len(cells)} cells, but the first line names "
                what += f"{len(self._names)} columns."
                raise fault(self.path, line, what)
            rows.append([self._value(i, cell.strip(), line) for i, cell in enumerate(cells)])
        return np.array(rows, np.float64).reshape(-1, len(self._names))

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
        try:
            rows = list(
                csv.reader([text], delimiter=self._delimiter, skipinitialspace=True, strict=True)
            )
        except csv.Error as problem:
            what = f"the cells cannot be told apart ({problem}). A cell must end on its line."
            raise fault(self.path, line, what) from None
        return rows[0] if rows else [""]

    def _check_names(self) -> None:
        self._names = [name.strip() for name in self._names]
        seen: dict[str, int] = {}
        for i, name in enumerate(self._names, 1):
            if not name:
                what = f"column {i} has no name. A table saved with its row numbers has such a "
                what += "column: save it without them."
                raise fault(self.path, self._line, what)
            if name in seen:
                what = f"columns {seen[name]} and {i} are both called {shown(name)}."
                raise fault(self.path, self._line, what)
            seen[name] = i


def _header(path: Path) -> tuple[int, bytes, int]:
    """Return the first line that is not blank: its number, itself and where it ends."""
    with open_file(path) as file:
        for line, raw in numbered_lines(path, file):
            if raw.strip():
                return line, raw, file.tell()
    raise fault(path, 1, "the file is empty.")


def _few(names: list[str]) -> str:
    listed = ", ".join(shown(name) for name in names[:8])
    return listed if len(names) <= 8 else f"{listed}, … ({len(names)} in all)"
