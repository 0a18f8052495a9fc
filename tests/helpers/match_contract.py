"""The contract of match indexes: how they are filled and asked, and what is wrong about an answer."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from helpers.match_oracles import CLAUSES, Case, Pairs, box_case
from helpers.strategies import soaked
from thatch.matching import MATCHERS
from thatch.matching.matcher import Matcher
from thatch.rivals.counting import CountingMatcher

# Every index that a table may use, and its rivals: all answer the same.
CONTENDERS: dict[str, type[Matcher]] = {**MATCHERS, CountingMatcher.name: CountingMatcher}
SLOW = ("scan", "counting")  # they pay for every region, so some tests give them fewer
NONE: Pairs = (np.zeros(0, np.int64), np.zeros(0, np.int64))


def thinned(matcher_class: type[Matcher], few: int, many: int) -> int:
    return few if matcher_class.name in SLOW else many


@cache
def boxes(name: str) -> Case:
    return box_case(name)


@cache
def clauses(name: str) -> Case:
    return CLAUSES[name]()


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


def wrong_pairs(found: Any, expected: tuple[NDArray[np.integer[Any]], ...]) -> str:
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


def needlessly_slow(matcher_class: type[Matcher], case: Case) -> bool:
    """The scan has no sizes at which it does something else, and is slow; of counting one that is large will do."""
    if matcher_class.name == "counting":
        return len(case.numbers) > 1000 and case.name != "4097 boxes" and not soaked(0, 1)
    return matcher_class.name == "scan" and len(case.numbers) > 1000
