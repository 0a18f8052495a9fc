"""Where cells begin so that each holds as many events (MICS, 6.3), and how many events and subscriptions each has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from thatch.cover.box_rows import Boxed
from thatch.grid.grid import Grid
from thatch.learning.runs import runs
from thatch.space.arrays import Ints
from thatch.space.attribute import Attribute
from thatch.space.axis import Coordinates, LabelledAxis
from thatch.space.space import Space

SIDE = 16  # cells of each attribute of a grid to count on, apart from that of NULL
BOXES_AT_ONCE = 4_096  # that are compared with regions of cells


def boundaries(attribute: Attribute, texts: Sequence[str | None], coordinates: Coordinates, cells: int) -> list[Any]:
    """Where cells begin so that each holds as many events; fewer cells where events have few values. `texts` are the
    values of an axis with labels, whose coordinates stand for gaps only."""
    if isinstance(attribute.axis, LabelledAxis):
        values = sorted(value for value in texts if value is not None)
        chosen = [values[len(values) * step // cells] for step in range(1, cells)] if values else []
        return [value for value in dict.fromkeys(chosen) if value != values[0]]
    known = np.sort(coordinates[coordinates >= attribute.first])
    if not len(known):
        return []
    cuts = np.unique(known[len(known) * np.arange(1, cells) // cells])
    return [attribute.axis.decode(int(at)) for at in cuts if at > known[0]]


class CellGrid(NamedTuple):
    """A grid of cells over one or two attributes. Workers are sent it: its coordinates mean something only with the
    label codes of the space that it was made in."""

    columns: tuple[int, ...]  # numbers of attributes
    starts: tuple[Ints, ...]  # the first coordinate of each cell, by attribute

    @classmethod
    def of(cls, space: Space, names: Sequence[str], boundaries: Mapping[str, Sequence[Any]]) -> CellGrid:
        columns = [index for name in names if (index := space.index(name)) is not None]
        starts = []
        for name in names:
            own = list(boundaries[name])
            step = max(1, -(-len(own) // (SIDE - 1)))
            starts.append(Grid(space, [name], 6, cells={name: own[step - 1 :: step]}).starts[0])
        return cls(tuple(columns), tuple(starts))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(each) for each in self.starts)

    def cells_of(self, points: Sequence[Coordinates]) -> Ints:
        """The number of the cell of each point; `points` has a column for each attribute of the space."""
        cell = np.zeros(len(points[0]), np.int64)
        for at, own in zip(self.columns, self.starts, strict=True):
            cell = cell * len(own) + np.searchsorted(own, points[at], "right") - 1
        return cell

    def count_cells(self, cells: Ints) -> Ints:
        """How many of these are each cell, in the shape of the grid."""
        return np.bincount(cells, minlength=int(np.prod(self.shape))).reshape(self.shape)

    def count_boxes(self, boxed: Boxed) -> Ints:
        """How many subscriptions meet each cell. A cell counts once, however many boxes of a subscription meet it."""
        first, last = self._met(boxed)
        sizes = np.diff(boxed.starts)
        single = np.repeat(sizes == 1, sizes)
        counts = meeting([each[single] for each in first], [each[single] for each in last], self.shape)
        several = np.append(0, np.cumsum(sizes[sizes > 1]))
        cells = [CellBox(at, at) for at in np.ndindex(self.shape)]
        unions = count_unions([each[~single] for each in first], [each[~single] for each in last], several, cells)
        return counts + unions.reshape(self.shape)

    def count_boxes_in(self, boxed: Boxed, regions: Sequence[CellBox]) -> Ints:
        """How many subscriptions meet each of these boxes of cells."""
        return count_unions(*self._met(boxed), boxed.starts, regions)

    def _met(self, boxed: Boxed) -> tuple[list[Ints], list[Ints]]:
        """The first and the last cell of each box, by attribute."""
        first, last = (
            [np.searchsorted(own, side[:, at], "right") - 1 for at, own in zip(self.columns, self.starts, strict=True)]
            for side in (boxed.low, boxed.high)
        )
        return first, last

    def bounds(self, box: CellBox, space: Space) -> tuple[list[int], list[int]]:
        """A box of cells as a box of the space."""
        low, high = space.low[0].copy(), space.high[0].copy()
        for at, own, first, last in zip(self.columns, self.starts, box.first, box.last, strict=True):
            low[at] = own[first]
            high[at] = own[last + 1] - 1 if last + 1 < len(own) else space.high[0][at]
        return low.tolist(), high.tolist()


class CellBox(NamedTuple):
    """A box of cells, from the first to the last one of each attribute."""

    first: tuple[int, ...]
    last: tuple[int, ...]

    @property
    def slices(self) -> tuple[slice, ...]:
        return tuple(slice(first, last + 1) for first, last in zip(self.first, self.last, strict=True))


def count_unions(first: Sequence[Ints], last: Sequence[Ints], starts: Ints, regions: Sequence[CellBox]) -> Ints:
    """How many unions of boxes meet each of some boxes of cells. The boxes, first to last on each axis, of the i-th
    union are starts[i] to starts[i + 1]."""
    counts = np.zeros(len(regions), np.int64)
    begins = starts[:-1][np.diff(starts) > 0]
    ends = np.append(begins, starts[-1])[1:]
    for start, stop in runs(ends - begins, BOXES_AT_ONCE):
        own = slice(begins[start], ends[stop - 1])
        meets = np.ones((own.stop - own.start, len(regions)), np.bool_)
        for axis, (low, high) in enumerate(zip(first, last, strict=True)):
            least = np.array([each.first[axis] for each in regions], np.int64)
            most = np.array([each.last[axis] for each in regions], np.int64)
            meets &= (low[own, None] <= most) & (high[own, None] >= least)
        counts += np.logical_or.reduceat(meets, begins[start:stop] - own.start, axis=0).sum(axis=0)
    return counts


def meeting(first: Sequence[Ints], last: Sequence[Ints], shape: tuple[int, ...]) -> Ints:
    """How many boxes of cells, first to last on each axis, hold each cell: sums of what begins minus what has ended."""
    steps = np.zeros([size + 1 for size in shape], np.int64)
    for corner in np.ndindex(*[2] * len(shape)):
        place = tuple(last[axis] + 1 if end else first[axis] for axis, end in enumerate(corner))
        np.add.at(steps, place, -1 if sum(corner) % 2 else 1)
    for axis in range(len(shape)):
        steps = np.cumsum(steps, axis=axis)
    return np.asarray(steps[tuple(slice(size) for size in shape)])
