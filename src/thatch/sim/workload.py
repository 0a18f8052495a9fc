"""Subscriptions and events for experiments: boxes with a given covering degree, as clauses.

The covering degree (congestion paper) is the mean number of subscriptions that become roots when a root leaves. Here
every root is a box of a slab of its own, so that no other one meets it, and its children are boxes of one size at
random places inside it: of two boxes of one size neither contains the other, so all of them become roots when it goes.
A union of children may well cover another one: that is what group covering finds and pairwise does not.

    x0   |-- root 0 --|  |-- root 1 --|  |-- root 2 --|          slabs
           [a] [b]          [d]                                  children: same size, any place
             [c]              [e][f]
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from thatch.cover.pairwise import contains
from thatch.region.region import Region
from thatch.space.space import Space

DOMAIN = 10_000
# The side of a child, of its root's, fitted to the congestion paper's table III, since it does not say how its
# subscriptions were made. Subscriptions that come to A to E at theta = 0.9, published: 664, 1,783, 1,196, 1,276, 1,543.
# Computed for 60 roots at random places of the overlay: 1,095, 1,419, 798, 1,474, 1,656; and none at 0.5. One run of
# the simulator at full size (`benchmarks.calm`, where the 20 that leave live mostly away from E): 1,299, 1,558, 668,
# 4,036, 203.
FITTED = 0.65


@dataclass(frozen=True, slots=True)
class Generated:
    """A subscription, and whether it is a root."""

    id: str
    where: str
    is_root: bool


def space_of(attributes: int, domain: int = DOMAIN) -> Space:
    return Space.parse(", ".join(f"x{axis} int not null 0..{domain}" for axis in range(attributes)))


def box_clause(low: list[int], high: list[int], domain: int = DOMAIN) -> str:
    sides = zip(low, high, strict=True)
    parts = [f"x{axis} BETWEEN {a} AND {b}" for axis, (a, b) in enumerate(sides) if (a, b) != (0, domain)]
    return " AND ".join(parts) or "TRUE"


def covered(count: int, degree: int, rng: random.Random, attributes: int = 4, child: float = 0.4) -> list[Generated]:
    """`count` subscriptions with a covering degree, in random order. `child`: the side of a child, of its root's."""
    roots = max(1, round(count / (degree + 1)))
    slab = (DOMAIN + 1) // roots
    made: list[Generated] = []
    for root in range(roots):
        low = [root * slab] + [rng.randrange(DOMAIN // 4) for _ in range(attributes - 1)]
        high = [root * slab + slab - 1] + [DOMAIN - rng.randrange(DOMAIN // 4) for _ in range(attributes - 1)]
        made.append(Generated(f"r{root}", box_clause(low, high), True))
        share = (count - roots) * (root + 1) // roots - (count - roots) * root // roots
        for number in range(share):
            made.append(Generated(f"r{root}c{number}", _inside(low, high, child, rng), False))
    rng.shuffle(made)
    return made


def _inside(low: list[int], high: list[int], child: float, rng: random.Random) -> str:
    sides = [max(1, int((b - a + 1) * child)) for a, b in zip(low, high, strict=True)]
    starts = [rng.randint(a, b - side + 1) for a, b, side in zip(low, high, sides, strict=True)]
    return box_clause(starts, [start + side - 1 for start, side in zip(starts, sides, strict=True)])


def covering_degree(regions: list[Region]) -> float:
    """The mean over the roots of how many others become roots when it leaves: those that only it covers. By brute
    force, all pairs: for some thousands."""
    roots: list[int] = []
    coverers: dict[int, list[int]] = {}
    for at, region in enumerate(regions):
        by = [
            other
            for other, wider in enumerate(regions)
            if other != at and contains(wider.terms, region.terms, region.space)
        ]
        if by:
            coverers[at] = by
        else:
            roots.append(at)
    exposed = dict.fromkeys(roots, 0)
    for by in coverers.values():
        if len(by) == 1 and by[0] in exposed:
            exposed[by[0]] += 1
    return sum(exposed.values()) / len(roots)


def events(count: int, rng: random.Random, attributes: int = 4) -> Iterator[dict[str, int]]:
    for _ in range(count):
        yield {f"x{axis}": rng.randrange(DOMAIN + 1) for axis in range(attributes)}
