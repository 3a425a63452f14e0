"""The default rule beside the paper's: steps, energies, F1."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from spen.bench.prediction import SAME_ENERGY
from spen.bench.subject import Subject
from spen.decoding import apply_threshold, tune_threshold
from spen.estimators.fit import densified
from spen.inference.base import Solution
from spen.inference.descent import Descent
from spen.metrics import example_f1


def compare_rules(subject: Subject) -> dict[str, Any]:
    """Solve rows that the model has not seen by the paper's rule and by the default one.

    The default rule stops where its energy is no higher than the paper's (see ``tolerance``);
    beside that, it is shown with the very tolerance of the paper's rule. Without such rows,
    the timed ones are solved, and there is no F1.
    """
    judged = subject.judged
    rows = subject.timed if judged is None else judged
    batch = subject.batch_of(rows)
    solvers = {
        "paper": subject.descent("paper"),
        "default": subject.descent(),
        "default_same_tolerance": Descent(stopping=subject.stopping),
    }
    found = {name: subject.predict(solver, batch) for name, solver in solvers.items()}
    result: dict[str, Any] = {"rows": len(rows)}
    for name, solution in found.items():
        steps = solution.steps.double()
        result[name] = {
            "rule": str(solvers[name].rule),
            "tolerance": solvers[name].stopping.objective_rtol,
            "steps": float(steps.mean()),
            "most_steps": int(steps.max()),
            "converged": float(solution.converged.double().mean()),
            "energy": float(solution.energy.double().mean()),
            "energies": compare_energies(solution.energy, found["paper"].energy),
            "f1": None if judged is None else f1_of(judged.Y, solution),
        }
    result["steps_paper_over_default"] = result["paper"]["steps"] / result["default"]["steps"]
    return result


def compare_energies(ours: Tensor, theirs: Tensor) -> dict[str, float]:
    """Return the share of rows where the first energy is lower, equal and higher.

    >>> compare_energies(torch.tensor([-2.0, -1.0]), torch.tensor([-1.0, -1.00001]))
    {'lower': 0.5, 'equal': 0.5, 'higher': 0.0}
    """
    room = SAME_ENERGY * torch.maximum(ours.abs(), theirs.abs())
    shares = {"lower": ours < theirs - room, "higher": ours > theirs + room}
    lower, higher = (float(share.double().mean()) for share in shares.values())
    return {"lower": lower, "equal": 1 - lower - higher, "higher": higher}


def f1_of(truth: Any, solution: Solution) -> float:
    """Return the F1 of soft labels in percent, under a threshold of their own.

    Each half of the rows takes the threshold that is best on the other half, so that no row
    has a say in its own.
    """
    target, soft = densified(truth), solution.y.cpu().numpy()
    half = np.arange(len(soft)) % 2 == 0
    labels = np.empty(soft.shape, np.int8)
    for part in (half, ~half):
        other = ~part if (~part).any() else part
        labels[part] = apply_threshold(soft[part], tune_threshold(target[other], soft[other])[0])
    return 100 * example_f1(target, labels)
