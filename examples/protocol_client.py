"""A client of a broker, written from docs/protocol.md without the library: a model for one in another language.

    python examples/protocol_client.py subscribe 'price < 20'
    python examples/protocol_client.py subscribe 'price < 20' --name ann --durable alerts
    python examples/protocol_client.py publish '{"price": 12.5}' '{"price": 30}'

Events go to standard output, each as a line of JSON, and everything else to standard error. When the connection is
lost, the client opens another one and goes on. After `kill -9`, of the client or of the broker, a durable subscription
goes on behind the last event that was acknowledged.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import secrets
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from math import inf
from typing import Any, NamedTuple

import aiohttp
import msgspec

UNCOUNTED_MAX = 1_000  # events that are sent and that `Published` has not counted
DONE_MAX = 100_000  # events whose ids are remembered, to know copies
PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.1, 5.0  # before another connection


class Refusal(Exception):
    """One side does not take what the other says: the same again would end in the same way."""


class Received(NamedTuple):
    """An event. One of a durable subscription has a number, and is acknowledged in the session in which it came."""

    id: str
    values: dict[str, Any]
    durable: str = ""
    number: int = 0
    session: int = 0


class Client:
    """What a program wants and publishes, over as many connections as it takes."""

    def __init__(self, url: str, name: str) -> None:
        self.url, self.name = url, name
        self.subscriptions: dict[str, list[Any]] = {}  # id: [clause, lease]
        self.advertisements: dict[str, list[Any]] = {}
        self.durable: dict[str, list[Any]] = {}  # id: its `DurableSubscribe`
        self.settled_durable: set[str] = set()
        self.refused: dict[str, str] = {}  # id of a subscription, an advertisement or an event: the reason
        self.events: asyncio.Queue[Received] = asyncio.Queue()
        self.done: dict[tuple[str, str], None] = {}  # (durable subscription, event), oldest first
        self.pending: deque[list[Any]] = deque()  # `Publish` messages that `Published` has not counted
        self.socket: aiohttp.ClientWebSocketResponse | None = None
        self.session = self.numbered = 0  # the session, and how many numbered messages it has
        self.sent = self.counted = 0  # events of this session: sent, counted by `Published`
        self.settled = self.synced = 0  # numbers: of the last `Settled`, of the `Synced` of this session
        self.changed = asyncio.Event()

    async def run(self, program: Coroutine[Any, Any, None]) -> None:
        """The program, with a connection beside it until it ends."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._stay_connected()), group.create_task(self._publish_pending())]
            await program
            for task in tasks:
                task.cancel()

    async def subscribe(self, id: str, where: str) -> None:
        """Returns when no matching event is missed any longer."""
        await self._settle("Subscribe", self.subscriptions, id, where)

    async def advertise(self, id: str, where: str) -> None:
        """Returns when events in this region may be published."""
        await self._settle("Advertise", self.advertisements, id, where)

    async def subscribe_durably(self, id: str, where: str, bytes_max: int = 2**24, seconds_max: float = 1e5) -> None:
        """Returns when no matching event is missed any longer. Those that were kept come before."""
        self.durable[id] = ["Keep", id, where, bytes_max, seconds_max]
        await self._send(self.durable[id])
        await self._until(lambda: id in self.settled_durable, id)

    async def publish(self, events: list[dict[str, Any]]) -> None:
        """Returns when the broker has dealt with all of them; `refused` has those that it did not take."""
        prefix = f"{self.name}:{secrets.token_hex(8)}"  # no two events have the same id
        self.pending += [["Publish", f"{prefix}:{n}", values] for n, values in enumerate(events)]
        self._notify()
        await self._until(lambda: not self.pending)

    async def received(self) -> AsyncIterator[Received]:
        """The events, as they come. What is acknowledged before the next one is asked for does not come again."""
        while True:
            event = await self.events.get()
            if (event.durable, event.id) in self.done:
                await self.acknowledge(event)  # a copy
            else:
                yield event

    async def acknowledge(self, event: Received) -> None:
        """The program is done with it. If it came in an earlier session, its copy will be acknowledged instead."""
        self.done[event.durable, event.id] = None
        if len(self.done) > DONE_MAX:
            del self.done[next(iter(self.done))]
        if event.durable and event.session == self.session:
            await self._send(["Done", event.durable, event.number])

    async def _settle(self, tag: str, table: dict[str, list[Any]], id: str, where: str) -> None:
        """Say it, and wait until this or the `Synced` of a later session has settled."""
        table[id] = [where, None]
        self.refused.pop(id, None)
        self.numbered += 1
        seq = self.session << 32 | self.numbered
        await self._send([tag, seq, id, where])
        try:
            await self._until(lambda: self.settled >= seq, id)
        except Refusal:
            del table[id]
            raise

    async def _until(self, holds: Callable[[], bool], id: str = "") -> None:
        """Wait until it holds. An error if this id is refused; "" stands for the connection as a whole."""
        while not holds() and id not in self.refused:
            await self.changed.wait()
        if id in self.refused:
            raise Refusal(self.refused[id])

    def _notify(self) -> None:
        self.changed.set()  # wakes all that wait now
        self.changed.clear()

    async def _send(self, *messages: list[Any]) -> None:
        """A frame. Without a connection it is not needed: the next session begins by saying everything."""
        if self.socket is not None:
            with contextlib.suppress(ConnectionError):
                await self.socket.send_bytes(msgspec.msgpack.encode(messages))

    async def _stay_connected(self) -> None:
        """One connection after the other. Pauses grow until something settles."""
        pause = PAUSE_SECONDS_MIN
        async with aiohttp.ClientSession(self.url, raise_for_status=True) as http:
            while True:
                settled = self.settled
                try:
                    await self._connect(http)
                except (OSError, aiohttp.ClientError, msgspec.DecodeError) as error:
                    print(f"no connection: {error}", file=sys.stderr)
                pause = PAUSE_SECONDS_MIN if self.settled > settled else min(2 * pause, PAUSE_SECONDS_MAX)
                await asyncio.sleep(pause)

    async def _connect(self, http: aiohttp.ClientSession) -> None:
        """A connection, from beginning to end."""
        async with http.get("/space") as answer:
            space = await answer.text()
        async with http.ws_connect("/connect", protocols=["thatch"], heartbeat=30, max_msg_size=2**26) as socket:
            if socket.protocol != "thatch":
                raise Refusal("the broker speaks version 2 only")
            self.session, self.numbered = max(self.session + 1, int(time.time())), 1
            self.synced, self.sent, self.counted, self.socket = self.session << 32 | 1, 0, 0, socket
            await self._send(
                ["Hello", self.name, self.session, space, True, 2, [], False, "", 3, 0, {"digest": "none"}],
                ["Synced", self.synced, 1, {0: self.subscriptions}, {0: self.advertisements}],
                *self.durable.values(),
            )
            while (frame := await socket.receive()).type is aiohttp.WSMsgType.BINARY:
                for message in msgspec.msgpack.decode(frame.data, type=list[list[Any]]):
                    await self._take(message)
                self._notify()
        if frame.data in (1008, 1009, 4001):
            raise Refusal(self.refused.get("", f"the broker hung up: {frame.extra}"))

    async def _publish_pending(self) -> None:
        """When the advertisements have settled, send all that is pending, again in each session."""
        while True:
            await self._until(
                lambda: self.settled >= self.synced and self.sent - self.counted < min(len(self.pending), UNCOUNTED_MAX)
            )
            self.sent += 1
            await self._send(self.pending[self.sent - self.counted - 1])

    async def _take(self, message: list[Any]) -> None:
        match message:
            case ["Event", _, ["Publish", id, values, *_], *_]:
                self.events.put_nowait(Received(id, values))
            case ["Kept", durable, number, ["Publish", id, values, *_], *_]:
                self.events.put_nowait(Received(id, values, durable, number, self.session))
            case ["Settled", int(seq), *_]:
                self.settled = seq
            case ["Published", int(count), *_]:
                for _ in range(count - self.counted):
                    self.pending.popleft()
                self.counted = count
            case ["Refused", _, id, reason, *_] | ["Standing", id, _, "refused", reason, *_]:
                self.refused[id] = reason
                print(f"refused: {id} {reason}", file=sys.stderr)
            case ["Standing", id, _, "settled", *_]:
                self.settled_durable.add(id)
            case ["Notice", id, count, reason, *_]:
                print(f"{count} events were lost: {id} {reason}", file=sys.stderr)
            case ["Hello" | "Accepted" | "Standing", *_]:
                pass  # this client waits until it has settled
            case [str(tag), *_] if "a" <= tag[:1] <= "z":
                pass  # a kind that may be ignored
            case [tag, *fields]:
                seq = fields[0] if fields and isinstance(fields[0], int) else 0
                await self._send(["Refused", seq, "", f"this client does not know {tag!r}", "", "kind"])
                raise Refusal(f"the broker says {tag!r}, which this client does not know")


async def publish(client: Client, options: argparse.Namespace) -> None:
    await client.advertise("all", "TRUE")
    await client.publish([msgspec.json.decode(event) for event in options.arguments])
    print(f"published {len(options.arguments) - len(client.refused)} events", file=sys.stderr)


async def subscribe(client: Client, options: argparse.Namespace) -> None:
    (where,) = options.arguments
    await (client.subscribe_durably(options.durable, where) if options.durable else client.subscribe("clause", where))
    print("settled", file=sys.stderr)
    async for event in client.received():
        print(msgspec.json.encode({"id": event.id, "event": event.values}).decode(), flush=True)
        if len(client.done) < options.acknowledge:
            await client.acknowledge(event)


def main() -> None:
    commands = {"publish": publish, "subscribe": subscribe}
    parser = argparse.ArgumentParser(description="A client of a Thatch broker.")
    parser.add_argument("command", choices=commands)
    parser.add_argument("arguments", nargs="+", help="events, as JSON objects; or a clause")
    parser.add_argument("--url", default="http://127.0.0.1:7878")
    parser.add_argument("--name", help="of the client (default: the command)")
    parser.add_argument("--durable", default="", metavar="ID", help="events are kept while the client is away")
    parser.add_argument("--acknowledge", type=float, default=inf, metavar="COUNT", help="no more events than this")
    options = parser.parse_args()
    client = Client(options.url, options.name or options.command)
    try:
        asyncio.run(client.run(commands[options.command](client, options)))
    except* Refusal as refusals:
        sys.exit(f"gave up: {refusals.exceptions[0]}")
    except* KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
