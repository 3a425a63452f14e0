"""Data sets by name, by folder or by file."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

import numpy as np

from spen.batch.splits import Split
from spen.data.archive import NpzReader
from spen.data.dataset import Dataset
from spen.data.folder import Parts, find_parts, parts_of_entry
from spen.data.labels import Labels
from spen.data.reader import RowReader
from spen.data.rows import Options
from spen.errors import InputError, did_you_mean


def load_dataset(
    source: str | PathLike[str],
    *,
    format: str | None = None,
    labels: Labels = None,
    n_features: int | None = None,
    n_labels: int | None = None,
    zero_based: bool | None = None,
) -> Dataset:
    """Read a data set: its training part and, where there are some, its test and other parts.

    A name is looked up in the folder ``SPEN_DATA`` or the user's cache. A folder holds files
    that say ``train`` and ``test`` (and ``valid`` or ``dev``) in their names, or one file.
    A single file is all training data, unless MEKA's ``-split-number`` or the arrays
    ``train`` and ``test`` of an npz file divide it. A folder called like a data set is
    written with a slash: ``./yeast``.

    X is dense float32 for dense files and CSR for sparse ones. Y is CSR of 0 and 1 (int8), or,
    where a label is missing, dense float32 with nan. Columns keep the order of the file.

    Args:
        source: bibtex, bookmarks, delicious or yeast; a folder; or a file.
        format, labels, n_features, n_labels, zero_based: as in ``spen.data.rows.open_rows``.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     text = "2 3 2\\n0,1 0:1.0 2:0.5\\n 1:2.0\\n"
    ...     for part in ("train", "test"):
    ...         _ = (Path(folder) / f"{part}.txt").write_text(text)
    ...     data = load_dataset(folder)
    >>> data.train.X.toarray().tolist(), data.test.Y.toarray().tolist()
    ([[1.0, 0.0, 0.5], [0.0, 2.0, 0.0]], [[1, 1], [0, 0]])
    """
    options = Options(format, labels, n_features, n_labels, zero_based)
    if not isinstance(source, str | PathLike):
        raise InputError(f"source must be a name or a path; received {type(source).__name__}.")
    if isinstance(source, str):
        from spen.data.catalog import ENTRIES, locate

        if source in ENTRIES:
            entry = ENTRIES[source]
            parts = parts_of_entry(locate(source), [file.name for file in entry.files])
            return _load(source, parts, options, entry.row_split)
        if not Path(source).exists() and not any(sign in source for sign in "/\\."):
            hint = did_you_mean(source, ENTRIES)
            raise InputError(f"There is no data set and no file called {source!r}. {hint}")
    path = Path(source)
    if path.is_dir():
        return _load(path.resolve().name, find_parts(path, format), options)
    return _load(path.stem, Parts(path), options)


def _load(
    name: str, parts: Parts, options: Options, row_split: tuple[int, int, int] | None = None
) -> Dataset:
    files = {"train": parts.train, "test": parts.test, "valid": parts.valid}
    paths = [path for path in files.values() if path is not None]
    readers = {
        part: options.open(path, also=[other for other in paths if other != path])
        for part, path in files.items()
        if path is not None
    }
    first = readers["train"]
    for reader in readers.values():
        _check_alike(first, reader)
    splits: dict[str, Split] = {part: reader.read() for part, reader in readers.items()}
    if len(splits) == 1:
        splits = _divide(first, splits["train"], row_split)
    return Dataset(
        name=name,
        train=splits["train"],
        test=splits.get("test"),
        feature_names=first.feature_names,
        label_names=first.label_names,
        valid=splits.get("valid"),
    )


def _divide(
    reader: RowReader, rows: Split, row_split: tuple[int, int, int] | None
) -> dict[str, Split]:
    """Return the parts of a data set that comes in one file."""
    if row_split is not None:
        if sum(row_split) != len(rows):
            raise InputError(
                f"{reader.path} has {len(rows)} rows; the data set has {sum(row_split)}. "
                "Fetch the file again."
            )
        ends = np.cumsum(row_split)
        return {
            part: rows.rows(slice(end - size, end))
            for part, size, end in zip(("train", "valid", "test"), row_split, ends, strict=True)
        }
    if isinstance(reader, NpzReader) and reader.splits:
        if "train" not in reader.splits:
            raise InputError(f"{reader.path} names test rows but no train rows.")
        return {part: rows.rows(index) for part, index in reader.splits.items()}
    cut = reader.train_rows(len(rows))
    if cut is None:
        return {"train": rows}
    return {"train": rows.rows(slice(0, cut)), "test": rows.rows(slice(cut, len(rows)))}


def _check_alike(first: RowReader, other: RowReader) -> None:
    for what in ("feature", "label"):
        ours, theirs = getattr(first, f"{what}_names"), getattr(other, f"{what}_names")
        if ours == theirs:
            continue
        if len(ours) != len(theirs):
            how = f"{len(ours)} and {len(theirs)}"
        else:
            how = next(f"{a!r} and {b!r}" for a, b in zip(ours, theirs, strict=True) if a != b)
        raise InputError(
            f"{first.path} and {other.path} must have the same {what}s in the same order; "
            f"they differ: {how}."
        )
