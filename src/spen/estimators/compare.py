"""A comparison: a classifier beside scikit-learn's on the same rows, each with every decoding."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler, StandardScaler
from sklearn.utils.validation import check_array, check_random_state

from spen.batch.inputs import InputRows
from spen.batch.splits import Split, hold_out
from spen.errors import InputError, choose
from spen.estimators.decoding import decode, tune_decodings
from spen.estimators.scaling import CHECKS
from spen.estimators.targets import read_targets
from spen.metrics import as_array, counts, row_f1

TUNING = 0.2
"""The share of the training part on which decodings are tuned, before all of it is trained on."""

FEWEST_ROWS = 40
"""With fewer, neither the tuning nor the score of so few held-out rows says anything."""

MOST_BOOSTING = 5e7
"""Rows × labels × features up to which each label is boosted: some minutes."""

MOST_TREES = 6e5
"""Rows × labels up to which trees are grown: each leaf holds every label, 2 GB in all."""

SCORES = {
    "f1": (
        "F1",
        "mean over rows of 2·hits/(true + predicted labels); a row empty in both counts 1",
    ),
    "subset": ("subset accuracy", "share of rows with every label right"),
    "hamming": ("Hamming error", "share of labels that are wrong; the lower, the better"),
}
"""What is scored: its title and its rule."""

RIVALS: dict[str, Callable[[int], Any]] = {
    "logistic": lambda seed: MultiOutputClassifier(LogisticRegression(max_iter=1000)),
    "chain": lambda seed: ClassifierChain(
        LogisticRegression(max_iter=1000), order="random", random_state=seed
    ),
    "extra_trees": lambda seed: ExtraTreesClassifier(random_state=seed),
    "boosting": lambda seed: MultiOutputClassifier(
        HistGradientBoostingClassifier(random_state=seed)
    ),
    "mlp": lambda seed: MLPClassifier(random_state=seed),
}
"""scikit-learn's classifiers with their own defaults, from a seed."""

NETWORK = "network"
"""The classifier itself with no energy but the local one."""

FitPredict = Callable[[Split, Any], np.ndarray]
"""Trains on rows with labels, and returns the probabilities (n, L) of other rows."""


@dataclass(frozen=True)
class Outcome:
    """A score: its mean over rows, and the standard error of that."""

    mean: float
    error: float


@dataclass(frozen=True)
class Compared:
    """How one classifier does on held-out rows.

    Attributes:
        name: of the classifier.
        scores: for each decoding, each of SCORES by its name.
        seconds: to train on the whole training part and to predict the held-out rows.
    """

    name: str
    scores: dict[str, dict[str, Outcome]]
    seconds: float

    def best(self, score: str = "f1") -> tuple[str, Outcome]:
        """Return the decoding with the best score on the held-out rows, and the score."""
        choose(score, SCORES, "score")
        found = {decoding: scores[score] for decoding, scores in self.scores.items()}
        return (min if score == "hamming" else max)(found.items(), key=lambda each: each[1].mean)


@dataclass(frozen=True)
class Comparison:
    """Classifiers that were trained and judged on the same rows; printed, it is a table.

    Attributes:
        entries: one for each classifier, one's own first.
        skipped: why others were left out, by their names.
        training_rows: how many rows were trained on.
        held_out_rows: how many other rows judge.
        labels: how many there are.

    >>> import spen
    >>> data = spen.exclusive_blocks(n_train=60, n_test=20)
    >>> clf = spen.SPENClassifier(hidden=(), epochs=2, random_state=0)
    >>> found = clf.compare(data.train.X, data.train.Y, against=["logistic"])
    >>> found.training_rows, found.held_out_rows, found.labels
    (45, 15, 16)
    >>> decoding, score = found.best("logistic")
    >>> 0 <= score.mean <= 1, decoding in found.entries[1].scores
    (True, True)
    """

    entries: tuple[Compared, ...]
    skipped: dict[str, str]
    training_rows: int
    held_out_rows: int
    labels: int

    def best(self, name: str, score: str = "f1") -> tuple[str, Outcome]:
        """Return the best decoding of the classifier of this name, and its score."""
        return choose(name, {each.name: each for each in self.entries}, "name").best(score)

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the header and the rows of a table: each classifier by its best decodings.

        A star marks the best of a column.
        """
        header = ["classifier", *(title for title, _ in SCORES.values()), "seconds"]
        rows = []
        for each in self.entries:
            cells = []
            for score in SCORES:
                decoding, found = each.best(score)
                means = [other.best(score)[1].mean for other in self.entries]
                star = "*" if found.mean == (min if score == "hamming" else max)(means) else ""
                cells.append(f"{in_percent(found)}{star} ({decoding})")
            rows.append([each.name, *cells, f"{each.seconds:.1f}"])
        return header, rows

    def notes(self) -> list[str]:
        """Return what a reader of the table must know, a sentence each."""
        rules = [f"{title[0].upper()}{title[1:]}: {rule}." for title, rule in SCORES.values()]
        return [
            f"Trained on {self.training_rows:,} rows, judged by {self.held_out_rows:,} others, "
            f"{self.labels:,} labels.",
            "Scores × 100, ± standard error over rows; in brackets the decoding that is best on "
            "these rows, for each alike; * the best of a column.",
            *rules,
            *(f"{name} was left out: {why}." for name, why in self.skipped.items()),
        ]

    def __str__(self) -> str:
        header, rows = self.table()
        widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
        lines = [
            "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in [header, *rows]
        ]
        return "\n".join([*lines, "", *self.notes()])


def in_percent(found: Outcome) -> str:
    """Return a score × 100 with its error.

    >>> in_percent(Outcome(0.5, 0.012))
    '50.0 ± 1.2'
    """
    return f"{100 * found.mean:.1f} ± {100 * found.error:.1f}"


def compare(
    classifier: Any,
    X: Any,
    Y: Any,
    against: Sequence[str] = tuple(RIVALS),
    *,
    held_out: float = 0.25,
    random_state: Any = 0,
    verbose: int = 0,
) -> Comparison:
    """Train a classifier and others on part of some rows, and judge all by the rest.

    Args:
        classifier: of spen; its settings count, fitted or not, and it stays as it is.
        X: (n, d) numbers.
        Y: sets of labels, in any form that ``fit`` takes.
        against: names from RIVALS, or NETWORK.
        held_out: the share of rows that judge.
        random_state: decides which rows these are, and what others draw.
        verbose: 1 prints a line for each classifier, when it is done.
    """
    against = (against,) if isinstance(against, str) else tuple(dict.fromkeys(against))
    for name in against:
        choose(name, {NETWORK: None, **RIVALS}, "rival")
    inputs: Any = X if isinstance(X, InputRows) else check_array(X, input_name="X", **CHECKS)
    matrices = [name for name in against if name != NETWORK]
    if isinstance(X, InputRows) and matrices:
        raise InputError(
            f"{', '.join(matrices)} take a matrix, and X holds {X.kind.in_words()}. Pass "
            f"against={[NETWORK]!r}: the same network without an energy."
        )
    targets = read_targets(Y)
    if targets.n_rows != inputs.shape[0]:
        raise InputError(
            f"X and Y must have as many rows; received {inputs.shape[0]} and {targets.n_rows}."
        )
    labels = _comparable_labels(targets)
    if len(labels) < FEWEST_ROWS:
        raise InputError(
            f"compare holds rows out twice, to tune and to judge, so it needs at least "
            f"{FEWEST_ROWS}; received {len(labels)}. Give more rows."
        )
    seed = int(check_random_state(random_state).randint(2**31 - 1))
    train, test = hold_out(Split(inputs, labels), held_out, seed)
    own: Any = clone(classifier)
    own.set_params(verbose=0)
    if own.random_state is None:
        own.set_params(random_state=seed)
    alone: Any = clone(own)

    def own_probabilities(made: Any, rows: Split, others: Any) -> np.ndarray:
        names = targets.names.tolist()
        return made.fit(rows.X, rows.Y, label_names=names).predict_proba(others)

    ways: dict[str, FitPredict] = {type(classifier).__name__: partial(own_probabilities, own)}
    skipped = {}
    for name in against:
        why = _too_large(name, len(train), inputs.shape[1], labels.shape[1])
        if name == NETWORK:
            ways[name] = partial(own_probabilities, alone.set_params(energy="local"))
        elif why is None:
            ways[name] = rival(name, seed)
        else:
            skipped[name] = why
            _say(verbose, f"{name}: left out, {why}")
    entries = []
    for name, way in ways.items():
        entries.append(measured(name, way, train, test, seed))
        decoding, found = entries[-1].best()
        _say(verbose, f"{name}: F1 {in_percent(found)} ({decoding}), {entries[-1].seconds:.1f} s")
    return Comparison(tuple(entries), skipped, len(train), len(test), labels.shape[1])


def measured(name: str, way: FitPredict, train: Split, test: Split, seed: int) -> Compared:
    """Tune all decodings on a share of the training rows, train on all of them, and score.

    Args:
        name: of the classifier.
        way: trains it, and predicts.
        train: rows with labels (n, L), dense.
        test: rows that judge.
        seed: draws the share.
    """
    kept, held = hold_out(train, TUNING, seed)
    tuned = _tuned(held.Y, way(kept, held.X))
    began = time.perf_counter()
    soft = way(train, test.X)
    seconds = time.perf_counter() - began
    scores = {
        decoding: row_outcomes(test.Y, decode(soft, decoding, value))
        for decoding, value in tuned.items()
    }
    return Compared(name, scores, seconds)


def _tuned(truth: np.ndarray, soft: np.ndarray) -> dict[str, Any]:
    """Return what each decoding takes, by its name."""
    return tune_decodings(truth, soft, ("label_thresholds",), "f1")


def row_outcomes(truth: Any, predicted: Any) -> dict[str, Outcome]:
    """Return each of SCORES of labels (n, L).

    >>> row_outcomes([[1, 0], [0, 1]], [[1, 0], [1, 1]])["subset"]
    Outcome(mean=0.5, error=0.5)
    """
    both, sizes, known = counts(truth, predicted, axis=1)
    wrong = sizes - 2 * both
    rows = {"f1": row_f1(both, sizes), "subset": wrong == 0, "hamming": wrong / known}
    return {
        name: Outcome(float(each.mean()), float(np.std(each, ddof=1) / np.sqrt(len(each))))
        for name, each in rows.items()
    }


def rival(name: str, seed: int) -> FitPredict:
    """Return how a classifier of scikit-learn is trained, with what it needs done to the rows.

    A label that never varies is refused by some, so that it is filled in for all of them.
    """

    def way(rows: Split, others: Any) -> np.ndarray:
        labels = rows.Y
        soft = np.repeat(labels[:1].astype(float), others.shape[0], axis=0)
        varies = np.flatnonzero(labels.min(0) != labels.max(0))
        if not len(varies):
            return soft
        model = _prepared(name, RIVALS[name](seed), sparse.issparse(rows.X))
        with warnings.catch_warnings():
            # That so many iterations are its default, or that one label is a column, is no news.
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.simplefilter("ignore", DataConversionWarning)
            found = model.fit(rows.X, labels[:, varies]).predict_proba(others)
        # One (n, 2) for each label, one for the only label, or (n, labels).
        if isinstance(found, list):
            found = np.stack([each[:, 1] for each in found], axis=1)
        soft[:, varies] = found[:, -len(varies) :]
        return np.clip(soft, 0, 1)

    return way


def _prepared(name: str, model: BaseEstimator, is_sparse: bool) -> Any:
    if name == "boosting":
        return make_pipeline(FunctionTransformer(as_array, accept_sparse=True), model)
    if name == "extra_trees":
        return model
    return make_pipeline(MaxAbsScaler() if is_sparse else StandardScaler(), model)


def _comparable_labels(targets: Any) -> np.ndarray:
    """Return labels (n, L) of 0 and 1, or say why other classifiers cannot learn from them."""
    if targets.exclusive:
        raise InputError(
            "compare is for sets of labels, and this Y has one class for each row. For classes, "
            "use scikit-learn's cross_val_score with each classifier."
        )
    if not sparse.issparse(targets.matrix):
        raise InputError(
            "Y has missing labels (nan), which scikit-learn's classifiers cannot learn from. "
            "Compare on rows whose labels are all known."
        )
    return targets.matrix.toarray()


def _too_large(name: str, rows: int, features: int, labels: int) -> str | None:
    """Return why a classifier would take too long or too much memory, or None."""
    work = rows * labels * features
    if name == "boosting" and work > MOST_BOOSTING:
        return (
            f"{rows:,} rows × {labels:,} labels × {features:,} features are {work:.1g}, and above "
            f"{MOST_BOOSTING:.0g} boosting each label takes too long"
        )
    if name == "extra_trees" and rows * labels > MOST_TREES:
        return (
            f"{rows:,} rows × {labels:,} labels are {rows * labels:.1g}, and above "
            f"{MOST_TREES:.0g} its leaves take too much memory"
        )
    return None


def _say(verbose: int, words: str) -> None:
    if verbose:
        print(words, file=sys.stderr, flush=True)  # noqa: T201
