"""Chains on the GPU: when its kernels can be used, and how they are launched."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from spen.kernels.cuda import _capability, _has_triton, launch

MOST_CLASSES = 128
"""A table of so many classes is in the registers of one program."""


def knows_chains(unary: Tensor) -> bool:
    """Say whether the kernels can be used for scores (n, T, K)."""
    return (
        unary.is_cuda
        and unary.dtype in (torch.float32, torch.float64)
        and unary.shape[2] <= MOST_CLASSES
        and _has_triton()
        and _capability(unary.device) >= (8, 0)
    )


def sum_forwards(unary: Tensor, pairs: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Return what ends in each class of each position, and all, in logarithms: (n, T, K), where
    each position lacks a number of its own, and (n,).

    Args:
        unary: (n, T, K) scores of positions.
        pairs: (n or 1, T − 1 or 1, K, K) scores of pairs.
        lengths: (n,) how many positions each row has.
    """
    from spen.kernels.cuda import chain_loops

    unary, pairs = unary.contiguous(), pairs.contiguous()
    forward, logs = torch.full_like(unary, -torch.inf), unary.new_empty(len(unary))
    arguments = (unary, pairs, lengths, forward, logs, *_sizes(unary, pairs))
    _launch(chain_loops.sum_forwards, unary, arguments, {})
    return forward, logs


def sum_backwards(
    unary: Tensor,
    pairs: Tensor,
    lengths: Tensor,
    forward: Tensor,
    weights: Tensor,
    of_pairs: bool,
) -> tuple[Tensor, Tensor | None]:
    """Return the weighted marginals of positions (n, T, K), and those of pairs in their own shape,
    summed where pairs are shared.

    Args:
        unary: as in ``sum_forwards``.
        pairs: as there.
        lengths: as there.
        forward: what that found.
        weights: (n,) what the marginals of each row are multiplied by.
        of_pairs: whether those of pairs are wanted.
    """
    from spen.kernels.cuda import chain_loops

    unary, pairs = unary.contiguous(), pairs.contiguous()
    (rows, longest, classes), shared = unary.shape, pairs.shape[1] == 1
    found = torch.zeros_like(unary)
    together = unary.new_empty(1)
    if of_pairs:
        together = unary.new_zeros(rows, 1 if shared else longest - 1, classes, classes)
    apart = classes * classes
    sizes = (*_sizes(unary, pairs), together.shape[-3] * apart if of_pairs else 0)
    arguments = (unary, pairs, lengths, forward, weights.contiguous(), found, together)
    arguments = (*arguments, *sizes, 0 if shared else apart)
    _launch(chain_loops.sum_backwards, unary, arguments, {"OF_PAIRS": of_pairs})
    if not of_pairs:
        return found, None
    return found, together.sum(0, keepdim=True) if len(pairs) == 1 else together


def best_paths(unary: Tensor, pairs: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Return the best tagging of each row and its score, (n, T) and (n,); 0 beyond its end.

    Args:
        unary: as in ``sum_forwards``.
        pairs: as there.
        lengths: as there.
    """
    from spen.kernels.cuda import chain_loops

    unary, pairs = unary.contiguous(), pairs.contiguous()
    came_from = torch.empty_like(unary, dtype=torch.int32)
    tags = torch.zeros(unary.shape[:2], dtype=torch.int64, device=unary.device)
    best = unary.new_empty(len(unary))
    arguments = (unary, pairs, lengths, came_from, tags, best, *_sizes(unary, pairs))
    _launch(chain_loops.best_paths, unary, arguments, {})
    return tags, best


def best_lists(unary: Tensor, pairs: Tensor, lengths: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return the n best taggings of each row, the best first, and their scores, (rows, n, T) and
    (rows, n): −inf where there are fewer. Beyond the end of a row tags are 0.

    Args:
        unary: as in ``sum_forwards``.
        pairs: as there.
        lengths: as there.
        n: how many.
    """
    from spen.kernels.cuda import chain_loops

    unary, pairs = unary.contiguous(), pairs.contiguous()
    rows, longest, classes = unary.shape
    # Of the position that is reached, and of the one before.
    lists = unary.new_empty(rows, 2, classes, n)
    came_from = torch.empty(rows, longest, classes, n, dtype=torch.int32, device=unary.device)
    tags = torch.zeros(rows, n, longest, dtype=torch.int64, device=unary.device)
    best = unary.new_empty(rows, n)
    arguments = (unary, pairs, lengths, lists, came_from, tags, best, *_sizes(unary, pairs), n)
    _launch(chain_loops.best_lists, unary, arguments, {"PLACES": 1 << (n - 1).bit_length()})
    return tags, best


def _sizes(unary: Tensor, pairs: Tensor) -> tuple[int, ...]:
    """Return T, K, and how far apart the tables of rows and of positions are; 0 if shared."""
    _, longest, classes = unary.shape
    by_row, by_position = pairs.shape[0] > 1, pairs.shape[1] > 1
    apart = classes * classes
    return longest, classes, pairs.shape[1] * apart * by_row, apart * by_position


def _launch(
    kernel: Any, unary: Tensor, arguments: tuple[Any, ...], constants: dict[str, Any]
) -> None:
    width = 1 << max(unary.shape[2] - 1, 1).bit_length()
    options = {"num_warps": 8 if width > 64 else 4 if width > 32 else 1}
    constants = {"WIDTH": width, **constants}
    if len(unary):
        launch(kernel, unary.device, len(unary), arguments, constants, options)
