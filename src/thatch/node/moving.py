"""A durable subscription moves to another broker, as a client moves: it is asked for there, and has settled, before
this broker is flushed and asks for it no longer. So every event is kept at one of both, or at both.

    there   ask ─▶ settled                           from here on every event is kept there
    here                   flush ─▶ answered ─▶ end  what had been on its way is kept here

Its client reads what is left here, in order, and is then told where to go on.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from thatch.client.client import connect
from thatch.errors import CallerError, Unavailable, shown
from thatch.node.host import Host
from thatch.node.outgoing import reached
from thatch.protocol.address import checked_url

log = logging.getLogger("thatch.node")
ANSWER_SECONDS = 10.0  # of the other broker, and of all brokers to the flush
POLL_SECONDS = 0.01


async def move_queue(node: Host, client: str, id: str, url: str) -> dict[str, Any]:
    """What fails leaves it here, and what was asked for there is asked for again by the next try."""
    url, queue = checked_url(url), node.queues.get(client, id)
    where, limits = queue.where, queue.stream.limits
    async with await connect(url, None, ANSWER_SECONDS) as there:
        if there.life == node.driver.history.present.id:
            raise CallerError(f"{url} is the address of this broker itself")
    async with await connect(url, client, ANSWER_SECONDS) as there:
        await there.subscribe(
            where,
            durable=id,
            bytes_max=limits.bytes_max,
            seconds_max=limits.seconds_max,
            timeout_seconds=ANSWER_SECONDS,
        )
    queue.flush()
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            while not queue.is_flushed:
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        why = f"not all brokers have answered a flush within {ANSWER_SECONDS:g} seconds"
        raise Unavailable(f"{shown(id)} stays here: {why}; `thatch admin links` says which neighbour is away") from None
    if node.queues.get(client, id) is not queue or queue.where != where:
        raise CallerError(f"{shown(id)} stays here: its client has changed it meanwhile; try again", code="later")
    kept = queue.stream.on_disk.count
    node.queues.move(queue, url)
    await reached(node.gate, node.store.ticket)
    log.info("an operator has durable subscription %s moved to %s", queue.name, url)
    return {"client": client, "id": id, "url": url, "left": kept}
