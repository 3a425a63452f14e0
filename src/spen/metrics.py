"""Scores of predicted label sets. All are fractions between 0 and 1.

Truth and prediction are (rows, labels) of 0 and 1: arrays, tensors or scipy's sparse
matrices, which stay sparse. A nan in the truth marks a missing label; it is left out of
every score, and so is a row or a label of which nothing is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from spen.batch.arrays import unmasked
from spen.batch.rows import compressed_rows
from spen.errors import InputError, check_whole, choose

__all__ = [
    "calibration_error",
    "example_f1",
    "hamming_error",
    "label_accuracy",
    "macro_f1",
    "micro_f1",
    "ndcg_at_k",
    "precision_at_k",
    "search_error_rate",
    "subset_accuracy",
]

THRESHOLDS = (0.0, *(k / 100 for k in range(1, 6)), *(k / 100 for k in range(10, 80, 5)))
"""The thresholds that are tried: 0, .01 to .05, and .10 to .75 in steps of .05."""

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
    """Return the share of labels that are wrong, Σ |truth − predicted| / (n L).

    Both are (n, L) of 0 and 1; nan in the truth is left out.

    >>> hamming_error([[1, 0], [0, 0]], [[1, 1], [0, 0]])
    0.25
    """
    both, sizes, observed = counts(truth, predicted, axis=1)
    return _share(sizes.sum() - 2 * both.sum(), observed.sum())


def subset_accuracy(truth: Any, predicted: Any) -> float:
    """Return the share of rows on which every label is right, T = P.

    Both are (n, L) of 0 and 1; nan in the truth is left out.

    >>> subset_accuracy([[1, 0], [0, 0]], [[1, 1], [0, 0]])
    0.5
    """
    both, sizes, observed = counts(truth, predicted, axis=1)
    right = (sizes == 2 * both) & (observed > 0)
    return _share(right.sum(), (observed > 0).sum())


def label_accuracy(truth: Any, predicted: Any) -> float:
    """Return the share of labels that are right, 1 − Σ |truth − predicted| / (n L).

    Both are (n, L) of 0 and 1; nan in the truth is left out.

    >>> label_accuracy([[1, 0], [0, 0]], [[1, 1], [0, 0]])
    0.75
    """
    return 1 - hamming_error(truth, predicted)


METRICS: dict[str, Callable[[Any, Any], float]] = {
    "f1": example_f1,
    "micro_f1": micro_f1,
    "macro_f1": macro_f1,
    "subset": subset_accuracy,
    "hamming": label_accuracy,
}
"""What a classifier may be asked for, by name: ``score(truth, labels)``; more is better."""

IN_WORDS = {
    "f1": "F1, averaged over rows",
    "micro_f1": "F1 of all decisions",
    "macro_f1": "F1, averaged over labels",
    "subset": "rows with every label right",
    "hamming": "labels that are right",
}
"""What people call the METRICS."""


def row_scores(metric: str, truth: Any, labels: Any) -> np.ndarray:
    """Return the score of each row, (n,), by a metric that is a mean over rows; else its F1.

    >>> row_scores("hamming", np.array([[1.0, 0.0]]), np.array([[1, 1]]))
    array([0.5])
    """
    both, sizes, observed = counts(truth, labels, axis=1)
    if metric == "subset":
        return (sizes == 2 * both).astype(float)
    if metric == "hamming":
        return 1 - (sizes - 2 * both) / np.maximum(observed, 1)
    return row_f1(both, sizes)


def score_by(metric: str, truth: Any, labels: Any, sample_weight: Any = None) -> float:
    """Return the score by one of METRICS, with rows that count differently.

    >>> score_by("subset", [[1, 0], [0, 0]], [[1, 1], [0, 0]], [1, 3])
    0.75
    """
    score = choose(metric, METRICS, "metric")
    if sample_weight is None:
        return score(truth, labels)
    weight = as_array(sample_weight)
    rows = np.shape(labels)[0]
    good = weight.shape == (rows,) and np.isfinite(weight).all() and (weight >= 0).all()
    if not good or not weight.any():
        raise InputError(
            f"sample_weight must be {rows} numbers of zero or more, one a row and not all zero."
        )
    weight = weight / weight[weight > 0].min()
    if metric == "macro_f1":
        t, p = as_array(truth), as_array(labels)
        known = ~np.isnan(t)
        on = (p == 1) & known
        both, sizes = (t == 1) & on, ((t == 1) + on.astype(float))
        return mean_f1(weight @ both, weight @ sizes, weight @ known, empty="zero")
    both, sizes, observed = counts(truth, labels, axis=1)
    if metric == "micro_f1":
        totals = (np.atleast_1d(weight @ part) for part in (both, sizes, observed))
        return mean_f1(*totals, empty="zero")
    if metric == "hamming":
        return 1 - _share(weight @ (sizes - 2 * both), weight @ observed)
    weight = weight * (observed > 0)
    return _share(weight @ row_scores(metric, truth, labels), weight.sum())


def ndcg_at_k(truth: Any, scores: Any, k: int) -> float:
    """Return the mean over rows of the discounted gain of the k labels with the highest scores.

    A true label at rank r counts 1 / log₂(r + 1); it is divided by what the best order would have.
    Rows without a true label are left out. Of equal scores the earlier column comes first.

    Args:
        truth: (n, L) of 0 and 1; nan marks a missing label, which is not ranked.
        scores: (n, L) finite numbers, such as probabilities.
        k: how many labels to look at, 1 or more.

    >>> ndcg_at_k([[1, 0, 1]], [[0.9, 0.5, 0.1]], 2)
    0.613...
    """
    check_whole(k, "k")
    gains, rows = 0.0, 0
    for t, s in blocks(truth, scores):
        top = np.argsort(-np.where(np.isnan(t), -np.inf, s), axis=1, kind="stable")[:, :k]
        discounts = 1 / np.log2(np.arange(2, top.shape[1] + 2))
        true = np.nansum(t, axis=1).astype(int)
        ideal = np.concatenate([[0.0], np.cumsum(discounts)])[np.minimum(true, top.shape[1])]
        found = (np.nan_to_num(np.take_along_axis(t, top, axis=1)) * discounts).sum(1)
        gains += (found[true > 0] / ideal[true > 0]).sum()
        rows += int((true > 0).sum())
    return _share(gains, rows)


def precision_at_k(truth: Any, scores: Any, k: int) -> float:
    """Return the mean over rows of |T ∩ best k| / k, the k labels with the highest scores.

    It is divided by k even where a row has fewer labels. Of equal scores the one in the
    earlier column comes first.

    Args:
        truth: (n, L) of 0 and 1; nan marks a missing label, which is not ranked.
        scores: (n, L) finite numbers, such as probabilities.
        k: how many labels to look at, 1 or more.

    >>> precision_at_k([[1, 0, 1], [0, 1, 0]], [[0.9, 0.5, 0.1], [0.2, 0.2, 0.1]], 2)
    0.5
    """
    check_whole(k, "k")
    return _precisions(truth, scores, (k,))[0]


def calibration_error(truth: Any, probabilities: Any, *, bins: int = 15) -> float:
    """Return the expected calibration error over all label decisions.

    Every (row, label) is put into one of ``bins`` equal intervals of [0, 1] by its
    probability. With B_k the decisions of interval k, the error is

        Σ_k |B_k| / (n L) · |share of labels on in B_k − mean probability in B_k|

    Args:
        truth: (n, L) of 0 and 1; nan marks a missing label.
        probabilities: (n, L) between 0 and 1, of the label being on.
        bins: how many intervals.

    >>> calibration_error([[1, 0, 0, 0]], [[0.25, 0.25, 0.25, 0.25]])
    0.0
    """
    check_whole(bins, "bins")
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


def score_all(
    truth: Any, predicted: Any, probabilities: Any, *, metric: str = "f1"
) -> dict[str, Score]:
    """Return every score of a multi-label prediction, each with its rule in words.

    Precision is looked at among the first 1, 3 and 5, if there are so many labels.

    Args:
        truth: (n, L) of 0 and 1; nan marks a missing label.
        predicted: (n, L) of 0 and 1.
        probabilities: (n, L) between 0 and 1.
        metric: the one of METRICS that comes first.

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
    first = {"f1": "example_f1", "subset": "subset_accuracy", "hamming": "hamming_error"}
    leading = first.get(metric, metric)
    scores = {leading: scores[leading]} | scores
    ranks = tuple(k for k in (1, 3, 5) if k <= np.shape(probabilities)[1])
    for k, value in zip(ranks, _precisions(truth, probabilities, ranks), strict=True):
        rule = f"true labels among the {k} most probable, divided by {k}; a row without one: 0"
        scores[f"precision_at_{k}"] = Score(value, rule)
    for k in ranks[1:]:
        rule = f"gain of the {k} most probable, 1/log2(rank + 1) each, over the best order's; "
        rule += "rows without a true label are left out"
        scores[f"ndcg_at_{k}"] = Score(ndcg_at_k(truth, probabilities, k), rule)
    rule = "mean gap between probability and share of labels on, in 15 equal intervals"
    scores["calibration_error"] = Score(calibration_error(truth, probabilities), rule)
    return scores


def search_error_rate(energy_of_truth: Any, energy_found: Any, *, rtol: float = 1e-3) -> float:
    """Return the share of examples where inference missed a labelling that scores better.

    The truth is such a labelling when (E(truth) − E(found)) / |E(found)| < −rtol.
    Energies are (n,).

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


def best_f1(truth: Any, soft: Any) -> float:
    """Return the example-averaged F1 of soft predictions at the best of the THRESHOLDS."""
    return max(example_f1_at(THRESHOLDS, truth, soft))


def example_f1_at(candidates: Sequence[float], truth: Any, soft: Any) -> list[float]:
    """Return example_f1 at each threshold, to the last bit, with one look at the truth."""
    t, values, known = held_out_labels(truth, soft)
    rows, columns = np.nonzero(t)
    at_true, sizes = values[rows, columns], np.bincount(rows, minlength=len(t))
    scores = []
    for threshold in np.asarray(candidates, dtype=float).astype(values.dtype):
        both = np.bincount(rows[at_true > threshold], minlength=len(t))
        predicted = np.count_nonzero(values > threshold, axis=1)
        scores.append(mean_f1(both, sizes + predicted, known, empty="one"))
    return scores


def held_out_labels(truth: Any, soft: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return where labels are on, soft predictions (−inf where not known), known per row."""
    t, values = as_floats(truth), soft_numbers(soft)
    check_shapes(t.shape, values.shape)
    on, missing = marked(t, "truth")
    if missing is None:
        return on, values, np.full(len(t), t.shape[1])
    return on, np.where(missing, -np.inf, values), (~missing).sum(1)


def soft_numbers(soft: Any) -> np.ndarray:
    """Return soft predictions in their own floating type; none may be nan."""
    values = as_floats(soft)
    if np.isnan(values).any():
        raise InputError("Soft predictions must be numbers; some are nan.")
    return values


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


BLOCK = 1 << 21
"""Entries of soft predictions that are looked at together."""


def as_array(value: Any, dtype: Any = float) -> np.ndarray:
    """Return any array, tensor or sparse matrix as a dense array, by default of float64.

    >>> as_array(torch.tensor([0.5], dtype=torch.bfloat16))
    array([0.5])
    """
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        # numpy has no bfloat16.
        value = (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    if sparse.issparse(value):
        value = compressed_rows(value, "A matrix of labels").toarray()
    try:
        return np.asarray(unmasked(value), dtype=dtype)
    except (TypeError, ValueError) as problem:
        raise InputError(f"Scores are computed from arrays of numbers; {problem}.") from None


def as_floats(value: Any) -> np.ndarray:
    """Return an array in its own floating type, in float64 where it has none.

    >>> as_floats(torch.tensor([0.5])).dtype, as_floats([0, 1]).dtype
    (dtype('float32'), dtype('float64'))
    """
    array = _as_numbers(value)
    return array if array.dtype.kind == "f" else array.astype(float)


def _as_numbers(value: Any) -> np.ndarray:
    """Return an array in its own type if that is one of numbers, else in float64."""
    array = as_array(value, dtype=None)
    return array if array.dtype.kind in "biuf" else as_array(array)


def counts(truth: Any, predicted: Any, axis: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return |T∩P|, |T| + |P| and the number of labels that are known, along an axis.

    Sparse matrices stay sparse. A missing label (nan in the truth) counts nowhere.

    >>> counts([[1, 1, 0], [0, 0, np.nan]], [[1, 0, 0], [0, 0, 1]], axis=1)
    (array([1, 0]), array([3, 0]), array([3, 2]))
    """
    as_sparse = sparse.issparse(truth) or sparse.issparse(predicted)
    t, p = ((_as_sparse if as_sparse else _as_numbers)(matrix) for matrix in (truth, predicted))
    check_shapes(t.shape, p.shape)
    t_on, missing = marked(t, "truth")
    p_on, _ = marked(p, "prediction")
    if missing is not None:
        p_on = p_on > missing  # on, and not missing
    both = t_on.multiply(p_on) if as_sparse else t_on & p_on
    known = np.full(t.shape[1 - axis], t.shape[axis])
    if missing is not None:
        known -= _count(missing, axis)
    return _count(both, axis), _count(t_on, axis) + _count(p_on, axis), known


def blocks(truth: Any, soft: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield rows of truth and soft predictions, dense in float64, a block at a time."""
    truth, soft = (m if hasattr(m, "shape") else as_array(m) for m in (truth, soft))
    truth, soft = (_as_sparse(m) if sparse.issparse(m) else _rows(m) for m in (truth, soft))
    check_shapes(tuple(truth.shape), tuple(soft.shape))
    step = max(1, BLOCK // truth.shape[1])
    for begin in range(0, truth.shape[0], step):
        t, s = as_array(truth[begin : begin + step]), as_array(soft[begin : begin + step])
        marked(t, "truth")
        if not np.isfinite(s).all():
            raise InputError("Soft predictions must be finite numbers; some are not.")
        yield t, s


def check_shapes(truth: tuple[int, ...], predicted: tuple[int, ...]) -> None:
    """Raise unless both are the shape of one matrix that is not empty."""
    if truth != predicted or len(truth) != 2 or 0 in truth:
        raise InputError(
            "truth and prediction must be two matrices of one shape (rows, labels), not empty; "
            f"received shapes {truth} and {predicted}."
        )


def marked(matrix: Any, name: str) -> tuple[Any, Any]:
    """Return where a matrix is 1 and, if anywhere, where it is nan; refuse other values.

    >>> marked(np.array([[1.0, 0.0]]), "truth")
    (array([[ True, False]]), None)
    """
    entries = matrix.data if sparse.issparse(matrix) else matrix
    on, nan = entries == 1, np.isnan(entries)
    allowed = on | (entries == 0) | (nan if name == "truth" else False)
    if not allowed.all():
        raise InputError(f"The {name} must hold only 0 and 1. Decode soft predictions first.")
    if sparse.issparse(matrix):
        return _keep(matrix, on), _keep(matrix, nan) if nan.any() else None
    return on, nan if nan.any() else None


def _rows(matrix: Any) -> Any:
    """Return something whose rows can be sliced: a DataFrame's cannot."""
    plain = isinstance(matrix, Tensor | np.ndarray) and not np.ma.isMaskedArray(matrix)
    return matrix if plain else as_array(matrix)


def _as_sparse(matrix: Any) -> Any:
    if not sparse.issparse(matrix):
        matrix = as_array(matrix)
        return sparse.csr_array(matrix) if matrix.ndim == 2 else matrix
    return sparse.csr_array(compressed_rows(matrix, "A matrix of labels"), dtype=float)


def _keep(matrix: Any, entries: np.ndarray) -> Any:
    kept = sparse.csr_array((entries, matrix.indices, matrix.indptr), shape=matrix.shape, copy=True)
    kept.eliminate_zeros()
    return kept


def _count(matrix: Any, axis: int) -> np.ndarray:
    if sparse.issparse(matrix):
        return np.asarray(matrix.sum(axis=axis, dtype=np.int64)).ravel()
    return np.count_nonzero(matrix, axis=axis)
