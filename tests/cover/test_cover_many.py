"""The contract of cover engines: many regions at once decide as one by one; large sets."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from random import Random
from typing import Any

import numpy as np
import pytest

from helpers.cover_contract import SEED, Engine, bad_evidence, filled, not_covered, one_by_one
from helpers.cover_oracles import MIXED_SPACES, Cells, arrays, clause_pool, ints, random_boxes, region_of
from thatch import Space
from thatch.cover import Covered
from thatch.errors import CallerError
from thatch.region.region import Region

# --- add_many ---------------------------------------------------------------------------------------------------------


def same_as_one_by_one(
    engine_class: Engine, space: Space, before: Mapping[Any, Region], ids: list[Any], regions: list[Region], given: Any
) -> None:
    """`given`: the regions in the form to hand in. `before`: members already there, every third of them gone again."""
    engines = [engine_class(space), engine_class(space)]
    members: dict[Any, Region] = {}
    for engine in engines:
        members = dict(before)
        for id, region in before.items():
            engine.add(id, region)
        for gone in list(before)[::3]:
            engine.discard(gone)
            del members[gone]
    expected = one_by_one(engines[0], ids, regions)
    verdicts = engines[1].add_many(ids, given)
    assert len(verdicts) == len(ids)
    cells = Cells(space, [*members.values(), *regions])
    for position, (id, region, alone, verdict) in enumerate(zip(ids, regions, expected, verdicts, strict=True)):
        where = f"{position}: {region.to_sql()}: {verdict}, one by one {alone}"
        assert type(verdict) is type(alone) or engines[0].may_err == "covered", where
        assert not bad_evidence(engines[0], verdict, region, members, cells), where
        if not verdict:
            members[id] = region
    assert list(engines[1]) == list(members)
    if engines[0].may_err != "covered":
        assert list(engines[0]) == list(members)
    engines[1].check_invariants()
    for region in regions[::7]:
        assert type(engines[0].check(region)) is type(engines[1].check(region)) or engines[0].may_err == "covered"
        assert list(engines[0].members_within(region)) == list(engines[1].members_within(region))


@pytest.mark.parametrize(
    ("attributes", "already", "form"),
    [
        (1, 0, "arrays"),
        (1, 70, "regions"),
        (2, 9, "arrays"),
        (2, 70, "arrays"),
        (3, 0, "fortran"),
        (3, 70, "regions"),
        (5, 0, "regions"),
        (5, 9, "arrays"),
    ],
)
def test_add_many_boxes(engine_class: Engine, attributes: int, already: int, form: str) -> None:
    random = Random(f"{SEED}/{attributes}/{already}")
    space = ints(*[{1: 400, 2: 30, 3: 10, 5: 4}[attributes]] * attributes)
    before = {
        f"b{position}": region_of(space, *box) for position, box in enumerate(random_boxes(random, space, already, 0.1))
    }
    boxes = random_boxes(random, space, 90, 0.3)
    regions = [region_of(space, *box) for box in boxes]
    given: Any = regions
    if form != "regions":
        low, high = arrays(boxes)
        given = (np.asfortranarray(low), high[::-1][::-1].astype(np.int32)) if form == "fortran" else (low, high)
    same_as_one_by_one(engine_class, space, before, list(range(90)), regions, given)


@cache
def batch_of_clauses(text: str, already: int) -> tuple[Space, dict[str, Region], list[Region]]:
    space, pool = clause_pool(text, 120, SEED + 1)
    random = Random(SEED)
    before = {f"b{position}": region for position, region in enumerate(random.choices(pool[2:], k=already))}
    narrow = [one & other for one, other in zip(random.choices(pool, k=60), random.choices(pool, k=60), strict=True)]
    return space, before, narrow


@pytest.mark.parametrize("text", MIXED_SPACES)
@pytest.mark.parametrize("already", [0, 12])
def test_add_many_clauses(engine_class: Engine, text: str, already: int) -> None:
    space, before, narrow = batch_of_clauses(text, already)
    same_as_one_by_one(engine_class, space, before, list(range(60)), narrow, narrow)


def test_add_many_of_none_and_of_empty_ones(engine_class: Engine) -> None:
    space = ints(4, 4)
    engine = engine_class(space)
    assert list(engine.add_many([], [])) == []
    assert list(engine.add_many([], (np.zeros((0, 2), np.int64), np.zeros((0, 2), np.int64)))) == []
    regions = [space.where("a0 < 2"), Region.nothing(space), space.where("a0 < 1"), space.where("a1 = 1")]
    same_as_one_by_one(engine_class, space, {}, ["a", "b", "c", "d"], regions, regions)
    same_as_one_by_one(engine_class, space, {"x": regions[3], "y": regions[2]}, ["a", "b", "c", "d"], regions, regions)
    low, high = np.array([[0, 0], [3, 3], [0, 0]]), np.array([[1, 3], [2, 3], [0, 3]])  # the second one is empty
    asked = [space.where("a0 < 2"), Region.nothing(space), space.where("a0 < 1")]
    same_as_one_by_one(engine_class, space, {}, ["a", "b", "c"], asked, (low, high))


def test_add_many_takes_any_sequence_of_regions(engine_class: Engine) -> None:
    space = ints(4, 4)
    engine = engine_class(space)
    verdicts = engine.add_many(("a", "b"), (space.where("a0 < 2"), space.where("a0 < 1")))
    assert [bool(each) for each in verdicts] == [False, True]
    assert list(engine) == ["a"]


@pytest.mark.parametrize("twist", ["plain", "arrays", "empty", "ball"])
def test_add_many_refuses_known_ids(engine_class: Engine, twist: str) -> None:
    """All or nothing: who calls again with the id mended must not meet half of the batch."""
    space = Space.parse("x double not null 0..100, y double not null 0..100")
    engine = filled(engine_class, space, {"old": space.where("x < 5")})
    last = {"empty": "1 = 0", "ball": "within(3, x, 50, y, 50)"}.get(twist, "x = 60")
    regions: Any = [space.where("x < 20"), space.where("x < 10"), space.where(last)]
    if twist == "arrays":
        boxes = [region.boxes() for region in regions]
        regions = np.concatenate([low for low, _ in boxes]), np.concatenate([high for _, high in boxes])
    for ids in (["a", "b", "a"], ["b", "old", "c"], ["b", "b", "c"]):
        with pytest.raises(CallerError):
            engine.add_many(ids, regions)
        assert list(engine) == ["old"]
    engine.check_invariants()
    assert not_covered(engine, engine.check(space.where("x = 15")))


def test_add_many_refuses_boxes_that_do_not_fit(engine_class: Engine) -> None:
    space = ints(5, 5)
    engine = filled(engine_class, space, {"old": space.where("a0 = 1")})
    low, high = np.zeros((2, 2), np.int64), np.full((2, 2), 4)
    beyond = high.copy()
    beyond[1, 0] = 5
    bad: list[tuple[list[str], Any]] = [
        (["a", "b"], (low, beyond)),
        (["a", "b"], (low - 1, high)),
        (["a", "b", "c"], (low, high)),
        (["a"], (low, high)),
        (["a", "b"], (low, high[:1])),
        (["a", "b"], (low[:, :1], high[:, :1])),
        (["a", "b"], [space.where("a0 = 1")]),
    ]
    for ids, regions in bad:
        with pytest.raises(ValueError):
            engine.add_many(ids, regions)
        assert list(engine) == ["old"]
        engine.check_invariants()
        assert not_covered(engine, engine.check(space.where("a0 = 2")))


def test_a_batch_keeps_its_own_ids(engine_class: Engine) -> None:
    space, ids = ints(10, 10), ["a", "b"]
    engine = engine_class(space)
    verdicts = engine.add_many(ids, [region_of(space, (0, 0), (5, 5)), region_of(space, (1, 1), (2, 2))])
    ids[0] = "other"
    assert verdicts[1] == Covered(("a",))


def test_members_that_are_loaded_keep_their_order(engine_class: Engine) -> None:
    """Plain boxes, unions, empty ones and balls, as they come; and they leave no trace."""
    space = Space.parse("x int not null 0..99, y int not null 0..99")
    clauses = ["x < 9 OR y < 9", "x < 50", "FALSE", "within(5, x, 20, y, 20)", "y > 30", "x IN (1, 5, 9)", "x > 3"]
    regions = {str(number): space.where(clause) for number, clause in enumerate(clauses)}
    engine = engine_class(space)
    engine.load(list(regions), list(regions.values()))
    engine.check_invariants()
    assert list(engine) == list(regions)
    assert engine.members_within(Region.everything(space)) == list(regions)
    ball_and_box = space.where("within(2, x, 20, y, 20) OR (x < 9 AND y < 40)")
    verdict = engine.check(ball_and_box)
    if isinstance(verdict, Covered):
        assert list(verdict.certificate) == sorted(verdict.certificate)
    for id in regions:
        engine.discard(id)
    engine.check_invariants()
    assert len(engine) == 0


def test_verdicts_of_add_many_are_a_sequence(engine_class: Engine) -> None:
    space = ints(10, 10)
    boxes = [((0, 0), (3, 9)), ((1, 1), (2, 2)), ((4, 0), (9, 9)), ((0, 0), (9, 9))]
    engine = engine_class(space)
    verdicts = engine.add_many(list("abcd"), arrays(boxes))
    assert len(verdicts) == 4
    assert [bool(verdict) for verdict in verdicts][:3] == [False, True, False]
    assert verdicts[1] == verdicts[-3] == Covered(("a",))
    assert [bool(each) for each in verdicts[1:3]] == [True, False]
    with pytest.raises(IndexError):
        verdicts[4]


def test_a_later_batch_leaves_earlier_verdicts_alone(engine_class: Engine) -> None:
    """Verdicts may be made into objects late: then they still speak of their own moment."""
    space, random = ints(30, 30), Random(SEED)
    engine = engine_class(space)
    boxes = random_boxes(random, space, 120, 0.4)
    regions = [region_of(space, *box) for box in boxes]
    cells = Cells(space, regions)
    first = engine.add_many(list(range(60)), arrays(boxes[:60]))
    second = engine.add_many(list(range(60, 120)), arrays(boxes[60:]))
    members: dict[int, Region] = {}
    for position, (region, verdict) in enumerate(zip(regions, [*first, *second], strict=True)):
        assert not bad_evidence(engine, verdict, region, members, cells), position
        if not verdict:
            members[position] = region
    assert list(engine) == list(members)


def test_certificates_of_a_batch_outlive_departures(engine_class: Engine) -> None:
    """Looked at late, a certificate still names those that proved it then."""
    space = ints(10, 10)
    boxes = [((0, 0), (4, 9)), ((5, 0), (9, 9)), ((1, 1), (2, 2)), ((6, 1), (7, 2))]
    engine = engine_class(space)
    verdicts = engine.add_many(list("abcd"), arrays(boxes))
    engine.discard("a")
    assert verdicts[2] == Covered(("a",)) and verdicts[3] == Covered(("b",))


# --- Large sets -------------------------------------------------------------------------------------------------------


def test_watchlists(engine_class: Engine) -> None:
    """IN sets of thousands, alone and combined: one member that holds them is always found, and nothing blows up."""
    space = Space.parse("a int, b int")
    evens, few = (", ".join(str(2 * at) for at in range(count)) for count in (3000, 1000))
    members = {"evens": space.where(f"a IN ({evens})"), "square": space.where(f"a IN ({few}) AND b IN ({few})")}
    engine = filled(engine_class, space, members)
    assert engine.check(members["evens"]) == Covered(("evens",))
    assert isinstance(engine.check(space.where(f"a IN ({few})")), Covered)
    assert isinstance(engine.check(space.where("a IN (2, 4, 5998)")), Covered)
    assert isinstance(engine.check(members["square"]), Covered)
    assert not isinstance(engine.check(space.where("a IN (2, 3)")), Covered)
    assert not isinstance(engine.check(space.where("a BETWEEN 0 AND 100")), Covered)
    assert list(engine.members_within(members["evens"])) == ["evens", "square"]
    assert list(engine.members_within(members["square"])) == ["square"]
    assert list(engine.members_within(Region.everything(space))) == ["evens", "square"]
    engine.add("all", space.where("a >= 0"))
    assert isinstance(engine.check(members["evens"]), Covered)
    engine.discard("evens")
    engine.discard("square")
    assert engine.check(space.where(f"a IN ({evens})")) == Covered(("all",))
    engine.check_invariants()
