"""Rows to look at closely: which, what inference does with them, and what labels answer."""

from __future__ import annotations

from typing import Any

import numpy as np

from spen.report.facts.arrays import rounded
from spen.report.facts.inference import page_inference
from spen.report.subject import Subject
from spen.runs import soft_labels

OF_EACH_KIND = 4
SHOWN_LABELS = 16
FRAMES = 40
"""Steps of a trace that a page keeps, where it cannot repeat them itself."""


def example_facts(subject: Subject) -> dict[str, Any]:
    """Return some rows with the start, the end and the energies of their inference.

    Where the page can run inference itself, ``inference`` has what it needs. Otherwise
    ``why_not`` says why, and each row has its ``trace`` and the ``answers`` of the shown
    labels when one of them is set by hand.
    """
    chosen = choose_rows(subject)
    rows = np.array([row for row, _ in chosen], dtype=int)
    solution = subject.traced(rows)
    end = solution.y.cpu().numpy()
    if solution.trace is None:
        ys, energies = end[None], solution.energy.cpu().numpy()[None]
    else:
        ys, energies = solution.trace.y.cpu().numpy(), solution.trace.energy.cpu().numpy()
    steps = solution.steps.cpu().numpy()
    found = page_inference(subject, rows)
    examples = []
    for k, (row, why) in enumerate(chosen):
        truth = subject.truth[row]
        likely = end[k] if subject.label_wise is None else subject.label_wise[row]
        shown = shown_labels(truth, likely, end[k])
        last = int(steps[k])
        example: dict[str, Any] = {
            "row": int(subject.judged.numbers[row]) + 1,
            "why": why,
            "truth": np.flatnonzero(truth == 1).tolist(),
            "missing": np.flatnonzero(np.isnan(truth)).tolist(),
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
    calibration = subject.classifier._calibration
    tuned = subject.classifier.tuned_
    return facts | {
        "inference": found,
        "why_not": None,
        "calibration": {"scale": calibration.scale, "shift": calibration.shift.tolist()},
        "decoding": {
            "name": subject.classifier.plan_.decoding,
            "tuned": tuned.tolist() if isinstance(tuned, np.ndarray) else tuned,
        },
    }


def choose_rows(subject: Subject) -> list[tuple[int, str]]:
    """Return rows with the reason why each is shown: moved by the energy, typical, hard."""
    scores = subject.row_scores
    usable = np.flatnonzero(~np.isnan(scores))
    chosen: dict[int, str] = {}

    def add(order: np.ndarray, why: str) -> None:
        fresh = [int(row) for row in order if int(row) not in chosen][:OF_EACH_KIND]
        chosen.update(dict.fromkeys(fresh, why))

    if subject.label_wise is not None:
        moved = np.abs(subject.solution.y.cpu().numpy() - subject.label_wise)[usable].sum(1)
        if moved.max(initial=0.0) > 0.01:
            add(usable[np.argsort(-moved, kind="stable")], "much changed by the energy")
    spread = np.linspace(0.25, 0.75, OF_EACH_KIND)
    by_score = usable[np.argsort(scores[usable], kind="stable")]
    if len(by_score):
        add(by_score[(spread * (len(by_score) - 1)).astype(int)], "typical")
    add(by_score, "hard")
    return list(chosen.items())


def shown_labels(truth: np.ndarray, label_wise: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Return the labels worth showing: all of few, else the true ones and the most likely.

    >>> shown_labels(np.eye(30)[3], np.full(30, 0.1), np.eye(30)[9])[:2].tolist()
    [3, 9]
    """
    if len(truth) <= SHOWN_LABELS + 4:
        return np.arange(len(truth))
    likely = np.maximum(end, label_wise)
    return np.argsort(-(10 * (truth == 1) + likely), kind="stable")[:SHOWN_LABELS]


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
    inputs = subject.scaled[rows[[k for k, _, _ in settings]]]
    solution = soft_labels(subject.model, subject.prediction, inputs, known)
    ys, energies = solution.y.cpu().numpy(), solution.energy.cpu().numpy()
    for number, (k, label, value) in enumerate(settings):
        example = examples[k]
        example.setdefault("answers", {})[f"{label}={value}"] = {
            "y": rounded(ys[number, example["shown"]]),
            "energy": round(float(energies[number]), 4),
        }
