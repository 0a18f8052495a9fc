"""Our match index: a few packed trees of geometric sizes over one store of exact bounds, and views that never change.

New regions go to a buffer, which is scanned. When it is full it becomes a tree, together with the trees that are not
several times larger (the logarithmic method of Bentley and Saxe): each box is built into O(log n) trees in its life,
and there are O(log n) of them to ask. A discard writes one version number (entries.py). When the dead are as many as
the living, the living are copied into a new store and built into one tree, and the memory of the old one is given
back with the last view of it.

    store    |------ tree of 900,000 ------|-- tree of 60,000 --|- 3,000 -|buffer|    slots, in order of arrival

A view is the store's arrays, the trees and a version. Writers make a new one for each change; readers take the present
one and need no lock. Matching releases the interpreter lock, so readers run in parallel with each other and with the
writer. Errs on no side: codes only preselect (blocks.py), and what is not sure is compared exactly."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np

from thatch.matching.axes import NO_DOUBLES, Axes
from thatch.matching.entries import LAST, Entries, Exact, boxed, entries_handle, filter_candidates
from thatch.matching.matcher import Matcher, Numbers, View
from thatch.matching.postings import Postings, build_postings, match_posted
from thatch.matching.tree import (
    Tree,
    TreeScratch,
    build_tree,
    match_each,
    match_lists,
    meeting_slots,
    new_scratch,
    sort_unique_pairs,
    tree_handle,
)
from thatch.region.box_sets import Boxes, as_boxes, as_regions, region_of_box
from thatch.region.boxes import first_empty
from thatch.region.intervals import Intervals
from thatch.region.region import Region
from thatch.region.term import Term
from thatch.space.arrays import Ints
from thatch.space.axis import Coordinates
from thatch.space.labels import LabelCodes
from thatch.space.space import Space

BUFFER_MAX = 256
RATIO = 4  # a tree stays as it is while it is this many times larger than what comes
DEAD_MIN = 1024  # fewer dead are not worth a compaction
TOGETHER_MIN = 24  # points from which on `match_lists` beats `match_each`
CACHE_NUMBERS = 32_768  # coordinates of the points that are matched together: they stay in the second-level cache
CHUNK_MAX = 131_072
SCRATCH_MAX = 1_048_576  # coordinates for which a thread keeps the memory that it matches in: some 15 MB


class Level(NamedTuple):
    """A tree and its postings, of one run of slots."""

    tree: Tree
    postings: Postings | None
    size: int  # entries, living when it was built

    @property
    def nbytes(self) -> int:
        return self.tree.nbytes + (0 if self.postings is None else self.postings.nbytes)

    def slots(self) -> Any:
        leaves = int(self.tree.size[0])
        lanes = self.tree.lanes[:leaves].ravel()
        boxes = lanes[self.tree.codes[self.tree.columns_at[:leaves], 0].ravel() != 255]
        return boxes if self.postings is None else np.concatenate((boxes, self.postings.entries))


class Levels:
    """All levels of a moment, and their trees as `match_each` takes them."""

    def __init__(self, levels: Sequence[Level] = ()) -> None:
        self.all = tuple(levels)
        self.trees = tuple(level.tree for level in levels if level.tree.size[0])
        self.postings = tuple(level.postings for level in levels if level.postings is not None)
        self.handles = np.array([tree_handle(tree) for tree in self.trees], np.int64).reshape(len(self.trees), 8)
        self.leaves = max((int(tree.size[0]) for tree in self.trees), default=0)


class TreeView(View):
    def __init__(
        self,
        label_codes: LabelCodes,
        axes: Axes,
        exact: Exact,
        ball_axes: frozenset[int],
        levels: Levels,
        first: int,
        last: int,
        version: int,
    ) -> None:
        self.space, self.label_codes = axes.space, label_codes
        self.exact, self.levels, self.version = exact, levels, version
        self.first, self.last = first, last  # the buffer
        self.ball_axes = ball_axes  # the attributes that balls look at
        self._axes = axes
        self._handles: tuple[Ints, Ints] | None = None  # of the entries; of this moment

    def match_point(self, point: Sequence[int]) -> list[int]:
        found: list[int] = self._each(np.array((point,), np.int64))[1].tolist()
        return found if len(found) < 2 else sorted(set(found))

    def match_points(self, columns: Sequence[Coordinates]) -> tuple[Numbers, Numbers]:
        n = len(columns[0])
        chunk = max(CACHE_NUMBERS // len(columns), min(8 * self.levels.leaves, CHUNK_MAX))
        rows, numbers = [], []
        room = np.empty((min(chunk, n), len(columns)), np.int64)
        for start in range(0, n, chunk):
            points = room[: n - start]
            for axis, column in enumerate(columns):
                points[:, axis] = column[start : start + chunk]
            found = self._together(points) if len(points) >= TOGETHER_MIN else self._each(points)
            row, number = sort_unique_pairs(found[0], found[1], len(points))
            rows.append(row + start if start else row)
            numbers.append(number)
        if len(rows) == 1:
            return rows[0], numbers[0]
        nothing = np.zeros(0, np.int64)
        return np.concatenate([nothing, *rows]), np.concatenate([nothing, *numbers])

    def _each(self, points: Ints) -> Ints:
        """Rows and numbers, in no order, a number perhaps twice: one point at a time."""
        if self._handles is None:
            moment = np.array((self.version, self.first, self.last), np.int64)
            self._handles = entries_handle(self.exact), moment
        entries, moment = self._handles
        axes, levels = self._axes, self.levels
        doubles = axes.doubles(points, self.ball_axes) if self.ball_axes else NO_DOUBLES
        found = match_each(entries, levels.handles, moment, axes.is_double, points, doubles)
        return self._with_posted([found], points, doubles) if levels.postings else found

    def _together(self, points: Ints) -> Ints:
        """The same, all points together; the buffer one by one."""
        exact, version, axes = self.exact, self.version, self._axes
        doubles = axes.doubles(points, self.ball_axes) if self.ball_axes else NO_DOUBLES
        scratch, found = _scratch(*points.shape), []
        for tree in self.levels.trees:
            rows, slots, count = match_lists(tree, axes.is_double, points, scratch)
            count = filter_candidates(exact, version, points, doubles, rows, slots, count)
            found.append(np.stack((rows[:count], slots[:count])))
        if self.first < self.last:
            moment = np.array((version, self.first, self.last), np.int64)
            found.append(match_each(entries_handle(exact), NO_TREES, moment, axes.is_double, points, doubles))
        if len(found) == 1 and not self.levels.postings:
            return found[0]
        return self._with_posted(found, points, doubles)

    def _with_posted(self, found: list[Ints], points: Ints, doubles: Any) -> Ints:
        for postings in self.levels.postings:
            rows, numbers, count, open_rows, slots, more = match_posted(postings, self.exact, self.version, points)
            more = filter_candidates(self.exact, self.version, points, doubles, open_rows, slots, more)
            found += [np.stack((rows[:count], numbers[:count])), np.stack((open_rows[:more], slots[:more]))]
        return np.concatenate([np.zeros((2, 0), np.int64), *found], axis=1)

    def meeting(self, region: Region) -> list[int]:
        exact, numbers = self.exact, set[int]()
        for term in region.terms_in(self.space):
            around = boxed(term, self.space)
            if around is None:
                continue
            low, high = around[0][0], around[1][0]
            all_slots = np.concatenate((np.arange(self.first, self.last), *self._near(low, high)))
            meets = (exact.low[all_slots] <= high).all(1) & (exact.high[all_slots] >= low).all(1)
            meets &= exact.died[all_slots] > self.version
            all_slots = all_slots[meets]
            checked = exact.checks_at[all_slots] >= 0 if len(exact.checks_at) else np.zeros(len(all_slots), np.bool_)
            if all(len(side) == 1 for _, side in term.sides):
                numbers.update(exact.owner[all_slots[~checked]].tolist())
                all_slots = all_slots[checked]
            numbers.update(int(exact.owner[slot]) for slot in all_slots if _meets(exact, slot, term))
        return sorted(numbers)

    def _near(self, low: Ints, high: Ints) -> list[Any]:
        """The slots of entries in levels that may meet a box."""
        axes = self._axes
        slots = [meeting_slots(tree, axes.edges, axes.is_double, low, high) for tree in self.levels.trees]
        return [*slots, *(postings.entries for postings in self.levels.postings)]


_kept = threading.local()  # by each thread


def _scratch(points: int, d: int) -> TreeScratch:
    kept: TreeScratch | None = getattr(_kept, "scratch", None)
    if kept is None or kept.places.shape[1] != d or len(kept.places) < points:
        kept = new_scratch(points, d)
        if points * d <= SCRATCH_MAX:
            _kept.scratch = kept
    return kept


def _meets(exact: Exact, slot: int, term: Term) -> bool:
    """Whether the sides of an entry and of a term all have a value in common. Their boxes do."""
    sets: dict[int, Intervals] = {}
    check = int(exact.checks_at[slot]) if len(exact.checks_at) else -1
    while check >= 0:
        axis, start, stop, _, flags = exact.checks[check].tolist()
        if axis >= 0:
            sets[axis] = Intervals(exact.values[start:stop].tolist())
        check = check + 1 if not flags & LAST else -1
    for axis, side in term.sides:
        own = sets.pop(axis, None) or Intervals.between(int(exact.low[slot, axis]), int(exact.high[slot, axis]))
        if own.isdisjoint(side):
            return False
    return True


NO_TREES = np.zeros((0, 8), np.int64)


class LevelledMatcher(Matcher):
    """A store, a buffer and levels of geometric sizes over it; a subclass says what a level is and what a view sees."""

    _view: TreeView

    def __init__(self, space: Space) -> None:
        super().__init__(space)
        self._axes = Axes.of(space)
        self._lock = threading.RLock()  # of writers; a reader takes it only after an axis was recoded
        self._regions: dict[int, Region] = {}  # kept only where coordinates may change: in a space with strings
        self._start()
        self._publish()

    def __deepcopy__(self, memo: dict[int, Any]) -> LevelledMatcher:
        """A copy with a lock of its own."""
        other = memo[id(self)] = object.__new__(type(self))
        with self._lock:
            other.__dict__ = {name: deepcopy(each, memo) for name, each in self.__dict__.items() if name != "_lock"}
        other._lock = threading.RLock()
        return other

    def _built(self, slots: Any) -> Any:
        """A level of some entries, with their number as `size`, `slots()` and `nbytes`. It never changes."""
        raise NotImplementedError

    def _publish(self) -> None:
        """Show what is there now, as `_view`."""
        raise NotImplementedError

    def _start(self) -> None:
        self._label_codes = self.space.label_codes
        self._entries = Entries(self.space)
        self._levels: tuple[Any, ...] = ()
        self._first = 0  # where the buffer begins
        self._version = self._dead = self._count = 0
        self._empty: set[int] = set()  # numbers of regions without an entry
        self._slots: dict[int, int] | None = None  # first slot by number; None while numbers ascend with the slots

    def view(self) -> TreeView:
        view = self._view
        while not self.space.is_current(view.label_codes):
            with self._lock:
                if not self.space.is_current(self._label_codes):
                    self._recode()
                view = self._view
        return view

    def _recode(self) -> None:
        """Labels have moved: take every region in again."""
        regions = self._regions = dict(sorted(self._regions.items()))  # so that numbers ascend with the slots
        self._start()
        self._append(list(regions), list(regions.values()))
        self._settle()

    def add(self, number: int, region: Region) -> None:
        """As `add_many` of one, without its detours: a table takes ten thousand of these a second."""
        with self._lock:
            terms = region.terms_in(self.space)
            exact, used = self._entries.exact, self._entries.used
            last = exact.owner[used - 1] if used else -1
            if number <= last or self._slots is not None or self._empty or self._label_codes:
                super().add(number, region)
                return
            self._count += 1
            self._version += 1
            if self._entries.append_terms(number, terms):
                self._settle()
            else:
                self._empty.add(number)

    def add_many(self, numbers: Sequence[int] | Numbers, regions: Sequence[Region] | Boxes) -> None:
        with self._lock:
            boxes = as_boxes(numbers, regions, self.space)
            moves = bool(self.space.label_codes)
            if boxes is not None and not moves:
                self._check_new(numbers)
                self._append_boxes(np.asarray(numbers, np.int64), *boxes)
            else:
                known = as_regions(numbers, regions, self.space)
                self._check_new(numbers)
                new = {int(number): region for number, region in zip(numbers, known, strict=True)}
                if moves:
                    self._regions.update(new)
                if self.space.is_current(self._label_codes):
                    self._append(list(new), known)
                if not self.space.is_current(self._label_codes):  # recoded, before or meanwhile
                    self._recode()
                    return
            self._version += 1
            self._settle()

    def _check_new(self, numbers: Sequence[int] | Numbers) -> None:
        """As `check_new`, at once where the numbers ascend from the last one on."""
        given = np.asarray(numbers, np.int64)
        ascend = len(given) < 2 or bool((np.diff(given) > 0).all())
        last = int(self._entries.exact.owner[self._entries.used - 1]) if self._entries.used else -1
        last = max(last, *self._empty) if self._empty else last
        if self._slots is None and len(given) and ascend and given[0] > last:
            return
        self.check_new([int(number) for number in given])
        if self._slots is None and len(given):  # out of order: from now on numbers are looked up
            owner = self._entries.exact.owner[: self._entries.used]
            own, first = np.unique(owner, return_index=True)
            alive = self._entries.exact.died[first] > self._version
            self._slots = dict(zip(own[alive].tolist(), first[alive].tolist(), strict=True))

    def _append_boxes(self, numbers: Numbers, low: Ints, high: Ints) -> None:
        self._count += len(numbers)
        if first_empty(low, high) >= 0:
            full = (low <= high).all(axis=1)
            self._empty.update(numbers[~full].tolist())
            numbers, low, high = numbers[full], low[full], high[full]
        if self._slots is not None:
            self._slots.update(zip(numbers.tolist(), itertools.count(self._entries.used), strict=False))
        self._entries.append_boxes(numbers, low, high)

    def _append(self, numbers: Sequence[int], regions: Sequence[Region]) -> None:
        self._count += len(numbers)
        self._entries.reserve_for(regions)
        for number, region in zip(numbers, regions, strict=True):
            slot = self._entries.used
            if not self._entries.append_terms(number, region.terms_in(self.space)):
                self._empty.add(number)
            elif self._slots is not None:
                self._slots[number] = slot

    def _settle(self) -> None:
        """Turn a full buffer into a tree, compact where most is dead, and show what is there now."""
        dead = self._dead
        if dead > DEAD_MIN and 2 * dead > self._entries.used:
            self._compact()
        elif self._entries.used - self._first > BUFFER_MAX:
            slots = self._alive(np.arange(self._first, self._entries.used, dtype=np.int32))
            levels = list(self._levels)
            while levels and levels[-1].size < RATIO * len(slots):
                slots = np.concatenate((self._alive(levels.pop().slots()), slots))
            if len(slots):
                levels.append(self._built(slots))
            self._levels, self._first = tuple(levels), self._entries.used
        self._publish()

    def _compact(self) -> None:
        slots = self._alive(np.arange(self._entries.used, dtype=np.int32))
        self._entries = self._entries.kept(slots)
        if self._slots is not None:
            own, first = np.unique(self._entries.exact.owner[: self._entries.used], return_index=True)
            self._slots = dict(zip(own.tolist(), first.tolist(), strict=True))
        self._levels, self._first, self._dead, self._version = (), 0, 0, 0
        if len(slots) > BUFFER_MAX:
            self._levels = (self._built(np.arange(len(slots), dtype=np.int32)),)
            self._first = len(slots)

    def _alive(self, slots: Any) -> Any:
        return slots[self._entries.exact.died[slots] > self._version]

    def discard(self, number: int) -> None:
        with self._lock:
            first = self._find(number)
            if first is None and number not in self._empty:
                return
            self._regions.pop(number, None)
            self._count -= 1
            if first is None:
                self._empty.discard(number)
                return
            exact, slot = self._entries.exact, first
            self._version += 1
            while slot < self._entries.used and exact.owner[slot] == number:
                exact.died[slot] = self._version
                slot += 1
            self._dead += slot - first
            if self._slots is not None:
                del self._slots[number]
            self._settle()

    def _find(self, number: int) -> int | None:
        """The first slot of a living region."""
        if self._slots is not None:
            return self._slots.get(number)
        exact, used = self._entries.exact, self._entries.used
        slot = int(np.searchsorted(exact.owner[:used], number))
        if slot < used and exact.owner[slot] == number and exact.died[slot] > self._version:
            return slot
        return None

    def region(self, number: int) -> Region:
        """The region of a number, made of its boxes. For one that was added as arrays."""
        with self._lock:
            slot, exact = self._find(number), self._entries.exact
            if slot is None:
                return Region.nothing(self.space)
            return region_of_box(exact.low[slot].tolist(), exact.high[slot].tolist(), self.space)

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int | np.integer) and (number in self._empty or self._find(int(number)) is not None)

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        exact = self._entries.exact
        total: int = sum(level.nbytes for level in self._levels)
        return total + exact.owner.nbytes + exact.died.nbytes + exact.checks_at.nbytes

    def check_invariants(self) -> None:
        used, exact = self._entries.used, self._entries.exact
        alive = set(np.flatnonzero(exact.died[:used] > self._version).tolist())
        held = [slot for level in self._levels for slot in level.slots().tolist()]
        assert len(held) == len(set(held)), "an entry is in two trees"
        assert alive <= set(held) | set(range(self._first, used)), "a living entry is nowhere"
        assert self._dead == used - len(alive)
        assert self._count == len(set(exact.owner[sorted(alive)].tolist())) + len(self._empty)
        sizes = [level.size for level in self._levels]
        assert all(one >= two for one, two in itertools.pairwise(sizes)), "trees shrink from left to right"
        if self._slots is not None:
            assert set(self._slots) == set(exact.owner[sorted(alive)].tolist())
            assert all(exact.owner[slot] == number for number, slot in self._slots.items())
        else:
            assert (np.diff(exact.owner[:used]) >= 0).all()
        if self.space.label_codes:
            assert self._regions.keys() == set(exact.owner[sorted(alive)].tolist()) | self._empty


class TreeMatcher(LevelledMatcher):
    name = "tree"
    _trees = Levels()

    def _publish(self) -> None:
        entries = self._entries
        if self._trees.all is not self._levels:
            self._trees = Levels(self._levels)
        self._view = TreeView(
            self._label_codes, self._axes, entries.exact, entries.ball_axes, self._trees, self._first, entries.used,
            self._version,
        )  # fmt: skip

    def _built(self, slots: Any) -> Level:
        exact = self._entries.exact
        checks = self._entries.set_checks(slots)
        has_set = checks >= 0
        postings = build_postings(exact, slots[has_set], checks[has_set]) if has_set.any() else None
        boxes = slots[~has_set] if postings is not None else slots
        return Level(build_tree(exact, boxes, self._axes.edges, self._axes.is_double), postings, len(slots))
