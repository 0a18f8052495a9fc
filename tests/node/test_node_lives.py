"""Stores that are restored or copied more than once, or for long, over real sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path

from helpers.places import is_linked, linked, pair, until
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
