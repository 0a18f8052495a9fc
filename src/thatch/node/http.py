"""The client port for people and browsers: publish with curl, read as server-sent events, look at the node.

curl -N -G localhost:7878/subscribe --data-urlencode "where=price < 20 AND symbol = 'A'"
curl -d '{"price": 12.5, "symbol": "A"}' localhost:7878/events
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from thatch.broker.waits import Missing
from thatch.delivery.driver import DISK_FULL, Driver, Outcome
from thatch.delivery.local_client import LocalClient
from thatch.errors import CallerError, unknown
from thatch.node.cloudevents import is_cloud_event, read_cloud_events
from thatch.node.host import Host
from thatch.node.metrics import metrics
from thatch.node.outgoing import reached
from thatch.protocol.codec import event_json
from thatch.protocol.ids import ADVERTISEMENTS, SUBSCRIPTIONS, event_prefix, inner_name
from thatch.protocol.messages import Message, Publish, Refused
from thatch.space.json_values import read_json, typed_event

log = logging.getLogger("thatch.node")
GAPS_SHOWN = 1_000
SETTLE_SECONDS = 10.0
ALIVE_SECONDS = 15.0  # between comments to a reader to whom nothing else is sent
BODY_MAX = 4 * 2**20


class HttpPublisher(LocalClient):
    """Whoever publishes over HTTP, as one client that advertises everything."""

    def __init__(self, driver: Driver) -> None:
        super().__init__(driver, inner_name("http"))
        self.changed = asyncio.Event()
        self._refusal = ""

    def event_id(self, own: str) -> str:
        """The id of an event; with one of its `own` it is the same at every broker at which it may be published."""
        return event_prefix(self.name) + own if own else self.client.next_event_id()

    def send_refusal(self, refused: Refused, close: bool) -> None:
        self._refusal = refused.reason

    def take_refusal(self) -> str:
        """Why the last event was refused; empty if it was not."""
        refusal, self._refusal = self._refusal, ""
        return refusal

    def on_message(self, message: Message) -> None:
        self.changed.set()


class _Refusal(msgspec.Struct):
    event: int  # its place in the request
    error: str


class HttpReader(LocalClient):
    """One who reads server-sent events: at most once, the oldest go if it is slow."""

    def __init__(self, driver: Driver, name: str, bytes_max: int) -> None:
        super().__init__(driver, name)
        self.changed = asyncio.Event()
        self.dropped = 0
        self._bytes_max, self._bytes = bytes_max, 0
        self._events: deque[bytes] = deque()

    def on_message(self, message: Message) -> None:
        self.changed.set()

    def deliver(self, ids: tuple[str, ...], event: bytes) -> None:
        self._events.append(event)
        self._bytes += len(event)
        while self._bytes > self._bytes_max and len(self._events) > 1:
            self._bytes -= len(self._events.popleft())
            self.dropped += 1
        self.changed.set()

    def take(self) -> list[bytes]:
        events, self._events, self._bytes = list(self._events), deque(), 0
        return events


class HttpDoor:
    def __init__(self, node: Host) -> None:
        self.node = node
        self._publisher: HttpPublisher | None = None
        self._readers: dict[str, HttpReader] = {}
        self._count = 0
        self._is_stopping = False

    def add_routes(self, app: web.Application) -> None:
        app.router.add_post("/events", self._post)
        app.router.add_get("/subscribe", self._subscribe)
        app.router.add_get("/healthz", self._health)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/space", self._space)
        app.router.add_get("/tables", self._tables)

    def stop(self) -> None:
        self._is_stopping = True
        for reader in self._readers.values():
            reader.changed.set()

    # --- Publishing --------------------------------------------------------------------------------------------------

    async def _post(self, request: web.Request) -> web.Response:
        try:
            events = self._read(request, await request.read())
            publisher = await self._advertised()
        except CallerError as error:
            return _answer({"error": str(error)}, 400)
        except web.HTTPRequestEntityTooLarge:
            return _answer({"error": f"the body is too large: at most {BODY_MAX:,} bytes are read"}, 400)
        except TimeoutError:
            return _answer({"error": "neighbours are away: what is published now might miss somebody; try again"}, 503)
        ticket = 0
        refused: list[_Refusal] = []
        driver = self.node.driver
        for at, (id, values, payload) in enumerate(events):
            event = Publish(publisher.event_id(id), values, payload)
            outcome = publisher.publish(event)
            if outcome is Outcome.KEPT:
                ticket = driver.journal.ticket
            reason = DISK_FULL.format(driver.broker.name) if outcome is Outcome.REFUSED else ""
            reason = publisher.take_refusal() or reason
            if reason:
                refused.append(_Refusal(at, reason))
        await reached(self.node.gate, ticket)
        answer = {"published": len(events) - len(refused), "refused": refused}
        return _answer(answer, 200 if not refused else 507 if driver.journal.is_full else 400)

    def _read(self, request: web.Request, body: bytes) -> list[tuple[str, dict[str, Any], bytes]]:
        """(id or "", values, payload) of each event."""
        if len(body) > BODY_MAX:
            raise CallerError(f"a body of {len(body):,} bytes; at most {BODY_MAX:,} are read")
        space = self.node.driver.broker.open_space
        if is_cloud_event(request.headers):
            return read_cloud_events(request.headers, body, space)
        given = read_json(body, "the body", dict[str, Any] | list[dict[str, Any]])
        events = given if isinstance(given, list) else [given]
        return [("", typed_event(each, space, unknown=True), b"") for each in events]

    async def _advertised(self) -> HttpPublisher:
        """The publisher, once everybody knows that it may publish anything."""
        driver, publisher = self.node.driver, self._publisher
        if publisher is None:
            publisher = self._publisher = HttpPublisher(driver)
            self.node.client_resumed(publisher.name)
            publisher.connect()
            if driver.broker.settings.routing == "advertisements":
                publisher.send_all(publisher.client.advertise(publisher.home, "all", "TRUE"))
        async with asyncio.timeout(SETTLE_SECONDS):
            while publisher.client.missing(publisher.home, ADVERTISEMENTS, "all") is None:
                publisher.changed.clear()
                await publisher.changed.wait()
        return publisher

    # --- Reading -----------------------------------------------------------------------------------------------------

    async def _subscribe(self, request: web.Request) -> web.StreamResponse:
        strangers = [name for name in request.query if name != "where"]
        if strangers:
            known = unknown("parameter", strangers[0], ["where"])
            return _answer({"error": f"{known}: write where=…, with & in the clause as %26"}, 400)
        if "where" not in request.query:
            return _answer({"error": "where is missing: write where=TRUE for everything"}, 400)
        where = request.query["where"]
        driver = self.node.driver
        try:
            driver.broker.check_clause(where)
        except CallerError as error:
            return _answer({"error": str(error)}, 400)
        self._count += 1
        name = inner_name(f"reader{self._count}")
        reader = self._readers[name] = HttpReader(driver, name, self.node.config.flow.client_bytes_max)
        self.node.client_resumed(name)
        reader.connect()
        reader.send_all(reader.client.subscribe(reader.home, "s", where))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        try:
            await response.prepare(request)
            await self._write(reader, response)
        except ConnectionError:
            pass
        finally:
            del self._readers[name]
            driver.gone(name, reader, forget=True)
        return response

    async def _write(self, reader: HttpReader, response: web.StreamResponse) -> None:
        is_settled, dropped = False, 0
        missing = Missing()
        decoder = msgspec.msgpack.Decoder(Publish)
        while not self._is_stopping:
            parts = []
            if not is_settled and reader.client.is_settled(reader.home, SUBSCRIPTIONS, "s"):
                is_settled = True
                parts.append("event: settled\ndata: {}\n\n")
            found = reader.client.missing(reader.home, SUBSCRIPTIONS, "s") or Missing()
            if found.brokers and found != missing:
                parts.append(f"event: settled-except\ndata: {msgspec.json.encode(found.names).decode()}\n\n")
            missing = found
            events = reader.take()
            if reader.dropped > dropped:
                parts.append(f'event: dropped\ndata: {{"count":{reader.dropped - dropped}}}\n\n')
                dropped = reader.dropped
            for event in map(decoder.decode, events):
                parts.append(f"id: {event.id}\ndata: {event_json(event).decode()}\n\n".replace("\r", ""))
            if parts:
                await response.write("".join(parts).encode())
                continue
            reader.changed.clear()
            try:
                async with asyncio.timeout(ALIVE_SECONDS):
                    await reader.changed.wait()
            except TimeoutError:
                await response.write(b": alive\n\n")

    # --- Looking -----------------------------------------------------------------------------------------------------

    async def _health(self, request: web.Request) -> web.Response:
        node = self.node
        links = node.driver.broker.links.values()
        neighbours = {each.name: each.is_synced for each in links if not each.is_client}
        neighbours = dict.fromkeys(node.config.neighbours, False) | neighbours
        state = {
            "name": node.config.name,
            "ready": node.is_ready,
            "store": "full" if node.store.is_full else "ok",
            "neighbours": neighbours,
            "gaps": [
                {"peer": peer.name, "side": side, "since": since, "until": until, "count": missing}
                for _, peer, side, since, until, missing in node.driver.gaps[-GAPS_SHOWN:]
            ],
        }
        return _answer(state, 200 if node.is_ready else 503)

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(text=metrics(self.node), content_type="text/plain", charset="utf-8")

    async def _space(self, request: web.Request) -> web.Response:
        return web.Response(text=self.node.driver.broker.open_space.to_json(), content_type="application/json")

    async def _tables(self, request: web.Request) -> web.Response:
        """What came over each link, and what each neighbour was sent."""
        broker = self.node.driver.broker
        links = {}
        for name, link in broker.links.items():
            shown: dict[str, Any] = {"client": link.is_client, "up": link.is_up, "durable": link.is_durable}
            for table in (SUBSCRIPTIONS, ADVERTISEMENTS):
                shown[table] = {"received": broker.received_from(table, name)}
                if not link.is_client:
                    shown[table]["sent"] = broker.outbound(table, name).forwarded()
            links[name] = shown
        return _answer({"name": broker.name, "links": links}, 200)


@web.middleware
async def answers_in_words(request: web.Request, handler: Handler) -> web.StreamResponse:
    """What no page answers, as JSON with what to do."""
    try:
        return await handler(request)
    except web.HTTPNotFound:
        pages = [each.canonical for each in request.app.router.resources()]
        return _answer({"error": unknown("page", request.path, pages)}, 404)
    except web.HTTPMethodNotAllowed as error:
        methods = " or ".join(sorted(error.allowed_methods - {"HEAD"}))
        reason = f"{request.path} takes {methods}, not {request.method}"
        return web.Response(
            body=msgspec.json.encode({"error": reason}) + b"\n",
            status=405,
            content_type="application/json",
            headers={"Allow": ", ".join(sorted(error.allowed_methods))},
        )
    except web.HTTPBadRequest:
        if request.path not in ("/connect", "/overlay"):
            return _answer({"error": "the request is malformed"}, 400)
        return _answer({"error": f"{request.path} is for programs that speak WebSocket: see `thatch subscribe`"}, 400)


def _answer(value: Any, status: int) -> web.Response:
    return web.Response(body=msgspec.json.encode(value) + b"\n", status=status, content_type="application/json")
