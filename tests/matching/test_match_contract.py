"""The contract of match indexes: who wants this event?

An index gets all of this by its name in `MATCHERS`; the rivals are asked the same. The right answers come from brute
force over coordinates and from `Region.contains`, one region and one event at a time (helpers/match_oracles.py), never
from another index. The contract goes on in test_match_batches.py, test_match_changes.py and test_match_meeting.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.cover_oracles import ints
from helpers.match_contract import (
    CONTENDERS,
    NONE,
    boxes,
    clauses,
    filled,
    judge,
    needlessly_slow,
    thinned,
    wrong_numbers,
    wrong_pairs,
)
from helpers.match_oracles import CLAUSES, FAMILIES, INT_MAX, SEED, Coordinates, Mask, decoded, inside, region_of_boxes
from helpers.strategies import examples, soaked
from thatch import Space
from thatch.errors import CallerError
from thatch.matching.matcher import Matcher
from thatch.matching.tree import sort_unique_pairs
from thatch.region.region import Region
from thatch.rivals.summary import LinkSummary

# --- Declarations and the plainest answers ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(CONTENDERS))
def test_a_matcher_declares_itself(name: str) -> None:
    assert CONTENDERS[name].name == name
    assert issubclass(CONTENDERS[name], Matcher)


def test_an_empty_matcher(matcher_class: type[Matcher]) -> None:
    space = Space.parse("x int, name string")
    matcher = matcher_class(space)
    matcher.discard(3)
    matcher.add_many([], [])
    matcher.add_many([], (np.zeros((0, 2), np.int64), np.zeros((0, 2), np.int64)))
    assert len(matcher) == 0 and 0 not in matcher
    assert matcher.match({"x": 1}) == [] and matcher.meeting(Region.everything(space)) == []
    batches: list[Any] = [{"x": [1, None], "name": ["a", None]}, {"x": [], "name": []}, {}, pa.table({"x": [1]})]
    for events in batches:
        assert not wrong_pairs(matcher.match_batch(events), NONE), events
    matcher.check_invariants()


def test_one_region(matcher_class: type[Matcher]) -> None:
    space = Space.parse("x int, name string")
    matcher = matcher_class(space)
    matcher.add(7, space.where("x > 3 AND name = 'a'"))
    assert matcher.match({"x": 4, "name": "a"}) == [7]
    assert matcher.match({"x": 3, "name": "a"}) == matcher.match({"x": 4, "name": "b"}) == matcher.match({}) == []
    rows, numbers = matcher.match_batch({"x": [4, 3, 9], "name": ["a", "a", "a"]})
    assert rows.tolist() == [0, 2] and numbers.tolist() == [7, 7]
    assert not wrong_pairs(matcher.match_batch({"x": [], "name": []}), NONE)
    matcher.discard(7)
    matcher.discard(7)
    assert matcher.match({"x": 4, "name": "a"}) == [] and 7 not in matcher
    matcher.add(7, space.where("x <= 3"))
    assert matcher.match({"x": 4, "name": "a"}) == [] and matcher.match({"x": 3}) == [7]
    matcher.check_invariants()


def test_empty_regions_match_nothing(matcher_class: type[Matcher]) -> None:
    space = ints(9, 9)
    matcher = matcher_class(space)
    low, high = np.array([[5, 0], [3, 3], [0, 8]]), np.array([[4, 8], [3, 3], [8, 0]])  # all empty but the second
    matcher.add_many([1, 2, 3], (low, high))
    matcher.add_many([4, 5], [Region.nothing(space), space.where("a0 > 5 AND a0 < 3")])
    assert len(matcher) == 5 and all(number in matcher for number in (1, 2, 3, 4, 5))
    assert matcher.match({"a0": 3, "a1": 3}) == [2] and matcher.match({"a0": 5, "a1": 0}) == []
    assert matcher.meeting(Region.everything(space)) == [2]
    matcher.check_invariants()
    with pytest.raises(CallerError):
        matcher.add(5, space.where("a0 = 1"))
    for number in (1, 4):
        matcher.discard(number)
        assert number not in matcher
    assert len(matcher) == 3
    matcher.check_invariants()


def test_numbers_of_any_size(matcher_class: type[Matcher]) -> None:
    """The holder chooses them, and need not choose small ones."""
    space = ints(9, 9)
    matcher = matcher_class(space)
    numbers = [INT_MAX, 0, 2**62, 5, 2**31, 2**32 + 5, 1]
    matcher.add_many(numbers[:4], [space.where("a0 < 5")] * 4)
    matcher.add_many(np.array(numbers[4:], np.int64), (np.zeros((3, 2), np.int64), np.full((3, 2), 4)))
    assert not wrong_numbers(matcher.match({"a0": 1, "a1": 1}), sorted(numbers))
    assert matcher.match_batch({"a0": [1], "a1": [1]})[1].tolist() == sorted(numbers)
    assert not wrong_numbers(matcher.meeting(space.where("a0 = 0 AND a1 = 0")), sorted(numbers))
    assert not any(stranger in matcher for stranger in (2, -1, 2**70, "0", None))
    matcher.discard(2**62)
    matcher.discard(2**70)
    assert matcher.match({"a0": 1, "a1": 8}) == [0, 5, INT_MAX]
    matcher.check_invariants()


@pytest.mark.parametrize("most", [0, 1, 255, 256, 70_000, 2**62, INT_MAX])
def test_pairs_are_sorted_and_unique(most: int) -> None:
    """By row, then by number, each once; rows with thousands are sorted in another way than those with few."""
    rng = np.random.default_rng([SEED, most % 1000])
    rows = np.concatenate([np.full(count, at) for at, count in enumerate((0, 1, 2, 63, 64, 65, 66, 0, 300, 5000))])
    numbers = rng.integers(0, most, len(rows), endpoint=True)
    numbers[rng.random(len(rows)) < 0.1] = most
    order = rng.permutation(len(rows))
    expected = sorted(set(zip(rows.tolist(), numbers.tolist(), strict=True)))
    found = sort_unique_pairs(rows[order], numbers[order], 11)
    assert not wrong_pairs(found, (np.array([r for r, _ in expected]), np.array([n for _, n in expected])))


# --- Against the oracles ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(FAMILIES))
def test_families_of_boxes(matcher_class: type[Matcher], name: str) -> None:
    case = boxes(name)
    if needlessly_slow(matcher_class, case):
        return
    way = ("arrays", "some of each", "regions")[list(FAMILIES).index(name) % 3]
    matcher = filled(matcher_class, case, way if len(case.numbers) < 4000 else "arrays")
    judge(matcher, case, thinned(matcher_class, 6, soaked(30, 60)))
    matcher.check_invariants()


@pytest.mark.parametrize("name", list(CLAUSES))
def test_regions_of_clauses(matcher_class: type[Matcher], name: str) -> None:
    case = clauses(name)
    for way in ("some of each", "regions")[: thinned(matcher_class, 1, 2)]:
        matcher = filled(matcher_class, case, way)
        judge(matcher, case, thinned(matcher_class, soaked(8, 20), soaked(30, 60)))
        matcher.check_invariants()


@pytest.mark.parametrize("name", ["slabs", "nested", "unions", "watchlists", "balls"])
def test_half_of_a_set(matcher_class: type[Matcher], name: str) -> None:
    """What is left when every second one has gone, in the order in which they came or against it."""
    case = boxes(name) if name in FAMILIES else clauses(name)
    matcher = filled(matcher_class, case)
    gone = case.numbers[::2].tolist()
    for number in gone if name != "nested" else gone[::-1]:
        matcher.discard(number)
    stays = np.isin(case.pairs[1], case.numbers[1::2])
    problem = wrong_pairs(matcher.match_batch(case.table), (case.pairs[0][stays], case.pairs[1][stays]))
    assert not problem, f"{matcher.name}, {name}: {problem}"
    matcher.check_invariants()


@pytest.mark.parametrize("name", [*FAMILIES, *CLAUSES])
def test_a_summary_of_a_link_lets_through_what_somebody_wants(name: str) -> None:
    """`LinkSummary` answers less than an index (may anybody want it?) and errs on one side only: of all cases, with all
    members, and when every second one has gone."""
    case = boxes(name) if name in FAMILIES else clauses(name)
    if len(case.numbers) > 1000:
        return
    summary = LinkSummary(case.space)
    for number, region in zip(case.numbers.tolist(), case.regions, strict=True):
        summary.add(number, region)
    points = np.array([case.space.encode(event) for event in case.events], np.int64)
    for stays in (case.numbers, case.numbers[1::2]):
        for number in set(summary) - set(stays.tolist()):
            summary.discard(number)
        wanted = np.zeros(len(points), np.bool_)
        wanted[case.pairs[0][np.isin(case.pairs[1], stays)]] = True
        assert not (wanted & ~summary.may_want(points)).any(), name


def test_the_cases_are_telling() -> None:
    """Enough of every answer, or the suite would prove little."""
    for name in FAMILIES:
        case = boxes(name)
        assert case.boxes is not None
        live = (case.boxes[0] <= case.boxes[1]).all(axis=1)
        reached = len(set(case.pairs[1].tolist()))
        assert reached == live.sum() or reached > 2500, f"{name}: {live.sum() - reached} boxes without an event inside"
        assert case.share() < 0.9, f"{name}: {case.share()}"
        inside_one = len(set(case.pairs[0].tolist()))
        assert inside_one > 0.4 * len(case.events) or len(case.numbers) < 60, f"{name}: {inside_one} rows match"
    for name in CLAUSES:
        case = clauses(name)
        assert 0.05 < case.share() < 0.8, f"{name}: {case.share()}"
        assert len(case.regions) > 25 and len(case.events) > 50
    case = clauses("unions")
    points = [case.space.encode(event) for event in case.events[:40]]
    in_terms = [sum(t.contains(point, case.space) for t in region.terms) for point in points for region in case.regions]
    assert sum(count > 1 for count in in_terms) > 300  # events in several terms of one region


def test_brute_force_agrees_with_contains() -> None:
    """The two oracles, where both can answer."""
    for name in ("3 attributes", "slabs", "some_empty", *(name for name in FAMILIES if "extreme" in name)):
        case = boxes(name)
        assert case.boxes is not None and case.points is not None
        found = [[region.contains(event) for region in case.regions] for event in case.events[::90]]
        assert np.array_equal(found, inside(*case.boxes, case.points[::90])), name


# --- Small spaces, every point ----------------------------------------------------------------------------------------


@dataclass
class Lattice:
    """A small space with all of its points; unions of boxes, plain boxes, and which of them leave again."""

    space: Space
    unions: list[tuple[Coordinates, Coordinates]]
    plain: tuple[Coordinates, Coordinates]
    leaving: list[bool]

    def points(self) -> Coordinates:
        spans = [np.arange(low, high + 1) for low, high in zip(self.space.low[0], self.space.high[0], strict=True)]
        return np.stack(np.meshgrid(*spans, indexing="ij"), -1).reshape(-1, len(spans))

    def mask(self, points: Coordinates) -> Mask:
        columns = [inside(*union, points).any(axis=1) for union in self.unions]
        return np.concatenate([np.array(columns, np.bool_).reshape(-1, len(points)).T, inside(*self.plain, points)], 1)


@st.composite
def lattices(draw: st.DrawFn) -> Lattice:
    attributes = draw(st.integers(1, 4))
    kinds = [(draw(st.integers(0, 3)), draw(st.sampled_from(["", "not null "]))) for _ in range(attributes)]
    space = Space.parse(", ".join(f"a{at} int {kind}0..{last}" for at, (last, kind) in enumerate(kinds)))
    ends = [
        st.tuples(st.integers(a.low, a.last), st.integers(a.low, a.last)).map(sorted) | st.just([a.low, a.last])
        for a in space.attributes
    ]

    def drawn(size_max: int) -> tuple[Coordinates, Coordinates]:
        found = draw(st.lists(st.tuples(*ends), max_size=size_max))
        pairs = np.array(found, np.int64).reshape(len(found), attributes, 2)
        return pairs[:, :, 0], pairs[:, :, 1]

    unions = [drawn(4) for _ in range(draw(st.integers(0, 7)))]
    plain = drawn(6)
    count = len(unions) + len(plain[0])
    return Lattice(space, unions, plain, draw(st.lists(st.booleans(), min_size=count, max_size=count)))


@examples(soaked(25, 60))
@given(lattice=lattices())
def test_every_point_of_a_small_space(lattice: Lattice) -> None:
    points = lattice.points()
    mask = lattice.mask(points)
    regions = [region_of_boxes(lattice.space, *union) for union in lattice.unions]
    first, count = len(regions), len(lattice.leaving)
    events = decoded(lattice.space, points)
    for matcher_class in CONTENDERS.values():
        matcher = matcher_class(lattice.space)
        matcher.add_many(list(range(first)), regions)
        matcher.add_many(np.arange(first, count), lattice.plain)
        for stays in (np.ones(count, np.bool_), ~np.array(lattice.leaving, np.bool_)):
            for number in np.flatnonzero(~stays).tolist():
                matcher.discard(number)
            kept = mask & stays
            found = matcher.view().match_points(list(points.T))
            assert not wrong_pairs(found, np.nonzero(kept)), f"{matcher.name}, {lattice}"
            for row in range(0, len(points), max(1, len(points) // 8)):
                problem = wrong_numbers(matcher.match(events[row]), np.flatnonzero(kept[row]).tolist())
                assert not problem, f"{matcher.name}, {events[row]}, {lattice}: {problem}"
            for asked in range(min(3, first)):
                meeting = np.flatnonzero((kept & mask[:, [asked]]).any(axis=0)).tolist()
                assert matcher.meeting(regions[asked]) == meeting, f"{matcher.name}, {lattice}"
        matcher.check_invariants()
        assert len(matcher) == count - sum(lattice.leaving)
