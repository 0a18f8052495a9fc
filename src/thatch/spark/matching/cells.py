"""Cells: how the strategy `native` turns nearness into equality, which is all that a hash join knows.

A key is up to three attributes, each divided into cells. An event has one cell of a key; a subscription has all those
that its box touches, and is written once for each. So an event and a subscription that wants it share a cell, each pair
once, because an event is in one cell only.

Subscriptions bound different attributes and differ in width, so there may be several keys: a subscription takes the
one of which it touches the fewest cells. What would touch too many of any has the empty key, with a single cell: it is
compared with every event.

Cells of numbers and times are ranges: a few pieces between quantiles of the events, each cut evenly. The cell of a
value is a monotone expression of it, the same for events and for bounds, so a value between two bounds has a cell
between theirs, whatever the rounding. Cells of strings, enums and bools are hashes of single values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from thatch.space.attribute import Attribute
from thatch.space.axis import BoolAxis, DateAxis, EnumAxis, StringAxis, TimestampAxis, TimestampNtzAxis
from thatch.spark.text import case_sql, double_sql

BITS = 18  # of a cell's number within one attribute
HASHES = 1 << BITS
ATTRIBUTES_MAX = 3  # of a key
CELLS_MAX = 64  # that a subscription may touch by ranges
VALUES_MAX = 100_000  # that a set may have, to be taken value by value


def is_hashed(attribute: Attribute) -> bool:
    """Whether its cells are hashes of single values."""
    return isinstance(attribute.axis, BoolAxis | EnumAxis | StringAxis)


def position(value: str, attribute: Attribute) -> str:
    """A number or time as a double, monotonely."""
    if isinstance(attribute.axis, DateAxis):
        value = f"unix_date({value})"
    elif isinstance(attribute.axis, TimestampAxis):
        value = f"unix_micros({value})"
    elif isinstance(attribute.axis, TimestampNtzAxis):  # no zone may come in: clocks are put back
        day = f"unix_date(CAST({value} AS DATE)) * 86400D"
        value = f"({day} + hour({value}) * 3600 + minute({value}) * 60 + extract(SECOND FROM {value})) * 1000000D"
    return f"CAST({value} AS DOUBLE)"


def hashed(value: str) -> str:
    return f"pmod(xxhash64({value}), {HASHES}L)"


def hashes(values: str) -> str:
    """The hashes of an array of values."""
    return f"transform({values}, __thatch_value -> {hashed('__thatch_value')})"


class AxisGrid(msgspec.Struct, frozen=True):
    """The cells of one attribute: between each two knots, so many; or hashes, if there are no knots."""

    attribute: int
    knots: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        return sum(self.counts) if self.knots else HASHES

    def cell(self, place: str) -> str:
        """The cell of a position; NULL of NULL. What lies beyond the knots is in the first or the last cell."""
        starts = np.cumsum((0, *self.counts)).tolist()
        branches = [
            (f"isnan({place}) OR {place} >= {double_sql(self.knots[-1])}", f"{self.size - 1}L"),
            (f"{place} < {double_sql(self.knots[0])}", "0L"),
        ]
        for piece, count in enumerate(self.counts):
            low, high = self.knots[piece], self.knots[piece + 1]
            # NaN where 0 meets a scale beyond all doubles
            share = f"nanvl(({place} - {double_sql(low)}) * {double_sql(count / (high - low))}, 0D)"
            cell = f"{starts[piece]} + floor(least({share}, {double_sql(count - 1.0)}))"
            branches.append((f"{place} < {double_sql(high)}", cell))
        return case_sql(*branches)

    def cells(self, places: Any) -> Any:
        """The same of an array, for estimates; NaN stands for NULL as well."""
        cells = np.zeros(places.shape, np.int64)
        starts = np.cumsum((0, *self.counts))
        with np.errstate(invalid="ignore", over="ignore"):
            for piece, count in enumerate(self.counts):
                low, high = self.knots[piece], self.knots[piece + 1]
                own = (places >= low) & (places < high)
                inside = np.nan_to_num((places - low) * (count / (high - low)), nan=0.0, posinf=0.0, neginf=0.0)
                cells = np.where(own, starts[piece] + np.minimum(inside.astype(np.int64), count - 1), cells)
        return np.where((places >= self.knots[-1]) | np.isnan(places), self.size - 1, cells)


Key = tuple[AxisGrid, ...]


def code(key: str, cells: Sequence[str]) -> str:
    """One number for a key and a cell of each of its attributes; NULL if one is."""
    total = f"CAST({key} AS BIGINT)"
    for place in range(ATTRIBUTES_MAX):
        total = f"shiftleft({total}, {BITS})"
        if place < len(cells):
            total = f"{total} + {cells[place]}"
    return total


def code_of(key: int, cells: Sequence[int]) -> int:
    """`code` for numbers in Python."""
    for place in range(ATTRIBUTES_MAX):
        key = (key << BITS) + (cells[place] if place < len(cells) else 0)
    return key
