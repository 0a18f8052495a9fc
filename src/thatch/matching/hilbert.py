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

Measured (benchmarks/hilbert.py: boxes of 2 or 4 of 256 cells a side in 2 to 4 attributes, 20,000 to 150,000 of them)
it is 60 to 1,200 times faster than a compiled scan, and 2 to 12 times slower than our tree, which is built 3 to 17
times faster, too. So it is here to be compared with; a table does not use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from thatch.errors import CallerError
from thatch.grid.grid import BITS, Grid
from thatch.jit import kernel
from thatch.matching.axes import NO_DOUBLES
from thatch.matching.entries import filter_candidates
from thatch.matching.index import LevelledMatcher, Levels, TreeView
from thatch.matching.tree import grown
from thatch.space.arrays import Ints, upper_bound
from thatch.space.space import Space

RANGES_MAX = 64
CANDIDATES_MAX = 131_072  # that are verified together, and those of one event: wide boxes are candidates of nearly all
BLOCK_BITS = 6  # ends of 64 ranges are looked at together


class Ranges(NamedTuple):
    """The ranges of the entries of a level in one grid, by where they begin."""

    first: Ints
    last: Ints
    entry: Any  # int32: whose range it is, as a place in the level
    reach: Ints  # the greatest end up to here
    furthest: Ints  # of each 64 ranges, the greatest end


class Own(NamedTuple):
    """The same by entry: those of the i-th are begins[i] to begins[i + 1], ascending."""

    begins: Ints
    first: Ints
    last: Ints


class CellLevel(NamedTuple):
    """The grid in which entries hold the smallest share of cells leads: its ranges find candidates, and the others are
    asked for those only."""

    lead: int
    ranges: Ranges
    others: tuple[tuple[int, Own], ...]  # with the number of the grid
    members: Any  # int32: slots
    size: int

    @property
    def nbytes(self) -> int:
        columns = [*self.ranges, *(column for _, own in self.others for column in own), self.members]
        return sum(column.nbytes for column in columns)

    def slots(self) -> Any:
        return self.members


@kernel
def candidates(ranges: Ranges, low: Ints, high: Ints, row: int) -> tuple[Ints, Ints, int, int]:
    """For each run low..high of numbers, from one of them on, the entries with a range that meets it: runs, entries,
    and how many. And the run to go on with: once there are many, they are to be looked at first."""
    first, last, entry, reach, furthest = ranges.first, ranges.last, ranges.entry, ranges.reach, ranges.furthest
    rows, entries, found = np.empty(64, np.int64), np.empty(64, np.int64), 0
    while row < len(low) and found < CANDIDATES_MAX:
        least, most = low[row], high[row]
        place = upper_bound(first, 0, len(first), most) - 1
        while place >= 0 and reach[place] >= least:
            if last[place] >= least:
                if found == len(rows):
                    rows, entries = grown(rows, found), grown(entries, found)
                rows[found], entries[found] = row, entry[place]
                found += 1
            elif furthest[place >> BLOCK_BITS] < least:
                place = (place >> BLOCK_BITS) << BLOCK_BITS
            place -= 1
        row += 1
    return rows, entries, found, row


@kernel
def narrowed(own: Own, numbers: Ints, rows: Ints, entries: Ints, found: int) -> int:
    """Of the candidates those with a range that holds the number of their row in another grid, moved to the front."""
    begins, first, last = own.begins, own.first, own.last
    kept = 0
    for candidate in range(found):
        entry, number = entries[candidate], numbers[rows[candidate]]
        start, stop = begins[entry], begins[entry + 1]
        while start < stop:  # the first range that ends at the number or behind it
            middle = (start + stop) >> 1
            if last[middle] < number:
                start = middle + 1
            else:
                stop = middle
        if start < begins[entry + 1] and first[start] <= number:
            rows[kept], entries[kept] = rows[candidate], entry
            kept += 1
    return kept


class HilbertView(TreeView):
    """Its buffer is that of a view of trees, which has none here."""

    grids: tuple[Grid, ...]
    cells: tuple[CellLevel, ...]

    def candidates(self, points: Ints) -> Iterator[tuple[Ints, Ints, int]]:
        """The rows and slots of entries that all grids name, and how many; in parts."""
        numbers = [grid.numbers(points) for grid in self.grids]
        for level in self.cells:
            own, row = numbers[level.lead], 0
            while row < len(points):
                rows, entries, found, row = candidates(level.ranges, own, own, row)
                for grid, other in level.others:
                    found = narrowed(other, numbers[grid], rows, entries, found)
                yield rows[:found], level.members[entries[:found]].astype(np.int64), found

    def _each(self, points: Ints) -> Ints:
        doubles = self._axes.doubles(points, self.ball_axes) if self.ball_axes else NO_DOUBLES
        found = [super()._each(points)] if self.first < self.last else [np.zeros((2, 0), np.int64)]
        for rows, slots, count in self.candidates(points) if self.cells else ():
            count = filter_candidates(self.exact, self.version, points, doubles, rows, slots, count)
            found.append(np.stack((rows[:count], slots[:count])))
        return found[0] if len(found) == 1 else np.concatenate(found, axis=1)

    def _together(self, points: Ints) -> Ints:
        return self._each(points)

    def _near(self, low: Ints, high: Ints) -> list[Any]:
        slots = []
        for level in self.cells:
            asked = self.grids[level.lead].around_many(low[None], high[None])[0]
            low_numbers, high_numbers, row = asked[:, 0].copy(), asked[:, 1].copy(), 0
            while row < len(asked):
                _, entries, found, row = candidates(level.ranges, low_numbers, high_numbers, row)
                slots.append(level.members[np.unique(entries[:found])])
        return slots


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
        if self._label_codes:  # coordinates may have moved
            self._grids = tuple(grid.again() for grid in self._grids)

    def _publish(self) -> None:
        entries = self._entries
        view = HilbertView(
            self._label_codes, self._axes, entries.exact, entries.ball_axes, NO_LEVELS, self._first, entries.used,
            self._version,
        )  # fmt: skip
        view.grids, view.cells = self._grids, self._levels
        self._view = view

    def _built(self, slots: Any) -> CellLevel:
        low, high = self._entries.exact.low[slots], self._entries.exact.high[slots]
        each = [_own(grid, low, high) for grid in self._grids]
        shares = [
            (own.last - own.first + 1.0).sum() / 2.0**grid.index_bits
            for grid, own in zip(self._grids, each, strict=True)
        ]
        lead = int(np.argmin(shares))
        others = tuple((grid, own) for grid, own in enumerate(each) if grid != lead)
        return CellLevel(lead, _sorted(each[lead]), others, slots, len(slots))

    def check_invariants(self) -> None:
        super().check_invariants()
        exact = self._entries.exact
        for level in self._levels:
            ranges, low, high = level.ranges, exact.low[level.members], exact.high[level.members]
            assert (np.diff(ranges.first) >= 0).all()
            assert (np.maximum.accumulate(ranges.last) == ranges.reach).all()
            kept = {level.lead: ranges, **{grid: _sorted(own) for grid, own in level.others}}
            for grid, each in enumerate(self._grids):
                columns = zip(kept[grid], _sorted(_own(each, low, high)), strict=True)
                assert all(np.array_equal(one, other) for one, other in columns)


NO_LEVELS = Levels()


def _is_among(space: Space, name: str, group: Sequence[str]) -> bool:
    return space.index(name) in [space.index(each) for each in group]


def _own(grid: Grid, low: Ints, high: Ints) -> Own:
    ranges, box = grid.around_many(low, high)
    return Own(np.searchsorted(box, np.arange(len(low) + 1)), ranges[:, 0].copy(), ranges[:, 1].copy())


def _sorted(own: Own) -> Ranges:
    entry = np.repeat(np.arange(len(own.begins) - 1, dtype=np.int32), np.diff(own.begins))
    order = np.argsort(own.first, kind="stable")
    last = own.last[order]
    furthest = np.maximum.reduceat(last, np.arange(0, len(last), 1 << BLOCK_BITS))
    return Ranges(own.first[order], last, entry[order], np.maximum.accumulate(last), furthest)
