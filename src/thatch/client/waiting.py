"""What the calls of a client wait for: a limit on every wait, and changes that are to be accepted or to settle."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from enum import Enum
from itertools import chain
from typing import Any

import msgspec

from thatch.errors import CallerError, TimedOut, code_of, shown
from thatch.protocol.messages import Refused
from thatch.protocol.wire import DurableStatus

TIMEOUT_SECONDS = 10.0  # of a call that waits for the broker


def check_seconds(seconds: object) -> None:
    """Refuse what is no limit of a wait."""
    if seconds is None or (isinstance(seconds, int | float) and 0 <= seconds):
        return
    raise CallerError(f"timeout_seconds is a number of seconds, at least 0, or None for no limit, not {shown(seconds)}")


@asynccontextmanager
async def within(seconds: float | None, awaited: str, why: Callable[[], str] = lambda: "") -> AsyncIterator[None]:
    """Around a wait: if it lasts longer, the error names what was waited for, and `why` it has not come as far as is
    known then. None: no limit."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError:
        if seconds is None or not limit.expired():
            raise
        reason = why()
        raise TimedOut(f"{awaited}: {reason}" if reason else awaited, seconds) from None


class Until(Enum):
    """What a call waits for a change to be."""

    ACCEPTED = "accepted"
    SETTLED = "settled"  # perhaps except behind brokers that are away
    WHOLE = "whole"  # settled everywhere


def to_stand(settled: bool) -> str:
    """What a call waits for a subscription or an advertisement to do."""
    return "to settle" if settled else "to be accepted"


class _Waiter(msgspec.Struct):
    """For a change to be accepted, or to settle."""

    seq: int
    table: str
    id: str
    future: asyncio.Future[None]


class Waiters:
    """For changes of plain subscriptions and of advertisements, in the order in which they were said."""

    def __init__(self) -> None:
        self._by_end: dict[Until, deque[_Waiter]] = {until: deque() for until in Until}
        self._until_flushed: list[asyncio.Future[None]] = []

    def add_flush(self) -> asyncio.Future[None]:
        """For every flush to be answered."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._until_flushed.append(future)
        return future

    def flushed(self) -> None:
        """Every flush has been answered."""
        waiting, self._until_flushed = self._until_flushed, []
        for future in waiting:
            succeed(future)

    def add(self, seq: int, table: str, id: str, until: Until) -> asyncio.Future[None]:
        """For a change with this number; 0 if it will be said when the link is synced."""
        waiter = _Waiter(seq, table, id, asyncio.get_running_loop().create_future())
        self._by_end[until].append(waiter)
        return waiter.future

    def add_whole(
        self, changed_at: Mapping[tuple[str, str], int], table: str, ids: Iterable[str]
    ) -> list[asyncio.Future[None]]:
        """For the last changes of these to settle everywhere. `changed_at`: the numbers of those that have not."""
        waiting = [(id, changed_at[table, id]) for id in ids if (table, id) in changed_at]
        return [self.add(seq, table, id, Until.WHOLE) for id, seq in waiting]

    def _all(self) -> Iterator[_Waiter]:
        return chain.from_iterable(self._by_end.values())

    def synced(self, seq: int) -> None:
        """Whatever was said so far is part of this message."""
        for waiter in self._all():
            waiter.seq = seq

    def refused(self, message: Refused) -> None:
        for waiter in self._all():
            if (waiter.table, waiter.id) == (message.table, message.id) and waiter.seq <= message.seq:
                fail(waiter.future, refusal(message))

    def accepted(self, seq: int) -> None:
        _answer(self._by_end[Until.ACCEPTED], seq)

    def settled(self, seq: int, is_whole: bool) -> None:
        """`is_whole`: not except behind brokers that are away."""
        _answer(self._by_end[Until.SETTLED], seq)
        if is_whole:
            _answer(self._by_end[Until.WHOLE], seq)

    def fail(self, error: Exception) -> None:
        for waiter in self._all():
            fail(waiter.future, error)
        for future in self._until_flushed:
            fail(future, error)


def _answer(waiters: deque[_Waiter], seq: int) -> None:
    while waiters and waiters[0].seq <= seq:
        succeed(waiters.popleft().future)


def refusal(message: Refused | DurableStatus) -> CallerError:
    """A refusal by the broker, as the error of the call that it answers."""
    return CallerError(message.reason, code=code_of(message.code))


def succeed(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        future.add_done_callback(lambda each: each.exception())  # a caller that does not wait for it ignores it


def check_texts(where: object, **others: object) -> None:
    """Before anything is sent: the broker would hang up on what is not of this type. What is None is not given."""
    for what, value in {"a clause": where, **others}.items():
        if not isinstance(value, str) and not (value is None and what in others):
            raise CallerError(f"{what} is a text, not {shown(value)}")
