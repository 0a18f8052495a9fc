"""Cells of one kind merged into boxes: disjoint, together the cells, the heaviest first; and subscriptions counted in
them, compared with brute force."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from thatch import Space
from thatch.cover.box_rows import boxed_regions
from thatch.learning.cells import CellBox, CellGrid
from thatch.learning.regions import merged_cells, one_sided_regions
from thatch.learning.words import box_words
from thatch.reports.learn import counted_share, region_sentence, rest_sentence

SHAPES = ((1, 1), (7,), (6, 5), (3, 9), (17, 17))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_merged_cells_are_the_cells(shape: tuple[int, ...], seed: int) -> None:
    draw = np.random.default_rng(seed)
    weights = draw.integers(1, 50, shape) * (draw.random(shape) < draw.choice((0.0, 0.3, 0.7, 1.0)))
    times = np.zeros(shape, np.int64)
    sums = []
    for box in merged_cells(weights):
        times[box.slices] += 1
        sums.append(int(weights[box.slices].sum()))
    assert (times == (weights > 0)).all(), "each cell of the kind once, and no other"
    assert sum(sums) == weights.sum() and sums == sorted(sums, reverse=True)


def test_the_heaviest_box_comes_first() -> None:
    """Compared with every box of a small grid."""
    draw = np.random.default_rng(7)
    for _ in range(50):
        weights = draw.integers(0, 4, (4, 4))
        boxes = [
            weights[a : b + 1, c : d + 1] for a in range(4) for b in range(a, 4) for c in range(4) for d in range(c, 4)
        ]
        heaviest = max((int(each.sum()) for each in boxes if each.all()), default=0)
        found = merged_cells(weights)
        assert (weights[found[0].slices].sum() if found else 0) == heaviest


CLAUSES = {
    "one": "x < 10 AND y < 30",
    "two": "x BETWEEN 5 AND 9 OR x > 90",
    "three": "y IN (3, 50, 97)",
    "null": "x IS NULL AND y < 50",
    "word": "s = 'ash' AND x > 30 AND y > 80",
    "ball": "within(3, x, 40, y, 40) AND y > 41 AND x < 50",
    "none": "x < 5 AND x > 6",
}


def grid_world() -> tuple[Space, CellGrid, Any, Any]:
    space = Space.parse("x int 0..99, y int not null 0..99, s string")
    regions = {id: space.where(clause) for id, clause in CLAUSES.items()}
    boxed = boxed_regions(pa.array(list(regions)), list(regions.values()), space)
    return space, CellGrid.of(space, ["x", "y"], {"x": [8, 20, 45, 90], "y": [10, 40, 41, 60]}), regions, boxed


def test_subscriptions_in_boxes_of_cells() -> None:
    """A ball counts wherever the rest of its clause allows."""
    space, grid, regions, boxed = grid_world()
    assert grid.shape == (6, 5)  # with a cell of NULL
    boxes = [
        CellBox((a, c), (b, d)) for a in range(6) for b in range(a, 6) for c in range(5) for d in range(c, 5)
    ]  # fmt: skip
    wanted = []
    around = regions | {"ball": space.where("y > 41 AND x < 50")}
    for box in boxes:
        low, high = grid.bounds(box, space)
        clause = " AND ".join(
            f"({name} IS NULL OR {name} <= {high[at]})" if low[at] < 0 else f"{name} BETWEEN {low[at]} AND {high[at]}"
            for at, name in enumerate("xy")
        )
        wanted.append(sum(not (space.where(clause) & region).is_empty for region in around.values()))
    assert grid.count_boxes_in(boxed, boxes).tolist() == wanted
    cells = [CellBox(at, at) for at in np.ndindex(grid.shape)]
    assert grid.count_boxes(boxed).ravel().tolist() == grid.count_boxes_in(boxed, cells).tolist()


def test_ranking_and_counts() -> None:
    space, grid, _, boxed = grid_world()
    draw = np.random.default_rng(3)
    events = draw.integers(0, 9, grid.shape) * (draw.random(grid.shape) < 0.6)
    sampled, meeting = events // 2, grid.count_boxes(boxed)
    found = one_sided_regions(
        grid, space, (events, sampled, sampled // 2), meeting, lambda boxes: grid.count_boxes_in(boxed, boxes)
    )
    lonely = [row for row in found if row.kind == "no subscription"]
    idle = [row for row in found if row.kind == "no event"]
    assert lonely and idle and found == lonely + idle
    assert sum(row.events for row in lonely) == events[meeting == 0].sum()
    assert sum(row.sampled for row in found) == sampled[meeting == 0].sum()
    assert not any(row.events for row in idle) and not any(row.subscriptions for row in lonely)
    assert [row.events for row in lonely] == sorted((row.events for row in lonely), reverse=True)
    assert [row.subscriptions for row in idle] == sorted((row.subscriptions for row in idle), reverse=True)
    assert len(found) < np.count_nonzero((events > 0) != (meeting > 0)), "neighbours are merged"
    for one in found:
        for other in found:
            assert one is other or (space.where(one.where) & space.where(other.where)).is_empty


WORDS = {
    "TRUE": "everything",
    "p >= 10 AND p < 80 AND s = 'A'": "p from 10 to 80 and s 'A'",
    "p < 10.25": "p below 10.25",
    "p <= 10.25": "p at most 10.25",
    "p >= 80 AND n = 5": "p at least 80 and n 5",
    "p > 80": "p above 80",
    "p = 0.1": "p 0.1",
    "p BETWEEN 1.00000001 AND 1.00000002": "p from 1.00000001 to 1.00000002",
    "p BETWEEN 1 AND 1234567.89": "p from 1 to 1234570",
    "p < 0.00000123456789": "p below 1.23457e-06",
    "n IS NULL OR n < 7": "n NULL or at most 6",
    "n IS NULL": "n NULL",
    "n IS NOT NULL": "n not NULL",
    "n BETWEEN 3 AND 8": "n from 3 to 8",
    "s LIKE 'ab%'": "s beginning with 'ab'",
    "s >= 'a' AND s < 'c'": "s from 'a' to before 'c'",
    "s > 'a' AND s <= 'c'": "s from 'a' to 'c'",
    "s < 'c'": "s before 'c'",
    "s <= 'c'": "s up to 'c'",
    "s >= 'c'": "s from 'c' on",
    "s > 'c'": "s after 'c'",
    "f": "f true",
    "NOT f": "f false",
    "e IN ('u', 'v')": "e 'u' or 'v'",
    "e IN ('u', 'v', 'w', 'x', 'y')": "e one of 'u', 'v', 'w', 'x' and 1 more",
    "d >= DATE'2020-02-29'": "d at least 2020-02-29",
}


@pytest.mark.parametrize("clause", WORDS)
def test_words(clause: str) -> None:
    space = Space.parse(
        "p double not null 0..10000000, n int 0..99, s string not null, f bool not null, d date not null, "
        "e enum('u', 'v', 'w', 'x', 'y', 'z') not null"
    )
    low, high = space.where(clause).boxes()
    assert len(low) == 1 and box_words(low[0].tolist(), high[0].tolist(), space) == WORDS[clause]


def test_sentences() -> None:
    row = {"kind": "no event", "words": "n 5", "events": 0, "subscriptions": 1}
    assert region_sentence(row, 10, 8) == "1 subscription (12.5 %) looks where no event is: n 5"
    more = row | {"subscriptions": 3}
    assert region_sentence(more, 10, 8) == "3 subscriptions (37.5 %) look where no event is: n 5"
    assert rest_sentence([more], 10) == "and 1 more such region with 3 subscriptions"
    assert rest_sentence([more, row], 10) == "and 2 more such regions with at most 3 subscriptions each"
    lonely = [{"kind": "no subscription", "events": count, "subscriptions": 0} for count in (30, 12)]
    assert rest_sentence(lonely, 1000) == "and 2 more such regions with 42 events (4.2 %)"
    assert counted_share(1, 100_000, "event") == "1 event (< 0.1 %)"
