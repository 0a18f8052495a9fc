"""What the tests share: how long they run, and random values, names and declarations of attributes."""

from __future__ import annotations

import os
from datetime import UTC, date, datetime
from typing import Any, Literal, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from thatch.space.attribute import Attribute
from thatch.space.axis import Axis, BoolAxis, DateAxis, EnumAxis, IntAxis, space_quoted
from thatch.space.decimals import LongDecimalAxis, ShortDecimalAxis, decimal_of
from thatch.space.floating import DoubleAxis, FloatingAxis

SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


T = TypeVar("T")


def soaked(few: T, many: T) -> T:
    """How many, or which: few, which take every path, or under `make soak` many."""
    return many if os.environ.get("THATCH_SOAK") else few


def examples(count: int) -> settings:
    """The same examples every time, and no deadline: machines are noisy."""
    count = max(5, count // 5) if os.environ.get("THATCH_QUICK") else count
    return settings(max_examples=count, deadline=None, derandomize=True, suppress_health_check=SLOW_IS_FINE)


# Characters that quoting, escaping, sorting or lower-casing may get wrong.
ODD_CHARACTERS = "aZ0_ \0\x01\n\t'\"\\%`,.()-;:éß\u0130\ud7ff\ue000\uffff😀\U0010ffff"
texts = st.text(st.one_of(st.sampled_from(ODD_CHARACTERS), st.characters(exclude_categories=["Cs"])), max_size=6)
ints = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-5, 5),
    st.sampled_from([sign * (2**bits) + step for bits in (7, 31, 53, 63) for sign in (1, -1) for step in (-1, 0, 1)]),
)


def values_of(attribute: Attribute) -> st.SearchStrategy[Any]:
    """Values that the attribute takes; None where it is nullable."""
    values = values_of_axis(attribute.axis, attribute.first, attribute.last)
    return st.none() | values if attribute.nullable else values


def values_of_axis(axis: Axis, first: int, last: int) -> st.SearchStrategy[Any]:
    if isinstance(axis, BoolAxis):
        return st.booleans()
    if isinstance(axis, IntAxis):
        return st.integers(first, last)
    if isinstance(axis, ShortDecimalAxis | LongDecimalAxis):
        ends = (axis.least, axis.greatest) if isinstance(axis, LongDecimalAxis) else (first, last)
        return st.integers(*ends).map(lambda unscaled: decimal_of(unscaled, axis.scale))
    if isinstance(axis, FloatingAxis):
        width: Literal[32, 64] = 64 if isinstance(axis, DoubleAxis) else 32
        if (first, last) == (axis.first, axis.last):
            return st.floats(width=width)
        return st.floats(axis.decode(first), axis.decode(last), width=width)
    if isinstance(axis, DateAxis):
        return st.dates(axis.decode(first), axis.decode(last))
    if isinstance(axis, EnumAxis):
        return st.sampled_from(axis.values)
    if axis.sql == "timestamp":
        low, high = (axis.decode(end).replace(tzinfo=None) for end in (first, last))
        return st.datetimes(low, high, timezones=st.just(UTC))
    if axis.sql == "timestamp_ntz":
        return st.datetimes(axis.decode(first), axis.decode(last))
    return texts


@st.composite
def boxes_of(draw: st.DrawFn, sizes: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Boxes of a small lattice. Sides are often whole axes or single values, so that many differ in few attributes."""
    low, high = [], []
    for size in sizes:
        one, other = draw(
            st.one_of(
                st.just((0, size - 1)),
                st.integers(0, size - 1).map(lambda at: (at, at)),
                st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)),
            )
        )
        low.append(min(one, other))
        high.append(max(one, other))
    return tuple(low), tuple(high)


# --- Declarations, as text that `Space.parse` reads -------------------------------------------------------------------

PLAIN_NAMES = ["a", "price", "Volume_2", "_x", "not", "null", "int", "string", "inf", "nan", "e5", "within", "date"]
names = st.one_of(
    st.sampled_from(PLAIN_NAMES),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="`\0\x1f"), min_size=1, max_size=5),
)


def _bounds(low: Any, high: Any) -> str:
    return f" {low}..{high}"


@st.composite
def _ordered(draw: st.DrawFn, values: st.SearchStrategy[Any]) -> tuple[Any, Any]:
    first, second = draw(values), draw(values)
    return (first, second) if first <= second else (second, first)


@st.composite
def declared_types(draw: st.DrawFn) -> str:
    """A type, perhaps `not null`, perhaps with a domain."""
    kind = draw(st.sampled_from(["bool", "int", "decimal", "double", "date", "timestamp", "enum", "string"]))
    bounded = draw(st.booleans())
    domain = ""
    if kind == "int" and bounded:
        domain = _bounds(*draw(_ordered(st.integers(-(2**63) + 1, 2**63 - 1))))
    elif kind == "decimal":
        precision = draw(st.integers(1, 38))
        scale = draw(st.integers(0, precision))
        kind = f"decimal({precision},{scale})"
        if bounded:
            unscaled = draw(_ordered(st.integers(1 - 10**precision, 10**precision - 1)))
            domain = _bounds(*(f"{decimal_of(each, scale):f}" for each in unscaled))
    elif kind == "double" and bounded:
        domain = _bounds(*draw(_ordered(st.floats(allow_nan=False))))
    elif kind == "date" and bounded:
        domain = _bounds(*(f"'{each.isoformat()}'" for each in draw(_ordered(st.dates(date.min, date.max)))))
    elif kind == "timestamp" and bounded:
        moments = draw(_ordered(st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))))
        domain = _bounds(*(f"'{each.isoformat(sep=' ')}'" for each in moments))
    elif kind == "enum":
        values = draw(st.lists(texts, min_size=1, max_size=4, unique=True))
        kind = f"enum({', '.join(map(space_quoted, values))})"
    return kind + draw(st.sampled_from(["", " not null"])) + domain


@st.composite
def declarations(draw: st.DrawFn, size_max: int = 4) -> str:
    """A whole space as text: names that differ by more than case, every one of them in backticks."""
    chosen = draw(st.lists(names, min_size=1, max_size=size_max, unique_by=str.lower))
    return ", ".join(f"`{name}` {draw(declared_types())}" for name in chosen)
