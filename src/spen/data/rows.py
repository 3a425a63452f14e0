"""Opens a file of any format, to read its rows in chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from spen.data.archive import NpzReader
from spen.data.arff import ArffReader
from spen.data.digits import LARGEST_COLUMN
from spen.data.labels import Labels
from spen.data.reader import RowReader
from spen.data.recognise import FORMATS, looks_like, recognise
from spen.data.table import CsvReader
from spen.data.text import LibsvmReader, XmcReader
from spen.errors import InputError, choose


def open_rows(
    path: Path | str,
    *,
    format: str | None = None,
    labels: Labels = None,
    n_features: int | None = None,
    n_labels: int | None = None,
    zero_based: bool | None = None,
    labels_required: bool = True,
) -> RowReader:
    """Open a file and return its reader: names and sizes now, rows when asked for.

    Memory is bounded by the chunk that is asked for, not by the file (but an npz file is
    read whole).

    Args:
        path: the file.
        format: "mulan", "meka", "xmc", "libsvm", "csv" or "npz"; None: told by its content.
        labels: which columns are labels. ARFF: an XML file, names of attributes, or a number
            as in MEKA's -C (the first n; the last n if negative). CSV: names of columns, or
            such a number. Other formats: names for the labels, which the file does not have.
        n_features, n_labels: the sizes of LIBSVM text, which does not declare them; for other
            formats they are compared with what the file has.
        zero_based: whether features of LIBSVM text count from 0; None: if some row has a 0.
        labels_required: False for rows to predict: of the labels, those that are there are
            taken, and Y is None where there are none.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name) / "rows.csv"
    >>> _ = path.write_text("height,width,large\\n1.5,2,1\\n0.5,1,0\\n")
    >>> reader = open_rows(path, labels=["large"])
    >>> reader.format, reader.feature_names, reader.label_names
    ('csv', ('height', 'width'), ('large',))
    >>> [chunk.X.tolist() for chunk in reader.chunks(rows=1)]
    [[[1.5, 2.0]], [[0.5, 1.0]]]
    >>> folder.cleanup()
    """
    wanted = Options(format, labels, n_features, n_labels, zero_based, labels_required)
    return wanted.open(Path(path))


@dataclass(frozen=True)
class Options:
    """How to read files; the fields are the arguments of ``open_rows``."""

    format: str | None = None
    labels: Labels = None
    n_features: int | None = None
    n_labels: int | None = None
    zero_based: bool | None = None
    labels_required: bool = True

    def __post_init__(self) -> None:
        if self.format is not None:
            choose(self.format, dict.fromkeys(FORMATS), "format")
        for name in ("n_features", "n_labels"):
            size = getattr(self, name)
            whole = isinstance(size, int) and 1 <= size <= LARGEST_COLUMN + 1
            if size is not None and not whole:
                raise InputError(
                    f"{name} must be a whole number from 1 to {LARGEST_COLUMN + 1}; "
                    f"received {size!r}."
                )

    def open(self, path: Path, also: Sequence[Path] = ()) -> RowReader:
        """Return the reader of a file; ``also`` are the other parts of the same data set."""
        if self.format is None:
            reader = self._reader(path, recognise(path), also)
        else:
            try:
                reader = self._reader(path, self.format, also)
            except InputError as problem:
                found = looks_like(path) if path.is_file() else None
                named = "arff" if self.format in ("mulan", "meka") else self.format
                if found in (None, named):
                    raise
                raise InputError(f"{problem} The file looks like {found}.") from None
        self._compare("n_features", reader.n_features, self.n_features, path)
        if self.labels_required:
            self._compare("n_labels", reader.n_labels, self.n_labels, path)
        return reader

    def _reader(self, path: Path, format: str, also: Sequence[Path]) -> RowReader:
        if format == "xmc":
            return XmcReader(path, self.labels, self.labels_required)
        if format == "npz":
            return NpzReader(path, self.labels, self.labels_required)
        if format == "csv":
            return CsvReader(path, self.labels, self.labels_required)
        if format == "libsvm":
            return LibsvmReader(
                path,
                self.labels,
                self.n_features,
                self.n_labels,
                self.zero_based,
                self.labels_required,
                also,
            )
        return ArffReader(path, self.format, self.labels, self.labels_required)

    def _compare(self, name: str, has: int, asked: int | None, path: Path) -> None:
        if asked is not None and asked != has:
            raise InputError(f"{path} has {has} {name[2:]}; {name} says {asked}.")
