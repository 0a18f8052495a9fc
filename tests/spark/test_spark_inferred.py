"""No space is declared: it is taken from the schema of the events, fields of columns included."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import thatch
from helpers.learning import assert_same_learned
from thatch import CallerError, Space

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")
import thatch.spark as ts

ROWS: list[dict[str, Any]] = [
    {"n": 1, "Weight": 0.5, "tags": ["a"], "detail": {"State": "x", "place": {"lat": 1.5}}, "a.b": 1, "it's": True},
    {"n": 2, "Weight": None, "tags": None, "detail": {"State": None, "place": None}, "a.b": 2, "it's": False},
    {"n": 3, "Weight": 2.5, "tags": [], "detail": None, "a.b": None, "it's": None},
    {"n": 4, "Weight": 0.1, "tags": ["a"], "detail": {"State": "y", "place": {"lat": 9.0}}, "a.b": 4, "it's": True},
]
PLACE = pa.struct([("lat", pa.float64())])
SCHEMA = pa.schema(
    [
        pa.field("n", pa.int16(), nullable=False),
        ("Weight", pa.float32()),
        ("tags", pa.list_(pa.string())),
        ("detail", pa.struct([("State", pa.string()), ("place", PLACE)])),
        ("a.b", pa.int64()),
        ("it's", pa.bool_()),
    ]
)
CLAUSES = {
    1: "detail.state = 'x' OR weight > 0.1",
    2: "detail.place.lat BETWEEN 1 AND 2",
    3: "`a.b` IN (1, 4) AND `it's`",
    4: "detail.state IS NULL",
    5: "TRUE",
}


@pytest.mark.soak("arrow")
@pytest.mark.parametrize("strategy", ["native", "arrow", "files"])
def test_clauses_over_fields_and_odd_names(strategy: str, spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame(pa.Table.from_pylist(ROWS, SCHEMA))
    path = str(tmp_path / "events")
    frame.write.parquet(path)
    subscriptions = spark.createDataFrame(list(CLAUSES.items()), "id int, where string")
    found = ts.match(path if strategy == "files" else frame, subscriptions, strategy=strategy).toArrow()
    assert found.schema.names == [*SCHEMA.names, "subscription_id"]
    pairs = Counter((row["n"], row["subscription_id"]) for row in found.to_pylist())
    scan = spark.read.parquet(path)
    wanted = {(row["n"], id) for id, clause in CLAUSES.items() for row in scan.where(clause).collect()}
    assert pairs == Counter(wanted)


def test_bounds(spark: SparkSession) -> None:
    frame = spark.createDataFrame(pa.Table.from_pylist(ROWS, SCHEMA))
    subscriptions = spark.createDataFrame([(7, 2, None), (8, None, 3)], "id int, low_n int, high_n int")
    found = ts.match(frame, subscriptions).toArrow().to_pylist()
    assert {(row["n"], row["subscription_id"]) for row in found} == {(2, 7), (3, 7), (4, 7), (1, 8), (2, 8), (3, 8)}


def test_refusals_come_at_once(spark: SparkSession) -> None:
    frame = spark.createDataFrame(pa.Table.from_pylist(ROWS, SCHEMA))
    subscriptions = spark.createDataFrame([(1, "tags = 1 OR detail > 5"), (2, "n > 5")], "id int, where string")
    with pytest.raises(CallerError, match=r"(?s)column 'tags': array<string> .*column 'detail': .* detail.State"):
        ts.match(frame, subscriptions)
    wrong = spark.createDataFrame([(1, "m > 5")], "id int, where string")
    with pytest.raises(CallerError, match="no attribute 'm'"):
        ts.match(frame, wrong).count()
    assert str(Space.infer(frame, ["n > 5"])) == "n int not null -32768..32767"


def test_what_is_learnt_of_fields_and_clock_readings(spark: SparkSession) -> None:
    table = pa.Table.from_pylist(ROWS, SCHEMA)
    frame = spark.createDataFrame(table).selectExpr("*", "TIMESTAMP_NTZ'2020-03-29 02:30:00' AS wall")
    clauses = {1: "detail.place.lat > 1 AND weight < 1", 2: "detail.state = 'x'", 3: "wall < '2020-03-29 02:30:01'"}
    subscriptions = spark.createDataFrame(list(clauses.items()), "id int, where string")
    learned = ts.learn(frame, subscriptions)
    wall = pa.array([datetime(2020, 3, 29, 2, 30)] * len(ROWS), pa.timestamp("us"))
    assert_same_learned(thatch.learn(table.append_column("wall", wall), clauses), learned)
    assert {row["id"]: row["matches"] for row in learned.matches.collect()} == {1: 2, 2: 1, 3: 4}
    assert {row["id"]: row["events"] for row in learned.phi.collect()} == {1: 2, 2: 1, 3: 4}
