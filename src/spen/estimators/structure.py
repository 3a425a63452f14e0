"""The structure that an energy has learned about labels: its measurements, with names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from spen.batch.context import Context
from spen.domains import DUAL_LIMIT
from spen.energies.base import Energy, energy_terms
from spen.energies.scores import SurpriseEnergy
from spen.errors import InputError, check_whole, require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from spen.model import SPEN


SHOWN = 10
"""Measurements that a printed structure lists."""

SHOWN_MEASUREMENTS = 24
"""Rows of a picture that an eye can take in."""

LONGEST_NAME = 22
"""Letters of a label's name in a picture."""


@dataclass(frozen=True)
class LabelStructure:
    """The measurement matrix C of a model, in E(y) = c·g(C y + b).

    Attributes:
        measurements: (m, L) how much each measurement weighs each label.
        readout: (m,) how much the energy weighs each measurement.
        label_names: the L labels.
        energy: what holds the matrix.

    >>> import spen
    >>> data = spen.exclusive_blocks(n_train=60, n_test=20)
    >>> clf = spen.SPENClassifier(hidden=(), epochs=2, random_state=0)
    >>> structure = clf.fit(data.train.X, data.train.Y).structure()
    >>> structure.measurements.shape[1], len(structure.label_names)
    (16, 16)
    >>> one, other, value = structure.pairs(1)[0]       # the strongest; below zero: together
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
        for weights in self.measurements[self.by_strength()]:
            top = np.argsort(-np.abs(weights), kind="stable")[:labels]
            result.append([(self.label_names[i], float(weights[i])) for i in top])
        return result

    def by_strength(self) -> np.ndarray:
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
        the energy pulls the two together, above zero it pushes them apart. An energy that looks
        at surprises is asked as if no label were expected.
        """
        expects = isinstance(self.energy, SurpriseEnergy)
        if self.energy.n_features is not None and not expects:
            raise InputError(
                "This energy looks at the features too, so that its interactions differ from row "
                "to row. Fit with energy='label' to see those of labels alone."
            )
        size = len(self.label_names)
        one = torch.eye(size).to(next(self.energy.parameters()))

        def value(y: torch.Tensor) -> torch.Tensor:
            features = y.new_full((len(y), size if expects else 0), -DUAL_LIMIT)
            return self.energy.bind(Context(features)).value(y)

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
        figure = _draw(self)
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


def _draw(structure: LabelStructure) -> Figure:
    """Draw a measurement matrix with label names; alike labels and measurements are neighbours."""
    from matplotlib.figure import Figure

    order, chosen = structure.order(), structure.by_strength()[:SHOWN_MEASUREMENTS]
    matrix = structure.measurements[chosen][:, order]
    # Rows are ordered by where their weight lies, and signed so that it is positive there.
    peaks = np.abs(matrix).argmax(1)
    signs = np.sign(matrix[np.arange(len(matrix)), peaks])
    rows = np.argsort(peaks, kind="stable")
    shown = (matrix * np.where(signs == 0, 1, signs)[:, None])[rows]
    n_measurements, n_labels = shown.shape
    # Names are legible up to this many labels; beyond, a picture shows the blocks alone.
    named = n_labels <= 120
    width = min(max(5.0, 1.6 + 0.17 * n_labels), 24.0)
    height = 1.6 + min(max(1.6, 0.17 * n_measurements), 12.0) + (1.2 if named else 0.0)
    figure = Figure(figsize=(width, height), layout="constrained")
    axis = figure.subplots()
    limit = float(np.abs(shown).max()) or 1.0
    image = axis.imshow(
        shown, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest"
    )
    if named:
        names = [_shorten(str(structure.label_names[i])) for i in order]
        axis.set_xticks(range(n_labels), names, rotation=90, fontsize=7)
    else:
        axis.set_xlabel(f"{n_labels} labels, alike ones side by side")
    axis.set_ylabel("measurement")
    axis.set_yticks([])
    total = len(structure.measurements)
    which = f"{n_measurements} strongest of {total}" if n_measurements < total else f"{total}"
    axis.set_title(f"What the {which} measurements look at", fontsize=10)
    figure.colorbar(image, ax=axis, label="weight", shrink=0.9)
    return figure


def _shorten(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1].rstrip()}…"
