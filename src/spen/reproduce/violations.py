"""Which violated margins each solver sees while it trains, against all of them by enumeration."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from spen.batch.splits import Split
from spen.cli.show import say, text_table
from spen.estimators.fit import epoch_bar
from spen.files import versions
from spen.objectives.hinge import Hinge
from spen.reproduce.machines import Machine, choose_decay, read_machines, untrained
from spen.reproduce.records import Record, Records
from spen.reproduce.search import search_of, sight_of
from spen.reproduce.study import draw
from spen.reproduce.table2 import DATASET, identity_of, split_of
from spen.training.checkpoint import Epoch
from spen.training.loop import train

METHODS = ("exact", "lp", "lbp", "lbp-plain", "spen")
SHORT = {
    "exact": "exact",
    "lp": "LP",
    "lbp": "LBP, damped",
    "lbp-plain": "LBP, undamped",
    "spen": "SPEN",
}
"""What the picture calls them."""

FOLDS = 3
"""Folds that are looked at: every epoch is solved twice, once by enumeration."""


def violations(rows: Split, folds: int, seeds: int, records: Records) -> None:
    """Train on some folds, look at every epoch, print two tables and draw them.

    Args:
        rows: all of them.
        folds: into which they are divided; the first few are looked at.
        seeds: divisions into folds.
        records: where results are kept.
    """
    machines = read_machines()
    looked_at = range(min(folds, FOLDS))
    found = {
        name: [
            look(name, machines[name], rows, fold, folds, seed, records)
            for seed in range(seeds)
            for fold in looked_at
        ]
        for name in METHODS
    }
    say(render(found))
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
    curves = {SHORT[name]: each for name, each in found.items() if name != "exact"}
    draw(lambda plots: plots.draw_violations(
        {name: mean_epochs(each) for name, each in curves.items()},
        {name: mean_of(each, "search_errors") for name, each in curves.items()},
        records.folder / "violations",
    ))  # fmt: skip
    say(f"Records: {records.path}")


def look(
    name: str, machine: Machine, rows: Split, fold: int, folds: int, seed: int, records: Records
) -> Record:
    """Return what a method's solver saw in each epoch of one fold; train if it is not there yet."""
    rows_of_fold, test = split_of(rows, fold, folds, seed)
    place = {"seed": seed, "fold": fold, "decoding": None}
    common = identity_of("table2-violations", name, machine, folds, rows_of_fold, test)
    identity = common | place
    if (kept := records.find(identity)) is not None:
        return kept
    last = machine.stages[-1]
    assert isinstance(last.objective, Hinge)
    hinge, sights = last.objective, []

    def see(epoch: Epoch) -> None:
        if epoch.stage == last.name:
            context = trainee.model.context(seen.X, target=seen.Y)
            sights.append(sight_of(trainee.model, machine.inference, context, hinge).as_dict())

    epochs = (len(machine.decays) + 1) * sum(stage.epochs for stage in machine.stages)
    with epoch_bar(f"{name}, fold {fold}, seed {seed}, watched", epochs) as advance:
        decay, _ = choose_decay(machine, rows_of_fold, seed, [advance])
        trainee, seen = untrained(machine.with_decay(decay), rows_of_fold, seed)
        stages = trainee.machine.stages
        train(trainee.model, stages, seen, seed=seed, callbacks=[advance, see])
    record = identity | {
        "metrics": search_of(trainee, test.X),
        "chosen": {"weight_decay": decay},
        "epochs": {figure: [each[figure] for each in sights] for figure in sights[0]},
        "versions": versions(),
    }
    records.add(record)
    return record


def render(found: Mapping[str, Sequence[Record]]) -> str:
    """Lay out what each solver saw: the mean over epochs, and the last one."""
    header = ["", "violated", "seen", "under", "over", "loss seen / loss", "in the last epoch"]
    rows = []
    for name, records in found.items():
        epochs = mean_epochs(records)
        means = {figure: statistics.fmean(values) for figure, values in epochs.items()}
        shares = [f"{means[figure]:.2f}" for figure in ("violated", "seen", "under", "over")]
        rows.append([SHORT[name], *shares, f"{means['ratio']:.4f}", f"{epochs['ratio'][-1]:.4f}"])
    return text_table(header, rows)


def render_search(found: Mapping[str, Sequence[Record]]) -> str:
    """Lay out what each solver missed on test rows."""
    figures = {
        "search_errors": "search errors",
        "undecided": "undecided",
        "unsettled": "not settled",
    }
    rows = [
        [SHORT[name], *(f"{mean_of(records, figure):.2f}" for figure in figures)]
        for name, records in found.items()
    ]
    return text_table(["", *figures.values()], rows)


def mean_epochs(records: Sequence[Record]) -> dict[str, list[float]]:
    """Return each figure of each epoch, averaged over runs.

    >>> mean_epochs([{"epochs": {"under": [1.0, 2.0]}}, {"epochs": {"under": [3.0, 2.0]}}])
    {'under': [2.0, 2.0]}
    """
    names = records[0]["epochs"]
    return {
        name: [statistics.fmean(e) for e in zip(*(r["epochs"][name] for r in records), strict=True)]
        for name in names
    }


def mean_of(records: Sequence[Record], metric: str) -> float:
    """Return the mean of a metric over runs."""
    return statistics.fmean(record["metrics"][metric] for record in records)
