"""The way of rows through decision trees, a row at a time; plain Python that numba compiles."""

from __future__ import annotations

from typing import Any

import numpy as np

from spen.kernels.cpu import machine_code


def find_leaves(rows: Any, roots: Any, feature: Any, threshold: Any, left: Any, right: Any) -> Any:
    """Return the node in which each row ends in each tree, (n, T) int32; None without numba.

    Args:
        rows: (n, d) float32.
        roots: (T,) the first node of each tree, int32 as all node numbers are.
        feature: (nodes,) which feature a node looks at, below zero at a leaf.
        threshold: (nodes,) float32: a row goes left where its feature is at most that.
        left: (nodes,) the next node there.
        right: (nodes,) the next node elsewhere.
    """
    compiled = machine_code(walk, _no_rows)
    if compiled is None:
        return None
    found = np.empty((len(rows), len(roots)), np.int32)
    compiled(np.ascontiguousarray(rows), roots, feature, threshold, left, right, found)
    return found


def _no_rows() -> tuple[np.ndarray, ...]:
    numbers, nodes = np.zeros(0, np.float32), np.zeros(0, np.int32)
    shape = (0, 0)
    return numbers.reshape(shape), nodes, nodes, numbers, nodes, nodes, nodes.reshape(shape)


def walk(
    rows: Any, roots: Any, feature: Any, threshold: Any, left: Any, right: Any, found: Any
) -> None:
    """Fill in the leaf of each row in each tree."""
    # Tree by tree, so that its nodes stay near.
    for tree in range(len(roots)):
        for row in range(len(rows)):
            node = roots[tree]
            while feature[node] >= 0:
                goes_left = rows[row, feature[node]] <= threshold[node]
                node = left[node] if goes_left else right[node]
            found[row, tree] = node
