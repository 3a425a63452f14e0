"""Table 1: F1 of every method of the paper on Bibtex, Bookmarks and Delicious; and their costs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from spen import Dataset, InputError
from spen.cli.show import text_table
from spen.errors import choose
from spen.estimators.base import LabelClassifier
from spen.estimators.runs import sharing_runs
from spen.model import usable_device
from spen_paper import fits
from spen_paper.figures import difference, mean_and_deviation, say_table
from spen_paper.records import F1_RULE, Record, Records, check_seeds, identity, methods_named
from spen_paper.settings import settings_of

DATASETS = ("bibtex", "delicious", "bookmarks")
TITLES = {
    "br": "BR, logistic regressions",
    "lr": "LR, low-rank weights",
    "mlp": "MLP",
    "mlp-best": "MLP, our best",
    "dmf": "DMF, deep mean field",
    "prlr": "PRLR, missing labels",
    "spen-paper": "SPEN, the paper's recipe",
    "spen-paper-raw": "SPEN, the paper's recipe, raw outputs",
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
"""The best published figure that we know of on the same split, and whose it is."""

PREDICTIONS = 5
"""Times that the test rows are predicted to see what that costs; the median counts."""


def table1(
    dataset: str, method: str | None, seeds: int, device: str, out: Path, study: str | None
) -> None:
    """Compare every method of the paper on a real data set (Table 1), or make a study of it."""
    choose(dataset, dict.fromkeys(DATASETS), "data set")
    check_seeds(seeds)
    usable_device(device)
    if study is not None:
        if method is not None:
            raise InputError("A study has its own methods. Leave --method or --study out.")
        chosen = study_named(study)
        with nullcontext() if study == "costs" else sharing_runs():
            chosen(dataset=dataset, seeds=seeds, device=device, out=out)
        return
    tables = settings_of(dataset)
    names = methods_named(method, [name for name in TITLES if name in tables])
    records = Records(out)
    data = fits.dataset_of(dataset)
    makers = fits.makers_of(tables, names, data, device, "table1")
    found = []
    for seed in range(seeds):
        with sharing_runs():
            for name in names:
                make = partial(makers[name], seed=seed)
                both = fits.run("table1", name, make, data, seed, records, progress=True)
                found += both.values()
    say_table(render(dataset, names, found), remarks(dataset, found, data), records)


def study_named(name: str) -> Callable[..., None]:
    """Return a study, or raise an error that suggests the nearest one.

    Each takes ``dataset``, ``seeds``, ``device`` and ``out``, and prints and draws by itself.
    """
    from spen_paper.studies.control import control
    from spen_paper.studies.known_labels import known_labels
    from spen_paper.studies.study import ablation, learning_curves, width

    studies = {
        "learning-curves": learning_curves,
        "width": width,
        "known-labels": known_labels,
        "ablation": ablation,
        "control": control,
        "costs": costs,
    }
    return choose(name, studies, "study")


def render(dataset: str, names: Sequence[str], records: Sequence[Record]) -> str:
    """Lay the table out: the published figures, and ours under both decodings.

    Times are not in it: records may come from several machines. ``--study costs`` has them.
    """
    header = ["", "paper", "record", *fits.DECODINGS.values(), "seeds"]
    rows = []
    for name in names:
        paper = PAPER[dataset].get(name)
        best = PUBLISHED[dataset][0] if name == "spen-best" else None
        scores = [list(_scores(records, name, decoding).values()) for decoding in fits.DECODINGS]
        figures = ["" if figure is None else f"{figure:.1f}" for figure in (paper, best)]
        ours = map(mean_and_deviation, scores)
        rows.append([TITLES[name], *figures, *ours, str(len(scores[0]))])
    return text_table(header, rows)


def remarks(dataset: str, records: Sequence[Record], data: Dataset) -> list[str]:
    """Return what a reader of the table must know, line by line."""
    figure, whose = PUBLISHED[dataset]
    rows, features = data.train.X.shape
    pairs = (("spen-single", "mlp"), ("spen-best", "mlp-best"))
    notes: dict[str, str] = {}
    for record in records:
        for note in record.get("notes", []):
            # The first is enough: what the method's inference had to say.
            notes.setdefault(record["method"], f"{record['method']}, seed {record['seed']}: {note}")
    return [
        *(words for pair in pairs if (words := paired_difference(records, *pair))),
        f"paper: its Table 1; record: the best published that we know of, {figure} ({whose}).",
        "Ours: test F1, mean ± standard deviation over seeds; "
        f"{F1_RULE}. Each fit is decoded both ways.",
        f"Official split: {rows:,} training and {len(data.test):,} test rows, "
        f"{features:,} features, {data.train.Y.shape[1]} labels. Held-out training rows "
        "choose, calibrate and tune; docs/reproduce.md says how the settings came about.",
        *notes.values(),
        "Settings: spen_paper/settings/table1.toml",
    ]


def paired_difference(records: Sequence[Record], one: str, other: str) -> str:
    """Say by how much one method is better than another, seed by seed; "" without both.

    >>> def record(method, seed, f1, decoding):
    ...     return {"method": method, "seed": seed, "decoding": decoding, "metrics": {"f1": f1}}
    >>> runs = [("mlp", 0, 40.0), ("mlp", 1, 42.0), ("spen-best", 0, 41.0), ("spen-best", 1, 42.0)]
    >>> found = [record(*run, decoding) for decoding in fits.DECODINGS for run in runs]
    >>> paired_difference(found, "spen-best", "mlp")
    'spen-best − mlp, paired over 2 seeds: threshold +0.50 ± 0.50, expected F1 +0.50 ± 0.50
    (± standard error).'
    """
    parts, seeds = [], []
    for decoding, words in fits.DECODINGS.items():
        ours, theirs = (_scores(records, name, decoding) for name in (one, other))
        seeds = [seed for seed in ours if seed in theirs]
        if not seeds:
            return ""
        gain = difference(*([scores[seed] for seed in seeds] for scores in (ours, theirs)))
        parts.append(f"{words} {gain}")
    over = "1 seed" if len(seeds) == 1 else f"{len(seeds)} seeds"
    error = " (± standard error)" if len(seeds) > 1 else ""
    return f"{one} − {other}, paired over {over}: {', '.join(parts)}{error}."


def _scores(records: Sequence[Record], method: str, decoding: str) -> dict[int, float]:
    """Return F1 by seed."""
    mine = [r for r in records if (r["method"], r["decoding"]) == (method, decoding)]
    return {record["seed"]: record["metrics"]["f1"] for record in mine}


# What each method costs, as ratios to the MLP: times of one machine, taken in turns --------------


def costs(dataset: str, seeds: int, device: str, out: Path) -> None:
    """Fit each method once, right after the MLP, and print the ratios of their times.

    ``seeds`` is there for the sake of the other studies: one fit tells what a fit costs.
    """
    records = Records(out)
    data = fits.dataset_of(dataset)
    makers = fits.makers_of(settings_of(dataset), list(TITLES), data, device, "table1")
    mlp = partial(makers["mlp"], seed=0)
    pairs = {
        TITLES[name]: compare_costs(name, partial(make, seed=0), mlp, data, records)
        for name, make in makers.items()
        if name != "mlp"
    }
    where = fits.device_in_words(usable_device(device))
    remark = (
        f"{data.name}, {len(data.train):,} training and {len(data.test):,} test rows, "
        f"{where}. Each method was fitted\nright after the MLP "
        "in one process, with all that is done on held-out rows. Predictions are\nprobabilities "
        f"of the test rows; medians of {PREDICTIONS}, taken in turns with the MLP's."
    )
    say_table(render_costs(pairs), [remark], records)


def compare_costs(
    name: str,
    make: Callable[[], LabelClassifier],
    make_mlp: Callable[[], LabelClassifier],
    data: Dataset,
    records: Records,
) -> Record:
    """Return the times of a method and of the MLP, taken one after the other.

    Args:
        name: of the method.
        make: returns its classifier, not fitted.
        make_mlp: returns the MLP.
        data: with test rows.
        records: where the times are kept.
    """
    method, mlp = make(), make_mlp()
    where = fits.device_in_words(usable_device(method.device))
    words, mlp_words = (fits.describe_plan(each, data) for each in (method, mlp))
    settings = words | {"mlp": mlp_words, "device": where}

    def measure() -> Record:
        mlp_seconds = fits.timed_fit(mlp, data, f"mlp, for {name}")
        seconds = fits.timed_fit(method, data, name)
        times = [[_predict_seconds(each, data) for each in (method, mlp)]
                 for _ in range(PREDICTIONS)]  # fmt: skip
        predict_seconds, mlp_predict_seconds = map(statistics.median, zip(*times, strict=True))
        return {
            "metrics": {},
            "seconds": round(seconds, 3),
            "mlp_seconds": round(mlp_seconds, 3),
            "predict_seconds": round(predict_seconds, 5),
            "mlp_predict_seconds": round(mlp_predict_seconds, 5),
        }

    place = ("costs", data.name, name, len(data.train), method.random_state, settings)
    return records.make(identity(*place, rule="ratios of times, not scores"), measure)


def render_costs(records: dict[str, Record]) -> str:
    """Lay the ratios out, with the times that they come from; one row a title."""
    header = ["", "training / MLP", "prediction / MLP"]
    header += ["fit, s", "MLP fit, s", "predict, s", "MLP predict, s"]
    rows = [["MLP", "1", "1", "", "", "", ""]]
    for title, record in records.items():
        pairs = [(record[what], record[f"mlp_{what}"]) for what in ("seconds", "predict_seconds")]
        ratios = [f"{mine / mlp:.2g}" for mine, mlp in pairs]
        rows.append([title, *ratios, *(f"{value:.3g}" for pair in pairs for value in pair)])
    return text_table(header, rows)


def _predict_seconds(fitted: LabelClassifier, data: Dataset) -> float:
    began = time.perf_counter()
    fitted.predict_proba(data.test.X)
    return time.perf_counter() - began
