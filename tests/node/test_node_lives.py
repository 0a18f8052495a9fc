"""Stores that are restored or copied more than once, or for long, over real sockets."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path

from helpers.places import Place, is_linked, linked, pair, publish, until
from helpers.raw_peers import run
from thatch.client.client import connect
from thatch.delivery.history import LIVES_SENT
from thatch.node.store import Store


def test_a_restored_broker_does_not_silence_a_healthy_neighbour(tmp_path: Path) -> None:
    """The neighbour was started so often since the backup that it does not name the life that the backup knows."""
    first, second = pair(tmp_path)

    async def scenario() -> None:
        async with second.up() as b2, first.up() as b1:
            await linked(b1, "B2")
            copy = await second.back_up(b2)
        for _ in range(LIVES_SENT):
            Store(first.store, "B1").stop()
        for _ in range(2):
            async with second.up(), first.up() as b1:
                await linked(b1, "B2")
        await asyncio.to_thread(second.restore, copy)
        async with second.up(), first.up() as b1:
            await until(lambda: b1.is_over.is_set() or is_linked(b1, "B2"))
            assert not b1.is_over.is_set()

    run(scenario(), 40)


def test_of_two_copies_of_a_restored_file_one_is_admitted(tmp_path: Path) -> None:
    """The file was copied before a broker was started on it."""
    second = Place(tmp_path / "b2", "B2", accept=["B1"])
    one = Place(tmp_path / "one", "B1", neighbours={"B2": second.overlay})
    two = Place(tmp_path / "two", "B1", neighbours={"B2": second.overlay})

    async def scenario() -> None:
        async with second.up() as b2:
            async with one.up() as b1:
                await linked(b1, "B2")
                copy = await one.back_up(b1)
            await asyncio.to_thread(one.restore, copy)
            shutil.copy(one.store, two.store)
            async with one.up() as b1:
                await linked(b1, "B2")
            async with two.up() as b1:
                await until(lambda: "history" in b2.driver.refusals.by_code or is_linked(b1, "B2"))
                assert not is_linked(b1, "B2")
            async with one.up() as b1:
                await linked(b1, "B2")

    run(scenario(), 40)


def test_of_two_rollbacks_before_a_neighbour_comes_both_are_announced(tmp_path: Path) -> None:
    """The first one is announced at once: the backup that is restored then may be from before the neighbour comes."""
    first, second = pair(tmp_path)

    async def scenario() -> None:
        async with second.up(), first.up() as b1:
            await linked(b1, "B2")
            async with await connect(second.url, "bob") as bob:
                await bob.subscribe("TRUE", durable="all")
            await until(lambda: b1.driver.broker.links["B2"].is_durable)
        times = []
        for at in range(2):
            async with first.up() as b1:
                copy = (await first.back_up(b1)).rename(tmp_path / f"copy {at}")
                await publish(first, [at])  # acknowledged, and kept for B2
                times.append(time.time())
            await asyncio.to_thread(first.restore, copy)
        async with first.up() as b1, second.up() as b2:
            spans = sorted((gap.since, gap.until) for gap in b1.driver.gaps if gap.side == "out")
            assert [since < at < end for (since, end), at in zip(spans, times, strict=True)] == [True, True]
            await linked(b1, "B2")
            assert sorted((gap.since, gap.until) for gap in b1.driver.gaps if gap.side == "out") == spans
            (gap,) = (each for each in b2.driver.gaps if each.side == "in")
            assert gap.since <= times[0] and times[1] <= gap.until
            await until(lambda: b1.driver.neighbours["B2"].returned == b1.driver.history.present.id)
        async with first.up() as b1, second.up() as b2:
            await linked(b1, "B2")
            assert len(b2.driver.gaps) == 2 and len(b1.driver.gaps) == 4, "it is found once"

    run(scenario(), 40)
