"""Many plain boxes as two arrays of coordinates, low[n, d] and high[n, d], and as regions."""

from __future__ import annotations

from collections.abc import Sequence, Sized

import numpy as np

from thatch.errors import CallerError
from thatch.region.intervals import Intervals
from thatch.region.region import Region
from thatch.region.term import Term
from thatch.space.axis import Coordinates
from thatch.space.space import Space

Boxes = tuple[Coordinates, Coordinates]


def as_boxes(ids: Sized, regions: Sequence[Region] | Boxes, space: Space) -> Boxes | None:
    """The arrays of a batch given as low[n, d], high[n, d], checked; None for a sequence of regions."""
    if not (isinstance(regions, tuple) and len(regions) == 2 and isinstance(regions[0], np.ndarray)):
        return None
    low, high = (np.ascontiguousarray(side, np.int64) for side in regions)
    if not low.shape == high.shape == (len(ids), len(space)):
        raise CallerError(f"{len(ids)} boxes of {len(space)} attributes, not {low.shape} and {high.shape}")
    from thatch.region.boxes import first_beyond

    beyond = first_beyond(low, high, space.low[0], space.high[0])
    if beyond >= 0:
        attribute = space.attributes[beyond]
        raise CallerError(f"attribute {attribute.name!r}: a box reaches beyond {attribute.low}..{attribute.last}")
    return low, high


def as_regions(ids: Sized, regions: Sequence[Region] | Boxes, space: Space) -> list[Region]:
    """A batch as regions of the space, all checked before one is used."""
    boxes = as_boxes(ids, regions, space)
    if boxes is not None:
        return [region_of_box(*each, space) for each in zip(boxes[0].tolist(), boxes[1].tolist(), strict=True)]
    checked = [region for region in regions if isinstance(region, Region)]
    if len(checked) != len(ids) or len(regions) != len(ids):
        raise CallerError(f"{len(ids)} ids and {len(regions)} regions do not go together")
    for region in checked:
        region.require(space)
    return checked


def region_of_box(low: Sequence[int], high: Sequence[int], space: Space) -> Region:
    """One closed box; a side beyond its attribute's axis is an error."""
    sides = []
    for index, (attribute, least, most) in enumerate(zip(space.attributes, low, high, strict=True)):
        if least < attribute.low or most > attribute.last:
            raise CallerError(f"attribute {attribute.name!r} has no coordinates {least}..{most}")
        if least > most:
            return Region.nothing(space)
        if (least, most) != (attribute.low, attribute.last):
            sides.append((index, Intervals.between(least, most)))
    return Region(space, [Term(tuple(sides))])
