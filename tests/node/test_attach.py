"""A broker is lost for good, and operators attach those behind it elsewhere: nothing that was acknowledged is lost."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from helpers import operators
from helpers.node_process import free_port
from helpers.raw_peers import run, running, url
from thatch.client.client import AsyncClient, connect
from thatch.client.subscription import AsyncSubscription
from thatch.node.config import Listen
from thatch.node.server import Node


async def admin(node: Node, *arguments: str, status: int | None = 0) -> Any:
    return await operators.admin(node.admin.path, *arguments, status=status)


async def admin_links(node: Node) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = await admin(node, "links", status=None)
    return found


class Star:
    """B1, B3 and B9 around B2: each with a publisher, and with a durable subscriber of its own."""

    def __init__(self, folder: Path, wanted: dict[str, str]) -> None:
        """`wanted`: the clause of each durable subscriber, by broker."""
        self.folder, self.wanted = folder, wanted
        self.nodes: dict[str, Node] = {}
        self.publishers: dict[str, AsyncClient] = {}  # they connect again, and have settled: so nobody waits for B2
        self._ports: dict[str, tuple[Listen, Listen]] = {}
        self.published: dict[str, list[int]] = {name: [] for name in wanted}
        self._running: dict[str, AsyncExitStack] = {}
        self._number = 0

    async def start(self, name: str, dials: str = "") -> None:
        stack = self._running[name] = AsyncExitStack()
        neighbours = {dials: f"ws://127.0.0.1:{self._ports[dials][1].port}"} if dials else {}
        accept = {"B1": ("B2",), "B2": ("B3", "B9")}.get(name, ())
        client, overlay = self._ports.setdefault(name, (Listen(port=free_port()), Listen(port=free_port())))
        settings: dict[str, Any] = {"neighbours": neighbours, "accept": accept, "client": client, "overlay": overlay}
        self.nodes[name] = await stack.enter_async_context(running(self.folder, name, **settings))

    async def stop(self, *names: str) -> None:
        for name in names:
            await self._running.pop(name).aclose()
            del self.nodes[name]

    async def build(self, publishers: tuple[str, ...]) -> None:
        """Everything has settled; then B2 goes, and each broker keeps what is published from then on."""
        await self.start("B1")
        await self.start("B2", "B1")
        for name in ("B3", "B9"):
            await self.start(name, "B2")
        async with asyncio.timeout(10):  # what settles speaks of the brokers that are linked
            while not all(self._is_linked(name) for name in ("B1", "B3", "B9")):
                await asyncio.sleep(0.01)
        for name in publishers:
            self.publishers[name] = await connect(url(self.nodes[name]), f"p-{name}")
            await self.publishers[name].advertise("TRUE")
        for name, where in self.wanted.items():
            async with await connect(url(self.nodes[name]), f"s-{name}") as client:
                await client.subscribe(where, durable="all")
        await self.wait_durable(publishers)
        await self.stop("B2")

    def _is_linked(self, name: str) -> bool:
        link = self.nodes[name].driver.broker.links.get("B2")
        return link is not None and link.knows_all

    async def end(self) -> None:
        for client in self.publishers.values():
            await client.close()
        await self.stop(*list(self.nodes))

    async def wait_durable(self, publishers: tuple[str, ...]) -> None:
        async with asyncio.timeout(10):
            while not all(self.nodes[name].driver.broker.links["B2"].is_durable for name in publishers):
                await asyncio.sleep(0.01)

    async def publish(self, name: str, count: int = 5) -> None:
        """Acknowledged events, in a region that was advertised when B2 was there."""
        for _ in range(count):
            self._number += 1
            await self.publishers[name].publish({"price": float(name[1:]), "number": self._number})
            self.published[name].append(self._number)

    async def attach(self, parent: str, child: str) -> tuple[Any, Any]:
        """As both operators do it: the parent dials."""
        at_child = await admin(self.nodes[child], "attach", parent, "--instead-of", "B2")
        dial = f"ws://127.0.0.1:{self.nodes[child].overlay_port}"
        return await admin(self.nodes[parent], "attach", child, "--instead-of", "B2", "--dial", dial), at_child

    async def wait_settled(self) -> None:
        async with asyncio.timeout(10):
            while True:
                links = [each for node in self.nodes.values() for each in await admin_links(node) if each["instead_of"]]
                if links and all(each["settled"] for each in links):
                    return
                await asyncio.sleep(0.02)

    async def read(self, name: str, expected: set[int]) -> list[int]:
        """What comes to the durable subscriber at a broker, until all that is expected has."""
        got: list[int] = []
        async with await connect(url(self.nodes[name]), f"s-{name}") as client:
            subscription = await client.subscribe(self.wanted[name], durable="all", settled=False)
            assert isinstance(subscription, AsyncSubscription)
            try:
                async with asyncio.timeout(8):
                    while not expected <= {*got}:
                        got.append((await anext(subscription)).event["number"])
            except TimeoutError:
                missing = sorted(expected - {*got})
                raise AssertionError(f"of {len(expected)} events {missing} never came to {name}") from None
        return got


def test_children_attached_one_after_the_other_get_all_that_was_kept_anywhere(tmp_path: Path) -> None:
    """TRACES T2.9: events are kept at the parent and at both children, before each attach and after it; parent and
    child restart in the middle."""

    async def scenario() -> None:
        everywhere = ("B1", "B3", "B9")
        star = Star(tmp_path, dict.fromkeys(everywhere, "TRUE"))
        await star.build(everywhere)
        for name in everywhere:
            await star.publish(name)
        await star.attach("B1", "B3")
        for name in everywhere:
            await star.publish(name)
        await star.stop("B3", "B1")
        await star.start("B1")
        await star.start("B3", "B2")
        for name in everywhere:
            await star.publish(name)
        await star.attach("B1", "B9")
        for name in everywhere:
            await star.publish(name)
        expected = {number for numbers in star.published.values() for number in numbers}
        for name in everywhere:
            got = await star.read(name, expected)
            of_each = [[number for number in got if number in numbers] for numbers in star.published.values()]
            assert of_each == [sorted(each) for each in of_each], "each publisher's events come in order"
            assert len(got) == len({*got}), "a copy is known by its id"
        await star.wait_settled()
        for name in everywhere:
            await admin(star.nodes[name], "forget", "B2", "--yes")
        async with await connect(url(star.nodes["B9"]), "late") as late:
            await late.subscribe("TRUE")  # nobody waits for B2 any more
        star.published = {name: [] for name in everywhere}
        for name in everywhere:
            await star.publish(name)
        expected = {number for numbers in star.published.values() for number in numbers}
        for name in everywhere:
            await star.read(name, expected)
        await star.end()

    run(scenario(), 60)


def test_what_only_the_children_want_of_one_another_passes_through_the_parent(tmp_path: Path) -> None:
    """B2 alone knew that B9 wants what is published at B3: B1, where nobody publishes, never heard of it."""

    async def scenario() -> None:
        star = Star(tmp_path, {"B9": "price = 3", "B3": "price = 9"})
        await star.build(("B3", "B9"))
        assert star.nodes["B1"].driver.broker.received_from("subscriptions", "B2") == {}
        await star.publish("B3")
        await star.publish("B9")
        await star.attach("B1", "B3")
        await star.publish("B3")
        await asyncio.sleep(0.3)  # what B3 keeps has come to B1 before B9 does
        await star.attach("B1", "B9")
        await star.read("B9", {*star.published["B3"]})
        await star.read("B3", {*star.published["B9"]})
        await star.end()

    run(scenario(), 60)


def test_a_lost_broker_that_comes_back_is_refused_until_it_is_forgotten(tmp_path: Path) -> None:
    """It would close a cycle: those behind it have come by other links."""

    async def scenario() -> None:
        star = Star(tmp_path, {"B9": "TRUE"})
        await star.build(("B3",))
        await star.attach("B1", "B3")
        await star.start("B2", "B1")
        parent, child = star.nodes["B1"], star.nodes["B3"]
        async with asyncio.timeout(10):
            while "unaccepted" not in parent.driver.refusals.by_code or not child.driver.broker.links["B1"].is_synced:
                await asyncio.sleep(0.01)
        reason = parent.driver.refusals.by_code["unaccepted"].reason
        assert "'B2' was given up as lost by broker 'B1'" in reason and "thatch admin forget B2" in reason
        assert "B2" not in child.driver.endpoints and "B2" not in parent.driver.endpoints
        states = {each["name"]: each["state"] for each in await admin_links(child)}
        assert states == {"B1": "up", "B2": "lost"}
        await star.wait_settled()
        await admin(parent, "forget", "B2", "--yes")
        async with asyncio.timeout(10):
            while not parent.driver.broker.links.get("B2", parent.driver.broker.links["B3"]).is_synced:
                await asyncio.sleep(0.01)
        await star.end()

    run(scenario(), 40)


def test_what_cannot_be_attached_is_refused_and_what_would_be_too_early_is_said(tmp_path: Path) -> None:
    async def scenario() -> None:
        star = Star(tmp_path, {"B3": "TRUE"})
        await star.start("B1")
        await star.start("B2", "B1")
        node = star.nodes["B1"]
        async with asyncio.timeout(10):
            while "B2" not in node.driver.endpoints:
                await asyncio.sleep(0.01)
        for arguments, reason in (
            (("B3", "--instead-of", "B7"), "no neighbour 'B7' is known here"),
            (("B3", "--instead-of", "B2"), "'B2' is connected: it is not lost"),
            (("B1", "--instead-of", "B2"), "are three"),
            (("B3", "--instead-of", "B2", "--dial", "nowhere"), "the address of a broker is a URL"),
        ):
            assert reason in str(await admin(node, "attach", *arguments, status=2))
        assert [each["name"] for each in await admin_links(node)] == ["B2"]
        await star.stop("B2")
        await admin(node, "attach", "B3", "--instead-of", "B2", "--dial", "ws://127.0.0.1:9")
        for arguments, reason in (
            (("B2", "--instead-of", "B3"), "'B2' is lost, others are attached in its place"),
            (("B3", "--instead-of", "B9"), "no neighbour 'B9' is known here"),
        ):
            assert reason in str(await admin(node, "attach", *arguments, status=2))
        early = "too early: 'B3', which is attached instead of 'B2', has not settled"
        assert early in str(await admin(node, "forget", "B2", status=2))
        (dialled,) = [each["dialled"] for each in await admin_links(node) if each["name"] == "B3"]
        assert dialled == "ws://127.0.0.1:9"
        await star.stop("B1")
        await star.start("B1")
        (dialled,) = [each["dialled"] for each in await admin_links(star.nodes["B1"]) if each["name"] == "B3"]
        assert dialled == "ws://127.0.0.1:9", "it is dialled over restarts"
        await admin(star.nodes["B1"], "forget", "B2", "--yes")
        await admin(star.nodes["B1"], "forget", "B3", "--yes")
        assert [each["state"] for each in await admin_links(star.nodes["B1"])] == ["not met yet"], "B2, of the settings"
        await star.end()

    run(scenario(), 40)
