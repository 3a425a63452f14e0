"""Figures of several runs: in words, and drawn."""

from __future__ import annotations

import importlib.util
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from spen.cli.show import say
from spen_paper.records import Records


def deviation(values: Sequence[float]) -> float:
    """Return the standard deviation; a single value has none, which counts 0."""
    return statistics.stdev(values) if len(values) > 1 else 0.0


def mean_and_deviation(values: Sequence[float]) -> str:
    """Write "mean ± standard deviation"; a single value stands alone.

    >>> mean_and_deviation([80.0, 82.0])
    '81.0 ± 1.4'
    """
    mean = f"{statistics.fmean(values):.1f}"
    return mean if len(values) < 2 else f"{mean} ± {deviation(values):.1f}"


def paired(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """Return the mean of first − second, and its standard error (0 for a single pair).

    >>> paired([2.0, 4.0], [1.0, 1.0])
    (2.0, 1.0)
    """
    gaps = [a - b for a, b in zip(first, second, strict=True)]
    return statistics.fmean(gaps), deviation(gaps) / math.sqrt(len(gaps))


def difference(first: Sequence[float], second: Sequence[float]) -> str:
    """Write the mean of first − second, paired, and its standard error.

    >>> difference([2.0, 3.0, 4.0], [1.0, 2.5, 2.5])
    '+1.00 ± 0.29'
    """
    mean, error = paired(first, second)
    return f"{mean:+.2f}" if len(first) < 2 else f"{mean:+.2f} ± {error:.2f}"


def say_table(table: str, remarks: Iterable[str], records: Records) -> None:
    """Print a table, what a reader of it must know, and where its records are."""
    for line in (table, "", *remarks, f"Records: {records.folder}"):
        say(line)


def draw(picture: Callable[[Any], Sequence[Path]]) -> None:
    """Draw a figure, given the module ``spen_paper.plots``, where matplotlib is installed.

    Measuring takes long and drawing does not, so a machine without matplotlib measures all
    the same.
    """
    if importlib.util.find_spec("matplotlib") is None:
        say("Picture: not drawn. Install matplotlib (pip install 'spen[report]') and run again.")
        return
    from spen_paper import plots

    for path in picture(plots):
        say(f"Picture: {path}")
