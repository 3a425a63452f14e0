"""Loops of the discrete solvers, a row at a time: roof duality by minimum cuts, and messages.

They are plain Python that numba compiles, where it is there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from spen.kernels.cpu import machine_code

# Roof duality: the linear relaxation of a binary pairwise model as one minimum cut a row.
#
# Every label has two nodes, one for y_i and one for 1 − y_i, and every term of the energy two
# arcs, of which either pays half. A minimum cut puts each node on the side of the source (1) or
# of the sink (0); where the two nodes of a label contradict each other, the label is ½.
# (Hammer, Hansen & Simeone, "Roof duality, complementation and persistency", 1984; Boros & Hammer,
# "Pseudo-Boolean optimization", 2002.)
#
# The flow is found by Dinic's algorithm on a dense matrix, for graphs of tens to hundreds of
# nodes. Its steps saturate arcs exactly, so it ends for any capacities, not only for whole ones.

ROUNDING = 1e-13
"""Arcs with less room than this share of the row's largest one count as full. The cut that is
found costs at most so much per arc more than the least one: 4 L² · 1e-13 of the largest."""


def roof_duals(unary: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, str]:
    """Minimise Σ_i u_i y_i + Σ_{i<j} w_ij y_i y_j, relaxed, for each row.

    Args:
        unary: (n, L) float64, finite.
        weights: (n, L, L), or (1, L, L) for all rows; symmetric, zero on the diagonal.

    Returns:
        y (n, L) of 0, ½ and 1, the number of augmenting paths (n,), and which code ran.

    >>> frustrated = 2.0 * (1 - np.eye(3))[None]
    >>> roof_duals(np.full((1, 3), -1.5), frustrated)[0]
    array([[0.5, 0.5, 0.5]])
    """
    arrays = _with_memory(unary, weights)
    y, paths = arrays[2:4]
    compiled = machine_code(cut_rows, _no_rows)
    if compiled is not None:
        compiled(*arrays)
        return y, paths, "maxflow-numba"
    # Lists are several times quicker than arrays where Python itself reads the entries.
    lists = [array.tolist() for array in arrays]
    cut_rows(*lists)
    return np.array(lists[2]).reshape(y.shape), np.array(lists[3], dtype=np.int64), "maxflow-python"


def _with_memory(unary: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the arguments of ``cut_rows``: the model, room for answers and for the work."""
    rows, n_labels = unary.shape
    y, paths = np.empty((rows, n_labels)), np.empty(rows, dtype=np.int64)
    nodes = 2 * n_labels
    level, arc, path = np.zeros((3, nodes + 1), dtype=np.int64)
    model = np.ascontiguousarray(unary), np.ascontiguousarray(weights)
    return (*model, y, paths, np.zeros((nodes, nodes)), np.zeros(nodes), level, arc, path)


def _no_rows() -> tuple[np.ndarray, ...]:
    return _with_memory(np.zeros((0, 1)), np.zeros((1, 1, 1)))


def cut_rows(
    unary: Any,
    weights: Any,
    y: Any,
    paths: Any,
    room: Any,
    excess: Any,
    level: Any,
    arc: Any,
    path: Any,
) -> None:
    """Fill y and paths, row by row. Takes arrays once compiled, and lists as it is.

    Node i is y_i and node L + i is 1 − y_i. What the source can still send into a node is a
    positive excess, what the sink can still take a negative one; room[v][k] is what an arc can.
    """
    n_labels = len(unary[0]) if len(unary) else 0
    nodes = 2 * n_labels
    for row in range(len(unary)):
        pairs = weights[row if len(weights) > 1 else 0]
        largest = 0.0
        for i in range(n_labels):
            # w y_i y_j with w < 0 is |w| / 2 · (|y_i − y_j| − y_i − y_j), so part of it is unary.
            cost = unary[row][i]
            alike, opposed, mirrored = room[i], room[n_labels + i], pairs[i]
            for j in range(n_labels):
                w = mirrored[j]
                joined, apart = (0.0, w) if w > 0 else (-w / 2, 0.0)
                alike[j] = joined
                opposed[n_labels + j] = joined
                alike[n_labels + j] = apart
                opposed[j] = 0.0
                cost -= joined
                largest = max(largest, joined, apart)
            excess[i] = -cost
            excess[n_labels + i] = cost
            largest = max(largest, abs(cost))
        least = ROUNDING * largest
        paths[row] = 0
        while True:
            # How many arcs lead to each node from one that has excess.
            last = 0
            for v in range(nodes):
                level[v] = -1
                arc[v] = 0
                if excess[v] > least:
                    level[v] = 0
                    path[last] = v
                    last += 1
            first, reaches_sink = 0, False
            while first < last:
                v = path[first]
                first += 1
                arcs, beyond = room[v], level[v] + 1
                for k in range(nodes):
                    if level[k] < 0 and arcs[k] > least:
                        level[k] = beyond
                        path[last] = k
                        last += 1
                        if excess[k] < -least:
                            reaches_sink = True
            if not reaches_sink:
                break
            # Send what fits along these shortest ways, until each of them is full somewhere.
            for root in range(nodes):
                if level[root] != 0:
                    continue
                depth = 0
                path[0] = root
                while excess[root] > least:
                    v = path[depth]
                    if depth > 0 and excess[v] < -least:
                        sent = min(excess[root], -excess[v])
                        for at in range(depth):
                            sent = min(sent, room[path[at]][path[at + 1]])
                        for at in range(depth):
                            room[path[at]][path[at + 1]] -= sent
                            room[path[at + 1]][path[at]] += sent
                        excess[root] -= sent
                        excess[v] += sent
                        paths[row] += 1
                        depth = 0
                        continue
                    arcs, k, beyond = room[v], arc[v], level[v] + 1
                    while k < nodes and not (level[k] == beyond and arcs[k] > least):
                        k += 1
                    arc[v] = k
                    if k < nodes:
                        depth += 1
                        path[depth] = k
                    elif depth > 0:
                        depth -= 1
                        arc[path[depth]] += 1
                    else:
                        break
        # What the excess can still reach is on the source's side.
        for i in range(n_labels):
            on, off = level[i] >= 0, level[n_labels + i] >= 0
            y[row][i] = 0.5 if on == off else (1.0 if on else 0.0)


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

    One row after the other, so that all of it stays in the cache.

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
