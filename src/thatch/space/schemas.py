"""Attributes from the schemas of tables, Arrow's and Spark's: all columns, or those that somebody mentions.

A column's type is what Spark calls it, also of an Arrow table: the same Parquet file gives the same attributes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from thatch.errors import SpaceError
from thatch.space.attribute import Attribute
from thatch.space.axis import (
    Axis,
    BoolAxis,
    DateAxis,
    IntAxis,
    StringAxis,
    TimestampAxis,
    TimestampNtzAxis,
)
from thatch.space.decimals import DIGITS_MAX, decimal_axis
from thatch.space.floating import DoubleAxis, FloatAxis

ColumnPath = tuple[str, ...]  # of a column: its name, and those of fields within it

INTEGER_BITS = {"tinyint": 8, "smallint": 16, "int": 32}
HINTS = {
    "decimal": "decimals go to 38 digits: cast it to a narrower one",
    "string": "only the collation UTF8_BINARY is ordered by bytes",
    "struct": "name one of its fields, like {name}.{field}",
}


class SchemaColumn(NamedTuple):
    """A column of a table, or a field within one."""

    path: ColumnPath
    type: str  # as Spark writes it
    nullable: bool
    fields: tuple[SchemaColumn, ...] = ()  # of a struct


def columns_of(schema: Any) -> list[SchemaColumn]:
    """The columns of a Spark `StructType` or of an Arrow schema; also of a table that has one."""
    if hasattr(schema, "schema") and not hasattr(schema, "fields"):
        schema = schema.schema
    if callable(getattr(schema, "fieldNames", None)):  # a StructType; PySpark need not be imported
        return [_of_spark(field, ()) for field in schema.fields]
    import pyarrow as pa

    if isinstance(schema, pa.Schema):
        return [_of_arrow(field, (), False) for field in schema]
    raise SpaceError(f"a schema is Arrow's or Spark's, not {type(schema).__name__}")


def attributes_of_schema(
    columns: Sequence[SchemaColumn], zone: ZoneInfo, wanted: Iterable[ColumnPath] | None = None
) -> list[Attribute]:
    """An attribute for each column, or for each that is wanted and there is, in the order of the table. What cannot be
    an attribute is refused, all of it at once."""
    attributes, refused = usable_attributes(columns, zone, wanted)
    if refused:
        raise SpaceError("\n".join(refused.values()))
    return attributes


def usable_attributes(
    columns: Sequence[SchemaColumn], zone: ZoneInfo, wanted: Iterable[ColumnPath] | None = None
) -> tuple[list[Attribute], dict[str, str]]:
    """The same; what cannot be an attribute is left out, and comes back by name with the reason."""
    attributes, refused = [], {}
    for column in list(columns) if wanted is None else list(_chosen(columns, wanted)):
        try:
            attributes.append(attribute_of(column, zone))
        except SpaceError as error:
            refused[".".join(column.path)] = str(error)
    return attributes, refused


def _chosen(columns: Sequence[SchemaColumn], wanted: Iterable[ColumnPath]) -> Iterator[SchemaColumn]:
    folded = {tuple(part.lower() for part in path) for path in wanted}
    lengths = max((len(path) for path in folded), default=0)

    def below(column: SchemaColumn) -> Iterator[SchemaColumn]:
        if tuple(part.lower() for part in column.path) in folded:
            yield column
        if len(column.path) < lengths:
            for field in column.fields:
                yield from below(field)

    for each in columns:
        yield from below(each)


def attribute_of(column: SchemaColumn, zone: ZoneInfo) -> Attribute:
    name, kind = ".".join(column.path), column.type
    path = column.path if len(column.path) > 1 else None
    if kind in INTEGER_BITS:
        last = 2 ** (INTEGER_BITS[kind] - 1) - 1
        return Attribute(name, IntAxis(), column.nullable, -last - 1, last, path)
    axis = _axis(kind, zone)
    if axis is None:
        hint = HINTS.get(re.split(r"\W", kind, maxsplit=1)[0], "leave the column out, or cast it to a supported type")
        field = column.fields[0].path[-1] if column.fields else "field"
        raise SpaceError(f"column {name!r}: {kind} cannot be held exactly; {hint.format(name=name, field=field)}")
    return Attribute(name, axis, column.nullable, path=path)


def _axis(kind: str, zone: ZoneInfo) -> Axis | None:
    decimal = re.fullmatch(r"decimal\((\d+),(\d+)\)", kind)
    if decimal is not None:
        precision, scale = int(decimal[1]), int(decimal[2])
        return decimal_axis(precision, scale) if precision <= DIGITS_MAX else None
    plain: dict[str, Axis] = {
        "bigint": IntAxis(),
        "boolean": BoolAxis(),
        "double": DoubleAxis(),
        "float": FloatAxis(),
        "string": StringAxis(),
        "date": DateAxis(zone),
        "timestamp": TimestampAxis(zone),
        "timestamp_ntz": TimestampNtzAxis(zone),
    }
    return plain.get(kind)


def _of_spark(field: Any, above: ColumnPath, nullable: bool = False) -> SchemaColumn:
    path, kind = (*above, field.name), field.dataType
    nullable = nullable or field.nullable
    fields: tuple[SchemaColumn, ...] = ()
    if kind.typeName() == "struct":
        fields = tuple(_of_spark(each, path, nullable) for each in kind.fields)
    return SchemaColumn(path, kind.simpleString(), nullable, fields)


def _of_arrow(field: Any, above: ColumnPath, nullable: bool) -> SchemaColumn:
    import pyarrow as pa

    path, nullable = (*above, field.name), nullable or field.nullable
    fields: tuple[SchemaColumn, ...] = ()
    if pa.types.is_struct(field.type):
        fields = tuple(_of_arrow(field.type.field(at), path, nullable) for at in range(field.type.num_fields))
    return SchemaColumn(path, arrow_type_name(field.type), nullable, fields)


def arrow_type_name(kind: Any) -> str:
    """What Spark calls a type of Arrow's: of a Parquet file, what Spark reads there."""
    import pyarrow as pa

    types = pa.types
    if types.is_dictionary(kind):
        return arrow_type_name(kind.value_type)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "string"
    if types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if types.is_date(kind):
        return "date"
    named = {
        pa.bool_(): "boolean",
        pa.int8(): "tinyint",
        pa.int16(): "smallint",
        pa.int32(): "int",
        pa.int64(): "bigint",
        pa.uint8(): "smallint",
        pa.uint16(): "int",
        pa.uint32(): "bigint",
        pa.uint64(): "decimal(20,0)",
        pa.float16(): "float",
        pa.float32(): "float",
        pa.float64(): "double",
        pa.null(): "void",
    }
    return named.get(kind) or ("struct" if types.is_struct(kind) else str(kind))
