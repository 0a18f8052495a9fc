"""Overlays without faults, what their brokers forward, and who gets which events."""

from __future__ import annotations

from typing import Any

from thatch import Space
from thatch.broker import Policy, Settings
from thatch.protocol.ids import SUBSCRIPTIONS
from thatch.protocol.messages import Deliver, Subscribe, Unsubscribe
from thatch.sim.network import Observer
from thatch.sim.overlay import Overlay
from thatch.sim.topology import chain

SPACE = Space.parse("x int not null 0..100, y int not null 0..100")
CALM = Policy("pairwise", True, packed=True, theta=0.9)


class Deliveries(Observer):
    """Who got which events."""

    def __init__(self) -> None:
        self.got: list[tuple[str, str, tuple[str, ...], int, int]] = []

    def delivered(self, client: str, broker: str, delivered: Deliver, now: float) -> None:
        event = delivered.event
        self.got.append((event.id, client, delivered.ids, event.distance, event.count))


def overlay(links: list[tuple[str, str]], publishers: list[str], policy: Policy, **settings: Any) -> Overlay:
    names = list(dict.fromkeys(name for link in links for name in link))
    return Overlay(SPACE, links, names, publishers, Settings(policy=policy, **settings), observer=Deliveries())


def forwarded(net: Overlay, sender: str, receiver: str) -> dict[str, str]:
    """By the last part of the id."""
    found = net.network.nodes[sender].broker.outbound(SUBSCRIPTIONS, receiver).forwarded()
    return {id.split("/")[-1]: where for id, where in found.items()}


def published(net: Overlay, *points: tuple[int, int]) -> None:
    for x, y in points:
        net.publish({"x": x, "y": y})
        net.network.run()


def subscribed(net: Overlay, broker: str, **wheres: str) -> None:
    for id, where in wheres.items():
        net.subscribe(id, where, broker=broker)
        net.network.run()


def left(net: Overlay, *ids: str) -> None:
    for id in ids:
        net.unsubscribe(id)
    net.network.run()
    for node in net.network.nodes.values():
        node.broker.check_invariants()


def sent_to(net: Overlay, receiver: str, sender: str) -> list[Any]:
    """The subscriptions and unsubscriptions that a broker is sent from now on."""
    received: list[Any] = []
    broker = net.network.nodes[receiver].broker
    handle = broker.handle

    def noting(message: Any, link: str, now: float) -> Any:
        if link == sender and isinstance(message, Subscribe | Unsubscribe):
            received.append(message)
        return handle(message, link, now)

    broker.handle = noting  # type: ignore[method-assign]
    return received


def wide_on_a_chain(theta: float = 0.9, **settings: Any) -> Overlay:
    """A - B - C - D - E - P: `wide` lives at A, what it holds back at B and A; events of B's hit wide, too."""
    net = overlay(chain("ABCDEP"), ["P"], Policy("pairwise", True, packed=True, theta=theta), **settings)
    subscribed(net, "A", wide="x < 50", a1="x < 10 AND y < 50", a2="x < 10 AND y >= 50")
    subscribed(net, "B", b1="x < 40 AND y < 50", b2="x < 40 AND y >= 50")
    return net
