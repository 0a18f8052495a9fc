"""Settings on which neighbours must agree are compared at the greeting, and refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.broker_bench import FLOOD, SESSION, SPACE, Bench, rejected
from thatch.broker import Broker, Settings
from thatch.protocol.messages import Hello, LinkUp, Reject, Send
from thatch.protocol.versions import ROUTING


def greeted(capabilities: dict[str, Any], is_client: bool = False) -> list[Any]:
    """What a broker that floods subscriptions answers to a greeting."""
    bench = Bench(FLOOD)
    bench.handle(LinkUp(1, is_client), "B2")
    members = () if is_client else ("B2",)
    hello = Hello("B2", SESSION, SPACE.to_json(), is_client, members=members, capabilities=capabilities)
    return bench.handle(hello, "B2")


def test_a_neighbour_that_routes_otherwise_is_refused_by_name() -> None:
    """Hole 12: between two such brokers everything settled, and nothing arrived."""
    reject = rejected(greeted({ROUTING: "events"}))
    assert reject.close and reject.refused.code == "routing"
    assert reject.refused.reason == (
        "'B2' routes by 'events', this broker by 'subscriptions': set the same routing at both"
    )


def test_two_brokers_that_route_differently_refuse_one_another() -> None:
    one = Broker("B1", SPACE, Settings(routing="events"))
    other = Broker("B2", SPACE, Settings(routing="advertisements"))
    first, second = _hello(one.handle(LinkUp(1), "B2", 0.0)), _hello(other.handle(LinkUp(1), "B1", 0.0))
    assert rejected(one.handle(second, "B2", 0.0)).refused.code == "routing" and not one.links["B2"].is_up
    assert rejected(other.handle(first, "B1", 0.0)).refused.code == "routing" and not other.links["B1"].is_up


@pytest.mark.parametrize("capabilities", [{}, {ROUTING: "subscriptions"}], ids=["an old one", "the same"])
def test_a_neighbour_that_routes_the_same_or_does_not_say_comes_in(capabilities: dict[str, Any]) -> None:
    assert not any(isinstance(each, Reject) for each in greeted(capabilities))


def test_a_client_is_not_asked_how_it_routes() -> None:
    effects = greeted({ROUTING: "events"}, is_client=True)
    assert not any(isinstance(each, Reject) for each in effects)
    assert ROUTING not in _hello(Bench(FLOOD).handle(LinkUp(1, is_client=True), "ann")).capabilities


def _hello(effects: list[Any]) -> Hello:
    (hello,) = [each.message for each in effects if isinstance(each, Send) and isinstance(each.message, Hello)]
    return hello
