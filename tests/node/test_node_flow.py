"""A consumer that has stalled, among fifty that read: it slows nobody, and learns what it lost."""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path

import aiohttp

from helpers.node_process import BrokerProcess, is_soak
from thatch.broker import ClientState
from thatch.client.client import AsyncClient, connect
from thatch.client.subscription import AsyncSubscription
from thatch.protocol import wire
from thatch.protocol.codec import encode
from thatch.protocol.messages import Send
from thatch.space.space import Space

HEALTHY = 50
STALLED_SECONDS = 60.0 if is_soak() else 10.0
BASE_SECONDS = 10.0 if is_soak() else 3.0
RATE = 40  # events a second, each to all
MEMORY_MB = 64
BYTES = 20_000  # so that what the stalled one does not read is many times what may wait for it


class Silent:
    """A client that subscribes and then does not read."""

    def __init__(self, space: Space) -> None:
        self.client = ClientState("stalled", space)
        self.frames = wire.Frames(space, wire.FromNode)

    async def connect(self, url: str, session: aiohttp.ClientSession) -> None:
        self.socket = await session.ws_connect(f"{url}/connect", max_msg_size=0)
        sends = self.client.connect("home", 7)
        self.client.subscribe("home", "s", "TRUE")
        await self.say(sends)
        while not self.client.is_settled("home", "subscriptions", "s"):
            for message in self.frames.decode((await self.socket.receive(timeout=5)).data):
                await self.say(self.client.handle(message, "home"))

    async def say(self, sends: list[Send]) -> None:
        if sends:
            await self.socket.send_bytes(wire.frame([encode(each.message) for each in sends]))

    async def read_rest(self, last: int) -> tuple[int, int]:
        """Events that still came, and how many it was said to have lost."""
        came = lost = 0
        while True:
            for message in self.frames.decode((await self.socket.receive(timeout=5)).data):
                if isinstance(message, wire.Notice):
                    lost += message.count
                elif isinstance(message, wire.Event):
                    came += 1
                    if message.event.event["number"] == last:
                        return came, lost


class Load:
    def __init__(self, publisher: AsyncClient, readers: list[AsyncSubscription]) -> None:
        self.publisher, self.number = publisher, 0
        self.latencies: list[float] = []
        self.tasks = [asyncio.create_task(self._read(each)) for each in readers]

    async def _read(self, subscription: AsyncSubscription) -> None:
        async for event in subscription:
            self.latencies.append(time.perf_counter() - event.event["price"])

    async def run(self, seconds: float) -> float:
        """Publish steadily; the 99th percentile of how long events took, of the seconds the one in the middle: others
        use the machine, too."""
        slices = [await self._slice() for _ in range(max(1, round(seconds)))]
        return statistics.median(slices)

    async def _slice(self) -> float:
        self.latencies.clear()
        due = time.perf_counter()
        end = due + 1.0
        while due < end:
            self.number += 1
            await self.publisher.post({"price": time.perf_counter(), "number": self.number}, b"x" * BYTES)
            due += 1 / RATE
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
        return statistics.quantiles(self.latencies, n=100)[-1]


async def stall_one(broker: BrokerProcess) -> None:
    names = [f"reader{number}" for number in range(HEALTHY)]
    async with aiohttp.ClientSession() as session, await connect(broker.url, "pub") as publisher:
        clients = await asyncio.gather(*(connect(broker.url, name) for name in names))
        await publisher.advertise("TRUE")
        readers = [await client.subscribe("TRUE") for client in clients]
        load = Load(publisher, readers)
        await load.run(1.0)
        before = await load.run(BASE_SECONDS)
        memory = broker.memory_mb()
        stalled = Silent(publisher.space)
        await stalled.connect(broker.url, session)
        first = load.number
        slowed = await load.run(STALLED_SECONDS)
        grown = broker.memory_mb() - memory
        await asyncio.sleep(0.3)
        published = load.number - first
        came, lost = await stalled.read_rest(load.number)
        await stalled.socket.close()
        if slowed > 2 * before:  # machines are noisy: was it the stalled one, or is it slower without it, too?
            before = max(before, await load.run(BASE_SECONDS))
        for client in clients:
            await client.close()
        assert grown <= MEMORY_MB, f"memory has grown by {grown:.0f} MB"
        assert lost and came + lost == published, (came, lost, published)
        slower = f"p99 {slowed * 1000:.1f} ms with a stalled one, {before * 1000:.1f} without"
        assert slowed <= 2 * max(before, 0.01), slower


def test_a_stalled_consumer_slows_nobody(tmp_path: Path) -> None:
    settings = "flow = { client_bytes_max = 2000000 }"
    broker = BrokerProcess("B1", tmp_path, settings=settings)
    broker.start()
    try:
        asyncio.run(asyncio.wait_for(stall_one(broker), 120))
    finally:
        broker.kill()
