"""A broker on a full disk starts, lets readers drain, and refuses new work by name; with room it is as before."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from helpers.commits import rows
from helpers.disks import fill, needs_mounts, small_disk
from helpers.node_process import BrokerProcess
from helpers.raw_peers import run
from thatch.client.client import AsyncClient, connect
from thatch.errors import CallerError
from thatch.node.ballast import BYTES, Ballast

KEPT = 40
PAYLOAD = b"x" * 20_000


def test_the_ballast_needs_twice_its_room_and_comes_back(tmp_path: Path) -> None:
    free = 2 * BYTES - 1
    ballast = Ballast(tmp_path / "s", lambda folder: free)
    assert not ballast.make() and not ballast.is_owed and not ballast.give_up(), "a disk that is too small has none"
    free += 1
    assert ballast.make() and ballast.path.stat().st_blocks * 512 >= BYTES
    assert [ballast.give_up(), ballast.is_owed, ballast.give_up()] == [True, True, False]
    free = 0
    assert not ballast.make() and Ballast(tmp_path / "s", lambda folder: 0).is_owed, "a restart knows that it is owed"
    free = 2 * BYTES
    assert ballast.make() and not ballast.is_owed


@contextmanager
def broker_on(disk: Path, log: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess("B1", disk)
    broker.log = log
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()


async def keep_some(broker: BrokerProcess) -> None:
    """Some megabytes for a durable subscription whose client is away."""
    async with await connect(broker.url, "ann") as ann, await connect(broker.url, "bob") as bob:
        await ann.advertise("TRUE")
        await bob.subscribe("TRUE", durable="kept")
    async with await connect(broker.url, "ann") as ann:
        await ann.advertise("TRUE")
        for number in range(KEPT):
            await ann.publish({"price": 1.0, "number": number}, PAYLOAD)


async def drain(broker: BrokerProcess, last: int) -> list[int]:
    """What is kept, in order, up to this number; when the acknowledgements are on disk."""
    async with await connect(broker.url, "bob") as bob:
        queue = await bob.subscribe("TRUE", durable="kept")
        numbers: list[int] = []
        while not numbers or numbers[-1] != last:
            numbers.append((await queue.next(10.0)).event["number"])
        queue.done()
        async with asyncio.timeout(10):
            while rows(broker.store, "events"):
                await asyncio.sleep(0.02)
        assert queue.next_now() is None
        return numbers


async def refusal(client: AsyncClient) -> str:
    """Of an event that a durable subscription wants."""
    with pytest.raises(CallerError) as caught:
        await client.publish({"price": 1.0, "number": -1}, PAYLOAD)
    assert caught.value.code == "disk_full"
    return str(caught.value)


@needs_mounts
@pytest.mark.soak("stopped")
@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "stopped"])
def test_a_start_on_a_full_disk_lets_readers_drain_and_refuses_new_work(tmp_path: Path, is_killed: bool) -> None:
    """It ended with a traceback of SQLite, and nobody could drain the queues."""

    async def after(broker: BrokerProcess, filler: Path) -> None:
        assert broker.get("/healthz")["store"] == "full"
        async with await connect(broker.url, "ann") as ann:
            with pytest.raises(CallerError, match="the disk is full") as caught:
                await ann.subscribe("TRUE", durable="another")
            assert caught.value.code == "disk_full"
            await ann.advertise("TRUE")
            assert "disk of broker B1 is full" in await refusal(ann)
        assert await drain(broker, KEPT - 1) == list(range(KEPT))
        broker.kill()
        broker.start()
        filler.unlink()
        async with asyncio.timeout(10):
            while broker.get("/healthz")["store"] != "ok":
                await asyncio.sleep(0.05)
        async with await connect(broker.url, "ann") as ann:
            await ann.advertise("TRUE")
            await ann.publish({"price": 1.0, "number": 100})
        assert await drain(broker, 100) == [100], "what was acknowledged came again: the deletion was not written"

    with small_disk(tmp_path / "disk", "24m") as disk, broker_on(disk, tmp_path / "log") as broker:
        run(keep_some(broker), 30)
        assert (disk / "B1.thatch.ballast").stat().st_size == BYTES
        if is_killed:
            broker.kill()
        else:
            assert broker.stop() == 0
        filler = fill(disk)
        broker.start()
        run(after(broker, filler), 60)
        assert (disk / "B1.thatch.ballast").stat().st_size == BYTES
        assert broker.stop() == 0
        assert "Traceback" not in broker.log.read_text()


@needs_mounts
def test_a_disk_that_gets_full_lets_readers_drain(tmp_path: Path) -> None:
    async def scenario(broker: BrokerProcess, disk: Path) -> None:
        await keep_some(broker)
        filler = fill(disk)
        async with await connect(broker.url, "ann") as ann:
            await ann.advertise("price > 900", settled=False)
            with pytest.raises(CallerError, match="disk of broker B1 is full"):
                async with asyncio.timeout(20):
                    while True:
                        await ann.publish({"price": 950.0, "number": -2}, PAYLOAD)
        assert (await drain(broker, KEPT - 1))[:KEPT] == list(range(KEPT))
        assert broker.get("/healthz")["store"] == "full"
        filler.unlink()
        async with asyncio.timeout(10):
            while broker.get("/healthz")["store"] != "ok":
                await asyncio.sleep(0.05)
        broker.kill()
        broker.start()
        assert rows(broker.store, "events") == []

    with small_disk(tmp_path / "disk", "24m") as disk, broker_on(disk, tmp_path / "log") as broker:
        run(scenario(broker, disk), 60)


@needs_mounts
def test_a_start_without_any_room_says_what_to_do(tmp_path: Path) -> None:
    """The room that was set aside is used up by an earlier start, and another program has taken the rest."""
    with small_disk(tmp_path / "disk", "24m") as disk, broker_on(disk, tmp_path / "log") as broker:
        run(keep_some(broker), 30)
        broker.kill()
        filler = fill(disk)
        broker.start()
        broker.kill()
        more = fill(disk, "more")
        with pytest.raises(AssertionError):
            broker.start()
        said = broker.log.read_text()
        assert "the disk is full, and a start has to write a little: make some megabytes of room" in said
        assert "Traceback" not in said and "a mistake in Thatch" not in said
        for file in (filler, more):
            file.unlink()
        broker.start()
        run(drain_all(broker), 30)


async def drain_all(broker: BrokerProcess) -> None:
    assert await drain(broker, KEPT - 1) == list(range(KEPT))
