"""The model that is measured, and its rows: the paper's on Bibtex, or one of the user's own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

import spen
from spen import SPEN, Context, Dataset, Descent, InputError, Solution, Split, Stopping
from spen.batch.rows import Inputs, whole_batch
from spen.data.catalog import find
from spen.estimators.base import LabelClassifier
from spen.estimators.plan import HELD_OUT
from spen.inference.fused import solve_fused
from spen.inference.rules import Iterate
from spen_paper.bench.timing import note
from spen_paper.fits import dataset_of
from spen_paper.settings import classifier, settings_of

MOST_ROWS = 10_000
"""Rows of a part of a data set that are looked at, at most."""

SHORTER = 8
"""By how much training is shortened on generated rows, which nobody wants to wait for."""

PAPERS_RULE = spen.MirrorDescent(lr=0.1, momentum=0.95)
LOOSER = (50.0, 20.0, 10.0, 5.0, 2.0)
"""By how much a tolerance may be loosened, the most first."""

LABELS_OF_A_GROUP = 8
WORDS_OF_A_LABEL = 12
COMMON_WORDS = 0.03
"""The share of words that a row has for no reason; like Bibtex's it has 60 to 70 in all."""

Backend = Literal["auto", "fused", "general"]
RuleName = Literal["default", "paper"]


@dataclass(frozen=True)
class TimedModel:
    """A classifier of label sets, and rows.

    Attributes:
        classifier: fitted.
        note: which model and which rows these are, in words.
        timed: the rows whose prediction is timed; their labels are never looked at.
        learned: the rows that a training epoch is timed with.
        judged: rows that the classifier has not seen, for F1; None where there are none.
    """

    classifier: LabelClassifier
    note: str
    timed: Split
    learned: Split
    judged: Split | None

    @classmethod
    def of(cls, classifier: LabelClassifier, data: Dataset, note: str) -> TimedModel:
        """Choose the rows: of the training part, those that the classifier has not seen judge.

        The test part, where there is one, is timed. It judges only where the classifier has
        seen all of the training part, or does not remember what it has seen.
        """
        if not isinstance(classifier.model_.domain, spen.UnitBox):
            raise InputError(
                "spen bench is for models of label sets; this one predicts one class a row."
            )
        if not isinstance(classifier.plan_.prediction.inference, Descent):
            kind = type(classifier.plan_.prediction.inference).__name__
            raise InputError(f"spen bench is for models whose inference is a Descent, not {kind}.")
        seen = np.ones(len(data.train), bool)  # of a model that does not remember its rows
        if classifier.training_rows_ is not None:
            seen = classifier.seen_in_training(data.train.X)
        timed = data.train if data.test is None else data.test
        judged = data.train.rows(~seen) if (~seen).any() else data.test
        learned = data.train.rows(seen) if seen.any() else data.train
        first = slice(0, MOST_ROWS)
        judged = None if judged is None else judged.rows(first)
        return cls(classifier, note, timed.rows(first), learned.rows(first), judged)

    @property
    def model(self) -> SPEN:
        """The network and its energy."""
        return self.classifier.model_

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return self.model.reference.device

    @cached_property
    def batch(self) -> Inputs:
        """The timed rows as the feature network takes them quickest, on the device."""
        return batch_of(self.classifier, self.timed)

    @cached_property
    def stopping(self) -> Stopping:
        """When predictions stop; the default where they make a fixed number of steps."""
        prediction = self.classifier.plan_.prediction
        unrolled = isinstance(prediction.objective, spen.UnrolledLikelihood)
        if unrolled or not isinstance(prediction.inference, Descent):
            return Stopping()
        return prediction.inference.stopping

    @cached_property
    def matched_stopping(self) -> Stopping:
        """When the default rule stops: where the paper's rule, stopping as above, would be."""
        batch = batch_of(self.classifier, self.timed if self.judged is None else self.judged)
        return matched_stopping(lambda descent: self.predict(descent, batch), self.stopping)

    def descent(self, rule: RuleName = "default", backend: Backend = "auto") -> Descent:
        """Return a solver: the library's default rule, or the paper's, to the same energy."""
        if rule == "paper":
            return Descent(PAPERS_RULE, self.stopping, backend=backend)
        return Descent(stopping=self.matched_stopping, backend=backend)

    @torch.no_grad()
    def forward(self, batch: Inputs | None = None) -> Tensor:
        """Run the feed-forward network alone: its probability of each label, (n, L)."""
        context = Context(self.model.features.of(self.batch if batch is None else batch))
        return self.model.domain.to_primal(-self.model.local_scores(context))

    @torch.no_grad()
    def predict(self, descent: Descent, batch: Inputs | None = None) -> Solution:
        """Run the whole prediction: the feature network, and the energy's minimisation."""
        context = Context(self.model.features.of(self.batch if batch is None else batch))
        objective = self.classifier.plan_.prediction.objective
        return self.model.solve_context(context, descent, objective.start, objective.entropy)

    @cached_property
    @torch.no_grad()
    def bound(self) -> tuple[spen.Problem, Tensor | None]:
        """The minimisation alone: the problem of the timed rows, and where it starts."""
        objective = self.classifier.plan_.prediction.objective
        context = Context(self.model.features.of(self.batch))
        problem = self.model.smoothed(context, objective.entropy)
        if objective.start == "uniform":
            return problem, None
        return problem, self.model.starting_point(context, objective.start)

    @torch.no_grad()
    def solve(self, descent: Descent) -> Solution:
        """Minimise the energies of the timed rows, with the features at hand."""
        problem, start = self.bound
        return descent.solve(problem, self.model.domain, start)

    def loop(self, descent: Descent) -> Solution:
        """Minimise the energies of the timed rows by the loop that one writes oneself."""
        problem, start = self.bound
        domain = self.model.domain
        first = domain.uniform(problem.rows_like) if start is None else start
        return autograd_loop(problem, domain, descent.rule, descent.stopping, first)

    @torch.no_grad()
    def why_not_fused(self) -> str | None:
        """Say why no kernel can minimise this energy here; None where one can."""
        problem, start = self.bound
        few = torch.arange(min(8, problem.rows_like.shape[0]), device=self.device)
        first = self.model.domain.uniform(problem.rows_like[few]) if start is None else start[few]
        found = solve_fused(Descent(), problem.select(few), self.model.domain, first, None)
        return found if isinstance(found, str) else None

    @cached_property
    def default_classifier(self) -> LabelClassifier:
        """The classifier with the library's default rule in its predictions.

        Where the steps themselves were trained, it stays as it is.
        """
        plan = self.classifier.plan_
        if isinstance(plan.prediction.objective, spen.UnrolledLikelihood):
            return self.classifier
        changed = copy.copy(self.classifier)
        prediction = replace(plan.prediction, inference=self.descent())
        changed.plan_ = replace(plan, prediction=prediction)
        return changed


def batch_of(fitted: LabelClassifier, rows: Split) -> Inputs:
    """Return rows as a classifier's feature network takes them quickest, on its device."""
    model = fitted.model_
    scaled = fitted.predictor_.scale(rows.X)
    return whole_batch(model.arrays.rows(scaled, "X", model.features.n_inputs))


@torch.no_grad()
def autograd_loop(
    problem: spen.Problem, domain: spen.Domain, rule: spen.Rule, stopping: Stopping, start: Tensor
) -> Solution:
    """Minimise by PyTorch's own means: autograd for the gradient, all rows in every step.

    The same rule, tolerances and best iterates as ``spen.Descent``, so the same answers. It
    looks after each step whether a row is left that has not converged.

    Args:
        problem: the energies of a batch; only its value is used.
        domain: where y lives.
        rule: how a step is made.
        stopping: the tolerances.
        start: (n, L).

    >>> from spen import Form, MirrorDescent, UnitBox
    >>> problem, domain = Form(linear=torch.tensor([[2.0, -2.0]])), UnitBox(2)
    >>> start = domain.uniform(problem.rows_like)
    >>> autograd_loop(problem, domain, MirrorDescent(), Stopping(100), start).y.round()
    tensor([[0., 1.]])
    """
    tau = problem.entropy_weight if rule.applies_entropy else None
    smooth = problem if tau is None else problem.without_entropy()

    def evaluate(at: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            leaf = at.detach().requires_grad_()
            energy = smooth.value(leaf)
            (gradient,) = torch.autograd.grad(energy.sum(), leaf)
        value = energy.detach()
        return value if tau is None else value + tau * domain.negative_entropy(at), gradient

    y, state = start, rule.init(start, domain)
    value, gradient = evaluate(y)
    best_y, best = y, value
    running = torch.ones(start.shape[0], dtype=torch.bool, device=start.device)
    steps = torch.zeros_like(running, dtype=torch.int64)
    for _ in range(stopping.max_steps):
        last_y, last_value = y, value
        state, y = rule.step(state, Iterate(y, value, gradient), tau, None, domain)
        value, gradient = evaluate(y)
        better = running & (value < best)
        best_y = torch.where(better[:, None], y, best_y)
        best = torch.where(better, value, best)
        steps += running
        running &= ~stopping.met(y, last_y, value, last_value)
        if not running.any():
            break
    status = torch.where(running, spen.Status.MAX_STEPS, spen.Status.CONVERGED)
    return Solution(best_y, best, steps, status)


def matched_stopping(solve: Callable[[Descent], Solution], stopping: Stopping) -> Stopping:
    """Return the loosest stopping that ends at no higher a mean energy than the paper's rule.

    A tolerance bounds the change of the energy in one step. With momentum a small change is
    often a turning point, while the default rule's changes shrink as it arrives. So the same
    number is stricter for the default rule, and comparing steps at the same number would
    compare different answers.

    Args:
        solve: minimises the energies of some rows.
        stopping: of the paper's rule.

    >>> import torch
    >>> from spen import Form, UnitBox
    >>> problem = Form(linear=torch.tensor([[2.0, -2.0]]))
    >>> found = matched_stopping(lambda d: d.solve(problem, UnitBox(2)), Stopping(100, 1e-4))
    >>> found.max_steps, found.objective_rtol >= 1e-4
    (100, True)
    """
    wanted = solve(Descent(PAPERS_RULE, stopping)).energy.double().mean()
    for factor in LOOSER:
        looser = replace(stopping, objective_rtol=factor * stopping.objective_rtol)
        if solve(Descent(stopping=looser)).energy.double().mean() <= wanted:
            return looser
    return stopping


def paper_subject(out: Path, device: torch.device) -> TimedModel:
    """Return the paper's model of Bibtex, trained now or, where it is kept, before.

    It learns from four fifths of the training rows; the others judge. Without Bibtex at hand,
    rows of its shape are generated, and training is shortened.

    Args:
        out: the folder where ``paper.spen`` is kept.
        device: where to train and to measure.
    """
    if find("bibtex") is not None:
        return subject_on(dataset_of("bibtex"), out, device)
    note(
        "Bibtex is not at hand (spen data fetch bibtex), so rows of its shape are generated and "
        "training is shortened."
    )
    return subject_on(words_and_tags(), out, device, shorter=SHORTER)


def subject_on(data: Dataset, out: Path, device: torch.device, shorter: int = 1) -> TimedModel:
    """Train the paper's model on a data set, or find it in a folder.

    Args:
        data: with sparse rows.
        out: the folder where ``paper.spen`` is kept.
        device: where to train and to measure.
        shorter: by how much to divide the epochs of each stage.
    """
    fitted, kept = paper_model(data, out / "paper.spen", device, shorter=shorter)
    size = f"{data.train.X.shape[1]:,} features, {len(data.label_names)} labels"
    words = f"the paper's SPEN on {data.name} ({size}), trained on {len(kept):,} rows"
    return TimedModel.of(fitted, data, words if shorter == 1 else f"{words} for a short while")


def paper_model(
    data: Dataset,
    path: Path,
    device: torch.device,
    *,
    settings: str = "bibtex",
    seed: int = 0,
    shorter: int = 1,
) -> tuple[LabelClassifier, Split]:
    """Return the paper's model, trained on four fifths of the training rows, and those rows.

    Args:
        data: with sparse rows.
        path: where the model is kept, once it is trained.
        device: where to train.
        settings: the data set whose settings of Table 1 are taken.
        seed: of the training.
        shorter: by how much to divide the epochs of each stage.
    """
    kept, _ = spen.hold_out(data.train, HELD_OUT, seed=0)
    fitted = _kept_model(path, kept.X, device)
    if fitted is None:
        table = settings_of(settings)["spen-paper"]
        where = f"table1.toml, [{settings}.spen-paper]"
        stages = [s | {"epochs": max(1, s["epochs"] // shorter)} for s in table["stages"]]
        changes: dict[str, Any] = {"folds": 1, "stages": stages, "remember_rows": True}
        fitted = classifier(table, seed=seed, device=str(device), where=where, **changes)
        note(f"Training the paper's model on {data.name} once; it is kept in {path}.")
        fitted.set_params(verbose=1)
        names: Any = {"label_names": data.label_names, "feature_names": data.feature_names}
        fitted.fit(kept.X, kept.Y, **names)
        fitted.save(path)
    return fitted, kept


def _kept_model(path: Path, rows: Any, device: torch.device) -> LabelClassifier | None:
    """Return the model of an earlier bench, if it was trained on these rows."""
    if not path.exists():
        return None
    try:
        fitted = spen.load(path, str(device))
        fits = fitted.n_features_in_ == rows.shape[1] and fitted.seen_in_training(rows).all()
    except spen.SpenError as problem:
        note(f"{problem} It is trained anew.")
        return None
    return fitted if fits else None


def words_and_tags(
    n_train: int = 4880,
    n_test: int = 2515,
    n_features: int = 1836,
    n_labels: int = 159,
    seed: int = 0,
) -> Dataset:
    """Draw sparse rows of zeros and ones with labels that depend on each other.

    A row is about one group of labels, of which it has a few, frequent ones more often, and
    now and then it has a label from elsewhere. Each label makes some words likely.

    >>> data = words_and_tags(n_train=100, n_test=50)
    >>> data.train.X.shape, data.test.Y.shape, bool((data.train.Y.sum(1) > 0).all())
    ((100, 1836), (50, 159), True)
    """
    rng = np.random.default_rng(seed)
    groups = max(1, n_labels // LABELS_OF_A_GROUP)
    group = np.arange(n_labels) % groups
    frequency = 1 / (1 + np.arange(n_labels) // groups)
    words = rng.permuted(np.tile(np.arange(n_features), (n_labels, 1)), axis=1)
    own = np.zeros((n_labels, n_features), np.float32)
    np.put_along_axis(own, words[:, :WORDS_OF_A_LABEL], 0.5, axis=1)
    common = 1 / (20 + np.arange(n_features))
    common = np.minimum(0.5, common * COMMON_WORDS * n_features / common.sum())

    def draw(rows: int) -> Split:
        about = group[None, :] == rng.integers(0, groups, (rows, 1))
        chance = np.where(about, 0.6 * frequency, 0.002)
        labels = rng.random((rows, n_labels)) < chance
        # Every row has a label, as Bibtex's have: the most frequent one of its group.
        labels |= about & (frequency == 1) & ~labels.any(1, keepdims=True)
        said = 1 - (1 - common) * np.exp(labels.astype(np.float32) @ np.log1p(-own))
        present = rng.random((rows, n_features)) < said
        return Split(
            sparse.csr_matrix(present.astype(np.float32)), sparse.csr_matrix(labels.astype(np.int8))
        )

    return Dataset(
        name="generated",
        train=draw(n_train),
        test=draw(n_test),
        feature_names=tuple(f"word{i}" for i in range(n_features)),
        label_names=tuple(f"tag{i}" for i in range(n_labels)),
    )
