"""Run a script, and check every promise: deliveries against the oracle, invariants of every broker, the rules at rest.

run(draw(seed), settings)           raises `Failed`, or returns what was seen
shortest_prefix(script, settings)     the least number of steps that still fails
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from thatch.broker import Policy, Settings
from thatch.broker.cells import Cells
from thatch.errors import CallerError, shown
from thatch.protocol.ids import ADVERTISEMENTS, SUBSCRIPTIONS
from thatch.protocol.messages import Deliver, Publish, Reject
from thatch.region.region import Region
from thatch.sim.agreement import EXPECTED, Agreement, with_own_cells
from thatch.sim.network import Clauses, Network, Observer, Wire
from thatch.sim.oracle import Expected, Failed, Interest, Oracle
from thatch.sim.script import ALL, SPACE, Script
from thatch.sim.topology import path
from thatch.space.space import Space

POLL = 0.002  # seconds between looks at a client that moves
REST_MAX = 120.0  # seconds in which all is at rest when faults have ended


@dataclass(slots=True)
class Person:
    """A client, and where it lives."""

    name: str
    home: str
    next: str | None = None  # where it moves to
    phase: str = ""
    subscriptions: dict[str, tuple[str, float | None]] = field(default_factory=dict)
    advertisements: dict[str, str] = field(default_factory=dict)
    is_away: bool = False

    def brokers(self) -> list[str]:
        """Where it wants and publishes things now."""
        if self.next is None:
            return [self.home]
        return [self.next] if self.phase == "leaving" else [self.home, self.next]


@dataclass(frozen=True, slots=True)
class Observed:
    """What was observed in a run."""

    trace: str
    calm: tuple[tuple[str, tuple[str, ...]], ...]  # events published at rest, and who got them
    guaranteed: int
    messages: int


def draw_settings(seed: int, routing: Any) -> Settings:
    """A policy and an engine, now and then another one on some links."""
    rng = random.Random(seed * 7919 + 1)

    def policy() -> Policy:
        cover = rng.choice(("exact", "exact", "pairwise", "negative"))
        packed, merge = rng.random() < 0.5, rng.choice((None, None, None, 0.0, 0.3))
        theta = rng.choice((None, 0.1, 0.5, 0.9)) if routing == "advertisements" else None
        if cover == "pairwise" and rng.random() < 0.5:
            graph = rng.choice(("simplified", "traditional"))
            return Policy("pairwise", graph=graph, packed=packed, theta=theta, merge=merge)
        retract = rng.choice((False, True, "union" if cover == "exact" else True))
        options = rng.choice(({}, {"k": 2}, {"merge": True})) if cover == "negative" else {}
        covered_share_min = rng.choice((None, None, None, 0.5))
        return Policy(cover, retract, None, covered_share_min, options, packed, theta, merge)

    links = {f"B{at}": policy() for at in range(15) if rng.random() < 0.1}
    own, history = policy(), rng.choice((0.1, 600.0))
    idle, pace = rng.choice((0.0, 5.0, 1e9)), rng.choice((0.1, 1.0, 20.0))
    cells = rng.choice((None, Cells(("x", "y"), bits=2), Cells(("kind", "x"), bits=3, path="z", ranges_max=2)))
    if any(each.theta is not None for each in (own, *links.values())):
        cells = None
    return Settings(routing, own, links, history, idle, pace, cells)


def run(script: Script, settings: Settings, clauses: Clauses | None = None) -> Observed:
    """`clauses` of an earlier run of the same script save working them out again."""
    return Run(script, settings, clauses).all()


def clauses_of_scripts() -> Clauses:
    return Clauses(Space.parse(SPACE))


def shortest_prefix(script: Script, settings: Settings) -> tuple[int, str]:
    """The shortest prefix of a failing script that still fails, and how. The last step of it is the culprit."""
    for steps in range(len(script.steps) + 1):
        try:
            run(script.prefix(steps), settings)
        except Exception as error:
            return steps, f"{type(error).__name__}: {error}"
    raise ValueError("the script does not fail")


class Run(Observer):
    def __init__(self, script: Script, settings: Settings, clauses: Clauses | None = None) -> None:
        self.script, self.settings = script, settings
        self.network = Network(
            clauses or clauses_of_scripts(), script.seed, script.disk_seconds, script.echo, script.through_codec, self,
            script.events_first,
        )  # fmt: skip
        self.grown_space = self.network.clauses.read_space(Space.parse(ALL).to_json())
        self.oracle, self.agreement = Oracle(), Agreement(self.network)
        self.people = {name: Person(name, home) for name, home in script.homes.items()}
        self.links = list(script.links)  # of the overlay, as it is to be
        self.is_void = False
        self.refused_with_interest = 0  # links that an operator had to have forgotten
        self._lost_disks: dict[str, None] = {}  # brokers that have lost theirs since the last rest
        self.calm: list[tuple[str, tuple[str, ...]]] = []
        self._departed: dict[int, None] = {}  # wires given up at the end of a move: no fault
        self._build()

    def _build(self) -> None:
        network = self.network
        for name in dict.fromkeys(name for link in self.links for name in link):
            network.add_broker(name, self._settings_of(name), page_characters=self.script.page_characters)
        for link, latency in zip(self.links, self.script.latencies, strict=True):
            network.join(*link, latency, self.script.bandwidth)
        for person in self.people.values():
            network.add_client(person.name)
            network.join(person.home, person.name, 0.0005)
        network.run()

    def _settings_of(self, name: str) -> Settings:
        return with_own_cells(self.settings, self.script.seed, name)

    def all(self) -> Observed:
        spent = 0.0  # at rest, beyond what the script knows of
        for step in self.script.steps:
            self.network.run(step.at + spent)
            getattr(self, f"_{step.kind}")(*step.args)
            spent = max(spent, self.network.now - step.at)
        handled = sum(sum(node.handled.values()) for node in self.network.nodes.values())
        return Observed(self.network.trace, tuple(self.calm), self.oracle.guaranteed, handled)

    def region(self, where: str) -> Region:
        """In the space as it is in the end: an event that carries nothing new is in it or not as before."""
        return self.network.clauses.compiled(where, self.grown_space)

    # --- Steps of clients -------------------------------------------------------------------------------------------

    def _subscribe(self, name: str, id: str, where: str, seconds: float | None) -> None:
        person = self.people[name]
        if id in person.subscriptions:  # the oracle would wait for ever for what only the former one wants
            raise CallerError(f"{name} has a subscription {shown(id)} already")
        lease = None if seconds is None else self.network.now + seconds
        person.subscriptions[id] = where, lease
        for broker in person.brokers():
            self._subscribe_at(person, broker, id)

    def _subscribe_at(self, person: Person, broker: str, id: str) -> None:
        where, lease = person.subscriptions[id]
        version = self.network.now, self.region(where)
        interest = Interest(person.name, broker, id, [version], lease)
        interest.is_leaving = person.phase == "flushing" and broker == person.home  # it is soon withdrawn there
        self.oracle.interests[person.name, broker, id] = interest
        client = self.network.clients[person.name]
        self.network.tell(person.name, client.subscribe(broker, id, where, lease))

    def _unsubscribe(self, name: str, id: str) -> None:
        person = self.people[name]
        if id not in person.subscriptions:
            return
        del person.subscriptions[id]
        for broker in person.brokers():
            self._remove_interest(name, broker, id, self.network.now)
            if (SUBSCRIPTIONS, id) in self.network.clients[name].homes[broker].wheres:
                self.network.tell(name, self.network.clients[name].unsubscribe(broker, id))

    def _remove_interest(self, name: str, broker: str, id: str, removed: float | None) -> None:
        interest = self.oracle.interests.pop((name, broker, id), None)
        if interest is not None:
            interest.removed = removed
            self.oracle.past.append(interest)

    def _replace(self, name: str, id: str, where: str) -> None:
        person = self.people[name]
        if id not in person.subscriptions:
            return
        person.subscriptions[id] = where, person.subscriptions[id][1]
        for broker in person.brokers():
            interest = self.oracle.interests[name, broker, id]
            if (SUBSCRIPTIONS, id) not in self.network.clients[name].homes[broker].wheres:
                continue  # its lease ended
            self._note_settled(interest)
            interest.versions.append((self.network.now, self.region(where)))
            self.network.tell(name, self.network.clients[name].replace(broker, id, where))

    def _note_settled(self, interest: Interest) -> None:
        if self.network.clients[interest.client].is_settled(interest.broker, SUBSCRIPTIONS, interest.id):
            interest.settled = len(interest.versions) - 1

    def _advertise(self, name: str, id: str, where: str) -> None:
        person = self.people[name]
        person.advertisements[id] = where
        for broker in person.brokers():
            self.network.tell(name, self.network.clients[name].advertise(broker, id, where))

    def _unadvertise(self, name: str, id: str) -> None:
        person = self.people[name]
        if id in person.advertisements and len(person.advertisements) > 1:
            del person.advertisements[id]
            for broker in person.brokers():
                self.network.tell(name, self.network.clients[name].unadvertise(broker, id))

    def _publish(self, name: str, event: dict[str, Any]) -> str:
        """Publish an event, and return its id."""
        sends = self.network.clients[name].publish(self.people[name].brokers()[0], event)
        self.network.tell(name, sends)
        assert isinstance(sends[0].message, Publish)
        return sends[0].message.id

    def _tick(self) -> None:
        for person in self.people.values():
            for id, (_, lease) in list(person.subscriptions.items()):
                if lease is not None and lease <= self.network.now:
                    del person.subscriptions[id]
                    for broker in person.brokers():
                        self._remove_interest(person.name, broker, id, lease)
                        home = self.network.clients[person.name].homes[broker]
                        home.wheres.pop((SUBSCRIPTIONS, id), None)
                        home.expires.pop((SUBSCRIPTIONS, id), None)
        self.network.tick()

    def _away(self, name: str) -> None:
        person = self.people[name]
        wire = self.network.wire(person.home, name)
        if person.next is None and wire is not None:
            person.is_away = True
            self.network.cut(wire)

    def _back(self, name: str) -> None:
        person = self.people[name]
        person.is_away = False
        for broker in person.brokers():
            wire = self.network.wire(broker, name)
            if wire is not None:
                self.network.heal(wire)

    # --- Moving -----------------------------------------------------------------------------------------------------

    def _move(self, name: str, broker: str) -> None:
        person = self.people[name]
        if broker not in self.network.nodes or person.next is not None or broker == person.home or person.is_away:
            return
        person.next, person.phase = broker, "arriving"
        self.network.join(broker, name, 0.0005)
        if broker not in self.network.clients[name].homes:  # the broker is down: tell it when it is back
            self.network.clients[name].connect(broker, 0)
            self.network.clients[name].disconnect(broker)
        for id in person.subscriptions:
            self._subscribe_at(person, broker, id)
        for id, where in person.advertisements.items():
            self.network.tell(name, self.network.clients[name].advertise(broker, id, where))
        self.network.at(self.network.now + POLL, self._poll, person)

    def _poll(self, person: Person) -> None:
        """Arriving: until all has settled there. Flushing: until all that was on its way here has come. Then leave."""
        client, here, there = self.network.clients[person.name], person.home, person.next
        assert there is not None
        keys = [(SUBSCRIPTIONS, id) for id in person.subscriptions]
        keys += [(ADVERTISEMENTS, id) for id in person.advertisements]
        if person.phase == "arriving" and client.homes[there].is_synced:
            if all(client.is_settled(there, *key) for key in keys):
                person.phase = "flushing"
                for interest in self.oracle.interests.values():
                    interest.is_leaving |= (interest.client, interest.broker) == (person.name, here)
                self.network.tell(person.name, client.flush(here))
        elif person.phase == "flushing" and client.is_flushed(here):
            person.phase = "leaving"  # what was published before has come; what is from now on comes there
            for key in list(client.homes[here].wheres):
                self._remove_interest(person.name, here, key[1], None)
                leave = client.unsubscribe if key[0] == SUBSCRIPTIONS else client.unadvertise
                self.network.tell(person.name, leave(here, key[1]))
            self.network.tell(person.name, client.flush(here))
        elif person.phase == "leaving" and client.is_flushed(here):
            self._moved(person, here, there)
            return
        self.network.at(self.network.now + POLL, self._poll, person)

    def _moved(self, person: Person, here: str, there: str) -> None:
        wire = self.network.wire(here, person.name)
        if wire is not None:
            self._departed[wire.session] = None
            self.network.cut(wire, forget=True)
        person.home, person.next, person.phase = there, None, ""

    # --- Faults and changes of the overlay --------------------------------------------------------------------------

    def _cut(self, one: str, other: str) -> None:
        wire = self.network.wire(one, other)
        if wire is not None:
            self.network.cut(wire)

    def _heal(self, one: str, other: str) -> None:
        wire = self.network.wire(one, other)
        if wire is not None:
            self.network.heal(wire)

    def _slow(self, one: str, other: str, latency: float) -> None:
        wire = self.network.wire(one, other)
        if wire is not None:
            wire.latency = latency

    def _lag(self, one: str, other: str, seconds: float) -> None:
        wire = self.network.wire(one, other)
        if wire is not None:
            wire.lag = seconds

    def _crash(self, broker: str, keep_store: bool) -> None:
        if broker in self.network.nodes:
            if not keep_store:
                self.is_void, self._lost_disks[broker] = True, None
            self.network.crash(broker, keep_store)
            self.agreement.note_crash(broker)
            if not keep_store:
                self.network.nodes[broker].lose_space(self.agreement.config(broker, self.network.space))

    def _restart(self, broker: str) -> None:
        if broker in self.network.nodes:
            self.network.restart(broker)
            self._away_again(broker)

    def _away_again(self, broker: str) -> None:
        for person in self.people.values():
            if person.is_away and broker in person.brokers():
                self._away(person.name)

    def _join(self, neighbour: str, name: str) -> None:
        if neighbour in self.network.nodes and name not in self.network.nodes:
            self.network.add_broker(name, self._settings_of(name), page_characters=self.script.page_characters)
            self.links.append((neighbour, name))
            self.network.join(neighbour, name, 0.002, self.script.bandwidth)

    def _stranger(self, neighbour: str, routing: Any) -> None:
        self.agreement.add_stranger(neighbour, Settings(routing))

    def _leave(self, name: str) -> None:
        links = [link for link in self.links if name in link]
        lives = any(name in (person.home, person.next) for person in self.people.values())
        here = self.network.nodes.get(name)
        if lives or len(links) != 1 or len(self.links) < 3 or here is None or not here.is_up:
            return
        self.network.crash(name, keep_store=False)
        self._part(links[0])
        for wire in self.network.wires_of(name):
            self.network.cut(wire, forget=True)
        del self.network.nodes[name]
        self.agreement.note_crash(name)

    def _part(self, link: tuple[str, str]) -> None:
        """Forget a link on both sides."""
        self.links.remove(link)
        self.is_void = True
        wire = self.network.wire(*link)
        if wire is not None:
            self.network.cut(wire, forget=True)

    def _relink(self, choice: int, one: str, other: str) -> None:
        link = self.links[choice % len(self.links)]
        if not {one, other} <= self.network.nodes.keys() or not all(self.network.nodes[each].is_up for each in link):
            return
        if not self.agreement.has_grown:  # two parts that open different steps meanwhile cannot be joined again
            return
        self._part(link)
        apart = path(self.links, one, other) is None
        self.links.append((one, other) if apart else link)
        self.network.at(self.network.now + 0.5, self._connect, self.links[-1])

    def _connect(self, link: tuple[str, str]) -> None:
        if link in self.links and set(link) <= self.network.nodes.keys():
            self.network.join(*link, 0.002, self.script.bandwidth)

    def _cycle(self, one: str, other: str) -> None:
        """Try to close a cycle: it must be refused. Not tried before one of them knows that they are in one overlay."""
        nodes = self.network.nodes
        if {one, other} <= nodes.keys() and (self._reaches(one, other) or self._reaches(other, one)):
            self.network.join(one, other, 0.002)

    def _reaches(self, one: str, other: str) -> bool:
        node = self.network.nodes[one]
        links = node.broker.links.values()
        return node.is_up and other not in node.broker.links and any(other in link.members for link in links)

    def _grow(self, broker: str, text: str) -> None:
        if all(self.network.wire(*link) is not None for link in self.links):
            self.agreement.grow(broker, text)

    # --- At rest ----------------------------------------------------------------------------------------------------

    def _rest(self, *events: dict[str, Any]) -> None:
        """Faults end, messages arrive, and then everything must agree with everything."""
        network = self.network
        for name in list(network.nodes):
            network.restart(name)
        for person in self.people.values():
            self._back(person.name)
        began = network.now
        while True:
            for wire in list(network.wires.values()):
                wire.lag = 0.0
                network.heal(wire)
            self._forget_refused()
            self._end_mistakes()
            for link in self.links:
                if network.wire(*link) is None:
                    self._connect(link)
            network.run(network.now + 10.0)
            self.agreement.grow_again()
            self._tick()
            network.run(network.now + 1.0)
            if not network.is_busy and self._is_whole() and self.agreement.has_grown:
                break
            if network.now - began > REST_MAX:
                raise Failed(f"no rest {REST_MAX:g} seconds after the last fault: {self._restless()}")
        self._check_rest()
        self.is_void, self._lost_disks = False, {}
        for event in events:
            self._publish_calmly(event)

    def _forget_refused(self) -> None:
        """Operators: a link that would close a cycle, and that cannot just go, is forgotten."""
        for name, node in self.network.nodes.items():
            for link in [each for each in node.broker.links.values() if not each.is_client]:
                ends = {(name, link.name), (link.name, name)}
                if self.network.wire(name, link.name) is None and not ends & set(self.links):
                    self.refused_with_interest += 1
                    self.network.forget(name, link.name)

    def _end_mistakes(self) -> None:
        """Operators: a link that was to be refused has come in, as a broker that had lost its disk did not know its own
        neighbours any longer, and met the wrong one first. It is taken away."""
        for wire in list(self.network.wires.values()):
            if wire.ends[1] in self.network.clients or not self._is_met(wire):
                continue
            steps = path(self.links, *wire.ends) or []
            missing = [end for step in steps if self.network.wire(*step) is None for end in step]
            if any(end in self._lost_disks for end in missing):
                self.network.cut(wire, forget=True)

    def _is_whole(self) -> bool:
        links = all(self.network.wire(*link) is not None for link in self.links)
        moved = all(person.next is None for person in self.people.values())
        return links and moved and all(self._is_met(wire) for wire in self.network.wires.values())

    def _restless(self) -> str:
        wires = [wire.ends for wire in self.network.wires.values() if not self._is_met(wire)]
        movers = [person for person in self.people.values() if person.next is not None]
        missing = [link for link in self.links if self.network.wire(*link) is None]
        return f"wires {wires}, movers {movers}, links missing {missing}, {self.network.hang_ups[-3:]}"

    def _check_rest(self) -> None:
        network = self.network
        strange = [each for each in network.hang_ups if not any(why in each for why in EXPECTED)]
        if strange:
            raise Failed(strange[0])
        if network.copies:
            raise Failed(f"events still on their way: {dict(network.copies)}")
        for node in network.nodes.values():
            node.broker.check_invariants()
        self.agreement.check_rest()
        for wire in network.wires.values():
            if wire.ends[1] in network.clients:
                self._check_client(*wire.ends)
            elif wire.ends not in self.links:
                raise Failed(f"the link {wire.ends} closes a cycle")
            else:
                self._check_link(*wire.ends)
                self._check_link(*wire.ends[::-1])

    def _check_link(self, sender: str, receiver: str) -> None:
        one, other = self.network.nodes[sender].broker, self.network.nodes[receiver].broker
        link = one.links[receiver]
        if not link.is_synced or link.sent_total != link.settled or link.waiting:
            raise Failed(
                f"{sender} to {receiver}: synced {link.is_synced}, settled {link.settled} of {link.sent_total}"
            )
        for table in (SUBSCRIPTIONS, ADVERTISEMENTS):
            sent, received = one.outbound(table, receiver).forwarded(), other.received_from(table, sender)
            if sent != received:
                raise Failed(f"{sender} sent {receiver} {sent}, which holds {received}")

    def _check_client(self, broker: str, name: str) -> None:
        client = self.network.clients[name]
        person = self.people[name]
        prefix = len(broker) + len(name) + 2
        for table, own in ((SUBSCRIPTIONS, {id: where for id, (where, _) in person.subscriptions.items()}),
                           (ADVERTISEMENTS, person.advertisements)):  # fmt: skip
            held = self.network.nodes[broker].broker.received_from(table, name)
            if {id[prefix:]: where for id, where in held.items()} != own:
                raise Failed(f"{name} sent {broker} {own}, which holds {held}")
            if not all(client.is_settled(broker, table, id) for id in own):
                raise Failed(f"{table} of {name} at {broker} have not settled at rest")

    def _publish_calmly(self, event: dict[str, Any]) -> None:
        """At rest an event goes to exactly the clients that want it, each time to the same ones."""
        person = self._publisher_of(event)
        if person is None or not self.agreement.can_carry(event):
            return
        id = self._publish(person.name, event)
        self.network.run()
        wanted = tuple(sorted({each.client for each in self.oracle.interests.values() if each.wants(event)}))
        got = tuple(sorted(client for client, each in self.oracle.delivered if each == id))
        if got != wanted:
            raise Failed(f"event {event} published at rest by {person.name} came to {got}, wanted by {wanted}")
        self.calm.append((str(sorted(event.items())), got))

    def _publisher_of(self, event: dict[str, Any]) -> Person | None:
        for name in self.script.publishers:
            person = self.people[name]
            if any(self.region(where).contains(event) for where in person.advertisements.values()):
                return person
        return None

    # --- What the network tells -------------------------------------------------------------------------------------

    def published(self, client: str, broker: str, event: Publish, now: float) -> None:
        self.oracle.publish(event, now, [] if self.is_void else self._expected(client, broker, event))

    def _expected(self, publisher: str, broker: str, event: Publish) -> list[Expected]:
        own = self.network.wire(broker, publisher)
        if own is None or not self._is_met(own) or not self._is_advertised(publisher, broker, event):
            return []
        expected, links = [], self._whole_links()
        for interest in self.oracle.interests.values():
            if interest.is_leaving or (not interest.wants(event.event) and len(interest.versions) == 1):
                continue
            self._note_settled(interest)
            steps = path(links, broker, interest.broker)
            last = self.network.wire(interest.broker, interest.client)
            if interest.settled < 0 or steps is None or last is None or not self._is_met(last):
                continue
            wires = [wire for step in steps if (wire := self.network.wire(*step)) is not None]
            expected.append(Expected(interest, interest.settled, tuple((w, w.session) for w in (own, *wires, last))))
        return expected

    def _is_advertised(self, publisher: str, broker: str, event: Publish) -> bool:
        if self.settings.routing != "advertisements":
            return True
        client, own = self.network.clients[publisher], self.people[publisher].advertisements
        return any(
            self.region(where).contains(event.event) and client.is_settled(broker, ADVERTISEMENTS, id)
            for id, where in own.items()
        )

    def _whole_links(self) -> list[tuple[str, str]]:
        wires = self.network.wires.values()
        return [wire.ends for wire in wires if wire.ends[1] in self.network.nodes and self._is_met(wire)]

    def _is_met(self, wire: Wire) -> bool:
        """Whether both ends know that the wire is up."""
        one, other = wire.ends
        if not wire.is_up or not self._knows(one, other):
            return False
        return (
            self.network.clients[other].homes[one].is_up if other in self.network.clients else self._knows(other, one)
        )

    def _knows(self, broker: str, link: str) -> bool:
        node = self.network.nodes.get(broker)
        if node is None or not node.is_up or link not in node.broker.links:
            return False
        return node.broker.links[link].is_met

    def delivered(self, client: str, broker: str, delivered: Deliver, now: float) -> None:
        self.oracle.deliver(client, delivered.event, delivered.ids, broker)

    def refused(self, client: str, broker: str, reject: Reject, now: float) -> None:
        refused = reject.refused
        if refused.code in ("later", "clause") and refused.id in self.people[client].subscriptions:
            self._give_up(client, broker, refused.id)
        elif refused.seq == 0:
            self.oracle.note_refused(refused.id)

    def _give_up(self, name: str, refusing: str, id: str) -> None:
        """A clause uses what has not opened, or what a broker does not know any longer."""
        person = self.people[name]
        del person.subscriptions[id]
        for broker in person.brokers():
            self._remove_interest(name, broker, id, self.network.now)
            home = self.network.clients[name].homes[broker]
            if broker != refusing and (SUBSCRIPTIONS, id) in home.wheres:
                self.network.tell(name, self.network.clients[name].unsubscribe(broker, id))

    def landed(self, event: str, now: float) -> None:
        self.oracle.land(event, now, self._is_same)

    def _is_same(self, wire: Wire, session: int) -> bool:
        """Whether a wire is still the one that an event set out on; one given up after a move has done its work."""
        return wire.session == session and (wire.is_up or session in self._departed)
