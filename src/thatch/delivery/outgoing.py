"""What waits to be written to one connection: bounded, and drained into one frame, many messages at a time.

Four queues. Events come first, so that none waits behind a burst of control messages. Answers to events (acknowledged,
refused) and control messages wait until what they speak of is on disk. A control message never overtakes an event that
was queued before it: what a `Flush` or a `Settled` says about events stays true. Nor does an event overtake the space
in which it is to be read (`Extend`). In each frame there is room for some control messages, so that a stream of events
does not hold them up for ever.

    events   |e1 e2 e3 ........|         bounded in bytes: the oldest are dropped, or the connection is closed
    kept     |k1 k2 k3 |                 events that may not be dropped: their stream has a window (stream.py)
    answers  |(ticket, message)|         sent when the store has committed the ticket
    control  |(ticket, mark, message)|   likewise, and when `mark` events have gone before it
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from thatch.protocol.codec import encode
from thatch.protocol.wire import Notice, frame

FRAME_EVENTS = 256 * 1024  # bytes of events in a frame
FRAME_CONTROL = 64 * 1024  # bytes of control messages in the same frame


class Overflow(Exception):
    """More waits than the connection may hold."""


class Gate:
    """What is on disk, and who waits for more."""

    def __init__(self) -> None:
        self.committed = 0  # the last ticket
        self._is_shut = False
        self._waiting: dict[Outgoing, None] = {}
        self._calls: list[tuple[int, Callable[[], None]]] = []

    def call_at(self, ticket: int, call: Callable[[], None]) -> None:
        """Call when a ticket is on disk."""
        if ticket <= self.committed:
            call()
        else:
            self._calls.append((ticket, call))

    def wait(self, outgoing: Outgoing) -> None:
        self._waiting[outgoing] = None

    def shut(self) -> None:
        """From now on nothing is acknowledged, whatever is on disk."""
        self.committed, self._is_shut = -1, True

    def open(self, ticket: int) -> None:
        if self._is_shut:
            return
        self.committed = ticket
        waiting, self._waiting = self._waiting, {}
        for outgoing in waiting:
            outgoing.wake()
        reached = [call for wanted, call in self._calls if wanted <= ticket]
        if reached:
            self._calls = [each for each in self._calls if each[0] > ticket]
            for call in reached:
                call()


class Outgoing:
    """Whoever writes overrides `wake`."""

    def __init__(self, gate: Gate, events_max: int, drops: bool, control_max: int, is_open: bool = True) -> None:
        """`drops`: the oldest events go when there are too many bytes of them; else that is an `Overflow`. Unless
        `is_open`, events wait for the control message that opens it."""
        self._gate, self._is_open, self._opener = gate, is_open, b""
        self._events_max, self._drops, self._control_max = events_max, drops, control_max
        self._events: deque[bytes] = deque()
        self._kept: deque[bytes] = deque()
        self._answers: deque[tuple[int, bytes]] = deque()
        self._control: deque[tuple[int, int, bytes]] = deque()
        self._barriers: deque[tuple[int, bytes]] = deque()  # events from this one on wait for the message
        self._events_gone = 0  # sent or dropped
        self._events_bytes = self._control_bytes = 0
        self._dropped_unannounced = 0
        self.dropped = 0
        self.frames = 0

    @property
    def events_bytes(self) -> int:
        return self._events_bytes

    @property
    def is_empty(self) -> bool:
        return not (self._events or self._kept or self._answers or self._control)

    def event(self, message: bytes) -> None:
        self._events.append(message)
        self._events_bytes += len(message)
        if self._events_bytes > self._events_max:
            if not self._drops:
                raise Overflow(
                    f"{self._events_bytes:,} bytes of events wait to be read; at most {self._events_max:,} may"
                )
            self._drop_oldest()
        self.wake()

    def events(self, messages: list[bytes]) -> None:
        """Many, which are not dropped: their stream has a window."""
        self._events += messages
        self._events_bytes += sum(map(len, messages))
        self.wake()

    def kept(self, messages: list[bytes]) -> None:
        self._kept += messages
        self.wake()

    def _drop_oldest(self) -> None:
        while self._events_bytes > self._events_max and len(self._events) > 1:
            self._events_bytes -= len(self._events.popleft())
            self._events_gone += 1
            self._dropped_unannounced += 1
            self.dropped += 1

    def answer(self, message: bytes, ticket: int) -> None:
        self._answers.append((ticket, message))
        self._wake_at(ticket)

    def refusal(self, message: bytes) -> None:
        """At once: nothing was recorded that it would have to wait for."""
        self._answers.appendleft((0, message))
        self.wake()

    def open_after(self, message: bytes, ticket: int) -> None:
        """A control message that comes before any event."""
        self._opener = message
        self.control(message, ticket)

    def control(self, message: bytes, ticket: int) -> None:
        self._control.append((ticket, self._events_gone + len(self._events), message))
        self._control_bytes += len(message)
        if self._control_bytes > self._control_max:
            raise Overflow(
                f"{self._control_bytes:,} bytes of messages wait to be read; at most {self._control_max:,} may"
            )
        self._wake_at(ticket)

    def hold_for(self, message: bytes, ticket: int) -> None:
        """A control message that no later event overtakes."""
        self._barriers.append((self._events_gone + len(self._events), message))
        self.control(message, ticket)

    def _wake_at(self, ticket: int) -> None:
        if ticket <= self._gate.committed:
            self.wake()
        else:
            self._gate.wait(self)

    def wake(self) -> None:
        """There may be something to write."""

    def take(self) -> bytes | None:
        """The next frame; None if there is nothing to write yet."""
        parts: list[bytes] = []
        if self._dropped_unannounced:
            reason = f"more than {self._events_max:,} bytes of events were waiting to be read: the oldest were dropped"
            parts.append(encode(Notice("", self._dropped_unannounced, reason)))
            self._dropped_unannounced = 0
        if self._is_open:
            self._take_events(parts)
        if self._kept:
            self._take_kept(parts)
        committed = self._gate.committed
        while self._answers and self._answers[0][0] <= committed:
            parts.append(self._answers.popleft()[1])
        size = 0
        while self._control and size < FRAME_CONTROL:
            ticket, mark, message = self._control[0]
            if ticket > committed or mark > self._events_gone:
                break
            self._control.popleft()
            parts.append(message)
            size += len(message)
            if self._barriers and message is self._barriers[0][1]:
                self._barriers.popleft()
            if message is self._opener:
                self._is_open, self._opener = True, b""
                self._take_events(parts)
        self._control_bytes -= size
        if (self._answers and self._answers[0][0] > committed) or (self._control and self._control[0][0] > committed):
            self._gate.wait(self)
        if not parts:
            return None
        self.frames += 1
        return frame(parts)

    def _take_events(self, parts: list[bytes]) -> None:
        if self._events_bytes <= FRAME_EVENTS and not self._barriers:
            parts += self._events
            self._events_gone += len(self._events)
            self._events.clear()
            self._events_bytes = 0
            return
        size = 0
        end = self._barriers[0][0] if self._barriers else self._events_gone + len(self._events)
        while size < FRAME_EVENTS and self._events_gone < end:
            message = self._events.popleft()
            parts.append(message)
            size += len(message)
            self._events_gone += 1
        self._events_bytes -= size

    def _take_kept(self, parts: list[bytes]) -> None:
        size = 0
        while self._kept and size < FRAME_EVENTS:
            message = self._kept.popleft()
            parts.append(message)
            size += len(message)
