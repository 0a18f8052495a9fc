"""Events for one receiver, numbered and kept until it has acknowledged them: a durable subscription, or a neighbour.

    append ─▶ [store, or memory] ─▶ sent, not acknowledged ─▶ gone
                                 cursor                    acknowledged

Numbers are counted without gaps in each life of the store, from where the stream begins in it (history.py).

While the receiver keeps up, an event goes to it the moment it is appended; nothing is read back. When it falls behind
(more than a bound is not acknowledged) or was away, what it has not got is read in pages from the
store as its acknowledgements come. So memory does not grow with what is kept.

Events that need no disk (plain ones, for a neighbour) are kept in memory instead, up to a limit, in the same order.
What is too much or too old goes, the oldest first, and is counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from thatch.delivery.journal import Journal, StoredRow
from thatch.protocol.records import PeerKey

PAGE_COUNT = 256
SEGMENT_COUNT, SEGMENT_BYTES = 128, 65_536
Send = Callable[[Sequence[int], Sequence[bytes]], None]  # numbers, encoded events


@dataclass(kw_only=True, frozen=True, slots=True)
class Limits:
    """Bounds of what is kept for a receiver."""

    bytes_max: int  # on disk
    seconds_max: float
    memory_bytes_max: int  # of events that need no disk
    unacknowledged_bytes_max: int  # sent and not acknowledged


class DiskRuns:
    """How much a queue holds on disk, in runs of some events: enough to know what to drop, at little memory."""

    def __init__(self) -> None:
        self._runs: deque[list[float]] = deque()  # last number, count, bytes, time of the last
        self.count = self.bytes = 0
        self.first = 0  # no lower number is here, while anything is

    def add(self, number: int, size: int, at: float) -> None:
        run = self._runs[-1] if self._runs else None
        if run is None:
            self.first = number
        if run is None or run[1] >= SEGMENT_COUNT or run[2] >= SEGMENT_BYTES:
            self._runs.append([number, 1, size, at])
        else:
            run[:] = number, run[1] + 1, run[2] + size, at
        self.count += 1
        self.bytes += size

    def drop_through(self, number: int) -> None:
        while self._runs and self._runs[0][0] <= number:
            self._drop_first()

    def drop_oldest(self) -> tuple[int, int]:
        """The oldest run: its last number, and how many events it had."""
        number, count = int(self._runs[0][0]), int(self._runs[0][1])
        self._drop_first()
        return number, count

    def _drop_first(self) -> None:
        run = self._runs.popleft()
        self.count -= int(run[1])
        self.bytes -= int(run[2])

    def add_all(self, others: DiskRuns, first: int) -> None:
        """As much as another one holds, under the numbers that follow one."""
        if not self._runs:
            self.first = first
        for _, count, size, at in others._runs:
            first += int(count)
            self._runs.append([first, count, size, at])
        self.count += others.count
        self.bytes += others.bytes

    @property
    def oldest(self) -> float | None:
        """When the newest event of the oldest run came."""
        return self._runs[0][3] if self._runs else None


class Stream:
    def __init__(self, peer: PeerKey, journal: Journal, limits: Limits, first: int, lost: int = 0) -> None:
        """`first`: what its numbers follow."""
        self.peer, self.limits = peer, limits
        self.counted = first  # the number that was given last
        self.on_disk = DiskRuns()
        self.lost = lost  # dropped before they were acknowledged
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
        self.limits = replace(self.limits, bytes_max=bytes_max, seconds_max=seconds_max)

    def restore(self, row: StoredRow) -> None:
        self.on_disk.add(row.number, row.size, row.at)
        self._last = row.number

    @property
    def waiting_bytes(self) -> int:
        """The bytes of events that wait in memory."""
        return self._memory_bytes

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
        return min(self.on_disk.first if self.on_disk.count else self.counted, memory[0][0] if memory else self.counted)

    def append(self, event: bytes, kept: bool, now: float, bare: bytes | None = None) -> int:
        """Keep an event, on disk if `kept`, and send it if the receiver is there and keeps up. `bare`: the event as it
        is kept, if that is not as it is sent now."""
        stored = event if bare is None else bare
        number = self.counted = self.counted + 1
        is_next = self._send is not None and not self._is_behind and self._cursor >= self._last
        self._last = number
        if kept:
            self._journal.append(self.peer, number, now, stored)
            self.on_disk.add(number, len(stored), now)
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

    def append_all(self, events: list[bytes], kept: bool, now: float, bare: list[bytes] | None = None) -> None:
        """`append` of each; at once, if they need no disk and the receiver keeps up."""
        stored = events if bare is None else bare
        keeps_up = self._send is not None and not self._is_behind and self._cursor >= self._last
        if kept or not keeps_up or self._under_way_bytes >= self.limits.unacknowledged_bytes_max:
            for event, each in zip(events, stored, strict=True):
                self.append(event, kept, now, each)
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

    def copy_from(self, other: Stream) -> int:
        """All that another receiver has not acknowledged is for this one, too. How many events that are; those that
        wait in memory do not count."""
        count = other.on_disk.count
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

    def acknowledge(self, number: int) -> None:
        """The receiver holds what came up to this number."""
        for memory in (self._memory_sent, self._memory_waiting):
            while memory and memory[0][0] <= number:
                self._memory_bytes -= len(memory.popleft()[1])
        if self.on_disk.count:
            self._journal.discard(self.peer, number)
            self.on_disk.drop_through(number)
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

    def expire(self, now: float) -> int:
        """Drop what is too old. How many events."""
        before = self.lost
        oldest = self.on_disk.oldest
        while oldest is not None and oldest < now - self.limits.seconds_max:
            self._drop_run()
            oldest = self.on_disk.oldest
        return self.lost - before

    def _pass(self, number: int, event: bytes) -> None:
        assert self._send is not None
        self._cursor = number
        self._under_way.append((number, len(event)))
        self._under_way_bytes += len(event)
        self._send((number,), (event,))

    def _drop_too_much(self) -> None:
        while self.on_disk.bytes > self.limits.bytes_max and self.on_disk.count > 1:
            self._drop_run()

    def _drop_run(self) -> None:
        number, count = self.on_disk.drop_oldest()
        self._journal.discard(self.peer, number)
        self.lost += count

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
        if not self.on_disk.count:  # only memory: no need to ask the store
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
