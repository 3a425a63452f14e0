"""The store: rows that were copied to a folder on disk once, and are read from there in blocks.

It holds numbers alone, one file for each kind, so that any stretch of rows is read by its place:
nothing is parsed twice, and no more than some blocks are ever in memory.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from scipy import sparse

from spen.batch.inputs import InputRows
from spen.batch.rows import compressed_rows
from spen.batch.splits import Split, row_digests
from spen.errors import CheckpointError, InputError
from spen.files import full_disk_named, write_atomically

BLOCK = 2**18
"""Bytes of rows that are read at once, about: what is near in a file comes apart in an epoch, as
many blocks are mixed."""

MOST_BLOCK_ROWS = 4096

ROWS_AT_ONCE = 4096
"""Rows that are checked and written together."""

ABOUT = "about.json"
MISSING = 2
"""Stands for a label that is not known."""

FORMAT = 1


@dataclass(frozen=True)
class About:
    """What a store holds.

    Attributes:
        rows: how many rows.
        features: the shape of a row.
        labels: how many labels, or classes.
        sparse: whether rows are sparse.
        dtype: the type of the numbers of a row.
        entries: how many numbers of all rows are not zero; of rows that are no matrix, 0.
        classes: the classes in the order in which they are numbered; None for sets of labels.
        missing: whether some label is missing.
        weighted: whether rows have weights.
        identity: of the source, if it has one.
        checksum: of all that was written.
        format: of the files.
    """

    rows: int = 0
    features: tuple[int, ...] = ()
    labels: int = 0
    sparse: bool = False
    dtype: str = "float32"
    entries: int = 0
    classes: tuple[int, ...] | None = None
    missing: bool = False
    weighted: bool = False
    identity: str | None = None
    checksum: str = ""
    format: int = FORMAT

    @property
    def is_matrix(self) -> bool:
        """Whether rows are those of a matrix of numbers, not inputs of another kind."""
        return self.dtype == "float32" and len(self.features) == 1


class StoreWriter:
    """Writes the rows of a stream; the store is there, whole, when ``finish`` has returned.

    Args:
        folder: where the store is to be.
        reads: returns rows that are inputs of another kind than a matrix; None of a matrix.
        identity: of the source, if it has one.
    """

    def __init__(
        self,
        folder: Path,
        reads: Callable[[Any], InputRows | None] = lambda X: None,
        identity: str | None = None,
    ) -> None:
        self._folder, self._partial = folder, folder.with_name(f"{folder.name}.partial")
        # What a killed writer left; whoever writes holds the lock.
        shutil.rmtree(self._partial, ignore_errors=True)
        self._partial.mkdir(parents=True)
        self._reads = reads
        self._files: dict[str, Any] = {}
        self._hashers: dict[str, Any] = {}
        self._ends = {"X": 0, "Y": 0}
        self._classes: dict[int, int] = {}
        self.about = About(identity=identity)

    def add(self, part: Split) -> None:
        """Check rows, and write them."""
        if part.Y is None:
            raise InputError("The rows have no labels to learn from. Say which columns are labels.")
        if part.Y.shape[0] != part.X.shape[0]:
            raise InputError(
                f"X and y must have as many rows; received {part.X.shape[0]} and {part.Y.shape[0]}."
            )
        for first in range(0, len(part), ROWS_AT_ONCE):
            rows = slice(first, first + ROWS_AT_ONCE)
            with full_disk_named(self._partial):
                self._add(part.rows(rows) if len(part) > ROWS_AT_ONCE else part)

    def finish(self) -> None:
        """End the store and put it where it is to be."""
        if not self.about.rows:
            raise InputError("There are no rows to learn from.")
        whole = hashlib.sha256()
        for name, hasher in sorted(self._hashers.items()):
            whole.update(f"{name} {hasher.hexdigest()} ".encode())
        classes = tuple(self._classes) if self._classes else None
        if classes is not None:
            self.about = replace(self.about, labels=len(classes), classes=classes)
        with full_disk_named(self._partial):
            for file in self._files.values():
                file.close()
            self.about = replace(self.about, checksum=whole.hexdigest())
            content = json.dumps(asdict(self.about)).encode()
            write_atomically(self._partial / ABOUT, content)
        shutil.rmtree(self._folder, ignore_errors=True)
        self._partial.rename(self._folder)

    def abandon(self) -> None:
        """Remove what was written."""
        for file in self._files.values():
            file.close()
        shutil.rmtree(self._partial, ignore_errors=True)

    def _add(self, part: Split) -> None:
        weight = None if part.weight is None else np.asarray(part.weight, np.float32)
        if weight is not None:
            if not (np.isfinite(weight) & (weight >= 0)).all():
                raise InputError("Weights must be finite numbers of zero or more.")
            counts = weight > 0
            if not counts.all():
                # A row that counts nothing must not tune anything either.
                part, weight = part.rows(counts), weight[counts]
                if not len(weight):
                    return
        n = part.X.shape[0]
        self._add_inputs(part.X)
        self._add_labels(part.Y, n)
        self._write("weight", np.ones(n, np.float32) if weight is None else weight)
        weighted = self.about.weighted or (weight is not None and bool((weight != 1).any()))
        self.about = replace(self.about, rows=self.about.rows + n, weighted=weighted)

    def _add_inputs(self, X: Any) -> None:
        passed = self._reads(X)
        begun = self.about.rows > 0
        if passed is not None:
            X = _only_field(passed)
        elif sparse.issparse(X):
            X = sparse.csr_array(compressed_rows(X, "X"))
        else:
            X = np.asarray(X)
            if X.ndim != 2 or X.dtype.kind not in "biuf":
                raise InputError(
                    f"X must be rows of numbers; received shape {X.shape} of type {X.dtype}. "
                    "Inputs of other kinds are for a network of your own: pass features=."
                )
        if passed is None:
            with np.errstate(over="ignore"):
                X = X.astype(np.float32)
            if begun and sparse.issparse(X) != self.about.sparse:
                X = sparse.csr_array(X) if self.about.sparse else X.toarray()
        features, kind = tuple(X.shape[1:]), str(X.dtype)
        if not begun:
            is_sparse = sparse.issparse(X)
            self.about = replace(self.about, features=features, sparse=is_sparse, dtype=kind)
        elif (features, kind) != (self.about.features, self.about.dtype):
            raise InputError(
                f"All rows must be of one shape and type; row {self.about.rows} has "
                f"{_size(features)} of {kind}, and the first {_size(self.about.features)} of "
                f"{self.about.dtype}."
            )
        entries: Any = X.data if sparse.issparse(X) else X
        if entries.dtype.kind == "f" and not np.isfinite(entries).all():
            raise InputError(
                f"X must hold finite numbers of single precision; among rows {self.about.rows} to "
                f"{self.about.rows + X.shape[0] - 1} some are missing, infinite or too large. Fill "
                "such entries, or drop the rows."
            )
        self._write("digests", row_digests(X if passed is None else passed))
        if passed is None:
            count = self.about.entries + int(np.count_nonzero(entries))
            self.about = replace(self.about, entries=count)
        if sparse.issparse(X):
            self._write("X.columns", X.indices.astype(np.int32, copy=False))
            self._write("X.ends", self._counted("X", X.indptr))
        self._write("X.values", entries)

    def _add_labels(self, Y: Any, rows: int) -> None:
        begun, counted = self.about.rows > 0, self.about.labels
        if not sparse.issparse(Y) and np.ndim(Y) == 1:
            if np.asarray(Y).dtype.kind not in "iu" or (begun and not self._classes):
                raise InputError(
                    "Labels of one dimension are classes, and must be whole numbers in all rows. "
                    "For sets of labels give a 0 or a 1 for each label of a row."
                )
            values, codes = np.unique(Y, return_inverse=True)
            for value in values.tolist():
                self._classes.setdefault(value, len(self._classes))
            numbers = np.array([self._classes[value] for value in values.tolist()], np.int32)
            columns, ends = numbers[codes.ravel()], np.arange(rows + 1)
            marks = np.ones(rows, np.uint8)
        else:
            columns, ends, marks = _marks(Y, self.about.rows)
            if begun and (self._classes or Y.shape[1] != counted):
                raise InputError(
                    f"All rows must have the same labels; from row {self.about.rows} on they have "
                    f"{Y.shape[1]}, and before {counted or 'classes'}."
                )
            missing = self.about.missing or bool((marks == MISSING).any())
            self.about = replace(self.about, labels=Y.shape[1], missing=missing)
        self._write("Y.columns", columns)
        self._write("Y.marks", marks)
        self._write("Y.ends", self._counted("Y", ends))

    def _counted(self, name: str, offsets: np.ndarray) -> np.ndarray:
        """Return where rows end, counted from the first of all."""
        ends = self._ends[name] + (offsets[1:] - offsets[0]).astype(np.int64)
        self._ends[name] = int(ends[-1])
        return ends

    def _write(self, name: str, array: np.ndarray) -> None:
        if name not in self._files:
            self._files[name] = (self._partial / name).open("wb")
            self._hashers[name] = hashlib.blake2b(digest_size=16)
        content = np.ascontiguousarray(array).data.cast("B") if array.size else b""
        self._files[name].write(content)
        self._hashers[name].update(content)


def _only_field(passed: InputRows) -> np.ndarray:
    """Return inputs of a kind that a store can hold: one array for all rows."""
    field = passed.fields.get("")
    if field is None or not hasattr(field, "numpy"):
        raise InputError(
            "Rows that come part by part must be arrays of one shape; dicts of arrays and lists of "
            "different lengths must fit in memory. Fill lists up to one length."
        )
    return field.numpy()  # type: ignore[union-attr]


def _marks(Y: Any, before: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what is not 0 in labels: columns, offsets of rows, and 1 or MISSING for each."""
    if not sparse.issparse(Y):
        Y = np.asarray(Y)
        if Y.ndim != 2 or Y.dtype.kind not in "biuf":
            raise InputError(
                f"Labels must be rows of 0 and 1; received shape {Y.shape} of type {Y.dtype}."
            )
    if Y.shape[1] == 0:
        raise InputError("Y has no columns: there is no label to learn.")
    Y = sparse.csr_array(compressed_rows(Y, "Y") if sparse.issparse(Y) else Y, copy=True)
    Y.eliminate_zeros()
    missing = np.isnan(Y.data)
    wrong = Y.data[~(missing | (Y.data == 1))]
    if len(wrong):
        raise InputError(
            "Y must hold only 0 and 1 (or nan for a missing label); among rows "
            f"{before} to {before + Y.shape[0] - 1} it holds "
            f"{wrong[0]:g}."
        )
    marks = np.where(missing, MISSING, 1).astype(np.uint8)
    return Y.indices.astype(np.int32), Y.indptr, marks


def _size(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape)) + " numbers"


class RowStore:
    """A store that was written, open to be read.

    Attributes:
        about: what it holds.
        step: how many rows a block has; the last may have fewer.
    """

    def __init__(self, folder: Path, about: About, files: dict[str, Any], close: Any) -> None:
        self.about, self._files, self._close = about, files, close
        held = sum((folder / name).stat().st_size for name in files)
        self.step = int(np.clip(BLOCK * about.rows // held, 1, MOST_BLOCK_ROWS))
        self.bytes = held

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open a store, or say that it is damaged."""
        with ExitStack() as opened:
            try:
                told = json.loads((folder / ABOUT).read_bytes())
                told["features"] = tuple(told["features"])
                told["classes"] = None if told["classes"] is None else tuple(told["classes"])
                about = About(**told)
                names = ["digests", "weight", "X.values", "Y.columns", "Y.marks", "Y.ends"]
                names += ["X.columns", "X.ends"] if about.sparse else []
                files = {n: opened.enter_context((folder / n).open("rb")) for n in names}
                store = cls(folder, about, files, opened)
                store._check(folder)
            except (OSError, ValueError, TypeError, KeyError) as problem:
                raise CheckpointError(
                    f"{folder} is damaged: {problem}. Remove it to have the rows read again."
                ) from None
            store._close = opened.pop_all()
            return store

    def close(self) -> None:
        """Close its files."""
        self._close.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def _check(self, folder: Path) -> None:
        about = self.about
        if about.format != FORMAT:
            raise ValueError(f"it is of format {about.format}, not {FORMAT}")
        ends = {name: self._last(f"{name}.ends") for name in ("Y", *("X" * about.sparse))}
        size = int(np.prod(about.features)) * about.rows
        wanted = {"digests": 8 * about.rows, "weight": 4 * about.rows, "Y.ends": 8 * about.rows}
        wanted |= {"Y.columns": 4 * ends["Y"], "Y.marks": ends["Y"]}
        numbers = ends["X"] if about.sparse else size
        wanted |= {"X.values": np.dtype(about.dtype).itemsize * numbers}
        wanted |= {"X.columns": 4 * numbers, "X.ends": 8 * about.rows} if about.sparse else {}
        for name, size in wanted.items():
            found = (folder / name).stat().st_size
            if found != size:
                raise ValueError(f"{name} has {found:,} bytes and should have {size:,}")

    def _last(self, name: str) -> int:
        return int(self._read(name, np.int64, self.about.rows - 1, self.about.rows)[0])

    def spans(self, blocks: int = 1) -> list[tuple[int, int]]:
        """Return the first row and the end of so many blocks at a time."""
        rows, step = self.about.rows, blocks * self.step
        return [(first, min(first + step, rows)) for first in range(0, rows, step)]

    def block(self, first: int, end: int) -> Split:
        """Return the rows from ``first`` up to ``end`` as they came.

        Y is a CSR matrix of 1 and, where a label is missing, ``MISSING``.
        """
        about, count = self.about, end - first
        if about.sparse:
            values, columns, offsets = self._entries("X", np.float32, "values", first, end)
            shape = (count, *about.features)
            X: Any = sparse.csr_array((values, columns, offsets), shape=shape)
        else:
            size = int(np.prod(about.features))
            X = self._read("X.values", about.dtype, first * size, end * size)
            X = X.reshape(count, *about.features)
        labels = self.labels(first, end)
        return Split(X, labels.Y, labels.weight)

    def labels(self, first: int, end: int) -> Split:
        """Return the labels and the weights of rows, as ``block`` does; their X is empty."""
        about, count = self.about, end - first
        marks, columns, offsets = self._entries("Y", np.uint8, "marks", first, end)
        if about.classes is not None:
            columns = self._places[columns]
        Y = sparse.csr_array((marks, columns, offsets), shape=(count, about.labels))
        weight = self._read("weight", np.float32, first, end) if about.weighted else None
        return Split(np.empty((count, 0)), Y, weight)

    def digests(self, first: int, end: int) -> np.ndarray:
        """Return a 64-bit digest of each row from ``first`` up to ``end``."""
        return self._read("digests", np.int64, first, end)

    @cached_property
    def _places(self) -> np.ndarray:
        """Where each class stands among all in order."""
        return np.argsort(np.argsort(self.about.classes)).astype(np.int32)  # type: ignore[arg-type]

    def _entries(
        self, name: str, dtype: Any, values: str, first: int, end: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        ends = self._read(f"{name}.ends", np.int64, max(first - 1, 0), end)
        offsets = ends if first else np.concatenate([[0], ends])
        begin, last = int(offsets[0]), int(offsets[-1])
        found = self._read(f"{name}.{values}", dtype, begin, last)
        return found, self._read(f"{name}.columns", np.int32, begin, last), offsets - begin

    def _read(self, name: str, dtype: Any, first: int, end: int) -> np.ndarray:
        """Return numbers of a file by their places."""
        array = np.empty(end - first, dtype)
        file = self._files[name]
        file.seek(first * array.itemsize)
        if file.readinto(array.data.cast("B")) != array.nbytes:
            raise CheckpointError(f"{file.name} has been cut short while it was in use.")
        return array


def copy_stream(
    parts: Iterator[Split], writer: StoreWriter, progress: Callable[[int], None]
) -> None:
    """Write all rows of a stream, and finish; of a stream that fails nothing is left."""
    try:
        for part in parts:
            if part.X.shape[0]:
                writer.add(part)
                progress(writer.about.rows)
        writer.finish()
    except BaseException:
        writer.abandon()
        raise
