"""Files as commands take them: which labels, which rows, for which model."""

from __future__ import annotations

import csv
import math
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spen.batch.splits import Split
    from spen.data.dataset import Dataset
    from spen.estimators.base import LabelClassifier


LABEL_COLUMN = "labels in column"
"""The note of a model file that names the column of tags that the model was fitted on."""

ROWS_AT_ONCE = 4096
"""Rows of a data set that are predicted together."""


def out_or_default(out: Path | None, data: str, ending: str) -> Path:
    """Return where to write, checked: what --out says, or a new file in the current folder.

    Args:
        out: what --out says; None for the data's name with the ending.
        data: a file, a folder or a name.
        ending: of the file's name.
    """
    from spen.errors import InputError

    if out is None:
        name = Path(data).resolve().name.removesuffix(".gz")
        out = Path(Path(name).stem + ending)
        if out.exists():
            raise InputError(
                f"{out} is already there. Add --out {out} to write over it, or name another file."
            )
    check_out(out)
    return out


def check_out(path: Path) -> None:
    """Find out before long work, not after, that its result cannot be written to a file.

    What writing needs is done, and undone: folders are made, and a file beside the other one.
    """
    from spen.errors import InputError

    # As it is written: the file that a link points to.
    place = Path(os.path.realpath(path))
    made: list[Path] = []
    try:
        for folder in reversed(place.parents):
            if not folder.is_dir():
                folder.mkdir()
                made.append(folder)
        if place.is_dir():
            what = f"--out {path} is a folder. Name a file in it, such as {path / 'new'}."
            raise InputError(what)
        # A pipe or a device is written to; nothing takes its place.
        if place.is_file() or not place.exists():
            with tempfile.TemporaryFile(dir=place.parent):
                pass
        elif not os.access(place, os.W_OK):
            raise PermissionError(0, "you may not write to it")
    except OSError as problem:
        what = f"--out {path} cannot be written: {problem.strerror}. Name another file."
        raise InputError(what) from None
    finally:
        for folder in reversed(made):
            with suppress(OSError):
                folder.rmdir()


def parse_labels(text: str | None) -> Any:
    """Read the option ``--labels``: an XML file, a count, or names between commas.

    >>> parse_labels("sun,sea"), parse_labels("-3"), parse_labels("yeast.xml"), parse_labels(None)
    (['sun', 'sea'], -3, PosixPath('yeast.xml'), None)
    """
    if text is None:
        return None
    if text.lower().endswith(".xml"):
        return Path(text)
    if text.lstrip("+-").isdigit():
        return int(text)
    return split_names(text)


def split_names(text: str) -> list[str]:
    """Read an option that names columns between commas."""
    return [name.strip() for name in text.split(",")]


def label_names(classifier: LabelClassifier) -> list[str]:
    """Return the names of a model's labels as files spell them."""
    return [str(name) for name in classifier.label_names_.tolist()]


def with_known(
    chunks: Iterable[Split], text: str | None, classifier: LabelClassifier
) -> Iterator[tuple[Split, list[dict[Any, float]] | None]]:
    """Yield chunks of rows, each with what the option ``--known`` says of its rows.

    Args:
        chunks: of the rows.
        text: a CSV file with labels as its columns and 1, 0 or nothing in its cells; labels for
            all rows, such as ``sport=1,news=0`` (commas in names are quoted as in CSV); or None.
        classifier: the model.
    """
    from spen.errors import InputError

    if text is None:
        yield from ((chunk, None) for chunk in chunks)
        return
    named = is_file(text)
    known = _known_of_file(text, classifier) if named else repeat(known_of_all(text, classifier))
    for chunk in chunks:
        found = list(islice(known, len(chunk)))
        if len(found) < len(chunk):
            raise InputError(f"--known {text} has fewer rows than there are to predict.")
        yield chunk, found
    if named and next(known, None) is not None:
        raise InputError(f"--known {text} has more rows than there are to predict.")


def is_file(text: str) -> bool:
    """Say whether a text names a file; Path.is_file fails of a list of labels that is long."""
    return os.path.isfile(text)  # noqa: PTH113


def known_of_all(text: str, classifier: LabelClassifier) -> dict[Any, float]:
    """Read the option ``--known`` where it is no file: labels for all rows."""
    from spen.errors import InputError

    pairs = [pair.rpartition("=") for pair in next(csv.reader([text]), [])]
    if not pairs or not all(middle for _, middle, _ in pairs):
        raise InputError(
            "--known takes labels such as sport=1,news=0, or a CSV file with labels as its "
            f"columns; there is no file {text!r}."
        )
    names = own_names([name.strip() for name, _, _ in pairs], classifier)
    values = [_known(value, f"--known {name}") for name, _, value in pairs]
    return dict(zip(names, values, strict=True))


def _known_of_file(path: str, classifier: LabelClassifier) -> Iterator[dict[Any, float]]:
    from spen.errors import InputError

    with Path(path).open(encoding="utf-8-sig", newline="") as file:
        lines = csv.reader(file)
        header = [name.strip() for name in next(lines, [])]
        names = own_names(header, classifier)
        for cells in lines:
            place = f"{path}, line {lines.line_num}"
            if len(cells) != len(names) and (cells or len(names) > 1):
                raise InputError(f"{place}: expected {len(names)} cells; found {len(cells)}.")
            places = [f"{place}, column {name!r}" for name in header]
            values = map(_known, cells or [""], places)
            yield dict(zip(names, values, strict=True))


def own_names(given: list[str], classifier: LabelClassifier) -> list[Any]:
    """Return a model's labels by what they are called at the command line."""
    from spen.errors import InputError, choose

    if len(set(given)) < len(given):
        raise InputError("--known names a label twice.")
    names = dict(zip(label_names(classifier), classifier.label_names_.tolist(), strict=True))
    return [choose(name, names, "label") for name in given]


def _known(text: str, place: str) -> float:
    from spen.errors import InputError

    with suppress(ValueError):
        value = float(math.nan if text.strip() in ("", "?") else text)
        if value in (0, 1) or math.isnan(value):
            return value
    raise InputError(f"{place}: expected 1, 0, or nothing for a label to infer; found {text!r}.")


def check_features(names: Sequence[str], classifier: LabelClassifier, path: object) -> None:
    """Raise unless a file's features are those that a model was fitted on."""
    from spen.errors import InputError
    from spen.estimators.base import width_of_matrix

    width = width_of_matrix(classifier, f"{path}")
    if len(names) != width:
        raise InputError(f"{path} has {len(names)} features, but the model was fitted on {width}.")
    if classifier.feature_names_ is None:
        return
    for column, (have, want) in enumerate(zip(names, classifier.feature_names_, strict=True)):
        if have != want:
            raise InputError(
                f"Feature {column + 1} of {path} is {have!r}, but the model was fitted with "
                f"{want!r} there. Put the columns in the order of the training file."
            )


def counts_from_zero(classifier: LabelClassifier) -> bool | None:
    """Return how the LIBSVM file that a model was fitted on counts features; None: not known.

    A file to predict may happen to have no row with its first feature, which would look like
    the other way of counting.
    """
    names = classifier.feature_names_
    return None if names is None else {"x0": True, "x1": False}.get(names[0])


def check_kind(file: str, format: str | None, sentences: bool) -> None:
    """Raise where a file holds sentences and the model takes rows, or the other way round.

    Args:
        file: a file; what is none, such as a name, is not looked at.
        format: the file's, where it is given.
        sentences: whether the model takes sentences.
    """
    from spen.data.catalog import ENTRIES
    from spen.data.load import recognise
    from spen.errors import InputError

    if file in ENTRIES or not is_file(file):
        return
    found = format or recognise(Path(file))
    if sentences and found != "conll":
        raise InputError(
            "The model is a tagger, which takes sentences as CoNLL files have them, and "
            f"{file} holds rows of {found.upper()}. Name a CoNLL file, or a model of such rows."
        )
    if not sentences and found == "conll":
        raise InputError(
            f"The model takes rows, and {file} holds sentences, as CoNLL files have them. Name a "
            "file of rows, or a tagger."
        )


def rows_to_predict(classifier: LabelClassifier, file: str, format: str | None) -> Iterable[Split]:
    """Return the rows to predict, some at a time."""
    from spen.data.catalog import ENTRIES
    from spen.data.load import open_rows
    from spen.estimators.base import width_of_matrix

    path = Path(file)
    if file in ENTRIES or path.is_dir() or not path.exists():
        data = dataset_for(classifier, file, format)
        part = data.train if data.test is None else data.test
        starts = range(0, len(part), ROWS_AT_ONCE)
        return (part.rows(slice(start, start + ROWS_AT_ONCE)) for start in starts)
    check_kind(file, format, sentences=False)
    if classifier.encoder_ is not None:
        # It finds its columns by their names.
        return open_rows(file, format=format, labels_required=False, words=True).chunks()
    rows = open_rows(
        file,
        format=format,
        labels=classifier.notes_.get(LABEL_COLUMN) or label_names(classifier),
        n_features=width_of_matrix(classifier, "A file of rows"),
        zero_based=counts_from_zero(classifier),
        labels_required=False,
    )
    check_features(rows.feature_names, classifier, file)
    return rows.chunks()


def dataset_for(
    classifier: LabelClassifier, data: str, format: str | None = None, labels: str | None = None
) -> Dataset:
    """Load a file, or a data set by its name, with the features and labels in a model's order.

    Args:
        classifier: the model.
        data: a file, or a name from `spen data list`.
        format: the file's format, where it cannot be recognised.
        labels: the column that holds tags; None: the one of the file that the model was fitted on.
    """
    from dataclasses import replace

    from spen.data.load import load_dataset
    from spen.estimators.base import width_of_matrix

    check_kind(data, format, sentences=False)
    names, is_table = label_names(classifier), classifier.encoder_ is not None
    column = labels or classifier.notes_.get(LABEL_COLUMN)
    found = load_dataset(
        data,
        format=format,
        labels=column or names,
        n_features=None if is_table else width_of_matrix(classifier, "A file of rows"),
        zero_based=None if is_table else counts_from_zero(classifier),
        n_labels=None if column else len(names),
        words=is_table,
    )
    if not is_table:
        check_features(found.feature_names, classifier, data)
    given = [str(name) for name in found.label_names]
    unknown = sorted(set(given) - set(names))
    if unknown:
        print(  # noqa: T201
            f"spen: {len(unknown)} labels of {data} are left out, as the model does not know them: "
            f"{', '.join(unknown[:5])}{', …' if len(unknown) > 5 else ''}.",
            file=sys.stderr,
        )
    parts = {
        part: None if split is None else replace(split, Y=in_order(split.Y, given, names))
        for part, split in (("train", found.train), ("test", found.test))
    }
    return replace(found, **parts)


def in_order(Y: Any, given: list[str], wanted: list[str]) -> Any:
    """Return the columns of Y in another order; one that is not there is all zero."""
    from scipy import sparse

    place = {name: column for column, name in enumerate(given)}
    if all(name in place for name in wanted):
        return Y[:, [place[name] for name in wanted]]
    pairs = [(place[name], column) for column, name in enumerate(wanted) if name in place]
    rows, columns = zip(*pairs, strict=True) if pairs else ((), ())
    moved = sparse.csr_matrix(([1] * len(pairs), (rows, columns)), (len(given), len(wanted)))
    return Y @ moved.astype(Y.dtype)


def table_encoder(columns: dict[str, str | None], text_encoder: str | None = None) -> Any:
    """Return the encoder that options ask for, or None where none of them is given.

    Args:
        columns: what columns are, as options name them, by the settings of ``TableEncoder``.
        text_encoder: the model that encodes text, by name.
    """
    from spen.estimators.tables import TableEncoder

    asked = {kind: split_names(names) for kind, names in columns.items() if names is not None}
    if not asked and text_encoder is None:
        return None
    settings: dict[str, Any] = {**asked, "text_encoder": text_encoder}
    return TableEncoder(**settings)
