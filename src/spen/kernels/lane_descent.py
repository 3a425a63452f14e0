"""The descent of eight examples at a time, one in each lane.

When an example ends, the next one takes its lane, so no lane waits for another. What a lane
computes does not depend on its neighbours, not even in the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from spen.kernels.interface import COMPLETED, CONVERGED, DIVERGED, MAX_STEPS
from spen.kernels.lane_functions import inlined
from spen.kernels.lane_rules import SMALLEST_RATE
from spen.kernels.lane_step import step
from spen.kernels.lane_work import (
    Terms,
    enter,
    find_first_point,
    keep_last,
    leave,
    make_work,
    rows_of,
    wipe,
)
from spen.kernels.lanes import (
    WIDTH,
    absolute,
    address,
    below,
    choose,
    get,
    larger,
    load,
    put,
    reaches,
    spread,
    store,
    take_ticket,
)

_ALL = (1 << WIDTH) - 1
_LARGEST = float(np.finfo(np.float32).max)
_TINY_RATE = 2 * SMALLEST_RATE


@inlined
def _step_as_compiled(work: Any, rows: Any, settings: Any, terms: Any, y: Any, last_y: Any) -> Any:
    """Make a step. The usual one, of the bundle rule without further terms, is compiled apart."""
    further = terms.primal or terms.quadratic or terms.known or terms.smooth
    if terms.bundle and not further:
        usual = Terms(False, True, False, False, False)
        return step(work, rows, settings, usual, y, last_y)
    return step(work, rows, settings, terms, y, last_y)


def make_descend(sources: str) -> Callable[..., None]:
    """Return the kernel, not yet compiled.

    Args:
        sources: a digest of the code. Numba finds what it has compiled before by the numbers
            and strings that a function closes over.
    """

    def descend(
        packed: Any,
        settings: Any,
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
        rows = rows_of(packed)
        work = make_work(address(numbers), rows.size, rows.m, address(whole_numbers))
        terms = Terms(
            settings.primal,
            settings.bundle,
            len(packed.quadratic) > 0,
            len(packed.known) > 0,
            len(packed.tau) > 0,
        )
        if rows.start_stride == 0:
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
            value, moved = _step_as_compiled(work, rows, settings, terms, y, last_y)
            last_value, age = load(work.value, 0), load(work.age, 0) + spread(1.0)
            store(work.last_value, 0, last_value)
            store(work.value, 0, value)
            store(work.age, 0, age)

            entered = below(age, spread(0.5))
            finite = reaches(spread(_LARGEST), absolute(value))
            # Written so that a best value of nan, from a bad start, is improved on too.
            better = entered | (finite & ~reaches(value, load(work.best, 0)))
            if settings.fixed:
                # The last iterate is asked for: what is newer is better.
                better = _ALL
            store(work.best, 0, choose(better, value, load(work.best, 0)))
            passed = busy & best_is_new & ~better
            for lane in range(WIDTH if passed else 0):
                if passed >> lane & 1:
                    keep_last(work, rows.size, lane, last_y)
            best_is_new = better

            scale = larger(absolute(value), absolute(last_value))
            settled = below(absolute(value - last_value), spread(settings.objective_rtol) * scale)
            met = settled | below(moved, spread(settings.iterate_atol))
            late = reaches(age, spread(float(settings.max_steps)))
            ended = late if settings.fixed else met | ~finite | late
            free = busy & ~entered & ended
            for lane in range(WIDTH if free else 0):
                if free >> lane & 1:
                    row = get(work.row, lane)
                    new = best_is_new >> lane & 1
                    leave(work, rows, terms, lane, y, new, settings.fixed, address(y_out))
                    energy[row], steps[row] = get(work.best, lane), np.int64(get(work.age, lane))
                    status[row] = CONVERGED if met >> lane & 1 else MAX_STEPS
                    diverged = not finite >> lane & 1
                    if diverged:
                        status[row] = DIVERGED
                    # So small a step means that a slope was infinite, and is remembered.
                    if diverged or (terms.bundle and get(work.rate, lane) < _TINY_RATE):
                        wipe(work, rows, lane)
                    if settings.fixed:
                        status[row] = COMPLETED
            busy &= ~free

    return descend
