"""phi of subscriptions, and similar pairs (learning/similar.py), by Spark's joins over the pairs of a sample."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from thatch.cover.box_rows import Boxed
from thatch.learning.similar import ALIKE, nested
from thatch.space.space import Space
from thatch.spark.encoded import Source, packed_boxes, packed_region, unpacked_boxes, unpacked_region
from thatch.spark.failures import map_batches


class EncodeRegions:
    """In a worker: batches of subscriptions to `id`, `boxes`, `region`; the latter where boxes do not say all."""

    def __init__(self, source: Source) -> None:
        self._source = source

    @staticmethod
    def schema(id: str) -> str:
        return f"id {id}, boxes binary, region binary"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        space = self._source.new_space()
        for batch in batches:
            boxed = self._source.boxed(batch, space)
            regions = [packed_region(boxed.odd[row]) if row in boxed.odd else None for row in range(len(boxed.ids))]
            boxes = packed_boxes(boxed.low, boxed.high, np.diff(boxed.starts))
            columns = {"id": boxed.ids, "boxes": boxes, "region": pa.array(regions, pa.binary())}
            yield pa.record_batch(columns)


class Nest:
    """In a worker: pairs of regions to whether each covers the other, `inside` (of the other) and `around` (it)."""

    def __init__(self, source: Source) -> None:
        self._source = source

    @staticmethod
    def schema(id: str) -> str:
        return f"id {id}, other {id}, inside boolean, around boolean"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        space = self._source.new_space()
        for batch in batches:
            rows = np.arange(batch.num_rows)
            inside, around = nested(_boxed(batch, "", space), rows, _boxed(batch, "other_", space), rows, space)
            columns = [batch.column("id"), batch.column("other"), pa.array(inside), pa.array(around)]
            yield pa.record_batch(columns, names=["id", "other", "inside", "around"])


def _boxed(batch: pa.RecordBatch, side: str, space: Space) -> Boxed:
    low, high, starts = unpacked_boxes(batch.column(f"{side}boxes"), len(space))
    regions = enumerate(batch.column(f"{side}region").to_pylist())
    odd = {row: unpacked_region(data, space) for row, data in regions if data is not None}
    return Boxed(batch.column("id"), low, high, starts, odd)


def phi(pairs: DataFrame, frame: DataFrame, source: Source, id: str) -> DataFrame:
    """`id`, `events` (of the sample), `root`, `phi`, of subscriptions that want an event of the sample. `pairs` are
    `event`, `id`; `frame` is of subscriptions as `source` knows them."""
    crowds = pairs.groupBy("event").agg(F.count("id").alias("crowd"))
    wanted = pairs.join(crowds, "event")
    asked = wanted.groupBy("id").agg(F.min_by("event", "crowd").alias("event"), F.count("event").alias("events"))
    paired = asked.select("id", "event").join(pairs.withColumnRenamed("id", "other"), "event").where("id <> other")
    encoded = map_batches(
        frame.join(asked.select("id"), "id", "left_semi"), EncodeRegions(source), EncodeRegions.schema(id)
    )
    theirs = encoded.selectExpr("id AS other", "boxes AS other_boxes", "region AS other_region")
    both = paired.select("id", "other").join(encoded, "id").join(theirs, "other")
    both = both.select("id", "other", "boxes", "region", "other_boxes", "other_region")
    nested = map_batches(both, Nest(source), Nest.schema(id)).where("inside").localCheckpoint()
    above = nested.groupBy("id").agg(F.count_if(~F.col("around")).alias("above"), F.count("other").alias("nested"))
    # How many that S strictly covers want each event of S.
    below = nested.where("NOT around").selectExpr("other AS id", "id AS inner")
    inner = pairs.withColumnRenamed("id", "inner")
    below = below.join(inner, "inner").groupBy("id", "event").agg(F.count("inner").alias("below"))
    rows = (
        wanted.join(above, "id", "left").join(below, ["id", "event"], "left").na.fill(0, ["above", "nested", "below"])
    )
    shared = "CASE WHEN above = 0 THEN crowd > 1 ELSE crowd - 1 - nested - below > 0 END"
    return rows.groupBy("id").agg(
        F.count("event").alias("events"),
        (F.max("above") == 0).alias("root"),
        F.avg(F.expr(f"double({shared})")).alias("phi"),
    )


def alike(pairs: DataFrame) -> DataFrame:
    """`one`, `other`, `both`, `either`, `similarity` (both by either), of those that want most events of the sample."""
    counts = pairs.groupBy("id").agg(F.count("event").alias("events"))
    most = counts.orderBy(F.desc("events"), "id").limit(ALIKE)
    wanted = pairs.join(F.broadcast(most), "id")
    one = wanted.selectExpr("event", "id AS one", "events AS one_events")
    other = wanted.selectExpr("event", "id AS other", "events AS other_events")
    both = one.join(other, "event").where("one < other").groupBy("one", "other", "one_events", "other_events")
    rows = both.agg(F.count("event").alias("both"))
    either = "one_events + other_events - both"
    return rows.selectExpr("one", "other", "both", f"{either} AS either", f"both / ({either}) AS similarity")
