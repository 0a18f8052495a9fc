"""Which terms lie inside one another, and which pairs fill most of the box around both: one pass over flat arrays.

The box around each term has two kinds of ends: coordinates, which decide, and stretches of the real line (bounding.py),
which measure. A pass leaves a pair at the first attribute that tells it apart, most often the first or the second:
10,000 boxes take some 100 microseconds, no more than the Python around it. Sides that are sets are guessed to fill as
much as they might; the caller measures exactly what the pass found.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from thatch.jit import kernel
from thatch.region.intervals import Intervals
from thatch.region.term import Term
from thatch.region.widths import ends_of, is_ordered, width
from thatch.space.arrays import Ints
from thatch.space.attribute import Attribute
from thatch.space.space import Space

FOUND_MAX = 4  # partners that one pass names
_SLACK = 1e-9  # sums of products of shares are off by far less


class Measures(NamedTuple):
    """What kernels read of the boxes, by slot and attribute."""

    start: Any  # float64 [slots, d]
    end: Any
    width: Any
    name: Ints  # [slots, d]: -1 for one interval of an ordered axis, else a number that equal sets share
    filled: Any  # float64 [slots]: the share of it that is wanted; 0 if there is none, or if it takes no partner


@kernel
def nested(low: Ints, high: Ints, used: int, own: int, outer: Ints, inner: Ints) -> tuple[int, int]:
    """The slots whose boxes contain that of one slot, and those whose boxes lie in it; how many there are of each."""
    around = inside = 0
    for slot in range(used):
        if slot == own or low[slot, 0] > high[slot, 0]:
            continue
        is_around = is_inside = True
        for axis in range(low.shape[1]):
            is_around &= (low[slot, axis] <= low[own, axis]) & (high[slot, axis] >= high[own, axis])
            is_inside &= (low[slot, axis] >= low[own, axis]) & (high[slot, axis] <= high[own, axis])
            if not (is_around | is_inside):
                break
        if is_around:
            outer[around] = slot
            around += 1
        if is_inside:
            inner[inside] = slot
            inside += 1
    return around, inside


@kernel
def fullest(measures: Measures, used: int, own: int, least: float, found: Ints, costs: Any) -> int:
    """The slots that waste least together with one, best first; their number, at most len(found).

    Only pairs that may fill the least share of what is around both. `costs` gets the share that neither holds.
    """
    start, end, width, name, filled = measures
    count = 0
    for slot in range(used):
        if slot == own or filled[slot] <= 0:
            continue
        one = other = both = 1.0
        for axis in range(start.shape[1]):
            a_start, a_end, a_width = start[own, axis], end[own, axis], width[own, axis]
            b_start, b_end, b_width = start[slot, axis], end[slot, axis], width[slot, axis]
            if a_start == b_start and a_end == b_end and name[own, axis] == name[slot, axis]:
                continue
            shared = 0.0
            if name[own, axis] < 0 and name[slot, axis] < 0:
                around = max(a_end, b_end) - min(a_start, b_start)
                shared = max(0.0, min(a_end, b_end) - max(a_start, b_start))
            elif a_end <= b_start or b_end <= a_start:
                around = a_width + b_width
            else:
                around = max(a_width, b_width)
            if around > 0:
                one *= a_width / around
                other *= b_width / around
                both *= shared / around
            if one + other < least:
                break
        if one + other < least:
            continue
        first, second = filled[own] * one, filled[slot] * other
        if max(first + second - both, first, second) < least:
            continue
        cost = 1.0 - (one + other - both)
        if count == len(found) and cost >= costs[count - 1]:
            continue
        place = min(count, len(found) - 1)
        while place > 0 and costs[place - 1] > cost:
            found[place], costs[place] = found[place - 1], costs[place - 1]
            place -= 1
        found[place], costs[place] = slot, cost
        count = min(count + 1, len(found))
    return count


class Pairs:
    """The terms of all groups, by slot, in flat arrays."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.passes = 0  # over all boxes
        self._used = 0
        self._free: list[int] = []
        self._allot(64)

    def _allot(self, slots: int) -> None:
        d = len(self.space)
        self.low, self.high = np.ones((slots, d), np.int64), np.zeros((slots, d), np.int64)
        empty = np.zeros((slots, d))
        self.measures = Measures(empty, empty.copy(), empty.copy(), np.zeros((slots, d), np.int64), np.zeros(slots))
        self._outer, self._inner = np.empty(slots, np.int64), np.empty(slots, np.int64)
        self._found, self._costs = np.empty(FOUND_MAX, np.int64), np.empty(FOUND_MAX)

    def put(self, term: Term, filled: float) -> int:
        """The slot of the box around a term. It takes a partner if a share of it is filled, and if it has no balls."""
        if not self._free and self._used == len(self.low):
            self._grow()
        slot = self._free.pop() if self._free else self._used
        self._used = max(self._used, slot + 1)
        low, high = self.low[slot], self.high[slot]
        low[:], high[:] = self.space.low[0], self.space.high[0]
        sides = dict(term.sides)
        for index, side in term.sides:
            low[index], high[index] = side.low, side.high
        for ball in term.balls:
            for index, bounds in ball.bounds(self.space).items():
                low[index], high[index] = max(low[index], bounds.low), min(high[index], bounds.high)
        takes_partner = filled > 0 and not term.balls
        self.measures.filled[slot] = filled if takes_partner else 0.0
        if takes_partner:
            for index, attribute in enumerate(self.space.attributes):
                self._measure(slot, index, sides.get(index), attribute)
        return slot

    def _measure(self, slot: int, index: int, side: Intervals | None, attribute: Attribute) -> None:
        side = side or Intervals.between(attribute.low, attribute.last)
        start, end = ends_of(side.low, side.high, attribute)
        is_plain = len(side) == 1 and side.high >= attribute.first and is_ordered(attribute)
        measures = self.measures
        measures.start[slot, index], measures.end[slot, index] = start, end
        measures.width[slot, index] = end - start if is_plain else width(side, attribute)
        measures.name[slot, index] = -1 if is_plain else crc32(side.ends.tobytes())

    def _grow(self) -> None:
        old_low, old_high, old = self.low, self.high, self.measures
        n = len(old_low)
        self._allot(2 * n)
        self.low[:n], self.high[:n] = old_low, old_high
        for new, each in zip(self.measures, old, strict=True):
            new[:n] = each

    def drop(self, slot: int) -> None:
        self.low[slot], self.high[slot] = 1, 0
        self.measures.filled[slot] = 0.0
        self._free.append(slot)

    def nested(self, slot: int) -> tuple[list[int], list[int]]:
        """The slots whose boxes contain that of this one, and those whose boxes lie in it, ascending."""
        self.passes += 1
        around, inside = nested(self.low, self.high, self._used, slot, self._outer, self._inner)
        return self._outer[:around].tolist(), self._inner[:inside].tolist()

    def fullest(self, slot: int, least: float) -> list[int]:
        """Up to FOUND_MAX slots that might fill the least share together with this one, by rising waste."""
        if self.measures.filled[slot] <= 0:
            return []
        self.passes += 1
        count = fullest(self.measures, self._used, slot, least * (1 - _SLACK), self._found, self._costs)
        found: list[int] = self._found[:count].tolist()
        return found
