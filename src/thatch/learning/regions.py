"""Where events are and where subscriptions are, and the regions that have the one and lack the other.

A cell without a subscription is one that no subscription meets, so nobody wants what happens there. A cell without an
event had none in the whole table. Cells of one kind are merged into boxes of cells: the heaviest box of cells of the
kind first, then the heaviest of the rest, and so on. The boxes are disjoint, and together they are the cells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from thatch.learning.cells import CellBox, CellGrid
from thatch.learning.words import box_words
from thatch.region.box_sets import region_of_box
from thatch.space.arrays import Ints
from thatch.space.space import Space

NO_SUBSCRIPTION, NO_EVENT = "no subscription", "no event"


@dataclass(frozen=True)
class Places:
    """Counts [cells of the first attribute, cells of the second]; of one attribute, the second has one cell."""

    attributes: list[str]
    clauses: list[list[str]]
    events: Ints
    sampled: Ints
    unwanted: Ints  # sampled events that nobody wants
    subscriptions: Ints

    @classmethod
    def of(cls, grid: CellGrid, space: Space, *counts: Ints) -> Places:
        """Of counts in the shape of the grid: events, sampled, unwanted, subscriptions."""
        names = [space.attributes[at].name for at in grid.columns]
        wide = [each if each.ndim == 2 else each[:, None] for each in counts]
        cells = [[_clause(grid, CellBox(at, at), space) for at in row] for row in _places(grid.shape)]
        return cls(names, cells, *wide)


def _places(shape: tuple[int, ...]) -> list[list[tuple[int, ...]]]:
    if len(shape) == 1:
        return [[(first,)] for first in range(shape[0])]
    return [[(first, second) for second in range(shape[1])] for first in range(shape[0])]


def _clause(grid: CellGrid, box: CellBox, space: Space) -> str:
    return region_of_box(*grid.bounds(box, space), space).to_sql()


def merged_cells(weights: Ints) -> list[CellBox]:
    """Boxes of the cells that have a weight above 0: disjoint, together all of them, and found the heaviest first.

    >>> merged_cells(np.array([[1, 2, 0], [3, 4, 2]]))
    [CellBox(first=(0, 0), last=(1, 1)), CellBox(first=(1, 2), last=(1, 2))]
    """
    wide = weights if weights.ndim == 2 else weights[:, None]
    rows, columns = (np.stack(np.triu_indices(size)) for size in wide.shape)
    row, column = (each.ravel() for each in np.indices((rows.shape[1], columns.shape[1])))
    boxes = np.stack((rows[0][row], columns[0][column], rows[1][row], columns[1][column]))
    area = (boxes[2] - boxes[0] + 1) * (boxes[3] - boxes[1] + 1)
    full = _sums(wide > 0, boxes) == area
    boxes, area = boxes[:, full], area[full]
    order = np.lexsort((-area, -_sums(wide, boxes)))
    boxes = boxes[:, order]
    found = []
    while boxes.shape[1]:
        top, left, bottom, right = boxes[:, 0].tolist()
        found.append(CellBox((top, left)[: weights.ndim], (bottom, right)[: weights.ndim]))
        apart = (boxes[0] > bottom) | (boxes[2] < top) | (boxes[1] > right) | (boxes[3] < left)
        boxes = boxes[:, apart]
    return found


def _sums(values: Any, boxes: Ints) -> Ints:
    """What boxes [top, left, bottom, right] hold of a matrix."""
    total = np.zeros((values.shape[0] + 1, values.shape[1] + 1), np.int64)
    total[1:, 1:] = values.astype(np.int64).cumsum(axis=0).cumsum(axis=1)
    top, left, bottom, right = boxes
    return np.asarray(total[bottom + 1, right + 1] - total[top, right + 1] - total[bottom + 1, left] + total[top, left])


class OneSidedRegion(NamedTuple):
    """A region that has events and no subscription, or subscriptions and no event. Events are counted over all of them;
    of the sample, `sampled` are there and `unwanted` are those that nobody wants. Subscriptions are those that meet the
    region, each counted once."""

    kind: str
    where: str
    words: str
    events: int
    sampled: int
    unwanted: int
    subscriptions: int


def one_sided_regions(
    grid: CellGrid,
    space: Space,
    counts: Sequence[Ints],
    subscriptions: Ints,
    count_in: Callable[[Sequence[CellBox]], Ints],
) -> list[OneSidedRegion]:
    """Those that nobody wants first, by events; then those without an event, by subscriptions. `counts` are by cell:
    events, sampled, unwanted; so are the subscriptions that meet each cell. `count_in` counts those that meet boxes of
    cells: one that meets several cells of a box counts once."""
    events = counts[0]
    lonely = merged_cells(np.where(subscriptions == 0, events, 0))
    idle = merged_cells(np.where(events == 0, subscriptions, 0))
    found = [_region(NO_SUBSCRIPTION, grid, box, space, counts, 0) for box in lonely]
    found += [
        _region(NO_EVENT, grid, box, space, counts, int(wanted))
        for box, wanted in zip(idle, count_in(idle), strict=True)
    ]
    return sorted(found, key=lambda row: (row.kind == NO_EVENT, -row.events, -row.subscriptions, row.where))


def _region(
    kind: str, grid: CellGrid, box: CellBox, space: Space, counts: Sequence[Ints], wanted: int
) -> OneSidedRegion:
    low, high = grid.bounds(box, space)
    events, sampled, unwanted = (int(each[box.slices].sum()) for each in counts)
    clause, words = region_of_box(low, high, space).to_sql(), box_words(low, high, space)
    return OneSidedRegion(kind, clause, words, events, sampled, unwanted, wanted)
