"""Evidence: `verify` tells right from wrong, a small budget is never wrong, and a grown witness is maximal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest

from helpers.cover_contract import (
    EDGE_SPACES,
    PLANE,
    SEED,
    bad_evidence,
    ball,
    cached_clauses,
    cached_edges,
    cached_sets,
    filled,
    sampled,
)
from helpers.cover_oracles import MIXED_SPACES, Case, Cells, guillotine, ints, region_of
from thatch import Space
from thatch.cover import ENGINES, Covered, ExactEngine, Uncovered, Unproven, grown, verify
from thatch.cover.engine import CoverEngine
from thatch.errors import CallerError
from thatch.region.intervals import Intervals
from thatch.region.region import Region
from thatch.region.term import Term

# --- verify -----------------------------------------------------------------------------------------------------------


def verified_like_the_oracle(case: Case, random: Random) -> None:
    names = list(case.members)
    for region in case.queries:
        for _ in range(3):
            some = tuple(random.sample(names, random.randint(0, len(names))))
            truth = case.cells.covered(region, [case.members[name] for name in some])
            assert verify(Covered(some), region, case.members) == truth, f"{some} for {region.to_sql()} among {case}"
            point = tuple(random.choice(starts) for starts in case.cells.starts)
            truth = case.cells.holds(region, point) and not any(
                case.cells.holds(member, point) for member in case.members.values()
            )
            assert verify(Uncovered(point), region, case.members) == truth, (
                f"{point} for {region.to_sql()} among {case}"
            )
        assert verify(Unproven("no reason"), region, case.members)


def test_verify_tells_right_from_wrong() -> None:
    random = Random(SEED)
    for attributes in range(1, 7):
        for case in cached_sets(attributes)[:50]:
            verified_like_the_oracle(case, random)
    for text in MIXED_SPACES:
        for case in cached_clauses(text)[:40]:
            verified_like_the_oracle(case, random)
    for text in EDGE_SPACES:
        for case in cached_edges(text)[:25]:
            verified_like_the_oracle(case, random)


def test_verify_refuses_strangers() -> None:
    space = ints(5, 5)
    members = {"a": Region.everything(space)}
    region = space.where("a0 = 1")
    assert verify(Covered(("a",)), region, members)
    assert not verify(Covered(("b",)), region, members)
    assert not verify(Covered(("a", "b")), region, members)
    assert not verify(Covered(()), region, members)
    assert not verify(Covered(("a",)), region, {})
    assert verify(Covered(()), Region.nothing(space), {})
    assert not verify(Covered(("b",)), Region.nothing(space), members)


def test_verify_refuses_what_is_no_point() -> None:
    """An unbounded side holds any number; a witness must be a point of the space all the same."""
    space = ints(5, 5)
    for point in ((5, 0), (-1, 0), (0, 10**30), (0,), (), (0, 0, 0)):
        assert not verify(Uncovered(point), Region.everything(space), {}), point
        assert not verify(Uncovered(point), space.where("a0 >= 0 OR a1 = 3"), {}), point


def test_a_verdict_is_true_only_if_covered() -> None:
    assert Covered(("a",)) and Covered(())
    assert not Uncovered((1, 2)) and not Unproven("too far")
    assert Uncovered((1, 2)) == Uncovered((1, 2)) != Uncovered((1, 3))
    assert Uncovered((1, 2)).witness == (1, 2)
    asked: list[int] = []

    def complete() -> Sequence[Any]:
        asked.append(1)
        return [np.int64(3), 4]

    late = Uncovered(complete=complete)
    assert not late and not asked and "3" not in repr(late)
    assert late.witness == (3, 4) == late.witness and asked == [1]
    assert all(type(each) is int for each in late.witness)


# --- Options of exact -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [{"nodes_max": 1}, {"nodes_max": 3}, {"tests_max": 1}, {"tests_max": 12}])
def test_a_small_budget_is_unproven_and_never_wrong(budget: dict[str, int]) -> None:
    found: dict[type, int] = {}
    for case in [*cached_sets(2)[:60], *cached_sets(4)[:60], *cached_clauses(MIXED_SPACES[2])[:60]]:
        engine = ENGINES["exact"](case.space, **budget)
        for id, region in case.members.items():
            engine.add(id, region)
        for region, covered in zip(case.queries, case.covered, strict=True):
            verdict = engine.check(region)
            found[type(verdict)] = found.get(type(verdict), 0) + 1
            assert isinstance(verdict, Unproven) or isinstance(verdict, Covered) == covered
            assert not bad_evidence(engine, verdict, region, case.members, case.cells)
    assert all(found[kind] > 10 for kind in (Covered, Uncovered, Unproven))


@pytest.mark.parametrize("overlap", [-1, 0, 5])
def test_two_side_by_side_need_no_budget(overlap: int) -> None:
    """Among many others, across every attribute, out to the ends of 64 bits; with a gap of one they do not cover."""
    random, d = Random(SEED), 4
    space = Space.parse(", ".join(f"x{axis} int not null" for axis in range(d)))
    least, most = (side[0].tolist() for side in (space.low, space.high))
    for axis in range(d):
        engine = ExactEngine(space, nodes_max=0, tests_max=0)
        middle = random.randrange(-(2**62), 2**62)
        below, above = most.copy(), least.copy()
        below[axis], above[axis] = middle + overlap, middle + 1
        members: dict[int | str, Region] = {
            number: region_of(space, *random_corners(random, least, most)) for number in range(200)
        }
        members |= {"below": region_of(space, least, below), "above": region_of(space, above, most)}
        order = list(members)
        random.shuffle(order)
        for id in order:
            engine.add(id, members[id])
        verdict = engine.check(Region.everything(space))
        assert isinstance(verdict, Covered) == (overlap >= 0)
        assert not isinstance(verdict, Covered) or set(verdict.certificate) == {"below", "above"}


def random_corners(random: Random, least: list[int], most: list[int]) -> tuple[list[int], list[int]]:
    """A box that is not the whole of any attribute."""
    ends = [sorted(random.randrange(low + 1, high) for _ in range(2)) for low, high in zip(least, most, strict=True)]
    return [low for low, _ in ends], [high for _, high in ends]


def test_a_small_budget_among_balls() -> None:
    """One term past the budget, another one uncovered, and a ball among the members."""
    space = Space.parse("x int not null 0..99, y int not null 0..99, z int not null 0..99")
    random = Random(SEED)
    for nodes_max in (1, 2, 5, 20):
        engine = ExactEngine(space, nodes_max=nodes_max)
        members: dict[int | str, Region] = {"ball": space.where("within(3, x, 90, y, 90)")}
        for position, box in enumerate(guillotine(random, ((0, 0, 0), (49, 99, 99)), 60)):
            members[position] = region_of(space, *box)
        for id, region in members.items():
            engine.add(id, region)
        region = space.where("x < 50 OR (x > 60 AND y > 60)")
        verdict = engine.check(region)
        assert not isinstance(verdict, Covered)
        assert verify(verdict, region, members)


# --- grown ------------------------------------------------------------------------------------------------------------


def steps_outward(box: Region) -> Iterable[Region]:
    """The slabs, one coordinate thick, that would be added if the box were widened in one direction."""
    space = box.space
    (low,), (high,) = box.boxes()
    for axis, attribute in enumerate(space.attributes):
        for at in (int(low[axis]) - 1, int(high[axis]) + 1):
            if attribute.low <= at <= attribute.last:
                ends = [[int(a), int(b)] for a, b in zip(low, high, strict=True)]
                ends[axis] = [at, at]
                yield Region(space, [Term(tuple((i, Intervals.between(*pair)) for i, pair in enumerate(ends)))])


def grown_is_maximal(case: Case, engine: CoverEngine) -> int:
    grown_boxes = 0
    for region, covered in zip(case.queries, case.covered, strict=True):
        verdict = engine.check(region)
        if covered or not isinstance(verdict, Uncovered):
            continue
        members = list(case.members.values())
        box = grown(verdict.witness, region, members)
        assert box.contains_point(verdict.witness)
        assert sum(term.box_count() for term in box.terms) == 1 and not box.has_balls
        steps = list(steps_outward(box))
        cells = Cells(case.space, [region, box, *members, *steps])
        where = f"{box.to_sql()} grown from {verdict.witness} in {region.to_sql()} among {case}"
        free = cells.mask(region) & ~cells.union(members)
        assert not (cells.mask(box) & ~free).any(), where
        for step in steps:
            assert (cells.mask(step) & ~free).any(), f"{where}: could grow by {step.to_sql()}"
        grown_boxes += 1
    return grown_boxes


def test_a_grown_witness_cannot_be_widened() -> None:
    engine_class = ENGINES["exact"]
    count = 0
    for attributes in range(1, 7):
        for case in cached_sets(attributes)[:50]:
            count += grown_is_maximal(case, filled(engine_class, case.space, case.members))
    for text in EDGE_SPACES:
        for case in cached_edges(text)[:15]:
            count += grown_is_maximal(case, filled(engine_class, case.space, case.members))
    assert count > 200


def test_a_grown_witness_of_a_union_cannot_be_widened() -> None:
    """Also where terms of the region touch: the box may reach from one into the other."""
    engine_class = ENGINES["exact"]
    count = sum(
        grown_is_maximal(case, filled(engine_class, case.space, case.members))
        for text in MIXED_SPACES
        for case in cached_clauses(text)[:50]
    )
    assert count > 50


def test_a_grown_witness_among_balls() -> None:
    space = Space.parse(PLANE)
    region = space.where("x BETWEEN -20D AND 20D AND y BETWEEN -20D AND 20D")
    members = [space.where(ball(5.0, 0.0, 0.0)), space.where("x > 10D")]
    random = Random(SEED)
    columns = sampled(space, [(5.0, 0.0, 0.0), (4.0, -8.0, 3.0), (7.5, 2.0, 2.0)], random)
    for event in ({"x": -8.0, "y": 3.0, "n": 5}, {"x": 4.0, "y": 4.0, "n": 0}, {"x": 0.0, "y": 5.5, "n": 100}):
        box = grown(space.encode(event), region, members)
        assert box.contains(event) and not box.has_balls
        inside = box.contains_points(columns)
        assert not (inside & ~region.contains_points(columns)).any()
        for member in members:
            assert not (inside & member.contains_points(columns)).any()
    round_region = space.where(ball(9.0, 1.0, 1.0))
    box = grown(space.encode({"x": 1.0, "y": 1.0, "n": 7}), round_region, [space.where("n = 9")])
    columns = sampled(space, [(9.0, 1.0, 1.0)], random)
    assert not (box.contains_points(columns) & ~round_region.contains_points(columns)).any()
    assert not (box & space.where("n = 9")).terms


def test_grown_refuses_a_point_outside() -> None:
    space = ints(5, 5)
    with pytest.raises(CallerError):
        grown((4, 4), space.where("a0 < 3"), [])
