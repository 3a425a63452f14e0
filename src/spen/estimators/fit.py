"""A fit: choose on held-out rows, freeze what was chosen, train again on all rows."""

from __future__ import annotations

import importlib.util
import secrets
import sys
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from spen.batch.splits import Split
from spen.domains import Domain, Simplex
from spen.energies.base import energy_terms
from spen.energies.local import LocalEnergy
from spen.energies.scores import ScoreEnergy
from spen.errors import InputError
from spen.estimators.calibration import Calibration
from spen.estimators.decoding import decode, tune_decodings
from spen.estimators.plan import LINEAR, Plan
from spen.estimators.predictor import Predictor, solve
from spen.estimators.scaling import Scaling
from spen.features import Features, Identity, LabelScores
from spen.kernels.threads import threads_for
from spen.metrics import best_f1, counts, row_f1
from spen.model import SPEN
from spen.objectives.label_wise import CrossEntropy
from spen.training.checkpoint import Epoch, History, RunFolder, describe, digest
from spen.training.loop import train
from spen.training.together import goes_together, train_together

MOST_TOGETHER = 2**23
"""Weights of models that are trained side by side, all together: beyond, a step is all work."""

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
        title: of a progress bar; None shows none.
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
    work = Fit(rows, domain, drawn, label_weight, device or torch.device("cpu"))
    if checkpoint is None:
        return _fit(work, plan, title)
    identity = {"settings": describe(plan), "rows, weights or device": work.same(rows)}
    identity["random_state"] = str(seed)
    with RunFolder.held(checkpoint, resume, identity, drawn) as folder:
        return _fit(replace(work, folder=folder, seed=folder.seed), plan, title)


def _fit(work: Fit, plan: Plan, title: str | None) -> Fitted:
    """Carry out a plan."""
    rows = work.rows
    folds = folds_by(rows.Y, plan.held_out, plan.folds, work.seed)
    shown = nullcontext(work.advance)
    if title is not None:
        shown = epoch_bar(title, _epochs(plan, len(folds)))
    with shown as advance:
        work = replace(work, advance=advance)
        plan, trial, _ = work.choose(plan, folds)
        if plan.cross_fit:
            return _cross_fit(work, plan, folds, trial)
        # What was a trial need not be trained again where there is nothing more to it.
        begun = trial if plan.is_label_wise else None
        plans = [plan, *(rival for rival in plan.rivals)]
        for each in plans:
            work.train_ahead([each], folds[begun.folds if begun else 0 :], plan.refit)
        results = [work.hold_out(each, folds, begun) for each in plans]
        best = best_verdict([result.verdict for result in results], plan.criterion)
        plan, result = plans[best], results[best]
        model, refit_history = result.model, None
        if plan.refit:
            model, refit_history = work.run(plan)
    verdict = result.verdict
    return Fitted(
        model, plan, verdict.calibration, verdict.tuned, verdict.score, result.history,
        refit_history,
    )  # fmt: skip


def _cross_fit(work: Fit, plan: Plan, folds: Folds, trial: HeldOut | None) -> Fitted:
    """Train the energy on label scores of rows that the label-wise models have not seen.

    The verdict comes from energies that have not seen those rows either.
    """
    work.train_ahead([plan.label_wise()], folds[trial.folds if trial else 0 :], refit=True)
    scored = work.hold_out(plan.label_wise(), folds, trial)
    soft, energy, history = cross_fitted(work, plan, folds, scored)
    verdict = judge(plan, work.domain, densified(scored.scores.Y), soft)
    label_wise, refit_history = work.run(plan.label_wise())
    features = label_wise.features
    if not isinstance(features, LabelScores):
        features = LabelScores(label_wise_parts(label_wise))
    model = SPEN(features, energy.energy, work.domain).to(work.device)
    return Fitted(
        model, plan, verdict.calibration, verdict.tuned, verdict.score, history, refit_history
    )


def cross_fitted(
    work: Fit, plan: Plan, folds: Folds, scored: HeldOut
) -> tuple[np.ndarray, SPEN, History]:
    """Return what energies predict of held-out rows (n, L), each trained on the other folds', and
    an energy that is trained on all of them."""
    parts = [np.flatnonzero(np.isin(scored.rows, kept)) for kept, _ in folds]
    runs = work.run_energies(plan, scored.scores, [*parts, np.arange(len(scored.rows))])
    softs = []
    for (model, _), (_, held) in zip(runs, folds, strict=False):
        own = scored.scores.rows(np.flatnonzero(np.isin(scored.rows, held)))
        softs.append(solve(model, plan.prediction, own.X).y.cpu().numpy())
    return np.concatenate(softs), *runs[-1]


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
        scores: (n,) by the plan's criterion: the F1 of each row, or its share of right labels; for
            classes whether it is right.
    """

    calibration: Calibration
    tuned: dict[str, Any]
    losses: np.ndarray
    scores: np.ndarray

    @property
    def score(self) -> float:
        """The mean score."""
        return float(self.scores.mean())


def judge(plan: Plan, domain: Domain, truth: np.ndarray, soft: np.ndarray) -> Verdict:
    """Calibrate, tune and score the predictions of held-out rows."""
    with threads_for(soft.size):
        return _judge(plan, domain, truth, soft)


def _judge(plan: Plan, domain: Domain, truth: np.ndarray, soft: np.ndarray) -> Verdict:
    exclusive = isinstance(domain, Simplex)
    calibration = Calibration(1.0, np.zeros(domain.size), exclusive)
    if not plan.raw:
        calibration = Calibration.of(truth, soft, exclusive)
    soft = calibration.apply(soft)
    known = ~np.isnan(truth)
    right = np.where(np.nan_to_num(truth) == 1, soft, 1.0 if exclusive else 1 - soft)
    losses = -(np.log(np.maximum(right, np.finfo(right.dtype).tiny)) * known).sum(1)
    if exclusive:
        tuned, labels = {}, domain.round(torch.from_numpy(soft)).numpy()
    else:
        tuned = tune_decodings(truth, soft, plan.decoding)
        labels = decode(soft, plan.decoding, tuned[plan.decoding])
    if plan.criterion == "hamming":
        wrong = ((labels != truth) & known).sum(1) / np.maximum(known.sum(1), 1)
        return Verdict(calibration, tuned, losses, 1 - wrong)
    both, sizes, _ = counts(truth, labels, axis=1)
    return Verdict(calibration, tuned, losses, row_f1(both, sizes))


def best_verdict(verdicts: Sequence[Verdict], criterion: str) -> int:
    """Return which verdict to go by.

    Log losses differ far more clearly than scores, so the smallest decides, unless another
    one's scores are better by more than their standard error. Hamming errors are compared as they
    are; of equal ones the last is taken.
    """
    if criterion == "hamming":
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


@dataclass(frozen=True)
class Fit:
    """What all runs of one fit share.

    Attributes:
        rows: scaled inputs, labels and weights.
        domain: where the output lives.
        seed: decides every random draw.
        label_weight: (L,) how much each label counts.
        device: where to train.
        advance: called after each epoch of a network.
        folder: for the checkpoints of all runs, or None.
        ready: runs that were made side by side with others, until they are asked for.
    """

    rows: Split
    domain: Domain
    seed: int
    label_weight: np.ndarray | None = None
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    advance: Callable[[Epoch], None] = field(default=lambda epoch: None)
    folder: RunFolder | None = None
    ready: dict[Hashable, tuple[SPEN, History]] = field(default_factory=dict)

    def choose(self, plan: Plan, folds: Folds) -> tuple[Plan, HeldOut | None, list[Verdict]]:
        """Return the plan with its best choice made, the trial of that, and all verdicts.

        A single choice is not tried.
        """
        plans = [choice.apply(plan) for choice in plan.choices]
        if len(plans) == 1:
            return plans[0], None, []
        some = folds[: plan.trial_folds]
        self.train_ahead([each.trial_plan() for each in plans], some)
        # What is averaged in beside networks is the same in all trials of a fold.
        alike = (plan.linear_member or plan.bases) and SHARED.get() is None
        with sharing_runs() if alike else nullcontext():
            trials = [self.hold_out(each.trial_plan(), some) for each in plans]
        verdicts = [trial.verdict for trial in trials]
        best = best_verdict(verdicts, plan.criterion)
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
        runs = [(begun.model, begun.history)] if begun else []
        for kept, held in folds[begun.folds if begun else 0 :]:
            rows = self.rows.rows(held)
            # Watching costs time, and the history of one fold is kept.
            watched = None if runs or plan.raw else rows
            runs.append(self.run(plan, kept, watched))
            softs.append(solve(runs[-1][0], plan.prediction, rows.X).y.cpu())
        numbers = np.concatenate([held for _, held in folds])
        rows = self.rows.rows(numbers)
        soft = torch.cat(softs)
        verdict = judge(plan, self.domain, densified(rows.Y), soft.numpy())
        scores = self.domain.clamp_dual(self.domain.to_dual(soft)).numpy()
        split = Split(scores, rows.Y, rows.weight)
        return HeldOut(*runs[0], verdict, len(folds), numbers, soft, split)

    def train_ahead(self, plans: Sequence[Plan], folds: Folds, refit: bool = False) -> None:
        """Train side by side what ``run`` will be asked for, as far as that pays.

        Args:
            plans: to be carried out on each fold.
            folds: whose kept rows are trained on.
            refit: whether they are to be carried out on all rows too.
        """
        # What is shared with other fits must not depend on what it was trained beside.
        if SHARED.get() is not None:
            return
        parts = [kept for kept, _ in folds] + ([np.arange(len(self.rows))] if refit else [])
        groups: dict[str, list[tuple[Fit, Plan, np.ndarray]]] = {}
        for plan in plans:
            singles = plan.single_plans() if plan.is_averaged else [plan]
            for k, one in enumerate(singles):
                fit = replace(self, seed=self.seed + k * MEMBER_SEEDS)
                shape = describe((one.stages, one.energy, one.chosen.hidden, one.linear, one.raw))
                groups.setdefault(shape, []).extend((fit, one, kept) for kept in parts)
        for jobs in groups.values():
            fit, plan, kept = jobs[0]
            if plan.base is not None or not plan.stages or len(jobs) == 1:
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
                callbacks=(self._advance_networks,) * len(jobs),
                checkpoint=self.folder,
            )
            for (fit, plan, kept), model in zip(jobs, models, strict=True):
                self.ready[fit._key(plan, kept)] = model, history

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
        key = (describe(plan.stages), describe(made_of), str(plan.linear), same)
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
        if not plan.raw:
            start_at_frequencies(model, self.rows.Y[kept], plan.stages[0].objective)
        return model

    def _run_members(
        self, plan: Plan, kept: np.ndarray, held: Split | None
    ) -> tuple[SPEN, History]:
        """Train label-wise models of several seeds, and average their scores."""
        runs = [
            replace(self, seed=self.seed + k * MEMBER_SEEDS).run(one, kept, None if k else held)
            for k, one in enumerate(plan.single_plans())
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
            callbacks=(self._advance_networks,) * len(parts),
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
            callbacks=(self._advance_networks,),
            checkpoint=self.folder,
        )

    def _advance_networks(self, epoch: Epoch) -> None:
        # Iterations of linear models are many and short.
        if epoch.stage != LINEAR:
            self.advance(epoch)


def label_wise_parts(model: SPEN) -> tuple[Features, LocalEnergy]:
    """Return the feature network and the local energy of a label-wise model."""
    (local,) = [term for term in energy_terms(model.energy) if isinstance(term, LocalEnergy)]
    return model.features, local


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


def _epochs(plan: Plan, folds: int) -> int:
    """Return how many epochs the networks of a fit take in all, if no stage ends early."""
    trial = plan.members * sum(stage.epochs for stage in plan.trial_plan().stages)
    whole = sum(stage.epochs for stage in plan.stages)
    tried = min(plan.trial_folds, folds) if len(plan.choices) > 1 else 0
    trials = len(plan.choices) * tried * trial
    if plan.cross_fit:
        return trials + (folds - tried + 1) * trial + (folds + 1) * whole
    if plan.is_label_wise:
        return trials + (folds - tried + plan.refit) * trial
    return trials + (folds + plan.refit) * whole


@contextmanager
def epoch_bar(title: str, total: int) -> Iterator[Callable[[Epoch], None]]:
    """Show how far a fit of ``total`` epochs is; yields the callback for ``train``.

    It is a bar on a terminal, and a line at the end in a pipe.
    """
    if not sys.stderr.isatty() or importlib.util.find_spec("rich") is None:
        began = time.perf_counter()
        yield lambda epoch: None
        print(f"{title}: {time.perf_counter() - began:.1f} s", file=sys.stderr)  # noqa: T201
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    note = TextColumn("{task.fields[note]}")
    columns = (TextColumn("{task.description}"), BarColumn(), note, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task(f"{title:<28}", total=total, note="")

        def advance(epoch: Epoch) -> None:
            score = "" if epoch.score is None else f" held-out F1 {100 * epoch.score:5.1f}"
            text = f"{epoch.stage} {epoch.epoch}/{epoch.epochs} loss {epoch.loss:7.3f}{score}"
            bars.update(task, advance=1, note=text)

        yield advance
        bars.update(task, completed=total)
