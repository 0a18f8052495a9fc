"""The changes that a table reports: empty regions, expiry and replacements."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from helpers.cover_oracles import ints
from helpers.tables import active, line, passive, prices, settings
from thatch import SubscriptionTable
from thatch.cover import Change, Covered
from thatch.errors import EmptyRegionWarning

# --- Empty regions ----------------------------------------------------------------------------------------------------


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
    for each in list(table):
        table.unsubscribe(each)
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


# --- Expiry -----------------------------------------------------------------------------------------------------------


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
def test_expiry_reports_the_net_change(retract: bool) -> None:
    """Those promoted by one departure and taken away by the next are not reported at all."""
    table = SubscriptionTable(ints(100), "exact", retract)
    for id, top, due in (("a", 90, 10), ("b", 80, 11), ("c", 70, 12), ("d", 60, None), ("e", 50, 9), ("f", 95, 99)):
        table.subscribe(id, f"a0 < {top}", expires=due)
    before = set(active(table))
    assert before == ({"f"} if retract else {"a", "f"})
    change = table.expire(50)
    assert change == (Change() if retract else Change([], ["a"]))
    assert list(table) == ["d", "f"] and passive(table) == {"d": ("f",)}
    assert table.expire(99) == Change(["d"], ["f"])
    table.check_invariants()


# --- Replacing --------------------------------------------------------------------------------------------------------


def test_replacing_reports_the_net_change() -> None:
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
    change = table.replace("a", "a0 BETWEEN 0 AND 30")  # forwarded again under its id
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
