"""Mergers of what `reduce` keeps: several active subscriptions that one clause says as well, or nearly.

Each active subscription goes to the cell of its least corner, and each cell merges what is there (merge/merge.py): so
neighbours meet, and partners in different cells are missed. What a merger adds is a share of what its members want, by
values. Given events, it is measured on a sample of them as well, and a merger that adds too many is none. A sample does
not decide alone: few events would let everything merge that they miss.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType

from thatch.errors import CallerError
from thatch.merge.merge import Merger, merged
from thatch.merge.weighing import share_of_events, share_of_values
from thatch.region.region import Region
from thatch.region.term import boxes_to_terms
from thatch.space.event_columns import event_columns
from thatch.space.space import Space
from thatch.spark.clauses import array_of, stream_of
from thatch.spark.encoded import Source, packed_region, unpacked_region
from thatch.spark.reducing.divide import Division
from thatch.spark.tables import check_time_zone, session_of, value_of
from thatch.spark.text import name_sql

EVENTS = 10_000  # that mergers are weighed with
TOGETHER = 2_048  # subscriptions that are merged at once: the cost grows with the square

RESULT = ("id", "status", "covered_by")


def counted_events(events: DataFrame) -> int:
    if events.isStreaming:
        raise CallerError("the events are a stream: take a table of some of them")
    return events.count()


def sampled_events(events: DataFrame, rows: int, space: Space, skip: bool = False, count: int = EVENTS) -> pa.Table:
    """Some of so many events on the driver, their attributes only, by the names of the space. With `skip`, without
    those that have a bad value."""
    check_time_zone(session_of(events), space)
    columns = event_columns(events.schema, space)
    names = [f"{value_of(own, a)} AS {name_sql(a.name)}" for own, a in zip(columns, space.attributes, strict=True)]
    some = events if rows <= count else events.sample(fraction=min(1.0, 1.2 * count / rows), seed=1).limit(count)
    table = some.selectExpr(*names).toArrow()
    return table.filter(pa.array(space.encode_valid(table)[1])) if skip else table


class SendHome:
    """In a worker: reduced subscriptions, with their clauses or bounds, to rows with the cell of their least corner.
    Passive ones have no region."""

    def __init__(self, source: Source, division: Any, keys: list[int]) -> None:
        self._source, self._division, self._keys = source, division, keys

    @staticmethod
    def schema(id: str) -> str:
        return f"task int, cell int, id {id}, status string, covered_by array<{id}>, region binary"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        space, division = self._source.new_space(), self._division.value
        for batch in batches:
            yield self._sent(batch, space, division)

    def _sent(self, batch: pa.RecordBatch, space: Space, division: Division) -> pa.RecordBatch:
        status = batch.column("status").to_numpy(zero_copy_only=False)
        own = batch.select(["id", *(name for name in batch.schema.names if name not in RESULT)])
        active = np.flatnonzero(status == "active")
        boxed = self._source.boxed(own.take(pa.array(active)), space)
        corner = boxed.low[boxed.starts[:-1]]
        order, cell = division.placed(corner, corner)
        cells, regions = np.zeros(batch.num_rows, np.int64), list[bytes | None]([None] * batch.num_rows)
        cells[active[order]] = cell
        for row, at in enumerate(active.tolist()):
            part = slice(boxed.starts[row], boxed.starts[row + 1])
            region = boxed.odd.get(row)
            if region is None:
                region = Region(space, boxes_to_terms(boxed.low[part], boxed.high[part], space))
            regions[at] = packed_region(region)
        tasks = np.array(self._keys, np.int32)[division.task[division.guards.first[cells]]]
        rest = [batch.column(name) for name in RESULT]
        columns = [pa.array(tasks, pa.int32()), pa.array(cells, pa.int32()), *rest, pa.array(regions, pa.binary())]
        return pa.record_batch(columns, names=["task", "cell", *RESULT, "region"])


class MergeCells:
    """In a worker: rows of its cells to the result with mergers."""

    def __init__(self, source: Source, id: DataType, budget: float, sample: Any) -> None:
        """`sample` is a broadcast of a stream of events, or None."""
        self._source, self._id, self._budget, self._sample = source, to_arrow_type(id), budget, sample

    @staticmethod
    def schema(id: str) -> str:
        return (
            f"id {id}, status string, covered_by array<{id}>, merger {id}, merged_where string, merged int,"
            " added double, added_events double"
        )

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts = list(batches)
        if not parts:
            return
        table = pa.Table.from_batches(parts)
        space = self._source.new_space()
        sample = None if self._sample is None else pa.table(array_of(self._sample.value).flatten(), names=_names(space))
        columns = None if sample is None else space.encode_batch(sample)
        measured: dict[Any, float] = {}
        table = table.sort_by([("cell", "ascending"), ("id", "ascending")])
        cells = table.column("cell").to_numpy()
        found: dict[Any, Merger] = {}
        for cell in np.unique(cells).tolist():
            start, stop = np.searchsorted(cells, [cell, cell + 1]).tolist()
            own = table.slice(start, stop - start).select(["id", "region"]).to_pylist()
            regions = {row["id"]: unpacked_region(row["region"], space) for row in own if row["region"] is not None}
            ids = list(regions)
            for place in range(0, len(ids), TOGETHER):
                some = {id: regions[id] for id in ids[place : place + TOGETHER]}
                for each in merged(some, space, self._budget):
                    if len(each.members) == 1:
                        continue
                    if columns is not None:
                        measured[each.members[0]] = share_of_events(each, some, columns)
                    if measured.get(each.members[0], 0.0) <= self._budget:
                        weighed = replace(each, added=share_of_values(each, some))
                        found.update(dict.fromkeys(each.members, weighed))
        yield self._written(table, found, measured)

    def _written(self, table: pa.Table, found: dict[Any, Merger], measured: dict[Any, float]) -> pa.RecordBatch:
        ids = table.column("id").to_pylist()
        mergers = [found.get(id) for id in ids]
        heads = [None if each is None or each.members[0] != id else each for id, each in zip(ids, mergers, strict=True)]
        first = [None if each is None else each.members[0] for each in mergers]
        columns = [table.column(name).combine_chunks() for name in RESULT]
        columns.append(pa.array(first, self._id))
        columns.append(pa.array([None if each is None else each.region.to_sql() for each in heads], pa.string()))
        columns.append(pa.array([None if each is None else len(each.members) for each in heads], pa.int32()))
        columns.append(pa.array([None if each is None else each.added for each in heads], pa.float64()))
        shares = [None if each is None else measured.get(each.members[0]) for each in heads]
        columns.append(pa.array(shares, pa.float64()))
        names = [*RESULT, "merger", "merged_where", "merged", "added", "added_events"]
        return pa.record_batch(columns, names=names)


def _names(space: Space) -> list[str]:
    return [attribute.name for attribute in space]


def packed_events(events: pa.Table) -> bytes:
    """A table as bytes, to be broadcast."""
    return stream_of(events.to_struct_array().combine_chunks() if events.num_rows else pa.array([], _struct(events)))


def _struct(events: pa.Table) -> pa.DataType:
    return pa.struct(list(events.schema))
