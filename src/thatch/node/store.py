"""What a node keeps on disk: one SQLite file (WAL, synchronous=FULL), written by one thread.

Whoever wants something written says so and gets a *ticket*; the thread writes whatever has come meanwhile in one
transaction (group commit), and then says up to which ticket all is on disk. Nothing is acknowledged to anybody before.

Numbers of events rise over restarts: each life of the store begins 2^40 further on, so that a number that was handed
out and never reached the disk is not used again.

A full disk keeps the batch and tries again until there is room; while `is_full` the node refuses new work.
Each row has a checksum. The whole file is checked when it is opened (damage.py).
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from thatch.errors import StoreError
from thatch.node.damage import APPLICATION, check_files, check_pages, damaged, sentence_of, unusable
from thatch.protocol.messages import Drop, Put, Record

VERSION = 1
LIFE_SHIFT = 40
RETRY_SECONDS = 0.25  # between tries on a full disk
FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)

SCHEMA = """
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL, sum INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE records (place INTEGER PRIMARY KEY, kind TEXT NOT NULL, link TEXT NOT NULL, id TEXT NOT NULL,
    clause TEXT NOT NULL, expires REAL, sum INTEGER NOT NULL);
CREATE UNIQUE INDEX record_of ON records (kind, link, id);
CREATE TABLE queues (name TEXT PRIMARY KEY, bytes_max INTEGER NOT NULL, seconds_max REAL NOT NULL,
    lost INTEGER NOT NULL, sum INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE events (queue TEXT NOT NULL, number INTEGER NOT NULL, at REAL NOT NULL, event BLOB NOT NULL,
    sum INTEGER NOT NULL, PRIMARY KEY (queue, number)) WITHOUT ROWID;
CREATE TABLE heard (link TEXT PRIMARY KEY, store TEXT NOT NULL, number INTEGER NOT NULL, sum INTEGER NOT NULL)
    WITHOUT ROWID;
CREATE TABLE images (name TEXT PRIMARY KEY, data BLOB NOT NULL, sum INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE statistics (name TEXT PRIMARY KEY, value INTEGER NOT NULL, sum INTEGER NOT NULL) WITHOUT ROWID;
"""
TABLES = ("about", "records", "queues", "events", "heard", "images", "statistics")

SET_ABOUT = "INSERT OR REPLACE INTO about VALUES (?, ?, ?)"
PUT_RECORD = "INSERT OR REPLACE INTO records (place, kind, link, id, clause, expires, sum) VALUES (?, ?, ?, ?, ?, ?, ?)"
DROP_RECORD = "DELETE FROM records WHERE kind = ? AND link = ? AND id = ?"
PUT_QUEUE = "INSERT OR REPLACE INTO queues VALUES (?, ?, ?, ?, ?)"
DROP_QUEUE = "DELETE FROM queues WHERE name = ?"
PUT_EVENT = "INSERT INTO events VALUES (?, ?, ?, ?, ?)"
DROP_EVENTS = "DELETE FROM events WHERE queue = ? AND number <= ?"
SET_RECEIVED = "INSERT OR REPLACE INTO heard VALUES (?, ?, ?, ?)"
SET_IMAGE = "INSERT OR REPLACE INTO images VALUES ('broker', ?, ?)"
SET_STATISTIC = "INSERT OR REPLACE INTO statistics VALUES (?, ?, ?)"
PAGE = "SELECT number, event FROM events WHERE queue = ? AND number > ? ORDER BY number LIMIT ?"

Write = tuple[str, tuple[Any, ...]]
Rows = list[tuple[int, bytes]]
Page = Callable[[Rows, bool], None]


class QueueRow(NamedTuple):
    name: str
    bytes_max: int
    seconds_max: float
    lost: int


class StoredRow(NamedTuple):
    """An event of a queue, without the event."""

    number: int
    at: float
    size: int


def summed(*values: Any) -> int:
    """A checksum of a row."""
    return zlib.crc32(repr(values).encode())


def _event_sum(queue: str, number: int, at: float, event: bytes) -> int:
    return zlib.crc32(event, zlib.crc32(f"{queue} {number} {at!r}".encode()))


def _image_sum(name: str, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(name.encode()))


SUMS: dict[str, Callable[..., int]] = {"events": _event_sum, "images": _image_sum}


class Store:
    def __init__(self, path: Path, name: str) -> None:
        """The store of the broker of this name; made if there is none."""
        self.path, self.is_full = path, False
        self.commits = self.failures = 0
        self._lock_file = _locked(path)
        try:
            self._connection = _opened(path, name)
        except BaseException:
            self._lock_file.close()
            raise
        self.identity = self._about("identity")
        self.life = int(self._about("life")) + 1
        self._number = self.life << LIFE_SHIFT
        with self._connection:
            self._connection.execute("BEGIN")
            self._connection.execute(SET_ABOUT, _row("life", str(self.life)))
        row = self._connection.execute("SELECT max(place) FROM records").fetchone()
        self._place = row[0] or 0
        self._condition = threading.Condition()
        self._writes: list[Write] = []
        self._reads: list[tuple[str, int, int, Page]] = []
        self._asked = 0
        self._is_stopping = False
        self._thread: threading.Thread | None = None

    # --- What there is, read before the thread starts ----------------------------------------------------------------

    def _about(self, key: str) -> str:
        return self._connection.execute("SELECT value FROM about WHERE key = ?", (key,)).fetchone()[0]

    @property
    def space(self) -> str | None:
        """The space that it was made for, as JSON; None for a new store."""
        row = self._connection.execute("SELECT value FROM about WHERE key = 'space'").fetchone()
        return None if row is None else row[0]

    def records(self) -> Iterator[Put]:
        """The broker's records, in the order in which they were put."""
        rows = self._connection.execute("SELECT kind, link, id, clause, expires FROM records ORDER BY place")
        return (Put(*row) for row in rows)

    def queues(self) -> list[QueueRow]:
        rows = self._connection.execute("SELECT name, bytes_max, seconds_max, lost FROM queues ORDER BY name")
        return [QueueRow(*row) for row in rows]

    def stored(self, queue: str) -> Iterator[StoredRow]:
        """The events that a queue holds, without their bytes."""
        rows = self._connection.execute(
            "SELECT number, at, length(event) FROM events WHERE queue = ? ORDER BY number", (queue,)
        )
        return (StoredRow(*row) for row in rows)

    def received_up_to(self) -> dict[str, tuple[str, int]]:
        """By link: the store behind it, and the number that came from there last."""
        return {
            link: (store, number)
            for link, store, number in self._connection.execute("SELECT link, store, number FROM heard")
        }

    def image(self) -> bytes | None:
        """What the broker had worked out (thatch.broker.image)."""
        row = self._connection.execute("SELECT data FROM images WHERE name = 'broker'").fetchone()
        return None if row is None else row[0]

    def statistics(self) -> dict[str, int]:
        return dict(self._connection.execute("SELECT name, value FROM statistics").fetchall())

    # --- What is to be written: each returns at once -----------------------------------------------------------------

    @property
    def records_written(self) -> int:
        """So far: what an image may not know yet."""
        return self._place

    @property
    def ticket(self) -> int:
        """The ticket of what was asked for last."""
        return self._asked

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def next_numbers(self, count: int) -> range:
        self._number += count
        return range(self._number - count + 1, self._number + 1)

    def set_space(self, text: str) -> None:
        self._write((SET_ABOUT, _row("space", text)))

    def keep(self, records: tuple[Record, ...]) -> None:
        """In one transaction: half of them would be a state that the broker never was in."""
        writes: list[Write] = []
        for record in records:
            if isinstance(record, Drop):
                writes.append((DROP_RECORD, (record.table, record.link, record.id)))
                continue
            self._place += 1
            row = self._place, record.table, record.link, record.id, record.where, record.expires
            writes.append((PUT_RECORD, (*row, summed(*row))))
        self._write(*writes)

    def put_queue(self, row: QueueRow) -> None:
        self._write((PUT_QUEUE, (*row, summed(*row))))

    def drop_queue(self, name: str) -> None:
        self._write((DROP_EVENTS, (name, 2**63 - 1)), (DROP_QUEUE, (name,)))

    def append(self, queue: str, number: int, at: float, event: bytes) -> None:
        self._write((PUT_EVENT, (queue, number, at, event, _event_sum(queue, number, at, event))))

    def discard(self, queue: str, number: int) -> None:
        """The events of a queue up to this number."""
        self._write((DROP_EVENTS, (queue, number)))

    def note_received(self, link: str, store: str, number: int) -> None:
        self._write((SET_RECEIVED, (link, store, number, summed(link, store, number))))

    def note_statistics(self, values: dict[str, int]) -> None:
        for name, value in values.items():
            self._write((SET_STATISTIC, (name, value, summed(name, value))))

    def set_image(self, data: bytes) -> None:
        self._write((SET_IMAGE, (data, _image_sum("broker", data))))

    def read(self, queue: str, after: int, count: int, page: Page) -> None:
        """Have `page` called with the next events of a queue, and whether all that was written before was seen."""
        with self._condition:
            self._reads.append((queue, after, count, page))
            self._condition.notify()

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
        self._lock_file.close()

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
                while not (self._writes or self._reads or self._is_stopping):
                    self._condition.wait()
                writes, self._writes, ticket = self._writes, [], self._asked
                reads, self._reads = self._reads, []
            if writes:
                self._write_all(_shortened(writes), ticket)
            self._read_all(reads, is_complete=True)
            if self._is_stopping and not self._writes:
                return

    def _write_all(self, writes: list[Write], ticket: int) -> None:
        while not self._commit(writes):
            self.is_full = True
            if self._is_stopping:
                return
            with self._condition:
                reads, self._reads = self._reads, []
            self._read_all(reads, is_complete=False)
            time.sleep(RETRY_SECONDS)
        self.is_full = False
        self._tell(self._committed, ticket)

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
            connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if (error.sqlite_errorcode & 0xFF) not in FULL:
                raise
            self.failures += 1
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            return False
        self.commits += 1
        return True

    def _read_all(self, reads: list[tuple[str, int, int, Page]], is_complete: bool) -> None:
        for queue, after, count, page in reads:
            rows = self._connection.execute(PAGE, (queue, after, count)).fetchall()
            self._tell(page, rows, is_complete)

    def _tell(self, function: Callable[..., None], *arguments: Any) -> None:
        try:
            self._later(function, *arguments)
        except RuntimeError:  # nobody is there any more
            if not self._is_stopping:
                raise


def _row(key: str, value: str) -> tuple[str, str, int]:
    return key, value, summed(key, value)


def _shortened(writes: list[Write]) -> list[Write]:
    """Without the events that were acknowledged before they were written."""
    gone: dict[str, int] = {}
    for statement, row in writes:
        if statement is DROP_EVENTS:
            gone[row[0]] = max(row[1], gone.get(row[0], 0))
    if not gone:
        return writes
    last = {row[0]: at for at, (statement, row) in enumerate(writes) if statement is DROP_EVENTS}
    return [
        (statement, row)
        for at, (statement, row) in enumerate(writes)
        if not (statement is PUT_EVENT and at < last.get(row[0], 0) and row[1] <= gone[row[0]])
        and not (statement is DROP_EVENTS and at != last[row[0]])
    ]


def _locked(path: Path) -> Any:
    """One broker a store. The lock is on a file of its own, so that other programs can make backups of the store."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.with_name(path.name + ".lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise StoreError(f"store {path}: another broker uses it; each broker has a store of its own") from None
    return file


def _opened(path: Path, name: str) -> sqlite3.Connection:
    if path.exists():
        check_files(path)
    elif path.with_name(path.name + "-wal").exists():
        raise damaged(path, "its log is there, but the file is not")
    else:
        _make(path, name)
    try:
        connection = _connection(path)
    except sqlite3.DatabaseError as error:
        raise unusable(path, error) from error
    try:
        check_pages(connection, path)
        _check_owner(connection, path, name)
        _check_rows(connection, path)
        connection.execute("PRAGMA journal_mode = WAL")
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
        connection.executescript(f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}; {SCHEMA}")
        for row in (_row("name", name), _row("identity", uuid.uuid4().hex), _row("life", "0")):
            connection.execute(SET_ABOUT, row)
        connection.close()
        os.rename(draft, path)
    except sqlite3.OperationalError as error:
        raise StoreError(f"store {path}: cannot be made: {sentence_of(error)}") from error
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def _check_rows(connection: sqlite3.Connection, path: Path) -> None:
    for table in TABLES:
        total: Callable[..., int] = SUMS.get(table, summed)
        for *row, found in connection.execute(f"SELECT * FROM {table}"):
            if total(*row) != found:
                raise damaged(path, f"damaged: the checksum of a row of {table} is wrong ({row[:2]})")


def _check_owner(connection: sqlite3.Connection, path: Path, name: str) -> None:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != VERSION:
        raise StoreError(f"store {path} has version {version}, this program reads {VERSION}; see docs/operations.md")
    about = dict(connection.execute("SELECT key, value FROM about").fetchall())
    missing = {"name", "identity", "life"} - about.keys()
    if missing:
        raise damaged(path, f"damaged: it does not say its {', '.join(sorted(missing))}")
    if about["name"] != name:
        raise StoreError(
            f"store {path} belongs to broker {about['name']!r}, not to {name!r}; each broker has its own store"
        )
