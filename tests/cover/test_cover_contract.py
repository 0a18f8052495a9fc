"""The contract of cover engines: every engine of the table, against oracles that share nothing with them.

A new engine gets all of this by its name in `ENGINES`. What is asked of it depends on what it declares: `covers_by`
says when it must find a cover, `may_err` what it may get wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from helpers.cover_oracles import (
    MIXED_SPACES,
    Box,
    Case,
    Cells,
    NegativeSpace,
    arrays,
    case_of,
    clause_pool,
    clause_sets,
    guillotine,
    in_box,
    ints,
    number_anew,
    pinwheel,
    random_box,
    random_boxes,
    region_of,
    small_box_sets,
    whole,
)
from helpers.strategies import examples
from thatch import Space
from thatch.cover import ENGINES, Covered, Uncovered, Unproven, grown, verify
from thatch.cover.engine import CoverEngine
from thatch.cover.negative import NegativeEngine
from thatch.errors import CallerError
from thatch.region.intervals import Intervals
from thatch.region.region import Region
from thatch.region.term import Term

SEED = 20240229
INT_MIN, INT_MAX = -(2**63), 2**63 - 1
Engine = Callable[[Space], CoverEngine]

# Every engine of the table by its name, and the forms of some.
VARIANTS: dict[str, Engine] = {
    **ENGINES,
    "pairwise linear": partial(ENGINES["pairwise"], form="linear"),
    "pairwise poset": partial(ENGINES["pairwise"], form="poset"),
    "negative, at most 2": partial(ENGINES["negative"], k=2),
    "negative, dynamic, merging": partial(
        ENGINES["negative"], k=1, dynamic=True, metric="1/cost", merge=True, departure="exact"
    ),
}
RIVALS = (ENGINES["dominance"],)


@pytest.fixture(params=list(VARIANTS))
def engine_class(request: pytest.FixtureRequest) -> Engine:
    return VARIANTS[request.param]


def thinned(engine_class: Engine, cases: list[Any]) -> list[Any]:
    """All for an engine of the table, some for its other forms and for rivals: the suite must stay fast."""
    return cases[::4] if isinstance(engine_class, partial) or engine_class in RIVALS else cases


def filled(engine_class: Engine, space: Space, members: Mapping[Any, Region]) -> CoverEngine:
    engine = engine_class(space)
    for id, region in members.items():
        engine.add(id, region)
    return engine


def everything(space: Space) -> Region:
    return Region.everything(space)


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


def judge(engine: CoverEngine, case: Case) -> None:
    """Ask everything that a case asks."""
    for position, region in enumerate(case.queries):
        verdict = engine.check(region)
        assert bool(verdict) == isinstance(verdict, Covered)
        problem = wrong(engine, verdict, case.covered[position], case.covered_by_one[position])
        problem = problem or bad_evidence(engine, verdict, region, case.members, case.cells)
        assert not problem, f"{problem}: {engine.name} says {verdict} of {region.to_sql()} beside {case}"


# --- Declarations and the plainest answers ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(ENGINES))
def test_an_engine_declares_itself(name: str) -> None:
    assert ENGINES[name].name == name
    assert ENGINES[name].covers_by in ("one", "union")
    assert ENGINES[name].may_err in ("never", "unproven", "covered")


def test_the_default_engine_never_loses_events() -> None:
    assert ENGINES["exact"].may_err in ("never", "unproven")
    assert ENGINES["exact"].covers_by == "union"


def test_no_members(engine_class: Engine) -> None:
    space = ints(5, 5)
    engine = engine_class(space)
    assert len(engine) == 0 and list(engine) == [] and "a" not in engine
    verdict = engine.check(everything(space))
    assert not_covered(engine, verdict) and not verdict
    assert verify(verdict, everything(space), {})
    assert engine.members_within(everything(space)) == []
    engine.check_invariants()


def test_an_empty_region_is_covered_by_nobody(engine_class: Engine) -> None:
    space = Space.parse("x int, name string")
    engine = engine_class(space)
    for empty in (Region.nothing(space), space.where("1 = 0"), space.where("x > 3 AND x < 2"), space.where("x = NULL")):
        assert engine.check(empty) == Covered(())
    engine.add("a", space.where("x > 0"))
    assert engine.check(Region.nothing(space)) == Covered(())
    assert verify(Covered(()), Region.nothing(space), {})


def test_an_empty_member_covers_nothing(engine_class: Engine) -> None:
    space = ints(4, 4)
    engine = filled(engine_class, space, {"none": Region.nothing(space), "some": space.where("a0 < 2")})
    assert len(engine) == 2 and "none" in engine
    assert engine.check(space.where("a0 < 1")) == Covered(("some",))
    assert not engine.check(everything(space))
    engine.check_invariants()
    engine.discard("none")
    assert list(engine) == ["some"]
    engine.check_invariants()


@pytest.mark.parametrize("text", [*MIXED_SPACES, "x int, y double", "x int not null, y double not null 0..1"])
def test_everything_covers_everything(engine_class: Engine, text: str) -> None:
    space = Space.parse(text)
    engine = filled(engine_class, space, {"all": everything(space)})
    assert engine.check(everything(space)) == Covered(("all",))
    if "name" in text:
        assert engine.check(space.where("name IN ('p', 'q') OR name LIKE 'rs%'")) == Covered(("all",))


def test_ids_and_errors(engine_class: Engine) -> None:
    space = ints(4, 4)
    engine = engine_class(space)
    for id in (7, "seven", ("link", 7)):
        engine.add(id, space.where("a0 = 1"))
    assert len(engine) == 3 and 7 in engine and list(engine) == [7, "seven", ("link", 7)]
    with pytest.raises(CallerError, match="seven"):
        engine.add("seven", space.where("a0 = 2"))
    engine.discard("unknown")
    engine.discard(7)
    engine.discard(7)
    assert 7 not in engine and len(engine) == 2
    engine.add(7, space.where("a0 = 3"))
    assert list(engine) == ["seven", ("link", 7), 7]
    assert engine.check(space.where("a0 = 3 AND a1 = 1")) == Covered((7,))
    engine.check_invariants()


def test_spaces_that_are_equal_mix_and_others_do_not(engine_class: Engine) -> None:
    text = "name string, size int 0..9"
    space, equal, other = Space.parse(text), Space.parse(text), Space.parse("name string, size int 0..8")
    equal.where("name IN ('zebra', 'yak', 'ox')")  # so that its coordinates differ
    engine = filled(engine_class, space, {"a": equal.where("name = 'ox' AND size < 5")})
    verdict = engine.check(equal.where("name = 'ox' AND size < 3"))
    assert verdict == Covered(("a",))
    assert not_covered(engine, engine.check(equal.where("name = 'yak'")))
    assert engine.members_within(equal.where("name <> 'yak'")) == ["a"]
    for ask in (engine.check, engine.members_within, lambda region: engine.add("b", region)):
        with pytest.raises(CallerError):
            ask(other.where("size = 1"))
    assert list(engine) == ["a"]


# --- Against the oracles ---------------------------------------------------------------------------------------------


@cache
def cached_sets(attributes: int) -> list[Case]:
    return list(small_box_sets(attributes, 350, SEED))


@cache
def cached_clauses(text: str) -> list[Case]:
    return list(clause_sets(text, 150, SEED))


def test_the_sets_are_telling() -> None:
    """Enough of every answer, or the suite would prove little."""
    for attributes in range(1, 7):
        cases = cached_sets(attributes)
        covered = [answer for case in cases for answer in case.covered]
        by_one = [answer for case in cases for answer in case.covered_by_one]
        assert sum(covered) > 1.3 * sum(by_one) and len(covered) - sum(covered) > 0.2 * len(covered)
    for text in MIXED_SPACES:
        cases = cached_clauses(text)
        covered = [answer for case in cases for answer in case.covered]
        assert 0.2 * len(covered) < sum(covered) < 0.8 * len(covered)


def test_the_cells_agree_with_events() -> None:
    """The first oracle against `contains`, which Spark vouches for."""
    for text in MIXED_SPACES:
        for case in cached_clauses(text)[:4]:
            events = [case.space.decode(point) for point in case.cells.points()]
            for region in [*case.members.values(), *case.queries]:
                assert case.cells.mask(region).ravel().tolist() == [region.contains(event) for event in events]


def test_the_oracles_agree() -> None:
    for attributes in (1, 2, 3):
        for case in cached_sets(attributes)[:100]:
            negative = NegativeSpace(whole(case.space))
            for box in case.boxes.values():
                negative.subtract(box)
            everything_left = ~case.cells.union(case.members.values())
            assert (negative.count() == 0) == (not everything_left.any())
            for query, covered in zip(case.queries, case.covered, strict=True):
                low, high = query.boxes()
                assert negative.covers((tuple(low[0].tolist()), tuple(high[0].tolist()))) == covered


@pytest.mark.parametrize("attributes", range(1, 7))
def test_small_boxes(engine_class: Engine, attributes: int) -> None:
    for case in thinned(engine_class, cached_sets(attributes)):
        judge(filled(engine_class, case.space, case.members), case)


@pytest.mark.parametrize("text", MIXED_SPACES)
def test_regions_of_clauses(engine_class: Engine, text: str) -> None:
    for case in thinned(engine_class, cached_clauses(text)):
        judge(filled(engine_class, case.space, case.members), case)


@st.composite
def drawn_cases(draw: st.DrawFn) -> Case:
    attributes = draw(st.integers(1, 3))
    space = ints(*[4] * attributes)
    ends = st.tuples(st.integers(0, 3), st.integers(0, 3)).map(sorted)
    box = st.lists(ends, min_size=attributes, max_size=attributes).map(
        lambda sides: (tuple(low for low, _ in sides), tuple(high for _, high in sides))
    )
    boxes, queries = draw(st.lists(box, max_size=8)), draw(st.lists(box, min_size=1, max_size=3))
    return case_of(space, boxes, queries, "drawn")


@examples(250)
@given(case=drawn_cases())
def test_drawn_boxes(case: Case) -> None:
    """The same as above, for the small example that Hypothesis makes of a failure."""
    for engine_class in VARIANTS.values():
        engine = filled(engine_class, case.space, case.members)
        judge(engine, case)
        engine.check_invariants()


@pytest.mark.parametrize("kind", ["int not null 0..6", "int not null"])
@pytest.mark.parametrize("attributes", [9, 20, 64, 66])
def test_few_of_many_attributes(engine_class: Engine, attributes: int, kind: str) -> None:
    """Small sets again, in three of many attributes: the others change no answer, however wide they are."""
    positions = [1, attributes // 2, attributes - 1]
    small = cached_sets(3)[0].space
    names = [
        f"{small.attributes[positions.index(at)]}" if at in positions else f"b{at} {kind}" for at in range(attributes)
    ]
    space = Space.parse(", ".join(names))
    for case in cached_sets(3)[:: 40 if isinstance(engine_class, partial) else 8]:
        members, queries = (
            [Region(space, [lifted(term, positions) for term in region.terms]) for region in regions]
            for regions in (case.members.values(), case.queries)
        )
        named = dict(zip(case.members, members, strict=True))
        engine = filled(engine_class, space, named)
        for position, region in enumerate(queries):
            verdict = engine.check(region)
            problem = wrong(engine, verdict, case.covered[position], case.covered_by_one[position])
            assert not problem, f"{problem}: {verdict} of query {position} of {case}"
            assert verify(verdict, region, named) or engine.may_err == "covered"
            if isinstance(verdict, Uncovered):
                verdict = Uncovered([verdict.witness[at] for at in positions])
            assert not bad_evidence(engine, verdict, case.queries[position], case.members, case.cells), case


def lifted(term: Term, positions: list[int]) -> Term:
    return Term(tuple((positions[index], intervals) for index, intervals in term.sides))


@cache
def larger_sets(attributes: int) -> list[tuple[Space, list[tuple[Box, Region, bool, bool]], NegativeSpace]]:
    """Box by box: covered by those before it? by one of them? And what all of them leave."""
    sets = []
    count, size, share = {2: (70, 100, 0.5), 3: (70, 80, 0.9), 4: (60, 60, 1.0)}[attributes]
    for number in range(count):
        random = Random(f"{SEED}/{attributes}/{number}")
        space = ints(*[random.choice((20, 1000))] * attributes)
        negative, kept, rows = NegativeSpace(whole(space)), [], []
        for box in random_boxes(
            random, space, 200 if number % 20 == 0 and attributes < 4 else size, random.choice((share / 2, share))
        ):
            covered = negative.covers(box)
            low, high = arrays(kept) if kept else (np.zeros((0, attributes)), np.zeros((0, attributes)))
            by_one = bool(((low <= np.array(box[0])).all(1) & (high >= np.array(box[1])).all(1)).any())
            rows.append((box, region_of(space, *box), covered, by_one))
            negative.subtract(box)
            if not by_one:
                kept.append(box)
        sets.append((space, rows, negative))
    return sets


@pytest.mark.parametrize("attributes", [2, 3, 4])
def test_larger_sets_of_boxes(engine_class: Engine, attributes: int) -> None:
    for number, (space, rows, left) in enumerate(thinned(engine_class, larger_sets(attributes))):
        engine, members = engine_class(space), dict[int, Region]()
        boxes: dict[int, Box] = {}
        for position, (box, region, covered, by_one) in enumerate(rows):
            where = f"set {number} of {attributes} attributes, box {position}: {box}"
            verdict = engine.check(region)
            assert not wrong(engine, verdict, covered, by_one), f"{where}: {verdict}"
            if isinstance(verdict, Covered) and engine.may_err != "covered":
                owners = [boxes[name] for name in verdict.certificate]
                if not any(in_box(box[0], each) and in_box(box[1], each) for each in owners):
                    rest = NegativeSpace(box)
                    for each in owners:
                        rest.subtract(each)
                    assert len(rest) == 0, f"{where}: {verdict} leaves {rest.low[0]}..{rest.high[0]}"
                assert position % 3 or verify(verdict, region, members), where
            if isinstance(verdict, Uncovered) and position % 5 == 0:
                assert in_box(verdict.witness, box), where
                assert not any(in_box(verdict.witness, each) for each in boxes.values()), where
                assert verify(verdict, region, members), where
            if not by_one:
                engine.add(position, region)
                members[position], boxes[position] = region, box
        verdict = engine.check(everything(space))
        assert not wrong(engine, verdict, len(left) == 0, False), f"set {number}: {verdict} of everything"
        if isinstance(verdict, Uncovered):
            assert left.holds(verdict.witness)
        if number % 20 == 0:
            engine.check_invariants()


# --- Families --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(1, 1), (1, 4), (3, 2), (1, 100_000), (100_000, 1)])
def test_pinwheel(engine_class: Engine, sizes: tuple[int, int]) -> None:
    """Four boxes around a small hole: narrower than all that a single box leaves."""
    space, boxes, hole = pinwheel(*sizes)
    bounds = whole(space)
    for shown in ([*boxes], [*boxes, hole], [hole, *boxes]):
        case = case_of(space, shown, [bounds, hole, *boxes], f"pinwheel{sizes}")
        assert case.covered[0] == (len(shown) == 5)
        engine = filled(engine_class, space, case.members)
        judge(engine, case)
        if len(shown) == 4 and isinstance(verdict := engine.check(everything(space)), Uncovered):
            assert in_box(verdict.witness, hole)


@pytest.mark.parametrize("attributes", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("size", [100, 2**40])
def test_guillotine_partitions(engine_class: Engine, attributes: int, size: int) -> None:
    random = Random(f"{SEED}/{attributes}/{size}")
    space = ints(*[size] * attributes)
    for pieces in (2, 5, 12, 30):
        boxes = guillotine(random, whole(space), pieces)
        assert len(boxes) == pieces
        random.shuffle(boxes)
        members = {position: region_of(space, *box) for position, box in enumerate(boxes)}
        engine = filled(engine_class, space, members)
        verdict = engine.check(everything(space))
        assert not wrong(engine, verdict, True, False), f"{pieces} pieces: {verdict}"
        if isinstance(verdict, Covered):
            assert sorted(verdict.certificate) == sorted(members)  # of a partition none can be spared
            assert verify(verdict, everything(space), members)
        gone = random.randrange(pieces)
        engine.discard(gone)
        verdict = engine.check(everything(space))
        assert not wrong(engine, verdict, False, False), f"{pieces} pieces without {boxes[gone]}: {verdict}"
        if isinstance(verdict, Uncovered):
            assert in_box(verdict.witness, boxes[gone])


# --- The ends of the lattice -----------------------------------------------------------------------------------------

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


@pytest.mark.parametrize("text", EDGE_SPACES)
def test_extreme_coordinates(engine_class: Engine, text: str) -> None:
    for case in thinned(engine_class, cached_edges(text)):
        engine = filled(engine_class, case.space, case.members)
        judge(engine, case)
        engine.check_invariants()


def test_the_extreme_cases_are_telling() -> None:
    answers = [answer for text in EDGE_SPACES for case in cached_edges(text) for answer in case.covered]
    assert 0.25 * len(answers) < sum(answers) < 0.75 * len(answers)


@pytest.mark.parametrize("kind", ["int", "int not null", "double"])
def test_one_missing_slice_of_full_ranges(engine_class: Engine, kind: str) -> None:
    """Widths of 2^64 in many attributes: volumes beyond the range of doubles, shares below it."""
    for attributes in (2, 3, 5, 9, 17, 20, 40, 66):
        one_missing_slice(engine_class, kind, attributes)


def one_missing_slice(engine_class: Engine, kind: str, attributes: int) -> None:
    space = Space.parse(", ".join(f"a{index} {kind}" for index in range(attributes)))
    low, high = whole(space)
    last = attributes - 1
    parts = [
        (low, (*high[:last], -1)),
        ((*low[:last], 1), high),
        ((*low[:last], 0), (high[0] - 1, *high[1:last], 0)),
    ]
    hole = (high[0], *low[1:last], 0), (*high[:last], 0)
    members = {f"m{position}": region_of(space, *box) for position, box in enumerate(parts)}
    engine = filled(engine_class, space, members)
    verdict = engine.check(everything(space))
    assert not wrong(engine, verdict, False, False), verdict
    if isinstance(verdict, Uncovered):
        assert in_box(verdict.witness, hole)
    engine.add("hole", region_of(space, *hole))
    members["hole"] = region_of(space, *hole)
    verdict = engine.check(everything(space))
    assert not wrong(engine, verdict, True, False), verdict
    if isinstance(verdict, Covered):
        assert sorted(verdict.certificate) == ["hole", "m0", "m1", "m2"]
        assert verify(verdict, everything(space), members)


def test_conditions_beyond_the_domain(engine_class: Engine) -> None:
    """`<>` a value that the domain does not hold is everything but NULL."""
    space = Space.parse("size int 0..5, kind enum('a', 'b')")
    engine = filled(engine_class, space, {"size": space.where("size <> 9"), "kind": space.where("kind NOT IN ('x')")})
    assert engine.check(space.where("size IS NOT NULL")) == Covered(("size",))
    assert engine.check(space.where("kind IS NOT NULL")) == Covered(("kind",))
    assert not_covered(engine, engine.check(everything(space)))


# --- Members come and go ---------------------------------------------------------------------------------------------


@cache
def churn_pool(kind: str) -> tuple[Space, list[Region], Cells]:
    if kind == "boxes":
        space, random = ints(6, 5, 6), Random(SEED)
        pool = [region_of(space, *random_box(random, whole(space))) for _ in range(120)]
    else:
        space, pool = clause_pool(MIXED_SPACES[2], 100, SEED)
    return space, pool, Cells(space, pool)


@pytest.mark.parametrize("kind", ["boxes", "clauses"])
def test_adding_and_discarding(engine_class: Engine, kind: str) -> None:
    """Answers depend on the members alone, not on how they came to be members."""
    space, pool, cells = churn_pool(kind)
    for run in thinned(engine_class, [0, 1, 2]):
        random = Random(f"{SEED}/{kind}/{run}")
        engine, members = engine_class(space), dict[int, Region]()
        for step in range(240):
            growing = 0.75 if step % 80 < 50 else 0.2  # up to some forty, then down to a few
            if not members or random.random() < growing:
                members[step] = random.choice(pool)
                engine.add(step, members[step])
            else:
                gone = random.choice(list(members))
                del members[gone]
                engine.discard(gone)
            assert list(engine) == list(members) and len(engine) == len(members)
            if step % 8 == 0:
                engine.check_invariants()
                fresh = filled(engine_class, space, members)
                for region in random.choices(pool, k=4):
                    verdict, again = engine.check(region), fresh.check(region)
                    where = f"run {run}, step {step}: {verdict} of {region.to_sql()}"
                    if engine.may_err != "covered" and not getattr(engine, "is_loose", False):
                        assert type(verdict) is type(again), f"{where}, but afresh {again}"
                    covered = cells.covered(region, members.values())
                    by_one = cells.covered_by_one(region, members.values())
                    assert not wrong(engine, verdict, covered, by_one), where
                    assert not bad_evidence(engine, verdict, region, members, cells), where


def test_many_come_and_go(engine_class: Engine) -> None:
    """Through growth, many holes, and growth again."""
    space, random = ints(1000, 1000), Random(SEED)
    engine, members, boxes = engine_class(space), dict[int, Region](), dict[int, Box]()
    for id, box in enumerate(random_boxes(random, space, 700, 0.1)):
        members[id], boxes[id] = region_of(space, *box), box
        engine.add(id, members[id])
        if id % 300 == 299:
            for gone in random.sample(sorted(members), len(members) - 20):
                engine.discard(gone)
                del members[gone], boxes[gone]
            engine.check_invariants()
    engine.check_invariants()
    for box in random_boxes(random, space, 60, 0.2):
        region = region_of(space, *box)
        rest = NegativeSpace(box)
        for each in boxes.values():
            rest.subtract(each)
        verdict = engine.check(region)
        assert not wrong(engine, verdict, len(rest) == 0, False)
        assert verify(verdict, region, members) or engine.may_err == "covered"


def test_a_witness_outlives_additions(engine_class: Engine) -> None:
    """A verdict may complete its witness late. Members that come later do not spoil it; a departure may."""
    for case in cached_sets(3)[:60]:
        engine = filled(engine_class, case.space, case.members)
        late = []
        for position, region in enumerate(case.queries):
            verdict = engine.check(region)
            if isinstance(verdict, Uncovered):
                late.append((region, verdict))
                engine.add(f"late{position}", region)
                late.append((region, verdict))
        before = dict(case.members)
        asked: set[int] = set()
        for region, verdict in late:
            if id(verdict) not in asked:
                asked.add(id(verdict))
                assert not bad_evidence(engine, verdict, region, before, case.cells), case
                position = next(i for i, query in enumerate(case.queries) if query is region)
                before[f"late{position}"] = region


def test_a_witness_is_never_wrong_after_a_departure(engine_class: Engine) -> None:
    for case in cached_sets(2)[:80]:
        if not case.members:
            continue
        engine = filled(engine_class, case.space, case.members)
        verdict = engine.check(case.queries[0])
        gone = next(iter(case.members))
        engine.discard(gone)
        if isinstance(verdict, Uncovered):
            rest = {id: region for id, region in case.members.items() if id != gone}
            try:
                point = verdict.witness
            except CallerError:
                continue
            assert not bad_evidence(engine, Uncovered(point), case.queries[0], rest, case.cells), case


# --- members_within --------------------------------------------------------------------------------------------------


def within_by_force(cells: Cells, region: Region, members: Mapping[Any, Region]) -> list[Any]:
    return [id for id, member in members.items() if cells.covered(member, [region])]


@cache
def within_sets(attributes: int) -> list[tuple[Case, list[list[Any]]]]:
    """Who is within each of the queries."""
    cases = cached_sets(attributes)[:80]
    return [(case, [within_by_force(case.cells, each, case.members) for each in case.queries]) for case in cases]


@cache
def within_clauses(text: str) -> list[tuple[Case, dict[Any, Region], list[list[Any]]]]:
    """The same; members that hold nothing are another matter."""
    found = []
    for case in cached_clauses(text):
        members = {id: region for id, region in case.members.items() if not region.is_empty}
        found.append((case, members, [within_by_force(case.cells, each, members) for each in case.queries]))
    return found


@pytest.mark.parametrize("attributes", range(1, 7))
def test_members_within_a_box(engine_class: Engine, attributes: int) -> None:
    for case, answers in within_sets(attributes):
        engine = filled(engine_class, case.space, case.members)
        for region, expected in zip(case.queries, answers, strict=True):
            assert list(engine.members_within(region)) == expected, f"{region.to_sql()} beside {case}"


@pytest.mark.parametrize("text", MIXED_SPACES)
def test_members_within_a_union(engine_class: Engine, text: str) -> None:
    for case, members, answers in within_clauses(text):
        engine = filled(engine_class, case.space, members)
        for region, expected in zip(case.queries, answers, strict=True):
            assert list(engine.members_within(region)) == expected, f"{region.to_sql()} beside {case}"


def test_an_empty_member_is_within_everything(engine_class: Engine) -> None:
    space = ints(4, 4)
    engine = filled(engine_class, space, {"a": space.where("a0 = 3"), "none": Region.nothing(space)})
    assert list(engine.members_within(space.where("a0 < 2"))) == ["none"]


def test_members_within_after_departures(engine_class: Engine) -> None:
    space, pool, cells = churn_pool("boxes")
    random = Random(SEED)
    engine, members = engine_class(space), dict[int, Region]()
    for step in range(200):
        members[step] = random.choice(pool)
        engine.add(step, members[step])
        if step % 3 == 0:
            gone = random.choice(list(members))
            del members[gone]
            engine.discard(gone)
        region = random.choice(pool)
        assert list(engine.members_within(region)) == within_by_force(cells, region, members)


# --- add_many --------------------------------------------------------------------------------------------------------


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


def same_as_one_by_one(
    engine_class: Engine, space: Space, before: Mapping[Any, Region], ids: list[Any], regions: list[Region], given: Any
) -> None:
    """`given`: the regions in the form to hand in. `before`: members already there, every third of them gone again."""
    engines = [engine_class(space), engine_class(space)]
    members: dict[Any, Region] = {}
    for engine in engines:
        members = dict(before)
        for id, region in before.items():
            engine.add(id, region)
        for gone in list(before)[::3]:
            engine.discard(gone)
            del members[gone]
    expected = one_by_one(engines[0], ids, regions)
    verdicts = engines[1].add_many(ids, given)
    assert len(verdicts) == len(ids)
    cells = Cells(space, [*members.values(), *regions])
    for position, (id, region, alone, verdict) in enumerate(zip(ids, regions, expected, verdicts, strict=True)):
        where = f"{position}: {region.to_sql()}: {verdict}, one by one {alone}"
        assert type(verdict) is type(alone) or engines[0].may_err == "covered", where
        assert not bad_evidence(engines[0], verdict, region, members, cells), where
        if not verdict:
            members[id] = region
    assert list(engines[1]) == list(members)
    if engines[0].may_err != "covered":
        assert list(engines[0]) == list(members)
    engines[1].check_invariants()
    for region in regions[::7]:
        assert type(engines[0].check(region)) is type(engines[1].check(region)) or engines[0].may_err == "covered"
        assert list(engines[0].members_within(region)) == list(engines[1].members_within(region))


@pytest.mark.parametrize(
    ("attributes", "already", "form"),
    [
        (1, 0, "arrays"),
        (1, 70, "regions"),
        (2, 9, "arrays"),
        (2, 70, "arrays"),
        (3, 0, "fortran"),
        (3, 70, "regions"),
        (5, 0, "regions"),
        (5, 9, "arrays"),
    ],
)
def test_add_many_boxes(engine_class: Engine, attributes: int, already: int, form: str) -> None:
    random = Random(f"{SEED}/{attributes}/{already}")
    space = ints(*[{1: 400, 2: 30, 3: 10, 5: 4}[attributes]] * attributes)
    before = {
        f"b{position}": region_of(space, *box) for position, box in enumerate(random_boxes(random, space, already, 0.1))
    }
    boxes = random_boxes(random, space, 90, 0.3)
    regions = [region_of(space, *box) for box in boxes]
    given: Any = regions
    if form != "regions":
        low, high = arrays(boxes)
        given = (np.asfortranarray(low), high[::-1][::-1].astype(np.int32)) if form == "fortran" else (low, high)
    same_as_one_by_one(engine_class, space, before, list(range(90)), regions, given)


@cache
def batch_of_clauses(text: str, already: int) -> tuple[Space, dict[str, Region], list[Region]]:
    space, pool = clause_pool(text, 120, SEED + 1)
    random = Random(SEED)
    before = {f"b{position}": region for position, region in enumerate(random.choices(pool[2:], k=already))}
    narrow = [one & other for one, other in zip(random.choices(pool, k=60), random.choices(pool, k=60), strict=True)]
    return space, before, narrow


@pytest.mark.parametrize("text", MIXED_SPACES)
@pytest.mark.parametrize("already", [0, 12])
def test_add_many_clauses(engine_class: Engine, text: str, already: int) -> None:
    space, before, narrow = batch_of_clauses(text, already)
    same_as_one_by_one(engine_class, space, before, list(range(60)), narrow, narrow)


def test_add_many_of_none_and_of_empty_ones(engine_class: Engine) -> None:
    space = ints(4, 4)
    engine = engine_class(space)
    assert list(engine.add_many([], [])) == []
    assert list(engine.add_many([], (np.zeros((0, 2), np.int64), np.zeros((0, 2), np.int64)))) == []
    regions = [space.where("a0 < 2"), Region.nothing(space), space.where("a0 < 1"), space.where("a1 = 1")]
    same_as_one_by_one(engine_class, space, {}, ["a", "b", "c", "d"], regions, regions)
    same_as_one_by_one(engine_class, space, {"x": regions[3], "y": regions[2]}, ["a", "b", "c", "d"], regions, regions)
    low, high = np.array([[0, 0], [3, 3], [0, 0]]), np.array([[1, 3], [2, 3], [0, 3]])  # the second one is empty
    asked = [space.where("a0 < 2"), Region.nothing(space), space.where("a0 < 1")]
    same_as_one_by_one(engine_class, space, {}, ["a", "b", "c"], asked, (low, high))


def test_add_many_takes_any_sequence_of_regions(engine_class: Engine) -> None:
    space = ints(4, 4)
    engine = engine_class(space)
    verdicts = engine.add_many(("a", "b"), (space.where("a0 < 2"), space.where("a0 < 1")))
    assert [bool(each) for each in verdicts] == [False, True]
    assert list(engine) == ["a"]


@pytest.mark.parametrize("twist", ["plain", "arrays", "empty", "ball"])
def test_add_many_refuses_known_ids(engine_class: Engine, twist: str) -> None:
    """All or nothing: who calls again with the id mended must not meet half of the batch."""
    space = Space.parse("x double not null 0..100, y double not null 0..100")
    engine = filled(engine_class, space, {"old": space.where("x < 5")})
    last = {"empty": "1 = 0", "ball": "within(3, x, 50, y, 50)"}.get(twist, "x = 60")
    regions: Any = [space.where("x < 20"), space.where("x < 10"), space.where(last)]
    if twist == "arrays":
        boxes = [region.boxes() for region in regions]
        regions = np.concatenate([low for low, _ in boxes]), np.concatenate([high for _, high in boxes])
    for ids in (["a", "b", "a"], ["b", "old", "c"], ["b", "b", "c"]):
        with pytest.raises(CallerError):
            engine.add_many(ids, regions)
        assert list(engine) == ["old"]
    engine.check_invariants()
    assert not_covered(engine, engine.check(space.where("x = 15")))


def test_add_many_refuses_boxes_that_do_not_fit(engine_class: Engine) -> None:
    space = ints(5, 5)
    engine = filled(engine_class, space, {"old": space.where("a0 = 1")})
    low, high = np.zeros((2, 2), np.int64), np.full((2, 2), 4)
    beyond = high.copy()
    beyond[1, 0] = 5
    bad: list[tuple[list[str], Any]] = [
        (["a", "b"], (low, beyond)),
        (["a", "b"], (low - 1, high)),
        (["a", "b", "c"], (low, high)),
        (["a"], (low, high)),
        (["a", "b"], (low, high[:1])),
        (["a", "b"], (low[:, :1], high[:, :1])),
        (["a", "b"], [space.where("a0 = 1")]),
    ]
    for ids, regions in bad:
        with pytest.raises(ValueError):
            engine.add_many(ids, regions)
        assert list(engine) == ["old"]
        engine.check_invariants()
        assert not_covered(engine, engine.check(space.where("a0 = 2")))


def test_a_batch_keeps_its_own_ids(engine_class: Engine) -> None:
    space, ids = ints(10, 10), ["a", "b"]
    engine = engine_class(space)
    verdicts = engine.add_many(ids, [region_of(space, (0, 0), (5, 5)), region_of(space, (1, 1), (2, 2))])
    ids[0] = "other"
    assert verdicts[1] == Covered(("a",))


def test_members_that_are_loaded_keep_their_order(engine_class: Engine) -> None:
    """Plain boxes, unions, empty ones and balls, as they come; and they leave no trace."""
    space = Space.parse("x int not null 0..99, y int not null 0..99")
    clauses = ["x < 9 OR y < 9", "x < 50", "FALSE", "within(5, x, 20, y, 20)", "y > 30", "x IN (1, 5, 9)", "x > 3"]
    regions = {str(number): space.where(clause) for number, clause in enumerate(clauses)}
    engine = engine_class(space)
    engine.load(list(regions), list(regions.values()))
    engine.check_invariants()
    assert list(engine) == list(regions)
    assert engine.members_within(everything(space)) == list(regions)
    ball_and_box = space.where("within(2, x, 20, y, 20) OR (x < 9 AND y < 40)")
    verdict = engine.check(ball_and_box)
    if isinstance(verdict, Covered):
        assert list(verdict.certificate) == sorted(verdict.certificate)
    for id in regions:
        engine.discard(id)
    engine.check_invariants()
    assert len(engine) == 0


def test_verdicts_of_add_many_are_a_sequence(engine_class: Engine) -> None:
    space = ints(10, 10)
    boxes = [((0, 0), (3, 9)), ((1, 1), (2, 2)), ((4, 0), (9, 9)), ((0, 0), (9, 9))]
    engine = engine_class(space)
    verdicts = engine.add_many(list("abcd"), arrays(boxes))
    assert len(verdicts) == 4
    assert [bool(verdict) for verdict in verdicts][:3] == [False, True, False]
    assert verdicts[1] == verdicts[-3] == Covered(("a",))
    assert [bool(each) for each in verdicts[1:3]] == [True, False]
    with pytest.raises(IndexError):
        verdicts[4]


def test_a_later_batch_leaves_earlier_verdicts_alone(engine_class: Engine) -> None:
    """Verdicts may be made into objects late: then they still speak of their own moment."""
    space, random = ints(30, 30), Random(SEED)
    engine = engine_class(space)
    boxes = random_boxes(random, space, 120, 0.4)
    regions = [region_of(space, *box) for box in boxes]
    cells = Cells(space, regions)
    first = engine.add_many(list(range(60)), arrays(boxes[:60]))
    second = engine.add_many(list(range(60, 120)), arrays(boxes[60:]))
    members: dict[int, Region] = {}
    for position, (region, verdict) in enumerate(zip(regions, [*first, *second], strict=True)):
        assert not bad_evidence(engine, verdict, region, members, cells), position
        if not verdict:
            members[position] = region
    assert list(engine) == list(members)


def test_certificates_of_a_batch_outlive_departures(engine_class: Engine) -> None:
    """Looked at late, a certificate still names those that proved it then."""
    space = ints(10, 10)
    boxes = [((0, 0), (4, 9)), ((5, 0), (9, 9)), ((1, 1), (2, 2)), ((6, 1), (7, 2))]
    engine = engine_class(space)
    verdicts = engine.add_many(list("abcd"), arrays(boxes))
    engine.discard("a")
    assert verdicts[2] == Covered(("a",)) and verdicts[3] == Covered(("b",))


# --- Strings that are numbered anew ----------------------------------------------------------------------------------


def test_a_batch_looked_at_late(engine_class: Engine) -> None:
    """A verdict of a batch is looked at when members have left, and when strings are numbered anew: its witness is of
    the members as they were, or refused."""
    space = Space.parse("name string not null, n int not null 0..99")
    random = Random(SEED)
    for change in ("departure", "numbering"):
        clauses = [
            f"name BETWEEN '{random.choice('abcdef')}' AND '{random.choice('ghijkl')}' AND n < {random.randint(5, 90)}"
            for _ in range(30)
        ]
        regions = {number: space.where(clause) for number, clause in enumerate(clauses)}
        engine = engine_class(space)
        verdicts = engine.add_many(list(regions), list(regions.values()))
        added = list(engine)
        if change == "departure":
            for id in added[::2]:
                engine.discard(id)
        else:
            number_anew(space)
        for number, verdict in enumerate(verdicts):
            if isinstance(verdict, Uncovered):
                before = {id: regions[id] for id in added if id < number}
                try:
                    assert verdict.witness
                except CallerError:  # "check again for a witness"
                    continue
                assert verify(verdict, regions[number], before)


def test_renumbered_strings(engine_class: Engine) -> None:
    """Coordinates change under an engine; its answers may not."""
    space = Space.parse("name string, size int 0..9")
    members = {
        "low": space.where("name < 'm' OR name IS NULL"),
        "m": space.where("name = 'm' AND size < 5"),
        "rest": space.where("name > 'm' AND size IN (1, 2, 3)"),
    }
    engine = filled(engine_class, space, members)
    early = engine.check(space.where("name > 'm'"))
    number_anew(space)
    asked = {"name <= 'k'": "low", "name = 'm' AND size = 4": "m", "name = 'n' AND size = 2": "rest"}
    for clause, name in asked.items():
        verdict = engine.check(space.where(clause))
        assert verdict == Covered((name,)), clause
        assert verify(verdict, space.where(clause), members)
    for clause in ("name = 'm' AND size = 5", "name LIKE 'm%'", "name = 'maaa'"):
        verdict = engine.check(space.where(clause))
        assert not_covered(engine, verdict), clause
        assert verify(verdict, space.where(clause), members)
    assert list(engine.members_within(space.where("name >= 'm'"))) == ["m", "rest"]
    if isinstance(early, Uncovered):
        try:
            point = early.witness
        except CallerError:
            point = None
        if point is not None:  # in today's coordinates, or refused; never a point of another meaning
            assert verify(Uncovered(point), space.where("name > 'm'"), members)
    engine.discard("low")
    engine.add("low", space.where("name < 'm'"))
    assert not_covered(engine, engine.check(space.where("name IS NULL")))
    engine.check_invariants()


def test_a_ball_among_renumbered_strings(engine_class: Engine) -> None:
    """The first to notice the new numbering may be the very member that is being added."""
    space = Space.parse("name string, x double not null, y double not null")
    engine = filled(engine_class, space, {"other": space.where("name = 'other' AND within(1, x, 0, y, 0)")})
    member = space.where("name >= 'b' AND within(5, x, 0, y, 0)")
    number_anew(space)
    engine.add("ball", member)
    engine.check_invariants()
    asked = space.where("name = 'c' AND within(5, x, 0, y, 0)")
    assert engine.check(asked) == Covered(("ball",))
    touching = engine.check(space.where("name = 'c' AND x = 3D AND y = 4D"))
    assert not isinstance(touching, Uncovered)
    assert engine.check(space.where("name = 'other' AND within(0.5, x, 0, y, 0)"))


def test_renumbering_between_the_regions_of_a_batch(engine_class: Engine) -> None:
    space = Space.parse("name string")
    first = [space.where("name < 'm'"), space.where("name >= 'm' AND name < 'x'")]
    engine = engine_class(space)
    engine.add_many(["a", "b"], first)
    number_anew(space)
    verdicts = engine.add_many(["c", "d"], [space.where("name = 'maa'"), space.where("name >= 'x'")])
    assert [bool(each) for each in verdicts] == [True, False]
    assert verdicts[0] == Covered(("b",))
    engine.check_invariants()


# --- Large sets ------------------------------------------------------------------------------------------------------


def test_watchlists(engine_class: Engine) -> None:
    """IN sets of thousands, alone and crossed: one member that holds them is always found, and nothing blows up."""
    space = Space.parse("a int, b int")
    evens, few = (", ".join(str(2 * at) for at in range(count)) for count in (3000, 1000))
    members = {"evens": space.where(f"a IN ({evens})"), "square": space.where(f"a IN ({few}) AND b IN ({few})")}
    engine = filled(engine_class, space, members)
    assert engine.check(members["evens"]) == Covered(("evens",))
    assert isinstance(engine.check(space.where(f"a IN ({few})")), Covered)
    assert isinstance(engine.check(space.where("a IN (2, 4, 5998)")), Covered)
    assert isinstance(engine.check(members["square"]), Covered)
    assert not isinstance(engine.check(space.where("a IN (2, 3)")), Covered)
    assert not isinstance(engine.check(space.where("a BETWEEN 0 AND 100")), Covered)
    assert list(engine.members_within(members["evens"])) == ["evens", "square"]
    assert list(engine.members_within(members["square"])) == ["square"]
    assert list(engine.members_within(everything(space))) == ["evens", "square"]
    engine.add("all", space.where("a >= 0"))
    assert isinstance(engine.check(members["evens"]), Covered)
    engine.discard("evens")
    engine.discard("square")
    assert engine.check(space.where(f"a IN ({evens})")) == Covered(("all",))
    engine.check_invariants()


# --- Balls -----------------------------------------------------------------------------------------------------------

PLANE = "x double not null -100..100, y double not null -100..100, n int not null 0..100"


def ball(radius: float, x: float, y: float) -> str:
    return f"within({radius!r}D, x, {x!r}D, y, {y!r}D)"


def boundary(random: Random, circles: list[tuple[float, float, float]]) -> list[Any]:
    """Columns of points on and beside the edges of balls, a few ulps to either side, and of the corners around them."""
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


@pytest.mark.parametrize("around", ["itself", "a larger ball", "a box", "one side", "everything"])
def test_a_ball_that_one_member_surely_covers(engine_class: Engine, around: str) -> None:
    space = Space.parse(PLANE)
    for radius, x, y in product([1e-300, 0.1, 1.0, 3.3, 40.0], [0.0, 0.1, 99.0], [0.0, -7.3]):
        asked, reach = space.where(ball(radius, x, y)), radius * 1.001 + 1e-9
        sides = [f"{name} BETWEEN {at - reach!r}D AND {at + reach!r}D" for name, at in (("x", x), ("y", y))]
        clause = {
            "itself": ball(radius, x, y),
            "a larger ball": ball(radius * 1.5, x, y),
            "a box": " AND ".join(sides),
            "one side": sides[1],
            "everything": "TRUE",
        }[around]
        members = {"far": space.where(ball(0.5, -50.0, -50.0)), "around": space.where(clause)}
        engine = filled(engine_class, space, members)
        verdict = engine.check(asked)
        assert verdict == Covered(("around",)), f"{ball(radius, x, y)} in {clause}"
        assert verify(verdict, asked, members)
        assert engine.check(asked & space.where("n = 3")) == Covered(("around",))
        within = filled(engine_class, space, {"asked": asked}).members_within(members["around"])
        assert list(within) == ["asked"], f"{ball(radius, x, y)} in {clause}"
        engine.discard("around")
        assert not isinstance(engine.check(asked), Covered)
        engine.check_invariants()


@dataclass
class BallCase:
    """Members and a question with balls; and whether points near their edges are in them."""

    members: dict[int, Region]
    clause: str
    region: Region
    inside: NDArray[np.bool_]
    held: dict[int, NDArray[np.bool_]]


@cache
def ball_cases() -> tuple[Space, list[BallCase]]:
    space, cases = Space.parse(PLANE), []
    for number in range(120):
        random = Random(f"{SEED}/balls/{number}")
        circles, members = [], {}
        for id in range(random.randint(1, 7)):
            circle = random.choice((2.0, 5.0, 5.0, 9.0)), float(random.randint(-4, 4)), float(random.randint(-4, 4))
            clause = ball(*circle)
            if random.random() < 0.4:
                ends = sorted(random.choices((-9.0, -5.0, -4.0, -3.0, 0.0, 3.0, 4.0, 5.0, 9.0), k=2))
                clause = f"x BETWEEN {ends[0]!r}D AND {ends[1]!r}D"
                clause += random.choice(("", " AND y <= 5D", " AND y > 0D"))
            else:
                circles.append(circle)
                clause += random.choice(("", " AND n < 50", " AND n >= 50", " AND x >= 0D", " OR n = 50"))
            members[id] = space.where(clause)
        asked = random.choice((2.0, 5.0, 4.99)), float(random.randint(-3, 3)), float(random.randint(-3, 3))
        clause = ball(*asked) + random.choice(("", " AND x < 0D", " AND n IN (0, 99)"))
        if number % 3 == 0:
            clause = random.choice(
                ("x BETWEEN -3D AND 3D AND y BETWEEN -4D AND 4D", "x = 3D AND y = 4D", "x < 2D AND n = 1")
            )
        region = space.where(clause)
        columns = sampled(space, [*circles, asked, (math.hypot(3, 4), 0.0, 0.0)], random)
        held = {id: member.contains_points(columns) for id, member in members.items()}
        cases.append(BallCase(members, clause, region, region.contains_points(columns), held))
    return space, cases


def test_balls_are_never_covered_wrongly(engine_class: Engine) -> None:
    space, cases = ball_cases()
    found: dict[type, int] = {}
    for case in cases:
        members, region = case.members, case.region
        engine = filled(engine_class, space, members)
        verdict = engine.check(region)
        found[type(verdict)] = found.get(type(verdict), 0) + 1
        if isinstance(verdict, Covered) and engine.may_err != "covered":
            held = np.zeros(len(case.inside), np.bool_)
            for name in verdict.certificate:
                held |= case.held[name]
            assert not (case.inside & ~held).any(), f"{verdict} of {case.clause}"
            assert verify(verdict, region, members), f"{verdict} of {case.clause}"
        if isinstance(verdict, Uncovered):
            assert verify(verdict, region, members)
            event = space.decode(verdict.witness)
            assert region.contains(event)
            assert not any(member.contains(event) for member in members.values())
        for name in engine.members_within(region):
            assert not (case.held[name] & ~case.inside).any(), f"{name} is not within {case.clause}"
        for gone in list(members)[::2]:
            engine.discard(gone)
        engine.check_invariants()
    assert found[Covered] >= 10
    if engine_class(space).covers_by == "union":
        assert found[Uncovered] >= 10


def test_balls_in_a_batch(engine_class: Engine) -> None:
    space = Space.parse(PLANE)
    random = Random(SEED)
    clauses = []
    for _ in range(40):
        radius, x, y = random.choice((1.0, 2.0, 8.0)), float(random.randint(-2, 2)), float(random.randint(-2, 2))
        clauses.append(random.choice((ball(radius, x, y), f"x BETWEEN {x - radius!r}D AND {x + radius!r}D AND n < 50")))
    regions = [space.where(clause) for clause in clauses]
    together, alone = engine_class(space), engine_class(space)
    expected = one_by_one(alone, list(range(40)), regions)
    verdicts = together.add_many(list(range(40)), regions)
    assert [type(each) for each in verdicts] == [type(each) for each in expected]
    assert list(together) == list(alone)
    assert len(together) < 40
    together.check_invariants()


def test_members_within_a_ball(engine_class: Engine) -> None:
    """What one ball surely covers of others, and a box of balls."""
    space = Space.parse(PLANE)
    members = {
        "same": space.where(ball(2.0, 1.0, 1.0)),
        "smaller": space.where(ball(1.0, 1.0, 1.0) + " AND n = 4"),
        "larger": space.where(ball(2.5, 1.0, 1.0)),
        "tiny": space.where(ball(1e-300, 1.0, 1.0)),
        "far": space.where(ball(2.0, 50.0, 1.0)),
    }
    engine = filled(engine_class, space, members)
    assert list(engine.members_within(space.where(ball(2.0, 1.0, 1.0)))) == ["same", "smaller", "tiny"]
    around = space.where("x BETWEEN -2D AND 4D AND y BETWEEN -2D AND 4D")
    assert list(engine.members_within(around)) == ["same", "smaller", "larger", "tiny"]
    assert list(engine.members_within(everything(space))) == list(members)


def test_balls_that_do_not_meet_hold_nothing(engine_class: Engine) -> None:
    space = Space.parse(PLANE)
    region = space.where(f"{ball(1.0, 0.0, 0.0)} AND {ball(1.0, 10.0, 0.0)}")
    verdict = engine_class(space).check(region)
    assert not isinstance(verdict, Uncovered)
    assert verify(verdict, region, {})


# --- verify ----------------------------------------------------------------------------------------------------------


def verified_like_the_oracle(case: Case, random: Random) -> None:
    names = list(case.members)
    for region in case.queries:
        for _ in range(3):
            some = tuple(random.sample(names, random.randint(0, len(names))))
            truth = case.cells.covered(region, [case.members[name] for name in some])
            assert verify(Covered(some), region, case.members) == truth, f"{some} for {region.to_sql()} beside {case}"
            point = tuple(random.choice(starts) for starts in case.cells.starts)
            truth = case.cells.holds(region, point) and not any(
                case.cells.holds(member, point) for member in case.members.values()
            )
            assert verify(Uncovered(point), region, case.members) == truth, (
                f"{point} for {region.to_sql()} beside {case}"
            )
        assert verify(Unproven("no reason"), region, case.members)


def test_verify_tells_right_from_wrong() -> None:
    random = Random(SEED)
    for attributes in range(1, 7):
        for case in cached_sets(attributes)[:50]:
            verified_like_the_oracle(case, random)
    for text in MIXED_SPACES:
        for case in cached_clauses(text)[:40]:
            verified_like_the_oracle(case, random)
    for text in EDGE_SPACES:
        for case in cached_edges(text)[:25]:
            verified_like_the_oracle(case, random)


def test_verify_refuses_strangers() -> None:
    space = ints(5, 5)
    members = {"a": everything(space)}
    region = space.where("a0 = 1")
    assert verify(Covered(("a",)), region, members)
    assert not verify(Covered(("b",)), region, members)
    assert not verify(Covered(("a", "b")), region, members)
    assert not verify(Covered(()), region, members)
    assert not verify(Covered(("a",)), region, {})
    assert verify(Covered(()), Region.nothing(space), {})
    assert not verify(Covered(("b",)), Region.nothing(space), members)


def test_verify_refuses_what_is_no_point() -> None:
    """An unbounded side holds any number; a witness must be a point of the space all the same."""
    space = ints(5, 5)
    for point in ((5, 0), (-1, 0), (0, 10**30), (0,), (), (0, 0, 0)):
        assert not verify(Uncovered(point), everything(space), {}), point
        assert not verify(Uncovered(point), space.where("a0 >= 0 OR a1 = 3"), {}), point


def test_a_verdict_is_true_only_if_covered() -> None:
    assert Covered(("a",)) and Covered(())
    assert not Uncovered((1, 2)) and not Unproven("too far")
    assert Uncovered((1, 2)) == Uncovered((1, 2)) != Uncovered((1, 3))
    assert Uncovered((1, 2)).witness == (1, 2)
    asked = []
    late = Uncovered(complete=lambda: asked.append(1) or [np.int64(3), 4])
    assert not late and not asked and "3" not in repr(late)
    assert late.witness == (3, 4) == late.witness and asked == [1]
    assert all(type(each) is int for each in late.witness)


# --- Options of exact ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [{"nodes_max": 1}, {"nodes_max": 3}, {"tests_max": 1}, {"tests_max": 12}])
def test_a_small_budget_is_unproven_and_never_wrong(budget: dict[str, int]) -> None:
    found: dict[type, int] = {}
    for case in [*cached_sets(2)[:60], *cached_sets(4)[:60], *cached_clauses(MIXED_SPACES[2])[:60]]:
        engine = ENGINES["exact"](case.space, **budget)
        for id, region in case.members.items():
            engine.add(id, region)
        for region, covered in zip(case.queries, case.covered, strict=True):
            verdict = engine.check(region)
            found[type(verdict)] = found.get(type(verdict), 0) + 1
            assert isinstance(verdict, Unproven) or isinstance(verdict, Covered) == covered
            assert not bad_evidence(engine, verdict, region, case.members, case.cells)
    assert all(found[kind] > 10 for kind in (Covered, Uncovered, Unproven))


@pytest.mark.parametrize("overlap", [-1, 0, 5])
def test_two_side_by_side_need_no_budget(overlap: int) -> None:
    """Among many others, across every attribute, out to the ends of 64 bits; with a gap of one they do not cover."""
    random, d = Random(SEED), 4
    space = Space.parse(", ".join(f"x{axis} int not null" for axis in range(d)))
    least, most = (side[0].tolist() for side in (space.low, space.high))
    for axis in range(d):
        engine = ENGINES["exact"](space, nodes_max=0, tests_max=0)
        middle = random.randrange(-(2**62), 2**62)
        below, above = most.copy(), least.copy()
        below[axis], above[axis] = middle + overlap, middle + 1
        members = {number: region_of(space, *random_corners(random, least, most)) for number in range(200)}
        members |= {"below": region_of(space, least, below), "above": region_of(space, above, most)}
        order = list(members)
        random.shuffle(order)
        for id in order:
            engine.add(id, members[id])
        verdict = engine.check(Region.everything(space))
        assert isinstance(verdict, Covered) == (overlap >= 0)
        assert overlap < 0 or set(verdict.certificate) == {"below", "above"}


def random_corners(random: Random, least: list[int], most: list[int]) -> tuple[list[int], list[int]]:
    """A box that is not the whole of any attribute."""
    ends = [sorted(random.randrange(low + 1, high) for _ in range(2)) for low, high in zip(least, most, strict=True)]
    return [low for low, _ in ends], [high for _, high in ends]


def test_a_small_budget_beside_balls() -> None:
    """One term past the budget, another one uncovered, and a ball among the members."""
    space = Space.parse("x int not null 0..99, y int not null 0..99, z int not null 0..99")
    random = Random(SEED)
    for nodes_max in (1, 2, 5, 20):
        engine = ENGINES["exact"](space, nodes_max=nodes_max)
        members = {"ball": space.where("within(3, x, 90, y, 90)")}
        for position, box in enumerate(guillotine(random, ((0, 0, 0), (49, 99, 99)), 60)):
            members[position] = region_of(space, *box)
        for id, region in members.items():
            engine.add(id, region)
        region = space.where("x < 50 OR (x > 60 AND y > 60)")
        verdict = engine.check(region)
        assert not isinstance(verdict, Covered)
        assert verify(verdict, region, members)


# --- grown -----------------------------------------------------------------------------------------------------------


def steps_outward(box: Region) -> Iterable[Region]:
    """The slabs, one coordinate thick, that would be added if the box were widened in one direction."""
    space = box.space
    (low,), (high,) = box.boxes()
    for axis, attribute in enumerate(space.attributes):
        for at in (int(low[axis]) - 1, int(high[axis]) + 1):
            if attribute.low <= at <= attribute.last:
                ends = [[int(a), int(b)] for a, b in zip(low, high, strict=True)]
                ends[axis] = [at, at]
                yield Region(space, [Term(tuple((i, Intervals.between(*pair)) for i, pair in enumerate(ends)))])


def grown_is_maximal(case: Case, engine: CoverEngine) -> int:
    grown_boxes = 0
    for region, covered in zip(case.queries, case.covered, strict=True):
        verdict = engine.check(region)
        if covered or not isinstance(verdict, Uncovered):
            continue
        members = list(case.members.values())
        box = grown(verdict.witness, region, members)
        assert box.contains_point(verdict.witness)
        assert sum(term.box_count() for term in box.terms) == 1 and not box.has_balls
        steps = list(steps_outward(box))
        cells = Cells(case.space, [region, box, *members, *steps])
        where = f"{box.to_sql()} grown from {verdict.witness} in {region.to_sql()} beside {case}"
        free = cells.mask(region) & ~cells.union(members)
        assert not (cells.mask(box) & ~free).any(), where
        for step in steps:
            assert (cells.mask(step) & ~free).any(), f"{where}: could grow by {step.to_sql()}"
        grown_boxes += 1
    return grown_boxes


def test_a_grown_witness_cannot_be_widened() -> None:
    engine_class = ENGINES["exact"]
    count = 0
    for attributes in range(1, 7):
        for case in cached_sets(attributes)[:50]:
            count += grown_is_maximal(case, filled(engine_class, case.space, case.members))
    for text in EDGE_SPACES:
        for case in cached_edges(text)[:15]:
            count += grown_is_maximal(case, filled(engine_class, case.space, case.members))
    assert count > 200


def test_a_grown_witness_of_a_union_cannot_be_widened() -> None:
    """Also where terms of the region touch: the box may reach from one into the other."""
    engine_class = ENGINES["exact"]
    count = sum(
        grown_is_maximal(case, filled(engine_class, case.space, case.members))
        for text in MIXED_SPACES
        for case in cached_clauses(text)[:50]
    )
    assert count > 50


def test_a_grown_witness_beside_balls() -> None:
    space = Space.parse(PLANE)
    region = space.where("x BETWEEN -20D AND 20D AND y BETWEEN -20D AND 20D")
    members = [space.where(ball(5.0, 0.0, 0.0)), space.where("x > 10D")]
    random = Random(SEED)
    columns = sampled(space, [(5.0, 0.0, 0.0), (4.0, -8.0, 3.0), (7.5, 2.0, 2.0)], random)
    for event in ({"x": -8.0, "y": 3.0, "n": 5}, {"x": 4.0, "y": 4.0, "n": 0}, {"x": 0.0, "y": 5.5, "n": 100}):
        box = grown(space.encode(event), region, members)
        assert box.contains(event) and not box.has_balls
        inside = box.contains_points(columns)
        assert not (inside & ~region.contains_points(columns)).any()
        for member in members:
            assert not (inside & member.contains_points(columns)).any()
    round_region = space.where(ball(9.0, 1.0, 1.0))
    box = grown(space.encode({"x": 1.0, "y": 1.0, "n": 7}), round_region, [space.where("n = 9")])
    columns = sampled(space, [(9.0, 1.0, 1.0)], random)
    assert not (box.contains_points(columns) & ~round_region.contains_points(columns)).any()
    assert not (box & space.where("n = 9")).terms


def test_grown_refuses_a_point_outside() -> None:
    space = ints(5, 5)
    with pytest.raises(CallerError):
        grown((4, 4), space.where("a0 < 3"), [])
