"""One program a store, whatever path leads to it: two locks, both held as long as the store is used.

- `NAME.thatch.lock` beside the file that the path leads to at last, all symbolic links followed. It is there before the
  store is and when a backup is put in its place.
- A byte of the store itself, far behind its end: it belongs to the file, so a bind mount or a second name for it does
  not lead around it. SQLite never locks that byte. It is a lock of the open file, not of the process, so SQLite's own
  locks and this one do not know one another; but closing *any* descriptor of a file drops what SQLite has locked there
  in the same process, and so the store is closed before its lock is.

A store with a second name (a hard link) is refused: its log stands beside one name, and who opens the other does not
see what is in the log.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import struct
from pathlib import Path
from types import TracebackType

from thatch.errors import StoreError, what_is_no_file

BYTE = 2**62  # SQLite's own locks are at 2^30
HELD = (errno.EACCES, errno.EAGAIN)  # why a lock cannot be had: another program has it


log = logging.getLogger("thatch.node")


class StoreInUse(StoreError):
    """A broker that runs has the store."""

    def __init__(self, given: Path, path: Path) -> None:
        super().__init__(f"store {given}: another broker uses it; each broker has a store of its own")
        self.given, self.path = given, path


class StoreLock:
    """Taken when it is made. `path` is where the store is, without symbolic links."""

    def __init__(self, path: Path) -> None:
        self.path = Path(os.path.realpath(path))
        self._given = path
        self._descriptors: list[int] = []
        try:
            if what := what_is_no_file(path):
                raise StoreError(f"store {path} is {what}: a store is a file such as B1.thatch")
            if not self.path.parent.exists():
                self.path.parent.mkdir(parents=True, exist_ok=True)
                log.info("made the folder %s", self.path.parent)
            self._lock_path()
            if self.path.exists():
                self.lock_file()
        except BaseException:
            self.release()
            raise

    def _lock_path(self) -> None:
        try:
            descriptor = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise self._closed_to_us(error, f"folder {self.path.parent}") from None
        self._descriptors.append(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise self._refusal(error) from None

    def lock_file(self) -> None:
        """The file itself, once it is there. Before SQLite opens it: see above."""
        if self.path.stat().st_nlink > 1:
            raise StoreError(
                f"store {self.path}: the file has another name, a hard link, and its log stands beside one of the two: "
                "remove the name that is not used (a backup is made by `thatch admin backup`)"
            )
        if not hasattr(fcntl, "F_OFD_SETLK"):  # only Linux has locks of open files
            return
        lock = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, BYTE, 1, 0)
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise self._closed_to_us(error, "the file") from None
        self._descriptors.append(descriptor)
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, lock)
        except OSError as error:
            raise self._refusal(error) from None

    def _refusal(self, error: OSError) -> StoreError:
        if error.errno not in HELD:
            return StoreError(
                f"store {self._given}: it cannot be locked: {(error.strerror or 'no reason given').lower()}"
            )
        return StoreInUse(self._given, self.path)

    def _closed_to_us(self, error: OSError, what: str) -> StoreError:
        """For what cannot be opened, whoever has locked it."""
        return StoreError(f"store {self._given}: {what}: {(error.strerror or 'it cannot be opened').lower()}")

    def release(self) -> None:
        """After the store was closed."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    def __enter__(self) -> StoreLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
