"""Scales, ticks, circles and pixels of the charts that the templates write."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spen.report.subject import isolated

ORANGE, BLUE = (213, 94, 0), (0, 114, 178)
"""Above and below zero: told apart by all, also by those who see no red or no green."""


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
    """Cut a long name.

    >>> shorten("a name that goes on and on and on", 12)
    'a name that…'
    """
    return name if len(name) <= longest else isolated(name[: longest - 1].rstrip() + "…")


def circle(
    names: Sequence[str], alike: Sequence[str], centre: float, radius: float
) -> dict[int, tuple[float, float, float]]:
    """Return where the labels stand on a circle, in order: x, y and the angle in degrees.

    Args:
        names: of the labels, which are numbered by their places here.
        alike: names in an order in which alike labels stand together, as they then do here.
        centre: of the circle, across and down.
        radius: of the circle.

    >>> circle(["a", "b"], ["b", "a"], 10, 5)
    {1: (10.0, 5.0, -90.0), 0: (10.0, 15.0, 90.0)}
    """
    rank = {name: k for k, name in enumerate(alike)}
    order = sorted(range(len(names)), key=lambda node: rank.get(names[node], len(rank)))
    places = {}
    for k, node in enumerate(order):
        angle = 2 * math.pi * (k / len(names)) - math.pi / 2
        x, y = centre + radius * math.cos(angle), centre + radius * math.sin(angle)
        places[node] = (x, y, math.degrees(angle))
    return places


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
    parts = {b"IHDR": header, b"IDAT": zlib.compress(lines.tobytes(), 9), b"IEND": b""}
    for kind, data in parts.items():
        content += struct.pack(">I", len(data)) + kind + data
        content += struct.pack(">I", zlib.crc32(kind + data))
    return f"data:image/png;base64,{base64.b64encode(content).decode('ascii')}"
