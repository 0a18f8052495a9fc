"""Drives the broker: messages in, effects out to whatever each link leads to.

The broker is a state machine in one thread. A message is handled when it comes; its records go to the store, and what
follows them waits until they are on disk: control messages carry the journal's ticket with them and wait in the queue
of their connection, so nobody else does. Events are not held up by records at all: an event may overtake a
control message, never the other way round.
"""

from __future__ import annotations

import logging
import secrets
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import partial
from typing import TypeVar

import msgspec

from thatch.broker import Broker
from thatch.delivery.attachments import Attachments
from thatch.delivery.clock import Clock
from thatch.delivery.doors import Refusals
from thatch.delivery.history import History
from thatch.delivery.journal import AttachmentRow, ConfirmedRow, GapRow, Journal, NeighbourRow, ReceivedRow
from thatch.delivery.losses import LossLog
from thatch.delivery.received import Arrivals, Confirmations
from thatch.delivery.stream import Limits, Stream
from thatch.delivery.stream import Send as SendEvents
from thatch.errors import Code, PeerError, code_of
from thatch.protocol.codec import encode
from thatch.protocol.digest import KEY_BYTES
from thatch.protocol.messages import (
    OPERATOR,
    Attached,
    Deliver,
    Effect,
    Flushed,
    Hello,
    LinkDown,
    LinkUp,
    Message,
    Persist,
    Persisted,
    Publish,
    Refused,
    Reject,
    Send,
    Tick,
    next_session,
)
from thatch.protocol.records import DURABLE_QUEUE, NEIGHBOUR, PeerKey
from thatch.protocol.versions import EXCEPTIONS, LIFE
from thatch.protocol.wire import Gap, Resume

log = logging.getLogger("thatch.node")
GAPS_OF_PEER_MAX, GAPS_MAX = 64, 100_000  # intervals that are kept, of a peer and side, and in all
DISK_FULL = "the disk of broker {} is full: events that a durable subscription wants are refused until there is room"


R = TypeVar("R", ReceivedRow, ConfirmedRow)
T = TypeVar("T")
# Events as they go to a neighbour now, and as they are kept for it; the places of those that nobody has asked for yet.
Sending = tuple[list[bytes], list[bytes], set[int]]


class Outcome(Enum):
    """What became of an event."""

    ROUTED = 0
    KEPT = 1  # and to be acknowledged when it is on disk
    REFUSED = 2  # neither kept nor sent to anybody: the disk is full
    UNREAD = 3  # of a neighbour, and cannot be read: nothing from it on was taken


class Endpoint:
    """What a link leads to."""

    def send(self, message: Message) -> None:
        raise NotImplementedError

    def send_refusal(self, refused: Refused, close: bool) -> None:
        raise NotImplementedError


class ClientEndpoint(Endpoint):
    """What the link of a client leads to. Events for a neighbour go by its stream instead."""

    def deliver(self, ids: tuple[str, ...], event: bytes) -> None:
        """An encoded event, for subscriptions of the client."""
        raise NotImplementedError

    def lose(self, gap: Gap) -> None:
        """Events are lost which may have been for the client: a durable subscription keeps that."""


class Driver:
    def __init__(
        self,
        broker: Broker,
        journal: Journal,
        neighbour_limits: Limits,
        clock: Clock,
        reached: Callable[[int], None],
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        """`reached` hears up to which ticket all is on disk, and `random_bytes` draws so many
        that nobody can guess."""
        self.broker, self.journal, self.clock, self.random_bytes = broker, journal, clock, random_bytes
        self.endpoints: dict[str, Endpoint] = {}
        self.streams: dict[str, Stream] = {}  # to neighbours
        self.history = History(journal.lives())
        self.neighbours = {row.name: row for row in journal.neighbours()}
        self.attachments = Attachments(journal.attachments())
        self.gaps = sorted(journal.gaps(), key=lambda row: row.until)
        self.gaps_dropped = 0  # since the start, to make room for later ones
        self._gap_counts = Counter((each.peer, each.side) for each in self.gaps)
        self._gap_ends = {(each.peer, each.side): each.until for each in self.gaps}  # the latest: they are in order
        self._announced = {(each.peer, each.side, each.since, each.until): each for each in self.gaps}
        self._arrivals = _by_neighbour(journal.received(), lambda peer, rows: Arrivals(peer, journal, rows))
        ordinal = self.history.ordinal
        self._confirmations = _by_neighbour(
            journal.confirmed(), lambda peer, rows: Confirmations(peer, journal, rows, ordinal)
        )
        self.first_number = self.history.first_number  # what the numbers of a new stream follow
        self._greeted: dict[str, tuple[str, int]] = {}  # by neighbour: the life and the session that came in last
        self.refused_for_space = 0
        self.refusals, self.refused_by = Refusals(), Refusals()
        self._said_of_cycles = set[str]()  # neighbours; bounded by those that have links
        self._unattached: dict[str, tuple[SendEvents, int]] = {}  # neighbours that are not sent events yet
        self._limits, self._reached = neighbour_limits, reached
        self._loss_logs: dict[str, LossLog] = {}  # by neighbour
        self._inbox: deque[tuple[Message, str]] = deque()
        self._is_running = False
        self._session = 0
        self._tickets: deque[tuple[int, int]] = deque()  # ticket, number of a `Persist`

    def next_link_up(self, is_client: bool = False, durable: bool = False) -> LinkUp:
        """For a link that is connected now: it has a session of its own, and a key of its digest."""
        self._session = next_session(self._session, self.clock())
        return LinkUp(self._session, is_client, durable, self.random_bytes(KEY_BYTES))

    def stream(self, link: str) -> Stream:
        """The stream of events to a neighbour."""
        stream = self.streams.get(link)
        if stream is None:
            peer = PeerKey(NEIGHBOUR, link)
            name = self.broker.name
            stream = self.streams[link] = Stream(peer, self.journal, self._limits, self.first_number, broker=name)
            for row in self.journal.stored(peer) if not self.journal.is_started else ():
                stream.restore(row)
        return stream

    def drop_stream(self, link: str) -> None:
        """The stream to a neighbour that does not come again, and all that is kept for it."""
        stream = self.stream(link)
        self.retire(stream)
        stream.detach()
        self.journal.discard(stream.peer, 2**63 - 1)
        self._loss_logs.pop(link, None)
        del self.streams[link]

    def drop_idle_stream(self, link: str) -> None:
        """The stream of a link that never came about, unless it keeps something."""
        stream = self.streams.get(link)
        if stream is not None and stream.is_empty:
            self.retire(stream)
            del self.streams[link]

    def begin_sending(self, link: str, send: SendEvents, after: int) -> None:
        """A neighbour is there, and holds the events up to a number. If it was away for long, the others wait until it
        knows what was advertised meanwhile, and so does everybody behind it: an event would not find its way there."""
        if self._is_unaware(link):
            self._unattached[link] = send, after
        else:
            self.stream(link).attach(send, after)

    def end_sending(self, link: str) -> None:
        """A neighbour is gone."""
        self._unattached.pop(link, None)
        if link in self.streams:
            self.streams[link].detach()

    def _is_unaware(self, name: str) -> bool:
        link = self.broker.links.get(name)
        if link is None or link.version < EXCEPTIONS:
            return False
        return link.is_away or bool(link.pending.placeholders)

    # --- Time --------------------------------------------------------------------------------------------------------

    def pass_time(self) -> None:
        """Some time has passed."""
        step = self.clock.take_step()
        if step:
            log.warning(
                "the clock of this machine was stepped %s by %s (or the machine slept): what is kept gets no older by "
                "that, and a lease that is running ends when it would have ended",
                "forward" if step > 0 else "back", timedelta(seconds=round(abs(step))),
            )  # fmt: skip
        self.take(Tick(self.clock.ahead), OPERATOR)
        for stream in self.streams.values():
            stream.tick()
            stream.expire(self.clock.ran)
            self._note_losses(stream)

    def _note_losses(self, stream: Stream) -> None:
        if stream.lost:
            link = stream.peer.name
            logged = self._loss_logs.setdefault(link, LossLog(f"link to {link}"))
            logged.note(stream.lost, stream.suspected_lost, self.clock())

    # --- Messages ----------------------------------------------------------------------------------------------------

    def take(self, message: Message, link: str) -> None:
        """Handle a message, and whatever it brings about among the parts of this node."""
        self._inbox.append((message, link))
        if self._is_running:
            return
        self._is_running = True
        try:
            while self._inbox:
                message, link = self._inbox.popleft()
                (effects,) = self.broker.handle([message], link, self.clock())
                self._run(effects)
        finally:
            self._is_running = False
        for name in [name for name in self._unattached if not self._is_unaware(name)] if self._unattached else ():
            self.stream(name).attach(*self._unattached.pop(name))

    def _run(self, effects: Sequence[Effect | Exception]) -> None:
        """An error comes last: what the message brought about before it is done."""
        for effect in effects:
            if isinstance(effect, Exception):
                raise effect
            if isinstance(effect, Persist):
                self.journal.keep(effect.records)
                self._tickets.append((self.journal.ticket, effect.number))
            elif isinstance(effect, Reject):
                self._reject(effect)
            elif isinstance(effect, Deliver):
                self._deliver(effect, encode(effect.event))
            elif effect.link in self.endpoints:
                message = effect.message
                if isinstance(message, Hello) and self.broker.links[effect.link].is_client:
                    capabilities = message.capabilities | {LIFE: self.history.present.id}
                    message = msgspec.structs.replace(message, capabilities=capabilities)
                endpoint = self.endpoints[effect.link]
                if isinstance(message, Flushed) and not self.broker.links[effect.link].is_client:
                    self.stream(effect.link).call_behind(partial(endpoint.send, message))
                else:
                    endpoint.send(message)

    def _deliver(self, effect: Deliver, encoded: bytes) -> None:
        endpoint = self.endpoints.get(effect.link)
        if isinstance(endpoint, ClientEndpoint):
            endpoint.deliver(effect.ids, encoded)

    def _reject(self, effect: Reject) -> None:
        endpoint = self.endpoints.get(effect.link)
        if effect.link == OPERATOR:
            log.warning("%s", effect.refused.reason)
        if effect.close:
            self.end_sending(effect.link)
            self.note_refusal(code_of(effect.refused.code), effect.link, effect.refused.reason)
        if endpoint is not None:
            endpoint.send_refusal(effect.refused, effect.close)
        self.note_cycle(effect.link)

    def note_cycle(self, name: str) -> None:
        """A neighbour was refused, or refuses. If its link would close a cycle and cannot just go, the log says so, and
        says it once."""
        link = self.broker.links.get(name)
        if link is not None and link.admission.cycle and name not in self._said_of_cycles:
            self._said_of_cycles.add(name)
            log.warning(
                "neighbour %s stays down, with its subscriptions and what is kept for it, until an operator says "
                "`thatch admin forget %s`, or attaches it elsewhere: %s",
                name, name, link.admission.cycle,
            )  # fmt: skip

    def note_refusal(self, code: Code, peer: str, reason: str) -> None:
        """A peer was hung up on. Peers can bring that about as often as they like, so the log has a line a minute."""
        count = self.refusals.note(code, peer, reason, self.clock())
        if count:
            log.warning("hanging up on %s: %s%s", peer, reason, _and_others(count))

    def note_refused_by(self, code: str, peer: str, reason: str) -> None:
        """A neighbour refuses this broker."""
        count = self.refused_by.note(code_of(code), peer, reason, self.clock())
        if count:
            log.warning("neighbour %s refuses: %s%s", peer, reason, _and_others(count))

    def committed(self, ticket: int) -> None:
        """All up to this ticket is on disk."""
        number = None
        while self._tickets and self._tickets[0][0] <= ticket:
            number = self._tickets.popleft()[1]
        if number is not None:
            self.take(Persisted(number), OPERATOR)
        self._reached(ticket)

    # --- Events ------------------------------------------------------------------------------------------------------

    def publish(self, messages: Sequence[Publish], link: str, is_full: bool | None = None) -> list[Outcome]:
        """What becomes of each event. Many at once are looked up together, in a fraction of the time. If some fail, the
        others are routed all the same, and the first error is raised. `is_full`: whether what has to be kept is refused
        because the disk is full; None: as the journal says now."""
        now = self.clock()
        is_full = self.journal.is_full if is_full is None else is_full
        effects: Sequence[Sequence[Effect | Exception]]
        if len(messages) == 1:
            effects = [self.broker.handle(messages[0], link, now)]
        else:
            effects = self.broker.handle(messages, link, now)
        sending: dict[str, Sending] = {}
        errors: list[Exception] = []
        if self.attachments.names:
            effects = [self._passed_on(each, message, link) for each, message in zip(effects, messages, strict=True)]
        outcomes = [self._route(each, is_full, sending, errors) for each in effects]
        for name, (events, bare, suspected) in sending.items():
            self.stream(name).append_all(events, self._is_durable(name), self.clock.stamp(), bare, suspected)
        for error in errors[1:]:
            log.error("an event of %s failed", link, exc_info=error)
        if errors:
            raise errors[0]
        return outcomes

    def _passed_on(
        self, effects: Sequence[Effect | Exception], message: Publish, link: str
    ) -> Sequence[Effect | Exception]:
        """The effects of an event, with those on the neighbours in the place of one that is lost (attachments.py)."""
        targets: list[str] = []
        message = Publish(message.id, message.event, message.payload)  # what else it has is of the link that it came by
        for effect in effects:
            if isinstance(effect, Reject | Exception):
                return effects
            if isinstance(effect, Send):
                targets.append(effect.link)
                message = effect.message if isinstance(effect.message, Publish) else message
        more = self.attachments.receivers(link, targets)
        return [*effects, *(Send(name, message) for name in more)]

    def _is_durable(self, link: str) -> bool:
        """Whether events for a link have to be on disk."""
        return link in self.attachments.names or self.broker.links[link].is_durable

    def _route(
        self,
        effects: Sequence[Effect | Exception],
        is_full: bool,
        sending: dict[str, Sending],
        errors: list[Exception],
    ) -> Outcome:
        """The effects of one event. What goes to neighbours is put into `sending`, its error into `errors`."""
        if not effects:
            return Outcome.ROUTED
        if is_full and any(map(self._is_kept, effects)):
            self.refused_for_space += 1
            return Outcome.REFUSED
        outcome, links, placed = Outcome.ROUTED, self.broker.links, self.attachments.names
        encoded, bare, body = b"", b"", None  # the last event that was encoded: most often all effects have the same
        for effect in effects:
            if type(effect) is Send or type(effect) is Deliver:
                event: Publish = effect.message if type(effect) is Send else effect.event  # type: ignore
                if event is not body:
                    encoded, body = encode(event), event
                    # A partition may be another one when an event is sent again: what is kept has no number of a cell.
                    bare = encoded if event.cell < 0 else encode(msgspec.structs.replace(event, cell=-1))
                if links[effect.link].is_durable or effect.link in placed:
                    outcome = Outcome.KEPT
            if type(effect) is Send:
                events, kept, suspected = sending.setdefault(effect.link, ([], [], set()))
                if effect.suspected:
                    suspected.add(len(events))
                events.append(encoded)
                kept.append(bare)
            elif type(effect) is Deliver:
                self._deliver(effect, bare)
            elif type(effect) is Reject:
                if not links[effect.link].is_client:
                    outcome = Outcome.UNREAD
                if effect.close or outcome is not Outcome.UNREAD:
                    self._reject(effect)
            elif isinstance(effect, Exception):
                errors.append(effect)
        return outcome

    def _is_kept(self, effect: Effect | Exception) -> bool:
        return isinstance(effect, Send | Deliver) and self._is_durable(effect.link)

    def pass_gap(self, gap: Gap, source: str) -> None:
        """A neighbour says that events are lost which were to come from there: whatever is durable and wants something
        here or behind another neighbour hears of it."""
        received, links = self.broker.received.subscriptions, self.broker.links
        names = [name for name, link in links.items() if link.is_durable and name != source and received.of_link(name)]
        names += self.attachments.receivers(source, names) if self.attachments.names else []
        for name in names:
            endpoint = self.endpoints.get(name)
            if not links[name].is_client:
                self.stream(name).append_gap(gap, self.clock.stamp())
            elif isinstance(endpoint, ClientEndpoint):
                endpoint.lose(gap)

    # --- Links -------------------------------------------------------------------------------------------------------

    def connect(self, link: str, endpoint: Endpoint) -> None:
        """A link leads there from now on."""
        self.endpoints[link] = endpoint

    def retire(self, stream: Stream) -> None:
        """A stream has ended: its numbers are not given again in this life."""
        self.first_number = max(self.first_number, stream.counted)

    def arrivals(self, link: str) -> Arrivals:
        """What came from a neighbour."""
        found = self._arrivals.get(link)
        if found is None:
            found = self._arrivals[link] = Arrivals(PeerKey(NEIGHBOUR, link), self.journal, ())
        return found

    def confirmations(self, link: str) -> Confirmations:
        """What a neighbour has on its disk."""
        found = self._confirmations.get(link)
        if found is None:
            peer = PeerKey(NEIGHBOUR, link)
            found = self._confirmations[link] = Confirmations(peer, self.journal, (), self.history.ordinal)
        return found

    def announce_gap(self, peer: PeerKey, side: str, since: float, until: float, count: int | None) -> None:
        """Say, once, that events may be missing: those that were acknowledged in an interval; and how many, once that
        is known. `side`: "in" for what came from a neighbour, "out" for what was for it or for a durable
        subscription."""
        known = self._announced.get((peer, side, since, until))
        if known is None:
            row = GapRow(self._place_of_gap(peer, side), peer, side, since, until, count)
            self.gaps.append(row)
            self._gap_counts[peer, side] += 1
            self._gap_ends[peer, side] = max(until, self._gap_ends.get((peer, side), until))
        elif known.missing is None and count is not None:
            row = known._replace(missing=count)
            self.gaps[self.gaps.index(known)] = row
        else:
            return
        self._announced[peer, side, since, until] = row
        self.journal.put_gap(row)
        number = "an unknown number" if count is None else f"{count:,}"
        log.warning(
            "%s %s, %s: events that were acknowledged from %s to %s may be missing, %s of them",
            peer.kind, peer.name, side, _date(since), _date(until), number,
        )  # fmt: skip

    def _place_of_gap(self, peer: PeerKey, side: str) -> int:
        """For one more interval: a new place, or that of the oldest one, which goes. A neighbour may say of itself as
        often as it likes that its store began in the past."""
        if self._gap_counts[peer, side] >= GAPS_OF_PEER_MAX:
            oldest = next(each for each in self.gaps if (each.peer, each.side) == (peer, side))
        elif len(self.gaps) >= GAPS_MAX:
            oldest = self.gaps[0]
        else:
            return len(self.gaps) + 1
        self.gaps.remove(oldest)
        self.gaps_dropped += 1
        self._gap_counts[oldest.peer, oldest.side] -= 1
        if not self._gap_counts[oldest.peer, oldest.side]:
            del self._gap_counts[oldest.peer, oldest.side], self._gap_ends[oldest.peer, oldest.side]
        del self._announced[oldest.peer, oldest.side, oldest.since, oldest.until]
        return oldest.place

    def note_rollback(self, message: Resume) -> None:
        """A neighbour has shown that this store is an old copy."""
        if self.history.present.since is None:
            self.journal.put_life(self.history.note_rollback(message))
            self.announce_rollback()

    def announce_rollback(self) -> None:
        """If the present life began in the past, say so at once for each neighbour that has come and each durable
        subscription: a neighbour may not come before the store goes back again."""
        present = self.history.present
        if present.since is None:
            return
        met = [PeerKey(NEIGHBOUR, row.name) for row in self.neighbours.values() if row.store]
        durable = [link.peer for link in self.broker.links.values() if link.peer.kind == DURABLE_QUEUE]
        for peer, side in (*((each, "in") for each in met), *((each, "out") for each in (*met, *durable))):
            self.announce_gap(peer, side, present.since, present.at, None)

    def has_announced(self, peer: PeerKey, after: float) -> bool:
        """Whether something that may be missing was announced for a durable subscription, up to later than `after`."""
        return self._gap_ends.get((peer, "out"), after) > after

    def check_newer(self, hello: Hello, resume: Resume) -> None:
        """Refuse a greeting that was said before: the sessions of a store rise within each of its lives. An earlier
        life is refused for its history. One that was replayed would say again who wanted what, and what is durable."""
        life = resume.lives[max(resume.lives)] if resume.lives else ""
        known, session = self._greeted.get(hello.name, ("", 0))
        if life and life == known and hello.session <= session:
            raise PeerError(f"{hello.name!r} greets with session {hello.session}, and did with {session} before")
        self._greeted[hello.name] = life, hello.session

    def ends_here(self, name: str, refused: Refused, store: str) -> bool:
        """Whether a refusal means that this store is an old copy: it says so, and it comes from the neighbour that is
        known under this name, whose store it names. `store`: of the one who has greeted over this connection."""
        row = self.neighbours.get(name)
        return refused.code == "history" and row is not None and bool(row.store) and row.store in (refused.id, store)

    def put_neighbour(self, row: NeighbourRow) -> None:
        """What is known of a neighbour from now on."""
        if self.neighbours.get(row.name) != row:
            self.neighbours[row.name] = row
            self.journal.put_neighbour(row)

    # --- In the place of one that is lost -----------------------------------------------------------------------------

    def attach(self, row: AttachmentRow) -> int:
        """A neighbour comes in the place of one that is lost: what is kept for that one is kept for it, too. How many
        events that are."""
        self.take(Attached(row.name, row.instead_of), OPERATOR)
        count = self.stream(row.name).copy_from(self.stream(row.instead_of), self.clock.stamp())
        self.attachments.put(row)
        self.journal.put_attachment(row)
        return count

    def attach_again(self) -> None:
        """The broker does not keep who has come in the place of whom."""
        for row in self.attachments:
            if row.instead_of:
                self.take(Attached(row.name, row.instead_of), OPERATOR)

    def end_attachments(self, name: str) -> None:
        """A neighbour is forgotten. If it was lost, those in its place are neighbours as others are."""
        self.attachments.drop(name)
        self.journal.drop_attachment(name)
        for row in self.attachments:
            if row.instead_of != name:
                continue
            self.take(Attached(row.name, ""), OPERATOR)
            if row.url:
                self.attachments.put(row._replace(instead_of=""))
                self.journal.put_attachment(row._replace(instead_of=""))
            else:
                self.attachments.drop(row.name)
                self.journal.drop_attachment(row.name)

    def gone(self, link: str, endpoint: Endpoint, forget: bool = False) -> None:
        """What a link led to has gone, unless another one has taken its place."""
        if self.endpoints.get(link) is endpoint:
            del self.endpoints[link]
            self.take(LinkDown(forget), link)


def _and_others(count: int) -> str:
    return f" (and {count - 1} others for this reason since it was said last)" if count > 1 else ""


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _by_neighbour(rows: Iterable[R], make: Callable[[PeerKey, list[R]], T]) -> dict[str, T]:
    """The rows of each neighbour as one, by its name."""
    found: dict[str, list[R]] = {}
    for row in rows:
        if row.peer.kind == NEIGHBOUR:
            found.setdefault(row.peer.name, []).append(row)
    return {name: make(PeerKey(NEIGHBOUR, name), each) for name, each in found.items()}
