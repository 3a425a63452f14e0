"""Belief propagation one row after the other: loops for numba, all of a row in the cache."""

from __future__ import annotations

from typing import Any

import numpy as np


def pass_messages(
    unary: np.ndarray,
    weights: np.ndarray,
    allowed: np.ndarray,
    ties: np.ndarray,
    damping: float,
    max_steps: int,
    keep_best: bool,
    y: np.ndarray,
    steps: np.ndarray,
    converged: np.ndarray,
) -> None:
    """Fill y, steps and converged; what ``BeliefPropagation`` says, for rows of finite terms.

    Args:
        unary: (n, L) float64.
        weights: (n, L, L), or (1, L, L) for all rows.
        allowed: (n,) how far a message may be from its update where a row has converged.
        ties: (n,) how far below zero a belief must be for its label to be on.
        damping: the share of old messages that stays.
        max_steps: the most rounds.
        keep_best: whether to return the best labelling of all rounds, or that of the last one.
        y: (n, L) to be filled.
        steps: (n,) to be filled.
        converged: (n,) to be filled.
    """
    n_labels = unary.shape[1]
    # What i was told by j is heard[i, j]; what i now says to j is said[i, j].
    heard, said = np.empty((n_labels, n_labels)), np.empty((n_labels, n_labels))
    beliefs, labels = np.empty(n_labels), np.empty(n_labels)
    for row in range(unary.shape[0]):
        pairs = weights[row if weights.shape[0] > 1 else 0]
        # Loops, not slices: those take several seconds to compile.
        for i in range(n_labels):
            beliefs[i], labels[i] = unary[row, i], -1.0
            for j in range(n_labels):
                heard[i, j] = 0.0
        least = np.inf
        converged[row] = False
        steps[row] = max_steps
        for step in range(1, max_steps + 1):
            for i in range(n_labels):
                for j in range(n_labels):
                    without = beliefs[i] - heard[i, j]
                    said[i, j] = min(without + pairs[i, j], 0.0) - min(without, 0.0)
            furthest, changed = 0.0, False
            for i in range(n_labels):
                belief = 0.0
                for j in range(n_labels):
                    change = said[j, i] - heard[i, j]
                    heard[i, j] += (1 - damping) * change
                    belief += heard[i, j]
                    furthest = max(furthest, abs(change))
                beliefs[i] = unary[row, i] + belief
                label = 1.0 if beliefs[i] < -ties[row] else 0.0
                changed = changed or label != labels[i]
                labels[i] = label
            if changed:
                energy = 0.0
                for i in range(n_labels):
                    if labels[i] == 1.0:
                        energy += unary[row, i]
                        for j in range(i):
                            energy += pairs[i, j] * labels[j]
                if energy < least or not keep_best:
                    least = energy
                    for i in range(n_labels):
                        y[row, i] = labels[i]
            if furthest <= allowed[row]:
                converged[row] = True
                steps[row] = step
                break


def no_rows() -> tuple[Any, ...]:
    """Return arguments of ``pass_messages`` that tell their types."""
    model, per_row, settings = (np.empty((0, 1)), np.empty((1, 1, 1))), np.empty(0), (0.5, 1, True)
    filled = np.empty((0, 1)), np.empty(0, int), np.empty(0, bool)
    return (*model, per_row, per_row, *settings, *filled)
