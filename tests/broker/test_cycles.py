"""A link that would close a cycle: it goes without a trace if nothing ever came over it, and stays down otherwise."""

from __future__ import annotations

import pytest

from helpers.broker_bench import FLOOD, NOTHING, SESSION, SPACE, Bench, is_settled, rejected, sent, synced
from thatch.broker import Broker, Settings
from thatch.broker.forwarding import Forwarding
from thatch.broker.outbound import OutboundTable
from thatch.protocol.messages import (
    Digest,
    Effect,
    Hello,
    LinkDown,
    LinkUp,
    Persist,
    Publish,
    Refused,
    Send,
    Subscribe,
    Synced,
)
from thatch.protocol.records import RecordChange
from thatch.sim.network import Network

CYCLE = Refused(0, "", "broker 'B9' is reached by link 'B8' already: link 'B1' would close a cycle", code="cycle")


def greeted(bench: Bench, name: str, session: int, *members: str) -> list[Effect]:
    bench.counts[name] = 0
    bench.handle(LinkUp(session), name)
    return bench.handle(Hello(name, SESSION, SPACE.to_json(), members=(name, *members)), name)


def records(effects: list[Effect]) -> list[RecordChange]:
    return [record for each in effects if isinstance(each, Persist) for record in each.records]


def with_interest() -> Bench:
    """B1 with ann, and with B2 that wants `x < 5` and is down."""
    bench = Bench(Settings("subscriptions", holds_events=True)).client("ann")
    bench.neighbour("B2")
    bench.says("B2", Synced, 1, {0: {"B2/bob/s": ("x < 5", None)}}, {0: {}})
    bench.settles("B2")
    bench.handle(LinkDown(), "B2")
    return bench


def test_hole_43_a_link_that_the_other_side_refuses_for_a_cycle_counts_for_nothing_and_leaves_no_record() -> None:
    bench = Bench().client("ann")
    found = greeted(bench, "B2", 1)
    assert "Digest" in sent(found, "B2")
    assert not is_settled(bench.says("ann", Subscribe, "s", "x < 5"))  # it may have to know
    found += bench.handle(CYCLE, "B2")
    assert is_settled(found) and "B2" not in bench.broker.links
    assert is_settled(bench.says("ann", Subscribe, "t", "x > 5"))
    assert records(found) == []


def test_a_new_link_counts_for_settling_while_it_is_connected() -> None:
    bench = Bench().client("ann")
    bench.handle(LinkUp(1), "B2")
    assert not is_settled(bench.says("ann", Subscribe, "s", "x < 5"))
    assert is_settled(bench.handle(LinkDown(), "B2"))
    assert is_settled(bench.says("ann", Subscribe, "t", "x > 5"))
    assert not is_settled(bench.handle(LinkUp(2), "B2"))
    assert not is_settled(bench.says("ann", Subscribe, "u", "x = 5"))
    assert synced(bench.neighbour("B2", session=3)).subscriptions[0].keys() == {f"B1/ann/{id}" for id in "stu"}
    assert is_settled(bench.settles("B2"))


def test_hole_49_a_try_that_is_refused_scans_nothing_and_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench().client("ann")
    for at in range(5):
        bench.says("ann", Subscribe, f"s{at}", f"x = {at}")
    bench.settled_neighbour("B2")
    for owner, name in ((OutboundTable, "offer"), (Forwarding, "_offer_subscription"), (Forwarding, "drop")):
        monkeypatch.setattr(owner, name, lambda *arguments: pytest.fail("looked at subscriptions"))
    for session in range(2, 5):
        found = greeted(bench, "B3", session, "B2")
        assert rejected(found).refused.code == "cycle" and records(found) == []
        assert "B3" not in bench.broker.links


def test_t2_10_a_link_with_interest_stays_down_with_all_that_is_kept_for_it() -> None:
    bench = with_interest()
    assert rejected(greeted(bench, "B2", 2, "B1")).close
    link = bench.broker.links["B2"]
    assert not link.is_up and link.admission.cycle.endswith("link 'B2' would close a cycle")
    assert [each.link for each in bench.handle(Publish("ann:1", {"x": 3}), "ann") if isinstance(each, Send)] == ["B2"]
    assert not is_settled(bench.says("ann", Subscribe, "s", "x > 50"))
    assert not is_settled(bench.handle(Refused(0, "", "no", code="cycle"), "B2"))
    synced(bench.neighbour("B2", session=3, hashes=NOTHING))
    assert not link.admission.cycle and is_settled(bench.settles("B2"))  # it closes none any more


def test_t2_10_an_operator_has_it_forgotten() -> None:
    bench = with_interest()
    greeted(bench, "B2", 2, "B1")
    bench.says("ann", Subscribe, "s", "x > 50")
    found = bench.handle(LinkDown(forget=True), "B2")
    assert is_settled(found) and "B2" not in bench.broker.links and len(records(found)) == 2


def test_what_lies_behind_a_refused_link_may_come_by_another_one() -> None:
    bench = with_interest()
    bench.neighbour("B2", session=2)
    bench.handle(Hello("B2", SESSION, SPACE.to_json(), members=("B2", "B7")), "B2")
    bench.handle(CYCLE, "B2")
    assert not bench.broker.links["B2"].is_up
    greeted(bench, "B3", 1, "B7")
    assert bench.broker.links["B3"].is_met
    (greeting,) = [each.message for each in bench.handle(LinkUp(1), "B4") if isinstance(each, Send)]
    assert isinstance(greeting, Hello) and greeting.members == ("B1",)


def test_a_cycle_that_shows_after_the_greeting_is_found_before_anything_is_compared() -> None:
    bench = Bench()
    greeted(bench, "B2", 1, "B7")
    greeted(bench, "B3", 1, "B7")
    bench.says("B2", Digest, 1, *NOTHING)
    assert rejected(bench.says("B3", Digest, 1, *NOTHING)).link == "B3"
    assert list(bench.broker.links) == ["B2"]


def test_a_refused_link_is_there_after_a_restart() -> None:
    network = Network(SPACE)
    for name in ("B1", "B2"):
        network.add_broker(name, FLOOD)
    network.join("B1", "B2")
    network.add_client("ann")
    network.join("B2", "ann")
    network.run()
    network.tell("ann", network.clients["ann"].subscribe("B2", "s", "x < 5"))
    network.run()
    wire = network.wire("B1", "B2")
    assert wire is not None
    one: Broker = network.nodes["B1"].broker
    one.handle(CYCLE, "B2", 1.0)
    network.cut(wire)
    network.run()
    network.crash("B1", keep_store=True)
    network.restart("B1")
    network.run()
    assert network.nodes["B1"].broker.received_from("subscriptions", "B2") == {"B2/ann/s": "x < 5"}
