"""Inference as a page can repeat it: the canonical form of some rows, and the rule."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spen.energies.form import Form
from spen.inference.base import Solution
from spen.inference.bundle import MirrorBundle
from spen.inference.descent import Descent
from spen.inference.rules import MeanField, MirrorDescent, ProjectedGradient
from spen.objectives.hinge import Hinge
from spen.objectives.likelihood import CrossEntropy
from spen.objectives.squared import SquaredError
from spen.objectives.unrolled import UnrolledLikelihood
from spen.report.facts.arrays import packed
from spen.report.subject import Subject

RULES = (MirrorBundle, MirrorDescent, ProjectedGradient, MeanField)
LARGEST = 400_000
"""Weights of an energy that a page carries: two megabytes of text."""


def page_inference(subject: Subject, rows: np.ndarray) -> dict[str, Any] | str:
    """Return what a page needs to infer the labels of some rows, or why it cannot.

    The result has ``how`` (rule and stopping), the shared ``blocks``, and ``rows``: the terms
    of each row and where its inference starts. Arrays are packed (see ``packed``).
    """
    if not subject.takes_sets:
        return "a page infers sets of labels, and this model predicts classes"
    how = _how(subject)
    if isinstance(how, str):
        return how
    form, start = _posed(subject, rows)
    if form is None:
        return "the energy has no canonical form"
    if sum(block.measurements.numel() for block in form.blocks) > LARGEST:
        return "the energy has too many weights for a page"
    size, count = subject.model.domain.size, len(rows)
    blocks = [
        {
            "measurements": packed(block.measurements),
            "readout": packed(block.readout),
            "nonlinearity": block.nonlinearity.name,
        }
        for block in form.blocks
    ]
    terms = []
    for k in range(count):
        terms.append(
            {
                "constant": 0.0 if form.constant is None else float(form.constant[k]),
                "linear": packed(torch.zeros(size) if form.linear is None else form.linear[k]),
                "quadratic": None if form.quadratic is None else packed(form.quadratic[k]),
                "biases": [
                    packed(block.bias if block.bias.ndim == 1 else block.bias[k])
                    for block in form.blocks
                ],
                "tau": 0.0 if form.tau is None else float(form.tau[k]),
                "start": packed(start[k]),
            }
        )
    return {"how": how, "blocks": blocks, "rows": terms}


def _how(subject: Subject) -> dict[str, Any] | str:
    """Return the rule and the stopping of predictions in plain numbers, or why that cannot be."""
    objective, inference = subject.prediction.objective, subject.prediction.inference
    if type(objective) in (CrossEntropy, SquaredError):
        return {"rule": "none", "fixed": True}
    if type(objective) not in (Hinge, UnrolledLikelihood):
        return f"predictions are made by {type(objective).__name__}, which a page does not know"
    if type(inference) is not Descent or type(inference.rule) not in RULES:
        return "predictions are made by a solver that a page does not know"
    stopping = inference.stopping
    fixed = isinstance(objective, UnrolledLikelihood)
    if not fixed and (stopping.scope != "example" or stopping.fraction < 1):
        return "predictions stop by batches, and a page has one row at a time"
    rule: Any = inference.rule
    return {
        "rule": type(rule).__name__,
        "settings": {field.name: getattr(rule, field.name) for field in fields(rule)},
        "fixed": fixed,
        "stopping": {
            "maxSteps": stopping.max_steps,
            "objectiveRtol": stopping.objective_rtol,
            "iterateAtol": stopping.iterate_atol,
        },
    }


@torch.no_grad()
def _posed(subject: Subject, rows: np.ndarray) -> tuple[Form | None, Tensor]:
    """Return what the rows' predictions minimise, and where they start."""
    model, objective = subject.model, subject.prediction.objective
    found: list[tuple[Form | None, Tensor]] = []

    def solve(context: Any) -> Solution:
        problem, start = model.pose(context, objective.start, objective.entropy)
        if start is None:
            start = model.domain.uniform(context.features)
        some = torch.arange(len(rows), device=start.device)
        form = problem.form
        found.append((None if form is None else form.select(some), start[some]))
        zeros = start.new_zeros(len(start))
        return Solution(start, zeros, zeros.long(), zeros.long())

    model.solve_with(solve, subject.scaled[rows])
    return found[0]
