"""What a node keeps on disk: one SQLite file (WAL, synchronous=FULL), written by one thread.

Whoever wants something written says so and gets a *ticket*; the thread writes whatever has come meanwhile in one
transaction (group commit), and then says up to which ticket all is on disk. Nothing is acknowledged to anybody before.

Opening it begins a *life* (delivery/history.py), which is on disk before anything else happens, and then in a file
beside the store: a store whose lives do not have that one is an old copy.

A full disk keeps the batch and tries again until there is room; while `is_full` the node refuses new work. What must go
on all the same has the room of a ballast.
Each row has a checksum. The whole file is checked when it is opened (damage.py), and one of an older version is brought
to the present one before it is used (migrations.py). schema.py has the tables; what streams, queues and the driver ask
of a store is in delivery/journal.py.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import sqlite3
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from thatch.delivery.clock import Stamp
from thatch.delivery.history import LIFE_BYTES, next_life
from thatch.delivery.journal import (
    GAP,
    AttachmentRow,
    ConfirmedRow,
    GapRow,
    LifeRow,
    NeighbourRow,
    Page,
    QueueRow,
    ReceivedRow,
    Span,
    StoredRow,
)
from thatch.errors import StoreError
from thatch.node import ballast, migrations, schema
from thatch.node.ballast import Ballast
from thatch.node.damage import APPLICATION, check_files, check_pages, check_rows, damaged, sentence_of, unusable
from thatch.node.lock import StoreLock
from thatch.node.schema import KIND_NUMBERS, PUT_EVENT, event_sum
from thatch.protocol.records import Drop, PeerKey, Record, RecordChange

RETRY_SECONDS = 0.25  # between tries on a full disk
SHRINK_SECONDS = 10.0  # between tries to make the file smaller then
SHRUNK_BYTES = 2 * ballast.BYTES  # what that must give at least
FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)

T = TypeVar("T")
RAN = "ran"  # a key in `about`: how many seconds nodes have run on the store
LIFE_FILE = ".life"  # added to the name of the store

Write = tuple[str, tuple[Any, ...]]


class Store:
    def __init__(
        self,
        path: Path,
        name: str,
        reached: Callable[[str], None] = lambda step: None,
        free_bytes: Callable[[Path], int] = migrations.free_bytes,
        before_commit: Callable[[], None] = lambda: None,
        ballast_bytes: int = 0,
    ) -> None:
        """The store of the broker of this name; made if there is none.

        Of a migration `reached` hears each step (migrations.py), and `free_bytes` says how much room a folder has.
        `before_commit` is called before each commit of the thread, which waits for it, and fails as it fails: what it
        raises may be an error of a full disk, or one after which nothing more is written, as after a power cut.
        `ballast_bytes`: how much room is kept for what must go on when there is no other (ballast.py)."""
        self._lock = StoreLock(path)
        self.path, self.is_full = self._lock.path, False
        self._before_commit = before_commit
        self.commits = self.failures = 0
        self._free_bytes, self._shrinks_at = free_bytes, 0.0
        self._ballast = Ballast(self.path, free_bytes, ballast_bytes) if ballast_bytes else None
        try:
            self._connection = self._with_room(lambda: _opened(self._lock, name, reached, free_bytes))
        except BaseException:
            self._lock.release()
            raise
        self.identity = self._about("identity")
        self._kept_at, kept_ran = self._connection.execute(schema.LAST_KEPT).fetchone()
        self.ran: float = max(kept_ran, float(self._about(RAN)) if self._has_about(RAN) else 0.0)  # when it was opened
        self._with_room(self._begin_life)
        life_file = self.path.with_name(self.path.name + LIFE_FILE)
        self._with_room(lambda: _write_beside(life_file, self.lives()[-1].id))
        if self._ballast is not None and not self._ballast.make():
            self.is_full = self._ballast.is_owed
        self._place = schema.last_place(self._connection)
        self._condition = threading.Condition()
        self._writes: list[Write] = []
        self._reads: list[tuple[PeerKey, int, int, Page]] = []
        self._works: deque[Callable[[sqlite3.Connection], None]] = deque()
        self._asked = 0
        self._is_stopping = False
        self._thread: threading.Thread | None = None

    # --- What there is, read before the thread starts ----------------------------------------------------------------

    def _begin_life(self) -> None:
        """On disk in the store first: the file beside it never names a life that the store does not have."""
        life_file = self.path.with_name(self.path.name + LIFE_FILE)
        mark = migrations.read_mark(self._connection)
        life = next_life(
            self.lives(),
            secrets.token_hex(LIFE_BYTES),
            time.time(),
            noted=life_file.read_bytes().decode("ascii", "replace").strip() if life_file.exists() else "",
            copied_at=None if mark is None else mark.made_at,
            restored=self._about(migrations.RESTORED) if self._has_about(migrations.RESTORED) else "",
            kept_at=self._kept_at,
        )
        with self._connection:
            self._connection.execute("BEGIN")
            self._connection.execute(schema.PUT_LIFE, (*life, schema.summed(*life)))
            for key in (migrations.MARK, migrations.RESTORED):
                self._connection.execute(schema.DROP_ABOUT, (key,))

    def _about(self, key: str) -> str:
        return self._connection.execute(schema.GET_ABOUT, (key,)).fetchone()[0]

    def _has_about(self, key: str) -> bool:
        return self._connection.execute(schema.GET_ABOUT, (key,)).fetchone() is not None

    @property
    def space(self) -> str | None:
        """The space that it was made for, as JSON; None for a new store."""
        row = self._connection.execute(schema.GET_ABOUT, ("space",)).fetchone()
        return None if row is None else row[0]

    def records(self) -> Iterator[Record]:
        """The broker's records, in the order in which they were put."""
        return schema.read_records(self._connection)

    def queues(self) -> list[QueueRow]:
        """The durable subscriptions."""
        rows = self._connection.execute(schema.GET_QUEUES)
        return [QueueRow(schema.peer_of(kind, name), *limits) for kind, name, *limits in rows]

    def stored(self, peer: PeerKey) -> Iterator[StoredRow]:
        """The events that are kept for a peer, without their bytes."""
        return (StoredRow(*row) for row in self._connection.execute(schema.GET_SIZES, schema.peer_row(peer)))

    def lives(self) -> list[LifeRow]:
        return [LifeRow(*row) for row in self._connection.execute(schema.GET_LIVES)]

    def received(self) -> list[ReceivedRow]:
        rows = self._connection.execute(schema.GET_RECEIVED)
        return [ReceivedRow(schema.peer_of(kind, name), *row) for kind, name, *row in rows]

    def confirmed(self) -> list[ConfirmedRow]:
        rows = self._connection.execute(schema.GET_CONFIRMED)
        return [ConfirmedRow(schema.peer_of(kind, name), *row) for kind, name, *row in rows]

    def neighbours(self) -> list[NeighbourRow]:
        return [NeighbourRow(*row) for row in self._connection.execute(schema.GET_NEIGHBOURS)]

    def gaps(self) -> list[GapRow]:
        rows = self._connection.execute(schema.GET_GAPS)
        return [GapRow(place, schema.peer_of(kind, name), *row) for place, kind, name, *row in rows]

    def attachments(self) -> list[AttachmentRow]:
        return [AttachmentRow(*json.loads(text)) for (text,) in self._connection.execute(schema.GET_ATTACHMENTS)]

    def moved(self) -> dict[str, str]:
        rows = self._connection.execute(schema.GET_MOVED)
        return {key.removeprefix(schema.MOVED): url for key, url in rows}

    def image(self) -> bytes | None:
        """What the broker had worked out (thatch.broker.image)."""
        row = self._connection.execute(schema.GET_IMAGE).fetchone()
        return None if row is None else row[0]

    def statistics(self) -> dict[str, int]:
        return dict(self._connection.execute(schema.GET_STATISTICS).fetchall())

    # --- What is to be written: each returns at once -----------------------------------------------------------------

    @property
    def records_written(self) -> int:
        """So far: what an image may not know yet."""
        return self._place

    @property
    def ticket(self) -> int:
        """The ticket of what was asked for last."""
        return self._asked

    def set_space(self, text: str) -> None:
        self._write((schema.SET_ABOUT, schema.about_row("space", text)))

    def keep(self, records: tuple[RecordChange, ...]) -> None:
        """In one transaction: half of them would be a state that the broker never was in."""
        writes: list[Write] = []
        for record in records:
            if isinstance(record, Drop):
                writes.append(schema.drop_record(record.key))
            else:
                self._place += 1
                writes.append(schema.put_record(self._place, record))
        self._write(*writes)

    def put_queue(self, row: QueueRow) -> None:
        peer, *limits = row
        values = *schema.peer_row(peer), *limits
        self._write((schema.PUT_QUEUE, (*values, schema.summed(*values))))

    def drop_queue(self, peer: PeerKey) -> None:
        key = schema.peer_row(peer)
        self._write((schema.DROP_EVENTS, (*key, 2**63 - 1)), (schema.DROP_QUEUE, key))

    def append(self, peer: PeerKey, number: int, stamp: Stamp, entry: int, event: bytes) -> None:
        row = KIND_NUMBERS[peer.kind], peer.name, number, *stamp, entry, event
        self._write((PUT_EVENT, (*row, event_sum(*row))))

    def discard(self, peer: PeerKey, number: int) -> None:
        """The events that are kept for a peer, up to this number."""
        self._write((schema.DROP_EVENTS, (*schema.peer_row(peer), number)))

    def put_gap_entry(self, peer: PeerKey, gone: Sequence[Span], number: int, stamp: Stamp, gap: bytes) -> None:
        key = schema.peer_row(peer)
        row = *key, number, *stamp, GAP, gap
        self._write(*((schema.DROP_RUN, (*key, *span)) for span in gone), (PUT_EVENT, (*row, event_sum(*row))))

    def note_ran(self, seconds: float) -> None:
        """How long nodes have run on it."""
        self._write((schema.SET_ABOUT, schema.about_row(RAN, repr(seconds))))

    def put_life(self, row: LifeRow) -> None:
        self._write((schema.PUT_LIFE, (*row, schema.summed(*row))))

    def note_received(self, row: ReceivedRow) -> None:
        values = *schema.peer_row(row.peer), row.life, row.number, row.place
        self._write((schema.SET_RECEIVED, (*values, schema.summed(*values))))

    def drop_received(self, peer: PeerKey, place: int) -> None:
        self._write((schema.DROP_RECEIVED, (*schema.peer_row(peer), place)))

    def note_confirmed(self, row: ConfirmedRow) -> None:
        values = *schema.peer_row(row.peer), row.life, row.number
        self._write((schema.SET_CONFIRMED, (*values, schema.summed(*values))))

    def drop_confirmed(self, peer: PeerKey, life: str) -> None:
        self._write((schema.DROP_CONFIRMED, (*schema.peer_row(peer), life)))

    def put_neighbour(self, row: NeighbourRow) -> None:
        self._write((schema.PUT_NEIGHBOUR, (*row, schema.summed(*row))))

    def put_gap(self, row: GapRow) -> None:
        values = row.place, *schema.peer_row(row.peer), *row[2:]
        self._write((schema.PUT_GAP, (*values, schema.summed(*values))))

    def put_attachment(self, row: AttachmentRow) -> None:
        self._write((schema.SET_ABOUT, schema.about_row(schema.ATTACHED + row.name, json.dumps(row))))

    def drop_attachment(self, name: str) -> None:
        self._write((schema.DROP_ABOUT, (schema.ATTACHED + name,)))

    def put_moved(self, name: str, url: str) -> None:
        key = schema.MOVED + name
        self._write((schema.SET_ABOUT, schema.about_row(key, url)) if url else (schema.DROP_ABOUT, (key,)))

    def copy(self, source: PeerKey, target: PeerKey, last: int) -> None:
        self._write((schema.COPY_EVENTS, (*schema.peer_row(target), last, *schema.peer_row(source))))

    def note_statistics(self, values: dict[str, int]) -> None:
        for row in values.items():
            self._write((schema.SET_STATISTIC, (*row, schema.summed(*row))))

    def set_image(self, data: bytes) -> None:
        self._write((schema.SET_IMAGE, (data, schema.image_sum("broker", data))))

    def read(self, peer: PeerKey, after: int, count: int, page: Page) -> None:
        """Have `page` called with the next events for a peer, and whether all that was written before was seen."""
        with self._condition:
            self._reads.append((peer, after, count, page))
            self._condition.notify()

    def run(self, work: Callable[[sqlite3.Connection], None]) -> None:
        """Have some work done in the store's thread, after what was written before. It must not fail, and must not be
        long without `write_between`."""
        with self._condition:
            self._works.append(work)
            self._condition.notify()

    def write_between(self) -> None:
        """In the store's thread, between two steps of some work: write and read what was asked for meanwhile."""
        with self._condition:
            writes, self._writes, ticket = self._writes, [], self._asked
            reads, self._reads = self._reads, []
            is_stopping = self._is_stopping
        is_written = not writes or self._commit(_shortened(writes))
        if is_written and writes:
            self._tell(self._committed, ticket)
        if not is_written:
            with self._condition:
                self._writes[:0] = writes
        self._read_all(reads, is_complete=is_written)
        if is_stopping or not is_written:
            raise StoreError("the broker stops" if is_stopping else "the disk is full")

    def _write(self, *writes: Write) -> None:
        with self._condition:
            if not self._writes:
                self._condition.notify()
            self._writes += writes
            self._asked += 1

    # --- The thread --------------------------------------------------------------------------------------------------

    def start(
        self,
        later: Callable[..., Any],
        committed: Callable[[int], None],
        failed: Callable[[Exception], None] | None = None,
    ) -> None:
        """`later(function, *arguments)` runs a function in the thread of the one who asks; there, `committed` hears up
        to which ticket all is on disk, and `failed` what happened if nothing can be written any more."""
        self._later, self._committed, self._failed = later, committed, failed
        self._thread = threading.Thread(target=self._work, name="store", daemon=True)
        self._thread.start()

    @property
    def is_started(self) -> bool:
        return self._thread is not None

    def stop(self) -> None:
        """Write what is left, as far as it can be written, and close."""
        if self._thread is not None:
            with self._condition:
                self._is_stopping = True
                self._condition.notify()
            self._thread.join()
        self._connection.close()
        self._lock.release()

    def _work(self) -> None:
        try:
            self._serve()
        except Exception as error:
            if self._failed is None:
                raise
            self._tell(self._failed, error)

    def _serve(self) -> None:
        while True:
            with self._condition:
                while not (self._writes or self._reads or self._works or self._is_stopping):
                    if not self._condition.wait(RETRY_SECONDS if self.is_full else None):
                        break
                writes, self._writes, ticket = self._writes, [], self._asked
                reads, self._reads = self._reads, []
                work = self._works.popleft() if self._works else None
            if writes:
                self._write_all(_shortened(writes), ticket)
            self._read_all(reads, is_complete=True)
            if work is not None:
                work(self._connection)
            self.is_full = self.is_full and not self._has_room()
            if self._is_stopping and not (self._writes or self._works):
                return

    def _write_all(self, writes: list[Write], ticket: int) -> None:
        while not self._commit(writes):
            self.is_full = True
            if self._ballast is not None and self._ballast.give_up():
                continue
            if self._is_stopping:
                return
            self._commit([each for each in writes if each[0] is schema.DROP_EVENTS])  # that makes room in the file
            with self._condition:
                reads, self._reads = self._reads, []
            self._read_all(reads, is_complete=False)
            time.sleep(RETRY_SECONDS)
        self.is_full = self.is_full and not self._has_room()
        self._tell(self._committed, ticket)

    def _with_room(self, function: Callable[[], T]) -> T:
        """What a start has to write. On a full disk it has the ballast's room."""
        try:
            return function()
        except (StoreError, OSError, sqlite3.OperationalError) as error:
            if not (is_full_disk(error) or is_full_disk(error.__cause__)):
                raise
            if self._ballast is None or not self._ballast.give_up():
                raise self._without_room() from error
        self.is_full = True
        try:
            return function()
        except (StoreError, OSError, sqlite3.OperationalError) as error:
            if is_full_disk(error) or is_full_disk(error.__cause__):
                raise self._without_room() from error
            raise

    def _without_room(self) -> StoreError:
        return StoreError(
            f"store {self.path}: the disk is full, and a start has to write a little: make some megabytes of room in "
            f"{self.path.parent}, and start the broker again; what is kept is not lost"
        )

    def _has_room(self) -> bool:
        """Whether new work can be taken: the ballast is there, or was never given up."""
        if self._ballast is None or not self._ballast.is_owed or self._ballast.make():
            return True
        self._shrink()
        return self._ballast.make()

    def _shrink(self) -> None:
        """Give the disk what the file and its log no longer use, if that is enough for the ballast."""
        connection = self._connection
        pages, unused, size = (
            connection.execute(f"PRAGMA {key}").fetchone()[0] for key in ("page_count", "freelist_count", "page_size")
        )
        log_bytes = self.path.with_name(f"{self.path.name}-wal").stat().st_size
        free, used = self._free_bytes(self.path.parent), (pages - unused) * size
        if free + log_bytes + unused * size < SHRUNK_BYTES or time.monotonic() < self._shrinks_at:
            return
        self._shrinks_at = time.monotonic() + SHRINK_SECONDS
        try:
            if (
                unused * size > used and used + used // 8 < free + log_bytes
            ):  # the rows that are left go to the log first
                connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.OperationalError as error:
            if not is_full_disk(error):
                raise

    def _commit(self, writes: list[Write]) -> bool:
        connection = self._connection
        try:
            connection.execute("BEGIN")
            at = 0
            while at < len(writes):
                statement, end = writes[at][0], at + 1
                while end < len(writes) and writes[end][0] is statement:
                    end += 1
                connection.executemany(statement, [row for _, row in writes[at:end]])
                at = end
            self._before_commit()
            connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if not is_full_disk(error):
                raise
            self.failures += 1
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            return False
        self.commits += 1
        return True

    def _read_all(self, reads: list[tuple[PeerKey, int, int, Page]], is_complete: bool) -> None:
        for peer, after, count, page in reads:
            rows = self._connection.execute(schema.GET_EVENTS, (*schema.peer_row(peer), after, count)).fetchall()
            self._tell(page, rows, is_complete)

    def _tell(self, function: Callable[..., None], *arguments: Any) -> None:
        try:
            self._later(function, *arguments)
        except RuntimeError:  # nobody is there any more
            if not self._is_stopping:
                raise


def is_full_disk(error: BaseException | None) -> bool:
    """Whether the disk has no room, or does not work now."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return isinstance(error, sqlite3.OperationalError) and (error.sqlite_errorcode & 0xFF) in FULL


def _write_beside(path: Path, text: str) -> None:
    """A file that is always whole: the text of now, or that of before."""
    draft = path.with_name(path.name + ".new")
    with draft.open("w") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.rename(draft, path)
    _sync(path.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def _shortened(writes: list[Write]) -> list[Write]:
    """Without the events that are deleted before they are written, and without deletions and acknowledgements that a
    later one repeats."""
    drops, confirms = schema.DROP_EVENTS, schema.SET_CONFIRMED
    statements = {id(statement) for statement, _ in writes}
    if id(drops) not in statements or id(schema.COPY_EVENTS) in statements:  # a copy needs what is deleted after it
        return writes
    deleted: dict[tuple[Any, ...], int] = {}  # by peer: up to which number later deletions go
    confirmed: set[tuple[Any, ...]] = set()  # by peer and life
    kept: list[Write] = []
    for write in reversed(writes):
        statement, row = write
        if statement is drops or statement is PUT_EVENT:
            peer, number = row[:2], row[2]
            if number <= deleted.get(peer, -1):
                continue
            if statement is drops:
                deleted[peer] = number
        elif statement is confirms:
            if row[:3] in confirmed:
                continue
            confirmed.add(row[:3])
        kept.append(write)
    kept.reverse()
    return kept


def _opened(
    lock: StoreLock, name: str, reached: Callable[[str], None], free_bytes: Callable[[Path], int]
) -> sqlite3.Connection:
    path = lock.path
    if path.exists():
        check_files(path)
    elif path.with_name(path.name + "-wal").exists():
        raise damaged(path, "its log is there, but the file is not")
    else:
        _make(path, name)
        lock.lock_file()
    try:
        connection = _connection(path)
    except sqlite3.DatabaseError as error:
        raise unusable(path, error) from error
    try:
        check_pages(connection, path)
        version = migrations.check_version(connection, path)
        _check_owner(connection, path, name)
        check_rows(connection, path, migrations.sums_of(version))
        connection.execute("PRAGMA journal_mode = WAL")
        if version < schema.VERSION:
            migrations.migrate(connection, path, version, reached, free_bytes)
    except sqlite3.DatabaseError as error:
        connection.close()
        raise unusable(path, error) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _connection(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.create_function("event_sum", 7, event_sum, deterministic=True)
    except sqlite3.DatabaseError:
        connection.close()
        raise
    return connection


def _make(path: Path, name: str) -> None:
    """Make it under another name, then rename it: a file of this name is always a whole store."""
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    try:
        connection = _connection(draft)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {schema.VERSION}")
        for table in schema.SCHEMA.values():
            connection.execute(table)
        for key, value in (("name", name), ("identity", uuid.uuid4().hex)):
            connection.execute(schema.SET_ABOUT, schema.about_row(key, value))
        connection.close()
        os.rename(draft, path)
    except sqlite3.OperationalError as error:
        raise StoreError(f"store {path}: cannot be made: {sentence_of(error)}") from error
    _sync(path.parent)


def _check_owner(connection: sqlite3.Connection, path: Path, name: str) -> None:
    about = dict(connection.execute("SELECT key, value FROM about").fetchall())
    missing = {"name", "identity"} - about.keys()
    if missing:
        raise damaged(path, f"damaged: it does not say its {', '.join(sorted(missing))}")
    if about["name"] != name:
        raise StoreError(
            f"store {path} belongs to broker {about['name']!r}, not to {name!r}; each broker has its own store"
        )
