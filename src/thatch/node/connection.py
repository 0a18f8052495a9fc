"""A connection: a WebSocket, what waits to be written to it, and what comes over it from a client or a neighbour."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeVar

import aiohttp
from aiohttp import web

from thatch.delivery.doors import Greeting, Identity, check_rival, claimed_name
from thatch.delivery.driver import ClientEndpoint, Endpoint
from thatch.delivery.history import check_admitted
from thatch.delivery.neighbour import NeighbourSession, encoded_entries
from thatch.delivery.outgoing import Overflow
from thatch.delivery.publisher import PublisherSession
from thatch.errors import CallerError, PeerError
from thatch.node.host import Host
from thatch.node.outgoing import SocketOutgoing
from thatch.protocol import wire
from thatch.protocol.codec import BYTES_MAX, encode
from thatch.protocol.kinds import KINDS, Peer
from thatch.protocol.messages import Extend, Flushed, Grow, Hello, Message, Publish, Refused
from thatch.protocol.versions import SUBPROTOCOL

log = logging.getLogger("thatch.node")
Socket = web.WebSocketResponse | aiohttp.ClientWebSocketResponse
Transport = asyncio.WriteTransport | None
SLICE_SECONDS = 0.005  # of handling one connection's messages before others have their turn
CLOSE_SECONDS = 2.0
READS_AGAIN = "the space has grown: send again what was not acknowledged"
T = TypeVar("T", bound=Message)
RUN_MAX = 256  # events that are routed at once


class Connection(Endpoint):
    """`name` is empty until the peer has said who it is."""

    kind: object

    def __init__(
        self, node: Host, socket: Socket, outgoing: SocketOutgoing, transport: Transport, bytes_max: int
    ) -> None:
        """`transport`: what is below the WebSocket, which knows when it is closed; the number of its socket would soon
        be that of somebody else's. None if the peer has gone already."""
        self.node, self.socket, self.outgoing = node, socket, outgoing
        self.peer = Peer(_subprotocol(socket) == SUBPROTOCOL)
        self.name, self._claims = "", "a peer"
        self.reason = ""  # why it was closed from here
        self.overflowed = False  # that is why
        self.moved_at = 0.0  # when a frame was written last
        self._transport = transport
        self._bytes_max = bytes_max
        self._fills_at = node.config.flow.client_bytes_max // 2
        self._frames: wire.Frames | None = None
        self._space: Any = None

    async def run(self) -> None:
        """Read and write until the connection ends."""
        writer = asyncio.create_task(self._write())
        try:
            await self._read()
        finally:
            writer.cancel()
            with suppress(asyncio.CancelledError, ConnectionError):
                await writer
            self.ended()

    async def _read(self) -> None:
        async for frame in self.socket:
            if frame.type is not aiohttp.WSMsgType.BINARY:
                self.close(f"a frame is MessagePack in a binary message, not {frame.type.name}")
                continue
            if self.reason:
                continue
            try:
                await self.take_all(self._decoded(frame.data))
            except (PeerError, CallerError) as error:
                self._fault(error)
            except Overflow as error:
                self.overflow(error)

    def _fault(self, error: PeerError | CallerError) -> None:
        """The peer broke a rule, outside of what the broker answers: it gets the reason, and is hung up on."""
        self.node.driver.note_refusal(error.code, self.name or self._claims, str(error))
        if self.peer.is_extensible:
            self.send_refusal(Refused(0, self.refuses_as(error), str(error), code=error.code), close=True)
        else:
            self.close(str(error))

    def refuses_as(self, error: PeerError | CallerError) -> str:
        """Who refuses the peer, if it has to be able to tell."""
        return ""

    def _decoded(self, data: bytes) -> list[Message]:
        space = self.node.driver.broker.space
        if self._frames is None or self._space is not space:
            self._space, self._frames = space, wire.Frames(space, self.kind, self._bytes_max, self._skipped)
        return self._frames.decode(data)

    def _skipped(self, kind: str) -> None:
        self.node.note_skipped(kind, self.name or "a peer")

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            frame = self.outgoing.take()
            if frame is None:
                await self.outgoing.wait()
                continue
            try:
                await self.socket.send_bytes(frame)
            except (ConnectionError, aiohttp.ClientError):
                return  # the reader notices
            self.moved_at = loop.time()

    @property
    def is_filled(self) -> bool:
        """Whether half of what may wait to be read does."""
        return self.outgoing.events_bytes > self._fills_at

    async def take_all(self, messages: list[Message]) -> None:
        """Handle the messages of a frame, in slices. What is left when the connection is closed from here is not: by
        then another one may have taken its place, to which the peer says it again."""
        raise NotImplementedError

    def ended(self) -> None:
        raise NotImplementedError

    def greeted(self, hello: Hello) -> None:
        """The peer has said what it can; if that is not enough, the broker refuses it."""
        with suppress(PeerError):
            self.peer = self.peer.greeted(KINDS.agreed(hello))

    def encoded(self, message: Message) -> bytes:
        """A message as the peer can read it; nothing if it is left out."""
        readable = KINDS.readable(message, self.peer)
        return b"" if readable is None else encode(readable)

    def send(self, message: Message) -> None:
        """A control message: sent when what was recorded so far is on disk."""
        try:
            put = self.outgoing.hold_for if isinstance(message, Extend | Grow) else self.outgoing.control
            encoded = self.encoded(message)
            if encoded:
                put(encoded, self.node.driver.journal.ticket)
        except PeerError as error:  # it cannot read what it would have to
            self._fault(error)
        except Overflow as error:
            self.overflow(error)

    def overflow(self, error: Overflow) -> None:
        if not self.reason:
            log.warning("hanging up on %s, which does not read: %s", self.name, error)
            self.reason, self.overflowed = str(error), True
            self.cut()

    def send_refusal(self, refused: Refused, close: bool) -> None:
        if not close:
            self.send(refused)
            return
        self.outgoing.refusal(self.encoded(refused))  # the session is over: it waits for no record
        self.close(refused.reason)

    def close(self, reason: str, code: int = wire.CLOSED_FOR_FAULT) -> None:
        """Send the reason, and hang up."""
        if not self.reason:
            self.reason = reason
            self.node.spawn(self._close(reason, code))

    async def _close(self, reason: str, code: int) -> None:
        await asyncio.sleep(0)  # let the writer have its turn
        text = reason.encode()[:120].decode(errors="ignore").encode()
        with suppress(asyncio.TimeoutError, ConnectionError):
            await asyncio.wait_for(self.socket.close(code=code, message=text), CLOSE_SECONDS)
        self.cut()

    def cut(self) -> None:
        """Close the socket at once, whatever is under way. Nothing is done if it is closed."""
        if self._transport is not None:
            self._transport.abort()


class ClientConnection(Connection, ClientEndpoint):
    kind = wire.FromClient

    def __init__(self, node: Host, socket: Socket, outgoing: SocketOutgoing, transport: Transport) -> None:
        super().__init__(node, socket, outgoing, transport, node.config.limits.frame_bytes_max)
        self.publisher: PublisherSession | None = None  # once it is known who the client is

    async def take_all(self, messages: list[Message]) -> None:
        turn = time.monotonic() + SLICE_SECONDS
        at = 0
        while at < len(messages) and not self.reason:
            message = messages[at]
            if type(message) is Publish and self.publisher is not None:
                events = _run_of(Publish, messages, at)
                for refused in self.publisher.take_events(events):
                    self.send_refusal(refused, close=False)
                at += len(events)
            elif type(message) is wire.Refill and self.publisher is not None:
                refill = self.publisher.take_refill(message, self.node.queues.take_refill)
                if refill is not None:
                    self.send_refusal(refill, close=False)
                at += 1
            else:
                self._control(message)
                at += 1
            if time.monotonic() > turn:
                await asyncio.sleep(0)
                turn = time.monotonic() + SLICE_SECONDS
        acknowledgement = None if self.publisher is None or self.reason else self.publisher.acknowledgement()
        if acknowledgement is not None:
            published, ticket = acknowledgement
            self.outgoing.answer(encode(published), ticket)
            await self.node.wait_for_backlog()

    def _control(self, message: Message) -> None:
        if not self.name:
            self._meet(message)
        elif isinstance(message, wire.NodeMessage):
            self.node.queues.take(message, self)
        else:
            self.node.driver.take(message, self.name)

    def _meet(self, greeting: Message) -> None:
        driver, self._claims = self.node.driver, claimed_name(greeting)
        link = driver.broker.links.get(greeting.name) if isinstance(greeting, Hello) else None
        message = self.node.doors.check_client(greeting, was_met=link is not None and not link.is_client)
        other = driver.endpoints.get(message.name)
        if isinstance(other, ClientConnection):
            other.close(f"another connection came as {message.name!r}", wire.CLOSED_FOR_ANOTHER)
            other.ended()
        self.name = message.name
        self.publisher = PublisherSession(driver, self.name)
        self.greeted(message)
        driver.connect(self.name, self)
        self.node.client_connected(self)
        driver.take(driver.next_link_up(is_client=True), self.name)
        driver.take(message, self.name)

    def send_refusal(self, refused: Refused, close: bool) -> None:
        if refused.seq:
            super().send_refusal(refused, close)
            return
        self.outgoing.refusal(self.encoded(refused))  # before the event counts as published
        if close:
            self.close(refused.reason)

    def deliver(self, ids: tuple[str, ...], event: bytes) -> None:
        if self.reason:
            return
        try:
            self.outgoing.event(wire.encoded_event(ids, event))
        except Overflow as error:
            self.overflow(error)
        if self.outgoing.events_bytes > self._fills_at:
            self.node.note_backlog(self)

    def ended(self) -> None:
        if self.name and self.node.driver.endpoints.get(self.name) is self:
            self.node.queues.detach(self)
            self.node.client_left(self)
            self.node.driver.gone(self.name, self)


class NeighbourConnection(Connection):
    """One that was dialled from here has a link at once; one that dials has none before it was judged."""

    kind = wire.FromNeighbour

    def __init__(
        self, node: Host, socket: Socket, outgoing: SocketOutgoing, transport: Transport, dialled: str = ""
    ) -> None:
        """`dialled`: the neighbour that was dialled from here."""
        super().__init__(node, socket, outgoing, transport, BYTES_MAX)
        self.dialled = dialled
        self.session: NeighbourSession | None = None  # once there is a link
        self.identity: Identity | None = None  # once it was judged
        self.was_met = False  # and can send events
        self.was_refused = False  # by one side or the other, before that
        self.closes_cycle = False  # why it was
        self._greeting = Greeting(node.doors, dialled)
        if dialled:
            self._connect(dialled)

    def _connect(self, name: str) -> None:
        """A link leads here from now on."""
        driver = self.node.driver
        self.node.give_name_to_neighbour(name)
        other = driver.endpoints.get(name)
        if isinstance(other, NeighbourConnection):
            other.close(f"another connection came as {name!r}", wire.CLOSED_FOR_ANOTHER)
            other.ended()
        self.name = name
        driver.connect(name, self)
        driver.take(driver.next_link_up(), name)
        outgoing = self.outgoing

        def send(numbers: Sequence[int], events: Sequence[bytes]) -> None:
            outgoing.events(encoded_entries(numbers, events, self.peer))

        self.session = NeighbourSession(driver, name, send, self._send_first, self.node.queues.take_returned)
        outgoing.open_after(self.encoded(self.session.greeting()), driver.journal.ticket)

    def _judge(self, hello: Hello, resume: wire.Resume) -> None:
        """The peer has said who it is: it comes in, or an error says why not."""
        driver, name, identity = self.node.driver, hello.name, Identity.of(resume)
        other = driver.endpoints.get(name)
        rival = other.identity if isinstance(other, NeighbourConnection) and other is not self else None
        if rival is not None and rival.store != identity.store:
            check_rival(name, identity, rival)
        check_admitted(
            driver.neighbours.get(name), resume, driver.history
        )  # of two copies of one store, it says which is to end
        if isinstance(other, NeighbourConnection) and other is not self:
            if bool(other.dialled) != bool(self.dialled) and bool(other.dialled) == (driver.broker.name < name):
                raise PeerError(f"{name!r} is connected already: one side of a link dials")
            if rival is not None:
                check_rival(name, identity, rival)
        driver.check_newer(hello, resume)
        self.identity = identity
        self.greeted(hello)
        if self.session is None:
            self._connect(name)
        session = self._met()
        session.admit(resume)
        driver.take(hello, name)
        link = driver.broker.links.get(name)
        if link is not None and link.is_met:
            self.was_met = True
            log.info("neighbour %s is connected", name)
            session.resume(resume)

    def _send_first(self, message: Message) -> None:
        """No event overtakes it."""
        self.outgoing.hold_for(self.encoded(message), self.node.driver.journal.ticket)

    async def take_all(self, messages: list[Message]) -> None:
        turn = time.monotonic() + SLICE_SECONDS
        at = 0
        while at < len(messages) and not self.reason:
            message = messages[at]
            if type(message) is wire.Forward:
                events = _run_of(wire.Forward, messages, at)
                self._met().take_events(events)
                at += len(events)
            else:
                self._take(message)
                at += 1
            if time.monotonic() > turn:
                await asyncio.sleep(0)
                turn = time.monotonic() + SLICE_SECONDS
        if self._acknowledge():
            await self.node.wait_for_backlog(but=self)

    def _acknowledge(self) -> bool:
        """The events that came since the last time. Whether there were any."""
        acknowledgement = None if self.session is None or self.reason else self.session.acknowledgement()
        if acknowledgement is None:
            return False
        received, ticket = acknowledgement
        self.outgoing.answer(self.encoded(received), ticket)
        return True

    async def take_postponed(self) -> None:
        """Events that have waited for room on the disk, if there is some."""
        session = self.session
        if session is None or self.reason:
            return
        try:
            while session.take_postponed() and not self.reason:
                await asyncio.sleep(0)
            self._acknowledge()
        except (PeerError, CallerError) as error:
            self._fault(error)
        if session.is_to_begin_again:
            self.close("there is room on the disk again: send again what was not acknowledged", wire.CLOSED_FOR_GOING)

    def _met(self) -> NeighbourSession:
        if self.session is None:
            raise PeerError("an event before Hello and Resume")
        return self.session

    def _take(self, message: Message) -> None:
        if isinstance(message, Refused):
            self.was_refused |= not self.was_met
            self.node.driver.note_refused_by(message.code, self.name or "a peer", message.reason)
            if self.node.driver.ends_here(self.name, message, self.identity.store if self.identity else ""):
                self.node.end_as_old_copy(self.name, message.reason)
            if message.code == "cycle" and self.name:
                self.closes_cycle = True
                self.node.driver.take(message, self.name)
                self.node.driver.note_cycle(self.name)
        elif self.identity is None:
            self._claims = claimed_name(message) if isinstance(message, Hello) else self._claims
            both = self._greeting.take(message)
            if both is not None:
                self._judge(*both)
        elif isinstance(message, wire.Received | wire.Returned | Flushed):
            self._met().take(message)
        elif isinstance(message, wire.Gap):
            self._met().take_gap(message)
        elif isinstance(message, wire.NodeMessage):
            raise PeerError(f"a neighbour takes no {type(message).__name__}")
        else:
            if isinstance(message, Hello):
                self.greeted(message)
            self.node.driver.take(message, self.name)
            if self.session is not None and self.session.reads_again:
                self.close(READS_AGAIN, wire.CLOSED_FOR_GOING)

    def send_refusal(self, refused: Refused, close: bool) -> None:
        self.closes_cycle |= refused.code == "cycle"
        super().send_refusal(refused, close)

    def refuses_as(self, error: PeerError | CallerError) -> str:
        return self.node.driver.journal.identity if error.code == "history" else ""

    def _fault(self, error: PeerError | CallerError) -> None:
        self.was_refused |= not self.was_met
        super()._fault(error)

    def ended(self) -> None:
        driver = self.node.driver
        if self.session is not None and driver.endpoints.get(self.name) is self:
            self.session.end()
            if self.was_met:
                log.info("neighbour %s is gone%s", self.name, f": {self.reason}" if self.reason else "")
            link = driver.broker.links.get(self.name)
            is_nothing = link is None or link.admission.is_new
            driver.gone(self.name, self, forget=is_nothing)
            if is_nothing:
                driver.drop_idle_stream(self.name)


def _subprotocol(socket: Socket) -> str | None:
    """What both sides of a WebSocket have agreed on."""
    return socket.ws_protocol if isinstance(socket, web.WebSocketResponse) else socket.protocol


def _run_of(kind: type[T], messages: list[Message], at: int) -> list[T]:
    """The messages of a kind that follow one another, some hundreds at most."""
    run: list[T] = []
    for message in messages[at : at + RUN_MAX]:
        if type(message) is not kind:
            break
        run.append(message)
    return run
