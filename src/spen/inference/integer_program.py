"""The best labelling of a binary pairwise model as a mixed-integer linear program (HiGHS).

Every y_i y_j becomes a variable z with z ≥ y_i + y_j − 1 where its weight is positive, or
z ≤ y_i and z ≤ y_j where it is negative. At labels of 0 and 1 the best z is the product.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from spen.inference.base import Status

LARGEST = 1e3
"""What the largest coefficient is scaled to: HiGHS ends within 1e-6 of the optimum, absolutely."""


class Program(NamedTuple):
    """What the solver found for one row.

    Attributes:
        y: (L,) of 0 and 1, or None where no labelling was found.
        bound: no labelling has less energy.
        nodes: how many nodes of its tree were looked at.
        status: OPTIMAL, TIME_LIMIT or FAILED.
    """

    y: np.ndarray | None
    bound: float
    nodes: int
    status: Status


def solve_program(unary: np.ndarray, weights: np.ndarray, time_limit: float) -> Program:
    """Minimise u·y + Σ_{i<j} w_ij y_i y_j over labels.

    Args:
        unary: (L,).
        weights: (L, L) symmetric, zero on the diagonal.
        time_limit: seconds.

    >>> program = solve_program(np.array([-1.0, -3.0]), np.array([[0.0, 2.0], [2.0, 0.0]]), 10.0)
    >>> program.y, float(program.bound)
    (array([0., 1.]), -3.0)
    """
    n_labels = len(unary)
    one, other = np.nonzero(np.triu(weights, 1))
    pair_weights = weights[one, other]
    costs = np.concatenate([unary, pair_weights])
    largest = np.abs(costs).max()
    scale = LARGEST / largest if largest > 0 else 1.0
    result = milp(
        scale * costs,
        integrality=np.arange(len(costs)) < n_labels,
        bounds=Bounds(0, 1),
        constraints=_linearised(one, other, pair_weights > 0, n_labels),
        options={"time_limit": time_limit, "mip_rel_gap": 0.0},
    )
    return Program(
        y=None if result.x is None else np.round(result.x[:n_labels]),
        bound=-np.inf if result.mip_dual_bound is None else result.mip_dual_bound / scale,
        nodes=result.mip_node_count or 0,
        status={0: Status.OPTIMAL, 1: Status.TIME_LIMIT}.get(result.status, Status.FAILED),
    )


def _linearised(
    one: np.ndarray, other: np.ndarray, positive: np.ndarray, n_labels: int
) -> list[LinearConstraint]:
    """Tie z of each pair to y, by the sign of its weight."""
    n_pairs = len(one)
    if not n_pairs:
        return []
    here = np.arange(n_pairs)
    shape = (n_pairs, n_labels)
    ones = sparse.csr_array((np.ones(n_pairs), (here, one)), shape)
    others = sparse.csr_array((np.ones(n_pairs), (here, other)), shape)
    z = sparse.eye_array(n_pairs, format="csr")
    ties = (
        (positive, [ones + others, -z], 1.0),  # y_i + y_j − z ≤ 1
        (~positive, [-ones, z], 0.0),  # z ≤ y_i
        (~positive, [-others, z], 0.0),  # z ≤ y_j
    )
    return [
        LinearConstraint(sparse.hstack([part[here[rows]] for part in parts]), ub=limit)
        for rows, parts, limit in ties
        if rows.any()
    ]
