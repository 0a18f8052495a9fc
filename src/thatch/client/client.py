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
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Self

import aiohttp

from thatch.broker import ClientState
from thatch.client.durable import DurableSubscriptions
from thatch.client.finding import RETRY_SECONDS, space_at
from thatch.client.outbox import Outbox
from thatch.client.subscription import AsyncSubscription
from thatch.client.unacknowledged import Unacknowledged
from thatch.client.waiting import TIMEOUT_SECONDS, Until, Waiters, check_seconds, check_texts, to_stand, within
from thatch.errors import CallerError, PeerError, ThatchError, Unavailable, shown
from thatch.protocol import wire
from thatch.protocol.address import checked_url
from thatch.protocol.codec import BYTES_MAX, check_event, encode
from thatch.protocol.ids import ADVERTISEMENTS, SUBSCRIPTIONS, check_name, random_token
from thatch.protocol.messages import (
    Accepted,
    Deliver,
    Hello,
    Message,
    Publish,
    Refused,
    Settled,
    SettledExcept,
    Synced,
    UnknownKind,
    next_session,
)
from thatch.protocol.messages import Send as Sending
from thatch.protocol.versions import LIFE, SUBPROTOCOL
from thatch.space.space import Space

log = logging.getLogger("thatch.client")
HOME = "home"  # what the state machine calls the broker
TURN = 200  # messages to be written before the writer has its turn
BUFFER = 64 * 2**20  # bytes of events that a subscription holds until they are asked for
KEEP_BYTES, KEEP_SECONDS = 64 * 2**20, 7 * 86_400.0
DIAL_SECONDS = 5.0  # to open a connection
_PLAIN = {type(None), bool, int, float, str, Decimal, date, datetime}  # types of most values
_TEXT = {str}
CLOSE_SECONDS = 1.0  # for what is to be said before a connection is closed


class AsyncClient:
    """A client for programs with an event loop. `connect` makes it."""

    def __init__(
        self, url: str, name: str, space: Space, session: aiohttp.ClientSession, before: AsyncClient | None = None
    ) -> None:
        """`before`: the client of the broker from which durable subscriptions were moved to this one. Nobody waits for
        this one to be connected."""
        self.url, self.name, self.space = url, name, space
        self.connections: int = 0 if before is None else before.connections  # so far: what comes here comes after that
        self._session = session
        self._client = ClientState(name, space, token=random_token())
        self._frames = wire.Frames(space, wire.FromNode)
        self._number = 0  # of the session
        self._plain: dict[str, AsyncSubscription] = {}
        self._durable = DurableSubscriptions(self._say_if_synced, self._follow if before is None else None)
        self._elsewhere: dict[str, AsyncClient] = {}  # at brokers to which durable subscriptions were moved, by address
        self._following: set[asyncio.Task[None]] = set()
        self._waiters = Waiters()
        self._events = Unacknowledged(f"the broker at {url} to acknowledge an event")
        self._outbox = Outbox()
        self._is_synced = asyncio.Event()  # events may be sent
        self._resent_after = 0  # seq that has to settle first
        self._ids = 0
        self.failure: Exception | None = None  # why it has ended
        self._task = None if before is None else asyncio.create_task(self._stay())

    # --- Being there -------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def is_connected(self) -> bool:
        return self._is_synced.is_set()

    async def start(self, seconds: float | None) -> None:
        self._task = asyncio.create_task(self._stay())
        synced = asyncio.create_task(self._is_synced.wait())
        done, _ = await asyncio.wait([synced, self._task], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if synced not in done:
            synced.cancel()
            await self.close()
            raise self.failure or Unavailable(f"no broker answers at {self.url} within {seconds:g} seconds")

    async def close(self, *, timeout_seconds: float = CLOSE_SECONDS) -> None:
        """What was published and not acknowledged is waited for a little; then the connection is closed."""
        for task in self._following:
            task.cancel()
        for other in self._elsewhere.values():
            await other.close(timeout_seconds=timeout_seconds)
        if self._task is not None and not self._task.done():
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_seconds):
                    while self._events or self._outbox:
                        await asyncio.sleep(0.005)
            self._task.cancel()
            await asyncio.wait([self._task], timeout=2 * CLOSE_SECONDS)
        self._end(Unavailable("the client was closed"), is_closed=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._session.close()

    def _end(self, failure: Exception, is_closed: bool = False) -> None:
        """From now on every call raises the reason, and so does every call that waits. Subscriptions of a client that
        was closed just end."""
        self.failure = self.failure or failure
        self._events.fail(self.failure)
        self._waiters.fail(self.failure)
        self._durable.fail(self.failure, is_closed)
        for subscription in dict.fromkeys(self._plain.values()):
            subscription.end(None if is_closed else failure)

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
        except Exception as error:  # a fault of ours: nobody is to wait for a task that has ended
            log.exception("the connection to %s", self.url)
            self._end(ThatchError(f"the connection to {self.url} failed: {error!r}"))

    async def _serve_once(self) -> None:
        async with asyncio.timeout(DIAL_SECONDS):
            socket = await self._session.ws_connect(
                f"{self.url}/connect",
                max_msg_size=BYTES_MAX,
                heartbeat=20.0,
                protocols=(SUBPROTOCOL,),
                timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_SECONDS),
            )
        self._number = next_session(self._number, time.time())
        self.connections += 1
        self._outbox.begin(socket.protocol == SUBPROTOCOL)
        self._events.begin()
        self._send(self._client.connect(HOME, self._number))
        writer = asyncio.create_task(self._outbox.write(socket))
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
            with suppress(asyncio.CancelledError, ConnectionError, aiohttp.ClientError):
                await writer
            with suppress(TimeoutError):
                async with asyncio.timeout(2 * CLOSE_SECONDS):  # a broker that does not read takes no farewell
                    await socket.close()
        self._check_closed(socket.close_code)

    def _check_closed(self, code: int | None) -> None:
        """Raise if the broker has closed the connection for a reason that would close the next one, too."""
        refusals = self._client.refusals
        why = refusals[-1].reason if refusals else "it refuses this client"
        if code == wire.CLOSED_FOR_ANOTHER:
            raise PeerError(f"another client came as {self.name!r}: names are unique at a broker", code="name")
        if code == wire.CLOSED_FOR_FAULT:
            raise PeerError(f"the broker at {self.url} hung up: {why}")
        if code == wire.CLOSED_FOR_SIZE:
            raise PeerError(
                f"the broker at {self.url} hung up: a message of this client has more bytes than it reads. What a "
                "client wants and advertises is one message after a cut: shorten clauses, or use several clients",
                code="limit",
            )

    async def _end_session(self, socket: aiohttp.ClientWebSocketResponse, message: UnknownKind) -> None:
        """The broker sent what must be understood, and is not known here."""
        reason = f"{shown(message.kind)} is not a kind of message that this client knows"
        refused = self._outbox.encoded(Refused(message.seq, "", reason, code="kind"))
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await socket.send_bytes(wire.frame([refused]))
        raise PeerError(f"the broker at {self.url} is newer than this client: {reason}", code="kind")

    @property
    def life(self) -> str:
        """The life of the broker's store, as the last connection has said it."""
        return self._durable.life

    def _follow(self, subscription: AsyncSubscription, url: str) -> None:
        """A durable subscription was moved to another broker."""
        task = asyncio.create_task(self._go_on_at(url, subscription))
        self._following.add(task)
        task.add_done_callback(self._following.discard)

    async def _go_on_at(self, url: str, subscription: AsyncSubscription) -> None:
        try:
            while (other := self._elsewhere.get(url)) is None:
                session = aiohttp.ClientSession()
                try:
                    other = AsyncClient(url, self.name, await space_at(url, session, DIAL_SECONDS), session, self)
                    self._elsewhere[url] = other
                except Unavailable:
                    await session.close()
                    await asyncio.sleep(RETRY_SECONDS[1])
            self._durable.hand_over(subscription, other._durable)
        except ThatchError as error:
            subscription.end(error)

    def _say_if_synced(self, message: Message) -> bool:
        """What is not said now is said when the broker holds what this client wants."""
        if self._is_synced.is_set():
            self._outbox.say(message)
        return self._is_synced.is_set()

    def _send(self, sends: list[Sending]) -> None:
        for each in sends:
            self._outbox.say(each.message)

    # --- Subscribing and advertising ---------------------------------------------------------------------------------

    async def subscribe(
        self,
        where: str,
        id: str | None = None,
        durable: str | None = None,
        bytes_max: int = KEEP_BYTES,
        seconds_max: float = KEEP_SECONDS,
        settled: bool = True,
        *,
        timeout_seconds: float | None = TIMEOUT_SECONDS,
    ) -> AsyncSubscription:
        """Events that match a clause from now on: returns when it has settled, or with `settled=False` when the broker
        has accepted it. `durable` names a subscription that outlives the client: its events are kept at the broker, up
        to a limit, until they have been dealt with. Raises `TimedOut` if it takes longer than `timeout_seconds`, as all
        calls do; None: no limit."""
        self._check(timeout_seconds)
        check_texts(where, **{"the id of a subscription": id, "durable, the id of a subscription,": durable})
        if durable is not None:
            if id is not None:
                raise CallerError(f"durable={durable!r} is the id of the subscription: leave out id={id!r}")
            return await self._durable.subscribe(durable, where, (bytes_max, seconds_max), settled, timeout_seconds)
        return await self.subscribe_many({id or self._next_id(): where}, settled, timeout_seconds=timeout_seconds)

    async def subscribe_many(
        self, wheres: Mapping[str, str], settled: bool = True, *, timeout_seconds: float | None = TIMEOUT_SECONDS
    ) -> AsyncSubscription:
        """Clauses by id, as one subscription: an event that several of them want comes once."""
        self._check(timeout_seconds)
        if not isinstance(wheres, Mapping) or not wheres:
            raise CallerError("a subscription has at least one clause: {id: clause, …}")
        for id, where in wheres.items():
            check_texts(where, **{"the id of a subscription": id or ""})
            if id in self._plain:
                raise CallerError(f"there is a subscription {shown(id)}: replace it")
        subscription = AsyncSubscription(wheres, BUFFER)
        subscription.find_missing(lambda: self._client.missing_names(HOME, SUBSCRIPTIONS, subscription.wheres))
        self._plain.update(dict.fromkeys(wheres, subscription))
        waits = []
        for id, where in wheres.items():
            self._send(self._client.subscribe(HOME, id, where))
            waits.append(self._until(SUBSCRIPTIONS, id, settled))
        try:
            awaited = f"subscription {shown(subscription.id)} {to_stand(settled)}"
            async with within(timeout_seconds, awaited, lambda: self._why_not(SUBSCRIPTIONS, wheres)):
                await asyncio.gather(*waits)
        except BaseException:  # the caller has no handle to it: the broker need not send its events
            for id in wheres:
                self._plain.pop(id, None)
                self._withdraw(SUBSCRIPTIONS, id)
            raise
        return subscription

    async def advertise(
        self,
        where: str,
        id: str | None = None,
        settled: bool = True,
        *,
        timeout_seconds: float | None = TIMEOUT_SECONDS,
    ) -> str:
        """Say where this client will publish; needed before it does. The id of the advertisement."""
        self._check(timeout_seconds)
        check_texts(where, **{"the id of an advertisement": id})
        id = id or self._next_id()
        self._send(self._client.advertise(HOME, id, where))
        try:
            awaited = f"advertisement {shown(id)} {to_stand(settled)}"
            async with within(timeout_seconds, awaited, lambda: self._why_not(ADVERTISEMENTS, [id])):
                await self._until(ADVERTISEMENTS, id, settled)
        except BaseException:
            self._withdraw(ADVERTISEMENTS, id)
            raise
        return id

    async def unadvertise(self, id: str, *, timeout_seconds: float | None = TIMEOUT_SECONDS) -> None:
        self._check(timeout_seconds)
        if not isinstance(id, str) or (ADVERTISEMENTS, id) not in self._client.homes[HOME].wheres:
            raise CallerError(f"no advertisement {shown(id)}: `advertise` returns the id", code="unknown_id")
        self._send(self._client.unadvertise(HOME, id))
        awaited = f"the end of advertisement {shown(id)} to be accepted"
        async with within(timeout_seconds, awaited, lambda: self._why_not(ADVERTISEMENTS, [id])):
            await self._until(ADVERTISEMENTS, id, False)

    async def replace(
        self,
        subscription: AsyncSubscription,
        where: str,
        settled: bool = True,
        *,
        timeout_seconds: float | None = TIMEOUT_SECONDS,
    ) -> None:
        """Another clause for a subscription: an event that both want is not missed in between."""
        self._check(timeout_seconds)
        check_texts(where)
        _check_subscription(subscription)
        if subscription.durable:
            await self._durable.replace(subscription, where, settled, timeout_seconds)
            return
        self._send(self._client.replace(HOME, subscription.id, where))
        awaited = f"another clause of subscription {shown(subscription.id)} {to_stand(settled)}"
        async with within(timeout_seconds, awaited, lambda: self._why_not(SUBSCRIPTIONS, [subscription.id])):
            await self._until(SUBSCRIPTIONS, subscription.id, settled)
        subscription.wheres[subscription.id] = where

    async def unsubscribe(
        self, subscription: AsyncSubscription, *, timeout_seconds: float | None = TIMEOUT_SECONDS
    ) -> None:
        """For good: what is kept for a durable one goes, too. If the connection is lost it is said again."""
        self._check(timeout_seconds)
        _check_subscription(subscription)
        if subscription.durable:
            await self._durable.cancel(subscription, timeout_seconds)
        else:
            waits = []
            for id in subscription.wheres:
                self._send(self._client.unsubscribe(HOME, id))
                self._plain.pop(id, None)
                waits.append(self._until(SUBSCRIPTIONS, id, False))
            awaited = f"the end of subscription {shown(subscription.id)} to be accepted"
            async with within(timeout_seconds, awaited, lambda: self._why_not(SUBSCRIPTIONS, subscription.wheres)):
                await asyncio.gather(*waits)
        subscription.end()

    async def flush(self, *, timeout_seconds: float | None = TIMEOUT_SECONDS) -> None:
        """Before this client moves to another broker: returns when every event of a plain subscription that was on its
        way here has come. It waits for all brokers, also for one that is away, until that returns or is forgotten:
        `TimedOut` says that some have not answered, and then events may still be on their way."""
        self._check(timeout_seconds)
        self._send(self._client.flush(HOME))
        awaited = "events that are on their way to this client"
        async with within(timeout_seconds, awaited, lambda: self._broker_away() or "not all brokers have answered"):
            await self._waiters.add_flush()

    def _broker_away(self) -> str:
        """Whether it is this client's own broker that is away."""
        return "" if self._client.homes[HOME].is_synced else f"there is no connection to {self.url}"

    def _why_not(self, table: str, ids: Iterable[str]) -> str:
        """Why what was asked for has not come about, as far as is known here."""
        home = self._client.homes[HOME]
        unaccepted = {id for (kind, id), _ in home.before.values() if kind == table}
        if self._broker_away() or unaccepted.intersection(ids):
            return self._broker_away() or f"the broker at {self.url} has not answered"
        return "the broker has accepted it, and waits for other brokers"

    def missing(self, what: AsyncSubscription | str) -> tuple[str, ...]:
        """The brokers that are away, behind which a subscription, or an advertisement by its id, has not settled."""
        return self._client.missing_names(HOME, ADVERTISEMENTS, [what]) if isinstance(what, str) else what.missing

    async def wait_settled(
        self, what: AsyncSubscription | str, *, timeout_seconds: float | None = TIMEOUT_SECONDS
    ) -> None:
        """Wait until one has settled everywhere: brokers that are away are back, or forgotten."""
        self._check()
        if not isinstance(what, str) and what.durable:
            await self._durable.wait_settled(what, timeout_seconds)
            return
        table, ids = (ADVERTISEMENTS, [what]) if isinstance(what, str) else (SUBSCRIPTIONS, [*what.wheres])
        waits = self._waiters.add_whole(self._client.homes[HOME].changed_at, table, ids)
        async with within(timeout_seconds, f"{', '.join(map(shown, ids))} to settle everywhere"):
            await asyncio.gather(*waits)

    def _withdraw(self, table: str, id: str) -> None:
        """Take back what a call that has failed has asked for, unless the broker refused it."""
        if self.failure is None and (table, id) in self._client.homes[HOME].wheres:
            end = self._client.unsubscribe if table == SUBSCRIPTIONS else self._client.unadvertise
            self._send(end(HOME, id))

    def _check(self, timeout_seconds: float | None = None) -> None:
        check_seconds(timeout_seconds)
        if self.failure is not None:
            raise self.failure

    def _next_id(self) -> str:
        self._ids += 1
        return f"{self._number:x}.{self._ids}"

    def _until(self, table: str, id: str, settled: bool) -> asyncio.Future[None]:
        """For what has just been said, or will be when the link is synced."""
        until = Until.SETTLED if settled else Until.ACCEPTED
        return self._waiters.add(self._client.homes[HOME].changed_at.get((table, id), 0), table, id, until)

    # --- Publishing --------------------------------------------------------------------------------------------------

    async def publish(
        self, event: Mapping[str, Any], payload: bytes = b"", *, timeout_seconds: float | None = TIMEOUT_SECONDS
    ) -> str:
        """Publish an event: returns its id when the broker has it, on disk if a durable subscription may want it. After
        `TimedOut` it may still be published."""
        self._check(timeout_seconds)
        async with within(timeout_seconds, f"the broker at {self.url} to acknowledge an event"):
            return await (await self.post(event, payload, timeout_seconds=None))

    async def post(
        self, event: Mapping[str, Any], payload: bytes = b"", *, timeout_seconds: float | None = TIMEOUT_SECONDS
    ) -> asyncio.Future[str]:
        """Publish without waiting for the acknowledgement, which the future brings. Waits while much is under way. The
        future, too, raises `TimedOut` after `timeout_seconds`; the event may still be published then."""
        self._check(timeout_seconds)
        if len(self._outbox) >= TURN:  # a loop that publishes lets other tasks work
            await asyncio.sleep(0)
        if self._events.is_full:
            async with within(timeout_seconds, f"the broker at {self.url} to acknowledge events published before"):
                while self._events.is_full:
                    await self._events.wait_for_room()
                    self._check()
        return self.post_now(event, payload, timeout_seconds=timeout_seconds)

    def post_now(
        self, event: Mapping[str, Any], payload: bytes = b"", *, timeout_seconds: float | None = TIMEOUT_SECONDS
    ) -> asyncio.Future[str]:
        """`post`, however much is under way."""
        self._check(timeout_seconds)
        if not isinstance(event, Mapping):
            raise CallerError(f"an event is a mapping of attributes to values, not {shown(event)}")
        if not isinstance(payload, bytes):
            raise CallerError(f"the payload of an event is bytes, not {shown(payload)}")
        if not (_TEXT.issuperset(map(type, event)) and _PLAIN.issuperset(map(type, event.values()))):
            check_event(event)
        id = self._client.next_event_id()
        try:
            encoded = encode(Publish(id, event, payload))  # type: ignore[arg-type]
        except Exception:
            check_event(event)
            raise
        if len(encoded) > wire.EVENT_MAX:
            raise CallerError(f"an event of {len(encoded):,} bytes; at most {wire.EVENT_MAX:,} are taken")
        future = self._events.add(id, encoded, timeout_seconds)
        if self._is_synced.is_set():
            self._outbox.say_encoded(encoded)
            self._events.note_sent(1)
        return future

    async def refill(self, id: str, place: int, event: bytes | None) -> asyncio.Future[str]:
        """What a durable subscription kept at another broker, in order from place 1; None at the end."""
        self._check()
        while self._events.is_full:
            await self._events.wait_for_room()
            self._check()
        message = wire.Refill(id, place, None if event is None else wire.around(event))
        future = self._events.add(message.name, encode(message), None)
        if self._is_synced.is_set():
            self._outbox.say_encoded(encode(message))
            self._events.note_sent(1)
        return future

    # --- What comes --------------------------------------------------------------------------------------------------

    def _take(self, message: Message) -> None:
        try:
            if isinstance(message, wire.Event):
                self._deliver(message)
            elif isinstance(message, wire.DurableEvent):
                self._durable.event(message)
            elif isinstance(message, wire.Published):
                self._events.count(message.count)
            elif isinstance(message, wire.DurableStatus):
                self._durable.status(message)
            elif isinstance(message, wire.Lost):
                self._durable.lost(message)
            elif isinstance(message, SettledExcept) and message.id:
                self._durable.settled_except(message)
            elif isinstance(message, wire.Notice) and message.id:
                self._durable.notice(message)
            elif isinstance(message, wire.Notice):
                for subscription in dict.fromkeys(self._plain.values()):
                    subscription.noticed(message)
            else:
                self._control(message)
        except PeerError as error:
            raise PeerError(f"the broker at {self.url} broke a rule: {error}", code=error.code) from None
        except Exception as error:
            what = f"{type(message).__name__}: {error}" if str(error) else type(message).__name__
            raise PeerError(f"the broker at {self.url} said what this client does not expect: {what}") from error

    def _deliver(self, message: wire.Event) -> None:
        if self._client.deliver(Deliver(HOME, message.event, message.ids)):
            if len(message.ids) == 1:
                wanting = [self._plain.get(message.ids[0])]
            else:
                wanting = list(dict.fromkeys(map(self._plain.get, message.ids)))
            for subscription in wanting:
                if subscription is not None:
                    subscription.arrived(message.event)

    def _control(self, message: Message) -> None:
        if isinstance(message, Hello):
            self._outbox.greeted(message)
            life = message.capabilities.get(LIFE, "")
            self._durable.begin(self.connections, life if isinstance(life, str) else "")
        if isinstance(message, Refused) and self._events.refused(message):
            return
        sends = self._client.handle(message, HOME)
        self._send(sends)
        for each in sends:
            if isinstance(each.message, Synced):
                self._waiters.synced(each.message.seq)
                self._resent_after = each.message.seq if each.message.advertisements else 0
                if not self._resent_after:
                    self._resume()
        if isinstance(message, Accepted):
            self._waiters.accepted(message.seq)
        elif isinstance(message, Refused):
            self._waiters.refused(message)
        if self._client.is_flushed(HOME):
            self._waiters.flushed()
        if isinstance(message, Settled | SettledExcept):
            self._waiters.settled(message.seq, is_whole=isinstance(message, Settled))
            if self._resent_after and message.seq >= self._resent_after:
                self._resent_after = 0
                self._resume()

    def _resume(self) -> None:
        """The broker holds what this client wants and advertised: on with events."""
        self._is_synced.set()
        self._durable.resume()
        for event in self._events:
            self._outbox.say_encoded(event)
        self._events.note_sent(len(self._events))


def _check_subscription(subscription: object) -> None:
    if not isinstance(subscription, AsyncSubscription):
        raise CallerError(f"a subscription is what `subscribe` returned, not {shown(subscription)}")


async def connect(url: str, name: str | None = None, timeout_seconds: float | None = TIMEOUT_SECONDS) -> AsyncClient:
    """Connect to the client port of a broker. Names are unique at a broker; one is made up if none is given."""
    check_seconds(timeout_seconds)
    url = checked_url(url)
    if name is not None and not isinstance(name, str):
        raise CallerError(f"the name of a client is a text, not {shown(name)}")
    name = name or f"client-{secrets.token_hex(6)}"
    check_name(name)
    session = aiohttp.ClientSession()
    try:
        space = await space_at(url, session, timeout_seconds)
        client = AsyncClient(url, name, space, session)
        await client.start(timeout_seconds)
    except BaseException:
        await session.close()
        raise
    return client
