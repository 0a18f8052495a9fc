"""What a link was sent, as cells: covering, merging and matching by ranges of their numbers (MICS, algorithms 1 and 2).

The idea: a subscription is the cells that it meets, as ranges along a curve (grid.py). Only what no other subscription
holds is forwarded, be it a part of one (partial covering); an event goes over the link if somebody holds its cell.

    a      ####====####             subscribe a: forward a; subscribe b: forward only what is behind a;
    b           ====########        unsubscribe a: withdraw only what is before b. Merged, the two are one range.

From MICS (Jafarpour et al.). Where it differs: the table keeps the ranges of each owner next to one another
(ranges.py), where the paper keeps their union. Cutting an owner's ranges out of a union takes cells that others need:
in a test of ours up to half of the cells that were cut (ERRATA). The union is what `merged` gives, when somebody asks;
imperfect merging, over gaps of cells that nobody holds, happens there only, so that it can be undone. Algorithm 1 is
corrected: a range that merges with nothing is kept and forwarded, and so is one that merges to the left only.

Errs: more. A region counts with all cells that it meets, so events may be forwarded that nobody wants, to be dropped
where they arrive; none is lost. What is forwarded must be the ranges, not the region: a region whose cells are held by
others is hardly ever covered by them. Cost: S/(2d) ranges for a surface of S cells, each a look-up in O(log^2 n).

`CellIndex` is the paper's other use of the same ranges, subscription indexing: which members can matter to a question?
Only those few are shown to a cover engine, of whatever kind; its verdict is the one that it would give of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from thatch.cover.boxed import plain_box, surely_around
from thatch.cover.engines import engine
from thatch.cover.ranges import RangeTable
from thatch.cover.verdict import Covered, Uncovered, Verdict
from thatch.errors import CallerError
from thatch.grid.grid import Grid
from thatch.region.region import Region
from thatch.region.term import hulls
from thatch.space.arrays import Ints

EXPANDED_MAX = 64  # boxes that the sets of a region are expanded into; with more, the box around each term counts


class CellTable:
    """Ids and regions of one link.

    >>> from thatch import Space
    >>> space = Space.parse("x int not null 0..7, y int not null 0..7")
    >>> table = CellTable(Grid(space, bits=3))
    >>> table.subscribe("a", space.where("x BETWEEN 4 AND 6 AND y BETWEEN 2 AND 5")).tolist()
    [[32, 35], [45, 46], [50, 55]]
    >>> table.subscribe("b", space.where("x BETWEEN 4 AND 7 AND y BETWEEN 4 AND 5")).tolist()
    [[44, 44], [47, 47]]
    >>> table.merged().tolist(), table.unsubscribe("a").tolist()
    ([[32, 35], [44, 47], [50, 55]], [[50, 55]])
    """

    def __init__(self, grid: Grid, gap: int = 0) -> None:
        """Ranges that are at most `gap` cells apart are merged into one."""
        if not grid.id:
            raise CallerError(
                "numbers of cells of a string mean nothing to the other side: leave strings out of the grid"
            )
        if gap < 0:
            raise CallerError(f"a gap is 0 or more cells, not {gap}")
        self.grid, self.gap = grid, gap
        self._ranges = RangeTable()
        self._numbers: dict[Any, int] = {}
        self._ids: dict[int, Any] = {}
        self._next = 0

    def subscribe(self, id: Any, region: Region) -> Ints:
        """Take in a region under a new id. The ranges [n, 2] to forward: what nobody held before."""
        if id in self._numbers:
            raise CallerError(f"{id!r} is subscribed already")
        ranges = cells_around(self.grid, region)
        new = self._ranges.uncovered(ranges)
        self._ranges.add(self._next, ranges)
        self._numbers[id], self._ids[self._next] = self._next, id
        self._next += 1
        return new

    def unsubscribe(self, id: Any) -> Ints:
        """Let a region go; an unknown id is ignored. The ranges to withdraw: what nobody holds any longer."""
        number = self._numbers.pop(id, None)
        if number is None:
            return np.empty((0, 2), np.int64)
        del self._ids[number]
        return self._ranges.uncovered(self._ranges.remove(number))

    def merged(self) -> Ints:
        """All that is held, as disjoint ranges [n, 2], ascending: the paper's table."""
        return self._ranges.merged(self.gap)

    def matches(self, point: Sequence[int]) -> bool:
        """Does an event, as coordinates, go over the link?"""
        return self.matches_number(int(self.grid.numbers(np.array([point], np.int64))[0]))

    def matches_number(self, number: int) -> bool:
        return self._ranges.holds(number)

    def owners(self, number: int) -> list[Any]:
        """The ids that hold a cell, in the order in which they came."""
        return [self._ids[each] for each in self._ranges.holders(number)]

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, id: object) -> bool:
        return id in self._numbers

    @property
    def range_count(self) -> int:
        """How many ranges are kept, each owner's apart."""
        return len(self._ranges)

    @property
    def nbytes(self) -> int:
        """The memory of the ranges, without ids."""
        return self._ranges.nbytes

    def check_invariants(self) -> None:
        self._ranges.check_invariants()
        assert {number: id for id, number in self._numbers.items()} == self._ids
        assert all(number < self._next for number in self._ids)


class CellIndex:
    """Members by their cells, in front of a cover engine.

    >>> from thatch import Space
    >>> space = Space.parse("x int not null 0..99, y int not null 0..99, z int not null 0..99")
    >>> index = CellIndex(Grid(space, ["x", "y"]))
    >>> for id, clause in {"a": "x < 50", "b": "x >= 40 AND y < 30", "c": "y > 80 AND z = 3"}.items():
    ...     index.add(id, space.where(clause))
    >>> index.members_meeting(space.where("x < 60 AND y = 7"))
    ['a', 'b']
    >>> index.check(space.where("x < 60 AND y = 7"))
    Covered(certificate=('a', 'b'))
    """

    def __init__(self, grid: Grid) -> None:
        self.grid, self.space = grid, grid.space
        self._label_codes = self.space.label_codes
        self._regions: dict[Any, Region] = {}
        self._numbers: dict[Any, int] = {}
        self._ids: dict[int, Any] = {}
        self._ranges = RangeTable()
        self._next = 0

    def add(self, id: Any, region: Region) -> None:
        if id in self._regions:
            raise CallerError(f"{id!r} is a member already")
        own = region.in_space(self.space)
        self._align()
        self._enter(id, own)
        self._regions[id] = own

    def _enter(self, id: Any, region: Region) -> None:
        self._ranges.add(self._next, cells_around(self.grid, region))
        self._numbers[id], self._ids[self._next] = self._next, id
        self._next += 1

    def discard(self, id: Any) -> None:
        """Take a member out; an unknown id is ignored."""
        if self._regions.pop(id, None) is not None:
            self._align()
            number = self._numbers.pop(id, None)
            if number is not None:
                del self._ids[number]
                self._ranges.remove(number)

    def _align(self) -> None:
        """Labels have moved: take every region in again."""
        if self.space.is_current(self._label_codes):
            return
        self.grid = self.grid.again()
        self._label_codes = self.space.label_codes
        self._ranges, self._numbers, self._ids = RangeTable(), {}, {}
        for id, region in self._regions.items():
            self._enter(id, region)

    def members_meeting(self, region: Region) -> list[Any]:
        """The members with a cell in common with a region, in the order in which they were added."""
        self._align()
        return [self._ids[number] for number in self._ranges.owners(cells_around(self.grid, region))]

    def check(self, region: Region, cover: str = "exact", **options: Any) -> Verdict:
        """What a cover engine of this name says of a region, given the members that can matter."""
        if region.is_empty:
            return Covered(())
        asked = engine(cover, self.space, **options)
        near = self.members_meeting(region)
        asked.load(near, [self._regions[id] for id in near])
        verdict = asked.check(region)
        return Uncovered(verdict.witness, space=self.space) if isinstance(verdict, Uncovered) else verdict

    def __len__(self) -> int:
        return len(self._regions)

    def __contains__(self, id: object) -> bool:
        return id in self._regions

    def check_invariants(self) -> None:
        self._align()
        self._ranges.check_invariants()
        assert list(self._regions) == list(self._numbers) == list(self._ids.values())


def cells_around(grid: Grid, region: Region) -> Ints:
    """The cells that a region meets, as ranges [n, 2], ascending and apart."""
    terms = region.terms_in(grid.space)
    if not terms:
        return np.empty((0, 2), np.int64)
    plain = plain_box(terms, grid.space)
    if plain is not None:
        return grid.around(plain[0][0], plain[1][0])
    crossed = sum(term.box_count() for term in terms) <= EXPANDED_MAX
    low, high = surely_around(terms, grid.space) if crossed else hulls(terms, grid.space)
    ranges, _ = grid.around_many(low, high)
    ranges = ranges[np.argsort(ranges[:, 0], kind="stable")]
    reach = np.maximum.accumulate(ranges[:, 1])
    begins = np.r_[True, ranges[1:, 0] > reach[:-1] + 1][: len(ranges)]
    return np.stack((ranges[begins, 0], reach[np.r_[begins[1:], True][: len(ranges)]]), axis=1)
