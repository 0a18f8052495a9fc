"""What every cover engine does. The set of members is whatever its holder has told; an engine only answers.

An engine declares whether it covers by one member or by a union, and which way it may err. `may_err` is one of
"never", "unproven" (it may fail to prove what is true) and "covered" (it may say covered of what is not; such an
engine must be asked for by name).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from typing import Any, ClassVar

import numpy as np

from thatch.axis import Coordinates
from thatch.cover.verdict import Covered, Uncovered, Verdict
from thatch.errors import CallerError
from thatch.intervals import Intervals
from thatch.region import Region, Term
from thatch.space import Space

Boxes = tuple[Coordinates, Coordinates]


class CoverEngine:
    """Members are added and discarded by id; `check` asks whether their union, or one of them, covers a region.

    For one thread at a time: an engine writes to scratch space of its own while it answers.
    """

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

    def members_meeting(self, region: Region) -> list[Any]:
        """All members that have an event in common with this region, and perhaps some that come near, in the order in
        which they were added."""
        return list(self)

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
        self.refuse_known(ids)
        verdicts: list[Verdict] = []
        for id, region in zip(ids, as_regions(ids, regions, self.space), strict=True):
            verdict = self.check(region)
            if isinstance(verdict, Uncovered):
                verdict = Uncovered(
                    verdict.witness, space=self.space
                )  # completed now: the next line changes the members
            if not isinstance(verdict, Covered):
                self.add(id, region)
            verdicts.append(verdict)
        return verdicts

    def load(self, ids: Sequence[Any], regions: Sequence[Region]) -> None:
        """Make regions members without deciding anything."""
        for id, region in zip(ids, regions, strict=True):
            self.add(id, region)

    def refuse_known(self, ids: Sequence[Any]) -> None:
        """Ids of a batch are new and differ; checked before anything changes."""
        new = set(ids)
        if len(new) == len(ids) and new.isdisjoint(self):
            return
        seen: set[Any] = set()
        for id in ids:
            if id in self or id in seen:
                raise CallerError(f"{id!r} is a member already")
            seen.add(id)


def as_boxes(ids: Sized, regions: Sequence[Region] | Boxes, space: Space) -> Boxes | None:
    """The arrays of a batch given as low[n, d], high[n, d], checked; None for a sequence of regions."""
    if not (isinstance(regions, tuple) and len(regions) == 2 and isinstance(regions[0], np.ndarray)):
        return None
    low, high = (np.ascontiguousarray(side, np.int64) for side in regions)
    if not low.shape == high.shape == (len(ids), len(space)):
        raise CallerError(f"{len(ids)} boxes of {len(space)} attributes, not {low.shape} and {high.shape}")
    from thatch.boxes import first_beyond

    beyond = first_beyond(low, high, space.low[0], space.high[0])
    if beyond >= 0:
        attribute = space.attributes[beyond]
        raise CallerError(f"attribute {attribute.name!r}: a box reaches beyond {attribute.low}..{attribute.last}")
    return low, high


def as_regions(ids: Sized, regions: Sequence[Region] | Boxes, space: Space) -> list[Region]:
    """A batch as regions of the space, all checked before one is used."""
    boxes = as_boxes(ids, regions, space)
    if boxes is not None:
        return [region_of_box(*each, space) for each in zip(boxes[0].tolist(), boxes[1].tolist(), strict=True)]
    checked = [region for region in regions if isinstance(region, Region)]
    if len(checked) != len(ids) or len(regions) != len(ids):
        raise CallerError(f"{len(ids)} ids and {len(regions)} regions do not go together")
    for region in checked:
        region.terms_in(space)  # refuses another space
    return checked


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
