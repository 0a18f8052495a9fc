"""WHERE clauses: kept plans, refusals with their places, caps, hostile input, and mutations of good clauses."""

from __future__ import annotations

import gc
import inspect
import re
import signal
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.conditions import conditions, worlds
from helpers.strategies import examples
from helpers.yardstick import yardsticks
from thatch.errors import CallerError, ClauseError, TooManyTerms
from thatch.region.region import Region
from thatch.space.space import Space
from thatch.where.compile import SHAPES_MAX
from thatch.where.lexer import CLAUSE_SIZE_MAX, DEPTH_MAX, LIST_SIZE_MAX

DECLARED = (
    "a int, b int, c int, f bool, price double not null 0..1000, name string, day date, at timestamp,"
    " kind enum('a','b'), amount decimal(10,2), i int, j int, k int"
)


@cache
def shared() -> Space:
    """Warm: sqlglot is imported and an ordinary clause was read."""
    space = Space.parse(DECLARED)
    space.where("a = 1 AND name LIKE 'x%' OR price < 3")
    return space


def outcome(space: Space, clause: str) -> str:
    try:
        return space.where(clause).to_sql()
    except ClauseError as error:
        return f"refused: {error}"


# --- Kept plans -------------------------------------------------------------------------------------------------------

LITERALS = [
    "1",
    "1.0",
    "1.5D",
    "'1'",
    "NULL",
    "TRUE",
    "-1",
    "1e0",
    "DATE'2020-01-01'",
    "TIMESTAMP'2020-01-01'",
    "99999999999999999999",
    "'x'",
    "1L",
    "0.5BD",
]
SHAPES = [
    "{c} = {0}",
    "{c} <> {0}",
    "{0} >= {c}",
    "{c} <=> {0}",
    "{c} IN ({0}, {1})",
    "{c} NOT IN ({0}, {1})",
    "{c} BETWEEN {0} AND {1}",
    "NOT ({c} < {0} OR {c} > {1})",
    "{0} < {1}",
    "{c} LIKE {0}",
    "within({0}, {c}, {1})",
    "a = 1 AND {c} = {0} OR b IN (1, {1})",
]


@examples(80)
@given(
    st.lists(st.tuples(st.sampled_from(SHAPES), *[st.sampled_from(LITERALS)] * 2), min_size=2, max_size=6), st.data()
)
def test_kept_plans_agree_with_fresh_ones(chosen: list[tuple[str, str, str]], data: st.DataObject) -> None:
    """Clauses that differ only in literals share a plan; in the kind of a literal, they do not."""
    column = data.draw(st.sampled_from([attribute.name for attribute in shared()]))
    warm = Space.parse(DECLARED)
    for shape, one, other in chosen:
        clause = shape.format(one, other, c=column)
        fresh = Space.parse(DECLARED)
        first = outcome(warm, clause)
        assert first == outcome(warm, clause) == outcome(fresh, clause)
        warm._plans.clear()
        assert outcome(warm, clause) == first


@examples(60)
@given(st.data())
def test_kept_plans_of_any_condition(data: st.DataObject) -> None:
    world = data.draw(worlds())
    condition = data.draw(conditions(world.columns, 4, True))
    space = world.space()
    region = space.where(condition.sql)
    kept = len(space._plans)
    assert space.where(condition.sql) == region and len(space._plans) == kept == 1
    space._plans.clear()
    assert space.where(condition.sql) == region


def test_errors_of_kept_plans_have_the_place_of_this_clause() -> None:
    space = Space.parse(DECLARED)
    space.where("a = 1 AND b = '2'")
    with pytest.raises(ClauseError, match="'x' is not an int") as refused:
        space.where("a = 12345 AND b = 'x'")
    assert (refused.value.line, refused.value.column) == (1, 19)


def test_plans_kept_are_few() -> None:
    space = Space.parse("a int")
    for index in range(SHAPES_MAX + 50):
        space.where(f"a{' ' * index} = 1")
    assert len(space._plans) <= SHAPES_MAX
    assert space.where("a = 1") == space.where("a  = 1")


@pytest.mark.long
def test_plans_kept_are_small() -> None:
    """A cache full of the largest plans that are kept at all must not be felt."""
    space = Space.parse("f bool")
    space.where("f")
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept = len(space._plans)
    for size in (1_000, 3_200):
        space.where(" OR ".join(["f"] * size))
    gc.collect()
    growth = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    each = growth / max(len(space._plans) - kept, 1)
    assert each * SHAPES_MAX < 200 * 2**20


# --- Refusals: rule, line and column ----------------------------------------------------------------------------------

REFUSED: list[tuple[str, int, int, str]] = [
    # columns, functions, sub-queries, arithmetic
    ("a = b", 1, 5, "a column compared with a column is not supported"),
    ("a = 1 AND\n  b < c", 2, 7, "a column compared with a column is not supported"),
    ("f\n OR a <=> b", 2, 11, "a column compared with a column"),
    ("a BETWEEN b AND 5", 1, 11, "a column compared with a column"),
    ("upper(name) = 'A'", 1, 1, "the function UPPER is not supported"),
    ("f AND name = upper('a')", 1, 14, "the function UPPER is not supported"),
    ("coalesce(a, 1) = 1", 1, 1, "the function COALESCE is not supported"),
    ("IF(f, 1, 2) = 1", 1, 4, "the function IF is not supported"),
    ("within(1, a, 0) = TRUE", 1, 1, "within"),
    ("a IN (SELECT 1)", 1, 7, "a sub-query is not supported"),
    ("f OR EXISTS (SELECT 1)", 1, 6, "a sub-query is not supported"),
    ("a + 1 > 5", 1, 3, "unexpected '+'"),
    ("a > 5 - 1", 1, 7, "`-` is not the sign of a number"),
    ("-a > 5", 1, 1, "`-` is not the sign of a number"),
    ("a % 2 = 1", 1, 3, "unexpected '%'"),
    ("a DIV 2 = 1", 1, 3, "arithmetic is not supported"),
    ("CASE WHEN f THEN 1 END = 1", 1, 1, "CASE is not supported"),
    ("f OR CAST(a AS STRING) = '1'", 1, 6, "CAST is not supported"),
    ("at = INTERVAL '1' DAY", 1, 6, "an interval is not supported"),
    ("at = TIMESTAMP_NTZ'2020-01-01'", 1, 6, "a timestamp without time zone is not supported"),
    ("(a, b) = (1, 2)", 1, 11, "Tuple is not supported"),
    ("(a = 1) = TRUE", 1, 2, "a condition does not belong here"),
    ("(a = 1) IS NULL", 1, 2, "IS applies to an attribute, not to a condition"),
    # LIKE
    ("name LIKE '%x'", 1, 11, "is not a constant prefix"),
    ("f OR\n\nname LIKE 'a%c'", 3, 11, "is not a constant prefix"),
    ("name NOT LIKE 'a_c'", 1, 15, "is not a constant prefix"),
    ("name LIKE name", 1, 11, "an attribute does not belong here"),
    ("a LIKE 'x'", 1, 1, "LIKE needs a string, and 'a' is int"),
    ("name LIKE 5", 1, 11, "is an int and cannot be compared with a string attribute"),
    (r"name LIKE 'a\\'", 1, 11, "has the escape character"),
    ("name LIKE 'a' ESCAPE 'xx'", 1, 11, "has an ESCAPE that is not one character"),
    ("name LIKE ANY ('a%', 'b%')", 1, 11, "LIKE ANY is not supported"),
    ("name RLIKE 'x'", 1, 6, "RLIKE is not supported"),
    ("name ILIKE 'x'", 1, 6, "ILIKE is not supported"),
    # within
    ("NOT within(1, a, 0)", 1, 5, "NOT within is not supported"),
    ("NOT (f OR within(1, a, 0))", 1, 11, "NOT within is not supported"),
    ("within(-1, a, 0)", 1, 9, "the radius -1.0 of `within` is not 0 or more"),
    ("within('-1', a, 0)", 1, 8, "the radius -1.0 of `within` is not 0 or more"),
    ("within(1, a)", 1, 1, "`within` takes a radius and pairs"),
    ("within()", 1, 1, "`within` takes a radius and pairs"),
    ("within(1, name, 0)", 1, 11, "`within` needs numbers, and 'name' is string"),
    ("within(1, a, b)", 1, 14, "a number belongs here"),
    ("within(1, 5, 0)", 1, 11, "an attribute belongs here"),
    ("within(1, a, 0, a, 0)", 1, 17, "`within` names 'a' twice"),
    ("within(1, a, 'x')", 1, 14, "a number in `within` is not a double"),
    ("within(1, a, DATE'2020-01-01')", 1, 14, "a number in `within` is a date, not a number"),
    # literals of another type
    ("name = 5", 1, 8, "5 is an int and cannot be compared with a string attribute"),
    ("name = 5.0", 1, 8, "is a decimal and cannot be compared with a string attribute"),
    ("name = DATE'2020-01-01'", 1, 8, "is a date and cannot be compared with a string attribute"),
    ("name = TRUE", 1, 8, "a bool cannot be compared with a string attribute"),
    ("kind = 5", 1, 8, "5 is an int and cannot be compared with an enum attribute"),
    ("f = 1", 1, 5, "1 is an int and cannot be compared with a bool attribute"),
    ("f = 'true'", 1, 5, "'true' is a string and cannot be compared with a bool attribute"),
    ("a = 1 AND\n b = TRUE", 2, 6, "a bool cannot be compared with an int attribute"),
    ("a = 'x'", 1, 5, "'x' is not an int"),
    ("a = '1.5'", 1, 5, "'1.5' is not an int"),
    ("a = DATE'2020-01-01'", 1, 5, "is a date and cannot be compared with an int attribute"),
    ("day = 5", 1, 7, "5 is an int and cannot be compared with a date attribute"),
    ("day = '2020-02-30'", 1, 7, "'2020-02-30' is not a date of the calendar"),
    ("day = DATE'2020-02-30'", 1, 7, "is not a date of the calendar"),
    ("at = TIMESTAMP '2020-01-01 25:00:00'", 1, 6, "is not a time of day"),
    ("a IN (1, 'x')", 1, 3, "a member of the IN list is not an int"),
    ("name IN ('a', 5)", 1, 6, "a member of the IN list is an int and cannot be compared"),
    ("TRUE = 5", 1, 8, "a literal is an int and cannot be compared with a bool"),
    # malformed literals
    ("a = 1e400", 1, 5, "is out of range for a double"),
    ("a = 300Y", 1, 5, "is out of range for 8 bits"),
    ("a = 999999999999999999999999999999999999999", 1, 5, "more than the 38 digits"),
    ("a = 5X", 1, 5, "'5X' is not a number"),
    ("name = 'x", 1, 8, "has no closing quote"),
    ("a = 1\nAND name = \"x", 2, 12, "has no closing quote"),
    ("name = r'x", 1, 8, "has no closing quote"),
    (r"name = '\ud800'", 1, 8, "half a surrogate pair"),
    (r"name = '\Uffffffff'", 1, 8, "has an escape beyond Unicode"),
    ("name = 'a' 'b'", 1, 12, "two literals in a row"),
    ("a = \0", 1, 5, "NUL character"),
    # names
    ("x IS NULL", 1, 1, "no attribute 'x'"),
    ("/* one\n two */ f AND pricee > 5", 2, 15, "no attribute 'pricee' (did you mean 'price'?)"),
    ("t.a = 1", 1, 1, "no attribute 't.a'"),
    ("`a = 1", 1, 1, "no closing backtick"),
    ("a", 1, 1, "'a' is not a condition: it is int"),
    # lists
    ("a IN (b, 1)", 1, 7, "an IN list holds literals only"),
    ("a IN (1, NULL, b)", 1, 16, "an IN list holds literals only"),
    ("a IN ()", 1, 6, "the IN list is empty"),
    ("f NOT IN (1, 2, NULL)", 1, 7, "a member of the IN list is an int"),
    ("name NOT IN (1, 2, NULL)", 1, 10, "a member of the IN list is an int"),
    ("day NOT IN ('2', '3', NULL)", 1, 9, "a member of the IN list is not a date"),
    # spellings that Spark refuses
    ("a ! IN (1)", 1, 3, "`!` stands before a condition (write NOT)"),
    ("a IS ! NULL", 1, 6, "`!` stands before a condition (write NOT)"),
    ("a ! BETWEEN 1 AND 2", 1, 3, "`!` stands before a condition (write NOT)"),
    ("name ! LIKE 'a%'", 1, 6, "`!` stands before a condition (write NOT)"),
    ("(a = 1) ! IN (2)", 1, 9, "`!` stands before a condition (write NOT)"),
    ("5 IN (a)", 1, 1, "a literal"),
    # malformed clauses
    ("", 1, 1, "the clause is empty"),
    ("  -- nothing\n", 1, 1, "the clause is empty"),
    ("5", 1, 1, "a literal is not a condition"),
    ("f AND 'x'", 1, 7, "a literal is not a condition"),
    ("a = 1 b = 2", 1, 7, "is malformed near 'b = 2'"),
    ("a = 1 AS z", 1, 7, "is malformed near 'AS z'"),
    ("AND a = 1", 1, 1, "a clause does not begin with AND"),
    ("a =", 1, 4, "ends too early"),
    ("(a = 1", 1, 7, "1 `(` without `)`"),
    ("a = 1)", 1, 6, "`)` without `(`"),
    ("a = 1;", 1, 6, "unexpected ';'"),
    ("a = 1 && b = 2", 1, 7, "unexpected '&' (write AND)"),
    ("a = :p", 1, 5, "unexpected ':'"),
    ("a = ?", 1, 5, "unexpected '?'"),
    ("a IS 5", 1, 6, "IS takes NULL"),
]  # fmt: skip


@pytest.mark.parametrize(("clause", "line", "column", "rule"), REFUSED)
def test_refusals(clause: str, line: int, column: int, rule: str) -> None:
    with pytest.raises(ClauseError, match=re.escape(rule)) as refused:
        shared().where(clause)
    assert (refused.value.line, refused.value.column) == (line, column)
    assert str(refused.value).startswith(f"line {line}, column {column}: ")


@pytest.mark.parametrize("clause", ["a = ٣", "f = ıN (1)", "f = FALſE", "a = 5ſ", "a IN (1, ٣)"])
def test_only_ascii_digits_and_keywords_are_spark_s(clause: str) -> None:
    with pytest.raises(ClauseError):
        shared().where(clause)


def test_a_clause_is_a_string() -> None:
    for clause in (None, 5, b"a = 1", ["a = 1"]):
        with pytest.raises(CallerError, match="a clause is a string"):
            shared().where(clause)  # type: ignore[arg-type]


# --- Caps -------------------------------------------------------------------------------------------------------------


def pairs(count: int, one: str, other: str) -> str:
    """Alternatives that do not unite: each is a term of two attributes."""
    return "(" + " OR ".join(f"({one} = {i} AND {other} = {-i})" for i in range(1, count + 1)) + ")"


@pytest.mark.parametrize(
    ("clause", "needed"),
    [
        (pairs(50, "x0", "x1"), 50),
        (pairs(10, "x0", "x1") + " AND " + pairs(10, "x2", "x3"), 100),
        (pairs(5, "x0", "x1") + " AND " + pairs(6, "x2", "x3") + " AND " + pairs(7, "x4", "x5"), 210),
        (pairs(10, "x0", "x1") + " OR " + pairs(10, "x2", "x3"), 20),
        (pairs(50, "x0", "x1") + " AND " + pairs(50, "x2", "x3"), 2_500),
        (
            f"{pairs(10, 'x0', 'x1')} AND {pairs(9, 'x2', 'x3')} OR {pairs(8, 'x0', 'x1')} AND {pairs(7, 'x2', 'x3')}",
            146,
        ),
        (f"({pairs(5, 'x0', 'x1')} AND {pairs(6, 'x2', 'x3')} OR x6 = 1) AND {pairs(7, 'x4', 'x5')}", 217),
        (" AND ".join(f"(x{i} = 1 OR x{i + 1} = 1)" for i in range(0, 10, 2)), 32),
        ("NOT (" + " OR ".join(f"(x{i} = 1 AND x{i + 1} = 1)" for i in range(0, 10, 2)) + ")", 32),
    ],
)
def test_too_many_terms(clause: str, needed: int) -> None:
    space = Space.parse(", ".join(f"x{i} int not null" for i in range(10)))
    region = space.where(clause, terms_max=needed)
    assert len(region.terms) <= needed
    for cap in (len(region.terms) - 1, 12):
        with pytest.raises(TooManyTerms) as refused:
            space.where(clause, terms_max=cap)
        assert (refused.value.needed, refused.value.cap) == (needed, cap)
        assert f"needs {needed:,} terms, at most {cap:,} are allowed" in str(refused.value)


def test_as_many_terms_of_two_conditions_as_the_cap_allows() -> None:
    space = Space.parse("x0 int not null, x1 int not null")
    assert len(space.where(pairs(1_024, "x0", "x1")).terms) == 1_024


@pytest.mark.parametrize("kind", ["int", "string"])
def test_a_watchlist_is_one_term(kind: str) -> None:
    space = Space.parse(f"a {kind}, b int")
    numbers = range(0, 3 * LIST_SIZE_MAX, 3)
    members = ", ".join(f"'{number}'" if kind == "string" else str(number) for number in numbers)
    region = space.where(f"a IN ({members}) AND b > 0")
    assert len(region.terms) == 1 and region.terms[0].box_count() == LIST_SIZE_MAX
    value: Callable[[int], Any] = str if kind == "string" else int
    assert region.contains({"a": value(3), "b": 1}) and not region.contains({"a": value(4), "b": 1})
    assert space.where(region.to_sql()) == region


# --- Hostile input ----------------------------------------------------------------------------------------------------

MEGA = 2**20
HOSTILE: dict[str, Callable[[], str]] = {
    "100,000 parentheses": lambda: "(" * 100_000 + "a = 1" + ")" * 100_000,
    "100,000 open parentheses": lambda: "(" * 100_000,
    "100,000 NOTs": lambda: "NOT " * 100_000 + "f",
    "100,000 bangs": lambda: "!" * 100_000 + "f",
    "100,000 NOT (": lambda: "NOT (" * 100_000 + "f" + ")" * 100_000,
    "65,000 terms of one attribute": lambda: " OR ".join(f"a = {i}" for i in range(65_000)),
    "65,000 terms of three attributes": lambda: " OR ".join(f"{'abc'[i % 3]} = {i}" for i in range(65_000)),
    "65,000 terms without literals": lambda: " OR ".join(["(a IS NULL AND f)"] * 65_000),
    "65,000 bools": lambda: " OR ".join(["f"] * 65_000),
    "1 MB literal": lambda: f"name = '{'x' * MEGA}'",
    "1 MB number": lambda: f"a = {'1' * MEGA}",
    "1 MB fraction": lambda: f"a = .{'1' * MEGA}",
    "1 MB literal in a list": lambda: f"name IN ('a', '{'x' * MEGA}')",
    "1 MB unbalanced quote": lambda: f"name = '{'x' * MEGA}",
    "1 MB escaped quotes, unbalanced": lambda: "'" + "\\'" * (MEGA // 2),
    "1 MB escaped quotes and a backslash": lambda: "'" + "\\'" * (MEGA // 2) + "\\",
    '1 MB escaped double quotes and a backslash': lambda: '"' + '\\"' * (MEGA // 2) + "\\",
    "1 MB list of an unbalanced string": lambda: "a IN ('" + "\\'" * (MEGA // 2) + "\\",
    "1 MB quotes": lambda: "'" * (MEGA + 1),
    "1 MB spaced quotes": lambda: "' " * (MEGA // 2),
    "ten million terms": lambda: " AND ".join(f"(a = {i} OR b = {i} OR c = {i})" for i in range(15)),
    "ten million terms in long ORs": lambda: " AND ".join(pairs(216, *two) for two in ("ab", "ci", "jk")),
    "490,000 terms at once": lambda: pairs(700, "a", "b") + " AND " + pairs(700, "c", "i"),
    "IN list of 50,001 ints": lambda: f"a IN ({','.join(map(str, range(LIST_SIZE_MAX + 1)))})",
    "IN list of 50,001 strings": lambda: "name IN (" + ",".join(f"'{i}'" for i in range(LIST_SIZE_MAX + 1)) + ")",
    "IN list of a million ones": lambda: f"a IN ({','.join(['1'] * MEGA)})",
    "IN list of 50,001 and no end": lambda: f"a IN ({','.join(map(str, range(LIST_SIZE_MAX + 1)))}",
    "1 MB of IN(": lambda: "IN(" * (MEGA // 3),
    "1 MB of IN('": lambda: "IN('" * (MEGA // 4),
    "1 MB spaces": lambda: " " * MEGA,
    "1 MB spaces before the end": lambda: "a = 1" + " " * MEGA + "x",
    "1 MB stretches": lambda: ("x" * 60_000 + "1") * 17,
    "1 MB lines": lambda: "\n" * MEGA + "x",
    "1 MB comments": lambda: "/**/" * (MEGA // 4),
    "1 MB line comments": lambda: "--\n" * (MEGA // 3),
    "1 MB comment without end": lambda: "/*" + "x" * MEGA,
    "1 MB comments without end": lambda: "/*" * (MEGA // 2),
    "1 MB backticks": lambda: "`" * MEGA,
    "1 MB backticks, unbalanced": lambda: "`" * (MEGA + 1),
    "1 MB names": lambda: "`a` " * (MEGA // 4),
    "1 MB name": lambda: "a" * MEGA + " = 1",
    "1 MB name in backticks": lambda: "`" + "a" * MEGA + "` = 1",
    "1 MB words": lambda: "a " * (MEGA // 2),
    "1 MB dates": lambda: "DATE " * (MEGA // 5),
    "1 MB dots": lambda: "." * MEGA,
    "1 MB digits and dots": lambda: "1." * (MEGA // 2),
    "1 MB signs": lambda: "- " * (MEGA // 2),
    "1 MB NULs": lambda: "\0" * MEGA,
    "too long": lambda: "a = 1".ljust(CLAUSE_SIZE_MAX + 1),
}  # fmt: skip


# What is promised in 17 yardsticks; the rest, of our own invention, only has to be linear.
PROMISED = ("100,000", "65,000", "1 MB literal", "1 MB unbalanced", "1 MB quotes", "1 MB escaped", "ten million terms")


@pytest.fixture(params=HOSTILE, scope="module")
def hostile(request: pytest.FixtureRequest) -> tuple[str, float]:
    promised = request.param.startswith(PROMISED) and not request.param.endswith("long ORs")
    return HOSTILE[request.param](), 17.0 if promised else 250.0


def refuse(clause: str, slower: float = 1.0) -> None:
    with pytest.raises(ClauseError), time_limit(2 * slower):
        shared().where(clause)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Of the processor's time: a busy machine is no reason to give up. A scan that is not linear would otherwise go on
    for hours."""

    def expire(*_: object) -> None:
        raise TimeoutError(f"still busy after {seconds} s")

    previous = signal.signal(signal.SIGPROF, expire)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)


def test_hostile_input_is_refused_at_once(hostile: tuple[str, float]) -> None:
    """In 17 yardsticks (about 50 ms on a quiet machine) and 10 MB."""
    clause, limit = hostile
    assert yardsticks(lambda: refuse(clause), limit) < limit
    gc.collect()
    tracemalloc.start()
    try:
        refuse(clause, slower=4)  # each allocation is noted
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < (10_000_000 if limit < 20 else 20_000_000), f"{peak / 1e6:.1f} MB"


def at_depth(frames: int, act: Callable[[], None]) -> None:
    """Call from a stack that is so many frames deep."""
    start = len(inspect.stack(0))

    def down(left: int) -> None:
        if left > 0:
            down(left - 1)
        else:
            act()

    down(frames - start)


@pytest.mark.parametrize(
    "name", ["100,000 parentheses", "100,000 NOTs", "65,000 bools", "ten million terms", "1 MB quotes"]
)
def test_hostile_input_from_a_deep_stack(name: str) -> None:
    clause = HOSTILE[name]()
    at_depth(700, lambda: refuse(clause))


NESTED = ["(" * depth + "a = 1" + ")" * depth for depth in (1, 5, 10, 15, DEPTH_MAX - 1, DEPTH_MAX, DEPTH_MAX + 1)] + [
    "NOT " * DEPTH_MAX + "f",
    "NOT (" * (DEPTH_MAX // 2) + "f" + ")" * (DEPTH_MAX // 2),
    "(f OR a = 1 AND " * (DEPTH_MAX - 1) + "f" + ")" * (DEPTH_MAX - 1),
    "(f AND NOT (a = 1 OR " * (DEPTH_MAX // 3) + "f" + "))" * (DEPTH_MAX // 3),
    " OR ".join(f"(a = {i} AND b = {i})" for i in range(500)),
    " AND ".join(["f"] * 2_000),
    "a = 1" + " = 1" * 1_000,
    "name" + " LIKE 'a'" * 1_000,
    "a" + " IS NULL" * 1_000,
    "a" + " IN (1)" * 1_000,
    "a" + " BETWEEN 1 AND 2" * 500,
    "within(" * (DEPTH_MAX - 1) + ")" * (DEPTH_MAX - 1),
]


@pytest.mark.parametrize("clause", NESTED, ids=range(len(NESTED)))
def test_nesting_is_read_or_refused_from_any_stack(clause: str) -> None:
    def act() -> None:
        space = Space.parse(DECLARED)
        with suppress(ClauseError):
            assert isinstance(space.where(clause), Region)

    act()
    at_depth(700, act)


def test_the_depth_that_is_allowed_is_read() -> None:
    space = Space.parse(DECLARED)
    expected = space.where("a = 1")
    assert space.where("(" * DEPTH_MAX + "a = 1" + ")" * DEPTH_MAX) == expected
    assert space.where("NOT " * DEPTH_MAX + "(a = 1)".strip("()")) == expected
    nested = "(a = 1 AND (b = 2 OR NOT (c = 3 AND f)))"
    found: list[str] = []
    at_depth(700, lambda: found.append(outcome(Space.parse(DECLARED), nested)))
    assert found == [outcome(space, nested)]


# --- Mutations --------------------------------------------------------------------------------------------------------

GOOD = [
    "price BETWEEN 10 AND 20 AND name IN ('A', 'B', NULL)",
    "NOT (a = 1 OR b <> -2.5) AND f IS NOT TRUE",
    "name LIKE 'ab%' OR name NOT LIKE '50!%%' ESCAPE '!' OR name >= r'x\\y'",
    "day >= DATE'2020-02-29' AND at < TIMESTAMP '2020-01-01 10:00:00.5' OR day = '2021'",
    "within(2.5, a, 1, price, -1e3) AND kind IN ('a') OR amount <=> 1.50BD",
    "a IS NOT DISTINCT FROM 5 OR 7 BETWEEN NULL AND 5 OR `b` NOT IN (1, 2L, 3S, 4Y)",
    'f = TRUE AND (! f OR name = "it\'s" /* why */ AND b IS NULL) -- end',
    "a IN (1, 2.0, 3e0, '4') AND NOT c NOT BETWEEN - 1 AND 1 OR TRUE <=> FALSE",
]
TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'|\"[^\"]*\"|`[^`]*`|\w+|\s+|<=>|[<>!=]=|.", re.DOTALL)
EXTRA = [
    *"()'\"`,;.-+*/%<>=!\\\0\n 019eEDdrR_aé😀[]{}|&:?~",
    "NOT", "IN", "IN (1)", "IS", "NULL", "BETWEEN", "AND", "OR", "LIKE", "ESCAPE", "TRUE", "DISTINCT", "FROM",
    "within(", "DATE", "TIMESTAMP", "DATE'x'", "1e999", "99999999999999999999", "'\\", "--", "/*", "*/", "SELECT",
    "CASE", "INTERVAL", "UNKNOWN", "ALL", "x", "a", "name", "''", "1.", ".5", "0x1F", "5L", "${x}", "@v", "::int",
    "\u00a0", "\ud800",
]  # fmt: skip


def mutated(random: Random, clause: str) -> str:
    parts = TOKEN.findall(clause) if random.random() < 0.7 else list(clause)
    for _ in range(random.choice((1, 1, 2, 3))):
        place, other = random.randrange(len(parts)), random.randrange(len(parts))
        action = random.randrange(5)
        if action == 0 and len(parts) > 1:
            del parts[place]
        elif action == 1:
            parts.insert(other, parts[place])
        elif action == 2:
            parts[place], parts[other] = parts[other], parts[place]
        elif action == 3:
            parts.insert(place, random.choice(EXTRA))
        else:
            parts[place] = random.choice(EXTRA)
    return "".join(parts)


def assert_inside(clause: str, error: ClauseError) -> None:
    """The place of an error is in the clause, or right after its end."""
    lines = clause.split("\n")
    assert 1 <= error.line <= len(lines), clause
    assert 1 <= error.column <= len(lines[error.line - 1]) + 1, clause


@pytest.mark.parametrize("seed", range(6))
def test_mutated_clauses_are_read_or_refused(seed: int) -> None:
    random = Random(seed)
    space = Space.parse(DECLARED)
    read = 0
    for _ in range(1_000):
        clause = mutated(random, random.choice(GOOD))
        try:
            region = space.where(clause)
        except ClauseError as error:
            assert_inside(clause, error)
        except Exception as error:
            raise AssertionError(f"{type(error).__name__} for {clause!r}") from error
        else:
            read += 1
            assert space.where(region.to_sql()) == region, clause
    assert read > 50, "mutations should leave some clauses good"
