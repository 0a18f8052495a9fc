"""The choice of keys from samples alone: what is chosen, and that its estimates agree with counting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyspark")  # which the package imports, and what is tested here does not
from thatch.spark.matching.cells import CELLS_MAX, HASHES, code_of
from thatch.spark.matching.keys import CANDIDATE, HOT, KEYS_MAX, PROBE, ROW, KeyChoice, Samples, grid_of

NAN = float("nan")


def event(*values: float) -> dict[str, Any]:
    return {"low": list(values), "high": None, "null": None, "lists": []}


def box(*sides: tuple[float, float] | list[int] | None) -> dict[str, Any]:
    """A range for each attribute, or a list of hashes; None bounds nothing."""
    ends = [
        side if isinstance(side, tuple) else (NAN, NAN) if isinstance(side, list) else (-1e9, 1e9) for side in sides
    ]
    return {
        "low": [low for low, _ in ends],
        "high": [high for _, high in ends],
        "null": [side is None for side in sides],
        "lists": [side if isinstance(side, list) else None for side in sides],
    }


def grid_sample(events: int = 200, boxes: int = 100) -> list[dict[str, Any]]:
    """Even events on two attributes; boxes of one percent of the first, unbounded on the second."""
    draw = np.random.default_rng(3)
    rows = [event(*point) for point in draw.uniform(0, 1000, (events, 2)).tolist()]
    return rows + [box((low, low + 10.0), None) for low in draw.uniform(0, 990, boxes).tolist()]


def test_nothing_to_look_at() -> None:
    choice = KeyChoice([0], [False], 1e6, 50)
    for rows in ([], [event(1.0)], [box((1.0, 2.0))]):
        found = choice.chosen(rows)
        assert (found.keys, found.candidates, found.matches, found.cost) == ([], 50.0, 0.0, 0.0)


def test_narrow_boxes_get_a_key_of_what_they_bound() -> None:
    found = KeyChoice([3, 7], [False, False], 1e6, 10_000).chosen(grid_sample())
    assert found.keys and {grid.attribute for key in found.keys for grid in key} == {3}
    assert found.candidates < 1000  # of 10,000
    assert found.matches == pytest.approx(100, rel=0.3)  # one percent
    assert found.matches <= found.candidates
    assert found.estimate == (found.candidates, found.matches, found.cost)


def test_a_key_pays_only_with_enough_events() -> None:
    assert KeyChoice([0, 1], [False, False], 1, 100).chosen(grid_sample()).keys == []
    few, many = (KeyChoice([0, 1], [False, False], events, 100).chosen(grid_sample()) for events in (1e3, 1e7))
    assert many.cost < 1e4 * few.cost
    assert len(many.keys) <= KEYS_MAX


def test_subscriptions_that_bound_different_attributes_get_several_keys() -> None:
    draw = np.random.default_rng(5)
    rows = [event(*point) for point in draw.uniform(0, 1000, (200, 2)).tolist()]
    lows = draw.uniform(0, 990, 100).tolist()
    rows += [box((low, low + 5.0), None) if at % 2 else box(None, (low, low + 5.0)) for at, low in enumerate(lows)]
    found = KeyChoice([0, 1], [False, False], 1e7, 100_000).chosen(rows)
    assert sorted(grid.attribute for key in found.keys for grid in key) == [0, 1]


def test_unbounded_subscriptions_get_no_key() -> None:
    rows = [event(float(value)) for value in range(100)] + [box(None) for _ in range(20)]
    found = KeyChoice([0], [False], 1e6, 20).chosen(rows)
    assert found.keys == []
    assert found.candidates == 20.0 and found.matches == 20.0
    assert found.cost == 1e6 * (PROBE + 20 * CANDIDATE) + 20 * ROW


def test_hashes_of_listed_values() -> None:
    rows = [event(float(value % 10)) for value in range(100)] + [box([value % 10]) for value in range(50)]
    found = KeyChoice([4], [True], 1e6, 50).chosen(rows)
    (key,) = found.keys
    assert (key[0].attribute, key[0].knots, key[0].size) == (4, (), HASHES)
    assert [found.candidates, found.matches] == pytest.approx([5.0, 5.0])  # of 50, each tenth
    assert dict(found.hot)[code_of(0, (3,))] == pytest.approx(0.1)


def test_null_shares_no_cell_and_matches_who_wants_it() -> None:
    points = np.array([[NAN]] * 50 + [[float(value)] for value in range(50)])
    samples = Samples(points, [box(None), box((4.0, 6.0))], [0], [False])
    assert samples.matches() == (100 + 3) / 100  # the first wants all events, the second three
    (side,) = samples.sides(1)
    assert not side.shared[:50].any() and side.shared[54:57, 1].all()
    assert side.suits.tolist() == [False, True]


@pytest.mark.parametrize("seed", range(5))
def test_estimates_agree_with_counting(seed: int) -> None:
    """Every pair of a sampled event and a box that holds it shares a cell of every grid; matches are counted again."""
    draw = np.random.default_rng(seed)
    points = draw.choice([0.0, 1.0, -5.0, 1e300, 7.25, NAN], (60, 2)) + draw.choice([0.0, 3.0, 100.0], (60, 2))
    lows = draw.uniform(-10, 110, (40, 2))
    highs = lows + draw.choice([0.0, 1.0, 50.0, 1e6], (40, 2))
    boxes = [box(*zip(low, high, strict=True)) for low, high in zip(lows.tolist(), highs.tolist(), strict=True)]
    samples = Samples(points, boxes, [0, 1], [False, False])
    inside = (points[:, None] >= lows) & (points[:, None] <= highs)  # never of NaN
    assert samples.matches() == inside.all(axis=2).sum() / len(points)
    for shrink in (1, 4):
        for place, side in enumerate(samples.sides(shrink)):
            assert not (inside[:, :, place] & ~side.shared).any()
            assert (side.touched[side.suits] <= CELLS_MAX).all()


def test_a_grid_of_even_values_is_one_piece() -> None:
    grid = grid_of(2, np.linspace(0, 100, 101), 64)
    assert (grid.attribute, len(grid.knots), grid.counts) == (2, 2, (64,))
    assert grid.cells(np.array([-1.0, 0.0, 100.0, 1e9])).tolist() == [0, 0, 63, 63]


@pytest.mark.parametrize(
    "values",
    [[], [NAN, NAN], [5.0], [5.0, 5.0], [float("inf"), -float("inf")], [0.0, 1e-320], [1.0, 1.0, 1.0, 1e9]],
    ids=str,
)
def test_grids_of_odd_values(values: list[float]) -> None:
    grid = grid_of(0, np.array(values, np.float64), 16)
    assert list(grid.knots) == sorted(set(grid.knots)) and len(grid.knots) == len(grid.counts) + 1
    assert all(count >= 1 for count in grid.counts)
    asked = np.array([*values, 0.0, -1e308, 1e308])
    cells = grid.cells(asked)
    assert ((cells >= 0) & (cells < grid.size)).all()
    known = np.sort(asked[~np.isnan(asked)])
    assert (np.diff(grid.cells(known)) >= 0).all()  # monotone


def test_a_crowded_cell_is_hot() -> None:
    rows = [event(5.0)] * 60 + [event(float(value)) for value in range(40)] + [box((4.0, 6.0)), box((30.0, 31.0))] * 20
    found = KeyChoice([0], [False], 1e7, 40_000).chosen(rows)
    assert found.keys
    empty, *cells = found.hot
    assert empty == (code_of(len(found.keys), ()), 1.0)
    assert max(share for _, share in cells) >= 0.6
    assert all(share > HOT for _, share in cells)
