"""A client of a node: asynchronous, reconnecting, at one broker.

    async with await connect("ws://127.0.0.1:7878", "ann") as ann:
        alerts = await ann.subscribe("price < 20", durable="alerts")
        await ann.advertise("price BETWEEN 0 AND 500")
        await ann.publish({"price": 12.5})
        async for event in alerts:
            print(event.event, event.payload)

What it wants and publishes is kept by the same state machine that the simulator drives (thatch.broker.ClientState);
this file adds the connection. When it is lost, it is dialled again, with growing pauses; the broker's digest says what
it still holds, and events that were not acknowledged are sent again under their ids. Events that come twice are handed
on once. An event of a durable subscription counts as dealt with when the next one is asked for."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Self

import aiohttp
import msgspec

from thatch.broker import ClientState
from thatch.client.finding import RETRY_SECONDS, checked_url, space_at
from thatch.client.subscription import AsyncSubscription
from thatch.errors import CallerError, PeerError, Unavailable, code_of, shown
from thatch.protocol import wire
from thatch.protocol.codec import BYTES_MAX, encode
from thatch.protocol.ids import ADVERTISEMENTS, SUBSCRIPTIONS, check_name, random_token
from thatch.protocol.kinds import KINDS, Peer
from thatch.protocol.messages import (
    Accepted,
    Deliver,
    Hello,
    Message,
    Publish,
    Refused,
    Settled,
    Synced,
    UnknownKind,
    next_session,
)
from thatch.protocol.messages import Send as Sending
from thatch.protocol.versions import SUBPROTOCOL
from thatch.space.space import Space

log = logging.getLogger("thatch.client")
HOME = "home"  # what the state machine calls the broker
WINDOW = 4 * 2**20  # bytes of events that are published and not acknowledged
FRAME = 256 * 1024
TURN = 200  # messages to be written before the writer has its turn
BUFFER = 64 * 2**20  # bytes of events that a subscription holds until they are asked for
KEEP_BYTES, KEEP_SECONDS = 64 * 2**20, 7 * 86_400.0


class _Unacknowledged(msgspec.Struct):
    id: str
    encoded: bytes
    future: asyncio.Future[str]


class _Waiter(msgspec.Struct):
    """For a change to be accepted, or to settle."""

    seq: int
    table: str
    id: str
    future: asyncio.Future[None]


class AsyncClient:
    """A client for programs with an event loop. `connect` makes it."""

    def __init__(self, url: str, name: str, space: Space, session: aiohttp.ClientSession) -> None:
        self.url, self.name, self.space = url, name, space
        self.connections = 0  # so far
        self._session, self._loop = session, asyncio.get_running_loop()
        self._client = ClientState(name, space, token=random_token())
        self._frames = wire.Frames(space, wire.FromNode)
        self._number = 0  # of the session
        self._plain: dict[str, AsyncSubscription] = {}
        self._durable: dict[str, AsyncSubscription] = {}
        self._until_accepted: deque[_Waiter] = deque()  # in order of seq
        self._until_settled: deque[_Waiter] = deque()
        self._status: dict[str, tuple[str, asyncio.Future[None]]] = {}  # durable id -> state that is waited for
        self._unacknowledged: deque[_Unacknowledged] = deque()
        self._by_id: dict[str, _Unacknowledged] = {}
        self._unacknowledged_bytes = 0
        self._published = 0  # acknowledged on this connection
        self._room: asyncio.Event = asyncio.Event()
        self._room.set()
        self._peer = Peer(False)
        self._outgoing: list[bytes] = []
        self._wake = asyncio.Event()
        self._is_synced = asyncio.Event()  # events may be sent
        self._resent_after = 0  # seq that has to settle first
        self._ids = 0
        self._failure: Exception | None = None
        self._task: asyncio.Task[None] | None = None

    # --- Being there -------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def is_connected(self) -> bool:
        return self._is_synced.is_set()

    async def start(self, seconds: float) -> None:
        self._task = asyncio.create_task(self._stay())
        synced = asyncio.create_task(self._is_synced.wait())
        done, _ = await asyncio.wait([synced, self._task], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if synced not in done:
            synced.cancel()
            await self.close()
            raise self._failure or Unavailable(f"no broker answers at {self.url} within {seconds:g} seconds")

    async def close(self) -> None:
        """What was published and not acknowledged is waited for a little; then the connection is closed."""
        if self._task is not None and not self._task.done():
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    while self._unacknowledged or self._outgoing:
                        await asyncio.sleep(0.005)
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        self._end(Unavailable("the client was closed"))
        await self._session.close()

    def _end(self, failure: Exception) -> None:
        self._failure = self._failure or failure
        for each in self._unacknowledged:
            _fail(each.future, self._failure)
        for waiter in (*self._until_accepted, *self._until_settled):
            _fail(waiter.future, self._failure)
        for _, future in self._status.values():
            _fail(future, self._failure)
        for subscription in dict.fromkeys((*self._plain.values(), *self._durable.values())):
            subscription.end()

    async def _stay(self) -> None:
        """Dial again whenever the connection is lost."""
        delay, longest = RETRY_SECONDS
        try:
            while True:
                try:
                    await self._serve_once()
                    delay = RETRY_SECONDS[0]
                except (OSError, aiohttp.ClientError, TimeoutError) as error:
                    log.debug("%s: %s", self.url, error)
                    delay = min(2 * delay, longest)
                await asyncio.sleep(delay * random.uniform(0.8, 1.2))
        except (PeerError, CallerError) as error:
            self._end(error)

    async def _serve_once(self) -> None:
        async with asyncio.timeout(5):
            socket = await self._session.ws_connect(
                f"{self.url}/connect",
                max_msg_size=BYTES_MAX,
                heartbeat=20.0,
                protocols=(SUBPROTOCOL,),
                timeout=aiohttp.ClientWSTimeout(ws_close=1.0),
            )
        self._number = next_session(self._number, time.time())
        self.connections += 1
        self._outgoing, self._published, self._peer = [], 0, Peer(socket.protocol == SUBPROTOCOL)
        self._send(self._client.connect(HOME, self._number))
        writer = asyncio.create_task(self._write(socket))
        try:
            async for frame in socket:
                if frame.type is aiohttp.WSMsgType.BINARY:
                    for message in self._frames.decode(frame.data):
                        if isinstance(message, UnknownKind):
                            await self._end_session(socket, message)
                        self._take(message)
        finally:
            self._is_synced.clear()
            self._client.disconnect(HOME)
            writer.cancel()
            with suppress(asyncio.CancelledError, ConnectionError):
                await writer
            await socket.close()
        if socket.close_code == wire.CLOSED_FOR_ANOTHER:
            raise PeerError(f"another client came as {self.name!r}: names are unique at a broker")
        if socket.close_code == wire.CLOSED_FOR_FAULT:
            raise PeerError(f"the broker at {self.url} hung up: {self._last_refusal()}")

    async def _end_session(self, socket: aiohttp.ClientWebSocketResponse, message: UnknownKind) -> None:
        """The broker sent what must be understood, and is not known here."""
        reason = f"{shown(message.kind)} is not a kind of message that this client knows"
        refused = Refused(message.seq, "", reason, code="kind")
        await socket.send_bytes(wire.frame([self._encoded(refused)]))
        raise PeerError(f"the broker at {self.url} is newer than this client: {reason}", code="kind")

    def _encoded(self, message: Message) -> bytes:
        """As the broker can read it."""
        readable = KINDS.readable(message, self._peer)
        return b"" if readable is None else encode(readable)

    def _last_refusal(self) -> str:
        return self._client.refusals[-1].reason if self._client.refusals else "it refuses this client"

    async def _write(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            parts, self._outgoing = self._outgoing, []
            at = 0
            while at < len(parts):
                end, size = at, 0
                while end < len(parts) and size < FRAME:
                    size += len(parts[end])
                    end += 1
                await socket.send_bytes(wire.frame(parts[at:end]))
                at = end

    def _say(self, encoded: bytes) -> None:
        self._outgoing.append(encoded)
        self._wake.set()

    def _send(self, sends: list[Sending]) -> None:
        for each in sends:
            self._say(self._encoded(each.message))

    # --- Subscribing and advertising ---------------------------------------------------------------------------------

    async def subscribe(
        self,
        where: str,
        id: str | None = None,
        durable: str | None = None,
        bytes_max: int = KEEP_BYTES,
        seconds_max: float = KEEP_SECONDS,
        settled: bool = True,
    ) -> AsyncSubscription:
        """Events that match a clause from now on: returns when it has settled, or with `settled=False` when the broker
        has accepted it. `durable` names a subscription that outlives the client: its events are kept at the broker, up
        to a limit, until they have been dealt with."""
        self._check()
        if durable is not None:
            if id is not None:
                raise CallerError(f"durable={durable!r} is the id of the subscription: leave out id={id!r}")
            return await self._subscribe_durably(durable, where, bytes_max, seconds_max, settled)
        return await self.subscribe_many({id or self._next_id(): where}, settled)

    async def subscribe_many(self, wheres: Mapping[str, str], settled: bool = True) -> AsyncSubscription:
        """Clauses by id, as one subscription: an event that several of them want comes once."""
        self._check()
        if not wheres:
            raise CallerError("a subscription has at least one clause: {id: clause, …}")
        for id in wheres:
            if id in self._plain:
                raise CallerError(f"there is a subscription {shown(id)}: replace it")
        subscription = AsyncSubscription(wheres, BUFFER)
        self._plain.update(dict.fromkeys(wheres, subscription))
        waits = []
        for id, where in wheres.items():
            self._send(self._client.subscribe(HOME, id, where))
            waits.append(self._until(SUBSCRIPTIONS, id, settled))
        try:
            await asyncio.gather(*waits)
        except BaseException:
            for id in wheres:
                self._plain.pop(id, None)
            raise
        return subscription

    async def advertise(self, where: str, id: str | None = None, settled: bool = True) -> str:
        """Say where this client will publish; needed before it does. The id of the advertisement."""
        self._check()
        id = id or self._next_id()
        self._send(self._client.advertise(HOME, id, where))
        await self._until(ADVERTISEMENTS, id, settled)
        return id

    async def unadvertise(self, id: str) -> None:
        self._check()
        self._send(self._client.unadvertise(HOME, id))
        await self._until(ADVERTISEMENTS, id, False)

    async def replace(self, subscription: AsyncSubscription, where: str, settled: bool = True) -> None:
        """Another clause for a subscription: an event that both want is not missed in between."""
        self._check()
        if subscription.durable:
            await self._ask_durable(subscription, where, settled)
        else:
            self._send(self._client.replace(HOME, subscription.id, where))
            await self._until(SUBSCRIPTIONS, subscription.id, settled)
            subscription.wheres[subscription.id] = where

    async def unsubscribe(self, subscription: AsyncSubscription) -> None:
        """For good: what is kept for a durable one goes, too."""
        self._check()
        if subscription.durable:
            wait = self._stands(subscription.id, "gone")
            self._say(self._encoded(wire.DurableCancel(subscription.id)))
            await wait
            self._durable.pop(subscription.id, None)
        else:
            waits = []
            for id in subscription.wheres:
                self._send(self._client.unsubscribe(HOME, id))
                self._plain.pop(id, None)
                waits.append(self._until(SUBSCRIPTIONS, id, False))
            await asyncio.gather(*waits)
        subscription.end()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _next_id(self) -> str:
        self._ids += 1
        return f"{self._number:x}.{self._ids}"

    def _until(self, table: str, id: str, settled: bool) -> asyncio.Future[None]:
        """For what has just been said: 0 if it will be said when the link is synced."""
        seq = self._client.homes[HOME].changed_at.get((table, id), 0)
        waiter = _Waiter(seq, table, id, asyncio.get_running_loop().create_future())
        (self._until_settled if settled else self._until_accepted).append(waiter)
        return waiter.future

    def _synced(self, seq: int) -> None:
        """Whatever was said so far is part of this message."""
        for waiter in (*self._until_accepted, *self._until_settled):
            waiter.seq = seq

    def _refused(self, message: Refused) -> None:
        for waiter in (*self._until_accepted, *self._until_settled):
            if (waiter.table, waiter.id) == (message.table, message.id) and waiter.seq <= message.seq:
                _fail(waiter.future, _refusal(message))

    # --- Durable subscriptions ---------------------------------------------------------------------------------------

    async def _subscribe_durably(
        self, id: str, where: str, bytes_max: int, seconds_max: float, settled: bool
    ) -> AsyncSubscription:
        if id in self._durable:
            raise CallerError(f"there is a durable subscription {shown(id)}: replace it")
        subscription = AsyncSubscription({id: where}, 2**62, self.done)  # the broker's window bounds it
        subscription.limits = bytes_max, seconds_max
        self._durable[id] = subscription
        try:
            await self._ask_durable(subscription, where, settled)
        except BaseException:
            self._durable.pop(id, None)
            raise
        return subscription

    async def _ask_durable(self, subscription: AsyncSubscription, where: str, settled: bool) -> None:
        wait = self._stands(subscription.id, "settled" if settled else "accepted")
        before, subscription.wheres[subscription.id] = subscription.where, where
        if self._is_synced.is_set():  # else it is said when it is
            self._say(self._encoded(wire.DurableSubscribe(subscription.id, where, *subscription.limits)))
        try:
            await wait
        except CallerError:
            subscription.wheres[subscription.id] = before
            raise

    def _stands(self, id: str, state: str) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._status[id] = state, future
        return future

    def _stood(self, message: wire.DurableStatus) -> None:
        state, future = self._status.get(message.id, ("", None))
        if future is None:
            return
        if message.state == "refused":
            _fail(future, _refusal(message))
        elif message.state == state or (message.state == "settled" and state == "accepted"):
            _succeed(future)
        else:
            return
        del self._status[message.id]

    def done(self, id: str, number: int) -> None:
        """The events of a durable subscription up to this one have been dealt with."""
        if self._is_synced.is_set():
            self._say(self._encoded(wire.Ack(id, number)))

    # --- Publishing --------------------------------------------------------------------------------------------------

    async def publish(self, event: Mapping[str, Any], payload: bytes = b"") -> str:
        """Publish an event: returns its id when the broker has it, on disk if a durable subscription may want it."""
        return await (await self.post(event, payload))

    async def post(self, event: Mapping[str, Any], payload: bytes = b"") -> asyncio.Future[str]:
        """Publish without waiting for the acknowledgement, which the future brings. Waits while much is under way."""
        self._check()
        if len(self._outgoing) >= TURN:  # a loop that publishes lets other tasks work
            await asyncio.sleep(0)
        while self._unacknowledged_bytes > WINDOW:
            self._room.clear()
            await self._room.wait()
            self._check()
        return self.post_now(event, payload)

    def post_now(self, event: Mapping[str, Any], payload: bytes = b"") -> asyncio.Future[str]:
        id = self._client.next_event_id()
        encoded = encode(Publish(id, event, payload))  # type: ignore[arg-type]
        if len(encoded) > wire.EVENT_MAX:
            raise CallerError(f"an event of {len(encoded):,} bytes; at most {wire.EVENT_MAX:,} are taken")
        each = _Unacknowledged(id, encoded, self._loop.create_future())
        self._unacknowledged.append(each)
        self._by_id[id] = each
        self._unacknowledged_bytes += len(encoded)
        if self._is_synced.is_set():
            self._say(encoded)
        return each.future

    def _acknowledged(self, count: int) -> None:
        for _ in range(count - self._published):
            each = self._unacknowledged.popleft()
            del self._by_id[each.id]
            self._unacknowledged_bytes -= len(each.encoded)
            if not each.future.done():
                each.future.set_result(each.id)
        self._published = count
        if self._unacknowledged_bytes <= WINDOW:
            self._room.set()

    # --- What comes --------------------------------------------------------------------------------------------------

    def _take(self, message: Message) -> None:
        kind = type(message)
        if kind is wire.Event:
            assert isinstance(message, wire.Event)
            if self._client.deliver(Deliver(HOME, message.event, message.ids)):
                if len(message.ids) == 1:
                    wanting = [self._plain.get(message.ids[0])]
                else:
                    wanting = list(dict.fromkeys(map(self._plain.get, message.ids)))
                for subscription in wanting:
                    if subscription is not None:
                        subscription.arrived(message.event, 0)
        elif isinstance(message, wire.DurableEvent):
            if message.id in self._durable:
                self._durable[message.id].arrived(message.event, message.number)
        elif isinstance(message, wire.Published):
            self._acknowledged(message.count)
        elif isinstance(message, wire.DurableStatus):
            self._stood(message)
        elif isinstance(message, wire.Notice):
            self._noticed(message)
        else:
            self._control(message)

    def _control(self, message: Message) -> None:
        if isinstance(message, Hello):
            self._peer = self._peer.greeted(KINDS.agreed(message))
        if isinstance(message, Refused) and not message.seq and message.id in self._by_id:
            _fail(self._by_id[message.id].future, _refusal(message))
            return
        sends = self._client.handle(message, HOME)
        self._send(sends)
        for each in sends:
            if isinstance(each.message, Synced):
                self._synced(each.message.seq)
                self._resent_after = each.message.seq if each.message.advertisements else 0
                if not self._resent_after:
                    self._resume()
        if isinstance(message, Accepted):
            _answer(self._until_accepted, message.seq)
        elif isinstance(message, Refused):
            self._refused(message)
        elif isinstance(message, Settled):
            _answer(self._until_settled, message.seq)
            if self._resent_after and message.seq >= self._resent_after:
                self._resent_after = 0
                self._resume()

    def _resume(self) -> None:
        """The broker holds what this client wants and advertised: on with events."""
        self._is_synced.set()
        for each in self._durable.values():
            self._say(self._encoded(wire.DurableSubscribe(each.id, each.where, *each.limits)))
        for event in self._unacknowledged:
            self._say(event.encoded)

    def _noticed(self, message: wire.Notice) -> None:
        concerned = [self._durable[message.id]] if message.id else list(dict.fromkeys(self._plain.values()))
        for subscription in concerned:
            subscription.noticed(message)


async def connect(url: str, name: str | None = None, seconds: float = 10.0) -> AsyncClient:
    """Connect to the client port of a broker. Names are unique at a broker; one is made up if none is given."""
    url = checked_url(url)
    name = name or f"client-{secrets.token_hex(6)}"
    check_name(name)
    session = aiohttp.ClientSession()
    try:
        space = await space_at(url, session, seconds)
        client = AsyncClient(url, name, space, session)
        await client.start(seconds)
    except BaseException:
        await session.close()
        raise
    return client


def _refusal(message: Refused | wire.DurableStatus) -> CallerError:
    return CallerError(message.reason, code=code_of(message.code))


def _answer(waiters: deque[_Waiter], seq: int) -> None:
    while waiters and waiters[0].seq <= seq:
        _succeed(waiters.popleft().future)


def _succeed(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        future.add_done_callback(lambda each: each.exception())  # a caller that does not wait for it ignores it
