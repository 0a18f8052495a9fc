"""Oracles for matching on Spark, and sets of events and subscriptions to ask them about.

The oracle is Spark itself: the nested-loop join of events and subscriptions, each clause an expression of Spark's own
(`within` is spelled out), or a join on the columns of bounds. What `thatch.spark.match` finds must be the same rows, as
often, with the events as they were.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from helpers.clause_rows import COLUMNS, SPACE, Column, make_rows, make_table
from helpers.clauses import Clause, ClauseWriter, spelled_out
from thatch import Space
from thatch.cli.demo_earthquakes import SPACE as QUAKE_SPACE
from thatch.cli.demo_earthquakes import SUBSCRIPTIONS, earthquakes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOAK = bool(os.environ.get("THATCH_SOAK"))
SEED = int(os.environ.get("THATCH_SEED", "20240301"))
PER_JOB = 100  # clauses that Spark evaluates at once
ROW = "event_number"  # the column that tells events apart; no attribute

Pairs = Counter[tuple[int, Any]]  # (number of the event, id of the subscription): how often
T = TypeVar("T")


# --- Ways to match ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """One way in which `match` can do its work: a strategy, what the events are given as, what may be broadcast."""

    name: str
    strategy: str
    given: str = "frame"  # or the "path" of Parquet files, or their "scan"
    limit: int | None = None

    def match(self, events: Events, subscriptions: DataFrame, space: Space, **options: Any) -> DataFrame:
        import thatch.spark as ts

        source = getattr(events, self.given)
        return ts.match(source, subscriptions, space, strategy=self.strategy, broadcast_limit=self.limit, **options)


WAYS = (
    Way("native broadcast", "native"),
    Way("native shuffled", "native", limit=0),
    Way("arrow", "arrow"),
    Way("files by path", "files", "path"),
    Way("files by scan", "files", "scan"),
)
NAMES = [way.name for way in WAYS]


def some_ways(*names: str) -> list[Way]:
    """These, or all with THATCH_SOAK."""
    return [way for way in WAYS if SOAK or way.name in names]


def frame_of(spark: SparkSession, table: pa.Table) -> DataFrame:
    """A DataFrame of an Arrow table. Spark would take clock readings for instants."""
    frame = spark.createDataFrame(table)
    for field in table.schema:
        if pa.types.is_timestamp(field.type) and field.type.tz is None:
            frame = frame.withColumn(field.name, frame[field.name].cast("timestamp_ntz"))
    return frame


@dataclass(frozen=True)
class Events:
    """The same events as a DataFrame of unknown size, as the path of Parquet files, as a scan of them, and as Arrow."""

    frame: DataFrame
    path: str
    scan: DataFrame
    table: pa.Table

    @classmethod
    def of(cls, spark: SparkSession, table: pa.Table, folder: Path, files: int = 3) -> Events:
        table = table.append_column(pa.field(ROW, pa.int64(), False), pa.array(range(len(table)), pa.int64()))
        path = str(folder / "events")
        known = frame_of(spark, table)
        known.repartition(files).write.parquet(path)
        # Of a join with rows of Python's, Spark knows no size: so `native` plans for a million events.
        frame = known.crossJoin(spark.createDataFrame([(0,)], "one int")).drop("one")
        return cls(frame, path, spark.read.parquet(path), table)


def at_once(calls: Mapping[str, Callable[[], T]], threads: int = 3) -> dict[str, T | Exception]:
    """What each call gives or raises. They run at the same time, so each one also shows that the others leave it
    alone; and a job that waits for the JVM's compiler leaves a core to another."""

    def outcome(call: Callable[[], T]) -> T | Exception:
        try:
            return call()
        except Exception as error:
            return error

    with ThreadPoolExecutor(threads) as pool:
        return dict(zip(calls, pool.map(outcome, calls.values()), strict=True))


def value(outcome: T | Exception) -> T:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


@contextmanager
def settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Settings of the session, for a while."""
    before = {name: str(spark.conf.get(name)) for name in values}
    for name, own in values.items():
        spark.conf.set(name, own)
    try:
        yield
    finally:
        for name, own in before.items():
            spark.conf.set(name, own)


# For the oracle: to compile hundreds of expressions takes Spark longer than to evaluate them.
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


# --- What comes out --------------------------------------------------------------------------------------------------


def pairs(found: pa.Table) -> Pairs:
    return Counter(zip(found.column(ROW).to_pylist(), found.column("subscription_id").to_pylist(), strict=True))


def differences(found: Pairs, wanted: Pairs, clauses: Mapping[Any, str] | None = None) -> str:
    """What is missing and what is too much, by subscription; empty if all is well."""
    lines = []
    for what, some in (("missing", wanted - found), ("too much", found - wanted)):
        by_id: dict[Any, list[int]] = {}
        for row, id in some:
            by_id.setdefault(id, []).append(row)
        for id, rows in sorted(by_id.items(), key=lambda item: len(str((clauses or {}).get(item[0]))))[:8]:
            clause = f" {clauses[id]!r}" if clauses else ""
            lines.append(f"{what}: {id!r}{clause}, events {sorted(rows)[:10]} of {len(rows)}")
    return "\n".join(lines)


def changed_columns(found: pa.Table, events: pa.Table) -> list[str]:
    """The columns of events that did not come through as they were: names, order, types and every bit."""
    if found.schema.names != [*events.schema.names, "subscription_id"]:
        return [f"columns are {found.schema.names}"]
    rows = events.take(found.column(ROW))
    return [
        name
        for name in events.schema.names
        if found.column(name).type != rows.column(name).type
        or not _bits(found.column(name)).equals(_bits(rows.column(name)))
    ]


def _bits(column: pa.ChunkedArray) -> pa.Array:
    """Doubles as integers: NaN differs from itself, and -0.0 is equal to 0.0."""
    array = column.combine_chunks()
    if not pa.types.is_floating(column.type):
        return array
    whole = array.fill_null(0.0).to_numpy(zero_copy_only=False).view(f"i{column.type.byte_width}")
    return pa.array(whole, mask=array.is_null().to_numpy(zero_copy_only=False))


# --- The right answers -----------------------------------------------------------------------------------------------


def pairs_by_clauses(spark: SparkSession, events: pa.Table, clauses: Mapping[Any, str]) -> Pairs:
    """Spark's answer for each clause, in its own words: every clause with every event."""
    frame = frame_of(spark, events).coalesce(1)  # in order; unfolded
    ids, texts = list(clauses), list(clauses.values())

    def ask(start: int) -> list[tuple[int, Any]]:
        part = range(start, min(start + PER_JOB, len(ids)))
        answers = frame.selectExpr(*[f"({texts[at]}\n) AS c{at}" for at in part]).toArrow()
        found = []
        for at in part:
            rows = pc.indices_nonzero(answers.column(f"c{at}").combine_chunks().fill_null(False))
            found += [(row, ids[at]) for row in rows.to_pylist()]
        return found

    with settings(spark, INTERPRETED), ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(ask, range(0, len(ids), PER_JOB)))
    return Counter(pair for part in answers for pair in part)


def pairs_by_nested_loop(spark: SparkSession, events: pa.Table, clauses: Mapping[str, str]) -> Pairs:
    """The join that users write today: every pair, and a CASE with the clause of each subscription."""
    ids = spark.createDataFrame([(id,) for id in clauses], "subscription_id string")
    cases = " ".join(f"WHEN '{id}' THEN ({clause})" for id, clause in clauses.items())
    both = frame_of(spark, events).crossJoin(ids).where(f"CASE subscription_id {cases} END")
    with settings(spark, INTERPRETED):
        return pairs(both.select(ROW, "subscription_id").toArrow())


def pairs_by_bounds(events: Events, subscriptions: DataFrame, space: Space) -> Pairs:
    """A join on the columns of bounds. Both null: unconstrained. One null: unbounded on that side, and not null."""
    columns, conditions = set(subscriptions.columns), []
    for name in (attribute.name for attribute in space):
        low, high = (
            next((f"s.`{each}`" for each in (f"{side}_{name}", f"{name}_{side}") if each in columns), "NULL")
            for side in ("low", "high")
        )
        if low != "NULL" or high != "NULL":
            inside = f"e.`{name}` >= coalesce({low}, e.`{name}`) AND e.`{name}` <= coalesce({high}, e.`{name}`)"
            conditions.append(f"(({low} IS NULL AND {high} IS NULL) OR ({inside}))")
    joined = events.scan.alias("e").crossJoin(subscriptions.alias("s")).where(" AND ".join(conditions))
    return pairs(joined.selectExpr(ROW, "id AS subscription_id").toArrow())


def in_sparks_words(clause: str) -> str:
    """A clause with `within` spelled out; for clauses whose literals have no commas or parentheses."""

    def spell(found: re.Match[str]) -> str:
        radius, *rest = (part.strip() for part in found[1].split(","))
        return spelled_out(radius, list(zip(rest[::2], rest[1::2], strict=True)))

    return re.sub(r"within\(([^)]*)\)", spell, clause)


# --- Sets of events and subscriptions --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Workload:
    """Events and subscriptions as clauses: ours, and as Spark is to read them."""

    space: Space
    events: pa.Table
    clauses: dict[Any, Clause]

    def subscriptions(self, spark: SparkSession) -> DataFrame:
        kind = "string" if isinstance(next(iter(self.clauses)), str) else "int"
        return spark.createDataFrame([(i, c.ours) for i, c in self.clauses.items()], f"id {kind}, where string")

    @property
    def spark_clauses(self) -> dict[Any, str]:
        return {id: clause.spark for id, clause in self.clauses.items()}

    @property
    def our_clauses(self) -> dict[Any, str]:
        return {id: clause.ours for id, clause in self.clauses.items()}


def plain(text: str) -> Clause:
    return Clause(text, in_sparks_words(text), frozenset())


PLAIN = """
TRUE
FALSE
NULL AND flag
count > 5 AND count < 5
price < 'NaN' AND price > 'NaN'
size = 200
count IS NULL AND count > 5
price = 'NaN' OR name IS NULL
name LIKE 'abc%' AND code <> 'abc'
NOT (flag <=> NULL) AND kind IN ('a', '') AND mode <> 'on'
within(5.5, price, 1, size, 2) OR within(0, count, 5)
within(1e200, price, 0) AND ratio >= 0
day BETWEEN '2020-01-01' AND '2020-02-29' AND at < '2020-03-01' AND serial > -9223372036854775808
code = 'abc' AND live AND ratio BETWEEN 0 AND 10
kind = 'Zed' OR kind = 'b' AND fee < 100
price BETWEEN 1e-320 AND 2e-320 OR price = 1e-310
"""


def every_type(seeds: Sequence[int], clauses: int, rows: int) -> Workload:
    """Random clauses over every type; half of them joined by AND, so that some are narrow in several attributes."""
    found = [plain(text) for text in PLAIN.strip().splitlines()]
    for seed in seeds:
        random = Random(seed)
        writer = ClauseWriter(random)
        for place in range(clauses):
            clause = writer.clause()
            if place % 2:
                other = writer.clause()
                # On lines of their own: a clause may end in a comment.
                clause = Clause(
                    f"({clause.ours}\n) AND ({other.ours}\n)", f"({clause.spark}\n) AND ({other.spark}\n)", clause.rules
                )
            found.append(clause)
    named = {f"s{place}": clause for place, clause in enumerate(found)}
    return Workload(Space.parse(SPACE), make_table(make_rows(Random(seeds[0]), rows)), named)


def crowd(seed: int, rows: int, each: int) -> Workload:
    """Watchlists, and subscriptions that bound 3 of 20 attributes, are equal, nested, wider than any cell or
    unconstrained; half of the events are one and the same."""
    random = Random(seed)
    numbers = [f"x{place}" for place in range(10)] + [f"n{place}" for place in range(8)]
    declared = [f"{name} {'double not null' if name[0] == 'x' else 'int'}" for name in numbers]
    space = Space.parse(", ".join(["symbol string", "account int not null", *declared]))
    symbols = [f"SYM{place:05d}" for place in range(4000)]
    accounts = list(range(0, 40_000, 10))

    def event() -> dict[str, Any]:
        own: dict[str, Any] = {"symbol": random.choice([None, *symbols]), "account": random.choice(accounts)}
        for name in numbers:
            own[name] = random.uniform(0, 1000) if name[0] == "x" else random.choice([None, *range(1000)])
        return own

    same = event()
    events = [dict(same) if place % 2 else event() for place in range(rows)]
    clauses = ["TRUE"] + ["x0 BETWEEN 100 AND 600"] * each
    for place in range(each):
        lists = ", ".join(f"'{symbol}'" for symbol in random.sample(symbols, 2000))
        if place < 4:
            clauses.append(f"symbol IN ({lists})")
            clauses.append(f"symbol NOT IN ({lists}) AND x1 < 500")
        if place < 3:
            ids = ", ".join(map(str, random.sample(accounts, 2000)))
            clauses.append(f"account IN ({ids})")
            clauses.append(f"x2 BETWEEN 10 AND 400 AND account IN ({ids})")
            clauses.append(f"symbol = '{random.choice(symbols)}' OR account IN ({ids}) AND n1 > 500")
        chosen = random.sample(numbers, 3)
        at = [random.choice([same[name] or 0, random.uniform(0, 1000)]) for name in chosen]
        sides = [f"{name} BETWEEN {low - 150:.3f}D AND {low + 150:.3f}D" for name, low in zip(chosen, at, strict=True)]
        clauses += [" AND ".join(sides), " OR ".join(f"({side} AND x{place % 10} > 300)" for side in sides[:2])]
        clauses.append(f"x3 BETWEEN {10 * place} AND {1000 - 10 * place} AND x4 > {20 * place}")  # nested
        clauses.append(f"x5 > -1e{place + 3} AND n0 < {10**12 + place}")  # wide
        clauses.append(f"symbol = '{random.choice([same['symbol'] or 'none', random.choice(symbols)])}'")
        clauses.append(f"within({random.randint(50, 600)}, x6, {same['x6']:.1f}, x7, {same['x7']:.1f}, n2, 500)")
    kinds = {"s": pa.string(), "a": pa.int64(), "x": pa.float64(), "n": pa.int64()}
    schema = pa.schema([pa.field(a.name, kinds[a.name[0]], a.null is not None) for a in space])
    named = {place * 7 - 1000: plain(clause) for place, clause in enumerate(clauses)}
    return Workload(space, pa.Table.from_pylist(events, schema), named)


def quakes(seed: int, count: int) -> Workload:
    """A week of real earthquakes, the demo's subscriptions, and random ones about places, sizes and times of them."""
    random, events = Random(seed), earthquakes()
    clauses = dict(SUBSCRIPTIONS)
    regions = [event["region"] for event in events if event["region"] and "'" not in event["region"]]
    for place in range(count):
        one, other = random.choice(events), random.choice(events)
        low, high = sorted((one["magnitude"], other["magnitude"]))
        texts = [
            f"magnitude BETWEEN {low}D AND {high}D",
            f"within({random.choice((0.5, 3, 20))}, longitude, {one['longitude']}D, latitude, {one['latitude']}D)",
            f"depth > {one['depth']}D",
            f"at >= TIMESTAMP'{one['at']:%Y-%m-%d %H:%M:%S.%f}'",
            f"region IN ('{random.choice(regions)}', '{random.choice(regions)}')",
            f"region LIKE '{random.choice(regions)[:2]}%'",
            f"kind = '{one['kind']}' AND status <> '{other['status']}'",
            f"(felt IS NULL OR felt > {other['felt'] or 3})",
            f"NOT (stations > {other['stations'] or 7} OR alert <=> '{one['alert'] or 'green'}')",
        ]
        word = random.choice((" AND ", " AND ", " OR "))
        clauses[f"random-{place}"] = word.join(random.sample(texts, random.choice((1, 2, 3))))
    kinds = {"at": pa.timestamp("us", "UTC"), "tsunami": pa.bool_(), "felt": pa.int64(), "stations": pa.int64()}
    kinds |= dict.fromkeys(("magnitude", "depth", "longitude", "latitude"), pa.float64())
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in events[0]])
    table = pa.Table.from_pylist(events, schema)
    return Workload(QUAKE_SPACE, table, {id: plain(clause) for id, clause in clauses.items()})


def random_bounds(seed: int, count: int) -> pa.Table:
    """Typed columns of bounds over every type: one to three attributes bounded, most of them about values of the rows;
    one side or both, sometimes the wrong way round or beyond the domain."""
    random = Random(seed)
    rows: list[dict[str, Any]] = []
    for place in range(count):
        row: dict[str, Any] = {"id": 5 * place - 100}
        for column in random.sample(COLUMNS, random.choice((0, 1, 1, 2, 3))):
            row.update(_bounds(random, column))
        rows.append(row)
    names = [name for column in COLUMNS for name in bound_names(column)]
    kinds = {name: column.arrow for column in COLUMNS for name in bound_names(column)}
    return pa.Table.from_pylist(rows, pa.schema([("id", pa.int64()), *((name, kinds[name]) for name in names)]))


def bound_names(column: Column) -> tuple[str, str]:
    """In one of the two ways in which they are written."""
    first = COLUMNS.index(column) % 2
    return (f"low_{column.name}", f"high_{column.name}") if first else (f"{column.name}_low", f"{column.name}_high")


def _bounds(random: Random, column: Column) -> dict[str, Any]:
    values = [*column.values, *column.beyond]
    low, high = random.choice(values), random.choice(values)
    if random.random() < 0.85 and low == low and high == high:
        low, high = min(low, high), max(low, high)
    if random.random() < 0.4:
        low, high = random.choice(((None, high), (low, None), (low, low)))
    return dict(zip(bound_names(column), (low, high), strict=True))


def table_of_boxes(spark: SparkSession, low: Any, high: Any, space: Space) -> DataFrame:
    """Subscriptions of one box each, with ids that are ints, some of them negative."""
    columns = {"id": pa.array(np.arange(len(low)) * 3 - 100)}
    for at, attribute in enumerate(space):
        columns |= {f"low_{attribute.name}": pa.array(low[:, at]), f"high_{attribute.name}": pa.array(high[:, at])}
    return spark.createDataFrame(pa.table(columns)).repartition(3).localCheckpoint()
