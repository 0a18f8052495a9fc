"""A client acknowledges an event with the life of the broker's store in which it came, whenever it does so."""

from __future__ import annotations

import asyncio
from typing import Any

from helpers.raw_peers import SESSION, SPACE_JSON, RawPeer, playing, run
from thatch.client.client import connect

FIRST = (1 << 40) + 1


def event(number: int, name: str) -> list[Any]:
    return ["Kept", "all", number, ["Publish", name, {"price": 1.0}]]


async def greeted(peer: RawPeer, life: str) -> None:
    """As a broker whose store has a life, and which is asked for a durable subscription."""
    await peer.read("Hello")
    await peer.say(
        ["Hello", "B1", SESSION, SPACE_JSON, False, 2, [], False, "", 4, 0, {"life": life}],
        ["Digest", peer.seq(), 1, [0], [0]],
    )
    seq = (await peer.read("Synced"))[1]
    await peer.say(["Accepted", seq], ["Settled", seq])
    await peer.read("Keep")
    await peer.say(["Standing", "all", "TRUE", "settled"])


def test_an_event_of_a_lost_life_is_acknowledged_with_that_life() -> None:
    """The second connection is to a store that went back and counts again: its numbers are lower, and count."""
    acks: list[list[Any]] = []
    handed_out, back = asyncio.Event(), asyncio.Event()

    async def before(peer: RawPeer) -> None:
        await greeted(peer, "a life")
        await peer.say(event(FIRST + 7, "pub:1"))
        await peer.read("Done")
        await peer.say(event(FIRST + 8, "pub:2"))
        await handed_out.wait()

    async def after(peer: RawPeer) -> None:
        await greeted(peer, "another life")
        back.set()
        await peer.say(event(FIRST, "pub:3"), event(FIRST + 1, "pub:4"))
        for _ in range(3):
            acks.append(await peer.read("Done"))
        await peer.closed()

    async def scenario() -> None:
        async with playing(before, after) as address, await connect(address, "ann") as ann:
            queue = await ann.subscribe("TRUE", durable="all")
            assert (await queue.next(5)).id == "pub:1"
            queue.done()
            assert (await queue.next(5)).id == "pub:2"
            handed_out.set()  # and the connection ends, before the event is dealt with
            async with asyncio.timeout(5):
                await back.wait()
            for name in ("pub:3", "pub:4"):
                assert (await queue.next(5)).id == name
            queue.done()
            async with asyncio.timeout(5):
                while len(acks) < 3:
                    await asyncio.sleep(0.01)
        assert acks == [
            ["Done", "all", FIRST + 8, "a life"],
            ["Done", "all", FIRST, "another life"],
            ["Done", "all", FIRST + 1, "another life"],
        ]

    run(scenario())
