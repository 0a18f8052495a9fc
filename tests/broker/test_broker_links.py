"""Links: messages that come twice, late or early, links that drop and return, links that come and go."""

from __future__ import annotations

import pytest

from helpers.broker_bench import SESSION, SPACE, Bench, Overlay, as_held, is_settled, rejected, synced, updates
from helpers.peers import neighbour
from thatch import Space
from thatch.broker import Policy, Settings
from thatch.errors import CallerError
from thatch.protocol.digest import digest
from thatch.protocol.ids import SUBSCRIPTIONS
from thatch.protocol.messages import (
    Advertise,
    Digest,
    Hello,
    LinkDown,
    LinkUp,
    Persist,
    Publish,
    Replace,
    Settled,
    Subscribe,
    Synced,
    Unsubscribe,
    seq_of,
)
from thatch.protocol.records import AdvertisementKey, Drop, LinkKey, SubscriptionKey
from thatch.sim.topology import chain

# --- Messages that come twice, late, early or not at all --------------------------------------------------------------


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


@pytest.mark.parametrize(("is_client", "missing"), [(True, 1), (False, 2)])
def test_a_gap_is_the_peers_fault(is_client: bool, missing: int) -> None:
    bench = Bench().client("peer")
    if not is_client:
        bench = Bench()
        bench.neighbour("peer")
    bench.counts["peer"] += missing
    reject = rejected(bench.says("peer", Subscribe, "s", "x < 5"))
    assert reject.close and reject.refused.reason == f"{missing} messages are missing before Subscribe"
    assert bench.broker.table_size() == 0 and not bench.broker.links["peer"].is_up


@pytest.mark.parametrize("session", [SESSION - 1, SESSION, SESSION + 1])
def test_a_new_connection_forgets_the_session_before(session: int) -> None:
    """Sessions of a peer are compared within one connection only: its clock may have been set back."""
    bench = Bench().client("ann")
    bench.says("ann", Subscribe, "s", "x < 5")
    bench.handle(LinkUp(2, is_client=True), "ann")
    bench.handle(Hello("ann", session, SPACE.to_json(), is_client=True), "ann")
    assert bench.broker.links["ann"].is_met
    assert is_settled(bench.handle(Synced(seq_of(session, 1), 1, {0: {}}, {0: {}}), "ann"))
    assert bench.broker.table_size() == 0


def test_what_waits_for_a_link_settles_with_its_resynchronisation_and_not_before() -> None:
    """What the neighbour settles of the messages before `Synced`, its digest and the space, says nothing about it."""
    bench = Bench().client("ann")
    bench.settled_neighbour("B2")
    bench.handle(LinkDown(), "B2")
    assert not is_settled(bench.says("ann", Subscribe, "s", "x < 5"))
    bench.neighbour("B2", session=2)
    link = bench.broker.links["B2"]
    for count in range(1, link.sent_count):
        assert not is_settled(bench.handle(Settled(seq_of(link.session, count)), "B2"))
    assert is_settled(bench.handle(Settled(seq_of(link.session, link.sent_count)), "B2"))


def test_a_greeting_from_before_a_cut_is_ignored() -> None:
    bench = Bench()
    bench.neighbour("B2", session=2)
    held = bench.broker.links["B2"].members
    late = Hello("B2", SESSION - 1, SPACE.to_json(), members=("B2", "B7"), durable=True)
    assert bench.handle(late, "B2") == []
    assert bench.broker.links["B2"].members == held and not bench.broker.links["B2"].is_durable


def test_a_neighbour_settles_nothing_that_it_was_not_sent() -> None:
    bench = Bench()
    bench.neighbour("B2")
    link = bench.broker.links["B2"]
    reject = rejected(bench.handle(Settled(seq_of(link.session, link.sent_count + 1)), "B2"))
    assert reject.close and reject.refused.reason == "'B2' says that message 4 has settled, of 3 sent"


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


# --- A link that drops and returns ------------------------------------------------------------------------------------


def test_equal_digests_need_nothing() -> None:
    bench = Bench().client("ann").settled_neighbour("B2")
    bench.says("ann", Subscribe, "s", "x < 5")
    bench.handle(LinkDown(), "B2")
    answer = synced(bench.neighbour("B2", session=2, hashes=(digest([("B1/ann/s", "x < 5", None)], 1).hashes, (0,))))
    assert (answer.subscriptions, answer.advertisements) == ({}, {})


def test_only_the_buckets_that_differ_are_sent() -> None:
    bench = Bench(Settings("subscriptions", Policy(None))).client("ann").settled_neighbour("B2")
    held = {f"B1/ann/s{at}": f"x = {at}" for at in range(64)}
    for id, where in held.items():
        bench.says("ann", Subscribe, id.rpartition("/")[2], where)
    bench.handle(LinkDown(), "B2")
    bench.says("ann", Replace, "s7", "x = 77")
    answer = synced(bench.neighbour("B2", session=2, hashes=(digest(as_held(held), 16).hashes, (0,) * 16)))
    ((bucket, listed),) = answer.subscriptions.items()
    assert listed["B1/ann/s7"] == ("x = 77", None)
    assert len(listed) < 16 and all(digest([(id, "", None)], 16).hashes[bucket] for id in listed)


def test_what_changed_during_a_cut_is_put_right_at_both_ends() -> None:
    overlay = Overlay(chain(["B1", "B2"]))
    for id, where in (("kept", "x < 10"), ("dropped", "x > 90"), ("replaced", "x = 50")):
        overlay.does("S@B1", "subscribe", id, where)
    wire = overlay.network.wire("B1", "B2")
    assert wire is not None
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
    assert reject.close and reject.refused.reason == f"a digest says that it has {size} buckets, and has 1"


# --- Links that come and go -------------------------------------------------------------------------------------------


def test_forgetting_a_link_withdraws_all_that_came_over_it() -> None:
    bench = Bench(Settings()).client("ann").settled_neighbour("B2").settled_neighbour("B3")
    bench.says("B2", Advertise, "B2/p/a", "TRUE")
    bench.says("B3", Advertise, "B3/p/a", "x < 50")
    effects = bench.says("B3", Subscribe, "B3/c/s", "x < 5")
    assert updates(effects) == ["Subscribe s: x < 5"]
    effects = bench.handle(LinkDown(forget=True), "B3")
    assert updates(effects) == ["Hello", "Unsubscribe s", "Unadvertise a"]
    persist = effects[0]
    assert isinstance(persist, Persist)
    assert persist.records == (
        Drop(SubscriptionKey(neighbour("B3"), "B3/c/s")),
        Drop(AdvertisementKey(neighbour("B3"), "B3/p/a")),
        Drop(LinkKey(neighbour("B3"))),
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
        (Hello("B2", 7, Space.parse("y int").to_json()), "'B2' uses another space: y int; this broker uses x int"),
        (Hello("B2", 7, SPACE.to_json(), version=1), "'B2' speaks version 1 of the protocol, this side 2 to 5"),
        (
            Hello("B2", 7, SPACE.to_json(), version=6, version_max=9),
            "'B2' speaks versions 6 to 9 of the protocol, this side 2 to 5",
        ),
        (Hello("B3", 7, SPACE.to_json()), "link 'B2': the peer calls itself 'B3'"),
        (
            Hello("B2", 7, SPACE.to_json(), is_client=True),
            "link 'B2': the peer says that it is a client, and not a broker",
        ),
        (Hello("B2", 7, "nonsense"), "not a space in JSON"),
    ],
)
def test_a_hello_that_does_not_fit_is_refused_with_a_reason(hello: Hello, reason: str) -> None:
    bench = Bench()
    bench.handle(LinkUp(1), "B2")
    reject = rejected(bench.handle(hello, "B2"))
    assert reject.close and reject.refused.reason.startswith(reason)
    assert not bench.broker.links["B2"].is_met


def test_a_client_that_greets_as_a_broker_is_refused() -> None:
    bench = Bench()
    bench.handle(LinkUp(1, is_client=True), "ann")
    reject = rejected(bench.handle(Hello("ann", SESSION, SPACE.to_json(), members=("ann",)), "ann"))
    assert reject.close
    assert reject.refused.reason == "link 'ann': the peer says that it is a broker, and not a client"


def test_sessions_of_a_link_only_rise() -> None:
    """The driver counts them: what is wrong with its messages is its own mistake, and no link is cut for it."""
    bench = Bench().client("ann")
    with pytest.raises(CallerError, match="the session numbers of link 'ann' must rise: 1 came after 1"):
        bench.handle(LinkUp(1, is_client=True), "ann")
    assert bench.broker.links["ann"].is_met


def test_a_client_that_takes_the_name_of_a_neighbour_does_not_cut_that_link() -> None:
    bench = Bench().settled_neighbour("B2")
    with pytest.raises(CallerError, match="link 'B2' was a neighbour: forget it first"):
        bench.handle(LinkUp(2, is_client=True), "B2")
    assert bench.broker.links["B2"].is_synced


def test_a_first_session_that_does_not_rise_makes_no_link() -> None:
    bench = Bench()
    with pytest.raises(CallerError, match="the session numbers of link 'B2' must rise: 0 came after 0"):
        bench.handle(LinkUp(0), "B2")
    assert not bench.broker.links


@pytest.mark.parametrize("name", ["", "a/b", "a~b", "a:b"])
def test_a_link_to_a_name_that_ids_could_not_hold_is_the_drivers_mistake(name: str) -> None:
    bench = Bench()
    with pytest.raises(CallerError):
        bench.handle(LinkUp(1, is_client=True), name)
    assert not bench.broker.links
