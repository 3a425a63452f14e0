"""``spen evaluate``: scores of a model on rows whose labels are known."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spen.cli.files import dataset_for, is_file, own_names, parse_labels, with_known
from spen.cli.show import show_json, show_table

if TYPE_CHECKING:
    from spen.batch.splits import Split
    from spen.estimators.base import LabelClassifier


def evaluate(
    model: Path,
    test: str,
    *,
    known: str | None = None,
    format: str | None = None,
    labels: str | None = None,
    device: str = "cpu",
    json: bool = False,
) -> None:
    """Score a model on the rows or sentences of a file, each number with its rule beside it.

    Args:
        model: A model file that `spen fit` wrote.
        test: A file with the features and the labels of the training file, or a name from
            `spen data list`. Of data that come with a split, the test rows are taken.
        known: Labels between commas that are told, as TEST has them, or what `spen predict --known`
            takes. They are held, and the others are scored.
        format: The file's format, where it cannot be recognised.
        labels: The column that holds tags, where it is not the one of the training file.
        device: Where to compute.
        json: Print one JSON object instead of a table.
    """
    import numpy as np

    from spen.batch.arrays import densified
    from spen.cli.tags import evaluate_tags
    from spen.errors import InputError
    from spen.estimators.model_file import load_to_predict as load
    from spen.estimators.tagger import Tagger
    from spen.metrics import score_all

    classifier = load(model, device)
    if isinstance(classifier, Tagger):
        if known is not None:
            raise InputError("--known is for sets of labels, and the model is a tagger.")
        evaluate_tags(classifier, model, test, format, parse_labels(labels), json)
        return
    data = dataset_for(classifier, test, format, labels)
    part, rows = ("test", data.test) if data.test is not None else ("all", data.train)
    truth, held = rows.Y, None
    if known is not None:
        held = _held(classifier, rows, known)
        truth = np.where(np.isnan(held), densified(truth), np.nan)
    soft, predicted = classifier.predict_both(rows.X, known=held)
    asked = slice(None) if held is None else np.isnan(held).any(0)
    metric = classifier.plan_.metric
    scores = score_all(truth[:, asked], predicted[:, asked], soft[:, asked], metric=metric)
    untold = None
    if held is not None:
        alone = (part[:, asked] for part in reversed(classifier.predict_both(rows.X)))
        untold = score_all(truth[:, asked], *alone, metric=metric)
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
        record["metric"] = metric
        if untold is not None:
            record["metrics_not_told"] = {name: s.value for name, s in untold.items()}
        show_json(record | {"repeated_rows": repeated, "metrics": values, "rules": rules})
        return
    title = f"{test}: {part} rows, {len(soft):,}"
    if untold is None:
        table = [(name, f"{100 * s.value:.2f}", s.rule) for name, s in scores.items()]
        show_table(title, ["score", "%", "rule"], table)
        return
    table = [
        (name, f"{100 * s.value:.2f}", f"{100 * untold[name].value:.2f}", s.rule)
        for name, s in scores.items()
    ]
    title += "; what is told is held, and left out of both scores"
    show_table(title, ["score", "% told", "% not told", "rule"], table)


def _held(classifier: LabelClassifier, rows: Split, known: str) -> Any:
    """Return the labels that are told, (n, L) of 1, 0 and nan, by what ``--known`` says."""
    import numpy as np

    from spen.batch.arrays import densified
    from spen.errors import InputError
    from spen.estimators.targets import align_known

    if "=" in known or is_file(known):
        ((_, told),) = with_known([rows], known, classifier)
    else:
        names = own_names([name.strip() for name in known.split(",")], classifier)
        columns = [classifier.label_names_.tolist().index(name) for name in names]
        told = np.full(rows.Y.shape, np.nan)
        told[:, columns] = densified(rows.Y)[:, columns]
    held = align_known(told, classifier.label_names_, len(rows))
    if not np.isnan(held).any():
        raise InputError("--known tells all labels of all rows, so that none is left to score.")
    return held
