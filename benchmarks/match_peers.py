"""What an expert would use instead of the match index, each at its best and on one thread.

DuckDB and Polars do not join by boxes. They are guided, as an expert would: the boxes are split by their narrowest
attribute, and joined with the events on that one alone, the rest a filter behind it. Ways to join one attribute: a
band (`x BETWEEN low AND high`: IEJoin), or buckets (equal cells of the axis; a box is repeated in each it touches; an
equi-join). The next step, cells over several attributes at once, is a hand-made match index in SQL: it is reported
too, as `grid`. NumPy: `blocks` sorts boxes and events by one attribute and compares a block of events with the boxes
that may reach it; `runs` sorts the events and lets each box look at its run of them. rtree is bulk-loaded.

Each peer is a function from a workload to a query, and the query one from a number of events, the first so many, to
(event, subscription) pairs in any order. Watchlists are exploded: a row for each symbol of each list.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from thatch import Region, Space

os.environ["POLARS_MAX_THREADS"] = "1"  # read when Polars is loaded

Values = NDArray[Any]  # [rows, attributes] with contiguous columns, in the attributes' own values
Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]
Query = Callable[[int], Pairs]

BLOCK = 512  # events compared at once, the best of 128..2048
CHUNK = 4_000  # events that Polars joins at once by inequality: it keeps all candidates, and larger chunks are slower


@dataclass(frozen=True)
class Workload:
    """Boxes and events as values of the attributes x0, x1, …, and how finely SQL is best told to cut the axes."""

    name: str
    space: Space
    low: Values
    high: Values
    events: Values
    domain: float  # every axis is 0..domain
    cells: int = 128  # of the narrowest attribute, for buckets
    grid_attributes: int = 2
    grid_cells: int = 32  # of each of them

    def constrained(self) -> NDArray[np.bool_]:
        return (self.low > 0) | (self.high < self.domain)

    def groups(self, attributes: int) -> Iterator[tuple[list[int], NDArray[np.int64]]]:
        """The boxes by their narrowest attributes: (those, the boxes). Equal widths count as equal."""
        count, d = self.low.shape
        if attributes == d:
            yield list(range(d)), np.arange(count)
            return
        widths = np.round((self.high - self.low) / self.domain, 9)
        narrowest = np.sort(np.argsort(widths, axis=1, kind="stable")[:, :attributes], axis=1)
        keys = narrowest @ d ** np.arange(attributes)
        order = np.argsort(keys, kind="stable")
        for members in np.split(order, np.flatnonzero(np.diff(keys[order])) + 1):
            yield narrowest[members[0]].tolist(), members


@dataclass(frozen=True)
class Watchlists:
    """Each subscription: some of the symbols, and a range of prices."""

    name: str
    space: Space
    regions: list[Region]
    symbols: list[str]
    lists: NDArray[np.int32]  # [subscriptions, symbols of each]: positions in `symbols`
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    event_symbols: pa.Array
    event_prices: NDArray[np.float64]
    domain: float


@dataclass(frozen=True)
class Peer:
    library: str
    way: str
    build: Callable[[Any], Query]
    is_by_hand: bool = False  # a match index that an expert builds with the tool's means: sorted runs, buckets, grids

    @property
    def name(self) -> str:
        return f"{self.library} {self.way}"


def peers() -> list[Peer]:
    """For boxes: all that are installed; the others are named."""
    found = [
        Peer("duckdb", "as written", lambda w: duckdb_inequalities(w, is_guided=False)),
        Peer("duckdb", "band", lambda w: duckdb_inequalities(w, is_guided=True)),
        Peer("duckdb", "buckets", lambda w: duckdb_cells(w, 1, w.cells), is_by_hand=True),
        Peer("duckdb", "grid", lambda w: duckdb_cells(w, w.grid_attributes, w.grid_cells), is_by_hand=True),
        Peer("polars", "join_where", polars_band),
        Peer("polars", "buckets", lambda w: polars_cells(w, 1, w.cells), is_by_hand=True),
        Peer("polars", "grid", lambda w: polars_cells(w, w.grid_attributes, w.grid_cells), is_by_hand=True),
        Peer("numpy", "block scan", numpy_scan),
        Peer("numpy", "sorted blocks", numpy_blocks, is_by_hand=True),
        Peer("numpy", "runs", numpy_runs, is_by_hand=True),
        Peer("rtree", "bulk-loaded", rtree_bulk),
    ]
    return _installed(found)


def watchlist_peers() -> list[Peer]:
    return _installed(
        [
            Peer("duckdb", "symbols first", lambda w: duckdb_watchlists(w, is_price_first=False)),
            Peer("duckdb", "prices first", lambda w: duckdb_watchlists(w, is_price_first=True)),
            Peer("polars", "symbols first", polars_watchlists),
        ]
    )


def _installed(found: list[Peer]) -> list[Peer]:
    missing = {peer.library for peer in found if importlib.util.find_spec(peer.library) is None}
    for library in sorted(missing):
        print(f"{library}: not installed, left out (pip install '.[bench]')")
    return [peer for peer in found if peer.library not in missing]


def joined(parts: list[Pairs]) -> Pairs:
    events = np.concatenate([np.zeros(0, np.int64), *(part[0] for part in parts)])
    return events, np.concatenate([np.zeros(0, np.int64), *(part[1] for part in parts)])


def columns_of(events: Values) -> dict[str, Values]:
    return {f"x{axis}": events[:, axis] for axis in range(events.shape[1])}


def numbered(events: Values) -> dict[str, Values]:
    return {"e": np.arange(len(events)), **columns_of(events)}


def box_columns(w: Workload, members: NDArray[np.int64]) -> tuple[dict[str, Values], list[int]]:
    """s, l0, h0, l1, …: the members, on the attributes that one of them constrains; and those."""
    axes = np.flatnonzero(w.constrained()[members].any(axis=0)).tolist()
    columns = {"s": members}
    for axis in axes:
        columns |= {f"l{axis}": w.low[members, axis], f"h{axis}": w.high[members, axis]}
    return columns, axes


# DuckDB


def duckdb_inequalities(w: Workload, is_guided: bool) -> Query:
    """As written, IEJoin takes two conditions of its own choice, say two lower bounds. A CASE hides all but a band."""
    statements, tables = [], {}
    for number, (narrow, members) in enumerate(w.groups(1) if is_guided else [([0], np.arange(len(w.low)))]):
        tables[f"boxes{number}"], axes = box_columns(w, members)
        band = _between(narrow)
        rest = _between([axis for axis in axes if axis not in narrow])
        condition = f"{band} AND CASE WHEN {rest} THEN TRUE ELSE FALSE END" if is_guided else f"{band} AND {rest}"
        statements.append(f"SELECT e, s FROM events JOIN boxes{number} ON {condition}")
    return _duckdb(w, statements, tables)


def duckdb_cells(w: Workload, attributes: int, cells: int) -> Query:
    statements, tables = [], {}
    for number, (narrow, members) in enumerate(w.groups(attributes)):
        tables[f"boxes{number}"], axes = box_columns(w, members)
        boxes = f"boxes{number}"
        for axis in narrow:
            first, last = (f"floor({end}{axis} / {w.domain} * {cells})::INT" for end in "lh")
            boxes = f"(SELECT *, unnest(range({first}, {last} + 1))::INT AS c{axis} FROM {boxes})"
        own = ", ".join(f"floor(x{axis} / {w.domain} * {cells})::INT AS c{axis}" for axis in narrow)
        keys = ", ".join(f"c{axis}" for axis in narrow)
        condition = _between(narrow + [axis for axis in axes if axis not in narrow])
        statements.append(
            f"SELECT e, s FROM (SELECT *, {own} FROM events) JOIN {boxes} USING ({keys}) WHERE {condition}"
        )
    return _duckdb(w, statements, tables)


def _between(axes: list[int]) -> str:
    return " AND ".join(f"x{axis} BETWEEN l{axis} AND h{axis}" for axis in axes) or "TRUE"


def _duckdb(w: Workload, statements: list[str], tables: dict[str, dict[str, Values]]) -> Query:
    connection = _holding({name: pa.table(columns) for name, columns in tables.items()})

    def query(count: int) -> Pairs:
        connection.register("events", pa.table(numbered(w.events[:count])))
        found = [connection.execute(statement).fetchnumpy() for statement in statements]
        return joined([(each["e"], each["s"]) for each in found])

    return query


def duckdb_watchlists(w: Watchlists, is_price_first: bool) -> Query:
    """Symbols first: a hash join on the symbol, prices behind it. Prices first: cells of the price, then the lists."""
    lists, symbols = _exploded(w)
    tables = {"lists": lists, "symbols": symbols}
    statement = "SELECT e, s FROM events JOIN symbols USING (symbol) JOIN lists USING (k) WHERE price BETWEEN l AND h"
    if is_price_first:
        tables["ranges"] = pa.table({"s": np.arange(len(w.low), dtype=np.int32), "l": w.low, "h": w.high})
        tables["lists"] = lists.select(["k", "s"])
        cell = f"/ {w.domain} * 1000)::INT"
        statement = f"""SELECT e, s
            FROM (SELECT *, floor(price {cell} AS c FROM events) JOIN symbols USING (symbol)
            JOIN (SELECT *, unnest(range(floor(l {cell}, floor(h {cell} + 1))::INT AS c FROM ranges) USING (c)
            JOIN lists USING (k, s) WHERE price BETWEEN l AND h"""
    connection = _holding(tables)

    def query(count: int) -> Pairs:
        connection.register("events", _watched(w, count))
        found = connection.execute(statement).fetchnumpy()
        return joined([(found["e"], found["s"])])

    return query


@cache
def _connection() -> Any:
    import duckdb

    return duckdb.connect(config={"threads": 1})


def _holding(tables: dict[str, Any]) -> Any:
    for name, table in tables.items():
        _connection().register(name, table)
    return _connection()


def _exploded(w: Watchlists) -> tuple[Any, Any]:
    """Lists as rows of (symbol's number, subscription, range), and the numbers of the symbols."""
    count, size = w.lists.shape
    lists = {"k": w.lists.ravel(), "s": np.repeat(np.arange(count, dtype=np.int32), size)}
    lists |= {"l": np.repeat(w.low, size), "h": np.repeat(w.high, size)}
    return pa.table(lists), pa.table({"symbol": w.symbols, "k": np.arange(len(w.symbols), dtype=np.int32)})


def _watched(w: Watchlists, count: int) -> Any:
    return pa.table({"e": np.arange(count), "symbol": w.event_symbols[:count], "price": w.event_prices[:count]})


# Polars


def polars_band(w: Workload) -> Query:
    """`join_where` makes an IEJoin of the last two conditions, so the band is named last."""
    import polars as pl

    groups = []
    for narrow, members in w.groups(1):
        columns, axes = box_columns(w, members)
        order = [axis for axis in axes if axis not in narrow] + narrow
        groups.append((pl.LazyFrame(columns), _polars_conditions(order)))

    def query(count: int) -> Pairs:
        found = []
        frame = pl.DataFrame(numbered(w.events[:count]))
        for boxes, conditions in groups:
            for part in frame.iter_slices(CHUNK):
                pairs = part.lazy().join_where(boxes, *conditions).select("e", "s").collect(engine="in-memory")
                found.append((pairs["e"].to_numpy(), pairs["s"].to_numpy()))
        return joined(found)

    return query


def polars_cells(w: Workload, attributes: int, cells: int) -> Query:
    import polars as pl

    def cell(column: str) -> pl.Expr:
        return (pl.col(column) / w.domain * cells).floor().cast(pl.Int32)

    groups = []
    for narrow, members in w.groups(attributes):
        columns, axes = box_columns(w, members)
        boxes = pl.LazyFrame(columns)
        for axis in narrow:
            touched = pl.int_ranges(cell(f"l{axis}"), cell(f"h{axis}") + 1, dtype=pl.Int32).alias(f"c{axis}")
            boxes = boxes.with_columns(touched).explode(f"c{axis}")
        conditions = _polars_conditions(narrow + [axis for axis in axes if axis not in narrow])
        groups.append((narrow, boxes, pl.all_horizontal(conditions)))

    def query(count: int) -> Pairs:
        found = []
        frame = pl.LazyFrame(numbered(w.events[:count]))
        for narrow, boxes, condition in groups:
            own = frame.with_columns([cell(f"x{axis}").alias(f"c{axis}") for axis in narrow])
            candidates = own.join(boxes, on=[f"c{axis}" for axis in narrow])
            pairs = candidates.filter(condition).select("e", "s").collect(engine="streaming")
            found.append((pairs["e"].to_numpy(), pairs["s"].to_numpy()))
        return joined(found)

    return query


def polars_watchlists(w: Watchlists) -> Query:
    import polars as pl

    exploded, numbers = _exploded(w)
    lists, symbols = pl.LazyFrame(exploded), pl.LazyFrame(numbers)

    def query(count: int) -> Pairs:
        events = pl.LazyFrame(_watched(w, count)).join(symbols, on="symbol")
        near = lists.join(events, on="k").filter(pl.col("price").is_between("l", "h"))
        pairs = near.select("e", "s").collect(engine="streaming")
        return joined([(pairs["e"].to_numpy(), pairs["s"].to_numpy())])

    return query


def _polars_conditions(axes: list[int]) -> list[Any]:
    import polars as pl

    above = [pl.col(f"x{axis}") >= pl.col(f"l{axis}") for axis in axes]
    below = [pl.col(f"x{axis}") <= pl.col(f"h{axis}") for axis in axes]
    return [condition for pair in zip(above, below, strict=True) for condition in pair]


# NumPy


def numpy_scan(w: Workload) -> Query:
    """Blocks of events against all boxes: the most selective attribute by broadcasting, the others for what is left."""
    share = np.where(w.constrained(), (w.high - w.low) / w.domain, 1.0).mean(axis=0)
    axes = np.argsort(share, kind="stable").tolist()
    low, high = np.ascontiguousarray(w.low.T), np.ascontiguousarray(w.high.T)

    def query(count: int) -> Pairs:
        found = []
        for start in range(0, count, 64):
            events = np.ascontiguousarray(w.events[start : min(start + 64, count)].T)
            reached = (low[axes[0]] <= events[axes[0], :, None]) & (events[axes[0], :, None] <= high[axes[0]])
            event, box = np.nonzero(reached)
            for axis in axes[1:]:
                value = events[axis][event]
                kept = (low[axis][box] <= value) & (value <= high[axis][box])
                event, box = event[kept], box[kept]
            if len(box):
                found.append((event + start, box))
        return joined(found)

    return query


def numpy_blocks(w: Workload) -> Query:
    groups = []
    for (narrow,), members in w.groups(1):
        members = members[np.argsort(w.low[members, narrow])]
        low, high = np.ascontiguousarray(w.low[members].T), np.ascontiguousarray(w.high[members].T)
        axes = np.flatnonzero(w.constrained()[members].any(axis=0)).tolist()
        if w.constrained()[members].all(axis=0).sum() > 1:  # another axis leaves few of the candidates by the first
            axes = [axis for axis in axes if axis != narrow] + [narrow]
        else:
            axes = [narrow] + [axis for axis in axes if axis != narrow]
        groups.append((narrow, members, low, high, axes))

    def query(count: int) -> Pairs:
        found, events = [], w.events[:count]
        for narrow, members, low, high, axes in groups:
            order = np.argsort(events[:, narrow])
            own = events.T[:, order]
            widest = (high[narrow] - low[narrow]).max()
            for start in range(0, len(order), BLOCK):
                stop = min(start + BLOCK, len(order))
                first = np.searchsorted(low[narrow], own[narrow, start] - widest)
                last = np.searchsorted(low[narrow], own[narrow, stop - 1], "right")
                axis = axes[0]
                reached = low[axis, first:last, None] <= own[axis, None, start:stop]
                reached &= high[axis, first:last, None] >= own[axis, None, start:stop]
                box, event = np.divmod(np.flatnonzero(reached), stop - start)
                box, event = box + first, event + start
                for axis in axes[1:]:
                    value = own[axis][event]
                    kept = (low[axis][box] <= value) & (value <= high[axis][box])
                    box, event = box[kept], event[kept]
                if len(box):
                    found.append((order[event], members[box]))
        return joined(found)

    return query


def numpy_runs(w: Workload) -> Query:
    widths = np.where(w.constrained(), w.high - w.low, np.inf)
    by_width = np.argsort(widths, axis=1).tolist()
    sizes = w.constrained().sum(axis=1).tolist()
    lows, highs = w.low.tolist(), w.high.tolist()
    groups = list(w.groups(1))

    def query(count: int) -> Pairs:
        found, events = [], w.events[:count]
        for (narrow,), members in groups:
            order = np.argsort(events[:, narrow])
            own = events.T[:, order]
            firsts = np.searchsorted(own[narrow], w.low[members, narrow])
            lasts = np.searchsorted(own[narrow], w.high[members, narrow], "right")
            for box, first, last in zip(members.tolist(), firsts.tolist(), lasts.tolist(), strict=True):
                low, high = lows[box], highs[box]
                run: Any = slice(first, last)
                for axis in by_width[box][: sizes[box]]:
                    if axis != narrow:
                        values = own[axis][run]
                        kept = np.flatnonzero((values >= low[axis]) & (values <= high[axis]))
                        run = kept + first if isinstance(run, slice) else run[kept]
                        if not len(run):
                            break
                hits = order[run]
                if len(hits):
                    found.append((hits, np.full(len(hits), box)))
        return joined(found)

    return query


# rtree


def rtree_bulk(w: Workload) -> Query:
    from rtree import index

    properties = index.Property(dimension=len(w.space), leaf_capacity=32, index_capacity=32, fill_factor=0.9)
    tree = index.Index((np.arange(len(w.low)), w.low, w.high), properties=properties)

    def query(count: int) -> Pairs:
        boxes, counts = tree.intersection_v(w.events[:count], w.events[:count])  # type: ignore[no-untyped-call]
        return np.repeat(np.arange(count), counts.astype(np.int64)), boxes

    return query
