"""Data sets by name, by folder or by file, and files of any format as rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from os import PathLike
from pathlib import Path

import numpy as np

from spen.data.arff import ArffReader
from spen.data.conll import ConllReader, looks_like_conll
from spen.data.dataset import Dataset
from spen.data.parquet import ParquetReader
from spen.data.reader import (
    FORMATS,
    Labels,
    Options,
    RowReader,
    encoding_of,
    open_file,
    open_text,
    packed_well,
)
from spen.data.shards import ShardReader, check_alike, files_of
from spen.data.sparse_text import SIZES, LibsvmReader, XmcReader
from spen.data.table import DELIMITERS, CsvReader, NpzReader, WordsError
from spen.data.words import CsvWordReader, JsonLinesReader
from spen.errors import InputError, MissingPackageError, did_you_mean

SUFFIXES = (".arff", ".txt", ".svm", ".libsvm", ".csv", ".tsv", ".jsonl", ".npz", ".conll")
SUFFIXES += (".parquet",)
READERS = {"mulan": ArffReader, "meka": ArffReader, "xmc": XmcReader}
READERS |= {"libsvm": LibsvmReader, "csv": CsvReader, "jsonl": JsonLinesReader, "npz": NpzReader}
READERS |= {"conll": ConllReader, "parquet": ParquetReader}
_LOOK = 1 << 16
_PAIRS = re.compile(
    r"([0-9]+(,[0-9]+)*)?([ \t]+|^)[0-9]+:[^ \t:]+([ \t]+[0-9]+:[^ \t:]+)*[ \t]*(#.*)?"
)
_HEADER = re.compile("@(relation|attribute|data)\\b", re.IGNORECASE)
_PART = re.compile(
    r"(?:^|[-_.])(?P<part>train|trn|training|test|tst|testing|valid|validation|val|dev)(?=$|[-_.])",
    re.IGNORECASE,
)
_PARTS = {"tr": "train", "te": "test", "ts": "test", "va": "valid", "de": "valid"}


def load_dataset(
    source: str | PathLike[str],
    *,
    format: str | None = None,
    labels: Labels = None,
    n_features: int | None = None,
    n_labels: int | None = None,
    zero_based: bool | None = None,
    words: bool = False,
) -> Dataset:
    """Read a data set: its training part and, where there are some, its test and other parts.

    A name is looked up in the folder ``SPEN_DATA`` or the user's cache. A folder holds files
    that say ``train`` and ``test`` (and ``valid`` or ``dev``) in their names, or one file.
    A single file is all training data, unless MEKA's ``-split-number`` or the arrays
    ``train`` and ``test`` of an npz file divide it. A folder called like a data set is
    written with a slash: ``./yeast``.

    X is dense float32 for dense files and CSR for sparse ones. Y is CSR of 0 and 1 (int8), or,
    where a label is missing, dense float32 with nan. Columns keep the order of the file. Of tables
    with words, dates, text or missing cells (CSV, JSON lines), X is a DataFrame: this needs pandas,
    ``pip install 'spen[tables]'``. Text files may be compressed by gzip.

    Of CoNLL files, which hold sentences with a tag for each token, X and Y are arrays of lists: the
    tokens and the tags of each sentence. A token is a word, or where the file has several columns
    beside the tags a dict, column → text.

    Args:
        source: a name, of which ``spen data list`` prints all; a folder; or a file.
        format, labels, n_features, n_labels, zero_based: as in ``spen.data.load.open_rows``.
        words: True reads a CSV file of numbers as a DataFrame too.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     text = "2 3 2\\n0,1 0:1.0 2:0.5\\n 1:2.0\\n"
    ...     for part in ("train", "test"):
    ...         _ = (Path(folder) / f"{part}.txt").write_text(text)
    ...     data = load_dataset(folder)
    >>> data.train.X.toarray().tolist(), data.test.Y.toarray().tolist()
    ([[1.0, 0.0, 0.5], [0.0, 2.0, 0.0]], [[1, 1], [0, 0]])
    """
    options = Options(format, labels, n_features, n_labels, zero_based, words=words)
    if not isinstance(source, str | PathLike):
        raise InputError(f"source must be a name or a path; received {type(source).__name__}.")
    if isinstance(source, str):
        from spen.data.catalog import ENTRIES, locate

        if source in ENTRIES:
            entry, folder = ENTRIES[source], locate(source)
            if entry.parts:
                from spen.data.tagged import load_tagged

                return load_tagged(entry, folder)
            files = [folder / file.name for file in entry.files if file.name.endswith(".arff")]
            groups, alone = _group(files)
            if labels is None and n_labels is None:
                # A file of label names whose checksum is not known must name as many as there are.
                options = replace(options, n_labels=entry.n_labels)
            return _load(source, groups[0] if groups else alone[0], options, entry.row_split)
        if not Path(source).exists() and not any(sign in source for sign in "/\\."):
            hint = did_you_mean(source, ENTRIES)
            raise InputError(f"There is no data set and no file called {source!r}. {hint}")
    path = Path(source)
    if path.is_dir():
        return _load(path.resolve().name, find_parts(path, format), options)
    return _load(_unpacked(path).stem, {"train": path}, options)


def open_rows(
    path: Path | str,
    *,
    format: str | None = None,
    labels: Labels = None,
    n_features: int | None = None,
    n_labels: int | None = None,
    zero_based: bool | None = None,
    labels_required: bool = True,
    also: Sequence[Path] = (),
    words: bool = False,
) -> RowReader:
    """Open a file, or all files of a folder, and return a reader: names and sizes now, rows when
    asked for.

    ``SPENClassifier.fit`` takes the reader in place of X and y, and ``chunks`` gives the rows some
    at a time as splits (n, d) and (n, L): ``X, Y = chunk.X, chunk.Y``. Memory is bounded by what is
    asked for, not by the file (but an npz file, or a shard that is one, is read whole).

    Args:
        path: the file; or shards: a folder of files of one kind, or a pattern such as
            ``rows/*.parquet``, in the order of their names.
        format: "mulan", "meka", "xmc", "libsvm", "csv", "jsonl", "npz", "parquet" (with pyarrow) or
            "conll"; None: told by content.
        labels: which columns are labels. ARFF: an XML file, names of attributes, or a number
            as in MEKA's -C (the first n; the last n if negative). CSV and JSON lines: names of
            columns, or such a number, or the one column that holds tags (see
            ``spen.data.words.Tags``). CoNLL: the number of the column that holds the tags, from 0
            or from −1 backwards, which is the default. Other formats: names for the labels, which
            the file does not have.
        n_features, n_labels: the sizes of LIBSVM text, which does not declare them; for other
            formats they are compared with what the file has.
        zero_based: whether features of LIBSVM text count from 0; None: if some row has a 0.
        labels_required: False for rows to predict: of the labels, those that are there are
            taken, and Y is None where there are none.
        also: the other parts of the same data set, which share the sizes of LIBSVM text, and tags.
        words: whether the cells of a CSV file may be words; X is then a DataFrame.

    >>> import tempfile
    >>> from pathlib import Path
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
    sizes = n_features, n_labels, zero_based
    options = Options(format, labels, *sizes, labels_required, also, words)
    files = files_of(Path(path))
    if files is None:
        return _open(Path(path), options)
    _check_shards(Path(path), files)
    return ShardReader(Path(path), files, options, _open)


def _check_shards(folder: Path, files: Sequence[Path]) -> None:
    """Refuse a folder whose files say that they are parts of one data set: some judge others."""
    named = [(path, _PART.search(_unpacked(path).stem)) for path in files]
    parts = {_PARTS[match["part"][:2].lower()]: path for path, match in named if match}
    if len(parts) > 1 or (parts and "train" not in parts and folder.is_dir()):
        names = ", ".join(sorted(path.name for path in parts.values()))
        raise InputError(
            f"{folder} holds files that are by their names parts of one data set: {names}. Name "
            f"those that are meant, such as '{folder}/train*'."
        )


def _open(path: Path, options: Options) -> RowReader:
    kind = READERS[options.format or recognise(path)]
    has_words = kind is CsvReader and options.words
    try:
        reader: RowReader = (CsvWordReader if has_words else kind)(path, options)
    except InputError as problem:
        found = looks_like(path) if options.format and path.is_file() else None
        if found is None or READERS[found] is kind:
            raise
        name = "arff" if found == "mulan" else found
        raise InputError(f"{problem} The file looks like {name}.") from None
    n_labels = options.n_labels if options.labels_required else None
    for what, asked in (("features", options.n_features), ("labels", n_labels)):
        has = getattr(reader, f"n_{what}")
        if asked is not None and asked != has:
            raise InputError(f"{path} has {has} {what}; n_{what} says {asked}.")
    return reader


def _load(
    name: str, files: dict[str, Path], options: Options, row_split: Sequence[int] | None = None
) -> Dataset:
    readers = {}
    for part, path in files.items():
        others = [other for other in files.values() if other != path]
        readers[part] = _open(path, replace(options, also=others))
    first = readers["train"]
    for reader in readers.values():
        check_alike(first, reader)
    try:
        splits = {part: reader.read() for part, reader in readers.items()}
    except WordsError as problem:
        if options.words:
            raise
        if find_spec("pandas") is None:
            what = f"{problem} Tables with words or missing cells need the package pandas: "
            raise MissingPackageError(f"{what}pip install 'spen[tables]'.") from None
        return _load(name, files, replace(options, words=True), row_split)
    if len(splits) == 1:
        rows = splits["train"]
        total = len(rows)
        parts = first.divide(total) if row_split is None else _cut(first.path, total, row_split)
        splits |= {part: rows.rows(index) for part, index in parts.items()}
    names = first.feature_names, first.label_names
    parts = splits["train"], splits.get("test")
    return Dataset(name, *parts, *names, splits.get("valid"), first.label_column)


def _unpacked(path: Path) -> Path:
    """Return a path without the ending of a compressed file."""
    return path.with_suffix("") if path.suffix.lower() == ".gz" else path


def _cut(path: Path, total: int, sizes: Sequence[int]) -> dict[str, slice]:
    if sum(sizes) != total:
        what = f"has {total} rows; the data set has {sum(sizes)}. Fetch the file again."
        raise InputError(f"{path} {what}")
    parts = zip(("train", "valid", "test"), sizes, np.cumsum(sizes), strict=True)
    return {part: slice(end - size, end) for part, size, end in parts}


def looks_like(path: Path) -> str | None:
    """Return the format of a file, or None if it cannot be told.

    ARFF counts as "mulan" here; the reader tells whether it is MEKA's.
    """
    with open_text(path) as file, packed_well(path):
        content = file.read(_LOOK)
    if content.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "npz"
    if content.startswith(b"PAR1"):
        return "parquet"
    if len(content) == _LOOK:
        content = content.rpartition(b"\n")[0] or content
    suffix = _unpacked(path).suffix.lower()
    lines = content.decode("latin-1").replace("\r\n", "\n").split("\n")
    if suffix == ".conll":
        return "conll"
    is_tagged = suffix not in (".csv", ".tsv") and looks_like_conll(lines)
    lines = [line for line in lines if line.strip()]
    first = next((line.strip() for line in lines if not line.lstrip().startswith("%")), "")
    # A tweet may begin with somebody's name.
    if first.startswith("@") and not (is_tagged and not _HEADER.match(first)):
        return "mulan"
    if first.startswith("{"):
        return "jsonl"
    if lines and SIZES.fullmatch(lines[0]):
        return "xmc"
    # A row may have no features; the first that has some tells.
    rows = [line for line in lines[:100] if not line.startswith("#")]
    telling = next((line for line in rows if ":" in line), "")
    # A token may be a time of day.
    told = [row[:1000] for row in rows] if is_tagged else [telling[:1000]]
    if telling and all(map(_PAIRS.match, told)):
        return "libsvm"
    if is_tagged:
        return "conll"
    header = lines[0] if lines else ""
    is_named = bool(header) and suffix == ".csv"
    if not is_named and not any(delimiter in header for delimiter in DELIMITERS):
        return None
    # Mostly it is UTF-8, which was read as Latin-1.
    raw = header.encode("latin-1")
    text = raw.decode(encoding_of(raw))
    return "csv" if text.replace("\t", " ").isprintable() else None


_SPREADSHEETS = (".xlsx", ".xlsm", ".xls", ".ods")


def recognise(path: Path) -> str:
    """Return the format of a file, or raise an error that names the choices."""
    found = looks_like(path)
    if found in (None, "npz") and path.suffix.lower() in _SPREADSHEETS:
        raise InputError(f"{path} is a spreadsheet. Save the sheet that holds the rows as CSV.")
    if found is not None:
        return found
    with open_file(path) as file:
        start = file.read(2)
    if not start:
        raise InputError(f"{path} is empty.")
    raise InputError(
        f"{path} is in no format that can be told from its first lines. Name it with format=: "
        f"{', '.join(FORMATS)}."
    )


def find_parts(folder: Path, format: str | None = None) -> dict[str, Path]:
    """Return the files of a folder's data set by part, or raise an error that lists what is there.

    Files belong together if their names differ only in ``train``, ``test`` and the like. A
    group with a training and a test file is preferred to others, and those to a lone file.

    Args:
        folder: the folder; folders in it are not looked into.
        format: consider only files of this format.
    """
    try:
        files = sorted(path for path in folder.iterdir() if path.is_file())
    except OSError as problem:
        raise InputError(f"{folder} cannot be read: {problem}.") from None
    groups, alone = _group(path for path in files if _is_data(path, format))
    whole = [group for group in groups if "test" in group]
    for choice in (whole, groups, alone):
        if len(choice) == 1:
            return choice[0]
        if choice:
            names = ", ".join(group["train"].name for group in choice)
            what = f"holds more than one data set: {names}. Name a file, or a format."
            raise InputError(f"{folder} {what}")
    listed = ", ".join(path.name for path in files[:20]) or "nothing"
    raise InputError(
        f"{folder} holds no data set{f' of format {format}' if format else ''}. Expected files "
        f"such as NAME-train.arff and NAME-test.arff, or train.txt and test.txt; found {listed}."
    )


def _group(files: Iterable[Path]) -> tuple[list[dict[str, Path]], list[dict[str, Path]]]:
    """Return (files that go together, by part; files that say nothing about their part)."""
    groups: dict[str, dict[str, Path]] = {}
    alone = []
    for path in files:
        name = path.name
        match = _PART.search(_unpacked(path).stem)
        if match is None:
            alone.append({"train": path})
            continue
        part = _PARTS[match["part"][:2].lower()]
        rest = f"{name[: match.start('part')]}*{name[match.end('part') :]}"
        groups.setdefault(rest, {}).setdefault(part, path)
    return [group for group in groups.values() if "train" in group], alone


def _is_data(path: Path, format: str | None) -> bool:
    suffix = _unpacked(path).suffix.lower()
    if suffix not in SUFFIXES:
        return False
    try:
        found = looks_like(path)
    except InputError:
        return False
    # Notes beside the data are text as well; text that only looks like a table is not data.
    if suffix == ".txt" and found == "csv" and format != "csv":
        return False
    return found is not None and (format is None or READERS[found] is READERS[format])
