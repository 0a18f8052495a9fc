"""A neighbour is lost for good, and others come in its place."""

from __future__ import annotations

import pytest

from helpers.broker_bench import SESSION, Bench, is_settled, synced, updates
from helpers.peers import neighbour
from thatch.errors import CallerError
from thatch.protocol.messages import (
    OPERATOR,
    Attached,
    Effect,
    Hello,
    LinkDown,
    LinkUp,
    Persist,
    Reject,
    Send,
    Subscribe,
    Synced,
)
from thatch.protocol.records import LinkRecord


def greets(bench: Bench, name: str, *members: str) -> list[Effect]:
    """A neighbour, with these brokers behind the link."""
    bench.counts[name] = 0
    if not (name in bench.broker.links and bench.broker.links[name].is_up):
        bench.handle(LinkUp(1), name)
    return bench.handle(Hello(name, SESSION, bench.broker.space.to_json(), members=members), name)


def test_those_behind_a_lost_neighbour_may_come_in_its_place() -> None:
    bench = Bench().settled_neighbour("B7")
    greets(bench, "B2", "B2", "B3", "B4", "B5")
    bench.handle(LinkDown(), "B2")
    effects = bench.handle(Attached("B3", "B2"), OPERATOR)
    (announced,) = [each.message for each in effects if isinstance(each, Send) and each.link == "B7"]
    assert isinstance(announced, Hello) and announced.members == ("B1",), "nobody is known behind it any more"
    assert LinkRecord(neighbour("B3")) in next(each.records for each in effects if isinstance(each, Persist))
    greets(bench, "B3", "B3", "B5")
    assert bench.broker.links["B3"].is_met
    bench.handle(Attached("B4", "B2"), OPERATOR)
    (reject,) = [each for each in greets(bench, "B4", "B4", "B5") if isinstance(each, Reject)]
    assert reject.refused.code == "cycle", "B5 came with B3"


def test_one_in_the_place_of_a_lost_neighbour_does_not_wait_for_it() -> None:
    """The other end has lost the same one: each would wait for the other's."""
    bench = Bench().client("ann").settled_neighbour("B2").settled_neighbour("B3")
    bench.handle(LinkDown(), "B2")
    bench.handle(Attached("B3", "B2"), OPERATOR)
    assert is_settled(bench.says("B3", Subscribe, "B3/bob/s", "x < 5"), "B3")
    assert not is_settled(bench.says("ann", Subscribe, "s", "x < 5"), "ann"), "a client does"
    bench.handle(Attached("B3", ""), OPERATOR)
    assert not is_settled(bench.says("B3", Subscribe, "B3/bob/t", "x < 6"), "B3"), "nor does it when that is over"


def test_a_client_is_not_attached() -> None:
    bench = Bench().client("ann").settled_neighbour("B2")
    with pytest.raises(CallerError, match="is the name of a client"):
        bench.handle(Attached("ann", "B2"), OPERATOR)
    bench.handle(Attached("B3", "ann"), OPERATOR)
    assert bench.broker.links["ann"].is_met


def test_what_came_from_the_lost_one_is_not_said_to_those_in_its_place() -> None:
    """They know it from there. An advertisement of their own side, heard again, would cover those of others, and the
    side that it came from takes it for an echo: when the lost one is forgotten, nothing is left of it there."""
    bench = Bench().settled_neighbour("B2").settled_neighbour("B7")
    bench.says("B2", Subscribe, "B2/bob/s", "x < 5")
    bench.handle(LinkDown(), "B2")
    bench.handle(Attached("B3", "B2"), OPERATOR)
    assert synced(bench.neighbour("B3"), "B3").subscriptions == {}
    effects = bench.says("B7", Subscribe, "B7/bob/t", "x < 3")
    assert updates(effects, "B3") == ["Subscribe t: x < 3"], "what it covers is said"
    assert updates(bench.handle(Attached("B3", ""), OPERATOR), "B3")[-1:] == ["Subscribe s: x < 5"]
    bench.handle(Attached("B3", "B2"), OPERATOR)
    bench.handle(LinkDown(forget=True), "B2")
    bench.handle(Attached("B3", ""), OPERATOR)
    assert list(bench.broker.outbound("subscriptions", "B3").forwarded()) == ["B7/bob/t"]


def test_a_link_that_is_synced_and_has_not_heard_what_the_neighbour_lists_does_not_know_all() -> None:
    """To forget the lost one then would end what is advertised behind the one in its place, before it says so."""
    bench = Bench()
    bench.neighbour("B2")
    bench.settles("B2")
    link = bench.broker.links["B2"]
    assert link.is_synced and link.has_settled and not link.knows_all
    bench.says("B2", Synced, 1, {}, {})
    assert link.knows_all
