"""Names of clients, of neighbours and of the node's own clients: none can be taken for another one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from helpers.node_process import free_port
from helpers.raw_peers import SPACE, dialling, run, running, url
from thatch.client.client import connect
from thatch.errors import CallerError
from thatch.node.config import Config, Listen, Timing
from thatch.node.server import Node
from thatch.protocol.ids import NAME_CHARACTERS_MAX

LONGEST = "x" * NAME_CHARACTERS_MAX
IMPOSSIBLE = ["@http", "@reader1", "ann@kept", LONGEST + "x", "x" * 2**20, "a/b", ""]


def short(name: str) -> str:
    return name[:10] or "empty"


async def check_http(node: Node) -> None:
    """Events are taken and read over HTTP."""
    async with (
        aiohttp.ClientSession(f"http://127.0.0.1:{node.client_port}") as http,
        http.get("/subscribe", params={"where": "TRUE"}) as stream,
    ):
        assert await stream.content.readuntil(b"\n\n") == b"event: settled\ndata: {}\n\n"
        async with http.post("/events", json={"price": 1}) as response:
            assert (response.status, await response.json()) == (200, {"published": 1, "refused": []})
        assert b'"price":1' in await stream.content.readuntil(b"\n\n")


@pytest.mark.parametrize("path", ["connect", "overlay"])
def test_a_peer_cannot_have_a_name_of_the_nodes_own(tmp_path: Path, path: str) -> None:
    async def scenario() -> None:
        async with running(tmp_path, routing="subscriptions") as node:
            for name in IMPOSSIBLE:
                async with dialling(node, path) as peer:
                    await peer.greet(name, is_client=path == "connect")
                    refused = await peer.read("Refused")
                    assert refused[5] == "name" and len(refused[3]) < 300 and await peer.closed() == 1008
            assert not node.driver.broker.links
            await check_http(node)

    run(scenario())


def test_the_longest_name_is_taken_with_the_longest_durable_id(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node, await connect(url(node), LONGEST) as client:
            await client.subscribe("TRUE", durable=LONGEST)
            with pytest.raises(CallerError, match="of 1 to 255 characters") as caught:
                await client.subscribe("TRUE", durable=LONGEST + "x")
            assert caught.value.code == "id"
        async with running(tmp_path, accept=(LONGEST,)) as node, dialling(node, "overlay") as peer:
            await peer.greet(LONGEST, is_client=False)
            assert (await peer.read("Hello"))[1] == "B1"

    run(scenario())


@pytest.mark.parametrize("name", IMPOSSIBLE, ids=short)
def test_settings_cannot_name_a_broker_so(name: str) -> None:
    for settings in ({"name": name}, {"name": "B1", "neighbours": {name: "ws://127.0.0.1:1"}}):
        with pytest.raises(CallerError, match="the name of a broker or a client"):
            Config(space=SPACE, **settings)


def test_a_client_cannot_take_the_name_of_a_neighbour_that_is_away(tmp_path: Path) -> None:
    """What is kept for the neighbour went when the client was forgotten."""

    async def scenario() -> None:
        timing = Timing(linger_seconds=0.1)
        async with running(tmp_path, routing="subscriptions", timing=timing) as node:
            async with dialling(node, "overlay") as peer:
                digest, synced = ["Digest", peer.seq(), 1, [0], [0]], ["Synced", peer.seq(), 1, {}, {}]
                wanted = ["Subscribe", peer.seq(), "B9/bob/s", "TRUE", None, [], []]
                await peer.greet("B9", ["Resume", "store9", "", 0], digest, synced, wanted, is_client=False)
                while (await peer.read("Settled"))[1] & 0xFFFFFFFF < 3:
                    pass
            async with dialling(node) as peer:
                await peer.greet("B9")
                assert (await peer.read("Refused"))[5] == "name" and await peer.closed() == 1008
            await asyncio.sleep(0.8)  # a tick: clients that are away are forgotten by then
            assert list(node.driver.broker.received_from("subscriptions", "B9")) == ["B9/bob/s"]

    run(scenario())


async def check_linked(one: Node, two: Node) -> None:
    """An event goes from one node to the other."""
    async with asyncio.timeout(5):
        while (link := two.driver.broker.links.get("B1")) is None or not link.is_synced:
            await asyncio.sleep(0.01)
    async with await connect(url(one), "ann") as ann, await connect(url(two), "bob") as bob:
        await ann.advertise("TRUE")
        wanted = await bob.subscribe("TRUE")
        await ann.publish({"price": 1.0})
        assert (await wanted.next(5)).event == {"price": 1.0}


def test_a_neighbour_gets_its_name_from_a_client_that_came_before_it_was_expected(tmp_path: Path) -> None:
    """The client's subscriptions, which the store still has, are not taken for the neighbour's."""

    async def scenario() -> None:
        async with running(tmp_path, "B1", accept=()) as one, dialling(one) as peer:
            await peer.greet("B2", ["Synced", peer.seq(), 1, {0: {"s": ["TRUE", None]}}, {0: {}}])
            await peer.read("Settled")
        async with running(tmp_path, "B1", accept=("B2",)) as one:
            assert one.driver.broker.links["B2"].is_client
            overlay = {"B1": f"ws://127.0.0.1:{one.overlay_port}"}
            async with running(tmp_path, "B2", neighbours=overlay) as two:
                await check_linked(one, two)

    run(scenario())


def test_a_neighbour_that_is_dialled_has_its_name_before_it_comes(tmp_path: Path) -> None:
    async def scenario() -> None:
        port = free_port()
        overlay = {"B2": f"ws://127.0.0.1:{port}"}
        async with running(tmp_path, "B1", neighbours=overlay) as one, dialling(one) as peer:
            await peer.greet("B2")
            assert (await peer.read("Refused"))[5] == "name" and await peer.closed() == 1008
            async with running(tmp_path, "B2", overlay=Listen(port=port)) as two:
                await check_linked(one, two)

    run(scenario())
