"""What the kernels need to know of a space: where axes end, which hold doubles, and values as balls measure them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from thatch.space.arrays import Ints
from thatch.space.floating import DoubleAxis
from thatch.space.space import Space

NO_DOUBLES = np.zeros((0, 0))


class Axes(NamedTuple):
    space: Space
    edges: Ints  # [2, d]: the ends of each axis, NULL included
    is_double: Any  # bool [d]

    @classmethod
    def of(cls, space: Space) -> Axes:
        doubles = [isinstance(attribute.axis, DoubleAxis) for attribute in space.attributes]
        return cls(space, np.concatenate((space.low, space.high)), np.array(doubles))

    def doubles(self, points: Ints, wanted: Iterable[int]) -> Any:
        """The values of points as Spark casts them to double, of the attributes that balls look at."""
        if not wanted:
            return NO_DOUBLES
        doubles = np.zeros(points.shape)
        for axis in wanted:
            doubles[:, axis] = self.space.attributes[axis].axis.to_double(np.ascontiguousarray(points[:, axis]))
        return doubles
