"""Curves and grids: every cell once, ranges against enumeration, cells against points, the paper's example."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import numpy as np
import pytest

from helpers.cover_oracles import ints
from thatch import Space
from thatch.errors import CallerError
from thatch.grid.curve import CURVES, Curve, cells_at, curve, descend, expected_ranges, indexes, ranges
from thatch.grid.grid import Grid
from thatch.space.arrays import Ints

SEED = 20240229
SHAPES = [(1, 6), (2, 5), (3, 4), (4, 3), (5, 2), (6, 2), (7, 2)]  # of 7 axes a block has more halves than a word bits


def all_cells(path: Curve) -> Ints:
    """In the order of the curve."""
    count = 1 << (path.axes * path.bits)
    cells = np.zeros((count, path.axes), np.int64)
    cells_at(path, np.arange(count), cells)
    return cells


def runs(numbers: Ints) -> list[list[int]]:
    """Ascending numbers as maximal ranges."""
    if not len(numbers):
        return []
    breaks = np.flatnonzero(np.diff(numbers) > 1)
    return np.stack((numbers[np.r_[0, breaks + 1]], numbers[np.r_[breaks, len(numbers) - 1]]), axis=1).tolist()


def random_cells(random: Random, path: Curve) -> tuple[Ints, Ints]:
    ends = [sorted(random.choices(range(1 << path.bits), k=2)) for _ in range(path.axes)]
    return np.array([low for low, _ in ends]), np.array([high for _, high in ends])


# --- Curves ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize(("axes", "bits"), SHAPES)
def test_a_curve_visits_every_cell_once(name: str, axes: int, bits: int) -> None:
    path = curve(name, axes, bits)
    cells = all_cells(path)
    assert len({tuple(cell) for cell in cells.tolist()}) == len(cells)
    assert cells.min() == 0 and cells.max() == (1 << bits) - 1
    numbers = np.zeros(len(cells), np.int64)
    indexes(path, cells, numbers)
    assert (numbers == np.arange(len(cells))).all()
    steps = np.abs(np.diff(cells, axis=0))
    if name == "hilbert":
        assert (steps.sum(axis=1) == 1).all()  # neighbours in number are neighbours in space
    if name == "gray":  # neighbours in number differ in one bit of one axis
        assert all(sum(bin(step).count("1") for step in row) == 1 for row in (cells[1:] ^ cells[:-1]).tolist())


def test_the_standard_hilbert_curve() -> None:
    """The common d2xy, 8 x 8."""

    def d2xy(index: int) -> tuple[int, int]:
        x = y = 0
        side = 1
        while side < 8:
            right = 1 & (index // 2)
            up = 1 & (index ^ right)
            if up == 0:
                if right == 1:
                    x, y = side - 1 - x, side - 1 - y
                x, y = y, x
            x, y = x + side * right, y + side * up
            index //= 4
            side *= 2
        return x, y

    assert [tuple(cell) for cell in all_cells(curve("hilbert", 2, 3)).tolist()] == [d2xy(at) for at in range(64)]


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize(("axes", "bits"), SHAPES)
def test_ranges_are_what_enumeration_gives(name: str, axes: int, bits: int) -> None:
    """Maximal, in order; with a gap, with coarser blocks, and with those inside only."""
    path, random = curve(name, axes, bits), Random(f"{SEED}/{name}/{axes}")
    cells, out = all_cells(path), np.empty((4096, 2), np.int64)
    for _ in range(40):
        low, high = random_cells(random, path)
        numbers = np.flatnonzero(((cells >= low) & (cells <= high)).all(axis=1))
        assert ranges(path, low, high).tolist() == runs(numbers)
        gap = random.choice((1, 3, 10))
        joined = ranges(path, low, high, gap=gap)
        assert (joined[1:, 0] - joined[:-1, 1] - 1 > gap).all() and (joined[1:, 0] > joined[:-1, 1]).all()
        held = np.concatenate([np.arange(a, b + 1) for a, b in joined.tolist()])
        assert np.isin(numbers, held).all() and joined[0, 0] == numbers[0] and joined[-1, 1] == numbers[-1]
        level = random.randint(0, bits - 1)
        blocks, asked = cells >> level, (low >> level, high >> level)
        around = np.flatnonzero(((blocks >= asked[0]) & (blocks <= asked[1])).all(axis=1))
        count = descend(path, low, high, level, False, 0, out)
        assert out[:count].tolist() == runs(around)
        corner = blocks << level
        within = np.flatnonzero(((corner >= low) & (corner + (1 << level) - 1 <= high)).all(axis=1))
        count = descend(path, low, high, level, True, 0, out)
        assert out[:count].tolist() == runs(within)


def test_figures_2_and_3() -> None:
    """MICS: box x 4..6, y 2..5 of 8 x 8; p1 = 28 is outside, p2 = 52 and p3 = 50 inside, p3 by augmentation."""
    path = curve("hilbert", 2, 3)
    found = ranges(path, np.array([4, 2]), np.array([6, 5])).tolist()
    assert found == [[32, 35], [45, 46], [50, 55]]
    numbers = np.zeros(3, np.int64)
    indexes(path, np.array([[3, 5], [5, 3], [6, 2]]), numbers)
    assert numbers.tolist() == [28, 52, 50]
    assert [any(a <= number <= b for a, b in found) for number in numbers.tolist()] == [False, True, True]


def test_the_estimate_is_right_on_average() -> None:
    """Ranges of a box against S/(2d)."""
    random = np.random.default_rng(SEED)
    for axes, size in ((2, 8), (2, 32), (3, 8), (4, 4)):
        path, counts = curve("hilbert", axes, 8), []
        for _ in range(150):
            low = random.integers(0, 256 - size, axes)
            counts.append(len(ranges(path, low, low + size - 1, ranges_max=100_000)))
        expected = expected_ranges(np.zeros(axes, np.int64), np.full(axes, size - 1), 0)
        assert expected == pytest.approx(size ** (axes - 1))
        assert 0.7 < np.mean(counts) / expected < 1.4


def test_too_many_ranges_are_coarser_ones() -> None:
    path = curve("hilbert", 4, 8)
    low, high = np.array([3, 5, 7, 9]), np.array([60, 61, 62, 63])
    around, inside = ranges(path, low, high, ranges_max=50), ranges(path, low, high, is_inner=True, ranges_max=50)
    assert 0 < len(around) <= 50 and len(inside) <= 50
    true_size = math.prod((high - low + 1).tolist())
    sizes = [int((each[:, 1] - each[:, 0] + 1).sum()) for each in (inside, around)]
    assert sizes[0] <= true_size <= sizes[1]
    held = Random(SEED)
    for _ in range(200):
        cell = np.array([[held.randint(a, b) for a, b in zip(low.tolist(), high.tolist(), strict=True)]])
        number = np.zeros(1, np.int64)
        indexes(path, cell, number)
        assert any(a <= number[0] <= b for a, b in around.tolist())


@pytest.mark.parametrize(("axes", "bits"), [(2, 3), (6, 2), (8, 2)])
def test_room_for_one_range(axes: int, bits: int) -> None:
    """In the end the whole grid is one block."""
    path, random = curve("hilbert", axes, bits), Random(f"{SEED}/{axes}")
    everything = [[0, (1 << (axes * bits)) - 1]]
    for _ in range(50):
        low, high = random_cells(random, path)
        true = ranges(path, low, high, ranges_max=100_000).tolist()
        ((first, last),) = ranges(path, low, high, ranges_max=1).tolist()
        assert first <= true[0][0] and true[-1][1] <= last
        inside = ranges(path, low, high, is_inner=True, ranges_max=1).tolist()
        assert not inside or any(a <= inside[0][0] and inside[0][1] <= b for a, b in true)
    whole = np.zeros(axes, np.int64), np.full(axes, (1 << bits) - 1)
    assert ranges(path, *whole).tolist() == ranges(path, *whole, is_inner=True, ranges_max=1).tolist() == everything


def test_curves_have_limits() -> None:
    for name, axes, bits, said in (("peano", 2, 3, "no curve"), ("z", 0, 3, "1 to 10 axes"), ("z", 8, 8, "62 bits")):
        with pytest.raises(CallerError, match=said):
            curve(name, axes, bits)


# --- Grids -----------------------------------------------------------------------------------------------------------

SPACES = [
    "x int not null 0..99, y int not null 0..6",
    "x int, y int not null 0..9",
    "x double not null -10..1000, y double 0..1",
    "x double, y bool",
    "x decimal(5,2) not null 0.00..99.99, y date not null '2024-01-01'..'2024-03-01'",
    "name string, kind enum('a','b','c') not null",
    "t timestamp, x int not null",
]


def coordinates(random: Random, attribute: Any) -> int:
    """Also the ends, NULL, and what lies near an end."""
    kind = random.random()
    if kind < 0.15:
        return int(attribute.low)
    if kind < 0.3:
        return int(attribute.last)
    near = random.randint(0, min(5, attribute.last - attribute.first))
    if kind < 0.5:
        return int(random.choice((attribute.first + near, attribute.last - near)))
    return random.randint(attribute.low, attribute.last)


@pytest.mark.parametrize("text", SPACES)
@pytest.mark.parametrize("bits", [1, 3, 8])
def test_cells_inside_and_around(text: str, bits: int) -> None:
    """Every point of a box is in a cell around it, and every point of a cell inside it is in the box."""
    space, random = Space.parse(text), Random(f"{SEED}/{text}/{bits}")
    for clause in ("name = 'm'", "name < 'c'") if "name" in text else ():
        space.where(clause)
    grid = Grid(space, bits=bits, path=random.choice(CURVES))
    points = np.array([[coordinates(random, each) for each in space.attributes] for _ in range(300)])
    numbers = grid.numbers(points)
    for _ in range(60):
        one, other = (np.array([coordinates(random, each) for each in space.attributes]) for _ in range(2))
        low, high = np.minimum(one, other), np.maximum(one, other)
        around, inside = grid.around(low, high).tolist(), grid.inside(low, high).tolist()
        for point, number in zip([*points, low, high], [*numbers, *grid.numbers(np.stack((low, high)))], strict=True):
            is_in = bool((low <= point).all() and (point <= high).all())
            if is_in:
                assert any(a <= number <= b for a, b in around)
            if any(a <= number <= b for a, b in inside):
                assert is_in
        assert all(any(c <= a and b <= d for c, d in around) for a, b in inside)


def test_cells_of_doubles_are_equal_in_value() -> None:
    space = Space.parse("x double not null 0..1000")
    axis = space.attributes[0].axis
    assert [axis.double(at) for at in Grid(space, bits=2).starts[0].tolist()] == [0.0, 250.0, 500.0, 750.0]


def test_cells_of_an_attribute_with_few_values() -> None:
    space = Space.parse("b bool, e enum('a','b','c') not null, n int not null 1..3")
    grid = Grid(space, bits=4)
    assert [len(starts) for starts in grid.starts] == [3, 3, 3]
    everything = grid.inside(space.low[0], space.high[0]).tolist()
    assert everything == [[0, (1 << 12) - 1]]


def test_given_cells() -> None:
    space = Space.parse("x int not null 0..1000, y int not null 0..1000")
    grid = Grid(space, bits=3, cells={"x": [1, 2, 3, 5, 8, 13, 21]})
    assert grid.starts[0].tolist() == [0, 1, 2, 3, 5, 8, 13, 21]
    assert len(grid.starts[1]) == 8
    assert grid.id != Grid(space, bits=3).id == Grid(Space.parse(str(space)), bits=3).id
    assert Grid(Space.parse("s string, x int")).id == ""


def test_more_bits_than_cells() -> None:
    """Bits number cells; they are not all cut."""
    space = Space.parse("x int not null 0..7, y double not null -1.5e308..1.5e308")
    grid = Grid(space, ["x"], bits=62)
    assert grid.starts[0].tolist() == list(range(8))
    assert grid.around(np.array([3, 0]), np.array([7, 0])).tolist() == [[3, 2**62 - 1]]
    axis = space.attributes[1].axis
    assert [axis.double(at) for at in Grid(space, ["y"], bits=2).starts[0].tolist()] == [
        -1.5e308,
        -7.5e307,
        0.0,
        7.5e307,
    ]
    with pytest.raises(CallerError, match="11 cells are more than 2"):
        Grid(ints(100), bits=1, cells={"a0": range(1, 11)})


def test_a_single_range_always_suffices() -> None:
    for name in CURVES:
        path = curve(name, 3, 4)
        for low, high in (([0, 0, 0], [15, 0, 15]), ([3, 7, 2], [12, 8, 14]), ([0, 0, 0], [15, 15, 15])):
            around = ranges(path, np.array(low), np.array(high), ranges_max=1)
            assert len(around) == 1
            inner = ranges(path, np.array(low), np.array(high), is_inner=True, ranges_max=1)
            assert len(inner) <= 1 and (len(inner) == 0 or high == [15, 15, 15] or around.tolist() != inner.tolist())


def test_other_attributes_are_not_told_apart() -> None:
    space = ints(16, 16, 16)
    grid = Grid(space, ["a0", "a2"], bits=4)
    low, high = np.array([3, 4, 5]), np.array([9, 9, 9])
    assert len(grid.inside(low, high)) == 0
    whole = np.array([3, 0, 5]), np.array([9, 15, 9])
    assert grid.inside(*whole).tolist() == grid.around(*whole).tolist() == grid.around(low, high).tolist()


def test_bad_grids_are_refused() -> None:
    space = ints(16, 16)
    for arguments, said in (
        ({"attributes": ["z"]}, "no attribute 'z'"),
        ({"attributes": ["a0", "A0"]}, "each once"),
        ({"attributes": []}, "one or more"),
        ({"bits": 40}, "at most"),
        ({"bits": 0}, "at most"),
        ({"ranges_max": 0}, "at least 1"),
        ({"attributes": ["a0"], "cells": {"a1": [3]}}, "not in the grid"),
    ):
        with pytest.raises(CallerError, match=said):
            Grid(space, **arguments)
