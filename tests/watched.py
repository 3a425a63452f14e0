"""Which weights predicted which rows, in all that a fit and what follows it do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import spen
from spen.estimators import judging, predictor, runs
from spen.files import digest
from spen.metrics import as_array

Prediction = tuple[np.ndarray, str]
"""Rows, and a digest of the weights that predicted them."""


class Watch:
    """Keeps a list of predictions, and of the folds by which rows were held out.

    Attributes:
        predictions: in the order in which they were made.
        folds: the rows of each trial as the fit had them, with its folds.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.predictions: list[Prediction] = []
        self.folds: list[tuple[np.ndarray, judging.Folds]] = []
        solve, hold_out = predictor.solve, runs.Fit.hold_out

        def watched_solve(model: spen.SPEN, prediction: Any, inputs: Any, known: Any = None) -> Any:
            weights = digest(model.state_dict().values())
            self.predictions.append((as_array(inputs, np.float32), weights))
            return solve(model, prediction, inputs, known)

        def watched_hold_out(work: runs.Fit, plan: Any, folds: Any, begun: Any = None) -> Any:
            self.folds.append((as_array(work.rows.X, np.float32), folds))
            return hold_out(work, plan, folds, begun)

        for module in (judging, predictor):
            monkeypatch.setattr(module, "solve", watched_solve)
        monkeypatch.setattr(runs.Fit, "hold_out", watched_hold_out)

    @property
    def held(self) -> np.ndarray:
        """The numbers of the rows that the first fold holds out."""
        return self.folds[0][1][0][1]

    @property
    def weights(self) -> list[str]:
        """What predicted, in order."""
        return [weights for _, weights in self.predictions]

    def weights_for(self, numbers: np.ndarray) -> list[str]:
        """Return what predicted these of the fit's rows and no others."""
        some = {row.tobytes() for row in self.folds[0][0][numbers]}
        return [
            weights
            for rows, weights in self.predictions
            if all(row.tobytes() in some for row in rows)
        ]

    def start_over(self) -> None:
        """Forget everything."""
        self.predictions, self.folds = [], []


def noise_like(labels: Any, seed: int = 7) -> Any:
    """Return labels that were drawn by a coin, of the same kind."""
    drawn = np.random.default_rng(seed).integers(0, 2, labels.shape)
    if isinstance(labels, np.ndarray):
        return drawn.astype(labels.dtype)
    return type(labels)(drawn.astype(labels.dtype))
