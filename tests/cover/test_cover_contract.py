"""The contract of cover engines: every engine of the table, against oracles that share nothing with them.

A new engine gets all of this by its name in `ENGINES`. What is asked of it depends on what it declares: `covers_by`
says when it must find a cover, `may_err` what it may get wrong. The contract goes on in test_cover_members.py,
test_cover_many.py, test_cover_balls.py and test_cover_evidence.py.
"""

from __future__ import annotations

from functools import cache, partial
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.cover_contract import (
    EDGE_SPACES,
    SEED,
    VARIANTS,
    Engine,
    bad_evidence,
    cached_clauses,
    cached_edges,
    cached_sets,
    filled,
    not_covered,
    thinned,
    wrong,
)
from helpers.cover_oracles import (
    MIXED_SPACES,
    Box,
    Case,
    NegativeSpace,
    arrays,
    case_of,
    guillotine,
    in_box,
    ints,
    pinwheel,
    random_boxes,
    region_of,
    whole,
)
from helpers.strategies import examples, soaked
from thatch import Space
from thatch.cover import ENGINES, Covered, Uncovered, verify
from thatch.cover.engine import CoverEngine
from thatch.errors import CallerError
from thatch.region.region import Region
from thatch.region.term import Term


def judge(engine: CoverEngine, case: Case) -> None:
    """Ask everything that a case asks."""
    for position, region in enumerate(case.queries):
        verdict = engine.check(region)
        assert bool(verdict) == isinstance(verdict, Covered)
        problem = wrong(engine, verdict, case.covered[position], case.covered_by_one[position])
        problem = problem or bad_evidence(engine, verdict, region, case.members, case.cells)
        assert not problem, f"{problem}: {engine.name} says {verdict} of {region.to_sql()} among {case}"


# --- Declarations and the plainest answers ----------------------------------------------------------------------------


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
    verdict = engine.check(Region.everything(space))
    assert not_covered(engine, verdict) and not verdict
    assert verify(verdict, Region.everything(space), {})
    assert engine.members_within(Region.everything(space)) == []
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
    assert not engine.check(Region.everything(space))
    engine.check_invariants()
    engine.discard("none")
    assert list(engine) == ["some"]
    engine.check_invariants()


@pytest.mark.parametrize("text", [*MIXED_SPACES, "x int, y double", "x int not null, y double not null 0..1"])
def test_everything_covers_everything(engine_class: Engine, text: str) -> None:
    space = Space.parse(text)
    engine = filled(engine_class, space, {"all": Region.everything(space)})
    assert engine.check(Region.everything(space)) == Covered(("all",))
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


# --- Against the oracles ----------------------------------------------------------------------------------------------


@pytest.mark.long
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


@pytest.mark.long
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
    for number in range(0, count, soaked(4, 1)):
        random = Random(f"{SEED}/{attributes}/{number}")
        space = ints(*[random.choice((20, 1000))] * attributes)
        negative, kept, rows = NegativeSpace(whole(space)), list[Box](), []
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


@pytest.mark.long
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
        verdict = engine.check(Region.everything(space))
        assert not wrong(engine, verdict, len(left) == 0, False), f"set {number}: {verdict} of everything"
        if isinstance(verdict, Uncovered):
            assert left.holds(verdict.witness)
        if number % 20 == 0:
            engine.check_invariants()


# --- Families ---------------------------------------------------------------------------------------------------------


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
        if len(shown) == 4 and isinstance(verdict := engine.check(Region.everything(space)), Uncovered):
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
        verdict = engine.check(Region.everything(space))
        assert not wrong(engine, verdict, True, False), f"{pieces} pieces: {verdict}"
        if isinstance(verdict, Covered):
            assert sorted(verdict.certificate) == sorted(members)  # of a partition none can be spared
            assert verify(verdict, Region.everything(space), members)
        gone = random.randrange(pieces)
        engine.discard(gone)
        verdict = engine.check(Region.everything(space))
        assert not wrong(engine, verdict, False, False), f"{pieces} pieces without {boxes[gone]}: {verdict}"
        if isinstance(verdict, Uncovered):
            assert in_box(verdict.witness, boxes[gone])


# --- The ends of the lattice ------------------------------------------------------------------------------------------


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
    verdict = engine.check(Region.everything(space))
    assert not wrong(engine, verdict, False, False), verdict
    if isinstance(verdict, Uncovered):
        assert in_box(verdict.witness, hole)
    engine.add("hole", region_of(space, *hole))
    members["hole"] = region_of(space, *hole)
    verdict = engine.check(Region.everything(space))
    assert not wrong(engine, verdict, True, False), verdict
    if isinstance(verdict, Covered):
        assert sorted(verdict.certificate) == ["hole", "m0", "m1", "m2"]
        assert verify(verdict, Region.everything(space), members)


def test_conditions_beyond_the_domain(engine_class: Engine) -> None:
    """`<>` a value that the domain does not hold is everything but NULL."""
    space = Space.parse("size int 0..5, kind enum('a', 'b')")
    engine = filled(engine_class, space, {"size": space.where("size <> 9"), "kind": space.where("kind NOT IN ('x')")})
    assert engine.check(space.where("size IS NOT NULL")) == Covered(("size",))
    assert engine.check(space.where("kind IS NOT NULL")) == Covered(("kind",))
    assert not_covered(engine, engine.check(Region.everything(space)))
