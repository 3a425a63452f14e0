"""Charts as marks of SVG, which the page's template writes: one way for all of them."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

WIDTH, HEIGHT = 360, 210
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 26, 40
"""The margins of a chart with axes."""

GRAPH = 440
"""The side of a graph."""

ORANGE, BLUE = (213, 94, 0), (0, 114, 178)
"""Above and below zero: told apart by all, also by those who see no red or no green."""


@dataclass
class Drawing:
    """A picture that the template writes as one SVG element.

    Attributes:
        title: what is drawn, for those who hear it.
        width: of the coordinates.
        height: of the coordinates.
        style: how large it is on the page.
        kind: its class in the style sheet.
        marks: the elements, each with its attributes, its words, and a hint for the pointer.
    """

    title: str
    width: float
    height: float
    style: str
    kind: str = "chart"
    marks: list[tuple[str, dict[str, str], str, str]] = field(default_factory=list)

    def add(
        self, tag: str, kind: str = "", words: str = "", hint: str = "", **attributes: Any
    ) -> None:
        """Draw an element of this class; numbers are rounded, _ in names of attributes is -."""
        own = {"class": kind} if kind else {}
        for name, value in attributes.items():
            number = isinstance(value, int | float)
            own[name.replace("_", "-")] = f"{round(value, 2):g}" if number else value
        self.marks.append((tag, own, words, hint))

    def box(self, kind: str, x: float, y: float, width: float, height: float, **more: Any) -> None:
        """Draw a rectangle."""
        self.add("rect", kind, x=x, y=y, width=width, height=height, **more)

    def write(self, words: str, x: float, y: float, anchor: str = "middle", **more: str) -> None:
        """Draw words that begin, end or have their middle at a place."""
        self.add("text", words=words, x=x, y=y, text_anchor=anchor, **more)

    def name(self, name: str, x: float, y: float, longest: int, hint: str = "") -> None:
        """Draw the name of a line, which ends at a place; a long one is cut and is its own hint."""
        self.write(shorten(name, longest), x, y, "end", hint=hint or name)


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


def shorten(name: str, longest: int = 24) -> str:
    """Cut a long name.

    >>> shorten("a name that goes on and on and on", 12)
    'a name that…'
    """
    return name if len(name) <= longest else name[: longest - 1].rstrip() + "…"


def line_chart(
    title: str,
    x: Sequence[float],
    y: Sequence[float | None],
    x_name: str,
    y_name: str,
    *,
    kind: str = "first",
    dots: bool = False,
    square: bool = False,
) -> Drawing | None:
    """Draw a line; None where it has no point.

    Args:
        title: what is drawn, for those who hear it.
        x: where its points are.
        y: their heights; None leaves a point out.
        x_name: what lies along the bottom.
        y_name: what the height is; written above the axis.
        kind: its class in the style sheet, "first" or "second".
        dots: mark each point.
        square: both axes from 0 to 1, as for probabilities, with the diagonal as a guide.
    """
    points = [(a, b) for a, b in zip(x, y, strict=True) if b is not None]
    if not points:
        return None
    heights = [b for _, b in points]
    x_span = (0.0, 1.0) if square else (min(x), max(x))
    y_ticks = [0.0, 0.25, 0.5, 0.75, 1.0] if square else ticks(min(heights), max(heights))
    x_ticks = y_ticks if square else ticks(*x_span)
    shown = {tick: tick for tick in x_ticks if x_span[0] <= tick <= x_span[1]}
    chart = _chart(title, 330 if square else HEIGHT)
    across = Scale(*x_span, LEFT, WIDTH - RIGHT)
    up = Scale(y_ticks[0], y_ticks[-1], chart.height - BOTTOM, TOP)
    _draw_axes(chart, across, up, shown, y_ticks, x_name, y_name)
    if square:
        chart.add("polyline", "line guide", points=_path([(0.0, 0.0), (1.0, 1.0)], across, up))
    chart.add("polyline", f"line {kind}", points=_path(points, across, up))
    if dots or len(points) == 1:
        for a, b in points:
            chart.add("circle", f"dot {kind}", hint=f"{a:g}: {b:g}", cx=across(a), cy=up(b), r=3)
    return chart


def bar_chart(
    title: str, edges: Sequence[float], counts: Sequence[float], x_name: str, y_name: str
) -> Drawing:
    """Draw a histogram; a bar's hint has its numbers."""
    chart, y_ticks = _chart(title, HEIGHT), ticks(0, max(counts) or 1)
    across = Scale(edges[0], edges[-1], LEFT, WIDTH - RIGHT)
    up = Scale(y_ticks[0], y_ticks[-1], HEIGHT - BOTTOM, TOP)
    # A bar of one whole number has that number below its middle.
    middle = 0.5 if edges[1] - edges[0] == 1 else 0.0
    every = max(1, -(-len(counts) // 6))
    x_ticks = {edge + middle: edge for edge in edges[:-1:every]}
    _draw_axes(chart, across, up, x_ticks, y_ticks, x_name, y_name)
    for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True):
        left, wide = across(low), max(across(high) - across(low) - 1, 0.5)
        span = f"{low:g}" if high - low == 1 else f"{low:g} to {high - 1:g}"
        high = up(0) - up(count)
        chart.box("bar", left + 0.5, up(count), wide, high, hint=f"{span}: {count:,}")
    return chart


def dot_chart(title: str, points: Sequence[Sequence[Any]]) -> Drawing:
    """Draw means, a line each, with a bar of one deviation to both sides: quick to compare.

    Args:
        title: what is drawn, for those who hear it.
        points: (name, mean, deviation) of each line, at least one.
    """
    plot, line, top, longest, letter = 300, 18, 22, 50, 7
    low = min(mean - spread for _, mean, spread in points)
    high = max(mean + spread for _, mean, spread in points)
    marks = ticks(low, high, 5)
    begin = 12 + letter * max(len(shorten(name, longest)) for name, *_ in points)
    across = Scale(marks[0], marks[-1], begin, begin + plot - 16)
    chart = _chart(title, top + line * len(points) + 6, begin + plot)
    for mark in marks:
        x = across(mark)
        chart.write(f"{mark:,g}", x, 12)
        chart.add("line", "grid", x1=x, x2=x, y1=top - 4, y2=chart.height)
    for k, (name, mean, spread) in enumerate(points):
        y = top + line * k + line / 2
        chart.name(name, begin - 12, y + 4, longest)
        left, right = across(mean - spread), across(mean + spread)
        chart.add("line", "line first", x1=left, x2=right, y1=y, y2=y)
        hint = f"{name}: {mean:.2f}"
        chart.add("circle", "dot first", hint=hint, cx=across(mean), cy=y, r=3.5)
    return chart


def label_bars(title: str, example: dict[str, Any], names: list[str]) -> Drawing:
    """Draw the soft labels of an example: bars for the end of inference, marks for its start."""
    begin, line, bar = 150, 19, 190
    width, height = begin + bar + 50, line * len(example["shown"]) + 6
    chart = Drawing(title, width, height, f"max-width:{width}px")
    lines = zip(example["shown"], example["end"], example["start"], strict=True)
    for k, (label, end, start) in enumerate(lines):
        y, x, true = line * k + 2, begin + 6, label in example["truth"]
        chart.name(names[label], begin - 12, y + 12, 20, names[label] + ", true" * true)
        if true:
            chart.add("circle", "true", cx=begin - 2, cy=y + 8, r=3.5)
        chart.box("track", x, y + 2, bar, 12)
        chart.box("bar", x, y + 2, bar * end, 12)
        chart.add("line", "began", x1=x + bar * start, x2=x + bar * start, y1=y, y2=y + 16)
        chart.write(f"{end:.2f}", width - 2, y + 12, "end")
    return chart


def heat_map(title: str, part: dict[str, Any]) -> Drawing:
    """Draw named weights, labels down and measurements across; a cell's hint has its number."""
    begin, top, line = 170, 24, 17
    names, numbers, matrix = part["names"], part["rows"], part["matrix"]
    limit = max((abs(value) for row in matrix for value in row), default=0.0) or 1.0
    cell = max(22, min(56, 340 // max(1, len(numbers))))
    width, height = begin + cell * len(numbers) + 4, top + line * len(names) + 4
    chart = Drawing(title, width, height, f"width:{width}px;height:{height}px", "fixed")
    for k, number in enumerate(numbers):
        chart.write(f"{number}", begin + cell * (k + 0.5), 16, kind="small")
    for i, name in enumerate(names):
        y = top + line * i
        chart.name(name, begin - 8, y + 12.5, 24)
        for k, number in enumerate(numbers):
            value = matrix[k][i]
            kind, x = "above" if value > 0 else "below", begin + cell * k
            hint = f"{name}, measurement {number}: {value:+.2f}"
            share = abs(value) / limit
            chart.box(kind, x, y, cell - 1, line - 1, hint=hint, fill_opacity=share)
    return chart


def label_graph(
    title: str,
    names: Sequence[str],
    pairs: Sequence[Sequence[Any]],
    alike: Sequence[str],
    sign: int,
) -> Drawing:
    """Draw pairs of labels as curves inside a circle.

    Args:
        title: what is drawn, for those who hear it.
        names: of the labels.
        pairs: (first, second, strength), the labels by their places in ``names``.
        alike: names in an order in which alike labels stand together, as they then do here.
        sign: 1 where a strength above zero is of labels that belong together, −1 where below.
    """
    longest = min(15, max((len(name) for name in names), default=0))
    count, centre, radius = len(names), GRAPH / 2, GRAPH / 2 - 22 - 6.4 * longest
    rank = {name: k for k, name in enumerate(alike)}
    order = sorted(range(count), key=lambda node: rank.get(names[node], len(rank)))
    angles = {node: 2 * math.pi * (k / count) - math.pi / 2 for k, node in enumerate(order)}
    at = {
        node: (centre + radius * math.cos(angle), centre + radius * math.sin(angle))
        for node, angle in angles.items()
    }
    strongest = max((abs(pair[2]) for pair in pairs), default=1.0) or 1.0
    chart = Drawing(title, GRAPH, GRAPH, "max-width:560px", "graph")
    for first, second, strength in pairs:
        (x1, y1), (x2, y2) = at[first], at[second]
        # Bent towards the centre, so that neighbours are linked beside the circle, not along it.
        bend_x, bend_y = (x1 + x2) / 2 * 0.35 + centre * 0.65, (y1 + y2) / 2 * 0.35 + centre * 0.65
        kind = "together" if sign * strength > 0 else "apart"
        curve = f"M{x1:.1f} {y1:.1f}Q{bend_x:.1f} {bend_y:.1f} {x2:.1f} {y2:.1f}"
        hint = f"{names[first]} and {names[second]}: {kind}, {abs(strength):g}"
        thick = 0.8 + 4 * abs(strength) / strongest
        chart.add("path", f"link {kind}", hint=hint, d=curve, stroke_width=thick)
    for node, angle in angles.items():
        x, y = at[node]
        flipped = math.cos(angle) < -1e-9
        turn = math.degrees(angle) + 180 * flipped
        offset, anchor = (-9, "end") if flipped else (9, "start")
        chart.add("circle", "node", cx=x, cy=y, r=3.2)
        place = f"translate({x:.1f} {y:.1f}) rotate({turn:.1f})"
        words = shorten(names[node], 15)
        chart.write(words, offset, 4, anchor, hint=names[node], transform=place)
    return chart


def matrix_address(matrix: dict[str, Any]) -> str:
    """Return packed weights as the address of a PNG, a pixel a weight.

    Zero is transparent, so it suits any background.

    >>> matrix_address({"shape": [1, 2], "values": base64.b64encode(b"\\x7f\\x81")})[:30]
    'data:image/png;base64,iVBORw0K'
    """
    rows, columns = matrix["shape"]
    values = np.frombuffer(base64.b64decode(matrix["values"]), np.int8).reshape(rows, columns)
    pixels = np.zeros((rows, columns, 4), np.uint8)
    pixels[values > 0, :3], pixels[values < 0, :3] = ORANGE, BLUE
    pixels[..., 3] = np.abs(values.astype(float)) / 127 * 255
    # Each line begins with the number of its filter; 0 is none.
    lines = np.pad(pixels.reshape(rows, -1), ((0, 0), (1, 0)))
    content = b"\x89PNG\r\n\x1a\n"
    header = struct.pack(">IIBBBBB", columns, rows, 8, 6, 0, 0, 0)
    for kind, data in (
        (b"IHDR", header),
        (b"IDAT", zlib.compress(lines.tobytes(), 9)),
        (b"IEND", b""),
    ):
        content += struct.pack(">I", len(data)) + kind + data
        content += struct.pack(">I", zlib.crc32(kind + data))
    return f"data:image/png;base64,{base64.b64encode(content).decode('ascii')}"


def _chart(title: str, height: float, width: float = WIDTH) -> Drawing:
    """Return a drawing to fill, which shrinks with the window."""
    return Drawing(title, width, height, f"max-width:{width * 1.25:g}px")


def _path(points: Sequence[tuple[float, float]], across: Scale, up: Scale) -> str:
    return " ".join(f"{across(x):g},{up(y):g}" for x, y in points)


def _draw_axes(
    chart: Drawing,
    across: Scale,
    up: Scale,
    x_ticks: dict[float, float],
    y_ticks: Sequence[float],
    x_name: str,
    y_name: str,
) -> None:
    """Draw what is behind a chart; ``x_ticks`` has the number of each place."""
    left, right, bottom = across.begin, across.end, up.begin
    for tick in y_ticks:
        y = up(tick)
        chart.add("line", "grid", x1=left, x2=right, y1=y, y2=y)
        chart.write(f"{tick:,g}", left - 6, y + 4, "end")
    for place, number in x_ticks.items():
        chart.write(f"{number:,g}", across(place), bottom + 16)
    chart.add("line", "axis", x1=left, x2=right, y1=bottom, y2=bottom)
    chart.write(x_name, (left + right) / 2, chart.height - 6)
    chart.write(y_name, 4, 13, "start")
