"""Tables with words as DataFrames: CSV files and JSON lines, with labels as columns or as tags."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from spen.batch.arrays import object_array
from spen.batch.splits import Split
from spen.data import reader
from spen.data.dataset import check_dense
from spen.data.reader import Options, RowReader, TextFile, read_value, shown
from spen.data.table import MISSING, TRUTH, CsvHead
from spen.errors import InputError, require

SEPARATORS = (";", "|", ",")


@dataclass(frozen=True)
class Tags:
    """How the cells of one column name all labels of a row.

    A cell that is a list, or JSON of one such as ``["sun", "sea"]``, holds the tags itself. Other
    cells are cut at one sign, the one of ``;``, ``|`` and ``,`` that stands in most different
    cells, or nowhere where none does. Blanks around a tag do not belong to it, and an empty cell
    has no tags.

    Attributes:
        separator: the sign; "" for none.

    >>> tags = Tags.of(["sun; sea", "snow", None, '["sun", "rain, hail"]'])
    >>> tags.separator, tags.read("sun; sea"), tags.read('["sun", "rain, hail"]')
    (';', ['sun', 'sea'], ['sun', 'rain, hail'])
    """

    separator: str

    @classmethod
    def of(cls, cells: Collection[Any]) -> Tags:
        """Choose the separator by the cells of a column."""
        plain = [cell for cell in cells if isinstance(cell, str) and _listed(cell) is None]
        counts = {sign: sum(sign in cell for cell in plain) for sign in SEPARATORS}
        best = max(SEPARATORS, key=lambda sign: counts[sign])
        return cls(best if counts[best] else "")

    def read(self, cell: Any) -> list[str]:
        """Return the tags of a cell."""
        if cell is None:
            return []
        listed = _listed(cell)
        if listed is None:
            text = str(cell)
            listed = text.split(self.separator) if self.separator else [text]
        return [tag for tag in (str(tag).strip() for tag in listed) if tag]


def _listed(cell: Any) -> list[Any] | None:
    """Return the list that a cell is or spells; None where it is none."""
    if isinstance(cell, str) and cell.startswith("[") and cell.endswith("]"):
        try:
            cell = json.loads(cell)
        except (ValueError, RecursionError):
            return None
    return cell if isinstance(cell, list) else None


class WordReader(RowReader):
    """The rows of a table whose cells may be words: X comes as DataFrames.

    Labels are columns of 0 and 1 (a missing one is nan), or one column of ``Tags``, which is what a
    single column is where some cell of it is no number. Tags are known when the file has been read
    once, with the other parts of the same data set.

    Args:
        path: the file.
        options: how to read it.
    """

    def __init__(self, path: Path, options: Options) -> None:
        require("pandas", "tables")
        self.path = path
        columns, found = self._look(options)
        if options.labels is None and len(found) == 1:
            labels = found
        else:
            picked = reader.pick_labels(path, columns, "column", options)
            labels = {columns[i] for i in picked}
        self._labels = [name for name in columns if name in labels]
        self.feature_names = tuple(name for name in columns if name not in labels)
        if not self.feature_names:
            raise InputError(f"{path} has only labels and no features.")
        # Rows to predict need no labels.
        self.label_names, self._tags = tuple(self._labels) if options.labels_required else (), None
        if len(labels) == 1 and options.labels_required:
            self._look_at_tags(options)
        self._places = {name: place for place, name in enumerate(self.label_names)}
        self._known: dict[str, str] = {}

    @abstractmethod
    def records(self, file: TextFile) -> Iterator[dict[str, Any]]:
        """Yield the rows of a file, cells by the names of their columns; None: nothing there."""

    @abstractmethod
    def _look(self, options: Options) -> tuple[list[str], set[str]]:
        """Return the names of all columns, and of those that hold lists."""

    def _look_at_tags(self, options: Options) -> None:
        [column] = self._labels
        if isinstance(options.like, WordReader):
            like = options.like
            self.label_column, self._tags = like.label_column, like._tags
            self.label_names = like.label_names
            return
        cells = set()
        for path in (self.path, *options.also):
            for row in self.records(TextFile(path)):
                cell = row.get(column)
                cells.add(json.dumps(cell) if isinstance(cell, list) else cell)
        if all(cell is None or not np.isnan(_label(cell)) for cell in cells):
            return
        self.label_column, self._tags = column, Tags.of(cells)
        self.label_names = tuple(sorted({tag for cell in cells for tag in self._tags.read(cell)}))
        if not self.label_names:
            raise InputError(f"{self.path} has no tag in any row of its column {column!r}.")

    def parts(self) -> Iterator[Split]:
        """Yield the rows, a block at a time."""
        self.file, rows, size = TextFile(self.path), [], 0
        names = {*self.feature_names, *self._labels}
        for row in self.records(self.file):
            if self._tags is None and self.label_names:
                # Here, where the line is known.
                for name in self._labels:
                    self._read_label(row, name)
            rows.append(row)
            size += sum(len(c) if isinstance(c, str) else 8 for c in row.values()) + len(names)
            if size >= reader.BLOCK:
                yield self._split(rows)
                rows, size = [], 0
        if rows:
            yield self._split(rows)

    def _split(self, rows: list[dict[str, Any]]) -> Split:
        import pandas as pd

        # Most words come again and again, and need to be in memory once.
        known = self._known
        if len(known) > reader.MOST_KNOWN:
            known.clear()
        for row in rows:
            for name, cell in row.items():
                if isinstance(cell, str) and len(cell) <= reader.LONGEST_KNOWN:
                    row[name] = known.setdefault(cell, cell)
        columns = {n: object_array([row.get(n) for row in rows]) for n in self.feature_names}
        return Split(pd.DataFrame(columns, dtype=object), self._matrix(rows))

    def _matrix(self, rows: list[dict[str, Any]]) -> Any:
        shape = len(rows), self.n_labels
        if not self.n_labels:
            return None
        if self._tags is not None:
            [column] = self._labels
            named = (self._tags.read(row.get(column)) for row in rows)
            sets = [{self._places[tag] for tag in tags} for tags in named]
            ends = np.cumsum([0, *map(len, sets)])
            columns = np.array([place for tags in sets for place in sorted(tags)], np.int32)
            return sparse.csr_matrix((np.ones(len(columns), np.int8), columns, ends), shape)
        values = np.array([[self._read_label(row, name) for name in self._labels] for row in rows])
        if np.isnan(values).any():
            check_dense(*shape, self.path)
            return values.astype(np.float32)
        return sparse.csr_matrix(values.astype(np.int8))

    def _read_label(self, row: dict[str, Any], name: str) -> float:
        cell = row.get(name)
        if cell is None:
            return np.nan
        value = _label(cell)
        if value not in (0, 1):
            what = f"column {shown(name)}: a label holds {shown(str(cell))}; expected 0 or 1."
            raise self.file.fault(what)
        return value


class CsvWordReader(WordReader):
    """The rows of a CSV file with words; a quoted cell may go over several lines."""

    format = "csv"

    def _look(self, options: Options) -> tuple[list[str], set[str]]:
        return CsvHead.of(TextFile(self.path)).names, set()

    def records(self, file: TextFile) -> Iterator[dict[str, Any]]:
        head = CsvHead.of(file)
        raw_lines = file.raw_lines(head.lines)
        lines = (file.decode(raw, head.encoding) + "\n" for raw in raw_lines)
        for row in head.rows(lines, file):
            cells = [cell.strip() for cell in row]
            if not any(cells) and len(cells) < len(head.names):
                continue
            head.check(cells, file)
            cells = [None if cell.lower() in MISSING else cell for cell in cells]
            yield dict(zip(head.names, cells, strict=True))


class JsonLinesReader(WordReader):
    """The rows of a file with a JSON object a line; where one column holds lists, it is the labels.

    The file is read once to find out its columns.
    """

    format = "jsonl"

    def _look(self, options: Options) -> tuple[list[str], set[str]]:
        if isinstance(options.like, JsonLinesReader):
            return options.like._found
        columns: dict[str, None] = {}
        lists = set()
        for path in (self.path, *options.also):
            for row in self.records(TextFile(path)):
                columns |= dict.fromkeys(row)
                lists |= {name for name, cell in row.items() if isinstance(cell, list)}
        self._found = list(columns), lists
        return self._found

    def records(self, file: TextFile) -> Iterator[dict[str, Any]]:
        for raw in file.raw_lines():
            text = file.decode(raw, "utf-8")
            if not text.strip():
                continue
            try:
                row = json.loads(text)
            except (ValueError, RecursionError) as problem:
                raise file.fault(f"this is no JSON ({problem}).") from None
            if not isinstance(row, dict):
                raise file.fault(f"expected a JSON object; received {shown(text)}.")
            yield row


def _label(cell: Any) -> float:
    """Return the number of a label's cell, or nan where it is none."""
    return read_value(TRUTH.get(str(cell).lower(), str(cell)))[0]
