"""The training runs of a fit: on what each fold keeps, side by side where that pays, or shared."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from spen.batch.arrays import densified
from spen.batch.inputs import InputRows
from spen.batch.limits import limits
from spen.batch.splits import Split
from spen.domains import Domain, Simplex, UnitBox
from spen.energies.base import energy_terms
from spen.energies.local import LocalEnergy
from spen.energies.scores import ScoreEnergy, mean_energy
from spen.errors import InputError
from spen.estimators.judging import (
    MOST_JUDGES,
    Folds,
    Verdict,
    accuracy,
    best_verdict,
    half_known,
    inferred,
    judge,
    losses_when_known,
)
from spen.estimators.plan import LINEAR, Plan
from spen.estimators.progress import SILENT, Progress, in_words
from spen.features import Features, Identity, LabelScores
from spen.files import digest
from spen.metrics import best_f1
from spen.model import SPEN
from spen.objectives.label_wise import CrossEntropy
from spen.training.checkpoint import Epoch, History, RunFolder, describe
from spen.training.loop import train
from spen.training.processes import our_processes
from spen.training.together import goes_together, train_together

MOST_TOGETHER = 2**23
"""Weights of models that are trained side by side, all together: beyond, a step is all work."""

MOST_TOGETHER_ON_GPU = 2**28
"""The same where a step of one model waits for its host: with their moments they take 4 GiB."""

MOST_WATCHED = 2**22
"""Held-out decisions that are scored after each epoch, which nothing is chosen by."""

MEMBER_SEEDS = 7919
"""How far apart the seeds of the models are that are averaged."""


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
        """What the held-out rows say, to all processes alike."""
        return our_processes().said_by_first(self.judged)


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
            softs.append(inferred(runs[-1][0], plan.prediction, rows.X))
            if plan.wants_joint:
                joints.append(inferred(runs[-1][0], plan.prediction, rows.X, joint=True).numpy())
            if uses_known and not plan.raw:
                halves.append(half_known(runs[-1][0], plan.prediction, rows, self.seed))
            if plan.by_known:
                some = rows.rows(np.arange(min(len(rows), MOST_JUDGES)))
                losses.append(losses_when_known(runs[-1][0], plan.prediction, some, self.seed))
        numbers = np.concatenate([held for _, held in folds])
        rows = self.rows.rows(numbers)
        soft = torch.cat(softs)
        joint = np.concatenate(joints) if plan.wants_joint else None
        half = joined(halves)

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
        if self.start is not None:
            return
        # What is shared with other fits must not depend on what it was trained beside: there a
        # group is one label-wise model on all folds.
        shared, on_all = SHARED.get(), [np.arange(len(self.rows))]
        parts = [kept for kept, _ in folds] + (on_all if refit and shared is None else [])
        groups: dict[str, list[tuple[Fit, Plan, np.ndarray]]] = {}
        for plan in plans:
            for fit, one in self._singles(plan):
                shape = describe((one.stages, one.energy, one.chosen.hidden, one.linear, one.raw))
                if shared is not None:
                    shape = f"{fit.seed} {describe(one.chosen)} {shape}"
                    if shape in groups or not one.is_label_wise:
                        continue
                groups.setdefault(shape, []).extend((fit, one, kept) for kept in parts)
        for jobs in groups.values():
            if len(jobs) < 2 or not self._go_together(jobs):
                continue
            if shared is None:
                trained = self._train_together(jobs)
            else:
                key = ("side by side", *(fit._shared_key(one, kept) for fit, one, kept in jobs))
                # By the seed of its own model, not of the fit that asks for it first.
                trained = shared.get(key, partial(jobs[0][0]._train_together, jobs))
            for (fit, plan, kept), run in zip(jobs, trained, strict=True):
                self.ready[fit._key(plan, kept)] = run

    def _go_together(self, jobs: Sequence[tuple[Fit, Plan, np.ndarray]]) -> bool:
        fit, plan, kept = jobs[0]
        if plan.base is not None or not plan.stages or plan.stops_early:
            return False
        model = fit._begin(plan, kept)
        weights = sum(weight.numel() for weight in model.parameters())
        most = MOST_TOGETHER if self.device.type == "cpu" else MOST_TOGETHER_ON_GPU
        return weights * len(jobs) <= most and goes_together(model, plan.stages)

    def _train_together(
        self, jobs: Sequence[tuple[Fit, Plan, np.ndarray]]
    ) -> list[tuple[SPEN, History]]:
        models = [fit._begin(plan, kept).to(self.device) for fit, plan, kept in jobs]
        history = train_together(
            models,
            jobs[0][1].stages,
            self.rows,
            [kept for _, _, kept in jobs],
            seed=self.seed,
            label_weight=self.label_weight,
            callbacks=(*self.progress.training(len(jobs)), *self.callbacks),
            checkpoint=self.folder,
        )
        return [(model, history) for model in models]

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
        return shared.get(self._shared_key(plan, kept), lambda: self._run(plan, kept, held))

    def _shared_key(self, plan: Plan, kept: np.ndarray) -> Hashable:
        same = f"{self.same(self.rows.rows(kept))} {self.seed}"
        trained = describe((plan.stages, plan.energy))
        return trained, describe(plan.base or plan.chosen), str(plan.linear), same

    def same(self, kept: Split) -> str:
        """Return what two runs of the same plan must agree in, beside the seed."""
        arrays = [kept.weight, self.label_weight]
        for rows in (kept.X, kept.Y):
            if isinstance(rows, InputRows):
                arrays += rows.parts()
            else:
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
        X = self.rows.X
        like = X if isinstance(X, InputRows) else X.shape[1]
        model = plan.build(like, self.domain, self.seed)
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
        self, plan: Plan, rows: Split, parts: Sequence[np.ndarray], first: int = 0
    ) -> list[list[tuple[SPEN, History]]]:
        """Train the energies of a plan on each of several parts of rows, from the ``first`` on.

        Returns the members of each part.
        """
        members = [
            fit._run_energies(plan, rows, parts)
            for fit in (
                replace(self, seed=self.seed + k * MEMBER_SEEDS)
                for k in range(first, plan.energy_members)
            )
        ]
        return [list(runs) for runs in zip(*members, strict=True)]

    def _run_energies(
        self, plan: Plan, rows: Split, parts: Sequence[np.ndarray]
    ) -> list[tuple[SPEN, History]]:
        """Train the energy of a plan on each of several parts of rows, side by side if it can."""
        models = [self._begin_energy(plan, rows.X.shape[1]).to(self.device) for _ in parts]
        if not goes_together(models[0], plan.stages):
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


def mean_run(runs: Sequence[tuple[SPEN, History]]) -> tuple[SPEN, History]:
    """Return a model whose energy is the mean of those of several, and the history of the first."""
    (model, history), *others = runs
    if not others:
        return model, history
    energy = mean_energy([each.energy for each, _ in runs])
    return SPEN(model.features, energy, model.domain).to(model.reference.device), history


def joined(parts: list[tuple[np.ndarray, np.ndarray]]) -> Any:
    """Return the parts one after the other, or None of none."""
    return tuple(map(np.concatenate, zip(*parts, strict=True))) if parts else None


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
    start_at_counts(model, np.asarray(total).ravel(), known, objective)


@torch.no_grad()
def start_at_counts(model: SPEN, ones: np.ndarray, known: Any, objective: Any = None) -> None:
    """Let the local energies begin where ``ones`` (L,) of ``known`` (L,) rows have a label."""
    shares = np.where(np.equal(known, 0), 0.5, ones / np.maximum(known, 1))
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
