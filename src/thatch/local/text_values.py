"""Columns of text to values of attributes, as Spark's casts read them: what is malformed is an error, never NULL."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from thatch.errors import EventError
from thatch.space import times
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
from thatch.space.decimals import DecimalAxis, LongDecimalAxis, ShortDecimalAxis
from thatch.space.floating import DoubleAxis, FloatAxis, FloatingAxis
from thatch.where.literals import double_of_text, int_of_text

TRUE, FALSE = ("t", "true", "y", "yes", "1"), ("f", "false", "n", "no", "0")
DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,9})?", re.ASCII)
# Texts that Arrow's own cast reads as Spark's does, for the most part all of a column.
PLAIN = {pa.int64(): r"^-?[0-9]{1,18}$", pa.float64(): r"^-?[0-9]{1,15}(\.[0-9]{1,15})?$"}


def arrow_type(attribute: Attribute) -> pa.DataType:
    """The type in which a table has an attribute's values."""
    axis = attribute.axis
    if isinstance(axis, DecimalAxis):
        return pa.decimal128(axis.precision, axis.scale)
    kinds: dict[type, pa.DataType] = {
        BoolAxis: pa.bool_(),
        IntAxis: pa.int64(),
        DoubleAxis: pa.float64(),
        FloatAxis: pa.float32(),
        DateAxis: pa.date32(),
        TimestampAxis: pa.timestamp("us", "UTC"),
        TimestampNtzAxis: pa.timestamp("us"),
        EnumAxis: pa.string(),
        StringAxis: pa.string(),
    }
    return kinds[type(axis)]


def values_of(texts: pa.Array, attribute: Attribute) -> tuple[pa.Array, dict[int, str]]:
    """The values, and what is wrong with the texts of some rows, which then are NULL."""
    kind = arrow_type(attribute)
    if kind == pa.string():
        return texts, {}
    pattern = PLAIN.get(kind)
    if pattern is not None and pc.all(pc.match_substring_regex(texts, pattern), min_count=0).as_py():
        return texts.cast(kind), {}
    coded = texts.dictionary_encode()
    read, values, wrong = READERS[type(attribute.axis)], [], {}
    for place, text in enumerate(coded.dictionary.to_pylist()):
        try:
            values.append(read(text, attribute.axis))
        except ValueError as error:
            values.append(None)
            wrong[place] = f"attribute {attribute.name!r}: '{text[:80]}' {error}"
    found = pa.array(values, kind).take(coded.indices)
    if not wrong:
        return found, {}
    bad = pc.is_in(coded.indices, pa.array(list(wrong), coded.indices.type))
    rows = pc.indices_nonzero(bad.fill_null(False)).to_pylist()
    places = coded.indices.take(pa.array(rows)).to_pylist()
    return found, {row: wrong[place] for row, place in zip(rows, places, strict=True)}


def _bool(text: str, axis: Any) -> bool:
    word = text.strip(times.BLANKS).lower()
    if word in TRUE or word in FALSE:
        return word in TRUE
    raise ValueError("is not a bool like true")


def _int(text: str, axis: Any) -> int:
    try:
        return int_of_text(text)
    except ValueError:
        raise ValueError("is not an int of 64 bits") from None


def _floating(text: str, axis: FloatingAxis) -> float:
    number = double_of_text(text)
    if isinstance(axis, FloatAxis):
        number = axis.decode(axis.of_float(number))
    if number in (float("inf"), float("-inf")) and "inf" not in text.lower():
        raise ValueError(f"is beyond all {axis.sql}s")
    return number


def _decimal(text: str, axis: DecimalAxis) -> Decimal:
    number = text.strip(times.BLANKS)
    if not DECIMAL.fullmatch(number):
        raise ValueError(f"is not a {axis.sql}")
    value = Decimal(number)
    if value and value.adjusted() >= axis.precision - axis.scale:
        raise ValueError(f"is not a {axis.sql}")
    return axis.read(number)  # raises what is lost


def _date(text: str, axis: DateAxis) -> date:
    try:
        return axis.decode(axis.parse(text))
    except (ValueError, OverflowError):
        raise ValueError("is not a date like 2020-02-29") from None


def _timestamp(text: str, axis: TimestampAxis | TimestampNtzAxis) -> Any:
    try:
        return axis.decode(axis.parse(text))
    except times.HasTimeZone:
        raise
    except (ValueError, OverflowError):
        raise ValueError("is not a timestamp like 2020-02-29 13:45:00") from None


READERS: dict[type, Callable[[str, Any], Any]] = {
    BoolAxis: _bool,
    IntAxis: _int,
    DoubleAxis: _floating,
    FloatAxis: _floating,
    ShortDecimalAxis: _decimal,
    LongDecimalAxis: _decimal,
    DateAxis: _date,
    TimestampAxis: _timestamp,
    TimestampNtzAxis: _timestamp,
}


def rule_of(error: EventError) -> str:
    """What is wrong with a value, as Spark says it: without its row, which a batch counts in its own way, and with the
    value as text."""
    if error.value is None:
        return f"attribute {error.attribute!r}: {error.rule}"
    text = str(error.value).lower() if isinstance(error.value, bool) else str(error.value)
    return f"attribute {error.attribute!r}: {text if len(text) <= 80 else text[:77] + '...'} {error.rule}"
