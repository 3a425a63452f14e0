"""Text files of sparse rows: the extreme-classification format and LIBSVM's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from spen.batch.splits import Split
from spen.data import reader
from spen.data.dataset import Numbered, check_columns
from spen.data.reader import Options, Remembered, Rows, TextFile, TextReader, TokenError, shown
from spen.errors import InputError

SIZES = re.compile(r"[ \t]*([0-9]+)[ \t]+([0-9]+)[ \t]+([0-9]+)[ \t]*")
"""The first line of the extreme-classification format: rows, features, labels."""

_MOST = reader.LARGEST_COLUMN + 1
_LABELS = re.compile(r"[^ \t:]*+(?![^ \t])")
_LABEL = re.compile(r"(?:^|,)([^,]*)")
_PAIR = re.compile(r"([^ \t]+)")
_DIGITS = re.compile(r"[0-9]{1,10}")


class SparseTextReader(TextReader):
    """Rows of ``label,label index:value index:value``, one a line, whatever stands above them.

    An empty line is skipped; a line that is a blank is a row without labels and features.
    What follows a ``#`` is a comment.
    """

    def _count(self, n_features: int, n_labels: int, first: int = 0) -> None:
        """Set how many features and labels there are, and the number of the first feature."""
        self._sizes, self._first = (n_features, n_labels), first
        self._known_labels, self._known_pairs = Remembered(self._label), Remembered(self._pair)

    def add_row(self, rows: Rows, text: str) -> None:
        """Add the row of a line that is neither empty nor a comment."""
        content, comment, _ = text.partition("#")
        if not content or (comment and not content.strip(" \t")):
            return
        match = _LABELS.match(content)
        end = match.end() if match else 0
        names, matches = _LABEL.findall(content, 0, end), _LABEL.finditer(content, 0, end)
        labels = self.read_row(names, matches, self._known_labels, "label") if end else {}
        pairs, matches = _PAIR.findall(content, end), _PAIR.finditer(content, end)
        rows.add(labels | self.read_row(pairs, matches, self._known_pairs, "feature"))

    def _label(self, name: str) -> tuple[int, float]:
        if not _DIGITS.fullmatch(name):
            what = f"expected label numbers as in 3,17; received {shown(name)}. "
            raise TokenError(f"{what}A row without labels starts with a blank.")
        label, (n_features, n_labels) = int(name), self._sizes
        if label >= n_labels:
            raise TokenError(f"label {label} is out of range; labels go from 0 to {n_labels - 1}.")
        return n_features + label, 1.0

    def _pair(self, word: str) -> tuple[int, float]:
        index, colon, text = word.partition(":")
        if not colon or not _DIGITS.fullmatch(index):
            raise TokenError(f"expected INDEX:VALUE; received {shown(word)}.")
        column, first, last = int(index), self._first, self._sizes[0] - 1 + self._first
        if not first <= column <= last:
            what = f"feature {column} is out of range; features go from {first} to {last}."
            raise TokenError(what)
        value, why = reader.read_value(text)
        if why:
            what = f"feature {column} holds {shown(text)}, which is {why}."
            raise TokenError(what, offset=len(index) + 1)
        return column - first, value


class XmcReader(SparseTextReader):
    """The extreme-classification format: ``rows features labels``, then a row a line.

    A row is ``label,label index:value index:value``; labels and features count from 0, and a
    row without labels starts with a blank.

    Args:
        path: the file.
        options: how to read it. Its labels are names for those of the file; None: label0,
            label1, ….
    """

    format = "xmc"
    header_lines = 1

    def __init__(self, path: Path, options: Options) -> None:
        super().__init__(path)
        text = next(self.file.raw_lines(), b"").decode("latin-1")
        sizes = SIZES.fullmatch(text)
        if sizes is None:
            what = "expected the numbers of rows, features and labels, as in 12920 500 983; "
            raise self.file.fault(f"{what}received {shown(text)}.")
        for size in sizes.groups():
            # A number of very many digits would take long to read.
            if len(size) > 10 or int(size) > _MOST:
                what = f"a size of {shown(size)[1:-1]} is too large; at most {_MOST} rows, "
                raise self.file.fault(f"{what}features and labels can be read.")
        self._rows, n_features, n_labels = map(int, sizes.groups())
        if not n_features or (options.labels_required and not n_labels):
            what = "labels" if n_features else "features"
            raise self.file.fault(f"the file declares no {what}.")
        # A row is a blank or more, and all but the last have an end.
        most = (reader.text_size(path) - len(text)) // 2
        if self._rows > most:
            what = f"the first line declares {self._rows} rows, but the file has {most} at most."
            raise self.file.fault(f"{what} It may be cut short.")
        check_columns(path, n_features, n_labels)
        self.feature_names = Numbered("x", n_features)
        self.label_names = reader.name_labels(path, options.labels if n_labels else None, n_labels)
        self._count(n_features, n_labels)

    def parts(self) -> Iterator[Split]:
        """Yield the rows block by block; their number is checked at the end."""
        rows = 0
        for part in super().parts():
            rows += len(part)
            yield part
        if rows != self._rows:
            what = f"the first line declares {self._rows} rows, but the file has {rows}."
            raise reader.fault(self.path, 1, f"{what} It may be cut short.")


class LibsvmReader(SparseTextReader):
    """LIBSVM's multi-label format: ``label,label index:value index:value`` a line.

    Labels count from 0. Features count from 1, or from 0 if ``zero_based``, which by itself
    is whether some row has a feature 0. The file is read once to find out its sizes.

    Args:
        path: the file.
        options: how to read it. Its labels are names for those of the file (None: label0,
            label1, …), its sizes are as large as the largest numbers ask for where they are
            None, and the files that it names also share sizes and counting with this one.
    """

    format = "libsvm"

    def __init__(self, path: Path, options: Options) -> None:
        super().__init__(path)
        if isinstance(like := options.like, LibsvmReader):
            self.feature_names, self.label_names = like.feature_names, like.label_names
            self._count(*like._sizes, like._first)
            return
        self._count(_MOST, _MOST)
        first, last, last_label = _MOST, -1, -1
        for other in (path, *options.also):
            self.file = TextFile(other)
            for rows in self.blocks():
                columns = np.array(rows.columns, np.int64)
                features, numbers = columns[columns < _MOST], columns[columns >= _MOST] - _MOST
                first, last = int(features.min(initial=first)), int(features.max(initial=last))
                last_label = int(numbers.max(initial=last_label))
        self.file = TextFile(path)
        base = int(first > 0) if options.zero_based is None else int(not options.zero_based)
        # Named as the file counts, so that two files that count differently can be told apart.
        n_features = options.n_features or max(last - base + 1, 1)
        check_columns(path, n_features, options.n_labels or last_label + 1)
        self.feature_names = Numbered("x", n_features, start=base)
        labels, n_labels = options.labels, options.n_labels
        if last_label < 0 and not options.labels_required:
            self.label_names = ()
        elif last_label < 0 and n_labels is None and labels is None:
            raise InputError(f"{path} has no labels in any row. Give n_labels= if that is meant.")
        else:
            largest = last_label + 1 if labels is None else None
            self.label_names = reader.name_labels(path, labels, n_labels or largest)
        self._count(n_features, self.n_labels, base)
