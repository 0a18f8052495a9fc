"""A copy of a store while its broker runs, and the way back.

    B1.thatch ── pages, some at a time, in the store's thread; commits go on between them ─▶ FILE.draft
       FILE.draft ── mark, check every page and row, fsync, rename ─▶ FILE

What is committed while the copy is made is in it, too: SQLite writes it to both. The copy is of the moment of the last
step, and its mark says a time that is not after it. To start on a marked copy is to start in the past.

`restore` puts a copy in the place of a store whose broker is stopped. Whatever moment the machine stops at, what is
there afterwards is the old store, the restored one, or nothing that a broker would start with: never an old log beside
a new file.
"""

from __future__ import annotations

import os
import sqlite3
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import msgspec

from thatch.errors import StoreError, check_regular
from thatch.node import migrations, schema
from thatch.node.damage import APPLICATION, HEADER, check_files, check_pages, check_rows, damaged, sentence_of, unusable
from thatch.node.lock import StoreInUse, StoreLock
from thatch.node.migrations import MARK, RESTORED, BackupMark, read_mark

STEP_PAGES = 64
LOGS = ("-wal", "-shm")


class Summary(msgspec.Struct, frozen=True):
    """What a copy holds."""

    file: str
    broker: str
    bytes: int
    rows: Mapping[str, int]  # by table
    made_at: float | None  # None: a copy without a mark, made in another way
    moved_to: str = ""  # where what stood in the place of the store is now, if it could not be read as one


def copy_pages(connection: sqlite3.Connection, draft: Path, between: Callable[[int, int], None]) -> float:
    """All pages of a store, in its own thread; `between` hears after each step how many pages of how many remain, and
    does what waits. Returns a time that is not after the moment of which the copy is."""
    began = [time.time(), time.time()]  # of the last two steps
    draft.unlink(missing_ok=True)
    os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))

    def progress(status: int, remaining: int, total: int) -> None:
        if remaining:
            between(remaining, total)
            began[:] = began[1], time.time()

    try:
        with closing(sqlite3.connect(draft, isolation_level=None)) as target:
            target.execute("PRAGMA synchronous = OFF")  # it is synced when it is whole
            connection.backup(target, pages=STEP_PAGES, progress=progress, sleep=0.01)
    except BaseException:
        remove_draft(draft)
        raise
    return began[1]


def finish(draft: Path, file: Path, made_at: float) -> Summary:
    """Mark the copy, check it, and give it its name: a file of this name is always a whole copy."""
    try:
        with closing(sqlite3.connect(draft, isolation_level=None)) as target:
            target.execute("PRAGMA journal_mode = DELETE")  # one file, without a log
            life = int(target.execute(schema.LAST_LIFE).fetchone()[0])
            mark = BackupMark("a backup", schema.VERSION, life, made_at)
            target.execute(schema.SET_ABOUT, schema.about_row(MARK, msgspec.json.encode(mark).decode()))
            summary = _checked(target, file)
        sync(draft)
        os.rename(draft, file)
        sync(file.parent)
    except BaseException:
        remove_draft(draft)
        raise
    return summary


def draft_of(file: Path) -> Path:
    return file.with_name(f"{file.name}.draft")


def kind_of(file: Path) -> Literal["store", "backup", ""]:
    """What a regular file is: the store of a broker, which may be writing to it; a backup; or neither."""
    try:
        with closing(sqlite3.connect(f"file:{quote(str(file))}?mode=ro&immutable=1", uri=True)) as connection:
            application = connection.execute("PRAGMA application_id").fetchone()[0]
            if application != APPLICATION:
                return ""
            return "store" if read_mark(connection) is None else "backup"
    except (sqlite3.DatabaseError, msgspec.DecodeError):
        return ""


def name_in(path: Path) -> str | None:
    """The name of the broker whose store this is, as far as it can be read."""
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as connection:
            row = connection.execute(schema.GET_ABOUT, ("name",)).fetchone()
    except sqlite3.DatabaseError:
        return None
    return None if row is None else str(row[0])


def remove_draft(draft: Path) -> None:
    for suffix in ("", "-journal", *LOGS):
        draft.with_name(draft.name + suffix).unlink(missing_ok=True)


def _checked(connection: sqlite3.Connection, path: Path) -> Summary:
    """What a copy holds, once every page and every row was looked at."""
    try:
        check_pages(connection, path)
        version = migrations.check_version(connection, path)
        sums = migrations.sums_of(version)
        check_rows(connection, path, sums)
        rows = {table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in sums}
        name = connection.execute(schema.GET_ABOUT, ("name",)).fetchone()
        mark = read_mark(connection)
        pages, size = (connection.execute(f"PRAGMA {key}").fetchone()[0] for key in ("page_count", "page_size"))
    except sqlite3.DatabaseError as error:
        raise unusable(path, error) from error
    except msgspec.DecodeError:
        raise damaged(path, "damaged: its mark cannot be read") from None
    if name is None:
        raise damaged(path, "damaged: it does not say its name")
    return Summary(str(path), name[0], pages * size, rows, None if mark is None else mark.made_at)


# --- Restore ---------------------------------------------------------------------------------------------------------


def restore(copy: Path, store: Path, reached: Callable[[str], None] = lambda step: None) -> Summary:
    """Put a copy in the place of a store that no broker uses now. `reached` hears each step."""
    check_regular(copy)
    if not copy.is_file():
        raise StoreError(f"{copy}: no such file")
    with _locked(store) as lock:
        path = lock.path
        if path.exists() and os.path.samefile(copy, path):
            raise StoreError(f"{copy} is the store itself, not a copy of it")
        draft = path.with_name(f"{path.name}.restoring")
        remove_draft(draft)
        try:
            summary = _copied(copy, draft)
            _check_owner(path, summary.broker)
            sync(draft)
            reached("copied")
            moved_to = _clear_away(path, reached)
            os.rename(draft, path)
        except BaseException:
            remove_draft(draft)
            raise
        reached("renamed")
        for suffix in LOGS:
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        sync(path.parent)
        return msgspec.structs.replace(summary, moved_to="" if moved_to is None else str(moved_to))


def _locked(store: Path) -> StoreLock:
    try:
        return StoreLock(store)
    except StoreInUse as error:
        name = name_in(error.path)
        who = "a broker" if name is None else f"broker {name}"
        raise StoreError(f"store {store}: {who} is running on it: stop it first") from None


def _copied(copy: Path, draft: Path) -> Summary:
    """The copy beside the store, checked and with the mark of a restore."""
    with copy.open("rb") as file:
        if not file.read(len(HEADER)).startswith(HEADER):
            raise StoreError(f"{copy} is no copy of a store: it is not an SQLite file; nothing was changed")
    check_files(copy)
    has_log = copy.with_name(f"{copy.name}-wal").exists()
    address = f"file:{quote(str(copy.absolute()))}?mode=ro{'' if has_log else '&immutable=1'}"
    try:
        with closing(sqlite3.connect(address, uri=True)) as source, closing(_new(draft)) as target:
            migrations.check_version(source, copy)
            source.backup(target)
            target.execute("PRAGMA journal_mode = DELETE")
            summary = _checked(target, copy)
            target.execute(schema.SET_ABOUT, schema.about_row(RESTORED, uuid.uuid4().hex))
    except sqlite3.OperationalError as error:
        raise StoreError(f"{copy} cannot be restored: {sentence_of(error)}") from error
    except sqlite3.DatabaseError as error:
        raise unusable(copy, error) from error
    return summary


def _new(path: Path) -> sqlite3.Connection:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    return sqlite3.connect(path, isolation_level=None)


def _check_owner(path: Path, name: str) -> None:
    """Refuse the copy of another broker's store, as far as the store can still be read."""
    owner = name_in(path)
    if owner is not None and owner != name:
        raise StoreError(f"the copy is of broker {name!r}, and store {path} belongs to {owner!r}; nothing was changed")


def _clear_away(path: Path, reached: Callable[[str], None]) -> Path | None:
    """No log may be left beside the old file when the new one takes its place. Returns where the old file is, if it
    could not be read."""
    log = path.with_name(path.name + "-wal")
    if path.exists() and _is_checkpointed(path, log):
        reached("checkpointed")
        return None
    if not path.exists() and not log.exists():
        return None
    # It cannot be opened. A log without its store keeps a broker from starting until the new one is there.
    log.touch()
    kept = _free_name(path)
    has_file = path.exists()
    if has_file:
        os.rename(path, kept)
    reached("moved away")
    if log.stat().st_size:
        os.link(log, kept.with_name(f"{kept.name}-wal"))
    empty = path.with_name(f"{path.name}-wal.empty")
    empty.write_bytes(b"")
    os.replace(empty, log)
    sync(path.parent)
    reached("log emptied")
    return kept if has_file else None


def _is_checkpointed(path: Path, log: Path) -> bool:
    """Whether all of the log is in the file, and the log is gone."""
    try:
        check_files(path)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            is_busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    except (sqlite3.DatabaseError, StoreError):
        return False
    if is_busy:
        raise StoreError(f"store {path}: another program reads it; end it, and restore again")
    return not log.exists()


def _free_name(path: Path) -> Path:
    """Where a store that cannot be read stays to be looked at."""
    for at in count(1):
        kept = path.with_name(f"{path.name}.damaged" + (f".{at}" if at > 1 else ""))
        if not kept.exists() and not kept.with_name(f"{kept.name}-wal").exists():
            return kept
    raise AssertionError("unreachable")


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
