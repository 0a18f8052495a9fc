"""What engines that cover by a union have in common: members as boxes in an index, and questions as boxes.

A region becomes boxes: exactly where it can, else (balls, sets too large to expand) as boxes that surely lie inside
a member, and boxes that surely hold a question. An engine decides about boxes; what boxes leave open is tried here:

    a question too large to expand    the boxes around its terms; a single member; its corners as witnesses
    a member or a question with balls    each term inside one term of one member; what large sets hold of the question,
                                         expanded after all; a witness of the boxes, if it is one of the balls too

Whoever derives from this answers `_search`, and says what it found by `_used` and `_piece`; or answers `_search_box`,
one box after the other, and adds to `_names`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np

from thatch.cover.engine import CoverEngine
from thatch.cover.index import BoxIndex
from thatch.cover.vague import VagueMembers
from thatch.cover.verdict import Covered, Uncovered, Unproven, Verdict, inner_boxes, outer, terms_covered
from thatch.errors import CallerError, TooManyBoxes
from thatch.region.box_sets import Boxes
from thatch.region.region import Region
from thatch.region.term import Term, boxes_to_terms, hulls, products
from thatch.space.arrays import Ints
from thatch.space.space import Space

BOXES_MAX = 1_024  # of one region; beyond, it is a large set
PARTS_MAX = 16 * BOXES_MAX  # of the parts that members with balls or large sets hold of one question
UNCOVERED, COVERED, UNDECIDED = 0, 1, 2


class BoxedEngine(CoverEngine):
    covers_by = "union"

    def __init__(self, space: Space) -> None:
        super().__init__(space)
        self.index = BoxIndex(space.low[0], space.high[0])
        self._slots: dict[Any, tuple[int, ...]] = {}
        self._ids: dict[int, Any] = {}
        self._number = 0  # of the next member: numbers rise and are never used again
        self._departures = 0
        self.takes_parts = True
        self._empty: dict[Any, None] = {}  # members that hold nothing
        self._vague = VagueMembers(space)
        self._odd: dict[Any, int] = {}  # the numbers of both
        self._names: set[int] = set()  # the numbers of members that the last search used
        self._label_codes = space.label_codes
        self._regions: dict[Any, Region] = {}  # kept only if there are labels, which may move

    # --- What an engine answers --------------------------------------------------------------------------------------

    def _search(self, low: Ints, high: Ints) -> int:
        """Do the members' boxes cover all boxes low[n, d], high[n, d]? COVERED, UNCOVERED or UNDECIDED."""
        self._names = set()
        code = COVERED
        for box in range(len(low)):
            each = self._search_box(low[box], high[box])
            if each == UNCOVERED:
                return UNCOVERED
            code = max(code, each)
        return code

    def _search_box(self, low: Ints, high: Ints) -> int:
        """The same of one box low[d], high[d]."""
        raise NotImplementedError

    def _used(self) -> Iterable[int]:
        """After COVERED: the numbers of members that prove it."""
        return self._names

    def _piece(self) -> Boxes:
        """After UNCOVERED: a box low[d], high[d] that holds a witness."""
        raise NotImplementedError

    def _undecided(self) -> Unproven:
        """The verdict after UNDECIDED, with the reason."""
        raise NotImplementedError

    def _uncovered(self, low: Ints, high: Ints) -> Uncovered:
        """The verdict that a piece stands for. Here: each of its points is a witness."""
        return Uncovered(low.tolist(), space=self.space)

    def _alike(self) -> Self:
        """An empty engine with the same options."""
        raise NotImplementedError

    # --- Members -----------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Begin again without members."""
        self.index = BoxIndex(self.space.low[0], self.space.high[0])
        self._slots, self._ids, self._empty, self._odd, self._regions = {}, {}, {}, {}, {}
        self._vague = VagueMembers(self.space)

    def _insert(self, low: Ints, high: Ints, owner: Ints) -> list[int]:
        """Put members' boxes into the index."""
        return self.index.insert_all(low, high, owner)

    def _remove(self, slots: Sequence[int]) -> None:
        """Take the boxes of one member out of the index."""
        for slot in slots:
            self.index.remove(slot)

    def _align(self) -> None:
        """Rebuild if an axis was recoded: labels in the index would mean nothing."""
        if self.space.is_current(self._label_codes):
            return
        self._label_codes = self.space.label_codes
        regions = self._regions
        self._start()
        self._departures += 1
        for id, region in regions.items():
            self.add(id, region)

    def _remember(self, ids: Iterable[Any], regions: Iterable[Region]) -> None:
        if self._label_codes:
            self._regions.update(zip(ids, regions, strict=True))

    def add(self, id: Any, region: Region) -> None:
        if id in self._slots:
            raise CallerError(f"{id!r} is a member already")
        terms = region.terms_in(self.space)
        self._align()
        low, high, whole = surely_inside(terms, self.space)
        if not whole:
            self._vague.add(id, self._number, region)
        if not terms:
            self._empty[id] = None
        if not whole or not terms:
            self._odd[id] = self._number
        self._remember([id], [region])
        self._slots[id] = tuple(self._insert(low, high, np.full(len(low), self._number, np.int64)))
        self._ids[self._number] = id
        self._number += 1

    def load(self, ids: Sequence[Any], regions: Sequence[Region]) -> None:
        """In one call of the kernel for as many as are single plain boxes, one after the other."""
        self.check_new(ids)
        for region in regions:
            region.require(self.space)  # before anything changes
        run: list[tuple[Any, Region]] = []
        for id, region in zip(ids, regions, strict=True):
            terms = region.terms_in(self.space)
            if terms and plain_box(terms, self.space) is not None:
                run.append((id, region))
                continue
            self._load_plain(run)
            run = []
            self.add(id, region)
        self._load_plain(run)

    def _load_plain(self, members: Sequence[tuple[Any, Region]]) -> None:
        if not members:
            return
        self._align()
        boxes = [plain_box(region.terms_in(self.space), self.space) for _, region in members]
        low, high = (np.concatenate([box[side] for box in boxes if box is not None]) for side in range(2))
        numbers = range(self._number, self._number + len(members))
        self.index.reserve(len(members), low, high)
        slots = self._insert(low, high, np.array(numbers, np.int64))
        self._ids.update(zip(numbers, (id for id, _ in members), strict=True))
        self._slots.update((id, (slot,)) for (id, _), slot in zip(members, slots, strict=True))
        self._remember([id for id, _ in members], [region for _, region in members])
        self._number += len(members)

    def discard(self, id: Any) -> None:
        slots = self._slots.pop(id, None)
        if slots is None:
            return
        self._departures += 1
        self._empty.pop(id, None)
        self._vague.discard(id)
        self._regions.pop(id, None)
        self._ids.pop(self._odd.pop(id, -1), None)
        for slot in slots:
            self._ids.pop(int(self.index.rows.owner[slot]), None)
        self._remove(slots)

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, id: object) -> bool:
        return id in self._slots

    def __iter__(self) -> Iterator[Any]:
        return iter(self._slots)

    def members_within(self, region: Region) -> list[Any]:
        terms = region.terms_in(self.space)
        self._align()
        found = set(self._empty)
        for id, member in self._vague.near(terms).items():
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
            for id in {self._ids[int(number)] for number in rows.owner[sorted(slots)]}:
                if id in self._vague:
                    continue
                own = list(self._slots[id])
                if self._inside(boxes_to_terms(rows.low[own], rows.high[own], self.space), terms):
                    found.add(id)
        return [id for id in self._slots if id in found] if len(found) > 1 else list(found)

    def members_meeting(self, region: Region) -> list[Any]:
        terms = region.terms_in(self.space)
        low, high = hulls(terms, self.space)
        self._align()
        rows = self.index.rows
        owners: set[int] = set()
        for box in range(len(low)):
            owners.update(rows.owner[self.index.touching(low[box], high[box])].tolist())
        near = {self._ids[number] for number in owners} | self._vague.near(terms).keys()
        return [id for id in self._slots if id in near] if len(near) > 1 else list(near)

    def _inside(self, inner: Sequence[Term], terms: Sequence[Term]) -> bool:
        try:
            return terms_covered(inner, terms, self.space)
        except TooManyBoxes:
            return False

    # --- Questions ---------------------------------------------------------------------------------------------------

    def check(self, region: Region) -> Verdict:
        terms = region.terms if region.space is self.space else region.terms_in(self.space)
        if not terms:
            return Covered(())
        self._align()
        try:
            low, high = plain_box(terms, self.space) or surely_around(terms, self.space)
        except TooManyBoxes as error:
            for attempt in (self._by_hulls, self._by_one, self._by_a_point):
                verdict = attempt(terms)
                if verdict is not None:
                    return verdict
            return Unproven(str(error))
        code = self._search(low, high)
        if code == COVERED:
            return self._covered(self._used())
        if self._vague.near(terms) or any(term.balls for term in terms):
            return self._check_vague(terms, code)
        return self._uncovered(*self._piece()) if code == UNCOVERED else self._undecided()

    def _check_vague(self, terms: Sequence[Term], code: int) -> Verdict:
        """After a search that was not COVERED, where the question or members near it are more than boxes."""
        otherwise: Verdict = self._undecided()  # before attempts that search again
        if code == UNCOVERED:  # most often a point of the piece that is left is in no such member either
            witness = self._witness_in(terms, *(side.copy() for side in self._piece()))
            if witness is not None:
                return witness
            otherwise = Unproven("balls and large sets are only bounded by boxes here, and the bounds decide nothing")
        for attempt in (self._by_one, self._by_parts):
            verdict = attempt(terms)
            if verdict is not None:
                return verdict
        return otherwise

    def _covered(self, numbers: Iterable[int]) -> Covered:
        """By members with these numbers, named in the order in which they were added."""
        return Covered(tuple(self._ids[number] for number in sorted(set(numbers))))

    def _by_hulls(self, terms: Sequence[Term]) -> Verdict | None:
        """Sets too large to expand, as the boxes around them."""
        return self._covered(self._used()) if self._search(*hulls(terms, self.space)) == COVERED else None

    def _by_a_point(self, terms: Sequence[Term]) -> Verdict | None:
        """The least and the greatest corner of each term: if one is in no member, it is a witness."""
        for term in terms:
            low, high = hulls([term], self.space)
            for point in (low[0].tolist(), high[0].tolist()):
                if term.contains(point, self.space) and not self._held(point):
                    return Uncovered(point, space=self.space)
        return None

    def _by_parts(self, terms: Sequence[Term]) -> Verdict | None:
        """What members with large sets hold of the question is often small."""
        near = self._vague.near(terms) if self.takes_parts else {}
        parts = {id: products(terms, member.terms_in(self.space)) for id, member in near.items()}
        counts = [sum(part.box_count() for part in each) for each in parts.values()]
        if not parts or max(counts) > BOXES_MAX or sum(counts) > PARTS_MAX:
            return None
        return self._with_parts(terms, parts)

    def _with_parts(self, terms: Sequence[Term], parts: Mapping[Any, Sequence[Term]]) -> Verdict | None:
        """The question again, with these parts of members as members: asked of an engine that has nothing else than
        them, and what meets the question."""
        small = self._alike()
        small.takes_parts = False
        rows = self.index.rows
        low, high = hulls(terms, self.space)
        slots = {slot for box in range(len(low)) for slot in self.index.meeting(low[box], high[box])}
        for id in dict.fromkeys(self._ids[int(number)] for number in rows.owner[sorted(slots)]):
            if id not in self._vague:
                own = list(self._slots[id])
                small.add(id, Region(self.space, boxes_to_terms(rows.low[own], rows.high[own], self.space)))
        for id, part in parts.items():
            small.add(id, Region(self.space, part))
        verdict = small.check(Region(self.space, terms))
        if isinstance(verdict, Uncovered):
            verdict = Uncovered(verdict.witness, space=self.space)
        return None if isinstance(verdict, Unproven) else verdict

    def _by_one(self, terms: Sequence[Term]) -> Verdict | None:
        """Each term inside one term of one member with balls or large sets."""
        numbers: list[int] = []
        near = self._vague.near(terms)
        for term in terms:
            for id, member in near.items():
                if any(term.is_inside(other) for other in member.terms_in(self.space)):
                    numbers.append(self._odd[id])
                    break
            else:
                try:
                    low, high = outer(term, self.space)
                except TooManyBoxes:
                    return None
                if self._search(low, high) != COVERED:
                    return None
                numbers += self._used()
        return self._covered(numbers)

    def _witness_in(self, terms: Sequence[Term], low: Ints, high: Ints) -> Uncovered | None:
        """Boxes leave this piece, but they only bound balls and large sets: a point of it that is a witness all the
        same."""
        for point in (low.tolist(), high.tolist(), self._uncovered(low, high).witness):
            in_region = any(term.contains(point, self.space) for term in terms)
            if in_region and not self._held(point):
                return Uncovered(point, space=self.space)
        return None

    def _held(self, point: Sequence[int]) -> bool:
        """Whether some member contains a point."""
        in_box = self.index.holds(np.array(point, np.int64))
        return in_box or self._vague.holds(point)

    def check_invariants(self) -> None:
        self.index.check_invariants()
        slots = [slot for each in self._slots.values() for slot in each]
        assert sorted(slots) == self.index.taken()
        assert not self._label_codes or self._regions.keys() == self._slots.keys()
        for id, each in self._slots.items():
            assert all(self._ids[int(self.index.rows.owner[slot])] == id for slot in each)
        assert {*self._vague} | self._empty.keys() == self._odd.keys() <= self._slots.keys()
        self._vague.check_invariants()
        assert set(self._ids.values()) == self._slots.keys() and len(self._ids) == len(self._slots)


def plain_box(terms: Sequence[Term], space: Space) -> Boxes | None:
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


def surely_around(terms: Sequence[Term], space: Space) -> Boxes:
    """Boxes whose union contains a union of terms."""
    needed = sum(term.box_count() for term in terms)
    if needed > BOXES_MAX:
        raise TooManyBoxes(needed, BOXES_MAX)
    each = [outer(term, space) for term in terms]
    return np.concatenate([low for low, _ in each]), np.concatenate([high for _, high in each])


def surely_inside(terms: Sequence[Term], space: Space) -> tuple[Ints, Ints, bool]:
    """The boxes that a union of terms surely contains, and whether they are all of it."""
    plain = plain_box(terms, space) if terms else None
    if plain is not None:
        return (*plain, True)
    small = [term for term in terms if term.box_count() <= BOXES_MAX]
    inner = [box for term in small for box in inner_boxes(term, None, space)]
    whole = len(small) == len(terms) and not any(term.balls for term in terms)
    return (*hulls(inner, space), whole)
