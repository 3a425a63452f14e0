"""Arrays that people pass, turned into tensors, or what is wrong with them in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from spen.batch.inputs import read_inputs
from spen.batch.rows import Rows, SparseRows
from spen.errors import InputError


@dataclass(frozen=True)
class Arrays:
    """The type and the device that a model computes with; its methods turn arrays into such.

    In all of them ``name`` is what errors call the array, and a number of rows or columns is
    what the array must have; None takes any.

    >>> Arrays().targets([[1, np.nan]], "Y")
    (tensor([[1., 0.]]), tensor([[ True, False]]))
    """

    dtype: torch.dtype = torch.float32
    device: torch.device | None = None

    def tensor(self, value: Any, name: str) -> Tensor:
        """Return a detached dense tensor, whatever array it was."""
        if isinstance(value, Tensor):
            if value.layout != torch.strided or value.is_complex():
                raise InputError(f"{name} must be a dense tensor of real numbers.")
            return value.detach().to(dtype=self.dtype, device=self.device)
        try:
            array = np.asarray(unmasked(value))
            if array.dtype.kind not in "biuf":
                raise TypeError(f"its entries are of type {array.dtype}")
        except (TypeError, ValueError, RuntimeError) as problem:
            raise InputError(f"{name} must be an array of numbers; {problem}.") from None
        # A copy in a plain type: other byte orders, long doubles and read-only arrays come in too.
        with np.errstate(over="ignore"):
            plain = np.array(array, dtype=self._plain)
        return torch.from_numpy(plain).to(dtype=self.dtype, device=self.device)

    def matrix(
        self, value: Any, name: str, columns: int | None = None, rows: int | None = None
    ) -> Tensor:
        """Return a finite (rows, columns) matrix, or say where it is not one."""
        matrix = self.tensor(value, name)
        _check_shape(matrix, name, columns, rows)
        bad = ~torch.isfinite(matrix)
        if bad.any():
            row, column = bad.nonzero()[0].tolist()
            raise InputError(
                f"{name} must hold finite numbers; row {row}, column {column} holds "
                f"{matrix[row, column].item()}. Drop or fill such entries first."
            )
        return matrix

    def rows(self, value: Any, name: str, columns: int | None = None) -> Rows:
        """Return finite inputs: a matrix, or a sparse matrix that stays sparse.

        Where any number of columns will do, inputs that are no matrix of floats pass through as
        they are.
        """
        if columns is None and (passed := read_inputs(value, name)) is not None:
            return passed.to(self.dtype, self.device)
        if not sparse.issparse(value):
            return self.matrix(value, name, columns)
        kept = self._sparse(value, name, columns, None)
        if not np.isfinite(kept.matrix.data).all():
            raise InputError(f"{name} must hold finite numbers; some entry is nan or infinite.")
        return kept

    def targets(
        self, value: Any, name: str, columns: int | None = None, rows: int | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return a 0/1 matrix and the mask of what was observed (None: everything).

        A nan marks a missing label: its target is 0 and its mask False.
        """
        matrix = self.tensor(value, name)
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
            row, column = bad.nonzero()[0].tolist()
            raise InputError(
                f"{name} must hold only 0 and 1 (or nan for a missing label); row {row}, "
                f"column {column} holds {matrix[row, column].item():g}."
            )
        if not missing.any():
            return matrix, None
        return torch.nan_to_num(matrix, nan=0.0), ~missing

    def label_rows(
        self, value: Any, name: str, columns: int, rows: int
    ) -> tuple[Rows, Tensor | None]:
        """Return labels as ``targets`` does, but leave a sparse matrix sparse."""
        if not sparse.issparse(value):
            return self.targets(value, name, columns, rows)
        kept = self._sparse(value, name, columns, rows)
        if not np.isin(kept.matrix.data, (0, 1)).all():
            raise InputError(
                f"{name} must hold only 0 and 1; this sparse matrix has other entries."
            )
        return kept, None

    def known(self, value: Any, rows: int, columns: int) -> Tensor:
        """Return a matrix of labels to hold fixed: 1, 0, or nan for unknown."""
        targets, observed = self.targets(value, "known", columns, rows)
        return targets if observed is None else torch.where(observed, targets, torch.nan)

    def mask(self, value: Any, also: Tensor | None, rows: int, columns: int) -> Tensor | None:
        """Return the mask of what was observed: both ``value`` and ``also``, None for all."""
        if value is None:
            return also
        mask = Arrays(device=self.device).matrix(value, "observed", columns, rows)
        return mask.bool() if also is None else mask.bool() & also

    def weights(self, value: Any, size: int, name: str = "weight") -> Tensor:
        """Return the weights of examples or labels: finite and not negative."""
        weight = self.tensor(value, name)
        if weight.shape != (size,):
            raise InputError(f"{name} must have shape ({size},); received {tuple(weight.shape)}.")
        if not (torch.isfinite(weight) & (weight >= 0)).all():
            raise InputError(f"{name} must hold finite numbers of zero or more.")
        return weight

    @property
    def _plain(self) -> type[np.floating]:
        return np.float64 if self.dtype == torch.float64 else np.float32

    def _sparse(self, value: Any, name: str, columns: int | None, rows: int | None) -> SparseRows:
        if value.ndim != 2 or value.dtype.kind not in "biuf":
            raise InputError(f"{name} must be a matrix of real numbers; received {value!r}.")
        kept = SparseRows(value, self.dtype, self.device, name)
        _check_shape(kept, name, columns, rows)
        return kept


def _check_shape(matrix: Rows, name: str, columns: int | None, rows: int | None) -> None:
    shape = tuple(matrix.shape)
    if len(shape) != 2:
        raise InputError(f"{name} must have two dimensions; received shape {shape}.")
    if shape[0] == 0:
        raise InputError(f"{name} is empty: it has no rows. Pass at least one.")
    if columns is not None and shape[1] != columns:
        raise InputError(
            f"{name} must have {columns} columns, as the model has; received {shape[1]}."
        )
    if rows is not None and shape[0] != rows:
        raise InputError(f"{name} must have {rows} rows; received {shape[0]}.")


def unmasked(value: Any) -> Any:
    """Return a masked array, or a list of such, with nan for what it hides; others as they are.

    >>> unmasked(np.ma.array([1, 0], mask=[False, True]))
    array([ 1., nan])
    """
    if isinstance(value, list | tuple) and any(np.ma.isMaskedArray(row) for row in value):
        value = np.ma.array(value)
    if not np.ma.isMaskedArray(value):
        return value
    shown, data = ~np.ma.getmaskarray(value), np.ma.getdata(value)
    if shown.all():
        return data
    # What is hidden may be anything, so it is not even looked at.
    kinds = {"f": data.dtype, "b": np.float64, "i": np.float64, "u": np.float64}
    filled = np.full(data.shape, np.nan, kinds.get(data.dtype.kind, object))
    filled[shown] = data[shown]
    return filled


def object_array(items: Sequence[Any]) -> np.ndarray:
    """Return a vector of objects; numpy alone would make a matrix of tuples.

    >>> object_array([("a", 1), ("b", 2)]).shape
    (2,)
    """
    array = np.empty(len(items), dtype=object)
    for position, item in enumerate(items):
        array[position] = item
    return array


def densified(labels: Any) -> np.ndarray:
    """Return labels as a dense array of float32, nan where they are missing."""
    return np.asarray(labels.toarray() if sparse.issparse(labels) else labels, dtype=np.float32)
