"""The strategy `native`: an equi-join on cells, all of it in the JVM.

Subscriptions are written once for each cell that they touch (cells.py), events get the code of their cell by an
ordinary expression, Spark joins on equal codes, and what is left is compared with the bounds (typed.py). Broadcast
where the written-out subscriptions fit, else shuffled by code. A cell that holds many events would make one task of a
shuffle long: its events are dealt out over several *salts*, and its subscriptions are written once for each.

Each attribute has one grid, and its cells are columns before anything else is made of them: an expression that several
others contain would be compiled into each of them, and the JVM only ever interprets a method of more than 8,000 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from thatch.space.event_columns import ID
from thatch.space.schemas import ColumnPath
from thatch.space.space import Space
from thatch.spark.matching.cells import CELLS_MAX, VALUES_MAX, AxisGrid, Key, code, hashed, hashes, position
from thatch.spark.matching.typed import (
    constrained,
    high_column,
    low_column,
    null,
    spread,
    typed,
    values,
    within_bounds,
    within_terms,
)
from thatch.spark.tables import SubscriptionFrame, is_wrong_event, raised_event, value_of
from thatch.spark.text import case_sql, column_sql

TOO_MANY = 1 << 60  # cells
CODE, SALT, CHOSEN, CELLS = "__thatch_code", "__thatch_salt", "__thatch_key", "__thatch_cells"


def _grids(keys: Sequence[Key]) -> list[AxisGrid]:
    return list({grid.attribute: grid for key in keys for grid in key}.values())


def _first(grid: AxisGrid) -> str:
    return f"__thatch_first{grid.attribute}"


def _count(grid: AxisGrid) -> str:
    return f"__thatch_count{grid.attribute}"


def keyed(rows: DataFrame, keys: Sequence[Key], space: Space) -> DataFrame:
    """Subscriptions with the key that each has: the one of which it touches the fewest cells, or else the empty one,
    `len(keys)`; and with the number of these cells. And of each grid the first cell that it touches and how many it
    does; NULL if it cannot use it."""
    columns = []
    for grid in _grids(keys):
        attribute = space.attributes[grid.attribute]
        if grid.knots:
            first, last = (grid.cell(position(side(grid.attribute), attribute)) for side in (low_column, high_column))
            count = f"{last} - {first} + 1"
        else:
            first, count = "0L", f"CAST(size({values(grid.attribute)}) AS BIGINT)"
        most = CELLS_MAX if grid.knots else VALUES_MAX
        usable = f"{count} BETWEEN 1 AND {most}"
        if attribute.null is not None:
            usable += f" AND NOT {null(grid.attribute)}"
        columns += [f"{first} AS {_first(grid)}", f"{case_sql((usable, count))} AS {_count(grid)}"]
    rows = rows.selectExpr("*", *columns)
    if not keys:
        return rows.selectExpr("*", f"0 AS {CHOSEN}", f"1L AS {CELLS}")
    columns_before = rows.columns
    choices = []
    for number, key in enumerate(keys):
        total = " * ".join(["1L", *map(_count, key)])
        # Ranges multiply; with a list of values the list decides.
        most = CELLS_MAX if all(grid.knots for grid in key) else VALUES_MAX
        own = case_sql((f"{total} <= {most}", total), otherwise=f"{TOO_MANY}L")
        choices.append(f"named_struct('count', {own}, 'number', {number})")
    choices.append(f"named_struct('count', {TOO_MANY - 1}L, 'number', {len(keys)})")
    rows = rows.selectExpr("*", f"array_min(array({', '.join(choices)})) AS {CHOSEN}")
    cells = case_sql((f"{CHOSEN}.number < {len(keys)}", f"{CHOSEN}.`count`"), otherwise="1L")
    return rows.selectExpr(*columns_before, f"{CHOSEN}.number AS {CHOSEN}", f"{cells} AS {CELLS}")


def written(rows: DataFrame, keys: Sequence[Key], space: Space, salts: Mapping[int, int]) -> DataFrame:
    """Subscriptions, once for each cell."""
    kept = [name for name in rows.columns if not name.startswith("__thatch_values")]
    rows = keyed(rows, keys, space)
    cells = [f"__thatch_cell{place}" for place in range(max((len(key) for key in keys), default=0))]
    for place, cell in enumerate(cells):
        touched = case_sql(
            *((f"{CHOSEN} = {number}", _touched(key[place])) for number, key in enumerate(keys) if place < len(key)),
            otherwise="array(0L)",
        )
        rows = rows.selectExpr("*", f"explode({touched}) AS {cell}")
    rows = rows.selectExpr(*kept, f"{code(CHOSEN, cells)} AS {CODE}")
    if salts:
        rows = rows.selectExpr("*", f"explode(sequence(0, {_salt_count(salts)} - 1)) AS {SALT}")
    return rows


def _touched(grid: AxisGrid) -> str:
    """The cells of one attribute that a subscription touches."""
    if grid.knots:
        return f"sequence({_first(grid)}, {_first(grid)} + {_count(grid)} - 1)"
    return f"array_distinct({hashes(values(grid.attribute))})"


def _salt_count(salts: Mapping[int, int]) -> str:
    return case_sql(*((f"{CODE} = {number}", str(salt)) for number, salt in salts.items()), otherwise="1")


def match_native(
    events: DataFrame,
    attributes: Sequence[ColumnPath],
    subscriptions: SubscriptionFrame,
    keys: Sequence[Key],
    rest: bool,
    broadcast: bool,
    salts: Mapping[int, int],
    skip: bool,
) -> DataFrame:
    """`rest`: whether some subscription has the empty key."""
    space = subscriptions.space
    event = [value_of(name, attribute) for name, attribute in zip(attributes, space.attributes, strict=True)]
    coded = _coded(events, attributes, event, space, keys, rest or not keys, skip)
    on = [CODE]
    if salts:
        coded = coded.selectExpr(
            "*", f"CAST(pmod(monotonically_increasing_id(), {_salt_count(salts)}) AS INT) AS {SALT}"
        )
        on.append(SALT)
    rows = written(spread(typed(subscriptions, skip), space), keys, space, salts)
    pairs = coded.join(F.broadcast(rows) if broadcast else rows.hint("shuffle_hash"), on)
    conditions = [within_bounds(index, space.attributes[index], event[index]) for index in constrained(subscriptions)]
    if subscriptions.where is not None:
        conditions.append(within_terms(space, event))
    return pairs.where(" AND ".join(f"({each})" for each in conditions)).selectExpr(
        *map(column_sql, events.columns), ID
    )


def _coded(
    events: DataFrame,
    attributes: Sequence[ColumnPath],
    event: Sequence[str],
    space: Space,
    keys: Sequence[Key],
    rest: bool,
    skip: bool,
) -> DataFrame:
    """Events, once for each key, with the code of their cell. Bad values are refused here, or the row is left out."""
    cells = []
    for grid in _grids(keys):
        value = event[grid.attribute]
        if grid.knots:
            cell = grid.cell(position(value, space.attributes[grid.attribute]))
        else:
            cell = case_sql((f"{value} IS NOT NULL", hashed(value)))
        cells.append(f"{cell} AS __thatch_cell{grid.attribute}")
    rows = events.selectExpr("*", *cells)
    codes = [code(str(number), [f"__thatch_cell{grid.attribute}" for grid in key]) for number, key in enumerate(keys)]
    if rest:
        codes.append(code(str(len(keys)), ()))
    own, wrong = codes[0] if len(codes) == 1 else f"array({', '.join(codes)})", is_wrong_event(attributes, space)
    found = case_sql((f"NOT {wrong}", own))
    if not skip:
        # Spark may drop a row before it computes what the row would have been refused for: an inferred `IS NOT NULL`
        # moves below the projection. Past an expression that is not deterministic nothing moves.
        kind, raised = "bigint" if len(codes) == 1 else "array<bigint>", raised_event(attributes, space)
        refused = f"CAST(raise_error({raised}) AS {kind})"
        found = case_sql(("spark_partition_id() >= 0", case_sql((f"NOT {wrong}", own), otherwise=refused)))
    rows = rows.selectExpr(*map(column_sql, events.columns), f"{found} AS {CODE}")
    return rows if len(codes) == 1 else rows.withColumn(CODE, F.explode(CODE))
