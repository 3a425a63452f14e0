"""What is said of hidden labels where others are known: a SPEN beside a network told of them."""

from __future__ import annotations

import hashlib
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import spen
from spen import Dataset, Split
from spen.baselines import KnownLabelsClassifier
from spen.batch.arrays import densified
from spen.cli.show import say, text_table
from spen.errors import choose
from spen.estimators.base import LabelClassifier
from spen.estimators.decoding import expected_f1
from spen.files import open_atomically, versions
from spen.metrics import calibration_error, example_f1
from spen.model import usable_device
from spen_paper import sets
from spen_paper.figures import deviation, draw
from spen_paper.fits import describe_plan, device_in_words, timed_fit
from spen_paper.records import Record, Records, brief, check_seeds, identity
from spen_paper.studies.known_labels import Decoder, decide_hidden, reveal

MADE: dict[str, Callable[..., LabelClassifier]] = {
    "spen": spen.SPENClassifier,
    "conditional": KnownLabelsClassifier,
    "local": partial(spen.SPENClassifier, energy="local"),
}
TITLES = {"spen": "SPEN", "conditional": "told network", "local": "label-wise"}

OWN: dict[tuple[str, str], dict[str, Any]] = {("conditional", "debian-depends"): {"epochs": 40}}
"""Settings of a method on a set: there a choice of epochs takes too long, and 40 are the most."""

SHARES = (0, 10, 25, 50)
"""Of all labels, drawn at random, in percent."""

NAMED = (1, 2, 3)
"""True labels of a row that are named, while nothing is said of the others."""

MOST_TEST_ROWS = 5000
"""Of a data set with more, the first are scored."""

CHUNK = 1024
"""Rows that are predicted at a time, so that known labels of many fit into memory."""

RULE = (
    "of the labels that stay hidden: mean log loss of a decision; example-averaged F1 x 100, where "
    "a row with no hidden label in truth and prediction counts 1; expected calibration error x 100"
)
IN_WORDS = (
    "All scores are of the labels that stay hidden, on test rows: log loss / F1 × 100 / expected",
    "calibration error × 100. The log loss is the mean over decisions, the F1 that over rows (one",
    "with no hidden label in truth and prediction counts 1), the error has 15 equal intervals.",
    "Where a label is known to be on, none of the others may be named: how likely that is, their",
    "probabilities say; for other rows it was tuned on whole ones.",
    "%: a random share of all labels is known, zeros as well as ones. named: so many of a row's",
    "true labels are known, and nothing of the others. SPEN − told network: of the log loss, in",
    "percent of the network's, ± standard error over test rows, each against itself.",
    "The told network is spen.baselines.KnownLabelsClassifier; label-wise is a SPEN without an",
    "energy, which known labels tell nothing. All have their defaults, and choose, calibrate and",
    "tune on held-out training rows.",
)


class Revealing(NamedTuple):
    """A way to make labels known: a share of all of them, or how many true ones are named."""

    share: float = 0.0
    named: int = 0

    def known(self, truth: np.ndarray, seed: Sequence[int]) -> np.ndarray:
        """Return known labels (n, L), nan for those that stay hidden.

        What less reveals, more of the same kind and seed reveals too.

        >>> Revealing(named=1).known(np.array([[0.0, 1.0]]), [0])
        array([[nan,  1.]], dtype=float32)
        """
        if self.named:
            return reveal(truth, self.named, seed).astype(np.float32)
        draws = np.random.default_rng(seed).random(truth.shape, dtype=np.float32)
        return np.where(draws < self.share, truth, np.nan).astype(np.float32)


REVEALINGS = {f"{share} %": Revealing(share=share / 100) for share in SHARES} | {
    f"{count} named": Revealing(named=count) for count in NAMED
}


def known(dataset: str | None, seeds: int, device: str, out: Path) -> None:
    """Compare methods on hidden labels where a share of all, or some true ones, are known."""
    if dataset is not None:
        choose(dataset, dict.fromkeys(sets.SETS), "data set")
    check_seeds(seeds)
    usable_device(device)
    records, panels = Records(out), []
    for name in [dataset] if dataset else sets.SETS:
        data = sets.load(name)
        data = replace(data, test=data.test.rows(np.arange(min(len(data.test), MOST_TEST_ROWS))))
        found = [run(data, seed, device, records) for seed in range(seeds)]
        for line in lines(data, found):
            say(line)
        panels.append((name, curves(found)))
    for line in (*IN_WORDS, f"Records: {records.path}"):
        say(line)
    path = records.folder / (f"known-{dataset}" if dataset else "known")
    ylabels = ["log loss of hidden labels"] * len(panels)
    look: dict[str, Any] = {"log": False, "ylabels": ylabels}
    draw(lambda plots: plots.draw_curves(panels, path, "labels known, %", **look))


def run(data: Dataset, seed: int, device: str, records: Records) -> dict[str, Record]:
    """Return the record of each method; they are kept together, since rows are compared."""
    made = classifiers(data, seed, device)
    place = ("known", data.name)
    wanted = {
        name: identity(*place, name, len(data.train), seed, describe_plan(each, data), rule=RULE)
        for name, each in made.items()
    }
    parts = {name: Part(records.folder, each) for name, each in wanted.items()}

    def measure() -> dict[str, Record]:
        found = {
            name: parts[name].made(partial(_measure, name, made[name], data, seed)) for name in made
        }
        _, ours = found["spen"]
        return {name: record | _gaps(ours, losses) for name, (record, losses) in found.items()}

    found = records.make_all(wanted, measure)
    for part in parts.values():
        part.path.unlink(missing_ok=True)
    return found


def classifiers(data: Dataset, seed: int, device: str) -> dict[str, LabelClassifier]:
    """Return each method, not fitted."""
    return {
        name: make(random_state=seed, device=device, **OWN.get((name, data.name), {}))
        for name, make in MADE.items()
    }


class Part:
    """What one method has measured, kept until all have: a fit may take an hour.

    Args:
        folder: where records are.
        wanted: the identity of the method's record.
    """

    def __init__(self, folder: Path, wanted: Record) -> None:
        # Nor is a part of other versions or ways to reveal labels taken for one of these.
        what = [wanted, versions(), {words: list(way) for words, way in REVEALINGS.items()}]
        name = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]
        self.path = folder / "unfinished" / f"{name}.npz"

    def made(
        self, measure: Callable[[], tuple[Record, dict[str, np.ndarray]]]
    ) -> tuple[Record, dict[str, np.ndarray]]:
        """Return what is kept, or measure and keep it."""
        # One that cannot be read is made anew.
        with suppress(OSError, ValueError, KeyError), np.load(self.path) as kept:
            losses = {name: kept[name] for name in kept.files if name != "record"}
            return json.loads(str(kept["record"])), losses
        record, losses = measure()
        arrays: dict[str, Any] = losses | {"record": np.array(json.dumps(record))}
        with open_atomically(self.path) as file:
            np.savez(file, **arrays)
        return record, losses


def _measure(
    name: str, classifier: LabelClassifier, data: Dataset, seed: int
) -> tuple[Record, dict[str, np.ndarray]]:
    """Fit and score a method; return its record, and the losses of rows by what is known."""
    fit_seconds = round(timed_fit(classifier, data), 2)
    metrics, seconds, losses = {}, {}, {}
    for words, way in REVEALINGS.items():
        found = hidden_scores(classifier, data.test, way, seed, classifier.plan_.decoding)
        metrics |= {f"{measure}, {words}": each for measure, each in found.metrics.items()}
        seconds[words] = round(found.seconds, 3)
        losses[words] = found.losses
    chosen = brief(classifier.plan_.chosen)
    tell = f"{name}, {data.name}, seed {seed}: {fit_seconds:.0f} s"
    print(tell, file=sys.stderr, flush=True)  # noqa: T201
    record = {
        "metrics": metrics,
        "fit_seconds": fit_seconds,
        "predict_seconds": seconds,
        "chosen": chosen | {"measurements": classifier.plan_.measurements},
        "device": device_in_words(classifier.model_.reference.device),
    }
    return record, losses


def _gaps(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> Record:
    """Return by how much the SPEN's losses of the same decisions are smaller or larger."""
    pairs = {words: gap(ours[words], theirs[words]) for words in ours}
    return {"log_loss_of_spen_less_this": {w: [round(x, 8) for x in g] for w, g in pairs.items()}}


class Hidden(NamedTuple):
    """Scores of the hidden labels.

    Attributes:
        metrics: by name, as records have them.
        losses: (2, n) the log loss of each row's hidden labels, summed, and how many they are.
        seconds: that prediction took.
    """

    metrics: dict[str, float]
    losses: np.ndarray
    seconds: float


def hidden_scores(
    classifier: Decoder, rows: Split, way: Revealing, seed: int, decoding: str
) -> Hidden:
    """Return what a classifier makes of the labels that stay hidden.

    Args:
        classifier: fitted.
        rows: to be predicted.
        way: what is known.
        seed: of the draws.
        decoding: by name.
    """
    truth = np.empty(rows.Y.shape, np.float32)
    soft, labels = np.empty_like(truth), np.empty(truth.shape, np.int8)
    losses, seconds = np.empty((2, len(truth))), 0.0
    for first in range(0, len(truth), CHUNK):
        part = slice(first, first + CHUNK)
        whole = densified(rows.Y[part])
        told = way.known(whole, [seed, first])
        hidden = np.isnan(told)
        began = time.perf_counter()
        p = classifier.predict_proba(rows.X[part], known=None if hidden.all() else told)
        seconds += time.perf_counter() - began
        right = np.where(whole == 1, p, 1 - p)
        losses[0, part], losses[1, part] = -(np.log(right) * hidden).sum(1), hidden.sum(1)
        truth[part], soft[part] = np.where(hidden, whole, np.nan), p
        labels[part] = decide(classifier, p, told, decoding)
    metrics = {
        "log_loss": round(losses[0].sum() / losses[1].sum(), 7),
        "f1": round(100 * example_f1(truth, labels), 4),
        "calibration_error": round(100 * calibration_error(truth, soft), 4),
    }
    return Hidden(metrics, losses, seconds)


def decide(classifier: Decoder, p: np.ndarray, told: np.ndarray, decoding: str) -> np.ndarray:
    """Return a decision about the hidden labels alone, (n, L), which may be to name none of them.

    How likely a row without any label is, a classifier has learned from whole rows. It holds as
    long as none of a row's labels is known to be on; where one is, the others may well be all off,
    and their own probabilities say how likely that is.

    Args:
        classifier: fitted.
        p: (n, L) probabilities.
        told: (n, L) known labels, nan for those that are hidden.
        decoding: by name.
    """
    labels = decide_hidden(classifier, p, np.isnan(told), decoding)
    some = (told == 1).any(1)
    if decoding == "expected_f1" and some.any():
        labels[some] = expected_f1(np.where(np.isnan(told), p, 0)[some])
    return labels


def gap(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float]:
    """Return how much smaller or larger our mean log loss of a decision is, and its standard error.

    Rows have different numbers of hidden labels, so it is that of a ratio of two means.

    Args:
        ours: (2, n) the loss of each row, and how many decisions it has.
        theirs: the same of another method, for the same decisions.

    >>> gap(np.array([[1.0, 2.0], [2, 2]]), np.array([[3.0, 4.0], [2, 2]]))
    (-1.0, 0.0)
    """
    less, counts = ours[0] - theirs[0], ours[1]
    mean = less.sum() / counts.sum()
    spread = (less - mean * counts).std(ddof=1) if len(less) > 1 else 0.0
    return float(mean), float(math.sqrt(len(less)) * spread / counts.sum())


def lines(data: Dataset, found: list[dict[str, Record]]) -> Iterator[str]:
    """Yield the table of a data set, with what it took."""
    repeated = "1 seed" if len(found) == 1 else f"mean of {len(found)} seeds"
    yield f"{data.name}, {len(data.train):,} training and {len(data.test):,} test rows, {repeated}"
    yield ""
    header = ["known", *TITLES.values(), f"{TITLES['spen']} − {TITLES['conditional']}"]
    rows = []
    for words in REVEALINGS:
        cells = [" / ".join(_means(found, name, words)) for name in MADE]
        rows.append([words, *cells, relative_gap(found, words)])
    seconds = [_seconds(found, name) for name in MADE]
    yield text_table(header, [*rows, ["fit; predict, nothing and 50 % known", *seconds, ""]])
    yield f"\nMeasurements chosen: {', '.join(str(each) for each in _widths(found))}.\n"


def _means(found: list[dict[str, Record]], name: str, words: str) -> list[str]:
    metrics = [seed[name]["metrics"] for seed in found]
    means = {
        measure: statistics.fmean(each[f"{measure}, {words}"] for each in metrics)
        for measure in ("log_loss", "f1", "calibration_error")
    }
    loss, f1, error = means.values()
    return [f"{loss:.4g}", f"{f1:.1f}", f"{error:.2f}"]


def relative_gap(found: list[dict[str, Record]], words: str) -> str:
    """Write by how many percent the SPEN's log loss is above the told network's, ± standard error.

    The errors of seeds are averaged, not divided by their number: all have the same test rows.
    """
    records = [seed["conditional"] for seed in found]
    scale = statistics.fmean(each["metrics"][f"log_loss, {words}"] for each in records) / 100
    pairs = [each["log_loss_of_spen_less_this"][words] for each in records]
    mean, error = (statistics.fmean(part) / scale for part in zip(*pairs, strict=True))
    return f"{mean:+.1f} ± {error:.1f} %"


def _seconds(found: list[dict[str, Record]], name: str) -> str:
    def mean(of: Callable[[Record], float]) -> float:
        return statistics.fmean(of(seed[name]) for seed in found)

    fit = mean(lambda record: record["fit_seconds"])
    free, half = (mean(lambda r, w=w: r["predict_seconds"][w]) for w in ("0 %", "50 %"))
    return f"{fit:.0f} s; {free:.2f}, {half:.2f} s"


def _widths(found: list[dict[str, Record]]) -> list[int]:
    return [seed["spen"]["chosen"]["measurements"] for seed in found]


def curves(
    found: list[dict[str, Record]],
) -> dict[str, tuple[list[float], list[float], list[float]]]:
    """Return a line for each method: the log loss over the share of labels known."""
    drawn = {}
    for name, title in TITLES.items():
        values = [
            [seed[name]["metrics"][f"log_loss, {share} %"] for seed in found] for share in SHARES
        ]
        means, deviations = map(statistics.fmean, values), map(deviation, values)
        drawn[title] = ([*map(float, SHARES)], [*means], [*deviations])
    return drawn
