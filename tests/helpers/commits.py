"""A disk whose commits are delayed, fail, or are lost; and what is on it, as a reader of the file sees it."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any


class PowerCutError(Exception):
    """Nothing is written any more."""


class Disk:
    """Its `before_commit` is given to a node: commits wait while it is held."""

    def __init__(self) -> None:
        self._may_commit = threading.Event()
        self._may_commit.set()
        self._failure: Exception | None = None
        self.waiting = threading.Event()  # a commit waits, or has failed

    def before_commit(self) -> None:
        if not self._may_commit.is_set():
            self.waiting.set()
            assert self._may_commit.wait(30)
        if self._failure is not None:
            self.waiting.set()
            raise self._failure

    def hold(self) -> None:
        """Commits wait from now on."""
        self.waiting.clear()
        self._may_commit.clear()

    def release(self) -> None:
        """Commits go through, also those that wait."""
        self._failure = None
        self._may_commit.set()

    def fill(self) -> None:
        """Commits fail as on a full disk, and are tried again."""
        self._failure = sqlite3.OperationalError("database or disk is full")
        self._failure.sqlite_errorcode = sqlite3.SQLITE_FULL
        self.waiting.clear()
        self._may_commit.set()

    def cut_power(self) -> None:
        """What was not committed is lost, also what waits."""
        self._failure = PowerCutError("the power is gone")
        self._may_commit.set()


def rows(path: Path, table: str) -> list[tuple[Any, ...]]:
    """What is committed of a table, while a broker uses the store."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
        return connection.execute(f"SELECT * FROM {table}").fetchall()
