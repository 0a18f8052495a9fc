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

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from thatch.space import Space
from thatch.spark.cells import CELLS_MAX, VALUES_MAX, Grid, Key, code, hashed, position, together
from thatch.spark.tables import ID, Subscriptions, name_sql, value_of, wrong_value
from thatch.spark.typed import constrained, high, low, null, spread, typed, values, within_bounds, within_terms

TOO_MANY = 1 << 60  # cells
CODE, SALT, CHOSEN, CELLS = "__thatch_code", "__thatch_salt", "__thatch_key", "__thatch_cells"


def _grids(keys: Sequence[Key]) -> list[Grid]:
    return list({grid.attribute: grid for key in keys for grid in key}.values())


def _first(grid: Grid) -> str:
    return f"__thatch_first{grid.attribute}"


def _count(grid: Grid) -> str:
    return f"__thatch_count{grid.attribute}"


def keyed(rows: DataFrame, keys: Sequence[Key], space: Space) -> DataFrame:
    """Subscriptions with the key that each has: the one of which it touches the fewest cells, or else the empty one,
    `len(keys)`; and with the number of these cells. And of each grid the first cell that it touches and how many it
    does; NULL if it cannot use it."""
    columns = []
    for grid in _grids(keys):
        attribute = space.attributes[grid.attribute]
        if grid.knots:
            first = grid.cell(position(F.col(low(grid.attribute)), attribute))
            count = grid.cell(position(F.col(high(grid.attribute)), attribute)) - first + 1
        else:
            first, count = F.lit(0).cast("bigint"), F.size(F.col(values(grid.attribute))).cast("bigint")
        most = CELLS_MAX if grid.knots else VALUES_MAX
        usable = (count > 0) & (count <= most)
        if attribute.null is not None:
            usable &= ~F.col(null(grid.attribute))
        columns += [first.alias(_first(grid)), F.when(usable, count).alias(_count(grid))]
    rows = rows.select("*", *columns)
    if not keys:
        return rows.select("*", F.lit(0).alias(CHOSEN), F.lit(1).cast("bigint").alias(CELLS))
    columns_before = rows.columns
    choices = []
    for number, key in enumerate(keys):
        total = F.lit(1).cast("bigint")
        for grid in key:
            total = total * F.col(_count(grid))
        # Ranges multiply; beside a list of values the list decides.
        most = CELLS_MAX if all(grid.knots for grid in key) else VALUES_MAX
        choices.append(F.struct(F.when(total <= most, total).otherwise(TOO_MANY), F.lit(number)))
    choices.append(F.struct(F.lit(TOO_MANY - 1).cast("bigint"), F.lit(len(keys))))
    best = F.array_min(F.array(*[choice.cast("struct<count: bigint, number: int>") for choice in choices]))
    rows = rows.select("*", best.alias(CHOSEN))
    cells = F.when(F.col(CHOSEN)["number"] < len(keys), F.col(CHOSEN)["count"]).otherwise(F.lit(1))
    return rows.select(*columns_before, F.col(CHOSEN)["number"].alias(CHOSEN), cells.alias(CELLS))


def written(rows: DataFrame, keys: Sequence[Key], space: Space, salts: Mapping[int, int]) -> DataFrame:
    """Subscriptions, once for each cell."""
    kept = [name for name in rows.columns if not name.startswith("__thatch_values")]
    rows = keyed(rows, keys, space)
    cells = [f"__thatch_cell{place}" for place in range(max((len(key) for key in keys), default=0))]
    for place, cell in enumerate(cells):
        touched = F.array(F.lit(0).cast("bigint"))
        for number, key in enumerate(keys):
            if place < len(key):
                touched = F.when(F.col(CHOSEN) == number, _touched(key[place])).otherwise(touched)
        rows = rows.select("*", F.explode(touched).alias(cell))
    rows = rows.select(*kept, code(F.col(CHOSEN), [F.col(cell) for cell in cells]).alias(CODE))
    if salts:
        rows = rows.select("*", F.explode(F.sequence(F.lit(0), _salt_count(salts) - 1)).alias(SALT))
    return rows


def _touched(grid: Grid) -> Column:
    """The cells of one attribute that a subscription touches."""
    if grid.knots:
        first = F.col(_first(grid))
        return F.sequence(first, first + F.col(_count(grid)) - 1)
    return F.array_distinct(F.transform(F.col(values(grid.attribute)), hashed))


def _salt_count(salts: Mapping[int, int]) -> Column:
    count = F.lit(1)
    for number, salt in salts.items():
        count = F.when(F.col(CODE) == number, F.lit(salt)).otherwise(count)
    return count


def match_native(
    events: DataFrame,
    attributes: Sequence[str],
    subscriptions: Subscriptions,
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
        coded = coded.select("*", F.pmod(F.monotonically_increasing_id(), _salt_count(salts)).cast("int").alias(SALT))
        on.append(SALT)
    rows = written(spread(typed(subscriptions, skip), space), keys, space, salts)
    pairs = coded.join(F.broadcast(rows) if broadcast else rows.hint("shuffle_hash"), on)
    conditions = [within_bounds(index, space.attributes[index], event[index]) for index in constrained(subscriptions)]
    if subscriptions.where is not None:
        conditions.append(within_terms(space, event))
    return pairs.where(together(conditions)).select(*map(name_sql, events.columns), ID)


def _coded(
    events: DataFrame,
    attributes: Sequence[str],
    event: Sequence[Column],
    space: Space,
    keys: Sequence[Key],
    rest: bool,
    skip: bool,
) -> DataFrame:
    """Events, once for each key, with the code of their cell. Bad values are refused here, or the row is left out."""
    wrong = F.coalesce(
        F.lit(None).cast("string"), *[wrong_value(n, a) for n, a in zip(attributes, space.attributes, strict=True)]
    )
    grids = _grids(keys)
    cells = {}
    for grid in grids:
        value = event[grid.attribute]
        if grid.knots:
            cells[grid.attribute] = grid.cell(position(value, space.attributes[grid.attribute]))
        else:
            cells[grid.attribute] = F.when(value.isNotNull(), hashed(value))
    named = [cell.alias(f"__thatch_cell{attribute}") for attribute, cell in cells.items()]
    rows = events.select("*", *named)
    codes = [
        code(F.lit(number), [F.col(f"__thatch_cell{grid.attribute}") for grid in key])
        for number, key in enumerate(keys)
    ]
    if rest:
        codes.append(code(F.lit(len(keys)), ()))
    found = F.when(wrong.isNull(), codes[0] if len(codes) == 1 else F.array(*codes))
    if not skip:
        # Spark may drop a row before it computes what the row would have been refused for: an inferred `IS NOT NULL`
        # moves below the projection. Past an expression that is not deterministic nothing moves.
        refused = F.raise_error(wrong).cast("bigint" if len(codes) == 1 else "array<bigint>")
        found = F.when(F.spark_partition_id() >= 0, found.otherwise(refused))
    rows = rows.select(*map(name_sql, events.columns), found.alias(CODE))
    return rows if len(codes) == 1 else rows.withColumn(CODE, F.explode(CODE))
