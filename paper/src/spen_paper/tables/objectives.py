"""Objectives and energies beside each other: the same features, Table 1's protocol."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spen import Dataset, Split
from spen.cli.show import text_table
from spen.estimators.base import LabelClassifier
from spen.estimators.scaling import checked_rows
from spen.model import usable_device
from spen.training.rows import TrainingRows
from spen_paper import fits
from spen_paper.figures import mean_and_deviation, say_table
from spen_paper.records import F1_RULE, Record, Records, check_seeds, identity, methods_named
from spen_paper.settings import settings_of

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


def objectives(dataset: str, method: str | None, seeds: int, device: str, out: Path) -> None:
    """Compare ways to train an energy, and kinds of energies, on the same features."""
    check_seeds(seeds)
    usable_device(device)
    tables = settings_of(dataset, SETTINGS)
    names = methods_named(method, [name for name in TITLES if name in tables])
    records, data = Records(out), fits.dataset_of(dataset)
    makers = fits.makers_of(tables, names, data, device, SETTINGS)
    found: dict[str, list[dict[str, Record]]] = {name: [] for name in names}
    for seed in range(seeds):
        for name in names:
            found[name].append(run(name, makers[name](seed=seed), data, seed, records))
            fits.tell(f"{name}, seed {seed}", found[name][-1])
    say_table(render(dataset, found), remarks(data, seeds, device), records)


def run(
    name: str, made: LabelClassifier, data: Dataset, seed: int, records: Records
) -> dict[str, Record]:
    """Return the two records of one fit, by decoding; make them if they are not there yet."""
    place = ("objectives", data.name, name, len(data.train), seed, fits.describe_plan(made, data))

    def measure() -> dict[str, Record]:
        fit_seconds = round(fits.timed_fit(made, data), 3)
        results, costs = fits.scored(made, data), costs_of(made, data)
        return {
            each: record | costs | {"fit_seconds": fit_seconds} for each, record in results.items()
        }

    wanted = {each: identity(*place, decoding=each) for each in fits.DECODINGS}
    return records.make_all(wanted, measure)


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
        scores = [[both[each]["metrics"]["f1"] for both in seeds] for each in fits.DECODINGS]
        ratios = [r["epoch_seconds"] / r["label_wise_epoch_seconds"] for r in first]
        errors = [r["metrics"]["calibration_error"] for r in first]
        certified = [r["certified"] for r in first if "certified" in r]
        search, seconds, kept = (
            statistics.fmean(r[figure] for r in first)
            for figure in ("search_errors", "fit_seconds", "kept_bytes")
        )
        row = [TITLES[name], "" if published is None else f"{published:.1f}"]
        row += [*map(mean_and_deviation, scores), f"{statistics.fmean(errors):.2f}"]
        row += [f"{search:.1f}", f"{statistics.fmean(certified):.1f}" if certified else ""]
        row += [f"{statistics.median(ratios):.1f}", f"{seconds:.0f}", f"{kept / 1e6:.1f}"]
        rows.append(row)
    return text_table(header, rows)


def remarks(data: Dataset, seeds: int, device: str) -> list[str]:
    """Return what a reader of the table must know, line by line."""
    repeated = "1 seed" if seeds == 1 else f"{seeds} seeds, mean ± standard deviation"
    return [
        f"{data.name}, official split: {len(data.train):,} training and {len(data.test):,} test "
        f"rows; {repeated}; {fits.device_in_words(usable_device(device))}.",
        f"Test F1: {F1_RULE}. Held-out training rows calibrate and tune; "
        "each fit is decoded twice.",
        "search errors: rows whose true labelling has a lower energy than inference finds when it "
        "may go on\nuntil it converges; certified: rows of a convex energy whose gap proves that "
        f"nothing is lower\nby more than {CERTIFIED:g} of the energy.",
        "epoch: of the objective's stage, as a multiple of the label-wise stage's in the same fit; "
        "kept: what one\ntraining batch keeps for the backward pass.",
        f"Settings: spen_paper/settings/{SETTINGS}.toml",
    ]


def kept_bytes(fitted: LabelClassifier, rows: Split) -> int:
    """Return the bytes that one training batch of the last stage keeps for its backward pass.

    Each tensor is counted once, and the parameters not at all. It is a property of the
    computation, so machines agree on it. What checkpointed steps make again is not counted.

    Args:
        fitted: a classifier after ``fit``.
        rows: training rows, as ``fit`` took them.

    >>> import spen
    >>> data = spen.exclusive_blocks(n_train=90, n_test=10)
    >>> clf = spen.SPENClassifier(epochs=1, hidden=(8,), random_state=0)
    >>> kept_bytes(clf.fit(data.train.X, data.train.Y), data.train) > 0
    True
    """
    model, stage = fitted.model_, fitted.plan_.stages[-1]
    first = rows.rows(range(min(len(rows), stage.batch_size)))
    scaled = fitted.predictor_.scale(checked_rows(fitted, first.X))
    batch = TrainingRows.of(model, (scaled, first.Y), "rows")
    device = model.reference.device
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        if tensor.layout == torch.strided:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in own:
                kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    generator = torch.Generator(device).manual_seed(0)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        context = batch.context(model, torch.arange(len(first), device=device), generator)
        # Held until all is counted, so that no address is used twice.
        loss = stage.objective.loss(model, stage.inference, context, generator)
    del loss
    return sum(kept.values())
