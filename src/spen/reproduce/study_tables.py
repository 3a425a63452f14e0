"""The tables of the studies, and what their figures draw."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from spen.cli.show import text_table
from spen.reproduce.study import DECODING_TITLES, Scores, difference
from spen.reproduce.table3 import mean_and_deviation

Cells = Mapping[str, Mapping[str, Scores]]
"""Scores by the title of a cell and the name of a method."""

Panel = tuple[str, dict[str, tuple[list[float], list[float], list[float]]]]
"""A title, and the lines of a plot: x, mean and deviation of each, by name."""


def compare(corner: str, cells: Cells, pairs: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield a table for each decoding: cells down, methods and their differences across.

    Args:
        corner: what the cells are.
        cells: the scores.
        pairs: the methods whose difference is the point.

    >>> scores = {"threshold": [40.0, 42.0], "expected_f1": [43.0, 44.0]}
    >>> more = {"threshold": [41.0, 42.0], "expected_f1": [43.5, 44.5]}
    >>> cells = {"10": {"MLP": scores, "SPEN": more}}
    >>> print("\\n".join(compare("rows", cells, [("SPEN", "MLP")])))
    Decoding by one threshold
    <BLANKLINE>
    | rows | MLP        | SPEN       | SPEN − MLP   |
    | ---- | ---------- | ---------- | ------------ |
    | 10   | 41.0 ± 1.4 | 41.5 ± 0.7 | +0.50 ± 0.50 |
    <BLANKLINE>
    Decoding by expected F1
    ...
    """
    names = list(next(iter(cells.values())))
    header = [corner, *names, *(f"{one} − {other}" for one, other in pairs)]
    for count, (decoding, words) in enumerate(DECODING_TITLES.items()):
        rows = [
            [
                title,
                *(mean_and_deviation(scores[name][decoding]) for name in names),
                *(difference(scores[a][decoding], scores[b][decoding]) for a, b in pairs),
            ]
            for title, scores in cells.items()
        ]
        if count:
            yield ""
        yield f"Decoding by {words}\n"
        yield text_table(header, rows)


def curves(x: Sequence[float], cells: Cells) -> list[Panel]:
    """Return a panel for each decoding: a line for each method, over the cells."""
    names = list(next(iter(cells.values())))
    panels: list[Panel] = []
    for decoding, words in DECODING_TITLES.items():
        lines = {}
        for name in names:
            values = [scores[name][decoding] for scores in cells.values()]
            means = [statistics.fmean(each) for each in values]
            lines[name] = (list(x), means, [_deviation(each) for each in values])
        panels.append((f"decoding by {words}", lines))
    return panels


def _deviation(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0
