"""Descent with the state in memory, in Triton: C passes by in tiles, for any number of labels.

A program takes 16 rows through passes over the labels. Its slots keep u and what the rule
remembers of each row in memory, which stays in the GPU's cache; a slot whose row has ended takes
the next one in the same pass that saves the last.
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
    bounded,
    dual,
    first_iterate,
    free_only,
    halves,
    in_halves,
    judged,
    mixed,
    moved,
    negative_entropy,
    next_rate,
    nonlinearity,
    product,
)


@triton.jit
def _tile_of(c_high, c_low, tile, WARPS: tl.constexpr, CHUNK: tl.constexpr, WIDTH: tl.constexpr):
    """Load one tile of C in halves, (warps, measurements, width)."""
    warp = tl.arange(0, WARPS)[:, None, None] * (CHUNK * WIDTH)
    within = tl.arange(0, CHUNK)[None, :, None] * WIDTH + tl.arange(0, WIDTH)[None, None, :]
    at = tile * (WARPS * CHUNK * WIDTH) + warp + within
    return tl.load(c_high + at), tl.load(c_low + at)


@triton.jit
def _measured(y, c_high, c_low, tile, total, WARPS: tl.constexpr):
    """Return total + C y of a tile of labels and a chunk of measurements."""
    high, low = _tile_of(c_high, c_low, tile, WARPS, total.shape[2], y.shape[2])
    high, low = tl.permute(high, (0, 2, 1)), tl.permute(low, (0, 2, 1))
    y_high, y_low = halves(y)
    return product(y_high, y_low, high, low, total)


@triton.jit
def _evaluated(
    z, unit, bias, readout, kinds, c_size, row, active, first, n_measurements,
    CHUNK: tl.constexpr, KIND: tl.constexpr, BIAS_BY_ROW: tl.constexpr,
):  # fmt: skip
    """Return the energy of a chunk of measurements, and their slopes in units."""
    m = first + tl.arange(0, CHUNK)
    real = m < n_measurements
    weight = tl.load(readout + m, mask=real, other=0.0)[None, :]
    size = tl.load(c_size + m, mask=real, other=1.0)[None, :]
    if BIAS_BY_ROW:
        at = row[:, None] * n_measurements + m[None, :]
        offset = tl.load(bias + at, mask=active[:, None] & real[None, :], other=0.0)
    else:
        offset = tl.load(bias + m, mask=real, other=0.0)[None, :]
    kind = m[None, :]
    if KIND == MIXED:
        kind = tl.load(kinds + m, mask=real, other=0)[None, :]
    g, slope = nonlinearity(z * size + offset, kind, KIND)
    return tl.sum(weight * g, 1), bounded(slope * weight * size / unit, LARGEST_HALF)


@triton.jit(do_not_specialize=["n", "n_measurements", "start_stride", "max_steps", "n_tiles"])
def descend_streams(
    linear, quadratic, tau, constant, start, known, c_high, c_low, c_size, unit, bias, readout,
    kinds, u_slots, last_slots, g_slots, y_slots, slope_slots,
    y_out, energy_out, steps_out, status_out,
    n, n_labels, n_measurements, start_stride,
    lr, momentum, decay, reach, grow, shrink, rtol, atol, require_both, max_steps, n_tiles,
    WARPS: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr, KIND: tl.constexpr, BIAS_BY_ROW: tl.constexpr,
    ONE_START: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """Minimise each row of a form; what is absent is None. With a reach it is the bundle rule."""
    one_start = tl.load(start)
    unit = tl.load(unit)
    offset = tl.arange(0, WARPS)[:, None, None] * WIDTH + tl.arange(0, WIDTH)[None, None, :]
    slot = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    slot_at = slot[None, :, None] * (n_tiles * WARPS * WIDTH)
    slope_at = slot[:, None] * (CHUNK * CHUNKS) + tl.arange(0, CHUNK)[None, :]
    stride = tl.num_programs(0) * ROWS
    row = slot - stride
    running = row >= n
    pending, rose = running, running
    value = tl.zeros([ROWS], tl.float32)
    smooth, best, rate, promised, weight_tau = value, value, value, value, value
    step = tl.zeros([ROWS], tl.int32)
    free = row + stride < n
    work = tl.sum(free.to(tl.int32), 0)

    while work > 0:
        old_at = row[None, :, None] * n_labels
        row = tl.where(free, row + stride, row)
        row_at = row[None, :, None] * n_labels
        active = running | free
        # The rows that run are at their iterate number ``step``, and make the next step.
        later = running & (step > 0)
        if tau is not None:
            weight_tau = tl.load(tau + row, mask=active, other=0.0)

        # First the gradient, and for the bundle rule how it turns against the last slope.
        along = tl.zeros([WARPS, ROWS], tl.float32)
        bend, steepest = along, along
        for tile in range(0, n_tiles):
            column = tile * (WARPS * WIDTH) + offset
            inside = column < n_labels
            going = running[None, :, None] & inside
            y = tl.load(y_slots + slot_at + column, mask=going, other=0.5)
            g = tl.zeros([WARPS, ROWS, WIDTH], tl.float32)
            if linear is not None:
                g = tl.load(linear + row_at + column, mask=going, other=0.0)
            if quadratic is not None:
                g += y * tl.load(quadratic + row_at + column, mask=going, other=0.0)
            pushed = tl.zeros([WARPS, ROWS, WIDTH], tl.float32)
            for chunk in range(0, CHUNKS):
                c_tile_high, c_tile_low = _tile_of(
                    c_high, c_low, tile * CHUNKS + chunk, WARPS, CHUNK, WIDTH
                )
                high, low = in_halves(tl.load(slope_slots + slope_at + chunk * CHUNK), WARPS)
                pushed = product(high, low, c_tile_high, c_tile_low, pushed)
            g += unit * pushed
            tl.store(g_slots + slot_at + column, g, mask=going)
            if reach is not None:
                after = later[None, :, None] & inside
                turn = g - tl.load(last_slots + slot_at + column, mask=after, other=0.0)
                weighted = (y - y * y) * turn
                u = tl.load(u_slots + slot_at + column, mask=going, other=0.0)
                pull = g
                if tau is not None:
                    pull = g - u * (weight_tau * (1.0 / LOG2_E))[None, :, None]
                along += tl.sum(weighted * pull, 2)
                bend += tl.sum(weighted * turn, 2)
                steepest = tl.maximum(steepest, tl.max(tl.abs(free_only(g, u, known)), 2))
        # What one pass writes the next one reads, perhaps in other threads.
        tl.debug_barrier()

        old = tl.zeros([ROWS], tl.float32)
        if reach is not None:
            rate = next_rate(rate, rose, tl.max(steepest, 0), step == 0, reach, grow, shrink, 1.0)
            old, promised = mixed(
                smooth, promised, tl.sum(along, 0), tl.sum(bend, 0), rate, weight_tau, step == 0,
                1.0, ASSEMBLY,
            )  # fmt: skip
        elif decay is None:
            rate = tl.zeros([ROWS], tl.float32) + lr
        else:
            rate = lr / (1.0 + decay * step.to(tl.float32))
        scale = (rate * LOG2_E)[None, :, None]
        less = None
        if tau is not None:
            less = (1.0 / (1.0 + rate * weight_tau))[None, :, None]

        # Then the step; iterates that were the best are saved, and new rows begin.
        z = tl.zeros([WARPS, ROWS, CHUNK], tl.float32)
        own = tl.zeros([WARPS, ROWS], tl.float32)
        entropy, change, descent = own, own, own
        for tile in range(0, n_tiles):
            column = tile * (WARPS * WIDTH) + offset
            inside = column < n_labels
            fresh = free[None, :, None]
            going = running[None, :, None] & inside
            filled = fresh & inside
            on = active[None, :, None] & inside
            saved = pending[None, :, None] & inside

            y = tl.load(y_slots + slot_at + column, mask=going | saved, other=0.5)
            tl.store(y_out + old_at + column, y, mask=saved)
            u = tl.load(u_slots + slot_at + column, mask=going, other=0.0)
            g = tl.load(g_slots + slot_at + column, mask=going, other=0.0)
            if momentum is not None or reach is not None:
                after = later[None, :, None] & inside
                last = tl.load(last_slots + slot_at + column, mask=after, other=0.0)
            if reach is not None:
                g -= old[None, :, None] * (g - last)
            push = scale * g
            if momentum is not None:
                push += momentum * last
            new_u, new_y = moved(u, push, less, known, ASSEMBLY)
            descent += tl.sum(g * (new_y - y), 2)
            change = tl.maximum(change, tl.max(tl.abs(new_y - y), 2))
            if momentum is not None:
                tl.store(last_slots + slot_at + column, new_u - u, mask=going)
            if reach is not None:
                tl.store(last_slots + slot_at + column, g, mask=going)

            start_at = row[None, :, None] * start_stride
            first_u, first_y = first_iterate(
                filled, inside, row_at + column, start_at + column, new_u, start, known,
                one_start, dual(one_start, ASSEMBLY), ONE_START, False, ASSEMBLY,
            )  # fmt: skip
            new_u, new_y = tl.where(fresh, first_u, new_u), tl.where(fresh, first_y, new_y)
            tl.store(u_slots + slot_at + column, new_u, mask=on)
            tl.store(y_slots + slot_at + column, new_y, mask=on)
            a = tl.zeros([WARPS, ROWS, WIDTH], tl.float32)
            if linear is not None:
                a = tl.load(linear + row_at + column, mask=on, other=0.0)
            if quadratic is not None:
                a += 0.5 * new_y * tl.load(quadratic + row_at + column, mask=on, other=0.0)
            own += tl.sum(a * new_y, 2)
            if tau is not None:
                entropy += tl.sum(negative_entropy(tl.where(inside, new_y, 0.0), ASSEMBLY), 2)
            if CHUNKS == 1:
                z = _measured(new_y, c_high, c_low, tile, z, WARPS)
        tl.debug_barrier()

        # The objective there, in more passes where the measurements are too many for one.
        smooth = tl.sum(own, 0)
        for chunk in range(0, CHUNKS):
            if CHUNKS > 1:
                z = tl.zeros([WARPS, ROWS, CHUNK], tl.float32)
                for tile in range(0, n_tiles):
                    column = tile * (WARPS * WIDTH) + offset
                    on = active[None, :, None] & (column < n_labels)
                    y = tl.load(y_slots + slot_at + column, mask=on, other=0.0)
                    z = _measured(y, c_high, c_low, tile * CHUNKS + chunk, z, WARPS)
            energy, slope = _evaluated(
                tl.sum(z, 0), unit, bias, readout, kinds, c_size, row, active, chunk * CHUNK,
                n_measurements, CHUNK, KIND, BIAS_BY_ROW,
            )  # fmt: skip
            smooth += energy
            tl.store(slope_slots + slope_at + chunk * CHUNK, slope)
        tl.debug_barrier()
        if constant is not None:
            smooth += tl.load(constant + row, mask=active, other=0.0)
        new = smooth + weight_tau * tl.sum(entropy, 0)
        promised += tl.sum(descent, 0)

        step = tl.where(free, 0, step + 1)
        value = tl.where(free, float("nan"), value)
        still = step < 0
        if atol is not None:
            still = tl.max(change, 0) < atol
        ended, better, code = judged(
            new, value, best, still, step, active, rtol, require_both, max_steps
        )
        rose = new > value
        best = tl.where(better, new, best)
        value = new
        pending = better
        tl.store(energy_out + row, best, mask=ended)
        tl.store(steps_out + row, step.to(tl.int64), mask=ended)
        tl.store(status_out + row, code.to(tl.int64), mask=ended)
        running = active & ~ended
        free = (~running) & (row + stride < n)
        work = tl.sum((running | free).to(tl.int32), 0)

    for tile in range(0, n_tiles):
        column = tile * (WARPS * WIDTH) + offset
        saved = pending[None, :, None] & (column < n_labels)
        y = tl.load(y_slots + slot_at + column, mask=saved, other=0.0)
        tl.store(y_out + row[None, :, None] * n_labels + column, y, mask=saved)
