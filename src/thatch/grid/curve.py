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

Whether a half meets the box, or lies in it, is the same question in each axis; so two words, with a bit for each half
in curve order, answer it for all 2^d halves by a few look-ups in a table by state.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from thatch.errors import CallerError, unknown
from thatch.jit import kernel, lowest
from thatch.space.arrays import Ints

CURVES = ("hilbert", "z", "gray")
INDEX_BITS_MAX = 62
WORD_AXES = 6  # 2^6 halves are the bits of a word
AXES_MAX = 10  # the table of the Hilbert curve has d 4^d entries


class Curve(NamedTuple):
    """A curve as the arrays that kernels read."""

    axes: int
    bits: int
    half: Any  # int16 [states, 2^d]: the w-th half of a block, a bit for each axis
    turn: Any  # int16 [states, 2^d]: the state of that half
    place: Any  # int16 [states, 2^d]: the inverse of half
    lacking: Ints  # [states, 2^d]: for a set of axes, as a word, the w whose half is the first in one of them
    having: Ints  # [states, 2^d]: those whose half is the second in one. Both empty for more than 6 axes


def _rotated(word: int, by: int, axes: int) -> int:
    by %= axes
    return ((word << by) | (word >> (axes - by))) & ((1 << axes) - 1)


def _trailing_ones(word: int) -> int:
    return ((word + 1) & ~word).bit_length() - 1


@cache
def curve(name: str, axes: int, bits: int) -> Curve:
    """A curve through 2^bits cells along each of so many axes."""
    if name not in CURVES:
        raise CallerError(unknown("curve", name, CURVES))
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
    lacking, having = _words(half if axes <= WORD_AXES else half[:0], axes)
    return Curve(axes, bits, half, np.array(turns, np.int16), place, lacking, having)


def _words(half: Any, axes: int) -> tuple[Ints, Ints]:
    """Which halves of a block are the first, or the second, in one of some axes; bits that stand for none are set."""
    sets, bits = np.arange(1 << axes), np.uint64(1) << np.arange(1 << axes, dtype=np.uint64)
    beyond = ~np.bitwise_or.reduce(bits)
    words = []
    for sides in (~half, half):
        meets = (sides[:, None, :].astype(np.int64) & sets[None, :, None]) != 0
        words.append((np.where(meets, bits, np.uint64(0)).sum(axis=2) | beyond).view(np.int64))
    return words[0], words[1]


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
def edges_of(low: int, high: int, axis: int, low_bits: Ints, high_bits: Ints, cuts: Ints) -> None:
    """What `descend` asks of one axis of a box, as a bit in the words of each level: in which half of their blocks the
    first and the last cell lie; whether the first cell cuts the first half (0) or the second (2), and whether the last
    cell does (1, 3)."""
    bit = 1 << axis
    for side in range(len(low_bits)):
        half, rest = 1 << side, (2 << side) - 1
        low_bits[side] |= bit if low & half else 0
        high_bits[side] |= bit if high & half else 0
        cuts[side, 0] |= bit if low & rest else 0
        cuts[side, 1] |= bit if high & rest < half - 1 else 0
        cuts[side, 2] |= bit if low & rest > half else 0
        cuts[side, 3] |= bit if high & rest < rest else 0


@kernel
def descend(path: Curve, low: Ints, high: Ints, level_min: int, is_inner: bool, gap: int, out: Ints) -> int:
    """The ranges of a box of cells low..high, in order, into out[cap, 2]; how many, or -1 if there are more.

    Blocks of 2^level_min cells a side are not looked into: one that the box meets in part counts as a whole, or, if
    only what lies inside counts, not at all. A range that begins at most `gap` numbers behind the last is joined to it.

    A block need not know where it is: only in which axes it holds the box's first cells (`at_low`) and its last ones
    (`at_high`), a bit for each axis. Which halves the box meets, and which lie in it, are then two words with a bit
    for each half in curve order, so that halves that are not met cost nothing and neighbours inside are one range.
    """
    axes, bits = path.axes, path.bits
    every, halves, turns, lacking, having = (1 << axes) - 1, path.half, path.turn, path.lacking, path.having
    low_bits, high_bits, cuts = np.zeros(bits, np.int64), np.zeros(bits, np.int64), np.zeros((bits, 4), np.int64)
    for axis in range(axes):
        edges_of(low[axis], high[axis], axis, low_bits, high_bits, cuts)
    if level_min >= bits:  # the whole grid is one block
        if is_inner and cuts[bits - 1, 0] | cuts[bits - 1, 3]:
            return 0
        out[0, 0], out[0, 1] = 0, (1 << (axes * bits)) - 1
        return 1
    words = 1 << max(0, axes - WORD_AXES)  # of 64 halves each
    frame = np.empty((bits, 7), np.int64)
    state, base, at_low, at_high, word, side = 0, 0, every, every, 0, bits - 1
    met = inside = np.int64(0)
    count, end, entering = 0, -gap - 2, True
    while True:
        if entering:
            no_first, no_second = at_low & low_bits[side], at_high & ~high_bits[side]
            not_first = (at_low & cuts[side, 0]) | (at_high & cuts[side, 1])
            not_second = (at_low & cuts[side, 2]) | (at_high & cuts[side, 3])
            if axes <= WORD_AXES:
                met = ~(lacking[state, no_first] | having[state, no_second])
                inside = ~(lacking[state, not_first] | having[state, not_second])
            else:
                met = inside = np.int64(0)
                for place in range(64):
                    half = np.int64(halves[state, (word << WORD_AXES) | place])
                    if not (half & no_second) | (~half & no_first):
                        met |= np.int64(1) << place
                        if not (half & not_second) | (~half & not_first):
                            inside |= np.int64(1) << place
            if side <= level_min:
                met = inside = inside if is_inner else met
            entering = False
        if met == 0:
            if word + 1 < words:
                word += 1
                entering = True
                continue
            side += 1
            if side >= bits:
                return count
            state, base, at_low, at_high = frame[side, 0], frame[side, 1], frame[side, 2], frame[side, 3]
            word, met, inside = frame[side, 4], frame[side, 5], frame[side, 6]
            continue
        place = lowest(met)
        w = (word << WORD_AXES) | place
        first = base + (w << (axes * side))
        if (inside >> place) & 1:
            later = inside & (inside + (inside & -inside))  # without its lowest run of bits
            met ^= inside ^ later
            behind = ~(inside >> place)
            length = lowest(behind) if behind else 64 - place
            inside = later
            last = first + (length << (axes * side)) - 1
            if first - end - 1 > gap:
                if count == len(out):
                    return -1
                out[count, 0] = first
                count += 1
            out[count - 1, 1] = end = last
            continue
        met &= met - 1
        frame[side, 0], frame[side, 1], frame[side, 2], frame[side, 3] = state, base, at_low, at_high
        frame[side, 4], frame[side, 5], frame[side, 6] = word, met, inside
        half = np.int64(halves[state, w])
        at_low &= ~(half ^ low_bits[side])
        at_high &= ~(half ^ high_bits[side])
        state, base, word = turns[state, w], first, 0
        side -= 1
        entering = True


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
