"""Which rules want the same: workers give each rule a key that equal regions have, and Spark brings equal keys
together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from thatch.region.identity import region_key
from thatch.region.region import Region
from thatch.region.term import boxes_to_terms
from thatch.spark.encoded import Source, source_of
from thatch.spark.failures import map_batches
from thatch.spark.tables import SubscriptionFrame, fields
from thatch.where.many import compile_many


class KeyRegions:
    """In a worker: batches of subscriptions to `id` and `key`, without those that no event can match."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            ids, regions = self._regions(batch)
            full = [row for row, region in enumerate(regions) if not region.is_empty]
            keys = pa.array([region_key(regions[row]) for row in full], pa.binary())
            yield pa.record_batch({"id": ids.take(pa.array(full, pa.int64())), "key": keys})

    def _regions(self, batch: pa.RecordBatch) -> tuple[pa.Array, list[Region]]:
        space = self._source.new_space()
        if self._source.has_clauses:
            rows, regions, _ = compile_many(batch.column(1).to_pylist(), space)
            return batch.column(0).take(pa.array(rows, pa.int64())), regions
        boxed = self._source.boxed(batch, space)
        spans = zip(boxed.starts.tolist(), boxed.starts[1:].tolist(), strict=False)
        return boxed.ids, [
            Region(space, boxes_to_terms(boxed.low[first:last], boxed.high[first:last], space)) for first, last in spans
        ]


def groups_of_same(subscriptions: SubscriptionFrame) -> DataFrame:
    """Ids of rules that want what another one wants, which is something, too: `id`, `key`."""
    source, frame = source_of(subscriptions, skip=True)
    schema = StructType([StructField("id", subscriptions.id_type), *fields("key binary")])
    keys = map_batches(frame, KeyRegions(source), schema).localCheckpoint()
    twice = keys.groupBy("key").count().where("count > 1").select("key")
    return keys.join(twice, "key", "left_semi")
