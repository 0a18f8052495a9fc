"""Spaces as people declare them: text such as `price double not null 0..1000`, and JSON."""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import cache
from typing import Any, NoReturn
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
        raise SpaceError(f"not a space in JSON: {json_problem(text, _SpaceDocument)}{_example(text)}") from None
    zone = time_zone_named(document.time_zone)
    attributes = []
    for each in document.attributes:
        axis = _Parser(each.type, zone).only_type()
        low, high = each.domain or (None, None)
        attributes.append(_with_domain(each.name, axis, each.nullable, low, high, each.path))
    return attributes, document.time_zone


def _example(text: str | bytes) -> str:
    """A space in JSON, for one that has no attributes."""
    known = b'"attributes"' if isinstance(text, bytes) else '"attributes"'
    return "" if known in text else f". Such as {EXAMPLE}"  # type: ignore[operator]


def time_zone_named(name: str) -> Any:
    given: object = name
    if not isinstance(given, str):
        raise SpaceError(f"a time zone is a name such as Europe/Berlin, not {shown(given)}")
    try:
        return times.zone_of(name)
    except ValueError as error:
        is_offset = any(each in name for each in "+-:0123456789") and "/" not in name
        close = "" if is_offset else suggestion(name, _zones())
        raise SpaceError(f"the space {error}{close or ': a time zone is a name such as Europe/Berlin'}") from None


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
    if ends[0] is not None and ends[1] is not None and ends[0] > ends[1]:
        is_time = isinstance(axis, DateAxis | TimestampAxis | TimestampNtzAxis)
        swapped = f"'{high}'..'{low}'" if is_time else f"{high}..{low}"
        empty = f"the domain of {axis.sql} is empty, as the lower bound is above the upper"
        raise SpaceError(f"attribute {name!r}: {empty}: write {swapped}")
    if isinstance(axis, LongDecimalAxis):  # coordinates of values move, so the axis itself ends where the domain does
        try:
            axis, ends = axis.narrowed(ends[0], ends[1]), [None, None]
        except ValueError as error:
            raise SpaceError(f"attribute {name!r}: {error}") from None
    return Attribute(name, axis, nullable, ends[0], ends[1], path)


TYPES = (
    "bool tinyint smallint int bigint decimal float double date timestamp timestamp_ntz enum string".split()
)  # that are suggested
# What other systems call types.
MEANT = {
    **dict.fromkeys(("number", "numeric", "num"), "'double' or 'decimal(10,2)'"),
    **dict.fromkeys(("money", "currency", "dec"), "'decimal(10,2)'"),
    **dict.fromkeys(("text", "varchar", "char", "str", "object", "uuid", "utf8", "nvarchar"), "'string'"),
    **dict.fromkeys(("integer", "int64", "uint64", "int32", "number64"), "'int'"),
    **dict.fromkeys(("float64", "float8"), "'double'"),
    **dict.fromkeys(("float32", "float4"), "'float'"),
    **dict.fromkeys(("int16", "int2"), "'smallint'"),
    "int8": "'tinyint'",
    **dict.fromkeys(("datetime", "time", "timestamptz", "datetime64"), "'timestamp'"),
}
KNOWN = {*TYPES, *MEANT, "boolean", "long", "real", "byte", "short"}
TYPED_WRONG = 0.75  # how much a word resembles a type that is misspelt
# What stands after a type and does not belong there, and what to do.
AFTER_TYPE = {
    "notnull": "write `not null`",
    "non": "write `not null`",
    "required": "write `not null`",
    "null": "leave it out: an attribute is nullable unless it is `not null`",
    "nullable": "leave it out: an attribute is nullable unless it is `not null`",
    "optional": "leave it out: an attribute is nullable unless it is `not null`",
    "[": "a domain stands without brackets: 0..1000",
    "(": "a domain stands without brackets: 0..1000",
    "]": "a domain stands without brackets: 0..1000",
    "between": "a domain is written 0..1000",
    ";": "attributes are separated by commas",
    "\u2026": "a domain has two dots: 0..1000",
}
EXAMPLE = '{"attributes": [{"name": "price", "type": "double"}]}'
BITS = {"tinyint": 8, "byte": 8, "smallint": 16, "short": 16}


class _Parser:
    """`name type [not null] [low..high], …` by one regular expression a token."""

    # Possessive quantifiers (++, *+) never give back what they took.
    TOKEN = re.compile(
        r"\s*+(?:(?P<dots>\.\.)|(?P<number>[-+]?(?:\d++\.\d++|\d++(?!\.\d)|\.\d++|inf|nan)(?:e[-+]?\d++)?+(?![\w]))"
        r"|(?P<word>[^\W\d]\w*+)|`(?P<name>(?:[^`]|``)++)`|(?P<dot>\.)|'(?P<text>(?:[^'\\]|''|\\.)*+)'|(?P<mark>[(),])"
        r"|(?P<bad>\S))",
        re.IGNORECASE | re.DOTALL,
    )
    # What is no token may have been looked at to the end of the text: more of it than a refusal speaks of is not read.
    BAD_MAX = 8

    def __init__(self, text: str, zone: Any) -> None:
        self.source = text
        self.zone = zone
        self.tokens: list[tuple[str, str, int]] = []
        bad = 0
        for match in self.TOKEN.finditer(text.rstrip()):
            kind = match.lastgroup
            assert kind is not None
            self.tokens.append((kind, match[kind], match.start(kind)))
            bad += kind == "bad"
            if bad == self.BAD_MAX:
                break
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
        start = self.tokens[self.at][2] if self.at < len(self.tokens) else len(self.source)
        try:
            return self._attribute()
        except SpaceError as error:
            if not error.line:
                error.rule = str(error)
                error.line, error.column = self.place(start)
            raise

    def _attribute(self) -> Attribute:
        path = [self.name()]
        while self.take("dot"):
            path.append(self.name())
        name = ".".join(path)
        if self.peek("bad", ":") or self.peek("bad", "="):
            self.fail("a type", f"write `{name} double`, without `{self.tokens[self.at][1]}`")
        self.check_order(name)
        axis = self.axis()
        bits, self.bits = self.bits, 0
        nullable, low, high, bounded = True, None, None, False
        while True:
            if nullable and self.take("word", "not"):
                if not self.take("word", "null"):
                    self.fail("`null` after `not`")
                nullable = False
            elif not bounded and (self.peek("number") or self.peek("text") or self.peek("dots")):
                low, high = self.domain(axis)
                bounded = True
            else:
                break
        if bounded and not axis.has_domain:
            raise SpaceError(f"attribute {name!r}: {axis.sql} takes no domain")
        if bits:
            least = -(2 ** (bits - 1))
            for end in (low, high):
                if end is not None and end.lstrip("+-").isdecimal() and not least <= int(end[:80]) <= -least - 1:
                    type_of = next(word for word, each in BITS.items() if each == bits)
                    raise SpaceError(f"attribute {name!r}: {shown(end)} is beyond {type_of}, {least}..{-least - 1}")
            low, high = (str(least) if low is None else low), (str(-least - 1) if high is None else high)
        return _with_domain(name, axis, nullable, low, high, tuple(path) if len(path) > 1 else None)

    def check_order(self, name: str) -> None:
        """Refuse `string symbol`: the name of a type is where that of an attribute belongs."""
        if name.lower() not in KNOWN or self.at >= len(self.tokens):
            return
        kind, following, _ = self.tokens[self.at]
        is_type = following.lower() in KNOWN or get_close_matches(following.lower(), TYPES, 1, TYPED_WRONG)
        if kind == "mark" and following == "(":
            self.fail("a type", f"the name comes before the type: price {name}(…)")
        if kind == "name" or (kind == "word" and not is_type):
            self.fail("a type", f"the name comes before the type: {following} {name}")

    def name(self) -> str:
        quoted = self.take("name")
        if quoted is None and self.peek("number") and self.tokens[self.at][1].isalpha():
            quoted = self.take("number")  # `inf` and `nan` are names too
        return self.need("word", "an attribute name") if quoted is None else quoted.replace("``", "`")

    def domain(self, axis: Axis) -> tuple[str | None, str | None]:
        """Two values with two dots between them."""
        is_time = isinstance(axis, DateAxis | TimestampAxis | TimestampNtzAxis)
        if is_time and self.peek("number"):
            self.fail("a domain", "dates stand in quotes: '2020-01-01'..'2020-12-31'")
        low = self.bound()
        if not self.take("dots"):
            self.fail("`..` in a domain such as `0..1000`")
        if self.peek("dot") or (self.peek("number") and self.source[self.tokens[self.at][2] - 1 :][:2] == ".."):
            self.fail("a value after `..`", "a domain has two dots: 0..1000")
        if is_time and self.peek("number"):
            self.fail("a value in quotes", "dates stand in quotes: '2020-01-01'..'2020-12-31'")
        return low, self.bound()

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
                if not self.peek("mark", "("):
                    self.fail("`(`", "write decimal(10,2): the number of digits, and of those after the point")
                digits = self.listed("number")
                if len(digits) != 2 or not all(each.isdecimal() for each in digits):
                    self.fail("decimal(precision, scale)")
                return decimal_axis(*map(int, digits))
            if word == "enum":
                return EnumAxis([_unquoted(each) for each in self.listed("text")])
        except ValueError as error:
            raise error if isinstance(error, SpaceError) else SpaceError(str(error)) from None
        self.at -= 1
        meant = f" (did you mean {MEANT[word]}?)" if word in MEANT else suggestion(word, TYPES)
        raise self.error(
            f"a type{meant}: "
            "bool, tinyint, smallint, int, decimal(p,s), float, double, date, timestamp, timestamp_ntz, "
            "enum('a','b'), string"
        )

    def listed(self, kind: str) -> list[str]:
        if not self.take("mark", "("):
            self.fail("`(`")
        items = [self.member(kind)]
        while self.take("mark", ","):
            items.append(self.member(kind))
        if not self.take("mark", ")"):
            self.fail("`)`")
        return items

    def member(self, kind: str) -> str:
        if kind == "text" and (self.peek("word") or self.peek("number")):
            self.fail("a text", f"texts stand in quotes: '{self.tokens[self.at][1][:40]}'")
        return self.need(kind, f"a {kind}")

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
        return found

    def end(self) -> None:
        if self.at < len(self.tokens):
            self.fail("`,` or the end", AFTER_TYPE.get(self.tokens[self.at][1].lower(), ""))

    def fail(self, wanted: str, hint: str = "") -> NoReturn:
        raise self.error(wanted, hint)

    def error(self, wanted: str, hint: str = "") -> SpaceError:
        if self.at < len(self.tokens):
            _, found, start = self.tokens[self.at]
            rule = f"expected {wanted}, found {shown(found)}"
        else:
            start, rule = len(self.source), f"the space ends where {wanted} is expected: {shown(self.source)}"
        rule += f" ({hint})" if hint else ""
        line, column = self.place(start)
        place = f"line {line}, column {column}" if "\n" in self.source.strip() else f"column {start + 1}"
        error = SpaceError(f"{place} of the space: {rule}" if self.at < len(self.tokens) else rule)
        error.rule, error.line, error.column = rule, line, column
        return error

    def place(self, start: int) -> tuple[int, int]:
        """Line and column of a character."""
        return self.source.count("\n", 0, start) + 1, start - self.source.rfind("\n", 0, start)


def _unquoted(text: str) -> str:
    return re.sub(r"''|\\(.)", lambda match: match[1] or "'", text, flags=re.DOTALL)
