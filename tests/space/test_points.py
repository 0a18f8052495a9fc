"""Plain events in columns have the coordinates that they have one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from helpers.strategies import examples
from thatch.errors import EventError
from thatch.space.batches import plain_columns
from thatch.space.space import Space

SPACE = Space.parse("price double not null -5..1000, count int, symbol string, more double")
SPACE.where("symbol IN ('a', 'b', 'é') OR symbol > 'bc'")
values = {
    "price": st.one_of(st.floats(), st.sampled_from([0.0, -0.0, -5.0, 1000.0, 1000.1, 3, True, None])),
    "count": st.one_of(st.integers(-(2**64), 2**64), st.sampled_from([0, -(2**63), 2**63 - 1, True, None])),
    "symbol": st.one_of(st.sampled_from(["a", "b", "bb", "", "é", "\ud800", "zz", 7]), st.text(max_size=3)),
    "more": st.floats(),
}
plain = {
    "price": st.floats(-5, 1000),
    "count": st.integers(-100, 100),
    "symbol": st.text("abcé", max_size=2),
    "more": st.floats(allow_nan=False),
}


@examples(200)
@given(st.lists(st.fixed_dictionaries(plain), min_size=1, max_size=5), st.data())
def test_as_one_by_one(events: list[dict[str, Any]], data: st.DataObject) -> None:
    columns = plain_columns(events, SPACE)
    assert columns is not None and np.array(columns).T.tolist() == [SPACE.encode(event) for event in events]
    name = data.draw(st.sampled_from(list(values)))
    events[0][name] = data.draw(values[name])
    columns = plain_columns(events, SPACE)
    if columns is not None:
        assert np.array(columns).T.tolist() == [SPACE.encode(event) for event in events]


def test_what_is_odd_is_left_to_others() -> None:
    usual = {"price": 1.0, "count": 1, "symbol": "a", "more": 0.5}
    for odd in (
        {"price": 1},
        {"price": float("nan")},
        {"count": True},
        {"symbol": "\ud800"},
        {"colour": 1},
        {"count": None},
    ):
        assert plain_columns([usual, usual | odd], SPACE) is None
    for wrong in ({"price": 1000.5}, {"count": 2**63}, {"count": -(2**63)}):
        assert plain_columns([usual | wrong], SPACE) is None
        try:
            SPACE.encode(usual | wrong)
        except EventError:
            continue
        raise AssertionError("it should be refused")
    assert plain_columns([{"price": 1.0}], SPACE) is None
