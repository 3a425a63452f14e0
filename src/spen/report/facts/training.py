"""How training went: the loss and the score of held-out rows, stage by stage."""

from __future__ import annotations

from typing import Any

from spen.estimators.base import LabelClassifier
from spen.training.checkpoint import History


def training_facts(classifier: LabelClassifier) -> list[dict[str, Any]]:
    """Return each run's stages with their epochs' losses and held-out scores (or None)."""
    names = ("the run that tunes, on part of the rows", "the last run, on all rows")
    if classifier.plan_.cross_fit:
        names = ("the energy's training", "the label-wise model's, on all rows")
    runs = zip(names, (classifier.history_, classifier.refit_history_), strict=True)
    return [
        {"run": name, "stages": _stages(history)}
        for name, history in runs
        if history is not None and history.epochs
    ]


def _stages(history: History) -> list[dict[str, Any]]:
    names = list(dict.fromkeys(epoch.stage for epoch in history.epochs))
    stages = []
    for name in names:
        epochs = history.stage(name)
        scores = [epoch.score for epoch in epochs]
        stages.append(
            {
                "name": name,
                "loss": [float(f"{epoch.loss:.6g}") for epoch in epochs],
                "score": None
                if any(score is None for score in scores)
                else [round(100 * score, 2) for score in scores if score is not None],
                "best_epoch": epochs[-1].best_epoch,
                "seconds": round(sum(epoch.seconds for epoch in epochs), 2),
            }
        )
    return stages
