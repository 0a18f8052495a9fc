"""Matching by cells between brokers (MICS): who wants an event is one look-up of a number for each link.

Where both sides of a link agree on a partition (`Grid.id`, said in `Hello`), an event carries the number of its cell,
which the publisher's broker computes once, and a subscription the ranges of its cells, which the subscriber's broker
does. A broker on the way neither reads the values of an event nor searches its index: it looks the number up. A cell is
coarser than a region, so an event may go further than it has to; where clients are, the match is exact.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from thatch.cover.cells import cells_around
from thatch.cover.ranges import RangeTable
from thatch.errors import CallerError, PeerError
from thatch.grid.grid import Grid
from thatch.region.region import Region
from thatch.space.arrays import Ints
from thatch.space.space import Space

CLIENTS = ""  # the one link that stands for all clients


class Cells(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A partition. Strings have no cells that others know."""

    attributes: tuple[str, ...] | None = None  # the first four, if none are named
    bits: int = 8  # cells of an attribute: up to 2^bits
    path: str = "hilbert"  # or "z", "gray"
    ranges_max: int = 64  # of one subscription: with more it is sent in coarser cells

    def grid(self, space: Space) -> Grid:
        grid = Grid(space, self.attributes, self.bits, self.path, ranges_max=self.ranges_max)
        if not grid.id:
            raise CallerError(
                "strings and decimals of more than 18 digits have no cells that a neighbour understands: choose other "
                "attributes"
            )
        return grid


class LinkCells:
    """What came over each link, as ranges of cells."""

    def __init__(self, grid: Grid) -> None:
        self.grid, self.id = grid, grid.id
        self.end = 1 << grid.index_bits  # of the numbers
        self._tables: dict[str, RangeTable] = {}
        self._owners: dict[tuple[str, str], tuple[str, int, Ints]] = {}  # (link, id) -> table, owner, ranges
        self._next = 0

    def put(self, link: str, id: str, table: str, region: Region, ranges: Sequence[int] = ()) -> None:
        """`table`: the link, or `CLIENTS`. `ranges`: as the neighbour sent them, flat; else they are computed."""
        self.drop(link, id)
        own = self._checked(ranges) if ranges else cells_around(self.grid, region)
        self._tables.setdefault(table, RangeTable()).add(self._next, own)
        self._owners[link, id] = table, self._next, own
        self._next += 1

    def _checked(self, ranges: Sequence[int]) -> Ints:
        if len(ranges) % 2 or not all(isinstance(each, int) for each in ranges):
            raise PeerError(f"ranges of cells are pairs of numbers, not {len(ranges)} of them")
        if (
            ranges[0] < 0
            or ranges[-1] >= self.end
            or any(a >= b for a, b in zip(ranges[1::2], ranges[2::2], strict=False))
        ):
            raise PeerError(f"ranges of cells ascend, are apart, and lie within 0..{self.end - 1}")
        if any(a > b for a, b in zip(ranges[::2], ranges[1::2], strict=True)):
            raise PeerError("a range of cells ends where it begins, or later")
        return np.array(ranges, np.int64).reshape(-1, 2)

    def drop(self, link: str, id: str) -> None:
        found = self._owners.pop((link, id), None)
        if found is not None:
            table, owner, _ = found
            self._tables[table].remove(owner)

    def wanting(self, number: int) -> list[str]:
        """The links over which somebody wants events of a cell, and `CLIENTS`."""
        return [name for name, table in self._tables.items() if table.holds(number)]

    def number(self, point: Sequence[int]) -> int:
        return int(self.grid.numbers(np.array([point], np.int64))[0])

    def ranges(self, link: str, id: str) -> tuple[int, ...]:
        """The ranges of a subscription's cells, flat, for a neighbour."""
        found = self._owners.get((link, id))
        return () if found is None else tuple(found[2].ravel().tolist())

    def __len__(self) -> int:
        return len(self._owners)

    def check_invariants(self) -> None:
        for table in self._tables.values():
            table.check_invariants()
