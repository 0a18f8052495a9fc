"""The space of a broker: what clauses mean in it, which step of growing it is, and what of it has opened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thatch.broker.forwarding import Forwarding
from thatch.broker.handling import Handling
from thatch.broker.router import Router
from thatch.errors import CallerError, ClauseError
from thatch.protocol.ids import ADVERTISEMENTS, SUBSCRIPTIONS
from thatch.protocol.records import SpaceRecord
from thatch.region.region import Region
from thatch.space.space import Space

Compile = Callable[[str, Space], Region]
ReadSpace = Callable[[str], Space]


class OwnSpace:
    def __init__(
        self,
        router: Router,
        forwarding: Forwarding,
        handling: Handling,
        compile: Compile | None,
        read_space: ReadSpace,
    ) -> None:
        self.text = self.open_text = router.space.to_json()
        self.step = self.open_step = 0  # of the space, and of what has opened; 0 is what the settings say
        self._origin = self._open_origin = ""  # who proposed them
        self._wanted = ""  # what an operator of this broker wants, and has not opened
        self._router, self._forwarding, self._handling = router, forwarding, handling
        self._compile, self._read_space = compile or _compiled, read_space
        self._drop_entry: Callable[[str, str, str, str], None] = lambda table, link, id, reason: None

    @property
    def space(self) -> Space:
        return self._router.space

    @property
    def open_space(self) -> Space:
        return self._router.open_space

    @property
    def is_open(self) -> bool:
        """Whether events and clauses may use all that the space has."""
        return self._router.open_space is self._router.space

    def read(self, text: str) -> Space:
        """The space of a text, which is most often our own."""
        if text == self.text:
            return self.space
        return self.open_space if text == self.open_text else self._read_space(text)

    def region(self, where: str) -> Region:
        return self._compile(where, self.space)

    def check_clause(self, where: str) -> None:
        """Refuse a clause of a client that uses what has not opened: brokers may not know it yet."""
        self.region(where)
        if self.is_open:
            return
        try:
            self._compile(where, self.open_space)
        except ClauseError as error:
            why = f"{error}: this is new in the space, and not known everywhere yet: try again later"
            raise CallerError(why, code="later") from None

    def drop_entries_by(self, drop: Callable[[str, str, str, str], None]) -> None:
        """How to drop an entry (table, link, id, reason) whose clause means nothing in another space."""
        self._drop_entry = drop

    def _move(self, space: Space, step: int, origin: str) -> None:
        """To another space: what clauses mean in it."""
        self.step, self._origin = step, origin
        if space == self.space:
            return
        if space == self.open_space:
            space = self.open_space  # a proposal is given up
        if not space.extends(self.open_space):
            self._drop_unreadable(space)
        wheres = dict.fromkeys(entry.where for table in self._forwarding.received for entry in table)
        for link in self._forwarding.brokers():
            for outbound in link.outbound:
                wheres.update(dict.fromkeys(outbound.wheres.values()))
        self._forwarding.move(space, {where: self._compile(where, space) for where in wheres})
        self._router.grow(space)
        self.text = space.to_json()

    def _drop_unreadable(self, space: Space) -> None:
        """Another lineage is taken over: clauses that mean nothing there go."""
        for table, received in zip((SUBSCRIPTIONS, ADVERTISEMENTS), self._forwarding.received, strict=True):
            for entry in list(received):
                try:
                    self._compile(entry.where, space)
                except ClauseError as error:
                    self._drop_entry(table, entry.link, entry.id, str(error))

    def _open(self) -> None:
        """Events and clauses may use what is new."""
        self.open_step, self._open_origin, self.open_text = self.step, self._origin, self.text
        self._router.open(self.space)
        self._record()
        self._handling.record(SpaceRecord(True, self.open_text, self.open_step, self._open_origin))

    def _record(self) -> None:
        self._handling.record(SpaceRecord(False, self.text, self.step, self._origin, self._wanted))

    # --- Restarts and copies ------------------------------------------------------------------------------------------

    def restore(self, grown: SpaceRecord | None, opened: SpaceRecord | None, open_space: Space) -> None:
        """As before a restart; the space is that of `grown`."""
        if opened is not None:
            self.open_step, self._open_origin = opened.step, opened.origin
        if grown is None:
            return
        self.step, self._origin, self._wanted = grown.step, grown.origin, grown.wanted
        if open_space != self.space:
            self._router.open(open_space)
            self.step, self.open_text = max(self.step, self.open_step + 1), open_space.to_json()

    def shared(self) -> dict[int, Any]:
        """What a copy of the broker has in common with it, for `copy.deepcopy`: what clauses mean, and coordinates."""
        opened = self._router.open_space
        meaning = [self.space, opened, self._compile, self._read_space]
        meaning += [owner for each in (self._compile, self._read_space) if (owner := getattr(each, "__self__", None))]
        meaning += [self.space.label_codes, opened.label_codes]
        return {id(each): each for each in meaning}


def _compiled(where: str, space: Space) -> Region:
    return space.where(where)
