"""Durable subscriptions: each is a client of the broker that is always there, and a stream that keeps its events.

DurableSubscribe ▶ connection ─▶ Queue ─ subscribes as "bob@alerts" ─▶ broker
      ◀ DurableEvent ── stream ◀──────────── Deliver ──────────┘
             Ack ▶      acknowledged: gone from the disk
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import msgspec

from thatch.delivery.driver import Driver
from thatch.delivery.history import ordinal_of
from thatch.delivery.journal import LifeRow, QueueRow
from thatch.delivery.local_client import LocalClient
from thatch.delivery.losses import LossLog
from thatch.delivery.stream import Limits, Stream
from thatch.errors import CallerError, shown
from thatch.protocol import wire
from thatch.protocol.codec import encode
from thatch.protocol.ids import (
    NAME_CHARACTERS_MAX,
    SUBSCRIPTIONS,
    check_durable_id,
    client_id,
    durable_name,
    is_durable_name,
    split_durable_name,
    without_alias,
)
from thatch.protocol.kinds import KINDS, Peer
from thatch.protocol.messages import Accepted, Message, Refused, Settled, SettledExcept
from thatch.protocol.records import DURABLE_QUEUE, PeerKey

log = logging.getLogger("thatch.node")

LOST_SINCE = KINDS.by_tag["lost"].since  # version
REFILLED = "~"  # after the name of a durable subscription: no client can have such an id
CANCELLED_MAX = 10_000  # names of durable subscriptions that clients have ended, of which that is remembered


class Outlet(Protocol):
    """What waits to be sent to a client."""

    def kept(self, messages: list[bytes]) -> None:
        """Events of a durable subscription; their stream bounds them."""

    def refusal(self, message: bytes) -> None:
        """A refusal, which waits for no record."""


class Reader(Protocol):
    """The connection of a client that reads durable subscriptions."""

    name: str

    @property
    def outgoing(self) -> Outlet:
        """What waits to be sent to it."""

    @property
    def peer(self) -> Peer:
        """What it can read."""

    def encoded(self, message: Message) -> bytes:
        """A message as the client can read it."""

    def send(self, message: Message) -> None:
        """Send a control message when what was recorded so far is on disk."""


class Queue(LocalClient):
    def __init__(self, driver: Driver, row: QueueRow, unacknowledged_bytes_max: int) -> None:
        super().__init__(driver, row.peer.name, durable=True)
        self.owner, self.id = split_durable_name(self.name)
        limits, home = _limits(row, unacknowledged_bytes_max), driver.broker.name
        self.stream = Stream(row.peer, driver.journal, limits, driver.first_number, row.lost, home)
        self.reader: Reader | None = None
        self.expires = row.expires  # interest that a neighbour has returned: when nodes have run for so long
        self.returned: list[str] = []  # clauses that neighbours have returned
        self.is_asked = False  # by its client, since the node was started
        self._lost_kept = row.lost
        self._loss_log = LossLog(f"durable subscription {row.peer.name}", row.lost)

    @property
    def row(self) -> QueueRow:
        limits = self.stream.limits
        return QueueRow(self.stream.peer, limits.bytes_max, limits.seconds_max, self.stream.lost, self.expires)

    def keep_for_good(self, bytes_max: int, seconds_max: float) -> None:
        """Its client has asked for it, with these limits."""
        before = self.row
        self.stream.set_limits(bytes_max, seconds_max)
        self.expires = None
        if self.row != before:
            self.driver.journal.put_queue(self.row)

    @property
    def where(self) -> str:
        return self.client.homes[self.home].wheres.get((SUBSCRIPTIONS, self.id), "")

    def subscribe(self, where: str) -> None:
        self.send_all(self.client.subscribe(self.home, self.id, where))

    def end_subscription(self) -> None:
        """No more events come."""
        if self.where:
            self.send_all(self.client.unsubscribe(self.home, self.id))

    def flush(self) -> None:
        """Ask for every event that is on its way here."""
        self.send_all(self.client.flush(self.home))

    @property
    def is_flushed(self) -> bool:
        return self.client.is_flushed(self.home)

    def deliver(self, ids: tuple[str, ...], event: bytes) -> None:
        self.stream.append(event, kept=True, stamp=self.driver.clock.stamp())
        if self.stream.lost != self._lost_kept:
            self.note_lost()

    def lose(self, gap: wire.Gap) -> None:
        self.stream.append_gap(gap, self.driver.clock.stamp())

    def note_lost(self) -> None:
        """How many events its limits have cost it so far, which the stream says by itself."""
        if self.stream.lost != self._lost_kept:
            self._lost_kept = self.stream.lost
            self.driver.journal.put_queue(self.row)
        self._loss_log.note(self.stream.lost, self.stream.suspected_lost, self.driver.clock())

    def answer_to(self, reader: Reader) -> None:
        """Answers of the broker go to this reader."""
        self.reader = reader

    def attach(self, reader: Reader) -> None:
        self.answer_to(reader)

        def send(numbers: Sequence[int], entries: Sequence[bytes]) -> None:
            reader.outgoing.kept([self._encoded(*each, reader) for each in zip(numbers, entries, strict=True)])

        self.stream.attach(send, 0)

    def _encoded(self, number: int, entry: bytes, reader: Reader) -> bytes:
        """An entry of the stream, as a reader takes it. One of an older version is told of a gap without its number."""
        if not wire.is_gap(entry):
            return encode(wire.DurableEvent(self.id, number, wire.around(entry)))
        gap = wire.decoded_gap(entry)
        if reader.peer.version >= LOST_SINCE:
            return encode(wire.Lost(self.id, number, *msgspec.structs.astuple(gap)[1:]))
        limits, reason = self.stream.limits, "more events were kept than limits allow"
        if gap.receiver == self.name:
            reason = f"more than {limits.bytes_max:,} bytes or {limits.seconds_max:g} seconds of events were kept"
        elif gap.sender:
            reason = f"more events were kept by {gap.sender} for {gap.receiver} than its limits allow"
        return encode(wire.Notice(self.id, gap.count, reason))

    def detach(self) -> None:
        self.reader = None
        self.stream.detach()

    def on_message(self, message: Message) -> None:
        if self.reader is None:
            return
        if isinstance(message, Accepted | Settled) and not self.where:
            return  # the end of one that was moved
        if isinstance(message, Accepted):
            self.reader.send(wire.DurableStatus(self.id, self.where, "accepted"))
        elif isinstance(message, Settled) and self.is_settled:
            self.reader.send(wire.DurableStatus(self.id, self.where, "settled"))
        elif isinstance(message, SettledExcept):
            self.say_missing(self.reader)
        elif isinstance(message, Refused):
            self.reader.send(wire.DurableStatus(self.id, self.where, "refused", message.reason, message.code))

    def say_missing(self, reader: Reader) -> None:
        """If it has settled except behind brokers that are away: which ones."""
        missing = self.client.missing(self.home, SUBSCRIPTIONS, self.id)
        if missing is not None and missing.brokers:
            reader.send(SettledExcept(0, missing.brokers, missing.others, self.id))

    @property
    def is_settled(self) -> bool:
        return self.client.is_settled(self.home, SUBSCRIPTIONS, self.id)


def _limits(row: QueueRow, unacknowledged_bytes_max: int) -> Limits:
    return Limits(
        bytes_max=row.bytes_max,
        seconds_max=row.seconds_max,
        memory_bytes_max=0,
        unacknowledged_bytes_max=unacknowledged_bytes_max,
    )


def refilled(queue: Queue) -> PeerKey:
    """Under which what comes from another broker is kept until all has come."""
    return PeerKey(DURABLE_QUEUE, f"{queue.name}{REFILLED}")


class Refilling:
    """What came of the events that a durable subscription kept at another broker, until all has come."""

    def __init__(self, queue: Queue, driver: Driver) -> None:
        limits = replace(queue.stream.limits, bytes_max=2**62)
        self.stream, self.place = Stream(refilled(queue), driver.journal, limits, driver.first_number), 0
        self._driver = driver
        self.drop()  # of what came before, and was not completed

    def drop(self) -> None:
        self._driver.retire(self.stream)
        self._driver.journal.discard(self.stream.peer, 2**63 - 1)


class Queues:
    def __init__(
        self,
        driver: Driver,
        bytes_max: int,
        seconds_max: float,
        unacknowledged_bytes_max: int,
        returned_seconds: float = 86_400.0,
    ) -> None:
        """`bytes_max` and `seconds_max`: the most that a durable subscription may ask for. What neighbours return after
        a restore is kept for `returned_seconds`."""
        self._returned_seconds = returned_seconds
        self._driver, self._unacknowledged_bytes_max = driver, unacknowledged_bytes_max
        self._bytes_max, self._seconds_max = bytes_max, seconds_max
        self._queues: dict[str, Queue] = {}
        self._refills: dict[str, Refilling] = {}  # by name
        self._moved = driver.journal.moved()  # where each is now
        self._cancelled: dict[str, None] = {}  # by clients, since a store that began in the past was started

    def __iter__(self) -> Iterator[Queue]:
        return iter(self._queues.values())

    def restore(self) -> None:
        """Before the store is started: what it holds. The broker has the subscriptions among its records."""
        for row in self._driver.journal.queues():
            queue = self._queues[row.peer.name] = Queue(self._driver, row, self._unacknowledged_bytes_max)
            for stored in self._driver.journal.stored(row.peer):
                queue.stream.restore(stored)
            records = self._driver.broker.received_from(SUBSCRIPTIONS, queue.name)
            queue.connect({client_id(id): where for id, where in records.items()})
            if queue.name in self._moved:
                queue.end_subscription()
            if any(self._driver.journal.stored(refilled(queue))):
                self._driver.journal.discard(refilled(queue), 2**63 - 1)  # the end of it has not come
        self._driver.announce_rollback()

    def is_queue(self, link: str) -> bool:
        return link in self._queues

    def take(self, message: Message, reader: Reader) -> None:
        if isinstance(message, wire.DurableSubscribe):
            try:
                self._subscribe(message, reader)
            except CallerError as error:
                status = wire.DurableStatus(message.id, message.where, "refused", str(error), error.code)
                reader.outgoing.refusal(reader.encoded(status))
        elif isinstance(message, wire.Ack):
            queue = self._queues.get(durable_name(reader.name, message.id))
            if queue is not None and queue.reader is reader and self._is_of_this_store(message, queue.stream):
                queue.stream.acknowledge(message.number)
                self._end_if_read(queue)
        elif isinstance(message, wire.DurableCancel):
            self._cancel(message.id, reader)

    def _known(self, where: str, name: str) -> str:
        """A clause that was returned; or everything, if it uses what this node does not know yet."""
        try:
            self._driver.broker.check_clause(where)
        except CallerError as error:
            log.warning("durable subscription %s was returned and cannot be read, so all is kept: %s", name, error)
            return "TRUE"
        return where

    def take_returned(self, subscriptions: dict[str, str]) -> None:
        """Interest of durable clients that this node had before its store went back to the past: what comes is kept for
        them for some time, until they have asked again."""
        rollback, now = self._driver.history.last_rollback, self._driver.clock()
        if rollback is None or rollback.since is None:
            return
        for id, where in subscriptions.items():
            home, _, name = without_alias(id).partition("/")
            name = name.partition("/")[0]
            if home != self._driver.broker.name or not is_durable_name(name):
                continue
            if name in self._cancelled:
                continue
            where = self._known(where, name)
            queue = self._queues.get(name)
            if queue is not None and self._has_asked(queue, rollback.at):
                continue
            if queue is None:
                expires = self._driver.clock.ran + self._returned_seconds
                row = QueueRow(PeerKey(DURABLE_QUEUE, name), self._bytes_max, self._seconds_max, 0, expires)
                queue = self._made(row)
            if where not in (queue.where, *queue.returned):
                queue.returned.append(where)  # which of them was asked for last, only the client knows
                queue.subscribe(f"({queue.where}) OR ({where})" if queue.where else where)
                self._driver.announce_gap(queue.stream.peer, "out", rollback.since, now, None)

    def _has_asked(self, queue: Queue, rollback_at: float) -> bool:
        """Whether its client has asked for a durable subscription after the store went back to the past: what it wanted
        before then means nothing any more."""
        is_announced = self._driver.has_announced(queue.stream.peer, rollback_at)
        return queue.is_asked or (queue.expires is None and is_announced and not queue.returned)

    def _made(self, row: QueueRow) -> Queue:
        """A new one."""
        queue = self._queues[row.peer.name] = Queue(self._driver, row, self._unacknowledged_bytes_max)
        self._driver.journal.put_queue(row)
        queue.connect()
        return queue

    def _announce(self, queue: Queue) -> None:
        """A client asks for what this store did not know: it may have asked before the store went back to the past,
        however long ago that was. Once it has asked, the store knows what it wants."""
        rollback = self._driver.history.last_rollback
        if rollback is not None and rollback.since is not None and not self._has_asked(queue, rollback.at):
            self._driver.announce_gap(queue.stream.peer, "out", rollback.since, self._driver.clock(), None)

    @property
    def _recent_rollback(self) -> LifeRow | None:
        """The life in which the store went back to the past, if that was so little time ago that clients and neighbours
        may still speak of what was before."""
        rollback = self._driver.history.last_rollback
        is_recent = rollback is not None and self._driver.clock() < rollback.at + self._returned_seconds
        return rollback if is_recent else None

    def _is_of_this_store(self, message: wire.Ack, stream: Stream) -> bool:
        """Whether an acknowledgement is of an event that this store has sent: one that was restored counts again from
        where its backup was, and there are clients that have seen it before."""
        if not message.life:
            return stream.has_sent(message.number)
        ordinal = self._driver.history.ordinal(message.life)
        return ordinal_of(message.number) <= ordinal and message.number <= stream.counted

    def _subscribe(self, message: wire.DurableSubscribe, reader: Reader) -> None:
        check_durable_id(message.id)
        if message.bytes_max < 1 or not message.seconds_max > 0:
            limits = f"{message.bytes_max} bytes for {message.seconds_max} seconds"
            raise CallerError(f"a durable subscription keeps some bytes for some time, not {limits}")
        name = durable_name(reader.name, message.id)
        if name in self._moved:
            self._attach_moved(name, message, reader)
            return
        bytes_max = min(message.bytes_max, self._bytes_max)
        seconds_max = min(message.seconds_max, self._seconds_max)
        self._driver.broker.check_clause(message.where)
        queue = self._queues.get(name)
        if (queue is None or queue.where != message.where) and self._driver.journal.is_full:
            why = f"the disk is full: {shown(message.id)} cannot be kept; try again when there is room"
            raise CallerError(why, code="disk_full")
        if queue is None:
            queue = self._made(QueueRow(PeerKey(DURABLE_QUEUE, name), bytes_max, seconds_max, 0))
        if queue.where != message.where:
            self._announce(queue)
        queue.is_asked = True
        self._cancelled.pop(name, None)
        queue.keep_for_good(bytes_max, seconds_max)
        if queue.where != message.where:
            queue.answer_to(reader)
            queue.subscribe(message.where)
        else:
            reader.send(wire.DurableStatus(message.id, message.where, "accepted"))
            if queue.is_settled:
                reader.send(wire.DurableStatus(message.id, message.where, "settled"))
            queue.say_missing(reader)
        queue.attach(reader)

    # --- Moved to another broker --------------------------------------------------------------------------------------

    def get(self, client: str, id: str) -> Queue:
        """The durable subscription of a client; an error if there is none here."""
        queue = self._queues.get(durable_name(client, id))
        if queue is None or not queue.where:
            raise CallerError(f"client {shown(client)} has no durable subscription {shown(id)} here", code="unknown_id")
        return queue

    def move(self, queue: Queue, url: str) -> None:
        """It lives at another broker now, which keeps every event that is published from here on. Its client reads what
        is left here first, and then is told where to go."""
        self._moved[queue.name] = url
        self._driver.journal.put_moved(queue.name, url)
        queue.end_subscription()
        self._end_if_read(queue)

    def remainder(self, client: str, id: str) -> Queue | None:
        """What is left here of one that was moved."""
        name = durable_name(client, id)
        return self._queues.get(name) if name in self._moved else None

    def end_moved(self, queue: Queue) -> None:
        """All that was left here is at the other broker, too."""
        if self._queues.get(queue.name) is queue:
            reader = queue.reader
            self._end(queue)
            if reader is not None:
                self._send_on(queue.name, queue.id, "", reader)

    def take_refill(self, message: wire.Refill, client: str) -> None:
        """Of what a broker kept from which a durable subscription was moved here, the next event; or the end of it."""
        queue = self.get(client, message.id)
        if self._driver.journal.is_full:
            raise CallerError("the disk is full: try again when there is room", code="disk_full")
        refilling = self._refills.get(queue.name)
        if message.place == 1:
            refilling = self._refills[queue.name] = Refilling(queue, self._driver)
        if refilling is None or message.place > refilling.place + 1:
            raise CallerError(
                f"what {shown(message.id)} kept elsewhere has to come from the first event on", code="later"
            )
        if message.place <= refilling.place:
            return
        refilling.place = message.place
        stamp = self._driver.clock.stamp()
        if isinstance(message.event, wire.Gap):
            refilling.stream.append_gap(message.event, stamp)
            return
        if message.event is not None:
            refilling.stream.append(encode(message.event), True, stamp)
            return
        del self._refills[queue.name]
        queue.stream.prepend(refilling.stream, stamp)
        refilling.drop()

    def _end_if_read(self, queue: Queue) -> None:
        """One that was moved ends here when its client has read all."""
        if queue.name in self._moved and queue.stream.is_empty:
            self.end_moved(queue)

    def _send_on(self, name: str, id: str, where: str, reader: Reader) -> None:
        url = self._moved[name]
        why = f"durable subscription {shown(id)} was moved to the broker at {url}"
        reader.send(wire.DurableStatus(id, where, "refused", why, "moved", url))

    def _attach_moved(self, name: str, message: wire.DurableSubscribe, reader: Reader) -> None:
        queue = self._queues.get(name)
        if queue is None:
            self._send_on(name, message.id, message.where, reader)
            return
        for state in ("accepted", "settled"):
            reader.send(wire.DurableStatus(message.id, message.where, state))
        queue.attach(reader)

    def _cancel(self, id: str, reader: Reader) -> None:
        name = durable_name(reader.name, id)
        queue = self._queues.get(name)
        self._note_cancelled(name)
        if name in self._moved:
            if queue is not None:
                self._end(queue)
            self._send_on(name, id, "", reader)
            return
        if queue is None:
            why = f"no durable subscription {shown(id)}"
            reader.send(wire.DurableStatus(id, "", "refused", why, "unknown_id"))
            return
        self._end(queue)
        reader.send(wire.DurableStatus(id, "", "gone"))

    def _note_cancelled(self, name: str) -> None:
        """A neighbour that returns it later does not make it anew."""
        if self._recent_rollback is not None and len(name) <= 2 * NAME_CHARACTERS_MAX + 1:
            self._cancelled[name] = None
            if len(self._cancelled) > CANCELLED_MAX:
                del self._cancelled[next(iter(self._cancelled))]

    def _end(self, queue: Queue) -> None:
        """A durable subscription is no more."""
        del self._queues[queue.name]
        queue.detach()
        self._driver.retire(queue.stream)
        self._driver.gone(queue.name, queue, forget=True)
        self._driver.journal.drop_queue(queue.stream.peer)

    def detach(self, reader: Reader) -> None:
        for queue in self._queues.values():
            if queue.reader is reader:
                queue.detach()

    def tick(self) -> None:
        ran = self._driver.clock.ran
        for queue in list(self._queues.values()):
            if queue.expires is not None and queue.expires < ran:
                log.warning("durable subscription %s: its client has not asked for it again, and it ends", queue.name)
                self._end(queue)
                continue
            queue.stream.tick()
            queue.stream.expire(ran)
            queue.note_lost()
            self._end_if_read(queue)
