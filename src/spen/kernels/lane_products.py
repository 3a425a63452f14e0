"""The two products with C: the gradient Cᵀ d, and the measurements C y, of eight examples.

C lies in panels of eight labels (see ``packing``), so that either product reads it in order,
and eight sums at a time stay in registers.
"""

from __future__ import annotations

from typing import Any

from spen.kernels.lane_functions import inlined
from spen.kernels.lanes import WIDTH, get, load, load_spread, multiply_add, spread, store
from spen.kernels.packing import PANEL


@inlined
def panel_gradient(
    measurements: Any, slopes: Any, active: Any, linear: Any, out: Any, panel: int, m: int
) -> None:
    """out[label] = linear[label] + Σ_k C[k, label] slopes[k], for the labels of a panel.

    The sum is over the ``active[0]`` measurements that the rest of ``active`` lists.
    """
    a = panel * PANEL * WIDTH
    g0, g1 = load(linear, a), load(linear, a + WIDTH)
    g2, g3 = load(linear, a + 2 * WIDTH), load(linear, a + 3 * WIDTH)
    g4, g5 = load(linear, a + 4 * WIDTH), load(linear, a + 5 * WIDTH)
    g6, g7 = load(linear, a + 6 * WIDTH), load(linear, a + 7 * WIDTH)
    for i in range(get(active, 0)):
        k = get(active, i + 1)
        slope = load(slopes, k * WIDTH)
        c = (panel * m + k) * PANEL
        g0 = multiply_add(load_spread(measurements, c), slope, g0)
        g1 = multiply_add(load_spread(measurements, c + 1), slope, g1)
        g2 = multiply_add(load_spread(measurements, c + 2), slope, g2)
        g3 = multiply_add(load_spread(measurements, c + 3), slope, g3)
        g4 = multiply_add(load_spread(measurements, c + 4), slope, g4)
        g5 = multiply_add(load_spread(measurements, c + 5), slope, g5)
        g6 = multiply_add(load_spread(measurements, c + 6), slope, g6)
        g7 = multiply_add(load_spread(measurements, c + 7), slope, g7)
    store(out, a, g0)
    store(out, a + WIDTH, g1)
    store(out, a + 2 * WIDTH, g2)
    store(out, a + 3 * WIDTH, g3)
    store(out, a + 4 * WIDTH, g4)
    store(out, a + 5 * WIDTH, g5)
    store(out, a + 6 * WIDTH, g6)
    store(out, a + 7 * WIDTH, g7)


@inlined
def measure(measurements: Any, y: Any, z: Any, first: int, last: int, m: int) -> None:
    """z[k] += Σ_label C[k, label] y[label], for the panels first to last."""
    for k in range(0, m, PANEL):
        z0 = z1 = z2 = z3 = z4 = z5 = z6 = z7 = spread(0.0)
        for panel in range(first, last):
            for label in range(PANEL):
                share = load(y, (panel * PANEL + label) * WIDTH)
                c = (panel * m + k) * PANEL + label
                z0 = multiply_add(load_spread(measurements, c), share, z0)
                z1 = multiply_add(load_spread(measurements, c + PANEL), share, z1)
                z2 = multiply_add(load_spread(measurements, c + 2 * PANEL), share, z2)
                z3 = multiply_add(load_spread(measurements, c + 3 * PANEL), share, z3)
                z4 = multiply_add(load_spread(measurements, c + 4 * PANEL), share, z4)
                z5 = multiply_add(load_spread(measurements, c + 5 * PANEL), share, z5)
                z6 = multiply_add(load_spread(measurements, c + 6 * PANEL), share, z6)
                z7 = multiply_add(load_spread(measurements, c + 7 * PANEL), share, z7)
        a = k * WIDTH
        store(z, a, load(z, a) + z0)
        store(z, a + WIDTH, load(z, a + WIDTH) + z1)
        store(z, a + 2 * WIDTH, load(z, a + 2 * WIDTH) + z2)
        store(z, a + 3 * WIDTH, load(z, a + 3 * WIDTH) + z3)
        store(z, a + 4 * WIDTH, load(z, a + 4 * WIDTH) + z4)
        store(z, a + 5 * WIDTH, load(z, a + 5 * WIDTH) + z5)
        store(z, a + 6 * WIDTH, load(z, a + 6 * WIDTH) + z6)
        store(z, a + 7 * WIDTH, load(z, a + 7 * WIDTH) + z7)
