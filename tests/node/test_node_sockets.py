"""A connection closes its own socket, and nobody else's."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from helpers.raw_peers import RawPeer, dialling, run, running
from thatch.node.server import Node

LATER = 8  # connections


async def is_served(node: Node, peer: RawPeer, name: str) -> bool:
    try:
        await peer.greet(name)
        return bool((await peer.read("Hello"))[1] == node.config.name)
    except (TypeError, ConnectionError):  # the connection was shut
        return False


def test_a_connection_that_has_ended_cuts_nobody_else(tmp_path: Path) -> None:
    """One of those that came after it has the number that its socket had."""

    async def scenario() -> None:
        async with running(tmp_path) as node:
            async with dialling(node) as peer:
                await peer.greet("ann")
                await peer.read("Hello")
                (ended,) = node._connections
            async with asyncio.timeout(5):
                while node.connection_count:
                    await asyncio.sleep(0.01)
            async with AsyncExitStack() as stack:
                peers = [await stack.enter_async_context(dialling(node)) for _ in range(LATER)]
                ended.cut()
                assert [await is_served(node, each, f"c{at}") for at, each in enumerate(peers)] == [True] * LATER

    run(scenario())
