"""Table 1: F1 of every method of the paper on Bibtex, Bookmarks and Delicious."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from spen.cli.show import say, text_table
from spen.data.dataset import Dataset
from spen.errors import InputError, choose
from spen.estimators.fit import sharing_runs
from spen.model import usable_device
from spen.reproduce.classifiers import classifier, dataset_of, identity_of, run, settings_of
from spen.reproduce.plain import run_plain
from spen.reproduce.protocol import F1_RULE
from spen.reproduce.records import Record, Records
from spen.reproduce.table3 import mean_and_deviation

DATASETS = ("bibtex", "delicious", "bookmarks")
TITLES = {
    "br": "BR, logistic regressions",
    "lr": "LR, low-rank weights",
    "mlp": "MLP",
    "mlp-best": "MLP, our best",
    "dmf": "DMF, deep mean field",
    "prlr": "PRLR, missing labels",
    "spen-paper": "SPEN, the paper's recipe",
    "spen-single": "SPEN, cross-fitted, one network",
    "spen-best": "SPEN, our best",
}
PAPER: dict[str, dict[str, float]] = {
    "bibtex": {"br": 37.2, "lr": 39.0, "mlp": 38.9, "dmf": 40.0, "prlr": 44.2, "spen-paper": 42.2},
    "bookmarks": {"br": 30.7, "lr": 31.0, "mlp": 33.8, "dmf": 33.1, "spen-paper": 34.4},
    "delicious": {
        "br": 26.5, "lr": 35.3, "mlp": 37.8, "dmf": 34.2, "prlr": 33.3, "spen-paper": 37.5,
    },
}  # fmt: skip
"""The paper's figures: example-averaged F1 in percent, with a tuned threshold."""

PUBLISHED: dict[str, tuple[float, str]] = {
    "bibtex": (44.7, "Gygli et al. 2017; Lanchantin et al. 2019"),
    "bookmarks": (38.9, "Lanchantin et al. 2019"),
    "delicious": (37.8, "the paper's MLP"),
}
"""The best published figure of any method on the same split, and whose it is."""

IN_WORDS = {"threshold": "threshold", "expected_f1": "expected F1"}


def table1(
    dataset: str = "bibtex",
    method: str | None = None,
    seeds: int = 5,
    device: str = "auto",
    out: Path = Path("runs/table1"),
    study: str | None = None,
) -> None:
    """Compare every method of the paper on a real data set (Table 1).

    Runs that are already in OUT/records.jsonl are not made again, so a killed run goes on.
    """
    choose(dataset, dict.fromkeys(DATASETS), "data set")
    if seeds < 1:
        raise InputError(f"seeds must be 1 or more; received {seeds}.")
    usable_device(device)
    if study is not None:
        if method is not None:
            raise InputError("A study has its own methods. Leave --method or --study out.")
        chosen = study_named(study)
        with nullcontext() if study == "costs" else sharing_runs():
            chosen(dataset=dataset, seeds=seeds, device=device, out=out)
        return
    names = methods_named(method, dataset)
    records = Records(out)
    data = dataset_of(dataset)
    makers = makers_of(data, names, device)
    found = []
    for seed in range(seeds):
        with sharing_runs():
            for name in names:
                make = partial(makers[name], seed=seed)
                found += run("table1", name, make, data, seed, records, progress=True).values()
    say(render(dataset, names, found))
    say()
    for line in remarks(dataset, found, data):
        say(line)
    say(f"Records: {records.path}")


def methods_named(text: str | None, dataset: str) -> list[str]:
    """Return the methods that a comma-separated list names, in the table's order; None is all.

    >>> methods_named("mlp,br", "bibtex")
    ['br', 'mlp']
    """
    if text is None:
        return [name for name in TITLES if name in settings_of(dataset)]
    wanted = [name.strip() for name in text.split(",") if name.strip()]
    for name in wanted:
        choose(name, TITLES, "method")
    if not wanted:
        raise InputError(f"No method is named. Choose from: {', '.join(TITLES)}.")
    return [name for name in TITLES if name in wanted]


def makers_of(data: Dataset, names: Sequence[str], device: str) -> dict[str, Callable[..., Any]]:
    """Return a function for each method that makes its classifier, given a seed.

    Every classifier is made and checked once here, so that a mistake in the last one's settings
    is not found after hours of work on the first.
    """
    tables = settings_of(data.name)
    makers = {}
    for name in names:
        table = choose(name, tables, f"method in table1.toml, [{data.name}]")
        where = f"table1.toml, [{data.name}.{name}]"
        makers[name] = partial(classifier, table, device=device, where=where)
        identity_of(makers[name](seed=0), data)
    return makers


def study_named(name: str) -> Callable[..., None]:
    """Return a study, or raise an error that suggests the nearest one."""
    from spen.reproduce.costs import costs
    from spen.reproduce.studies import STUDIES

    return choose(name, {**STUDIES, "costs": costs}, "study")


def render(dataset: str, names: Sequence[str], records: Sequence[Record]) -> str:
    """Lay the table out: the published figures, and ours under both decodings.

    Times are not in it: records may come from several machines. ``--study costs`` has them.
    """
    header = ["", "paper", "record", *IN_WORDS.values(), "seeds"]
    rows = []
    for name in names:
        mine = [record for record in records if record["method"] == name]
        paper = PAPER[dataset].get(name)
        best = PUBLISHED[dataset][0] if name == "spen-best" else None
        scores = [_scores(mine, decoding) for decoding in IN_WORDS]
        rows.append(
            [
                TITLES[name],
                *("" if figure is None else f"{figure:.1f}" for figure in (paper, best)),
                *(mean_and_deviation(list(each.values())) for each in scores),
                str(len(scores[0])),
            ]
        )
    return text_table(header, rows)


def remarks(dataset: str, records: Sequence[Record], data: Dataset) -> list[str]:
    """Return what a reader of the table must know, line by line."""
    figure, whose = PUBLISHED[dataset]
    rows, features = data.train.X.shape
    lines = []
    for ours, theirs in (("spen-single", "mlp"), ("spen-best", "mlp-best")):
        if difference := paired_difference(records, ours, theirs):
            lines.append(difference)
    return [
        *lines,
        f"paper: its Table 1; record: the best published of any method, {figure} ({whose}).",
        "Ours: test F1, mean ± standard deviation over seeds; "
        f"{F1_RULE}. Each fit is decoded both ways.",
        f"Official split: {rows:,} training and {len(data.test):,} test rows, "
        f"{features:,} features, {data.train.Y.shape[1]} labels. Held-out training rows "
        "choose, calibrate and tune; docs/reproduce.md says how the settings came about.",
        *_notes(records),
        "Settings: spen/reproduce/settings/table1.toml",
    ]


def paired_difference(records: Sequence[Record], one: str, other: str) -> str:
    """Say by how much one method is better than another, seed by seed; "" without both.

    >>> def record(method, seed, f1, decoding):
    ...     return {"method": method, "seed": seed, "decoding": decoding, "metrics": {"f1": f1}}
    >>> fits = [("mlp", 0, 40.0), ("mlp", 1, 42.0), ("spen-best", 0, 41.0), ("spen-best", 1, 42.0)]
    >>> paired_difference([record(*fit, d) for d in IN_WORDS for fit in fits], "spen-best", "mlp")
    'spen-best − mlp, paired over 2 seeds: threshold +0.50 ± 0.50, expected F1 +0.50 ± 0.50
    (± standard error).'
    """
    parts, count = [], 0
    for decoding, words in IN_WORDS.items():
        ours, theirs = (
            _scores([r for r in records if r["method"] == name], decoding) for name in (one, other)
        )
        gains = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
        if not gains:
            return ""
        count = len(gains)
        text = f"{words} {statistics.fmean(gains):+.2f}"
        if count > 1:
            text += f" ± {statistics.stdev(gains) / math.sqrt(count):.2f}"
        parts.append(text)
    over = "1 seed" if count == 1 else f"{count} seeds"
    error = " (± standard error)" if count > 1 else ""
    return f"{one} − {other}, paired over {over}: {', '.join(parts)}{error}."


def _scores(records: Sequence[Record], decoding: str) -> dict[int, float]:
    """Return F1 by seed."""
    return {r["seed"]: r["metrics"]["f1"] for r in records if r["decoding"] == decoding}


def _notes(records: Sequence[Record]) -> list[str]:
    """Return the first note of each method: what its inference had to say."""
    first: dict[str, str] = {}
    for record in records:
        for note in record.get("notes", []):
            first.setdefault(record["method"], f"{record['method']}, seed {record['seed']}: {note}")
    return list(first.values())


if __name__ == "__main__":
    run_plain(table1)
