"""What an energy has learned about labels: its measurements, with names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from spen.batch.context import Context
from spen.energies.base import Energy, energy_terms
from spen.errors import InputError, check_whole, require

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
        energy: what holds the matrix.
    """

    measurements: np.ndarray
    readout: np.ndarray
    label_names: tuple[Any, ...]
    energy: Energy

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
                    term,
                )
        raise InputError(
            "This model's energy has no measurement matrix. Fit with energy='label' or "
            "energy='conditional'."
        )

    def strongest(self, labels: int = 5) -> list[list[tuple[Any, float]]]:
        """Return each measurement's labels of largest weight, with the weights.

        Measurements come in the order of their say in the energy, the largest first.
        """
        check_whole(labels, "labels")
        result = []
        for weights in self.measurements[self.by_say()]:
            top = np.argsort(-np.abs(weights), kind="stable")[:labels]
            result.append([(self.label_names[i], float(weights[i])) for i in top])
        return result

    def by_say(self) -> np.ndarray:
        """Return the measurements' numbers, those with the largest say in the energy first."""
        size = np.linalg.norm(self.measurements, axis=1)
        # A readout of another length weighs a further layer, not the measurements.
        if len(self.readout) == len(size):
            size = size * np.abs(self.readout)
        return np.argsort(-size, kind="stable")

    @torch.no_grad()
    def interactions(self) -> np.ndarray:
        """Return what the energy adds when two labels are on together, (L, L).

        It is E(both) − E(one) − E(other) + E(neither) with all other labels off: below zero
        the energy pulls the two together, above zero it pushes them apart.
        """
        if self.energy.n_features is not None:
            raise InputError(
                "This energy looks at the features too, so that its interactions differ from row "
                "to row. Fit with energy='label' to see those of labels alone."
            )
        size = len(self.label_names)
        one = torch.eye(size).to(next(self.energy.parameters()))

        def value(y: torch.Tensor) -> torch.Tensor:
            return self.energy.bind(Context(y.new_zeros(len(y), 0))).value(y)

        alone, neither = value(one), value(torch.zeros_like(one[:1]))
        both = torch.stack([value((one + one[i]).clamp(max=1)) for i in range(size)])
        table = (both - alone - alone[:, None] + neither).cpu().numpy()
        np.fill_diagonal(table, 0.0)
        return table

    def pairs(self, pairs: int = 10) -> list[tuple[Any, Any, float]]:
        """Return the pairs of labels that interact most, with their interaction."""
        check_whole(pairs, "pairs")
        table = self.interactions()
        rows, columns = np.triu_indices(len(table), 1)
        top = np.argsort(-np.abs(table[rows, columns]), kind="stable")[:pairs]
        names = self.label_names
        return [(names[rows[k]], names[columns[k]], float(table[rows[k], columns[k]])) for k in top]

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

    def __str__(self) -> str:
        lines = [
            " ".join(f"{name}({weight:+.2f})" for name, weight in row) for row in self.strongest()
        ]
        shown = [f"measurement {i}: {line}" for i, line in enumerate(lines[:SHOWN])]
        rest = len(lines) - SHOWN
        return "\n".join([*shown, f"and {rest} more"] if rest > 0 else shown)
