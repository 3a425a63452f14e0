"""Arithmetic of the Triton kernels: single numbers, products, who ends, and chunks of labels.

The kernels keep the dual θ as u = −θ / ln 2, so that y = 1 / (1 + 2^u) needs no product. A chunk is
a (warps, rows, width) tile.
"""

# Triton reads these functions; its annotations describe neither its types nor its branches.
# ruff: noqa: RET505
# pyright: reportArgumentType=false, reportAssignmentType=false, reportGeneralTypeIssues=false
# pyright: reportOperatorIssue=false, reportPossiblyUnboundVariable=false

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)

RELU = tl.constexpr(0)
HARDTANH = tl.constexpr(1)
SOFTPLUS = tl.constexpr(2)
SIGMOID = tl.constexpr(3)
SQUARE = tl.constexpr(4)
MIXED = tl.constexpr(5)

DUAL_LIMIT = tl.constexpr(15.0 * 1.4426950408889634)
LOWEST = tl.constexpr(3.059022269256247e-07)
FULL = tl.constexpr(1 - 3.059022269256247e-07 - 2**-24)

HELD = tl.constexpr(1e4)
"""The u of a label that is held: far outside what a step can reach, so that y is exactly 0 or 1."""

LARGEST_HALF = tl.constexpr(6e4)
SMALLEST_RATE = tl.constexpr(1e-30)
LARGEST_RATE = tl.constexpr(1e6)
FLAT = tl.constexpr(1e-12)
TINY = tl.constexpr(1e-30)


@triton.jit
def primal(u, ASSEMBLY: tl.constexpr):
    """Return y = 1 / (1 + 2^u), with two approximate instructions good to a few last bits.

    Without ASSEMBLY it is written for Triton's interpreter, which knows no PTX.
    """
    if ASSEMBLY:
        return tl.inline_asm_elementwise(
            """{
            .reg .f32 power;
            ex2.approx.ftz.f32 power, $1;
            add.f32 power, power, 0f3F800000;
            rcp.approx.ftz.f32 $0, power;
            }""",
            "=f,f",
            [u],
            dtype=tl.float32,
            is_pure=True,
            pack=1,
        )
    else:
        return tl.where(u > 100.0, 0.0, 1.0 / (1.0 + tl.exp2(tl.minimum(u, 100.0))))


@triton.jit
def reciprocal(x, ASSEMBLY: tl.constexpr):
    """Return 1 / x, good to the last bit or two."""
    if ASSEMBLY:
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return 1.0 / x


@triton.jit
def _log2(x, ASSEMBLY: tl.constexpr):
    if ASSEMBLY:
        return tl.inline_asm_elementwise(
            "lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return tl.log2(x)


@triton.jit
def dual(y, ASSEMBLY: tl.constexpr):
    """Return the u of y, which is moved inside (0, 1) first."""
    inside = tl.minimum(tl.maximum(y, LOWEST), 1.0 - LOWEST)
    u = bounded(_log2(1.0 - inside, ASSEMBLY) - _log2(inside, ASSEMBLY), DUAL_LIMIT)
    # As UnitBox.to_dual: floats near 1 are far apart.
    return tl.where(y >= FULL, -DUAL_LIMIT, u)


@triton.jit
def bounded(x, LIMIT: tl.constexpr):
    """Return x within ±LIMIT; what is not a number stays so."""
    x = tl.minimum(x, LIMIT, propagate_nan=tl.PropagateNan.ALL)
    return tl.maximum(x, -LIMIT, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def negative_entropy(y, ASSEMBLY: tl.constexpr):
    """Return y log y + (1 − y) log (1 − y), zero at both ends."""
    rest = 1.0 - y
    on = y * _log2(tl.maximum(y, TINY), ASSEMBLY)
    off = rest * _log2(tl.maximum(rest, TINY), ASSEMBLY)
    return (on + off) * LN_2


@triton.jit
def nonlinearity(z, kind, KIND: tl.constexpr):
    """Return g(z) and g'(z); ``kind`` says which g each measurement has where KIND is MIXED."""
    if KIND == RELU:
        value = tl.maximum(z, 0.0, propagate_nan=tl.PropagateNan.ALL)
        slope = tl.where(z > 0, 1.0, 0.0)
    elif KIND == HARDTANH:
        value = bounded(z, 1.0)
        slope = tl.where(tl.abs(z) < 1.0, 1.0, 0.0)
    elif KIND == SOFTPLUS:
        value = tl.maximum(z, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(z)))
        slope = tl.sigmoid(z)
    elif KIND == SIGMOID:
        value = tl.sigmoid(z)
        slope = value * (1.0 - value)
    elif KIND == SQUARE:
        value = z * z
        slope = 2.0 * z
    else:
        value, slope = nonlinearity(z, kind, RELU)
        for other in tl.static_range(1, 5):
            other_value, other_slope = nonlinearity(z, kind, other)
            value = tl.where(kind == other, other_value, value)
            slope = tl.where(kind == other, other_slope, slope)
    return value, slope


@triton.jit
def halves(x):
    """Split x into two half-precision numbers whose sum has 22 of float32's 24 bits."""
    high = x.to(tl.float16)
    return high, (x - high.to(tl.float32)).to(tl.float16)


@triton.jit
def product(x_high, x_low, c_high, c_low, total):
    """Return total + x c from halves, at float32's accuracy on half-precision matrix units.

    The product of the two low halves is below float32's last bit and left out.
    """
    total = tl.dot(x_low, c_high, total)
    total = tl.dot(x_high, c_low, total)
    return tl.dot(x_high, c_high, total)


@triton.jit
def judged(new, last, best, still, step, running, rtol, require_both, max_steps):
    """Return which rows end, which are at their best so far, and how those that end do.

    ``step`` counts the steps that led to the value ``new``, and ``still`` says whether the last
    one moved no label by the tolerance; ``require_both``, where it is not None, that a row needs
    both that and a settled value to end. A row at its start is its own best, and goes on.
    """
    finite = tl.abs(new) < float("inf")
    settled = tl.abs(new - last) < rtol * tl.maximum(tl.abs(new), tl.abs(last))
    met = settled | still
    if require_both is not None:
        met = settled & still
    ended = running & (step > 0) & (met | (~finite) | (step >= max_steps))
    better = running & ((step == 0) | (finite & ~(new >= best)))
    return ended, better, tl.where(finite, tl.where(met, 1, 2), 4)


@triton.jit
def mixed(smooth, promised, along, bend, rate, weight_tau, first, unit, ASSEMBLY: tl.constexpr):
    """Return how much of its old slope a row of the bundle rule keeps, and the value of the cut
    with the mixture of both slopes.

    Args: the objective without entropy, and what the old cut promised of it; n·W(g + τθ) and
    n·Wn; the step size η, and τ; whether this is the row's first step.
    """
    gap = smooth - promised
    along -= gap * (reciprocal(rate, ASSEMBLY) + weight_tau)
    old = along * reciprocal(tl.maximum(bend, FLAT / (unit * unit)), ASSEMBLY)
    old = tl.minimum(tl.maximum(old, 0.0), 1.0)
    crossed = (gap > 0) & ~first
    return tl.where(crossed, old, 0.0), smooth - tl.where(crossed, old * gap, 0.0)


@triton.jit
def next_rate(rate, rose, steepest, first, reach, grow, shrink, unit):
    """Return the step size of the bundle rule; ``rose``: the last step raised the objective."""
    following = tl.where(first, reach / steepest, rate * tl.where(rose, shrink, grow))
    following = tl.minimum(following, LARGEST_RATE * unit, propagate_nan=tl.PropagateNan.ALL)
    return tl.maximum(following, SMALLEST_RATE * unit, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def unit_of(slopes):
    """Return the power of two just below the largest slope, or 1.

    The kernels divide energies by it, so that slopes of any scale fit into half precision.
    """
    most = tl.max(tl.max(tl.abs(slopes), 1), 0)
    return tl.where(most > 0, tl.exp2(tl.floor(tl.log2(most))), 1.0)


# Chunks of labels -------------------------------------------------------------------------


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
def fetched(pointer, mask, ASSEMBLY: tl.constexpr):
    """Load where the mask says so, and zeros elsewhere."""
    if ASSEMBLY:
        return tl.inline_asm_elementwise(
            """{
            .reg .pred on;
            setp.ne.b32 on, $2, 0;
            mov.b32 $0, 0;
            @on ld.global.b32 $0, [$1];
            }""",
            "=&f,l,r",
            [pointer.to(tl.int64), mask.to(tl.int32)],
            dtype=tl.float32,
            is_pure=False,
            pack=1,
        )
    else:
        return tl.load(pointer, mask=mask, other=0.0)


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
