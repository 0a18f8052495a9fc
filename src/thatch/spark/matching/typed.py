"""Subscriptions as rows that the JVM can compare with events: what the strategy `native` joins.

A row is one subscription: per attribute a lower and an upper bound as values and whether NULL is wanted, the box around
its region; the single values that its region is made of, where the attribute is hashed (cells.py); and its terms, where
the region is not that box exactly. A watchlist has its ranges in the row once, and `spread` makes a row of each: in the
terms, every cell of the watchlist would carry all of it.

Upper bounds of strings are not part of the range: the strings up to 'x' are those below 'x\\0'.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from thatch.errors import CallerError
from thatch.matching.entries import boxed
from thatch.region.intervals import Intervals
from thatch.region.region import Region
from thatch.region.term import Term
from thatch.space.attribute import Attribute
from thatch.space.axis import BoolAxis, EnumAxis, StringAxis
from thatch.space.event_columns import ID
from thatch.space.space import Space
from thatch.spark.clauses import compiled, wrong_clauses
from thatch.spark.failures import map_batches
from thatch.spark.matching.cells import VALUES_MAX, is_hashed
from thatch.spark.tables import SubscriptionFrame, ends_sql, fields, spark_type, value_of
from thatch.spark.text import case_sql, column_sql, name_sql


def low_column(index: int) -> str:
    return f"__thatch_low{index}"


def high_column(index: int) -> str:
    return f"__thatch_high{index}"


def null(index: int) -> str:
    return f"__thatch_null{index}"


def values(index: int) -> str:
    return f"__thatch_values{index}"


def ranges(index: int) -> str:
    return f"__thatch_ranges{index}"


TERMS, PLACE = "__thatch_terms", "__thatch_place"
TERM, RANGE, BALL = "__thatch_term", "__thatch_range", "__thatch_ball"  # what functions of them are given
LISTED_MAX = 64  # values of a row with terms: each of their cells carries the terms


def is_text(attribute: Attribute) -> bool:
    return isinstance(attribute.axis, StringAxis | EnumAxis)


def bounds_schema(space: Space) -> str:
    """Of the rows of `TypeClauses`, the id apart."""
    parts = []
    for index, attribute in enumerate(space.attributes):
        kind = spark_type(attribute)
        parts += [f"{low_column(index)} {kind}", f"{high_column(index)} {kind}", f"{null(index)} boolean"]
        parts.append(f"{ranges(index)} array<struct<low: {kind}, high: {kind}>>")
        if is_hashed(attribute):
            parts.append(f"{values(index)} array<{kind}>")
    sides = [
        f"r{index}: array<struct<low: {spark_type(a)}, high: {spark_type(a)}>>, n{index}: boolean"
        for index, a in enumerate(space.attributes)
    ]
    balls = "balls: array<struct<places: array<int>, centre: array<double>, radius: double>>"
    return ", ".join([*parts, f"{TERMS} array<struct<{', '.join(sides)}, {balls}>>"])


def typed(subscriptions: SubscriptionFrame, skip: bool) -> DataFrame:
    """The rows of all subscriptions. Those that no event can match may be missing."""
    frame, space = subscriptions.frame, subscriptions.space
    if subscriptions.where is not None:
        clauses = frame.select(F.col(name_sql(subscriptions.id)).alias(ID), name_sql(subscriptions.where))
        schema = StructType([clauses.schema[0], *fields(bounds_schema(space))])
        return map_batches(clauses, TypeClauses(space, schema, skip), schema)
    columns = [f"{column_sql(subscriptions.id)} AS {ID}"]
    for index in subscriptions.bounded:
        columns += _bounds(subscriptions, index)
    return frame.selectExpr(*columns)


def spread(rows: DataFrame, space: Space) -> DataFrame:
    """Rows with a list of ranges once for each of them, as plain bounds."""
    if ranges(0) not in rows.columns:
        return rows
    sizes = [f"CASE WHEN {ranges(at)} IS NOT NULL THEN size({ranges(at)}) END" for at in range(len(space))]
    rows = rows.selectExpr("*", f"explode(sequence(0, coalesce({', '.join(sizes)}, 1) - 1)) AS {PLACE}")
    columns = [ID]
    for index, attribute in enumerate(space.attributes):
        own = ranges(index)
        for side, name in (("low", low_column(index)), ("high", high_column(index))):
            ranged = (f"{own} IS NOT NULL", f"{own}[{PLACE}].{side}")
            columns.append(f"{case_sql(ranged, otherwise=name)} AS {name}")
        columns.append(null(index))
        if is_hashed(attribute):
            single = (f"{own} IS NOT NULL AND {values(index)} IS NOT NULL", f"array({own}[{PLACE}].low)")
            listed = (f"{own} IS NULL", values(index))
            columns.append(f"{case_sql(single, listed)} AS {values(index)}")
    return rows.selectExpr(*columns, TERMS)


def constrained(subscriptions: SubscriptionFrame) -> list[int]:
    """The attributes that rows have bounds of."""
    return subscriptions.bounded if subscriptions.where is None else list(range(len(subscriptions.space)))


def _bounds(subscriptions: SubscriptionFrame, index: int) -> list[str]:
    """The columns of one attribute, from typed columns."""
    attribute = subscriptions.space.attributes[index]
    least, most = (
        value_of((side[index],), attribute) if index in side else f"CAST(NULL AS {spark_type(attribute)})"
        for side in (subscriptions.low, subscriptions.high)
    )
    if is_text(attribute):
        columns = [f"coalesce({least}, '')", f"concat({most}, CAST(X'00' AS STRING))"]
    else:
        first, last = ends_sql(attribute, attribute.axis.first, attribute.axis.last)
        columns = [f"coalesce({least}, {first})", f"coalesce({most}, {last})"]
    names = [low_column(index), high_column(index), null(index)]
    columns.append(f"{least} IS NULL AND {most} IS NULL")
    if is_hashed(attribute):
        columns.append(case_sql((f"{least} = {most}", f"array({least})")))
        names.append(values(index))
    return [f"{column} AS {name}" for column, name in zip(columns, names, strict=True)]


def within_bounds(index: int, attribute: Attribute, value: str) -> str:
    """Whether an event's value lies within the box."""
    inside = _between(attribute, value, low_column(index), high_column(index))
    # Always true or false, never NULL: a filter would drop the row, which is right, but NOT and OR would not.
    return inside if attribute.null is None else f"coalesce({inside}, {null(index)})"


def _between(attribute: Attribute, value: str, least: str, most: str) -> str:
    if is_text(attribute):
        return f"{value} >= {least} AND ({most} IS NULL OR {value} < {most})"
    return f"{value} >= {least} AND {value} <= {most}"


def within_terms(space: Space, event: Sequence[str]) -> str:
    """Whether an event lies within one of the terms, where these are not just the box."""
    sides = [_in_side(attribute, index, event[index]) for index, attribute in enumerate(space.attributes)]
    # With quotes: a session may have EXISTS reserved.
    return f"{TERMS} IS NULL OR `exists`({TERMS}, {TERM} -> {' AND '.join([*sides, _in_balls(space, event)])})"


def _in_side(attribute: Attribute, index: int, value: str) -> str:
    own, in_range = f"{TERM}.r{index}", _between(attribute, value, f"{RANGE}.low", f"{RANGE}.high")
    wants_null = (f"{value} IS NULL", f"{TERM}.n{index}")
    return f"({own} IS NULL OR {case_sql(wants_null, otherwise=f'`exists`({own}, {RANGE} -> {in_range})')})"


def _in_balls(space: Space, event: Sequence[str]) -> str:
    numbers = [
        f"CAST({value if attribute.axis.is_number else 'NULL'} AS DOUBLE)"
        for attribute, value in zip(space.attributes, event, strict=True)
    ]
    place, centre, total, offset = (f"__thatch_{name}" for name in ("place", "centre", "total", "offset"))
    offsets = f"({place}, {centre}) -> array({', '.join(numbers)})[{place}] - {centre}"
    squares = (
        f"aggregate(zip_with({BALL}.places, {BALL}.centre, {offsets}), 0D,"
        f" ({total}, {offset}) -> {total} + {offset} * {offset})"
    )
    return f"forall({TERM}.balls, {BALL} -> coalesce({squares} <= {BALL}.radius * {BALL}.radius, FALSE))"


class TypeClauses:
    """In a worker: batches of ids and clauses to rows."""

    def __init__(self, space: Space, schema: StructType, skip: bool) -> None:
        self._space, self._schema, self._skip = space.to_json(), schema, skip

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = to_arrow_schema(self._schema, timezone="UTC")
        for batch in batches:
            space = Space.from_json(self._space)
            rows, regions, wrong = compiled(batch, space)
            if wrong and not self._skip:
                raise wrong_clauses(wrong)
            if batch.column(0).null_count:
                raise CallerError("a subscription has no id: the column 'id' holds NULL")
            full = [place for place, region in enumerate(regions) if not region.is_empty]
            ids = batch.column(0).take(pa.array([rows[place] for place in full], pa.int64()))
            made = [_row(regions[place], space) for place in full]
            columns = [pa.array([row[name] for row in made], schema.field(name).type) for name in schema.names[1:]]
            yield pa.record_batch([ids, *columns], schema=schema)


Range = tuple[Any, Any]


def _row(region: Region, space: Space) -> dict[str, Any]:
    terms = region.terms
    boxes = [box for box in (boxed(term, space) for term in terms) if box is not None]
    listed = _listed(terms, space)
    row: dict[str, Any] = {}
    exact = len(terms) == 1 and not terms[0].balls
    for index, attribute in enumerate(space.attributes):
        sides = [_side(term, index, attribute) for term in terms]
        found: list[Range] = []
        row[null(index)] = False
        if isinstance(attribute.axis, EnumAxis):  # whose order is not that of the strings
            for own, wants_null in (_ranges(side, attribute) for side in sides):
                found, row[null(index)] = sorted({*found, *own}), row[null(index)] or wants_null
        elif boxes:
            least, most = (pick(int(box[end][0, index]) for box in boxes) for end, pick in enumerate((min, max)))
            found, row[null(index)] = _ranges(Intervals.between(least, most), attribute)
        everything = _ranges(Intervals.between(attribute.low, attribute.last), attribute)[0]
        if isinstance(attribute.axis, EnumAxis) and len(found) == len(attribute.axis.values):
            found = [("", None)]
        row[low_column(index)] = found[0][0] if found else everything[0][0]
        row[high_column(index)] = found[-1][1] if found else everything[-1][1]
        row[ranges(index)] = None
        if index == listed:
            row[ranges(index)] = [{"low": a, "high": b} for a, b in _ranges(sides[0], attribute)[0]]
        else:
            exact &= len(found) == 1 and (isinstance(attribute.axis, EnumAxis) or len(sides[0]) == 1)
        if is_hashed(attribute):
            row[values(index)] = _single_values(sides, attribute)
    row[TERMS] = None if exact else [_term(term, space, listed) for term in terms]
    for index, attribute in enumerate(space.attributes):
        if is_hashed(attribute) and not exact and index != listed and len(row[values(index)] or ()) > LISTED_MAX:
            row[values(index)] = None
    return row


def _listed(terms: Sequence[Term], space: Space) -> int | None:
    """The attribute whose ranges get a row each: the one with the most, if there is one term."""
    if len(terms) != 1:
        return None
    sizes = {
        index: len(side)
        for index, side in terms[0].sides
        if len(side) > 1 and side.low != space.attributes[index].null and not _is_short(space.attributes[index])
    }
    return max(sizes, key=lambda index: sizes[index]) if sizes else None


def _is_short(attribute: Attribute) -> bool:
    """Whether an attribute has a handful of values, which need no list."""
    return isinstance(attribute.axis, EnumAxis | BoolAxis)


def _side(term: Term, index: int, attribute: Attribute) -> Intervals:
    for axis, side in term.sides:
        if axis == index:
            return side
    return Intervals.between(attribute.low, attribute.last)


def _term(term: Term, space: Space, listed: int | None) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for index, side in term.sides:
        if index != listed:
            own, row[f"n{index}"] = _ranges(side, space.attributes[index])
            row[f"r{index}"] = [{"low": least, "high": most} for least, most in own]
    row["balls"] = [{"places": b.attributes, "centre": b.centre, "radius": b.radius} for b in term.balls]
    return row


def _ranges(side: Intervals, attribute: Attribute) -> tuple[list[Range], bool]:
    """Intervals of coordinates as values, and whether NULL is among them."""
    axis, found, wants_null = attribute.axis, list[Range](), False
    ends = list(side.ends)
    for least, most in zip(ends[::2], ends[1::2], strict=True):
        if least == attribute.null:
            wants_null, least = True, attribute.first
            if most < least:
                continue
        if isinstance(axis, EnumAxis):
            found += [(value, value + "\0") for value in axis.values[least : most + 1]]
        elif isinstance(axis, StringAxis):
            found.append((axis.labels.cut_at(least), axis.labels.next_cut(most)))
        else:
            found.append(axis.ends(least, most))
    return found, wants_null


def _single_values(sides: Sequence[Intervals], attribute: Attribute) -> list[Any] | None:
    """The values that the sides consist of, if these can be listed."""
    found: dict[Any, None] = {}
    for side in sides:
        own, wants_null = _ranges(side, attribute)
        if wants_null or len(found) + len(own) > VALUES_MAX:
            return None
        for least, most in own:
            if is_text(attribute):
                if most != least + "\0":
                    return None
                found[least] = None
            else:  # a bool
                found.update(dict.fromkeys((least, most)))
    return list(found)
