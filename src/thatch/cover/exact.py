"""Our exact engine: branch and bound over the boxes that touch the region, with proofs and a budget.

The idea: a box is covered if one member holds it, or if every piece that is left when one member is subtracted from
it is covered. It is not covered if a corner lies in no member, or if what the members hold of it adds up to less than
the whole. Most questions end at one of the first four; the rest branch a few times.

    1. does one member hold it?                                Covered by that one
    2. the corner least likely covered: in no member?          Uncovered, the corner is the witness
    3. do two members hold it side by side?                    Covered by those two
    4. members that meet the box: do their shares sum to < 1?  Uncovered; a witness exists (see `find_witness`)
    5. subtract the member with the largest share, those that leave one piece only first; go on with each piece

         +------+-----+      The pieces of a box around a member, at most 2d:
         |      above |      first what is below and above it in attribute 0, then between those
         |  +-----+   |      in attribute 1, and so on. Pieces are disjoint, and each is
         |  | mem |   |      asked on its own, depth first, with the members that meet it.
         +--+-----+---+

From no paper: negative-space keeps the uncovered part of the space as rectangles, which grow as (2n+1)^d; here
nothing is kept but the boxes themselves, and the certificate is the members used on the way.

Errs: never, but Unproven past its budget of nodes or box tests (the problem is co-NP-complete). Cost: 2d/64 words per
member for steps 1 to 4, then members that meet the box per node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from thatch.cover.batch import BatchedEngine, BatchPart
from thatch.cover.boxed import COVERED, UNCOVERED, surely_around, surely_inside
from thatch.cover.search import SearchScratch, cover_and_add, cover_union, find_witness
from thatch.cover.verdict import Uncovered, Unproven, Verdict
from thatch.errors import CallerError
from thatch.region.box_sets import Boxes
from thatch.region.term import Term
from thatch.space.arrays import Ints
from thatch.space.space import Space

NODES_MAX = 1_024
TESTS_MAX = 300_000


class ExactEngine(BatchedEngine):
    name = "exact"
    may_err = "unproven"

    def __init__(self, space: Space, nodes_max: int = NODES_MAX, tests_max: int = TESTS_MAX) -> None:
        super().__init__(space)
        self.nodes_max = nodes_max
        self.tests_max = tests_max
        self._scratch = self._new_scratch()

    def _alike(self) -> Self:
        return type(self)(self.space, self.nodes_max, self.tests_max)

    def _new_scratch(self) -> SearchScratch:
        d, depth = len(self.space), 2048 + 4 * len(self.space)
        slots = len(self.index.rows.owner)
        return SearchScratch(
            np.zeros(self.index.rows.below.shape[2], np.uint64),
            np.zeros(self.index.rows.below.shape[2], np.uint64),
            np.zeros((6, d), np.int64),
            np.zeros((2, d), np.int64),
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

    def _used(self) -> list[int]:
        numbers: list[int] = self._scratch.names[: self._scratch.state[0]].tolist()
        return numbers

    def _with_parts(self, terms: Sequence[Term], parts: Mapping[Any, Sequence[Term]]) -> Verdict | None:
        """In its own index, for the moment: another engine of all members that meet the question would cost a thousand
        times what these boxes do."""
        slots: list[int] = []
        try:
            for id, part in parts.items():
                low, high, _ = surely_inside(part, self.space)
                slots += self._insert(low, high, np.full(len(low), self._odd[id], np.int64))
            code = self._search(*surely_around(terms, self.space))
            if code == COVERED:
                return self._covered(self._used())
            return self._witness_in(terms, *map(np.copy, self._piece())) if code == UNCOVERED else None
        finally:
            for slot in slots:
                self.index.remove(slot)

    def _piece(self) -> Boxes:
        return self._scratch.low, self._scratch.high

    def _undecided(self) -> Unproven:
        return Unproven(f"the budget of {self.nodes_max:,} nodes and {self.tests_max:,} box tests is used up")

    def _uncovered(self, low: Ints, high: Ints) -> Uncovered:
        """Some point of this piece is outside the members."""
        return self._uncovered_before(low, high, self._number, self._state())

    def _uncovered_before(self, low: Ints, high: Ints, number: int, state: tuple[int, Any]) -> Uncovered:
        if (low == high).all():
            return super()._uncovered_before(low, high, number, state)
        low, high = low.copy(), high.copy()

        def complete() -> list[int]:
            if self._state() != state or not self.space.is_current(state[1]):
                raise CallerError("members have changed since this verdict was given: check again for a witness")
            rows = self.index.rows
            slots = [slot for slot in self.index.meeting(low, high) if rows.owner[slot] < number]
            return find_witness(low, high, rows.low[slots], rows.high[slots])

        return Uncovered(complete=complete, space=self.space)

    def _cover_and_add(self, part: BatchPart) -> tuple[Ints, Ints]:
        self._reserve(len(part.low), part.low, part.high)
        begins, names, region = np.zeros(len(part.starts), np.int64), [], 0
        while region < len(part.codes):
            own, start = np.empty(len(part.codes) + len(self._scratch.names), np.int64), begins[region]
            region = cover_and_add(
                self.index.rows, part.low, part.high, part.starts, self._number, self._scratch, self.nodes_max,
                self.tests_max, part.codes, part.witness_low, part.witness_high, region, begins, own,
            )  # fmt: skip
            names.append(own[: begins[region] - start])
        return np.concatenate(names), begins
