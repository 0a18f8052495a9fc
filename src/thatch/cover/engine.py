"""What every cover engine does. The set of members is up to its holder; an engine only answers.

An engine declares whether it covers by one member or by a union, and which way it may err. `may_err` is one of
"never", "unproven" (it may fail to prove what is true) and "covered" (it may say covered of what is not; such an
engine must be asked for by name).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from thatch.cover.verdict import Covered, Uncovered, Verdict
from thatch.errors import CallerError
from thatch.region.box_sets import Boxes, as_regions
from thatch.region.region import Region
from thatch.space.space import Space


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
        self.check_new(ids)
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

    def check_new(self, ids: Sequence[Any]) -> None:
        """Ids of a batch are new and differ; checked before anything changes."""
        new = set(ids)
        if len(new) == len(ids) and new.isdisjoint(self):
            return
        seen: set[Any] = set()
        for id in ids:
            if id in self or id in seen:
                raise CallerError(f"{id!r} is a member already")
            seen.add(id)
