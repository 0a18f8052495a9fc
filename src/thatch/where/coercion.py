"""Where a literal cuts an axis, after Spark's type coercion (ANSI on).

Spark casts column and literal to a common type and compares there. Every cast of a column is monotone, so a
comparison is an interval of coordinates, and two numbers tell it all:

    edges(attribute, literal) = (below, upto)
      below   the last coordinate whose cast is <  the cast literal
      upto    the last coordinate whose cast is <= the cast literal

`x = v` is below+1 .. upto, which may be empty (5.5 with an int) or hold many values (a double with a bigint
beyond 2^53). Neither number is cut to the domain: the caller does that. On a decimal of more than 18 digits, whose
coordinates are labels, the numbers are unscaled values.

The rules are Spark 4's, found by probing it, and tested against it (tests/where/test_where_spark.py):
- int with decimal: `<`, `<=`, `>`, `>=` compare exactly, and beyond 64 bits they are constant, for NULL too; `=`
  rounds the literal half up to the scale that 38 digits leave.
- decimal with decimal: the common type keeps whole digits first; past 38 digits literal *and column* are rounded.
- decimal with int: in a comparison the literal has as many digits as are written, a tinyint (5Y) always 3; in an IN
  list it has those of its type.
- anything with a double or a float, and decimal with string: both become doubles.
- a timestamp without a zone with an instant: the column becomes an instant, in the session's time zone.
- string with int, double, date, timestamp: the string is cast to the column's type.
- IN: one common type, folded from left to right over the column and the list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import floor, isinf, isnan
from typing import Any

from thatch.space import times
from thatch.space.attribute import Attribute
from thatch.space.axis import (
    INT64_MAX,
    INT64_MIN,
    Axis,
    DateAxis,
    IntAxis,
    TimestampAxis,
    TimestampNtzAxis,
)
from thatch.space.decimals import DecimalAxis
from thatch.space.floating import FloatingAxis
from thatch.where.literals import KIND_NAMES, Literal, as_double, decimal_of_text, int_of_text

TINYINT_DIGITS, BIGINT_DIGITS = 3, 20
Edges = tuple[int, int]
# A common type: "int", "double", "date", "timestamp", "timestamp_ntz", "bool", or (precision, scale) of a decimal.
Common = str | tuple[int, int]


def compared(attribute: Attribute, literal: Literal) -> Edges:
    """Edges for `=`, `<>`, `<=>` and, on every type but int with a decimal, for the other comparisons."""
    if literal.kind == "i" and isinstance(attribute.axis, IntAxis):
        return literal.value - 1, literal.value
    if literal.kind == "i" and literal.digits != TINYINT_DIGITS and isinstance(attribute.axis, DecimalAxis):
        literal = literal._replace(digits=len(str(abs(literal.value))))
    return edges(attribute, common_type(column_type(attribute.axis), attribute, literal), literal)


def int_beside_decimal(literal: Literal) -> Edges | None:
    """Edges for `<`, `<=`, `>`, `>=` between an int and a decimal literal; None if the literal is beyond 64 bits."""
    unit = 10**literal.scale
    if not INT64_MIN * unit <= literal.value <= INT64_MAX * unit:
        return None
    return -(-literal.value // unit) - 1, literal.value // unit


# `Space.from_spark` gives Spark's narrower integral types their range as a domain; decimals with them round later.
_INTEGRAL_DIGITS = {(-(2**7), 2**7 - 1): 3, (-(2**15), 2**15 - 1): 5, (-(2**31), 2**31 - 1): 10}


def _integral_digits(attribute: Attribute) -> int:
    return _INTEGRAL_DIGITS.get((attribute.first, attribute.last), BIGINT_DIGITS)


def listed(attribute: Attribute, literals: Sequence[Literal]) -> list[Edges]:
    """Edges of each non-null member of an IN list, under the common type of the whole list."""
    axis = attribute.axis
    if isinstance(axis, IntAxis) and all(literal.kind == "i" for literal in literals):
        return [(literal.value - 1, literal.value) for literal in literals]
    common = column_type(axis)
    for literal in literals:
        common = common_type(common, attribute, literal)
    return [edges(attribute, common, literal) for literal in literals]


def column_type(axis: Axis) -> Common:
    if isinstance(axis, DecimalAxis):
        return axis.precision, axis.scale
    return "double" if isinstance(axis, FloatingAxis) else axis.sql


def common_type(common: Common, attribute: Attribute, literal: Literal) -> Common:
    """Spark's common type of what there is so far and one more literal; ValueError if there is none."""
    kind = literal.kind
    if common == "int":
        if kind in "is":
            return "int"
        if kind == "d":
            return wider((_integral_digits(attribute), 0), (literal.digits, literal.scale))
        if kind == "f":
            return "double"
    elif common == "double":
        if kind in "idfs":
            return "double"
    elif isinstance(common, tuple):
        if kind in "fs":
            return "double"
        if kind == "i":
            return wider(common, (literal.digits, 0))
        if kind == "d":
            return wider(common, (literal.digits, literal.scale))
    elif common == "date":
        if kind in "ast":
            return "timestamp" if kind == "t" else "date"
    elif common == "timestamp":
        if kind in "ast":
            return "timestamp"
    elif common == "timestamp_ntz":
        if kind in "as":
            return "timestamp_ntz"
        if kind == "t":
            return _zoned(attribute.axis)
    elif common == "bool" and kind == "b":
        return "bool"
    raise ValueError(f"is {KIND_NAMES[kind]} and cannot be compared with {article(attribute.axis.sql)} attribute")


def _zoned(axis: Axis) -> Common:
    """Spark reads the clock of the column in the session's zone. Where clocks are put back or forward, that does not
    keep the order of the readings, so that no interval of them is what is asked for."""
    assert isinstance(axis, TimestampNtzAxis)
    if axis.zone.key != "UTC":
        raise ValueError(
            f"is an instant, and when a clock in {axis.zone.key} showed a timestamp_ntz is not always clear: "
            "compare it with a text like '2020-02-29 13:45:00'"
        )
    return "timestamp"


def article(name: str) -> str:
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"


def wider(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """The decimal type that holds both, whole digits first if 38 are too few.

    >>> wider((10, 2), (38, 38)), wider((20, 0), (30, 29))
    ((38, 30), (38, 18))
    """
    scale = max(one[1], other[1])
    whole = max(one[0] - one[1], other[0] - other[1])
    return min(whole + scale, 38), min(scale, max(38 - whole, 0))


def edges(attribute: Attribute, common: Common, literal: Literal) -> Edges:
    """Cast the literal to the common type, and take the preimage under the column's cast."""
    axis = attribute.axis
    if isinstance(common, tuple):
        return _decimal_edges(axis, common[1], _rounded(_as_decimal(literal), common[1]))
    if common == "double":
        value = as_double(literal)
        if isinstance(axis, FloatingAxis):
            return axis.first_from(value) - 1, axis.last_upto(value)
        return _double_edges(axis, value)
    if common == "int":
        value = int_of_text(literal.value) if literal.kind == "s" else literal.value
    elif common == "date":
        value = times.days_of_text(literal.value) if literal.kind == "s" else literal.value
    elif common == "timestamp":
        return _timestamp_edges(attribute, literal)
    elif common == "timestamp_ntz":
        is_text = literal.kind == "s"
        value = times.local_micros_of_text(literal.value) if is_text else literal.value * times.MICROS_PER_DAY
    else:
        value = int(literal.value)
    return value - 1, value


def _as_decimal(literal: Literal) -> Literal:
    return decimal_of_text(literal.value) if literal.kind == "s" else literal


def _rounded(literal: Literal, scale: int) -> int:
    """The unscaled value at a scale, half up (away from zero)."""
    if literal.scale <= scale:
        return literal.value * 10 ** (scale - literal.scale)
    unit = 10 ** (literal.scale - scale)
    magnitude = (abs(literal.value) + unit // 2) // unit
    return -magnitude if literal.value < 0 else magnitude


def _decimal_edges(axis: Axis, scale: int, value: int) -> Edges:
    """Of an int or decimal axis cast to a decimal of this scale, beside an unscaled value."""
    own = axis.scale if isinstance(axis, DecimalAxis) else 0
    if scale >= own:  # the column's cast is exact
        unit = 10 ** (scale - own)
        return -(-value // unit) - 1, value // unit
    unit = 10 ** (own - scale)  # it rounds half up: a run of coordinates for each value

    def last_at_most(bound: int) -> int:
        middle = bound * unit + unit // 2  # here the cast leaves bound: at once above zero, one later below
        return middle - 1 if bound >= 0 else middle

    return last_at_most(value - 1), last_at_most(value)


def _double_edges(axis: Axis, value: float) -> Edges:
    """Of an int or decimal axis cast to double. Beyond 2^53 one double stands for many coordinates."""
    first, last = (-axis.unscaled_max, axis.unscaled_max) if isinstance(axis, DecimalAxis) else (axis.first, axis.last)
    if isnan(value) or value == float("inf"):
        return last, last
    if isinf(value):
        return first - 1, first - 1
    unit = 10**axis.scale if isinstance(axis, DecimalAxis) else 1
    exact = Fraction(value) * unit
    near = floor(exact)
    if not 2 * first <= near <= 2 * last:  # far beyond the axis
        return (last, last) if near > 0 else (first - 1, first - 1)
    if unit == 1 and abs(near) < 2**53:
        return near - (exact == near), near
    # The cast moves a coordinate by at most one part in 2^53, so the answer lies this close.
    reach = (abs(near) >> 52) + 2
    low, high = near - reach, near + reach + 1
    below = _first_where(low, high, lambda number: number / unit >= value) - 1
    return below, _first_where(below + 1, high, lambda number: number / unit > value) - 1


def _first_where(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The first of low..high-1 from which on something holds; high if it holds nowhere. `bisect` stops at 64 bits."""
    while low < high:
        middle = (low + high) >> 1
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _timestamp_edges(attribute: Attribute, literal: Literal) -> Edges:
    axis = attribute.axis
    assert isinstance(axis, DateAxis | TimestampAxis | TimestampNtzAxis)
    zone = axis.zone
    if literal.kind == "s":
        instant = times.micros_of_text(literal.value, zone)
    elif literal.kind == "a":
        instant = times.micros_of_day(literal.value, zone)
    else:
        instant = literal.value
    if not isinstance(axis, DateAxis):
        return instant - 1, instant
    # A date with a timestamp is its first instant.
    day = instant // times.MICROS_PER_DAY + 2
    while times.micros_of_day(day, zone) > instant:
        day -= 1
    return (day - 1 if times.micros_of_day(day, zone) == instant else day), day


def constant(literal: Literal, operator: str, other: Literal) -> bool | None:
    """A comparison of two literals; only of kinds whose comparison needs no cast from text."""
    if "n" in (literal.kind, other.kind):
        return literal.kind == other.kind if operator == "<=>" else None
    numbers = {literal.kind, other.kind} <= set("idf")
    if not numbers and literal.kind != other.kind:
        raise ValueError(f"is {KIND_NAMES[other.kind]} and cannot be compared with {KIND_NAMES[literal.kind]}")
    if literal.kind == "f" or other.kind == "f":
        left, right = as_double(literal), as_double(other)
    else:
        left, right = _exact(literal), _exact(other)
    return {
        "=": left == right,
        "<=>": left == right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }[operator]


def _exact(literal: Literal) -> Any:
    return Fraction(literal.value, 10**literal.scale) if literal.kind in "id" else literal.value
