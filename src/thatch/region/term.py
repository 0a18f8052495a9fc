"""Terms: products of interval sets, one for each constrained attribute, and balls. The normal form of their unions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, product
from operator import attrgetter
from typing import Any

import numpy as np

from thatch.region.ball import Ball
from thatch.region.intervals import Intervals
from thatch.space.axis import Coordinates
from thatch.space.space import Space

KERNEL_PAIRS_MIN = 64  # below this many pairs of boxes Python objects beat the call into a kernel


class Term:
    """A product of one set of intervals per attribute (those that it constrains), and balls."""

    __slots__ = ("balls", "sides")

    def __init__(self, sides: tuple[tuple[int, Intervals], ...] = (), balls: tuple[Ball, ...] = ()) -> None:
        self.sides = sides  # by attribute index, ascending; never the whole axis
        self.balls = balls  # sorted, each once; sides exclude NULL wherever a ball looks

    @classmethod
    def of(cls, sides: Mapping[int, Intervals], balls: tuple[Ball, ...] = ()) -> Term:
        """A term of sides in any order."""
        return cls(tuple((index, sides[index]) for index in sorted(sides)), balls)

    @property
    def order(self) -> Any:
        """A key to sort terms by."""
        return [(index, intervals.ends) for index, intervals in self.sides], self.balls

    def side(self, index: int) -> Intervals | None:
        for each, intervals in self.sides:
            if each == index:
                return intervals
        return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Term) and self.sides == other.sides and self.balls == other.balls

    def __hash__(self) -> int:
        return hash((self.sides, self.balls))

    def __repr__(self) -> str:
        return f"Term({self.sides!r}, {self.balls!r})"

    def __and__(self, other: Term) -> Term | None:
        """The intersection; None if a side is empty."""
        if not self.sides:
            sides = other.sides
        elif not other.sides:
            sides = self.sides
        else:
            merged = dict(self.sides)
            for index, intervals in other.sides:
                mine = merged.get(index)
                if mine is not None:
                    intervals = mine & intervals
                    if not intervals.ends:
                        return None
                merged[index] = intervals
            sides = tuple((index, merged[index]) for index in sorted(merged))
        balls = self.balls or other.balls
        if self.balls and other.balls:
            balls = tuple(sorted({*self.balls, *other.balls}))
        return Term(sides, balls)

    def contains(self, point: Sequence[int], space: Space) -> bool:
        for index, intervals in self.sides:
            if point[index] not in intervals:
                return False
        return not self.balls or all(ball.contains(point, space) for ball in self.balls)

    def is_inside(self, other: Term) -> bool:
        """Whether every side and ball of the other one also bounds this one."""
        mine = dict(self.sides)
        for index, intervals in other.sides:
            inner = mine.get(index)
            if inner is None or not inner <= intervals:
                return False
        return all(any(ball.holds(mine) for mine in self.balls) for ball in other.balls)

    def box_count(self) -> int:
        count = 1
        for _, intervals in self.sides:
            if len(intervals.ends) > 2:
                count *= len(intervals.ends) >> 1
        return count

    def boxes(self) -> list[Term]:
        """The sides expanded: one term for each choice of an interval per attribute. Balls are left out."""
        if self.box_count() == 1:
            return [self]
        indices = [index for index, _ in self.sides]
        return [
            Term(tuple((index, Intervals.between(*pair)) for index, pair in zip(indices, pairs, strict=True)))
            for pairs in product(*(intervals for _, intervals in self.sides))
        ]


term_order = attrgetter("order")


def simplified(terms: Iterable[Term], space: Space) -> list[Term]:
    """The normal form of a union of terms."""
    kept = list(terms)
    if len(kept) > 1:
        kept = _absorbed(_merged(kept, space), space)
        kept.sort(key=term_order)
    return kept


def _merged(terms: list[Term], space: Space) -> list[Term]:
    """Unite terms that differ in one attribute only, until none do. O(terms * attributes) a round."""
    if len(terms) <= 4 and not any(_nearly_equal(a, b) for a, b in combinations(terms, 2)):
        return terms  # the usual case, without hashing
    terms = sorted(set(terms), key=term_order)
    changed = True
    while changed:
        changed = False
        for index in sorted({index for term in terms for index, _ in term.sides}):
            groups: dict[Any, list[Term]] = {}
            for term in terms:
                rest = tuple(side for side in term.sides if side[0] != index)
                groups.setdefault((rest, term.balls), []).append(term)
            if len(groups) < len(terms):
                changed = True
                terms = [_united(group, index, space) for group in groups.values()]
    return terms


def _nearly_equal(one: Term, other: Term) -> bool:
    """Whether two terms differ in at most one attribute."""
    if one.balls != other.balls or abs(len(one.sides) - len(other.sides)) > 1:
        return False
    mine = dict(one.sides)
    differing = sum(mine.pop(index, None) != intervals for index, intervals in other.sides)
    return differing + len(mine) <= 1


def _united(group: list[Term], index: int, space: Space) -> Term:
    if len(group) == 1:
        return group[0]
    attribute = space.attributes[index]
    pairs: list[tuple[int, int]] = []
    for term in group:
        side = term.side(index)
        pairs.extend([(attribute.low, attribute.last)] if side is None else side)
    union = Intervals.of(pairs)
    sides = dict(group[0].sides)
    sides[index] = union
    return Term.of(without_whole_sides(sides, space), group[0].balls)


def without_whole_sides(sides: Mapping[int, Intervals], space: Space) -> dict[int, Intervals]:
    """Without the sides that are a whole axis."""
    return {
        index: intervals
        for index, intervals in sides.items()
        if not (
            len(intervals) == 1
            and intervals.low == space.attributes[index].low
            and intervals.high == space.attributes[index].last
        )
    }


def _absorbed(terms: list[Term], space: Space) -> list[Term]:
    """Without the terms that lie inside one other."""
    # One at a time: a term with two balls, one inside the other, and the term without the wider one are each inside
    # the other, and one of them must stay.
    kept = dict.fromkeys(range(len(terms)))
    if len(terms) <= 16:
        for position, term in enumerate(terms):
            if any(other != position and term.is_inside(terms[other]) for other in kept):
                del kept[position]
        return [terms[position] for position in kept]
    from thatch.region.boxes import contains_box

    low, high = hulls(terms, space)
    for position, term in enumerate(terms):
        around = np.flatnonzero(contains_box(low, high, low[position], high[position])).tolist()
        if any(other != position and other in kept and term.is_inside(terms[other]) for other in around):
            del kept[position]
    return [terms[position] for position in kept]


def hulls(terms: Sequence[Term], space: Space) -> tuple[Coordinates, Coordinates]:
    """The bounding boxes of the sides of terms, as flat arrays low[n, d], high[n, d]."""
    low, high = space.low.repeat(len(terms), 0), space.high.repeat(len(terms), 0)
    for row, term in enumerate(terms):
        for index, intervals in term.sides:
            low[row, index], high[row, index] = intervals.low, intervals.high
    return low, high


def products(left: Iterable[Term], right: Sequence[Term]) -> list[Term]:
    return [both for one in left for other in right if (both := one & other) is not None]


def without_empty(terms: Iterable[Term], space: Space) -> list[Term]:
    """A term whose balls surely miss its sides holds nothing."""
    return [term for term in terms if not term.balls or _may_hold(term, space)]


def _may_hold(term: Term, space: Space) -> bool:
    for ball in term.balls:
        for index, bounds in ball.bounds(space).items():
            side = term.side(index)
            if not bounds.ends or (side is not None and side.isdisjoint(bounds)):
                return False
    return True


def terms_meet(one: Term, other: Term, space: Space) -> bool:
    both = one & other
    return both is not None and _may_hold(both, space)


def subtract_term(piece: Term, cut: Term, space: Space) -> list[Term]:
    """A term minus a term without balls: at most one piece per attribute that the cut constrains, disjoint."""
    if (piece & cut) is None:
        return [piece]
    pieces = []
    for index, removed in cut.sides:
        attribute = space.attributes[index]
        side = piece.side(index) or Intervals.between(attribute.low, attribute.last)
        rest = side - removed
        sides = dict(piece.sides)
        if rest.ends:
            pieces.append(Term.of(sides | {index: rest}, piece.balls))
        sides[index] = side & removed
        piece = Term.of(sides, piece.balls)
    return pieces


def boxes_to_terms(low: Coordinates, high: Coordinates, space: Space) -> list[Term]:
    """The inverse of `hulls`, for plain boxes."""
    terms = []
    for box_low, box_high in zip(low.tolist(), high.tolist(), strict=True):
        pairs = enumerate(zip(box_low, box_high, strict=True))
        sides = without_whole_sides({index: Intervals.between(*pair) for index, pair in pairs}, space)
        terms.append(Term(tuple(sides.items())))
    return terms
