"""Neighbours that are away for longer than anybody waits: the rest works on, and what they may want is kept."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from helpers.node_process import BrokerProcess, chain, is_soak, wait_agree
from helpers.raw_peers import run, running, url
from thatch.cli.main import main
from thatch.client.client import AsyncClient, connect
from thatch.errors import TimedOut
from thatch.node.config import Timing

COUNT = 1_000 if is_soak() else 20  # events of each new publisher
AWAY = Timing(away_seconds=0.1, heartbeat_seconds=1.0)


async def publish(broker: BrokerProcess, name: str) -> None:
    """A new publisher: what it has advertised settles except behind B2, and its events are acknowledged."""
    async with await connect(broker.url, name) as client:
        advertised = await client.advertise("TRUE")
        assert client.missing(advertised) == ("B2",)
        for future in [await client.post({"price": 1.0, "number": number}) for number in range(COUNT)]:
            await future


def test_new_publishers_go_on_while_a_neighbour_is_away_and_nothing_is_lost(tmp_path: Path) -> None:
    """A subscriber at B2 has settled, B2 goes away, new publishers at B1 and two hops from B2 advertise and publish, B1
    is killed, B2 returns: all arrive (T1.3)."""
    brokers = chain(tmp_path, ("B0", "B1", "B2"), "[timing]\naway_seconds = 0.1")
    near, gap, gone = brokers

    async def before() -> None:
        async with await connect(gone.url, "bob") as bob:
            await bob.subscribe("TRUE", durable="all")

    async def meanwhile() -> None:
        await publish(near, "two hops")
        await publish(gap, "beside")

    async def after() -> None:
        async with await connect(gone.url, "bob") as bob:
            queue = await bob.subscribe("TRUE", durable="all", settled=False)
            events = [await queue.next(20) for _ in range(2 * COUNT)]
            for name in ("two hops", "beside"):
                numbers = [event.event["number"] for event in events if event.id.startswith(f"{name}:")]
                assert numbers == list(range(COUNT))
            queue.done()

    try:
        wait_agree(brokers, 20)
        asyncio.run(before())
        gone.kill()
        asyncio.run(meanwhile())
        gap.kill()
        gap.start()
        gone.start()
        asyncio.run(after())
    finally:
        for broker in brokers:
            broker.kill()


async def no_b2(folder: Path) -> None:
    """B1 knows B2, which has gone."""
    async with running(folder, "B1", accept=("B2",), timing=AWAY) as one:
        overlay = {"B1": f"ws://127.0.0.1:{one.overlay_port}"}
        async with running(folder, "B2", neighbours=overlay, accept=(), timing=AWAY), asyncio.timeout(10):
            while (link := one.driver.broker.links.get("B2")) is None or not link.is_there:
                await asyncio.sleep(0.01)


async def check_whole(client: AsyncClient, *what: object) -> None:
    for each in what:
        await client.wait_settled(each, timeout_seconds=10)  # type: ignore[arg-type]
        assert client.missing(each) == ()  # type: ignore[arg-type]


async def printed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> AsyncIterator[str]:
    """The lines that a command writes to its standard error."""
    threading.Thread(target=main, args=(arguments,), daemon=True).start()
    text = ""
    async with asyncio.timeout(15):
        while True:
            text += capsys.readouterr().err
            line, end, rest = text.partition("\n")
            if end:
                yield line
                text = rest
            await asyncio.sleep(0.01)


def test_a_client_hears_which_brokers_are_missing_and_when_they_are_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario() -> None:
        await no_b2(tmp_path)
        async with running(tmp_path, "B1", accept=("B2",), timing=AWAY) as one, await connect(url(one), "ann") as ann:
            advertised = await ann.advertise("price < 50")
            plain, kept = await ann.subscribe("TRUE"), await ann.subscribe("price < 20", durable="kept")
            assert ann.missing(advertised) == plain.missing == kept.missing == ("B2",)
            await ann.publish({"price": 12.5})
            assert (await plain.next(5)).event == (await kept.next(5)).event == {"price": 12.5}
            for each in (advertised, plain, kept):
                with pytest.raises(TimedOut, match="to settle everywhere"):
                    await ann.wait_settled(each, timeout_seconds=0.01)
            printing = printed(["subscribe", "TRUE", "--name", "eve", "--url", url(one), "--count", "1"], capsys)
            assert (await anext(printing)).startswith("settled except B2, which cannot be reached")
            address, where = f"http://127.0.0.1:{one.client_port}/subscribe", {"where": "TRUE"}
            async with aiohttp.ClientSession() as session, session.get(address, params=where) as stream:
                assert await stream.content.readuntil(b"\n\n") == b'event: settled-except\ndata: ["B2"]\n\n'
                overlay = {"B1": f"ws://127.0.0.1:{one.overlay_port}"}
                async with running(tmp_path, "B2", neighbours=overlay, accept=(), timing=AWAY):
                    await check_whole(ann, advertised, plain, kept)
                    assert await stream.content.readuntil(b"\n\n") == b"event: settled\ndata: {}\n\n"
                    assert await anext(printing) == "settled: no matching event is missed from now on"
            await ann.publish({"price": 12.5})

    run(scenario(), 40)
