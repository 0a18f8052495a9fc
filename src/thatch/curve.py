r"""Curves through a grid of cells, and boxes as ranges of cell numbers along them (MICS).

The idea: a curve visits the 2^bits cells of each of d axes in one order, so a cell is a number and a box is a set of
ranges of numbers. A curve is made of smaller copies of itself, turned: at each level it visits the 2^d halves of a
block in an order that depends on how the block is turned, its *state*.

    Hilbert, 2 axes, 8 x 8      the box x 4..6, y 2..5 is [32, 35], [45, 46], [50, 55]

    A table for each curve says, for each state, which half comes w-th and how that half is turned. Hilbert's, in d
    axes (Hamilton): the w-th half is gray(w), rotated and mirrored by the state; d 2^d states. Z: the w-th half is w;
    one state. Gray: gray(w), mirrored if the block before ended on an odd half; two states.

Box to ranges: descend from the whole grid, in curve order. A block inside the box is a range, one outside is nothing,
any other is looked at by its halves. Ranges come out in order, and one that continues the last is joined to it: so
they are maximal. Cells are not enumerated: the work is in proportion to the surface of the box, not its volume.

Whether a half meets the box, or lies in it, is the same question in each axis; so two words, with a bit for each axis
and half, answer it for all 2^d halves by masks.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from thatch.boxes import Ints
from thatch.errors import CallerError
from thatch.jit import kernel

CURVES = ("hilbert", "z", "gray")
INDEX_BITS_MAX = 62
AXES_MAX = 10  # the table of the Hilbert curve has d 4^d entries


class Curve(NamedTuple):
    """What the kernels read."""

    axes: int
    bits: int
    half: Any  # int16 [states, 2^d]: the w-th half of a block, a bit for each axis
    turn: Any  # int16 [states, 2^d]: the state of that half
    place: Any  # int16 [states, 2^d]: the inverse of half


def _rotated(word: int, by: int, axes: int) -> int:
    by %= axes
    return ((word << by) | (word >> (axes - by))) & ((1 << axes) - 1)


def _trailing_ones(word: int) -> int:
    return ((word + 1) & ~word).bit_length() - 1


@cache
def curve(name: str, axes: int, bits: int) -> Curve:
    """A curve through 2^bits cells along each of so many axes."""
    if name not in CURVES:
        raise CallerError(f"no curve {name!r}; there are {', '.join(CURVES)}")
    if not (1 <= axes <= AXES_MAX and 1 <= bits and axes * bits <= INDEX_BITS_MAX):
        raise CallerError(
            f"a curve has 1 to {AXES_MAX} axes of 1 or more bits, {INDEX_BITS_MAX} bits in all, not {axes} of {bits}"
        )
    halves = 1 << axes
    if name == "z":
        order = [list(range(halves))]
        turns = [[0] * halves]
    elif name == "gray":
        order = [[(w ^ (w >> 1)) ^ (odd << (axes - 1)) for w in range(halves)] for odd in range(2)]
        turns = [[w & 1 for w in range(halves)] for _ in range(2)]
    else:
        order, turns = _hilbert(axes)
    half = np.array(order, np.int16)
    place = np.empty_like(half)
    np.put_along_axis(place, half.astype(np.int64), np.arange(halves, dtype=np.int16)[None].repeat(len(half), 0), 1)
    return Curve(axes, bits, half, np.array(turns, np.int16), place)


def _hilbert(axes: int) -> tuple[list[list[int]], list[list[int]]]:
    """The states that are reached from the first, each an entry corner and a direction (Hamilton, "Compact Hilbert
    indices", 2006)."""
    numbers: dict[tuple[int, int], int] = {(0, 0): 0}
    states = [(0, 0)]
    order: list[list[int]] = []
    turns: list[list[int]] = []
    for entry, direction in states:  # grows as it goes
        halves, following = [], []
        for w in range(1 << axes):
            halves.append(_rotated(w ^ (w >> 1), direction + 1, axes) ^ entry)
            before = 0 if w == 0 else 2 * ((w - 1) // 2)
            corner = entry ^ _rotated(before ^ (before >> 1), direction + 1, axes)
            change = 0 if w == 0 else _trailing_ones(w - 1 if w % 2 == 0 else w) % axes
            state = corner, (direction + change + 1) % axes
            if state not in numbers:
                numbers[state] = len(states)
                states.append(state)
            following.append(numbers[state])
        order.append(halves)
        turns.append(following)
    return order, turns


@kernel
def indexes(path: Curve, cells: Ints, out: Ints) -> None:
    """The numbers of cells, given as cells[n, d], along the curve."""
    axes, half_place, turn = path.axes, path.place, path.turn
    for row in range(len(cells)):
        index, state = 0, 0
        for level in range(path.bits - 1, -1, -1):
            half = 0
            for axis in range(axes):
                half |= ((cells[row, axis] >> level) & 1) << axis
            w = half_place[state, half]
            index = (index << axes) | w
            state = turn[state, w]
        out[row] = index


@kernel
def cells_at(path: Curve, numbers: Ints, out: Ints) -> None:
    """The cells [n, d] with these numbers."""
    axes = path.axes
    for row in range(len(numbers)):
        state = 0
        for axis in range(axes):
            out[row, axis] = 0
        for level in range(path.bits - 1, -1, -1):
            w = (numbers[row] >> (level * axes)) & ((1 << axes) - 1)
            half = path.half[state, w]
            for axis in range(axes):
                out[row, axis] = (out[row, axis] << 1) | ((half >> axis) & 1)
            state = path.turn[state, w]


@kernel
def descend(path: Curve, low: Ints, high: Ints, level_min: int, is_inner: bool, gap: int, out: Ints) -> int:
    """The ranges of a box of cells low..high, in order, into out[cap, 2]; how many, or -1 if there are more.

    Blocks of 2^level_min cells a side are not looked into: one that the box meets in part counts as a whole, or, if
    only what lies inside counts, not at all. A range that begins at most `gap` numbers behind the last is joined to it.
    """
    axes, bits = path.axes, path.bits
    every = (1 << axes) - 1
    halves, turns = path.half, path.turn
    corner = np.zeros((bits + 1, axes), np.int64)
    frame = np.zeros((bits + 1, 7), np.int64)  # state, next w, number, halves not met (0, 1), halves not inside (0, 1)
    count, depth, entering = 0, 0, True
    while depth >= 0:
        side = bits - depth - 1  # of a half, as a power of two
        if entering:
            no_first = no_second = not_first = not_second = 0
            for axis in range(axes):
                at, bit = corner[depth, axis], 1 << axis
                middle, end = at + (1 << side), at + (2 << side) - 1
                if low[axis] > middle - 1 or high[axis] < at:
                    no_first |= bit
                if low[axis] > end or high[axis] < middle:
                    no_second |= bit
                if low[axis] > at or high[axis] < middle - 1:
                    not_first |= bit
                if low[axis] > middle or high[axis] < end:
                    not_second |= bit
            frame[depth, 1] = 0
            frame[depth, 3], frame[depth, 4] = no_first, no_second
            frame[depth, 5], frame[depth, 6] = not_first, not_second
            entering = False
        w = frame[depth, 1]
        if w > every:
            depth -= 1
            continue
        frame[depth, 1] = w + 1
        state = frame[depth, 0]
        half = np.int64(halves[state, w])
        other = every ^ half
        if (half & frame[depth, 4]) | (other & frame[depth, 3]):
            continue  # the box does not meet it
        is_part = ((half & frame[depth, 6]) | (other & frame[depth, 5])) != 0
        number = (frame[depth, 2] << axes) | w
        if is_part and side > level_min:
            for axis in range(axes):
                corner[depth + 1, axis] = corner[depth, axis] + (((half >> axis) & 1) << side)
            frame[depth + 1, 0], frame[depth + 1, 2] = turns[state, w], number
            depth += 1
            entering = True
            continue
        if is_part and is_inner:
            continue
        first = number << (axes * side)
        last = first + (1 << (axes * side)) - 1
        if count > 0 and first - out[count - 1, 1] - 1 <= gap:
            out[count - 1, 1] = last
        else:
            if count == len(out):
                return -1
            out[count, 0], out[count, 1] = first, last
            count += 1
    return count


@kernel
def expected_ranges(low: Ints, high: Ints, level: int) -> float:
    """S/(2d): the mean number of ranges of a box with surface S, in blocks of 2^level cells a side (Moon et al.; the
    limit for fine grids)."""
    total = 0.0
    for axis in range(len(low)):
        face = 1.0
        for other in range(len(low)):
            if other != axis:
                face *= (high[other] >> level) - (low[other] >> level) + 1
        total += face
    return total / len(low)


@kernel
def find_ranges(path: Curve, low: Ints, high: Ints, is_inner: bool, gap: int, out: Ints) -> int:
    """As `descend`, in blocks as coarse as it takes to have room: first by what is expected, then as it turns out."""
    level = 0
    while level < path.bits and expected_ranges(low, high, level) > len(out):
        level += 1
    count = -1
    while count < 0:
        count = descend(path, low, high, level, is_inner, gap, out)
        level += 1
    return count


def ranges(path: Curve, low: Ints, high: Ints, is_inner: bool = False, gap: int = 0, ranges_max: int = 4_096) -> Ints:
    """The ranges [n, 2] of a box of cells, or of blocks as coarse as it takes to have at most so many.

    >>> import numpy as np
    >>> ranges(curve("hilbert", 2, 3), np.array([4, 2]), np.array([6, 5])).tolist()
    [[32, 35], [45, 46], [50, 55]]
    """
    out = np.empty((ranges_max, 2), np.int64)
    return out[: find_ranges(path, low, high, is_inner, gap, out)].copy()
