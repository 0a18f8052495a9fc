"""Clients at brokers that say what nobody expects, lose connections or keep silent: no call waits for ever."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from helpers.raw_peers import SESSION, SPACE_JSON, RawPeer, playing, run, running, url, welcome
from thatch import CallerError, PeerError, TimedOut, Unavailable
from thatch.client.blocking import connect_blocking
from thatch.client.client import AsyncClient, connect
from thatch.node.config import Listen

EVENT = {"price": 1.0}
UNEXPECTED: dict[str, list[Any]] = {
    "Published beyond what was sent": ["Published", 2],
    "Notice of an unknown id": ["Notice", "nobody", 3, "lost"],
    "Subscribe": ["Subscribe", 7 << 32 | 2, "s", "TRUE"],
    "DurableEvent of a wrong shape": ["Kept", 1],
}


async def quiet(peer: RawPeer) -> None:
    """Whatever the client says is read, and not answered."""
    async for _ in peer.socket:
        pass


async def welcome_and_be_quiet(peer: RawPeer) -> None:
    await welcome(peer)
    await quiet(peer)


def saying(message: list[Any]) -> Any:
    async def play(peer: RawPeer) -> None:
        """The message comes when the client has published."""
        await welcome(peer)
        seq = (await peer.read("Subscribe"))[1]
        await peer.say(["Accepted", seq], ["Settled", seq])
        await peer.read("Publish")
        await peer.say(message)
        await quiet(peer)

    return play


async def error_of(work: Coroutine[Any, Any, Any]) -> BaseException:
    with pytest.raises(PeerError) as caught:
        async with asyncio.timeout(5):
            await work
    return caught.value


# --- What nobody expects ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("message", UNEXPECTED.values(), ids=UNEXPECTED)
def test_an_unexpected_message_ends_the_client_with_the_reason(message: list[Any]) -> None:
    async def scenario() -> None:
        async with playing(saying(message)) as address, await connect(address, "ann") as ann:
            wanted = await ann.subscribe("TRUE", id="s")
            waiting = [error_of(ann.publish(EVENT)), error_of(anext(wanted)), error_of(ann.advertise("TRUE"))]
            reasons = {str(each) for each in await asyncio.gather(*waiting)}
            later = [ann.publish(EVENT), ann.subscribe("TRUE"), ann.unsubscribe(wanted), wanted.next()]
            reasons |= {str(await error_of(each)) for each in later}
            (reason,) = reasons
            assert "not a frame" in reason or reason.startswith(f"the broker at {address} ")
            assert ann.failure is not None and ann.connections == 1

    run(scenario())


def test_an_unexpected_message_ends_the_blocking_client_with_the_reason() -> None:
    address: list[str] = []
    is_up, is_over = threading.Event(), threading.Event()

    async def serve() -> None:
        async with playing(saying(["Published", 2])) as found:
            address.append(found)
            is_up.set()
            await asyncio.to_thread(is_over.wait, 20)

    server = threading.Thread(target=run, args=(serve(),))
    server.start()
    assert is_up.wait(10)
    try:
        with connect_blocking(address[0], "ann") as ann:
            wanted = ann.subscribe("TRUE", id="s")
            for call in (lambda: ann.publish(EVENT), lambda: next(iter(wanted)), lambda: ann.advertise("TRUE")):
                with pytest.raises(PeerError, match="counts 2 events of this connection as published, after 0; 1 were"):
                    call()
    finally:
        is_over.set()
        server.join()


def test_publishers_that_wait_for_room_hear_that_the_client_has_ended() -> None:
    async def play(peer: RawPeer) -> None:
        await welcome(peer)
        for _ in range(20):
            await peer.read("Publish")
        await peer.say(["Notice", "nobody", 1, "lost"])
        await quiet(peer)

    async def scenario() -> None:
        async with playing(play) as address, await connect(address, "ann") as ann:

            async def publish() -> None:
                for _ in range(40):
                    await ann.post(EVENT, b"x" * 200_000)

            assert "a notice about durable subscription 'nobody'" in str(await error_of(publish()))

    run(scenario())


# --- Time limits -----------------------------------------------------------------------------------------------------


def test_every_wait_has_a_limit_and_the_error_says_for_what() -> None:
    async def scenario() -> None:
        async with playing(welcome_and_be_quiet) as address, await connect(address, "ann") as ann:
            plain = ann.subscribe("TRUE", settled=False, timeout_seconds=0.01)
            for work, awaited in (
                (plain, "subscription '[^']+' to be accepted"),
                (ann.subscribe("TRUE", id="s", timeout_seconds=0.01), "subscription 's' to settle"),
                (ann.subscribe("TRUE", durable="d", timeout_seconds=0.01), "durable subscription 'd' to settle"),
                (ann.advertise("TRUE", id="a", timeout_seconds=0.01), "advertisement 'a' to settle"),
                (ann.publish(EVENT, timeout_seconds=0.01), "the broker at .* to acknowledge an event"),
            ):
                with pytest.raises(TimedOut, match=f"waited 0.01 seconds for {awaited}"):
                    await work
            while not ann._events.is_full:
                await ann.post(EVENT, b"x" * 500_000)
            with pytest.raises(TimedOut, match="to acknowledge events published before"):
                await ann.post(EVENT, timeout_seconds=0.01)
            with pytest.raises(TimeoutError):
                await ann.publish(EVENT, timeout_seconds=0.01)
            await ann.close(timeout_seconds=0.01)

    run(scenario())


def test_the_error_says_which_answer_has_not_come() -> None:
    connections = 0

    async def play(peer: RawPeer) -> None:
        nonlocal connections
        connections += 1
        if connections == 1:
            await welcome(peer)
            await peer.say(["Accepted", (await peer.read("Advertise"))[1]])
            await peer.read("Unsubscribe")

    async def scenario() -> None:
        async with playing(play) as address, await connect(address, "ann") as ann:
            for work, reason in (
                (ann.advertise("TRUE", timeout_seconds=0.1), "the broker has accepted it, and waits for other brokers"),
                (ann.flush(timeout_seconds=0.01), "events that are on their way to .*: not all brokers have answered"),
                (ann.subscribe("TRUE", timeout_seconds=0.1), "the broker at ws://.* has not answered"),
            ):
                with pytest.raises(TimedOut, match=reason):
                    await work
            while ann.is_connected:
                await asyncio.sleep(0.01)
            with pytest.raises(TimedOut, match="there is no connection to ws://"):
                await ann.subscribe("TRUE", timeout_seconds=0.01)
            await ann.close(timeout_seconds=0.01)

    run(scenario())


def test_a_flush_that_meets_a_lost_connection_is_said_again_and_answered() -> None:
    said = list[str]()

    async def play(peer: RawPeer) -> None:
        await peer.read("Hello")
        await peer.say(["Hello", "B1", SESSION, SPACE_JSON, False, 2, [], False, "", 5])
        await peer.say(["Digest", peer.seq(), 1, [0], [0], b"k" * 16, [0], [0]])
        seq = (await peer.read("Synced"))[1]
        await peer.say(["Accepted", seq], ["Settled", seq])
        seq = (await peer.read("Flush"))[1]
        said.append("Flush")
        await peer.say(["Settled", seq])
        if len(said) > 1:
            await peer.say(["F", seq])
            await quiet(peer)

    async def scenario() -> None:
        async with playing(play) as address, await connect(address, "ann") as ann:
            await asyncio.gather(ann.flush(), ann.flush())
            assert said == ["Flush", "Flush"] and ann.connections == 2

    run(scenario())


def test_the_future_of_a_posted_event_has_a_limit_of_its_own() -> None:
    """Whichever was posted first. An event whose future has given up is sent and counted all the same."""

    async def play(peer: RawPeer) -> None:
        await welcome(peer)
        for _ in range(4):
            await peer.read("Publish")
        await answer.wait()
        await peer.say(["Published", 4])
        await quiet(peer)

    async def scenario() -> None:
        async with playing(play) as address, await connect(address, "ann") as ann:
            posted = [await ann.post(EVENT, timeout_seconds=seconds) for seconds in (60.0, 0.02, None, 0.01)]
            for at, seconds in ((3, "0.01"), (1, "0.02")):
                with pytest.raises(TimedOut, match=f"waited {seconds} seconds for the broker at .* to acknowledge an"):
                    await posted[at]
            assert not posted[0].done() and not posted[2].done() and len(ann._events) == 4
            answer.set()
            assert len({await posted[0], await posted[2]}) == 2 and not ann._events
            with pytest.raises(TimedOut):
                await posted[1]

    answer = asyncio.Event()
    run(scenario())


def test_a_subscription_that_nobody_waits_for_any_longer_is_withdrawn(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node, await connect(url(node), "ann") as ann:
            with pytest.raises(CallerError, match="line 1"):
                await ann.subscribe_many({"good": "TRUE", "bad": "nonsense"})
            async with asyncio.timeout(5):
                while node.driver.broker.received_from("subscriptions", "ann"):
                    await asyncio.sleep(0.01)

    run(scenario())


def test_a_broker_that_reads_nothing_does_not_hold_up_close() -> None:
    async def play(peer: RawPeer) -> None:
        await welcome(peer)
        await asyncio.sleep(30)

    async def scenario() -> None:
        async with playing(play) as address:
            ann = await connect(address, "ann")
            for _ in range(8):
                ann.post_now(EVENT, b"x" * 900_000)
            began = time.monotonic()
            await ann.close(timeout_seconds=0.05)
            assert time.monotonic() - began < 8

    run(scenario())


# --- The end ---------------------------------------------------------------------------------------------------------


def test_calls_of_a_closed_blocking_client_say_that_it_was_closed(tmp_path: Path) -> None:
    is_up, is_over = threading.Event(), threading.Event()
    address: list[str] = []

    async def serve() -> None:
        async with running(tmp_path, routing="subscriptions") as node:
            address.append(url(node))
            is_up.set()
            await asyncio.to_thread(is_over.wait, 20)

    server = threading.Thread(target=run, args=(serve(),))
    server.start()
    try:
        assert is_up.wait(10)
        ann = connect_blocking(address[0], "ann")
        wanted = ann.subscribe("TRUE")
        came: list[Any] = []
        reader = threading.Thread(target=lambda: came.extend(wanted))
        reader.start()
        ann.publish(EVENT)
        ann.close()
        reader.join(5)
        assert not reader.is_alive() and [each.event for each in came] == [EVENT]
        for call in (lambda: ann.publish(EVENT), lambda: ann.subscribe("TRUE"), lambda: wanted.next(1)):
            with pytest.raises(Unavailable, match="the client was closed"):
                call()
        ann.close()
    finally:
        is_over.set()
        server.join()


def test_a_frame_that_the_broker_does_not_read_ends_the_client(tmp_path: Path) -> None:
    """It would be as large on the next connection."""

    async def scenario() -> None:
        async with running(tmp_path) as node, await connect(url(node), "ann") as ann:
            clause = f"price < 20 /* {'x' * 2_500_000} */"
            with pytest.raises(PeerError, match="has more bytes than it reads") as caught:
                await asyncio.gather(*(ann.subscribe(clause * 2, id=id) for id in ("s", "t")))
            assert caught.value.code == "limit" and ann.connections == 1
            with pytest.raises(PeerError, match="has more bytes than it reads"):
                await ann.publish(EVENT)

    run(scenario())


# --- A cancel, and a connection that is lost -------------------------------------------------------------------------


async def kept(ann: AsyncClient) -> Any:
    return await ann.subscribe("TRUE", durable="k")


@pytest.mark.parametrize("answer", ["gone", "refused"])
def test_a_cancel_that_meets_a_lost_connection_is_said_again_until_it_is_answered(answer: str) -> None:
    """The broker may have heard it the first time, and then refuses the second one."""

    async def first(peer: RawPeer) -> None:
        await welcome(peer)
        await peer.read("Keep")
        await peer.say(["Standing", "k", "TRUE", "settled", ""])
        await peer.read("Unkeep")
        await peer.socket.close(code=1001)

    async def second(peer: RawPeer) -> None:
        await welcome(peer)
        await peer.read("Unkeep")
        assert not any(message[0] == "Keep" for message in peer.came), "it must not come back"
        await peer.say(["Standing", "k", "", answer, "no durable subscription 'k'", "unknown_id"])
        await peer.read("Keep")
        await peer.say(["Standing", "k", "price < 5", "settled", ""])
        await quiet(peer)

    async def scenario() -> None:
        async with playing(first, second) as address, await connect(address, "ann") as ann:
            subscription = await kept(ann)
            async with asyncio.timeout(10):
                cancelling = asyncio.create_task(ann.unsubscribe(subscription))
                await asyncio.sleep(0)
                again = await ann.subscribe("price < 5", durable="k")  # waits for the answer to the cancel
                await cancelling
            assert [each async for each in subscription] == [] and again.where == "price < 5"

    run(scenario())


def test_a_cancel_that_nobody_waits_for_any_longer_is_said_again_all_the_same() -> None:
    said_again = asyncio.Event()

    async def first(peer: RawPeer) -> None:
        await welcome(peer)
        await peer.read("Keep")
        await peer.say(["Standing", "k", "TRUE", "settled", ""])
        await peer.read("Unkeep")
        await asyncio.sleep(0.1)
        await peer.socket.close(code=1001)

    async def second(peer: RawPeer) -> None:
        await welcome(peer)
        await peer.read("Unkeep")
        said_again.set()
        await quiet(peer)

    async def scenario() -> None:
        async with playing(first, second) as address, await connect(address, "ann") as ann:
            subscription = await kept(ann)
            with pytest.raises(TimedOut, match="the cancel of durable subscription 'k'"):
                await ann.unsubscribe(subscription, timeout_seconds=0.01)
            await asyncio.wait_for(said_again.wait(), 10)

    run(scenario())


def test_a_cancelled_durable_subscription_does_not_come_back(tmp_path: Path) -> None:
    """The node is away when it is cancelled."""

    async def scenario() -> None:
        async with running(tmp_path) as node:
            port = Listen(port=node.client_port)
            ann = await connect(url(node), "ann")
            subscription = await kept(ann)
        cancelling = asyncio.create_task(ann.unsubscribe(subscription))
        await asyncio.sleep(0.1)
        assert not cancelling.done()
        async with running(tmp_path, client=port) as node:
            await asyncio.wait_for(cancelling, 10)
            assert list(node.queues) == [] and node.driver.broker.table_size() == 0
            await ann.close()

    run(scenario())
