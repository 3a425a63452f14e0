"""Arithmetic of lanes: sigmoid, logarithm, nonlinearities with their slopes, and products with C.

C lies in panels of eight labels (see ``Packed``), so that either product, the gradient Cᵀ d or the
measurements C y of eight examples, reads it in order, and eight sums at a time stay in registers.
"""

from __future__ import annotations

import math
from typing import Any

from numba import njit

from spen.domains import DUAL_LIMIT
from spen.kernels.cpu import PANEL, WIDTH
from spen.kernels.cpu.lanes import (
    absolute,
    choose,
    exponent,
    get,
    if_above,
    larger,
    load,
    load_spread,
    mantissa,
    multiply_add,
    reaches,
    smaller,
    spread,
    store,
    with_exponent,
)
from spen.kernels.interface import KINDS

_PART: dict[str, Any] = {
    "forceinline": True,
    "error_model": "numpy",
    "nogil": True,
    # Python cannot call it then, but it compiles in half the time.
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}
inlined: Any = njit(**_PART)
"""Compiles a part of a kernel into what calls it, which must be compiled code."""

_LOWEST = 1 / (1 + math.exp(DUAL_LIMIT))
_HIGHEST = 1 - _LOWEST
_FULL = 1 - _LOWEST - 2**-24
_LOG_2, _MINUS_LOG2_E, _ROOT_2 = math.log(2), -1 / math.log(2), math.sqrt(2)

_ROUNDER = 1.5 * 2**23
"""Adding it to a float32 leaves the nearest whole number in the last bits."""

_P1, _P2, _P3, _P4, _P5 = 0.69314718, 0.24022107, 0.05550357, 0.00967603, 0.00133909
"""2^f = 1 + P1 f + P2 f² … for f within ±½, to 1e-7: interpolation at Chebyshev's nodes."""

_FAR = 80.0
"""Where e^z is all of 1 + e^z in float32, and e^(−z) is still a number."""

_RELU, _HARDTANH, _SIGMOID, _SQUARE = (
    KINDS[name] for name in ("relu", "hardtanh", "sigmoid", "square")
)


@inlined
def exp_minus(z: Any) -> Any:
    """e^(−z) = 2^(k + f), for z within ±80; nan stays nan."""
    k = multiply_add(z, spread(_MINUS_LOG2_E), spread(_ROUNDER))
    f = multiply_add(z, spread(_MINUS_LOG2_E), spread(_ROUNDER) - k)
    power = multiply_add(f, spread(_P5), spread(_P4))
    power = multiply_add(f, power, spread(_P3))
    power = multiply_add(f, power, spread(_P2))
    power = multiply_add(f, power, spread(_P1))
    power = multiply_add(f, power, spread(1.0))
    return with_exponent(power, k)


@inlined
def sigmoid(z: Any) -> Any:
    """1 / (1 + e^(−z)), for z within ±80, to 1e-7; nan stays nan."""
    return spread(1.0) / (spread(1.0) + exp_minus(z))


@inlined
def log(a: Any) -> Any:
    """The logarithm of m · 2^k > 0: k log 2 + 2 artanh((m − 1) / (m + 1)), m near 1."""
    m, k = mantissa(a), exponent(a)
    large = if_above(m, spread(_ROOT_2), spread(1.0))
    m, k = multiply_add(large, m * spread(-0.5), m), k + large
    s = (m - spread(1.0)) / (m + spread(1.0))
    square = s * s
    series = multiply_add(square, spread(1 / 7), spread(1 / 5))
    series = multiply_add(square, series, spread(1 / 3))
    series = multiply_add(square, series, spread(1.0))
    return multiply_add(k, spread(_LOG_2), (s + s) * series)


@inlined
def logit(y: Any) -> Any:
    """log y − log(1 − y), of y moved inside as the unit box moves it, and full where it is so."""
    inside = larger(smaller(y, spread(_HIGHEST)), spread(_LOWEST))
    dual = log(inside) - log(spread(1.0) - inside)
    return choose(reaches(y, spread(_FULL)), spread(DUAL_LIMIT), dual)


@inlined
def clamp(a: Any, low: float, high: float) -> Any:
    """Bound from below and above; nan stays nan."""
    return larger(smaller(a, spread(high)), spread(low))


@inlined
def value_and_slope(kind: int, z: Any) -> tuple[Any, Any]:
    """g(z) and g'(z) of the nonlinearity that has this number."""
    zero, one = spread(0.0), spread(1.0)
    if kind == _RELU:
        return larger(z, zero), if_above(z, zero, one)
    if kind == _HARDTANH:
        return clamp(z, -1.0, 1.0), if_above(one, absolute(z), one)
    if kind == _SQUARE:
        return z * z, z + z
    near = clamp(z, -_FAR, _FAR)
    share = sigmoid(near)
    if kind == _SIGMOID:
        return share, share * (one - share)
    return larger(z, zero) + log(one + exp_minus(absolute(near))), share


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
