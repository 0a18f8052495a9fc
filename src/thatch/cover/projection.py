r"""Covering of balls by one ball.

The idea: (c, r) covers (c', r') exactly if |c - c'| <= r - r'. Then their shadows [<u, c> - r, <u, c> + r] on any unit
vector u cover one another too, so k random vectors throw out most pairs before d attributes are looked at.

       c,r  ___            shadows on u:   [-------------]     covers: go on, measure the distance
          /     \                             [----]
         |  (o)  |
          \ ___ /                          [-------------]     does not: out, whatever the other vectors say
      ------------- u                                [----]

Paper: projection. What differs (ERRATA): the paper takes one candidate and forwards if it fails; here every candidate
is tried, so that nothing that is covered is forwarded. A newcomer is not in the index while it is looked up. (s', r')
covers (s, r) if |s - s'| <= r' - r, not r - r'. The paper's (2/pi)^k bounds nothing beyond two dimensions: of the
covers that shadows report 64 to 100 % are false, so they are a filter before an exact test, and `candidates` shows what
passes it. In the place of a range tree over 2k projections: balls.py. Members that are no single ball go to a
`pairwise` engine.

Errs: unproven only; every hit is verified (`Ball.holds`, `contains`). Cost: that of balls.py for each tuple of
attributes that balls are over, plus that of `pairwise` for the others. Finding the balls within a region that is no
ball, or within a ball whose inscribed cube reaches the end of an axis, is a scan.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np

from thatch.cover.balls import BallIndex, is_indexed
from thatch.cover.balltree import WIDER
from thatch.cover.engine import CoverEngine
from thatch.cover.pairwise import PairwiseEngine, contains
from thatch.cover.verdict import Covered, Verdict
from thatch.errors import CallerError
from thatch.region.ball import Ball
from thatch.region.box_sets import Boxes, as_regions
from thatch.region.intervals import Intervals
from thatch.region.region import Region
from thatch.region.term import Term
from thatch.space.arrays import Bools, Floats, Ints
from thatch.space.attribute import Attribute
from thatch.space.space import Space

By = Literal["projections", "cubes"]


def bounding_cubes_cover(centres: Floats, radii: Floats, centre: Floats, radius: float) -> Bools:
    """Proposition 2.2, necessary: the cube around a ball, sides 2r, covers those around all that the ball covers.
    Rounded outward."""
    reach = (radii - radius) * WIDER
    return np.all(np.abs(centres - centre) <= reach[:, None], axis=1)


def inscribed_cubes_cover(centres: Floats, radii: Floats, centre: Floats, radius: float) -> Bools:
    """Proposition 2.2, sufficient: a ball whose inscribed cube, sides 2r/sqrt(d), has the other's in it covers it. (The
    paper's figure has 2r/sqrt(2), which is right for d = 2.) Rounded inward."""
    reach = (radii - radius) / math.sqrt(centres.shape[1]) / WIDER
    return np.all(np.abs(centres - centre) <= reach[:, None], axis=1)


class ProjectionEngine(CoverEngine):
    """Balls over the same attributes share an index.

    >>> space = Space.parse("x double not null, y double not null")
    >>> engine = ProjectionEngine(space)
    >>> engine.add("wide", space.where("within(5, x, 0, y, 0)"))
    >>> engine.check(space.where("within(2.5, x, 0, y, 2)"))
    Covered(certificate=('wide',))
    >>> bool(engine.check(space.where("within(2.5, x, 2, y, 2)")))
    False
    >>> engine.candidates(space.where("within(2.5, x, 2, y, 2)"), by="cubes")
    ['wide']
    """

    name = "projection"
    covers_by = "one"
    may_err = "unproven"

    def __init__(
        self, space: Space, vectors: int = 2, orthonormal: bool = True, seed: int = 0, form: str = "auto"
    ) -> None:
        """So many random vectors, made orthonormal or not; `form` is one of balls.py."""
        super().__init__(space)
        self._options: dict[str, Any] = {"vectors": vectors, "orthonormal": orthonormal, "seed": seed, "form": form}
        BallIndex((0,), **self._options)  # refuses options now, and not with the first ball
        self._members: dict[Any, Region] = {}
        self._numbers: dict[Any, int] = {}  # in the order in which they were added
        self._number = 0
        self._others = PairwiseEngine(space)
        self._indexes: dict[tuple[int, ...], BallIndex] = {}
        self._ids: dict[tuple[int, ...], dict[int, Any]] = {}  # by slot
        self._slots: dict[Any, tuple[tuple[int, ...], int]] = {}  # of the members that are balls
        self._ends = [_ends(attribute) for attribute in space.attributes]

    def add(self, id: Any, region: Region) -> None:
        if id in self._members:
            raise CallerError(f"{id!r} is a member already")
        ball = self._one_ball(region.terms_in(self.space))
        if ball is None or not is_indexed(ball):
            self._others.add(id, region)
        else:
            index = self._index(ball.attributes)
            self._place(id, index, index.insert(ball))
        self._number_member(id, region)

    def load(self, ids: Sequence[Any], regions: Sequence[Region]) -> None:
        self.check_new(ids)
        found = [self._one_ball(region.terms_in(self.space)) for region in regions]
        balls: dict[tuple[int, ...], list[tuple[Any, Ball]]] = {}
        for id, region, ball in zip(ids, regions, found, strict=True):
            if ball is None or not is_indexed(ball):
                self._others.add(id, region)
            else:
                balls.setdefault(ball.attributes, []).append((id, ball))
            self._number_member(id, region)
        for attributes, members in balls.items():
            index = self._index(attributes)
            centres, radii = ([getattr(ball, each) for _, ball in members] for each in ("centre", "radius"))
            for (id, _), slot in zip(members, index.insert_all(np.array(centres), np.array(radii)), strict=True):
                self._place(id, index, slot)

    def add_many(self, ids: Sequence[Any], regions: Sequence[Region] | Boxes) -> list[Verdict]:
        """Balls that members from before hold are found in one call of a kernel; they stay covered whatever comes."""
        checked = as_regions(ids, regions, self.space)
        self.check_new(ids)
        asked: dict[tuple[int, ...], list[tuple[int, Ball]]] = {}
        for position, region in enumerate(checked):
            ball = self._one_ball(region.terms_in(self.space))
            if ball is not None and is_indexed(ball) and ball.attributes in self._indexes:
                asked.setdefault(ball.attributes, []).append((position, ball))
        known: dict[int, Covered] = {}
        for attributes, balls in asked.items():
            rows = np.array([(*ball.centre, ball.radius) for _, ball in balls])
            slots = self._indexes[attributes].coverers(rows[:, :-1], rows[:, -1]).tolist()
            names = self._ids[attributes]
            known |= {at: Covered((names[slot],)) for (at, _), slot in zip(balls, slots, strict=True) if slot >= 0}
        left = [position for position in range(len(checked)) if position not in known]
        decided = super().add_many([ids[position] for position in left], [checked[position] for position in left])
        verdicts: dict[int, Verdict] = {**known, **dict(zip(left, decided, strict=True))}
        return [verdicts[position] for position in range(len(checked))]

    def _index(self, attributes: tuple[int, ...]) -> BallIndex:
        if attributes not in self._indexes:
            self._indexes[attributes] = BallIndex(attributes, **self._options)
            self._ids[attributes] = {}
        return self._indexes[attributes]

    def _place(self, id: Any, index: BallIndex, slot: int) -> None:
        self._ids[index.attributes][slot] = id
        self._slots[id] = index.attributes, slot

    def _number_member(self, id: Any, region: Region) -> None:
        self._members[id] = region
        self._numbers[id] = self._number
        self._number += 1

    def discard(self, id: Any) -> None:
        if self._members.pop(id, None) is None:
            return
        del self._numbers[id]
        if id not in self._slots:
            self._others.discard(id)
            return
        attributes, slot = self._slots.pop(id)
        self._indexes[attributes].remove(slot)
        del self._ids[attributes][slot]
        if not len(self._indexes[attributes]):
            del self._indexes[attributes], self._ids[attributes]

    def check(self, region: Region) -> Verdict:
        terms = region.terms_in(self.space)
        if not terms:
            return Covered(())
        if self._indexes:
            ball = self._one_ball(terms)
            found = self._around_any(terms) if ball is None else self._around_ball(ball, terms)
            if found is not None:
                return found
        return self._others.check(region)

    def members_within(self, region: Region) -> list[Any]:
        terms = region.terms_in(self.space)
        found = self._others.members_within(region)
        if terms:
            ball = self._one_ball(terms)
            if ball is not None and (not is_indexed(ball) or self._reaches_an_end(ball)):
                ball = None  # its inscribed cube may contain what the domain leaves of balls that it does not hold
            for attributes, index in self._indexes.items():
                ids = self._ids[attributes]
                if ball is not None and ball.attributes == attributes:
                    found += [ids[slot] for slot in index.covered(ball)]
                    continue
                near = [ids[slot] for slot in self._inside_hull(index, terms).tolist()]
                found += [id for id in near if contains(terms, self._members[id].terms_in(self.space), self.space)]
        return sorted(found, key=self._numbers.__getitem__)

    def candidates(self, region: Region, by: By = "projections") -> list[Any]:
        """The ids of the balls that may cover a ball, by their projections alone or by their bounding cubes alone, in
        the order in which they were added."""
        ball = self._one_ball(region.terms_in(self.space))
        if ball is None:
            raise CallerError(f"candidates are of one ball, not of {region.to_sql()}")
        found = []
        for index in self._around(ball.attributes):
            if by == "projections":
                slots = index.projected(ball)
            elif by == "cubes":
                slots = index.slots
                asked = np.array([ball.centre[ball.attributes.index(each)] for each in index.attributes])
                rows = index.rows[slots]
                slots = slots[bounding_cubes_cover(rows[:, :-1], rows[:, -1], asked, ball.radius)]
            else:
                raise CallerError(f"candidates are by 'projections' or by 'cubes', not by {by!r}")
            found += [self._ids[index.attributes][slot] for slot in slots.tolist()]
        return sorted(found, key=self._numbers.__getitem__)

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, id: object) -> bool:
        return id in self._members

    def __iter__(self) -> Iterator[Any]:
        return iter(self._members)

    def check_invariants(self) -> None:
        self._others.check_invariants()
        numbers = list(self._numbers.values())
        assert list(self._numbers) == list(self._members) and numbers == sorted(set(numbers))
        assert set(self._others) | self._slots.keys() == self._members.keys()
        assert len(self._others) + len(self._slots) == len(self._members)
        assert self._indexes.keys() == self._ids.keys()
        for attributes, index in self._indexes.items():
            index.check_invariants()
            assert len(index) == len(self._ids[attributes]) > 0
        for id, (attributes, slot) in self._slots.items():
            assert self._ids[attributes][slot] == id
            assert self._indexes[attributes].ball(slot) == self._one_ball(self._members[id].terms_in(self.space))

    def _one_ball(self, terms: Sequence[Term]) -> Ball | None:
        """The ball that a union of terms is, if it is one. Sides that only keep NULL out are the ball's own."""
        if len(terms) != 1 or len(terms[0].balls) != 1:
            return None
        ball = terms[0].balls[0]
        for index, side in terms[0].sides:
            attribute = self.space.attributes[index]
            if index not in ball.attributes or side != Intervals.between(attribute.first, attribute.last):
                return None
        return ball

    def _around(self, attributes: tuple[int, ...]) -> list[BallIndex]:
        """The indexes whose balls look at some of these attributes and at no others."""
        if len(self._indexes) == 1 and attributes in self._indexes:
            return [self._indexes[attributes]]
        return [index for index in self._indexes.values() if set(index.attributes) <= set(attributes)]

    def _around_ball(self, ball: Ball, terms: Sequence[Term]) -> Verdict | None:
        """Who holds a ball, or at least what the domain leaves of it: it clips balls, and may end inside a ball that
        looks at other attributes."""
        near = self._around(ball.attributes)
        for index in near if is_indexed(ball) else ():
            slot = index.coverer(ball)
            if slot is not None:
                return Covered((self._ids[index.attributes][slot],))
        return self._around_any(terms) if len(near) < len(self._indexes) or self._is_clipped(ball) else None

    def _around_any(self, terms: Sequence[Term]) -> Verdict | None:
        """A ball that contains a union of terms: it holds a ball of the first term, or has the box around that in its
        inscribed cube. If no term holds anything, nobody is needed."""
        held = [(term, hull) for term in terms if (hull := self._hull(term)) is not None]
        if not held:
            return Covered(())
        term, hull = held[0]
        for attributes, index in self._indexes.items():
            candidates = [self._with_hull_in_cube(index, hull)]
            for ball in term.balls:
                if is_indexed(ball) and set(attributes) <= set(ball.attributes):
                    at = dict(zip(ball.attributes, ball.centre, strict=True))
                    candidates.append(index.around(tuple(at[each] for each in attributes), ball.radius))
            for slot in np.concatenate(candidates).tolist():
                id = self._ids[attributes][slot]
                if contains(self._members[id].terms_in(self.space), terms, self.space):
                    return Covered((id,))
        return None

    def _hull(self, term: Term) -> dict[int, Intervals] | None:
        """What a term and its balls leave of each attribute that they bound; None if that is nothing."""
        sides = dict(term.sides)
        for ball in term.balls:
            for index, bounds in ball.bounds(self.space).items():
                sides[index] = sides[index] & bounds if index in sides else bounds
                if not sides[index].ends:
                    return None
        return sides

    def _with_hull_in_cube(self, index: BallIndex, hull: dict[int, Intervals]) -> Ints:
        """The slots of the balls in whose inscribed cubes a hull may lie.

        Half the side of that cube is r/sqrt(k). With m the middle of the hull and e the halves of its sides, |m - c| <=
        r/sqrt(k) - e in each attribute, so |m - c| <= r - sqrt(k) min(e) in all: a question for the tree. Rounding
        moves m and e by less than 2^-50 of the ends.
        """
        none = np.empty(0, np.int64)
        middles, halves = [], []
        for at in index.attributes:
            attribute, side = self.space.attributes[at], hull.get(at)
            if (attribute.low if side is None else side.low) < attribute.first:
                return none  # NULL is in it, and in no ball
            ends = (attribute.first, attribute.last) if side is None else (side.low, side.high)
            low, high = (attribute.axis.double(end) for end in ends)
            if not (math.isfinite(low) and math.isfinite(high)):
                return none
            middles.append(low / 2 + high / 2)
            halves.append((high / 2 - low / 2) - (abs(low) + abs(high)) * 2.0**-50)
        root = math.sqrt(len(middles))
        slots = index.around(tuple(middles), root * min(halves) - abs(root * min(halves)) * 2.0**-40)
        rows = index.rows[slots]
        reach = (rows[:, -1] * (WIDER / root))[:, None] + 1e-150  # below, squares underflow
        return slots[np.all(np.abs(rows[:, :-1] - middles) + halves <= reach, axis=1)]

    def _is_clipped(self, ball: Ball) -> bool:
        """Whether a ball may reach beyond its attributes' axes, or is too large to tell."""
        for index, middle in zip(ball.attributes, ball.centre, strict=True):
            low, high = self._ends[index]
            reach = (ball.radius + abs(middle) * 2.0**-50) * WIDER
            if not (low < middle - reach and middle + reach < high):
                return True
        return False

    def _reaches_an_end(self, ball: Ball) -> bool:
        """Whether the cube inside a ball reaches the end of an axis: else it contains nothing that the axis clips."""
        core = ball.core(self.space) or {}
        ends = ((self.space.attributes[index], side) for index, side in core.items())
        return any(side.low <= attribute.first or side.high >= attribute.last for attribute, side in ends)

    def _inside_hull(self, index: BallIndex, terms: Sequence[Term]) -> Ints:
        """The slots of the balls that, clipped by the domain, lie in the box around a union of terms. A scan."""
        hulls = [hull for term in terms if (hull := self._hull(term)) is not None]
        slots = index.slots
        if not hulls:
            return slots[:0]
        for at, attribute in enumerate(self.space.attributes):
            sides = [hull[at] for hull in hulls if at in hull]
            if len(sides) < len(hulls):
                continue  # one of them has no end here
            low, high = min(side.low for side in sides), max(side.high for side in sides)
            if at not in index.attributes:
                if (low, high) != (attribute.low, attribute.last):
                    return slots[:0]
                continue
            column, radii = index.rows[slots, index.attributes.index(at)], index.rows[slots, -1]
            slack = (np.abs(column) + radii) * 2.0**-40
            kept = np.ones(len(slots), np.bool_)
            if low > attribute.first:
                kept &= column - radii >= attribute.axis.double(low) - slack
            if high < attribute.last:
                kept &= column + radii <= attribute.axis.double(high) + slack
            slots = slots[kept]
        return slots


def _ends(attribute: Attribute) -> tuple[float, float]:
    """Of an axis, as doubles; those of a double without a domain are infinite (its last value is NaN)."""
    if not attribute.axis.is_number:
        return -math.inf, math.inf
    low, high = attribute.axis.double(attribute.first), attribute.axis.double(attribute.last)
    return low, math.inf if high != high else high
