"""The strategy `arrow`: events go through Python workers in Arrow batches, past the index that each of them has open.

It works for any DataFrame. Its cost is the way of each event to a worker and of each match back, and little else: the
index looks at few more subscriptions than match.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from thatch.space.schemas import ColumnPath
from thatch.spark.failures import map_batches


class MatchBatches:
    """In a worker: batches of events to batches of matches."""

    def __init__(self, shipped: Any, names: list[str], attributes: list[ColumnPath], skip: bool) -> None:
        self._shipped, self._names, self._attributes, self._skip = shipped, names, attributes, skip

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        index = self._shipped.value
        for batch in batches:
            yield from index.matched(batch.rename_columns(self._names), self._attributes, self._skip)


def match_arrow(
    events: DataFrame, shipped: Any, attributes: list[ColumnPath], schema: StructType, skip: bool
) -> DataFrame:
    plain = events.toDF(
        *[f"c{place}" for place in range(len(events.columns))]
    )  # Spark refuses dots in names on the way
    return map_batches(plain, MatchBatches(shipped, events.columns, attributes, skip), schema)
