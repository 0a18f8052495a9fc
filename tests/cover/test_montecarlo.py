"""The conflict table, MCS and guessing: the paper's tables, its propositions against brute force, and where it errs."""

from __future__ import annotations

import math
from itertools import product
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.cover_oracles import Box, arrays, ints, pinwheel, random_box, region_of, whole
from helpers.strategies import examples
from thatch import Space, covers
from thatch.cover import ActiveSet, Covered, ExactEngine, Likely, MonteCarloEngine, Uncovered, Unproven, verify
from thatch.cover.conflict import ConflictTable, find_point
from thatch.errors import CallerError

SEED = 20240229
PLANE = Space.parse("x1 int not null 0..2000, x2 int not null 0..2000")


def table_of(asked: Box, boxes: list[Box]) -> ConflictTable:
    low, high = arrays(boxes) if boxes else (np.zeros((0, len(asked[0])), np.int64),) * 2
    return ConflictTable(np.array(asked[0]), np.array(asked[1]), low, high)


def inside(point: tuple[int, ...], box: Box) -> bool:
    return all(low <= at <= high for low, at, high in zip(box[0], point, box[1], strict=True))


def points(box: Box) -> list[tuple[int, ...]]:
    return list(product(*(range(a, b + 1) for a, b in zip(*box, strict=True))))


def uncovered(asked: Box, boxes: list[Box]) -> list[tuple[int, ...]]:
    return [point for point in points(asked) if not any(inside(point, box) for box in boxes)]


# --- The paper's tables ----------------------------------------------------------------------------------------------

S, S1, S2 = ((830, 1003), (870, 1006)), ((820, 1001), (850, 1007)), ((840, 1002), (880, 1009))
S3 = ((810, 1004), (890, 1005))


def test_table_1_bicycles() -> None:
    space = Space.parse(
        "bID int not null, size int not null, brand string not null, rpID int not null, date timestamp not null"
    )
    subscriptions = {
        "s1": "bID BETWEEN 1000 AND 1999 AND size = 19 AND brand = 'X' AND rpID BETWEEN 820 AND 840 "
        "AND date BETWEEN '2006-03-31 16:00:00' AND '2006-03-31 20:00:00'",
        "s2": "bID BETWEEN 1 AND 1999 AND size BETWEEN 17 AND 19 AND rpID BETWEEN 10 AND 12 "
        "AND date BETWEEN '2006-03-31 12:00:00' AND '2006-03-31 14:00:00'",
    }
    from datetime import datetime

    p1 = {"bID": 1036, "size": 19, "brand": "X", "rpID": 825, "date": datetime(2006, 3, 31, 18, 23, 5)}
    p2 = {"bID": 1035, "size": 17, "brand": "Y", "rpID": 11, "date": datetime(2006, 3, 31, 12, 23, 5)}
    matches = [[id for id, clause in subscriptions.items() if space.where(clause).contains(each)] for each in (p1, p2)]
    assert matches == [["s1"], ["s2"]]


def test_table_2_imprecise_events_are_boxes() -> None:
    """`*.service.org` is a range of strings: an event that is a box may match if it meets the subscription."""
    space = Space.parse("cycles int not null, disk int not null, memory double not null, service string not null")
    one = space.where(
        "cycles BETWEEN 3000 AND 3500 AND disk BETWEEN 40 AND 50 AND memory = 1 AND service = 'org.service.a'"
    )
    p1 = space.where("cycles = 3500 AND disk = 45 AND memory = 1 AND service LIKE 'org.service.%'")
    p2 = space.where("cycles = 1035 AND disk = 45 AND memory = 0.5 AND service LIKE 'org.%'")
    assert not (one & p1).is_empty and (one & p2).is_empty


def test_tables_3_and_5_covered_by_two() -> None:
    table = table_of(S, [S1, S2])
    assert table.defined.tolist() == [[False, True, False, False], [True, False, False, False]]  # x1 > 850; x1 < 840
    assert table.conflict_free() == [False, False] and table.minimized() == ([0, 1], [])
    assert not table.has_polyhedron_witness() and table.witness() is None
    engine = MonteCarloEngine(PLANE, delta=1e-10)
    for id, box in (("s1", S1), ("s2", S2)):
        engine.add(id, region_of(PLANE, *box))
    verdict = engine.check(region_of(PLANE, *S))
    assert isinstance(verdict, Likely) and verdict.certificate == ("s1", "s2")
    assert verify(verdict, region_of(PLANE, *S), {"s1": region_of(PLANE, *S1), "s2": region_of(PLANE, *S2)})
    assert table.rho() == pytest.approx(10 / 41)  # the least part of x1 that is left is 830..839, of x2 all
    assert verdict.trials_asked == verdict.trials_run == math.ceil(math.log(1e-10) / math.log1p(-10 / 41))
    assert verdict.delta == pytest.approx((1 - 10 / 41) ** verdict.trials_run) and verdict.delta <= 1e-10


def test_table_6_a_witness_between() -> None:
    asked, one, two = ((830, 1003), (890, 1006)), ((820, 1002), (850, 1009)), ((840, 1001), (870, 1007))
    table = table_of(asked, [one, two])
    assert table.witness() == ([871, 1003], [890, 1006])
    engine = MonteCarloEngine(PLANE)
    members = {"s1": region_of(PLANE, *one), "s2": region_of(PLANE, *two)}
    for id, region in members.items():
        engine.add(id, region)
    verdict = engine.check(region_of(PLANE, *asked))
    assert isinstance(verdict, Uncovered) and 871 <= verdict.witness[0] <= 890
    assert verify(verdict, region_of(PLANE, *asked), members)


def test_tables_7_and_8_what_is_conflict_free_goes_first() -> None:
    table = table_of(S, [S1, S2, S3])
    assert table.counts == [1, 1, 2]
    assert table.conflict_free() == [False, False, True]
    assert table.minimized() == ([0, 1], [2])  # then t1 = t2 = 1 < 2: stop


def test_corollaries_1_and_2() -> None:
    table = table_of(S, [S1, ((800, 1000), (900, 1010)), ((840, 1004), (850, 1005))])
    assert table.covering_rows() == [1] and table.covered_rows() == [2]
    engine = MonteCarloEngine(PLANE)
    engine.add("narrow", region_of(PLANE, *S1))
    engine.add("wide", region_of(PLANE, (800, 1000), (900, 1010)))
    assert engine.check(region_of(PLANE, *S)) == Covered(("wide",))  # for certain, not Likely


# --- Propositions, against all points --------------------------------------------------------------------------------


def random_table(random: Random) -> tuple[Box, list[Box]]:
    space = ints(*random.choice([(9,), (6, 6), (5, 4, 4)]))
    asked = random_box(random, whole(space))
    return asked, [random_box(random, whole(space)) for _ in range(random.randint(0, 7))]


def test_what_the_table_shows_is_so() -> None:
    """Corollary 1, corollary 3, MCS as an exact reduction, and witnesses; also of boxes that do not meet."""
    seen = dict.fromkeys(("one", "counting", "empty", "reduced", "covered", "bound"), 0)
    for number in range(3_000):
        asked, boxes = random_table(Random(f"{SEED}/{number}"))
        table, left = table_of(asked, boxes), uncovered(asked, boxes)
        kept, removed = table.minimized()
        assert sorted(kept + removed) == list(range(len(boxes)))
        assert bool(uncovered(asked, [boxes[row] for row in kept])) == bool(left)  # exact
        if table.covering_rows():
            assert not left
            seen["one"] += 1
        if table.has_polyhedron_witness():
            assert left
            seen["counting"] += 1
        if not kept:
            assert left
            seen["empty"] += 1
        witness = table.witness()
        assert (witness is not None) == (not kept or table.has_polyhedron_witness())
        if witness is not None:
            assert set(points((tuple(witness[0]), tuple(witness[1])))) <= set(left) and witness[0] <= witness[1]
        seen["reduced"] += bool(kept and removed)
        seen["covered"] += not left
        if left:
            seen["bound"] += table.rho() > len(left) / len(points(asked))
    assert min(seen.values()) > 30, seen  # the paper's lower bound is above the truth at times


def test_conflicts_by_definition() -> None:
    """Conflict-free: no defined entry of another row leaves nothing of s together with it."""
    for number in range(800):
        asked, boxes = random_table(Random(f"{SEED}/conflicts/{number}"))
        parts: list[list[Box]] = []
        for box in boxes:
            own = []
            for axis in range(len(asked[0])):
                for side in range(2):
                    low, high = list(asked[0]), list(asked[1])
                    if side == 0:
                        high[axis] = min(high[axis], box[0][axis] - 1)
                    else:
                        low[axis] = max(low[axis], box[1][axis] + 1)
                    if low[axis] <= high[axis]:
                        own.append((tuple(low), tuple(high)))
            parts.append(own)

        def meet(one: Box, other: Box) -> bool:
            low, high = map(max, one[0], other[0]), map(min, one[1], other[1])
            return all(a <= b for a, b in zip(low, high, strict=True))

        expected = [
            any(all(meet(mine, yours) for other in parts if other is not own for yours in other) for mine in own)
            for own in parts
        ]
        table = table_of(asked, boxes)
        assert table.conflict_free() == expected
        assert table.counts == [len(own) for own in parts]


@examples(200)
@given(data=st.data())
def test_uncovered_is_always_right(data: st.DataObject) -> None:
    """With any step switched off; a certain Covered too. What cannot be decided without guessing is Unproven."""
    random = Random(data.draw(st.integers(0, 2**32)))
    sizes = random.choice([(9,), (6, 6), (5, 4, 4)])
    space = ints(*sizes)
    boxes = {number: random_box(random, whole(space)) for number in range(random.randint(0, 9))}
    fast, minimize, guess = (data.draw(st.booleans()) for _ in range(3))
    engine = MonteCarloEngine(
        space, fast=fast, minimize=minimize, guess=guess, trials_max=50, seed=random.random().__hash__()
    )
    members = {number: region_of(space, *box) for number, box in boxes.items()}
    for number, region in members.items():
        engine.add(number, region)
    asked = random_box(random, whole(space))
    verdict, left = engine.check(region_of(space, *asked)), uncovered(asked, list(boxes.values()))
    if isinstance(verdict, Uncovered):
        assert left and verdict.witness in left
    elif isinstance(verdict, Unproven):
        assert not guess and "switched off" in verdict.reason
    elif isinstance(verdict, Likely):
        assert guess and 0 < verdict.trials_run <= 50 and verdict.trials_run <= verdict.trials_asked
    else:
        assert not left and fast and len(verdict.certificate) == 1


# --- Guessing --------------------------------------------------------------------------------------------------------


def test_guesses_are_uniform() -> None:
    low, high = np.array([-3, 0]), np.array([3, 4])
    nobody, point, state = np.zeros((0, 2), np.int64), np.zeros(2, np.int64), np.array([SEED], np.uint64)
    counts: dict[tuple[int, int], int] = {}
    for _ in range(7_000):
        assert find_point(low, high, nobody, nobody, np.zeros(0, np.int64), 0, 5, state, point) == 1
        at = int(point[0]), int(point[1])
        counts[at] = counts.get(at, 0) + 1
    assert len(counts) == 35 and all(140 < count < 270 for count in counts.values())  # 200 each, six deviations


def test_guesses_reach_the_ends_of_int64() -> None:
    least, most = -(2**63), 2**63 - 1
    nobody, state = np.zeros((0, 3), np.int64), np.array([1], np.uint64)
    low, high, point = np.array([least, most - 1, least]), np.array([most, most, least]), np.zeros(3, np.int64)
    seen = []
    for _ in range(400):
        find_point(low, high, nobody, nobody, np.zeros(0, np.int64), 0, 1, state, point)
        seen.append(point.tolist())
    assert {each[1] for each in seen} == {most - 1, most} and {each[2] for each in seen} == {least}
    assert 120 < sum(each[0] < 0 for each in seen) < 280


def test_the_same_seed_gives_the_same_answers() -> None:
    space, runs = ints(1000), []
    for seed in (1, 1, 2):
        engine = MonteCarloEngine(space, delta=0.2, fast=False, minimize=False, seed=seed)
        engine.add("low", region_of(space, (0,), (499,)))
        engine.add("high", region_of(space, (530,), (999,)))
        runs.append([engine.check(region_of(space, *whole(space))) for _ in range(60)])
    assert runs[0] == runs[1] != runs[2]
    assert {type(each) for each in runs[0]} == {Likely, Uncovered}


# --- Where it errs ---------------------------------------------------------------------------------------------------


def test_a_pinwheel_shows_that_the_bound_is_none() -> None:
    """Four boxes around a hole of one point in 99 x 99. Each leaves half of an attribute, so rho is a quarter, and 80
    trials are enough for a claimed error of 1e-10; the hole is 1/9801 of s, so that nearly all answers are wrong."""
    space, boxes, (hole, _) = pinwheel(inner=1, arm=49)
    asked = region_of(space, *whole(space))
    assert len(uncovered(whole(space), boxes)) == 1
    table = table_of(whole(space), boxes)
    truth = 1 / math.prod(attribute.last + 1 for attribute in space.attributes)
    assert table.rho() > 100 * truth and table.minimized() == ([0, 1, 2, 3], [])
    wrong = 0
    for seed in range(200):
        engine = MonteCarloEngine(space, delta=1e-10, seed=seed)
        for number, box in enumerate(boxes):
            engine.add(number, region_of(space, *box))
        verdict = engine.check(asked)
        if isinstance(verdict, Likely):
            assert verdict.delta <= 1e-10 and verdict.trials_run == verdict.trials_asked
            wrong += 1
        else:
            assert isinstance(verdict, Uncovered) and verdict.witness == hole
    assert wrong >= 0.9 * 200
    exact = ExactEngine(space)
    for number, box in enumerate(boxes):
        exact.add(number, region_of(space, *box))
    assert exact.check(asked) == Uncovered(hole)


def test_a_cap_is_reported() -> None:
    """A slice of one in a million in each of three attributes asks for more trials than there are atoms in a grain of
    sand; the verdict says how many were run, and what is claimed for those."""
    space = ints(*[1_000_000] * 3)
    engine = MonteCarloEngine(space, delta=1e-6, trials_max=1_000)
    for axis in range(3):
        for side in range(2):
            low, high = [0] * 3, [999_999] * 3
            (low if side else high)[axis] = 1 if side else 999_998
            engine.add((axis, side), region_of(space, low, high))
    verdict = engine.check(region_of(space, *whole(space)))
    assert isinstance(verdict, Likely)
    assert verdict.trials_asked > 1e18 and verdict.trials_run == 1_000 and verdict.delta > 0.99


def test_a_union_claims_the_worst_of_its_boxes() -> None:
    space = ints(100, 100)
    engine = MonteCarloEngine(space, delta=1e-3)
    for number, (low, high) in enumerate([((0, 0), (49, 99)), ((50, 0), (99, 99))]):
        engine.add(number, region_of(space, low, high))
    narrow, wide = region_of(space, (49, 0), (50, 9)), region_of(space, (40, 20), (51, 29))
    single = [engine.check(each) for each in (narrow, wide)]
    both = engine.check(narrow | wide)
    assert all(isinstance(each, Likely) for each in (*single, both))
    assert isinstance(both, Likely) and isinstance(single[0], Likely) and isinstance(single[1], Likely)
    assert both.delta == max(single[0].delta, single[1].delta)
    assert both.trials_run == single[0].trials_run + single[1].trials_run
    assert both.certificate == (0, 1)


def test_asked_for_by_name() -> None:
    """Nothing guesses unless it is asked to."""
    assert isinstance(covers(["price < 20", "price >= 20"], "price < 50", Space.parse("price int not null")), Covered)
    verdict = covers(["price < 20", "price >= 20"], "price < 50", Space.parse("price int not null"), cover="montecarlo")
    assert isinstance(verdict, Likely)
    active_set = ActiveSet(ints(100), "montecarlo", seed=3)
    active_set.subscribe("a", region_of(active_set.space, (0,), (59,)))
    active_set.subscribe("b", region_of(active_set.space, (40,), (99,)))
    change = active_set.subscribe("c", region_of(active_set.space, (20,), (80,)))
    assert change.forward == [] and active_set.certificate("c") == ("a", "b")
    assert active_set.unsubscribe("a").forward == ["c"]
    active_set.check_invariants()


def test_bad_options_are_refused() -> None:
    for options, text in (
        ({"delta": 0.0}, "between 0 and 1"),
        ({"delta": 1.5}, "between 0"),
        ({"trials_max": 0}, "least 1"),
    ):
        with pytest.raises(CallerError, match=text):
            MonteCarloEngine(ints(9), **options)
