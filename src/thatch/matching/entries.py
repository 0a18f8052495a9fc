"""The exact side of the index: every box that was added, in flat arrays that only grow, and what a box cannot say.

A term becomes entries. A plain box is one; a term whose sides are small sets is expanded into boxes; a term with
large sets or with balls is the box around it and *checks*: sets to be searched, balls to be measured. Entries of one
region stand side by side and share its number.

Views share these arrays. An entry is written once, behind the entries that older views know; an array that is full
is copied into a larger one, and older views keep theirs. Only `died` is written later: the version in which the entry
was discarded. A view of version v counts the entries with died > v, so a discard needs no copy and no lock, and what
it discards is still there for readers of an older version.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from thatch.jit import address, carray, float64_at, inlined, int32_at, int64_at, kernel
from thatch.matching.matcher import Numbers
from thatch.region.box_sets import Boxes
from thatch.region.region import Region
from thatch.region.term import Term, hulls
from thatch.space.arrays import Ints, lower_bound
from thatch.space.axis import LabelledAxis
from thatch.space.space import Space

EXPANDED_MAX = 16  # boxes that a term is expanded into; one with more gets checks
ALIVE = 2**31 - 1
LAST = 1  # flags of a check: the last one of its entry;
POSTED = 2  # a set of single values, by which the entry is looked up;
JUDGED = 4  # whether it is one has been found out


class Exact(NamedTuple):
    """What the kernels read. An entry is a slot."""

    low: Ints  # [slots, d]
    high: Ints
    owner: Ints  # [slots]: the number of the region
    died: Any  # int32 [slots]: the version from which on it is gone
    checks_at: Any  # int32 [slots]: its first check; -1 if it has none. Of no length while no entry has one
    checks: Ints  # [checks, 5]: attribute, from, to in `values`: a set. Or -1, from, to: a ball's attributes; its reals
    #               from; LAST of its entry, POSTED
    values: Ints  # ends of intervals, attributes of balls
    reals: Any  # float64: for each ball its centre and its radius


def entries_handle(exact: Exact) -> Ints:
    """Entries as `opened` takes them."""
    sizes = [len(exact.owner), len(exact.checks), len(exact.values), len(exact.reals)]
    return np.array(sizes + [address(array) for array in exact], np.int64)


@inlined
def opened(handle: Ints, d: int) -> Exact:
    """Entries from their handle."""
    slots, checks, values, reals = handle[0], handle[1], handle[2], handle[3]
    return Exact(
        carray(int64_at(handle[4]), (slots, d)),
        carray(int64_at(handle[5]), (slots, d)),
        carray(int64_at(handle[6]), slots),
        carray(int32_at(handle[7]), slots),
        carray(int32_at(handle[8]), slots if checks > 0 else 0),
        carray(int64_at(handle[9]), (checks, 5)),
        carray(int64_at(handle[10]), values),
        carray(float64_at(handle[11]), reals),
    )


@kernel
def filter_candidates(
    exact: Exact, version: int, points: Ints, doubles: Any, rows: Ints, slots: Ints, found: int
) -> int:
    """Of the candidates (row, slot), those that match, moved to the front with the number in place of the slot.

    A slot that is given as its complement is in the box for sure.
    """
    low, high, owner, died, checks_at = exact.low, exact.high, exact.owner, exact.died, exact.checks_at
    checks, values, reals = exact.checks, exact.values, exact.reals
    d, kept, checked = points.shape[1], 0, len(exact.checks_at) > 0
    for candidate in range(found):
        row, slot = rows[candidate], slots[candidate]
        holds = True
        if slot < 0:
            slot = ~slot
        else:
            for axis in range(d):
                value = points[row, axis]
                if value < low[slot, axis] or value > high[slot, axis]:
                    holds = False
                    break
        if not holds or died[slot] <= version:
            continue
        check = checks_at[slot] if checked else -1
        while check >= 0 and holds:
            axis, start, stop = checks[check, 0], checks[check, 1], checks[check, 2]
            if axis >= 0:  # a set: a binary search among the ends of its intervals
                value = points[row, axis]
                at = lower_bound(values, start, stop, value)
                holds = ((at - start) & 1) == 1 or (at < stop and values[at] == value)
            else:  # a ball: in float64, left to right, as Ball.contains
                real, total = checks[check, 3], 0.0
                for place in range(stop - start):
                    offset = doubles[row, values[start + place]] - reals[real + place]
                    total = total + offset * offset if place > 0 else offset * offset
                holds = total <= reals[real + stop - start] * reals[real + stop - start]
            check = check + 1 if not checks[check, 4] & LAST else -1
        if holds:
            rows[kept], slots[kept] = row, owner[slot]
            kept += 1
    return kept


@kernel
def copy_checks(
    exact: Exact, slots: Any, checks_at: Any, checks: Ints, values: Ints, reals: Any
) -> tuple[int, int, int]:
    """Copy the checks of some entries to new arrays, in order; what is used of each. Only counted where those are
    empty."""
    first, known, known_values, known_reals = exact.checks_at, exact.checks, exact.values, exact.reals
    counted, values_used, reals_used = 0, 0, 0
    for place in range(len(slots)):
        check = first[slots[place]]  # there are some
        if len(checks_at):
            checks_at[place] = counted if check >= 0 else -1
        while check >= 0:
            axis, start, stop = known[check, 0], known[check, 1], known[check, 2]
            real, flags, size = known[check, 3], known[check, 4], stop - start
            width = size + 1 if axis < 0 else 0
            if len(checks):
                checks[counted, 0], checks[counted, 1], checks[counted, 2] = axis, values_used, values_used + size
                checks[counted, 3], checks[counted, 4] = reals_used, flags
                for each in range(size):
                    values[values_used + each] = known_values[start + each]
                for each in range(width):
                    reals[reals_used + each] = known_reals[real + each]
            counted += 1
            values_used += size
            reals_used += width
            check = check + 1 if not flags & LAST else -1
    return counted, values_used, reals_used


class Entries:
    """The growing arrays. For one writer."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.used = self.checks_used = self.values_used = self.reals_used = 0
        self.ball_axes: frozenset[int] = frozenset()  # the attributes that balls look at
        d = len(space)
        self.exact = Exact(
            low=np.empty((0, d), np.int64), high=np.empty((0, d), np.int64), owner=np.empty(0, np.int64),
            died=np.empty(0, np.int32), checks_at=np.empty(0, np.int32),
            checks=np.empty((0, 5), np.int64), values=np.empty(0, np.int64), reals=np.empty(0, np.float64),
        )  # fmt: skip

    def append_boxes(self, numbers: Numbers, low: Ints, high: Ints) -> None:
        """Plain boxes, none of them empty."""
        self._reserve(len(numbers))
        slots = slice(self.used, self.used + len(numbers))
        exact = self.exact
        exact.low[slots], exact.high[slots] = low, high
        exact.owner[slots], exact.died[slots] = numbers, ALIVE
        if len(exact.checks_at):
            exact.checks_at[slots] = -1
        self.used += len(numbers)

    def append_terms(self, number: int, terms: Sequence[Term]) -> int:
        """The terms of one region. How many entries they became."""
        before = self.used
        for term in terms:
            count = term.box_count()
            if count == 1 and not term.balls:
                self._append_box(number, term)
                continue
            if not term.balls and count <= EXPANDED_MAX:
                low, high = hulls(term.boxes(), self.space)
                self.append_boxes(np.full(len(low), number, np.int64), low, high)
                continue
            around = boxed(term, self.space)
            if around is not None:
                self.append_boxes(np.array([number], np.int64), *around)
                self._append_checks(self.used - 1, term)
        return self.used - before

    def reserve_for(self, regions: Sequence[Region]) -> None:
        """Room for the sets of many regions at once: watchlists are long, and would be copied again and again."""
        terms = [term for region in regions for term in region.terms_in(self.space) if term.box_count() > EXPANDED_MAX]
        self._reserve_checks(0, sum(2 * len(side) for term in terms for _, side in term.sides), 0)

    def _append_box(self, number: int, term: Term) -> None:
        """One plain box, the usual case, without making arrays of it first."""
        self._reserve(1)
        slot, exact, space = self.used, self.exact, self.space
        exact.low[slot], exact.high[slot] = space.low[0], space.high[0]
        for axis, side in term.sides:
            exact.low[slot, axis], exact.high[slot, axis] = side.ends
        exact.owner[slot], exact.died[slot] = number, ALIVE
        if len(exact.checks_at):
            exact.checks_at[slot] = -1
        self.used += 1

    def _append_checks(self, slot: int, term: Term) -> None:
        sets = [(axis, side) for axis, side in term.sides if len(side) > 1]
        self._reserve_checks(
            len(sets) + len(term.balls),
            sum(2 * len(side) for _, side in sets) + sum(len(ball.attributes) for ball in term.balls),
            sum(len(ball.attributes) + 1 for ball in term.balls),
        )
        checks, values, reals = self.exact.checks, self.exact.values, self.exact.reals
        self.exact.checks_at[slot] = self.checks_used
        for axis, side in sets:
            ends = side.to_numpy()
            values[self.values_used : self.values_used + len(ends)] = ends
            checks[self.checks_used] = axis, self.values_used, self.values_used + len(ends), 0, 0
            self.values_used += len(ends)
            self.checks_used += 1
        for ball in term.balls:
            k = len(ball.attributes)
            self.ball_axes |= set(ball.attributes)
            values[self.values_used : self.values_used + k] = ball.attributes
            reals[self.reals_used : self.reals_used + k + 1] = (*ball.centre, ball.radius)
            checks[self.checks_used] = -1, self.values_used, self.values_used + k, self.reals_used, 0
            self.values_used += k
            self.reals_used += k + 1
            self.checks_used += 1
        checks[self.checks_used - 1, 4] = LAST

    def _reserve(self, count: int) -> None:
        exact = self.exact
        if self.used + count > len(exact.owner):
            size = _grown(self.used, count)
            names = ("low", "high", "owner", "died") + (("checks_at",) if len(exact.checks_at) else ())
            self.exact = exact._replace(**{each: _copied(getattr(exact, each), self.used, size) for each in names})

    def _reserve_checks(self, checks: int, values: int, reals: int) -> None:
        exact = self.exact
        for name, used, more in (
            ("checks", self.checks_used, checks),
            ("values", self.values_used, values),
            ("reals", self.reals_used, reals),
        ):
            if used + more > len(getattr(exact, name)):
                exact = exact._replace(**{name: _copied(getattr(exact, name), used, _grown(used, more))})
        if checks and not len(exact.checks_at):
            exact = exact._replace(checks_at=np.full(len(exact.owner), -1, np.int32))
        self.exact = exact

    def set_checks(self, slots: Any) -> Ints:
        """For each of these entries the check to look it up by: its largest set of single values. -1 if it has none."""
        result = np.full(len(slots), -1, np.int64)
        exact, singles = self.exact, dict[int, Boxes]()
        first = exact.checks_at[slots] if self.checks_used else np.zeros(0, np.int32)
        for place in np.flatnonzero((first >= 0) & (exact.checks[first, 0] >= 0)) if self.checks_used else ():
            check, longest = int(first[place]), EXPANDED_MAX
            while check >= 0:
                axis, start, stop, _, flags = exact.checks[check].tolist()
                if axis >= 0 and not flags & JUDGED:
                    flags |= JUDGED | (POSTED if self._are_single(axis, exact.values[start:stop], singles) else 0)
                    exact.checks[check, 4] = flags
                if flags & POSTED and stop - start > 2 * longest:
                    longest, result[place] = (stop - start) // 2, check
                check = check + 1 if not flags & LAST else -1
        return result

    def _are_single(self, axis: int, ends: Ints, singles: dict[int, Boxes]) -> bool:
        """Whether each of these intervals holds a single value, which an event then has as its lower end."""
        kind = self.space.attributes[axis].axis
        if not isinstance(kind, LabelledAxis):
            return bool((ends[::2] == ends[1::2]).all())
        if axis not in singles:  # a value has a run of labels; that of a single one no later cut can divide
            singles[axis] = kind.singles()
        lows, highs = singles[axis]
        at = np.minimum(np.searchsorted(lows, ends[::2]), len(lows) - 1)
        return len(lows) > 0 and bool(((lows[at] == ends[::2]) & (highs[at] == ends[1::2])).all())

    def kept(self, slots: Any) -> Entries:
        """A copy of some entries, in their order: what compaction leaves."""
        copy, exact = Entries(self.space), self.exact
        copy.ball_axes = self.ball_axes
        copy.append_boxes(exact.owner[slots], exact.low[slots], exact.high[slots])
        copied = copy.exact
        if self.checks_used:
            sizes = copy_checks(exact, slots, copied.checks_at[:0], copied.checks, copied.values, copied.reals)
            copy._reserve_checks(*sizes)
            copied = copy.exact
            copy_checks(exact, slots, copied.checks_at, copied.checks, copied.values, copied.reals)
            copy.checks_used, copy.values_used, copy.reals_used = sizes
        return copy


def boxed(term: Term, space: Space) -> Boxes | None:
    """The box around a term, its balls included; None if they surely miss its sides."""
    low, high = hulls([term], space)
    for ball in term.balls:
        for axis, bounds in ball.bounds(space).items():
            if not bounds.ends:
                return None
            low[0, axis], high[0, axis] = max(low[0, axis], bounds.low), min(high[0, axis], bounds.high)
    return (low, high) if (low <= high).all() else None


def _grown(used: int, more: int) -> int:
    """Room for a first bulk exactly, later a quarter more than needed: copies stay O(1) amortised."""
    needed = used + more
    return needed if more > max(used, 1024) else max(64, needed + needed // 4)


def _copied(array: Any, used: int, size: int) -> Any:
    larger = np.empty((size, *array.shape[1:]), array.dtype)
    larger[:used] = array[:used]
    return larger
