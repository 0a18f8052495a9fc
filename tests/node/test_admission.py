"""What an operator decides about neighbours: who may come, which store is the one to go on with, who is forgotten."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from helpers.node_process import is_soak
from helpers.raw_peers import dialling, run, running, url
from thatch.cli.main import main
from thatch.client.client import AsyncClient, connect
from thatch.node import admin as door
from thatch.node.server import Node

COUNT = 30
QUIET_SECONDS = 1.0 if is_soak() else 0.1


async def admin(node: Node, *arguments: str) -> tuple[int, Any]:
    """Exit status and answer of `thatch admin`."""
    with redirect_stdout(StringIO()) as out, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", StringIO())  # nobody is there to be asked
        command = ["admin", *arguments, "--socket", str(node.admin.path), "--json"]
        status = await asyncio.to_thread(main, command)
    return status, json.loads(out.getvalue())


def overlay_of(node: Node) -> dict[str, str]:
    return {node.config.name: f"ws://127.0.0.1:{node.overlay_port}"}


async def wait_linked(node: Node, name: str) -> None:
    async with asyncio.timeout(15):
        while (link := node.driver.broker.links.get(name)) is None or not link.is_synced:
            await asyncio.sleep(0.01)


@asynccontextmanager
async def publishing(node: Node, name: str) -> AsyncIterator[AsyncClient]:
    async with await connect(url(node), name) as client:
        await client.advertise("TRUE", settled=False)
        yield client


async def keep_for_b2(folder: Path, one: Node) -> None:
    """B2 comes with a durable subscription and goes; events are kept for it."""
    async with publishing(one, "ann") as ann:
        async with running(folder, "B2", neighbours=overlay_of(one), accept=()) as two:
            await wait_linked(one, "B2")
            await wait_linked(two, "B1")
            async with await connect(url(two), "bob") as bob:
                await bob.subscribe("TRUE", durable="kept")
        for number in range(COUNT):
            await ann.publish({"price": 1.0, "number": number})


async def read_all(node: Node, last: int) -> list[int]:
    """Up to this number, and what comes at once behind it."""
    numbers: list[int] = []
    async with await connect(url(node), "bob") as bob:
        queue = await bob.subscribe("TRUE", durable="kept", settled=False)
        try:
            while True:
                numbers.append((await queue.next(QUIET_SECONDS if last in numbers else 10.0)).event["number"])
        except TimeoutError:
            return numbers


def test_an_operator_accepts_a_neighbour_and_it_stays_accepted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, "B1", accept=()) as one:
            async with running(tmp_path, "B2", neighbours=overlay_of(one)) as two:
                async with asyncio.timeout(5):
                    while "unaccepted" not in two.driver.refused_by.by_code:
                        await asyncio.sleep(0.01)
                status, state = await admin(one, "status")
                assert status == 0 and state["refused"][0]["last"] == "B2"
                assert "thatch admin accept B2" in state["refused"][0]["reason"]
                assert (await admin(one, "accept", "B2"))[0] == 0
                await wait_linked(one, "B2")
                _, links = await admin(one, "links")
                assert [(each["name"], each["state"], each["expected"]) for each in links] == [("B2", "up", "operator")]
            for wrong in ("B1", "a/b", ""):
                status, answer = await admin(one, "accept", wrong)
                assert status == 2 and answer["error"]
        async with (
            running(tmp_path, "B1", accept=()) as one,
            running(tmp_path, "B2", neighbours=overlay_of(one)),
        ):
            await wait_linked(one, "B2")

    run(scenario(), 40)


def test_a_client_gives_its_name_to_a_neighbour_that_is_accepted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, "B1", accept=()) as one, dialling(one) as peer:
            await peer.greet("B2", ["Synced", peer.seq(), 1, {0: {"s": ["TRUE", None]}}, {0: {}}])
            await peer.read("Settled")
            await admin(one, "accept", "B2")
            assert (await peer.read("Refused"))[5] == "name" and await peer.closed() == 1008
            assert "B2" not in one.driver.broker.links
            async with running(tmp_path, "B2", neighbours=overlay_of(one)):
                await wait_linked(one, "B2")

    run(scenario())


def test_another_store_under_a_known_name_is_refused_until_it_is_accepted(tmp_path: Path) -> None:
    """An empty store of the same name was taken for a lost disk, and swallowed what was kept."""

    async def scenario() -> None:
        async with running(tmp_path, "B1", accept=("B2",)) as one:
            await keep_for_b2(tmp_path, one)
            (tmp_path / "lost").mkdir()
            async with running(tmp_path / "lost", "B2", neighbours=overlay_of(one)) as two:
                async with asyncio.timeout(5):
                    while "store" not in two.driver.refused_by.by_code:
                        await asyncio.sleep(0.01)
                stream = one.driver.streams["B2"]
                assert stream.on_disk.count == COUNT and not one.driver.broker.links["B2"].is_up
                async with await connect(url(two), "bob") as bob:
                    queue = await bob.subscribe("TRUE", durable="kept", settled=False)
                    assert (await admin(one, "accept", "B2"))[0] == 0
                    await wait_linked(one, "B2")
                    async with publishing(one, "pub-a") as ann:
                        await ann.publish({"price": 1.0, "number": 1_000})
                    numbers = [(await queue.next(5)).event["number"]]
                    while numbers[-1] != 1_000:
                        numbers.append((await queue.next(5)).event["number"])
                assert numbers == [*range(COUNT), 1_000]
            async with running(tmp_path, "B2", neighbours=overlay_of(one)) as two:  # the first store comes back
                async with asyncio.timeout(5):
                    while "store" not in two.driver.refused_by.by_code:
                        await asyncio.sleep(0.01)

    run(scenario(), 60)


def test_forget_says_what_it_discards_before_it_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with running(tmp_path, "B1", accept=("B2",)) as one:
            await keep_for_b2(tmp_path, one)
            status, answer = await admin(one, "forget", "B2")
            assert status == 2 and f"{COUNT} acknowledged events kept for B2 will be discarded" in answer["error"]
            assert "--yes" in answer["error"]
            socket = ["--socket", str(one.admin.path)]
            for said in ("n\n", "", "maybe\n"):
                assert await asyncio.to_thread(asked, said, ["admin", "forget", "B2", *socket]) == 1
            assert one.driver.streams["B2"].on_disk.count == COUNT
            assert await asyncio.to_thread(asked, "y\n", ["admin", "forget", "B2", *socket]) == 0
            assert "B2" not in one.driver.broker.links and "B2" not in one.driver.streams
            for unknown in ("B2", "B7", "bob"):
                status, answer = await admin(one, "forget", unknown, "--yes")
                assert status == 2 and "no neighbour" in answer["error"]

    def asked(said: str, arguments: list[str]) -> int:
        terminal = StringIO(said)
        terminal.isatty = lambda: True  # type: ignore[method-assign]
        monkeypatch.setattr(sys, "stdin", terminal)
        return main(arguments)

    run(scenario(), 40)
    shown = capsys.readouterr()
    assert shown.err.count("Forget B2? [y/N]") == 4 and shown.err.count("B2 is not forgotten") == 3
    assert f"B2 is forgotten, and with it {COUNT} kept events" in shown.out


def test_events_that_come_while_forget_counts_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would discard more than was allowed."""

    async def scenario() -> None:
        async with running(tmp_path, "B1", accept=("B2",)) as one:
            await keep_for_b2(tmp_path, one)
            succeed = door._succeed
            async with publishing(one, "eve") as eve:
                tasks: list[asyncio.Task[None]] = []

                async def publish() -> None:
                    for _ in range(3):
                        await eve.publish({"price": 1.0, "number": 99})

                def come_late(done: asyncio.Future[int], count: int) -> None:
                    tasks.append(asyncio.get_running_loop().create_task(publish()))
                    tasks[-1].add_done_callback(lambda _: succeed(done, count))

                monkeypatch.setattr(door, "_succeed", come_late)
                status, answer = await admin(one, "forget", "B2")
            assert status == 2 and f"{COUNT + 3} acknowledged events kept for B2 will be discarded" in answer["error"]

    run(scenario(), 40)


def test_nobody_waits_for_a_neighbour_that_was_forgotten(tmp_path: Path) -> None:
    """Nothing settled any more while it was away, after restarts, either."""

    async def check_settles(node: Node) -> None:
        async with asyncio.timeout(5), await connect(url(node), "eve") as eve:
            await eve.subscribe("price < 5")
            await eve.advertise("TRUE")

    async def scenario() -> None:
        async with running(tmp_path, "B1", accept=("B2",)) as one:
            await keep_for_b2(tmp_path, one)
            assert (await admin(one, "forget", "B2", "--yes"))[0] == 0
            await check_settles(one)
        async with running(tmp_path, "B1", accept=()) as one:
            await check_settles(one)
            assert list(one.driver.broker.links) == ["ann", "eve"] or not one.driver.broker.links.get("B2")

    run(scenario(), 40)


def test_a_forgotten_broker_that_returns_joins_as_new_without_a_false_alarm(tmp_path: Path) -> None:
    """It knows more of this broker than this broker knows of it, and neither takes that for a restored past."""

    async def scenario() -> None:
        async with running(tmp_path, "B1", accept=("B2",)) as one:
            await keep_for_b2(tmp_path, one)
            async with running(tmp_path, "B2", neighbours=overlay_of(one)) as two:  # both have much of one another
                await wait_linked(two, "B1")
                assert sorted(await read_all(two, COUNT - 1)) == list(range(COUNT))
                async with publishing(two, "pub-b") as ann, await connect(url(one), "eve") as eve:
                    back = await eve.subscribe("TRUE", durable="back")
                    for number in range(COUNT):
                        await ann.publish({"price": 2.0, "number": number})
                    assert [(await back.next(5)).event["number"] for _ in range(COUNT)] == list(range(COUNT))
                    back.done()
                assert (await admin(one, "forget", "B2", "--yes"))[0] == 0
                await wait_linked(one, "B2")  # the settings name it: it comes at once
                async with publishing(one, "pub-c") as ann:
                    await ann.publish({"price": 3.0, "number": 77})
                assert 77 in await read_all(two, 77)
            assert (await admin(one, "forget", "B2", "--yes"))[0] == 0
        async with running(tmp_path, "B1", accept=()) as one:
            shutil.copy(tmp_path / "B2.thatch", tmp_path / "as it was")
            async with running(tmp_path, "B2", neighbours=overlay_of(one)) as two:
                async with asyncio.timeout(5):
                    while "unaccepted" not in two.driver.refused_by.by_code:
                        await asyncio.sleep(0.01)
                assert (await admin(one, "accept", "B2"))[0] == 0
                await wait_linked(one, "B2")
                await wait_linked(two, "B1")
                for node in (one, two):
                    assert node.driver.gaps == [] and node.driver.history.last_rollback is None
                async with publishing(one, "pub-d") as ann:
                    await ann.publish({"price": 3.0, "number": 78})
                assert 78 in await read_all(two, 78)

    run(scenario(), 60)
