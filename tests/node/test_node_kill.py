"""Three brokers, killed in mid-publish: one, two neighbours at once, or one while its neighbour is away and events are
kept for it. Nothing that was acknowledged is lost to a durable subscriber."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from helpers.node_process import BrokerProcess, chain, is_soak, wait_agree
from thatch.client.client import AsyncClient, connect
from thatch.client.subscription import AsyncSubscription
from thatch.protocol.messages import Publish

ROUNDS = 50 if is_soak() else 1
AT_ONCE = ((0,), (1,), (2,), (0, 1), (1, 2)) if is_soak() else ((1, 2),)  # brokers killed together
AWAY = ((1, 0), (1, 2), (0, 1)) if is_soak() else ((1, 0),)  # one that is away when the other is killed
RESTORED_SECONDS = 2.0


class Publisher:
    """Publishes numbers, a few hundred a second, until it is asked to stop."""

    def __init__(self, client: AsyncClient, price: float) -> None:
        self.client, self.price = client, price
        self.acknowledged: list[int] = []
        self.is_stopping = False

    async def run(self) -> None:
        number = 0
        while not self.is_stopping:
            futures = []
            for _ in range(5):
                number += 1
                event = {"price": self.price, "number": number}
                futures.append((number, await self.client.post(event, b"x" * 100)))
            for sent, future in futures:
                await asyncio.wait_for(future, 30)
                self.acknowledged.append(sent)
            await asyncio.sleep(0.005)


class Reader:
    def __init__(self, subscription: AsyncSubscription) -> None:
        self.subscription = subscription
        self.numbers: list[int] = []
        self.ids: list[str] = []

    async def run(self) -> None:
        async for event in self.subscription:
            self.take(event)

    def take(self, event: Publish) -> None:
        self.numbers.append(event.event["number"])
        self.ids.append(event.id)


async def kill(brokers: list[BrokerProcess], victims: Sequence[int]) -> None:
    """At once; they come back together."""
    for victim in victims:
        brokers[victim].kill()
    await asyncio.sleep(0.1)
    for victim in victims:
        brokers[victim].spawn()
    for victim in victims:
        await asyncio.to_thread(brokers[victim].wait_ready)


async def kill_while_away(brokers: list[BrokerProcess], away: int, victim: int) -> None:
    """What is kept for the one that is away is all that the other has of it when it comes back."""
    brokers[away].kill()
    await asyncio.sleep(0.15)
    await kill(brokers, [victim])
    await asyncio.sleep(0.05)
    brokers[away].spawn()
    await asyncio.to_thread(brokers[away].wait_ready)


async def kill_in_turn(brokers: list[BrokerProcess]) -> None:
    first, _, last = brokers
    await asyncio.to_thread(wait_agree, brokers, 10.0)  # before, nobody knows of a neighbour that has not come
    async with (
        await connect(last.url, "sub") as reading,
        await connect(first.url, "pub") as publishing,
        await connect(first.url, "sub-back") as reading_back,
        await connect(last.url, "pub-back") as publishing_back,
    ):
        await publishing.advertise("price < 10")
        await publishing_back.advertise("price >= 10")
        readers = [
            Reader(await reading.subscribe("price < 10", durable="all")),
            Reader(await reading_back.subscribe("price >= 10", durable="all")),
        ]
        publishers = [Publisher(publishing, 5.0), Publisher(publishing_back, 15.0)]
        running: tuple[Publisher | Reader, ...] = (*publishers, *readers)
        tasks = [asyncio.create_task(each.run()) for each in running]
        for _ in range(ROUNDS):
            for at, victims in enumerate(AT_ONCE):
                await asyncio.sleep(0.1 + 0.05 * (at % 3))
                await kill(brokers, victims)
                await asyncio.to_thread(wait_agree, brokers, RESTORED_SECONDS)
            for away, victim in AWAY:
                await asyncio.sleep(0.1)
                await kill_while_away(brokers, away, victim)
                await asyncio.to_thread(wait_agree, brokers, RESTORED_SECONDS)
        for publisher in publishers:
            publisher.is_stopping = True
        await asyncio.gather(*tasks[:2])
        for publisher, reader in zip(publishers, readers, strict=True):
            wanted = len(publisher.acknowledged)
            assert wanted > 60 * ROUNDS
            end = time.monotonic() + 10
            while missing := set(publisher.acknowledged) - set(reader.numbers):
                assert time.monotonic() < end, f"{len(missing)} of {wanted} are missing: {sorted(missing)[:10]}"
                await asyncio.sleep(0.02)
            assert len(set(reader.ids)) == len(reader.ids), "an event was handed out twice"
            assert reader.numbers == sorted(reader.numbers), "out of order"
            assert reader.subscription.lost == 0
        for task in tasks[2:]:
            task.cancel()


def test_kill_one_two_and_one_while_another_is_away(tmp_path: Path) -> None:
    brokers = chain(tmp_path)
    try:
        asyncio.run(asyncio.wait_for(kill_in_turn(brokers), 80 * ROUNDS + 60))
    finally:
        for broker in brokers:
            broker.kill()
