"""Pictures, each as PNG and SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from spen.data.synthetic import block_membership


def draw_measurements(panels: Sequence[tuple[str, np.ndarray]], path: Path) -> list[Path]:
    """Draw measurement matrices side by side, labels across and measurements down.

    Each row is scaled to its largest weight, signed so that this weight is positive, and
    the rows are put in the order of the block that they weigh most: an energy does not
    change when its measurements are permuted, or negated together with what follows.

    Args:
        panels: title and matrix (measurements, labels) of each.
        path: where to write, without a suffix.
    """
    heights = [matrix.shape[0] for _, matrix in panels]
    figure = Figure(
        figsize=(4.2 * len(panels) + 0.8, 1.4 + 0.26 * max(heights)), layout="constrained"
    )
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    image = None
    for axis, (title, matrix) in zip(axes, panels, strict=True):
        image = axis.imshow(
            tidy(matrix), cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto", interpolation="nearest"
        )
        n_labels = matrix.shape[1]
        for edge in range(1, n_labels):
            between_blocks = edge % 4 == 0
            colour, width = ("black", 1.6) if between_blocks else ("white", 0.5)
            axis.axvline(edge - 0.5, color=colour, linewidth=width)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("label (black lines between blocks)")
        axis.set_xticks(range(0, n_labels, 4))
        axis.set_yticks(range(matrix.shape[0]))
    axes[0].set_ylabel("measurement")
    if image is not None:
        figure.colorbar(image, ax=list(axes), label="weight / largest of its row", shrink=0.9)
    return save_figure(figure, path)


def save_figure(figure: Figure, path: Path) -> list[Path]:
    """Write a figure as PNG and SVG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = [path.with_suffix(".png"), path.with_suffix(".svg")]
    for one in written:
        # Without a date in it, the same picture is the same file.
        figure.savefig(one, dpi=144, metadata={"Date": None} if one.suffix == ".svg" else None)
    return written


def tidy(matrix: np.ndarray) -> np.ndarray:
    """Scale, sign and order the rows of a measurement matrix for the eye.

    >>> tidy(np.array([[0.0, 0.0, 0.0, 0.0, -2.0, -2.0, -2.0, -1.0], [1.0] * 4 + [0.0] * 4]))
    array([[1. , 1. , 1. , 1. , 0. , 0. , 0. , 0. ],
           [0. , 0. , 0. , 0. , 1. , 1. , 1. , 0.5]])
    """
    largest = np.take_along_axis(matrix, np.abs(matrix).argmax(1)[:, None], axis=1)
    scaled = matrix / np.where(largest == 0, 1, largest) + 0.0
    weights = scaled**2 @ block_membership(matrix.shape[1] // 4).T
    return scaled[np.argsort(weights.argmax(1), kind="stable")]
