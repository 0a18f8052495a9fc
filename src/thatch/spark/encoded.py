"""Subscriptions as rows of boxes in coordinates, made by Spark's workers: what `reduce` shuffles and decides on.

Boxes travel as bytes: the low ends of one, its high ends, those of the next, each an int64. What boxes cannot say
(balls, sets too large to expand) travels as a region, together with the boxes around it.

Labels mean something only with their cuts, and rows of different workers meet. So where the space has labelled
attributes (strings, long decimals), the cuts that subscriptions make are gathered first, numbered on the driver, and
sent to every worker: the driver holds the cuts, never the subscriptions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from thatch.cover.box_rows import Boxed, boxed_regions
from thatch.region.columns import boxes_of_columns, regions_of_boxes
from thatch.region.packing import Regions, pack_labels, pack_regions, restore_labels, unpack_regions
from thatch.region.region import Region
from thatch.space.arrays import Ints
from thatch.space.axis import EnumAxis
from thatch.space.space import Space
from thatch.spark.clauses import compiled, wrong_clauses
from thatch.spark.failures import map_batches
from thatch.spark.tables import SubscriptionFrame
from thatch.spark.text import name_sql
from thatch.where.enum_bounds import within_enum


@dataclass(frozen=True)
class Source:
    """What a worker has to know to make boxes of batches: of `id` and `where`, or of `id` and bounds `low0`, `high0`
    by the number of the attribute."""

    space: str  # as JSON
    low: list[int] = field(default_factory=list)
    high: list[int] = field(default_factory=list)
    has_clauses: bool = True
    skip: bool = False
    cuts: Any = None  # a broadcast of `PackedLabels`; None: each batch makes its own cuts

    def new_space(self) -> Space:
        space = Space.from_json(self.space)
        if self.cuts is not None:
            restore_labels(space, self.cuts.value)
        return space

    def boxed(self, batch: pa.RecordBatch, space: Space) -> Boxed:
        if self.has_clauses:
            rows, regions, wrong = compiled(batch, space)
            if wrong and not self.skip:
                raise wrong_clauses(wrong)
            return boxed_regions(batch.column(0).take(pa.array(rows, pa.int64())), regions, space)
        names = [attribute.name for attribute in space]
        enums = {at for at in {*self.low, *self.high} if isinstance(space.attributes[at].axis, EnumAxis)}
        low = {names[at]: batch.column(f"low{at}") for at in self.low if at not in enums}
        high = {names[at]: batch.column(f"high{at}") for at in self.high if at not in enums}
        boxes = boxes_of_columns(low, high, batch.num_rows, space)
        if enums:
            regions = regions_of_boxes(boxes, space)
            for at in sorted(enums):
                ends = [
                    batch.column(f"{side}{at}").to_pylist() if at in own else [None] * batch.num_rows
                    for side, own in (("low", self.low), ("high", self.high))
                ]
                regions = within_enum(regions, at, ends[0], ends[1], space)
            return boxed_regions(batch.column(0), regions, space)
        starts = np.concatenate(([0], np.cumsum(boxes.full))).astype(np.int64)
        return Boxed(batch.column(0), boxes.low[boxes.full], boxes.high[boxes.full], starts, {})


def source_of(subscriptions: SubscriptionFrame, skip: bool) -> tuple[Source, DataFrame]:
    """How to make boxes of a table, and the table with its columns by the names that workers know."""
    space, id = subscriptions.space.to_json(), f"{name_sql(subscriptions.id)} AS id"
    if subscriptions.where is not None:
        return Source(space, skip=skip), subscriptions.frame.selectExpr(
            id, f"{name_sql(subscriptions.where)} AS `where`"
        )
    columns = [f"{name_sql(name)} AS low{at}" for at, name in subscriptions.low.items()]
    columns += [f"{name_sql(name)} AS high{at}" for at, name in subscriptions.high.items()]
    source = Source(space, list(subscriptions.low), list(subscriptions.high), False, skip)
    return source, subscriptions.frame.selectExpr(id, *columns)


class GatherCuts:
    """In a worker: batches of subscriptions to the cuts that they make, `attribute` and `cut`."""

    schema = "attribute int, cut string"

    def __init__(self, source: Source) -> None:
        self._source = source

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        space = self._source.new_space()
        for batch in batches:
            self._source.boxed(batch, space)
        for number, labels in enumerate(space.label_codes):
            cuts = labels.to_pairs()[0]
            yield pa.record_batch(
                {"attribute": pa.array([number] * len(cuts), pa.int32()), "cut": pa.array(cuts, pa.string())}
            )


def with_cuts(source: Source, frame: DataFrame) -> Source:
    """The same with one set of label codes for all cuts that a table makes."""
    space = source.new_space()
    axes = space.labelled_axes
    if not axes:
        return source
    found = map_batches(frame, GatherCuts(source), GatherCuts.schema).distinct().toArrow()
    attribute = found.column("attribute").to_numpy()
    for number, axis in enumerate(axes):
        axis.cut_many(found.column("cut").filter(pa.array(attribute == number)).to_pylist())
    shipped = frame.sparkSession.sparkContext.broadcast(pack_labels(space.label_codes))
    return Source(source.space, source.low, source.high, source.has_clauses, source.skip, shipped)


# Boxes and regions as bytes


def packed_boxes(low: Ints, high: Ints, sizes: Ints) -> pa.Array:
    """An Arrow array of bytes, the first `sizes[0]` boxes in its first value, and so on."""
    data = np.ascontiguousarray(np.concatenate((low, high), axis=1).astype("<i8"))
    ends = np.concatenate(([0], np.cumsum(sizes))) * 16 * low.shape[1]
    buffers = [None, pa.py_buffer(ends.astype(np.int32).tobytes()), pa.py_buffer(data.tobytes())]
    return pa.Array.from_buffers(pa.binary(), len(sizes), buffers)


def unpacked_boxes(column: pa.Array, attributes: int) -> tuple[Ints, Ints, Ints]:
    """Boxes low[m, d], high[m, d], and where those of each value begin. NULL has none."""
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    data = column.buffers()[2]
    held = b"" if data is None else memoryview(data)[offsets[0] : offsets[-1]]
    both = np.frombuffer(held, "<i8").astype(np.int64).reshape(-1, 2 * attributes)
    starts = (offsets - offsets[0]).astype(np.int64) // (16 * attributes)
    return np.ascontiguousarray(both[:, :attributes]), np.ascontiguousarray(both[:, attributes:]), starts


def packed_region(region: Region) -> bytes:
    return msgspec.msgpack.encode(pack_regions([region.terms]))


def unpacked_region(data: bytes, space: Space) -> Region:
    return unpack_regions(msgspec.msgpack.decode(data, type=Regions), space)[0]
