"""What a page is about: a fitted classifier, and rows whose labels are known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spen.batch.splits import Split
from spen.domains import UnitBox
from spen.energies.base import energy_terms
from spen.energies.local import LocalEnergy
from spen.estimators.base import LabelClassifier
from spen.estimators.fit import densified
from spen.estimators.plan import Prediction
from spen.estimators.scaling import checked_rows
from spen.inference.base import Solution
from spen.inference.descent import Descent
from spen.metrics import counts, row_f1
from spen.model import SPEN
from spen.report.names import shown_names

LARGEST_LABELLING = 4_000_000
"""Entries of the label matrix that a page looks at; of more rows a random part is taken."""


@dataclass(frozen=True)
class Judged:
    """Rows whose labels are known.

    Attributes:
        rows: inputs and labels, the labels in the model's order.
        name: what to call them, such as "the test rows of bibtex".
        total: how many rows there were before a part was taken.
        numbers: (n,) where each row stood among those, from 0.
    """

    rows: Split
    name: str
    total: int
    numbers: np.ndarray

    @classmethod
    def of(cls, rows: Split, name: str, most: int | None = None) -> Judged:
        """Take the rows, or a random part of them where they are too many for a page.

        >>> Judged.of(Split(np.zeros((9, 2)), np.zeros((9, 3))), "test rows", most=4).rows.X.shape
        (4, 2)
        """
        total = len(rows)
        limit = max(1, LARGEST_LABELLING // max(1, rows.Y.shape[1]))
        limit = limit if most is None else min(limit, most)
        numbers = np.arange(total)
        if total > limit:
            numbers = np.sort(np.random.default_rng(0).permutation(total)[:limit])
            rows = rows.rows(numbers)
        return cls(replace(rows, Y=densified(rows.Y)), name, total, numbers)


@dataclass(frozen=True)
class Subject:
    """A classifier beside rows that judge it; what several parts of a page need, computed once.

    Attributes:
        classifier: fitted.
        judged: rows with labels.
    """

    classifier: LabelClassifier
    judged: Judged

    @property
    def model(self) -> SPEN:
        """The energy network."""
        return self.classifier.model_

    @property
    def prediction(self) -> Prediction:
        """How predictions are made."""
        return self.classifier.plan_.prediction

    @property
    def truth(self) -> np.ndarray:
        """The labels (n, L) of 0 and 1; nan where one is missing."""
        return self.judged.rows.Y

    @property
    def label_names(self) -> list[str]:
        """The names of the labels, as the page shows them."""
        return shown_names(self.classifier.label_names_.tolist())

    @property
    def takes_sets(self) -> bool:
        """Whether a row has a set of labels, not one class."""
        return isinstance(self.model.domain, UnitBox)

    @cached_property
    def scaled(self) -> Any:
        """The inputs as the feature network takes them."""
        return self.classifier.predictor_.scale(checked_rows(self.classifier, self.judged.rows.X))

    @cached_property
    def solution(self) -> Solution:
        """What inference finds for each row."""
        return self.prediction.solve(self.model, self.scaled)

    @cached_property
    def probabilities(self) -> np.ndarray:
        """The calibrated probabilities (n, L)."""
        return self.classifier.predictor_.calibration.apply(self.solution.y.cpu().numpy())

    @cached_property
    def predicted(self) -> np.ndarray:
        """The predicted labels (n, L) of 0 and 1."""
        return self.classifier.decode(self.probabilities)

    @cached_property
    def label_wise(self) -> np.ndarray | None:
        """What the local energies alone say of each row, (n, L); None where there are none."""
        if not any(isinstance(term, LocalEnergy) for term in energy_terms(self.model.energy)):
            return None

        def solve(context: Any) -> Solution:
            y = self.model.starting_point(context, "local")
            zeros = y.new_zeros(len(y))
            return Solution(y, zeros, zeros.long(), zeros.long())

        return self.model.solve_with(solve, self.scaled).y.cpu().numpy()

    @cached_property
    def row_scores(self) -> np.ndarray:
        """The F1 of each row, (n,); nan for a row of which nothing is known."""
        return self.scores_of(self.predicted)

    def scores_of(self, predicted: np.ndarray) -> np.ndarray:
        """Return the F1 of each row of labels (n, L), as ``row_scores``."""
        both, sizes, known = counts(self.truth, predicted, axis=1)
        return np.where(known > 0, row_f1(both, sizes), np.nan)

    def labels_of(self, y: np.ndarray) -> np.ndarray:
        """Decode soft labels (n, L) as predictions are decoded."""
        return self.classifier.decode(self.classifier.predictor_.calibration.apply(y))

    def traced(self, rows: np.ndarray, known: np.ndarray | None = None) -> Solution:
        """Solve some rows as predictions do, keeping every iterate where there are any."""
        inference = self.prediction.inference
        if isinstance(inference, Descent):
            inference = replace(inference, trace=True, backend="general")
        return soft_labels(
            self.model, Prediction(self.prediction.objective, inference), self.scaled[rows], known
        )

    @torch.no_grad()
    def energy_of(self, rows: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return what predictions minimise, entropy included, at any labelling (n, L)."""
        parts: list[Tensor] = []
        entropy = self.prediction.objective.entropy
        labelling = torch.from_numpy(np.asarray(y)).to(self.model.reference)

        def solve(context: Any) -> Solution:
            begun = sum(map(len, parts))
            # A batch is filled up with copies of its last row.
            n = min(context.n_rows, len(labelling) - begun)
            problem = self.model.smoothed(context, entropy).select(torch.arange(n))
            parts.append(problem.value(labelling[begun : begun + n]))
            zeros = context.features.new_zeros(context.n_rows)
            return Solution(zeros[:, None], zeros, zeros.long(), zeros.long())

        self.model.solve_with(solve, self.scaled[rows])
        return torch.cat(parts).cpu().numpy()
