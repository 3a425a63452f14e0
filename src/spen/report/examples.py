"""Rows to look at closely: which, what inference does with them, and what labels answer."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from spen.estimators.asking import SHORTLIST
from spen.estimators.plan import Prediction
from spen.inference.base import Trace
from spen.inference.descent import Descent
from spen.inference.rules import MeanField, MirrorBundle, MirrorDescent, ProjectedGradient
from spen.objectives.hinge import Hinge
from spen.objectives.label_wise import CrossEntropy, SquaredError
from spen.objectives.unrolled import UnrolledLikelihood
from spen.report.subject import Subject, packed, rounded

OF_EACH_KIND = 3
"""Rows of each reason for showing them."""

SHOWN_LABELS = 16
FRAMES = 40
"""Steps of a trace that a page keeps, where it cannot repeat them itself."""

RULES = (MirrorBundle, MirrorDescent, ProjectedGradient, MeanField)
LARGEST = 400_000
"""Weights of an energy that a page carries: two megabytes of text."""


def example_facts(subject: Subject) -> dict[str, Any]:
    """Return some rows with the start, the end and the energies of their inference.

    Where the page can run inference itself, ``inference`` has what it needs. Otherwise
    ``why_not`` says why, and each row has its ``trace`` and the ``answers`` of the shown
    labels when one of them is set by hand.
    """
    chosen = choose_rows(subject)
    rows = np.array([row for row, _ in chosen], dtype=int)
    solution = subject.solve_traced(rows)
    # Without a trace there is one frame, whatever the solver counts as steps.
    trace = solution.trace or Trace(solution.y[None], solution.energy[None])
    steps = solution.steps * (solution.trace is not None)
    ys, energies, end = (part.cpu().numpy() for part in (trace.y, trace.energy, solution.y))
    label_wise = end if subject.label_wise is None else subject.label_wise[rows].cpu().numpy()
    found = page_inference(subject, rows)
    examples = []
    for k, ((row, why), last) in enumerate(zip(chosen, steps.tolist(), strict=True)):
        truth = subject.truth[row]
        shown = shown_labels(truth, label_wise[k], end[k])
        example: dict[str, Any] = {
            "row": int(subject.judged.numbers[row]) + 1,
            "why": why,
            "truth": np.flatnonzero(truth == 1).tolist(),
            "predicted": np.flatnonzero(subject.predicted[row] == 1).tolist(),
            "shown": shown.tolist(),
            "start": rounded(ys[0, k, shown]),
            "end": rounded(end[k, shown]),
            "energies": rounded(energies[: last + 1, k]),
            "steps": last,
        }
        if isinstance(found, str):
            at = np.unique(np.linspace(0, last, min(FRAMES, last + 1)).round().astype(int))
            example["trace"] = {"steps": at.tolist(), "y": rounded(ys[at, k][:, shown])}
        examples.append(example)
    facts: dict[str, Any] = {"examples": examples, "names": subject.label_names}
    if isinstance(found, str):
        _add_answers(subject, rows, examples)
        return facts | {"inference": None, "why_not": found}
    predictor = subject.predictor
    calibration, decoding = predictor.calibration, predictor.soft_decoding
    tuned = np.asarray(predictor.tuned[decoding])
    return facts | {
        "inference": found,
        "why_not": None,
        # The page goes from the first to the second as labels are set.
        "calibration": [
            {"scale": each.scale, "shift": each.shift.tolist()}
            for each in (calibration, calibration.half or calibration)
        ],
        "shortlist": SHORTLIST,
        "decoding": {"name": decoding, "tuned": tuned.tolist()},
    }


def choose_rows(subject: Subject) -> list[tuple[int, str]]:
    """Return rows with the reason why each is shown.

    The energy puts some rows right and leads others astray, against what the label-wise scores
    alone would say, decoded alike. Others are typical, and some are hard.
    """
    scores = subject.row_scores
    usable = np.flatnonzero(~np.isnan(scores))
    chosen: dict[int, str] = {}

    def add(order: np.ndarray, why: str) -> None:
        fresh = [int(row) for row in order if int(row) not in chosen][:OF_EACH_KIND]
        chosen.update(dict.fromkeys(fresh, why))

    if subject.label_wise is not None:
        gain = (scores - subject.scores_of(subject.labels_of(subject.label_wise)))[usable]
        by_gain = np.argsort(-gain, kind="stable")
        add(usable[by_gain[gain[by_gain] > 0]], "improved by the energy")
        add(usable[by_gain[gain[by_gain] < 0][::-1]], "led astray by the energy")
    by_score = usable[np.argsort(scores[usable], kind="stable")]
    # From the middle outwards, every tenth of the rows.
    middle = (np.array([0.5, 0.6, 0.4, 0.7, 0.3]) * max(0, len(by_score) - 1)).astype(int)
    add(by_score[middle] if len(by_score) else by_score, "typical")
    add(by_score, "hard")
    return list(chosen.items())


def shown_labels(truth: np.ndarray, label_wise: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Return the labels worth showing: all of few, else the true ones and the most likely.

    >>> shown_labels(np.eye(30)[3], np.full(30, 0.1), np.eye(30)[9])[:2].tolist()
    [3, 9]
    """
    if len(truth) <= SHOWN_LABELS + 4:
        return np.arange(len(truth))
    likely, true = np.maximum(end, label_wise), truth == 1
    # Some that are not true are shown beside however many are.
    count = max(SHOWN_LABELS, int(true.sum()) + 4)
    return np.argsort(-(10 * true + likely), kind="stable")[:count]


def _add_answers(subject: Subject, rows: np.ndarray, examples: list[dict[str, Any]]) -> None:
    """Solve each row again with each shown label set to 0 and to 1, all in one batch."""
    settings = [
        (k, label, value)
        for k, example in enumerate(examples)
        for label in example["shown"]
        for value in (0, 1)
    ]
    known = np.full((len(settings), subject.model.domain.size), np.nan, dtype=np.float32)
    for number, (_, label, value) in enumerate(settings):
        known[number, label] = value
    solution = subject.predictor.solve(subject.scaled[rows[[k for k, _, _ in settings]]], known)
    for number, (k, label, value) in enumerate(settings):
        example = examples[k]
        example.setdefault("answers", {})[f"{label}={value}"] = {
            "y": rounded(solution.y[number, example["shown"]]),
            "energy": rounded(solution.energy[number]),
        }


@torch.no_grad()
def page_inference(subject: Subject, rows: np.ndarray) -> dict[str, Any] | str:
    """Return what a page needs to infer the labels of some rows, or why it cannot.

    The result has ``how`` (rule and stopping), the shared ``blocks``, and ``rows``: the terms
    of each row and where its inference starts. Arrays are packed (see ``packed``).
    """
    if subject.predictor.exclusive:
        return "a page infers sets of labels, and this model predicts classes"
    how = _rule_and_stopping(subject.predictor.prediction)
    if isinstance(how, str):
        return how
    model, objective = subject.model, subject.predictor.prediction.objective
    context, _ = next(model.contexts(subject.scaled[rows]))
    form = model.smoothed(context, objective.entropy).form
    if form is None:
        return "the energy has no canonical form"
    if sum(block.measurements.numel() for block in form.blocks) > LARGEST:
        return "the energy has too many weights for a page"
    start = model.starting_point(context, objective.start)
    blocks = [
        {
            "measurements": packed(block.measurements),
            "readout": packed(block.readout),
            "nonlinearity": block.nonlinearity.name,
        }
        for block in form.blocks
    ]
    terms = [
        {
            "constant": 0.0 if form.constant is None else float(form.constant[k]),
            "linear": packed(torch.zeros_like(start[k]) if form.linear is None else form.linear[k]),
            "quadratic": None if form.quadratic is None else packed(form.quadratic[k]),
            "biases": [packed(block.bias.expand(len(start), -1)[k]) for block in form.blocks],
            "tau": 0.0 if form.tau is None else float(form.tau[k]),
            "start": packed(start[k]),
        }
        for k in range(len(rows))
    ]
    return {"how": how, "blocks": blocks, "rows": terms}


def _rule_and_stopping(prediction: Prediction) -> dict[str, Any] | str:
    """Return the rule and the stopping of predictions in plain numbers, or why that cannot be."""
    objective, inference = prediction.objective, prediction.inference
    if type(objective) in (CrossEntropy, SquaredError):
        return {"rule": "none", "fixed": True}
    if type(objective) not in (Hinge, UnrolledLikelihood):
        return f"predictions are made by {type(objective).__name__}, which a page does not know"
    if type(inference) is not Descent or type(inference.rule) not in RULES:
        return "predictions are made by a solver that a page does not know"
    if inference.shortlist is not None:
        return "predictions infer a shortlist of labels, and a page all of them"
    stopping = inference.stopping
    fixed = isinstance(objective, UnrolledLikelihood)
    if not fixed and (stopping.scope != "example" or stopping.fraction < 1):
        return "predictions stop by batches, and a page has one row at a time"
    rule: Any = inference.rule
    return {
        "rule": type(rule).__name__,
        "settings": asdict(rule),
        "fixed": fixed,
        "stopping": asdict(stopping),
    }
