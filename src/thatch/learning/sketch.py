"""What samples say of a space: which attributes to index, where cells begin, and the grid to count on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from thatch.errors import CallerError, shown
from thatch.grid.grid import BITS
from thatch.learning.cells import CellGrid, boundaries
from thatch.learning.selectivity import Selectivity, indexed, selectivities
from thatch.space.arrays import Ints
from thatch.space.axis import LabelledAxis
from thatch.space.space import Space

EVENTS = 10_000  # of a sample
BOXES = 10_000  # subscriptions of a sample
CELLS = 1 << BITS  # that each attribute is cut into, if nothing else is asked for
COUNTED = 2  # attributes of the grid to count on


def check_cells(cells: int) -> None:
    if not isinstance(cells, int) or cells < 2:
        raise CallerError(f"cells is a number of at least 2, not {shown(cells)}")


@dataclass(frozen=True)
class Sketch:
    selectivity: list[Selectivity]  # in the order in which to index
    attributes: list[str]  # worth an index, the best first
    boundaries: dict[str, list[Any]]  # where cells begin, by attribute
    grid: CellGrid  # of the two best attributes
    cells: Ints  # of the grid, in which the sampled events are

    @classmethod
    def of(
        cls, space: Space, boxes: tuple[Ints, Ints], points: Ints, texts: Callable[[str], Sequence[Any]], cells: int
    ) -> Sketch:
        """`boxes` low[n, d], high[n, d] are of sampled subscriptions, `points` [m, d] are sampled events; `texts` gives
        the values of an attribute with labels, by its name."""
        found = selectivities(space, *boxes, points)
        starts = {
            each.name: boundaries(
                each, texts(each.name) if isinstance(each.axis, LabelledAxis) else (), points[:, at], cells
            )
            for at, each in enumerate(space.attributes)
        }
        grid = CellGrid.of(space, [each.attribute for each in found[:COUNTED]], starts)
        return cls(found, indexed(found), starts, grid, grid.cells_of(list(points.T)))
