"""Decimals of more than 18 digits in tables: covering and matching, against every value of a narrow domain."""

from __future__ import annotations

import operator
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from thatch import EventError, Space, SubscriptionTable, covers
from thatch.cover import Uncovered, verify
from thatch.space.decimals import decimal_of

# Few values, so that each can be tried: from -0.0000000004 to 0.0000000005.
NARROW = [decimal_of(unscaled, 10) for unscaled in range(-4, 6)]
DOMAIN = f"{NARROW[0]:f}..{NARROW[-1]:f}"
NARROW_SPACE = f"x decimal(38,10) {DOMAIN}, y decimal(38,10) not null {DOMAIN}"
OPERATORS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "<>": operator.ne,
}


def test_the_next_value_is_one_unit_away() -> None:
    space = Space.parse("x decimal(38,10) not null")
    for clauses in (
        ["x <= 4.0000000000", "x >= 4.0000000001"],
        ["x < 5", "x > 4"],
        ["x < 4.0000000001", "x > 4"],
        ["x <> 4", "x = 4"],
        ["x <> 4", "x > 3.9999999999 AND x < 4.0000000001"],
        ["x NOT IN (4, 4.0000000001)", "x BETWEEN 4 AND 4.0000000001"],
        ["x < 4 OR x > 4.0000000001", "x IN (4, 4.0000000001)"],
    ):
        assert covers(clauses, "TRUE", space), clauses
    left = covers(["x <= 4.0000000000", "x >= 4.0000000002"], "TRUE", space)
    assert isinstance(left, Uncovered) and space.decode(left.witness) == {"x": Decimal("4.0000000001")}
    assert space.where("x > 4 AND x < 4.0000000001").is_empty
    assert covers(["x = 4.0000000001"], "x > 4 AND x < 4.0000000002", space)


def random_condition(random: Random, name: str) -> tuple[str, Any]:
    """A clause and what it means in Python, of a value that is not None."""
    values = [random.choice(NARROW) for _ in range(3)]
    kind = random.choice(["compare", "compare", "between", "in", "not in"])
    if kind == "compare":
        word = random.choice(list(OPERATORS))
        return f"{name} {word} {values[0]:f}", lambda value: OPERATORS[word](value, values[0])
    if kind == "between":
        low, high = sorted(values[:2])
        return f"{name} BETWEEN {low:f} AND {high:f}", lambda value: low <= value <= high
    listed = ", ".join(f"{value:f}" for value in values)
    return f"{name} {kind.upper()} ({listed})", lambda value: (value in values) == (kind == "in")


def random_clause(random: Random) -> tuple[str, Any]:
    (left, holds_x), (right, holds_y) = random_condition(random, "x"), random_condition(random, "y")
    word = random.choice(["AND", "AND", "OR"])
    if random.random() < 0.3:
        return f"x IS NULL OR {right}", lambda x, y: x is None or holds_y(y)

    def holds(x: Any, y: Any) -> bool:
        parts = (x is not None and holds_x(x), holds_y(y))
        return all(parts) if word == "AND" else any(parts)

    return f"{left} {word} {right}", holds


EVENTS = [(x, y) for x in (None, *NARROW) for y in NARROW]


@pytest.mark.parametrize("seed", range(3))
def test_covering_and_matching_by_brute_force(seed: int) -> None:
    random, found = Random(seed), set()
    for _ in range(40):
        space = Space.parse(NARROW_SPACE)
        clauses = [random_clause(random) for _ in range(random.randint(2, 6))]
        (asked, asked_holds), members = clauses[0], clauses[1:]
        wanted = {event for event in EVENTS if asked_holds(*event)}
        held = {event for event in EVENTS if any(holds(*event) for _, holds in members)}
        verdict = covers([clause for clause, _ in members], asked, space)
        assert bool(verdict) == (wanted <= held), (asked, members)
        found.add(bool(verdict))
        region = space.where(asked)
        if isinstance(verdict, Uncovered):
            assert verify(verdict, region, {at: space.where(clause) for at, (clause, _) in enumerate(members)})
            assert tuple(space.decode(verdict.witness).values()) in wanted - held
        assert {event for event in EVENTS if region.contains(dict(zip("xy", event, strict=True)))} == wanted
        assert space.where(region.to_sql()) == region == Space.parse(NARROW_SPACE).where(region.to_sql())
    assert found == {True, False}


@pytest.mark.filterwarnings("ignore::thatch.EmptyRegionWarning")
@pytest.mark.parametrize("cover", ["exact", "hilbert", None])
def test_tables(cover: str | None, tmp_path: Path) -> None:
    """Matching in a table, one by one and in batches, while clauses cut the axes further; and from a file."""
    random, space = Random(7), Space.parse(NARROW_SPACE)
    table = SubscriptionTable(space, cover)
    clauses = {number: random_clause(random) for number in range(30)}
    for number, (clause, _) in clauses.items():
        table.subscribe(number, clause)
        x, y = random.choice(EVENTS)
        held = {at for at in range(number + 1) if clauses[at][1](x, y)}
        assert set(table.match({"x": x, "y": y})) == held
    path = tmp_path / "table"
    table.snapshot(path)
    columns = {
        name: pa.array(values, pa.decimal128(38, 10))
        for name, values in zip("xy", zip(*EVENTS, strict=True), strict=True)
    }
    wanted = {
        (row, number) for row, event in enumerate(EVENTS) for number, (_, holds) in clauses.items() if holds(*event)
    }
    for each in (table, SubscriptionTable.load(path)):
        pairs = each.match_batch(columns)
        assert set(zip(*(column.to_pylist() for column in pairs.columns), strict=True)) == wanted
        each.check_invariants()


@pytest.mark.filterwarnings("ignore::thatch.EmptyRegionWarning")
def test_bounds_as_columns() -> None:
    """Bounds as typed columns, also beyond the domain and the wrong way round."""
    random, space = Random(3), Space.parse(NARROW_SPACE)
    choices = [None, *NARROW, decimal_of(-9, 10), decimal_of(9, 10), Decimal(10**20)]
    bounds = [(random.choice(choices), random.choice(choices)) for _ in range(80)]
    table = SubscriptionTable(space)
    low, high = ([pair[end] for pair in bounds] for end in (0, 1))
    table.subscribe_many(range(80), low={"x": low}, high={"x": pa.array(high, pa.decimal128(38, 10))})
    for x in (None, *NARROW):
        wanted = {
            row
            for row, (least, most) in enumerate(bounds)
            if (least is None and most is None)
            or (x is not None and (least is None or least <= x) and (most is None or x <= most))
        }
        assert set(table.match({"x": x, "y": 0})) == wanted
    with pytest.raises(EventError, match=r"0\.5 is not a Decimal or an int"):
        table.subscribe_many([80], low={"x": [0.5]}, high={})
