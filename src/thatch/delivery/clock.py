"""Time, as a node counts it. The clock of a machine is stepped now and then, hours back or days forward; what must not
be mistaken then goes by a clock that only runs on.

    wall     what the machine's clock says: for people, and for leases, which are promises on it
    now      the wall's time when the node was started, and how long it has run since: never steps
    ran      how long nodes have run on this store, all in all: the age of what is kept is counted in it
    ahead    wall - now: by how much the machine's clock was stepped since the start
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

STEP_SECONDS = 2.0  # between two looks: less is a clock that is being adjusted


class Stamp(NamedTuple):
    """When something came."""

    at: float  # seconds since 1970
    ran: float  # how long nodes had run on the store


class Clock:
    def __init__(self, wall: Callable[[], float], steady: Callable[[], float], ran: float = 0.0) -> None:
        """`wall` may be stepped, `steady` only runs on. `ran`: how long nodes have run on the store before."""
        self._wall, self._steady, self._ran = wall, steady, ran
        self._began, self._steady_began = wall(), steady()
        self._ahead_seen = 0.0

    def __call__(self) -> float:
        """Now."""
        return self._began + self.seconds

    @property
    def seconds(self) -> float:
        """Since the node was started."""
        return self._steady() - self._steady_began

    @property
    def ran(self) -> float:
        return self._ran + self.seconds

    @property
    def ahead(self) -> float:
        return self._wall() - self()

    def stamp(self) -> Stamp:
        return Stamp(self._wall(), self.ran)

    def take_step(self) -> float:
        """By how much the machine's clock was stepped since this was last asked; 0 if it was not."""
        ahead = self.ahead
        step, self._ahead_seen = ahead - self._ahead_seen, ahead
        return step if abs(step) >= STEP_SECONDS else 0.0
