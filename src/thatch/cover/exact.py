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
from typing import Any, overload

import numpy as np

from thatch.boxes import Ints
from thatch.cover.engine import Boxes, CoverEngine, as_boxes, as_regions
from thatch.cover.index import BoxIndex
from thatch.cover.search import COVERED, UNCOVERED, Scratch, cover_and_add, cover_union, find_witness
from thatch.cover.verdict import Covered, Uncovered, Unproven, Verdict, inner_boxes, outer, terms_covered
from thatch.errors import CallerError, TooManyBoxes
from thatch.region import Region, Term, boxes_to_terms, hulls, products
from thatch.space import Space

NODES_MAX = 1_024
TESTS_MAX = 300_000
PART = 16_384  # regions that `add_many` hands to the kernel at a time


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
        self._takes_parts = True
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

    def load(self, ids: Sequence[Any], regions: Sequence[Region]) -> None:
        """In one call of the kernel for all that are single plain boxes."""
        self.refuse_known(ids)
        rest = []
        plain: list[tuple[Any, Region, Boxes]] = []
        for id, region in zip(ids, regions, strict=True):
            terms = region.terms_in(self.space)
            box = _plain_box(terms, self.space) if terms else None
            if box is None:
                rest.append((id, region))
            else:
                plain.append((id, region, box))
        self._align()
        if plain:
            low = np.concatenate([box[0] for _, _, box in plain])
            high = np.concatenate([box[1] for _, _, box in plain])
            self._reserve(len(plain), low, high)
            numbers = range(self._number, self._number + len(plain))
            slots = self.index.insert_all(low, high, np.array(numbers, np.int64))
            self._ids.update(zip(numbers, (id for id, _, _ in plain), strict=True))
            self._slots.update((id, (slot,)) for (id, _, _), slot in zip(plain, slots, strict=True))
            self._remember([id for id, _, _ in plain], [region for _, region, _ in plain])
            self._number += len(plain)
        for id, region in rest:
            self.add(id, region)

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
            for attempt in (self._by_hulls, self._by_one, self._by_a_point):
                verdict = attempt(terms)
                if verdict is not None:
                    return verdict
            return Unproven(str(error))
        code = cover_union(self.index.rows, low, high, 0, len(low), scratch, self.nodes_max, self.tests_max)
        if code == COVERED:
            return Covered(self._used())
        if self._vague or any(term.balls for term in terms):
            piece = (scratch.low.copy(), scratch.high.copy()) if code == UNCOVERED else None
            for attempt in (self._by_one, self._by_parts):
                verdict = attempt(terms)
                if verdict is not None:
                    return verdict
            return self._with_balls(terms, piece)
        if code == UNCOVERED:
            return self._uncovered(scratch.low, scratch.high, self._number)
        return self._spent()

    def _used(self) -> tuple[Any, ...]:
        """The members that the last search used, in the order in which they were added."""
        count = self._scratch.state[0]
        return tuple(self._ids[name] for name in sorted(self._scratch.names[:count].tolist()))

    def _spent(self) -> Unproven:
        return Unproven(f"the budget of {self.nodes_max:,} nodes and {self.tests_max:,} box tests is used up")

    def _by_hulls(self, terms: Sequence[Term]) -> Verdict | None:
        """Sets too large to cross out, as the boxes around them."""
        low, high = hulls(terms, self.space)
        code = cover_union(self.index.rows, low, high, 0, len(low), self._scratch, self.nodes_max, self.tests_max)
        return Covered(self._used()) if code == COVERED else None

    def _by_a_point(self, terms: Sequence[Term]) -> Verdict | None:
        """The least and the greatest corner of each term: if one is in no member, it is a witness."""
        for term in terms:
            low, high = hulls([term], self.space)
            for point in (low[0].tolist(), high[0].tolist()):
                if term.contains(point, self.space) and not self._held(point):
                    return Uncovered(point, space=self.space)
        return None

    def _by_parts(self, terms: Sequence[Term]) -> Verdict | None:
        """What members with large sets hold of the question is often small: ask an engine of those parts."""
        if not self._takes_parts or not self._vague:
            return None
        small = ExactEngine(self.space, self.nodes_max, self.tests_max)
        small._takes_parts = False
        rows = self.index.rows
        low, high = hulls(terms, self.space)
        slots = {slot for box in range(len(low)) for slot in self.index.meeting(low[box], high[box])}
        for id in dict.fromkeys(self._ids[int(number)] for number in rows.owner[sorted(slots)]):
            if id not in self._vague:
                own = list(self._slots[id])
                small.add(id, Region(self.space, boxes_to_terms(rows.low[own], rows.high[own], self.space)))
        for id, member in self._vague.items():
            parts = products(terms, member.terms_in(self.space))
            if sum(part.box_count() for part in parts) > NODES_MAX:
                return None
            small.add(id, Region(self.space, parts))
        verdict = small.check(Region(self.space, terms))
        if isinstance(verdict, Uncovered):
            verdict = Uncovered(verdict.witness, space=self.space)
        return None if isinstance(verdict, Unproven) else verdict

    def _by_one(self, terms: Sequence[Term]) -> Verdict | None:
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
                code = cover_union(
                    self.index.rows, low, high, 0, len(low), self._scratch, self.nodes_max, self.tests_max
                )
                if code != COVERED:
                    return None
                names += self._used()
        return Covered(tuple(dict.fromkeys(names)))

    def _with_balls(self, terms: Sequence[Term], piece: Boxes | None) -> Verdict:
        """The boxes say no, but they bound balls: look whether a point of the piece is a witness all the same."""
        if piece is None:
            return self._spent()
        low, high = piece
        for point in (low.tolist(), high.tolist(), self._uncovered(low, high, self._number).witness):
            in_region = any(term.contains(point, self.space) for term in terms)
            if in_region and not self._held(point):
                return Uncovered(point, space=self.space)
        return Unproven("balls and large sets are only bounded by boxes here, and the bounds decide nothing")

    def _held(self, point: Sequence[int]) -> bool:
        """Whether some member contains a point."""
        at, rows = np.array(point, np.int64), self.index.rows
        in_box = any(
            (rows.low[slot] <= at).all() and (at <= rows.high[slot]).all() for slot in self.index.meeting(at, at)
        )
        return in_box or any(member.contains_point(point) for member in self._vague.values())

    def _uncovered(self, low: Ints, high: Ints, number: int) -> Uncovered:
        if (low == high).all():
            return Uncovered(low.tolist(), space=self.space)
        low, high, departures, numbering = low.copy(), high.copy(), self._departures, self._numbering

        def complete() -> list[int]:
            if self._departures != departures or self.space.numbering is not numbering:
                raise CallerError("members have changed since this verdict was given: check again for a witness")
            rows = self.index.rows
            slots = [slot for slot in self.index.meeting(low, high) if rows.owner[slot] < number]
            return find_witness(low, high, rows.low[slots], rows.high[slots])

        return Uncovered(complete=complete, space=self.space)

    def members_within(self, region: Region) -> list[Any]:
        terms = region.terms_in(self.space)
        self._align()
        found = set(self._empty)
        for id, member in self._vague.items():
            if self._inside(member.terms_in(self.space), terms):
                found.add(id)
        low, high = hulls(terms, self.space)
        rows = self.index.rows
        if len(terms) == 1 and not terms[0].balls and terms[0].box_count() == 1:  # those whose boxes all lie in it
            owners, boxes = np.unique(rows.owner[self.index.inside(low[0], high[0])], return_counts=True)
            for number, count in zip(owners.tolist(), boxes.tolist(), strict=True):
                id = self._ids[number]
                if id not in self._vague and count == len(self._slots[id]):
                    found.add(id)
        else:
            slots = {slot for box in range(len(low)) for slot in self.index.meeting(low[box], high[box])}
            for id in {self._ids[int(number)] for number in rows.owner[sorted(slots)]} - self._vague.keys():
                own = list(self._slots[id])
                if self._inside(boxes_to_terms(rows.low[own], rows.high[own], self.space), terms):
                    found.add(id)
        return [id for id in self._slots if id in found] if len(found) > 1 else list(found)

    def members_meeting(self, region: Region) -> list[Any]:
        low, high = hulls(region.terms_in(self.space), self.space)
        self._align()
        rows = self.index.rows
        owners: set[int] = set()
        for box in range(len(low)):
            slots = np.array(self.index.meeting(low[box], high[box]), np.int64)
            meets = (rows.low[slots] <= high[box]).all(axis=1) & (rows.high[slots] >= low[box]).all(axis=1)
            owners.update(rows.owner[slots[meets]].tolist())
        near = {self._ids[number] for number in owners} | self._vague.keys()
        return [id for id in self._slots if id in near] if len(near) > 1 else list(near)

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
