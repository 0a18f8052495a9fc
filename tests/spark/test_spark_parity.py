"""The engine in this process and Spark agree: on matches, on bad rows, and on which subscriptions are redundant."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import thatch
from helpers.clause_rows import COLUMNS, SPACE, make_rows, make_table
from helpers.learning import assert_same_learned
from helpers.spark_oracles import ROW, SEED, Events, differences, every_type, frame_of, pairs
from thatch import Space
from thatch.local.text_values import values_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")
import thatch.spark as ts
from thatch.cli.spark_jobs.inputs import value_of_text


def test_matches(spark: SparkSession, tmp_path: Path) -> None:
    workload = every_type([SEED + 7], 40, 150)
    events = Events.of(spark, workload.events, tmp_path)
    theirs = pairs(ts.match(events.path, workload.subscriptions(spark), workload.space).toArrow())
    for source in (events.table, events.path):
        found = thatch.match(source, workload.our_clauses, workload.space)
        assert not differences(pairs(found), theirs, workload.our_clauses)


def test_inferred_spaces(spark: SparkSession, tmp_path: Path) -> None:
    workload = every_type([SEED + 8], 30, 100)
    events = Events.of(spark, workload.events, tmp_path)
    names = [clause for clause in workload.our_clauses.values() if "kind" not in clause and "mode" not in clause]
    ours, theirs = Space.infer(events.table, names), Space.infer(events.scan, names)
    assert [(a.name, a.axis.sql) for a in ours] == [(a.name, a.axis.sql) for a in theirs]


def test_bad_rows(spark: SparkSession) -> None:
    random = Random(SEED)
    rows = make_rows(random, 60)
    for column in COLUMNS:
        for value in column.beyond:
            random.choice(rows)[column.name] = value
    table = make_table(rows).append_column(ROW, pa.array(range(60)))
    clauses, space = {"all": "TRUE"}, Space.parse(SPACE)
    subscriptions = spark.createDataFrame(list(clauses.items()), "id string, where string")
    frame = frame_of(spark, table)
    theirs = ts.match(frame, subscriptions, space, on_error="skip", strategy="arrow").toArrow()
    ours = thatch.match(table, clauses, space, on_error="skip")
    assert sorted(ours.column(ROW).to_pylist()) == sorted(theirs.column(ROW).to_pylist())
    assert 10 < len(ours) < 60


@pytest.mark.parametrize("kind", ["int not null 0..99", "decimal(38,30) not null 0..99"])
def test_reductions(kind: str, spark: SparkSession) -> None:
    random, space = Random(kind), Space.parse(f"x {kind}, y {kind}")
    clauses = []
    for number in range(80):
        x, y = random.randrange(80), random.randrange(80)
        wide, high = x + random.randrange(30), y + random.randrange(30)
        clauses.append((number, f"x BETWEEN {x} AND {wide} AND y BETWEEN {y} AND {high}"))
    frame = spark.createDataFrame(clauses, "id int, where string")
    theirs = {row["id"]: row["status"] for row in ts.reduce(frame, space).collect()}
    ours = {row["id"]: row["status"] for row in thatch.reduce(dict(clauses), space).to_pylist()}
    assert ours == theirs and len(set(ours.values())) == 2


NUMBERS = """1.5| 1.50 |1.505|1e3|15e-1|15e-3|1500e-5|0.000|0e-99|1.0000000000000000000000000000000000000000|1.e1|.5|5.
9999999999999999999999999999.9999999999|99999999999999999999999999999|0.00000000001|-0.10000000000000000000000001|1e28
1e27|1e99|+7|\t3|1 2|nan|1.5d|abc|0.99999999999999999999999999999999999999|18446744073709551615|-""".replace("\n", "|")


def test_texts_of_decimals(spark: SparkSession) -> None:
    """Both read the same numbers, exactly, and refuse the same texts."""
    texts = NUMBERS.split("|")
    frame = spark.createDataFrame([(text,) for text in texts], "x string").coalesce(1)
    kinds = [Space.parse(f"x decimal({digits})").attributes[0] for digits in ("6,2", "20,0", "38,10", "38,38")]
    columns = []
    for at, attribute in enumerate(kinds):
        value, problem, _ = value_of_text("x", attribute)
        columns += [value.alias(f"value{at}"), problem.alias(f"problem{at}")]
    theirs = frame.select(*columns).toArrow()
    for at, attribute in enumerate(kinds):
        ours, wrong = values_of(pa.array(texts), attribute)
        assert [each is not None for each in theirs.column(f"problem{at}").to_pylist()] == [
            row in wrong for row in range(len(texts))
        ]
        good = pa.array([row for row in range(len(texts)) if row not in wrong])
        assert theirs.column(f"value{at}").take(good).to_pylist() == ours.take(good).to_pylist()
        assert 5 < len(good) < len(texts)


@pytest.mark.soak
def test_what_is_learnt(spark: SparkSession) -> None:
    workload = every_type([SEED + 9], 30, 150)
    theirs = ts.learn(frame_of(spark, workload.events), workload.subscriptions(spark), workload.space)
    assert_same_learned(thatch.learn(workload.events, workload.our_clauses, workload.space), theirs)
