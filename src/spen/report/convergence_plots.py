"""Pictures of how inference converges, each as PNG and SVG."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from spen.report.plots import MARKERS, save_figure

SHOWN_SHARE = 0.99
"""Of the examples that a histogram shows; a few slow ones would squeeze it."""


def draw_histograms(series: Mapping[str, Sequence[int]], path: Path) -> list[Path]:
    """Draw how many examples take how many steps, one panel a series.

    Args:
        series: the count of examples by number of steps, by title.
        path: where to write, without a suffix.
    """
    last = max(_last_shown(counts) for counts in series.values())
    rows = -(-len(series) // 2)
    figure = Figure(figsize=(9.2, 2.6 * rows), layout="constrained")
    axes = figure.subplots(rows, 2, squeeze=False, sharex=True).ravel()
    for axis, (title, counts) in zip(axes, series.items(), strict=False):
        shown = list(counts[: last + 1])
        beyond = sum(counts) - sum(shown)
        axis.bar(range(len(shown)), shown, width=1.0, color="tab:blue")
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("steps")
        axis.set_ylabel("examples")
        slowest = max(i for i, count in enumerate(counts) if count)
        words = f"slowest: {slowest}" + (f"\n{beyond} beyond {last}" if beyond else "")
        axis.text(0.97, 0.92, words, transform=axis.transAxes, ha="right", va="top", fontsize=8)
        axis.grid(alpha=0.3, axis="y")
    return save_figure(figure, path)


def _last_shown(counts: Sequence[int]) -> int:
    total, seen = sum(counts), 0
    for steps, count in enumerate(counts):
        seen += count
        if seen >= SHOWN_SHARE * total:
            return steps
    return len(counts) - 1


def draw_tradeoffs(
    panels: Mapping[str, Mapping[str, tuple[Sequence[float], Sequence[float]]]], path: Path
) -> list[Path]:
    """Draw F1 over the steps of a batch, one panel for each thing that is varied.

    Args:
        panels: by title; steps and F1 of each line, by its name.
        path: where to write, without a suffix.
    """
    figure = Figure(figsize=(4.8 * len(panels), 4.2), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for axis, (title, lines) in zip(axes, panels.items(), strict=True):
        for (name, (steps, f1)), marker in zip(lines.items(), MARKERS, strict=False):
            axis.plot(steps, f1, marker=marker, markersize=4, linewidth=1.3, label=name)
        axis.set_xscale("log")
        axis.set_xticks([2, 5, 10, 20, 50, 100, 200], ["2", "5", "10", "20", "50", "100", "200"])
        axis.minorticks_off()
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("steps of the batch")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("test F1 × 100")
    axes[0].legend(fontsize=7)
    return save_figure(figure, path)


def draw_search_errors(rows: Mapping[str, Sequence[float]], path: Path) -> list[Path]:
    """Draw the search errors of each way to search, in percent.

    Args:
        rows: one figure a seed, by the way's name.
        path: where to write, without a suffix.
    """
    figure = Figure(figsize=(7.5, 0.9 + 0.32 * len(rows)), layout="constrained")
    axis = figure.subplots()
    means = [statistics.fmean(values) for values in rows.values()]
    axis.barh(range(len(rows)), means, color="tab:blue")
    for place, mean in enumerate(means):
        axis.text(mean, place, f" {mean:.2g}", va="center", fontsize=8)
    axis.axvline(1.0, color="black", linewidth=0.8, linestyle="--")
    axis.set_yticks(range(len(rows)), list(rows), fontsize=8)
    axis.invert_yaxis()
    axis.set_xlabel("rows whose truth has a lower energy than what was found, %")
    axis.grid(alpha=0.3, axis="x")
    return save_figure(figure, path)
