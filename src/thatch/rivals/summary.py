"""A summary of what a link wants, attribute by attribute: a rival of telling regions, for comparison.

The idea: for each attribute the values that some subscription allows, as disjoint intervals. An event may be wanted if
each of its values is among them. A summary does not know which values go together:

    y ^  +---+               both boxes together are x in 1..3 or 6..8, y in 1..3 or 6..8:
      |  | b |   (no)        the other two corners are taken for wanted as well
      |  +---+
      | (no)   +---+         so it is small (an interval for each gap between values), never misses an event,
      |        | a |         and lets through what nobody wants; all of an attribute that one
      +--------+---+--> x    subscription leaves open.

From Triantafillou and Economides, "Subscription summarization: a new paradigm for efficient publish/subscribe systems",
as negative-space tells it; theirs keep ids with each range, which is matching by counting (counting.py). Here it
is what a neighbour would be sent: intervals, without ids, in bytes against false positives.

Errs: it adds events, it never loses one. It cannot prove covering, so it is no engine. Cost: changes are O(1), the next
question sorts the ends of each attribute again; a question is a binary search for each attribute.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from thatch.errors import CallerError, UnknownSubscription
from thatch.region.boxes import and_intervals
from thatch.region.region import Region
from thatch.space.arrays import Bools, Ints
from thatch.space.space import Space


class LinkSummary:
    """
    >>> space = Space.parse("x int not null 0..9, y int not null 0..9")
    >>> summary = LinkSummary(space)
    >>> summary.add("a", space.where("x > 5 AND y < 4"))
    >>> summary.add("b", space.where("x < 4 AND y > 5"))
    >>> summary.may_want(np.array([[7, 2], [5, 2], [7, 8]])).tolist()
    [True, False, True]
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        self._regions: dict[Any, Region] = {}
        self._ends: list[Ints] | None = None  # by attribute: low, high, low, high …, ascending; None if out of date
        self._label_codes = space.label_codes

    def add(self, id: Any, region: Region) -> None:
        if id in self._regions:
            raise CallerError(f"{id!r} is in the summary already")
        region.require(self.space)
        self._regions[id] = region
        self._ends = None

    def discard(self, id: Any) -> None:
        if self._regions.pop(id, None) is None:
            raise UnknownSubscription(id)
        self._ends = None

    def __iter__(self) -> Iterator[Any]:
        return iter(self._regions)

    def __len__(self) -> int:
        return len(self._regions)

    def _summed(self) -> list[Ints]:
        if self._ends is None or not self.space.is_current(self._label_codes):
            self._label_codes = self.space.label_codes
            self._ends = [self._summed_one(at) for at in range(len(self.space))]
        return self._ends

    def _summed_one(self, at: int) -> Ints:
        """The union of what all terms allow of an attribute; where balls are, what lies in the boxes around them."""
        attribute = self.space.attributes[at]
        pairs: list[tuple[int, int]] = []
        for region in self._regions.values():
            for term in region.terms_in(self.space):
                side = dict(term.sides).get(at)
                for ball in term.balls:
                    bounds = ball.bounds(self.space).get(at)
                    if bounds is not None:
                        side = bounds if side is None else side & bounds
                pairs += [(attribute.low, attribute.last)] if side is None else list(side)
        ends: list[int] = []
        for low, high in sorted(pairs):
            if ends and low - 1 <= ends[-1]:
                ends[-1] = max(ends[-1], high)
            else:
                ends += [low, high]
        return np.array(ends, np.int64)

    def intervals(self, name: str) -> list[tuple[Any, Any]]:
        """The summary of one attribute, as values; NULL is None."""
        at = self.space.index(name)
        if at is None:
            raise CallerError(f"no attribute {name!r} in {self.space}")
        attribute, ends = self.space.attributes[at], self._summed()[at].tolist()
        axis, null = attribute.axis, attribute.null
        lows = [None if low == null else axis.ends(low, low)[0] for low in ends[::2]]
        highs = [None if high == null else axis.ends(high, high)[1] for high in ends[1::2]]
        return list(zip(lows, highs, strict=True))

    @property
    def nbytes(self) -> int:
        """What it takes to tell it: two ends for each interval."""
        return sum(ends.nbytes for ends in self._summed())

    def may_want(self, points: Ints | Sequence[Sequence[int]]) -> Bools:
        """Of points [n, d], whether somebody may want each."""
        columns = np.ascontiguousarray(np.asarray(points, np.int64).T)
        mask = np.full(columns.shape[1], len(self._regions) > 0, np.bool_)
        for column, ends in zip(columns, self._summed(), strict=True):
            and_intervals(mask, column, ends)
        return mask
