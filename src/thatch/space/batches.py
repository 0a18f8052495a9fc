"""Many events to points at once, where their values are plain: nearly always."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from thatch.space.attribute import Attribute
from thatch.space.axis import INT64_MAX, Coordinates, IntAxis, StringAxis
from thatch.space.floating import DoubleAxis
from thatch.space.space import Space


def plain_columns(events: Sequence[Mapping[str, Any]], space: Space) -> list[Coordinates] | None:
    """The coordinates of events, a column an attribute, as `Space.encode` has them. None if one of them has a value
    that is missing, wrong or not of the attribute's own Python type: then each is to be looked at."""
    names = space.names
    if not all(event.keys() <= names for event in events):
        return None
    columns = []
    for attribute in space.attributes:
        name = attribute.name
        try:
            column = _column([event[name] for event in events], attribute)
        except (KeyError, ValueError, OverflowError):
            return None
        if column is None or not (attribute.first <= column.min() and column.max() <= attribute.last):
            return None
        columns.append(column)
    return columns


def _column(values: list[Any], attribute: Attribute) -> Coordinates | None:
    axis, kinds = attribute.axis, set(map(type, values))
    if isinstance(axis, DoubleAxis) and kinds == {float}:
        numbers = np.array(values, np.float64)
        bits = numbers.view(np.int64)
        return None if np.isnan(numbers).any() else np.where(bits < 0, -(bits & INT64_MAX), bits)
    if isinstance(axis, IntAxis) and kinds == {int}:
        return np.array(values, np.int64)
    if isinstance(axis, StringAxis) and kinds == {str}:
        of = axis.labels.of
        return np.array([of(text) if text.isascii() else axis.encode(text) for text in values], np.int64)
    return None
