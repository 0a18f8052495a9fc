"""A store of an older version becomes one of the present version, and a copy of it as it was stays beside it.

    B1.thatch, version 1 ── copy, mark, fsync, rename ─▶ B1.thatch.version-1
         │ one transaction: new tables, version 2, checks
         ▼
    B1.thatch, version 2

Whatever moment the machine stops at, the store opens: it has version 1, and the migration begins again with the copy
that is there, or it has version 2. Memory does not grow with what is kept.

The copy is marked as a backup in a row of its table `about`, which programs of its version do not look at: to go back
to such a program is to start in the past.
"""

from __future__ import annotations

import glob
import logging
import os
import shutil
import sqlite3
import struct
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from thatch.delivery.history import derived_life
from thatch.delivery.journal import ASKED
from thatch.errors import StoreError
from thatch.node import schema
from thatch.node.damage import check_rows, damaged
from thatch.protocol.records import CLIENT, DURABLE_QUEUE, NEIGHBOUR, PeerKind

log = logging.getLogger("thatch.node")
MARK, RESTORED = "backup", "restored"  # keys in `about`: of a copy, and of one that an operator put in a store's place
ROW_BYTES = 32  # by which a row may grow
SPARE_BYTES = 2**20
# Of a migration, in order: `reached` is called with each when it comes to it.
STEPS = (
    "space checked",
    "copy begun",
    "copy marked",
    "copy kept",
    "transaction begun",
    "tables moved",
    "tables checked",
    "committed",
    "log cleared",
)


class BackupMark(msgspec.Struct, frozen=True):
    """What a copy says about itself."""

    reason: str
    version: int  # of the store that was copied
    life: int  # of that store: nothing of a later one is in the copy
    made_at: float


class Migration(NamedTuple):
    """From the version before."""

    version: int  # afterwards
    sums: Mapping[str, schema.Sum]  # the tables before, and how the rows of each are summed
    run: Callable[[sqlite3.Connection], None]
    counts: Mapping[str, str]  # by table afterwards: how many rows it is to have, counted before
    never_before: Mapping[str, str]  # what no row may be, and a query for such rows
    never_after: Mapping[str, str]
    moves_events: bool = False


def check_version(connection: sqlite3.Connection, path: Path) -> int:
    """The version of a store, if this program can read it or migrate it."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > schema.VERSION:
        raise StoreError(
            f"store {path} has version {version}; this program reads versions {OLDEST} to {schema.VERSION}. A newer "
            f"program wrote it: install that one again, or restore the copy {path.name}.version-{schema.VERSION} that "
            "it kept, which is a return to that moment; see docs/operations.md"
        )
    if version < OLDEST:
        raise damaged(path, f"damaged: its version is {version}")
    return version


def sums_of(version: int) -> Mapping[str, schema.Sum]:
    """The tables of a version, and how the rows of each are summed."""
    return next((each.sums for each in MIGRATIONS if each.version == version + 1), schema.SUMS)


def free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def migrate(
    connection: sqlite3.Connection,
    path: Path,
    version: int,
    reached: Callable[[str], None],
    free_bytes: Callable[[Path], int],
) -> None:
    """Bring a store, all of whose rows were checked, from its version to the present one."""
    _remove_drafts(path)
    copy, is_made = _place_of_copy(connection, path, version)
    _check_space(connection, path, version, is_made, free_bytes)
    reached("space checked")
    if not is_made:
        try:
            _copy(connection, copy, version, reached)
        except BaseException:
            _remove_drafts(path)
            raise
    log.info(
        "store %s has version %d and is migrated to version %d; %s is a copy of it as it was: to go back to a program "
        "that reads version %d, stop the broker and restore that copy",
        path, version, schema.VERSION, copy, version,
    )  # fmt: skip
    overwrites = _value(connection, "PRAGMA secure_delete")
    connection.execute("PRAGMA secure_delete = FAST")  # else each page of a dropped table is written once more
    connection.execute("BEGIN IMMEDIATE")
    reached("transaction begun")
    try:
        for migration in MIGRATIONS[version - OLDEST :]:
            _run(connection, path, migration, reached)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    reached("committed")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.execute(f"PRAGMA secure_delete = {overwrites}")
    reached("log cleared")


def _run(connection: sqlite3.Connection, path: Path, migration: Migration, reached: Callable[[str], None]) -> None:
    _check_facts(connection, path, migration.never_before)
    wanted = {table: _value(connection, query) for table, query in migration.counts.items()}
    migration.run(connection)
    connection.execute(f"PRAGMA user_version = {migration.version}")
    reached("tables moved")
    for table, rows in wanted.items():
        found = _value(connection, f"SELECT count(*) FROM {table}")
        if found != rows:
            raise damaged(path, f"cannot be migrated: {table} would have {found:,} rows, not {rows:,}")
    _check_facts(connection, path, migration.never_after)
    check_rows(connection, path, sums_of(migration.version))
    reached("tables checked")


def _check_facts(connection: sqlite3.Connection, path: Path, never: Mapping[str, str]) -> None:
    for fact, query in never.items():
        row = connection.execute(query).fetchone()
        if row is not None:
            raise damaged(path, f"cannot be migrated: {fact} ({', '.join(map(str, row))})")


def _value(connection: sqlite3.Connection, query: str) -> int:
    return int(connection.execute(query).fetchone()[0])


# --- The copy --------------------------------------------------------------------------------------------------------


def _check_space(
    connection: sqlite3.Connection, path: Path, version: int, is_made: bool, free_bytes: Callable[[Path], int]
) -> None:
    """Refuse to begin what the disk has no room for: the copy, and the new tables in SQLite's log and in the file."""
    pages, unused, size = (
        _value(connection, f"PRAGMA {name}") for name in ("page_count", "freelist_count", "page_size")
    )
    rows = sum(_value(connection, f"SELECT count(*) FROM {table}") for table in sums_of(version))
    moved = (pages - unused) * size + ROW_BYTES * rows
    times = sum(migration.moves_events for migration in MIGRATIONS[version - OLDEST :])  # each writes new pages
    needed = (0 if is_made else pages * size) + (1 + times) * moved + moved // 50 + SPARE_BYTES  # a log has an index
    free = free_bytes(path.parent)
    if free < needed:
        raise StoreError(
            f"store {path} has version {version}, and to migrate it to version {schema.VERSION} takes {needed:,} bytes "
            f"for a copy and the new tables; {free:,} bytes are free. Nothing was changed: make room, and start again"
        )


def _remove_drafts(path: Path) -> None:
    """Copies that were never finished."""
    for draft in path.parent.glob(f"{glob.escape(path.name)}.version-*.draft*"):
        draft.unlink()


def _place_of_copy(connection: sqlite3.Connection, path: Path, version: int) -> tuple[Path, bool]:
    """Where a copy of the store belongs, and whether it is there: of other moments there may be others."""
    name = f"{path.name}.version-{version}"
    for number in count(1):
        copy = path.with_name(name if number == 1 else f"{name}.{number}")
        if not copy.exists():
            return copy, False
        if _is_copy_of(connection, copy, version):
            return copy, True
    raise AssertionError("unreachable")


def _is_copy_of(connection: sqlite3.Connection, copy: Path, version: int) -> bool:
    """Whether a file is a marked copy, and has the rows that the store has now."""
    try:
        with closing(sqlite3.connect(f"file:{quote(str(copy))}?mode=ro", uri=True)) as found:
            is_same = _value(found, "PRAGMA user_version") == version and read_mark(found) is not None
            return is_same and _contents(found, version) == _contents(connection, version)
    except (sqlite3.Error, msgspec.DecodeError):
        return False


def _contents(connection: sqlite3.Connection, version: int) -> list[tuple[int, int]]:
    """How many rows each table has, but for the mark, and the total of their checksums."""
    found = []
    for table in sums_of(version):
        but = f" WHERE key <> '{MARK}'" if table == "about" else ""
        found.append(connection.execute(f"SELECT count(*), ifnull(sum(sum), 0) FROM {table}{but}").fetchone())
    return found


def _copy(connection: sqlite3.Connection, copy: Path, version: int, reached: Callable[[str], None]) -> None:
    """Make it under another name, then rename it: a file of this name is always a whole copy."""
    draft = copy.with_name(f"{copy.name}.draft")
    with closing(sqlite3.connect(draft, isolation_level=None)) as target:
        reached("copy begun")
        connection.backup(target)
        target.execute("PRAGMA journal_mode = DELETE")  # one file, without a log
        row = connection.execute(schema.GET_ABOUT, ("life",)).fetchone()  # before version 3
        life = _value(connection, schema.LAST_LIFE) if row is None else int(row[0])
        mark = BackupMark(f"before the migration to version {schema.VERSION}", version, life, time.time())
        text = msgspec.json.encode(mark).decode()
        target.execute(schema.SET_ABOUT, schema.about_row(MARK, text))
        if _contents(target, version) != _contents(connection, version):
            raise StoreError(f"store {copy}: the copy is not what was copied: is the disk whole?")
    _sync(draft)
    reached("copy marked")
    os.rename(draft, copy)
    _sync(copy.parent)
    reached("copy kept")


def read_mark(connection: sqlite3.Connection) -> BackupMark | None:
    """What a store says if it is a backup."""
    row = connection.execute(schema.GET_ABOUT, (MARK,)).fetchone()
    return None if row is None else msgspec.json.decode(row[0], type=BackupMark)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- From 1 to 2: a table for each kind of record; keys that name a peer carry its kind -------------------------------


def _to_2(connection: sqlite3.Connection) -> None:
    """Version 1 has one table of records, in which `clause` holds what each kind has to say, and names of peers."""
    kinds = {name: _kind(text) for name, text in connection.execute(LINKS_1)}
    for (name,) in connection.execute("SELECT name FROM queues"):
        if kinds.get(name) != NEIGHBOUR:
            kinds[name] = DURABLE_QUEUE

    def kind_of(name: str) -> int:
        """Of a name without a link: a neighbour that was forgotten, for which events may still be there."""
        return schema.KIND_NUMBERS[kinds.get(name, NEIGHBOUR)]

    connection.create_function("kind_of", 1, kind_of, deterministic=True)
    connection.create_function("summed", -1, schema.summed, deterministic=True)
    connection.create_function("event_sum", 5, _event_sum_3, deterministic=True)
    for table in ("queues", "events"):
        connection.execute(f"ALTER TABLE {table} RENAME TO {table}_1")
    for table in MOVED:
        connection.execute(SCHEMA_2[table])
    for statement in MOVES:
        connection.execute(statement)
    names = [name for (name,) in connection.execute("SELECT DISTINCT queue FROM events_1")]
    for name in sorted(names, key=lambda name: (kind_of(name), name)):  # in the order of the new key
        connection.execute(MOVE_EVENTS, (kind_of(name), name))
    for table in ("records", "queues_1", "events_1", "heard"):
        connection.execute(f"DROP TABLE {table}")


def _kind(text: str) -> PeerKind:
    """Of what version 1 says of a link: `client`, `client durable`, `broker` or `broker durable`."""
    who, _, durable = text.partition(" ")
    return NEIGHBOUR if who == "broker" else DURABLE_QUEUE if durable else CLIENT


def _event_sum_1(queue: str, number: int, at: float, event: bytes) -> int:
    return zlib.crc32(event, zlib.crc32(f"{queue} {number} {at!r}".encode()))


def _event_sum_3(peer_kind: int, peer: str, number: int, at: float, event: bytes) -> int:
    """Until version 3."""
    head = zlib.crc32(f"{peer_kind} {peer}".encode())
    return zlib.crc32(event, zlib.crc32(_NUMBER_AND_TIME.pack(number, at), head))


_NUMBER_AND_TIME = struct.Struct("<qd")


def _moved(table: str, columns: str, rows: str) -> str:
    """Into a table, with the checksum of each row."""
    return f"INSERT INTO {table} SELECT {columns}, summed({columns}) FROM ({rows})"


QUEUE_NUMBER = schema.KIND_NUMBERS[DURABLE_QUEUE]
LINKS_1 = "SELECT id, clause FROM records WHERE kind = 'links'"
MOVED = ("links", "subscriptions", "advertisements", "preserved", "spaces", "queues", "events", "received")
MOVES = (
    _moved(
        "links",
        "place, peer_kind, id, is_durable",
        "SELECT place, kind_of(id) AS peer_kind, id, "
        f"clause LIKE '% durable' OR kind_of(id) = {QUEUE_NUMBER} AS is_durable "
        "FROM records WHERE kind = 'links' ORDER BY place",
    ),
    *(
        _moved(
            table,
            "place, peer_kind, link, id, clause, expires",
            "SELECT place, kind_of(link) AS peer_kind, link, id, clause, expires FROM records "
            f"WHERE kind = '{table}' ORDER BY place",
        )
        for table in ("subscriptions", "advertisements")
    ),
    _moved(
        "preserved",
        "place, peer_kind, link, id, clause, hops_left",
        "SELECT p.place, kind_of(p.link) AS peer_kind, p.link, p.id, p.clause, ifnull(l.clause, '{}') AS hops_left "
        "FROM records AS p LEFT JOIN records AS l ON l.kind = 'leaving' AND l.link = p.link AND l.id = p.id "
        "WHERE p.kind = 'preserved' ORDER BY p.place",
    ),
    _moved(
        "spaces",
        "place, is_open, clause",
        "SELECT place, id = 'opened' AS is_open, clause FROM records WHERE kind = 'space' ORDER BY place",
    ),
    _moved(
        "queues",
        "peer_kind, name, bytes_max, seconds_max, lost",
        f"SELECT {QUEUE_NUMBER} AS peer_kind, name, bytes_max, seconds_max, lost FROM queues_1 ORDER BY name",
    ),
    _moved(
        "received",
        "peer_kind, link, store, number",
        f"SELECT {schema.KIND_NUMBERS[NEIGHBOUR]} AS peer_kind, link, store, number FROM heard ORDER BY link",
    ),
)
MOVE_EVENTS = (
    "INSERT INTO events SELECT ?1, queue, number, at, event, event_sum(?1, queue, number, at, event) "
    "FROM events_1 WHERE queue = ?2 ORDER BY number"
)
TO_2 = Migration(
    2,
    sums={
        "about": schema.summed,
        "records": schema.summed,
        "queues": schema.summed,
        "events": _event_sum_1,
        "heard": schema.summed,
        "images": schema.image_sum,
        "statistics": schema.summed,
    },
    run=_to_2,
    counts={
        "links": "SELECT count(*) FROM records WHERE kind = 'links'",
        "subscriptions": "SELECT count(*) FROM records WHERE kind = 'subscriptions'",
        "advertisements": "SELECT count(*) FROM records WHERE kind = 'advertisements'",
        "preserved": "SELECT count(*) FROM records WHERE kind = 'preserved'",
        "spaces": "SELECT count(*) FROM records WHERE kind = 'space'",
        "queues": "SELECT count(*) FROM queues",
        "events": "SELECT count(*) FROM events",
        "received": "SELECT count(*) FROM heard",
        "about": "SELECT count(*) FROM about",
        "images": "SELECT count(*) FROM images",
        "statistics": "SELECT count(*) FROM statistics",
    },
    never_before={
        "a record is of an unknown kind": "SELECT kind, link, id FROM records WHERE kind NOT IN "
        "('links', 'subscriptions', 'advertisements', 'preserved', 'leaving', 'space') LIMIT 1"
    },
    never_after={
        f"a row of {table} came over a link that is not there": f"SELECT peer, id FROM {table} "
        "WHERE (peer_kind, peer) NOT IN (SELECT peer_kind, peer FROM links) LIMIT 1"
        for table in ("subscriptions", "advertisements")
    }
    | {
        "events are kept for a durable subscription that is not there": "SELECT DISTINCT peer FROM events "
        f"WHERE peer_kind = {QUEUE_NUMBER} AND peer NOT IN (SELECT peer FROM queues) LIMIT 1"
    },
    moves_events=True,
)


# --- From 2 to 3: a number belongs to a life of a store, and neighbours are known or accepted -------------------------


def _to_3(connection: sqlite3.Connection) -> None:
    """Version 2 has the number of its last life, and of each neighbour the store and one number of it. The lives of
    then get ids that the other side of the link derives in the same way. A neighbour of which nothing ever came is
    nobody: any stranger could make a link."""
    connection.create_function("summed", -1, schema.summed, deterministic=True)
    connection.create_function("derived_life", 2, derived_life, deterministic=True)
    for table in CHANGED_3:
        connection.execute(f"ALTER TABLE {table} RENAME TO {table}_2")
    for table in (*CHANGED_3, "lives", "neighbours", "confirmed", "gaps"):
        connection.execute(schema.SCHEMA[table])
    for statement in MOVES_3:
        connection.execute(statement)
    for table in CHANGED_3:
        connection.execute(f"DROP TABLE {table}_2")


SCHEMA_3 = {
    **schema.SCHEMA,
    "events": """
        CREATE TABLE events (peer_kind INTEGER NOT NULL, peer TEXT NOT NULL, number INTEGER NOT NULL, at REAL NOT NULL,
            event BLOB NOT NULL, sum INTEGER NOT NULL, PRIMARY KEY (peer_kind, peer, number)) WITHOUT ROWID""",
}
SCHEMA_2 = {
    **SCHEMA_3,
    "queues": """
        CREATE TABLE queues (peer_kind INTEGER NOT NULL, peer TEXT NOT NULL, bytes_max INTEGER NOT NULL,
            seconds_max REAL NOT NULL, lost INTEGER NOT NULL, sum INTEGER NOT NULL,
            PRIMARY KEY (peer_kind, peer)) WITHOUT ROWID""",
    "received": """
        CREATE TABLE received (peer_kind INTEGER NOT NULL, peer TEXT NOT NULL, store TEXT NOT NULL,
            number INTEGER NOT NULL, sum INTEGER NOT NULL, PRIMARY KEY (peer_kind, peer)) WITHOUT ROWID""",
}
NEIGHBOUR_NUMBER = schema.KIND_NUMBERS[NEIGHBOUR]
CHANGED_3 = ("queues", "received")
OF_LIFE = "(SELECT CAST(value AS INTEGER) FROM about WHERE key = 'life')"
IDENTITY = "(SELECT value FROM about WHERE key = 'identity')"


CAME_3 = ("subscriptions", "advertisements", "events")


def _is_real(received: str) -> str:
    """Of a link of a neighbour: whether anything ever came over it, or is kept for it. `received`: the table's name."""
    somewhere = "\n    OR ".join(
        f"peer IN (SELECT peer FROM {table} WHERE peer_kind = {NEIGHBOUR_NUMBER}{more})"
        for table, more in (
            ("subscriptions", ""),
            ("advertisements", ""),
            ("events", ""),
            (received, " AND number > 0"),
        )
    )
    return f"({somewhere})"


NEIGHBOURS_3 = f"peer_kind = {NEIGHBOUR_NUMBER} AND {_is_real('received_2')}"
STRANGERS_3 = f"peer_kind = {NEIGHBOUR_NUMBER} AND NOT {_is_real('received_2')}"
OF_LINK = "FROM received_2 AS r WHERE r.peer_kind = links.peer_kind AND r.peer = links.peer AND r.number > 0"
MOVES_3 = (
    _moved(
        "queues",
        "peer_kind, peer, bytes_max, seconds_max, lost, expires",
        "SELECT peer_kind, peer, bytes_max, seconds_max, lost, NULL AS expires FROM queues_2",
    ),
    _moved(
        "received",
        "peer_kind, peer, life, number, place",
        "SELECT peer_kind, peer, derived_life(store, number >> 40) AS life, number, 1 AS place FROM received_2 "
        "WHERE number > 0",
    ),
    _moved(
        "lives",
        "ordinal, id, at, cause, since",
        f"WITH RECURSIVE counted(ordinal) AS (SELECT 1 UNION ALL SELECT ordinal + 1 FROM counted "
        f"WHERE ordinal < {OF_LIFE}) SELECT ordinal, derived_life({IDENTITY}, ordinal) AS id, 0.0 AS at, "
        f"'start' AS cause, NULL AS since FROM counted WHERE {OF_LIFE} > 0",
    ),
    _moved(
        "neighbours",
        "peer, state, store, life, knows, returned, restored",
        f"SELECT peer, 'accepted' AS state, ifnull((SELECT r.store {OF_LINK}), '') AS store, "
        f"ifnull((SELECT derived_life(r.store, r.number >> 40) {OF_LINK}), '') AS life, '' AS knows, '' AS returned, "
        f"'' AS restored FROM links WHERE {NEIGHBOURS_3}",
    ),
    f"DELETE FROM preserved WHERE {STRANGERS_3}",
    f"DELETE FROM links WHERE {STRANGERS_3}",
    "DELETE FROM about WHERE key = 'life'",
)
TO_3 = Migration(
    3,
    sums=dict.fromkeys(SCHEMA_2.keys() - {"lives", "neighbours", "confirmed", "gaps"}, schema.summed)
    | {"events": _event_sum_3, "images": schema.image_sum},
    run=_to_3,
    counts={
        **{table: f"SELECT count(*) FROM {table}" for table in ("subscriptions", "advertisements", "spaces", "queues")},
        "events": "SELECT count(*) FROM events",
        "links": f"SELECT count(*) FROM links WHERE peer_kind <> {NEIGHBOUR_NUMBER} OR {_is_real('received')}",
        "neighbours": f"SELECT count(*) FROM links WHERE peer_kind = {NEIGHBOUR_NUMBER} AND {_is_real('received')}",
        "lives": "SELECT CAST(value AS INTEGER) FROM about WHERE key = 'life'",
        "received": "SELECT count(*) FROM received WHERE number > 0",
        "about": "SELECT count(*) - 1 FROM about",
        "images": "SELECT count(*) FROM images",
        "statistics": "SELECT count(*) FROM statistics",
    },
    never_before={},
    never_after={},
)


# --- From 3 to 4: age is counted in time in which nodes run, and what nobody has asked for is marked -----------------


def _to_4(connection: sqlite3.Connection) -> None:
    """How long nodes have run since an event came, version 3 does not say. So all that is kept has come just now."""
    connection.create_function("summed", -1, schema.summed, deterministic=True)
    connection.create_function("event_sum", 7, schema.event_sum, deterministic=True)
    for table in CHANGED_4:
        connection.execute(f"ALTER TABLE {table} RENAME TO {table}_3")
        connection.execute(schema.SCHEMA[table])
    queues = "SELECT peer_kind, peer, bytes_max, seconds_max, lost, max(expires - ?, 0.0) AS expires FROM queues_3"
    columns = "peer_kind, peer, bytes_max, seconds_max, lost, expires"
    connection.execute(_moved("queues", columns, queues), (time.time(),))
    connection.execute(MOVE_EVENTS_4)
    for table in CHANGED_4:
        connection.execute(f"DROP TABLE {table}_3")


CHANGED_4 = ("queues", "events")
MOVE_EVENTS_4 = (
    f"INSERT INTO events SELECT peer_kind, peer, number, at, 0.0, {ASKED}, event, "
    f"event_sum(peer_kind, peer, number, at, 0.0, {ASKED}, event) FROM events_3 ORDER BY peer_kind, peer, number"
)
TO_4 = Migration(
    4,
    sums=dict.fromkeys(SCHEMA_3, schema.summed) | {"events": _event_sum_3, "images": schema.image_sum},
    run=_to_4,
    counts={table: f"SELECT count(*) FROM {table}" for table in SCHEMA_3},
    never_before={},
    never_after={},
    moves_events=True,
)
MIGRATIONS = (TO_2, TO_3, TO_4)
OLDEST = MIGRATIONS[0].version - 1
