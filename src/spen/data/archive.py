"""NumPy archives: npz files with X and Y, dense or as the parts of sparse matrices."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from scipy import sparse

from spen.batch.splits import Split
from spen.data.dataset import check_dense
from spen.data.digits import LARGEST_COLUMN, LARGEST_VALUE
from spen.data.labels import Labels, label_names
from spen.data.lines import open_file
from spen.data.names import Numbered
from spen.data.reader import RowReader
from spen.errors import InputError

SPARSE_PARTS = ("data", "indices", "indptr", "shape")
SPLITS = ("train", "valid", "test")
_SMALL = 1 << 30
_RATIO = 200
_LAYOUT = (
    "X and Y, or X_data, X_indices, X_indptr, X_shape and the same for Y (the parts of a CSR "
    "matrix); feature_names, label_names, train, valid and test if you like"
)


class NpzReader(RowReader):
    """The rows of an npz file.

    It holds ``X`` (rows, features) and ``Y`` (rows, labels), or for either the parts of a CSR
    matrix: ``X_data``, ``X_indices``, ``X_indptr``, ``X_shape``. It may hold ``feature_names``
    and ``label_names``, and the row numbers ``train``, ``valid``, ``test``. Pickled objects
    are refused.

    Args:
        path: the file.
        labels: names for the labels where the file has none.
        labels_required: whether a file without Y is a mistake.
    """

    format = "npz"

    def __init__(self, path: Path, labels: Labels, labels_required: bool) -> None:
        self.path = path
        arrays = _load(path)
        has = ", ".join(sorted(arrays)) or "nothing"
        X, Y = _matrix(path, arrays, "X"), _matrix(path, arrays, "Y")
        if X is None or (Y is None and labels_required):
            raise InputError(f"{path} holds the arrays {has}; expected {_LAYOUT}.")
        for name, matrix in (("X", X), ("Y", Y)):
            if matrix is not None and not matrix.shape[1]:
                raise InputError(f"{path}: {name} has no columns.")
        _check_finite(path, X)
        if Y is not None and Y.shape[0] != X.shape[0]:
            raise InputError(f"{path}: X has {X.shape[0]} rows and Y has {Y.shape[0]}.")
        self._rows = Split(X.astype(np.float32), None if Y is None else _labels(path, Y))
        features = _names(path, arrays, "feature_names", X.shape[1])
        self.feature_names = features or Numbered("x", X.shape[1])
        self.label_names = ()
        if Y is not None:
            names = _names(path, arrays, "label_names", Y.shape[1])
            self.label_names = names or label_names(path, labels, Y.shape[1])
        self.splits = {
            name: _row_numbers(path, arrays[name], name, X.shape[0])
            for name in SPLITS
            if name in arrays
        }

    def parts(self) -> Iterator[Split]:
        """Yield all rows; an archive cannot be read in parts."""
        yield self._rows


def _load(path: Path) -> dict[str, np.ndarray]:
    with open_file(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                members = archive.infolist()
                size = path.stat().st_size
                whole = sum(member.file_size for member in members)
                if whole > max(_SMALL, _RATIO * size):
                    raise InputError(
                        f"{path} has {size} bytes and would unpack to {whole}. Save it again with "
                        "numpy.savez, without compression."
                    )
                return {
                    member.filename.removesuffix(".npy"): _array(archive, member)
                    for member in members
                }
        except InputError:
            raise
        # Broken archives raise whatever zipfile, zlib and numpy happen to stumble over.
        except Exception as problem:
            raise InputError(
                f"{path} cannot be read as an npz file ({type(problem).__name__}: {problem}). "
                "It may be cut short, or hold objects that numpy would have to unpickle."
            ) from None


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(member) as file:
        # numpy would allocate what the array's head declares before it reads any of it.
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read(file)
        if math.prod(shape) * dtype.itemsize != member.file_size - file.tell():
            raise ValueError(f"array {member.filename} does not have the size that it declares")
        file.seek(0)
        return npy.read_array(file, allow_pickle=False)


def _matrix(path: Path, arrays: dict[str, np.ndarray], name: str) -> Any:
    """Return a matrix of numbers, dense or CSR, or None if it is not there."""
    if name in arrays:
        matrix = arrays[name]
        if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
            raise InputError(
                f"{path}: {name} must be a matrix of numbers with two dimensions; it has shape "
                f"{matrix.shape} and type {matrix.dtype}."
            )
        return matrix
    parts = [arrays.get(f"{name}_{part}") for part in SPARSE_PARTS]
    if any(part is None for part in parts):
        return None
    data, indices, indptr, shape = (np.asarray(part) for part in parts)
    if data.dtype.kind not in "biuf" or any(
        a.dtype.kind not in "iu" for a in (indices, indptr, shape)
    ):
        raise InputError(f"{path}: the parts of {name} must hold numbers, all but the data whole.")
    if (
        shape.shape != (2,)
        or not (shape.astype(np.float64) >= 0).all()
        or shape.max() > LARGEST_COLUMN
    ):
        raise InputError(f"{path}: {name}_shape must be the numbers of rows and columns.")
    try:
        matrix = sparse.csr_matrix((data, indices, indptr), shape=tuple(shape.tolist()))
        matrix.check_format(full_check=True)
    except (ValueError, OverflowError, IndexError) as problem:
        raise InputError(
            f"{path}: the parts of {name} do not make a CSR matrix; {problem}."
        ) from None
    if not matrix.has_canonical_format:
        matrix.sort_indices()
        before = matrix.nnz
        matrix.sum_duplicates()
        if matrix.nnz != before:
            raise InputError(f"{path}: some row of {name} has a column twice.")
    return matrix


def _check_finite(path: Path, X: Any) -> None:
    values = X.data if sparse.issparse(X) else X
    with np.errstate(invalid="ignore"):
        bad = ~(np.abs(values.astype(np.float64, copy=False)) <= LARGEST_VALUE)
    if bad.any():
        where = "" if sparse.issparse(X) else " in row {}, column {}".format(*np.argwhere(bad)[0])
        raise InputError(f"{path}: X must hold finite numbers of single precision{where}.")


def _labels(path: Path, Y: Any) -> Any:
    values = Y.data if sparse.issparse(Y) else Y
    missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, bool)
    if not (missing | (values == 0) | (values == 1)).all():
        raise InputError(f"{path}: Y must hold only 0 and 1, or nan for a missing label.")
    if missing.any():
        check_dense(Y.shape[0], Y.shape[1], path)
        return (Y.toarray() if sparse.issparse(Y) else Y).astype(np.float32)
    Y = sparse.csr_matrix(Y, dtype=np.int8)
    Y.eliminate_zeros()
    return Y


def _names(
    path: Path, arrays: dict[str, np.ndarray], key: str, count: int
) -> tuple[str, ...] | None:
    if key not in arrays:
        return None
    names = arrays[key]
    if names.dtype.kind != "U" or names.shape != (count,) or len(set(names.tolist())) != count:
        raise InputError(f"{path}: {key} must be an array of {count} different names.")
    return tuple(names.tolist())


def _row_numbers(path: Path, rows: np.ndarray, name: str, count: int) -> np.ndarray:
    fine = rows.ndim == 1 and rows.dtype.kind in "iu" and rows.size
    if not fine or rows.min() < 0 or rows.max() >= count:
        raise InputError(f"{path}: {name} must hold row numbers from 0 to {count - 1}.")
    return rows
