"""One broker among peers that say what a test wants, and a few brokers wired by the simulator's network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from thatch import Space
from thatch.broker import Broker, Policy, Settings
from thatch.protocol.ids import ADVERTISEMENTS, SUBSCRIPTIONS, without_alias
from thatch.protocol.messages import (
    Deliver,
    Digest,
    Effect,
    Hello,
    LinkUp,
    Message,
    Reject,
    Send,
    Settled,
    Synced,
    seq_of,
)
from thatch.sim.network import Network, Observer
from thatch.sim.topology import names_of

SPACE = Space.parse("x int not null 0..100")
KINDS = Space.parse("kind enum('a', 'b') not null")
MORE_KINDS = Space.parse("kind enum('a', 'b', 'c') not null")
FLOOD = Settings(routing="subscriptions")
NOTHING = ((0,), (0,))
SESSION = 7  # of every peer
policies = pytest.mark.parametrize(
    "policy",
    [Policy(None), Policy(), Policy(retract=True), Policy("pairwise"), Policy("pairwise", graph="simplified")],
    ids=str,
)


class Bench:
    """One broker B1, and its peers, whose messages are numbered here."""

    def __init__(self, settings: Settings = FLOOD, space: Space = SPACE, broker: Broker | None = None) -> None:
        self.broker = broker or Broker("B1", space, settings)
        self.counts: dict[str, int] = {}
        self.now = 0.0

    def handle(self, message: Message, link: str) -> list[Effect]:
        effects = self.broker.handle(message, link, self.now)
        self.broker.check_invariants()
        return effects

    def says(self, link: str, kind: Any, *fields: Any) -> list[Effect]:
        """The next message of a peer."""
        self.counts[link] += 1
        return self.handle(kind(seq_of(SESSION, self.counts[link]), *fields), link)

    def client(self, name: str, version: int = 0) -> Bench:
        """`version`: the highest that it speaks; 0: the lowest that there is, alone."""
        self.counts[name] = 0
        self.handle(LinkUp(1, is_client=True), name)
        self.handle(Hello(name, SESSION, self.broker.space.to_json(), is_client=True, version_max=version), name)
        return self

    def neighbour(
        self, name: str, session: int = 1, space: Space | None = None, hashes: Any = NOTHING, version: int = 0
    ) -> list[Effect]:
        """A broker that is connected, greets and says by its digest what it holds. The answer to that."""
        self.counts[name] = 0
        self.handle(LinkUp(session), name)
        text = (space or self.broker.space).to_json()
        self.handle(Hello(name, SESSION, text, members=(name,), version_max=version), name)
        return self.says(name, Digest, len(hashes[0]), *hashes)

    def settles(self, link: str) -> list[Effect]:
        """A neighbour says that all it was sent has settled."""
        peer = self.broker.links[link]
        return self.handle(Settled(seq_of(peer.session, peer.sent_count)), link)

    def settled_neighbour(self, name: str, version: int = 0) -> Bench:
        self.neighbour(name, version=version)
        self.settles(name)
        return self


def sent(effects: Sequence[Effect], link: str) -> list[str]:
    """What goes to a link, in short: `Subscribe s: x < 5`. Ids without the name of the broker and the client,
    but with what makes another id of one: `~~s`."""
    short = []
    for effect in effects:
        if isinstance(effect, Send) and effect.link == link:
            message = effect.message
            words = [type(message).__name__]
            if hasattr(message, "id"):
                own = without_alias(message.id)
                words.append(message.id.removesuffix(own) + own.rpartition("/")[2])
            text = " ".join(words)
            short.append(f"{text}: {message.where}" if hasattr(message, "where") else text)
    return short


def updates(effects: Sequence[Effect], link: str = "B2") -> list[str]:
    return [text for text in sent(effects, link) if text not in ("Settled", "Accepted")]


def rejected(effects: Sequence[Effect]) -> Reject:
    (reject,) = [effect for effect in effects if isinstance(effect, Reject)]
    return reject


def is_settled(effects: Sequence[Effect], link: str = "ann") -> bool:
    return "Settled" in sent(effects, link)


def synced(effects: Sequence[Effect], link: str = "B2") -> Synced:
    (message,) = [each.message for each in effects if isinstance(each, Send) and isinstance(each.message, Synced)]
    return message


def as_held(wheres: dict[str, str]) -> list[tuple[str, str, float | None]]:
    """By a neighbour, which knows no leases."""
    return [(id, where, None) for id, where in wheres.items()]


class Overlay(Observer):
    """Brokers wired by the simulator, clients `S@B1` named by where they live; every step runs until all is quiet."""

    def __init__(self, links: list[tuple[str, str]], settings: Settings = FLOOD, space: Space = SPACE) -> None:
        self.network = Network(space, observer=self)
        self.events: list[tuple[str, str, tuple[str, ...]]] = []
        self.reasons: list[str] = []
        self._last: str | None = None
        for name in names_of(links):
            self.network.add_broker(name, settings)
        for one, other in links:
            self.network.join(one, other)
        self.network.run()

    def delivered(self, client: str, broker: str, delivered: Deliver, now: float) -> None:
        self.events.append((client, delivered.event.id, delivered.ids))

    def refused(self, client: str, broker: str, reject: Reject, now: float) -> None:
        self.reasons.append(reject.refused.reason)

    def __getitem__(self, broker: str) -> Broker:
        return self.network.nodes[broker].broker

    def client(self, name: str) -> None:
        self.network.add_client(name)
        self.network.join(name.partition("@")[2], name)
        self.network.run()

    def does(self, client: str, what: str, *arguments: Any) -> None:
        if client not in self.network.clients:
            self.client(client)
        broker = client.partition("@")[2]
        self.network.tell(client, getattr(self.network.clients[client], what)(broker, *arguments))
        self.network.run()
        self.check()

    def publish(self, client: str, **event: Any) -> dict[str, tuple[str, ...]]:
        """Who gets an event, and for which subscriptions."""
        before = len(self.events)
        self.does(client, "publish", event)
        return {who: ids for who, _, ids in self.events[before:]}

    def knows(self, id: str) -> list[str]:
        """The brokers that hold a subscription, at home or from a neighbour."""
        return sorted(
            name
            for name, node in self.network.nodes.items()
            if any(
                each.rpartition("/")[2] == id
                for link in node.broker.links
                for each in self[name].received_from(SUBSCRIPTIONS, link)
            )
        )

    def visited(self, client: str, **event: Any) -> list[str]:
        """The brokers that handle an event."""
        before = {name: node.handled["Publish"] for name, node in self.network.nodes.items()}
        self.publish(client, **event)
        return sorted(name for name, node in self.network.nodes.items() if node.handled["Publish"] > before[name])

    def check(self) -> None:
        """At rest: what one end sent is what the other end received."""
        for name, node in self.network.nodes.items():
            node.broker.check_invariants()
            for link in node.broker.links.values():
                if not link.is_client and link.is_synced:
                    for table in (SUBSCRIPTIONS, ADVERTISEMENTS):
                        assert (
                            self[link.name].received_from(table, name)
                            == node.broker.outbound(table, link.name).forwarded()
                        )
