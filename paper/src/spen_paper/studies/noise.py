"""A study of wrong labels: errors are planted, and rankings of suspicious labels look for them."""

from __future__ import annotations

import statistics
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import spen
from spen import LabelIssues, Split
from spen.cli.show import say, text_table
from spen.errors import MissingPackageError, UndertrainedWarning, check_whole
from spen_paper.figures import difference, mean_and_deviation
from spen_paper.fits import plan_of
from spen_paper.records import Record, Records, brief, check_seeds, identity
from spen_paper.sets import load

SHARE = 0.05
"""Of the labels that are removed, and as many are added."""

TITLES = {
    "spen": "label_issues",
    "cleanlab-mlp": "cleanlab, label-wise scores",
    "cleanlab-spen": "cleanlab, SPEN probabilities",
    "cleanlab-mlp-adjusted": "cleanlab adjusted, label-wise scores",
    "cleanlab-spen-adjusted": "cleanlab adjusted, SPEN probabilities",
}
RULE = "share of planted errors among as many of the labels that are ranked first, x 100"
METRICS = {"precision": "precision", "removed": "of the removed", "added": "of the added"}


def noise(
    *, dataset: str, seeds: int, folds: int, rows: int | None, device: str, out: Path
) -> None:
    """Plant errors in training labels, and say which share of them each ranking finds."""
    check_seeds(seeds)
    check_whole(folds, "folds", least=2)
    if rows is not None:
        check_whole(rows, "rows", least=2 * folds)
    quality_scores()  # Said before any work, not after it.
    records, train = Records(out), load(dataset).train
    found = [
        _records(records, dataset, sampled(train, rows, seed), seed, folds, device)
        for seed in range(seeds)
    ]
    scores = {
        method: {name: [each[method]["metrics"][name] for each in found] for name in METRICS}
        for method in TITLES
    }
    ours = scores["spen"]["precision"]
    lines = [
        [
            title,
            *(mean_and_deviation(scores[method][name]) for name in METRICS),
            "" if method == "spen" else difference(ours, scores[method]["precision"]),
        ]
        for method, title in TITLES.items()
    ]
    say(text_table(["ranking", *METRICS.values(), "label_issues − it"], lines))
    say()
    planted = statistics.fmean(each["spen"]["planted"] for each in found)
    chance = statistics.fmean(each["spen"]["chance"] for each in found)
    n_train = found[0]["spen"]["n_train"]
    for line in IN_WORDS:
        say(line)
    say(f"\n{dataset}: {n_train:,} training rows, {planted:,.0f} errors planted, {folds} folds,")
    say(f"{seeds} seed{'s' if seeds > 1 else ''}. A random order would have {chance:.2f}.")
    say(f"Records: {records.path}")


IN_WORDS = (
    f"Of the labels of training rows {100 * SHARE:g} % are removed, drawn at random, and as many",
    "zeros become labels. Precision is the share of planted errors, in percent, among as many",
    "decisions as were planted, ranked first; beside it the shares of the removed and of the",
    "added labels that are among them. Errors that were in the data before count as false alarms.",
    "Each row is judged by a model that has not seen it. label_issues and the SPEN probabilities",
    "are of the same SPENClassifier(); label-wise scores are those of SPENClassifier(",
    'energy="local") on the same folds. cleanlab ranks all decisions by its score of each label,',
    '"self_confidence"; adjusted, less the mean confidence of each label. No test row is used.',
)


@dataclass(frozen=True)
class Planted:
    """Labels with errors.

    Attributes:
        given: (n, L) the labels as a classifier is to see them, CSR.
        wrong: (n, L) of bool: where they are not what they were.
    """

    given: Any
    wrong: np.ndarray

    @property
    def count(self) -> int:
        """How many errors there are."""
        return int(self.wrong.sum())


def plant(labels: Any, share: float, seed: int) -> Planted:
    """Remove a share of the labels (n, L), drawn at random, and add as many among the zeros.

    >>> planted = plant(sparse.csr_matrix(np.eye(10)), 0.2, seed=0)
    >>> planted.count, int(planted.given.sum())
    (4, 10)
    """
    truth = labels.toarray().astype(np.int8)
    draws = np.random.default_rng(seed)
    ones, zeros = np.flatnonzero(truth == 1), np.flatnonzero(truth == 0)
    count = round(share * len(ones))
    if not 0 < count <= len(zeros):
        raise spen.InputError(
            f"{share:g} of {len(ones)} labels are {count}, and as many zeros must be there; these "
            f"are {len(zeros)}. Take more rows."
        )
    chosen = (draws.choice(those, count, replace=False) for those in (ones, zeros))
    wrong = np.zeros(truth.shape, bool)
    wrong.flat[np.concatenate(list(chosen))] = True
    return Planted(sparse.csr_matrix(np.where(wrong, 1 - truth, truth)), wrong)


def quality_scores() -> Any:
    """Return cleanlab's function for the quality of each label, or say how to get it."""
    try:
        with warnings.catch_warnings():
            # That packages are not there which only its other parts need.
            warnings.simplefilter("ignore")
            from cleanlab.multilabel_classification.rank import (  # type: ignore[import-not-found]
                get_label_quality_scores_per_class,
            )
    except ImportError as problem:
        raise MissingPackageError(
            f"The study of wrong labels compares with cleanlab, which cannot be imported "
            f'({problem}). Install it: pip install "spen-paper[noise]".'
        ) from None
    return get_label_quality_scores_per_class


def ranked(planted: Planted, issues: LabelIssues) -> Record:
    """Return what is found by the decisions that are ranked first, as many as were planted."""
    hits = planted.wrong[issues.row, issues.label]
    added = planted.count // 2
    return {
        "precision": round(100 * float(hits.mean()), 4),
        "removed": round(100 * int((hits & (issues.given == 0)).sum()) / added, 4),
        "added": round(100 * int((hits & (issues.given == 1)).sum()) / added, 4),
    }


def cleanlabs(planted: Planted, soft: np.ndarray, *, adjusted: bool) -> LabelIssues:
    """Return as many decisions as errors were planted, of the lowest quality by cleanlab.

    Args:
        planted: the labels.
        soft: (n, L) probabilities of rows that their model has not seen.
        adjusted: whether the mean confidence of each label is taken off.
    """
    given = planted.given
    lists = np.split(given.indices, given.indptr[1:-1])
    quality = quality_scores()(
        [row.tolist() for row in lists], soft, method="self_confidence", adjust_pred_probs=adjusted
    )
    flat = np.asarray(quality).ravel()
    first = np.argsort(flat, kind="stable")[: planted.count]
    row, label = np.divmod(first, given.shape[1])
    values = np.asarray(given[row, label]).ravel()
    return LabelIssues(row, label, values, 1 - flat[first], np.arange(given.shape[1]))


def sampled(train: Split, rows: int | None, seed: int) -> Split:
    """Return so many rows, drawn at random; all of them for None."""
    if rows is None or rows >= len(train):
        return train
    order = np.random.default_rng(seed).permutation(len(train))
    return train.rows(np.sort(order[:rows]))


def _records(
    records: Records, dataset: str, train: Split, seed: int, folds: int, device: str
) -> dict[str, Record]:
    """Return the record of each ranking of one seed's errors."""
    planted = plant(train.Y, SHARE, seed)
    own, label_wise = (
        spen.SPENClassifier(energy=energy, device=device, random_state=seed)
        for energy in ("auto", "local")
    )
    common = {"share": SHARE, "folds": folds}
    plans = {"spen": brief(plan_of(own, train)), "mlp": brief(plan_of(label_wise, train))}
    wanted = {}
    for method in TITLES:
        plan = plans["mlp" if "mlp" in method else "spen"]
        place = ("noise", dataset, method, len(train), seed, common | {"plan": plan})
        wanted[method] = identity(*place, rule=RULE)

    def measure() -> dict[str, Record]:
        lists = _rankings(planted, train.X, own, label_wise, seed, folds)
        beside = {
            "planted": planted.count,
            "chance": round(100 * planted.count / planted.wrong.size, 4),
        }
        return {name: beside | {"metrics": ranked(planted, each)} for name, each in lists.items()}

    return records.make_all(wanted, measure)


def _rankings(
    planted: Planted, X: Any, own: Any, label_wise: Any, seed: int, folds: int
) -> dict[str, LabelIssues]:
    """Return the decisions that each method ranks first, from models that have not seen the row."""
    rows = Split(X, planted.given)
    part = np.random.default_rng(seed).permutation(len(rows)) % folds
    soft = {name: np.zeros(planted.wrong.shape, np.float32) for name in ("spen", "mlp")}
    found = []
    for fold in range(folds):
        kept, held = rows.rows(np.flatnonzero(part != fold)), np.flatnonzero(part == fold)
        unseen = rows.rows(held)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UndertrainedWarning)
            own.fit(kept.X, kept.Y)
            label_wise.fit(kept.X, kept.Y)
        soft["spen"][held] = own.predict_proba(unseen.X)
        soft["mlp"][held] = label_wise.predict_proba(unseen.X)
        issues = own.label_issues(unseen.X, unseen.Y, unseen=True, top=planted.count)
        of_all = held[issues.row], issues.label, issues.given, issues.probability
        found.append(LabelIssues(*of_all, issues.names))
    lists = {"spen": LabelIssues.joined(found).head(planted.count)}
    for name, each in soft.items():
        lists[f"cleanlab-{name}"] = cleanlabs(planted, each, adjusted=False)
        lists[f"cleanlab-{name}-adjusted"] = cleanlabs(planted, each, adjusted=True)
    return lists
