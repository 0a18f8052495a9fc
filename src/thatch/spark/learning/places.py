"""Events and subscriptions counted on a grid of cells (learning/cells.py), by Spark's workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from thatch.learning.cells import CellBox, CellGrid
from thatch.space.arrays import Ints
from thatch.space.event_columns import event_columns
from thatch.spark.encoded import Source
from thatch.spark.failures import map_batches
from thatch.spark.text import path_sql

NUMBERED = "place int, rows bigint"  # how many there are of each cell, or of each region


class CountEvents:
    """In a worker: batches of events to how many are in each cell."""

    def __init__(self, source: Source, grid: CellGrid, skip: bool) -> None:
        self._source, self._grid, self._skip = source, grid, skip

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        space = self._source.new_space()  # with strings as all subscriptions label them
        counts = np.zeros(self._grid.shape, np.int64)
        for batch in batches:
            named = {a.name: batch.column(at) for at, a in enumerate(space)}
            points = space.encode_valid(named)[0] if self._skip else space.encode_batch(named)
            counts += self._grid.count_cells(self._grid.cells_of(points))
        yield _numbered(counts)


class CountBoxes:
    """In a worker: batches of subscriptions to how many meet each cell, or each region of cells if some are given."""

    def __init__(self, source: Source, grid: CellGrid, regions: Sequence[CellBox] | None = None) -> None:
        self._source, self._grid, self._regions = source, grid, regions

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        space, grid, regions = self._source.new_space(), self._grid, self._regions
        counts = np.zeros(grid.shape if regions is None else len(regions), np.int64)
        for batch in batches:
            boxed = self._source.boxed(batch, space)
            counts += grid.count_boxes(boxed) if regions is None else grid.count_boxes_in(boxed, regions)
        yield _numbered(counts)


def _numbered(counts: Ints) -> pa.RecordBatch:
    flat = counts.ravel()
    full = np.flatnonzero(flat)
    return pa.record_batch({"place": pa.array(full, pa.int32()), "rows": pa.array(flat[full])})


def counted_cells(events: DataFrame, frame: DataFrame, source: Source, grid: CellGrid, skip: bool) -> tuple[Ints, Ints]:
    """Of each cell its events and the subscriptions that meet it, in one job."""
    kept = event_columns(events.schema, source.new_space())
    plain = events.selectExpr(*[f"{path_sql(path)} AS c{at}" for at, path in enumerate(kept)])
    by_event = map_batches(plain, CountEvents(source, grid, skip), NUMBERED).withColumn("kind", F.lit(0))
    by_box = map_batches(frame, CountBoxes(source, grid), NUMBERED).withColumn("kind", F.lit(1))
    found = np.zeros((2, int(np.prod(grid.shape))), np.int64)
    rows = by_event.union(by_box).groupBy("kind", "place").agg(F.sum("rows").alias("rows")).toArrow()
    kind, place, counts = (rows.column(name).to_numpy() for name in ("kind", "place", "rows"))
    found[kind, place] = counts
    return found[0].reshape(grid.shape), found[1].reshape(grid.shape)


def counted_regions(frame: DataFrame, source: Source, grid: CellGrid, regions: Sequence[CellBox]) -> Ints:
    """How many subscriptions meet each of these."""
    found = np.zeros(len(regions), np.int64)
    if len(regions):
        counts = map_batches(frame, CountBoxes(source, grid, regions), NUMBERED)
        rows = counts.groupBy("place").agg(F.sum("rows").alias("rows")).toArrow()
        found[rows.column("place").to_numpy()] = rows.column("rows").to_numpy()
    return found
