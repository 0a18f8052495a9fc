"""A store whose commits are delayed, fail or are lost: nothing is acknowledged before what it speaks of is on disk.

kill -9 does not show this: the kernel goes on writing what a killed process has handed over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from helpers.commits import Disk, rows
from helpers.node_process import free_port
from helpers.raw_peers import SESSION, SPACE_JSON, RawPeer, dialling, run, running, until, url
from thatch.client.client import AsyncClient, connect
from thatch.node.config import Listen
from thatch.node.server import Node
from thatch.protocol.ids import SUBSCRIPTIONS

SETTINGS: dict[str, Any] = {
    "routing": "subscriptions",
    "neighbours": {"B8": "ws://127.0.0.1:9", "B9": "ws://127.0.0.1:9"},
}
EVENT = {"price": 1.0}
PAYLOAD = b"what must not be lost"


class Scene:
    """A node and those who are connected to it. `store` is its file."""

    def __init__(self, node: Node, store: Path, stack: AsyncExitStack) -> None:
        self.node, self.store, self._stack = node, store, stack

    async def client(self, name: str) -> AsyncClient:
        client = await connect(url(self.node), name)
        self._stack.push_async_callback(client.close, timeout_seconds=0.0)
        return client

    async def neighbour(self, name: str) -> RawPeer:
        """One behind which somebody wants all events, durably."""
        peer = await self._stack.enter_async_context(dialling(self.node, "overlay"))
        hello = ["Hello", name, SESSION, SPACE_JSON, False, 2, [name], True, "", 3, 3]
        await peer.say(hello, ["Resume", f"store of {name}", "", 0])
        await peer.read("Digest")
        await peer.say(["Digest", peer.seq(), 1, [0], [0]], ["Synced", peer.seq(), 1, {}, {}])
        await peer.say(["Subscribe", peer.seq(), f"{name}/bob@all/all", "TRUE", None, [], []])
        broker = self.node.driver.broker
        await until(lambda: bool(name in broker.links and broker.received_from(SUBSCRIPTIONS, name)))
        return peer

    def holds(self, table: str, what: str | bytes) -> bool:
        return any(
            value == what or (isinstance(value, bytes) and isinstance(what, bytes) and what in value)
            for row in rows(self.store, table)
            for value in row
        )


Act = Callable[[], Awaitable[Any]]  # what is to be acknowledged: returns when it is
Case = Callable[[Scene], Awaitable[tuple[Act, Callable[[], bool]]]]  # and whether it is on disk


async def published_for_a_durable_subscription(scene: Scene) -> tuple[Act, Callable[[], bool]]:
    ann, bob = await scene.client("ann"), await scene.client("bob")
    await bob.subscribe("TRUE", durable="all", settled=False)
    return lambda: ann.publish(EVENT, PAYLOAD), lambda: scene.holds("events", PAYLOAD)


async def published_for_a_neighbour_that_is_away(scene: Scene) -> tuple[Act, Callable[[], bool]]:
    ann, peer = await scene.client("ann"), await scene.neighbour("B9")
    await peer.socket.close()
    return lambda: ann.publish(EVENT, PAYLOAD), lambda: scene.holds("events", "B9") and scene.holds("events", PAYLOAD)


async def published_for_a_neighbour_that_is_there(scene: Scene) -> tuple[Act, Callable[[], bool]]:
    ann, _ = await scene.client("ann"), await scene.neighbour("B9")
    return lambda: ann.publish(EVENT, PAYLOAD), lambda: scene.holds("events", PAYLOAD)


async def posted_over_http(scene: Scene) -> tuple[Act, Callable[[], bool]]:
    bob = await scene.client("bob")
    await bob.subscribe("TRUE", durable="all", settled=False)

    async def post(id: str) -> None:
        headers = {"ce-specversion": "1.0", "ce-id": id, "ce-source": "/here", "ce-type": "thatch"}
        address = f"http://127.0.0.1:{scene.node.client_port}/events"
        async with aiohttp.ClientSession() as session, session.post(address, json=EVENT, headers=headers) as answer:
            assert answer.status == 200, await answer.text()

    await post("first")  # the publisher advertises
    return lambda: post("second"), lambda: scene.holds("events", b"second")


async def received_for_a_durable_subscription(scene: Scene) -> tuple[Act, Callable[[], bool]]:
    bob, peer = await scene.client("bob"), await scene.neighbour("B9")
    await bob.subscribe("TRUE", durable="all", settled=False)
    return lambda: forwarded(peer), lambda: scene.holds("events", PAYLOAD)


async def received_for_a_neighbour_that_is_away(scene: Scene) -> tuple[Act, Callable[[], bool]]:
    away, peer = await scene.neighbour("B8"), await scene.neighbour("B9")
    await away.socket.close()
    return lambda: forwarded(peer), lambda: scene.holds("events", "B8") and scene.holds("events", PAYLOAD)


async def forwarded(peer: RawPeer) -> None:
    await peer.say(["Forward", 1, ["Publish", "eve:1", EVENT, PAYLOAD]])
    assert (await peer.read("Received"))[1] == 1


async def accepted_subscription(scene: Scene) -> tuple[Act, Callable[[], bool]]:
    ann = await scene.client("ann")
    return (
        lambda: ann.subscribe("price < 7", settled=False),
        lambda: scene.holds("subscriptions", "price < 7"),
    )


async def accepted_advertisement(scene: Scene) -> tuple[Act, Callable[[], bool]]:
    ann = await scene.client("ann")
    return lambda: ann.advertise("price < 7", settled=False), lambda: scene.holds("advertisements", "price < 7")


async def accepted_end_of_a_subscription(scene: Scene) -> tuple[Act, Callable[[], bool]]:
    ann = await scene.client("ann")
    cheap = await ann.subscribe("price < 7")
    return lambda: ann.unsubscribe(cheap), lambda: not scene.holds("subscriptions", "price < 7")


async def settled_subscription(scene: Scene) -> tuple[Act, Callable[[], bool]]:
    ann = await scene.client("ann")
    return lambda: ann.subscribe("price < 7"), lambda: scene.holds("subscriptions", "price < 7")


async def settled_subscription_of_a_neighbour(scene: Scene) -> tuple[Act, Callable[[], bool]]:
    peer = await scene.neighbour("B9")

    async def subscribe() -> None:
        seq = peer.seq()
        await peer.say(["Subscribe", seq, "B9/bob/s", "price < 7", None, [], []])
        while (await peer.read("Settled"))[1] < seq:
            pass

    return subscribe, lambda: scene.holds("subscriptions", "price < 7")


async def accepted_durable_subscription(scene: Scene) -> tuple[Act, Callable[[], bool]]:
    ann = await scene.client("ann")
    return (
        lambda: ann.subscribe("price < 7", durable="cheap", settled=False),
        lambda: scene.holds("queues", "ann@cheap") and scene.holds("subscriptions", "price < 7"),
    )


async def accepted_clause_of_a_durable_subscription(scene: Scene) -> tuple[Act, Callable[[], bool]]:
    ann = await scene.client("ann")
    cheap = await ann.subscribe("price < 5", durable="cheap")
    return lambda: ann.replace(cheap, "price < 7", False), lambda: scene.holds("subscriptions", "price < 7")


async def cancelled_durable_subscription(scene: Scene) -> tuple[Act, Callable[[], bool]]:
    ann = await scene.client("ann")
    cheap = await ann.subscribe("price < 7", durable="cheap")
    return lambda: ann.unsubscribe(cheap), lambda: not scene.holds("queues", "ann@cheap")


CASES: list[Case] = [
    published_for_a_durable_subscription, published_for_a_neighbour_that_is_away,
    published_for_a_neighbour_that_is_there, posted_over_http, received_for_a_durable_subscription,
    received_for_a_neighbour_that_is_away, accepted_subscription, accepted_advertisement,
    accepted_end_of_a_subscription, settled_subscription, settled_subscription_of_a_neighbour,
    accepted_durable_subscription, accepted_clause_of_a_durable_subscription, cancelled_durable_subscription,
]  # fmt: skip
cases = pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)


@asynccontextmanager
async def played(folder: Path, disk: Disk) -> AsyncIterator[Scene]:
    async with running(folder, before_commit=disk.before_commit, **SETTINGS) as node, AsyncExitStack() as stack:
        try:
            yield Scene(node, folder / "B1.thatch", stack)
        finally:
            disk.release()


async def let_it_answer(node: Node) -> None:
    """Time enough for whatever it says without waiting: it answers others meanwhile."""
    async with aiohttp.ClientSession() as session:
        for _ in range(10):
            async with session.get(f"http://127.0.0.1:{node.client_port}/healthz") as answer:
                await answer.read()


def check(folder: Path, case: Case, fault: str) -> None:
    """The acknowledgement waits for the commit of what it speaks of, which is delayed, fails at first, or is lost."""

    async def scenario() -> None:
        disk = Disk()
        async with played(folder, disk) as scene:
            act, is_on_disk = await case(scene)
            store = scene.node.store
            await until(lambda: scene.node.gate.committed == store.ticket)
            disk.hold()
            asked = store.ticket
            acknowledged = asyncio.ensure_future(act())
            await until(lambda: store.ticket > asked and disk.waiting.is_set())
            await let_it_answer(scene.node)
            assert not acknowledged.done() and not is_on_disk()
            if fault == "failing":
                disk.fill()
                await until(lambda: store.is_full)
            elif fault == "lost":
                disk.cut_power()
                await scene.node.is_over.wait()
            if fault != "delayed":
                await let_it_answer(scene.node)
                assert not acknowledged.done() and not is_on_disk()
            if fault == "lost":
                acknowledged.cancel()
            else:
                disk.release()
                await acknowledged
                assert is_on_disk()
        if fault == "lost":
            assert not is_on_disk()

    run(scenario())


@cases
def test_an_acknowledgement_waits_for_a_commit_that_is_delayed(tmp_path: Path, case: Case) -> None:
    check(tmp_path, case, "delayed")


@pytest.mark.soak(*[case.__name__ for case in CASES[6:]])  # what is not of events
@cases
def test_nothing_acknowledges_what_a_power_cut_has_lost(tmp_path: Path, case: Case) -> None:
    check(tmp_path, case, "lost")


@pytest.mark.soak
@cases
def test_an_acknowledgement_waits_while_commits_fail(tmp_path: Path, case: Case) -> None:
    check(tmp_path, case, "failing")


def test_what_was_acknowledged_before_a_power_cut_is_delivered_and_the_rest_is_sent_again(tmp_path: Path) -> None:
    """Once each: the publisher lives through it, and sends again what was not acknowledged."""

    async def scenario() -> None:
        disk, port = Disk(), free_port()
        settings = {**SETTINGS, "client": Listen(port=port), "before_commit": disk.before_commit}
        async with AsyncExitStack() as stack:
            async with running(tmp_path, **settings) as node:
                ann = await stack.enter_async_context(await connect(url(node), "ann"))
                async with await connect(url(node), "bob") as bob:
                    await bob.subscribe("TRUE", durable="all")
                for number in range(30):
                    await ann.publish({"price": 1.0, "number": number})
                disk.hold()
                posted = [await ann.post({"price": 1.0, "number": number}) for number in range(30, 60)]
                await until(disk.waiting.is_set)
                disk.cut_power()
                await node.is_over.wait()
                assert not any(each.done() for each in posted)
            disk.release()
            async with running(tmp_path, **settings) as node:
                await asyncio.gather(*posted)
                bob = await stack.enter_async_context(await connect(url(node), "bob"))
                kept = await bob.subscribe("TRUE", durable="all")
                found = [(await kept.next(5)).event["number"] for _ in range(60)]
                assert sorted(found) == list(range(60)) and kept.next_now() is None

    run(scenario())


def test_an_acknowledgement_of_a_reader_that_is_lost_costs_a_copy_and_no_event(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = Disk()
        settings = {**SETTINGS, "before_commit": disk.before_commit}
        async with (
            running(tmp_path, **settings) as node,
            await connect(url(node), "ann") as ann,
            await connect(url(node), "bob") as bob,
        ):
            kept = await bob.subscribe("TRUE", durable="all")
            for number in range(10):
                await ann.publish({"price": 1.0, "number": number})
            for _ in range(4):  # the first three count as dealt with
                await kept.next(5)
            store = node.store
            await until(lambda: len(rows(store.path, "events")) == 7)
            disk.hold()
            for _ in range(3):
                await kept.next(5)
            await until(disk.waiting.is_set)
            disk.cut_power()
            await node.is_over.wait()
        disk.release()
        async with running(tmp_path, **settings) as node, await connect(url(node), "bob") as bob:
            kept = await bob.subscribe("TRUE", durable="all")
            assert [(await kept.next(5)).event["number"] for _ in range(7)] == list(range(3, 10))

    run(scenario())


def test_nothing_goes_on_over_a_connection_that_was_replaced(tmp_path: Path) -> None:
    """What it still took would be a copy for the new one, and be acknowledged there before its own commit."""

    async def scenario() -> None:
        disk = Disk()
        async with running(tmp_path, **SETTINGS, before_commit=disk.before_commit) as node:
            async with await connect(url(node), "bob") as bob:
                await bob.subscribe("TRUE", durable="all", settled=False)
            hello = ["Hello", "B9", SESSION, SPACE_JSON, False, 2, ["B9"], True, "", 3, 3]
            resume = ["Resume", "store of B9", "", 0, {0: "a life"}]
            async with dialling(node, "overlay") as one, dialling(node, "overlay") as two:
                await one.say(hello, resume)
                await one.read("Digest")
                await one.say(["Digest", one.seq(), 1, [0], [0]], ["Synced", one.seq(), 1, {}, {}])
                await until(
                    lambda: node.gate.committed == node.store.ticket and bool(node.driver.broker.links["B9"].is_synced)
                )
                first = node.driver.endpoints["B9"]
                events = [["Publish", f"eve:{number}", EVENT, b""] for number in range(30_000)]
                await one.say(*(["Forward", number, event] for number, event in enumerate(events, 1)))
                taken = node.driver.arrivals("B9").taken
                await until(lambda: bool(taken))
                await two.say([*hello[:2], SESSION + 1, *hello[3:]], resume)
                await until(lambda: node.driver.endpoints["B9"] is not first)
                before = dict(taken)
                while (await two.read("Resume"))[0] != "Resume":
                    pass
                await asyncio.sleep(0.1)
                assert taken == before and max(before.values()) < len(events)

    run(scenario())
