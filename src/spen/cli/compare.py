"""``spen compare``: a classifier beside scikit-learn's on the same rows."""

from __future__ import annotations

from typing import Any, Literal

from spen.cli.files import parse_labels, table_encoder
from spen.cli.show import say, show_json, show_table


def compare(
    train: str,
    *,
    against: str = "logistic,chain,extra_trees,boosting,mlp",
    labels: str | None = None,
    format: str | None = None,
    text: str | None = None,
    categories: str | None = None,
    dates: str | None = None,
    drop: str | None = None,
    preset: Literal["fast", "default", "best"] = "default",
    held_out: float = 0.25,
    epochs: int | None = None,
    seed: int = 0,
    device: str = "auto",
    json: bool = False,
) -> None:
    """Compare SPENClassifier with classifiers of scikit-learn on the same rows.

    All learn from part of the rows, and the others judge. All are given every way in which spen
    turns probabilities into labels, tuned alike.

    Args:
        train: A file of rows (ARFF, XMC, LIBSVM, CSV, JSON lines or npz), or a name from `spen
            data list`. Its training rows are split into rows to learn from and rows that judge.
        against: Which others, between commas.
        labels: Which columns are labels, where the file does not say: names between commas (one
            may be a column of tags), an XML file, or a count (negative: the last ones).
        format: The file's format, where it cannot be recognised.
        text: Columns of text, where the file does not show it: names between commas.
        categories: Columns of categories.
        dates: Columns of dates.
        drop: Columns to leave out.
        preset: How much time SPENClassifier may take.
        held_out: The share of rows that judge.
        epochs: The most passes over the data in the first stage of training.
        seed: Decides every random draw.
        device: "auto" takes a GPU where there is one; or cpu, cuda.
        json: Print one JSON object instead of a table.
    """
    from dataclasses import asdict

    from spen.data.dataset import check_sets
    from spen.data.load import load_dataset
    from spen.estimators.classifier import SPENClassifier

    columns = {"text": text, "categories": categories, "dates": dates, "drop": drop}
    encoder = table_encoder(columns)
    words = encoder is not None
    data = load_dataset(train, format=format, labels=parse_labels(labels), words=words)
    check_sets(data, "learns")
    settings: dict[str, Any] = {"preset": preset, "encoder": encoder, "device": device}
    settings["epochs"] = "auto" if epochs is None else epochs
    classifier = SPENClassifier(random_state=seed, **settings)
    found = classifier.compare(
        data.train.X,
        data.train.Y,
        [name.strip() for name in against.split(",") if name.strip()],
        held_out=held_out,
        random_state=seed,
        verbose=0 if json else 1,
    )
    if json:
        show_json({"data": train} | asdict(found))
        return
    show_table(f"{train}: classifiers by their best decodings", *found.table())
    say("\n".join(found.notes()))
