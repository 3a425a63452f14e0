"""The training runs of one fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from scipy import sparse

from spen.checkpoint import Epoch, History, describe, digest
from spen.data.dataset import Split
from spen.domains import Domain, Simplex
from spen.energies.base import energy_terms
from spen.energies.local import LocalEnergy
from spen.features import Features, Identity
from spen.model import SPEN
from spen.objectives.likelihood import CrossEntropy
from spen.plan import Plan, Prediction
from spen.shared_runs import SHARED
from spen.stacking import LabelScores, ScoreEnergy
from spen.training import best_f1, train

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
