"""A classifier as a file that other programs run: ONNX, or a program of ``torch.export``."""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import spen
from spen.errors import InputError, one_of, require
from spen.estimators.graph import PredictionGraph, cell_numbers
from spen.estimators.predictor import Predictor
from spen.estimators.scaling import checked_rows
from spen.estimators.tables import CategoryColumn, DateColumn, TableEncoder
from spen.files import write_atomically
from spen.inference.descent import Descent
from spen.inference.graph import AsGraph
from spen.objectives.label_wise import CrossEntropy
from spen.objectives.unrolled import ThroughSteps

if TYPE_CHECKING:
    from spen.estimators.base import LabelClassifier

FORMATS = {"onnx": ".onnx", "torch": ".pt2"}
"""What a classifier can be exported to, and how the names of such files end."""

WITHIN = 1e-5
"""How far probabilities of the file may be from those of ``predict_proba``."""

ROWS, AT_ONCE = 200, 256
"""Rows that are drawn to check a file by where none are given, and rows that it gets together."""

LARGEST = 2**31 - 1
"""Bytes of the largest file in the format of ONNX."""

Run = Callable[[np.ndarray, np.ndarray | None], tuple[np.ndarray, np.ndarray]]
"""From rows and known labels to probabilities and labels, by what was exported."""


@dataclass(frozen=True)
class Exported:
    """A file that was written, and how it compared with the classifier, row by row.

    Attributes:
        path: of the file.
        bytes: its size.
        rows: how many were predicted by both, with nothing and with some labels known.
        apart: the most by which probabilities differ.
        different: rows whose labels differ, because a probability that is rounded otherwise is
            just on the other side of a threshold.
    """

    path: Path
    bytes: int
    rows: int
    apart: float
    different: int

    def __str__(self) -> str:
        labels = "labels are equal" if not self.different else f"labels of {self.different} differ"
        return (
            f"Wrote {self.path} ({self.bytes / 1e6:.2f} MB). On {self.rows:,} rows {labels}, and "
            f"probabilities differ by {self.apart:.1e} at most."
        )


def export(
    classifier: LabelClassifier, path: Path | str, X: Any = None, *, to: str = "onnx"
) -> Exported:
    """Write the whole way from X to labels, and compare it with ``predict`` first.

    Args:
        classifier: fitted.
        path: of the file.
        X: rows to compare by; None draws some.
        to: one of FORMATS.
    """
    one_of(to, FORMATS, "to")
    if to == "onnx":
        for package in ("onnx", "onnxscript", "onnxruntime"):
            require(package, "onnx")
    predictor, encoder = classifier.predictor_, classifier.encoder_
    graph = PredictionGraph(predictor, encoder)
    labels = predictor.model.domain.size
    width = classifier.n_features_in_ if encoder is None else len(encoder.columns_)
    program = _traced(graph, width, labels)
    if to == "onnx":
        content = _onnx(program, labels, _described(classifier))
        run = _by_onnxruntime(content)
    else:
        buffer = io.BytesIO()
        with _quietly():
            torch.export.save(program, buffer, extra_files={"spen.json": _described(classifier)})
        content = buffer.getvalue()
        run = _by_torch(content, labels)
    rows, apart, different = _compared(classifier, run, X)
    write_atomically(path, content)
    return Exported(Path(path), len(content), rows, apart, different)


def described(classifier: LabelClassifier) -> dict[str, Any]:
    """Return what a program has to know beside the numbers: names, and what cells mean."""
    encoder, names = classifier.encoder_, classifier.feature_names_
    about: dict[str, Any] = {
        "spen": spen.__version__,
        "labels": [str(name) for name in classifier.label_names_.tolist()],
        "classes": classifier.predictor_.exclusive,
        "features": None if names is None or encoder else [str(name) for name in names],
    }
    if encoder is not None:
        about["columns"] = [_column(column) for column in encoder.columns_]
    return about


def _described(classifier: LabelClassifier) -> str:
    return json.dumps(described(classifier), ensure_ascii=False)


def _column(column: Any) -> dict[str, Any]:
    if isinstance(column, CategoryColumn):
        return {"name": column.name, "kind": "category", "values": list(column.values)}
    kind = "seconds since 1970" if isinstance(column, DateColumn) else "number"
    return {"name": column.name, "kind": kind}


# Making the file -------------------------------------------------------------------------------


def _traced(graph: PredictionGraph, width: int, labels: int) -> Any:
    if not hasattr(torch, "while_loop"):
        raise InputError(
            f"PyTorch {torch.__version__} has no torch.while_loop, which exported inference is "
            "made of. pip install --upgrade torch"
        )
    rows = torch.export.Dim("rows")
    example = torch.zeros(8, width, dtype=torch.float64), torch.full((8, labels), torch.nan)
    shapes = {"X": {0: rows}, "known": {0: rows}}
    try:
        with torch.no_grad(), _quietly():
            return torch.export.export(graph, example, dynamic_shapes=shapes, strict=False)
    except Exception as problem:  # of a network or an energy of somebody's own: anything at all
        raise InputError(
            "This model cannot be exported: torch.export cannot trace it. A network or an energy "
            f"of your own must be made of operations on tensors alone. ({_first_line(problem)})"
        ) from problem


def _onnx(program: Any, labels: int, about: str) -> bytes:
    """Return the program in the format of ONNX; of its two inputs the second one may be missing."""
    import onnx  # pyright: ignore[reportMissingImports]

    options: Any = {"input_names": ["X", "told"], "output_names": ["probabilities", "labels"]}
    options |= {"custom_translation_table": {torch.ops.aten.sigmoid.default: _sigmoid}}
    try:
        with torch.no_grad(), _quietly():
            made: Any = torch.onnx.export(program, **options, dynamo=True, verbose=False)
            model = made.model_proto
    except Exception as problem:  # an operation of somebody's own that ONNX does not have
        raise InputError(
            "This model cannot be exported to ONNX, which lacks something that it does "
            f"({_first_line(problem)}). Try to='torch'."
        ) from problem
    graph = model.graph
    rows, told = graph.input
    for value in (rows, *graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "rows"
    graph.input.remove(told)
    # One row for all, or a row each; and where there is none, nothing is known.
    helper, kind = onnx.helper, onnx.TensorProto
    known = helper.make_tensor_value_info("known", kind.FLOAT, ["rows known", labels])
    graph.input.append(known)
    nothing = np.full((1, labels), np.nan, np.float32)
    graph.initializer.append(onnx.numpy_helper.from_array(nothing, "known"))
    graph.initializer.append(onnx.numpy_helper.from_array(np.array([labels]), "known_labels"))
    nodes = [
        helper.make_node("Shape", ["X"], ["known_rows"], start=0, end=1),
        helper.make_node("Concat", ["known_rows", "known_labels"], ["known_shape"], axis=0),
        helper.make_node("Expand", ["known", "known_shape"], ["told"]),
    ]
    for place, node in enumerate(nodes):
        graph.node.insert(place, node)
    helper.set_model_props(model, {"spen": about})
    if model.ByteSize() > LARGEST:
        raise InputError(
            f"The model takes {model.ByteSize() / 2**30:.1f} GiB, and a file of ONNX holds 2 GiB "
            "at most. Export it to='torch'."
        )
    onnx.checker.check_model(model)
    return model.SerializeToString()


def _sigmoid(z: Any) -> Any:
    """1 / (1 + exp(−z)), in operations of ONNX.

    The Sigmoid of onnxruntime is right to 1e-7, and of a probability near 1 that is not enough to
    tell its log-odds, which calibration wants.
    """
    from onnxscript import opset20  # pyright: ignore[reportMissingImports]

    op: Any = opset20
    one = op.CastLike(op.Constant(value_float=1.0), z)
    return op.Div(one, op.Add(one, op.Exp(op.Neg(z))))


def _first_line(problem: Exception) -> str:
    lines = str(problem).strip().splitlines()
    return f"{type(problem).__name__}: {lines[0] if lines else 'no reason'}"


@contextmanager
def _quietly() -> Iterator[None]:
    """Leave out what torch's exporter says of itself and of packages that nobody asked for."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)


# Comparing it with the classifier ----------------------------------------------------------------


def _by_onnxruntime(content: bytes) -> Run:
    import onnxruntime  # pyright: ignore[reportMissingImports]

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session: Any = onnxruntime.InferenceSession(
        content, options, providers=["CPUExecutionProvider"]
    )

    def run(rows: np.ndarray, known: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        given = {"X": rows} if known is None else {"X": rows, "known": known}
        return session.run(None, given)

    return run


def _by_torch(content: bytes, labels: int) -> Run:
    with _quietly():
        module = torch.export.load(io.BytesIO(content)).module()

    def run(rows: np.ndarray, known: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        told = np.full((len(rows), labels), np.nan, np.float32) if known is None else known
        with torch.no_grad():
            soft, found = module(torch.from_numpy(rows), torch.from_numpy(told))
        return soft.numpy(), found.numpy()

    return run


def _compared(classifier: LabelClassifier, run: Run, X: Any) -> tuple[int, float, int]:
    """Return how many rows were compared, how far apart probabilities are at most, and of how
    many rows labels differ; raise where that is not for rounding alone."""
    encoder = classifier.encoder_
    if X is None:
        X = drawn_rows(classifier) if encoder is None else drawn_table(encoder)
    apart, different, count = 0.0, 0, 0
    inputs = checked_rows(classifier, X)
    numbers: Any = inputs if encoder is None else cell_numbers(encoder, X)
    draw = np.random.default_rng(0)
    for first in range(0, inputs.shape[0], AT_ONCE):
        some = slice(first, first + AT_ONCE)
        part = numbers[some]
        rows = np.asarray(part.toarray() if hasattr(part, "toarray") else part, np.float64)
        free = _difference(classifier, run, inputs[some], rows, None)
        hidden = draw.random(free.labels.shape) < 0.7
        known = np.where(hidden, np.nan, free.labels).astype(np.float32)
        for found in (free, _difference(classifier, run, inputs[some], rows, known)):
            apart, different = max(apart, found.apart), different + found.different
        # A single row takes the same way: nothing of the others was built in.
        _difference(classifier, run, inputs[first : first + 1], rows[:1], None)
        count += len(rows)
    return count, apart, different


@dataclass(frozen=True)
class _Difference:
    labels: np.ndarray
    apart: float
    different: int


def _difference(
    classifier: LabelClassifier, run: Run, inputs: Any, rows: np.ndarray, known: np.ndarray | None
) -> _Difference:
    predictor = classifier.predictor_
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of rows that do not converge, which nobody asked about
        parts = list(predictor.predictions(inputs, known))
    soft = np.concatenate([part.cpu().numpy() for part, _ in parts])
    labels = np.concatenate([found for _, found in parts])
    found_soft, found = run(rows, known)
    apart = float(np.abs(found_soft - soft).max(initial=0))
    within = max(WITHIN, stopping_tolerance(predictor))
    if not apart <= within:
        raise InputError(
            f"The exported model does not repeat this one: probabilities differ by {apart:.1e}, "
            f"and {within:.0e} is the most that is allowed, so nothing was written. Inference with "
            "many steps over an energy with kinks (relu, hardtanh) may be such a case; "
            "nonlinearity='softplus' has none."
        )
    wrong = np.flatnonzero((found != labels).any(1))
    if not len(wrong):
        return _Difference(labels, apart, 0)
    if predictor.decoding == "joint":
        # Rounding may end a search elsewhere; what counts is how low it got.
        least, energy = (predictor.energy(inputs[wrong], y[wrong]) for y in (labels, found))
        explained = energy <= least + WITHIN * np.maximum(np.abs(least), 1)
    else:
        explained = (predictor.decode(found_soft[wrong]) == found[wrong]).all(1)
    if not np.all(explained):
        raise InputError(
            f"The exported model does not repeat this one: labels of {int((~explained).sum())} of "
            f"{len(labels)} rows differ, and not for rounding, so nothing was written."
        )
    return _Difference(labels, apart, len(wrong))


def stopping_tolerance(predictor: Predictor) -> float:
    """Return how exact an answer of inference is that ends by a tolerance: to rounding, it may end
    a step earlier or later. Zero where there is none, or a fixed number of steps."""
    objective, inference = predictor.prediction.objective, predictor.prediction.inference
    if isinstance(objective, CrossEntropy) or not isinstance(inference, Descent):
        return 0.0
    way: Any = AsGraph.of(inference, isinstance(objective, ThroughSteps)).backward
    return 0.0 if way.fixed else 10 * inference.stopping.iterate_atol


def drawn_rows(classifier: LabelClassifier, rows: int = ROWS) -> np.ndarray:
    """Return rows of numbers of the sizes that a classifier was fitted on."""
    scaling, width = classifier.predictor_.scaling, classifier.n_features_in_
    draw = np.random.default_rng(0)
    drawn = draw.standard_normal((rows, width))
    if scaling.length is not None:
        there = draw.random(drawn.shape) < min(1.0, scaling.length**2 / width)
        return np.where(there, np.abs(drawn) * scaling.scale, 0.0)
    return drawn if scaling.shift is None else scaling.shift + drawn * scaling.scale


def drawn_table(encoder: TableEncoder, rows: int = ROWS) -> dict[str, Any]:
    """Return a table whose cells are like those that an encoder has learned from."""
    draw = np.random.default_rng(0)
    table: dict[str, Any] = {}
    for column in encoder.columns_:
        if isinstance(column, CategoryColumn):
            values = [*column.values, None, "a word that was never seen"]
            cells = [values[i] for i in draw.integers(len(values), size=rows)]
            table[column.name] = cells
        elif isinstance(column, DateColumn):
            days = draw.integers(-200_000, 200_000, rows) * 86_400 + draw.integers(
                86_400, size=rows
            )
            table[column.name] = days.astype("datetime64[s]")
        else:
            measured: Any = column
            numbers = measured.means[0] + measured.spreads[0] * draw.standard_normal(rows)
            table[column.name] = np.where(draw.random(rows) < 0.1, np.nan, numbers)
    return table
