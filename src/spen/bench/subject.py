"""What is measured: a trained classifier, and rows for it."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import torch

from spen.batch.context import Context
from spen.batch.rows import Inputs, whole_batch
from spen.batch.splits import Split
from spen.bench.tolerance import PAPERS_RULE, matched_stopping
from spen.data.dataset import Dataset
from spen.domains import UnitBox
from spen.energies.base import Problem
from spen.errors import InputError
from spen.estimators.base import LabelClassifier
from spen.inference.base import Solution
from spen.inference.descent import Descent, Stopping
from spen.inference.fused import solve_fused
from spen.model import SPEN
from spen.objectives.unrolled import UnrolledLikelihood

MOST_ROWS = 10_000
"""Rows of a part of a data set that are looked at, at most."""

Backend = Literal["auto", "fused", "general"]
RuleName = Literal["default", "paper"]


@dataclass(frozen=True)
class Subject:
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
    def of(cls, classifier: LabelClassifier, data: Dataset, note: str) -> Subject:
        """Choose the rows: of the training part, those that the classifier has not seen judge.

        The test part, where there is one, is timed. It judges only where the classifier has
        seen all of the training part.
        """
        if not isinstance(classifier.model_.domain, UnitBox):
            raise InputError(
                "spen bench is for models of label sets; this one predicts one class a row."
            )
        if not isinstance(classifier.plan_.prediction.inference, Descent):
            kind = type(classifier.plan_.prediction.inference).__name__
            raise InputError(f"spen bench is for models whose inference is a Descent, not {kind}.")
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
        return self.batch_of(self.timed)

    def batch_of(self, rows: Split) -> Inputs:
        """Return rows as the feature network takes them quickest, on the device."""
        scaled = self.classifier.predictor_.scale(rows.X)
        columns = self.model.features.n_inputs
        return whole_batch(self.model.arrays.rows(scaled, "X", columns))

    @cached_property
    def stopping(self) -> Stopping:
        """When predictions stop; the default where they make a fixed number of steps."""
        prediction = self.classifier.plan_.prediction
        unrolled = isinstance(prediction.objective, UnrolledLikelihood)
        if unrolled or not isinstance(prediction.inference, Descent):
            return Stopping()
        return prediction.inference.stopping

    @cached_property
    def matched_stopping(self) -> Stopping:
        """When the default rule stops: where the paper's rule, stopping as above, would be."""
        batch = self.batch_of(self.timed if self.judged is None else self.judged)
        return matched_stopping(lambda descent: self.predict(descent, batch), self.stopping)

    def descent(self, rule: RuleName = "default", backend: Backend = "auto") -> Descent:
        """Return a solver: the library's default rule, or the paper's, to the same energy."""
        if rule == "paper":
            return Descent(PAPERS_RULE, self.stopping, backend=backend)
        return Descent(stopping=self.matched_stopping, backend=backend)

    @torch.no_grad()
    def forward(self, batch: Inputs | None = None) -> torch.Tensor:
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
    def bound(self) -> tuple[Problem, torch.Tensor | None]:
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
        if isinstance(plan.prediction.objective, UnrolledLikelihood):
            return self.classifier
        changed = copy.copy(self.classifier)
        prediction = replace(plan.prediction, inference=self.descent())
        changed.plan_ = replace(plan, prediction=prediction)
        return changed
