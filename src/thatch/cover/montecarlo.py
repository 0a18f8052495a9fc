"""Monte Carlo: look for a witness by guessing points; if none turns up, say covered, and say how sure.

The idea: a point of s outside all members proves that s is not covered. Guess d points; if all are in some member, s
is called covered. If a share rho of s were uncovered, d points would miss it with probability delta = (1 - rho)^d.

    1. fast decisions, from the conflict table (conflict.py): one member covers it; a witness exists
    2. MCS: leave out members that are not needed to decide; nothing left: a witness exists
    3. rho from the table, and d = ln delta / ln(1 - rho)
    4. RSPC: guess d points, at most `trials_max` for a question, of however many boxes it is

From monte-carlo (Ouksel, Jurca, Podnar, Aberer). Each of 1, 2 and 4 can be switched off. Members that do not meet s are
left out by the index before. A witness among the members that MCS left is narrowed to one among all.

Errs: **false covered**, which loses events: ask for it by name. `Likely` carries the error that the paper claims, not
one that holds: rho is no lower bound (a pinwheel of four boxes around a small hole gives a wrong answer nearly always,
at a claimed 1e-10), and d is often astronomical, so that the cap decides. Uncovered is always right.

Cost: O(k d) for 1 and each round of 2, then trials times the members looked at until one holds the point.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Self

import numpy as np

from thatch.cover.boxed import COVERED, UNCOVERED, UNDECIDED, BoxedEngine
from thatch.cover.conflict import Best, by_counting, find_point, log_rho, minimize, narrow
from thatch.cover.verdict import Covered, Likely, Unproven, Verdict
from thatch.errors import CallerError, shown
from thatch.region.box_sets import Boxes
from thatch.region.region import Region
from thatch.region.term import Term
from thatch.space.arrays import Ints
from thatch.space.space import Space

DELTA = 1e-6
TRIALS_MAX = 20_000


class MonteCarloEngine(BoxedEngine):
    name = "montecarlo"
    may_err = "covered"

    def __init__(
        self,
        space: Space,
        delta: float = DELTA,
        trials_max: int = TRIALS_MAX,
        fast: bool = True,
        minimize: bool = True,
        guess: bool = True,
        seed: int = 0,
    ) -> None:
        """`fast`, `minimize` and `guess` switch steps 1, 2 and 4 on and off."""
        super().__init__(space)
        if not 0 < delta < 1:
            raise CallerError(f"delta is an error probability between 0 and 1, not {shown(delta)}")
        if trials_max < 1:
            raise CallerError(f"trials_max is at least 1, not {shown(trials_max)}")
        self._options = delta, trials_max, fast, minimize, guess, seed
        self.delta, self.trials_max, self.fast, self.minimize, self.guess, _ = self._options
        self._random = np.array([seed % 2**64], np.uint64)
        d = len(space)
        self._best = Best(np.zeros((2, 2, d), np.int64), np.zeros((2, d), np.int64), np.zeros((2, d), np.int64))
        self._witness = np.zeros((2, d), np.int64)
        # Of boxes called covered: delta, trials asked for, trials run. Of the last search, and of those that count.
        self._trials = trials_max
        self._claimed: list[tuple[float, float, int]] = []
        self._claims: list[tuple[float, float, int]] = []

    def _alike(self) -> Self:
        alike = type(self)(self.space, *self._options)
        alike._random = self._random  # one generator for both
        return alike

    def check(self, region: Region) -> Verdict:
        """`Likely` where points were guessed and all were held; its error is the largest of its boxes'."""
        self._claims = []
        verdict = super().check(region)
        if isinstance(verdict, Covered) and not isinstance(verdict, Likely) and self._claims:
            deltas, asked, run = zip(*self._claims, strict=True)
            return Likely(verdict.certificate, max(deltas), sum(asked), sum(run))
        return verdict

    def _search(self, low: Ints, high: Ints) -> int:
        self._claimed = []
        self._trials = max(1, self.trials_max // max(1, len(low)))  # the cap is for all boxes of a question
        return super()._search(low, high)

    def _search_box(self, low: Ints, high: Ints) -> int:
        rows, index = self.index.touching(low, high), self.index.rows
        boxes, count = (low, high, index.low, index.high), len(rows)
        removed = np.zeros(count, np.int64)
        found = by_counting(*boxes, rows, count) if self.fast else 0
        if found > 0:
            self._names.add(int(index.owner[rows[0]]))
            return COVERED
        left = count
        if found == 0 and self.minimize:
            left = minimize(*boxes, rows, count, removed, self._best)
        self._witness[0], self._witness[1] = low, high
        if found < 0:
            return self._narrowed(rows, boxes)
        if left == 0:
            return self._narrowed(removed[::-1], boxes)
        kept = rows[:left]
        claimed = math.log1p(-min(math.exp(log_rho(*boxes, kept, left)), 1 - 2**-53))  # of one trial
        asked = math.log(self.delta) / claimed if claimed < 0 else math.inf
        if not self.guess:
            return UNDECIDED
        trials = int(min(max(1, math.ceil(min(asked, 2.0**62))), self._trials))
        run = find_point(*boxes, kept, left, trials, self._random, self._witness[0])
        if run > 0:
            return self._around_point(kept, removed[: count - left][::-1], boxes)
        self._names.update(index.owner[kept].tolist())
        self._claimed.append((math.exp(claimed * trials), math.ceil(asked) if asked < 2.0**62 else asked, trials))
        return COVERED

    def _narrowed(self, order: Ints, boxes: tuple[Ints, Ints, Ints, Ints]) -> int:
        """A box of witnesses that none of the rows, taken in this order, holds."""
        for row in order:
            found = narrow(*boxes, row, self._witness[0], self._witness[1])
            assert found, "a row without an entry that fits: what the table shows is wrong"
        return UNCOVERED

    def _around_point(self, kept: Ints, order: Ints, boxes: tuple[Ints, Ints, Ints, Ints]) -> int:
        """A point that no row holds, of those that MCS kept: around it a box of witnesses against these, narrowed by
        those that MCS removed."""
        point = self._witness[0].copy()
        least, most, member_low, member_high = boxes
        self._witness[0], self._witness[1] = least, most
        for row in kept:
            below, above = point < member_low[row], point > member_high[row]
            axis = int(np.flatnonzero(below | above)[0])
            if below[axis]:
                self._witness[1, axis] = min(self._witness[1, axis], member_low[row, axis] - 1)
            else:
                self._witness[0, axis] = max(self._witness[0, axis], member_high[row, axis] + 1)
        return self._narrowed(order, boxes)

    def _used(self) -> Iterable[int]:
        self._claims += self._claimed
        return super()._used()

    def _by_one(self, terms: Sequence[Term]) -> Verdict | None:
        self._claims = []  # those of the attempt before count for nothing
        return super()._by_one(terms)

    def _by_parts(self, terms: Sequence[Term]) -> Verdict | None:
        self._claims = []
        return super()._by_parts(terms)

    def _piece(self) -> Boxes:
        return self._witness[0], self._witness[0]

    def _undecided(self) -> Unproven:
        return Unproven("the conflict table decides nothing, and guessing is switched off")
