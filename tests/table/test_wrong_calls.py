"""Arguments of another type, in a program: a sentence of our own with the value, not an error of Python's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import thatch
from thatch.errors import CallerError

PARSE: Any = thatch.Space.parse
SPACE = thatch.Space.parse("price double, side enum('a', 'b'), number int")
REGION: Any = SPACE.where("price < 5")
EVENTS = pa.table({"price": [1.0]})


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: PARSE(None), "a space is read from a text such as 'price double', not None"),
        (lambda: PARSE("price double", time_zone=5), "a time zone is a name such as Europe/Berlin, not 5"),
        (lambda: REGION.contains(None), "an event is a mapping of attributes to values, not None"),
        (lambda: REGION.contains(5), "an event is a mapping of attributes to values, not 5"),
        (lambda: thatch.match(EVENTS, {2**70: "TRUE"}), "an id that is an integer has 64 bits, not 11805916207"),
        (lambda: thatch.match(EVENTS, {"a": "TRUE", 1: "TRUE"}), "ids are all strings or all integers: 1 stands among"),
        (lambda: thatch.match(EVENTS, {1.5: "TRUE"}), "ids are strings or integers, not 1.5"),
        (lambda: SPACE.where("number IN (1, 2, 'x')"), "a member of the IN list is not an int: 'x'"),
        (lambda: SPACE.where("side IN ('a', 5)"), "a member of the IN list is an int and cannot be compared"),
        (lambda: PARSE("a enum('x', 'y', 'x')"), "an enum names each value once, and 'x' is there twice"),
    ],
)
def test_an_argument_of_another_type_is_named(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(CallerError) as caught:
        call()
    assert said in str(caught.value)


def test_a_folder_is_no_snapshot(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match=f"is a folder: '{tmp_path}'"):
        thatch.SubscriptionTable(SPACE).snapshot(tmp_path)
