"""Many subscriptions at once, as clauses, regions and typed columns: each decides as one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from helpers.clause_rows import COLUMNS, SPACE, make_rows, without_some_nulls
from helpers.cover_oracles import MIXED_SPACES, clause_pool, recode
from helpers.strategies import soaked
from helpers.tables import SEED, SETTINGS, active, passive, quietly
from thatch import CallerError, Space, SubscriptionTable
from thatch.cover import ActiveSet, verify
from thatch.errors import EmptyRegionWarning
from thatch.region.columns import boxes_of_columns
from thatch.region.region import Region
from thatch.space.axis import EnumAxis, quoted
from thatch.space.decimals import DecimalAxis, decimal_of

# --- Many at once: clauses and regions --------------------------------------------------------------------------------


def chosen_clauses(random: Random, text: str, count: int) -> tuple[Space, list[str]]:
    space, regions = clause_pool(text, 50, SEED)
    return space, [random.choice(regions).to_sql() for _ in range(count)]


@quietly
@pytest.mark.parametrize(
    ("form", "cover", "retract"),
    [
        *(("clauses", *each) for each in SETTINGS),
        ("regions", "exact", False),
        ("another space", None, False),
        ("another space", "exact", True),
    ],
)
def test_many_decide_as_one_by_one(form: str, cover: str | None, retract: bool) -> None:
    random = Random(f"{SEED}/{form}/{cover}/{retract}")
    space, clauses = chosen_clauses(random, MIXED_SPACES[2], soaked(40, 70))
    elsewhere = Space.parse(str(space))
    elsewhere.where("name >= 'aaaa' AND name < 'zzz'")
    forms: dict[str, Callable[[str], str | Region]] = {
        "clauses": str,
        "regions": space.where,
        "another space": elsewhere.where,
    }
    made = forms[form]
    table, active_set = SubscriptionTable(space, cover, retract), ActiveSet(space, cover, retract)
    start = 0
    for size in (1, 0, soaked(15, 30), 4, soaked(20, 35)):
        ids = [f"{random.random()}" for _ in range(size)]
        wheres = clauses[start : start + size]
        regions = {id: space.where(where) for id, where in zip(ids, wheres, strict=True)}
        members = {id: active_set.region(id) for id in active_set.active}
        expected = [active_set.subscribe(id, region) for id, region in regions.items()]
        changes = table.subscribe_many(ids, [made(where) for where in wheres])
        for id, one, other in zip(ids, changes, expected, strict=True):
            assert one.forward == other.forward and sorted(one.withdraw) == sorted(other.withdraw)
            assert type(one.verdict) is type(other.verdict)
            assert one.verdict is None or verify(one.verdict, regions[id], members), id  # witnesses, too
            members.update({each: regions[each] for each in one.forward})
            members = {each: region for each, region in members.items() if each not in one.withdraw}
        assert active(table) == active_set.active and passive(table).keys() == active_set.passive.keys()
        table.check_invariants()
        start += size
    assert cover is None or len(active_set.passive) > 10


# --- Many at once: typed columns --------------------------------------------------------------------------------------


def literal(attribute: Any, value: Any) -> str:
    if isinstance(attribute.axis, EnumAxis):
        return quoted(value)
    if isinstance(value, str):
        return quoted(value)
    if isinstance(attribute.axis, DecimalAxis):  # with all its places: `0` would have Spark round decimal(38,38)
        return f"{decimal_of(attribute.axis.unscaled(value), attribute.axis.scale):f}"
    return attribute.axis.sql_literal(attribute.axis.encode(value))


def bounds_clause(space: Space, low: Mapping[str, Any], high: Mapping[str, Any]) -> str:
    """One row of typed columns as a clause."""
    parts = []
    for attribute in space.attributes:
        least, most = low.get(attribute.name), high.get(attribute.name)
        name = f"`{attribute.name}`"
        if least is not None and most is not None:
            parts.append(f"{name} BETWEEN {literal(attribute, least)} AND {literal(attribute, most)}")
        elif least is not None:
            parts.append(f"{name} >= {literal(attribute, least)}")
        elif most is not None:
            parts.append(f"{name} <= {literal(attribute, most)}")
    return " AND ".join(parts) or "TRUE"


def random_bounds(random: Random, rows: int, nulls: float) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of bounds over every attribute type; some low > high, some beyond the domain."""
    lows, highs = [], []
    for _ in range(rows):
        low: dict[str, Any] = {}
        high: dict[str, Any] = {}
        for column in random.sample(COLUMNS, random.choice((1, 2, 3))):
            if column.family == "enum":
                continue  # not every pair of these bounds one run: below
            values = [random.choice([*column.values, *column.beyond]) for _ in range(2)]
            if random.random() < 0.8:
                values.sort(key=lambda value: (value != value, value))
            low[column.name], high[column.name] = (None if random.random() < nulls else value for value in values)
        lows.append(low)
        highs.append(high)
    return lows, highs


def listed(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {
        each.name: [row.get(each.name) for row in rows] for each in COLUMNS if any(each.name in row for row in rows)
    }


def as_arrow(rows: list[dict[str, Any]]) -> dict[str, Any]:
    kinds = {each.name: each.arrow for each in COLUMNS}
    return {name: pa.array(column, kinds[name]) for name, column in listed(rows).items()}


def as_chunks(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Chunked, of other widths, dictionary-encoded, and beginning in the middle of a buffer."""
    columns = {}
    for name, array in as_arrow(rows).items():
        if pa.types.is_string(array.type):
            array = array.dictionary_encode() if name == "name" else array.cast(pa.large_string())
        elif pa.types.is_decimal(array.type) and array.type.precision <= 18:
            array = array.cast(pa.decimal128(30, 6))
        elif pa.types.is_date(array.type):
            array = array.cast(pa.date64())
        twice = pa.concat_arrays([array.slice(0, 1), array])
        columns[name] = pa.chunked_array([twice.slice(1, 3), twice.slice(4)])
    return columns


@quietly
@pytest.mark.parametrize(
    ("form", "cover", "retract"),
    [
        *((listed, *each) for each in SETTINGS),
        (as_arrow, None, False),
        (as_chunks, None, False),
        (as_chunks, "exact", True),
    ],
)
def test_typed_columns_are_clauses(form: Callable[[Any], Any], cover: str | None, retract: bool) -> None:
    """Every type but enums, with nulls, low > high and bounds beyond the domain, against BETWEEN, >= and <=."""
    space, random = Space.parse(SPACE), Random(f"{SEED}/{form.__name__}/{cover}/{retract}")
    table, active_set = SubscriptionTable(space, cover, retract), ActiveSet(space, cover, retract)
    table.subscribe("first", "live")
    active_set.subscribe("first", space.where("live"))
    lows, highs = random_bounds(random, 45, 0.25)
    ids = [f"r{at}" for at in range(45)]
    changes = table.subscribe_many(ids, low=form(lows), high=form(highs), owners=["ann"] * 45)
    empty = 0
    for id, low, high, change in zip(ids, lows, highs, changes, strict=True):
        clause = bounds_clause(space, low, high)
        region = space.where(clause)
        assert table[id].region == region, clause
        expected = active_set.subscribe(id, region)
        assert change.forward == expected.forward and sorted(change.withdraw) == sorted(expected.withdraw)
        assert type(change.verdict) is type(expected.verdict), clause
        empty += region.is_empty
    assert 0 < empty < 30
    assert passive(table).keys() == active_set.passive.keys() and all(table[id].owner == "ann" for id in ids)
    table.check_invariants()
    rows = [without_some_nulls(random, row) for row in make_rows(random, 25)]
    assert [table.match(row) for row in rows] == [
        sorted(id for id in table if table[id].region.contains(row)) for row in rows
    ]


NUMPY_BOUNDS: dict[str, tuple[Any, Any]] = {
    "flag": (np.array([False, True, False]), np.array([False, True, True])),
    "count": (np.array([1, -5, 7], np.int8), np.array([1, 5, 6], np.int64)),
    "serial": (np.array([-(2**63), 0, 2**63 - 1]), np.array([2**63 - 1] * 3, np.uint64)),
    "size": (np.array([-1000, 0, 101]), np.array([5, 1000, 200], np.uint16)),
    "amount": (np.array([0, -5, 3]), np.array([10, 5, 2])),
    "price": (np.array([0.5, -np.inf, np.nan]), np.array([np.inf, np.nan, np.nan])),
    "ratio": (np.array([-1.0, 0.5, np.nan], np.float64), np.array([2.5, 5000.0, np.nan], np.float32)),
    "wide": (np.array([1, 2, 3], object), np.array([Decimal("1.5"), 3, Decimal(4)], object)),
    "day": (np.array(["2020-02-29", "1969-12-31", "2020-01-01"], "M8[D]"), np.array(["2020-03-01"] * 3, "M8[D]")),
    "at": (np.array(["2020-02-29T10", "1969-12-31", "2020-01-01"], "M8[us]"), np.array(["2021-01-01"] * 3, "M8[s]")),
    "name": (np.array(["", "ab", "é"]), np.array(["", "abc", "😀"])),
    "code": (np.array(["a", "b", "c"], object), np.array(["b", "b", "b"], object)),
    "kind": (np.array(["a", "b", ""]), np.array(["b", "b", ""])),
}


@quietly
@pytest.mark.parametrize("name", list(NUMPY_BOUNDS))
def test_typed_columns_of_numpy(name: str) -> None:
    space = Space.parse(SPACE)
    low, high = NUMPY_BOUNDS[name]
    table = SubscriptionTable(space, None)
    ids: Any = np.arange(3)
    table.subscribe_many(ids, low={name: low}, high={name: high})
    table.subscribe_many([3, 4, 5], low={name.upper(): low})
    table.subscribe_many([6, 7, 8], high={name: high})

    def value(column: Any, row: int) -> Any:
        each = column[row].item() if isinstance(column[row], np.generic) else column[row]
        return each.replace(tzinfo=UTC) if isinstance(each, datetime) else each

    for row in range(3):
        least, most = {name: value(low, row)}, {name: value(high, row)}
        assert table[row].region == space.where(bounds_clause(space, least, most))
        assert table[row + 3].region == space.where(bounds_clause(space, least, {}))
        assert table[row + 6].region == space.where(bounds_clause(space, {}, most))
    table.check_invariants()


def test_typed_columns_and_null() -> None:
    """Both null: unconstrained, NULL included. One null: unbounded there, and not null."""
    for text, value in (("x int", 5), ("x double", 5.0), ("x string", "k"), ("x bool", True), ("x date", date.min)):
        for nothing in (None, "NaT"):
            if nothing == "NaT" and text != "x date":
                continue
            table = SubscriptionTable(Space.parse(text + ", y int"), None)
            columns: tuple[Any, ...] = ([value, None, None], [None, value, None])
            if nothing == "NaT":
                columns = tuple(np.array([each or "NaT" for each in column], "M8[D]") for column in columns)
            table.subscribe_many([0, 1, 2], low={"x": columns[0]}, high={"x": columns[1]})
            assert table.match({"x": None}) == table.match({}) == [2]
            assert table.match({"x": value}) == [0, 1, 2]
            table.subscribe_many([3, 4], low={"y": [None, None]}, high={"x": pa.nulls(2)})
            table.subscribe_many([5, 6], low={})
            assert table.match({}) == [2, 3, 4, 5, 6] and table[3].region == Region.everything(table.space)
            table.check_invariants()


def test_typed_columns_of_enums_compare_as_strings() -> None:
    space = Space.parse("kind enum('b','a','c'), level enum('a','b','c','d') not null")
    table = SubscriptionTable(space, None)
    bounds = [("a", "b"), ("aa", "bb"), (None, "b"), ("c", None), (None, None), ("b", "b"), ("x", "z"), ("b", "a")]
    with pytest.warns(EmptyRegionWarning):
        table.subscribe_many(range(8), low={"kind": [low for low, _ in bounds]}, high={"kind": [h for _, h in bounds]})
    with pytest.warns(EmptyRegionWarning):
        table.subscribe_many(
            range(8, 16), low={"level": [low for low, _ in bounds]}, high={"level": pa.array([h for _, h in bounds])}
        )
    for row, (low, high) in enumerate(bounds):
        for first, name in ((0, "kind"), (8, "level")):
            assert table[first + row].region == space.where(bounds_clause(space, {name: low}, {name: high})), row
    with pytest.raises(CallerError, match="kind"):  # b and c do not stand together
        table.subscribe_many([99], low={"kind": ["b"]})
    for wrong in (5, True, ["a"]):
        with pytest.raises(CallerError, match="level"):
            table.subscribe_many([99], low={"level": [wrong]})
    assert 99 not in table
    table.check_invariants()


ODD_BOUNDS: dict[str, tuple[str, Any, Any]] = {  # the same values twice: a list, and an array
    "beyond 64 bits": ("x int", [2**70, -(2**70)], None),
    "unsigned": ("x int", [2**64 - 1, 3], np.array([2**64 - 1, 3], np.uint64)),
    "ints that are doubles": ("x double", [2**60, 3], np.array([2**60, 3])),
    "an int that no double equals": ("x double", [2**53 + 1, 3], np.array([2**53 + 1, 3])),
    "too many places": ("x decimal(6,2)", [Decimal("0.005"), 1], pa.array([Decimal("0.005"), Decimal(1)])),
    "too many digits": ("x decimal(6,2)", [Decimal(10**10), 1], pa.array([Decimal(10**10), Decimal(1)])),
    "nanoseconds": ("x timestamp", list(np.array([1001, 2000], "M8[ns]")), np.array([1001, 2000], "M8[ns]")),
    "microseconds": ("x timestamp", list(np.array([1, 2], "M8[us]")), np.array([1000, 2000], "M8[ns]")),
    "no time": ("x timestamp", [np.datetime64("NaT"), None], np.array(["NaT", "NaT"], "M8[us]")),
    "no bools": ("x bool", [0, 1], np.array([0, 1])),
    "no ints": ("x int", [1.0, 2.0], pa.array([1.0, 2.0])),
    "no strings": ("x string", [b"a", b"b"], pa.array([b"a", b"b"])),
    "no values of the enum": ("x enum('a', 'b')", [b"a", b"b"], pa.array([b"a", b"b"])),
}


@quietly
@pytest.mark.parametrize("what", list(ODD_BOUNDS))
def test_typed_columns_that_hardly_fit(what: str) -> None:
    """Refused by the attribute's name, or cut to the domain, whatever the values come in; nothing is added."""
    text, *forms = ODD_BOUNDS[what]
    answers: list[list[Any]] = []
    for form in forms:
        if form is None:
            continue
        table = SubscriptionTable(Space.parse(text), None)
        try:
            table.subscribe_many([0, 1], low={"x": form})
            answers.append([subscription.region.to_sql() for subscription in table.values()])
        except CallerError as error:
            answers.append(["refused", "'x'" in str(error), len(table)])
        table.check_invariants()
    assert all(answer == answers[0] for answer in answers), answers
    assert answers[0][0] != "refused" or answers[0] == ["refused", True, 0]


@pytest.mark.parametrize("wrong", [{"x": 5}, {"x": None}, {5: [1]}, {"x": [[1]]}, {"x": np.zeros((1, 2))}])
def test_columns_of_the_wrong_shape(wrong: Any) -> None:
    table = SubscriptionTable(Space.parse("x int, y string"), None)
    with pytest.raises(CallerError):
        table.subscribe_many([0], low=wrong)
    assert len(table) == 0


def test_typed_columns_while_another_thread_recodes_strings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clauses are compiled outside the lock, so strings may move right after the columns were read."""
    from thatch.table import table as module

    space = Space.parse("name string")
    table = SubscriptionTable(space, None)
    table.subscribe("q", "name >= 'q'")

    def read_and_move(*arguments: Any) -> Any:
        boxes = boxes_of_columns(*arguments)
        recode(space)
        return boxes

    monkeypatch.setattr(module, "boxes_of_columns", read_and_move)
    table.subscribe_many(["a", "b"], low={"name": ["f", "x"]}, high={"name": ["h", "z"]})
    assert table["a"].region == space.where("name BETWEEN 'f' AND 'h'")
    assert table.match({"name": "g"}) == ["a"] and table.match({"name": "y"}) == ["b", "q"]
    table.check_invariants()
