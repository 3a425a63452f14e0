"""The path from X to labels as one module of tensors, for ``torch.export``: see ``Predictor``."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from spen.batch.context import Context
from spen.energies.base import Problem, energy_terms
from spen.errors import InputError
from spen.estimators.bases import EstimatorScores
from spen.estimators.forests import Forest
from spen.estimators.predictor import Predictor, patient_inference
from spen.estimators.scaling import FAR, FARTHEST, NEAR_ZERO, Scaling
from spen.estimators.tables import (
    CategoryColumn,
    Cells,
    Column,
    DateColumn,
    NumberColumn,
    TableEncoder,
    cells_of,
)
from spen.features import Features
from spen.inference.descent import Descent
from spen.inference.graph import AsGraph, polish
from spen.objectives.label_wise import CrossEntropy
from spen.objectives.unrolled import ThroughSteps

_TINY = np.finfo(float).tiny


class PredictionGraph(nn.Module):
    """X (n, d) and what is known of labels (n, L) → probabilities and labels of 0 and 1, (n, L).

    Known labels are 1 or 0; anything else, such as nan, is unknown, because a graph cannot refuse.

    Args:
        predictor: whose answers it gives, on the CPU.
        encoder: of a table, whose cells then come as numbers (see ``cell_numbers``), or None.
    """

    def __init__(self, predictor: Predictor, encoder: TableEncoder | None = None) -> None:
        super().__init__()
        refuse_what_stays(predictor, encoder)
        self.model = copy.deepcopy(predictor.model).cpu().eval().requires_grad_(False)
        _put_trees(self.model)
        self.predictor, self.encoder = predictor, encoder
        prediction = predictor.prediction
        self.objective, self.inference = prediction.objective, prediction.inference
        if isinstance(self.inference, Descent):
            through_steps = isinstance(self.objective, ThroughSteps)
            self.inference = AsGraph.of(self.inference, through_steps)

    def forward(self, X: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
        predictor = self.predictor
        known = torch.where((known == 0) | (known == 1), known, torch.nan)
        rows = X if self.encoder is None else encoded(self.encoder, X)
        context = Context(self.model.features.of(scaled(predictor.scaling, rows)), known=known)
        y = self.objective.predict(self.model, self.inference, context).y
        soft, domain = predictor.calibration.apply(y, known), self.model.domain
        soft = domain.hold(soft, domain.complete_known(known))
        if predictor.decoding == "joint" and not predictor.exclusive:
            labels = self._lowest(context)
        else:
            labels = decoded(predictor, soft)
        return soft, labels.to(torch.int8)

    def _lowest(self, context: Context) -> Tensor:
        """Return the labelling of the lowest energy that is found, as ``lowest`` does."""
        inference = patient_inference(self.predictor.prediction.inference)
        assert isinstance(inference, Descent)
        inference = AsGraph.of(inference, through_steps=False)
        problem, start = self.model.pose(context, self.objective.start, self.objective.entropy)
        found = inference.solve(problem, self.model.domain, start, context.known)
        return polish(problem, (found.y > 0.5).to(found.y), context.known)


def scaled(scaling: Scaling, X: Tensor) -> Tensor:
    """Return rows as ``Scaling.transform`` does, all of them dense."""
    if scaling.shift is None and scaling.length is None:
        return X.float()
    rows, scale = X.double(), torch.from_numpy(scaling.scale)
    if scaling.length is None:
        rows = (rows - torch.from_numpy(scaling.shift)) / scale
        return rows.clamp(-FARTHEST, FARTHEST).float()
    rows = rows / scale
    norm = rows.square().sum(1, keepdim=True).sqrt()
    largest = rows.abs().amax(1, keepdim=True)
    odd = ~((norm > NEAR_ZERO) & (norm < FAR)) & (largest > 0)
    rows = rows / torch.where(odd, largest, 1.0)
    norm = rows.square().sum(1, keepdim=True).sqrt()
    # A row of zeros stays one.
    return (rows * (scaling.length / torch.where(norm > 0, norm, 1.0))).float()


# Labels from probabilities: as spen.estimators.decoding does it --------------------------------


def decoded(predictor: Predictor, soft: Tensor) -> Tensor:
    """Return labels of 0 and 1 as ``Predictor.decode`` does."""
    if predictor.exclusive:
        return torch.arange(soft.shape[1]) == soft.argmax(1, keepdim=True)
    tuned = predictor.tuned[predictor.decoding]
    if predictor.decoding == "expected_f1":
        return _expected_f1(soft.double(), float(tuned))
    if predictor.decoding == "row_threshold":
        threshold, power = map(float, tuned)
        largest = soft.amax(1, keepdim=True).clamp_min(torch.finfo(soft.dtype).tiny)
        return soft / largest**power > threshold
    return soft > torch.as_tensor(np.asarray(tuned, np.float32))


def _expected_f1(p: Tensor, empty: float) -> Tensor:
    none = (1 - p).clamp_min(_TINY).log().sum(1).exp()
    q = torch.minimum(empty * none, 1 - p.amax(1))
    size = (p.sum(1) / (1 - q).clamp_min(_TINY)).clamp_min(1.0)
    # Of equally probable labels the one in the earlier column comes first.
    ranked, order = p.topk(p.shape[1])
    ranks = torch.arange(1, p.shape[1] + 1)
    value = 2 * ranked.cumsum(1) / (ranks + size[:, None])
    best = torch.where(q > value.amax(1), 0, 1 + value.argmax(1))
    chosen = (ranks <= best[:, None]) & (ranked > 0)
    return torch.zeros_like(p).scatter(1, order, chosen.to(p.dtype))


# Tables: cells as numbers ----------------------------------------------------------------------


def cell_numbers(encoder: TableEncoder, table: Any) -> np.ndarray:
    """Return the cells of a table as the graph takes them, (n, columns) of float64.

    A number as it is; a category as its place among those that were learned, −1 for any other; a
    date as its seconds since 1970; nan for a missing cell.

    >>> encoder = TableEncoder().fit({"age": [30, 50], "colour": ["red", "blue"]})
    >>> cell_numbers(encoder, {"age": [None], "colour": ["blue"]})
    array([[nan,  0.]])
    """
    return np.column_stack([_numbers(*pair) for pair in cells_of(encoder, table)])


def _numbers(column: Column, cells: Cells) -> np.ndarray:
    if isinstance(column, NumberColumn):
        return cells.numbers()
    if isinstance(column, DateColumn):
        seconds = cells.times().astype(np.int64).astype(np.float64)
        return np.where(cells.missing, np.nan, seconds)
    assert isinstance(column, CategoryColumn)
    return column.numbers(cells)


def encoded(encoder: TableEncoder, cells: Tensor) -> Tensor:
    """Return the features of cells (n, columns), as ``TableEncoder.transform`` does."""
    blocks = []
    for place, column in enumerate(encoder.columns_):
        cell = cells[:, place, None].double()
        missing = cell.isnan()
        if isinstance(column, CategoryColumn):
            blocks.append(_categories(column, cell, missing))
            continue
        assert isinstance(column, NumberColumn | DateColumn)
        parts = cell if isinstance(column, NumberColumn) else _calendar(cell)
        means, spreads = torch.tensor(column.means).double(), torch.tensor(column.spreads).double()
        parts = (parts[:, : len(means)] - means) / spreads
        blocks.append(torch.where(missing, 0.0, parts.clamp(-FARTHEST, FARTHEST)))
        if column.has_missing:
            blocks.append(missing.double())
    return torch.cat(blocks, 1).float()


def _categories(column: CategoryColumn, cell: Tensor, missing: Tensor) -> Tensor:
    kept = len(column.values)
    other = kept if column.has_other else -1
    absent = kept + column.has_other if column.has_missing else other
    known = (cell >= 0) & (cell < kept)
    place = torch.where(missing, float(absent), torch.where(known, cell, float(other)))
    return (torch.arange(len(column.names)) == place).double()


def _calendar(seconds: Tensor) -> Tensor:
    """Return the parts of ``DateColumn`` of times in seconds since 1970, (n, 1) → (n, 6)."""
    seconds = torch.nan_to_num(seconds).floor()
    days = (seconds / 86_400).floor()
    rest = seconds - 86_400 * days
    # Days of a calendar whose years begin in March, so that leap days are last (Hinnant).
    shifted = days + 719_468
    era = (shifted / 146_097).floor()
    day = shifted - 146_097 * era
    year = day - (day / 1_460).floor() + (day / 36_524).floor() - (day / 146_096).floor()
    year = (year / 365).floor()
    day = day - (365 * year + (year / 4).floor() - (year / 100).floor())
    month = ((5 * day + 2) / 153).floor()
    day = day - ((153 * month + 2) / 5).floor() + 1
    month = torch.where(month < 10, month + 3, month - 9)
    year = year + 400 * era + (month <= 2)
    week = days + 3
    weekday = week - 7 * (week / 7).floor()
    return torch.cat([year, month, day, weekday, days + rest / 86_400, rest / 3_600], 1)


# What does not fit into a graph ------------------------------------------------------------------


class Trees(Features):
    """A ``Forest`` whose walks through its trees have a fixed number of steps."""

    roots: Tensor
    feature: Tensor
    threshold: Tensor
    left: Tensor
    right: Tensor
    values: Tensor

    def __init__(self, forest: Forest) -> None:
        super().__init__()
        self.n_inputs, self.n_features = forest.n_inputs, forest.n_features
        for name in ("roots", "feature", "left", "right"):
            self.register_buffer(name, getattr(forest, name).long())
        self.register_buffer("threshold", forest.threshold.float())
        self.register_buffer("values", forest.values)
        self.depth, node = 0, forest.roots.long()
        while (inner := node[forest.feature[node] >= 0]).numel():
            node = torch.cat([forest.left[inner], forest.right[inner]]).long()
            self.depth += 1

    def forward(self, inputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        node = self.roots.expand(inputs.shape[0], -1)
        for _ in range(self.depth):
            feature = self.feature[node]
            goes_left = inputs.float().gather(1, feature.clamp_min(0)) <= self.threshold[node]
            then = torch.where(goes_left, self.left[node], self.right[node])
            node = torch.where(feature >= 0, then, node)
        share = self.values[self.left[node]].mean(1).to(inputs.dtype)
        trees = len(self.roots)
        return torch.logit((share * trees + 0.5) / (trees + 1))


def _put_trees(model: nn.Module) -> None:
    for part in list(model.modules()):
        for name, child in part.named_children():
            if isinstance(child, Forest):
                setattr(part, name, Trees(child))


def refuse_what_stays(predictor: Predictor, encoder: TableEncoder | None) -> None:
    """Raise where part of the path is no tensor work, and say which."""
    for part in predictor.model.modules():
        if isinstance(part, EstimatorScores):
            raise InputError(
                f"This model cannot be exported: its base {part.extra_repr()} is scikit-learn's "
                "own code. Forests can be exported (base='extra_trees' or 'forest'), and networks."
            )
    for column in () if encoder is None else encoder.columns_:
        if not isinstance(column, NumberColumn | DateColumn | CategoryColumn):
            raise InputError(
                f"This model cannot be exported: its column {column.name!r} is text, which is cut "
                "into words outside of any graph of tensors. Encode the table by "
                "clf.encoder_.transform(table) and fit a model on the numbers."
            )
    objective, inference = predictor.prediction.objective, predictor.prediction.inference
    if isinstance(objective, CrossEntropy) and predictor.decoding != "joint":
        return  # It needs no inference.
    if not isinstance(inference, Descent):
        raise InputError(
            f"This model cannot be exported: its inference {type(inference).__name__} is no "
            "Descent, whose steps are tensor work."
        )
    for term in energy_terms(predictor.model.energy):
        with torch.no_grad():
            features = predictor.model.reference.new_zeros(1, predictor.model.features.n_features)
            problem = term.bind(Context(features))
        kind = type(problem)
        own = kind.value_and_gradient is Problem.value_and_gradient
        if own and kind.gradient is Problem.gradient:
            raise InputError(
                f"This model cannot be exported: the energy {type(term).__name__} has no gradient "
                "in closed form, only autograd's. Give it a bind that returns a spen.Form."
            )
