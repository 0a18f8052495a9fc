"""Publishing and routing: which events a broker takes, and where events and subscriptions go."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.broker_bench import Bench, Overlay, policies, rejected
from thatch import Space
from thatch.broker import Policy, Settings
from thatch.broker.router import REASON_MAX
from thatch.protocol.messages import Advertise, Deliver, Publish, Refused, Reject, Subscribe
from thatch.sim.topology import chain, monte_carlo

# --- Publishing -------------------------------------------------------------------------------------------------------


def test_publishing_needs_an_advertisement() -> None:
    bench = Bench(Settings()).client("ann")
    reject = rejected(bench.handle(Publish("ann:1", {"x": 5}), "ann"))
    reason = "'ann' publishes without an advertisement: advertise first, such as advertise('TRUE')"
    assert reject == Reject("ann", Refused(0, "ann:1", reason, code="advertisement"))


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ({"x": 50}, "outside what 'ann' advertised: 'a' does not match: x <= 19 fails: x is 50"),
        ({"x": 5, "y": 1}, "attribute 'y' is not in the space x int not null 0..100"),
        ({"x": 5, 1: 2}, "attribute 1 is not in the space x int not null 0..100"),
        ({"x": 500}, "attribute 'x': 500 is outside the domain 0..100 of int"),
        ({"x": "5"}, "attribute 'x': '5' is not an int"),
        ({"x": None}, "attribute 'x': NULL is refused"),
        ({}, "attribute 'x': NULL is refused: the attribute is not null and the value is missing"),
        ({"x": 5, "X": 6}, "attribute 'x': 'X' names the attribute a second time"),
    ],
)
def test_an_event_that_may_not_be_published_is_refused_by_name_and_goes_nowhere(event: Any, reason: str) -> None:
    bench = Bench(Settings()).client("ann").client("bob")
    bench.says("ann", Advertise, "a", "x < 20")
    bench.says("bob", Subscribe, "s", "TRUE")
    (effect,) = bench.handle(Publish("ann:1", event), "ann")
    assert isinstance(effect, Reject) and effect.link == "ann" and not effect.close
    assert effect.refused.id == "ann:1" and effect.refused.reason.startswith(reason)


def test_a_refusal_is_short_however_long_the_advertisement() -> None:
    bench = Bench(Settings(), Space.parse("x int not null 0..100000")).client("ann")
    bench.says("ann", Advertise, "a", f"x IN ({', '.join(str(2 * at) for at in range(5000))})")
    reason = rejected(bench.handle(Publish("ann:1", {"x": 1}), "ann")).refused.reason
    assert reason.startswith("outside what 'ann' advertised: 'a' does not match: x <= 9998 AND x NOT IN (1, 3, ")
    assert reason.endswith("…") and len(reason) < REASON_MAX + 50


def test_a_refusal_is_short_however_long_the_space() -> None:
    bench = Bench(space=Space.parse(", ".join(f"a{at} int" for at in range(500)))).client("ann")
    assert len(rejected(bench.handle(Publish("ann:1", {"y": 1}), "ann")).refused.reason) < REASON_MAX + 50


def test_an_event_within_any_advertisement_of_the_publisher_is_taken() -> None:
    bench = Bench(Settings()).client("ann").client("bob")
    for id, where in (("low", "x < 20"), ("high", "x > 80")):
        bench.says("ann", Advertise, id, where)
    bench.says("bob", Subscribe, "s", "TRUE")
    for at in (5, 95):
        event = Publish("ann:1", {"x": at}, b"payload")
        assert bench.handle(event, "ann") == [Deliver("bob", event, ("s",))]


def test_a_neighbour_that_sends_a_bad_event_is_hung_up_on() -> None:
    bench = Bench()
    bench.neighbour("B2")
    assert rejected(bench.handle(Publish("p:1", {"x": 500}), "B2")).close
    assert not bench.broker.links["B2"].is_up


def test_delivery_names_the_subscriptions_that_want_the_event_and_no_other() -> None:
    bench = Bench().client("ann").client("bob")
    for client, id, where in (
        ("ann", "t", "x < 9"),
        ("ann", "s", "x < 5"),
        ("ann", "u", "x > 5"),
        ("bob", "v", "x > 5"),
    ):
        bench.says(client, Subscribe, id, where)
    event = Publish("bob:1", {"x": 3})
    assert bench.handle(event, "bob") == [Deliver("ann", event, ("s", "t"))]


# --- Routing ----------------------------------------------------------------------------------------------------------


def test_without_advertisements_a_subscription_floods() -> None:
    overlay = Overlay(chain(["B1", "B2", "B3"]))
    overlay.does("S@B1", "subscribe", "s", "x < 5")
    assert overlay.knows("s") == ["B1", "B2", "B3"]
    assert overlay.publish("P@B3", x=3) == {"S@B1": ("s",)}
    assert overlay.publish("P@B3", x=7) == {}
    overlay.does("S@B1", "unsubscribe", "s")
    assert overlay.knows("s") == []


def test_a_subscription_travels_only_toward_publishers_that_it_meets() -> None:
    overlay = Overlay([("B1", "B2"), ("B2", "B3"), ("B2", "B4")], Settings())
    overlay.does("P@B3", "advertise", "low", "x < 20")
    overlay.does("Q@B4", "advertise", "high", "x > 80")
    overlay.does("S@B1", "subscribe", "s", "x < 10")
    assert overlay.knows("s") == ["B1", "B2", "B3"]
    assert overlay.publish("P@B3", x=3) == {"S@B1": ("s",)}


def test_a_subscription_arrives_when_an_advertisement_comes_and_leaves_when_it_goes() -> None:
    overlay = Overlay(chain(["B1", "B2", "B3"]), Settings())
    overlay.does("S@B1", "subscribe", "s", "x < 10")
    assert overlay.knows("s") == ["B1"]
    overlay.does("P@B3", "advertise", "a", "x BETWEEN 5 AND 20")
    assert overlay.knows("s") == ["B1", "B2", "B3"]
    overlay.does("P@B3", "advertise", "a", "x BETWEEN 15 AND 20")
    assert overlay.knows("s") == ["B1"]
    overlay.does("P@B3", "advertise", "a", "TRUE")
    assert overlay.publish("P@B3", x=3) == {"S@B1": ("s",)}
    overlay.does("P@B3", "unadvertise", "a")
    assert overlay.knows("s") == ["B1"]


def test_where_events_flood_subscriptions_stay_at_home() -> None:
    overlay = Overlay(chain(["B1", "B2", "B3"]), Settings(routing="events"))
    overlay.does("S@B1", "subscribe", "s", "x < 5")
    assert overlay.knows("s") == ["B1"]
    assert overlay.visited("P@B3", x=50) == ["B1", "B2", "B3"]
    assert overlay.publish("P@B3", x=3) == {"S@B1": ("s",)}


@policies
def test_local_delivery_is_exact_although_upstream_covers(policy: Policy) -> None:
    overlay = Overlay(chain(["B1", "B2", "B3"]), Settings("subscriptions", policy))
    overlay.does("S@B1", "subscribe", "wide", "x < 50")
    overlay.does("T@B1", "subscribe", "narrow", "x BETWEEN 10 AND 20")
    assert overlay.publish("P@B3", x=15) == {"S@B1": ("wide",), "T@B1": ("narrow",)}
    assert overlay.publish("P@B3", x=30) == {"S@B1": ("wide",)}
    overlay.does("S@B1", "unsubscribe", "wide")
    assert overlay.publish("P@B3", x=15) == {"T@B1": ("narrow",)}
    assert overlay.publish("P@B3", x=30) == {}


def test_figure_1_of_the_monte_carlo_paper() -> None:
    """s2, covered by s1, goes from B6 only toward the origin of s1; events take the two delivery trees."""
    overlay = Overlay(monte_carlo())
    overlay.does("S1@B1", "subscribe", "s1", "x < 50")
    assert len(overlay.knows("s1")) == 9
    overlay.does("S2@B6", "subscribe", "s2", "x < 20")
    assert overlay.knows("s2") == ["B1", "B3", "B4", "B6"]
    assert overlay.visited("P1@B9", x=10) == ["B1", "B3", "B4", "B6", "B7", "B9"]
    assert overlay.visited("P2@B5", x=30) == ["B1", "B3", "B4", "B5"]
    assert overlay.publish("P1@B9", x=10) == {"S1@B1": ("s1",), "S2@B6": ("s2",)}


def test_figure_2_of_the_congestion_paper() -> None:
    """Sr at A matches the advertisements of five leaves; Sn at E, covered by Sr, those at I, K and M. The paths there
    leave the path from E to A at B, C and D: Sn goes no further than B, and to no leaf."""
    overlay = Overlay([*chain("ABCDE"), ("B", "I"), ("A", "J"), ("C", "K"), ("E", "L"), ("D", "M")], Settings())
    for number, leaf in enumerate("IJKLM"):
        overlay.does(f"P@{leaf}", "advertise", "a", f"x BETWEEN {20 * number} AND {20 * number + 9}")
    overlay.does("S@A", "subscribe", "Sr", "TRUE")
    assert overlay.knows("Sr") == sorted("ABCDEIJKLM")
    overlay.does("S@E", "subscribe", "Sn", "x < 10 OR x BETWEEN 40 AND 50 OR x > 79")
    assert overlay.knows("Sn") == sorted("EDCB")
    for number, leaf in enumerate("IJKLM"):
        found = overlay.publish(f"P@{leaf}", x=20 * number + 1)
        assert found == {"S@A": ("Sr",)} | ({"S@E": ("Sn",)} if leaf in "IKM" else {})
