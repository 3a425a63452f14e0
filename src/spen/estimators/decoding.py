"""Decoding: from soft predictions to label sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from spen.errors import InputError, check_positive
from spen.metrics import (
    BLOCK,
    METRICS,
    THRESHOLDS,
    as_array,
    as_floats,
    blocks,
    counts,
    example_f1,
    example_f1_at,
    held_out_labels,
    macro_f1,
    row_f1,
    soft_numbers,
)

DECODINGS = ("threshold", "label_thresholds", "row_threshold", "expected_f1", "half", "joint")
"""How a classifier may find labels. All but "joint", the labelling of the lowest energy, look at
probabilities alone."""

BEST_FOR = {
    "f1": ("expected_f1",),
    "micro_f1": ("threshold",),
    "macro_f1": ("label_thresholds",),
    "subset": ("half", "joint"),
    "hamming": ("half",),
}
"""What maximises each metric in expectation; of several, held-out rows choose."""

_TINY = np.finfo(float).tiny

POWERS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Of a row's largest probability, by which its threshold goes (see ``relative_to_row``)."""

LARGEST_EMPTY = 10.0
"""The most by which empty label sets are taken to be likelier than for independent labels."""


def decode(soft: Any, decoding: str, tuned: Any) -> np.ndarray:
    """Turn probabilities into labels of 0 and 1.

    Args:
        soft: (n, L) probabilities.
        decoding: one of DECODINGS.
        tuned: the threshold or thresholds; for "row_threshold" the threshold and the power; for
            "expected_f1" how likely empty rows are.
    """
    if decoding == "expected_f1":
        return expected_f1(soft, empty=tuned)
    if decoding == "joint":
        raise InputError(
            'The decoding "joint" is the labelling of the lowest energy, which probabilities '
            "do not tell. Call predict(X), or choose another decoding."
        )
    if decoding == "row_threshold":
        # A NumPy number would make float32 float64, in which ties fall differently.
        threshold, power = map(float, tuned)
        return apply_threshold(relative_to_row(soft, power), threshold)
    return apply_threshold(soft, tuned)


def tune_decodings(truth: Any, soft: Any, decodings: Sequence[str], metric: str) -> dict[str, Any]:
    """Return what decodings choose on held-out rows (see ``decode``), by their names.

    What takes long, thresholds of labels and of rows, is tuned only where it is asked for.

    Args:
        truth: (n, L) of 0 and 1; nan marks a missing label.
        soft: (n, L) probabilities.
        decodings: those that are asked for.
        metric: what they are to be good at.
    """
    tuned: dict[str, Any] = {
        "threshold": tune_threshold(truth, soft, score=METRICS[metric])[0],
        "expected_f1": tune_empty(truth, soft),
        "half": 0.5,
    }
    if "label_thresholds" in decodings:
        tune = tune_macro_thresholds if metric == "macro_f1" else tune_label_thresholds
        tuned["label_thresholds"] = tune(truth, soft)[0]
    if "row_threshold" in decodings:
        tuned["row_threshold"] = tune_row_threshold(truth, soft, score=METRICS[metric])[0]
    if "joint" in decodings:
        tuned["joint"] = 0.0
    return tuned


def apply_threshold(soft: Any, threshold: Any) -> np.ndarray:
    """Return 1 where the soft prediction is above the threshold, else 0, as int8.

    The comparison is made in the floating type of the predictions: 0.3 in float32 is not
    above a threshold of 0.3.

    Args:
        soft: (n, L) numbers.
        threshold: one for all labels, or (L,) one for each.

    >>> apply_threshold([[0.2, 0.6]], 0.5)
    array([[0, 1]], dtype=int8)
    >>> apply_threshold([[0.2, 0.6]], [0.1, 0.7])
    array([[1, 0]], dtype=int8)
    """
    values = soft_numbers(soft)
    bounds = as_array(threshold)
    if bounds.ndim and bounds.shape != values.shape[-1:]:
        raise InputError(
            "The threshold must be one number or one for each label; received shape "
            f"{bounds.shape} for predictions of shape {values.shape}."
        )
    if np.isnan(bounds).any():
        raise InputError("The threshold must be a number; received nan.")
    return (values > bounds.astype(values.dtype)).astype(np.int8)


def tune_threshold(
    truth: Any,
    soft: Any,
    *,
    candidates: Sequence[float] = THRESHOLDS,
    score: Callable[[Any, Any], float] = example_f1,
) -> tuple[float, float]:
    """Return the threshold with the best score on held-out data, and that score.

        t = argmax_t score(truth, [soft > t]),   truth and soft (n, L)

    Where several are equally good, as for predictions near 0 and 1, the middle one is
    taken: it is the least likely to be an accident of this sample.

    >>> tune_threshold([[1, 0], [1, 0]], [[0.4, 0.2], [0.9, 0.1]])
    (0.3, 1.0)
    """
    if not len(candidates):
        raise InputError("candidates is empty: give at least one threshold to try.")
    if score is example_f1:
        scores = np.array(example_f1_at(candidates, truth, soft))
    else:
        scores = np.array([score(truth, apply_threshold(soft, value)) for value in candidates])
    if np.isnan(scores).any():
        raise InputError("The score is nan for some threshold, so none can be called the best.")
    best = np.flatnonzero(scores == scores.max())
    middle = best[len(best) // 2]
    return float(candidates[middle]), float(scores[middle])


def relative_to_row(soft: Any, power: float) -> np.ndarray:
    """Return soft predictions over the largest of their row, to some power.

    One threshold t on them is the threshold t · max(p)^power on the row itself: a row that has a
    strong label needs more to take another one.

    >>> relative_to_row([[0.8, 0.4]], 1.0)
    array([[1. , 0.5]])
    """
    values = soft_numbers(soft)
    largest = values.max(axis=1, keepdims=True) if values.size else np.ones((len(values), 1))
    return values / np.maximum(largest, np.finfo(values.dtype).tiny) ** power


def tune_row_threshold(
    truth: Any, soft: Any, *, score: Callable[[Any, Any], float] = example_f1
) -> tuple[np.ndarray, float]:
    """Return the threshold and the power of rows (see ``relative_to_row``) with the best score on
    held-out data, and that score.

    The power 0 is one threshold for all rows, so the score is never below that one's.

    >>> tune_row_threshold([[1, 0], [1, 1]], [[0.9, 0.5], [0.4, 0.3]])
    (array([0.55, 0.75]), 1.0)
    """
    found = [tune_threshold(truth, relative_to_row(soft, c), score=score) for c in POWERS]
    best = int(np.argmax([value for _, value in found]))
    threshold, value = found[best]
    return np.array([threshold, POWERS[best]]), value


def tune_label_thresholds(
    truth: Any,
    soft: Any,
    *,
    candidates: Sequence[float] = THRESHOLDS,
    shrink: float = 50.0,
    sweeps: int = 3,
) -> tuple[np.ndarray, float]:
    """Return a threshold for each label, (L,), and their example-averaged F1 on held-out data.

    From the best global threshold, each label in turn moves to the candidate that helps
    most, the frequent labels first. A label with few positive rows says little about its
    threshold, so its candidates are drawn towards the global one: by the share
    shrink / (shrink + positive rows). On the rows given, the result is never worse than
    the global threshold.

    Args:
        truth: (n, L) of 0 and 1; nan marks a missing label.
        soft: (n, L) numbers.
        candidates: the thresholds to try.
        shrink: how many positive rows a label needs to move half of the way.
        sweeps: how often to go over the labels at most.

    >>> soft = [[0.9, 0.3], [0.6, 0.1], [0.9, 0.1], [0.6, 0.3]]
    >>> tune_label_thresholds([[1, 1], [0, 0], [1, 0], [0, 1]], soft, shrink=0)
    (array([0.6 , 0.25]), 1.0)
    """
    check_positive(shrink, "shrink", zero=True)
    start, start_score = tune_threshold(truth, soft, candidates=candidates)
    t, values, known = held_out_labels(truth, soft)
    t, values = t[known > 0], values[known > 0]
    thresholds = np.full(t.shape[1], start)
    on = values > thresholds.astype(values.dtype)
    both, sizes = (t & on).sum(1), t.sum(1) + on.sum(1)
    positives = t.sum(0)
    steps = np.sort(np.asarray(candidates, dtype=float)) - start
    for _ in range(sweeps):
        moved = False
        for label in np.argsort(-positives, kind="stable"):
            if not positives[label]:
                continue
            tried = start + steps * positives[label] / (positives[label] + shrink)
            t_l, on_l = t[:, label], on[:, label]
            without, others = both - (t_l & on_l), sizes - on_l
            gain = row_f1(without + t_l, others + 1) - row_f1(without, others)
            best = _best_cut(values[:, label], gain, tried, float(thresholds[label]))
            if best != thresholds[label]:
                new = values[:, label] > np.asarray(best, values.dtype)
                both, sizes = without + (t_l & new), others + new
                on[:, label], thresholds[label], moved = new, best, True
        if not moved:
            break
    score = example_f1(truth, apply_threshold(soft, thresholds))
    # Sums of many small gains round; what was promised is about the score itself.
    if score < start_score:
        return np.full(t.shape[1], start), start_score
    return thresholds, score


def tune_macro_thresholds(
    truth: Any, soft: Any, *, candidates: Sequence[float] = THRESHOLDS, shrink: float = 10.0
) -> tuple[np.ndarray, float]:
    """Return a threshold for each label, (L,), and their label-averaged F1 on held-out data.

    Each label has the one that is best for its own F1, drawn towards the best for all of them by
    the share shrink / (shrink + positive rows).

    >>> soft = [[0.9, 0.3], [0.6, 0.1], [0.9, 0.1], [0.6, 0.3]]
    >>> tune_macro_thresholds([[1, 1], [0, 0], [1, 0], [0, 1]], soft, shrink=0)
    (array([0.7, 0.2]), 1.0)
    """
    check_positive(shrink, "shrink", zero=True)
    start, _ = tune_threshold(truth, soft, candidates=candidates, score=macro_f1)
    scores = []
    for candidate in candidates:
        both, sizes, _ = counts(truth, apply_threshold(soft, candidate), axis=0)
        scores.append(row_f1(both, sizes, empty=0.0))
    table = np.array(scores)
    # In the middle of the best ones: the least likely to be an accident of this sample.
    best = table >= table.max(axis=0)
    middle = np.array([np.flatnonzero(column)[column.sum() // 2] for column in best.T])
    positives = np.nansum(as_array(truth), axis=0)
    drawn = shrink / np.maximum(shrink + positives, _TINY)
    thresholds = drawn * start + (1 - drawn) * np.asarray(candidates, dtype=float)[middle]
    thresholds = np.where(positives > 0, thresholds, start)
    return thresholds, macro_f1(truth, apply_threshold(soft, thresholds))


def expected_f1(probabilities: Any, *, empty: float = 1.0) -> np.ndarray:
    """Return for each row the labels that maximise its expected F1, (n, L) of int8.

    The best set of k labels is that of the k most probable ones. With q the probability
    that the row has no label, the row's labels number m = max(1, Σp / (1 − q)) on average
    where it has any, and the expected F1 is about

        2 Σ_{top k} p / (k + m)   for k ≥ 1,   and q for k = 0,

    since an empty prediction of an empty row counts 1. Of equally good k the smallest one
    above zero is taken, and of equally probable labels the one in the earlier column. A label
    of probability 0 is never taken.

    The labels' own probabilities do not tell q. It is min(empty · Π(1 − p), 1 − max p):
    independent labels have empty = 1, but on most data rows without labels are far rarer,
    which ``tune_empty`` finds out; empty = 0 always predicts something.

    Args:
        probabilities: (n, L) between 0 and 1.
        empty: how likely an empty label set is, relative to independent labels.

    >>> expected_f1([[0.9, 0.5, 0.1], [0.1, 0.2, 0.1]])
    array([[1, 1, 0],
           [0, 0, 0]], dtype=int8)
    >>> expected_f1([[0.1, 0.2, 0.1]], empty=0)
    array([[1, 1, 0]], dtype=int8)
    """
    if not empty >= 0:
        check_positive(empty, "empty", zero=True)
    values = _probabilities(probabilities)
    labels = np.zeros(values.shape, np.int8)
    step = max(1, BLOCK // values.shape[1])
    for begin in range(0, len(values), step):
        _decode_block(values[begin : begin + step], labels[begin : begin + step], empty)
    return labels


def tune_empty(truth: Any, probabilities: Any) -> float:
    """Return ``empty`` for ``expected_f1``: how much likelier empty rows are than Π(1 − p) says.

    It is the share of held-out rows without labels over the mean of Π(1 − p).

    >>> tune_empty([[1, 0], [0, 1], [0, 0], [1, 1]], [[0.5, 0.5]] * 4)
    1.0
    >>> tune_empty([[1, 0], [0, 1]], [[0.5, 0.5]] * 2)
    0.0
    """
    empty, none = [], []
    for t, p in blocks(truth, _probabilities(probabilities)):
        missing = np.isnan(t)
        known = ~missing.all(1)
        empty.append(~(t == 1).any(1)[known])
        none.append(np.prod(np.where(missing, 1.0, 1 - p), axis=1)[known])
    share, independent = np.concatenate(empty).mean(), np.concatenate(none).mean()
    if share == 0 or independent * LARGEST_EMPTY <= share:
        return 0.0 if share == 0 else LARGEST_EMPTY
    return float(share / independent)


def _decode_block(values: np.ndarray, labels: np.ndarray, empty: float) -> None:
    """Set the labels of some rows; each row's depend on that row alone, to the last bit."""
    p = np.ascontiguousarray(values, dtype=float)
    top = p.max(axis=1)
    q = np.minimum(empty * (1 - p).prod(axis=1), 1 - top)
    size = np.maximum(1.0, p.sum(axis=1) / np.maximum(1 - q, _TINY))
    # The k-th label helps where its p is above half the value of the k − 1 before it, which is at
    # least that of the first one alone. So few labels need to be sorted. (The bound is a little
    # lower, because sums round.)
    helpful = np.flatnonzero(p >= ((1 - 1e-9) * top / (1 + size))[:, None])
    rows = helpful // p.shape[1]
    each = np.arange(len(p))
    place = np.arange(len(helpful)) - np.searchsorted(rows, each)[rows]
    ranked = np.zeros((len(p), place.max() + 1))
    entries = np.zeros(ranked.shape, np.intp)
    ranked[rows, place], entries[rows, place] = p.ravel()[helpful], helpful
    order = each[:, None], (-ranked).argsort(axis=1, kind="stable")
    ranked, entries = ranked[order], entries[order]
    # Running sums go from left to right, whatever the number of rows.
    ranks = np.arange(1, ranked.shape[1] + 1)
    value = 2 * np.cumsum(ranked, axis=1) / (ranks + size[:, None])
    best = np.where(q > value.max(axis=1), 0, 1 + value.argmax(axis=1))
    # What is impossible, such as a label known to be off, is never predicted.
    chosen = (ranks <= best[:, None]) & (ranked > 0)
    labels.reshape(-1)[entries[chosen]] = 1


def _best_cut(values: np.ndarray, gain: np.ndarray, tried: np.ndarray, now: float) -> float:
    """Return the threshold above which the rows' gains add up to the most, or the present one."""
    cuts = np.append(tried, now)
    order = np.argsort(cuts, kind="stable")
    # A row is on for the cuts that are below its value; sum from the highest cut downwards.
    below = np.searchsorted(cuts[order].astype(values.dtype), values, side="left")
    per_cut = np.bincount(below, gain, minlength=len(cuts) + 1)
    totals = np.empty(len(cuts))
    totals[order] = np.cumsum(per_cut[::-1])[::-1][1:]
    if totals.max() <= totals[-1] + 1e-9:
        return now
    best = tried[totals[:-1] >= totals.max() - 1e-9]
    return float(best[np.abs(best - now).argmin()])


def probability_rows(value: Any, labels: int) -> np.ndarray:
    """Return probabilities as an array (n, labels), or say what else was received.

    >>> probability_rows([[0.2, 0.6]], labels=2)
    array([[0.2, 0.6]])
    """
    values = as_floats(value)
    if values.ndim != 2 or values.shape[1] != labels:
        raise InputError(
            f"probabilities must be what predict_proba returns, a row of {labels} numbers for each "
            f"example; received shape {values.shape}."
        )
    return values


def _probabilities(value: Any) -> np.ndarray:
    plain = isinstance(value, np.ndarray) and value.dtype.kind == "f"
    values = value if plain else as_floats(value)
    if values.ndim != 2 or not values.size:
        raise InputError(
            "Probabilities must be a matrix (rows, labels), not empty; "
            f"received shape {values.shape}."
        )
    if not ((values >= 0) & (values <= 1)).all():
        raise InputError("Probabilities must be between 0 and 1; some are not.")
    return values
