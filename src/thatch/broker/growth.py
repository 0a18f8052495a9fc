"""A space that grows: `Extend` spreads it, every broker compiles its clauses again, and when that has settled
everywhere events may carry what is new.

    operator ── Extend ─▶ B1 ── Extend ─▶ B2        each compiles its clauses, and forwards what is no longer covered
                          B1 ◀─ Settled ── B2       all have it: B1 opens it,
                          B1 ── Extend, opened ─▶ B2   and from then on events may carry what is new
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thatch.broker.forwarding import Forwarding
from thatch.broker.handling import Handling
from thatch.broker.link import Waiting
from thatch.broker.router import Router
from thatch.broker.settling import Settling
from thatch.errors import CallerError
from thatch.protocol.messages import OPERATOR, Extend
from thatch.protocol.records import SpaceRecord
from thatch.region.region import Region
from thatch.space.space import Space

Compile = Callable[[str, Space], Region]
ReadSpace = Callable[[str], Space]


class Growth:
    """The space of a broker, what clauses mean in it, and how it becomes another."""

    def __init__(
        self,
        router: Router,
        forwarding: Forwarding,
        settling: Settling,
        handling: Handling,
        compile: Compile | None,
        read_space: ReadSpace,
    ) -> None:
        self.text = router.space.to_json()
        self._router, self._forwarding, self._links = router, forwarding, forwarding.links
        self._settling, self._handling = settling, handling
        self._compile, self._read_space = compile or _compiled, read_space
        self._opening: Waiting | None = None  # an `Extend` of the operator that has not settled

    @property
    def space(self) -> Space:
        return self._router.space

    @property
    def is_open(self) -> bool:
        """Whether events may carry all that clauses may name."""
        return self._router.open_space is self._router.space

    def read(self, text: str) -> Space:
        """The space of a text, which is most often our own."""
        return self.space if text == self.text else self._read_space(text)

    def region(self, where: str) -> Region:
        return self._compile(where, self.space)

    def extend(self, message: Extend, link: str) -> None:
        space = self.read(message.space)
        source = self._links.get(link)
        if source is not None and source.is_client:
            raise CallerError("a client cannot extend the space: only the operator can", code="not_allowed")
        if not space.extends(self.space):
            if self.space.extends(space):  # we are ahead, and have said so, or shall when the link is synced
                return
            rule = "nullable attributes, or values of enums, may be added at the end"
            raise CallerError(f"{space} does not extend {self.space}: {rule}", code="space")
        moved, opens = space != self.space, message.opened and not self.is_open
        if moved:
            self._grow(space)
        if message.opened and (moved or opens):
            self._set_open()
        if moved or opens:
            self._spread(link, message.opened)
        if link == OPERATOR:
            self._opening = Waiting(0, self._settling.unsettled(OPERATOR))

    def _grow(self, space: Space) -> None:
        wheres = dict.fromkeys(entry.where for table in self._forwarding.received for entry in table)
        for link in self._forwarding.brokers():
            for outbound in link.outbound:
                wheres.update(dict.fromkeys(outbound.wheres.values()))
        self._forwarding.move(space, {where: self._compile(where, space) for where in wheres})
        for link in self._forwarding.brokers():
            link.fall_behind(self.space)
        self._router.grow(space)
        self.text = space.to_json()
        self._handling.record(SpaceRecord(is_open=False, space=self.text))

    def open_if_settled(self) -> None:
        """Everybody has compiled its clauses again: events may carry what is new."""
        if self._opening is not None and self._opening.is_over(self._links):
            self._opening = None
            self._set_open()
            self._spread(OPERATOR, opened=True)

    def _set_open(self) -> None:
        self._router.open(self.space)
        self._handling.record(SpaceRecord(is_open=True, space=self.text))

    def _spread(self, but: str, opened: bool) -> None:
        self._settling.spread(but, lambda seq: Extend(seq, self.text, opened))

    def forget_link(self, name: str) -> None:
        if self._opening is not None:
            self._opening.forget(name)

    def restore(self, opened: Space) -> None:
        """As before a restart: events may carry so much."""
        self._router.open(opened)

    def shared(self) -> dict[int, Any]:
        """What a copy of the broker has in common with it, for `copy.deepcopy`: what clauses mean, and coordinates."""
        opened = self._router.open_space
        meaning = [self.space, opened, self._compile, self._read_space]
        meaning += [owner for each in (self._compile, self._read_space) if (owner := getattr(each, "__self__", None))]
        meaning += [self.space.label_codes, opened.label_codes]
        return {id(each): each for each in meaning}


def _compiled(where: str, space: Space) -> Region:
    return space.where(where)
