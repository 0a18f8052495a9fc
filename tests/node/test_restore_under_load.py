"""Three brokers under load, as processes, backed up and restored at random moments with restarts in between: what was
acknowledged is delivered or lies in an interval that was announced."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest

from helpers.node_process import BrokerProcess, chain, is_soak, wait_agree
from thatch.client.client import AsyncClient, connect
from thatch.client.subscription import AsyncSubscription
from thatch.node.asking import Backup, ask, socket_beside
from thatch.node.backup import restore

RESTORES = 20 if is_soak() else 2
RESTARTS = 2 if is_soak() else 1  # at most, between a backup and its restore
AGREE_SECONDS = 10.0
LONGER_SECONDS = 5.0  # an interval may be, than it has to be
QUIET_SECONDS = 5.0 if is_soak() else 1.0  # without an event, and no more come
UNDER_WAY_SECONDS = 5.0  # an event may be, between brokers of which one is away


class Sent(NamedTuple):
    number: int
    since: float  # it was published between
    until: float  # and acknowledged by then


class Interval(NamedTuple):
    since: float
    until: float


@dataclass
class Publisher:
    client: AsyncClient
    price: float
    sent: list[Sent] = field(default_factory=list)
    is_stopping: bool = False

    async def run(self) -> None:
        number = 0
        while not self.is_stopping:
            number += 1
            since = time.time()
            future = await self.client.post({"price": self.price, "number": number}, b"x" * 100)
            await asyncio.wait_for(future, 30)
            self.sent.append(Sent(number, since, time.time()))
            await asyncio.sleep(0.003)


@dataclass
class Reader:
    subscription: AsyncSubscription
    numbers: set[int] = field(default_factory=set)

    async def run(self) -> None:
        async for event in self.subscription:
            self.numbers.add(event.event["number"])


def announced(brokers: list[BrokerProcess]) -> list[Interval]:
    """By all brokers: for a link, or for a durable subscription."""
    return [Interval(gap["since"], gap["until"]) for each in brokers for gap in each.get("/healthz")["gaps"]]


async def missing_of(publisher: Publisher, reader: Reader) -> list[Sent]:
    """What does not come although it was acknowledged, once nothing has come for some time."""
    count, at = len(reader.numbers), time.monotonic()
    while True:
        missing = [each for each in publisher.sent if each.number not in reader.numbers]
        if not missing or time.monotonic() > at + QUIET_SECONDS:
            return missing
        if len(reader.numbers) > count:
            count, at = len(reader.numbers), time.monotonic()
        await asyncio.sleep(0.05)


async def restart(broker: BrokerProcess, generator: random.Random) -> None:
    if generator.random() < 0.5:
        broker.kill()
    else:
        await asyncio.to_thread(broker.stop)
    await asyncio.to_thread(broker.start)


async def back_up_and_restore(brokers: list[BrokerProcess], generator: random.Random) -> Interval:
    """At random moments, with restarts in between. Returns the interval that has to be announced."""
    victim = generator.choice(brokers)
    copy = victim.folder / "copy"
    await asyncio.sleep(generator.random() * 0.3)
    summary = await asyncio.to_thread(
        ask, socket_beside(victim.store), Backup(str(copy), overwrite=True), lambda done, total: None
    )
    for _ in range(generator.randrange(RESTARTS + 1)):
        await asyncio.sleep(generator.random() * 0.3)
        await restart(victim, generator)
    await asyncio.sleep(generator.random() * 0.5)
    victim.kill()
    await asyncio.to_thread(restore, copy, victim.store)
    until = time.time()
    await asyncio.to_thread(victim.start)
    await asyncio.to_thread(wait_agree, brokers, AGREE_SECONDS)
    return Interval(summary["made_at"], until)


async def load(brokers: list[BrokerProcess], seed: int) -> None:
    first, middle, last = brokers
    generator = random.Random(seed)
    async with (
        await connect(first.url, "pub") as publishing,
        await connect(last.url, "sub") as reading,
        await connect(last.url, "pub-back") as publishing_back,
        await connect(first.url, "sub-back") as reading_back,
        await connect(middle.url, "pub-here") as publishing_here,
        await connect(middle.url, "sub-here") as reading_here,
    ):
        pairs = []
        for price, writer, subscriber in (
            (5.0, publishing, reading), (15.0, publishing_back, reading_back), (25.0, publishing_here, reading_here)
        ):  # fmt: skip
            clause = f"price BETWEEN {price - 1} AND {price + 1}"
            await writer.advertise(clause)
            pairs.append((Publisher(writer, price), Reader(await subscriber.subscribe(clause, durable="all"))))
        tasks = [asyncio.create_task(each.run()) for pair in pairs for each in pair]
        needed = [await back_up_and_restore(brokers, generator) for _ in range(RESTORES)]
        for publisher, _ in pairs:
            publisher.is_stopping = True
        await asyncio.gather(*tasks[::2])
        await asyncio.to_thread(wait_agree, brokers, AGREE_SECONDS)
        intervals = announced(brokers)
        found = await asyncio.gather(*(missing_of(*pair) for pair in pairs))
        for (publisher, _), missing in zip(pairs, found, strict=True):
            assert len(publisher.sent) > 20 * RESTORES
            lost = [
                each
                for each in missing
                if not any(
                    since <= each.until + UNDER_WAY_SECONDS and each.since <= until for since, until in intervals
                )
            ]
            assert not lost, f"seed {seed}: {len(lost)} of {len(publisher.sent)} in no interval {intervals}: {lost[:5]}"
        for since, until in intervals:
            has_to_be = [each for each in needed if abs(each.since - since) < 1.0]
            assert has_to_be, f"seed {seed}: nobody restored a backup of {since}: {needed}"
            assert until - since <= max(each.until - each.since for each in has_to_be) + LONGER_SECONDS
        for each in needed:
            assert any(abs(each.since - since) < 1.0 for since, _ in intervals), f"seed {seed}: {each} is not announced"
        for task in tasks[1::2]:
            task.cancel()


@pytest.mark.long
def test_what_is_acknowledged_is_delivered_or_lies_in_an_announced_interval(tmp_path: Path) -> None:
    brokers = chain(tmp_path)
    try:
        wait_agree(brokers, AGREE_SECONDS)
        asyncio.run(asyncio.wait_for(load(brokers, random.randrange(2**32)), 20 * RESTORES + 60))
    finally:
        for broker in brokers:
            broker.kill()
