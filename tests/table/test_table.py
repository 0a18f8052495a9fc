"""The subscription table as DESIGN section 4 promises it, checked from outside.

The right answers come from `Region.contains` one by one, from brute force over all current subscriptions, and from a
told set (cover/told.py) that is asked one by one. A `Receiver` does what others do with a table's changes: forward
first, then withdraw; it must end up with exactly the active subscriptions and their present regions.
"""

from __future__ import annotations

import pickle
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from functools import cache, partial
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import thatch
from helpers.active_sets import Mirror, pool
from helpers.clause_rows import COLUMNS, SPACE, make_rows, make_table, without_some_nulls
from helpers.clauses import ClauseWriter
from helpers.cover_oracles import MIXED_SPACES, Cells, clause_pool, ints, number_anew, random_box, region_of, whole
from helpers.match_oracles import BALL_SPACE, Pool, mixed_pool
from helpers.strategies import soaked
from thatch import CallerError, ClauseError, EventError, Space, SubscriptionTable, UnknownSubscription, covers
from thatch.cover import ENGINES, ActiveSet, Change, Covered, ExactEngine, Uncovered, Unproven, verify
from thatch.errors import EmptyRegionWarning
from thatch.matching.groups import Groups
from thatch.region.region import Region
from thatch.space.axis import EnumAxis, quoted
from thatch.table.table import RegionMatch, Subscription

SEED = 20240303
PRICES = "symbol string, price double not null 0..1000, volume int"
SETTINGS = [(None, False), ("exact", False), ("exact", True), ("pairwise", False), ("pairwise", True)]
settings = pytest.mark.parametrize(("cover", "retract"), SETTINGS)
quietly = pytest.mark.filterwarnings("ignore::thatch.errors.EmptyRegionWarning")


def prices(**options: Any) -> SubscriptionTable:
    return SubscriptionTable(Space.parse(PRICES), **options)


def line(cover: str | None = "exact", retract: bool = False, **intervals: tuple[int, int]) -> SubscriptionTable:
    """Intervals of 0..99 under names."""
    table = SubscriptionTable(ints(100), cover, retract)
    for id, (low, high) in intervals.items():
        table.subscribe(id, f"a0 BETWEEN {low} AND {high}")
    return table


def active(table: SubscriptionTable) -> list[Any]:
    return [id for id in table if table[id].active]


def passive(table: SubscriptionTable) -> dict[Any, Any]:
    return {id: table[id].certificate for id in table if not table[id].active}


def pairs(found: pa.Table) -> list[tuple[int, Any]]:
    return list(zip(found["event_index"].to_pylist(), found["subscription_id"].to_pylist(), strict=True))


def state(table: SubscriptionTable) -> Any:
    """All that a caller can see of it."""
    return [(s.id, s.owner, s.region.to_sql(), s.active, s.certificate, s.expires) for s in table.values()]


# --- The example of the design, line by line -------------------------------------------------------------------------


def test_the_example_of_the_design() -> None:
    space = Space.parse("symbol string, price double not null 0..1000, volume int")
    region = space.where("price BETWEEN 10 AND 20 AND symbol IN ('A','B')")
    assert region.contains({"symbol": "A", "price": 12.5})
    table = SubscriptionTable(space, cover="exact", retract=False)
    change = table.subscribe("s1", "price < 20", owner="ann")
    assert (change.forward, change.withdraw) == (["s1"], []) and isinstance(change.verdict, Uncovered)
    changes = table.subscribe_many(["s2", "s3"], ["price < 10 AND symbol = 'A'", "price > 500"])
    assert [each.forward for each in changes] == [[], ["s3"]] and changes[0].verdict == Covered(("s1",))
    table.subscribe_many(["s4", "s5"], low={"price": [1.0, None]}, high={"price": [2.0, 700.0], "volume": [None, 5]})
    assert table.match({"symbol": "A", "price": 5.0}) == ["s1", "s2"]
    assert table.match({"symbol": "A", "price": 1.5, "volume": 5}) == ["s1", "s2", "s4", "s5"]
    found = table.match_batch(pa.table({"symbol": ["A", "B"], "price": [5.0, 600.0]}))
    assert found.column_names == ["event_index", "subscription_id"]
    assert pairs(found) == pairs(table.match_batch({"symbol": ["A", "B"], "price": np.array([5.0, 600.0])}))
    assert pairs(found) == [(0, "s1"), (0, "s2"), (1, "s3")]
    assert "s1" in str(table.explain("s2")) and table.explain("s2").certificate == ("s1",)
    assert table.explain("s1").witness is not None
    assert "price" in str(table.explain("s2", {"price": 15.0, "symbol": "A"}))
    change = table.unsubscribe("s1")
    assert isinstance(change, Change) and change.forward == ["s2", "s4"] and change.withdraw == ["s1"]
    assert table.replace("s2", "price < 30").forward == ["s2"]
    assert table.expire(0) == Change()
    assert covers(["price < 20", "price >= 20"], "price < 50", space) == Covered((0, 1))
    table.check_invariants()


def test_public_names() -> None:
    assert thatch.SubscriptionTable is SubscriptionTable
    assert {"SubscriptionTable", "UnknownSubscription", "Space", "covers"} <= set(thatch.__all__)


# --- Ids and the mapping ---------------------------------------------------------------------------------------------


def test_a_table_is_a_mapping() -> None:
    table = prices()
    assert isinstance(table, Mapping) and len(table) == 0 and list(table) == [] and not table
    for id in ("z", "a", "m"):
        table.subscribe(id, f"symbol = '{id}'", owner="ann" if id == "a" else None, expires=7)
    assert len(table) == 3 and list(table) == list(table.keys()) == ["z", "a", "m"]
    assert "a" in table and "b" not in table and 1 not in table and None not in table
    one = table["a"]
    assert isinstance(one, Subscription) and one == table.get("a") and dict(table)["a"] == one
    assert (one.id, one.owner, one.active, one.certificate, one.expires) == ("a", "ann", True, None, 7.0)
    assert one.region == table.space.where("symbol = 'a'")
    assert [id for id, _ in table.items()] == ["z", "a", "m"] and [each.id for each in table.values()] == list(table)
    assert table.get("b") is None and table.get("b", 5) == 5
    table.replace("z", "symbol = 'y'")
    assert list(table) == ["z", "a", "m"]  # a replaced one keeps its place
    table.unsubscribe("z")
    table.subscribe("z", "symbol = 'z'")
    assert list(table) == ["a", "m", "z"]
    for _ in table:  # what is walked through is what was there
        table.unsubscribe(next(iter(table)))
    assert len(table) == 0


@pytest.mark.parametrize("cover", [None, "exact"])
def test_unknown_ids(cover: str | None) -> None:
    table = prices(cover=cover)
    table.subscribe("a", "price < 5")
    actions: list[Callable[[Any], Any]] = [
        lambda id: table[id],
        table.unsubscribe,
        table.explain,
        lambda id: table.explain(id, {"price": 5.0}),
        lambda id: table.replace(id, "price < 7"),
    ]
    before = state(table)
    for action, id in product(actions, ("b", 7, None)):
        with pytest.raises(UnknownSubscription) as caught:
            action(id)
        error = caught.value
        assert isinstance(error, CallerError) and isinstance(error, KeyError) and error.id == id
        assert str(error) == f"no subscription {id!r}"
        assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert state(table) == before
    table.check_invariants()


def test_ids_are_of_one_kind() -> None:
    for first, other in (("a", 1), (1, "a")):
        table = prices()
        table.subscribe(first, "price < 5")
        with pytest.raises(CallerError, match="one table"):
            table.subscribe(other, "price < 6")
        with pytest.raises(CallerError, match="one table"):
            table.subscribe_many([other], ["price < 6"])
        assert list(table) == [first]
    with pytest.raises(CallerError, match="one table"):
        prices().subscribe_many(["a", 1], ["price < 5", "price < 6"])


@pytest.mark.parametrize("wrong", [True, None, 1.5, b"a", ("a", 1), 2**63, object()])
def test_what_is_no_id(wrong: Any) -> None:
    table = prices()
    with pytest.raises(CallerError, match="id"):
        table.subscribe(wrong, "price < 5")
    with pytest.raises(CallerError, match="id"):
        table.subscribe_many([wrong], ["price < 5"])
    assert len(table) == 0
    table.check_invariants()


def test_duplicate_ids() -> None:
    table = prices()
    table.subscribe("a", "price < 5", owner="ann")
    before = state(table)
    for action in (
        lambda: table.subscribe("a", "price < 6"),
        lambda: table.subscribe_many(["b", "a"], ["price < 6", "price < 7"]),
        lambda: table.subscribe_many(["b", "b"], ["price < 6", "price < 7"]),
        lambda: table.subscribe_many(["b", "b"], low={"price": [1.0, 2.0]}),
    ):
        with pytest.raises(CallerError, match="subscribed already"):
            action()
        assert state(table) == before
    table.check_invariants()


def test_ids_from_numpy() -> None:
    """Ids out of a column are plain ints and strings in the table."""
    for ids in (np.array([7, -3]), np.array([7, 8], np.uint8), np.array(["b", "a"])):
        table = prices(cover=None)
        table.subscribe_many(ids, low={"price": [1.0, 2.0]})
        assert list(table) == ids.tolist() and {type(id) for id in table} == {type(ids.tolist()[0])}
        assert ids[0] in table and table[ids[0]].owner is None
        assert table.unsubscribe(ids[0]).withdraw == [ids.tolist()[0]]
        table.check_invariants()


@pytest.mark.parametrize("id", [np.int64(7), np.uint8(7), np.str_("a")])
def test_an_id_from_numpy(id: Any) -> None:
    """As `subscribe_many` takes it."""
    table = prices(cover=None)
    assert table.subscribe(id, "price < 5").forward == [id.item()]
    assert list(map(type, table)) == [type(id.item())] and table.match({"price": 1.0}) == [id.item()]


@pytest.mark.parametrize("cover", [None, "exact"])
@pytest.mark.parametrize("equal", [True, 1.0, np.int64(1)], ids=repr)
def test_what_only_equals_an_id_never_takes_its_place(equal: Any, cover: str | None) -> None:
    """As a dict's key it is the same: it is unknown, or stands for the table's own id."""
    table = line(cover)
    table.subscribe(1, "a0 < 5")
    table.subscribe(2, "a0 < 3")
    try:
        told = table.replace(equal, "a0 < 4").forward
    except UnknownSubscription:
        told = []
    assert [type(id) for id in [*told, *table, *table.match({"a0": 2})]] == [int] * (len(told) + 4)
    assert pairs(table.match_batch({"a0": [2]})) == [(0, 1), (0, 2)]
    table.check_invariants()


def test_an_id_or_owner_that_no_file_could_hold_is_refused_at_the_door() -> None:
    """Half a surrogate pair: Arrow and MessagePack hold valid Unicode only, so match_batch and snapshot would fail."""
    table = prices()
    with pytest.raises(CallerError):
        table.subscribe("\ud800", "price < 5")
    with pytest.raises(CallerError):
        table.subscribe("a", "price < 5", owner="\ud800")
    assert len(table) == 0


# --- Coming and going ------------------------------------------------------------------------------------------------


def test_a_covered_one_is_passive_until_it_is_not() -> None:
    table = line(a=(0, 49), b=(50, 99), p=(20, 80), q=(5, 9))
    assert active(table) == ["a", "b"] and passive(table) == {"p": ("a", "b"), "q": ("a",)}
    assert table.match({"a0": 7}) == ["a", "q"] and table.match({"a0": 55}) == ["b", "p"]
    change = table.unsubscribe("a")
    assert change == Change(["p", "q"], ["a"])
    assert table.match({"a0": 7}) == ["q"] and table.match({"a0": 30}) == ["p"] and table.match({"a0": 15}) == []
    assert table.unsubscribe("p") == Change([], ["p"])
    assert table.subscribe("again", "a0 = 7").verdict == Covered(("q",))
    table.check_invariants()


def test_retraction() -> None:
    table = line("exact", True, a=(0, 9), b=(20, 29), c=(50, 70))
    change = table.subscribe("w", "a0 < 60")
    assert change.forward == ["w"] and sorted(change.withdraw) == ["a", "b"]
    assert active(table) == ["c", "w"] and table.match({"a0": 5}) == ["a", "w"]
    assert table.unsubscribe("w") == Change(["a", "b"], ["w"])
    table.check_invariants()


def test_with_covering_off_everything_is_active() -> None:
    table = line(None, a=(0, 99), b=(5, 9))
    assert table.subscribe("c", "a0 = 7") == Change(["c"]) and active(table) == ["a", "b", "c"]
    assert table.subscribe_many(["d"], ["a0 = 7"]) == [Change(["d"])]
    assert table.replace("c", "a0 = 8") == Change(["c"]) and table.unsubscribe("a") == Change([], ["a"])
    assert table.match({"a0": 8}) == ["b", "c"]
    assert "off" in str(table.explain("b"))


def test_settings_are_checked() -> None:
    with pytest.raises(CallerError, match="magic"):
        prices(cover="magic")
    table = prices(cover="exact", nodes_max=7)
    assert (table.cover, table.retract, table.options) == ("exact", False, {"nodes_max": 7})
    table = prices(cover="pairwise", form="poset", retract=True)
    assert (table.cover, table.retract, table.options) == ("pairwise", True, {"form": "poset"})


@pytest.mark.parametrize("cover", [None, "exact", "pairwise"])
def test_wrong_arguments_change_nothing(cover: str | None) -> None:
    table = prices(cover=cover)
    table.subscribe("a", "price < 20 AND symbol = 'x'", owner="ann", expires=5)
    table.subscribe("p", "price < 10 AND symbol = 'x'")
    other = Space.parse("price double").where("price < 5")
    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: table.subscribe("b", "prize < 5"), "prize"),
        (lambda: table.subscribe("b", ""), ""),
        (lambda: table.subscribe("b", other), "different spaces"),
        (lambda: table.subscribe("b", None), "clause"),  # type: ignore[arg-type]
        (lambda: table.subscribe("b", 5), "clause"),  # type: ignore[arg-type]
        (lambda: table.subscribe("b", "price < 5", owner=5), "owner"),  # type: ignore[arg-type]
        (lambda: table.subscribe("b", "price < 5", expires="soon"), "soon"),  # type: ignore[arg-type]
        (lambda: table.subscribe("b", "price < 5", expires=True), "True"),
        (lambda: table.subscribe("b", "price < 5", expires=float("nan")), "nan"),
        (lambda: table.subscribe("b", "price < 5", expires=datetime(2024, 1, 1)), "zone"),
        (lambda: table.replace("a", "prize < 5"), "prize"),
        (lambda: table.replace("a", other), "different spaces"),
        (lambda: table.replace("p", "price <"), ""),
        (lambda: table.replace("a", "price < 5", owner=5), "owner"),  # type: ignore[arg-type]
        (lambda: table.expire(None), "time"),  # type: ignore[arg-type]
        (lambda: table.expire("now"), "now"),  # type: ignore[arg-type]
        (lambda: table.expire(datetime(2024, 1, 1)), "zone"),
        (lambda: table.subscribe_many(["b"]), "either"),
        (lambda: table.subscribe_many(["b"], ["price < 5"], low={"price": [1.0]}), "either"),
        (lambda: table.subscribe_many(["b", "c"], ["price < 5"]), "2 ids and 1"),
        (lambda: table.subscribe_many(["b"], ["price < 5"], owners=[]), "owners"),
        (lambda: table.subscribe_many(["b"], ["price < 5"], owners=[5]), "owner"),  # type: ignore[list-item]
        (lambda: table.subscribe_many(["b"], [None]), "clause"),  # type: ignore[list-item]
        (lambda: table.subscribe_many(["b", "c"], ["price < 5", other]), "different spaces"),
        (lambda: table.subscribe_many(["b"], low={"prize": [1.0]}), "prize"),
        (lambda: table.subscribe_many(["b"], low={"price": [1.0, 2.0]}), "price"),
        (lambda: table.subscribe_many(["b"], low={"price": [1.0], "PRICE": [2.0]}), "one attribute"),
        (lambda: table.subscribe_many(["b"], low={"price": ["x"]}), "price"),
        (lambda: table.subscribe_many(["b"], low={"price": pa.array(["x"])}), "price"),
        (lambda: table.subscribe_many(["b"], high={"volume": [2.5]}), "volume"),
        (lambda: table.subscribe_many(["b"], high={"volume": np.array([2.5])}), "volume"),
        (lambda: table.subscribe_many(["b"], high={"symbol": [7]}), "symbol"),
        (lambda: table.subscribe_many(["b"], high={"symbol": ["\ud800"]}), "symbol"),
        (lambda: table.match({"price": 2000.0}), "price"),
        (lambda: table.match({"symbol": "A"}), "price"),
        (lambda: table.match_batch({"price": [1.0]}, on_error="ignore"), "on_error"),
        (lambda: table.match_batch({"price": [1.0]}, on_error=None), "on_error"),  # type: ignore[arg-type]
        (lambda: table.match_batch({"price": [2000.0]}), "row 0"),
        (lambda: table.match_batch({"price": [1.0], "volume": [1, 2]}), "length"),
        (lambda: table.match_batch({"price": [1.0], "volume": [1, 2]}, on_error="skip"), "length"),
        (lambda: table.match_batch([{"price": 1.0}]), "dict of arrays"),
        (lambda: table.match_region("prize < 5"), "prize"),
        (lambda: table.match_region(other), "different spaces"),
        (lambda: table.match_region(None), ""),  # type: ignore[arg-type]
        (lambda: table.explain("a", {"price": 2000.0}), "price"),
    ]
    before = state(table)
    for number, (action, what) in enumerate(wrong):
        with pytest.raises(CallerError) as caught:
            action()
        assert what in str(caught.value), number
        assert state(table) == before, number
    table.check_invariants()
    assert table.match({"symbol": "x", "price": 5.0}) == ["a", "p"]


def test_a_bad_clause_among_many_adds_none() -> None:
    table = prices()
    table.subscribe("a", "price < 20")
    clauses = [f"price <= {at} AND symbol = 's{at}'" for at in range(8)]
    clauses[4] = "price < 5 AND prize > 5"
    ids = [f"i{at}" for at in range(8)]
    with pytest.raises(CallerError, match="i4") as caught:
        table.subscribe_many(ids, clauses, owners=["ann"] * 8)
    assert "prize" in str(caught.value)
    assert list(table) == ["a"] and table.match({"price": 1.0, "symbol": "s3"}) == ["a"]
    table.check_invariants()
    clauses[4] = "price < 5"
    assert len(table.subscribe_many(ids, clauses, owners=["ann", None] * 4)) == 8
    assert [table[id].owner for id in ids] == ["ann", None] * 4
    table.check_invariants()


def test_a_time_beyond_all_floats_is_refused() -> None:
    table = prices()
    with pytest.raises(CallerError):
        table.subscribe("b", "price < 5", expires=10**400)
    assert len(table) == 0


def test_one_clause_that_is_wrong_is_the_same_error_alone_and_among_many() -> None:
    table = prices()
    for action in (lambda: table.subscribe("a", "price <"), lambda: table.subscribe_many(["a"], ["price <"])):
        with pytest.raises(ClauseError):
            action()


def test_owners() -> None:
    table = prices()
    table.subscribe("a", "price < 5", owner="ann")
    table.replace("a", "price < 6")
    assert table["a"].owner == "ann"
    table.replace("a", "price < 7", owner="bob")
    assert table["a"].owner == "bob"
    table.unsubscribe("a")
    table.subscribe("a", "price < 5")
    assert table["a"].owner is None
    table.subscribe_many(["b", "c"], ["price < 3", "price > 9"], owners=("cid", None))
    assert (table["b"].owner, table["c"].owner) == ("cid", None)
    table.check_invariants()


def test_owners_from_numpy() -> None:
    table = prices()
    table.subscribe_many(["d", "e"], ["price < 3", "price > 9"], owners=np.array(["dan", "eve"]))
    assert (table["d"].owner, table["e"].owner) == ("dan", "eve")
    assert type(table["d"].owner) is str


# --- Empty regions ---------------------------------------------------------------------------------------------------


def empties(table: SubscriptionTable) -> list[Callable[[], Any]]:
    table.subscribe("r", "price = 7")
    return [
        lambda: table.subscribe("e", "price < 5 AND price > 6"),
        lambda: table.subscribe_many(["f"], ["volume = NULL"]),
        lambda: table.subscribe_many(["g"], low={"price": [6.0]}, high={"price": [5.0]}),
        lambda: table.subscribe_many(["h"], low={"price": [2000.0]}),
        lambda: table.replace("r", "1 = 0"),
    ]


@settings
def test_an_empty_region_is_passive_and_warned_about(cover: str | None, retract: bool) -> None:
    table = prices(cover=cover, retract=retract)
    for id, action in zip("efghr", empties(table), strict=True):
        with pytest.warns(EmptyRegionWarning, match=f"'{id}'"):
            change = action()
        change = change[0] if isinstance(change, list) else change
        assert table[id].region.is_empty and id in table
        if cover is not None:
            assert change == Change([], ["r"] if id == "r" else [], Covered(()))
            assert not table[id].active and table[id].certificate == ()
            assert "no event" in str(table.explain(id))
    table.subscribe("all", "TRUE")
    assert table.match({"price": 5.5}) == ["all"]
    assert table.match_region("price < 9").possible == ["all"]
    assert table.unsubscribe("all").withdraw == ["all"]
    table.check_invariants()
    for id in list(table):
        table.unsubscribe(id)
    assert len(table) == 0
    table.check_invariants()


def test_a_warning_names_the_line_of_the_caller() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for action in empties(prices()):
            action()
    lines = [each.lineno - empties.__code__.co_firstlineno for each in caught]
    assert [each.filename for each in caught] == [__file__] * 5 and lines == [3, 4, 5, 6, 7]


@pytest.mark.parametrize("cover", [None, "exact"])
def test_a_warning_that_is_an_error_leaves_the_table_whole(cover: str | None) -> None:
    """`python -W error`: whether the subscription is taken or refused, all parts of the table agree on it."""
    table = prices(cover=cover)
    actions = empties(table)
    for id, action in zip("efghr", actions, strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("error", EmptyRegionWarning)
            with pytest.raises(EmptyRegionWarning):
                action()
        table.check_invariants()
        if id in table:
            table.unsubscribe(id)
        assert table.subscribe(id, "price < 5").forward in ([id], [])
        table.check_invariants()


# --- Expiry ----------------------------------------------------------------------------------------------------------


def test_expiry_takes_numbers_and_datetimes() -> None:
    table = line(None)
    base = datetime(2024, 5, 1, 12, tzinfo=UTC)
    elsewhere = timezone(timedelta(hours=3))
    dues: list[Any] = [base.timestamp(), int(base.timestamp()) + 1, base + timedelta(seconds=2), None, float("inf")]
    dues += [(base + timedelta(seconds=3)).astimezone(elsewhere), 0, -5.5]
    for id, due in zip("abcdefgh", dues, strict=True):
        table.subscribe(id, "a0 = 1", expires=due)
    assert [table[id].expires for id in "agh"] == [base.timestamp(), 0.0, -5.5] and table["d"].expires is None
    assert sorted(table.expire(0).withdraw) == ["g", "h"]  # due at the very moment
    assert table.expire(base - timedelta(microseconds=1)) == Change()
    assert table.expire(base).withdraw == ["a"] and "a" not in table
    assert table.expire((base + timedelta(seconds=2.5)).astimezone(elsewhere)).withdraw == ["b", "c"]
    assert table.expire(base + timedelta(days=9999)).withdraw == ["f"]
    assert list(table) == ["d", "e"] and table.match({"a0": 1}) == ["d", "e"]
    table.check_invariants()


def test_expiry_is_of_the_present_subscription() -> None:
    table = line()
    table.subscribe("gone", "a0 < 5", expires=10)
    table.unsubscribe("gone")
    table.subscribe("gone", "a0 < 5", expires=20)
    table.subscribe("kept", "a0 > 50", expires=10)
    table.unsubscribe("kept")
    table.subscribe("kept", "a0 > 50")
    table.subscribe("new", "a0 = 30", expires=10)
    table.replace("new", "a0 = 31")
    assert table["new"].expires == 10.0
    assert table.expire(10) == Change([], ["new"])
    assert table.expire(19.999) == Change() and table.expire(20) == Change([], ["gone"])
    assert list(table) == ["kept"] and table.expire(1e18) == Change()
    for turn in range(1000):  # most have left before their time
        table.subscribe("short", "a0 = 1", expires=turn)
        table.unsubscribe("short")
    table.subscribe("short", "a0 = 1", expires=3)
    table.check_invariants()
    assert table.expire(3).withdraw == ["short"]


@pytest.mark.parametrize("retract", [False, True])
def test_expiry_tells_the_net_change(retract: bool) -> None:
    """Those promoted by one departure and taken away by the next are not told at all."""
    table = SubscriptionTable(ints(100), "exact", retract)
    for id, top, due in (("a", 90, 10), ("b", 80, 11), ("c", 70, 12), ("d", 60, None), ("e", 50, 9), ("f", 95, 99)):
        table.subscribe(id, f"a0 < {top}", expires=due)
    told = set(active(table))
    assert told == ({"f"} if retract else {"a", "f"})
    change = table.expire(50)
    assert change == (Change() if retract else Change([], ["a"]))
    assert list(table) == ["d", "f"] and passive(table) == {"d": ("f",)}
    assert table.expire(99) == Change(["d"], ["f"])
    table.check_invariants()


# --- Replacing -------------------------------------------------------------------------------------------------------


def test_replacing_tells_the_net_change() -> None:
    table = line(a=(0, 49), p=(10, 20), q=(30, 40))
    assert passive(table) == {"p": ("a",), "q": ("a",)}
    change = table.replace("a", "a0 BETWEEN 5 AND 25")
    assert change.forward == ["a", "q"] and change.withdraw == []
    assert active(table) == ["a", "q"] and passive(table) == {"p": ("a",)}
    change = table.replace("p", "a0 > 60")  # passive to active
    assert change.forward == ["p"] and change.withdraw == []
    change = table.replace("p", "a0 = 6")  # and back
    assert change.forward == [] and change.withdraw == ["p"] and change.verdict == Covered(("a",))
    assert table.replace("p", "a0 = 7") == Change([], [], Covered(("a",)))
    change = table.replace("a", "a0 BETWEEN 0 AND 30")  # told anew under its id
    assert change.forward == ["a"] and change.withdraw == []
    assert table.match({"a0": 7}) == ["a", "p"] and table.match({"a0": 6}) == ["a"]
    table.check_invariants()


def test_replacing_with_what_others_cover() -> None:
    table = line(a=(0, 60), b=(40, 99), p=(0, 10))
    change = table.replace("a", "a0 BETWEEN 50 AND 55")
    assert change.forward == ["p"] and change.withdraw == ["a"] and change.verdict == Covered(("b",))
    assert active(table) == ["b", "p"] and passive(table) == {"a": ("b",)}
    table.check_invariants()


def test_replacing_one_by_a_wider_one_takes_others_back() -> None:
    """And when it goes, those come back: their certificate names it."""
    table = line("exact", True, a=(0, 9), b=(20, 29))
    change = table.replace("a", "a0 >= 15")
    assert change.forward == ["a"] and change.withdraw == ["b"]
    assert passive(table) == {"b": ("a",)}
    table.check_invariants()
    assert table.unsubscribe("a") == Change(["b"], ["a"])
    assert table.match({"a0": 25}) == ["b"]
    table.check_invariants()


def test_replacing_keeps_what_the_new_region_covers_in_certificates() -> None:
    """p lay in a and b. b is taken back by the new a; what the old a held of p, c and d hold too."""
    table = SubscriptionTable(ints(100), "exact", retract=True)
    for id, clause in {
        "a": "a0 BETWEEN 5 AND 14 OR a0 BETWEEN 40 AND 44",
        "b": "a0 BETWEEN 15 AND 24",
        "p": "a0 BETWEEN 5 AND 24",
        "c": "a0 BETWEEN 0 AND 9",
        "d": "a0 BETWEEN 10 AND 14 OR a0 BETWEEN 50 AND 54",
    }.items():
        table.subscribe(id, clause)
    assert passive(table) == {"p": ("a", "b")}
    table.replace("a", "a0 BETWEEN 15 AND 29")
    table.check_invariants()
    table.unsubscribe("b")
    table.unsubscribe("a")
    assert table.match({"a0": 20}) == ["p"] and "p" in active(table)
    table.check_invariants()


class Replacing(Mirror):
    """The told sets of test_told.py, with replacements."""

    def replace(self, id: Any, region: Region) -> Change:
        others = [each for each in self.active_set.active if each != id]
        was_active = id in self.active_set.active
        covered = region.is_empty or self.covered(self.cells, region, [self.regions[each] for each in others])
        change = self.active_set.replace(id, region)
        self.regions[id] = region
        assert isinstance(change.verdict, Covered) == covered, change
        if not self.retract:
            told = others if covered else [*others, id]
            expected = set(self.naive_promotions(told) if was_active else ()) | (set() if covered else {id})
            assert set(change.forward) == expected and change.withdraw == ([id] if covered and was_active else [])
        self.mirror.discard(id)  # forwarding it anew supersedes it
        if was_active and id not in change.forward:
            assert id in change.withdraw
            self.mirror.add(id)
        self.apply(change)
        self.holds()
        return change


@pytest.mark.parametrize("retract", [False, True])
@pytest.mark.parametrize("cover", ["exact", "pairwise"])
@pytest.mark.parametrize("kind", ["line", "plane", "clauses"])
def test_told_sets_replace(kind: str, cover: str, retract: bool) -> None:
    space, regions, cells = pool(kind)
    random = Random(f"{SEED}/{kind}")
    mirror = Replacing(space, cells, cover, retract)
    for step in range(soaked(70, 90)):
        draw = random.random()
        if len(mirror.regions) < 6 or draw < 0.3:
            mirror.subscribe(step, random.choice(regions))
        elif draw < 0.45:
            mirror.unsubscribe(random.choice(list(mirror.regions)))
        else:
            told = mirror.active_set.active
            id = random.choice(told if told and random.random() < 0.6 else list(mirror.regions))
            mirror.replace(id, random.choice(regions))
        if step == 60:  # and on from what another one has told
            loaded = ActiveSet(space, cover, retract)
            loaded.load(mirror.regions, mirror.active_set.passive)
            assert loaded.active == mirror.active_set.active and loaded.passive == mirror.active_set.passive
            mirror.active_set = loaded
            mirror.holds()


def test_told_sets_refuse_what_does_not_fit_together() -> None:
    space = ints(10)
    everything, some = Region.everything(space), space.where("a0 < 5")
    told = ActiveSet(space)
    for regions, certificates in (
        ({"a": everything, "b": some, "c": some}, {"b": ("c",), "c": ("a",)}),  # names a passive one
        ({"a": everything, "b": some}, {"b": ("x",)}),
        ({"a": everything}, {"b": ("a",)}),  # of one that is not there
    ):
        with pytest.raises(CallerError):
            told.load(regions, certificates)
        assert len(told) == 0 and told.active == [] and told.passive == {}
        told.check_invariants()
    told.load({"a": everything, "b": some}, {"b": ("a",)})
    with pytest.raises(CallerError):
        told.load({}, {})
    told.check_invariants()


@pytest.mark.parametrize("text", [MIXED_SPACES[0], MIXED_SPACES[2], BALL_SPACE])
def test_an_engine_that_is_loaded_decides_as_one_that_was_told(text: str) -> None:
    if text == BALL_SPACE:
        space = Space.parse(text)
        clauses = [f"within({r}, x, {at}, y, {at})" for r in (1, 3) for at in range(6)] + ["n = 3", "x < 5D AND n > 2"]
        clauses += ["p IN (" + ", ".join(map(str, range(-40, 40, 2))) + ")", "y > 2D", "1 = 0"]
        regions = [space.where(clause) for clause in clauses]
    else:
        space, regions = clause_pool(text, 60, SEED)
    random = Random(SEED)
    for _ in range(soaked(3, 6)):
        members = dict(enumerate(random.choices(regions[1:], k=12)))
        one, other = ExactEngine(space), ExactEngine(space)
        for id, region in members.items():
            one.add(id, region)
        other.load(list(members), list(members.values()))
        other.check_invariants()
        assert set(other) == set(members) and len(other) == 12
        with pytest.raises(CallerError):
            other.load([3], [regions[0]])
        for region in random.choices(regions, k=15):
            verdicts = one.check(region), other.check(region)
            assert type(verdicts[0]) is type(verdicts[1])
            assert all(verify(verdict, region, members) for verdict in verdicts)
            assert set(one.members_within(region)) == set(other.members_within(region))
        gone = random.sample(list(members), 6)
        for id in gone:
            other.discard(id)
        other.check_invariants()
        assert set(other) == members.keys() - set(gone)


# --- Many at once: clauses and regions -------------------------------------------------------------------------------


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
    made = {"clauses": str, "regions": space.where, "another space": elsewhere.where}[form]
    table, told = SubscriptionTable(space, cover, retract), ActiveSet(space, cover, retract)
    start = 0
    for size in (1, 0, soaked(15, 30), 4, soaked(20, 35)):
        ids = [f"{random.random()}" for _ in range(size)]
        wheres = clauses[start : start + size]
        regions = {id: space.where(where) for id, where in zip(ids, wheres, strict=True)}
        members = {id: told.region(id) for id in told.active}
        expected = [told.subscribe(id, region) for id, region in regions.items()]
        changes = table.subscribe_many(ids, [made(where) for where in wheres])
        for id, one, other in zip(ids, changes, expected, strict=True):
            assert one.forward == other.forward and sorted(one.withdraw) == sorted(other.withdraw)
            assert type(one.verdict) is type(other.verdict)
            assert one.verdict is None or verify(one.verdict, regions[id], members), id  # witnesses, too
            members.update({each: regions[each] for each in one.forward})
            members = {each: region for each, region in members.items() if each not in one.withdraw}
        assert active(table) == told.active and passive(table).keys() == told.passive.keys()
        table.check_invariants()
        start += size
    assert cover is None or len(told.passive) > 10


# --- Many at once: typed columns -------------------------------------------------------------------------------------


def literal(attribute: Any, value: Any) -> str:
    if isinstance(attribute.axis, EnumAxis):
        return quoted(value)
    if isinstance(value, str):
        return quoted(value)
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
        elif pa.types.is_decimal(array.type):
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
    table, told = SubscriptionTable(space, cover, retract), ActiveSet(space, cover, retract)
    table.subscribe("first", "live")
    told.subscribe("first", space.where("live"))
    lows, highs = random_bounds(random, 45, 0.25)
    ids = [f"r{at}" for at in range(45)]
    changes = table.subscribe_many(ids, low=form(lows), high=form(highs), owners=["ann"] * 45)
    empty = 0
    for id, low, high, change in zip(ids, lows, highs, changes, strict=True):
        clause = bounds_clause(space, low, high)
        region = space.where(clause)
        assert table[id].region == region, clause
        expected = told.subscribe(id, region)
        assert change.forward == expected.forward and sorted(change.withdraw) == sorted(expected.withdraw)
        assert type(change.verdict) is type(expected.verdict), clause
        empty += region.is_empty
    assert 0 < empty < 30
    assert passive(table).keys() == told.passive.keys() and all(table[id].owner == "ann" for id in ids)
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
    table.subscribe_many(np.arange(3), low={name: low}, high={name: high})
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
            columns = [value, None, None], [None, value, None]
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
    answers = []
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


def test_typed_columns_while_another_thread_renumbers_strings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clauses are compiled outside the lock, so strings may move right after the columns were read."""
    from thatch.table import table as module

    space = Space.parse("name string")
    table = SubscriptionTable(space, None)
    table.subscribe("q", "name >= 'q'")
    real = module.boxes_of_columns

    def read_and_move(*arguments: Any) -> Any:
        boxes = real(*arguments)
        number_anew(space)
        return boxes

    monkeypatch.setattr(module, "boxes_of_columns", read_and_move)
    table.subscribe_many(["a", "b"], low={"name": ["f", "x"]}, high={"name": ["h", "z"]})
    assert table["a"].region == space.where("name BETWEEN 'f' AND 'h'")
    assert table.match({"name": "g"}) == ["a"] and table.match({"name": "y"}) == ["b", "q"]
    table.check_invariants()


# --- Matching --------------------------------------------------------------------------------------------------------

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
    for events in (empty, {}, {"price": []}, {"price": np.zeros(0), "volume": []}, empty.select([]), {"price": [99.0]}):
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


# --- Everything at once: random interleavings ------------------------------------------------------------------------


class Receiver:
    """A table, whoever applies its changes, and brute force over all current subscriptions, side by side."""

    def __init__(self, table: SubscriptionTable, pool: Pool) -> None:
        self.table, self.pool = table, pool
        self.wanted: dict[Any, int] = {}  # which region of the pool, in order of arrival
        self.due: dict[Any, float] = {}
        self.received: dict[Any, Region] = {}

    def subscribe(self, id: Any, which: int, due: float | None = None) -> None:
        members = self.members()
        change = self.table.subscribe(id, self.pool.regions[which], expires=due)
        self.wanted[id] = which
        if due is not None:
            self.due[id] = due
        self.apply(change)
        assert change.verdict is None or verify(change.verdict, self.pool.regions[which], members)
        assert id in change.forward or not self.table[id].active

    def subscribe_many(self, ids: list[Any], which: list[int]) -> None:
        changes = self.table.subscribe_many(ids, [self.pool.regions[each] for each in which])
        self.wanted.update(zip(ids, which, strict=True))
        for change in changes:
            assert self.received.keys().isdisjoint(change.forward)
            self.take(change)
        self.agree()

    def unsubscribe(self, id: Any) -> None:
        change = self.table.unsubscribe(id)
        self.forget([id])
        self.apply(change)

    def replace(self, id: Any, which: int) -> None:
        members = {each: region for each, region in self.members().items() if each != id}
        change = self.table.replace(id, self.pool.regions[which])
        self.wanted[id] = which
        self.apply(change, id)
        assert change.verdict is None or verify(change.verdict, self.pool.regions[which], members)

    def expire(self, now: float) -> None:
        change = self.table.expire(now)
        self.forget([id for id, due in self.due.items() if due <= now])
        self.apply(change)

    def members(self) -> dict[Any, Region]:
        return dict(self.received)

    def forget(self, ids: list[Any]) -> None:
        for id in ids:
            del self.wanted[id]
            self.due.pop(id, None)

    def take(self, change: Change) -> None:
        assert set(change.forward).isdisjoint(change.withdraw)
        assert len(set(change.forward)) == len(change.forward) and len(set(change.withdraw)) == len(change.withdraw)
        for id in change.forward:
            self.received[id] = self.pool.regions[self.wanted[id]]
        for id in change.withdraw:
            del self.received[id]

    def apply(self, change: Change, but: Any = None) -> None:
        assert self.received.keys() - {but} <= self.received.keys() - set(change.forward) | {but}
        self.take(change)
        self.agree()

    def agree(self) -> None:
        table = self.table
        assert list(table) == list(self.wanted) and len(table) == len(self.wanted)
        assert self.received.keys() == set(active(table))
        for id, region in self.received.items():
            assert region is self.pool.regions[self.wanted[id]], f"{id} was told with another region"

    def matches(self, random: Random) -> None:
        """One batch and some events alone."""
        ids, mask = sorted(self.wanted), self.pool.mask
        rows, places = np.nonzero(mask[:, [self.wanted[id] for id in ids]])
        found = self.table.match_batch(self.pool.table)
        assert found["event_index"].to_numpy().tolist() == rows.tolist()
        assert found["subscription_id"].to_pylist() == [ids[place] for place in places.tolist()]
        for row in random.sample(range(len(mask)), 6):
            assert self.table.match(self.pool.events[row]) == [id for id in ids if mask[row, self.wanted[id]]]
        told = mask[:, [self.wanted[id] for id in self.received]].any(axis=1)
        assert (mask[:, list(self.wanted.values())].any(axis=1) == told).all(), "what is told stands for all"

    def whole(self) -> None:
        self.table.check_invariants()
        for id, subscription in self.table.items():
            assert subscription.region is self.pool.regions[self.wanted[id]]
            assert subscription.expires == self.due.get(id)


def ball_pool() -> Pool:
    """Balls and boxes, and watchlists long enough to be posted."""
    random = Random(f"{SEED}/balls")
    space = Space.parse("x int not null 0..30, y int not null 0..30, name string")
    clauses = [
        f"within({random.choice((2, 5, 8))}, x, {random.randint(10, 14)}, y, {random.randint(10, 14)})"
        + random.choice(("", " AND name = 'n3'", " AND x < 12"))
        for _ in range(25)
    ]
    clauses += [f"x BETWEEN {at} AND {at + random.randint(2, 20)} AND y < {random.randint(9, 30)}" for at in range(20)]
    for size in (20, 30, 40):
        names = ", ".join(f"'n{at}'" for at in random.sample(range(60), size))
        clauses += [f"name IN ({names})", f"name IN ({names}) AND x < {size // 2}", f"name NOT IN ({names})"]
    regions = [space.where(clause) for clause in clauses]
    events = [
        {"x": random.randint(5, 20), "y": random.randint(5, 20), "name": random.choice([None, "n3", f"n{at % 70}"])}
        for at in range(150)
    ]
    mask = np.array([[region.contains(event) for region in regions] for event in events])
    return Pool(space, regions, events, mask)


@cache
def regions_and_events(kind: str) -> Pool:
    return {"bounded": partial(mixed_pool, MIXED_SPACES[0]), "strings": partial(mixed_pool, MIXED_SPACES[1])}.get(
        kind, ball_pool
    )()


@quietly
@settings
@pytest.mark.parametrize("kind", ["bounded", "strings", "balls"])
def test_random_interleavings(kind: str, cover: str | None, retract: bool) -> None:
    random = Random(f"{SEED}/{kind}/{cover}/{retract}")
    pool = regions_and_events(kind)
    groups = cover is not None and retract == (kind != "bounded")
    receiver = Receiver(SubscriptionTable(pool.space, cover, retract, groups=groups), pool)
    text = kind != "bounded"
    new = iter(random.sample(range(-5000, 5000), 4000))

    def new_id() -> Any:
        number = next(new)
        return f"{number}" if text else number

    def which() -> int:
        return random.randrange(len(pool.regions))

    held = 0
    for step in range(soaked(90, 170)):
        draw, ids = random.random(), list(receiver.wanted)
        growing = step % 60 < 38
        if len(ids) < 4 or draw < (0.35 if growing else 0.15):
            receiver.subscribe(new_id(), which(), random.choice((None, None, step + random.randint(1, 60))))
        elif draw < (0.42 if growing else 0.18):
            size = random.randint(0, 9)
            receiver.subscribe_many([new_id() for _ in range(size)], [which() for _ in range(size)])
        elif draw < 0.62:
            receiver.unsubscribe(random.choice(list(receiver.received) or ids if random.random() < 0.6 else ids))
        elif draw < 0.86:
            receiver.replace(random.choice(list(receiver.received) or ids if random.random() < 0.6 else ids), which())
        elif draw < 0.93:
            receiver.expire(step)
        elif pool.space.string_codes:
            pool.space.where(f"name >= 'k{step}' AND name < 'k{step}x'")
            if draw < 0.98:
                number_anew(pool.space)
        if step % 6 == 0:
            receiver.matches(random)
        if step % 40 == 39:
            receiver.whole()
            held += len(passive(receiver.table))
    assert (cover is None) == (held == 0)
    while receiver.wanted:
        receiver.unsubscribe(random.choice(list(receiver.wanted)))
    assert receiver.received == {} and len(receiver.table) == 0
    receiver.table.check_invariants()


# --- Groups ----------------------------------------------------------------------------------------------------------


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


# --- Why -------------------------------------------------------------------------------------------------------------


def test_who_covers_it() -> None:
    table = line(a=(0, 49), b=(50, 99), p=(20, 80), q=(5, 9))
    why = table.explain("p")
    assert why.active is False and why.certificate == ("a", "b") and why.witness is None and why.id == "p"
    assert str(why) == why.text and "'a'" in str(why) and "'b'" in str(why) and "passive" in str(why)
    assert table.explain("q").certificate == ("a",)
    assert (why.matches, why.failures) == (None, None)
    why = table.explain("a")
    assert why.active is True and "active" in str(why) and why.witness in ({"a0": at} for at in range(50))


def test_one_that_was_told_before_it_was_covered() -> None:
    table = line(early=(10, 20), late=(0, 50))
    why = table.explain("early")
    assert why.active and why.certificate == ("late",) and why.witness is None and "'late'" in str(why)
    table.unsubscribe("late")
    assert table.explain("early").witness is not None


def test_why_an_engine_that_did_not_see_the_cover_told_it() -> None:
    """Both came before it, and cover it only together, which pairwise does not look for."""
    table = line("pairwise", a=(0, 49), b=(50, 99), c=(20, 80))
    why = table.explain("c")
    assert why.active and why.witness is None and "before" not in str(why)


@pytest.mark.parametrize("cover", ["exact", "pairwise"])
def test_an_active_one_has_a_witness_whatever_the_engine(cover: str) -> None:
    table = line(cover, a=(0, 49), b=(40, 99))
    assert table.explain("a").witness in ({"a0": at} for at in range(40))
    assert table.explain("b").witness in ({"a0": at} for at in range(50, 100))


@quietly
@settings
@pytest.mark.parametrize("kind", ["bounded", "strings"])
def test_explanations_hold(kind: str, cover: str | None, retract: bool) -> None:
    random, pool = Random(f"{SEED}/{kind}"), regions_and_events(kind)
    table = SubscriptionTable(pool.space, cover, retract)
    witnesses = 0
    for step in range(60):
        if len(table) > 5 and random.random() < 0.25:
            table.unsubscribe(random.choice(list(table)))
        else:
            table.subscribe(step, random.choice(pool.regions))
        if step % 20 == 10 and pool.space.string_codes:
            number_anew(pool.space)
    told = {id: table[id].region for id in active(table)}
    for id, subscription in table.items():
        why = table.explain(id)
        assert why.id == id and why.active == subscription.active and why.matches is None
        if not subscription.active:
            assert why.certificate == subscription.certificate
            assert all(repr(name) in str(why) for name in why.certificate)
        elif why.witness is not None:
            witnesses += 1
            assert subscription.region.contains(why.witness), why
            assert [other for other, region in told.items() if region.contains(why.witness)] == [id], why
        elif why.certificate is not None:
            others = {name: told[name] for name in why.certificate}
            assert id not in others and verify(Covered(why.certificate), subscription.region, others)
    assert witnesses > 0 or cover != "exact"


def holds(space: Space, condition: str, event: Mapping[str, Any]) -> bool:
    return space.where(condition).contains(event)


@quietly
def test_which_conditions_fail() -> None:
    """Random clauses over every type: each printed condition is really false, and part of an alternative."""
    space, random = Space.parse(SPACE), Random(SEED)
    writer, table = ClauseWriter(random), SubscriptionTable(Space.parse(SPACE), "exact")
    rows = [without_some_nulls(random, row) for row in make_rows(random, 60)]
    matched = failed = 0
    for id in range(90):
        table.subscribe(id, writer.clause().ours)
        region = table[id].region
        for row in random.sample(rows, 3):
            why = table.explain(id, row)
            assert why.matches == region.contains(row) == (id in table.match(row))
            assert (why.active, why.certificate, why.witness) == (None, None, None)
            if why.matches:
                matched += 1
                assert why.failures == () and "matches" in str(why)
                continue
            failed += 1
            assert why.failures or region.is_empty
            for failure in why.failures:
                assert not holds(space, failure.condition, row), failure
                assert failure.condition in str(why) and failure.condition in str(failure)
                for name, value in failure.values.items():
                    given = row.get(name)
                    assert name.lower() in failure.condition.lower()
                    assert value == given or value != value or isinstance(given, str), failure
            if not region.has_balls:
                alternatives = [Region(table.space, [term]) for term in region.terms]
                conditions = [table.space.where(failure.condition) for failure in why.failures]
                assert region.is_empty or any(
                    all(alternative.is_within(condition) for condition in conditions) for alternative in alternatives
                )
    assert matched > 20 and failed > 100


def test_failing_conditions_in_words() -> None:
    table = SubscriptionTable(Space.parse("x double, y double not null, symbol string, n int"), "exact")
    clauses = {
        "both": "x < 5D AND symbol IN ('A', 'B')",
        "either": "x < 5D AND n = 1 OR symbol = 'C' AND n = 2 AND y > 3D",
        "ball": "within(5, x, 0, y, 0) AND n > 2",
        "null": "symbol IS NULL",
        "not": "symbol <> 'A'",
    }
    for id, clause in clauses.items():
        table.subscribe(id, clause)

    def failures(id: str, **event: Any) -> dict[str, dict[str, Any]]:
        why = table.explain(id, event)
        assert not why.matches
        return {failure.condition: failure.values for failure in why.failures}

    assert failures("both", x=7.0, y=0.0, symbol="C") == {
        "x < 5.0D": {"x": 7.0},
        "symbol IN ('A', 'B')": {"symbol": "C"},
    }
    assert failures("both", x=1.0, y=0.0, symbol="C") == {"symbol IN ('A', 'B')": {"symbol": "C"}}
    assert failures("both", y=0.0, symbol="A") == {"x < 5.0D": {"x": None}}
    assert "x is NULL" in str(table.explain("both", {"y": 0.0, "symbol": "A"}))
    assert failures("either", x=1.0, n=2, y=0.0, symbol="Z") == {"n = 1": {"n": 2}}  # one fails there, two here
    assert "alternative" in str(table.explain("either", {"x": 1.0, "n": 2, "y": 0.0}))
    assert failures("ball", x=3.0, y=4.0, n=2) == {"n >= 3": {"n": 2}}
    assert failures("ball", x=3.0, y=4.1, n=3) == {"within(5.0D, x, 0.0D, y, 0.0D)": {"x": 3.0, "y": 4.1}}
    assert set(failures("ball", x=3.0, y=4.1, n=2)) == {"n >= 3", "within(5.0D, x, 0.0D, y, 0.0D)"}
    assert failures("ball", y=0.0, n=3).popitem()[1] == {"x": None}
    assert table.explain("ball", {"x": 3.0, "y": 4.0, "n": 3}).matches
    assert failures("null", y=0.0, symbol="") == {"symbol IS NULL": {"symbol": ""}}
    assert list(failures("not", y=0.0).values()) == [{"symbol": None}]
    with pytest.warns(EmptyRegionWarning):
        table.subscribe("none", "x < 5D AND x > 6D")
    why = table.explain("none", {"y": 0.0})
    assert why.matches is False and why.failures == () and "no event" in str(why)


def test_failures_name_the_value_of_the_event() -> None:
    """A string between those that clauses mention stands in a gap; the event's own is what a person wants to read."""
    table = prices()
    table.subscribe("a", "symbol = 'IBM'")
    (failure,) = table.explain("a", {"symbol": "ORCL", "price": 1.0}).failures or ()
    assert failure.values == {"symbol": "ORCL"} and "ORCL" in str(failure)


# --- Imprecise events ------------------------------------------------------------------------------------------------


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
            if space.string_codes and random.random() < 0.2:
                number_anew(space)
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
    """Lists of 2,000 values, which nobody crosses out."""
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


# --- Threads ---------------------------------------------------------------------------------------------------------


def written(random: Random, count: int) -> Iterator[tuple[str, Any]]:
    """What a writer does, as clauses: new strings are cut all the time."""
    here: list[str] = []
    for step in range(count):
        low, name = random.randint(0, 90), f"{random.choice('abcdefgh')}{step}"
        clause = random.choice(
            (
                f"size BETWEEN {low} AND {low + random.randint(0, 40)}",
                f"size >= {low} AND name >= '{name}'",
                f"name IN ('{name}', 'c5', 'd') OR size = {low}",
                "TRUE",
            )
        )
        draw = random.random()
        if len(here) < 8 or draw < 0.35:
            here.append(f"{random.random()}")
            yield "subscribe", (here[-1], clause)
        elif draw < 0.65:
            yield "replace", (random.choice(here), clause)
        else:
            yield "unsubscribe", (here.pop(random.randrange(len(here))),)


@pytest.mark.parametrize(("cover", "retract"), [(None, False), ("exact", True)])
def test_four_threads_read_while_one_writes(cover: str | None, retract: bool) -> None:
    """Each answer is that of some version between the start and the end of the call; a batch is of one version."""
    text = "name string, size int not null 0..99"
    events = [{"name": name, "size": size} for name, size in zip("acdhz", (5, 30, 55, 80, 95), strict=True)]
    batch = {"name": [each["name"] for each in events], "size": np.array([each["size"] for each in events])}
    script = list(written(Random(SEED), soaked(45, 90)))
    aside, here, truth = Space.parse(text), dict[str, Region](), [[[] for _ in events]]
    for operation, (id, *clause) in script:
        here.pop(id) if operation == "unsubscribe" else here.update({id: aside.where(*clause)})
        truth.append([sorted(each for each in here if here[each].contains(event)) for event in events])
    table = SubscriptionTable(Space.parse(text), cover, retract, groups=retract)
    begun, ended, wrong, answers = [0], [0], list[Any](), [0] * 4

    def read(reader: int) -> None:
        random = Random(reader)
        try:
            while ended[0] < len(script):
                row, first = random.randrange(len(events)), ended[0]
                if reader % 2:
                    found = table.match(events[row])
                    right = any(found == truth[version][row] for version in range(first, begun[0] + 1))
                else:
                    many = pairs(table.match_batch(batch))
                    found = [[id for at, id in many if at == place] for place in range(len(events))]
                    right = any(found == truth[version] for version in range(first, begun[0] + 1))
                answers[reader] += 1
                if not right:
                    wrong.append((reader, first, begun[0], row, found))
                len(table), table.get(random.choice(truth[first][row] or ["none"])), list(table)
        except Exception as error:
            wrong.append(repr(error))

    threads = [threading.Thread(target=read, args=(reader,)) for reader in range(4)]
    for thread in threads:
        thread.start()
    try:
        for number, (operation, arguments) in enumerate(script, 1):
            begun[0] = number
            getattr(table, operation)(*arguments)
            ended[0] = number
            if number % 25 == 0:
                number_anew(table.space)
            time.sleep(0.001)
    finally:
        ended[0] = len(script)
        for thread in threads:
            thread.join()
    assert not wrong, (len(wrong), wrong[:3])
    assert min(answers) > 0
    assert pairs(table.match_batch(batch)) == [(row, id) for row, ids in enumerate(truth[-1]) for id in ids]
    table.check_invariants()


def test_two_threads_write() -> None:
    table = SubscriptionTable(Space.parse("name string, size int not null 0..99"), "exact", retract=True)
    failed: list[Any] = []

    def write(writer: int) -> None:
        try:
            for number in range(60):
                table.subscribe(f"{writer}/{number}", f"name >= '{writer}x{number}' AND size < {number + 9}", expires=7)
                if number % 3 == 0:
                    table.replace(f"{writer}/{number}", f"size = {number}")
                if number % 4 == 3:
                    table.unsubscribe(f"{writer}/{number - 2}")
                if number % 20 == 0:
                    table.match({"name": "5", "size": number})
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
    assert len(table) == 90
    table.check_invariants()
    assert len(table.expire(7).forward) == 0 and len(table) == 0
