"""Tables of cells against sets of cells; the index in front of engines; the ways to many attributes; their choice."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pytest

from helpers.cover_oracles import ints, recode
from helpers.match_oracles import inside, pairs_by_force
from thatch import Space
from thatch.cover import CellIndex, CellTable, Covered, engine, verify
from thatch.cover.cells import cells_around
from thatch.errors import CallerError
from thatch.grid.choice import choose_attributes
from thatch.grid.curve import CURVES, cells_at
from thatch.grid.grid import Grid
from thatch.matching import HilbertMatcher
from thatch.region.region import Region
from thatch.space.arrays import Ints

SEED = 20240229
SPACES = [
    "x int not null 0..7, y int not null 0..7",
    "x int 0..20, y double not null 0..1, z bool",
    "x int not null 0..999, y int 0..9, name string",
]


def numbers_of(ranges: Ints) -> set[int]:
    return {number for first, last in ranges.tolist() for number in range(first, last + 1)}


def are_apart(ranges: Ints) -> bool:
    pairs = ranges.tolist()
    return all(first <= last for first, last in pairs) and all(b + 1 < c for (_, b), (c, _) in pairwise(pairs))


def random_clause(random: Random, space: Space) -> str:
    """Boxes, unions of boxes, holes."""
    x = sorted(random.choices(range(space.attributes[0].first, space.attributes[0].last + 1), k=2))
    parts = [f"x BETWEEN {x[0]} AND {x[1]}"]
    kind = space.attributes[1].axis.__class__.__name__
    y = sorted((random.random(), random.random())) if kind == "DoubleAxis" else sorted(random.choices(range(10), k=2))
    parts.append(f"y BETWEEN {y[0]} AND {y[1]}")
    text = " AND ".join(random.sample(parts, random.randint(1, 2)))
    if random.random() < 0.3:
        text = f"({text}) OR x = {random.choice(x)} AND y <> {y[0]}"
    return text


def cells_by_force(grid: Grid, region: Region) -> set[int]:
    """All cells of the grid that a term's sides meet, one cell at a time. Cells behind the last one are of nobody."""
    bits, count = grid.bits, len(grid.attributes)
    cells = np.zeros((1 << (bits * count), count), np.int64)
    cells_at(grid.path, np.arange(len(cells)), cells)
    found = set[int]()
    for low, high in zip(*region.boxes(), strict=True):
        held = np.ones(len(cells), np.bool_)
        for place, (at, starts) in enumerate(zip(grid.attributes, grid.starts, strict=True)):
            ends = np.r_[starts[1:] - 1, grid.space.attributes[at].last]
            meets = np.zeros(1 << bits, np.bool_)
            meets[: len(starts)] = (starts <= high[at]) & (low[at] <= ends)
            meets[len(starts) :] = high[at] == grid.space.attributes[at].last
            held &= meets[cells[:, place]]
        found.update(np.flatnonzero(held).tolist())
    return found


# --- The table of a link ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", SPACES)
@pytest.mark.parametrize("curve", CURVES)
def test_what_is_sent_is_what_is_held(text: str, curve: str) -> None:
    """Come and go in any order: forwarded without withdrawn is the cells of all that are there, by brute force."""
    space, random = Space.parse(text), Random(f"{SEED}/{text}/{curve}")
    grid = Grid(space, ["x", "y"], bits=3, path=curve)
    table, held, sent = CellTable(grid), dict[int, set[int]](), set[int]()
    regions: dict[int, Region] = {}
    points = np.array([[random.randint(a.low, a.last) for a in space.attributes] for _ in range(30)])
    partly = covered = 0
    for step in range(120):
        if held and random.random() < (0.4 if step < 80 else 0.7):
            gone = random.choice(list(held))
            lost = held.pop(gone)
            withdrawn = table.unsubscribe(gone)
            del regions[gone]
            assert are_apart(withdrawn) and numbers_of(withdrawn) == lost - set().union(*held.values())
            sent -= numbers_of(withdrawn)
        else:
            regions[step] = space.where(random_clause(random, space))
            held[step] = cells_by_force(grid, regions[step])
            new = table.subscribe(step, regions[step])
            assert are_apart(new) and numbers_of(new) == held[step] - sent  # nothing is sent twice
            partly += 0 < len(numbers_of(new)) < len(held[step])
            covered += not len(new)
            sent |= numbers_of(new)
        assert sent == set().union(*held.values()) == numbers_of(table.merged())
        assert are_apart(table.merged()) and len(table) == len(held)
        if step % 10 == 0:
            table.check_invariants()
            for number in random.choices(range(1 << (2 * grid.bits)), k=10):
                assert table.owners(number) == [id for id, cells in held.items() if number in cells]
                assert table.matches_number(number) == (number in sent)
            for point in points.tolist():
                wanted = any(region.contains_point(point) for region in regions.values())
                assert table.matches(point) or not wanted  # more may match, none is lost
    assert partly + covered > 10 and min(partly, covered) > 1
    for id in list(held):
        sent -= numbers_of(table.unsubscribe(id))
    assert not sent and not len(table) and not len(table.merged())


def test_figures_2_and_3() -> None:
    """MICS: p1 = 28 is outside, p2 = 52 matches, p3 = 50 matches by augmentation only."""
    space = Space.parse("x double not null 0..8, y double not null 0..8")
    table, region = CellTable(Grid(space, bits=3)), space.where("x BETWEEN 4.5 AND 6.3 AND y BETWEEN 2.6 AND 5.5")
    assert table.subscribe("s1", region).tolist() == [[32, 35], [45, 46], [50, 55]]
    events = [{"x": 3.5, "y": 5.5}, {"x": 5.5, "y": 3.5}, {"x": 6.5, "y": 2.5}]
    points = np.array([space.encode(event) for event in events])
    assert table.grid.numbers(points).tolist() == [28, 52, 50]
    assert [table.matches(point) for point in points.tolist()] == [False, True, True]
    assert [region.contains(event) for event in events] == [False, True, False]


def test_removal_as_the_paper_has_it_loses_events() -> None:
    """Merged ranges have no owners: cutting a subscription's out takes cells that others need (ERRATA); ours have."""
    space, random = ints(64, 64, 64), Random(SEED)
    grid = Grid(space, bits=6)
    table, regions = CellTable(grid), dict[int, Region]()
    for id in range(150):
        corner = [random.randrange(24) for _ in range(3)]
        sides = " AND ".join(f"a{at} BETWEEN {low} AND {low + 3}" for at, low in enumerate(corner))
        regions[id] = space.where(sides)
        table.subscribe(id, regions[id])
    naive, cut, harm = numbers_of(table.merged()), 0, 0
    for id in range(75):
        cells = numbers_of(cells_around(grid, regions.pop(id)))
        withdrawn = numbers_of(table.unsubscribe(id))
        cut += len(cells & naive)
        harm += len(cells & naive) - len(withdrawn & naive)
        naive -= cells
    needed = {id: numbers_of(cells_around(grid, region)) for id, region in regions.items()}
    assert numbers_of(table.merged()) == set().union(*needed.values())
    assert harm > 0.05 * cut  # of the cells that were cut out, others still needed these
    assert any(not cells <= naive for cells in needed.values())  # and these miss events


def test_gaps_are_merged_and_undone() -> None:
    space = Space.parse("x int not null 0..255")
    table = CellTable(Grid(space), gap=3)
    for id, clause in enumerate(("x BETWEEN 0 AND 9", "x BETWEEN 13 AND 20", "x BETWEEN 25 AND 30", "x = 10")):
        table.subscribe(id, space.where(clause))
    assert table.merged().tolist() == [[0, 20], [25, 30]]
    assert not table.matches([12]) and table.matches([13]) and table.range_count == 4
    assert table.unsubscribe(1).tolist() == [[13, 20]] and table.merged().tolist() == [[0, 10], [25, 30]]


def test_regions_of_every_kind_have_their_cells() -> None:
    """Balls, large sets, nothing; ranges that are too many are of coarser blocks."""
    space = Space.parse("x double not null 0..100, y double not null 0..100, n int not null 0..9999")
    wide = Grid(space, ranges_max=20)
    odd = ", ".join(str(value) for value in range(1, 2000, 2))
    clauses = ("within(7.5, x, 50.0, y, 50.0)", f"n IN ({odd}) AND x < 3", "x < 0", "x > 10 AND y < 70 OR n = 5")
    rng = np.random.default_rng(SEED)
    columns = {"x": rng.random(4000) * 100, "y": rng.random(4000) * 100, "n": rng.integers(0, 2000, 4000)}
    columns["x"][:2000] = 45 + columns["x"][:2000] / 10
    columns["y"][:2000] = 45 + columns["y"][:2000] / 10
    points = np.stack(space.encode_batch(columns), axis=1)
    for clause in clauses:
        region = space.where(clause)
        cells = cells_around(wide, region)
        assert are_apart(cells) and (len(cells) > 0) == (not region.is_empty)
        numbers = wide.numbers(points)
        held = ((cells[:, 0] <= numbers[:, None]) & (numbers[:, None] <= cells[:, 1])).any(axis=1)
        wanted = region.contains_points(list(points.T))
        assert (held | ~wanted).all() and (region.is_empty or wanted.any())


def test_tables_refuse() -> None:
    space = Space.parse("x int not null 0..9, name string")
    with pytest.raises(CallerError, match="leave strings out"):
        CellTable(Grid(space))
    with pytest.raises(CallerError, match="gap"):
        CellTable(Grid(space, ["x"]), gap=-1)
    table = CellTable(Grid(space, ["x"]))
    table.subscribe("a", space.where("x < 5"))
    with pytest.raises(CallerError, match="subscribed already"):
        table.subscribe("a", space.where("x < 5"))
    with pytest.raises(CallerError, match="different spaces"):
        table.subscribe("b", ints(9).where("a0 < 3"))
    assert len(table) == 1 and "a" in table and "b" not in table and not len(table.unsubscribe("b"))


# --- In front of an engine -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pairwise", "exact", "hilbert"])
def test_an_engine_sees_only_who_matters(name: str) -> None:
    """The verdict of all members, from few."""
    space, random = ints(40, 40, 40, 40), Random(f"{SEED}/{name}")
    index, whole = CellIndex(Grid(space, ["a0", "a1"], bits=4)), engine(name, space)
    regions: dict[int, Region] = {}
    shown = verdicts = 0
    for id in range(60):
        corner = [random.randrange(30) for _ in range(2)]
        sides = " AND ".join(f"a{at} BETWEEN {low} AND {low + 12}" for at, low in enumerate(corner))
        regions[id] = space.where(sides + (f" AND a2 > {random.randrange(3)}" if id % 2 else ""))
        index.add(id, regions[id])
        whole.add(id, regions[id])
        if id % 5 == 0:
            gone = random.choice(list(regions))
            for each in (index, whole):
                each.discard(gone)
            del regions[gone]
    for _ in range(25):
        corner = [random.randrange(34) for _ in range(2)]
        sides = " AND ".join(f"a{at} BETWEEN {low} AND {low + 5}" for at, low in enumerate(corner))
        asked = space.where(sides + " AND a2 > 2")
        near, verdict = index.members_meeting(asked), index.check(asked, name)
        assert {id for id, region in regions.items() if not (region & asked).is_empty} <= set(near)
        assert near == sorted(near) and set(near) <= set(regions)
        verify(verdict, asked, regions)
        assert isinstance(verdict, Covered) == isinstance(whole.check(asked), Covered)
        shown += len(near)
        verdicts += isinstance(verdict, Covered)
    assert 0 < verdicts < 25 and shown < 25 * len(regions) / 2
    assert len(index) == len(regions) and index.check(Region.nothing(space)) == Covered(())
    index.check_invariants()


def test_members_follow_strings() -> None:
    space = Space.parse("name string, size int 0..9")
    index = CellIndex(Grid(space))
    index.add(1, space.where("name = 'ox' AND size < 5"))
    index.add(2, space.where("name > 'p'"))
    recode(space)
    index.add(3, space.where("name LIKE 'ox%'"))
    assert index.members_meeting(space.where("name = 'ox'")) == [1, 3]
    recode(space)
    index.discard(1)
    assert index.members_meeting(space.where("name = 'ox'")) == [3] and 1 not in index
    with pytest.raises(CallerError, match="member already"):
        index.add(3, space.where("size = 1"))
    index.check_invariants()


# --- Many attributes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"attributes": ["a1", "a5"]},
        {"groups": [["a0", "a1", "a2"], ["a3", "a4"], ["a5", "a6"]]},
        {"groups": [["a6"], ["a2"]], "bits": 3, "curve": "z"},
        {"curve": "gray", "bits": 5, "ranges_max": 1},
        {"attributes": ["a0", "a3"], "cells": {"a0": [1, 2, 3, 50]}},
        {"groups": [["a0", "a3"], ["a1"]], "cells": {"A0": [1, 2, 3, 50], "a1": range(0, 100, 7)}},
    ],
)
def test_the_ways_to_many_attributes(options: dict[str, Any]) -> None:
    """Whatever the grids, the answer is exact: in levels, in the buffer, and for what meets."""
    space, rng = ints(*[100] * 7), np.random.default_rng(SEED)
    low = rng.integers(0, 70, (2500, 7))
    high = np.minimum(99, low + rng.integers(20, 80, low.shape))
    points = rng.integers(0, 100, (300, 7))
    matcher = HilbertMatcher(space, **options)
    matcher.add_many(np.arange(2000), (low[:2000], high[:2000]))
    matcher.add_many(np.arange(2000, 2400), (low[2000:2400], high[2000:2400]))
    matcher.add_many(np.arange(2400, 2500), (low[2400:], high[2400:]))
    for number in range(0, 2500, 3):
        matcher.discard(number)
    stays = np.flatnonzero(np.arange(2500) % 3)
    expected = pairs_by_force(stays, low[stays], high[stays], points)
    rows, numbers = matcher.view().match_points(list(points.T))
    assert np.array_equal(rows, expected[0]) and np.array_equal(numbers, expected[1]) and len(rows) > 200
    assert matcher.view().match_point(points[7].tolist()) == numbers[rows == 7].tolist()
    asked = " AND ".join(f"a{at} BETWEEN 40 AND 60" for at in range(7))
    meets = ((low <= 60) & (high >= 40)).all(axis=1) & (np.arange(2500) % 3 > 0)
    assert matcher.meeting(space.where(asked)) == np.flatnonzero(meets).tolist()
    matcher.check_invariants()


def test_bad_groups_are_refused() -> None:
    space = ints(16, 16, 16)
    for options, said in (
        ({"groups": []}, "either"),
        ({"groups": [["a0"]], "attributes": ["a1"]}, "either"),
        ({"groups": [["a0"], ["a1"]], "cells": {"a2": [3]}}, "in no group"),
        ({"groups": [["a0"], []]}, "one or more"),
        ({"cells": {"a9": [3]}}, "no attribute"),
    ):
        with pytest.raises(CallerError, match=said):
            HilbertMatcher(space, **options)


def test_groups_leave_fewer_candidates() -> None:
    space, rng = ints(*[100] * 6), np.random.default_rng(SEED)
    low = rng.integers(0, 80, (2000, 6))
    points = rng.integers(0, 100, (200, 6))
    left = []
    for options in ({"attributes": ["a0", "a1", "a2"]}, {"groups": [["a0", "a1", "a2"], ["a3", "a4", "a5"]]}):
        matcher = HilbertMatcher(space, **options)
        matcher.add_many(np.arange(2000), (low, low + 19))
        view: Any = matcher.view()
        left.append(sum(found for _, _, found in view.candidates(points)))
    true = int(inside(low, low + 19, points).sum())
    assert true <= left[1] < left[0] / 5


# --- Which attributes ------------------------------------------------------------------------------------------------


def test_attributes_are_chosen() -> None:
    """a0 to a2 say the same, and are the most selective; together with one of them, a3 says more."""
    space, rng = ints(*[256] * 5), np.random.default_rng(SEED)
    low = np.zeros((3000, 5), np.int64)
    low[:, 0] = low[:, 1] = low[:, 2] = rng.integers(0, 240, 3000)
    low[:, 3] = rng.integers(0, 220, 3000)
    high = low + np.array([9, 10, 11, 30, 255])
    events = rng.integers(0, 256, (2000, 5))
    events[:, 1] = events[:, 2] = events[:, 0]
    assert choose_attributes(space, (low, high), 2, "selectivity", events) == ["a0", "a1"]
    assert choose_attributes(space, (low, high), 2, events=events) == ["a0", "a3"]
    assert set(choose_attributes(space, (low, high), 5, events=events)) == {"a0", "a1", "a2", "a3", "a4"}
    regions = [space.where(f"a3 BETWEEN {at} AND {at + 9}") for at in range(0, 200, 7)]
    for way in ("joint", "selectivity"):
        assert choose_attributes(space, regions, 1, way) == ["a3"]
    for count, way, said in ((0, "joint", "not 0"), (6, "joint", "not 6"), (1, "luck", "by 'luck'")):
        with pytest.raises(CallerError, match=said):
            choose_attributes(space, regions, count, way)
