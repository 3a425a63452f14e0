"""The descent of eight examples at a time, one in each lane.

When an example ends, the next one takes its lane, so no lane waits for another. What a lane
computes does not depend on its neighbours, not even in the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from spen.domains import DUAL_LIMIT
from spen.kernels.cpu import PANEL, WIDTH, RowTerm
from spen.kernels.cpu.arithmetic import clamp, inlined, logit
from spen.kernels.cpu.lanes import (
    absolute,
    address,
    below,
    choose,
    get,
    larger,
    load,
    offset,
    put,
    reaches,
    spread,
    store,
    take_ticket,
)
from spen.kernels.cpu.steps import (
    AGE,
    BEST,
    CONSTANT,
    LAST_VALUE,
    RATE,
    SMALLEST_RATE,
    TAU,
    VALUE,
    step,
)
from spen.kernels.interface import COMPLETED, CONVERGED, DIVERGED, MAX_STEPS

_ALL = (1 << WIDTH) - 1
_LARGEST = float(np.finfo(np.float32).max)
_TINY_RATE = 2 * SMALLEST_RATE
_LOG_2 = math.log(2)


class Rows(NamedTuple):
    """``Packed`` by address, with the labels and measurements filled up to whole panels."""

    n_labels: int
    size: int
    m: int
    measurements: Any
    readout: Any
    kinds: Any
    bias: RowTerm
    constant: RowTerm
    linear: RowTerm
    quadratic: RowTerm
    tau: RowTerm
    known: RowTerm
    start: RowTerm


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
    ``lanes`` holds nine numbers of each example, where ``steps`` says. ``active`` lists the
    measurements whose slope is not zero in every lane, their number first.
    """

    point: Any
    memory: Any
    y: Any
    other_y: Any
    linear: Any
    quadratic: Any
    known: Any
    gradient: Any
    best_y: Any
    bias: Any
    measured: Any
    slopes: Any
    first_point: Any
    lanes: Any
    row: Any
    active: Any


@inlined
def _by_address(term: Any) -> Any:
    return RowTerm(address(term.entries), term.stride)


@inlined
def _at(term: Any, row: int) -> Any:
    """Return the address of a row's entries."""
    return offset(term.entries, row * term.stride)


@inlined
def _rows_of(packed: Any) -> Any:
    """Return the addresses of packed arrays."""
    return Rows(
        packed.n_labels,
        -(-packed.n_labels // PANEL) * PANEL,
        len(packed.readout),
        address(packed.measurements),
        address(packed.readout),
        address(packed.kinds),
        _by_address(packed.bias),
        _by_address(packed.constant),
        _by_address(packed.linear),
        _by_address(packed.quadratic),
        _by_address(packed.tau),
        _by_address(packed.known),
        _by_address(packed.start),
    )


@inlined
def _make_work(place: Any, size: int, m: int, row: Any) -> Any:
    """Lay out the state of eight examples in a thread's memory.

    Args:
        place: the address of its numbers.
        size: the labels, with those that fill the last panel.
        m: the measurements.
        row: the address of its whole numbers.
    """
    labels, measurements = size * WIDTH, m * WIDTH
    bias = offset(place, 9 * labels)
    first_point = offset(bias, 3 * measurements)
    return Work(
        place,
        offset(place, labels),
        offset(place, 2 * labels),
        offset(place, 3 * labels),
        offset(place, 4 * labels),
        offset(place, 5 * labels),
        offset(place, 6 * labels),
        offset(place, 7 * labels),
        offset(place, 8 * labels),
        bias,
        offset(bias, measurements),
        offset(bias, 2 * measurements),
        first_point,
        offset(first_point, size),
        row,
        offset(row, WIDTH),
    )


@inlined
def find_first_point(work: Any, rows: Any, primal: bool, row: int) -> None:
    """Put the point of a start where ``enter`` takes it from."""
    start = _at(rows.start, row)
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
    if rows.start.stride:
        find_first_point(work, rows, terms.primal, row)
    _to_lane(work.first_point, rows.size, lane, work.point)
    _to_lane(_at(rows.linear, row), labels, lane, work.linear)
    if terms.quadratic:
        _to_lane(_at(rows.quadratic, row), labels, lane, work.quadratic)
    if terms.known:
        _to_lane(_at(rows.known, row), labels, lane, work.known)
    _to_lane(_at(rows.bias, row), rows.m, lane, work.bias)
    for i in range(lane, rows.m * WIDTH, WIDTH):
        # The last example's slopes may make a gradient that is not finite.
        put(work.slopes, i, 0.0)
    constant = get(_at(rows.constant, row), 0)
    if terms.smooth:
        tau = get(_at(rows.tau, row), 0)
        put(work.lanes, TAU + lane, tau)
        # The labels that fill the last panel stay at ½; their entropy is none of ours.
        constant += tau * np.float32(_LOG_2) * np.float32(rows.size - labels)
    put(work.lanes, CONSTANT + lane, constant)
    put(work.row, lane, row)
    put(work.lanes, AGE + lane, -1.0)


@inlined
def keep_last(work: Any, size: int, lane: int, last_y: Any) -> None:
    """Keep the last iterate of a lane: it was the best, and this one is not better."""
    best = offset(work.best_y, lane * size)
    for i in range(size):
        put(best, i, get(last_y, i * WIDTH + lane))


@inlined
def clear_lane(work: Any, rows: Any, lane: int) -> None:
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
    if not fixed and not np.isfinite(get(work.lanes, BEST + lane)):
        # Not even the start was finite; it stands, as nothing is better.
        start, known = _at(rows.start, row), _at(rows.known, row)
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


@inlined
def _step_as_compiled(work: Any, rows: Any, rule: Any, terms: Any, y: Any, last_y: Any) -> Any:
    """Make a step. The usual one, of the bundle rule without further terms, is compiled apart."""
    further = terms.primal or terms.quadratic or terms.known or terms.smooth
    if terms.bundle and not further:
        usual = Terms(False, True, False, False, False)
        return step(work, rows, rule, usual, y, last_y)
    return step(work, rows, rule, terms, y, last_y)


def make_descend(sources: str) -> Callable[..., None]:
    """Return the kernel, not yet compiled.

    Args:
        sources: a digest of the code. Numba finds what it has compiled before by the numbers
            and strings that a function closes over.
    """

    def descend(
        packed: Any,
        rule: Any,
        limits: Any,
        numbers: Any,
        whole_numbers: Any,
        counter: Any,
        y_out: Any,
        energy: Any,
        steps: Any,
        status: Any,
    ) -> None:
        """Minimise the rows whose numbers the counter gives out, and write their answers."""
        _ = sources
        rows = _rows_of(packed)
        work = _make_work(address(numbers), rows.size, rows.m, address(whole_numbers))
        terms = Terms(
            rule.primal,
            rule.reach > 0,
            len(packed.quadratic.entries) > 0,
            len(packed.known.entries) > 0,
            len(packed.tau.entries) > 0,
        )
        if rows.start.stride == 0:
            find_first_point(work, rows, terms.primal, 0)
        for i in range(rows.size * WIDTH if terms.known else 0):
            put(work.known, i, np.nan)
        y, last_y = work.y, work.other_y
        busy, free, best_is_new = 0, _ALL, 0
        while True:
            for lane in range(WIDTH if free else 0):
                if free >> lane & 1:
                    row = take_ticket(address(counter))
                    if row < packed.n_rows:
                        enter(work, rows, terms, lane, row)
                        busy |= 1 << lane
            if not busy:
                return
            y, last_y = last_y, y
            value, moved = _step_as_compiled(work, rows, rule, terms, y, last_y)
            last_value, age = load(work.lanes, VALUE), load(work.lanes, AGE) + spread(1.0)
            store(work.lanes, LAST_VALUE, last_value)
            store(work.lanes, VALUE, value)
            store(work.lanes, AGE, age)

            entered = below(age, spread(0.5))
            finite = reaches(spread(_LARGEST), absolute(value))
            # Written so that a best value of nan, from a bad start, is improved on too.
            better = entered | (finite & ~reaches(value, load(work.lanes, BEST)))
            if limits.fixed:
                # The last iterate is asked for: what is newer is better.
                better = _ALL
            store(work.lanes, BEST, choose(better, value, load(work.lanes, BEST)))
            passed = busy & best_is_new & ~better
            for lane in range(WIDTH if passed else 0):
                if passed >> lane & 1:
                    keep_last(work, rows.size, lane, last_y)
            best_is_new = better

            scale = larger(absolute(value), absolute(last_value))
            settled = below(absolute(value - last_value), spread(limits.objective_rtol) * scale)
            still = below(moved, spread(limits.iterate_atol))
            met = settled & still if limits.both else settled | still
            late = reaches(age, spread(float(limits.max_steps)))
            ended = late if limits.fixed else met | ~finite | late
            free = busy & ~entered & ended
            for lane in range(WIDTH if free else 0):
                if free >> lane & 1:
                    row = get(work.row, lane)
                    new = best_is_new >> lane & 1
                    leave(work, rows, terms, lane, y, new, limits.fixed, address(y_out))
                    energy[row], steps[row] = (
                        get(work.lanes, BEST + lane),
                        np.int64(get(work.lanes, AGE + lane)),
                    )
                    status[row] = CONVERGED if met >> lane & 1 else MAX_STEPS
                    diverged = not finite >> lane & 1
                    if diverged:
                        status[row] = DIVERGED
                    # So small a step means that a slope was infinite, and is remembered.
                    if diverged or (terms.bundle and get(work.lanes, RATE + lane) < _TINY_RATE):
                        clear_lane(work, rows, lane)
                    if limits.fixed:
                        status[row] = COMPLETED
            busy &= ~free

    return descend
