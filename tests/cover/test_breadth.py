"""How broad boxes are: by the widths of bounding.py, never less for a region that holds another box by box."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest

from helpers.clause_rows import SPACE, make_rows
from thatch import Region, Space
from thatch.cover import region_of_box
from thatch.cover.breadth import LEAST, breadth, breadths
from thatch.region.widths import span

EVERY = Space.parse(SPACE)
for word in ("abc", "b", "zebra", ""):
    EVERY.where(f"name = '{word}' OR code < '{word}x'")  # so that strings have gaps


def random_box(random: Random) -> tuple[list[int], list[int]]:
    points = [EVERY.encode(row) for row in make_rows(random, 2)]
    low, high = ([pick(ends) for ends in zip(*points, strict=True)] for pick in (min, max))
    for at, attribute in enumerate(EVERY.attributes):
        if random.random() < 0.3:
            low[at], high[at] = attribute.low, attribute.last
    return low, high


def exact(low: list[int], high: list[int]) -> float:
    """The logarithm of the product, from logarithms."""
    spans = [span(a, b, attribute) for a, b, attribute in zip(low, high, EVERY.attributes, strict=True)]
    return sum(math.log2(max(each, LEAST)) for each in spans)


@pytest.mark.parametrize("seed", range(20))
def test_near_the_logarithm(seed: int) -> None:
    random = Random(seed)
    boxes = [random_box(random) for _ in range(20)]
    low, high = (np.array([box[side] for box in boxes]) for side in (0, 1))
    found = breadths(low, high, np.arange(21), EVERY)
    for each, box in zip(found.tolist(), boxes, strict=True):
        assert abs(each - exact(*box)) < 0.1  # a line between powers of two, below the logarithm by 0.086 at most
        assert each == breadth(region_of_box(*box, EVERY))


@pytest.mark.parametrize("seed", range(20))
def test_a_box_is_at_least_as_broad_as_what_it_holds(seed: int) -> None:
    random = Random(seed)
    low, high = random_box(random)
    point = EVERY.encode(make_rows(random, 1)[0])
    wide = [min(pair) for pair in zip(low, point, strict=True)], [max(pair) for pair in zip(high, point, strict=True)]
    assert breadth(region_of_box(*wide, EVERY)) >= breadth(region_of_box(low, high, EVERY))


def test_a_longer_list_is_broader() -> None:
    space = Space.parse("n int not null, s string")
    short, long = space.where("n IN (1, 5)"), space.where("n IN (1, 5, 9)")
    assert breadth(short) == breadth(space.where("n BETWEEN 3 AND 4")) < breadth(long)
    after, one = space.where("s > 'a'"), space.where("s = 'b'")  # first: a string that is mentioned makes gaps
    assert breadth(Region.everything(space)) > breadth(after) > breadth(one)


def test_no_product_is_lost() -> None:
    """Unbounded sides overflow, single doubles vanish; what is left still tells."""
    space = Space.parse(", ".join(f"x{at} double" for at in range(6)))
    wide = " AND ".join(f"x{at} > 0" for at in range(1, 6))
    assert breadth(space.where(f"{wide} AND x0 > 1")) > breadth(space.where(f"{wide} AND x0 BETWEEN 1 AND 2"))
    thin = " AND ".join(f"x{at} = 1" for at in range(1, 6))
    less, more = (space.where(f"{thin} AND x0 BETWEEN 1 AND {end}") for end in (2, 3))
    assert breadth(more) > breadth(less)
