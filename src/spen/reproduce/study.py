"""What the studies of where the energy pays have in common."""

from __future__ import annotations

import importlib.util
import math
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from spen.cli.show import say
from spen.data.dataset import Dataset
from spen.errors import InputError, choose
from spen.estimators.base import LabelClassifier
from spen.files import versions
from spen.reproduce.classifiers import (
    DECODINGS,
    classifier,
    dataset_of,
    run,
    settings_of,
)
from spen.reproduce.protocol import F1_RULE
from spen.reproduce.records import Record, Records
from spen.reproduce.variants import Changes, changed, longer

DECODING_TITLES = {"threshold": "one threshold", "expected_f1": "expected F1"}
LONGEST = 4.0
"""With few rows, epochs are at most this many times those of the settings."""

Scores = dict[str, list[float]]
"""F1 in percent by decoding, one for each seed."""


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
        if seeds < 1:
            raise InputError(f"seeds must be 1 or more; received {seeds}.")
        tables, records = settings_of(dataset), Records(out)
        return cls(experiment, dataset_of(dataset), tables, seeds, device, records)

    def classifier(self, method: str, seed: int = 0) -> LabelClassifier:
        """Return the classifier of a method's settings, not fitted."""
        table = choose(method, self.tables, "method")
        where = f"table1.toml, [{self.data.name}.{method}]"
        return classifier(table, seed=seed, device=self.device, where=where)

    def scores(
        self,
        method: str,
        variant: str,
        changes: Callable[[LabelClassifier], Changes] = lambda made: {},
        data: Callable[[int], Dataset] | None = None,
        kind: type[LabelClassifier] | None = None,
    ) -> Scores:
        """Return the F1 of one variant of a method on the test rows, seed by seed.

        Args:
            method: by its name in the settings.
            variant: what the records call it.
            changes: of the constructor's arguments, given the classifier of the settings.
            data: the rows of a seed; None takes all of them.
            kind: of classifier, where it is not the settings'.
        """
        found = []
        for seed in range(self.seeds):
            rows = self.data if data is None else data(seed)
            made = self.classifier(method, seed)
            made = changed(made, changes(made), kind)
            found.append(
                run(
                    self.experiment, method, lambda made=made: made, rows, seed, self.records,
                    variant=variant,
                )
            )  # fmt: skip
            tell(f"{method}, {variant}, seed {seed}", found[-1])
        return {name: [both[name]["metrics"]["f1"] for both in found] for name in DECODINGS}

    def identity(self, method: str, seed: int, data: Dataset, settings: dict[str, Any]) -> Record:
        """Return what tells a run with measurements of its own from others."""
        return {
            "experiment": self.experiment,
            "dataset": data.name,
            "method": method,
            "n_train": len(data.train),
            "seed": seed,
            "fold": None,
            "settings": settings | {"n_test": len(data.test)},
        }

    def tell_protocol(self) -> None:
        """Say by which rules the figures were made, and where they are kept."""
        how = "1 seed" if self.seeds == 1 else f"{self.seeds} seeds, mean ± standard deviation"
        rows = f"{len(self.data.train):,} training and {len(self.data.test):,} test rows"
        say(f"\n{self.data.name}, {rows}; {how}; differences are paired by seed, ± standard error.")
        say(f"Test F1: {F1_RULE}.")
        say(f"Records: {self.records.path}")


def one_fit(
    records: Records, wanted: dict[str, Record], measure: Callable[[], dict[str, Record]]
) -> dict[str, Record]:
    """Return the records that one fit makes together; make them unless all are there.

    Args:
        records: where they are kept.
        wanted: the identity of each, by any name.
        measure: fits, and returns what belongs to each name besides.
    """
    found = {name: records.find(identity) for name, identity in wanted.items()}
    if all(found.values()):
        return {name: record for name, record in found.items() if record is not None}
    began = time.perf_counter()
    with warnings.catch_warnings():
        # Rows whose inference has not converged count like any other.
        warnings.simplefilter("ignore", ConvergenceWarning)
        measured = measure()
    common = {
        "seconds": round(time.perf_counter() - began, 3),
        "rule": F1_RULE,
        "versions": versions(),
    }
    made = {name: identity | common | measured[name] for name, identity in wanted.items()}
    for record in made.values():
        records.add(record)
    return made


def tell(title: str, records: dict[str, Record]) -> None:
    """Say on the error stream that a fit is done, for those who watch."""
    scores = ", ".join(f"{name} {record['metrics']['f1']:.2f}" for name, record in records.items())
    print(f"{title}: {scores}", file=sys.stderr, flush=True)  # noqa: T201


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
    return lambda made: longer(made, min(LONGEST, 1 / share))


def difference(first: Sequence[float], second: Sequence[float]) -> str:
    """Write the mean of first − second, paired, and its standard error.

    >>> difference([2.0, 3.0, 4.0], [1.0, 2.5, 2.5])
    '+1.00 ± 0.29'
    """
    mean, error = paired(first, second)
    return f"{mean:+.2f}" if len(first) < 2 else f"{mean:+.2f} ± {error:.2f}"


def paired(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """Return the mean of first − second, and its standard error (0 for a single pair).

    >>> paired([2.0, 4.0], [1.0, 1.0])
    (2.0, 1.0)
    """
    gaps = [a - b for a, b in zip(first, second, strict=True)]
    error = statistics.stdev(gaps) / math.sqrt(len(gaps)) if len(gaps) > 1 else 0.0
    return statistics.fmean(gaps), error


def draw(picture: Callable[[Any], Sequence[Path]]) -> None:
    """Draw a figure, given the module ``spen.report.plots``, where matplotlib is installed.

    Measuring takes long and drawing does not, so a machine without matplotlib measures all
    the same.
    """
    if importlib.util.find_spec("matplotlib") is None:
        say("Picture: not drawn. Install matplotlib (pip install 'spen[report]') and run again.")
        return
    from spen.report import study_plots as plots

    for path in picture(plots):
        say(f"Picture: {path}")
