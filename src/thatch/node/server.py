"""A node: the broker, its store, its two ports, and what happens as time passes."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any

import aiohttp
from aiohttp import web

from thatch.broker import Broker
from thatch.delivery.absences import Absences
from thatch.delivery.admission import restore_attachments
from thatch.delivery.clock import Clock
from thatch.delivery.doors import Doors, expected_of
from thatch.delivery.driver import Driver, Endpoint
from thatch.delivery.outgoing import Gate
from thatch.delivery.queues import Queues
from thatch.delivery.stream import Limits
from thatch.errors import ConfigError, OldCopyError, StoreError, shown
from thatch.node.admin import AdminDoor
from thatch.node.ballast import BYTES as BALLAST_BYTES
from thatch.node.config import Config
from thatch.node.connection import ClientConnection, Connection, NeighbourConnection
from thatch.node.dialling import DialledSocket, why_unreached
from thatch.node.http import BODY_MAX, HttpDoor, answers_in_words
from thatch.node.logs import Seldom
from thatch.node.outgoing import SocketOutgoing
from thatch.node.store import Store
from thatch.protocol.codec import BYTES_MAX
from thatch.protocol.messages import OPERATOR, Extend, LinkDown, Refused
from thatch.protocol.versions import SUBPROTOCOL
from thatch.protocol.wire import CLOSED_FOR_GOING, FRAME_MAX, Notice
from thatch.space.space import Space
from thatch.space.union import union_of

log = logging.getLogger("thatch.node")
TICK_SECONDS = 0.5
DIAL_SECONDS = 0.05  # before a neighbour is dialled again, doubled each time,
REFUSED_SECONDS = 5.0  # up to this, if it refuses this broker or is refused,
CYCLE_SECONDS = 120.0  # or to this, if the link would close a cycle
LASTED_SECONDS = 5.0  # a connection that was not in vain
STATISTICS_SECONDS = 10.0
IMAGE_CHANGES = 5_000  # records that an image may be behind by when nobody is in a hurry
STALLED_SECONDS = 0.2  # a receiver that has not read anything for so long
PATIENCE_SECONDS = 1.0  # how long publishers wait for a client that has much to read; then it is slow
SKIPPED_SECONDS = 60.0  # between lines of the log about skipped messages
# Bytes of control messages for a neighbour: one of version 4 is listed all it is to hold in one message.
CONTROL_MAX = 512 * 2**20


class Node:
    def __init__(
        self,
        config: Config,
        before_commit: Callable[[], None] = lambda: None,
        ballast_bytes: int = BALLAST_BYTES,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`before_commit` and `ballast_bytes` are for the store; `wall` is the clock of the machine."""
        self.config, self._wall = config, wall
        self.started_at = time.monotonic()
        self.gate = Gate()
        self.store = Store(config.store_path, config.name, before_commit=before_commit, ballast_bytes=ballast_bytes)
        try:
            self.driver = self._restored()
        except BaseException:
            self.store.stop()
            raise
        self.queues = Queues(
            self.driver,
            config.retention.queue_bytes_max,
            config.retention.queue_seconds_max,
            config.flow.unacknowledged_bytes_max // 4,
            config.retention.returned_seconds,
        )
        self._absences = Absences(self.driver, config.timing.away_seconds)
        self._before = self.store.statistics()
        admitted = expected_of({row.name: row.state for row in self.store.neighbours()})
        self.doors = Doors(config.name, config.neighbours, config.accept, admitted)
        restore_attachments(self.driver, self.doors)
        self._dialled: set[str] = set()
        self.http, self.admin = HttpDoor(self), AdminDoor(self)
        self.is_ready = False
        self.is_over = asyncio.Event()  # asked to stop, or the store cannot be written any more
        self.failure: Exception | None = None
        self.client_port = self.overlay_port = 0
        self.dropped = 0  # events, for clients that have gone
        self.skipped_count = 0  # messages of kinds that are not known here
        self._skipped_log = Seldom(log, SKIPPED_SECONDS)
        self._away: dict[str, float] = {}  # clients whose plain subscriptions are held until then
        self._notices: dict[str, str] = {}  # for clients that were hung up on
        self._events_seen = 0
        self._image_at = self.store.records_written if self.store.image() is not None else -1
        self._connections: dict[Connection, None] = {}
        self._backlogs: dict[Connection, float] = {}  # since when
        self._tasks: set[asyncio.Task[Any]] = set()
        self._runners: list[web.AppRunner] = []
        self._session: aiohttp.ClientSession | None = None

    def _restored(self) -> Driver:
        config, store = self.config, self.store
        wanted = config.read_space()
        if store.space is None:
            store.set_space(wanted.to_json())
        space = wanted if store.space is None else Space.from_json(store.space)
        broker = Broker.restored(config.name, space, store.records(), config.settings(), image=store.image())
        grown, conflicts = union_of(broker.space, wanted)
        if conflicts:
            raise StoreError(
                f"store {store.path} has the space {broker.space}; the configuration says {wanted}. A space can only "
                f"grow: by nullable attributes and by values of enums, at the end. {'; '.join(conflicts)}"
            )
        self._grown = grown if grown != broker.space else None
        flow, retention = config.flow, config.retention
        limits = Limits(
            bytes_max=retention.neighbour_bytes_max,
            seconds_max=retention.neighbour_seconds_max,
            memory_bytes_max=flow.neighbour_bytes_max,
            unacknowledged_bytes_max=flow.unacknowledged_bytes_max,
        )
        clock = Clock(self._wall, time.monotonic, store.ran)
        driver = Driver(broker, store, limits, clock, self.gate.open)
        for link in broker.links.values():
            if not link.is_client:
                driver.stream(link.name)
        return driver

    # --- Start and stop ----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.queues.restore()
        now = self.driver.clock()
        for link in self.driver.broker.links.values():
            if link.is_client and not self.queues.is_queue(link.name):
                self._away[link.name] = now + self.config.timing.linger_seconds
        if self._grown is not None:
            log.info("the space grows to %s", self._grown)
            self.driver.take(Extend(0, self._grown.to_json()), OPERATOR)
        self.store.start(loop.call_soon_threadsafe, self.driver.committed, self._store_failed)
        self._session = aiohttp.ClientSession(ws_response_class=DialledSocket)
        clients = web.Application(client_max_size=BODY_MAX, middlewares=[answers_in_words])
        clients.router.add_get("/connect", self._accept_client)
        self.http.add_routes(clients)
        overlay = web.Application(middlewares=[answers_in_words])
        overlay.router.add_get("/overlay", self._accept_neighbour)
        self.overlay_port = await self._listen(overlay, self.config.overlay.host, self.config.overlay.port)
        self.client_port = await self._listen(clients, self.config.client.host, self.config.client.port)
        for name in (*self.config.neighbours, *(row.name for row in self.driver.attachments)):
            self.dial(name)
        self.spawn(self._pass_time())
        await self.admin.start()
        self.is_ready = True
        log.info(
            "broker %s is ready: clients at %s:%d, neighbours at %s:%d, %d subscriptions, store %s",
            self.config.name, self.config.client.host, self.client_port,
            self.config.overlay.host, self.overlay_port, self.driver.broker.table_size(), self.store.path,
        )  # fmt: skip

    async def _listen(self, app: web.Application, host: str, port: int) -> int:
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
        await runner.setup()
        self._runners.append(runner)
        site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except OSError as error:
            raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}") from None
        bound: int = runner.addresses[0][1]
        return bound

    async def stop(self) -> None:
        """Take nothing new, write what is left, close."""
        self.is_ready = False
        for runner in self._runners:
            for site in list(runner.sites):
                await site.stop()
        for task in list(self._tasks):
            task.cancel()
        for connection in list(self._connections):
            connection.close("the broker stops", CLOSED_FOR_GOING)
        self.http.stop()
        await self.admin.stop()
        for _ in range(20):
            if not self._connections:
                break
            await asyncio.sleep(0.05)
        for runner in self._runners:
            await runner.cleanup()
        if self._session is not None:
            await self._session.close()
        self._note_statistics()
        self._keep_image(0)
        await asyncio.to_thread(self.store.stop)
        log.info("broker %s has stopped", self.config.name)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a task failed", exc_info=task.exception())

    def _store_failed(self, error: Exception) -> None:
        log.critical("the store cannot be written any more: %s", error)
        self.is_ready = False
        self.failure = error
        self.is_over.set()

    # --- Those who come ----------------------------------------------------------------------------------------------

    async def _accept_client(self, request: web.Request) -> web.WebSocketResponse:
        if not self.is_ready:
            raise web.HTTPServiceUnavailable(text="the broker stops")
        socket = web.WebSocketResponse(
            heartbeat=self.config.timing.client_heartbeat_seconds,
            compress=False,
            max_msg_size=FRAME_MAX + 1024,
            protocols=(SUBPROTOCOL,),
        )
        await socket.prepare(request)
        flow = self.config.flow
        outgoing = SocketOutgoing(self.gate, flow.client_bytes_max, flow.slow_client == "drop", flow.control_bytes_max)
        await self._serve(ClientConnection(self, socket, outgoing, request.transport))
        return socket

    async def _accept_neighbour(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(
            heartbeat=self.config.timing.heartbeat_seconds,
            compress=False,
            max_msg_size=BYTES_MAX,
            protocols=(SUBPROTOCOL,),
        )
        await socket.prepare(request)
        await self._serve(NeighbourConnection(self, socket, self._to_neighbour(), request.transport))
        return socket

    def _to_neighbour(self) -> SocketOutgoing:
        return SocketOutgoing(
            self.gate, 2**62, False, CONTROL_MAX, is_open=False
        )  # the window of its stream bounds events

    async def _serve(self, connection: Connection) -> None:
        self._connections[connection] = None
        try:
            await connection.run()
        finally:
            del self._connections[connection]

    def dialled_at(self, name: str) -> str:
        """Where a neighbour is dialled; empty if it dials. What an operator says goes before the settings."""
        return self.driver.attachments.url_of(name) or self.config.neighbours.get(name, "")

    def dial(self, name: str) -> None:
        """If it is to be dialled, and is not yet."""
        if name not in self._dialled and self.dialled_at(name):
            self._dialled.add(name)
            self.spawn(self._dial(name))

    async def _dial(self, name: str) -> None:
        """As long as the node runs, whatever happens: nobody else would dial this neighbour. One that refuses is asked
        less and less often, and one that is lost not before it is forgotten."""
        delay, timing = DIAL_SECONDS, self.config.timing
        reasons = set[str]()  # why it could not be reached: each is said once
        while url := self.dialled_at(name):
            if name not in self.driver.endpoints and not self.doors.is_lost(name):
                began, pause = time.monotonic(), 0.0
                try:
                    pause = await self._dial_once(name, url.rstrip("/") + "/overlay")
                    reasons.clear()
                except (OSError, aiohttp.ClientError, TimeoutError) as error:
                    assert self._session is not None
                    reason = await why_unreached(error, url, self._session)
                    if reason not in reasons:
                        reasons.add(reason)
                        log.warning("cannot reach neighbour %s at %s: %s", name, url, reason)
                except Exception as error:
                    count = self.driver.refusals.note("protocol", name, str(error), self.driver.clock())
                    log.log(logging.ERROR if count else logging.DEBUG, "neighbour %s at %s", name, url, exc_info=True)
                has_lasted = time.monotonic() - began > LASTED_SECONDS and not pause
                delay = DIAL_SECONDS if has_lasted else min(2 * delay, max(timing.retry_seconds_max, pause))
            await asyncio.sleep(delay * random.uniform(0.8, 1.2))
        self._dialled.discard(name)

    async def _dial_once(self, name: str, url: str) -> float:
        """Until the connection ends. If one side refused the other, the longest pause between tries from then on."""
        assert self._session is not None
        wait = aiohttp.ClientWSTimeout(ws_close=1.0)
        async with asyncio.timeout(self.config.timing.dial_seconds_max):
            socket = await self._session.ws_connect(
                url,
                heartbeat=self.config.timing.heartbeat_seconds,
                max_msg_size=BYTES_MAX,
                timeout=wait,
                protocols=(SUBPROTOCOL,),
            )
        assert isinstance(socket, DialledSocket)
        try:
            connection = NeighbourConnection(self, socket, self._to_neighbour(), socket.transport, name)
            await self._serve(connection)
        finally:
            await socket.close()
        return CYCLE_SECONDS if connection.closes_cycle else REFUSED_SECONDS if connection.was_refused else 0.0

    def client_resumed(self, name: str) -> None:
        """A client is there, and does not go with those that are away."""
        self._away.pop(name, None)

    def client_connected(self, connection: ClientConnection) -> None:
        self._away.pop(connection.name, None)
        notice = self._notices.pop(connection.name, None)
        if notice is not None:
            connection.send(Notice("", 0, f"hung up on before: {notice}"))

    def is_neighbour(self, name: str) -> bool:
        """Whether a name is that of a neighbour, which may be away, or may not have come yet."""
        link = self.driver.broker.links.get(name)
        return self.doors.is_expected(name) or (link is not None and not link.is_client)

    def give_name_to_neighbour(self, name: str) -> None:
        """A neighbour comes: a client that has its name is hung up on, and its plain subscriptions go."""
        link, connection = self.driver.broker.links.get(name), self.driver.endpoints.get(name)
        if link is None or not link.is_client:
            return
        if isinstance(connection, ClientConnection):
            reason = f"{name!r} is the name of a neighbour of this broker, which has come"
            connection.send_refusal(Refused(0, "", reason, code="name"), close=True)
            connection.ended()
        self._away.pop(name, None)
        self._notices.pop(name, None)
        self.driver.take(LinkDown(forget=True), name)

    def hang_up(self, name: str, reason: str) -> None:
        """On who is connected under this name, at once."""
        connection = self.driver.endpoints.get(name)
        if isinstance(connection, Connection):
            connection.close(reason, CLOSED_FOR_GOING)
            connection.ended()

    def client_left(self, connection: ClientConnection) -> None:
        self.dropped += connection.outgoing.dropped
        self._away[connection.name] = self.driver.clock() + self.config.timing.linger_seconds
        if connection.overflowed:
            self._notices[connection.name] = connection.reason

    def end_as_old_copy(self, neighbour: str, reason: str) -> None:
        if self.is_over.is_set():
            return
        self.gate.shut()
        self.is_ready = False
        self.failure = OldCopyError(
            f"neighbour {neighbour!r} refuses store {self.store.path}, which is an old copy, or another copy of it is "
            f"in use. To go on with this one, run `thatch admin accept {self.config.name}` at {neighbour!r}, and start "
            "again"
        )
        log.critical("%s: %s", self.failure, reason)
        self.is_over.set()

    def note_skipped(self, kind: str, peer: str) -> None:
        self.skipped_count += 1
        text = "%s sends %s, which this version does not know and may ignore; %d such messages were skipped so far"
        self._skipped_log.info(text, peer, shown(kind), self.skipped_count)

    # --- Time --------------------------------------------------------------------------------------------------------

    def note_backlog(self, connection: Connection) -> None:
        """A client has much to read."""
        self._backlogs.setdefault(connection, asyncio.get_running_loop().time())

    async def wait_for_backlog(self, but: Endpoint | None = None) -> None:
        """Whoever brings events waits for receivers that have much to read and are reading: for a client a moment, for
        a neighbour as long as it reads. For one that has stalled nobody waits."""
        for _ in range(100):
            if not self._has_backlog(but):
                return
            await asyncio.sleep(0.002)

    def _has_backlog(self, but: Endpoint | None) -> bool:
        now = asyncio.get_running_loop().time()
        for each, since in list(self._backlogs.items()):
            if each not in self._connections or not each.is_filled:
                del self._backlogs[each]
            elif each.moved_at > now - STALLED_SECONDS and since > now - PATIENCE_SECONDS and each is not but:
                return True
        limit = self.config.flow.neighbour_bytes_max // 2
        for name, stream in self.driver.streams.items():
            if stream.waiting_bytes > limit:
                end = self.driver.endpoints.get(name)
                if isinstance(end, Connection) and end.moved_at > now - STALLED_SECONDS and end is not but:
                    return True
        return False

    async def _pass_time(self) -> None:
        saved = self.driver.clock()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = self.driver.clock()
            self.driver.pass_time()
            self._absences.tick(self.driver.clock.ran)
            self.queues.tick()
            for name in [name for name, until in self._away.items() if until < now]:
                del self._away[name]
                self._notices.pop(name, None)
                if not self.is_neighbour(name):
                    self.driver.take(LinkDown(forget=True), name)
            for connection in list(self._connections):
                if isinstance(connection, NeighbourConnection) and not self.store.is_full:
                    await connection.take_postponed()
            self._keep_image(IMAGE_CHANGES)
            if now - saved > STATISTICS_SECONDS:
                saved = now
                self._note_statistics()

    def _keep_image(self, changes: int) -> None:
        """Of what was worked out, if much was and no event has come since the last tick: it takes a moment."""
        events, records = self.totals()["events_in"], self.store.records_written
        is_idle, self._events_seen = events == self._events_seen, events
        if changes and not (is_idle and records - self._image_at >= changes and not self.store.is_full):
            return
        if records != self._image_at:
            self._image_at = records
            self.store.set_image(self.driver.broker.image())

    # --- Inspection --------------------------------------------------------------------------------------------------

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    @property
    def dropped_count(self) -> int:
        """Events that slow clients have lost."""
        return self.dropped + sum(each.outgoing.dropped for each in self._connections)

    def totals(self) -> dict[str, int]:
        """Events taken in and sent out, over all lives of the store."""
        broker = self.driver.broker
        counts = [broker.counts_of_gone, *(link.counts for link in broker.links.values())]
        now = {name: sum(getattr(each, name) for each in counts) for name in ("events_in", "events_out")}
        return {name: value + self._before.get(name, 0) for name, value in now.items()}

    def _note_statistics(self) -> None:
        self.store.note_ran(self.driver.clock.ran)
        self.store.note_statistics(self.totals())
