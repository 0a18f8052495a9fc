"""DataFrames of events and of subscriptions: what they must look like, and what is wrong with them if they do not.

Events have a column for each attribute of the space, found by its name in any case, of a type whose every value the
attribute can hold. Subscriptions are `id` and `where`; or `id` and bounds as typed columns, `low_price` and
`high_price` (`price_low`, `price_high`) for an attribute `price`. Both null: unconstrained. One null: unbounded on
that side, and not null.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StructField, StructType

from thatch.errors import CallerError
from thatch.space.attribute import Attribute
from thatch.space.axis import (
    BoolAxis,
    DateAxis,
    EnumAxis,
    IntAxis,
    StringAxis,
    TimestampAxis,
    TimestampNtzAxis,
)
from thatch.space.decimals import DecimalAxis
from thatch.space.floating import DoubleAxis, FloatAxis
from thatch.space.schemas import ColumnPath, SchemaColumn, columns_of
from thatch.space.space import Space
from thatch.spark.text import case_sql, path_sql, text_sql

ID = "subscription_id"
RESERVED = "__thatch_"  # how the columns begin that a join needs on the way


# Sessions and columns


def session_of(frame: DataFrame) -> SparkSession:
    session = frame.sparkSession
    if not hasattr(session, "_jsparkSession"):
        raise CallerError(
            "thatch.spark needs a classic Spark session; over Spark Connect there is no way to an executor"
        )
    return session


def check_time_zone(session: SparkSession, space: Space) -> None:
    zone = str(session.conf.get("spark.sql.session.timeZone"))
    if zone != space.time_zone and {zone, space.time_zone} - UTC_NAMES:
        raise CallerError(
            f"the session's time zone is {zone}, that of the space {space.time_zone}: the same clause would mean two "
            f"things. Set spark.sql.session.timeZone to {space.time_zone}, or give the space the session's time zone"
        )


def fields(ddl: str) -> list[StructField]:
    """Fields written as `name type, …`."""
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    return schema.fields


TIMES = (DateAxis, TimestampAxis, TimestampNtzAxis)  # Spark's go beyond the years that ours have
UTC_NAMES = {"UTC", "Etc/UTC", "GMT", "Etc/GMT", "Z", "+00:00", "UTC+0", "GMT+0"}


def event_columns(schema: StructType, space: Space) -> list[ColumnPath]:
    """The event's column for each attribute, or the field within one, in the order of the space."""
    by_name: dict[str, str] = {}
    for name in schema.names:
        if name.lower() in by_name:
            raise CallerError(
                f"the events have the columns {by_name[name.lower()]!r} and {name!r}, which Spark does not tell apart: "
                "rename one"
            )
        if name.lower().startswith(RESERVED):
            raise CallerError(f"the events have a column {name!r}: names with {RESERVED!r} are taken, rename it")
        by_name[name.lower()] = name
    columns = {column.path[0].lower(): column for column in columns_of(schema)}
    found = [_found(columns.get(a.path[0].lower()), a.path[1:]) for a in space]
    missing = [a.name for a, column in zip(space, found, strict=True) if column is None]
    if missing:
        raise CallerError(
            f"the events have no column {', '.join(map(repr, missing))}, which the space has as attribute; their "
            f"columns are {', '.join(map(repr, schema.names))}. Add it (a column of NULLs will do if the attribute is "
            "nullable), or leave the attribute out of the space"
        )
    if ID in by_name:
        raise CallerError(f"the events have a column {by_name[ID]!r} already, where the result has its ids: rename it")
    held = [column for column in found if column is not None]
    for attribute, column in zip(space, held, strict=True):
        name = ".".join(column.path)
        _check_type(attribute, column.type, f"the events' column {name!r}")
    return [column.path for column in held]


def _found(column: SchemaColumn | None, fields: ColumnPath) -> SchemaColumn | None:
    for name in fields:
        within = [each for each in (column.fields if column else ()) if each.path[-1].lower() == name.lower()]
        column = within[0] if len(within) == 1 else None
    return column


def _check_type(attribute: Attribute, kind: str, what: str) -> None:
    if not holds(attribute, kind):
        hint = {"float": "cast it to double", "timestamp_ntz": "cast it to timestamp"}.get(kind, "cast it")
        raise CallerError(f"{what} is {kind}, the attribute {attribute.name!r} is {attribute.axis.sql}: {hint}")


def holds(attribute: Attribute, kind: str) -> bool:
    """Whether every value of a column of this type, as Spark writes it, has its coordinate, domains aside."""
    axis = attribute.axis
    if isinstance(axis, IntAxis):
        return kind in INTEGERS
    if isinstance(axis, DoubleAxis):
        return kind in ("double", "float", "tinyint", "smallint", "int")
    if isinstance(axis, FloatAxis):
        return kind in ("float", "tinyint", "smallint")
    if isinstance(axis, DecimalAxis):
        if kind in INTEGERS:
            return axis.precision - axis.scale >= INTEGERS[kind]
        own = re.fullmatch(r"decimal\((\d+),(\d+)\)", kind)
        if own is None:
            return False
        precision, scale = int(own[1]), int(own[2])
        return scale <= axis.scale and precision - scale <= axis.precision - axis.scale
    if isinstance(axis, StringAxis | EnumAxis):
        return kind == "string"
    wanted = {BoolAxis: "boolean", DateAxis: "date", TimestampAxis: "timestamp", TimestampNtzAxis: "timestamp_ntz"}
    return any(isinstance(axis, each) and kind == own for each, own in wanted.items())


INTEGERS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}  # and their digits


def spark_type(attribute: Attribute) -> str:
    """The SQL type in which Spark holds an attribute's values."""
    axis = attribute.axis
    if isinstance(axis, IntAxis):
        return "bigint"
    if isinstance(axis, StringAxis | EnumAxis):
        return "string"
    return "boolean" if isinstance(axis, BoolAxis) else axis.sql


def value_of(column: ColumnPath, attribute: Attribute) -> str:
    """A column in its attribute's type."""
    return f"CAST({path_sql(column)} AS {spark_type(attribute)})"


def ends_sql(attribute: Attribute, low: int, high: int) -> list[str]:
    """The numbers or times that an interval ends with, in its attribute's type."""
    return [f"CAST({end} AS {spark_type(attribute)})" for end in attribute.axis.ends_sql(low, high)]


def wrong_event(columns: Sequence[ColumnPath], space: Space) -> str:
    """What is wrong with the first value of an event that is not allowed, or NULL."""
    found = [_wrong_value(name, attribute) for name, attribute in zip(columns, space.attributes, strict=True)]
    return f"coalesce({', '.join(['CAST(NULL AS STRING)', *filter(None, found)])})"


def _wrong_value(column: ColumnPath, attribute: Attribute) -> str | None:
    """What is wrong with one value; None if every value is allowed."""
    axis, value, rules = attribute.axis, value_of(column, attribute), []
    place = f"attribute {attribute.name!r}: "
    if attribute.null is None:
        message = f"{place}is refused: the attribute is not null and the value is NULL"
        rules.append((f"{value} IS NULL", text_sql(message)))
    if isinstance(axis, EnumAxis):
        message = f"concat({text_sql(place)}, {value}, {text_sql(f' is not a value of {axis.sql}')})"
        rules.append((f"{value} NOT IN ({', '.join(map(text_sql, axis.values))})", message))
    elif attribute.has_own_domain or attribute.first != axis.first or isinstance(axis, TIMES):
        # Spark's dates and times go beyond the years 1 to 9999; a nullable int has one value less than Spark's.
        low, high = ends_sql(attribute, attribute.first, attribute.last)
        rule = f" is outside the domain {'..'.join(attribute.domain)} of {axis.sql}"
        message = f"concat({text_sql(place)}, CAST({value} AS STRING), {text_sql(rule)})"
        rules.append((f"{value} < {low} OR {value} > {high}", message))
    return case_sql(*rules) if rules else None


# Subscriptions


@dataclass(frozen=True)
class SubscriptionFrame:
    """A DataFrame of subscriptions, looked at but not read."""

    frame: DataFrame
    space: Space
    id: str
    where: str | None = None  # the column of clauses
    low: Mapping[int, str] = field(default_factory=dict)  # or those of bounds, by attribute
    high: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, frame: DataFrame, space: Space) -> SubscriptionFrame:
        by_name = {name.lower(): name for name in frame.columns}
        if len(by_name) < len(frame.columns):
            raise CallerError(f"two columns of the subscriptions have one name: {', '.join(map(repr, frame.columns))}")
        if "id" not in by_name:
            raise CallerError(
                f"the subscriptions have no column 'id'; their columns are {', '.join(map(repr, frame.columns))}"
            )
        kind = frame.schema[by_name["id"]].dataType
        if kind.simpleString() not in ("string", *INTEGERS):
            raise CallerError(f"ids are strings or integers, the column 'id' is {kind.simpleString()}")
        low, high = _bounds(by_name, "low", frame, space), _bounds(by_name, "high", frame, space)
        if ("where" in by_name) == bool(low or high):
            raise CallerError(
                "subscriptions have either a column 'where' of clauses, or columns of bounds like 'low_price' and "
                f"'high_price' for attributes of the space; these have {', '.join(map(repr, frame.columns))}"
            )
        if "where" not in by_name:
            return cls(frame, space, by_name["id"], None, low, high)
        if frame.schema[by_name["where"]].dataType.typeName() != "string":
            raise CallerError("the column 'where' of the subscriptions must be a string: a clause")
        return cls(frame, space, by_name["id"], by_name["where"])

    @property
    def id_type(self) -> DataType:
        return self.frame.schema[self.id].dataType

    @property
    def bounded(self) -> list[int]:
        """The attributes that have bounds."""
        return sorted(self.low.keys() | self.high.keys())


def _bounds(by_name: Mapping[str, str], side: str, frame: DataFrame, space: Space) -> dict[int, str]:
    found: dict[int, str] = {}
    for index, attribute in enumerate(space.attributes):
        name = attribute.name.lower()
        columns = [by_name[each] for each in (f"{side}_{name}", f"{name}_{side}") if each in by_name]
        if len(columns) > 1:
            raise CallerError(f"the subscriptions have both {columns[0]!r} and {columns[1]!r}: which one is meant?")
        if columns:
            _check_type(
                attribute, frame.schema[columns[0]].dataType.simpleString(), f"the subscriptions' column {columns[0]!r}"
            )
            found[index] = columns[0]
    return found
