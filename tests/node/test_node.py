"""A node and its clients, over real sockets in one process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from thatch.broker import ClientState
from thatch.client.client import connect
from thatch.errors import CallerError, PeerError, StoreError, Unavailable
from thatch.node.config import Config, Flow, Listen, Timing
from thatch.node.server import Node
from thatch.protocol import wire
from thatch.protocol.codec import encode
from thatch.protocol.ids import SUBSCRIPTIONS
from thatch.protocol.messages import Digest, Hello, Publish

SPACE = "price double not null 0..1000, symbol string, number int, day date, cost decimal(10,2)"


@asynccontextmanager
async def running(folder: Path, name: str = "B1", **settings: Any) -> AsyncIterator[Node]:
    usual = {"space": SPACE, "client": Listen(), "overlay": Listen(), "accept": ("B2",) if name == "B1" else ()}
    node = Node(Config(name=name, store=str(folder / f"{name}.thatch"), **{**usual, **settings}))
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


def url(node: Node, scheme: str = "ws") -> str:
    return f"{scheme}://127.0.0.1:{node.client_port}"


def test_subscribe_publish_replace_unsubscribe(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node, await connect(url(node), "ann") as ann, await connect(url(node)) as bob:
            cheap = await ann.subscribe("price < 20", id="cheap")
            both = await ann.subscribe_many({"x": "price < 20", "y": "symbol = 'A'"})
            with pytest.raises(CallerError, match="advertise first"):
                await bob.publish({"price": 5.0})
            advertised = await bob.advertise("price < 500")
            id = await bob.publish({"price": 5.0, "symbol": "A"}, b"hello")
            event = await cheap.next(5)
            assert (event.id, event.event, event.payload) == (id, {"price": 5.0, "symbol": "A"}, b"hello")
            assert (await both.next(5)).id == id and both.next_now() is None
            for wrong, reason in (
                ({"price": 600.0}, "outside what"),
                ({"price": 2000.0}, "outside the domain"),
                ({"cheap": 1}, "not in the space"),
            ):
                with pytest.raises(CallerError, match=reason):
                    await bob.publish(wrong)
            await ann.replace(cheap, "price >= 20")
            await bob.publish({"price": 30.0})
            assert (await cheap.next(5)).event == {"price": 30.0}
            await ann.unsubscribe(cheap)
            assert [each async for each in cheap] == []
            with pytest.raises(CallerError, match="line 1, column 1"):
                await ann.subscribe("colour = 'red'")
            with pytest.raises(CallerError, match="no subscription"):
                await ann.replace(cheap, "price < 1")
            await bob.unadvertise(advertised)
            with pytest.raises(CallerError, match="advertise first"):
                await bob.publish({"price": 5.0})

    asyncio.run(scenario())


def test_a_subscription_of_several_clauses(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, routing="subscriptions") as node, await connect(url(node), "ann") as ann:
            with pytest.raises(CallerError, match="at least one clause"):
                await ann.subscribe_many({})
            with pytest.raises(CallerError, match="leave out id='a'"):
                await ann.subscribe("price < 20", id="a", durable="b")
            several = {f"s{number}": f"price < {number}" for number in range(1, 50)}
            subscription = await ann.subscribe_many(several)
            held = node.driver.broker.received_from(SUBSCRIPTIONS, "ann")
            assert len(held) == len(several)
            await ann.unsubscribe(subscription)  # returns when the last of them is gone
            assert node.driver.broker.received_from(SUBSCRIPTIONS, "ann") == {}

    asyncio.run(scenario())


def test_values_keep_their_types(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node, await connect(url(node), "ann") as ann:
            await ann.advertise("TRUE")
            plain = await ann.subscribe("cost = 1.10 AND day = DATE'2026-01-02'")
            durable = await ann.subscribe("cost = 1.10", durable="kept")
            event = {"price": float("nan"), "cost": Decimal("1.10"), "day": date(2026, 1, 2)}
            with pytest.raises(CallerError, match="domain"):
                await ann.publish(event)
            event["price"] = 1.0
            await ann.publish(event)
            assert (await plain.next(5)).event == (await durable.next(5)).event == event

    asyncio.run(scenario())


def test_a_durable_subscription_outlives_client_and_broker(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            async with await connect(url(node), "ann") as ann:
                alerts = await ann.subscribe("price < 20", durable="alerts")
                await ann.advertise("TRUE")
                for number in range(3):
                    await ann.publish({"price": 1.0, "number": number})
                assert (await alerts.next(5)).event["number"] == 0
                assert (await alerts.next(5)).event["number"] == 1  # and 0 is dealt with
            async with await connect(url(node), "bob") as bob:
                await bob.advertise("TRUE")
                for number in range(3, 700):
                    await bob.post({"price": 1.0, "number": number})
        async with running(tmp_path) as node, await connect(url(node), "ann") as ann:
            alerts = await ann.subscribe("price < 20", durable="alerts")
            numbers = [(await alerts.next(5)).event["number"] for _ in range(699)]
            assert numbers == list(range(1, 700))
            alerts.done()
            await ann.unsubscribe(alerts)
            async with asyncio.timeout(5):
                while node.store.ticket > node.gate.committed:
                    await asyncio.sleep(0.01)
            assert list(node.queues) == [] and node.driver.broker.table_size() == 0

    asyncio.run(scenario())


def test_what_a_durable_subscription_loses_is_declared(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node, await connect(url(node), "bob") as bob:
            await bob.advertise("TRUE")
            async with await connect(url(node), "ann") as ann:
                await ann.subscribe("price < 20", durable="small", bytes_max=50_000)
                await ann.subscribe("price < 20", durable="short", seconds_max=0.3)
            for number in range(2_000):
                await bob.post({"price": 1.0, "number": number}, b"x" * 100)
            await asyncio.sleep(1.2)
            async with await connect(url(node), "ann") as ann:
                small = await ann.subscribe("price < 20", durable="small", bytes_max=50_000)
                numbers = [(await small.next(5)).event["number"]]
                while numbers[-1] != 1_999:
                    numbers.append((await small.next(5)).event["number"])
                assert numbers == list(range(numbers[0], 2_000)) and numbers[0] > 1_000
                assert small.lost == numbers[0] and small.losses[-1].receiver == "ann@small"
                short = await ann.subscribe("price < 20", durable="short", seconds_max=0.3)
                await asyncio.sleep(0.1)
                assert short.next_now() is None and short.lost == 2_000

    asyncio.run(scenario())


def test_a_client_reconnects_and_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        port = Listen(port=_free_port())
        async with running(tmp_path, client=port) as node:
            ann = await connect(url(node), "ann")
            plain, kept = await ann.subscribe("price < 20"), await ann.subscribe("price < 20", durable="kept")
            await ann.advertise("TRUE")
        futures = [await ann.post({"price": 1.0, "number": number}) for number in range(3)]
        await asyncio.sleep(0.2)
        assert not any(future.done() for future in futures) and not ann.is_connected
        async with running(tmp_path, client=port):
            await asyncio.wait_for(asyncio.gather(*futures), 10)
            assert ann.connections >= 2
            assert [(await kept.next(5)).event["number"] for _ in range(3)] == [0, 1, 2]
            assert [(await plain.next(5)).event["number"] for _ in range(3)] == [0, 1, 2]
            await ann.close()

    asyncio.run(scenario())


def test_a_name_is_taken_over(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            first = await connect(url(node), "ann")
            mine = await first.subscribe("price < 20")
            async with await connect(url(node), "ann") as second, asyncio.timeout(5):
                for work in (anext(mine), first.subscribe("price < 5")):
                    with pytest.raises(PeerError, match="another client came as 'ann'"):
                        await work
                again = await second.subscribe("price < 20")
                await second.advertise("TRUE")
                await second.publish({"price": 1.0})
                assert (await again.next(5)).event == {"price": 1.0}
            await first.close()

    asyncio.run(scenario())


def test_nobody_there() -> None:
    with pytest.raises(Unavailable, match="no broker answers at ws://127"):
        asyncio.run(connect("ws://127.0.0.1:1", timeout_seconds=0.3))


@pytest.mark.parametrize(
    "data", [b"", b"\x93", b"\xdd\0\0\0\1\x91\xa5Hello", b"\x91" * 100_000, b"\x91\x92\xa5Flush\x01"]
)
def test_garbage_is_hung_up_on(tmp_path: Path, data: bytes) -> None:
    async def scenario() -> None:
        async with (
            running(tmp_path) as node,
            await connect(url(node), "ann") as ann,
            aiohttp.ClientSession() as session,
        ):
            for path in (f"{url(node)}/connect", f"ws://127.0.0.1:{node.overlay_port}/overlay"):
                async with session.ws_connect(path) as socket:
                    await socket.send_bytes(data)
                    message = await socket.receive(timeout=5)
                    assert message.type is aiohttp.WSMsgType.CLOSE and message.data == 1008
            assert await ann.subscribe("price < 20")

    asyncio.run(scenario())


def test_nothing_counts_as_published_after_the_end_of_a_session(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, routing="subscriptions") as node, aiohttp.ClientSession() as session:
            space = node.driver.broker.space
            hello = Hello("eve", 7, space.to_json(), is_client=True)
            wrong = Digest(7 << 32 | 1, 1, (0,), (0,))
            event = Publish("eve:1", {"price": 1.0})
            frames = wire.Frames(space, wire.FromNode)
            async with session.ws_connect(f"{url(node)}/connect") as socket:
                await socket.send_bytes(wire.frame([encode(each) for each in (hello, wrong, event)]))
                came: list[Any] = []
                async for frame in socket:
                    came += frames.decode(frame.data)
                assert not any(isinstance(each, wire.Published) for each in came) and socket.close_code == 1008

    asyncio.run(scenario())


def test_over_http(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node, aiohttp.ClientSession(url(node, "http")) as http:
            async with http.get("/subscribe", params={"where": "price <"}) as response:
                assert response.status == 400 and "line 1" in (await response.json())["error"]
            async with http.get("/subscribe", params={"where": "price < 20"}) as stream:
                assert stream.headers["Content-Type"].startswith("text/event-stream")
                assert await stream.content.readuntil(b"\n\n") == b"event: settled\ndata: {}\n\n"
                await check_posts(http)
                events = [_data(await stream.content.readuntil(b"\n\n")) for _ in range(6)]
            assert [each["event"]["price"] for each in events] == [1, 2, 3, 4, 5, 6]
            assert events[1]["event"] == {"price": 2, "day": "2026-01-02", "cost": "1.10"}
            assert events[3]["id"] == "@http:/here 7" and json.loads(events[3]["payload"])["data"]["more"] is True
            await check_pages(http)

    async def check_posts(http: aiohttp.ClientSession) -> None:
        structured = {"specversion": "1.0", "id": "7", "source": "/here", "type": "t"}
        cloud = {"Content-Type": "application/cloudevents+json; charset=utf-8"}
        batch = {"Content-Type": "application/cloudevents-batch+json"}
        binary = {"ce-specversion": "1.0", "ce-id": "9", "ce-source": "/here", "ce-type": "t", "ce-symbol": "A%20B"}
        for body, headers, status, published in (
            ({"price": 1}, {}, 200, 1),
            ([{"price": 2, "day": "2026-01-02", "cost": "1.10"}, {"price": 3}, {"price": 50}], {}, 200, 3),
            (structured | {"data": {"price": 4, "more": True}}, cloud, 200, 1),
            ([structured | {"id": "8", "data": {"price": 5}}], batch, 200, 1),
            ({"price": 6}, binary | {"Content-Type": "application/json"}, 200, 1),
            ({"price": 5000}, {}, 400, 0),
            ([{"price": 25}, {"prize": 1}], {}, 400, 1),
            (structured | {"specversion": "0.3"}, cloud, 400, None),
            ({"id": "1"}, cloud, 400, None),
            ("{", {}, 400, None),
        ):
            data = body if isinstance(body, str) else json.dumps(body)
            async with http.post("/events", data=data, headers=headers) as response:
                answer = await response.json()
                assert (response.status, answer.get("published")) == (status, published), answer

    async def check_pages(http: aiohttp.ClientSession) -> None:
        async with http.get("/healthz") as response:
            assert await response.json() == {"name": "B1", "ready": True, "store": "ok", "neighbours": {}, "gaps": []}
        async with http.get("/metrics") as response:
            assert "thatch_events_received_total 10\n" in await response.text()
        async with http.get("/tables") as response:
            assert "@http" in (await response.json())["links"]

    asyncio.run(scenario())


def _data(event: bytes) -> Any:
    return json.loads(event.decode().split("data: ", 1)[1])


def test_a_slow_client_learns_what_it_lost(tmp_path: Path) -> None:
    async def scenario(policy: Any) -> None:
        flow = Flow(client_bytes_max=200_000, slow_client=policy)
        async with running(tmp_path, flow=flow) as node, aiohttp.ClientSession() as session:
            slow = await connect(url(node), "slow")
            got = await slow.subscribe("price < 20")
            await slow.close()
            async with session.ws_connect(f"{url(node)}/connect") as socket, await connect(url(node)) as bob:
                silent = ClientState("slow", node.driver.broker.space)
                silent.connect("home", 5)
                silent.subscribe("home", "s", "price < 20")
                await socket.send_bytes(wire.frame([encode(each.message) for each in silent.connect("home", 6)]))
                frames = wire.Frames(silent.space, wire.FromNode)
                while not silent.is_settled("home", "subscriptions", "s"):
                    for message in frames.decode((await socket.receive(timeout=5)).data):
                        for send in silent.handle(message, "home"):
                            await socket.send_bytes(wire.frame([encode(send.message)]))
                await bob.advertise("TRUE")
                for number in range(8_000):  # and nobody reads
                    await bob.post({"price": 1.0, "number": number}, b"x" * 2_000)
                await bob.publish({"price": 1.0})
                notices, numbers = [], []
                while 7_999 not in numbers:
                    received = await socket.receive(timeout=5)
                    if received.type is not aiohttp.WSMsgType.BINARY:
                        break
                    for message in frames.decode(received.data):
                        if isinstance(message, wire.Notice):
                            notices.append(message)
                        elif isinstance(message, wire.Event):
                            numbers.append(message.event.event.get("number"))
            if policy == "drop":
                assert numbers[-2:] == [7_999, None] or numbers[-1] == 7_999
                assert sum(each.count for each in notices) + len(numbers) >= 8_000 > len(numbers)
            else:
                assert 7_999 not in numbers
                async with await connect(url(node), "slow") as slow:
                    got = await slow.subscribe("price < 20")
                    await asyncio.sleep(0.1)
                    reasons = [each.reason for each in got.notices]
                    assert not reasons or "hung up on before" in reasons[0]

    for policy in ("drop", "disconnect"):
        asyncio.run(scenario(policy))


def test_a_space_grows_with_the_settings(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node, await connect(url(node), "ann") as ann:
            await ann.subscribe("price < 20", durable="kept")
        grown = SPACE + ", colour string"
        async with running(tmp_path, space=grown) as node, await connect(url(node), "ann") as ann:
            kept = await ann.subscribe("price < 20", durable="kept")
            red = await ann.subscribe("colour = 'red'")
            await ann.advertise("TRUE")
            await ann.publish({"price": 1.0, "colour": "red"})
            assert (await kept.next(5)).id == (await red.next(5)).id
        async with running(tmp_path) as node:  # settings that are behind
            assert node.driver.broker.space.index("colour") is not None
        with pytest.raises(StoreError, match="the configuration says"):
            async with running(tmp_path, space="price int"):
                pass

    asyncio.run(scenario())


def test_events_do_not_wait_behind_a_burst_of_subscriptions(tmp_path: Path) -> None:
    """Neither at the broker where the burst comes in, nor on the link over which it is forwarded."""

    async def scenario() -> None:
        async with running(tmp_path, "B1") as one:
            neighbours = {"B1": f"ws://127.0.0.1:{one.overlay_port}"}
            async with (
                running(tmp_path, "B2", neighbours=neighbours) as two,
                await connect(url(one), "ann") as ann,
                await connect(url(two), "bob") as bob,
                await connect(url(two), "eve") as eve,
            ):
                await ann.advertise("TRUE")
                cheap = await bob.subscribe("price < 20")
                many = {f"s{number}": f"price > {500 + number} AND symbol = '{number}'" for number in range(1_500)}
                burst = asyncio.create_task(eve.subscribe_many(many))
                await asyncio.sleep(0)
                for number in range(2):
                    await ann.publish({"price": 1.0, "number": number})
                    assert (await cheap.next(5)).event["number"] == number
                assert not burst.done()
                await burst

    asyncio.run(scenario())


def test_clients_that_are_away_are_forgotten_in_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, timing=Timing(linger_seconds=0.2)) as node:
            async with await connect(url(node), "ann") as ann:
                await ann.subscribe("price < 20")
            assert node.driver.broker.table_size() == 1
            async with asyncio.timeout(5):
                while node.driver.broker.table_size():
                    await asyncio.sleep(0.05)

    asyncio.run(scenario())


def test_totals_of_events_do_not_fall_when_a_client_is_forgotten(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, timing=Timing(linger_seconds=0.05)) as node:
            async with await connect(url(node), "ann") as ann:
                wanted = await ann.subscribe("TRUE")
                await ann.advertise("TRUE")
                await ann.publish({"price": 5.0})
                await wanted.next(5)
            assert node.totals() == {"events_in": 1, "events_out": 1}
            async with asyncio.timeout(5):
                while node.driver.broker.links:
                    await asyncio.sleep(0.02)
            assert node.totals() == {"events_in": 1, "events_out": 1}

    asyncio.run(scenario())


def _free_port() -> int:
    from helpers.node_process import free_port

    return free_port()
