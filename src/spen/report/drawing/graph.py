"""Labels around a circle, with lines between those that attract or repel each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from spen.report.drawing.heat import shorten
from spen.report.drawing.markup import text

SIZE = 440
LONGEST = 15
"""Letters of a name that are shown."""


def label_graph(title: str, names: Sequence[str], pairs: Sequence[Sequence[Any]]) -> str:
    """Draw pairs of labels as curves inside a circle.

    Args:
        title: what is drawn, for those who hear it.
        names: of the labels, around the circle in this order.
        pairs: (first, second, strength), above zero for labels that belong together.
    """
    longest = min(LONGEST, max((len(name) for name in names), default=0))
    count, centre, radius = len(names), SIZE / 2, SIZE / 2 - 22 - 6.4 * longest
    angles = [2 * math.pi * (k / max(count, 1)) - math.pi / 2 for k in range(count)]
    at = [(centre + radius * math.cos(a), centre + radius * math.sin(a)) for a in angles]
    strongest = max((abs(pair[2]) for pair in pairs), default=1.0) or 1.0
    parts = []
    for first, second, strength in pairs:
        (x1, y1), (x2, y2) = at[first], at[second]
        # Bent towards the centre, so that neighbours are linked beside the circle, not along it.
        bend_x, bend_y = (x1 + x2) / 2 * 0.35 + centre * 0.65, (y1 + y2) / 2 * 0.35 + centre * 0.65
        kind = "together" if strength > 0 else "apart"
        parts.append(
            f'<path class="link {kind}" d="M{x1:.1f} {y1:.1f}Q{bend_x:.1f} {bend_y:.1f} {x2:.1f} '
            f'{y2:.1f}" stroke-width="{0.8 + 4 * abs(strength) / strongest:.1f}"><title>'
            f"{text(names[first])} and {text(names[second])}: {kind}, {abs(strength):g}"
            f"</title></path>"
        )
    for name, (x, y), angle in zip(names, at, angles, strict=True):
        degrees = math.degrees(angle)
        flipped = math.cos(angle) < -1e-9
        turn = degrees + 180 if flipped else degrees
        offset, anchor = (-9, "end") if flipped else (9, "start")
        parts.append(f'<circle class="node" cx="{x:.1f}" cy="{y:.1f}" r="3.2"/>')
        parts.append(
            f'<text transform="translate({x:.1f} {y:.1f}) rotate({turn:.1f})" x="{offset}" '
            f'y="4" text-anchor="{anchor}">{text(shorten(name, LONGEST))}'
            f"<title>{text(name)}</title></text>"
        )
    return (
        f'<svg viewBox="0 0 {SIZE} {SIZE}" class="graph" role="img" aria-label="{text(title)}">'
        f"{''.join(parts)}</svg>"
    )
