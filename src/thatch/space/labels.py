"""Integer labels for strings and other keys, given out as boundaries become known.

The idea: cut the order of all strings (UTF-8 bytes, which is Python's and Spark's order) at every string that
somebody mentioned. Between two neighbouring cuts lies a gap [cut, next cut): every string in it answers every
mentioned comparison alike, so a gap is atomic. A gap owns a run of labels; a new cut divides the run.

    cuts       ''             'IBM'      'IBM\\0'       'K'
    labels     0              1000       1050          2000                  LAST
    gaps       |-- < 'IBM' ---|- 'IBM' --|- > 'IBM' ---|------ >= 'K' --------|

Each gap contains its own cut, so none is empty and every label stands for some string. `s` alone is the gap
['s', 's\\0'), since nothing sorts between a string and the string followed by NUL. An interval that was given out
before a division stays right after it, because it holds whole runs.

Other types of more values than integers have are labelled by keys, which are strings in the order of their values
(axis.LabelledAxis). Then every cut is the key of a value, that of the least one being '', so no gap is empty either.

This is the order-maintenance problem (Dietz & Sleator 1987). We want labels that never change while a holder
uses them, so there is no local relabelling: a new cut is placed in proportion to its text between its neighbours,
at least sqrt(gap) labels away from both. Random, ascending, descending and interleaved series all leave room for
millions of cuts; midpoints alone were used up by 62 ascending ones. When a run is used up the axis is *recoded*:
`recoded` makes new labels with even spacing. The old ones stay as they are: a holder of old labels can still read them.

Cost: a known string is one dict look-up; another one is a binary search, O(log n).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from math import isqrt
from operator import lt

import numpy as np
from numpy.typing import NDArray
from sortedcontainers import SortedList

FIRST = 0
LAST = 2**62 - 1


class Labels:
    """One set of labels for the cuts of an axis.

    >>> labels = Labels()
    >>> ibm = labels.cut("IBM")
    >>> labels.of("IBM") == ibm == labels.of("IBM and more")
    True
    >>> labels.of("HAL") < ibm, labels.cut_at(labels.of("HAL"))
    (True, '')
    """

    __slots__ = ("_cuts", "_label", "_labels", "_lock")

    def __init__(self, cuts: Iterable[str] = ()) -> None:
        ordered = sorted({"", *cuts})
        step = (LAST + 1) // len(ordered)
        self._lock = threading.Lock()
        self._cuts = SortedList(ordered)
        self._labels = SortedList(range(FIRST, FIRST + step * len(ordered), step))
        self._label: dict[str, int] = dict(zip(ordered, self._labels, strict=True))

    def __len__(self) -> int:
        return len(self._cuts)

    def of(self, value: str) -> int:
        """The label of the gap that holds this string. O(1) if it is a cut, else O(log n)."""
        label = self._label.get(value)
        if label is not None:
            return label
        with self._lock:
            return self._label[self._cuts[self._cuts.bisect_right(value) - 1]]

    def cut(self, value: str) -> int | None:
        """The first label at or after this string, cutting here if need be; None if the run is used up."""
        label = self._label.get(value)
        if label is not None:
            return label
        with self._lock:
            if value in self._label:
                return self._label[value]
            return self._insert(value)

    def cut_many(self, values: Iterable[str]) -> bool:
        """Cut at all of these; False if some run was used up (then recode). O(n log n)."""
        with self._lock:
            known = self._label
            new = sorted({value for value in values if value not in known})
            if 4 * len(new) < len(self._cuts):
                return all(self._insert(value) is not None for value in new)
            return self._insert_runs(new)

    def spans(self, pairs: Iterable[tuple[str | None, str | None]]) -> list[tuple[int, int]]:
        """The labels from one cut to before another; None is behind the last label. `cut_many` has them all. O(n)."""
        label = self._label
        return [
            (LAST + 1 if start is None else label[start], LAST if stop is None else label[stop] - 1)
            for start, stop in pairs
        ]

    def singles(self, after: Callable[[str], str | None]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The first and the last label of every value that is cut before and after, ascending. `after` gives the next
        key, None after that of the last value. O(n)."""
        with self._lock:
            known, pairs = self._label, []
            for cut, low in known.items():
                above = after(cut)
                if above is None or above in known:
                    pairs.append((low, LAST if above is None else known[above] - 1))
            pairs.sort()
        ends = np.array(pairs, np.int64).reshape(-1, 2)
        return np.ascontiguousarray(ends[:, 0]), np.ascontiguousarray(ends[:, 1])

    def to_pairs(self) -> tuple[list[str], list[int]]:
        """Every cut and its label, ascending: `Labels.of_pairs` makes the same labels of it."""
        with self._lock:
            return list(self._cuts), list(self._labels)

    @classmethod
    def of_pairs(cls, cuts: list[str], labels: list[int]) -> Labels:
        """What `to_pairs` gave; anything else is an error."""
        ascend = all(map(lt, cuts, cuts[1:])) and all(map(lt, labels, labels[1:]))
        if not ascend or len(cuts) != len(labels) or cuts[:1] != [""] or labels[0] != FIRST or labels[-1] > LAST:
            raise ValueError("these are no labels: strings and numbers must ascend side by side")
        made = cls()
        made._cuts, made._labels = SortedList(cuts), SortedList(labels)
        made._label = dict(zip(cuts, labels, strict=True))
        return made

    def _insert(self, value: str) -> int | None:
        index = self._cuts.bisect_right(value)
        low = self._label[self._cuts[index - 1]]
        high = self._label[self._cuts[index]] if index < len(self._cuts) else LAST + 1
        gap = high - low
        if gap < 2:
            return None
        margin = isqrt(gap) if gap > 4 else 1
        above = self._cuts[index] if index < len(self._cuts) else None
        share = int(gap * _position(self._cuts[index - 1], value, above))
        label: int = low + min(max(share, margin), gap - margin)
        self._cuts.add(value)
        self._labels.add(label)
        self._label[value] = label  # last: a reader that finds a string here finds it everywhere
        return label

    def _insert_runs(self, new: list[str]) -> bool:
        """Bulk form: the new cuts that fall into one gap share its run evenly."""
        start = 0
        while start < len(new):
            index = self._cuts.bisect_right(new[start])
            low = self._label[self._cuts[index - 1]]
            if index < len(self._cuts):
                above, high = self._cuts[index], self._label[self._cuts[index]]
                stop = start
                while stop < len(new) and new[stop] < above:
                    stop += 1
            else:
                high, stop = LAST + 1, len(new)
            step = (high - low) // (stop - start + 1)
            if step < 1:
                return False
            self._add(new[start:stop], range(low + step, low + step * (stop - start) + 1, step))
            start = stop
        return True

    def _add(self, cuts: list[str], labels: Iterable[int]) -> None:
        pairs = list(zip(cuts, labels, strict=True))
        self._cuts.update(cuts)
        self._labels.update([label for _, label in pairs])
        self._label.update(pairs)

    def cut_at(self, label: int) -> str:
        """The least string of the gap that owns this label."""
        with self._lock:
            cut: str = self._cuts[self._labels.bisect_right(label) - 1]
            return cut

    def next_cut(self, label: int) -> str | None:
        """The cut where the gap of this label ends; None for the last gap."""
        with self._lock:
            index = self._labels.bisect_right(label)
            return self._cuts[index] if index < len(self._cuts) else None

    def gaps_between(self, low: int, high: int) -> int:
        """How many gaps the closed interval of labels touches."""
        with self._lock:
            return int(self._labels.bisect_right(high) - self._labels.bisect_right(low)) + 1

    def example(self, label: int) -> str:
        """A string of this gap that is pleasant to read: its cut, or a printable one near it."""
        cut, above = self.cut_at(label), self.next_cut(label)
        if cut.endswith("\0"):
            for last in "-0Aa~":
                if above is None or cut[:-1] + last < above:
                    return cut[:-1] + last
        return cut

    def recoded(self, more: Iterable[str]) -> Labels:
        """New labels for these cuts and more, evenly spaced. O(n log n)."""
        with self._lock:
            return Labels([*self._cuts, *more])

    def check_invariants(self) -> None:
        with self._lock:
            assert list(self._cuts) == sorted(self._label) and self._cuts[0] == ""
            assert [self._label[cut] for cut in self._cuts] == list(self._labels)
            assert self._labels[0] == FIRST and self._labels[-1] <= LAST
            assert all(a < b for a, b in zip(self._labels, self._labels[1:], strict=False))


def _position(below: str, value: str, above: str | None) -> float:
    """Where the text of value lies between its neighbours, from 0 to 1, by the first code points that differ."""
    start = 0
    if above is not None:
        while start < len(below) and start < len(above) and below[start] == above[start]:
            start += 1

    def weight(text: str) -> int:
        total = 0
        for index in range(start, start + 4):
            total = total * 0x110000 + (ord(text[index]) if index < len(text) else 0)
        return total

    low = weight(below)
    high = weight(above) if above is not None else 0x80 * 0x110000**3
    return min(max((weight(value) - low) / (high - low), 0.0), 1.0) if high > low else 0.5


LabelCodes = tuple[Labels, ...]  # of all labelled attributes of a space: what their coordinates mean
