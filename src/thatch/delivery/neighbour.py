"""What two nodes say to one another about events, over one connection: `Resume`, then `Forward` and `Received`.

    greeting ▶ Resume ─────────────▶ resume: is it who it was? which events does it hold? the stream sends the rest
                                     Forward ▶ take_events: copies are dropped, the rest is routed
               take ◀─── Received ◀─ acknowledgement, when what was kept is on disk

Whoever drives it holds the neighbour's `Hello` back until its `Resume` has come (doors.py), then calls `admit`, gives
the greeting to the broker, and calls `resume` if the broker has taken it. A store that began in the past asks for the
interest that it may have had since (`asks`); it gets `Returned` before any event, and before what it lists is applied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from thatch.delivery.driver import Driver, Outcome
from thatch.delivery.history import (
    Rollback,
    check_admitted,
    derived_life,
    known_after,
    missing,
    ordinal_of,
)
from thatch.delivery.journal import NeighbourRow
from thatch.delivery.postponed import Postponed
from thatch.delivery.stream import Send
from thatch.errors import PeerError
from thatch.protocol import wire
from thatch.protocol.ids import SUBSCRIPTIONS, is_durable_name, is_of_broker, without_alias
from thatch.protocol.kinds import Peer
from thatch.protocol.messages import Flushed, Message
from thatch.protocol.records import NEIGHBOUR, PeerKey

RETURNED_MAX, RETURNED_CHARACTERS_MAX = 1_000, 2**20  # subscriptions, and characters of them, in a message; or one
POSTPONED_MAX = 64  # events that have waited, taken at once


class NeighbourSession:
    def __init__(
        self,
        driver: Driver,
        name: str,
        send: Send,
        send_first: Callable[[Message], None],
        returned: Callable[[dict[str, str]], None],
    ) -> None:
        """`send` forwards numbered events to this neighbour, `send_first` sends a message before any later event, and
        `returned` takes subscriptions that this node had, by id."""
        self.name = name
        self._driver, self._send, self._send_first, self._returned = driver, send, send_first, returned
        self._arrivals, self._peer = driver.arrivals(name), PeerKey(NEIGHBOUR, name)
        self._lives: Mapping[int, str] = {}  # of its store
        self._life = ""  # of the events that came last
        self._ticket = driver.journal.ticket  # of the last event that is kept
        self._has_taken = self._has_kept = False  # since the last acknowledgement
        self._asks = ""  # a life of ours for which it is to return interest
        self._rollbacks: list[Rollback] = []  # since it has returned some
        limits = driver.stream(name).limits
        self._postponed = Postponed(2 * limits.unacknowledged_bytes_max)  # a full disk has refused them
        self._last = 0  # the number of the last event that came, if some wait
        self._has_unread = False  # an event came that cannot be read: from it on all come again after a cut

    def greeting(self) -> wire.Resume:
        """What follows `Hello`, before any event."""
        driver, history = self._driver, self._driver.history
        row = driver.neighbours.get(self.name) or NeighbourRow(self.name, "")
        self._rollbacks = history.rollbacks_after(row.returned)
        since = until = 0.0
        if self._rollbacks:
            self._asks, until = self._rollbacks[-1].life, self._rollbacks[-1].at
            since = min(each.since for each in self._rollbacks)
        return wire.Resume(
            driver.journal.identity,
            row.store,
            self._arrivals.last,
            history.since(row.knows, driver.stream(self.name).oldest),
            history.restored,
            dict(self._arrivals.taken),
            row.life,
            history.last_of(driver.confirmations(self.name).numbers),
            self._asks,
            since,
            until,
        )

    def admit(self, message: wire.Resume) -> None:
        """Whether it has the store that was known of it, and whether it knows more of this one. If it asks for
        interest, it gets it now."""
        driver, history = self._driver, self._driver.history
        row = driver.neighbours.get(self.name)
        check_admitted(row, message, history)
        has_forgotten = row is not None and not row.life  # on purpose
        is_ours = message.of == driver.journal.identity  # else it knew another store of this name
        is_witness = is_ours and not has_forgotten and not self._asks
        if is_witness and history.is_behind(message, self._arrivals.taken):
            driver.note_rollback(message)
            if row is not None and row.returned == history.present.id:
                driver.put_neighbour(row._replace(returned=""))
            raise PeerError("the store of this broker is an old copy: it begins again, and asks for what it has lost")
        if message.asks:
            self._return_interest(message.asks)

    def resume(self, message: wire.Resume) -> None:
        """It has come in, and says what it holds."""
        driver = self._driver
        stream, row = driver.stream(self.name), driver.neighbours.get(self.name)
        self._lives = message.lives or _DerivedLives(message.store)
        self._announce(message)
        if row is not None and (row.store != message.store or not message.known):  # it has begun anew
            driver.confirmations(self.name).lower({})
        elif message.asks:
            driver.confirmations(self.name).lower(message.holds)
        driver.put_neighbour(known_after(row, self.name, message))
        if message.lives:
            held = max((number for life, number in message.holds.items() if self._is_ours(life, number)), default=0)
        else:
            held = message.received if message.of == driver.journal.identity else 0
        if held > stream.counted:
            raise PeerError(f"{self.name!r} holds event {held:,}; the last one that it was sent is {stream.counted:,}")
        driver.begin_sending(self.name, self._send, held)

    def _is_ours(self, life: str, number: int) -> bool:
        """Whether this store has the life that counted a number; what was said of others means nothing here."""
        return self._driver.history.ordinal(life) == ordinal_of(number) > 0

    def _announce(self, message: wire.Resume) -> None:
        """What either side knows to be missing."""
        driver, row = self._driver, self._driver.neighbours.get(self.name)
        was_met = row is not None and row.store
        if not was_met and not message.known and message.of != driver.journal.identity:
            return  # neither has met the other before
        if message.asks:
            ours = driver.confirmations(self.name).numbers
            lives = driver.history.since("", 0)
            driver.announce_gap(self._peer, "in", message.since, message.until, None)
            count = missing(ours, message.holds, lives)
            driver.announce_gap(self._peer, "out", message.since, message.until, count)
        count_in = None
        if len(self._rollbacks) == 1 and message.lives:
            count_in = missing(message.confirmed, self._arrivals.taken, message.lives)
        for rollback in self._rollbacks:
            driver.announce_gap(self._peer, "in", rollback.since, rollback.at, count_in)
            driver.announce_gap(self._peer, "out", rollback.since, rollback.at, None)

    def _return_interest(self, life: str) -> None:
        """What came from its own durable clients, before it says what it knows of them."""
        received = self._driver.broker.received_from(SUBSCRIPTIONS, self.name)
        for part in parts_of({id: where for id, where in received.items() if self._is_owned(id)}):
            self._send_first(wire.Returned(part))
        self._send_first(wire.Returned({}, life))

    def _is_owned(self, id: str) -> bool:
        """Whether a subscription is of a durable client of this neighbour's own."""
        return is_of_broker(id, self.name) and is_durable_name(without_alias(id).split("/")[1])

    def take(self, message: wire.Received | wire.Returned | Flushed) -> None:
        driver = self._driver
        if isinstance(message, Flushed):
            if self._postponed or self._postponed.has_left_out:
                self._postponed.add(message)
            elif not self._has_unread:  # else it is asked for again, when what comes before it is sent again
                driver.take(message, self.name)
            return
        if isinstance(message, wire.Returned):
            if not self._asks:
                raise PeerError("returned interest that was not asked for")
            self._returned(message.subscriptions)
            if message.life == self._asks:
                driver.put_neighbour(driver.neighbours[self.name]._replace(returned=message.life))
                self._asks = ""
            return
        stream = driver.stream(self.name)
        if message.number > stream.counted or message.committed > message.number:
            raise PeerError(f"{self.name!r} received event {message.number:,}, which it was not sent")
        stream.acknowledge(message.number)
        if message.committed:
            life = driver.history.life_of(message.committed)
            if life:
                driver.confirmations(self.name).note(life, message.committed)

    def take_events(self, messages: list[wire.Forward]) -> None:
        driver, arrivals = self._driver, self._arrivals
        if ordinal_of(messages[0].number) != ordinal_of(messages[-1].number):
            for run in _runs(messages):
                self.take_events(run)
            return
        life = self._life_of(messages[0].number)
        self._has_taken = True
        if self._postponed.has_left_out or self._has_unread:
            return
        if not self._postponed:
            self._begin_life(life)
        taken = max(arrivals.taken.get(life, 0), self._last)
        if messages[0].number <= taken:
            messages = [each for each in messages if each.number > taken]
        is_full = driver.journal.is_full
        if is_full or self._postponed:
            for each in messages:
                self._take_while_full(each, life, is_full)
        elif messages:
            outcomes = driver.publish([each.event for each in messages], self.name, is_full)
            self._has_kept |= Outcome.KEPT in outcomes
            self._has_unread = Outcome.UNREAD in outcomes
            read = messages[: outcomes.index(Outcome.UNREAD)] if self._has_unread else messages
            if read:
                self._note(life, max(each.number for each in read))  # a neighbour may send falling numbers

    def _begin_life(self, life: str) -> None:
        """The events that come now are of this life."""
        if life != self._life and self._has_kept:
            self._arrivals.commit(self._life)
        if life != self._life:
            self._life, self._last = life, 0

    def _note(self, life: str, number: int) -> None:
        """Taken up to this number: what is taken stays so."""
        self._arrivals.note(life, max(number, self._arrivals.taken.get(life, 0)))

    def _take_while_full(self, message: wire.Forward, life: str, is_full: bool) -> None:
        """An event that may be refused, or that comes while others wait."""
        postponed = self._postponed
        if postponed.has_left_out or self._has_unread:
            return
        is_behind = bool(postponed) and (life != self._life or postponed.waits_for(message.event))
        outcome = Outcome.REFUSED if is_behind else self._publish(message, is_full)
        if outcome is Outcome.UNREAD:
            return
        if outcome is Outcome.REFUSED:
            postponed.add(message)
        if not postponed:
            self._note(life, message.number)
        elif life == self._life and not postponed.has_left_out:
            self._last = max(self._last, message.number)

    def _publish(self, message: wire.Forward, is_full: bool) -> Outcome:
        (outcome,) = self._driver.publish([message.event], self.name, is_full)
        self._has_kept |= outcome is Outcome.KEPT
        self._has_unread |= outcome is Outcome.UNREAD
        return outcome

    def take_postponed(self) -> bool:
        """There is room on the disk: take some of the events that have waited for it. Whether more wait."""
        link = self._driver.broker.links.get(self.name)
        for _ in range(POSTPONED_MAX):
            if not self._postponed or self._driver.journal.is_full or link is None or not link.is_met:
                return False
            self._take_first()
        return bool(self._postponed)

    def _take_first(self) -> None:
        message = self._postponed.first
        self._postponed.drop_first()
        if self._has_unread:  # it comes again
            return
        self._has_taken = True
        if isinstance(message, Flushed):
            self._driver.take(message, self.name)
        else:
            life = self._lives.get(ordinal_of(message.number), "")
            if life != self._life:
                self._note_last()
                self._begin_life(life)
            if isinstance(message, wire.Gap):
                self._pass_gap(message)
            elif self._publish(message, is_full=False) is Outcome.UNREAD:
                return
            self._note(life, message.number)
        if not self._postponed:
            self._note_last()

    def _note_last(self) -> None:
        """All events up to the last one that came are taken."""
        if self._last:
            self._note(self._life, self._last)
            self._last = 0

    @property
    def is_to_begin_again(self) -> bool:
        """Whether the neighbour has to connect again, and send what was left out, now that there is room."""
        return self._postponed.has_left_out and not self._postponed

    @property
    def reads_again(self) -> bool:
        """Whether an event waits at the neighbour that could not be read, and can be: the space has grown."""
        link = self._driver.broker.links.get(self.name)
        return self._has_unread and link is not None and not link.is_ahead_of(self._driver.broker.space)

    def take_gap(self, gap: wire.Gap) -> None:
        """Events are lost that were to come from there. Said once to whom it may concern, as an event is, and behind
        those that wait for room on the disk."""
        postponed, life = self._postponed, self._life_of(gap.number)
        self._has_taken = True
        if postponed.has_left_out or self._has_unread:
            return
        if not postponed:
            self._begin_life(life)
        if life == self._life and gap.number <= max(self._arrivals.taken.get(life, 0), self._last):
            return
        if not postponed:
            self._pass_gap(gap)
            self._note(life, gap.number)
            return
        postponed.add(gap)
        if life == self._life and not postponed.has_left_out:
            self._last = max(self._last, gap.number)

    def _pass_gap(self, gap: wire.Gap) -> None:
        self._driver.pass_gap(gap, self.name)
        self._has_kept = True

    def _life_of(self, number: int) -> str:
        """Of the store of the neighbour: the one that counted a number."""
        link = self._driver.broker.links.get(self.name)
        if not self._lives or link is None or not link.is_met:
            raise PeerError("an event before Hello and Resume")
        life = self._lives.get(ordinal_of(number), "")
        if not life:
            raise PeerError(f"event {number:,} is of a life that was not named")
        return life

    def acknowledgement(self) -> tuple[wire.Received, int] | None:
        """Of the events that came since the last one, and the ticket that it waits for; None if there were none."""
        if not self._has_taken:
            return None
        arrivals, life = self._arrivals, self._life
        received = arrivals.taken.get(life, 0)
        if self._has_kept and received:
            arrivals.commit(life)
            self._ticket = self._driver.journal.ticket
        self._has_taken, self._has_kept = False, self._has_kept and bool(self._postponed)
        return wire.Received(received, arrivals.committed.get(life, 0)), self._ticket

    def end(self) -> None:
        """The connection has ended."""
        self._driver.end_sending(self.name)


class _DerivedLives(dict[int, str]):
    """Of a store whose program does not draw lives."""

    def __init__(self, store: str) -> None:
        super().__init__({0: ""})  # not empty: the store is known
        self._store = store

    def get(self, ordinal: int, default: str = "") -> str:  # type: ignore[override]
        return derived_life(self._store, ordinal)


def encoded_entries(numbers: Sequence[int], entries: Sequence[bytes], peer: Peer) -> list[bytes]:
    """Entries of the stream to a neighbour, as it reads them. One that cannot skip a gap is not told of it."""
    return [
        entry if wire.is_gap(entry) else wire.encoded_forward(number, entry)
        for number, entry in zip(numbers, entries, strict=True)
        if peer.is_extensible or not wire.is_gap(entry)
    ]


def parts_of(subscriptions: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Clauses by id, in parts that a message can carry."""
    part: dict[str, str] = {}
    characters = 0
    for id, where in subscriptions.items():
        size = len(id) + len(where)
        if part and (len(part) >= RETURNED_MAX or characters + size > RETURNED_CHARACTERS_MAX):
            yield part
            part, characters = {}, 0
        part[id] = where
        characters += size
    if part:
        yield part


def _runs(messages: list[wire.Forward]) -> list[list[wire.Forward]]:
    """Events of one life after the other."""
    runs: list[list[wire.Forward]] = []
    for each in messages:
        if not runs or ordinal_of(runs[-1][-1].number) != ordinal_of(each.number):
            runs.append([])
        runs[-1].append(each)
    return runs
