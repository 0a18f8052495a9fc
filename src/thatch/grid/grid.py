"""A grid: some attributes of a space, each cut into cells, and a curve through the cells (MICS).

Each axis has up to 2^bits cells. They are equal in *value*, not in coordinates: in the order of doubles [0, 1] is a
hundred times as long as [1, 1000]. Given quantiles (or any values) they begin there instead: finer where there are more
events (MICS, 6.3). NULL has a cell of its own, the first, so that a box without NULL need not give up its neighbours.

A box becomes two boxes of cells: those that it meets (`around`: for telling and matching, where more is safe), and
those that lie in it (`inside`: for covering, where less is). Attributes that are not in the grid are not told apart, so
only a box that is whole in all of them has cells inside.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from thatch.errors import CallerError, suggestion
from thatch.grid.curve import AXES_MAX, INDEX_BITS_MAX, Curve, curve, find_ranges, indexes
from thatch.jit import kernel
from thatch.space.arrays import Ints, lower_bound, upper_bound
from thatch.space.attribute import Attribute
from thatch.space.axis import LabelledAxis
from thatch.space.floating import FloatingAxis
from thatch.space.space import Space

BITS = 8
ATTRIBUTES = 4  # of a grid for which none were chosen: ranges grow with the surface
RANGES_MAX = 4_096  # of one box
CELLS_MAX = 1 << 16  # that an attribute is cut into where no cells are given


@kernel
def box_of_cells(
    cuts: Ints,
    counts: Ints,
    last: int,
    edges: Ints,
    columns: Ints,
    low: Ints,
    high: Ints,
    is_inner: bool,
    out_low: Ints,
    out_high: Ints,
) -> bool:
    """The cells that a box meets, or that lie in it, as a box of cells; False if there are none.

    A box that reaches the end of an axis has all cells behind the last one too, which are of nobody: more of its
    ranges are whole blocks then.
    """
    for place in range(len(columns)):
        at, count, starts = columns[place], counts[place], cuts[place]
        first = lower_bound(starts, 0, count, low[at])  # the first cell that begins in the box or behind it
        if not is_inner and (first == count or starts[first] != low[at]):
            first -= 1
        end = last
        if high[at] < edges[1, at]:
            end = lower_bound(starts, 0, count, high[at] + 1)  # the first that begins behind the box
            end -= 1 if not is_inner or (end < count and starts[end] == high[at] + 1) else 2
        if first > end:
            return False
        out_low[place], out_high[place] = first, end
    return True


@kernel
def numbers_of_points(path: Curve, cuts: Ints, counts: Ints, columns: Ints, points: Ints) -> Ints:
    """The numbers of the cells of points [n, d]."""
    cells, out = np.empty((len(points), len(columns)), np.int64), np.empty(len(points), np.int64)
    for row in range(len(points)):
        for place in range(len(columns)):
            cells[row, place] = upper_bound(cuts[place], 0, counts[place], points[row, columns[place]]) - 1
    indexes(path, cells, out)
    return out


@kernel
def ranges_of_boxes(
    path: Curve, cuts: Ints, counts: Ints, last: int, edges: Ints, columns: Ints, low: Ints, high: Ints, ranges_max: int
) -> tuple[Ints, Ints]:
    """The ranges of the cells that boxes meet, and which box each is of."""
    least, most = np.empty(len(columns), np.int64), np.empty(len(columns), np.int64)
    found, out, owner, used = (
        np.empty((ranges_max, 2), np.int64),
        np.empty((64, 2), np.int64),
        np.empty(64, np.int64),
        0,
    )
    for box in range(len(low)):
        box_of_cells(cuts, counts, last, edges, columns, low[box], high[box], False, least, most)
        count = find_ranges(path, least, most, False, 0, found)
        if used + count > len(out):
            size = 2 * (used + count)
            larger, owners = np.empty((size, 2), np.int64), np.empty(size, np.int64)
            for place in range(used):
                larger[place, 0], larger[place, 1], owners[place] = out[place, 0], out[place, 1], owner[place]
            out, owner = larger, owners
        for place in range(count):
            out[used, 0], out[used, 1], owner[used] = found[place, 0], found[place, 1], box
            used += 1
    return out[:used], owner[:used]


class Grid:
    """
    >>> space = Space.parse("x int not null 0..7, y int not null 0..7")
    >>> grid = Grid(space, bits=3)
    >>> grid.around(np.array([4, 2]), np.array([6, 5])).tolist()
    [[32, 35], [45, 46], [50, 55]]
    """

    def __init__(
        self,
        space: Space,
        attributes: Sequence[str] | None = None,
        bits: int = BITS,
        path: str = "hilbert",
        cells: Mapping[str, Iterable[Any]] | None = None,
        ranges_max: int = RANGES_MAX,
    ) -> None:
        """`cells` are the values at which cells of an attribute begin, except the first."""
        cells = None if cells is None else {name: tuple(values) for name, values in cells.items()}
        names = [attribute.name for attribute in space.attributes]
        chosen = names[:ATTRIBUTES] if attributes is None else list(attributes)
        self.space = space
        self._given = attributes, bits, path, cells, ranges_max
        self.attributes = tuple(_index(space, name) for name in chosen)
        if not chosen or len(set(self.attributes)) != len(chosen):
            raise CallerError(f"a grid has one or more attributes, each once, not {', '.join(chosen) or 'none'}")
        if len(chosen) > AXES_MAX or bits < 1 or len(chosen) * bits > INDEX_BITS_MAX:
            raise CallerError(
                f"a grid has at most {AXES_MAX} attributes and {INDEX_BITS_MAX} bits, not {len(chosen)} of {bits} each"
            )
        if ranges_max < 1:
            raise CallerError(f"ranges_max is at least 1, not {ranges_max}")
        self.bits, self.path, self.ranges_max = bits, curve(path, len(chosen), bits), ranges_max
        self.index_bits = bits * len(chosen)
        given = {_index(space, name): values for name, values in (cells or {}).items()}
        if not given.keys() <= set(self.attributes):
            raise CallerError("cells are given for an attribute that is not in the grid")
        self.starts = [_starts(space.attributes[at], 1 << bits, given.get(at)) for at in self.attributes]
        self.others = np.array([at for at in range(len(space)) if at not in self.attributes], np.int64)
        self.columns = np.array(self.attributes, np.int64)
        self._edges = np.stack((space.low[0], space.high[0]))
        self._last = (1 << bits) - 1
        self._counts = np.array([len(starts) for starts in self.starts], np.int64)
        self._cuts = np.zeros((len(chosen), max(map(len, self.starts))), np.int64)
        for place, starts in enumerate(self.starts):
            self._cuts[place, : len(starts)] = starts
        self._low, self._high = np.zeros(len(chosen), np.int64), np.zeros(len(chosen), np.int64)
        self._out = np.empty((ranges_max, 2), np.int64)

    def again(self) -> Grid:
        """The same, in the present coordinates: for after an axis was recoded."""
        return Grid(self.space, *self._given)

    @property
    def id(self) -> str:
        """The same for grids that number cells alike: two sides that agree on it may exchange numbers. Labels
        are coordinates only within one process, so a grid with a labelled attribute has no such name."""
        digest = hashlib.sha256(self.space.fingerprint.encode())
        digest.update(repr((self.attributes, self.bits, self.path.half.tobytes())).encode())
        for at, starts in zip(self.attributes, self.starts, strict=True):
            if isinstance(self.space.attributes[at].axis, LabelledAxis):
                return ""
            digest.update(starts.tobytes())
        return digest.hexdigest()[:16]

    def around(self, low: Ints, high: Ints, gap: int = 0) -> Ints:
        """The ranges [n, 2] of the cells that a box low..high of the space meets; of coarser blocks where they would be
        too many. Ranges at most `gap` apart are one."""
        self._find_cells(low, high, False)
        return self._out[: find_ranges(self.path, self._low, self._high, False, gap, self._out)].copy()

    def inside(self, low: Ints, high: Ints) -> Ints:
        """The ranges of the cells that lie in a box, or of the blocks that do."""
        least, most = self._edges[:, self.others]
        is_whole = (low[self.others] == least).all() and (high[self.others] == most).all()
        if not is_whole or not self._find_cells(low, high, True):
            return self._out[:0].copy()
        return self._out[: find_ranges(self.path, self._low, self._high, True, 0, self._out)].copy()

    def cells_around(self, low: Ints, high: Ints) -> tuple[Ints, Ints]:
        """The cells that a box meets, as a box of cells."""
        self._find_cells(low, high, False)
        return self._low.copy(), self._high.copy()

    def _find_cells(self, low: Ints, high: Ints, is_inner: bool) -> bool:
        return box_of_cells(
            self._cuts, self._counts, self._last, self._edges, self.columns, low, high, is_inner, self._low, self._high
        )

    def around_many(self, low: Ints, high: Ints) -> tuple[Ints, Ints]:
        """The ranges [n, 2] around boxes [m, d], and which box each is of. Threads may ask at once."""
        return ranges_of_boxes(
            self.path, self._cuts, self._counts, self._last, self._edges, self.columns, low, high, self.ranges_max
        )  # fmt: skip

    def numbers(self, points: Ints) -> Ints:
        """The numbers of the cells of points [n, d]."""
        return numbers_of_points(self.path, self._cuts, self._counts, self.columns, points)

    @property
    def nbytes(self) -> int:
        return int(self._cuts.nbytes + self._out.nbytes)


def _index(space: Space, name: str) -> int:
    index = space.index(name)
    if index is None:
        raise CallerError(f"no attribute {name!r} in {space}{suggestion(name, (each.name for each in space))}")
    return index


def _starts(attribute: Attribute, cells: int, values: Iterable[Any] | None) -> Ints:
    """Where the cells of an attribute begin, ascending; the first at its least coordinate."""
    first, last = attribute.first, attribute.last
    room = cells - 1 if attribute.nullable else cells
    if values is not None:
        found = {int(attribute.encode(value)) for value in values}
        starts = sorted(at for at in found if first < at <= last)
        if len(starts) >= room:
            raise CallerError(
                f"attribute {attribute.name!r}: {len(starts) + 1} cells are more than {cells}: give fewer, or more bits"
            )
    elif isinstance(attribute.axis, FloatingAxis) and _is_finite(attribute):
        low, high = attribute.axis.double(first), attribute.axis.double(last)
        count = min(room, CELLS_MAX)
        shares = (step / count for step in range(1, count))
        edges = {attribute.axis.last_upto(low * (1 - share) + high * share) for share in shares}
        starts = sorted(at for at in edges if first < at <= last)
    else:
        count = min(room, last - first + 1, CELLS_MAX)
        starts = sorted({first + (last - first + 1) * step // count for step in range(1, count)})
    return np.array([*([attribute.low] if attribute.nullable else []), first, *starts], np.int64)


def _is_finite(attribute: Attribute) -> bool:
    return all(math.isfinite(attribute.axis.double(end)) for end in (attribute.first, attribute.last))
