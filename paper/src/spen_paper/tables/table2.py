"""Table 2: structured SVMs with exact, relaxed and approximate inference on Yeast.

Beside the table, which violated margins each solver sees while it trains.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import spen
from spen import InputError, Split, hamming_error, load_dataset, train
from spen.cli.show import say, text_table
from spen.data.dataset import join
from spen.errors import check_whole, choose
from spen.estimators.progress import showing
from spen.metrics import as_array
from spen.training.checkpoint import Epoch
from spen_paper.figures import deviation, difference, draw, say_table
from spen_paper.fits import device_in_words
from spen_paper.records import Record, Records, brief, identity, methods_named
from spen_paper.tables import machines
from spen_paper.tables.machines import SLACK, Machine, percent

DATASET = "yeast"
PAPER = {
    "exact": "20.2 ± .5",
    "lp": "20.5 ± .5",
    "lbp": "24.3 ± .6",
    "dmf": "23 ± .2",
    "spen": "20.0 ± .3",
}
"""The paper's figures. It does not say what its ± is."""

RULE = "Hamming error x 100: the share of labels that are wrong; labels are on above 1/2"
COMPARED = (
    ("lp", "exact"),
    ("lbp", "exact"),
    ("spen", "exact"),
    ("spen", "br"),
    ("spen-best", "br-kernels"),
)
CLOCKS = ("choose", "train", "predict")
OFFICIAL_TEST = 917
"""Test rows of the split that comes with Yeast."""

LOOKED_AT = {
    "exact": "exact",
    "lp": "LP",
    "lbp": "LBP, damped",
    "lbp-plain": "LBP, undamped",
    "spen": "SPEN",
}
"""The methods whose margins are looked at, and what the picture calls them."""

FOLDS = 3
"""Folds that are looked at: every epoch is solved twice, once by enumeration."""


def table2(method: str | None, folds: int, seeds: int, out: Path, study: str | None) -> None:
    """Compare SSVMs that train and predict with one solver each, by cross-validation (Table 2)."""
    known = machines.read_machines()
    names = methods_named(method, known)
    check_whole(folds, "folds", least=2)
    check_whole(seeds, "seeds")
    if study is not None:
        choose(study, {"violations": None}, "study")
        if method is not None:
            raise InputError("A study has its own methods. Leave --method or --study out.")
    records = Records(out)
    rows = all_rows(load_dataset(DATASET))
    if study is not None:
        violations(rows, folds, seeds, records)
        return
    found = [
        run(name, known[name], rows, fold, folds, seed, records)
        for seed in range(seeds)
        for fold in range(folds)
        for name in names
    ]
    say_table(render(names, found), remarks(rows, folds, seeds, found), records)


def all_rows(data: spen.Dataset) -> Split:
    """Return the rows of all parts of a data set together, dense."""
    rows = join([part for part in (data.train, data.valid, data.test) if part is not None])
    return replace(rows, X=as_array(rows.X, np.float32), Y=as_array(rows.Y, np.float32))


def split_of(rows: Split, fold: int, folds: int, seed: int) -> tuple[Split, Split]:
    """Return the training and the test part of one fold; the seed draws which rows are in it.

    >>> some = Split(np.arange(10.0)[:, None], np.zeros((10, 1)))
    >>> train, test = split_of(some, fold=0, folds=5, seed=0)
    >>> len(train), len(test)
    (8, 2)
    """
    if folds > len(rows):
        raise InputError(f"folds must be at most the number of rows, {len(rows)}; got {folds}.")
    order = np.random.default_rng(seed).permutation(len(rows))
    test = np.sort(np.array_split(order, folds)[fold])
    return rows.rows(np.setdiff1d(order, test)), rows.rows(test)


def run(
    name: str, machine: Machine, rows: Split, fold: int, folds: int, seed: int, records: Records
) -> Record:
    """Return the record of one method on one fold; make it if it is not there yet."""
    train, test = split_of(rows, fold, folds, seed)

    def measure() -> Record:
        with showing(f"{name}, fold {fold}, seed {seed}", machine.epochs()) as progress:
            began, clocks = time.perf_counter(), [time.process_time()]
            plan, tried = machines.choose_decay(machine, train, seed, progress)
            clocks.append(time.process_time())
            predictor = machines.train_by(plan, train, seed, progress)
            clocks.append(time.process_time())
            labels = predictor.decode(predictor.solve(test.X).y)
            clocks.append(time.process_time())
            seconds = time.perf_counter() - began
        spent = [round(after - before, 4) for before, after in itertools.pairwise(clocks)]
        wrong = (labels != test.Y).mean(1)
        return {
            "metrics": {
                "hamming": round(100 * hamming_error(test.Y, labels), 4),
                "row_deviation": round(100 * float(wrong.std()), 4),
            }
            | machines.search_of(predictor, test.X),
            "chosen": {
                "weight_decay": machines.decay_of(plan),
                "held_out_hamming": {f"{each:g}": error for each, error in tried.items()},
            },
            "seconds": round(seconds, 3),
            "cpu_seconds": dict(zip(CLOCKS, spent, strict=True)),
            "device": device_in_words(predictor.model.reference.device),
        }

    fold_of = {"seed": seed, "fold": fold, "decoding": "threshold"}
    return records.make(_identity("table2", name, machine, folds, train, test, **fold_of), measure)


def _identity(
    experiment: str, name: str, machine: Machine, folds: int, train: Split, test: Split, **fold: Any
) -> Record:
    settings = brief(replace(machine, title="")) | {"folds": folds, "n_test": len(test)}
    return identity(experiment, DATASET, name, len(train), settings=settings, rule=RULE, **fold)


def render(names: Sequence[str], records: Sequence[Record]) -> str:
    """Lay the table out: ours beside the paper's, what inference missed, and seconds."""
    header = ["", "paper", "Hamming error", "sd", "search errors"]
    header += [f"{what}, s" for what in CLOCKS]
    known, rows = machines.read_machines(), []
    for name in names:
        mine = [record for record in records if record["method"] == name]
        errors = [record["metrics"]["hamming"] for record in mine]
        missed = [m["search_errors"] for r in mine if "search_errors" in (m := r["metrics"])]
        row = [known[name].title, PAPER.get(name, "")]
        row += [f"{statistics.fmean(errors):.2f} ± {standard_error(mine):.2f}"]
        row += [f"{deviation(errors):.2f}", f"{statistics.fmean(missed):.2f} %" if missed else ""]
        times = [[record["cpu_seconds"][what] for record in mine] for what in CLOCKS]
        rows.append(row + [f"{statistics.median(each):.2f}" for each in times])
    return text_table(header, rows)


def standard_error(records: Sequence[Record]) -> float:
    """Return the standard error of the mean error over the folds.

    Other seeds divide the same rows anew, so they steady the mean but do not add to what
    it was measured on: the deviation over all runs is divided by the root of the folds.

    >>> fold = [{"fold": k, "metrics": {"hamming": h}} for k, h in enumerate([19.0, 20.0, 21.0])]
    >>> round(standard_error(fold), 3)
    0.577
    """
    errors = [record["metrics"]["hamming"] for record in records]
    return deviation(errors) / math.sqrt(len({record["fold"] for record in records}))


def remarks(rows: Split, folds: int, seeds: int, records: Sequence[Record]) -> Iterator[str]:
    """Yield what a reader of the table must know, line by line."""
    of_method: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda record: (record["seed"], record["fold"])):
        of_method.setdefault(record["method"], []).append(record["metrics"])
    for pair in COMPARED:
        if all(name in of_method for name in pair):
            gap = difference(*([each["hamming"] for each in of_method[name]] for name in pair))
            yield f"{' − '.join(pair)}, paired over folds: {gap} (± standard error)."
    repeated = "" if seeds == 1 else f", {seeds} divisions into folds"
    yield (
        f"{folds}-fold cross-validation on all {len(rows):,} rows of {DATASET}{repeated}; "
        f"mean ± standard error over folds, and their standard deviation (sd)."
    )
    yield f"{RULE}."
    yield (
        "The weight decay (with kernels, the ridge) was chosen on a held-out fifth of each "
        "training part; the same solver trains and predicts."
    )
    cpu = sum(sum(record["cpu_seconds"].values()) for record in records)
    clock = sum(record["seconds"] for record in records)
    yield (
        "Search errors: test rows whose labelling has more energy than the least of all. Seconds: "
        "CPU time of one fold, median over folds, to choose, to train, and to predict its test "
        f"rows; all of it took {cpu / 60:.1f} minutes of CPU time, {clock / 60:.1f} by the clock."
    )
    if "exact" in of_method:
        row = math.sqrt(statistics.fmean(each["row_deviation"] ** 2 for each in of_method["exact"]))
        all_of_them, official = (row / math.sqrt(count) for count in (len(rows), OFFICIAL_TEST))
        yield (
            f"The error of a single row has a standard deviation of {row:.1f} (exact): the "
            f"standard error of a mean over {len(rows):,} rows is {all_of_them:.2f}, and over the "
            f"{OFFICIAL_TEST} test rows of the official split {official:.2f}."
        )
    yield "Settings: spen_paper/settings/table2.toml"


# The study of violated margins ------------------------------------------------------------------


def violations(rows: Split, folds: int, seeds: int, records: Records) -> None:
    """Train on some folds, look at every epoch, print two tables and draw them.

    Args:
        rows: all of them.
        folds: into which they are divided; the first few are looked at.
        seeds: divisions into folds.
        records: where results are kept.
    """
    known = machines.read_machines()
    looked_at = range(min(folds, FOLDS))
    found = {
        title: [
            look(name, known[name], rows, fold, folds, seed, records)
            for seed in range(seeds)
            for fold in looked_at
        ]
        for name, title in LOOKED_AT.items()
    }
    say(render_margins(found))
    say(
        "\nTraining rows, in percent: the mean over all epochs of the last stage. Violated: by "
        "enumeration; seen: by the\nsolver. Under: the hinge loss is larger than the solver finds. "
        "Over: it is smaller. Loss seen / loss: of the means\nover rows. Every solver is looked at "
        "on the model that it trains."
    )
    say()
    say(render_search(found))
    say(
        "\nTest rows, in percent. Search errors: the labelling has more energy than the least one. "
        "Undecided: some label\nis between .1 and .9. Not settled: the solver reached a limit."
    )
    parts = f"{len(looked_at)} of {folds} folds" if len(looked_at) < folds else f"{folds} folds"
    say(f"{DATASET}, {len(rows):,} rows; {parts}, {seeds} seed{'s' if seeds > 1 else ''}.")
    curves = {title: each for title, each in found.items() if title != "exact"}
    draw(lambda plots: plots.draw_violations(
        {title: mean_epochs(each) for title, each in curves.items()},
        {title: _mean_of(each, "search_errors") for title, each in curves.items()},
        records.folder / "violations",
    ))  # fmt: skip
    say(f"Records: {records.path}")


def look(
    name: str, machine: Machine, rows: Split, fold: int, folds: int, seed: int, records: Records
) -> Record:
    """Return what a method's solver saw in each epoch of one fold; train if it is not there yet."""
    rows_of_fold, test = split_of(rows, fold, folds, seed)
    last = machine.stages[-1]
    assert isinstance(last.objective, spen.Hinge)
    hinge = last.objective

    def measure() -> Record:
        sights, domain = [], spen.UnitBox(rows.Y.shape[1])

        def see(epoch: Epoch) -> None:
            if epoch.stage == last.name:
                context = trainee.context(seen.X, target=seen.Y)
                sights.append(sight_of(trainee, machine.inference, context, hinge))

        with showing(f"{name}, fold {fold}, seed {seed}, watched", machine.epochs()) as progress:
            plan, _ = machines.choose_decay(machine, rows_of_fold, seed, progress)
            features, seen = machines.Standardised().fit(rows_of_fold)
            width = seen.X.shape[1]
            trainee = spen.SPEN(
                spen.Identity(width), plan.energy.size(width, domain), domain, seed=seed
            )
            train(trainee, plan.stages, seen, seed=seed, callbacks=[*progress.training(), see])
            model = spen.SPEN(features, trainee.energy, domain)
        return {
            "metrics": machines.search_of(machines.predictor_of(model, plan.prediction), test.X),
            "chosen": {"weight_decay": machines.decay_of(plan)},
            "epochs": {figure: [each[figure] for each in sights] for figure in sights[0]},
        }

    place = ("table2-violations", name, machine, folds, rows_of_fold, test)
    return records.make(_identity(*place, seed=seed, fold=fold), measure)


@torch.no_grad()
def sight_of(
    model: spen.SPEN, inference: spen.Inference, context: spen.Context, hinge: spen.Hinge
) -> dict[str, float]:
    """Compare the hinge loss of each row, as a solver finds it, with the exact one.

    Args:
        model: as far as it has been trained.
        inference: the solver.
        context: rows with their targets.
        hinge: the loss.

    Returns:
        violated: rows with a violation, in percent, by enumeration;
        seen: rows in which the solver finds one;
        under: rows whose hinge loss is larger than the solver finds;
        over: rows whose hinge loss is smaller than the solver says;
        ratio: the mean loss that the solver finds, over the mean loss.
    """
    found = hinge.loss(model, inference, context)
    exact = hinge.loss(model, spen.Exact(), context)
    return {
        "violated": percent(exact > SLACK),
        "seen": percent(found > SLACK),
        "under": percent(found < exact - SLACK),
        "over": percent(found > exact + SLACK),
        "ratio": round(float(found.mean() / exact.mean().clamp_min(1e-12)), 5),
    }


def render_margins(found: Mapping[str, Sequence[Record]]) -> str:
    """Lay out what each solver saw: the mean over epochs, and the last one."""
    header = ["", "violated", "seen", "under", "over", "loss seen / loss", "in the last epoch"]
    rows = []
    for title, records in found.items():
        epochs = mean_epochs(records)
        means = {figure: statistics.fmean(values) for figure, values in epochs.items()}
        shares = [f"{means[figure]:.2f}" for figure in ("violated", "seen", "under", "over")]
        rows.append([title, *shares, f"{means['ratio']:.4f}", f"{epochs['ratio'][-1]:.4f}"])
    return text_table(header, rows)


def render_search(found: Mapping[str, Sequence[Record]]) -> str:
    """Lay out what each solver missed on test rows."""
    figures = {
        "search_errors": "search errors",
        "undecided": "undecided",
        "unsettled": "not settled",
    }
    rows = [
        [title, *(f"{_mean_of(records, figure):.2f}" for figure in figures)]
        for title, records in found.items()
    ]
    return text_table(["", *figures.values()], rows)


def mean_epochs(records: Sequence[Record]) -> dict[str, list[float]]:
    """Return each figure of each epoch, averaged over runs.

    >>> mean_epochs([{"epochs": {"under": [1.0, 2.0]}}, {"epochs": {"under": [3.0, 2.0]}}])
    {'under': [2.0, 2.0]}
    """
    return {
        name: [statistics.fmean(e) for e in zip(*(r["epochs"][name] for r in records), strict=True)]
        for name in records[0]["epochs"]
    }


def _mean_of(records: Sequence[Record], metric: str) -> float:
    return statistics.fmean(record["metrics"][metric] for record in records)
