"""Neighbours that an operator has attached in the place of one that is lost for good.

    B1 ── B2 ✗ ── B3          at B1: B3 and B4 instead of B2        B1 ── B3
            └──── B4          at B3 and B4: B1 instead of B2          └── B4

B2 may have known what its neighbours do not: who, behind one of them, wants what is published behind another. So until
it is forgotten, the one that keeps its place passes on as B2 would have, and asks nobody: what is for B2, and all that
comes from one of those attached in its place, goes to each of the others, and is kept for those still to come. Each
knows what its own side wants. An event never goes back to where it came from, so it makes no round; all of it is on
disk, as behind B2 somebody may want it durably.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from thatch.delivery.journal import AttachmentRow


class Attachments:
    def __init__(self, rows: Iterable[AttachmentRow]) -> None:
        self._rows = {row.name: row for row in rows}
        self.attached_to: Mapping[str, tuple[str, ...]] = {}  # by the name of a lost one: those in its place
        self.names: frozenset[str] = frozenset()  # of the lost ones, and of those in their place
        self._gather()

    def _gather(self) -> None:
        found: dict[str, tuple[str, ...]] = {}
        for row in self._rows.values():
            if row.instead_of:
                found[row.instead_of] = (*found.get(row.instead_of, ()), row.name)
        self.attached_to = found
        self.names = frozenset(name for lost, names in found.items() for name in (lost, *names))

    def __iter__(self) -> Iterator[AttachmentRow]:
        return iter(list(self._rows.values()))

    def of(self, name: str) -> AttachmentRow | None:
        return self._rows.get(name)

    def url_of(self, name: str) -> str:
        """Where it is dialled; empty if it dials, or was not attached."""
        row = self._rows.get(name)
        return "" if row is None else row.url

    def is_lost(self, name: str) -> bool:
        """Whether others have come in its place."""
        return name in self.attached_to

    def put(self, row: AttachmentRow) -> None:
        self._rows[row.name] = row
        self._gather()

    def drop(self, name: str) -> None:
        self._rows.pop(name, None)
        self._gather()

    def receivers(self, source: str, targets: Iterable[str]) -> list[str]:
        """Of an event that came from a link and goes to these neighbours: who gets it, too."""
        found, origins = dict.fromkeys(targets), {source: None}
        first, waiting = len(found), [source, *found]
        while waiting:
            name = waiting.pop()
            for lost, names in self.attached_to.items():
                if name in names and name in origins:
                    origins[lost] = None  # as if it had come from there
                elif name != lost:
                    continue
                new = [each for each in (lost, *names) if each != source and each not in found]
                found |= dict.fromkeys(new)
                waiting += new
        return list(found)[first:]
