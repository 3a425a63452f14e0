"""What the convergence study measures on one trained model."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from spen.batch.context import Context
from spen.batch.rows import whole_batch
from spen.batch.splits import Split
from spen.bench.tolerance import PAPERS_RULE
from spen.decoding import apply_threshold, tune_threshold
from spen.domains import Domain
from spen.energies.base import Problem
from spen.energies.form import Form
from spen.estimators.base import LabelClassifier
from spen.estimators.fit import densified
from spen.inference.base import Inference, Solution
from spen.inference.bundle import MirrorBundle
from spen.inference.descent import Descent
from spen.inference.polished import Polished
from spen.inference.rule import Rule
from spen.inference.stopping import Stopping
from spen.metrics import example_f1, search_error_rate

Start = Literal["uniform", "local"]
RULES: dict[str, Rule] = {"paper": PAPERS_RULE, "default": MirrorBundle()}
STARTS: tuple[Start, ...] = ("uniform", "local")
SHARES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
TOLERANCES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
MOST_CONVERGED = 0.9
"""The share of a batch that must converge while the tolerance is varied, as in the paper."""

MOST_STEPS = 300
RESTARTS = 4
TEMPERATURES = (2.0, 1.0, 0.5, 0.25)
TIMES = 3
"""Runs whose median time counts."""

NEAR = 0.01
"""How near to 0 or 1 an output is spiked."""


@dataclass(frozen=True)
class Trained:
    """A trained classifier with rows that it has not seen, bound to its energy.

    Attributes:
        classifier: fitted.
        held_out: rows for tuning a threshold.
        test: rows for scores.
    """

    classifier: LabelClassifier
    held_out: Bound
    test: Bound

    @classmethod
    def of(cls, classifier: LabelClassifier, held_out: Split, test: Split) -> Trained:
        """Compute the features of both parts, once."""
        return cls(classifier, Bound.of(classifier, held_out), Bound.of(classifier, test))

    def measure(self, inference: Inference, start: Start) -> tuple[dict[str, Any], Solution]:
        """Return steps, convergence and F1 of an inference, and its solution of the test rows.

        The threshold is tuned on the held-out rows with the same inference: how far outputs
        have come on their way to 0 and 1 depends on when it stops.
        """
        tuned_on = self.held_out.solve(inference, start).y.numpy()
        threshold, _ = tune_threshold(self.held_out.truth.numpy(), tuned_on)
        found = self.test.solve(inference, start)
        f1 = example_f1(self.test.truth.numpy(), apply_threshold(found.y.numpy(), threshold))
        steps = found.steps.double()
        return {
            "f1": round(100 * f1, 4),
            "threshold": threshold,
            "mean_steps": float(steps.mean()),
            "most_steps": int(steps.max()),
            "converged": float(found.converged.double().mean()),
        }, found


@dataclass(frozen=True)
class Bound:
    """The energies of some rows, and their labels.

    Attributes:
        problem: the energies.
        local: (n, L) the output of the label-wise model.
        domain: where y lives.
        truth: (n, L).
    """

    problem: Problem
    local: Tensor
    domain: Domain
    truth: Tensor

    @classmethod
    @torch.no_grad()
    def of(cls, classifier: LabelClassifier, rows: Split) -> Bound:
        """Bind the energy that predictions minimise to rows."""
        model, objective = classifier.model_, classifier.plan_.prediction.objective
        scaled = classifier.predictor_.scale(rows.X)
        batch = whole_batch(model.arrays.rows(scaled, "X", model.features.n_inputs))
        context = Context(model.features.of(batch))
        problem = model.smoothed(context, objective.entropy)
        truth = torch.from_numpy(densified(rows.Y)).to(context.features)
        return cls(problem, model.starting_point(context, "local"), model.domain, truth)

    @torch.no_grad()
    def solve(self, inference: Inference, start: Start = "uniform") -> Solution:
        """Minimise the energies."""
        begin = None if start == "uniform" else self.local
        return inference.solve(self.problem, self.domain, begin)

    @torch.no_grad()
    def search_errors(self, found: Solution) -> float:
        """Return the share of rows whose truth has a lower energy than what was found."""
        return search_error_rate(self.problem.value(self.truth), found.energy)


def by_share(rule: str, share: float, tolerance: float) -> Descent:
    """Return a descent that stops its batch when a share of it has converged."""
    stopping = Stopping(MOST_STEPS, tolerance, scope="batch", fraction=share)
    return Descent(RULES[rule], stopping)


def spikes(y: Tensor) -> dict[str, float]:
    """Return which share of outputs is near 0 or 1, of all, and of those above one tenth.

    >>> spikes(torch.tensor([[0.0, 0.001, 0.5, 1.0]]))
    {'all': 0.75, 'likely': 0.5}
    """
    near = (y < NEAR) | (y > 1 - NEAR)
    likely = y > 0.1
    share = float((near & likely).sum() / likely.sum().clamp(min=1))
    return {"all": float(near.float().mean()), "likely": share}


def wasted(steps: np.ndarray, share: float) -> float:
    """Return the share of row-steps made on rows that had converged, with batch-wise stopping.

    The batch stops when a share of its rows has converged; each row needs its own ``steps``.

    >>> wasted(np.array([10, 10, 10, 40]), share=1.0)
    0.5625
    """
    ends = np.sort(steps)[int(np.ceil(share * len(steps))) - 1]
    return float(1 - np.minimum(steps, ends).sum() / (len(steps) * ends))


def searches(stopping: Stopping) -> dict[str, Callable[[Bound], Solution]]:
    """Return the ways to look for a lower energy, by what a table calls them.

    Args:
        stopping: of the model's predictions.
    """
    paper, default = Descent(PAPERS_RULE, stopping), Descent(stopping=stopping)
    tight = Descent(stopping=replace(stopping, max_steps=MOST_STEPS, objective_rtol=1e-6))
    return {
        "the paper's rule": lambda rows: rows.solve(paper),
        "the default rule": lambda rows: rows.solve(default),
        "… with a tolerance of 10⁻⁶": lambda rows: rows.solve(tight),
        f"… best of {1 + RESTARTS} starts": lambda rows: restarted(rows, default),
        "… annealed": lambda rows: annealed(rows, default),
        "the paper's rule, polished": lambda rows: rows.solve(Polished(paper)),
        "the default rule, polished": lambda rows: rows.solve(Polished(default)),
        f"… best of {1 + RESTARTS} starts, polished": lambda rows: restarted(
            rows, Polished(default)
        ),
    }


@torch.no_grad()
def restarted(rows: Bound, inference: Inference) -> Solution:
    """Solve from the centre and from random points, and keep the lowest energy of each row."""
    best = rows.solve(inference)
    generator = torch.Generator().manual_seed(0)
    for _ in range(RESTARTS):
        start = torch.rand(rows.truth.shape, generator=generator).to(rows.truth)
        other = inference.solve(rows.problem, rows.domain, start)
        lower = other.energy < best.energy
        best = replace(
            best,
            y=torch.where(lower[:, None], other.y, best.y),
            energy=torch.where(lower, other.energy, best.energy),
            steps=best.steps + other.steps,
        )
    return best


@torch.no_grad()
def annealed(rows: Bound, inference: Descent) -> Solution:
    """Solve with entropy of falling weight, each time from the answer before."""
    start, steps = None, 0
    for temperature in TEMPERATURES:
        tau = rows.problem.rows_like.new_full((len(rows.truth),), temperature)
        softened = rows.problem + Form(tau=tau, domain=rows.domain)
        found = inference.solve(softened, rows.domain, start)
        start, steps = found.y, steps + found.steps
    last = inference.solve(rows.problem, rows.domain, start)
    return replace(last, steps=last.steps + steps)


def searched(trained: Trained, search: Callable[[Bound], Solution]) -> dict[str, float]:
    """Return search errors, the F1 of rounding, and the median seconds of a search."""
    seconds = []
    found = search(trained.test)
    for _ in range(TIMES):
        began = time.perf_counter()
        found = search(trained.test)
        seconds.append(time.perf_counter() - began)
    labels = (found.y > 0.5).numpy()
    return {
        "search_errors": 100 * trained.test.search_errors(found),
        "f1": round(100 * example_f1(trained.test.truth.numpy(), labels), 4),
        "energy": float(found.energy.double().mean()),
        "seconds": statistics.median(seconds),
    }
