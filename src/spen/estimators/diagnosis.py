"""How inference goes on rows whose labels are known."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

from spen.batch.context import Context
from spen.inference.backward import Detached
from spen.inference.base import Inference, Solution
from spen.inference.descent import Descent
from spen.inference.polished import Polished
from spen.metrics import search_error_rate

if TYPE_CHECKING:
    from spen.estimators.plan import Prediction
    from spen.model import SPEN


DIAGNOSED_STEPS = 500
"""Steps that a diagnosis allows where a prediction makes a fixed, small number."""


@dataclass(frozen=True)
class Diagnosis:
    """How inference went.

    Attributes:
        converged: the share of rows that met a tolerance.
        steps: (n,) how many steps each row took.
        search_errors: the share of rows whose true labelling has a lower energy than the
            one that was found: what better inference could still win.
        endings: how many rows ended how, in words.
        gaps: (n,) how far each energy may be above its minimum, as a share of it; None where that
            is not known: it is for convex energies alone.
    """

    converged: float
    steps: np.ndarray
    search_errors: float
    endings: str
    gaps: np.ndarray | None = None

    def histogram(self, bins: int = 10) -> tuple[np.ndarray, np.ndarray]:
        """Return the counts of rows by steps, and the edges between the bins."""
        return np.histogram(self.steps, bins=bins)

    def __str__(self) -> str:
        low, middle, high = np.percentile(self.steps, [10, 50, 90])
        counts, edges = self.histogram()
        longest = max(int(counts.max()), 1)
        bars = [
            f"  {edges[i]:6.0f} to {edges[i + 1]:<6.0f} {count:7d}  {'#' * (40 * count // longest)}"
            for i, count in enumerate(counts.tolist())
        ]
        return "\n".join(
            [
                f"converged: {100 * self.converged:.1f} % of {len(self.steps)} rows",
                f"steps: {middle:.0f} in the middle, {low:.0f} to {high:.0f} for most, "
                f"{self.steps.max()} at most",
                *bars,
                f"search errors: {100 * self.search_errors:.1f} % (the truth has a lower energy)",
                *([] if self.gaps is None else [f"gap: {self.gaps.max():.1e} at most"]),
                self.endings,
            ]
        )


def patient_inference(prediction: Prediction, *, polish: bool = False) -> Inference:
    """Return the inference of predictions with as many steps as it needs to converge.

    Args:
        prediction: how predictions are made.
        polish: round what it finds, and flip labels while that lowers the energy.
    """
    inference = prediction.inference
    if isinstance(inference, Descent):
        most = max(inference.stopping.max_steps, DIAGNOSED_STEPS)
        patient = replace(inference.stopping, max_steps=most)
        inference = replace(inference, stopping=patient, backward=Detached())
    return Polished(inference) if polish else inference


def diagnose(
    model: SPEN, inputs: Any, truth: np.ndarray, prediction: Prediction, *, polish: bool = False
) -> Diagnosis:
    """Minimise the energy of each row until it converges, and compare with the truth.

    The objective is the one that predictions minimise, its entropy included. Predictions
    that make a fixed number of steps are given as many as they need here.
    """
    objective = prediction.objective
    inference = patient_inference(prediction, polish=polish)
    target = torch.from_numpy(truth).to(model.reference)
    energies, rows = [], 0

    def solve(context: Context) -> Solution:
        nonlocal rows
        n = min(context.n_rows, len(target) - rows)
        problem = model.smoothed(context, objective.entropy)
        energies.append(problem.select(torch.arange(n)).value(target[rows : rows + n]))
        rows += n
        return model.solve_context(context, inference, objective.start, objective.entropy)

    solution = model.solve_with(solve, inputs)
    gaps = solution.gap
    if gaps is not None:
        gaps = gaps / solution.energy.abs().clamp_min(1e-12)
    return Diagnosis(
        converged=float(solution.converged.float().mean()),
        steps=solution.steps.cpu().numpy(),
        search_errors=search_error_rate(torch.cat(energies), solution.energy),
        endings=solution.describe(),
        gaps=None if gaps is None else gaps.cpu().numpy(),
    )


def lowest_labels(
    model: SPEN, inputs: Any, prediction: Prediction, known: np.ndarray | None = None
) -> np.ndarray:
    """Return the labelling of each row with the lowest energy that can be found, (n, L)."""
    inference, objective = patient_inference(prediction, polish=True), prediction.objective
    solution = model.solve_with(
        lambda context: model.solve_context(context, inference, objective.start, objective.entropy),
        inputs,
        known=known,
    )
    warn_unless_converged(solution)
    return solution.y.cpu().numpy().astype(int)


def warn_unless_converged(solution: Solution) -> None:
    """Warn of rows on which inference ended before it had converged."""
    stopped = solution.cut_off.numpy()
    if stopped.any():
        warnings.warn(
            f"Inference did not converge for {int(stopped.sum())} of {len(stopped)} rows: "
            f"{solution.describe()} The best that was found is returned; more steps or time, or "
            "a smaller rate (inference=...) may help.",
            ConvergenceWarning,
            stacklevel=4,
        )
