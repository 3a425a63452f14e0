"""A fit: choose on held-out rows, freeze what was chosen, train again on all rows."""

from __future__ import annotations

import secrets
import time
import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from spen.batch.limits import limits
from spen.batch.splits import Split
from spen.domains import Domain, Simplex, UnitBox
from spen.energies.base import UnsizedEnergy, energy_terms
from spen.energies.local import LocalEnergy
from spen.energies.scores import ScoreEnergy
from spen.errors import InputError, UndertrainedWarning
from spen.estimators.calibration import Calibration
from spen.estimators.decoding import BEST_FOR, decode, tune_decodings
from spen.estimators.plan import LINEAR, Plan, Prediction
from spen.estimators.predictor import Predictor, level_of_caller, lowest, solve
from spen.estimators.progress import SILENT, Progress, epochs_of, in_words, showing
from spen.estimators.scaling import Scaling
from spen.features import Features, Identity, LabelScores
from spen.files import digest
from spen.kernels.threads import threads_for
from spen.metrics import METRICS, best_f1, row_scores
from spen.model import SPEN
from spen.objectives.label_wise import CrossEntropy
from spen.training.checkpoint import Epoch, History, RunFolder, describe
from spen.training.loop import train
from spen.training.together import goes_together, train_together

MOST_TOGETHER = 2**23
"""Weights of models that are trained side by side, all together: beyond, a step is all work."""

MOST_WATCHED = 2**22
"""Held-out decisions that are scored after each epoch, which nothing is chosen by."""

MEMBER_SEEDS = 7919
"""How far apart the seeds of the models are that are averaged."""

Folds = Sequence[tuple[np.ndarray, np.ndarray]]
"""(kept, held out) row numbers."""


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
    drawn = secrets.randbelow(2**31) if seed is None else seed
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
    if checkpoint is None:
        return _fit(work, plan, title)
    identity = {"settings": describe(plan), "rows, weights or device": work.same(rows)}
    identity["random_state"] = str(seed)
    with RunFolder.held(checkpoint, resume, identity, drawn) as folder:
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
    verdict = judge(plan, work.domain, densified(scored.scores.Y[judged]), *predicted)

    def finish() -> Fitted:
        progress.begin("training label-wise models on all rows")
        progress.left(work.epochs_left(label_wise))
        model, refit_history = work.run(label_wise)
        features = model.features
        if not isinstance(features, LabelScores):
            features = LabelScores(label_wise_parts(model))
        whole = SPEN(features, energy.energy, work.domain).to(work.device)
        ended = replace(plan, decoding=verdict.decoding, rivals=())
        labels = scored.scores.Y[judged]
        warn_if_undertrained(plan, work.domain, labels, verdict.score, history)
        kept = verdict.calibration, verdict.tuned, verdict.score
        return Fitted(whole, ended, *kept, history, refit_history)

    return Attempt(verdict, finish)


ENOUGH_ONES = 100
"""Ones of a label in a fold, on average, that calibrate it: then one fold will do."""

MOST_JUDGED = 2**25
"""Held-out decisions, beyond which one fold has to do, because each trains an energy more."""


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


MOST_JUDGES = 4096
"""Held-out rows by which the width of an energy is chosen."""

SHARES = (0.0, 0.25, 0.5)
"""Of labels that are known, where the width of an energy is chosen by the others."""

CLEARLY = 2.0
"""Standard errors by which a wider energy has to be better than a narrow one."""


def choose_energy(
    work: Fit, plan: Plan, folds: Folds, scored: HeldOut
) -> tuple[Plan, tuple[SPEN, History] | None]:
    """Return the plan with the rate and the width of its energy chosen, and the run of that.

    Each is trained on the first fold's scores, and judged by what it says of hidden labels of the
    rows that the fold holds out, where none, a quarter or a half of the labels are known. The best
    rate of the narrowest energy is that of wider ones; the first which is not clearly better than
    the one before ends the trials, because a wide one makes predictions slower.
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
    if best is not narrow:
        progress.tell(
            f"{best.plan.measurements} measurements are chosen: inference takes "
            f"{best.seconds / narrow.seconds:.1f} times as long as with {narrow.plan.measurements}"
        )
    return best.plan, best.run


@dataclass(frozen=True)
class TriedEnergy:
    """An energy that was tried: its plan, its run, the losses of rows, and the time they took."""

    plan: Plan
    run: tuple[SPEN, History]
    losses: np.ndarray
    seconds: float


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
            y = solve(model, prediction, part.X, known).y.cpu()
            counts = ~torch.isnan(truth) & (told >= share)
            each = model.domain.log_loss(y, truth.nan_to_num()) * counts
            mean = each.sum(1) / counts.sum(1).clamp_min(1)
            losses[first : first + len(mean)] += mean.numpy() / len(shares)
    return losses


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
    runs = work.run_energies(plan, scored.scores, [*rest, every])
    runs = [begun, *runs] if begun else runs
    softs, joints, halves = [], [], []
    for (model, _), (_, held) in zip(runs, parts, strict=False):
        own = scored.scores.rows(held)
        softs.append(solve(model, plan.prediction, own.X).y.cpu().numpy())
        halves.append(half_known(work, model, plan, own))
        if plan.wants_joint:
            joints.append(lowest(model, plan.prediction, own.X).y.cpu().numpy())
    joint = np.concatenate(joints) if joints else None
    held = np.concatenate([held for _, held in parts])
    return held, (np.concatenate(softs), joint, _joined(halves)), runs[-1]


def _positions(scored: HeldOut, fold: tuple[np.ndarray, np.ndarray]) -> tuple[Any, Any]:
    """Return where the kept and the held-out rows of a fold stand among the scored ones."""
    kept, held = (np.flatnonzero(np.isin(scored.rows, part)) for part in fold)
    return kept, held


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


def half_known(work: Fit, model: SPEN, plan: Plan, rows: Split) -> tuple[np.ndarray, np.ndarray]:
    """Return what is hidden (n, L), nan elsewhere, and what is predicted of it, where a random half
    of each row's labels is known."""
    rows = rows.rows(np.arange(min(len(rows), MOST_JUDGES)))
    truth = densified(rows.Y)
    shown = np.random.default_rng(work.seed).random(truth.shape, dtype=np.float32) < 0.5
    known = torch.from_numpy(np.where(shown, truth, np.nan))
    soft = solve(model, plan.prediction, rows.X, known).y.cpu().numpy()
    return np.where(shown, np.nan, truth), soft


def _joined(parts: list[tuple[np.ndarray, np.ndarray]]) -> Any:
    """Return the parts one after the other, or None of none."""
    return tuple(map(np.concatenate, zip(*parts, strict=True))) if parts else None


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


@dataclass(frozen=True)
class HeldOut:
    """What came of training on what folds keep: the first model, and all held-out rows.

    Attributes:
        judged: returns the verdict. With many labels that takes long, and not all is asked for it.
        folds: how many there were.
        rows: (n,) the numbers of the held-out rows, in the order of the folds.
        soft: (n, L) what is predicted of them.
        scores: the same as log-odds, with their labels and weights.
        joint: (n, L) the labellings of the lowest energy, where they may be wanted.
    """

    model: SPEN
    history: History
    judged: Callable[[], Verdict]
    folds: int
    rows: np.ndarray
    soft: Tensor
    scores: Split
    joint: np.ndarray | None

    @cached_property
    def verdict(self) -> Verdict:
        """What the held-out rows say."""
        return self.judged()


@dataclass(frozen=True)
class Fit:
    """What all runs of one fit share.

    Attributes:
        rows: scaled inputs, labels and weights.
        domain: where the output lives.
        seed: decides every random draw.
        label_weight: (L,) how much each label counts.
        device: where to train.
        progress: is told what goes on.
        folder: for the checkpoints of all runs, or None.
        folds: given ones, or None.
        start: a model to go on from, or None.
        callbacks: called after each epoch.
        ready: runs that were made side by side with others, until they are asked for.
    """

    rows: Split
    domain: Domain
    seed: int
    label_weight: np.ndarray | None = None
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    progress: Progress = SILENT
    folder: RunFolder | None = None
    folds: Folds | None = None
    start: SPEN | None = None
    callbacks: tuple[Callable[[Epoch], None], ...] = ()
    ready: dict[Hashable, tuple[SPEN, History]] = field(default_factory=dict)

    def choose(self, plan: Plan, folds: Folds) -> tuple[Plan, HeldOut | None, list[Verdict]]:
        """Return the plan with its best choice made, the trial of that, and all verdicts.

        A single choice is not tried.
        """
        plans = [choice.apply(plan) for choice in plan.choices]
        if len(plans) == 1:
            return plans[0], None, []
        some = folds[: plan.trial_folds]
        self.progress.begin(f"trying {len(plans)} settings")
        self.train_ahead([each.trial_plan() for each in plans], some)
        # What is averaged in beside networks is the same in all trials of a fold.
        alike = (plan.linear_member or plan.bases) and SHARED.get() is None
        with sharing_runs() if alike else nullcontext():
            trials = []
            for number, each in enumerate(plans, 1):
                words = in_words(each.chosen, plan.choices)
                self.progress.begin(f"trying {number} of {len(plans)}, {words}")
                trials.append(self.hold_out(each.trial_plan(), some))
                self.progress.tried(words, trials[-1].verdict.score)
        verdicts = [trial.verdict for trial in trials]
        if plan.by_known:
            best = int(np.argmin([verdict.losses.mean() for verdict in verdicts]))
        else:
            best = best_verdict(verdicts, plan.raw)
        return plans[best], trials[best], verdicts

    def hold_out(self, plan: Plan, folds: Folds, begun: HeldOut | None = None) -> HeldOut:
        """Train on what each fold keeps, and judge what it holds out, all folds together.

        Args:
            plan: to carry out.
            folds: to go through.
            begun: what came of the first folds, where the same plan was carried out on them.
        """
        if begun is not None and begun.folds >= len(folds):
            return begun
        softs = [begun.soft] if begun else []
        joints = [begun.joint] if begun and begun.joint is not None else []
        runs = [(begun.model, begun.history)] if begun else []
        first = begun.folds if begun else 0
        uses_known = plan.by_known or len(plan.energy.terms) > 1
        uses_known = uses_known and isinstance(self.domain, UnitBox)
        halves, losses = [], []
        for number, (kept, held) in enumerate(folds[first:], first + 1):
            self.progress.fold(number, len(folds))
            rows = self.rows.rows(held)
            # Watching costs time, and the history of one fold is kept.
            watched = None if (runs or plan.raw) and not plan.stops_early else rows
            if watched is not None and not plan.stops_early:
                most = max(1, MOST_WATCHED // self.domain.size)
                watched = rows.rows(np.arange(min(len(rows), most)))
            runs.append(self.run(plan, kept, watched))
            softs.append(solve(runs[-1][0], plan.prediction, rows.X).y.cpu())
            if plan.wants_joint:
                joints.append(lowest(runs[-1][0], plan.prediction, rows.X).y.cpu().numpy())
            if uses_known and not plan.raw:
                halves.append(half_known(self, runs[-1][0], plan, rows))
            if plan.by_known:
                some = rows.rows(np.arange(min(len(rows), MOST_JUDGES)))
                losses.append(losses_when_known(runs[-1][0], plan.prediction, some, self.seed))
        numbers = np.concatenate([held for _, held in folds])
        rows = self.rows.rows(numbers)
        soft = torch.cat(softs)
        joint = np.concatenate(joints) if plan.wants_joint else None
        half = _joined(halves)

        def judged() -> Verdict:
            verdict = judge(plan, self.domain, densified(rows.Y), soft.numpy(), joint, half)
            return replace(verdict, losses=np.concatenate(losses)) if losses else verdict

        # With thousands of labels each further copy of such a matrix counts.
        softs.clear()
        scores = np.empty(soft.shape, soft.numpy().dtype)
        step = limits.rows_at_once(self.domain.size)
        for first in range(0, len(soft), step):
            dual = self.domain.to_dual(soft[first : first + step])
            scores[first : first + step] = self.domain.clamp_dual(dual).numpy()
        split = Split(scores, rows.Y, rows.weight)
        return HeldOut(*runs[0], judged, len(folds), numbers, soft, split, joint)

    def train_ahead(self, plans: Sequence[Plan], folds: Folds, refit: bool = False) -> None:
        """Train side by side what ``run`` will be asked for, as far as that pays.

        Args:
            plans: to be carried out on each fold.
            folds: whose kept rows are trained on.
            refit: whether they are to be carried out on all rows too.
        """
        # What is shared with other fits must not depend on what it was trained beside.
        if SHARED.get() is not None or self.start is not None:
            return
        parts = [kept for kept, _ in folds] + ([np.arange(len(self.rows))] if refit else [])
        groups: dict[str, list[tuple[Fit, Plan, np.ndarray]]] = {}
        for plan in plans:
            for fit, one in self._singles(plan):
                shape = describe((one.stages, one.energy, one.chosen.hidden, one.linear, one.raw))
                groups.setdefault(shape, []).extend((fit, one, kept) for kept in parts)
        for jobs in groups.values():
            if len(jobs) < 2:
                continue
            fit, plan, kept = jobs[0]
            if plan.base is not None or not plan.stages or plan.stops_early:
                continue
            model = fit._begin(plan, kept)
            weights = sum(weight.numel() for weight in model.parameters())
            if weights * len(jobs) > MOST_TOGETHER or not goes_together(model, plan.stages):
                continue
            models = [model] + [fit._begin(plan, kept) for fit, plan, kept in jobs[1:]]
            history = train_together(
                [model.to(self.device) for model in models],
                plan.stages,
                self.rows,
                [kept for _, _, kept in jobs],
                seed=self.seed,
                label_weight=self.label_weight,
                callbacks=(*self.progress.training(len(jobs)), *self.callbacks),
                checkpoint=self.folder,
            )
            for (fit, plan, kept), model in zip(jobs, models, strict=True):
                self.ready[fit._key(plan, kept)] = model, history

    def _singles(self, plan: Plan) -> list[tuple[Fit, Plan]]:
        """Return each model of a plan that is trained by itself, and the fit with its seed."""
        plans = plan.single_plans() if plan.is_averaged else [plan]
        seeds = (self.seed + k * MEMBER_SEEDS for k in range(len(plans)))
        return [(replace(self, seed=seed), one) for seed, one in zip(seeds, plans, strict=True)]

    def epochs_left(self, plan: Plan) -> int:
        """Return how many epochs of networks a run on all rows still takes."""
        kept = np.arange(len(self.rows))
        left = [one for fit, one in self._singles(plan) if fit._key(one, kept) not in self.ready]
        return sum(stage.epochs for one in left for stage in one.stages if stage.name != LINEAR)

    def _key(self, plan: Plan, kept: np.ndarray) -> Hashable:
        settings = (plan.stages, plan.energy, plan.chosen, plan.linear)
        return describe(settings), self.seed, np.asarray(kept).tobytes()

    def run(
        self, plan: Plan, kept: np.ndarray | None = None, held: Split | None = None
    ) -> tuple[SPEN, History]:
        """Train a new model by the plan's stages, or return one that is ready.

        Args:
            plan: to carry out.
            kept: the numbers of the rows to train on; None means all.
            held: rows that are watched, not obeyed.
        """
        kept = np.arange(len(self.rows)) if kept is None else kept
        if plan.is_averaged:
            return self._run_members(plan, kept, held)
        if (ready := self.ready.pop(self._key(plan, kept), None)) is not None:
            return ready
        shared = SHARED.get()
        if shared is None or not (plan.is_label_wise or (plan.base and not plan.stages)):
            return self._run(plan, kept, held)
        same = f"{self.same(self.rows.rows(kept))} {self.seed}"
        made_of = plan.base or plan.chosen
        trained = describe((plan.stages, plan.energy))
        key = (trained, describe(made_of), str(plan.linear), same)
        return shared.get(key, lambda: self._run(plan, kept, held))

    def same(self, kept: Split) -> str:
        """Return what two runs of the same plan must agree in, beside the seed."""
        arrays = [kept.weight, self.label_weight]
        for rows in (kept.X, kept.Y):
            parts = (rows.indptr, rows.indices, rows.data) if sparse.issparse(rows) else (rows,)
            arrays += parts
        tensors = [None if each is None else torch.as_tensor(each) for each in arrays]
        return f"{digest(tensors)} {self.device}"

    def _run(self, plan: Plan, kept: np.ndarray, held: Split | None) -> tuple[SPEN, History]:
        if plan.base is not None:
            features, seen = plan.base.fit(self.rows.rows(kept), self.seed)
            apart, history = self.run_energy(plan, seen)
            return SPEN(features, apart.energy, self.domain).to(self.device), history
        model = self._begin(plan, kept)
        return model, self.train(model, plan, self.rows.rows(kept), held)

    def _begin(self, plan: Plan, kept: np.ndarray) -> SPEN:
        """Return a new model, not trained."""
        model = plan.build(self.rows.X.shape[1], self.domain, self.seed)
        if self.start is not None:
            continue_from(self.start, model)
        elif not plan.raw:
            start_at_frequencies(model, self.rows.Y[kept], plan.stages[0].objective)
        return model

    def _run_members(
        self, plan: Plan, kept: np.ndarray, held: Split | None
    ) -> tuple[SPEN, History]:
        """Train label-wise models of several seeds, and average their scores."""
        runs = [
            fit.run(one, kept, None if k else held)
            for k, (fit, one) in enumerate(self._singles(plan))
        ]
        parts = [label_wise_parts(model) for model, _ in runs]
        features = LabelScores(*parts, weights=plan.member_weights())
        model = SPEN(features, ScoreEnergy(self.domain.size), self.domain).to(self.device)
        return model, runs[0][1]

    def run_energy(self, plan: Plan, kept: Split) -> tuple[SPEN, History]:
        """Train the energy of a plan alone, on rows whose inputs are its features."""
        model = self._begin_energy(plan, kept.X.shape[1])
        return model, self.train(model, plan, kept, None)

    def run_energies(
        self, plan: Plan, rows: Split, parts: Sequence[np.ndarray]
    ) -> list[tuple[SPEN, History]]:
        """Train the energy of a plan on each of several parts of rows, side by side if it can."""
        models = [self._begin_energy(plan, rows.X.shape[1]).to(self.device) for _ in parts]
        if SHARED.get() is not None or not goes_together(models[0], plan.stages):
            return [self.run_energy(plan, rows.rows(part)) for part in parts]
        history = train_together(
            models,
            plan.stages,
            rows,
            parts,
            seed=self.seed,
            label_weight=self.label_weight,
            callbacks=(*self.progress.training(len(parts)), *self.callbacks),
            checkpoint=self.folder,
        )
        return [(model, history) for model in models]

    def _begin_energy(self, plan: Plan, width: int) -> SPEN:
        energy = plan.energy.size(width, self.domain)
        return SPEN(Identity(width), energy, self.domain, seed=self.seed).float()

    def train(self, model: SPEN, plan: Plan, kept: Split, held: Split | None) -> History:
        """Train a model in place, where the fit trains."""
        if not plan.stages:
            return History()
        return train(
            model.to(self.device),
            plan.stages,
            kept,
            held,
            seed=self.seed,
            # Watched, not obeyed: cheaper than the verdict on the last epoch.
            score=accuracy if isinstance(self.domain, Simplex) else best_f1,
            label_weight=self.label_weight,
            callbacks=(*self.progress.training(), *self.callbacks),
            checkpoint=self.folder,
        )


def label_wise_parts(model: SPEN) -> tuple[Features, LocalEnergy]:
    """Return the feature network and the local energy of a label-wise model."""
    (local,) = [term for term in energy_terms(model.energy) if isinstance(term, LocalEnergy)]
    return model.features, local


def continue_from(start: SPEN, model: SPEN) -> None:
    """Give a model the weights of another."""
    weights = start.state_dict()
    wanted = {name: tensor.shape for name, tensor in model.state_dict().items()}
    if {name: tensor.shape for name, tensor in weights.items()} != wanted:
        raise InputError(
            "warm_start=True goes on from a model of other sizes than the settings ask for. Set "
            "warm_start=False to begin anew."
        )
    model.load_state_dict(weights)


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


@torch.no_grad()
def start_at_frequencies(model: SPEN, labels: Any, objective: Any = None) -> None:
    """Let the local energies begin at how frequent labels are, which rare labels profit from.

    Args:
        model: with a local energy.
        labels: (n, L), dense or sparse; nan where a label is missing.
        objective: of the first stage, which may read scores in its own way.
    """
    matrix: Any = labels if sparse.issparse(labels) else densified(labels)
    known = matrix.shape[0] if sparse.issparse(labels) else (~np.isnan(matrix)).sum(0)
    total = matrix.sum(0) if sparse.issparse(labels) else np.nansum(matrix, 0)
    shares = np.where(np.equal(known, 0), 0.5, np.asarray(total).ravel() / np.maximum(known, 1))
    shares = torch.from_numpy(np.clip(shares, 0.002, 0.998))
    if isinstance(model.domain, Simplex):
        scores = torch.log(shares)
    elif isinstance(objective, CrossEntropy):
        scores = objective.neutral_scores(shares)
    else:
        scores = torch.logit(shares)
    for term in energy_terms(model.energy):
        if isinstance(term, LocalEnergy):
            term.bias.copy_(-scores)
            return


def densified(labels: Any) -> np.ndarray:
    """Return labels as a dense array of float32, nan where they are missing."""
    return np.asarray(labels.toarray() if sparse.issparse(labels) else labels, dtype=np.float32)


def accuracy(truth: Any, soft: Any) -> float:
    """Return the share of rows whose most probable class is the true one."""
    return float((truth.argmax(1) == soft.argmax(1)).sum()) / len(truth)


class SharedRuns:
    """What was trained before, by what decides it.

    Attributes:
        saved: seconds that reused runs took when they were made.

    >>> runs = SharedRuns()
    >>> runs.get("same", lambda: "trained"), runs.get("same", lambda: "again")
    ('trained', 'trained')
    """

    def __init__(self) -> None:
        self._made: dict[Hashable, tuple[Any, float]] = {}
        self.saved = 0.0

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return what was made for this key, or make it."""
        if key in self._made:
            result, seconds = self._made[key]
            self.saved += seconds
            return result
        began = time.perf_counter()
        result = make()
        self._made[key] = (result, time.perf_counter() - began)
        return result


SHARED: ContextVar[SharedRuns | None] = ContextVar("spen_shared_runs", default=None)


@contextmanager
def sharing_runs() -> Iterator[SharedRuns]:
    """Let all fits inside share the label-wise models that they have in common.

    A feed-forward network, and the energies that are cross-fitted to its scores, train the same
    label-wise models: with the same settings, rows and seed. Models are kept until the end.
    """
    runs = SharedRuns()
    token = SHARED.set(runs)
    try:
        yield runs
    finally:
        SHARED.reset(token)
