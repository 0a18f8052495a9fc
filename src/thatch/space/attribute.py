"""Attributes: a named axis with a domain and, if it is nullable, a place for NULL."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from thatch.errors import EventError, SpaceError
from thatch.space.axis import (
    INT64_MIN,
    Axis,
    Coordinates,
    DateAxis,
    EnumAxis,
    IntAxis,
    TimestampAxis,
    TimestampNtzAxis,
    space_quoted,
)

if TYPE_CHECKING:
    import pyarrow as pa


MISSING: Any = object()


class Attribute:
    """A named axis with a domain and, if nullable, a place for NULL.

    `first` and `last` bound the domain; `null` is `first - 1` or None; `low` is the least coordinate of all, NULL
    included. `path` are the names of a column and of the fields in it, for a field within a column; else its name.
    """

    __slots__ = ("axis", "first", "has_own_domain", "last", "low", "name", "null", "nullable", "path")

    def __init__(
        self,
        name: str,
        axis: Axis,
        nullable: bool = True,
        first: int | None = None,
        last: int | None = None,
        path: tuple[str, ...] | None = None,
    ) -> None:
        if not name or any(0xD800 <= ord(character) <= 0xDFFF for character in name):
            raise SpaceError(f"an attribute needs a name of valid Unicode, not {name!r}")
        self.name = name
        self.path = path or (name,)
        if ".".join(self.path) != name:
            raise SpaceError(f"attribute {name!r}: its path {self.path!r} is not its name")
        self.axis = axis
        self.nullable = nullable
        # The full range of a nullable int leaves no coordinate for NULL: it takes that of the least int.
        least = INT64_MIN + 1 if nullable and axis.first == INT64_MIN else axis.first
        self.first = least if first is None else first
        self.last = axis.last if last is None else last
        if not axis.first <= self.first <= self.last <= axis.last:
            raise SpaceError(f"attribute {name!r}: the domain of {axis.sql} is empty or beyond the type")
        if self.first < least:
            raise SpaceError(f"attribute {name!r}: a nullable int starts at {least}; make it `not null`")
        self.has_own_domain = axis.is_narrowed or (self.first, self.last) != (least, axis.last)
        self.null = self.first - 1 if nullable else None
        self.low = self.first if self.null is None else self.null

    @property
    def domain(self) -> tuple[str, str]:
        """The least and the greatest value, as a domain is written."""
        return self.axis.ends_text(self.first, self.last)

    def extends(self, other: Attribute) -> bool:
        """Whether this is the other one, or an enum with more values at its end."""
        same = (self.path, self.nullable, self.first) == (other.path, other.nullable, other.first)
        if isinstance(self.axis, EnumAxis) and isinstance(other.axis, EnumAxis):
            return same and self.axis.values[: len(other.axis.values)] == other.axis.values
        return same and (self.axis.sql, self.last, self._own_domain) == (other.axis.sql, other.last, other._own_domain)

    @property
    def _own_domain(self) -> tuple[str, str] | None:
        return self.domain if self.has_own_domain else None

    def encode(self, value: Any) -> int:
        """The coordinate of a value; None and MISSING are NULL."""
        if value is None or value is MISSING:
            if self.null is None:
                what = "missing" if value is MISSING else "NULL"
                raise EventError(self.name, None, f"is refused: the attribute is not null and the value is {what}")
            return self.null
        try:
            coordinate = self.axis.encode(value)
        except ValueError as error:
            if is_not_a_time(value):
                return self.encode(None)
            raise EventError(self.name, value, str(error)) from None
        if not self.first <= coordinate <= self.last:
            raise EventError(self.name, value, self._outside(coordinate))
        return coordinate

    def _outside(self, coordinate: int) -> str:
        if coordinate == INT64_MIN and isinstance(self.axis, IntAxis) and not self.has_own_domain:
            return "is refused: NULL has its place in a nullable int; declare the attribute `not null`"
        if self.axis.has_domain:
            return f"is outside the domain {'..'.join(self.domain)} of {self.axis.sql}"
        return f"is outside {self.axis.sql}"

    def decode(self, coordinate: int) -> Any:
        """The value of a coordinate; None for NULL."""
        if coordinate == self.null:
            return None
        if not self.first <= coordinate <= self.last:
            raise EventError(self.name, coordinate, "is no coordinate of it")
        return self.axis.decode(coordinate)

    def encode_array(self, array: Any, rows: int) -> Coordinates:
        """The coordinates of a whole column: Arrow, NumPy, a list, or MISSING for `rows` missing values."""
        if array is MISSING:
            return np.full(rows, self.encode(MISSING) if rows else self.low, np.int64)
        if (
            isinstance(array, np.ndarray)
            and array.dtype == np.int64
            and array.ndim == 1
            and isinstance(self.axis, IntAxis)
            and self._all_within(array)
        ):
            return array  # already what is wanted: no copy
        column = arrow_column(array)
        coordinates = None if column is None else self._encode_fast(column)
        if coordinates is not None:
            return coordinates
        return np.array([self._encode_at(row, value) for row, value in enumerate(array)], np.int64)

    def _encode_fast(self, column: pa.Array) -> Coordinates | None:
        import pyarrow as pa

        if pa.types.is_null(column.type) or (column.null_count and self.null is None):
            return None
        try:
            coordinates = self.axis.encode_array(column)
        except pa.ArrowException:
            return None
        if coordinates is None:
            return None
        if column.null_count:
            is_null = column.is_null().to_numpy(zero_copy_only=False)
            coordinates = np.where(is_null, self.first, coordinates)
            if not self._all_within(coordinates):
                return None
            coordinates[is_null] = self.low
            return coordinates
        return coordinates if self._all_within(coordinates) else None

    def _all_within(self, coordinates: Coordinates) -> bool:
        if not len(coordinates):
            return True
        return bool(coordinates.min() >= self.first) and bool(coordinates.max() <= self.last)

    def _encode_at(self, row: int, value: Any) -> int:
        try:
            return self.encode(value.as_py() if hasattr(value, "as_py") else value)  # an Arrow scalar
        except EventError as error:
            raise error.at_row(row) from None
        except (ValueError, OverflowError) as error:  # years beyond 9999, nanoseconds
            raw = getattr(value, "value", value)  # the days or ticks of an Arrow scalar
            raise EventError(self.name, raw, f"has no value in Python: {error}", row) from None

    def __str__(self) -> str:
        names = (
            part if re.fullmatch(r"[A-Za-z_]\w*", part, re.ASCII) else "`" + part.replace("`", "``") + "`"
            for part in self.path
        )
        parts = [".".join(names), self.axis.sql] + ([] if self.nullable else ["not null"])
        if self.has_own_domain:
            quote = space_quoted if isinstance(self.axis, DateAxis | TimestampAxis | TimestampNtzAxis) else str
            parts.append("..".join(map(quote, self.domain)))
        return " ".join(parts)


def arrow_column(array: Any) -> pa.Array | None:
    """One contiguous Arrow array, NaN still a value; None for what is to be read value by value: a list, whose mixed
    types Arrow would silently unite, and NumPy arrays that Arrow does not take."""
    import pyarrow as pa

    if isinstance(array, pa.ChunkedArray):
        return array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    if isinstance(array, pa.Array):
        return array
    if isinstance(array, np.ndarray) and array.dtype.kind in "biufMU" and array.ndim == 1:
        try:
            return pa.array(array, from_pandas=False)
        except (pa.ArrowException, ValueError):
            return None
    return None


def is_not_a_time(value: Any) -> bool:
    """NumPy's and pandas' NaT, which are NULL in a column."""
    if isinstance(value, np.datetime64):
        return bool(np.isnat(value))
    return type(value).__name__ == "NaTType"
