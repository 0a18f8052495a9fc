"""Whom a node is compared with: a relay that sends one message per frame, NATS core, and Mosquitto.

The relay is the least that a node on aiohttp could do: a WebSocket message comes, and goes to whoever is connected, in
a frame of its own. NATS and Mosquitto are Debian's; they are spoken to by the few bytes of their protocols that are
needed, written in large blocks and counted without looking at them, which is in their favour.

    python -m benchmarks.node_peers relay PORT [URL OF THE NEXT RELAY]
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Coroutine
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

CACHE = Path(__file__).parent.parent / "build" / "peers"
PACKAGES = ("nats-server", "mosquitto", "libwrap0", "libdlt2")
BLOCK = 64


# --- The relay -------------------------------------------------------------------------------------------------------


async def relay(port: int, following: str | None) -> None:
    """What comes to /publish goes to all at /subscribe, and to the next relay."""
    receivers: list[Any] = []

    async def publish(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(compress=False)
        await socket.prepare(request)
        async for message in socket:
            for receiver in receivers:
                await receiver.send_bytes(message.data)
        return socket

    async def subscribe(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(compress=False)
        await socket.prepare(request)
        receivers.append(socket)
        async for _ in socket:
            pass
        receivers.remove(socket)
        return socket

    app = web.Application()
    app.router.add_get("/publish", publish)
    app.router.add_get("/subscribe", subscribe)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    if following is not None:
        session = aiohttp.ClientSession()
        receivers.append(await session.ws_connect(following + "/publish"))
    await asyncio.Event().wait()


async def publish_to_relay(url: str, message: bytes, count: int) -> None:
    async with aiohttp.ClientSession() as session, session.ws_connect(url + "/publish") as socket:
        for _ in range(count):
            await socket.send_bytes(message)
        await socket.close()


async def read_from_relay(url: str, count: int, ready: Any) -> float:
    """When the last one came."""
    async with aiohttp.ClientSession() as session, session.ws_connect(url + "/subscribe") as socket:
        ready()
        for _ in range(count):
            await socket.receive()
        return time.time()


# --- Peers from Debian -----------------------------------------------------------------------------------------------


def found(program: str) -> tuple[str, dict[str, str]] | None:
    """A program, on the path or from Debian's package, unpacked beside; and its environment. None: not to be had."""
    path = shutil.which(program) or shutil.which(program, path="/usr/sbin")
    if path is not None:
        return path, dict(os.environ)
    if not CACHE.exists():
        CACHE.mkdir(parents=True)
        subprocess.run(["apt-get", "download", *PACKAGES], cwd=CACHE, capture_output=True, check=False)
        for package in CACHE.glob("*.deb"):
            subprocess.run(["dpkg", "-x", package, CACHE], check=False)
    unpacked = CACHE / "usr" / "sbin" / program
    if not unpacked.exists():
        return None
    libraries = ":".join(str(each) for each in CACHE.glob("**/lib/*-linux-gnu"))
    return str(unpacked), os.environ | {"LD_LIBRARY_PATH": libraries}


class Counter(asyncio.Protocol):
    """Counts bytes; done when there are enough."""

    def __init__(self, wanted: int) -> None:
        self.wanted, self.count = wanted, 0
        self.done: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.count += len(data)
        if self.count >= self.wanted and not self.done.done():
            self.done.set_result(time.time())


async def _write_all(writer: asyncio.StreamWriter, messages: list[bytes], count: int) -> None:
    for at in range(0, count, BLOCK):
        writer.write(b"".join(messages[(at + each) % len(messages)] for each in range(min(BLOCK, count - at))))
        await writer.drain()


async def nats(port: int, topics: int, payload: bytes, count: int) -> float:
    """Seconds from the first to the last."""
    loop = asyncio.get_running_loop()
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b'CONNECT {"verbose":false}\r\nPING\r\n')
    size = len(payload)
    expected = sum(
        len(f"MSG s.{1000000 + each % topics} {each % topics} {size}\r\n") + size + 2 for each in range(count)
    )
    transport, counter = await loop.create_connection(lambda: Counter(2**62), "127.0.0.1", port)
    names = [f"s.{1000000 + each}" for each in range(topics)]
    transport.write(b'CONNECT {"verbose":false}\r\n')
    transport.write("".join(f"SUB {name} {at}\r\n" for at, name in enumerate(names)).encode())
    transport.write(b"PING\r\n")
    await asyncio.sleep(1.0)
    counter.count, counter.wanted = 0, expected
    messages = [f"PUB {name} {size}\r\n".encode() + payload + b"\r\n" for name in names]
    began = time.time()
    await _write_all(writer, messages, count)
    ended = await asyncio.wait_for(counter.done, 60)
    writer.close()
    transport.close()
    return ended - began


async def mosquitto(port: int, topics: int, payload: bytes, count: int) -> float:
    """MQTT 3.1.1, quality of service 0."""

    def packet(kind: int, body: bytes) -> bytes:
        length, left = b"", len(body)
        while True:
            left, digit = left >> 7, left & 127
            length += bytes([digit | (128 if left else 0)])
            if not left:
                return bytes([kind]) + length + body

    def text(value: str) -> bytes:
        return len(value).to_bytes(2, "big") + value.encode()

    def greeting(name: str) -> bytes:
        return packet(0x10, text("MQTT") + b"\x04\x02\x00\x3c" + text(name))

    loop = asyncio.get_running_loop()
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(greeting("pub"))
    transport, counter = await loop.create_connection(lambda: Counter(2**62), "127.0.0.1", port)
    names = [f"s/{1000000 + each}" for each in range(topics)]
    transport.write(greeting("sub"))
    for at in range(0, topics, 100):
        body = b"".join(text(name) + b"\x00" for name in names[at : at + 100])
        transport.write(packet(0x82, (at // 100 + 1).to_bytes(2, "big") + body))
    await asyncio.sleep(1.0)
    messages = [packet(0x30, text(name) + payload) for name in names]
    counter.count, counter.wanted = 0, sum(len(messages[each % topics]) for each in range(count))
    began = time.time()
    await _write_all(writer, messages, count)
    ended = await asyncio.wait_for(counter.done, 60)
    writer.close()
    transport.close()
    return ended - began


def run(work: Coroutine[Any, Any, None]) -> None:
    """On uvloop, as a node does, when it is present."""
    if find_spec("uvloop"):
        import uvloop

        uvloop.run(work)
    else:
        asyncio.run(work)


if __name__ == "__main__":
    run(relay(int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None))
