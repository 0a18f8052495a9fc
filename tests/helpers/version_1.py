"""Stores of version 1: its tables as they were, what is in them, and what that is in the records of today."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from thatch.delivery.history import derived_life
from thatch.node.migrations import MARK
from thatch.protocol.records import (
    AdvertisementRecord,
    LinkRecord,
    PeerKey,
    PreservedRecord,
    Record,
    SpaceRecord,
    SubscriptionRecord,
)

APPLICATION = 0x54484348
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
# Each kind of record, with and without what it may carry.
RECORDS = (
    ("links", "", "ann", "client", None),
    ("links", "", "B2", "broker durable", None),
    ("links", "", "B3", "broker", None),
    ("space", "", "grown", '{"grown": 1}', None),
    ("space", "", "opened", '{"opened": 1}', None),
    ("subscriptions", "ann", "B1/ann/s", "price < 20", 4e9),
    ("advertisements", "B2", "B2/p/a", "TRUE", None),
    ("links", "", "bob@far", "client durable", None),
    ("subscriptions", "bob@far", "B1/bob@far/far", "price < 30", None),
    ("preserved", "B3", "B1/ann/wide", "price < 90", None),
    ("leaving", "B3", "B1/ann/wide", json.dumps({"B2/p/a": 2, "B2/p/b": 0}), None),
    ("preserved", "B2", "B1/ann/wide", "price < 90", None),
    ("subscriptions", "B2", "B1/ann/s", "price < 21", None),
)


def summed(*row: Any) -> int:
    return zlib.crc32(repr(row).encode())


def event_row(queue: str, number: int, at: float, event: bytes) -> tuple[Any, ...]:
    return queue, number, at, event, zlib.crc32(event, zlib.crc32(f"{queue} {number} {at!r}".encode()))


def write(path: Path, events: Iterable[tuple[str, int, float, bytes]], records: Iterable[Any] = RECORDS) -> None:
    """A store of broker B1, with a durable subscription of bob's."""
    with closing(sqlite3.connect(path)) as store:
        store.executescript(f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = 1; {SCHEMA}")
        about = {"name": "B1", "identity": "0123456789abcdef", "life": "7", "space": '{"attributes":[]}'}
        put = "INSERT INTO {} VALUES ({})".format
        store.executemany(put("about", "?, ?, ?"), [(*row, summed(*row)) for row in about.items()])
        rows = [(3 * at, *record) for at, record in enumerate(records, 1)]  # with gaps, as after replacements
        store.executemany(put("records", "?, ?, ?, ?, ?, ?, ?"), [(*row, summed(*row)) for row in rows])
        for table, row in (
            ("queues", ("bob@far", 2**26, 604800.5, 3)),
            ("heard", ("B2", "fedcba", (5 << 40) + 12)),
            ("heard", ("B9", "a neighbour that was forgotten", 1)),
            ("statistics", ("events_in", 70)),
        ):
            store.execute(put(table, ", ".join("?" * (len(row) + 1))), (*row, summed(*row)))
        image = b"worked out"
        store.execute(put("images", "?, ?, ?"), ("broker", image, zlib.crc32(image, zlib.crc32(b"broker"))))
        store.executemany(put("events", "?, ?, ?, ?, ?"), (event_row(*event) for event in events))
        store.commit()
        store.execute("PRAGMA journal_mode = WAL")


def rows(path: Path) -> dict[str, list[Any]]:
    """All that a store of version 1 holds, but for the mark of a backup. Its checksums must be right."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as store:
        assert store.execute("PRAGMA user_version").fetchone() == (1,)
        found = {table: store.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall() for table in TABLES}
    for table in ("about", "records", "queues", "heard", "statistics"):
        assert all(row[-1] == summed(*row[:-1]) for row in found[table])
    assert all(row == event_row(*row[:-1]) for row in found["events"])
    found["about"] = [row for row in found["about"] if row[0] != MARK]
    return found


def expected(old: dict[str, list[Any]]) -> dict[str, Any]:
    """What a store of version 1 holds, as `stores.contents` finds it when it is migrated."""
    said = {id: clause for _, kind, _, id, clause, _, _ in old["records"] if kind == "links"}
    queues = {row[0] for row in old["queues"]}

    def peer(name: str) -> PeerKey:
        if name in queues:
            return PeerKey("durable queue", name)
        return PeerKey("client" if said.get(name, "broker").startswith("client") else "neighbour", name)

    leaving = {(link, id): clause for _, kind, link, id, clause, _, _ in old["records"] if kind == "leaving"}
    records: list[Record] = []
    for _, kind, link, id, clause, expires, _ in sorted(old["records"]):
        if kind == "links":
            records.append(LinkRecord(peer(id), clause.endswith(" durable")))
        elif kind == "space":
            records.append(SpaceRecord(id == "opened", clause))
        elif kind == "subscriptions":
            records.append(SubscriptionRecord(peer(link), id, clause, expires))
        elif kind == "advertisements":
            records.append(AdvertisementRecord(peer(link), id, clause, expires))
        elif kind == "preserved":
            records.append(PreservedRecord(peer(link), id, clause, json.loads(leaving.get((link, id), "{}"))))
    events: dict[PeerKey, list[tuple[int, float, bytes]]] = {}
    for queue, number, at, event, _ in old["events"]:
        events.setdefault(peer(queue), []).append((number, at, event))
    about = {key: value for key, value, _ in old["about"]}
    heard = {link: (store, derived_life(store, number >> 40)) for link, store, number, _ in old["heard"]}
    came = {record.peer for record in records if isinstance(record, SubscriptionRecord | AdvertisementRecord)}
    came |= {*events, *(PeerKey("neighbour", link) for link, _, number, _ in old["heard"] if number)}
    records = [
        each
        for each in records
        if not isinstance(each, LinkRecord | PreservedRecord) or each.peer.kind != "neighbour" or each.peer in came
    ]
    return {
        "records": records,
        "queues": [(peer(name), *limits, None) for name, *limits, _ in old["queues"]],
        "events": events,
        "received": [
            (PeerKey("neighbour", link), derived_life(store, number >> 40), number, 1)
            for link, store, number, _ in sorted(old["heard"])
        ],
        "confirmed": [],
        "neighbours": [
            (each.peer.name, "accepted", *heard.get(each.peer.name, ("", "")), "", "", "")
            for each in sorted(records, key=str)
            if isinstance(each, LinkRecord) and each.peer.kind == "neighbour"
        ],
        "gaps": [],
        "image": next((data for _, data, _ in old["images"]), None),
        "statistics": {name: value for name, value, _ in old["statistics"]},
        "about": (about.get("space"), about["identity"]),
        "last place": max((row[0] for row in old["records"] if row[1] != "leaving"), default=0),
    }
