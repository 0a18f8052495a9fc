"""Sets of coordinates on one axis, against Python's sets of small ints, and at the ends of int64."""

from __future__ import annotations

import pickle
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.strategies import examples
from thatch.region.intervals import EMPTY, Intervals

LOW, HIGH = -(2**63), 2**63 - 1
small = st.frozensets(st.integers(-6, 6))
edge_ints = st.integers(LOW, LOW + 3) | st.integers(-2, 2) | st.integers(HIGH - 3, HIGH)


def of(points: frozenset[int]) -> Intervals:
    return Intervals.of((point, point) for point in points)


def points_of(intervals: Intervals) -> set[int]:
    return {point for low, high in intervals for point in range(low, high + 1)}


def check_normal_form(intervals: Intervals) -> None:
    pairs = list(intervals)
    assert all(low <= high for low, high in pairs)
    assert all(one[1] + 1 < other[0] for one, other in pairwise(pairs))


@examples(150)
@given(small, small, st.integers(-8, 8), st.integers(-8, 8))
def test_as_sets(one: frozenset[int], other: frozenset[int], low: int, high: int) -> None:
    a, b, span = of(one), of(other), set(range(low, high + 1))
    found = {
        "and": (a & b, one & other),
        "or": (a | b, one | other),
        "minus": (a - b, one - other),
        "within": (a.clipped(low, high), one & span),
        "outside": (a.outside(low, high), span - one),
        "between": (Intervals.between(low, high), span),
    }
    for operation, (intervals, expected) in found.items():
        assert points_of(intervals) == expected, operation
        check_normal_form(intervals)
    assert (a <= b) == (one <= other)
    assert a.isdisjoint(b) == one.isdisjoint(other)
    assert (a == b) == (one == other) and (a != b) == (one != other)
    assert a.count() == len(one)
    assert (low in a) == (low in one)
    if one:
        assert (a.low, a.high) == (min(one), max(one))
    assert list(a.to_numpy()) == [end for pair in a for end in pair]
    assert hash(a) == hash(of(one)) and eval(repr(a), {"Intervals": Intervals}) == a


@examples(100)
@given(st.lists(st.tuples(st.integers(-6, 6), st.integers(-6, 6)), max_size=6))
def test_of_any_pairs(pairs: list[tuple[int, int]]) -> None:
    intervals = Intervals.of(pairs)
    assert points_of(intervals) == {point for low, high in pairs for point in range(low, high + 1)}
    check_normal_form(intervals)
    assert len(intervals) == len(list(intervals))


@examples(100)
@given(
    st.lists(st.tuples(edge_ints, edge_ints), max_size=4),
    st.lists(st.tuples(edge_ints, edge_ints), max_size=4),
    edge_ints,
    edge_ints,
)
def test_at_the_ends_of_int64(one: list[tuple[int, int]], other: list[tuple[int, int]], low: int, high: int) -> None:
    """Against membership, which needs no arithmetic, at every coordinate where it could change."""
    a, b = Intervals.of(one), Intervals.of(other)
    results = [a & b, a | b, a - b, a.clipped(low, high), a.outside(low, high)]
    for result in results:
        check_normal_form(result)
    for point in (*range(LOW, LOW + 6), *range(-4, 5), *range(HIGH - 5, HIGH + 1)):
        in_a = any(first <= point <= last for first, last in one)
        in_b = any(first <= point <= last for first, last in other)
        assert (point in a) == in_a
        inside = low <= point <= high
        expected = [in_a and in_b, in_a or in_b, in_a and not in_b, in_a and inside, inside and not in_a]
        assert [point in result for result in results] == expected
    assert a.count() == sum(last - first + 1 for first, last in a)


def test_the_whole_of_int64() -> None:
    whole = Intervals.between(LOW, HIGH)
    assert whole.count() == 2**64
    assert whole.outside(LOW, HIGH) == EMPTY and EMPTY.outside(LOW, HIGH) == whole
    assert whole - whole == EMPTY and whole & whole == whole | whole == whole
    assert whole - Intervals.between(0, 0) == Intervals.of([(LOW, -1), (1, HIGH)])
    assert (whole - Intervals.between(0, 0)).clipped(LOW, HIGH).count() == 2**64 - 1
    assert LOW in whole and HIGH in whole and LOW not in EMPTY


def test_empty() -> None:
    one = Intervals.between(1, 2)
    assert EMPTY == Intervals.of([]) == Intervals.between(2, 1) and len(EMPTY) == EMPTY.count() == 0
    assert EMPTY.clipped(0, 5) == EMPTY and EMPTY.outside(0, 5) == Intervals.between(0, 5)
    assert EMPTY & one == one & EMPTY == EMPTY and EMPTY | one == one and EMPTY - one == EMPTY and one - EMPTY == one
    assert one >= EMPTY and not one <= EMPTY and EMPTY <= EMPTY and EMPTY.isdisjoint(one) and EMPTY.isdisjoint(EMPTY)
    assert len(EMPTY.to_numpy()) == 0


def test_beyond_int64_is_an_error() -> None:
    with pytest.raises(OverflowError):
        Intervals.between(0, 2**63)


def test_copies_are_equal() -> None:
    one = Intervals.of([(1, 2), (5, 6)])
    assert pickle.loads(pickle.dumps(one)) == one
