"""Dialling a neighbour: the socket."""

from __future__ import annotations

from typing import Any

import aiohttp

from thatch.node.connection import Transport


class DialledSocket(aiohttp.ClientWebSocketResponse):
    """The near end of a WebSocket that was dialled, with the transport below it."""

    def __init__(
        self, reader: Any, writer: Any, protocol: str | None, response: aiohttp.ClientResponse, *more: Any, **about: Any
    ) -> None:
        super().__init__(reader, writer, protocol, response, *more, **about)
        connection = response.connection
        self.transport: Transport = None if connection is None else connection.transport
