"""Active sets against a naive model: the active ones cover all, certificates hold, a change says all that changes."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.active_sets import COVERS, SEED, Mirror, pool
from helpers.cover_oracles import (
    Cells,
    ints,
    recode,
    region_of,
)
from helpers.strategies import examples, soaked
from thatch import Space
from thatch.cover import Covered, Uncovered
from thatch.cover.active_set import ActiveSet
from thatch.cover.cover_set import Change
from thatch.errors import CallerError
from thatch.region.region import Region


@pytest.mark.parametrize("retract", [False, True, "union"])
@pytest.mark.parametrize("cover", COVERS)
@pytest.mark.parametrize("kind", ["line", "plane", "cube"])
def test_random_subscriptions(kind: str, cover: str, retract: bool | str) -> None:
    space, regions, cells = pool(kind)
    for run in range(soaked(1, 3)):
        random = Random(f"{SEED}/{kind}/{run}")
        mirror = Mirror(space, cells, cover, retract)
        for step in range(130):
            growing = 0.7 if step % 65 < 40 else 0.25
            if not mirror.regions or random.random() < growing:
                mirror.subscribe(step, random.choice(regions))
            else:
                active = mirror.active_set.active
                mirror.unsubscribe(random.choice(active if active and random.random() < 0.7 else list(mirror.regions)))
        while mirror.regions:
            mirror.unsubscribe(random.choice(list(mirror.regions)))
        assert mirror.active_set.active == [] and mirror.active_set.passive == {} and len(mirror.active_set) == 0


@pytest.mark.parametrize("retract", [False, True, "union"])
@pytest.mark.parametrize("cover", COVERS)
def test_random_clauses(cover: str, retract: bool | str) -> None:
    """Unions, IN sets and NULLs on both sides."""
    space, regions, cells = pool("clauses")
    random = Random(SEED)
    mirror = Mirror(space, cells, cover, retract)
    for step in range(120):
        if len(mirror.regions) < 4 or random.random() < 0.6:
            mirror.subscribe(f"s{step}", random.choice(regions))
        else:
            mirror.unsubscribe(random.choice(list(mirror.regions)))


@pytest.mark.parametrize("retract", [False, True, "union"])
@pytest.mark.parametrize("budget", [{"nodes_max": 1}, {"nodes_max": 2}, {"tests_max": 9}])
def test_an_engine_that_gives_up_forwards_more(budget: dict[str, int], retract: bool | str) -> None:
    """Unproven means forward: more is forwarded, nothing is lost."""
    space, regions, cells = pool("plane")
    random = Random(SEED)
    mirror = Mirror(space, cells, "exact", retract, **budget)
    for step in range(100):
        if len(mirror.regions) < 4 or random.random() < 0.6:
            mirror.subscribe(step, random.choice(regions))
        else:
            mirror.unsubscribe(random.choice(list(mirror.regions)))


@pytest.mark.parametrize("retract", [False, True, "union"])
@pytest.mark.parametrize("cover", COVERS)
def test_random_balls(cover: str, retract: bool | str) -> None:
    """Balls and boxes: what is active holds every sampled point of what is subscribed."""
    space = Space.parse("x int not null 0..30, y int not null 0..30, n int not null 0..1")
    random = Random(SEED)
    clauses = [
        f"within({random.choice((2, 5, 8))}, x, {random.randint(10, 14)}, y, {random.randint(10, 14)})"
        + random.choice(("", " AND n = 0", " AND x < 12"))
        for _ in range(25)
    ]
    clauses += [
        f"x BETWEEN {at} AND {at + random.randint(2, 20)} AND y < {random.randint(9, 30)}" for at in range(0, 20, 2)
    ]
    regions = [space.where(clause) for clause in clauses]
    grid = [np.array(axis, np.int64) for axis in zip(*product(range(31), range(31), range(2)), strict=True)]
    points = {id(region): region.contains_points(grid) for region in regions}
    active_set, mirror, here = ActiveSet(space, cover=cover, retract=retract), set[int](), dict[int, Region]()
    for step in range(120):
        if len(here) < 4 or random.random() < 0.6:
            here[step] = random.choice(regions)
            change = active_set.subscribe(step, here[step])
        else:
            gone = random.choice(list(here))
            del here[gone]
            change = active_set.unsubscribe(gone)
        assert mirror.isdisjoint(change.forward) and mirror | set(change.forward) >= set(change.withdraw)
        mirror = (mirror | set(change.forward)) - set(change.withdraw)
        assert active_set.active == [each for each in here if each in mirror]
        active_set.check_invariants()
        wanted = np.logical_or.reduce([points[id(region)] for region in here.values()])
        held = np.logical_or.reduce([points[id(here[each])] for each in active_set.active])
        assert (wanted == held).all(), f"step {step}"
        for passive, names in active_set.passive.items():
            held = np.logical_or.reduce([points[id(here[name])] for name in names])
            assert not (points[id(here[passive])] & ~held).any(), f"step {step}: {passive} by {names}"
    assert len(active_set.passive) > 3


def test_recoded_strings() -> None:
    space = Space.parse("name string, size int not null 0..9")
    active_set = ActiveSet(space, retract=True)
    clauses = {
        "all": "name IS NOT NULL",
        "low": "name < 'm'",
        "high": "name >= 'm' AND size < 5",
        "m": "name = 'maaa' AND size = 3",
        "null": "name IS NULL",
    }
    for id, clause in clauses.items():
        active_set.subscribe(id, space.where(clause))
    assert active_set.active == ["all", "null"]
    recode(space)
    change = active_set.unsubscribe("all")
    assert change.forward == ["low", "high"] and active_set.passive == {"m": ("high",)}
    recode(space)
    assert active_set.subscribe("wide", space.where("name >= 'k'")).withdraw == ["high"]
    active_set.check_invariants()
    assert active_set.active == ["low", "null", "wide"]


operations = st.lists(st.one_of(st.tuples(st.integers(0, 7), st.integers(0, 7)), st.integers(0, 30)), max_size=16)


@examples(60)
@given(operations=operations, retract=st.booleans(), cover=st.sampled_from(COVERS))
def test_drawn_subscriptions(operations: list[Any], retract: bool | str, cover: str) -> None:
    """Intervals on a short line: a failure shrinks to a few of them."""
    space = ints(8)
    intervals = {(low, high): region_of(space, [low], [high]) for low in range(8) for high in range(low, 8)}
    mirror = Mirror(space, Cells(space, intervals.values()), cover, retract)
    for number, operation in enumerate(operations):
        if isinstance(operation, tuple):
            mirror.subscribe(number, intervals[min(operation), max(operation)])
        elif mirror.regions:
            mirror.unsubscribe(list(mirror.regions)[operation % len(mirror.regions)])


@pytest.mark.parametrize("retract", [False, True, "union"])
def test_certificates_of_many_names(retract: bool | str) -> None:
    """Beyond 32 names: covers made of fifty pieces, repaired and replaced piece by piece."""
    space = ints(200)
    pieces = [region_of(space, [4 * at], [4 * at + 3]) for at in range(50)]
    wider = [region_of(space, [8 * at], [8 * at + 7]) for at in range(25)]
    long = [region_of(space, [0], [199]), region_of(space, [2], [150]), region_of(space, [60], [190])]
    cells = Cells(space, [*pieces, *wider, *long])
    random = Random(SEED)
    mirror = Mirror(space, cells, "exact", retract)
    for at, piece in enumerate(pieces):
        mirror.subscribe(f"piece{at}", piece)
    for at, region in enumerate(long):
        assert mirror.subscribe(f"long{at}", region).forward == []
    for at in random.sample(range(25), 25):
        change = mirror.subscribe(f"wider{at}", wider[at])
        assert change.forward == []  # two pieces cover it
    for at in random.sample(range(50), 50):
        mirror.unsubscribe(f"piece{at}")
    for id in list(mirror.regions):
        mirror.unsubscribe(id)


def test_a_wider_one_takes_back_one_at_a_time() -> None:
    """W covers all three; each is certified by active ones, never by one taken back."""
    space = ints(100)
    regions = {"a": (0, 40), "b": (30, 70), "c": (60, 99), "w": (0, 99)}
    for retract in (False, True):
        active_set = ActiveSet(space, retract=retract)
        for id, (low, high) in regions.items():
            change = active_set.subscribe(id, region_of(space, [low], [high]))
        if not retract:
            assert change == Change([], [], Covered(active_set.passive["w"]))
    active_set = ActiveSet(space, retract=True)
    for id in "ab":
        active_set.subscribe(id, region_of(space, [regions[id][0]], [regions[id][1]]))
    change = active_set.subscribe("w", Region.everything(space))
    assert change.forward == ["w"] and sorted(change.withdraw) == ["a", "b"]
    assert active_set.active == ["w"] and active_set.passive == {"a": ("w",), "b": ("w",)}
    change = active_set.unsubscribe("w")
    assert change.forward == ["a", "b"] and change.withdraw == ["w"]
    assert active_set.active == ["a", "b"] and active_set.passive == {}


def test_certificates_follow_those_taken_back() -> None:
    space = ints(100)

    def box(low: int, high: int) -> Region:
        return region_of(space, [low], [high])

    active_set = ActiveSet(space, retract=True)
    active_set.subscribe("a", box(0, 49))
    active_set.subscribe("b", box(50, 99))
    assert active_set.subscribe("p", box(20, 80)).forward == []
    assert sorted(active_set.passive["p"]) == ["a", "b"]
    assert active_set.subscribe("q", box(0, 9)).verdict == Covered(("a",))
    active_set.subscribe("c", box(0, 10))  # covered by a
    assert active_set.unsubscribe("b").forward == ["p"]
    active_set.check_invariants()
    change = active_set.subscribe("w", box(0, 90))
    assert change.forward == ["w"] and sorted(change.withdraw) == ["a", "p"]
    assert active_set.active == ["w"]
    assert active_set.passive == dict.fromkeys(["p", "q", "c", "a"], ("w",))
    assert active_set.unsubscribe("a") == Change() and active_set.unsubscribe("q") == Change()
    change = active_set.unsubscribe("w")
    assert change.forward == ["p", "c"] and change.withdraw == ["w"]


def test_a_promotion_takes_back_what_was_promoted_before_it() -> None:
    """What is forwarded and taken back in one change is not reported at all."""
    space = ints(100)
    active_set = ActiveSet(space, retract=True)
    active_set.subscribe("w", Region.everything(space))
    active_set.subscribe("small", space.where("a0 BETWEEN 10 AND 20"))
    active_set.subscribe("large", space.where("a0 BETWEEN 0 AND 50"))
    active_set.subscribe("other", space.where("a0 > 90"))
    change = active_set.unsubscribe("w")
    assert change.forward == ["large", "other"] and change.withdraw == ["w"]
    assert active_set.passive == {"small": ("large",)}
    active_set.check_invariants()


def test_a_passive_one_leaves_quietly() -> None:
    space = ints(10)
    active_set = ActiveSet(space)
    active_set.subscribe("all", Region.everything(space))
    change = active_set.subscribe("some", space.where("a0 < 5"))
    assert change == Change([], [], Covered(("all",)))
    assert active_set.unsubscribe("some") == Change()
    assert active_set.rechecks == 0 and "some" not in active_set and len(active_set) == 1


def test_only_those_named_are_rechecked() -> None:
    space = ints(1000)
    active_set = ActiveSet(space)
    for at in range(10):
        active_set.subscribe(("wide", at), region_of(space, [100 * at], [100 * at + 99]))
        for inner in range(5):
            active_set.subscribe(("narrow", at, inner), region_of(space, [100 * at + inner], [100 * at + 50]))
    assert len(active_set.active) == 10 and len(active_set.passive) == 50
    change = active_set.unsubscribe(("wide", 3))
    assert change.forward == [("narrow", 3, 0)] and change.withdraw == [("wide", 3)]
    assert 1 <= active_set.rechecks <= 5


def test_without_covering_everything_is_active() -> None:
    space = ints(10)
    active_set = ActiveSet(space, cover=None)
    for id in range(3):
        assert active_set.subscribe(id, Region.everything(space)).forward == [id]
    assert active_set.active == [0, 1, 2] and active_set.passive == {}
    assert active_set.unsubscribe(1) == Change([], [1])
    active_set.check_invariants()


def test_a_verdict_comes_with_the_change() -> None:
    space = ints(10)
    active_set = ActiveSet(space)
    first = active_set.subscribe("a", space.where("a0 < 5"))
    assert isinstance(first.verdict, Uncovered)
    second = active_set.subscribe("b", space.where("a0 < 7"))
    assert isinstance(second.verdict, Uncovered) and second.verdict.witness in {(5,), (6,)}
    assert first.verdict.witness[0] < 5


def test_a_verdict_of_one_that_takes_others_back() -> None:
    """Asking why it was forwarded gives the witness, though others have been taken back since."""
    space = ints(100)
    active_set = ActiveSet(space, retract=True)
    for id, low in (("a", 0), ("b", 95)):
        active_set.subscribe(id, region_of(space, [low], [low + 4]))
    change = active_set.subscribe("w", Region.everything(space))
    assert sorted(change.withdraw) == ["a", "b"]
    assert isinstance(change.verdict, Uncovered) and 5 <= change.verdict.witness[0] < 95


def test_an_unknown_engine_is_refused_by_name() -> None:
    with pytest.raises(CallerError, match="magic"):
        ActiveSet(ints(3), cover="magic")


@pytest.mark.parametrize("retract", [False, True, "union"])
@pytest.mark.parametrize("cover", COVERS)
def test_many_at_once_are_the_same_as_one_by_one(cover: str, retract: bool | str) -> None:
    for kind in ("plane", "clauses"):
        space, regions, _ = pool(kind)
        random = Random(f"{SEED}/{kind}")
        chosen = random.choices(regions, k=60)
        alone, together = ActiveSet(space, cover=cover, retract=retract), ActiveSet(space, cover=cover, retract=retract)
        for active_set in (alone, together):
            for position, region in enumerate(chosen[:10]):
                active_set.subscribe(("before", position), region)
            for position in range(0, 10, 2):
                active_set.unsubscribe(("before", position))
        ids = list(range(50))
        changes = [alone.subscribe(id, region) for id, region in zip(ids, chosen[10:], strict=True)]
        batch = together.subscribe_many(ids, chosen[10:])
        for one, other in zip(changes, batch, strict=True):
            assert (one.forward, one.withdraw) == (other.forward, other.withdraw)
            assert type(one.verdict) is type(other.verdict)
        assert together.active == alone.active and together.passive.keys() == alone.passive.keys()
        together.check_invariants()
        with pytest.raises(CallerError):
            together.subscribe_many(["new", 7], chosen[:2])
        with pytest.raises(CallerError):
            together.subscribe_many(["new", "new"], chosen[:2])
        assert together.active == alone.active and "new" not in together
        together.check_invariants()
