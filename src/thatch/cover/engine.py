"""What every cover engine does. The set of members is whatever its holder has told; an engine only answers.

An engine declares whether it covers by one member or by a union, and which way it may err. `may_err` is one of
"never", "unproven" (it may fail to prove what is true) and "covered" (it may say covered of what is not; such an
engine must be asked for by name).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from thatch.axis import Coordinates
from thatch.cover.verdict import Covered, Uncovered, Verdict
from thatch.errors import CallerError
from thatch.intervals import Intervals
from thatch.region import Region, Term
from thatch.space import Space

Boxes = tuple[Coordinates, Coordinates]


class CoverEngine:
    """Members are added and discarded by id; `check` asks whether their union, or one of them, covers a region."""

    name: ClassVar[str]
    covers_by: ClassVar[str]  # "one" or "union"
    may_err: ClassVar[str]

    def __init__(self, space: Space) -> None:
        self.space = space

    def add(self, id: Any, region: Region) -> None:
        """Make a region a member; an id that is one already is an error."""
        raise NotImplementedError

    def discard(self, id: Any) -> None:
        """Take a member out; an unknown id is ignored."""
        raise NotImplementedError

    def check(self, region: Region) -> Verdict:
        """Is a region covered? An empty one is, by nobody."""
        raise NotImplementedError

    def members_within(self, region: Region) -> list[Any]:
        """All members that this region alone covers, in the order in which they were added."""
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def __contains__(self, id: object) -> bool:
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError

    def check_invariants(self) -> None:
        raise NotImplementedError

    def add_many(self, ids: Sequence[Any], regions: Sequence[Region] | Boxes) -> list[Verdict]:
        """Check each in turn and add it unless it is covered: the decisions of one by one, in order.

        `regions` are regions, or one plain box for each id as arrays low[n, d], high[n, d].
        """
        verdicts: list[Verdict] = []
        for id, region in zip(ids, as_regions(regions, self.space), strict=True):
            verdict = self.check(region)
            if isinstance(verdict, Uncovered):
                verdict = Uncovered(verdict.witness)  # completed now: the next line changes the members
            if not isinstance(verdict, Covered):
                self.add(id, region)
            verdicts.append(verdict)
        return verdicts


def as_regions(regions: Sequence[Region] | Boxes, space: Space) -> Iterator[Region]:
    if not isinstance(regions, tuple):
        return iter(regions)
    low, high = regions
    return (region_of_box(one, other, space) for one, other in zip(low.tolist(), high.tolist(), strict=True))


def region_of_box(low: Sequence[int], high: Sequence[int], space: Space) -> Region:
    """One closed box; a side beyond its attribute's axis is an error."""
    sides = []
    for index, (attribute, least, most) in enumerate(zip(space.attributes, low, high, strict=True)):
        if least < attribute.low or most > attribute.last:
            raise CallerError(f"attribute {attribute.name!r} has no coordinates {least}..{most}")
        if least > most:
            return Region.nothing(space)
        if (least, most) != (attribute.low, attribute.last):
            sides.append((index, Intervals.between(least, most)))
    return Region(space, [Term(tuple(sides))])
