"""Kernels on flat arrays of closed integer boxes, and on columns of coordinates.

A set of n boxes in d attributes is two C-contiguous int64 arrays `low[n, d]` and `high[n, d]`. Bounds are closed and
may be anywhere in int64, so a width can reach 2^64: it is computed modulo 2^64 as unsigned and counted as a float64.
Nothing here computes `high + 1` or `low - 1` before it has tested that the neighbour exists.

Import this module where a kernel is called, not at the top: it loads Numba (jit.py).
"""

from __future__ import annotations

import numpy as np

from thatch.jit import kernel
from thatch.space.arrays import Bools, Floats, Ints, lower_bound


@kernel
def and_interval(mask: Bools, column: Ints, low: int, high: int) -> None:
    """mask &= low <= column <= high. One pass and no temporaries: LLVM makes it vector compares."""
    for row in range(len(mask)):
        mask[row] &= (column[row] >= low) & (column[row] <= high)


@kernel
def and_intervals(mask: Bools, column: Ints, ends: Ints) -> None:
    """mask &= column lies in one of the intervals (low0, high0, low1, ...); a binary search for each row."""
    for row in range(len(mask)):
        if mask[row]:
            value = column[row]
            place = lower_bound(ends, 0, len(ends), value)
            mask[row] = (place & 1) == 1 or (place < len(ends) and ends[place] == value)


@kernel
def and_ball(mask: Bools, doubles: Floats, centre: Floats, radius: float) -> None:
    """mask &= (x-cx)*(x-cx) + ... <= r*r, left to right in float64 as Spark would; NaN is never within."""
    for row in range(len(mask)):
        if mask[row]:
            total = (doubles[0, row] - centre[0]) * (doubles[0, row] - centre[0])
            for axis in range(1, len(centre)):
                total = total + (doubles[axis, row] - centre[axis]) * (doubles[axis, row] - centre[axis])
            mask[row] = total <= radius * radius


@kernel
def first_beyond(low: Ints, high: Ints, least: Ints, most: Ints) -> int:
    """The first attribute in which a box reaches beyond least..most; -1 if none does."""
    for box in range(low.shape[0]):
        for axis in range(low.shape[1]):
            if low[box, axis] < least[axis] or high[box, axis] > most[axis]:
                return axis
    return -1


@kernel
def first_empty(low: Ints, high: Ints) -> int:
    """The first box that holds nothing; -1 if there is none."""
    for box in range(low.shape[0]):
        for axis in range(low.shape[1]):
            if low[box, axis] > high[box, axis]:
                return box
    return -1


@kernel
def contains_box(low: Ints, high: Ints, inner_low: Ints, inner_high: Ints) -> Bools:
    """For each box whether it contains the one inner box."""
    found = np.ones(low.shape[0], np.bool_)
    for box in range(low.shape[0]):
        for axis in range(low.shape[1]):
            if low[box, axis] > inner_low[axis] or high[box, axis] < inner_high[axis]:
                found[box] = False
                break
    return found


@kernel
def intersect(low: Ints, high: Ints, other_low: Ints, other_high: Ints) -> tuple[Ints, Ints]:
    """The non-empty intersections of each box of the first set with each of the second, in that order."""
    d = low.shape[1]
    rows = low.shape[0] * other_low.shape[0]
    out_low, out_high = np.empty((rows, d), np.int64), np.empty((rows, d), np.int64)
    count = 0
    for one in range(low.shape[0]):
        for other in range(other_low.shape[0]):
            empty = False
            for axis in range(d):
                out_low[count, axis] = max(low[one, axis], other_low[other, axis])
                out_high[count, axis] = min(high[one, axis], other_high[other, axis])
                if out_low[count, axis] > out_high[count, axis]:
                    empty = True
                    break
            if not empty:
                count += 1
    return out_low[:count].copy(), out_high[:count].copy()


@kernel
def subtract_box(low: Ints, high: Ints, cut_low: Ints, cut_high: Ints, out_low: Ints, out_high: Ints) -> int:
    """One box minus another as at most 2d disjoint pieces, written to out; their number, or -1 if they do not meet.

    +-----------+      Peel one attribute at a time: the part below the cut, the part above it, and go on
    |   above   |      with what is left between. In attribute order, so the result is the same every time.
    |  +-----+  |
    |  | cut |  |      low, high are changed: at the end they hold the intersection.
    """
    d = len(low)
    for axis in range(d):
        if cut_low[axis] > high[axis] or cut_high[axis] < low[axis]:
            return -1
    count = 0
    for axis in range(d):
        if low[axis] < cut_low[axis]:
            for other in range(d):
                out_low[count, other], out_high[count, other] = low[other], high[other]
            out_high[count, axis] = cut_low[axis] - 1
            count += 1
            low[axis] = cut_low[axis]
        if high[axis] > cut_high[axis]:
            for other in range(d):
                out_low[count, other], out_high[count, other] = low[other], high[other]
            out_low[count, axis] = cut_high[axis] + 1
            count += 1
            high[axis] = cut_high[axis]
    return count


@kernel
def with_room(array: Ints, more: int) -> Ints:
    """A copy with room for more rows."""
    larger = np.empty((len(array) + more, array.shape[1]), np.int64)
    for row in range(len(array)):
        for column in range(array.shape[1]):
            larger[row, column] = array[row, column]
    return larger


@kernel
def subtract(low: Ints, high: Ints, cut_low: Ints, cut_high: Ints, cap: int) -> tuple[bool, Ints, Ints]:
    """The union of the first set minus the union of the second, as disjoint boxes; False if they pass the cap.

    Each box is first cut by the boxes before it, so that overlaps of the first set are counted once, then by the
    second set. The pieces of one box live on a stack with the number of cuts they have already met: depth first, so
    memory is proportional to depth times 2d, not to the number of pieces alive.
    """
    n, d, m = low.shape[0], low.shape[1], cut_low.shape[0]
    out_low, out_high = np.empty((16, d), np.int64), np.empty((16, d), np.int64)
    stack_low, stack_high = np.empty((64, d), np.int64), np.empty((64, d), np.int64)
    stack_next = np.empty((64, 1), np.int64)
    piece_low, piece_high = np.empty((2 * d, d), np.int64), np.empty((2 * d, d), np.int64)
    now_low, now_high = np.empty(d, np.int64), np.empty(d, np.int64)
    count = 0
    for box in range(n):
        for axis in range(d):
            stack_low[0, axis], stack_high[0, axis] = low[box, axis], high[box, axis]
        stack_next[0, 0], top = 0, 1
        while top > 0:
            top -= 1
            for axis in range(d):
                now_low[axis], now_high[axis] = stack_low[top, axis], stack_high[top, axis]
            cut, pieces = stack_next[top, 0], -1
            while cut < box + m and pieces < 0:
                one = low[cut] if cut < box else cut_low[cut - box]
                other = high[cut] if cut < box else cut_high[cut - box]
                pieces = subtract_box(now_low, now_high, one, other, piece_low, piece_high)
                cut += 1
            if pieces < 0:  # met none of them: this piece stays
                if count == cap:
                    return False, out_low[:0].copy(), out_high[:0].copy()
                if count == len(out_low):
                    out_low, out_high = with_room(out_low, len(out_low)), with_room(out_high, len(out_low))
                for axis in range(d):
                    out_low[count, axis], out_high[count, axis] = now_low[axis], now_high[axis]
                count += 1
                continue
            if top + pieces > len(stack_next):
                more = len(stack_next) + 2 * d
                stack_low, stack_high = with_room(stack_low, more), with_room(stack_high, more)
                stack_next = with_room(stack_next, more)
            for piece in range(pieces):
                for axis in range(d):
                    stack_low[top, axis], stack_high[top, axis] = piece_low[piece, axis], piece_high[piece, axis]
                stack_next[top, 0] = cut
                top += 1
    return True, out_low[:count].copy(), out_high[:count].copy()


@kernel
def volumes(low: Ints, high: Ints) -> Floats:
    """Lattice points of each box, in float64.

    A width is at most 2^64 and computed exactly as an unsigned difference, then rounded once, and one is added,
    which rounds again; d widths are multiplied with d-1 roundings. So the result is the true count times
    (1 + e) with |e| <= (3d) * 2^-53, or infinity from 2^1024 on: each of the at most 3d - 1 roundings contributes a
    factor within 1 +- 2^-53, and (1 + u)^(3d-1) <= 1 + 3d*u. Divide by (1 + 3d * 2^-53) for a bound from below.
    """
    result = np.ones(low.shape[0], np.float64)
    for box in range(low.shape[0]):
        for axis in range(low.shape[1]):
            width = np.float64(np.uint64(high[box, axis]) - np.uint64(low[box, axis])) + 1.0
            result[box] *= width
    return result
