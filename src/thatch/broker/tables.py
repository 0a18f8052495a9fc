"""What has come over a broker's links: subscriptions, or advertisements, by link and id, an index over all, and digests
by which two sides compare what they hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from thatch.matching.index import TreeMatcher
from thatch.protocol.ids import SUBSCRIPTIONS
from thatch.region.region import Region
from thatch.space.axis import Coordinates
from thatch.space.space import Space


@dataclass(slots=True)
class Entry:
    number: int  # in the index
    link: str
    id: str
    peer_id: str  # the id by which the peer behind the link knows it: a client does not say where it lives
    where: str
    region: Region
    expires: float | None

    def renew(self, expires: float | None) -> None:
        """Its lease is another one from now on."""
        self.expires = expires


class ReceivedTable:
    """The same id may come over two links for a while, when a part of the overlay has moved: each keeps its own."""

    def __init__(self, space: Space) -> None:
        self._index = TreeMatcher(space)
        self._entries: dict[int, Entry] = {}
        self._by_link: dict[str, dict[str, Entry]] = {}
        self._by_id: dict[str, dict[str, Entry]] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        """All entries, in order of arrival."""
        return iter(self._entries.values())

    def of_link(self, link: str) -> Mapping[str, Entry]:
        return self._by_link.get(link, {})

    def of_id(self, id: str) -> Mapping[str, Entry]:
        """The entries under an id, by the link that each came over."""
        return self._by_id.get(id, {})

    def put(
        self, link: str, id: str, where: str, region: Region, expires: float | None, peer_id: str | None = None
    ) -> Entry:
        """Take an entry in, in place of the one that the link has under this id."""
        self.drop(link, id)
        entry = Entry(self._next, link, id, peer_id or id, where, region, expires)
        self._next += 1
        self._index.add(entry.number, region)
        self._entries[entry.number] = entry
        self._by_link.setdefault(link, {})[id] = entry
        self._by_id.setdefault(id, {})[link] = entry
        return entry

    def load(self, entries: Sequence[Entry]) -> None:
        """Into an empty one, in order of arrival; each link has an id once."""
        self._index.add_many([entry.number for entry in entries], [entry.region for entry in entries])
        for entry in entries:
            self._entries[entry.number] = entry
            self._by_link.setdefault(entry.link, {})[entry.id] = entry
            self._by_id.setdefault(entry.id, {})[entry.link] = entry
        self._next = len(entries)

    def drop(self, link: str, id: str) -> Entry | None:
        entry = self._by_link.get(link, {}).pop(id, None)
        if entry is None:
            return None
        del self._entries[entry.number], self._by_id[id][link]
        self._index.discard(entry.number)
        if not self._by_id[id]:
            del self._by_id[id]
        if not self._by_link[link]:
            del self._by_link[link]
        return entry

    def holding(self, point: Sequence[int]) -> list[Entry]:
        """The entries whose region holds a point, in order of arrival."""
        entries = self._entries
        return [entries[number] for number in self._index.view().match_point(point)]

    def holding_all(self, columns: Sequence[Coordinates]) -> list[list[Entry]]:
        """`holding` for many points, as columns of coordinates."""
        held: list[list[Entry]] = [[] for _ in columns[0]]
        rows, numbers = self._index.view().match_points(columns)
        for row, number in zip(rows.tolist(), numbers.tolist(), strict=True):
            held[row].append(self._entries[number])
        return held

    def meeting(self, region: Region) -> list[Entry]:
        """The entries whose region has an event in common with this one, in order of arrival. Of a ball, perhaps one
        that only comes near."""
        return [self._entries[number] for number in self._index.meeting(region)] if self._entries else []

    def moved(self, space: Space, regions: Mapping[str, Region]) -> ReceivedTable:
        """The same entries, their clauses compiled in another space."""
        table = ReceivedTable(space)
        for each in self:
            table.put(each.link, each.id, each.where, regions[each.where], each.expires, each.peer_id)
        return table

    def check_invariants(self) -> None:
        self._index.check_invariants()
        assert len(self._index) == len(self._entries)
        for number, entry in self._entries.items():
            assert entry.number == number
            assert self._by_link[entry.link][entry.id] is entry and self._by_id[entry.id][entry.link] is entry
        assert sum(map(len, self._by_link.values())) == sum(map(len, self._by_id.values())) == len(self._entries)


class ReceivedTables:
    """What came over all links."""

    def __init__(self, space: Space) -> None:
        self.subscriptions = ReceivedTable(space)
        self.advertisements = ReceivedTable(space)

    def table(self, name: str) -> ReceivedTable:
        return self.subscriptions if name == SUBSCRIPTIONS else self.advertisements

    def __iter__(self) -> Iterator[ReceivedTable]:
        return iter((self.subscriptions, self.advertisements))

    def move(self, space: Space, regions: Mapping[str, Region]) -> None:
        """Into another space, with the regions that clauses have there."""
        self.subscriptions = self.subscriptions.moved(space, regions)
        self.advertisements = self.advertisements.moved(space, regions)
