"""Client programs in simulated time, as package `client` behaves: they connect again, say again what was not answered,
and live through restarts of their broker. What they acknowledge of durable subscriptions may come late, also on a later
connection than the one on which the event came."""

from __future__ import annotations

import random
from collections import deque
from typing import Any, Protocol

from thatch.broker import ClientState
from thatch.broker.client_state import Home
from thatch.errors import PeerError
from thatch.protocol import wire
from thatch.protocol.codec import encode
from thatch.protocol.ids import ADVERTISEMENTS
from thatch.protocol.messages import Deliver, Hello, Message, Publish, Refused, Send, Settled, SettledExcept, Synced
from thatch.sim.agenda import Agenda
from thatch.sim.network import Clauses
from thatch.sim.node_pipe import Pipe

HOME = "home"
RETRY_SECONDS = 0.3
ACK_SECONDS = (0.0, 0.0, 0.0, 0.02, 0.3, 2.0)  # how long a program has to do with an event


class ProgramObserver:
    """Hears what programs see. This one does nothing."""

    def published(self, program: Program, event: Publish) -> None: ...
    def acknowledged(self, program: Program, event: Publish) -> None: ...
    def refused(self, program: Program, refused: Refused) -> None:
        """An event was refused."""

    def lost(self, program: Program, lost: wire.Lost) -> None:
        """A limit has cost a durable subscription events."""

    def handed_on(self, program: Program, id: str, number: int, event: Publish) -> None:
        """An event of the durable subscription `id` came, maybe not for the first time."""

    def delivered(self, program: Program, ids: tuple[str, ...], event: Publish) -> None:
        """An event came for these plain subscriptions."""

    def stands(self, program: Program, status: wire.DurableStatus) -> None: ...


class Around(Protocol):
    """What a program asks of the network around it."""

    agenda: Agenda
    rng: random.Random
    clauses: Clauses

    def connect(self, program: Program) -> Pipe | None:
        """A connection to the program's broker; None if nobody answers."""


class Program:
    """A client program: it publishes, and has plain and durable subscriptions."""

    def __init__(self, name: str, home: str, around: Around, observer: ProgramObserver) -> None:
        self.name, self.home, self._around, self.observer = name, home, around, observer
        self.state = ClientState(name, around.clauses.space, token=f"{around.rng.getrandbits(32):x}")
        self.state.homes[HOME] = Home()
        self.durable: dict[str, str] = {}  # clause by id
        self.cancels: dict[str, None] = {}
        self.outbox: deque[Publish] = deque()  # not acknowledged
        self.is_away = self.has_advertised = False  # what it advertised has settled, perhaps with exceptions
        self.end: ProgramEnd | None = None

    # --- What it is asked to do ---------------------------------------------------------------------------------------

    def publish(self, event: dict[str, Any]) -> Publish:
        made = Publish(self.state.next_event_id(), event)
        self.outbox.append(made)
        self.has_advertised |= self.state.missing(HOME, ADVERTISEMENTS, "a") is not None
        self.observer.published(self, made)
        if self.end is not None and self.end.is_resumed:
            self.end.publish([made])
        return made

    def advertise(self, id: str, where: str) -> None:
        self._say(self.state.advertise(HOME, id, where))

    def subscribe(self, id: str, where: str) -> None:
        self._say(self.state.subscribe(HOME, id, where))

    def unsubscribe(self, id: str) -> None:
        self._say(self.state.unsubscribe(HOME, id))

    def flush(self) -> None:
        self._say(self.state.flush(HOME))

    def keep(self, id: str, where: str) -> None:
        """Ask for a durable subscription, or for another clause of one."""
        self.durable[id] = where
        if self.end is not None and self.end.is_resumed:
            self.end.send([wire.DurableSubscribe(id, where, 2**40, 1e9)])

    def cancel(self, id: str) -> None:
        del self.durable[id]
        self.cancels[id] = None
        if self.end is not None and self.end.is_resumed:
            self.end.send([wire.DurableCancel(id)])

    def _say(self, sends: list[Send]) -> None:
        if self.end is not None:
            self.end.send([each.message for each in sends])

    # --- Its connection -----------------------------------------------------------------------------------------------

    def leave(self) -> None:
        """The program is away; what it has not acknowledged it acknowledges when it is back."""
        self.is_away = True
        if self.end is not None:
            self.end.pipe.cut()

    def come(self) -> None:
        self.is_away = False
        if self.end is None:
            pipe = self._around.connect(self)
            if pipe is None:
                self._later(RETRY_SECONDS * self._around.rng.uniform(0.5, 1.5))

    def joined(self, pipe: Pipe) -> ProgramEnd:
        """The pipe leads to this program's broker."""
        self.end = ProgramEnd(self, pipe, self._around)
        return self.end

    def lost(self, end: ProgramEnd) -> None:
        if self.end is end:
            self.end = None
            self.state.disconnect(HOME)
            self._later(self._around.rng.uniform(0.01, RETRY_SECONDS))

    def _later(self, seconds: float) -> None:
        def come() -> None:
            if not self.is_away and self.end is None:
                self.come()

        self._around.agenda.at(self._around.agenda.now + seconds, come)

    def acknowledge(self, id: str, number: int, life: str) -> None:
        """Also on a later connection than the one on which the event came, in that life of the broker's store."""
        if self.end is not None and self.end.is_resumed and id in self.durable:
            self.end.send([wire.Ack(id, number, life)])


class ProgramEnd:
    """The program's end of one connection."""

    def __init__(self, program: Program, pipe: Pipe, around: Around) -> None:
        self.program, self.pipe, self._around = program, pipe, around
        self.is_resumed = False
        self._life = ""  # of the broker's store
        self._sent: deque[Publish] = deque()  # and not counted
        self._counted = 0
        self._resumes_after = 0
        self._frames = wire.Frames(around.clauses.space, wire.FromNode)

    def greet(self, session: int) -> None:
        self.send([each.message for each in self.program.state.connect(HOME, session)])

    def send(self, messages: list[Message]) -> None:
        if messages:
            self.pipe.send(self, wire.frame(encode(each) for each in messages))

    def publish(self, events: list[Publish]) -> None:
        self._sent.extend(events)
        self.send([*events])

    def arrived(self, frame: bytes) -> None:
        if self.program.end is self:
            for message in self._frames.decode(frame):
                self._take(message)

    def ended(self) -> None:
        self.program.lost(self)

    def _take(self, message: Message) -> None:
        program = self.program
        if isinstance(message, wire.DurableEvent):
            self._take_kept(message)
        elif isinstance(message, wire.Event):
            if program.state.deliver(Deliver(HOME, message.event, message.ids)):
                program.observer.delivered(program, message.ids, message.event)
        elif isinstance(message, wire.Published):
            for _ in range(message.count - self._counted):
                event = self._sent.popleft()
                program.outbox.remove(event)
                program.observer.acknowledged(program, event)
            self._counted = message.count
        elif isinstance(message, wire.DurableStatus):
            self._take_status(message)
        elif isinstance(message, wire.Lost):
            program.observer.lost(program, message)
            self._acknowledge(message)
        elif isinstance(message, wire.Notice):
            raise PeerError(f"a notice for a program that reads what is lost: {message}")
        else:
            self._control(message)

    def _take_kept(self, message: wire.DurableEvent) -> None:
        self.program.observer.handed_on(self.program, message.id, message.number, message.event)
        self._acknowledge(message)

    def _acknowledge(self, message: wire.DurableEvent | wire.Lost) -> None:
        """At once, or when the program has done with it."""
        program, around = self.program, self._around
        seconds = around.rng.choice(ACK_SECONDS)
        if seconds:
            around.agenda.at(around.agenda.now + seconds, program.acknowledge, message.id, message.number, self._life)
        else:
            program.acknowledge(message.id, message.number, self._life)

    def _take_status(self, message: wire.DurableStatus) -> None:
        program = self.program
        if message.id in program.cancels and (message.state == "gone" or not message.where):
            del program.cancels[message.id]
        elif message.state == "refused" and program.durable.get(message.id) == message.where:
            seconds = self._around.agenda.now + 1.0
            self._around.agenda.at(seconds, self._ask_again, message.id, message.where)
        program.observer.stands(program, message)

    def _ask_again(self, id: str, where: str) -> None:
        if self.program.end is self and self.program.durable.get(id) == where:
            self.program.keep(id, where)

    def _control(self, message: Message) -> None:
        program = self.program
        if isinstance(message, Hello):
            self._life = str(message.capabilities.get("life", ""))
        if isinstance(message, Refused) and not message.seq and message.id:
            program.observer.refused(program, message)
        sends = program.state.handle(message, HOME)
        self.send([each.message for each in sends])
        for each in sends:
            if isinstance(each.message, Synced):
                self._resumes_after = each.message.seq if each.message.advertisements else 0
                if not self._resumes_after:
                    self._resume()
        if isinstance(message, Settled | SettledExcept) and self._resumes_after and message.seq >= self._resumes_after:
            self._resumes_after = 0
            self._resume()

    def _resume(self) -> None:
        program = self.program
        self.is_resumed = True
        self.send([wire.DurableCancel(id) for id in program.cancels])
        self.send([wire.DurableSubscribe(id, where, 2**40, 1e9) for id, where in program.durable.items()])
        if program.outbox:
            self.publish(list(program.outbox))
