"""The contract of `thatch.spark.match`: every strategy finds what Spark's own nested-loop join finds.

All ways of one workload run at the same time in one session, so that each also shows that the others leave it alone.
For other clauses set THATCH_SEED to a number; with THATCH_SOAK there are more of them.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from helpers.clause_rows import COLUMNS, SPACE, make_rows, make_table
from helpers.spark_oracles import (
    ROW,
    SEED,
    SOAK,
    WAYS,
    Events,
    Pairs,
    Way,
    Workload,
    at_once,
    changed_columns,
    crowd,
    differences,
    every_type,
    frame_of,
    pairs,
    pairs_by_bounds,
    pairs_by_clauses,
    pairs_by_nested_loop,
    plain,
    quakes,
    random_bounds,
    some_ways,
    value,
)
from thatch import Space

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("pyspark")
import thatch.spark as ts

# A join costs seconds of a compiler's time, however small it is: so here one kind of it, there the other.
BROADCAST = some_ways("native broadcast", "arrow", "files by path")
SHUFFLED = some_ways("native shuffled", "files by scan")
FEW = some_ways("native broadcast", "arrow")
INDEXED = some_ways("arrow")


def named(ways: Sequence[Way]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", [way.name for way in ways])


@dataclass
class Answers:
    """What each way found, and what Spark did."""

    events: Events
    wanted: Pairs
    found: dict[str, pa.Table | Exception]
    clauses: dict[Any, str] | None = None

    def check(self, name: str) -> None:
        found = value(self.found[name])
        assert not differences(pairs(found), self.wanted, self.clauses)
        assert not changed_columns(found, self.events.table)


def found_by(
    ways: Sequence[Way], events: Events, subscriptions: DataFrame, space: Space
) -> dict[str, pa.Table | Exception]:
    def call(way: Way) -> Callable[[], pa.Table]:
        return lambda: way.match(events, subscriptions, space).toArrow()

    return at_once({way.name: call(way) for way in ways})


def answers_to(
    spark: SparkSession, workload: Workload, folder: Path, ways: Sequence[Way], wanted: Pairs | None = None
) -> Answers:
    events = Events.of(spark, workload.events, folder)
    if wanted is None:
        wanted = pairs_by_clauses(spark, workload.events, workload.spark_clauses)
    found = found_by(ways, events, workload.subscriptions(spark), workload.space)
    return Answers(events, wanted, found, workload.our_clauses)


# --- Clauses ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def random_clauses(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    workload = every_type([SEED, SEED + 1, SEED + 2] if SOAK else [SEED], 400 if SOAK else 60, 200)
    return answers_to(spark, workload, tmp_path_factory.mktemp("clauses"), BROADCAST)


@named(BROADCAST)
def test_random_clauses_over_every_type(name: str, random_clauses: Answers) -> None:
    assert len(random_clauses.wanted) > 1000
    random_clauses.check(name)


@pytest.fixture(scope="module")
def crowded(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    workload = crowd(SEED, 2000 if SOAK else 300, 40 if SOAK else 8)
    return answers_to(spark, workload, tmp_path_factory.mktemp("crowd"), INDEXED)


@named(INDEXED)
def test_watchlists_and_crowds(name: str, crowded: Answers) -> None:
    """Watchlists of 2,000; 3 of 20 attributes; equal, nested, wide and unconstrained ones; half of the events equal."""
    assert len(crowded.wanted) > 1000
    crowded.check(name)


def test_watchlists_by_their_values(spark: SparkSession, tmp_path: Path) -> None:
    """So many lists that a join writes each of them once for each of its values."""
    random, symbols = Random(SEED), [f"SYM{place:04d}" for place in range(1000)]
    space = Space.parse("symbol string, price double not null")
    rows = [(random.choice([None, *symbols]), random.uniform(0, 100)) for _ in range(300)]
    schema = pa.schema([("symbol", pa.string()), pa.field("price", pa.float64(), False)])
    table = pa.Table.from_arrays(list(map(pa.array, zip(*rows, strict=True))), schema=schema)
    clauses = {}
    for place in range(80):
        listed = "', '".join(random.sample(symbols, random.choice((1, 20, 400))))
        rest = (
            "",
            " AND price < 50",
            " AND price BETWEEN 10 AND 20 OR symbol IS NULL",
            f" OR symbol = '{symbols[place]}'",
        )
        clauses[f"s{place}"] = plain(f"symbol IN ('{listed}'){rest[place % 4]}")
    workload = Workload(space, table, clauses)
    ways = some_ways("native broadcast", "native shuffled", "arrow")
    answers = answers_to(spark, workload, tmp_path, ways)
    for way in ways:
        answers.check(way.name)
    keys = ts.explain(answers.events.frame, workload.subscriptions(spark), space).keys
    assert any("symbol" in key for key in keys), keys


@pytest.fixture(scope="module")
def quaked(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    workload = quakes(SEED, 200 if SOAK else 30)
    numbered = workload.events.append_column(ROW, pa.array(range(len(workload.events)), pa.int64()))
    wanted = pairs_by_nested_loop(spark, numbered, workload.spark_clauses)
    return answers_to(spark, workload, tmp_path_factory.mktemp("quakes"), FEW, wanted)


@named(FEW)
def test_earthquakes(name: str, quaked: Answers) -> None:
    assert sum(quaked.wanted.values()) > 1707 + 1000
    quaked.check(name)


# --- Bounds ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bounded(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    space, table = Space.parse(SPACE), make_table(make_rows(Random(SEED), 200))
    events = Events.of(spark, table, tmp_path_factory.mktemp("bounds"))
    subscriptions = frame_of(spark, random_bounds(SEED, 5000 if SOAK else 300))
    wanted = pairs_by_bounds(events, subscriptions, space)
    return Answers(events, wanted, found_by(SHUFFLED, events, subscriptions, space))


@named(SHUFFLED)
def test_typed_bounds_over_every_type(name: str, bounded: Answers) -> None:
    assert len(bounded.wanted) > 1000
    bounded.check(name)


# --- Cells -----------------------------------------------------------------------------------------------------------


def test_no_cells_lose_a_match(spark: SparkSession, random_clauses: Answers) -> None:
    """Whatever keys and cells the planner may come up with: grids of every attribute, with knots on, between and far
    beyond the values."""
    from thatch.spark.matching.cells import AxisGrid, is_hashed
    from thatch.spark.matching.native import match_native
    from thatch.spark.tables import SubscriptionFrame

    space, random = Space.parse(SPACE), Random(SEED)
    attributes = [(column.name,) for column in COLUMNS]
    grids = [
        AxisGrid(index)
        if is_hashed(attribute)
        else AxisGrid(index, *knots(random, random_clauses.events.table[attribute.name]))
        for index, attribute in enumerate(space.attributes)
    ]
    assert random_clauses.clauses is not None
    clauses = spark.createDataFrame(list(random_clauses.clauses.items()), "id string, where string")
    subscriptions = SubscriptionFrame.of(clauses, space)
    for _ in range(20 if SOAK else 1):
        keys = [tuple(random.sample(grids, random.choice((1, 1, 2, 3)))) for _ in range(24 if SOAK else 6)]
        salts = {len(keys) << 54: 3}
        found = match_native(random_clauses.events.frame, attributes, subscriptions, keys, True, False, salts, False)
        assert not differences(pairs(found.toArrow()), random_clauses.wanted, random_clauses.clauses)


def knots(random: Random, values: pa.ChunkedArray) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Knots about values of a column, as positions, and how many cells there are between them."""
    kind = values.type
    if pa.types.is_date(kind):
        values = values.cast(pa.int32())
    elif pa.types.is_timestamp(kind):
        values = values.cast(pa.int64())
    known = sorted({float(each) for each in values.to_pylist() if each is not None} - {math.inf, -math.inf})
    known = [each for each in known if not math.isnan(each)]
    chosen = random.sample(known, min(len(known), random.choice((2, 4, 7))))
    chosen += [math.nextafter(chosen[0], math.inf), chosen[1] + 0.5, *random.choice(([], [-1e300, 1e300]))]
    chosen += [0.0, 1e-310] if pa.types.is_floating(kind) else []  # so close that their distance has no inverse
    ends = sorted(set(chosen))
    return tuple(ends), tuple(random.choice((1, 3, 40)) for _ in ends[1:])


# --- Little and much -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["events", "subscriptions"])
def test_nothing_matches_nothing(missing: str, spark: SparkSession, tmp_path: Path) -> None:
    space = Space.parse("price double not null 0..1000, name string")
    schema = pa.schema([pa.field("price", pa.float64(), False), ("name", pa.string())])
    table = (
        schema.empty_table() if missing == "events" else pa.table({"price": [5.0, 7.0], "name": ["a", None]}, schema)
    )
    events = Events.of(spark, table, tmp_path, files=1)
    subscriptions = spark.createDataFrame([("s", 0.0, 10.0)], "id string, low_price double, high_price double")
    if missing == "subscriptions":
        subscriptions = subscriptions.where("id = 'nobody'")
    for name, found in found_by(FEW, events, subscriptions, space).items():
        assert value(found).num_rows == 0, name
        assert value(found).schema.names == ["price", "name", ROW, "subscription_id"], name


def test_more_matches_than_a_batch_holds(spark: SparkSession, tmp_path: Path) -> None:
    """Every event with every subscription: 100 for each row of a batch."""
    space = Space.parse("x double")
    events = Events.of(spark, pa.table({"x": [float(place) for place in range(1500)]}), tmp_path, files=1)
    subscriptions = spark.range(100).selectExpr("CAST(id AS SMALLINT) AS id", "CAST(NULL AS DOUBLE) AS low_x")
    for name, found in found_by(INDEXED, events, subscriptions, space).items():
        assert value(found).num_rows == len(pairs(value(found))) == 150_000, name


def test_columns_of_other_types_that_fit(spark: SparkSession, tmp_path: Path) -> None:
    """Narrower columns for a wider attribute, names in another case, other columns of any type and name."""
    space = Space.parse("small int, ratio double, cents decimal(12,2), whole decimal(12,2), NAME string")
    events = spark.sql(
        "SELECT CAST(n AS TINYINT) AS Small, CAST(n / 4 AS FLOAT) AS ratio, CAST(n / 2 AS DECIMAL(5,1)) AS cents,"
        " n AS WHOLE, CAST(n AS STRING) AS name, array(n, NULL) AS list, map('k', n) AS `a.b`,"
        " named_struct('x', n, 'y', array('q')) AS `where`, CAST('abc' AS BINARY) AS id,"
        " TIMESTAMP_NTZ'2020-01-01 10:00:00' AS plain, CAST(n AS DECIMAL(38,10)) AS `we``ird`"
        " FROM (SELECT explode(array(1, 2, 3, 4, NULL)) AS n)"
    )
    clauses = {
        "a": "small >= 2 AND ratio > 0.5 AND cents < 2",
        "b": "whole = 3 OR name = '1'",
        "c": "ratio IS NULL AND cents IS NULL AND whole IS NULL",
    }
    events.coalesce(1).selectExpr("*", f"monotonically_increasing_id() AS {ROW}").write.parquet(str(tmp_path / "p"))
    scan = spark.read.parquet(str(tmp_path / "p"))
    both = Events(scan, str(tmp_path / "p"), scan, scan.toArrow())
    subscriptions = spark.createDataFrame(list(clauses.items()), "ID string, Where string")
    wanted = pairs_by_clauses(spark, both.table, clauses)
    assert len(wanted) == 4
    for name, found in found_by(FEW, both, subscriptions, space).items():
        assert not differences(pairs(value(found)), wanted, clauses), name
        assert not changed_columns(value(found), both.table), name


# --- Several at once -------------------------------------------------------------------------------------------------


def test_matches_of_one_session_are_independent(spark: SparkSession, quaked: Answers) -> None:
    """Made before any of them runs, run at the same time, again, and after another one is gone."""
    space, events = Space.parse("magnitude double not null -2..10, region string"), quaked.events
    subscriptions = [
        spark.createDataFrame([(1, "magnitude > 3"), (2, "region = 'CA'")], "id int, where string"),
        spark.createDataFrame([(1, "magnitude <= 3"), (3, "region <> 'CA'")], "id int, where string"),
    ]
    clauses: list[dict[Any, str]] = [dict(frame.collect()) for frame in subscriptions]
    wanted = [pairs_by_clauses(spark, events.table, each) for each in clauses]
    ways = [way for way in WAYS if way.name in ("arrow", "files by path")]
    frames = {f"{way.name} {at}": way.match(events, subscriptions[at], space) for way in ways for at in (0, 1)}
    for turn in range(2):
        calls = {name: frame.select(ROW, "subscription_id").toArrow for name, frame in frames.items()}
        for name, found in at_once(calls, threads=4).items():
            assert pairs(value(found)) == wanted[int(name[-1])], (turn, name)
        del calls  # half of them go, and with them the index that they had
        frames = {name: frame for name, frame in frames.items() if name.endswith("1")}
        gc.collect()


def test_stream(spark: SparkSession, quaked: Answers, tmp_path: Path) -> None:
    """Statelessly: each batch of a stream of files is matched as it comes."""
    space = Space.parse("magnitude double not null -2..10, region string")
    clauses = {"strong": "magnitude > 4", "ca": "region = 'CA'"}
    subscriptions = spark.createDataFrame(list(clauses.items()), "id string, where string")
    reader = spark.readStream.schema(quaked.events.scan.schema).option("maxFilesPerTrigger", 1)
    stream = reader.parquet(quaked.events.path)
    assert ts.explain(stream, subscriptions, space).strategy == "arrow"
    found = ts.match(stream, subscriptions, space, strategy="arrow")
    assert found.isStreaming
    writer = found.writeStream.format("memory").queryName("thatch_found").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    query.awaitTermination()
    assert len({progress["batchId"] for progress in query.recentProgress}) == 3  # a file each
    rows = spark.table("thatch_found").toArrow()
    assert pairs(rows) == pairs_by_clauses(spark, quaked.events.table, clauses)
    assert not changed_columns(rows, quaked.events.table)
