"""What an attribute type means: its values, in order and without loss, on one contiguous run of int64 coordinates.

Every coordinate of the run decodes to a value, so every comparison is a closed interval of integers, `<` is `<=`
the predecessor, and nothing needs an epsilon. `NULL` is not here: it belongs to the attribute (space.py).

An axis encodes one value at a time (`encode`, strict about types) and whole Arrow arrays (`encode_array`). The
array form may decline (None) what it cannot do exactly; the caller then goes value by value, which finds the
culprit. Both give the same coordinates: a property test holds them together.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, timedelta
from decimal import InvalidOperation
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from thatch.errors import shown
from thatch.space import times
from thatch.space.labels import FIRST, LAST, Labels

if TYPE_CHECKING:
    import pyarrow as pa

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
Coordinates = NDArray[np.int64]


class Axis:
    """One attribute type. `first` and `last` are the coordinates of its least and greatest value.

    A plain class, not an abstract one: `isinstance` of those is several times slower, and clauses ask it often.
    """

    sql: str
    first: int
    last: int
    has_domain = True  # may be narrowed, as in `0..1000`
    is_narrowed = False  # whether the axis itself ends where a domain does

    def encode(self, value: Any) -> int:
        """The coordinate of a value; ValueError with the broken rule, to be read after the value."""
        raise NotImplementedError

    def decode(self, coordinate: int) -> Any:
        """The value of a coordinate."""
        raise NotImplementedError

    def encode_array(self, array: pa.Array) -> Coordinates | None:
        """The coordinates of an array; anything at null slots; None if value by value is needed."""
        raise NotImplementedError

    def width(self, low: int, high: int) -> float:
        """How wide a closed interval is to a person: in values, not in coordinates."""
        raise NotImplementedError

    def sql_literal(self, coordinate: int) -> str:
        """The value of a coordinate as a literal of Spark SQL."""
        raise NotImplementedError

    def parse(self, text: str) -> int:
        """The coordinate of a value written in a domain, such as the 0 of `0..1000`."""
        raise ValueError(f"cannot bound a {self.sql}")

    def text(self, coordinate: int) -> str:
        """The inverse of `parse`."""
        return str(self.decode(coordinate))

    def read(self, text: str) -> Any:
        """The value that a text stands for, written as in a domain."""
        return self.decode(self.parse(text))

    def ends(self, low: int, high: int) -> tuple[Any, Any]:
        """The least and the greatest value of a closed interval."""
        return self.decode(low), self.decode(high)

    def ends_text(self, low: int, high: int) -> tuple[str, str]:
        """`ends` as texts that `parse` reads."""
        return self.text(low), self.text(high)

    def ends_sql(self, low: int, high: int) -> tuple[str, str]:
        """`ends` as literals of Spark SQL."""
        return self.sql_literal(low), self.sql_literal(high)

    def double(self, coordinate: int) -> float:
        """What Spark's cast to double makes of a value; correctly rounded (for `within`)."""
        raise ValueError(f"{self.sql} is not a number")

    def to_double(self, coordinates: Coordinates) -> NDArray[np.float64]:
        """`double` of many coordinates."""
        raise ValueError(f"{self.sql} is not a number")

    @property
    def is_number(self) -> bool:
        return False


class BoolAxis(Axis):
    sql, first, last, has_domain = "bool", 0, 1, False

    def encode(self, value: Any) -> int:
        if not isinstance(value, bool | np.bool_):
            raise ValueError("is not a bool")
        return int(value)

    def decode(self, coordinate: int) -> bool:
        return bool(coordinate)

    def encode_array(self, array: pa.Array) -> Coordinates | None:
        import pyarrow as pa

        if not pa.types.is_boolean(array.type):
            return None
        return numpy_of(array.cast(pa.int8())).astype(np.int64)

    def width(self, low: int, high: int) -> float:
        return float(high - low + 1)

    def sql_literal(self, coordinate: int) -> str:
        return "TRUE" if coordinate else "FALSE"


class IntAxis(Axis):
    sql, first, last = "int", INT64_MIN, INT64_MAX

    def encode(self, value: Any) -> int:
        return integer_of(value)

    def decode(self, coordinate: int) -> int:
        return int(coordinate)

    def encode_array(self, array: pa.Array) -> Coordinates | None:
        import pyarrow as pa

        if not pa.types.is_integer(array.type):
            return None
        return numpy_of(array.cast(pa.int64()))

    def width(self, low: int, high: int) -> float:
        return float(high - low + 1)

    def sql_literal(self, coordinate: int) -> str:
        return str(coordinate)

    def parse(self, text: str) -> int:
        return parsed(int, text, "an int")

    def double(self, coordinate: int) -> float:
        return float(coordinate)

    def to_double(self, coordinates: Coordinates) -> NDArray[np.float64]:
        return coordinates.astype(np.float64)

    @property
    def is_number(self) -> bool:
        return True


class DateAxis(Axis):
    """Days since 1970. The zone says at which instant a day begins, for comparisons with timestamps."""

    sql, first, last = "date", times.DAY_FIRST, times.DAY_LAST

    def __init__(self, zone: ZoneInfo) -> None:
        self.zone = zone

    def encode(self, value: Any) -> int:
        if isinstance(value, np.datetime64) and np.datetime_data(value.dtype)[0] == "D" and not np.isnat(value):
            return int(value.astype(np.int64)) * np.datetime_data(value.dtype)[1]
        if not isinstance(value, date) or isinstance(value, datetime):
            raise ValueError("is not a date")
        return value.toordinal() - times.EPOCH_ORDINAL

    def decode(self, coordinate: int) -> date:
        return date.fromordinal(int(coordinate) + times.EPOCH_ORDINAL)

    def encode_array(self, array: pa.Array) -> Coordinates | None:
        import pyarrow as pa

        if not pa.types.is_date(array.type):
            return None
        return numpy_of(array.cast(pa.date32()).cast(pa.int32())).astype(np.int64)

    def width(self, low: int, high: int) -> float:
        return float(high - low + 1)

    def sql_literal(self, coordinate: int) -> str:
        return f"DATE'{self.text(coordinate)}'"

    def parse(self, text: str) -> int:
        return times.days_of_text(text)

    def text(self, coordinate: int) -> str:
        return self.decode(coordinate).isoformat()


class TimestampAxis(Axis):
    """Microseconds since 1970 UTC. The zone is what a text or a datetime without one is read in."""

    sql = "timestamp"
    first = times.DAY_FIRST * times.MICROS_PER_DAY
    last = (times.DAY_LAST + 1) * times.MICROS_PER_DAY - 1

    def __init__(self, zone: ZoneInfo) -> None:
        self.zone = zone

    def encode(self, value: Any) -> int:
        if isinstance(value, np.datetime64) and not np.isnat(value):
            return times.micros_of_local(_micros(value), self.zone)
        if not isinstance(value, datetime) or value != value:  # pandas' NaT
            raise ValueError("is not a datetime")
        if getattr(value, "nanosecond", 0):  # a pandas Timestamp
            raise ValueError("is finer than a microsecond")
        if value.tzinfo is None:
            return times.micros_of_local(
                (value - times.EPOCH.replace(tzinfo=None)) // timedelta(microseconds=1), self.zone
            )
        return (value - times.EPOCH) // timedelta(microseconds=1)

    def decode(self, coordinate: int) -> datetime:
        return times.EPOCH + timedelta(microseconds=int(coordinate))

    def encode_array(self, array: pa.Array) -> Coordinates | None:
        import pyarrow as pa

        if not pa.types.is_timestamp(array.type) or (array.type.tz is None and self.zone.key != "UTC"):
            return None
        return numpy_of(array.cast(pa.timestamp("us", array.type.tz)).cast(pa.int64()))

    def width(self, low: int, high: int) -> float:
        return (high - low + 1) / times.MICROS_PER_SECOND

    def sql_literal(self, coordinate: int) -> str:
        return f"TIMESTAMP'{self.text(coordinate)}'"

    def parse(self, text: str) -> int:
        return times.micros_of_text(text, self.zone)

    def text(self, coordinate: int) -> str:
        return self.decode(coordinate).isoformat(sep=" ").replace("+00:00", "Z")


class TimestampNtzAxis(Axis):
    """Readings of a clock on a wall, in microseconds since 1970: a date and a time without a zone."""

    sql, first, last = "timestamp_ntz", TimestampAxis.first, TimestampAxis.last

    def __init__(self, zone: ZoneInfo) -> None:
        self.zone = zone

    def encode(self, value: Any) -> int:
        if isinstance(value, np.datetime64) and not np.isnat(value):
            return _micros(value)
        if not isinstance(value, datetime) or value != value:  # pandas' NaT
            raise ValueError("is not a datetime")
        if getattr(value, "nanosecond", 0):  # a pandas Timestamp
            raise ValueError("is finer than a microsecond")
        if value.tzinfo is not None:
            raise ValueError("has a time zone, which a timestamp_ntz has not")
        return (value - times.EPOCH.replace(tzinfo=None)) // timedelta(microseconds=1)

    def decode(self, coordinate: int) -> datetime:
        return times.EPOCH.replace(tzinfo=None) + timedelta(microseconds=int(coordinate))

    def encode_array(self, array: pa.Array) -> Coordinates | None:
        import pyarrow as pa

        if not pa.types.is_timestamp(array.type) or array.type.tz is not None:
            return None
        return numpy_of(array.cast(pa.timestamp("us")).cast(pa.int64()))

    def width(self, low: int, high: int) -> float:
        return (high - low + 1) / times.MICROS_PER_SECOND

    def sql_literal(self, coordinate: int) -> str:
        return quoted(self.text(coordinate))  # which Spark casts to the column's type

    def parse(self, text: str) -> int:
        return times.local_micros_of_text(text)

    def text(self, coordinate: int) -> str:
        return self.decode(coordinate).isoformat(sep=" ")


class EnumAxis(Axis):
    has_domain = False

    def __init__(self, values: Sequence[str]) -> None:
        if not values:
            raise ValueError("an enum needs at least one value")
        self.values = tuple(_text(value) for value in values)
        self._ordinal = {value: ordinal for ordinal, value in enumerate(self.values)}
        if len(self._ordinal) < len(self.values):
            twice = next(value for at, value in enumerate(self.values) if self._ordinal[value] != at)
            raise ValueError(f"an enum names each value once, and {shown(twice)} is there twice")
        self.sql = f"enum({', '.join(map(space_quoted, self.values))})"
        self.first, self.last = 0, len(self.values) - 1

    def encode(self, value: Any) -> int:
        ordinal = self._ordinal.get(value) if isinstance(value, str) else None
        if ordinal is None:
            raise ValueError(f"is not a value of {self.sql}")
        return ordinal

    def decode(self, coordinate: int) -> str:
        return self.values[coordinate]

    def encode_array(self, array: pa.Array) -> Coordinates | None:
        return _by_distinct_value(array, lambda texts: [self._ordinal[text] for text in texts])

    def ordinals(self, holds: Callable[[str], bool]) -> list[int]:
        """The ordinals of the values for which a comparison holds, as Spark would compare the strings."""
        return [ordinal for ordinal, value in enumerate(self.values) if holds(value)]

    def width(self, low: int, high: int) -> float:
        return float(high - low + 1)

    def sql_literal(self, coordinate: int) -> str:
        return quoted(self.values[coordinate])


class LabelledAxis(Axis):
    """An axis with more values than int64 has. Coordinates are labels of gaps between the values mentioned so far
    (labels.py).

    Each value has a *key*, a text; keys have the order of the values, and that of the least value is ''. An *edge* is
    where the values from some one on begin: the key of the first of them, or None if there is none.
    """

    first, last = FIRST, LAST

    def __init__(self) -> None:
        self.labels = Labels()
        self._lock = threading.Lock()

    def edge(self, value: Any) -> str | None:
        """Where the values from this one on begin; ValueError if it is not of the type."""
        raise NotImplementedError

    def edge_after(self, value: Any) -> str | None:
        """Where the values above this one begin."""
        raise NotImplementedError

    def after(self, key: str) -> str | None:
        """The key of the next value; None if there is none."""
        raise NotImplementedError

    def sizes(self, low: Coordinates, high: Coordinates) -> NDArray[np.float64]:
        """`size` of many intervals."""
        raise NotImplementedError

    def size(self, low: int, high: int) -> float:
        """How many values a closed interval is taken for, where its size is compared with others."""
        raise NotImplementedError

    def cut(self, edge: str | None) -> int:
        """The least coordinate whose values are all behind an edge. Recodes the axis if there is no room."""
        if edge is None:
            return self.last + 1
        label = self.labels.cut(edge)
        while label is None:
            label = self.cut_many([edge]).cut(edge)
        return label

    def cut_many(self, edges: Iterable[str | None]) -> Labels:
        """Cut at many edges at once. The labels that have them all, which may be new ones."""
        labels, keys = self.labels, [edge for edge in edges if edge is not None]
        if labels.cut_many(keys):
            return labels
        with self._lock:  # one thread at a time: two new sets of labels would each lack the other's cuts
            self.labels = self.labels.recoded(keys)
            return self.labels

    def spans(self, edges: Sequence[tuple[str | None, str | None]]) -> list[tuple[int, int]]:
        """The intervals from one edge to another, cut at once."""
        return self.cut_many([edge for pair in edges for edge in pair]).spans(edges)

    def singles(self) -> tuple[Coordinates, Coordinates]:
        """The first and the last label of every value that is cut before and after, ascending. O(n)."""
        return self.labels.singles(self.after)

    def restore(self, cuts: list[str], labels: list[int]) -> None:
        """Take over cuts and their labels; a ValueError if they are none of this axis."""
        self.labels = Labels.of_pairs(cuts, labels)


class StringAxis(LabelledAxis):
    """Strings by UTF-8 bytes. A string is its own key, and the next one is the same with NUL at its end."""

    sql, has_domain = "string", False

    def encode(self, value: Any) -> int:
        return self.labels.of(_text(value))

    def decode(self, coordinate: int) -> str:
        return self.labels.example(coordinate)

    def encode_array(self, array: pa.Array) -> Coordinates | None:
        return _by_distinct_value(array, lambda texts: [self.labels.of(text) for text in texts])

    def edge(self, value: Any) -> str:
        return _text(value)

    def edge_after(self, value: Any) -> str:
        return self.after(_text(value))

    def after(self, key: str) -> str:
        return key + "\0"

    def sizes(self, low: Coordinates, high: Coordinates) -> NDArray[np.float64]:
        labels = np.array(self.labels.to_pairs()[1], np.int64)
        gaps = np.searchsorted(labels, high, "right") - np.searchsorted(labels, low, "right") + 1
        return gaps.astype(np.float64)

    def size(self, low: int, high: int) -> float:
        """One for each string or gap between strings that subscriptions tell apart."""
        return float(self.labels.gaps_between(low, high))

    def width(self, low: int, high: int) -> float:
        return self.size(low, high)

    def sql_literal(self, coordinate: int) -> str:
        return quoted(self.labels.cut_at(coordinate))


def quoted(text: str) -> str:
    """A string literal of Spark SQL.

    >>> print(quoted("it's 5\\\\%"))
    'it\\'s 5\\\\%'
    """
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\0", "\\u0000") + "'"


def space_quoted(text: str) -> str:
    """A quoted text in the definition of a space: only quotes and backslashes are escaped."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("is not a string")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("is not valid Unicode: it holds half a surrogate pair") from None
    return value


def _micros(value: np.datetime64) -> int:
    """Exactly, in Python's integers: NumPy's own conversion wraps around."""
    unit, count = np.datetime_data(value.dtype)
    per_unit = {"h": 3_600_000_000_000, "m": 60_000_000_000, "s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}.get(unit)
    if per_unit is None:
        raise ValueError("is not a datetime")
    micros, rest = divmod(int(value.astype(np.int64)) * count * per_unit, 1000)
    if rest:
        raise ValueError("is finer than a microsecond")
    return micros


def integer_of(value: Any, wanted: str = "an int") -> int:
    if not isinstance(value, int | np.integer) or isinstance(value, bool | np.timedelta64):
        raise ValueError(f"is not {wanted}")
    return operator.index(value)


def parsed(kind: Callable[[str], Any], text: str, wanted: str) -> Any:
    try:
        return kind(text)
    except (ValueError, InvalidOperation):
        raise ValueError(f"is not {wanted}") from None


def numpy_of(array: pa.Array) -> NDArray[Any]:
    """The values of a fixed-width array; whatever the buffer holds at null slots."""
    if array.null_count:
        array = array.fill_null(0)
    # Arrow's own conversion imports pandas, which takes longer than a small table does.
    kind = np.dtype(array.type.to_pandas_dtype())
    values = np.frombuffer(array.buffers()[1] or b"", kind)
    return values[array.offset : array.offset + len(array)]


def _by_distinct_value(array: pa.Array, encode: Callable[[list[str]], list[int]]) -> Coordinates | None:
    import pyarrow as pa

    kind = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        return None
    if pa.types.is_dictionary(array.type) and array.dictionary.null_count:
        array = array.cast(kind)
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    try:
        coordinates = encode(array.dictionary.to_pylist())
    except (KeyError, ValueError):
        return None
    indices = numpy_of(array.indices)
    if not coordinates:
        return np.zeros(len(indices), np.int64)
    return np.array(coordinates, np.int64)[indices]
