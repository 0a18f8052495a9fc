"""Which attributes tell subscriptions apart, each on its own and jointly (grid/choice.py), measured on samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from thatch.grid.choice import choose_attributes
from thatch.grid.grid import ATTRIBUTES
from thatch.space.arrays import Ints
from thatch.space.space import Space

CROSSED = 1_000  # events, and as many boxes, of which every pair is compared
PAYS = 0.8  # an attribute is indexed if it leaves no more than this share of the candidates


class Selectivity(NamedTuple):
    """Of one attribute: the share of pairs of an event and a box that it leaves on its own, and the share of boxes that
    bound it; its place in the joint order, from 1, and the share that is left after it."""

    attribute: str
    share: float
    bounded: float
    place: int
    left: float
    is_indexed: bool


def selectivities(space: Space, low: Ints, high: Ints, points: Ints) -> list[Selectivity]:
    """Of all attributes, in the order in which to index them."""
    draw = np.random.default_rng(0)
    names = [attribute.name for attribute in space]
    boxes, events = draw.permutation(len(low))[:CROSSED], draw.permutation(len(points))[:CROSSED]
    if not len(boxes) or not len(events):
        return [Selectivity(name, 1.0, 0.0, place, 1.0, False) for place, name in enumerate(names, 1)]
    held = [
        (low[boxes, at] <= points[events, at, None]) & (points[events, at, None] <= high[boxes, at])
        for at in range(len(names))
    ]
    bounded = 1 - ((low == space.low) & (high == space.high)).mean(axis=0)
    found, left, before = [], np.ones_like(held[0]), 1.0
    pays = True
    for place, name in enumerate(choose_attributes(space, (low, high), len(names), events=points), 1):
        at = names.index(name)
        left &= held[at]
        now = float(left.mean())
        pays = pays and place <= ATTRIBUTES and now <= PAYS * before
        found.append(Selectivity(name, float(held[at].mean()), float(bounded[at]), place, now, pays))
        before = now
    return found


def indexed(found: Sequence[Selectivity]) -> list[str]:
    """The attributes worth an index, the best first; at least one."""
    return [each.attribute for each in found if each.is_indexed] or [found[0].attribute]
