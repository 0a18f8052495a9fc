"""Durable subscriptions, message by message: which acknowledgements count, and when one has settled."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from helpers.raw_peers import SESSION, RawPeer, dialling, run, running, until, url
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


def test_what_a_replaced_connection_had_not_handled_takes_nothing_from_the_new_one(tmp_path: Path) -> None:
    """The last frame of the old one is handled in slices; a subscription at its end came from before."""

    async def scenario() -> None:
        async with running(tmp_path, routing="subscriptions") as node, dialling(node) as old, dialling(node) as new:
            await greeted(old, ALL)
            await standing(old, "settled")
            first = node.driver.endpoints["ann"]
            events = [
                ["Publish", f"ann:{number}", {"price": 1.0, "number": number}, b"x" * 200] for number in range(6000)
            ]
            await old.say(*events, ALL)
            await until(lambda: node.driver.broker.links["ann"].counts.events_in > 0)
            await new.greet("ann", ["Synced", new.seq(), 1, {0: {}}, {0: {}}], ALL, session=SESSION + 1)
            await standing(new, "settled")
            counts = node.driver.broker.links["ann"].counts
            handled = -1
            while handled != (handled := counts.events_in):  # the old frame is dealt with, or what there was of it
                await asyncio.sleep(0.05)
            assert handled < len(events)
            (queue,) = node.queues
            assert id(queue.reader) == id(node.driver.endpoints["ann"]) != id(first)

    run(scenario())


def test_the_limits_that_a_client_asks_for_last_hold_after_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            for bytes_max in (20_000, 5_000_000):
                async with await connect(url(node), "bob") as bob:
                    await bob.subscribe("TRUE", durable="all", bytes_max=bytes_max)
        async with running(tmp_path) as node:
            (queue,) = node.queues
            assert queue.stream.limits.bytes_max == 5_000_000

    run(scenario())
