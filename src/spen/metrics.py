"""Scores of predicted label sets. All are fractions between 0 and 1.

Truth and prediction are (rows, labels) of 0 and 1: arrays, tensors or scipy's sparse
matrices, which stay sparse. A nan in the truth marks a missing label; it is left out of
every score, and so is a row or a label of which nothing is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from spen.agreement import as_array, blocks, counts
from spen.errors import InputError, choose
from spen.inputs import whole

EmptyRule = Literal["one", "zero", "skip"]
_EMPTY: dict[str, float] = {"one": 1.0, "zero": 0.0, "skip": np.nan}


def example_f1(truth: Any, predicted: Any, *, empty: EmptyRule = "one") -> float:
    """Return the example-averaged F1, the mean over rows of 2|T∩P| / (|T| + |P|).

    Args:
        truth: (n, L) of 0 and 1; nan marks a missing label.
        predicted: (n, L) of 0 and 1.
        empty: what a row counts that is empty in truth and in prediction: "one", as
            the public evaluators have it, "zero", or "skip" to leave it out.

    >>> example_f1([[1, 1, 0], [0, 0, 0]], [[1, 0, 0], [0, 0, 0]])
    0.833...
    """
    return mean_f1(*counts(truth, predicted, axis=1), empty=empty)


def macro_f1(truth: Any, predicted: Any, *, empty: EmptyRule = "zero") -> float:
    """Return the label-averaged F1, the mean over labels of 2|T∩P| / (|T| + |P|).

    Args:
        truth: (n, L) of 0 and 1; nan marks a missing label.
        predicted: (n, L) of 0 and 1.
        empty: what a label counts that no row has and no row was predicted to have:
            "one", "zero", as scikit-learn has it, or "skip" to leave it out.

    >>> macro_f1([[1, 1, 0], [1, 0, 0]], [[1, 0, 0], [1, 0, 0]])
    0.333...
    """
    return mean_f1(*counts(truth, predicted, axis=0), empty=empty)


def micro_f1(truth: Any, predicted: Any, *, empty: EmptyRule = "zero") -> float:
    """Return the F1 of all label decisions together, 2Σ|T∩P| / (Σ|T| + Σ|P|).

    Args:
        truth: (n, L) of 0 and 1; nan marks a missing label.
        predicted: (n, L) of 0 and 1.
        empty: what it is where nothing is on in truth and prediction: "one", "zero", as
            scikit-learn has it, or "skip" for nan.

    >>> micro_f1([[1, 1], [1, 0]], [[1, 0], [1, 1]])
    0.666...
    """
    totals = (part.sum(keepdims=True) for part in counts(truth, predicted, axis=1))
    return mean_f1(*totals, empty=empty)


def hamming_error(truth: Any, predicted: Any) -> float:
    """Return the share of labels that are wrong.

    >>> hamming_error([[1, 0], [0, 0]], [[1, 1], [0, 0]])
    0.25
    """
    both, sizes, observed = counts(truth, predicted, axis=1)
    return _share(sizes.sum() - 2 * both.sum(), observed.sum())


def subset_accuracy(truth: Any, predicted: Any) -> float:
    """Return the share of rows on which every label is right.

    >>> subset_accuracy([[1, 0], [0, 0]], [[1, 1], [0, 0]])
    0.5
    """
    both, sizes, observed = counts(truth, predicted, axis=1)
    right = (sizes == 2 * both) & (observed > 0)
    return _share(right.sum(), (observed > 0).sum())


def precision_at_k(truth: Any, scores: Any, k: int) -> float:
    """Return the mean over rows of the share of true labels among the k with the highest scores.

    It is divided by k even where a row has fewer labels. Of equal scores the one in the
    earlier column comes first.

    Args:
        truth: (n, L) of 0 and 1; nan marks a missing label, which is not ranked.
        scores: (n, L) finite numbers, such as probabilities.
        k: how many labels to look at, 1 or more.

    >>> precision_at_k([[1, 0, 1], [0, 1, 0]], [[0.9, 0.5, 0.1], [0.2, 0.2, 0.1]], 2)
    0.5
    """
    whole(k, "k")
    return _precisions(truth, scores, (k,))[0]


def calibration_error(truth: Any, probabilities: Any, *, bins: int = 15) -> float:
    """Return the expected calibration error over all label decisions.

    Every (row, label) is put into one of ``bins`` equal intervals of [0, 1] by its
    probability; the error is the mean over decisions of |share of labels on − mean
    probability| of the decision's interval.

    Args:
        truth: (n, L) of 0 and 1; nan marks a missing label.
        probabilities: (n, L) between 0 and 1, of the label being on.
        bins: how many intervals.

    >>> calibration_error([[1, 0, 0, 0]], [[0.25, 0.25, 0.25, 0.25]])
    0.0
    """
    whole(bins, "bins")
    total, count = np.zeros(bins), 0
    for t, p in blocks(truth, probabilities):
        if not ((p >= 0) & (p <= 1)).all():
            raise InputError("Probabilities must be between 0 and 1; some are not.")
        known = ~np.isnan(t)
        interval = np.minimum((p[known] * bins).astype(np.intp), bins - 1)
        total += np.bincount(interval, t[known] - p[known], minlength=bins)
        count += int(known.sum())
    return _share(np.abs(total).sum(), count)


class Score(NamedTuple):
    """A score and the rule by which it was computed."""

    value: float
    rule: str


def score_all(truth: Any, predicted: Any, probabilities: Any) -> dict[str, Score]:
    """Return every score of a multi-label prediction, each with its rule in words.

    Args:
        truth: (n, L) of 0 and 1; nan marks a missing label.
        predicted: (n, L) of 0 and 1.
        probabilities: (n, L) between 0 and 1.

    >>> scores = score_all([[1, 0]], [[1, 0]], [[0.9, 0.2]])
    >>> scores["example_f1"]
    Score(value=1.0, rule='mean over rows of 2·hits...a row empty in both counts 1')
    """
    f1 = "2·hits/(true + predicted labels)"
    scores = {
        "example_f1": Score(
            example_f1(truth, predicted), f"mean over rows of {f1}; a row empty in both counts 1"
        ),
        "micro_f1": Score(
            micro_f1(truth, predicted), f"{f1} of all decisions together; 0 if both are empty"
        ),
        "macro_f1": Score(
            macro_f1(truth, predicted), f"mean over labels of {f1}; a label empty in both counts 0"
        ),
        "hamming_error": Score(hamming_error(truth, predicted), "share of labels that are wrong"),
        "subset_accuracy": Score(
            subset_accuracy(truth, predicted), "share of rows with every label right"
        ),
    }
    ranks = (1, 3, 5)
    for k, value in zip(ranks, _precisions(truth, probabilities, ranks), strict=True):
        rule = f"true labels among the {k} most probable, divided by {k}; ties by column order"
        scores[f"precision_at_{k}"] = Score(value, rule)
    rule = "mean gap between probability and share of labels on, in 15 equal intervals"
    scores["calibration_error"] = Score(calibration_error(truth, probabilities), rule)
    return scores


def search_error_rate(energy_of_truth: Any, energy_found: Any, *, rtol: float = 1e-3) -> float:
    """Return the share of examples where inference missed a labelling that scores better.

    The truth is such a labelling when (E(truth) − E(found)) / |E(found)| < −rtol.

    >>> search_error_rate([-2.0, 1.0], [-1.0, 0.5])
    0.5
    """
    truth, found = as_array(energy_of_truth), as_array(energy_found)
    if truth.shape != found.shape or truth.ndim != 1 or not truth.size:
        raise InputError(
            "search_error_rate takes two vectors of energies of one length, not empty; "
            f"received shapes {truth.shape} and {found.shape}."
        )
    if not (np.isfinite(truth) & np.isfinite(found)).all():
        raise InputError("Energies must be finite numbers.")
    return float((truth - found < -rtol * np.abs(found)).mean())


def mean_f1(
    both: np.ndarray, sizes: np.ndarray, observed: np.ndarray, *, empty: EmptyRule
) -> float:
    """Return the mean F1 over rows or labels, from |T∩P|, |T| + |P| and the labels known.

    >>> mean_f1(np.array([1, 0]), np.array([3, 0]), np.array([4, 4]), empty="one")
    0.833...
    """
    rule = choose(empty, _EMPTY, "rule for what is empty in truth and prediction")
    f1 = row_f1(both, sizes, rule)[observed > 0]
    counted = f1[~np.isnan(f1)]
    return float(counted.mean()) if counted.size else float("nan")


def row_f1(both: np.ndarray, sizes: np.ndarray, empty: float = 1.0) -> np.ndarray:
    """Return the F1 of each row (or label) from |T∩P| and |T| + |P|."""
    return np.where(sizes > 0, 2 * both / np.maximum(sizes, 1), empty)


def _share(part: Any, total: Any) -> float:
    return float(part / total) if total else float("nan")


def _precisions(truth: Any, scores: Any, ks: Sequence[int]) -> list[float]:
    """Return the precision at each k, looking at each row once."""
    hits, rows = np.zeros(max(ks)), 0
    for t, left in blocks(truth, scores):
        known = ~np.isnan(t)
        left = np.where(known, left, -np.inf)
        rows += int(known.any(1).sum())
        every = np.arange(len(t))
        for rank in range(min(max(ks), t.shape[1])):
            best = left.argmax(1)  # the first of equal ones
            hits[rank] += ((t[every, best] == 1) & np.isfinite(left[every, best])).sum()
            left[every, best] = -np.inf
    return [_share(hits[:k].sum(), k * rows) for k in ks]
