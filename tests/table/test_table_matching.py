"""Matching on a table: single events, batches, events that do not fit, imprecise events, and groups."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from helpers.clause_rows import COLUMNS, SPACE, make_rows, make_table, without_some_nulls
from helpers.clauses import ClauseWriter
from helpers.cover_oracles import MIXED_SPACES, Cells, clause_pool, ints, random_box, recode, region_of, whole
from helpers.strategies import soaked
from helpers.tables import SEED, SETTINGS, line, pairs, passive, prices, quietly
from thatch import CallerError, EventError, Space, SubscriptionTable
from thatch.cover import ENGINES, Covered, ExactEngine, Unproven, verify
from thatch.matching.groups import Groups
from thatch.region.region import Region
from thatch.table.table import RegionMatch

# --- Matching ---------------------------------------------------------------------------------------------------------


ODD_IDS = ["b", "B", "", "é", "e\u0301", "😀", "\uffff", "a\0", "a", "10", "9", " ", "it's"]


@pytest.mark.parametrize("cover", [None, "exact"])
@pytest.mark.parametrize("ids", [ODD_IDS, [10, 9, -1, 0, 2**63 - 1, -(2**63), 100, 2]], ids=["strings", "ints"])
def test_ids_come_sorted(ids: list[Any], cover: str | None) -> None:
    table = SubscriptionTable(ints(100), cover)
    for at, id in enumerate(ids):
        table.subscribe(id, f"a0 >= {at}")
    table.replace(ids[2], "a0 >= 1")
    for value in range(15):
        wanted = sorted(id for at, id in enumerate(ids) if value >= (1 if at == 2 else at))
        assert table.match({"a0": value}) == wanted
    found = table.match_batch({"a0": np.arange(14, -1, -1)})
    assert pairs(found) == [(row, id) for row in range(15) for id in table.match({"a0": 14 - row})]
    assert found.schema.types == [pa.int64(), pa.string() if isinstance(ids[0], str) else pa.int64()]


def test_batches_in_every_form() -> None:
    table = prices()
    table.subscribe("a", "price < 20")
    table.subscribe("b", "symbol = 'x' AND volume IS NULL")
    arrow = pa.table({"symbol": ["x", None, "y"], "price": [5.0, 30.0, 19.0], "other": [1, 2, 3]})
    expected = [(0, "a"), (0, "b"), (2, "a")]
    forms: list[Any] = [
        arrow,
        arrow.to_batches()[0],
        {"symbol": ["x", None, "y"], "price": np.array([5.0, 30.0, 19.0])},
        {"SYMBOL": arrow["symbol"], "Price": arrow["price"].combine_chunks()},
        {"symbol": arrow["symbol"].dictionary_encode(), "price": (5, 30, 19), "volume": pa.nulls(3)},
        pa.concat_tables([arrow.slice(0, 1), arrow.slice(1)]),
    ]
    for form, on_error in product(forms, ("raise", "skip")):
        found = table.match_batch(form, on_error=on_error)
        assert isinstance(found, pa.Table) and pairs(found) == expected
        assert found.schema.field("event_index").type == pa.int64()
    assert pairs(table.match_batch(arrow.slice(1))) == [(1, "a")]


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("id", ["s", 5])
def test_batches_of_nothing(id: Any, on_error: str) -> None:
    """An answer without a match has the columns and types of any other, so that answers can be put together."""
    table = prices()
    kinds = [pa.int64(), pa.string() if id == "s" else pa.int64()]
    empty = pa.table({"symbol": pa.array([], pa.string()), "price": pa.array([], pa.float64())})
    table.subscribe(id, "price < 20")
    nothing: list[Any] = [empty, {}, {"price": []}, {"price": np.zeros(0), "volume": []}, empty.select([])]
    for events in (*nothing, {"price": [99.0]}):
        found = table.match_batch(events, on_error=on_error)
        assert found.num_rows == 0 and found.column_names == ["event_index", "subscription_id"]
        assert found.schema.types == kinds, events
        assert on_error == "raise" or found.schema.metadata == {b"skipped": b"0"}, events
    whole = pa.concat_tables([table.match_batch({"price": [99.0]}), table.match_batch({"price": [9.0]})])
    assert pairs(whole) == [(0, id)]


def test_a_table_without_subscriptions() -> None:
    for cover in (None, "exact"):
        table = prices(cover=cover)
        assert table.match({"price": 5.0}) == [] and table.match_batch({"price": [5.0, 6.0]}).num_rows == 0
        assert table.match_region("price < 5") == RegionMatch([], [], table.match_region("price < 5").jointly)
        assert not table.match_region("price < 5").jointly
        table.subscribe("a", "TRUE")
        table.unsubscribe("a")
        assert table.match({"price": 5.0}) == [] and table.match_batch({"price": [5.0, 6.0]}).num_rows == 0
        table.subscribe("a", "TRUE")
        assert table.match({"price": 5.0}) == ["a"]
        with pytest.raises(EventError):
            prices(cover=cover).match({"price": 5000.0})


BAD_ROWS: list[tuple[str, dict[str, Any], list[int]]] = [
    ("in the middle", {"price": [1.0, 2000.0, 2.0]}, [1]),
    ("the last", {"price": [1.0, 2.0, -1.0]}, [2]),
    ("the first", {"price": np.array([np.nan, 1.0, 2.0])}, [0]),
    ("all", {"price": pa.array([None, 5000.0, -0.5])}, [0, 1, 2]),
    ("none", {"price": [1.0, 2.0, 3]}, []),
    ("two attributes", {"price": [1.0, -2.0, 3.0, 4.0, 5.0], "volume": [1, 2, 3, "x", 5.5]}, [1, 3, 4]),
    ("a type", {"price": [1.0, "1", None, True, 2], "symbol": ["a", "b", "c", "d", 5]}, [1, 2, 3, 4]),
    ("missing", {"volume": [1, 2, 3]}, [0, 1, 2]),
    ("a whole column", {"price": [1.0, 2.0], "symbol": np.array([1, 2])}, [0, 1]),
    ("the end", {"price": [1.0, 7.0, 3.0], "volume": [1, 2, 2**63]}, [2]),
    ("null int", {"price": [1.0, 7.0], "volume": [-(2**63), None]}, [0]),
]


@pytest.mark.parametrize(("events", "bad"), [each[1:] for each in BAD_ROWS], ids=[each[0] for each in BAD_ROWS])
def test_events_that_do_not_fit(events: dict[str, Any], bad: list[int]) -> None:
    table = prices()
    for id, clause in (("a", "price < 20"), ("b", "price < 2"), ("c", "volume = 1"), ("d", "symbol IS NULL")):
        table.subscribe(id, clause)
    rows = len(next(iter(events.values())))
    if bad:
        with pytest.raises(EventError, match=r"row \d" if "price" in events else "price"):
            table.match_batch(events)
    found = table.match_batch(events, on_error="skip")
    assert found.schema.metadata == {b"skipped": str(len(bad)).encode()}
    lists = {name: column.to_pylist() if hasattr(column, "to_pylist") else column for name, column in events.items()}
    expected = []
    for row in range(rows):
        event = {name: column[row] for name, column in lists.items()}
        if row in bad:
            with pytest.raises(EventError):
                table.match(event)
        else:
            expected += [(row, id) for id in table.match(event)]
    assert pairs(found) == expected
    columns, good = table.space.encode_valid(events)
    assert good.tolist() == [row not in bad for row in range(rows)]
    assert [len(column) for column in columns] == [rows - len(bad)] * 3


def test_skipping_encodes_as_one_by_one() -> None:
    """Columns of every type in which some rows hold what another column might."""
    space, random = Space.parse(SPACE), Random(SEED)
    rows = make_rows(random, 60)
    odd = [None, 5, "x", 2.5, Decimal("1e9"), date(3000, 1, 1), b"", float("nan"), 2**70, True, [1]]
    for row in random.sample(rows, 15):
        row[random.choice(COLUMNS).name] = random.choice(odd)
    batch = {column.name: [row[column.name] for row in rows] for column in COLUMNS}
    good, points = [], []
    for at, row in enumerate(rows):
        try:
            points.append(space.encode(row))
            good.append(at)
        except EventError:
            pass
    assert 45 <= len(good) < 60
    columns, kept = space.encode_valid(batch)
    assert np.flatnonzero(kept).tolist() == good and len(kept) == 60 and np.stack(columns, 1).tolist() == points


# --- Groups -----------------------------------------------------------------------------------------------------------


def test_passive_ones_are_looked_at_below_active_hits_only() -> None:
    space = ints(100)
    for apart in (True, False):
        groups = Groups(space, apart)
        groups.add_many([7], [space.where("a0 < 10")], active=True)
        groups.add_many([3, 9], [space.where("a0 < 5"), space.where("a0 < 50")], active=False)
        view = groups.view()
        assert view.match_point([4]) == [3, 7, 9] and view.match_point([7]) == [7, 9]
        assert view.match_point([20]) == ([] if apart else [9])  # 9 is not covered: whoever says so is wrong
        rows, numbers = view.match_points([np.array([20, 4, 99, 7])])
        found = list(zip(rows.tolist(), numbers.tolist(), strict=True))
        assert found == [*([] if apart else [(0, 9)]), (1, 3), (1, 7), (1, 9), (3, 7), (3, 9)]
        assert view.meeting(space.where("a0 BETWEEN 20 AND 30")) == [9]
        groups.move(9, space.where("a0 < 50"), active=True)
        groups.discard(7)
        now = groups.view()
        assert now.match_point([20]) == [9] and now.match_point([4]) == [3, 9]
        assert view.match_point([7]) == [7, 9]  # a view stays what it was
        groups.check_invariants()


def test_an_engine_that_may_be_wrong_loses_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    class Liar(ExactEngine):
        name, may_err = "liar", "covered"

        def check(self, region: Region) -> Any:
            return Covered(tuple(self)[:1]) if len(self) else super().check(region)

    monkeypatch.setitem(ENGINES, "liar", Liar)
    for cover in (None, "liar"):
        with pytest.raises(CallerError, match="groups"):
            SubscriptionTable(ints(100), cover, groups=True)
    table = SubscriptionTable(ints(100), "liar")
    for id, low in (("a", 0), ("b", 40), ("c", 60)):
        table.subscribe(id, f"a0 BETWEEN {low} AND {low + 20}")
    assert passive(table) == {"b": ("a",), "c": ("a",)}
    assert table.match({"a0": 60}) == ["b", "c"] and table.match({"a0": 10}) == ["a"]
    assert pairs(table.match_batch({"a0": [60, 10, 99]})) == [(0, "b"), (0, "c"), (1, "a")]
    table.check_invariants()


@quietly
def test_groups_change_no_answer() -> None:
    """Random clauses over every type: with covering on, passive ones are found all the same."""
    space, random = Space.parse(SPACE), Random(SEED)
    writer = ClauseWriter(random)
    clauses = [writer.clause().ours for _ in range(soaked(45, 90))]
    rows = [without_some_nulls(random, row) for row in make_rows(random, soaked(40, 80))]
    events = make_table(rows)
    tables = [SubscriptionTable(space, cover, retract, groups=cover is not None) for cover, retract in SETTINGS]
    tables.append(SubscriptionTable(space, "exact"))
    ids = random.sample(range(1000), len(clauses))
    regions = [space.where(clause) for clause in clauses]
    for table in tables:
        table.subscribe_many(ids, regions)
    for turn in range(2):
        answers = [pairs(table.match_batch(events)) for table in tables]
        expected = sorted(
            (row, id)
            for id, region in zip(ids, regions, strict=True)
            if id in tables[0]
            for row in np.flatnonzero(region.contains_batch(events)).tolist()
        )
        assert all(answer == expected for answer in answers)
        assert [tables[2].match(row) for row in rows] == [tables[0].match(row) for row in rows]
        if not turn:
            assert all(len(passive(table)) > 5 for table in tables[1:])
            for id in random.sample(ids, len(ids) // 3):
                for table in tables:
                    table.unsubscribe(id)
    for table in tables:
        table.check_invariants()


# --- Imprecise events -------------------------------------------------------------------------------------------------


@quietly
@pytest.mark.parametrize("cover", [None, "exact"])
@pytest.mark.parametrize("text", MIXED_SPACES[:3])
def test_imprecise_events(text: str, cover: str | None) -> None:
    space, regions = clause_pool(text, 60, SEED)
    random, cells = Random(f"{SEED}/{text}"), Cells(space, regions)
    kinds = set()
    for count in (1, 2, 4, 14):
        table = SubscriptionTable(space, cover)
        here = {id: random.choice(regions) for id in random.sample(range(100), count)}
        for id, region in here.items():
            table.subscribe(id, region)
        for asked in random.sample(regions, soaked(9, 15)):
            mask = cells.mask(asked)
            found = table.match_region(asked if random.random() < 0.5 else asked.to_sql())
            assert isinstance(found, RegionMatch)
            assert found.possible == sorted(id for id, region in here.items() if (mask & cells.mask(region)).any())
            certain = sorted(id for id, region in here.items() if not (mask & ~cells.mask(region)).any())
            assert found.certain == (certain if mask.any() else [])
            assert bool(found.jointly) == cells.covered(asked, here.values())
            assert not isinstance(found.jointly, Unproven) and verify(found.jointly, asked, here)
            kinds.add((bool(found.certain), bool(found.jointly), bool(found.possible)))
            if space.label_codes and random.random() < 0.2:
                recode(space)
                cells = Cells(space, regions)
    assert {(True, True, True), (False, False, True)} <= kinds


@pytest.mark.parametrize("cover", [None, "exact"])
def test_imprecise_boxes(cover: str | None) -> None:
    """Certain only jointly; and every box of a small plane."""
    table = line(cover, a=(0, 49), b=(50, 99), c=(10, 20))
    found = table.match_region("a0 BETWEEN 15 AND 60")
    assert found.certain == [] and found.possible == ["a", "b", "c"]
    assert isinstance(found.jointly, Covered) and set(found.jointly.certificate) == {"a", "b"}
    found = table.match_region("a0 BETWEEN 12 AND 18")
    assert found.certain == ["a", "c"] and found.jointly
    assert table.match_region("a0 < 0").possible == []
    space, random = ints(6, 6), Random(SEED)
    table = SubscriptionTable(space, cover)
    boxes = {id: random_box(random, whole(space)) for id in range(12)}
    for id, box in boxes.items():
        table.subscribe(id, region_of(space, *box))
    points = list(product(range(6), range(6)))
    inside = {id: {p for p in points if all(map(int.__le__, low, p)) and all(map(int.__le__, p, high))}
              for id, (low, high) in boxes.items()}  # fmt: skip
    for _ in range(60):
        box = random_box(random, whole(space))
        own = {p for p in points if all(map(int.__le__, box[0], p)) and all(map(int.__le__, p, box[1]))}
        found = table.match_region(region_of(space, *box))
        assert found.certain == [id for id in boxes if own <= inside[id]]
        assert found.possible == [id for id in boxes if own & inside[id]]
        assert bool(found.jointly) == (own <= set().union(*inside.values()))


def test_imprecise_watchlists() -> None:
    """Lists of 2,000 values, which nothing expands into boxes."""
    random = Random(SEED)
    table = SubscriptionTable(Space.parse("name string, id int, size int not null 0..9"), "exact")
    lists = {f"l{at}": set(random.sample(range(4000), 2000)) for at in range(3)} | {"few": {5, 7}}

    def watched(values: set[int]) -> str:
        return "name IN (" + ", ".join(f"'n{value}'" for value in values) + ")"

    for id, values in lists.items():
        table.subscribe(id, watched(values))
    table.subscribe("ints", f"id IN ({', '.join(map(str, sorted(lists['l0'])))}) AND size < 5")
    for asked in (set(random.sample(range(4000), 2000)), lists["l0"] & lists["l1"], {5, 7}, {4001}, {5, 4001}):
        found = table.match_region(f"{watched(asked)} AND id = 99999")
        assert found.possible == sorted(id for id, values in lists.items() if values & asked)
        assert found.certain == sorted(id for id, values in lists.items() if asked <= values)
        assert bool(found.jointly) == (asked <= set().union(*lists.values()))
    one = next(iter(lists["l0"]))
    assert table.match_region(f"id = {one} AND size < 5 AND name = 'x'").certain == ["ints"]
    assert table.match_region(f"id = {one} AND name = 'x'").certain == []


def test_imprecise_events_and_balls() -> None:
    """Balls are bounded by boxes: possible may name one too many, certain may miss one; never the reverse."""
    space, random = Space.parse("x int not null 0..40, y int not null 0..40"), Random(SEED)
    table = SubscriptionTable(space, "exact")
    grid = [np.array(axis, np.int64) for axis in zip(*product(range(41), range(41)), strict=True)]
    for id in range(20):
        table.subscribe(id, f"within({random.randint(1, 9)}, x, {random.randint(5, 35)}, y, {random.randint(5, 35)})")
    inside = {id: table[id].region.contains_points(grid) for id in table}
    certain = 0
    for number in range(50):
        x, y, side = random.randint(0, 35), random.randint(0, 35), random.choice((0, 1, 3))
        clause = f"x BETWEEN {x} AND {x + side} AND y BETWEEN {y} AND {y + side}"
        if number % 4 == 0:
            clause = f"within({side + 1}, x, {x}, y, {y})"
        asked = space.where(clause)
        own = asked.contains_points(grid)
        found = table.match_region(asked)
        certain += len(found.certain)
        assert set(found.certain) <= {id for id in table if not (own & ~inside[id]).any()}
        assert set(found.possible) >= {id for id in table if (own & inside[id]).any()}
        assert set(found.certain) <= set(found.possible) and found.possible == sorted(found.possible)
        if found.jointly:
            assert not (own & ~np.logical_or.reduce(list(inside.values()))).any()
    assert certain > 5
