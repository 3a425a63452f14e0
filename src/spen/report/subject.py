"""The subject of a page: a fitted classifier, rows whose labels are known, the labels' names."""

from __future__ import annotations

import base64
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from spen.batch.arrays import densified
from spen.batch.splits import Split
from spen.energies.base import energy_terms
from spen.energies.local import LocalEnergy
from spen.estimators.base import LabelClassifier
from spen.estimators.predictor import Predictor, solve
from spen.inference.base import Solution
from spen.inference.descent import Descent
from spen.metrics import as_array, counts, row_f1
from spen.model import SPEN
from spen.objectives.label_wise import CrossEntropy

LARGEST_LABELLING = 4_000_000
"""Entries of the label matrix that a page looks at; of more rows a random part is taken."""

_UNSEEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\ud800-\udfff]"
)
"""Control characters, some that turn the direction of text, and halves of surrogate pairs."""

_DIRECTED = re.compile(
    "[\u0590-\u08ff\u2066-\u2069\ufb1d-\ufdff\ufe70-\ufeff\U00010800-\U00010fff"
    "\U0001e800-\U0001efff]"
)
"""What is written from right to left, and isolates."""

_ISOLATE, _END = "\u2068", "\u2069"

SEPARATORS = "_.:/- "
"""Where the common beginning of label names may end."""


@dataclass(frozen=True)
class Judged:
    """Rows whose labels are known.

    Attributes:
        rows: inputs as predictors take them, and labels in the model's order.
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
    def predictor(self) -> Predictor:
        """What makes predictions."""
        return self.classifier.predictor_

    @property
    def truth(self) -> np.ndarray:
        """The labels (n, L) of 0 and 1; nan where one is missing."""
        return self.judged.rows.Y

    @property
    def label_names(self) -> list[str]:
        """The names of the labels, as the page shows them."""
        return shown_names(self.classifier.label_names_.tolist())

    @cached_property
    def scaled(self) -> Any:
        """The inputs as the feature network takes them."""
        return self.predictor.scale(self.judged.rows.X)

    @cached_property
    def solution(self) -> Solution:
        """What inference finds for each row."""
        return self.predictor.solve(self.scaled)

    @cached_property
    def probabilities(self) -> np.ndarray:
        """The calibrated probabilities (n, L)."""
        return self.predictor.calibrate(self.solution.y).cpu().numpy()

    @cached_property
    def predicted(self) -> np.ndarray:
        """The predicted labels (n, L) of 0 and 1."""
        if self.predictor.decoding == "joint":
            return np.concatenate(list(self.predictor.lowest_labels(self.judged.rows.X)))
        return self.predictor.decode(self.probabilities)

    @cached_property
    def label_wise(self) -> Tensor | None:
        """What the local energies alone say of each row, (n, L); None where there are none."""
        if not any(isinstance(term, LocalEnergy) for term in energy_terms(self.model.energy)):
            return None
        prediction = replace(self.predictor.prediction, objective=CrossEntropy())
        return solve(self.model, prediction, self.scaled).y

    @cached_property
    def row_scores(self) -> np.ndarray:
        """The F1 of each row, (n,); nan for a row of which nothing is known."""
        return self.scores_of(self.predicted)

    def scores_of(self, predicted: np.ndarray) -> np.ndarray:
        """Return the F1 of each row of labels (n, L), as ``row_scores``."""
        both, sizes, known = counts(self.truth, predicted, axis=1)
        return np.where(known > 0, row_f1(both, sizes), np.nan)

    def labels_of(self, y: Tensor) -> np.ndarray:
        """Decode soft labels (n, L) as predictions are decoded, or nearly."""
        predictor = self.predictor
        return predictor.decode(predictor.calibrate(y), predictor.soft_decoding)

    def solve_traced(self, rows: np.ndarray) -> Solution:
        """Solve some rows as predictions do, and keep every iterate, if there are any."""
        prediction = self.predictor.prediction
        if isinstance(prediction.inference, Descent):
            traced = replace(prediction.inference, trace=True, backend="general")
            prediction = replace(prediction, inference=traced)
        return solve(self.model, prediction, self.scaled[rows])


def common_beginning(names: list[str]) -> str:
    """Return what all names begin with, up to a separator, if the rest still says something.

    >>> common_beginning(["TAG_web", "TAG_wiki"]), common_beginning(["label 1", "label 2"])
    ('TAG_', '')
    """
    if len(names) < 2:
        return ""
    # What the first and the last in order share, all between them share too.
    ends = zip(min(names), max(names), strict=False)
    shared = "".join(a for a, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], ends))
    cut = max(shared.rfind(sign) for sign in SEPARATORS) + 1
    rests = [name[cut:] for name in names]
    telling = sum(any(sign.isalpha() for sign in rest) for rest in rests)
    return shared[:cut] if all(rests) and 2 * telling >= len(rests) else ""


def isolated(text: str) -> str:
    r"""Return text that turns the direction of nothing that stands beside it.

    Isolates in characters, unlike those in markup, also hold in titles, attributes and scripts.
    What a browser would obey without showing it is replaced by a mark.

    >>> isolated("rain"), isolated("rain\u202e"), ascii(isolated("\u05d0"))
    ('rain', 'rain�', "'\\u2068\\u05d0\\u2069'")
    """
    text = _UNSEEN.sub("\ufffd", text)
    if not _DIRECTED.search(text):
        return text
    depth, kept = 0, []
    for sign in text:
        depth += ("\u2066" <= sign <= _ISOLATE) - (sign == _END)
        # An end without a beginning would end ours.
        kept.append(sign if depth >= 0 else "")
        depth = max(depth, 0)
    return f"{_ISOLATE}{''.join(kept)}{_END * (depth + 1)}"


def shown_names(names: Sequence[object]) -> list[str]:
    """Return the names as text, less their common beginning, as a page may show them.

    >>> shown_names(["TAG_web", "TAG_wiki"])
    ['web', 'wiki']
    """
    plain = [str(name) for name in names]
    cut = len(common_beginning(plain))
    return [isolated(name[cut:]) for name in plain]


def packed(values: Any, kind: str = "<f4") -> str:
    """Return an array's numbers, row after row, as base64 text that a page can read.

    >>> np.frombuffer(base64.b64decode(packed([1.0, 0.5])), "<f4")
    array([1. , 0.5], dtype=float32)
    """
    return base64.b64encode(as_array(values, kind).tobytes()).decode("ascii")


def rounded(values: Any, digits: int = 4) -> list[Any]:
    """Return numbers for people: so many decimals, as lists.

    >>> rounded(np.array([0.123456]))
    [0.1235]
    """
    return np.round(as_array(values), digits).tolist()
