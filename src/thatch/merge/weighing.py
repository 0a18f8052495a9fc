"""What a merger may add to what its members want, and what it adds: by events, and by values."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from thatch.cover.verdict import is_covered
from thatch.errors import CallerError, TooManyBoxes, shown
from thatch.merge.merge import Merger
from thatch.region.region import Region
from thatch.space.axis import Coordinates


def budget_of(merge: float | None) -> float | None:
    """The share that a merger may add; None for no mergers."""
    if merge is not None and (isinstance(merge, bool) or not isinstance(merge, int | float) or not merge >= 0):
        raise CallerError(f"merge is the share that a merger may add, at least 0, or None, not {shown(merge)}")
    return merge


def share_of_events(merger: Merger, regions: Mapping[Any, Region], columns: Sequence[Coordinates]) -> float:
    """The share of events that a merger adds to those that its members want."""
    wanted = int(np.any([regions[id].contains_points(columns) for id in merger.members], axis=0).sum())
    more = int(merger.region.contains_points(columns).sum()) - wanted
    return more / wanted if wanted else math.inf if more else 0.0


def share_of_values(merger: Merger, regions: Mapping[Any, Region]) -> float:
    """What a merger adds by values, 0 only if it is nothing: on wide axes a share may be lost in rounding."""
    if merger.added:
        return merger.added
    try:
        is_perfect = is_covered(merger.region, [regions[id] for id in merger.members])
    except TooManyBoxes:
        is_perfect = False
    return 0.0 if is_perfect else sys.float_info.epsilon
