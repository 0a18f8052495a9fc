"""Links that are cut and half-open, a full disk: in namespaces and file systems of their own, where that is allowed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from helpers.disks import fill, is_allowed, needs_mounts, run, small_disk
from helpers.node_process import BrokerProcess, wait_agree
from thatch.client.client import AsyncClient, connect
from thatch.errors import CallerError

HALF_OPEN_SECONDS = 15.0
AGREE_SECONDS = 2.0


needs_namespaces = pytest.mark.skipif(
    not is_allowed("ip", "netns", "list"), reason="needs to be root and to have `ip`, for a network namespace"
)


class Apart:
    """A network namespace with two cables to this one: the one of the overlay, which can be cut, and one to look in."""

    def __init__(self) -> None:
        self.name = f"thatch-{os.getpid()}"
        self.base = f"10.{200 + os.getpid() % 50}.{os.getpid() // 50 % 250}"
        self.cable = f"tho{os.getpid() % 100_000}"
        self.prefix = ("ip", "netns", "exec", self.name)

    def address(self, cable: int, end: int) -> str:
        return f"{self.base}.{4 * cable + end}"

    def make(self) -> None:
        run("ip", "netns", "add", self.name)
        for cable, name in enumerate((self.cable, f"{self.cable}m")):
            run("ip", "link", "add", name, "type", "veth", "peer", "name", f"e{cable}", "netns", self.name)
            run("ip", "addr", "add", f"{self.address(cable, 1)}/30", "dev", name)
            run("ip", "link", "set", name, "up")
            run(*self.prefix, "ip", "addr", "add", f"{self.address(cable, 2)}/30", "dev", f"e{cable}")
            run(*self.prefix, "ip", "link", "set", f"e{cable}", "up")
        run(*self.prefix, "ip", "link", "set", "lo", "up")

    def remove(self) -> None:
        for name in (self.cable, f"{self.cable}m"):
            subprocess.run(["ip", "link", "del", name], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True, check=False)

    def cut(self) -> None:
        """Packets vanish, and neither side notices."""
        run("ip", "link", "set", self.cable, "down")

    def heal(self) -> None:
        run("ip", "link", "set", self.cable, "up")


@contextmanager
def two_apart(folder: Path) -> Iterator[tuple[Apart, list[BrokerProcess]]]:
    apart = Apart()
    brokers: list[BrokerProcess] = []
    try:
        apart.make()
        near = BrokerProcess("B1", folder, accept=("B2",))
        near.overlay_host = apart.address(0, 1)
        far = BrokerProcess(
            "B2", folder, {"B1": f"ws://{apart.address(0, 1)}:{near.overlay_port}"}, prefix=apart.prefix
        )
        far.host = apart.address(1, 2)
        brokers += [near, far]
        for broker in brokers:
            broker.spawn()
        for broker in brokers:
            broker.wait_ready()
        wait_agree(brokers, 10)
        yield apart, brokers
    finally:
        for broker in brokers:
            broker.kill()
        apart.remove()


def is_up(broker: BrokerProcess) -> bool:
    return all(broker.get("/healthz")["neighbours"].values())


@needs_namespaces
def test_a_cut_is_noticed_and_a_healed_link_agrees(tmp_path: Path) -> None:
    async def scenario(apart: Apart, brokers: list[BrokerProcess]) -> None:
        near, far = brokers
        async with await connect(near.url, "ann") as ann, await connect(far.url, "bob") as bob:
            await ann.advertise("TRUE")
            kept = await bob.subscribe("price < 100", durable="kept")
            leaving = await bob.subscribe("price > 900")
            await ann.publish({"price": 1.0, "number": 0})
            apart.cut()
            cut_at = time.monotonic()
            sent = [await ann.publish({"price": 1.0, "number": number}) for number in range(1, 20)]
            await bob.unsubscribe(leaving)
            await bob.subscribe("price BETWEEN 200 AND 300", settled=False)
            await ann.subscribe("price < 5", settled=False)
            await bob.advertise("price < 50", settled=False)
            while is_up(near) or is_up(far):
                assert time.monotonic() < cut_at + HALF_OPEN_SECONDS, "a half-open link was not noticed"
                await asyncio.sleep(0.05)
            apart.heal()
            await asyncio.to_thread(wait_agree, brokers, AGREE_SECONDS)
            numbers = [(await kept.next(5)).event["number"] for _ in range(20)]
            assert numbers == list(range(20)) and len(sent) == 19

    with two_apart(tmp_path) as (apart, brokers):
        asyncio.run(asyncio.wait_for(scenario(apart, brokers), 90))


async def refusal(client: AsyncClient, event: dict[str, float]) -> str:
    """Of the first event that is refused."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        future = await client.post(event, b"x" * 1000)
        try:
            await asyncio.wait_for(asyncio.shield(future), 0.3)
        except CallerError as error:
            return str(error)
        except TimeoutError:
            pass
    raise AssertionError("a full disk refuses nothing")


@needs_mounts
def test_a_full_disk_refuses_durable_work_and_keeps_routing(tmp_path: Path) -> None:
    async def scenario(broker: BrokerProcess, disk: Path) -> None:
        async with await connect(broker.url, "ann") as ann, await connect(broker.url, "bob") as bob:
            await ann.advertise("TRUE")
            kept = await bob.subscribe("price < 100", durable="kept")
            plain = await bob.subscribe("price > 900")
            await ann.publish({"price": 1.0, "number": 1})
            filler = fill(disk)
            waiting = await ann.post({"price": 1.0, "number": 2}, b"x" * 5000)  # not acknowledged before there is room
            assert "disk of broker B1 is full" in await refusal(ann, {"price": 1.0, "number": 3})
            with pytest.raises(CallerError, match="disk is full"):
                await bob.subscribe("price < 50", durable="another")
            assert broker.get("/healthz")["store"] == "full"
            await ann.post({"price": 950.0, "number": 4})  # acknowledged after those before it
            assert (await plain.next(5)).event["number"] == 4
            filler.unlink()
            await asyncio.wait_for(waiting, 5)
            await ann.publish({"price": 1.0, "number": 5})
            numbers = [(await kept.next(5)).event["number"]]
            while numbers[-1] != 5:
                numbers.append((await kept.next(5)).event["number"])
            assert numbers[:2] == [1, 2] and numbers == sorted(numbers)
            assert broker.get("/healthz")["store"] == "ok"

    with small_disk(tmp_path / "disk", "2m") as disk:
        broker = BrokerProcess("B1", disk)
        broker.log = tmp_path / "log"
        broker.start()
        try:
            asyncio.run(asyncio.wait_for(scenario(broker, disk), 60))
            assert broker.stop() == 0
        finally:
            broker.kill()
