"""A network of brokers and clients in simulated time: latency, bandwidth, service times, cuts, crashes.

    client ~~wire~~ broker ~~wire~~ broker          a wire delivers in order; a cut loses what is on it
                                                    (events may lag: control messages then overtake them)
                    [queue]  one message at a time, each for as long as the cost model says; effects when it is done

A queue is first in, first out; or events come first (`events_first`): they overtake what brokers tell one another about
subscriptions, which may be much at once, but nothing that their own link's session, or their publisher, said before,
and no space that has grown.

Everything happens at a time and in an order that the seed and the calls determine: the same again gives the same trace.
What comes twice or far too late (`echo`) is part of the model: messages are harmless then.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections import Counter, deque
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from thatch.broker import Broker, ClientState, Settings
from thatch.broker.pages import CHARACTERS_MAX
from thatch.errors import CallerError
from thatch.protocol import codec
from thatch.protocol.digest import KEY_BYTES
from thatch.protocol.messages import (
    OPERATOR,
    Away,
    Deliver,
    Effect,
    Extend,
    Flushed,
    Grow,
    Hello,
    LinkDown,
    LinkUp,
    Message,
    Persist,
    Persisted,
    Publish,
    Reject,
    Retune,
    Send,
    Sequenced,
    Tick,
)
from thatch.protocol.records import RecordChange
from thatch.region.region import Region
from thatch.sim.agenda import Agenda
from thatch.sim.costs import Cost, free
from thatch.space.space import Space


@dataclass(slots=True)
class Wire:
    """Between two ends, named in order. `session` counts its lives."""

    ends: tuple[str, str]
    latency: float
    bandwidth: float | None  # bytes a second
    is_up: bool = False
    session: int = 0
    clear_at: dict[str, float] = field(default_factory=dict)  # by the receiving end: when the last message arrives
    lag: float = 0.0  # seconds more for events: they wait in a stream, and control messages overtake them
    events_clear_at: dict[str, float] = field(default_factory=dict)  # by the receiving end: when the last event does

    def other(self, end: str) -> str:
        return self.ends[1] if end == self.ends[0] else self.ends[0]


@dataclass(slots=True)
class SimulatedNode:
    """A broker and its queue."""

    broker: Broker
    queue: deque[tuple[Message, str, bool]] = field(default_factory=deque)  # message, link, whether it holds events
    events: deque[tuple[Message, str]] = field(default_factory=deque)  # that may be served before the queue
    barriers: Counter[str] = field(default_factory=Counter)  # by link, queued messages that events must not overtake
    is_busy: bool = False
    is_ticked: bool = False  # a tick waits: another one would say nothing new
    is_up: bool = True
    life: int = 0  # counts crashes
    store: list[RecordChange] = field(default_factory=list)
    handled: Counter[str] = field(default_factory=Counter)
    cost: Cost = free
    space: Space | None = None  # in its settings, if that is not the one of the others
    pending: list[Effect] = field(default_factory=list)  # of the message that it is busy with

    def lose_space(self, space: Space) -> None:
        """The disk is lost: the space is what the settings say."""
        self.space = space

    @property
    def waiting(self) -> int:
        """How many messages of other links wait."""
        return len(self.queue) + len(self.events) - self.is_ticked

    def put(self, message: Message, link: str, events_first: bool) -> None:
        if events_first and isinstance(message, Publish) and not self.barriers[link]:
            self.events.append((message, link))
            return
        holds = events_first and self._holds(message, link)
        self.queue.append((message, link, holds))
        self.barriers[link] += holds

    def take(self) -> tuple[Message, str]:
        if self.events:
            return self.events.popleft()
        message, link, holds = self.queue.popleft()
        self.barriers[link] -= holds
        if isinstance(message, Tick):
            self.is_ticked = False
        return message, link

    def _holds(self, message: Message, link: str) -> bool:
        """Whether events of its link stay behind a message: a client's own, what begins or ends a session, and a space
        in which they are to be read."""
        own = self.broker.links.get(link)
        kinds = LinkUp | LinkDown | Away | Hello | Extend | Grow | Publish
        return own is None or own.is_client or isinstance(message, kinds)


class Clauses:
    """What clauses and spaces mean: brokers of one process, and runs of one plan, work it out once."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self._spaces = {space.to_json(): space}
        self._regions: dict[int, tuple[Space, dict[str, Region]]] = {}

    def compiled(self, where: str, space: Space) -> Region:
        _, regions = self._regions.setdefault(id(space), (space, {}))  # holds the space, so that its id stays its own
        region = regions.get(where)
        if region is None:
            region = regions[where] = space.where(where)
        return region

    def read_space(self, text: str) -> Space:
        if text not in self._spaces:
            self._spaces[text] = Space.from_json(text)
        return self._spaces[text]


class Observer:
    """Is called for what happens. This one does nothing."""

    def published(self, client: str, broker: str, event: Publish, now: float) -> None: ...
    def delivered(self, client: str, broker: str, delivered: Deliver, now: float) -> None: ...
    def refused(self, client: str, broker: str, reject: Reject, now: float) -> None: ...
    def handled(self, broker: str, message: Message, link: str, effects: list[Effect], now: float) -> None: ...
    def landed(self, event: str, now: float) -> None:
        """No copy of the event is on its way any longer."""


class Network(Agenda):
    def __init__(
        self,
        clauses: Clauses | Space,
        seed: int = 0,
        disk_seconds: float = 0.0,
        echo: float = 0.0,
        through_codec: bool = False,
        observer: Observer | None = None,
        events_first: bool = False,
    ) -> None:
        """`echo`: the share of messages that come a second time, soon or late. `through_codec`: every message is
        written and read on its way, as between machines."""
        super().__init__()
        self.clauses = clauses if isinstance(clauses, Clauses) else Clauses(clauses)
        self.space, self.observer = self.clauses.space, observer or Observer()
        self.nodes: dict[str, SimulatedNode] = {}
        self.clients: dict[str, ClientState] = {}
        self.wires: dict[tuple[str, str], Wire] = {}
        self.copies: Counter[str] = Counter()  # of events on their way
        self.hang_ups: list[str] = []  # of brokers on one another
        self.events_first = events_first
        self._disk, self._echo, self._through_codec = disk_seconds, echo, through_codec
        self._seed, self._random = seed, random.Random(seed)
        self._sessions = 0
        self._trace = hashlib.sha256()

    # --- State --------------------------------------------------------------------------------------------------------

    @property
    def trace(self) -> str:
        """A hash of every message that was handled, where and when."""
        return self._trace.hexdigest()

    def copied(self) -> Network:
        """A network in the same state that goes its own way, watched by nobody. Only at rest."""
        if self.is_busy:
            raise CallerError("a network is copied at rest: run it to the end of its agenda first")
        memo: dict[int, Any] = {id(self.clauses): self.clauses, id(self.observer): Observer()}
        for node in self.nodes.values():
            memo.update(node.broker.shared())
        memo[id(self._trace)] = self._trace.copy()
        return deepcopy(self, memo)

    # --- Building ---------------------------------------------------------------------------------------------------

    def add_broker(
        self, name: str, settings: Settings, cost: Cost = free, page_characters: int = CHARACTERS_MAX
    ) -> Broker:
        meaning = self.clauses.compiled, self.clauses.read_space
        broker = Broker(name, self.space, settings, *meaning, page_characters)
        self.nodes[name] = SimulatedNode(broker, cost=cost)
        return broker

    def add_client(self, name: str) -> ClientState:
        client = self.clients[name] = ClientState(name, self.space)
        return client

    def join(self, one: str, other: str, latency: float = 0.001, bandwidth: float | None = None) -> None:
        """A wire between two, connected now. A client comes second."""
        key = one, other
        wire = self.wires.get(key)
        if wire is None:
            wire = self.wires[key] = Wire(key, latency, bandwidth)
        self.heal(wire)

    def wire(self, one: str, other: str) -> Wire | None:
        return self.wires.get((one, other)) or self.wires.get((other, one))

    def wires_of(self, name: str) -> list[Wire]:
        return [wire for wire in self.wires.values() if name in wire.ends]

    # --- Faults -----------------------------------------------------------------------------------------------------

    def cut(self, wire: Wire, forget: bool = False) -> None:
        """Both ends notice at once; what was on the wire is lost."""
        if not wire.is_up and not forget:
            return
        wire.is_up = False
        for end in wire.ends:
            self._link_down(end, wire, forget)
        if forget:
            del self.wires[wire.ends]

    def _link_down(self, end: str, wire: Wire, forget: bool) -> None:
        if end in self.clients:
            if wire.other(end) in self.clients[end].homes:
                self.clients[end].disconnect(wire.other(end))
        elif end in self.nodes and self.nodes[end].is_up:
            self._take(end, LinkDown(forget), wire.other(end))

    def heal(self, wire: Wire) -> None:
        if wire.is_up or not all(end in self.clients or self.nodes[end].is_up for end in wire.ends):
            return
        self._sessions += 1
        wire.is_up, wire.session, wire.clear_at, wire.events_clear_at = True, self._sessions, {}, {}
        one, other = wire.ends
        for end, peer in ((one, other), (other, one)):
            if end in self.clients:
                self._run_sends(end, self.clients[end].connect(peer, wire.session))
            else:
                self._take(end, LinkUp(wire.session, peer in self.clients, key=self._key(wire, end)), peer)

    def _key(self, wire: Wire, end: str) -> bytes:
        """Of the digest of one end in a session: drawn by a broker by lot, and here from the seed."""
        text = f"{self._seed} {wire.session} {end}"
        return hashlib.blake2b(text.encode(), digest_size=KEY_BYTES).digest()

    def forget(self, name: str, neighbour: str) -> None:
        """An operator has a broker forget a neighbour to which there is no wire."""
        if self.nodes[name].is_up and neighbour in self.nodes[name].broker.links:
            self._take(name, LinkDown(forget=True), neighbour)

    def crash(self, name: str, keep_store: bool) -> None:
        """The broker is gone with its queue, and without `keep_store` with its disk; its wires are cut."""
        node = self.nodes[name]
        if not node.is_up:
            return
        node.is_up = False
        node.life += 1
        lost = [message for message, _ in node.events] + [message for message, _, _ in node.queue]
        node.queue.clear()
        node.events.clear()
        node.barriers.clear()
        if node.pending and isinstance(node.pending[0], Persist) and self._random.random() < 0.5:
            node.store += node.pending[0].records  # they reached the disk, and nobody heard of it
        node.pending, node.is_busy, node.is_ticked = [], False, False
        if not keep_store:
            node.store.clear()
        for wire in self.wires_of(name):
            self.cut(wire)
        for message in lost:
            self._gone(message)

    def restart(self, name: str) -> None:
        node = self.nodes[name]
        if node.is_up:
            return
        settings = node.broker.settings
        meaning = self.clauses.compiled, self.clauses.read_space
        pages = node.broker.page_characters
        node.broker = Broker.restored(
            name, node.space or self.space, node.store, settings, *meaning, page_characters=pages
        )
        node.is_up, node.is_busy = True, False
        for link in list(node.broker.links):
            if self.wire(name, link) is None:  # given up just before the crash
                self._take(name, LinkDown(forget=True), link)
        for wire in self.wires_of(name):
            self.heal(wire)

    # --- Messages ---------------------------------------------------------------------------------------------------

    def tell(self, client: str, sends: Iterable[Send]) -> None:
        """What a client sends, by the methods of `Client`."""
        for send in sends:
            if isinstance(send.message, Publish):
                self.observer.published(client, send.link, send.message, self.now)
        self._run_sends(client, sends)

    def tick(self) -> None:
        for name, node in self.nodes.items():
            if node.is_up and not node.is_ticked:
                node.is_ticked = True
                self._take(name, Tick(), OPERATOR)

    def go_away(self, broker: str, link: str) -> None:
        """Tell a broker that a neighbour has been away for long."""
        node = self.nodes[broker]
        if node.is_up and link in node.broker.links:
            self._take(broker, Away(), link)

    def operate(self, broker: str, message: Message) -> None:
        """Hand a broker a message from its operator."""
        if self.nodes[broker].is_up:
            self._take(broker, message, OPERATOR)

    def _run_sends(self, sender: str, sends: Iterable[Send]) -> None:
        for send in sends:
            self._send(sender, send.link, send.message)

    def _send(self, sender: str, receiver: str, message: Message) -> None:
        self._count(message)
        wire = self.wire(sender, receiver)
        if wire is None or not wire.is_up or self._session(sender, receiver) != wire.session:
            self._gone(message)  # to a connection that is no more, whether or not there is another one by now
            return
        size = len(codec.encode(message)) if wire.bandwidth is not None else 0
        start = self.now
        if wire.bandwidth is not None:
            start = max(self.now, wire.clear_at.get(receiver, 0.0) - wire.latency) + size / wire.bandwidth
        arrival = max(start + wire.latency, wire.clear_at.get(receiver, 0.0))
        behind = wire.events_clear_at.get(receiver, 0.0)
        if isinstance(message, Publish) and (wire.lag or behind > arrival):
            arrival = wire.events_clear_at[receiver] = max(arrival + wire.lag, behind)
        elif isinstance(message, Flushed):  # behind the events, and before it come control messages that are said later
            arrival = max(arrival, behind)
        else:
            wire.clear_at[receiver] = arrival
        self.at(arrival, self._arrive, sender, receiver, message, wire, wire.session)
        if self._echo and isinstance(message, Sequenced | Publish) and self._random.random() < self._echo:
            self._count(message)
            again = arrival + self._random.choice((0.0, wire.latency, 1.0, 10.0))
            self.at(again, self._arrive, sender, receiver, message, wire, None)

    def _session(self, sender: str, receiver: str) -> int:
        if sender in self.clients:
            return self.clients[sender].homes[receiver].session
        link = self.nodes[sender].broker.links.get(receiver)
        return 0 if link is None else link.session

    def _arrive(self, sender: str, receiver: str, message: Message, wire: Wire, session: int | None) -> None:
        """`session` None: an echo, which comes also over a wire that was cut meanwhile."""
        if session is None and wire.is_up:
            session = wire.session
        if not wire.is_up or wire.session != session:
            self._gone(message)
        elif receiver in self.clients:
            self._client_takes(receiver, message, sender)
        elif receiver in self.nodes and self.nodes[receiver].is_up:
            self._take(receiver, message, sender)
        else:
            self._gone(message)

    def _take(self, name: str, message: Message, link: str) -> None:
        node = self.nodes[name]
        node.put(message, link, self.events_first)
        if not node.is_busy:
            self._serve(name)

    def _serve(self, name: str) -> None:
        """The next message of a broker's queue: handled now, and its effects run when the broker is done with it."""
        node = self.nodes[name]
        while (node.queue or node.events) and not node.is_busy:
            message, link = node.take()
            if self._through_codec and link != OPERATOR and not isinstance(message, LinkUp | LinkDown | Away):
                message = codec.Codec(node.broker.space).decode(codec.encode(message))
            written = b"Retune" if isinstance(message, Retune) else codec.encode(message)
            self._trace.update(f"{self.now!r} {name} {link} ".encode() + written)
            began = time.perf_counter()
            effects = node.broker.handle(message, link, self.now)
            busy = node.cost(message, time.perf_counter() - began, node.broker)
            self.observer.handled(name, message, link, effects, self.now)
            if self._disk and effects and isinstance(effects[0], Persist):
                busy += self._disk  # a barrier for all that follows, also of later messages
            node.handled[type(message).__name__] += 1
            if busy:
                node.is_busy, node.pending = True, effects
                self.at(self.now + busy, self._done, name, node.life, message)
            else:
                node.is_busy = True  # what the effects bring comes after them
                self._effects(name, effects)
                node.is_busy = False
                self._gone(message)

    def _done(self, name: str, life: int, message: Message) -> None:
        node = self.nodes.get(name)
        if node is not None and node.life == life:
            effects, node.pending = node.pending, []
            self._effects(name, effects)
            node.is_busy = False
        self._gone(message)
        if node is not None and node.life == life:
            self._serve(name)

    def _effects(self, name: str, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self._send(name, effect.link, effect.message)
            elif isinstance(effect, Deliver):
                self._deliver(name, effect)
            elif isinstance(effect, Reject):
                self._reject(name, effect)
            else:
                self.nodes[name].store += effect.records
                self._take(name, Persisted(effect.number), OPERATOR)

    def _deliver(self, name: str, effect: Deliver) -> None:
        wire = self.wire(name, effect.link)
        self._count(effect.event)
        if wire is None or not wire.is_up:
            self._gone(effect.event)
            return
        arrival = max(self.now + wire.latency, wire.clear_at.get(effect.link, 0.0))
        wire.clear_at[effect.link] = arrival
        self.at(arrival, self._delivered, name, effect, wire, wire.session)

    def _delivered(self, name: str, effect: Deliver, wire: Wire, session: int) -> None:
        if wire.is_up and wire.session == session and self.clients[effect.link].deliver(effect):
            self._trace.update(f"{self.now!r} {effect.link} {effect.event.id} {effect.ids}".encode())
            self.observer.delivered(effect.link, name, effect, self.now)
        self._gone(effect.event)

    def _reject(self, name: str, effect: Reject) -> None:
        if effect.link in self.clients:
            self.observer.refused(effect.link, name, effect, self.now)
            self._send(name, effect.link, effect.refused)
        elif effect.close:
            self.hang_ups.append(f"{self.now:g}: {name} hangs up on {effect.link}: {effect.refused.reason}")
        wire = self.wire(name, effect.link)
        if not effect.close or wire is None:
            return
        is_cycle = effect.refused.code == "cycle"
        if is_cycle and wire.is_up and self.nodes[effect.link].is_up:
            self._take(effect.link, effect.refused, name)  # the last word before the cut
        self.cut(wire, forget=effect.link not in self.nodes[name].broker.links and not is_cycle)
        if is_cycle:
            self.wires.pop(wire.ends, None)  # nobody dials again before an operator does

    def _client_takes(self, name: str, message: Message, broker: str) -> None:
        self._run_sends(name, self.clients[name].handle(message, broker))
        self._gone(message)

    # --- Events on their way ----------------------------------------------------------------------------------------

    def _count(self, message: Message) -> None:
        if isinstance(message, Publish):
            self.copies[message.id] += 1

    def _gone(self, message: Message) -> None:
        if not isinstance(message, Publish):
            return
        self.copies[message.id] -= 1
        if not self.copies[message.id]:
            del self.copies[message.id]
            self.observer.landed(message.id, self.now)
