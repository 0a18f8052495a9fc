"""The broker by example: messages in, effects out; and a few brokers wired by the simulator's network.

Random runs against an oracle are in test_sim_seeds.py; here is one small example for each rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.broker_bench import (
    FLOOD,
    KINDS,
    MORE_KINDS,
    SESSION,
    SPACE,
    Bench,
    Overlay,
    is_settled,
    rejected,
    sent,
    told,
)
from helpers.strategies import examples
from thatch import Space
from thatch.broker import Broker, Policy, Settings
from thatch.broker.broker import OPERATOR
from thatch.broker.inspect import why_forwarded, why_sent
from thatch.broker.policy import CHECKED, Worth
from thatch.broker.router import REASON_MAX
from thatch.errors import CallerError
from thatch.protocol.digest import digest
from thatch.protocol.ids import ADVERTISEMENTS, SUBSCRIPTIONS
from thatch.protocol.messages import (
    Accepted,
    Advertise,
    Deliver,
    Digest,
    Drop,
    Effect,
    Extend,
    Flush,
    Hello,
    LinkDown,
    LinkUp,
    Message,
    Persist,
    Persisted,
    Publish,
    Put,
    Refused,
    Reject,
    Replace,
    Send,
    Settled,
    Subscribe,
    Synced,
    Tick,
    Unadvertise,
    Unsubscribe,
    seq_of,
)
from thatch.sim.topology import chain, monte_carlo

policies = pytest.mark.parametrize(
    "policy",
    [Policy(None), Policy(), Policy(retract=True), Policy("pairwise"), Policy("pairwise", graph="simplified")],
    ids=str,
)


# --- Publishing ------------------------------------------------------------------------------------------------------


def test_publishing_needs_an_advertisement() -> None:
    bench = Bench(Settings()).client("ann")
    reject = rejected(bench.handle(Publish("ann:1", {"x": 5}), "ann"))
    assert reject == Reject("ann", Refused(0, "ann:1", "'ann' publishes without an advertisement: advertise first"))


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ({"x": 50}, "outside what 'ann' advertised: 'a' does not match: x <= 19 fails: x is 50"),
        ({"x": 5, "y": 1}, "attribute 'y' is not in the space x int not null 0..100"),
        ({"x": 5, 1: 2}, "attribute 1 is not in the space x int not null 0..100"),
        ({"x": 500}, "attribute 'x': 500 is outside the domain 0..100 of int"),
        ({"x": "5"}, "attribute 'x': '5' is not an int"),
        ({"x": None}, "attribute 'x': None is refused"),
        ({}, "attribute 'x': None is refused: the attribute is not null and the value is missing"),
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


# --- Routing ---------------------------------------------------------------------------------------------------------


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


# --- Covering: what a neighbour is told ------------------------------------------------------------------------------


def test_lazy_covering_holds_back_what_is_covered() -> None:
    bench = Bench().client("ann").settled_neighbour("B2")
    assert told(bench.says("ann", Subscribe, "low", "x < 20")) == ["Subscribe low: x < 20"]
    assert told(bench.says("ann", Subscribe, "high", "x >= 20")) == ["Subscribe high: x >= 20"]
    assert told(bench.says("ann", Subscribe, "both", "x BETWEEN 10 AND 30")) == []
    assert told(bench.says("ann", Subscribe, "all", "TRUE")) == []


def test_retracting_takes_back_the_narrower_ones_after_the_wider_one_is_told() -> None:
    bench = Bench(Settings("subscriptions", Policy(retract=True))).client("ann").settled_neighbour("B2")
    bench.says("ann", Subscribe, "one", "x < 20")
    bench.says("ann", Subscribe, "two", "x > 80")
    effects = bench.says("ann", Subscribe, "wide", "x < 50")
    assert told(effects) == ["Subscribe wide: x < 50", "Unsubscribe one"]


@pytest.mark.parametrize("retract", [False, True])
def test_an_unsubscription_promotes_only_what_is_uncovered_and_before_it_withdraws(retract: bool) -> None:
    bench = Bench(Settings("subscriptions", Policy(retract=retract))).client("ann").settled_neighbour("B2")
    bench.says("ann", Subscribe, "wide", "x < 50")
    bench.says("ann", Subscribe, "other", "x BETWEEN 40 AND 90")
    bench.says("ann", Subscribe, "uncovered", "x < 10")
    bench.says("ann", Subscribe, "covered", "x BETWEEN 41 AND 49")
    bench.says("ann", Subscribe, "nested", "x < 5")
    assert told(bench.says("ann", Unsubscribe, "wide")) == ["Subscribe uncovered: x < 10", "Unsubscribe wide"]


def test_covering_off_tells_everything() -> None:
    bench = Bench(Settings("subscriptions", Policy(None))).client("ann").settled_neighbour("B2")
    bench.says("ann", Subscribe, "wide", "x < 50")
    assert told(bench.says("ann", Subscribe, "narrow", "x < 5")) == ["Subscribe narrow: x < 5"]
    assert told(bench.says("ann", Unsubscribe, "wide")) == ["Unsubscribe wide"]


def test_a_replacement_that_shrinks_sends_those_that_it_covered_before_itself() -> None:
    bench = Bench().client("ann").settled_neighbour("B2")
    bench.says("ann", Subscribe, "wide", "x < 50")
    bench.says("ann", Subscribe, "narrow", "x BETWEEN 20 AND 30")
    effects = bench.says("ann", Replace, "wide", "x < 10")
    assert told(effects) == ["Subscribe narrow: x BETWEEN 20 AND 30", "Replace wide: x < 10"]


def test_a_replacement_that_grows_is_one_message() -> None:
    bench = Bench().client("ann").settled_neighbour("B2")
    bench.says("ann", Subscribe, "s", "x < 50")
    assert told(bench.says("ann", Replace, "s", "x < 60")) == ["Replace s: x < 60"]
    assert told(bench.says("ann", Subscribe, "s", "x < 70")) == ["Replace s: x < 70"]
    assert told(bench.says("ann", Subscribe, "s", "x < 70")) == []


def test_only_the_net_change_of_a_message_is_told() -> None:
    """The resynchronisation of a client drops the wide one, for which the narrow ones would be promoted, and brings
    another wide one, which covers them."""
    bench = Bench(Settings("subscriptions", Policy(retract=True))).client("ann").settled_neighbour("B2")
    bench.says("ann", Subscribe, "wide", "x < 50")
    bench.says("ann", Subscribe, "narrow", "x < 10")
    effects = bench.says("ann", Synced, 1, {0: {"other": ("x < 60", None), "narrow": ("x < 10", None)}})
    assert told(effects) == ["Subscribe other: x < 60", "Unsubscribe wide"]
    effects = bench.says("ann", Synced, 1, {0: {"wide": ("x < 50", None), "narrow": ("x < 10", None)}})
    assert told(effects) == ["Subscribe wide: x < 50", "Unsubscribe other"]


@pytest.mark.parametrize("table", [SUBSCRIPTIONS, ADVERTISEMENTS])
def test_several_replacements_at_once_leave_the_old_regions_until_all_are_in_place(table: str) -> None:
    """One after the other would leave a gap: `low` has gone up before `high` has come down."""
    bench = Bench(Settings()).client("ann").settled_neighbour("B2")
    bench.says("B2", Advertise, "B2/p/a", "TRUE")
    new, replaced, gone = (
        (Subscribe, Replace, Unsubscribe) if table == SUBSCRIPTIONS else (Advertise,) * 2 + (Unadvertise,)
    )
    for id, where in (("low", "x < 20"), ("high", "x > 80")):
        bench.says("ann", new, id, where)
    listing = {0: {"low": ("x > 80", None), "high": ("x < 20", None), "mid": ("x = 50", None)}}
    effects = bench.says("ann", Synced, 1, *((listing,) if table == SUBSCRIPTIONS else ({}, listing)))
    assert told(effects) == [
        f"{new.__name__} mid: x = 50",
        f"{new.__name__} ~~low: x < 20",
        f"{new.__name__} ~~high: x > 80",
        f"{replaced.__name__} low: x > 80",
        f"{replaced.__name__} high: x < 20",
        f"{gone.__name__} ~~low",
        f"{gone.__name__} ~~high",
    ]
    # A neighbour that takes them one by one holds no less than before at any time, and no other id at the end.
    neighbour = Bench(broker=Broker("B2", SPACE))
    neighbour.neighbour("B1")
    for id, where in (("B1/ann/low", "x < 20"), ("B1/ann/high", "x > 80")):
        neighbour.says("B1", new, id, where)
    for effect in effects:
        if isinstance(effect, Send) and effect.link == "B2":
            neighbour.says("B1", type(effect.message), *msgspec.structs.astuple(effect.message)[1:])
            holds = [SPACE.where(where) for where in neighbour.broker.received_from(table, "B1").values()]
            assert all(any(region.contains({"x": at}) for region in holds) for at in (3, 97))
    assert neighbour.broker.received_from(table, "B1") == bench.broker.outbound(table, "B2").forwarded()


def test_one_replacement_needs_no_other_id() -> None:
    bench = Bench().client("ann").settled_neighbour("B2")
    bench.says("ann", Subscribe, "low", "x < 20")
    effects = bench.says("ann", Synced, 1, {0: {"low": ("x > 80", None), "mid": ("x = 50", None)}})
    assert told(effects) == ["Subscribe mid: x = 50", "Replace low: x > 80"]


def test_several_replacements_of_long_clauses_can_be_read_by_the_neighbour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thatch.where.lexer.LITERALS_MAX", 30)
    bench = Bench().client("ann").settled_neighbour("B2")

    def clause(first: int) -> str:
        return " OR ".join(f"x = {at}" for at in range(first, 100, 4))

    for id, first in (("one", 0), ("two", 1)):
        bench.says("ann", Subscribe, id, clause(first))
    effects = bench.says("ann", Synced, 1, {0: {"one": (clause(2), None), "two": (clause(3), None)}})
    wheres = [each.message.where for each in effects if isinstance(each, Send) and hasattr(each.message, "where")]
    assert wheres == [clause(at) for at in (0, 1, 2, 3)]
    for where in wheres:
        bench.broker.space.where(where)


def test_an_id_that_comes_over_two_links_with_other_clauses_is_told_twice() -> None:
    """A part of the overlay has moved, and one side has not heard that a subscription was replaced."""
    bench = Bench(Settings("subscriptions", Policy(None)))
    for name in ("B2", "B3", "B4"):
        bench.settled_neighbour(name)
    assert told(bench.says("B3", Subscribe, "B9/c/s", "x < 5")) == ["Subscribe s: x < 5"]
    assert told(bench.says("B4", Subscribe, "B9/c/s", "x < 5")) == []
    assert told(bench.says("B4", Replace, "B9/c/s", "x > 90")) == ["Subscribe ~B4~s: x > 90"]
    assert bench.broker.outbound(SUBSCRIPTIONS, "B3").forwarded() == {"B9/c/s": "x > 90"}
    assert bench.broker.outbound(SUBSCRIPTIONS, "B4").forwarded() == {"B9/c/s": "x < 5"}
    assert told(bench.says("B3", Unsubscribe, "B9/c/s")) == ["Replace s: x > 90", "Unsubscribe ~B4~s"]
    assert told(bench.says("B4", Unsubscribe, "B9/c/s")) == ["Unsubscribe s"]


@pytest.mark.parametrize("id", ["~~B2/c/s", "~B9~B2/c/s"])
def test_another_id_of_a_neighbour_is_passed_on_like_any(id: str) -> None:
    bench = Bench().settled_neighbour("B2").settled_neighbour("B3")
    bench.says("B2", Subscribe, id, "x < 5")
    assert bench.broker.outbound(SUBSCRIPTIONS, "B3").forwarded() == {id: "x < 5"}


@pytest.mark.parametrize("id", ["B1/ann/s", "~~B1/ann/s", "~B3~B1/ann/s", "~B3~~~B1/ann/s"])
def test_an_echo_of_our_own_advertisement_is_not_taken_under_any_id(id: str) -> None:
    bench = Bench().settled_neighbour("B2")
    bench.says("B2", Advertise, id, "x < 5")
    assert bench.broker.received_from(ADVERTISEMENTS, "B2") == {}
    bench.says("B2", Subscribe, id, "x < 5")
    assert bench.broker.received_from(SUBSCRIPTIONS, "B2") == {id: "x < 5"}, "it may be preserved there, for others"


def test_advertisements_are_covered_and_shown_again_by_the_same_engine() -> None:
    bench = Bench(Settings()).client("ann").settled_neighbour("B2")
    assert told(bench.says("ann", Advertise, "wide", "x < 50")) == ["Advertise wide: x < 50"]
    assert told(bench.says("ann", Advertise, "narrow", "x < 10")) == []
    assert told(bench.says("ann", Unadvertise, "wide")) == ["Advertise narrow: x < 10", "Unadvertise wide"]


def test_an_advertisement_that_shrinks_is_told_after_those_that_it_covered() -> None:
    bench = Bench(Settings()).client("ann").settled_neighbour("B2")
    bench.says("ann", Advertise, "wide", "x < 50")
    bench.says("ann", Advertise, "narrow", "x < 10")
    effects = bench.says("ann", Advertise, "wide", "x BETWEEN 20 AND 50")
    assert told(effects) == ["Advertise narrow: x < 10", "Advertise wide: x BETWEEN 20 AND 50"]


def test_a_settled_subscription_survives_an_advertisement_that_shrinks_beside_another() -> None:
    """What Q advertises was held back, covered by P, who shrinks it; Q changes nothing and must be heard throughout."""
    overlay = Overlay(chain(["B1", "B2"]), Settings())
    overlay.does("P@B1", "advertise", "wide", "x < 50")
    overlay.does("Q@B1", "advertise", "narrow", "x < 10")
    overlay.does("S@B2", "subscribe", "s", "x < 5")
    assert overlay.publish("Q@B1", x=3) == {"S@B2": ("s",)}
    network = overlay.network
    network.wire("B1", "B2").bandwidth = 1000.0  # so that what is sent at once does not arrive at once
    network.tell("P@B1", network.clients["P@B1"].advertise("B1", "wide", "x BETWEEN 20 AND 50"))
    for at in range(60):
        publish = partial(network.clients["Q@B1"].publish, "B1", {"x": 3})
        network.at(network.now + at * 0.01, lambda publish=publish: network.tell("Q@B1", publish()))
    network.run()
    assert len(overlay.events) == 61


# --- Accepted and settled --------------------------------------------------------------------------------------------


def test_settled_comes_when_every_neighbour_has_it() -> None:
    bench = Bench().client("ann").settled_neighbour("B2").settled_neighbour("B3")
    effects = bench.says("ann", Subscribe, "s", "x < 5")
    assert sent(effects, "ann") == ["Accepted"]
    assert not is_settled(bench.settles("B2"))
    effects = bench.settles("B3")
    assert effects == [Send("ann", Settled(seq_of(SESSION, 1)))]


def test_without_neighbours_all_has_settled_at_once() -> None:
    assert sent(Bench().client("ann").says("ann", Subscribe, "s", "x < 5"), "ann") == ["Accepted", "Settled"]


def test_one_that_is_held_back_waits_for_the_one_that_covers_it() -> None:
    bench = Bench().client("ann").client("bob").settled_neighbour("B2")
    bench.says("ann", Subscribe, "wide", "x < 50")
    effects = bench.says("bob", Subscribe, "narrow", "x < 5")
    assert told(effects) == [] and sent(effects, "bob") == ["Accepted"]
    effects = bench.settles("B2")
    assert is_settled(effects, "ann") and is_settled(effects, "bob")
    assert is_settled(bench.says("bob", Subscribe, "other", "x < 6"), "bob")


def test_settled_waits_while_a_link_is_down() -> None:
    bench = Bench().client("ann").settled_neighbour("B2")
    bench.handle(LinkDown(), "B2")
    effects = bench.says("ann", Subscribe, "s", "x < 5")
    assert not is_settled(effects) and told(effects) == []
    bench.neighbour("B2", session=2)
    assert is_settled(bench.settles("B2"))


def test_settled_of_an_earlier_session_means_nothing() -> None:
    bench = Bench().client("ann").settled_neighbour("B2")
    bench.says("ann", Subscribe, "s", "x < 5")
    late = Settled(seq_of(1, bench.broker.links["B2"].sent_count))
    bench.handle(LinkDown(), "B2")
    bench.neighbour("B2", session=2)
    assert bench.handle(late, "B2") == []
    assert is_settled(bench.settles("B2"))


def test_a_link_that_is_forgotten_is_not_waited_for() -> None:
    bench = Bench().client("ann").settled_neighbour("B2")
    assert not is_settled(bench.says("ann", Subscribe, "s", "x < 5"))
    assert is_settled(bench.handle(LinkDown(forget=True), "B2"))


def test_settled_passes_from_the_far_end_to_the_client() -> None:
    overlay = Overlay(chain(["B1", "B2", "B3"]))
    overlay.client("S@B1")
    client = overlay.network.clients["S@B1"]
    overlay.network.tell("S@B1", client.subscribe("B1", "s", "x < 5"))
    seen = []
    while not client.is_settled("B1", SUBSCRIPTIONS, "s"):
        overlay.network.run(until=overlay.network.now + 0.0005)
        seen = overlay.knows("s")
        assert overlay.network.now < 1.0
    assert seen == ["B1", "B2", "B3"]


def test_a_flush_travels_the_whole_overlay_and_settles() -> None:
    bench = Bench().client("ann").settled_neighbour("B2")
    effects = bench.says("ann", Flush)
    assert told(effects) == ["Flush"] and not is_settled(effects)
    assert is_settled(bench.settles("B2"))


# --- Messages that come twice, late, early or not at all -------------------------------------------------------------


def test_a_message_that_comes_twice_changes_nothing() -> None:
    bench = Bench().client("ann").settled_neighbour("B2")
    message = Subscribe(seq_of(SESSION, 1), "s", "x < 5")
    assert bench.handle(message, "ann")
    assert bench.handle(message, "ann") == []
    bench.counts["ann"] = 1
    bench.says("ann", Unsubscribe, "s")
    assert bench.handle(message, "ann") == []
    assert bench.broker.table_size() == 0


@pytest.mark.parametrize("session", [SESSION - 1, SESSION + 1])
def test_a_message_of_another_session_changes_nothing(session: int) -> None:
    bench = Bench().client("ann")
    assert bench.handle(Subscribe(seq_of(session, 1), "s", "x < 5"), "ann") == []
    assert bench.broker.table_size() == 0


@pytest.mark.parametrize("is_client", [True, False])
def test_a_gap_is_the_peers_fault(is_client: bool) -> None:
    bench = Bench().client("peer")
    if not is_client:
        bench = Bench()
        bench.neighbour("peer")
    bench.counts["peer"] += 2
    reject = rejected(bench.says("peer", Subscribe, "s", "x < 5"))
    assert reject.close and reject.refused.reason == "2 messages are missing before Subscribe"
    assert bench.broker.table_size() == 0 and not bench.broker.links["peer"].is_up


def test_messages_before_hello_are_ignored() -> None:
    bench = Bench()
    bench.handle(LinkUp(1, is_client=True), "ann")
    for message in (Subscribe(1, "s", "TRUE"), Publish("ann:1", {"x": 1}), Settled(1), Digest(1, 1, (0,), (0,))):
        assert bench.handle(message, "ann") == []
    assert bench.broker.table_size() == 0


def test_messages_over_a_link_that_is_down_or_unknown_are_ignored() -> None:
    bench = Bench().client("ann")
    bench.handle(LinkDown(), "ann")
    for link in ("ann", "ghost"):
        for message in (Subscribe(seq_of(SESSION, 1), "s", "TRUE"), Publish("ann:1", {"x": 1}), Settled(1)):
            assert bench.handle(message, link) == []


# --- A link that drops and returns -----------------------------------------------------------------------------------


def synced(effects: Sequence[Effect], link: str = "B2") -> Synced:
    (message,) = [each.message for each in effects if isinstance(each, Send) and isinstance(each.message, Synced)]
    return message


def as_held(wheres: dict[str, str]) -> list[tuple[str, str, float | None]]:
    """By a neighbour, which knows no leases."""
    return [(id, where, None) for id, where in wheres.items()]


def test_equal_digests_need_nothing() -> None:
    bench = Bench().client("ann").settled_neighbour("B2")
    bench.says("ann", Subscribe, "s", "x < 5")
    bench.handle(LinkDown(), "B2")
    answer = synced(bench.neighbour("B2", session=2, hashes=(digest([("B1/ann/s", "x < 5", None)], 1), (0,))))
    assert (answer.subscriptions, answer.advertisements) == ({}, {})


def test_only_the_buckets_that_differ_are_told() -> None:
    bench = Bench(Settings("subscriptions", Policy(None))).client("ann").settled_neighbour("B2")
    held = {f"B1/ann/s{at}": f"x = {at}" for at in range(64)}
    for id, where in held.items():
        bench.says("ann", Subscribe, id.rpartition("/")[2], where)
    bench.handle(LinkDown(), "B2")
    bench.says("ann", Replace, "s7", "x = 77")
    answer = synced(bench.neighbour("B2", session=2, hashes=(digest(as_held(held), 16), (0,) * 16)))
    ((bucket, listed),) = answer.subscriptions.items()
    assert listed["B1/ann/s7"] == ("x = 77", None)
    assert len(listed) < 16 and all(digest([(id, "", None)], 16)[bucket] for id in listed)


def test_what_changed_during_a_cut_is_put_right_at_both_ends() -> None:
    overlay = Overlay(chain(["B1", "B2"]))
    for id, where in (("kept", "x < 10"), ("dropped", "x > 90"), ("replaced", "x = 50")):
        overlay.does("S@B1", "subscribe", id, where)
    wire = overlay.network.wire("B1", "B2")
    overlay.network.cut(wire)
    overlay.does("S@B1", "unsubscribe", "dropped")
    overlay.does("S@B1", "replace", "replaced", "x = 51")
    overlay.does("S@B1", "subscribe", "added", "x = 60")
    assert overlay.publish("P@B2", x=51) == {}
    overlay.network.heal(wire)
    overlay.network.run()
    overlay.check()
    assert set(overlay["B2"].received_from(SUBSCRIPTIONS, "B1")) == {
        f"B1/S@B1/{id}" for id in ("kept", "replaced", "added")
    }
    assert overlay.publish("P@B2", x=51) == {"S@B1": ("replaced",)}


def test_a_digest_that_was_not_asked_for_closes_the_link() -> None:
    bench = Bench().client("ann").settled_neighbour("B2")
    assert rejected(bench.says("B2", Digest, 1, (0,), (0,))).close
    assert rejected(bench.says("ann", Digest, 1, (0,), (0,))).close


@pytest.mark.parametrize("size", [0, -1, 2, 10**15])
def test_a_digest_of_another_size_than_it_says_closes_the_link(size: int) -> None:
    bench = Bench()
    bench.handle(LinkUp(1), "B2")
    bench.handle(Hello("B2", SESSION, SPACE.to_json(), members=("B2",)), "B2")
    bench.counts["B2"] = 0
    reject = rejected(bench.says("B2", Digest, size, (0,), (0,)))
    assert reject.close and reject.refused.reason == f"a digest of 1 buckets that says it has {size}"


# --- Links that come and go ------------------------------------------------------------------------------------------


def test_forgetting_a_link_withdraws_all_that_came_over_it() -> None:
    bench = Bench(Settings()).client("ann").settled_neighbour("B2").settled_neighbour("B3")
    bench.says("B2", Advertise, "B2/p/a", "TRUE")
    bench.says("B3", Advertise, "B3/p/a", "x < 50")
    effects = bench.says("B3", Subscribe, "B3/c/s", "x < 5")
    assert told(effects) == ["Subscribe s: x < 5"]
    effects = bench.handle(LinkDown(forget=True), "B3")
    assert told(effects) == ["Hello", "Unsubscribe s", "Unadvertise a"]
    persist = effects[0]
    assert isinstance(persist, Persist)
    assert persist.records == (
        Drop("subscriptions", "B3", "B3/c/s"),
        Drop("advertisements", "B3", "B3/p/a"),
        Drop("links", "", "B3"),
    )
    assert "B3" not in bench.broker.links


def test_a_link_that_would_close_a_cycle_is_refused() -> None:
    overlay = Overlay(chain(["B1", "B2", "B3"]))
    overlay.network.join("B3", "B1")
    overlay.network.run()
    assert any(
        "is reached by link 'B2' already: link 'B3' would close a cycle" in each for each in overlay.network.hang_ups
    )
    assert list(overlay["B1"].links) == ["B2"] and list(overlay["B3"].links) == ["B2"]
    overlay.does("S@B1", "subscribe", "s", "x < 5")
    assert overlay.publish("P@B3", x=3) == {"S@B1": ("s",)}


def test_three_links_made_at_once_close_no_cycle_and_the_lost_ones_can_be_made_again() -> None:
    """Each broker cuts the younger of its own two links. Together they may cut more than one; to dial again is the
    task of whoever drives them."""
    links = [("B1", "B2"), ("B2", "B3"), ("B3", "B1")]
    overlay = Overlay(links)
    network = overlay.network

    def count() -> int:
        return sum(len(node.broker.links) for node in network.nodes.values()) // 2

    assert count() < 3
    for one, other in links:
        if network.wire(one, other) is None:
            network.join(one, other)
            network.run()
    assert count() == 2
    overlay.does("S@B1", "subscribe", "s", "x < 5")
    assert overlay.publish("P@B3", x=3) == {"S@B1": ("s",)} and overlay.publish("P@B2", x=3) == {"S@B1": ("s",)}


def test_a_link_to_oneself_is_refused() -> None:
    bench = Bench()
    bench.handle(LinkUp(1), "B9")
    reject = rejected(bench.handle(Hello("B9", SESSION, SPACE.to_json(), members=("B9", "B1")), "B9"))
    assert (
        reject.close and reject.refused.reason == "broker 'B1' is reached here already: link 'B9' would close a cycle"
    )


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        (Hello("B2", 7, Space.parse("y int").to_json()), "'B2' is of another space: y int; this broker is of x int"),
        (Hello("B2", 7, SPACE.to_json(), version=3), "'B2' speaks version 3 of the protocol, this broker 2"),
        (Hello("B3", 7, SPACE.to_json()), "link 'B2': 'B3' is another one"),
        (Hello("B2", 7, SPACE.to_json(), is_client=True), "link 'B2': 'B2' is another one"),
        (Hello("B2", 7, "nonsense"), "not a space in JSON"),
    ],
)
def test_a_hello_that_does_not_fit_is_refused_with_a_reason(hello: Hello, reason: str) -> None:
    bench = Bench()
    bench.handle(LinkUp(1), "B2")
    reject = rejected(bench.handle(hello, "B2"))
    assert reject.close and reject.refused.reason.startswith(reason)
    assert not bench.broker.links["B2"].is_met


def test_sessions_of_a_link_only_rise() -> None:
    """The driver counts them: what is wrong with its messages is its own mistake, and no link is cut for it."""
    bench = Bench().client("ann")
    with pytest.raises(CallerError, match="sessions of link 'ann' rise: 1 after 1"):
        bench.handle(LinkUp(1, is_client=True), "ann")
    assert bench.broker.links["ann"].is_met


def test_a_client_that_takes_the_name_of_a_neighbour_does_not_cut_that_link() -> None:
    bench = Bench().settled_neighbour("B2")
    with pytest.raises(CallerError, match="link 'B2' was a broker: forget it first"):
        bench.handle(LinkUp(2, is_client=True), "B2")
    assert bench.broker.links["B2"].is_synced


def test_a_first_session_that_does_not_rise_makes_no_link() -> None:
    bench = Bench()
    with pytest.raises(CallerError, match="sessions of link 'B2' rise: 0 after 0"):
        bench.handle(LinkUp(0), "B2")
    assert not bench.broker.links


@pytest.mark.parametrize("name", ["", "a/b", "a~b", "a:b"])
def test_a_link_to_a_name_that_ids_could_not_hold_is_the_drivers_mistake(name: str) -> None:
    bench = Bench()
    with pytest.raises(CallerError):
        bench.handle(LinkUp(1, is_client=True), name)
    assert not bench.broker.links


# --- A space that grows ----------------------------------------------------------------------------------------------


def test_extending_promotes_what_a_new_value_uncovers() -> None:
    """`kind <> 'x'` was covered by a and b; with a third value it is not."""
    bench = Bench(space=KINDS).client("ann").settled_neighbour("B2")
    bench.says("ann", Subscribe, "both", "kind IN ('a', 'b')")
    assert told(bench.says("ann", Subscribe, "all", "kind <> 'x'")) == []
    effects = bench.handle(Extend(0, MORE_KINDS.to_json()), OPERATOR)
    assert told(effects) == ["Extend", "Subscribe all: kind <> 'x'"]
    assert bench.broker.space == MORE_KINDS


def test_events_carry_a_new_value_only_when_everybody_knows_it() -> None:
    bench = Bench(space=KINDS).client("ann").settled_neighbour("B2")
    bench.says("ann", Subscribe, "all", "TRUE")
    bench.settles("B2")
    bench.handle(Extend(0, MORE_KINDS.to_json()), OPERATOR)
    event = Publish("ann:1", {"kind": "c"})
    assert "is not a value of enum('a', 'b')" in rejected(bench.handle(event, "ann")).refused.reason
    assert told(bench.settles("B2")) == ["Extend"]
    assert bench.handle(event, "ann") == [Deliver("ann", event, ("all",))]


def test_a_new_attribute_is_refused_until_it_is_open() -> None:
    bench = Bench().client("ann").settled_neighbour("B2")
    grown = Space.parse("x int not null 0..100, y int")
    bench.handle(Extend(0, grown.to_json()), OPERATOR)
    reason = rejected(bench.handle(Publish("ann:1", {"x": 1, "y": 2}), "ann")).refused.reason
    assert reason == "attribute 'y' is new, and not known everywhere yet: try again later"
    bench.settles("B2")
    assert bench.handle(Publish("ann:1", {"x": 1, "y": 2}), "ann") == []


def test_a_space_that_grows_spreads_through_the_overlay() -> None:
    overlay = Overlay(chain(["B1", "B2", "B3"]), FLOOD, KINDS)
    overlay.does("S@B3", "subscribe", "both", "kind IN ('a', 'b')")
    overlay.does("T@B3", "subscribe", "all", "kind <> 'x'")
    assert overlay.knows("all") == ["B3"]
    overlay.network.operate("B2", Extend(0, MORE_KINDS.to_json()))
    overlay.network.run()
    overlay.check()
    assert overlay.knows("all") == ["B1", "B2", "B3"]
    assert overlay.publish("P@B1", kind="c") == {"T@B3": ("all",)}


def test_a_neighbour_whose_space_is_ahead_is_accepted_and_brings_it() -> None:
    bench = Bench(space=KINDS).settled_neighbour("B3")
    bench.neighbour("B2", space=MORE_KINDS)
    effects = bench.says("B2", Extend, MORE_KINDS.to_json(), True)
    assert bench.broker.space == bench.broker.open_space == MORE_KINDS
    assert told(effects, "B3") == ["Extend"]
    assert Put("space", "", "grown", MORE_KINDS.to_json()) in effects[0].records


def test_a_client_may_not_extend_the_space() -> None:
    bench = Bench(space=KINDS).client("ann")
    reject = rejected(bench.says("ann", Extend, MORE_KINDS.to_json(), True))
    assert "a client cannot extend the space" in reject.refused.reason and not reject.close
    assert bench.broker.space == KINDS


def test_what_does_not_extend_the_space_is_the_operators_fault() -> None:
    with pytest.raises(CallerError, match="does not extend"):
        Bench(space=MORE_KINDS).handle(Extend(0, Space.parse("kind enum('a', 'z') not null").to_json()), OPERATOR)


def test_an_older_space_is_ignored() -> None:
    bench = Bench(space=MORE_KINDS).settled_neighbour("B2")
    assert [type(each) for each in bench.says("B2", Extend, KINDS.to_json())] == [Send]
    assert bench.broker.space == MORE_KINDS


# --- Leases ----------------------------------------------------------------------------------------------------------


def test_a_lease_ends_at_the_tick_after_it() -> None:
    bench = Bench().client("ann").settled_neighbour("B2")
    bench.says("ann", Subscribe, "s", "x < 5", 10.0)
    bench.now = 9.9
    assert bench.handle(Tick(), OPERATOR) == []
    bench.now = 10.0
    effects = bench.handle(Tick(), OPERATOR)
    assert effects[0] == Persist(4, (Drop("subscriptions", "ann", "B1/ann/s"),)) and told(effects) == ["Unsubscribe s"]
    assert bench.handle(Tick(), OPERATOR) == []


def test_subscribing_again_renews_a_lease_and_tells_nobody() -> None:
    bench = Bench().client("ann").settled_neighbour("B2")
    bench.says("ann", Subscribe, "s", "x < 5", 10.0)
    bench.settles("B2")
    effects = bench.says("ann", Subscribe, "s", "x < 5", 20.0)
    assert sent(effects, "ann") == ["Accepted", "Settled"] and told(effects) == []
    bench.now = 15.0
    assert bench.handle(Tick(), OPERATOR) == []
    bench.says("ann", Subscribe, "s", "x < 5")
    bench.now = 1e9
    assert bench.handle(Tick(), OPERATOR) == []


def test_a_replacement_keeps_the_lease() -> None:
    bench = Bench().client("ann")
    bench.says("ann", Subscribe, "s", "x < 5", 10.0)
    bench.says("ann", Replace, "s", "x < 6")
    bench.now = 10.0
    bench.handle(Tick(), OPERATOR)
    assert bench.broker.table_size() == 0


def test_advertisements_have_leases_too() -> None:
    bench = Bench(Settings()).client("ann").settled_neighbour("B2")
    bench.says("ann", Advertise, "a", "x < 5", 10.0)
    bench.now = 11.0
    assert told(bench.handle(Tick(), OPERATOR)) == ["Unadvertise a"]


def test_a_lease_in_the_past_is_refused() -> None:
    bench = Bench().client("ann")
    bench.now = 100.0
    reject = rejected(bench.says("ann", Subscribe, "s", "x < 5", 97.5))
    assert reject.refused.reason == "the lease of 's', to 97.5, is over at 100.0"
    assert bench.broker.table_size() == 0


def test_a_lease_that_is_no_time_is_refused() -> None:
    bench = Bench().client("ann")
    assert "to nan, is over" in rejected(bench.says("ann", Subscribe, "s", "x < 5", float("nan"))).refused.reason
    assert bench.broker.table_size() == 0


# --- The store -------------------------------------------------------------------------------------------------------


def test_records_come_first_and_are_a_barrier_for_the_rest() -> None:
    bench = Bench().client("ann").settled_neighbour("B2")
    effects = bench.says("ann", Subscribe, "s", "x < 5")
    assert effects == [
        Persist(3, (Put("subscriptions", "ann", "B1/ann/s", "x < 5"),)),
        Send("ann", Accepted(seq_of(SESSION, 1))),
        Send("B2", Subscribe(seq_of(1, 4), "B1/ann/s", "x < 5")),
    ]


def test_a_refused_message_writes_nothing() -> None:
    bench = Bench().client("ann")
    effects = bench.says("ann", Subscribe, "s", "nonsense")
    assert not any(isinstance(effect, Persist) for effect in effects)


def test_persisted_numbers_are_checked() -> None:
    bench = Bench().client("ann")
    bench.says("ann", Subscribe, "s", "x < 5")
    assert bench.handle(Persisted(2), OPERATOR) == [] and bench.broker.persisted == 2
    for number in (1, 3, -1):
        with pytest.raises(CallerError, match="are not between 2 and 2"):
            bench.handle(Persisted(number), OPERATOR)


@policies
def test_a_restored_broker_tells_the_same(policy: Policy) -> None:
    settings = Settings("advertisements", policy)
    bench, records = Bench(settings), []
    inner = bench.handle

    def recording(message: Message, link: str) -> list[Effect]:
        effects = inner(message, link)
        if effects and isinstance(effects[0], Persist):
            records.extend(effects[0].records)
        return effects

    bench.handle = recording  # type: ignore[method-assign]
    bench.client("ann").settled_neighbour("B2")
    bench.says("B2", Advertise, "B2/p/a", "TRUE")
    for id, where in (("wide", "x < 50"), ("gone", "x > 90"), ("narrow", "x < 10"), ("other", "x BETWEEN 40 AND 60")):
        bench.says("ann", Subscribe, id, where, 10.0 if id == "other" else None)
    bench.says("ann", Unsubscribe, "gone")
    bench.says("ann", Replace, "narrow", "x BETWEEN 5 AND 10")
    restored = Bench(broker=Broker.restored("B1", SPACE, records, settings))
    restored.broker.check_invariants()
    for link in ("ann", "B2"):
        for table in (SUBSCRIPTIONS, ADVERTISEMENTS):
            assert restored.broker.received_from(table, link) == bench.broker.received_from(table, link)
            assert restored.broker.outbound(table, link).forwarded() == bench.broker.outbound(table, link).forwarded()
    held = as_held(bench.broker.outbound(SUBSCRIPTIONS, "B2").forwarded())
    answer = synced(restored.neighbour("B2", session=2, hashes=(digest(held, 1), (0,))))
    assert answer.subscriptions == {}
    restored.now = 10.0
    restored.handle(Tick(), OPERATOR)
    assert "B1/ann/other" not in restored.broker.received_from(SUBSCRIPTIONS, "ann")


def test_a_restored_broker_has_the_space_that_had_grown() -> None:
    bench = Bench(space=KINDS).settled_neighbour("B2")
    grown = bench.handle(Extend(0, MORE_KINDS.to_json()), OPERATOR)[0]
    restored = Broker.restored("B1", KINDS, [Put("links", "", "B2", "broker"), *grown.records])
    assert (restored.space, restored.open_space) == (MORE_KINDS, KINDS)
    opened = bench.settles("B2")[0]
    restored = Broker.restored("B1", KINDS, [Put("links", "", "B2", "broker"), *grown.records, *opened.records])
    assert restored.space is restored.open_space and restored.space == MORE_KINDS


def test_extending_again_after_a_restart_still_waits_for_neighbours_that_are_down() -> None:
    records = [Put("links", "", "B2", "broker"), Put("space", "", "grown", MORE_KINDS.to_json())]
    broker = Broker.restored("B1", KINDS, records, FLOOD)
    broker.handle(Extend(0, MORE_KINDS.to_json()), OPERATOR, 0.0)
    assert broker.open_space == KINDS


# --- Policies --------------------------------------------------------------------------------------------------------


def test_each_link_may_have_a_policy_of_its_own() -> None:
    settings = Settings("subscriptions", Policy(), {"B3": Policy(None)})
    bench = Bench(settings).client("ann").settled_neighbour("B2").settled_neighbour("B3")
    bench.says("ann", Subscribe, "wide", "x < 50")
    effects = bench.says("ann", Subscribe, "narrow", "x < 5")
    assert (told(effects, "B2"), told(effects, "B3")) == ([], ["Subscribe narrow: x < 5"])


@pytest.mark.parametrize("graph", ["traditional", "simplified"])
def test_a_relation_graph_as_policy_covers_by_one_and_retracts(graph: str) -> None:
    bench = Bench(Settings("subscriptions", Policy("pairwise", graph=graph))).client("ann").settled_neighbour("B2")
    bench.says("ann", Subscribe, "low", "x < 30")
    bench.says("ann", Subscribe, "high", "x >= 20")
    assert told(bench.says("ann", Subscribe, "inside", "x < 10")) == []
    assert told(bench.says("ann", Subscribe, "union", "x BETWEEN 10 AND 40")) == [
        "Subscribe union: x BETWEEN 10 AND 40"
    ]
    effects = told(bench.says("ann", Subscribe, "wide", "x < 50"))
    assert effects[0] == "Subscribe wide: x < 50" and sorted(effects[1:]) == ["Unsubscribe low", "Unsubscribe union"]
    effects = told(bench.says("ann", Unsubscribe, "wide"))
    assert sorted(effects[:2]) == ["Subscribe low: x < 30", "Subscribe union: x BETWEEN 10 AND 40"]
    assert effects[2:] == ["Unsubscribe wide"]


def test_pairwise_does_not_cover_by_a_union() -> None:
    bench = Bench(Settings("subscriptions", Policy("pairwise"))).client("ann").settled_neighbour("B2")
    bench.says("ann", Subscribe, "low", "x < 20")
    bench.says("ann", Subscribe, "high", "x >= 20")
    assert told(bench.says("ann", Subscribe, "all", "TRUE")) == ["Subscribe all: TRUE"]


def test_checking_stops_for_eight_windows_where_it_does_not_pay() -> None:
    worth = Worth(0.5)
    for covered in (True, False) * (CHECKED // 2):
        assert worth.next()
        worth.saw(covered)
    for _ in range(CHECKED):
        assert worth.next()
        worth.saw(False)
    assert not any(worth.next() for _ in range(8 * CHECKED))
    assert worth.next()


def test_a_link_on_which_checking_does_not_pay_is_told_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thatch.broker.policy.CHECKED", 3)
    bench = Bench(Settings("subscriptions", Policy(covered_share_min=0.5))).client("ann").settled_neighbour("B2")
    for at in range(3):
        bench.says("ann", Subscribe, f"s{at}", f"x BETWEEN {20 * at} AND {20 * at + 10}")
    assert [len(told(bench.says("ann", Subscribe, f"t{at}", "x = 1"))) for at in range(25)] == [1] * 24 + [0]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Policy("nonsense"), "no cover engine 'nonsense'"),
        (lambda: Policy("pairwise", graph="nonsense"), "a relation graph is one of traditional, simplified"),
        (lambda: Policy("exact", graph="simplified"), "a relation graph is of pairwise covering"),
        (lambda: Policy(None, retract=True), "with covering off there is nothing to retract"),
        (lambda: Policy(None, covered_share_min=0.5), "with covering off there is nothing to retract"),
        (lambda: Policy(None, options={"form": "boxes"}), "with covering off there is nothing to retract"),
        (lambda: Policy("exact", options={"nonsense": 1}), "the cover engine 'exact' does not take these options"),
        (lambda: Policy(covered_share_min=1.5), "covered_share_min is a share from 0 to 1, not 1.5"),
        (lambda: Policy(covered_share_min=-0.5), "covered_share_min is a share from 0 to 1, not -0.5"),
        (lambda: Policy(covered_share_min=float("nan")), "covered_share_min is a share from 0 to 1, not nan"),
        (lambda: Settings("nonsense"), "routing is one of advertisements, subscriptions, events, not 'nonsense'"),
        *((partial(Broker, name, SPACE), "a text without '/', '~' and ':', not") for name in ("", "a/b", "a~b", "a:b")),
    ],
)
def test_settings_that_make_no_sense_are_refused(make: Any, reason: str) -> None:
    with pytest.raises(CallerError, match=reason):
        make()


# --- Why -------------------------------------------------------------------------------------------------------------


def test_why_a_subscription_was_told_or_not() -> None:
    bench = Bench(Settings()).client("ann").settled_neighbour("B2").settled_neighbour("B3")
    bench.says("B2", Advertise, "B2/p/a", "x < 50")
    for id, where in (("wide", "x < 20"), ("narrow", "x < 5"), ("apart", "x > 90"), ("never", "x < 0")):
        bench.says("ann", Subscribe, id, where)
    bench.says("B2", Subscribe, "B2/c/s", "x < 9")
    why = partial(why_sent, bench.broker)
    assert why("B1/ann/wide", "B2") == "'B1/ann/wide' was sent to 'B2'"
    covered = "'B1/ann/narrow' was not sent to 'B2': it is covered by what was sent there: 'B1/ann/wide'"
    assert why("B1/ann/narrow", "B2") == covered
    nobody = "no publisher there advertised an event that it wants"
    assert why("B1/ann/apart", "B2") == f"'B1/ann/apart' was not sent to 'B2': {nobody}"
    assert why("B1/ann/wide", "B3") == f"'B1/ann/wide' was not sent to 'B3': {nobody}"
    assert why("B2/c/s", "B2") == "'B2/c/s' was not sent to 'B2': it came from there"
    with pytest.raises(CallerError, match="broker 'B1' knows no subscription 'nonsense'"):
        why("nonsense", "B2")


def test_why_nothing_is_told_where_events_flood_or_nothing_matches() -> None:
    bench = Bench(Settings(routing="events")).client("ann").settled_neighbour("B2")
    bench.says("ann", Subscribe, "s", "x < 5")
    assert why_sent(bench.broker, "B1/ann/s", "B2").endswith("events flood, subscriptions stay where they are")
    assert why_forwarded(bench.broker, {"x": 50}, "B2") == "the event goes to 'B2': events flood"
    bench = Bench().client("ann").settled_neighbour("B2")
    bench.says("ann", Subscribe, "never", "x < 0")
    assert why_sent(bench.broker, "B1/ann/never", "B2").endswith("no event can match it")


def test_why_an_event_goes_somewhere() -> None:
    bench = Bench().client("ann").settled_neighbour("B2")
    bench.says("B2", Subscribe, "B2/c/s", "x < 5")
    bench.says("ann", Subscribe, "t", "x < 9")
    why = partial(why_forwarded, bench.broker)
    assert why({"x": 3}, "B2") == "the event goes to 'B2': it is wanted by 'B2/c/s'"
    assert why({"x": 7}, "B2") == "the event does not go to 'B2': no subscription from there wants it"
    assert why({"x": 7}, "ann") == "the event goes to 'ann': it is wanted by 'B1/ann/t'"


def test_why_of_an_unknown_link_is_the_callers_fault() -> None:
    bench = Bench().client("ann")
    bench.says("ann", Subscribe, "s", "x < 5")
    for link in ("nonsense", "ann"):
        with pytest.raises(CallerError, match=f"broker 'B1' has no neighbour '{link}'"):
            why_sent(bench.broker, "B1/ann/s", link)
    with pytest.raises(CallerError, match="broker 'B1' has no link 'nonsense'"):
        why_forwarded(bench.broker, {"x": 1}, "nonsense")


# --- Hostile input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "where", ["", "nonsense", "(" * 5000, "y = 1", "\0", "x IN (SELECT 1)", "x < 5; DROP", "x = 'a'"]
)
def test_a_bad_clause_of_a_client_is_refused_and_the_link_stays(where: str) -> None:
    bench = Bench().client("ann").settled_neighbour("B2")
    for kind in (Subscribe, Advertise):
        effects = bench.says("ann", kind, "s", where)
        reject = rejected(effects)
        assert reject.refused.id == "s" and not reject.close and told(effects) == []
    assert bench.says("ann", Subscribe, "s", "x < 5")


def test_a_bad_clause_of_a_neighbour_closes_the_link() -> None:
    bench = Bench()
    bench.neighbour("B2")
    assert rejected(bench.says("B2", Subscribe, "B2/c/s", "nonsense")).close


@pytest.mark.parametrize(
    ("kind", "fields", "reason"),
    [
        (Subscribe, ("", "TRUE"), "an id is a text that is not empty"),
        (Replace, ("t", "TRUE"), "no subscription 't' to replace"),
        (Unsubscribe, ("t",), "no subscription 't'"),
        (Unadvertise, ("t",), "no advertisement 't'"),
        (Replace, ("s", "nonsense"), "no attribute 'nonsense'"),
    ],
)
def test_what_a_client_may_not_say_is_refused_and_changes_nothing(kind: Any, fields: Any, reason: str) -> None:
    bench = Bench().client("ann")
    bench.says("ann", Subscribe, "s", "x < 5")
    reject = rejected(bench.says("ann", kind, *fields))
    assert not reject.close and reason in reject.refused.reason
    assert bench.broker.received_from(SUBSCRIPTIONS, "ann") == {"B1/ann/s": "x < 5"}


def test_a_client_cannot_reach_the_subscriptions_of_another() -> None:
    bench = Bench().client("ann").client("bob")
    bench.says("ann", Subscribe, "s", "x < 5")
    for id in ("s", "B1/ann/s", "../ann/s"):
        assert rejected(bench.says("bob", Unsubscribe, id))
    assert bench.broker.table_size() == 1


def test_bad_clauses_in_a_resynchronisation_of_a_client_are_refused_one_by_one() -> None:
    bench = Bench().client("ann")
    listing = {0: {"bad": ("nonsense", None), "": ("TRUE", None), "good": ("x < 5", None), "late": ("TRUE", -1.0)}}
    effects = bench.says("ann", Synced, 1, listing)
    assert [each.refused.id for each in effects if isinstance(each, Reject)] == ["bad", "", "late"]
    assert bench.broker.received_from(SUBSCRIPTIONS, "ann") == {"B1/ann/good": "x < 5"}


@pytest.mark.parametrize("size", [0, -1])
@pytest.mark.parametrize("is_client", [True, False])
def test_a_resynchronisation_of_no_buckets_is_the_peers_fault(is_client: bool, size: int) -> None:
    bench = Bench().client("peer")
    if not is_client:
        bench = Bench()
        bench.neighbour("peer")
    bench.says("peer", Subscribe, "s", "x < 5")
    reject = rejected(bench.says("peer", Synced, size, {0: {}}))
    assert reject.close and reject.refused.reason == f"a listing of {size} buckets"
    assert bench.broker.table_size() == 1


ids = st.sampled_from(["s", "t", "", "B1/ann/s", "B2/c/s", "~~B1/ann/s", "~~B2/c/s", "~B3~B2/c/s", "x" * 5000])
wheres = st.sampled_from(["TRUE", "FALSE", "x < 5", "x > 3", "x IN (1, 5, 9)", "nonsense", "", "x < 'a'"])
leases = st.sampled_from([None, -1.0, 5.0, 1e300, float("inf"), float("nan")])
sizes = st.sampled_from([0, 1, 2, -1, 2**63])
listings = st.dictionaries(
    st.sampled_from([0, 1, 7]), st.dictionaries(ids, st.tuples(wheres, leases), max_size=3), max_size=2
)
hashes = st.lists(st.integers(0, 3), max_size=2).map(tuple)
spaces = st.sampled_from(
    [SPACE.to_json(), KINDS.to_json(), "{}", "", Space.parse("x int not null 0..100, y int").to_json()]
)
seqs = st.sampled_from([-1, 0, 1, seq_of(1, 1), seq_of(1, 3), seq_of(1, 9), seq_of(SESSION, 1), 2**64 - 1])
values = st.sampled_from([1, 5, 101, "1", None, 1.5, True, [1], {}, b"1", 2**70, float("nan")])
numbered = st.one_of(
    st.tuples(st.sampled_from([Subscribe, Advertise]), ids, wheres, leases),
    st.tuples(st.just(Replace), ids, wheres),
    st.tuples(st.sampled_from([Unsubscribe, Unadvertise]), ids),
    st.tuples(st.just(Extend), spaces, st.booleans()),
    st.tuples(st.just(Digest), sizes, hashes, hashes),
    st.tuples(st.just(Synced), sizes, listings, listings),
    st.tuples(st.just(Flush)),
)
others = st.one_of(
    st.builds(
        Publish, st.just("ann:1") | ids, st.dictionaries(st.sampled_from(["x", "X", "y", ""]), values, max_size=3)
    ),
    st.builds(
        Hello, st.sampled_from(["ann", "B2", ""]), st.sampled_from([0, SESSION, SESSION + 1]), spaces, st.booleans()
    ),
    st.builds(Settled, seqs),
    st.builds(Accepted, seqs),
    st.builds(Refused, seqs, ids, ids, ids),
    st.builds(Flush, seqs),
    st.builds(LinkDown, st.booleans()),
    st.builds(LinkUp, st.just(9), st.booleans()),
    st.just(Tick()),
)


@examples(40)
@given(
    st.sampled_from(["advertisements", "subscriptions", "events"]),
    st.lists(st.tuples(st.sampled_from(["ann", "B2"]), numbered | others), max_size=12),
)
def test_nothing_that_a_peer_says_escapes_or_breaks_the_tables(routing: Any, said: list[tuple[str, Any]]) -> None:
    bench = Bench(Settings(routing)).client("ann").settled_neighbour("B2").settled_neighbour("B3")
    bench.says("B3", Subscribe, "B3/c/s", "x < 50")
    for link, message in said:
        is_known = link in bench.broker.links
        if isinstance(message, LinkUp):  # of the driver, who may be mistaken, but must not break anything either
            with suppress(CallerError):
                bench.handle(message, link)
            bench.broker.check_invariants()
        else:
            effects = bench.says(link, *message) if isinstance(message, tuple) else bench.handle(message, link)
            assert is_known or effects == []
        bench.now += 1.0


@pytest.mark.parametrize("count", [10**6, 2**32 - 1])
def test_a_neighbour_that_settles_what_it_was_never_told_is_hung_up_on(count: int) -> None:
    bench = Bench()
    bench.neighbour("B2")
    assert rejected(bench.handle(Settled(seq_of(1, count)), "B2")).close


@pytest.mark.parametrize("seq", [-1, 0, 2**63, 2**64 - 1])
def test_absurd_numbers_are_ignored(seq: int) -> None:
    bench = Bench().client("ann").settled_neighbour("B2")
    for link in ("ann", "B2"):
        assert bench.handle(Settled(seq), link) == []
        assert bench.handle(Flush(seq), link) == []


def test_what_a_broker_does_not_take_closes_the_link() -> None:
    assert rejected(Bench().client("ann").handle(Accepted(1), "ann")).close


@pytest.mark.parametrize("message", [Accepted(1), LinkDown(), LinkDown(forget=True), Tick(), Refused(0, "", "")])
def test_whatever_comes_over_a_link_that_is_gone_is_ignored(message: Message) -> None:
    bench = Bench()
    assert bench.handle(message, "ghost") == [] and not bench.broker.links


@pytest.mark.parametrize(
    "message",
    [
        Subscribe(1, "s", "TRUE"),
        Unadvertise(1, "a"),
        Flush(1),
        Settled(1),
        Accepted(1),
        Hello("", 1, SPACE.to_json()),
        LinkUp(1),
        LinkDown(),
        pytest.param(
            Publish(":1", {"x": 1}),
        ),
    ],
    ids=lambda each: type(each).__name__,
)
def test_an_operator_only_extends_and_tells_the_time_and_what_is_on_disk(message: Message) -> None:
    with pytest.raises(CallerError, match=f"an operator has no {type(message).__name__}: it comes over a link"):
        Bench().handle(message, OPERATOR)


def test_a_hello_within_a_session_that_begins_another_closes_the_link() -> None:
    bench = Bench().client("ann")
    assert rejected(bench.handle(Hello("ann", SESSION + 1, SPACE.to_json(), is_client=True), "ann")).close
    bench = Bench().client("ann")
    assert bench.handle(Hello("ann", SESSION - 1, SPACE.to_json(), is_client=True), "ann") == []


def test_a_client_of_a_wider_space_is_refused_and_of_a_narrower_one_is_not() -> None:
    bench = Bench(space=KINDS)
    bench.handle(LinkUp(1, is_client=True), "ann")
    assert rejected(bench.handle(Hello("ann", SESSION, MORE_KINDS.to_json(), is_client=True), "ann")).close
    bench = Bench(space=MORE_KINDS)
    bench.handle(LinkUp(1, is_client=True), "ann")
    assert sent(bench.handle(Hello("ann", SESSION, KINDS.to_json(), is_client=True), "ann"), "ann") == ["Digest"]


@pytest.mark.parametrize("id", ["bob:1", "1", "", "mallor", "mallory", "mallory2:1", " mallory:1", "B1/mallory:1"])
def test_the_id_of_an_event_is_of_the_client_that_published_it(id: str) -> None:
    """Else it could make the events of another look like copies."""
    bench = Bench().client("ann").client("mallory")
    bench.says("ann", Subscribe, "s", "TRUE")
    reason = f"ids of events of 'mallory' begin with 'mallory:', unlike {id!r}"
    assert bench.handle(Publish(id, {"x": 1}), "mallory") == [Reject("mallory", Refused(0, id, reason))]
    event = Publish("mallory:1:1", {"x": 1})
    assert bench.handle(event, "mallory") == [Deliver("ann", event, ("s",))]


def test_a_refusal_says_of_which_table_it_is() -> None:
    bench = Bench(Settings()).client("ann")
    for kind, table in ((Subscribe, SUBSCRIPTIONS), (Replace, SUBSCRIPTIONS), (Advertise, ADVERTISEMENTS)):
        assert rejected(bench.says("ann", kind, "s", "nonsense")).refused.table == table
    for kind, table in ((Unsubscribe, SUBSCRIPTIONS), (Unadvertise, ADVERTISEMENTS)):
        assert rejected(bench.says("ann", kind, "s")).refused.table == table
    bad = {0: {"s": ("nonsense", None)}}
    effects = bench.says("ann", Synced, 1, bad, bad)
    assert [each.refused.table for each in effects if isinstance(each, Reject)] == [SUBSCRIPTIONS, ADVERTISEMENTS]


def test_what_waits_while_a_link_is_down_does_not_grow_without_end() -> None:
    """However much changed: a link that is not synced owes one number for all of it."""
    bench = Bench().client("ann").settled_neighbour("B2")
    bench.handle(LinkDown(), "B2")
    posted = bench.broker.links["B2"].sent_total
    for _ in range(20):
        assert not is_settled(bench.says("ann", Subscribe, "s", "x < 5"))
        assert not is_settled(bench.says("ann", Unsubscribe, "s"))
        assert not is_settled(bench.says("ann", Flush))
    assert bench.broker.links["B2"].sent_total == posted + 1
    assert len(bench.broker.links["ann"].waiting) == 1
    bench.neighbour("B2", session=2)
    assert bench.settles("B2") == [Send("ann", Settled(seq_of(SESSION, 60)))]
