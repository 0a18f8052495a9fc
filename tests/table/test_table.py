"""The subscription table as DESIGN section 4 promises it: its example, its ids, and subscriptions that come and go."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import thatch
from helpers.tables import active, line, pairs, passive, prices
from thatch import CallerError, ClauseError, Space, SubscriptionTable, UnknownSubscription, covers
from thatch.cover import Change, Covered, Uncovered
from thatch.table.table import Subscription


def state(table: SubscriptionTable) -> Any:
    """All that a caller can see of it."""
    return [(s.id, s.owner, s.region.to_sql(), s.active, s.certificate, s.expires) for s in table.values()]


# --- The example of the design, line by line --------------------------------------------------------------------------


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


# --- Ids and the mapping ----------------------------------------------------------------------------------------------


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
    columns: list[Any] = [np.array([7, -3]), np.array([7, 8], np.uint8), np.array(["b", "a"])]
    for ids in columns:
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
        forwarded = table.replace(equal, "a0 < 4").forward
    except UnknownSubscription:
        forwarded = []
    assert [type(id) for id in [*forwarded, *table, *table.match({"a0": 2})]] == [int] * (len(forwarded) + 4)
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


# --- Coming and going -------------------------------------------------------------------------------------------------


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

    def owner(id: str) -> str | None:
        return table[id].owner

    table.subscribe("a", "price < 5", owner="ann")
    table.replace("a", "price < 6")
    assert owner("a") == "ann"
    table.replace("a", "price < 7", owner="bob")
    assert owner("a") == "bob"
    table.unsubscribe("a")
    table.subscribe("a", "price < 5")
    assert owner("a") is None
    table.subscribe_many(["b", "c"], ["price < 3", "price > 9"], owners=("cid", None))
    assert (owner("b"), owner("c")) == ("cid", None)
    table.check_invariants()


def test_owners_from_numpy() -> None:
    table = prices()
    owners: Any = np.array(["dan", "eve"])
    table.subscribe_many(["d", "e"], ["price < 3", "price > 9"], owners=owners)
    assert (table["d"].owner, table["e"].owner) == ("dan", "eve")
    assert type(table["d"].owner) is str
