"""Three brokers under load, as processes: backed up and restored at random moments with restarts in between, or killed.
What was acknowledged is delivered or lies in an interval that was announced; without a restore nothing is announced."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

from helpers.node_process import BrokerProcess, chain, is_soak, wait_agree
from thatch.client.client import AsyncClient, connect
from thatch.client.subscription import AsyncSubscription
from thatch.node.asking import Backup, ask, socket_beside
from thatch.node.backup import restore

RESTORES = 20 if is_soak() else 2
RESTARTS = 2 if is_soak() else 1  # at most, between a backup and its restore
KILLS = 20 if is_soak() else 2
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


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[BrokerProcess]]:
    """Both tests have the same, one after the other."""
    made = chain(tmp_path_factory.mktemp("chain"))
    try:
        wait_agree(made, AGREE_SECONDS)
        yield made
    finally:
        for broker in made:
            broker.kill()


async def plain_load(brokers: list[BrokerProcess]) -> None:
    """What is heard is acknowledged and need not be on disk: after a crash a neighbour knows more of a broker than it
    does itself."""
    first, _, last = brokers
    async with await connect(first.url, "pub") as publishing, await connect(last.url, "sub") as reading:
        await publishing.advertise("price < 10")
        publisher, reader = Publisher(publishing, 5.0), Reader(await reading.subscribe("price < 10"))
        tasks = [asyncio.create_task(each.run()) for each in (publisher, reader)]
        for kill in range(KILLS):
            await asyncio.sleep(0.2)
            brokers[kill % 3].kill()
            await asyncio.to_thread(brokers[kill % 3].start)
            await asyncio.to_thread(wait_agree, brokers, AGREE_SECONDS)
        publisher.is_stopping = True
        await tasks[0]
        tasks[1].cancel()
        assert len(publisher.sent) > 10 * KILLS and reader.numbers
    for broker in brokers:
        assert broker.get("/healthz")["gaps"] == [] and broker.metric("rollbacks_total") == 0
        assert "began" not in broker.log.read_text() and "old copy" not in broker.log.read_text()


@pytest.mark.long
def test_kills_under_plain_load_are_no_rollback(brokers: list[BrokerProcess]) -> None:
    asyncio.run(asyncio.wait_for(plain_load(brokers), 10 * KILLS + 60))


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
def test_what_is_acknowledged_is_delivered_or_lies_in_an_announced_interval(brokers: list[BrokerProcess]) -> None:
    asyncio.run(asyncio.wait_for(load(brokers, random.randrange(2**32)), 20 * RESTORES + 60))
