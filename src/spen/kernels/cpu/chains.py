"""Loops over the positions of chains, a row at a time and none over padding.

They are plain Python that numba compiles. Sums over taggings are made of numbers, not of their
logarithms: a step is then one small matrix product, where logarithms would want an exponential for
each pair of classes. Each position's sums are scaled to one, so that they stay within range.
"""

from __future__ import annotations

from typing import Any

import numpy as np

LEAST = 1e-100
"""Nothing underflows while no factor but zero is below this: a product of three is 1e-300. The
forward pass says where one is, and such rows are for logarithms."""


def sum_forwards(
    factors: np.ndarray,
    tables: np.ndarray,
    lengths: np.ndarray,
    forward: np.ndarray,
    logs: np.ndarray,
) -> bool:
    """Fill forward and logs; return whether nothing may have underflowed.

    Args:
        factors: (n, T, K) e to the scores of each position, float64.
        tables: (n or 1, T − 1 or 1, K, K) e to the scores of pairs: of all rows, or of all
            positions, where they share them.
        lengths: (n,) how many positions each row has.
        forward: (n, T, K) to be filled: how likely each class is, of the positions so far.
        logs: (n,) to be filled: the logarithm of the sum over all taggings; −inf where none has
            a chance.
    """
    classes = factors.shape[2]
    sound = True
    for row in range(factors.shape[0]):
        of_row = row if tables.shape[0] > 1 else 0
        log = 0.0
        for t in range(lengths[row]):
            here = forward[row, t]
            if t == 0:
                for k in range(classes):
                    here[k] = 1.0
            else:
                table = tables[of_row, t - 1 if tables.shape[1] > 1 else 0]
                for k in range(classes):
                    here[k] = 0.0
                for j in range(classes):
                    share = forward[row, t - 1, j]
                    for k in range(classes):
                        here[k] += share * table[j, k]
            whole = 0.0
            for k in range(classes):
                here[k] *= factors[row, t, k]
                whole += here[k]
            if not whole > 0:
                log = -np.inf
                break
            log += np.log(whole)
            for k in range(classes):
                here[k] /= whole
                if 0 < here[k] < LEAST:
                    sound = False
        logs[row] = log
    return sound


def sum_backwards(
    lengths: np.ndarray,
    factors: np.ndarray,
    tables: np.ndarray,
    forward: np.ndarray,
    weights: np.ndarray,
    marginals: np.ndarray,
    pairs: np.ndarray,
    of_pairs: bool,
) -> None:
    """Fill the marginals, and add what pairs have to theirs.

    Args:
        lengths: (n,).
        factors: (n, T, K) as in ``sum_forwards``.
        tables: (n or 1, T − 1 or 1, K, K) transposed: […, k, j] is for k after j.
        forward: (n, T, K) what ``sum_forwards`` found.
        weights: (n,) what the marginals of each row are multiplied by.
        marginals: (n, T, K) to be filled.
        pairs: of the tables' shape, zeros: the marginals of pairs once multiplied by the tables.
        of_pairs: whether these are wanted.
    """
    classes = factors.shape[2]
    behind, ahead = np.empty(classes), np.empty(classes)
    for row in range(factors.shape[0]):
        of_row = row if tables.shape[0] > 1 else 0
        last = lengths[row] - 1
        for k in range(classes):
            behind[k] = 1.0
            marginals[row, last, k] = weights[row] * forward[row, last, k]
        for t in range(last - 1, -1, -1):
            here = t if tables.shape[1] > 1 else 0
            table, pair = tables[of_row, here], pairs[of_row, here]
            for k in range(classes):
                ahead[k] = factors[row, t + 1, k] * behind[k]
                behind[k] = 0.0
            for k in range(classes):
                share = ahead[k]
                for j in range(classes):
                    behind[j] += share * table[k, j]
            whole = 0.0
            for j in range(classes):
                whole += forward[row, t, j] * behind[j]
            for j in range(classes):
                # What no tagging reaches could grow beyond all bounds.
                behind[j] = behind[j] / whole if forward[row, t, j] > 0 else 0.0
                marginals[row, t, j] = weights[row] * forward[row, t, j] * behind[j]
            if not of_pairs:
                continue
            scale = weights[row] / whole
            for k in range(classes):
                share = scale * ahead[k]
                for j in range(classes):
                    pair[k, j] += share * forward[row, t, j]


def best_paths(
    scores: np.ndarray,
    tables: np.ndarray,
    lengths: np.ndarray,
    tags: np.ndarray,
    best: np.ndarray,
) -> None:
    """Fill tags with the classes of highest total score, and best with that.

    Args:
        scores: (n, T, K) float64.
        tables: (n or 1, T − 1 or 1, K, K) the scores of pairs.
        lengths: (n,).
        tags: (n, T) to be filled, as far as rows go.
        best: (n,) to be filled.
    """
    classes = scores.shape[2]
    came_from = np.empty((scores.shape[1], classes), np.int64)
    here, before = np.empty(classes), np.empty(classes)
    for row in range(scores.shape[0]):
        of_row = row if tables.shape[0] > 1 else 0
        for t in range(lengths[row]):
            if t == 0:
                for k in range(classes):
                    here[k] = scores[row, 0, k]
                continue
            table, origin = tables[of_row, t - 1 if tables.shape[1] > 1 else 0], came_from[t]
            for k in range(classes):
                before[k] = here[k]
                here[k] = -np.inf
                origin[k] = 0
            for j in range(classes):
                reached = before[j]
                for k in range(classes):
                    score = reached + table[j, k]
                    better = score > here[k]
                    here[k] = score if better else here[k]
                    origin[k] = j if better else origin[k]
            for k in range(classes):
                here[k] += scores[row, t, k]
        tag = 0
        for k in range(1, classes):
            if here[k] > here[tag]:
                tag = k
        best[row] = here[tag]
        for t in range(lengths[row] - 1, -1, -1):
            tags[row, t] = tag
            tag = came_from[t, tag]


def best_lists(
    scores: np.ndarray,
    tables: np.ndarray,
    lengths: np.ndarray,
    tags: np.ndarray,
    best: np.ndarray,
) -> None:
    """Fill tags with the n best taggings of each row, the best first, and best with their scores.

    Each class of a position keeps the n best ways to it, in their order; those of the next are
    merged from such lists.

    Args:
        scores: (rows, T, K) float64.
        tables: (rows or 1, T − 1 or 1, K, K) the scores of pairs.
        lengths: (rows,).
        tags: (rows, n, T) to be filled, as far as rows go.
        best: (rows, n) to be filled; −inf where there are fewer taggings.
    """
    classes, n = scores.shape[2], best.shape[1]
    came_from = np.empty((scores.shape[1], classes, n), np.int64)
    here, before = np.empty((classes, n)), np.empty((classes, n))
    # Of each list, the place and the score of what is not taken yet.
    next_one, heads = np.empty(classes, np.int64), np.empty(classes)
    for row in range(scores.shape[0]):
        of_row = row if tables.shape[0] > 1 else 0
        for k in range(classes):
            for i in range(n):
                here[k, i] = -np.inf
            here[k, 0] = scores[row, 0, k]
        for t in range(1, lengths[row]):
            table = tables[of_row, t - 1 if tables.shape[1] > 1 else 0]
            for k in range(classes):
                for i in range(n):
                    before[k, i] = here[k, i]
            for k in range(classes):
                for j in range(classes):
                    next_one[j], heads[j] = 0, before[j, 0] + table[j, k]
                for i in range(n):
                    origin = 0
                    for j in range(1, classes):
                        if heads[j] > heads[origin]:
                            origin = j
                    top = heads[origin]
                    came_from[t, k, i] = origin * n + next_one[origin]
                    if top == -np.inf:
                        # Nothing is left, here and behind.
                        for rest in range(i, n):
                            here[k, rest] = -np.inf
                            came_from[t, k, rest] = 0
                        break
                    here[k, i] = top + scores[row, t, k]
                    place = next_one[origin] + 1
                    next_one[origin] = place
                    heads[origin] = (
                        before[origin, place] + table[origin, k] if place < n else -np.inf
                    )
        for k in range(classes):
            next_one[k] = 0
        for i in range(n):
            top, tag = -np.inf, 0
            for k in range(classes):
                if next_one[k] < n and here[k, next_one[k]] > top:
                    top, tag = here[k, next_one[k]], k
            best[row, i] = top
            place = next_one[tag] if top > -np.inf else 0
            next_one[tag] += 1
            for t in range(lengths[row] - 1, -1, -1):
                tags[row, i, t] = tag
                if t > 0:
                    way = came_from[t, tag, place]
                    tag, place = way // n, way % n


def forward_types() -> tuple[Any, ...]:
    """Return arguments of ``sum_forwards`` that tell their types."""
    factors, tables, lengths, row = _no_rows()
    return factors, tables, lengths, factors, row


def backward_types() -> tuple[Any, ...]:
    """Return arguments of ``sum_backwards`` that tell their types."""
    factors, tables, lengths, row = _no_rows()
    return lengths, factors, tables, factors, row, factors, tables, False


def path_types() -> tuple[Any, ...]:
    """Return arguments of ``best_paths`` that tell their types."""
    scores, tables, lengths, row = _no_rows()
    return scores, tables, lengths, np.zeros((0, 1), np.int64), row


def list_types() -> tuple[Any, ...]:
    """Return arguments of ``best_lists`` that tell their types."""
    scores, tables, lengths, _ = _no_rows()
    return scores, tables, lengths, np.zeros((0, 1, 1), np.int64), np.zeros((0, 1))


def _no_rows() -> tuple[np.ndarray, ...]:
    return np.zeros((0, 1, 1)), np.zeros((1, 1, 1, 1)), np.zeros(0, np.int64), np.zeros(0)
