"""An operator moves a durable subscription to another broker: nothing is lost, and its client follows."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from helpers.node_process import free_port
from helpers.operators import admin
from helpers.raw_peers import run, running, url
from thatch.client.client import AsyncClient, connect
from thatch.client.subscription import AsyncSubscription
from thatch.delivery.queues import Queue
from thatch.errors import CallerError, Unavailable
from thatch.node.config import Listen
from thatch.node.server import Node
from thatch.protocol.codec import encode
from thatch.protocol.messages import OPERATOR, Attached, Publish


class Pair:
    """B1 and B2, linked, with a publisher at B1. The durable subscription is of ann, at B1."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self.folder, self.stack = folder, stack
        self.port, self.overlay = Listen(port=free_port()), Listen(port=free_port())
        self.count = 0

    async def start(self) -> None:
        self.one_stack = AsyncExitStack()
        self.one = await self.one_stack.enter_async_context(
            running(self.folder, "B1", client=self.port, overlay=self.overlay, accept=("B2",))
        )

    async def build(self) -> None:
        await self.start()
        neighbours = {"B1": f"ws://127.0.0.1:{self.overlay.port}"}
        self.two = await self.stack.enter_async_context(running(self.folder, "B2", neighbours=neighbours, accept=()))
        self.publisher = await self.stack.enter_async_context(await connect(url(self.one), "p"))
        await self.publisher.advertise("TRUE")

    async def restart(self) -> None:
        await self.one_stack.aclose()
        await self.start()

    async def publish(self, count: int = 10) -> None:
        for _ in range(count):
            self.count += 1
            await self.publisher.publish({"price": 1.0, "number": self.count})

    async def move(self, to: Node | str | None = None, status: int = 0) -> Any:
        where = to if isinstance(to, str) else url(to or self.two)
        return await admin(self.one.admin.path, "move-queue", "ann", "alerts", "--to", where, status=status)


async def ann(node: Node) -> tuple[AsyncClient, AsyncSubscription]:
    client = await connect(url(node), "ann")
    return client, await client.subscribe("TRUE", durable="alerts")


async def numbers(subscription: AsyncSubscription, last: int) -> list[int]:
    """Up to the event with the last number."""
    got: list[int] = []
    async with asyncio.timeout(10):
        while not got or got[-1] != last:
            got.append((await anext(subscription)).event["number"])
    return got


def scenario_of(folder: Path, scenario: Any) -> None:
    async def play() -> None:
        async with AsyncExitStack() as stack:
            pair = Pair(folder, stack)
            await pair.build()
            try:
                await scenario(pair)
            finally:
                await pair.one_stack.aclose()

    run(play(), 40)


def test_all_that_is_kept_moves_and_a_client_that_was_away_follows(tmp_path: Path) -> None:
    """What the first broker kept comes first, in order, then what the other one has kept since."""

    async def scenario(pair: Pair) -> None:
        client, _ = await ann(pair.one)
        await client.close()
        await pair.publish(300)
        moving = asyncio.create_task(pair.move())
        await pair.publish()
        assert (await moving)["passed"] >= 300
        assert [*pair.one.queues] == []
        await pair.restart()
        await pair.publish()
        async with await connect(url(pair.one), "ann") as client:  # a program with the old address
            subscription = await client.subscribe("TRUE", durable="alerts")
            assert await numbers(subscription, 320) == list(range(1, 321))
            await pair.publish(5)
            assert await numbers(subscription, 325) == list(range(321, 326))
            subscription.done()
        async with await connect(url(pair.one), "ann") as client:
            subscription = await client.subscribe("TRUE", durable="alerts")
            await pair.publish(2)
            assert await numbers(subscription, 327) == [326, 327], "what was acknowledged there is gone there"
            await client.replace(subscription, "number > 328")
            await pair.publish(2)
            assert await numbers(subscription, 329) == [329]
            await client.unsubscribe(subscription)
            assert [*pair.two.queues] == []

    scenario_of(tmp_path, scenario)


def test_a_move_that_is_broken_off_leaves_what_is_kept_to_the_client_or_to_the_next_try(tmp_path: Path) -> None:
    async def broken_off(node: Node, queue: Queue, there: AsyncClient) -> int:
        await (await there.refill(queue.id, 1, encode(Publish("p:1", {"price": 1.0, "number": 1}))))
        with pytest.raises(CallerError, match="from the first event on"):
            await (await there.refill(queue.id, 3, None))
        raise Unavailable("broken off")

    async def scenario(pair: Pair) -> None:
        client, _ = await ann(pair.one)
        await client.close()
        await pair.publish()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("thatch.node.moving._pass_on", broken_off)
            assert "broken off" in str(await pair.move(status=2))
        await pair.publish()
        await pair.restart()
        await pair.publish()
        assert [(queue.where, queue.stream.on_disk.count) for queue in pair.one.queues] == [("", 10)]
        async with await connect(url(pair.one), "ann") as client:
            subscription = await client.subscribe("TRUE", durable="alerts")
            assert await numbers(subscription, 5) == [1, 2, 3, 4, 5]
        assert [queue.where for queue in pair.one.queues] == [""], "nothing is asked for here any more"
        assert (await pair.move())["passed"] == 6, "the fifth is not acknowledged"
        assert [*pair.one.queues] == []
        async with await connect(url(pair.one), "ann") as client:
            subscription = await client.subscribe("TRUE", durable="alerts")
            assert await numbers(subscription, 30) == list(range(5, 31))

    scenario_of(tmp_path, scenario)


def test_a_client_that_is_connected_reads_on_without_a_gap(tmp_path: Path) -> None:
    async def scenario(pair: Pair) -> None:
        await pair.restart()  # it counts from a higher number than the other broker
        client, subscription = await ann(pair.one)
        await pair.publish(3)
        publishing = asyncio.create_task(pair.publish(100))
        await asyncio.sleep(0.02)
        await pair.move()
        await publishing
        assert await numbers(subscription, 103) == list(range(1, 104))
        await pair.publish(1)
        assert await numbers(subscription, 104) == [104]
        subscription.done()
        (queue,) = pair.two.queues
        async with asyncio.timeout(5):
            while queue.stream.on_disk.count:
                await asyncio.sleep(0.01)
        await client.close()

    scenario_of(tmp_path, scenario)


def test_what_cannot_be_moved_stays(tmp_path: Path) -> None:
    async def scenario(pair: Pair) -> None:
        assert "no durable subscription 'alerts' here" in str(await pair.move(status=2))
        client, subscription = await ann(pair.one)
        assert "is the address of this broker itself" in str(await pair.move(to=pair.one, status=2))
        await pair.publish(3)
        assert await numbers(subscription, 3) == [1, 2, 3]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("thatch.node.moving.ANSWER_SECONDS", 0.5)
            assert "nothing listens there" in str(await pair.move(to=f"ws://127.0.0.1:{free_port()}", status=2))
            patch.setattr(Queue, "is_flushed", False)  # a broker is away
            assert "stays here: not all brokers have answered a flush" in str(await pair.move(status=2))
            patch.undo()
            patch.setattr("thatch.node.moving.ANSWER_SECONDS", 0.5)
            pair.one.driver.take(Attached("B9", "B8"), OPERATOR)  # a neighbour that never comes: no flush is answered
            assert "stays here: not all brokers have answered a flush" in str(await pair.move(status=2))
        await pair.publish(3)
        assert await numbers(subscription, 6) == [4, 5, 6]
        await client.close()

    scenario_of(tmp_path, scenario)
