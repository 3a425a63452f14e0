"""Rows of ``label,label index:value index:value``: a quick way and a careful one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from spen.batch.splits import Split
from spen.data.digits import LARGEST_COLUMN, LARGEST_VALUE, number, numbers, whole_numbers
from spen.data.entries import Entries
from spen.data.grammar import Grammar, tidy
from spen.data.lines import fault, shown

_TEXT = Grammar(
    b",: \n",
    {
        b"\n,": "token",
        b"\n ": "either",
        b"\n:": "token",
        b"\n\n": "either",
        b",,": "token",
        b", ": "token",
        b",\n": "token",
        b" :": "token",
        b"  ": "nothing",
        b" \n": "nothing",
        b": ": "token",
        b":\n": "token",
    },
)
_COMMA, _COLON, _SPACE, _NEWLINE = range(4)
_WORD = re.compile(r"[^ \t]+")
_DIGITS = re.compile(r"[0-9]{1,10}")


@dataclass(frozen=True)
class TextRows:
    """What the rows of a text hold, with features and labels numbered as in the text."""

    features: Entries
    labels: Entries

    def split(self, n_features: int, n_labels: int, base: int) -> Split:
        """Return the matrices; ``base`` is the number of the first feature."""
        columns = Entries(self.features.starts, self.features.columns - base, self.features.values)
        Y = self.labels.matrix(n_labels, np.int8) if n_labels else None
        return Split(columns.matrix(n_features, np.float32), Y)


@dataclass(frozen=True)
class Bounds:
    """The numbers that features and labels may have: first and last, both included."""

    first_feature: int = 0
    last_feature: int = LARGEST_COLUMN
    last_label: int = LARGEST_COLUMN

    def hold(self, rows: TextRows) -> bool:
        """Return whether all numbers are within the bounds."""
        features, labels = rows.features.columns, rows.labels.columns
        return not (
            (features.size and features.min() < self.first_feature)
            or (features.size and features.max() > self.last_feature)
            or (labels.size and labels.max() > self.last_label)
        )


def read_text(path: Path, line: int, block: bytes, bounds: Bounds) -> TextRows:
    """Return the rows of a block of whole lines.

    An empty line is skipped; a line that is a blank is a row without labels and features.
    """
    rows = read_quickly(block)
    if rows is None or not bounds.hold(rows):
        return read_carefully(path, line, block, bounds)
    return rows


def read_quickly(block: bytes) -> TextRows | None:
    """Return the rows of a block, or None where only the careful way can tell."""
    marks = _TEXT.scan(tidy(block))
    if marks is None:
        return None
    kind, before = marks.kind, np.concatenate(([_NEWLINE], marks.kind[:-1]))
    ends = np.flatnonzero((kind == _NEWLINE) & ((before != _NEWLINE) | (marks.length > 0)))
    colons = np.flatnonzero(kind == _COLON)
    # A label follows the start of the line or a comma; what follows a colon is a value.
    starts_line_or_comma = (before == _NEWLINE) | (before == _COMMA)
    names = np.flatnonzero(starts_line_or_comma & (marks.length > 0) & (kind != _COLON))
    columns = whole_numbers(*marks.tokens(colons))
    values = numbers(*marks.tokens(colons + 1))
    labels = whole_numbers(*marks.tokens(names))
    if columns is None or values is None or labels is None:
        return None
    features = Entries(_starts(colons, ends), columns, values).in_order()
    ones = np.ones(len(labels))
    named = Entries(_starts(names, ends), labels, ones).in_order()
    return None if features is None or named is None else TextRows(features, named)


def _starts(entries: np.ndarray, ends: np.ndarray) -> np.ndarray:
    return np.concatenate(([0], np.searchsorted(entries, ends, side="right")))


def read_carefully(path: Path, first_line: int, block: bytes, bounds: Bounds) -> TextRows:
    """Return the rows of a block, or say what is wrong with them."""
    columns: list[int] = []
    values: list[float] = []
    labels: list[int] = []
    feature_starts, label_starts = [0], [0]
    for line, raw in enumerate(block.split(b"\n")[:-1], first_line):
        text = raw.decode("latin-1").rstrip("\r")
        content, comment, _ = text.partition("#")
        if not content or (comment and not content.strip(" \t")):
            continue
        words = list(_WORD.finditer(content))
        if words and words[0].start() == 0 and ":" not in words[0][0]:
            labels += _labels(path, line, words.pop(0)[0], bounds)
        row: dict[int, float] = {}
        for word in words:
            column, value = _pair(path, line, word, bounds)
            if column in row:
                what = f"feature {column} stands twice in this row."
                raise fault(path, line, what, character=word.start() + 1)
            row[column] = value
        columns += row.keys()
        values += row.values()
        feature_starts.append(len(columns))
        label_starts.append(len(labels))
    return TextRows(_ordered(feature_starts, columns, values), _ordered(label_starts, labels, None))


def _ordered(starts: list[int], columns: list[int], values: list[float] | None) -> Entries:
    numbers_ = np.ones(len(columns)) if values is None else np.array(values, np.float64)
    rows = Entries(np.array(starts), np.array(columns, np.int64), numbers_).in_order()
    assert rows is not None, "a number that stands twice was refused before"
    return rows


def _labels(path: Path, line: int, text: str, bounds: Bounds) -> list[int]:
    found: dict[int, None] = {}
    at = 1
    for name in text.split(","):
        if not _DIGITS.fullmatch(name):
            what = f"expected label numbers as in 3,17; received {shown(name)}. "
            what += "A row without labels starts with a blank."
            raise fault(path, line, what, character=at)
        label = int(name)
        if label > bounds.last_label:
            what = f"label {label} is out of range; labels go from 0 to {bounds.last_label}."
            raise fault(path, line, what, character=at)
        if label in found:
            raise fault(path, line, f"label {label} stands twice in this row.", character=at)
        found[label] = None
        at += len(name) + 1
    return list(found)


def _pair(path: Path, line: int, word: re.Match[str], bounds: Bounds) -> tuple[int, float]:
    at = word.start() + 1
    index, colon, text = word[0].partition(":")
    if not colon or not _DIGITS.fullmatch(index):
        what = f"expected INDEX:VALUE; received {shown(word[0])}."
        raise fault(path, line, what, character=at)
    column = int(index)
    if not bounds.first_feature <= column <= bounds.last_feature:
        what = f"feature {column} is out of range; features go from {bounds.first_feature} to "
        raise fault(path, line, f"{what}{bounds.last_feature}.", character=at)
    value = number(text)
    if value is None or abs(value) > LARGEST_VALUE:
        why = "not a number" if value is None else "too large for single precision"
        what = f"feature {column} holds {shown(text)}, which is {why}."
        raise fault(path, line, what, character=at + len(index) + 1)
    return column, value
