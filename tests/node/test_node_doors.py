"""Events that come in by several doors: each has an id of its own, unless it brings one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from helpers.raw_peers import run, running, url
from thatch.client.client import AsyncClient, connect
from thatch.client.subscription import AsyncSubscription
from thatch.node.server import Node

BATCH = 1_000
CLOUD = {"Content-Type": "application/cloudevents+json"}


@asynccontextmanager
async def two_brokers(folder: Path) -> AsyncIterator[tuple[Node, Node]]:
    """Linked."""
    async with running(folder, "B1") as one:
        overlay = {"B1": f"ws://127.0.0.1:{one.overlay_port}"}
        async with running(folder, "B2", neighbours=overlay) as two:
            async with asyncio.timeout(10):
                while (link := two.driver.broker.links.get("B1")) is None or not link.is_synced:
                    await asyncio.sleep(0.01)
            yield one, two


async def post(node: Node, body: Any, headers: dict[str, str] | None = None) -> None:
    address = f"http://127.0.0.1:{node.client_port}/events"
    async with aiohttp.ClientSession() as http, http.post(address, json=body, headers=headers) as response:
        assert response.status == 200, await response.text()


async def numbers(subscription: AsyncSubscription, count: int) -> list[int]:
    """The numbers of so many events, and of those that come within a moment after them."""
    found = [(await subscription.next(10)).event["number"] for _ in range(count)]
    await asyncio.sleep(0.05)
    while (event := subscription.next_now()) is not None:
        found.append(event.event["number"])
    return sorted(found)


@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.soak)])
def test_two_publishers_over_http_at_two_brokers_lose_nothing(tmp_path: Path, count: int) -> None:
    async def publish(node: Node, first: int) -> None:
        for at in range(first, first + count, BATCH):
            await post(node, [{"price": 1, "number": number} for number in range(at, at + BATCH)])

    async def scenario() -> None:
        async with (
            two_brokers(tmp_path) as (one, two),
            await connect(url(one), "ann") as ann,
            await connect(url(two), "bob") as bob,
        ):
            durable = [await each.subscribe("TRUE", durable="all") for each in (ann, bob)]
            plain = await bob.subscribe("TRUE")
            await asyncio.gather(publish(one, 0), publish(two, count))
            for each in (*durable, plain):
                assert await numbers(each, 2 * count) == list(range(2 * count))

    run(scenario(), 60)


def test_an_event_that_brings_its_id_is_one_event_at_two_brokers(tmp_path: Path) -> None:
    """A publisher that did not get an answer at one broker tries the other one."""
    cloud = {"specversion": "1.0", "type": "t"}

    async def scenario() -> None:
        async with two_brokers(tmp_path) as (one, two), await connect(url(two), "bob") as bob:
            wanted = await bob.subscribe("TRUE")
            for node in (one, two, two):
                await post(node, cloud | {"source": "/here", "id": "7", "data": {"price": 1, "number": 1}}, CLOUD)
            # One blank parts the source from the id: these two are not one event.
            await post(one, cloud | {"source": "/a b", "id": "c", "data": {"price": 1, "number": 2}}, CLOUD)
            await post(one, cloud | {"source": "/a", "id": "b c", "data": {"price": 1, "number": 3}}, CLOUD)
            assert await numbers(wanted, 3) == [1, 2, 3]

    run(scenario())


def test_a_broker_that_starts_again_within_a_second_makes_other_ids(tmp_path: Path) -> None:
    async def scenario() -> None:
        ids = set()
        for number in range(3):
            async with running(tmp_path) as node, await connect(url(node)) as client:
                wanted = await client.subscribe("TRUE")
                await post(node, {"price": 1, "number": number})
                ids.add((await wanted.next(5)).id)
        assert len(ids) == 3

    run(scenario())


def test_clients_of_one_name_at_two_brokers_make_other_ids(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with two_brokers(tmp_path) as nodes, AsyncExitStack() as stack:
            eve: AsyncClient = await stack.enter_async_context(await connect(url(nodes[1]), "eve"))
            wanted = await eve.subscribe("TRUE", durable="all")
            for number, node in enumerate(nodes):
                ann = await stack.enter_async_context(await connect(url(node), "ann"))
                await ann.advertise("TRUE")
                await ann.publish({"price": 1.0, "number": number})
            assert await numbers(wanted, 2) == [0, 1]

    run(scenario())
