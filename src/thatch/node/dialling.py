"""Dialling a neighbour: the socket, and why there is none."""

from __future__ import annotations

from typing import Any

import aiohttp

from thatch.client.finding import port_at, unreachable
from thatch.node.connection import Transport
from thatch.protocol.address import without_path


class DialledSocket(aiohttp.ClientWebSocketResponse):
    """The near end of a WebSocket that was dialled, with the transport below it."""

    def __init__(
        self, reader: Any, writer: Any, protocol: str | None, response: aiohttp.ClientResponse, *more: Any, **about: Any
    ) -> None:
        super().__init__(reader, writer, protocol, response, *more, **about)
        connection = response.connection
        self.transport: Transport = None if connection is None else connection.transport


async def why_unreached(error: Exception, url: str, session: aiohttp.ClientSession) -> str:
    """Why a neighbour could not be dialled at this address, for its operator."""
    base, path = without_path(url)
    if isinstance(error, aiohttp.ClientResponseError):
        port = await port_at(base, session)
        if port == "client":
            return "that is a client port: use the overlay port"
        if port == "overlay" and path:
            return f"leave out the path {path!r}: {base}"
    return unreachable(error, "overlay port")
