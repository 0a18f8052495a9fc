"""A node in this process, and peers that say over real sockets whatever a test wants, message by message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from thatch import Space
from thatch.node.config import Config, Listen
from thatch.node.server import Node
from thatch.protocol.wire import frame

SPACE = "price double not null 0..1000, number int"
SPACE_JSON = Space.parse(SPACE).to_json()
SESSION = 7
WAIT_SECONDS = 10.0
Socket = web.WebSocketResponse | aiohttp.ClientWebSocketResponse
Play = Callable[["RawPeer"], Awaitable[None]]


def run(
    scenario: Coroutine[Any, Any, None],
    seconds: float = 20.0,
    make_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
) -> None:
    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(asyncio.wait_for(scenario, seconds))


@asynccontextmanager
async def running(
    folder: Path, name: str = "B1", before_commit: Callable[[], None] = lambda: None, **settings: Any
) -> AsyncIterator[Node]:
    others = tuple(each for each in ("B1", "B2", "B3", "B9") if each != name)
    usual = {"space": SPACE, "client": Listen(), "overlay": Listen(), "accept": others}
    node = Node(Config(name=name, store=str(folder / f"{name}.thatch"), **{**usual, **settings}), before_commit)
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


async def until(is_so: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait for what the test knows to come."""
    async with asyncio.timeout(seconds):
        while not is_so():
            await asyncio.sleep(0.002)


def url(node: Node) -> str:
    return f"ws://127.0.0.1:{node.client_port}"


class RawPeer:
    """One end of a connection that says and reads messages as lists."""

    def __init__(self, socket: Socket) -> None:
        self.socket = socket
        self.came: list[list[Any]] = []
        self._count = 0

    def seq(self) -> int:
        self._count += 1
        return SESSION << 32 | self._count

    async def say(self, *messages: list[Any]) -> None:
        await self.socket.send_bytes(frame(map(msgspec.msgpack.encode, messages)))

    async def greet(self, name: str, *more: list[Any], is_client: bool = True, session: int = SESSION) -> None:
        """A neighbour's greeting ends with `Resume`, which is added if it is not in `more`."""
        if not is_client and all(each[0] != "Resume" for each in more):
            more = (["Resume", f"store of {name}"[:64], "", 0], *more)
        members = [] if is_client else [name]
        hello = ["Hello", name, session, SPACE_JSON, is_client, 2, members, False, "", 3, 3]
        await self.say([*hello, {"digest": "none"} if is_client else {}], *more)

    async def read(self, tag: str) -> list[Any]:
        """The next message of a kind; those before it stay in `came`."""
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                for at, message in enumerate(self.came):
                    if message[0] == tag:
                        return self.came.pop(at)
                self.came += msgspec.msgpack.decode(await self.socket.receive_bytes())

    async def closed(self) -> int:
        """The code that the other side closes the connection with; what came before stays in `came`."""
        async with asyncio.timeout(WAIT_SECONDS):
            while (message := await self.socket.receive()).type is aiohttp.WSMsgType.BINARY:
                self.came += msgspec.msgpack.decode(message.data)
        assert message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSING), message
        return int(message.data)


@asynccontextmanager
async def dialling(node: Node, path: str = "connect") -> AsyncIterator[RawPeer]:
    """A peer that has dialled a node, as a client or (`overlay`) as a neighbour."""
    port = node.client_port if path == "connect" else node.overlay_port
    address = f"ws://127.0.0.1:{port}/{path}"
    async with aiohttp.ClientSession() as session, session.ws_connect(address, protocols=("thatch",)) as socket:
        yield RawPeer(socket)


@asynccontextmanager
async def playing(*plays: Play) -> AsyncIterator[str]:
    """The URL of what plays a broker: the first connection by the first play, and so on; the last play goes on."""
    connections = 0
    failures: list[BaseException] = []

    async def accept(request: web.Request) -> web.WebSocketResponse:
        nonlocal connections
        socket = web.WebSocketResponse(protocols=("thatch",))
        await socket.prepare(request)
        play = plays[min(connections, len(plays) - 1)]
        connections += 1
        try:
            await play(RawPeer(socket))
        except (ConnectionError, TypeError, asyncio.CancelledError):  # the client has hung up
            pass
        except Exception as error:
            failures.append(error)
        return socket

    async def space(request: web.Request) -> web.Response:
        return web.Response(text=SPACE_JSON)

    app = web.Application()
    app.router.add_get("/connect", accept)
    app.router.add_get("/overlay", accept)
    app.router.add_get("/space", space)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"ws://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
    assert failures == []


async def welcome(peer: RawPeer) -> None:
    """Greet a client as a broker that holds nothing of it, and let it settle."""
    await peer.read("Hello")
    hello = ["Hello", "B1", SESSION, SPACE_JSON, False, 2, [], False, "", 3]
    await peer.say(hello, ["Digest", peer.seq(), 1, [0], [0]])
    seq = (await peer.read("Synced"))[1]
    await peer.say(["Accepted", seq], ["Settled", seq])
