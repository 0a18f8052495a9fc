"""A durable subscription moves to another broker, as a client moves: it is asked for there, and has settled, before
this broker is flushed and asks for it no longer. So every event is kept at one of both, or at both.

    there   ask ─▶ settled                           from here on every event is kept there
    here                   flush ─▶ answered ─▶ end  what had been on its way is kept here
                                                └──▶ Refill, Refill … ─▶ there, before what is kept there

If that is broken off, its client reads what is left here first, in order, and is then told where to go on.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from thatch.client.client import AsyncClient, connect
from thatch.delivery.journal import Rows
from thatch.delivery.queues import Queue
from thatch.delivery.stream import PAGE_COUNT
from thatch.errors import CallerError, Unavailable, shown
from thatch.node.host import Host
from thatch.node.outgoing import reached
from thatch.protocol.address import checked_url

log = logging.getLogger("thatch.node")
ANSWER_SECONDS = 10.0  # of the other broker, and of all brokers to the flush
POLL_SECONDS = 0.01
PAGE_SECONDS = 30.0  # until a page of events is on the disk of the other broker


async def move_queue(node: Host, client: str, id: str, url: str) -> dict[str, Any]:
    """If it fails before it is asked for no longer, it stays here; after that, what it has kept does."""
    url, left = checked_url(url), node.queues.remainder(client, id)
    async with await connect(url, None, ANSWER_SECONDS) as there:
        if there.life == node.driver.history.present.id:
            raise CallerError(f"{url} is the address of this broker itself")
    queue = left or node.queues.get(client, id)
    async with await connect(url, client, ANSWER_SECONDS) as there:
        if left is None:
            await _move(node, queue, there)
        passed = await _pass_on(node, queue, there)
    await reached(node.gate, node.store.ticket)
    log.info("durable subscription %s, with %d events, was moved to %s", queue.name, passed, url)
    return {"client": client, "id": id, "url": url, "passed": passed}


async def _move(node: Host, queue: Queue, there: AsyncClient) -> None:
    where, limits, id = queue.where, queue.stream.limits, queue.id
    bounds: dict[str, Any] = {"bytes_max": limits.bytes_max, "seconds_max": limits.seconds_max}
    await there.subscribe(where, durable=id, timeout_seconds=ANSWER_SECONDS, **bounds)
    queue.flush()
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            while not queue.is_flushed:
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        why = f"not all brokers have answered a flush within {ANSWER_SECONDS:g} seconds"
        raise Unavailable(f"{shown(id)} stays here: {why}; `thatch admin links` says which neighbour is away") from None
    if node.queues.get(queue.owner, id) is not queue or queue.where != where:
        raise CallerError(f"{shown(id)} stays here: its client has changed it meanwhile; try again", code="later")
    node.queues.move(queue, there.url)


async def _pass_on(node: Host, queue: Queue, there: AsyncClient) -> int:
    """What it keeps here comes before what it keeps there. How many events that are."""
    after = place = 0
    while rows := await _page(node, queue, after):
        after = rows[-1][0]
        for _, event in rows:
            place += 1
            future = await there.refill(queue.id, place, event)
        await _answered(future)
    await _answered(await there.refill(queue.id, place + 1, None))
    node.queues.end_moved(queue)
    return place


async def _answered(future: asyncio.Future[str]) -> None:
    try:
        async with asyncio.timeout(PAGE_SECONDS):
            await future
    except TimeoutError:
        raise Unavailable(f"the other broker has kept no event for {PAGE_SECONDS:g} seconds") from None


async def _page(node: Host, queue: Queue, after: int) -> Rows:
    page: asyncio.Future[Rows] = asyncio.get_running_loop().create_future()

    def take(rows: Rows, is_whole: bool) -> None:
        if not page.done():
            page.set_result(rows)

    node.store.read(queue.stream.peer, after, PAGE_COUNT, take)
    return await page
