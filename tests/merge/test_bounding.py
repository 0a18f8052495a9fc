"""The least term around two, and the passes that look for pairs, against points and plain twins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.cover_oracles import Box, ints, region_of
from helpers.strategies import boxes_of, examples, soaked
from thatch import Space
from thatch.merge import pairs
from thatch.merge.bounding import around, side_around
from thatch.merge.pairs import Pairs
from thatch.region.intervals import Intervals
from thatch.region.region import Region
from thatch.region.term import Term

SIZES = (6, 5, 4)
SPACE = ints(*SIZES)


def test_bounding_terms() -> None:
    space = Space.parse("x int 0..99, kind enum('a','b','c','d') not null, z double not null 0..1000")
    x, kind, _ = space.attributes

    def around_x(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> list[tuple[int, int]]:
        return list(side_around(Intervals.of(one), Intervals.of(other), x))

    assert around_x([(1, 2)], [(5, 6)]) == [(1, 6)]
    assert around_x([(1, 1), (90, 90)], [(2, 2), (90, 90)]) == [(1, 2), (90, 90)]
    assert around_x([(1, 1), (50, 50)], [(4, 4), (90, 90)]) == [(1, 4), (50, 90)]  # the widest gap stays
    assert around_x([(-1, -1)], [(5, 6)]) == [(-1, -1), (5, 6)]  # NULL is no neighbour
    assert around_x([(-1, 2)], [(5, 6)]) == [(-1, 6)]
    assert list(side_around(Intervals.of([(0, 0)]), Intervals.of([(3, 3)]), kind)) == [(0, 0), (3, 3)]
    one, other = (space.where(clause).terms[0] for clause in ("x < 4", "x < 5 AND kind = 'a'"))
    bound = around(one, other, space)
    assert (bound.one, bound.other, bound.both) == (4 / 5, 1 / 4, 4 / 5 / 4)


@given(st.lists(boxes_of(SIZES), min_size=2, max_size=12), st.sampled_from([0.0, 0.5, 0.9]))
@examples(soaked(60, 1_000))
def test_passes_against_plain_twins(boxes: list[Box], least: float) -> None:
    found = Pairs(SPACE)
    terms = [region_of(SPACE, *box).terms[0] for box in boxes]
    slots = [found.put(term, 1.0) for term in terms]
    gone = slots.pop()
    found.drop(gone)
    terms.pop()
    outer, inner = found.nested(0)
    assert outer == [slot for slot in slots[1:] if terms[0].is_inside(terms[slot])]
    assert inner == [slot for slot in slots[1:] if terms[slot].is_inside(terms[0])]
    costs = {slot: around(terms[0], terms[slot], SPACE) for slot in slots[1:]}
    fitting = [slot for slot, bound in costs.items() if bound.filled(1.0, 1.0) >= least * (1 - 1e-9)]
    expected = sorted(costs[slot].cost for slot in fitting)[: pairs.FOUND_MAX]
    asked = found.fullest(0, least)
    assert set(asked) <= set(fitting)
    assert [costs[slot].cost for slot in asked] == pytest.approx(expected)


@given(*[st.lists(st.tuples(st.integers(-1, 9), st.integers(-1, 9)), min_size=1, max_size=4)] * 2)
@examples(60)
def test_shares_are_those_of_points(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    space = Space.parse("x int 0..9")
    sides = [Intervals.of((min(pair), max(pair)) for pair in drawn) for drawn in (one, other)]
    first, second = (Region(space, [Term(((0, side),))]).terms[0] for side in sides)
    if any(side.count() == 11 for side in sides):  # a whole axis is no side
        return
    bound = around(first, second, space)
    points = [at for at in range(-1, 10) if bound.term.contains([at], space)]
    left, right = ([first.contains([at], space) for at in points], [second.contains([at], space) for at in points])
    assert sum(left) == sides[0].count() and sum(right) == sides[1].count()
    assert bound.one == pytest.approx(np.mean(left)) and bound.other == pytest.approx(np.mean(right))
    assert bound.both == pytest.approx(np.mean(np.logical_and(left, right)))
