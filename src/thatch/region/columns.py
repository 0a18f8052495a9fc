"""Boxes from typed columns: one subscription a row, bounds as values rather than as a clause.

Per attribute a column of lower and one of upper bounds, both closed. Both null: unconstrained, NULL included. One
null: unbounded on that side, and not null. A bound beyond the domain is cut to it, as a literal in a clause is: a box
that lies beyond it is empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from thatch.errors import CallerError, EventError, shown
from thatch.region.region import Region
from thatch.region.term import boxes_to_terms
from thatch.space.attribute import Attribute, arrow_column, is_not_a_time
from thatch.space.axis import Axis, Coordinates, EnumAxis, LabelledAxis
from thatch.space.labels import LabelCodes
from thatch.space.space import Space

Columns = Mapping[str, Any]


class TypedBoxes(NamedTuple):
    low: Coordinates  # [rows, d]
    high: Coordinates
    full: NDArray[np.bool_]  # which rows are not empty; those that are hold whatever
    label_codes: LabelCodes


def boxes_of_columns(low: Columns, high: Columns, rows: int, space: Space) -> TypedBoxes:
    sides = [_by_index(each, rows, space) for each in (low, high)]

    def encoded() -> tuple[Coordinates, Coordinates, NDArray[np.bool_]]:
        least, most = space.low.repeat(rows, 0), space.high.repeat(rows, 0)
        full = np.ones(rows, np.bool_)
        for index in sorted(sides[0].keys() | sides[1].keys()):
            attribute = space.attributes[index]
            bounds_of = _of_enum if isinstance(attribute.axis, EnumAxis) else _of_ordered
            least[:, index], most[:, index], held = bounds_of(attribute, sides[0].get(index), sides[1].get(index), rows)
            full &= held
        return least, most, full

    bounds, codes = space.stable(encoded)
    return TypedBoxes(*bounds, codes)


def regions_of_boxes(boxes: TypedBoxes, space: Space) -> list[Region]:
    nothing, regions = Region.nothing(space), []
    terms = boxes_to_terms(boxes.low, boxes.high, space)
    for term, held in zip(terms, boxes.full.tolist(), strict=True):
        regions.append(Region(space, [term], boxes.label_codes) if held else nothing)
    return regions


def _by_index(columns: Columns, rows: int, space: Space) -> dict[int, Any]:
    by_index: dict[int, Any] = {}
    for name, column in columns.items():
        index = space.index(name) if isinstance(name, str) else None
        if index is None:
            raise CallerError(f"no attribute {shown(name)} in this space")
        if index in by_index:
            raise CallerError(f"two columns of bounds name one attribute, {name!r}: case does not tell names apart")
        if not hasattr(column, "__len__") or isinstance(column, str) or getattr(column, "ndim", 1) != 1:
            raise CallerError(f"attribute {name!r}: bounds come as a list or an array, one for each id")
        if len(column) != rows:
            raise CallerError(f"attribute {name!r}: {rows:,} ids and {len(column):,} bounds do not go together")
        by_index[index] = column
    return by_index


def _of_ordered(attribute: Attribute, low: Any, high: Any, rows: int) -> tuple[Any, Any, Any]:
    least, no_least = _bound(attribute, low, rows, upper=False)
    most, no_most = _bound(attribute, high, rows, upper=True)
    held = ~((least > attribute.last) & ~no_least) & ~((most < attribute.first) & ~no_most)
    least = np.where(no_least, np.where(no_most, attribute.low, attribute.first), np.maximum(least, attribute.first))
    most = np.where(no_most, attribute.last, np.minimum(most, attribute.last))
    held &= least <= most
    return np.where(held, least, attribute.first), np.where(held, most, attribute.first), held


def _bound(attribute: Attribute, column: Any, rows: int, upper: bool) -> tuple[Coordinates, NDArray[np.bool_]]:
    """Coordinates, perhaps beyond the domain but not beyond the type, and which rows are null."""
    if column is None:
        return np.zeros(rows, np.int64), np.ones(rows, np.bool_)
    if isinstance(attribute.axis, LabelledAxis):
        return _of_labelled(attribute, attribute.axis, column, upper)
    fast = _encoded_at_once(attribute.axis, column)
    if fast is not None:
        return fast
    values = column.to_pylist() if hasattr(column, "to_pylist") else list(column)
    null = np.array([value is None or is_not_a_time(value) for value in values], np.bool_)
    return np.array([0 if null[row] else _encoded(attribute, row, v) for row, v in enumerate(values)], np.int64), null


def _encoded_at_once(axis: Axis, column: Any) -> tuple[Coordinates, NDArray[np.bool_]] | None:
    """None if something has to be looked at one by one, be it to say what is wrong with it."""
    import pyarrow as pa

    try:
        arrow = arrow_column(column)
        coordinates = None if arrow is None else axis.encode_array(arrow)
    except pa.ArrowException:
        return None
    if arrow is None or coordinates is None:
        return None
    null = arrow.is_null().to_numpy(zero_copy_only=False)
    given = coordinates[~null]
    if len(given) and not axis.first <= given.min() <= given.max() <= axis.last:
        return None
    return coordinates, null


def _encoded(attribute: Attribute, row: int, value: Any) -> int:
    axis = attribute.axis
    try:
        coordinate = axis.encode(value)
    except ValueError as error:
        raise EventError(attribute.name, value, str(error), row) from None
    if not axis.first <= coordinate <= axis.last:
        raise EventError(attribute.name, value, f"is outside {axis.sql}", row)
    return coordinate


def _of_labelled(
    attribute: Attribute, axis: LabelledAxis, column: Any, upper: bool
) -> tuple[Coordinates, NDArray[np.bool_]]:
    values = listed(column)
    edges, edge_of = dict[int, str | None](), axis.edge_after if upper else axis.edge
    for row, value in enumerate(values):
        if value is not None:
            try:
                edges[row] = edge_of(value)
            except ValueError as error:
                raise EventError(attribute.name, value, str(error), row) from None
    labels = axis.cut_many(edges.values())
    coordinates, null = np.zeros(len(values), np.int64), np.ones(len(values), np.bool_)
    for row, edge in edges.items():
        coordinates[row], null[row] = (axis.last + 1 if edge is None else labels.of(edge)) - upper, False
    return coordinates, null


def _of_enum(attribute: Attribute, low: Any, high: Any, rows: int) -> tuple[Any, Any, Any]:
    """Enums compare as strings do, in Spark: the values between two need not stand together."""
    axis = attribute.axis
    assert isinstance(axis, EnumAxis)
    least, most, held = np.zeros(rows, np.int64), np.zeros(rows, np.int64), np.ones(rows, np.bool_)
    known: dict[tuple[Any, Any], tuple[int, int, bool]] = {}
    lows = [None] * rows if low is None else listed(low)
    highs = [None] * rows if high is None else listed(high)
    for row, pair in enumerate(zip(lows, highs, strict=True)):
        for value in pair:
            if value is not None and not isinstance(value, str):
                raise EventError(attribute.name, value, f"is not a value of {axis.sql}", row)
        if pair not in known:
            known[pair] = _between(attribute, axis, row, *pair)
        least[row], most[row], held[row] = known[pair]
    return least, most, held


def listed(column: Any) -> list[Any]:
    """The values of an Arrow array, a NumPy array or a list, as Python's."""
    for turn in ("to_pylist", "tolist"):
        if hasattr(column, turn):
            values: list[Any] = getattr(column, turn)()
            return values
    return [value.item() if isinstance(value, np.generic) else value for value in column]


def _between(attribute: Attribute, axis: EnumAxis, row: int, low: Any, high: Any) -> tuple[int, int, bool]:
    if low is None and high is None:
        return attribute.low, attribute.last, True
    ordinals = axis.ordinals(lambda value: (low is None or low <= value) and (high is None or value <= high))
    if not ordinals:
        return attribute.first, attribute.first, False
    if ordinals[-1] - ordinals[0] >= len(ordinals):
        raise CallerError(
            f"attribute {attribute.name!r}, row {row}: the values from {low!r} to {high!r} do not stand together in "
            f"{axis.sql}; write a clause with IN"
        )
    return ordinals[0], ordinals[-1], True
