"""Seven brokers, an inner one destroyed for good: those around it are attached by the commands of docs/operations.md,
and every acknowledged event that did not lie on the lost disk alone is delivered."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from helpers.node_process import SPACE, BrokerProcess, free_port, is_soak
from helpers.operators import admin, documented
from helpers.paths import ROOT
from helpers.raw_peers import run, running, url
from thatch.client.client import AsyncClient, connect
from thatch.client.subscription import AsyncSubscription
from thatch.node.config import Listen
from thatch.node.server import Node

LINKS = {"B2": ("B1",), "B3": ("B2",), "B4": ("B2",), "B5": ("B1",), "B6": ("B3",), "B7": ("B4",)}  # who dials whom
LEAVES = ("B5", "B6", "B7")
LOST = "B2"
PAUSE_SECONDS = 2.0 if is_soak() else 0.1  # between what operators say


@dataclass
class Publisher:
    name: str
    client: AsyncClient
    sent: set[int] = field(default_factory=set)
    is_stopping: bool = False

    async def run(self) -> None:
        number = 1_000_000 * int(self.name[1:])
        while not self.is_stopping:
            number += 1
            await self.client.publish({"price": 1.0, "symbol": self.name, "number": number})
            self.sent.add(number)
            await asyncio.sleep(0.01)


@dataclass
class Reader:
    subscription: AsyncSubscription
    got: list[int] = field(default_factory=list)

    async def run(self) -> None:
        async for event in self.subscription:
            self.got.append(event.event["number"])


@asynccontextmanager
async def seven(folder: Path) -> AsyncIterator[tuple[dict[str, Node], BrokerProcess]]:
    """The one that will be lost is a process, so that it can be killed."""
    ports = {name: (Listen(port=free_port()), Listen(port=free_port())) for name in (*LINKS, "B1")}
    accept = {name: tuple(other for other, dials in LINKS.items() if name in dials) for name in ports}
    lost = BrokerProcess(LOST, folder, {"B1": f"ws://127.0.0.1:{ports['B1'][1].port}"}, accept=accept[LOST])
    ports[LOST] = Listen(port=lost.client_port), Listen(port=lost.overlay_port)
    lost.spawn()
    nodes: dict[str, Node] = {}
    async with AsyncExitStack() as stack:
        stack.callback(lost.kill)
        for name in sorted(ports.keys() - {LOST}):
            neighbours = {other: f"ws://127.0.0.1:{ports[other][1].port}" for other in LINKS.get(name, ())}
            client, overlay = ports[name]
            settings: dict[str, Any] = {
                "neighbours": neighbours,
                "accept": accept[name],
                "client": client,
                "overlay": overlay,
            }
            nodes[name] = await stack.enter_async_context(running(folder, name, space=SPACE, **settings))
        await asyncio.to_thread(lost.wait_ready)
        async with asyncio.timeout(20):  # what settles speaks of the brokers that are linked
            while not all(_is_linked(nodes[name], (*LINKS.get(name, ()), *accept[name])) for name in nodes):
                await asyncio.sleep(0.02)
        yield nodes, lost


async def wait_known(nodes: dict[str, Node]) -> None:
    """Each knows on every link that something durable lives behind it."""
    async with asyncio.timeout(20):
        while not all(_is_known(node) for node in nodes.values()):
            await asyncio.sleep(0.02)


def _is_linked(node: Node, neighbours: tuple[str, ...]) -> bool:
    links = node.driver.broker.links
    return all(name in links and links[name].knows_all for name in neighbours)


def _is_known(node: Node) -> bool:
    return all(link.is_durable for link in node.driver.broker.links.values() if not link.is_client)


def kept_in(store: Path) -> set[int]:
    """The events that a store keeps: whoever sent them has been told that they are there."""
    with sqlite3.connect(store) as connection:
        rows = connection.execute("SELECT event FROM events").fetchall()
    return {msgspec.msgpack.decode(event)[2]["number"] for (event,) in rows}


async def say(nodes: dict[str, Node], words: list[str]) -> None:
    """One documented command, with the addresses of this network."""
    at = nodes[words[words.index("--socket") + 1].removesuffix(".thatch.sock")]
    words = words[: words.index("--socket")]
    for place, word in enumerate(words):
        if word.startswith("ws://10.0.0."):
            number = word.removeprefix("ws://10.0.0.").split(":")[0]
            words[place] = f"ws://127.0.0.1:{nodes[f'B{number}'].overlay_port}"
    if words[0] == "links":
        async with asyncio.timeout(20):
            while not all(
                each["settled"] for each in await admin(at.admin.path, "links", status=None) if each["instead_of"]
            ):
                await asyncio.sleep(0.05)
        return
    await admin(at.admin.path, *[word for word in words if word != "--json"])
    await asyncio.sleep(PAUSE_SECONDS)


def test_an_inner_broker_is_destroyed_and_its_children_are_attached_elsewhere(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with seven(tmp_path) as (nodes, lost), AsyncExitStack() as clients:
            publishers, readers = [], []
            for name in LEAVES:
                client = await clients.enter_async_context(await connect(url(nodes[name]), f"p-{name}"))
                await client.advertise("TRUE")
                publishers.append(Publisher(name, client))
            for name in LEAVES:
                client = await clients.enter_async_context(await connect(url(nodes[name]), f"s-{name}"))
                readers.append(Reader(await client.subscribe("TRUE", durable="all")))
            await wait_known(nodes)
            reading = [asyncio.create_task(each.run()) for each in readers]
            publishing = [asyncio.create_task(each.run()) for each in publishers]
            await asyncio.sleep(PAUSE_SECONDS)
            lost.kill()
            alone = kept_in(lost.store)
            for file in tmp_path.glob(f"{LOST}.thatch*"):
                file.unlink()
            await asyncio.sleep(PAUSE_SECONDS)
            for words in documented(ROOT / "docs" / "operations.md", "A broker is lost for good"):
                await say(nodes, words)
            for publisher in publishers:
                publisher.is_stopping = True
            await asyncio.gather(*publishing)
            sent = {number for each in publishers for number in each.sent}
            assert len(sent) > 100 and len(alone) < len(sent) / 2
            wanted, until = sent - alone, asyncio.get_running_loop().time() + 20
            while not all(wanted <= {*each.got} for each in readers):
                missing = {name: sorted(wanted - {*each.got}) for name, each in zip(LEAVES, readers, strict=True)}
                assert asyncio.get_running_loop().time() < until, f"these never came: {missing}"
                await asyncio.sleep(0.02)
            for each in readers:
                assert len(each.got) == len({*each.got}), "a copy is known by its id"
            late = await clients.enter_async_context(await connect(url(nodes["B7"]), "late"))
            await late.subscribe("TRUE", timeout_seconds=10)  # all has settled: nobody waits for the lost one
            for task in reading:
                task.cancel()

    run(scenario(), 90)
