"""Small charts as SVG: lines and bars with few ticks, coloured by the page's style sheet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from spen.report.drawing.markup import text

WIDTH, HEIGHT = 360, 210
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 26, 40


@dataclass(frozen=True)
class Curve:
    """A line of a chart.

    Attributes:
        name: written at its end.
        x: where its points are.
        y: their heights; None leaves a gap.
        kind: its class in the style sheet: "first", "second" or "guide".
        dots: mark each point.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    kind: str = "first"
    dots: bool = False


@dataclass(frozen=True)
class Scale:
    """Maps numbers to places along an axis."""

    low: float
    high: float
    begin: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / ((self.high - self.low) or 1.0)
        return round(self.begin + share * (self.end - self.begin), 1)


def ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Return round numbers that span a range, about so many.

    >>> ticks(0, 97), ticks(0.1, 0.34)
    ([0.0, 50.0, 100.0], [0.1, 0.2, 0.3, 0.4])
    """
    span = (high - low) or abs(high) or 1.0
    power = 10.0 ** math.floor(math.log10(span / count))
    step = next(m * power for m in (1, 2, 5, 10) if span / (m * power) <= count)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(k * step, 12) for k in range(first, max(last, first + 1) + 1)]


def line_chart(
    title: str,
    curves: Sequence[Curve],
    x_name: str,
    y_name: str,
    *,
    y_from: float | None = None,
    square: bool = False,
) -> str:
    """Draw lines over a common axis.

    Args:
        title: what is drawn, for those who hear it.
        curves: at least one with a point.
        x_name: what lies along the bottom.
        y_name: what the height is; written above the axis.
        y_from: where the axis begins; None begins near the lowest point.
        square: both axes from 0 to 1, as for probabilities.
    """
    xs = [x for curve in curves for x in curve.x]
    ys = [y for curve in curves for y in curve.y if y is not None]
    if not ys:
        return ""
    x_ticks = [0.0, 0.25, 0.5, 0.75, 1.0] if square else ticks(min(xs), max(xs), 4)
    low = min(ys) if y_from is None else y_from
    y_ticks = x_ticks if square else ticks(low, max(ys))
    height = 330 if square else HEIGHT
    across = Scale(
        x_ticks[0] if square else min(xs), x_ticks[-1] if square else max(xs), LEFT, WIDTH - RIGHT
    )
    up = Scale(y_ticks[0], y_ticks[-1], height - BOTTOM, TOP)
    shown = [tick for tick in x_ticks if across.low <= tick <= across.high]
    parts = [_frame(height, across, up, shown, y_ticks, x_name, y_name)]
    for curve in curves:
        parts.append(_curve(curve, across, up))
    return drawing(title, height, parts)


def bar_chart(
    title: str, edges: Sequence[float], counts: Sequence[float], x_name: str, y_name: str
) -> str:
    """Draw a histogram; a bar's title has its numbers."""
    across = Scale(edges[0], edges[-1], LEFT, WIDTH - RIGHT)
    y_ticks = ticks(0, max(counts) or 1)
    up = Scale(y_ticks[0], y_ticks[-1], HEIGHT - BOTTOM, TOP)
    width = edges[1] - edges[0]
    # A bar of one whole number has that number below its middle.
    middle = 0.5 if width == 1 else 0.0
    every = max(1, -(-len(counts) // 6))
    x_ticks = [edge + middle for edge in edges[:-1:every]]
    parts = [_frame(HEIGHT, across, up, x_ticks, y_ticks, x_name, y_name, whole=True)]
    for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True):
        left, right, top = across(low), across(high), up(count)
        span = f"{low:g}" if high - low == 1 else f"{low:g} to {high - 1:g}"
        wide = max(right - left - 1, 0.5)
        parts.append(
            f'<rect class="bar" x="{left + 0.5:g}" y="{top:g}" width="{wide:g}"'
            f' height="{up(0) - top:g}"><title>{span}: {count:,}</title></rect>'
        )
    return drawing(title, HEIGHT, parts)


def drawing(title: str, height: float, parts: Sequence[str], width: float = WIDTH) -> str:
    """Return a drawing of this height that shrinks with the window."""
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" class="chart" '
        f'style="max-width:{width * 1.25:g}px" role="img" '
        f'aria-label="{text(title)}">{"".join(parts)}</svg>'
    )


def _curve(curve: Curve, across: Scale, up: Scale) -> str:
    points = [(across(x), up(y)) for x, y in zip(curve.x, curve.y, strict=True) if y is not None]
    if not points:
        return ""
    path = " ".join(f"{x:g},{y:g}" for x, y in points)
    parts = [f'<polyline class="line {curve.kind}" points="{path}"/>']
    if curve.dots or len(points) == 1:
        parts += [
            f'<circle class="dot {curve.kind}" cx="{across(x):g}" cy="{up(y):g}" r="3">'
            f"<title>{x:g}: {y:g}</title></circle>"
            for x, y in zip(curve.x, curve.y, strict=True)
            if y is not None
        ]
    if curve.name:
        x, y = points[-1]
        parts.append(
            f'<text class="name {curve.kind}" x="{x - 4:g}" y="{y - 8:g}" text-anchor="end">'
            f"{text(curve.name)}</text>"
        )
    return "".join(parts)


def _frame(
    height: float,
    across: Scale,
    up: Scale,
    x_ticks: Sequence[float],
    y_ticks: Sequence[float],
    x_name: str,
    y_name: str,
    whole: bool = False,
) -> str:
    left, right, bottom = across.begin, across.end, up.begin
    parts = []
    for tick in y_ticks:
        y = up(tick)
        parts.append(f'<line class="grid" x1="{left:g}" x2="{right:g}" y1="{y:g}" y2="{y:g}"/>')
        parts.append(f'<text x="{left - 6:g}" y="{y + 4:g}" text-anchor="end">{tick:,g}</text>')
    for tick in x_ticks:
        said = math.floor(tick) if whole else tick
        parts.append(
            f'<text x="{across(tick):g}" y="{bottom + 16:g}" text-anchor="middle">{said:,g}</text>'
        )
    parts.append(
        f'<line class="axis" x1="{left:g}" x2="{right:g}" y1="{bottom:g}" y2="{bottom:g}"/>'
    )
    parts.append(
        f'<text x="{(left + right) / 2:g}" y="{height - 6:g}" text-anchor="middle">'
        f"{text(x_name)}</text>"
    )
    parts.append(f'<text x="4" y="13">{text(y_name)}</text>')
    return "".join(parts)
