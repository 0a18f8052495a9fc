"""Plain clauses, planned without a parser: the plan is the one that sqlglot's tree gives, or there is none."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from random import Random
from typing import Any

import pytest

from thatch.errors import ClauseError
from thatch.space.space import Space
from thatch.where.compile import _planned
from thatch.where.lexer import scan
from thatch.where.plain import SIZE_MAX, plain_plan
from thatch.where.plans import And, Atom, ClausePlan, Or

DECLARED = "a int, b int, price double, name string, day date, kind enum('a','b'), f bool, `and` int, `x y` int"


@cache
def space() -> Space:
    return Space.parse(DECLARED)


def described(plan: ClausePlan) -> Any:
    """All that a plan is made of."""
    if isinstance(plan, And | Or):
        return type(plan).__name__, [described(each) for each in plan.parts]
    slots = [name for kind in type(plan).__mro__ for name in getattr(kind, "__slots__", ())]
    assert isinstance(plan, Atom)
    return type(plan).__name__, {name: getattr(plan, name) for name in slots if name != "attribute"}


def both(clause: str) -> tuple[ClausePlan | None, ClausePlan | None]:
    """The plan without a parser, and with it; None where there is none."""
    shape = scan(clause, space().zone).shape
    try:
        parsed = _planned(clause, shape, space())
    except ClauseError:
        parsed = None
    return plain_plan(shape, space()), parsed


PLAIN = [
    "a = 1",
    "A=1",
    "a == 1 and B <> 2 or price >= -3.5 and name != 'x'",
    "a <=> 1 OR a < - 2",
    "name IN ('a', 'b')",
    "name NOT IN ('a', NULL)",
    "name not/* why */in ('a')",
    "a BETWEEN -1 AND 5 AND b NOT BETWEEN 2 AND - 3",
    "a IS NULL AND b is not null",
    "day>='2020-01-01'AND day<DATE'2021-01-01'",
    "\n a\t=\n1 -- one\n AND b = 2",
    "price < 1e3 OR price > 2.5D OR price = 3BD",
]
NOT_PLAIN = [
    "",
    "TRUE",
    "f",
    "NOT a = 1",
    "(a = 1)",
    "1 = a",
    "a = 1 ANDb = 2",
    "a = 1 AND",
    "a = 1 OR OR b = 2",
    "a = NULL",
    "a = TRUE",
    "a !< 1",
    "a = -'1'",
    "a = --1\n",
    "a = b",
    "unknown = 1",
    "and = 1",
    "`and` = 1",
    "`x y` = 1",
    "a.b = 1",
    "name LIKE 'x%'",
    "a IN (1, b)",
    "a = 1 2",
    "a BETWEEN 1 AND 2 3",
    "a IS TRUE",
    "a IS NULLS",
    "a\u00a0= 1",
    "a\u00e9 = 1",
    "a = 1 AND\u00e9 = 1",
    "a = 1;",
    "a = 1 \u017fr b = 2",
    "within(1, a, 2)",
]


@pytest.mark.parametrize("clause", PLAIN)
def test_a_plain_clause_has_the_plan_of_its_tree(clause: str) -> None:
    plain, parsed = both(clause)
    assert plain is not None and parsed is not None
    assert described(plain) == described(parsed)


@pytest.mark.parametrize("clause", NOT_PLAIN)
def test_what_is_not_plain_is_left_to_the_parser(clause: str) -> None:
    shape = scan(clause, space().zone).shape
    assert plain_plan(shape, space()) is None


PIECES = (
    "a b price name kind f and or not between in is null true like AND OR NOT NULL unknown `a` = == <> != < <= > >= "
    "<=> ! - ( ) , 1 2.5 'x' 'a%' DATE'2020-01-01' (1,2) ('x',NULL)"
).split()


def test_pieces_in_any_order_have_the_same_plan_or_none() -> None:
    """Also where neither is SQL: a plan without a parser is always that of a tree."""
    draw, found = Random(7), 0
    for _ in range(6_000):
        count = draw.choice((1, 1, 2, 3))
        tests = [
            draw.choice(
                (
                    "{n} {o} {l}", "{n}{o}{l}", "{n} in (1,{l})", "{n} not in ({l})", "{n} between {l} and {l}",
                    "{n} not between -{l} AND {l}", "{n} is null", "{n} is not NULL", "{p} {p} {p}", "{n} {p} {l}",
                )
            ).format(
                n=draw.choice(("a", "price", "name", "kind", "f", "day", "zz")),
                o=draw.choice(("=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>", "!<")),
                l=draw.choice(("1", "-2", "'x'", "2.5", "NULL", "DATE'2020-01-01'", "1e3")),
                p=draw.choice(PIECES),
            )
            for _ in range(count)
        ]  # fmt: skip
        clause = tests[0] + "".join(f"{draw.choice((' AND ', ' or ', ' ', ')and('))}{test}" for test in tests[1:])
        try:
            plain, parsed = both(clause)
        except ClauseError:  # the scanner refuses it
            continue
        if plain is not None:
            found += 1
            assert parsed is not None, clause
            assert described(plain) == described(parsed), clause
    assert found > 1_000


def test_a_long_clause_is_left_to_the_parser() -> None:
    clause = " AND ".join(["a = 1"] * (SIZE_MAX // 8))
    assert plain_plan(scan(clause, space().zone).shape, space()) is None
    assert space().where(clause).to_sql() == "a = 1"


def test_plain_clauses_need_no_parser() -> None:
    code = (
        "import sys, thatch\n"
        "space = thatch.Space.parse('price double, symbol string')\n"
        "space.where(\"price < 20 AND symbol IN ('A', 'B')\")\n"
        "assert 'sqlglot' not in sys.modules\n"
        "space.where('NOT price < 20')\n"
        "assert 'sqlglot' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
