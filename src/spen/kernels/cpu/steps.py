"""One step of eight examples: the gradient, how far each moves next, and the objective there."""

from __future__ import annotations

from typing import Any, NamedTuple

from spen.domains import DUAL_LIMIT
from spen.kernels.cpu import PANEL, WIDTH
from spen.kernels.cpu.arithmetic import (
    clamp,
    inlined,
    log,
    logit,
    measure,
    panel_gradient,
    sigmoid,
    value_and_slope,
)
from spen.kernels.cpu.lanes import (
    above,
    absolute,
    choose,
    get,
    if_nan,
    larger,
    load,
    load_spread,
    multiply_add,
    put,
    reaches,
    smaller,
    spread,
    store,
)

CONSTANT, TAU, VALUE, LAST_VALUE, SMOOTH, CUT, RATE, BEST, AGE = range(0, 9 * WIDTH, WIDTH)
"""Where the numbers of each example are in ``Work.lanes``. SMOOTH is the objective without the
entropy, CUT what the bundle's cut says of it."""

TILE = 8
"""Panels that are moved and then measured while they are at hand. Sums are taken tile by tile
too, which rounds less."""

SMALLEST_RATE, LARGEST_RATE, FLAT = 1e-30, 1e6, 1e-12
"""As in ``spen.inference.rules``: bounds of the rate, and the least difference of two slopes."""


class Sums(NamedTuple):
    """Sums over the labels of what the bundle rule asks of the gradient g.

    With d the direction of the last step, n = g − d and W = y (1 − y).

    Attributes:
        along: Σ W n (g + τ θ).
        across: Σ W n².
        steepest: max |g|.
    """

    along: Any
    across: Any
    steepest: Any


class Pace(NamedTuple):
    """The step of each lane; no step where an example has only to be evaluated.

    Attributes:
        rate: η.
        momentum: what is added of the last move, by the gradient rule.
        blend: β, the share of the last direction in the next, by the bundle rule.
        shrink: 1 / (1 + η τ).
        cut: what the bundle's cut says of the smooth objective at y, before the step.
    """

    rate: Any
    momentum: Any
    blend: Any
    shrink: Any
    cut: Any


@inlined
def gradient_pace(work: Any, rule: Any) -> Any:
    """Heavy ball: η_t = lr / (1 + decay · t)."""
    age = load(work.lanes, AGE)
    moves = reaches(age, spread(0.0))
    rate = spread(rule.lr) / multiply_add(spread(rule.decay), age, spread(1.0))
    rate = choose(moves, rate, spread(0.0))
    momentum = choose(moves, spread(rule.momentum), spread(0.0))
    nothing = spread(0.0)
    return Pace(rate, momentum, nothing, _shrink(work, rate), nothing)


@inlined
def bundle_pace(work: Any, rule: Any, sums: Any) -> Any:
    """The proximal bundle step with two cuts, of ``spen.MirrorBundle``."""
    age, smooth = load(work.lanes, AGE), load(work.lanes, SMOOTH)
    begins, goes_on = above(spread(1.0), age), reaches(age, spread(1.0))
    rose = above(load(work.lanes, VALUE), load(work.lanes, LAST_VALUE))
    rate = load(work.lanes, RATE) * choose(rose, spread(rule.shrink), spread(rule.grow))
    rate = choose(begins, spread(rule.reach) / sums.steepest, rate)
    rate = larger(smaller(rate, spread(LARGEST_RATE)), spread(SMALLEST_RATE))
    store(work.lanes, RATE, rate)
    # How far the cut through the last direction lies below the objective.
    gap = smooth - load(work.lanes, CUT)
    resistance = spread(1.0) / rate + load(work.lanes, TAU)
    blend = (sums.along - gap * resistance) / larger(sums.across, spread(FLAT))
    helps = goes_on & above(gap, spread(0.0))
    blend = choose(helps, clamp(blend, 0.0, 1.0), spread(0.0))
    cut = smooth - choose(helps, blend * gap, spread(0.0))
    rate = choose(reaches(age, spread(0.0)), rate, spread(0.0))
    return Pace(rate, spread(0.0), blend, _shrink(work, rate), cut)


@inlined
def _shrink(work: Any, rate: Any) -> Any:
    return spread(1.0) / multiply_add(rate, load(work.lanes, TAU), spread(1.0))


@inlined
def _complete_gradient(work: Any, terms: Any, y: Any, first: int, last: int) -> None:
    """Add to the gradient of some labels what does not come from the measurements."""
    for label in range(first, last):
        at = label * WIDTH
        g, share = load(work.gradient, at), load(y, at)
        if terms.quadratic:
            g = multiply_add(load(work.quadratic, at), share, g)
        if terms.primal and terms.smooth:
            g = multiply_add(load(work.lanes, TAU), logit(share), g)
        if terms.known:
            g = if_nan(load(work.known, at), g, spread(0.0))
        store(work.gradient, at, g)


@inlined
def _compare_slopes(work: Any, terms: Any, y: Any, first: int, last: int) -> Any:
    """Return what some labels add to the sums of the bundle rule."""
    along = across = other_along = other_across = steepest = spread(0.0)
    for pair in range(first, last, 2):
        for label in range(pair, pair + 2):
            at = label * WIDTH
            g, share = load(work.gradient, at), load(y, at)
            n = g - load(work.memory, at)
            weighed = n * (share - share * share)
            pull = g
            if terms.smooth:
                pull = multiply_add(load(work.lanes, TAU), load(work.point, at), g)
            # Two sums in turn, because each addition waits for the one before.
            along, other_along = other_along, multiply_add(weighed, pull, along)
            across, other_across = other_across, multiply_add(weighed, n, across)
            steepest = larger(steepest, absolute(g))
    return along + other_along, across + other_across, steepest


@inlined
def _find_gradient(work: Any, rows: Any, terms: Any, y: Any) -> Any:
    """Write the gradient at y, and return the sums that the rule asks for."""
    along = across = steepest = spread(0.0)
    panels = rows.size // PANEL
    for start in range(0, panels, TILE):
        stop = min(start + TILE, panels)
        for panel in range(start, stop):
            panel_gradient(
                rows.measurements,
                work.slopes,
                work.active,
                work.linear,
                work.gradient,
                panel,
                rows.m,
            )
        first, last = start * PANEL, stop * PANEL
        if terms.quadratic or terms.known or (terms.primal and terms.smooth):
            _complete_gradient(work, terms, y, first, last)
        if terms.bundle:
            more_along, more_across, steep = _compare_slopes(work, terms, y, first, last)
            along, across = along + more_along, across + more_across
            steepest = larger(steepest, steep)
    return Sums(along, across, steepest)


# The move of a tile takes three loops over its labels rather than one, because a processor looks
# only so far ahead: what one label computes is a long chain, and short ones overlap better.


@inlined
def _held(work: Any, y: Any, at: int) -> Any:
    known = load(work.known, at)
    return if_nan(known, y, known)


@inlined
def _move_points(work: Any, terms: Any, pace: Any, first: int, last: int) -> None:
    """Make the step of some labels in the rule's space."""
    for label in range(first, last):
        at = label * WIDTH
        point, g, memory = load(work.point, at), load(work.gradient, at), load(work.memory, at)
        if terms.bundle:
            direction = multiply_add(pace.blend, memory - g, g)
            store(work.memory, at, direction)
            moved = point - pace.rate * direction
        else:
            store(work.memory, at, point)
            moved = multiply_add(pace.momentum, point - memory, point) - pace.rate * g
        if terms.primal:
            moved = clamp(moved, 0.0, 1.0)
            if terms.known:
                moved = _held(work, moved, at)
        else:
            if terms.smooth:
                moved = moved * pace.shrink
            moved = clamp(moved, -DUAL_LIMIT, DUAL_LIMIT)
        store(work.point, at, moved)


@inlined
def _map_points(work: Any, terms: Any, y: Any, first: int, last: int) -> None:
    """Write the y of some points."""
    for label in range(first, last):
        at = label * WIDTH
        share = load(work.point, at)
        if not terms.primal:
            share = sigmoid(share)
            if terms.known:
                share = _held(work, share, at)
        store(y, at, share)


@inlined
def _sum_up(work: Any, terms: Any, y: Any, last_y: Any, first: int, last: int) -> Any:
    """Return what some labels add to the objective without the entropy, to minus the entropy and
    to direction · (y − last_y), and the largest move of a label."""
    energy = entropy = descent = furthest = other_energy = other_descent = spread(0.0)
    factors = spread(1.0)
    for pair in range(first, last, 2):
        for label in range(pair, pair + 2):
            at = label * WIDTH
            share, each = load(y, at), load(work.linear, at)
            change = share - load(last_y, at)
            furthest = larger(furthest, absolute(change))
            if terms.quadratic:
                each = multiply_add(load(work.quadratic, at), spread(0.5) * share, each)
            energy, other_energy = other_energy, multiply_add(each, share, energy)
            if terms.bundle:
                product = multiply_add(load(work.memory, at), change, descent)
                descent, other_descent = other_descent, product
            if terms.smooth:
                # −H(y) = log max(y, 1 − y) − |θ| min(y, 1 − y), with one logarithm for a tile.
                other = spread(1.0) - share
                dual = absolute(logit(share) if terms.primal else load(work.point, at))
                entropy = entropy - dual * smaller(share, other)
                factors = factors * larger(share, other)
    if terms.smooth:
        entropy = entropy + log(factors)
    return energy + other_energy, entropy, descent + other_descent, furthest


@inlined
def _move(work: Any, rows: Any, terms: Any, pace: Any, y: Any, last_y: Any) -> Any:
    """Make the step, and measure where it leads, a tile at a time."""
    energy, entropy = load(work.lanes, CONSTANT), spread(0.0)
    cut, furthest = pace.cut, spread(0.0)
    for k in range(rows.m):
        store(work.measured, k * WIDTH, load(work.bias, k * WIDTH))
    panels = rows.size // PANEL
    for start in range(0, panels, TILE):
        stop = min(start + TILE, panels)
        first, last = start * PANEL, stop * PANEL
        _move_points(work, terms, pace, first, last)
        _map_points(work, terms, y, first, last)
        share, mixed, down, moved = _sum_up(work, terms, y, last_y, first, last)
        energy, entropy, cut = energy + share, entropy + mixed, cut + down
        furthest = larger(furthest, moved)
        measure(rows.measurements, y, work.measured, start, stop, rows.m)
    return energy, entropy, cut, furthest


@inlined
def _evaluate_measurements(work: Any, rows: Any) -> Any:
    """Return c·g(z), write its slopes, and list the measurements where one is not zero.

    Most ReLUs of a trained energy are off in all lanes, and their part of C need not be read.
    """
    value, count = spread(0.0), 0
    for k in range(rows.m):
        readout = load_spread(rows.readout, k)
        g, slope = value_and_slope(get(rows.kinds, k), load(work.measured, k * WIDTH))
        value, slope = multiply_add(readout, g, value), readout * slope
        store(work.slopes, k * WIDTH, slope)
        if above(absolute(slope), spread(0.0)):
            count += 1
            put(work.active, count, k)
    put(work.active, 0, count)
    return value


@inlined
def step(work: Any, rows: Any, rule: Any, terms: Any, y: Any, last_y: Any) -> Any:
    """Make one step in every lane, from last_y to y; return the objective, and the largest move."""
    sums = _find_gradient(work, rows, terms, last_y)
    pace = bundle_pace(work, rule, sums) if terms.bundle else gradient_pace(work, rule)
    energy, entropy, cut, furthest = _move(work, rows, terms, pace, y, last_y)
    energy = energy + _evaluate_measurements(work, rows)
    store(work.lanes, SMOOTH, energy)
    store(work.lanes, CUT, cut)
    if terms.smooth:
        energy = multiply_add(load(work.lanes, TAU), entropy, energy)
    return energy, furthest
