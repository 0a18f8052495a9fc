"""Random conditions over a small space, each with its SQL and its meaning in plain Python: the oracle of regions.

The meaning is written from SQL's three-valued logic alone: True, False or None at one event. The values of a column
are complete: wherever the literals used here can change the truth of a condition, a value lies on either side.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from itertools import product
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from thatch.region.region import Region
from thatch.space.space import Space

Event = dict[str, Any]
Truth = bool | None


@dataclass(frozen=True)
class Column:
    name: str
    declared: str
    values: list[Any]
    literals: list[tuple[str, Any]]  # SQL and value
    is_finite: bool = True  # `values` are all there are

    @property
    def is_number(self) -> bool:
        return isinstance(self.literals[0][1], int | float | Decimal) and not isinstance(self.literals[0][1], bool)

    @property
    def is_text(self) -> bool:
        return isinstance(self.literals[0][1], str)


def _text(value: str) -> str:
    """Every character as an escape: nothing of the quoting under test is used here."""
    return "'" + "".join(f"\\u{ord(character):04x}" for character in value) + "'"


def _around(value: str) -> list[str]:
    """The strings where a comparison or a prefix with this text begins and ends to hold."""
    above = [value[:-1] + chr(ord(value[-1]) + 1)] if value else []
    return [value, value + "\0", *above]


_TEXTS = ["", "a", "ab", "b", "é"]
_DOUBLES = [0.0, 0.5, 1.0, 2.25]
_TENTHS = [Decimal(tenth).scaleb(-1) for tenth in range(6)]
_DAYS = [date(2020, 2, 27) + timedelta(days=step) for step in range(5)]

COLUMNS = [
    Column("n", "int -2..2", [None, *range(-2, 3)], [(str(v), v) for v in range(-3, 4)]),
    Column("m", "int not null 0..3", [*range(4)], [(str(v), v) for v in range(-1, 5)]),
    Column("f", "bool", [None, False, True], [("FALSE", False), ("TRUE", True)]),
    Column("e", "enum('b','a','c')", [None, "b", "a", "c"], [(_text(v), v) for v in ("a", "b", "bb", "c", "")]),
    Column("p", "decimal(2,1) not null 0..0.5", [*_TENTHS], [(f"{v:f}", v) for v in (*_TENTHS, Decimal("0.6"))]),
    Column("d", "date '2020-02-28'..'2020-03-01'", [None, *_DAYS[1:4]], [(f"DATE'{v}'", v) for v in _DAYS]),
    Column(
        "s", "string", [None, *sorted({t for v in _TEXTS for t in _around(v)})], [(_text(v), v) for v in _TEXTS], False
    ),
    Column(
        "x",
        "double not null 0..3",
        sorted({e for v in _DOUBLES for e in (v, math.nextafter(v, 9), max(math.nextafter(v, -9), 0.0))} | {3.0}),
        [(f"{v!r}D", v) for v in _DOUBLES],
        False,
    ),
]


@dataclass(frozen=True)
class Condition:
    sql: str
    holds: Callable[[Event], Truth]
    has_ball: bool = False


def negation(one: Condition) -> Condition:
    def holds(event: Event) -> Truth:
        truth = one.holds(event)
        return None if truth is None else not truth

    return Condition(f"NOT ({one.sql})", holds, one.has_ball)


def joined(word: str, one: Condition, other: Condition) -> Condition:
    decisive = word == "OR"  # one such part decides

    def holds(event: Event) -> Truth:
        truths = (one.holds(event), other.holds(event))
        if decisive in truths:
            return decisive
        return None if None in truths else not decisive

    return Condition(f"({one.sql}) {word} ({other.sql})", holds, one.has_ball or other.has_ball)


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _compared(value: Any, operator: str, literal: Any) -> Truth:
    return None if value is None or literal is None else _COMPARE[operator](value, literal)


@st.composite
def _atoms(draw: st.DrawFn, columns: list[Column]) -> Condition:
    column = draw(st.sampled_from(columns))
    name = column.name
    literals = st.sampled_from([*column.literals, *column.literals, ("NULL", None)])
    kinds = ["compare", "compare", "between", "in", "is null", "<=>"]
    kinds += ["bare", "is true"] if name == "f" else []
    kinds += ["like"] if column.is_text else []
    kind = draw(st.sampled_from(kinds))
    sql, literal = draw(literals)
    if kind == "compare":
        operator = draw(st.sampled_from(sorted(_COMPARE)))
        text = f"{name} {operator} {sql}" if draw(st.booleans()) else f"{sql} {_MIRRORED[operator]} {name}"
        return Condition(text, lambda event: _compared(event[name], operator, literal))
    if kind == "<=>":
        return Condition(f"{name} <=> {sql}", lambda event: event[name] == literal)
    if kind == "between":
        sql_high, high = draw(literals)
        lower = Condition("", lambda event: _compared(event[name], ">=", literal))
        upper = Condition("", lambda event: _compared(event[name], "<=", high))
        return Condition(f"{name} BETWEEN {sql} AND {sql_high}", joined("AND", lower, upper).holds)
    if kind == "in":
        members = draw(st.lists(literals, min_size=1, max_size=4))
        known = [value for _, value in members if value is not None]

        def listed(event: Event) -> Truth:
            if event[name] is None:
                return None
            return True if event[name] in known else (None if len(known) < len(members) else False)

        return Condition(f"{name} IN ({', '.join(sql for sql, _ in members)})", listed)
    if kind == "is null":
        return Condition(f"{name} IS NULL", lambda event: event[name] is None)
    if kind == "bare":
        return Condition(name, lambda event: event[name])
    if kind == "is true":
        wanted = draw(st.booleans())
        return Condition(f"{name} IS {str(wanted).upper()}", lambda event: event[name] is wanted)
    prefix = draw(st.sampled_from(_TEXTS))
    pattern, wild = _text(prefix), draw(st.booleans())
    return Condition(
        f"{name} LIKE {pattern[:-1]}{'%' if wild else ''}'",
        lambda event: (
            None if event[name] is None else (event[name].startswith(prefix) if wild else event[name] == prefix)
        ),
    )


@st.composite
def _balls(draw: st.DrawFn, columns: list[Column]) -> Condition:
    chosen = draw(st.lists(st.sampled_from(columns), min_size=1, max_size=2, unique_by=lambda column: column.name))
    radius = draw(st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.5]))
    centre = {column.name: draw(st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.0])) for column in chosen}

    def holds(event: Event) -> Truth:
        if any(event[name] is None for name in centre):
            return None
        offsets = [float(event[name]) - middle for name, middle in centre.items()]
        return sum(offset * offset for offset in offsets) <= radius * radius

    return Condition(f"within({radius}, {', '.join(f'{name}, {c}' for name, c in centre.items())})", holds, True)


@st.composite
def conditions(draw: st.DrawFn, columns: list[Column], size: int, balls: bool) -> Condition:
    """Of so many atoms; balls never below NOT."""
    numbers = [column for column in columns if column.is_number]
    if size <= 1:
        if balls and numbers and draw(st.integers(0, 3)) == 0:
            return draw(_balls(numbers))
        return draw(_atoms(columns))
    if draw(st.integers(0, 3)) == 0:
        return negation(draw(conditions(columns, size - 1, False)))
    left = draw(st.integers(1, size - 1))
    word = draw(st.sampled_from(["AND", "OR"]))
    return joined(word, draw(conditions(columns, left, balls)), draw(conditions(columns, size - left, balls)))


POINTS_MAX = 400


@dataclass(frozen=True)
class World:
    """A small space with all its events."""

    columns: list[Column]
    declared: str
    events: list[Event]

    @property
    def is_finite(self) -> bool:
        return all(column.is_finite for column in self.columns)

    def space(self) -> Space:
        return Space.parse(self.declared)

    def truth(self, condition: Condition) -> NDArray[np.bool_]:
        return np.array([condition.holds(event) is True for event in self.events], np.bool_)

    def found(self, region: Region) -> NDArray[np.bool_]:
        """What a region says of each event. Encoded anew every time: later strings divide earlier gaps."""
        return region.contains_batch({c.name: [event[c.name] for event in self.events] for c in self.columns})


@st.composite
def worlds(draw: st.DrawFn, finite: bool = False) -> World:
    pool = [column for column in COLUMNS if column.is_finite or not finite]
    chosen = draw(st.lists(st.sampled_from(pool), min_size=2, max_size=4, unique_by=lambda column: column.name))
    while math.prod(len(column.values) for column in chosen) > POINTS_MAX:
        chosen.pop()
    names = [column.name for column in chosen]
    events = [dict(zip(names, values, strict=True)) for values in product(*(column.values for column in chosen))]
    return World(chosen, ", ".join(f"{column.name} {column.declared}" for column in chosen), events)
