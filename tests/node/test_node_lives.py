"""Stores that are restored or copied more than once, or for long, over real sockets."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from helpers.places import Place, is_linked, linked, pair, until
from helpers.raw_peers import run
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
