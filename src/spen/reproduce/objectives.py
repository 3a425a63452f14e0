"""Objectives and energies beside each other: the same features, Table 1's protocol."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from spen.cli.show import say, text_table
from spen.data.dataset import Dataset
from spen.errors import InputError, choose
from spen.estimators.base import LabelClassifier
from spen.model import usable_device
from spen.reproduce.classifiers import (
    classifier,
    dataset_of,
    device_in_words,
    identity_of,
    settings_of,
    tested,
    timed_fit,
)
from spen.reproduce.kept_bytes import kept_bytes
from spen.reproduce.plain import run_plain
from spen.reproduce.protocol import F1_RULE
from spen.reproduce.records import Record, Records
from spen.reproduce.study import one_fit, tell
from spen.reproduce.table3 import mean_and_deviation

SETTINGS = "objectives"
TITLES = {
    "mlp": "MLP: the features alone",
    "hinge": "hinge, label energy",
    "end-to-end": "end to end, all of 10 iterates",
    "end-to-end-rates": "… with learned step rates",
    "unrolled": "unrolled likelihood, τ = 1",
    "unrolled-f1": "… with the soft F1",
    "convex": "convex energy, end to end, τ = 1",
    "convex-implicit": "… differentiated implicitly",
    "convex-hinge": "convex energy, hinge",
}
PUBLISHED = {"bibtex": {"hinge": 42.2, "end-to-end": 38.1, "convex-hinge": 41.5}}
"""Belanger & McCallum 2016; end-to-end as run by Tu & Gimpel 2018; Amos, Xu & Kolter 2017."""

CERTIFIED = 1e-3
"""A gap below this share of the energy proves that no labelling is a search error."""


def objectives(
    *,
    dataset: str = "bibtex",
    method: str | None = None,
    seeds: int = 3,
    device: str = "auto",
    out: Path = Path("runs/objectives"),
) -> None:
    """Compare ways to train an energy, and kinds of energies, on the same features.

    Runs that are already in OUT/records.jsonl are not made again, so a killed run goes on.
    """
    if seeds < 1:
        raise InputError(f"seeds must be 1 or more; received {seeds}.")
    usable_device(device)
    tables = settings_of(dataset, SETTINGS)
    names = _named(method, tables)
    records, data = Records(out), dataset_of(dataset)
    makers = {}
    for name in names:
        where = f"{SETTINGS}.toml, [{dataset}.{name}]"
        makers[name] = partial(classifier, tables[name], device=device, where=where)
        # Made once here, so that a mistake in the last settings is not found after hours.
        identity_of(makers[name](seed=0), data)
    found: dict[str, list[dict[str, Record]]] = {name: [] for name in names}
    for seed in range(seeds):
        for name in names:
            found[name].append(run(name, makers[name](seed=seed), data, seed, records))
            tell(f"{name}, seed {seed}", found[name][-1])
    say(render(dataset, found))
    say()
    for line in remarks(data, seeds, device):
        say(line)
    say(f"Records: {records.path}")


def run(
    name: str, made: LabelClassifier, data: Dataset, seed: int, records: Records
) -> dict[str, Record]:
    """Return the two records of one fit, by decoding; make them if they are not there yet."""
    identity: Record = {
        "experiment": "objectives",
        "dataset": data.name,
        "method": name,
        "n_train": len(data.train),
        "seed": seed,
        "fold": None,
        "settings": identity_of(made, data),
    }
    wanted = {each: identity | {"decoding": each} for each in ("threshold", "expected_f1")}

    def measure() -> dict[str, Record]:
        fit_seconds = timed_fit(made, data)
        results, costs = tested(made, data), costs_of(made, data)
        return {
            each: record | costs | {"fit_seconds": round(fit_seconds, 3)}
            for each, record in results.items()
        }

    return one_fit(records, wanted, measure)


def costs_of(fitted: LabelClassifier, data: Dataset) -> dict[str, Any]:
    """Return what a fitted classifier's inference misses, and what its training took."""
    truth = data.test.Y.toarray() if hasattr(data.test.Y, "toarray") else data.test.Y
    diagnosis = fitted.diagnose(data.test.X, truth)
    history = fitted.refit_history_ or fitted.history_
    stages = {epoch.stage: [] for epoch in history.epochs}
    for epoch in history.epochs:
        stages[epoch.stage].append(epoch.seconds)
    seconds = [statistics.median(each) for each in stages.values()]
    costs = {
        "search_errors": round(100 * diagnosis.search_errors, 3),
        "converged": round(100 * diagnosis.converged, 3),
        "epoch_seconds": round(seconds[-1], 4),
        "label_wise_epoch_seconds": round(seconds[0], 4),
        "kept_bytes": kept_bytes(fitted, data.train),
    }
    if diagnosis.gaps is not None:
        costs["certified"] = round(100 * float(np.mean(diagnosis.gaps < CERTIFIED)), 3)
    return costs


def render(dataset: str, found: dict[str, list[dict[str, Record]]]) -> str:
    """Lay the table out, one row a method."""
    header = ["", "published", "threshold", "expected F1", "calibration error"]
    header += ["search errors, %", "certified, %", "epoch / MLP epoch", "fit, s", "kept, MB"]
    rows = []
    for name, seeds in found.items():
        published = PUBLISHED.get(dataset, {}).get(name)
        first = [both["threshold"] for both in seeds]
        scores = {
            decoding: [both[decoding]["metrics"]["f1"] for both in seeds]
            for decoding in ("threshold", "expected_f1")
        }
        ratios = [r["epoch_seconds"] / r["label_wise_epoch_seconds"] for r in first]
        errors = [r["metrics"]["calibration_error"] for r in first]
        certified = [r["certified"] for r in first if "certified" in r]
        rows.append(
            [
                TITLES[name],
                "" if published is None else f"{published:.1f}",
                *(mean_and_deviation(each) for each in scores.values()),
                f"{statistics.fmean(errors):.2f}",
                f"{statistics.fmean([r['search_errors'] for r in first]):.1f}",
                f"{statistics.fmean(certified):.1f}" if certified else "",
                f"{statistics.median(ratios):.1f}",
                f"{statistics.fmean([r['fit_seconds'] for r in first]):.0f}",
                f"{statistics.fmean([r['kept_bytes'] for r in first]) / 1e6:.1f}",
            ]
        )
    return text_table(header, rows)


def remarks(data: Dataset, seeds: int, device: str) -> list[str]:
    """Return what a reader of the table must know, line by line."""
    repeated = "1 seed" if seeds == 1 else f"{seeds} seeds, mean ± standard deviation"
    return [
        f"{data.name}, official split: {len(data.train):,} training and {len(data.test):,} test "
        f"rows; {repeated}; {device_in_words(usable_device(device))}.",
        f"Test F1: {F1_RULE}. Held-out training rows calibrate and tune; "
        "each fit is decoded twice.",
        "search errors: rows whose true labelling has a lower energy than inference finds when it "
        "may go on\nuntil it converges; certified: rows of a convex energy whose gap proves that "
        f"nothing is lower\nby more than {CERTIFIED:g} of the energy.",
        "epoch: of the objective's stage, as a multiple of the label-wise stage's in the same fit; "
        "kept: what one\ntraining batch keeps for the backward pass.",
        f"Settings: spen/reproduce/settings/{SETTINGS}.toml",
    ]


def _named(text: str | None, tables: dict[str, Any]) -> list[str]:
    """Return the methods that a comma-separated list names, in the table's order; None is all."""
    known: Sequence[str] = [name for name in TITLES if name in tables]
    if text is None:
        return list(known)
    wanted = [name.strip() for name in text.split(",") if name.strip()]
    for name in wanted:
        choose(name, dict.fromkeys(known), "method")
    return [name for name in known if name in wanted]


if __name__ == "__main__":
    run_plain(objectives)
