"""Events that a client has published and that its broker has not counted, in the order in which they were published."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from math import inf

import msgspec

from thatch.client.waiting import fail, refusal
from thatch.errors import PeerError, TimedOut
from thatch.protocol.messages import Refused

BYTES_MAX = 4 * 2**20  # that may be under way before publishers wait


class _Event(msgspec.Struct):
    id: str
    encoded: bytes
    future: asyncio.Future[str]
    seconds_max: float  # that the future waits
    until: float  # by the clock of the loop


class Unacknowledged:
    def __init__(self, awaited: str) -> None:
        """`awaited`: what the futures wait for, in the error of one that has waited too long."""
        self._awaited = awaited
        self._timer: asyncio.TimerHandle | None = None  # for the first of them
        self._events: deque[_Event] = deque()
        self._by_id: dict[str, _Event] = {}
        self._bytes = 0
        self._counted = 0  # by the broker, on this connection
        self._sent = 0  # on this connection
        self._room = asyncio.Event()

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[bytes]:
        """The events as they are sent."""
        return (each.encoded for each in self._events)

    @property
    def is_full(self) -> bool:
        return self._bytes > BYTES_MAX

    async def wait_for_room(self) -> None:
        """Until some are acknowledged, or nothing will be any more."""
        self._room.clear()
        await self._room.wait()

    def add(self, id: str, encoded: bytes, timeout_seconds: float | None) -> asyncio.Future[str]:
        """The future brings the id when the broker has dealt with the event. If that takes too long it raises
        `TimedOut`, and the event is sent all the same."""
        loop = asyncio.get_running_loop()
        seconds_max = inf if timeout_seconds is None else timeout_seconds
        event = _Event(id, encoded, loop.create_future(), seconds_max, loop.time() + seconds_max)
        self._end_by(event.until)
        self._events.append(event)
        self._by_id[id] = event
        self._bytes += len(encoded)
        return event.future

    def begin(self) -> None:
        """A connection begins: nothing is sent on it yet."""
        self._counted = self._sent = 0

    def note_sent(self, events: int) -> None:
        self._sent += events

    def count(self, count: int) -> None:
        """The broker has dealt with so many of those that were sent on this connection."""
        if not self._counted <= count <= self._sent:
            raise PeerError(
                f"the broker counts {count:,} events of this connection as published, after {self._counted:,}; "
                f"{self._sent:,} were sent"
            )
        for _ in range(count - self._counted):
            event = self._events.popleft()
            del self._by_id[event.id]
            self._bytes -= len(event.encoded)
            if not event.future.done():
                event.future.set_result(event.id)
        self._counted = count
        if not self.is_full:
            self._room.set()

    def refused(self, message: Refused) -> bool:
        """Whether a refusal is about one of these events. It will be counted all the same."""
        event = None if message.seq else self._by_id.get(message.id)
        if event is not None:
            fail(event.future, refusal(message))
        return event is not None

    def _end_by(self, until: float) -> None:
        """Futures that have waited too long end then, or before."""
        if until < (inf if self._timer is None else self._timer.when()):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_at(until, self._expire)

    def _expire(self) -> None:
        now, self._timer = asyncio.get_running_loop().time(), None
        for event in self._events:
            if event.until <= now:
                fail(event.future, TimedOut(self._awaited, event.seconds_max))
        self._end_by(min((each.until for each in self._events if not each.future.done()), default=inf))

    def fail(self, error: Exception) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for event in self._events:
            fail(event.future, error)
        self._room.set()
