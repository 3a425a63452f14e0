"""SPENClassifier() with its defaults: beside scikit-learn, and trained two ways.

    SPEN_DATA=FOLDER python paper/scripts/defaults.py versus [--sets yeast-250,horses] [--seeds 2]
    SPEN_DATA=FOLDER python paper/scripts/defaults.py ways [--sets slashdot-400] [--seeds 2]

versus: example-averaged F1 beside scikit-learn's multi-label classifiers. One-vs-rest logistic
regression, a classifier chain and MLPClassifier get standardised features where these are dense
and a threshold that a held-out fifth favours; then they are trained on all rows. The exit code says
whether the mean difference to the best of them is above zero and no set is more than a point below.

ways: energies trained together with their features (``cross_fit=False``), and apart
(``cross_fit=True``, where inputs are mostly zero with ``linear_member=True``), which the defaults
go by. A star marks what ``cross_fit="auto"`` takes. F1 x 100 by expected F1 and by one threshold,
mean over seeds.

The data sets of both are drawn from training parts alone (and generated): on these the defaults
were chosen. Each is split by itself, anew for every seed. The names ``yeast-test``,
``slashdot-test`` and ``bibtex-test`` are the official splits instead; they run only if named.

F1 counts 1 for a row that is empty in truth and in prediction.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse
from sklearn.datasets import make_multilabel_classification

import spen
from spen import Split
from spen.cli.show import text_table
from spen.errors import choose
from spen.estimators.compare import measured, rival
from spen.estimators.scaling import Scaling
from spen_paper.__main__ import main
from spen_paper.fits import plan_of

FOLDER = Path(os.environ.get("SPEN_DATA", "data"))
WAYS = ("together", "apart")
DECODINGS = ("expected_f1", "threshold")


@dataclass(frozen=True)
class Task:
    """A split data set: rows to learn from and rows to judge by."""

    train: Split
    test: Split


# The data sets -----------------------------------------------------------------------------


def real(
    source: str, rows: int, seed: int, *, labels: int | None = None, unlabelled: bool = True
) -> Task:
    """Return a task from the training part of a data set.

    Args:
        source: a path below the data folder.
        rows: how many rows to learn from; at most 1500 others are the test rows.
        seed: draws both.
        labels: keep this many of the most frequent labels.
        unlabelled: whether rows without any of these labels stay.
    """
    part = spen.load_dataset(FOLDER / source).train
    Y = part.Y.toarray() if sparse.issparse(part.Y) else np.asarray(part.Y)
    Y = Y.astype(np.int64)
    if labels is not None:
        Y = Y[:, np.sort(np.argsort(-Y.sum(0), kind="stable")[:labels])]
    keep = np.flatnonzero(Y.any(1) | unlabelled)
    return divide(part.X[keep], Y[keep], rows, seed)


def official(source: str, seed: int) -> Task:
    """Return a data set's own split; a seed changes the models alone."""
    data = spen.load_dataset(FOLDER / source)
    parts = (Split(part.X, part.Y.toarray().astype(np.int64)) for part in (data.train, data.test))
    return Task(*parts)


def divide(X: Any, Y: np.ndarray, rows: int, seed: int) -> Task:
    """Draw the rows to learn from and the test rows."""
    order = np.random.default_rng(1000 + seed).permutation(len(Y))
    train, test = order[:rows], order[rows : rows + 1500]
    return Task(Split(X[train], Y[train]), Split(X[test], Y[test]))


def letters() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return pixels (n, 128), letters (n,) and the lengths of the words, of eight folds."""
    with np.load(FOLDER / "ocr_letters" / "letters.npz") as archive:
        lengths, ours = archive["word_lengths"], archive["word_fold"] < 8
        rows = np.repeat(ours, lengths)
        return archive["X"][rows].astype(np.float32), archive["y"][rows], lengths[ours]


def words(rows: int, seed: int, rare: int | None = None) -> Task:
    """Return a task: which of 26 letters (or the rare ones) does a handwritten word hold?"""
    pixels, names, lengths = letters()
    Y = np.zeros((len(lengths), 26), np.int64)
    X = np.zeros((len(lengths), 2 * 128 + 8 * 16), np.float32)
    ends = np.cumsum(lengths)
    for word, (end, length) in enumerate(zip(ends, lengths, strict=True)):
        images = pixels[end - length : end]
        Y[word, names[end - length : end]] = 1
        coarse = images[:8].reshape(-1, 4, 4, 4, 2).mean((2, 4)).ravel()
        X[word, :256] = np.concatenate([images.mean(0), images.std(0)])
        X[word, 256 : 256 + coarse.size] = coarse
    if rare is not None:
        Y = Y[:, np.argsort(Y.sum(0), kind="stable")[:rare]]
    return divide(X, Y, rows, seed)


def mixed_letters(rows: int, seed: int) -> Task:
    """Return a task: six groups of letters; a tenth of the noisy images lays two on another."""
    random = np.random.default_rng(seed)
    pixels, names, _ = letters()
    first, second = random.integers(len(pixels), size=(2, rows + 1500))
    double = random.random(len(first)) < 0.1
    second = np.where(double, second, first)
    Y = np.maximum(np.eye(6)[names[first] % 6], np.eye(6)[names[second] % 6])
    X = np.maximum(pixels[first], pixels[second])
    X = X + 0.3 * random.standard_normal(X.shape)
    mixing = random.standard_normal((128, 294)) / 11
    return divide((X @ mixing).astype(np.float32), Y.astype(np.int64), rows, seed)


def horses(size: int, seed: int) -> Task:
    """Return a task: a coarse mask (size × size labels) from a picture of 8 × 8 colours."""
    with np.load(FOLDER / "weizmann_horses" / "horses32.npz") as archive:
        ours = np.concatenate([archive["train"], archive["valid"]])
        images, masks = archive["images"][ours] / 255, archive["masks"][ours]
    n, block = len(ours), 32 // size
    X = images.reshape(n, 8, 4, 8, 4, 3).mean((2, 4)).reshape(n, -1).astype(np.float32)
    share = masks.reshape(n, size, block, size, block).mean((2, 4)).reshape(n, -1)
    return divide(X, (share > 0.45).astype(np.int64), 140, seed)


def correlated(rows: int, features: int, labels: int, seed: int) -> Task:
    """Return noisy features and labels that share causes the features do not show."""
    random = np.random.default_rng(seed)
    n, draw = rows + 1000, random.standard_normal
    shown, hidden = draw((n, 6)), draw((n, 3))
    X = np.tanh(shown @ draw((6, features))) + 2 * draw((n, features))
    scores = shown @ draw((6, labels)) + np.maximum(shown, 0) @ draw((6, labels)) / 2
    scores += 1.2 * hidden @ draw((3, labels)) + 0.7 * draw((n, labels))
    common = np.clip(random.gamma(1.5, 0.1, labels), 0.02, 0.6)
    limits = [np.quantile(s, 1 - q) for s, q in zip(scores.T, common, strict=True)]
    return divide(X.astype(np.float32), (scores > limits).astype(np.int64), rows, seed)


def keywords(rows: int, features: int, labels: int, seed: int) -> Task:
    """Return sparse rows where each label has three features that give it away."""
    random = np.random.default_rng(seed)
    n = rows + 900
    common = random.dirichlet(np.full(labels, 0.6))
    Y = np.zeros((n, labels), np.int64)
    for _ in range(2):
        use = np.ones(n, bool) if not Y.any() else random.random(n) < 0.2
        Y[np.flatnonzero(use), random.choice(labels, use.sum(), p=common)] = 1
    X = random.random((n, features)) < 0.015
    X[:, : 3 * labels] |= (np.repeat(Y, 3, axis=1) == 1) & (random.random((n, 3 * labels)) < 0.8)
    return divide(sparse.csr_matrix(X.astype(np.float32)), Y, rows, seed)


def blocks(seed: int) -> Task:
    """Labels that exclude each other within blocks."""
    data = spen.exclusive_blocks(1000, 1000, seed=seed)
    return Task(data.train, data.test)


def topics(seed: int) -> Task:
    """scikit-learn's own generator, at the size of a small music collection."""
    X, Y = make_multilabel_classification(
        1600, 72, n_classes=6, n_labels=2, allow_unlabeled=False, random_state=seed
    )[:2]
    return divide(np.asarray(X, np.float32), np.asarray(Y, np.int64), 600, seed)


YEAST, BIBTEX = "yeast/yeast-train.arff", "bibtex/bibtex-train.arff"
DELICIOUS, SLASHDOT = "delicious/delicious-train.arff", "slashdot/SLASHDOT-F.arff"
SETS: dict[str, Callable[[int], Task]] = {
    "yeast-1000": partial(real, YEAST, 1000),
    "yeast-500": partial(real, YEAST, 500),
    "yeast-250": partial(real, YEAST, 250),
    "yeast-400x6": partial(real, YEAST, 400, labels=6),
    "slashdot-1250": partial(real, SLASHDOT, 1250),
    "slashdot-400": partial(real, SLASHDOT, 400),
    "bibtex-3660": partial(real, BIBTEX, 3660),
    "bibtex-1000x100": partial(real, BIBTEX, 1000, labels=100),
    "bibtex-700x45": partial(real, BIBTEX, 700, labels=45, unlabelled=False),
    "bibtex-600x20": partial(real, BIBTEX, 600, labels=20),
    "delicious-5000x400": partial(real, DELICIOUS, 5000, labels=400),
    "delicious-3000x100": partial(real, DELICIOUS, 3000, labels=100),
    "delicious-500x170": partial(real, DELICIOUS, 500, labels=170),
    "words-3500": partial(words, 3500),
    "words-1500": partial(words, 1500),
    "rare-letters-500": partial(words, 500, rare=15),
    "mixed-letters-1500": partial(mixed_letters, 1500),
    "mixed-letters-400": partial(mixed_letters, 400),
    "horses-4x4": partial(horses, 4),
    "horses-8x8": partial(horses, 8),
    "blocks-1000": blocks,
    "topics-600": topics,
    "correlated-200x7": partial(correlated, 200, 20, 7),
    "correlated-500x170": partial(correlated, 500, 68, 170),
    "keywords-600x27": partial(keywords, 600, 1186, 27),
}
OFFICIAL = {
    "yeast-test": partial(official, "yeast"),
    "slashdot-test": partial(official, SLASHDOT),
    "bibtex-test": partial(official, "bibtex"),
}


# The classifiers ---------------------------------------------------------------------------

BASELINES = ("logistic", "chain", "mlp")


def baseline(name: str, task: Task) -> float:
    """Return the F1 of a scikit-learn classifier, with a threshold that is tuned."""
    train, test = (Split(part.X, np.asarray(part.Y, np.int64)) for part in (task.train, task.test))
    found = measured(name, rival(name, seed=0), train, test, seed=0)
    return 100 * found.scores["threshold"]["f1"].mean


def compare(task: Task, seed: int) -> dict[str, float]:
    """Return the scores of all classifiers on one data set."""
    scores = {other: baseline(other, task) for other in BASELINES}
    began = time.perf_counter()
    model = spen.SPENClassifier(random_state=seed).fit(task.train.X, task.train.Y)
    seconds = time.perf_counter() - began
    ours = 100 * spen.example_f1(task.test.Y, model.predict(task.test.X))
    gain = ours - max(scores.values())
    return scores | {"spen": ours, "difference": gain, "seconds": seconds}


# The tables --------------------------------------------------------------------------------


def makers_named(names: str, known: dict[str, Callable[[int], Task]]) -> dict[str, Callable]:
    """Return the sets that a comma-separated list names."""
    return {name: choose(name, known, "set") for name in names.split(",")}


def versus(*, sets: str = ",".join(SETS), seeds: int = 1) -> None:
    """Print F1 beside scikit-learn's; the exit code says whether the defaults hold up."""
    columns = [*BASELINES, "spen", "difference", "seconds"]
    print(f"{'set':20s} seed", *(f"{column:>11s}" for column in columns))
    means = {}
    for name, make in makers_named(sets, SETS | OFFICIAL).items():
        differences = []
        for seed in range(seeds):
            row = compare(make(seed), seed)
            differences.append(row["difference"])
            print(f"{name:20s} {seed:4d}", *(f"{row[c]:11.2f}" for c in columns), flush=True)
        means[name] = float(np.mean(differences))
    mean, worst = float(np.mean(list(means.values()))), min(means, key=means.__getitem__)
    print(f"mean difference {mean:+.2f}, lowest {means[worst]:+.2f} ({worst})")
    sys.exit(mean <= 0 or means[worst] < -1)


def one_way(task: Task, seed: int, way: str) -> dict[str, Any]:
    """Return the scores of one fit, together with its features or apart."""
    default = WAYS[plan_of(spen.SPENClassifier(), task.train).cross_fit]
    apart = way == "apart"
    linear = apart and Scaling.of(task.train.X).sparse
    made = spen.SPENClassifier(
        cross_fit=apart, linear_member=linear, device="cpu", random_state=seed
    )
    made.fit(task.train.X, task.train.Y)
    soft = made.predict_proba(task.test.X)
    scores = {
        decoding: 100 * spen.example_f1(task.test.Y, made.decode(soft, decoding))
        for decoding in DECODINGS
    }
    return scores | {"way": way, "default": default}


def ways(*, sets: str = ",".join(SETS), seeds: int = 2) -> None:
    """Print F1 of energies trained together with their features, and apart."""
    torch.set_num_threads(1)
    lines = []
    for name, make in makers_named(sets, SETS).items():
        records = [one_way(make(seed), seed, way) for seed in range(seeds) for way in WAYS]
        cells = [name + (" *" if records[0]["default"] == "apart" else "")]
        for column in DECODINGS:
            means = [np.mean([r[column] for r in records if r["way"] == way]) for way in WAYS]
            cells += [f"{mean:.1f}" for mean in means] + [f"{means[1] - means[0]:+.1f}"]
        lines.append(cells)
    head = ["set (* apart by default)", "expected F1: together", "apart", "gain"]
    print(text_table([*head, "threshold: together", "apart", "gain"], lines))


if __name__ == "__main__":
    main((versus, ways), "defaults.py", __doc__)
