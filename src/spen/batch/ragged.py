"""Sequences of different lengths, one after the other in one tensor, and batches cut out of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from spen.batch.positions import POSITION_TILE, ROW_TILE, batches_of_like_length


class SequenceBatch(NamedTuple):
    """Some sequences side by side.

    Attributes:
        values: (n, T, …) zero where there is no position.
        mask: (n, T) True where there is a position.
    """

    values: Tensor
    mask: Tensor

    @property
    def shape(self) -> torch.Size:
        """That of the values."""
        return self.values.shape


@dataclass(frozen=True)
class Ragged:
    """Sequences of different lengths.

    Attributes:
        values: (positions of all sequences, …), one sequence after the other.
        lengths: (n,) of each sequence, on the host.

    >>> two = Ragged.of([[1, 2, 3], [4]])
    >>> two.batch(torch.tensor([0, 1])).values
    tensor([[1, 2, 3],
            [4, 0, 0]])
    """

    values: Tensor
    lengths: Tensor

    @classmethod
    def of(cls, sequences: Sequence[Any], dtype: Any = None) -> Ragged:
        """Return sequences (T_i, …) of numbers, none of them empty."""
        arrays = [np.asarray(each, dtype) for each in sequences]
        lengths = torch.tensor([len(each) for each in arrays], dtype=torch.int64)
        return cls(torch.from_numpy(np.concatenate(arrays)), lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def starts(self) -> Tensor:
        """(n,) where each sequence begins."""
        return self.lengths.cumsum(0) - self.lengths

    def to(self, device: torch.device) -> Ragged:
        """Return the same with its values on a device."""
        return replace(self, values=self.values.to(device))

    def batch(self, rows: Tensor, *, fill: bool = False, alike: bool = False) -> SequenceBatch:
        """Put some sequences side by side.

        Args:
            rows: their numbers, on the host.
            fill: whether there are copies of the last one, up to a multiple of ROW_TILE, and
                padding up to a multiple of POSITION_TILE, so that no neighbour changes how a
                sequence is rounded.
            alike: leaves out padding that no sequence needs, whatever ``fill`` says.
        """
        if fill:
            rows = torch.cat([rows, rows[-1:].expand(-len(rows) % ROW_TILE)])
        lengths = self.lengths[rows]
        longest = int(lengths.max())
        if fill and not alike:
            longest += -longest % POSITION_TILE
        along = torch.arange(longest)
        mask = along < lengths[:, None]
        places = torch.where(mask, self.starts[rows][:, None] + along, 0)
        device = self.values.device
        values, mask = self.values[places.to(device)], mask.to(device)
        absent = ~mask.reshape(*mask.shape, *(1,) * (values.ndim - 2))
        return SequenceBatch(values.masked_fill(absent, 0), mask)

    def in_order(self, positions: int, alike: bool = False) -> Iterator[Tensor]:
        """Yield the numbers of the sequences of one batch after the other, with little padding.

        Args:
            positions: the most positions of a batch.
            alike: whether all sequences of a batch have one length.
        """
        for rows in batches_of_like_length(self.lengths, positions):
            yield from self._of_one_length(rows) if alike else (rows,)

    def shuffled(self, size: int, generator: torch.Generator, alike: bool = False) -> list[Tensor]:
        """Return the numbers of the sequences of each mini-batch, in random order.

        Each batch has as many sequences, so that all positions count alike in an epoch. They are
        of roughly one length, but not sorted by it: who is beside whom is drawn anew.

        Args:
            size: the most sequences of a batch.
            generator: draws.
            alike: whether all sequences of a batch have one length.
        """
        # Drawn on the host, where lengths are.
        seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
        own = torch.Generator().manual_seed(seed)
        blur = 1 + BLUR * torch.rand(len(self), generator=own) * (not alike)
        order = torch.randperm(len(self), generator=own)
        order = order[(self.lengths * blur)[order].argsort(stable=True)]
        parts = self._of_one_length(order) if alike else (order,)
        batches = [batch for part in parts for batch in part.split(size)]
        return [batches[i] for i in torch.randperm(len(batches), generator=own).tolist()]

    def _of_one_length(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Cut sequences that come by length where the length changes."""
        counts = torch.unique_consecutive(self.lengths[rows], return_counts=True)[1]
        return rows.split(counts.tolist())


BLUR = 0.5
"""By up to this share a sequence counts as longer than it is when batches are drawn."""
