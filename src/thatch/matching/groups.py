"""The group structure: passive subscriptions are looked at only below an active hit (monte-carlo, algorithm 5).

A passive subscription lies in the union of the active ones, so an event that no active one holds is held by none. The
active ones, few where much is covered, have an index of their own, and the passive ones a second that only those
events reach which hit something in the first. Sound only if *covered* is never said wrongly.

It pays where matching is linear, as in the paper. A tree of all asks about as many nodes as a tree of the active ones:
an event that nobody wants ends at its root as well. Measured (benchmarks/groups.py: 9 in 10 passive, nearly all events
wanted or nearly none), one index of all was 1.1 to 1.5 times faster than two, and those up to 3 times faster than the
paper's multi-level form, passive ones in lists below those that cover them. So a table keeps one index, and two on
request.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from thatch.matching.index import TreeMatcher
from thatch.matching.matcher import Numbers, View
from thatch.matching.tree import sort_unique_pairs
from thatch.region.box_sets import Boxes
from thatch.region.region import Region
from thatch.space.axis import Coordinates
from thatch.space.space import Space


class GroupedView(View):
    def __init__(self, active: View, passive: View | None) -> None:
        self.label_codes, self.active, self.passive = active.label_codes, active, passive

    def match_point(self, point: Sequence[int]) -> list[int]:
        hits = self.active.match_point(point)
        if not hits or self.passive is None:
            return hits
        return sorted(hits + self.passive.match_point(point))

    def match_points(self, columns: Sequence[Coordinates]) -> tuple[Numbers, Numbers]:
        rows, numbers = self.active.match_points(columns)
        if not len(rows) or self.passive is None:
            return rows, numbers
        hit = rows[np.flatnonzero(np.diff(rows, prepend=-1))]
        below, more = self.passive.match_points([column[hit] for column in columns])
        return sort_unique_pairs(np.concatenate((rows, hit[below])), np.concatenate((numbers, more)), len(columns[0]))

    def meeting(self, region: Region) -> list[int]:
        passive = [] if self.passive is None else self.passive.meeting(region)
        return sorted(self.active.meeting(region) + passive)


class Groups:
    """Two indexes, of the active and of the passive. For one writer."""

    def __init__(self, space: Space, apart: bool) -> None:
        """`apart`: whether passive ones may be looked at below active hits only."""
        self.space = space
        self.active = TreeMatcher(space)
        self.passive = TreeMatcher(space) if apart else self.active

    def add_many(self, numbers: Sequence[int] | Numbers, regions: Sequence[Region] | Boxes, active: bool) -> None:
        (self.active if active else self.passive).add_many(numbers, regions)

    def add(self, number: int, region: Region, active: bool) -> None:
        (self.active if active else self.passive).add(number, region)

    def discard(self, number: int) -> None:
        self.active.discard(number)
        if self.passive is not self.active:
            self.passive.discard(number)

    def move(self, number: int, region: Region, active: bool) -> None:
        """Move a subscription from one index to the other."""
        if self.passive is not self.active:
            self.discard(number)
            self.add(number, region, active)

    def view(self) -> GroupedView:
        """For the writer: both must be of one moment."""

        def views() -> GroupedView:
            passive = None if self.passive is self.active or not len(self.passive) else self.passive.view()
            return GroupedView(self.active.view(), passive)

        return self.active.space.stable(views)[0]

    @property
    def nbytes(self) -> int:
        return self.active.nbytes + (self.passive.nbytes if self.passive is not self.active else 0)

    def check_invariants(self) -> None:
        self.active.check_invariants()
        self.passive.check_invariants()
