"""One fit: choose on held-out rows, freeze what was chosen, train again on all rows."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from spen.batch.splits import Split
from spen.domains import Domain, Simplex
from spen.energies.base import energy_terms
from spen.energies.local import LocalEnergy
from spen.errors import InputError
from spen.estimators.calibration import Calibration
from spen.estimators.plan import LINEAR, Plan, Prediction, decode
from spen.features import Features, Identity
from spen.metrics import counts, row_f1
from spen.model import SPEN
from spen.objectives.likelihood import CrossEntropy
from spen.stacking import LabelScores, ScoreEnergy
from spen.training.checkpoint import Epoch, History, describe, digest
from spen.training.loop import best_f1, train

if TYPE_CHECKING:
    from spen.training.checkpoint import Epoch


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


MEMBER_SEEDS = 7919
"""How far apart the seeds of the models are that are averaged."""


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
        shared = SHARED.get()
        if plan.is_averaged:
            return self._run_members(plan, kept, held)
        if shared is None or not plan.is_label_wise:
            return self._run(plan, kept, held)
        # Held-out rows are watched, not obeyed, so they change nothing.
        key = (describe(plan.stages), describe(plan.chosen), str(plan.linear), self._same(kept))
        return shared.get(key, lambda: self._run(plan, kept, held))

    def _same(self, kept: Split) -> str:
        """Return what two runs of the same plan must agree in."""
        arrays = [kept.weight, self.label_weight]
        for rows in (kept.X, kept.Y):
            parts = (rows.indptr, rows.indices, rows.data) if sparse.issparse(rows) else (rows,)
            arrays += parts
        tensors = [None if each is None else torch.as_tensor(each) for each in arrays]
        return f"{digest(tensors)} {self.seed} {self.device}"

    def _run(self, plan: Plan, kept: Split, held: Split | None) -> tuple[SPEN, History]:
        model = plan.build(self.rows.X.shape[1], self.domain, self.seed)
        start_at_frequencies(model, kept.Y, plan.stages[0].objective)
        return model, self.train(model, plan, kept, held)

    def _run_members(self, plan: Plan, kept: Split, held: Split | None) -> tuple[SPEN, History]:
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
        """Train the energy of a cross-fitted plan; the rows' inputs are label scores."""
        size = self.domain.size
        energy = plan.energy.size(size, self.domain)
        model = SPEN(Identity(size), energy, self.domain, seed=self.seed).float()
        return model, self.train(model, plan, kept, None)

    def train(self, model: SPEN, plan: Plan, kept: Split, held: Split | None) -> History:
        """Train a model in place, where the fit trains."""
        return train(
            model.to(self.device),
            plan.stages,
            kept,
            held,
            seed=self.seed,
            # Watched, not obeyed: cheaper than the verdict on the last epoch.
            score=accuracy if isinstance(self.domain, Simplex) else best_f1,
            label_weight=self.label_weight,
            callbacks=(self.tell,),
        )


def soft_labels(model: SPEN, prediction: Prediction, inputs: Any, known: Any = None) -> Any:
    """Return the solution of each row by the inference of predictions."""
    return model.solve_with(
        lambda context: prediction.objective.predict(model, prediction.inference, context),
        inputs,
        known=known,
    )


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


@contextmanager
def epoch_bar(title: str, total: int) -> Iterator[Callable[[Epoch], None]]:
    """Show how far a fit of ``total`` epochs is; yields the callback for ``train``."""
    if not sys.stderr.isatty() or not _has_rich():
        began = time.perf_counter()
        yield lambda epoch: None
        print(f"{title}: {time.perf_counter() - began:.1f} s", file=sys.stderr)  # noqa: T201
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task(f"{title:<28}", total=total, note="")

        def advance(epoch: Epoch) -> None:
            score = "" if epoch.score is None else f" held-out F1 {100 * epoch.score:5.1f}"
            note = f"{epoch.stage} {epoch.epoch}/{epoch.epochs} loss {epoch.loss:7.3f}{score}"
            bars.update(task, advance=1, note=note)

        yield advance
        bars.update(task, completed=total)


def _has_rich() -> bool:
    import importlib.util

    return importlib.util.find_spec("rich") is not None
