"""Outputs with positions, such as the words of sentences: rows of different lengths in one batch.

Rows are filled up at their end to the length of the longest. A mask (n, T) says where there is a
position, and y is zero wherever there is none. Nothing here changes a number of a row when more
padding or other neighbours stand beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from spen.batch.limits import VECTOR
from spen.errors import InputError, check_whole

ROW_TILE = 8
"""Matrix products round differently for the last rows of a batch that is not a multiple of
this, and the kinks of an energy can make much of that. So batches are filled up to it."""

POSITION_TILE = VECTOR // ROW_TILE
"""Filled up to this many positions and ROW_TILE rows, numbers come in full vectors of the widest
kind, whose last ones would be rounded in another way if they were fewer."""


def pad(
    sequences: Sequence[Any], fill: float = 0, *, rows: int = 1, positions: int = 1
) -> tuple[Tensor, Tensor]:
    """Put sequences of different lengths into one batch; return it and its mask.

    Args:
        sequences: of T_i entries each: arrays (T_i, …), or lists of numbers.
        fill: stands where there is no position.
        rows: the batch is filled up to a multiple of so many rows, with copies of the last one.
        positions: and to a multiple of so many positions.

    Returns:
        The batch (n, T, …), and the mask (n, T), True where there is a position.

    >>> batch, mask = pad([[1, 2, 3], [4]])
    >>> batch, mask.sum(1)
    (tensor([[1, 2, 3],
            [4, 0, 0]]), tensor([3, 1]))
    """
    arrays = [np.asarray(each) for each in sequences]
    for number, array in enumerate(arrays):
        if array.ndim == 0 or array.dtype.kind not in "biuf":
            raise InputError(
                f"Sequence {number} must hold a number, or an array of numbers, for each position; "
                f"received {sequences[number]!r}."
            )
    parts = [torch.as_tensor(array) for array in arrays]
    if not parts:
        raise InputError("There must be at least one sequence; received none.")
    for number, part in enumerate(parts):
        if len(part) == 0:
            raise InputError(f"Sequence {number} is empty. Leave out sequences without positions.")
        if part.shape[1:] != parts[0].shape[1:]:
            raise InputError(
                f"Each position of sequence {number} has shape {tuple(part.shape[1:])}, and those "
                f"before it have {tuple(parts[0].shape[1:])}. Make them equal."
            )
    parts += parts[-1:] * (-len(parts) % rows)
    longest = max(len(part) for part in parts)
    longest += -longest % positions
    batch = parts[0].new_full((len(parts), longest, *parts[0].shape[1:]), fill)
    mask = torch.zeros(len(parts), longest, dtype=torch.bool)
    for row, part in enumerate(parts):
        batch[row, : len(part)] = part
        mask[row, : len(part)] = True
    return batch, mask


def batches_of_like_length(
    lengths: Any, positions: int, generator: torch.Generator | None = None
) -> Iterator[Tensor]:
    """Yield the rows of one batch after the other, so that little of a batch is padding.

    Args:
        lengths: (n,) how many positions each row has.
        positions: the most positions of a batch, padding included; a row that is longer is a batch.
        generator: shuffles rows of one length, and the order of the batches; None leaves both as
            they come.

    >>> [rows.tolist() for rows in batches_of_like_length([5, 1, 2, 5], positions=10)]
    [[1, 2], [0, 3]]
    """
    check_whole(positions, "positions")
    lengths = torch.as_tensor(lengths)
    places = torch.arange(len(lengths))
    if generator is not None:
        places = torch.randperm(len(lengths), generator=generator)
    places = places[lengths[places].argsort(stable=True)]
    batches, first = [], 0
    # Rows come by length, so that the last one of a batch is its longest.
    for last, length in enumerate(lengths[places].tolist()):
        if last > first and (last + 1 - first) * length > positions:
            batches.append(places[first:last])
            first = last
    if first < len(places):
        batches.append(places[first:])
    order = range(len(batches))
    if generator is not None:
        order = torch.randperm(len(batches), generator=generator).tolist()
    for number in order:
        yield batches[number]


def check_mask(mask: Tensor, features: Tensor) -> None:
    """Raise unless a mask fits the features, and every row has its positions at its beginning."""
    if features.ndim < 3 or mask.shape != features.shape[:2] or mask.dtype != torch.bool:
        raise InputError(
            f"A mask must be True or False for each of the positions of features (n, T, f); "
            f"received a mask of {mask.dtype} {tuple(mask.shape)} with features "
            f"{tuple(features.shape)}."
        )
    if mask.is_cuda:
        return  # To ask a GPU makes the host wait; masks are made on the host, by ``pad``.
    broken = ~mask[:, :1].all(1) | (mask[:, 1:] & ~mask[:, :-1]).any(1)
    if broken.any():
        row = int(broken.nonzero()[0])
        raise InputError(
            f"Row {row} of the mask has no position at its beginning, or a gap. Put the positions "
            "of each row first and its padding last, and leave out rows without positions."
        )


def sum_positions(values: Tensor, positions: int) -> Tensor:
    """Return the sum of each row (n, T k), one position after the other, (n,).

    Positions are added up by pairs, pairs by pairs, and so on: zeros at the end of a row then
    change no bit of its sum.

    >>> sum_positions(torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]), positions=3)
    tensor([21.])
    """
    sums = values.reshape(values.shape[0], positions, values.shape[1] // positions).sum(2)
    while sums.shape[1] > 1:
        if sums.shape[1] % 2:
            sums = F.pad(sums, (0, 1))
        sums = sums[:, 0::2] + sums[:, 1::2]
    return sums[:, 0]


def at_positions(values: Tensor, mask: Tensor | None) -> Tensor:
    """Return rows (n, T k) or (n, T, k) with zeros where there is no position.

    >>> at_positions(torch.ones(1, 4), torch.tensor([[True, False]]))
    tensor([[1., 1., 0., 0.]])
    """
    if mask is None:
        return values
    split = values.reshape(*mask.shape, -1)
    return split.masked_fill(~mask[:, :, None], 0.0).reshape(values.shape)


def each_position(values: Tensor, mask: Tensor | None) -> Tensor:
    """Return rows (n, T k) as one row for each position there is, (positions, k); without a mask
    rows are as they are.

    >>> each_position(torch.arange(4).reshape(1, 4), torch.tensor([[True, False]]))
    tensor([[0, 1]])
    """
    return values if mask is None else values.reshape(*mask.shape, -1)[mask]
