"""What scores are made of: how truth and prediction agree, counted by row or by label."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from spen.errors import InputError

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
        value = value.toarray()
    try:
        return np.asarray(value, dtype=dtype)
    except (TypeError, ValueError) as problem:
        raise InputError(f"Scores are computed from arrays of numbers; {problem}.") from None


def as_floats(value: Any) -> np.ndarray:
    """Return an array in its own floating type, in float64 where it has none.

    >>> as_floats(torch.tensor([0.5])).dtype, as_floats([0, 1]).dtype
    (dtype('float32'), dtype('float64'))
    """
    array = as_array(value, dtype=None)
    return array if array.dtype.kind == "f" else as_array(array)


def counts(truth: Any, predicted: Any, axis: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return |T∩P|, |T| + |P| and the number of labels that are known, along an axis.

    Sparse matrices stay sparse. A missing label (nan in the truth) counts nowhere.

    >>> counts([[1, 1, 0], [0, 0, np.nan]], [[1, 0, 0], [0, 0, 1]], axis=1)
    (array([1, 0]), array([3, 0]), array([3, 2]))
    """
    as_sparse = sparse.issparse(truth) or sparse.issparse(predicted)
    t, p = ((_as_sparse if as_sparse else as_array)(matrix) for matrix in (truth, predicted))
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
    truth, soft = (m.tocsr() if sparse.issparse(m) else _rows(m) for m in (truth, soft))
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
    return matrix if isinstance(matrix, Tensor | np.ndarray) else as_array(matrix)


def _as_sparse(matrix: Any) -> Any:
    if not sparse.issparse(matrix):
        matrix = as_array(matrix)
        return sparse.csr_array(matrix) if matrix.ndim == 2 else matrix
    # A copy, because the canonical form must not be forced on the caller's matrix.
    plain = sparse.csr_array(matrix, dtype=float, copy=True)
    plain.sum_duplicates()
    return plain


def _keep(matrix: Any, entries: np.ndarray) -> Any:
    kept = sparse.csr_array((entries, matrix.indices, matrix.indptr), shape=matrix.shape, copy=True)
    kept.eliminate_zeros()
    return kept


def _count(matrix: Any, axis: int) -> np.ndarray:
    if sparse.issparse(matrix):
        return np.asarray(matrix.sum(axis=axis, dtype=np.int64)).ravel()
    return np.count_nonzero(matrix, axis=axis)
