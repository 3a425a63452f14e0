"""The base of every reader: lines and places in a file, the choice of labels, rows in chunks."""

from __future__ import annotations

import codecs
import gzip
import hashlib
import os
import re
import stat
import sys
import zlib
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from scipy import sparse

from spen.batch.splits import Split
from spen.batch.streams import RowStream
from spen.data.dataset import Numbered, check_dense, check_size, join, regroup
from spen.errors import InputError, check_whole, did_you_mean, one_of

BLOCK = 1 << 18
"""Characters of whole lines that are read and turned into arrays together."""

MOST_ENTRIES = 1 << 19
"""Entries that are turned into arrays together; what sparse rows leave out may stand for more."""

LONGEST_LINE, LONGEST_OF_MANY = 1 << 22, 1 << 24
"""Bytes that a line may have, and that one of many may have. Other files may have no line end."""

LARGEST_COLUMN = 2**31 - 2
"""The largest column number: sparse matrices count columns in 32 bits."""

MOST_KNOWN, LONGEST_KNOWN = 1 << 16, 1 << 10
"""How many tokens are remembered, and how long these are at most."""

LARGEST_VALUE = float(np.finfo(np.float32).max)

FORMATS = ("mulan", "meka", "xmc", "libsvm", "csv", "jsonl", "npz", "parquet", "conll")

GZIP, MOST_PACKED = b"\x1f\x8b", 1032
"""How compressed files begin, and how many bytes a byte of them may stand for."""

Labels: TypeAlias = str | Path | int | Sequence[str] | None
"""What people pass: names of columns, a number of columns, an XML file, or nothing."""

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_LONGEST_NUMBER = 400


@dataclass(frozen=True)
class Options:
    """How a file is to be read; ``spen.data.load.open_rows`` says what each field means."""

    format: str | None = None
    labels: Labels = None
    n_features: int | None = None
    n_labels: int | None = None
    zero_based: bool | None = None
    labels_required: bool = True
    also: Sequence[Path] = ()
    words: bool = False
    like: RowReader | None = None
    """A reader of another part, with the columns, sizes and tags of all parts."""

    def __post_init__(self) -> None:
        if self.format is not None:
            one_of(self.format, FORMATS, "format")
        for name in ("n_features", "n_labels"):
            size = getattr(self, name)
            is_size = isinstance(size, int) and 1 <= size <= LARGEST_COLUMN + 1
            if size is not None and not is_size:
                what = f"must be a whole number from 1 to {LARGEST_COLUMN + 1}; received {size!r}."
                raise InputError(f"{name} {what}")


class RowReader(RowStream):
    """The rows of one file, read as they are asked for.

    Attributes:
        path: the file.
        format: its format's name.
        feature_names: the name of each column of X.
        label_names: the name of each column of Y; empty where the file has no labels.
        label_column: the column of the file that holds all labels of a row; None: each has its own.
    """

    path: Path
    format: str
    feature_names: Sequence[str]
    label_names: Sequence[str]
    label_column: str | None = None

    @property
    def identity(self) -> str | None:
        """The file, its size, when it was written, and what its columns are."""
        file = self.path.stat()
        columns = f"{list(self.label_names)!r} {len(self.feature_names)}"
        told = f"{self.path.resolve()} {file.st_size} {file.st_mtime_ns} {columns}"
        return hashlib.sha256(told.encode()).hexdigest()

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

    def training_parts(self) -> Iterator[Split]:
        """Yield the rows as ``parts`` does, unless the file says that some are for tests."""
        # Sizes are not known before the end, and shares are shares of any.
        if self.divide(2**62):
            raise InputError(
                f"{self.path} says which of its rows are for training and which for tests, and "
                "rows that come part by part are all trained on. Load it with spen.load_dataset, "
                "or write the training rows into a file of their own."
            )
        return self.parts()

    def chunks(self, rows: int = 4096) -> Iterator[Split]:
        """Yield the rows in order, so many at a time; the last chunk may have fewer."""
        check_whole(rows, "rows")
        return regroup(self.parts(), rows)

    def read(self) -> Split:
        """Return all rows."""
        parts, held, peak = [], 0, 0
        for part in self.parts():
            if len(part):
                for matrix in (part.X, part.Y, part.weight):
                    size, most = _bytes_of(matrix)
                    held += size
                    peak += size + most
                parts.append(part)
                if len(parts) > 1:
                    check_size(self.path, peak, held=held)
        if not parts:
            raise InputError(f"{self.path} has no rows of data.")
        return join((parts.pop(0) for _ in range(len(parts))), self.path)

    def divide(self, total: int) -> dict[str, Any]:
        """Return which rows are "train", "valid" and "test", where the file says so itself."""
        return {}


def _bytes_of(matrix: Any) -> tuple[int, int]:
    """Return the bytes of a matrix, and of the largest of the arrays that it is made of.

    As parts are joined array by array, the latter are there twice.
    """
    if hasattr(matrix, "iloc"):
        cells = matrix.to_numpy().ravel()
        different = {id(cell): cell for cell in cells}.values()
        return sum(map(sys.getsizeof, different)) + cells.nbytes, cells.nbytes
    arrays = (matrix.data, matrix.indices, matrix.indptr) if sparse.issparse(matrix) else (matrix,)
    sizes = [0 if array is None else array.nbytes for array in arrays]
    return sum(sizes), max(sizes)


@dataclass
class Rows:
    """The entries of some rows, one row after the other; the columns of Y follow those of X."""

    columns: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)

    def add(self, row: dict[int, float], weight: float = 1.0) -> None:
        """Add a row, column → value."""
        self.columns.extend(row)
        self.values.extend(row.values())
        self.sizes.append(len(row))
        self.weights.append(weight)


class TextReader(RowReader):
    """The rows of a text file, a line each.

    Attributes:
        file: the file, at the line that is being read.
        header_lines: how many lines stand above the rows.
        encoding: that of the rows.
        is_dense: whether X becomes an array.
        labels: the numbers of the file's columns that are labels.
        starts: the number of the first column that each of the file's columns becomes; those
            of Y follow those of X.
        one_hot: (columns,) whether a value says by how much a 1 stands further right; None:
            no value does.
    """

    header_lines: int = 0
    encoding: str = "latin-1"
    is_dense: bool = False
    one_hot: np.ndarray | None = None

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = TextFile(path)

    def lay_out(self, columns: Sequence[Sequence[str]], labels: set[int]) -> None:
        """Set the names of the columns of X and of Y, and where those of each in the file begin.

        Args:
            columns: for each column of the file, the names of those that it becomes.
            labels: the numbers of the columns that are labels.
        """
        features = [names for i, names in enumerate(columns) if i not in labels]
        self.feature_names = tuple(name for names in features for name in names)
        self.label_names = tuple(name for i in sorted(labels) for name in columns[i])
        if not features:
            raise InputError(f"{self.path} has only labels and no features.")
        self.labels = labels
        self.starts: list[int] = []
        ends = {False: 0, True: self.n_features}
        for i, names in enumerate(columns):
            self.starts.append(ends[i in labels])
            ends[i in labels] += len(names)

    @abstractmethod
    def add_row(self, rows: Rows, text: str) -> None:
        """Add the row that a line holds, if it holds one."""

    def parts(self) -> Iterator[Split]:
        """Yield the rows block by block."""
        return map(self.split, self.blocks())

    def blocks(self) -> Iterator[Rows]:
        """Yield the rows, a block of lines at a time."""
        rows, size = Rows(), 0
        for raw in self.file.raw_lines(self.header_lines):
            self.add_row(rows, self.file.decode(raw, self.encoding))
            size += len(raw) + 1
            if size >= BLOCK or len(rows.columns) >= MOST_ENTRIES:
                yield rows
                rows, size = Rows(), 0
        yield rows

    def read_row(
        self, tokens: Sequence[Any], matches: Iterator[re.Match[str]], known: Remembered, kind: str
    ) -> dict[int, float]:
        """Return the entries of a row, column → value, from its tokens.

        Args:
            tokens: the tokens.
            matches: how they were found; only asked for where something is wrong.
            known: the entries of tokens; it raises a TokenError for what is none.
            kind: what a token that begins with a number is called.
        """
        try:
            row = dict(map(known.__getitem__, tokens))
        except TokenError:
            row = {}
        if len(row) == len(tokens):
            return row
        seen: set[int] = set()
        for token, match in zip(tokens, matches, strict=False):
            try:
                column, _ = known[token]
            except TokenError as problem:
                raise self.file.fault(str(problem), match.start(1) + problem.offset) from None
            if column in seen:
                number = int(re.match("[0-9]+", match[1])[0])  # type: ignore[index]
                raise self.file.fault(f"{kind} {number} stands twice in this row.", match.start(1))
            seen.add(column)
        raise AssertionError("Some token of the row is wrong or stands twice.")

    def split(self, rows: Rows) -> Split:
        """Return rows as arrays."""
        n_rows, n_features, n_labels = len(rows.sizes), self.n_features, self.n_labels
        row = np.repeat(np.arange(n_rows), rows.sizes)
        column, value = np.array(rows.columns, np.int64), np.array(rows.values, np.float64)
        if self.one_hot is not None:
            hot = self.one_hot[column]
            column[hot] += value[hot].astype(np.int64)
            value[hot] = 1.0
        is_label = column >= n_features

        def matrix(part: np.ndarray, first: int, width: int, dtype: Any) -> Any:
            stored = part & (value != 0)
            entries = value[stored].astype(dtype), (row[stored], column[stored] - first)
            return sparse.csr_matrix(entries, shape=(n_rows, width))

        if self.is_dense:
            X = np.zeros((n_rows, n_features), np.float32)
            X[row[~is_label], column[~is_label]] = value[~is_label]
        else:
            X = matrix(~is_label, 0, n_features, np.float32)
        Y = None
        if n_labels and np.isnan(value).any():
            check_dense(n_rows, n_labels, self.path)
            Y = matrix(is_label, n_features, n_labels, np.float32).toarray()
        elif n_labels:
            Y = matrix(is_label, n_features, n_labels, np.int8)
        weight = np.array(rows.weights, np.float32)
        return Split(X, Y, None if (weight == 1).all() else weight)


class TokenError(Exception):
    """What is wrong with a token.

    Attributes:
        offset: how many of the token's characters stand before the fault.
    """

    def __init__(self, what: str, offset: int = 0) -> None:
        super().__init__(what)
        self.offset = offset


class TextFile:
    """A file of text that is read line by line.

    Attributes:
        path: the file.
        line: the number of the line that is being read, counted from 1.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.line = 1

    def raw_lines(self, skip: int = 0) -> Iterator[bytes]:
        """Yield the lines after the first ``skip``, without their ends."""
        with open_text(self.path) as file, packed_well(self.path):
            # What a line holds takes many times its size.
            whole = os.fstat(file.fileno()).st_size
            longest = max(LONGEST_LINE, min(LONGEST_OF_MANY, whole >> 4))
            lines = iter(lambda: file.readline(longest + 1), b"")
            for self.line, raw in enumerate(lines, 1):
                if len(raw) > longest:
                    size = f"{longest >> 20} MiB"
                    raise self.fault(f"the line is longer than {size}. Is this a file of text?")
                if self.line > skip:
                    yield raw.rstrip(b"\r\n")

    def decode(self, raw: bytes, encoding: str) -> str:
        """Return a line as text, or say which character is not of the encoding."""
        try:
            return raw.decode(encoding)
        except UnicodeDecodeError as problem:
            what = f"the byte 0x{raw[problem.start]:02x} is not {encoding.upper()}."
            before = raw[: problem.start].decode(encoding)
            raise self.fault(f"{what} Save the file as UTF-8.", len(before)) from None

    def fault(
        self, what: str, offset: int | None = None, kind: type[InputError] = InputError
    ) -> InputError:
        """Return the error for this line, or for what stands in it after so many characters."""
        return fault(self.path, self.line, what, offset, kind)


def fault(
    path: Path,
    line: int,
    what: str,
    offset: int | None = None,
    kind: type[InputError] = InputError,
) -> InputError:
    """Return the error for a line, or for what stands in it after ``offset`` characters.

    >>> str(fault(Path("a.arff"), 3, "'x' is not a number.", 6))
    "a.arff, line 3, character 7: 'x' is not a number."
    """
    where = "" if offset is None else f", character {offset + 1}"
    return kind(f"{path}, line {line}{where}: {what}")


def open_file(path: Path) -> BinaryIO:
    """Open a regular file for reading, or say why that cannot be done."""
    try:
        mode = path.stat().st_mode
        # Looked at before it is opened: opening a pipe waits for its writer.
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            what = "is not a regular file; files are read more than once. Save it."
            raise InputError(f"{path} {what}")
        return path.open("rb")
    except FileNotFoundError:
        raise InputError(f"There is no file {path}. Check the name and the folder.") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder, not a file. Name a file in it.") from None
    except InputError:
        raise
    except (OSError, ValueError) as problem:
        raise InputError(f"{path} cannot be read: {problem}.") from None


def open_text(path: Path) -> BinaryIO:
    """Open a file, compressed by gzip or not, where its text begins, after a mark of UTF-8."""
    file: Any = open_file(path)
    if is_packed(path):
        file.close()
        file = gzip.GzipFile(path)
    with packed_well(path):
        mark = file.read(len(codecs.BOM_UTF8))
    if mark.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        file.close()
        raise fault(path, 1, "this is UTF-16 text. Save the file as UTF-8.")
    file.seek(len(mark) if mark == codecs.BOM_UTF8 else 0)
    return file


def is_packed(path: Path) -> bool:
    """Say whether a file is compressed by gzip."""
    with open_file(path) as file:
        return file.read(len(GZIP)) == GZIP


def text_size(path: Path) -> int:
    """Return how many bytes the text of a file may have."""
    return path.stat().st_size * (MOST_PACKED if is_packed(path) else 1)


@contextmanager
def packed_well(path: Path) -> Iterator[None]:
    """Say of a compressed file that is damaged which one it is."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error) as problem:
        raise InputError(f"{path} is compressed, and cannot be unpacked: {problem}.") from None


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


class Remembered(dict[Any, tuple[int, float]]):
    """The entries of tokens, each read when it is first asked for; most come again and again."""

    def __init__(self, read: Callable[[Any], tuple[int, float]]) -> None:
        self._read = read

    def __missing__(self, token: Any) -> tuple[int, float]:
        entry = self._read(token)
        if len(self) >= MOST_KNOWN:
            self.clear()
        if len(token) <= LONGEST_KNOWN:
            self[token] = entry
        return entry


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


def read_value(text: str) -> tuple[float, str]:
    """Return the number that text spells, and why it cannot be used, if so.

    >>> read_value("2"), read_value("red"), read_value("1e39")[1]
    ((2.0, ''), (nan, 'not a number'), 'too large for single precision')
    """
    value = number(text)
    if value is None:
        return np.nan, "not a number"
    return value, "too large for single precision" if abs(value) > LARGEST_VALUE else ""


def pick_labels(path: Path, names: Sequence[str], what: str, options: Options) -> set[int]:
    """Return the numbers of the columns that are labels.

    Labels that are named must all be there, or else, if they are not required, those that are
    there are taken.

    Args:
        path: the file, for errors.
        names: its columns in order.
        what: what a column is called in this format.
        options: say which columns are labels, by their names or by how many come first
            (negative: last), and whether labels are required.

    >>> pick_labels(Path("a.csv"), ["x", "rain", "snow"], "column", Options(labels=-2)) == {1, 2}
    True
    """
    count, labels = len(names), options.labels
    if labels is None:
        if not options.labels_required:
            return set()
        few = ", ".join(shown(name) for name in names[:8])
        more = f", … ({count} in all)" if count > 8 else ""
        raise InputError(
            f"{path} does not say which {what}s are labels. Give labels=: their names, or how many "
            f"come first (negative: last), or the one that holds tags. Its {what}s: {few}{more}."
        )
    if isinstance(labels, int) and not isinstance(labels, bool):
        if not 0 < abs(labels) < count:
            raise InputError(
                f"{path} has {count} {what}s; {labels} of them cannot be the labels, "
                "as at least one must be a label and one a feature."
            )
        return set(range(labels)) if labels > 0 else set(range(count + labels, count))
    wanted = _check_names(path, labels, what)
    place = {name: i for i, name in enumerate(names)}
    unknown = [name for name in wanted if name not in place]
    if unknown and options.labels_required:
        raise InputError(f"{path} has no {what} {unknown[0]!r}. {did_you_mean(unknown[0], names)}")
    if options.labels_required and not wanted:
        raise InputError(f"labels is empty: name at least one {what} of {path}.")
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
    names = tuple(_check_names(path, labels, "label"))
    twice = next((name for name, n in Counter(names).items() if n > 1), None)
    if twice is not None:
        raise InputError(f"labels names {twice!r} twice; {path} needs a name for each label.")
    if count is not None and len(names) != count:
        raise InputError(f"labels names {len(names)} labels, but {path} has {count}.")
    return names


def _check_names(path: Path, labels: Any, what: str) -> list[str]:
    is_list = isinstance(labels, Iterable) and not isinstance(labels, str)
    names: list[Any] = list(labels) if is_list else [labels]
    if all(isinstance(name, str) for name in names):
        return names
    raise InputError(
        f"For {path} labels must be names of {what}s, or how many come first (negative: last); "
        f"received {labels!r}."
    )
