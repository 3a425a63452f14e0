"""What a solver misses, counted by enumeration: in prediction, and in the hinge of training."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import Tensor

from spen.batch.context import Context
from spen.inference.base import Inference
from spen.inference.exact import Exact
from spen.model import SPEN
from spen.objectives.hinge import Hinge
from spen.reproduce.machines import Trained

SLACK = 1e-2
"""Energies and losses that differ by less are equal: a hundredth of what a wrong label is worth."""


@torch.no_grad()
def search_of(trained: Trained, X: np.ndarray) -> dict[str, float]:
    """Return how a max-margin machine's predictions compare with the least energies, in percent.

    Other objectives do not ask for the labelling of least energy, so nothing is said of them.

    Returns:
        search_errors: rows whose rounded solution has more energy than the best labelling;
        undecided: rows with a label that is neither off (below .1) nor on (above .9);
        unsettled: rows where the solver did not end as it wants to.
    """
    if not isinstance(trained.machine.stages[-1].objective, Hinge):
        return {}
    model, solution = trained.model, trained.solve(X)
    problem = model.energy.bind(model.context(trained.view(X)))
    found = problem.value(model.domain.round(solution.y))
    least = Exact().solve(problem, model.domain).energy
    undecided = ((solution.y > 0.1) & (solution.y < 0.9)).any(1)
    return {
        "search_errors": _percent(found > least + SLACK),
        "undecided": _percent(undecided),
        "unsettled": _percent(~solution.converged),
    }


@dataclass(frozen=True)
class Sight:
    """What a solver sees of the margins that a model violates on some rows.

    Attributes:
        violated: rows with a violation, in percent, by enumeration.
        seen: rows in which the solver finds one.
        under: rows whose hinge loss is larger than the solver finds.
        over: rows whose hinge loss is smaller than the solver says.
        ratio: the mean loss that the solver finds, over the mean loss.
    """

    violated: float
    seen: float
    under: float
    over: float
    ratio: float

    def as_dict(self) -> dict[str, float]:
        """Return the figures by name."""
        return asdict(self)


@torch.no_grad()
def sight_of(model: SPEN, inference: Inference, context: Context, hinge: Hinge) -> Sight:
    """Compare the hinge loss of each row, as a solver finds it, with the exact one.

    Args:
        model: as far as it has been trained.
        inference: the solver.
        context: rows with their targets.
        hinge: the loss.
    """
    found = hinge.loss(model, inference, context)
    exact = hinge.loss(model, Exact(), context)
    return Sight(
        violated=_percent(exact > SLACK),
        seen=_percent(found > SLACK),
        under=_percent(found < exact - SLACK),
        over=_percent(found > exact + SLACK),
        ratio=round(float(found.mean() / exact.mean().clamp_min(1e-12)), 5),
    )


def _percent(rows: Tensor) -> float:
    return round(100 * float(rows.float().mean()), 4)
