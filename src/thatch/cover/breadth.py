"""The order in which a set of subscriptions is reduced: broad ones first, ties by id.

Whatever the order, a subscription that the union of those before it covers is redundant, and those that are kept have
the union of all. Broad ones first keeps few: a region hardly ever comes before one that holds it.

A box is as broad as the product of its sides, by values (bounding.py says how each is measured); a union is as broad as
its boxes together. Products of widths of unbounded doubles overflow, and those of shares vanish, so exponents are
summed in addition to the product of what is left. The result stands for the logarithm to base 2. It grows with every
side, and it is the same on every machine, which a logarithm need not be."""

from __future__ import annotations

import numpy as np

from thatch.cover.boxed import surely_inside
from thatch.region.region import Region
from thatch.region.term import hulls
from thatch.space.arrays import Floats, Ints
from thatch.space.attribute import Attribute
from thatch.space.axis import LabelledAxis
from thatch.space.floating import FloatingAxis
from thatch.space.space import Space

LEAST = 2.0**-1074  # the side of a single double


def breadths(low: Ints, high: Ints, starts: Ints, space: Space) -> Floats:
    """Of unions of boxes low[n, d], high[n, d]; those of each, one or more, begin at starts[i].

    >>> space = Space.parse("x int not null 0..99, y double")
    >>> low, high = np.array([[0, 0], [0, 0], [8, 0]]), np.array([[3, 0], [3, 0], [11, 0]])
    >>> breadths(low, high, np.array([0, 1, 3]), space)
    array([-1072., -1071.])
    """
    product, exponents = np.ones(len(low)), np.zeros(len(low), np.int64)
    for index, attribute in enumerate(space.attributes):
        side, exponent = np.frexp(np.maximum(_spans(attribute, low[:, index], high[:, index]), LEAST))
        product, carried = np.frexp(product * side)
        exponents += exponent + carried
    if len(starts) <= len(low):
        firsts, sizes = starts[:-1], np.diff(starts)
        most = np.maximum.reduceat(exponents, firsts)
        parts = np.ldexp(product, np.maximum(exponents - np.repeat(most, sizes), -2000))
        product, carried = np.frexp(np.add.reduceat(parts, firsts))
        exponents = most + carried
    return np.asarray(exponents + 2.0 * product - 2.0)


def boxes_of(region: Region) -> tuple[Ints, Ints, bool]:
    """A region that holds something as boxes, and whether they are all of it; if not, the boxes around its sides."""
    terms, space = region.terms, region.space
    low, high, whole = surely_inside(terms, space)
    return (low, high, True) if whole else (*hulls(terms, space), False)


def breadth(region: Region) -> float:
    """The breadth of a region that is not empty."""
    low, high, _ = boxes_of(region)
    return float(breadths(low, high, np.array([0, len(low)]), region.space)[0])


def _spans(attribute: Attribute, low: Ints, high: Ints) -> Floats:
    """What the sides of one attribute measure: `bounding.span`, of many."""
    first, axis = attribute.first, attribute.axis
    if isinstance(axis, FloatingAxis):
        least, most = (axis.to_double(np.clip(end, max(first, -axis.FAR), axis.FAR)) for end in (low, high))
        return np.asarray(most - least + (low < first))
    if isinstance(axis, LabelledAxis):
        sizes = axis.sizes(np.maximum(low, first), np.maximum(high, first))
        return np.asarray(np.where(high < first, 0.0, sizes) + (low < first))
    return np.asarray((high.astype(np.uint64) - low.astype(np.uint64)).astype(np.float64) + 1.0)
