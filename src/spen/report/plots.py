"""Pictures, each as PNG and SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from spen.data.synthetic import block_membership
from spen.estimators.structure import LabelStructure

SHOWN_MEASUREMENTS = 24
"""Rows of a picture that an eye can take in."""

MARKERS = "osD^vP"
"""One for each line, so that a reader without colours can tell them apart."""

Curve = tuple[Sequence[float], Sequence[float], Sequence[float]]
"""A line: x, the mean there, and its deviation."""


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


def draw_curves(
    panels: Sequence[tuple[str, Mapping[str, Curve]]], path: Path, xlabel: str, *, log: bool = True
) -> list[Path]:
    """Draw F1 over something, two panels side by side, each with a line for each method.

    Args:
        panels: title and lines of each.
        path: where to write, without a suffix.
        xlabel: what the lines go over.
        log: on a logarithmic scale.
    """
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(4.6 * columns, 3.6 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharey=True, sharex=True).ravel()
    for axis, (title, lines) in zip(axes, panels, strict=False):
        for (name, (x, mean, deviation)), marker in zip(lines.items(), MARKERS, strict=False):
            axis.errorbar(
                x, mean, deviation, label=name, marker=marker, markersize=4, linewidth=1.3,
                capsize=2,
            )  # fmt: skip
        if log:
            axis.set_xscale("log")
        ticks = sorted({value for x, _, _ in lines.values() for value in x})
        axis.set_xticks(ticks, [f"{value:,.0f}" for value in ticks])
        axis.minorticks_off()
        axis.set_title(title, fontsize=10)
        axis.grid(alpha=0.3)
        axis.set_xlabel(xlabel)
        axis.set_ylabel("test F1 × 100")
    axes[0].legend(fontsize=8)
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    return save_figure(figure, path)


def draw_differences(
    panels: Sequence[tuple[str, Mapping[str, Mapping[str, tuple[float, float]]]]],
    path: Path,
    xlabel: str,
) -> list[Path]:
    """Draw differences to a common model, one panel below the other.

    Args:
        panels: title, and for each variant the difference and its standard error by decoding.
        path: where to write, without a suffix.
        xlabel: what the differences are.
    """
    heights = [len(rows) + 1.5 for _, rows in panels]
    figure = Figure(figsize=(7.5, 0.8 + 0.3 * sum(heights)), layout="constrained")
    axes = figure.subplots(len(panels), 1, squeeze=False, gridspec_kw={"height_ratios": heights})[
        :, 0
    ]
    for axis, (title, rows) in zip(axes, panels, strict=True):
        names = list(next(iter(rows.values()), {}))
        for index, (name, marker) in enumerate(zip(names, MARKERS, strict=False)):
            # Side by side, so that equal differences do not hide each other.
            places = [row + 0.24 * (index - (len(names) - 1) / 2) for row in range(len(rows))]
            means, errors = zip(*(row[name] for row in rows.values()), strict=True)
            axis.errorbar(
                means, places, xerr=errors, label=name, marker=marker, markersize=4,
                linestyle="none", capsize=2,
            )  # fmt: skip
        axis.axvline(0, color="black", linewidth=0.8)
        axis.set_yticks(range(len(rows)), list(rows), fontsize=8)
        axis.invert_yaxis()
        axis.set_title(title, fontsize=10)
        axis.grid(alpha=0.3, axis="x")
    axes[0].legend(fontsize=8)
    axes[-1].set_xlabel(xlabel)
    return save_figure(figure, path)


def draw_violations(
    epochs: Mapping[str, Mapping[str, Sequence[float]]],
    search_errors: Mapping[str, float],
    path: Path,
) -> list[Path]:
    """Draw what solvers see of violated margins in training, and miss in prediction.

    Args:
        epochs: for each solver, "ratio", "under" and "over" after each epoch (see
            ``spen.reproduce.search.Sight``).
        search_errors: of each solver, in percent of test rows.
        path: where to write, without a suffix.
    """
    figure = Figure(figsize=(11.5, 3.6), layout="constrained")
    losses, rows, bars = figure.subplots(1, 3, gridspec_kw={"width_ratios": [1, 1, 0.8]})
    for index, (name, figures) in enumerate(epochs.items()):
        look = {"color": f"C{index}", "marker": MARKERS[index], "markersize": 3, "linewidth": 1.2}
        x = range(1, len(figures["ratio"]) + 1)
        losses.plot(x, figures["ratio"], label=name, **look)
        rows.plot(x, figures["under"], label=f"{name}: too little", **look)
        rows.plot(x, figures["over"], label=f"{name}: too much", linestyle=":", **look)
    losses.axhline(1, color="black", linewidth=0.8)
    losses.set_title("hinge loss that the solver finds / exact", fontsize=10)
    rows.set_title("training rows with too little or too much loss, %", fontsize=10)
    for axis in (losses, rows):
        axis.set_xlabel("epoch")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7)
    colours = [f"C{index}" for index in range(len(search_errors))]
    drawn = bars.barh(list(search_errors), list(search_errors.values()), color=colours)
    bars.bar_label(drawn, fmt="%.2f", padding=3, fontsize=8)
    bars.margins(x=0.2)
    bars.invert_yaxis()
    bars.set_title("search errors on test rows, %", fontsize=10)
    bars.grid(alpha=0.3, axis="x")
    return save_figure(figure, path)


def save_figure(figure: Figure, path: Path) -> list[Path]:
    """Write a figure as PNG and SVG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = [path.with_suffix(".png"), path.with_suffix(".svg")]
    for one in written:
        # Without a date in it, the same picture is the same file.
        figure.savefig(one, dpi=144, metadata={"Date": None} if one.suffix == ".svg" else None)
    return written


def draw_structure(structure: LabelStructure) -> Figure:
    """Draw a measurement matrix with label names; alike labels and measurements are neighbours."""
    order, chosen = structure.order(), structure.by_say()[:SHOWN_MEASUREMENTS]
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
        names = [_short(structure.label_names[i]) for i in order]
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


def _short(name: object, longest: int = 22) -> str:
    text = str(name)
    return text if len(text) <= longest else text[: longest - 1] + "…"


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
