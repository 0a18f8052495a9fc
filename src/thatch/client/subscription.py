"""A subscription as a program sees it: events that have come and were not asked for yet."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple, Self

from thatch.broker.client_state import REMEMBERED, RecentIds
from thatch.client.waiting import within
from thatch.errors import Unavailable, shown
from thatch.protocol.messages import Publish
from thatch.protocol.wire import Lost, Notice


class Mark(NamedTuple):
    """Where an event of a durable subscription stands: a broker whose store was restored counts again."""

    connection: int  # on which it came, of this client
    number: int
    life: str  # of the broker, on that connection


REMEMBERED_LOSSES = 100
NO_MARK = Mark(0, 0, "")


class AsyncSubscription:
    """`async for event in subscription`. Of events that come faster than they are asked for, the oldest of a plain
    subscription go; `dropped` counts them, with those that the broker dropped.

    What limits have cost a durable subscription, brokers say: `lost` counts the events, and `losses` has the last
    hundred times: at most how many events, which had come to the broker `sender` from `since` to `until` and were kept
    for `receiver`. `on_lost` is called with each when it comes."""

    def __init__(
        self, wheres: Mapping[str, str], bytes_max: int, acknowledge: Callable[[str, Mark], None] | None = None
    ) -> None:
        """`acknowledge` makes it durable: it is called with the id and the mark up to which events are dealt with."""
        self.wheres, self.durable = (
            dict(wheres),
            acknowledge is not None,
        )  # clauses by id: one, or several of a plain one
        self.limits = 0, 0.0  # of a durable one: bytes, seconds
        self._find_missing: Callable[[], tuple[str, ...]] = tuple
        self.dropped = self.lost = 0
        self.notices: deque[Notice] = deque(maxlen=REMEMBERED_LOSSES)
        self.losses: deque[Lost] = deque(maxlen=REMEMBERED_LOSSES)
        self.on_lost: Callable[[Lost], None] = lambda lost: None
        self._acknowledge = acknowledge or (lambda id, mark: None)
        self._events: deque[tuple[Publish, Mark, int]] = deque()  # event, mark, size
        self._bytes, self._bytes_max = 0, bytes_max
        self._came = asyncio.Event()
        self._is_over = False
        self._failure: Exception | None = None
        self._taken = self._done = NO_MARK  # of the event that was handed out last, and of what is dealt with
        self._seen = RecentIds(REMEMBERED)

    @property
    def id(self) -> str:
        """The id of the subscription; of several clauses, the id of the first."""
        return next(iter(self.wheres))

    @property
    def where(self) -> str:
        return self.wheres[self.id]

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Publish:
        event = self.next_now()
        while event is None:
            if self._failure is not None:
                raise self._failure
            if self._is_over:
                raise StopAsyncIteration
            self._came.clear()
            await self._came.wait()
            event = self.next_now()
        return event

    async def next(self, seconds: float | None = None) -> Publish:
        """The next event; `TimedOut`, which is a `TimeoutError`, if none comes in time."""
        async with within(seconds, f"an event of subscription {shown(self.id)}"):
            try:
                return await anext(self)
            except StopAsyncIteration:
                raise Unavailable(f"subscription {shown(self.id)} has ended") from None

    def next_now(self) -> Publish | None:
        """The next event, if it is there. The one before counts as dealt with."""
        self.done()
        if not self._events:
            return None
        event, self._taken, size = self._events.popleft()
        self._bytes -= size
        return event

    def done(self) -> None:
        """The event that was handed out last has been dealt with: it need not be kept any longer."""
        if self.durable and self._taken > self._done:
            self._done = self._taken
            self._acknowledge(self.id, self._taken)

    def arrived(self, event: Publish, mark: Mark = NO_MARK) -> None:
        if self.durable and not self._is_new(event, mark):
            return
        size = len(event.payload) + 64 * (len(event.event) + 1)
        self._events.append((event, mark, size))
        self._bytes += size
        while self._bytes > self._bytes_max:
            self._bytes -= self._events.popleft()[2]
            self.dropped += 1
        self._came.set()

    def _is_new(self, event: Publish, mark: Mark) -> bool:
        if self._seen.is_new(event.id):
            return True
        self._pass_over(mark)  # it came again under another number
        return False

    def _pass_over(self, mark: Mark) -> None:
        """Nothing is to be handed out under this number: it is dealt with when the event before it is."""
        if self._events:
            last, before, size = self._events[-1]
            self._events[-1] = last, max(before, mark), size
        elif self._taken == self._done:
            self._taken = self._done = max(self._done, mark)
            self._acknowledge(self.id, self._taken)
        else:
            self._taken = max(self._taken, mark)

    def lose(self, lost: Lost, mark: Mark) -> None:
        """A limit has cost events."""
        self.lost += lost.count
        self.losses.append(lost)
        asyncio.get_running_loop().call_soon(self.on_lost, lost)  # what it raises is not the connection's
        self._pass_over(mark)

    def go_on(self, acknowledge: Callable[[str, Mark], None]) -> None:
        """Its events come from another broker, and are acknowledged there."""
        self._acknowledge = acknowledge

    def noticed(self, notice: Notice) -> None:
        self.notices.append(notice)
        if self.durable:
            self.lost += notice.count
        else:
            self.dropped += notice.count

    @property
    def missing(self) -> tuple[str, ...]:
        """The brokers behind which it has not settled because they are away; empty once it has settled everywhere."""
        return self._find_missing()

    def find_missing(self, find: Callable[[], tuple[str, ...]]) -> None:
        """How these are found."""
        self._find_missing = find

    def end(self, failure: Exception | None = None) -> None:
        """No more events come. After those that have come, `failure` is raised; without one, iterating just ends."""
        if not self._is_over:
            self._is_over, self._failure = True, failure
        self._came.set()
