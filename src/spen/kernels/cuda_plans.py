"""How the GPU kernels lay out their work: which warps hold which labels, and how many rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

ROWS = 16
"""Rows of a tile: the fewest that the matrix units take."""

WIDTHS = ((16, 8), (16, 16), (32, 8), (32, 16), (32, 32))
"""The labels that a warp can hold, in two chunks, since chunks are powers of two."""

MOST_ENTRIES = 1280
"""Entries of C that a warp can hold in registers beside its rows."""

REGISTERS = 65536
"""Registers of a multiprocessor."""


@dataclass(frozen=True)
class TilePlan:
    """The layout of the on-chip kernel.

    Attributes:
        warps: how many warps share the labels of a tile of rows.
        widths: the labels of a warp, in two chunks.
        padded: measurements, filled up to a power of two.
        refill: how many rows of a tile must have ended before new ones take their places.
        programs: tiles at a time on each multiprocessor, which share its registers.
    """

    warps: int
    widths: tuple[int, int]
    padded: int
    refill: int = 4
    programs: int = 2

    @property
    def registers(self) -> int:
        """The most registers of a thread with which all programs fit at once."""
        return min(255, REGISTERS // (32 * self.warps * self.programs) // 8 * 8)

    @property
    def lines(self) -> int:
        """The memory lines of 32 numbers that a row has at most, as a power of two."""
        return 1 << (self.warps * sum(self.widths) // 32).bit_length()


@dataclass(frozen=True)
class StreamPlan:
    """The layout of the streaming kernel.

    Attributes:
        warps: how many warps share the labels of a tile.
        width: the labels of a warp in a tile.
        chunk: how many measurements are taken at a time, a power of two.
        programs: tiles of rows at a time on each multiprocessor.
    """

    warps: int
    width: int
    chunk: int
    programs: int = 2


@cache
def tile_plan(n_labels: int, n_measurements: int) -> TilePlan | None:
    """Return the on-chip layout with the least padding; None where a row does not fit.

    >>> tile_plan(159, 15)
    TilePlan(warps=4, widths=(32, 8), padded=16, refill=4, programs=2)
    >>> tile_plan(4096, 256) is None
    True
    """
    padded = _padded(n_measurements)
    choices = [
        (warps * sum(widths), warps, widths)
        for warps in (1, 2, 4, 8)
        for widths in WIDTHS
        if warps * sum(widths) >= n_labels and padded * sum(widths) <= MOST_ENTRIES
    ]
    if not choices:
        return None
    _, warps, widths = min(choices)
    return TilePlan(warps, widths, padded, programs=8 // warps)


def stream_plan(n_measurements: int) -> StreamPlan:
    """Return the streaming layout.

    >>> stream_plan(256)
    StreamPlan(warps=4, width=16, chunk=64, programs=2)
    """
    chunk = min(64, _padded(n_measurements))
    return StreamPlan(warps=4, width=16 if chunk == 64 else 32, chunk=chunk)


def _padded(measurements: int) -> int:
    """Fill a number of measurements up to a power of two that the matrix units take."""
    return max(16, 1 << (measurements - 1).bit_length())
