"""Brokers that are started now and then, on stores that are backed up, restored and copied between."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

from helpers.node_process import free_port
from helpers.raw_peers import running
from thatch.cli.main import main
from thatch.client.client import AsyncClient, connect
from thatch.node.config import Listen
from thatch.node.connection import NeighbourConnection
from thatch.node.server import Node

SECONDS = 10.0


class Place:
    """A broker that is started now and then: in a folder of its own, always on the same ports."""

    def __init__(self, folder: Path, name: str, **settings: Any) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.name = folder, name
        self.client_port, self.overlay_port = free_port(), free_port()
        self.settings = {"routing": "subscriptions", **settings}

    @property
    def store(self) -> Path:
        return self.folder / f"{self.name}.thatch"

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.client_port}"

    @property
    def overlay(self) -> str:
        return f"ws://127.0.0.1:{self.overlay_port}"

    @asynccontextmanager
    async def up(self) -> AsyncIterator[Node]:
        client, overlay = Listen(port=self.client_port), Listen(port=self.overlay_port)
        async with running(self.folder, self.name, client=client, overlay=overlay, **self.settings) as node:
            yield node

    async def restart(self, times: int = 1) -> None:
        for _ in range(times):
            async with self.up():
                pass

    async def back_up(self, node: Node) -> Path:
        """A copy of the store, while it runs."""
        copy, socket = self.folder / "copy", node.store.path.with_name(f"{node.store.path.name}.sock")
        assert await asyncio.to_thread(main, ["admin", "backup", str(copy), "--socket", str(socket)]) == 0
        return copy

    def restore(self, copy: Path) -> None:
        assert main(["admin", "restore", str(copy), "--store", str(self.store)]) == 0


def pair(folder: Path) -> tuple[Place, Place]:
    """B1 dials B2."""
    second = Place(folder / "b2", "B2", accept=["B1"])
    return Place(folder / "b1", "B1", neighbours={"B2": second.overlay}), second


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not is_so():
            await asyncio.sleep(0.01)


def is_linked(node: Node, other: str) -> bool:
    link = node.driver.broker.links.get(other)
    return link is not None and link.is_synced


async def linked(node: Node, other: str) -> None:
    await until(lambda: is_linked(node, other))


async def cut_until(node: Node, neighbour: Node, is_so: Callable[[], bool]) -> None:
    """Cut the connection of a neighbour whenever it has one, so that another one may come under its name."""
    async with asyncio.timeout(SECONDS):
        while not is_so():
            end, life = node.driver.endpoints.get(neighbour.config.name), neighbour.driver.history.present.id
            if isinstance(end, NeighbourConnection) and end.identity is not None and end.identity.life == life:
                end.cut()
            await asyncio.sleep(0.02)


async def publish(place: Place, numbers: Iterable[int]) -> None:
    async with await connect(place.url, "pub") as pub:
        for number in numbers:
            await pub.publish({"price": 1.0, "number": number})


async def read(bob: AsyncClient, wanted: Iterable[int], id: str = "all") -> list[int]:
    """The numbers of events that a durable subscription of bob's has, until all that are wanted have come."""
    queue, numbers, missing = await bob.subscribe("TRUE", durable=id, settled=False), [], set(wanted)
    while missing:
        with suppress(TimeoutError):
            event = await queue.next(SECONDS)
            numbers.append(event.event["number"])
            missing.discard(numbers[-1])
            continue
        raise AssertionError(f"{len(missing)} are missing: {sorted(missing)[:10]}")
    queue.done()
    return numbers


def copy_plainly(store: Path, copy: Path) -> None:
    """As other programs copy a store: without a mark."""
    with closing(sqlite3.connect(store)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)


def gaps(node: Node) -> set[tuple[str, str, int | None]]:
    return {(gap.peer.name, gap.side, gap.missing) for gap in node.driver.gaps}
