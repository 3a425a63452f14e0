"""How well a model does on rows: its scores, its hardest rows, the course of its inference."""

from __future__ import annotations

from typing import Any

import numpy as np

from spen.inference.descent import Descent
from spen.metrics import example_f1, score_all
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
    if not subject.takes_sets:
        right = (subject.truth.argmax(1) == subject.predicted.argmax(1)).mean()
        rule = "share of rows whose class is right"
        return [{"name": "accuracy", "value": round(100 * float(right), 2), "rule": rule}]
    scores = score_all(subject.truth, subject.predicted, subject.probabilities)
    return [
        {
            "name": SCORE_NAMES.get(name, name.replace("_", " ")),
            "value": round(100 * score.value, 2) if score.value == score.value else None,
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
        scores = [_percent(hits, said), _percent(hits, true), _percent(2 * hits, true + said)]
        rows.append([names[i], true, said, *scores])
    never = int(((counts[:, 1] > 0) & (counts[:, 2] == 0)).sum())
    return {"rows": rows, "labels": len(names), "never_predicted": never}


def calibration_facts(subject: Subject) -> dict[str, Any]:
    """Return the mean probability, the share of labels on and the decisions of each interval."""
    known = ~np.isnan(subject.truth)
    p, t = subject.probabilities[known].astype(float), subject.truth[known]
    interval = np.minimum((p * BINS).astype(int), BINS - 1)
    counts = np.bincount(interval, minlength=BINS)
    used = counts > 0
    mean = np.bincount(interval, p, minlength=BINS)[used] / counts[used]
    share = np.bincount(interval, t, minlength=BINS)[used] / counts[used]
    gap = float((np.abs(mean - share) * counts[used]).sum() / max(1, counts.sum()))
    return {
        "bins": BINS,
        "decisions": int(counts.sum()),
        "probability": rounded(mean),
        "share": rounded(share),
        "counts": counts[used].tolist(),
        "error": round(100 * gap, 2),
    }


def hardest_rows(subject: Subject) -> list[dict[str, Any]]:
    """Return the rows with the lowest F1, of equal ones those that are least probable.

    A row whose truth has a lower energy than the labels that were found is a search error:
    better inference would have done better. On the others the energy itself is wrong.
    """
    truth, p = subject.truth, subject.probabilities.astype(float)
    known = ~np.isnan(truth)
    right = np.where(truth == 1, p, 1 - p)
    losses = -(np.log(np.maximum(right, 1e-12)) * known).sum(1)
    scores = np.where(known.any(1), subject.row_scores, np.inf)
    order = np.lexsort([-losses, scores])[:HARDEST]
    order = order[np.isfinite(scores[order])]
    if not len(order):
        return []
    names = subject.label_names
    # The entropy of whole labels is zero, so this is what predictions minimise.
    of_truth = subject.model.energy_of(subject.scaled[order], np.nan_to_num(truth[order]))
    of_found = subject.solution.energy.cpu().numpy()[order]
    gap = of_truth.cpu().numpy() - of_found
    return [
        {
            "row": int(subject.judged.numbers[k]) + 1,
            "f1": round(100 * float(subject.row_scores[k]), 1),
            "true": [names[i] for i in np.flatnonzero(truth[k] == 1)],
            "predicted": [names[i] for i in np.flatnonzero(subject.predicted[k] == 1)],
            "gap": round(float(gap[j]), 2),
            "search_error": bool(gap[j] < -1e-3 * abs(of_found[j])),
        }
        for j, k in enumerate(order)
    ]


def _percent(part: int, total: int) -> float | None:
    return round(100 * part / total, 1) if total else None


def convergence_facts(subject: Subject) -> dict[str, Any] | None:
    """Return the steps to converge and the curves along them; None where nothing iterates."""
    inference = subject.prediction.inference
    steps = subject.solution.steps
    if not isinstance(inference, Descent) or not bool((steps > 0).any()):
        return None
    # A missing label counts as off where an energy of the truth is wanted.
    truth = np.nan_to_num(subject.truth)
    found = subject.classifier.predictor_.diagnose(subject.judged.rows.X, truth)
    counts, edges = np.histogram(found.steps, bins=_round_edges(found.steps))
    middle, most = np.percentile(found.steps, [50, 90])
    return {
        "rows": len(found.steps),
        "made": int(steps.max()),
        "fixed": subject.solution.describe().endswith("as asked."),
        "search_errors": round(100 * found.search_errors, 1),
        "middle": int(middle),
        "most": int(most),
        "slowest": int(found.steps.max()),
        "counts": counts.tolist(),
        "edges": edges.tolist(),
        "along": _course(subject, int(steps.max())),
    }


def _round_edges(steps: np.ndarray) -> np.ndarray:
    """Return edges at round numbers of steps, at most thirty of them."""
    low, high = int(steps.min()), int(steps.max()) + 1
    widths = (factor * 10**power for power in range(9) for factor in (1, 2, 5))
    width = next(width for width in widths if (high - low) / width <= 30)
    return np.arange(low // width * width, high + width, width)


def _course(subject: Subject, steps: int) -> dict[str, Any] | None:
    """Return the mean energy above its end and the score at some steps of a prediction."""
    n, size = subject.truth.shape
    rows = np.arange(min(n, MOST_TRACED, max(1, TRACED_NUMBERS // (size * (steps + 1)))))
    trace = subject.solve(rows, trace=True).trace
    if trace is None:
        return None
    last = len(trace.y) - 1
    at = np.unique(np.round(np.geomspace(1, last + 1, POINTS)).astype(int) - 1)
    energy = trace.energy.double().mean(1).cpu().numpy()
    scores = []
    for step in at:
        y = trace.y[step].cpu().numpy()
        if subject.takes_sets:
            score = example_f1(subject.truth[rows], subject.labels_of(y))
        else:
            score = float((subject.truth[rows].argmax(1) == y.argmax(1)).mean())
        scores.append(round(100 * score, 2) if score == score else None)
    return {
        "rows": len(rows),
        "steps": at.tolist(),
        "energy": [float(f"{energy[step]:.6g}") for step in at],
        "score_name": "F1" if subject.takes_sets else "accuracy",
        "score": scores,
    }
