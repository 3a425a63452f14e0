"""Means with their deviations, a line each: quicker to compare than a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spen.report.drawing.charts import Scale, drawing, ticks
from spen.report.drawing.heat import shorten
from spen.report.drawing.markup import text

PLOT, LINE, TOP = 300, 18, 22
LONGEST, LETTER = 50, 7
"""Letters of a name, and how wide one is at most on average."""


def dot_chart(title: str, points: Sequence[Sequence[Any]]) -> str:
    """Draw a dot a line, with a bar of one deviation to both sides.

    Args:
        title: what is drawn, for those who hear it.
        points: (name, mean, deviation) of each line, at least one.
    """
    low = min(mean - spread for _, mean, spread in points)
    high = max(mean + spread for _, mean, spread in points)
    marks = ticks(low, high, 5)
    names = [shorten(str(name), LONGEST) for name, *_ in points]
    begin = 12 + LETTER * max(map(len, names))
    across = Scale(marks[0], marks[-1], begin, begin + PLOT - 16)
    height = TOP + LINE * len(points) + 6
    parts = []
    for mark in marks:
        x = across(mark)
        parts.append(f'<text x="{x:g}" y="12" text-anchor="middle">{mark:,g}</text>')
        parts.append(f'<line class="grid" x1="{x:g}" x2="{x:g}" y1="{TOP - 4}" y2="{height:g}"/>')
    for k, (name, mean, spread) in enumerate(points):
        y = TOP + LINE * k + LINE / 2
        left, right = across(mean - spread), across(mean + spread)
        parts.append(
            f'<text x="{begin - 12}" y="{y + 4:g}" text-anchor="end">{text(names[k])}'
            f"<title>{text(name)}</title></text>"
            f'<line class="line first" x1="{left:g}" x2="{right:g}" y1="{y:g}" y2="{y:g}"/>'
            f'<circle class="dot first" cx="{across(mean):g}" cy="{y:g}" r="3.5">'
            f"<title>{text(name)}: {mean:.2f}</title></circle>"
        )
    return drawing(title, height, parts, begin + PLOT)
