"""Cells that are too crowded for one task, and that one subscription holds whole: its guard.

Where many boxes lie about one place, no cut takes them apart: each half meets nearly all of them. But there some broad
box often holds many of the others. Cut along its faces, what is left in the middle is a cell that it holds whole. What
comes after it in the order is covered there by what came before, the guard included, whatever it is. So such a cell has
several *parts*: what comes before the guard, and the guard, is in each of them, and what comes after it is dealt out.

    order   |--- before ---|guard|------------------- after -------------------|
    part 0  |--- before ---|guard|-- after --|
    part 1  |--- before ---|guard|           |-- after --|           decided as in part 0, and not reported again
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from thatch.space.arrays import Floats, Ints

BEFORE = 0.25  # of the rows of a cell, at most: each part has them
BROADEST = 64  # boxes of a cell that may become its guard
HELD = 0.3  # of the boxes of a cell, at least, that a guard is to hold


class Sample(NamedTuple):
    """Some subscriptions as boxes low[m, d], high[m, d]."""

    low: Ints
    high: Ints
    owner: Ints  # [m]: the row that each box is of
    breadths: Floats  # of the rows
    ids: Sequence[Any]
    plain: Any  # which rows are their boxes, and not within them


class Guards(NamedTuple):
    """By cell; the breadth of a guard is minus infinity where there is none, and comes after everything."""

    breadths: Floats
    ids: list[Any]
    parts: Ints
    first: Ints  # the number of its first part

    @classmethod
    def none(cls, cells: int) -> Guards:
        return cls(np.full(cells, -np.inf), [None] * cells, np.ones(cells, np.int64), np.arange(cells))

    def dealt(self, breadths: Floats, ids: pa.Array, rows: Ints, cells: Ints) -> tuple[Ints, Ints, Any]:
        """Pairs of a row and a cell, to parts: which pair, which part, and whether another part tells of it."""
        pairs, parts, mute = [np.arange(len(rows))], [self.first[cells]], [np.zeros(len(rows), np.bool_)]
        crowded = np.flatnonzero(self.parts[cells] > 1)
        if len(crowded):
            after = self._after(breadths, ids, rows[crowded], cells[crowded])
            own = crowded[after]
            parts[0][own] += hashes(ids.take(pa.array(rows[own]))) % self.parts[cells[own]]
            own = crowded[~after]
            more = self.parts[cells[own]] - 1
            pairs.append(np.repeat(own, more))
            places = np.arange(len(pairs[1])) - np.repeat(np.cumsum(more) - more, more) + 1
            parts.append(self.first[cells[pairs[1]]] + places)
            mute.append(np.ones(len(pairs[1]), np.bool_))
        return np.concatenate(pairs), np.concatenate(parts), np.concatenate(mute)

    def _after(self, breadths: Floats, ids: pa.Array, rows: Ints, cells: Ints) -> Any:
        """Which rows come after the guards of their cells."""
        own, guards = breadths[rows], self.breadths[cells]
        after = own < guards
        for place in np.flatnonzero(own == guards).tolist():
            after[place] = ids[int(rows[place])].as_py() > self.ids[int(cells[place])]
        return after


def hashes(ids: pa.Array) -> Ints:
    """Of ids, the same on every machine, and again after a failure."""
    if pa.types.is_integer(ids.type):
        return np.abs(ids.to_numpy().astype(np.int64))
    return np.array([zlib.crc32(id.encode()) for id in ids.to_pylist()], np.int64)


def face_of_guard(sample: Sample, own: Ints, low: Ints, high: Ints) -> tuple[int, int] | None:
    """Where to cut a crowded cell low[d], high[d] with these boxes, along a face of one that may become its guard: the
    axis, and the last coordinate before the cut. None if one holds it whole already, or if none holds many others."""
    rows = sample.owner[own]
    plain = own[sample.plain[rows]]
    broadest = plain[np.argsort(-sample.breadths[sample.owner[plain]], kind="stable")[:BROADEST]]
    least, most = np.maximum(sample.low[own], low), np.minimum(sample.high[own], high)
    best, held = -1, HELD * len(own)
    for box in broadest.tolist():
        if (sample.low[box] <= low).all() and (sample.high[box] >= high).all():
            return None
        count = int(((sample.low[box] <= least) & (sample.high[box] >= most)).all(axis=1).sum())
        if count > held:
            best, held = box, count
    if best < 0:
        return None
    for axis in range(len(low)):
        if sample.low[best, axis] > low[axis]:
            return axis, int(sample.low[best, axis]) - 1
        if sample.high[best, axis] < high[axis]:
            return axis, int(sample.high[best, axis])
    return None


def guarded(
    sample: Sample, members: Sequence[Ints], low: Ints, high: Ints, scale: float, task_rows: int
) -> tuple[Guards, Ints]:
    """Guards of the cells low[n, d], high[n, d] that are too crowded, and the rows that are expected in each part.
    `members` are the boxes of the sample in each cell, and each stands for `scale` of the table's."""
    found = Guards.none(len(low))
    sizes = np.array([len(own) for own in members]) * scale
    for cell in np.flatnonzero(sizes > task_rows / 2).tolist():
        own = members[cell]
        rows = sample.owner[own]
        holds = (sample.low[own] <= low[cell]).all(axis=1) & (sample.high[own] >= high[cell]).all(axis=1)
        holders = rows[holds & sample.plain[rows]].tolist()
        if not holders:
            continue
        guard = min(holders, key=lambda row: (-sample.breadths[row], sample.ids[row]))
        breadths, own_breadth = sample.breadths[rows], sample.breadths[guard]
        ties = sum(sample.ids[row] <= sample.ids[guard] for row in rows[breadths == own_breadth].tolist())
        before = int((breadths > own_breadth).sum()) + ties
        if before <= BEFORE * len(own):
            found.breadths[cell], found.ids[cell] = own_breadth, sample.ids[guard]
            after = (len(own) - before) * scale
            found.parts[cell] = -(-int(4 * after) // task_rows)
            sizes[cell] = before * scale + after / found.parts[cell]
    expected = np.ceil(np.repeat(sizes, found.parts)).astype(np.int64)
    return found._replace(first=np.cumsum(found.parts) - found.parts), expected
