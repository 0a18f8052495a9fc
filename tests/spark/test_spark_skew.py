"""Skew: half of all events are one and the same, and no task takes much longer than the others.

Times of tasks are Spark's own, of the stage that takes the most. They mean something only where tasks take a good part
of a second, so this runs with THATCH_SOAK; `benchmarks/spark.py` reports the same of larger tables.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest

from helpers.spark_oracles import SOAK, WAYS, Way, settings
from thatch import Space

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.skipif(not SOAK, reason="takes minutes: set THATCH_SOAK")

EVENTS, SUBSCRIPTIONS, PARTITIONS = 4_000_000, 3000, 16
TRIES = 3  # the machine may have other things to do
SPACE = Space.parse("symbol string not null, price double not null, count double not null")


def hot_events(spark: SparkSession) -> DataFrame:
    return spark.range(0, EVENTS, 1, PARTITIONS).selectExpr(
        "id AS event",
        "IF(id % 2 = 0, 'HOT', concat('S', CAST(xxhash64(id, 1) & 1023 AS STRING))) AS symbol",
        "IF(id % 2 = 0, 500D, (xxhash64(id, 2) & 65535) / 65.536D) AS price",
        "IF(id % 2 = 0, 500D, (xxhash64(id, 3) & 65535) / 65.536D) AS count",
    )


def subscriptions(spark: SparkSession) -> DataFrame:
    """One in fifty is about the hot symbol; of these, one in ten wants the hot events."""
    symbol = "IF(id % 50 = 0, 'HOT', concat('S', CAST(id & 1023 AS STRING)))"
    low = "IF(id % 500 = 0, 490D, (xxhash64(id, 5) & 65535) / 65.536D)"
    return spark.range(SUBSCRIPTIONS).selectExpr(
        "id", f"{symbol} AS low_symbol", f"{symbol} AS high_symbol", f"{low} AS low_price", f"{low} + 50D AS high_price"
    )


@pytest.mark.parametrize("way", [way for way in WAYS if way.given != "scan"], ids=lambda way: way.name)
def test_no_task_waits_for_one(way: Way, spark: SparkSession, tmp_path: Path) -> None:
    import thatch.spark as ts

    events: Any = hot_events(spark)
    changes = {"spark.sql.shuffle.partitions": str(PARTITIONS)}
    changes["spark.sql.adaptive.coalescePartitions.enabled"] = "false"
    with settings(spark, changes):
        if way.given == "path":  # in order, so that half of the files are hot
            events.repartitionByRange(6 * PARTITIONS, "symbol", "event").write.parquet(str(tmp_path / "events"))
            events = str(tmp_path / "events")
        found = ts.match(events, subscriptions(spark), SPACE, strategy=way.strategy, broadcast_limit=way.limit)
        found.count()  # workers start, kernels are loaded
        ratios = []
        for _ in range(TRIES):
            before = last_stage(spark)
            found.count()
            times = slowest_stage(spark, before)
            assert len(times) >= 4, "too few tasks to tell"
            ratios.append(max(times) / median(times))
            if ratios[-1] <= 2:
                return
    pytest.fail(f"{way.name}: the longest task takes {min(ratios):.1f} times the median, of {len(times)}: {times}")


def last_stage(spark: SparkSession) -> int:
    return max((stage.stageId() for stage in stages(spark)), default=-1)


def slowest_stage(spark: SparkSession, after: int) -> list[int]:
    """The times of the tasks of the stage that took the most of all since, in milliseconds."""
    context: Any = spark.sparkContext._jsc
    store, found = context.sc().statusStore(), [[0]]
    for stage in stages(spark):
        if stage.stageId() > after and stage.status().toString() == "COMPLETE":
            tasks = store.taskList(stage.stageId(), stage.attemptId(), 100_000)
            found.append([int(task.taskMetrics().get().executorRunTime()) for task in each(tasks)])
    return sorted(max(found, key=sum))


def stages(spark: SparkSession) -> list[Any]:
    context: Any = spark.sparkContext
    none = context._gateway.new_array(context._jvm.double, 0)
    context._jsc.sc().listenerBus().waitUntilEmpty()
    return each(context._jsc.sc().statusStore().stageList(None, False, False, none, context._jvm.java.util.ArrayList()))


def each(sequence: Any) -> list[Any]:
    return [sequence.apply(place) for place in range(sequence.size())]
