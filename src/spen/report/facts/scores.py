"""Scores label by label, the calibration curve, and the hardest rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from spen.report.facts.arrays import rounded
from spen.report.subject import Subject

BINS = 15
HARDEST = 15
MOST_LABELS = 1000
"""Labels of the table; of more, the most frequent ones."""


def label_scores(subject: Subject) -> dict[str, Any]:
    """Return for each label its rows, and how well they are found, the frequent ones first."""
    known = ~np.isnan(subject.truth)
    truth, predicted = subject.truth == 1, (subject.predicted == 1) & known
    hits, true, said = (truth & predicted).sum(0), truth.sum(0), predicted.sum(0)
    order = np.argsort(-true, kind="stable")[:MOST_LABELS]
    names = subject.label_names
    rows = []
    for i in order.tolist():
        rows.append(
            [
                names[i],
                int(true[i]),
                int(said[i]),
                _percent(hits[i], said[i]),
                _percent(hits[i], true[i]),
                _percent(2 * hits[i], true[i] + said[i]),
            ]
        )
    never = int(((true > 0) & (said == 0)).sum())
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
    of_truth = subject.energy_of(order, np.nan_to_num(truth[order]).astype(np.float32))
    of_found = subject.solution.energy.cpu().numpy()[order]
    gap = of_truth - of_found
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


def _percent(part: Any, total: Any) -> float | None:
    return round(100 * float(part) / float(total), 1) if total else None
