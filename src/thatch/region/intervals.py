"""A set of coordinates on one axis: closed intervals, sorted, with a coordinate missing between neighbours.

`x <> 5` is two intervals, `x IN (1, 3)` two more, an unbounded comparison one. A watchlist of 50,000 values is one
such set, of 16 bytes an interval, and stays one until somebody crosses it out into boxes.

    ends:  low0 high0  low1 high1  ...      (one flat array, ascending)
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray


class Intervals:
    """
    >>> low_or_high = Intervals.of([(1, 3), (7, 9)])
    >>> low_or_high & Intervals.of([(3, 7)])
    Intervals.of([(3, 3), (7, 7)])
    >>> low_or_high | Intervals.of([(4, 6)])
    Intervals.of([(1, 9)])
    >>> 3 in low_or_high, 4 in low_or_high
    (True, False)
    """

    __slots__ = ("_hash", "ends")

    def __init__(self, ends: Iterable[int]) -> None:
        """From ends that are already sorted, disjoint and not adjacent; `of` takes any."""
        self.ends = array("q", ends)
        self._hash = 0

    @classmethod
    def of_array(cls, ends: array[int]) -> Intervals:
        """As the constructor, of an array("q") that is kept and not copied."""
        made = cls.__new__(cls)
        made.ends, made._hash = ends, 0
        return made

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, int]]) -> Intervals:
        """From any closed intervals; those with low > high are empty. O(n log n)."""
        ends: list[int] = []
        for low, high in sorted(pairs):
            if low > high:
                continue
            if ends and low <= ends[-1] + 1:
                ends[-1] = max(ends[-1], high)
            else:
                ends += (low, high)
        return cls(ends)

    @classmethod
    def between(cls, low: int, high: int) -> Intervals:
        return cls((low, high) if low <= high else ())

    def __len__(self) -> int:
        """The number of intervals."""
        return len(self.ends) >> 1

    def __iter__(self) -> Iterator[tuple[int, int]]:
        ends = iter(self.ends)
        return zip(ends, ends, strict=True)

    def __contains__(self, coordinate: int) -> bool:
        index = bisect_left(self.ends, coordinate)
        return bool(index & 1) or (index < len(self.ends) and self.ends[index] == coordinate)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Intervals) and self.ends == other.ends

    def __hash__(self) -> int:
        if not self._hash:
            self._hash = hash(self.ends.tobytes())
        return self._hash

    def __repr__(self) -> str:
        return f"Intervals.of({list(self)})"

    @property
    def low(self) -> int:
        return self.ends[0]

    @property
    def high(self) -> int:
        return self.ends[-1]

    def __and__(self, other: Intervals) -> Intervals:
        """O(n + m); O(log n + k) against a single interval that meets k."""
        if len(self.ends) < len(other.ends):
            self, other = other, self
        if len(other.ends) == 2:
            return self.clipped(*other.ends)
        if not other.ends:
            return other
        ends: list[int] = []
        a, b = self.ends, other.ends
        i = j = 0
        while i < len(a) and j < len(b):
            low = a[i] if a[i] > b[j] else b[j]
            high = a[i + 1] if a[i + 1] < b[j + 1] else b[j + 1]
            if low <= high:
                ends += (low, high)
            if a[i + 1] < b[j + 1]:
                i += 2
            else:
                j += 2
        return Intervals(ends)

    def clipped(self, low: int, high: int) -> Intervals:
        """The part inside one interval."""
        ends = self.ends
        if not ends:
            return self
        if len(ends) == 2:
            return Intervals.between(max(low, ends[0]), min(high, ends[1]))
        first = bisect_left(ends, low)  # ends before it are below low
        kept = (
            ends[first - (first & 1) : bisect_left(ends, high + 1)] if high < ends[-1] else ends[first - (first & 1) :]
        )
        if len(kept) & 1:
            kept.append(high)
        if len(kept) and kept[0] < low:
            kept[0] = low
        return Intervals(kept if low <= high else ())

    def __or__(self, other: Intervals) -> Intervals:
        return Intervals.of([*self, *other])

    def outside(self, low: int, high: int) -> Intervals:
        """The coordinates of low..high that are not in this set: its complement on an axis. O(n)."""
        ends: list[int] = []
        start = low
        for below, above in self.clipped(low, high):
            if start < below:
                ends += (start, below - 1)
            start = above + 1
        if start <= high:
            ends += (start, high)
        return Intervals(ends)

    def __sub__(self, other: Intervals) -> Intervals:
        return self & other.outside(self.low, self.high) if self.ends else self

    def __le__(self, other: Intervals) -> bool:
        """Whether this is a subset of the other. O(n log m), and most often no is known after the first interval."""
        mine, theirs = self.ends, other.ends
        if not mine or mine == theirs:
            return True
        if not theirs or mine[0] < theirs[0] or mine[-1] > theirs[-1]:
            return False
        if len(theirs) == 2:
            return True
        at = 0
        for place in range(0, len(mine), 2):
            at = bisect_left(theirs, mine[place], at)
            if not at & 1:  # between two of the other's, unless it begins where one does
                if theirs[at] != mine[place]:
                    return False
                at += 1
            if theirs[at] < mine[place + 1]:
                return False
        return True

    def isdisjoint(self, other: Intervals) -> bool:
        return not (self & other).ends

    def count(self) -> int:
        """The number of coordinates, exactly."""
        return sum(high - low + 1 for low, high in self)

    def to_numpy(self) -> NDArray[np.int64]:
        """The ends as a flat array, without a copy."""
        return np.frombuffer(self.ends, np.int64)


EMPTY = Intervals(())
