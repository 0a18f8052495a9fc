"""Where events are and where subscriptions are: both counted on the cells of the two attributes that tell most.

A cell without a subscription is one that no region meets, so nobody wants what happens there. A cell without an event
had none in the whole table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from thatch.grid.grid import Grid
from thatch.region.box_sets import region_of_box
from thatch.reports.places import Places
from thatch.space.arrays import Ints
from thatch.space.event_columns import event_columns
from thatch.space.space import Space
from thatch.spark.encoded import Source
from thatch.spark.failures import map_batches
from thatch.spark.text import path_sql

SIDE = 16  # cells of each attribute


class CountEvents:
    """In a worker: batches of events to how many are in each cell."""

    schema = "cell int, rows bigint"

    def __init__(self, source: Source, columns: list[int], starts: list[Ints], skip: bool) -> None:
        self._source, self._columns, self._starts, self._skip = source, columns, starts, skip

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        space = self._source.new_space()  # with strings as all subscriptions label them
        counts = np.zeros(np.prod([len(each) for each in self._starts]), np.int64)
        for batch in batches:
            named = {a.name: batch.column(at) for at, a in enumerate(space)}
            points = space.encode_valid(named)[0] if self._skip else space.encode_batch(named)
            counts += np.bincount(cells_of([points[at] for at in self._columns], self._starts), minlength=len(counts))
        held = np.flatnonzero(counts)
        yield pa.record_batch({"cell": pa.array(held, pa.int32()), "rows": pa.array(counts[held])})


class CountBoxes:
    """In a worker: batches of subscriptions to how many meet each cell."""

    schema = CountEvents.schema

    def __init__(self, source: Source, columns: list[int], starts: list[Ints]) -> None:
        self._source, self._columns, self._starts = source, columns, starts

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        space = self._source.new_space()
        shape = tuple(len(each) for each in self._starts)
        counts = np.zeros(shape, np.int64)
        for batch in batches:
            boxed = self._source.boxed(batch, space)
            first, last = (
                [
                    np.searchsorted(s, side[:, at], "right") - 1
                    for at, s in zip(self._columns, self._starts, strict=True)
                ]
                for side in (boxed.low, boxed.high)
            )
            sizes = np.diff(boxed.starts)
            single = np.repeat(sizes == 1, sizes)
            counts += met([each[single] for each in first], [each[single] for each in last], shape)
            for row in np.flatnonzero(sizes > 1).tolist():  # a cell counts once, however many boxes meet it
                own = slice(boxed.starts[row], boxed.starts[row + 1])
                counts += met([each[own] for each in first], [each[own] for each in last], shape) > 0
        flat = counts.ravel()
        held = np.flatnonzero(flat)
        yield pa.record_batch({"cell": pa.array(held, pa.int32()), "rows": pa.array(flat[held])})


def met(first: Sequence[Ints], last: Sequence[Ints], shape: tuple[int, ...]) -> Ints:
    """How many boxes of cells, first to last on each axis, hold each cell: sums of what begins minus what has ended."""
    steps = np.zeros([size + 1 for size in shape], np.int64)
    for corner in np.ndindex(*[2] * len(shape)):
        place = tuple(last[axis] + 1 if end else first[axis] for axis, end in enumerate(corner))
        np.add.at(steps, place, -1 if sum(corner) % 2 else 1)
    for axis in range(len(shape)):
        steps = np.cumsum(steps, axis=axis)
    return np.asarray(steps[tuple(slice(size) for size in shape)])


def cells_of(columns: Sequence[Ints], starts: Sequence[Ints]) -> Ints:
    """The number of the cell of each point."""
    cell = np.zeros(len(columns[0]), np.int64)
    for column, own in zip(columns, starts, strict=True):
        cell = cell * len(own) + np.searchsorted(own, column, "right") - 1
    return cell


def places(
    events: DataFrame,
    frame: DataFrame,
    source: Source,
    space: Space,
    names: list[str],
    boundaries: Mapping[str, Sequence[Any]],
    points: Ints,
    unwanted: Any,
    skip: bool,
) -> Places:
    """`space` has the labels of all strings; `points` are the sampled events."""
    columns = [index for name in names if (index := space.index(name)) is not None]
    starts = []
    for name in names:
        own = list(boundaries[name])
        step = max(1, -(-len(own) // (SIDE - 1)))
        starts.append(Grid(space, [name], 6, cells={name: own[step - 1 :: step]}).starts[0])
    kept = event_columns(events.schema, space)
    plain = events.selectExpr(*[f"{path_sql(path)} AS c{at}" for at, path in enumerate(kept)])
    shape = tuple(len(each) for each in starts)
    by_event = map_batches(plain, CountEvents(source, columns, starts, skip), CountEvents.schema)
    by_box = map_batches(frame, CountBoxes(source, columns, starts), CountBoxes.schema)
    cells = cells_of([points[:, at] for at in columns], starts)
    sampled = np.bincount(cells, minlength=int(np.prod(shape)))
    alone = np.bincount(cells[unwanted], minlength=int(np.prod(shape)))
    counted, meeting = _summed(by_event, by_box, shape)
    grids = [_two(each.reshape(shape)) for each in (counted, sampled, alone, meeting)]
    return Places(names, _clauses(space, columns, starts), *grids)


def _two(counts: Any) -> Any:
    return counts if counts.ndim == 2 else counts[:, None]


def _summed(by_event: DataFrame, by_box: DataFrame, shape: tuple[int, ...]) -> Any:
    """Of each cell its events and its boxes, in one job."""
    both = by_event.withColumn("kind", F.lit(0)).union(by_box.withColumn("kind", F.lit(1)))
    rows = both.groupBy("kind", "cell").agg(F.sum("rows").alias("rows")).toArrow()
    found = np.zeros((2, int(np.prod(shape))), np.int64)
    found[rows.column("kind").to_numpy(), rows.column("cell").to_numpy()] = rows.column("rows").to_numpy()
    return found


def _clauses(space: Space, columns: Sequence[int], starts: Sequence[Ints]) -> list[list[str]]:
    """The clause of each cell."""
    found = []
    for first in range(len(starts[0])):
        row = []
        for second in range(len(starts[1]) if len(starts) > 1 else 1):
            low, high = space.low[0].copy(), space.high[0].copy()
            for at, own, place in zip(columns, starts, (first, second), strict=False):
                low[at] = own[place]
                high[at] = own[place + 1] - 1 if place + 1 < len(own) else space.high[0][at]
            row.append(region_of_box(low.tolist(), high.tolist(), space).to_sql())
        found.append(row)
    return found
