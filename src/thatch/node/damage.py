"""Is this file a store, and whole? SQLite looks at structure only, and reads a damaged log as a shorter one.

Three things are looked at before anything is believed:
- the file is there with its log, is not empty, and carries our mark;
- SQLite's own check of every page, and a checksum of every row: SQLite has none of its own for rows;
- the log. SQLite stops reading it at the first frame whose checksum is wrong, because that is what a crash in mid-write
  leaves behind. But every commit is on disk before the next begins: a wrong frame *before* the end of a later commit is
  no torn write, it is damage, and what SQLite would drop had been acknowledged.

    header | frame frame commit | frame commit | frame ✗ frame            torn: the last transaction never ended
    header | frame frame commit | frame ✗ com. | frame commit             damaged

A flipped bit in the very last transaction looks like a torn one and is not seen.
"""

from __future__ import annotations

import logging
import mmap
import sqlite3
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

from thatch.errors import StoreError

log = logging.getLogger("thatch.node")
APPLICATION = 0x54484348  # "THCH", in SQLite's header
HEADER = b"SQLite format 3\0"
ADVICE = "restore a backup, or move the file away to begin with an empty store"

OTHER = "Give another file, restore a backup, or move the file away to begin with an empty store"


def damaged(path: Path, what: str) -> StoreError:
    return StoreError(f"store {path}: {what}; {ADVICE}")


# By SQLite's code: what happened, and what to do if it is not the file that is wrong.
_REASONS = {
    sqlite3.SQLITE_CANTOPEN: ("the file cannot be opened", "does its folder exist, and may this user write there?"),
    sqlite3.SQLITE_PERM: ("the file may not be used", "give this user the right to read and write it"),
    sqlite3.SQLITE_READONLY: ("the file cannot be written", "give this user the right to write it and its folder"),
    sqlite3.SQLITE_FULL: ("the disk is full", "make room, and start again"),
    sqlite3.SQLITE_IOERR: ("the disk fails", "look at the system's log, and start again"),
    sqlite3.SQLITE_BUSY: ("another program has locked the file", "end it, and start again"),
    sqlite3.SQLITE_LOCKED: ("another program has locked the file", "end it, and start again"),
    sqlite3.SQLITE_NOMEM: ("there is no memory left", "give the broker more, and start again"),
}


def sentence_of(error: BaseException) -> str:
    """What SQLite's error, or another one of the store's thread, means."""
    what, advice = _REASONS.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, ("", ""))
    if what:
        return f"{what}: {advice}"
    return "its data are damaged" if isinstance(error, sqlite3.Error) else f"an unexpected {type(error).__name__}"


def unusable(path: Path, error: sqlite3.Error) -> StoreError:
    """The error for a store that SQLite cannot use: damaged, unless it says that the disk or another program is why."""
    if getattr(error, "sqlite_errorcode", 0) & 0xFF in _REASONS:
        return StoreError(f"store {path}: {sentence_of(error)}")
    return damaged(path, "damaged")


def check_files(path: Path) -> None:
    """Whether the files look like a store, before SQLite opens them."""
    head = path.open("rb").read(100)
    if not head:
        raise damaged(path, "the file is empty, and a store never is")
    if not head.startswith(HEADER):
        raise StoreError(f"store {path}: not a store of Thatch: not an SQLite file. {OTHER}")
    if len(head) < 100:
        raise damaged(path, f"the file has been cut: {len(head)} bytes are left")
    page = int.from_bytes(head[16:18], "big")
    if page > 1 and path.stat().st_size % page:  # 1 stands for 65,536
        raise damaged(path, f"the file has been cut: {path.stat().st_size:,} bytes are not whole pages of {page:,}")
    mark = int.from_bytes(head[68:72], "big")
    if mark != APPLICATION:
        what = f"an SQLite file of another program (application id {mark:#x})"
        raise StoreError(f"store {path}: not a store of Thatch: {what}. {OTHER}")
    log = path.with_name(path.name + "-wal")
    if log.exists() and log.stat().st_size:
        with log.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            damage = _damage_of_log(data)
        if damage:
            raise damaged(path, f"its log {log.name} is damaged: {damage}")


def check_pages(connection: sqlite3.Connection, path: Path) -> None:
    try:
        problems = [row[0] for row in connection.execute("PRAGMA integrity_check(3)")]
    except sqlite3.DatabaseError as error:
        raise unusable(path, error) from error
    if problems != ["ok"]:
        log.error("store %s: %s", path, "; ".join(problems))
        raise damaged(path, "damaged: its pages do not fit together")


def check_rows(connection: sqlite3.Connection, path: Path, sums: Mapping[str, Callable[..., int]]) -> None:
    """The checksum of each row of these tables: the last column, of those before it."""
    for table, total in sums.items():
        for *row, found in connection.execute(f"SELECT * FROM {table}"):
            if total(*row) != found:
                raise damaged(path, f"damaged: the checksum of a row of {table} is wrong ({row[:2]})")


def _damage_of_log(data: bytes | mmap.mmap) -> str:
    """What is wrong with a write-ahead log that a crash cannot have done; empty if nothing is."""
    if len(data) < 32:
        return f"{len(data)} bytes are no header"
    magic, _, page, _, salt1, salt2, sum1, sum2 = struct.unpack(">8I", data[:32])
    order = {0x377F0682: "<", 0x377F0683: ">"}.get(magic)
    if order is None or _checksum(data[:24], (0, 0), order) != (sum1, sum2):
        return "its header is wrong"
    if not 512 <= page <= 65536 or page & (page - 1):
        return f"a page of {page} bytes"
    broken_at = None
    ends_broken = False  # the broken frame is the last of its transaction: a whole commit after it is a later one
    has_committed = False  # a whole commit after the broken frame
    running = sum1, sum2
    for at in range(32, len(data) - page - 23, 24 + page):
        _, commit, s1, s2, *stored = struct.unpack(">6I", data[at : at + 24])
        if (s1, s2) != (salt1, salt2):
            if broken_at is None and not _is_of_older_log(data, at, page, order):
                broken_at = at  # a flipped salt, unless the log was begun again and this is what was there before
                running = stored[0], stored[1]
                continue
            break
        if has_committed:
            return f"the frame at byte {broken_at:,}, before others that were committed later"
        actual = _checksum(data[at : at + 8] + data[at + 24 : at + 24 + page], running, order)
        running = stored[0], stored[1]
        if actual != running and broken_at is None:
            broken_at, ends_broken = at, bool(commit)
        elif actual == running and broken_at is not None and commit:
            if ends_broken:
                return f"the frame at byte {broken_at:,}, before a commit that came later"
            has_committed = True
    return ""


def _is_of_older_log(data: bytes | mmap.mmap, at: int, page: int, order: str) -> bool:
    """Frames of a log that was begun again carry other salts, to the end of the file."""
    following = at + 24 + page
    if following + 24 > len(data):
        return True
    return data[at + 8 : at + 16] == data[following + 8 : following + 16]


def _checksum(data: bytes, running: tuple[int, int], order: str) -> tuple[int, int]:
    first, second = running
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for at in range(0, len(words), 2):
        first = (first + words[at] + second) & 0xFFFFFFFF
        second = (second + words[at + 1] + first) & 0xFFFFFFFF
    return first, second
