"""The negative space: the paper's examples and propositions, both ways to leave, and what approximation may lose."""

from __future__ import annotations

import math
from itertools import pairwise, product
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.cover_oracles import (
    Box,
    Cells,
    NegativeSpace,
    arrays,
    ints,
    random_boxes,
    region_of,
    small_box_sets,
    whole,
)
from helpers.strategies import examples
from thatch import Space
from thatch.cover import ActiveSet, Covered, NegativeEngine, PairwiseEngine, Uncovered, Unproven, verify
from thatch.cover.rectangles import value
from thatch.errors import CallerError
from thatch.space.floating import DoubleAxis

SEED = 20240229
PLANE = "x int not null 0..1000, y int not null 0..1000"
OPTIONS: list[dict[str, Any]] = [
    {},
    {"merge": True},
    {"k": 3},
    {"k": 2, "dynamic": True, "metric": "benefit"},
    {"k": 1, "metric": "1/cost", "merge": True, "departure": "exact"},
    {"departure": "approximate"},
]


def points(low: Any, high: Any) -> int:
    """How many points disjoint rectangles hold."""
    return sum(
        math.prod(b - a + 1 for a, b in zip(*each, strict=True))
        for each in zip(low.tolist(), high.tolist(), strict=True)
    )


def as_set(low: Any, high: Any) -> set[tuple[int, ...]]:
    """All points of rectangles; an error if two share one."""
    found: set[tuple[int, ...]] = set()
    for one, other in zip(low.tolist(), high.tolist(), strict=True):
        own = set(product(*(range(a, b + 1) for a, b in zip(one, other, strict=True))))
        assert found.isdisjoint(own)
        found |= own
    return found


# --- The paper's examples --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attributes", ["x, y", "y, x"])
def test_figures_2_3_and_5(attributes: str) -> None:
    """s1 leaves 4 rectangles, s2 meets two of them and leaves 7, s3 meets none and is covered by both."""
    space = Space.parse(PLANE if attributes == "x, y" else "y int not null 0..1000, x int not null 0..1000")
    clauses = [
        "x BETWEEN 175 AND 510 AND y BETWEEN 180 AND 680",
        "x BETWEEN 405 AND 840 AND y BETWEEN 110 AND 540",
        "x BETWEEN 380 AND 720 AND y BETWEEN 230 AND 495",
    ]
    engine = NegativeEngine(space)
    one, two, three = map(space.where, clauses)
    assert len(engine.rectangles[0]) == 1
    engine.add("s1", one)
    assert len(engine.rectangles[0]) == 4
    assert isinstance(engine.check(two), Uncovered)
    before = engine.splits
    engine.add("s2", two)
    assert engine.splits - before == 2
    assert len(engine.rectangles[0]) == 7
    assert engine.check(three) == Covered(("s1", "s2"))
    engine.discard("s2")
    assert len(engine.rectangles[0]) >= 4 and isinstance(engine.check(three), Uncovered)
    engine.check_invariants()


# --- Propositions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attributes", [1, 2, 3, 4])
def test_a_split_adds_at_most_2d_minus_1(attributes: int) -> None:
    space = ints(*[20] * attributes)
    random, engine = Random(f"{SEED}/{attributes}"), NegativeEngine(space)
    for number, box in enumerate(random_boxes(random, space, 60, 0.6)):
        before, splits = len(engine.rectangles[0]), engine.splits
        engine.add(number, region_of(space, *box))
        assert len(engine.rectangles[0]) - before <= (2 * attributes - 1) * (engine.splits - splits)
        assert len(engine.rectangles[0]) <= (2 * len(engine) + 1) ** attributes  # theorem 1


@pytest.mark.parametrize("options", OPTIONS)
def test_rectangles_and_pieces_are_the_space(options: dict[str, Any]) -> None:
    """Disjoint, and together everything; exactly what is uncovered, unless some were left whole."""
    for case in small_box_sets(2, 40, SEED):
        engine = NegativeEngine(case.space, **options)
        everything = as_set(*(np.array([side]) for side in whole(case.space)))
        for id, region in case.members.items():
            engine.add(id, region)
            negative = as_set(*engine.rectangles)
            covered = {point for each in engine for point in as_set(*engine.pieces(each))}
            assert negative | covered == everything and negative.isdisjoint(covered)
            truth = {p for p in everything if not any(case.members[each].contains_point(p) for each in engine)}
            assert truth <= negative and (truth == negative or engine.is_loose)
        engine.check_invariants()


@pytest.mark.parametrize("metric", ["benefit/cost", "benefit", "1/cost"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_at_most_k_new_rectangles(metric: str, dynamic: bool) -> None:
    """1 + k n in all; k for each with the fixed threshold, k i - m(i-1) with the dynamic one. k = 0 still makes the
    splits that add none."""
    space = ints(40, 40, 40)
    for k in (0, 1, 5, 20):
        engine = NegativeEngine(space, k=k, dynamic=dynamic, metric=metric)
        for number, box in enumerate(random_boxes(Random(SEED), space, 80, 0.7)):
            before = len(engine.rectangles[0])
            allowed = max(0, k * (number + 1) - before) if dynamic else k
            engine.add(number, region_of(space, *box))
            assert len(engine.rectangles[0]) - before <= allowed
            assert len(engine.rectangles[0]) <= 1 + k * (number + 1)
        engine.check_invariants()
    assert engine.splits > 0


def is_loose(engine: NegativeEngine) -> bool:
    """As it is now: a type checker takes the attribute for what it was before the last call."""
    return engine.is_loose


def test_a_split_that_adds_none_is_always_made() -> None:
    space = ints(100, 100)
    engine = NegativeEngine(space, k=0)
    engine.add("left", region_of(space, (0, 0), (49, 99)))  # the remainder is one whole rectangle
    engine.add("top", region_of(space, (50, 50), (99, 99)))
    assert not is_loose(engine) and [each.tolist() for each in engine.rectangles] == [[[50, 0]], [[99, 49]]]
    engine.add("hole", region_of(space, (60, 10), (70, 20)))  # would add three
    assert is_loose(engine) and len(engine.rectangles[0]) == 1
    engine.add("rest", region_of(space, (50, 0), (99, 49)))  # no remainder: the rectangle is gone
    assert len(engine.rectangles[0]) == 0
    assert isinstance(engine.check(region_of(space, (0, 0), (99, 99))), Covered)


def test_a_left_rectangle_is_not_taken_for_a_witness() -> None:
    """What is left whole may be covered: then the answer is Unproven, or a corner that nobody holds."""
    space = ints(100, 100)
    engine = NegativeEngine(space, k=0)
    engine.add("middle", region_of(space, (20, 20), (80, 80)))
    engine.add("more", region_of(space, (40, 40), (90, 90)))
    assert isinstance(engine.check(region_of(space, (10, 30), (70, 70))), Uncovered)  # a corner is in nobody
    assert isinstance(engine.check(region_of(space, (30, 30), (85, 85))), Unproven)  # two are not looked at
    assert engine.check(region_of(space, (45, 45), (85, 75))) == Covered(("more",))  # one member: always asked
    engine = NegativeEngine(space, k=0)
    engine.add("below", region_of(space, (20, 20), (80, 50)))
    engine.add("above", region_of(space, (20, 51), (80, 80)))
    verdict = engine.check(region_of(space, (30, 30), (60, 60)))
    assert isinstance(verdict, Unproven) and "may be covered" in verdict.reason
    engine.rebuild()
    assert isinstance(engine.check(region_of(space, (30, 30), (60, 60))), Unproven)  # k is still 0


@pytest.mark.parametrize(("metric", "side"), [("benefit/cost", "right"), ("benefit", "left"), ("1/cost", "right")])
def test_the_better_split_is_made_first(metric: str, side: str) -> None:
    """Left of a wall the new one shares 32,000 points, and to split there adds 2; right of it 20,000, and adds 1. With
    k = 2 only one of them can be made."""
    space = ints(1000, 100)
    engine = NegativeEngine(space, k=2, metric=metric)
    for number, (low, high) in enumerate([((500, 0), (509, 99)), ((510, 0), (999, 9)), ((510, 95), (999, 99))]):
        engine.add(number, region_of(space, low, high))
    assert len(engine.rectangles[0]) == 2 and not engine.is_loose
    engine.add("new", region_of(space, (100, 10), (759, 89)))
    assert engine.pieces("new")[0].tolist() == [[100, 10] if side == "left" else [510, 10]]
    assert len(engine.rectangles[0]) == (4 if side == "left" else 3)


def test_benefit_is_measured_by_values() -> None:
    """In the order of doubles [0, 1] outweighs [1, 1000] a hundred to one; by values it is the other way round."""
    space = Space.parse("x double not null -1e308..1e308")
    axis = space.attributes[0].axis
    assert isinstance(axis, DoubleAxis)
    for number in (0.0, 1.0, -1.0, 0.1, 1e-310, -2.5e-320, 1e308, 3.75, -1e17):
        assert value(axis.of_float(number), True) == number
    assert value(7, False) == 7.0
    assert value(axis.of_float(math.inf), True) == np.finfo(np.float64).max


# --- Departures ------------------------------------------------------------------------------------------------------


def test_exact_departure_is_as_if_never_there() -> None:
    """Figure 7: of what the one that leaves held, others' part stays covered; the rest is negative again."""
    for attributes, count in ((1, 60), (2, 60), (3, 30)):
        for case in small_box_sets(attributes, count, SEED):
            engine = NegativeEngine(case.space)
            for id, region in case.members.items():
                engine.add(id, region)
            gone = list(case.members)[::2]
            for id in gone:
                engine.discard(id)
                engine.check_invariants()
            oracle = NegativeSpace(whole(case.space))
            for id, box in case.boxes.items():
                if id not in gone:
                    oracle.subtract(box)
            assert as_set(*engine.rectangles) == as_set(oracle.low, oracle.high)
            assert not engine.is_loose


def test_approximate_departure_gives_back_what_was_taken() -> None:
    """Figure 9: the pieces of the one that leaves are negative, also where others hold them; `rebuild` mends that."""
    space = ints(100, 100)
    engine = NegativeEngine(space, departure="approximate")
    engine.add("first", region_of(space, (0, 0), (59, 99)))
    engine.add("second", region_of(space, (40, 0), (99, 99)))
    taken = as_set(*engine.pieces("first"))
    assert len(engine.rectangles[0]) == 0
    engine.discard("first")
    assert as_set(*engine.rectangles) == taken and is_loose(engine)
    asked = region_of(space, (40, 0), (59, 99))
    assert engine.check(asked) == Covered(("second",))  # one member: always asked
    union = region_of(space, (45, 0), (99, 99)) | region_of(space, (41, 0), (44, 99))
    assert isinstance(engine.check(union), Covered | Unproven)
    engine.rebuild()
    assert not is_loose(engine)
    assert as_set(*engine.rectangles) == as_set(np.array([[0, 0]]), np.array([[39, 99]]))
    assert engine.check(union) == Covered(("second",))


@pytest.mark.parametrize("options", OPTIONS)
def test_coming_and_going_in_an_active_set(options: dict[str, Any]) -> None:
    """Certificates hold, nothing that is not covered is held back, whatever is split and however members leave."""
    random, space = Random(f"{SEED}/{options}"), ints(12, 12)
    active_set, regions = ActiveSet(space, "negative", retract=bool(options), **options), dict[int, Any]()
    for step in range(160):
        if regions and random.random() < 0.4:
            gone = random.choice(list(regions))
            active_set.unsubscribe(gone)
            del regions[gone]
        else:
            regions[step] = region_of(space, *random_boxes(random, space, 1, 0.5)[0])
            active_set.subscribe(step, regions[step])
        if step % 8 == 0:
            active_set.check_invariants()
            cells = Cells(space, regions.values())
            held = cells.union(regions[id] for id in active_set.active)
            assert (held == cells.union(regions.values())).all()


@pytest.mark.parametrize("attributes", [16, 17, 20, 40])
def test_departure_in_many_attributes(attributes: int) -> None:
    """One piece around another box leaves 2d - 1 rectangles, and more."""
    space = ints(*[10] * attributes)
    wide = region_of(space, [1] * attributes, [8] * attributes)
    narrow = region_of(space, [3] * attributes, [5] * (attributes - 1) + [9])
    engine = NegativeEngine(space)
    engine.add("wide", wide)
    engine.add("narrow", narrow)
    engine.discard("wide")
    engine.check_invariants()
    assert not engine.is_loose and engine.check(narrow) == Covered(("narrow",))
    assert verify(engine.check(wide), wide, {"narrow": narrow}) and not engine.check(wide)


def test_rebuilding_loses_nothing() -> None:
    """Widest first, into the same members; with k the rectangles are at most as many as allowed."""
    space = ints(60, 60, 60)
    boxes = random_boxes(Random(SEED), space, 150, 0.5)
    engine = NegativeEngine(space, k=10)
    regions = {number: region_of(space, *box) for number, box in enumerate(boxes)}
    for number, region in regions.items():
        engine.add(number, region)
    for number in range(0, 150, 3):
        engine.discard(number)
    before = points(*engine.rectangles)
    engine.rebuild()
    assert list(engine) == [number for number in regions if number % 3]
    assert points(*engine.rectangles) < before
    assert len(engine.rectangles[0]) <= 1 + 10 * len(engine)
    engine.check_invariants()
    kept = {number: regions[number] for number in engine}
    for number in range(0, 150, 3):
        assert verify(engine.check(regions[number]), regions[number], kept)


# --- Merging, budgets, approximation ---------------------------------------------------------------------------------


def test_merged_rectangles_have_no_neighbours() -> None:
    space = ints(30, 30, 30)
    plain, merging = NegativeEngine(space), NegativeEngine(space, merge=True)
    for number, box in enumerate(random_boxes(Random(SEED), space, 60, 0.5)):
        for engine in (plain, merging):
            engine.add(number, region_of(space, *box))
    assert as_set(*plain.rectangles) == as_set(*merging.rectangles)
    assert len(merging.rectangles[0]) < len(plain.rectangles[0])
    merging.check_invariants()
    for number in range(0, 60, 2):
        merging.discard(number)
    merging.check_invariants()
    rectangles = list(zip(merging.rectangles[0].tolist(), merging.rectangles[1].tolist(), strict=True))
    for one, other in product(rectangles, rectangles):
        differing = [axis for axis in range(3) if (one[0][axis], one[1][axis]) != (other[0][axis], other[1][axis])]
        if len(differing) == 1:
            assert one[1][differing[0]] + 1 != other[0][differing[0]]


def test_rectangles_max_keeps_it_calm() -> None:
    """Slabs in three attributes leave n^3 rectangles; past the bound nothing is split that adds any, and answers stay
    right."""
    space = ints(400, 400, 400)
    boxes: list[Box] = []
    for axis, at in product(range(3), range(10, 390, 20)):
        low, high = [0] * 3, [399] * 3
        low[axis], high[axis] = at, at + 4
        boxes.append((tuple(low), tuple(high)))
    engine = NegativeEngine(space, rectangles_max=500)
    verdicts = engine.add_many(list(range(len(boxes))), arrays(boxes))
    assert not any(verdicts) and len(engine.rectangles[0]) <= 500 and engine.is_loose
    members = {number: region_of(space, *box) for number, box in enumerate(boxes)}
    for asked in [*boxes, ((0, 0, 0), (399, 399, 399)), ((11, 0, 0), (13, 399, 399))]:
        verdict = engine.check(region_of(space, *asked))
        assert verify(verdict, region_of(space, *asked), members)
        assert isinstance(verdict, Uncovered if asked[1] == (399, 399, 399) and asked[0] == (0, 0, 0) else Covered)


def test_approximate_finds_no_less_than_pairwise() -> None:
    """Alone it would, in four attributes: a member that covers a box is always asked for."""
    space = ints(*[50] * 4)
    boxes = random_boxes(Random(SEED), space, 250, 0.9)
    approximate, exact, one = NegativeEngine(space, k=5), NegativeEngine(space, merge=True), PairwiseEngine(space)
    regions = {number: region_of(space, *box) for number, box in enumerate(boxes)}
    found = [0, 0, 0]
    for number, region in regions.items():
        members = {id: regions[id] for id in exact}
        verdicts = [engine.check(region) for engine in (approximate, exact, one)]
        for place, verdict in enumerate(verdicts):
            found[place] += bool(verdict)
            assert verify(verdict, region, members)
        assert not verdicts[2] or verdicts[0]
        assert not verdicts[0] or verdicts[1]
        if not verdicts[1]:
            for engine in (approximate, exact, one):
                engine.add(number, region)
    assert found[2] <= found[0] <= found[1] and found[2] < found[1]


@st.composite
def runs(draw: st.DrawFn) -> tuple[Space, list[tuple[str, Any]], dict[str, Any]]:
    space = ints(*draw(st.sampled_from([(9,), (6, 6), (4, 4, 4)])))
    corner = [st.integers(0, attribute.last) for attribute in space.attributes]
    box = st.tuples(st.tuples(*corner), st.tuples(*corner)).map(
        lambda ends: (tuple(map(min, *ends)), tuple(map(max, *ends))) if len(ends[0]) > 1 else tuple(sorted(ends))
    )
    steps = st.lists(
        st.one_of(st.tuples(st.just("add"), box), st.tuples(st.just("gone"), st.integers(0, 9))), max_size=14
    )
    return space, draw(steps), draw(st.sampled_from(OPTIONS))


@examples(150)
@given(run=runs())
def test_any_run(run: tuple[Space, list[tuple[str, Any]], dict[str, Any]]) -> None:
    """Against brute force over all points: negative contains all that is uncovered, and is it unless it is loose."""
    space, steps, options = run
    engine, boxes = NegativeEngine(space, **options), dict[int, Box]()
    everything = list(product(*(range(attribute.last + 1) for attribute in space.attributes)))
    for number, (kind, what) in enumerate(steps):
        if kind == "add":
            boxes[number] = what
            engine.add(number, region_of(space, *what))
        elif boxes:
            gone = list(boxes)[what % len(boxes)]
            del boxes[gone]
            engine.discard(gone)
        held = {
            point
            for point in everything
            if any(
                all(a <= x <= b for a, x, b in zip(*box[:1], point, *box[1:], strict=True)) for box in boxes.values()
            )
        }
        negative = as_set(*engine.rectangles)
        assert set(everything) - held <= negative
        assert negative.isdisjoint(held) or engine.is_loose
        engine.check_invariants()


def test_bad_options_are_refused() -> None:
    space = ints(9)
    for options, text in (
        ({"k": -1}, "at least 0"),
        ({"dynamic": True}, "needs a k"),
        ({"metric": "cost"}, "no metric 'cost'"),
        ({"departure": "soon"}, "exact or approximate"),
    ):
        with pytest.raises(CallerError, match=text):
            NegativeEngine(space, **options)


def test_n_ranges_cut_a_line_in_2n_plus_1() -> None:
    """Proposition 4."""
    space = ints(1000)
    for seed in range(10):
        engine = NegativeEngine(space)
        for number, box in enumerate(random_boxes(Random(seed), space, 40, 0.05)):
            engine.add(number, region_of(space, *box))
            pieces = sum(len(engine.pieces(id)[0]) for id in engine)
            assert len(engine.rectangles[0]) + pieces <= 2 * len(engine) + 1
        starts = sorted(engine.rectangles[0][:, 0].tolist())
        assert all(one < other for one, other in pairwise(starts))
