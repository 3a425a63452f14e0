"""How much a bench measures."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Effort:
    """Sizes and repetitions of a bench; the defaults are those of the command.

    Attributes:
        rounds: how often calls are timed in turns, at most.
        seconds: after so long no further round is begun.
        labels: numbers of labels, for growth with the labels.
        label_rows: rows that are solved there.
        burst: descents over fewer labels than this are timed several at a time: one is too short.
        largest_table: the most labels for which a pairwise CRF is tried.
        rows: numbers of rows, for growth with the rows.
        chunk: rows that are solved at a time there, to bound memory.
        longest: seconds that one size may take; larger ones are extrapolated.
        single_rows: how many rows are predicted one by one.

    >>> Effort().labels[0], Effort().labels[-1]
    (128, 32768)
    """

    rounds: int = 25
    seconds: float = 20.0
    labels: tuple[int, ...] = tuple(128 << k for k in range(9))
    label_rows: int = 256
    burst: int = 4096
    largest_table: int = 8192
    rows: tuple[int, ...] = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
    chunk: int = 1 << 16
    longest: float = 60.0
    single_rows: int = 200

    @classmethod
    def of(cls, device: torch.device) -> Effort:
        """Return what suits a device: a GPU needs more rows to be busy, and has room for them.

        >>> Effort.of(torch.device("cpu")) == Effort()
        True
        """
        if device.type != "cuda":
            return cls()
        return cls(label_rows=2048, largest_table=32768, chunk=1 << 20)
