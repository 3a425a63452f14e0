"""Whatever holds the numbers: a classifier gives the answer of plain arrays, or says what is wrong.

A problem is a small X, Y, known labels and weights as plain float64 arrays. Hypothesis puts each
into some container and type, now and then with an extreme number in it; the outcome must be that
of the plain arrays, to the last bit, and what was passed must be left as it was.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache, lru_cache
from typing import Any

import numpy as np
import pandas as pd
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from scipy import sparse

import spen
from spen.errors import UndertrainedWarning

ROWS, FEATURES, LABELS = 20, 4, 3
CASES = 10_000

INTEGERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", ">i4", ">u8"]
FLOATS = ["f2", "f4", "f8", "g", ">f4", ">f8"]
X_EXTREMES = [-0.0, 1e300, -1e300, 1e-300, 5e-324, 1e160, 1e-200, np.inf, -np.inf, np.nan]
Y_EXTREMES = [-0.0, 0.5, 2.0, -1.0, 1e-300, 1 + 1e-12, 1e300, np.inf, -np.inf]
WEIGHT_EXTREMES = [0.0, -0.0, 1e300, 1e-300, 5e-324, -1.0, np.inf, np.nan]

Form = Callable[[np.ndarray], Any]


# Containers ---------------------------------------------------------------------------------


def strided(array: np.ndarray) -> np.ndarray:
    wide = np.repeat(array, 2, axis=0)
    wide[1::2] = 7
    return wide[::2]


def read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


def masked(array: np.ndarray) -> Any:
    """Hide what is nan, with something else under the mask."""
    hidden = np.isnan(array)
    return np.ma.array(np.where(hidden, 1, array), mask=hidden)


def masked_of(kind: str) -> Form:
    return lambda array: np.ma.array(masked(array).astype(kind), mask=np.isnan(array))


def nullable(kind: str) -> Form:
    def make(array: np.ndarray) -> Any:
        columns = [[pd.NA if v != v else v for v in column] for column in array.T]
        return pd.DataFrame({f"c{k}": pd.array(c, dtype=kind) for k, c in enumerate(columns)})

    return make


def frame(array: np.ndarray) -> Any:
    return pd.DataFrame(array, columns=[f"c{k}" for k in range(array.shape[1])])


def with_none(array: np.ndarray) -> np.ndarray:
    return np.array([[None if v != v else v for v in row] for row in array], dtype=object)


def parts(matrix: np.ndarray, *, repeated: bool = False) -> Any:
    """A CSR matrix with entries out of order, unused room at its end and, it may be, halves."""
    plain = sparse.csr_array(matrix)
    rows = [slice(*pair) for pair in zip(plain.indptr[:-1], plain.indptr[1:], strict=True)]
    columns = [plain.indices[row][::-1] for row in rows]
    values = [plain.data[row][::-1] for row in rows]
    if repeated:
        columns, values = [np.r_[p, p] for p in columns], [in_two(p) for p in values]
    made = sparse.csr_array(matrix.shape)
    made.indptr = np.cumsum([0, *map(len, columns)])
    made.indices = np.concatenate([*columns, [0, 99]]).astype(np.int64)
    made.data = np.concatenate([*values, [np.nan, 3.0]])
    return made


def repeated_coo(matrix: np.ndarray) -> Any:
    (rows, columns), values = np.nonzero(matrix), matrix[np.nonzero(matrix)]
    place = np.r_[rows, rows], np.r_[columns, columns]
    return sparse.coo_array((in_two(values), place), shape=matrix.shape)


def in_two(values: np.ndarray) -> np.ndarray:
    """Numbers and then others, so that both add up to what was given."""
    with np.errstate(invalid="ignore", under="ignore"):
        return np.r_[values / 2, values - values / 2]


def with_zeros(matrix: np.ndarray) -> Any:
    """A CSR matrix that holds its zeros too."""
    rows, width = matrix.shape
    columns, offsets = np.tile(np.arange(width), rows), np.arange(0, rows * width + 1, width)
    return sparse.csr_matrix((matrix.ravel().copy(), columns, offsets), shape=matrix.shape)


SPARSE: dict[str, Form] = {
    **{f"{k}_{c}": getattr(sparse, f"{k}_{c}")
       for k in ("csr", "csc", "coo", "lil", "bsr", "dok", "dia") for c in ("array", "matrix")},
    "unsorted csr": parts,
    "repeated csr": lambda array: parts(array, repeated=True),
    "csr with zeros": with_zeros,
    "repeated coo": repeated_coo,
    **{f"{kind} csr": lambda array, kind=kind: sparse.csr_array(array.astype(kind))
       for kind in ("i1", "i8", "u2", "f4", "g")},
}  # fmt: skip

# A type that holds the numbers of every problem, in every dense container.
DENSE: dict[str, Form] = {
    "list": lambda array: array.tolist(),
    "tuple": lambda array: tuple(map(tuple, array.tolist())),
    "list of arrays": lambda array: list(array),
    "Fortran": np.asfortranarray,
    "strided": strided,
    "backwards": lambda array: np.ascontiguousarray(array[::-1])[::-1],
    "read-only": read_only,
    "object": lambda array: array.astype(object),
    "frame": frame,
    "tensor": lambda array: torch.from_numpy(array.copy()),
    "masked": masked,
    **{kind: lambda array, kind=kind: array.astype(kind) for kind in FLOATS},
    **{f"strided {kind}": lambda array, kind=kind: strided(array.astype(kind)) for kind in FLOATS},
}

# These hold whole numbers, and nothing that is missing.
WHOLE: dict[str, Form] = {
    **{kind: lambda array, kind=kind: array.astype(kind) for kind in INTEGERS},
    "frame of int8": lambda array: frame(array.astype("i1")),
    "unmasked": lambda array: np.ma.array(array.astype(int)),
    **SPARSE,
}

# These hold what is missing in a way of their own.
MISSING: dict[str, Form] = {
    "Int64": nullable("Int64"),
    "Float64": nullable("Float64"),
    "None": with_none,
    "masked i8": masked_of("i8"),
    "masked u1": masked_of("u1"),
    "masked f4": masked_of("f4"),
    "masked rows": lambda array: list(masked(array)),
}
BINARY: dict[str, Form] = {"boolean": nullable("boolean"), "masked bool": masked_of("bool")}

VECTORS: dict[str, Form] = {
    "list": lambda array: array.tolist(),
    "tuple": lambda array: tuple(array.tolist()),
    "strided": strided,
    "read-only": read_only,
    "object": lambda array: array.astype(object),
    "series": pd.Series,
    "masked": masked,
    **{kind: lambda array, kind=kind: array.astype(kind) for kind in ("f4", "g", ">f8")},
}


def label_lists(array: np.ndarray) -> Any:
    return [set(np.flatnonzero(row).tolist()) for row in array]


# Problems -----------------------------------------------------------------------------------


@cache
def problem(seed: int) -> dict[str, np.ndarray]:
    """Whole numbers from 0 to 3, of which every other problem's are mostly zero."""
    rng = np.random.default_rng(seed)
    X = rng.integers(1, 4, (ROWS, FEATURES)) * (rng.random((ROWS, FEATURES)) < (0.8, 0.2)[seed % 2])
    Y = (X[:, :LABELS] + rng.integers(0, 2, (ROWS, LABELS)) > 1).astype(float)
    Y[0], Y[1] = 1, 0
    known = np.where(rng.random(Y.shape) < 0.3, Y, np.nan)
    return {"X": X.astype(float), "Y": Y, "known": known, "weight": rng.integers(1, 4, ROWS) * 1.0}


ARGUMENTS = ("X", "Y", "known", "weight")
EXTREMES = {"X": X_EXTREMES, "Y": Y_EXTREMES, "known": Y_EXTREMES, "weight": WEIGHT_EXTREMES}


@st.composite
def cases(draw: Any) -> dict[str, Any]:
    """A problem, with what holds each of its arrays."""
    plain = {name: array.copy() for name, array in problem(draw(st.integers(0, 7))).items()}
    missing = draw(st.booleans())
    if missing:
        hidden = np.random.default_rng(draw(st.integers(0, 3))).random(plain["Y"].shape) < 0.2
        plain["Y"][hidden] = np.nan
    odd = draw(st.sampled_from((None, None, *ARGUMENTS)))
    if odd is not None:
        array = plain[odd]
        array.flat[draw(st.integers(0, array.size - 1))] = draw(st.sampled_from(EXTREMES[odd]))
    forms = {name: draw(st.sampled_from(sorted(forms_of(name, odd, missing)))) for name in plain}
    return {"plain": plain, "odd": odd, "missing": missing, "forms": forms} | {
        "energy": draw(st.sampled_from(["local", "label"])),
        "weighted": odd == "weight" or draw(st.booleans()),
    }


def forms_of(name: str, odd: str | None, missing: bool) -> dict[str, Form]:
    """What can hold this array without changing its numbers."""
    if name == "weight":
        exact = ("list", "tuple", "strided", "read-only", "object", "series", "masked", "g", ">f8")
        return {k: VECTORS[k] for k in exact} if odd == name else VECTORS
    narrow = {"f2", "f4", ">f4", "strided f2", "strided f4", "strided >f4"}
    if odd == name:
        some = {k: f for k, f in DENSE.items() if k not in narrow}
        if name == "X":
            some |= {k: SPARSE[k] for k in ("csr_array", "csc_matrix", "coo_array", "repeated csr")}
        return some
    if name == "X":
        return DENSE | WHOLE | MISSING
    if name == "known" or missing:
        return DENSE | MISSING | BINARY
    return DENSE | WHOLE | MISSING | BINARY | {"sets": label_lists}


# Outcomes -----------------------------------------------------------------------------------


def answers(arguments: dict[str, Any], case: dict[str, Any]) -> Any:
    """Fit and predict; return what came out, or that it was refused."""
    clf = spen.SPENClassifier(
        case["energy"], hidden=(), epochs=1, folds=1, refit=False, batch_size=16, random_state=0
    ).set_params(remember_rows=True, device="cpu")
    X, Y, known = arguments["X"], arguments["Y"], arguments["known"]
    weight = arguments["weight"] if case["weighted"] else None
    try:
        clf.fit(X, Y, sample_weight=weight)
        if hasattr(known, "columns"):
            known = known.set_axis(clf.label_names_, axis=1)
        found = [clf.predict_proba(X), clf.predict(X, known), clf.predict_proba(X, known)]
        found.append(clf.seen_in_training(X))
        if not case["missing"]:
            found.append(clf.energy(X, Y))
        found += [value.detach().numpy() for value in clf.model_.state_dict().values()]
        return [np.asarray(each, dtype=float).tobytes() for each in found]
    except ValueError as problem:
        text = str(problem)
        assert " " in text, f"no sentence: {text!r}"
        return "refused"


reference = lru_cache(maxsize=512)(
    lambda key: answers(
        {name: np.frombuffer(data).reshape(shape).copy() for name, data, shape in key[0]},
        dict(key[1]),
    )
)


def expected(case: dict[str, Any]) -> Any:
    """Return the outcome of the plain arrays."""
    arrays = tuple((name, array.tobytes(), array.shape) for name, array in case["plain"].items())
    return reference((arrays, tuple((k, case[k]) for k in ("energy", "weighted", "missing"))))


def fault(case: dict[str, Any]) -> str | None:
    """Return what is wrong with the outcome of a case, or None."""
    odd, missing = case["odd"], case["missing"]
    given_ = {
        name: forms_of(name, odd, missing)[form](case["plain"][name])
        for name, form in case["forms"].items()
    }
    before = {name: picture(value) for name, value in given_.items()}
    what = f"{case['forms']}, odd {odd}, missing {missing}, {case['energy']}"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Rows drawn at random have nothing to learn.
        warnings.simplefilter("ignore", UndertrainedWarning)
        try:
            found, wanted = answers(given_, case), expected(case)
        except Exception as problem:
            return f"{type(problem).__name__}: {problem} ({what})"
    if odd is None and wanted == "refused":
        return f"a plain problem was refused ({what})"
    if found != wanted:
        words = ["refused" if each == "refused" else "answered" for each in (found, wanted)]
        return f"{words[0]}, where plain arrays are {words[1]}, or other bits ({what})"
    changed = [name for name, value in given_.items() if picture(value) != before[name]]
    return f"{changed} changed ({what})" if changed else None


def picture(value: Any) -> Any:
    """Return all that a caller can see of an array."""
    if isinstance(value, torch.Tensor):
        return picture(value.numpy())
    if np.ma.isMaskedArray(value):
        return picture(value.data), np.ma.getmaskarray(value).tobytes(), value.hardmask
    if isinstance(value, np.ndarray):
        inside = repr(value.tolist()) if value.dtype == object else value.tobytes()
        return value.dtype.str, value.shape, value.strides, value.flags.writeable, inside
    if isinstance(value, pd.DataFrame | pd.Series):
        return repr(value.to_dict()), str(getattr(value, "dtypes", "")), repr(value.index)
    if sparse.issparse(value):
        return type(value), value.shape, *map(picture, _parts_of(value))
    return repr([picture(each) if isinstance(each, np.ndarray) else each for each in value])


def _parts_of(matrix: Any) -> list[Any]:
    names = ("data", "indices", "indptr", "row", "col", "offsets", "rows")
    if matrix.format == "dok":
        return [sorted(deepcopy(dict(matrix.items())).items())]
    return [getattr(matrix, name) for name in names if hasattr(matrix, name)]


def figures(scale: float) -> Iterator[tuple[str, str, str, bool]]:
    """Yield how many cases went wrong."""
    count, faults = max(1, round(CASES * scale)), []

    @settings(
        max_examples=count, deadline=None, derandomize=True, database=None, phases=[Phase.generate]
    )
    @given(cases())
    def run(case: dict[str, Any]) -> None:
        faults.extend(filter(None, [fault(case)]))

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        run()
    finally:
        torch.set_num_threads(threads)
    found = "; ".join([f"{len(faults)} of {count}", *faults[:3]])
    yield "dtypes, containers, masks and extremes answered otherwise", "0", found, not faults
