"""Training and test F1 of the paper's SPEN on part of the rows."""

from __future__ import annotations

from collections.abc import Callable

from spen.estimators.base import LabelClassifier
from spen.metrics import example_f1
from spen.reproduce.classifiers import identity_of
from spen.reproduce.records import Record
from spen.reproduce.study import Study, few_rows, longer_for, one_fit, tell
from spen.reproduce.variants import Changes, changed

METHOD, DECODING = "spen-paper", "threshold"


def train_and_test(
    study: Study,
    variant: str,
    share: float,
    changes: Callable[[LabelClassifier], Changes] = lambda made: {},
) -> dict[str, list[float]]:
    """Return the F1 of training rows ("train") and of test rows ("test"), seed by seed.

    Args:
        study: whose settings of the paper's SPEN are taken.
        variant: what the records call it.
        share: of the training rows; with few rows epochs are more.
        changes: of the constructor's arguments.
    """
    found = []
    for seed in range(study.seeds):
        data = few_rows(study.data, share, seed)
        made = study.classifier(METHOD, seed)
        made = changed(made, longer_for(share)(made))
        made = changed(made, changes(made))
        settings = identity_of(made, data) | {"variant": variant, "share": share}
        identity = study.identity(METHOD, seed, data, settings) | {"decoding": DECODING}

        def measure(made=made, data=data) -> dict[str, Record]:
            made.fit(data.train.X, data.train.Y)
            scores = {}
            for name, rows in (("f1", data.test), ("train_f1", data.train)):
                labels = made.decode(made.predict_proba(rows.X), DECODING)
                scores[name] = round(100 * example_f1(rows.Y, labels), 4)
            return {DECODING: {"metrics": scores}}

        found.append(one_fit(study.records, {DECODING: identity}, measure))
        tell(f"{METHOD}, {variant}, {share:g} of the rows, seed {seed}", found[-1])
    metrics = [each[DECODING]["metrics"] for each in found]
    return {"test": [m["f1"] for m in metrics], "train": [m["train_f1"] for m in metrics]}


def gaps(scores: dict[str, list[float]]) -> list[float]:
    """Return training − test F1, seed by seed: how far a model overfits.

    >>> gaps({"train": [90.0, 80.0], "test": [40.0, 45.0]})
    [50.0, 35.0]
    """
    return [a - b for a, b in zip(scores["train"], scores["test"], strict=True)]
