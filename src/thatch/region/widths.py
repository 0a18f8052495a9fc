"""How wide a side is by its values: what budgets and people see, where coordinates would mislead."""

from __future__ import annotations

from thatch.region.intervals import Intervals
from thatch.space.attribute import Attribute
from thatch.space.axis import BoolAxis, EnumAxis, LabelledAxis, StringAxis
from thatch.space.decimals import LongDecimalAxis
from thatch.space.floating import FloatingAxis


def is_ordered(attribute: Attribute) -> bool:
    """Whether what lies between two values is like them."""
    return not isinstance(attribute.axis, StringAxis | EnumAxis | BoolAxis)


def width(side: Intervals, attribute: Attribute) -> float:
    """What a side measures, in whatever unit the axis has; never infinite."""
    ends = side.ends
    if len(ends) == 2:  # the usual case
        return span(ends[0], ends[1], attribute)
    return sum((span(low, high, attribute) for low, high in side), 0.0)


def span(low: int, high: int, attribute: Attribute) -> float:
    """What one interval measures. Values have one width each, but floats have their own and strings that of gaps."""
    if isinstance(attribute.axis, FloatingAxis):
        start, end = ends_of(low, high, attribute)
        return end - start
    if isinstance(attribute.axis, LabelledAxis):
        null = low < attribute.first
        values = attribute.axis.size(max(low, attribute.first), high) if high >= attribute.first else 0.0
        return values + null
    return float(high - low + 1)


def ends_of(low: int, high: int, attribute: Attribute) -> tuple[float, float]:
    """An interval as a stretch of the real line, NULL being a stretch of 1 before the first value."""
    axis = attribute.axis
    if isinstance(axis, LongDecimalAxis):
        start = axis.numbers(low, low)[0] - axis.least if low >= attribute.first else -1
        end = axis.numbers(high, high)[1] + 1 - axis.least if high >= attribute.first else 0
        return float(start), float(end)
    if not isinstance(axis, FloatingAxis):
        return float(low - attribute.first), float(high - attribute.first + 1)
    start, end = (axis.decode(min(max(end, -axis.FAR, attribute.first), axis.FAR)) for end in (low, high))
    return start - (low < attribute.first), end
