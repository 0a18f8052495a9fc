"""Members that boxes do not say exactly: with balls, or with sets too large to expand. Found by the boxes around them.

An engine on boxes has only boxes that surely lie inside such a member, so what it leaves open is asked of the member
itself. Only members near the question matter, and of some thousand members a question touches few: an index over the
bounding boxes of their terms finds those.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from thatch.cover.index import BoxIndex
from thatch.region.intervals import Intervals
from thatch.region.region import Region
from thatch.region.term import Term, hulls
from thatch.space.arrays import Ints
from thatch.space.space import Space


class VagueMembers:
    def __init__(self, space: Space) -> None:
        self._space = space
        self._members: dict[Any, Region] = {}
        self._slots: dict[Any, list[int]] = {}
        self._ids: dict[int, Any] = {}  # by number, in the order in which they were added
        self._numbers: dict[Any, int] = {}
        self._index: BoxIndex | None = None  # most engines never have such a member

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._members)

    def __contains__(self, id: object) -> bool:
        return id in self._members

    def add(self, id: Any, number: int, region: Region) -> None:
        """Numbers rise from member to member."""
        if self._index is None:
            self._index = BoxIndex(self._space.low[0], self._space.high[0])
        self._members[id], self._ids[number], self._numbers[id] = region, id, number
        self._slots[id] = self._index.insert(*around(region.terms_in(self._space), self._space), number)

    def discard(self, id: Any) -> None:
        if self._members.pop(id, None) is None:
            return
        del self._ids[self._numbers.pop(id)]
        assert self._index is not None
        for slot in self._slots.pop(id):
            self._index.remove(slot)

    def near(self, terms: Sequence[Term]) -> dict[Any, Region]:
        """The members that may meet a union of terms, in the order in which they were added."""
        if self._index is None or not self._members:
            return {}
        low, high = around(terms, self._space)
        return self._near(low, high)

    def _near(self, low: Ints, high: Ints) -> dict[Any, Region]:
        assert self._index is not None
        owners = self._index.rows.owner
        found: set[int] = set()
        for box in range(len(low)):
            found.update(owners[self._index.touching(low[box], high[box])].tolist())
        return {self._ids[number]: self._members[self._ids[number]] for number in sorted(found)}

    def holds(self, point: Sequence[int]) -> bool:
        """Whether one of them contains a point."""
        if self._index is None or not self._members:
            return False
        box = np.array([point], np.int64)
        return any(member.contains_point(point) for member in self._near(box, box).values())

    def check_invariants(self) -> None:
        assert self._members.keys() == self._slots.keys() == self._numbers.keys()
        assert {id: number for number, id in self._ids.items()} == self._numbers
        if self._index is not None:
            self._index.check_invariants()
            assert sorted(slot for slots in self._slots.values() for slot in slots) == self._index.taken()


def around(terms: Sequence[Term], space: Space) -> tuple[Ints, Ints]:
    """The bounding boxes of terms, balls among them: low[n, d], high[n, d]. A term that surely holds nothing has the
    box of its sides: it is near whatever that meets."""
    low, high = hulls(terms, space)
    for row, term in enumerate(terms):
        for ball in term.balls:
            for index, bounds in ball.bounds(space).items():
                narrowed = bounds & Intervals.between(int(low[row, index]), int(high[row, index]))
                if narrowed.ends:
                    low[row, index], high[row, index] = narrowed.low, narrowed.high
    return low, high
