"""The client for programs without a loop of their own: the same calls, each of which waits.

    with connect_blocking("ws://127.0.0.1:7878", "ann") as ann:
        ann.advertise("price < 500")
        alerts = ann.subscribe("price < 20")
        ann.publish({"price": 12.5})
        for event in alerts:
            print(event.event)

The asynchronous client runs in a thread; this hands calls to it. Safe to use from several threads.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Mapping
from concurrent.futures import CancelledError
from typing import Any, Self, TypeVar

from thatch.client.client import CLOSE_SECONDS, KEEP_BYTES, KEEP_SECONDS, AsyncClient, connect
from thatch.client.subscription import AsyncSubscription
from thatch.client.waiting import TIMEOUT_SECONDS
from thatch.errors import Unavailable
from thatch.protocol.messages import Publish

T = TypeVar("T")


class BlockingSubscription:
    """Iterate over it, or ask for the next event."""

    def __init__(self, client: BlockingClient, subscription: AsyncSubscription) -> None:
        self._client, self.subscription = client, subscription

    def __iter__(self) -> Iterator[Publish]:
        while True:
            try:
                event = self._client.run(self._next())
            except Unavailable:
                if not self._client.is_closed:
                    raise
                event = self.subscription.next_now()  # what had come by then
            if event is None:
                return
            yield event

    async def _next(self) -> Publish | None:
        return await anext(self.subscription, None)

    def next(self, seconds: float | None = None) -> Publish:
        """The next event; `TimedOut`, which is a `TimeoutError`, if none comes in time."""
        return self._client.run(self.subscription.next(seconds))

    @property
    def missing(self) -> tuple[str, ...]:
        """The brokers that are away, behind which it has not settled."""
        return self.subscription.missing

    def done(self) -> None:
        """The event that was handed out last has been dealt with."""

        async def say() -> None:
            self.subscription.done()

        self._client.run(say())


class BlockingClient:
    """A client for programs with threads. `connect_blocking` makes it."""

    def __init__(self, url: str, name: str | None, timeout_seconds: float | None) -> None:
        self._lock, self._is_over = threading.Lock(), False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="thatch client", daemon=True)
        self._thread.start()
        try:
            self._client: AsyncClient = self.run(connect(url, name, timeout_seconds))
        except BaseException:
            self._end()
            raise

    @property
    def name(self) -> str:
        return self._client.name

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_over

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for a coroutine of the client."""
        with self._lock:
            if self._is_over:
                work.close()
                raise self._client.failure or _closed()
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException as error:  # also an interrupt: what nobody waits for any longer is given up
            future.cancel()
            if isinstance(error, CancelledError) and self._is_over:
                raise _closed() from None
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self, *, timeout_seconds: float = CLOSE_SECONDS) -> None:
        """What was published and not acknowledged is waited for a little. Calls of other threads end with an error."""
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
        asyncio.run_coroutine_threadsafe(self._client.close(timeout_seconds=timeout_seconds), self._loop).result()
        self._end()

    def _end(self) -> None:
        asyncio.run_coroutine_threadsafe(_end_tasks(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def subscribe(
        self,
        where: str,
        id: str | None = None,
        durable: str | None = None,
        bytes_max: int = KEEP_BYTES,
        seconds_max: float = KEEP_SECONDS,
        settled: bool = True,
        *,
        timeout_seconds: float | None = TIMEOUT_SECONDS,
    ) -> BlockingSubscription:
        work = self._client.subscribe(
            where, id, durable, bytes_max, seconds_max, settled, timeout_seconds=timeout_seconds
        )
        return BlockingSubscription(self, self.run(work))

    def advertise(
        self,
        where: str,
        id: str | None = None,
        settled: bool = True,
        *,
        timeout_seconds: float | None = TIMEOUT_SECONDS,
    ) -> str:
        return self.run(self._client.advertise(where, id, settled, timeout_seconds=timeout_seconds))

    def missing(self, what: BlockingSubscription | str) -> tuple[str, ...]:
        async def found() -> tuple[str, ...]:
            return self._client.missing(what if isinstance(what, str) else what.subscription)

        return self.run(found())

    def wait_settled(
        self, what: BlockingSubscription | str, *, timeout_seconds: float | None = TIMEOUT_SECONDS
    ) -> None:
        inner = what if isinstance(what, str) else what.subscription
        self.run(self._client.wait_settled(inner, timeout_seconds=timeout_seconds))

    def unadvertise(self, id: str, *, timeout_seconds: float | None = TIMEOUT_SECONDS) -> None:
        self.run(self._client.unadvertise(id, timeout_seconds=timeout_seconds))

    def replace(
        self,
        subscription: BlockingSubscription,
        where: str,
        settled: bool = True,
        *,
        timeout_seconds: float | None = TIMEOUT_SECONDS,
    ) -> None:
        self.run(self._client.replace(_inner(subscription), where, settled, timeout_seconds=timeout_seconds))

    def unsubscribe(
        self, subscription: BlockingSubscription, *, timeout_seconds: float | None = TIMEOUT_SECONDS
    ) -> None:
        self.run(self._client.unsubscribe(_inner(subscription), timeout_seconds=timeout_seconds))

    def flush(self, *, timeout_seconds: float | None = TIMEOUT_SECONDS) -> None:
        self.run(self._client.flush(timeout_seconds=timeout_seconds))

    def publish(
        self, event: Mapping[str, Any], payload: bytes = b"", *, timeout_seconds: float | None = TIMEOUT_SECONDS
    ) -> str:
        return self.run(self._client.publish(event, payload, timeout_seconds=timeout_seconds))


def connect_blocking(
    url: str, name: str | None = None, timeout_seconds: float | None = TIMEOUT_SECONDS
) -> BlockingClient:
    """Connect to the client port of a broker; as `connect`."""
    return BlockingClient(url, name, timeout_seconds)


def _inner(subscription: object) -> Any:
    """The subscription of the asynchronous client, which refuses what is none."""
    return subscription.subscription if isinstance(subscription, BlockingSubscription) else subscription


def _closed() -> Unavailable:
    return Unavailable("the client was closed")


async def _end_tasks() -> None:
    """Before the loop stops: calls of other threads hear how their waits ended."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    if tasks:
        _, waiting = await asyncio.wait(tasks, timeout=CLOSE_SECONDS)
        for task in waiting:
            task.cancel()
        if waiting:
            await asyncio.wait(waiting, timeout=CLOSE_SECONDS)
    await asyncio.sleep(0)
