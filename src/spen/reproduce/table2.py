"""Table 2: structured SVMs with exact, relaxed and approximate inference on Yeast."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy import sparse

from spen.batch.splits import Split
from spen.cli.show import say, text_table
from spen.data.dataset import Dataset, join
from spen.data.load import load_dataset
from spen.errors import InputError, check_whole, choose
from spen.estimators.fit import epoch_bar
from spen.files import versions
from spen.metrics import hamming_error
from spen.reproduce.classifiers import device_in_words
from spen.reproduce.machines import Machine, choose_decay, read_machines, train_machine
from spen.reproduce.plain import run_plain
from spen.reproduce.records import Record, Records, brief
from spen.reproduce.search import search_of
from spen.reproduce.study import difference

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
STUDIES = ("violations",)
OFFICIAL_TEST = 917
"""Test rows of the split that comes with Yeast."""


def table2(
    method: str | None = None,
    folds: int = 10,
    seeds: int = 1,
    out: Path = Path("runs/table2"),
    study: str | None = None,
) -> None:
    """Compare SSVMs that train and predict with one solver each, by cross-validation (Table 2).

    Runs that are already in OUT/records.jsonl are not made again, so a killed run goes on.
    """
    names = methods_named(method)
    check_whole(folds, "folds", least=2)
    check_whole(seeds, "seeds")
    if study is not None:
        choose(study, dict.fromkeys(STUDIES), "study")
        if method is not None:
            raise InputError("A study has its own methods. Leave --method or --study out.")
    records = Records(out)
    rows = all_rows(load_dataset(DATASET))
    if study is not None:
        from spen.reproduce.violations import violations

        violations(rows, folds, seeds, records)
        return
    machines = read_machines()
    found = [
        run(name, machines[name], rows, fold, folds, seed, records)
        for seed in range(seeds)
        for fold in range(folds)
        for name in names
    ]
    say(render(names, found))
    say()
    for line in remarks(rows, folds, seeds, found):
        say(line)
    say(f"Records: {records.path}")


def methods_named(text: str | None) -> list[str]:
    """Return the methods that a comma-separated list names, in the table's order; None is all.

    >>> methods_named("lp,exact")
    ['exact', 'lp']
    """
    machines = read_machines()
    wanted = list(machines) if text is None else [name.strip() for name in text.split(",")]
    for name in wanted:
        choose(name, machines, "method")
    return [name for name in machines if name in wanted]


def all_rows(data: Dataset) -> Split:
    """Return the rows of all parts of a data set together, dense."""
    parts = [part for part in (data.train, data.valid, data.test) if part is not None]
    rows = join(parts)
    return replace(rows, X=_dense(rows.X), Y=_dense(rows.Y))


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


def identity_of(
    experiment: str, name: str, machine: Machine, folds: int, train: Split, test: Split
) -> Record:
    """Return what the records of a method's folds have in common, and the sizes of this one."""
    return {
        "experiment": experiment,
        "dataset": DATASET,
        "method": name,
        "n_train": len(train),
        "settings": brief(replace(machine, title="")) | {"folds": folds, "n_test": len(test)},
    }


def run(
    name: str, machine: Machine, rows: Split, fold: int, folds: int, seed: int, records: Records
) -> Record:
    """Return the record of one method on one fold; make it if it is not there yet."""
    train, test = split_of(rows, fold, folds, seed)
    place = {"seed": seed, "fold": fold, "decoding": "threshold"}
    identity = identity_of("table2", name, machine, folds, train, test) | place
    if (found := records.find(identity)) is not None:
        return found
    with epoch_bar(f"{name}, fold {fold}, seed {seed}", machine.epochs()) as advance:
        began, clocks = time.perf_counter(), [time.process_time()]
        decay, tried = choose_decay(machine, train, seed, [advance])
        clocks.append(time.process_time())
        trained = train_machine(machine.with_decay(decay), train, seed, [advance])
        clocks.append(time.process_time())
        labels = trained.predict(test.X)
        clocks.append(time.process_time())
        seconds = time.perf_counter() - began
    spent = [round(after - before, 4) for before, after in itertools.pairwise(clocks)]
    wrong = (labels != test.Y).mean(1)
    record = identity | {
        "metrics": {
            "hamming": round(100 * hamming_error(test.Y, labels), 4),
            "row_deviation": round(100 * float(wrong.std()), 4),
        }
        | search_of(trained, test.X),
        "chosen": {
            "weight_decay": decay,
            "held_out_hamming": {f"{each:g}": error for each, error in tried.items()},
        },
        "seconds": round(seconds, 3),
        "cpu_seconds": dict(zip(CLOCKS, spent, strict=True)),
        "device": device_in_words(trained.model.reference.device),
        "rule": RULE,
        "versions": versions(),
    }
    records.add(record)
    return record


def render(names: Sequence[str], records: Sequence[Record]) -> str:
    """Lay the table out: ours beside the paper's, what inference missed, and seconds."""
    header = [
        "",
        "paper",
        "Hamming error",
        "sd",
        "search errors",
        *(f"{what}, s" for what in CLOCKS),
    ]
    machines, rows = read_machines(), []
    for name in names:
        mine = [record for record in records if record["method"] == name]
        errors = [record["metrics"]["hamming"] for record in mine]
        missed = [m["search_errors"] for r in mine if "search_errors" in (m := r["metrics"])]
        rows.append(
            [
                machines[name].title,
                PAPER.get(name, ""),
                f"{statistics.fmean(errors):.2f} ± {standard_error(mine):.2f}",
                f"{_deviation(errors):.2f}",
                f"{statistics.fmean(missed):.2f} %" if missed else "",
                *(
                    f"{statistics.median(record['cpu_seconds'][what] for record in mine):.2f}"
                    for what in CLOCKS
                ),
            ]
        )
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
    return _deviation(errors) / math.sqrt(len({record["fold"] for record in records}))


def remarks(rows: Split, folds: int, seeds: int, records: Sequence[Record]) -> Iterator[str]:
    """Yield what a reader of the table must know, line by line."""
    cpu = sum(sum(record["cpu_seconds"].values()) for record in records)
    clock = sum(record["seconds"] for record in records)
    for one, other in COMPARED:
        errors = [
            {
                (r["seed"], r["fold"]): r["metrics"]["hamming"]
                for r in records
                if r["method"] == each
            }
            for each in (one, other)
        ]
        if all(errors):
            gap = difference(*([each[key] for key in sorted(each)] for each in errors))
            yield f"{one} − {other}, paired over folds: {gap} (± standard error)."
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
    yield (
        "Search errors: test rows whose labelling has more energy than the least of all. Seconds: "
        "CPU time of one fold, median over folds, to choose, to train, and to predict its test "
        f"rows; all of it took {cpu / 60:.1f} minutes of CPU time, {clock / 60:.1f} by the clock."
    )
    deviations = [
        record["metrics"]["row_deviation"] for record in records if record["method"] == "exact"
    ]
    if deviations:
        row = math.sqrt(statistics.fmean(each**2 for each in deviations))
        all_of_them, official = (row / math.sqrt(count) for count in (len(rows), OFFICIAL_TEST))
        yield (
            f"The error of a single row has a standard deviation of {row:.1f} (exact): the "
            f"standard error of a mean over {len(rows):,} rows is {all_of_them:.2f}, and over the "
            f"{OFFICIAL_TEST} test rows of the official split {official:.2f}."
        )
    yield "Settings: spen/reproduce/settings/table2.toml"


def _deviation(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def _dense(matrix: object) -> np.ndarray:
    values = matrix.toarray() if sparse.issparse(matrix) else matrix  # type: ignore[attr-defined]
    return np.asarray(values, dtype=np.float32)


if __name__ == "__main__":
    run_plain(table2)
