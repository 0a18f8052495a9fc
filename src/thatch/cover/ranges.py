"""Ranges of cell numbers with their owners, in flat arrays: who holds this number, and is this range held altogether?

The idea: sort the ranges by where they begin, and keep for each the furthest end of it and all before it (`reach`), and
whose that is. Whether a range is covered is then a walk of leaps: of all ranges that begin at or before a number the
reach is known from one binary search; leap behind it, and go on. That is the greedy cover of an interval, which needs
the fewest ranges, so certificates are short.

    first   0   2   5   9  12          [3, 11] covered? At 3, [2, 8] reaches furthest: to 9; there [9, 14] does.
    last    4   8   6  14  13          Two leaps, owners b and d. At 15 nothing reaches: 15 is a gap.
    reach   4   8   8  14  14
    whose   a   b   b   d   d

Ranges keep their owners, so taking one owner's out harms nobody else (MICS merges them and loses the owners: ERRATA).
Merged, as the paper stores and forwards them, they are what `merged` gives.

Levels: new ranges go into an unsorted tail; a full tail is sorted into a level, together with all levels before it that
are less than twice as large. Levels stand one behind the other in the same arrays, so that is one sort of their end. A
range that leaves is emptied where it stands, and reaches are mended from there on until they are as they were.

Cost: O(log^2 n) for a leap; a range is sorted O(log n) times, and takes 40 bytes. The alternative, a sorted dictionary
of disjoint segments with sets of owners, takes ten times that.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from thatch.jit import kernel
from thatch.space.arrays import Ints, upper_bound

TAIL = 128
BLOCK_BITS = 6  # ends of 64 ranges are looked at together
NONE = -1


class Table(NamedTuple):
    """What the kernels read. Rows 0 to used[0] are in use; a range that left ends before it begins."""

    first: Ints
    last: Ints
    owner: Ints
    reach: Ints
    whose: Ints  # the row that reaches furthest
    furthest: Ints  # [blocks]: of 64 rows, the greatest last
    bounds: Ints  # where levels begin; the tail begins at bounds[used[1]]
    used: Ints  # [3]: rows; levels; rows of ranges that left


@kernel
def leap(table: Table, number: int) -> int:
    """The row whose range holds a number and ends last; -1 if there is none."""
    best, end = -1, number - 1
    for level in range(table.used[1]):
        start = table.bounds[level]
        row = upper_bound(table.first, start, table.bounds[level + 1], number) - 1
        if row >= start and table.reach[row] > end:
            best, end = table.whose[row], table.reach[row]
    for row in range(table.bounds[table.used[1]], table.used[0]):
        if table.first[row] <= number and table.last[row] > end:
            best, end = row, table.last[row]
    return best


@kernel
def next_first(table: Table, number: int, last: int) -> int:
    """Where the next range begins behind a number, or last + 1."""
    found = last + 1
    for level in range(table.used[1]):
        row, stop = (
            upper_bound(table.first, table.bounds[level], table.bounds[level + 1], number),
            table.bounds[level + 1],
        )
        while row < stop and table.first[row] < found and table.last[row] < table.first[row]:
            row += 1
        if row < stop:
            found = min(found, table.first[row])
    for row in range(table.bounds[table.used[1]], table.used[0]):
        if number < table.first[row] <= table.last[row]:
            found = min(found, table.first[row])
    return found


@kernel
def cover_ranges(table: Table, asked: Ints, owners: Ints, state: Ints) -> int:
    """Are all ranges asked[n, 2] held? Their owners, with repetitions, and -1; or the first number that nobody holds.
    state[0] is the number of owners. With no room for owners, -2."""
    state[0] = 0
    for place in range(len(asked)):
        number = asked[place, 0]
        while number <= asked[place, 1]:
            row = leap(table, number)
            if row < 0:
                return number
            if state[0] == 0 or owners[state[0] - 1] != table.owner[row]:
                if state[0] == len(owners):
                    return -2
                owners[state[0]] = table.owner[row]
                state[0] += 1
            number = table.last[row] + 1
    return -1


@kernel
def gaps(table: Table, asked: Ints, out: Ints) -> int:
    """What nobody holds of some ranges, as ranges; how many, or -1 if there is no room for them."""
    count = 0
    for place in range(len(asked)):
        number, last = asked[place, 0], asked[place, 1]
        while number <= last:
            row = leap(table, number)
            if row >= 0:
                number = table.last[row] + 1
                continue
            end = next_first(table, number, last) - 1
            if count == len(out):
                return -1
            out[count, 0], out[count, 1] = number, end
            count += 1
            number = end + 1
    return count


@kernel
def holders(table: Table, asked: Ints, out: Ints) -> int:
    """The rows whose ranges meet one of asked[n, 2], with repetitions; how many, or -1 if there is no room."""
    count, first, last, furthest = 0, table.first, table.last, table.furthest
    for place in range(len(asked)):
        low, high = asked[place, 0], asked[place, 1]
        for level in range(table.used[1] + 1):
            start = table.bounds[level]
            is_tail = level == table.used[1]
            stop = table.used[0] if is_tail else table.bounds[level + 1]
            row = stop - 1 if is_tail else upper_bound(first, start, stop, high) - 1
            while row >= start:
                if not is_tail and table.reach[row] < low:
                    break  # nothing before it ends later
                if furthest[row >> BLOCK_BITS] < low:
                    row = ((row >> BLOCK_BITS) << BLOCK_BITS) - 1
                    continue
                if last[row] >= low and first[row] <= high and first[row] <= last[row]:
                    if count == len(out):
                        return -1
                    out[count] = row
                    count += 1
                row -= 1
    return count


@kernel
def arrange(table: Table, start: int, stop: int) -> None:
    """Reaches of a level whose ranges are sorted, and the ends of its blocks."""
    reach, whose = -1, -1
    for row in range(start, stop):
        if table.last[row] > reach:
            reach, whose = table.last[row], row
        table.reach[row], table.whose[row] = reach, whose


@kernel
def mark_blocks(table: Table, start: int, stop: int) -> None:
    """The greatest ends of the blocks that hold rows start to stop."""
    for block in range(start >> BLOCK_BITS, ((stop - 1) >> BLOCK_BITS) + 1):
        end = -1
        for row in range(block << BLOCK_BITS, min((block + 1) << BLOCK_BITS, table.used[0])):
            end = max(end, table.last[row])
        table.furthest[block] = end


@kernel
def take_away(table: Table, ranges: Ints, owner: int) -> int:
    """Empty the ranges of an owner; how many were found."""
    found, tail = 0, table.bounds[table.used[1]]
    for place in range(len(ranges)):
        for level in range(table.used[1] + 1):
            start = table.bounds[level]
            is_tail = level == table.used[1]
            stop = table.used[0] if is_tail else table.bounds[level + 1]
            row = start if is_tail else upper_bound(table.first, start, stop, ranges[place, 0] - 1)
            while row < stop and (is_tail or table.first[row] == ranges[place, 0]):
                is_live = table.last[row] >= table.first[row]
                if is_live and table.owner[row] == owner and table.first[row] == ranges[place, 0]:
                    break
                row += 1
            if row >= stop or table.first[row] != ranges[place, 0]:
                continue
            table.last[row] = table.first[row] - 1
            table.used[2] += 1
            found += 1
            mark_blocks(table, row, row + 1)
            if row < tail:
                reach, whose = (
                    (table.reach[row - 1], table.whose[row - 1]) if row > start else (np.int64(-1), np.int64(-1))
                )
                for later in range(row, stop):
                    if table.last[later] > reach:
                        reach, whose = table.last[later], later
                    if table.reach[later] == reach and table.whose[later] == whose:
                        break
                    table.reach[later], table.whose[later] = reach, whose
            break
    return found


class RangeTable:
    """Ranges of several owners, who are numbers."""

    def __init__(self) -> None:
        self._owned: dict[int, Ints] = {}
        self._table = self._room(1024, np.zeros(1, np.int64))
        self._owners: Ints = np.zeros(1024, np.int64)
        self._state: Ints = np.zeros(1, np.int64)

    @staticmethod
    def _room(rows: int, bounds: Ints) -> Table:
        first, last, owner, reach, whose = (np.full(rows, NONE, np.int64) for _ in range(5))
        levels = np.zeros(72, np.int64)
        levels[: len(bounds)] = bounds
        used = np.array([bounds[-1], len(bounds) - 1, 0], np.int64)
        furthest = np.full((rows >> BLOCK_BITS) + 1, NONE, np.int64)
        return Table(first, last, owner, reach, whose, furthest, levels, used)

    def __len__(self) -> int:
        """How many ranges there are."""
        return int(self._table.used[0] - self._table.used[2])

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self._table) + sum(each.nbytes for each in self._owned.values())

    def add(self, owner: int, ranges: Ints) -> None:
        """Ranges [n, 2] of a new owner, ascending and apart."""
        assert owner not in self._owned
        self._owned[owner] = ranges
        self._append(ranges[:, 0], ranges[:, 1], np.full(len(ranges), owner, np.int64))

    def _append(self, first: Ints, last: Ints, owner: Ints) -> None:
        rows = int(self._table.used[0])
        if rows + len(first) > len(self._table.first):
            self._grow(rows + len(first))
        table = self._table
        table.first[rows : rows + len(first)] = first
        table.last[rows : rows + len(first)] = last
        table.owner[rows : rows + len(first)] = owner
        table.used[0] += len(first)
        if len(first):
            mark_blocks(table, rows, rows + len(first))
        if table.used[0] - table.bounds[table.used[1]] > TAIL:
            self._sort_tail()

    def _grow(self, rows: int) -> None:
        old = self._table
        new = self._room(rows + rows // 2, np.zeros(1, np.int64))
        for source, target in zip(old, new, strict=True):
            target[: len(source)] = source
        self._table = new

    def _sort_tail(self) -> None:
        table, levels = self._table, int(self._table.used[1])
        stop = int(table.used[0])
        start = int(table.bounds[levels])
        while levels and start - table.bounds[levels - 1] < 2 * (stop - start):
            levels -= 1
            start = int(table.bounds[levels])
        kept = np.flatnonzero(table.last[start:stop] >= table.first[start:stop]) + start
        order = kept[np.argsort(table.first[kept], kind="stable")]
        columns = [column[order] for column in (table.first, table.last, table.owner)]
        gone = stop - start - len(order)
        table.used[0] -= gone
        table.used[2] -= gone
        stop -= gone
        for column, values in zip((table.first, table.last, table.owner), columns, strict=True):
            column[start:stop] = values
        table.used[1] = levels + 1
        table.bounds[levels], table.bounds[levels + 1] = start, stop
        if stop > start:
            arrange(table, start, stop)
            mark_blocks(table, start, stop)

    def remove(self, owner: int) -> Ints:
        """The ranges of an owner, who has none then."""
        ranges = self._owned.pop(owner)
        found = take_away(self._table, ranges, owner)
        assert found == len(ranges)
        if self._table.used[2] > max(TAIL, int(self._table.used[0]) // 2):
            self._compact()
        return ranges

    def _compact(self) -> None:
        table = self._table
        rows = int(table.used[0])
        kept = np.flatnonzero(table.last[:rows] >= table.first[:rows])
        columns = [column[kept] for column in (table.first, table.last, table.owner)]
        self._table = self._room(max(1024, len(kept) + len(kept) // 2), np.zeros(1, np.int64))
        self._append(*columns)

    def cover(self, asked: Ints) -> tuple[list[int], int]:
        """The owners of the fewest ranges that hold all of some ranges, and -1; or none, and a number that nobody
        holds."""
        gap = cover_ranges(self._table, asked, self._owners, self._state)
        while gap == -2:
            self._owners = np.zeros(2 * len(self._owners), np.int64)
            gap = cover_ranges(self._table, asked, self._owners, self._state)
        if gap >= 0:
            return [], int(gap)
        return list(dict.fromkeys(self._owners[: self._state[0]].tolist())), -1

    def uncovered(self, asked: Ints) -> Ints:
        """What nobody holds of some ranges: ranges [n, 2]."""
        out = np.empty((max(16, 2 * len(asked)), 2), np.int64)
        while True:
            count = gaps(self._table, asked, out)
            if count >= 0:
                return out[:count].copy()
            out = np.empty((4 * len(out), 2), np.int64)

    def owners(self, asked: Ints) -> list[int]:
        """Who has a range that meets one of some ranges [n, 2]; ascending."""
        count = holders(self._table, asked, self._owners)
        while count < 0:
            self._owners = np.zeros(4 * len(self._owners), np.int64)
            count = holders(self._table, asked, self._owners)
        found: list[int] = np.unique(self._table.owner[self._owners[:count]]).tolist()
        return found

    def holders(self, number: int) -> list[int]:
        """Who has a range that holds a number; ascending."""
        return self.owners(np.array([[number, number]]))

    def holds(self, number: int) -> bool:
        """Has anybody a range that holds a number?"""
        return leap(self._table, number) >= 0

    def merged(self, gap: int = 0) -> Ints:
        """All ranges as disjoint ones, ascending, those at most `gap` numbers apart as one: what the paper stores."""
        table, rows = self._table, int(self._table.used[0])
        kept = np.flatnonzero(table.last[:rows] >= table.first[:rows])
        if not len(kept):
            return np.empty((0, 2), np.int64)
        order = kept[np.argsort(table.first[kept], kind="stable")]
        first, reach = table.first[order], np.maximum.accumulate(table.last[order])
        begins = np.r_[True, first[1:] > reach[:-1] + 1 + gap]
        return np.stack((first[begins], reach[np.r_[begins[1:], True]]), axis=1)

    def check_invariants(self) -> None:
        table, rows = self._table, int(self._table.used[0])
        held = sorted(
            (int(first), int(last), owner) for owner, ranges in self._owned.items() for first, last in ranges.tolist()
        )
        live = table.last[:rows] >= table.first[:rows]
        columns = (table.first[:rows][live], table.last[:rows][live], table.owner[:rows][live])
        assert sorted(zip(*(column.tolist() for column in columns), strict=True)) == held
        assert rows - live.sum() == table.used[2]
        bounds = table.bounds[: table.used[1] + 1].tolist()
        assert bounds == sorted(bounds) and (not bounds or bounds[0] == 0)
        for start, stop in pairwise(bounds):
            assert (np.diff(table.first[start:stop]) >= 0).all()
            assert (np.maximum.accumulate(table.last[start:stop]).clip(-1) == table.reach[start:stop]).all()
            for row in range(start, stop):
                if table.whose[row] >= 0:
                    assert table.last[table.whose[row]] == table.reach[row]
        for block in range((rows >> BLOCK_BITS) + 1):
            ends = table.last[block << BLOCK_BITS : min((block + 1) << BLOCK_BITS, rows)]
            assert not len(ends) or table.furthest[block] == ends.max()
