"""Spaces as people declare them: text such as `price double not null 0..1000`, and JSON."""

from __future__ import annotations

import re
from functools import cache
from typing import Any
from zoneinfo import available_timezones

import msgspec

from thatch.errors import SpaceError, shown, suggestion
from thatch.space import times
from thatch.space.attribute import Attribute
from thatch.space.axis import (
    Axis,
    BoolAxis,
    DateAxis,
    EnumAxis,
    IntAxis,
    StringAxis,
    TimestampAxis,
    TimestampNtzAxis,
)
from thatch.space.decimals import LongDecimalAxis, decimal_axis
from thatch.space.floating import DoubleAxis, FloatAxis
from thatch.space.structs import json_problem


class _AttributeDocument(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    type: str
    nullable: bool = True
    domain: tuple[str | int | float, str | int | float] | None = None
    path: tuple[str, ...] | None = None  # of a field within a column


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
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        raise SpaceError(f"not a space in JSON: {json_problem(text, _SpaceDocument)}") from None
    zone = time_zone_named(document.time_zone)
    attributes = []
    for each in document.attributes:
        axis = _Parser(each.type, zone).only_type()
        low, high = each.domain or (None, None)
        attributes.append(_with_domain(each.name, axis, each.nullable, low, high, each.path))
    return attributes, document.time_zone


def time_zone_named(name: str) -> Any:
    try:
        return times.zone_of(name)
    except ValueError as error:
        raise SpaceError(f"the space {error}{suggestion(name, _zones())}") from None


@cache
def _zones() -> list[str]:
    """The names of time zones, those of regions first."""
    return sorted(available_timezones(), key=lambda name: ("/" not in name, name))


def _with_domain(
    name: str, axis: Axis, nullable: bool, low: Any, high: Any, path: tuple[str, ...] | None = None
) -> Attribute:
    """An attribute whose domain is given as text; None leaves that side open."""
    read = axis.unscaled_of_text if isinstance(axis, LongDecimalAxis) else axis.parse
    ends = []
    for text in (low, high):
        try:
            ends.append(None if text is None else read(str(text)))
        except ValueError as error:
            raise SpaceError(f"attribute {name!r}: domain bound {shown(text)} {error}") from None
    if isinstance(axis, LongDecimalAxis):  # coordinates of values move, so the axis itself ends where the domain does
        try:
            axis, ends = axis.narrowed(ends[0], ends[1]), [None, None]
        except ValueError as error:
            raise SpaceError(f"attribute {name!r}: {error}") from None
    return Attribute(name, axis, nullable, ends[0], ends[1], path)


TYPES = (
    "bool tinyint smallint int bigint decimal float double date timestamp timestamp_ntz enum string".split()
)  # that are suggested
BITS = {"tinyint": 8, "byte": 8, "smallint": 16, "short": 16}


class _Parser:
    """`name type [not null] [low..high], …` by one regular expression a token."""

    TOKEN = re.compile(
        r"\s*(?:(?P<dots>\.\.)|(?P<number>[-+]?(?:\d+\.\d+|\d+(?!\.\d)|\.\d+|inf|nan)(?:e[-+]?\d+)?(?![\w]))"
        r"|(?P<word>[^\W\d]\w*)|`(?P<name>(?:[^`]|``)+)`|(?P<dot>\.)|'(?P<text>(?:[^'\\]|''|\\.)*)'|(?P<mark>[(),])|(?P<bad>\S))",
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
        self.bits = 0  # of the integer type that was read last, if it has fewer than 64

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
        path = [self.name()]
        while self.take("dot"):
            path.append(self.name())
        name = ".".join(path)
        axis = self.axis()
        bits, self.bits = self.bits, 0
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
        if bits:
            least = -(2 ** (bits - 1))
            low, high = (str(least) if low is None else low), (str(-least - 1) if high is None else high)
        return _with_domain(name, axis, nullable, low, high, tuple(path) if len(path) > 1 else None)

    def name(self) -> str:
        quoted = self.take("name")
        if quoted is None and self.peek("number") and self.tokens[self.at][1].isalpha():
            quoted = self.take("number")  # `inf` and `nan` are names too
        return self.need("word", "an attribute name") if quoted is None else quoted.replace("``", "`")

    def bound(self) -> str | None:
        text = self.take("text")
        return self.take("number") if text is None else _unquoted(text)

    def axis(self) -> Axis:
        word = self.need("word", "a type").lower()
        if word in ("bool", "boolean"):
            return BoolAxis()
        if word in ("int", "bigint", "long"):
            return IntAxis()
        if word in BITS:
            self.bits = BITS[word]
            return IntAxis()
        if word == "double":
            return DoubleAxis()
        if word in ("float", "real"):
            return FloatAxis()
        if word == "date":
            return DateAxis(self.zone)
        if word == "timestamp":
            return TimestampAxis(self.zone)
        if word == "timestamp_ntz":
            return TimestampNtzAxis(self.zone)
        if word == "string":
            return StringAxis()
        try:
            if word == "decimal":
                digits = self.listed("number")
                if len(digits) != 2 or not all(each.isdecimal() for each in digits):
                    self.fail("decimal(precision, scale)")
                return decimal_axis(*map(int, digits))
            if word == "enum":
                return EnumAxis([_unquoted(each) for each in self.listed("text")])
        except ValueError as error:
            raise error if isinstance(error, SpaceError) else SpaceError(str(error)) from None
        self.at -= 1
        self.fail(
            f"a type{suggestion(word, TYPES)}: "
            "bool, tinyint, smallint, int, decimal(p,s), float, double, date, timestamp, timestamp_ntz, "
            "enum('a','b'), string"
        )
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
