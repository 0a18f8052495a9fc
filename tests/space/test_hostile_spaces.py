"""Spaces that strangers send: what is read of them costs time in proportion to their length."""

from __future__ import annotations

import pytest

from helpers.yardstick import yardsticks
from thatch import Space
from thatch.errors import SpaceError

LENGTH = 100_000


@pytest.mark.parametrize(
    "text",
    [
        "x int " + "1" * LENGTH + "a",
        "x int " + "1a " * (LENGTH // 3),
        "x int " + "1e+" * (LENGTH // 3),
        "x enum(" + "'\\" * (LENGTH // 2),
        "x enum('" + "''" * (LENGTH // 2) + "\\",
        "x int, " + "`a``" * (LENGTH // 4),
        "x int " + "." * LENGTH,
        "x int " + "+" * LENGTH,
    ],
)
def test_a_hostile_space_is_refused_at_once(text: str) -> None:
    """Each is text that a reader which backtracks, or reads on after what it refuses, looks at again and again."""

    def refuse() -> None:
        with pytest.raises(SpaceError):
            Space.parse(text)

    assert yardsticks(refuse, 40.0) < 40.0


def test_blanks_at_the_end_cost_nothing() -> None:
    assert yardsticks(lambda: Space.parse("x int" + " " * LENGTH), 10.0) < 10.0


@pytest.mark.parametrize("bad", ["#", "# ; $", "! " * 20])
def test_what_is_no_token_is_refused_where_it_stands(bad: str) -> None:
    with pytest.raises(SpaceError, match=f"found {bad[0]!r}"):
        Space.parse(f"x int {bad} , y int")
