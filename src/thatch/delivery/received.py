"""What came from a neighbour, and what it has of ours: up to which number, by life.

*Taken* is what was routed; *committed* is what is on disk. A plain event is taken and need never be committed: after a
crash less has been taken than was said, but never less committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from thatch.delivery.journal import ConfirmedRow, Journal, ReceivedRow
from thatch.protocol.records import PeerKey

LIVES_KEPT = 64  # of a neighbour's store, and of this one


class Arrivals:
    """What came from one neighbour."""

    def __init__(self, peer: PeerKey, journal: Journal, rows: Iterable[ReceivedRow]) -> None:
        self._peer, self._journal = peer, journal
        self.taken: dict[str, int] = {}  # by life of its store, in the order in which they came
        self.committed: dict[str, int] = {}
        self._places: dict[str, int] = {}
        for row in sorted(rows, key=lambda row: row.place):
            self.taken[row.life] = self.committed[row.life] = row.number
            self._places[row.life] = row.place

    @property
    def last(self) -> int:
        """The number that was taken last, of whichever life."""
        return next(reversed(self.taken.values()), 0)

    def note(self, life: str, number: int) -> None:
        """Taken up to this number."""
        if life not in self.taken:
            self._places[life] = max(self._places.values(), default=0) + 1
            plain = [each for each in self.taken if each not in self.committed]
            if len(plain) >= LIVES_KEPT:
                del self.taken[plain[0]], self._places[plain[0]]
        self.taken[life] = number

    def commit(self, life: str) -> None:
        """What was taken of a life is to be on disk. The life that was committed before it stays, however long ago it
        was: the neighbour may not hear of this one, and then asks after that one."""
        number, place = self.taken[life], self._places[life]
        self._journal.note_received(ReceivedRow(self._peer, life, number, place))
        if life not in self.committed and len(self.taken) > LIVES_KEPT:
            before = max((self._places[each] for each in self.committed), default=place)
            self._forget(min(place - LIVES_KEPT, before - 1))
        self.committed[life] = number

    def _forget(self, place: int) -> None:
        self._journal.drop_received(self._peer, place)
        for life in [life for life, each in self._places.items() if each <= place]:
            del self.taken[life], self._places[life]
            self.committed.pop(life, None)


class Confirmations:
    """What one neighbour has said that it holds on its disk."""

    def __init__(
        self, peer: PeerKey, journal: Journal, rows: Iterable[ConfirmedRow], ordinal: Callable[[str], int]
    ) -> None:
        """`ordinal` of a life of this store."""
        self._peer, self._journal, self._ordinal = peer, journal, ordinal
        self.numbers = {row.life: row.number for row in rows}  # by life of this store

    def lower(self, numbers: Mapping[str, int]) -> None:
        """Its store went back to the past, or is another one: that is all that it holds."""
        for life, number in self.numbers.items():
            if number > numbers.get(life, 0):
                self.numbers[life] = numbers.get(life, 0)
                self._journal.note_confirmed(ConfirmedRow(self._peer, life, self.numbers[life]))

    def note(self, life: str, number: int) -> None:
        if number > self.numbers.get(life, 0):
            self.numbers[life] = number
            self._journal.note_confirmed(ConfirmedRow(self._peer, life, number))
            if len(self.numbers) > LIVES_KEPT:
                first = min(self.numbers, key=self._ordinal)
                del self.numbers[first]
                self._journal.drop_confirmed(self._peer, first)
