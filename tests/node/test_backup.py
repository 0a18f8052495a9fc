"""A copy of a store is whole and of one moment; a restore leaves the old store, the new one, or nothing that starts."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from helpers.disks import fill, needs_mounts, small_disk
from helpers.peers import client, durable_queue
from helpers.stores import keep, next_number
from thatch.cli.main import main
from thatch.delivery.journal import QueueRow
from thatch.errors import CallerError, StoreError
from thatch.node import backup, migrations
from thatch.node.migrations import read_mark
from thatch.node.store import Store
from thatch.protocol.records import SubscriptionRecord

ANN, QUEUE = client("ann"), durable_queue("ann@q")
ROWS = 3_000
STEPS = ("copied", "checkpointed", "moved away", "log emptied", "renamed")


class Killed(BaseException):
    """Where a restore ends, as kill -9 would end it."""


def filled(path: Path, rows: int, name: str = "B1") -> None:
    store = Store(path, name)
    store.put_queue(QueueRow(QUEUE, 1000, 5.0, 0))
    for number in range(rows):
        keep(store, QUEUE, next_number(store), float(number), b"event %d" % number * 30)
        store.keep((SubscriptionRecord(ANN, f"B1/ann/{number}", f"price < {number}"),))
    store.start(lambda *call: None, lambda ticket: None)
    store.stop()


def rows_in(path: Path) -> tuple[int, int]:
    """Events and subscriptions."""
    with closing(sqlite3.connect(path)) as connection:
        counts = [connection.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in ("events", "subscriptions")]
    return counts[0], counts[1]


def copied(store: Store, file: Path, between: Callable[[], None] = lambda: None) -> backup.Summary:
    """The backup of a store that is started; `between` is called in its thread after each step."""
    done = threading.Event()
    found: list[float | Exception] = []

    def step(remaining: int, total: int) -> None:
        between()
        store.write_between()

    def work(connection: sqlite3.Connection) -> None:
        try:
            found.append(backup.copy_pages(connection, backup.draft_of(file), step))
        except Exception as error:
            found.append(error)
        done.set()

    store.run(work)
    assert done.wait(30)
    if isinstance(found[0], Exception):
        raise found[0]
    return backup.finish(backup.draft_of(file), file, found[0])


def test_events_go_on_while_the_copy_is_made_and_it_is_of_one_moment(tmp_path: Path) -> None:
    filled(tmp_path / "s", ROWS)
    store = Store(tmp_path / "s", "B1")
    committed: list[int] = []
    store.start(lambda function, *arguments: function(*arguments), committed.append)
    steps = 0

    def write_pair() -> None:
        """One transaction of an event and a subscription: a copy has both, or neither."""
        nonlocal steps
        steps += 1
        keep(store, QUEUE, next_number(store), 1.0, b"while" * 2000)
        store.keep((SubscriptionRecord(ANN, f"B1/ann/while{steps}", "TRUE"),))

    summary = copied(store, tmp_path / "copy", write_pair)
    assert steps > 2 and len(committed) >= steps, "no step was between the pages"
    events, subscriptions = rows_in(tmp_path / "copy")
    assert events - ROWS == subscriptions - ROWS == steps
    assert summary.rows["events"] == events and summary.broker == "B1"
    with closing(sqlite3.connect(tmp_path / "copy")) as connection:
        mark = read_mark(connection)
    assert mark is not None and mark.made_at == summary.made_at
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o600
    store.stop()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["copy", "s", "s.life", "s.lock"]


def test_a_copy_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    filled(tmp_path / "s", ROWS)
    store = Store(tmp_path / "s", "B1")
    store.start(lambda *call: None, lambda ticket: None)

    def give_up() -> None:
        raise StoreError("nobody waits")

    with pytest.raises(StoreError, match="nobody waits"):
        copied(store, tmp_path / "copy", give_up)
    keep(store, QUEUE, next_number(store), 1.0, b"goes on")
    store.stop()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["s", "s.life", "s.lock"]
    assert rows_in(tmp_path / "s")[0] == ROWS + 1


@needs_mounts
def test_a_disk_that_gets_full_ends_the_copy_not_the_store(tmp_path: Path) -> None:
    filled(tmp_path / "s", ROWS)
    with small_disk(tmp_path / "disk", "1m") as disk:
        store = Store(tmp_path / "s", "B1")
        store.start(lambda *call: None, lambda ticket: None)
        with pytest.raises(sqlite3.OperationalError, match="full"):
            copied(store, disk / "copy")
        keep(store, QUEUE, next_number(store), 1.0, b"goes on")
        store.stop()
        assert list(disk.iterdir()) == [] and rows_in(tmp_path / "s")[0] == ROWS + 1


@pytest.fixture
def old(tmp_path: Path) -> tuple[Path, Path]:
    """A store with a log that was killed, and a copy of an earlier moment."""
    (tmp_path / "live").mkdir()
    filled(tmp_path / "live" / "s", 10)
    store = Store(tmp_path / "live" / "s", "B1")
    store.start(lambda *call: None, lambda ticket: None)
    copied(store, tmp_path / "copy")
    for _ in range(5):
        keep(store, QUEUE, next_number(store), 1.0, b"after the copy")
    done = threading.Event()
    store.run(lambda connection: done.set())
    assert done.wait(10)
    (tmp_path / "old").mkdir()
    for suffix in ("", "-wal"):
        shutil.copy(tmp_path / "live" / f"s{suffix}", tmp_path / "old" / f"s{suffix}")
    store.stop()
    return tmp_path / "copy", tmp_path / "old" / "s"


def restored_mark(path: Path) -> str | None:
    with closing(sqlite3.connect(path)) as connection:
        row = connection.execute("SELECT value FROM about WHERE key = ?", (migrations.RESTORED,)).fetchone()
    return None if row is None else row[0]


def test_a_restore_puts_the_copy_in_place_with_a_mark(old: tuple[Path, Path]) -> None:
    copy, path = old
    summary = backup.restore(copy, path)
    assert summary.broker == "B1" and summary.rows["events"] == 10 and summary.made_at is not None
    assert sorted(each.name for each in path.parent.iterdir()) == ["s", "s.lock"]
    assert rows_in(path) == (10, 10) and len(restored_mark(path) or "") == 32
    assert restored_mark(copy) is None, "the copy can be used again"
    first = restored_mark(path)
    backup.restore(copy, path)
    assert restored_mark(path) != first, "each restore is another one"
    Store(path, "B1").stop()


def test_a_restore_where_no_store_is(old: tuple[Path, Path], tmp_path: Path) -> None:
    backup.restore(old[0], tmp_path / "new" / "s")
    assert rows_in(tmp_path / "new" / "s") == (10, 10)


@pytest.mark.parametrize("is_damaged", [False, True])
@pytest.mark.parametrize("step", STEPS)
def test_a_restore_that_is_killed_can_be_said_again(old: tuple[Path, Path], step: str, is_damaged: bool) -> None:
    copy, path = old
    if is_damaged:
        data = bytearray(path.read_bytes())
        data[40:60] = b"x" * 20
        data[68:72] = b"xxxx"
        path.write_bytes(data)
    seen: list[str] = []

    def reached(each: str) -> None:
        seen.append(each)
        if each == step:
            raise Killed

    try:
        backup.restore(copy, path, reached)
    except Killed:
        try:  # what is there: all of the old store, all of the new one, or nothing that starts
            store = Store(path, "B1")
            held = len(list(store.stored(QUEUE)))
            store.stop()
            assert not is_damaged or step == "renamed"
            assert held == (10 if step == "renamed" else 15)
        except StoreError:
            assert is_damaged and step != "renamed"
        backup.restore(copy, path)
    else:
        assert step not in seen
    assert rows_in(path) == (10, 10) and not path.with_name("s-wal").exists()
    Store(path, "B1").stop()
    if is_damaged:
        assert path.with_name("s.damaged").exists(), "a store that cannot be read stays to be looked at"


def test_a_restore_needs_the_lock_of_the_store(old: tuple[Path, Path]) -> None:
    """Under a running broker it went on writing into the file that was replaced."""
    copy, path = old
    store = Store(path, "B1")
    link = path.with_name("link")
    link.symlink_to(path)
    for each in (path, link):
        with pytest.raises(StoreError, match="broker B1 is running on it: stop it first"):
            backup.restore(copy, each)
    store.stop()
    backup.restore(copy, link)
    assert link.is_symlink() and rows_in(path) == (10, 10)


def test_what_is_no_copy_of_this_store_changes_nothing(old: tuple[Path, Path], tmp_path: Path) -> None:
    copy, path = old
    before = path.read_bytes(), path.with_name("s-wal").read_bytes()
    filled(tmp_path / "other", 1, "B2")
    shutil.copy(copy, tmp_path / "flipped")
    data = bytearray(copy.read_bytes())
    at = data.index(b"event 3event 3")
    data[at] ^= 1
    (tmp_path / "flipped").write_bytes(data)
    (tmp_path / "text").write_text("hello")
    with closing(sqlite3.connect(tmp_path / "copy")) as connection:
        connection.execute("VACUUM INTO ?", (str(tmp_path / "newer"),))
    with closing(sqlite3.connect(tmp_path / "newer")) as connection:
        connection.execute("PRAGMA user_version = 99")
    for name, reason in (
        ("other", "of broker 'B2', and store .* belongs to 'B1'; nothing was changed"),
        ("flipped", "checksum of a row of events"),
        ("text", "text is no copy of a store: it is not an SQLite file; nothing was changed"),
        ("newer", "version 99"),
        ("nowhere", "no such file"),
    ):
        with pytest.raises(StoreError, match=reason):
            backup.restore(tmp_path / name, path)
        assert (path.read_bytes(), path.with_name("s-wal").read_bytes()) == before, name
    with pytest.raises(StoreError, match="is the store itself"):
        backup.restore(path, path)
    with pytest.raises(CallerError, match="is not a regular file: it is a folder"):
        backup.restore(tmp_path, path)
    with pytest.raises(StoreError, match="is a folder: a store is a file"):
        backup.restore(copy, tmp_path)


def test_where_a_file_that_is_no_store_went_is_said(
    old: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    precious = tmp_path / "precious.txt"
    precious.write_text("precious")
    assert main(["admin", "restore", str(old[0]), "--store", str(precious)]) == 0
    assert f"{precious} was no whole store; it is kept as {precious}.damaged" in capsys.readouterr().err
    assert Path(f"{precious}.damaged").read_text() == "precious"


@needs_mounts
def test_a_restore_without_room_changes_nothing(old: tuple[Path, Path], tmp_path: Path) -> None:
    copy, path = old
    with small_disk(tmp_path / "disk", "1m") as disk:
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", disk / f"s{suffix}")
        (disk / "s.lock").touch()
        filler = fill(disk)
        before = sorted(os.listdir(disk))
        with pytest.raises(StoreError, match="the disk is full"):
            backup.restore(copy, disk / "s")
        assert sorted(os.listdir(disk)) == before
        filler.unlink()
        store = Store(disk / "s", "B1")
        assert len(list(store.stored(QUEUE))) == 15
        store.stop()
