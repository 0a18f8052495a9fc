"""Attributes and spaces: events to points of the integer lattice, and back.

A space is an ordered set of named, typed attributes. It says what an event may hold, which coordinate each value
has (axis.py), and where NULL lies: one coordinate before the first, and only if the attribute is nullable.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from thatch.errors import CallerError, EventError, SpaceError, shown
from thatch.space.attribute import MISSING, Attribute
from thatch.space.axis import Coordinates, LabelledAxis
from thatch.space.declaration import attributes_of_json, parse_attributes, time_zone_named
from thatch.space.labels import LabelCodes
from thatch.space.schemas import ColumnPath, attributes_of_schema, columns_of, usable_attributes

if TYPE_CHECKING:
    from thatch.region.region import Region

T = TypeVar("T")


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
        given: Any = attributes
        if isinstance(given, str):
            raise SpaceError(f"a Space is made of a text by Space.parse({shown(given)})")
        if not attributes:
            raise SpaceError("a space needs at least one attribute")
        self.attributes = tuple(attributes)
        self.time_zone = time_zone
        self.zone = time_zone_named(time_zone)
        self._index: dict[str, int] = {}
        for index, attribute in enumerate(attributes):
            if self._index.setdefault(attribute.name.lower(), index) != index:
                raise SpaceError(
                    f"attribute {attribute.name!r} is ambiguous: case does not tell names apart, rename one"
                )
        self._names = tuple(attribute.name for attribute in attributes)
        self.names = frozenset(self._names)
        self.labelled_indices = tuple(i for i, a in enumerate(attributes) if isinstance(a.axis, LabelledAxis))
        self.labelled_axes = tuple(a.axis for a in attributes if isinstance(a.axis, LabelledAxis))
        self._label_codes: LabelCodes = tuple(axis.labels for axis in self.labelled_axes)
        self._plans: dict[str, Any] = {}  # of clause shapes, filled by `where`
        self.other_columns: tuple[str, ...] = ()  # of the table that this was inferred from: for error messages
        self.unusable: dict[str, str] = {}  # of these, those that clauses mention, and why they are no attributes
        self._nested: dict[str, list[int]] = {}  # attributes within a column, by its name
        for index, attribute in enumerate(attributes):
            if len(attribute.path) > 1:
                self._nested.setdefault(attribute.path[0].lower(), []).append(index)
        for name, fields in self._nested.items():
            if name in self._index:
                raise SpaceError(
                    f"attribute {attributes[self._index[name]].name!r} cannot have a value and fields, such as "
                    f"{attributes[fields[0]].name!r}: leave one out"
                )
        # The box of everything, NULL included.
        self.low = np.array([[attribute.low for attribute in attributes]], np.int64)
        self.high = np.array([[attribute.last for attribute in attributes]], np.int64)

    @classmethod
    def parse(cls, text: str, time_zone: str = "UTC") -> Space:
        """A space from text: `name type [not null] [low..high], …`."""
        given: object = text
        if not isinstance(given, str):
            raise SpaceError(f"a space is read from a text such as 'price double', not {shown(given)}")
        return cls(parse_attributes(text, time_zone), time_zone)

    @classmethod
    def from_spark(cls, schema: Any, time_zone: str = "UTC") -> Space:
        """A space from a `StructType`; refuses by name what cannot be held exactly."""
        return cls(attributes_of_schema(columns_of(schema), time_zone_named(time_zone)), time_zone)

    @classmethod
    def from_arrow(cls, schema: Any, time_zone: str = "UTC") -> Space:
        """A space from the schema of an Arrow table; refuses by name what cannot be held exactly."""
        return cls(attributes_of_schema(columns_of(schema), time_zone_named(time_zone)), time_zone)

    @classmethod
    def infer(cls, schema: Any, clauses: Iterable[str], time_zone: str = "UTC") -> Space:
        """The space of these clauses over a table: an attribute for each column that one of them mentions, with the
        type that it has in the table. Other columns may be of any type. `schema` is Arrow's or Spark's, or a table.

        >>> import pyarrow as pa
        >>> table = pa.schema({"price": pa.float64(), "tags": pa.list_(pa.string()), "lots": pa.int16()})
        >>> str(Space.infer(table, ["price > 5", "lots IN (1, 2)"]))
        'price double, lots int -32768..32767'
        """
        from thatch.where.names import names_in

        zone = time_zone_named(time_zone)
        return cls.of_columns(schema, names_in(clauses, zone), time_zone)

    @classmethod
    def of_columns(
        cls, schema: Any, paths: Iterable[ColumnPath], time_zone: str = "UTC", on_error: str = "raise"
    ) -> Space:
        """The space of these columns of a table, or fields of its columns. Those that it does not have are left out;
        with `on_error="skip"` also those that cannot be attributes, and clauses that mention them are wrong."""
        columns, zone = columns_of(schema), time_zone_named(time_zone)
        attributes, unusable = usable_attributes(columns, zone, paths)
        if unusable and on_error != "skip":
            raise SpaceError("\n".join(unusable.values()))
        if not attributes:  # clauses like TRUE: any column will do
            for column in columns:
                try:
                    attributes = attributes_of_schema([column], zone)
                    break
                except SpaceError:
                    continue
        if not attributes:
            raise SpaceError("the table has no column that can be an attribute")
        space = cls(attributes, time_zone)
        space.unusable = {name.lower(): reason for name, reason in unusable.items()}
        space.other_columns = tuple(".".join(column.path) for column in columns if space.index(column.path[0]) is None)
        return space

    def to_json(self) -> str:
        """Names, types, nullability and domains as JSON; the strings mentioned so far are not part of a space."""
        return msgspec.json.encode(
            {
                "attributes": [
                    {
                        "name": a.name,
                        "type": a.axis.sql,
                        "nullable": a.nullable,
                        "domain": a.domain if a.has_own_domain else None,
                        **({"path": a.path} if len(a.path) > 1 else {}),
                    }
                    for a in self.attributes
                ],
                "time_zone": self.time_zone,
            }
        ).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Space:
        """The space that `to_json` wrote."""
        return cls(*attributes_of_json(text))

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
        try:
            names = event.keys()
        except AttributeError:
            raise CallerError(f"an event is a mapping of attributes to values, not {shown(event)}") from None
        if not names <= self.names:
            event = self._resolved(event.items())
        return [attribute.encode(event.get(attribute.name, MISSING)) for attribute in self.attributes]

    def decode(self, point: Any) -> dict[str, Any]:
        """An event at a point. For a string or a long decimal between those that clauses mention, one of its
        gap is made up."""
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
        for key, value in self._flat(pairs) if self._nested else pairs:
            index = self.index(key) if isinstance(key, str) else None
            if index is None:
                continue
            if self._names[index] in known:
                raise EventError(self._names[index], key, "names the attribute a second time")
            known[self._names[index]] = value
        return known

    def _flat(self, pairs: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
        """With the fields of columns, where attributes are such fields: of mappings, and of Arrow's structs."""
        for key, value in pairs:
            if isinstance(key, str):
                for index in self._nested.get(key.lower(), ()):
                    attribute = self.attributes[index]
                    found = field_of(value, attribute.path[1:])
                    if found is not MISSING:
                        yield attribute.name, found
            yield key, value

    @property
    def label_codes(self) -> LabelCodes:
        """What the coordinates of labelled attributes (strings, long decimals) mean now. They change when an axis is
        recoded (labels.py)."""
        current = self._label_codes
        if not current:  # many spaces have no labels, and this is asked for every region that is looked at
            return current
        for axis, labels in zip(self.labelled_axes, current, strict=True):
            if axis.labels is not labels:
                self._label_codes = tuple(axis.labels for axis in self.labelled_axes)
                return self._label_codes
        return current

    def is_current(self, codes: LabelCodes) -> bool:
        """Whether coordinates under these codes still mean what they meant. If not, their holder rebuilds them from
        typed bounds."""
        return not codes or codes is self.label_codes  # without labels nothing is ever recoded

    def stable(self, compute: Callable[[], T]) -> tuple[T, LabelCodes]:
        """What `compute` returns under one set of label codes, and these codes. It is called again if an axis was
        recoded on the way, by itself or by another thread."""
        while True:
            codes = self.label_codes
            result = compute()
            if self.is_current(codes):
                return result, codes

    def where(self, clause: str, terms_max: int = 1024) -> Region:
        """The region of a SQL WHERE clause, with the meaning that Spark SQL gives it."""
        from thatch.where.compile import compile_clause

        return compile_clause(clause, self, terms_max, self._plans)


def field_of(value: Any, path: ColumnPath) -> Any:
    """The field of a mapping or of a column of structs, names taken in any case; MISSING if it has none."""
    for name in path:
        if isinstance(value, Mapping):
            value = next(
                (value[each] for each in value if isinstance(each, str) and each.lower() == name.lower()), MISSING
            )
        elif value is not None and hasattr(value, "type") and hasattr(value.type, "num_fields"):
            import pyarrow.compute as pc

            kind = value.type
            places = [at for at in range(kind.num_fields) if kind.field(at).name.lower() == name.lower()]
            if len(places) != 1:
                return MISSING
            value = pc.struct_field(value, places)
        else:
            return MISSING
    return value


def _columns(events: Any) -> list[tuple[str, Any]]:
    if isinstance(events, Mapping):
        return list(events.items())
    names = getattr(getattr(events, "schema", None), "names", None)
    if names is None:
        raise SpaceError(f"a batch is an Arrow table or a dict of arrays, not {type(events).__name__}")
    return [(name, events.column(position)) for position, name in enumerate(names)]
