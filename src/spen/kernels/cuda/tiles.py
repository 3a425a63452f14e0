"""Descent on chip, in Triton: a program keeps 16 rows in registers for all of their steps.

The labels of a row are spread over the warps of its program, each with two chunks of them, since
the sizes of tiles are powers of two: 159 labels are 4 × (32 + 8). A warp multiplies its own
columns of C, kept in registers too; the partial measurements meet in shared memory once a step.
Rows that have ended make room for others, a few at a time, until all are done.
"""

# Triton reads these functions; its annotations describe neither its types nor its branches.
# pyright: reportArgumentType=false, reportAssignmentType=false, reportGeneralTypeIssues=false
# pyright: reportOperatorIssue=false, reportPossiblyUnboundVariable=false

import triton
import triton.language as tl

from spen.kernels.cuda.arithmetic import (
    LARGEST_HALF,
    LOG2_E,
    MIXED,
    SQUARE,
    begun,
    both,
    bounded,
    columns,
    dual,
    fetched,
    free_only,
    halves,
    in_halves,
    judged,
    kept,
    largest,
    like_products,
    load_measurements,
    measured,
    mixed,
    moved,
    negative_entropy,
    next_rate,
    nonlinearity,
    over_warps,
    own_energy,
    own_slope,
    product,
    sums,
    unit_of,
)

# Loads and stores, here and in ``fetched``, are made by the thread that works with a number. Triton
# gives neighbouring numbers to neighbouring threads, and then lays them out anew through shared
# memory, where all warps wait for each other. For the few rows that take the places of others at a
# time, that takes longer than it saves.


@triton.jit
def saved(pointer, x, mask, ASSEMBLY: tl.constexpr):
    """Store where the mask says so."""
    if ASSEMBLY:
        tl.inline_asm_elementwise(
            """{
            .reg .pred on;
            setp.ne.b32 on, $3, 0;
            @on st.global.b32 [$1], $2;
            mov.b32 $0, 0;
            }""",
            "=r,l,f,r",
            [pointer.to(tl.int64), x, mask.to(tl.int32)],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )
    else:
        tl.store(pointer, x, mask=mask)


@triton.jit
def saved_count(pointer, x, mask, ASSEMBLY: tl.constexpr):
    """Store whole numbers, in 64 bits, where the mask says so."""
    if ASSEMBLY:
        tl.inline_asm_elementwise(
            """{
            .reg .pred on;
            .reg .b64 wide;
            setp.ne.b32 on, $3, 0;
            cvt.s64.s32 wide, $2;
            @on st.global.b64 [$1], wide;
            mov.b32 $0, 0;
            }""",
            "=r,l,r,r",
            [pointer.to(tl.int64), x, mask.to(tl.int32)],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )
    else:
        tl.store(pointer, x.to(tl.int64), mask=mask)


@triton.jit
def announced(pointer, mask, ASSEMBLY: tl.constexpr):
    """Have the second-level cache fetch what will be loaded soon."""
    if ASSEMBLY:
        tl.inline_asm_elementwise(
            """{
            .reg .pred on;
            setp.ne.b32 on, $2, 0;
            @on prefetch.global.L2 [$1];
            mov.b32 $0, 0;
            }""",
            "=r,l,r",
            [pointer.to(tl.int64), mask.to(tl.int32)],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )


@triton.jit
def _finished(
    done, row, column_1, column_2, inside_1, inside_2, n_labels, best_1, best_2, best, step, ending,
    y_out, energy_out, steps_out, status_out, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """Write the answers of the rows that are done."""
    at = y_out + row[None, :, None] * n_labels
    mine = done[None, :, None]
    saved(at + column_1, best_1, both(mine, inside_1), ASSEMBLY)
    saved(at + column_2, best_2, both(mine, inside_2), ASSEMBLY)
    saved(energy_out + row, best, done, ASSEMBLY)
    saved_count(steps_out + row, step, done, ASSEMBLY)
    saved_count(status_out + row, ending, done, ASSEMBLY)


@triton.jit(do_not_specialize=["n", "n_measurements", "start_stride", "max_steps"])
def descend_tiles(
    linear, quadratic, tau, constant, start, known, measurements, bias, readout, kinds,
    y_out, energy_out, steps_out, status_out,
    n, n_labels, n_measurements, start_stride,
    lr, momentum, decay, reach, grow, shrink, rtol, atol, require_both, max_steps,
    WARPS: tl.constexpr, ROWS: tl.constexpr, WIDTH_1: tl.constexpr, WIDTH_2: tl.constexpr,
    PADDED: tl.constexpr, LINES: tl.constexpr, REFILL: tl.constexpr, KIND: tl.constexpr,
    FOLD: tl.constexpr, FULL: tl.constexpr, BIAS_BY_ROW: tl.constexpr, ONE_START: tl.constexpr,
    ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """Minimise each row of a form; what is absent is None. With a reach it is the bundle rule.

    Each program has a share of the rows, one after the other, for whichever of its slots is free.
    FOLD: a measurement is left over in the padding, and carries a·y through the sum over warps.
    LINES: the memory lines of 32 numbers that a row has at most.
    """
    one_start = tl.load(start)
    one_dual = dual(one_start, ASSEMBLY)
    column_1 = columns(0, WARPS, WIDTH_1)
    column_2 = columns(WARPS * WIDTH_1, WARPS, WIDTH_2)
    inside_1, inside_2 = column_1 < n_labels, column_2 < n_labels
    if FULL:
        inside_1 = None

    # C in halves, each measurement scaled to a largest entry of 1.
    m = tl.arange(0, PADDED)
    real = m < n_measurements
    c_1 = load_measurements(measurements, column_1, n_labels, n_measurements, PADDED)
    c_2 = load_measurements(measurements, column_2, n_labels, n_measurements, PADDED)
    size = tl.maximum(tl.max(tl.max(tl.abs(c_1), 2), 0), tl.max(tl.max(tl.abs(c_2), 2), 0))
    size = tl.where(size > 0, size, 1.0)
    c_high_1, c_low_1 = halves(c_1 / size[None, :, None])
    c_high_2, c_low_2 = halves(c_2 / size[None, :, None])
    c_size = size[None, :]
    weight = tl.load(readout + m, mask=real, other=0.0)[None, :]
    unit = unit_of(weight * c_size)
    inverse = 1.0 / unit
    weight = weight * inverse
    slope_weight = weight * c_size
    kind = m[None, :]
    if KIND == MIXED:
        kind = tl.load(kinds + m, mask=real, other=0)[None, :]
    offset = tl.zeros([ROWS, PADDED], tl.float32)
    if not BIAS_BY_ROW:
        offset += tl.load(bias + m, mask=real, other=0.0)[None, :]

    u_1 = tl.zeros([WARPS, ROWS, WIDTH_1], tl.float32)
    u_2 = tl.zeros([WARPS, ROWS, WIDTH_2], tl.float32)
    y_1, y_2, best_1, best_2, a_1, a_2 = u_1, u_2, u_1, u_2, u_1, u_2
    # Of the last step: its push with momentum; for the bundle rule its slope.
    last_1, last_2 = u_1, u_2
    q_1 = None
    q_2 = None
    if quadratic is not None:
        q_1, q_2 = u_1, u_2

    share = tl.cdiv(n, tl.num_programs(0))
    ahead = tl.program_id(0) * share
    waiting = tl.minimum(share, n - ahead)
    row = tl.full([ROWS], -1, tl.int32)
    running = row >= 0
    step = tl.zeros([ROWS], tl.int32)
    ending = step
    value = tl.zeros([ROWS], tl.float32)
    best, e0, weight_tau, rate, cut = value, value, value, value, value
    descent = tl.zeros([WARPS, ROWS], tl.float32)
    change = descent
    active = 0

    while (active > 0) | (waiting > 0):
        began = 0
        if (waiting > 0) & (ROWS - active >= tl.minimum(REFILL, waiting)):
            began = 1
            place = tl.cumsum(tl.where(running, 0, 1), 0) - 1
            free = (~running) & (place < waiting)
            _finished(
                free & (row >= 0), row, column_1, column_2, inside_1, inside_2, n_labels,
                best_1, best_2, best * unit, step, ending, y_out, energy_out, steps_out, status_out,
                ASSEMBLY,
            )  # fmt: skip
            row = tl.where(free, ahead + place, row)
            taken = tl.minimum(ROWS - active, waiting)
            ahead += taken
            waiting -= taken
            if linear is not None:
                soon = tl.arange(0, ROWS)[:, None]
                line = tl.arange(0, LINES)[None, :] * 32
                coming = (soon < waiting) & (line < n_labels)
                announced(linear + (ahead + soon) * n_labels + line, coming, ASSEMBLY)
            fill = free[None, :, None]
            at = row[None, :, None] * n_labels
            start_at = row[None, :, None] * start_stride
            u_1, y_1, a_1 = begun(
                fill, inside_1, at + column_1, start_at + column_1, u_1, y_1, a_1,
                linear, inverse, start, known, one_start, one_dual, ONE_START, ASSEMBLY,
            )  # fmt: skip
            u_2, y_2, a_2 = begun(
                fill, inside_2, at + column_2, start_at + column_2, u_2, y_2, a_2,
                linear, inverse, start, known, one_start, one_dual, ONE_START, ASSEMBLY,
            )  # fmt: skip
            if quadratic is not None:
                mine_1 = both(fill, inside_1) & like_products(y_1)
                mine_2 = both(fill, inside_2) & like_products(y_2)
                new_1 = fetched(quadratic + at + column_1, mine_1, ASSEMBLY)
                new_2 = fetched(quadratic + at + column_2, mine_2, ASSEMBLY)
                q_1 = tl.where(fill, new_1 * inverse, q_1)
                q_2 = tl.where(fill, new_2 * inverse, q_2)
            if momentum is not None or reach is not None:
                last_1 = tl.where(fill, 0.0, last_1)
                last_2 = tl.where(fill, 0.0, last_2)
            if BIAS_BY_ROW:
                own_at = row[:, None] * n_measurements + m[None, :]
                mine = free[:, None] & real[None, :]
                new_offset = tl.load(bias + own_at, mask=mine, other=0.0)
                offset = tl.where(free[:, None], new_offset, offset)
            if constant is not None:
                new_e0 = tl.load(constant + row, mask=free, other=0.0)
                e0 = tl.where(free, new_e0 * inverse, e0)
            if tau is not None:
                new_tau = tl.load(tau + row, mask=free, other=0.0)
                weight_tau = tl.where(free, new_tau * inverse, weight_tau)
            value = tl.where(free, float("nan"), value)
            step = tl.where(free, 0, step)
            running = running | free

        # The objective at y, and the slopes of its measurements.
        z = tl.zeros([WARPS, ROWS, PADDED], tl.float32)
        z, z_rest = measured(y_1, c_high_1, c_low_1, z, z)
        z, z_rest = measured(y_2, c_high_2, c_low_2, z, z_rest)
        z += z_rest
        own = sums(own_energy(y_1, a_1, q_1), own_energy(y_2, a_2, q_2))
        if FOLD:
            spare = m == PADDED - 1
            z = tl.sum(tl.where(spare[None, None, :], own[:, :, None], z), 0)
            g, slope = nonlinearity(z * c_size + offset, kind, KIND)
            smooth = tl.sum(tl.where(spare[None, :], z, weight * g), 1) + e0
        else:
            g, slope = nonlinearity(tl.sum(z, 0) * c_size + offset, kind, KIND)
            smooth = tl.sum(own, 0) + tl.sum(weight * g, 1) + e0
        new = smooth
        if tau is not None:
            entropy_1 = negative_entropy(kept(y_1, inside_1), ASSEMBLY)
            entropy_2 = negative_entropy(kept(y_2, inside_2), ASSEMBLY)
            new += weight_tau * tl.sum(sums(entropy_1, entropy_2), 0)
        slope = slope * slope_weight
        if KIND >= SQUARE:
            # The slopes of the others are 1 at most.
            slope = bounded(slope, LARGEST_HALF)

        # The gradient.
        g_high, g_low = in_halves(slope, WARPS)
        g_1 = product(g_high, g_low, c_high_1, c_low_1, own_slope(y_1, a_1, q_1))
        g_2 = product(g_high, g_low, c_high_2, c_low_2, own_slope(y_2, a_2, q_2))
        moves = change
        if atol is not None:
            moves = tl.where(change < atol, 0.0, 1.0)
        if reach is not None:
            # How it turns against the slope of the last step.
            n_1, n_2 = g_1 - last_1, g_2 - last_2
            weighted_1, weighted_2 = (y_1 - y_1 * y_1) * n_1, (y_2 - y_2 * y_2) * n_2
            if tau is None:
                pull_1, pull_2 = g_1, g_2
            else:
                pull = weight_tau[None, :, None] * (1.0 / LOG2_E)
                pull_1, pull_2 = g_1 - pull * u_1, g_2 - pull * u_2
            along = sums(weighted_1 * pull_1, weighted_2 * pull_2)
            bend = sums(weighted_1 * n_1, weighted_2 * n_2)
            along, bend, descent_row, moving = over_warps(along, bend, descent, moves)
        else:
            moving = tl.sum(moves, 0)
        still = step < 0
        if atol is not None:
            still = moving == 0.0

        # Who ends, and who is at its best.
        ended, better, code = judged(
            new, value, best, still, step, running, rtol, require_both, max_steps
        )
        ending = tl.where(ended, code, ending)
        best = tl.where(better, new, best)
        best_1 = tl.where(better[None, :, None], y_1, best_1)
        best_2 = tl.where(better[None, :, None], y_2, best_2)
        running = running & ~ended

        # The step.
        if reach is not None:
            steepest = rate
            if began > 0:
                steepest = tl.max(
                    largest(free_only(g_1, u_1, known), free_only(g_2, u_2, known)), 0
                )
            rate = next_rate(rate, new > value, steepest, step == 0, reach, grow, shrink, unit)
            old, cut = mixed(
                smooth, cut + descent_row, along, bend, rate, weight_tau, step == 0, unit, ASSEMBLY
            )
            g_1, g_2 = g_1 - old[None, :, None] * n_1, g_2 - old[None, :, None] * n_2
            last_1, last_2 = g_1, g_2
        elif decay is None:
            rate = tl.zeros([ROWS], tl.float32) + lr * unit
        else:
            rate = lr * unit / (1.0 + decay * step.to(tl.float32))
        scale = (rate * LOG2_E)[None, :, None]
        push_1, push_2 = scale * g_1, scale * g_2
        if momentum is not None:
            push_1, push_2 = push_1 + momentum * last_1, push_2 + momentum * last_2
        less = None
        if tau is not None:
            less = (1.0 / (1.0 + rate * weight_tau))[None, :, None]
        new_u_1, new_1 = moved(u_1, push_1, less, known, ASSEMBLY)
        new_u_2, new_2 = moved(u_2, push_2, less, known, ASSEMBLY)
        if momentum is not None:
            last_1, last_2 = new_u_1 - u_1, new_u_2 - u_2
        moved_1, moved_2 = new_1 - y_1, new_2 - y_2
        if atol is not None:
            change = largest(moved_1, moved_2)
        if reach is not None:
            descent = sums(g_1 * moved_1, g_2 * moved_2)
        u_1, u_2, y_1, y_2, value = new_u_1, new_u_2, new_1, new_2, new
        step = tl.where(running, step + 1, step)
        active = tl.sum(running.to(tl.int32), 0)

    _finished(
        row >= 0, row, column_1, column_2, inside_1, inside_2, n_labels,
        best_1, best_2, best * unit, step, ending, y_out, energy_out, steps_out, status_out,
        ASSEMBLY,
    )  # fmt: skip
