"""Programs that move from one whole node to another, as a program is to do it: subscribe there, flush here, leave here.

    here ─▶ arriving: until all has settled there ─▶ flushing: until what was on its way here has come ─▶ left

Nothing of a plain subscription is lost by that, however long events wait for slow links, cuts and full disks: what is
published after it has settled comes to one of both places. Only a crash, which plain events do not survive, voids that.
"""

from __future__ import annotations

from collections.abc import Callable

from thatch.protocol.ids import SUBSCRIPTIONS
from thatch.protocol.messages import Publish
from thatch.region.region import Region
from thatch.sim.node_clients import HOME, Program
from thatch.sim.oracle import Failed

ID = "s"  # of the subscription that moves
BEHIND, CLAUSE_BEHIND = "behind", "x = 0"  # what it asks for behind the flush: that settles sooner


class Mover:
    def __init__(self, here: Program, where: str, region: Region) -> None:
        self.here, self.where, self.region = here, where, region
        self.there: Program | None = None
        self.phase = "here"
        self._expected: dict[str, None] = {}  # events that have to come, to one of both places
        self._is_void = False  # until the next rest
        here.subscribe(ID, where)

    @property
    def is_moving(self) -> bool:
        return self.phase in ("arriving", "flushing")

    def move(self, there: Program) -> None:
        self.there, self.phase = there, "arriving"
        there.subscribe(ID, self.where)

    def step(self) -> None:
        """On, if what it waits for has come."""
        assert self.there is not None
        if self.phase == "arriving" and self._has_settled(self.there):
            self.phase = "flushing"
            self.here.flush()
            self.here.subscribe(BEHIND, CLAUSE_BEHIND)
        elif self.phase == "flushing" and self.here.state.is_flushed(HOME):
            self.phase = "left"
            for id in (ID, BEHIND):
                self.here.unsubscribe(id)

    def _has_settled(self, program: Program) -> bool:
        return program.end is not None and program.state.is_settled(HOME, SUBSCRIPTIONS, ID)

    def note_published(self, event: Publish) -> None:
        has_settled = self._has_settled(self.here) and self.phase in ("here", "arriving")
        if not has_settled and self.there is not None:
            has_settled = self._has_settled(self.there)
        if has_settled and not self._is_void and self.region.contains(event.event):
            self._expected[event.id] = None

    def void(self) -> None:
        """Something has crashed, or a store is another one."""
        self._is_void = True
        self._expected.clear()

    def check(self, arrivals: dict[str, dict[str, None]], is_due: Callable[[str], bool]) -> int:
        """At rest: what had to come has come. How many events these are. `is_due`: whether an event was taken."""
        names = [self.here.name, *([] if self.there is None else [self.there.name])]
        due = [event for event in self._expected if is_due(event)]
        for event in due:
            if not any(f"{name}/{ID}" in arrivals.get(event, {}) for name in names):
                raise Failed(f"event {event} never came to {self.here.name}, which is {self.phase}")
        self._expected.clear()
        self._is_void = False
        return len(due)
