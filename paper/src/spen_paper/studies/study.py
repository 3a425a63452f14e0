"""Studies of where the energy pays: with how many rows, how wide a network, and part by part.

``Study`` is what these and other studies have in common.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from spen import Dataset, Split
from spen.cli.show import say, text_table
from spen.errors import choose
from spen.estimators.base import LabelClassifier
from spen.estimators.recipe import is_auto
from spen_paper.figures import deviation, difference, draw, mean_and_deviation, paired
from spen_paper.fits import DECODINGS, dataset_of, plan_of, run, tell
from spen_paper.records import F1_RULE, Record, Records, check_seeds, identity
from spen_paper.settings import classifier, settings_of
from spen_paper.studies import variants
from spen_paper.studies.variants import Changes, changed

DECODING_TITLES = {"threshold": "one threshold", "expected_f1": "expected F1"}
LONGEST = 4.0
"""With few rows, epochs are at most this many times those of the settings."""

Scores = dict[str, list[float]]
"""F1 in percent by decoding, one for each seed."""

Cells = Mapping[str, Mapping[str, Scores]]
"""Scores by the title of a cell and the name of a method."""

Panel = tuple[str, dict[str, tuple[list[float], list[float], list[float]]]]
"""A title, and the lines of a plot: x, mean and deviation of each, by name."""

SHARES = (0.05, 0.1, 0.25, 0.5, 1.0)
WIDTHS = (50, 150, 500, 1000, 2000)
PAPER_WIDTHS = (50, 150, 500)
"""The paper's networks are small, and its hinge takes long to train."""

DROPOUT: dict[str, Changes] = {"no dropout": {"dropout": 0.0, "input_dropout": 0.0}, "dropout": {}}
LAYERS = 2
"""Where the settings leave the network to the recipe."""

UNCHANGED = "unchanged"
NO_MEASUREMENTS = "0 measurements (the MLP)"
ABLATED: dict[str, tuple[str, Callable[[LabelClassifier, Split], dict[str, Changes]]]] = {
    "spen-single": ("the cross-fitted SPEN", variants.likelihood_variants),
    "spen-paper": ("the paper's SPEN, trained by a hinge", variants.hinge_variants),
}
ABLATIONS_IN_WORDS = (
    "A value that is missing from a series is that of the unchanged model.",
    "temperature: the weight of the entropy in inference, in training and prediction.",
    "without pre-training: as many epochs of the hinge, on everything, in its place.",
    "features never clamped: they train at the last stage's rate in the second stage too.",
)


@dataclass(frozen=True)
class Study:
    """The data, the settings and the records that all runs of a study share.

    Attributes:
        experiment: what the records call the study.
        data: the data set.
        tables: the settings of each method.
        seeds: how many repetitions.
        device: where to compute.
        records: where results are kept.
    """

    experiment: str
    data: Dataset
    tables: dict[str, dict[str, Any]]
    seeds: int
    device: str
    records: Records

    @classmethod
    def open(cls, experiment: str, dataset: str, seeds: int, device: str, out: Path) -> Study:
        """Load what a study needs; say what is wrong with its options before any work."""
        check_seeds(seeds)
        tables, records = settings_of(dataset, "studies"), Records(out)
        return cls(experiment, dataset_of(dataset), tables, seeds, device, records)

    def classifier(self, method: str, seed: int = 0) -> LabelClassifier:
        """Return the classifier of a method's settings, not fitted."""
        table = choose(method, self.tables, "method")
        where = f"studies.toml, [{self.data.name}.{method}]"
        return classifier(table, seed=seed, device=self.device, where=where)

    def scores(
        self,
        method: str,
        variant: str,
        changes: Changes | Callable[[LabelClassifier], Changes],
        data: Callable[[int], Dataset] | None = None,
        kind: type[LabelClassifier] | None = None,
    ) -> Scores:
        """Return the F1 of one variant of a method on the test rows, seed by seed.

        Args:
            method: by its name in the settings.
            variant: what the records call it.
            changes: of the constructor's arguments; or a function that returns them, given the
                classifier of the settings.
            data: the rows of a seed; None takes all of them.
            kind: of classifier, where it is not the settings'.
        """
        found = []
        for seed in range(self.seeds):
            rows = self.data if data is None else data(seed)
            made = self.classifier(method, seed)
            made = changed(made, changes(made) if callable(changes) else changes, kind)
            place = (self.experiment, method, lambda made=made: made, rows, seed, self.records)
            found.append(run(*place, variant=variant))
            tell(f"{method}, {variant}, seed {seed}", found[-1])
        return {name: [both[name]["metrics"]["f1"] for both in found] for name in DECODINGS}

    def identity(
        self, method: str, seed: int, data: Dataset, settings: Record, decoding: str | None
    ) -> Record:
        """Return what tells a run with measurements of its own from others."""
        settings = settings | {"n_test": len(data.test)}
        place = (self.experiment, data.name, method, len(data.train), seed, settings)
        return identity(*place, decoding=decoding)

    def tell_protocol(self) -> None:
        """Say by which rules the figures were made, and where they are kept."""
        how = "1 seed" if self.seeds == 1 else f"{self.seeds} seeds, mean ± standard deviation"
        rows = f"{len(self.data.train):,} training and {len(self.data.test):,} test rows"
        say(f"\n{self.data.name}, {rows}; {how}; differences are paired by seed, ± standard error.")
        say(f"Test F1: {F1_RULE}.")
        say(f"Records: {self.records.folder}")


def few_rows(data: Dataset, share: float, seed: int) -> Dataset:
    """Return the data set with a random share of its training rows.

    A smaller share of one seed is a part of a larger one.

    >>> import spen
    >>> len(few_rows(spen.exclusive_blocks(100, 10), 0.25, seed=0).train)
    25
    """
    order = np.random.default_rng(seed).permutation(len(data.train))
    kept = np.sort(order[: max(2, round(share * len(data.train)))])
    return replace(data, train=data.train.rows(kept))


def longer_for(share: float) -> Callable[[LabelClassifier], Changes]:
    """Return the changes for a share of the rows: epochs × min(4, 1/share).

    So the number of gradient steps stays about the same, as far as that is reasonable.
    """
    return lambda made: variants.longer(made, min(LONGEST, 1 / share))


def compare(corner: str, cells: Cells, pairs: Sequence[tuple[str, str]]) -> str:
    """Lay out cells down, and methods and their differences across, by either decoding.

    Args:
        corner: what the cells are.
        cells: the scores.
        pairs: the methods whose difference is the point.

    >>> cells = {"10": {"A": {"threshold": [40.0], "expected_f1": [43.0]},
    ...                        "B": {"threshold": [41.5], "expected_f1": [43.5]}}}
    >>> print(compare("rows", cells, [("B", "A")]))
    | rows | one threshold: A | B    | B − A | expected F1: A | B    | B − A |
    | ---- | ---------------- | ---- | ----- | -------------- | ---- | ----- |
    | 10   | 40.0             | 41.5 | +1.50 | 43.0           | 43.5 | +0.50 |
    """
    names = list(next(iter(cells.values())))
    columns = [*names, *(f"{one} − {other}" for one, other in pairs)]
    header, rows = [corner], [[title] for title in cells]
    for decoding, words in DECODING_TITLES.items():
        header += [f"{words}: {columns[0]}", *columns[1:]]
        for row, scores in zip(rows, cells.values(), strict=True):
            row += [mean_and_deviation(scores[name][decoding]) for name in names]
            row += [difference(scores[a][decoding], scores[b][decoding]) for a, b in pairs]
    return text_table(header, rows)


def curves(x: Sequence[float], cells: Mapping[Any, Mapping[str, Scores]]) -> list[Panel]:
    """Return a panel for each decoding: a line for each method, over the cells."""
    panels: list[Panel] = []
    for decoding, words in DECODING_TITLES.items():
        lines = {}
        for name in next(iter(cells.values())):
            values = [scores[name][decoding] for scores in cells.values()]
            lines[name] = (list(x), [*map(statistics.fmean, values)], [*map(deviation, values)])
        panels.append((f"decoding by {words}", lines))
    return panels


def learning_curves(*, dataset: str, seeds: int, device: str, out: Path) -> None:
    """Compare MLP and SPEN on 5 to 100 % of the training rows."""
    study = Study.open("table1-learning-curves", dataset, seeds, device, out)
    total = len(study.data.train)
    cells: dict[str, dict[str, Scores]] = {}
    for share in SHARES:
        rows = {seed: few_rows(study.data, share, seed) for seed in range(seeds)}
        scores = partial(
            study.scores,
            variant=f"{share:g} of the rows",
            changes=longer_for(share),
            data=rows.__getitem__,
        )
        title = f"{100 * share:g} % ({round(share * total):,})"
        cells[title] = {"MLP": scores("mlp"), "SPEN": scores("spen-single")}
    say(compare("training rows", cells, [("SPEN", "MLP")]))
    say("\nA share is drawn by its seed; all test rows are predicted. With few rows epochs are")
    say("those of the settings × min(4, 1/share), which keeps the number of steps in hand.")
    study.tell_protocol()
    counts = [share * total for share in SHARES]
    path = study.records.folder / "learning-curves"
    draw(lambda plots: plots.draw_curves(curves(counts, cells), path, "training rows"))


def width(*, dataset: str, seeds: int, device: str, out: Path) -> None:
    """Compare MLP and SPEN, ours and the paper's, on narrow to wide feature networks."""
    study = Study.open("table1-width", dataset, seeds, device, out)
    panels = []
    ours: dict[str, dict[str, Scores]] = {}
    papers: dict[str, dict[str, Scores]] = {}
    for words, dropout in DROPOUT.items():
        mine = {n: _at_width(study, n, words, dropout, papers=False) for n in WIDTHS}
        theirs = {n: _at_width(study, n, words, dropout, papers=True) for n in PAPER_WIDTHS}
        for panel, other in zip(curves(WIDTHS, mine), curves(PAPER_WIDTHS, theirs), strict=True):
            panels.append((f"{words}, {panel[0]}", panel[1] | other[1]))
        ours |= {f"{n:,}, {words}": scores for n, scores in mine.items()}
        papers |= {f"{n:,}, {words}": scores for n, scores in theirs.items()}
    for cells, pair in ((ours, ("SPEN", "MLP")), (papers, ("SPEN, hinge", "MLP, SGD"))):
        say(f"{compare('units a layer', cells, [pair])}\n")
    say("The dropout is that of the settings.")
    say('"MLP, SGD" is the stage that the paper\'s recipe trains first, and the hinge starts from.')
    study.tell_protocol()
    path = study.records.folder / "width"
    draw(lambda plots: plots.draw_curves(panels, path, "units a layer"))


def _at_width(
    study: Study, units: int, words: str, dropout: Changes, papers: bool
) -> dict[str, Scores]:
    """Return the scores of a label-wise model, and of a SPEN on the same features.

    They are ours, or the paper's SPEN and what its pre-training alone makes.
    """

    def changes(made: LabelClassifier) -> Changes:
        return {"hidden": _layers(made, units)} | dropout

    def label_wise(made: LabelClassifier) -> Changes:
        other = changed(made, changes(made))
        return changes(made) | variants.pre_training_alone(plan_of(other, study.data.train))

    variant = f"{units} units, {words}"
    if papers:
        return {
            "MLP, SGD": study.scores("spen-paper", f"{variant}, pre-training alone", label_wise),
            "SPEN, hinge": study.scores("spen-paper", variant, changes),
        }
    names = {"MLP": "mlp", "SPEN": "spen-single"}
    return {title: study.scores(name, variant, changes) for title, name in names.items()}


def _layers(made: LabelClassifier, units: int) -> tuple[int, ...]:
    hidden = made.get_params(deep=False)["hidden"]
    return (units,) * (LAYERS if is_auto(hidden) else len(hidden))


def ablation(*, dataset: str, seeds: int, device: str, out: Path) -> None:
    """Change one thing at a time in the cross-fitted SPEN and in the paper's."""
    study = Study.open("table1-ablation", dataset, seeds, device, out)
    panels = []
    for method, (words, variants_of) in ABLATED.items():
        rows = {UNCHANGED: study.scores(method, UNCHANGED, {})}
        if method == "spen-single":
            rows[NO_MEASUREMENTS] = study.scores("mlp", NO_MEASUREMENTS, {})
        for title, changes in variants_of(study.classifier(method), study.data.train).items():
            rows[title] = study.scores(method, title, changes)
        say(f"{words[0].upper()}{words[1:]}\n")
        say(render_changes(rows))
        say()
        panels.append((words, changes_of(rows)))
    for line in ABLATIONS_IN_WORDS:
        say(line)
    study.tell_protocol()
    path = study.records.folder / "ablation"
    draw(lambda plots: plots.draw_differences(panels, path, "F1 − F1 of the unchanged model"))


def render_changes(rows: dict[str, Scores]) -> str:
    """Lay out F1 by both decodings, with the difference to the unchanged model.

    >>> scores = {"threshold": [40.0], "expected_f1": [43.0]}
    >>> other = {"threshold": [39.0], "expected_f1": [44.0]}
    >>> print(render_changes({"unchanged": scores, "other": other}))
    |           | one threshold | change | expected F1 | change |
    | --------- | ------------- | ------ | ----------- | ------ |
    | unchanged | 40.0          |        | 43.0        |        |
    | other     | 39.0          | -1.00  | 44.0        | +1.00  |
    """
    header = [""]
    for words in DECODING_TITLES.values():
        header += [words, "change"]
    base, lines = rows[UNCHANGED], []
    for title, scores in rows.items():
        line = [title]
        for decoding in DECODING_TITLES:
            change = difference(scores[decoding], base[decoding]) if title != UNCHANGED else ""
            line += [mean_and_deviation(scores[decoding]), change]
        lines.append(line)
    return text_table(header, lines)


def changes_of(rows: dict[str, Scores]) -> dict[str, dict[str, tuple[float, float]]]:
    """Return the difference of each variant to the unchanged model, and its standard error."""
    base = rows[UNCHANGED]
    return {
        title: {
            words: paired(scores[decoding], base[decoding])
            for decoding, words in DECODING_TITLES.items()
        }
        for title, scores in rows.items()
        if title != UNCHANGED
    }
