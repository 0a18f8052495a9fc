"""A bitset index over boxes, and the kernels that search it.

The idea: for each attribute, cut the axis at quantiles of the boxes' ends, and keep for each cut a bitset of the boxes
that begin at or before it, and one of those that end at or after it.

    cuts        10     20     30            box 0 = [12, 25], box 1 = [5, 40], box 2 = [22, 28]
    below[k]    {1}    {0,1}  {0,1,2}       low  <= cut k          below[K] = all
    above[k]    {0,1,2} {0,1,2} {0,1,2} {1} high >= cut k-1        above[0] = all

A question about a point or a box is a few ANDs of rows, 64 boxes a word: the row at the next cut outward gives a
superset, which is verified box by box. Rows that hold nearly all boxes are not worth reading; how many each holds is
known, which also tells how many boxes an end of the asked box lies in, and so the corner that is least likely covered.

Against a linear scan: the scan reads about 1.3 of 2d numbers of every box; the index reads 2d bits of every box.
Tried and lost: 128 cuts (more memory traffic at insertion than it saves), an R-tree of 8 (too deep for wide boxes).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from thatch.jit import borrowing, inlined, lowest
from thatch.space.arrays import Ints

CUTS = 32
GROWTH = 2  # the cuts are chosen again when there are this many times as many boxes as when they were chosen

_ONE = np.uint64(1)
# As NumPy numbers: of a plain 0 or 1 Numba would make a kernel of its own wherever one is passed.
NEAR: Any = np.int64(0)
TOUCHING: Any = np.int64(1)
COVERING: Any = np.int64(2)
ONE: Any = np.int64(1)
ALL: Any = np.int64(-1)  # as many as there are


class Rows(NamedTuple):
    """The arrays that kernels read. Boxes are in slots; a free slot has no bit set in any row."""

    low: Ints  # [slots, d]
    high: Ints
    owner: Ints  # [slots]: the member's number
    bounded: Any  # uint64 [slots]: a bit for each of the first 64 attributes at which the box is not the whole axis
    cuts: Ints  # [d, CUTS], ascending
    below: Any  # uint64 [d, CUTS + 1, words]
    above: Any
    below_count: Ints  # [d, CUTS + 1]: how many bits each row has
    above_count: Ints
    used: Ints  # [3]: slots in use from the front; boxes in them; slots among them that are free
    edges: Ints  # [2, d]: the ends of the axes, where many boxes end too
    edge_ranks: Ints  # [4, d]: `cuts_below` and `cuts_upto` of each low end, then of each high end


@inlined
def cuts_below(cuts: Ints, axis: int, value: int) -> int:
    """How many cuts are < value: the number of the first that is not. Counting them all takes a few vector
    instructions; a binary search mispredicts two or three branches, and took longer than all the rest."""
    count = 0
    for cut in range(CUTS):
        count += cuts[axis, cut] < value
    return count


@inlined
def cuts_upto(cuts: Ints, axis: int, value: int) -> int:
    """How many cuts are <= value."""
    count = 0
    for cut in range(CUTS):
        count += cuts[axis, cut] <= value
    return count


@borrowing
def meeting(rows: Rows, below: Ints, above: Ints, words: Any) -> int:
    """Bits of a superset of the boxes that meet a box, given as the numbers of its rows: `cuts_below` of its high ends
    and `cuts_upto` of its low ends. The number of words written.

    Rows with more than 63/64 of all boxes are left out: verification is cheaper.
    """
    bits_below, bits_above = rows.below, rows.above
    below_count, above_count = rows.below_count, rows.above_count
    count = (rows.used[0] + 63) >> 6
    most = rows.used[1] - (rows.used[1] >> 6)
    started = False
    for axis in range(len(below)):
        use_below = below_count[axis, below[axis]] < most
        use_above = above_count[axis, above[axis]] < most
        if not use_below and not use_above:
            continue
        one = bits_below[axis, below[axis] if use_below else CUTS]
        other = bits_above[axis, above[axis] if use_above else 0]
        if started:
            for word in range(count):
                words[word] &= one[word] & other[word]
        else:
            for word in range(count):
                words[word] = one[word] & other[word]
            started = True
    if not started:
        row = bits_below[0, CUTS]
        for word in range(count):
            words[word] = row[word]
    return count


@borrowing
def found_slots(
    rows: Rows, low: Ints, high: Ints, kind: int, most: int, ranks: Ints, words: Any, slots: Ints
) -> int:  # fmt: skip
    """The slots of boxes near low..high, up to so many, and their number: of a superset of those that meet it (NEAR),
    of those that do (TOUCHING), or of those that contain it, which begin before it and end behind it (COVERING)."""
    begin, end = (low, high) if kind == COVERING else (high, low)
    for axis in range(len(low)):
        ranks[0, axis] = cuts_below(rows.cuts, axis, begin[axis])
        ranks[1, axis] = cuts_upto(rows.cuts, axis, end[axis])
    found, lows, highs = 0, rows.low, rows.high
    for word in range(meeting(rows, ranks[0], ranks[1], words)):
        bits = words[word]
        while bits != 0:
            slot = (word << 6) + lowest(bits)
            bits &= bits - _ONE
            kept = True
            if kind != NEAR:
                for axis in range(len(low)):
                    if lows[slot, axis] > begin[axis] or highs[slot, axis] < end[axis]:
                        kept = False
                        break
            if kept:
                slots[found] = slot
                found += 1
                if found == most:
                    return found
    return found


@inlined
def meets(lows: Ints, highs: Ints, box: int, low: Ints, high: Ints) -> bool:
    """Whether one box of an array meets low..high."""
    found = True
    for axis in range(len(low)):
        if lows[box, axis] > high[axis] or highs[box, axis] < low[axis]:
            found = False
            break
    return found


@inlined
def insert_box(rows: Rows, slot: int, low: Ints, high: Ints, box: int, owner: int) -> None:
    """Put box number `box` of an array into a slot."""
    rows.owner[slot] = owner
    bounded = np.uint64(0)
    for axis in range(min(low.shape[1], 64)):
        if low[box, axis] != rows.edges[0, axis] or high[box, axis] != rows.edges[1, axis]:
            bounded |= _ONE << np.uint64(axis)
    rows.bounded[slot] = bounded
    word, bit = slot >> 6, _ONE << np.uint64(slot & 63)
    for axis in range(low.shape[1]):
        rows.low[slot, axis], rows.high[slot, axis] = low[box, axis], high[box, axis]
        for cut in range(cuts_below(rows.cuts, axis, low[box, axis]), CUTS + 1):
            rows.below[axis, cut, word] |= bit
            rows.below_count[axis, cut] += 1
        for cut in range(cuts_upto(rows.cuts, axis, high[box, axis]) + 1):
            rows.above[axis, cut, word] |= bit
            rows.above_count[axis, cut] += 1
    rows.used[0] = max(rows.used[0], slot + 1)
    rows.used[1] += 1


@borrowing
def remove_box(rows: Rows, slot: int) -> None:
    word, bit = slot >> 6, ~(_ONE << np.uint64(slot & 63))
    for axis in range(rows.low.shape[1]):
        for cut in range(cuts_below(rows.cuts, axis, rows.low[slot, axis]), CUTS + 1):
            rows.below[axis, cut, word] &= bit
            rows.below_count[axis, cut] -= 1
        for cut in range(cuts_upto(rows.cuts, axis, rows.high[slot, axis]) + 1):
            rows.above[axis, cut, word] &= bit
            rows.above_count[axis, cut] -= 1
    rows.used[1] -= 1


@borrowing
def insert_many(rows: Rows, slots: Ints, low: Ints, high: Ints, owner: Ints) -> None:
    for position in range(len(slots)):
        insert_box(rows, slots[position], low, high, position, owner[position])


class BoxIndex:
    """Boxes in slots, with the rows over them. Grows and rebuilds by itself; both cost O(1) amortised per box."""

    def __init__(self, low: Ints, high: Ints) -> None:
        """Over axes that reach from low to high."""
        self.attributes = len(low)
        self.edges = np.stack((low, high))
        self._sized_for = 0
        self.rows = self._empty(64, np.zeros((self.attributes, CUTS), np.int64))
        self.free = np.zeros(64, np.int64)  # a stack of free slots: the first used[2] of it
        self._scratch()

    def _empty(self, slots: int, cuts: Ints) -> Rows:
        d, words = self.attributes, (slots + 63) >> 6
        ranks = [np.sum(each, axis=1) for end in self.edges for each in (cuts < end[:, None], cuts <= end[:, None])]
        return Rows(
            np.zeros((slots, d), np.int64),
            np.zeros((slots, d), np.int64),
            np.zeros(slots, np.int64),
            np.zeros(slots, np.uint64),
            cuts,
            np.zeros((d, CUTS + 1, words), np.uint64),
            np.zeros((d, CUTS + 1, words), np.uint64),
            np.zeros((d, CUTS + 1), np.int64),
            np.zeros((d, CUTS + 1), np.int64),
            np.zeros(3, np.int64),
            self.edges,
            np.stack(ranks).astype(np.int64),
        )

    def _scratch(self) -> None:
        self.ranks = np.zeros((2, self.attributes), np.int64)
        self.words = np.zeros(self.rows.below.shape[2], np.uint64)
        self.slots = np.zeros(len(self.rows.owner), np.int64)

    def __len__(self) -> int:
        return int(self.rows.used[1])

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.rows) + self.words.nbytes + self.slots.nbytes

    def reserve(self, more: int, low: Ints | None = None, high: Ints | None = None) -> None:
        """Make room for more boxes; choose the cuts again if there will be many more than when they were chosen.

        Given the boxes that are about to come, the cuts are theirs as well.
        """
        total, needed = len(self) + more, int(self.rows.used[0]) + more
        slots = len(self.rows.owner)
        if needed > slots or total > GROWTH * max(self._sized_for, 32):
            self._rebuild(needed + needed // 2 if needed > slots else slots, total, low, high)

    def _rebuild(self, slots: int, sized_for: int, low: Ints | None, high: Ints | None) -> None:
        old, taken = self.rows, np.array(self.taken(), np.int64)
        ends_low, ends_high = old.low[taken], old.high[taken]
        if low is not None and high is not None:
            ends_low, ends_high = np.concatenate((ends_low, low)), np.concatenate((ends_high, high))
        step = max(1, len(ends_low) // 256)
        sample = np.concatenate((ends_low[::step], ends_high[::step])).T
        cuts = np.zeros((self.attributes, CUTS), np.int64)
        if sample.shape[1]:
            quantiles = np.linspace(0, sample.shape[1] - 1, CUTS).astype(np.int64)
            cuts = np.ascontiguousarray(np.sort(np.ascontiguousarray(sample), axis=1)[:, quantiles])
        self.rows = self._empty(slots, cuts)
        if len(taken):
            insert_many(self.rows, taken, old.low[taken], old.high[taken], old.owner[taken])
        self.rows.used[0], self.rows.used[2] = old.used[0], old.used[2]
        self.free = np.concatenate((self.free, np.zeros(slots - len(self.free), np.int64)))
        self._sized_for = sized_for
        self._scratch()

    def insert(self, low: Ints, high: Ints, owner: int) -> list[int]:
        """Put boxes low[n, d], high[n, d] of one owner into slots."""
        return self.insert_all(low, high, np.full(len(low), owner, np.int64))

    def insert_all(self, low: Ints, high: Ints, owner: Ints) -> list[int]:
        """Put boxes, each of its owner, into slots."""
        self.reserve(len(low))
        reused = min(int(self.rows.used[2]), len(low))
        self.rows.used[2] -= reused
        fresh = int(self.rows.used[0])
        slots = [
            *self.free[self.rows.used[2] : self.rows.used[2] + reused].tolist()[::-1],
            *range(fresh, fresh + len(low) - reused),
        ]
        insert_many(self.rows, np.array(slots, np.int64), low, high, owner)
        return slots

    def remove(self, slot: int) -> None:
        remove_box(self.rows, slot)
        self.free[self.rows.used[2]] = slot
        self.rows.used[2] += 1

    def taken(self) -> list[int]:
        """The slots that hold a box."""
        return sorted(set(range(int(self.rows.used[0]))) - set(self.free[: self.rows.used[2]].tolist()))

    def _found(self, low: Ints, high: Ints, kind: int, most: int = ALL) -> Ints:
        return self.slots[: found_slots(self.rows, low, high, kind, most, self.ranks, self.words, self.slots)]

    def meeting(self, low: Ints, high: Ints) -> list[int]:
        """The slots of a superset of the boxes that meet low..high."""
        return self._found(low, high, NEAR).tolist()

    def touching(self, low: Ints, high: Ints) -> Ints:
        """The slots of the boxes that meet low..high."""
        return self._found(low, high, TOUCHING).copy()

    def holds(self, point: Ints) -> bool:
        """Whether a point is in some box."""
        return len(self._found(point, point, TOUCHING, ONE)) > 0

    def inside(self, low: Ints, high: Ints) -> Ints:
        """The slots of the boxes that low..high contains."""
        slots = self._found(low, high, NEAR)
        within = (self.rows.low[slots] >= low).all(axis=1) & (self.rows.high[slots] <= high).all(axis=1)
        return slots[within]

    def around(self, low: Ints, high: Ints) -> list[int]:
        """The slots of the boxes that contain low..high."""
        return self._found(low, high, COVERING).tolist()

    def check_invariants(self) -> None:
        rows, taken = self.rows, self.taken()
        assert len(taken) == len(self) == rows.used[0] - rows.used[2]
        bits = np.unpackbits(rows.below.view(np.uint8), axis=2, bitorder="little").astype(bool)
        more = np.unpackbits(rows.above.view(np.uint8), axis=2, bitorder="little").astype(bool)
        expected_below, expected_above = np.zeros_like(bits), np.zeros_like(more)
        for slot in taken:
            for axis in range(self.attributes):
                expected_below[axis, :CUTS, slot] = rows.low[slot, axis] <= rows.cuts[axis]
                expected_above[axis, 1:, slot] = rows.high[slot, axis] >= rows.cuts[axis]
                expected_below[axis, CUTS, slot] = expected_above[axis, 0, slot] = True
        assert (bits == expected_below).all() and (more == expected_above).all()
        assert (bits.sum(axis=2) == rows.below_count).all() and (more.sum(axis=2) == rows.above_count).all()
