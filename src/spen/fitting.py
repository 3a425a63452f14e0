"""One fit: choose on held-out rows, freeze what was chosen, train again on all rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from scipy import sparse

from spen.agreement import counts
from spen.calibration import Calibration
from spen.checkpoint import Epoch, History
from spen.data.dataset import Split
from spen.domains import Domain, Simplex
from spen.energies.base import energy_terms
from spen.energies.local import LocalEnergy
from spen.energies.unsized import UnsizedEnergy
from spen.errors import InputError
from spen.metrics import row_f1
from spen.model import SPEN
from spen.progress import epoch_bar
from spen.recipe import Plan, Prediction
from spen.training import best_f1, train


@dataclass(frozen=True)
class Fitted:
    """A trained model, and what was chosen on held-out rows.

    Attributes:
        model: trained.
        plan: with the dropout that was chosen.
        calibration: of its probabilities.
        tuned: what decoding takes (see ``Plan.decode``); None for classes.
        score: of held-out rows: F1, or for classes the accuracy.
        history: of the run that was tuned.
        refit_history: of the run on all rows, or None.
    """

    model: SPEN
    plan: Plan
    calibration: Calibration
    tuned: Any
    score: float
    history: History
    refit_history: History | None


@dataclass(frozen=True)
class Fit:
    """What all runs of one fit share.

    Attributes:
        rows: scaled inputs, labels and weights.
        domain: where the output lives.
        label_weight: (L,) how much each label counts.
        device: where to train.
        seed: decides every random draw.
        tell: called after each epoch.
    """

    rows: Split
    domain: Domain
    label_weight: np.ndarray | None
    device: torch.device
    seed: int
    tell: Callable[[Epoch], None] = field(default=lambda epoch: None)

    def run(self, plan: Plan, kept: Split, held: Split | None = None) -> tuple[SPEN, History]:
        """Train a new model by the plan's stages."""
        model = plan.build(self.rows.X.shape[1], self.domain, self.seed)
        start_at_frequencies(model, kept.Y)
        model = model.to(self.device)
        history = train(
            model,
            plan.stages,
            kept,
            held,
            seed=self.seed,
            # Watched, not obeyed: cheaper than the verdict on the last epoch.
            score=accuracy if isinstance(self.domain, Simplex) else best_f1,
            label_weight=self.label_weight,
            callbacks=(self.tell,),
        )
        return model, history


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
    """Train a model by a plan: choose its dropout, calibrate and tune it, train on all rows."""
    if len(rows) < 2:
        raise InputError(
            f"Fitting needs at least two rows, one of them to tune on; received n_samples = "
            f"{len(rows)}."
        )
    folds = _folds(rows.Y, plan.held_out, plan.folds, seed)
    trials = [_trial(plan, k) for k in range(len(plan.dropout))] if len(plan.dropout) > 1 else []
    epochs = sum(stage.epochs for stage in plan.stages)
    total = len(trials) * len(folds) * plan.trial.epochs + len(folds) * epochs
    bar = nullcontext(lambda epoch: None)
    if verbose:
        bar = epoch_bar("fit", total + plan.refit * epochs)
    with bar as tell:
        work = Fit(rows, domain, label_weight, device, seed, tell)
        if trials:
            best = better_of([_held_out(work, trial, folds).verdict for trial in trials])
            plan = replace(plan, dropout=(plan.dropout[best],))
        result = _held_out(work, plan, folds)
        model, refit_history = result.model, None
        if plan.refit:
            model, refit_history = work.run(plan, rows)
    verdict = result.verdict
    return Fitted(
        model, plan, verdict.calibration, verdict.tuned, verdict.score, result.history,
        refit_history,
    )  # fmt: skip


def _trial(plan: Plan, k: int) -> Plan:
    """Return the plan that tries the k-th dropout on the label-wise model alone."""
    rates = plan.dropout[k]
    stage = replace(plan.trial, name=f"dropout {rates.units:g}?")
    local = UnsizedEnergy(
        tuple(term for term in plan.energy.terms if issubclass(term.kind, LocalEnergy))
    )
    prediction = Prediction(stage.objective, stage.inference)
    return replace(plan, dropout=(rates,), energy=local, stages=(stage,), prediction=prediction)


def _folds(
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
    size = min(max(1, round(held_out * len(telling))), len(telling) - 1)
    count = min(folds, len(telling) // size)
    parts = [np.sort(order[k * size : (k + 1) * size]) for k in range(count)]
    return [(np.setdiff1d(np.arange(rows), part), part) for part in parts]


@dataclass(frozen=True)
class Verdict:
    """What held-out rows say: how to read probabilities, and how good the labels are then.

    Attributes:
        calibration: of the probabilities.
        tuned: what decoding takes.
        losses: (n,) the log loss of each row, calibrated.
        scores: (n,) the F1 of each row; for classes whether it is right.
    """

    calibration: Calibration
    tuned: Any
    losses: np.ndarray
    scores: np.ndarray

    @property
    def score(self) -> float:
        """The mean score."""
        return float(self.scores.mean())


@dataclass(frozen=True)
class _HeldOut:
    model: SPEN
    history: History
    verdict: Verdict


def _held_out(work: Fit, plan: Plan, folds: Sequence[tuple[np.ndarray, np.ndarray]]) -> _HeldOut:
    """Train on what each fold keeps, and judge what it holds out, all folds together."""
    truths, softs, runs = [], [], []
    for kept, held in folds:
        rows = work.rows.rows(held)
        model, history = work.run(plan, work.rows.rows(kept), rows)
        runs.append((model, history))
        softs.append(soft_labels(model, plan.prediction, rows.X).y.cpu().numpy())
        truths.append(densified(rows.Y))
    verdict = judge(plan, work.domain, np.concatenate(truths), np.concatenate(softs))
    model, history = runs[0]
    return _HeldOut(model, history, verdict)


def judge(plan: Plan, domain: Domain, truth: np.ndarray, soft: np.ndarray) -> Verdict:
    """Calibrate, tune and score the predictions of held-out rows."""
    exclusive = isinstance(domain, Simplex)
    calibration = Calibration.of(truth, soft, exclusive)
    soft = calibration.apply(soft)
    known = ~np.isnan(truth)
    right = np.where(np.nan_to_num(truth) == 1, soft, 1.0 if exclusive else 1 - soft)
    losses = -(np.log(right) * known).sum(1)
    if exclusive:
        return Verdict(calibration, None, losses, truth.argmax(1) == soft.argmax(1))
    tuned = plan.tune(truth, soft)
    both, sizes, _ = counts(truth, plan.decode(soft, tuned), axis=1)
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


def soft_labels(model: SPEN, prediction: Prediction, inputs: Any, known: Any = None) -> Any:
    """Return the solution of each row by the inference of predictions."""
    return model.solve_with(
        lambda context: prediction.objective.predict(model, prediction.inference, context),
        inputs,
        known=known,
    )


@torch.no_grad()
def start_at_frequencies(model: SPEN, labels: Any) -> None:
    """Let the local energies begin at how frequent labels are, which rare labels profit from."""
    matrix: Any = labels if sparse.issparse(labels) else densified(labels)
    known = matrix.shape[0] if sparse.issparse(labels) else (~np.isnan(matrix)).sum(0)
    total = matrix.sum(0) if sparse.issparse(labels) else np.nansum(matrix, 0)
    shares = np.where(np.equal(known, 0), 0.5, np.asarray(total).ravel() / np.maximum(known, 1))
    shares = np.clip(shares, 0.002, 0.998)
    odds = np.log(shares) - (0 if isinstance(model.domain, Simplex) else np.log1p(-shares))
    for term in energy_terms(model.energy):
        if isinstance(term, LocalEnergy):
            term.bias.copy_(-torch.from_numpy(odds))
            return


def densified(labels: Any) -> np.ndarray:
    """Return labels as a dense array of float32, nan where they are missing."""
    return np.asarray(labels.toarray() if sparse.issparse(labels) else labels, dtype=np.float32)


def accuracy(truth: Any, soft: Any) -> float:
    """Return the share of rows whose most probable class is the true one."""
    return float((truth.argmax(1) == soft.argmax(1)).sum()) / len(truth)
