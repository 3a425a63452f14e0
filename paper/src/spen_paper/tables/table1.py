"""Table 1: F1 of every method of the paper on Bibtex, Bookmarks and Delicious.

What each test row scores is kept in the records, so that differences between methods have a
standard error over test rows, beside that over seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from spen import Dataset, InputError
from spen.cli.show import text_table
from spen.errors import choose
from spen.estimators.runs import sharing_runs
from spen.model import usable_device
from spen_paper import fits
from spen_paper.figures import difference, mean_and_deviation, say_table
from spen_paper.records import F1_RULE, Record, Records, check_seeds, methods_named, unpack_rows
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
    "control-single": "MLP, and the energy's stage without an energy",
    "spen-single": "SPEN, cross-fitted, one network",
    "control-best": "MLP, our best, and that stage without an energy",
    "spen-best": "SPEN, our best",
}
PAIRS = (
    ("spen-single", "mlp"),
    ("spen-single", "control-single"),
    ("spen-best", "mlp-best"),
    ("spen-best", "control-best"),
)
"""What the energy adds: to the same networks alone, and to its stage without an energy."""

DECODINGS = {
    "threshold": "threshold",
    "row_threshold": "one a row",
    "expected_f1": "expected F1",
}
"""Every fit is decoded by one threshold, by one for each row, and by expected F1."""

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

DRAWS = 2000
"""Of the bootstrap over test rows."""


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
    # Said before the data are looked for.
    methods_named(method, TITLES)
    records = Records(out)
    data = fits.dataset_of(dataset)
    found = collect(data, method, range(seeds), device, records)
    names = [name for name in TITLES if any(record["method"] == name for record in found)]
    say_table(render(dataset, names, found), remarks(dataset, found, data), records)


def collect(
    data: Dataset,
    method: str | None,
    seeds: Iterable[int],
    device: str,
    records: Records,
    settings: str = "table1",
) -> list[Record]:
    """Return the records of all fits, by decoding; make those that are not there yet.

    Args:
        data: with test rows, which each fit reads once.
        method: names, separated by commas; None means all.
        seeds: of the fits.
        device: where to compute.
        records: where they are kept.
        settings: the file that they come from: "table1", or those of before, "studies".
    """
    tables = settings_of(data.name, settings)
    names = methods_named(method, [name for name in TITLES if name in tables])
    changes: dict[str, Any] = {}
    options: dict[str, Any] = {}
    if settings == "table1":
        # What rows' thresholds need is tuned where they are asked for.
        changes = {"decoding": "row_threshold"}
        options = {"decodings": tuple(DECODINGS), "keep_rows": True}
    makers = fits.makers_of(tables, names, data, device, settings, **changes)
    found: list[Record] = []
    for seed in seeds:
        with sharing_runs():
            for name in names:
                make = partial(makers[name], seed=seed)
                place = ("table1", name, make, data, seed, records)
                found += fits.run(*place, progress=True, **options).values()
    return found


def before(*, dataset: str, seeds: int, device: str, out: Path) -> None:
    """Print the table with the settings that it had before its search was made anew."""
    records = Records(out)
    data = fits.dataset_of(dataset)
    names = [name for name in TITLES if not name.startswith("control") and "raw" not in name]
    found = collect(data, ",".join(names), range(seeds), device, records, "studies")
    say_table(
        render(dataset, names, found), ["Settings: spen_paper/settings/studies.toml"], records
    )


def study_named(name: str) -> Callable[..., None]:
    """Return a study, or raise an error that suggests the nearest one.

    Each takes ``dataset``, ``seeds``, ``device`` and ``out``, and prints and draws by itself.
    """
    from spen_paper.studies.costs import costs
    from spen_paper.studies.known_labels import known_labels
    from spen_paper.studies.study import ablation, learning_curves, width

    studies = {
        "learning-curves": learning_curves,
        "width": width,
        "known-labels": known_labels,
        "ablation": ablation,
        "before": before,
        "costs": costs,
    }
    return choose(name, studies, "study")


def render(dataset: str, names: Sequence[str], records: Sequence[Record]) -> str:
    """Lay the table out: the published figures, and ours under each decoding.

    Times are not in it: records may come from several machines. ``--study costs`` has them.
    """
    ways = [way for way in DECODINGS if any(record["decoding"] == way for record in records)]
    header = ["", "paper", "record", *(DECODINGS[way] for way in ways), "seeds"]
    rows = []
    for name in names:
        paper = PAPER[dataset].get(name)
        best = PUBLISHED[dataset][0] if name == "spen-best" else None
        scores = [list(scores_of(records, name, decoding).values()) for decoding in ways]
        figures = ["" if figure is None else f"{figure:.1f}" for figure in (paper, best)]
        ours = map(mean_and_deviation, scores)
        rows.append([TITLES[name], *figures, *ours, str(len(scores[0]))])
    return text_table(header, rows)


def remarks(dataset: str, records: Sequence[Record], data: Dataset) -> list[str]:
    """Return what a reader of the table must know, line by line."""
    figure, whose = PUBLISHED[dataset]
    rows, features = data.train.X.shape
    notes: dict[str, str] = {}
    for record in records:
        for note in record.get("notes", []):
            # The first is enough: what the method's inference had to say.
            notes.setdefault(record["method"], f"{record['method']}, seed {record['seed']}: {note}")
    parts = []
    if any(scores_of(records, name, "threshold") for name, _ in PAIRS):
        parts = [
            render_pairs(records),
            "",
            "Over seeds: ± standard error of the difference, paired by seed. Over rows: ± that of",
            f"the mean over seeds, paired by row, by a bootstrap of {DRAWS:,} draws of the test",
            "rows. control: the stage of the energy, which trains a scale and a shift for each",
            "label, with an energy that is zero.",
            "",
        ]
    return [
        *parts,
        *without_repeated(records, data),
        f"paper: its Table 1; record: the best published that we know of, {figure} ({whose}).",
        f"Ours: test F1, mean ± standard deviation over seeds; {F1_RULE}.",
        "Each fit is decoded in each way. One a row: threshold t · (the row's largest",
        "probability)^c; t and c from held-out rows.",
        f"Official split: {rows:,} training and {len(data.test):,} test rows, "
        f"{features:,} features, {data.train.Y.shape[1]} labels. Held-out training rows "
        "choose, calibrate and tune; docs/reproduce.md says how the settings came about.",
        *notes.values(),
        "Settings: spen_paper/settings/table1.toml",
    ]


def render_pairs(records: Sequence[Record]) -> str:
    """Lay out the differences of PAIRS, with their errors over seeds and over rows."""
    header = ["difference"]
    for words in DECODINGS.values():
        header += [f"{words}, over seeds", "over rows"]
    lines = []
    for one, other in PAIRS:
        line = [f"{one} − {other}"]
        for way in DECODINGS:
            ours, theirs = (scores_of(records, name, way) for name in (one, other))
            seeds = [seed for seed in ours if seed in theirs]
            if not seeds:
                break
            line.append(difference([ours[k] for k in seeds], [theirs[k] for k in seeds]))
            gaps = rows_of(records, one, way, seeds) - rows_of(records, other, way, seeds)
            line.append(f"± {error_over_rows(gaps):.2f}")
        else:
            lines.append(line)
    return text_table(header, lines)


def without_repeated(records: Sequence[Record], data: Dataset) -> list[str]:
    """Say what the table is without the test rows that have the features of a training row."""
    repeated = repeated_rows(data)
    names = dict.fromkeys(record["method"] for record in records if "row_f1" in record)
    if not names or not repeated.any():
        return []
    lines = []
    for name in names:
        line = [TITLES[name]]
        for way in DECODINGS:
            rows = rows_of(records, name, way, list(scores_of(records, name, way)))
            line.append(f"{rows[~repeated].mean():.1f}")
        lines.append(line)
    return [
        f"Without the {repeated.sum():,} of {len(repeated):,} test rows whose features are those "
        "of some training row:",
        "",
        text_table(["", *DECODINGS.values()], lines),
        "",
    ]


def repeated_rows(data: Dataset) -> np.ndarray:
    """Return which test rows (n,) have exactly the features of some training row."""
    train, test = (sparse.csr_matrix(part.X) for part in (data.train, data.test))
    seen = set(map(_row_bytes, train))
    return np.array([_row_bytes(row) in seen for row in test])


def _row_bytes(row: Any) -> bytes:
    row.sum_duplicates()
    row.eliminate_zeros()
    return row.indices.tobytes() + b"|" + np.asarray(row.data, float).tobytes()


def error_over_rows(gaps: np.ndarray, draws: int = DRAWS) -> float:
    """Return the standard error of a mean over rows, by a bootstrap.

    >>> gaps = np.random.default_rng(1).normal(size=400)
    >>> bool(abs(error_over_rows(gaps) - gaps.std() / 20) < 0.003)
    True
    """
    rng = np.random.default_rng(0)
    means = [rng.choice(gaps, len(gaps)).mean() for _ in range(draws)]
    return float(np.std(means))


def scores_of(records: Sequence[Record], method: str, decoding: str) -> dict[int, float]:
    """Return F1 by seed."""
    mine = [r for r in records if (r["method"], r["decoding"]) == (method, decoding)]
    return {record["seed"]: record["metrics"]["f1"] for record in mine}


def rows_of(
    records: Sequence[Record], method: str, decoding: str, seeds: Sequence[int]
) -> np.ndarray:
    """Return the F1 of each test row (n,) in percent, averaged over seeds."""
    mine = [r for r in records if (r["method"], r["decoding"]) == (method, decoding)]
    rows = [unpack_rows(record["row_f1"]) for record in mine if record["seed"] in seeds]
    return 100 * np.mean(rows, axis=0)
