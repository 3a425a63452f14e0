"""Asking: which unknown label of a row tells most about the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spen.batch.context import Context
from spen.batch.limits import limits
from spen.batch.rows import filled_rows
from spen.errors import InputError
from spen.estimators.predictor import Predictor, solve_contexts, warn_unless_converged
from spen.inference.descent import ROW_TILE
from spen.kernels.threads import stop_if_python_ends

SHORTLIST = 64
"""How many labels of a row are looked at, unless somebody says otherwise."""

Ending = tuple[Tensor, Tensor]
"""The steps and the status of some solves."""


@dataclass(frozen=True)
class Question:
    """A label of a row that a person may be asked about, and what the answer is expected to tell.

        gain = Σ_i [H(E p_i) − E H(p_i)]

    where p_i is the probability of another label i once the answer is known, and E is over answers.

    Attributes:
        label: its name.
        index: its column.
        probability: that it is on, by ``predict_proba``.
        gain: the entropy that the answer is expected to take off the other labels, in nats.

    >>> print(Question("sun", 3, 0.25, 0.125))
    sun: 25 % likely; the answer tells 0.125 nats about the others
    """

    label: Any
    index: int
    probability: float
    gain: float

    def __str__(self) -> str:
        likely = f"{100 * self.probability:.0f} % likely"
        return f"{self.label}: {likely}; the answer tells {self.gain:.3g} nats about the others"


def questions(
    predictor: Predictor,
    X: Any,
    names: list[Any],
    known: np.ndarray | None,
    among: np.ndarray,
    k: int,
    shortlist: int | None,
) -> list[list[Question]]:
    """Return the k questions of each row that are expected to tell most, the best first.

    Args:
        predictor: of sets of labels.
        X: (n, d) checked rows.
        names: of the labels.
        known: (n, L) of 1, 0 and nan; None where nothing is known.
        among: (n, L) True where a label may be asked.
        k: how many questions, where there are as many.
        shortlist: how many labels of a row are looked at; None means all.
    """
    if predictor.exclusive:
        raise InputError(
            "next_question is for sets of labels; this model predicts one class a row, and a "
            "person who knows it has answered everything."
        )
    most = len(names) if shortlist is None else max(shortlist, k)
    found: list[list[Question]] = []
    endings: list[Ending] = []
    model = predictor.model
    for some, numbers in predictor.chunks(X, np.arange(X.shape[0])):
        scaled = predictor.scale(some)
        first, work = numbers[0], model.work(scaled)
        held = None if known is None else known[numbers]
        for context, count in model.contexts(scaled, known=held):
            its = slice(first, first + count)
            first += count
            solution = solve_contexts(model, predictor.prediction, [(context, count)], work)
            endings.append((solution.steps, solution.status))
            its_known = np.full((count, len(names)), np.nan, np.float32)
            if known is not None:
                its_known = known[its]
            now = predictor.calibrate(solution.y, None if known is None else its_known)
            soft = now.cpu().numpy()
            rows, labels = _candidates(soft, np.isnan(its_known) & among[its], most)
            gains, more = _gains(predictor, context, now, its_known, rows, labels)
            endings += more
            edges = np.searchsorted(rows, np.arange(1, count))
            asked = zip(soft, np.split(labels, edges), np.split(gains, edges), strict=True)
            found += [_best(names, k, *each) for each in asked]
    warn_unless_converged(endings)
    return found


def _best(
    names: list[Any], k: int, soft: np.ndarray, labels: np.ndarray, gains: np.ndarray
) -> list[Question]:
    """Return the best questions of a row; of equal gains the first one comes first."""
    best = np.argsort(-gains, kind="stable")[:k]
    pairs = zip(labels[best].tolist(), gains[best].tolist(), strict=True)
    return [Question(names[i], i, float(soft[i]), gain) for i, gain in pairs]


def _candidates(soft: np.ndarray, free: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows and the labels to look at: of each row the most uncertain free ones.

    They come row by row, the most uncertain first.
    """
    doubt = np.where(free, 0.5 - np.abs(soft.astype(np.float64) - 0.5), -1.0)
    order = np.argsort(-doubt, axis=1, kind="stable")[:, :most]
    rows, places = np.nonzero(np.take_along_axis(doubt, order, axis=1) >= 0)
    return rows, order[rows, places]


def _gains(
    predictor: Predictor,
    context: Context,
    now: Tensor,
    known: np.ndarray,
    rows: np.ndarray,
    labels: np.ndarray,
) -> tuple[np.ndarray, list[Ending]]:
    """Return the expected gains of some candidates, (c,), and how their solves ended.

    Args:
        predictor: of sets of labels.
        context: the features of the rows, which are not computed again for what differs in labels.
        now: (n, L) the probabilities as they are.
        known: (n, L) of 1, 0 and nan.
        rows: (c,) the row of each candidate.
        labels: (c,) and its label.
    """
    model, features = predictor.model, context.features
    step = limits.rows_at_once(max(model.domain.size, features.shape[1])) // 2
    gains, endings = np.zeros(len(rows)), []
    for first in range(0, len(rows), step):
        stop_if_python_ends()
        its = slice(first, first + step)
        place, label = (torch.from_numpy(each[its]).to(now.device) for each in (rows, labels))
        count, label = len(place), label[:, None]
        held = model.arrays.known(known[rows[its]], count, model.domain.size)
        # Every yes, and then every no.
        held = torch.cat([held.scatter(1, label, 1.0), held.scatter(1, label, 0.0)])
        parts = (features[torch.cat([place, place])], held)
        inputs, given = (filled_rows(part, 0, 2 * count, ROW_TILE) for part in parts)
        batch, work = Context(inputs, known=given), model.work(inputs)
        solution = solve_contexts(model, predictor.prediction, [(batch, 2 * count)], work)
        endings.append((solution.steps, solution.status))
        yes, no = predictor.calibrate(solution.y, held).double().chunk(2)
        on, off = _entropy(yes), _entropy(no)
        p = now.double()[place].gather(1, label)
        # Written so that labels which both answers leave alike add nothing, to the last bit.
        fall = _entropy(no + p * (yes - no)) - off - p * (on - off)
        gains[its] = fall.scatter(1, label, 0.0).sum(1).cpu().numpy()
    return gains, endings


def _entropy(p: Tensor) -> Tensor:
    """Return the entropy of each label, in nats."""
    return -torch.xlogy(p, p) - torch.xlogy(1 - p, 1 - p)
