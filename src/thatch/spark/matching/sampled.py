"""Samples of events and of subscriptions, and the keys that suit them.

Both samples meet in one task on an executor, which chooses the keys (keys.py); only what it finds out comes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame

from thatch.space.attribute import Attribute
from thatch.space.schemas import ColumnPath
from thatch.spark.failures import map_batches
from thatch.spark.matching.cells import hashed, hashes, is_hashed, position
from thatch.spark.matching.keys import KeyChoice, Native
from thatch.spark.matching.typed import constrained, high_column, low_column, null, typed, values
from thatch.spark.tables import SubscriptionFrame, value_of

SAMPLE = 1024  # events, and subscriptions


class ChooseKeys:
    """In a worker: both samples to one row, the keys."""

    schema = "plan binary"

    def __init__(self, choice: KeyChoice) -> None:
        self._choice = choice

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = [row for batch in batches for row in batch.to_pylist()]
        plan = self._choice.chosen(rows)
        yield pa.record_batch({"plan": pa.array([msgspec.msgpack.encode(plan)], pa.binary())})


def chosen_keys(
    events: DataFrame,
    columns: Sequence[ColumnPath],
    subscriptions: SubscriptionFrame,
    skip: bool,
    events_guessed: float,
    count: int,
) -> Native:
    """The keys for a match of these tables: a Spark job. `count` is of the subscriptions."""
    wanted = constrained(subscriptions)
    hashed_ones = [is_hashed(subscriptions.space.attributes[index]) for index in wanted]
    choice = KeyChoice(wanted, hashed_ones, events_guessed, count)
    both = sampled(events, columns, subscriptions, skip)
    rows = map_batches(both, ChooseKeys(choice), ChooseKeys.schema).collect()
    if not rows:  # no partition, no task
        return choice.chosen([])
    return msgspec.msgpack.decode(bytes(rows[0][0]), type=Native)


def sampled(
    events: DataFrame, columns: Sequence[ColumnPath], subscriptions: SubscriptionFrame, skip: bool
) -> DataFrame:
    """Both samples in one DataFrame: a double for each value of an event, and for each bound of a subscription."""
    space, wanted = subscriptions.space, constrained(subscriptions)
    attributes = [space.attributes[index] for index in wanted]
    event = [value_of(columns[index], attribute) for index, attribute in zip(wanted, attributes, strict=True)]
    places = [_place(value, attribute) for value, attribute in zip(event, attributes, strict=True)]
    points = events.limit(SAMPLE).selectExpr(
        f"CAST(array({', '.join(places)}) AS array<double>) AS low",
        "CAST(NULL AS array<double>) AS high",
        "CAST(NULL AS array<boolean>) AS `null`",
        "CAST(array() AS array<array<bigint>>) AS lists",
    )
    rows = typed(subscriptions, skip)
    lows, highs, nulls, lists = [], [], [], []
    for index, attribute in zip(wanted, attributes, strict=True):
        is_set = is_hashed(attribute)
        lows.append("CAST(NULL AS DOUBLE)" if is_set else position(low_column(index), attribute))
        highs.append("CAST(NULL AS DOUBLE)" if is_set else position(high_column(index), attribute))
        nulls.append(null(index))
        lists.append(hashes(values(index)) if is_set else "CAST(NULL AS array<bigint>)")
    boxes = rows.limit(SAMPLE).selectExpr(
        *(
            f"array({', '.join(parts)}) AS {name}"
            for name, parts in (("low", lows), ("high", highs), ("`null`", nulls), ("lists", lists))
        )
    )
    return points.unionByName(boxes).coalesce(1)


def _place(value: str, attribute: Attribute) -> str:
    place = f"CAST({hashed(value)} AS DOUBLE)" if is_hashed(attribute) else position(value, attribute)
    return f"CASE WHEN {value} IS NOT NULL THEN {place} END"
