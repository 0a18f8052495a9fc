"""The contract of match indexes: who wants this event?

An index gets all of this by its name in `MATCHERS`. The right answers come from brute force over coordinates and from
`Region.contains`, one region and one event at a time (match_oracles.py); never from another index.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.cover_oracles import MIXED_SPACES, ints, number_anew
from helpers.match_oracles import (
    CLAUSES,
    FAMILIES,
    INT_MAX,
    INT_MIN,
    SEED,
    Case,
    Coordinates,
    Ledger,
    Mask,
    Pairs,
    Pool,
    box_case,
    box_pool,
    decoded,
    inside,
    mixed_pool,
    pairs_by_force,
    region_of_boxes,
    scattered,
    telling_points,
)
from helpers.strategies import examples, soaked
from thatch import Space
from thatch.errors import CallerError
from thatch.matching import MATCHERS
from thatch.matching.matcher import Matcher, View
from thatch.matching.tree import sort_unique_pairs
from thatch.region.region import Region
from thatch.rivals.summary import LinkSummary

SLOW = ("scan", "counting")  # they pay for every region, so some tests give them fewer
NONE: Pairs = (np.zeros(0, np.int64), np.zeros(0, np.int64))


@pytest.fixture(params=list(MATCHERS))
def matcher_class(request: pytest.FixtureRequest) -> type[Matcher]:
    return MATCHERS[request.param]


def thinned(matcher_class: type[Matcher], few: int, many: int) -> int:
    return few if matcher_class.name in SLOW else many


@cache
def boxes(name: str) -> Case:
    return box_case(name)


@cache
def clauses(name: str) -> Case:
    return CLAUSES[name]()


# --- Asking, and telling what is wrong -------------------------------------------------------------------------------


def filled(matcher_class: type[Matcher], case: Case, way: str = "regions") -> Matcher:
    """A matcher with the regions of a case: one batch of regions or arrays, or some one by one and the rest after."""
    matcher = matcher_class(case.space)
    count = len(case.numbers)
    if way == "arrays":
        assert case.boxes is not None
        matcher.add_many(case.numbers, case.boxes)
    elif way == "regions":
        matcher.add_many(case.numbers.tolist(), case.regions)
    else:
        part = min(count // 3, 300)
        for number, region in zip(case.numbers[:part].tolist(), case.regions[:part], strict=True):
            matcher.add(number, region)
        half = (part + count) // 2
        matcher.add_many(case.numbers[part:half].tolist(), case.regions[part:half])
        rest: Any = case.regions[half:]
        if case.boxes is not None:
            rest = case.boxes[0][half:], case.boxes[1][half:]
        matcher.add_many(case.numbers[half:], rest)
    assert len(matcher) == count and all(number in matcher for number in case.numbers.tolist())
    return matcher


def wrong_pairs(found: Any, expected: Pairs) -> str:
    """What is wrong about the answer to a batch; empty if nothing is."""
    rows, numbers = found
    for column in (rows, numbers):
        if not isinstance(column, np.ndarray) or column.dtype != np.int64 or column.ndim != 1:
            return f"not a column of int64: {column!r}"
    if np.array_equal(rows, expected[0]) and np.array_equal(numbers, expected[1]):
        return ""
    said, true = (set(zip(rows.tolist(), numbers.tolist(), strict=True)) for rows, numbers in (found, expected))
    if said == true:
        return f"{len(rows) - len(said)} pairs twice, or not ascending by (row, number)"
    missing, extra = sorted(true - said), sorted(said - true)
    return f"(row, number) {len(missing)} missing, as {missing[:5]}; {len(extra)} too many, as {extra[:5]}"


def wrong_numbers(found: Any, expected: list[int]) -> str:
    """The same for one event."""
    if found == expected and isinstance(found, list) and all(type(number) is int for number in found):
        return ""
    missing, extra = sorted(set(expected) - set(found))[:5], sorted(set(found) - set(expected))[:5]
    return f"{missing} missing, {extra} too many, {len(found)} instead of {len(expected)} ints: {found!r:.200}"


def judge(matcher: Matcher, case: Case, singles: int) -> None:
    """Ask about the events of a case in every way there is."""
    columns = case.space.encode_batch(case.table)
    view = matcher.view()
    batches = {
        "match_batch of arrays": lambda: matcher.match_batch(case.batch),
        "match_batch of Arrow": lambda: matcher.match_batch(case.table),
        "match_points": lambda: view.match_points(columns),
    }
    ways = list(batches) if matcher.name not in SLOW else [list(batches)[len(case.name) % 3]]
    for way in ways:
        problem = wrong_pairs(batches[way](), case.pairs)
        assert not problem, f"{matcher.name}, {way}, {case.name!r}, {len(case.numbers)} regions: {problem}"
    for row in case.singles(singles):
        event, expected = case.events[row], case.numbers_of(row)
        alone = {
            "match": matcher.match(event),
            "match_point": view.match_point([int(column[row]) for column in columns]),
        }
        for way, found in alone.items():
            problem = wrong_numbers(found, expected)
            assert not problem, f"{matcher.name}, {way}, {case.name!r}, row {row}, {event}: {problem}"


# --- Declarations and the plainest answers ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(MATCHERS))
def test_a_matcher_declares_itself(name: str) -> None:
    assert MATCHERS[name].name == name
    assert issubclass(MATCHERS[name], Matcher)


def test_an_empty_matcher(matcher_class: type[Matcher]) -> None:
    space = Space.parse("x int, name string")
    matcher = matcher_class(space)
    matcher.discard(3)
    matcher.add_many([], [])
    matcher.add_many([], (np.zeros((0, 2), np.int64), np.zeros((0, 2), np.int64)))
    assert len(matcher) == 0 and 0 not in matcher
    assert matcher.match({"x": 1}) == [] and matcher.meeting(Region.everything(space)) == []
    for events in ({"x": [1, None], "name": ["a", None]}, {"x": [], "name": []}, {}, pa.table({"x": [1]})):
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
def test_pairs_are_arranged(most: int) -> None:
    """By row, then by number, each once; rows with thousands are sorted in another way than those with few."""
    rng = np.random.default_rng([SEED, most % 1000])
    rows = np.concatenate([np.full(count, at) for at, count in enumerate((0, 1, 2, 63, 64, 65, 66, 0, 300, 5000))])
    numbers = rng.integers(0, most, len(rows), endpoint=True)
    numbers[rng.random(len(rows)) < 0.1] = most
    order = rng.permutation(len(rows))
    expected = sorted(set(zip(rows.tolist(), numbers.tolist(), strict=True)))
    found = sort_unique_pairs(rows[order], numbers[order], 11)
    assert not wrong_pairs(found, (np.array([r for r, _ in expected]), np.array([n for _, n in expected])))


# --- Against the oracles ---------------------------------------------------------------------------------------------


def needlessly_slow(matcher_class: type[Matcher], case: Case) -> bool:
    """The scan has no sizes at which it does something else, and is slow; of counting one that is large will do."""
    if matcher_class.name == "counting":
        return len(case.numbers) > 1000 and case.name != "4097 boxes" and not soaked(0, 1)
    return matcher_class.name == "scan" and len(case.numbers) > 1000


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


# --- Small spaces, every point ---------------------------------------------------------------------------------------


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
    for matcher_class in MATCHERS.values():
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


# --- Batches ---------------------------------------------------------------------------------------------------------


def test_batches_of_any_length(matcher_class: type[Matcher]) -> None:
    """The rows of a batch have nothing to do with one another."""
    case = boxes("one_unconstrained")
    assert case.boxes is not None and case.points is not None
    matcher = filled(matcher_class, case)
    rng = np.random.default_rng(SEED)
    batches = [case.points[:count] for count in (0, 1, 2, 7, 8, 9, 63, 64, 65, 1023, 1025)]
    batches.append(case.points[rng.integers(0, len(case.points), thinned(matcher_class, soaked(1500, 6000), 6000))])
    batches.append(
        case.points[rng.integers(0, 4, thinned(matcher_class, soaked(1500, 3000), 3000))]
    )  # four points over and over
    batches += [np.sort(case.points, axis=0), case.points[case.points[:, 0].argsort()[::-1]]]
    for points in batches:
        batch = {f"a{axis}": points[:, axis] for axis in range(3)}
        problem = wrong_pairs(matcher.match_batch(batch), pairs_by_force(case.numbers, *case.boxes, points))
        assert not problem, f"{matcher.name}, {len(points)} rows: {problem}"


def test_a_batch_in_which_everything_matches(matcher_class: type[Matcher]) -> None:
    """A million pairs: whoever guesses how many there will be has to guess again."""
    space, rows, count = ints(10, 10), thinned(matcher_class, soaked(400, 2500), 2500), 500
    matcher = matcher_class(space)
    matcher.add_many(np.arange(count)[::-1], (np.zeros((count, 2), np.int64), np.full((count, 2), 9)))
    found = matcher.match_batch({"a0": np.arange(rows) % 10, "a1": np.full(rows, 3)})
    problem = wrong_pairs(found, (np.arange(rows).repeat(count), np.tile(np.arange(count), rows)))
    assert not problem, problem
    assert matcher.match({"a0": 0, "a1": 9}) == list(range(count))


def test_batches_in_every_form(matcher_class: type[Matcher]) -> None:
    """Arrow in chunks, slices with a stride, arrays that cannot be written, names in any case, columns to spare."""
    space = Space.parse("x int not null 0..99, y int 0..99")
    matcher = matcher_class(space)
    rng = np.random.default_rng(SEED)
    low = rng.integers(0, 60, (80, 2))
    high = low + rng.integers(0, 39, low.shape)
    matcher.add_many(np.arange(80), (low, high))
    points = rng.integers(0, 100, (300, 2))
    expected = pairs_by_force(np.arange(80), low, high, points)
    x, y = (np.ascontiguousarray(points[:, axis]) for axis in (0, 1))
    frozen = x.copy()
    frozen.flags.writeable = False
    wide = np.stack([x, y, x], axis=1).repeat(2, axis=0)
    table = pa.table({"x": x, "y": y})
    forms: dict[str, Any] = {
        "arrays": {"x": x, "y": y},
        "other order and case": {"Y": y, "z": y, "X": x},
        "lists": {"x": x.tolist(), "y": y.tolist()},
        "small ints": {"x": x.astype(np.int8), "y": y.astype(np.uint16)},
        "strided": {"x": wide[::2, 0], "y": wide[::2, 1]},
        "backwards": {"x": x[::-1].copy()[::-1], "y": y},
        "read-only": {"x": frozen, "y": pa.array(y)},
        "a table": table,
        "a record batch": table.to_batches()[0],
        "chunks": pa.concat_tables([table.slice(0, 1), table.slice(1, 170), table.slice(171)]),
    }
    for form, events in forms.items():
        problem = wrong_pairs(matcher.match_batch(events), expected)
        assert not problem, f"{matcher.name}, {form}: {problem}"
    view = matcher.view()
    for columns in ([wide[::2, 0], wide[::2, 1]], [frozen, y], (x, y)):
        assert not wrong_pairs(view.match_points(columns), expected)
    for point in ((int(x[0]), int(y[0])), [int(x[0]), int(y[0])]):
        assert view.match_point(point) == expected[1][expected[0] == 0].tolist()
    assert np.array_equal(x, points[:, 0]) and np.array_equal(y, points[:, 1])  # nobody wrote to them


def test_events_that_do_not_fit(matcher_class: type[Matcher]) -> None:
    space = Space.parse("x int not null 0..9, name string")
    matcher = matcher_class(space)
    matcher.add(1, space.where("x < 5"))
    bad: list[Any] = [{"x": 10}, {"x": None}, {}, {"x": "five"}]
    for event in bad:
        with pytest.raises(CallerError):
            matcher.match(event)
    bad = [{"x": [1, 10]}, {"x": [None]}, [{"x": 1}], {"x": [1], "name": ["a", "b"]}, {"name": ["a"]}]
    for events in bad:
        with pytest.raises(CallerError):
            matcher.match_batch(events)
    assert matcher.match({"x": 4, "other": 3}) == [1]


# --- Errors ----------------------------------------------------------------------------------------------------------


def test_errors_change_nothing(matcher_class: type[Matcher]) -> None:
    """All or nothing: who calls again with the batch mended must not meet half of it."""
    space, other = Space.parse("a int 0..9, b int not null 0..9"), ints(9, 9)
    matcher = matcher_class(space)
    matcher.add_many([7, 8], [space.where("a < 5"), space.where("b = 2 OR b = 4 AND a = 1")])
    some, stranger = space.where("b < 3"), other.where("a0 < 3")
    low, high = np.zeros((2, 2), np.int64), np.full((2, 2), 9)
    beyond, before = high.copy(), low.copy()
    beyond[1, 0], before[1, 1] = 10, -1  # NULL is at -1, but only in the first attribute
    bad: dict[str, tuple[Any, Any]] = {
        "taken": ([1, 7], [some, some]),
        "taken, arrays": (np.array([1, 7]), (low, high)),
        "twice": ([1, 2, 1], [some] * 3),
        "twice, arrays": (np.array([1, 1]), (low, high)),
        "negative": ([1, -1], [some, some]),
        "negative, arrays": (np.array([1, -1]), (low, high)),
        "another space": ([1, 2], [some, stranger]),
        "no region": ([1, 2], [some, "b < 3"]),
        "too few regions": ([1, 2], [some]),
        "too many regions": ([1], [some, some]),
        "too few boxes": ([1, 2, 3], (low, high)),
        "too many boxes": ([1], (low, high)),
        "low and high differ": ([1, 2], (low, high[:1])),
        "too few attributes": ([1, 2], (low[:, :1], high[:, :1])),
        "too many attributes": ([1, 2], (np.zeros((2, 3), np.int64), np.full((2, 3), 9))),
        "flat": ([1, 2], (low[0], high[0])),
        "beyond the axis": ([1, 2], (low, beyond)),
        "before the axis": ([1, 2], (before, high)),
    }
    view = matcher.view()
    for what, (numbers, regions) in bad.items():
        with pytest.raises(CallerError):
            matcher.add_many(numbers, regions)
            pytest.fail(f"{matcher.name} takes a batch: {what}")
        assert len(matcher) == 2 and not any(number in matcher for number in (-1, 1, 2, 3)), what
        for each in (matcher.view(), view):
            assert each.match_point([1, 2]) == [7, 8] and each.match_point([6, 6]) == [], what
        matcher.check_invariants()
    for number, region in ((7, some), (-1, some), (1, stranger)):
        with pytest.raises(CallerError):
            matcher.add(number, region)
    with pytest.raises(CallerError):
        matcher.meeting(stranger)
    matcher.add_many([1, 2], (low, high))
    assert matcher.match({"a": 6, "b": 6}) == [1, 2] and len(matcher) == 4
    matcher.check_invariants()


def test_spaces_that_are_equal_mix(matcher_class: type[Matcher]) -> None:
    """Regions of an equal space, which has met other strings: its coordinates are not ours."""
    text = "name string, size int 0..9"
    space, equal = Space.parse(text), Space.parse(text)
    equal.where("name IN ('zebra', 'yak', 'ox')")
    matcher = matcher_class(space)
    matcher.add(1, equal.where("name = 'ox' AND size < 5"))
    matcher.add_many([2, 3], [equal.where("name >= 'ox' OR size = 0"), space.where("name < 'p'")])
    events = {"name": ["ox", "oxen", "p", "a", None, "ox"], "size": [1, 1, 9, 0, 0, 9]}
    rows, numbers = matcher.match_batch(events)
    assert list(zip(rows.tolist(), numbers.tolist(), strict=True)) == [
        (0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 2), (3, 2), (3, 3), (4, 2), (5, 2), (5, 3),
    ]  # fmt: skip
    assert matcher.match({"name": "ox", "size": 4}) == [1, 2, 3]
    assert matcher.meeting(equal.where("name = 'ox' AND size > 6")) == [2, 3]
    assert matcher.meeting(equal.where("name > 'q'")) == [2]
    matcher.check_invariants()


def test_arrays_belong_to_the_caller(matcher_class: type[Matcher]) -> None:
    """Any layout and any width of ints; written over afterwards."""
    space, low, high = scattered(np.random.default_rng(SEED), 3, 200, 0.3)
    points = telling_points(np.random.default_rng(SEED), space, low, high)
    expected = pairs_by_force(np.arange(200), low, high, points)
    forms: list[tuple[Any, Any]] = [(low.copy(), high.copy()), (np.asfortranarray(low), high[::-1].copy()[::-1])]
    forms.append((low.astype(np.int32), high.astype(np.int16)))
    for given_low, given_high in forms:
        matcher, numbers = matcher_class(space), np.arange(200)
        matcher.add_many(numbers, (given_low, given_high))
        for each in (numbers, given_low, given_high):
            each[:] = 0
        rows, found = matcher.match_batch({f"a{axis}": points[:, axis] for axis in range(3)})
        assert not wrong_pairs((rows, found), expected)
        matcher.check_invariants()


# --- Regions come and go ---------------------------------------------------------------------------------------------

LIMIT = 6000  # numbers in play


@dataclass
class Mover:
    """Changes a matcher at random and keeps the books."""

    matcher: Matcher
    pool: Pool
    random: Random
    plain: tuple[Coordinates, Coordinates, Mask] | None = None  # boxes to add as arrays, and the events inside

    def __post_init__(self) -> None:
        self.ledger = Ledger(len(self.pool.events), LIMIT)

    def grow(self) -> None:
        count = self.random.choice((1, 2, 7, 60, 250, 500))
        free = [number for number in range(LIMIT) if number not in self.ledger.members]
        numbers = self.random.sample(free, min(count, len(free)))
        if self.plain is not None and self.random.random() < 0.7:
            low, high, mask = self.plain
            chosen = [self.random.randrange(len(low)) for _ in numbers]
            self.matcher.add_many(np.array(numbers, np.int64), (low[chosen], high[chosen]))
            self.ledger.add(numbers, mask[:, chosen])
            return
        chosen = [self.random.randrange(len(self.pool.regions)) for _ in numbers]
        if count < 10:
            for number, position in zip(numbers, chosen, strict=True):
                self.matcher.add(number, self.pool.regions[position])
        else:
            self.matcher.add_many(numbers, [self.pool.regions[position] for position in chosen])
        self.ledger.add(numbers, self.pool.mask[:, chosen])

    def shrink(self) -> None:
        members = list(self.ledger.members)
        count = min(len(members), self.random.choice((1, 5, 40, 300, 700)))
        kinds = (members[:count], members[len(members) - count :], self.random.sample(members, count))
        for number in self.random.choice(kinds):
            self.matcher.discard(number)
            self.ledger.discard(number)

    def clear(self) -> None:
        """All but a few."""
        for number in list(self.ledger.members)[3:]:
            self.matcher.discard(number)
            self.ledger.discard(number)

    def refuse(self) -> None:
        """A batch whose last number is taken."""
        taken = next(iter(self.ledger.members), -1)
        free = next(number for number in range(LIMIT) if number not in self.ledger.members)
        with pytest.raises(CallerError):
            self.matcher.add_many([free, taken], self.pool.regions[:2])

    def check(self, where: str) -> None:
        """All events in one batch, and one alone."""
        problem = wrong_pairs(self.matcher.match_batch(self.pool.table), self.ledger.pairs())
        assert not problem, f"{where}: {problem}"
        row = self.random.randrange(len(self.pool.events))
        problem = wrong_numbers(self.matcher.match(self.pool.events[row]), self.ledger.numbers_of(row))
        assert not problem, f"{where}, {self.pool.events[row]}: {problem}"
        assert len(self.matcher) == len(self.ledger.members), where
        for number in self.random.choices(range(LIMIT), k=10):
            assert (number in self.matcher) == (number in self.ledger.members), f"{where}: {number}"


@cache
def moving_boxes() -> tuple[Pool, tuple[Coordinates, Coordinates, Mask]]:
    """Unions of boxes to add as regions, and plain boxes to add as arrays."""
    space = Space.parse("a int not null 0..999, b int 0..999, c int not null, d double not null 0..1")
    rng = np.random.default_rng(SEED)
    axis = space.attributes[3].axis
    choices: list[Any] = [range(1000), range(-1, 1000), [INT_MIN, -5, 0, 5, 10**9, INT_MAX]]
    choices.append([axis.encode(at) for at in (0.0, 0.1, 0.5, 1.0)])
    ends = np.stack([rng.choice(np.array(each, np.int64), (2, 8000)) for each in choices], axis=-1)
    low, high = ends.min(axis=0), ends.max(axis=0)
    points = telling_points(rng, space, low[:40], high[:40])
    points = points[rng.permutation(len(points))[:120]]
    pool = box_pool(rng, space, (low, high), points)
    assert 0.02 < pool.mask.mean() < 0.5
    return pool, (low, high, inside(low, high, points))


@pytest.mark.parametrize("run", range(soaked(1, 2)))
def test_thousands_come_and_go(matcher_class: type[Matcher], run: int) -> None:
    """Arrays, regions, single ones and departures in any order; a view goes on to see its own moment."""
    pool, plain = moving_boxes()
    mover = Mover(matcher_class(pool.space), pool, Random(f"{SEED}/{run}"), plain)
    matcher, ledger, random = mover.matcher, mover.ledger, mover.random
    views: list[tuple[int, View, Pairs]] = []
    columns = pool.space.encode_batch(pool.table)
    most = 0
    for step in range(thinned(matcher_class, 25, soaked(70, 100))):
        where = f"{matcher.name}, run {run}, step {step}, {len(ledger.members)} members"
        if step % 40 == 30:
            mover.clear()
        elif random.random() < 0.7:
            mover.grow()
        else:
            mover.shrink()
        most = max(most, len(ledger.members))
        if step % 3 == 0:
            mover.check(where)
        if step % 10 == 0:
            mover.refuse()
            matcher.check_invariants()
            mover.check(where)
            views.append((step, matcher.view(), ledger.pairs()))
        if views and step % 4 == 0:
            taken, view, expected = random.choice(views)
            problem = wrong_pairs(view.match_points(columns), expected)
            assert not problem, f"{where}: the view of step {taken}: {problem}"
    for taken, view, expected in views:
        problem = wrong_pairs(view.match_points(columns), expected)
        assert not problem, f"{matcher.name}, run {run}: at the end the view of step {taken}: {problem}"
    assert most > 1000


@pytest.mark.parametrize("which", [1, 2])
def test_clauses_come_and_go_while_strings_move(matcher_class: type[Matcher], which: int) -> None:
    """Strings are numbered anew, and new ones mentioned, between any two operations."""
    text = MIXED_SPACES[which]
    pool = mixed_pool(text)
    space = pool.space
    mover = Mover(matcher_class(space), pool, Random(f"{SEED}/{text}"))
    matcher, ledger, random = mover.matcher, mover.ledger, mover.random
    moved = 0
    for step in range(thinned(matcher_class, soaked(12, 16), soaked(25, 40))):
        where = f"{matcher.name}, {text}, step {step}, {len(ledger.members)} members"
        mover.shrink() if random.random() < 0.35 else mover.grow()
        if random.random() < 0.4:
            view, expected = matcher.view(), ledger.pairs()
            space.where(f"name IN ('ab{step}', 'b{step}') OR name LIKE 'c{step}%'")
            if view.string_codes is space.string_codes:  # cut further, but numbered as before
                problem = wrong_pairs(view.match_points(space.encode_batch(pool.table)), expected)
                assert not problem, f"{where}: a view from before new strings: {problem}"
        if random.random() < 0.4:
            view = matcher.view()
            number_anew(space)
            moved += 1
            assert view.string_codes is not space.string_codes
            assert matcher.view().string_codes is space.string_codes
        if random.random() < 0.5:
            mover.check(where)
        if step % 12 == 0:
            matcher.check_invariants()
            mover.check(where)
    mover.check(f"{matcher.name}, {text}, at the end")
    assert moved > 3


# --- Views -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["scattered", "every type", "watchlists"])
def test_a_view_never_changes(matcher_class: type[Matcher], name: str) -> None:
    """Not while everything that it shows goes, and others come under the same numbers."""
    case = boxes("4 attributes") if name == "scattered" else clauses(name)
    matcher = filled(matcher_class, case)
    empty, view = matcher_class(case.space).view(), matcher.view()
    columns, asked = case.space.encode_batch(case.table), case.regions[1]
    meeting = view.meeting(asked)
    later: list[View] = []
    more = range(10**6, 10**6 + thinned(matcher_class, soaked(100, 300), soaked(700, 1500)))
    for _ in range(3):
        for number in case.numbers.tolist():
            matcher.discard(number)
        assert len(matcher) == 0
        later.append(matcher.view())
        matcher.add_many(case.numbers, [Region.everything(case.space)] * len(case.regions))
        matcher.add_many(more, case.regions[:1] * len(more))
        later.append(matcher.view())
        for number in more:
            matcher.discard(number)
    matcher.check_invariants()
    assert not wrong_pairs(view.match_points(columns), case.pairs)
    assert view.meeting(asked) == meeting
    for row in case.singles(20):
        point = [int(column[row]) for column in columns]
        assert not wrong_numbers(view.match_point(point), case.numbers_of(row))
        for number, each in enumerate(later):
            assert len(each.match_point(point)) >= len(case.numbers) * (number % 2)
            assert number % 2 or each.match_point(point) == []
    assert not wrong_pairs(empty.match_points(columns), NONE)
    assert not wrong_pairs(later[0].match_points(columns), NONE)


def test_a_view_outlives_its_matcher(matcher_class: type[Matcher]) -> None:
    case = boxes("257 boxes")
    view = filled(matcher_class, case, "arrays").view()
    assert not wrong_pairs(view.match_points(case.space.encode_batch(case.table)), case.pairs)


# --- Threads ---------------------------------------------------------------------------------------------------------


@contextmanager
def hasty_switches() -> Iterator[None]:
    """Threads take turns more often, in the middle of more things."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def together(jobs: Sequence[Callable[[], None]]) -> None:
    """Run all at once; the first exception is raised here."""
    errors: list[BaseException] = []

    def guarded(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    with hasty_switches():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]


@dataclass
class Writer:
    """The one writer. `states` are the regions (by position in the pool) under each number, -1 for none, of every
    version that was begun; `done` is the last one that is complete. An answer that took from `done` to the last one
    begun must be that of a version between."""

    matcher: Matcher
    pool: Pool
    numbers: int = 400

    def __post_init__(self) -> None:
        self.random = Random(SEED)
        self.states = [np.full(self.numbers, -1)]
        self.done = 0
        self.finished = False
        self.add(150)

    def add(self, count: int) -> None:
        free = np.flatnonzero(self.states[-1] < 0).tolist()
        chosen = self.random.sample(free, min(count, len(free)))
        regions = [self.random.randrange(len(self.pool.regions)) for _ in chosen]
        state = self.states[-1].copy()
        state[chosen] = regions
        self.states.append(state)
        if len(chosen) == 1:
            self.matcher.add(chosen[0], self.pool.regions[regions[0]])
        else:
            self.matcher.add_many(chosen, [self.pool.regions[position] for position in regions])
        self.done = len(self.states) - 1

    def discard(self) -> None:
        state = self.states[-1].copy()
        number = self.random.choice(np.flatnonzero(state >= 0).tolist() or [0])
        state[number] = -1
        self.states.append(state)
        self.matcher.discard(number)
        self.done = len(self.states) - 1

    def run(self, rounds: int, answers: Sized) -> None:
        """Between any two rounds of updates the readers give some answers more."""
        try:
            for number in range(rounds):
                if number % 2:
                    self.add(self.random.choice((1, 40, 120)))
                for _ in range(self.random.choice((1, 10, 60))):
                    self.discard()
                if self.pool.space.string_codes and number % 6 == 0:
                    self.pool.space.where(f"name = 'ab{number}'")
                    number_anew(self.pool.space)
                wanted, stop = len(answers) + 6, time.monotonic() + 0.1
                while len(answers) < wanted and time.monotonic() < stop:
                    time.sleep(0.0005)
        finally:
            self.finished = True


@pytest.mark.parametrize("kind", ["boxes", "strings"])
def test_four_threads_match_while_one_writes(matcher_class: type[Matcher], kind: str) -> None:
    pool = moving_boxes()[0] if kind == "boxes" else mixed_pool(MIXED_SPACES[1])
    matcher = matcher_class(pool.space)
    writer = Writer(matcher, pool)
    assert len(matcher.match_batch(pool.table)[0]) > 0  # kernels are compiled by now
    records: list[tuple[int, int, int, Any]] = []  # done before, begun after, row or -1 for the batch, answer

    def read(seed: int) -> None:
        random = Random(seed)
        while not writer.finished:
            row = -1 if random.random() < 0.2 else random.randrange(len(pool.events))
            done = writer.done
            answer = matcher.match_batch(pool.table) if row < 0 else matcher.match(pool.events[row])
            records.append((done, len(writer.states) - 1, row, answer))

    together([lambda: writer.run(soaked(12, 20), records), *(lambda seed=seed: read(seed) for seed in range(4))])
    matcher.check_invariants()
    mask = np.concatenate([pool.mask, np.zeros((len(pool.events), 1), np.bool_)], axis=1)  # of -1: nothing

    def same(answer: Any, expected: Any) -> bool:
        if isinstance(answer, list):
            return answer == expected
        return np.array_equal(answer[0], expected[0]) and np.array_equal(answer[1], expected[1])

    @cache
    def truth(version: int, row: int) -> Any:
        state = writer.states[version]
        return np.nonzero(mask[:, state]) if row < 0 else np.flatnonzero(mask[row, state]).tolist()

    for done, begun, row, answer in records:
        right = any(same(answer, truth(version, row)) for version in range(done, begun + 1))
        where = f"{matcher.name}, {kind}, row {row}, at no version of {done}..{begun}"
        assert right, f"{where}; at the first {(wrong_pairs if row < 0 else wrong_numbers)(answer, truth(done, row))}"
    assert len({done for done, _, _, _ in records}) > 10
    assert any(begun > done for done, begun, _, _ in records)
    assert {row < 0 for _, _, row, _ in records} == {True, False}


def test_four_threads_share_a_view(matcher_class: type[Matcher]) -> None:
    """No scratch space of one call is written by another."""
    case = boxes("slabs")
    view, columns = filled(matcher_class, case).view(), case.space.encode_batch(case.table)

    def read(seed: int) -> None:
        for row in Random(seed).sample(range(len(case.events)), soaked(25, 60)):
            problem = wrong_numbers(view.match_point([int(column[row]) for column in columns]), case.numbers_of(row))
            assert not problem, f"row {row}: {problem}"
            if row % 10 == 0:
                part = [column[row:] for column in columns]
                mine = case.pairs[0] >= row
                assert not wrong_pairs(view.match_points(part), (case.pairs[0][mine] - row, case.pairs[1][mine]))

    together([lambda seed=seed: read(seed) for seed in range(4)])


# --- meeting ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["4097 boxes", "8 attributes", "nested", "cells", "slabs", "far", "outlier", "some_empty", "few_of_twenty"]
)
def test_boxes_that_meet(matcher_class: type[Matcher], name: str) -> None:
    case = boxes(name)
    if needlessly_slow(matcher_class, case):
        return
    assert case.boxes is not None and case.points is not None
    matcher = filled(matcher_class, case, "arrays")
    low, high = case.boxes
    rng = np.random.default_rng(SEED)
    asked = [(low[at], high[at]) for at in rng.integers(0, len(low), 12)]
    asked += [(point, point) for point in case.points[rng.integers(0, len(case.points), 10)]]
    asked += [(np.minimum(*ends), np.maximum(*ends)) for ends in case.points[rng.integers(0, len(case.points), (8, 2))]]
    asked.append((case.space.low[0], case.space.high[0]))
    for least, most in asked[:: thinned(matcher_class, 5, 1)]:
        meet = (low <= most).all(axis=1) & (high >= least).all(axis=1) & (low <= high).all(axis=1)
        expected = sorted(case.numbers[meet & bool((least <= most).all())].tolist())
        found = matcher.meeting(region_of_boxes(case.space, least[None], most[None]))
        problem = wrong_numbers(found, expected)
        assert not problem, f"{matcher.name}, {name}, {least}..{most}: {problem}"
    assert matcher.meeting(Region.nothing(case.space)) == []


@cache
def meetings(name: str) -> tuple[list[Region], list[list[int]]]:
    """Questions, and the numbers of the regions without balls that have a point in common with each."""
    case = clauses(name)
    random = Random(f"{SEED}/{name}")
    plain = [(number, r) for number, r in zip(case.numbers.tolist(), case.regions, strict=True) if not r.has_balls]
    short = [r for _, r in plain if all(len(side) < 1000 for term in r.terms for _, side in term.sides)]
    count = soaked(4, 6)
    asked = random.choices(short, k=count)
    asked += [one & other for one, other in zip(asked, random.choices(short, k=count), strict=True)]
    for event in random.choices(case.events, k=count):
        point = np.array([case.space.encode(event)])
        asked.append(region_of_boxes(case.space, point, point))
    return asked, [sorted(number for number, r in plain if not (r & question).is_empty) for question in asked]


@pytest.mark.parametrize("name", list(CLAUSES))
def test_regions_that_meet(matcher_class: type[Matcher], name: str) -> None:
    """Exact, but that a region with balls may be named too."""
    case = clauses(name)
    matcher = filled(matcher_class, case)
    round_ones = {number for number, r in zip(case.numbers.tolist(), case.regions, strict=True) if r.has_balls}
    asked, expected = meetings(name)
    step = thinned(matcher_class, soaked(3, 1), 1)
    for question, numbers in zip(asked[::step], expected[::step], strict=True):
        found = matcher.meeting(question)
        assert found == sorted(set(found)) and set(found) <= set(case.numbers.tolist())
        problem = wrong_numbers([number for number in found if number not in round_ones], numbers)
        assert not problem, f"{matcher.name}, {name}, {question.to_sql():.300}: {problem}"
    assert matcher.view().meeting(asked[0]) == matcher.meeting(asked[0])
    named = sum(map(len, expected)) / (len(asked) * (len(case.regions) - len(round_ones)))
    assert 0.05 < named < 0.95, f"{name}: {named}"


def test_balls_that_meet(matcher_class: type[Matcher]) -> None:
    """Whoever shares an event with the question is named; some who only come near may be."""
    for name in ("balls", "every type"):
        case = clauses(name)
        matcher = filled(matcher_class, case)
        mask = np.zeros((len(case.events), int(case.numbers.max()) + 1), np.bool_)
        mask[case.pairs] = True
        step = thinned(matcher_class, soaked(5, 1), soaked(2, 1))
        for number, region in zip(case.numbers.tolist()[::step], case.regions[::step], strict=True):
            if region.has_balls:
                found = matcher.meeting(region)
                missing = set(np.flatnonzero(mask[mask[:, number]].any(axis=0)).tolist()) - set(found)
                assert not missing, f"{matcher.name}, {name}, {region.to_sql()}: {missing} share an event with it"
                assert found == sorted(set(found)) and set(found) <= set(case.numbers.tolist())


# --- Memory ----------------------------------------------------------------------------------------------------------


def comes_and_goes(matcher: Matcher, data: tuple[Coordinates, Coordinates], stay: int, more: int) -> tuple[int, int]:
    """Fill, let all but some go, add a few more: nbytes when full and in the end."""
    low, high = data
    count = len(low) - more
    for start in range(0, count, 1000):
        chunk = slice(start, min(start + 1000, count))
        matcher.add_many(np.arange(count)[chunk], (low[chunk], high[chunk]))
    full = matcher.nbytes
    for number in np.random.default_rng(SEED).permutation(count)[stay:].tolist():
        matcher.discard(number)
    for number in range(count, len(low)):
        matcher.add_many([number], (low[[number]], high[[number]]))
    assert len(matcher) == stay + more
    return full, matcher.nbytes


def test_memory_is_given_back(matcher_class: type[Matcher]) -> None:
    count, more = thinned(matcher_class, soaked(1000, 2000), soaked(10_000, 20_000)), thinned(matcher_class, 30, 300)
    space, low, high = scattered(np.random.default_rng(SEED), 4, count + more, 0.2)
    matcher = matcher_class(space)
    full, end = comes_and_goes(matcher, (low, high), 5, more)
    assert end <= full / 10, f"{matcher.name}: {full:,} bytes when full, {end:,} with {len(matcher)} boxes left"
    assert full > 0 or matcher.name == "scan"
    matcher.check_invariants()
    kept = np.array([number for number in range(len(low)) if number in matcher])
    points = telling_points(np.random.default_rng(SEED), space, low[kept], high[kept])
    problem = wrong_pairs(
        matcher.match_batch({f"a{axis}": points[:, axis] for axis in range(4)}),
        pairs_by_force(kept, low[kept], high[kept], points),
    )
    assert not problem, problem


def test_what_is_given_back_is_free(matcher_class: type[Matcher]) -> None:
    """`nbytes` is what a matcher says of itself; this is what Python and NumPy allocated, exact bounds and all."""
    count = thinned(matcher_class, 700, soaked(2600, 5100))
    space, low, high = scattered(np.random.default_rng(SEED), 4, count, 0.2)
    comes_and_goes(matcher_class(space), (low, high), 5, 100)  # whatever is compiled or cached, is so by now
    matcher = matcher_class(space)
    tracemalloc.start()
    try:
        matcher.add_many(np.arange(len(low)), (low, high))
        full = tracemalloc.get_traced_memory()[0]
        for number in range(5, len(low)):
            matcher.discard(number)
        for number in range(10**5, 10**5 + 100):
            matcher.add_many([number], (low[:1], high[:1]))
        gc.collect()
        end = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert end < full / 4, f"{matcher.name}: {full:,} bytes when full, {end:,} with {len(matcher)} boxes left"


@pytest.mark.parametrize("batches", [1, 20])
def test_bytes_a_box(batches: int) -> None:
    space, low, high = scattered(np.random.default_rng(SEED), 4, 20_000, 0.1)
    matcher = MATCHERS["tree"](space)
    for numbers in np.array_split(np.arange(20_000), batches):
        matcher.add_many(numbers, (low[numbers], high[numbers]))
    assert 20_000 < matcher.nbytes <= 40 * 20_000, f"{matcher.nbytes / 20_000:.1f} bytes a box"
