"""The convergence of inference: the paper's figures on it, and how search errors go away."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

import spen
from spen import Context, Descent, Inference, MirrorBundle, Polished, Solution, Split, Stopping
from spen.batch.arrays import densified
from spen.cli.show import say, text_table
from spen.estimators.base import LabelClassifier
from spen.estimators.decoding import apply_threshold, tune_threshold
from spen.estimators.plan import HELD_OUT
from spen.model import usable_device
from spen_paper.bench.model import PAPERS_RULE, batch_of, paper_model
from spen_paper.figures import draw, mean_and_deviation
from spen_paper.fits import describe_plan
from spen_paper.records import Record
from spen_paper.studies.study import Study

METHOD = "spen-paper"
Start = Literal["uniform", "local"]
Series = tuple[str, Start]
"""A rule, and where it starts."""

RULES: dict[str, spen.Rule] = {"paper": PAPERS_RULE, "default": MirrorBundle()}
STARTS: tuple[Start, ...] = ("uniform", "local")
SHARES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
TOLERANCES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
MOST_CONVERGED = 0.9
"""The share of a batch that must converge while the tolerance is varied, as in the paper."""

REQUIRED: tuple[Literal["either", "both"], ...] = ("either", "both")
"""Of both tolerances, in the comparison of rules under the same stop test."""

HIGHER = 1e-4
"""The share of an energy by which another must be above it to be higher."""

MOST_STEPS = 300
RESTARTS = 4
TEMPERATURES = (2.0, 1.0, 0.5, 0.25)
TIMES = 3
"""Runs whose median time counts."""

NEAR = 0.01
"""How near to 0 or 1 an output is spiked."""

RULE_WORDS = {"paper": "the paper's rule", "default": "the default rule"}
START_WORDS = {"uniform": "from the centre", "local": "from the MLP's output"}
STATEMENTS = {
    "histogram": "paper: most examples converge at around 20 steps, the slowest at 41; starting at "
    "the MLP's output saves about 5",
    "share": "paper: a 3-fold speed-up at nearly no decrease in accuracy",
    "tolerance": "paper: a 3-fold speed-up at little degradation",
    "spikes": "paper: predictions are often spiked at either 0 or 1",
    "search": "paper: a search error about 8 % of the time on Bibtex",
}

Cell = dict[str, list[Any]]
"""Figures of one setting by their names, one value a seed."""


def convergence(dataset: str, seeds: int, device: str, out: Path) -> None:
    """Study how the paper's model converges, and how often it misses a lower energy.

    Models are kept in OUT, and figures in OUT/records.jsonl; what is there is not made again.
    """
    study = Study.open("convergence", dataset, seeds, device, out)
    made = [study.classifier(METHOD, seed) for seed in range(seeds)]
    plans = [describe_plan(each, study.data) for each in made]
    usual: Stopping = made[0].get_params()["inference"].stopping

    @cache
    def trained(seed: int) -> tuple[BoundRows, BoundRows]:
        """Train a model, when a figure is first asked for that no record has."""
        path = study.records.folder / f"{study.data.name}-{seed}.spen"
        chosen = usable_device(device)
        paper_model(study.data, path, chosen, settings=study.data.name, seed=seed)
        _, held_out = spen.hold_out(study.data.train, HELD_OUT, seed=0)
        # Measured on the CPU wherever it was trained: the figures are steps, not times.
        fitted = spen.load(path, "cpu")
        return BoundRows.of(fitted, held_out), BoundRows.of(fitted, study.data.test)

    def cell(settings: Record, measure: Callable[[BoundRows, BoundRows], Record]) -> Cell:
        """Return the figures of one setting; measure those that are missing."""
        found = []
        for seed, plan in enumerate(plans):
            identity = study.identity(METHOD, seed, study.data, plan | settings, None)
            run = partial(lambda seed: {"metrics": measure(*trained(seed))}, seed)
            found.append(study.records.make(identity, run)["metrics"])
        return {name: [metrics[name] for metrics in found] for name in found[0]}

    def curve(series: Series, name: str, values: tuple[float, ...]) -> list[Cell]:
        """Return the figures of each share that must converge, or of each tolerance."""
        cells = []
        for value in values:
            stops = {"share": MOST_CONVERGED, "tolerance": usual.objective_rtol, name: value}
            inference = by_share(series[0], **stops)
            settings = {"figure": name, "rule": series[0], "start": series[1], name: value}
            cells.append(cell(settings, partial(tuned, inference=inference, start=series[1])))
        return cells

    all_series: list[Series] = [(rule, start) for start in STARTS for rule in RULES]
    histograms = {}
    for rule, start in all_series:
        descent = Descent(RULES[rule], Stopping(MOST_STEPS, usual.objective_rtol))
        settings = {"figure": "histogram", "rule": rule, "start": start}
        measure = partial(histogram, inference=descent, start=start)
        histograms[rule, start] = cell(settings, measure)
    shares = {series: curve(series, "share", SHARES) for series in all_series}
    tolerances = {series: curve(series, "tolerance", TOLERANCES) for series in all_series}
    crossing = {
        (tolerance, require): {
            rule: cell(
                {"figure": "cross", "rule": rule, "require": require, "tolerance": tolerance},
                partial(crossed, rule=rule, stopping=stop_test(usual, require, tolerance)),
            )
            for rule in RULES
        }
        for tolerance in TOLERANCES
        for require in REQUIRED
    }
    found = {
        words: cell({"search": words}, partial(searched, search=search))
        for words, search in searches(usual).items()
    }
    say(_histogram_table(histograms, usual.objective_rtol))
    say(_curve_table("share of the batch that must converge", SHARES, shares, "share", "{:.0%}"))
    say(_curve_table("tolerance, at 90 % converged", TOLERANCES, tolerances, "tolerance", "{:.0e}"))
    say(_cross_table(crossing, usual))
    say(_search_table(found))
    study.tell_protocol()
    draw(lambda plots: _pictures(plots, study, histograms, shares, tolerances, found))


def _title(series: Series) -> str:
    rule, start = series
    return f"{RULE_WORDS[rule]}, {START_WORDS[start]}"


def _words(cell: Cell, *names: str, scale: float = 1.0) -> list[str]:
    """Return the mean ± standard deviation of some figures."""
    return [mean_and_deviation([scale * value for value in cell[name]]) for name in names]


def _histogram_table(histograms: dict[Series, Cell], tolerance: float) -> str:
    header = ["", "median", "mean", "slowest", "converged, %", "wasted, %", "… at 90 %"]
    header += ["spiked, %", "… of likely labels", "F1"]
    shares = ("converged", "wasted", "wasted_at_90", "spiked", "spiked_likely")
    rows = []
    for series, cell in histograms.items():
        steps = _words(cell, "median_steps", "mean_steps", "most_steps")
        rows.append(
            [_title(series), *steps, *_words(cell, *shares, scale=100), *_words(cell, "f1")]
        )
    return (
        f"Steps until an example converges (relative change below {tolerance:g})\n\n"
        f"{text_table(header, rows)}\n{STATEMENTS['histogram']}; {STATEMENTS['spikes']}.\n"
        "wasted: the share of row-steps that a batch makes on rows that have converged, while it "
        "waits for\nall of its rows, or for 90 %. spiked: outputs within 0.01 of 0 or 1; likely "
        "labels are above 0.1.\n"
    )


def _curve_table(
    title: str,
    values: tuple[float, ...],
    cells: dict[Series, list[Cell]],
    statement: str,
    form: str,
) -> str:
    parts = []
    for start in STARTS:
        header, rows = [title], [[form.format(value)] for value in values]
        for rule in RULES:
            header += [f"steps, {RULE_WORDS[rule]}", "F1"]
            for row, cell in zip(rows, cells[rule, start], strict=True):
                row += _words(cell, "most_steps", "f1")
        parts.append(f"Started {START_WORDS[start]}\n\n{text_table(header, rows)}")
    return "\n\n".join(parts) + f"\n{STATEMENTS[statement]}.\n"


def _cross_table(crossing: dict[tuple[float, str], dict[str, Cell]], usual: Stopping) -> str:
    header = ["tolerance", "must be met"]
    for rule in RULES:
        header += [f"steps, {RULE_WORDS[rule]}", "search errors, %", "F1"]
    header += ["steps, ratio", "default ends higher, %", "paper's ends higher, %"]
    rows = []
    for (tolerance, require), cells in crossing.items():
        row = [f"{tolerance:.0e}", require]
        for cell in cells.values():
            row += _words(cell, "mean_steps", "search_errors", "f1")
        paper, default = cells["paper"], cells["default"]
        pairs = zip(paper["mean_steps"], default["mean_steps"], strict=True)
        row.append(mean_and_deviation([ours / theirs for ours, theirs in pairs]))
        higher = [_words(cell, "higher", scale=100) for cell in (default, paper)]
        rows.append(row + [word for words in higher for word in words])
    return (
        "Rule, stop test and tolerance apart, started from the centre\n\n"
        f"{text_table(header, rows)}\n"
        f"tolerance: of the objective, relative; that of labels is "
        f"{usual.iterate_atol / usual.objective_rtol:g} of it. steps: mean of an\nexample, at most "
        f"{MOST_STEPS}. ends higher: than by the other rule, by {HIGHER:g} of the energy.\n"
    )


def _search_table(found: dict[str, Cell]) -> str:
    header = ["", "search errors, %", "F1 of rounding", "mean energy", "time"]
    base = next(iter(found.values()))["seconds"]
    rows = []
    for words, cell in found.items():
        ratios = [a / b for a, b in zip(cell["seconds"], base, strict=True)]
        figures = _words(cell, "search_errors", "f1", "energy")
        rows.append([words, *figures, f"× {statistics.fmean(ratios):.2g}"])
    return (
        f"Search errors: the truth has a lower energy than what was found\n\n"
        f"{text_table(header, rows)}\n{STATEMENTS['search']}.\n"
        "polished: rounded, then labels are flipped one by one while that lowers the energy, "
        "as in\nSPENClassifier.predict(X, polish=True). time: of the processor, as a "
        "multiple of the first row's.\n"
    )


def _pictures(
    plots: Any,
    study: Study,
    histograms: dict[Series, Cell],
    shares: dict[Series, list[Cell]],
    tolerances: dict[Series, list[Cell]],
    found: dict[str, Cell],
) -> list[Path]:
    def lines(cells: dict[Series, list[Cell]]) -> dict[str, Any]:
        """Return steps and F1 of each series, averaged over seeds."""
        return {
            _title(series): tuple(
                [statistics.fmean(cell[name]) for cell in each] for name in ("most_steps", "f1")
            )
            for series, each in cells.items()
        }

    first = {_title(series): cell["histogram"][0] for series, cell in histograms.items()}
    panels = {
        "share that must converge, 50 to 100 %": lines(shares),
        "tolerance, 10⁻¹ to 10⁻⁵": lines(tolerances),
    }
    errors = {words: cell["search_errors"] for words, cell in found.items()}
    path = str(study.records.folder / study.data.name)
    return [
        *plots.draw_histograms(first, Path(f"{path}-steps")),
        *plots.draw_tradeoffs(panels, Path(f"{path}-tradeoffs")),
        *plots.draw_search_errors(errors, Path(f"{path}-search-errors")),
    ]


@dataclass(frozen=True)
class BoundRows:
    """The energies of some rows, and their labels.

    Attributes:
        problem: the energies.
        local: (n, L) the output of the label-wise model.
        domain: where y lives.
        truth: (n, L).
    """

    problem: spen.Problem
    local: Tensor
    domain: spen.Domain
    truth: Tensor

    @classmethod
    @torch.no_grad()
    def of(cls, classifier: LabelClassifier, rows: Split) -> BoundRows:
        """Bind the energy that predictions minimise to rows."""
        model, objective = classifier.model_, classifier.plan_.prediction.objective
        context = Context(model.features.of(batch_of(classifier, rows)))
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
        return spen.search_error_rate(self.problem.value(self.truth), found.energy)


def tuned(held_out: BoundRows, test: BoundRows, inference: Inference, start: Start) -> Record:
    """Return steps, convergence and F1 of an inference on test rows.

    The threshold is tuned on the held-out rows with the same inference: how far outputs
    have come on their way to 0 and 1 depends on when it stops.
    """
    tuned_on = held_out.solve(inference, start).y.numpy()
    threshold, _ = tune_threshold(held_out.truth.numpy(), tuned_on)
    found = test.solve(inference, start)
    f1 = spen.example_f1(test.truth.numpy(), apply_threshold(found.y.numpy(), threshold))
    steps = found.steps.double()
    return {
        "f1": round(100 * f1, 4),
        "threshold": threshold,
        "mean_steps": float(steps.mean()),
        "most_steps": int(steps.max()),
        "converged": float(found.converged.double().mean()),
    }


def histogram(held_out: BoundRows, test: BoundRows, inference: Inference, start: Start) -> Record:
    """Return besides each example's own number of steps, and what a batch of them wastes."""
    found = test.solve(inference, start)
    steps, near = found.steps.numpy(), spikes(found.y)
    return tuned(held_out, test, inference, start) | {
        "median_steps": float(np.median(steps)),
        "histogram": np.bincount(steps).tolist(),
        "wasted": wasted(steps, 1.0),
        "wasted_at_90": wasted(steps, MOST_CONVERGED),
        "spiked": near["all"],
        "spiked_likely": near["likely"],
    }


def by_share(rule: str, share: float, tolerance: float) -> Descent:
    """Return a descent that stops its batch when a share of it has converged."""
    stopping = Stopping(MOST_STEPS, tolerance, scope="batch", fraction=share)
    return Descent(RULES[rule], stopping)


def stop_test(usual: Stopping, require: Literal["either", "both"], tolerance: float) -> Stopping:
    """Return a stop test whose two tolerances are as far apart as the usual one's.

    >>> stop_test(Stopping(100, 1e-3, 1e-4), "both", 1e-2).iterate_atol
    0.001
    """
    return replace(
        usual,
        max_steps=MOST_STEPS,
        objective_rtol=tolerance,
        iterate_atol=usual.iterate_atol * (tolerance / usual.objective_rtol),
        require=require,
    )


def crossed(held_out: BoundRows, test: BoundRows, rule: str, stopping: Stopping) -> Record:
    """Return steps, F1 and search errors of a rule, and how often the other one ends lower."""
    ends = {name: test.solve(Descent(each, stopping)) for name, each in RULES.items()}
    here, least = ends[rule], torch.stack([end.energy for end in ends.values()]).amin(0)
    higher = here.energy - least > HIGHER * torch.maximum(here.energy.abs(), least.abs())
    return tuned(held_out, test, Descent(RULES[rule], stopping), "uniform") | {
        "median_steps": float(here.steps.double().median()),
        "search_errors": 100 * test.search_errors(here),
        "energy": float(here.energy.double().mean()),
        "higher": float(higher.double().mean()),
    }


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


def searches(stopping: Stopping) -> dict[str, Callable[[BoundRows], Solution]]:
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
def restarted(rows: BoundRows, inference: Inference) -> Solution:
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
def annealed(rows: BoundRows, inference: Descent) -> Solution:
    """Solve with entropy of falling weight, each time from the answer before."""
    start, steps = None, 0
    for temperature in TEMPERATURES:
        tau = rows.problem.rows_like.new_full((len(rows.truth),), temperature)
        softened = rows.problem + spen.Form(tau=tau, domain=rows.domain)
        found = inference.solve(softened, rows.domain, start)
        start, steps = found.y, steps + found.steps
    last = inference.solve(rows.problem, rows.domain, start)
    return replace(last, steps=last.steps + steps)


def searched(
    held_out: BoundRows, test: BoundRows, search: Callable[[BoundRows], Solution]
) -> dict[str, float]:
    """Return search errors, the F1 of rounding, and the median CPU seconds of a search."""
    seconds, found = [], search(test)
    for _ in range(TIMES):
        # Of the processor, which other work on the machine lengthens least.
        began = time.process_time()
        found = search(test)
        seconds.append(time.process_time() - began)
    labels = (found.y > 0.5).numpy()
    return {
        "search_errors": 100 * test.search_errors(found),
        "f1": round(100 * spen.example_f1(test.truth.numpy(), labels), 4),
        "energy": float(found.energy.double().mean()),
        "seconds": statistics.median(seconds),
    }
