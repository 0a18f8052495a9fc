"""MICS as a match index: the number of an event's cell leads to the boxes that meet the cell, and those are verified.

The idea: a grid cuts some attributes into cells and a curve numbers them (grid.py), so a box is a few ranges of numbers
and an event is one number. Ranges are sorted by where they begin; those that hold a number stand before it, and the
furthest end of all before says where to stop looking.

    first   0   2   5   9  12     event in cell 6: the last range that begins at or before it is [5, 6]; going back,
    last    4   8   6  14  13     [2, 8] holds it, too; before that nothing reaches 6 (4 does not), so the search ends
    reach   4   8   8  14  14

From MICS (Jafarpour et al.), its three ways to many attributes: *projection*, a grid over some `attributes` only;
*subscription indexing*, for the cells only tell candidates, which are compared exactly; and attribute *groups*, a curve
for each, of which all must name a box. Where it differs: ranges keep their owners; they are kept in levels as our own
index keeps its trees (index.py), so that a view never changes; and a box has at most `ranges_max` ranges, of coarser
blocks if need be: with an exact check behind it, a few candidates more cost less than a long list.

Exact: errs on no side. Cost: a binary search among the ranges of each level, the candidates, and what is between them;
28 bytes a range. Boxes that are wide in the attributes of the grid are candidates of nearly every event.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from thatch.boxes import Ints
from thatch.errors import CallerError
from thatch.grid import BITS, Grid
from thatch.jit import kernel
from thatch.match.axes import NO_DOUBLES
from thatch.match.entries import verified
from thatch.match.index import LevelledMatcher, Levels, TreeView
from thatch.match.tree import grown
from thatch.space import Space

RANGES_MAX = 64
BLOCK_BITS = 6  # ends of 64 ranges are looked at together


class Ranges(NamedTuple):
    """The ranges of some entries in one grid, by where they begin."""

    first: Ints
    last: Ints
    slot: Any  # int32: whose range it is
    reach: Ints  # the greatest end up to here
    furthest: Ints  # of each 64 ranges, the greatest end


class CellLevel(NamedTuple):
    ranges: tuple[Ranges, ...]  # for each grid
    members: Any  # int32
    size: int

    @property
    def nbytes(self) -> int:
        return int(self.members.nbytes + sum(column.nbytes for each in self.ranges for column in each))

    def slots(self) -> Any:
        return self.members


@kernel
def candidates(ranges: Ranges, low: Ints, high: Ints) -> tuple[Ints, Ints, int]:
    """For each run low..high of numbers the entries with a range that meets it: places of runs, slots, and how many.
    Places ascend."""
    first, last, slot, reach, furthest = ranges.first, ranges.last, ranges.slot, ranges.reach, ranges.furthest
    rows, slots, found = np.empty(64, np.int64), np.empty(64, np.int64), 0
    for row in range(len(low)):
        least, most = low[row], high[row]
        start, stop = 0, len(first)
        while start < stop:
            middle = (start + stop) >> 1
            if first[middle] <= most:
                start = middle + 1
            else:
                stop = middle
        place = start - 1
        while place >= 0 and reach[place] >= least:
            if last[place] >= least:
                if found == len(rows):
                    rows, slots = grown(rows, found), grown(slots, found)
                rows[found], slots[found] = row, slot[place]
                found += 1
            elif furthest[place >> BLOCK_BITS] < least:
                place = (place >> BLOCK_BITS) << BLOCK_BITS
            place -= 1
    return rows, slots, found


@kernel
def in_both(rows: Ints, slots: Ints, found: int, others: Ints, other_slots: Ints, other_found: int, seen: Ints) -> int:
    """Of the first candidates those that are among the others, too, moved to the front. Rows of both ascend; `seen`
    has for each slot the last row that named it, and -1 before."""
    kept, other = 0, 0
    for place in range(found):
        while other < other_found and others[other] <= rows[place]:
            seen[other_slots[other]] = others[other]
            other += 1
        if seen[slots[place]] == rows[place]:
            rows[kept], slots[kept] = rows[place], slots[place]
            kept += 1
    return kept


class HilbertView(TreeView):
    """Its buffer is that of a view of trees, which has none here."""

    grids: tuple[Grid, ...]
    cells: tuple[CellLevel, ...]

    def candidates(self, points: Ints) -> list[tuple[Ints, Ints, int]]:
        """For each level the (row, slot) of entries that all grids name, and how many."""
        numbers = [grid.numbers(points) for grid in self.grids]
        return [_named(level, numbers, self.last) for level in self.cells]

    def _each(self, points: Ints) -> Ints:
        doubles = self._axes.doubles(points, self.ball_axes) if self.ball_axes else NO_DOUBLES
        found = [super()._each(points)] if self.first < self.last else [np.zeros((2, 0), np.int64)]
        for rows, slots, count in self.candidates(points) if self.cells else ():
            count = verified(self.exact, self.version, points, doubles, rows, slots, count)
            found.append(np.stack((rows[:count], slots[:count])))
        return found[0] if len(found) == 1 else np.concatenate(found, axis=1)

    def _together(self, points: Ints) -> Ints:
        return self._each(points)

    def _near(self, low: Ints, high: Ints) -> list[Any]:
        asked = [grid.around_many(low[None], high[None])[0] for grid in self.grids] if self.cells else []
        slots = []
        for level in self.cells:
            near = level.members
            for ranges, each in zip(level.ranges, asked, strict=True):
                _, held, count = candidates(ranges, each[:, 0].copy(), each[:, 1].copy())
                near = np.intersect1d(near, held[:count])
            slots.append(near)
        return slots


def _named(level: CellLevel, numbers: Sequence[Ints], slots_used: int) -> tuple[Ints, Ints, int]:
    rows, slots, found = candidates(level.ranges[0], numbers[0], numbers[0])
    for ranges, each in zip(level.ranges[1:], numbers[1:], strict=True):
        found = in_both(rows, slots, found, *candidates(ranges, each, each), np.full(slots_used, -1))
    return rows, slots, found


class HilbertMatcher(LevelledMatcher):
    name = "hilbert"

    def __init__(
        self,
        space: Space,
        attributes: Sequence[str] | None = None,
        bits: int = BITS,
        curve: str = "hilbert",
        cells: Mapping[str, Iterable[Any]] | None = None,
        groups: Sequence[Sequence[str]] | None = None,
        ranges_max: int = RANGES_MAX,
    ) -> None:
        """The options are those of a `Grid`. With `groups` in place of `attributes`, each has one."""
        given = {name: tuple(values) for name, values in (cells or {}).items()}
        if groups is None:
            self._grids: tuple[Grid, ...] = (Grid(space, attributes, bits, curve, given, ranges_max),)
        else:
            if attributes is not None or not groups:
                raise CallerError("either attributes, or one or more groups of them")
            shares = [{name: given[name] for name in given if _is_among(space, name, group)} for group in groups]
            if set().union(*shares) != set(given):
                raise CallerError("cells are given for an attribute that is in no group")
            self._grids = tuple(
                Grid(space, group, bits, curve, share, ranges_max) for group, share in zip(groups, shares, strict=True)
            )
        super().__init__(space)

    def _start(self) -> None:
        super()._start()
        if self._numbering:  # coordinates may have moved
            self._grids = tuple(grid.again() for grid in self._grids)

    def _publish(self) -> None:
        entries = self._entries
        view = HilbertView(
            self._numbering, self._axes, entries.exact, entries.ball_axes, NO_LEVELS, self._first, entries.used,
            self._version,
        )  # fmt: skip
        view.grids, view.cells = self._grids, self._levels
        self._view = view

    def _built(self, slots: Any) -> CellLevel:
        low, high = self._entries.exact.low[slots], self._entries.exact.high[slots]
        return CellLevel(tuple(_sorted(grid, low, high, slots) for grid in self._grids), slots, len(slots))

    def check_invariants(self) -> None:
        super().check_invariants()
        exact = self._entries.exact
        for level in self._levels:
            for grid, ranges in zip(self._grids, level.ranges, strict=True):
                assert (np.diff(ranges.first) >= 0).all() and (ranges.first <= ranges.last).all()
                assert (np.maximum.accumulate(ranges.last) == ranges.reach).all()
                assert set(ranges.slot.tolist()) == set(level.members.tolist())
                corners = grid.numbers(exact.low[level.members[:50]])
                for slot, number in zip(level.members[:50].tolist(), corners.tolist(), strict=True):
                    own = ranges.slot == slot
                    assert ((ranges.first[own] <= number) & (number <= ranges.last[own])).sum() == 1


NO_LEVELS = Levels()


def _is_among(space: Space, name: str, group: Sequence[str]) -> bool:
    return space.index(name) in [space.index(each) for each in group]


def _sorted(grid: Grid, low: Ints, high: Ints, slots: Any) -> Ranges:
    ranges, box = grid.around_many(low, high)
    order = np.argsort(ranges[:, 0], kind="stable")
    first, last = ranges[order, 0], ranges[order, 1]
    begins = np.arange(0, len(first), 1 << BLOCK_BITS)
    return Ranges(
        first, last, slots[box[order]], np.maximum.accumulate(last), np.maximum.reduceat(last, begins)
    )  # fmt: skip
