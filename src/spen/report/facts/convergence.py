"""How inference converges: steps of each row, and energy and F1 along them."""

from __future__ import annotations

from typing import Any

import numpy as np

from spen.estimators.predictor import diagnose
from spen.inference.descent import Descent
from spen.metrics import example_f1
from spen.report.subject import Subject

TRACED_NUMBERS = 12_000_000
"""Entries of a trace that is kept in memory."""

MOST_TRACED = 600
POINTS = 24
"""Points of a curve along the steps."""


def convergence_facts(subject: Subject) -> dict[str, Any] | None:
    """Return the steps to converge and the curves along them; None where nothing iterates."""
    inference = subject.prediction.inference
    steps = subject.solution.steps
    if not isinstance(inference, Descent) or not bool((steps > 0).any()):
        return None
    # A missing label counts as off where an energy of the truth is wanted.
    truth = np.nan_to_num(subject.truth)
    found = diagnose(subject.model, subject.scaled, truth, subject.prediction)
    counts, edges = np.histogram(found.steps, bins=_edges(found.steps))
    middle, most = np.percentile(found.steps, [50, 90])
    return {
        "rows": len(found.steps),
        "made": int(steps.max()),
        "fixed": subject.solution.describe().endswith("as asked."),
        "converged": round(100 * found.converged, 1),
        "search_errors": round(100 * found.search_errors, 1),
        "middle": int(middle),
        "most": int(most),
        "slowest": int(found.steps.max()),
        "counts": counts.tolist(),
        "edges": edges.tolist(),
        "along": _along(subject, int(steps.max())),
    }


def _edges(steps: np.ndarray) -> np.ndarray:
    """Return edges at round numbers of steps, at most thirty of them."""
    low, high = int(steps.min()), int(steps.max()) + 1
    width = next(w for w in _WIDTHS if (high - low) / w <= 30)
    return np.arange(low // width * width, high + width, width)


_WIDTHS = [factor * 10**power for power in range(9) for factor in (1, 2, 5)]


def _along(subject: Subject, steps: int) -> dict[str, Any] | None:
    """Return the mean energy above its end and the score at some steps of a prediction."""
    n, size = subject.truth.shape
    rows = np.arange(min(n, MOST_TRACED, max(1, TRACED_NUMBERS // (size * (steps + 1)))))
    trace = subject.traced(rows).trace
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
