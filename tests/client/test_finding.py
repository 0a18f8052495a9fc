"""Finding a broker: what will not mend itself is said at once, and what may is tried again."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
from collections.abc import Awaitable, Callable

import aiohttp
import pytest
from aiohttp import web

from thatch.client.finding import space_at
from thatch.errors import CallerError, Unavailable
from thatch.protocol.address import checked_url
from thatch.space.space import Space

SECONDS = 30.0  # to wait for a broker: no test does
SPACE = Space.parse("price double")
Handler = Callable[[web.Request], Awaitable[web.Response]]


async def answering(handler: Handler) -> tuple[web.AppRunner, int]:
    app = web.Application()
    app.router.add_get("/{path:.*}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, runner.addresses[0][1]


async def asked(scheme: str, handler: Handler) -> Space:
    runner, port = await answering(handler)
    try:
        async with aiohttp.ClientSession() as session:
            return await space_at(f"{scheme}://127.0.0.1:{port}", session, SECONDS)
    finally:
        await runner.cleanup()


async def nothing(request: web.Request) -> web.Response:
    raise web.HTTPNotFound


async def space(request: web.Request) -> web.Response:
    return web.json_response(text=SPACE.to_json())


def test_what_is_no_broker_is_said_at_once() -> None:
    began = time.monotonic()
    with pytest.raises(Unavailable, match=r"not the client port of a broker .HTTP status 404"):
        asyncio.run(asked("ws", nothing))
    with pytest.raises(Unavailable, match="it does not speak TLS"):
        asyncio.run(asked("wss", space))
    assert time.monotonic() - began < SECONDS


async def refused(request: web.Request) -> web.Response:
    """As the overlay port does."""
    error = f"no page {request.path!r}; there are /overlay"
    raise web.HTTPNotFound(text=json.dumps({"error": error}), content_type="application/json")


async def space_at_the_root(request: web.Request) -> web.Response:
    return await (space if request.path == "/space" else nothing)(request)


@pytest.mark.parametrize(
    ("scheme", "path", "handler", "reason"),
    [
        ("ws", "", refused, "this is the overlay port, for neighbours; clients use the port of --listen"),
        ("ws", "/events", refused, "this is the overlay port"),
        ("ws", "/events", space_at_the_root, "leave out the path '/events': ws://127.0.0.1:PORT"),
        ("http", "/a/connect/", space_at_the_root, "leave out the path '/a/connect': http://127.0.0.1:PORT"),
        ("ws", "/events", nothing, "not the client port of a broker (HTTP status 404)"),
        ("https", "", space, "use ws:// or http:// if the broker has no TLS"),
    ],
)
def test_the_address_that_is_meant_is_said(scheme: str, path: str, handler: Handler, reason: str) -> None:
    async def ask() -> tuple[str, int]:
        runner, port = await answering(handler)
        try:
            async with aiohttp.ClientSession() as session:
                with pytest.raises(Unavailable) as caught:
                    await space_at(checked_url(f"{scheme}://127.0.0.1:{port}{path}"), session, SECONDS)
                return str(caught.value), port
        finally:
            await runner.cleanup()

    said, port = asyncio.run(ask())
    assert reason.replace("PORT", str(port)) in said


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("ws://127.0.0.1:99999", "99999 is not a port (1 to 65535)"),
        ("ws://127.0.0.1:0", "0 is not a port (1 to 65535)"),
        ("ws://127.0.0.1:" + "9" * 5000, "999999999 is not a port"),
        ("ws://127.0.0.1:port", "a URL such as ws://127.0.0.1:7878"),
        ("127.0.0.1:7878", "a URL such as ws://127.0.0.1:7878"),
        ("ws://", "a URL such as ws://127.0.0.1:7878"),
    ],
)
def test_what_is_no_address(url: str, reason: str) -> None:
    with pytest.raises(CallerError, match=re.escape(reason)):
        checked_url(url)


def test_an_unknown_name_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolve(*_: object, **__: object) -> list[object]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async def ask() -> Space:
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
        resolver = aiohttp.ThreadedResolver()
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(resolver=resolver)) as session:
            return await space_at("ws://no.such.host:7878", session, SECONDS)

    began = time.monotonic()
    with pytest.raises(Unavailable, match="no host has this name"):
        asyncio.run(ask())
    assert time.monotonic() - began < SECONDS


def test_a_proxy_in_front_of_a_broker_that_starts_is_asked_again() -> None:
    tries: list[int] = []

    async def starting(request: web.Request) -> web.Response:
        tries.append(len(tries))
        if len(tries) < 3:
            raise web.HTTPBadGateway
        return await space(request)

    assert asyncio.run(asked("ws", starting)).to_json() == SPACE.to_json() and len(tries) == 3
