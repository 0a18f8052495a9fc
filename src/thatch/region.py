"""Regions: unions of terms. A term is a box with zero or more balls; a box side may be a set of intervals.

A region is immutable and in normal form: no empty term, no term inside another one, no two terms that differ in one
attribute only (their union is one term), terms sorted. Coordinates of strings mean something only under the
numbering they were made with (labels.py); a region that finds a newer one reads its own under the old and rewrites
them, so its typed bounds survive.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thatch.axis import Coordinates, DecimalAxis, DoubleAxis, StringAxis
from thatch.errors import CallerError, TooManyBoxes
from thatch.intervals import EMPTY, Intervals
from thatch.labels import LAST, Labels
from thatch.space import Space

BOXES_CAP = 65_536
KERNEL_PAIRS_MIN = 64  # below this many pairs of boxes Python objects beat the call into a kernel


@dataclass(frozen=True, slots=True, order=True)
class Ball:
    """`within(radius, x, cx, …)`: (x-cx)*(x-cx) + … <= radius*radius, in float64, left to right."""

    attributes: tuple[int, ...]
    centre: tuple[float, ...]
    radius: float

    def contains(self, point: Sequence[int], space: Space) -> bool:
        """Of a point that is NULL in none of the ball's attributes."""
        total = 0.0
        for position, (index, middle) in enumerate(zip(self.attributes, self.centre, strict=True)):
            offset = space.attributes[index].axis.double(point[index]) - middle
            total = total + offset * offset if position else offset * offset
        return total <= self.radius * self.radius

    def bounds(self, space: Space) -> dict[int, Intervals]:
        """Per attribute an interval that surely holds the ball, rounded outward.

        fl(x - c) is within one rounding of x - c, its square and r*r within one more each, so |x - c| exceeds r by
        a factor below 1 + 2^-50. Squares below 2^-1000 may underflow to 0, which lets in anything nearer than
        2^-500; r*r may overflow, which lets in everything but NaN.
        """
        bounds = {}
        for index, middle in zip(self.attributes, self.centre, strict=True):
            attribute = space.attributes[index]
            bounded = self.radius * self.radius < math.inf
            if middle != middle or (bounded and math.isinf(middle)):  # no number is within of NaN, or near infinity
                bounds[index] = EMPTY
                continue
            low, high = -math.inf, math.inf
            if bounded:
                reach = max(self.radius, 2.0**-500) * (1 + 2.0**-50)
                low = math.nextafter(middle - reach, -math.inf)
                high = math.nextafter(middle + reach, math.inf)
            first, last = _outward(attribute.axis, low, high)
            bounds[index] = Intervals.between(max(first, attribute.first), min(last, attribute.last))
        return bounds

    def core(self, space: Space) -> dict[int, Intervals] | None:
        """Per attribute an interval such that their product surely lies inside, rounded inward; None if there is none.

        The inscribed cube has half side r/sqrt(k). Shrunk by k * 2^-48 of it, the k squares and their sum stay below
        r*r whatever the roundings, which are at most k + 3 of one part in 2^53 each; below 2^-500 squares underflow.
        """
        k = len(self.attributes)
        half = self.radius / math.sqrt(k) * (1 - k * 2.0**-48)
        if not 2.0**-500 < half < 2.0**500:
            return None
        core = {}
        for index, middle in zip(self.attributes, self.centre, strict=True):
            attribute = space.attributes[index]
            low = math.nextafter(middle - half, math.inf)
            high = math.nextafter(middle + half, -math.inf)
            if not low <= middle <= high or math.isinf(middle):  # so far out that the cube falls between two doubles
                return None
            first, last = _inward(attribute.axis, low, high)
            core[index] = Intervals.between(max(first, attribute.first), min(last, attribute.last))
            if not core[index].ends:
                return None
        return core

    def holds(self, other: Ball) -> bool:
        """Whether every point of the other ball, which may look at more attributes, is surely in this one. Inside the
        rounding margin the answer is no."""
        if self.attributes == other.attributes:
            return other.is_within(self.centre, self.radius)
        at = dict(zip(other.attributes, other.centre, strict=True))
        if not at.keys() >= set(self.attributes):
            return False
        centre = tuple(at[index] for index in self.attributes)
        in_order = self.attributes == tuple(index for index in other.attributes if index in self.attributes)
        if centre == self.centre and in_order:  # the same sum without some squares, which rounds no higher
            return other.radius <= self.radius
        return _is_within(centre, other.radius, self.centre, self.radius, len(other.attributes))

    def is_within(self, centre: tuple[float, ...], radius: float) -> bool:
        """Whether a ball over the same attributes surely holds this one: about one centre radii decide."""
        if centre == self.centre:
            return self.radius <= radius
        return _is_within(self.centre, self.radius, centre, radius, len(centre))


def _is_within(
    centre: tuple[float, ...], radius: float, outer_centre: tuple[float, ...], outer_radius: float, attributes: int
) -> bool:
    """Whether a ball over k attributes, its centre given in those of the outer one, surely lies in that.

    Let u = 2^-53 and R' = max(r', 2^-500), so that squares that underflow, below 2^-1074 each, are lost in u. A point
    of the ball is at most R' (1 + (k + 4) u) from its centre: one rounding for each difference, square and sum, and one
    for r'*r'. So it is at most that plus D from the outer centre, D being the distance of the centres, and passes the
    outer test if that is at most r (1 - (k + 4) u). The margin, 8 (k + 8) u on either side, leaves room for the
    roundings of the comparison itself and for `dist`, which errs by 1 ulp of what the rounded differences give. With
    r <= 2^500 nothing overflows; what is not finite compares false.
    """
    if not radius < outer_radius <= 2.0**500:
        return False
    margin = (attributes + 8) * 2.0**-50
    distance = math.dist(centre, outer_centre)
    return (max(radius, 2.0**-500) + distance) * (1 + margin) <= outer_radius * (1 - margin)


def _inward(axis: Any, low: float, high: float) -> tuple[int, int]:
    """The greatest run of coordinates whose doubles surely all lie in low..high."""
    if isinstance(axis, DoubleAxis):
        return axis.of_float(low), axis.of_float(high)
    scale = 10**axis.scale if isinstance(axis, DecimalAxis) else 1
    below, above = Fraction(low) * scale, Fraction(high) * scale
    return math.ceil(below + abs(below) / 2**52) + 1, math.floor(above - abs(above) / 2**52) - 1


def _outward(axis: Any, low: float, high: float) -> tuple[int, int]:
    """Coordinates that surely enclose every value whose double lies in low..high."""
    if isinstance(axis, DoubleAxis):
        return axis.of_float(low), axis.of_float(high)
    scale = 10**axis.scale if isinstance(axis, DecimalAxis) else 1
    ends = []
    for end, side in ((low, -1), (high, 1)):
        if math.isinf(end):
            ends.append(axis.first if side < 0 else axis.last)
        else:  # the cast to double moves a value by at most 2^-53 of it
            exact = Fraction(end) * scale
            ends.append(math.floor(exact + side * (abs(exact) / 2**52 + 1)))
    return ends[0], ends[1]


class Term:
    """A product of one set of intervals per attribute (those that it constrains), and balls."""

    __slots__ = ("balls", "sides")

    def __init__(self, sides: tuple[tuple[int, Intervals], ...] = (), balls: tuple[Ball, ...] = ()) -> None:
        self.sides = sides  # by attribute index, ascending; never the whole axis
        self.balls = balls  # sorted, each once; sides exclude NULL wherever a ball looks

    @classmethod
    def of(cls, sides: Mapping[int, Intervals], balls: tuple[Ball, ...] = ()) -> Term:
        """From sides in any order."""
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
        """The sides crossed out: one term for each choice of an interval per attribute. Balls are left out."""
        if self.box_count() == 1:
            return [self]
        indices = [index for index, _ in self.sides]
        return [
            Term(tuple((index, Intervals.between(*pair)) for index, pair in zip(indices, pairs, strict=True)))
            for pairs in product(*(intervals for _, intervals in self.sides))
        ]


_order = attrgetter("order")


def simplified(terms: Iterable[Term], space: Space) -> list[Term]:
    """The normal form of a union of terms."""
    kept = list(terms)
    if len(kept) > 1:
        kept = _absorbed(_merged(kept, space), space)
        kept.sort(key=_order)
    return kept


def _merged(terms: list[Term], space: Space) -> list[Term]:
    """Unite terms that differ in one attribute only, until none do. O(terms * attributes) a round."""
    if len(terms) <= 4 and not any(_nearly_equal(a, b) for a, b in combinations(terms, 2)):
        return terms  # the usual case, without hashing
    terms = sorted(set(terms), key=_order)
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
    return Term.of(_bounded(sides, space), group[0].balls)


def _bounded(sides: Mapping[int, Intervals], space: Space) -> dict[int, Intervals]:
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
    from thatch.boxes import contains_box

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


class Region:
    """A set of points of a space. Make one with `space.where(clause)`, and more with `&`, `|`, `-`.

    >>> space = Space.parse("price double not null 0..100, symbol string")
    >>> cheap, dear = space.where("price < 20"), space.where("price >= 20")
    >>> (cheap | dear) == Region.everything(space), (cheap & dear).is_empty
    (True, True)
    >>> print((Region.everything(space) - cheap).to_sql())
    price >= 20.0D
    """

    __slots__ = ("_state", "space")

    def __init__(self, space: Space, terms: Iterable[Term], numbering: tuple[Labels, ...] | None = None) -> None:
        self.space = space
        if numbering is None:
            numbering = space.numbering
        self._state = tuple(simplified(_without_empty(terms, space), space)), numbering

    @classmethod
    def everything(cls, space: Space) -> Region:
        return cls(space, [Term()])

    @classmethod
    def nothing(cls, space: Space) -> Region:
        return cls(space, [])

    @classmethod
    def restored(cls, space: Space, terms: tuple[Term, ...], numbering: tuple[Labels, ...]) -> Region:
        """From the terms of a region, which are in normal form already."""
        region = cls.__new__(cls)
        region.space, region._state = space, (terms, numbering)
        return region

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms, in coordinates of the space's present numbering."""
        terms, numbering = self._state
        while numbering is not self.space.numbering:
            now = self.space.numbering
            old = dict(zip(_string_indices(self.space), numbering, strict=True))
            moved = tuple(sorted((_reread(term, old, self.space) for term in terms), key=_order))
            if now is self.space.numbering:
                terms, numbering = self._state = moved, now  # one store: another thread sees both or neither
        return terms

    def terms_in(self, space: Space) -> tuple[Term, ...]:
        """The terms in the coordinates of an equal space, which may have met other strings."""
        if space is self.space:
            return self.terms
        if space != self.space:
            raise CallerError(f"regions of different spaces do not mix: {self.space} and {space}")
        while True:
            terms, own = self._state
            numbering = space.numbering
            old = dict(zip(_string_indices(self.space), own, strict=True))
            moved = tuple(_reread(term, old, space) for term in terms)
            if numbering is space.numbering:
                return moved

    def in_space(self, space: Space) -> Region:
        """The same region as one of an equal space, whose coordinates it then follows."""
        return self if space is self.space else Region(space, self.terms_in(space))

    @property
    def is_empty(self) -> bool:
        return not self._state[0]

    @property
    def has_balls(self) -> bool:
        return any(term.balls for term in self._state[0])

    def __bool__(self) -> bool:
        raise TypeError("a region has no truth value: use `is_empty` or `contains`")

    def __eq__(self, other: object) -> bool:
        """Same space, same terms in normal form. Regions that are equal hold the same points. Two that hold the same
        points may be unequal, in terms cut differently: `is_within` both ways tells."""
        if not isinstance(other, Region) or self.space != other.space:
            return False
        mine, theirs, _ = self._beside(other)
        return sorted(theirs, key=_order) == sorted(mine, key=_order)

    def __hash__(self) -> int:
        return hash((self.space, len(self._state[0])))

    def __deepcopy__(self, memo: dict[int, Any]) -> Region:
        return self  # a value: it only ever follows its space

    def __repr__(self) -> str:
        return f"<Region {self.to_sql()}>"

    def to_sql(self) -> str:
        """A canonical clause; `space.where` of it is this region again."""
        from thatch.to_sql import to_sql

        return to_sql(self)

    def contains(self, event: Mapping[str, Any]) -> bool:
        """Whether an event is in this region. Attributes that the space does not have are ignored."""
        while True:
            numbering = self.space.numbering
            found = self.contains_point(self.space.encode(event))
            if numbering is self.space.numbering:  # else strings were renumbered in between
                return found

    def contains_point(self, point: Sequence[int]) -> bool:
        return any(term.contains(point, self.space) for term in self.terms)

    def contains_batch(self, events: Any) -> NDArray[np.bool_]:
        """`contains` for each row of an Arrow table or a dict of arrays."""
        while True:
            numbering = self.space.numbering
            found = self.contains_points(self.space.encode_batch(events))
            if numbering is self.space.numbering:
                return found

    def contains_points(self, columns: Sequence[Coordinates]) -> NDArray[np.bool_]:
        """`contains_point` for columns of coordinates, one per attribute."""
        from thatch.boxes import and_ball, and_interval, and_intervals

        found = np.zeros(len(columns[0]), np.bool_)
        for term in self.terms:
            mask = np.ones(len(found), np.bool_)
            for index, intervals in term.sides:
                column = np.ascontiguousarray(columns[index])
                if len(intervals) == 1:
                    and_interval(mask, column, intervals.low, intervals.high)
                else:
                    and_intervals(mask, column, intervals.to_numpy())
            for ball in term.balls:
                axes = [self.space.attributes[index].axis for index in ball.attributes]
                doubles = np.stack([axis.to_double(columns[i]) for axis, i in zip(axes, ball.attributes, strict=True)])
                and_ball(mask, doubles, np.array(ball.centre), ball.radius)
            found |= mask
        return found

    def _beside(self, other: Region) -> tuple[tuple[Term, ...], tuple[Term, ...], tuple[Labels, ...]]:
        """The terms of both under one numbering, and that: reading those of an equal space may change it."""
        while True:
            numbering = self.space.numbering
            theirs, mine = other.terms_in(self.space), self.terms
            if numbering is self.space.numbering:
                return mine, theirs, numbering

    def __and__(self, other: Region) -> Region:
        if not isinstance(other, Region):
            return NotImplemented
        mine, theirs, numbering = self._beside(other)
        both = products(mine, theirs)
        if len(both) > BOXES_CAP:
            raise TooManyBoxes(len(both), BOXES_CAP)
        return Region(self.space, both, numbering)

    def __or__(self, other: Region) -> Region:
        if not isinstance(other, Region):
            return NotImplemented
        mine, theirs, numbering = self._beside(other)
        return Region(self.space, [*mine, *theirs], numbering)

    def __sub__(self, other: Region) -> Region:
        """The points of this region outside the other one, as disjoint terms if there are no overlaps here.

        The other one must have no ball where it meets this one: what is outside a ball is no term.
        """
        if not isinstance(other, Region):
            return NotImplemented
        mine, theirs, numbering = self._beside(other)
        cuts = [cut for cut in theirs if any(_meet(term, cut, self.space) for term in mine)]
        if any(cut.balls for cut in cuts):
            raise CallerError("what lies outside a ball (`within`) is not a region of boxes and balls")
        plain = all(term.box_count() == 1 and not term.balls for term in [*mine, *cuts])
        if len(mine) * len(cuts) > KERNEL_PAIRS_MIN and plain:
            return self._subtract_boxes(mine, cuts, numbering)
        pieces = list(mine)
        for cut in cuts:
            pieces = [rest for piece in pieces for rest in _minus(piece, cut, self.space)]
        return Region(self.space, pieces, numbering)

    def _subtract_boxes(self, mine: Sequence[Term], cuts: list[Term], numbering: tuple[Labels, ...]) -> Region:
        from thatch.boxes import subtract

        done, low, high = subtract(*hulls(mine, self.space), *hulls(cuts, self.space), BOXES_CAP)
        if not done:
            raise TooManyBoxes(BOXES_CAP + 1, BOXES_CAP)
        return Region(self.space, boxes_to_terms(low, high, self.space), numbering)

    def is_within(self, other: Region) -> bool:
        """Whether every point of this region is in the other one, decided by subtraction (no balls in the other)."""
        return (self - other).is_empty

    def boxes(self, cap: int = BOXES_CAP) -> tuple[Coordinates, Coordinates]:
        """This region crossed out into plain boxes, low[n, d] and high[n, d]. Balls cannot be."""
        if self.has_balls:
            raise CallerError("a region with `within` is not a union of boxes")
        needed = sum(term.box_count() for term in self.terms)
        if needed > cap:
            raise TooManyBoxes(needed, cap)
        crossed = [box for term in self.terms for box in term.boxes()]
        return hulls(crossed, self.space)

    def disjoint(self) -> Region:
        """The same points as terms that do not overlap."""
        pieces: list[Term] = []
        for position, term in enumerate(self.terms):
            rest = Region(self.space, [term])
            if position:
                rest = rest - Region(self.space, self.terms[:position])
            pieces.extend(rest.terms)
        return Region(self.space, pieces)

    def count(self) -> int:
        """The number of lattice points, exactly."""
        spans = [a.last - a.low + 1 for a in self.space.attributes]
        total = 0
        for term in self._boxes_only().terms:
            sizes = dict(enumerate(spans)) | {index: intervals.count() for index, intervals in term.sides}
            total += math.prod(sizes.values())
        return total

    def volume(self) -> float:
        """The size to a person: the product of value widths, summed over disjoint parts.

        Numbers count by value, dates in days, timestamps in seconds, the rest in values told apart. NULL and a
        single double have width 0. In coordinates [0, 1] would outweigh [1, 1000] a hundred to one.
        """
        whole = [self._width(i, Intervals.between(a.first, a.last)) for i, a in enumerate(self.space.attributes)]
        total = 0.0
        for term in self._boxes_only().terms:
            widths = list(whole)
            for index, intervals in term.sides:
                widths[index] = self._width(index, intervals)
            total += 0.0 if 0.0 in widths else math.prod(widths)
        return total

    def _boxes_only(self) -> Region:
        if self.has_balls:
            raise CallerError("the points of a ball (`within`) are not counted; count its bounding box instead")
        return self.disjoint()

    def _width(self, index: int, intervals: Intervals) -> float:
        attribute = self.space.attributes[index]
        values = intervals.clipped(attribute.first, attribute.last)
        return sum((attribute.axis.width(low, high) for low, high in values), 0.0)

    def check_invariants(self) -> None:
        terms = self.terms
        assert list(terms) == simplified(terms, self.space)
        for term in terms:
            assert [index for index, _ in term.sides] == sorted({index for index, _ in term.sides})
            assert _bounded(dict(term.sides), self.space) == dict(term.sides)
            for index, intervals in term.sides:
                attribute = self.space.attributes[index]
                assert intervals.ends and attribute.low <= intervals.low and intervals.high <= attribute.last
                ends = list(intervals.ends)
                assert all(low <= high for low, high in intervals)
                assert all(high + 1 < low for high, low in zip(ends[1::2], ends[2::2], strict=False))


def products(left: Iterable[Term], right: Sequence[Term]) -> list[Term]:
    return [both for one in left for other in right if (both := one & other) is not None]


def _without_empty(terms: Iterable[Term], space: Space) -> list[Term]:
    """A term whose balls surely miss its sides holds nothing."""
    return [term for term in terms if not term.balls or _may_hold(term, space)]


def _may_hold(term: Term, space: Space) -> bool:
    for ball in term.balls:
        for index, bounds in ball.bounds(space).items():
            side = term.side(index)
            if not bounds.ends or (side is not None and side.isdisjoint(bounds)):
                return False
    return True


def _meet(one: Term, other: Term, space: Space) -> bool:
    both = one & other
    return both is not None and _may_hold(both, space)


def _minus(piece: Term, cut: Term, space: Space) -> list[Term]:
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
        sides = _bounded({index: Intervals.between(*pair) for index, pair in pairs}, space)
        terms.append(Term(tuple(sides.items())))
    return terms


def _string_indices(space: Space) -> list[int]:
    return [index for index, a in enumerate(space.attributes) if isinstance(a.axis, StringAxis)]


def renumbered(
    point: Sequence[int], space: Space, old: tuple[Labels, ...]
) -> tuple[tuple[int, ...], tuple[Labels, ...]]:
    """A point that was found under an older numbering of strings, under the present one, and that."""
    while True:
        numbering = space.numbering
        labels = dict(zip(_string_indices(space), old, strict=True))
        moved = []
        for index, coordinate in enumerate(point):
            axis = space.attributes[index].axis
            if isinstance(axis, StringAxis) and coordinate >= axis.first:
                coordinate = axis.labels.of(labels[index].cut_at(coordinate))
            moved.append(coordinate)
        if numbering is space.numbering:
            return tuple(moved), numbering


def _reread(term: Term, old: Mapping[int, Labels], space: Space) -> Term:
    """The same term in the present numbering of a space: each end is read as a string and labelled again."""
    sides = []
    for index, intervals in term.sides:
        axis = space.attributes[index].axis
        labels = old.get(index)
        if labels is not None and isinstance(axis, StringAxis):
            ends = []
            for low, high in intervals:
                above = labels.next_cut(high) if high >= axis.first else ""
                ends.append(low if low < axis.first else axis.cut(labels.cut_at(low)))
                ends.append(LAST if above is None else axis.cut(above) - 1)
            intervals = Intervals(ends)
        sides.append((index, intervals))
    return Term(tuple(sides), term.balls)
