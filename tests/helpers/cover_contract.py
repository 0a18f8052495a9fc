"""The contract of cover engines: which engines there are, and what is wrong about an answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from random import Random
from typing import Any

import numpy as np

from helpers.cover_oracles import Box, Case, Cells, case_of, clause_sets, guillotine, random_box, small_box_sets, whole
from helpers.strategies import soaked
from thatch import Space
from thatch.cover import ENGINES, Covered, Uncovered, Unproven, verify
from thatch.cover.engine import CoverEngine
from thatch.cover.negative import NegativeEngine
from thatch.cover.pairwise import PairwiseEngine
from thatch.region.region import Region

SEED = 20240229


INT_MIN, INT_MAX = -(2**63), 2**63 - 1


Engine = Callable[[Space], CoverEngine]


# Every engine of the table by its name, and the forms of some.
VARIANTS: dict[str, Engine] = {
    **ENGINES,
    "pairwise linear": partial(PairwiseEngine, form="linear"),
    "pairwise poset": partial(PairwiseEngine, form="poset"),
    "negative, at most 2": partial(NegativeEngine, k=2),
    "negative, dynamic, merging": partial(
        NegativeEngine, k=1, dynamic=True, metric="1/cost", merge=True, departure="exact"
    ),
}
RIVALS = (ENGINES["dominance"],)


def thinned(engine_class: Engine, cases: list[Any]) -> list[Any]:
    """All for an engine of the table, some for its other forms and for rivals: the suite must stay fast."""
    return cases[::4] if isinstance(engine_class, partial) or engine_class in RIVALS else cases


def filled(engine_class: Engine, space: Space, members: Mapping[Any, Region]) -> CoverEngine:
    engine = engine_class(space)
    for id, region in members.items():
        engine.add(id, region)
    return engine


def wrong(engine: CoverEngine, verdict: Any, covered: bool, by_one: bool) -> str | None:
    """What is wrong about an answer, given the truth; the evidence is another matter."""
    if isinstance(verdict, Covered) and not covered and engine.may_err != "covered":
        return "wrong: covered"
    if isinstance(verdict, Uncovered) and covered:
        return "wrong: uncovered"
    if by_one and engine.covers_by == "one" and not isinstance(verdict, Covered):
        return "one member covers it, and that was not seen"
    decides = engine.name == "exact" or (isinstance(engine, NegativeEngine) and not engine.is_loose)
    if isinstance(verdict, Unproven) and (engine.may_err == "never" or decides):
        return "unproven"
    return None


def not_covered(engine: CoverEngine, verdict: Any) -> bool:
    """A right answer about what is not covered, by an engine that gives up on nothing easy."""
    return isinstance(verdict, Uncovered) or (engine.covers_by == "one" and isinstance(verdict, Unproven))


def bad_evidence(engine: CoverEngine, verdict: Any, region: Region, members: Mapping[Any, Region], cells: Cells) -> str:
    """What is wrong about the evidence, by the oracle and by `verify`; empty if nothing is."""
    if isinstance(verdict, Covered):
        names = verdict.certificate
        if len(set(names)) != len(names) or not set(names) <= members.keys():
            return "the certificate repeats itself or names a stranger"
        if engine.may_err == "covered":
            return ""
        if engine.covers_by == "one" and len(names) > 1:
            return "the certificate of one member names several"
        if not cells.covered(region, [members[name] for name in names]):
            return "the certificate does not cover"
    elif isinstance(verdict, Uncovered):
        if not cells.holds(region, verdict.witness):
            return f"the witness {verdict.witness} is outside the region"
        if any(cells.holds(member, verdict.witness) for member in members.values()):
            return f"the witness {verdict.witness} is in a member"
    return "" if verify(verdict, region, members) else "verify refuses true evidence"


@cache
def cached_sets(attributes: int) -> list[Case]:
    return list(small_box_sets(attributes, soaked(120, 350), SEED))


@cache
def cached_clauses(text: str) -> list[Case]:
    return list(clause_sets(text, soaked(60, 150), SEED))


EDGES = [INT_MIN, INT_MIN + 1, INT_MIN + 2, -(2**62), -2, -1, 0, 1, 2**53, 2**62, INT_MAX - 2, INT_MAX - 1, INT_MAX]


def edge_cases(text: str, count: int) -> Iterable[Case]:
    """Boxes whose ends are extreme, jointly covering about as often as not."""
    space = Space.parse(text)
    ends = [
        sorted({min(max(edge, a.low), a.last) for edge in EDGES} | {a.first, a.low + 1, a.last - 1})
        for a in space.attributes
    ]
    coarse = tuple(0 for _ in ends), tuple(len(each) - 1 for each in ends)

    def fine(box: Box, open_ended: bool) -> Box:
        """Positions among the ends to coordinates; either up to the next end, or only to the end itself."""
        low = tuple(each[at] for each, at in zip(ends, box[0], strict=True))
        nexts = zip(ends, box[1], space.attributes, strict=True)
        high = [each[at + 1] - 1 if at + 1 < len(each) else a.last for each, at, a in nexts]
        if not open_ended:
            high = [each[at] for each, at in zip(ends, box[1], strict=True)]
        return low, tuple(high)

    for number in range(count):
        random = Random(f"{SEED}/{text}/{number}")
        asked = coarse if number % 2 else random_box(random, coarse)
        parts = guillotine(random, asked, random.randint(1, 7))
        boxes = [fine(part, open_ended=random.random() < 0.95) for part in parts]
        boxes += [fine(random_box(random, coarse), False) for _ in range(random.randint(0, 2))]
        queries = [fine(asked, True), fine(random_box(random, coarse), False), whole(space)]
        yield case_of(space, boxes, queries, f"edge_cases({text!r}) number {number}")


EDGE_SPACES = [
    "x int not null",
    "x int",
    "x double",
    "x int not null, y int not null",
    "x int, y double, z int not null",
    "s timestamp, d decimal(18,4), x int not null, y double not null",
]


@cache
def cached_edges(text: str) -> list[Case]:
    return list(edge_cases(text, 60))


def one_by_one(engine: CoverEngine, ids: list[Any], regions: list[Region]) -> list[Any]:
    verdicts = []
    for id, region in zip(ids, regions, strict=True):
        verdict = engine.check(region)
        if isinstance(verdict, Uncovered):
            verdict = Uncovered(verdict.witness)
        if not verdict:
            engine.add(id, region)
        verdicts.append(verdict)
    return verdicts


PLANE = "x double not null -100..100, y double not null -100..100, n int not null 0..100"


def ball(radius: float, x: float, y: float) -> str:
    return f"within({radius!r}D, x, {x!r}D, y, {y!r}D)"


def boundary(random: Random, circles: list[tuple[float, float, float]]) -> list[Any]:
    """Columns of points on and near the edges of balls, a few ulps to either side, and of the corners around them."""
    xs, ys = [], []
    for radius, x, y in circles:
        for turn in range(48):
            angle = 2 * math.pi * (turn + (random.random() if turn % 4 else 0.0)) / 48
            for factor in (1.0, 1 - 2**-52, 1 + 2**-52, 1 - 1e-9, 1 + 1e-9, random.random()):
                xs.append(x + radius * factor * math.cos(angle))
                ys.append(y + radius * factor * math.sin(angle))
        for side in (-1, 1):
            for beyond in (1, 1 - 2**-52, 1 + 2**-52, math.sqrt(0.5)):
                xs += [x + side * radius * beyond, x, x + side * radius * beyond, x + side * radius * beyond]
                ys += [y, y + side * radius * beyond, y - radius * beyond, y + radius * beyond]
    points = [np.clip(np.array(each), -100, 100) for each in (xs, ys)]
    numbers = np.array([random.choice((0, 1, 49, 50, 99, 100)) for _ in xs])
    return [*points, numbers]


def sampled(space: Space, circles: list[tuple[float, float, float]], random: Random) -> list[Any]:
    x, y, n = boundary(random, circles)
    return space.encode_batch({"x": x, "y": y, "n": n})
