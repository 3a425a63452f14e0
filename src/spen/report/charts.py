"""Scales, ticks and circles of the charts that the templates write."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from spen.report.subject import isolated


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


def ticks(low: float, high: float, count: int = 4, least: float = 0.0) -> list[float]:
    """Return round numbers that span a range, about so many, at least a power of ten apart.

    >>> ticks(0, 97), ticks(0.1, 0.34)
    ([0.0, 50.0, 100.0], [0.1, 0.2, 0.3, 0.4])
    """
    span = (high - low) or abs(high) or 1.0
    power = max(10.0 ** math.floor(math.log10(span / count)), least)
    step = next(m * power for m in (1, 2, 5, 10) if span / (m * power) <= count)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(k * step, 12) for k in range(first, max(last, first + 1) + 1)]


def shorten(name: str, longest: int = 24) -> str:
    """Cut a long name in its middle: many differ at their ends alone.

    >>> shorten("works-with-format::html", 12)
    'work…t::html'
    """
    if len(name) <= longest:
        return name
    begin = (longest - 1) // 3 + 1
    return isolated(name[:begin].rstrip() + "…" + name[begin + 1 - longest :].lstrip())


def circle(
    groups: Sequence[Sequence[int]], centre: float, radius: float
) -> dict[int, tuple[float, float, float]]:
    """Return where nodes stand on a circle, in turn: x, y and the angle in degrees.

    Args:
        groups: of nodes, with a gap between one group and the next.
        centre: of the circle, across and down.
        radius: of the circle.

    >>> circle([[1, 0]], 10, 5)
    {1: (10.0, 5.0, -90.0), 0: (10.0, 15.0, 90.0)}
    """
    gap = len(groups) > 1
    slots = [node for group in groups for node in [*group, *[None] * gap]]
    places = {}
    for k, node in enumerate(slots):
        if node is not None:
            angle = 2 * math.pi * (k / len(slots)) - math.pi / 2
            x, y = centre + radius * math.cos(angle), centre + radius * math.sin(angle)
            places[node] = (x, y, math.degrees(angle))
    return places


def in_brief(count: int) -> str:
    """Return a count in four signs at most, for where there is no room.

    >>> in_brief(999), in_brief(8210), in_brief(82_100), in_brief(12_345_678)
    ('999', '8.2k', '82k', '12M')
    """
    if count < 1000:
        return str(count)
    if count < 9950:
        return f"{count / 1000:.1f}k"
    return f"{count / 1000:.0f}k" if count < 999_500 else f"{count / 1e6:.0f}M"
