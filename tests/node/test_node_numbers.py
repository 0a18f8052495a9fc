"""Numbers that no store and no reader in another language could hold are refused where they are read."""

from __future__ import annotations

from math import inf, nan
from pathlib import Path
from typing import Any

import pytest

from helpers.commits import rows
from helpers.places import Place, until
from helpers.raw_peers import dialling, run, running, url
from thatch.client.client import connect
from thatch.node.server import Node

EVENT = ["Publish", "B9:1", {"price": 1.0}]
BEFORE_RESUME: list[list[Any]] = []
RESUMED = [["Resume", "store9", "", 0]]
NUMBERS = pytest.mark.parametrize("number", [2**63, 2**64 - 1, -1], ids=["2^63", "2^64-1", "-1"])


async def check_goes_on(node: Node) -> None:
    """The node writes to its store, and takes clients."""
    async with await connect(url(node), "eve") as eve:
        kept = await eve.subscribe("price < 20", durable="kept")
        await eve.advertise("TRUE")
        await eve.publish({"price": 1.0})
        assert (await kept.next(5)).event == {"price": 1.0}
    assert node.failure is None


@NUMBERS
def test_an_acknowledgement_of_too_large_a_number_ends_the_connection_and_not_the_node(
    tmp_path: Path, number: int
) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node, dialling(node) as peer, await connect(url(node), "bob") as bob:
            await peer.greet("ann", ["Synced", peer.seq(), 1, {0: {}}, {0: {}}], ["Keep", "k", "TRUE", 10_000, 60.0])
            while (await peer.read("Standing"))[3] != "settled":
                pass
            await bob.advertise("TRUE")
            await bob.publish({"price": 1.0})
            await peer.say(["Done", "k", number])
            assert (await peer.read("Refused"))[5] == "protocol" and await peer.closed() == 1008
            await check_goes_on(node)

    run(scenario())


@NUMBERS
@pytest.mark.parametrize(
    ("before", "message"),
    [
        (RESUMED, lambda number: ["Received", number]),
        (BEFORE_RESUME, lambda number: ["Resume", "store9", "", number]),
        (RESUMED, lambda number: ["Forward", number, EVENT]),
        (RESUMED, lambda number: ["Forward", 1, [*EVENT, b"", number]]),
    ],
    ids=["Received", "Resume", "Forward", "distance"],
)
def test_a_neighbours_number_that_is_too_large_ends_the_link_and_not_the_node(
    tmp_path: Path, number: int, before: list[list[Any]], message: Any
) -> None:
    async def scenario() -> None:
        async with running(tmp_path, routing="subscriptions") as node, dialling(node, "overlay") as peer:
            async with await connect(url(node), "bob") as bob:
                await bob.subscribe("TRUE", durable="all", settled=False)
            await peer.greet("B9", *before, is_client=False)
            await peer.read("Digest")
            digest, synced = ["Digest", peer.seq(), 1, [0], [0]], ["Synced", peer.seq(), 1, {}, {}]
            await peer.say(digest, synced, message(number))
            assert (await peer.read("Refused"))[5] == "protocol" and await peer.closed() == 1008
            async with await connect(url(node), "eve") as eve:
                kept = await eve.subscribe("price < 20", durable="kept", settled=False)
                await eve.publish({"price": 1.0})
                assert (await kept.next(5)).event == {"price": 1.0}
            assert node.failure is None

    run(scenario())


@pytest.mark.parametrize("session", [0, 2**31, 2**63])
def test_a_session_is_from_1_to_2_to_the_31_less_1(tmp_path: Path, session: int) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            for path in ("connect", "overlay"):
                async with dialling(node, path) as peer:
                    await peer.greet("B9", is_client=path == "connect", session=session)
                    assert (await peer.read("Refused"))[5] == "protocol" and await peer.closed() == 1008
            assert not node.driver.broker.links
            async with dialling(node) as peer:
                await peer.greet("ann", session=2**31 - 1)
                assert (await peer.read("Hello"))[1] == "B1"

    run(scenario())


@pytest.mark.parametrize(
    "fields",
    [
        [{2**23: "a"}],
        [{-1: "a"}],
        [{1: "a" * 65}],
        [{1: "a"}, ["a" * 65]],
        [{1: "a"}, [], {"b": 2**63}],
        *([{1: "a"}, [], {}, "", {}, "a", *times] for times in ([nan, 1.0], [inf, 1.0], [-1.0, 1.0], [1.0, 1e300])),
    ],
    ids=str,
)
def test_lives_and_times_that_cannot_be_end_the_link_and_not_the_node(tmp_path: Path, fields: list[Any]) -> None:
    """A time that is no number came into the store, which then could not be written any more."""

    async def scenario() -> None:
        async with running(tmp_path, routing="subscriptions") as node, dialling(node, "overlay") as peer:
            await peer.greet("B9", ["Resume", "store9", "", 0, *fields], is_client=False)
            assert (await peer.read("Refused"))[5] == "protocol" and await peer.closed() == 1008
            assert not node.driver.gaps and node.failure is None

    run(scenario())


def test_falling_numbers_in_a_frame_do_not_take_back_what_was_acknowledged(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, routing="subscriptions") as node, dialling(node, "overlay") as peer:
            await peer.greet("B9", *RESUMED, is_client=False)
            await peer.read("Digest")
            await peer.say(["Digest", peer.seq(), 1, [0], [0]], ["Synced", peer.seq(), 1, {}, {}])
            await peer.say(*(["Forward", number, EVENT] for number in (5, 3)))
            assert (await peer.read("Received"))[1] == 5

    run(scenario())


def test_numbers_of_lives_that_add_up_to_more_than_a_store_holds_do_not_end_the_node(tmp_path: Path) -> None:
    """A store that was restored counts what a neighbour says that it has confirmed."""
    place, most = Place(tmp_path / "b1", "B1", accept=["B9"]), 2**63 - 1
    resume = ["Resume", "store9", "", 0, {1: "a", 2: "b"}, [], {}, "x", {"a": most, "b": most}]

    async def scenario() -> None:
        async with place.up() as node:
            copy = await place.back_up(node)
        place.restore(copy)
        async with place.up() as node, dialling(node, "overlay") as peer:
            await peer.greet("B9", resume, is_client=False)
            await peer.read("Digest")
            await until(lambda: node.failure is not None or any(row[6] for row in rows(node.store.path, "gaps")))
            assert node.failure is None

    run(scenario())
