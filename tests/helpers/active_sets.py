"""An active set compared with naive rules, and regions to try both with."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

from helpers.cover_oracles import (
    MIXED_SPACES,
    Cells,
    clause_pool,
    guillotine,
    ints,
    random_box,
    region_of,
    whole,
)
from thatch import Space
from thatch.cover import ENGINES, Covered, verify
from thatch.cover.active_set import ActiveSet
from thatch.cover.cover_set import Change
from thatch.region.region import Region

SEED = 20240229


COVERS = ["exact", "pairwise", "negative"]


Coverage = Callable[[Cells, Region, list[Region]], bool]


BY: dict[str, Coverage] = {"union": Cells.covered, "one": Cells.covered_by_one}


class Mirror:
    """An active set, a receiver that applies each change, and the naive rules, side by side."""

    def __init__(self, space: Space, cells: Cells, cover: str, retract: bool | str, **options: Any) -> None:
        self.active_set = ActiveSet(space, cover=cover, retract=retract, **options)
        self.may_give_up = bool(options)  # on a small budget decisions may differ from the naive ones
        self.cells = cells
        self.retract = retract
        self.covered = BY[ENGINES[cover].covers_by]
        self.regions: dict[Any, Region] = {}  # in order of arrival
        self.mirror: set[Any] = set()

    def active_regions(self, *without: Any) -> list[Region]:
        return [self.regions[id] for id in self.active_set.active if id not in without]

    def subscribe(self, id: Any, region: Region) -> Change:
        covered = region.is_empty or self.covered(self.cells, region, self.active_regions())
        change = self.active_set.subscribe(id, region)
        self.regions[id] = region
        if self.may_give_up and not change.verdict:
            covered = False
        assert isinstance(change.verdict, Covered) == covered, change
        assert change.forward == ([] if covered else [id])
        assert not covered or change.withdraw == []
        assert self.retract or change.withdraw == []
        self.apply(change)
        self.holds()
        if not covered and self.retract and not self.may_give_up:
            self.nobody_within(id)
        return change

    def unsubscribe(self, id: Any) -> Change:
        was_active, before = id in self.active_set.active, self.active_set.active
        named = [other for other, names in self.active_set.passive.items() if id in names]
        rechecks = self.active_set.rechecks
        change = self.active_set.unsubscribe(id)
        del self.regions[id]
        if not was_active:
            assert change == Change() and self.active_set.active == before and self.active_set.rechecks == rechecks
        else:
            assert id in change.withdraw
            assert set(change.forward) <= set(named)
            assert self.active_set.rechecks - rechecks <= len(named)
            if not self.retract:
                assert change.withdraw == [id]
                naive = self.naive_promotions([each for each in before if each != id])
                assert change.forward == naive or (self.may_give_up and set(change.forward) >= set(naive))
        self.apply(change)
        self.holds()
        if self.retract and not self.may_give_up:
            for promoted in change.forward:
                self.nobody_within(promoted)
        return change

    def naive_promotions(self, active: list[Any]) -> list[Any]:
        """Every passive one, in order of arrival, against the active set and those just promoted."""
        promoted: list[Any] = []
        for id, region in self.regions.items():
            forwarded = [self.regions[each] for each in active + promoted]
            if id not in active and not region.is_empty and not self.covered(self.cells, region, forwarded):
                promoted.append(id)
        return promoted

    def apply(self, change: Change) -> None:
        """Forward first, then withdraw; nothing is forwarded twice, nothing withdrawn that was not forwarded."""
        arrival = list(self.regions)
        assert change.forward == sorted(change.forward, key=arrival.index), change
        assert len(set(change.withdraw)) == len(change.withdraw), change
        assert self.mirror.isdisjoint(change.forward), change
        self.mirror |= set(change.forward)
        assert self.mirror >= set(change.withdraw), change
        self.mirror -= set(change.withdraw)
        assert self.mirror == set(self.active_set.active), change

    def holds(self) -> None:
        active_set, cells, regions = self.active_set, self.cells, self.regions
        assert active_set.active == [id for id in regions if id in self.mirror]
        assert active_set.passive.keys() == regions.keys() - self.mirror
        active = {id: regions[id] for id in active_set.active}
        assert (cells.union(active.values()) == cells.union(regions.values())).all()
        for id, names in active_set.passive.items():
            assert set(names) <= active.keys() and len(set(names)) == len(names), (id, names)
            assert cells.covered(regions[id], [active[name] for name in names]), (id, names)
            assert verify(Covered(names), regions[id], active), (id, names)
        assert all(active_set.region(id) is region for id, region in regions.items())
        active_set.check_invariants()

    def nobody_within(self, id: Any) -> None:
        for other in self.active_set.active:
            if other != id and not self.regions[other].is_empty:
                assert not self.cells.covered(self.regions[other], [self.regions[id]]), f"{id} covers {other}"
        if self.retract != "union" or self.active_set._engine is None or self.active_set._engine.covers_by != "union":
            return
        for other in self.active_set.active:  # those that it meets are needed next to all others
            if other != id and not (self.regions[other] & self.regions[id]).is_empty:
                others = self.active_regions(other)
                assert not self.cells.covered(self.regions[other], others), f"{other} is forwarded needlessly"


@cache
def pool(kind: str) -> tuple[Space, list[Region], Cells]:
    """Boxes of all sizes with partitions among them, so that many are covered and many covers are joint."""
    random = Random(f"{SEED}/{kind}")
    if kind == "clauses":
        space, regions = clause_pool(MIXED_SPACES[0], 80, SEED)
    else:
        space = {"line": ints(40), "plane": ints(7, 7), "cube": ints(4, 4, 4)}[kind]
        boxes = [random_box(random, whole(space)) for _ in range(40)]
        for pieces in (2, 3, 5, 9):
            boxes += guillotine(random, whole(space), pieces)
        regions = [region_of(space, *box) for box in boxes] + [Region.everything(space), Region.nothing(space)]
    return space, regions, Cells(space, regions)
