"""Waiting, with asyncio, for what may be written to a connection, and for what is on disk."""

from __future__ import annotations

import asyncio

from thatch.delivery.outgoing import Gate, Outgoing


class SocketOutgoing(Outgoing):
    """What waits to be written to a socket, and the one task that writes it."""

    _waiter: asyncio.Future[None] | None = None

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        """Until there may be something to write."""
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter
        self._waiter = None


async def reached(gate: Gate, ticket: int) -> None:
    """Wait until a ticket is on disk."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    gate.call_at(ticket, lambda: None if future.done() else future.set_result(None))
    await future
