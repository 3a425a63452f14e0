"""What commands do where rows are sequences with a tag for each position."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from spen.cli.files import check_kind, out_or_default
from spen.cli.show import say, show_json, show_table

if TYPE_CHECKING:
    from spen.batch.splits import Split
    from spen.data.dataset import Dataset
    from spen.estimators.tagger import Tagger

TAG_COLUMN, COLUMNS = "tags in column", "columns of the file"
"""Notes of a model file, by which the columns of other files are known."""


def fit_tagger(
    data: Dataset,
    train: str,
    out: Path,
    labels: Any,
    given: dict[str, Any],
    foreign: Sequence[str],
    json: bool,
) -> None:
    """Fit a tagger, and write it to a file.

    Args:
        data: sequences.
        train: where they come from, as it was typed.
        out: the model file.
        labels: the number of the column that holds tags, or None.
        given: settings of ``SPENTagger``.
        foreign: options that were given and are for sets of labels.
        json: whether to print JSON.
    """
    from spen.data.catalog import ENTRIES
    from spen.errors import InputError
    from spen.estimators.tagger import SPENTagger
    from spen.training.processes import our_processes

    if foreign:
        raise InputError(
            f"{train} holds sequences, with a tag for each token. Leave out what is for sets of "
            f"labels alone: {', '.join(foreign)}."
        )
    tagger, began = SPENTagger(verbose=0 if json else 1, **given), time.perf_counter()
    # Sentences to judge by are there to stop early.
    judge = data.valid if tagger.early_stopping is not False else None
    held = None if judge is None else (judge.X, judge.Y)
    tagger.fit(data.train.X, data.train.Y, eval_set=held)
    if not our_processes().is_first:
        return
    if train in ENTRIES:
        # The path of a file would tell strangers about this computer.
        tagger.notes_["trained on"] = train
    if tagger.encoder_.kind in ("words", "columns"):
        count = len(data.feature_names) + 1
        tagger.notes_[COLUMNS] = str(count)
        tagger.notes_[TAG_COLUMN] = str((-1 if labels is None else labels) % count)
    tagger.save(out)
    record: dict[str, Any] = {
        "model": str(out),
        "data": train,
        "sentences": len(data.train),
        "positions": sum(map(len, data.train.Y)),
        "tags": len(tagger.classes_),
        "energy": str(given.get("energy", SPENTagger().get_params()["energy"])),
        "metric": tagger.metric_,
        "held_out_accuracy": tagger.held_out_score_,
        "seconds": round(time.perf_counter() - began, 2),
    }
    if json:
        show_json(record)
        return
    names = ("sentences", "positions", "tags", "energy")
    rows = [(name, record[name]) for name in names]
    if tagger.held_out_score_ is not None:
        share = f"{100 * tagger.held_out_score_:.2f}"
        rows.append(("token accuracy of held-out sentences", share))
    rows.append(("seconds", record["seconds"]))
    show_table(f"Wrote {out}", ["figure", "value"], rows)


def predict_tags(
    tagger: Tagger, model: Path, file: str, out: Path | None, format: str | None, json: bool
) -> None:
    """Write sentences with one more column, the tags that are predicted."""
    from spen.files import open_atomically

    to_output = str(out) == "-"
    if not to_output:
        out = out_or_default(out, file, "-predictions.conll")
    chunks = _sentences(tagger, file, format)
    if to_output:
        _write(tagger, chunks, sys.stdout)
        return
    assert out is not None
    with open_atomically(out) as binary:
        target = io.TextIOWrapper(binary, encoding="utf-8", newline="")
        count = _write(tagger, chunks, target)
        target.detach()  # flushes, and leaves the file to be closed and moved
    if json:
        show_json({"model": str(model), "file": file, "out": str(out), "sentences": count})
    else:
        say(f"Wrote {count:,} sentences to {out}")


def evaluate_tags(
    tagger: Tagger,
    model: Path,
    test: str,
    format: str | None,
    labels: Any,
    json: bool,
) -> None:
    """Score a tagger, each number with its rule beside it."""
    from spen.estimators.sentences import warn_of_unseen
    from spen.estimators.spans import entity_f1, token_accuracy

    _, part, rows = sentences_with_tags(tagger, test, format, labels)
    truth = [list(tags) for tags in rows.Y]
    warn_of_unseen(truth, tagger.classes_)
    found = tagger.predict(rows.X)
    scores = {"accuracy": (token_accuracy(truth, found), "positions with the right tag")}
    right = [float(a == b) for a, b in zip(truth, found, strict=True)]
    scores["sentences"] = (sum(right) / len(right), "sentences whose tags are all right")
    if tagger.metric_ == "entity_f1":
        rule = "F1 of spans, all sentences together; type, beginning and end must be right"
        scores["entity_f1"] = (entity_f1(truth, found), rule)
    if json:
        record = {"model": str(model), "test": test, "part": part, "sentences": len(rows)}
        record["metric"] = tagger.metric_
        values = {name: value for name, (value, _) in scores.items()}
        rules = {name: rule for name, (_, rule) in scores.items()}
        show_json(record | {"metrics": values, "rules": rules})
        return
    table = [(name, f"{100 * value:.2f}", rule) for name, (value, rule) in scores.items()]
    show_table(f"{test}: {part} sentences, {len(rows):,}", ["score", "%", "rule"], table)


def sentences_with_tags(
    tagger: Tagger, test: str, format: str | None, labels: Any
) -> tuple[str, str, Split]:
    """Return the name of data, which part of them judges a tagger, and its sentences.

    Args:
        tagger: fitted.
        test: a file, a folder, or a name.
        format: the file's, where it cannot be recognised.
        labels: the column that holds tags, where it is not that of the training file.
    """
    from spen.data.load import load_dataset
    from spen.data.tagged import is_tagged

    check_kind(test, format, sentences=True)
    column = _tag_column(tagger) if labels is None else labels
    is_text = tagger.encoder_.kind in ("words", "columns")
    data = load_dataset(test, format=format, labels=column if is_text and _is_path(test) else None)
    if not is_tagged(data):
        _refuse(test)
    if data.test is None:
        return data.name, "all", data.train
    return data.name, "test", data.test


def _is_path(source: str) -> bool:
    from spen.data.catalog import ENTRIES

    return source not in ENTRIES


def _tag_column(tagger: Tagger) -> int:
    """Return the number of the column that held tags when a tagger was fitted."""
    return int(tagger.notes_.get(TAG_COLUMN, -1))


def _refuse(file: str) -> None:
    from spen.errors import InputError

    raise InputError(
        f"The model is a tagger, which takes sentences as CoNLL files have them, and {file} holds "
        "rows with sets of labels. Name a CoNLL file, or a model of such rows."
    )


def _sentences(
    tagger: Tagger, file: str, format: str | None
) -> Iterator[tuple[list[Any], list[list[list[str]]]]]:
    """Yield sentences, some at a time, and the cells of their lines."""
    from spen.data.catalog import ENTRIES
    from spen.data.load import load_dataset, open_rows
    from spen.data.tagged import is_tagged

    path = Path(file)
    if file in ENTRIES or path.is_dir() or not path.exists():
        data = load_dataset(file, format=format)
        if not is_tagged(data):
            _refuse(file)
        X = (data.train if data.test is None else data.test).X
        words = isinstance(X[0][0], str | dict)
        return iter([(list(X), [[_cells(t) if words else [] for t in s] for s in X])])
    check_kind(file, format, sentences=True)
    rows = open_rows(path, format=format, labels_required=False)
    columns = _token_columns(tagger, len(rows.feature_names), file)

    def chunks() -> Iterator[tuple[list[Any], list[list[list[str]]]]]:
        for part in rows.parts():
            cells = [[_cells(token) for token in sentence] for sentence in part.X]
            yield [[columns(line) for line in sentence] for sentence in cells], cells

    return chunks()


def _cells(token: Any) -> list[str]:
    return [token] if isinstance(token, str) else list(token.values())


def _token_columns(tagger: Tagger, count: int, file: str) -> Any:
    """Return what makes tokens of the lines of a file with so many columns."""
    from spen.errors import InputError

    encoder = tagger.encoder_
    if encoder.kind not in ("words", "columns"):
        raise InputError(
            f"The model was trained on {encoder.kind}, and {file} holds words. Name the data set "
            "that it takes, or predict in Python."
        )
    names = getattr(encoder, "columns", ())
    whole = int(tagger.notes_.get(COLUMNS, max(len(names), 1) + 1))
    tag = _tag_column(tagger) % whole
    places = [place for place in range(whole) if place != tag]
    if count not in (whole, whole - 1):
        raise InputError(
            f"{file} has {count} columns; the model takes the {whole} of its training file, or "
            f"{whole - 1} where tags (column {tag}) are left out."
        )
    numbers = places if count == whole else list(range(count))
    if not names:
        return lambda line: line[numbers[0]]
    return lambda line: {name: line[i] for name, i in zip(names, numbers, strict=True)}


def _write(tagger: Tagger, chunks: Iterator[Any], target: TextIO) -> int:
    """Write the lines of all sentences, with a column of tags; return how many there were."""
    from spen.estimators.sentences import named

    count = 0
    for sentences, cells in chunks:
        # Errors count from the first sentence of each part of a long file.
        with named(f"From sentence {count} on") if count else nullcontext():
            predicted = tagger.predict(sentences)
        for lines, tags in zip(cells, predicted, strict=True):
            for line, tag in zip(lines, tags, strict=True):
                # A token may hold a space of some kind, but no tab.
                target.write("\t".join([*line, str(tag)]) + "\n")
            target.write("\n")
        count += len(sentences)
    return count
