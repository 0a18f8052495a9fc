"""Decimals of more than 18 digits: cut at the literals, and exact against Python's own decimals."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.strategies import examples
from thatch import ClauseError, EventError, Space
from thatch.protocol import codec
from thatch.protocol.messages import Publish
from thatch.region.packing import pack_labels, restore_labels
from thatch.space.axis import LabelledAxis
from thatch.space.decimals import LongDecimalAxis, decimal_of
from thatch.space.json_values import read_json, typed_event
from thatch.space.labels import FIRST, LAST

# Few values, so that each can be tried: from -0.0000000004 to 0.0000000005.
NARROW = [decimal_of(unscaled, 10) for unscaled in range(-4, 6)]
NARROW_SPACE = (
    f"x decimal(38,10) {NARROW[0]:f}..{NARROW[-1]:f}, y decimal(38,10) not null {NARROW[0]:f}..{NARROW[-1]:f}"
)


def axis_of(declared: str) -> LongDecimalAxis:
    axis = Space.parse(f"x {declared}").attributes[0].axis
    assert isinstance(axis, LongDecimalAxis)
    return axis


# --- The axis ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("declared", ["decimal(38,10)", "decimal(19,0)", "decimal(38,38)", "decimal(38,2) -7..5.5"])
def test_the_ends_of_an_axis(declared: str) -> None:
    space, axis = Space.parse(f"x {declared} not null"), axis_of(declared)
    least, greatest = axis.ends(FIRST, LAST)
    assert (least, greatest) == (decimal_of(axis.least, axis.scale), decimal_of(axis.greatest, axis.scale))
    assert space.where(f"x >= {least:f}") == space.where("TRUE") == space.where(f"x <= {greatest:f}")
    assert space.where(f"x < {least:f} OR x > {greatest:f}").is_empty
    for end in (least, greatest):
        alone = space.where(f"x = {end:f}")
        assert alone.contains({"x": end}) and alone.to_sql() == f"x = {end:f}"
        assert alone | space.where(f"x <> {end:f}") == space.where("TRUE")
    assert space.where(f"x > {least:f}").contains({"x": least}) is False
    assert space.where(f"x = {least:f}") == space.where(f"x < {decimal_of(axis.least + 1, axis.scale):f}")


@pytest.mark.parametrize("value", ["-0.0000000005", "0.0000000006", "1e27", "-1e27"])
def test_values_beyond_the_domain(value: str) -> None:
    space = Space.parse(NARROW_SPACE)
    for event in ({"x": Decimal(value), "y": 0}, {"x": pa.array([Decimal(value)], pa.decimal128(38, 10)), "y": [0]}):
        with pytest.raises(
            EventError, match=r"is outside the domain -0\.0000000004\.\.0\.0000000005 of decimal\(38,10\)"
        ):
            space.encode_batch(event) if isinstance(event["x"], pa.Array) else space.encode(event)
    assert space.where(f"x = {Decimal(value):f}").is_empty
    assert space.where(f"x <> {Decimal(value):f}") == space.where("x IS NOT NULL")


def test_spaces_with_other_domains_differ() -> None:
    texts = ["x decimal(38,2)", "x decimal(38,2) 0..5", "x decimal(38,2) 0..", "x decimal(38,3) 0..5"]
    spaces = [Space.parse(text) for text in texts]
    for one in spaces:
        assert Space.parse(str(one)) == one == Space.from_json(one.to_json())
        assert (
            [other == one for other in spaces].count(True) == [one.extends(other) for other in spaces].count(True) == 1
        )


unscaled_values = st.integers(-(10**38) + 1, 10**38 - 1) | st.integers(-5, 5) | st.integers(10**38 - 5, 10**38 - 1)


@examples(60)
@given(st.lists(unscaled_values, max_size=12), st.lists(unscaled_values, min_size=1, max_size=12), st.booleans())
def test_gaps_are_runs_of_values(cuts: list[int], values: list[int], recoded: bool) -> None:
    """A value lies in the gap from the last cut that is not above it to the next; columns agree with single values."""
    axis = axis_of("decimal(38,10)")
    axis.cut_many([axis.edge_at(cut) for cut in cuts])
    if recoded:
        axis.labels = axis.labels.recoded([])
    edges = sorted({axis.least, *cuts})
    for value in [*values, *cuts]:
        coordinate = axis.encode(decimal_of(value, 10))
        low, high = axis.numbers(coordinate, coordinate)
        assert low == max(edge for edge in edges if edge <= value)
        assert high == min([edge for edge in edges if edge > value], default=axis.greatest + 1) - 1
        assert axis.encode(axis.decode(coordinate)) == coordinate
    column = pa.array([decimal_of(value, 10) for value in values], pa.decimal128(38, 10))
    coordinates = axis.encode_array(column)
    assert coordinates is not None
    assert coordinates.tolist() == [axis.encode(decimal_of(value, 10)) for value in values]
    low, high = np.minimum(coordinates, coordinates[0]), np.maximum(coordinates, coordinates[0])
    sizes = [axis.size(a, b) for a, b in zip(low.tolist(), high.tolist(), strict=True)]
    assert axis.sizes(low, high).tolist() == sizes and min(sizes) >= 1


def test_columns_follow_cuts() -> None:
    """What whole columns are compared with is made again after a cut, and after the axis is recoded."""
    space, values = Space.parse("x decimal(38,10) not null"), [Decimal(number) for number in range(20)]
    column = {"x": pa.array(values, pa.decimal128(38, 10))}
    axis = space.attributes[0].axis
    assert isinstance(axis, LabelledAxis)
    for number in (5, 12, 3, 19):
        assert space.where(f"x >= {number}").contains_batch(column).tolist() == [value >= number for value in values]
        axis.labels = axis.labels.recoded([])
        assert space.where(f"x < {number}").contains_batch(column).tolist() == [value < number for value in values]


def test_unsigned_integers_of_64_bits() -> None:
    space = Space.infer(pa.schema([("x", pa.uint64())]), ["x > 5"])
    assert str(space) == "x decimal(20,0)"
    values = [0, 5, 6, 2**63, 2**64 - 2, 2**64 - 1]
    for clause, wanted in (("x > 9223372036854775808", 2), ("x = 18446744073709551615", 1), ("x <= 5.5", 2)):
        for column in (pa.array(values, pa.uint64()), np.array(values, np.uint64), values):
            assert space.where(clause).contains_batch({"x": column}).sum() == wanted


def test_balls_are_refused() -> None:
    with pytest.raises(ClauseError, match=r"`within` needs numbers of up to 18 digits, and 'x' is decimal\(19,0\)"):
        Space.parse("x decimal(19,0)").where("within(5, x, 0)")


# --- There and back ---------------------------------------------------------------------------------------------------


def test_labels_there_and_back() -> None:
    space = Space.parse(NARROW_SPACE)
    region = space.where("x > 0 AND y IN (0.0000000001, 0.0000000003)")
    packed = pack_labels(space.label_codes)
    again = Space.parse(NARROW_SPACE)
    restore_labels(again, packed)
    assert [labels.to_pairs() for labels in again.label_codes] == [labels.to_pairs() for labels in space.label_codes]
    assert region.terms == region.terms_in(again)
    key = packed[0][0][1]
    for wrong in (key[:-1], key + "0", "x" + key[1:], "9" * 39, "0" * 39, "-" + key[1:], "²" + key[1:]):
        with pytest.raises(ValueError, match="no labels"):
            restore_labels(Space.parse(NARROW_SPACE), [(["", wrong], packed[0][1][:16]), packed[1]])


@pytest.mark.parametrize("value", [10**27, -(10**27) - 1, Decimal("1234567890123456789012345678.0123456789"), 2**64, 5])
def test_events_in_messages_and_in_json(value: Any) -> None:
    space = Space.parse("x decimal(38,10)")
    space.where("x > 5 AND x < 1000000")  # a gap stands for many values: none may be read as another
    again = codec.Codec(space).decode(codec.encode(Publish("p:1", {"x": value})))
    assert isinstance(again, Publish) and again.event == {"x": value}
    assert read_json(codec.event_json(again), "it")["event"]["x"] in (str(value), value)
    for text in (f'{{"x": {value}}}', f'{{"x": "{value}"}}'):
        assert typed_event(read_json(text, "it"), space) == {"x": value}
