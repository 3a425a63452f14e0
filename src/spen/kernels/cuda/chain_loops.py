"""Loops over the positions of chains, in Triton: a program takes one row from its first position to
its last, the scores of its classes in registers.

Sums over taggings are made in logarithms, with the largest taken out at each position, so that any
scores are within range. What the position before came to is taken out as well: logarithms that grew
along a row would lose with every position digits that marginals want. What is not there is −inf.
"""

# Triton reads these functions; its annotations describe neither its types nor its branches.
# pyright: reportArgumentType=false, reportAssignmentType=false, reportGeneralTypeIssues=false
# pyright: reportOperatorIssue=false, reportPossiblyUnboundVariable=false

import triton
import triton.language as tl


@triton.jit
def _log_sum(values, axis: tl.constexpr):
    """Return the logarithm of the sum of exponentials along an axis; −inf where all are."""
    shares, largest = _shares(values, axis)
    return tl.log(tl.sum(shares, axis)) + largest


@triton.jit
def _shares(values, axis: tl.constexpr):
    """Return exponentials as shares of the largest along an axis, and the logarithm of that."""
    largest = tl.max(values, axis)
    largest = tl.where(largest == float("-inf"), 0.0, largest)
    return tl.exp(values - tl.expand_dims(largest, axis)), largest


@triton.jit
def _table(tables, at, k, n_classes):
    """Load one table of pairs, (from, to)."""
    real = (k < n_classes)[:, None] & (k < n_classes)[None, :]
    within = k[:, None] * n_classes + k[None, :]
    return tl.load(tables + at + within, mask=real, other=float("-inf"))


@triton.jit
def sum_forwards(
    unary, tables, lengths, forward, logs, longest, n_classes, of_row, of_position,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """Fill forward (n, T, K) and logs (n,): what ends in each class of each position, up to a
    factor of the position, and all."""
    row, k = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH)
    length, real = tl.load(lengths + row), k < n_classes
    at = row * longest * n_classes + k
    reached = tl.load(unary + at, mask=real, other=float("-inf"))
    tl.store(forward + at, reached, mask=real)
    table, taken_out = _table(tables, row * of_row, k, n_classes), tl.full((), 0.0, tl.float64)
    for t in range(1, length):
        if of_position > 0:
            table = _table(tables, row * of_row + (t - 1) * of_position, k, n_classes)
        at += n_classes
        here = tl.load(unary + at, mask=real, other=float("-inf"))
        # Of the position before, so that nothing waits for it.
        largest = tl.max(reached, 0)
        largest = tl.where(largest == float("-inf"), 0.0, largest)
        reached = _log_sum(reached[:, None] + table, 0) + (here - largest)
        taken_out += largest.to(tl.float64)
        tl.store(forward + at, reached, mask=real)
    whole = taken_out + _log_sum(reached, 0).to(tl.float64)
    tl.store(logs + row, whole.to(reached.dtype))


@triton.jit
def sum_backwards(
    unary, tables, lengths, forward, weights, marginals, pairs,
    longest, n_classes, of_row, of_position, pairs_of_row, pairs_of_position,
    WIDTH: tl.constexpr, OF_PAIRS: tl.constexpr,
):  # fmt: skip
    """Fill the weighted marginals of positions (n, T, K), and those of pairs: of each two
    neighbours, or summed over the positions of each row."""
    row, k = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH)
    length, real = tl.load(lengths + row), k < n_classes
    weight = tl.load(weights + row)
    at = (row * longest + length - 1) * n_classes + k
    before = tl.load(forward + at, mask=real, other=float("-inf"))
    log = _log_sum(before, 0)
    tl.store(marginals + at, tl.exp(before - log) * weight, mask=real)
    table = _table(tables, row * of_row, k, n_classes)
    behind = tl.where(real, 0.0, float("-inf")).to(before.dtype)
    within, square = k[:, None] * n_classes + k[None, :], real[:, None] & real[None, :]
    together = tl.zeros([WIDTH, WIDTH], before.dtype)
    for back in range(1, length):
        t = length - back
        if of_position > 0:
            table = _table(tables, row * of_row + (t - 1) * of_position, k, n_classes)
        ahead = table + (tl.load(unary + at, mask=real, other=float("-inf")) + behind)[None, :]
        at -= n_classes
        before = tl.load(forward + at, mask=real, other=float("-inf"))
        shares, largest = _shares(ahead, 1)
        # What the position behind came to is taken out.
        largest -= log
        behind = tl.log(tl.sum(shares, 1)) + largest
        both = before + behind
        new_log = _log_sum(both, 0)
        tl.store(marginals + at, tl.exp(both - new_log) * weight, mask=real)
        if OF_PAIRS:
            share = shares * (tl.exp(before + largest - new_log) * weight)[:, None]
            if pairs_of_position > 0:
                place = row * pairs_of_row + (t - 1) * pairs_of_position + within
                tl.store(pairs + place, share, mask=square)
            else:
                together += share
        log = new_log
    if OF_PAIRS and pairs_of_position == 0:
        tl.store(pairs + row * pairs_of_row + within, together, mask=square)


@triton.jit
def best_paths(
    unary, tables, lengths, came_from, tags, best, longest, n_classes, of_row, of_position,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """Fill tags (n, T) with the classes of highest total score, and best (n,) with that."""
    row, k = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH)
    length, real = tl.load(lengths + row), k < n_classes
    first = row * longest * n_classes
    at = first + k
    reached = tl.load(unary + at, mask=real, other=float("-inf"))
    table = _table(tables, row * of_row, k, n_classes)
    for t in range(1, length):
        if of_position > 0:
            table = _table(tables, row * of_row + (t - 1) * of_position, k, n_classes)
        at += n_classes
        ways = reached[:, None] + table
        tl.store(came_from + at, tl.argmax(ways, 0).to(tl.int32), mask=real)
        here = tl.load(unary + at, mask=real, other=float("-inf"))
        reached = tl.max(ways, 0) + here
    tl.store(best + row, tl.max(reached, 0))
    tag = tl.argmax(reached, 0).to(tl.int32)
    # What one thread has written another reads.
    tl.debug_barrier()
    for back in range(0, length):
        t = length - 1 - back
        tl.store(tags + row * longest + t, tag.to(tl.int64))
        if t > 0:
            tag = tl.load(came_from + first + t * n_classes + tag)


@triton.jit
def best_lists(
    unary, tables, lengths, lists, came_from, tags, best, longest, n_classes, of_row, of_position,
    n, WIDTH: tl.constexpr, PLACES: tl.constexpr,
):  # fmt: skip
    """Fill tags (rows, n, T) with the n best taggings, the best first, and best (rows, n).

    Each class of a position keeps the n best ways to it, in their order (lists); those of the next
    are merged from such lists, by the heads of what is left of each.
    """
    row, k = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH)
    length, real = tl.load(lengths + row), k < n_classes
    all_lists = n_classes * n
    at, own = row * longest * n_classes + k, lists + row * 2 * all_lists
    ways = came_from + row * longest * all_lists
    reached = tl.load(unary + at, mask=real, other=float("-inf"))
    nothing = tl.full([WIDTH], float("-inf"), reached.dtype)
    for place in range(0, n):
        tl.store(own + k * n + place, tl.where(place == 0, reached, nothing), mask=real)
    for t in range(1, length):
        # What one thread has written another reads.
        tl.debug_barrier()
        table = tables + row * of_row + (t - 1) * of_position
        before, after = own + (t - 1) % 2 * all_lists, own + t % 2 * all_lists
        at += n_classes
        here = tl.load(unary + at, mask=real, other=float("-inf"))
        first = tl.load(before + k * n, mask=real, other=float("-inf"))
        heads = first[:, None] + _table(table, 0, k, n_classes)
        taken = tl.zeros([WIDTH, WIDTH], tl.int32)
        for place in range(0, n):
            origin = tl.argmax(heads, 0).to(tl.int32)
            is_origin = k[:, None] == origin[None, :]
            which = tl.sum(tl.where(is_origin, taken, 0), 0)
            tl.store(after + k * n + place, tl.max(heads, 0) + here, mask=real)
            tl.store(ways + t * all_lists + k * n + place, origin * n + which, mask=real)
            left = real & (which + 1 < n)
            behind = tl.load(before + origin * n + which + 1, mask=left, other=float("-inf"))
            behind += tl.load(table + origin * n_classes + k, mask=real, other=float("-inf"))
            heads = tl.where(is_origin, behind[None, :], heads)
            taken += is_origin.to(tl.int32)
    tl.debug_barrier()
    after = own + (length - 1) % 2 * all_lists
    heads, taken = (
        tl.load(after + k * n, mask=real, other=float("-inf")),
        tl.zeros([WIDTH], tl.int32),
    )
    places = tl.arange(0, PLACES)
    way = tl.zeros([PLACES], tl.int32)
    for place in range(0, n):
        tag = tl.argmax(heads, 0).to(tl.int32)
        which = tl.sum(tl.where(k == tag, taken, 0), 0)
        tl.store(best + row * n + place, tl.max(heads, 0))
        way = tl.where(places == place, tag * n + which, way)
        behind = tl.load(after + tag * n + which + 1, mask=which + 1 < n, other=float("-inf"))
        heads = tl.where(k == tag, behind, heads)
        taken += (k == tag).to(tl.int32)
    for back in range(0, length):
        t = length - 1 - back
        tl.store(tags + (row * n + places) * longest + t, (way // n).to(tl.int64), mask=places < n)
        if t > 0:
            way = tl.load(ways + t * all_lists + way, mask=places < n, other=0)
