"""Labellings, known labels and label weights, in the order of a fitted model's labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from spen.errors import InputError, did_you_mean
from spen.targets import Targets, holds_label_lists, numbers, of_lists


def align(Y: Any, names: np.ndarray, exclusive: bool, rows: int) -> np.ndarray:
    """Return a labelling as a dense (rows, L) matrix in the order of a fitted model's labels.

    Args:
        Y: labels in any form that ``read_targets`` takes; soft ones in [0, 1] too.
        names: the labels of the model.
        exclusive: True where the model has one class per row.
        rows: how many rows there must be.
    """
    if exclusive and np.ndim(Y) == 1 and not sparse.issparse(Y):
        values = np.asarray(Y)
        known = np.isin(values, names)
        if not known.all():
            raise InputError(
                f"Y holds {values[~known][0]!r}, which is none of the classes that were fitted."
            )
        matrix = (values[:, None] == names[None, :]).astype(np.float32)
    elif holds_label_lists(Y):
        matrix = _columns_by_name(of_lists(Y), names)
    elif hasattr(Y, "columns") and hasattr(Y, "to_numpy"):
        matrix = _place(numbers(Y), list(Y.columns), names, fill=None)
    else:
        matrix = Y.toarray() if sparse.issparse(Y) else numbers(Y)
        matrix = matrix.astype(np.float32)
    if matrix.shape != (rows, len(names)):
        raise InputError(
            f"Y must have shape ({rows}, {len(names)}), a row for each of X and a column for each "
            f"label; received {matrix.shape}."
        )
    if not ((matrix >= 0) & (matrix <= 1)).all():
        raise InputError("A labelling must hold numbers from 0 to 1, none of them nan.")
    return matrix


def align_known(known: Any, names: np.ndarray, rows: int) -> np.ndarray:
    """Return known labels as a dense (rows, L) matrix of 1, 0 and nan."""
    if hasattr(known, "columns") and hasattr(known, "to_numpy"):
        matrix = _place(numbers(known), list(known.columns), names, fill=np.nan)
    elif sparse.issparse(known):
        raise InputError(
            "known must be dense: 1, 0, or nan for a label to infer. In a sparse matrix a label "
            "that is absent and one that is unknown look alike."
        )
    else:
        matrix = numbers(known)
    if matrix.shape != (rows, len(names)):
        raise InputError(
            f"known must have shape ({rows}, {len(names)}); received {matrix.shape}. A DataFrame "
            "may have some of the labels as its columns."
        )
    if not (np.isnan(matrix) | np.isin(matrix, (0, 1))).all():
        raise InputError("known must hold only 1, 0, or nan for a label to infer.")
    return matrix


def label_weights(value: Any, targets: Targets) -> np.ndarray | None:
    """Return the weight of each label, from one number a label or a dict by name."""
    if value is None:
        return None
    names = targets.names.tolist()
    if isinstance(value, dict):
        unknown = [name for name in value if name not in names]
        if unknown:
            raise InputError(
                f"label_weight names {unknown[0]!r}, which is no label. "
                f"{did_you_mean(str(unknown[0]), map(str, names))}"
            )
        value = [value.get(name, 1.0) for name in names]
    try:
        weights = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(
            f"label_weight must be numbers, or a dict from labels to numbers; received {value!r}."
        ) from None
    good = weights.shape == (len(names),) and np.isfinite(weights).all() and (weights >= 0).all()
    if not good or not weights.any():
        raise InputError(
            f"label_weight must be {len(names)} finite numbers of zero or more, one for each "
            f"label and not all zero; received {value!r}."
        )
    return weights


def _columns_by_name(targets: Targets, names: np.ndarray) -> np.ndarray:
    return _place(targets.matrix.toarray(), targets.names.tolist(), names, fill=0.0)


def _place(
    values: np.ndarray, given: list[Any], names: np.ndarray, fill: float | None
) -> np.ndarray:
    """Put named columns where the model has them; ``fill`` those that are not given."""
    number = {name: column for column, name in enumerate(names.tolist())}
    unknown = [name for name in given if name not in number]
    if unknown:
        raise InputError(
            f"{unknown[0]!r} is no label of this model. "
            f"{did_you_mean(str(unknown[0]), map(str, number))}"
        )
    missing = [name for name in number if name not in set(given)]
    if missing and fill is None:
        raise InputError(f"Y lacks {len(missing)} labels of the model, the first {missing[0]!r}.")
    placed = np.full((values.shape[0], len(number)), 0.0 if fill is None else fill, np.float32)
    placed[:, [number[name] for name in given]] = values
    return placed
