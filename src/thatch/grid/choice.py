"""Which attributes should a grid have? Those that tell boxes apart (MICS, 5, leaves more than one way open).

The idea: cells of few attributes stand for boxes of many, so take those attributes that leave the fewest boxes to an
event. By *selectivity*, the paper's way: the attributes of which a box takes the smallest share of the cells, each on
its own. *Jointly*, ours: one after the other, each time the one that leaves the fewest candidates together with those
taken before. Two attributes that say the same are both selective, but the second one leaves as many as the first alone.

Shares are of cells, which are equal in value, not in coordinates. Errs on no side: any choice is right, some are slow.
Cost: a comparison for each attribute, sampled box and sampled event.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thatch.errors import CallerError
from thatch.grid.grid import BITS, Grid
from thatch.region.region import Region
from thatch.region.term import hulls
from thatch.space.arrays import Ints
from thatch.space.space import Space

WAYS = ("joint", "selectivity")
SAMPLE = 1_000


def choose_attributes(
    space: Space,
    regions: Sequence[Region] | tuple[Ints, Ints],
    count: int,
    by: str = "joint",
    events: Ints | None = None,
    bits: int = BITS,
    seed: int = 0,
) -> list[str]:
    """The names of so many attributes, the best first. Regions may be boxes as arrays low[n, d], high[n, d]; events are
    coordinates [m, d], and where none are given an event is equally likely in every cell.

    >>> space = Space.parse("x int not null 0..99, y int not null 0..99, z int not null 0..99")
    >>> low, high = np.array([[0, 5, 20], [0, 50, 60]]), np.array([[99, 15, 25], [99, 60, 90]])
    >>> choose_attributes(space, (low, high), 2)
    ['y', 'z']
    """
    if by not in WAYS:
        raise CallerError(f"attributes are chosen by {' or '.join(WAYS)}, not by {by!r}")
    if not 1 <= count <= len(space):
        raise CallerError(f"{space} has 1 to {len(space)} attributes to choose, not {count}")
    draw = np.random.default_rng(seed)
    low, high = _boxes(space, regions)
    chosen = draw.permutation(len(low))[:SAMPLE]
    low, high = low[chosen], high[chosen]
    points = None if events is None else events[draw.permutation(len(events))[:SAMPLE]]
    held = []
    for at, attribute in enumerate(space.attributes):
        starts = Grid(space, [attribute.name], bits).starts[0]
        first, last = (np.searchsorted(starts, side[:, at], "right") - 1 for side in (low, high))
        if points is None:
            cells = draw.integers(0, len(starts), SAMPLE)
        else:
            cells = np.searchsorted(starts, points[:, at], "right") - 1
        held.append((first <= cells[:, None]) & (cells[:, None] <= last))
    order = _one_by_one(held, count) if by == "joint" else np.argsort([each.mean() for each in held], kind="stable")
    return [space.attributes[at].name for at in order[:count]]


def _one_by_one(held: list[NDArray[np.bool_]], count: int) -> list[int]:
    left = np.ones_like(held[0])
    order: list[int] = []
    for _ in range(count):
        rest = [at for at in range(len(held)) if at not in order]
        order.append(min(rest, key=lambda at: (np.count_nonzero(left & held[at]), np.count_nonzero(held[at]))))
        left &= held[order[-1]]
    return order


def _boxes(space: Space, regions: Any) -> tuple[Ints, Ints]:
    if isinstance(regions, tuple) and len(regions) == 2 and isinstance(regions[0], np.ndarray):
        return regions[0], regions[1]
    return hulls([term for region in regions for term in region.terms_in(space)], space)
