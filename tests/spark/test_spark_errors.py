"""What `thatch.spark` refuses, what it says, and what it leaves out if it is asked to skip.

What can be known while the match is planned is a `CallerError`; what shows in an executor, during an action, has at
least the text of ours.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from helpers.spark_oracles import ROW, Events, Way, at_once, pairs, settings, some_ways, value
from thatch import Space
from thatch.errors import CallerError, ClauseError, EventError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("pyspark")
from pyspark.errors import PySparkException

import thatch.spark as ts
from thatch.spark.clauses import WrongClauses
from thatch.spark.failures import ours
from thatch.spark.matching.collected import _few_rows, collected
from thatch.spark.payload import TOKEN
from thatch.spark.tables import SubscriptionFrame

SPACE = Space.parse("price double not null 0..1000, kind enum('a','b') not null, count int, day date")
STRATEGIES = ("native", "arrow")


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> DataFrame:
    rows = [(1, 5.0, "a", 3), (2, 500.0, "b", None)]
    frame = spark.createDataFrame(rows, "n long, price double, kind string, count long")
    return frame.selectExpr("*", "DATE'2020-01-01' AS day")


@pytest.fixture(scope="module")
def subscriptions(spark: SparkSession) -> DataFrame:
    return clauses(spark, ("s", "price < 10"))


def clauses(spark: SparkSession, *pairs: tuple[Any, Any]) -> DataFrame:
    return spark.createDataFrame(list(pairs), "id string, where string")


def found_by(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.select("n", "subscription_id").collect())


# --- Events ----------------------------------------------------------------------------------------------------------

Change = Callable[["DataFrame"], "DataFrame"]
BAD_EVENTS: dict[str, tuple[Change, str]] = {
    "missing column": (lambda e: e.drop("count"), r"no column 'count'.*'n', 'price', 'kind', 'day'"),
    "missing columns": (lambda e: e.select("n", "price"), r"no column 'kind', 'count', 'day'"),
    "string for double": (
        lambda e: e.selectExpr("n", "kind AS price", "kind", "count", "day"),
        r"'price' is string.*double",
    ),
    "double for int": (lambda e: e.withColumn("count", e.price), r"'count' is double.*'count' is int"),
    "long for double": (lambda e: e.withColumn("price", e.n), r"'price' is bigint.*double"),
    "int for enum": (lambda e: e.withColumn("kind", e.n), r"'kind' is bigint.*enum"),
    "timestamp for date": (lambda e: e.withColumn("day", e.day.cast("timestamp")), r"'day' is timestamp.*date"),
    "ids already": (lambda e: e.withColumn("Subscription_ID", e.n), r"column 'Subscription_ID' already.*rename"),
    "attribute twice": (lambda e: e.select("*", e.price.alias("PRICE")), r"'price' and 'PRICE'|'price', 'PRICE'"),
    "other column twice": (lambda e: e.select("*", e.n.alias("x"), e.n.alias("x")), r"'x' and 'x'|'x', 'x'"),
}


@pytest.mark.parametrize("case", BAD_EVENTS)
def test_events_that_do_not_fit(case: str, events: DataFrame, subscriptions: DataFrame) -> None:
    change, message = BAD_EVENTS[case]
    for strategy in STRATEGIES:
        with pytest.raises(CallerError, match=message):
            ts.match(change(events), subscriptions, SPACE, strategy=strategy)
    with pytest.raises(CallerError, match=message):
        ts.explain(change(events), subscriptions, SPACE)
    with pytest.raises(CallerError, match=message):
        ts.wrong_events(change(events), SPACE)


def test_collated_strings_are_refused(events: DataFrame, subscriptions: DataFrame) -> None:
    with pytest.raises(CallerError, match=r"'kind' is string collate UNICODE"):
        ts.match(events.selectExpr("n", "price", "kind COLLATE UNICODE AS kind", "count", "day"), subscriptions, SPACE)


@pytest.mark.parametrize("zone", ["Europe/Paris", "America/New_York"])
def test_other_time_zone(zone: str, spark: SparkSession, events: DataFrame, subscriptions: DataFrame) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: ts.match(events, subscriptions, SPACE),
        lambda: ts.explain(events, subscriptions, SPACE),
        lambda: ts.wrong_clauses(subscriptions, SPACE),
        lambda: ts.wrong_events(events, SPACE),
    ]
    with settings(spark, {"spark.sql.session.timeZone": zone}):
        for call in calls:
            with pytest.raises(CallerError, match=rf"time zone is {zone}, that of the space UTC"):
                call()


# --- Bad values, in executors ----------------------------------------------------------------------------------------

BAD_VALUES: dict[str, tuple[dict[str, Any], str]] = {
    "beyond the domain": ({"price": 2000.0}, r"'price'.*2000\.0 is outside the domain 0\.0\.\.1000\.0"),
    "NULL": ({"price": None}, r"'price'.*not null and the value is NULL"),
    "no value of the enum": ({"kind": "z"}, r"'kind'.*z.* is not a value of enum"),
    "NaN": ({"price": float("nan")}, r"'price'.*(nan|NaN) is outside the domain"),
    "NULL enum": ({"kind": None}, r"'kind'.*not null and the value is NULL"),
    "the place of NULL": ({"count": -(2**63)}, r"'count'.*-9223372036854775808"),
    "after the year 9999": ({"day": 4_000_000}, r"'day'"),  # which Spark has, and Python has not
    "before the year 1": ({"day": -4_000_000}, r"'day'"),
}
GOOD = {"price": 5.0, "kind": "a", "count": 3, "day": 18_000}
FEW = some_ways("native broadcast", "arrow", "files by path")
MOST = some_ways("native broadcast", "arrow", "files by scan")


def event_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    schema = pa.schema([("price", pa.float64()), ("kind", pa.string()), ("count", pa.int64()), ("day", pa.int32())])
    table = pa.Table.from_pylist(rows, schema)
    return table.set_column(3, "day", table.column("day").cast(pa.date32()))


@pytest.fixture(scope="module")
def refusals(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each way does about bad values; one good event stands before it and one behind."""
    by_clause = clauses(spark, ("s", "price < 10 AND kind = 'a'"), ("t", "TRUE"))
    by_bounds = spark.createDataFrame([("s", 1.0, 9.0)], "id string, low_price double, high_price double")
    calls: dict[str, Callable[[], pa.Table]] = {}
    for case, ways in {
        "beyond the domain": some_ways("files by path"),
        "NULL": MOST,
        "no value of the enum": some_ways("arrow"),
    }.items():
        table = event_table([GOOD, GOOD | BAD_VALUES[case][0], GOOD])
        events = Events.of(spark, table, tmp_path_factory.mktemp("bad"), files=1)

        def call(
            way: Way, events: Events = events, subscriptions: DataFrame = by_clause if case == "NULL" else by_bounds
        ) -> Callable[[], pa.Table]:
            return lambda: way.match(events, subscriptions, SPACE).toArrow()

        calls |= {f"{way.name}: {case}": call(way) for way in ways}
    return at_once(calls)


@pytest.mark.parametrize("name", [way.name for way in MOST])
def test_bad_values_are_refused(name: str, refusals: dict[str, Any]) -> None:
    for key, outcome in refusals.items():
        way, case = key.split(": ")
        if way == name:
            with pytest.raises(PySparkException, match=f"(?s)attribute {BAD_VALUES[case][1]}") as caught:
                value(outcome)
            error, ((attribute, bad),) = ours(caught.value), BAD_VALUES[case][0].items()
            assert isinstance(error, EventError)
            assert (error.attribute, error.value) == (attribute, bad)
            assert (error.row is None) == way.startswith("native")
            # Who does not translate it reads the sentence first.
            start = "[USER_RAISED_EXCEPTION] " if error.row is None else "\nthatch.errors.EventError: "
            assert f"{start}{error}\n[thatch-error {TOKEN}:" in str(caught.value)


@pytest.fixture(scope="module")
def mixed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Events:
    """A good event, the bad ones, and another good one."""
    rows = [GOOD, *(GOOD | change for change, _ in BAD_VALUES.values()), GOOD | {"price": 50.0, "day": None}]
    return Events.of(spark, event_table(rows), tmp_path_factory.mktemp("mixed"), files=2)


def test_bad_values_are_skipped(spark: SparkSession, mixed: Events) -> None:
    subscriptions = clauses(spark, ("s", "price < 10"), ("t", "TRUE"))
    last = len(BAD_VALUES) + 1

    def call(way: Way) -> Callable[[], pa.Table]:
        return lambda: way.match(mixed, subscriptions, SPACE, on_error="skip").toArrow()

    for name, found in at_once({way.name: call(way) for way in some_ways("arrow")}).items():
        assert pairs(value(found)) == {(0, "s"): 1, (0, "t"): 1, (last, "t"): 1}, name


def test_wrong_events_lists_what_is_skipped(mixed: Events) -> None:
    found = ts.wrong_events(mixed.frame, SPACE)
    assert found.columns == [*mixed.table.schema.names, "error"]
    errors = {row[ROW]: row["error"] for row in found.select(ROW, "error").collect()}
    assert sorted(errors) == list(range(1, len(BAD_VALUES) + 1))
    for place, (_, message) in enumerate(BAD_VALUES.values(), start=1):
        assert re.search(f"attribute {message}", errors[place]), errors[place]


# --- Subscriptions ---------------------------------------------------------------------------------------------------

BAD_TABLES = {
    "no id": ("where string", r"no column 'id'; their columns are 'where'"),
    "id of a wrong type": ("id double, where string", r"ids are strings or integers, the column 'id' is double"),
    "neither clauses nor bounds": ("id string, low_other double, x int", r"either a column 'where'.*'low_other', 'x'"),
    "both": ("id string, where string, low_price double", r"either a column 'where'"),
    "where of a wrong type": ("id string, where int", r"'where'.* must be a string"),
    "bound of a wrong type": ("id string, low_price string", r"'low_price' is string.*'price' is double"),
    "bound written twice": ("id string, low_price double, price_low double", r"both 'low_price' and 'price_low'"),
    "two of one name": ("id string, where string, ID string", r"two columns of the subscriptions have one name"),
}


@pytest.mark.parametrize("case", BAD_TABLES)
def test_subscriptions_that_do_not_fit(case: str, spark: SparkSession, events: DataFrame) -> None:
    schema, message = BAD_TABLES[case]
    subscriptions = spark.createDataFrame([], schema)
    for strategy in STRATEGIES:
        with pytest.raises(CallerError, match=message):
            ts.match(events, subscriptions, SPACE, strategy=strategy)


BAD_ROWS: dict[str, tuple[str, list[tuple[Any, ...]], str]] = {
    "NULL id": ("id string, where string", [("a", "TRUE"), (None, "TRUE")], "no id: the column 'id' holds NULL"),
    "id twice": ("id string, where string", [("a", "TRUE"), ("a", "FALSE")], "two subscriptions have the id 'a'"),
    "int id twice": ("id int, low_price double", [(7, 1.0), (8, 1.0), (7, None)], "two subscriptions have the id 7"),
    "NULL id of bounds": ("id int, low_price double", [(7, 1.0), (None, 1.0)], "no id: the column 'id' holds NULL"),
    "NULL clause": ("id string, where string", [("a", None)], "subscription 'a'.*the clause is NULL"),
    "wrong clause": (
        "id string, where string",
        [("good", "TRUE"), ("bad", "price < 10\n AND length(kind) > 3"), ("none", "colour = 'red'")],
        "(?s)subscription 'bad', line 2, column 6: the function LENGTH.*"
        "subscription 'none', line 1, column 1: no attribute 'colour'",
    ),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_bad_subscriptions_are_refused_at_once(case: str, spark: SparkSession, events: DataFrame) -> None:
    schema, rows, message = BAD_ROWS[case]
    subscriptions = spark.createDataFrame(rows, schema)
    for strategy in STRATEGIES:
        with pytest.raises(CallerError, match=message) as caught:
            ts.match(events, subscriptions, SPACE, strategy=strategy)
        if "clause" in case:
            error, wrong = caught.value, case == "wrong clause"
            assert isinstance(error, ts.WrongClauses)
            assert isinstance(error, ClauseError)
            assert (error.subscription_id, error.line, error.column) == (("bad", 2, 6) if wrong else ("a", 1, 1))
            assert [each.id for each in error.wrong] == (["'bad'", "'none'"] if wrong else ["'a'"])
            assert error.rule in str(error) and error.total == len(error.wrong)


def test_wrong_clauses_are_skipped_and_listed(spark: SparkSession, events: DataFrame) -> None:
    wrong: dict[str, tuple[Any, ...]] = {
        "syntax": ("price <", 1, 8),
        "function": ("price < 10\n AND length(kind) > 3", 2, 6),
        "attribute": ("colour = 'red'", 1, 1),
        "null": (None, 1, 1),
    }
    good = {"cheap": "price < 10", "none": "count > 5 AND count < 3", "all": "TRUE"}
    rows = [*good.items(), *((id, clause) for id, (clause, _, _) in wrong.items())]
    subscriptions = spark.createDataFrame(rows, "id string, where string")
    listed = ts.wrong_clauses(subscriptions, SPACE)
    assert listed.columns == ["id", "where", "line", "column", "error"]
    assert {row["id"]: (row["where"], row["line"], row["column"]) for row in listed.collect()} == wrong
    errors = {row["id"]: row["error"] for row in listed.collect()}
    assert "LENGTH" in errors["function"] and "colour" in errors["attribute"]
    for strategy in STRATEGIES:
        with pytest.warns(UserWarning, match="4 clauses are wrong and left out"):
            found = ts.match(events, subscriptions, SPACE, strategy=strategy, on_error="skip")
        assert found_by(found) == [(1, "all"), (1, "cheap"), (2, "all")], strategy
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ts.match(events, clauses(spark, *good.items()), SPACE, strategy="arrow", on_error="skip")


def test_wrong_clauses_of_bounds(spark: SparkSession) -> None:
    bounds = spark.createDataFrame([("s", 1.0)], "id string, low_price double")
    with pytest.raises(CallerError, match="columns of bounds"):
        ts.wrong_clauses(bounds, SPACE)


# --- Strategies ------------------------------------------------------------------------------------------------------


def test_unknown_words(events: DataFrame, subscriptions: DataFrame) -> None:
    with pytest.raises(CallerError, match=r"strategy is one of 'auto', 'native', 'arrow', 'files', not 'fast'"):
        ts.match(events, subscriptions, SPACE, strategy="fast")
    with pytest.raises(CallerError, match=r"on_error is 'raise' or 'skip', not 'ignore'"):
        ts.match(events, subscriptions, SPACE, on_error="ignore")


def test_files_of_what_is_no_plain_scan(mixed: Events, events: DataFrame, subscriptions: DataFrame) -> None:
    scan = mixed.scan
    others = {
        "no files": events,
        "filter": scan.where("price > 1"),
        "computed": scan.withColumn("price", scan.price + 1),
        "renamed": scan.withColumnRenamed(ROW, "n"),
        "limit": scan.limit(2),
        "union": scan.union(scan),
        "sample": scan.sample(0.5),
        "sorted": scan.orderBy("price"),
        "distinct": scan.distinct(),
        "join": scan.join(events.select("n"), scan[ROW] == events.n),
        "hidden column": scan.select("*", "_metadata"),
    }
    for name, frame in others.items():
        with pytest.raises(CallerError, match="'files' needs events that are a plain scan"):
            ts.match(frame, subscriptions, SPACE, strategy="files")
            pytest.fail(name)


def test_auto_reads_what_spark_reads(spark: SparkSession, tmp_path: Path) -> None:
    """Parquet that is no plain table: columns in another case, missing in some files, partitions, odd paths."""
    space = Space.parse("price double, count int")
    rows = spark.createDataFrame([(1, 5.0, 3), (2, 50.0, None)], "n int, price double, count long")
    whole, part, odd = (str(tmp_path / name) for name in ("whole", "part", "a b%20c=é"))
    for path in (whole, odd):
        rows.coalesce(1).write.parquet(path)
    rows.drop("count").coalesce(1).write.parquet(part)
    rows.write.partitionBy("n").parquet(str(tmp_path / "partitioned"))
    read = spark.read.schema("n int, price double, count long")
    frames: dict[str, Any] = {
        "other case": spark.read.parquet(whole).select("n", "PRICE", "Count"),
        "wider": spark.read.schema("n long, price double, count long").parquet(whole),
        "added column": spark.read.schema("n int, price double, count long, extra string").parquet(whole),
        "missing in some": read.parquet(whole, part),
        "merged": spark.read.option("mergeSchema", "true").parquet(whole, part),
        "partitioned": str(tmp_path / "partitioned"),
        "odd path": odd,
    }
    subscriptions = clauses(spark, ("cheap", "price < 10"), ("none", "count IS NULL"))
    once, twice = [(1, "cheap"), (2, "none")], [(1, "cheap"), (1, "cheap"), (1, "none"), (2, "none"), (2, "none")]

    def found_in(frame: Any) -> list[tuple[Any, ...]]:
        return found_by(ts.match(frame, subscriptions, space))

    for name, found in at_once({name: partial(found_in, frame) for name, frame in frames.items()}).items():
        assert value(found) == (twice if name in ("missing in some", "merged") else once), name


def test_too_large_for_a_broadcast(events: DataFrame, subscriptions: DataFrame) -> None:
    with pytest.raises(CallerError, match=r"1 subscriptions.*may be broadcast: take strategy='native'"):
        ts.match(events, subscriptions, SPACE, strategy="arrow", broadcast_limit=1)
    found = ts.match(events, subscriptions, SPACE, broadcast_limit=1)  # auto: shuffled
    assert found_by(found) == [(1, "s")]
    plan = found._jdf.queryExecution().executedPlan().toString()
    assert "Exchange hashpartitioning" in plan


def test_stream_with_native(spark: SparkSession, subscriptions: DataFrame) -> None:
    stream = spark.readStream.format("rate").load().selectExpr("CAST(value AS DOUBLE) AS price")
    with pytest.raises(CallerError, match="stream"):
        ts.match(stream, subscriptions, Space.parse("price double"), strategy="native")


# --- Explain ---------------------------------------------------------------------------------------------------------


def test_explain_says_what_and_why(spark: SparkSession, mixed: Events, events: DataFrame) -> None:
    bounds = spark.createDataFrame(
        [(n, 10.0 * n, 10.0 * n + 5) for n in range(50)], "id int, low_price double, high_price double"
    )
    space = Space.parse("price double")
    many = spark.range(50_000_000).selectExpr("CAST(id % 500 AS DOUBLE) AS price")
    plans = {
        "few": ts.explain(events, bounds, space),
        "files": ts.explain(mixed.path, bounds, space),
        "many": ts.explain(many, bounds, space),
        "too large": ts.explain(events, bounds, space, broadcast_limit=10),
    }
    assert {name: plan.strategy for name, plan in plans.items()} == {
        "few": "arrow", "files": "files", "many": "native", "too large": "native",
    }  # fmt: skip
    for name, reason in {"few": "events", "files": "Parquet", "too large": "too large"}.items():
        assert reason in plans[name].reason
    for name, plan in plans.items():
        assert plan.subscriptions == 50
        assert set(plan.estimates) >= {"native", "arrow"}
        assert ("files" in plan.estimates) == (name == "files")
        text = str(plan)
        assert f"strategy: {plan.strategy}" in text and plan.reason in text
        for strategy, candidates in plan.estimates.items():
            assert 0 <= candidates <= 50
            assert f"candidates per event, {strategy}: {candidates:,.1f}" in text
    assert plans["many"].keys and "price" in plans["many"].keys[0]
    assert plans["many"].estimates["native"] < 10  # of 50: the cells are of use
    assert plans["many"].estimates["arrow"] == pytest.approx(0.6, abs=0.3)  # 6 of 10 prices, one subscription each
    assert "MB" in str(plans["too large"]) and plans["too large"].limit_bytes == 10


def test_clauses_that_the_driver_has_give_the_same(spark: SparkSession) -> None:
    """Few rows of a local relation are parsed on the driver, others on executors."""
    rows = pa.table({"id": [7, 8, 9], "where": ["price < 5", "symbol IN ('A', 'B')", "TRUE"]})
    here = spark.createDataFrame(rows)
    events = spark.createDataFrame(pa.table({"price": [1.0, 9.0], "symbol": ["A", "C"]}))
    space = Space.parse("price double, symbol string")
    found = []
    for frame in (here, here.repartition(2)):
        known = SubscriptionFrame.of(frame, space)
        assert (_few_rows(frame.select("id", "where")) is not None) == (frame is here)
        assert sorted(collected(known, False).ids.to_pylist()) == [7, 8, 9]
        found.append(sorted(map(tuple, ts.match(events, frame, space).collect())))
    assert found[0] == found[1] and len(found[0]) == 4
    wrong = spark.createDataFrame(pa.table({"id": [1, 2], "where": ["price <", None]}))
    said = []
    for frame in (wrong, wrong.coalesce(1)):
        with pytest.raises(WrongClauses) as caught:
            ts.match(events, frame, space)
        said.append(str(caught.value))
    assert said[0] == said[1]
