"""The operator's door: a Unix socket beside the store, which only the user of the broker can use (mode 0600).

asking.py has what is said. What a request takes is bounded: its bytes, the seconds until it is there, and how many are
served at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

import thatch
from thatch.delivery.admission import accept, attach, check_known, forget, why_unsettled
from thatch.errors import CallerError, StoreError, ThatchError, check_regular, shown, what_is_no_file
from thatch.node import backup
from thatch.node.asking import (
    REQUEST_BYTES_MAX,
    Accept,
    Answer,
    Attach,
    Backup,
    Forget,
    Links,
    MoveQueue,
    Progress,
    Request,
    address_of,
    socket_beside,
)
from thatch.node.damage import sentence_of
from thatch.node.host import Host
from thatch.node.moving import move_queue
from thatch.node.outgoing import reached
from thatch.node.schema import COUNT_EVENTS, peer_row
from thatch.protocol.address import OVERLAY_URL, checked_url
from thatch.protocol.ids import ADVERTISEMENTS, SUBSCRIPTIONS, check_name
from thatch.protocol.records import NEIGHBOUR, PeerKey

log = logging.getLogger("thatch.node")
T = TypeVar("T")
REQUEST_SECONDS = 10.0  # until a request is there
SERVED_MAX = 16  # at once
PROGRESS_SECONDS = 0.5
COUNT_SECONDS = 30.0  # to count what is kept; on a full disk it waits
SPARE_BYTES = 2**20


class AdminDoor:
    def __init__(self, node: Host) -> None:
        self.node, self.path = node, socket_beside(node.store.path)
        self._server: asyncio.Server | None = None
        self._served: set[asyncio.Task[Any]] = set()
        self._is_copying = False

    async def start(self) -> None:
        """A broker without this door is better than none: what keeps it shut is logged."""
        try:
            listener = bound(self.path)
        except OSError as error:
            log.warning("no operator can ask this broker: %s: %s", self.path, (error.strerror or "").lower())
            return
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=REQUEST_BYTES_MAX)

    async def stop(self) -> None:
        if self._server is None:
            return
        self._server.close()
        for task in list(self._served):
            task.cancel()
        if self._served:
            await asyncio.wait(self._served, timeout=2.0)
        with suppress(OSError):
            self.path.unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._served.add(task)
        try:
            answer = await self._answer(reader, writer) if len(self._served) <= SERVED_MAX else _busy()
            writer.write(msgspec.json.encode(answer) + b"\n")
            await writer.drain()
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._served.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Answer:
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                line = await reader.readuntil(b"\n")
            request = msgspec.json.decode(line, type=Request)
            return Answer(await self._run(request, writer))
        except ThatchError as error:
            return Answer(error=str(error), code=error.code)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return Answer(error=f"a request is one line of at most {REQUEST_BYTES_MAX:,} bytes", code="protocol")
        except TimeoutError:
            return Answer(error=f"no request came within {REQUEST_SECONDS:g} seconds", code="protocol")
        except msgspec.DecodeError as error:
            return Answer(error=f"not a request that this version knows: {shown(str(error))}", code="protocol")
        except OSError as error:
            return Answer(error=f"{error.filename or 'the disk'}: {(error.strerror or '').lower()}")
        except Exception as error:
            log.exception("a request of an operator failed")
            return Answer(error=f"a mistake in Thatch: {type(error).__name__}; the log of the broker has more")

    async def _run(self, request: Request, writer: asyncio.StreamWriter) -> Any:
        if isinstance(request, Links):
            return self._links()
        if isinstance(request, Backup):
            return await self._backup(request, writer)
        if isinstance(request, Accept):
            return await self._accept(request.name)
        if isinstance(request, Forget):
            return await self._forget(request)
        if isinstance(request, Attach):
            return await self._attach(request)
        if isinstance(request, MoveQueue):
            return await move_queue(self.node, request.client, request.id, request.url)
        return self._status()

    # --- Looking -----------------------------------------------------------------------------------------------------

    def _status(self) -> dict[str, Any]:
        node = self.node
        store, broker, queues = node.store, node.driver.broker, list(node.queues)
        links = self._links()
        return {
            "name": node.config.name,
            "version": thatch.__version__,
            "ready": node.is_ready,
            "up_seconds": time.monotonic() - node.started_at,
            "store": {
                "file": str(store.path),
                "id": store.identity,
                "bytes": _size(store.path),
                "state": "full" if store.is_full else "ok",
            },
            "connections": node.connection_count,
            "clients": sum(link.is_client for link in broker.links.values()),
            "subscriptions": broker.table_size(),
            "durable": {
                "subscriptions": len(queues),
                "connected": sum(each.reader is not None for each in queues),
                "kept_events": sum(each.stream.on_disk.count for each in queues),
                "kept_bytes": sum(each.stream.on_disk.bytes for each in queues),
                "lost": sum(each.stream.lost for each in queues),
            },
            "refused": [
                {"code": code, "count": each.total, "last": each.name, "reason": each.reason, "at": each.at}
                for code, each in node.driver.refusals.by_code.items()
            ],
            "gaps": len(node.driver.gaps),
            "neighbours": {"count": len(links), "up": sum(each["state"] == "up" for each in links)},
        }

    def _links(self) -> list[dict[str, Any]]:
        node, broker = self.node, self.node.driver.broker
        found = {name: link for name, link in broker.links.items() if not link.is_client}
        return [self._link(name, name in found) for name in sorted(found.keys() | node.doors.expected)]

    def _link(self, name: str, is_there: bool) -> dict[str, Any]:
        node, broker = self.node, self.node.driver.broker
        stream = node.driver.streams.get(name)
        link = broker.links[name] if is_there else None
        state = "not met yet" if link is None else "up" if link.is_synced else "greeting" if link.is_up else "down"
        state = "cycle" if link is not None and link.admission.cycle else state
        state = "lost" if node.doors.is_lost(name) else state
        counts: dict[str, Any] = {}
        for table in (SUBSCRIPTIONS, ADVERTISEMENTS):
            counts[table] = {
                "received": 0 if link is None else len(broker.received_from(table, name)),
                "sent": 0 if link is None else len(broker.outbound(table, name).forwarded()),
            }
        return {
            "name": name,
            "state": state,
            "dialled": node.dialled_at(name) or None,
            "instead_of": link.stands_for if link is not None else "",
            "settled": link is not None and link.knows_all,
            "expected": node.doors.why_expected(name),
            "durable": link is not None and link.is_durable,
            **counts,
            "kept_events": 0 if stream is None else stream.on_disk.count,
            "kept_bytes": 0 if stream is None else stream.on_disk.bytes,
            "waiting_bytes": 0 if stream is None else stream.waiting_bytes,
            "lost": 0 if stream is None else stream.lost,
        }

    # --- Neighbours --------------------------------------------------------------------------------------------------

    async def _accept(self, name: str) -> dict[str, Any]:
        node = self.node
        check_name(name)
        node.give_name_to_neighbour(name)
        accept(node.driver, node.doors, name)
        await reached(node.gate, node.store.ticket)
        log.info("an operator accepts neighbour %s", name)
        return {"name": name, "expected": sorted(node.doors.expected)}

    async def _attach(self, request: Attach) -> dict[str, Any]:
        node, name = self.node, request.name
        check_name(name)
        url = checked_url(request.url, OVERLAY_URL) if request.url else ""
        node.give_name_to_neighbour(name)
        count = attach(node.driver, node.doors, name, request.instead_of, url)
        node.dial(name)
        await reached(node.gate, node.store.ticket)
        log.warning("an operator attaches %s instead of %s, which is lost: %d events", name, request.instead_of, count)
        return {"name": name, "instead_of": request.instead_of, "offered": count, "dialled": node.dialled_at(name)}

    async def _forget(self, request: Forget) -> dict[str, Any]:
        node, name = self.node, request.name
        check_known(node.driver, name)
        link = node.driver.broker.links.get(name)
        kept = await self._kept_for(name)
        found = {
            "name": name,
            "kept_events": kept,
            "subscriptions": 0 if link is None else len(node.driver.broker.received_from(SUBSCRIPTIONS, name)),
            "is_up": link is not None and link.is_up,
            "too_early": why_unsettled(node.driver, name),
            "returns": node.config.neighbours.get(name) is not None or name in node.config.accept,
        }
        if request.discard is None or request.discard < kept:
            return {**found, "is_forgotten": False}
        node.hang_up(name, "an operator has this broker forget you")
        forget(node.driver, node.doors, name)
        await reached(node.gate, node.store.ticket)
        log.warning("an operator has neighbour %s forgotten, and with it %d kept events", name, kept)
        return {**found, "is_forgotten": True}

    async def _kept_for(self, name: str) -> int:
        """How many events are kept for a neighbour, on disk, when all that was asked for is written; and those that
        came meanwhile, which may be on disk by now."""
        loop, stream = asyncio.get_running_loop(), self.node.driver.stream(name)
        before = stream.counted
        done: asyncio.Future[int] = loop.create_future()

        def work(connection: sqlite3.Connection) -> None:
            rows = connection.execute(COUNT_EVENTS, peer_row(PeerKey(NEIGHBOUR, name)))
            _tell(loop, _succeed, done, rows.fetchone()[0])

        self.node.store.run(work)
        async with asyncio.timeout(COUNT_SECONDS):
            return await done + stream.counted - before

    # --- Backup ------------------------------------------------------------------------------------------------------

    async def _backup(self, request: Backup, writer: asyncio.StreamWriter) -> backup.Summary:
        file = Path(request.file)
        if self._is_copying:
            raise CallerError("a backup is being made already", code="later")
        self._is_copying = True
        try:
            await asyncio.to_thread(self._check_file, file, request.overwrite)  # a file system may take its time
            draft = backup.draft_of(file)
            made_at = await self._copied(draft, writer)
            summary = await asyncio.to_thread(backup.finish, draft, file, made_at)
        finally:
            self._is_copying = False
        log.info("store %s was copied to %s: %d bytes", self.node.store.path, file, summary.bytes)
        return summary

    def _check_file(self, file: Path, overwrite: bool) -> None:
        store = self.node.store.path
        if not file.is_absolute() or not file.parent.is_dir():
            raise CallerError(f"{file}: its folder is not there, or not for this broker to see")
        if what_is_no_file(file) == "a folder":
            raise CallerError(f"{file} is a folder: give a file in it")
        check_regular(file, follow=False)
        if file.parent.resolve() == store.parent and file.name.startswith(store.name):
            raise CallerError(f"{file} is a name that the store itself may use: give another one")
        if file.exists() and not overwrite:
            raise CallerError(f"{file} exists already: choose another path, or give --overwrite")
        kind = backup.kind_of(file) if file.exists() else "backup"
        if kind == "store":
            raise CallerError(f"{file} is the store of a broker, not a backup: choose another path")
        if not kind:
            raise CallerError(f"{file} was not written by Thatch (it is no backup): remove it, or choose another path")

    async def _copied(self, draft: Path, writer: asyncio.StreamWriter) -> float:
        """Copy the pages in the store's thread, and say meanwhile how far it is."""
        loop, store = asyncio.get_running_loop(), self.node.store
        done: asyncio.Future[float] = loop.create_future()
        steps = _Steps(store.write_between)

        def work(connection: sqlite3.Connection) -> None:
            try:
                _check_room(connection, draft)
                made_at = backup.copy_pages(connection, draft, steps.take)
            except Exception as error:
                _tell(loop, _fail, done, _explained(error, draft))
            else:
                _tell(loop, _succeed, done, made_at)

        store.run(work)
        try:
            while True:
                await asyncio.wait([done], timeout=PROGRESS_SECONDS)
                if done.done():
                    return done.result()
                writer.write(msgspec.json.encode(Progress(steps.total - steps.remaining, steps.total)) + b"\n")
                await writer.drain()
        finally:
            steps.cancel()


class _Steps:
    """How far a copy is, and whether it is still wanted. Written by one thread, read by another."""

    def __init__(self, between: Callable[[], None]) -> None:
        self._between = between
        self.remaining = self.total = 0
        self._is_cancelled = False

    def cancel(self) -> None:
        """Nobody waits for the copy any more."""
        self._is_cancelled = True

    def take(self, remaining: int, total: int) -> None:
        self.remaining, self.total = remaining, total
        if self._is_cancelled:
            raise StoreError("nobody waits for the backup any more")
        self._between()


def bound(path: Path) -> socket.socket:
    """A socket that only this user may use, from the first moment on. What was left behind there goes: the store is
    locked, so no other broker has it."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        with address_of(path) as address:
            listener.bind(address)
    except BaseException:
        listener.close()
        raise
    finally:
        os.umask(before)
    listener.setblocking(False)
    return listener


def _busy() -> Answer:
    return Answer(error=f"{SERVED_MAX} requests are under way: try again later", code="later")


def _check_room(connection: sqlite3.Connection, draft: Path) -> None:
    pages, size = (connection.execute(f"PRAGMA {key}").fetchone()[0] for key in ("page_count", "page_size"))
    needed, free = pages * size + SPARE_BYTES, shutil.disk_usage(draft.parent).free
    if free < needed:
        raise StoreError(f"{draft.parent}: a backup takes {needed:,} bytes, and {free:,} bytes are free")


def _explained(error: Exception, draft: Path) -> Exception:
    if isinstance(error, sqlite3.Error):
        return StoreError(f"{draft.parent}: the backup cannot be written: {sentence_of(error)}")
    return StoreError(f"the backup was not made: {error}") if isinstance(error, StoreError) else error


def _tell(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: Any) -> None:
    with suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(function, *arguments)


def _succeed(done: asyncio.Future[T], value: T) -> None:
    if not done.done():
        done.set_result(value)


def _fail(done: asyncio.Future[T], error: Exception) -> None:
    if not done.done():
        done.set_exception(error)


def _size(path: Path) -> int:
    """Of the store with its log."""
    return sum(each.stat().st_size for each in (path, path.with_name(path.name + "-wal")) if each.exists())
