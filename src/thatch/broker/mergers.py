"""Mergers: what is forwarded to one neighbour, several subscriptions as one region (merge/merge.py), under ids of the
link's own (`B1/~B2/7`). Those of a table that does not merge stand for themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from thatch.broker.fitting import written
from thatch.merge.merge import MergeSet
from thatch.protocol.versions import OWN_LIMITS, ProtocolLimits
from thatch.region.region import Region


class Mergers:
    def __init__(self, merging: MergeSet, prefix: str) -> None:
        """`prefix`: how their ids begin."""
        self._merging, self._prefix, self._limits = merging, prefix, OWN_LIMITS
        self._members: dict[str, str] = {}  # id -> clause
        self._wheres: dict[str, str] = {}  # of the mergers, by their ids
        self._stale: dict[str, None] = {}  # ids of mergers that may be no more

    @property
    def wheres(self) -> Mapping[str, str]:
        """The clauses of the mergers, by their ids."""
        return self._wheres

    def id_of(self, member: str) -> str:
        """The merger that a subscription is part of."""
        return f"{self._prefix}{self._merging.key_of(member)}"

    def update(
        self, changed: Iterable[str], wheres: Mapping[str, str | None], regions: Mapping[str, Region]
    ) -> tuple[dict[str, None], dict[str, str]]:
        """Of the ids that changed, those are members that have a clause, in its region. Returns the ids of mergers that
        may have changed; and for members that left, the merger that went with each."""
        add: dict[str, Region] = {}
        discard: dict[str, int | None] = {}  # with the key of its merger
        for id in changed:
            now, before = wheres[id], self._members.get(id)
            if now == before:
                continue
            if before is not None:
                discard[id] = self._merging.key_of(id)
                del self._members[id]
            if now is not None:
                add[id] = regions[id]
                self._members[id] = now
        change, stale, self._stale = self._merging.update(add, discard), self._stale, {}
        gone = {id: f"{self._prefix}{key}" for id, key in discard.items() if key in change.withdraw}
        for key, region in change.forward.items():
            self._wheres[f"{self._prefix}{key}"] = written(region, self._limits)
        for key in change.withdraw:
            del self._wheres[f"{self._prefix}{key}"]
        return dict.fromkeys(f"{self._prefix}{key}" for key in (*change.forward, *change.withdraw)) | stale, gone

    def set_limits(self, limits: ProtocolLimits) -> None:
        """What the neighbour takes: clauses that exceed it are those of hulls."""
        if limits != self._limits:
            self._limits = limits
            regions = self._merging.regions
            self._wheres = {f"{self._prefix}{key}": written(region, limits) for key, region in regions.items()}

    def restart(self, merging: MergeSet) -> None:
        """In another space: all members are merged again."""
        self._stale.update(dict.fromkeys(self._wheres))
        self._merging, self._members, self._wheres = merging, {}, {}

    def check_invariants(self, active: Mapping[str, str]) -> None:
        """`active`: what is forwarded, with clauses."""
        self._merging.check_invariants()
        assert self._members == active
        assert self._merging.regions.keys() == {int(id.rsplit("/", 1)[1]) for id in self._wheres}
