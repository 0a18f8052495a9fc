"""Literals as Spark SQL reads them: what kind they are, their exact value, and casts between kinds.

| kind | written | value |
|---|---|---|
| i | 5, 5L, 5S, 5Y | int within 64 bits; `digits` is the width of its Spark type in decimal digits |
| d | 5.0, .5, 5BD, integers beyond 64 bits | unscaled int; `digits`, `scale` as Spark types the literal |
| f | 1.5D, 1e3, 1.5F | float |
| s | '…', "…", r'…' | str |
| a, t | DATE'…', TIMESTAMP'…' | days, microseconds |
| b, n | TRUE, FALSE; NULL | bool; None |
| l | (in shapes only) an IN list of literals | |
"""

from __future__ import annotations

import math
import re
import struct
from datetime import timedelta
from typing import Any, NamedTuple

from thatch.errors import shown
from thatch.space.decimals import decimal_of
from thatch.space.times import BLANKS, DAY_FIRST, DAY_LAST, EPOCH, MICROS_PER_DAY

KIND_NAMES = {
    "i": "an int",
    "d": "a decimal",
    "f": "a double",
    "s": "a string",
    "a": "a date",
    "t": "a timestamp",
    "b": "a bool",
    "n": "NULL",
}


class Literal(NamedTuple):
    kind: str
    value: Any
    digits: int = 0
    scale: int = 0


class Members(NamedTuple):
    """An IN list. Long ones are of one kind, and then hold plain values: a literal each costs more than the rest."""

    kind: str  # "s" or "i" for plain values, "" for literals
    values: list[Any]


_NUMBER = re.compile(r"(-?)\s*(\d*)(\.?)(\d*)(?:[eE]([+-]?\d+))?([a-zA-Z]*)")
_SUFFIX_BITS = {"L": 64, "S": 16, "Y": 8}
_BITS_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}


def number_literal(token: str) -> Literal:
    """
    >>> number_literal("5"), number_literal("-0.50"), number_literal("1e3")
    (Literal(kind='i', value=5, digits=10, scale=0), Literal(kind='d', value=-50, digits=2, scale=2), \
Literal(kind='f', value=1000.0, digits=0, scale=0))
    """
    if len(token) < 10 and token.isascii():  # the usual cases, without the regular expression
        whole, _, fraction = token.partition(".")
        if whole.isdecimal():
            if not fraction and whole == token:
                return Literal("i", int(token), 10)
            if fraction.isdecimal():
                return decimal_literal("", whole, fraction, 0)
    match = _NUMBER.fullmatch(token)
    if match is None:
        raise ValueError("is not a number")
    sign, whole, point, fraction, exponent, suffix = match.groups()
    suffix = suffix.upper()
    if suffix in _SUFFIX_BITS and not point and exponent is None:
        value, bits = _small_int(sign + whole), _SUFFIX_BITS[suffix]
        if not -(2 ** (bits - 1)) <= value <= 2 ** (bits - 1):  # the sign of -128Y may stand apart
            raise ValueError(f"is out of range for {bits} bits")
        return Literal("i", value, _BITS_DIGITS[bits])
    if suffix in ("D", "F") or (exponent is not None and not suffix):
        return Literal("f", _double(f"{sign}{whole}.{fraction or 0}e{exponent or 0}", suffix == "F"))
    if suffix not in ("", "BD"):
        raise ValueError(f"has the unknown suffix {suffix!r}")
    if not point and not suffix and len(whole) < 40:
        value = int(sign + whole)
        if -(2**63) <= value < 2**63:
            return Literal("i", value, 10 if -(2**31) <= value < 2**31 else 20)
    return decimal_literal(sign, whole, fraction, int(exponent or 0))


def decimal_literal(sign: str, whole: str, fraction: str, exponent: int) -> Literal:
    """Typed as Spark does: as many digits as are written, leading zeros aside, at most 38."""
    digits = (whole + fraction).lstrip("0") or "0"
    scale = len(fraction) - exponent
    if scale < 0 and scale > -40:
        digits, scale = digits + "0" * -scale, 0
    precision = max(len(digits), scale)
    if precision > 38 or scale < 0:
        raise ValueError("has more than the 38 digits of a decimal")
    return Literal("d", int(sign + digits), precision, scale)


def _small_int(text: str) -> int:
    if len(text) > 40:
        raise ValueError("is out of range")
    return int(text)


def _double(text: str, single: bool) -> float:
    value = float(text)
    if single and math.isfinite(value):
        try:
            (value,) = struct.unpack("<f", struct.pack("<f", value))
        except OverflowError:
            value = math.inf
    if math.isinf(value):
        raise ValueError("is out of range for a double")
    return value


def negated(literal: Literal) -> Literal:
    """The literal with a minus sign before it, as Spark reads sign and number together."""
    if literal.kind == "d" and literal.scale == 0 and literal.value == 2**63:
        return Literal("i", -(2**63), 20)
    return literal._replace(value=-literal.value)


_ESCAPE = re.compile(r"\\(?:([01][0-7]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))|''|\"\"", re.DOTALL)
_ESCAPED = {"0": "\0", "n": "\n", "t": "\t", "r": "\r", "b": "\b", "Z": "\x1a", "%": "\\%", "_": "\\_"}


def string_literal(token: str) -> str:
    r"""The text of a quoted string. `\%` and `\_` keep their backslash, for LIKE.

    >>> string_literal(r"'it''s \101\u00e9 5\%'")
    "it's Aé 5\\%"
    """
    quote = token[0]
    if len(token) < 2 or token[-1] != quote:
        raise ValueError("has no closing quote")
    body = token[1:-1]
    if "\\" in body or quote in body:
        body = _ESCAPE.sub(lambda match: _unescaped(match, quote), body)
    if not body.isascii():
        body = _joined_surrogates(body)
    return body


def _unescaped(match: re.Match[str], quote: str) -> str:
    octal, short, long, other = match.groups()
    if octal:
        return chr(int(octal, 8))
    if short or long:
        code = int(short or long, 16)
        if code > 0x10FFFF:
            raise ValueError("has an escape beyond Unicode")
        return chr(code)
    if other is not None:
        return _ESCAPED.get(other, other)
    return quote if match[0][0] == quote else match[0]


def _joined_surrogates(text: str) -> str:
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeError:
        raise ValueError("is not valid Unicode: it holds half a surrogate pair") from None


_INT_TEXT = re.compile(r"[+-]?\d+", re.ASCII)
_DOUBLE_TEXT = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[dDfF]?", re.ASCII)
_DECIMAL_TEXT = re.compile(r"([+-]?)(\d*)\.?(\d*)(?:[eE]([+-]?\d{1,9}))?", re.ASCII)
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "infinity": math.inf}


def int_of_text(text: str) -> int:
    """Spark's cast from string to bigint."""
    text = text.strip(BLANKS)
    if not _INT_TEXT.fullmatch(text) or len(text.lstrip("+-0")) > 19:
        raise ValueError("is not an int")
    value = int(text)
    if not -(2**63) <= value < 2**63:
        raise ValueError("is out of range for 64 bits")
    return value


def double_of_text(text: str) -> float:
    """Spark's cast from string to double.

    >>> double_of_text(" -Infinity "), double_of_text("5d"), double_of_text("1e400")
    (-inf, 5.0, inf)
    """
    text = text.strip(BLANKS)
    match = _DOUBLE_TEXT.fullmatch(text)
    if match is not None:
        return float(match[1])
    value = _NOT_FINITE.get(text.lower().lstrip("+-")) if text[1:2] not in ("+", "-") else None
    if value is None:
        raise ValueError("is not a double")
    return -value if text[0] == "-" else value


def as_double(literal: Literal) -> float:
    """Spark's cast from a number or a string to double; rounds once."""
    if literal.kind == "s":
        return double_of_text(literal.value)
    if literal.kind not in "idf":
        raise ValueError(f"is {KIND_NAMES[literal.kind]}, not a number")
    value: float = literal.value if literal.kind == "f" else literal.value / 10**literal.scale
    return value


def literal_text(literal: Literal) -> str:
    """A literal as a person would write it, for errors."""
    if literal.kind == "a":
        days = min(max(literal.value, DAY_FIRST), DAY_LAST)
        return f"DATE'{EPOCH.date() + timedelta(days=days)}'"
    if literal.kind == "t":
        micros = min(max(literal.value, DAY_FIRST * MICROS_PER_DAY), DAY_LAST * MICROS_PER_DAY)
        return f"TIMESTAMP'{EPOCH + timedelta(microseconds=micros)}'"
    if literal.kind == "d":
        return str(decimal_of(literal.value, literal.scale))
    return shown(literal.value)


def decimal_of_text(text: str) -> Literal:
    """Spark's cast from string to decimal, before it is rounded to a scale."""
    match = _DECIMAL_TEXT.fullmatch(text.strip(BLANKS))
    if match is None or not (match[2] or match[3]):
        raise ValueError("is not a decimal")
    return decimal_literal(match[1].replace("+", ""), match[2], match[3], int(match[4] or 0))
