"""The contract of match indexes: batches in every form, and errors that change nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from helpers.cover_oracles import ints
from helpers.match_contract import boxes, filled, thinned, wrong_pairs
from helpers.match_oracles import SEED, pairs_by_force, scattered, telling_points
from helpers.strategies import soaked
from thatch import Space
from thatch.errors import CallerError
from thatch.matching.matcher import Matcher

# --- Batches ----------------------------------------------------------------------------------------------------------


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


# --- Errors -----------------------------------------------------------------------------------------------------------


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
