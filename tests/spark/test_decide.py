"""Placing, deciding and uniting without Spark, against brute force: a region is covered if every point of it is in one
before it. Cells are as small as can be, and crowded ones have parts."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
from pyspark.sql.types import LongType, StringType

from helpers.strategies import soaked
from thatch import Region, Space
from thatch.cover.breadth import breadth
from thatch.spark.encoded import Source
from thatch.spark.reducing.decide import CellPlace, Decide, SampleBoxes, Unite, sample_of
from thatch.spark.reducing.divide import Tuning, divided

SPACE = Space.parse("x int not null 0..7, y int 0..5, z bool not null")
POINTS = list(product(range(8), range(-1, 6), range(2)))


class Shipped:
    """What a broadcast is to a worker."""

    def __init__(self, value: Any) -> None:
        self.value = value


def random_clauses(random: Random, count: int) -> list[str]:
    clauses = []
    for _ in range(count):
        parts = []
        for _ in range(random.choice((1, 1, 1, 2))):
            x, y = random.randrange(8), random.randrange(6)
            sides = [
                f"x BETWEEN {x} AND {x + random.choice((0, 1, 3, 7))}",
                random.choice((f"y BETWEEN {y} AND {y + random.choice((0, 2, 5))}", "y IS NULL", "TRUE", f"y <> {y}")),
                random.choice(("TRUE", "TRUE", "z", "NOT z", f"x <> {y}")),
            ]
            parts.append(" AND ".join(sides))
        clauses.append(" OR ".join(parts))
    return [*clauses, *clauses[: count // 4], "FALSE"]


def reduced(ids: pa.Array, clauses: list[str], kind: Any, tuning: Tuning) -> dict[Any, tuple[str, list[Any] | None]]:
    """What `reduce` would say, task by task and in one process."""
    source, space = Source(SPACE.to_json()), Space.from_json(SPACE.to_json())
    batches = pa.table({"id": ids, "where": clauses}).to_batches(max_chunksize=17)
    sample = sample_of(pa.Table.from_batches(list(SampleBoxes(source)(iter(batches)))), len(space))
    division = divided(sample, 1.0, space, tuning).dealt_out(2)
    placed = pa.Table.from_batches(
        list(CellPlace(source, Shipped(division), list(range(division.tasks)))(iter(batches)))
    )
    tasks = placed["task"].to_numpy()
    decided: list[pa.RecordBatch] = []
    for task in range(division.tasks):
        decided += Decide(source, None)(iter(placed.filter(pa.array(tasks == task)).to_batches(max_chunksize=23)))
    rows = pa.Table.from_batches(list(Unite(source, kind)(iter(decided)))).to_pylist()
    assert len(rows) == len(ids)
    return {row["id"]: (row["status"], row["covered_by"]) for row in rows}


def held(region: Region) -> set[Any]:
    return {point for point in POINTS if region.contains_point(point)}


@pytest.mark.parametrize("seed", range(soaked(12, 40)))
def test_against_every_point(seed: int) -> None:
    random = Random(seed)
    tuning = Tuning(
        linear=random.choice((1e-9, 1.0)),
        pairwise=1.0,
        gain=random.choice((0.98, 0.98, 2.0)),
        cells_max=random.choice((3, 20, 100)),
        task_rows=random.choice((4, 10, 40)),
    )
    clauses = random_clauses(random, random.choice((5, 20, 60)))
    has_ball = seed % 5 == 0  # with one, not everything is proven, but what is said is right
    clauses += [f"within({random.choice((1, 2, 4))}, x, 3, y, 2)"] * has_ball
    is_text = seed % 2 == 0
    numbers = random.sample(range(1000), len(clauses))
    ids = [f"s{number}" for number in numbers] if is_text else numbers
    found = reduced(pa.array(ids), clauses, StringType() if is_text else LongType(), tuning)
    regions = {id: SPACE.where(clause) for id, clause in zip(ids, clauses, strict=True)}
    full = [id for id in ids if not regions[id].is_empty]
    points, before = {id: held(regions[id]) for id in ids}, set[Any]()
    for id in sorted(full, key=lambda id: (-breadth(regions[id]), id)):
        status, names = found[id]
        if status == "passive" or not has_ball:
            assert (status == "passive") == (points[id] <= before), (id, regions[id])
        if status == "passive":
            assert names is not None and points[id] <= set().union(*(points[name] for name in names))
            assert all(found[name][0] == "active" for name in names)
        before |= points[id]
    assert all(found[id] == ("passive", []) for id in ids if regions[id].is_empty)
    assert np.any([found[id][0] == "active" for id in ids])
