"""Turns what people pass into tensors, or says what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from spen.batch.rows import Rows, SparseRows
from spen.errors import InputError


def as_tensor(value: Any, name: str, dtype: torch.dtype, device: torch.device | None) -> Tensor:
    """Return ``value`` as a detached dense tensor of the given type, whatever array it was."""
    if isinstance(value, Tensor):
        if value.layout != torch.strided or value.is_complex():
            raise InputError(f"{name} must be a dense tensor of real numbers.")
        return value.detach().to(dtype=dtype, device=device)
    try:
        array = np.ma.filled(np.ma.asarray(value), np.nan) if np.ma.isMaskedArray(value) else value
        array = np.asarray(array)
        if array.dtype.kind not in "biuf":
            raise TypeError(f"its entries are of type {array.dtype}")
    except (TypeError, ValueError, RuntimeError) as problem:
        raise InputError(f"{name} must be an array of numbers; {problem}.") from None
    # A copy in a plain type: other byte orders, long doubles and read-only arrays come in too.
    plain = np.array(array, dtype=np.float64 if dtype == torch.float64 else np.float32)
    return torch.from_numpy(plain).to(dtype=dtype, device=device)


def as_matrix(
    value: Any,
    name: str = "X",
    *,
    columns: int | None = None,
    rows: int | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | None = None,
) -> Tensor:
    """Return a finite (rows, columns) matrix, or say where it is not one."""
    matrix = as_tensor(value, name, dtype, device)
    _check_shape(matrix, name, columns, rows)
    bad = ~torch.isfinite(matrix)
    if bad.any():
        row, column = _first(bad)
        raise InputError(
            f"{name} must hold finite numbers; row {row}, column {column} holds "
            f"{matrix[row, column].item()}. Drop or fill such entries first."
        )
    return matrix


def as_rows(
    value: Any,
    name: str = "X",
    *,
    columns: int | None = None,
    rows: int | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | None = None,
) -> Rows:
    """Return finite inputs: a matrix, or a sparse matrix that stays sparse."""
    if not sparse.issparse(value):
        return as_matrix(value, name, columns=columns, rows=rows, dtype=dtype, device=device)
    kept = _as_sparse(value, name, columns, rows, dtype, device)
    if not np.isfinite(kept.matrix.data).all():
        raise InputError(f"{name} must hold finite numbers; some entry is nan or infinite.")
    return kept


def as_label_rows(
    value: Any,
    name: str = "Y",
    *,
    columns: int | None = None,
    rows: int | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | None = None,
) -> tuple[Rows, Tensor | None]:
    """Return labels as ``as_targets`` does, but leave a sparse matrix sparse."""
    if not sparse.issparse(value):
        return as_targets(value, name, columns=columns, rows=rows, dtype=dtype, device=device)
    kept = _as_sparse(value, name, columns, rows, dtype, device)
    if not np.isin(kept.matrix.data, (0, 1)).all():
        raise InputError(f"{name} must hold only 0 and 1; this sparse matrix has other entries.")
    return kept, None


def _as_sparse(
    value: Any,
    name: str,
    columns: int | None,
    rows: int | None,
    dtype: torch.dtype,
    device: torch.device | None,
) -> SparseRows:
    if value.ndim != 2 or value.dtype.kind not in "biuf":
        raise InputError(f"{name} must be a matrix of real numbers; received {value!r}.")
    kept = SparseRows(value, dtype, device)
    _check_shape(kept, name, columns, rows)
    return kept


def as_targets(
    value: Any,
    name: str = "Y",
    *,
    columns: int | None = None,
    rows: int | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Return a 0/1 matrix and the mask of what was observed (None: everything).

    A nan marks a missing label: its target is 0 and its mask False.
    """
    matrix = as_tensor(value, name, dtype, device)
    if matrix.ndim == 1:
        raise InputError(
            f"{name} must have two dimensions, (rows, labels) of 0 and 1; "
            f"received shape {tuple(matrix.shape)}. If these are class numbers, pass one-hot "
            "rows and a Simplex domain."
        )
    _check_shape(matrix, name, columns, rows)
    missing = torch.isnan(matrix)
    bad = ~((matrix == 0) | (matrix == 1) | missing)
    if bad.any():
        row, column = _first(bad)
        raise InputError(
            f"{name} must hold only 0 and 1 (or nan for a missing label); row {row}, "
            f"column {column} holds {matrix[row, column].item():g}."
        )
    if not missing.any():
        return matrix, None
    return torch.nan_to_num(matrix, nan=0.0), ~missing


def as_known(
    value: Any,
    rows: int,
    columns: int,
    dtype: torch.dtype = torch.float32,
    device: torch.device | None = None,
) -> Tensor:
    """Return a matrix of labels to hold fixed: 1, 0, or nan for unknown."""
    targets, observed = as_targets(
        value, "known", columns=columns, rows=rows, dtype=dtype, device=device
    )
    return targets if observed is None else torch.where(observed, targets, torch.nan)


def as_mask(
    value: Any, also: Tensor | None, rows: int, columns: int, device: torch.device
) -> Tensor | None:
    """Return the mask of what was observed: both ``value`` and ``also``, None for all."""
    if value is None:
        return also
    mask = as_tensor(value, "observed", torch.float32, device)
    _check_shape(mask, "observed", columns, rows)
    return mask.bool() if also is None else mask.bool() & also


def as_weights(
    value: Any, size: int, name: str = "weight", *, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Return the weights of examples or labels: finite and not negative."""
    weight = as_tensor(value, name, dtype, device)
    if weight.shape != (size,):
        raise InputError(f"{name} must have shape ({size},); received {tuple(weight.shape)}.")
    if not (torch.isfinite(weight) & (weight >= 0)).all():
        raise InputError(f"{name} must hold finite numbers of zero or more.")
    return weight


def object_array(items: Sequence[Any]) -> np.ndarray:
    """Return a vector of objects; numpy alone would make a matrix of tuples.

    >>> object_array([("a", 1), ("b", 2)]).shape
    (2,)
    """
    array = np.empty(len(items), dtype=object)
    for position, item in enumerate(items):
        array[position] = item
    return array


def _check_shape(matrix: Rows, name: str, columns: int | None, rows: int | None) -> None:
    if len(matrix.shape) != 2:
        raise InputError(f"{name} must have two dimensions; received shape {tuple(matrix.shape)}.")
    if matrix.shape[0] == 0:
        raise InputError(f"{name} is empty: it has no rows. Pass at least one.")
    if columns is not None and matrix.shape[1] != columns:
        raise InputError(
            f"{name} must have {columns} columns, as the model has; received {matrix.shape[1]}."
        )
    if rows is not None and matrix.shape[0] != rows:
        raise InputError(f"{name} must have {rows} rows; received {matrix.shape[0]}.")


def _first(mask: Tensor) -> tuple[int, int]:
    row, column = mask.nonzero()[0].tolist()
    return row, column
