"""What the on-chip kernel does with a chunk of labels: a (warps, rows, width) tile."""

# Triton reads these functions; its annotations describe neither its types nor its branches.
# ruff: noqa: RET505
# pyright: reportArgumentType=false, reportAssignmentType=false, reportGeneralTypeIssues=false
# pyright: reportOperatorIssue=false, reportPossiblyUnboundVariable=false

import triton
import triton.language as tl

from spen.kernels.cuda_math import DUAL_LIMIT, HELD, bounded, dual, halves, primal
from spen.kernels.cuda_memory import fetched


@triton.jit
def columns(FIRST: tl.constexpr, WARPS: tl.constexpr, WIDTH: tl.constexpr):
    """Return the labels of a chunk, (warps, 1, width)."""
    warp = tl.arange(0, WARPS)[:, None, None]
    return FIRST + warp * WIDTH + tl.arange(0, WIDTH)[None, None, :]


@triton.jit
def load_measurements(pointer, column, n_labels, n_measurements, PADDED: tl.constexpr):
    """Load C of a chunk, (warps, measurements, width)."""
    measurement = tl.arange(0, PADDED)[None, :, None]
    inside = (measurement < n_measurements) & (column < n_labels)
    return tl.load(pointer + measurement * n_labels + column, mask=inside, other=0.0)


@triton.jit
def both(rows, inside):
    """Return where rows and labels are meant; ``inside`` is None for a chunk without padding."""
    if inside is None:
        return rows
    else:
        return rows & inside


@triton.jit
def kept(x, inside):
    """Return x with zeros in the padding."""
    if inside is None:
        return x
    else:
        return tl.where(inside, x, 0.0)


@triton.jit
def _by_eights(x):
    # Eight columns lie over four neighbouring lanes, so these sums begin inside each thread.
    return tl.reshape(x, (x.shape[0], x.shape[1], x.shape[2] // 8, 8))


@triton.jit
def sums(x_1, x_2):
    """Sum over the labels of both chunks, (warps, rows)."""
    return tl.sum(tl.sum(_by_eights(x_1), 2) + tl.sum(_by_eights(x_2), 2), 2)


@triton.jit
def largest(x_1, x_2):
    """Return the largest magnitude in both chunks, (warps, rows)."""
    x_1, x_2 = tl.abs(x_1), tl.abs(x_2)
    return tl.max(tl.maximum(tl.max(_by_eights(x_1), 2), tl.max(_by_eights(x_2), 2)), 2)


@triton.jit
def over_warps(x, y, z, w):
    """Sum four (warps, rows) tiles over the warps in one exchange; return them as (rows,)."""
    together = tl.sum(tl.join(tl.join(x, y), tl.join(z, w)), 0)
    first, second = tl.split(together)
    x, y = tl.split(first)
    z, w = tl.split(second)
    return x, y, z, w


@triton.jit
def own_energy(y, a, q):
    """Return a y + ½ q y² of each label."""
    if q is None:
        return a * y
    else:
        return (a + 0.5 * q * y) * y


@triton.jit
def own_slope(y, a, q):
    """Return a + q y of each label."""
    if q is None:
        return a
    else:
        return a + q * y


@triton.jit
def _paired(x, y):
    """Interleave the columns of two chunks."""
    return tl.reshape(tl.join(x, y), (x.shape[0], x.shape[1], 2 * x.shape[2]))


@triton.jit
def measured(y, c_high, c_low, total, rest):
    """Return total + C y, (warps, rows, measurements), as a sum of two parts.

    Two, because the matrix units take long to answer, and a shorter chain waits less.
    """
    high, low = halves(y)
    if y.shape[2] == 8:
        # The matrix units sum over 16 columns at least: both halves side by side.
        pairs = _paired(high, low)
        rest = tl.dot(pairs, tl.permute(_paired(c_low, c_low), (0, 2, 1)), rest)
        return tl.dot(pairs, tl.permute(_paired(c_high, c_high), (0, 2, 1)), total), rest
    else:
        c_high, c_low = tl.permute(c_high, (0, 2, 1)), tl.permute(c_low, (0, 2, 1))
        rest = tl.dot(high, c_low, tl.dot(low, c_high, rest))
        return tl.dot(high, c_high, total), rest


@triton.jit
def in_halves(slope, WARPS: tl.constexpr):
    """Split slopes (rows, measurements) into halves that every warp has."""
    shape: tl.constexpr = [WARPS, slope.shape[0], slope.shape[1]]
    high, low = halves(slope)
    return tl.broadcast_to(high[None, :, :], shape), tl.broadcast_to(low[None, :, :], shape)


@triton.jit
def first_iterate(
    mine, inside, at, start_at, like, start, known, one_start, one_dual,
    ONE_START: tl.constexpr, DIRECT: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """Return where new rows begin, as u and as y; padding begins, and stays, at a half.

    DIRECT: each thread loads what it works with.
    """
    if ONE_START:
        first_u = kept(tl.zeros_like(like) + one_dual, inside)
        first_y = kept(tl.zeros_like(like) + (one_start - 0.5), inside) + 0.5
    else:
        first_y = tl.where(mine, fetched(start + start_at, mine, DIRECT), 0.5)
        first_u = dual(first_y, ASSEMBLY)
    if known is not None:
        given = fetched(known + at, mine, DIRECT)
        held = mine & (given == given)
        first_u = tl.where(held, tl.where(given > 0.5, -HELD, HELD), first_u)
        first_y = tl.where(held, given, first_y)
    return first_u, first_y


@triton.jit
def begun(
    fill, inside, at, start_at, u, y, a, linear, inverse, start, known, one_start, one_dual,
    ONE_START: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """Begin new rows in the slots to fill; return u, y and a."""
    mine = both(fill, inside) & like_products(y)
    if linear is not None:
        a = tl.where(fill, fetched(linear + at, mine, ASSEMBLY) * inverse, a)
    first_u, first_y = first_iterate(
        mine, inside, at, start_at, u, start, known, one_start, one_dual, ONE_START,
        ASSEMBLY, ASSEMBLY,
    )  # fmt: skip
    return tl.where(fill, first_u, u), tl.where(fill, first_y, y), a


@triton.jit
def like_products(x):
    """Return a mask that is true everywhere, and laid out in the registers like x.

    What is computed with it is laid out like x too, from the start and not in every step.
    """
    return (x == x) | (x != x)


@triton.jit
def free_only(x, u, known):
    """Return x with zeros at the labels that are held."""
    if known is None:
        return x
    else:
        return tl.where(tl.abs(u) > 0.5 * HELD, 0.0, x)


@triton.jit
def moved(u, push, shrink, known, ASSEMBLY: tl.constexpr):
    """Return where a step leads, as u and as y."""
    new = u + push
    if shrink is not None:
        new = new * shrink
    new = bounded(new, DUAL_LIMIT)
    if known is not None:
        new = tl.where(tl.abs(u) > 0.5 * HELD, u, new)
    return new, primal(new, ASSEMBLY)
