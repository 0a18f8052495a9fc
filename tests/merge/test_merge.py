"""Merging and un-merging, against all points of small spaces: nothing is lost, and no more is added than allowed."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from helpers.cover_oracles import (
    MIXED_SPACES,
    Box,
    Cells,
    clause_pool,
    guillotine,
    ints,
    many_boxes,
    recode,
    region_of,
)
from helpers.strategies import boxes_of, examples, soaked
from thatch import Space
from thatch.cover.verdict import is_covered
from thatch.errors import CallerError, UnknownSubscription
from thatch.merge.merge import MergeChange, Merger, MergeSet, merged
from thatch.region.ball import Ball
from thatch.region.intervals import Intervals
from thatch.region.region import Region
from thatch.region.term import Term

SIZES = (6, 5, 4)
SPACE = ints(*SIZES)
POINTS = np.array(list(product(*map(range, SIZES))), np.int64)
COLUMNS = [np.ascontiguousarray(column) for column in POINTS.T]
BUDGETS = [0.0, 0.1, 0.4, 1.0, math.inf]
Bools = NDArray[np.bool_]


def held(boxes: list[Box]) -> Bools:
    """Which points of the space a union of boxes holds."""
    found = np.zeros(len(POINTS), np.bool_)
    for low, high in boxes:
        found |= ((np.array(low) <= POINTS) & (np.array(high) >= POINTS)).all(axis=1)
    return found


def merged_points(regions: Any) -> Bools:
    found = np.zeros(len(POINTS), np.bool_)
    for region in regions:
        found |= region.contains_points(COLUMNS)
    return found


def regions_of(boxes: dict[Any, Box]) -> dict[Any, Region]:
    return {id: region_of(SPACE, *box) for id, box in boxes.items()}


def check_mergers(mergers: list[Merger], boxes: dict[Any, Box], budget: float) -> None:
    """Each member in one merger that holds it, and what that adds is at most what it says, and at most the budget."""
    assert sorted(id for merger in mergers for id in merger.members) == sorted(boxes)
    for merger in mergers:
        wanted = held([boxes[id] for id in merger.members])
        merged_holds = merged_points([merger.region])
        assert not (wanted & ~merged_holds).any()
        true = (merged_holds.sum() - wanted.sum()) / wanted.sum()
        assert true <= merger.added * (1 + 1e-9) + 1e-12 and merger.added <= budget
        if budget == 0:
            assert merger.added == 0.0
            assert (merged_holds == wanted).all()
        merger.region.check_invariants()


# --- All at once -----------------------------------------------------------------------------------------------------


@given(st.lists(boxes_of(SIZES), max_size=14), st.sampled_from(BUDGETS))
@examples(soaked(40, 3_000))
def test_holds_all_members_within_the_budget(drawn: list[Box], budget: float) -> None:
    boxes: dict[Any, Box] = dict(enumerate(drawn))
    mergers = merged(regions_of(boxes), SPACE, budget)
    check_mergers(mergers, boxes, budget)
    firsts = [merger.members[0] for merger in mergers]
    assert firsts == sorted(firsts) and all(list(each.members) == sorted(each.members) for each in mergers)
    if budget == math.inf:
        assert len(mergers) <= 1
    for number, one in enumerate(mergers):  # nothing is left that would have merged perfectly
        for other in mergers[:number]:
            assert budget > 0 or len((one.region | other.region).terms) == 2


@pytest.mark.parametrize("seed", range(3))
def test_a_partition_into_lines_becomes_one(seed: int) -> None:
    """Tiles of a grid, in any order: lines merge to slabs, slabs to all."""
    space = ints(1_000, 1_000)
    tiles = [((x * 50, y * 50), (x * 50 + 49, y * 50 + 49)) for x in range(20) for y in range(20)]
    Random(seed).shuffle(tiles)
    (merger,) = merged({number: region_of(space, *tile) for number, tile in enumerate(tiles)}, space)
    assert merger.region == Region.everything(space) and merger.members == tuple(range(400))
    assert merger.added == 0.0


def sql_of(space: Space, *clauses: str, budget: float = 0.0, **options: Any) -> list[str]:
    regions = {number: space.where(clause) for number, clause in enumerate(clauses)}
    return [merger.region.to_sql() for merger in merged(regions, space, budget, **options)]


def test_perfect_mergers() -> None:
    space = Space.parse("x int not null 0..99, y int 0..99, name string")
    one = ["x BETWEEN 1 AND 3 AND y < 5", "x BETWEEN 4 AND 9 AND y < 5"]  # they touch
    assert sql_of(space, *one) == ["x BETWEEN 1 AND 9 AND y <= 4"]
    apart = ["x BETWEEN 1 AND 3 AND y < 5", "x BETWEEN 6 AND 9 AND y < 5"]
    assert sql_of(space, *apart) == ["(x BETWEEN 1 AND 3 OR x BETWEEN 6 AND 9) AND y <= 4"]
    inside = ["x = 2 AND y = 3 AND name = 'a'", "x < 5 AND y < 5"]
    assert sql_of(space, *inside) == ["x <= 4 AND y <= 4"]
    assert sql_of(space, "name IN ('a', 'c')", "name = 'b'", "name IS NULL") == [
        space.where("name IN ('a', 'b', 'c') OR name IS NULL").to_sql()
    ]
    assert sql_of(space, "y IS NULL AND x = 1", "y IS NOT NULL AND x = 1") == ["x = 1"]
    assert len(sql_of(space, "x = 1 AND y = 1", "x = 2 AND y = 2")) == 2
    several = ["x = 1 AND y = 1 OR name = 'a'", "x = 2 AND y = 1 OR name = 'a'"]  # as many terms as before
    assert sql_of(space, *several) == [space.where("x IN (1, 2) AND y = 1 OR name = 'a'").to_sql()]
    assert len(sql_of(space, "x = 1 AND y = 1 OR name = 'a'", "x = 2 AND y = 2")) == 2
    assert sql_of(space, "1 = 0", "x = 1") == ["x = 1"] and sql_of(space, "1 = 0") == []


def test_sets_have_a_largest_size() -> None:
    space = Space.parse("name string not null, x int not null 0..9")
    clauses = [f"name = '{number:03}' AND x < 5" for number in range(100)]
    assert len(sql_of(space, *clauses)) == 1
    mergers = merged({number: space.where(each) for number, each in enumerate(clauses)}, space, intervals_max=16)
    sizes = [len(each.region.terms[0].sides[0][1]) for each in mergers]
    assert 100 / 16 <= len(mergers) < 100 / 8 and max(sizes) <= 16
    watchlist = "name IN ({}) AND x < 5".format(", ".join(f"'{number:03}'" for number in range(50)))
    assert len(sql_of(space, watchlist, "name = '007' AND x < 5", "name = '107' AND x < 5", intervals_max=16)) == 2


def test_doubles_count_by_value() -> None:
    """In coordinates, 0..1 is a hundred times as wide as 1..1000."""
    space = Space.parse("x double not null 0..1000, y int not null 0..99")
    clauses = ["x < 1 AND y < 20", "x >= 1 AND y < 10"]
    regions = {number: space.where(clause) for number, clause in enumerate(clauses)}
    (merger,) = merged(regions, space, budget=1.0)
    union = (regions[0] | regions[1]).volume()
    assert merger.added == pytest.approx((space.where("y < 20").volume() - union) / union)
    assert merger.added > 0.9 and len(merged(regions, space, budget=0.9)) == 2
    wide = ["x < 1 AND y < 10", "x >= 1 AND y < 20"]
    assert merged({n: space.where(each) for n, each in enumerate(wide)}, space, budget=0.001)[0].added < 0.001


@pytest.mark.parametrize("clauses", [
    ["x > 5 AND y < 3", "x > 7 AND y < 4"],
    ["x < 5", "y > 3D"],
    ["x = 5D AND y < 3", "x = 5D AND y BETWEEN 4 AND 6"],
    ["x = 5D AND y = 3D", "x = 6D AND y = 4D"],
    ["x = 'NaN'", "x > 1e308 AND y IS NULL"],
    ["x IS NULL AND y < 3", "x = '-Infinity' AND y < 4"],
    ["x IS NULL", "y IS NULL"],
])  # fmt: skip
def test_unbounded_doubles_never_give_nan(clauses: list[str]) -> None:
    space = Space.parse("x double, y double")
    regions = {number: space.where(clause) for number, clause in enumerate(clauses)}
    for budget in BUDGETS:
        mergers = merged(regions, space, budget)
        assert all(0.0 <= merger.added <= budget for merger in mergers)
        assert all(is_covered(region, [each.region for each in mergers]) for region in regions.values())
    assert len(mergers) == 1


def test_single_doubles_are_counted() -> None:
    space = Space.parse("x double not null, y int not null 0..9")
    points = {0: space.where("x IN (1, 2) AND y < 5"), 1: space.where("x = 1D AND y < 6")}
    (merger,) = merged(points, space, 1.0)
    assert merger.added == pytest.approx(12 / 11 - 1)


def test_balls_stay_unless_nothing_is_bounded() -> None:
    space = Space.parse("x double not null, y double not null, z int not null 0..9")
    ball, wider, other = (f"within({r}, x, {c}, y, 0)" for r, c in ((1, 0), (2, 0), (1, 1)))
    assert len(sql_of(space, ball, wider)) == 1
    assert len(sql_of(space, ball, other, budget=1e6)) == 2
    assert len(sql_of(space, f"{ball} AND z < 3", f"{ball} AND z >= 3")) == 1
    assert len(sql_of(space, ball, "x BETWEEN -2 AND 2 AND y BETWEEN -2 AND 2", "z = 3")) == 3
    merging = MergeSet(space, 0.5)
    for number, clause in enumerate([ball, other, wider, "x > 0", f"{other} AND z = 2"]):
        merging.add(number, space.where(clause))
        merging.check_invariants()


# --- Coming and going ------------------------------------------------------------------------------------------------


class Neighbour:
    """A receiver that gets one message at a time, and must never miss what was wanted all the while."""

    def __init__(self) -> None:
        self.received: dict[int, Region] = {}

    def take(self, change: MergeChange, wanted: Bools) -> None:
        for key, region in change.forward.items():
            assert key not in self.received or self.received[key] != region, "sent again for nothing"
            self.received[key] = region
            assert not (wanted & ~merged_points(self.received.values())).any()
        for key in change.withdraw:
            del self.received[key]
            assert not (wanted & ~merged_points(self.received.values())).any()


Step = tuple[list[Box], list[int]]
steps = st.lists(
    st.tuples(st.lists(boxes_of(SIZES), max_size=3), st.lists(st.integers(0, 50), max_size=2)), max_size=14
)


@given(steps, st.sampled_from(BUDGETS))
@examples(soaked(40, 3_000))
def test_any_order_of_coming_and_going(drawn: list[Step], budget: float) -> None:
    merging, neighbour = MergeSet(SPACE, budget), Neighbour()
    boxes: dict[Any, Box] = {}
    for number, (coming, leaving) in enumerate(drawn):
        gone = {list(boxes)[place % len(boxes)] for place in leaving} if boxes else set()
        fresh = {f"{number}.{place}": box for place, box in enumerate(coming)}
        if gone and fresh and number % 3 == 0:  # one gets another region
            id = min(gone)
            fresh[id] = fresh.pop(next(iter(fresh)))
        staying = {id: box for id, box in boxes.items() if id not in gone}
        change = merging.update(regions_of(fresh), sorted(gone))
        neighbour.take(change, held(list(staying.values())))
        boxes = staying | fresh
        assert neighbour.received == merging.regions
        check_mergers(list(merging.mergers.values()), boxes, budget)
        merging.check_invariants()
        assert list(merging) == list(boxes) and len(merging) == len(boxes)
        for id in boxes:
            key = merging.key_of(id)
            assert key is not None and id in merging.merger(key).members
        if budget == 0:
            assert (merged_points(merging.regions.values()) == held(list(boxes.values()))).all()
    for id in Random(len(drawn)).sample(sorted(boxes), len(boxes)):
        del boxes[id]
        neighbour.take(merging.discard(id), held(list(boxes.values())))
        check_mergers(list(merging.mergers.values()), boxes, budget)
    assert not merging.regions and not neighbour.received and not merging._signed and not merging._shapes


def test_unmerging_gives_back_the_rest() -> None:
    space = ints(100, 100)
    merging = MergeSet(space)
    for number in range(10):
        merging.add(number, region_of(space, (number * 10, 0), (number * 10 + 9, 9)))
    assert list(merging.regions) == [0]
    change = merging.discard(4)
    assert change.withdraw == [] and list(change.forward) == [0]
    assert change.forward[0].to_sql() == "(a0 <= 39 OR a0 >= 50) AND a1 <= 9"
    assert (
        merging.add("same", region_of(space, (0, 0), (9, 9))) == MergeChange()
    )  # duplicates and insiders cost nothing
    assert merging.add("inside", region_of(space, (3, 3), (4, 4))) == MergeChange()
    assert merging.discard(0) == MergeChange()
    assert merging.discard("inside") == MergeChange() and merging.key_of("same") == 0
    assert list(merging.discard("same").forward) == [0]


def test_one_that_carried_others() -> None:
    space = ints(100, 100)
    merging = MergeSet(space)
    for number in range(5):
        merging.add(number, region_of(space, (number * 11, number * 11), (number * 11 + 5, number * 11 + 5)))
    change = merging.add("all", region_of(space, (0, 0), (80, 80)))
    assert len(merging.regions) == 1 and len(change.withdraw) == 4
    change = merging.discard("all")
    assert len(change.forward) == 5 and change.withdraw == []
    assert list(change.forward)[-1] in merging.regions and len(merging.regions) == 5
    merging.check_invariants()


def test_refuses() -> None:
    merging = MergeSet(SPACE)
    merging.add("a", Region.everything(SPACE))
    with pytest.raises(CallerError, match="a member already"):
        merging.add("a", Region.everything(SPACE))
    with pytest.raises(UnknownSubscription):
        merging.discard("b")
    with pytest.raises(CallerError, match="different spaces"):
        merging.add("b", Region.everything(ints(3)))
    assert list(merging) == ["a"]
    for budget in (-0.1, math.nan):
        with pytest.raises(CallerError, match="budget"):
            MergeSet(SPACE, budget)
    with pytest.raises(CallerError, match="interval"):
        MergeSet(SPACE, intervals_max=0)


# --- Clauses ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", MIXED_SPACES)
@pytest.mark.parametrize("budget", [0.0, 0.5])
def test_clauses_with_null_sets_and_strings(text: str, budget: float) -> None:
    space, pool = clause_pool(text, 60, seed=8)
    random = Random(9)
    merging = MergeSet(space, budget)
    wanted: dict[Any, Region] = {}
    for number in range(soaked(60, 600)):
        if wanted and random.random() < 0.4:
            id = random.choice(list(wanted))
            del wanted[id]
            merging.discard(id)
        else:
            wanted[number] = random.choice(pool)
            merging.add(number, wanted[number])
        if number % 20 == 7 and space.label_codes:
            recode(space)
        if number % 3 == 0:
            merging.check_invariants()
            cells = Cells(space, [*wanted.values(), *merging.regions.values()])
            merged_holds, union = cells.union(merging.regions.values()), cells.union(wanted.values())
            assert not (union & ~merged_holds).any() and (budget > 0 or (merged_holds == union).all())
            members = [id for merger in merging.mergers.values() for id in merger.members]
            assert sorted(members) == sorted(id for id, region in wanted.items() if not region.is_empty)


# --- Sampled events --------------------------------------------------------------------------------------------------


@given(st.lists(boxes_of(SIZES), max_size=12), st.sampled_from(BUDGETS), st.integers(0, 9))
@examples(soaked(40, 1_000))
def test_sampled_events_as_cost(drawn: list[Box], budget: float, seed: int) -> None:
    events = POINTS[np.random.default_rng(seed).integers(0, len(POINTS), 40)]
    sample = {f"a{axis}": events[:, axis] for axis in range(len(SIZES))}
    boxes: dict[Any, Box] = dict(enumerate(drawn))
    for merger in merged(regions_of(boxes), SPACE, budget, sample):
        merged_holds = merger.region.contains_batch(sample)
        wanted = np.zeros(len(events), np.bool_)
        for id in merger.members:
            wanted |= ((np.array(boxes[id][0]) <= events) & (np.array(boxes[id][1]) >= events)).all(axis=1)
            assert is_covered(region_of(SPACE, *boxes[id]), [merger.region])
        more = (merged_holds & ~wanted).sum()
        assert more == 0 or (more <= budget * wanted.sum() and merger.added <= budget)


def test_events_decide_where_volume_would_not() -> None:
    space = Space.parse("x double not null 0..100, y double not null 0..100")
    regions = {
        "a": space.where("x < 10 AND y < 10"),
        "b": space.where("x BETWEEN 40 AND 50 AND y < 9"),  # far, but nothing happens in between
        "c": space.where("x BETWEEN 11 AND 20 AND y BETWEEN 11 AND 20"),  # near, but everything does
    }
    sample = {"x": [5.0] * 10 + [45.0] * 10 + [15.0] * 9 + [15.0] * 90, "y": [5.0] * 20 + [15.0] * 9 + [10.5] * 90}
    by_events = merged(regions, space, 0.5, {"x": np.array(sample["x"]), "y": np.array(sample["y"])})
    assert [each.members for each in by_events] == [("a", "b"), ("c",)] and by_events[0].added == 0.0
    by_volume = merged(regions, space, 1.3)
    assert [each.members for each in by_volume] == [("a", "c"), ("b",)]


# --- Work and determinism --------------------------------------------------------------------------------------------


@pytest.mark.long
def test_work_for_ten_thousand() -> None:
    space, regions = many_boxes(10_000)
    merging = MergeSet(space, 0.2)
    merging.update(regions)
    assert len(merging.regions) < 9_000
    assert merging.passes < 8 * len(regions) and merging.tries < 40 * len(regions)
    before = merging.passes, merging.tries
    for number in range(0, 10_000, 250):
        merging.discard(number)
        merging.add(number, regions[number])
    assert merging.passes - before[0] < 40 * 40 and merging.tries - before[1] < 40 * 200


def test_terms_that_never_merge_are_not_tried_for_ever() -> None:
    space = Space.parse("x int not null, y int not null, z int not null")
    regions = {
        number: Region(
            space,
            [
                Term(((0, Intervals.between(number, number)), (1, Intervals.between(1, 1)))),
                Term(((1, Intervals.between(number + 9, number + 9)), (2, Intervals.between(number, number)))),
            ],
        )
        for number in range(0, 800, 2)
    }
    merging = MergeSet(space)
    merging.update(regions)
    assert len(merging.regions) == len(regions) and merging.tries < 40 * len(regions)


def test_watchlists_take_no_pairwise_look() -> None:
    """Boxes around sets lie inside one another; the sets do not."""
    space = Space.parse("x int not null 0..9999, y int not null 0..9")
    random = Random(6)
    regions = {}
    for number in range(100):
        side = Intervals.of((at, at) for at in random.sample(range(10_000), 60))
        regions[number] = Region(space, [Term(((0, side), (1, Intervals.between(0, number % 9))))])
    merging = MergeSet(space, 0.1, intervals_max=64)
    merging.update(regions)
    assert merging.tries < 80 * len(regions)


def test_many_balls_take_no_pairwise_look() -> None:
    space = Space.parse("x double not null, y double not null")
    random = Random(5)
    regions = {}
    for number in range(500):
        ball = Ball((0, 1), (random.uniform(0, 1_000), random.uniform(0, 1_000)), random.uniform(1, 20))
        regions[number] = Region(space, [Term((), (ball,))])
    merging = MergeSet(space, 0.5)
    merging.update(regions)
    assert merging.tries < 2 * len(regions) and len(merging.regions) > 400
    merging.check_invariants()


def test_a_line_that_grew_one_by_one() -> None:
    """The worst tree is a chain; once taken apart it is flat."""
    space = ints(100_000)
    merging = MergeSet(space)
    for number in range(500):
        merging.add(number, region_of(space, (2 * number,), (2 * number + 1,)))
    merging.discard(0)
    before = merging.tries
    for number in range(1, 500, 5):
        merging.discard(number)
    assert merging.tries - before < 100 * 100
    assert sum(len(region.terms[0].sides[0][1]) for region in merging.regions.values()) == 100


@pytest.mark.long
def test_the_same_whatever_the_hash_seed() -> None:
    code = (
        "from helpers.cover_oracles import many_boxes; from thatch.merge import merged;"
        "space, regions = many_boxes(300);"
        "print([(m.members, m.region.to_sql(), m.added) for m in merged(regions, space, 0.3)])"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": ":".join(sys.path)}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, text=True, check=True)
    space, regions = many_boxes(300)
    here = str([(m.members, m.region.to_sql(), m.added) for m in merged(regions, space, 0.3)])  # a seed of its own
    assert run.stdout.strip() == here and len(here) > 1_000


def test_guillotine_partitions_shrink() -> None:
    """A partition cut by cut can be put together again in part: every merger saves a region, and nothing is added."""
    space = ints(64, 64, 64)
    for seed in range(5):
        boxes = guillotine(Random(seed), ((0, 0, 0), (63, 63, 63)), 60)
        regions = {number: region_of(space, *box) for number, box in enumerate(boxes)}
        mergers = merged(regions, space)
        assert len(mergers) < len(boxes) and sum(each.region.count() for each in mergers) == 64**3
        (all_of_it,) = merged(regions, space, math.inf)
        assert all_of_it.region == Region.everything(space)
