r"""MICS: boxes as ranges of cells along a Hilbert curve; covered if the members' ranges hold all of its ranges.

The idea: a grid cuts some attributes into cells, and a curve numbers the cells so that neighbours mostly have
neighbouring numbers (curve.py). A box is then a few ranges of numbers, and one table of ranges answers for one coverer,
for several, and for merging, by one look-up for each range (ranges.py).

    member |######|######|###        cells that lie in it: | 1 | 2 |        A question counts all cells that it meets, a
    asked     ###|######|            cells that it meets: |0 | 1 |         member only those inside it: what is covered
    cells  0      1      2      3                                           on cells is covered.

From MICS (Jafarpour et al.). Where it differs: ranges keep their owners, so that they can be named and taken out one
owner at a time (merged, the paper's removal takes cells from others: ERRATA). A member counts with the cells *inside*
it; the paper counts those it meets, on both sides, and by that calls covered what is not. A single member that contains
the question is always asked for, because a box's own rim is in cells that do not count. Ranges come from a descent of
the curve, not from its cells; where they would be more than `ranges_max`, from coarser blocks.

Errs: unproven (what no cell inside holds). A witness is a corner of the cell that nobody holds, if it is one. Cost: the
ranges of the question, S/(2d) on average for a surface of S cells, times a look-up in O(log^2 n).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from thatch.cover.boxed import COVERED, UNCOVERED, UNDECIDED, BoxedEngine
from thatch.cover.ranges import RangeTable
from thatch.cover.verdict import Unproven
from thatch.grid.curve import cells_at
from thatch.grid.grid import BITS, RANGES_MAX, Grid
from thatch.region.box_sets import Boxes
from thatch.space.arrays import Ints
from thatch.space.space import Space


class HilbertEngine(BoxedEngine):
    name = "hilbert"
    may_err = "unproven"

    def __init__(
        self,
        space: Space,
        attributes: Sequence[str] | None = None,
        bits: int = BITS,
        curve: str = "hilbert",
        cells: Mapping[str, Iterable[Any]] | None = None,
        ranges_max: int = RANGES_MAX,
    ) -> None:
        """The options are those of a `Grid`."""
        super().__init__(space)
        given = None if cells is None else {name: list(values) for name, values in cells.items()}
        self._options = attributes, bits, curve, given, ranges_max
        self.grid = Grid(space, *self._options)
        self.ranges = RangeTable()
        self._witness = np.zeros(len(space), np.int64)

    def _alike(self) -> Self:
        return type(self)(self.space, *self._options)

    @property
    def nbytes(self) -> int:
        """Of the index and the ranges, without ids."""
        return self.index.nbytes + self.ranges.nbytes

    def _start(self) -> None:
        super()._start()
        self.grid = self.grid.again()
        self.ranges = RangeTable()

    def _insert(self, low: Ints, high: Ints, owner: Ints) -> list[int]:
        slots = super()._insert(low, high, owner)
        for box, slot in enumerate(slots):
            self.ranges.add(slot, self.grid.inside(low[box], high[box]))
        return slots

    def _remove(self, slots: Sequence[int]) -> None:
        super()._remove(slots)
        for slot in slots:
            self.ranges.remove(slot)

    def _search_box(self, low: Ints, high: Ints) -> int:
        owner = self.index.rows.owner
        alone = self.index.around(low, high)
        if alone:
            self._names.add(int(owner[alone[0]]))
            return COVERED
        slots, gap = self.ranges.cover(self.grid.around(low, high))
        if gap < 0:
            self._names.update(owner[slots].tolist())
            return COVERED
        return self._corner(gap, low, high)

    def _corner(self, number: int, low: Ints, high: Ints) -> int:
        """Is a corner of what a box has of a cell in no member?"""
        cell = np.empty((1, len(self.grid.attributes)), np.int64)
        cells_at(self.grid.path, np.array([number]), cell)
        least, most = low.copy(), high.copy()
        for at, starts, place in zip(self.grid.attributes, self.grid.starts, cell[0].tolist(), strict=True):
            place = min(place, len(starts) - 1)
            least[at] = max(least[at], starts[place])
            if place + 1 < len(starts):
                most[at] = min(most[at], starts[place + 1] - 1)
        for corner in (least, most):
            inside = (low <= corner).all() and (corner <= high).all()
            if inside and not self.index.holds(corner):
                self._witness = corner
                return UNCOVERED
        return UNDECIDED

    def _piece(self) -> Boxes:
        return self._witness, self._witness

    def _undecided(self) -> Unproven:
        return Unproven("it meets cells that no member holds whole")

    def check_invariants(self) -> None:
        super().check_invariants()
        self.ranges.check_invariants()
