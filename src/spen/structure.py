"""What an energy has learned about labels: its measurements, with names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from spen.energies.base import energy_terms
from spen.errors import InputError, require
from spen.inputs import whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from spen.model import SPEN

SHOWN = 10
"""Measurements that a printed structure lists."""


@dataclass(frozen=True)
class LabelStructure:
    """The measurement matrix of a model.

    Attributes:
        measurements: (m, L) how much each measurement weighs each label.
        readout: (m,) how much the energy weighs each measurement.
        label_names: the L labels.
        energy: the class of energy that holds the matrix.
    """

    measurements: np.ndarray
    readout: np.ndarray
    label_names: tuple[Any, ...]
    energy: str

    @classmethod
    def of(cls, model: SPEN, label_names: tuple[Any, ...]) -> LabelStructure:
        """Take the measurements out of a model."""
        for term in energy_terms(model.energy):
            matrix, readout = getattr(term, "measurements", None), getattr(term, "readout", None)
            if matrix is not None and readout is not None:
                return cls(
                    matrix.detach().cpu().numpy().copy(),
                    readout.detach().cpu().numpy().copy(),
                    tuple(label_names),
                    type(term).__name__,
                )
        raise InputError(
            "This model's energy has no measurement matrix. Fit with energy='label' or "
            "energy='conditional'."
        )

    def strongest(self, labels: int = 5) -> list[list[tuple[Any, float]]]:
        """Return each measurement's labels of largest weight, with the weights.

        Measurements come in the order of their say in the energy, the largest first.
        """
        whole(labels, "labels")
        say = np.abs(self.readout[: len(self.measurements)]) if self._plain else 1.0
        order = np.argsort(-say * np.linalg.norm(self.measurements, axis=1), kind="stable")
        result = []
        for weights in self.measurements[order]:
            top = np.argsort(-np.abs(weights), kind="stable")[:labels]
            result.append([(self.label_names[i], float(weights[i])) for i in top])
        return result

    def similarity(self) -> np.ndarray:
        """Return how alike the measurements treat each two labels, (L, L) cosines in [−1, 1]."""
        norms = np.linalg.norm(self.measurements, axis=0)
        unit = self.measurements / np.where(norms > 0, norms, 1.0)
        return unit.T @ unit

    def order(self) -> np.ndarray:
        """Return an order of labels in which those that are treated alike stand together."""
        from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering
        from scipy.spatial.distance import pdist

        n_labels = self.measurements.shape[1]
        if n_labels < 3:
            return np.arange(n_labels)
        distances = pdist(self.measurements.T)
        tree = linkage(distances, "average")
        # The best order of leaves takes the cube of their number; the tree's own will do then.
        return leaves_list(optimal_leaf_ordering(tree, distances) if n_labels <= 300 else tree)

    def plot(self, path: Path | str | None = None) -> Figure:
        """Draw the matrix as a heat map, labels that are treated alike side by side.

        Args:
            path: where to write the picture; its suffix says how. None only returns it.
        """
        require("matplotlib", "report")
        from spen.report.plots import draw_structure

        figure = draw_structure(self)
        if path is not None:
            figure.savefig(path, dpi=144)
        return figure

    @property
    def _plain(self) -> bool:
        """Whether the readout weighs measurements, not a further layer."""
        return len(self.readout) == len(self.measurements)

    def __str__(self) -> str:
        lines = [
            " ".join(f"{name}({weight:+.2f})" for name, weight in row) for row in self.strongest()
        ]
        shown = [f"measurement {i}: {line}" for i, line in enumerate(lines[:SHOWN])]
        rest = len(lines) - SHOWN
        return "\n".join([*shown, f"and {rest} more"] if rest > 0 else shown)
