"""Pictures, each as PNG and SVG."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from spen.data.synthetic import block_membership

MARKERS = "osD^vP"
"""One for each line, so that a reader without colours can tell them apart."""

SHOWN_SHARE = 0.99
"""Of the examples that a histogram shows; a few slow ones would squeeze it."""

Curve = tuple[Sequence[float], Sequence[float], Sequence[float]]
"""A line: x, the mean there, and its deviation."""


def new_figure(
    size: tuple[float, float], rows: int = 1, columns: int = 1, **options: Any
) -> tuple[Figure, np.ndarray]:
    """Return a figure and its axes, row after row."""
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options).ravel()


def describe_axis(
    axis: Axes,
    title: str = "",
    across: str = "",
    up: str = "",
    grid: Literal["both", "x", "y"] = "both",
) -> None:
    """Give an axis a title, names of what it goes over, and a faint grid."""
    axis.set_title(title, fontsize=10)
    axis.set_xlabel(across)
    axis.set_ylabel(up)
    axis.grid(alpha=0.3, axis=grid)


def save_figure(figure: Figure, path: Path) -> list[Path]:
    """Write a figure as PNG and SVG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = [path.with_suffix(".png"), path.with_suffix(".svg")]
    for one in written:
        # Without a date in it, the same picture is the same file.
        figure.savefig(one, dpi=144, metadata={"Date": None} if one.suffix == ".svg" else None)
    return written


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
    size = (4.2 * len(panels) + 0.8, 1.4 + 0.26 * max(heights))
    figure, axes = new_figure(size, columns=len(panels))
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


def draw_curves(
    panels: Sequence[tuple[str, Mapping[str, Curve]]],
    path: Path,
    xlabel: str,
    *,
    log: bool = True,
    ylabels: Sequence[str] = (),
) -> list[Path]:
    """Draw scores over something, two panels side by side, each with a line for each method.

    Args:
        panels: title and lines of each.
        path: where to write, without a suffix.
        xlabel: what the lines go over.
        log: on a logarithmic scale.
        ylabels: what the scores of each panel are; by default all are F1, on one scale.
    """
    ups = ylabels or ["test F1 × 100"] * len(panels)
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    size = (4.6 * columns, 3.6 * rows)
    figure, axes = new_figure(size, rows, columns, sharey=not ylabels, sharex=True)
    for axis, (title, lines), up in zip(axes, panels, ups, strict=False):
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
        describe_axis(axis, title, xlabel, up)
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
    size = (7.5, 0.8 + 0.3 * sum(heights))
    figure, axes = new_figure(size, len(panels), gridspec_kw={"height_ratios": heights})
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
        describe_axis(axis, title, grid="x")
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
            ``spen_paper.tables.table2.Sight``).
        search_errors: of each solver, in percent of test rows.
        path: where to write, without a suffix.
    """
    ratios = {"width_ratios": [1, 1, 0.8]}
    figure, (losses, rows, bars) = new_figure((11.5, 3.6), columns=3, gridspec_kw=ratios)
    for index, (name, figures) in enumerate(epochs.items()):
        look = {"color": f"C{index}", "marker": MARKERS[index], "markersize": 3, "linewidth": 1.2}
        x = range(1, len(figures["ratio"]) + 1)
        losses.plot(x, figures["ratio"], label=name, **look)
        rows.plot(x, figures["under"], label=f"{name}: too little", **look)
        rows.plot(x, figures["over"], label=f"{name}: too much", linestyle=":", **look)
    losses.axhline(1, color="black", linewidth=0.8)
    describe_axis(losses, "hinge loss that the solver finds / exact", "epoch")
    describe_axis(rows, "training rows with too little or too much loss, %", "epoch")
    for axis in (losses, rows):
        axis.legend(fontsize=7)
    colours = [f"C{index}" for index in range(len(search_errors))]
    drawn = bars.barh(list(search_errors), list(search_errors.values()), color=colours)
    bars.bar_label(drawn, fmt="%.2f", padding=3, fontsize=8)
    bars.margins(x=0.2)
    bars.invert_yaxis()
    describe_axis(bars, "search errors on test rows, %", grid="x")
    return save_figure(figure, path)


def draw_histograms(series: Mapping[str, Sequence[int]], path: Path) -> list[Path]:
    """Draw how many examples take how many steps, one panel a series.

    Args:
        series: the count of examples by number of steps, by title.
        path: where to write, without a suffix.
    """
    # The number of steps that all but a few examples of every series need at most.
    seen = [np.cumsum(counts) for counts in series.values()]
    last = max(int(np.argmax(each >= SHOWN_SHARE * each[-1])) for each in seen)
    rows = -(-len(series) // 2)
    figure, axes = new_figure((9.2, 2.6 * rows), rows, 2, sharex=True)
    for axis, (title, counts) in zip(axes, series.items(), strict=False):
        shown = list(counts[: last + 1])
        beyond = sum(counts) - sum(shown)
        axis.bar(range(len(shown)), shown, width=1.0, color="tab:blue")
        describe_axis(axis, title, "steps", "examples", grid="y")
        slowest = max(i for i, count in enumerate(counts) if count)
        words = f"slowest: {slowest}" + (f"\n{beyond} beyond {last}" if beyond else "")
        axis.text(0.97, 0.92, words, transform=axis.transAxes, ha="right", va="top", fontsize=8)
    return save_figure(figure, path)


def draw_tradeoffs(
    panels: Mapping[str, Mapping[str, tuple[Sequence[float], Sequence[float]]]], path: Path
) -> list[Path]:
    """Draw F1 over the steps of a batch, one panel for each thing that is varied.

    Args:
        panels: by title; steps and F1 of each line, by its name.
        path: where to write, without a suffix.
    """
    figure, axes = new_figure((4.8 * len(panels), 4.2), columns=len(panels), sharey=True)
    for axis, (title, lines) in zip(axes, panels.items(), strict=True):
        for (name, (steps, f1)), marker in zip(lines.items(), MARKERS, strict=False):
            axis.plot(steps, f1, marker=marker, markersize=4, linewidth=1.3, label=name)
        axis.set_xscale("log")
        axis.set_xticks([2, 5, 10, 20, 50, 100, 200], ["2", "5", "10", "20", "50", "100", "200"])
        axis.minorticks_off()
        describe_axis(axis, title, "steps of the batch")
    axes[0].set_ylabel("test F1 × 100")
    axes[0].legend(fontsize=7)
    return save_figure(figure, path)


def draw_search_errors(rows: Mapping[str, Sequence[float]], path: Path) -> list[Path]:
    """Draw the search errors of each way to search, in percent.

    Args:
        rows: one figure a seed, by the way's name.
        path: where to write, without a suffix.
    """
    figure, (axis,) = new_figure((7.5, 0.9 + 0.32 * len(rows)))
    means = [statistics.fmean(values) for values in rows.values()]
    axis.barh(range(len(rows)), means, color="tab:blue")
    for place, mean in enumerate(means):
        axis.text(mean, place, f" {mean:.2g}", va="center", fontsize=8)
    axis.axvline(1.0, color="black", linewidth=0.8, linestyle="--")
    axis.set_yticks(range(len(rows)), list(rows), fontsize=8)
    axis.invert_yaxis()
    words = "rows whose truth has a lower energy than what was found, %"
    describe_axis(axis, across=words, grid="x")
    return save_figure(figure, path)
