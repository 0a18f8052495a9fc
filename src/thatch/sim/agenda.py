"""What happens at which time, in simulated seconds: the order is that of the times, then that of the calls."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any


class Agenda:
    def __init__(self) -> None:
        self.now = 0.0
        self._entries: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._added = 0

    def at(self, when: float, action: Callable[..., None], *arguments: Any) -> None:
        self._added += 1
        heapq.heappush(self._entries, (max(when, self.now), self._added, action, arguments))

    def run(self, until: float | None = None, progress: Callable[[], None] | None = None) -> None:
        """To the end of the agenda, or to a time."""
        entries, done = self._entries, 0
        while entries and (until is None or entries[0][0] <= until):
            self.now, _, action, arguments = heapq.heappop(entries)
            action(*arguments)
            done += 1
            if progress is not None and not done & 4095:
                progress()
        if until is not None:
            self.now = max(self.now, until)

    @property
    def is_busy(self) -> bool:
        """Whether anything is still to happen."""
        return bool(self._entries)
