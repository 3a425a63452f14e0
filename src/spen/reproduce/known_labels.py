"""Where the energy pays: when some labels of a row are known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from spen.cli.show import say
from spen.data.dataset import Dataset
from spen.errors import InputError
from spen.metrics import as_array, example_f1
from spen.reproduce.chain import ChainClassifier
from spen.reproduce.classifiers import DECODINGS, identity_of
from spen.reproduce.records import Record
from spen.reproduce.study import Scores, Study, draw, one_fit, tell
from spen.reproduce.study_tables import compare, curves

REVEALED = (0, 1, 2, 3)
CHAINS = {"chain": 1, "chains": 10}
PAIRS = (("SPEN", "MLP"), ("SPEN", "10 chains"))
TITLES = {"mlp": "MLP", "chain": "chain", "chains": "10 chains", "spen-known": "SPEN"}


class Decoder(Protocol):
    """What predicts with known labels and decodes two ways: LabelClassifier, ChainClassifier."""

    def predict_proba(self, X: Any, known: Any = None) -> np.ndarray: ...

    def decode(self, probabilities: np.ndarray, decoding: str) -> np.ndarray: ...


METRICS = {
    "f1": "more true labels than are revealed",
    "f1_same_rows": f"more than {REVEALED[-1]} true labels, the same throughout",
}


def known_labels(*, dataset: str, seeds: int, device: str, out: Path) -> None:
    """Compare methods on the hidden labels when some of a row's true labels are revealed."""
    study = Study.open("table1-known-labels", dataset, seeds, device, out)
    if not ((as_array(study.data.test.Y) == 1).sum(1) > REVEALED[-1]).any():
        raise InputError(
            f"No test row of {study.data.name} has more than {REVEALED[-1]} labels, so there is "
            "nothing to reveal. Choose another data set."
        )
    found = {
        name: [_records(study, method, seed) for seed in range(seeds)]
        for method, name in TITLES.items()
    }
    cells = {
        metric: {
            str(count): {name: _scores(each, count, metric) for name, each in found.items()}
            for count in REVEALED
        }
        for metric in METRICS
    }
    for metric, words in METRICS.items():
        say(f"Rows with {words}\n")
        for line in compare("revealed", cells[metric], PAIRS):
            say(line)
        say()
    for line in IN_WORDS:
        say(line)
    study.tell_protocol()
    panels = curves(REVEALED, cells["f1_same_rows"])
    path = study.records.folder / "known-labels"
    draw(lambda plots: plots.draw_curves(panels, path, "labels revealed", log=False))


IN_WORDS = (
    "F1 of the labels that stay hidden: what is revealed leaves truth and prediction.",
    "The MLP cannot use what is revealed. In a chain it stands in for the predictions that",
    "later labels are told; 10 chains of random orders are averaged. All are tuned, as ever,",
    "on held-out training rows with nothing revealed. The picture has the rows with more than",
    f"{REVEALED[-1]} labels.",
)


def reveal(truth: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Return known labels (n, L): 1 for ``count`` true labels of each row, drawn, nan elsewhere.

    What fewer reveal, more reveal too. A row with fewer true labels has all of them revealed.

    >>> known = reveal(np.array([[1, 0, 1, 1]]), 2, seed=0)
    >>> np.nansum(known), np.isnan(known).sum()
    (np.float64(2.0), np.int64(2))
    """
    draws = np.random.default_rng(seed).random(truth.shape) + 1
    ranks = (-draws * (truth == 1)).argsort(1).argsort(1)
    return np.where((ranks < count) & (truth == 1), 1.0, np.nan)


def hidden_scores(
    classifier: Decoder, data: Dataset, known: np.ndarray, rows: dict[str, np.ndarray]
) -> dict[str, dict[str, float]]:
    """Return the F1 in percent of the labels that are not known, by decoding and set of rows.

    Args:
        classifier: fitted.
        data: whose test rows are predicted.
        known: (n, L) of 1, and nan for what stays hidden.
        rows: (n,) of bool, by name: the rows that a score is the mean of.
    """
    hidden = np.isnan(known)
    truth = np.where(hidden, as_array(data.test.Y), np.nan)
    p = classifier.predict_proba(data.test.X, known=None if hidden.all() else known)
    scores = {}
    for decoding in DECODINGS:
        # A decision about the hidden labels alone: what is known is not to be decided.
        labels = classifier.decode(np.where(hidden, p, 0.0), decoding)
        scores[decoding] = {
            name: round(100 * example_f1(truth[some], labels[some]), 4)
            for name, some in rows.items()
        }
    return scores


def _records(study: Study, method: str, seed: int) -> dict[str, Record]:
    """Return the records of one fit: every number of revealed labels, and both decodings."""
    data = study.data
    fit: Callable[[], Decoder]
    if method in CHAINS:
        chains = ChainClassifier(CHAINS[method], device=study.device, seed=seed)
        settings: dict[str, Any] = {"chains": CHAINS[method]}
        fit = lambda: chains.fit(data.train.X, data.train.Y)  # noqa: E731
    else:
        made = study.classifier(method, seed)
        settings = identity_of(made, data)
        fit = lambda: made.fit(data.train.X, data.train.Y)  # noqa: E731
    wanted = {
        _key(count, decoding): study.identity(method, seed, data, settings | {"revealed": count})
        | {"decoding": decoding}
        for count in REVEALED
        for decoding in DECODINGS
    }
    found = one_fit(study.records, wanted, lambda: _measure(fit(), data, seed))
    tell(f"{method}, seed {seed}", found)
    return found


def _measure(classifier: Decoder, data: Dataset, seed: int) -> dict[str, Record]:
    truth = as_array(data.test.Y)
    sizes = (truth == 1).sum(1)
    measured = {}
    for count in REVEALED:
        rows = dict(zip(METRICS, (sizes > count, sizes > REVEALED[-1]), strict=True))
        scores = hidden_scores(classifier, data, reveal(truth, count, seed), rows)
        counts = {name: int(some.sum()) for name, some in rows.items()}
        for decoding in DECODINGS:
            measured[_key(count, decoding)] = {"metrics": scores[decoding], "rows": counts}
    return measured


def _key(count: int, decoding: str) -> str:
    return f"{count} revealed, {decoding}"


def _scores(found: list[dict[str, Record]], count: int, metric: str) -> Scores:
    return {
        decoding: [each[_key(count, decoding)]["metrics"][metric] for each in found]
        for decoding in DECODINGS
    }
