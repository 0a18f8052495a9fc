"""The contract of cover engines: members come and go, members within a region, and recoded strings."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from random import Random
from typing import Any

import pytest

from helpers.cover_contract import (
    SEED,
    Engine,
    bad_evidence,
    cached_clauses,
    cached_sets,
    filled,
    not_covered,
    thinned,
    wrong,
)
from helpers.cover_oracles import (
    MIXED_SPACES,
    Box,
    Case,
    Cells,
    NegativeSpace,
    clause_pool,
    ints,
    random_box,
    random_boxes,
    recode,
    region_of,
    whole,
)
from helpers.strategies import soaked
from thatch import Space
from thatch.cover import Covered, Uncovered, verify
from thatch.errors import CallerError
from thatch.region.region import Region

# --- Members come and go ----------------------------------------------------------------------------------------------


@cache
def churn_pool(kind: str) -> tuple[Space, list[Region], Cells]:
    if kind == "boxes":
        space, random = ints(6, 5, 6), Random(SEED)
        pool = [region_of(space, *random_box(random, whole(space))) for _ in range(120)]
    else:
        space, pool = clause_pool(MIXED_SPACES[2], 100, SEED)
    return space, pool, Cells(space, pool)


@pytest.mark.parametrize("kind", ["boxes", "clauses"])
def test_adding_and_discarding(engine_class: Engine, kind: str) -> None:
    """Answers depend on the members alone, not on how they came to be members."""
    space, pool, cells = churn_pool(kind)
    for run in thinned(engine_class, [0, 1, 2][: soaked(1, 3)]):
        random = Random(f"{SEED}/{kind}/{run}")
        engine, members = engine_class(space), dict[int, Region]()
        for step in range(240):
            growing = 0.75 if step % 80 < 50 else 0.2  # up to some forty, then down to a few
            if not members or random.random() < growing:
                members[step] = random.choice(pool)
                engine.add(step, members[step])
            else:
                gone = random.choice(list(members))
                del members[gone]
                engine.discard(gone)
            assert list(engine) == list(members) and len(engine) == len(members)
            if step % 8 == 0:
                engine.check_invariants()
                fresh = filled(engine_class, space, members)
                for region in random.choices(pool, k=4):
                    verdict, again = engine.check(region), fresh.check(region)
                    where = f"run {run}, step {step}: {verdict} of {region.to_sql()}"
                    if engine.may_err != "covered" and not getattr(engine, "is_loose", False):
                        assert type(verdict) is type(again), f"{where}, but afresh {again}"
                    covered = cells.covered(region, members.values())
                    by_one = cells.covered_by_one(region, members.values())
                    assert not wrong(engine, verdict, covered, by_one), where
                    assert not bad_evidence(engine, verdict, region, members, cells), where


def test_many_come_and_go(engine_class: Engine) -> None:
    """Through growth, many holes, and growth again."""
    space, random = ints(1000, 1000), Random(SEED)
    engine, members, boxes = engine_class(space), dict[int, Region](), dict[int, Box]()
    for id, box in enumerate(random_boxes(random, space, 700, 0.1)):
        members[id], boxes[id] = region_of(space, *box), box
        engine.add(id, members[id])
        if id % 300 == 299:
            for gone in random.sample(sorted(members), len(members) - 20):
                engine.discard(gone)
                del members[gone], boxes[gone]
            engine.check_invariants()
    engine.check_invariants()
    for box in random_boxes(random, space, 60, 0.2):
        region = region_of(space, *box)
        rest = NegativeSpace(box)
        for each in boxes.values():
            rest.subtract(each)
        verdict = engine.check(region)
        assert not wrong(engine, verdict, len(rest) == 0, False)
        assert verify(verdict, region, members) or engine.may_err == "covered"


def test_a_witness_outlives_additions(engine_class: Engine) -> None:
    """A verdict may complete its witness late. Members that come later do not spoil it; a departure may."""
    for case in cached_sets(3)[:60]:
        engine = filled(engine_class, case.space, case.members)
        late = []
        for position, region in enumerate(case.queries):
            verdict = engine.check(region)
            if isinstance(verdict, Uncovered):
                late.append((region, verdict))
                engine.add(f"late{position}", region)
                late.append((region, verdict))
        before = dict(case.members)
        asked: set[int] = set()
        for region, verdict in late:
            if id(verdict) not in asked:
                asked.add(id(verdict))
                assert not bad_evidence(engine, verdict, region, before, case.cells), case
                position = next(i for i, query in enumerate(case.queries) if query is region)
                before[f"late{position}"] = region


def test_a_witness_is_never_wrong_after_a_departure(engine_class: Engine) -> None:
    for case in cached_sets(2)[:80]:
        if not case.members:
            continue
        engine = filled(engine_class, case.space, case.members)
        verdict = engine.check(case.queries[0])
        gone = next(iter(case.members))
        engine.discard(gone)
        if isinstance(verdict, Uncovered):
            rest = {id: region for id, region in case.members.items() if id != gone}
            try:
                point = verdict.witness
            except CallerError:
                continue
            assert not bad_evidence(engine, Uncovered(point), case.queries[0], rest, case.cells), case


# --- members_within ---------------------------------------------------------------------------------------------------


def within_by_force(cells: Cells, region: Region, members: Mapping[Any, Region]) -> list[Any]:
    return [id for id, member in members.items() if cells.covered(member, [region])]


@cache
def within_sets(attributes: int) -> list[tuple[Case, list[list[Any]]]]:
    """Who is within each of the queries."""
    cases = cached_sets(attributes)[:80]
    return [(case, [within_by_force(case.cells, each, case.members) for each in case.queries]) for case in cases]


@cache
def within_clauses(text: str) -> list[tuple[Case, dict[Any, Region], list[list[Any]]]]:
    """The same; members that hold nothing are another matter."""
    found = []
    for case in cached_clauses(text):
        members = {id: region for id, region in case.members.items() if not region.is_empty}
        found.append((case, members, [within_by_force(case.cells, each, members) for each in case.queries]))
    return found


@pytest.mark.parametrize("attributes", range(1, 7))
def test_members_within_a_box(engine_class: Engine, attributes: int) -> None:
    for case, answers in within_sets(attributes):
        engine = filled(engine_class, case.space, case.members)
        for region, expected in zip(case.queries, answers, strict=True):
            assert list(engine.members_within(region)) == expected, f"{region.to_sql()} among {case}"


@pytest.mark.parametrize("text", MIXED_SPACES)
def test_members_within_a_union(engine_class: Engine, text: str) -> None:
    for case, members, answers in within_clauses(text):
        engine = filled(engine_class, case.space, members)
        for region, expected in zip(case.queries, answers, strict=True):
            assert list(engine.members_within(region)) == expected, f"{region.to_sql()} among {case}"


def test_an_empty_member_is_within_everything(engine_class: Engine) -> None:
    space = ints(4, 4)
    engine = filled(engine_class, space, {"a": space.where("a0 = 3"), "none": Region.nothing(space)})
    assert list(engine.members_within(space.where("a0 < 2"))) == ["none"]


def test_members_within_after_departures(engine_class: Engine) -> None:
    space, pool, cells = churn_pool("boxes")
    random = Random(SEED)
    engine, members = engine_class(space), dict[int, Region]()
    for step in range(200):
        members[step] = random.choice(pool)
        engine.add(step, members[step])
        if step % 3 == 0:
            gone = random.choice(list(members))
            del members[gone]
            engine.discard(gone)
        region = random.choice(pool)
        assert list(engine.members_within(region)) == within_by_force(cells, region, members)


# --- Strings that are recoded -----------------------------------------------------------------------------------


def test_a_batch_looked_at_late(engine_class: Engine) -> None:
    """A verdict of a batch is looked at when members have left, and when an axis is recoded: its witness is of
    the members as they were, or refused."""
    space = Space.parse("name string not null, n int not null 0..99")
    random = Random(SEED)
    for change in ("departure", "recoding"):
        clauses = [
            f"name BETWEEN '{random.choice('abcdef')}' AND '{random.choice('ghijkl')}' AND n < {random.randint(5, 90)}"
            for _ in range(30)
        ]
        regions = {number: space.where(clause) for number, clause in enumerate(clauses)}
        engine = engine_class(space)
        verdicts = engine.add_many(list(regions), list(regions.values()))
        added = list(engine)
        if change == "departure":
            for id in added[::2]:
                engine.discard(id)
        else:
            recode(space)
        for number, verdict in enumerate(verdicts):
            if isinstance(verdict, Uncovered):
                before = {id: regions[id] for id in added if id < number}
                try:
                    assert verdict.witness
                except CallerError:  # "check again for a witness"
                    continue
                assert verify(verdict, regions[number], before)


def test_recoded_strings(engine_class: Engine) -> None:
    """Coordinates change under an engine; its answers may not."""
    space = Space.parse("name string, size int 0..9")
    members = {
        "low": space.where("name < 'm' OR name IS NULL"),
        "m": space.where("name = 'm' AND size < 5"),
        "rest": space.where("name > 'm' AND size IN (1, 2, 3)"),
    }
    engine = filled(engine_class, space, members)
    early = engine.check(space.where("name > 'm'"))
    recode(space)
    asked = {"name <= 'k'": "low", "name = 'm' AND size = 4": "m", "name = 'n' AND size = 2": "rest"}
    for clause, name in asked.items():
        verdict = engine.check(space.where(clause))
        assert verdict == Covered((name,)), clause
        assert verify(verdict, space.where(clause), members)
    for clause in ("name = 'm' AND size = 5", "name LIKE 'm%'", "name = 'maaa'"):
        verdict = engine.check(space.where(clause))
        assert not_covered(engine, verdict), clause
        assert verify(verdict, space.where(clause), members)
    assert list(engine.members_within(space.where("name >= 'm'"))) == ["m", "rest"]
    if isinstance(early, Uncovered):
        try:
            point = early.witness
        except CallerError:
            point = None
        if point is not None:  # in today's coordinates, or refused; never a point of another meaning
            assert verify(Uncovered(point), space.where("name > 'm'"), members)
    engine.discard("low")
    engine.add("low", space.where("name < 'm'"))
    assert not_covered(engine, engine.check(space.where("name IS NULL")))
    engine.check_invariants()


def test_a_ball_among_recoded_strings(engine_class: Engine) -> None:
    """The first to notice that an axis was recoded may be the very member that is being added."""
    space = Space.parse("name string, x double not null, y double not null")
    engine = filled(engine_class, space, {"other": space.where("name = 'other' AND within(1, x, 0, y, 0)")})
    member = space.where("name >= 'b' AND within(5, x, 0, y, 0)")
    recode(space)
    engine.add("ball", member)
    engine.check_invariants()
    asked = space.where("name = 'c' AND within(5, x, 0, y, 0)")
    assert engine.check(asked) == Covered(("ball",))
    touching = engine.check(space.where("name = 'c' AND x = 3D AND y = 4D"))
    assert not isinstance(touching, Uncovered)
    assert engine.check(space.where("name = 'other' AND within(0.5, x, 0, y, 0)"))


def test_recoding_between_the_regions_of_a_batch(engine_class: Engine) -> None:
    space = Space.parse("name string")
    first = [space.where("name < 'm'"), space.where("name >= 'm' AND name < 'x'")]
    engine = engine_class(space)
    engine.add_many(["a", "b"], first)
    recode(space)
    verdicts = engine.add_many(["c", "d"], [space.where("name = 'maa'"), space.where("name >= 'x'")])
    assert [bool(each) for each in verdicts] == [True, False]
    assert verdicts[0] == Covered(("b",))
    engine.check_invariants()
