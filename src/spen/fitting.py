"""One fit: choose on held-out rows, freeze what was chosen, train again on all rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from spen.agreement import counts
from spen.calibration import Calibration
from spen.checkpoint import Epoch, History
from spen.data.dataset import Split
from spen.domains import Domain, Simplex
from spen.errors import InputError
from spen.metrics import row_f1
from spen.model import SPEN
from spen.plan import LINEAR, Plan, decode
from spen.progress import epoch_bar
from spen.runs import Fit, densified, label_wise_parts, soft_labels
from spen.shared_runs import SHARED, sharing_runs
from spen.stacking import LabelScores


@dataclass(frozen=True)
class Fitted:
    """A trained model, and what was chosen on held-out rows.

    Attributes:
        model: trained.
        plan: with the choice that was made.
        calibration: of its probabilities.
        tuned: what each decoding takes (see ``decode``), by its name; empty for classes.
        score: of held-out rows: F1, or for classes the accuracy.
        history: of the run that was tuned.
        refit_history: of the run on all rows, or None.
    """

    model: SPEN
    plan: Plan
    calibration: Calibration
    tuned: dict[str, Any]
    score: float
    history: History
    refit_history: History | None


@torch.inference_mode(False)
@torch.enable_grad()
def fit(
    plan: Plan,
    rows: Split,
    domain: Domain,
    *,
    label_weight: np.ndarray | None,
    device: torch.device,
    seed: int,
    verbose: bool,
) -> Fitted:
    """Train a model by a plan: make its choice, calibrate and tune it, train on all rows."""
    if len(rows) < 2:
        raise InputError(
            f"Fitting needs at least two rows, one of them to tune on; received n_samples = "
            f"{len(rows)}."
        )
    folds = folds_by(rows.Y, plan.held_out, plan.folds, seed)
    bar = nullcontext(lambda epoch: None)
    if verbose:
        bar = epoch_bar("fit", _epochs(plan, len(folds)))
    with bar as tell:
        work = Fit(rows, domain, label_weight, device, seed, _of_networks(tell))
        plans = [plan.choose(k) for k in range(len(plan.choices))]
        plan, trial = plans[0], None
        if len(plans) > 1:
            some = folds[: plan.trial_folds]
            # A logistic regression that is averaged in is the same in all trials of a fold.
            alike = plan.linear_member and SHARED.get() is None
            with sharing_runs() if alike else nullcontext():
                trials = [held_out_by(work, each.label_wise(), some) for each in plans]
            best = better_of([each.verdict for each in trials])
            plan, trial = plans[best], trials[best]
        if plan.cross_fit:
            return _cross_fit(work, plan, folds, trial)
        # What was a trial need not be trained again where there is nothing more to it.
        result = held_out_by(work, plan, folds, trial if plan.is_label_wise else None)
        model, refit_history = result.model, None
        if plan.refit:
            model, refit_history = work.run(plan, rows)
    verdict = result.verdict
    return Fitted(
        model, plan, verdict.calibration, verdict.tuned, verdict.score, result.history,
        refit_history,
    )  # fmt: skip


def _of_networks(tell: Callable[[Epoch], None]) -> Callable[[Epoch], None]:
    """Return who is told of networks alone: iterations of linear models are many and short."""
    return lambda epoch: None if epoch.stage == LINEAR else tell(epoch)


def _epochs(plan: Plan, folds: int) -> int:
    """Return how many epochs the networks of a fit take in all, if no stage ends early."""
    trial = plan.members * plan.trial.epochs
    whole = sum(stage.epochs for stage in plan.stages)
    tried = min(plan.trial_folds, folds) if len(plan.choices) > 1 else 0
    trials = len(plan.choices) * tried * trial
    if plan.cross_fit:
        return trials + (folds - tried + 1) * trial + (folds + 1) * whole
    if plan.is_label_wise:
        return trials + (folds - tried + plan.refit) * trial
    return trials + (folds + plan.refit) * whole


def _cross_fit(
    work: Fit,
    plan: Plan,
    folds: Sequence[tuple[np.ndarray, np.ndarray]],
    trial: HeldOut | None,
) -> Fitted:
    """Train the energy on label scores of rows that the label-wise models have not seen.

    The verdict comes from energies that have not seen those rows either.
    """
    scored = held_out_by(work, plan.label_wise(), folds, trial)
    verdict = judge(
        plan, work.domain, densified(scored.scores.Y), cross_fitted(work, plan, folds, scored)
    )
    energy, history = work.run_energy(plan, scored.scores)
    label_wise, refit_history = work.run(plan.label_wise(), work.rows)
    features = label_wise.features
    if not isinstance(features, LabelScores):
        features = LabelScores(label_wise_parts(label_wise))
    model = SPEN(features, energy.energy, work.domain).to(work.device)
    return Fitted(
        model, plan, verdict.calibration, verdict.tuned, verdict.score, history, refit_history
    )


def cross_fitted(
    work: Fit, plan: Plan, folds: Sequence[tuple[np.ndarray, np.ndarray]], scored: HeldOut
) -> np.ndarray:
    """Return what energies predict of held-out rows (n, L), each trained on the other folds'."""
    softs = []
    for kept, held in folds:
        others, own = (np.flatnonzero(np.isin(scored.rows, part)) for part in (kept, held))
        model, _ = work.run_energy(plan, scored.scores.rows(others))
        unseen = scored.scores.rows(own)
        softs.append(soft_labels(model, plan.prediction, unseen.X).y.cpu().numpy())
    return np.concatenate(softs)


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


@dataclass(frozen=True)
class Verdict:
    """What held-out rows say: how to read probabilities, and how good the labels are then.

    Attributes:
        calibration: of the probabilities.
        tuned: what each decoding takes, by its name.
        losses: (n,) the log loss of each row, calibrated.
        scores: (n,) the F1 of each row; for classes whether it is right.
    """

    calibration: Calibration
    tuned: dict[str, Any]
    losses: np.ndarray
    scores: np.ndarray

    @property
    def score(self) -> float:
        """The mean score."""
        return float(self.scores.mean())


@dataclass(frozen=True)
class HeldOut:
    """What came of training on what folds keep: the first model, and all held-out rows.

    Attributes:
        folds: how many there were.
        rows: (n,) the numbers of the held-out rows, in the order of the folds.
        soft: (n, L) what is predicted of them.
        scores: the same as log-odds, with their labels and weights.
    """

    model: SPEN
    history: History
    verdict: Verdict
    folds: int
    rows: np.ndarray
    soft: Tensor
    scores: Split


def held_out_by(
    work: Fit,
    plan: Plan,
    folds: Sequence[tuple[np.ndarray, np.ndarray]],
    told: HeldOut | None = None,
) -> HeldOut:
    """Train on what each fold keeps, and judge what it holds out, all folds together.

    Args:
        told: what came of the first folds, where the same plan has been carried out on them.
    """
    if told is not None and told.folds >= len(folds):
        return told
    softs = [told.soft] if told else []
    runs = [(told.model, told.history)] if told else []
    for kept, held in folds[told.folds if told else 0 :]:
        rows = work.rows.rows(held)
        # Watching costs time, and the history of one fold is kept.
        model, history = work.run(plan, work.rows.rows(kept), None if runs else rows)
        runs.append((model, history))
        softs.append(soft_labels(model, plan.prediction, rows.X).y.cpu())
    numbers = np.concatenate([held for _, held in folds])
    rows = work.rows.rows(numbers)
    soft = torch.cat(softs)
    verdict = judge(plan, work.domain, densified(rows.Y), soft.numpy())
    scores = work.domain.clamp_dual(work.domain.to_dual(soft)).numpy()
    model, history = runs[0]
    return HeldOut(
        model, history, verdict, len(folds), numbers, soft, Split(scores, rows.Y, rows.weight)
    )


def judge(plan: Plan, domain: Domain, truth: np.ndarray, soft: np.ndarray) -> Verdict:
    """Calibrate, tune and score the predictions of held-out rows."""
    exclusive = isinstance(domain, Simplex)
    calibration = Calibration.of(truth, soft, exclusive)
    soft = calibration.apply(soft)
    known = ~np.isnan(truth)
    right = np.where(np.nan_to_num(truth) == 1, soft, 1.0 if exclusive else 1 - soft)
    losses = -(np.log(right) * known).sum(1)
    if exclusive:
        return Verdict(calibration, {}, losses, truth.argmax(1) == soft.argmax(1))
    tuned = plan.tune(truth, soft)
    labels = decode(soft, plan.decoding, tuned[plan.decoding])
    both, sizes, _ = counts(truth, labels, axis=1)
    return Verdict(calibration, tuned, losses, row_f1(both, sizes))


def better_of(verdicts: Sequence[Verdict]) -> int:
    """Return which verdict to go by.

    Log losses differ far more clearly than scores, so the smallest decides, unless another
    one's scores are better by more than their standard error.
    """
    first = best = int(np.argmin([verdict.losses.mean() for verdict in verdicts]))
    for k, verdict in enumerate(verdicts):
        gains = verdict.scores.astype(float) - verdicts[first].scores
        clear = gains.mean() > gains.std() / np.sqrt(len(gains))
        if clear and verdict.score > verdicts[best].score:
            best = k
    return best
