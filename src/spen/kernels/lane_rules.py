"""Step rules in lanes: how far, and along what, each example moves next."""

from __future__ import annotations

from typing import Any, NamedTuple

from spen.kernels.lane_functions import clamp, inlined
from spen.kernels.lanes import (
    above,
    choose,
    larger,
    load,
    multiply_add,
    reaches,
    smaller,
    spread,
    store,
)

SMALLEST_RATE, LARGEST_RATE, FLAT = 1e-30, 1e6, 1e-12
"""As in ``spen.inference.bundle``: bounds of the rate, and the least difference of two slopes."""


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
def gradient_pace(work: Any, settings: Any) -> Any:
    """Heavy ball: η_t = lr / (1 + decay · t)."""
    age = load(work.age, 0)
    moves = reaches(age, spread(0.0))
    rate = spread(settings.lr) / multiply_add(spread(settings.decay), age, spread(1.0))
    rate = choose(moves, rate, spread(0.0))
    momentum = choose(moves, spread(settings.momentum), spread(0.0))
    nothing = spread(0.0)
    return Pace(rate, momentum, nothing, _shrink(work, rate), nothing)


@inlined
def bundle_pace(work: Any, settings: Any, sums: Any) -> Any:
    """The proximal bundle step with two cuts, of ``spen.MirrorBundle``."""
    age, smooth = load(work.age, 0), load(work.smooth, 0)
    begins, goes_on = above(spread(1.0), age), reaches(age, spread(1.0))
    rose = above(load(work.value, 0), load(work.last_value, 0))
    rate = load(work.rate, 0) * choose(rose, spread(settings.shrink), spread(settings.grow))
    rate = choose(begins, spread(settings.reach) / sums.steepest, rate)
    rate = larger(smaller(rate, spread(LARGEST_RATE)), spread(SMALLEST_RATE))
    store(work.rate, 0, rate)
    # How far the cut through the last direction lies below the objective.
    gap = smooth - load(work.cut, 0)
    resistance = spread(1.0) / rate + load(work.tau, 0)
    blend = (sums.along - gap * resistance) / larger(sums.across, spread(FLAT))
    helps = goes_on & above(gap, spread(0.0))
    blend = choose(helps, clamp(blend, 0.0, 1.0), spread(0.0))
    cut = smooth - choose(helps, blend * gap, spread(0.0))
    rate = choose(reaches(age, spread(0.0)), rate, spread(0.0))
    return Pace(rate, spread(0.0), blend, _shrink(work, rate), cut)


@inlined
def _shrink(work: Any, rate: Any) -> Any:
    return spread(1.0) / multiply_add(rate, load(work.tau, 0), spread(1.0))
