"""``spen predict``: labels for the rows of a file, a few thousand rows at a time."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

from spen.cli.files import (
    check_out,
    is_file,
    known_of_all,
    label_names,
    out_or_default,
    rows_to_predict,
    split_names,
    with_known,
)
from spen.cli.show import say, show_json, visible

if TYPE_CHECKING:
    import numpy as np

    from spen.batch.splits import Split
    from spen.estimators.base import LabelClassifier

Kind = Literal["names", "probabilities", "sparse"]


def predict(
    model: Path,
    file: str,
    *,
    out: Path | None = None,
    write: Kind = "names",
    known: str | None = None,
    format: str | None = None,
    device: str = "cpu",
    engine: Literal["here", "ray"] = "here",
    keep: str | None = None,
    workers: int | None = None,
    json: bool = False,
) -> None:
    """Predict the labels of each row of a file, or the tag of each token.

    The file is read, predicted and written a few thousand rows at a time, so it may be
    larger than memory. Labels that it holds are ignored.

    With `--engine ray` many files go through workers of Ray, and come out as a folder of Parquet
    files: rows in their order, each exactly once, even if a worker dies.

    Args:
        model: A model file that `spen fit` wrote.
        file: Rows with the features of the training file; ARFF, XMC, LIBSVM, CSV, JSON lines
            or npz; of a tagger, sentences (CoNLL), whose tags may be left out. Or a name from
            `spen data list`, or a folder; of data that come with a split, the test rows are taken.
        out: Where to write; "-" is the standard output. By default FILE-predictions.csv (.txt for
            sparse) in the current folder, if there is no such file yet. A tagger writes
            FILE-predictions.conll: the columns of FILE and one with the tags.
        write: "names": CSV, the names of a row's labels between semicolons. "probabilities":
            CSV, a column for each label. "sparse": text, a `number:probability` for each label
            that is predicted, numbers from 0.
        known: What is known of the labels, to infer the others: for all rows, such as
            sport=1,news=0; or a CSV file with a line for each row, some labels as its columns, and
            1, 0 or nothing in its cells.
        format: The file's format, where it cannot be recognised.
        device: Where to compute.
        engine: "here", in this process; or "ray", by the local Ray or the cluster that RAY_ADDRESS
            names. Ray takes Parquet, CSV and JSON lines: a file, a folder, or a pattern such as
            'rows/*.parquet'.
        keep: With Ray: columns that the answer has too, such as id,day.
        workers: With Ray: the most workers, each with a model of its own; by default one a core.
        json: Print one JSON object with the number of rows, instead of text.
    """
    from spen.cli.tags import predict_tags
    from spen.errors import InputError
    from spen.estimators.model_file import load_to_predict as load
    from spen.estimators.tagger import Tagger
    from spen.files import open_atomically

    if engine == "ray":
        _by_ray(model, file, out, write, known, keep, workers, json)
        return
    if keep is not None or workers is not None:
        raise InputError("--keep and --workers go with --engine ray. Leave them out, or add it.")
    to_output = str(out) == "-"
    if to_output and sys.stdout is None:
        raise InputError("The standard output is closed. Name a file with --out.")
    if json and to_output:
        raise InputError("--json and --out - would mix predictions and JSON. Leave one out.")
    if out is not None and not to_output:
        check_out(out)  # before a large model is read; the default's name depends on the model
    classifier = load(model, device)
    if isinstance(classifier, Tagger):
        if write != "names" or known is not None:
            raise InputError(
                f"{model} is a tagger, which writes a tag for each token; --write and --known are "
                "for sets of labels. Leave them out."
            )
        predict_tags(classifier, model, file, out, format, json)
        return
    if not to_output:
        ending = "txt" if write == "sparse" else "csv"
        out = out_or_default(out, file, f"-predictions.{ending}")
    chunks = rows_to_predict(classifier, file, format)
    if to_output:
        _write(classifier, chunks, write, sys.stdout, known)
        return
    assert out is not None
    with open_atomically(out) as binary:
        target = io.TextIOWrapper(binary, encoding="utf-8", newline="")
        count = _write(classifier, chunks, write, target, known)
        target.detach()  # flushes, and leaves the file to be closed and moved
    if json:
        show_json({"model": str(model), "file": file, "out": str(out), "rows": count})
    else:
        say(f"Wrote {count:,} rows to {out}")


def _by_ray(
    model: Path,
    files: str,
    out: Path | None,
    write: Kind,
    known: str | None,
    keep: str | None,
    workers: int | None,
    json: bool,
) -> None:
    from spen.errors import InputError, require
    from spen.estimators.model_file import load_classifier as load
    from spen.ray import predict_files

    require("ray", "ray")
    if write == "sparse":
        raise InputError(
            "--write sparse is a text file; --engine ray writes Parquet. Leave it out."
        )
    if known is not None and is_file(known):
        raise InputError(
            f"--known {known} is a file, whose rows Ray could not bring together with its own. "
            "Give labels for all rows, such as sport=1, or leave --engine out."
        )
    if out is None:
        # Of a pattern, the folder that its files are in.
        out = Path(f"{Path(files.partition('*')[0]).resolve().stem}-predictions")
    told = None if known is None else known_of_all(known, load(model))
    kept = () if keep is None else split_names(keep)
    count = predict_files(model, files, out, write=write, keep=kept, known=told, workers=workers)
    if json:
        show_json({"model": str(model), "file": files, "out": str(out), "rows": count})
    else:
        say(f"Wrote {count:,} rows to the folder {out}")


def _write(
    classifier: LabelClassifier,
    chunks: Iterable[Split],
    kind: Kind,
    target: TextIO,
    known: str | None = None,
) -> int:
    """Write the predictions of all rows; return how many there were."""
    header, lines = _WRITERS[kind]
    names = label_names(classifier)
    if target.isatty():
        names = [visible(name) for name in names]
    writer = csv.writer(target, lineterminator="\n")
    if header is not None:
        writer.writerow(header(names))
    count = 0
    for chunk, held in with_known(chunks, known, classifier):
        probabilities, labels = classifier.predict_both(chunk.X, known=held)
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
