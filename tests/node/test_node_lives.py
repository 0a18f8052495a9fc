"""Stores that are restored or copied more than once, or for long, over real sockets."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path

import pytest

from helpers.commits import Disk
from helpers.places import Place, copy_plainly, gaps, is_linked, linked, pair, publish, until
from helpers.raw_peers import RawPeer, dialling, playing, run, running, url
from thatch.client.client import connect
from thatch.delivery.admission import accept
from thatch.delivery.history import LIVES_SENT
from thatch.delivery.journal import NeighbourRow
from thatch.delivery.neighbour import RETURNED_MAX, parts_of
from thatch.node.config import Retention
from thatch.node.metrics import metrics
from thatch.node.store import Store


def test_a_restored_broker_does_not_silence_a_healthy_neighbour(tmp_path: Path) -> None:
    """The neighbour was started so often since the backup that it does not name the life that the backup knows."""
    first, second = pair(tmp_path)

    async def scenario() -> None:
        async with second.up() as b2, first.up() as b1:
            await linked(b1, "B2")
            copy = await second.back_up(b2)
        for _ in range(LIVES_SENT):
            Store(first.store, "B1").stop()
        for _ in range(2):
            async with second.up(), first.up() as b1:
                await linked(b1, "B2")
        await asyncio.to_thread(second.restore, copy)
        async with second.up(), first.up() as b1:
            await until(lambda: b1.is_over.is_set() or is_linked(b1, "B2"))
            assert not b1.is_over.is_set()

    run(scenario(), 40)


def test_of_two_copies_of_a_restored_file_one_is_admitted(tmp_path: Path) -> None:
    """The file was copied before a broker was started on it."""
    second = Place(tmp_path / "b2", "B2", accept=["B1"])
    one = Place(tmp_path / "one", "B1", neighbours={"B2": second.overlay})
    two = Place(tmp_path / "two", "B1", neighbours={"B2": second.overlay})

    async def scenario() -> None:
        async with second.up() as b2:
            async with one.up() as b1:
                await linked(b1, "B2")
                copy = await one.back_up(b1)
            await asyncio.to_thread(one.restore, copy)
            shutil.copy(one.store, two.store)
            async with one.up() as b1:
                await linked(b1, "B2")
            async with two.up() as b1:
                await until(lambda: "history" in b2.driver.refusals.by_code or is_linked(b1, "B2"))
                assert not is_linked(b1, "B2")
            async with one.up() as b1:
                await linked(b1, "B2")

    run(scenario(), 40)


def test_of_two_rollbacks_before_a_neighbour_comes_both_are_announced(tmp_path: Path) -> None:
    """The first one is announced at once: the backup that is restored then may be from before the neighbour comes."""
    first, second = pair(tmp_path)

    async def scenario() -> None:
        async with second.up(), first.up() as b1:
            await linked(b1, "B2")
            async with await connect(second.url, "bob") as bob:
                await bob.subscribe("TRUE", durable="all")
            await until(lambda: b1.driver.broker.links["B2"].is_durable)
        times = []
        for at in range(2):
            async with first.up() as b1:
                copy = (await first.back_up(b1)).rename(tmp_path / f"copy {at}")
                await publish(first, [at])  # acknowledged, and kept for B2
                times.append(time.time())
            await asyncio.to_thread(first.restore, copy)
        async with first.up() as b1, second.up() as b2:
            spans = sorted((gap.since, gap.until) for gap in b1.driver.gaps if gap.side == "out")
            assert [since < at < end for (since, end), at in zip(spans, times, strict=True)] == [True, True]
            await linked(b1, "B2")
            assert sorted((gap.since, gap.until) for gap in b1.driver.gaps if gap.side == "out") == spans
            (gap,) = (each for each in b2.driver.gaps if each.side == "in")
            assert gap.since <= times[0] and times[1] <= gap.until
            await until(lambda: b1.driver.neighbours["B2"].returned == b1.driver.history.present.id)
        async with first.up() as b1, second.up() as b2:
            await linked(b1, "B2")
            assert len(b2.driver.gaps) == 2 and len(b1.driver.gaps) == 4, "it is found once"

    run(scenario(), 40)


def test_a_client_that_asks_again_long_after_a_restore_hears_what_may_be_missing(tmp_path: Path) -> None:
    """Later than returned interest is kept for it; and each restore is counted once, however many it concerns."""
    place = Place(tmp_path / "b1", "B1", retention=Retention(returned_seconds=0.1))

    async def scenario() -> None:
        async with place.up() as node:
            copy = await place.back_up(node)
            async with await connect(place.url, "ann") as ann:
                await ann.subscribe("TRUE", durable="all")
        place.restore(copy)
        async with place.up() as node:
            await publish(place, range(2))
            published = time.time()
            await asyncio.sleep(0.2)
            for name in ("ann", "bob"):
                async with await connect(place.url, name) as client:
                    kept = await client.subscribe("TRUE", durable="all")
                    await client.replace(kept, "price < 5")
            assert gaps(node) == {("ann@all", "out", None), ("bob@all", "out", None)}
            assert len(node.driver.gaps) == 2, "what they want later is known"
            assert all(gap.since < published < gap.until for gap in node.driver.gaps)
            assert "thatch_rollbacks_total 1" in metrics(node).splitlines()

    run(scenario())


def test_a_rollback_that_only_a_neighbour_notices_is_announced_for_durable_subscriptions_here(tmp_path: Path) -> None:
    first, second = pair(tmp_path)

    async def scenario() -> None:
        async with second.up() as b2:
            async with first.up() as b1:
                await linked(b1, "B2")
                async with await connect(first.url, "bob") as bob:
                    await bob.subscribe("TRUE", durable="all")
                copy_plainly(first.store, tmp_path / "plain")
            async with first.up() as b1:
                await linked(b1, "B2")
            for each in first.folder.glob("B1.thatch*"):  # also the file beside the store
                each.unlink()
            shutil.copy(tmp_path / "plain", first.store)
            async with first.up() as b1:
                await until(lambda: b1.is_over.is_set())
            accept(b2.driver, b2.doors, "B1")
            async with first.up() as b1:
                await linked(b1, "B2")
                assert ("bob@all", "out", None) in gaps(b1)

    run(scenario(), 40)


def test_returned_interest_in_what_the_space_had_only_later_keeps_everything(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = Place(tmp_path / "b1", "B1")

    async def scenario() -> None:
        async with place.up() as node:
            copy = await place.back_up(node)
        place.restore(copy)
        async with place.up() as node:
            node.queues.take_returned({"B1/ann@all/all": "weight > 5"})
            assert [(each.where, each.returned) for each in node.queues] == [("TRUE", ["TRUE"])]
            assert "ann@all was returned and cannot be read" in caplog.text

    run(scenario())


def test_returned_interest_goes_in_messages_of_bounded_size() -> None:
    large = {f"B1/ann@{at}/{at}": "x" * 300_000 for at in range(7)}
    parts = [*parts_of(large)]
    assert [len(each) for each in parts] == [3, 3, 1] and dict(each for part in parts for each in part.items()) == large
    assert [len(each) for each in parts_of({str(at): "TRUE" for at in range(2 * RETURNED_MAX + 1)})] == [1000, 1000, 1]
    assert [len(each) for each in parts_of({"a": "x" * 2**22, "b": "x"})] == [1, 1] and not [*parts_of({})]


def test_only_a_neighbour_that_was_met_ends_a_broker_as_an_old_copy(tmp_path: Path) -> None:
    """Not whatever answers at the address where a neighbour is dialled."""
    refusal = ["Refused", 0, "", "no", "", "history"]

    async def refuse(peer: RawPeer) -> None:
        await peer.say(refusal)
        await peer.closed()

    async def is_over(address: str) -> bool:
        async with Place(tmp_path / "b1", "B1", neighbours={"B9": address}).up() as node:
            await until(lambda: "history" in node.driver.refused_by.by_code)
            node.driver.put_neighbour(NeighbourRow("B9", "known", store="store of B9"))
            return node.is_over.is_set()

    async def scenario() -> None:
        async with playing(refuse) as address:
            assert not await is_over(address), "it was never met"
            assert not await is_over(address), "it does not say what only B9 would know"
            refusal[2] = "store of B9"
            assert await is_over(address)

    run(scenario())


def test_who_is_refused_for_its_life_acknowledges_nothing_more(tmp_path: Path) -> None:
    """What was being written when it was refused is on disk before the broker has ended."""
    disk = Disk()

    async def scenario() -> None:
        async with running(tmp_path, before_commit=disk.before_commit) as node, dialling(node, "overlay") as peer:
            await peer.greet("B9", is_client=False)
            await peer.read("Resume")
            async with dialling(node) as ann, await connect(url(node), "bob") as bob:
                await bob.subscribe("TRUE", durable="all", settled=False)
                await ann.greet("ann", ["Advertise", ann.seq(), "a", "TRUE"], ["Synced", ann.seq(), 1, {}, {}])
                await ann.read("Accepted")
                disk.hold()
                await ann.say(["Publish", "ann:1", {"price": 1.0}])
                await asyncio.to_thread(disk.waiting.wait, 5)
                await peer.say(["Refused", 0, "", "no", "", "history"])
                await until(node.is_over.is_set)
                committed = node.store.commits
                disk.release()
                await until(lambda: node.store.commits > committed)
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(ann.read("Published"), 0.3)

    run(scenario())


def test_of_a_store_and_its_copy_with_two_neighbours_one_goes_on_whichever_is_restarted(tmp_path: Path) -> None:
    neighbours = [Place(tmp_path / name, name, accept=["B1"]) for name in ("B2", "B3")]
    dials = {each.name: each.overlay for each in neighbours}
    original, copy = (Place(tmp_path / name, "B1", neighbours=dials) for name in ("original", "copy"))

    async def ends(place: Place) -> bool:
        """Whether it is refused, and not linked to both neighbours."""
        async with place.up() as node:
            await until(lambda: node.is_over.is_set() or all(is_linked(node, each) for each in dials))
            return node.is_over.is_set()

    async def scenario() -> None:
        async with neighbours[0].up() as b2, neighbours[1].up() as b3:
            assert not await ends(original)
            for each in original.folder.glob("B1.thatch*"):
                shutil.copy(each, copy.folder)
            assert not await ends(copy)
            for _ in range(2):
                assert await ends(original) and not await ends(copy)
            assert b2.driver.neighbours["B1"].life == b3.driver.neighbours["B1"].life

    run(scenario(), 40)


def test_a_greeting_that_is_replayed_is_refused(tmp_path: Path) -> None:
    """It would say again what the neighbour wanted then, and whether that was durable."""
    resume = ["Resume", "store of B9", "", 0, {1: "a life"}]

    async def scenario() -> None:
        async with running(tmp_path) as node:
            for session, answer in ((7, "Digest"), (7, "Refused"), (6, "Refused"), (8, "Digest")):
                async with dialling(node, "overlay") as peer:
                    await peer.greet("B9", resume, is_client=False, session=session)
                    await peer.read(answer)
            async with dialling(node, "overlay") as peer:  # it was started again, and its clock has gone back
                await peer.greet("B9", [*resume[:4], {1: "a life", 2: "another"}], is_client=False, session=3)
                await peer.read("Digest")

    run(scenario())
