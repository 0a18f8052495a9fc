"""Finding a broker: the address, the space that its events are of, and why it cannot be reached."""

from __future__ import annotations

import asyncio
import errno
import socket
from contextlib import suppress
from typing import Literal

import aiohttp

from thatch.errors import SpaceError, Unavailable
from thatch.protocol.address import without_path
from thatch.space.space import Space

RETRY_SECONDS = 0.05, 1.0
PORT_SECONDS = 2.0  # to find out what listens at an address
NOTHING = "nothing listens there"


async def space_at(url: str, session: aiohttp.ClientSession, seconds: float | None) -> Space:
    """The space of the broker at this address, which may still be starting."""
    page = f"{_http(url)}/space"
    delay, reason = RETRY_SECONDS[0], "it takes connections, but does not answer"
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                try:
                    async with session.get(page) as response:
                        response.raise_for_status()
                        return Space.from_json(await response.read())
                except (OSError, aiohttp.ClientError) as error:
                    reason = unreachable(error)
                    if is_final(error):
                        reason = await _found_instead(error, url, session)
                        raise Unavailable(f"no broker answers at {url}: {reason}") from None
                    if reason == NOTHING:
                        reason += ". `thatch broker` starts one"
                except SpaceError:
                    raise Unavailable(f"what answers at {url} is not the client port of a broker") from None
                await asyncio.sleep(delay)
                delay = min(2 * delay, RETRY_SECONDS[1])
    raise Unavailable(f"no broker answers at {url} within {seconds:g} seconds: {reason}")


def is_final(error: Exception) -> bool:
    """Whether it would fail again: by its name, its certificate or what it answers, this is no broker that starts."""
    if isinstance(error, aiohttp.ClientResponseError):
        return error.status < 500  # a proxy in front of a broker that starts says 502 or 503
    if isinstance(error, aiohttp.ClientSSLError):
        return True
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    return isinstance(cause, socket.gaierror) and cause.errno == socket.EAI_NONAME


async def _found_instead(error: Exception, url: str, session: aiohttp.ClientSession) -> str:
    """Why this is not the client port of a broker, with the address that may be meant."""
    base, path = without_path(url)
    if isinstance(error, aiohttp.ClientResponseError):
        port = await port_at(base, session)
        if port == "overlay":
            return "this is the overlay port, for neighbours; clients use the port of --listen"
        if port == "client" and path:
            return f"leave out the path {path!r}: {base}"
    return unreachable(error)


async def port_at(url: str, session: aiohttp.ClientSession) -> Literal["client", "overlay", ""]:
    """Which port of a broker listens at this address, if one does."""
    with suppress(OSError, aiohttp.ClientError, ValueError):  # also of a page that is no space
        async with asyncio.timeout(PORT_SECONDS), session.get(f"{_http(url)}/space") as response:
            body = await response.read()
            if response.status == 404 and b"/overlay" in body:  # it names the pages that there are
                return "overlay"
            if response.ok and Space.from_json(body):
                return "client"
    return ""


def _http(url: str) -> str:
    return f"http{url[2:]}" if url.startswith("ws") else url


def unreachable(error: Exception, port: str = "client port") -> str:
    """Why the connection to a port of a broker failed, for people."""
    if isinstance(error, aiohttp.ClientResponseError):
        return f"what listens there is not the {port} of a broker (HTTP status {error.status})"
    if isinstance(error, aiohttp.ClientSSLError):
        return "it does not speak TLS, or its certificate is not trusted; use ws:// or http:// if the broker has no TLS"
    if isinstance(error, TimeoutError):
        return "it does not answer"
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, socket.gaierror):
        return "no host has this name"
    number = getattr(cause, "errno", None)
    if number == errno.ECONNREFUSED:
        return NOTHING
    if number in (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT):
        return "there is no way to this host"
    return "it hangs up"
