"""A connection closes its own socket, and nobody else's, on the loop of asyncio and on uvloop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import uvloop

from helpers.raw_peers import RawPeer, dialling, run, running, until
from thatch.node.server import Node

LATER = 8  # connections
LOOPS = pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
Loop = Callable[[], asyncio.AbstractEventLoop]


async def is_served(node: Node, peer: RawPeer, name: str) -> bool:
    try:
        await peer.greet(name)
        return bool((await peer.read("Hello"))[1] == node.config.name)
    except (TypeError, ConnectionError):  # the connection was shut
        return False


@LOOPS
def test_a_connection_that_has_ended_cuts_nobody_else(make_loop: Loop, tmp_path: Path) -> None:
    """One of those that came after it has the number that its socket had."""

    async def scenario() -> None:
        async with running(tmp_path) as node:
            async with dialling(node) as peer:
                await peer.greet("ann")
                await peer.read("Hello")
                (ended,) = node._connections
            await until(lambda: not node.connection_count)
            async with AsyncExitStack() as stack:
                peers = [await stack.enter_async_context(dialling(node)) for _ in range(LATER)]
                ended.cut()
                assert [await is_served(node, each, f"c{at}") for at, each in enumerate(peers)] == [True] * LATER

    run(scenario(), make_loop=make_loop)


@LOOPS
def test_a_connection_that_came_is_cut(make_loop: Loop, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node, dialling(node) as peer:
            await peer.greet("ann")
            await peer.read("Hello")
            (connection,) = node._connections
            connection.cut()
            connection.cut()  # nothing is left to cut
            await until(lambda: not node.connection_count)
            assert (await peer.socket.receive()).type.name in ("CLOSED", "ERROR")

    run(scenario(), make_loop=make_loop)


@LOOPS
def test_a_connection_that_was_dialled_is_cut_and_dialled_again(make_loop: Loop, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, "B1") as one:
            neighbours = {"B1": f"ws://127.0.0.1:{one.overlay_port}"}
            async with running(tmp_path, "B2", neighbours=neighbours) as two:
                await until(lambda: "B2" in one.driver.endpoints)
                (first,) = two._connections
                first.cut()
                await until(lambda: first not in two._connections and two.connection_count == 1)
                assert [each.name for each in two._connections] == ["B1"]

    run(scenario(), make_loop=make_loop)
