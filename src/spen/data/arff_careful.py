"""The rows of an ARFF file, line by line: every way to write them, and what is wrong."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from spen.batch.splits import Split
from spen.data.arff_columns import Columns
from spen.data.arff_header import QUOTED, unquote
from spen.data.digits import LARGEST_VALUE, number
from spen.data.entries import Entries
from spen.data.lines import decode, fault, shown

MOST_ENTRIES = 1 << 24
"""Entries that a block may have. Only what sparse rows leave out can stand for more."""

_TOKEN = re.compile(rf"(?P<quoted>{QUOTED})|(?P<plain>[^\s,{{}}'\"%][^\s,{{}}]*)")
_INDEX = re.compile(r"[0-9]{1,10}(?![0-9])")
_WORD = re.compile(r"[^\s,{}]*")
_REST = re.compile(r"[ \t]*+(?:,?[ \t]*+\{(?P<weight>[^{}]*)\}[ \t]*+)?(?:%.*)?", re.DOTALL)

Fields = dict[int, re.Match[str]]


@dataclass
class _Rows:
    """The entries of rows as they come in, one row after the other."""

    columns: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    starts: list[int] = field(default_factory=lambda: [0])

    def add(self, column: int, value: float) -> None:
        self.columns.append(column)
        self.values.append(value)

    def entries(self) -> Entries:
        columns, values = np.array(self.columns, np.int64), np.array(self.values, np.float64)
        rows = Entries(np.array(self.starts), columns, values).in_order()
        assert rows is not None, "no row has an attribute twice, so none has a column twice"
        return rows


class CarefulRows:
    """Reads rows of any kind and says what is wrong with them.

    Args:
        path: the file, for errors.
        columns: what the attributes become.
        encoding: of the file.
        is_sparse: whether its rows are written as ``{index value, …}``.
    """

    def __init__(self, path: Path, columns: Columns, encoding: str, is_sparse: bool) -> None:
        self._path = path
        self._columns = columns
        self._encoding = encoding
        self._is_sparse = is_sparse
        self._count = len(columns.is_label)

    def read(self, block: bytes, first_line: int) -> Split:
        """Return the rows of a block of whole lines."""
        X, Y = _Rows(), _Rows()
        weights: list[float] = []
        for line, raw in enumerate(block.split(b"\n")[:-1], first_line):
            text = decode(self._path, line, raw, self._encoding).rstrip("\r")
            if is_comment(text):
                continue
            weights.append(self._read_row(text, line, X, Y))
            X.starts.append(len(X.columns))
            Y.starts.append(len(Y.columns))
            if len(X.columns) + len(Y.columns) > MOST_ENTRIES:
                what = "what these sparse rows leave out stands for too many values to hold."
                raise fault(self._path, line, f"{what} List each attribute's usual value first.")
        features = X.entries().matrix(len(self._columns.feature_names), np.float32)
        n_labels = len(self._columns.label_names)
        weight = np.array(weights, np.float32)
        return Split(
            features if self._is_sparse or not self._columns.dense else features.toarray(),
            Y.entries().labels(n_labels, self._path) if n_labels else None,
            None if (weight == 1).all() else weight,
        )

    def _read_row(self, text: str, line: int, X: _Rows, Y: _Rows) -> float:
        """Add a row's entries and return its weight."""
        start = _skip(text, 0)
        if (text[start] == "{") != self._is_sparse:
            this, first = ("dense", "sparse") if self._is_sparse else ("sparse", "dense")
            what = f"a {this} row in a file whose first row is {first}. Write all rows alike."
            raise fault(self._path, line, what, character=start + 1)
        find = self._sparse_fields if self._is_sparse else self._dense_fields
        fields, end = find(text, line, start)
        columns = self._columns
        for attribute, token in fields.items():
            column, value = columns.entry(
                attribute, unquote(token), line, token.start() + 1, token["quoted"] is None
            )
            if value:
                (Y if columns.is_label[attribute] else X).add(column, value)
        if self._is_sparse:
            for attribute, (column, value) in columns.omitted.items():
                if attribute not in fields:
                    (Y if columns.is_label[attribute] else X).add(column, value)
        return self._weight(text, line, end)

    def _sparse_fields(self, text: str, line: int, start: int) -> tuple[Fields, int]:
        """Return the fields of ``{index value, …}`` by attribute, and where the row ends."""
        fields: Fields = {}
        at = _skip(text, start + 1)
        if text[at : at + 1] == "}":
            return fields, at + 1
        while True:
            attribute = self._attribute(text, line, at)
            after = _WORD.match(text, at).end()  # type: ignore[union-attr]
            if attribute in fields:
                what = f"attribute number {attribute} stands twice in this row."
                raise fault(self._path, line, what, character=at + 1)
            at = _skip(text, after)
            token = _TOKEN.match(text, at)
            if token is None:
                what = f"expected a value for attribute number {attribute}."
                raise fault(self._path, line, what, character=at + 1)
            fields[attribute] = token
            at = _skip(text, token.end())
            if text[at : at + 1] == "}":
                return fields, at + 1
            if text[at : at + 1] != ",":
                cut = " The file may be cut short." if at == len(text) else ""
                what = f"expected a comma or }} after a value.{cut}"
                raise fault(self._path, line, what, character=at + 1)
            at = _skip(text, at + 1)

    def _attribute(self, text: str, line: int, at: int) -> int:
        word = _WORD.match(text, at)[0]  # type: ignore[index]
        if not _INDEX.fullmatch(word):
            what = f"expected the number of an attribute, counted from 0; received {shown(word)}."
            raise fault(self._path, line, what, character=at + 1)
        if int(word) >= self._count:
            what = f"attribute number {word} is out of range: the file declares {self._count}, "
            what += f"which count from 0 to {self._count - 1}."
            raise fault(self._path, line, what, character=at + 1)
        return int(word)

    def _dense_fields(self, text: str, line: int, at: int) -> tuple[Fields, int]:
        """Return the fields of ``value, value, …`` by attribute, and where the row ends."""
        fields: Fields = {}
        for attribute in range(self._count):
            token = _TOKEN.match(text, at)
            if token is None:
                if text[at : at + 1] in ("", "{", "%"):
                    what = f"the row has {attribute} values, but the file declares {self._count} "
                    what += "attributes. The row may be cut short."
                else:
                    what = f"expected a value; received {shown(text[at:])}."
                raise fault(self._path, line, what, character=at + 1)
            fields[attribute] = token
            end = token.end()
            at = _skip(text, end)
            if text[at : at + 1] == "," and attribute + 1 < self._count:
                at = _skip(text, at + 1)
            elif at == end < len(text) and text[at] not in ",{":
                what = f"expected a comma after a value; received {shown(text[at:])}."
                raise fault(self._path, line, what, character=at + 1)
        return fields, at

    def _weight(self, text: str, line: int, end: int) -> float:
        rest = _REST.fullmatch(text, end)
        if rest is None:
            what = f"the row goes on after its last value with {shown(text[end:])}; the file "
            what += f"declares {self._count} attributes."
            raise fault(self._path, line, what, character=end + 1)
        if rest["weight"] is None:
            return 1.0
        weight = number(rest["weight"].strip())
        if weight is None or not 0 <= weight <= LARGEST_VALUE:
            what = f"a row's weight must be zero or more; received {shown(rest['weight'])}."
            raise fault(self._path, line, what, character=rest.start("weight") + 1)
        return weight


def is_comment(text: str) -> bool:
    """Return whether a line has nothing but blanks and perhaps a comment."""
    return text.lstrip(" \t")[:1] in ("", "%")


def _skip(text: str, at: int) -> int:
    """Return where the blanks end."""
    while at < len(text) and text[at] in " \t":
        at += 1
    return at
