"""What a broker forwards to a neighbour, and when a subscription has settled."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest

from helpers.broker_bench import SESSION, SPACE, Bench, Overlay, is_settled, sent, updates
from thatch.broker import Broker, Policy, Settings
from thatch.protocol.ids import ADVERTISEMENTS, SUBSCRIPTIONS
from thatch.protocol.messages import (
    Advertise,
    Flush,
    LinkDown,
    Replace,
    Send,
    Settled,
    Subscribe,
    Synced,
    Unadvertise,
    Unsubscribe,
    seq_of,
)
from thatch.sim.topology import chain
from thatch.where.lexer import LITERALS_MAX

# --- Covering: what a neighbour is sent -------------------------------------------------------------------------------


def test_lazy_covering_holds_back_what_is_covered() -> None:
    bench = Bench().client("ann").settled_neighbour("B2")
    assert updates(bench.says("ann", Subscribe, "low", "x < 20")) == ["Subscribe low: x < 20"]
    assert updates(bench.says("ann", Subscribe, "high", "x >= 20")) == ["Subscribe high: x >= 20"]
    assert updates(bench.says("ann", Subscribe, "both", "x BETWEEN 10 AND 30")) == []
    assert updates(bench.says("ann", Subscribe, "all", "TRUE")) == []


def test_retracting_takes_back_the_narrower_ones_after_the_wider_one_is_sent() -> None:
    bench = Bench(Settings("subscriptions", Policy(retract=True))).client("ann").settled_neighbour("B2")
    bench.says("ann", Subscribe, "one", "x < 20")
    bench.says("ann", Subscribe, "two", "x > 80")
    effects = bench.says("ann", Subscribe, "wide", "x < 50")
    assert updates(effects) == ["Subscribe wide: x < 50", "Unsubscribe one"]


@pytest.mark.parametrize("retract", [False, True])
def test_an_unsubscription_promotes_only_what_is_uncovered_and_before_it_withdraws(retract: bool) -> None:
    bench = Bench(Settings("subscriptions", Policy(retract=retract))).client("ann").settled_neighbour("B2")
    bench.says("ann", Subscribe, "wide", "x < 50")
    bench.says("ann", Subscribe, "other", "x BETWEEN 40 AND 90")
    bench.says("ann", Subscribe, "uncovered", "x < 10")
    bench.says("ann", Subscribe, "covered", "x BETWEEN 41 AND 49")
    bench.says("ann", Subscribe, "nested", "x < 5")
    assert updates(bench.says("ann", Unsubscribe, "wide")) == ["Subscribe uncovered: x < 10", "Unsubscribe wide"]


def test_covering_off_forwards_everything() -> None:
    bench = Bench(Settings("subscriptions", Policy(None))).client("ann").settled_neighbour("B2")
    bench.says("ann", Subscribe, "wide", "x < 50")
    assert updates(bench.says("ann", Subscribe, "narrow", "x < 5")) == ["Subscribe narrow: x < 5"]
    assert updates(bench.says("ann", Unsubscribe, "wide")) == ["Unsubscribe wide"]


def test_a_replacement_that_shrinks_sends_those_that_it_covered_before_itself() -> None:
    bench = Bench().client("ann").settled_neighbour("B2")
    bench.says("ann", Subscribe, "wide", "x < 50")
    bench.says("ann", Subscribe, "narrow", "x BETWEEN 20 AND 30")
    effects = bench.says("ann", Replace, "wide", "x < 10")
    assert updates(effects) == ["Subscribe narrow: x BETWEEN 20 AND 30", "Replace wide: x < 10"]


def test_a_replacement_that_grows_is_one_message() -> None:
    bench = Bench().client("ann").settled_neighbour("B2")
    bench.says("ann", Subscribe, "s", "x < 50")
    assert updates(bench.says("ann", Replace, "s", "x < 60")) == ["Replace s: x < 60"]
    assert updates(bench.says("ann", Subscribe, "s", "x < 70")) == ["Replace s: x < 70"]
    assert updates(bench.says("ann", Subscribe, "s", "x < 70")) == []


def test_only_the_net_change_of_a_message_is_sent() -> None:
    """The resynchronisation of a client drops the wide one, for which the narrow ones would be promoted, and brings
    another wide one, which covers them."""
    bench = Bench(Settings("subscriptions", Policy(retract=True))).client("ann").settled_neighbour("B2")
    bench.says("ann", Subscribe, "wide", "x < 50")
    bench.says("ann", Subscribe, "narrow", "x < 10")
    effects = bench.says("ann", Synced, 1, {0: {"other": ("x < 60", None), "narrow": ("x < 10", None)}})
    assert updates(effects) == ["Subscribe other: x < 60", "Unsubscribe wide"]
    effects = bench.says("ann", Synced, 1, {0: {"wide": ("x < 50", None), "narrow": ("x < 10", None)}})
    assert updates(effects) == ["Subscribe wide: x < 50", "Unsubscribe other"]


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
    assert updates(effects) == [
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
    assert updates(effects) == ["Subscribe mid: x = 50", "Replace low: x > 80"]


@pytest.mark.long
def test_several_replacements_of_long_clauses_can_be_read_by_the_neighbour() -> None:
    bench = Bench().client("ann").settled_neighbour("B2")

    def clause(first: int) -> str:
        values = [*range(first, 100, 4)] * (LITERALS_MAX // 49)  # one clause can be read, two in one cannot
        return " OR ".join(f"x = {at}" for at in values)

    for id, first in (("one", 0), ("two", 1)):
        bench.says("ann", Subscribe, id, clause(first))
    effects = bench.says("ann", Synced, 1, {0: {"one": (clause(2), None), "two": (clause(3), None)}})
    wheres = [each.message.where for each in effects if isinstance(each, Send) and hasattr(each.message, "where")]
    assert wheres == [clause(at) for at in (0, 1, 2, 3)]
    for where in wheres:
        bench.broker.space.where(where)


def test_an_id_that_comes_over_two_links_with_other_clauses_is_forwarded_twice() -> None:
    """A part of the overlay has moved, and one side does not know that a subscription was replaced."""
    bench = Bench(Settings("subscriptions", Policy(None)))
    for name in ("B2", "B3", "B4"):
        bench.settled_neighbour(name)
    assert updates(bench.says("B3", Subscribe, "B9/c/s", "x < 5")) == ["Subscribe s: x < 5"]
    assert updates(bench.says("B4", Subscribe, "B9/c/s", "x < 5")) == []
    assert updates(bench.says("B4", Replace, "B9/c/s", "x > 90")) == ["Subscribe ~B4~s: x > 90"]
    assert bench.broker.outbound(SUBSCRIPTIONS, "B3").forwarded() == {"B9/c/s": "x > 90"}
    assert bench.broker.outbound(SUBSCRIPTIONS, "B4").forwarded() == {"B9/c/s": "x < 5"}
    assert updates(bench.says("B3", Unsubscribe, "B9/c/s")) == ["Replace s: x > 90", "Unsubscribe ~B4~s"]
    assert updates(bench.says("B4", Unsubscribe, "B9/c/s")) == ["Unsubscribe s"]


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
    assert updates(bench.says("ann", Advertise, "wide", "x < 50")) == ["Advertise wide: x < 50"]
    assert updates(bench.says("ann", Advertise, "narrow", "x < 10")) == []
    assert updates(bench.says("ann", Unadvertise, "wide")) == ["Advertise narrow: x < 10", "Unadvertise wide"]


def test_an_advertisement_that_shrinks_is_sent_after_those_that_it_covered() -> None:
    bench = Bench(Settings()).client("ann").settled_neighbour("B2")
    bench.says("ann", Advertise, "wide", "x < 50")
    bench.says("ann", Advertise, "narrow", "x < 10")
    effects = bench.says("ann", Advertise, "wide", "x BETWEEN 20 AND 50")
    assert updates(effects) == ["Advertise narrow: x < 10", "Advertise wide: x BETWEEN 20 AND 50"]


def test_a_settled_subscription_survives_an_advertisement_that_shrinks_along_with_another() -> None:
    """What Q advertises was held back, covered by P, who shrinks it; Q changes nothing and must get through."""
    overlay = Overlay(chain(["B1", "B2"]), Settings())
    overlay.does("P@B1", "advertise", "wide", "x < 50")
    overlay.does("Q@B1", "advertise", "narrow", "x < 10")
    overlay.does("S@B2", "subscribe", "s", "x < 5")
    assert overlay.publish("Q@B1", x=3) == {"S@B2": ("s",)}
    network = overlay.network
    wire = network.wire("B1", "B2")
    assert wire is not None
    wire.bandwidth = 1000.0  # so that what is sent at once does not arrive at once
    network.tell("P@B1", network.clients["P@B1"].advertise("B1", "wide", "x BETWEEN 20 AND 50"))
    for at in range(60):
        publish = partial(network.clients["Q@B1"].publish, "B1", {"x": 3})
        network.at(network.now + at * 0.01, lambda publish=publish: network.tell("Q@B1", publish()))
    network.run()
    assert len(overlay.events) == 61


# --- Accepted and settled ---------------------------------------------------------------------------------------------


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
    assert updates(effects) == [] and sent(effects, "bob") == ["Accepted"]
    effects = bench.settles("B2")
    assert is_settled(effects, "ann") and is_settled(effects, "bob")
    assert is_settled(bench.says("bob", Subscribe, "other", "x < 6"), "bob")


def test_settled_waits_while_a_link_is_down() -> None:
    bench = Bench().client("ann").settled_neighbour("B2")
    bench.handle(LinkDown(), "B2")
    effects = bench.says("ann", Subscribe, "s", "x < 5")
    assert not is_settled(effects) and updates(effects) == []
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
    assert updates(effects) == ["Flush"] and not is_settled(effects)
    assert is_settled(bench.settles("B2"))
