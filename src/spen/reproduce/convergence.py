"""How inference converges: the paper's figures on it, and how search errors go away."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from spen.batch.splits import hold_out
from spen.bench.paper_model import HELD_OUT, paper_model
from spen.cli.show import say, text_table
from spen.estimators.model_file import load
from spen.inference.descent import Descent
from spen.inference.stopping import Stopping
from spen.model import usable_device
from spen.reproduce.classifiers import identity_of
from spen.reproduce.convergence_runs import (
    MOST_CONVERGED,
    MOST_STEPS,
    RULES,
    SHARES,
    STARTS,
    TOLERANCES,
    Start,
    Trained,
    by_share,
    searched,
    searches,
    spikes,
    wasted,
)
from spen.reproduce.plain import run_plain
from spen.reproduce.records import Record
from spen.reproduce.study import Study, draw, one_fit
from spen.reproduce.table3 import mean_and_deviation

METHOD = "spen-paper"
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

Series = tuple[str, Start]
Cell = tuple[dict[str, Any], Callable[[Trained], dict[str, Any]]]
"""What tells a figure from others, and how it is measured."""


@dataclass(frozen=True)
class Measured:
    """The figures of one cell of the study, one record a seed."""

    records: list[Record]

    def of(self, name: str) -> list[float]:
        """Return one figure, seed by seed."""
        return [record["metrics"][name] for record in self.records]

    def words(self, name: str, scale: float = 1.0) -> str:
        """Return its mean ± standard deviation."""
        return mean_and_deviation([scale * value for value in self.of(name)])

    def mean(self, name: str) -> float:
        """Return its mean."""
        return statistics.fmean(self.of(name))


class _Runs:
    """Models that are trained when a figure is first asked for that no record has."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self._trained: dict[int, Trained] = {}
        made = [study.classifier(METHOD, seed) for seed in range(study.seeds)]
        self.stopping: Stopping = made[0].get_params()["inference"].stopping
        self.tolerance = self.stopping.objective_rtol
        self._identities = [identity_of(each, study.data) for each in made]

    def trained(self, seed: int) -> Trained:
        if seed not in self._trained:
            data, device = self.study.data, usable_device(self.study.device)
            path = self.study.records.folder / f"{data.name}-{seed}.spen"
            paper_model(data, path, device, settings=data.name, seed=seed)
            _, held_out = hold_out(data.train, HELD_OUT, seed=0)
            # Measured on the CPU wherever it was trained: the figures are steps, not times.
            self._trained[seed] = Trained.of(load(path, "cpu"), held_out, data.test)
        return self._trained[seed]

    def cell(
        self, settings: dict[str, Any], measure: Callable[[Trained], dict[str, Any]]
    ) -> Measured:
        """Return the figures of one setting, seed by seed; measure those that are missing."""
        found = []
        for seed in range(self.study.seeds):
            told = self._identities[seed] | settings
            identity = self.study.identity(METHOD, seed, self.study.data, told)
            identity |= {"decoding": None}

            def run(seed: int = seed) -> dict[str, Record]:
                return {"": {"metrics": measure(self.trained(seed))}}

            found.append(one_fit(self.study.records, {"": identity}, run)[""])
        return Measured(found)


def convergence(
    *,
    dataset: str = "bibtex",
    seeds: int = 3,
    device: str = "auto",
    out: Path = Path("runs/convergence"),
) -> None:
    """Study how the paper's model converges, and how often it misses a lower energy.

    Models are kept in OUT, and figures in OUT/records.jsonl; what is there is not made again.
    """
    study = Study.open("convergence", dataset, seeds, device, out)
    runs = _Runs(study)
    all_series: list[Series] = [(rule, start) for start in STARTS for rule in RULES]
    histograms = {series: runs.cell(*_histogram(runs, *series)) for series in all_series}
    shares = {
        series: [runs.cell(*_by_share(runs, *series, share)) for share in SHARES]
        for series in all_series
    }
    tolerances = {
        series: [runs.cell(*_by_tolerance(*series, tolerance)) for tolerance in TOLERANCES]
        for series in all_series
    }
    found = {
        words: runs.cell({"search": words}, partial(searched, search=search))
        for words, search in searches(runs.stopping).items()
    }
    say(_histogram_table(histograms, runs.tolerance))
    say(_curve_table("share of the batch that must converge", SHARES, shares, "share", "{:.0%}"))
    say(_curve_table("tolerance, at 90 % converged", TOLERANCES, tolerances, "tolerance", "{:.0e}"))
    say(_search_table(found))
    study.tell_protocol()
    _draw(study, histograms, shares, tolerances, found)


def _histogram(runs: _Runs, rule: str, start: Start) -> tuple[dict[str, Any], Any]:
    """Return the settings and the measurement of each example's own number of steps."""

    def measure(trained: Trained) -> dict[str, Any]:
        descent = Descent(RULES[rule], Stopping(MOST_STEPS, runs.tolerance))
        metrics, found = trained.measure(descent, start)
        steps = found.steps.numpy()
        return metrics | {
            "median_steps": float(np.median(steps)),
            "histogram": np.bincount(steps).tolist(),
            "wasted": wasted(steps, 1.0),
            "wasted_at_90": wasted(steps, MOST_CONVERGED),
            "spiked": spikes(found.y)["all"],
            "spiked_likely": spikes(found.y)["likely"],
        }

    return {"figure": "histogram", "rule": rule, "start": start}, measure


def _by_share(runs: _Runs, rule: str, start: Start, share: float) -> Cell:
    descent = by_share(rule, share, runs.tolerance)
    settings = {"figure": "share", "rule": rule, "start": start, "share": share}
    return settings, lambda trained: trained.measure(descent, start)[0]


def _by_tolerance(rule: str, start: Start, tolerance: float) -> Cell:
    descent = by_share(rule, MOST_CONVERGED, tolerance)
    settings = {"figure": "tolerance", "rule": rule, "start": start, "tolerance": tolerance}
    return settings, lambda trained: trained.measure(descent, start)[0]


def _title(series: Series) -> str:
    rule, start = series
    return f"{RULE_WORDS[rule]}, {START_WORDS[start]}"


def _histogram_table(histograms: dict[Series, Measured], tolerance: float) -> str:
    header = ["", "median", "mean", "slowest", "converged, %", "wasted, %", "… at 90 %"]
    header += ["spiked, %", "… of likely labels", "F1"]
    rows = [
        [
            _title(series),
            *(cell.words(name) for name in ("median_steps", "mean_steps", "most_steps")),
            *(cell.words(n, 100) for n in ("converged", "wasted", "wasted_at_90")),
            *(cell.words(name, 100) for name in ("spiked", "spiked_likely")),
            cell.words("f1"),
        ]
        for series, cell in histograms.items()
    ]
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
    cells: dict[Series, list[Measured]],
    statement: str,
    form: str,
) -> str:
    parts = []
    for start in STARTS:
        chosen = {series: each for series, each in cells.items() if series[1] == start}
        header = [title]
        for rule, _ in chosen:
            header += [f"steps, {RULE_WORDS[rule]}", "F1"]
        rows = []
        for i, value in enumerate(values):
            row = [form.format(value)]
            for each in chosen.values():
                row += [each[i].words("most_steps"), each[i].words("f1")]
            rows.append(row)
        parts.append(f"Started {START_WORDS[start]}\n\n{text_table(header, rows)}")
    return "\n\n".join(parts) + f"\n{STATEMENTS[statement]}.\n"


def _search_table(found: dict[str, Measured]) -> str:
    header = ["", "search errors, %", "F1 of rounding", "mean energy", "time"]
    base = next(iter(found.values())).of("seconds")
    rows = []
    for words, cell in found.items():
        ratios = [a / b for a, b in zip(cell.of("seconds"), base, strict=True)]
        figures = [cell.words(name) for name in ("search_errors", "f1", "energy")]
        rows.append([words, *figures, f"× {statistics.fmean(ratios):.2g}"])
    return (
        f"Search errors: the truth has a lower energy than what was found\n\n"
        f"{text_table(header, rows)}\n{STATEMENTS['search']}.\n"
        "polished: rounded, then labels are flipped one by one while that lowers the energy, "
        "as in\nSPENClassifier.predict(X, polish=True). time: as a multiple of the first row's, "
        "on the CPU.\n"
    )


def _draw(
    study: Study,
    histograms: dict[Series, Measured],
    shares: dict[Series, list[Measured]],
    tolerances: dict[Series, list[Measured]],
    found: dict[str, Measured],
) -> None:
    folder = study.records.folder

    def counts(cell: Measured) -> list[int]:
        return cell.records[0]["metrics"]["histogram"]

    def curve(cells: list[Measured]) -> tuple[list[float], list[float]]:
        return [cell.mean("most_steps") for cell in cells], [cell.mean("f1") for cell in cells]

    def pictures(_: Any) -> list[Path]:
        from spen.report import study_plots as plots

        return [
            *plots.draw_histograms(
                {_title(series): counts(cell) for series, cell in histograms.items()},
                folder / f"{study.data.name}-steps",
            ),
            *plots.draw_tradeoffs(
                {
                    "share that must converge, 50 to 100 %": {
                        _title(series): curve(cells) for series, cells in shares.items()
                    },
                    "tolerance, 10⁻¹ to 10⁻⁵": {
                        _title(series): curve(cells) for series, cells in tolerances.items()
                    },
                },
                folder / f"{study.data.name}-tradeoffs",
            ),
            *plots.draw_search_errors(
                {words: cell.of("search_errors") for words, cell in found.items()},
                folder / f"{study.data.name}-search-errors",
            ),
        ]

    draw(pictures)


if __name__ == "__main__":
    run_plain(convergence)
