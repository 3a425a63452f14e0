"""Targets, what people pass as Y: label matrices, named columns, label lists, one class per row."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, column_or_1d

from spen.batch.arrays import object_array, unmasked
from spen.batch.rows import compressed_rows
from spen.errors import InputError, did_you_mean, one_of

_SETS = (list, tuple, set, frozenset)


@dataclass(frozen=True)
class Targets:
    """Labels in one form, and what is needed to give predictions in the user's.

    Attributes:
        matrix: (n, L) of 0 and 1: CSR, or dense with nan for missing labels. One-hot rows
            where each row has one class.
        names: the name of each label; whole numbers where the user gave none.
        exclusive: True where Y was one class per row.
        dtype: the type of predictions.
        framed: True where Y was a DataFrame or a Series of label lists; predictions of a DataFrame
            are then one too.
    """

    matrix: Any
    names: np.ndarray
    exclusive: bool
    dtype: np.dtype
    framed: bool = False

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return self.matrix.shape[0]


def read_targets(Y: Any, names: Sequence[Any] | None = None) -> Targets:
    """Bring Y into one form, or say what is wrong with it.

    Args:
        Y: the labels.
        names: of the columns of Y, where it does not name them itself.

    >>> read_targets([["sun", "sea"], [], ["sea"]]).matrix.toarray()
    array([[1, 1],
           [0, 0],
           [1, 0]], dtype=int8)
    """
    targets = _read(Y)
    if names is None:
        return targets
    if targets.exclusive or targets.names.dtype.kind == "O":
        raise InputError("label_names is for a matrix Y; this one names its labels itself.")
    if len(names) != len(targets.names):
        raise InputError(
            f"label_names holds {len(names)} names for {len(targets.names)} columns of Y."
        )
    return _of_matrix(targets.matrix, plain_names(names), targets.dtype)


def _read(Y: Any) -> Targets:
    if Y is None:
        raise InputError(
            "SPENClassifier requires y to be passed, but the target y is None. Pass the labels."
        )
    if sparse.issparse(Y):
        return _of_matrix(_sparse_labels(Y), None, Y.dtype)
    Y = unmasked(Y)
    if hasattr(Y, "columns") and hasattr(Y, "to_numpy"):
        names = plain_names(Y.columns)
        targets = _of_matrix(_dense_labels(numbers(Y), names), names, np.dtype(np.int64))
        return replace(targets, framed=is_frame(Y))
    _check_lists(Y)
    if holds_label_lists(Y):
        targets = of_lists(Y)
        if not len(targets.names):
            raise InputError("Y holds no label at all: every list is empty.")
        return replace(targets, framed=is_frame(Y))
    values = _array(Y)
    if values.ndim == 2 and not (values.shape[1] == 1 and _are_classes(values)):
        return _of_matrix(_dense_labels(numbers(values), None), None, _label_type(values.dtype))
    return _of_classes(Y)


def _of_matrix(matrix: Any, names: np.ndarray | None, dtype: np.dtype) -> Targets:
    if matrix.shape[1] == 0:
        raise InputError("Y has no columns: there is no label to learn.")
    names = np.arange(matrix.shape[1]) if names is None else names
    if len(set(names.tolist())) < len(names):
        raise InputError("Two columns of Y have the same name. Give each label a name of its own.")
    return Targets(matrix, names, exclusive=False, dtype=dtype)


def plain_names(names: Iterable[Any]) -> np.ndarray:
    """Return names as Python's own text and numbers, whatever numpy made of them."""
    items = [name.item() if isinstance(name, np.generic) else name for name in names]
    return object_array(items)


def is_frame(value: Any) -> bool:
    """Say whether something is a DataFrame or a Series of pandas."""
    return hasattr(value, "iloc") and hasattr(value, "index")


def _label_type(dtype: np.dtype) -> np.dtype:
    """Predictions have the type of the labels, as scikit-learn's have."""
    return dtype if dtype.kind in "biuf" else np.dtype(np.int64)


def numbers(Y: Any, what: str = "Y") -> np.ndarray:
    """Return labels as floating-point numbers, nan for every kind of missing value.

    >>> numbers([[1, None]])
    array([[ 1., nan]])
    """
    values = _array(Y.to_numpy() if hasattr(Y, "to_numpy") else Y)
    try:
        if values.dtype.kind == "O":
            # Nullable columns have a missing value of their own.
            values = np.array([[np.nan if is_missing(v) else v for v in row] for row in values])
        if values.dtype.kind not in "biufOSU":
            raise TypeError(f"its entries are of type {values.dtype}")
        # In their own type, for what is not quite 0 or 1 must not be rounded to it.
        small = values.dtype.kind in "biu"
        return values if values.dtype.kind == "f" else values.astype("f4" if small else "f8")
    except (TypeError, ValueError, OverflowError) as problem:
        raise InputError(
            f"{what} must hold only 0 and 1 (or nan for a missing label); {problem}."
        ) from None


def _array(Y: Any) -> np.ndarray:
    """Return any array, nan for what a masked one hides."""
    try:
        return np.asarray(unmasked(Y))
    except (TypeError, ValueError, RuntimeError) as problem:
        raise InputError(f"Labels must be an array of one or two dimensions; {problem}.") from None


def is_missing(value: Any) -> bool:
    """Say whether a value of any kind is a missing one."""
    # pandas' own NA refuses to be compared.
    return value is None or type(value).__name__ == "NAType" or value != value


def _dense_labels(values: np.ndarray, names: np.ndarray | None) -> Any:
    """Return CSR where all labels are known, dense with nan where some are missing."""
    missing = np.isnan(values)
    bad = ~(missing | (values == 0) | (values == 1))
    if bad.any():
        row, column = np.argwhere(bad)[0]
        named = "" if names is None else f" ({str(names[column])!r})"
        raise InputError(
            f"Y must hold only 0 and 1 (or nan for a missing label); row {row}, column "
            f"{column}{named} holds {values[row, column]:g}. If these are class numbers, pass "
            "them as a 1-D array; if they are lists of labels, pass sets."
        )
    if missing.any():
        if (~missing).sum() == 0:
            raise InputError("Y holds nan alone: no label is known.")
        return values.astype(np.float32)
    return sparse.csr_array(values.astype(np.int8))


def _sparse_labels(Y: Any) -> Any:
    if Y.ndim != 2 or Y.dtype.kind not in "biuf":
        raise InputError(f"A sparse Y must be a matrix of 0 and 1; received {Y!r}.")
    matrix = sparse.csr_array(compressed_rows(Y, "Y"), copy=True)
    if not np.isin(matrix.data, (0, 1)).all():
        raise InputError(
            "Y must hold only 0 and 1; this sparse matrix has other entries. Missing labels (nan) "
            "need a dense Y."
        )
    matrix.eliminate_zeros()
    return matrix.astype(np.int8)


def _are_classes(column: np.ndarray) -> bool:
    """Say whether one column holds class names or numbers, not 0, 1 and nan."""
    if column.dtype.kind not in "biuf":
        return column.dtype.kind != "O" or any(isinstance(v, str) for v in column.ravel())
    return not (np.isnan(column.astype(float)) | np.isin(column, (0, 1))).all()


def holds_label_lists(Y: Any) -> bool:
    """Say whether Y is a list of label lists, not a matrix written as lists.

    Sets and text always are; lists of numbers are if their lengths differ.
    """
    rows = _items(Y)
    if not rows or not all(isinstance(row, _SETS) for row in rows):
        return False
    if any(isinstance(row, set | frozenset) for row in rows):
        return True
    if len({len(row) for row in rows}) > 1:
        return True
    flat = [label for row in rows for label in row]
    return not flat or any(isinstance(label, str) for label in flat)


def _items(Y: Any) -> Sequence[Any]:
    """Return the rows of a list or of a column of objects; () of everything else."""
    if isinstance(Y, list | tuple):
        return Y
    is_column = getattr(getattr(Y, "dtype", None), "kind", "") == "O" and getattr(Y, "ndim", 0) == 1
    return list(Y) if is_column else ()


def _check_lists(Y: Any) -> None:
    """Raise where some rows are lists of labels, and others are single values or missing."""
    rows = _items(Y)
    single = [isinstance(row, str) or not hasattr(row, "__len__") for row in rows]
    if any(single) and any(isinstance(row, _SETS) for row in rows):
        row = single.index(True)
        raise InputError(
            f"Rows of Y must all be lists of labels, or none; row {row} is {rows[row]!r}. A row "
            "without any label is an empty list; of a column of text, y.fillna('').str.split(';')."
        )


def of_lists(rows: Any) -> Targets:
    """Read a list of label lists; a label that a row names twice counts once, with a warning."""
    # What is split out of an empty cell is "", and no label.
    rows = [[label for label in row if not (isinstance(label, str) and not label)] for row in rows]
    try:
        names = sorted({label for row in rows for label in row})
    except TypeError as problem:
        raise InputError(
            f"The labels of a list of label lists must be all text or all numbers; {problem}."
        ) from None
    number = {name: column for column, name in enumerate(names)}
    sizes = np.array([len(set(row)) for row in rows])
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    if repeated := np.flatnonzero(sizes < [len(row) for row in rows]).tolist():
        row = repeated[0]
        label = next(label for label in rows[row] if rows[row].count(label) > 1)
        others = f", and {len(repeated) - 1} other rows name some twice" if repeated[1:] else ""
        warnings.warn(
            f"Row {row} names {plain_names([label])[0]!r} twice{others}; a label counts once.",
            DataConversionWarning,
            stacklevel=2,
        )
    columns = np.array([number[label] for row in rows for label in sorted(set(row))], dtype=int)
    matrix = sparse.csr_array(
        (np.ones(len(columns), np.int8), columns, offsets), shape=(len(rows), len(names))
    )
    return Targets(matrix, plain_names(names), exclusive=False, dtype=np.dtype(np.int64))


def check_index(X: Any, other: Any, what: str) -> None:
    """Refuse DataFrames whose rows are the same ones in another order."""
    index: Any = getattr(X, "index", None)
    its: Any = getattr(other, "index", None)
    if not (hasattr(index, "equals") and hasattr(its, "equals")) or index.equals(its):
        return
    if len(index) == len(its) and set(index) == set(its):
        raise InputError(
            f"X and {what} have the same index in another order, and rows are matched by their "
            f"place. Say {what}.loc[X.index], or reset_index(drop=True) on both."
        )


def _of_classes(Y: Any) -> Targets:
    """Read one class per row."""
    cells = _array(Y).ravel()
    texts = [text for text in cells[:1000].tolist() if isinstance(text, str)]
    if sum(";" in text or "|" in text for text in texts) > len(texts) / 5:
        warnings.warn(
            "y holds texts with ; or | in them, and each is taken as one class. If these are tags, "
            "pass lists of them, for example y.fillna('').str.split(';').",
            DataConversionWarning,
            stacklevel=2,
        )
    empty = [row for row, cell in enumerate(cells.tolist()) if is_missing(cell)] if texts else []
    if empty:
        raise InputError(
            f"y holds classes, and row {empty[0]} has none (NaN). Leave such rows out, or name a "
            "class for them; a row without any tag is an empty list."
        )
    values = check_array(Y, ensure_2d=False, dtype=None, input_name="y")  # type: ignore[arg-type]
    if values.ndim == 2 and values.shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected. Its values are taken as "
            "classes; pass y of shape (n_samples,) to say so, for example with ravel().",
            DataConversionWarning,
            stacklevel=2,
        )
    values = column_or_1d(values)
    check_classification_targets(values)
    names, codes = np.unique(values, return_inverse=True)
    names = plain_names(names) if names.dtype.kind == "O" else names
    if len(names) < 2:
        raise InputError(
            f"y holds one class only ({names[0]!r}); a classifier needs at least two classes. "
            "For a set of labels per row, pass Y with two dimensions."
        )
    rows = np.arange(len(codes) + 1)
    matrix = sparse.csr_array(
        (np.ones(len(codes), np.int8), codes.ravel(), rows), shape=(len(codes), len(names))
    )
    return Targets(matrix, names, exclusive=True, dtype=names.dtype)


def align(
    Y: Any,
    names: np.ndarray,
    exclusive: bool,
    rows: int,
    *,
    truth: bool = False,
    missing: bool = False,
) -> Any:
    """Return a labelling as a (rows, L) matrix in the order of a fitted model's labels.

    It is CSR where Y is sparse or names labels, else dense in a floating type.

    Args:
        Y: labels in any form that ``read_targets`` takes; soft ones in [0, 1] too.
        names: the labels of the model.
        exclusive: True where the model has one class per row.
        rows: how many rows there must be.
        truth: True where predictions are judged by Y. Labels that the model has never seen, and
            so cannot predict, then come in columns after its own, and nan is a missing label.
        missing: whether nan may stand for a missing label.

    >>> align([["sea", "fog"], []], np.array(["sea", "sun"]), False, 2, truth=True).toarray()
    array([[1, 0, 1],
           [0, 0, 0]], dtype=int8)
    """
    Y, every = unmasked(Y), names
    if exclusive and not sparse.issparse(Y) and _is_column(Y):
        values = _array(Y).ravel()
        if truth:
            every = _with_unseen(values.tolist(), names)
        columns, offsets = _numbers_of(values.tolist(), every), np.arange(len(values) + 1)
        ones = np.ones(len(values), np.float32)
        matrix = sparse.csr_array((ones, columns, offsets), shape=(len(values), len(every)))
    elif holds_label_lists(Y):
        given = of_lists(Y)
        if truth:
            every = _with_unseen(given.names.tolist(), names)
        columns = _numbers_of(given.names.tolist(), every)[given.matrix.indices]
        parts = (given.matrix.data, columns, given.matrix.indptr)
        matrix = sparse.csr_array(parts, shape=(given.n_rows, len(every)))
    elif sparse.issparse(Y):
        matrix = compressed_rows(Y, "Y")
    elif hasattr(Y, "columns") and hasattr(Y, "to_numpy"):
        if truth:
            every = _with_unseen(list(Y.columns), names)
        matrix = _place(numbers(Y), list(Y.columns), every, fill=None)
    else:
        matrix = numbers(Y)
    if matrix.shape != (rows, len(every)):
        raise InputError(
            f"Y must have shape ({rows}, {len(names)}), a row for each of X and a column for each "
            f"label; received {matrix.shape}."
        )
    entries: Any = matrix.data if sparse.issparse(matrix) else matrix
    if truth and not (np.isnan(entries) | (entries == 0) | (entries == 1)).all():
        raise InputError("Y must hold only 0 and 1 (or nan for a missing label).")
    good = (entries >= 0) & (entries <= 1)
    if not truth and not (good | np.isnan(entries) if missing else good).all():
        raise InputError("A labelling must hold numbers from 0 to 1, none of them nan.")
    return matrix


def _is_column(Y: Any) -> bool:
    """Say whether Y is one class per row, in one dimension or in a column."""
    if holds_label_lists(Y):
        return False
    return np.ndim(Y) == 1 or (hasattr(Y, "shape") and np.ndim(Y) == 2 and Y.shape[1] == 1)


def _with_unseen(given: list[Any], names: np.ndarray) -> np.ndarray:
    """Return the labels of a model, and after them those that it has never seen."""
    return object_array(list(dict.fromkeys([*names.tolist(), *given])))


def align_known(known: Any, names: np.ndarray, rows: int) -> np.ndarray:
    """Return known labels as a dense (rows, L) matrix of 1, 0 and nan.

    Args:
        known: such a matrix, a DataFrame of some of its columns, a dict from labels to 1 or 0 that
            holds for all rows, or a list or a Series of such dicts, one for each row.
        names: the labels of the model.
        rows: how many rows there must be.

    >>> align_known({"sea": 1}, np.array(["sea", "sun"]), 2)
    array([[ 1., nan],
           [ 1., nan]], dtype=float32)
    """
    if not isinstance(known, list | tuple | Mapping) and np.ndim(known) == 1:
        # An array or a Series of dicts.
        known = list(known)
    columns = getattr(known, "columns", None)
    if columns is not None:
        matrix = _place(numbers(known, "known"), list(columns), names, fill=np.nan)
    elif sparse.issparse(known):
        raise InputError(
            "known must be dense: 1, 0, or nan for a label to infer. In a sparse matrix a label "
            "that is absent and one that is unknown look alike."
        )
    elif isinstance(known, Mapping):
        matrix = _of_dicts([known] * rows, names)
    elif isinstance(known, list | tuple) and any(isinstance(row, Mapping) for row in known):
        matrix = _of_dicts(known, names)
    else:
        matrix = numbers(known, "known")
    if matrix.shape != (rows, len(names)):
        raise InputError(
            f"known must have shape ({rows}, {len(names)}); received {matrix.shape}. A DataFrame "
            "may have some of the labels as its columns; a dict names those that all rows have in "
            "common."
        )
    if not (np.isnan(matrix) | np.isin(matrix, (0, 1))).all():
        raise InputError("known must hold only 1, 0, or nan for a label to infer.")
    return matrix.astype(np.float32)


def align_among(among: Any, names: np.ndarray, rows: int) -> np.ndarray:
    """Return which labels are meant as a dense (rows, L) matrix of True and False.

    Args:
        among: a list of labels, by name or by column, which holds for all rows; or True and False
            for each label, (L,) or, for each row too, (rows, L). None means all labels.
        names: the labels of the model.
        rows: how many rows there must be.

    >>> align_among(["sun", 0], np.array(["sea", "sky", "sun"]), 1)
    array([[ True, False,  True]])
    """
    if among is None:
        return np.ones((rows, len(names)), dtype=bool)
    values = _array([among] if isinstance(among, str) else among)
    if values.dtype == bool:
        if values.shape not in ((rows, len(names)), (len(names),)):
            raise InputError(
                f"among must have shape ({len(names)},) or ({rows}, {len(names)}) where it holds "
                f"True and False; received {values.shape}."
            )
        return np.broadcast_to(values, (rows, len(names)))
    if values.ndim != 1:
        raise InputError(f"among must be a list of labels; received shape {values.shape}.")
    marks = len(values) == len(names) > 2 and np.isin(values, (0, 1)).all()
    if marks and values.dtype.kind in "iuf":
        raise InputError(
            "among holds a 0 or a 1 for each label, which would be read as columns. For a mask "
            "give True and False: among.astype(bool)."
        )
    number = {name: column for column, name in enumerate(names.tolist())}
    given = [among] if isinstance(among, str) else plain_names(among).tolist()
    # A number that is the name of a label means that label.
    columns = [number.get(each, each) for each in given]
    unknown = [v for v in columns if not isinstance(v, int) or not 0 <= v < len(names)]
    _numbers_of(unknown, names)  # raises where there are such
    meant = np.isin(np.arange(len(names)), columns)
    return np.broadcast_to(meant, (rows, len(names)))


def _of_dicts(known: Sequence[Any], names: np.ndarray) -> np.ndarray:
    """Read known labels that each row gives by name."""
    if not all(isinstance(row, Mapping) for row in known):
        raise InputError("A list of known labels must hold a dict for each row; some are none.")
    given = list(dict.fromkeys(name for row in known for name in row))
    columns = _numbers_of(given, names)
    matrix = np.full((len(known), len(names)), np.nan)
    if given:
        values = numbers([[row.get(name) for name in given] for row in known], "known")
        if values.ndim != 2:
            raise InputError(
                "A dict of known labels must hold one of 1, 0 or nan for each name. Where rows "
                "differ, give a list with a dict for each row, or a DataFrame."
            )
        matrix[:, columns] = values
    return matrix


def label_weights(
    value: Any, targets: Targets, counts: np.ndarray | None = None
) -> np.ndarray | None:
    """Return the weight of each label, from one number a label or a dict by name.

    ``counts`` says how many rows have each label, where the targets do not hold all rows.
    """
    if value is None:
        return None
    names = targets.names.tolist()
    if isinstance(value, str):
        one_of(value, ("balanced",), "label_weight")
        if counts is None:
            counts = np.asarray((targets.matrix == 1).sum(0)).ravel()
        # A label that no row has is as one that a single row has.
        value = 1 / np.maximum(counts, 1)
    if isinstance(value, dict):
        unknown = [name for name in value if name not in set(names)]
        if unknown:
            raise InputError(
                f"label_weight names {unknown[0]!r}, which is no label. "
                f"{did_you_mean(str(unknown[0]), map(str, names))}"
            )
        value = [value.get(name, 1.0) for name in names]
    try:
        weights = np.asarray(unmasked(value), dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
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


def _place(
    values: np.ndarray, given: list[Any], names: np.ndarray, fill: float | None
) -> np.ndarray:
    """Put named columns where the model has them; ``fill`` those that are not given."""
    columns = _numbers_of(given, names)
    missing = np.setdiff1d(np.arange(len(names)), columns)
    if len(missing) and fill is None:
        first = names.tolist()[missing[0]]
        raise InputError(f"Y lacks {len(missing)} labels of the model, the first {first!r}.")
    if len(set(given)) < len(given):
        raise InputError("Two columns have the same name. Give each label once.")
    placed = np.full((values.shape[0], len(names)), 0.0 if fill is None else fill, values.dtype)
    placed[:, columns] = values
    return placed


def _numbers_of(given: list[Any], names: np.ndarray) -> np.ndarray:
    """Return which label of the model each name is."""
    number = {name: column for column, name in enumerate(names.tolist())}
    unknown = [name for name in given if name not in number]
    if unknown:
        raise InputError(
            f"{unknown[0]!r} is no label of this model. "
            f"{did_you_mean(str(unknown[0]), map(str, number))}"
        )
    return np.array([number[name] for name in given], dtype=np.intp)
