"""The lock on a store holds whatever path leads to it."""

from __future__ import annotations

import errno
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from helpers.disks import needs_mounts
from thatch.errors import StoreError
from thatch.node.lock import StoreLock
from thatch.node.store import Store

OPENS = """
import sys
from pathlib import Path
from thatch.node.store import Store
Store(Path(sys.argv[1]), "B1").stop()
"""


def opened_by_another_process(path: Path) -> str:
    """What it is told; empty if it could open the store."""
    done = subprocess.run([sys.executable, "-c", OPENS, str(path)], capture_output=True, text=True, check=False)
    return done.stderr


def link_to_file(store: Path, folder: Path) -> Path:
    (folder / "other.thatch").symlink_to(store)
    return folder / "other.thatch"


def link_to_link(store: Path, folder: Path) -> Path:
    (folder / "further.thatch").symlink_to(link_to_file(store, folder).name)
    return folder / "further.thatch"


def link_to_folder(store: Path, folder: Path) -> Path:
    (folder / "linked").symlink_to(store.parent)
    return folder / "linked" / store.name


def hard_link(store: Path, folder: Path) -> Path:
    os.link(store, folder / "other.thatch")
    return folder / "other.thatch"


@pytest.mark.parametrize("path_of", [link_to_file, link_to_link, link_to_folder, hard_link])
def test_a_second_broker_is_refused(tmp_path: Path, path_of: Callable[[Path, Path], Path]) -> None:
    store = Store(tmp_path / "s", "B1")
    try:
        path = path_of(tmp_path / "s", tmp_path)
        refused = r"another broker uses it|has another name"
        with pytest.raises(StoreError, match=refused):
            Store(path, "B1")
        assert re.search(refused, opened_by_another_process(path))
    finally:
        store.stop()


@needs_mounts
@pytest.mark.parametrize("of_folder", [False, True])
def test_a_second_broker_behind_a_bind_mount_is_refused(tmp_path: Path, of_folder: bool) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    store = Store(tmp_path / "one" / "s", "B1")
    mounted = tmp_path / "two" if of_folder else tmp_path / "two" / "s"
    if not of_folder:
        mounted.touch()
    subprocess.run(["mount", "--bind", store.path.parent if of_folder else store.path, mounted], check=True)
    try:
        assert "another broker uses it" in opened_by_another_process(tmp_path / "two" / "s")
    finally:
        subprocess.run(["umount", "-l", mounted], check=True)
        store.stop()


def test_a_store_with_a_second_name_is_refused_since_its_log_has_one(tmp_path: Path) -> None:
    Store(tmp_path / "s", "B1").stop()
    os.link(tmp_path / "s", tmp_path / "other")
    for name in ("s", "other"):
        with pytest.raises(StoreError, match="has another name, a hard link"):
            Store(tmp_path / name, "B1")
    (tmp_path / "other").unlink()
    Store(tmp_path / "s", "B1").stop()


def test_a_store_behind_a_link_is_the_file_it_leads_to(tmp_path: Path) -> None:
    """A link to a file that is not there yet stays a link."""
    (tmp_path / "data").mkdir()
    (tmp_path / "s").symlink_to(tmp_path / "data" / "s")
    Store(tmp_path / "s", "B1").stop()
    assert (tmp_path / "s").is_symlink() and (tmp_path / "data" / "s").is_file()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["data", "s"]


def test_what_sqlite_locks_stays_locked(tmp_path: Path) -> None:
    """Neither taking nor losing the lock drops the locks of SQLite in the same process."""
    store = Store(tmp_path / "s", "B1")
    with pytest.raises(StoreError):
        Store(tmp_path / "s", "B1")
    reading = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('PRAGMA journal_mode = DELETE')"
    try:
        done = subprocess.run(
            [sys.executable, "-c", reading, str(tmp_path / "s")], capture_output=True, text=True, check=False
        )
        assert "locked" in done.stderr, "SQLite's lock on its file is gone"
        with closing(sqlite3.connect(tmp_path / "s")) as other:
            assert other.execute("SELECT value FROM about WHERE key = 'name'").fetchone() == ("B1",)
    finally:
        store.stop()


def test_a_lock_that_was_released_can_be_taken(tmp_path: Path) -> None:
    with StoreLock(tmp_path / "s"), pytest.raises(StoreError, match="another broker uses it"):
        StoreLock(tmp_path / "s")
    StoreLock(tmp_path / "s").release()


def test_a_store_that_may_not_be_opened_is_not_said_to_be_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system gives the same number for a lock that another program has."""

    def denied(path: object, *_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr("thatch.node.lock.os.open", denied)
    with pytest.raises(StoreError, match=f"store {tmp_path}/s: folder {tmp_path}: permission denied"):
        StoreLock(tmp_path / "s")


def test_what_is_no_file_is_no_store(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name, what in (("fifo", "a named pipe"), (".", "a folder")):
        with pytest.raises(StoreError, match=f"is {what}: a store is a file"):
            StoreLock(tmp_path / name)
