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

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from math import prod
from typing import Any, NamedTuple, overload

import numpy as np

from thatch.boxes import Ints
from thatch.cover.engine import Boxes, CoverEngine, as_boxes, as_regions
from thatch.cover.index import CUTS, BoxIndex, Rows, insert_box, lowest_bit, meeting
from thatch.cover.verdict import Covered, Uncovered, Unproven, Verdict, inner_boxes, outer, terms_covered
from thatch.errors import CallerError, TooManyBoxes
from thatch.jit import inlined, kernel
from thatch.region import Region, Term, boxes_to_terms, hulls
from thatch.space import Space

NODES_MAX = 1_024
TESTS_MAX = 300_000
PART = 16_384  # regions that `add_many` hands to the kernel at a time
PLAIN_MAX = 6  # up to this many attributes a loop over all beats a loop over a mask
UNCOVERED, COVERED, SPENT = 0, 1, 2
_ONE = np.uint64(1)
_MARGIN = 2.0**-51


class Scratch(NamedTuple):
    """What the search writes to: allocated once, so that a check allocates nothing."""

    words: Any  # uint64: bits of candidates
    ranks: Ints  # [6, d]: rows to be asked
    lists: Any  # int32: candidate slots of the boxes on the stack, one list after another
    stack_low: Ints  # [depth, d]: boxes still to be covered
    stack_high: Ints
    stack_list: Ints  # [depth, 2]: where the candidates of each begin and end
    low: Ints  # [d]: the box at hand; after UNCOVERED, one that holds a witness
    high: Ints
    units: Any  # float64 [d]: one over the widths of the box at hand
    masks: Any  # uint64 [slots]: the attributes at which the first box protrudes beyond a candidate
    names: Ints  # owners of the boxes used, with repetitions
    state: Ints  # [3]: number of names; nodes; box tests


@inlined
def width(low: int, high: int, wide: bool) -> float:
    """The number of coordinates in low..high, which may be 2^64 on a wide axis. Unsigned there, because the compiler
    takes a signed difference for one that does not overflow; signed elsewhere, because that converts faster."""
    if wide:
        return np.float64(np.uint64(high) - np.uint64(low)) + 1.0
    return np.float64(high - low) + 1.0


@inlined
def push(scratch: Scratch, top: int, start: int, stop: int) -> None:
    """Put the box at hand on the stack, with the place of its candidates."""
    for axis in range(len(scratch.low)):
        scratch.stack_low[top, axis] = scratch.low[axis]
        scratch.stack_high[top, axis] = scratch.high[axis]
    scratch.stack_list[top, 0] = start
    scratch.stack_list[top, 1] = stop


@inlined
def cover_box(rows: Rows, lows: Ints, highs: Ints, box: int, scratch: Scratch, nodes_max: int, tests_max: int) -> int:
    """Is one box of an array covered? COVERED, UNCOVERED or SPENT; names are added to, never reset."""
    d = lows.shape[1]
    low, high = lows[box], highs[box]
    now_low, now_high, state = scratch.low, scratch.high, scratch.state
    if rows.used[1] == 0:
        for axis in range(d):
            now_low[axis], now_high[axis] = low[axis], high[axis]
        return UNCOVERED
    # The rows to ask: for those that meet the box, for those that cover it, and for those that hold a corner. The
    # corner takes at each attribute the end that fewer boxes hold: a box that does not begin after a value and does
    # not end before it holds it, and none does both, so the two counts sum to all plus those that hold it.
    ranks, cuts, edges, edge_ranks = scratch.ranks, rows.cuts, rows.edges, rows.edge_ranks
    for axis in range(d):
        least, most = low[axis], high[axis]
        if least == edges[0, axis] and most == edges[1, axis]:
            low_below, low_upto = edge_ranks[0, axis], edge_ranks[1, axis]
            high_below, high_upto = edge_ranks[2, axis], edge_ranks[3, axis]
        else:
            low_below = low_upto = high_below = high_upto = 0
            for cut in range(CUTS):  # `cuts_below` and `cuts_upto` of both ends in one go
                low_below += cuts[axis, cut] < least
                low_upto += cuts[axis, cut] <= least
                high_below += cuts[axis, cut] < most
                high_upto += cuts[axis, cut] <= most
        ranks[0, axis], ranks[1, axis] = high_below, low_upto
        ranks[2, axis], ranks[3, axis] = low_below, high_upto
        at_low = rows.below_count[axis, low_below] + rows.above_count[axis, low_upto]
        at_high = rows.below_count[axis, high_below] + rows.above_count[axis, high_upto]
        if at_low <= at_high:
            now_low[axis], ranks[4, axis], ranks[5, axis] = low[axis], low_below, low_upto
        else:
            now_low[axis], ranks[4, axis], ranks[5, axis] = high[axis], high_below, high_upto
    # 1. One that covers it.
    for word in range(meeting(rows, ranks[2], ranks[3], scratch.words)):
        bits = scratch.words[word]
        while bits != 0:
            slot = (word << 6) + lowest_bit(bits)
            bits &= bits - _ONE
            covers = True
            for axis in range(d):
                if rows.low[slot, axis] > low[axis] or rows.high[slot, axis] < high[axis]:
                    covers = False
                    break
            if covers:
                scratch.names[state[0]] = rows.owner[slot]
                state[0] += 1
                return COVERED
    # 2. One that holds the corner, else it is a witness.
    held = False
    for word in range(meeting(rows, ranks[4], ranks[5], scratch.words)):
        bits = scratch.words[word]
        while bits != 0 and not held:
            slot = (word << 6) + lowest_bit(bits)
            bits &= bits - _ONE
            held = True
            for axis in range(d):
                if rows.low[slot, axis] > now_low[axis] or rows.high[slot, axis] < now_low[axis]:
                    held = False
                    break
        if held:
            break
    if not held:
        for axis in range(d):
            now_high[axis] = now_low[axis]
        return UNCOVERED
    # With many attributes, of which boxes bound few, a mask tells at which ones the box protrudes beyond a member: at
    # the others the member holds all of every piece, and is not looked at again.
    # 3 and 4. Depth first over pieces. The list of a piece is filtered from its parent's when its turn comes; it is
    # written behind the parent's, which the piece's siblings still need.
    found, masked, units, wide = 0, PLAIN_MAX < d <= 64, scratch.units, False
    for axis in range(d):
        wide |= edges[0, axis] < -(2**61) or edges[1, axis] > 2**61
    for word in range(meeting(rows, ranks[0], ranks[1], scratch.words)):
        bits = scratch.words[word]
        while bits != 0:
            slot = (word << 6) + lowest_bit(bits)
            bits &= bits - _ONE
            scratch.masks[slot] = rows.bounded[slot]
            scratch.lists[found] = slot
            found += 1
    for axis in range(d):
        now_low[axis], now_high[axis] = low[axis], high[axis]
    push(scratch, 0, 0, found)
    top = 1
    room, depth = len(scratch.lists), len(scratch.stack_list) - 2 * d
    while top > 0:
        top -= 1
        for axis in range(d):
            now_low[axis], now_high[axis] = scratch.stack_low[top, axis], scratch.stack_high[top, axis]
        start, stop = scratch.stack_list[top, 0], scratch.stack_list[top, 1]
        state[1] += 1
        state[2] += stop - start
        if state[1] > nodes_max or state[2] > tests_max or 2 * stop - start > room or top > depth:
            return SPENT
        unit = 1.0
        for axis in range(d):
            units[axis] = 1.0 / width(now_low[axis], now_high[axis], wide)
            unit *= units[axis]
        end, share_sum, best, best_score, whole = stop, 0.0, -1, -1.0, -1
        for position in range(start, stop):
            slot = scratch.lists[position]
            faces = 0
            if masked:
                share, mask, kept = 1.0, scratch.masks[slot], np.uint64(0)
                while mask != 0:
                    axis = lowest_bit(mask)
                    mask &= mask - _ONE
                    before = faces
                    faces += (rows.low[slot, axis] > now_low[axis]) + (rows.high[slot, axis] < now_high[axis])
                    least = max(rows.low[slot, axis], now_low[axis])
                    most = min(rows.high[slot, axis], now_high[axis])
                    if least > most:
                        share = -1.0
                        break
                    if faces > before:
                        share *= width(least, most, wide) * units[axis]
                        kept |= _ONE << np.uint64(axis)
                if start == 0:
                    scratch.masks[slot] = kept
            else:
                share = unit if d <= PLAIN_MAX else 1.0  # with more, the unit may vanish
                for axis in range(d):
                    # Sums of comparisons, minima and maxima: branches here would be mispredicted half the time.
                    faces += (rows.low[slot, axis] > now_low[axis]) + (rows.high[slot, axis] < now_high[axis])
                    least = max(rows.low[slot, axis], now_low[axis])
                    most = min(rows.high[slot, axis], now_high[axis])
                    if least > most:
                        share = -1.0
                        break
                    share *= width(least, most, wide) if d <= PLAIN_MAX else width(least, most, wide) * units[axis]
            if share < 0.0:
                continue
            if faces == 0:
                whole = slot
                break
            share_sum += share
            score = share / faces  # many faces, many pieces
            if faces == 1:
                score += 1.0  # leaves one piece: no branching
            if score > best_score:
                best, best_score = slot, score
            scratch.lists[end] = slot
            end += 1
        if whole >= 0:
            scratch.names[state[0]] = rows.owner[whole]
            state[0] += 1
            continue
        # A share is a product of at most 2d + 1 widths and inverses of at most three roundings each, the sum has one
        # more for each member: less than 6d + n + 4 roundings of one part in 2^53 in all, so the true sum is below 1.
        if share_sum < 1.0 - (6 * d + (end - stop) + 4) * _MARGIN:
            return UNCOVERED
        scratch.names[state[0]] = rows.owner[best]
        state[0] += 1
        for turn in range(d):  # the first attribute last, so that its pieces, the widest, are asked first
            axis = d - 1 - turn
            if rows.low[best, axis] > now_low[axis]:
                push(scratch, top, stop, end)
                scratch.stack_high[top, axis] = rows.low[best, axis] - 1
                top += 1
                now_low[axis] = rows.low[best, axis]
            if rows.high[best, axis] < now_high[axis]:
                push(scratch, top, stop, end)
                scratch.stack_low[top, axis] = rows.high[best, axis] + 1
                top += 1
                now_high[axis] = rows.high[best, axis]
    return COVERED


@inlined
def cover_union(
    rows: Rows, low: Ints, high: Ints, first: int, last: int, scratch: Scratch, nodes_max: int, tests_max: int
) -> int:
    """Are the boxes first to last, without last, covered? SPENT only if none is surely not. Names each owner once."""
    scratch.state[0] = scratch.state[1] = scratch.state[2] = 0
    code = COVERED
    for box in range(first, last):
        nodes_max += 1  # the budget is for all of them, but each may take its first step
        if scratch.state[0] > len(scratch.names) - nodes_max - 2:
            return SPENT
        each = cover_box(rows, low, high, box, scratch, nodes_max, tests_max)
        if each == UNCOVERED:
            return UNCOVERED
        code = max(code, each)
        kept = 0
        for position in range(scratch.state[0]):
            name, known = scratch.names[position], False
            for earlier in range(kept):
                if scratch.names[earlier] == name:
                    known = True
                    break
            if not known:
                scratch.names[kept] = name
                kept += 1
        scratch.state[0] = kept
    return code


@kernel
def cover_boxes(rows: Rows, low: Ints, high: Ints, scratch: Scratch, nodes_max: int, tests_max: int) -> int:
    """Is the union of these boxes covered?"""
    return cover_union(rows, low, high, 0, len(low), scratch, nodes_max, tests_max)


@kernel
def cover_and_add(
    rows: Rows,
    low: Ints,
    high: Ints,
    starts: Ints,
    owner: int,
    scratch: Scratch,
    nodes_max: int,
    tests_max: int,
    codes: Ints,
    witness_low: Ints,
    witness_high: Ints,
) -> tuple[Ints, Ints]:
    """For each region in turn, its boxes starts[i]..starts[i+1]: decide, and insert it unless it is covered.

    Owners are numbered upward from `owner`. Certificates come back as names with the place where each region's begin.
    """
    n = len(starts) - 1
    names, begins = np.empty(max(64, n), np.int64), np.zeros(n + 1, np.int64)
    for region in range(n):
        first, last = starts[region], starts[region + 1]
        code = cover_union(rows, low, high, first, last, scratch, nodes_max, tests_max)
        codes[region] = code
        begins[region + 1] = begins[region]
        if code == COVERED:
            count = scratch.state[0]
            while begins[region] + count > len(names):
                names = np.concatenate((names, names))
            for position in range(count):
                names[begins[region] + position] = scratch.names[position]
            begins[region + 1] += count
            continue
        if code == UNCOVERED:
            for axis in range(low.shape[1]):
                witness_low[region, axis] = scratch.low[axis]
                witness_high[region, axis] = scratch.high[axis]
        for box in range(first, last):
            insert_box(rows, rows.used[0], low, high, box, owner + region)
    return names[: begins[n]].copy(), begins


class ExactEngine(CoverEngine):
    name = "exact"
    covers_by = "union"
    may_err = "unproven"

    def __init__(self, space: Space, nodes_max: int = NODES_MAX, tests_max: int = TESTS_MAX) -> None:
        super().__init__(space)
        self.nodes_max = nodes_max
        self.tests_max = tests_max
        self.index = BoxIndex(space.low[0], space.high[0])
        self._slots: dict[Any, tuple[int, ...]] = {}
        self._ids: dict[int, Any] = {}
        self._number = 0  # of the next member: numbers rise and are never used again
        self._departures = 0
        self._empty: dict[Any, None] = {}  # members that hold nothing
        self._vague: dict[Any, Region] = {}  # members with balls, or with sets too large to cross out
        self._numbering = space.numbering
        self._regions: dict[Any, Region] = {}  # kept only if there are strings, whose labels may be numbered anew
        self._scratch = self._new_scratch()

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

    def _reserve(self, more: int, low: Ints | None = None, high: Ints | None = None) -> None:
        before = self.index.rows
        self.index.reserve(more, low, high)
        if self.index.rows is not before:
            self._scratch = self._new_scratch()

    def _align(self) -> None:
        """Rebuild if a string attribute was renumbered: labels in the index would mean nothing."""
        if self._numbering is self.space.numbering:
            return
        self._numbering = self.space.numbering
        regions = self._regions
        self.index = BoxIndex(self.space.low[0], self.space.high[0])
        self._slots, self._ids, self._empty, self._vague, self._regions = {}, {}, {}, {}, {}
        self._scratch = self._new_scratch()
        self._departures += 1
        for id, region in regions.items():
            self.add(id, region)

    def _remember(self, ids: Iterable[Any], regions: Iterable[Region]) -> None:
        if self._numbering:
            self._regions.update(zip(ids, regions, strict=True))

    @property
    def nbytes(self) -> int:
        """Of the index and the scratch space, without ids."""
        return self.index.nbytes + sum(array.nbytes for array in self._scratch)

    def add(self, id: Any, region: Region) -> None:
        if id in self._slots:
            raise CallerError(f"{id!r} is a member already")
        terms = region.terms_in(self.space)
        self._align()
        low, high, whole = _boxes(terms, self.space)
        if not whole:
            self._vague[id] = region
        if not terms:
            self._empty[id] = None
        self._remember([id], [region])
        self._reserve(len(low))
        self._slots[id] = tuple(self.index.insert(low, high, self._number))
        self._ids[self._number] = id
        self._number += 1

    def discard(self, id: Any) -> None:
        slots = self._slots.pop(id, None)
        if slots is None:
            return
        self._departures += 1
        self._empty.pop(id, None)
        self._vague.pop(id, None)
        self._regions.pop(id, None)
        for slot in slots:
            self._ids.pop(int(self.index.rows.owner[slot]), None)
            self.index.remove(slot)

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, id: object) -> bool:
        return id in self._slots

    def __iter__(self) -> Iterator[Any]:
        return iter(self._slots)

    def check(self, region: Region) -> Verdict:
        terms = region.terms if region.space is self.space else region.terms_in(self.space)
        if not terms:
            return Covered(())
        self._align()
        scratch = self._scratch
        try:
            low, high = _plain_box(terms, self.space) or _outer_boxes(terms, self.space)
        except TooManyBoxes as error:
            return self._by_one(terms) or Unproven(str(error))
        code = cover_boxes(self.index.rows, low, high, scratch, self.nodes_max, self.tests_max)
        if code == COVERED:
            return Covered(tuple(self._ids[name] for name in sorted(scratch.names[: scratch.state[0]].tolist())))
        if self._vague or any(term.balls for term in terms):
            piece = (scratch.low.copy(), scratch.high.copy()) if code == UNCOVERED else None
            return self._by_one(terms) or self._with_balls(terms, piece)
        if code == UNCOVERED:
            return self._uncovered(scratch.low, scratch.high, self._number)
        return self._spent()

    def _spent(self) -> Unproven:
        return Unproven(f"the budget of {self.nodes_max:,} nodes and {self.tests_max:,} box tests is used up")

    def _by_one(self, terms: Sequence[Term]) -> Covered | None:
        """Each term inside one term of one member with balls or large sets."""
        names = []
        for term in terms:
            for id, member in self._vague.items():
                if any(term.is_inside(other) for other in member.terms_in(self.space)):
                    names.append(id)
                    break
            else:
                try:
                    low, high = outer(term, self.space)
                except TooManyBoxes:
                    return None
                code = cover_boxes(self.index.rows, low, high, self._scratch, self.nodes_max, self.tests_max)
                if code != COVERED:
                    return None
                count = self._scratch.state[0]
                names += [self._ids[name] for name in self._scratch.names[:count].tolist()]
        return Covered(tuple(dict.fromkeys(names)))

    def _with_balls(self, terms: Sequence[Term], piece: Boxes | None) -> Verdict:
        """The boxes say no, but they bound balls: look whether a point of the piece is a witness all the same."""
        if piece is None:
            return self._spent()
        low, high = piece
        for point in (low.tolist(), high.tolist(), self._uncovered(low, high, self._number).witness):
            in_region = any(term.contains(point, self.space) for term in terms)
            held = self._holds(point) or any(each.contains_point(point) for each in self._vague.values())
            if in_region and not held:
                return Uncovered(point)
        return Unproven("balls are only bounded by boxes here, and the bounds decide nothing")

    def _holds(self, point: Sequence[int]) -> bool:
        at = np.array(point, np.int64)
        rows = self.index.rows
        return any(
            (rows.low[slot] <= at).all() and (at <= rows.high[slot]).all() for slot in self.index.meeting(at, at)
        )

    def _uncovered(self, low: Ints, high: Ints, number: int) -> Uncovered:
        if (low == high).all():
            return Uncovered(low.tolist())
        low, high, departures = low.copy(), high.copy(), self._departures

        def complete() -> list[int]:
            if self._departures != departures:
                raise CallerError("members have left since this verdict was given: check again for a witness")
            rows = self.index.rows
            slots = [slot for slot in self.index.meeting(low, high) if rows.owner[slot] < number]
            walls = [(rows.low[slot].tolist(), rows.high[slot].tolist()) for slot in slots]
            return find_witness(low.tolist(), high.tolist(), walls)

        return Uncovered(complete=complete)

    def members_within(self, region: Region) -> list[Any]:
        terms = region.terms_in(self.space)
        self._align()
        found = set(self._empty)
        for id, member in self._vague.items():
            if self._inside(member.terms_in(self.space), terms):
                found.add(id)
        low, high = hulls(terms, self.space)
        slots = {slot for box in range(len(low)) for slot in self.index.meeting(low[box], high[box])}
        rows = self.index.rows
        plain = len(terms) == 1 and not terms[0].balls and terms[0].box_count() == 1
        for id in {self._ids[int(number)] for number in rows.owner[sorted(slots)]}:
            if id in self._vague:
                continue
            own = list(self._slots[id])
            if plain:
                inside = bool((rows.low[own] >= low[0]).all() and (rows.high[own] <= high[0]).all())
            else:
                inside = self._inside(boxes_to_terms(rows.low[own], rows.high[own], self.space), terms)
            if inside:
                found.add(id)
        return [id for id in self._slots if id in found] if len(found) > 1 else list(found)

    def _inside(self, inner: Sequence[Term], terms: Sequence[Term]) -> bool:
        try:
            return terms_covered(inner, terms, self.space)
        except TooManyBoxes:
            return False

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
            flat = [_boxes(region.terms_in(self.space), self.space) for region in checked]
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

    def check_invariants(self) -> None:
        self.index.check_invariants()
        slots = [slot for each in self._slots.values() for slot in each]
        assert sorted(slots) == self.index.taken()
        assert not self._numbering or self._regions.keys() == self._slots.keys()
        for id, each in self._slots.items():
            assert all(self._ids[int(self.index.rows.owner[slot])] == id for slot in each)
        assert self._vague.keys() | self._empty.keys() <= self._slots.keys()


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
        return engine._spent()

    def _id(self, name: int) -> Any:
        return self._ids[name - self._number] if name >= self._number else self._earlier[name]


def _plain_box(terms: Sequence[Term], space: Space) -> Boxes | None:
    """One term of plain sides, the usual case, without going through lists of terms."""
    if len(terms) > 1 or terms[0].balls:
        return None
    low, high = space.low.copy(), space.high.copy()
    for index, intervals in terms[0].sides:
        ends = intervals.ends
        if len(ends) > 2:
            return None
        low[0, index], high[0, index] = ends
    return low, high


def _outer_boxes(terms: Sequence[Term], space: Space) -> Boxes:
    needed = sum(term.box_count() for term in terms)
    if needed > NODES_MAX:
        raise TooManyBoxes(needed, NODES_MAX)
    each = [outer(term, space) for term in terms]
    return np.concatenate([low for low, _ in each]), np.concatenate([high for _, high in each])


def _boxes(terms: Sequence[Term], space: Space) -> tuple[Ints, Ints, bool]:
    """The boxes that a union of terms surely contains, and whether they are all of it."""
    plain = _plain_box(terms, space) if terms else None
    if plain is not None:
        return (*plain, True)
    small = [term for term in terms if term.box_count() <= NODES_MAX]
    inner = [box for term in small for box in inner_boxes(term, None, space)]
    whole = len(small) == len(terms) and not any(term.balls for term in terms)
    return (*hulls(inner, space), whole)


def find_witness(low: list[int], high: list[int], walls: list[tuple[list[int], list[int]]]) -> list[int]:
    """A point of a box that is in no wall, where the walls' parts of the box sum to less than the box. Exact integers.

    Cut the box around the largest wall. The wall's own share is gone from the volume and from the sum alike, and what
    else lay inside it is gone from the sum only, so some piece is left with a sum below its volume: go there. Each
    step loses a wall, so it ends, after at most n steps of n walls each.
    """
    while True:
        clipped = [wall for wall in (_clip(low, high, *wall) for wall in walls) if wall is not None]
        if not clipped:
            return low
        wall_low, wall_high = max(clipped, key=lambda wall: _volume(*wall))
        walls = clipped
        now_low, now_high = list(low), list(high)
        best: tuple[int, list[int], list[int]] | None = None
        for axis in range(len(low)):
            for side_low, side_high in (
                (now_low[axis], wall_low[axis] - 1),
                (wall_high[axis] + 1, now_high[axis]),
            ):
                if side_low <= side_high:
                    piece_low, piece_high = list(now_low), list(now_high)
                    piece_low[axis], piece_high[axis] = side_low, side_high
                    held = sum(_volume(*w) for w in (_clip(piece_low, piece_high, *w) for w in walls) if w is not None)
                    slack = _volume(piece_low, piece_high) - held
                    if best is None or slack > best[0]:
                        best = slack, piece_low, piece_high
            now_low[axis], now_high[axis] = max(now_low[axis], wall_low[axis]), min(now_high[axis], wall_high[axis])
        assert best is not None and best[0] > 0, "the walls hold as much as the box"
        _, low, high = best


def _clip(
    low: list[int], high: list[int], wall_low: list[int], wall_high: list[int]
) -> tuple[list[int], list[int]] | None:
    least = [max(one, other) for one, other in zip(low, wall_low, strict=True)]
    most = [min(one, other) for one, other in zip(high, wall_high, strict=True)]
    return (least, most) if all(a <= b for a, b in zip(least, most, strict=True)) else None


def _volume(low: list[int], high: list[int]) -> int:
    return prod(most - least + 1 for least, most in zip(low, high, strict=True))
