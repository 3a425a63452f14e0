"""Scores of predicted label sets. All are fractions between 0 and 1."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from torch import Tensor

from spen.errors import InputError, choose

EmptyRule = Literal["one", "zero", "skip"]
_EMPTY: dict[str, float] = {"one": 1.0, "zero": 0.0, "skip": np.nan}


def example_f1(truth: Any, predicted: Any, *, empty: EmptyRule = "one") -> float:
    """Return the example-averaged F1, the mean over rows of 2|T∩P| / (|T| + |P|).

    Args:
        truth: (n, L) of 0 and 1.
        predicted: (n, L) of 0 and 1.
        empty: what a row counts that is empty in truth and in prediction: "one", as
            the public evaluators have it, "zero", or "skip" to leave it out.

    >>> example_f1([[1, 1, 0], [0, 0, 0]], [[1, 0, 0], [0, 0, 0]])
    0.833...
    """
    t, p = _pair(truth, predicted)
    rule = choose(empty, _EMPTY, "rule for empty rows")
    sizes = t.sum(1) + p.sum(1)
    rows = np.where(sizes > 0, 2 * (t & p).sum(1) / np.maximum(sizes, 1), rule)
    counted = rows[~np.isnan(rows)]
    return float(counted.mean()) if counted.size else float("nan")


def hamming_error(truth: Any, predicted: Any) -> float:
    """Return the share of labels that are wrong.

    >>> hamming_error([[1, 0], [0, 0]], [[1, 1], [0, 0]])
    0.25
    """
    t, p = _pair(truth, predicted)
    return float((t != p).mean())


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


def as_array(value: Any) -> np.ndarray:
    """Return any array or tensor as an array of float64."""
    if isinstance(value, Tensor):
        value = value.detach().cpu().double().numpy()
    try:
        return np.asarray(value, dtype=float)
    except (TypeError, ValueError) as problem:
        raise InputError(f"Scores are computed from arrays of numbers; {problem}.") from None


def _pair(truth: Any, predicted: Any) -> tuple[np.ndarray, np.ndarray]:
    t, p = as_array(truth), as_array(predicted)
    if t.shape != p.shape or t.ndim != 2 or not t.size:
        raise InputError(
            "truth and prediction must be two matrices of one shape (rows, labels), not empty; "
            f"received shapes {t.shape} and {p.shape}."
        )
    for name, values in (("truth", t), ("prediction", p)):
        if not np.isin(values, (0, 1)).all():
            raise InputError(f"The {name} must hold only 0 and 1. Decode soft predictions first.")
    return t.astype(bool), p.astype(bool)
