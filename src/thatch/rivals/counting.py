"""The counting algorithm, the field's standard (Yan and Garcia-Molina 1994; Siena's selectivity tables).

Every bound of every box is a predicate of its own, sorted by attribute and side. An event satisfies the lower bounds
up to its value, a prefix, and the upper bounds from it on, a suffix. Each satisfied predicate counts one for its box,
and a box whose count reaches the number of its predicates matches.

    x >= 3 (a)   x >= 5 (b)   x >= 9 (c)     event x = 6: a and b count 1
    x <= 4 (a)   x <= 8 (b)   x <= 9 (c)                  b and c count 1; b has both its 2: a match

Exact. O(satisfied predicates) an event, about half of all that there are: it is the rival, not the way. Sorting is
done again after a change, when somebody asks.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from thatch.jit import kernel
from thatch.matching.axes import Axes
from thatch.matching.entries import Entries, filter_candidates
from thatch.matching.matcher import Numbers
from thatch.matching.scan import ScanMatcher, ScanView
from thatch.matching.tree import grown, sort_unique_pairs
from thatch.region.region import Region
from thatch.space.arrays import Ints
from thatch.space.axis import Coordinates
from thatch.space.space import Space


@kernel
def match_counting(
    low: Ints,
    low_slots: Any,
    high: Ints,
    high_slots: Any,
    sizes: Ints,
    needed: Any,
    points: Ints,
) -> tuple[Ints, Ints, int]:
    """Rows and slots for `verified`, and how many.

    Line a of low and high has the predicates of attribute a; sizes[:, a] tells how many.
    """
    n, d = points.shape
    counts = np.empty(len(needed), np.uint16)
    rows, slots, found = np.empty(64, np.int64), np.empty(64, np.int64), 0
    for row in range(n):
        for slot in range(len(needed)):
            counts[slot] = 0
        for axis in range(d):
            value = points[row, axis]
            for place in range(sizes[0, axis]):
                if low[axis, place] > value:
                    break
                counts[low_slots[axis, place]] += 1
            for turn in range(sizes[1, axis]):
                place = sizes[1, axis] - 1 - turn
                if high[axis, place] < value:
                    break
                counts[high_slots[axis, place]] += 1
        for slot in range(len(needed)):
            if counts[slot] == needed[slot]:
                if found == len(rows):
                    rows, slots = grown(rows, len(rows)), grown(slots, len(rows))
                rows[found], slots[found] = row, ~slot
                found += 1
    return rows, slots, found


class CountingView(ScanView):
    def __init__(self, space: Space, regions: dict[int, Region]) -> None:
        super().__init__(space, regions)
        self._axes = Axes.of(space)
        entries = Entries(space)
        for number, region in regions.items():
            entries.append_terms(number, region.terms)
        self._exact, self._ball_axes = entries.exact, tuple(sorted(entries.ball_axes))
        n, d = entries.used, len(space)
        self._bounds = np.empty((2, d, n), np.int64)
        self._slots = np.empty((2, d, n), np.int32)
        self._sizes, self._needed = np.zeros((2, d), np.int64), np.zeros(n, np.uint16)
        for side, ends in enumerate((entries.exact.low[:n], entries.exact.high[:n])):
            for axis in range(d):
                bounded = np.flatnonzero(ends[:, axis] != self._axes.edges[side, axis])
                order = bounded[np.argsort(ends[bounded, axis])]
                self._sizes[side, axis] = len(order)
                self._bounds[side, axis, : len(order)], self._slots[side, axis, : len(order)] = ends[order, axis], order
                self._needed[bounded] += 1

    def match_point(self, point: Sequence[int]) -> list[int]:
        return self.match_points([np.array([each], np.int64) for each in point])[1].tolist()

    def match_points(self, columns: Sequence[Coordinates]) -> tuple[Numbers, Numbers]:
        points = np.stack(columns, axis=1)
        rows, slots, found = match_counting(
            self._bounds[0], self._slots[0], self._bounds[1], self._slots[1], self._sizes, self._needed, points
        )
        doubles = self._axes.doubles(points, self._ball_axes)
        found = filter_candidates(self._exact, 0, points, doubles, rows, slots, found)
        return sort_unique_pairs(rows[:found], slots[:found], len(points))


class CountingMatcher(ScanMatcher):
    """Keeps regions as the scan does, and sorts them when somebody asks."""

    name = "counting"

    def __init__(self, space: Space) -> None:
        super().__init__(space)
        self._view: CountingView | None = None
        self._lock = threading.Lock()

    def view(self) -> CountingView:
        regions = self._regions  # each change puts another dict in place
        with self._lock:
            view = self._view
            if view is None or view.regions is not regions or not self.space.is_current(view.label_codes):
                view = self._view = CountingView(self.space, regions)
            return view

    @property
    def nbytes(self) -> int:
        view = self.view()
        return int(view._bounds.nbytes + view._slots.nbytes + view._needed.nbytes)

    def check_invariants(self) -> None:
        view = self.view()
        for side in range(2):
            for axis, size in enumerate(view._sizes[side]):
                bounds = view._bounds[side, axis, :size]
                assert (bounds[:-1] <= bounds[1:]).all()
