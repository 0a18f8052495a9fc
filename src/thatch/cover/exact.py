"""Our exact engine: branch and bound over the boxes that touch the region, with proofs and a budget.

The idea: a box is covered if one member holds it, or if every piece that is left when one member is subtracted from
it is covered. It is not covered if a corner lies in no member, or if what the members hold of it adds up to less than
the whole. Most questions end at one of the last three; the rest branch a few times.

    1. does one member hold it?                                Covered by that one
    2. the corner least likely covered: in no member?          Uncovered, the corner is the witness
    3. members that meet the box: do their shares sum to < 1?  Uncovered; a witness exists (see `find_witness`)
    4. subtract the member with the largest share, those that leave one piece only first; go on with each piece

         +------+-----+      The pieces of a box around a member, at most 2d:
         |      above |      first what is below and above it in attribute 0, then between those
         |  +-----+   |      in attribute 1, and so on. Pieces are disjoint, and each is
         |  | mem |   |      asked on its own, depth first, with the members that meet it.
         +--+-----+---+

From no paper: negative-space keeps the uncovered part of the space as rectangles, which grow as (2n+1)^d; here
nothing is kept but the boxes themselves, and the certificate is the members used on the way.

Errs: never, but Unproven past its budget of nodes or box tests (the problem is co-NP-complete). Cost: 2d/64 words per
member for steps 1 to 3, then members that meet the box per node.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any, Self, overload

import numpy as np

from thatch.boxes import Ints
from thatch.cover.boxed import COVERED, UNCOVERED, BoxedEngine, surely_inside
from thatch.cover.engine import Boxes, as_boxes, as_regions
from thatch.cover.search import Scratch, cover_and_add, cover_union, find_witness
from thatch.cover.verdict import Covered, Uncovered, Unproven, Verdict
from thatch.errors import CallerError
from thatch.region import Region
from thatch.space import Space

NODES_MAX = 1_024
TESTS_MAX = 300_000
PART = 16_384  # regions that `add_many` hands to the kernel at a time


class ExactEngine(BoxedEngine):
    name = "exact"
    may_err = "unproven"

    def __init__(self, space: Space, nodes_max: int = NODES_MAX, tests_max: int = TESTS_MAX) -> None:
        super().__init__(space)
        self.nodes_max = nodes_max
        self.tests_max = tests_max
        self._scratch = self._new_scratch()

    def _alike(self) -> Self:
        return type(self)(self.space, self.nodes_max, self.tests_max)

    def _new_scratch(self) -> Scratch:
        d, depth = len(self.space), 2048 + 4 * len(self.space)
        slots = len(self.index.rows.owner)
        return Scratch(
            np.zeros(self.index.rows.below.shape[2], np.uint64),
            np.zeros((6, d), np.int64),
            np.zeros(max(65_536, 4 * slots), np.int32),
            np.zeros((depth, d), np.int64),
            np.zeros((depth, d), np.int64),
            np.zeros((depth, 2), np.int64),
            np.zeros(d, np.int64),
            np.zeros(d, np.int64),
            np.zeros(d, np.float64),
            np.zeros(slots, np.uint64),
            np.zeros(4 * (self.nodes_max + 2), np.int64),
            np.zeros(3, np.int64),
        )

    def _start(self) -> None:
        super()._start()
        self._scratch = self._new_scratch()

    def _reserve(self, more: int, low: Ints | None = None, high: Ints | None = None) -> None:
        self.index.reserve(more, low, high)
        if len(self._scratch.masks) != len(self.index.rows.owner):
            self._scratch = self._new_scratch()

    def _insert(self, low: Ints, high: Ints, owner: Ints) -> list[int]:
        self._reserve(len(low))
        return super()._insert(low, high, owner)

    @property
    def nbytes(self) -> int:
        """Of the index and the scratch space, without ids."""
        return self.index.nbytes + sum(array.nbytes for array in self._scratch)

    def _search(self, low: Ints, high: Ints) -> int:
        code: int = cover_union(self.index.rows, low, high, 0, len(low), self._scratch, self.nodes_max, self.tests_max)
        return code

    def _used(self) -> tuple[Any, ...]:
        count = self._scratch.state[0]
        return tuple(self._ids[name] for name in sorted(self._scratch.names[:count].tolist()))

    def _piece(self) -> Boxes:
        return self._scratch.low, self._scratch.high

    def _undecided(self) -> Unproven:
        return Unproven(f"the budget of {self.nodes_max:,} nodes and {self.tests_max:,} box tests is used up")

    def _uncovered(self, low: Ints, high: Ints, number: int | None = None) -> Uncovered:
        """Some point of this piece is outside the members so far, or those before one with this number."""
        if (low == high).all():
            return Uncovered(low.tolist(), space=self.space)
        before = self._number if number is None else number
        low, high, departures, numbering = low.copy(), high.copy(), self._departures, self._numbering

        def complete() -> list[int]:
            if self._departures != departures or self.space.numbering is not numbering:
                raise CallerError("members have changed since this verdict was given: check again for a witness")
            rows = self.index.rows
            slots = [slot for slot in self.index.meeting(low, high) if rows.owner[slot] < before]
            return find_witness(low, high, rows.low[slots], rows.high[slots])

        return Uncovered(complete=complete, space=self.space)

    def add_many(self, ids: Sequence[Any], regions: Sequence[Region] | Boxes) -> Sequence[Verdict]:  # type: ignore[override]
        """In one call of the kernel, where every region is a union of plain boxes."""
        boxes = as_boxes(ids, regions, self.space)
        if not len(ids):
            return []
        self.refuse_known(ids)
        checked: list[Region] = []
        if boxes is not None and not self._numbering and (boxes[0] <= boxes[1]).all():
            low, high = boxes
            starts = np.arange(len(ids) + 1, dtype=np.int64)
        else:
            checked = as_regions(ids, regions, self.space)
            flat = [surely_inside(region.terms_in(self.space), self.space) for region in checked]
            self._align()
            if not flat or not all(whole and len(low) for low, _, whole in flat):
                return super().add_many(ids, checked)
            starts = np.cumsum([0] + [len(each) for each, _, _ in flat])
            low = np.concatenate([each for each, _, _ in flat])
            high = np.concatenate([each for _, each, _ in flat])
        if self._vague:
            return super().add_many(ids, regions)
        verdicts = self._add_boxes(ids, low, high, starts)
        added = verdicts.codes != COVERED
        self._remember(compress(ids, added), compress(checked, added))
        return verdicts

    def _add_boxes(self, ids: Sequence[Any], low: Ints, high: Ints, starts: Ints) -> Verdicts:
        """In parts, so that room is made for what is kept and not for all that comes."""
        n, d = len(ids), len(self.space)
        codes = np.zeros(n, np.int64)
        witness_low, witness_high = np.zeros((n, d), np.int64), np.zeros((n, d), np.int64)
        first_number, first_slots = self._number, np.zeros(n, np.int64)
        parts: list[tuple[Ints, Ints]] = []
        for start in range(0, n, PART):
            part = slice(start, min(start + PART, n))
            boxes = slice(starts[start], starts[part.stop])
            own_starts = starts[start : part.stop + 1] - starts[start]
            self._reserve(len(low[boxes]), low[boxes], high[boxes])
            slot = int(self.index.rows.used[0])
            parts.append(
                cover_and_add(
                    self.index.rows, low[boxes], high[boxes], own_starts, self._number, self._scratch,
                    self.nodes_max, self.tests_max, codes[part], witness_low[part], witness_high[part],
                )
            )  # fmt: skip
            sizes = np.where(codes[part] != COVERED, np.diff(own_starts), 0)
            first_slots[part] = slot + np.cumsum(sizes) - sizes
            self._number += part.stop - part.start
        added = codes != COVERED
        self._ids.update(zip((first_number + np.flatnonzero(added)).tolist(), compress(ids, added), strict=True))
        pairs = zip(first_slots[added].tolist(), np.diff(starts)[added].tolist(), strict=True)
        self._slots.update(zip(compress(ids, added), (tuple(range(a, a + size)) for a, size in pairs), strict=True))
        names = np.concatenate([names for names, _ in parts])
        begins = np.cumsum([0, *(size for _, each in parts for size in np.diff(each).tolist())])
        earlier = {int(name): self._ids[int(name)] for name in np.unique(names[names < first_number])}
        return Verdicts(self, ids, first_number, earlier, codes, names, begins, witness_low, witness_high)


class Verdicts(Sequence[Verdict]):
    """The verdicts of `add_many`, made into objects when they are looked at: most never are."""

    def __init__(
        self,
        engine: ExactEngine,
        ids: Sequence[Any],
        number: int,
        earlier: dict[int, Any],
        codes: Ints,
        names: Ints,
        begins: Ints,
        low: Ints,
        high: Ints,
    ) -> None:
        self._engine, self._ids, self._number, self._earlier = engine, ids, number, earlier
        self.codes, self._names, self._begins, self._low, self._high = codes, names, begins, low, high

    def __len__(self) -> int:
        return len(self.codes)

    @overload
    def __getitem__(self, position: int) -> Verdict: ...
    @overload
    def __getitem__(self, position: slice) -> list[Verdict]: ...
    def __getitem__(self, position: int | slice) -> Verdict | list[Verdict]:
        if isinstance(position, slice):
            return [self[each] for each in range(*position.indices(len(self)))]
        position = range(len(self))[position]
        code, engine = self.codes[position], self._engine
        if code == COVERED:
            names = self._names[self._begins[position] : self._begins[position + 1]]
            return Covered(tuple(self._id(name) for name in sorted(names.tolist())))
        if code == UNCOVERED:
            return engine._uncovered(self._low[position], self._high[position], self._number + position)
        return engine._undecided()

    def _id(self, name: int) -> Any:
        return self._ids[name - self._number] if name >= self._number else self._earlier[name]
