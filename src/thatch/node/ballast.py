"""Room on the disk that is kept for what must go on when there is no other: `NAME.thatch.ballast`, some real bytes.

    there                      the disk may get full
    given up (0 bytes long)    a start, acknowledgements and deletions use the room; new work is refused
    there again                as soon as there is room for it

SQLite needs room for its log even to delete: without ballast, readers of a full disk could not drain their queues. The
bytes are random, so that no file system stores less than them. Where the disk is too small there is none.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

log = logging.getLogger("thatch.node")
SUFFIX = ".ballast"
BYTES = 4 * 2**20


class Ballast:
    def __init__(self, store: Path, free_bytes: Callable[[Path], int], size: int = BYTES) -> None:
        self.path, self._size, self._free_bytes = store.with_name(store.name + SUFFIX), size, free_bytes

    @property
    def is_there(self) -> bool:
        return self._length == self._size

    @property
    def is_owed(self) -> bool:
        """It was given up: what is free now is for what must go on."""
        return 0 <= self._length < self._size

    @property
    def _length(self) -> int:
        try:
            return self.path.stat().st_size
        except OSError:
            return -1

    def make(self) -> bool:
        """Make it if there is room for it twice. Whether it is there."""
        if self.is_there:
            return True
        if self._free_bytes(self.path.parent) < 2 * self._size:
            return False
        draft = self.path.with_name(self.path.name + ".new")
        try:
            with draft.open("wb") as file:
                file.write(os.urandom(self._size))
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, self.path)
        except OSError:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
            return False
        return True

    def give_up(self) -> bool:
        """Whether there was something to give up."""
        if not self.is_there:
            return False
        with self.path.open("r+b") as file:
            file.truncate(0)
            os.fsync(file.fileno())
        log.warning(
            "the disk of %s is full: the ballast beside it is given up, so that readers can drain; new work that needs "
            "the disk is refused until there is room for the ballast again",
            self.path.parent,
        )
        return True
