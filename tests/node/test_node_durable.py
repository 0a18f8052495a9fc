"""Durable subscriptions, message by message: which acknowledgements count, and when one has settled."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from helpers.raw_peers import SESSION, RawPeer, dialling, run, running, url
from thatch.client.client import connect

ALL: list[Any] = ["Keep", "all", "TRUE", 10_000, 60.0]


async def greeted(peer: RawPeer, *more: list[Any]) -> None:
    await peer.greet("ann", ["Synced", peer.seq(), 1, {0: {}}, {0: {}}], *more)


async def standing(peer: RawPeer, state: str) -> None:
    while (await peer.read("Standing"))[3] != state:
        pass


def test_an_acknowledgement_counts_only_on_a_connection_that_has_the_subscription(tmp_path: Path) -> None:
    """A number on a connection that was sent no event says nothing."""

    async def scenario() -> None:
        async with running(tmp_path, routing="subscriptions") as node:
            async with dialling(node) as peer:
                await greeted(peer, ALL)
                await standing(peer, "settled")
            async with await connect(url(node), "bob") as bob:
                for number in range(3):
                    await bob.publish({"price": 1.0, "number": number})
            async with dialling(node) as peer:
                await greeted(peer, ["Done", "all", 2**62], ALL)
                found = [await peer.read("Kept") for _ in range(3)]
                assert [event[3][2]["number"] for event in found] == [0, 1, 2]

    run(scenario())


def test_a_durable_subscription_has_settled_when_its_own_message_has(tmp_path: Path) -> None:
    """Not when only what the subscription's client inside the node said before has."""

    async def scenario() -> None:
        neighbours = {"B9": "ws://127.0.0.1:9"}
        async with (
            running(tmp_path, routing="subscriptions", neighbours=neighbours) as node,
            dialling(node, "overlay") as peer,
            dialling(node) as reader,
        ):
            await peer.greet("B9", ["Resume", "store of B9", "", 0], is_client=False)
            await peer.read("Digest")
            await peer.say(["Digest", peer.seq(), 1, [0], [0]], ["Synced", peer.seq(), 1, {}, {}])
            synced = (await peer.read("Synced"))[1]
            await greeted(reader, ALL)
            await standing(reader, "accepted")
            subscribed = (await peer.read("Subscribe"))[1]
            await peer.say(["Settled", synced])
            link = node.driver.broker.links["B9"]
            async with asyncio.timeout(10):
                while not link.settled:
                    await asyncio.sleep(0.002)
            await reader.say(["Advertise", reader.seq(), "after", "TRUE", None])
            while (await reader.read("Accepted"))[1] < SESSION << 32 | 2:
                pass
            assert not any(each[0] == "Standing" for each in reader.came)
            await peer.say(["Settled", subscribed])
            await standing(reader, "settled")

    run(scenario())
