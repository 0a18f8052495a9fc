"""The worst cases: covering is co-NP-complete, so every engine has to give up somewhere; here it has to do so in time.

Each question is answered rightly or not at all (Unproven), within 7 yardsticks (about 20 ms) and with no more than
10 MB of new memory. The truth is known by construction. The engine is filled before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from helpers.cover_oracles import (
    Box,
    arrays,
    guillotine,
    in_box,
    ints,
    pinwheel,
    random_3sat,
    region_of,
    sat_boxes,
    satisfiable,
    satisfies,
    slabs,
    tiling,
    whole,
)
from helpers.strategies import soaked
from helpers.yardstick import yardsticks
from thatch import Space
from thatch.cover import ENGINES, Covered, Uncovered, Unproven, verify
from thatch.region.region import Region

SEED = 20240229
CHECK_MAX = 7.0  # yardsticks
GROWTH_BYTES_MAX = 10 * 2**20
WITNESS_MAX = 1700.0  # yardsticks
PAGE_BYTES = 4096


@dataclass
class Worst:
    """Members, a question, and whether it is covered; `is_witness` knows the points that nobody holds."""

    space: Space
    boxes: list[Box]
    asked: Region
    covered: bool
    is_witness: Callable[[tuple[int, ...]], bool] = lambda point: False


def partition(attributes: int, pieces: int, size: int, gone: bool) -> Worst:
    random, space = Random(f"{SEED}/{attributes}/{pieces}"), ints(*[size] * attributes)
    boxes = guillotine(random, whole(space), pieces)
    random.shuffle(boxes)
    hole = boxes.pop() if gone else None
    return Worst(
        space, boxes, Region.everything(space), not gone, lambda point: hole is not None and in_box(point, hole)
    )


def overlapping_partition(attributes: int, pieces: int, size: int) -> Worst:
    """A partition, each piece widened by one: shares sum to far more than the whole, and nothing is uncovered."""
    worst = partition(attributes, pieces, size, gone=False)
    least, most = whole(worst.space)
    worst.boxes = [
        (
            tuple(max(at - 1, end) for at, end in zip(low, least, strict=True)),
            tuple(min(at + 1, end) for at, end in zip(high, most, strict=True)),
        )
        for low, high in worst.boxes
    ]
    return worst


def tiles(*counts: int, gone: bool, overlap: int = 0) -> Worst:
    space, boxes = tiling(*counts, tile=8)
    hole = boxes.pop(len(boxes) * 5 // 9) if gone else None
    most = whole(space)[1]
    if overlap:
        boxes = [
            (low, tuple(min(at + overlap, end) for at, end in zip(high, most, strict=True))) for low, high in boxes
        ]

    def is_witness(point: tuple[int, ...]) -> bool:
        return hole is not None and in_box(point, hole)

    return Worst(space, boxes, Region.everything(space), not gone, is_witness)


def crossed_slabs(attributes: int, size: int, open_axes: int) -> Worst:
    """Slabs across every attribute; the first `open_axes` of them miss their middle one."""
    middle = size // 2
    space, boxes = slabs([size] * attributes, dict.fromkeys(range(open_axes), middle))
    Random(SEED).shuffle(boxes)
    return Worst(
        space, boxes, Region.everything(space), open_axes < attributes, lambda point: point == (middle,) * attributes
    )


def formula(variables: int, ratio: float, number: int) -> Worst:
    clauses = random_3sat(Random(f"{SEED}/{ratio}/{number}"), variables, int(variables * ratio))
    space = ints(*[2] * variables)
    return Worst(
        space,
        sat_boxes(clauses, variables),
        Region.everything(space),
        not satisfiable(clauses),
        lambda point: satisfies(point, clauses),
    )


def union_of_formulas() -> Worst:
    """A question of hundreds of hard boxes: the budget is of the question, not of each box."""
    clauses = random_3sat(Random(SEED), 40, int(40 * 4.26))
    space = Space.parse(", ".join([f"a{i} int not null 0..1" for i in range(40)] + ["k int not null 0..1500"]))
    boxes = [((*low, 0), (*high, 1500)) for low, high in sat_boxes(clauses, 40)]
    numbers = ", ".join(str(5 * number) for number in range(300))
    return Worst(
        space,
        boxes,
        space.where(f"k IN ({numbers})"),
        not satisfiable(clauses),
        lambda point: satisfies(point, clauses) and point[-1] % 5 == 0,
    )


def pinwheels(count: int) -> Worst:
    """Pinwheels side by side, each in its own attribute pair: a small hole in every pair, and one point in all."""
    _, wheel, _ = pinwheel(1, 4)
    space = ints(*[9] * (2 * count))
    least, most = whole(space)
    boxes = []
    for pair in range(count):
        for low, high in wheel:
            at = 2 * pair
            boxes.append(((*least[:at], *low, *least[at + 2 :]), (*most[:at], *high, *most[at + 2 :])))
    return Worst(space, boxes, Region.everything(space), False, lambda point: point == (4,) * (2 * count))


WORST: dict[str, Callable[[], Worst]] = {
    "guillotine 16-D": lambda: partition(16, 4000, 2**20, gone=False),
    "guillotine 16-D, one gone": lambda: partition(16, 4000, 2**20, gone=True),
    "guillotine 16-D, overlapping": lambda: overlapping_partition(16, 4000, 2**20),
    "guillotine 2-D": lambda: partition(2, 4000, 2**40, gone=False),
    "tiles 2-D": lambda: tiles(64, 64, gone=False),
    "tiles 2-D, one gone": lambda: tiles(64, 64, gone=True),
    "tiles 2-D, overlapping, one gone": lambda: tiles(64, 64, gone=True, overlap=3),
    "tiles 3-D": lambda: tiles(16, 16, 16, gone=False),
    "tiles 3-D, one gone": lambda: tiles(16, 16, 16, gone=True),
    "tiles 3-D, overlapping, one gone": lambda: tiles(16, 16, 16, gone=True, overlap=3),
    "tiles 6-D": lambda: tiles(4, 4, 4, 4, 4, 4, gone=False),
    "tiles 6-D, one gone": lambda: tiles(4, 4, 4, 4, 4, 4, gone=True),
    "tiles 6-D, overlapping, one gone": lambda: tiles(4, 4, 4, 4, 4, 4, gone=True, overlap=3),
    "slabs 2-D": lambda: crossed_slabs(2, 2000, 2),
    "slabs 3-D": lambda: crossed_slabs(3, 1300, 3),
    "slabs 3-D, one attribute closed": lambda: crossed_slabs(3, 1300, 2),
    "slabs 8-D": lambda: crossed_slabs(8, 500, 8),
    "slabs 8-D, one attribute closed": lambda: crossed_slabs(8, 500, 7),
    "pinwheels 16-D": lambda: pinwheels(8),
    "3-SAT 50-D, easy": lambda: formula(50, 2.0, 0),
    "3-SAT 50-D at the threshold, 0": lambda: formula(50, 4.26, 0),
    "3-SAT 50-D at the threshold, 1": lambda: formula(50, 4.26, 1),
    "3-SAT 50-D at the threshold, 2": lambda: formula(50, 4.26, 2),
    "3-SAT 50-D at the threshold, 3": lambda: formula(50, 4.26, 3),
    "3-SAT 50-D, hopeless": lambda: formula(50, 10.0, 0),
    "3-SAT 40-D, 300 times": union_of_formulas,
}


ENOUGH_FOR_ONE = (  # an engine that covers by one has no worst cases: some of each kind will do
    "guillotine 16-D",
    "tiles 6-D, one gone",
    "slabs 8-D",
    "3-SAT 50-D, hopeless",
    "3-SAT 40-D, 300 times",
)


@cache
def worst_case(name: str) -> Worst:
    return WORST[name]()


@cache
def members_of(name: str) -> dict[int, Region]:
    worst = worst_case(name)
    return {position: region_of(worst.space, *box) for position, box in enumerate(worst.boxes)}


@cache
def compiled(name: str) -> None:
    """Load or compile every kernel that a check may call, so that it is not counted."""
    space = ints(9, 9)
    engine = ENGINES[name](space)
    engine.add("a", space.where("a0 < 5"))
    for clause in ("TRUE", "a0 IN (1, 7) OR a1 IN (2, 5)", "a0 < 3"):
        verdict = engine.check(space.where(clause))
        if isinstance(verdict, Uncovered):
            assert verdict.witness


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


OPTIONS: dict[str, dict[str, Any]] = {  # here there would be millions of them
    "negative": {"rectangles_max": 1_000},
    "montecarlo": {"trials_max": 100},
}
CASES = [(name, case) for name in ENGINES for case in (WORST if ENGINES[name].covers_by == "union" else ENOUGH_FOR_ONE)]


@pytest.mark.parametrize(("name", "case"), soaked(CASES[::2], CASES))
def test_a_worst_case_is_decided_or_given_up_in_time(name: str, case: str) -> None:
    compiled(name)
    worst = worst_case(case)
    engine = ENGINES[name](worst.space, **OPTIONS.get(name, {}))
    members = members_of(case)
    engine.load(list(members), list(members.values()))
    before = resident_bytes()
    first = engine.check(worst.asked)  # the very first may allocate, and must not much
    growth = resident_bytes() - before
    verdict = engine.check(worst.asked)
    before = resident_bytes()
    took = yardsticks(lambda: engine.check(worst.asked), CHECK_MAX)
    if engine.may_err != "covered":
        assert type(first) is type(verdict)
        assert isinstance(verdict, Unproven) or isinstance(verdict, Covered) == worst.covered, verdict
    if isinstance(verdict, Covered):
        assert set(verdict.certificate) <= members.keys()
    assert max(growth, resident_bytes() - before) < GROWTH_BYTES_MAX
    assert took < CHECK_MAX
    if isinstance(verdict, Uncovered):
        assert yardsticks(lambda: verdict.witness, WITNESS_MAX, times=1) < WITNESS_MAX
        assert worst.is_witness(verdict.witness)
        assert verify(verdict, worst.asked, members)


def test_a_missing_piece_is_always_found() -> None:
    """A lost piece of a partition shows in the volumes, whatever the number of attributes."""
    for case in ("guillotine 16-D, one gone", "tiles 2-D, one gone", "tiles 6-D, one gone"):
        worst = worst_case(case)
        engine = ENGINES["exact"](worst.space)
        engine.add_many(list(range(len(worst.boxes))), arrays(worst.boxes))
        assert isinstance(engine.check(worst.asked), Uncovered), case


@pytest.mark.long
def test_a_batch_of_worst_cases_takes_no_longer_than_one_by_one() -> None:
    """`add_many` spends its budget for each region anew."""
    worst = worst_case("slabs 8-D")
    engine = ENGINES["exact"](worst.space)
    low, high = arrays(worst.boxes)
    verdicts: list[Any] = []
    most = len(low) * CHECK_MAX
    assert yardsticks(lambda: verdicts.extend(engine.add_many(list(range(len(low))), (low, high))), most, 1) < most
    assert not any(verdicts)
    assert len(engine) == len(low)


def test_the_sat_oracle() -> None:
    """Davis-Putnam against all assignments."""
    for number, ratio in enumerate((3.0, 4.0, 4.3, 5.0, 6.0, 9.0)):
        clauses = random_3sat(Random(number), 8, int(8 * ratio))
        points = [[(bits >> at) & 1 for at in range(8)] for bits in range(256)]
        assert satisfiable(clauses) == any(satisfies(point, clauses) for point in points)
        boxes = sat_boxes(clauses, 8)
        assert all(satisfies(point, clauses) != any(in_box(point, box) for box in boxes) for point in points)
