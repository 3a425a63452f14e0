"""From soft predictions to label sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from spen.errors import InputError
from spen.metrics import as_array, example_f1

THRESHOLDS = (0.0, *(k / 100 for k in range(1, 6)), *(k / 100 for k in range(10, 80, 5)))
"""The thresholds that are tried: 0, .01 to .05, and .10 to .75 in steps of .05."""


def apply_threshold(soft: Any, threshold: float) -> np.ndarray:
    """Return 1 where the soft prediction is above the threshold, else 0.

    >>> apply_threshold([[0.2, 0.6]], 0.5)
    array([[0, 1]], dtype=int8)
    """
    values = as_array(soft)
    if np.isnan(values).any():
        raise InputError("Soft predictions must be numbers; some are nan.")
    return (values > threshold).astype(np.int8)


def tune_threshold(
    truth: Any,
    soft: Any,
    *,
    candidates: Sequence[float] = THRESHOLDS,
    score: Callable[[Any, Any], float] = example_f1,
) -> tuple[float, float]:
    """Return the threshold with the best score on held-out data, and that score.

    Where several are equally good, as for predictions near 0 and 1, the middle one is
    taken: it is the least likely to be an accident of this sample.

    >>> tune_threshold([[1, 0], [1, 0]], [[0.4, 0.2], [0.9, 0.1]])
    (0.3, 1.0)
    """
    if not len(candidates):
        raise InputError("candidates is empty: give at least one threshold to try.")
    scores = np.array([score(truth, apply_threshold(soft, value)) for value in candidates])
    if np.isnan(scores).any():
        raise InputError("The score is nan for some threshold, so none can be called the best.")
    best = np.flatnonzero(scores == scores.max())
    middle = best[len(best) // 2]
    return float(candidates[middle]), float(scores[middle])
