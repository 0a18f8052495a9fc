r"""Covering by one as dominance of points on a curve: a rival, for comparison.

The idea: box [low, up] is the point (-low, up) in twice as many dimensions, and one box covers another exactly if its
point is at least as large in every coordinate. Number the cells of that space along a curve: the points that dominate
another fill a box up to the far corner, which is ranges of numbers; any member whose number is in one of them may
cover.

    up ^ . . #######     s2 is covered by every point right of it and above it
       | . . ##s1###
       | . s2#######
       +-----------> -low

From Shen, Aluru and Tirthapura, "Approximate covering detection among content-based subscriptions using space filling
curves", as negative-space tells it. Where it differs: they look at the largest ranges only, and miss coverers in the
rest; here the cells are coarser instead where ranges would be too many, and every candidate is compared in full, so
that no coverer is missed and none is wrong. Attributes beyond the first three are left to that comparison.

Errs: unproven only, as `pairwise`. Cost: the box of dominating points reaches to the ends of all 2d axes, so its
surface, and with it the number of ranges, is enormous: cells are coarse, and candidates many. That is what it shows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from thatch.cover.pairwise import PairwiseEngine, contains, hull
from thatch.cover.ranges import RangeTable
from thatch.grid.curve import INDEX_BITS_MAX, curve, find_ranges, indexes
from thatch.grid.grid import Grid
from thatch.region.region import Region
from thatch.space.arrays import Ints
from thatch.space.space import Space

BITS = 6
ATTRIBUTES = 3
RANGES_MAX = 512


class DominanceEngine(PairwiseEngine):
    name = "dominance"

    def __init__(self, space: Space, bits: int = BITS, curve: str = "hilbert", ranges_max: int = RANGES_MAX) -> None:
        super().__init__(space)
        self.form = self.name
        self._store = Dominance(space, bits, curve, ranges_max)


class Dominance:
    """Members by the numbers of their points."""

    def __init__(self, space: Space, bits: int, path: str, ranges_max: int) -> None:
        self._options = bits, path, ranges_max
        self.space = space
        self.members: dict[Any, Region] = {}
        self._start()

    def _start(self) -> None:
        bits, path, ranges_max = self._options
        names = [attribute.name for attribute in self.space.attributes[:ATTRIBUTES]]
        bits = min(bits, INDEX_BITS_MAX // (2 * len(names)))
        self.grid = Grid(self.space, names, bits)
        self.path = curve(path, 2 * len(names), bits)
        self.numbers = RangeTable()
        self.owners: dict[int, Any] = {}  # by number of arrival
        self.arrivals: dict[Any, int] = {}
        self.empty: dict[Any, None] = {}
        self._out = np.empty((ranges_max, 2), np.int64)
        self._arrived = 0
        self.label_codes = self.space.label_codes

    def align(self) -> None:
        """Start over if an axis was recoded."""
        if not self.space.is_current(self.label_codes):
            members, self.members = self.members, {}
            self._start()
            for id, region in members.items():
                self.add(id, region)

    def _point(self, region: Region) -> Ints | None:
        """The cell of the point of the box around a region, in 2d dimensions; None if it is empty."""
        low, high = hull(region, self.space)
        self.align()
        if not len(low):
            return None
        least, most = self.grid.cells_around(low[0], high[0])
        return np.concatenate(((1 << self.grid.bits) - 1 - least, most))

    def add(self, id: Any, region: Region) -> None:
        point = self._point(region)
        self.members[id] = region
        if point is None:
            self.empty[id] = None
            return
        number = np.empty(1, np.int64)
        indexes(self.path, point[None], number)
        self.numbers.add(self._arrived, np.array([[number[0], number[0]]]))
        self.owners[self._arrived], self.arrivals[id] = id, self._arrived
        self._arrived += 1

    def discard(self, id: Any, region: Region) -> None:
        del self.members[id]
        if id in self.empty:
            del self.empty[id]
            return
        arrival = self.arrivals.pop(id)
        del self.owners[arrival]
        self.numbers.remove(arrival)

    def candidates(self, region: Region) -> list[Any]:
        """The members whose points may dominate that of a region, in the order in which they were added."""
        point = self._point(region)
        if point is None:
            return list(self.members)
        far = np.full(len(point), (1 << self.path.bits) - 1, np.int64)
        count = find_ranges(self.path, point, far, False, 0, self._out)
        return [self.owners[owner] for owner in self.numbers.owners(self._out[:count])]

    def coverer(self, region: Region) -> Any | None:
        terms = region.terms_in(self.space)
        for id in self.candidates(region):
            if contains(self.members[id].terms_in(self.space), terms, self.space):
                return id
        return None

    def check_invariants(self, members: dict[Any, Region]) -> None:
        assert self.members == members
        assert self.arrivals.keys() | self.empty.keys() == members.keys()
        assert {arrival: id for id, arrival in self.arrivals.items()} == self.owners
        self.numbers.check_invariants()
