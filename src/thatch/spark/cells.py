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
from functools import reduce
from operator import and_
from typing import Any

import msgspec
import numpy as np
from pyspark.sql import Column
from pyspark.sql import functions as F

from thatch.axis import BoolAxis, DateAxis, EnumAxis, StringAxis, TimestampAxis
from thatch.space import Attribute

BITS = 18  # of a cell's number within one attribute
HASHES = 1 << BITS
ATTRIBUTES_MAX = 3  # of a key
CELLS_MAX = 64  # that a subscription may touch by ranges
VALUES_MAX = 100_000  # that a set may have, to be taken value by value


def is_hashed(attribute: Attribute) -> bool:
    """Whether its cells are hashes of single values."""
    return isinstance(attribute.axis, BoolAxis | EnumAxis | StringAxis)


def position(value: Column, attribute: Attribute) -> Column:
    """A number or time as a double, monotonely."""
    if isinstance(attribute.axis, DateAxis):
        value = F.unix_date(value)
    elif isinstance(attribute.axis, TimestampAxis):
        value = F.unix_micros(value)
    return value.cast("double")


def hashed(value: Column) -> Column:
    return F.pmod(F.xxhash64(value), F.lit(HASHES)).cast("bigint")


class Grid(msgspec.Struct, frozen=True):
    """The cells of one attribute: between each two knots, so many; or hashes, if there are no knots."""

    attribute: int
    knots: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        return sum(self.counts) if self.knots else HASHES

    def cell(self, place: Column) -> Column:
        """The cell of a position; NULL of NULL. What lies beyond the knots is in the first or the last cell."""
        starts = np.cumsum((0, *self.counts)).tolist()
        found = F.when(F.isnan(place) | (place >= self.knots[-1]), F.lit(self.size - 1).cast("bigint"))
        found = found.when(place < self.knots[0], F.lit(0).cast("bigint"))
        for piece, count in enumerate(self.counts):
            low, high = self.knots[piece], self.knots[piece + 1]
            share = (place - low) * (count / (high - low))  # NaN where 0 meets a scale beyond all doubles
            cell = F.lit(starts[piece]) + F.floor(F.least(F.nanvl(share, F.lit(0.0)), F.lit(float(count - 1))))
            found = found.when(place < high, cell)
        return F.when(place.isNotNull(), found)

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


Key = tuple[Grid, ...]


def code(key: Column, cells: Sequence[Column]) -> Column:
    """One number for a key and a cell of each of its attributes; NULL if one is."""
    total = key.cast("bigint")
    for place in range(ATTRIBUTES_MAX):
        total = F.shiftleft(total, BITS)
        if place < len(cells):
            total = total + cells[place]
    return total


def code_of(key: int, cells: Sequence[int]) -> int:
    """The same of numbers."""
    for place in range(ATTRIBUTES_MAX):
        key = (key << BITS) + (cells[place] if place < len(cells) else 0)
    return key


def together(conditions: Sequence[Column]) -> Column:
    return reduce(and_, conditions, F.lit(True))
