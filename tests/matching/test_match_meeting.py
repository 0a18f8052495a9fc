"""The contract of match indexes: which regions meet a region."""

from __future__ import annotations

from functools import cache
from random import Random

import numpy as np
import pytest

from helpers.match_contract import boxes, clauses, filled, needlessly_slow, thinned, wrong_numbers
from helpers.match_oracles import CLAUSES, SEED, region_of_boxes
from helpers.strategies import soaked
from thatch.matching.matcher import Matcher
from thatch.region.region import Region


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
