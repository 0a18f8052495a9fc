"""Clauses as newcomers write them: what is wrong, where, and what to write instead; why a clause matches nothing."""

from __future__ import annotations

import re
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.conditions import conditions, worlds
from helpers.strategies import examples
from thatch.errors import ClauseError
from thatch.space.space import Space
from thatch.where.hints import REACH, explained
from thatch.where.reasons import why_empty

DECLARED = (
    "symbol string, price double not null 0..1000, side enum('buy', 'sell'), day date, at timestamp, live bool,"
    " volume int, ratio float, clock timestamp_ntz, `case` string"
)


@cache
def shared() -> Space:
    return Space.parse(DECLARED)


LONG = "symbol IN (" + ", ".join(f"'it''s {i}'" for i in range(200)) + ") AND "
# `^` stands before the place.
MEANT = [
    # Operators
    ("price ^=> 5", "no operator '=>' (did you mean >=?)"),
    ("price ^=< 5", "no operator '=<' (did you mean <=?)"),
    ("symbol = 'a'\n AND price ^=> 5", "no operator '=>' (did you mean >=?)"),
    (f"{LONG}price ^=> 5", "no operator '=>' (did you mean >=?)"),
    ("price ^=== 5", "no operator '===' (did you mean =?)"),
    ("price ^:= 5", "did you mean =?"),
    ("symbol ^contains 'a'", "no operator 'contains' (LIKE 'a%' for a prefix)"),
    ("symbol ^startswith 'a'", "no operator 'startswith' (LIKE 'a%' for a prefix)"),
    ("symbol ^~ 'a'", "unexpected '~' (LIKE 'a%' for a prefix)"),
    ("symbol ^=~ 'a'", "LIKE 'a%' for a prefix"),
    ("price ^greater than 5", "no operator 'greater' (write >)"),
    ("price is ^less than 5", "write <"),
    ("price ^equals 5", "write ="),
    ("price ^not < 5", "NOT stands before a condition (write >=)"),
    ("price ^not <=> 5", "write NOT before the attribute"),
    ("price ^not 5", "write price <> 5"),
    ("price ^notnull", "no operator 'notnull' (write IS NOT NULL)"),
    ("price ^betwen 5 AND 10", "did you mean BETWEEN?"),
    ("price ^within 5", "the operators are ="),
    ("price ^5", "an operator is missing (write price = 5)"),
    ("price ^≤ 5", "write <="),
    ("price ^≠ 5", "write <>"),
    # AND, OR, NOT
    ("^AND price < 5", "a clause does not begin with AND"),
    ("price < 5 ^AND", "a condition is missing after AND"),
    ("price < 5 ^or -- more", "a condition is missing after OR"),
    ("price < 5 and ^not", "a condition is missing after NOT"),
    ("price < 5 ^AND AND volume = 3", "a condition is missing after AND"),
    ("(price < 5 ^AND) OR live", "a condition is missing after AND"),
    ("live AND (^OR volume = 3)", "a condition is missing before OR"),
    ("price ^< AND volume = 3", "a value is missing after <"),
    ("price < 5 ^symbol = 'A'", "AND or OR is missing before it"),
    ("price < 5 ^an symbol = 'A'", "did you mean AND?"),
    ("price < 5^, symbol = 'A'", "conditions are joined by AND or OR"),
    ("5 < price ^< 10", "a comparison has two sides (write price > 5 AND price < 10)"),
    ("-1 <= price ^< 10", "write price >= -1 AND price < 10"),
    ("volume = 3 ^= 3", "join two comparisons by AND"),
    # Texts, names and quotes
    ("symbol = ^‘A’", "a typographic quote: write '"),
    ("symbol = ^“A”", "a typographic quote: write '"),
    ("symbol = ^A", "no attribute 'A' (a text stands in quotes: 'A')"),
    ("^A = symbol", "no attribute 'A' (a text stands in quotes: 'A')"),
    ("side = ^BUY", "a text stands in quotes: 'buy'"),
    ("symbol LIKE ^A%", "the pattern of LIKE is a text (it stands in quotes: 'A%')"),
    ("live = ^yes", "no attribute 'yes' (write TRUE or FALSE)"),
    ("price < ^NaN", "no attribute 'NaN' (write 'NaN')"),
    ("ratio < ^inf", "write 'inf'"),
    ("volume < ^NaN", "a number is written in digits"),
    ("price < ^volume", "a column compared with a column is not supported"),
    ("^prise = A", "no attribute 'prise' (did you mean 'price'?)"),
    ('^"price" < 5', "\"price\" in quotes is a text (write price, or `price` in backticks)"),
    ("^'price' < 5", "'price' in quotes is a text (write price, or `price` in backticks)"),
    ("^'price' IN (1)", "in quotes is a text"),
    ("^'case' IS NULL", "'case' in quotes is a text (write `case` in backticks)"),
    ("symbol = ^'it's'", "the text ends after 'it' (a quote within quotes is written twice: 'it''s')"),
    ("symbol = ^'O'Brien' AND price < 5", "a quote within quotes is written twice"),
    ("symbol = ^'rock'n'roll'", "written twice: 'rock''n''roll'"),
    ("^trades.price < 5", "did you mean 'price'? Table names are left out"),
    ("^[price] < 5", "names stand in backticks: `price`"),
    ("^{x} < 5", "unexpected '{'"),
    ("^7days > 5", "a name that begins with a digit stands in backticks: `7days`"),
    # Dates and numbers
    ("day > ^2020-01-01", "a date is written DATE'2020-01-01'"),
    ("day > ^2020/01/01", "a date is written DATE'2020-01-01'"),
    ("at > ^2020-01-01 10:00", "write TIMESTAMP'2020-01-01 10:00'"),
    ("day > ^yesterday", "no attribute 'yesterday' (a date is written DATE'2020-02-29')"),
    ("at > ^now", "a timestamp is written TIMESTAMP'2020-02-29 13:45:00'"),
    ("clock > ^now", "a timestamp_ntz is written '2020-02-29 13:45:00'"),
    ("price < 5^,000", "numbers have no separators: 5000"),
    ("price < 5^,000,000 AND live", "numbers have no separators: 5000000"),
    ("price < 5^,5", "the decimal point is a dot: 5.5"),
    ("price < ^1_000", "'1_000' is not a number (numbers have no separators: 1000)"),
    ("price < ^1.000.000", "numbers have no separators"),
    ("price < 1 ^000", "numbers have no separators: 1000"),
    ("price < ^0x10", "write it in decimal: 16"),
    ("price < ^5k", "'5k' is not a number"),
    ("price < ^$5", "write the number alone: 5"),
    # BETWEEN, IN, IS
    ("price ^BETWEEN 5", "BETWEEN takes two values (write BETWEEN low AND high)"),
    ("price BETWEEN 5^, 10", "write BETWEEN 5 AND 10"),
    ("price BETWEEN (5^, 10)", "write BETWEEN 5 AND 10"),
    ("price BETWEEN -5 ^TO 10 AND live", "write BETWEEN -5 AND 10"),
    ("price ^BETWEEN 5 AND", "BETWEEN takes two values"),
    ("price in ^5", "IN takes a list (write IN (5))"),
    ("volume IN ^[1,2]", "a list stands in parentheses: IN (1, 2)"),
    ("price IN ^()", "the IN list is empty"),
    ("symbol in (^A, B)", "an IN list holds literals only (a text stands in quotes: 'A')"),
    ("volume NOT in (1, ^x)", "a number is written in digits"),
    ("price ^IN", "a list is missing after IN"),
    ("symbol is ^'A'", "IS takes NULL, TRUE or FALSE (write = 'A')"),
    ("symbol IS NOT ^'A'", "write <> 'A'"),
    ("price is ^nul", "did you mean NULL?"),
    ("price is not ^none", "did you mean NULL?"),
    ("symbol IS ^IN ('A')", "leave out IS"),
    # More than a clause, and what is not supported
    ("^WHERE price < 5", "a clause is only what follows WHERE (leave out WHERE)"),
    ("^SELECT * FROM t WHERE price < 5", "a clause is only what follows WHERE"),
    ("cheap^: price < 20", "a text file has a clause a line, without ids: files in YAML, TOML or CSV have ids"),
    ("price < 5 ^# cheap", "comments begin with --"),
    ("price < 5 ^// cheap", "comments begin with --"),
    ("symbol ^ILIKE 'a%'", "ILIKE is not supported (a constant prefix is supported: LIKE 'abc%')"),
    ("^CASE WHEN live THEN 1 END = 1", "write the conditions out with AND and OR; the attribute is written `CASE`"),
    ("^EXISTS (SELECT 1)", "a sub-query is not supported (write the values: IN (1, 2))"),
    ("price < ^< 5", "an operator too many: '<'"),
    ("price <> ^= 5", "an operator too many: '='"),
    ("price < ^= 5", "an operator too many: '=' (write <=)"),
    ("price ^, 5", "is malformed near ', 5' (`thatch help clauses` lists what is supported)"),
]  # fmt: skip


@pytest.mark.parametrize(("marked", "said"), MEANT, ids=range(len(MEANT)))
def test_what_was_meant_is_said_at_its_place(marked: str, said: str) -> None:
    before, _, after = marked.partition("^")
    with pytest.raises(ClauseError, match=re.escape(said)) as refused:
        shared().where(before + after)
    line = before.count("\n") + 1
    assert (refused.value.line, refused.value.column) == (line, len(before.rpartition("\n")[2]) + 1)


@examples(40)
@given(st.data())
def test_no_hint_is_about_what_a_clause_may_hold(data: st.DataObject) -> None:
    world = data.draw(worlds())
    clause = data.draw(conditions(world.columns, 4, True)).sql
    refusal = ClauseError("refused")
    refusal.offset = data.draw(st.integers(0, len(clause)))
    assert explained(refusal, clause, world.space()) is refusal


def test_hints_are_bounded() -> None:
    """Whatever stands around the place, a hint is short."""
    for clause in ("price in '" + "x" * 60_000 + "'", "symbol = " + "A" * 1_000, "price between " + "5" * 1_000):
        with pytest.raises(ClauseError) as refused:
            shared().where(clause)
        assert len(str(refused.value)) < 3 * REACH


@pytest.mark.parametrize(
    ("clause", "reason"),
    [
        ("side = 'BUY'", "'BUY' is no value of side: 'buy', 'sell' (did you mean 'buy'?)"),
        ("side IN ('x')", "'x' is no value of side: 'buy', 'sell'"),
        ("side LIKE 'z%' AND live", "side is one of 'buy', 'sell'"),
        ("side > 'z'", "side is one of 'buy', 'sell'"),
        ("price > 1000", "the domain of price is 0.0..1000.0"),
        ("price IN (2000, 3000) OR price = 4000", "the domain of price is 0.0..1000.0"),
        ("NOT price < 2000", "the domain of price is 0.0..1000.0"),
        ("symbol = null", "a comparison with NULL is never true: write IS NULL"),
        ("price != null", "a comparison with NULL is never true: write IS NOT NULL"),
        ("price < NULL", "write IS NULL or IS NOT NULL"),
        ("symbol LIKE NULL", "never true"),
        ("volume NOT IN (1, NULL)", "NOT IN is never true with NULL in the list"),
        ("price BETWEEN 20 AND 10", "20 is above 10"),
        ("volume > 5 AND live AND volume < 5", "no volume meets all conditions"),
        ("volume = 5.5", "no int equals 5.5"),
        ("price IS NULL", "price is not null"),
        ("price <=> NULL", "price is not null"),
        ("'symbol' = 'A'", "it compares two literals: a text in quotes is no attribute"),
        ("(live OR volume = 1) AND NOT (live OR volume = 1)", ""),
    ],
)
def test_why_no_event_can_match(clause: str, reason: str) -> None:
    assert shared().where(clause).is_empty or not reason
    assert why_empty(clause, shared()).endswith(reason)


@examples(30)
@given(st.data())
def test_a_reason_is_given_only_of_what_is_empty(data: st.DataObject) -> None:
    world = data.draw(worlds())
    clause = data.draw(conditions(world.columns, 3, True)).sql
    space = world.space()
    assert not why_empty(clause, space) or space.where(clause).is_empty, clause
