"""DataFrames of events and of subscriptions: what they must look like, and what is wrong with them if they do not.

Events have a column for each attribute of the space (space/event_columns.py). Subscriptions are `id` and `where`; or
`id` and bounds as typed columns, `low_price` and `high_price` (`price_low`, `price_high`) for an attribute `price`.
Both null: unconstrained. One null: unbounded on that side, and not null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StructField, StructType

from thatch.errors import CallerError
from thatch.space.attribute import Attribute
from thatch.space.axis import BoolAxis, DateAxis, EnumAxis, IntAxis, StringAxis, TimestampAxis, TimestampNtzAxis
from thatch.space.event_columns import INTEGERS, bound_column, check_bounds, check_type
from thatch.space.schemas import ColumnPath
from thatch.space.space import Space
from thatch.spark.payload import EventProblem
from thatch.spark.text import case_sql, path_sql, text_sql

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
    return _first_problem(columns, space, lambda problem: problem.message)


def raised_event(columns: Sequence[ColumnPath], space: Space) -> str:
    """The same, as the text of an error that is raised for it: with its payload."""
    return _first_problem(columns, space, lambda problem: problem.carried)


def is_wrong_event(columns: Sequence[ColumnPath], space: Space) -> str:
    """Whether an event has a value that is not allowed; never NULL."""
    pairs = zip(columns, space.attributes, strict=True)
    broken = [(condition, "TRUE") for name, attribute in pairs for condition, _ in _problems(name, attribute)]
    return case_sql(*broken, otherwise="FALSE") if broken else "FALSE"


def _first_problem(columns: Sequence[ColumnPath], space: Space, text: Callable[[EventProblem], str]) -> str:
    found = ["CAST(NULL AS STRING)"]
    for name, attribute in zip(columns, space.attributes, strict=True):
        problems = _problems(name, attribute)
        if problems:
            found.append(case_sql(*((condition, text(problem)) for condition, problem in problems)))
    return f"coalesce({', '.join(found)})"


def _problems(column: ColumnPath, attribute: Attribute) -> list[tuple[str, EventProblem]]:
    """What may be wrong with a value, each with its condition; nothing if every value is allowed."""
    axis, value, problems = attribute.axis, value_of(column, attribute), []
    name, kind = attribute.name, spark_type(attribute)
    if attribute.null is None:
        rule = "is refused: the attribute is not null and the value is NULL"
        problems.append((f"{value} IS NULL", EventProblem(name, rule)))
    if isinstance(axis, EnumAxis):
        problem = EventProblem(name, f"is not a value of {axis.sql}", kind, value)
        problems.append((f"{value} NOT IN ({', '.join(map(text_sql, axis.values))})", problem))
    elif attribute.has_own_domain or attribute.first != axis.first or isinstance(axis, TIMES):
        # Spark's dates and times go beyond the years 1 to 9999; a nullable int has one value less than Spark's.
        low, high = ends_sql(attribute, attribute.first, attribute.last)
        rule = f"is outside the domain {'..'.join(attribute.domain)} of {axis.sql}"
        problems.append((f"{value} < {low} OR {value} > {high}", EventProblem(name, rule, kind, value)))
    return problems


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
            check_bounds(frame.columns, {*low.values(), *high.values()}, space)
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
        name = bound_column(by_name, side, attribute.name)
        if name is not None:
            kind = frame.schema[name].dataType.simpleString()
            check_type(attribute, kind, f"the subscriptions' column {name!r}")
            found[index] = name
    return found
