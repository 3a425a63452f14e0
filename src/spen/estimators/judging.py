"""What held-out rows say of a model: folds, verdicts, and which of them to go by."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from spen.batch.arrays import densified
from spen.batch.limits import limits
from spen.batch.splits import Split
from spen.domains import Domain, Simplex
from spen.errors import InputError, UndertrainedWarning
from spen.estimators.calibration import Calibration
from spen.estimators.decoding import BEST_FOR, decode, tune_decodings
from spen.estimators.plan import LINEAR, Plan, Prediction
from spen.estimators.predictor import level_of_caller, lowest, solve
from spen.kernels.threads import threads_for
from spen.metrics import METRICS, row_scores
from spen.model import SPEN
from spen.training.checkpoint import History
from spen.training.processes import our_processes

Folds = Sequence[tuple[np.ndarray, np.ndarray]]
"""(kept, held out) row numbers."""

ENOUGH_ONES = 100
"""Ones of a label in a fold, on average, that calibrate it: then one fold will do."""

MOST_JUDGED = 2**25
"""Held-out decisions, beyond which one fold has to do, because each trains an energy more."""


def folds_by(
    labels: Any, held_out: float, folds: int, seed: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (kept, held out) row numbers: disjoint held-out shares of a random order.

    A row without any known label can judge nothing, so it is never held out.
    """
    rows = labels.shape[0]
    telling = np.arange(rows)
    if not sparse.issparse(labels):
        telling = np.flatnonzero(~np.isnan(labels).all(1))
    if len(telling) < 2:
        raise InputError(
            f"Only {len(telling)} row has a known label; fitting needs at least two such rows, "
            "one of them to tune on."
        )
    order = telling[np.random.default_rng(seed).permutation(len(telling))]
    if folds > 1 and folds * held_out > 1 - 1e-9:
        # The shares are to cover all rows, so they need not be equal to the last row.
        shares = np.array_split(order, min(folds, len(telling)))
    else:
        size = min(max(1, round(held_out * len(telling))), len(telling) - 1)
        count = min(folds, len(telling) // size)
        shares = [order[k * size : (k + 1) * size] for k in range(count)]
    parts = [np.sort(rows_held) for rows_held in shares]
    return [(np.setdiff1d(np.arange(rows), part), part) for part in parts]


def judging_folds(folds: Folds, labels: Any) -> Folds:
    """Return the folds whose held-out rows calibrate and tune, where label scores need them all.

    Args:
        folds: (kept, held out) row numbers.
        labels: (n, L) of all rows, dense or sparse; nan where a label is missing.
    """
    held = labels[folds[0][1]]
    ones = held.sum() if sparse.issparse(held) else np.nansum(held)
    enough = ones >= ENOUGH_ONES * labels.shape[1]
    return folds[:1] if enough or labels.shape[0] * labels.shape[1] > MOST_JUDGED else folds


@dataclass(frozen=True)
class Verdict:
    """What held-out rows say: how to read probabilities, and how good the labels are then.

    Attributes:
        calibration: of the probabilities.
        decoding: the one of those in question whose score is best.
        tuned: what each decoding takes, by its name.
        losses: (n,) the log loss of each row, calibrated; of a plan that is compared ``by_known``
            that of its hidden labels, as the model gives it.
        scores: (n,) the score of each row, by which verdicts are compared: see ``row_scores``.
        score: of all rows, by the plan's metric.
    """

    calibration: Calibration
    decoding: str
    tuned: dict[str, Any]
    losses: np.ndarray
    scores: np.ndarray
    score: float


def judge(
    plan: Plan,
    domain: Domain,
    truth: np.ndarray,
    soft: np.ndarray,
    joint: np.ndarray | None = None,
    half: tuple[np.ndarray, np.ndarray] | None = None,
) -> Verdict:
    """Calibrate, tune and score the predictions of held-out rows.

    Args:
        plan: with its metric and its decoding.
        domain: where the output lives.
        truth: (n, L) of 0 and 1; nan marks a missing label.
        soft: (n, L) what inference left.
        joint: (n, L) the labellings of the lowest energy, where they may be wanted.
        half: truth and prediction of rows of which half of the labels were known, see
            ``half_known``, where that is calibrated by itself.
    """
    with threads_for(soft.size):
        verdict = _judge(plan, domain, truth, soft, joint)
        if half is None:
            return verdict
        apart = Calibration.of(*half, exclusive=False)
        return replace(verdict, calibration=replace(verdict.calibration, half=apart))


def _judge(
    plan: Plan, domain: Domain, truth: np.ndarray, soft: np.ndarray, joint: np.ndarray | None
) -> Verdict:
    exclusive = isinstance(domain, Simplex)
    calibration = Calibration(1.0, np.zeros(domain.size), exclusive)
    if not plan.raw:
        calibration = Calibration.of(truth, soft, exclusive)
    soft = calibration.apply(soft)
    known = ~np.isnan(truth)
    right = np.where(np.nan_to_num(truth) == 1, soft, 1.0 if exclusive else 1 - soft)
    losses = -(np.log(np.maximum(right, np.finfo(right.dtype).tiny)) * known).sum(1)
    if exclusive:
        labels = {plan.decoding: domain.round(torch.from_numpy(soft)).numpy()}
        tuned: dict[str, Any] = {}
    else:
        names = BEST_FOR[plan.metric] if plan.decoding == "auto" else (plan.decoding,)
        if joint is None and len(names) > 1:
            names = tuple(name for name in names if name != "joint")
        # Raw plans are tried many times over.
        untuned = plan.raw and names == ("half",)
        tuned = {"half": 0.5} if untuned else tune_decodings(truth, soft, names, plan.metric)
        labels = {
            name: joint if name == "joint" else decode(soft, name, tuned[name]) for name in names
        }
    scored = {name: METRICS[plan.metric](truth, labels[name]) for name in labels}
    # Of equally good ones the first.
    best = max(scored, key=lambda name: scored[name])
    rows = row_scores(plan.metric, truth, labels[best])
    return Verdict(calibration, best, tuned, losses, rows, scored[best])


def best_verdict(verdicts: Sequence[Verdict], raw: bool) -> int:
    """Return which verdict to go by.

    Log losses differ far more clearly than scores, so the smallest decides, unless another
    one's scores are better by more than their standard error. Raw ones are compared by their
    scores alone; of equal ones the last is taken.
    """
    if raw:
        return max(range(len(verdicts)), key=lambda k: (round(verdicts[k].score, 9), k))
    first = best = int(np.argmin([verdict.losses.mean() for verdict in verdicts]))
    for k, verdict in enumerate(verdicts):
        gains = verdict.scores.astype(float) - verdicts[first].scores
        clear = gains.mean() > gains.std() / np.sqrt(len(gains))
        if clear and verdict.score > verdicts[best].score:
            best = k
    return best


def inferred(
    model: SPEN,
    prediction: Prediction,
    inputs: Any,
    known: Tensor | None = None,
    joint: bool = False,
) -> Tensor:
    """Return what inference leaves of held-out rows, (n, L), on the CPU; ``joint`` asks for the
    labelling of the lowest energy instead.

    Of several processes each finds it for itself, which takes little beside training, and goes by
    what the first one found: with the bits that one process alone would find.
    """
    found = lowest(model, prediction, inputs) if joint else solve(model, prediction, inputs, known)
    y = found.y.cpu()
    our_processes().take_from_first([y])
    return y


MOST_JUDGES = 4096
"""Held-out rows by which energies are chosen."""

SHARES = (0.0, 0.25, 0.5)
"""Of labels that are known, where the width of an energy is chosen by the others."""


def losses_when_known(
    model: SPEN, prediction: Prediction, rows: Split, seed: int, shares: Sequence[float] = SHARES
) -> np.ndarray:
    """Return the mean log loss (n,) of the labels that stay hidden, averaged over shares of known
    ones, which are drawn at random."""
    draws, losses = np.random.default_rng(seed), np.zeros(len(rows))
    step = limits.rows_at_once(model.domain.size)
    for first in range(0, len(rows), step):
        part = rows.rows(np.arange(first, min(first + step, len(rows))))
        truth = torch.from_numpy(densified(part.Y))
        told = torch.from_numpy(draws.random(truth.shape, dtype=np.float32))
        for share in shares:
            known = torch.where(told < share, truth, torch.nan) if share else None
            y = inferred(model, prediction, part.X, known)
            counts = ~torch.isnan(truth) & (told >= share)
            each = model.domain.log_loss(y, truth.nan_to_num()) * counts
            mean = each.sum(1) / counts.sum(1).clamp_min(1)
            losses[first : first + len(mean)] += mean.numpy() / len(shares)
    return losses


def half_known(
    model: SPEN, prediction: Prediction, rows: Split, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return what is hidden (n, L), nan elsewhere, and what is predicted of it, where a random half
    of each row's labels is known."""
    rows = rows.rows(np.arange(min(len(rows), MOST_JUDGES)))
    truth = densified(rows.Y)
    shown = np.random.default_rng(seed).random(truth.shape, dtype=np.float32) < 0.5
    known = torch.from_numpy(np.where(shown, truth, np.nan))
    soft = inferred(model, prediction, rows.X, known).numpy()
    return np.where(shown, np.nan, truth), soft


FEWEST_JUDGES = 10
"""Held-out rows without which a score says nothing."""

STEEP = 0.1
"""The share of all that the loss falls which may be left to the last quarter of a run."""


def warn_if_undertrained(
    plan: Plan, domain: Domain, labels: Any, score: float, history: History
) -> None:
    """Warn of a model that is no better than a constant, or whose loss is still falling.

    Args:
        plan: that was carried out.
        domain: where the output lives.
        labels: (n, L) of held-out rows.
        score: of the model on these.
        history: of its training.
    """
    if plan.raw:
        return
    truth = densified(labels)
    known = ~np.isnan(truth)
    shares = np.where(known, truth, 0).sum(0) / np.maximum(known.sum(0), 1)
    constant = np.tile(shares.astype(np.float32), (len(truth), 1))
    best = judge(replace(plan, decoding="auto", raw=False), domain, truth, constant).score
    losses = [epoch.loss for epoch in history.epochs if epoch.stage != LINEAR]
    quarter = max(1, len(losses) // 4)
    # An energy over scores that are known has little to learn, so its loss falls by little. And a
    # network that is told labels fits its rows ever better, but held-out ones have chosen its rate.
    falls = (
        len(losses) > 1
        and not (plan.cross_fit or plan.by_known)
        and (losses[-1 - quarter] - losses[-1] > max(STEEP * (losses[0] - losses[-1]), 0))
    )
    if len(truth) >= FEWEST_JUDGES and score < best:
        problem = (
            f"scores {100 * score:.1f} on held-out rows, less than the "
            f"{100 * best:.1f} of predicting the same for every row"
        )
    elif falls and len({epoch.stage for epoch in history.epochs}) == 1:
        problem = "was still learning fast when its training ended"
    else:
        return
    warnings.warn(
        f"The model {problem}. Give it more epochs, wider layers or more rows, or leave these "
        "settings to SPENClassifier.",
        UndertrainedWarning,
        stacklevel=level_of_caller(),
    )


def accuracy(truth: Any, soft: Any) -> float:
    """Return the share of rows whose most probable class is the true one."""
    return float((truth.argmax(1) == soft.argmax(1)).sum()) / len(truth)
