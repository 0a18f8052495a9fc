"""Cells are the whole space and do not meet, and a box is placed in those that it meets; tasks are of one size."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyspark")
from thatch import Space
from thatch.cover.breadth import breadths
from thatch.spark.reducing.divide import TUNING, Division, Tuning, dealt, divided
from thatch.spark.reducing.guard import Sample

SPACE = Space.parse("x int not null 0..999, y int, z int not null 0..9")


def random_boxes(seed: int, count: int) -> tuple[Any, Any]:
    draw = np.random.default_rng(seed)
    one, other = (
        np.stack((draw.integers(0, 1000, count), draw.integers(-50, 50, count), draw.integers(0, 10, count)), axis=1)
        for _ in range(2)
    )
    low, high = (
        np.minimum(one, other),
        np.minimum(np.maximum(one, other), np.minimum(one, other) + np.array([60, 9, 3])),
    )
    low[::9, 1], high[::9, 1] = SPACE.low[0, 1], SPACE.high[0, 1]  # NULL and all
    low[::11], high[::11] = [500, 7, 3], [520, 8, 3]  # one that there is often
    return low, high


def cut(seed: int, tuning: Tuning = TUNING, count: int = 800) -> tuple[Division, Any, Any]:
    low, high = random_boxes(seed, count)
    return divided(sample(low, high), 1.0, SPACE, tuning), low, high


def sample(low: Any, high: Any) -> Sample:
    rows = np.arange(len(low))
    return Sample(low, high, rows, breadths(low, high, np.arange(len(low) + 1), SPACE), rows.tolist(), rows >= 0)


@pytest.mark.parametrize("seed", range(5))
def test_cells_are_the_space(seed: int) -> None:
    division, low, high = cut(seed, Tuning(linear=1.0, pairwise=0.1))
    assert len(division) > 10
    widths = (division.high.astype(object) - division.low.astype(object) + 1).tolist()
    assert sum(map(prod, widths)) == prod((SPACE.high.astype(object) - SPACE.low.astype(object) + 1)[0].tolist())
    meets = (low[:, None] <= division.high).all(axis=2) & (high[:, None] >= division.low).all(axis=2)
    box, cell = division.placed(low, high)
    assert sorted(zip(box.tolist(), cell.tolist(), strict=True)) == list(map(tuple, np.argwhere(meets).tolist()))
    assert (division.rows == meets.sum(axis=0)).all()


def test_no_cut_where_none_pays() -> None:
    low, high = SPACE.low.repeat(500, 0), SPACE.high.repeat(500, 0)
    low[:, 2] = np.arange(500) % 3
    division = divided(sample(low, high), 1000.0, SPACE, TUNING)
    assert len(division) <= 3
    assert len(divided(sample(low[:0], high[:0]), 1.0, SPACE, TUNING)) == 1


def test_tasks_have_about_as_much_to_do() -> None:
    draw = np.random.default_rng(1)
    sizes = draw.integers(1, 1000, 300)
    loads = np.bincount(dealt(sizes, 12), weights=sizes)
    assert len(loads) == 12 and loads.max() < 1.1 * np.median(loads)
    division, _, _ = cut(1)
    assert division.dealt_out(2).tasks == 1 or division.dealt_out(2).tasks <= len(division)
