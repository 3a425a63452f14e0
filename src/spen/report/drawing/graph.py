"""Labels around a circle, with lines between those that attract or repel each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from spen.report.drawing.heat import shorten
from spen.report.drawing.markup import text

SIZE, MARGIN = 520, 118


def label_graph(title: str, names: Sequence[str], pairs: Sequence[Sequence[Any]]) -> str:
    """Draw pairs of labels as curves inside a circle.

    Args:
        title: what is drawn, for those who hear it.
        names: of the labels, around the circle in this order.
        pairs: (first, second, strength), above zero for labels that belong together.
    """
    count, centre, radius = len(names), SIZE / 2, SIZE / 2 - MARGIN
    angles = [2 * math.pi * (k / max(count, 1)) - math.pi / 2 for k in range(count)]
    at = [(centre + radius * math.cos(a), centre + radius * math.sin(a)) for a in angles]
    strongest = max((abs(pair[2]) for pair in pairs), default=1.0) or 1.0
    parts = []
    for first, second, strength in pairs:
        (x1, y1), (x2, y2) = at[first], at[second]
        # Bent towards the centre, so that neighbours are linked beside the circle, not along it.
        bend_x, bend_y = (x1 + x2) / 2 * 0.35 + centre * 0.65, (y1 + y2) / 2 * 0.35 + centre * 0.65
        kind, sign = ("together", "together") if strength > 0 else ("apart", "apart")
        parts.append(
            f'<path class="link {kind}" d="M{x1:.1f} {y1:.1f}Q{bend_x:.1f} {bend_y:.1f} {x2:.1f} '
            f'{y2:.1f}" stroke-width="{0.8 + 4 * abs(strength) / strongest:.1f}"><title>'
            f"{text(names[first])} and {text(names[second])}: {sign}, {abs(strength):g}"
            f"</title></path>"
        )
    for name, (x, y), angle in zip(names, at, angles, strict=True):
        degrees = math.degrees(angle)
        flipped = math.cos(angle) < -1e-9
        turn = degrees + 180 if flipped else degrees
        offset, anchor = (-9, "end") if flipped else (9, "start")
        parts.append(f'<circle class="node" cx="{x:.1f}" cy="{y:.1f}" r="3.2"/>')
        parts.append(
            f'<text transform="translate({x:.1f} {y:.1f}) rotate({turn:.1f})" x="{offset}" y="4" '
            f'text-anchor="{anchor}">{text(shorten(name, 16))}<title>{text(name)}</title></text>'
        )
    return (
        f'<svg viewBox="0 0 {SIZE} {SIZE}" class="graph" role="img" aria-label="{text(title)}">'
        f"{''.join(parts)}</svg>"
    )


def around(count: int, pairs: Sequence[Sequence[Any]]) -> list[int]:
    """Return an order of labels in which those that share strong pairs stand together.

    It sorts them by the second eigenvector of the graph's Laplacian, component by component.

    >>> around(4, [(0, 2, 1.0), (1, 3, 1.0)])
    [0, 2, 1, 3]
    """
    weights = np.zeros((count, count))
    for first, second, strength in pairs:
        weights[first, second] = weights[second, first] = abs(strength)
    order: list[int] = []
    left = set(range(count))
    while left:
        members, waiting = [], [min(left)]
        while waiting:
            node = waiting.pop()
            if node in left:
                left.remove(node)
                members.append(node)
                waiting += [int(k) for k in np.flatnonzero(weights[node]) if int(k) in left]
        members.sort()
        part = weights[np.ix_(members, members)]
        _, vectors = np.linalg.eigh(np.diag(part.sum(1)) - part)
        second = vectors[:, min(1, len(members) - 1)]
        second = second * (1 if second[0] <= 0 else -1)
        order += [members[k] for k in np.argsort(second.round(9), kind="stable")]
    return order
