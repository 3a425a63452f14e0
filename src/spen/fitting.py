"""One fit: tune on held-out rows, freeze what was chosen, train again on all rows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from spen.checkpoint import Epoch, History
from spen.data.dataset import Split, hold_out
from spen.domains import Domain, UnitBox
from spen.errors import InputError
from spen.metrics import example_f1
from spen.model import SPEN
from spen.progress import epoch_bar
from spen.recipe import Plan
from spen.training import train


@dataclass(frozen=True)
class Fitted:
    """A trained model, and what was chosen on held-out rows."""

    model: SPEN
    tuned: Any
    score: float
    history: History
    refit_history: History | None


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
    """Train a model by a plan.

    Args:
        plan: sizes and training.
        rows: scaled inputs, labels and weights.
        domain: where the output lives.
        label_weight: (L,) how much each label counts.
        device: where to train.
        seed: decides every random draw.
        verbose: show a progress bar.
    """
    if len(rows) < 2:
        raise InputError(
            f"Fitting needs at least two rows, one of them to tune on; received n_samples = "
            f"{len(rows)}."
        )

    def trained(some: Split, held: Split | None, chosen: Plan, tell: Callable[[Epoch], None]):
        model = chosen.build(rows.X.shape[1], domain, seed).to(device)
        history = train(
            model,
            chosen.stages,
            some,
            held,
            seed=seed,
            score=_score(plan, domain),
            label_weight=label_weight,
            callbacks=(tell,),
        )
        return model, history

    total = sum(stage.epochs for stage in plan.stages) * (2 if plan.refit else 1)
    bar = epoch_bar("fit", total) if verbose else nullcontext(lambda epoch: None)
    with bar as tell:
        share = max(plan.held_out, 1 / len(rows))
        kept, held = hold_out(rows, share, seed)
        model, history = trained(kept, held, plan, tell)
        tuned, score = _tune(plan, model, held)
        if not plan.refit:
            return Fitted(model, tuned, score, history, None)
        stages = tuple(
            replace(stage, epochs=history.best_epoch(stage.name), patience=None)
            for stage in plan.stages
        )
        model, refit_history = trained(rows, None, replace(plan, stages=stages), tell)
        return Fitted(model, tuned, score, history, refit_history)


def _score(plan: Plan, domain: Domain) -> Callable[[Tensor, Tensor], float]:
    """Return what stops training: the score of the labels that would be predicted."""
    if not isinstance(domain, UnitBox):
        return _accuracy

    def decoded(truth: Tensor, soft: Tensor) -> float:
        return example_f1(truth, plan.decode(soft, plan.tune(truth, soft)))

    return decoded


def _accuracy(truth: Any, soft: Any) -> float:
    return float((truth.argmax(1) == soft.argmax(1)).double().mean())


def _tune(plan: Plan, model: SPEN, held: Split) -> tuple[Any, float]:
    """Return what held-out rows choose for decoding, and their score with it."""
    objective, inference = plan.prediction.objective, plan.prediction.inference
    solution = model.solve_with(
        lambda context: objective.predict(model, inference, context), held.X
    )
    soft = solution.y.cpu()
    truth = torch.from_numpy(densified(held.Y))
    if not isinstance(model.domain, UnitBox):
        return None, _accuracy(truth, soft)
    tuned = plan.tune(truth, soft)
    return tuned, example_f1(truth, plan.decode(soft, tuned))


def densified(labels: Any) -> np.ndarray:
    """Return labels as a dense array of float32, nan where they are missing."""
    return np.asarray(labels.toarray() if sparse.issparse(labels) else labels, dtype=np.float32)
