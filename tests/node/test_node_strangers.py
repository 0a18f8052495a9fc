"""Peers that are not expected, or are not who they say: they leave nothing, and nobody waits for them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from helpers.node_process import free_port
from helpers.raw_peers import SESSION, SPACE_JSON, RawPeer, dialling, run, running, url
from thatch.client.client import connect
from thatch.node.config import Listen
from thatch.node.connection import NeighbourConnection
from thatch.node.server import Node
from thatch.protocol.records import NEIGHBOUR, LinkRecord, PeerKey

STRANGERS = 200
LINES_MAX = 5  # of the log about all of them
OTHER_SPACE = '{"attributes": [{"name": "colour", "type": "string"}]}'


async def check_settles(node: Node) -> None:
    """What has to settle does: nobody is waited for."""
    async with asyncio.timeout(5), await connect(url(node), "ann") as ann, await connect(url(node), "bob") as bob:
        await ann.advertise("TRUE")
        wanted = await bob.subscribe("price < 20")
        await ann.publish({"price": 1.0})
        assert (await wanted.next(5)).event == {"price": 1.0}


def check_nothing_is_left(node: Node, name: str) -> None:
    assert name not in node.driver.broker.links and name not in node.driver.streams
    assert name not in node.driver.endpoints


async def refused(node: Node, name: str, path: str = "overlay", space: str = SPACE_JSON, session: int = SESSION) -> str:
    """The code with which a peer of this name is refused."""
    is_client = path == "connect"
    async with dialling(node, path) as peer:
        hello = ["Hello", name, session, space, is_client, 2, [] if is_client else [name], False, "", 3, 3, {}]
        await peer.say(hello, *([] if is_client else [["Resume", "its store", "", 0]]))
        code: str = (await peer.read("Refused"))[5]
        assert await peer.closed() == 1008
        return code


@pytest.mark.parametrize("routing", ["advertisements", "subscriptions"])
def test_a_stranger_leaves_nothing_behind(tmp_path: Path, routing: str) -> None:
    """One greeting was kept for ever, and from then on nothing settled, after restarts, either."""

    async def scenario() -> None:
        async with running(tmp_path, routing=routing, accept=("B9",)) as node:
            assert await refused(node, "stranger") == "unaccepted"
            assert await refused(node, "B9", space=OTHER_SPACE) == "space"
            assert await refused(node, "B1") == "name"
            for name in ("stranger", "B9", "B1"):
                check_nothing_is_left(node, name)
            await check_settles(node)
        async with running(tmp_path, routing=routing, accept=("B9",)) as node:
            assert not [link for link in node.driver.broker.links.values() if not link.is_client]
            await check_settles(node)

    run(scenario())


def test_one_who_begins_to_greet_leaves_nothing_behind(tmp_path: Path) -> None:
    """Who is expected, and says half of a greeting, or another thing in its place."""

    async def scenario() -> None:
        async with running(tmp_path, accept=("B9",)) as node:
            for more in ([], [["Digest", SESSION << 32 | 1, 1, [0], [0]]], [["Received", 1]]):
                async with dialling(node, "overlay") as peer:
                    hello = ["Hello", "B9", SESSION, SPACE_JSON, False, 2, ["B9"], False, "", 3, 3, {}]
                    await peer.say(hello, *more)
                    if more:
                        assert (await peer.read("Refused"))[5] == "protocol" and await peer.closed() == 1008
                    else:
                        await check_settles(node)
                    check_nothing_is_left(node, "B9")
            await check_settles(node)

    run(scenario())


@pytest.mark.parametrize("how", [{"accept": ("B9",)}, {"accept": (), "neighbours": {"B9": "ws://127.0.0.1:1"}}])
def test_a_client_cannot_have_the_name_of_a_neighbour_that_never_came(tmp_path: Path, how: dict[str, Any]) -> None:
    async def scenario() -> None:
        async with running(tmp_path, **how) as node:
            assert await refused(node, "B9", "connect") == "name"
            check_nothing_is_left(node, "B9")

    run(scenario())


def test_strangers_do_not_flood_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with running(tmp_path, accept=("B9",)) as node:
            began = len(caplog.records)
            for number in range(STRANGERS):
                assert await refused(node, f"stranger{number}") == "unaccepted"
                assert await refused(node, "B9", space=OTHER_SPACE) == "space"
                assert await refused(node, "B9", "connect") == "name"
            assert len(caplog.records) - began <= LINES_MAX
            assert node.driver.refusals.by_code["unaccepted"].total == STRANGERS

    with caplog.at_level(logging.INFO, logger="thatch"):
        run(scenario(), 60)


@asynccontextmanager
async def impostor(name: str, port: int = 0) -> AsyncIterator[str]:
    """The URL of a broker of another name than the one that is dialled."""

    async def accept(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(protocols=("thatch",))
        await socket.prepare(request)
        await RawPeer(socket).greet(name, is_client=False)
        async for _ in socket:
            pass
        return socket

    app = web.Application()
    app.router.add_get("/overlay", accept)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"ws://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def test_another_broker_at_the_address_of_a_neighbour_leaves_nothing_behind(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with impostor("B8") as address, running(tmp_path, neighbours={"B9": address}) as node:
            async with asyncio.timeout(5):
                while "name" not in node.driver.refusals.by_code:
                    await asyncio.sleep(0.01)
                while "B9" in node.driver.broker.links:
                    await asyncio.sleep(0.01)
            await check_settles(node)
            assert LinkRecord(PeerKey(NEIGHBOUR, "B9")) not in list(node.store.records())

    run(scenario())


async def wait_linked(node: Node, name: str) -> NeighbourConnection:
    async with asyncio.timeout(10):
        while (link := node.driver.broker.links.get(name)) is None or not link.is_synced:
            await asyncio.sleep(0.01)
    connection = node.driver.endpoints[name]
    assert isinstance(connection, NeighbourConnection)
    return connection


def test_a_dialler_goes_on_whatever_answers(tmp_path: Path) -> None:
    """At first a broker of another name, then what is no broker, then nobody, then the neighbour."""

    async def scenario() -> None:
        port = free_port()
        async with running(tmp_path, "B2", neighbours={"B1": f"ws://127.0.0.1:{port}"}) as two:
            async with impostor("B8", port), asyncio.timeout(5):
                while "name" not in two.driver.refusals.by_code:
                    await asyncio.sleep(0.01)
            server = await asyncio.start_server(lambda reader, writer: writer.write(b"hello\n"), "127.0.0.1", port)
            await asyncio.sleep(0.3)
            server.close()
            await server.wait_closed()
            async with running(tmp_path, "B1", accept=("B2",), overlay=Listen(port=port)) as one:
                await wait_linked(one, "B2")
                await check_settles(one)

    run(scenario(), 30)


def test_of_two_brokers_with_one_name_the_second_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They took the link from one another, and each got a part of the events."""

    async def scenario() -> None:
        (tmp_path / "other").mkdir()
        async with running(tmp_path, "B1", accept=("B2",)) as one:
            overlay = {"B1": f"ws://127.0.0.1:{one.overlay_port}"}
            async with running(tmp_path, "B2", neighbours=overlay) as two:
                connection = await wait_linked(one, "B2")
                async with running(tmp_path / "other", "B2", neighbours=overlay) as second:
                    async with asyncio.timeout(15):
                        while "name" not in second.driver.refused_by.by_code:
                            await asyncio.sleep(0.01)
                    async with await connect(url(one), "ann") as ann, await connect(url(two), "bob") as bob:
                        await ann.advertise("TRUE")
                        wanted = await bob.subscribe("TRUE")
                        for number in range(30):
                            await ann.publish({"price": 1.0, "number": number})
                            await asyncio.sleep(0.01)
                        assert [(await wanted.next(5)).event["number"] for _ in range(30)] == list(range(30))
                    assert one.driver.endpoints["B2"] is connection, "the link was cut"
                    assert (
                        not second.driver.broker.links["B1"].is_synced if "B1" in second.driver.broker.links else True
                    )

    with caplog.at_level(logging.INFO, logger="thatch"):
        run(scenario(), 60)
    lines = [record.getMessage() for record in caplog.records]
    assert any("another broker is connected as 'B2'" in line for line in lines)
    assert sum("B2" in line for line in lines) < 12, lines


def test_who_comes_again_takes_the_place_of_its_old_connection(tmp_path: Path) -> None:
    """A connection that only one side knows to be gone does not keep a neighbour out."""

    async def scenario() -> None:
        async with running(tmp_path, accept=("B9",)) as node, dialling(node, "overlay") as first:
            await first.greet("B9", is_client=False)
            await first.read("Hello")
            async with dialling(node, "overlay") as second:
                await second.greet("B9", is_client=False, session=SESSION + 1)
                assert (await second.read("Hello"))[1] == "B1" and await first.closed() == 4001
                assert node.driver.broker.links["B9"].is_met

    run(scenario())
