"""LIKE on enums: the same as a regular expression says, without its cost on hostile patterns."""

from __future__ import annotations

import re
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from helpers.strategies import examples
from helpers.yardstick import yardsticks
from thatch import Space
from thatch.where.like import Pattern, parts_of


@given(st.text("ab%_!\n", max_size=12), st.lists(st.text("ab%_\n", max_size=10), min_size=1, max_size=8))
@examples(300)
def test_a_pattern_matches_what_a_regular_expression_matches(pattern: str, texts: list[str]) -> None:
    try:
        parts = parts_of(pattern, "!")
    except ValueError:
        return
    names = {"%": ".*", "_": "."}
    expected = re.compile("".join(names.get(part, re.escape(part[-1])) for part in parts), re.DOTALL)
    for text in texts:
        assert Pattern(parts).matches(text) == bool(expected.fullmatch(text)), (pattern, text)


def test_many_wildcards_cost_no_more_than_the_lengths() -> None:
    """With a letter at the end that is not there, a match that backtracks tries all ways to place the others."""
    space = Space.parse(f"kind enum('{'a' * 200}', '{'ab' * 200}', 'b')")
    for pattern in ("%a" * 90 + "%x", "%" * 5_000 + "x", "_%" * 90 + "x", "%_a" * 60 + "%x", "a%" * 20_000):
        clause = f"kind LIKE '{pattern}'"
        assert yardsticks(partial(space.where, clause), 5.0) < 5.0
    assert space.where("kind LIKE '%a%b'") == space.where(f"kind = '{'ab' * 200}'")
