"""What a client says: messages as its broker can read them, gathered into frames."""

from __future__ import annotations

import asyncio

import aiohttp

from thatch.protocol import wire
from thatch.protocol.codec import encode
from thatch.protocol.kinds import KINDS, Peer
from thatch.protocol.messages import Hello, Message

FRAME = 256 * 1024


class Outbox:
    def __init__(self) -> None:
        self._peer = Peer(False)
        self._waiting: list[bytes] = []
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        """How many messages wait to be written."""
        return len(self._waiting)

    def begin(self, is_extensible: bool) -> None:
        """A connection begins: what waited for the one before is said anew."""
        self._waiting, self._peer = [], Peer(is_extensible)

    def greeted(self, hello: Hello) -> None:
        self._peer = self._peer.greeted(KINDS.agreed(hello))

    def encoded(self, message: Message) -> bytes:
        """As the broker can read it."""
        readable = KINDS.readable(message, self._peer)
        return b"" if readable is None else encode(readable)

    def say(self, message: Message) -> None:
        self.say_encoded(self.encoded(message))

    def say_encoded(self, message: bytes) -> None:
        self._waiting.append(message)
        self._wake.set()

    async def write(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        """Write whatever is said, until the task is cancelled. A broker that does not read answers no ping either."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            parts, self._waiting = self._waiting, []
            at = 0
            while at < len(parts):
                end, size = at, 0
                while end < len(parts) and size < FRAME:
                    size += len(parts[end])
                    end += 1
                await socket.send_bytes(wire.frame(parts[at:end]))
                at = end
