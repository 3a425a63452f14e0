"""Labels that are probably wrong or missing, ranked by what x and the other given labels say."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse, special
from sklearn.base import clone
from sklearn.utils.validation import check_array, check_random_state

from spen.batch.inputs import InputRows
from spen.batch.splits import Split
from spen.errors import InputError, check_whole
from spen.estimators.calibration import RIDGE, Calibration
from spen.estimators.predictor import Predictor, dense
from spen.estimators.scaling import CHECKS
from spen.estimators.targets import Targets, read_targets
from spen.features import evaluating
from spen.kernels.threads import threads_for

WRONG = 0.05
"""The share of the labels given that is taken to be wrong, and as many to be missing."""

MOST_DECISIONS = 2**22
"""Given labels that trust and calibration are fitted to; of more rows, a random part."""

SHOWN = 10
"""Issues that are printed."""

_COLUMNS = ("row", "label", "given", "probability")
"""What each issue has one of."""


class Issue(NamedTuple):
    """A decision that is probably wrong: see ``LabelIssues``; its label by name."""

    row: int
    label: Any
    given: float
    probability: float


@dataclass(frozen=True)
class LabelIssues:
    """Decisions that are probably wrong, the most probable first.

    Attributes:
        row: (k,) the number of the row of X and Y.
        label: (k,) the number of the label.
        given: (k,) what Y says: 1 for a label that is probably wrong, 0 for one that is missing.
        probability: (k,) that it is wrong.
        names: (L,) the names of all labels.

    >>> issues = LabelIssues(*map(np.array, ([3, 0], [1, 0], [0, 1], [0.9, 0.6], ["sea", "sun"])))
    >>> print(issues)
    row  label  given  probably wrong
    3    sun    0      90.0 %
    0    sea    1      60.0 %
    >>> len(issues.head(1)), issues.label_names.tolist()
    (1, ['sun', 'sea'])
    >>> [issue.label for issue in issues if not issue.given]
    ['sun']
    """

    row: np.ndarray
    label: np.ndarray
    given: np.ndarray
    probability: np.ndarray
    names: np.ndarray

    @classmethod
    def joined(cls, parts: Sequence[LabelIssues]) -> LabelIssues:
        """Return the issues of several parts of the rows as one list."""
        columns = {
            name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS
        }
        return cls(**columns, names=parts[0].names).ordered()

    def __len__(self) -> int:
        return len(self.row)

    def __iter__(self) -> Iterator[Issue]:
        columns = (self.row, self.label_names, self.given, self.probability)
        return itertools.starmap(Issue, zip(*(each.tolist() for each in columns), strict=True))

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with the columns row, label (its name), given, probability."""
        from pandas import DataFrame

        names = dict.fromkeys(_COLUMNS) | {"label": self.label_names}
        return DataFrame(
            {name: getattr(self, name) if v is None else v for name, v in names.items()}
        )

    @property
    def label_names(self) -> np.ndarray:
        """The name of each issue's label, (k,)."""
        return self.names[self.label]

    def head(self, n: int) -> LabelIssues:
        """Return the first n."""
        return self._some(slice(n))

    def ordered(self) -> LabelIssues:
        """Return them with the most probable first; of equals, as they stand in Y."""
        return self._some(np.lexsort((self.label, self.row, -self.probability)))

    def _some(self, index: Any) -> LabelIssues:
        return replace(self, **{name: getattr(self, name)[index] for name in _COLUMNS})

    def __str__(self) -> str:
        header = ["row", "label", "given", "probably wrong"]
        first = self.head(SHOWN)
        shares = [f"{100 * share:.1f} %" for share in first.probability]
        columns = [map(str, each) for each in (first.row, first.label_names, first.given)]
        rows = [list(line) for line in zip(*columns, shares, strict=True)]
        widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
        lines = [
            "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in [header, *rows]
        ]
        more = len(self) - len(first)
        return "\n".join([*lines, *([f"and {more:,} more"] if more else [])])


@dataclass(frozen=True)
class Trust:
    """How far to trust the features, and how far the other labels that are given.

        log-odds of a label = own · z + others · (c − z) + shift of the label

    z are the label-wise log-odds, and c those that the energy gives the label where all others are
    as given. Labels that are given may be wrong themselves, and an energy may have learned more or
    less of them; so both weights are fitted to the labels given, by log loss, on rows that the
    model has not seen.

    Attributes:
        own: the weight of what the features say.
        others: the weight of what the other labels add to it.
        shift: (L,)
    """

    own: float
    others: float
    shift: np.ndarray

    @classmethod
    def of(cls, given: np.ndarray, z: np.ndarray, c: np.ndarray) -> Trust:
        """Minimise the log loss of labels, with a ridge towards z and c as they are.

        Args:
            given: (n, L) of 0 and 1; nan where a label is missing.
            z: (n, L) label-wise log-odds.
            c: (n, L) log-odds given all other labels.
        """
        counts = ~np.isnan(given)
        truth, ones = given[counts], np.ones(counts.sum())
        inputs = np.stack([z[counts], (c - z)[counts], ones], 1)
        neutral = np.array([1.0, 1.0, 0.0])
        weight = neutral.copy()
        for _ in range(12):
            p = special.expit(inputs @ weight)
            slope = inputs.T @ (p - truth) + RIDGE * (weight - neutral)
            bend = (inputs * (p * (1 - p))[:, None]).T @ inputs + RIDGE * np.eye(3)
            weight = np.clip(weight - np.linalg.solve(bend, slope), (0, 0, -3), 3)
        own, others, shift = weight.tolist()
        soft = special.expit(own * z + others * (c - z) + shift)
        labels = Calibration.of(given, soft, exclusive=False)
        scale = labels.scale
        return cls(scale * own, scale * others, scale * shift + labels.shift)

    def log_odds(self, z: np.ndarray, c: np.ndarray) -> np.ndarray:
        """Return the log-odds of each label, (n, L)."""
        return self.own * z + self.others * (c - z) + self.shift


def find_issues(
    predictor: Predictor,
    X: Any,
    labels: Any,
    names: np.ndarray,
    *,
    top: int | None,
    wrong: float,
    seed: int = 0,
) -> LabelIssues:
    """Return the issues of rows that the predictor's model has not seen.

    Args:
        predictor: of label sets.
        X: (n, d) checked rows.
        labels: (n, L) of 0 and 1, dense or sparse; nan where a label is missing.
        names: (L,) of the labels.
        top: how many; None: those that are more probably wrong than not.
        wrong: the share of the ones that is taken to be wrong, and as many zeros.
        seed: draws the rows that trust is fitted to, where there are many.
    """
    rows, size = labels.shape
    entries: Any = labels.data if sparse.issparse(labels) else labels
    if sparse.issparse(labels) and np.isnan(entries).any():
        raise InputError("Missing labels (nan) need a dense Y.")
    if not (np.isnan(entries) | (entries == 0) | (entries == 1)).all():
        raise InputError("Y must hold only 0 and 1 (or nan for a missing label).")
    some = np.arange(rows)
    if rows * size > MOST_DECISIONS:
        drawn = np.random.default_rng(seed).permutation(rows)
        some = np.sort(drawn[: max(1, MOST_DECISIONS // size)])
    judged = zip(*log_odds_given(predictor, X[some], labels[some]), strict=True)
    trust = Trust.of(*map(np.concatenate, judged))
    if_one, if_zero = evidence(labels, wrong)
    first, found = 0, _empty(names)
    for given, z, c in log_odds_given(predictor, X, labels):
        odds = trust.log_odds(z, c)
        # Of the other value than the given one, nan where none is given.
        other = np.where(given == 1, -(odds + if_one), odds + if_zero)
        other[np.isnan(given)] = -np.inf
        least = -np.inf if top is None or len(found) < top else special.logit(found.probability[-1])
        at = np.flatnonzero(other > (0.0 if top is None else least))
        if top is not None and len(at) > top:
            at = at[np.argpartition(-other.ravel()[at], top - 1)[:top]]
        row, label = np.divmod(at, size)
        own = row + first, label, given.ravel()[at].astype(np.int8)
        found = LabelIssues.joined(
            [found, LabelIssues(*own, special.expit(other.ravel()[at]), names)]
        )
        found = found if top is None else found.head(top)
        first += len(given)
    return found


def evidence(labels: Any, wrong: float) -> tuple[float, float]:
    """Return what being given, and not being given, adds to a label's log-odds.

    Of the ones a share is wrong, and as many ones are missing among the zeros:
    log P(given | true) / P(given | false), and the same of not being given.

    >>> evidence(np.array([[1, 0, 0]]), 0.1)
    (2.890..., -2.251...)
    """
    if sparse.issparse(labels):
        ones: float = labels.sum()
        zeros = labels.shape[0] * labels.shape[1] - ones
    else:
        ones, zeros = (labels == 1).sum(), (labels == 0).sum()
    added = min(wrong * max(ones, 1) / max(zeros, 1), 1 - wrong)
    return float(np.log((1 - wrong) / added)), float(np.log(wrong / (1 - added)))


def log_odds_given(
    predictor: Predictor, X: Any, labels: Any
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield the labels given (n, L), label-wise log-odds, and log-odds given all other labels.

    Labels that are missing stand at what inference makes of them where the others are known.
    """
    model = predictor.model
    for some, part in predictor.chunks(X, labels):
        given, scaled = np.asarray(dense(part), dtype=np.float32), predictor.scale(some)
        y = torch.from_numpy(given)
        if y.isnan().any():
            solved = predictor.solve(scaled, given).y.cpu()
            y = torch.where(y.isnan(), solved.to(y), y)
        first = 0
        with torch.no_grad(), evaluating(model), threads_for(model.work(scaled)):
            for context, rows in model.contexts(scaled):
                at = y[first : first + rows].to(model.reference)
                problem = model.smoothed(context, 0.0)
                problem = problem.select(torch.arange(rows, device=at.device))
                others = (2 * at - 1) * problem.flips(at)
                z = -model.local_scores(context)[:rows]
                z, others = (each.double().cpu().numpy() for each in (z, others))
                yield given[first : first + rows], z, others
                first += rows


def _empty(names: np.ndarray) -> LabelIssues:
    none = np.empty(0, np.intp)
    return LabelIssues(none, none, np.empty(0, np.int8), np.empty(0), names)


def cross_fitted_issues(
    classifier: Any,
    X: Any,
    Y: Any,
    *,
    folds: int,
    names: np.ndarray | None,
    top: int | None,
    wrong: float,
) -> LabelIssues:
    """Return the issues of all rows, each found by a copy of a classifier that has not seen it.

    Args:
        classifier: of spen; its settings count, fitted or not, and it stays as it is.
        X: (n, d) numbers.
        Y: sets of labels, in any form that ``fit`` takes.
        folds: how many copies are fitted.
        names: of the labels, where Y does not name them.
        top: how many; None: those that are more probably wrong than not.
        wrong: the share of the ones that is taken to be wrong.
    """
    inputs: Any = X if isinstance(X, InputRows) else check_array(X, input_name="X", **CHECKS)
    targets = read_targets(Y)
    refuse_classes(targets.exclusive)
    if targets.n_rows != inputs.shape[0]:
        raise InputError(
            f"X and Y must have as many rows; received {inputs.shape[0]} and {targets.n_rows}."
        )
    if targets.n_rows < 4:
        raise InputError(
            f"label_issues needs at least four rows, so that each is judged by a model of others; "
            f"received n_samples = {targets.n_rows}."
        )
    check_whole(folds, "folds", least=2, most=targets.n_rows // 2)
    seed = int(check_random_state(classifier.random_state).randint(2**31 - 1))
    own: Any = clone(classifier)
    own.set_params(verbose=0, warm_start=False, remember_rows=False, random_state=seed)
    rows = Split(inputs, targets.matrix)
    part = np.random.default_rng(seed).permutation(len(rows)) % folds
    labels = _named(targets, names)
    found = []
    for fold in range(folds):
        kept, held = rows.rows(np.flatnonzero(part != fold)), np.flatnonzero(part == fold)
        own.fit(kept.X, kept.Y, label_names=labels.tolist())
        unseen = rows.rows(held)
        issues = find_issues(
            own.predictor_, unseen.X, unseen.Y, labels, top=top, wrong=wrong, seed=seed
        )
        of_all = held[issues.row], issues.label, issues.given, issues.probability
        found.append(LabelIssues(*of_all, labels))
    together = LabelIssues.joined(found)
    return together if top is None else together.head(top)


def _named(targets: Targets, names: np.ndarray | None) -> np.ndarray:
    """Return the names that Y gives its labels, or else those that a fitted classifier knows."""
    if names is None or targets.names.dtype.kind == "O" or len(names) != len(targets.names):
        return targets.names
    return names


def refuse_classes(exclusive: bool) -> None:
    """Raise where each row has one class."""
    if exclusive:
        raise InputError(
            "label_issues is for sets of labels, and this Y has one class for each row. For "
            "classes, rank rows by the probability of the given class: cross_val_predict(clf, X, "
            "y, method='predict_proba')."
        )
