"""A training epoch of the hinge: loss-augmented inference in the kernel, and step by step."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from spen.batch.splits import Split
from spen.bench.effort import Effort
from spen.bench.subject import Backend, Subject
from spen.bench.timing import FEWEST_ROUNDS, Timings
from spen.inference.descent import Descent
from spen.objectives.hinge import Hinge
from spen.training.loop import train
from spen.training.stage import Stage

BACKENDS: tuple[Backend, ...] = ("fused", "general")


def measure_hinge(subject: Subject, effort: Effort) -> dict[str, Any]:
    """Time one epoch of each stage that trains with the hinge, by the default rule.

    Every epoch begins with the weights of the trained model. What is done once for a stage,
    such as computing features that do not learn, is not counted.
    """
    rows = training_rows(subject)
    found = {}
    for stage in hinge_stages(subject):
        few = rows.rows(slice(0, 2 * stage.batch_size))
        seconds: dict[str, list[float]] = {backend: [] for backend in BACKENDS}
        for backend in BACKENDS:
            epoch_seconds(subject, stage, few, backend)
        for _ in range(min(FEWEST_ROUNDS, effort.rounds)):
            for backend in BACKENDS:
                seconds[backend].append(epoch_seconds(subject, stage, rows, backend))
        timings = Timings(seconds)
        found[stage.name] = {
            "rows": len(rows),
            "milliseconds": timings.medians(),
            "general_over_fused": timings.ratio("general", "fused"),
        }
    return found


def training_rows(subject: Subject) -> Split:
    """Return the rows of a training epoch as the model takes them."""
    learned = subject.learned
    scaled = subject.classifier.predictor_.scale(learned.X)
    return Split(scaled, learned.Y, learned.weight)


def hinge_stages(subject: Subject) -> list[Stage]:
    """Return the stages of the model's training that use the hinge."""
    stages = subject.classifier.plan_.stages
    return [stage for stage in stages if isinstance(stage.objective, Hinge)]


def epoch_seconds(subject: Subject, stage: Stage, rows: Split, backend: Backend) -> float:
    """Train a copy of the model for one epoch of a stage, and return the epoch's seconds."""
    inference = stage.inference
    stopping = inference.stopping if isinstance(inference, Descent) else subject.stopping
    solver = Descent(stopping=stopping, backend=backend)
    one = replace(stage, inference=solver, epochs=1, patience=None)
    model = copy.deepcopy(subject.model)
    return train(model, [one], rows, seed=0).epochs[-1].seconds
