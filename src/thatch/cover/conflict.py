"""The conflict table of a box s and the other boxes, and what can be decided from it (monte-carlo, section 3).

A row for each box, two entries for each attribute: the part of s below the box and the part above it. An entry is
defined if that part is not empty. For s = [830,870] x [1003,1006]:

                            x1 < low    x1 > high   x2 < low    x2 > high
    s1 [820,850] [1001,1007]   -         x1 > 850      -           -
    s2 [840,880] [1002,1009] x1 < 840       -          -           -           covered: the two conflict
    s3 [810,890] [1004,1005]   -            -       x2 < 1004   x2 > 1005      conflict-free: s3 is not needed

A point of s outside all boxes satisfies one defined entry of each row; entries satisfy each other unless they are
`x < a` and `x > b` of one attribute, in different rows, with nothing between b and a. So a choice of one entry from
each row without conflicting pairs is a box of witnesses. From this follow

    corollary 1    a row without defined entries: that box covers s
    corollary 2    a row with all entries defined: s covers that box
    corollary 3    the j-th row in order of its entries has j of them, for all j: a witness exists
    MCS            a row with a conflict-free entry, or with as many entries as there are rows, is not needed to decide
                   (the minimized cover set is what is left; nothing left: a witness exists)
    rho            the least part of s that any entry of each attribute leaves, multiplied up: the paper's bound on the
                   share of witnesses, which is *not* a bound (a pinwheel's hole is narrower than every entry)

Differences: an entry conflicts only with the largest `b` or the smallest `a` of other rows, so a round of MCS takes
O(k d) with the two best values of each side, not O(k^2 d^2); removals of a round count at once. What ERRATA says of
algorithms 2, 3 and 4 is mended. Witnesses are made from removals undone in reverse: each row then has a free entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thatch.jit import inner, kernel
from thatch.space.arrays import Bools, Ints

_BEYOND = np.uint64(2**64 - 1)  # no entry leaves more points than this


class Best(NamedTuple):
    """Of each attribute the two entries of either side that conflict with most, and whose the first is."""

    value: Ints  # [2, 2, d]: side, first and second
    row: Ints  # [2, d]: -1 if there is none
    has_second: Ints  # [2, d]


@inner
def entries(low: Ints, high: Ints, member_low: Ints, member_high: Ints, row: int) -> int:
    """How many entries of a row are defined."""
    count = 0
    for axis in range(len(low)):
        count += (member_low[row, axis] > low[axis]) + (member_high[row, axis] < high[axis])
    return count


@kernel
def find_best(low: Ints, high: Ints, member_low: Ints, member_high: Ints, rows: Ints, count: int, best: Best) -> None:
    value, whose, has_second = best.value, best.row, best.has_second
    for axis in range(len(low)):
        whose[0, axis] = whose[1, axis] = -1
        has_second[0, axis] = has_second[1, axis] = 0
    for position in range(count):
        row = rows[position]
        for axis in range(len(low)):
            for side in range(2):
                end = member_low[row, axis] if side == 0 else member_high[row, axis]
                if end <= low[axis] if side == 0 else end >= high[axis]:
                    continue
                # On the side below the smallest end conflicts with most, on the side above the largest.
                if whose[side, axis] < 0 or (end < value[side, 0, axis] if side == 0 else end > value[side, 0, axis]):
                    if whose[side, axis] >= 0:
                        value[side, 1, axis], has_second[side, axis] = value[side, 0, axis], 1
                    value[side, 0, axis], whose[side, axis] = end, row
                elif not has_second[side, axis] or (
                    end < value[side, 1, axis] if side == 0 else end > value[side, 1, axis]
                ):
                    value[side, 1, axis], has_second[side, axis] = end, 1


@kernel
def is_free(low: Ints, high: Ints, member_low: Ints, member_high: Ints, row: int, best: Best) -> bool:
    """Whether a row has a defined entry that conflicts with none of another row."""
    value, whose, has_second = best.value, best.row, best.has_second
    for axis in range(len(low)):
        for side in range(2):
            end = member_low[row, axis] if side == 0 else member_high[row, axis]
            if end <= low[axis] if side == 0 else end >= high[axis]:
                continue
            other = 1 - side
            place = 1 if whose[other, axis] == row else 0
            if whose[other, axis] < 0 or (place == 1 and not has_second[other, axis]):
                return True
            below, above = (end, value[1, place, axis]) if side == 0 else (value[0, place, axis], end)
            if above < below - 1:  # a point lies between: x > above and x < below
                return True
    return False


@kernel
def minimize(
    low: Ints, high: Ints, member_low: Ints, member_high: Ints, rows: Ints, count: int, removed: Ints, best: Best
) -> int:
    """Remove rows that are not needed from rows[:count], until none can be; into `removed`, in this order. How many are
    left, at the front of rows."""
    total, gone = count, -1
    while gone != 0 and count > 0:
        find_best(low, high, member_low, member_high, rows, count, best)
        kept = gone = 0
        for position in range(count):
            row, left = rows[position], count - gone
            # A row has at most 2d entries: while there are more rows, counting them decides nothing.
            is_full = left <= 2 * len(low) and entries(low, high, member_low, member_high, row) >= left
            if is_full or is_free(low, high, member_low, member_high, row, best):
                removed[total - left] = row
                gone += 1
            else:
                rows[kept] = row
                kept += 1
        count = kept
    return count


@kernel
def narrow(
    low: Ints, high: Ints, member_low: Ints, member_high: Ints, row: int, witness_low: Ints, witness_high: Ints
) -> bool:
    """Leave of a box of witnesses one that a further row's box does not hold, by an entry that does not conflict."""
    for axis in range(len(low)):
        end = member_low[row, axis]
        if end > low[axis] and witness_low[axis] < end:
            witness_high[axis] = min(witness_high[axis], end - 1)
            return True
        end = member_high[row, axis]
        if end < high[axis] and witness_high[axis] > end:
            witness_low[axis] = max(witness_low[axis], end + 1)
            return True
    return False


@kernel
def by_counting(low: Ints, high: Ints, member_low: Ints, member_high: Ints, rows: Ints, count: int) -> int:
    """Corollaries 1 and 3: 1 and the row in front if one covers, -1 if a witness exists, and then the rows in the order
    in which to choose; else 0."""
    for position in range(count):
        row, is_whole = rows[position], True
        for axis in range(len(low)):
            if member_low[row, axis] > low[axis] or member_high[row, axis] < high[axis]:
                is_whole = False
                break
        if is_whole:
            rows[0], rows[position] = row, rows[0]
            return 1
    if count > 2 * len(low):
        return 0
    counts = np.zeros(count, np.int64)
    for position in range(count):
        counts[position] = entries(low, high, member_low, member_high, rows[position])
    for position in range(1, count):  # insertion sort: there are at most 2d
        row, own, place = rows[position], counts[position], position
        while place > 0 and counts[place - 1] > own:
            rows[place], counts[place] = rows[place - 1], counts[place - 1]
            place -= 1
        rows[place], counts[place] = row, own
    for position in range(count):
        if counts[position] < position + 1:
            return 0
    return -1


@kernel
def log_rho(low: Ints, high: Ints, member_low: Ints, member_high: Ints, rows: Ints, count: int) -> float:
    """The logarithm of rho: of each attribute the least part of s that an entry leaves, in points."""
    total, least = 0.0, np.empty(len(low), np.uint64)
    for axis in range(len(low)):
        least[axis] = _BEYOND
    for position in range(count):  # row by row, in integers and without branches: in vector instructions
        row = rows[position]
        for axis in range(len(low)):
            begin, end = member_low[row, axis], member_high[row, axis]
            below = np.uint64(begin) - np.uint64(low[axis]) if begin > low[axis] else _BEYOND
            above = np.uint64(high[axis]) - np.uint64(end) if end < high[axis] else _BEYOND
            least[axis] = min(least[axis], min(below, above))
    for axis in range(len(low)):
        span = np.uint64(high[axis]) - np.uint64(low[axis])
        if least[axis] <= span:
            total += np.log(np.float64(least[axis]) / (np.float64(span) + 1.0))
    return total


@inner
def draw(state: NDArray[np.uint64]) -> np.uint64:
    """The next number of the generator splitmix64 (Steele, Lea, Flood), whose state is one word."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    word = state[0]
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


@inner
def guess(low: Ints, high: Ints, state: NDArray[np.uint64], point: Ints) -> None:
    """A point of low..high, each as likely as any other: numbers that would favour the first ones are drawn again."""
    for axis in range(len(low)):
        widest = np.uint64(high[axis]) - np.uint64(low[axis])  # one less than the width, which may be 2^64
        word = draw(state)
        if widest != np.uint64(0xFFFFFFFFFFFFFFFF):
            width = widest + np.uint64(1)
            excess = (np.uint64(0) - width) % width  # 2^64 modulo the width
            while word < excess:
                word = draw(state)
            word %= width
        point[axis] = np.int64(np.uint64(low[axis]) + word)


@kernel
def find_point(
    low: Ints,
    high: Ints,
    member_low: Ints,
    member_high: Ints,
    rows: Ints,
    count: int,
    trials: int,
    state: NDArray[np.uint64],
    point: Ints,
) -> int:
    """RSPC: guess points of s until one is in no row's box. How many were guessed, negative if none was found."""
    for trial in range(trials):
        guess(low, high, state, point)
        is_held = False
        for position in range(count):
            row, inside = rows[position], True
            for axis in range(len(low)):
                if point[axis] < member_low[row, axis] or point[axis] > member_high[row, axis]:
                    inside = False
                    break
            if inside:
                is_held = True
                rows[0], rows[position] = row, rows[0]  # the next point is likely to be in the same one
                break
        if not is_held:
            return trial + 1
    return -trials


@dataclass(frozen=True, eq=False)
class ConflictTable:
    """The table of one box and some others, to look at. The engine runs the same kernels on its index.

    >>> import numpy as np
    >>> table = ConflictTable(
    ...     np.array([830, 1003]), np.array([870, 1006]),
    ...     np.array([[820, 1001], [840, 1002]]), np.array([[850, 1007], [880, 1009]]),
    ... )
    >>> table.defined.astype(int).tolist()
    [[0, 1, 0, 0], [1, 0, 0, 0]]
    >>> table.minimized()[0]
    [0, 1]
    """

    low: Ints
    high: Ints
    member_low: Ints
    member_high: Ints

    @cached_property
    def defined(self) -> Bools:
        """[k, 2d]: which entries are defined, below and above in each attribute in turn."""
        both: Bools = np.stack((self.member_low > self.low, self.member_high < self.high), axis=2)
        return both.reshape(len(self.member_low), 2 * len(self.low))

    @property
    def counts(self) -> list[int]:
        """t: the defined entries of each row."""
        found: list[int] = self.defined.sum(axis=1).tolist()
        return found

    def conflict_free(self) -> list[bool]:
        """Which rows have an entry that conflicts with none of another row."""
        best, rows = _new_best(len(self.low)), np.arange(len(self.member_low))
        find_best(self.low, self.high, self.member_low, self.member_high, rows, len(rows), best)
        return [
            bool(is_free(self.low, self.high, self.member_low, self.member_high, row, best)) for row in rows.tolist()
        ]

    def covering_rows(self) -> list[int]:
        """Corollary 1: whose boxes cover s."""
        return [row for row, count in enumerate(self.counts) if count == 0]

    def covered_rows(self) -> list[int]:
        """Corollary 2: whose boxes s covers, with room on every side."""
        return [row for row, count in enumerate(self.counts) if count == self.defined.shape[1]]

    def has_polyhedron_witness(self) -> bool:
        """Corollary 3: whether a polyhedron witness exists."""
        return all(count >= place + 1 for place, count in enumerate(sorted(self.counts)))

    def minimized(self) -> tuple[list[int], list[int]]:
        """MCS: the rows that are left, and those removed, in order."""
        rows, removed = np.arange(len(self.member_low)), np.zeros(len(self.member_low), np.int64)
        left = minimize(
            self.low, self.high, self.member_low, self.member_high, rows, len(rows), removed, _new_best(len(self.low))
        )
        return rows[:left].tolist(), removed[: len(rows) - left].tolist()

    def rho(self, rows: list[int] | None = None) -> float:
        """The share of witnesses that the paper takes for the least possible, of all rows or some."""
        chosen = np.arange(len(self.member_low)) if rows is None else np.array(rows, np.int64)
        return float(np.exp(log_rho(self.low, self.high, self.member_low, self.member_high, chosen, len(chosen))))

    def witness(self) -> tuple[list[int], list[int]] | None:
        """A box of witnesses, if corollary 3 or MCS shows that there is one."""
        left, removed = self.minimized()
        order = removed[::-1]
        if left:
            if not self.has_polyhedron_witness():
                return None
            order = sorted(range(len(self.counts)), key=self.counts.__getitem__)
        low, high = self.low.copy(), self.high.copy()
        for row in order:
            found = narrow(self.low, self.high, self.member_low, self.member_high, row, low, high)
            assert found, "a row without an entry that fits"
        return low.tolist(), high.tolist()


def _new_best(d: int) -> Best:
    return Best(np.zeros((2, 2, d), np.int64), np.zeros((2, d), np.int64), np.zeros((2, d), np.int64))
