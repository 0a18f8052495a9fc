"""What a Spark user has instead of `thatch.spark`, each at its best: joins in Spark, and DuckDB and Polars beside it.

All of them read the same two Parquet folders: events `n`, `x0`, `x1`, …, and subscriptions `id`, `low_x0`, `high_x0`,
…, with NULL where a subscription does not constrain an attribute. All give the event's columns and `subscription_id`.

nested loop   events.join(broadcast(subscriptions), what they say): what Spark makes of a range join as it is written, a
              BroadcastNestedLoopJoin.
hand-written  What an expert writes instead: subscriptions are exploded into the cells of a grid that they touch, events
              get the code of their cell, a broadcast hash join on it, then the exact conditions. GRIDS says which
              grids, and what else was tried.
duckdb        `band`: the narrowest attribute of each subscription by itself (an IEJoin), the rest a filter behind it.
              `grid`: cells as above, over its narrowest attributes. Both as in match_peers.py.
polars        `join_where` and `grid`, as in match_peers.py.

DuckDB and Polars have as many threads as Spark has cores, and end with the whole result in memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property, reduce
from itertools import combinations
from operator import and_
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.match_peers import CHUNK, Workload, _between, _polars_conditions, box_columns
from thatch import Space

if TYPE_CHECKING:
    import polars as pl

CORES = 2  # of Spark's local master, and threads of DuckDB and Polars
os.environ["POLARS_MAX_THREADS"] = str(CORES)  # read when Polars is loaded; match_peers.py wants 1

ID = "subscription_id"
CELL_BITS = 12  # of a cell's number within one attribute


@dataclass(frozen=True)
class Tables:
    """Events and subscriptions in Parquet, and DataFrames of them."""

    session: SparkSession
    w: Workload  # what they were written from; of its events there may be others
    events_path: Path
    subscriptions_path: Path
    count: int  # events

    @cached_property
    def events(self) -> DataFrame:
        return self.session.read.parquet(str(self.events_path))

    @cached_property
    def subscriptions(self) -> DataFrame:
        return self.session.read.parquet(str(self.subscriptions_path))

    @property
    def space(self) -> Space:
        return self.w.space

    @property
    def columns(self) -> list[str]:
        """Of the events."""
        return ["n", *(attribute.name for attribute in self.space)]


@dataclass(frozen=True)
class Contender:
    name: str
    about: Callable[[Tables], str]  # how it does it
    run: Callable[[Tables], object]  # what is timed
    table: Callable[[Tables], pa.Table]  # the result, in any order


def in_spark(name: str, join: Callable[[Tables], DataFrame], about: Callable[[Tables], str]) -> Contender:
    """A DataFrame, run to its last row with nowhere to write it."""

    def run(tables: Tables) -> None:
        join(tables).write.format("noop").mode("overwrite").save()

    return Contender(name, about, run, lambda tables: join(tables).toArrow())


NESTED_LOOP, HAND_WRITTEN = "spark nested loop", "spark hand-written"


def peers() -> list[Contender]:
    return [
        in_spark(NESTED_LOOP, nested_loop, lambda t: planned(nested_loop(t), "BroadcastNestedLoopJoin")),
        in_spark(
            HAND_WRITTEN,
            hand_written,
            lambda t: planned(hand_written(t), "BroadcastHashJoin") + f", {GRIDS[t.w.name]}",
        ),
        Contender("duckdb band", lambda t: "IEJoin", duckdb_band, duckdb_band),
        Contender("duckdb grid", cut, duckdb_grid, duckdb_grid),
        Contender("polars join_where", lambda t: f"{CHUNK} at once", polars_band, lambda t: polars_band(t).to_arrow()),
        Contender("polars grid", cut, polars_grid, lambda t: polars_grid(t).to_arrow()),
    ]


def planned(frame: DataFrame, join: str) -> str:
    """The join's name, if it is in Spark's plan."""
    plan = frame._jdf.queryExecution().executedPlan().toString()
    if join not in plan:
        raise AssertionError(f"no {join} in the plan:\n{plan}")
    return join


# Spark


def within(w: Workload) -> Column:
    """What a subscription says, as one would write it."""
    is_whole = [bool(own.all()) for own in w.constrained().T]

    def side(axis: int) -> Column:
        low, high = F.col(f"low_x{axis}"), F.col(f"high_x{axis}")
        inside = F.col(f"x{axis}").between(low, high)
        return inside if is_whole[axis] else low.isNull() | inside

    return reduce(and_, map(side, range(len(w.space))))


def nested_loop(tables: Tables) -> DataFrame:
    pairs = tables.events.join(F.broadcast(tables.subscriptions), within(tables.w))
    return pairs.select(*tables.columns, F.col("id").alias(ID))


@dataclass(frozen=True)
class Grid:
    """What an expert chose: keys, each some attributes that are cut together, and into how many cells each."""

    keys: tuple[tuple[int, ...], ...]  # a subscription has the first of which it constrains every attribute
    cells: int

    def __str__(self) -> str:
        many = f"{len(self.keys)} keys of " if len(self.keys) > 1 else ""
        return f"{many}{len(self.keys[0])} attributes in {self.cells} cells each"


# What was tried, in seconds of CPU on a busy machine.
# (a) 1,000,000 events. Two attributes in 64, 128 cells: 4.2, 3.3; three in 32, 64: 2.4, 2.0; four in 16, 32, 64: 1.6,
#     1.9, 2.1. (a zipf) 250,000. Three in 64, 256, 512: 3.2, 1.6, 1.7; four in 64, 128, 256: 1.7, 1.3, 1.3; cells of
#     equal width in log(1 + x), three and four: 3.6, 2.0.
# (b) 250,000 events. Three in 16, 24, 32: 10, 5.8, 4.8; four in 8, 12, 16: 6.4, 3.0, 3.6. 16 was taken for many
#     events, as it has half the candidates of 12; 12, 20 and 24 were not measured with 4,000,000.
# (c) 200,000 events. Of any three attributes out of ten, two are in the same half: 20 pairs are enough for a key of two
#     attributes that every subscription has. In 64, 128 cells: 6.2, 7.6. All 45 pairs: 26, as the method that Spark
#     generates for so many is larger than the JVM compiles. One join for each of the 20 pairs, and a union: 20.
HALVES = tuple(pair for half in (range(5), range(5, 10)) for pair in combinations(half, 2))
GRIDS = {
    "a": Grid(((0, 1, 2, 3),), 16),
    "a zipf": Grid(((0, 1, 2, 3),), 128),
    "b": Grid(((0, 1, 2, 3),), 16),
    "c": Grid(HALVES, 64),
}


def hand_written(tables: Tables) -> DataFrame:
    """An event is looked up once for each key; a subscription has one key, and a row for each cell that it touches.

    Two things keep the generated method small enough to be compiled: the cells of an event are columns before codes are
    made of them, and rows have an infinite bound instead of none.
    """
    grid, axes = GRIDS[tables.w.name], range(len(tables.space))

    def cell(value: Column) -> Column:
        return F.floor(value * (grid.cells / tables.w.domain))

    def code(key: Column, cells: list[Column]) -> Column:
        return reduce(lambda total, each: F.shiftleft(total, CELL_BITS) + each, cells, key.cast("bigint"))

    def has(key: tuple[int, ...]) -> Column:
        return reduce(and_, [F.col(f"low_x{axis}").isNotNull() for axis in key])

    def own(side: str, place: int) -> Column:
        """A bound of a subscription's own key."""
        bounds = [F.col(f"{side}_x{key[place]}") for key in grid.keys]
        return F.coalesce(*[F.when(F.col("key") == number, bound) for number, bound in enumerate(bounds)])

    owned = F.coalesce(*[F.when(has(key), F.lit(number)) for number, key in enumerate(grid.keys)])
    rows = tables.subscriptions.withColumn("key", owned)
    places = range(len(grid.keys[0]))
    for place in places:
        touched = F.sequence(cell(own("low", place)), cell(own("high", place)))
        rows = rows.withColumn(f"cell{place}", F.explode(touched))
    bounds = [
        F.coalesce(f"{side}_x{axis}", F.lit(end)).alias(f"{side}_x{axis}")
        for side, end in (("low", -np.inf), ("high", np.inf))
        for axis in axes
    ]
    rows = rows.select("id", *bounds, code(F.col("key"), [F.col(f"cell{place}") for place in places]).alias("code"))
    events = tables.events.select("*", *[cell(F.col(f"x{axis}")).alias(f"cell{axis}") for axis in axes])
    codes = [code(F.lit(number), [F.col(f"cell{axis}") for axis in key]) for number, key in enumerate(grid.keys)]
    coded = (F.explode(F.array(*codes)) if len(codes) > 1 else codes[0]).alias("code")
    inside = [F.col(f"x{axis}").between(F.col(f"low_x{axis}"), F.col(f"high_x{axis}")) for axis in axes]
    pairs = events.select(*tables.columns, coded).join(F.broadcast(rows), "code").where(reduce(and_, inside))
    return pairs.select(*tables.columns, F.col("id").alias(ID))


# DuckDB and Polars


def cut(tables: Tables) -> str:
    w = tables.w
    return f"{w.grid_attributes} attributes in {w.grid_cells} cells each"


def boxes_read(tables: Tables) -> tuple[Workload, Any]:
    """The subscriptions again, from Parquet: boxes that are as wide as the domain where a bound is NULL; and ids."""
    table, w = pq.read_table(tables.subscriptions_path), tables.w
    low, high = (
        np.stack([table[f"{side}_x{axis}"].fill_null(end).to_numpy() for axis in range(len(w.space))], axis=1)
        for side, end in (("low", 0.0), ("high", w.domain))
    )
    return replace(w, low=np.asfortranarray(low), high=np.asfortranarray(high)), table["id"].to_numpy()


def grouped(tables: Tables, attributes: int) -> Iterator[tuple[list[int], list[int], dict[str, Any]]]:
    """Subscriptions by their narrowest attributes: these, the other constrained ones, and columns s, l0, h0, …"""
    w, ids = boxes_read(tables)
    for narrow, members in w.groups(attributes):
        columns, axes = box_columns(w, members)
        yield narrow, [axis for axis in axes if axis not in narrow], columns | {"s": ids[members]}


@cache
def _connection() -> Any:
    import duckdb

    return duckdb.connect(config={"threads": CORES})


def duckdb_band(tables: Tables) -> pa.Table:
    joins = []
    for number, (narrow, others, columns) in enumerate(grouped(tables, 1)):
        _connection().register(f"boxes{number}", pa.table(columns))
        rest = f"CASE WHEN {_between(others)} THEN TRUE ELSE FALSE END"  # hides it from the choice of a join
        joins.append(f"events JOIN boxes{number} ON {_between(narrow)} AND {rest}")
    return _duckdb(tables, joins)


def duckdb_grid(tables: Tables) -> pa.Table:
    joins, w = [], tables.w
    for number, (narrow, others, columns) in enumerate(grouped(tables, w.grid_attributes)):
        boxes = f"boxes{number}"
        _connection().register(boxes, pa.table(columns))
        for axis in narrow:
            first, last = (f"floor({end}{axis} / {w.domain} * {w.grid_cells})::INT" for end in "lh")
            boxes = f"(SELECT *, unnest(range({first}, {last} + 1))::INT AS c{axis} FROM {boxes})"
        own = ", ".join(f"floor(x{axis} / {w.domain} * {w.grid_cells})::INT AS c{axis}" for axis in narrow)
        keys = ", ".join(f"c{axis}" for axis in narrow)
        joins.append(f"(SELECT *, {own} FROM events) JOIN {boxes} USING ({keys}) WHERE {_between(narrow + others)}")
    return _duckdb(tables, joins)


def _duckdb(tables: Tables, joins: list[str]) -> pa.Table:
    """One join reads the files as it goes; several share a table of them."""
    kind = "VIEW" if len(joins) == 1 else "TABLE"
    files = f"read_parquet('{tables.events_path}/*.parquet')"
    connection = _connection()
    connection.execute(f"CREATE OR REPLACE TEMP {kind} events AS SELECT * FROM {files}")
    columns = ", ".join(tables.columns)
    found = [connection.sql(f"SELECT {columns}, s AS {ID} FROM {join}").to_arrow_table() for join in joins]
    connection.execute(f"DROP {kind} events")
    return pa.concat_tables(found)


def polars_band(tables: Tables) -> pl.DataFrame:
    """The band last: `join_where` makes an IEJoin of the last two conditions."""
    import polars as pl

    found = []
    events = pl.read_parquet(f"{tables.events_path}/*.parquet")
    for narrow, others, columns in grouped(tables, 1):
        boxes, conditions = pl.LazyFrame(columns), _polars_conditions(others + narrow)
        for part in events.iter_slices(CHUNK):
            pairs = part.lazy().join_where(boxes, *conditions)
            found.append(pairs.select(*tables.columns, pl.col("s").alias(ID)).collect(engine="in-memory"))
    return pl.concat(found)


def polars_grid(tables: Tables) -> pl.DataFrame:
    import polars as pl

    def cell(column: str) -> pl.Expr:
        return (pl.col(column) / tables.w.domain * tables.w.grid_cells).floor().cast(pl.Int32)

    groups = list(grouped(tables, tables.w.grid_attributes))
    events = pl.scan_parquet(f"{tables.events_path}/*.parquet")
    if len(groups) > 1:
        events = events.collect().lazy()
    found = []
    for narrow, others, columns in groups:
        boxes = pl.LazyFrame(columns)
        for axis in narrow:
            touched = pl.int_ranges(cell(f"l{axis}"), cell(f"h{axis}") + 1, dtype=pl.Int32).alias(f"c{axis}")
            boxes = boxes.with_columns(touched).explode(f"c{axis}")
        own = events.with_columns([cell(f"x{axis}").alias(f"c{axis}") for axis in narrow])
        candidates = own.join(boxes, on=[f"c{axis}" for axis in narrow])
        pairs = candidates.filter(pl.all_horizontal(_polars_conditions(narrow + others)))
        found.append(pairs.select(*tables.columns, pl.col("s").alias(ID)).collect(engine="streaming"))
    return pl.concat(found)
