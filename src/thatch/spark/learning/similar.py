"""How alike subscriptions are, by the events that they want: phi of each, and pairs.

From congestion (III-B), on a sample of events. When S is withdrawn, the subscriptions that only S held back are
forwarded in its place: NRS(S), its new roots. INC(S) are those that meet S, and neither cover it nor are covered by it.
P(.) are the events that somebody of them wants.

    P*(S) = P(NRS(S)) ∪ (P(S) ∩ P(INC(S)))          phi(S) = |P*(S)| / |P(S)|

A root is covered by no other one. Whoever meets a root is either covered by it, and then a new root, or inside one, or
inside another root that meets S; or it is in INC. So phi of a root is the share of its events that somebody else wants,
too. Who is no root has no new roots, and its phi counts INC alone. Two that are equal are both taken for roots, each
the successor of the other.

Whether one covers another is decided exactly, by their regions. Only those are asked that want an event of the sample
in common: who covers S wants all events of S, so those that want the event of S that fewest want.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from thatch.cover.verdict import is_covered
from thatch.errors import TooManyBoxes
from thatch.region.region import Region
from thatch.region.term import boxes_to_terms
from thatch.space.space import Space
from thatch.spark.encoded import Source, packed_boxes, packed_region, unpacked_boxes, unpacked_region
from thatch.spark.failures import map_batches

ALIKE = 200  # subscriptions, those that want most, of which all pairs are compared


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
            inside, around = _nested(batch, space)
            columns = [batch.column("id"), batch.column("other"), pa.array(inside), pa.array(around)]
            yield pa.record_batch(columns, names=["id", "other", "inside", "around"])


def _nested(batch: pa.RecordBatch, space: Space) -> tuple[Any, Any]:
    low, high, starts = unpacked_boxes(batch.column("boxes"), len(space))
    other_low, other_high, other_starts = unpacked_boxes(batch.column("other_boxes"), len(space))
    regions, others = batch.column("region").to_pylist(), batch.column("other_region").to_pylist()
    plain = (np.diff(starts) == 1) & (np.diff(other_starts) == 1)
    plain &= np.array([one is None and other is None for one, other in zip(regions, others, strict=True)], np.bool_)
    inside, around = np.zeros(len(plain), np.bool_), np.zeros(len(plain), np.bool_)
    rows = np.flatnonzero(plain)
    one, other = starts[rows], other_starts[rows]
    inside[rows] = ((low[one] >= other_low[other]) & (high[one] <= other_high[other])).all(axis=1)
    around[rows] = ((low[one] <= other_low[other]) & (high[one] >= other_high[other])).all(axis=1)
    for row in np.flatnonzero(~plain).tolist():
        own, their = slice(starts[row], starts[row + 1]), slice(other_starts[row], other_starts[row + 1])
        mine = _region(regions[row], low[own], high[own], space)
        theirs = _region(others[row], other_low[their], other_high[their], space)
        inside[row], around[row] = _is_inside(mine, theirs), _is_inside(theirs, mine)
    return inside, around


def _is_inside(one: Region, other: Region) -> bool:
    try:
        return is_covered(one, [other])
    except TooManyBoxes:
        return False


def _region(data: bytes | None, low: Any, high: Any, space: Space) -> Region:
    if data is not None:
        return unpacked_region(data, space)
    return Region(space, boxes_to_terms(low, high, space))


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
