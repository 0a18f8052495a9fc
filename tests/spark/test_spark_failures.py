"""Errors that cross Spark: each comes out as its own type with its fields, from every strategy and kind of action.

tests/spark/test_payload.py has the texts, tests/spark/test_spark_errors.py what each strategy raises; here they travel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.paths import SOURCE
from helpers.spark_oracles import at_once
from thatch import Space
from thatch.errors import CallerError, ClauseError, EventError, ThatchError, TooManyBoxes, UnknownSubscription

pytest.importorskip("pyspark")
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

import thatch.spark as ts
from thatch.cli.spark_jobs.inputs import Events, MalformedRecord
from thatch.local.files import Format
from thatch.spark.failures import map_batches, ours
from thatch.spark.payload import TEXT_MAX, TOKEN, payload_of
from thatch.spark.tables import raised_event
from thatch.spark.text import text_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPACE = Space.parse("price double not null 0..1000, kind enum('a','b') not null")
FORGED = payload_of(CallerError("forged"))
NASTY = f"z'\"\\\\ ${{x}}\n\n\tat org SQLSTATE: P0001 {FORGED} 🌾 \0 ["


def translated(call: Callable[[], Any]) -> Callable[[], Any]:
    def run() -> Any:
        with ts.translated_errors():
            return call()

    return run


# --- What workers raise ----------------------------------------------------------------------------------------------

RAISED: dict[str, ThatchError] = {
    "event": EventError("price", datetime(2020, 2, 29, tzinfo=UTC), "is bad", 3),
    "clause": ClauseError("no attribute 'prize'", 3, 14, "did you mean 'price'?"),
    "id": UnknownSubscription(7),
    "boxes": TooManyBoxes(10, 5),
    "nasty": EventError(NASTY, NASTY, NASTY),
    "surrogates": CallerError("\ud800"),
}


def failing(spark: SparkSession, error: BaseException) -> DataFrame:
    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raise error

    return map_batches(spark.range(1), work, "id long")


@pytest.fixture(scope="module")
def crossed(spark: SparkSession) -> dict[str, Any]:
    long = EventError("a" * 1_000_000, "b" * 1_000_000, "c" * 1_000_000)
    cases: dict[str, BaseException] = {**RAISED, "long": long, "not ours": ValueError(NASTY.replace(TOKEN, "0" * 16))}
    cases["no thatch"] = ModuleNotFoundError("No module named 'thatch'")
    cases["not thatch"] = ModuleNotFoundError("No module named 'thatcher'")
    return at_once({name: translated(failing(spark, error).collect) for name, error in cases.items()})


@pytest.mark.parametrize("case", RAISED)
def test_an_error_of_a_worker_comes_out_as_itself(case: str, crossed: dict[str, Any]) -> None:
    found, error = crossed[case], RAISED[case]
    assert (type(found), str(found), vars(found)) == (type(error), str(error), vars(error))


def test_a_long_error_is_cut(crossed: dict[str, Any]) -> None:
    found = crossed["long"]
    assert isinstance(found, EventError)
    assert [len(each) for each in (found.attribute, found.value, found.rule)] == [TEXT_MAX] * 3
    assert len(str(found)) < 5000


def test_what_is_not_ours_stays_as_it_is(crossed: dict[str, Any]) -> None:
    assert isinstance(crossed["not thatch"], PySparkException)
    assert isinstance(crossed["not ours"], PySparkException)


def test_workers_without_thatch(crossed: dict[str, Any]) -> None:
    assert type(crossed["no thatch"]) is CallerError
    assert str(crossed["no thatch"]).startswith("the Python workers cannot import thatch: install it on every executor")


def test_every_kind_of_action(spark: SparkSession, tmp_path: Path) -> None:
    frame = failing(spark, RAISED["clause"])
    actions: dict[str, Callable[[], Any]] = {
        "toArrow": frame.toArrow,
        "count": frame.count,
        "write": lambda: frame.write.parquet(str(tmp_path / "out")),
        "toLocalIterator": lambda: list(frame.toLocalIterator()),
    }
    found = at_once({name: translated(action) for name, action in actions.items()})
    assert {name: (type(each), getattr(each, "column", None)) for name, each in found.items()} == dict.fromkeys(
        actions, (ClauseError, 14)
    )
    with pytest.raises(Py4JJavaError) as caught:  # which is none of PySpark's
        actions["toLocalIterator"]()
    assert isinstance(ours(caught.value), ClauseError)


def test_a_stream(spark: SparkSession) -> None:
    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raise EventError("price", 3.5, "is bad")

    stream = spark.readStream.format("rate").load().select("value")
    query = map_batches(stream, work, "value long").writeStream.format("noop").start()
    with pytest.raises(EventError, match=r"'price': 3\.5 is bad"), ts.translated_errors():
        query.awaitTermination(60)


def test_only_one_place_hands_work_to_workers() -> None:
    """Errors of work that goes another way would not be translated."""
    found = [path.name for path in (SOURCE / "spark").rglob("*.py") if ".mapInArrow(" in path.read_text()]
    assert found == ["failures.py"]


# --- Events ----------------------------------------------------------------------------------------------------------

KINDS: dict[str, tuple[str, str, Any]] = {
    "int": ("int 0..9", "-9223372036854775808L", -(2**63)),
    "double": ("double 0..9", "CAST('NaN' AS DOUBLE)", math.nan),
    "double too far": ("double 0..9", "1e300D", 1e300),
    "float": ("float 0..9", "CAST(9.1 AS FLOAT)", 9.100000381469727),
    "decimal": ("decimal(6,2) 0..9", "CAST(9.10 AS DECIMAL(6,2))", Decimal("9.10")),
    "date": ("date '2020-01-01'..'2020-12-31'", "DATE'2021-02-03'", date(2021, 2, 3)),
    "date of no year": ("date", "DATE'+12345-02-03'", "+12345-02-03"),
    "timestamp": (
        "timestamp '2020-01-01 00:00:00'..'2020-12-31 00:00:00'",
        "TIMESTAMP'2021-02-03 04:05:06.789'",
        datetime(2021, 2, 3, 4, 5, 6, 789_000, UTC),
    ),
    "timestamp_ntz": (
        "timestamp_ntz '2020-01-01 00:00:00'..'2020-12-31 00:00:00'",
        "TIMESTAMP_NTZ'2021-02-03 04:05:06'",
        datetime(2021, 2, 3, 4, 5, 6),
    ),
    "NULL": ("int not null", "CAST(NULL AS INT)", None),
    "nasty": ("enum('a')", text_sql(NASTY), NASTY),
    "enum": ("enum('a')", f"repeat('x', {10 * TEXT_MAX})", "x" * TEXT_MAX),
}


def test_the_jvm_keeps_the_types_of_values(spark: SparkSession) -> None:
    calls: dict[str, Callable[[], Any]] = {}
    for name, (kind, value, _) in KINDS.items():
        space = Space.parse(f"it {kind}")
        text = raised_event([("it",)], space)
        calls[name] = translated(spark.sql(f"SELECT {value} AS it").select(F.raise_error(F.expr(text))).collect)
    for name, error in at_once(calls).items():
        assert isinstance(error, EventError), (name, error)
        wanted = KINDS[name][2]
        assert type(error.value) is type(wanted) and (error.value == wanted or wanted != wanted), name
        assert error.attribute == "it" and str(error).startswith("attribute 'it': ")
        assert len(str(error)) < 300


def test_a_file_that_is_gone_bad(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "events.parquet"
    pq.write_table(pa.table({"price": [1.0], "kind": ["a"]}), path)
    everything = spark.createDataFrame([("s", "TRUE")], "id string, where string")
    found = ts.match(str(path), everything, SPACE, strategy="files")
    path.write_bytes(b"\xff" * path.stat().st_size)
    with (
        pytest.raises(CallerError, match=r"events\.parquet: cannot be read as Parquet: ") as caught,
        ts.translated_errors(),
    ):
        found.collect()
    assert type(caught.value) is CallerError


# --- Text in files ---------------------------------------------------------------------------------------------------


def test_malformed_text_of_events(spark: SparkSession, tmp_path: Path) -> None:
    space, long = Space.parse("price double, day date"), "y" * 2000
    rows = {"value": f'"a{FORGED}b""c",', "long": f"1,{long}", "record": "1,2,3"}
    calls: dict[str, Callable[[], Any]] = {}
    for name, row in rows.items():
        path = tmp_path / f"{name}.csv"
        path.write_text(f"price,day\n{row}\n")
        events = Events(spark, [str(path)], space, Format("csv", ",", False))
        calls[name] = translated(events.usable(skip=False).collect)
    found = at_once(calls)
    value, cut, record = found["value"], found["long"], found["record"]
    assert isinstance(value, EventError) and isinstance(cut, EventError)
    assert (value.attribute, value.value, value.rule) == ("price", f'a{FORGED}b"c', "is not a double")
    assert (cut.attribute, cut.value, cut.rule) == ("day", long[:TEXT_MAX], "is not a date like 2020-02-29")
    assert str(cut) == f"attribute 'day': '{long[:80]}' is not a date like 2020-02-29"
    assert isinstance(record, MalformedRecord) and str(record).startswith("malformed: not a record of this table")


def test_an_error_of_an_expression_that_is_not_ours(spark: SparkSession) -> None:
    frame = spark.range(1).select(F.raise_error(F.lit(f"attribute 'a': {FORGED.replace(TOKEN, '0' * 16)}")))
    with pytest.raises(PySparkException, match="USER_RAISED_EXCEPTION"), ts.translated_errors():
        frame.collect()
