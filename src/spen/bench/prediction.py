"""Predictions: fused, step by step, and by hand, beside the feed-forward network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from spen.bench.autograd import LoopResult, autograd_loop
from spen.bench.effort import Effort
from spen.bench.subject import RuleName, Subject
from spen.bench.timing import interleave
from spen.inference.base import Solution
from spen.inference.descent import Descent

SAME_ENERGY = 1e-4
"""Energies of two paths that are closer than this, relatively, count as equal."""

SUFFIXES: dict[RuleName, str] = {"default": "", "paper": "_paper"}
"""How the names of calls tell the rules apart."""

TITLES = {
    "mlp_forward": "MLP, forward pass",
    "predict_fused": "SPEN, whole prediction, fused",
    "predict_fused_paper": "… with the paper's rule",
    "predict_general": "SPEN, whole prediction, step by step",
    "predict_classifier": "SPENClassifier.predict, from X to labels",
    "solve_fused": "inference alone, fused",
    "solve_fused_paper": "… with the paper's rule",
    "solve_general": "inference alone, step by step",
    "autograd_loop": "inference alone, autograd loop",
    "autograd_loop_paper": "… with the paper's rule",
}


def prediction_calls(subject: Subject) -> dict[str, Callable[[], object]]:
    """Return what is timed, by its name in ``TITLES``; without a kernel less of it."""
    fused = subject.why_not_fused() is None
    calls: dict[str, Callable[[], object]] = {"mlp_forward": subject.forward}
    for rule, name in SUFFIXES.items():
        kernel, loop = subject.descent(rule, "fused"), subject.descent(rule, "general")
        if fused:
            calls[f"predict_fused{name}"] = lambda d=kernel: subject.predict(d)
            calls[f"solve_fused{name}"] = lambda d=kernel: subject.solve(d)
        calls[f"autograd_loop{name}"] = lambda d=loop: loop_of(subject, d)
    by_steps = subject.descent("default", "general")
    calls["predict_general"] = lambda: subject.predict(by_steps)
    calls["solve_general"] = lambda: subject.solve(by_steps)
    calls["predict_classifier"] = lambda: subject.default_classifier.predict(subject.timed.X)
    return {name: calls[name] for name in TITLES if name in calls}


def measure_prediction(subject: Subject, effort: Effort) -> dict[str, Any]:
    """Time predictions in turns; return milliseconds and ratios."""
    calls = prediction_calls(subject)
    timings = interleave(calls, subject.device, rounds=effort.rounds, seconds=effort.seconds)
    ratios = {"predict_general_over_mlp": timings.ratio("predict_general", "mlp_forward")}
    if "solve_fused" in calls:
        ratios |= {
            "predict_fused_over_mlp": timings.ratio("predict_fused", "mlp_forward"),
            "predict_fused_paper_over_mlp": timings.ratio("predict_fused_paper", "mlp_forward"),
            "general_over_fused": timings.ratio("solve_general", "solve_fused"),
            "autograd_loop_over_fused": timings.ratio("autograd_loop", "solve_fused"),
            "autograd_loop_over_fused_paper": timings.ratio(
                "autograd_loop_paper", "solve_fused_paper"
            ),
        }
    return {
        "rows": len(subject.timed),
        "rounds": len(timings.seconds["mlp_forward"]),
        "milliseconds": timings.medians(),
        "ratios": ratios,
    }


def measure_agreement(subject: Subject) -> dict[str, dict[str, float]]:
    """Compare the kernel's answers with those of the other paths, on rows that converged."""
    solvers = {
        "default rule": subject.descent("default", "general"),
        "default rule, the paper's tolerance": Descent(
            stopping=subject.stopping, backend="general"
        ),
        "paper's rule": subject.descent("paper", "general"),
    }
    found = {}
    for rule, descent in solvers.items():
        fused = subject.solve(replace(descent, backend="fused"))
        general, loop = subject.solve(descent), loop_of(subject, descent)
        for title, other in (("step by step", general), ("autograd loop", loop)):
            found[f"{title}, {rule}"] = agreement(fused, other, general.converged)
    return found


def agreement(
    fused: Solution, other: Solution | LoopResult, converged: torch.Tensor
) -> dict[str, float]:
    """Return how well two solutions agree on rows that both ended by a tolerance.

    >>> y, energy = torch.tensor([[0.9], [0.2]]), torch.tensor([-1.0, -2.0])
    >>> ones = torch.ones(2, dtype=torch.int64)
    >>> one = Solution(y, energy, ones, ones)
    >>> agreement(one, LoopResult(1 - y, energy, ones), ones > 0)
    {'rows': 2, 'same_energy': 1.0, 'same_labels': 0.0, 'largest_gap': 0.0}
    """
    rows = fused.converged & converged
    if not rows.any():
        return {"rows": 0}
    mine, theirs = fused.energy[rows], other.energy[rows]
    gap = (mine - theirs).abs() / theirs.abs().clamp_min(torch.finfo(theirs.dtype).tiny)
    labels = (fused.y[rows] > 0.5) == (other.y[rows] > 0.5)
    return {
        "rows": int(rows.sum()),
        "same_energy": float((gap <= SAME_ENERGY).double().mean()),
        "same_labels": float(labels.double().mean()),
        "largest_gap": float(gap.max()),
    }


def loop_of(subject: Subject, descent: Descent) -> LoopResult:
    """Minimise the energies of the timed rows by the autograd loop."""
    problem, start = subject.bound
    domain = subject.model.domain
    if start is None:
        start = domain.uniform(problem.rows_like)
    return autograd_loop(problem, domain, descent.rule, descent.stopping, start)
