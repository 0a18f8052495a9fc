"""Events for one receiver, numbered and kept until it has acknowledged them: a durable subscription, or a neighbour.

    append ─▶ [store, or memory] ─▶ sent, not acknowledged ─▶ gone
                                 cursor                    acknowledged

Numbers are counted without gaps in each life of the store, from where the stream begins in it (history.py).

While the receiver keeps up, an event goes to it the moment it is appended; nothing is read back. When it falls behind
(more than a bound is not acknowledged) or was away, what it has not got is read in pages from the
store as its acknowledgements come. So memory does not grow with what is kept.

Events that need no disk (plain ones, for a neighbour) are kept in memory instead, up to a limit, in the same order.
What is too much or too old goes: first what nobody has asked for yet, the oldest of it first, and then the oldest of
the rest. Of what was on disk a gap takes the place, which the receiver gets (losses.py). Age is counted in time in
which nodes run (clock.py).
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from thatch.delivery.clock import Stamp
from thatch.delivery.journal import ASKED, GAP, SUSPECTED, Journal, Span, StoredRow
from thatch.delivery.losses import Gaps, joined
from thatch.protocol.codec import encode
from thatch.protocol.records import PeerKey
from thatch.protocol.wire import Gap, decoded_gap

PAGE_COUNT = 256
SEGMENT_COUNT, SEGMENT_BYTES = 128, 65_536  # of a run, at most
SEGMENTS = 8  # that a limit in bytes has room for, at least: a run goes as a whole
Send = Callable[[Sequence[int], Sequence[bytes]], None]  # numbers, encoded events


@dataclass(kw_only=True, frozen=True, slots=True)
class Limits:
    """Bounds of what is kept for a receiver."""

    bytes_max: int  # on disk
    seconds_max: float
    memory_bytes_max: int  # of events that need no disk
    unacknowledged_bytes_max: int  # sent and not acknowledged


class DiskRun(msgspec.Struct, gc=False):
    """Some events of a queue that follow one another, but for those of other kinds."""

    first: int
    last: int
    count: int
    bytes: int
    since: float  # the first time at which one of them came, and the last
    until: float
    ran: float  # how long nodes had run when the last one came


class DiskRuns:
    """How much a queue holds on disk of one kind, in runs of some events: enough to know what to drop, at little
    memory."""

    def __init__(self) -> None:
        self._runs: deque[DiskRun] = deque()
        self.count = self.bytes = 0

    def __iter__(self) -> Iterator[DiskRun]:
        return iter(self._runs)

    def add(self, number: int, size: int, stamp: Stamp, bytes_max: int) -> None:
        """`bytes_max`: of a run."""
        run = self._runs[-1] if self._runs else None
        if run is None or run.count >= SEGMENT_COUNT or run.bytes >= bytes_max:
            self._runs.append(DiskRun(number, number, 1, size, stamp.at, stamp.at, stamp.ran))
        else:
            run.last, run.ran = number, stamp.ran
            run.since, run.until = min(run.since, stamp.at), max(run.until, stamp.at)
            run.count += 1
            run.bytes += size
        self.count += 1
        self.bytes += size

    def put(self, run: DiskRun) -> None:
        """Another one, of higher numbers."""
        self._runs.append(run)
        self.count += run.count
        self.bytes += run.bytes

    def drop_through(self, number: int) -> None:
        while self._runs and self._runs[0].last <= number:
            self.take_oldest()

    def take_oldest(self) -> DiskRun:
        run = self._runs.popleft()
        self.count -= run.count
        self.bytes -= run.bytes
        return run

    @property
    def oldest(self) -> DiskRun | None:
        return self._runs[0] if self._runs else None


class OnDisk:
    """How much a queue holds on disk, by kind."""

    def __init__(self) -> None:
        self.asked, self.suspected = DiskRuns(), DiskRuns()
        self.by_kind = {ASKED: self.asked, SUSPECTED: self.suspected}

    @property
    def count(self) -> int:
        return self.asked.count + self.suspected.count

    @property
    def bytes(self) -> int:
        return self.asked.bytes + self.suspected.bytes

    @property
    def first(self) -> int | None:
        """No lower number is here; None: nothing is."""
        return min((runs.oldest.first for runs in self.by_kind.values() if runs.oldest is not None), default=None)

    def add_all(self, others: OnDisk, first: int) -> None:
        """As much as another one holds, as if it were asked for, under the numbers that follow one."""
        runs = sorted([*others.asked, *others.suspected], key=lambda run: run.last)
        is_mixed = bool(others.asked.count and others.suspected.count)  # runs of both kinds share their numbers
        since, until = min(run.since for run in runs), max(run.until for run in runs)
        for run in runs:
            copy = replace(run, first=first + 1, last=first + run.count)
            self.asked.put(replace(copy, since=since, until=until) if is_mixed else copy)
            first += run.count

    def drop_through(self, number: int) -> None:
        for runs in self.by_kind.values():
            runs.drop_through(number)


class Stream:
    def __init__(
        self, peer: PeerKey, journal: Journal, limits: Limits, first: int, lost: int = 0, broker: str = ""
    ) -> None:
        """`first`: what its numbers follow; `broker`: the name of the one who keeps it."""
        self.peer, self.limits, self._broker = peer, limits, broker
        self.counted = first  # the number that was given last
        self.on_disk, self.gaps = OnDisk(), Gaps()
        self.lost = lost  # dropped before they were acknowledged
        self.suspected_lost = 0  # of those, events that nobody had asked for
        self._journal = journal
        self._memory_sent: deque[tuple[int, bytes]] = deque()
        self._memory_waiting: deque[tuple[int, bytes]] = deque()
        self._memory_bytes = 0  # of both
        self._last = 0  # number appended last: of this life, or of an earlier one
        self._send: Send | None = None
        self._cursor = self._sent_after = 0  # number sent last, and what the first that was sent followed
        self._is_reading = self._is_behind = self._reads_again = False
        self._under_way: deque[tuple[int, int]] = deque()  # number, size: sent, not acknowledged
        self._under_way_bytes = 0
        self._attachments = 0  # so far: a page that comes for an earlier one is late
        self._marks: deque[tuple[int, Callable[[], None]]] = deque()  # calls, and the number that goes before

    def set_limits(self, bytes_max: int, seconds_max: float) -> None:
        """Of what is on disk, from now on."""
        self.limits = dataclasses.replace(self.limits, bytes_max=bytes_max, seconds_max=seconds_max)

    def restore(self, row: StoredRow) -> None:
        if row.gap is not None:
            self.gaps.add(decoded_gap(row.gap))
        else:
            self._add(row.number, row.size, Stamp(row.at, row.ran), row.entry)
        self._last = row.number

    def _add(self, number: int, size: int, stamp: Stamp, entry: int) -> None:
        bytes_max = min(SEGMENT_BYTES, self.limits.bytes_max // SEGMENTS)
        self.on_disk.by_kind[entry].add(number, size, stamp, bytes_max)

    @property
    def waiting_bytes(self) -> int:
        """The bytes of events that wait in memory."""
        return self._memory_bytes

    @property
    def is_empty(self) -> bool:
        """Whether nothing is kept."""
        return not (self.on_disk.count or self.gaps or self._memory_bytes)

    @property
    def is_attached(self) -> bool:
        return self._send is not None

    def has_sent(self, number: int) -> bool:
        """Whether the receiver may have got this number since it was attached."""
        return self._send is not None and self._sent_after < number <= self._cursor

    @property
    def oldest(self) -> int:
        """No event with a lower number is kept."""
        memory = self._memory_sent or self._memory_waiting
        firsts = (self.on_disk.first, self.gaps.first, memory[0][0] if memory else None)
        return min([self.counted, *(each for each in firsts if each is not None)])

    def append(self, event: bytes, kept: bool, stamp: Stamp, bare: bytes | None = None, entry: int = ASKED) -> int:
        """Keep an event, on disk if `kept`, and send it if the receiver is there and keeps up. `bare`: the event as it
        is kept, if that is not as it is sent now."""
        stored = event if bare is None else bare
        number = self.counted = self.counted + 1
        is_next = self._send is not None and not self._is_behind and self._cursor >= self._last
        self._last = number
        if kept:
            self._journal.append(self.peer, number, stamp, entry, stored)
            self._add(number, len(stored), stamp, entry)
            if self.on_disk.bytes > self.limits.bytes_max:
                self._drop_too_much()
        goes = is_next and self._under_way_bytes < self.limits.unacknowledged_bytes_max
        if not kept:
            (self._memory_sent if goes else self._memory_waiting).append((number, stored))
            self._memory_bytes += len(stored)
            if self._memory_bytes > self.limits.memory_bytes_max:
                self._forget_oldest()
        if goes:
            self._pass(number, event)
        elif self._send is not None:
            self._is_behind = True
        return number

    def append_all(
        self,
        events: list[bytes],
        kept: bool,
        stamp: Stamp,
        bare: list[bytes] | None = None,
        suspected: Container[int] = (),
    ) -> None:
        """`append` of each; at once, if they need no disk and the receiver keeps up. `suspected`: which of them nobody
        has asked for yet, by their places."""
        stored = events if bare is None else bare
        keeps_up = self._send is not None and not self._is_behind and self._cursor >= self._last
        if kept or not keeps_up or self._under_way_bytes >= self.limits.unacknowledged_bytes_max:
            for at, (event, each) in enumerate(zip(events, stored, strict=True)):
                self.append(event, kept, stamp, each, SUSPECTED if at in suspected else ASKED)
            return
        assert self._send is not None
        numbers = range(self.counted + 1, self.counted + len(events) + 1)
        self.counted = numbers[-1]
        size = sum(map(len, events))
        self._memory_sent.extend(zip(numbers, stored, strict=True))
        self._memory_bytes += sum(map(len, stored))
        if self._memory_bytes > self.limits.memory_bytes_max:
            self._forget_oldest()
        self._last = self._cursor = numbers[-1]
        self._under_way.append((numbers[-1], size))
        self._under_way_bytes += size
        self._send(numbers, events)

    def call_behind(self, call: Callable[[], None]) -> None:
        """Call when all that was appended before has been sent to the receiver; never, if it goes before that."""
        if self._send is None:
            return
        if not self._is_behind and self._cursor >= self._last:
            call()
        else:
            self._marks.append((self._last, call))

    def _call_marks(self) -> None:
        while self._marks and self._marks[0][0] <= self._cursor:
            self._marks.popleft()[1]()

    def copy_from(self, other: Stream, stamp: Stamp) -> int:
        """All that another receiver has not acknowledged is for this one, too. How many events that are; those that
        wait in memory do not count."""
        count = other.on_disk.count
        for gap in list(other.gaps):
            self.append_gap(gap, stamp)
        if not count:
            return 0
        self.on_disk.add_all(other.on_disk, self.counted)
        self.counted = self._last = self.counted + count
        self._journal.copy(other.peer, self.peer, self.counted)
        self._drop_too_much()
        if self._send is not None:
            self._is_behind = True
            self._read_on()
        return count

    def prepend(self, other: Stream, stamp: Stamp) -> None:
        """All that is kept for another receiver comes first. What is kept here gets numbers after that."""
        last, gaps = self.counted, [*other.gaps, *self.gaps]
        other.copy_from(self, stamp)
        self.on_disk, self.gaps = OnDisk(), Gaps()
        for gap in gaps:
            self.append_gap(gap, stamp)
        if other.on_disk.count:
            self.on_disk.add_all(other.on_disk, self.counted)
            self.counted = self._last = self.counted + other.on_disk.count
            self._journal.copy(other.peer, self.peer, self.counted)  # on disk twice, before it is there no more
        self._journal.discard(self.peer, last)
        self._drop_too_much()
        if self._send is not None:
            self._is_behind = True
            self._read_on()

    def acknowledge(self, number: int) -> None:
        """The receiver holds what came up to this number."""
        for memory in (self._memory_sent, self._memory_waiting):
            while memory and memory[0][0] <= number:
                self._memory_bytes -= len(memory.popleft()[1])
        if self.on_disk.count or self.gaps:
            self._journal.discard(self.peer, number)
            self.on_disk.drop_through(number)
            self.gaps.drop_through(number)
        while self._under_way and self._under_way[0][0] <= number:
            self._under_way_bytes -= self._under_way.popleft()[1]
        if self._is_behind and self._under_way_bytes <= self.limits.unacknowledged_bytes_max // 2:
            self._read_on()

    def attach(self, send: Send, after: int) -> None:
        """The receiver is there, and holds what came up to a number."""
        self._attachments += 1
        self._send, self._cursor = send, after
        self._sent_after = after
        self._under_way.clear()
        self._under_way_bytes = 0
        self._marks.clear()
        self._is_behind, self._is_reading = True, False
        self._memory_waiting.extendleft(reversed(self._memory_sent))
        self._memory_sent.clear()
        self.acknowledge(after)
        self._read_on()

    def detach(self) -> None:
        self._send = None
        self._marks.clear()
        self._attachments += 1

    def expire(self, ran: float) -> int:
        """Drop what is too old when nodes have run for so long. How many events."""
        before = self.lost
        for entry, runs in self.on_disk.by_kind.items():
            while runs.oldest is not None and runs.oldest.ran < ran - self.limits.seconds_max:
                self._drop_run(entry)
        return self.lost - before

    def _pass(self, number: int, event: bytes) -> None:
        assert self._send is not None
        self._cursor = number
        self._under_way.append((number, len(event)))
        self._under_way_bytes += len(event)
        self._send((number,), (event,))

    def _drop_too_much(self) -> None:
        while self.on_disk.bytes > self.limits.bytes_max and self.on_disk.count > 1:
            self._drop_run(SUSPECTED if self.on_disk.suspected.count else ASKED)

    def _drop_run(self, entry: int) -> None:
        run = self.on_disk.by_kind[entry].take_oldest()
        self.lost += run.count
        if entry == SUSPECTED:
            self.suspected_lost += run.count
        since, until = max(0.0, run.since), max(0.0, run.until)
        gap = Gap(run.last, run.count, since, until, self._broker, self.peer.name)
        self._put_gap(gap, Stamp(run.until, run.ran), Span(run.first, run.last, entry))

    def append_gap(self, gap: Gap, stamp: Stamp) -> None:
        """Pass on that events are lost which were to come here."""
        is_next = self._send is not None and not self._is_behind and self._cursor >= self._last
        self._last = self.counted = self.counted + 1
        gap = self._put_gap(replace(gap, number=self.counted), stamp)
        if is_next and self._under_way_bytes < self.limits.unacknowledged_bytes_max:
            self._pass(gap.number, encode(gap))
        elif self._send is not None:
            self._is_behind = True

    def _put_gap(self, gap: Gap, stamp: Stamp, *gone: Span) -> Gap:
        """Keep a gap, or the one that it becomes with another one, in place of what has gone."""
        other = self.gaps.take_partner(gap, -1 if self._send is None else self._cursor)
        if other is not None:
            gap, gone = joined(gap, other), (*gone, Span(other.number, other.number, GAP))
        self.gaps.add(gap)
        self._journal.put_gap_entry(self.peer, gone, gap.number, stamp, encode(gap))
        return gap

    def _forget_oldest(self) -> None:
        while self._memory_bytes > self.limits.memory_bytes_max:
            if self._memory_sent:  # it is under way: lost only if the link is cut just now
                self._memory_bytes -= len(self._memory_sent.popleft()[1])
            else:
                self._memory_bytes -= len(self._memory_waiting.popleft()[1])
                self.lost += 1

    # --- Reading back ------------------------------------------------------------------------------------------------

    def _read_on(self) -> None:
        if self._send is None or self._is_reading:
            return
        if not self.on_disk.count and not self.gaps:  # only memory: no need to ask the store
            self._page([], True, self._attachments, self._last)
            return
        self._is_reading = True
        attachment, last = self._attachments, self._last
        self._journal.read(
            self.peer, self._cursor, PAGE_COUNT, lambda rows, whole: self._page(rows, whole, attachment, last)
        )

    def _page(self, rows: list[tuple[int, bytes]], is_whole: bool, attachment: int, last: int) -> None:
        """`last`: the number appended last when the page was asked for; all up to it are in the page, or in memory, if
        the page is not full and the store had seen all."""
        if attachment != self._attachments or self._send is None:
            return
        self._is_reading = False
        is_end = is_whole and len(rows) < PAGE_COUNT
        through = last if is_end else rows[-1][0] if rows else self._cursor
        is_through = self._pass_all(rows, through)
        if is_through:
            self._cursor = max(self._cursor, through)
        self._call_marks()
        if not is_through:
            return  # goes on when acknowledgements come
        if is_end and self._cursor >= self._last:
            self._is_behind = False
        elif rows or is_end:
            self._read_on()
        else:
            self._reads_again = True

    def _pass_all(self, rows: list[tuple[int, bytes]], through: int) -> bool:
        """Send a page, and what is in memory up to a number, in order. Whether there was room for all."""
        waiting, at = self._memory_waiting, 0
        while True:
            from_memory = bool(waiting) and waiting[0][0] <= through
            if not from_memory and at == len(rows):
                return True
            if self._under_way_bytes >= self.limits.unacknowledged_bytes_max:
                return False
            if from_memory and (at == len(rows) or waiting[0] < rows[at]):
                self._memory_sent.append(waiting.popleft())
                self._pass(*self._memory_sent[-1])
            else:
                if rows[at][0] > self._cursor:
                    self._pass(*rows[at])
                at += 1

    def tick(self) -> None:
        """Read on after the store had not seen all that was to be written."""
        if self._reads_again:
            self._reads_again = False
            self._read_on()
