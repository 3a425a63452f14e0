"""The measurement matrix as heat maps: all of it at a glance, and its strongest part with names."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np

from spen.report.drawing.markup import text
from spen.report.drawing.png import png_address

ORANGE, BLUE = (213, 94, 0), (0, 114, 178)
"""Above and below zero: told apart by all, also by those who see no red or no green."""

CELL, LINE, NAMES = 22, 17, 170


def overview(structure: dict[str, Any]) -> str:
    """Draw the whole matrix, a pixel a weight; zero is transparent, so it suits any background."""
    rows, columns = structure["shape"]
    values = np.frombuffer(base64.b64decode(structure["values"]), np.int8).reshape(rows, columns)
    pixels = np.zeros((rows, columns, 4), np.uint8)
    pixels[values > 0, :3], pixels[values < 0, :3] = ORANGE, BLUE
    pixels[..., 3] = np.abs(values.astype(float)) / 127 * 255
    height = min(max(rows, columns / 6), columns / 2.6)
    sides = ("measurements", "labels") if structure["labels_across"] else ("labels", "measurements")
    words = f"Heat map of {rows} {sides[0]} (down) by {columns} {sides[1]} (across)"
    return (
        f'<div class="overview"><img id="matrix" src="{png_address(pixels)}" '
        f'style="aspect-ratio:{columns}/{height:g}" alt="{words}; the strongest part follows with '
        f'names.">'
        f'<p id="matrix-readout" class="readout" aria-live="polite"></p></div>'
    )


def named(part: dict[str, Any]) -> str:
    """Draw the strongest part, labels down and measurements across, each cell with its number."""
    names: Sequence[str] = part["names"]
    matrix = np.asarray(part["matrix"], dtype=float)
    limit = float(np.abs(matrix).max(initial=0.0)) or 1.0
    count = matrix.shape[0]
    cell = max(CELL, min(56, 340 // max(1, count)))
    width, height = NAMES + cell * count + 4, 24 + LINE * len(names) + 4
    parts = []
    for k, number in enumerate(part["rows"]):
        x = NAMES + cell * k + cell / 2
        parts.append(f'<text x="{x:g}" y="16" text-anchor="middle" class="small">{number}</text>')
    for i, name in enumerate(names):
        y = 24 + LINE * i
        parts.append(
            f'<text x="{NAMES - 8}" y="{y + 12.5:g}" text-anchor="end">{text(shorten(name))}'
            f"<title>{text(name)}</title></text>"
        )
        for k in range(count):
            value = matrix[k, i]
            kind = "above" if value > 0 else "below"
            parts.append(
                f'<rect class="{kind}" x="{NAMES + cell * k}" y="{y}" width="{cell - 1}" '
                f'height="{LINE - 1}" fill-opacity="{abs(value) / limit:.2f}"><title>'
                f"{text(name)}, measurement {part['rows'][k]}: {value:+.2f}</title></rect>"
            )
    title = f"{len(names)} labels (down) by {count} measurements (across)"
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{title}">'
        f'<svg class="fixed" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="{title}">{"".join(parts)}</svg></div>'
    )


def shorten(name: str, longest: int = 24) -> str:
    """Cut a long name.

    >>> shorten("a name that goes on and on and on", 12)
    'a name that…'
    """
    return name if len(name) <= longest else name[: longest - 1].rstrip() + "…"
