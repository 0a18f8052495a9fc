"""A simulated store: what is to be written is committed later, in groups, or never.

    asked for ─▶ waits ─▶ being committed ─▶ on disk ─▶ said so
                                  a crash ✗ here: it is on disk, or it is not, and nobody heard of it

A `Disk` outlives the process that writes it; a copy of it is a backup, or a store that somebody started twice. Whether
a commit that a crash interrupts has reached the disk, and how long each takes, is drawn. A full disk keeps its batch
and tries again. Pages are read when the writes before them are through, as the real store's thread does it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import msgspec

from thatch.delivery.clock import Stamp
from thatch.delivery.history import LIFE_BYTES, next_life
from thatch.delivery.journal import (
    ASKED,
    GAP,
    AttachmentRow,
    ConfirmedRow,
    GapRow,
    LifeRow,
    NeighbourRow,
    QueueRow,
    ReceivedRow,
    Span,
    StoredRow,
)
from thatch.protocol.messages import Publish
from thatch.protocol.records import Drop, PeerKey, Record, RecordChange, RecordKey
from thatch.protocol.wire import Gap, decoded_gap
from thatch.sim.agenda import Agenda

RETRY_SECONDS = 0.25  # between tries on a full disk
READ_SECONDS = 0.0002

Page = Callable[[list[tuple[int, bytes]], bool], None]


class KeptEntry(NamedTuple):
    """Of a stream."""

    stamp: Stamp
    entry: int
    event: bytes
    id: str  # of the event


@dataclass(slots=True)
class Disk:
    """What is on disk: it stays when the process ends."""

    identity: str
    noted: str = ""  # the newest life, in a file beside the store
    lives: dict[int, LifeRow] = field(default_factory=dict)
    about: dict[str, str] = field(default_factory=dict)
    records: dict[RecordKey, Record] = field(default_factory=dict)  # in the order in which they were put
    queues: dict[PeerKey, QueueRow] = field(default_factory=dict)
    events: dict[PeerKey, dict[int, KeptEntry]] = field(default_factory=dict)  # by number
    received: dict[tuple[PeerKey, str], ReceivedRow] = field(default_factory=dict)  # by peer and life
    confirmed: dict[tuple[PeerKey, str], ConfirmedRow] = field(default_factory=dict)
    neighbours: dict[str, NeighbourRow] = field(default_factory=dict)
    gaps: dict[int, GapRow] = field(default_factory=dict)
    attachments: dict[str, AttachmentRow] = field(default_factory=dict)
    moved: dict[str, str] = field(default_factory=dict)

    def copied(self) -> Disk:
        return replace(
            self,
            about=dict(self.about),
            records=dict(self.records),
            queues=dict(self.queues),
            events={peer: dict(rows) for peer, rows in self.events.items()},
            lives=dict(self.lives),
            received=dict(self.received),
            confirmed=dict(self.confirmed),
            neighbours=dict(self.neighbours),
            gaps=dict(self.gaps),
            attachments=dict(self.attachments),
            moved=dict(self.moved),
        )

    def note(self, life: str) -> None:
        """In the file beside the store."""
        self.noted = life

    def begin_life(self, id: str, now: float) -> None:
        """A store is opened: on disk before anything else happens."""
        kept = [each.stamp.at for rows in self.events.values() for each in rows.values()]
        copied_at = self.about.pop("backup", None)
        life = next_life(
            list(self.lives.values()), id, now, noted=self.noted,
            copied_at=None if copied_at is None else float(copied_at),
            restored=self.about.pop("restored", ""),
            kept_at=max(kept, default=0.0),
        )  # fmt: skip
        self.lives[life.ordinal] = life
        self.note(life.id)

    def put_record(self, change: RecordChange) -> None:
        self.records.pop(change.key, None)  # what is put again takes the last place
        if not isinstance(change, Drop):
            self.records[change.key] = change

    def holds(self, peer: PeerKey, event: str) -> bool:
        """Whether an event is kept for a peer."""
        return any(each.id == event for each in self.events.get(peer, {}).values())

    @property
    def ran(self) -> float:
        """How long nodes have run on it."""
        kept = [each.stamp.ran for rows in self.events.values() for each in rows.values()]
        return max([float(self.about.get("ran", "0")), *kept])

    def drop(self, peer: PeerKey, span: Span) -> None:
        rows = self.events.get(peer, {})
        for each in [each for each, row in rows.items() if span.first <= each <= span.last and row.entry == span.entry]:
            del rows[each]

    def gap_entries(self, peer: PeerKey) -> list[Gap]:
        """What a limit has cost a peer, and was not acknowledged."""
        return [decoded_gap(each.event) for each in self.events.get(peer, {}).values() if each.entry == GAP]

    def drop_received(self, peer: PeerKey, place: int) -> None:
        for key in [key for key, row in self.received.items() if row.peer == peer and row.place <= place]:
            del self.received[key]

    def copy(self, source: PeerKey, target: PeerKey, last: int) -> None:
        rows = [row for _, row in sorted(self.events.get(source, {}).items()) if row.entry != GAP]
        first = last + 1 - len(rows)
        copies = {first + at: row._replace(entry=ASKED) for at, row in enumerate(rows)}
        self.events.setdefault(target, {}).update(copies)

    def discard(self, peer: PeerKey, number: int) -> None:
        rows = self.events.get(peer, {})
        for each in [each for each in rows if each <= number]:
            del rows[each]


_EVENTS = msgspec.msgpack.Decoder(Publish)
Write = Callable[[Disk], object]


class SimulatedStore:
    """What a node keeps on a disk, as package `delivery` asks for it."""

    def __init__(self, disk: Disk, agenda: Agenda, rng: random.Random, seconds: float, now: float) -> None:
        """A commit takes about so many `seconds`. `now` is what the clock of its node says."""
        self.disk, self.seconds = disk, seconds
        self.identity, self.is_full, self.is_started = disk.identity, False, False
        self.full_until = 0.0  # commits fail until then
        self._agenda, self._rng = agenda, rng
        disk.begin_life(rng.randbytes(LIFE_BYTES).hex(), now)
        self._writes: list[Write] = []
        self._reads: list[tuple[PeerKey, int, int, Page]] = []
        self._batch: list[Write] = []  # being committed
        self._asked = self.committed = 0  # tickets
        self._is_busy = self._is_dead = False
        self._committed: Callable[[int], None] = lambda ticket: None

    # --- What there is, read before it is started ---------------------------------------------------------------------

    @property
    def space(self) -> str | None:
        return self.disk.about.get("space")

    def records(self) -> Iterator[Record]:
        return iter(list(self.disk.records.values()))

    def queues(self) -> list[QueueRow]:
        return list(self.disk.queues.values())

    def stored(self, peer: PeerKey) -> Iterator[StoredRow]:
        rows = self.disk.events.get(peer, {})
        return (
            StoredRow(number, *each.stamp, each.entry, len(each.event), each.event if each.entry == GAP else None)
            for number, each in sorted(rows.items())
        )

    def lives(self) -> list[LifeRow]:
        return list(self.disk.lives.values())

    def received(self) -> list[ReceivedRow]:
        return list(self.disk.received.values())

    def confirmed(self) -> list[ConfirmedRow]:
        return list(self.disk.confirmed.values())

    def neighbours(self) -> list[NeighbourRow]:
        return list(self.disk.neighbours.values())

    def gaps(self) -> list[GapRow]:
        return list(self.disk.gaps.values())

    def attachments(self) -> list[AttachmentRow]:
        return list(self.disk.attachments.values())

    def moved(self) -> dict[str, str]:
        return dict(self.disk.moved)

    # --- What is to be written ----------------------------------------------------------------------------------------

    @property
    def ticket(self) -> int:
        return self._asked

    def set_space(self, text: str) -> None:
        self._write(lambda disk: disk.about.update(space=text))

    def keep(self, records: tuple[RecordChange, ...]) -> None:
        def write(disk: Disk) -> None:
            for each in records:
                disk.put_record(each)

        self._write(write)

    def put_queue(self, row: QueueRow) -> None:
        self._write(lambda disk: disk.queues.update({row.peer: row}))

    def drop_queue(self, peer: PeerKey) -> None:
        self._write(lambda disk: (disk.queues.pop(peer, None), disk.events.pop(peer, None)))

    def append(self, peer: PeerKey, number: int, stamp: Stamp, entry: int, event: bytes) -> None:
        row = KeptEntry(stamp, entry, event, _EVENTS.decode(event).id)
        self._write(lambda disk: disk.events.setdefault(peer, {}).update({number: row}))

    def discard(self, peer: PeerKey, number: int) -> None:
        self._write(lambda disk: disk.discard(peer, number))

    def put_gap_entry(self, peer: PeerKey, gone: Sequence[Span], number: int, stamp: Stamp, gap: bytes) -> None:
        def write(disk: Disk) -> None:
            for span in gone:
                disk.drop(peer, span)
            disk.events.setdefault(peer, {})[number] = KeptEntry(stamp, GAP, gap, "")

        self._write(write)

    def note_ran(self, seconds: float) -> None:
        self._write(lambda disk: disk.about.update(ran=repr(seconds)))

    def put_life(self, row: LifeRow) -> None:
        self._write(lambda disk: disk.lives.update({row.ordinal: row}))

    def note_received(self, row: ReceivedRow) -> None:
        self._write(lambda disk: disk.received.update({(row.peer, row.life): row}))

    def drop_received(self, peer: PeerKey, place: int) -> None:
        self._write(lambda disk: disk.drop_received(peer, place))

    def note_confirmed(self, row: ConfirmedRow) -> None:
        self._write(lambda disk: disk.confirmed.update({(row.peer, row.life): row}))

    def drop_confirmed(self, peer: PeerKey, life: str) -> None:
        self._write(lambda disk: disk.confirmed.pop((peer, life), None))

    def put_neighbour(self, row: NeighbourRow) -> None:
        self._write(lambda disk: disk.neighbours.update({row.name: row}))

    def put_gap(self, row: GapRow) -> None:
        self._write(lambda disk: disk.gaps.update({row.place: row}))

    def put_attachment(self, row: AttachmentRow) -> None:
        self._write(lambda disk: disk.attachments.update({row.name: row}))

    def drop_attachment(self, name: str) -> None:
        self._write(lambda disk: disk.attachments.pop(name, None))

    def put_moved(self, name: str, url: str) -> None:
        self._write(lambda disk: disk.moved.update({name: url}) if url else disk.moved.pop(name, None))

    def copy(self, source: PeerKey, target: PeerKey, last: int) -> None:
        self._write(lambda disk: disk.copy(source, target, last))

    def read(self, peer: PeerKey, after: int, count: int, page: Page) -> None:
        self._reads.append((peer, after, count, page))
        self._serve()

    @property
    def is_idle(self) -> bool:
        return not (self._is_busy or self._writes or self._reads)

    def _write(self, write: Write) -> None:
        self._writes.append(write)
        self._asked += 1
        self._serve()

    # --- Its thread ---------------------------------------------------------------------------------------------------

    def start(self, committed: Callable[[int], None]) -> None:
        """`committed` hears up to which ticket all is on disk."""
        self._committed, self.is_started = committed, True
        self._serve()

    def crash(self, share: float) -> None:
        """The process ends: what is being committed reaches the disk with this probability, what waits does not."""
        if self._batch and not self._is_full_now and self._rng.random() < share:
            self._apply(self._batch)
        self._is_dead = True

    @property
    def _is_full_now(self) -> bool:
        return self._agenda.now < self.full_until

    def _serve(self) -> None:
        if self._is_busy or not self.is_started or not (self._writes or self._reads):
            return
        self._is_busy = True
        self._agenda.at(self._agenda.now, self._begin)

    def _begin(self) -> None:
        """One turn of the thread: what has come meanwhile is written together, and then read."""
        if self._is_dead:
            return
        self._batch, self._writes, ticket = self._writes, [], self._asked
        reads, self._reads = self._reads, []
        seconds = self.seconds * self._rng.choice((0.2, 1.0, 3.0)) if self._batch else READ_SECONDS
        self._agenda.at(self._agenda.now + seconds, self._end, ticket, reads)

    def _end(self, ticket: int, reads: list[tuple[PeerKey, int, int, Page]]) -> None:
        if self._is_dead:
            return
        if self._batch and self._is_full_now:
            self.is_full = True
            since, self._reads = self._reads, []
            self._read_all(since, is_complete=False)
            self._agenda.at(self._agenda.now + RETRY_SECONDS, self._end, ticket, reads)
            return
        self.is_full = False
        batch, self._batch = self._batch, []
        self._apply(batch)
        if batch:
            self.committed = ticket
            self._committed(ticket)
        self._read_all(reads, is_complete=True)
        self._is_busy = False
        self._serve()

    def _apply(self, batch: list[Write]) -> None:
        for write in batch:
            write(self.disk)

    def _read_all(self, reads: list[tuple[PeerKey, int, int, Page]], is_complete: bool) -> None:
        for peer, after, count, page in reads:
            kept = sorted(self.disk.events.get(peer, {}).items())
            rows = [(number, each.event) for number, each in kept if number > after][:count]
            page(rows, is_complete)
