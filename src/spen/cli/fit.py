"""``spen fit``: from a file of rows to a model file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from spen.cli.files import LABEL_COLUMN, out_or_default, parse_labels, table_encoder
from spen.cli.show import show_json, show_table

KINDS = {
    "number": "numbers",
    "date": "dates",
    "category": "categories",
    "text": "text",
    "embedded": "text, by an encoder",
}
"""What is said of a table's columns, by their kind."""

SHOWN = 6
"""How many columns of a kind are named."""


def fit(
    train: str,
    *,
    out: Path | None = None,
    labels: str | None = None,
    format: str | None = None,
    text: str | None = None,
    categories: str | None = None,
    dates: str | None = None,
    drop: str | None = None,
    text_encoder: str | None = None,
    preset: Literal["fast", "default", "best"] | None = None,
    metric: Literal["f1", "micro_f1", "macro_f1", "subset", "hamming", "accuracy"] | None = None,
    energy: Literal[
        "auto", "label", "conditional", "convex", "pairwise", "local", "chain", "chain+convolution"
    ]
    | None = None,
    objective: Literal["unrolled", "f1", "end_to_end", "hinge", "likelihood"] | None = None,
    decoding: Literal[
        "auto", "threshold", "label_thresholds", "row_threshold", "expected_f1", "half", "joint"
    ]
    | None = None,
    hidden: str = "auto",
    dropout: float | None = None,
    weight_decay: float | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    held_out: float | None = None,
    folds: int | None = None,
    cross_fit: bool | None = None,
    members: int | None = None,
    base: str | None = None,
    lr: float | None = None,
    early_stopping: bool | None = None,
    linear_member: bool | None = None,
    missing: float | None = None,
    seed: int = 0,
    device: str = "auto",
    checkpoint: Path | None = None,
    stream: bool = False,
    remember_rows: bool = False,
    json: bool = False,
) -> None:
    """Train a classifier on the training rows of a file, and write it to a model file.

    Sizes and training are chosen from the data; a fifth of the rows is held out to tune
    them, and then the model trains on all rows. A file of sentences, with a tag for each token,
    makes a tagger.

    Several processes train together: torchrun --nproc-per-node 2 -m spen fit TRAIN

    Args:
        train: A file of rows (ARFF, XMC, LIBSVM, CSV, JSON lines, Parquet or npz) or of sentences
            (CoNLL), or a name from `spen data list`. With --stream a folder of files too, or a
            pattern such as 'rows/*.parquet'.
        out: The model file to write; by default TRAIN.spen in the current folder, if there is no
            such file yet.
        labels: Which columns are labels, where the file does not say: names between commas,
            an XML file, or a count (negative: the last ones). Or the one column that holds tags,
            such as sun;sea;snow. Of sentences, the number of the column of tags, from 0 or from
            -1 backwards.
        format: The file's format, where it cannot be recognised.
        text: Columns of text, where the file does not show it: names between commas.
        categories: Columns of categories, such as numbers that are names.
        dates: Columns of dates.
        drop: Columns to leave out.
        text_encoder: The model of the package sentence-transformers that encodes text, by name;
            without it, text is weighed word by word.
        preset: How much time to spend.
        metric: What is to be good on held-out rows, and so on new ones: choices, decoding and
            scores go by it.
        energy: What is learned about labels beside a score for each one. Of sentences: local,
            chain (what follows what), or chain+convolution (and windows of three tags).
        objective: The training loss.
        decoding: How labels are found; "auto" takes what is best for the metric.
        hidden: The widths of the feature network's layers between commas; "" is linear.
        dropout: The share of hidden units that is dropped in training.
        weight_decay: Regularisation of the weights.
        epochs: The most passes over the data in the first stage of training.
        batch_size: Rows in a mini-batch.
        held_out: The share of rows that choices are made on.
        folds: How many such shares are held out, one after the other.
        cross_fit: Train the energy apart, on scores of rows that label-wise models have not seen.
        members: How many label-wise networks are averaged.
        base: What scores labels under the energy: network, extra_trees, forest, logistic, or
            several between commas, which are averaged.
        lr: The learning rate of the feature network.
        early_stopping: End training when held-out rows get no better.
        linear_member: Average a logistic regression in.
        missing: The share of true labels that is marked 0 in the file.
        seed: Decides every random draw.
        device: "auto" takes a GPU where there is one; or cpu, cuda.
        checkpoint: A folder that keeps how far training is. The same command goes on from there
            after it was stopped, to the same model.
        stream: Do not read the rows into memory: they are copied to the folder of --checkpoint, or
            to a temporary one, and trained on from there, a part at a time.
        remember_rows: Keep a digest of each training row in the model file, so that `spen
            evaluate` can tell which rows were among them. So can whoever else has the file.
        json: Print one JSON object instead of text.
    """
    import time
    import warnings

    from spen.training.processes import our_processes

    # torchrun may have started several of us.
    processes = our_processes()
    out = processes.said_by_first(lambda: out_or_default(out, train, ".spen"))
    if not processes.is_first:
        warnings.simplefilter("ignore")

    from spen.cli.tags import fit_tagger
    from spen.data.catalog import ENTRIES
    from spen.data.load import load_dataset
    from spen.data.tagged import is_tagged
    from spen.estimators.classifier import SPENClassifier
    from spen.metrics import IN_WORDS

    columns = {"text": text, "categories": categories, "dates": dates, "drop": drop}
    encoder = table_encoder(columns, text_encoder)
    words = encoder is not None
    column = parse_labels(labels)
    if stream:
        data: Any = _opened(train, format, column, words)
    else:
        data = load_dataset(train, format=format, labels=column, words=words)
    given = {
        "preset": preset,
        "metric": metric,
        "energy": energy,
        "objective": objective,
        "decoding": decoding,
        "dropout": dropout,
        "weight_decay": weight_decay,
        "epochs": epochs,
        "batch_size": batch_size,
        "held_out": held_out,
        "folds": folds,
        "cross_fit": cross_fit,
        "members": members,
        "base": None if base is None else base.split(","),
        "lr": lr,
        "early_stopping": early_stopping,
        "linear_member": linear_member,
        "missing": missing,
    }
    own: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if not stream and is_tagged(data):
        foreign = [name for name in own if name not in FOR_TAGGERS]
        others = {
            "hidden": hidden != "auto",
            "encoder": words,
            "checkpoint": checkpoint is not None,
        }
        others["remember_rows"] = remember_rows
        foreign += [name for name, is_given in others.items() if is_given]
        own |= {"device": device, "random_state": seed}
        fit_tagger(data, train, out, column, own, foreign, json)
        return
    classifier = SPENClassifier(
        hidden=_widths(hidden),
        device=device,
        random_state=seed,
        remember_rows=remember_rows,
        encoder=encoder,
        verbose=0 if json else 1,
        **own,
    )
    began = time.perf_counter()
    if stream:
        _fit_stream(classifier, data, checkpoint, lambda: _opened(train, format, column, True))
        count = int(classifier.notes_["training rows"].replace(",", ""))
    else:
        count = len(data.train)
        classifier.fit(
            data.train.X,
            data.train.Y,
            sample_weight=data.train.weight,
            label_names=data.label_names,
            feature_names=data.feature_names,
            checkpoint=checkpoint,
            resume=checkpoint is not None,
        )
    if not processes.is_first:
        return
    if train in ENTRIES:
        # The path of a file would tell strangers about this computer.
        classifier.notes_["trained on"] = train
    if data.label_column is not None:
        classifier.notes_[LABEL_COLUMN] = data.label_column
    classifier.save(out)
    record: dict[str, Any] = {
        "model": str(out),
        "data": train,
        "rows": count,
        "features": classifier.n_features_in_,
        "labels": len(classifier.label_names_),
        "hidden": list(classifier.plan_.chosen.hidden),
        "metric": classifier.plan_.metric,
        "held_out_score": classifier.held_out_score_,
        "seconds": round(time.perf_counter() - began, 2),
    }
    kinds = {} if classifier.encoder_ is None else classifier.encoder_.kinds
    if kinds:
        record["columns"] = kinds
    if json:
        show_json(record)
        return
    score = "accuracy" if classifier.predictor_.exclusive else IN_WORDS[record["metric"]]
    before = ", before the last fit" if classifier.plan_.refit else ""
    layers = ", ".join(map(str, record["hidden"])) or "none: linear"
    rows = [
        *((name, record[name]) for name in ("rows", "features", "labels")),
        *_columns(kinds),
        ("layers of the feature network", layers),
        (f"{score}: held-out rows{before}", f"{100 * record['held_out_score']:.2f}"),
        ("seconds", record["seconds"]),
    ]
    show_table(f"Wrote {out}", ["figure", "value"], rows)


def _opened(train: str, format: str | None, labels: Any, words: bool) -> Any:
    """Open rows that are not to be read into memory."""
    from spen.data.catalog import ENTRIES
    from spen.data.conll import ConllReader
    from spen.data.load import open_rows
    from spen.errors import InputError

    if train in ENTRIES and not Path(train).exists():
        raise InputError(
            f"--stream takes files, a folder or a pattern; {train} is the name of a data set that "
            "fits in memory. Leave --stream out."
        )
    rows = open_rows(train, format=format, labels=labels, words=words)
    if isinstance(rows, ConllReader):
        raise InputError("--stream is for sets of labels, and these are sentences. Leave it out.")
    return rows


def _fit_stream(
    classifier: Any, rows: Any, checkpoint: Path | None, as_words: Callable[[], Any]
) -> None:
    """Fit to rows that are not read into memory; those of words are opened as such."""
    from spen.data.table import WordsError

    resume = checkpoint is not None
    try:
        classifier.fit(rows, checkpoint=checkpoint, resume=resume)
    except WordsError:
        classifier.fit(as_words(), checkpoint=checkpoint, resume=resume)


def _columns(kinds: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield what the columns of a table were found to be, the names of the first ones."""
    for kind, words in KINDS.items():
        names = [name for name, found in kinds.items() if found == kind]
        if names:
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            yield f"columns of {words}", ", ".join(names[:SHOWN]) + more


FOR_TAGGERS = ("energy", "objective", "dropout", "weight_decay", "epochs", "batch_size")
FOR_TAGGERS += ("held_out", "lr", "early_stopping")
"""Settings that are those of a tagger too."""


def _widths(text: str) -> Any:
    from spen.errors import InputError

    if text == "auto":
        return "auto"
    try:
        return tuple(int(width) for width in text.split(",") if width.strip())
    except ValueError:
        raise InputError(
            f"--hidden must be widths between commas, such as 500,500; received {text!r}."
        ) from None
