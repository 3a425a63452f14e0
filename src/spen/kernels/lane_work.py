"""The state of eight examples in lanes: how one comes in, and how its answer leaves."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from spen.domains import DUAL_LIMIT
from spen.kernels.lane_functions import clamp, inlined, logit
from spen.kernels.lanes import WIDTH, address, get, load, offset, put, store
from spen.kernels.packing import PANEL, Packed

_LOG_2 = math.log(2)

TILE = 8
"""Panels that are moved and then measured while they are at hand. Sums are taken tile by tile
too, which rounds less."""


class Rows(NamedTuple):
    """``packing.Packed`` by address."""

    n_labels: int
    size: int
    m: int
    measurements: Any
    readout: Any
    kinds: Any
    bias: Any
    bias_stride: int
    constant: Any
    constant_stride: int
    linear: Any
    linear_stride: int
    quadratic: Any
    quadratic_stride: int
    tau: Any
    tau_stride: int
    known: Any
    known_stride: int
    start: Any
    start_stride: int


class Terms(NamedTuple):
    """Which space the steps are made in, and which terms there are.

    Where one is known to be absent when the kernel is compiled, it costs nothing.
    """

    primal: bool
    bundle: bool
    quadratic: bool
    known: bool
    smooth: bool


class Work(NamedTuple):
    """Eight examples, lanes last, so that entry i of lane l is at i · WIDTH + l.

    ``memory`` is what the rule remembers of each label: the point before, or the bundle's
    direction. ``y`` and ``other_y`` take turns as this iterate and the last one.
    ``best_y`` has the lanes first, because it is read and written a lane at a time.
    ``smooth`` is the objective without the entropy. ``active`` lists the measurements whose
    slope is not zero in every lane, their number first.
    """

    point: Any
    memory: Any
    y: Any
    other_y: Any
    linear: Any
    quadratic: Any
    known: Any
    bias: Any
    measured: Any
    slopes: Any
    gradient: Any
    best_y: Any
    first_point: Any
    constant: Any
    tau: Any
    value: Any
    last_value: Any
    smooth: Any
    cut: Any
    rate: Any
    best: Any
    age: Any
    row: Any
    active: Any


@inlined
def rows_of(packed: Any) -> Any:
    """Return the addresses of packed arrays."""
    return Rows(
        packed.n_labels,
        -(-packed.n_labels // PANEL) * PANEL,
        len(packed.readout),
        address(packed.measurements),
        address(packed.readout),
        address(packed.kinds),
        address(packed.bias),
        packed.bias_stride,
        address(packed.constant),
        packed.constant_stride,
        address(packed.linear),
        packed.linear_stride,
        address(packed.quadratic),
        packed.quadratic_stride,
        address(packed.tau),
        packed.tau_stride,
        address(packed.known),
        packed.known_stride,
        address(packed.start),
        packed.start_stride,
    )


def work_memory(packed: Packed) -> tuple[np.ndarray, np.ndarray]:
    """Return what one thread works in: numbers, and whole numbers."""
    size, m = -(-packed.n_labels // PANEL) * PANEL, len(packed.readout)
    numbers = (9 * size + 3 * m + 9) * WIDTH + size
    return np.zeros(numbers, np.float32), np.zeros(WIDTH + 1 + m, np.int64)


@inlined
def make_work(place: Any, size: int, m: int, row: Any) -> Any:
    """Lay out the state in ``work_memory``.

    Args:
        place: the address of its numbers.
        size: the labels, with those that fill the last panel.
        m: the measurements.
        row: the address of its whole numbers.
    """
    entries = size * WIDTH
    point = place
    memory = offset(point, entries)
    y = offset(memory, entries)
    other_y = offset(y, entries)
    linear = offset(other_y, entries)
    quadratic = offset(linear, entries)
    known = offset(quadratic, entries)
    bias = offset(known, entries)
    measured = offset(bias, m * WIDTH)
    slopes = offset(measured, m * WIDTH)
    gradient = offset(slopes, m * WIDTH)
    best_y = offset(gradient, entries)
    first_point = offset(best_y, entries)
    constant = offset(first_point, size)
    tau = offset(constant, WIDTH)
    value = offset(tau, WIDTH)
    last_value = offset(value, WIDTH)
    smooth = offset(last_value, WIDTH)
    cut = offset(smooth, WIDTH)
    rate = offset(cut, WIDTH)
    best = offset(rate, WIDTH)
    age = offset(best, WIDTH)
    return Work(
        point,
        memory,
        y,
        other_y,
        linear,
        quadratic,
        known,
        bias,
        measured,
        slopes,
        gradient,
        best_y,
        first_point,
        constant,
        tau,
        value,
        last_value,
        smooth,
        cut,
        rate,
        best,
        age,
        row,
        offset(row, WIDTH),
    )


@inlined
def find_first_point(work: Any, rows: Any, primal: bool, row: int) -> None:
    """Put the point of a start where ``enter`` takes it from."""
    start = offset(rows.start, row * rows.start_stride)
    for label in range(rows.size):
        put(work.first_point, label, 0.5)
    for label in range(rows.n_labels):
        put(work.first_point, label, get(start, label))
    if not primal:
        for label in range(0, rows.size, WIDTH):
            dual = logit(load(work.first_point, label))
            store(work.first_point, label, clamp(dual, -DUAL_LIMIT, DUAL_LIMIT))


@inlined
def _to_lane(row: Any, count: int, lane: int, out: Any) -> None:
    out = offset(out, lane)
    for i in range(count):
        put(out, i * WIDTH, get(row, i))


@inlined
def enter(work: Any, rows: Any, terms: Any, lane: int, row: int) -> None:
    """Bring an example into a lane. Its age of −1 says that it is to be evaluated first."""
    labels = rows.n_labels
    if rows.start_stride:
        find_first_point(work, rows, terms.primal, row)
    _to_lane(work.first_point, rows.size, lane, work.point)
    _to_lane(offset(rows.linear, row * rows.linear_stride), labels, lane, work.linear)
    if terms.quadratic:
        _to_lane(offset(rows.quadratic, row * rows.quadratic_stride), labels, lane, work.quadratic)
    if terms.known:
        _to_lane(offset(rows.known, row * rows.known_stride), labels, lane, work.known)
    _to_lane(offset(rows.bias, row * rows.bias_stride), rows.m, lane, work.bias)
    for i in range(lane, rows.m * WIDTH, WIDTH):
        # The last example's slopes may make a gradient that is not finite.
        put(work.slopes, i, 0.0)
    constant = get(rows.constant, row * rows.constant_stride)
    if terms.smooth:
        tau = get(rows.tau, row * rows.tau_stride)
        put(work.tau, lane, tau)
        # The labels that fill the last panel stay at ½; their entropy is none of ours.
        constant += tau * np.float32(_LOG_2) * np.float32(rows.size - labels)
    put(work.constant, lane, constant)
    put(work.row, lane, row)
    put(work.age, lane, -1.0)


@inlined
def keep_last(work: Any, size: int, lane: int, last_y: Any) -> None:
    """Keep the last iterate of a lane: it was the best, and this one is not better."""
    best = offset(work.best_y, lane * size)
    for i in range(size):
        put(best, i, get(last_y, i * WIDTH + lane))


@inlined
def wipe(work: Any, rows: Any, lane: int) -> None:
    """Remove what is not finite from a lane: not even zero times it is zero."""
    for i in range(lane, rows.size * WIDTH, WIDTH):
        put(work.point, i, 0.0)
        put(work.memory, i, 0.0)
        put(work.y, i, 0.0)
        put(work.other_y, i, 0.0)


@inlined
def leave(
    work: Any, rows: Any, terms: Any, lane: int, y: Any, is_new: bool, fixed: bool, out: Any
) -> None:
    """Write the best iterate of a lane, which is the new one or the one kept, to its row.

    After a fixed number of steps it is the new one, whatever it holds.
    """
    row = get(work.row, lane)
    out = offset(out, row * rows.n_labels)
    if not fixed and not np.isfinite(get(work.best, lane)):
        # Not even the start was finite; it stands, as nothing is better.
        start = offset(rows.start, row * rows.start_stride)
        known = offset(rows.known, row * rows.known_stride)
        for i in range(rows.n_labels):
            held = terms.known and not np.isnan(get(known, i))
            put(out, i, get(known, i) if held else get(start, i))
    elif is_new:
        for i in range(rows.n_labels):
            put(out, i, get(y, i * WIDTH + lane))
    else:
        best = offset(work.best_y, lane * rows.size)
        for i in range(rows.n_labels):
            put(out, i, get(best, i))
