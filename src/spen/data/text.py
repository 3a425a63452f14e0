"""Text files of sparse rows: the extreme-classification format and LIBSVM's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from spen.batch.splits import Split
from spen.data.digits import LARGEST_COLUMN
from spen.data.labels import Labels, label_names
from spen.data.lines import blocks, fault, numbered_lines, open_file, shown
from spen.data.names import Numbered
from spen.data.reader import RowReader
from spen.data.text_rows import Bounds, read_text
from spen.errors import InputError

SIZES = re.compile(r"[ \t]*([0-9]+)[ \t]+([0-9]+)[ \t]+([0-9]+)[ \t]*")
"""The first line of the extreme-classification format: rows, features, labels."""


class XmcReader(RowReader):
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
        sizes = SIZES.fullmatch(raw.decode("latin-1"))
        if sizes is None:
            what = "expected the numbers of rows, features and labels, as in 12920 500 983; "
            raise fault(path, line, f"{what}received {shown(raw.decode('latin-1'))}.")
        self._rows, n_features, n_labels = (_size(path, line, text) for text in sizes.groups())
        if not n_features:
            raise fault(path, line, "the file declares no features.")
        if not n_labels and labels_required:
            raise fault(path, line, "the file declares no labels.")
        self.feature_names = Numbered("x", n_features)
        self.label_names = label_names(path, labels if n_labels else None, n_labels)
        self._bounds = Bounds(last_feature=n_features - 1, last_label=n_labels - 1)

    def parts(self) -> Iterator[Split]:
        """Yield the rows block by block; their number is checked at the end."""
        rows = 0
        for line, block in blocks(self.path, *self._start):
            part = read_text(self.path, line, block, self._bounds)
            part = part.split(self.n_features, self.n_labels, base=0)
            rows += len(part)
            yield part
        if rows != self._rows:
            what = f"the first line declares {self._rows} rows, but the file has {rows}."
            raise fault(self.path, 1, f"{what} It may be cut short.")


class LibsvmReader(RowReader):
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
        first, last, last_label = _extent([path, *also])
        self._base = int(first > 0) if zero_based is None else int(not zero_based)
        seen = max(last - self._base + 1, 0)
        # Named as the file counts, so that two files that count differently can be told apart.
        self.feature_names = Numbered("x", n_features or max(seen, 1), start=self._base)
        if last_label < 0 and not labels_required:
            self.label_names = ()
        elif last_label < 0 and n_labels is None and labels is None:
            raise InputError(f"{path} has no labels in any row. Give n_labels= if that is meant.")
        else:
            largest = last_label + 1 if labels is None else None
            self.label_names = label_names(path, labels, n_labels or largest)
        self._bounds = Bounds(self._base, self.n_features - 1 + self._base, self.n_labels - 1)

    def parts(self) -> Iterator[Split]:
        """Yield the rows block by block."""
        for line, block in blocks(self.path):
            rows = read_text(self.path, line, block, self._bounds)
            yield rows.split(self.n_features, self.n_labels, self._base)


def _extent(paths: Sequence[Path]) -> tuple[int, int, int]:
    """Return the smallest and the largest number of a feature, and the largest of a label."""
    first, last, last_label = LARGEST_COLUMN, -1, -1
    for path in paths:
        for line, block in blocks(path):
            rows = read_text(path, line, block, Bounds())
            if rows.features.columns.size:
                first = min(first, int(rows.features.columns.min()))
                last = max(last, int(rows.features.columns.max()))
            if rows.labels.columns.size:
                last_label = max(last_label, int(rows.labels.columns.max()))
    return first, last, last_label


def _size(path: Path, line: int, text: str) -> int:
    size = int(text) if len(text) <= 10 else LARGEST_COLUMN + 2
    if size > LARGEST_COLUMN + 1:
        what = f"a size of {shown(text)[1:-1]} is too large; at most {LARGEST_COLUMN + 1} rows, "
        raise fault(path, line, f"{what}features and labels can be read.")
    return size
