"""Text files of sparse rows: the extreme-classification format and LIBSVM's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from spen.batch.splits import Split
from spen.data.reader import (
    LARGEST_COLUMN,
    LARGEST_VALUE,
    Labels,
    LineError,
    Numbered,
    RowBuilder,
    RowReader,
    blocks,
    fault,
    name_labels,
    number,
    numbered_lines,
    open_file,
    read_row,
    shown,
)
from spen.errors import InputError

SIZES = re.compile(r"[ \t]*([0-9]+)[ \t]+([0-9]+)[ \t]+([0-9]+)[ \t]*")
"""The first line of the extreme-classification format: rows, features, labels."""

_MOST = LARGEST_COLUMN + 1
_WORD = re.compile(r"[^ \t]+")
_DIGITS = re.compile(r"[0-9]{1,10}")


class SparseTextReader(RowReader):
    """Rows of ``label,label index:value index:value``, one a line, whatever stands above them.

    An empty line is skipped; a line that is a blank is a row without labels and features.
    What follows a ``#`` is a comment.
    """

    # The number of the first feature, and how many features and labels there are at most.
    _first = 0
    _sizes = _MOST, _MOST

    def _read(self, path: Path, offset: int = 0, line: int = 1) -> Iterator[RowBuilder]:
        """Yield the rows block by block; each is to be taken before the next is asked for."""
        rows = RowBuilder(path, *self._sizes)
        self._known_labels: dict[str, tuple[int, float]] = {}
        self._known_pairs: dict[str, tuple[int, float]] = {}
        for lines in blocks(path, offset, line):
            for i, text in lines:
                content, comment, _ = text.partition("#")
                if not content or (comment and not content.strip(" \t")):
                    continue
                try:
                    rows.add(self._row(content))
                except LineError as problem:
                    raise problem.at(path, i) from None
            yield rows

    def _row(self, text: str) -> dict[int, float]:
        words = _WORD.findall(text)
        names = []
        if words and text[0] not in " \t" and ":" not in words[0]:
            names = words.pop(0).split(",")

        def label_place(n: int) -> int:
            return sum(len(name) + 1 for name in names[:n])

        def word_place(n: int) -> int:
            return next(islice(_WORD.finditer(text), n + bool(names), None)).start()

        labels = read_row(names, self._known_labels, self._label, label_place, "label")
        return labels | read_row(words, self._known_pairs, self._pair, word_place, "feature")

    def _label(self, name: str) -> tuple[int, float]:
        if not _DIGITS.fullmatch(name):
            what = f"expected label numbers as in 3,17; received {shown(name)}. "
            raise LineError(f"{what}A row without labels starts with a blank.")
        label, (n_features, n_labels) = int(name), self._sizes
        if label >= n_labels:
            raise LineError(f"label {label} is out of range; labels go from 0 to {n_labels - 1}.")
        return n_features + label, 1.0

    def _pair(self, word: str) -> tuple[int, float]:
        index, colon, text = word.partition(":")
        if not colon or not _DIGITS.fullmatch(index):
            raise LineError(f"expected INDEX:VALUE; received {shown(word)}.")
        column, first, last = int(index), self._first, self._sizes[0] - 1 + self._first
        if not first <= column <= last:
            what = f"feature {column} is out of range; features go from {first} to {last}."
            raise LineError(what)
        value = number(text)
        if value is None or abs(value) > LARGEST_VALUE:
            why = "not a number" if value is None else "too large for single precision"
            what = f"feature {column} holds {shown(text)}, which is {why}."
            raise LineError(what, offset=len(index) + 1)
        return column - first, value


class XmcReader(SparseTextReader):
    """The extreme-classification format: ``rows features labels``, then a row a line.

    A row is ``label,label index:value index:value``; labels and features count from 0, and a
    row without labels starts with a blank.

    Args:
        path: the file.
        labels: names for the labels; None: label0, label1, ….
        labels_required: whether a file that declares no labels is a mistake.
    """

    format = "xmc"

    def __init__(self, path: Path, labels: Labels, labels_required: bool) -> None:
        self.path = path
        with open_file(path) as file:
            line, raw = next(numbered_lines(path, file), (1, b""))
            self._start = file.tell(), line + 1
        text = raw.decode("latin-1")
        sizes = SIZES.fullmatch(text)
        if sizes is None:
            what = "expected the numbers of rows, features and labels, as in 12920 500 983; "
            raise fault(path, line, f"{what}received {shown(text)}.")
        for size in sizes.groups():
            # A number of very many digits would take long to read.
            if len(size) > 10 or int(size) > _MOST:
                what = f"a size of {shown(size)[1:-1]} is too large; at most {_MOST} rows, "
                raise fault(path, line, f"{what}features and labels can be read.")
        self._rows, n_features, n_labels = map(int, sizes.groups())
        if not n_features:
            raise fault(path, line, "the file declares no features.")
        if not n_labels and labels_required:
            raise fault(path, line, "the file declares no labels.")
        self.feature_names = Numbered("x", n_features)
        self.label_names = name_labels(path, labels if n_labels else None, n_labels)
        self._sizes = n_features, n_labels

    def parts(self) -> Iterator[Split]:
        """Yield the rows block by block; their number is checked at the end."""
        rows = 0
        for block in self._read(self.path, *self._start):
            part = block.take()
            rows += len(part)
            yield part
        if rows != self._rows:
            what = f"the first line declares {self._rows} rows, but the file has {rows}."
            raise fault(self.path, 1, f"{what} It may be cut short.")


class LibsvmReader(SparseTextReader):
    """LIBSVM's multi-label format: ``label,label index:value index:value`` a line.

    Labels count from 0. Features count from 1, or from 0 if ``zero_based``, which by itself
    is whether some row has a feature 0. The file is read once to find out its sizes.

    Args:
        path: the file.
        labels: names for the labels; None: label0, label1, ….
        n_features, n_labels: the sizes; None: as large as the largest numbers ask for.
        zero_based: whether features count from 0; None: see above.
        labels_required: whether a file without any label is a mistake.
        also: other files that share sizes and counting with this one.
    """

    format = "libsvm"

    def __init__(
        self,
        path: Path,
        labels: Labels,
        n_features: int | None,
        n_labels: int | None,
        zero_based: bool | None,
        labels_required: bool,
        also: Sequence[Path] = (),
    ) -> None:
        self.path = path
        first, last, last_label = LARGEST_COLUMN, -1, -1
        for rows in (rows for file in (path, *also) for rows in self._read(file)):
            columns = np.array(rows.columns, np.int64)
            features, numbers = columns[columns < _MOST], columns[columns >= _MOST] - _MOST
            first, last = int(features.min(initial=first)), int(features.max(initial=last))
            last_label = int(numbers.max(initial=last_label))
            rows.take()
        base = int(first > 0) if zero_based is None else int(not zero_based)
        # Named as the file counts, so that two files that count differently can be told apart.
        self.feature_names = Numbered("x", n_features or max(last - base + 1, 1), start=base)
        if last_label < 0 and not labels_required:
            self.label_names = ()
        elif last_label < 0 and n_labels is None and labels is None:
            raise InputError(f"{path} has no labels in any row. Give n_labels= if that is meant.")
        else:
            largest = last_label + 1 if labels is None else None
            self.label_names = name_labels(path, labels, n_labels or largest)
        self._first, self._sizes = base, (self.n_features, self.n_labels)

    def parts(self) -> Iterator[Split]:
        """Yield the rows block by block."""
        return (rows.take() for rows in self._read(self.path))
