"""Many subscriptions as rows of boxes in coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from thatch.cover.breadth import boxes_of, breadths
from thatch.region.region import Region
from thatch.region.term import boxes_to_terms
from thatch.space.arrays import Floats, Ints
from thatch.space.space import Space

if TYPE_CHECKING:
    import pyarrow as pa


class Boxed(NamedTuple):
    """Some subscriptions as boxes low[m, d], high[m, d]; those of row i are starts[i] to starts[i + 1]. A row without
    a box is one that no event can match."""

    ids: pa.Array
    low: Ints
    high: Ints
    starts: Ints
    odd: dict[int, Region]  # rows of which the boxes are only those around

    def breadths(self, space: Space) -> Floats:
        """Of rows without a box, nothing that means anything."""
        found = np.zeros(len(self.ids))
        full = np.flatnonzero(np.diff(self.starts) > 0)
        if len(full):
            found[full] = breadths(self.low, self.high, np.append(self.starts[full], len(self.low)), space)
        return found

    def region(self, row: int, space: Space) -> Region:
        if row in self.odd:
            return self.odd[row]
        own = slice(self.starts[row], self.starts[row + 1])
        return Region(space, boxes_to_terms(self.low[own], self.high[own], space))


def boxed_regions(ids: pa.Array, regions: Sequence[Region], space: Space) -> Boxed:
    nothing = np.zeros((0, len(space)), np.int64)
    lows, highs, sizes, odd = [nothing], [nothing], [0], dict[int, Region]()
    for row, region in enumerate(regions):
        if region.is_empty:
            sizes.append(0)
            continue
        low, high, whole = boxes_of(region)
        if not whole:
            odd[row] = region
        lows.append(low)
        highs.append(high)
        sizes.append(len(low))
    return Boxed(ids, np.concatenate(lows), np.concatenate(highs), np.cumsum(sizes), odd)
