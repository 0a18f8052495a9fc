"""The tables of the store, and the statements that read and write them: the SQL of each table is here.

    about                       what the store is: name, identity, the space at first; `backup` in a copy, `restored` in
                                one that an operator has put in the place of a store; `ran`: how many seconds nodes
                                have run on it; `attached NAME` for each neighbour that was attached
    lives                       each start of a node on it (delivery/history.py)
    links, subscriptions,       the broker's records, a table for each kind. `place` counts the records of all
    advertisements, preserved,  tables in the order in which they were put
    spaces
    queues, events              durable subscriptions; what is kept for a peer
    neighbours                  who they are: accepted by an operator or forgotten, their store, its last life
    received, confirmed         by life: up to which number a neighbour's events came, and it has ours on its disk
    gaps                        intervals that were announced: what was acknowledged in them may be missing
    images, statistics          what the broker had worked out; totals

A key that names a peer begins with its kind, as a number (1 client, 2 neighbour, 3 durable queue): a text in the key
would make writing an event a tenth slower. Each row ends with a checksum of all before it.

When the version rises, what migrations.py takes from here for older versions moves there.
"""

from __future__ import annotations

import json
import sqlite3
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

from thatch.protocol.records import (
    CLIENT,
    DURABLE_QUEUE,
    NEIGHBOUR,
    AdvertisementKey,
    AdvertisementRecord,
    LinkKey,
    LinkRecord,
    PeerKey,
    PeerKind,
    PreservedKey,
    PreservedRecord,
    Record,
    RecordKey,
    SpaceKey,
    SpaceRecord,
    SubscriptionKey,
    SubscriptionRecord,
)

VERSION = 4
KIND_NUMBERS: dict[PeerKind, int] = {CLIENT: 1, NEIGHBOUR: 2, DURABLE_QUEUE: 3}
PEERS_MAX = 2**14  # keys that are made once
KINDS = {number: kind for kind, number in KIND_NUMBERS.items()}

SCHEMA = {
    "about": """
        CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL, sum INTEGER NOT NULL) WITHOUT ROWID""",
    "links": """
        CREATE TABLE links (place INTEGER PRIMARY KEY, peer_kind INTEGER NOT NULL, peer TEXT NOT NULL,
            is_durable INTEGER NOT NULL, sum INTEGER NOT NULL, UNIQUE (peer_kind, peer))""",
    "subscriptions": """
        CREATE TABLE subscriptions (place INTEGER PRIMARY KEY, peer_kind INTEGER NOT NULL, peer TEXT NOT NULL,
            id TEXT NOT NULL, clause TEXT NOT NULL, expires REAL, sum INTEGER NOT NULL,
            UNIQUE (peer_kind, peer, id))""",
    "advertisements": """
        CREATE TABLE advertisements (place INTEGER PRIMARY KEY, peer_kind INTEGER NOT NULL, peer TEXT NOT NULL,
            id TEXT NOT NULL, clause TEXT NOT NULL, expires REAL, sum INTEGER NOT NULL,
            UNIQUE (peer_kind, peer, id))""",
    "preserved": """
        CREATE TABLE preserved (place INTEGER PRIMARY KEY, peer_kind INTEGER NOT NULL, peer TEXT NOT NULL,
            id TEXT NOT NULL, clause TEXT NOT NULL, hops_left TEXT NOT NULL, sum INTEGER NOT NULL,
            UNIQUE (peer_kind, peer, id))""",
    "spaces": """
        CREATE TABLE spaces (place INTEGER PRIMARY KEY, is_open INTEGER NOT NULL UNIQUE, space TEXT NOT NULL,
            sum INTEGER NOT NULL)""",
    "queues": """
        CREATE TABLE queues (peer_kind INTEGER NOT NULL, peer TEXT NOT NULL, bytes_max INTEGER NOT NULL,
            seconds_max REAL NOT NULL, lost INTEGER NOT NULL, expires REAL, sum INTEGER NOT NULL,
            PRIMARY KEY (peer_kind, peer)) WITHOUT ROWID""",
    "events": """
        CREATE TABLE events (peer_kind INTEGER NOT NULL, peer TEXT NOT NULL, number INTEGER NOT NULL, at REAL NOT NULL,
            ran REAL NOT NULL, entry INTEGER NOT NULL, event BLOB NOT NULL, sum INTEGER NOT NULL,
            PRIMARY KEY (peer_kind, peer, number)) WITHOUT ROWID""",
    "lives": """
        CREATE TABLE lives (ordinal INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, at REAL NOT NULL, cause TEXT NOT NULL,
            since REAL, sum INTEGER NOT NULL)""",
    "neighbours": """
        CREATE TABLE neighbours (name TEXT PRIMARY KEY, state TEXT NOT NULL, store TEXT NOT NULL, life TEXT NOT NULL,
            knows TEXT NOT NULL, returned TEXT NOT NULL, restored TEXT NOT NULL, sum INTEGER NOT NULL) WITHOUT ROWID""",
    "received": """
        CREATE TABLE received (peer_kind INTEGER NOT NULL, peer TEXT NOT NULL, life TEXT NOT NULL,
            number INTEGER NOT NULL, place INTEGER NOT NULL, sum INTEGER NOT NULL,
            PRIMARY KEY (peer_kind, peer, life)) WITHOUT ROWID""",
    "confirmed": """
        CREATE TABLE confirmed (peer_kind INTEGER NOT NULL, peer TEXT NOT NULL, life TEXT NOT NULL,
            number INTEGER NOT NULL, sum INTEGER NOT NULL, PRIMARY KEY (peer_kind, peer, life)) WITHOUT ROWID""",
    "gaps": """
        CREATE TABLE gaps (place INTEGER PRIMARY KEY, peer_kind INTEGER NOT NULL, peer TEXT NOT NULL,
            side TEXT NOT NULL, since REAL NOT NULL, until REAL NOT NULL, missing INTEGER, sum INTEGER NOT NULL)""",
    "images": """
        CREATE TABLE images (name TEXT PRIMARY KEY, data BLOB NOT NULL, sum INTEGER NOT NULL) WITHOUT ROWID""",
    "statistics": """
        CREATE TABLE statistics (name TEXT PRIMARY KEY, value INTEGER NOT NULL, sum INTEGER NOT NULL) WITHOUT ROWID""",
}

SET_ABOUT = "INSERT OR REPLACE INTO about VALUES (?, ?, ?)"
GET_ABOUT = "SELECT value FROM about WHERE key = ?"
ATTACHED = "attached "  # before the name of a neighbour
GET_ATTACHMENTS = f"SELECT value FROM about WHERE key >= '{ATTACHED}' AND key < 'attached!' ORDER BY key"
MOVED = "moved "  # before the name of a durable subscription
GET_MOVED = f"SELECT key, value FROM about WHERE key >= '{MOVED}' AND key < 'moved!' ORDER BY key"
DROP_ABOUT = "DELETE FROM about WHERE key = ?"
PUT_LIFE = "INSERT OR REPLACE INTO lives VALUES (?, ?, ?, ?, ?, ?)"
LAST_LIFE = "SELECT max(ordinal) FROM lives"
GET_LIVES = "SELECT ordinal, id, at, cause, since FROM lives ORDER BY ordinal"
PUT_NEIGHBOUR = "INSERT OR REPLACE INTO neighbours VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
GET_NEIGHBOURS = "SELECT name, state, store, life, knows, returned, restored FROM neighbours ORDER BY name"
PUT_GAP = "INSERT OR REPLACE INTO gaps VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
GET_GAPS = "SELECT place, peer_kind, peer, side, since, until, missing FROM gaps ORDER BY place"
PUT_QUEUE = "INSERT OR REPLACE INTO queues VALUES (?, ?, ?, ?, ?, ?, ?)"
DROP_QUEUE = "DELETE FROM queues WHERE peer_kind = ? AND peer = ?"
GET_QUEUES = "SELECT peer_kind, peer, bytes_max, seconds_max, lost, expires FROM queues ORDER BY peer_kind, peer"
PUT_EVENT = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
COPY_EVENTS = """
    INSERT INTO events
    SELECT kind, target, place, at, ran, 0, event, event_sum(kind, target, place, at, ran, 0, event)
    FROM (SELECT ? AS kind, ? AS target, ? + 1 - row_number() OVER (ORDER BY number DESC) AS place, at, ran, event
          FROM events WHERE peer_kind = ? AND peer = ? AND entry <> 2)"""
DROP_EVENTS = "DELETE FROM events WHERE peer_kind = ? AND peer = ? AND number <= ?"
DROP_RUN = "DELETE FROM events WHERE peer_kind = ? AND peer = ? AND number BETWEEN ? AND ? AND entry = ?"
GET_EVENTS = "SELECT number, event FROM events WHERE peer_kind = ? AND peer = ? AND number > ? ORDER BY number LIMIT ?"
GET_SIZES = """SELECT number, at, ran, entry, length(event), CASE WHEN entry = 2 THEN event END FROM events
    WHERE peer_kind = ? AND peer = ? ORDER BY number"""
COUNT_EVENTS = "SELECT count(*) FROM events WHERE peer_kind = ? AND peer = ?"
LAST_KEPT = "SELECT ifnull(max(at), 0.0), ifnull(max(ran), 0.0) FROM events"
SET_RECEIVED = "INSERT OR REPLACE INTO received VALUES (?, ?, ?, ?, ?, ?)"
DROP_RECEIVED = "DELETE FROM received WHERE peer_kind = ? AND peer = ? AND place <= ?"
GET_RECEIVED = "SELECT peer_kind, peer, life, number, place FROM received ORDER BY peer_kind, peer, place"
SET_CONFIRMED = "INSERT OR REPLACE INTO confirmed VALUES (?, ?, ?, ?, ?)"
DROP_CONFIRMED = "DELETE FROM confirmed WHERE peer_kind = ? AND peer = ? AND life = ?"
GET_CONFIRMED = "SELECT peer_kind, peer, life, number FROM confirmed ORDER BY peer_kind, peer, life"
SET_IMAGE = "INSERT OR REPLACE INTO images VALUES ('broker', ?, ?)"
GET_IMAGE = "SELECT data FROM images WHERE name = 'broker'"
SET_STATISTIC = "INSERT OR REPLACE INTO statistics VALUES (?, ?, ?)"
GET_STATISTICS = "SELECT name, value FROM statistics"


# --- Checksums -------------------------------------------------------------------------------------------------------

Sum = Callable[..., int]  # of a row without its last column
_number_and_times = struct.Struct("<qddq").pack


def summed(*values: Any) -> int:
    """A checksum of a row."""
    return zlib.crc32(repr(values).encode())


def event_sum(peer_kind: int, peer: str, number: int, at: float, ran: float, entry: int, event: bytes) -> int:
    head = zlib.crc32(f"{peer_kind} {peer}".encode())
    return zlib.crc32(event, zlib.crc32(_number_and_times(number, at, ran, entry), head))


def image_sum(name: str, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(name.encode()))


SUMS: dict[str, Sum] = dict.fromkeys(SCHEMA, summed) | {"events": event_sum, "images": image_sum}


def about_row(key: str, value: str) -> tuple[str, str, int]:
    return key, value, summed(key, value)


# --- Peers -----------------------------------------------------------------------------------------------------------


def peer_row(peer: PeerKey) -> tuple[int, str]:
    return KIND_NUMBERS[peer.kind], peer.name


@lru_cache(PEERS_MAX)
def peer_of(number: int, name: str) -> PeerKey:
    return PeerKey(KINDS[number], name)


# --- Records ---------------------------------------------------------------------------------------------------------


class RecordTable(NamedTuple):
    """The table of one kind of record."""

    put: str  # place, columns of the record, checksum
    drop: str  # columns of the key
    key_row: Callable[[Any], tuple[Any, ...]]  # the columns of a key
    row: Callable[[Any], tuple[Any, ...]]  # the columns of a record: of its key first
    read: str  # place, columns of the record
    record: Callable[..., Record]  # of what `read` finds


def _of_id(key: SubscriptionKey | AdvertisementKey | PreservedKey) -> tuple[int, str, str]:
    return KIND_NUMBERS[key.peer.kind], key.peer.name, key.id


def _entry_row(record: SubscriptionRecord | AdvertisementRecord) -> tuple[int, str, str, str, float | None]:
    expires, peer = record.expires, record.peer
    return (
        KIND_NUMBERS[peer.kind],
        peer.name,
        record.id,
        record.where,
        None if expires is None else float(expires),
    )


SUBSCRIPTIONS = RecordTable(
    "INSERT OR REPLACE INTO subscriptions VALUES (?, ?, ?, ?, ?, ?, ?)",
    "DELETE FROM subscriptions WHERE peer_kind = ? AND peer = ? AND id = ?",
    _of_id,
    _entry_row,
    "SELECT place, peer_kind, peer, id, clause, expires FROM subscriptions",
    lambda _, kind, peer, id, clause, expires: SubscriptionRecord(peer_of(kind, peer), id, clause, expires),
)
ADVERTISEMENTS = RecordTable(
    "INSERT OR REPLACE INTO advertisements VALUES (?, ?, ?, ?, ?, ?, ?)",
    "DELETE FROM advertisements WHERE peer_kind = ? AND peer = ? AND id = ?",
    _of_id,
    _entry_row,
    "SELECT place, peer_kind, peer, id, clause, expires FROM advertisements",
    lambda _, kind, peer, id, clause, expires: AdvertisementRecord(peer_of(kind, peer), id, clause, expires),
)
PRESERVED = RecordTable(
    "INSERT OR REPLACE INTO preserved VALUES (?, ?, ?, ?, ?, ?, ?)",
    "DELETE FROM preserved WHERE peer_kind = ? AND peer = ? AND id = ?",
    _of_id,
    lambda record: (*_of_id(record.key), record.where, json.dumps(record.hops_left)),
    "SELECT place, peer_kind, peer, id, clause, hops_left FROM preserved",
    lambda _, kind, peer, id, clause, hops_left: PreservedRecord(
        peer_of(kind, peer), id, clause, json.loads(hops_left)
    ),
)
LINKS = RecordTable(
    "INSERT OR REPLACE INTO links VALUES (?, ?, ?, ?, ?)",
    "DELETE FROM links WHERE peer_kind = ? AND peer = ?",
    lambda key: peer_row(key.peer),
    lambda record: (*peer_row(record.peer), int(record.is_durable)),
    "SELECT place, peer_kind, peer, is_durable FROM links",
    lambda _, kind, peer, is_durable: LinkRecord(peer_of(kind, peer), bool(is_durable)),
)


def _space_row(record: SpaceRecord) -> str:
    """A space; with its step, once it has one."""
    if not (record.step or record.origin or record.wanted):
        return record.space
    fields = {"step": record.step, "origin": record.origin, "wanted": record.wanted, "space": record.space}
    return json.dumps(fields)


def _space_record(is_open: bool, text: str) -> SpaceRecord:
    fields = json.loads(text)
    return SpaceRecord(is_open, **fields) if "space" in fields else SpaceRecord(is_open, text)


SPACES = RecordTable(
    "INSERT OR REPLACE INTO spaces VALUES (?, ?, ?, ?)",
    "DELETE FROM spaces WHERE is_open = ?",
    lambda key: (int(key.is_open),),
    lambda record: (int(record.is_open), _space_row(record)),
    "SELECT place, is_open, space FROM spaces",
    lambda _, is_open, space: _space_record(bool(is_open), space),
)
RECORD_TABLES: dict[type, RecordTable] = {
    SubscriptionRecord: SUBSCRIPTIONS,
    AdvertisementRecord: ADVERTISEMENTS,
    PreservedRecord: PRESERVED,
    LinkRecord: LINKS,
    SpaceRecord: SPACES,
}
KEY_TABLES: dict[type, RecordTable] = {
    SubscriptionKey: SUBSCRIPTIONS,
    AdvertisementKey: ADVERTISEMENTS,
    PreservedKey: PRESERVED,
    LinkKey: LINKS,
    SpaceKey: SPACES,
}
LAST_PLACES = " UNION ALL ".join(
    f"SELECT max(place) FROM {table}" for table in ("subscriptions", "advertisements", "preserved", "links", "spaces")
)


def put_record(place: int, record: Record) -> tuple[str, tuple[Any, ...]]:
    """The statement that writes a record, and its row."""
    table = RECORD_TABLES[type(record)]
    row = place, *table.row(record)
    return table.put, (*row, summed(*row))


def drop_record(key: RecordKey) -> tuple[str, tuple[Any, ...]]:
    """The statement that deletes the record with a key, and the columns of the key."""
    table = KEY_TABLES[type(key)]
    return table.drop, table.key_row(key)


def read_records(connection: sqlite3.Connection) -> Iterator[Record]:
    """The records of all tables, in the order in which they were put."""
    found: list[tuple[int, Record]] = []
    for table in RECORD_TABLES.values():
        record = table.record
        found += [(row[0], record(*row)) for row in connection.execute(table.read)]
    found.sort(key=itemgetter(0))
    return (record for _, record in found)


def last_place(connection: sqlite3.Connection) -> int:
    """Of the record that was put last."""
    return max(place or 0 for (place,) in connection.execute(LAST_PLACES))
