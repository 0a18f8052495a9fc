"""Ids and numbers: a table's ids are strings or ints, its indexes know numbers.

Numbers rise and are never used again, so a reader with an old view of an index can still look up what it finds. Ids
stand in chunks of 1,024 numbers. A reader holds the directory of the chunks as it was; writers append to a chunk in
place, where no older reader looks, and put another directory in place of the old one when a chunk comes or goes. A
chunk of which few ids are left is copied without the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np

from thatch.errors import CallerError, shown

Chunks = Mapping[int, list[Any] | dict[int, Any]]
BITS = 10


def is_text(value: Any) -> bool:
    """A string that Arrow and files can hold: no half surrogate pairs."""
    return isinstance(value, str) and (value.isascii() or not any("\ud800" <= each <= "\udfff" for each in value))


def own_id(id: Any) -> Any:
    """NumPy's ints and strings as Python's."""
    return id.item() if isinstance(id, np.generic) else id


def id_of(chunks: Chunks, number: int, bits: int = BITS) -> Any:
    return chunks[number >> bits][number & ((1 << bits) - 1)]


class Names:
    def __init__(self, bits: int = BITS) -> None:
        self.bits = bits
        self.chunks: dict[int, list[Any] | dict[int, Any]] = {}
        self._numbers: dict[Any, int] = {}  # in order of arrival
        self._living: dict[int, int] = {}  # ids left in each chunk
        self._next = 0
        self.kind: type | None = None  # of all ids, str or int; None while there are none

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._numbers)

    def __contains__(self, id: object) -> bool:
        return id in self._numbers

    def number(self, id: Any) -> int:
        return self._numbers[id]

    def check_new(self, ids: list[Any]) -> None:
        """Ids that are about to come: new, different, and of one kind."""
        if self.kind in (str, None) and set(map(type, ids)) == {str}:  # the usual case, all at once
            new = set(ids)
            if len(new) == len(ids) and new.isdisjoint(self._numbers) and all(map(str.isascii, ids)):
                return
        seen: set[Any] = set()
        kind = self.kind
        for id in ids:
            own = str if is_text(id) else int if isinstance(id, int) and not isinstance(id, bool) else None
            if own is None:
                raise CallerError(f"an id is a string of valid Unicode or an int, not {shown(id)}")
            if own is int and not -(2**63) <= id < 2**63:
                raise CallerError(f"an id that is an int has 64 bits, unlike {shown(id)}")
            if kind is not None and own is not kind:
                raise CallerError(f"ids of one table are all {kind.__name__}: {shown(id)} is not")
            kind = own
            if id in self._numbers or id in seen:
                raise CallerError(f"{shown(id)} is subscribed already: unsubscribe it, or replace it")
            seen.add(id)

    def add(self, ids: list[Any]) -> range:
        """New ids, checked by `refuse`. Their numbers."""
        numbers = range(self._next, self._next + len(ids))
        if ids:
            self.kind = str if isinstance(ids[0], str) else int
        self._place(ids)
        self._numbers.update(zip(ids, numbers, strict=True))
        return numbers

    def renew(self, id: Any) -> int:
        """Another number for a known id; it keeps its place in the order."""
        old = self._numbers[id]
        self._numbers[id] = self._next
        self._place([id])
        self._leave(old)
        return self._numbers[id]

    def _place(self, ids: list[Any]) -> None:
        rest = iter(ids)
        new: dict[int, list[Any] | dict[int, Any]] = {}
        size = 1 << self.bits
        while part := list(islice(rest, size - (self._next & (size - 1)))):
            chunk = self._next >> self.bits
            known = self.chunks.get(chunk)
            if known is None:
                new[chunk] = part
            else:
                known.extend(part)  # type: ignore[union-attr]  # the last chunk is a list
            self._living[chunk] = self._living.get(chunk, 0) + len(part)
            self._next += len(part)
        if new:
            self.chunks = {**self.chunks, **new}

    def discard(self, id: Any) -> None:
        self._leave(self._numbers.pop(id))
        if not self._numbers:
            self.kind = None

    def _leave(self, number: int) -> None:
        chunk = number >> self.bits
        self._living[chunk] -= 1
        if chunk == self._next >> self.bits:  # still being filled
            return
        if not self._living[chunk]:
            del self._living[chunk]
            self.chunks = {each: ids for each, ids in self.chunks.items() if each != chunk}
        elif 4 * self._living[chunk] < len(self.chunks[chunk]):
            ids = self.chunks[chunk]
            pairs = enumerate(ids) if isinstance(ids, list) else ids.items()
            first = chunk << self.bits
            left = {place: id for place, id in pairs if self._numbers.get(id) == first + place}
            self.chunks = {**self.chunks, chunk: left}

    def check_invariants(self) -> None:
        living: dict[int, int] = {}
        for id, number in self._numbers.items():
            assert id_of(self.chunks, number, self.bits) == id
            living[number >> self.bits] = living.get(number >> self.bits, 0) + 1
        assert living == {chunk: count for chunk, count in self._living.items() if count}
        assert self.chunks.keys() == self._living.keys()
