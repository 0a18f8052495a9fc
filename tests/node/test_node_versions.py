"""Nodes and peers of other versions over real sockets: a double that is ahead of this version, and one that is behind
and refuses whatever it does not know, as neighbours (who dial, or are dialled), as clients and as a node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web

from thatch import Space
from thatch.client.client import connect
from thatch.errors import CallerError, PeerError
from thatch.node.config import Config, Listen
from thatch.node.server import Node
from thatch.protocol.ids import SUBSCRIPTIONS
from thatch.protocol.kinds import KINDS
from thatch.protocol.versions import VERSION_MAX
from thatch.protocol.wire import frame

SPACE = Space.parse("price double not null 0..1000, symbol string").to_json()
Socket = web.WebSocketResponse | aiohttp.ClientWebSocketResponse
Play = Callable[["Double"], Any]
SESSION = 7
FIRST = (1 << 40) + 1  # number of an event

# Readers of version 2 refuse what they do not know: fields, and kinds.
_OLD_KINDS = [
    msgspec.defstruct(
        tag,
        [each for each in kind.struct.__struct_fields__ if each not in kind.struct.added],
        tag=tag,
        array_like=True,
        forbid_unknown_fields=True,
    )
    for tag, kind in KINDS.by_tag.items()
    if kind.since == 2
]
_STRICT = msgspec.msgpack.Decoder(list[reduce(or_, _OLD_KINDS)])  # type: ignore[misc]


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 20))


class Double:
    """One end of a connection that says what a test wants, in lists, and reads lists; if it is old, strictly."""

    def __init__(self, socket: Socket, is_old: bool) -> None:
        self.socket, self.is_old = socket, is_old
        self.came: list[list[Any]] = []
        self._count = 0

    def seq(self) -> int:
        self._count += 1
        return SESSION << 32 | self._count

    async def say(self, *messages: list[Any]) -> None:
        await self.socket.send_bytes(frame(map(msgspec.msgpack.encode, messages)))

    async def read(self, tag: str) -> list[Any]:
        """The next message of a kind; those before it stay in `came`."""
        for _ in range(100):
            for at, message in enumerate(self.came):
                if message[0] == tag:
                    return self.came.pop(at)
            data = await asyncio.wait_for(self.socket.receive_bytes(), 5)
            if self.is_old:
                _STRICT.decode(data)
            self.came += msgspec.msgpack.decode(data)
        raise AssertionError(f"no {tag} among {self.came}")

    async def closed(self) -> int:
        while (message := await asyncio.wait_for(self.socket.receive(), 5)).type is aiohttp.WSMsgType.BINARY:
            self.came += msgspec.msgpack.decode(message.data)
        assert message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSING), message
        return int(message.data)

    async def greet(self, *more: Any, is_client: bool = False, capabilities: dict[str, Any] | None = None) -> list[Any]:
        """As a peer of version 2, or as one that speaks up to version 9 and has a field that nobody knows."""
        name = "ann" if is_client else "B9"
        hello = ["Hello", name, SESSION, SPACE, is_client, 2, [] if is_client else ["B9"], False, ""]
        later = [9, 9, {"kinds": ["Vow"], **(capabilities or {})}, {"more": [1]}]
        await self.say(hello if self.is_old else [*hello, *later], *more)
        return await self.read("Hello")


@asynccontextmanager
async def running(folder: Path, **settings: Any) -> AsyncIterator[Node]:
    config = {"space": SPACE, "client": Listen(), "overlay": Listen(), "routing": "subscriptions", **settings}
    node = Node(Config(name="B1", accept=("B9",), store=str(folder / "B1.thatch"), **config))
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


@asynccontextmanager
async def dialling(url: str, is_old: bool) -> AsyncIterator[Double]:
    protocols = () if is_old else ("thatch",)
    async with aiohttp.ClientSession() as session, session.ws_connect(url, protocols=protocols) as socket:
        assert socket.protocol == (None if is_old else "thatch")
        yield Double(socket, is_old)


@asynccontextmanager
async def listening(play: Play, is_old: bool) -> AsyncIterator[tuple[str, asyncio.Future[None]]]:
    """A server that plays one end of each connection; the future is about the first."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def accept(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(protocols=() if is_old else ("thatch",))
        await socket.prepare(request)
        if not done.done():
            try:
                await play(Double(socket, is_old))
                done.set_result(None)
            except BaseException as error:
                done.set_exception(error)
        return socket

    app = web.Application()
    for path in ("/overlay", "/connect"):
        app.router.add_get(path, accept)
    app.router.add_get("/space", _space)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"ws://127.0.0.1:{runner.addresses[0][1]}", done
    finally:
        await runner.cleanup()


async def _space(request: web.Request) -> web.Response:
    return web.Response(text=SPACE)


async def linked(folder: Path, is_old: bool, dials: bool, play: Callable[[Node, Double], Any]) -> None:
    """A node, and a double as its neighbour B9, which dials it or is dialled by it."""
    if dials:
        async with running(folder) as node, dialling(f"ws://127.0.0.1:{node.overlay_port}/overlay", is_old) as double:
            await play(node, double)
        return
    nodes: asyncio.Future[Node] = asyncio.get_running_loop().create_future()

    async def accepted(double: Double) -> None:
        await play(await nodes, double)

    async with listening(accepted, is_old) as (url, done), running(folder, neighbours={"B9": url}) as node:
        nodes.set_result(node)
        await asyncio.wait_for(done, 10)


@pytest.mark.parametrize("dials", [True, False], ids=["dials", "is dialled"])
def test_a_neighbour_that_is_ahead(tmp_path: Path, dials: bool) -> None:
    async def play(node: Node, double: Double) -> None:
        hello = await double.greet(
            ["hint", {"any": 1}], ["Resume", "store9", "", 0, {1: "life9"}, [], {}, "", {}, "", 0.0, 0.0, "more"]
        )
        assert hello[5:6] + hello[9:11] == [2, VERSION_MAX, VERSION_MAX]
        await double.read("Digest")
        digest = ["Digest", double.seq(), 1, [0], [0], b"", [], [], "more"]
        await double.say(digest, ["Synced", double.seq(), 1, {}, {}, "more"])
        await double.read("Synced")
        link = node.driver.broker.links["B9"]
        assert link.is_synced and (link.version, link.members_version) == (VERSION_MAX,) * 2 and node.skipped_count == 1
        await double.say(["Subscribe", double.seq(), "B9/bob/s", "price < 5", None, [], [], "more"], ["hint"])
        while (await double.read("Settled"))[1] & 0xFFFFFFFF < 3:
            pass
        assert node.driver.broker.received_from(SUBSCRIPTIONS, "B9") == {"B9/bob/s": "price < 5"}
        event = ["Publish", "bob:1", {"price": 1.0}, b"", 0, 0, -1, "more"]
        async with await connect(f"ws://127.0.0.1:{node.client_port}", "ann") as ann:
            cheap = await ann.subscribe("price < 3", settled=False)
            await double.say(["Forward", FIRST, event, "more"])
            assert (await cheap.next(5)).id == "bob:1" and (await double.read("Received"))[1] == FIRST
            seq = double.seq()
            await double.say(["Vow", seq, "x"], ["Subscribe", double.seq(), "B9/bob/t", "TRUE", None, [], []])
            refused = await double.read("Refused")
            assert refused == ["Refused", seq, "", refused[3], "subscriptions", "kind"] and "'Vow'" in refused[3]
            assert await double.closed() == 1008 and not link.is_met
            assert len(node.driver.broker.received_from(SUBSCRIPTIONS, "B9")) == 1
            await ann.publish({"price": 4.0})
        assert node.skipped_count == 2

    run(linked(tmp_path, False, dials, play))


@pytest.mark.parametrize("dials", [True, False], ids=["dials", "is dialled"])
def test_a_neighbour_that_is_behind_gets_nothing_that_it_would_refuse(tmp_path: Path, dials: bool) -> None:
    async def play(node: Node, double: Double) -> None:
        hello = await double.greet(["Resume", "store9", "", 0])
        assert len(hello) == 9 and hello[5] == 2
        await double.read("Digest")
        await double.say(["Digest", double.seq(), 1, [0], [0]], ["Synced", double.seq(), 1, {}, {}])
        await double.read("Synced")
        link = node.driver.broker.links["B9"]
        assert link.is_synced and (link.version, link.members_version) == (2, 2)
        await double.say(["Subscribe", double.seq(), "B9/bob/s", "nonsense", None, [], []])
        refused = await double.read("Refused")
        assert len(refused) == 5 and await double.closed() == 1008

    run(linked(tmp_path, True, dials, play))


def test_no_common_version_is_refused_by_name(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            for path, port in (("connect", node.client_port), ("overlay", node.overlay_port)):
                is_client = path == "connect"
                name = "ann" if is_client else "B9"
                async with dialling(f"ws://127.0.0.1:{port}/{path}", False) as double:
                    await double.say(["Hello", name, SESSION, SPACE, is_client, 6, [], False, "", 7])
                    refused = await double.read("Refused")
                    assert refused[3] == f"'{name}' speaks versions 6 to 7 of the protocol, this side 2 to 5"
                    assert refused[5] == "version" and await double.closed() == 1008

    run(scenario())


@pytest.mark.parametrize("is_old", [False, True], ids=["ahead", "behind"])
def test_a_client_of_another_version(tmp_path: Path, is_old: bool) -> None:
    """The one that is ahead cannot hash: it sends its subscriptions with its greeting, and no digest comes."""

    async def scenario() -> None:
        async with running(tmp_path) as node:
            for connection in range(2):
                async with dialling(f"ws://127.0.0.1:{node.client_port}/connect", is_old) as double:
                    listed = {"a": ["price < 5", None], "wrong": ["nonsense", None], f"b{connection}": ["TRUE", None]}
                    synced = ["Synced", double.seq(), 1, {0: listed}, {0: {}}]
                    await double.greet(synced, is_client=True, capabilities={"digest": "none"})
                    assert (await double.read("Accepted"))[1] == (await double.read("Settled"))[1] == synced[1]
                    refused = await double.read("Refused")
                    assert refused[:3] == ["Refused", synced[1], "wrong"] and refused[5:] == (
                        [] if is_old else ["clause"]
                    )
                    await double.say(["Publish", f"ann:{connection}", {"price": 1.0}], ["Publish", "bob:1", {}])
                    assert (await double.read("Event"))[1] == ["a", f"b{connection}"]
                    assert (await double.read("Refused"))[5:] == ([] if is_old else ["id"])
                    assert (await double.read("Published"))[1] == 2
                    if not is_old:
                        assert not any(each[0] == "Digest" for each in double.came)
                        await double.say(["hint", 1], ["Vow", double.seq()])
                        assert (await double.read("Refused"))[5] == "kind" and await double.closed() == 1008

    run(scenario())


@pytest.mark.parametrize("is_old", [False, True], ids=["ahead", "behind"])
def test_a_node_of_another_version(is_old: bool) -> None:
    """For our own client: a node that is ahead may send what must be understood, and then the client ends by name."""

    async def scenario() -> None:
        async def played(double: Double) -> None:
            hello = await double.read("Hello")
            assert hello[1] == "ann" and len(hello) == (9 if is_old else 10)
            answer = ["Hello", "B9", SESSION, SPACE, False, 2, [], False, ""]
            digest = ["Digest", double.seq(), 1, [0], [0]]
            more = [] if is_old else [["hint", 1]]
            await double.say(answer if is_old else [*answer, 9, 0, {"x": 1}, "more"], *more, digest)
            seq = (await double.read("Synced"))[1]
            await double.say(["Accepted", seq], ["Settled", seq])
            seq = (await double.read("Subscribe"))[1]
            if is_old:
                await double.say(["Refused", seq, "s", "no", "subscriptions"])
            else:
                await double.say(["Refused", seq, "s", "no", "subscriptions", "limit", "more"], ["Vow", double.seq()])
                refused = await double.read("Refused")
                assert refused[1] == SESSION << 32 | 2 and refused[5] == "kind"
            await double.socket.receive()

        async with listening(played, is_old) as (url, done), await connect(url, "ann") as ann:
            with pytest.raises(CallerError, match="no") as caught:
                await ann.subscribe("price < 5", id="s")
            assert caught.value.code == ("invalid" if is_old else "limit")
            if not is_old:
                await asyncio.wait_for(done, 5)
                with pytest.raises(PeerError, match="is newer than this client: 'Vow'"):
                    for _ in range(100):
                        await asyncio.sleep(0.01)
                        await ann.post({"price": 1.0})

    run(scenario())
