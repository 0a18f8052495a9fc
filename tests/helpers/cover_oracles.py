"""Oracles for covering, and sets of regions to ask them about.

Two ways to decide covering that share nothing with the engines:

1. `Cells`: coordinate compression. Cut each attribute at every low and high + 1 of all the intervals in play; each
   elementary cell then lies in a region wholly or not at all, so one point of each decides. Any regions without balls.
2. `NegativeSpace`: the uncovered part of a space as disjoint boxes; each new box is subtracted from all of them
   (negative-space paper, with the range s(d) ∩ r(d) of the errata, and empty remainders deleted). Plain boxes only,
   but many of them.

The rest makes sets: small ones full of touching, nested, equal and jointly covering boxes, regions out of clauses,
and the families that are hard for some method (pinwheel, guillotine partition, tiling, slabs, 3-SAT).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thatch import Space
from thatch.region.intervals import Intervals
from thatch.region.region import Region
from thatch.region.term import Term
from thatch.space.attribute import Attribute
from thatch.space.axis import EnumAxis, StringAxis

Box = tuple[tuple[int, ...], tuple[int, ...]]  # low, high: closed
Mask = NDArray[np.bool_]


# --- Boxes and regions -----------------------------------------------------------------------------------------------


def ints(*sizes: int) -> Space:
    """A space of ints that are never NULL, the i-th of them 0..sizes[i] - 1."""
    return Space.parse(", ".join(f"a{index} int not null 0..{size - 1}" for index, size in enumerate(sizes)))


def region_of(space: Space, low: Sequence[int], high: Sequence[int]) -> Region:
    """A box as a region."""
    sides = []
    for index, attribute in enumerate(space.attributes):
        if (low[index], high[index]) != (attribute.low, attribute.last):
            sides.append((index, Intervals.between(low[index], high[index])))
    return Region(space, [Term(tuple(sides))])


def arrays(boxes: Sequence[Box]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return np.array([low for low, _ in boxes], np.int64), np.array([high for _, high in boxes], np.int64)


def whole(space: Space) -> Box:
    return tuple(a.low for a in space.attributes), tuple(a.last for a in space.attributes)


def in_box(point: Sequence[int], box: Box) -> bool:
    return all(low <= at <= high for low, at, high in zip(box[0], point, box[1], strict=True))


# --- 1. Coordinate compression ---------------------------------------------------------------------------------------


class Cells:
    """The elementary cells of some regions. Ask only about regions that it was made with."""

    def __init__(self, space: Space, regions: Iterable[Region]) -> None:
        self.space = space
        cuts = [{attribute.low} for attribute in space.attributes]
        for region in regions:
            for term in region.terms_in(space):
                assert not term.balls, "a ball has no cells"
                for index, intervals in term.sides:
                    for low, high in intervals:
                        cuts[index] |= {low, high + 1}
        for starts, attribute in zip(cuts, space.attributes, strict=True):
            starts.discard(attribute.last + 1)
        self.starts = [sorted(each) for each in cuts]
        self.shape = tuple(map(len, self.starts))
        assert math.prod(self.shape) <= 2**20, "too many cells: take fewer or coarser regions"
        self._masks: dict[int, tuple[Region, Mask]] = {}

    def mask(self, region: Region) -> Mask:
        """Which cells the region holds."""
        known = self._masks.get(id(region))
        if known is not None and known[0] is region:
            return known[1]
        found = np.zeros(self.shape, np.bool_)
        for term in region.terms_in(self.space):
            inside = np.ones(self.shape, np.bool_)
            for index, intervals in term.sides:
                starts = self.starts[index]
                line = np.zeros(len(starts), np.bool_)
                for low, high in intervals:
                    line[bisect_left(starts, low) : bisect_right(starts, high)] = True
                inside &= line.reshape([-1 if axis == index else 1 for axis in range(len(self.shape))])
            found |= inside
        self._masks[id(region)] = region, found
        return found

    def union(self, regions: Iterable[Region]) -> Mask:
        found = np.zeros(self.shape, np.bool_)
        for region in regions:
            found |= self.mask(region)
        return found

    def covered(self, region: Region, members: Iterable[Region]) -> bool:
        return not (self.mask(region) & ~self.union(members)).any()

    def covered_by_one(self, region: Region, members: Iterable[Region]) -> bool:
        mask = self.mask(region)
        return any(not (mask & ~self.mask(member)).any() for member in members)

    def holds(self, region: Region, point: Sequence[int]) -> bool:
        """Whether a point is in the region, by its cell."""
        if len(point) != len(self.shape):
            return False
        for at, attribute in zip(point, self.space.attributes, strict=True):
            if not attribute.low <= at <= attribute.last:
                return False
        cell = tuple(bisect_right(starts, at) - 1 for starts, at in zip(self.starts, point, strict=True))
        return bool(self.mask(region)[cell])

    def points(self) -> Iterator[tuple[int, ...]]:
        """One point of every cell, in the order of a mask's `flat`."""
        return product(*self.starts)


# --- 2. Exact negative space -----------------------------------------------------------------------------------------


class NegativeSpace:
    """What no box has covered yet, as disjoint boxes. Coordinates must stay clear of the ends of int64."""

    def __init__(self, whole: Box) -> None:
        self.low, self.high = np.array([whole[0]], np.int64), np.array([whole[1]], np.int64)

    def __len__(self) -> int:
        return len(self.low)

    def covers(self, box: Box) -> bool:
        """Whether nothing of the box is left."""
        return not self._meets(*box).any()

    def holds(self, point: Sequence[int]) -> bool:
        """Whether a point is still uncovered."""
        return bool(self._meets(point, point).any())

    def _meets(self, low: Sequence[int], high: Sequence[int]) -> Mask:
        found: Mask = np.all((self.low <= np.array(high)) & (self.high >= np.array(low)), axis=1)
        return found

    def subtract(self, box: Box) -> None:
        low, high = box
        meets = self._meets(low, high)
        if not meets.any():
            return
        rest_low, rest_high = self.low[meets], self.high[meets]
        lows, highs = [self.low[~meets]], [self.high[~meets]]
        for axis in range(len(low)):
            below = rest_low[:, axis] < low[axis]
            piece_low, piece_high = rest_low[below], rest_high[below].copy()
            piece_high[:, axis] = low[axis] - 1
            lows.append(piece_low)
            highs.append(piece_high)
            above = rest_high[:, axis] > high[axis]
            piece_low, piece_high = rest_low[above].copy(), rest_high[above]
            piece_low[:, axis] = high[axis] + 1
            lows.append(piece_low)
            highs.append(piece_high)
            rest_low[:, axis] = np.maximum(rest_low[:, axis], low[axis])  # s(d) ∩ r(d), from here on
            rest_high[:, axis] = np.minimum(rest_high[:, axis], high[axis])
        self.low, self.high = np.concatenate(lows), np.concatenate(highs)

    def count(self) -> int:
        """How many points are left, exactly."""
        return sum(
            math.prod(high - low + 1 for low, high in zip(one, other, strict=True))
            for one, other in zip(self.low.tolist(), self.high.tolist(), strict=True)
        )


# --- Sets to ask about -----------------------------------------------------------------------------------------------


@dataclass
class Case:
    """Members and regions to ask about, with the right answers."""

    space: Space
    members: dict[Any, Region]
    queries: list[Region]
    name: str = ""
    boxes: dict[Any, Box] = field(default_factory=dict)

    @cached_property
    def cells(self) -> Cells:
        return Cells(self.space, [*self.members.values(), *self.queries])

    @cached_property
    def covered(self) -> list[bool]:
        """For each query, by the union of all members."""
        return [self.cells.covered(query, self.members.values()) for query in self.queries]

    @cached_property
    def covered_by_one(self) -> list[bool]:
        return [self.cells.covered_by_one(query, self.members.values()) for query in self.queries]

    def __str__(self) -> str:
        members = "".join(f"\n    {id!r}: {region.to_sql()}" for id, region in self.members.items())
        return f"{self.name}: {self.space}{members}"


def random_box(random: Random, within: Box) -> Box:
    low, high = [], []
    for least, most in zip(*within, strict=True):
        kind = random.random()
        if kind < 0.3:
            one, other = least, most
        elif kind < 0.5:
            one = other = random.randint(least, most)
        else:
            one, other = sorted((random.randint(least, most), random.randint(least, most)))
        low.append(one)
        high.append(other)
    return tuple(low), tuple(high)


def widened(random: Random, box: Box, within: Box) -> Box:
    """The box, some of its sides moved outward: it overlaps its neighbours instead of touching them."""
    low, high = list(box[0]), list(box[1])
    for axis in range(len(low)):
        if random.random() < 0.3:
            low[axis] = random.randint(within[0][axis], low[axis])
        if random.random() < 0.3:
            high[axis] = random.randint(high[axis], within[1][axis])
    return tuple(low), tuple(high)


SMALL_SIZES = {1: (12,), 2: (8, 8), 3: (6, 5, 6), 4: (4, 4, 3, 4), 5: (3, 3, 3, 2, 3), 6: (3, 2, 3, 2, 3, 3)}


def small_box_sets(attributes: int, count: int, seed: int) -> Iterator[Case]:
    """Sets of up to a dozen boxes in a small space; about every second query is covered, many only jointly."""
    space = ints(*SMALL_SIZES[attributes])
    everything = whole(space)
    for number in range(count):
        random = Random(f"{seed}/{attributes}/{number}")
        asked = random_box(random, everything)
        boxes = guillotine(random, asked, random.randint(1, 8))
        kind = number % 5
        if kind == 1:
            boxes = [widened(random, box, everything) for box in boxes]
        elif kind == 2:
            boxes = [widened(random, box, everything) for box in boxes]
            del boxes[random.randrange(len(boxes))]
        elif kind == 3:
            boxes = [random_box(random, everything) for _ in range(random.randint(0, 12))]
        elif kind == 4:
            boxes += [random_box(random, box) for box in boxes] + random.choices(boxes, k=2)
        random.shuffle(boxes)
        queries = [asked, random_box(random, everything), random_box(random, asked)]
        if boxes:
            queries.append(random.choice(boxes))
        yield case_of(space, boxes, queries, f"small_box_sets({attributes}, seed={seed}) number {number}")


def case_of(space: Space, boxes: Sequence[Box], queries: Sequence[Box], name: str) -> Case:
    return Case(
        space,
        {f"m{position}": region_of(space, *box) for position, box in enumerate(boxes)},
        [region_of(space, *box) for box in queries],
        name,
        {f"m{position}": box for position, box in enumerate(boxes)},
    )


def random_boxes(random: Random, space: Space, count: int, share: float) -> list[Box]:
    """Boxes whose sides are up to this share of each axis; every third one touches or repeats an end of another."""
    boxes: list[Box] = []
    least, most = whole(space)
    for _ in range(count):
        low, high = [], []
        for axis in range(len(space)):
            span = most[axis] - least[axis]
            begin = random.randint(least[axis], most[axis])
            end = min(most[axis], begin + random.randint(0, max(1, int(span * share))))
            if boxes and random.random() < 0.3:
                other = random.choice(boxes)
                begin = random.choice((other[0][axis], min(most[axis], other[1][axis] + 1)))
                end = max(end, begin)
            low.append(begin)
            high.append(end)
        boxes.append((tuple(low), tuple(high)))
    return boxes


# --- Regions from clauses --------------------------------------------------------------------------------------------

MIXED_SPACES = (
    "size int 0..5, ok bool, kind enum('a', 'b', 'c') not null",
    "name string, size int not null 0..4",
    "name string, kind enum('x', 'y'), ok bool not null, size int 0..3",
    "price decimal(3,1) not null 0.0..1.0, day date not null '2024-01-01'..'2024-01-05', name string not null",
)
_ATOMS = {
    "size": (
        "size = {i}", "size <> {i}", "size < {i}", "size >= {i}", "size BETWEEN {i} AND {j}", "size IN ({i}, {j}, {k})",
        "size NOT IN ({i}, {k})", "size IS NULL", "size IS NOT NULL", "size <=> {i}",
    ),
    "ok": ("ok", "NOT ok", "ok IS NULL", "ok IS NOT NULL", "ok <=> NULL"),
    "kind": ("kind = '{e}'", "kind <> '{e}'", "kind IN ('{e}', '{f}')", "kind >= '{e}'", "kind IS NOT NULL"),
    "name": (
        "name = '{s}'", "name <> '{s}'", "name < '{s}'", "name >= '{s}'", "name IN ('{s}', '{t}')",
        "name NOT IN ('{s}', '{t}')", "name LIKE '{p}%'", "name IS NULL", "name IS NOT NULL",
        "name BETWEEN '{s}' AND '{t}'",
    ),
    "price": ("price < 0.{i}", "price >= 0.{i}", "price = 0.{i}", "price BETWEEN 0.{i} AND 0.{j}"),
    "day": ("day < '2024-01-0{l}'", "day >= '2024-01-0{l}'", "day IN ('2024-01-0{l}', '2024-01-0{m}')"),
}  # fmt: skip
_SHAPES = (
    "{}", "{} AND {}", "{} OR {}", "({} AND {}) OR {}", "({} OR {}) AND {}", "NOT ({} AND {})", "{} AND {} AND {}",
    "({} AND {}) OR ({} AND {})",
)  # fmt: skip


def random_clause(random: Random, space: Space) -> str:
    shape = random.choice(_SHAPES)
    atoms = [_atom(random, random.choice(space.attributes)) for _ in range(shape.count("{}"))]
    return shape.format(*atoms)


def _atom(random: Random, attribute: Attribute) -> str:
    axis, top = attribute.axis, min(attribute.last, 9)
    i, j = sorted((random.randint(0, top), random.randint(0, top)))
    first, second = sorted(random.choices(("ab", "abc", "b", "c"), k=2))
    e, f = random.choices(axis.values if isinstance(axis, EnumAxis) else "-", k=2)
    return random.choice(_ATOMS[attribute.name]).format(
        i=i, j=j, k=random.randint(0, top), l=random.randint(1, 5), m=random.randint(1, 5), s=first, t=second,
        p=random.choice("ab"), e=e, f=f,
    )  # fmt: skip


def clause_pool(text: str, count: int, seed: int) -> tuple[Space, list[Region]]:
    """A space and many regions of it. Parsing is slow, so sets draw from one pool."""
    space, random = Space.parse(text), Random(f"{seed}/{text}")
    regions = [space.where(random_clause(random, space)) for _ in range(count)]
    return space, [space.where("TRUE"), space.where("1 = 0"), *regions]


def clause_sets(text: str, count: int, seed: int, pool_size: int = 150) -> Iterator[Case]:
    """Sets of regions with OR, IN, NULL and strings; some queries are what members leave of a region, or a bit more."""
    space, pool = clause_pool(text, pool_size, seed)
    for number in range(count):
        random = Random(f"{seed}/{text}/{number}")
        members = random.choices(pool[2:], k=random.randint(0, 7))
        if number % 7 == 0:
            members.append(random.choice(pool))
        queries = random.choices(pool, k=3)
        if members:
            queries.append(random.choice(members) & random.choice(pool))
            queries.append(random.choice(members) | random.choice(members))
        named = {f"m{position}": region for position, region in enumerate(members)}
        yield Case(space, named, queries, f"clause_sets({text!r}, seed={seed}) number {number}")


def recode(space: Space) -> None:
    """What an attribute does when there is no room left between two strings."""
    before = space.label_codes
    for attribute in space.attributes:
        if isinstance(attribute.axis, StringAxis):
            attribute.axis.labels = attribute.axis.labels.recoded([f"m{'a' * length}" for length in range(40)])
    assert space.label_codes is not before


# --- Families --------------------------------------------------------------------------------------------------------


def guillotine(random: Random, box: Box, pieces: int) -> list[Box]:
    """A partition of a box by cuts that go all the way through, into this many pieces (or as many as it has points)."""
    parts = [box]
    splittable = [0] if box[0] != box[1] else []
    while len(parts) < pieces and splittable:
        chosen = random.randrange(len(splittable))
        position = splittable[chosen]
        low, high = parts[position]
        axis = random.choice([axis for axis in range(len(low)) if low[axis] < high[axis]])
        at = random.randint(low[axis], high[axis] - 1)
        below = low, (*high[:axis], at, *high[axis + 1 :])
        above = (*low[:axis], at + 1, *low[axis + 1 :]), high
        parts[position] = below
        parts.append(above)
        if below[0] == below[1]:
            splittable[chosen] = splittable[-1]
            splittable.pop()
        if above[0] != above[1]:
            splittable.append(len(parts) - 1)
    return parts


def pinwheel(inner: int = 1, arm: int = 4) -> tuple[Space, list[Box], Box]:
    """Four boxes around a small hole, none of which goes all the way through; and the hole.

    +-----+--+       No line from edge to edge avoids all four, and the hole is narrower
    |     |  |       than every gap that a single box leaves.
    +--+--+  |
    |  |  +--+
    |  +--+--+ ...
    """
    size = 2 * arm + inner
    space = ints(size, size)
    a, b, last = arm, arm + inner, size - 1
    boxes: list[Box] = [
        ((0, 0), (b - 1, a - 1)),
        ((b, 0), (last, b - 1)),
        ((a, b), (last, last)),
        ((0, a), (a - 1, last)),
    ]
    return space, boxes, ((a, a), (b - 1, b - 1))


def tiling(*counts: int, tile: int = 8) -> tuple[Space, list[Box]]:
    """A regular tiling of a whole space, `counts[i]` tiles along attribute i."""
    space = ints(*(count * tile for count in counts))
    boxes = []
    for at in product(*map(range, counts)):
        boxes.append((tuple(tile * each for each in at), tuple(tile * each + tile - 1 for each in at)))
    return space, boxes


def slabs(sizes: Sequence[int], left_open: Mapping[int, int]) -> tuple[Space, list[Box]]:
    """All slabs one coordinate thick across each attribute, but for one coordinate of each attribute in `left_open`.

    Their union is everything unless every attribute is left open; then one point is left.
    """
    space = ints(*sizes)
    low, high = whole(space)
    boxes = []
    for axis, size in enumerate(sizes):
        for at in range(size):
            if left_open.get(axis) != at:
                boxes.append(((*low[:axis], at, *low[axis + 1 :]), (*high[:axis], at, *high[axis + 1 :])))
    return space, boxes


Clause = tuple[tuple[int, bool], ...]  # (variable, sign): true if the variable has that sign


def random_3sat(random: Random, variables: int, clauses: int) -> list[Clause]:
    return [
        tuple((variable, random.random() < 0.5) for variable in sorted(random.sample(range(variables), 3)))
        for _ in range(clauses)
    ]


def sat_boxes(formula: Sequence[Clause], variables: int) -> list[Box]:
    """Each clause forbids the sub-cube of {0,1}^n in which all its literals are false: covered iff unsatisfiable."""
    boxes = []
    for clause in formula:
        low, high = [0] * variables, [1] * variables
        for variable, sign in clause:
            low[variable] = high[variable] = 0 if sign else 1
        boxes.append((tuple(low), tuple(high)))
    return boxes


def satisfies(point: Sequence[int], formula: Sequence[Clause]) -> bool:
    return all(any(bool(point[variable]) == sign for variable, sign in clause) for clause in formula)


def satisfiable(formula: Sequence[Clause]) -> bool:
    """Davis, Putnam, Logemann and Loveland: unit clauses first, then the most frequent variable of the shortest."""
    clauses = [set(clause) for clause in formula]
    while True:
        if not all(clauses):
            return False
        unit = next((clause for clause in clauses if len(clause) == 1), None)
        if unit is None:
            break
        clauses = _assigned(clauses, *next(iter(unit)))
    if not clauses:
        return True
    counts: dict[tuple[int, bool], int] = {}
    shortest = min(map(len, clauses))
    for clause in clauses:
        if len(clause) == shortest:
            for literal in clause:
                counts[literal] = counts.get(literal, 0) + 1
    variable, sign = max(sorted(counts), key=counts.__getitem__)
    return satisfiable([tuple(c) for c in _assigned(clauses, variable, sign)]) or satisfiable(
        [tuple(c) for c in _assigned(clauses, variable, not sign)]
    )


def _assigned(clauses: list[set[tuple[int, bool]]], variable: int, sign: bool) -> list[set[tuple[int, bool]]]:
    return [clause - {(variable, not sign)} for clause in clauses if (variable, sign) not in clause]


def many_boxes(count: int) -> tuple[Space, dict[int, Region]]:
    """Small boxes of three attributes."""
    space = ints(1_000, 1_000, 1_000)
    boxes = random_boxes(Random(3), space, count, share=0.05)
    return space, {number: region_of(space, *box) for number, box in enumerate(boxes)}
