"""Balls: points within a radius of a centre, in float64, with bounds whose rounding is proved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from thatch.region.intervals import EMPTY, Intervals
from thatch.space.decimals import DecimalAxis
from thatch.space.floating import FloatingAxis
from thatch.space.space import Space


@dataclass(frozen=True, slots=True, order=True)
class Ball:
    """`within(radius, x, cx, …)`: (x-cx)*(x-cx) + … <= radius*radius, in float64, left to right."""

    attributes: tuple[int, ...]
    centre: tuple[float, ...]
    radius: float

    def contains(self, point: Sequence[int], space: Space) -> bool:
        """Of a point that is NULL in none of the ball's attributes."""
        total = 0.0
        for position, (index, middle) in enumerate(zip(self.attributes, self.centre, strict=True)):
            offset = space.attributes[index].axis.double(point[index]) - middle
            total = total + offset * offset if position else offset * offset
        return total <= self.radius * self.radius

    def bounds(self, space: Space) -> dict[int, Intervals]:
        """Per attribute an interval that surely holds the ball, rounded outward.

        fl(x - c) is within one rounding of x - c, its square and r*r within one more each, so |x - c| exceeds r by
        a factor below 1 + 2^-50. Squares below 2^-1000 may underflow to 0, which lets in anything nearer than
        2^-500; r*r may overflow, which lets in everything but NaN.
        """
        bounds = {}
        for index, middle in zip(self.attributes, self.centre, strict=True):
            attribute = space.attributes[index]
            bounded = self.radius * self.radius < math.inf
            if middle != middle or (bounded and math.isinf(middle)):  # no number is within of NaN, or near infinity
                bounds[index] = EMPTY
                continue
            low, high = -math.inf, math.inf
            if bounded:
                reach = max(self.radius, 2.0**-500) * (1 + 2.0**-50)
                low = math.nextafter(middle - reach, -math.inf)
                high = math.nextafter(middle + reach, math.inf)
            first, last = _outward(attribute.axis, low, high)
            bounds[index] = Intervals.between(max(first, attribute.first), min(last, attribute.last))
        return bounds

    def core(self, space: Space) -> dict[int, Intervals] | None:
        """Per attribute an interval such that their product surely lies inside, rounded inward; None if there is none.

        The inscribed cube has half side r/sqrt(k). Shrunk by k * 2^-48 of it, the k squares and their sum stay below
        r*r whatever the roundings, which are at most k + 3 of one part in 2^53 each; below 2^-500 squares underflow.
        """
        k = len(self.attributes)
        half = self.radius / math.sqrt(k) * (1 - k * 2.0**-48)
        if not 2.0**-500 < half < 2.0**500:
            return None
        core = {}
        for index, middle in zip(self.attributes, self.centre, strict=True):
            attribute = space.attributes[index]
            low = math.nextafter(middle - half, math.inf)
            high = math.nextafter(middle + half, -math.inf)
            if not low <= middle <= high or math.isinf(middle):  # so far out that the cube falls between two doubles
                return None
            first, last = _inward(attribute.axis, low, high)
            core[index] = Intervals.between(max(first, attribute.first), min(last, attribute.last))
            if not core[index].ends:
                return None
        return core

    def holds(self, other: Ball) -> bool:
        """Whether every point of the other ball, which may look at more attributes, is surely in this one. Inside the
        rounding margin the answer is no."""
        if self.attributes == other.attributes:
            return other.is_within(self.centre, self.radius)
        at = dict(zip(other.attributes, other.centre, strict=True))
        if not at.keys() >= set(self.attributes):
            return False
        centre = tuple(at[index] for index in self.attributes)
        in_order = self.attributes == tuple(index for index in other.attributes if index in self.attributes)
        if centre == self.centre and in_order:  # the same sum without some squares, which rounds no higher
            return other.radius <= self.radius
        return _is_within(centre, other.radius, self.centre, self.radius, len(other.attributes))

    def is_within(self, centre: tuple[float, ...], radius: float) -> bool:
        """Whether a ball over the same attributes surely holds this one: about one centre radii decide."""
        if centre == self.centre:
            return self.radius <= radius
        return _is_within(self.centre, self.radius, centre, radius, len(centre))


def _is_within(
    centre: tuple[float, ...], radius: float, outer_centre: tuple[float, ...], outer_radius: float, attributes: int
) -> bool:
    """Whether a ball over k attributes, its centre given in those of the outer one, surely lies in that.

    Let u = 2^-53 and R' = max(r', 2^-500), so that squares that underflow, below 2^-1074 each, are lost in u. A point
    of the ball is at most R' (1 + (k + 4) u) from its centre: one rounding for each difference, square and sum, and one
    for r'*r'. So it is at most that plus D from the outer centre, D being the distance of the centres, and passes the
    outer test if that is at most r (1 - (k + 4) u). The margin, 8 (k + 8) u on either side, leaves room for the
    roundings of the comparison itself and for `dist`, which errs by 1 ulp of what the rounded differences give. With
    r <= 2^500 nothing overflows; what is not finite compares false.
    """
    if not radius < outer_radius <= 2.0**500:
        return False
    margin = (attributes + 8) * 2.0**-50
    distance = math.dist(centre, outer_centre)
    return (max(radius, 2.0**-500) + distance) * (1 + margin) <= outer_radius * (1 - margin)


def _inward(axis: Any, low: float, high: float) -> tuple[int, int]:
    """The greatest run of coordinates whose doubles surely all lie in low..high."""
    if isinstance(axis, FloatingAxis):
        return axis.first_from(low), axis.last_upto(high)
    scale = 10**axis.scale if isinstance(axis, DecimalAxis) else 1
    below, above = Fraction(low) * scale, Fraction(high) * scale
    return math.ceil(below + abs(below) / 2**52) + 1, math.floor(above - abs(above) / 2**52) - 1


def _outward(axis: Any, low: float, high: float) -> tuple[int, int]:
    """Coordinates that surely enclose every value whose double lies in low..high."""
    if isinstance(axis, FloatingAxis):
        return axis.first_from(low), axis.last_upto(high)
    scale = 10**axis.scale if isinstance(axis, DecimalAxis) else 1
    ends = []
    for end, side in ((low, -1), (high, 1)):
        if math.isinf(end):
            ends.append(axis.first if side < 0 else axis.last)
        else:  # the cast to double moves a value by at most 2^-53 of it
            exact = Fraction(end) * scale
            ends.append(math.floor(exact + side * (abs(exact) / 2**52 + 1)))
    return ends[0], ends[1]
