"""A study of questions: what the answers to a few of them tell about labels that nobody is asked.

Of each test row a random half of the labels is never asked, and is scored. Of the other half, each
strategy asks about one label after the other, and is told the truth.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import spen
from spen import Dataset
from spen.cli.show import say, text_table
from spen.errors import check_whole
from spen.estimators.base import LabelClassifier
from spen.metrics import as_array, counts, row_f1
from spen_paper.figures import draw, paired
from spen_paper.fits import describe_plan, device_in_words, timed_fit
from spen_paper.records import F1_RULE, Record, Records, check_seeds
from spen_paper.sets import load
from spen_paper.studies.study import Panel, Study

ASKED = (0, 1, 2, 3, 5, 10)
"""Numbers of questions."""

STRATEGIES = {"expected-gain": "ours", "uncertain": "most uncertain", "random": "random"}
OURS = "expected-gain"

METRICS = {"log_loss": "log loss", "f1": "F1"}
DIGITS = {"log_loss": 5, "f1": 2}

ROWS = 500

Scores = dict[str, np.ndarray]
"""What each row has, (n,), by metric."""


def questions(*, dataset: str, seeds: int, rows: int, device: str, out: Path) -> None:
    """Compare ways to choose the label to ask about next, by the labels that are never asked."""
    check_seeds(seeds)
    check_whole(rows, "rows")
    records = Records(out)
    data = some_rows(load(dataset), rows)
    study = Study("questions", data, {}, seeds, device, records)
    found = [_records(study, seed) for seed in range(seeds)]
    scores = {name: {n: _mean_of(found, name, n) for n in ASKED} for name in STRATEGIES}
    for metric in METRICS:
        say(f"{table(scores, metric)}\n")
    say(f"{milestones(scores)}\n")
    for line in IN_WORDS:
        say(line)
    n_test = f"{len(data.train):,} training rows, {len(data.test):,} test rows"
    say(f"\n{dataset}, {n_test}; {seeds} {'seed' if seeds == 1 else 'seeds'}.")
    say(f"F1: {F1_RULE}.")
    say(f"Records: {records.path}")
    path = records.folder / f"questions-{dataset}"
    ups = ["mean log loss", "F1 × 100"]
    picture = {"xlabel": "questions", "log": False, "ylabels": ups}
    draw(lambda plots: plots.draw_curves(panels(scores), path, **picture))


IN_WORDS = (
    "Scored are the labels that are never asked, a random half of each row. Most uncertain: the",
    "label whose probability is nearest to one half, after all answers so far. Differences are",
    "paired by row (a row's mean over seeds), ± their standard error over rows. Bars in the",
    "picture are that error of the difference to ours.",
)


def some_rows(data: Dataset, rows: int) -> Dataset:
    """Return the data set with a fixed random sample of its test rows."""
    assert data.test is not None
    order = np.random.default_rng(0).permutation(len(data.test))[:rows]
    return replace(data, test=data.test.rows(np.sort(order)))


def may_be_asked(shape: tuple[int, int], seed: int) -> np.ndarray:
    """Return True for a random half of each row's labels, (n, L).

    >>> may_be_asked((2, 4), seed=0).sum(1)
    array([2, 2])
    """
    places = np.random.default_rng([seed, 1]).random(shape).argsort(1).argsort(1)
    return places < shape[1] // 2


Chooser = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Returns the label to ask each row about, (n,), given what is known and what may be asked."""


def chooser(strategy: str, clf: LabelClassifier, X: Any, size: int, seed: int) -> Chooser:
    """Return a strategy for some rows; it asks each row about a label that is free there."""
    order = np.random.default_rng([seed, 2]).random((X.shape[0], size))

    def by_gain(known: np.ndarray, free: np.ndarray) -> np.ndarray:
        found = clf.next_question(X, known, k=1, among=free)
        return np.array([each[0].index if each else 0 for each in found])

    def by_doubt(known: np.ndarray, free: np.ndarray) -> np.ndarray:
        p = np.asarray(clf.predict_proba(X, known=known), dtype=np.float64)
        return np.where(free, 0.5 - np.abs(p - 0.5), -1.0).argmax(1)

    def at_random(known: np.ndarray, free: np.ndarray) -> np.ndarray:
        return np.where(free, order, -1.0).argmax(1)

    return {OURS: by_gain, "uncertain": by_doubt, "random": at_random}[strategy]


def ask(truth: np.ndarray, choose: Chooser, may: np.ndarray) -> Iterator[np.ndarray]:
    """Yield what is known, (n, L) of 1, 0 and nan, after 0, 1, … up to the last of ASKED answers.

    Args:
        truth: (n, L) the answers.
        choose: the strategy.
        may: (n, L) True where a label may be asked. A row that has none left is asked no more.
    """
    known = np.full(truth.shape, np.nan)
    for count in range(ASKED[-1] + 1):
        yield known
        if count == ASKED[-1]:
            return
        free = may & np.isnan(known)
        rows = np.flatnonzero(free.any(1))
        labels = choose(known, free)[rows]
        known = known.copy()
        known[rows, labels] = truth[rows, labels]


def scores_of(
    clf: LabelClassifier, X: Any, truth: np.ndarray, known: np.ndarray, scored: np.ndarray
) -> Scores:
    """Return each row's mean log loss and F1 in percent, of the scored labels alone.

    Args:
        clf: fitted.
        X: (n, d) rows.
        truth: (n, L) of 0 and 1.
        known: (n, L) what the classifier is told: 1, 0, or nan.
        scored: (n, L) True where a label counts; nothing is known of those.
    """
    soft = np.asarray(clf.predict_proba(X, known=known))
    p = np.where(scored, soft.astype(np.float64), 0.5)
    losses = -np.log(np.where(truth == 1, p, 1 - p))
    # A decision about the scored labels alone.
    labels = clf.decode(np.where(scored, soft, 0.0))
    both, sizes, _ = counts(np.where(scored, truth, np.nan), labels, axis=1)
    return {
        "log_loss": (losses * scored).sum(1) / scored.sum(1),
        "f1": 100 * row_f1(both, sizes),
    }


def _records(study: Study, seed: int) -> dict[str, Record]:
    """Return the records of one fit, each of a strategy and a number of questions."""
    data = study.data
    clf = spen.SPENClassifier(random_state=seed, device=study.device)
    settings = describe_plan(clf, data)
    wanted = {
        _key(name, n): study.identity(name, seed, data, settings | {"asked": n}, None)
        for name in STRATEGIES
        for n in ASKED
    }
    return study.records.make_all(wanted, partial(_measure, clf, data, seed))


def _measure(clf: LabelClassifier, data: Dataset, seed: int) -> dict[str, Record]:
    timed_fit(clf, data)
    X, truth = data.test.X, as_array(data.test.Y)
    may = may_be_asked(truth.shape, seed)
    where = device_in_words(clf.model_.reference.device)
    measured = {}
    for name in STRATEGIES:
        choose = chooser(name, clf, X, truth.shape[1], seed)
        for count, known in enumerate(ask(truth, choose, may)):
            if count not in ASKED:
                continue
            found = scores_of(clf, X, truth, known, ~may)
            measured[_key(name, count)] = {
                "device": where,
                "metrics": {metric: round(float(v.mean()), 6) for metric, v in found.items()},
                # Of each row, as differences between strategies are paired by row.
                "rows": {metric: [float(f"{x:.4g}") for x in v] for metric, v in found.items()},
            }
    return measured


def _key(name: str, count: int) -> str:
    return f"{name}, {count}"


def _mean_of(found: Sequence[dict[str, Record]], name: str, count: int) -> Scores:
    """Return what each row has on average over seeds."""
    records = [each[_key(name, count)] for each in found]
    return {metric: np.mean([each["rows"][metric] for each in records], 0) for metric in METRICS}


def table(scores: dict[str, dict[int, Scores]], metric: str) -> str:
    """Lay out a metric by number of questions and strategy, and how far ours is from the others.

    >>> one = {n: {"f1": np.array([50.0, 52.0])} for n in ASKED}
    >>> print(table({"expected-gain": one, "uncertain": one, "random": one}, "f1"))
    | F1, after | ours  | most uncertain | random | ours − most uncertain | ours − random |
    | --------- | ----- | -------------- | ------ | --------------------- | ------------- |
    | 0         | 51.00 | 51.00          | 51.00  | +0.00 ± 0.00          | +0.00 ± 0.00  |
    ...
    """
    digits = DIGITS[metric]
    others = [name for name in STRATEGIES if name != OURS]
    header = [f"{METRICS[metric]}, after", *STRATEGIES.values()]
    header += [f"ours − {STRATEGIES[name]}" for name in others]
    lines = []
    for count in ASKED:
        values = {name: scores[name][count][metric].tolist() for name in STRATEGIES}
        means = [f"{statistics.fmean(values[name]):.{digits}f}" for name in STRATEGIES]
        gaps = [_gap(values[OURS], values[name], digits) for name in others]
        lines.append([str(count), *means, *gaps])
    return text_table(header, lines)


def milestones(scores: dict[str, dict[int, Scores]]) -> str:
    """Say how five questions of ours stand beside ten at random."""
    ours, theirs = (scores[name][n]["log_loss"] for name, n in ((OURS, 5), ("random", 10)))
    gap = _gap(ours.tolist(), theirs.tolist(), DIGITS["log_loss"])
    return f"log loss after 5 of ours − after 10 at random: {gap}"


def _gap(first: list[float], second: list[float], digits: int) -> str:
    mean, error = paired(first, second)
    return f"{mean:+.{digits}f} ± {error:.{digits}f}"


def panels(scores: dict[str, dict[int, Scores]]) -> list[Panel]:
    """Return a panel for each metric: a line for each strategy."""
    return [
        (
            f"{words} of labels never asked",
            {
                title: (
                    list(ASKED),
                    [float(scores[name][n][metric].mean()) for n in ASKED],
                    [_error(scores, name, n, metric) for n in ASKED],
                )
                for name, title in STRATEGIES.items()
            },
        )
        for metric, words in METRICS.items()
    ]


def _error(scores: dict[str, dict[int, Scores]], name: str, count: int, metric: str) -> float:
    """Return the standard error of the paired difference to ours."""
    return paired(scores[name][count][metric].tolist(), scores[OURS][count][metric].tolist())[1]
