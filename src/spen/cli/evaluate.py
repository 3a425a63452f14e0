"""``spen evaluate``: scores of a model on rows whose labels are known."""

from __future__ import annotations

import sys
from pathlib import Path

from spen.cli.files import dataset_for
from spen.cli.show import show_json, show_table


def evaluate(
    model: Path,
    test: str,
    *,
    format: str | None = None,
    labels: str | None = None,
    device: str = "cpu",
    json: bool = False,
) -> None:
    """Score a model on the rows of a file, each number with its rule beside it.

    Args:
        model: A model file that `spen fit` wrote.
        test: A file with the features and the labels of the training file, or a name from
            `spen data list`. Of data that come with a split, the test rows are taken.
        format: The file's format, where it cannot be recognised.
        labels: The column that holds tags, where it is not the one of the training file.
        device: Where to compute.
        json: Print one JSON object instead of a table.
    """
    from spen.estimators.model_file import load
    from spen.metrics import score_all

    classifier = load(model, device)
    data = dataset_for(classifier, test, format, labels)
    part, rows = ("test", data.test) if data.test is not None else ("all", data.train)
    soft = classifier.predict_proba(rows.X)
    scores = score_all(rows.Y, classifier.decode(soft), soft)
    repeated = None
    if classifier.training_rows_ is not None:
        repeated = int(classifier.seen_in_training(rows.X).sum())
    if repeated:
        print(  # noqa: T201
            f"spen: {repeated} of {len(soft)} rows have the same features as some training row, "
            "so these scores are better than those of new rows.",
            file=sys.stderr,
        )
    if json:
        # JSON has no nan: a score of nothing, as without any known label, is null.
        values = {name: s.value if s.value == s.value else None for name, s in scores.items()}
        rules = {name: score.rule for name, score in scores.items()}
        record = {"model": str(model), "test": test, "part": part, "rows": len(soft)}
        show_json(record | {"repeated_rows": repeated, "metrics": values, "rules": rules})
        return
    table = [(name, f"{100 * s.value:.2f}", s.rule) for name, s in scores.items()]
    show_table(f"{test}: {part} rows, {len(soft):,}", ["score", "%", "rule"], table)
