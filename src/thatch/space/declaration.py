"""Spaces as people declare them: text such as `price double not null 0..1000`, JSON, and Spark's schemas."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from thatch.errors import SpaceError, shown
from thatch.space import times
from thatch.space.attribute import Attribute
from thatch.space.axis import (
    Axis,
    BoolAxis,
    DateAxis,
    DecimalAxis,
    DoubleAxis,
    EnumAxis,
    IntAxis,
    StringAxis,
    TimestampAxis,
)


class _AttributeDocument(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    type: str
    nullable: bool = True
    domain: tuple[str | int | float, str | int | float] | None = None


class _SpaceDocument(msgspec.Struct, forbid_unknown_fields=True):
    attributes: list[_AttributeDocument]
    time_zone: str = "UTC"


def parse_attributes(text: str, time_zone: str) -> list[Attribute]:
    """The attributes that a text declares: `name type [not null] [low..high], …`."""
    return _Parser(text, time_zone_named(time_zone)).attributes()


def attributes_of_json(text: str | bytes) -> tuple[list[Attribute], str]:
    """The attributes of a space in JSON, and its time zone."""
    try:
        document = msgspec.json.decode(text, type=_SpaceDocument)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise SpaceError(f"not a space in JSON: {error}") from None
    zone = time_zone_named(document.time_zone)
    attributes = []
    for each in document.attributes:
        axis = _Parser(each.type, zone).only_type()
        low, high = each.domain or (None, None)
        attributes.append(_with_domain(each.name, axis, each.nullable, low, high))
    return attributes, document.time_zone


def attributes_of_spark(schema: Any, time_zone: str) -> list[Attribute]:
    """The attributes of a Spark schema, a `StructType`; what cannot be held exactly is refused by name."""
    zone = time_zone_named(time_zone)
    return [_attribute_of_field(field, zone) for field in schema.fields]


def time_zone_named(name: str) -> Any:
    try:
        return times.zone_of(name)
    except ValueError as error:
        raise SpaceError(f"the space {error}") from None


def _with_domain(name: str, axis: Axis, nullable: bool, low: Any, high: Any) -> Attribute:
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
        return _with_domain(name, axis, nullable, low, high)

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


def _attribute_of_field(field: Any, zone: Any) -> Attribute:
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
