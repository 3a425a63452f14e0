"""Measurements of a bench: predictions, rules, training epochs, growth with labels and rows."""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

import spen
from spen import Descent, Problem, Solution, Split, Stage, Stopping, train
from spen.batch.arrays import densified
from spen.estimators.decoding import apply_threshold, tune_threshold
from spen_paper.bench.model import Backend, RuleName, TimedModel, batch_of
from spen_paper.bench.timing import Effort, Timings, exponent, free_bytes, interleave, timed

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
BACKENDS: tuple[Backend, ...] = ("fused", "general")
FEATURES, MEASUREMENTS = 150, 16
STEPS = {"fused": 20, "general": 5, "crf": 3}
"""Steps that are timed: exactly so many, since the tolerances are zero."""

COPIES = 6
"""Tables of pairs that a CRF needs at a time, with what is made on the way."""

QUICK, REPEATS = 1.0, 5
"""A size that takes fewer seconds is timed so often."""


def backends_of(fused: bool) -> tuple[Backend, ...]:
    """Return the paths there are, with a kernel or without."""
    return BACKENDS if fused else ("general",)


def prediction_calls(subject: TimedModel) -> dict[str, Callable[[], object]]:
    """Return what is timed, by its name in ``TITLES``; without a kernel less of it."""
    fused = subject.why_not_fused() is None
    calls: dict[str, Callable[[], object]] = {"mlp_forward": subject.forward}
    for rule, name in SUFFIXES.items():
        for backend in backends_of(fused):
            descent = subject.descent(rule, backend)
            calls[f"predict_{backend}{name}"] = partial(subject.predict, descent)
            calls[f"solve_{backend}{name}"] = partial(subject.solve, descent)
        calls[f"autograd_loop{name}"] = partial(subject.loop, subject.descent(rule, "general"))
    calls["predict_classifier"] = partial(subject.default_classifier.predict, subject.timed.X)
    return {name: calls[name] for name in TITLES if name in calls}


def measure_prediction(subject: TimedModel, effort: Effort) -> dict[str, Any]:
    """Time predictions in turns; return milliseconds and ratios."""
    calls = prediction_calls(subject)
    timings = interleave(calls, subject.device, rounds=effort.rounds, seconds=effort.seconds)
    pairs = {
        "predict_general_over_mlp": ("predict_general", "mlp_forward"),
        "predict_fused_over_mlp": ("predict_fused", "mlp_forward"),
        "predict_fused_paper_over_mlp": ("predict_fused_paper", "mlp_forward"),
        "general_over_fused": ("solve_general", "solve_fused"),
        "autograd_loop_over_fused": ("autograd_loop", "solve_fused"),
        "autograd_loop_over_fused_paper": ("autograd_loop_paper", "solve_fused_paper"),
    }
    ratios = {n: timings.ratio(*pair) for n, pair in pairs.items() if set(pair) <= set(calls)}
    return {
        "rows": len(subject.timed),
        "rounds": len(timings.seconds["mlp_forward"]),
        "milliseconds": timings.medians(),
        "ratios": ratios,
    }


def measure_agreement(subject: TimedModel) -> dict[str, dict[str, float]]:
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
        general, loop = subject.solve(descent), subject.loop(descent)
        for title, other in (("step by step", general), ("autograd loop", loop)):
            found[f"{title}, {rule}"] = agreement(fused, other, general.converged)
    return found


def agreement(fused: Solution, other: Solution, converged: torch.Tensor) -> dict[str, float]:
    """Return how well two solutions agree on rows that both ended by a tolerance.

    >>> y, energy = torch.tensor([[0.9], [0.2]]), torch.tensor([-1.0, -2.0])
    >>> ones = torch.ones(2, dtype=torch.int64)
    >>> one = Solution(y, energy, ones, ones)
    >>> agreement(one, replace(one, y=1 - y), ones > 0)
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


def compare_rules(subject: TimedModel) -> dict[str, Any]:
    """Solve rows that the model has not seen by the paper's rule and by the default one.

    The default rule stops where its energy is no higher than the paper's (see ``tolerance``);
    beside that, it is shown with the very tolerance of the paper's rule. Without such rows,
    the timed ones are solved, and there is no F1.
    """
    judged = subject.judged
    rows = subject.timed if judged is None else judged
    batch = batch_of(subject.classifier, rows)
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
    return 100 * spen.example_f1(target, labels)


def measure_hinge(subject: TimedModel, effort: Effort) -> dict[str, Any]:
    """Time one epoch of each stage that trains with the hinge, by the default rule.

    Every epoch begins with the weights of the trained model. What is done once for a stage,
    such as computing features that do not learn, is not counted.
    """
    learned, found = subject.learned, {}
    scaled = subject.classifier.predictor_.scale(learned.X)
    rows = Split(scaled, learned.Y, learned.weight)
    for stage in subject.classifier.plan_.stages:
        if not isinstance(stage.objective, spen.Hinge):
            continue
        few = rows.rows(slice(0, 2 * stage.batch_size))
        seconds: dict[str, list[float]] = {backend: [] for backend in BACKENDS}
        for backend in BACKENDS:
            epoch_seconds(subject, stage, few, backend)
        for _ in range(effort.few_rounds):
            for backend in BACKENDS:
                seconds[backend].append(epoch_seconds(subject, stage, rows, backend))
        timings = Timings(seconds)
        found[stage.name] = {
            "rows": len(rows),
            "milliseconds": timings.medians(),
            "general_over_fused": timings.ratio("general", "fused"),
        }
    return found


def epoch_seconds(subject: TimedModel, stage: Stage, rows: Split, backend: Backend) -> float:
    """Train a copy of the model for one epoch of a stage, and return the epoch's seconds."""
    inference = stage.inference
    stopping = inference.stopping if isinstance(inference, Descent) else subject.stopping
    solver = Descent(stopping=stopping, backend=backend)
    one = replace(stage, inference=solver, epochs=1, patience=None)
    model = copy.deepcopy(subject.model)
    return train(model, [one], rows, seed=0).epochs[-1].seconds


def measure_labels(effort: Effort, device: torch.device, fused: bool) -> dict[str, Any]:
    """Time a step, and count parameters, of energies over more and more labels.

    Parameters are those of the label energy, and of the CRF's pairs; the local energy, which
    both have, is left out.

    Args:
        effort: the sizes.
        device: where to compute.
        fused: whether there is a kernel.
    """
    calls, parameters = label_calls(effort, device, fused)
    timings = interleave(calls, device, rounds=effort.few_rounds, seconds=effort.seconds)
    kinds = [*backends_of(fused), "crf"]
    result: dict[str, Any] = {
        "rows": effort.label_rows,
        "measurements": MEASUREMENTS,
        "step_time_of": kinds[0],
    }
    for kind in kinds:
        sizes = [n for n in effort.labels if f"{kind} {n}" in calls]
        each = 1e3 / effort.label_rows / STEPS[kind]
        times = [each * timings.milliseconds(f"{kind} {n}") / _burst(effort, n) for n in sizes]
        counts = [parameters["crf" if kind == "crf" else "spen"][n] for n in sizes]
        result[kind] = {"labels": sizes, "step_us_per_row": times, "parameters": counts}
        if len(sizes) > 1:
            result[kind] |= {
                "step_time_exponent": exponent(sizes, times),
                "parameters_exponent": exponent(sizes, counts),
            }
    return result


@torch.no_grad()
def label_calls(
    effort: Effort, device: torch.device, fused: bool
) -> tuple[dict[str, Callable[[], object]], dict[str, dict[int, int]]]:
    """Return the descents to time, by kind and number of labels, and parameters by both."""
    calls: dict[str, Callable[[], object]] = {}
    parameters: dict[str, dict[int, int]] = {"spen": {}, "crf": {}}
    generator = torch.Generator(device).manual_seed(0)
    shape = (effort.label_rows, FEATURES)
    context = spen.Context(torch.randn(shape, generator=generator, device=device))

    def add(kind: str, n: int, energy: spen.Energy, backends: tuple[str, ...]) -> None:
        parameters[kind][n] = sum(p.numel() for p in energy.parameters())
        problem = (spen.LocalEnergy(FEATURES, n) + energy).to(device).bind(context)
        for backend in backends:
            title = "crf" if kind == "crf" else backend
            stopping = Stopping(STEPS[title], objective_rtol=0, iterate_atol=0)
            descent = replace(Descent(stopping=stopping), backend=backend)
            calls[f"{title} {n}"] = partial(_descend, descent, problem, n, _burst(effort, n))

    for n in effort.labels:
        add("spen", n, spen.LabelEnergy(n, MEASUREMENTS, "relu"), backends_of(fused))
        if n <= effort.largest_table and COPIES * 4 * n * n < free_bytes(device) / 2:
            add("crf", n, spen.PairwiseEnergy(n), ("general",))
    return calls, parameters


def _descend(descent: Descent, problem: Problem, n: int, times: int) -> None:
    for _ in range(times):
        descent.solve(problem, spen.UnitBox(n))


def _burst(effort: Effort, n: int) -> int:
    return max(1, effort.burst // n)


def measure_rows(subject: TimedModel, effort: Effort) -> dict[str, Any]:
    """Time inference alone, by the default rule, on more and more rows.

    The timed rows are taken over and over again. More than ``effort.chunk`` rows are solved
    chunk after chunk; sizes that would take too long are left out.
    """
    descent, last = subject.descent(), 0.0
    sizes: list[int] = []
    times: list[float] = []
    for n in effort.rows:
        if sizes and last * n / sizes[-1] > effort.longest:
            break
        run = row_call(subject, descent, n, effort.chunk)
        last = timed(run, subject.device)
        if last < QUICK:
            last = statistics.median(timed(run, subject.device) for _ in range(REPEATS))
        sizes.append(n)
        times.append(1e3 * last)
    steps = float(subject.solve(descent).steps.double().mean())
    return {
        "rows": sizes,
        "milliseconds": times,
        "chunk": effort.chunk,
        "steps": steps,
        "ns_per_row_and_step": 1e6 * times[-1] / sizes[-1] / steps,
        "million": million(sizes, times, effort.chunk),
    }


def million(sizes: list[int], times: list[float], chunk: int) -> dict[str, Any]:
    """Return the time of a million rows, and how it is known.

    >>> million([1000, 10_000], [5.0, 40.0], 65_536)
    {'milliseconds': 4000.0, 'how': 'extrapolated from 10,000 rows'}
    """
    if sizes[-1] < 1_000_000:
        how = f"extrapolated from {sizes[-1]:,} rows"
    elif sizes[-1] > chunk:
        how = f"measured in chunks of {chunk:,} rows"
    else:
        how = "measured at once"
    return {"milliseconds": times[-1] * 1_000_000 / sizes[-1], "how": how}


def measure_single_rows(subject: TimedModel, effort: Effort) -> dict[str, Any]:
    """Time ``SPENClassifier.predict`` of one row after the other, dense and sparse."""
    classifier = subject.default_classifier
    kinds = single_rows(subject, effort.single_rows)
    found: dict[str, list[float]] = {kind: [] for kind in kinds}
    for i in range(effort.single_rows):
        for kind, some in kinds.items():
            classifier.predict(some[i])
            seconds = timed(lambda row=some[i]: classifier.predict(row), subject.device)
            found[kind].append(1e3 * seconds)
    return {
        "rows": effort.single_rows,
        "milliseconds": {kind: statistics.median(times) for kind, times in found.items()},
    }


def row_call(subject: TimedModel, descent: Descent, n: int, chunk: int) -> Callable[[], None]:
    """Return a function that solves n rows, ``chunk`` at a time at most; it has run once."""
    count = math.ceil(n / chunk)
    problem, start = subject.bound
    rows = torch.arange(math.ceil(n / count), device=subject.device) % len(subject.timed)
    problem, start = problem.select(rows), None if start is None else start[rows]

    @torch.no_grad()
    def run(times: int = count) -> None:
        for _ in range(times):
            descent.solve(problem, subject.model.domain, start)

    run(1)
    return run


def single_rows(subject: TimedModel, count: int) -> dict[str, list[Any]]:
    """Return some of the timed rows, each by itself, as CSR matrices and as arrays."""
    picked = np.linspace(0, len(subject.timed) - 1, count).astype(int)
    sparse_rows = [sparse.csr_matrix(subject.timed.X[[i]]) for i in picked]
    return {"csr": sparse_rows, "ndarray": [row.toarray() for row in sparse_rows]}
