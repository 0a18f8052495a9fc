"""Finding a broker: the address, the space that its events are of, and why it cannot be reached."""

from __future__ import annotations

import asyncio
import errno
import socket
from contextlib import suppress
from urllib.parse import urlsplit

import aiohttp

from thatch.errors import CallerError, SpaceError, Unavailable, shown
from thatch.space.space import Space

RETRY_SECONDS = 0.05, 1.0
SCHEMES = ("ws", "wss", "http", "https")


def checked_url(url: str) -> str:
    """The address of a broker's client port, without a slash at its end.

    >>> checked_url("ws://127.0.0.1:7878/")
    'ws://127.0.0.1:7878'
    """
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        is_usable = False
    if not is_usable:
        raise CallerError(f"the address of a broker is a URL such as ws://127.0.0.1:7878, not {shown(url)}")
    return url.rstrip("/")


async def space_at(url: str, session: aiohttp.ClientSession, seconds: float) -> Space:
    """The space of the broker at this address, which may still be starting."""
    page = f"http{url[2:]}/space" if url.startswith("ws") else f"{url}/space"
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
                        raise Unavailable(f"no broker answers at {url}: {reason}") from None
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


def unreachable(error: Exception) -> str:
    """Why a connection failed, for people."""
    if isinstance(error, aiohttp.ClientResponseError):
        return f"what listens there is not the client port of a broker (HTTP status {error.status})"
    if isinstance(error, aiohttp.ClientSSLError):
        return "it does not speak TLS, or its certificate is not trusted"
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, socket.gaierror):
        return "no host has this name"
    number = getattr(cause, "errno", None)
    if number == errno.ECONNREFUSED:
        return "nothing listens there. `thatch broker` starts one"
    if number in (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT):
        return "there is no way to this host"
    return "it hangs up"
