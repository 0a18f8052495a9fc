"""Nodes whose stores go back to the past, are copied or are replaced, over real sockets: what is acknowledged later
arrives, and what was acknowledged before and may be missing is announced."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import time
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from helpers.node_process import SPACE, BrokerProcess, chain, is_soak, wait_agree
from helpers.places import (
    SECONDS,
    Place,
    copy_plainly,
    cut_until,
    gaps,
    is_linked,
    linked,
    pair,
    publish,
    read,
    until,
)
from helpers.raw_peers import dialling, run
from thatch.cli.main import main
from thatch.client.client import connect
from thatch.delivery.admission import accept
from thatch.errors import OldCopyError, PeerError, Unavailable
from thatch.node.config import Timing
from thatch.node.schema import PUT_NEIGHBOUR, summed
from thatch.node.server import Node
from thatch.node.store import Store
from thatch.protocol.ids import SUBSCRIPTIONS
from thatch.protocol.records import LinkRecord


def test_events_kept_under_a_reused_ordinal_before_the_first_contact_arrive(tmp_path: Path) -> None:
    first, second = pair(tmp_path)

    async def scenario() -> None:
        async with second.up() as b2:
            async with first.up() as b1:
                await linked(b1, "B2")
                async with await connect(second.url, "bob") as bob:
                    await bob.subscribe("TRUE", durable="all")
                copy = await first.back_up(b1)
                await publish(first, range(5))
            for number in (10, 20):  # two lives that the copy does not know
                async with first.up() as b1:
                    await linked(b1, "B2")
                    await publish(first, range(number, number + 6))
            async with await connect(second.url, "bob") as bob:
                await read(bob, [*range(5), *range(10, 16), *range(20, 26)])
            assert b2.driver.history.last_rollback is None
        first.restore(copy)
        async with first.up() as b1:
            await publish(first, range(100, 200))
            async with second.up() as b2:
                await linked(b1, "B2")
                async with await connect(second.url, "bob") as bob:
                    assert set(range(100, 200)) <= set(await read(bob, range(100, 200)))
                await until(lambda: b1.driver.streams["B2"].on_disk.count == 0)
                assert {("B1", "in", None), ("B1", "out", 0)} <= gaps(b2)
                assert {("B2", "in", 0), ("B2", "out", None)} <= gaps(b1)

    run(scenario(), 40)


def test_an_acknowledgement_of_a_life_that_was_lost_drops_nothing(tmp_path: Path) -> None:
    place = Place(tmp_path / "b1", "B1")

    async def kept(node: Node, wanted: int) -> list[Any]:
        """As a client that lived through the restore: it keeps what it has got, and acknowledges it later."""
        async with dialling(node) as ann:
            await ann.greet("ann", ["Keep", "all", "TRUE", 10**6, 60.0])
            life = (await ann.read("Hello"))[11]["life"]
            events = [await ann.read("Kept") for _ in range(wanted)]
            return [events[-1][2] if events else 0, life]

    async def scenario() -> None:
        async with place.up() as node:
            await kept(node, 0)
            copy = await place.back_up(node)
        async with place.up() as node:
            await publish(place, range(20))
            number, life = await kept(node, 20)
        place.restore(copy)
        async with place.up() as node:
            await publish(place, range(100, 130))
            async with dialling(node) as ann:
                await ann.greet("ann", ["Keep", "all", "TRUE", 10**6, 60.0], ["Done", "all", number, life])
                await ann.read("Standing")
                (queue,) = node.queues
                await asyncio.sleep(0.1)
                assert queue.stream.on_disk.count == 30
            async with await connect(place.url, "ann") as client:
                assert await read(client, range(100, 130)) == list(range(100, 130))
            await until(lambda: queue.stream.on_disk.count <= 1)

    run(scenario())


@pytest.mark.parametrize("is_marked", [True, False], ids=["a marked copy", "the file beside the store"])
def test_a_rollback_that_no_neighbour_remembers_is_noticed(
    is_marked: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The copy is put in its place by hand."""
    place = Place(tmp_path / "b1", "B1")

    async def scenario() -> None:
        async with place.up() as node:
            async with await connect(place.url, "bob") as bob:
                await bob.subscribe("TRUE", durable="all")
            copy = await place.back_up(node) if is_marked else tmp_path / "plain"
            if not is_marked:
                copy_plainly(node.store.path, copy)
            backed_up = time.time()
            await publish(place, range(5))
        if not is_marked:
            await place.restart()
        shutil.copy(copy, place.store)
        async with place.up() as node:
            assert gaps(node) == {("bob@all", "out", None)}
            (gap,) = node.driver.gaps
            assert gap.since <= backed_up <= gap.until and "may be missing" in caplog.text
        async with place.up() as node:
            assert len(node.driver.gaps) == 1, "it is said once"

    run(scenario())


def test_of_two_live_copies_one_is_refused_and_stops_acknowledging(tmp_path: Path) -> None:
    second = Place(tmp_path / "b2", "B2", accept=["B1"])
    patient = Timing(retry_seconds_max=2.0)
    original = Place(tmp_path / "b1", "B1", neighbours={"B2": second.overlay}, timing=patient)
    other = Place(tmp_path / "other", "B1", neighbours={"B2": second.overlay})

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            b2 = await stack.enter_async_context(second.up())
            async with original.up() as first:
                await linked(first, "B2")
                with (
                    closing(sqlite3.connect(first.store.path)) as source,
                    closing(sqlite3.connect(other.store)) as target,
                ):
                    source.backup(target)
                await stack.aclose()
                await until(lambda: not first.driver.broker.links["B2"].is_up)
                b2 = await stack.enter_async_context(second.up())
                successor = await stack.enter_async_context(other.up())
                await cut_until(b2, first, lambda: is_linked(successor, "B2"))
                await asyncio.wait_for(first.is_over.wait(), SECONDS)
                assert isinstance(first.failure, OldCopyError) and "thatch admin accept B1" in str(first.failure)
                with pytest.raises((Unavailable, PeerError)):
                    async with await connect(original.url, "pub", timeout_seconds=0.5) as pub:
                        await pub.publish({"price": 1.0, "number": 1}, timeout_seconds=0.5)
            async with original.up() as first:  # started again, it does not take the place of the other
                await asyncio.wait_for(first.is_over.wait(), SECONDS)
                assert b2.driver.broker.links["B1"].is_synced and not successor.is_over.is_set()

    run(scenario(), 40)


def test_an_empty_store_under_a_known_name_is_refused_and_swallows_nothing(tmp_path: Path) -> None:
    first, second = pair(tmp_path)

    async def scenario() -> None:
        async with second.up() as b2:
            async with first.up() as b1:
                await linked(b1, "B2")
                async with await connect(first.url, "bob") as bob:
                    await bob.subscribe("TRUE", durable="all")
            await publish(second, range(10))
            stream = b2.driver.streams["B1"]
            await until(lambda: stream.on_disk.count == 10)
            lost = first.store.rename(first.store.with_name("lost"))
            for each in first.folder.glob("B1.thatch*"):
                each.unlink()
            async with first.up() as b1:
                await until(lambda: "store" in b1.driver.refused_by.by_code)
                assert stream.on_disk.count == 10 and "B2" not in b1.driver.broker.links
            assert lost.exists()

    run(scenario())


def test_thirty_restarts_without_contact_are_no_rollback(tmp_path: Path) -> None:
    first, second = pair(tmp_path)

    async def scenario() -> None:
        async with second.up() as b2, first.up() as b1:
            await linked(b1, "B2")
            await publish(first, range(3))
        for _ in range(100):
            Store(first.store, "B1").stop()
        async with second.up() as b2, first.up() as b1:
            await linked(b1, "B2")
            assert gaps(b1) == gaps(b2) == set() and b1.driver.history.last_rollback is None

    run(scenario())


def test_a_neighbour_that_was_forgotten_and_comes_again_is_no_rollback(tmp_path: Path) -> None:
    """The forgetful side holds less than it has confirmed, and knows nothing of the other."""
    first, second = pair(tmp_path)

    async def scenario() -> None:
        async with second.up() as b2, first.up() as b1:
            await linked(b1, "B2")
            async with await connect(second.url, "bob") as bob:
                await bob.subscribe("TRUE", durable="all")
            await publish(first, range(10))
            await until(lambda: bool(b1.driver.confirmations("B2").numbers))
        with closing(sqlite3.connect(second.store)) as store:  # as forgetting leaves it
            store.execute("DELETE FROM received")
            store.execute("DELETE FROM confirmed")
            row = "B1", "forgotten", "", "", "", "", ""
            store.execute(PUT_NEIGHBOUR, (*row, summed(*row)))
            store.commit()
        for _ in range(2):
            async with second.up() as b2, first.up() as b1:
                await linked(b1, "B2")
                assert gaps(b1) == gaps(b2) == set() and b2.driver.neighbours["B1"].state == "known"

    run(scenario())


def test_interest_that_a_restored_broker_no_longer_names_is_returned(tmp_path: Path) -> None:
    first, second = pair(tmp_path)

    async def scenario() -> None:
        async with second.up() as b2:
            async with first.up() as b1:
                await linked(b1, "B2")
                copy = await first.back_up(b1)
                async with await connect(first.url, "ann") as ann:
                    await ann.subscribe("TRUE", durable="all")
                received = b2.driver.broker.received_from
                await until(lambda: received(SUBSCRIPTIONS, "B1") == {"B1/ann@all/all": "TRUE"})
            await publish(second, range(5))  # kept for B1
            await asyncio.to_thread(first.restore, copy)
            async with first.up() as b1:
                await linked(b1, "B2")
                await publish(second, range(5, 10))
                queues = list(b1.queues)
                assert [each.name for each in queues] == ["ann@all"] and queues[0].row.expires
                until_returned = next(gap.until for gap in b1.driver.gaps if gap.peer.name == "ann@all")
                async with await connect(first.url, "ann") as ann:
                    assert await read(ann, range(10)) == list(range(10))
                assert [each.row.expires for each in b1.queues] == [None], "its client has asked again"
                assert until_returned < time.time() and b1.driver.neighbours["B2"].returned
            async with first.up() as b1:
                assert b1.driver.history.last_rollback is not None
                await linked(b1, "B2")
                assert len(list(b1.queues)) == 1

    run(scenario())


@pytest.mark.parametrize("restarts", [0, 1])
def test_returned_interest_does_not_replace_what_a_client_has_asked_for_since(tmp_path: Path, restarts: int) -> None:
    first, second = pair(tmp_path)

    async def ask(where: str) -> None:
        async with await connect(first.url, "ann") as ann:
            await ann.subscribe(where, durable="all", settled=False)

    async def scenario() -> None:
        async with second.up() as b2, first.up() as b1:
            await linked(b1, "B2")
            copy = await first.back_up(b1)
            await ask("price < 5")
            received = b2.driver.broker.received_from
            await until(lambda: received(SUBSCRIPTIONS, "B1") == {"B1/ann@all/all": "price < 5"})
        await asyncio.to_thread(first.restore, copy)
        async with first.up():
            await ask("price < 7")
        await first.restart(restarts)
        async with first.up() as b1, second.up():
            if not restarts:
                await ask("price < 8")
            await until(lambda: bool(b1.driver.neighbours["B2"].returned))
            assert [each.where for each in b1.queues] == ["price < 7" if restarts else "price < 8"]

    run(scenario())


def test_returned_interest_does_not_revive_what_a_client_has_ended_since(tmp_path: Path) -> None:
    """It heard that the subscription is gone, or that there is none; nobody would ever read what is kept for it."""
    first, second = pair(tmp_path)

    async def scenario() -> None:
        async with second.up() as b2, first.up() as b1:
            await linked(b1, "B2")
            async with await connect(first.url, "ann") as ann:
                await ann.subscribe("price < 5", durable="old")
                copy = await first.back_up(b1)
                await ann.subscribe("price < 6", durable="new")
            received = b2.driver.broker.received_from
            await until(lambda: len(received(SUBSCRIPTIONS, "B1")) == 2)
        await asyncio.to_thread(first.restore, copy)
        async with first.up() as b1:
            async with dialling(b1) as ann_raw:
                await ann_raw.greet("ann", ["Synced", ann_raw.seq(), 1, {0: {}}, {0: {}}])
                await ann_raw.say(["Unkeep", "old"], ["Unkeep", "new"])
                assert [(await ann_raw.read("Standing"))[3] for _ in range(2)] == ["gone", "refused"]
            async with second.up():
                await until(lambda: "B2" in b1.driver.neighbours and bool(b1.driver.neighbours["B2"].returned))
                assert not list(b1.queues)

    run(scenario())


def test_returned_interest_is_added_to_what_the_backup_says(tmp_path: Path) -> None:
    """Which of both a client asked for last nobody knows: the neighbour may have been away."""
    first, second = pair(tmp_path)

    async def scenario() -> None:
        async with second.up() as b2, first.up() as b1:
            await linked(b1, "B2")
            async with await connect(first.url, "ann") as ann:
                kept = await ann.subscribe("price < 5", durable="all")
                copy = await first.back_up(b1)
                await ann.replace(kept, "price > 7")
            received = b2.driver.broker.received_from
            await until(lambda: received(SUBSCRIPTIONS, "B1") == {"B1/ann@all/all": "price > 7"})
        await asyncio.to_thread(first.restore, copy)
        async with first.up() as b1, second.up():
            await until(lambda: "B2" in b1.driver.neighbours and bool(b1.driver.neighbours["B2"].returned))
            assert [each.where for each in b1.queues] == ["(price < 5) OR (price > 7)"]

    run(scenario())


def test_a_backup_does_not_overwrite_the_store_of_another_broker(tmp_path: Path) -> None:
    """It would go on writing into a file that no name leads to."""
    one, two = Place(tmp_path / "b1", "B1"), Place(tmp_path / "b2", "B2")

    async def scenario() -> None:
        async with one.up() as node, two.up():
            socket = str(node.store.path.with_name(f"{node.store.path.name}.sock"))
            command = ["admin", "backup", str(two.store), "--overwrite", "--socket", socket]
            assert await asyncio.to_thread(main, command) != 0
            copy = await one.back_up(node)
            assert await asyncio.to_thread(main, [*command[:2], str(copy), *command[3:]]) == 0
            async with await connect(two.url, "ann") as ann:
                await ann.subscribe("TRUE", durable="all")
        async with two.up() as node:
            assert [each.name for each in node.queues] == ["ann@all"]

    run(scenario())


def test_only_durable_subscriptions_of_clients_are_returned(tmp_path: Path) -> None:
    """A reader of server-sent events lives in the node, too, and nothing is kept for it."""
    place = Place(tmp_path / "b1", "B1")

    async def scenario() -> None:
        async with place.up() as node:
            copy = await place.back_up(node)
        place.restore(copy)
        async with place.up() as node:
            for id in ("B1/@reader1/s", "B1/ann/s", "B2/bob@all/all", "B1", "B1/", "", "~B2~B1/ann@/s"):
                node.queues.take_returned({id: "TRUE"})
            assert not list(node.queues)

    run(scenario())


def test_for_a_subscription_that_nobody_names_the_interval_ends_when_its_client_asks_again(tmp_path: Path) -> None:
    place = Place(tmp_path / "b1", "B1")

    async def scenario() -> None:
        async with place.up() as node:
            copy = await place.back_up(node)
            async with await connect(place.url, "ann") as ann:
                await ann.subscribe("TRUE", durable="all")
                await publish(place, range(5))
        place.restore(copy)
        async with place.up() as node:
            assert gaps(node) == set()
            await publish(place, range(5, 10))
            asked = time.time()
            async with await connect(place.url, "ann") as ann:
                await ann.subscribe("TRUE", durable="all")
            (gap,) = node.driver.gaps
            assert (gap.peer.name, gap.side) == ("ann@all", "out") and gap.since < asked <= gap.until

    run(scenario())


def test_the_copy_that_a_migration_keeps_is_a_restored_past(tmp_path: Path) -> None:
    formats = Path(__file__).parent.parent / "data" / "formats"
    path = Path(shutil.copy(formats / "store-2.thatch", tmp_path / "s"))
    Store(path, "B1").stop()
    again = Store(path, "B1")
    assert all(life.since is None for life in again.lives())
    again.stop()
    shutil.copy(tmp_path / "s.version-2", path)
    back = Store(path, "B1")
    life = back.lives()[-1]
    assert life.cause == "rollback" and life.since is not None
    back.stop()


def test_strangers_in_a_store_of_version_2_do_not_come_along(tmp_path: Path) -> None:
    formats = Path(__file__).parent.parent / "data" / "formats"
    path = Path(shutil.copy(formats / "store-2.thatch", tmp_path / "s"))
    with closing(sqlite3.connect(path)) as connection:
        for place, name in ((100, "stranger"), (101, "silent")):
            row = place, 2, name, 1
            connection.execute("INSERT INTO links VALUES (?, ?, ?, ?, ?)", (*row, summed(*row)))
        silent = 2, "silent", "a store", 0
        connection.execute("INSERT INTO received VALUES (?, ?, ?, ?, ?)", (*silent, summed(*silent)))
        connection.commit()
    store = Store(path, "B1")
    links = {record.peer.name for record in store.records() if isinstance(record, LinkRecord)}
    assert links == {"ann", "ann@alerts", "B2", "B3"}
    assert [(row.name, row.state) for row in store.neighbours()] == [("B2", "accepted"), ("B3", "accepted")]
    store.stop()


@pytest.mark.soak("0")
@pytest.mark.parametrize("kept", [0, 10])
def test_a_rollback_is_announced_once_with_the_number_of_events_that_are_missing(kept: int, tmp_path: Path) -> None:
    first, second = pair(tmp_path)

    async def scenario() -> None:
        async with second.up() as b2:
            async with first.up() as b1:
                await linked(b1, "B2")
                async with await connect(first.url, "bob") as bob:
                    await bob.subscribe("TRUE", durable="all")
                    await until(lambda: b2.driver.broker.links["B1"].is_durable)
                    copy = await first.back_up(b1)
                    await publish(second, range(30))
                await until(lambda: b2.driver.streams["B1"].on_disk.count == 0)
            await publish(second, range(30, 30 + kept))  # while B1 is away
            await asyncio.to_thread(first.restore, copy)
            for _ in range(3):
                async with first.up() as b1:
                    await linked(b1, "B2")
                    assert {("B2", "in", 30), ("B2", "out", None), ("bob@all", "out", None)} == gaps(b1)
                    assert {("B1", "out", 30), ("B1", "in", None)} == gaps(b2)
                    assert len(b1.driver.gaps) == 3 and len(b2.driver.gaps) == 2, "it is found once"
                    await until(lambda: b2.driver.streams["B1"].on_disk.count == 0)
            async with first.up(), await connect(first.url, "bob") as bob:
                assert await read(bob, range(30, 30 + kept)) == list(range(30, 30 + kept))

    run(scenario())


def test_what_is_taken_and_not_on_disk_is_not_confirmed(tmp_path: Path) -> None:
    """A plain event: after a crash the neighbour holds less than it said, and that is no restored past."""
    first, second = pair(tmp_path)

    async def scenario() -> None:
        async with second.up() as b2, first.up() as b1:
            await linked(b1, "B2")
            stream = b1.driver.stream("B2")
            async with await connect(second.url, "bob") as bob:
                plain = await bob.subscribe("TRUE")
                await publish(first, range(3))
                await until(lambda: stream.counted > b1.driver.history.first_number + 2 and not stream.waiting_bytes)
                assert b1.driver.confirmations("B2").numbers == {} != b2.driver.arrivals("B1").taken
                plain.done()
                await bob.subscribe("TRUE", durable="all")
                await publish(first, range(3))
                await until(lambda: bool(b1.driver.confirmations("B2").numbers))

    run(scenario())


def test_the_numbers_of_a_cancelled_subscription_are_not_given_again(tmp_path: Path) -> None:
    """A late acknowledgement of the one before would drop events of the one that has its name now."""
    place = Place(tmp_path / "b1", "B1")

    async def scenario() -> None:
        async with place.up() as node, await connect(place.url, "bob") as bob:
            kept = await bob.subscribe("TRUE", durable="all")
            await publish(place, range(3))
            (queue,) = node.queues
            last = queue.stream.counted
            await bob.unsubscribe(kept)
            await bob.subscribe("TRUE", durable="all")
            (again,) = node.queues
            assert again is not queue and again.stream.counted == last > node.driver.history.first_number

    run(scenario())


def test_kills_under_plain_load_are_no_rollback(tmp_path: Path) -> None:
    """Plain events are acknowledged without being on disk: after kill -9 less is held than was said."""
    brokers = chain(tmp_path, ("B1", "B2"), 'routing = "subscriptions"')
    first, second = brokers

    async def load() -> None:
        async with await connect(second.url, "bob") as bob, await connect(first.url, "pub") as pub:
            await bob.subscribe("TRUE")
            for _ in range(10 if is_soak() else 1):
                for victim in brokers if is_soak() else brokers[1:]:
                    futures = [await pub.post({"price": 1.0, "number": each}) for each in range(300)]
                    await asyncio.wait(futures[:200])
                    victim.kill()
                    victim.spawn()
                    await asyncio.to_thread(victim.wait_ready)
                    await asyncio.wait(futures)
                    await asyncio.to_thread(wait_agree, brokers, SECONDS)

    try:
        asyncio.run(asyncio.wait_for(load(), 200))
        for broker in brokers:
            assert broker.get("/healthz")["gaps"] == [] and broker.metric("rollbacks_total") == 0
    finally:
        for broker in brokers:
            broker.kill()


def test_a_broker_that_is_refused_for_its_past_ends_with_a_status_of_its_own(tmp_path: Path) -> None:
    second = Place(tmp_path / "b2", "B2", accept=["B1"], space=SPACE)
    first = Place(tmp_path, "B1", neighbours={"B2": second.overlay}, space=SPACE)
    process = BrokerProcess("B1", tmp_path, {"B2": second.overlay}, 'routing = "subscriptions"')

    async def scenario() -> None:
        async with second.up() as b2:
            async with first.up() as b1:
                await linked(b1, "B2")
                copy_plainly(first.store, tmp_path / "copy")
            async with first.up() as b1:
                await linked(b1, "B2")
            for each in tmp_path.glob("B1.thatch*"):  # also the file beside the store
                each.unlink()
            shutil.copy(tmp_path / "copy", first.store)
            process.spawn()
            assert process.process is not None
            assert await asyncio.to_thread(process.process.wait, 2 * SECONDS) == 4
            assert "run `thatch admin accept B1` at 'B2'" in process.log.read_text()
            accept(b2.driver, b2.doors, "B1")
            async with first.up() as b1:
                await linked(b1, "B2")

    try:
        run(scenario(), 60)
    finally:
        process.kill()
