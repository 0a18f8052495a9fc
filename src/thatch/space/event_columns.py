"""Which columns of a table of events hold the attributes of a space: found by their names in any case, and of a type
whose every value the attribute can hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

from thatch.errors import CallerError, closest, suggestion
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

ID = "subscription_id"  # the column of a result that says who wants the event
DETAIL = "subscription_"  # how further columns of subscriptions begin there
RESERVED = "__thatch_"  # how the columns begin that a join needs on the way
INTEGERS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}  # and their digits


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


def holds_in_memory(attribute: Attribute, kind: str) -> bool:
    """The same of a table in this process, where a time without a zone is in that of the space, and NULLs alone may
    have no type."""
    is_local_time = kind == "timestamp_ntz" and isinstance(attribute.axis, TimestampAxis)
    return is_local_time or kind == "void" or holds(attribute, kind)


def event_columns(schema: Any, space: Space, holds: Callable[[Attribute, str], bool] = holds) -> list[ColumnPath]:
    """The event's column for each attribute, or the field within one, in the order of the space."""
    columns = columns_of(schema)
    by_name: dict[str, SchemaColumn] = {}
    for column in columns:
        name = column.path[0]
        if name.lower() in by_name:
            first = by_name[name.lower()].path[0]
            raise CallerError(
                f"the events have the columns {first!r} and {name!r}, which case does not tell apart: rename one"
            )
        if name.lower().startswith(RESERVED):
            raise CallerError(f"the events have a column {name!r}: names with {RESERVED!r} are taken, rename it")
        by_name[name.lower()] = column
    found = [_found(by_name.get(a.path[0].lower()), a.path[1:]) for a in space]
    missing = [a.name for a, each in zip(space, found, strict=True) if each is None]
    if missing:
        marks = [mark for mark in ",;\t|" if len(columns) == 1 and mark in columns[0].path[0]]
        if marks:
            name = columns[0].path[0]
            raise CallerError(f"the events have one column only, {name!r}: is the --delimiter {marks[0]!r} meant?")
        raise CallerError(
            f"the events have no column {', '.join(map(repr, missing))}, which the space has as attribute; their "
            f"columns are {', '.join(repr(column.path[0]) for column in columns)}"
            f"{suggestion(missing[0], [column.path[0] for column in columns])}. Add it (a column of NULLs will do "
            "if the attribute is nullable), or leave the attribute out of the space"
        )
    if ID in by_name:
        name = by_name[ID].path[0]
        raise CallerError(f"the events have a column {name!r} already, where the result has its ids: rename it")
    held = [column for column in found if column is not None]
    for attribute, column in zip(space, held, strict=True):
        check_type(attribute, column.type, f"the events' column {'.'.join(column.path)!r}", holds)
    return [column.path for column in held]


def detail_names(names: Sequence[str], taken: Sequence[str]) -> list[str]:
    """What a result calls further columns of subscriptions, next to columns that it has.

    >>> detail_names(["owner"], ["price", "subscription_id"])
    ['subscription_owner']
    """
    known = {name.lower() for name in (*taken, ID)}
    found = [f"{DETAIL}{name}" for name in names]
    for name, own in zip(found, names, strict=True):
        if name.lower() in known:
            raise CallerError(
                f"there is a column {name!r} already, where the result has {own!r} of the subscriptions: rename one"
            )
    return found


def _found(column: SchemaColumn | None, fields: ColumnPath) -> SchemaColumn | None:
    for name in fields:
        within = [each for each in (column.fields if column else ()) if each.path[-1].lower() == name.lower()]
        column = within[0] if len(within) == 1 else None
    return column


def check_type(attribute: Attribute, kind: str, what: str, holds: Callable[[Attribute, str], bool] = holds) -> None:
    """Refuse a column, of events or of bounds, of which the attribute cannot hold every value."""
    if not holds(attribute, kind):
        hint = {"float": "cast it to double", "timestamp_ntz": "cast it to timestamp"}.get(kind, "cast it")
        raise CallerError(f"{what} is {kind}, the attribute {attribute.name!r} is {attribute.axis.sql}: {hint}")


def bound_column(by_name: Mapping[str, str], side: str, attribute: str) -> str | None:
    """The column that has an attribute's `low` or `high` bounds, of columns by their names in lower case.

    >>> bound_column({"low_price": "Low_Price"}, "low", "price"), bound_column({"id": "id"}, "low", "price")
    ('Low_Price', None)
    """
    found = [by_name[name] for name in bound_names(side, attribute) if name in by_name]
    if len(found) > 1:
        raise CallerError(f"the subscriptions have both {found[0]!r} and {found[1]!r}: which one is meant?")
    return found[0] if found else None


def check_bounds(names: Iterable[str], used: Container[str], space: Space) -> None:
    """Refuse a column that looks like bounds of an attribute which there is not: it would constrain nothing."""
    for name in names:
        bound = re.fullmatch(r"(?:low|high)_(.+)|(.+)_(?:low|high)", name.lower())
        if bound and name not in used:
            close = closest(bound[1] or bound[2], [a.name for a in space])
            if close:
                raise CallerError(
                    f"the subscriptions' column {name!r} looks like bounds of {close!r}, which is called otherwise: "
                    "rename it"
                )


def bound_names(side: str, attribute: str) -> tuple[str, str]:
    """What columns of bounds may be called, in lower case."""
    return f"{side}_{attribute.lower()}", f"{attribute.lower()}_{side}"


def bounded_columns(schema: Any, by_name: Mapping[str, str]) -> set[ColumnPath]:
    """The columns of events that subscriptions have bounds for."""
    sides = ("low", "high")
    return {
        column.path
        for column in columns_of(schema)
        if any(name in by_name for side in sides for name in bound_names(side, column.path[0]))
    }
