r"""Negative space: keep what nobody covers as disjoint rectangles; a box that meets none of them is covered.

The idea: at first all of the space is one negative rectangle. Each new box that meets negative rectangles is not
covered, and splits those it meets around itself.

    +-----------------+      s1 splits the space in 4, s2 two of the 4: 7.      1. what is left of a rectangle left and
    |   +----+        |      s3 = [380,720] x [230,495] meets none of the 7:       right of the box in attribute 0
    |   | s1 +-----+  |      s1 and s2 together cover it.                       2. then above and below in attribute 1,
    |   |    | s2  |  |                                                            within s(d) & r(d) of what is done
    |   +----+-----+  |      A split adds at most 2d - 1 rectangles; n boxes    3. and so on; the rest is covered now
    +-----------------+      leave at most (2n + 1)^d.

From negative-space (Jafarpour et al.). Exact: split them all. Approximate: at most `k` new rectangles for each box,
those with the best benefit (volume) for their cost (rectangles) first; or k*i - m(i-1) of them, so that what earlier
boxes did not use is left for later ones (`dynamic`). What is left whole is covered in part and still called negative.

Where it differs: certificates. What a box takes from a negative rectangle stays its own (the paper's CoveredBy), so a
covered box names the owners of the pieces it meets. Departure by either algorithm of the paper: exact, the pieces go
to other boxes that hold them and only the rest is negative again; approximate, all of them are. Questions that one
member answers are always asked (without, approximate finds less than pairwise in 4-D and 5-D). Where a rectangle may
be covered, a witness is looked for among its corners, and without one the answer is Unproven. What ERRATA lists is
mended. `merge` joins neighbouring rectangles, which the paper leaves to future work; `rebuild` starts over from the
members, widest first, which is its offline reconstruction.

Errs: exact, never on boxes; approximate, Unproven. Cost: a look-up in m rectangles (2d/64 words each) per question,
and a split for each that it meets; m grows as n^d where little is covered, up to `rectangles_max`, from which on
splits that add rectangles are not made.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import prod
from operator import itemgetter
from typing import Any, Self

import numpy as np

from thatch.cover.batch import BatchedEngine, BatchPart
from thatch.cover.boxed import COVERED
from thatch.cover.index import BoxIndex
from thatch.cover.rectangles import (
    ASK,
    BENEFIT,
    BENEFIT_BY_COST,
    INVERSE_COST,
    NO_ROOM,
    Pieces,
    Rule,
    Workspace,
    decide_and_add,
    handed_on,
    search_union,
    size,
    take_out,
    take_pieces,
)
from thatch.cover.verdict import Unproven
from thatch.errors import CallerError, shown, suggestion, unknown
from thatch.region.box_sets import Boxes
from thatch.region.region import Region
from thatch.space.arrays import Ints
from thatch.space.floating import DoubleAxis
from thatch.space.space import Space

METRICS = {"benefit/cost": BENEFIT_BY_COST, "benefit": BENEFIT, "1/cost": INVERSE_COST}
DEPARTURES = ("exact", "approximate")
RECTANGLES_MAX = 250_000


class NegativeEngine(BatchedEngine):
    name = "negative"
    may_err = "unproven"

    def __init__(
        self,
        space: Space,
        k: int | None = None,
        dynamic: bool = False,
        metric: str = "benefit/cost",
        departure: str | None = None,
        merge: bool = False,
        rectangles_max: int = RECTANGLES_MAX,
    ) -> None:
        """Exact without `k`. `departure` is that of the paper for either: exact without k, approximate with it."""
        super().__init__(space)
        if k is not None and k < 0:
            raise CallerError(f"k is the number of new rectangles for a subscription, at least 0, not {shown(k)}")
        if dynamic and k is None:
            raise CallerError("the dynamic threshold k*i - m(i-1) needs a k")
        if metric not in METRICS:
            raise CallerError(unknown("metric", metric, METRICS))
        if departure not in (None, *DEPARTURES):
            close = suggestion(departure, DEPARTURES)
            raise CallerError(f"departure is {' or '.join(DEPARTURES)}, not {shown(departure)}{close}")
        self.departure = departure or ("exact" if k is None else "approximate")
        self.rule = Rule(-1 if k is None else k, dynamic, METRICS[metric], rectangles_max, merge)
        self._options = k, dynamic, metric, self.departure, merge, rectangles_max
        self._is_loading = False
        self._divide()

    def _alike(self) -> Self:
        return type(self)(self.space, *self._options)

    # --- The divided space -------------------------------------------------------------------------------------------

    def _divide(self) -> None:
        """All of the space is negative."""
        d = len(self.space)
        self.is_loose = False  # whether some negative rectangle may be covered
        self.negative = BoxIndex(self.space.low[0], self.space.high[0])
        self.negative.insert(self.space.low, self.space.high, -1)
        self._pieces = Pieces(
            np.zeros((64, d), np.int64),
            np.zeros((64, d), np.int64),
            np.zeros(64, np.int64),
            np.full(len(self.index.rows.owner), -1, np.int64),
            np.array([-1, 0], np.int64),
        )
        self._new_workspace(np.zeros(7, np.int64))

    def _new_workspace(self, state: Ints) -> None:
        d, slots = len(self.space), max(len(self.negative.rows.owner), len(self.index.rows.owner))
        self._work = Workspace(
            np.zeros((slots + 63) >> 6, np.uint64),
            np.zeros(slots, np.int64),
            np.zeros((2, d), np.int64),
            np.zeros((2 * d, d), np.int64),
            np.zeros((2 * d, d), np.int64),
            np.zeros(d, np.int64),
            np.zeros(d, np.int64),
            np.zeros(slots, np.float64),
            np.zeros(slots, np.int64),
            np.array([isinstance(attribute.axis, DoubleAxis) for attribute in self.space.attributes], np.bool_),
            np.zeros(2 * slots, np.int64),
            np.zeros(slots, np.int64),
            np.zeros(slots, np.int64),
            state,
        )

    def _make_room(self, rectangles: int = 0, pieces: int = 0) -> None:
        """For that many more of each, and for what the members' index has grown to."""
        if rectangles > len(self.negative.rows.owner) - self.negative.rows.used[0]:
            self.negative.reserve(rectangles)
        lacking = pieces - (len(self._pieces.next) - int(self._pieces.state[1]))
        if lacking > 0:
            more, d = lacking + len(self._pieces.next), len(self.space)
            self._pieces = self._pieces._replace(
                low=np.concatenate((self._pieces.low, np.zeros((more, d), np.int64))),
                high=np.concatenate((self._pieces.high, np.zeros((more, d), np.int64))),
                next=np.concatenate((self._pieces.next, np.zeros(more, np.int64))),
            )
        head, slots = self._pieces.head, len(self.index.rows.owner)
        if len(head) < slots:
            self._pieces = self._pieces._replace(head=np.concatenate((head, np.full(slots - len(head), -1, np.int64))))
        if len(self._work.slots) < max(len(self.negative.rows.owner), slots):
            self._new_workspace(self._work.state)

    @property
    def rectangles(self) -> Boxes:
        """The negative space: disjoint rectangles low[m, d], high[m, d]."""
        taken = self.negative.taken()
        return self.negative.rows.low[taken], self.negative.rows.high[taken]

    @property
    def splits(self) -> int:
        """How many rectangles were split since the last rebuilding."""
        return int(self._work.state[3])

    def pieces(self, id: Any) -> Boxes:
        """What a member took from the negative space, as disjoint rectangles: the paper's CoveredBy."""
        found = []
        for slot in self._slots[id]:
            piece = int(self._pieces.head[slot])
            while piece >= 0:
                found.append(piece)
                piece = int(self._pieces.next[piece])
        return self._pieces.low[found], self._pieces.high[found]

    @property
    def nbytes(self) -> int:
        """Of the indexes and the divided space, without ids."""
        parts = (*self._pieces, *self._work)
        return self.index.nbytes + self.negative.nbytes + sum(array.nbytes for array in parts)

    def rebuild(self) -> None:
        """Start over from the members, widest first: forgets what splits left whole and departures gave back."""
        rows, is_double = self.index.rows, self._work.is_double
        self._divide()
        members = list(self._slots.values())
        sizes = [
            max((size(rows.low[slot], rows.high[slot], is_double) for slot in own), default=0.0) for own in members
        ]
        for count, place in enumerate(sorted(range(len(members)), key=lambda place: -sizes[place])):
            self._subtract(members[place], count)

    # --- Members -----------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        super()._start()
        self._divide()

    def load(self, ids: Sequence[Any], regions: Sequence[Region]) -> None:
        """Members that were decided about elsewhere: the rectangles are made of all of them at once, widest first."""
        self._is_loading = True
        try:
            super().load(ids, regions)
        finally:
            self._is_loading = False
            self.rebuild()

    def _insert(self, low: Ints, high: Ints, owner: Ints) -> list[int]:
        slots = super()._insert(low, high, owner)
        if self._is_loading:
            return slots
        count = len(self._slots)
        for _, own in groupby(zip(owner.tolist(), slots, strict=True), key=itemgetter(0)):
            self._subtract([slot for _, slot in own], count)
            count += 1
        return slots

    def _subtract(self, slots: Sequence[int], count: int) -> None:
        """Take the boxes of one member, which are in the index, out of the negative space; `count` are out already."""
        rows, budget = self.index.rows, ASK
        self._make_room()
        self._work.state[2] = 0
        for slot in slots:
            left = NO_ROOM
            while left == NO_ROOM:
                left = take_out(
                    self.negative.rows, self.negative.free, self._pieces, rows.low[slot], rows.high[slot], slot,
                    count, budget, self.rule, self._work,
                )  # fmt: skip
                if left == NO_ROOM:
                    self._make_room(int(self._work.state[4]), int(self._work.state[5]))
            budget = left
        self.is_loose |= bool(self._work.state[2])

    def _remove(self, slots: Sequence[int]) -> None:
        super()._remove(slots)
        if not len(self.index):
            self._divide()
            return
        for slot in slots:
            low, high, heirs = self._handed_on(slot)
            self.is_loose |= self.departure == "approximate" and len(low) > 0
            free = heirs < 0
            self._make_room(int(free.sum()), int((~free).sum()))
            take_pieces(self._pieces, heirs[~free], low[~free], high[~free])
            fresh = self.negative.insert(low[free], high[free], -1)
            if self.rule.is_merging and fresh:
                self._make_room()
                self._work.touched[: len(fresh)] = fresh
                self._work.state[1] = len(fresh)
                box = low[0], high[0]  # of nobody: it only merges
                take_out(self.negative.rows, self.negative.free, self._pieces, *box, -1, 0, ASK, self.rule, self._work)

    def _handed_on(self, slot: int) -> tuple[Ints, Ints, Ints]:
        """The pieces of a box that has left, as rectangles, and the slots of those that get them."""
        room, count = 64, NO_ROOM
        while count == NO_ROOM:
            room *= 4
            low, high = np.empty((room, len(self.space)), np.int64), np.empty((room, len(self.space)), np.int64)
            heirs = np.empty(room, np.int64)
            count = handed_on(
                self.index.rows, self._pieces, slot, self.departure == "exact", self._work, low, high, heirs
            )
        return low[:count], high[:count], heirs[:count]

    # --- Questions ---------------------------------------------------------------------------------------------------

    def _search(self, low: Ints, high: Ints) -> int:
        code: int = search_union(
            self.negative.rows, self.index.rows, self._pieces, low, high, 0, len(low), self.is_loose, self._work
        )
        return code

    def _used(self) -> list[int]:
        numbers: list[int] = self._work.names[: self._work.state[0]].tolist()
        return numbers

    def _piece(self) -> Boxes:
        return self._work.low, self._work.low

    def _undecided(self) -> Unproven:
        return Unproven("it meets negative rectangles, but those may be covered")

    def _cover_and_add(self, part: BatchPart) -> tuple[Ints, Ints]:
        self.index.reserve(len(part.low), part.low, part.high)
        begins, names, region = np.zeros(len(part.starts), np.int64), [], 0
        count = len(self._slots)
        while region < len(part.codes):
            self._make_room()
            own = np.empty(len(part.codes) + len(self._work.names), np.int64)  # of the next region there is room for
            self._work.state[2] = 0
            added = count + int((part.codes[:region] != COVERED).sum())
            start = begins[region]
            region, left = decide_and_add(
                self.negative.rows, self.negative.free, self.index.rows, self._pieces, part.low, part.high,
                part.starts, region, self._number, added, self.rule, self.is_loose, self._work,
                part.codes, part.witness_low, begins, own,
            )  # fmt: skip
            self.is_loose |= bool(self._work.state[2])
            names.append(own[: begins[region] - start])
            if left:
                used = int(self.index.rows.used[0])
                self._subtract(range(used - left, used), count + int((part.codes[:region] != COVERED).sum()) - 1)
        part.witness_high[:] = part.witness_low
        return np.concatenate(names), begins

    def check_invariants(self) -> None:
        """Rectangles and pieces are the whole space and do not meet; pieces lie in their owners; unless it is loose, no
        rectangle meets a member."""
        super().check_invariants()
        self.negative.check_invariants()
        lows, highs = [self.rectangles[0]], [self.rectangles[1]]
        for id, slots in self._slots.items():
            low, high = self.pieces(id)
            for box in range(len(low)):
                holds = (self.index.rows.low[list(slots)] <= low[box]) & (
                    self.index.rows.high[list(slots)] >= high[box]
                )
                assert holds.all(axis=1).any(), f"a piece of {id!r} is not in its boxes"
            lows.append(low)
            highs.append(high)
        low, high = np.concatenate(lows), np.concatenate(highs)
        widths = (high.astype(np.uint64) - low.astype(np.uint64)).tolist()
        space = zip(self.space.low[0].tolist(), self.space.high[0].tolist(), strict=True)
        assert sum(prod(width + 1 for width in each) for each in widths) == prod(b - a + 1 for a, b in space)
        for box in range(0, len(low), max(1, len(low) // 512)):  # of many, some: each is compared with all
            meets = ((low <= high[box]) & (high >= low[box])).all(axis=1)
            assert meets.sum() == 1, "rectangles and pieces meet"
            if box < len(lows[0]) and not self.is_loose:
                assert not len(self.index.touching(low[box], high[box])), "a negative rectangle is covered"
