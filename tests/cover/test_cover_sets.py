"""The contract of a set of active and passive subscriptions, run over every kind: a receiver that applies each change
holds every event that is wanted, certificates prove what is held back, and an error changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from helpers.active_sets import pool
from helpers.cover_oracles import Cells, ints
from helpers.strategies import soaked
from thatch import Space
from thatch.cover import ActiveSet, Change, Covered, CoverSet, RelationGraph, verify
from thatch.errors import CallerError, UnknownSubscription
from thatch.region.region import Region

SEED = 20261118
KINDS: dict[str, Callable[[Space], CoverSet]] = {
    "none": lambda space: ActiveSet(space, None),
    "exact lazy": lambda space: ActiveSet(space, "exact"),
    "exact retracting": lambda space: ActiveSet(space, "exact", True),
    "exact by union": lambda space: ActiveSet(space, "exact", "union"),
    "pairwise retracting": lambda space: ActiveSet(space, "pairwise", True),
    "negative lazy": lambda space: ActiveSet(space, "negative"),
    "simplified graph": lambda space: RelationGraph(space, "simplified"),
    "traditional graph": lambda space: RelationGraph(space, "traditional"),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


class Receiver:
    """A set, and somebody who is sent its changes."""

    def __init__(self, found: CoverSet, cells: Cells) -> None:
        self.set, self.cells = found, cells
        self.regions: dict[Any, Region] = {}  # in order of arrival
        self.received: dict[Any, Region] = {}

    def subscribe(self, id: Any, region: Region, check: bool = True) -> None:
        change = self.set.subscribe(id, region, check)
        self.regions[id] = region
        assert change.forward == ([id] if self.set.is_active(id) else [])
        assert change.verdict is None or isinstance(change.verdict, Covered) == (change.forward == [])
        self.apply(change)

    def unsubscribe(self, id: Any) -> None:
        was_active = self.set.is_active(id)
        promotes = was_active and self.set.promotes_more_than(id)
        dependents = self.set.dependents(id)
        change = self.set.unsubscribe(id)
        del self.regions[id]
        assert set(change.forward) <= set(dependents) and (promotes or not change.forward)
        assert (id in change.withdraw) == was_active and (was_active or change == Change())
        self.apply(change)

    def replace(self, id: Any, region: Region) -> None:
        change = self.set.replace(id, region)
        self.regions[id] = region
        assert (id in change.forward) == self.set.is_active(id)
        self.apply(change, replaced=id)

    def exchange(self, gone: list[Any], new: dict[Any, Region]) -> None:
        was_active = {id for id in gone if self.set.is_active(id)}
        change = self.set.exchange(gone, new)
        for id in gone:
            del self.regions[id]
        self.regions |= new
        assert was_active <= set(change.withdraw) and not set(gone) & set(change.forward)
        self.apply(change)

    def release(self, id: Any, most: int) -> None:
        before = len(self.set.dependents(id))
        change = self.set.release(id, most)
        assert id not in change.withdraw or not self.set.is_active(id)
        if self.set.is_gradual and self.set.is_active(id):
            assert len(self.set.dependents(id)) <= max(0, before - most) or most == 0
        elif not self.set.is_gradual:
            assert change == Change()
        self.apply(change)

    def apply(self, change: Change, replaced: Any = None) -> None:
        """Forward first, then withdraw: nothing that is wanted is missing in between, or after."""
        assert len(set(change.forward)) == len(change.forward) and len(set(change.withdraw)) == len(change.withdraw)
        assert change.forward == [id for id in self.regions if id in set(change.forward)]
        assert not (self.received.keys() - {replaced}) & set(change.forward)
        self.received |= {id: self.regions[id] for id in change.forward}
        assert self.received.keys() >= set(change.withdraw)
        for id in change.withdraw:
            del self.received[id]
        self.check()

    def check(self) -> None:
        found, regions = self.set, self.regions
        found.check_invariants()
        assert len(found) == len(regions) and all(id in found for id in regions)
        assert found.active == [id for id in regions if id in self.received]
        assert all(found.is_active(id) == (id in self.received) for id in regions)
        assert all(self.received[id] is regions[id] for id in self.received)
        assert (self.cells.union(self.received.values()) == self.cells.union(regions.values())).all()
        passive = found.passive
        assert passive.keys() == regions.keys() - self.received.keys()
        for id, names in passive.items():
            assert found.certificate(id) == names and verify(Covered(names), regions[id], self.received)
            assert all(found.holds_back(name) for name in names)
        for id in self.received:
            dependents = found.dependents(id)
            assert found.certificate(id) is None and found.holds_back(id) == bool(dependents)
            assert set(dependents) <= passive.keys()
            assert dependents == [each for each in regions if each in set(dependents)]


def change_at_random(receiver: Receiver, regions: list[Region], random: Random, step: int) -> None:
    chance = random.random()
    known = list(receiver.regions)
    active = receiver.set.active
    if len(known) < 5 or chance < 0.45:
        receiver.subscribe(step, random.choice(regions), check=random.random() < 0.9)
    elif chance < 0.65:
        receiver.unsubscribe(random.choice(active if active and random.random() < 0.7 else known))
    elif chance < 0.8:
        receiver.replace(random.choice(known), random.choice(regions))
    elif chance < 0.9:
        new = {(step, at): random.choice(regions) for at in range(random.randrange(3))}
        receiver.exchange(random.sample(known, random.randint(1, 3)), new)
    elif active:
        receiver.release(random.choice(active), random.randrange(4))


@every_kind
@pytest.mark.parametrize("name", ["plane", "clauses"])
def test_random_changes(name: str, kind: str) -> None:
    space, regions, cells = pool(name)
    random = Random(f"{SEED}/{name}")
    receiver = Receiver(KINDS[kind](space), cells)
    for step in range(soaked(60, 600)):
        change_at_random(receiver, regions, random, step)
    while receiver.regions:
        receiver.unsubscribe(random.choice(list(receiver.regions)))
    assert receiver.set.active == [] and receiver.set.passive == {}


@every_kind
def test_a_loaded_set_goes_on_as_the_one_that_decided(kind: str) -> None:
    space, regions, cells = pool("plane")
    random = Random(SEED)
    first = Receiver(KINDS[kind](space), cells)
    for step in range(40):
        first.subscribe(step, random.choice(regions))
    receiver = Receiver(KINDS[kind](space), cells)
    receiver.set.load(first.regions, first.set.passive)
    receiver.regions, receiver.received = dict(first.regions), dict(first.received)
    receiver.check()
    assert receiver.set.active == first.set.active and receiver.set.passive == first.set.passive
    with pytest.raises(CallerError):
        receiver.set.load(first.regions, first.set.passive)
    for step in range(40, 60):
        change_at_random(receiver, regions, random, step)


@every_kind
def test_a_certificate_that_names_nobody_active_is_not_loaded(kind: str) -> None:
    space = ints(10)
    regions = {"a": space.where("a0 < 5"), "b": space.where("a0 < 3"), "c": space.where("a0 = 1")}
    found = KINDS[kind](space)
    for certificates in ({"c": ("d",)}, {"d": ("a",)}, {"b": ("a",), "c": ("b",)}):
        with pytest.raises(CallerError):
            found.load(regions, certificates)
        assert len(found) == 0 and found.active == [] and found.passive == {}


@every_kind
def test_in_a_space_that_has_grown(kind: str) -> None:
    """`kind <> 'a'` comes to mean more: what covered it, two values, covers it no more."""
    clauses = {"b": "kind = 'b'", "not a": "kind <> 'a'", "some": "kind IN ('a', 'b')", "n": "n < 5", "c": "n < 3"}
    old, new = (
        Space.parse(f"kind enum({values}) not null, n int not null 0..9") for values in ("'a', 'b'", "'a', 'b', 'c'")
    )
    before = KINDS[kind](old)
    for id, clause in clauses.items():
        before.subscribe(id, old.where(clause))
    active = before.active
    regions = {id: new.where(clause) for id, clause in clauses.items()}
    after, change = before.recompiled(new, regions)
    after.check_invariants()
    assert before.active == active and after.space is new
    assert set(after.active) == (set(active) | set(change.forward)) - set(change.withdraw)
    assert {"not a"} <= set(after.active) and all(after.region(id) is region for id, region in regions.items())
    cells = Cells(new, regions.values())
    held = [regions[id] for id in after.active]
    assert (cells.union(held) == cells.union(regions.values())).all()


@every_kind
def test_an_empty_region_holds_nothing_back(kind: str) -> None:
    space = ints(10)
    receiver = Receiver(KINDS[kind](space), Cells(space, [Region.everything(space)]))
    receiver.subscribe("none", Region.nothing(space))
    receiver.subscribe("all", Region.everything(space))
    assert not receiver.set.holds_back("all") and (kind == "none" or receiver.set.certificate("none") == ())
    receiver.unsubscribe("all")
    receiver.replace("none", space.where("a0 = 3"))
    assert receiver.set.is_active("none")
    receiver.replace("none", Region.nothing(space))
    receiver.unsubscribe("none")


@every_kind
def test_errors_change_nothing(kind: str) -> None:
    space = ints(10)
    found = KINDS[kind](space)
    found.subscribe("a", space.where("a0 < 5"))
    found.subscribe("p", space.where("a0 < 3"))
    before = found.active, found.passive
    nine, other = space.where("a0 = 9"), ints(11).where("a0 = 9")
    attempts: list[tuple[Callable[[], Any], type[Exception]]] = [
        (lambda: found.subscribe("a", nine), CallerError),
        (lambda: found.subscribe("p", nine), CallerError),
        (lambda: found.subscribe("other", other), CallerError),
        (lambda: found.replace("a", other), CallerError),
        (lambda: found.replace("nobody", nine), UnknownSubscription),
        (lambda: found.exchange(["nobody"], {}), UnknownSubscription),
        (lambda: found.exchange(["p"], {"a": nine}), CallerError),
        (lambda: found.exchange(["p"], {"other": other}), CallerError),
        (lambda: found.release("nobody", 1), UnknownSubscription),
        *((lambda ask=ask: ask("nobody"), UnknownSubscription) for ask in (
            found.unsubscribe, found.region, found.is_active, found.certificate, found.dependents, found.holds_back,
            found.promotes_more_than,
        )),
    ]  # fmt: skip
    for attempt, error in attempts:
        with pytest.raises(error):
            attempt()
        assert (found.active, found.passive) == before and "other" not in found and len(found) == 2
        found.check_invariants()
    assert found.subscribe("other", nine).forward == ["other"]
