"""A whole node in simulated time: broker, driver, queues, streams and sessions on a simulated store, without sockets.

    pipe ─ frames ─▶ NodeEnd ─ messages ─▶ driver, queues, neighbour session ─▶ store
         ◀ frames ── Outgoing ◀──────────────────────────────────────── ticket ──┘

It does what `thatch broker` does around the same parts (`node/server.py`, `node/connection.py`): it reads and writes
frames, dials, passes time, and ends. What may be said before it is on disk is decided by the parts that both share.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from thatch.broker import Broker, Settings
from thatch.delivery.absences import Absences
from thatch.delivery.admission import accept, attach, forget, restore_attachments
from thatch.delivery.clock import Clock
from thatch.delivery.doors import Doors, Greeting, Identity, check_rival, expected_of
from thatch.delivery.driver import ClientEndpoint, Driver, Endpoint
from thatch.delivery.history import check_admitted
from thatch.delivery.neighbour import NeighbourSession, encoded_entries
from thatch.delivery.outgoing import Gate, Outgoing
from thatch.delivery.publisher import PublisherSession
from thatch.delivery.queues import Queues
from thatch.delivery.stream import Limits
from thatch.errors import CallerError, PeerError
from thatch.protocol import wire
from thatch.protocol.codec import encode
from thatch.protocol.kinds import KINDS, Peer
from thatch.protocol.messages import (
    Extend,
    Flushed,
    Grow,
    Hello,
    LinkDown,
    Message,
    Publish,
    Refused,
    Sequenced,
)
from thatch.sim.agenda import Agenda
from thatch.sim.network import Clauses
from thatch.sim.node_pipe import Pipe
from thatch.sim.node_store import Disk, SimulatedStore

EPOCH = 1_800_000_000.0  # what the clock of a node says at the beginning
TICK_SECONDS = 1.0
SAVED_SECONDS = 10.0  # between two times that a node says how long it has run
LINGER_SECONDS = 60.0
RETRY_SECONDS = 0.2
KEPT_SECONDS = 100_000.0  # more than a run takes, and less than clocks are stepped
NEIGHBOUR_WINDOW = 600  # bytes that a neighbour may have before it acknowledges some
QUEUE_WINDOW = 400  # bytes that a durable subscriber may have before it acknowledges some


@dataclass(slots=True, eq=False)
class Machine:
    """What outlives the process of a node: its disk, its configuration, its address."""

    name: str  # of its broker
    disk: Disk
    dials: tuple[str, ...]  # neighbours
    accepts: tuple[str, ...]  # neighbours that dial it
    commit_seconds: float
    address: str
    process: NodeProcess | None = None
    backups: list[tuple[float, Disk]] = field(default_factory=list)
    stepped: float = 0.0  # by how much its clock is wrong

    @property
    def is_up(self) -> bool:
        return self.process is not None

    def step_clock(self, seconds: float) -> None:
        """Forward, or back."""
        self.stepped += seconds

    def put_disk(self, disk: Disk) -> None:
        """Another disk, while it is down."""
        assert self.process is None
        self.disk = disk


class Surroundings(Protocol):
    """What a process asks of the network around it."""

    kept_bytes: int  # of events, for a neighbour or a durable subscription
    kept_seconds: float

    agenda: Agenda
    rng: random.Random
    clauses: Clauses
    page_characters: int
    away_seconds: float  # that a neighbour is waited for

    def settings_of(self, machine: Machine) -> Settings:
        """Of a broker that starts now."""

    def dial(self, machine: Machine, name: str) -> None:
        """Connect a machine to a neighbour, if that is there."""

    def said(self, process: NodeProcess, end: NodeEnd, frame: bytes) -> None:
        """A node has written a frame."""

    def took(self, process: NodeProcess, arrived: Publish | wire.Gap) -> None:
        """An event has come to a node, or what tells that a limit has cost some."""

    def ended(self, process: NodeProcess) -> None:
        """A process has ended by itself."""

    def hung_up(self, process: NodeProcess, end: NodeEnd, reason: str, code: str) -> None:
        """A node has hung up on somebody."""


class NodeProcess:
    def __init__(self, machine: Machine, around: Surroundings) -> None:
        self.machine, self.around, self.is_over = machine, around, False
        agenda, rng, clauses = around.agenda, around.rng, around.clauses
        self.clock = Clock(self.wall, lambda: agenda.now, machine.disk.ran)
        self.store = store = SimulatedStore(machine.disk, agenda, rng, machine.commit_seconds, self.wall())
        if store.space is None:
            store.set_space(clauses.space.to_json())
        meaning = clauses.compiled, clauses.read_space
        broker = Broker.restored(
            machine.name,
            clauses.space,
            store.records(),
            around.settings_of(machine),
            *meaning,
            page_characters=around.page_characters,
        )
        self.gate = Gate()
        limits = Limits(
            bytes_max=around.kept_bytes,
            seconds_max=around.kept_seconds,
            memory_bytes_max=2**20,
            unacknowledged_bytes_max=NEIGHBOUR_WINDOW,
        )
        self.driver = Driver(broker, store, limits, self.clock, self.gate.open, rng.randbytes)
        for link in broker.links.values():
            if not link.is_client:
                self.driver.stream(link.name)
        admitted = expected_of({row.name: row.state for row in store.neighbours()})
        self.doors = Doors(machine.name, machine.dials, machine.accepts, admitted)
        restore_attachments(self.driver, self.doors)
        self._absences = Absences(self.driver, around.away_seconds)
        self.queues = Queues(self.driver, around.kept_bytes, around.kept_seconds, QUEUE_WINDOW)
        self.ends: dict[NodeEnd, None] = {}
        self._away: dict[str, float] = {}  # clients whose plain subscriptions are held until then
        self._saved = self.clock()

    def wall(self) -> float:
        """What the clock of the machine says."""
        return EPOCH + self.around.agenda.now + self.machine.stepped

    def start(self) -> None:
        self.queues.restore()
        for link in self.driver.broker.links.values():
            if link.is_client and not self.queues.is_queue(link.name):
                self._away[link.name] = self.clock() + LINGER_SECONDS
        self.store.start(self.driver.committed)
        for name in (*self.machine.dials, *(row.name for row in self.driver.attachments if row.url)):
            self._dial(name)
        self._after(TICK_SECONDS, self._pass_time)

    def end(self, share: float) -> None:
        """It is killed: see `SimulatedStore.crash`."""
        self.is_over = True
        self.store.crash(share)
        for end in list(self.ends):
            end.pipe.cut()

    def end_as_old_copy(self) -> None:
        """A neighbour refuses its life: it acknowledges nothing any more, and ends."""
        self.gate.shut()
        self.around.agenda.at(self.around.agenda.now, self.around.ended, self)

    def accept(self, name: str) -> None:
        """An operator accepts a neighbour, whatever store it has."""
        accept(self.driver, self.doors, name)

    def attach(self, name: str, instead_of: str, dials: bool) -> None:
        """An operator has a neighbour come in the place of one that is lost, and perhaps `dials` it from here."""
        with suppress(CallerError):  # it is not noticed yet that the lost one is gone
            attach(self.driver, self.doors, name, instead_of, name if dials else "")
            if dials:
                self._dial(name)

    def forget(self, name: str) -> None:
        """An operator has it forget a neighbour."""
        end = self.driver.endpoints.get(name)
        if isinstance(end, NeighbourEnd):
            end.close("an operator has this broker forget you")
            end.peer_left()
        with suppress(CallerError):  # it is not known
            forget(self.driver, self.doors, name)

    def _after(self, seconds: float, action: Callable[..., None], *arguments: Any) -> None:
        def act() -> None:
            if not self.is_over:
                action(*arguments)

        self.around.agenda.at(self.around.agenda.now + seconds, act)

    def _dial(self, name: str) -> None:
        if name not in self.driver.endpoints and not self.doors.is_lost(name):
            self.around.dial(self.machine, name)
        self._after(RETRY_SECONDS * self.around.rng.uniform(0.8, 1.2), self._dial, name)

    def _pass_time(self) -> None:
        now = self.clock()
        self.driver.pass_time()
        self._absences.tick(self.clock.ran)
        self.queues.tick()
        if now - self._saved > SAVED_SECONDS:
            self._saved = now
            self.store.note_ran(self.clock.ran)
        for name in [name for name, until in self._away.items() if until < now]:
            del self._away[name]
            if not self.is_neighbour(name):
                self.driver.take(LinkDown(forget=True), name)
        for end in list(self.ends):
            if isinstance(end, NeighbourEnd) and not self.store.is_full:
                end.take_postponed()
        self._after(TICK_SECONDS, self._pass_time)

    # --- Those who come -----------------------------------------------------------------------------------------------

    def is_neighbour(self, name: str) -> bool:
        link = self.driver.broker.links.get(name)
        return self.doors.is_expected(name) or (link is not None and not link.is_client)

    def client_met(self, name: str) -> None:
        self._away.pop(name, None)

    def client_left(self, name: str) -> None:
        self._away[name] = self.clock() + LINGER_SECONDS


class NodeEnd(Endpoint):
    """The node's end of a connection."""

    kind: object
    kind_out: object  # what it says

    def __init__(self, process: NodeProcess, pipe: Pipe, is_open: bool) -> None:
        self.process, self.pipe, self.driver = process, pipe, process.driver
        self.name = self.reason = self.claimed = ""
        self.peer = Peer(True)
        self.outgoing = PipeOutgoing(self, is_open)
        self.is_writing = False
        self._arrivals: deque[tuple[int, str | wire.Gap]] = deque()  # that are to be acknowledged, by number
        self.frames_in = wire.Frames(process.around.clauses.space, self.kind)
        self.frames_out = wire.Frames(process.around.clauses.space, self.kind_out)
        process.ends[self] = None

    def arrived(self, frame: bytes) -> None:
        if self.reason or self.process.is_over:
            return
        try:
            self.take_all(self.frames_in.decode(frame))
        except (PeerError, CallerError) as error:
            self._fault(error)

    def _fault(self, error: PeerError | CallerError) -> None:
        identity = self.driver.journal.identity if error.code == "history" else ""
        self.send_refusal(Refused(0, identity, str(error), code=error.code), close=True)

    def take_all(self, messages: list[Message]) -> None:
        raise NotImplementedError

    def note_event(self, number: int, event: Publish) -> None:
        self._arrivals.append((number, event.id))
        self.process.around.took(self.process, event)

    def note_gap(self, gap: wire.Gap) -> None:
        self._arrivals.append((gap.number, gap))
        self.process.around.took(self.process, gap)

    def take_acknowledged(self, number: int) -> list[str | wire.Gap]:
        """The events up to a number that were not acknowledged before, by their ids, and what limits have cost."""
        arrived = []
        while self._arrivals and self._arrivals[0][0] <= number:
            arrived.append(self._arrivals.popleft()[1])
        return arrived

    def ended(self) -> None:
        self.process.ends.pop(self, None)
        if not self.process.is_over:
            self.peer_left()

    def peer_left(self) -> None:
        """Nobody is there any more."""
        raise NotImplementedError

    # --- What is said -------------------------------------------------------------------------------------------------

    def greeted(self, hello: Hello) -> None:
        with suppress(PeerError):
            self.peer = self.peer.greeted(KINDS.agreed(hello))

    def encoded(self, message: Message) -> bytes:
        readable = KINDS.readable(message, self.peer)
        return b"" if readable is None else encode(readable)

    def send(self, message: Message) -> None:
        put = self.outgoing.hold_for if isinstance(message, Extend | Grow) else self.outgoing.control
        encoded = self.encoded(message)
        if encoded:
            put(encoded, self.process.store.ticket)

    def send_refusal(self, refused: Refused, close: bool) -> None:
        if not close:
            self.send(refused)
            return
        self.outgoing.refusal(self.encoded(refused))
        self.close(refused.reason, refused.code)

    def close(self, reason: str, code: str = "") -> None:
        if not self.reason:
            self.reason = reason
            self.process.around.hung_up(self.process, self, reason, code)
            agenda = self.process.around.agenda
            agenda.at(agenda.now, self._close)

    def _close(self) -> None:
        self.write()
        self.pipe.hang_up(self)

    def write_soon(self) -> None:
        if not self.is_writing and not self.process.is_over:
            self.is_writing = True
            agenda = self.process.around.agenda
            agenda.at(agenda.now, self.write)

    def write(self) -> None:
        self.is_writing = False
        while not self.process.is_over and (frame := self.outgoing.take()) is not None:
            self.process.around.said(self.process, self, frame)
            self.pipe.send(self, frame)


class PipeOutgoing(Outgoing):
    def __init__(self, end: NodeEnd, is_open: bool) -> None:
        super().__init__(end.process.gate, 2**40, False, 2**40, is_open)
        self._end = end

    def wake(self) -> None:
        self._end.write_soon()


class ClientEnd(NodeEnd, ClientEndpoint):
    kind, kind_out = wire.FromClient, wire.FromNode

    def __init__(self, process: NodeProcess, pipe: Pipe) -> None:
        super().__init__(process, pipe, is_open=True)
        self.publisher: PublisherSession | None = None
        self.due: dict[int, int] = {}  # by the number of a message, the ticket of what was recorded for it
        self._count = 0  # of events that came

    def take_all(self, messages: list[Message]) -> None:
        for message in messages:
            if isinstance(message, Publish) and self.publisher is not None:
                self._count += 1
                self.note_event(self._count, message)
                for refused in self.publisher.take_events([message]):
                    self.send_refusal(refused, close=False)
            elif not self.name:
                self._meet(message)
            else:
                self._control(message)
        acknowledgement = None if self.publisher is None else self.publisher.acknowledgement()
        if acknowledgement is not None:
            published, ticket = acknowledgement
            self.outgoing.answer(encode(published), ticket)

    def _control(self, message: Message) -> None:
        before = self.process.store.ticket
        if isinstance(message, wire.NodeMessage):
            self.process.queues.take(message, self)
        else:
            self.driver.take(message, self.name)
        if isinstance(message, Sequenced) and self.process.store.ticket > before:
            self.due[message.seq] = self.process.store.ticket

    def _meet(self, greeting: Message) -> None:
        link = self.driver.broker.links.get(greeting.name) if isinstance(greeting, Hello) else None
        message = self.process.doors.check_client(greeting, was_met=link is not None and not link.is_client)
        other = self.driver.endpoints.get(message.name)
        if isinstance(other, ClientEnd):
            other.close(f"another connection came as {message.name!r}")
            other.peer_left()
        self.name = message.name
        self.publisher = PublisherSession(self.driver, self.name)
        self.greeted(message)
        self.driver.connect(self.name, self)
        self.process.client_met(self.name)
        self.driver.take(self.driver.next_link_up(is_client=True), self.name)
        self.driver.take(message, self.name)

    def send_refusal(self, refused: Refused, close: bool) -> None:
        if refused.seq:
            super().send_refusal(refused, close)
            return
        self.outgoing.refusal(self.encoded(refused))
        if close:
            self.close(refused.reason, refused.code)

    def deliver(self, ids: tuple[str, ...], event: bytes) -> None:
        if not self.reason:
            self.outgoing.event(wire.encoded_event(ids, event))

    def peer_left(self) -> None:
        if self.name and self.driver.endpoints.get(self.name) is self:
            self.process.queues.detach(self)
            self.process.client_left(self.name)
            self.driver.gone(self.name, self)


class NeighbourEnd(NodeEnd):
    kind = kind_out = wire.FromNeighbour

    def __init__(self, process: NodeProcess, pipe: Pipe, dialled: str = "") -> None:
        """`dialled`: the neighbour that was dialled from here."""
        super().__init__(process, pipe, is_open=False)
        self.dialled = dialled
        self.session: NeighbourSession | None = None  # once there is a link
        self.identity: Identity | None = None  # once it was judged
        self._greeting = Greeting(process.doors, dialled)
        if dialled:
            self._connect(dialled)

    def _connect(self, name: str) -> None:
        """A link leads here from now on."""
        other = self.driver.endpoints.get(name)
        if isinstance(other, NeighbourEnd):
            other.close(f"another connection came as {name!r}")
            other.peer_left()
        self.name = name
        self.driver.connect(name, self)
        self.driver.take(self.driver.next_link_up(), name)
        self.session = NeighbourSession(
            self.driver, name, self._forward, self._send_first, self.process.queues.take_returned
        )
        self.outgoing.open_after(self.encoded(self.session.greeting()), self.process.store.ticket)

    def _judge(self, hello: Hello, resume: wire.Resume) -> None:
        """The peer has said who it is: it comes in, or an error says why not."""
        name, identity = hello.name, Identity.of(resume)
        other = self.driver.endpoints.get(name)
        if isinstance(other, NeighbourEnd) and other is not self:
            if bool(other.dialled) != bool(self.dialled) and bool(other.dialled) == (self.driver.broker.name < name):
                raise PeerError(f"{name!r} is connected already: one side of a link dials")
            if other.identity is not None:
                check_rival(name, identity, other.identity)
        check_admitted(self.driver.neighbours.get(name), resume, self.driver.history)
        self.driver.check_newer(hello, resume)
        self.identity = identity
        self.greeted(hello)
        if self.session is None:
            self._connect(name)
        session = self._met()
        session.admit(resume)
        self.driver.take(hello, name)
        link = self.driver.broker.links.get(name)
        if link is not None and link.is_met:
            session.resume(resume)

    def _send_first(self, message: Message) -> None:
        self.outgoing.hold_for(self.encoded(message), self.process.store.ticket)

    def _forward(self, numbers: Sequence[int], events: Sequence[bytes]) -> None:
        self.outgoing.events(encoded_entries(numbers, events, self.peer))

    def take_all(self, messages: list[Message]) -> None:
        for message in messages:
            if isinstance(message, Hello):
                self.claimed = message.name
            if isinstance(message, wire.Forward):
                self.note_event(message.number, message.event)
                self._met().take_events([message])
            else:
                self._take(message)
        self._acknowledge()

    def _acknowledge(self) -> None:
        acknowledgement = None if self.session is None else self.session.acknowledgement()
        if acknowledgement is not None:
            received, ticket = acknowledgement
            self.outgoing.answer(self.encoded(received), ticket)

    def take_postponed(self) -> None:
        """Events that have waited for room on the disk, if there is some."""
        if self.session is None or self.reason:
            return
        try:
            while self.session.take_postponed():
                pass
            self._acknowledge()
        except (PeerError, CallerError) as error:
            self._fault(error)
        if self.session.is_to_begin_again:
            self.close("there is room on the disk again: send again what was not acknowledged")

    def _met(self) -> NeighbourSession:
        if self.session is None:
            raise PeerError("an event before Hello and Resume")
        return self.session

    def _take(self, message: Message) -> None:
        if isinstance(message, Refused):
            if self.driver.ends_here(self.name, message, self.identity.store if self.identity else ""):
                self.process.end_as_old_copy()
            if message.code == "cycle" and self.name:
                self.driver.take(message, self.name)
                self.driver.note_cycle(self.name)
        elif self.identity is None:
            both = self._greeting.take(message)
            if both is not None:
                self._judge(*both)
        elif isinstance(message, wire.Received | wire.Returned | Flushed):
            self._met().take(message)
        elif isinstance(message, wire.Gap):
            self.note_gap(message)
            self._met().take_gap(message)
        elif isinstance(message, wire.NodeMessage):
            raise PeerError(f"a neighbour takes no {type(message).__name__}")
        else:
            if isinstance(message, Hello):
                self.greeted(message)
            self.driver.take(message, self.name)
            if self.session is not None and self.session.reads_again:
                self.close("the space has grown: send again what was not acknowledged")

    def peer_left(self) -> None:
        if self.session is not None and self.driver.endpoints.get(self.name) is self:
            self.session.end()
            link = self.driver.broker.links.get(self.name)
            is_nothing = link is None or link.admission.is_new
            self.driver.gone(self.name, self, forget=is_nothing)
            if is_nothing:
                self.driver.drop_idle_stream(self.name)
