"""Events from a neighbour that wait for room on the disk.

    refused e1(ann) ─▶ | e1(ann)  e3(ann)  Flushed  e5(ann) |        e2(bob), e4(bob) ─▶ routed: nobody waits for them

What a publisher has published after a refused event waits behind it, so that its events stay in order; events of other
publishers go on, and so do control messages. An answer to `Flush` speaks of events that waited before it came, and
waits behind them; so does a gap. None of it is acknowledged before its turn: after a cut the neighbour sends it again.

What waits is bounded. What comes when there is no room for it is left out, with everything after it: it comes again on
the next connection, which the node brings about when there is room on the disk.
"""

from __future__ import annotations

from collections import Counter, deque

from thatch.protocol.ids import publisher_of
from thatch.protocol.messages import Flushed, Publish
from thatch.protocol.wire import Forward, Gap

FIELD_BYTES = 64  # of a value, as an estimate


class Postponed:
    def __init__(self, bytes_max: int) -> None:
        """`bytes_max`: of events that wait, about."""
        self.has_left_out = False  # the neighbour has to send it again
        self._waiting: deque[Forward | Flushed | Gap] = deque()
        self._publishers: Counter[str] = Counter()
        self._bytes, self._bytes_max = 0, bytes_max

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self._waiting)

    @property
    def first(self) -> Forward | Flushed | Gap:
        """What comes first when there is room."""
        return self._waiting[0]

    def waits_for(self, event: Publish) -> bool:
        """Whether something of the same publisher waits."""
        return self._publishers[publisher_of(event.id)] > 0

    def add(self, message: Forward | Flushed | Gap) -> None:
        self.has_left_out |= self._bytes > self._bytes_max
        if self.has_left_out:
            return
        self._waiting.append(message)
        if isinstance(message, Forward):
            self._publishers[publisher_of(message.event.id)] += 1
        self._bytes += _size(message)

    def drop_first(self) -> None:
        """Its turn has come."""
        message = self._waiting.popleft()
        if isinstance(message, Forward):
            publisher = publisher_of(message.event.id)
            self._publishers[publisher] -= 1
            if not self._publishers[publisher]:
                del self._publishers[publisher]
        self._bytes -= _size(message)


def _size(message: Forward | Flushed | Gap) -> int:
    if not isinstance(message, Forward):
        return FIELD_BYTES
    return len(message.event.payload) + FIELD_BYTES * (len(message.event.event) + 1)
