"""Attributes and spaces: events to points of the integer lattice, and back.

A space is an ordered set of named, typed attributes. It says what an event may hold, which coordinate each value
has (axis.py), and where NULL lies: one coordinate before the first, and only if the attribute is nullable.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from thatch import times
from thatch.axis import (
    INT64_MIN,
    Axis,
    BoolAxis,
    Coordinates,
    DateAxis,
    DecimalAxis,
    DoubleAxis,
    EnumAxis,
    IntAxis,
    StringAxis,
    TimestampAxis,
    space_quoted,
)
from thatch.errors import EventError, SpaceError, shown
from thatch.labels import Labels

if TYPE_CHECKING:
    import pyarrow as pa

    from thatch.region import Region

MISSING: Any = object()


class Attribute:
    """A named axis with a domain and, if nullable, a place for NULL.

    `first` and `last` bound the domain; `null` is `first - 1` or None; `low` is the least coordinate of all, NULL
    included.
    """

    __slots__ = ("axis", "first", "has_own_domain", "last", "low", "name", "null", "nullable")

    def __init__(
        self,
        name: str,
        axis: Axis,
        nullable: bool = True,
        first: int | None = None,
        last: int | None = None,
    ) -> None:
        if not name or any(0xD800 <= ord(character) <= 0xDFFF for character in name):
            raise SpaceError(f"an attribute needs a name of valid Unicode, not {name!r}")
        self.name = name
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
        self.has_own_domain = (self.first, self.last) != (least, axis.last)
        self.null = self.first - 1 if nullable else None
        self.low = self.first if self.null is None else self.null

    def extends(self, other: Attribute) -> bool:
        """Whether this is the other one, or an enum with more values at its end."""
        same = (self.name, self.nullable, self.first) == (other.name, other.nullable, other.first)
        if isinstance(self.axis, EnumAxis) and isinstance(other.axis, EnumAxis):
            return same and self.axis.values[: len(other.axis.values)] == other.axis.values
        return same and (self.axis.sql, self.last) == (other.axis.sql, other.last)

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
            domain = f"{self.axis.text(self.first)}..{self.axis.text(self.last)}"
            return f"is outside the domain {domain} of {self.axis.sql}"
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
        plain = re.fullmatch(r"[A-Za-z_]\w*", self.name, re.ASCII) is not None
        name = self.name if plain else "`" + self.name.replace("`", "``") + "`"
        parts = [name, self.axis.sql] + ([] if self.nullable else ["not null"])
        if self.has_own_domain:
            quote = space_quoted if isinstance(self.axis, DateAxis | TimestampAxis) else str
            parts.append(f"{quote(self.axis.text(self.first))}..{quote(self.axis.text(self.last))}")
        return " ".join(parts)


class Space:
    """An ordered set of attributes.

    >>> space = Space.parse("symbol string, price double not null 0..1000, volume int")
    >>> space.where("price BETWEEN 10 AND 20 AND symbol IN ('A','B')").contains({"symbol": "A", "price": 12.5})
    True
    >>> space == Space.from_json(space.to_json())
    True
    >>> space.encode({"price": 2000.0})
    Traceback (most recent call last):
      ...
    thatch.errors.EventError: attribute 'price': 2000.0 is outside the domain 0.0..1000.0 of double
    """

    def __init__(self, attributes: list[Attribute], time_zone: str = "UTC") -> None:
        if not attributes:
            raise SpaceError("a space needs at least one attribute")
        self.attributes = tuple(attributes)
        self.time_zone = time_zone
        self.zone = _zone(time_zone)
        self._index: dict[str, int] = {}
        for index, attribute in enumerate(attributes):
            if self._index.setdefault(attribute.name.lower(), index) != index:
                raise SpaceError(
                    f"attribute {attribute.name!r} is ambiguous: case does not tell names apart, rename one"
                )
        self._names = tuple(attribute.name for attribute in attributes)
        self.names = frozenset(self._names)
        self._strings = tuple(a.axis for a in attributes if isinstance(a.axis, StringAxis))
        self._numbering: tuple[Labels, ...] = tuple(axis.labels for axis in self._strings)
        self.plans: dict[str, Any] = {}  # of clause shapes, kept by where.py
        # The box of everything, NULL included.
        self.low = np.array([[attribute.low for attribute in attributes]], np.int64)
        self.high = np.array([[attribute.last for attribute in attributes]], np.int64)

    @classmethod
    def parse(cls, text: str, time_zone: str = "UTC") -> Space:
        """A space from text: `name type [not null] [low..high], …`."""
        return cls(_Parser(text, _zone(time_zone)).attributes(), time_zone)

    @classmethod
    def from_spark(cls, schema: Any, time_zone: str = "UTC") -> Space:
        """A space from a `StructType`; refuses by name what cannot be held exactly."""
        zone = _zone(time_zone)
        return cls([_attribute_of_spark(field, zone) for field in schema.fields], time_zone)

    def to_json(self) -> str:
        """Names, types, nullability and domains as JSON; the strings mentioned so far are not part of a space."""
        return msgspec.json.encode(
            {
                "attributes": [
                    {
                        "name": a.name,
                        "type": a.axis.sql,
                        "nullable": a.nullable,
                        "domain": [a.axis.text(a.first), a.axis.text(a.last)] if a.has_own_domain else None,
                    }
                    for a in self.attributes
                ],
                "time_zone": self.time_zone,
            }
        ).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Space:
        try:
            document = msgspec.json.decode(text, type=_SpaceJson)
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            raise SpaceError(f"not a space in JSON: {error}") from None
        zone = _zone(document.time_zone)
        attributes = []
        for each in document.attributes:
            axis = _Parser(each.type, zone).only_type()
            low, high = each.domain or (None, None)
            attributes.append(_attribute(each.name, axis, each.nullable, low, high))
        return cls(attributes, document.time_zone)

    @property
    def fingerprint(self) -> str:
        """32 hexadecimal digits, equal for equal spaces."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:32]

    def extends(self, other: Space) -> bool:
        """Whether this space is the other one, grown by nullable attributes or by values of enums, all at the end: what
        was a clause or an event there is one here.

        >>> Space.parse("kind enum('a','b'), size int").extends(Space.parse("kind enum('a')"))
        True
        """
        if self.time_zone != other.time_zone or len(self) < len(other):
            return False
        same = zip(self.attributes, other.attributes, strict=False)
        return all(new.extends(old) for new, old in same) and all(
            each.nullable for each in self.attributes[len(other) :]
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Space) and (self is other or self.to_json() == other.to_json())

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __str__(self) -> str:
        return ", ".join(map(str, self.attributes))

    def __repr__(self) -> str:
        zone = "" if self.time_zone == "UTC" else f", time_zone={self.time_zone!r}"
        return f"Space.parse({str(self)!r}{zone})"

    def __len__(self) -> int:
        return len(self.attributes)

    def __iter__(self) -> Iterator[Attribute]:
        return iter(self.attributes)

    def index(self, name: str) -> int | None:
        """The position of an attribute, its name taken in any case; None if there is none."""
        return self._index.get(name.lower())

    def encode(self, event: Mapping[str, Any]) -> list[int]:
        """The point of an event. Attributes that the space does not have are ignored; missing ones are NULL."""
        if not event.keys() <= self.names:
            event = self._resolved(event.items())
        return [attribute.encode(event.get(attribute.name, MISSING)) for attribute in self.attributes]

    def decode(self, point: Any) -> dict[str, Any]:
        """An event at a point. For a string between those that clauses mention, one of its gap is made up."""
        if len(point) != len(self.attributes):
            raise SpaceError(f"a point of this space has {len(self.attributes)} coordinates, not {len(point)}")
        return {a.name: a.decode(int(c)) for a, c in zip(self.attributes, point, strict=True)}

    def encode_batch(self, events: Any) -> list[Coordinates]:
        """The coordinates of many events, a column an attribute: an Arrow table or batch, or a dict of arrays."""
        pairs = _columns(events)
        for name, column in pairs:
            if not hasattr(column, "__len__") or getattr(column, "ndim", 1) != 1:
                raise SpaceError(f"column {name!r} of a batch must be a list or an array of one dimension")
        sizes = {len(column) for _, column in pairs}
        if len(sizes) > 1:
            raise SpaceError(f"columns of one batch must have one length, not {sorted(sizes)}")
        rows = sizes.pop() if sizes else 0
        columns = self._resolved(pairs)
        return [a.encode_array(columns.get(a.name, MISSING), rows) for a in self.attributes]

    def encode_valid(self, events: Any) -> tuple[list[Coordinates], NDArray[np.bool_]]:
        """`encode_batch` of the rows that have no bad value, and for each row whether it has none."""
        try:
            columns = self.encode_batch(events)
            return columns, np.ones(len(columns[0]), np.bool_)
        except EventError:
            pass
        pairs = _columns(events)
        rows, known = len(pairs[0][1]) if pairs else 0, self._resolved(pairs)
        good = np.ones(rows, np.bool_)
        columns = []
        for attribute in self.attributes:
            column = known.get(attribute.name, MISSING)
            try:
                columns.append(attribute.encode_array(column, rows))
            except EventError:
                coordinates = np.full(rows, attribute.first, np.int64)
                for row in range(rows) if column is not MISSING else ():
                    try:
                        coordinates[row] = attribute.encode_array(column[row : row + 1], 1)[0]
                    except EventError:
                        good[row] = False
                if column is MISSING:
                    good[:] = False
                columns.append(coordinates)
        return [column[good] for column in columns], good

    def values_of(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """The value that an event has for each attribute, None where it has none."""
        known = self._resolved(event.items())
        return {name: known.get(name) for name in self._names}

    def _resolved(self, pairs: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
        """The part of an event that this space knows, under the space's own spelling of the names."""
        known: dict[str, Any] = {}
        for key, value in pairs:
            index = self.index(key) if isinstance(key, str) else None
            if index is None:
                continue
            if self._names[index] in known:
                raise EventError(self._names[index], key, "names the attribute a second time")
            known[self._names[index]] = value
        return known

    @property
    def numbering(self) -> tuple[Labels, ...]:
        """What string coordinates mean now. Whoever holds coordinates under another one rebuilds them."""
        current = self._numbering
        if not current:  # most spaces have no strings, and this is asked for every region that is looked at
            return current
        for axis, labels in zip(self._strings, current, strict=True):
            if axis.labels is not labels:
                self._numbering = tuple(axis.labels for axis in self._strings)
                return self._numbering
        return current

    def where(self, clause: str, terms_max: int = 1024) -> Region:
        """The region of a SQL WHERE clause, with the meaning that Spark SQL gives it."""
        from thatch.where import compile_clause

        return compile_clause(clause, self, terms_max)


class _AttributeJson(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    type: str
    nullable: bool = True
    domain: tuple[str | int | float, str | int | float] | None = None


class _SpaceJson(msgspec.Struct, forbid_unknown_fields=True):
    attributes: list[_AttributeJson]
    time_zone: str = "UTC"


def _zone(name: str) -> Any:
    try:
        return times.zone_of(name)
    except ValueError as error:
        raise SpaceError(f"the space {error}") from None


def _attribute(name: str, axis: Axis, nullable: bool, low: Any, high: Any) -> Attribute:
    """An attribute whose domain is given as text; None leaves that side open."""
    ends = []
    for text in (low, high):
        try:
            ends.append(None if text is None else axis.parse(str(text)))
        except ValueError as error:
            raise SpaceError(f"attribute {name!r}: domain bound {shown(text)} {error}") from None
    return Attribute(name, axis, nullable, *ends)


class _Parser:
    """`name type [not null] [low..high], …` by one regular expression a token."""

    TOKEN = re.compile(
        r"\s*(?:(?P<dots>\.\.)|(?P<number>[-+]?(?:\d+\.\d+|\d+(?!\.\d)|\.\d+|inf|nan)(?:e[-+]?\d+)?(?![\w]))"
        r"|(?P<word>[^\W\d]\w*)|`(?P<name>(?:[^`]|``)+)`|'(?P<text>(?:[^'\\]|''|\\.)*)'|(?P<mark>[(),])|(?P<bad>\S))",
        re.IGNORECASE | re.DOTALL,
    )

    def __init__(self, text: str, zone: Any) -> None:
        self.source = text
        self.zone = zone
        self.tokens: list[tuple[str, str, int]] = []
        for match in self.TOKEN.finditer(text):
            kind = match.lastgroup
            assert kind is not None
            self.tokens.append((kind, match[kind], match.start(kind)))
        self.at = 0

    def attributes(self) -> list[Attribute]:
        attributes = [self.attribute()]
        while self.take("mark", ","):
            attributes.append(self.attribute())
        self.end()
        return attributes

    def only_type(self) -> Axis:
        axis = self.axis()
        self.end()
        return axis

    def attribute(self) -> Attribute:
        quoted = self.take("name")
        if (
            quoted is None and self.peek("number") and self.tokens[self.at][1].isalpha()
        ):  # `inf` and `nan` are names too
            quoted = self.take("number")
        name = self.need("word", "an attribute name") if quoted is None else quoted.replace("``", "`")
        axis = self.axis()
        nullable, low, high, bounded = True, None, None, False
        while True:
            if nullable and self.take("word", "not"):
                if not self.take("word", "null"):
                    self.fail("`null` after `not`")
                nullable = False
            elif not bounded and (self.peek("number") or self.peek("text") or self.peek("dots")):
                low = self.bound()
                if not self.take("dots"):
                    self.fail("`..` in a domain such as `0..1000`")
                high, bounded = self.bound(), True
            else:
                break
        if bounded and not axis.has_domain:
            raise SpaceError(f"attribute {name!r}: {axis.sql} takes no domain")
        return _attribute(name, axis, nullable, low, high)

    def bound(self) -> str | None:
        text = self.take("text")
        return self.take("number") if text is None else _unquoted(text)

    def axis(self) -> Axis:
        word = self.need("word", "a type").lower()
        if word in ("bool", "boolean"):
            return BoolAxis()
        if word in ("int", "bigint", "long"):
            return IntAxis()
        if word == "double":
            return DoubleAxis()
        if word == "date":
            return DateAxis(self.zone)
        if word == "timestamp":
            return TimestampAxis(self.zone)
        if word == "string":
            return StringAxis()
        try:
            if word == "decimal":
                digits = self.listed("number")
                if len(digits) != 2 or not all(each.isdecimal() for each in digits):
                    self.fail("decimal(precision, scale)")
                return DecimalAxis(*map(int, digits))
            if word == "enum":
                return EnumAxis([_unquoted(each) for each in self.listed("text")])
        except ValueError as error:
            raise error if isinstance(error, SpaceError) else SpaceError(str(error)) from None
        self.at -= 1
        self.fail("a type: bool, int, decimal(p,s), double, date, timestamp, enum('a','b'), string")
        raise AssertionError

    def listed(self, kind: str) -> list[str]:
        if not self.take("mark", "("):
            self.fail("`(`")
        items = [self.need(kind, f"a {kind}")]
        while self.take("mark", ","):
            items.append(self.need(kind, f"a {kind}"))
        if not self.take("mark", ")"):
            self.fail("`)`")
        return items

    def peek(self, kind: str, word: str | None = None) -> bool:
        if self.at >= len(self.tokens) or self.tokens[self.at][0] != kind:
            return False
        return word is None or self.tokens[self.at][1].lower() == word

    def take(self, kind: str, word: str | None = None) -> str | None:
        if not self.peek(kind, word):
            return None
        self.at += 1
        return self.tokens[self.at - 1][1]

    def need(self, kind: str, what: str) -> str:
        found = self.take(kind)
        if found is None:
            self.fail(what)
        assert found is not None
        return found

    def end(self) -> None:
        if self.at < len(self.tokens):
            self.fail("`,` or the end")

    def fail(self, wanted: str) -> None:
        if self.at < len(self.tokens):
            _, found, start = self.tokens[self.at]
            raise SpaceError(f"column {start + 1} of the space: expected {wanted}, found {shown(found)}")
        raise SpaceError(f"the space ends where {wanted} is expected: {shown(self.source)}")


def _unquoted(text: str) -> str:
    return re.sub(r"''|\\(.)", lambda match: match[1] or "'", text, flags=re.DOTALL)


_INTEGRAL_BITS = {"byte": 8, "tinyint": 8, "short": 16, "smallint": 16, "int": 32, "integer": 32}


def _attribute_of_spark(field: Any, zone: Any) -> Attribute:
    """Dispatch on the type's name, so that PySpark need not be imported."""
    kind = field.dataType.typeName()
    if kind in _INTEGRAL_BITS:
        last = 2 ** (_INTEGRAL_BITS[kind] - 1) - 1
        return Attribute(field.name, IntAxis(), field.nullable, -last - 1, last)
    axis: Axis
    if kind in ("long", "bigint"):
        axis = IntAxis()
    elif kind == "boolean":
        axis = BoolAxis()
    elif kind == "double":
        axis = DoubleAxis()
    elif kind == "decimal" and field.dataType.precision <= 18:
        axis = DecimalAxis(field.dataType.precision, field.dataType.scale)
    elif kind == "string" and getattr(field.dataType, "collation", "UTF8_BINARY") == "UTF8_BINARY":
        axis = StringAxis()
    elif kind == "date":
        axis = DateAxis(zone)
    elif kind == "timestamp":
        axis = TimestampAxis(zone)
    else:
        raise SpaceError(
            f"column {field.name!r}: {field.dataType.simpleString()} cannot be held exactly; "
            f"{SPARK_HINTS.get(kind, 'leave the column out, or cast it to a supported type')}"
        )
    return Attribute(field.name, axis, field.nullable)


SPARK_HINTS = {
    "float": "cast it to double",
    "decimal": "decimals go to 18 digits; cast it to a narrower one",
    "string": "only the collation UTF8_BINARY is ordered by bytes",
    "timestamp_ntz": "cast it to timestamp",
}


def _columns(events: Any) -> list[tuple[str, Any]]:
    if isinstance(events, Mapping):
        return list(events.items())
    names = getattr(getattr(events, "schema", None), "names", None)
    if names is None:
        raise SpaceError(f"a batch is an Arrow table or a dict of arrays, not {type(events).__name__}")
    return [(name, events.column(position)) for position, name in enumerate(names)]


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
