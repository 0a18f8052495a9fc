"""A region to canonical SQL: what `space.where` reads back as the same region.

Terms are joined by OR, attributes by AND, the intervals of one attribute by OR in parentheses. Of two exact ways to
write a bound the shorter is taken: `price < 20.0D`, not `price <= 19.999999999999996D`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from thatch.region.ball import Ball
from thatch.region.intervals import Intervals
from thatch.region.region import Region
from thatch.region.term import Term
from thatch.space.attribute import Attribute
from thatch.space.axis import BoolAxis, EnumAxis, LabelledAxis, StringAxis, quoted
from thatch.space.space import Space
from thatch.where.lexer import LIST_SIZE_MAX, RESERVED
from thatch.where.like import after_prefix

HOLES_MIN = 4  # a range with more values left out than this is written as a range and NOT IN


def to_sql(region: Region) -> str:
    terms = [_term(term, region.space) for term in region.terms]
    if not terms:
        return "FALSE"
    if len(terms) == 1:
        return " AND ".join(terms[0]) or "TRUE"
    return " OR ".join(parts[0] if len(parts) == 1 else f"({' AND '.join(parts)})" for parts in terms)


def _term(term: Term, space: Space) -> list[str]:
    looked_at = {index for ball in term.balls for index in ball.attributes}
    parts = []
    for index, intervals in term.sides:
        attribute = space.attributes[index]
        if index in looked_at and intervals == Intervals.between(attribute.first, attribute.last):
            continue  # `within` says so already
        choices = _side(attribute, intervals)
        parts.append(choices[0] if len(choices) == 1 else f"({' OR '.join(choices)})")
    return parts + [_ball(ball, space) for ball in term.balls]


def _ball(ball: Ball, space: Space) -> str:
    pairs = [
        f"{name_sql(space.attributes[index])}, {_double(middle)}"
        for index, middle in zip(ball.attributes, ball.centre, strict=True)
    ]
    return f"within({_double(ball.radius)}, {', '.join(pairs)})"


def _double(value: float) -> str:
    return f"{value!r}D" if value - value == 0 else quoted(str(value))


def name_sql(attribute: Attribute) -> str:
    """The name as it must be written in a clause."""
    return _named(attribute.name) if len(attribute.path) == 1 else ".".join(map(_named, attribute.path))


@lru_cache(1024)
def _named(name: str) -> str:
    if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) and name.upper() not in RESERVED:
        return name
    return "`" + name.replace("`", "``") + "`"


def _side(attribute: Attribute, intervals: Intervals) -> list[str]:
    """The intervals of one attribute as conditions to be joined by OR."""
    name = name_sql(attribute)
    values = intervals.clipped(attribute.first, attribute.last)
    choices = [] if attribute.null is None or attribute.null not in intervals else [f"{name} IS NULL"]
    if not values.ends:
        return choices
    if values == Intervals.between(attribute.first, attribute.last):
        return [*choices, f"{name} IS NOT NULL"]
    if isinstance(attribute.axis, BoolAxis):
        return [*choices, name if values.low else f"NOT {name}"]
    describe = _string_range if isinstance(attribute.axis, StringAxis) else _range
    holes = _values(attribute, values.outside(values.low, values.high))
    spans_axis = values.low == attribute.first and values.high == attribute.last
    if holes and (spans_axis or len(holes) > HOLES_MIN) and not isinstance(attribute.axis, EnumAxis):
        parts = [] if spans_axis else [describe(name, attribute, values.low, values.high)]
        return [*choices, " AND ".join([*parts, _listed(name, attribute, holes, "<>", "NOT IN", " AND ")])]
    points, ranges = [], []
    for pair in values:
        members = _values(attribute, [pair])
        if members is None:
            ranges.append(pair)
        else:
            points.extend(members)
    if points:
        choices.append(_listed(name, attribute, points, "=", "IN", " OR "))
    return choices + [describe(name, attribute, low, high) for low, high in ranges]


def _values(attribute: Attribute, intervals: Iterable[tuple[int, int]]) -> list[int] | None:
    """The coordinates to list, one a value; None if an interval is better written by its ends."""
    found: list[int] = []
    for low, high in intervals:
        if isinstance(attribute.axis, EnumAxis):
            found += range(low, high + 1)  # ordinals are in no order that SQL knows
        elif isinstance(attribute.axis, LabelledAxis):
            labels = attribute.axis.labels
            if labels.next_cut(high) != attribute.axis.after(labels.cut_at(low)):
                return None
            found.append(low)
        elif low == high:
            found.append(low)
        else:
            return None
    return found


def _listed(name: str, attribute: Attribute, points: list[int], one: str, many: str, joint: str) -> str:
    literals = [attribute.axis.sql_literal(point) for point in points]
    if len(literals) == 1:
        return f"{name} {one} {literals[0]}"
    lists = [literals[start : start + LIST_SIZE_MAX] for start in range(0, len(literals), LIST_SIZE_MAX)]
    return joint.join(f"{name} {many} ({', '.join(each)})" for each in lists)


def _range(name: str, attribute: Attribute, low: int, high: int) -> str:
    axis = attribute.axis
    below, above = axis.ends_sql(low, high)
    if high == attribute.last:
        upper = ""
    elif high < axis.last and len(after := axis.ends_sql(high + 1, high + 1)[0]) < len(above):
        upper = f"{name} < {after}"
    else:
        upper = f"{name} <= {above}"
    if low == attribute.first:
        return upper
    if low > axis.first and len(before := axis.ends_sql(low - 1, low - 1)[1]) < len(below):
        lower = f"{name} > {before}"
    else:
        lower = f"{name} >= {below}"
    if ">=" in lower and "<=" in upper:
        return f"{name} BETWEEN {below} AND {above}"
    return f"{lower} AND {upper}" if upper else lower


def _string_range(name: str, attribute: Attribute, low: int, high: int) -> str:
    """A cut that ends in NUL is the end of the string before it: nothing sorts between."""
    assert isinstance(attribute.axis, StringAxis)
    start, end = attribute.axis.labels.cut_at(low), attribute.axis.labels.next_cut(high)
    if start and end == after_prefix(start):
        pattern = re.sub(r"([%_\\])", r"\\\1", start) + "%"
        return f"{name} LIKE {quoted(pattern)}"
    parts = []
    if start:
        parts.append(f"{name} > {quoted(start[:-1])}" if start[-1] == "\0" else f"{name} >= {quoted(start)}")
    if end is not None:
        parts.append(f"{name} <= {quoted(end[:-1])}" if end[-1] == "\0" else f"{name} < {quoted(end)}")
    return " AND ".join(parts)
