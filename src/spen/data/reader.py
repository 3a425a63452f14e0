"""The base of every reader: lines and places in a file, the choice of labels, rows in chunks."""

from __future__ import annotations

import difflib
import os
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, overload

import numpy as np

from spen.batch.splits import Split
from spen.data.dataset import check_dense, join, sparse_matrix
from spen.errors import InputError, did_you_mean

BLOCK = 1 << 18
"""Bytes of whole lines that are read and turned into arrays together."""

LONGEST_LINE = 1 << 24
"""Bytes that a line may have. A file of other bytes may have no line end at all."""

LARGEST_COLUMN = 2**31 - 2
"""The largest column number: sparse matrices count columns in 32 bits."""

MOST_KNOWN, LONGEST_KNOWN = 1 << 16, 1 << 10
"""How many tokens are remembered, and how long these are at most."""

LARGEST_VALUE = float(np.finfo(np.float32).max)

Labels: TypeAlias = str | Path | int | Sequence[str] | None
"""What people pass: names of columns, a number of columns, an XML file, or nothing."""

_UTF8_MARK = b"\xef\xbb\xbf"
_WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_LONGEST_NUMBER = 400


class RowReader(ABC):
    """The rows of one file, read as they are asked for.

    Attributes:
        path: the file.
        format: its format's name.
        feature_names: the name of each column of X.
        label_names: the name of each column of Y; empty where the file has no labels.
    """

    path: Path
    format: str
    feature_names: Sequence[str]
    label_names: Sequence[str]

    @property
    def n_features(self) -> int:
        """The number of columns of X."""
        return len(self.feature_names)

    @property
    def n_labels(self) -> int:
        """The number of columns of Y."""
        return len(self.label_names)

    @abstractmethod
    def parts(self) -> Iterator[Split]:
        """Yield the rows in order, in parts of whatever size the file gives."""

    def chunks(self, rows: int = 4096) -> Iterator[Split]:
        """Yield the rows in order, so many at a time; the last chunk may have fewer."""
        if not isinstance(rows, int) or rows < 1:
            raise InputError(f"rows must be a whole number of 1 or more; received {rows!r}.")
        return _regroup(self.parts(), rows)

    def read(self) -> Split:
        """Return all rows."""
        parts = [part for part in self.parts() if len(part)]
        if not parts:
            raise InputError(f"{self.path} has no rows of data.")
        return join(parts, self.path)

    def divide(self, total: int) -> dict[str, Any]:
        """Return which rows are "train", "valid" and "test", where the file says so itself."""
        return {}


def _regroup(parts: Iterable[Split], rows: int) -> Iterator[Split]:
    waiting: list[Split] = []
    count = 0
    for part in parts:
        if len(part):
            waiting.append(part)
            count += len(part)
        if count < rows:
            continue
        joined = join(waiting)
        cut = 0
        while count - cut >= rows:
            yield joined.rows(slice(cut, cut + rows))
            cut += rows
        waiting = [joined.rows(slice(cut, count))] if cut < count else []
        count -= cut
    if waiting:
        yield join(waiting)


class Numbered(Sequence[str]):
    """The names ``x0``, ``x1``, … (or from another number on), made when asked for.

    A text file may declare billions of columns in its first line, and that must not cost
    memory; in all else this is the tuple of those names.

    >>> names = Numbered("x", 3)
    >>> names[-1], list(names), names == ("x0", "x1", "x2")
    ('x2', ['x0', 'x1', 'x2'], True)
    """

    def __init__(self, prefix: str, count: int, start: int = 0) -> None:
        self.prefix = prefix
        self.numbers = range(start, start + count)

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        if isinstance(index, slice):
            return tuple(f"{self.prefix}{i}" for i in self.numbers[index])
        return f"{self.prefix}{self.numbers[index]}"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Numbered):
            alike = (self.prefix, self.numbers) == (other.prefix, other.numbers)
            return alike or len(self) == len(other) == 0
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    # Equal to a tuple, so it would have to hash like one, which means making all names.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Numbered({self.prefix!r}, {len(self)}, {self.numbers.start})"


def fault(
    path: Path, line: int, what: str, *, character: int | None = None, column: str | None = None
) -> InputError:
    """Return the error for a place in a file; lines and characters count from 1.

    >>> str(fault(Path("a.arff"), 3, "'x' is not a number.", character=7))
    "a.arff, line 3, character 7: 'x' is not a number."
    """
    where = f", character {character}" if character is not None else ""
    where += f", column {column}" if column is not None else ""
    return InputError(f"{path}, line {line}{where}: {what}")


def shown(text: str) -> str:
    """Return text as an error quotes it: short, on one line, without control characters.

    >>> shown("x" * 100)
    "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…'"
    """
    return repr(text if len(text) <= 40 else text[:39] + "…")


def number(text: str) -> float | None:
    """Return the number that text spells, or None. Strict: no nan, no inf, no ``1_000``.

    >>> number("-1.5e2"), number("1_000"), number("nan")
    (-150.0, None, None)
    """
    if len(text) > _LONGEST_NUMBER or not _NUMBER.fullmatch(text):
        return None
    return float(text)


class LineError(Exception):
    """What is wrong with a line or with a token of one.

    Attributes:
        offset: how many characters stand before the fault.
    """

    def __init__(self, what: str, offset: int = 0) -> None:
        super().__init__(what)
        self.offset = offset

    def at(self, path: Path, line: int) -> InputError:
        """Return the error for a line of a file."""
        return fault(path, line, str(self), character=self.offset + 1)


def read_row(
    tokens: Sequence[Any],
    known: dict[Any, tuple[int, float]],
    read: Callable[[Any], tuple[int, float]],
    place: Callable[[int], int],
    kind: str,
) -> dict[int, float]:
    """Return the entries of a row, column → value, from its tokens.

    Most tokens come again and again, so each is read once and then looked up.

    Args:
        tokens: the tokens.
        known: the entries of other rows' tokens, to which those of this row are added.
        read: returns the entry of a token, or raises a LineError.
        place: returns how many characters stand before the token of a number.
        kind: what a token that begins with a number is called.
    """
    if len(known) > MOST_KNOWN:
        known.clear()
    found: list[Any] = list(map(known.get, tokens))
    if None in found:
        for n, token in enumerate(tokens):
            try:
                found[n] = found[n] or read(token)
            except LineError as problem:
                raise LineError(str(problem), place(n) + problem.offset) from None
            if len(token) <= LONGEST_KNOWN:
                known[token] = found[n]
    row: dict[int, float] = dict(found)
    if len(row) < len(found):
        first: dict[int, int] = {}
        n = next(n for n, entry in enumerate(found) if first.setdefault(entry[0], n) < n)
        number = int(re.match("[0-9]+", tokens[n])[0])  # type: ignore[index]
        raise LineError(f"{kind} {number} stands twice in this row.", place(n))
    return row


class RowBuilder:
    """Rows on their way to a part; the columns of Y follow those of X.

    Args:
        source: where the rows come from, for errors.
        n_features, n_labels: the columns.
        one_hot: (columns,) whether a value says by how much a 1 stands further right.
    """

    def __init__(
        self, source: Path, n_features: int, n_labels: int, one_hot: np.ndarray | None = None
    ) -> None:
        self._source = source
        self._sizes = n_features, n_labels
        self._one_hot = one_hot
        self.columns: list[int] = []
        self.values: list[float] = []
        self.starts: list[int] = [0]
        self._weights: list[float] = []

    def add(self, row: dict[int, float], weight: float = 1.0) -> None:
        """Add a row, column → value."""
        self.columns.extend(row)
        self.values.extend(row.values())
        self.starts.append(len(self.columns))
        self._weights.append(weight)

    def take(self, dense: bool = False) -> Split:
        """Return the rows and keep none of them; ``dense`` says what X is to be."""
        n_rows, (n_features, n_labels) = len(self._weights), self._sizes
        rows = np.repeat(np.arange(n_rows), np.diff(self.starts))
        columns, values = np.array(self.columns, np.int64), np.array(self.values, np.float64)
        if self._one_hot is not None:
            hot = self._one_hot[columns]
            columns[hot] += values[hot].astype(np.int64)
            values[hot] = 1.0
        weight = np.array(self._weights, np.float32)
        self.columns, self.values, self.starts, self._weights = [], [], [0], []
        of_labels = columns >= n_features
        X_entries = rows[~of_labels], columns[~of_labels], values[~of_labels]
        Y_entries = rows[of_labels], columns[of_labels] - n_features, values[of_labels]
        if dense:
            X = np.zeros((n_rows, n_features), np.float32)
            X[X_entries[:2]] = X_entries[2]
        else:
            X = sparse_matrix(*X_entries, (n_rows, n_features), np.float32)
        Y = None
        if n_labels and np.isnan(values).any():
            check_dense(n_rows, n_labels, self._source)
            Y = sparse_matrix(*Y_entries, (n_rows, n_labels), np.float32).toarray()
        elif n_labels:
            Y = sparse_matrix(*Y_entries, (n_rows, n_labels), np.int8)
        return Split(X, Y, None if (weight == 1).all() else weight)


def open_file(path: Path) -> BinaryIO:
    """Open a regular file for reading, or say why that cannot be done."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise InputError(f"There is no file {path}. Check the name and the folder.") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder, not a file. Name a file in it.") from None
    except (OSError, ValueError) as problem:
        raise InputError(f"{path} cannot be read: {problem}.") from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise InputError(f"{path} is not a regular file; files are read more than once. Save it.")
    return file


def text_start(path: Path, file: BinaryIO) -> int:
    """Return the offset at which the text begins, after a mark of its encoding."""
    file.seek(0)
    first = file.read(len(_UTF8_MARK))
    if first[:2] in _WIDE_MARKS:
        raise fault(path, 1, "this is UTF-16 text. Save the file as UTF-8.")
    return len(_UTF8_MARK) if first == _UTF8_MARK else 0


def numbered_lines(
    path: Path, file: BinaryIO, offset: int = 0, line: int = 1
) -> Iterator[tuple[int, bytes]]:
    """Yield (number, line) from a byte offset on, the line without its end.

    A mark of UTF-8 at the start of the file is left out.
    """
    file.seek(offset or text_start(path, file))
    while raw := file.readline(LONGEST_LINE + 1):
        if len(raw) > LONGEST_LINE:
            what = f"the line is longer than {LONGEST_LINE >> 20} MiB. Is this a file of text?"
            raise fault(path, line, what)
        yield line, raw.rstrip(b"\r\n")
        line += 1


def blocks(
    path: Path, offset: int = 0, line: int = 1, encoding: str = "latin-1"
) -> Iterator[list[tuple[int, str]]]:
    """Yield the lines of a file as (number, text), a block of them at a time."""
    with open_file(path) as file:
        block: list[tuple[int, str]] = []
        size = 0
        for i, raw in numbered_lines(path, file, offset, line):
            block.append((i, decode(path, i, raw, encoding)))
            size += len(raw) + 1
            if size >= BLOCK:
                yield block
                block, size = [], 0
        if block:
            yield block


def decode(path: Path, line: int, raw: bytes, encoding: str) -> str:
    """Return a line as text, or say which character is not of the encoding."""
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as problem:
        byte, character = raw[problem.start], len(raw[: problem.start].decode(encoding)) + 1
        what = f"the byte 0x{byte:02x} is not {encoding.upper()}. Save the file as UTF-8."
        raise fault(path, line, what, character=character) from None


def encoding_of(header: bytes) -> str:
    """Return the encoding of a file by its header: UTF-8, or else Latin-1, as old files have.

    >>> encoding_of("Größe".encode("utf-8")), encoding_of("Größe".encode("latin-1"))
    ('utf-8', 'latin-1')
    """
    try:
        header.decode("utf-8")
    except UnicodeDecodeError:
        return "latin-1"
    return "utf-8"


def pick_labels(
    path: Path, names: Sequence[str], what: str, labels: Labels, required: bool
) -> set[int]:
    """Return the numbers of the columns that are labels.

    Args:
        path: the file, for errors.
        names: its columns in order.
        what: what a column is called in this format.
        labels: names of columns, or how many come first (negative: last).
        required: whether all labels must be there; otherwise those that are there are taken.

    >>> pick_labels(Path("a.csv"), ["x", "rain", "snow"], "column", -2, True) == {1, 2}
    True
    """
    count = len(names)
    if isinstance(labels, int) and not isinstance(labels, bool):
        if not 0 < abs(labels) < count:
            raise InputError(
                f"{path} has {count} {what}s; {labels} of them cannot be the labels, "
                "as at least one must be a label and one a feature."
            )
        return set(range(labels)) if labels > 0 else set(range(count + labels, count))
    wanted = _check_names(labels, what)
    place = {name: i for i, name in enumerate(names)}
    unknown = [name for name in wanted if name not in place]
    if unknown and required:
        raise InputError(f"{path} has no {what} {unknown[0]!r}. {_hint(unknown[0], names)}")
    if required and not wanted:
        raise InputError(f"labels is empty: name at least one {what}.")
    return {place[name] for name in wanted if name in place}


def name_labels(path: Path, labels: Labels, count: int | None) -> Sequence[str]:
    """Return the names that were given for the labels of a file that has none, or made-up ones.

    Args:
        path: the file, for errors.
        labels: the names; None: label0, label1, ….
        count: how many there are; None: as many as are named.
    """
    if labels is None:
        return Numbered("label", count or 0)
    names = tuple(_check_names(labels, "label"))
    if count is not None and len(names) != count:
        raise InputError(f"labels names {len(names)} labels, but {path} has {count}.")
    return names


def _check_names(labels: object, what: str) -> list[str]:
    if isinstance(labels, str):
        return [labels]
    if isinstance(labels, Iterable):
        names = list(labels)
        if all(isinstance(name, str) for name in names):
            return names
    raise InputError(
        f"labels must be names of {what}s, or how many come first (negative: last); "
        f"received {labels!r}."
    )


def _hint(name: str, names: Sequence[str]) -> str:
    if len(names) <= 20:
        return did_you_mean(name, names)
    near = difflib.get_close_matches(name, names[:10_000], n=1)
    return f"Did you mean {near[0]!r}?" if near else f"It has {len(names)} others."
