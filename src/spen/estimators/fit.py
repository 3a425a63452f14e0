"""A fit: choose on held-out rows, freeze what was chosen, train again on all rows."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from spen.batch.arrays import densified
from spen.batch.splits import Split
from spen.domains import Domain
from spen.energies.base import UnsizedEnergy
from spen.errors import InputError
from spen.estimators.calibration import Calibration
from spen.estimators.judging import (
    MOST_JUDGES,
    Folds,
    Verdict,
    best_verdict,
    folds_by,
    half_known,
    inferred,
    judge,
    judging_folds,
    losses_when_known,
    warn_if_undertrained,
)
from spen.estimators.plan import Plan
from spen.estimators.predictor import Predictor
from spen.estimators.progress import epochs_of, in_words, showing
from spen.estimators.runs import Fit, HeldOut, joined, label_wise_parts, mean_run
from spen.estimators.scaling import Scaling
from spen.features import LabelScores
from spen.model import SPEN
from spen.training.checkpoint import Epoch, History, RunFolder, describe
from spen.training.processes import our_processes


@dataclass(frozen=True)
class Fitted:
    """A trained model, and what was chosen on held-out rows.

    Attributes:
        model: trained.
        plan: with the choice that was made.
        calibration: of its probabilities.
        tuned: what each decoding takes (see ``decode``), by its name; empty for classes.
        score: of held-out rows, by the plan's metric; for classes the accuracy.
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

    def predictor(self, scaling: Scaling) -> Predictor:
        """Return the path from rows to labels, for rows that are scaled as these were."""
        plan = self.plan
        return Predictor(
            self.model, plan.prediction, scaling, self.calibration, plan.decoding, self.tuned
        )


@torch.inference_mode(False)
@torch.enable_grad()
def fit(
    plan: Plan,
    rows: Split,
    domain: Domain,
    *,
    seed: int | None,
    label_weight: np.ndarray | None = None,
    device: torch.device | None = None,
    title: str | None = None,
    held: Split | None = None,
    start: SPEN | None = None,
    callbacks: Sequence[Callable[[Epoch], None]] = (),
    checkpoint: Path | str | None = None,
    resume: bool = False,
) -> Fitted:
    """Train a model by a plan: make its choice, calibrate and tune it, train on all rows.

    Args:
        plan: what to carry out.
        rows: scaled inputs, labels and weights.
        domain: where the output lives.
        seed: decides every random draw; None draws one, which a fit that goes on keeps.
        label_weight: (L,) how much each label counts.
        device: where to train; None is the CPU.
        title: of what is shown of its progress; None shows nothing.
        held: rows to choose, calibrate and tune by, in place of shares of ``rows``; all of those
            are then trained on at once.
        start: a model to go on from, of the plan's sizes; None begins anew.
        callbacks: called after each epoch.
        checkpoint: a folder for the checkpoints of all runs.
        resume: whether to go on in that folder.
    """
    if len(rows) < 2:
        raise InputError(
            f"Fitting needs at least two rows, one of them to tune on; received n_samples = "
            f"{len(rows)}."
        )
    # Not from numpy's global generator, which belongs to the user.
    processes = our_processes()
    drawn = processes.said_by_first(lambda: secrets.randbelow(2**31) if seed is None else seed)
    folds = None
    if held is not None:
        if plan.cross_fit:
            raise InputError(
                "eval_set takes the place of held-out rows, and cross_fit=True holds out every row "
                "once. Leave eval_set out, or set cross_fit=False."
            )
        folds = [(np.arange(len(rows)), len(rows) + np.arange(len(held)))]
        rows, plan = rows.joined(held), replace(plan, refit=False)
        plan = replace(plan, rivals=tuple(replace(each, refit=False) for each in plan.rivals))
    work = Fit(rows, domain, drawn, label_weight, device or torch.device("cpu"))
    work = replace(work, folds=folds, start=start, callbacks=tuple(callbacks))
    if not processes.is_first:
        title = None
    if checkpoint is None:
        return _fit(work, plan, title)
    identity = {"settings": describe(plan), "rows, weights or device": work.same(rows)}
    identity["random_state"] = str(seed)
    held_folder = partial(RunFolder.held, checkpoint, resume, identity, drawn)
    with processes.entered_by_first(held_folder) as folder:
        return _fit(replace(work, folder=folder, seed=folder.seed), plan, title)


def _fit(work: Fit, plan: Plan, title: str | None) -> Fitted:
    """Carry out a plan."""
    rows = work.rows
    folds = work.folds or folds_by(rows.Y, plan.held_out, plan.folds, work.seed)
    with showing(title, epochs_of(plan, len(folds))) as progress:
        work = replace(work, progress=progress)
        plan, trial, _ = work.choose(plan, folds)
        # A rival with the same layers is trained as what was chosen.
        same = [plan.chosen.hidden == rival.chosen.hidden for rival in plan.rivals]
        rivals = zip(plan.rivals, same, strict=True)
        plans = [plan, *(plan.chosen.apply(rival) if alike else rival for rival, alike in rivals)]
        among = [each.chosen for each in plans]
        # All are judged by the same rows.
        judging = judging_folds(folds, rows.Y) if plan.cross_fit else folds
        attempts = []
        for each in plans:
            words = in_words(each.chosen, among) or "the model"
            attempt, its = (_cross_fit, folds) if each.cross_fit else (_train_whole, judging)
            ahead = each.refit and len(plans) == 1
            tried = trial if each is plan else None
            attempts.append(attempt(work, each, its, tried, ahead, words))
            progress.tried(words, attempts[-1].verdict.score)
        best = best_verdict([attempt.verdict for attempt in attempts], plan.raw)
        return attempts[best].finish()


@dataclass(frozen=True)
class Attempt:
    """What held-out rows say of a plan, and how to end with its model."""

    verdict: Verdict
    finish: Callable[[], Fitted]


def _train_whole(
    work: Fit, plan: Plan, folds: Folds, trial: HeldOut | None, ahead: bool, words: str
) -> Attempt:
    """Train all of a model on what each fold keeps; in the end, on all rows.

    ``ahead`` says that it will be wanted, so that both may be trained side by side.
    """
    progress = work.progress
    progress.begin(f"training {words}")
    # What was a trial need not be trained again where there is nothing more to it.
    begun = trial if plan.is_label_wise else None
    work.train_ahead([plan], folds[begun.folds if begun else 0 :], ahead)
    result = work.hold_out(plan, folds, begun)
    verdict = result.verdict

    def finish() -> Fitted:
        ended = replace(plan, decoding=verdict.decoding, rivals=())
        model, refit_history = result.model, None
        if plan.refit:
            progress.begin("training on all rows")
            if plan.stops_early:
                ended = ended.stopped(result.history)
            progress.left(work.epochs_left(ended))
            model, refit_history = work.run(ended)
        labels = result.scores.Y
        warn_if_undertrained(plan, work.domain, labels, verdict.score, result.history)
        kept = verdict.calibration, verdict.tuned, verdict.score
        return Fitted(model, ended, *kept, result.history, refit_history)

    return Attempt(verdict, finish)


def _cross_fit(
    work: Fit, plan: Plan, folds: Folds, trial: HeldOut | None, ahead: bool, words: str
) -> Attempt:
    """Train the energy on label scores of rows that the label-wise models have not seen.

    The verdict comes from energies that have not seen those rows either.
    """
    progress, label_wise = work.progress, plan.label_wise()
    progress.begin("training label-wise models")
    work.train_ahead([label_wise], folds[trial.folds if trial else 0 :], ahead)
    scored = work.hold_out(label_wise, folds, trial)
    plan, begun = choose_energy(work, plan, folds, scored)
    progress.begin("training the energy")
    judged, predicted, (energy, history) = cross_fitted(work, plan, folds, scored, begun)
    truth = densified(scored.scores.Y[judged])
    verdict = our_processes().said_by_first(lambda: judge(plan, work.domain, truth, *predicted))

    def finish() -> Fitted:
        progress.begin("training label-wise models on all rows")
        progress.left(work.epochs_left(label_wise))
        model, refit_history = work.run(label_wise)
        features = model.features
        if not isinstance(features, LabelScores):
            features = LabelScores(label_wise_parts(model))
        whole = SPEN(features, energy.energy, work.domain).to(work.device)
        ended = replace(plan.with_mean_energy(), decoding=verdict.decoding, rivals=())
        labels = scored.scores.Y[judged]
        warn_if_undertrained(plan, work.domain, labels, verdict.score, history)
        kept = verdict.calibration, verdict.tuned, verdict.score
        return Fitted(whole, ended, *kept, history, refit_history)

    return Attempt(verdict, finish)


CLEARLY = 2.0
"""Standard errors by which a wider energy has to be better than a narrow one."""


def choose_energy(
    work: Fit, plan: Plan, folds: Folds, scored: HeldOut
) -> tuple[Plan, tuple[SPEN, History] | None]:
    """Return the plan with the rate and the width of its energy chosen, and the run of that.

    Each is trained on the first fold's scores, and judged by what it says of hidden labels of the
    rows that the fold holds out, where none, a quarter or a half of the labels are known. The best
    rate of the narrowest energy is that of wider ones; the first which is not clearly better than
    the one before ends these trials, because a wide one makes predictions slower. Where several are
    averaged, the run that is returned is of all of them.
    """
    if len(plan.energies) * len(plan.energy_rates) < 2:
        return plan, None
    (kept, held), *_ = [_positions(scored, fold) for fold in folds]
    rows, judges = scored.scores.rows(kept), scored.scores.rows(held[:MOST_JUDGES])
    progress = work.progress

    def attempt(energy: UnsizedEnergy, rate: float) -> TriedEnergy:
        tried = plan.with_energy(energy, rate)
        words = f"an energy of {tried.measurements} measurements, rate {rate:g}"
        progress.begin(f"trying {words}")
        run = work.run_energy(tried, rows)
        began = time.perf_counter()
        losses = losses_when_known(run[0], plan.prediction, judges, work.seed)
        seconds = time.perf_counter() - began
        progress.tell(f"{words}: log loss of hidden labels {losses.mean():.5f}")
        return TriedEnergy(tried, run, losses, seconds)

    narrowest, *wider = plan.energies
    first = [attempt(narrowest, rate) for rate in plan.energy_rates]
    best = first[int(np.argmin([tried.losses.mean() for tried in first]))]
    narrow, (rate,) = best, best.plan.energy_rates
    for energy in wider:
        tried = attempt(energy, rate)
        gains = best.losses - tried.losses
        if gains.mean() <= CLEARLY * gains.std() / np.sqrt(len(gains)):
            break
        best = tried
    run, seconds = best.run, best.seconds
    if plan.energy_members > 1:
        progress.begin(f"training {plan.energy_members - 1} energies more, to average them")
        [others] = work.run_energies(best.plan, rows, [np.arange(len(rows))], first=1)
        run = mean_run([run, *others])
        began = time.perf_counter()
        losses = losses_when_known(run[0], plan.prediction, judges, work.seed)
        seconds = time.perf_counter() - began
        progress.tell(
            f"{plan.energy_members} energies, averaged: log loss of hidden labels "
            f"{losses.mean():.5f}"
        )
    width = plan.energy_members * best.plan.measurements
    if width > narrow.plan.measurements:
        progress.tell(
            f"{width} measurements are chosen: inference takes "
            f"{seconds / narrow.seconds:.1f} times as long as with {narrow.plan.measurements}"
        )
    return best.plan, run


@dataclass(frozen=True)
class TriedEnergy:
    """An energy that was tried: its plan, its run, the losses of rows, and the time they took."""

    plan: Plan
    run: tuple[SPEN, History]
    losses: np.ndarray
    seconds: float


def cross_fitted(
    work: Fit,
    plan: Plan,
    folds: Folds,
    scored: HeldOut,
    begun: tuple[SPEN, History] | None = None,
) -> tuple[np.ndarray, tuple[Any, ...], tuple[SPEN, History]]:
    """Return which of the scored rows were held out (those of the first fold, where they are
    enough), what energies predict of them, each trained on the other folds', for ``judge``, and an
    energy that is trained on all scored rows.

    Args:
        work: the fit.
        plan: of the energy.
        folds: (kept, held out) row numbers.
        scored: what label-wise models say of the rows that they have not seen.
        begun: the energy that the first fold has trained already, or None.
    """
    parts = [_positions(scored, fold) for fold in judging_folds(folds, work.rows.Y)]
    rest = [kept for kept, _ in parts[begun is not None :]]
    every = np.arange(len(scored.rows))
    runs = list(map(mean_run, work.run_energies(plan, scored.scores, [*rest, every])))
    runs = [begun, *runs] if begun else runs
    softs, joints, halves = [], [], []
    for (model, _), (_, held) in zip(runs, parts, strict=False):
        own = scored.scores.rows(held)
        softs.append(inferred(model, plan.prediction, own.X).numpy())
        halves.append(half_known(model, plan.prediction, own, work.seed))
        if plan.wants_joint:
            joints.append(inferred(model, plan.prediction, own.X, joint=True).numpy())
    joint = np.concatenate(joints) if joints else None
    held = np.concatenate([held for _, held in parts])
    return held, (np.concatenate(softs), joint, joined(halves)), runs[-1]


def _positions(scored: HeldOut, fold: tuple[np.ndarray, np.ndarray]) -> tuple[Any, Any]:
    """Return where the kept and the held-out rows of a fold stand among the scored ones."""
    kept, held = (np.flatnonzero(np.isin(scored.rows, part)) for part in fold)
    return kept, held
