"""``spen predict``: labels for the rows of a file, a few thousand rows at a time."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

from spen.cli.files import LABEL_COLUMN, check_features, check_out, counts_from_zero, label_names
from spen.cli.show import say, show_json, visible

if TYPE_CHECKING:
    import numpy as np

    from spen.data.reader import RowReader
    from spen.estimators.base import LabelClassifier

Kind = Literal["names", "probabilities", "sparse"]


def predict(
    model: Path,
    file: Path,
    *,
    out: Path | None = None,
    write: Kind = "names",
    format: str | None = None,
    device: str = "cpu",
    json: bool = False,
) -> None:
    """Predict the labels of each row of a file.

    The file is read, predicted and written a few thousand rows at a time, so it may be
    larger than memory. Labels that it holds are ignored.

    Args:
        model: A model file that `spen fit` wrote.
        file: Rows with the features of the training file; ARFF, XMC, LIBSVM, CSV, JSON lines or
            npz.
        out: Where to write; without it, predictions go to the standard output.
        write: "names": CSV, the names of a row's labels between semicolons. "probabilities":
            CSV, a column for each label. "sparse": text, a `number:probability` for each label
            that is predicted, numbers from 0.
        format: The file's format, where it cannot be recognised.
        device: Where to compute.
        json: Print one JSON object with the number of rows; needs --out.
    """
    from spen.data.load import open_rows
    from spen.errors import InputError
    from spen.estimators.model_file import load
    from spen.files import open_atomically

    if out is None and sys.stdout is None:
        raise InputError("The standard output is closed. Name a file with --out.")
    if json and out is None:
        raise InputError("--json needs --out: predictions and JSON would mix on the output.")
    if out is not None:
        check_out(out)
    classifier = load(model, device)
    if classifier.encoder_ is not None:
        # It finds its columns by their names.
        rows = open_rows(file, format=format, labels_required=False, words=True)
    else:
        rows = open_rows(
            file,
            format=format,
            labels=classifier.notes_.get(LABEL_COLUMN) or label_names(classifier),
            n_features=classifier.n_features_in_,
            zero_based=counts_from_zero(classifier),
            labels_required=False,
        )
        check_features(rows.feature_names, classifier, file)
    if out is None:
        _write(classifier, rows, write, sys.stdout)
        return
    with open_atomically(out) as binary:
        target = io.TextIOWrapper(binary, encoding="utf-8", newline="")
        count = _write(classifier, rows, write, target)
        target.detach()  # flushes, and leaves the file to be closed and moved
    if json:
        show_json({"model": str(model), "file": str(file), "out": str(out), "rows": count})
    else:
        say(f"Wrote {count:,} rows to {out}")


def _write(classifier: LabelClassifier, rows: RowReader, kind: Kind, target: TextIO) -> int:
    """Write the predictions of all rows; return how many there were."""
    header, lines = _WRITERS[kind]
    names = label_names(classifier)
    if target.isatty():
        names = [visible(name) for name in names]
    writer = csv.writer(target, lineterminator="\n")
    if header is not None:
        writer.writerow(header(names))
    count = 0
    for chunk in rows.chunks():
        probabilities = classifier.predict_proba(chunk.X)
        labels = classifier.decode(probabilities)
        if kind == "sparse":
            target.writelines(lines(labels, probabilities, names))
        else:
            writer.writerows(lines(labels, probabilities, names))
        count += len(chunk)
    return count


def _name_lines(labels: np.ndarray, probabilities: np.ndarray, names: list[str]) -> Any:
    # A semicolon inside a name must not look like one between names.
    safe = [name.replace("\\", "\\\\").replace(";", "\\;") for name in names]
    return ([";".join(safe[i] for i in row.nonzero()[0])] for row in labels)


def _probability_lines(labels: np.ndarray, probabilities: np.ndarray, names: list[str]) -> Any:
    return ([f"{value:.6g}" for value in row] for row in probabilities.tolist())


def _sparse_lines(labels: np.ndarray, probabilities: np.ndarray, names: list[str]) -> Any:
    return (
        " ".join(f"{i}:{p[i]:.6g}" for i in row.nonzero()[0]) + "\n"
        for row, p in zip(labels, probabilities, strict=True)
    )


_WRITERS: dict[str, tuple[Callable[[list[str]], list[str]] | None, Callable[..., Any]]] = {
    "names": (lambda names: ["labels"], _name_lines),
    "probabilities": (lambda names: names, _probability_lines),
    "sparse": (None, _sparse_lines),
}
