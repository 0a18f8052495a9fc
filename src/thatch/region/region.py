"""Regions: unions of terms. A term is a box with zero or more balls; a box side may be a set of intervals.

A region is immutable and in normal form: no empty term, no term inside another one, no two terms that differ in one
attribute only (their union is one term), terms sorted. Labels mean something only under the codes that they were made
with (labels.py); a region that finds newer ones recodes its own (recoding.py), so its typed bounds survive.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thatch.errors import CallerError, TooManyBoxes
from thatch.region.intervals import Intervals
from thatch.region.recoding import recode_terms
from thatch.region.term import (
    KERNEL_PAIRS_MIN,
    Term,
    boxes_to_terms,
    hulls,
    products,
    simplified,
    subtract_term,
    term_order,
    terms_meet,
    without_empty,
    without_whole_sides,
)
from thatch.space.axis import Coordinates
from thatch.space.labels import LabelCodes
from thatch.space.space import Space

BOXES_CAP = 65_536


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

    def __init__(self, space: Space, terms: Iterable[Term], label_codes: LabelCodes | None = None) -> None:
        self.space = space
        if label_codes is None:
            label_codes = space.label_codes
        self._state = tuple(simplified(without_empty(terms, space), space)), label_codes

    @classmethod
    def everything(cls, space: Space) -> Region:
        return cls(space, [Term()])

    @classmethod
    def nothing(cls, space: Space) -> Region:
        return cls(space, [])

    @classmethod
    def restored(cls, space: Space, terms: tuple[Term, ...], label_codes: LabelCodes) -> Region:
        """From the terms of a region, which are in normal form already."""
        region = cls.__new__(cls)
        region.space, region._state = space, (terms, label_codes)
        return region

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms, in coordinates of the space's present label codes."""
        terms, codes = self._state
        while not self.space.is_current(codes):
            moved, codes = recode_terms(terms, self.space, codes)
            terms = tuple(sorted(moved, key=term_order))
            self._state = terms, codes  # one store: another thread sees both or neither
        return terms

    def require(self, space: Space) -> None:
        """Refuse to be used in another space; an equal one will do."""
        if space is not self.space and space != self.space:
            raise CallerError(f"regions of different spaces do not mix: {self.space} and {space}")

    def terms_in(self, space: Space) -> tuple[Term, ...]:
        """The terms in the coordinates of an equal space, which may have met other strings."""
        if space is self.space:
            return self.terms
        self.require(space)
        terms, own = self._state
        return recode_terms(terms, space, own)[0]

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
        mine, theirs, _ = self._aligned(other)
        return sorted(theirs, key=term_order) == sorted(mine, key=term_order)

    def __hash__(self) -> int:
        return hash((self.space, len(self._state[0])))

    def __deepcopy__(self, memo: dict[int, Any]) -> Region:
        return self  # a value: it only ever follows its space

    def __repr__(self) -> str:
        return f"<Region {self.to_sql()}>"

    def to_sql(self) -> str:
        """A canonical clause; `space.where` of it is this region again."""
        from thatch.where.to_sql import to_sql

        return to_sql(self)

    def contains(self, event: Mapping[str, Any]) -> bool:
        """Whether an event is in this region. Attributes that the space does not have are ignored."""
        return self.space.stable(lambda: self.contains_point(self.space.encode(event)))[0]

    def contains_point(self, point: Sequence[int]) -> bool:
        return any(term.contains(point, self.space) for term in self.terms)

    def contains_batch(self, events: Any) -> NDArray[np.bool_]:
        """`contains` for each row of an Arrow table or a dict of arrays."""
        return self.space.stable(lambda: self.contains_points(self.space.encode_batch(events)))[0]

    def contains_points(self, columns: Sequence[Coordinates]) -> NDArray[np.bool_]:
        """`contains_point` for columns of coordinates, one per attribute."""
        from thatch.region.boxes import and_ball, and_interval, and_intervals

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

    def _aligned(self, other: Region) -> tuple[tuple[Term, ...], tuple[Term, ...], LabelCodes]:
        """The terms of both under the same label codes, and these: reading those of an equal space may recode it."""
        theirs_and_mine, codes = self.space.stable(lambda: (other.terms_in(self.space), self.terms))
        theirs, mine = theirs_and_mine
        return mine, theirs, codes

    def __and__(self, other: Region) -> Region:
        if not isinstance(other, Region):
            return NotImplemented
        mine, theirs, label_codes = self._aligned(other)
        both = products(mine, theirs)
        if len(both) > BOXES_CAP:
            raise TooManyBoxes(len(both), BOXES_CAP)
        return Region(self.space, both, label_codes)

    def __or__(self, other: Region) -> Region:
        if not isinstance(other, Region):
            return NotImplemented
        mine, theirs, label_codes = self._aligned(other)
        return Region(self.space, [*mine, *theirs], label_codes)

    def __sub__(self, other: Region) -> Region:
        """The points of this region outside the other one, as disjoint terms if there are no overlaps here.

        The other one must have no ball where it meets this one: what is outside a ball is no term.
        """
        if not isinstance(other, Region):
            return NotImplemented
        mine, theirs, label_codes = self._aligned(other)
        cuts = [cut for cut in theirs if any(terms_meet(term, cut, self.space) for term in mine)]
        if any(cut.balls for cut in cuts):
            raise CallerError("what lies outside a ball (`within`) is not a region of boxes and balls")
        plain = all(term.box_count() == 1 and not term.balls for term in [*mine, *cuts])
        if len(mine) * len(cuts) > KERNEL_PAIRS_MIN and plain:
            return self._subtract_boxes(mine, cuts, label_codes)
        pieces = list(mine)
        for cut in cuts:
            pieces = [rest for piece in pieces for rest in subtract_term(piece, cut, self.space)]
        return Region(self.space, pieces, label_codes)

    def _subtract_boxes(self, mine: Sequence[Term], cuts: list[Term], label_codes: LabelCodes) -> Region:
        from thatch.region.boxes import subtract

        done, low, high = subtract(*hulls(mine, self.space), *hulls(cuts, self.space), BOXES_CAP)
        if not done:
            raise TooManyBoxes(BOXES_CAP + 1, BOXES_CAP)
        return Region(self.space, boxes_to_terms(low, high, self.space), label_codes)

    def is_within(self, other: Region) -> bool:
        """Whether every point of this region is in the other one, decided by subtraction (no balls in the other)."""
        return (self - other).is_empty

    def boxes(self, cap: int = BOXES_CAP) -> tuple[Coordinates, Coordinates]:
        """This region expanded into plain boxes, low[n, d] and high[n, d]. Balls cannot be."""
        if self.has_balls:
            raise CallerError("a region with `within` is not a union of boxes")
        needed = sum(term.box_count() for term in self.terms)
        if needed > cap:
            raise TooManyBoxes(needed, cap)
        crossed = [box for term in self.terms for box in term.boxes()]
        return hulls(crossed, self.space)

    def hull(self) -> Region:
        """The smallest box around this region. Of balls, around the sides that they stand with.

        >>> space = Space.parse("x int not null 0..100, y int not null 0..100")
        >>> space.where("(x < 5 AND y = 1) OR (x = 9 AND y = 7)").hull()
        <Region x <= 9 AND y BETWEEN 1 AND 7>
        """
        terms = self.terms
        if not terms:
            return self
        low, high = hulls(terms, self.space)
        around = boxes_to_terms(low.min(0, keepdims=True), high.max(0, keepdims=True), self.space)
        return Region(self.space, around, self._state[1])

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
            assert without_whole_sides(dict(term.sides), self.space) == dict(term.sides)
            for index, intervals in term.sides:
                attribute = self.space.attributes[index]
                assert intervals.ends and attribute.low <= intervals.low and intervals.high <= attribute.last
                ends = list(intervals.ends)
                assert all(low <= high for low, high in intervals)
                assert all(high + 1 < low for high, low in zip(ends[1::2], ends[2::2], strict=False))
