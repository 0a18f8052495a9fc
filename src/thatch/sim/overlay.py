"""An overlay to experiment with: brokers of a topology, subscribers and publishers at its edge, no faults."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from thatch.broker import Settings
from thatch.protocol.ids import SUBSCRIPTIONS
from thatch.protocol.messages import Retune
from thatch.sim.costs import Cost, free
from thatch.sim.network import Network, Observer
from thatch.sim.topology import Links, names_of
from thatch.space.space import Space

LATENCY = 0.001  # seconds: a local network


@dataclass(slots=True)
class Overlay:
    """One subscriber at each of `subscriber_brokers`, one publisher that advertises everything at each of
    `publisher_brokers`."""

    space: Space
    links: Links
    subscriber_brokers: list[str]
    publisher_brokers: list[str]
    settings: Settings
    seed: int = 0
    cost: Callable[[Settings], Cost] = lambda settings: free
    observer: Observer | None = None
    events_first: bool = False
    network: Network = field(init=False)
    where: dict[str, str] = field(default_factory=dict)  # subscription -> its broker
    tiers: dict[str, str] = field(default_factory=dict)  # broker -> what it is, for measurements
    _rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)
        self.network = Network(self.space, self.seed, observer=self.observer, events_first=self.events_first)
        for name in names_of(self.links):
            self.network.add_broker(name, self.settings, self.cost(self.settings))
        for link in self.links:
            self.network.join(*link, LATENCY)
        for broker in self.subscriber_brokers:
            self.network.add_client(f"at {broker}")
            self.network.join(broker, f"at {broker}", LATENCY)
        for broker in self.publisher_brokers:
            client = self.network.add_client(f"from {broker}")
            self.network.join(broker, client.name, LATENCY)
        self.network.run()
        for broker in self.publisher_brokers:
            name = f"from {broker}"
            self.network.tell(name, self.network.clients[name].advertise(broker, "all", "TRUE"))
        self.network.run()

    def subscribe(self, id: str, where: str, at: float | None = None, broker: str | None = None) -> None:
        """At a broker of the subscribers; at a random one unless it is named."""
        broker = self.where[id] = broker or self._rng.choice(self.subscriber_brokers)
        self._later(at, self._subscribe, broker, id, where)

    def _subscribe(self, broker: str, id: str, where: str) -> None:
        client = self.network.clients[f"at {broker}"]
        self.network.tell(client.name, client.subscribe(broker, id, where))

    def unsubscribe(self, id: str, at: float | None = None) -> None:
        self._later(at, self._unsubscribe, self.where.pop(id), id)

    def _unsubscribe(self, broker: str, id: str) -> None:
        client = self.network.clients[f"at {broker}"]
        self.network.tell(client.name, client.unsubscribe(broker, id))

    def publish(self, event: Mapping[str, Any], at: float | None = None, broker: str | None = None) -> None:
        """By the publisher at a broker; by a random one unless it is named."""
        self._later(at, self._publish, broker or self._rng.choice(self.publisher_brokers), event)

    def _publish(self, broker: str, event: Mapping[str, Any]) -> None:
        client = self.network.clients[f"from {broker}"]
        self.network.tell(client.name, client.publish(broker, event))

    def _later(self, at: float | None, action: Callable[..., None], *arguments: object) -> None:
        self.network.at(self.network.now if at is None else at, action, *arguments)

    def sent(self, links: Iterable[tuple[str, str]]) -> int:
        """Subscriptions that brokers have sent over links, each (from, to), now."""
        return sum(
            len(self.network.nodes[sender].broker.outbound(SUBSCRIPTIONS, to).forwarded()) for sender, to in links
        )

    @property
    def is_leaving(self) -> bool:
        """Whether a subscription is still to be taken back further."""
        links = (link for node in self.network.nodes.values() for link in node.broker.links.values())
        return any(any(link.outbound.subscriptions.preserved.values()) for link in links)

    def pass_time(self, every: float, until: float) -> None:
        """Brokers hear that time passes, to a time and until everything has left as far as it is to."""
        self.network.tick()
        if self.network.now < until or self.is_leaving:
            self.network.at(self.network.now + every, self.pass_time, every, until)

    def charge(self, cost: Callable[[Settings], Cost]) -> None:
        """From now on brokers are busy with messages."""
        for node in self.network.nodes.values():
            node.cost = cost(node.broker.settings)

    def retune(self, settings: Settings) -> None:
        """Give all brokers other settings for how subscriptions leave."""
        self.settings = settings
        self.tune(self.network, settings)

    @staticmethod
    def tune(network: Network, settings: Settings) -> None:
        for name in network.nodes:
            network.operate(name, Retune(settings))
