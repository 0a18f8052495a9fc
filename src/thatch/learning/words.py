"""A box of a space as a reader would say it: `price from 10 to 80 and symbol 'A'`. Doubles are rounded to six digits,
and the ends of a range of numbers may be in the box or not: the clause of the box is exact."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from thatch.space.attribute import Attribute
from thatch.space.axis import BoolAxis, EnumAxis, LabelledAxis, StringAxis
from thatch.space.floating import FloatingAxis
from thatch.space.space import Space
from thatch.where.like import after_prefix

DIGITS = 6  # of a double
LISTED = 4  # values of an enum


def box_words(low: Sequence[int], high: Sequence[int], space: Space) -> str:
    """
    >>> space = Space.parse("price double not null 0..1000, symbol string, kind enum('a', 'b', 'c')")
    >>> region = space.where("price >= 10 AND price < 80 AND symbol = 'A'")
    >>> low, high = region.boxes()
    >>> box_words(low[0].tolist(), high[0].tolist(), space)
    "price from 10 to 80 and symbol 'A'"
    >>> box_words(space.low[0].tolist(), space.high[0].tolist(), space)
    'everything'
    """
    parts = [
        f"{attribute.name} {_side(attribute, least, most)}"
        for attribute, least, most in zip(space.attributes, low, high, strict=True)
        if (least, most) != (attribute.low, attribute.last)
    ]
    return " and ".join(parts) or "everything"


def _side(attribute: Attribute, low: int, high: int) -> str:
    choices = []
    if low < attribute.first:
        choices.append("NULL")
        low = attribute.first
    if low <= high:
        choices.append(_values(attribute, low, high))
    return " or ".join(choices)


def _values(attribute: Attribute, low: int, high: int) -> str:
    axis = attribute.axis
    if (low, high) == (attribute.first, attribute.last):
        return "not NULL"
    if isinstance(axis, BoolAxis):
        return "true" if low else "false"
    if isinstance(axis, EnumAxis):
        values = [repr(axis.values[at]) for at in range(low, high + 1)]
        if len(values) > LISTED:
            return f"one of {', '.join(values[:LISTED])} and {len(values) - LISTED} more"
        return " or ".join([", ".join(values[:-1]), values[-1]] if len(values) > 1 else values)
    if isinstance(axis, StringAxis):
        return _strings(axis, low, high)
    return _labelled(attribute, low, high) if isinstance(axis, LabelledAxis) else _range(attribute, low, high)


def _labelled(attribute: Attribute, low: int, high: int) -> str:
    """Of decimals with many digits, which have labels: the least and the greatest value."""
    least, most = attribute.axis.ends_text(low, high)
    if least == most:
        return least
    if low == attribute.first:
        return f"at most {most}"
    return f"at least {least}" if high == attribute.last else f"from {least} to {most}"


def _strings(axis: StringAxis, low: int, high: int) -> str:
    """A cut that ends in NUL is the end of the string before it: nothing sorts between."""
    start, end = axis.labels.cut_at(low), axis.labels.next_cut(high)
    first, last = repr(start.rstrip("\0")), repr((end or "").rstrip("\0"))
    if end is not None and end == start + "\0":
        return first
    if start and end == after_prefix(start):
        return f"beginning with {first}"
    before = "" if end is None or end.endswith("\0") else "before "
    if not start:
        return f"{before or 'up to '}{last}"
    if end is None:
        return f"after {first}" if start.endswith("\0") else f"from {first} on"
    return f"from {first} to {before}{last}"


def _range(attribute: Attribute, low: int, high: int) -> str:
    """Of the ends of an interval and the values next to them, those that are shorter to write."""
    axis = attribute.axis
    if low == high:
        return _value(attribute, low, exact=True)
    is_open = isinstance(axis, FloatingAxis) or low == attribute.first or high == attribute.last
    excludes_low = is_open and low > axis.first and len(axis.sql_literal(low - 1)) < len(axis.sql_literal(low))
    excludes_high = is_open and high < axis.last - 1 and len(axis.sql_literal(high + 1)) < len(axis.sql_literal(high))
    least, most = low - excludes_low, high + excludes_high
    if low == attribute.first:
        return f"{'below' if excludes_high else 'at most'} {_value(attribute, most)}"
    if high == attribute.last:
        return f"{'above' if excludes_low else 'at least'} {_value(attribute, least)}"
    exact = _value(attribute, least) == _value(attribute, most)
    return f"from {_value(attribute, least, exact)} to {_value(attribute, most, exact)}"


def _value(attribute: Attribute, coordinate: int, exact: bool = False) -> str:
    axis = attribute.axis
    if not isinstance(axis, FloatingAxis):
        return axis.text(coordinate)
    value = axis.double(coordinate)
    is_plain = value == 0 or 1e-4 <= abs(value) < 1e15
    rounded = np.format_float_positional(value, DIGITS, fractional=False, trim="-") if is_plain else f"{value:.6g}"
    return axis.text(coordinate) if exact and float(rounded) != value else rounded
