"""Active sets whose members are replaced, and sets and engines that are loaded with what others decided."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from helpers.active_sets import Mirror, pool
from helpers.cover_oracles import MIXED_SPACES, clause_pool, ints
from helpers.match_oracles import BALL_SPACE
from helpers.strategies import soaked
from helpers.tables import SEED
from thatch import CallerError, Space
from thatch.cover import ActiveSet, Change, Covered, ExactEngine, verify
from thatch.region.region import Region


class Replacing(Mirror):
    """The active sets of test_told.py, with replacements."""

    def replace(self, id: Any, region: Region) -> Change:
        others = [each for each in self.active_set.active if each != id]
        was_active = id in self.active_set.active
        covered = region.is_empty or self.covered(self.cells, region, [self.regions[each] for each in others])
        change = self.active_set.replace(id, region)
        self.regions[id] = region
        assert isinstance(change.verdict, Covered) == covered, change
        if not self.retract:
            active_now = others if covered else [*others, id]
            expected = set(self.naive_promotions(active_now) if was_active else ()) | (set() if covered else {id})
            assert set(change.forward) == expected and change.withdraw == ([id] if covered and was_active else [])
        self.mirror.discard(id)  # forwarding it anew supersedes it
        if was_active and id not in change.forward:
            assert id in change.withdraw
            self.mirror.add(id)
        self.apply(change)
        self.holds()
        return change


@pytest.mark.parametrize("retract", [False, True])
@pytest.mark.parametrize("cover", ["exact", "pairwise"])
@pytest.mark.parametrize("kind", ["line", "plane", "clauses"])
def test_active_sets_replace(kind: str, cover: str, retract: bool) -> None:
    space, regions, cells = pool(kind)
    random = Random(f"{SEED}/{kind}")
    mirror = Replacing(space, cells, cover, retract)
    for step in range(soaked(70, 90)):
        draw = random.random()
        if len(mirror.regions) < 6 or draw < 0.3:
            mirror.subscribe(step, random.choice(regions))
        elif draw < 0.45:
            mirror.unsubscribe(random.choice(list(mirror.regions)))
        else:
            active = mirror.active_set.active
            id = random.choice(active if active and random.random() < 0.6 else list(mirror.regions))
            mirror.replace(id, random.choice(regions))
        if step == 60:  # and on from what another one has decided
            loaded = ActiveSet(space, cover, retract)
            loaded.load(mirror.regions, mirror.active_set.passive)
            assert loaded.active == mirror.active_set.active and loaded.passive == mirror.active_set.passive
            mirror.active_set = loaded
            mirror.holds()


def test_active_sets_refuse_what_does_not_fit_together() -> None:
    space = ints(10)
    everything, some = Region.everything(space), space.where("a0 < 5")
    active_set = ActiveSet(space)
    for regions, certificates in (
        ({"a": everything, "b": some, "c": some}, {"b": ("c",), "c": ("a",)}),  # names a passive one
        ({"a": everything, "b": some}, {"b": ("x",)}),
        ({"a": everything}, {"b": ("a",)}),  # of one that is not there
    ):
        with pytest.raises(CallerError):
            active_set.load(regions, certificates)
        assert len(active_set) == 0 and active_set.active == [] and active_set.passive == {}
        active_set.check_invariants()
    active_set.load({"a": everything, "b": some}, {"b": ("a",)})
    with pytest.raises(CallerError):
        active_set.load({}, {})
    active_set.check_invariants()


@pytest.mark.parametrize("text", [MIXED_SPACES[0], MIXED_SPACES[2], BALL_SPACE])
def test_an_engine_that_is_loaded_decides_as_one_that_was_filled(text: str) -> None:
    if text == BALL_SPACE:
        space = Space.parse(text)
        clauses = [f"within({r}, x, {at}, y, {at})" for r in (1, 3) for at in range(6)] + ["n = 3", "x < 5D AND n > 2"]
        clauses += ["p IN (" + ", ".join(map(str, range(-40, 40, 2))) + ")", "y > 2D", "1 = 0"]
        regions = [space.where(clause) for clause in clauses]
    else:
        space, regions = clause_pool(text, 60, SEED)
    random = Random(SEED)
    for _ in range(soaked(3, 6)):
        members = dict(enumerate(random.choices(regions[1:], k=12)))
        one, other = ExactEngine(space), ExactEngine(space)
        for id, region in members.items():
            one.add(id, region)
        other.load(list(members), list(members.values()))
        other.check_invariants()
        assert set(other) == set(members) and len(other) == 12
        with pytest.raises(CallerError):
            other.load([3], [regions[0]])
        for region in random.choices(regions, k=15):
            verdicts = one.check(region), other.check(region)
            assert type(verdicts[0]) is type(verdicts[1])
            assert all(verify(verdict, region, members) for verdict in verdicts)
            assert set(one.members_within(region)) == set(other.members_within(region))
        gone = random.sample(list(members), 6)
        for id in gone:
            other.discard(id)
        other.check_invariants()
        assert set(other) == members.keys() - set(gone)
