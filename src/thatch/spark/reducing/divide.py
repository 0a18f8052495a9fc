"""The space cut into cells such that each meets about as much of a table of subscriptions as the others.

The idea: whether a box is covered is decided within each cell by what meets that cell, and the cells one by one. So
cells are the unit that is dealt out to tasks, and a box that meets several is cut at their borders. A tree of cuts is
made from a sample of boxes. A cut is made where it leaves the least work, and only if that is less than before: a box
on both sides is work twice.

    +-----------+-----+      Work for n boxes of a cell: linear * n + pairwise * n^2. Each box is moved, sorted and
    |   |       |     |      written, and it is looked up among those before it, 64 at a time. So many wide boxes mean
    |   |-------|-----|      few cuts, and crowded places get small cells.
    |   |       |     |
    +-----------+-----+      Cells are dealt out to tasks, the largest first, each to the task that has least; those
                             that are too large, and cannot be cut, in parts (guard.py).

Errs on no side: any cuts give the same decisions, some take longer. Cost: a sort of the sample for each level.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from thatch.space.arrays import Ints
from thatch.space.space import Space
from thatch.spark.reducing.guard import Guards, Sample, face_of_guard, guarded

CANDIDATES = 24  # cuts that are looked at on each attribute


@dataclass(frozen=True)
class Tuning:
    """What the cuts are weighed by. Any values give the same decisions; they say how long the decisions take."""

    linear: float = 8.0  # microseconds for each box
    pairwise: float = 0.0005  # microseconds for each pair of boxes
    gain: float = 0.98  # a cut must leave no more work than this share
    cells_max: int = 16_384
    task_rows: int = 50_000

    def work(self, boxes: Ints, scale: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        rows = boxes * scale
        return np.asarray(self.linear * rows + self.pairwise * rows * rows)


TUNING = Tuning()


@dataclass(frozen=True)
class Division:
    """A tree of cuts. Node i sends what begins at or before cut[i] on axis[i] to below[i], and what ends behind it to
    above[i]; negative ones are cells, -1 the first."""

    axis: Ints
    cut: Ints
    below: Ints
    above: Ints
    low: Ints  # of the cells, [cells, d]
    high: Ints
    guards: Guards  # which say how many parts each cell has
    rows: Ints  # how many boxes are expected in each part
    task: Ints  # which each part is dealt to
    tasks: int
    tuning: Tuning

    def __len__(self) -> int:
        return len(self.low)

    def dealt_out(self, cores: int) -> Division:
        """The same cells, dealt out to tasks of about `task_rows` rows, as many for each core."""
        wanted = cores * -(-int(self.rows.sum()) // (self.tuning.task_rows * cores))
        tasks = max(1, min(wanted, len(self.rows)))
        return replace(self, task=dealt(self.rows, tasks), tasks=tasks)

    def placed(self, low: Ints, high: Ints) -> tuple[Ints, Ints]:
        """Every pair of a box and a cell that meet, by the numbers of both."""
        boxes, cells = [], []
        stack = [(0 if len(self.axis) else -1, np.arange(len(low)))]
        while stack:
            node, own = stack.pop()
            if not len(own):
                continue
            if node < 0:
                boxes.append(own)
                cells.append(np.full(len(own), -1 - node))
                continue
            axis, cut = self.axis[node], self.cut[node]
            stack.append((int(self.above[node]), own[high[own, axis] > cut]))
            stack.append((int(self.below[node]), own[low[own, axis] <= cut]))
        nothing = np.zeros(0, np.int64)
        return np.concatenate([nothing, *boxes]), np.concatenate([nothing, *cells])


def divided(sample: Sample, scale: float, space: Space, tuning: Tuning) -> Division:
    """Cells from a sample, of which each stands for `scale` of the table's; all are dealt to one task."""
    low, high = sample.low, sample.high
    tree: list[list[int]] = []
    cell_low, cell_high = list[Ints](), list[Ints]()
    members: list[Ints] = []
    # Largest first, so that a cap on cells leaves the small ones whole.
    heap = [(-len(low), 0, np.arange(len(low)), space.low[0].copy(), space.high[0].copy(), -1, 0)]
    number = 0
    while heap:
        _, _, own, least, most, parent, side = heapq.heappop(heap)
        found = None
        if len(heap) + len(members) < tuning.cells_max:
            found = _best(low[own], high[own], least, most, scale, tuning)
            if found is None and len(own) * scale > tuning.task_rows / 2:
                found = face_of_guard(sample, own, least, most)
        here = -1 - len(members) if found is None else len(tree)
        if parent >= 0:
            tree[parent][side] = here
        if found is None:
            cell_low.append(least)
            cell_high.append(most)
            members.append(own)
            continue
        axis, cut = found
        tree.append([axis, cut, 0, 0])
        for place, (part, bounds) in enumerate(_halves(low, high, own, least, most, axis, cut), 2):
            number += 1
            heapq.heappush(heap, (-len(part), number, part, *bounds, here, place))
    axes, cuts, below, above = np.array(tree, np.int64).reshape(-1, 4).T
    bounds = np.array(cell_low), np.array(cell_high)
    guards, rows = guarded(sample, members, *bounds, scale, tuning.task_rows)
    return Division(axes, cuts, below, above, *bounds, guards, rows, np.zeros(len(rows), np.int64), 1, tuning)


def _halves(
    low: Ints, high: Ints, own: Ints, least: Ints, most: Ints, axis: int, cut: int
) -> Iterator[tuple[Ints, tuple[Ints, Ints]]]:
    upto, behind = most.copy(), least.copy()
    upto[axis], behind[axis] = cut, cut + 1
    yield own[low[own, axis] <= cut], (least, upto)
    yield own[high[own, axis] > cut], (behind, most)


def _best(low: Ints, high: Ints, least: Ints, most: Ints, scale: float, tuning: Tuning) -> tuple[int, int] | None:
    """The axis and the place of the cut that leaves the least work; None if none leaves less."""
    best, best_work = None, tuning.gain * float(tuning.work(np.array([len(low)]), scale)[0])
    for axis in range(low.shape[1]):
        begins, ends = np.sort(low[:, axis]), np.sort(high[:, axis])
        inner = np.concatenate((ends[ends < most[axis]], begins[begins > least[axis]] - 1))
        if not len(inner):
            continue
        inner.sort()
        cuts = inner[np.linspace(0, len(inner) - 1, CANDIDATES).astype(np.int64)]
        below = np.searchsorted(begins, cuts, "right")
        above = len(low) - np.searchsorted(ends, cuts, "right")
        work = tuning.work(below, scale) + tuning.work(above, scale)
        place = int(np.argmin(work))
        if work[place] < best_work:
            best, best_work = (axis, int(cuts[place])), float(work[place])
    return best


def dealt(sizes: Ints, tasks: int) -> Ints:
    """The task of each cell: the largest first, each to the task that has least.

    >>> dealt(np.array([5, 9, 3, 4]), 2)
    array([1, 0, 0, 1])
    """
    loads = [(0, task) for task in range(tasks)]
    found = np.zeros(len(sizes), np.int64)
    for cell in np.argsort(-sizes, kind="stable").tolist():
        load, task = heapq.heappop(loads)
        found[cell] = task
        heapq.heappush(loads, (load + int(sizes[cell]), task))
    return found
