"""Why: who covers a subscription, what only it wants, which conditions an event fails."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from helpers.clause_rows import SPACE, make_rows, without_some_nulls
from helpers.clauses import ClauseWriter
from helpers.cover_oracles import recode
from helpers.tables import SEED, active, line, prices, quietly, regions_and_events, settings
from thatch import Space, SubscriptionTable
from thatch.cover import Covered, verify
from thatch.errors import EmptyRegionWarning
from thatch.region.region import Region


def events_at(places: range) -> list[dict[str, Any]]:
    return [{"a0": at} for at in places]


def test_who_covers_it() -> None:
    table = line(a=(0, 49), b=(50, 99), p=(20, 80), q=(5, 9))
    why = table.explain("p")
    assert why.active is False and why.certificate == ("a", "b") and why.witness is None and why.id == "p"
    assert str(why) == why.text and "'a'" in str(why) and "'b'" in str(why) and "passive" in str(why)
    assert table.explain("q").certificate == ("a",)
    assert (why.matches, why.failures) == (None, None)
    why = table.explain("a")
    assert why.active is True and "active" in str(why) and why.witness in events_at(range(50))


def test_one_that_was_forwarded_before_it_was_covered() -> None:
    table = line(early=(10, 20), late=(0, 50))
    why = table.explain("early")
    assert why.active and why.certificate == ("late",) and why.witness is None and "'late'" in str(why)
    table.unsubscribe("late")
    assert table.explain("early").witness is not None


def test_why_an_engine_that_did_not_see_the_cover_forwarded_it() -> None:
    """Both came before it, and cover it only together, which pairwise does not look for."""
    table = line("pairwise", a=(0, 49), b=(50, 99), c=(20, 80))
    why = table.explain("c")
    assert why.active and why.witness is None and "before" not in str(why)


@pytest.mark.parametrize("cover", ["exact", "pairwise"])
def test_an_active_one_has_a_witness_whatever_the_engine(cover: str) -> None:
    table = line(cover, a=(0, 49), b=(40, 99))
    assert table.explain("a").witness in events_at(range(40))
    assert table.explain("b").witness in events_at(range(50, 100))


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
        if step % 20 == 10 and pool.space.label_codes:
            recode(pool.space)
    regions = {id: table[id].region for id in active(table)}
    for id, subscription in table.items():
        why = table.explain(id)
        assert why.id == id and why.active == subscription.active and why.matches is None
        if not subscription.active:
            assert why.certificate is not None and why.certificate == subscription.certificate
            assert all(repr(name) in str(why) for name in why.certificate)
        elif why.witness is not None:
            witnesses += 1
            assert subscription.region.contains(why.witness), why
            assert [other for other, region in regions.items() if region.contains(why.witness)] == [id], why
        elif why.certificate is not None:
            others = {name: regions[name] for name in why.certificate}
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
            assert why.failures is not None and (why.failures or region.is_empty)
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
        assert not why.matches and why.failures is not None
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
