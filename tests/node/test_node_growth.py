"""Two nodes whose operators grow the space, in their settings, over real connections."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.raw_peers import run, running, until, url
from thatch.client.client import AsyncClient, connect
from thatch.errors import CallerError
from thatch.node.server import Node

BASE = "price double not null 0..1000, kind enum('a', 'b')"


def is_synced(node: Node, neighbour: str) -> bool:
    link = node.driver.broker.links.get(neighbour)
    return link is not None and link.is_synced


def has_opened(node: Node) -> bool:
    """All that both want."""
    return node.driver.broker.open_space.names >= {"colour", "size"}


async def exchanged(ann: AsyncClient, bob: AsyncClient) -> None:
    red = await ann.subscribe("colour = 'red' AND size > 3")
    await bob.advertise("TRUE")
    await bob.publish({"price": 1.0, "colour": "red", "size": 4})
    assert (await red.next(10)).event["size"] == 4


def test_two_operators_grow_the_space_differently(tmp_path: Path) -> None:
    """Hole 11: the overlay was split for good. Each restarts with settings that have only its own attribute."""

    async def scenario() -> None:
        async with running(tmp_path, "B1", space=BASE) as one:
            overlay = {"B1": f"ws://127.0.0.1:{one.overlay_port}"}
            async with running(tmp_path, "B2", space=BASE, neighbours=overlay) as two:
                await until(lambda: is_synced(one, "B2") and is_synced(two, "B1"))
        async with (
            running(tmp_path, "B1", space=f"{BASE}, colour string") as one,
            await connect(url(one), "ann") as ann,
        ):
            with pytest.raises(CallerError, match="not known everywhere yet"):
                await ann.subscribe("colour = 'red'")
            overlay = {"B1": f"ws://127.0.0.1:{one.overlay_port}"}
            async with (
                running(tmp_path, "B2", space=f"{BASE}, size int", neighbours=overlay) as two,
                await connect(url(two), "bob") as bob,
            ):
                await until(lambda: has_opened(one) and has_opened(two))
                await exchanged(ann, bob)
                assert one.driver.broker.space == two.driver.broker.space
                assert one.driver.broker.open_step == two.driver.broker.open_step == 2
        async with running(tmp_path, "B2", space=f"{BASE}, size int") as two:  # less, in another order
            assert has_opened(two)

    run(scenario())
