"""Scores of a model on rows: how well it does, its hardest rows, the course of its inference."""

from __future__ import annotations

from typing import Any

import numpy as np

from spen.inference.descent import Descent
from spen.metrics import calibration_error, example_f1, score_all, subset_accuracy
from spen.report.charts import ticks
from spen.report.subject import Subject, rounded

SCORE_NAMES = {
    "example_f1": "F1, averaged over rows",
    "micro_f1": "F1 of all decisions",
    "macro_f1": "F1, averaged over labels",
    "hamming_error": "Hamming error",
    "subset_accuracy": "rows with every label right",
}
"""What the page calls scores; others have names that say it."""

BINS = 15
"""Intervals of probability of the calibration curve."""

HARDEST = 15
"""Rows that are listed as hard."""

MOST_LABELS = 1000
"""Labels of the table; of more, the most frequent ones."""

TRACED_NUMBERS = 12_000_000
"""Entries of a trace that is kept in memory."""

MOST_TRACED = 600
"""Rows whose iterates are looked at."""

POINTS = 24
"""Points of a curve along the steps."""


def score_facts(subject: Subject) -> list[dict[str, Any]]:
    """Return every score on the judged rows with its rule; in percent, None where undefined."""
    if subject.predictor.exclusive:
        right = _percent(subset_accuracy(subject.truth, subject.predicted))
        rule = "share of rows whose class is right"
        return [{"name": "accuracy", "value": right, "rule": rule}]
    found = subject.truth, subject.predicted, subject.probabilities
    scores = score_all(*found, metric=subject.classifier.plan_.metric)
    return [
        {
            "name": SCORE_NAMES.get(name, name.replace("_", " ")),
            "value": _percent(score.value),
            "rule": score.rule,
        }
        for name, score in scores.items()
    ]


def label_scores(subject: Subject) -> dict[str, Any]:
    """Return for each label its rows, and how well they are found, the frequent ones first."""
    known = ~np.isnan(subject.truth)
    truth, predicted = subject.truth == 1, (subject.predicted == 1) & known
    counts = np.stack([(truth & predicted).sum(0), truth.sum(0), predicted.sum(0)], axis=1)
    names, rows = subject.label_names, []
    for i in np.argsort(-counts[:, 1], kind="stable")[:MOST_LABELS]:
        hits, true, said = counts[i].tolist()
        ratios = ((hits, said), (hits, true), (2 * hits, true + said))
        rows.append([names[i], true, said, *(_percent(*ratio, digits=1) for ratio in ratios)])
    never = int(((counts[:, 1] > 0) & (counts[:, 2] == 0)).sum())
    return {"rows": rows, "labels": len(names), "never_predicted": never}


def calibration_facts(subject: Subject) -> dict[str, Any]:
    """Return the mean probability, the share of labels on and the decisions of each interval."""
    known = ~np.isnan(subject.truth)
    p, t = subject.probabilities[known].astype(float), subject.truth[known]
    interval = np.minimum((p * BINS).astype(int), BINS - 1)
    intervals, used, counts = np.unique(interval, return_inverse=True, return_counts=True)
    mean, share = np.bincount(used, p) / counts, np.bincount(used, t) / counts
    return {
        "bins": BINS,
        "decisions": int(counts.sum()),
        "intervals": intervals.tolist(),
        "probability": rounded(mean),
        "share": rounded(share),
        "counts": counts.tolist(),
        "error": _percent(calibration_error(subject.truth, subject.probabilities, bins=BINS)),
    }


def hardest_rows(subject: Subject) -> list[dict[str, Any]]:
    """Return the rows with the lowest F1, of equal ones those that are least probable."""
    truth, p = subject.truth, subject.probabilities.astype(float)
    known = ~np.isnan(truth)
    right = np.where(truth == 1, p, 1 - p)
    losses = -(np.log(np.maximum(right, 1e-12)) * known).sum(1)
    # What is not a number, as of a row of which nothing is known, comes last.
    order = np.lexsort([-losses, subject.row_scores])[:HARDEST]
    order = order[np.isfinite(subject.row_scores[order])]
    names = subject.label_names
    return [
        {
            "row": int(subject.judged.numbers[k]) + 1,
            "f1": round(100 * float(subject.row_scores[k]), 1),
            "true": [names[i] for i in np.flatnonzero(truth[k] == 1)],
            "predicted": [names[i] for i in np.flatnonzero(subject.predicted[k] == 1)],
        }
        for k in order
    ]


def convergence_facts(subject: Subject) -> dict[str, Any] | None:
    """Return the steps to converge and the curves along them; None where nothing iterates."""
    inference, steps = subject.predictor.prediction.inference, subject.solution.steps
    if not isinstance(inference, Descent) or not bool((steps > 0).any()):
        return None
    # A missing label counts as off where an energy of the truth is wanted.
    truth = np.nan_to_num(subject.truth)
    found = subject.predictor.diagnose(subject.judged.rows.X, truth)
    # A bar is of a round number of steps; there are about thirty at most.
    edges = ticks(int(found.steps.min()), int(found.steps.max()) + 1, 30, least=1)
    middle, most = np.percentile(found.steps, [50, 90])
    return {
        "rows": len(found.steps),
        "made": int(steps.max()),
        "fixed": subject.solution.describe().endswith("as asked."),
        "missed": round(found.search_errors * len(found.steps)),
        "quickest": int(found.steps.min()),
        "middle": int(middle),
        "most": int(most),
        "slowest": int(found.steps.max()),
        "counts": np.histogram(found.steps, bins=edges)[0].tolist(),
        "edges": edges,
        "along": _course(subject, int(steps.max())),
    }


def _course(subject: Subject, steps: int) -> dict[str, Any] | None:
    """Return the mean energy above its end and the score at some steps of a prediction."""
    n, size = subject.truth.shape
    rows = np.arange(min(n, MOST_TRACED, max(1, TRACED_NUMBERS // (size * (steps + 1)))))
    trace = subject.solve_traced(rows).trace
    if trace is None:
        return None
    at = np.unique(np.round(np.geomspace(1, len(trace.y), POINTS)).astype(int) - 1)
    energy = trace.energy.double().mean(1).cpu().numpy()
    name, metric = "F1", example_f1
    if subject.predictor.exclusive:
        name, metric = "accuracy", subset_accuracy
    scores = (metric(subject.truth[rows], subject.labels_of(trace.y[step])) for step in at)
    return {
        "rows": len(rows),
        "steps": at.tolist(),
        "energy": [float(f"{energy[step]:.6g}") for step in at],
        "score_name": name,
        "score": [_percent(score) for score in scores],
    }


def _percent(part: float, total: float = 1, digits: int = 2) -> float | None:
    """Return a share in percent; None where it is undefined."""
    return round(100 * part / total, digits) if total and part == part else None
