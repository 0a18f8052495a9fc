"""The least simple term around two, and how much of it they fill.

A side of it is the union of both sides. Where values have an order that means something (numbers, dates), the smallest
gaps are filled until it has no more intervals than the larger of the two: of two boxes comes the box around them, of
`x IN (1, 100)` and `x IN (2, 100)` comes `x BETWEEN 1 AND 2 OR x = 100`. Strings, enums and bools stay sets, and NULL
stays apart.

    a   |--|          |--|        1..3, 14..17
    b     |---|        |---|      3..7, 15..19
    =   |-----|       |----|      1..7, 14..19       (nothing to fill)

What fills it is measured by values, and only as shares of the term: widths of unbounded doubles multiply to infinity,
shares never do. In coordinates [0, 1] would outweigh [1, 1000] a hundred to one. NULL counts as one value, on an axis
of doubles as a width of 1; sides without any width, which are single doubles, are counted.
"""

from __future__ import annotations

from typing import NamedTuple

from thatch.region.intervals import Intervals
from thatch.region.term import Term
from thatch.region.widths import is_ordered, span, width
from thatch.space.attribute import Attribute
from thatch.space.space import Space


class Bound(NamedTuple):
    """The term around two others, and the shares of it that the first, the second and both hold."""

    term: Term
    one: float
    other: float
    both: float

    @property
    def cost(self) -> float:
        """The share that neither holds."""
        return max(0.0, 1.0 - (self.one + self.other - self.both))

    def filled(self, one: float, other: float) -> float:
        """A share of the term that is surely filled if these shares of the two are.

        What both fill may be counted twice, but it lies in what both hold.
        """
        first, second = one * self.one, other * self.other
        return min(1.0, max(first + second - self.both, first, second))


def around(one: Term, other: Term, space: Space) -> Bound:
    """Of terms without balls. O(attributes), and O(n log n) for sets of n intervals."""
    assert not one.balls and not other.balls
    first = second = both = 1.0
    sides = []
    theirs = dict(other.sides)
    mine = dict(one.sides)
    for index in sorted(mine.keys() | theirs.keys()):
        attribute = space.attributes[index]
        left, right = mine.get(index), theirs.get(index)
        if left is not None and left == right:
            sides.append((index, left))
            continue
        whole = Intervals.between(attribute.low, attribute.last)
        left, right = left or whole, right or whole
        side = side_around(left, right, attribute)
        total = width(side, attribute)
        if total > 0:
            first *= min(1.0, width(left, attribute) / total)
            second *= min(1.0, width(right, attribute) / total)
            both *= min(1.0, width(left & right, attribute) / total)
        else:
            points = side.count()
            first, second = first * left.count() / points, second * right.count() / points
            both *= (left & right).count() / points
        if side != whole:
            sides.append((index, side))
    return Bound(Term(tuple(sides)), first, second, both)


def side_around(one: Intervals, other: Intervals, attribute: Attribute) -> Intervals:
    """The union of two sides, with gaps filled as the top of this file says."""
    if len(one) == len(other) == 1 and min(one.high, other.high) >= attribute.first and is_ordered(attribute):
        return Intervals.between(min(one.low, other.low), max(one.high, other.high))  # the usual case
    union = one | other
    if not is_ordered(attribute):
        return union
    most = max(_values(one, attribute), _values(other, attribute))
    if _values(union, attribute) <= most:
        return union
    pairs = [(max(low, attribute.first), high) for low, high in union if high >= attribute.first]
    gaps = [span(pairs[place][1] + 1, pairs[place + 1][0] - 1, attribute) for place in range(len(pairs) - 1)]
    widest = sorted(range(len(gaps)), key=lambda place: (-gaps[place], place))[: most - 1]
    ends = [pairs[0][0]]
    for place in sorted(widest):
        ends += (pairs[place][1], pairs[place + 1][0])
    ends.append(pairs[-1][1])
    kept = list(zip(ends[::2], ends[1::2], strict=True))
    if union.low < attribute.first:
        kept.append((union.low, union.low))
    return Intervals.of(kept)


def _values(side: Intervals, attribute: Attribute) -> int:
    """How many intervals it has besides NULL."""
    return len(side) - (len(side.ends) > 0 and side.ends[1] < attribute.first)
