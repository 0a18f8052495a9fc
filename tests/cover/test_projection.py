"""Balls: the index against exact arithmetic, the engine against `pairwise`, and the paper's own numbers."""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest
from benchmarks.cover_balls import as_balls, by_projections, drawn_balls, wrong_shares
from hypothesis import given
from hypothesis import strategies as st

from helpers.strategies import examples, soaked
from thatch import Space
from thatch.cover import Covered, CoverEngine, PairwiseEngine, ProjectionEngine, verify
from thatch.cover.balls import BallIndex, random_vectors, surely_held
from thatch.cover.projection import bounding_cubes_cover, inscribed_cubes_cover
from thatch.errors import CallerError
from thatch.region.ball import Ball
from thatch.region.region import Region

SEED = 20240229
FORMS = ("scan", "tree", "auto")


def covers(outer: Ball, inner: Ball) -> bool:
    """In exact arithmetic."""
    at = dict(zip(inner.attributes, inner.centre, strict=True))
    reach = Fraction(outer.radius) - Fraction(inner.radius)
    square = sum((Fraction(at[i]) - Fraction(c)) ** 2 for i, c in zip(outer.attributes, outer.centre, strict=True))
    return reach >= 0 and square <= reach**2


def asked_rightly(index: BallIndex, stored: dict[int, Ball], ball: Ball) -> None:
    """Candidates leave out nothing that covers, and answers are those of `holds`."""
    around = index.around(ball.centre, ball.radius).tolist()
    inside = index.inside(ball.centre, ball.radius).tolist()
    assert around == sorted(set(around)) and set(around) <= stored.keys() >= set(inside)
    projected = set(index.projected(ball).tolist())
    for slot, each in stored.items():
        if covers(each, ball):
            assert slot in around and slot in projected, (each, ball)
        assert slot in inside or not covers(ball, each), (each, ball)
    found = index.coverer(ball)
    holders = [slot for slot, each in stored.items() if each.holds(ball)]
    assert found in holders if holders else found is None
    together = index.coverers(np.array([ball.centre, ball.centre]), np.array([ball.radius, ball.radius / 2])).tolist()
    assert together[0] in holders if holders else together[0] == -1
    half = Ball(ball.attributes, ball.centre, ball.radius / 2)
    assert (
        stored[together[1]].holds(half) if together[1] >= 0 else not any(each.holds(half) for each in stored.values())
    )
    assert index.covered(ball) == sorted(slot for slot, each in stored.items() if ball.holds(each))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [5e-324, 1e-310, 1e-200, 1e-170, 1e-160])
def test_centres_whose_squares_underflow(form: str, size: float) -> None:
    """Their length counts as 0, and so did the roundings of their projections."""
    draw = np.random.default_rng(7)
    index, stored = BallIndex((0, 1, 2), form=form, tail_max=3), dict[int, Ball]()
    for row in (draw.uniform(-9, 9, (40, 3)) * size).tolist():
        ball = Ball((0, 1, 2), (row[0], row[1], row[2]), 0.0)
        stored[index.insert(ball)] = ball
    for ball in list(stored.values()):
        asked_rightly(index, stored, ball)


# --- The index -------------------------------------------------------------------------------------------------------

sizes = st.sampled_from([0.0, 5e-324, 1e-200, 1e-161, 1e-150, 0.1, 1.0, 1e9, 1e140])
steps = st.sampled_from([0.0, 1.0, 0.1, 2.0, 3.0, -0.3, -5.0, 0.7 + 2.0**-50])


@st.composite
def odd_balls(draw: st.DrawFn) -> list[Ball]:
    """Balls of one size or several, many of which touch, coincide or share a centre."""
    d, size = draw(st.integers(1, 3)), draw(sizes)
    found: list[Ball] = []
    for _ in range(draw(st.integers(1, 14))):
        if draw(st.integers(0, 5)) == 0:
            size = draw(sizes)
        centre = tuple(draw(steps) * size for _ in range(d))
        if len(found) > 0 and draw(st.booleans()):  # touches another one from within, or nearly
            other = draw(st.sampled_from(found))
            radius = (other.radius + math.dist(other.centre, centre)) * draw(st.sampled_from([1, 1 + 2.0**-45, 2]))
        else:
            radius = abs(draw(steps)) * size
        found.append(Ball(tuple(range(d)), centre, radius))
    return found


@examples(100)
@given(odd_balls(), st.data(), st.sampled_from(FORMS), st.integers(0, 3))
def test_odd_balls(drawn: list[Ball], data: st.DataObject, form: str, vectors: int) -> None:
    stored: dict[int, Ball] = {}
    index = BallIndex(drawn[0].attributes, vectors=vectors, form=form, seed=vectors, tail_max=3)
    for ball in drawn:
        asked_rightly(index, stored, ball)
        stored[index.insert(ball)] = ball
        if data.draw(st.integers(0, 3)) == 0:
            gone = data.draw(st.sampled_from(sorted(stored)))
            index.remove(gone)
            del stored[gone]
        index.check_invariants()
    for ball in drawn:
        asked_rightly(index, stored, ball)
        assert {slot: index.ball(slot) for slot in index.slots.tolist()} == stored


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("kind", "attributes"), [("uniform", 1), ("pareto", 2), ("uniform", 5), ("pareto", 9)])
def test_churn(form: str, kind: str, attributes: int) -> None:
    """Insertions one by one and together, and removals, up to parts with many nodes."""
    random, draw = Random(SEED), as_balls(drawn_balls(kind, 4_000, attributes, SEED))
    index, stored = BallIndex(draw[0].attributes, form=form), dict[int, Ball]()
    for step in range(soaked(600, 1_500)):
        what = random.random()
        if what < 0.62 or len(stored) < 10:
            ball = random.choice(draw)
            stored[index.insert(ball)] = ball
        elif what < 0.995:
            gone = random.choice(list(stored))
            index.remove(gone)
            del stored[gone]
        else:
            batch = random.sample(draw, random.choice((0, 1, 40, 400)))
            centres = np.array([ball.centre for ball in batch]).reshape(len(batch), attributes)
            slots = index.insert_all(centres, np.array([ball.radius for ball in batch]))
            stored |= dict(zip(slots, batch, strict=True))
        if step % 250 == 0:
            index.check_invariants()
        if step % 75 == 0:
            ball = random.choice(draw)
            rows = np.array([(*each.centre, each.radius) for each in stored.values()])
            held = surely_held(ball, rows)
            assert all(ball.holds(each) for each, sure in zip(stored.values(), held, strict=True) if sure)
            around = [slot for slot, each in stored.items() if each.holds(ball)]
            assert index.coverer(ball) in around if around else index.coverer(ball) is None
            assert set(around) <= set(index.around(ball.centre, ball.radius).tolist())
            asked = random.sample(draw, 30)
            together = index.coverers(np.array([each.centre for each in asked]), np.array([e.radius for e in asked]))
            for each, slot in zip(asked, together.tolist(), strict=True):
                assert stored[slot].holds(each) if slot >= 0 else index.coverer(each) is None
            assert index.covered(ball) == sorted(slot for slot, each in stored.items() if ball.holds(each))
    for slot in random.sample(list(stored), len(stored)):
        index.remove(slot)
    index.check_invariants()
    assert len(index) == 0 and index.coverer(draw[0]) is None and index.covered(draw[0]) == []


def test_a_large_tree_against_exact_arithmetic() -> None:
    for kind in ("uniform", "pareto"):
        stored = as_balls(drawn_balls(kind, 1_500, 3, SEED))
        index = BallIndex((0, 1, 2))
        index.insert_all(np.array([ball.centre for ball in stored]), np.array([ball.radius for ball in stored]))
        assert any(part.is_tree for part in index.parts.values())
        for ball in as_balls(drawn_balls(kind, 4, 3, SEED + 1)):
            asked_rightly(index, dict(enumerate(stored)), ball)


def test_candidates_that_rounding_would_lose() -> None:
    """Balls that touch, of which exact arithmetic says that half of them cover: the others are an ulp too small. Also
    where squares are so small that they have few bits."""
    random, covering = Random(SEED), 0
    for d, size in ((1, 1.0), (2, 1.0), (3, 1.0), (7, 1.0), (3, 1e-161)):
        ball = Ball(tuple(range(d)), tuple(random.uniform(-size, size) for _ in range(d)), random.random() * size)
        stored, inner = [], []
        for _ in range(150):
            centre = tuple(random.uniform(-size, size) * random.choice((1e-3, 1, 30)) for _ in range(d))
            stored.append(Ball(ball.attributes, centre, ball.radius + math.dist(centre, ball.centre)))
            near = tuple(c + random.uniform(-0.2, 0.2) * ball.radius for c in ball.centre)
            inner.append(Ball(ball.attributes, near, max(0.0, ball.radius - math.dist(near, ball.centre))))
        covering += sum(covers(each, ball) for each in stored) + sum(covers(ball, each) for each in inner)
        for form in ("scan", "tree"):
            index = BallIndex(ball.attributes, form=form)
            both = stored + inner
            index.insert_all(np.array([each.centre for each in both]), np.array([each.radius for each in both]))
            asked_rightly(index, dict(enumerate(both)), ball)
    assert 400 < covering < 1_100


def test_the_widest_may_leave() -> None:
    """What is tried first holds nothing once it has gone, and what is left is found."""
    index, centres = BallIndex((0, 1)), np.random.default_rng(SEED).random((2_000, 2))
    slots = index.insert_all(centres, np.linspace(0.0, 3.0, 2_000))
    for slot in reversed(slots[1_100:]):
        index.remove(slot)
        assert slot % 50 or set(index.coverers(centres[:9], np.full(9, 0.1)).tolist()) <= set(slots[:slot])
    assert (index.coverers(centres, np.full(2_000, 0.1)) >= 0).all()
    assert (index.coverers(centres, np.full(2_000, 1.7)) < 0).all() and len(
        index.coverers(centres[:0], centres[:0, 0])
    ) == 0
    index.check_invariants()


def test_balls_that_are_all_alike() -> None:
    """No attribute and no radius to split by."""
    index, ball = BallIndex((0, 1)), Ball((0, 1), (0.5, 0.5), 0.25)
    slots = index.insert_all(np.full((3_000, 2), 0.5), np.full(3_000, 0.25))
    index.check_invariants()
    assert index.coverer(ball) in slots and index.covered(ball) == slots
    assert index.coverer(Ball((0, 1), (0.5, 0.5), 0.26)) is None
    for slot in slots[:-1]:
        index.remove(slot)
    assert index.coverer(ball) == slots[-1]
    index.check_invariants()


def test_a_miss_inside_the_margin_does_not_hide_a_hit() -> None:
    """The first candidates only touch; one that holds the ball lies behind them."""
    for form in FORMS:
        index, ball = BallIndex((0, 1), form=form), Ball((0, 1), (0.0, 0.0), 1.0)
        touching = [Ball((0, 1), (3.0 * math.cos(turn), 3.0 * math.sin(turn)), 4.0) for turn in range(100)]
        for each in touching:
            index.insert(each)
        assert not any(each.holds(ball) for each in touching)
        assert len(index.around(ball.centre, ball.radius)) > 50 and index.coverer(ball) is None
        slot = index.insert(Ball((0, 1), (0.0, 2.0), 3.01))
        index.insert_all(np.full((200, 2), 9.0), np.full(200, 0.5))
        assert index.coverer(ball) == slot


def test_what_an_index_refuses() -> None:
    with pytest.raises(CallerError, match="form"):
        BallIndex((0,), form="forest")
    with pytest.raises(CallerError, match="projections"):
        BallIndex((0,), vectors=-1)
    index = BallIndex((0, 1))
    for ball in (Ball((0,), (1.0,), 1.0), Ball((0, 1), (math.nan, 1.0), 1.0), Ball((0, 1), (1.0, 1.0), 1e300)):
        with pytest.raises(CallerError):
            index.insert(ball)
    with pytest.raises(CallerError):
        index.insert_all(np.array([[1.0, math.inf]]), np.array([1.0]))
    for ask in (index.insert_all, index.coverers):
        with pytest.raises(CallerError, match="3 attributes, not 2"):
            ask(np.zeros((2, 3)), np.ones(2))
    with pytest.raises(CallerError):
        index.covered(Ball((0,), (1.0,), 1.0))
    slot = index.insert(Ball((0, 1), (0.0, 0.0), 0.0))
    index.remove(slot)
    with pytest.raises(CallerError):
        index.remove(slot)
    assert len(index) == 0


def test_random_vectors() -> None:
    for d in (1, 3, 20):
        for count in (0, 1, d, d + 2):
            free, square = (random_vectors(d, count, orthonormal, 5) for orthonormal in (False, True))
            assert free.shape == (count, d) and square.shape == (min(count, d), d)
            assert np.allclose(np.linalg.norm(free, axis=1), 1) and np.allclose(square @ square.T, np.eye(len(square)))
            exact = [sum(Fraction(each) ** 2 for each in vector) for vector in np.concatenate((free, square)).tolist()]
            assert all(length <= 1 for length in exact)
    assert (random_vectors(4, 2, True, 1) != random_vectors(4, 2, True, 2)).any()


# --- The paper -------------------------------------------------------------------------------------------------------


def test_cubes() -> None:
    """Proposition 2.2: the cubes around are necessary, the inscribed ones sufficient, and neither is both."""
    random, found = Random(SEED), {"around only": 0, "inscribed": 0}
    for _ in range(150):
        d = random.choice((1, 2, 4, 9))
        centres = np.array([[random.randint(-8, 8) / 8 for _ in range(d)] for _ in range(30)])
        radii = np.array([random.randint(0, 24) / 8 for _ in range(30)])
        inner = Ball(tuple(range(d)), tuple(centres[0].tolist()), float(radii[0]) / 2)
        around, inside = (
            test(centres, radii, centres[0], inner.radius) for test in (bounding_cubes_cover, inscribed_cubes_cover)
        )
        for position, (centre, radius) in enumerate(zip(centres.tolist(), radii.tolist(), strict=True)):
            truth = covers(Ball(inner.attributes, tuple(centre), radius), inner)
            assert around[position] or not truth
            assert truth or not inside[position]
            found["around only"] += bool(around[position]) and not truth
            found["inscribed"] += bool(inside[position])
    assert min(found.values()) > 100


@pytest.mark.parametrize(
    ("d", "k", "of_pairs"), [(4, 2, 11.0), (20, 2, 18.0), (20, 6, 7.4)], ids=lambda value: str(value)
)
def test_the_share_of_wrong_covers(d: int, k: int, of_pairs: float) -> None:
    """The paper's frequencies are shares of all ordered pairs; of the covers reported, most are wrong."""
    drawn = drawn_balls("uniform", 1_000, d, SEED)
    runs = [wrong_shares(drawn, by_projections(random_vectors(d, k, True, seed))) for seed in range(3)]
    share = {name: sum(run[name] for run in runs) / len(runs) for name in runs[0]}
    assert share["wrong % of pairs"] == pytest.approx(of_pairs, rel=0.12)
    assert share["wrong % of reported"] > 60
    assert share["wrong % of r >= r'"] == pytest.approx(2 * share["wrong % of pairs"], rel=0.15)
    skewed = wrong_shares(drawn_balls("pareto", 1_000, d, SEED), by_projections(random_vectors(d, k, True, 0)))
    assert skewed["wrong % of pairs"] < share["wrong % of pairs"] / 2


@pytest.mark.parametrize("made_by", [ProjectionEngine, PairwiseEngine])
def test_the_example_of_the_introduction(made_by: type[CoverEngine]) -> None:
    """Stock in [400, 500] covers stock in [420, 440], whatever the company."""
    space = Space.parse("company string, stock double not null")
    engine = made_by(space)
    engine.add("X", space.where("within(50, stock, 450)"))
    assert engine.check(space.where("within(10, stock, 430)")) == Covered(("X",))
    assert engine.check(space.where("stock BETWEEN 420 AND 440 AND company = 'acme'")) == Covered(("X",))
    assert not engine.check(space.where("within(60, stock, 450)"))
    assert not engine.check(space.where("stock BETWEEN 390 AND 440"))
    assert engine.members_within(space.where("stock BETWEEN 399 AND 501")) == ["X"]


def plane_engine(**options: Any) -> tuple[Space, ProjectionEngine]:
    space = Space.parse("x double not null, y double not null")
    return space, ProjectionEngine(space, **options)


def test_a_newcomer_is_not_covered_by_itself() -> None:
    space, engine = plane_engine()
    ball = space.where("within(2, x, 1, y, 1)")
    verdicts = engine.add_many(["a", "b"], [ball, ball])
    assert [bool(each) for each in verdicts] == [False, True] and list(engine) == ["a"]


def test_the_larger_ball_covers_the_smaller_and_not_the_other_way_round() -> None:
    space, engine = plane_engine()
    engine.add("small", space.where("within(1, x, 0, y, 0)"))
    assert not engine.check(space.where("within(3, x, 1, y, 0)"))
    engine.add("large", space.where("within(3, x, 1, y, 0)"))
    engine.discard("small")
    assert engine.check(space.where("within(1, x, 0, y, 0)")) == Covered(("large",))


@pytest.mark.parametrize("orthonormal", [True, False])
def test_every_candidate_is_tried(orthonormal: bool) -> None:
    """With one projection most candidates are wrong, and yet nothing that is covered goes unseen."""
    space, engine = plane_engine(vectors=1, orthonormal=orthonormal, form="scan")
    random, wrong_first = Random(SEED), 0
    members = {n: (random.uniform(-9, 9), random.uniform(-9, 9), random.uniform(0.1, 4)) for n in range(200)}
    regions = {n: space.where(f"within({r!r}D, x, {x!r}D, y, {y!r}D)") for n, (x, y, r) in members.items()}
    engine.load(list(regions), list(regions.values()))
    for n, (x, y, r) in members.items():
        engine.discard(n)
        candidates, cubes = (engine.candidates(regions[n], by=by) for by in ("projections", "cubes"))
        coverers = [m for m, (a, b, s) in members.items() if m != n and math.hypot(a - x, b - y) <= s - r]
        assert set(coverers) <= set(candidates) and set(coverers) <= set(cubes) and n not in candidates
        verdict = engine.check(regions[n])
        assert verdict.certificate[0] in coverers if isinstance(verdict, Covered) else not coverers
        wrong_first += bool(coverers) and candidates[0] not in coverers
        engine.add(n, regions[n])
    assert wrong_first > 10
    engine.check_invariants()


# --- The engine ------------------------------------------------------------------------------------------------------

MIXED = (
    "x double not null -10..10, y double -10..10, n int -20..20, m decimal(6,2) not null -9..9, s string",
    "x double not null, y double, n int, m decimal(6,2) not null, s string",
)


def mixed_clause(random: Random) -> str:
    """Balls over some attributes in some order, next to the end of an axis or not, boxes, both, and unions."""
    middle = {"x": f"{random.randint(-10, 10)}D", "y": f"{random.choice((-9.5, 0.0, 0.5, 9.0))}D"}
    middle |= {"n": str(random.randint(-20, 20)), "m": str(random.randint(-9, 9))}
    kind = random.random()
    if kind < 0.12:
        return f"({mixed_clause(random)}) OR ({mixed_clause(random)})"
    if kind < 0.3:
        names, width = random.sample(["x", "y", "n", "m"], random.randint(1, 3)), random.choice((0, 1, 3, 12))
        sides = [f"{name} BETWEEN {-width} AND {width}" for name in names[1:]]
        return " AND ".join([f"{names[0]} BETWEEN {middle[names[0]]} AND 9", *sides])
    names = random.sample(["x", "y", "n", "m"], random.choice((1, 2, 2, 2, 3, 4)))
    radius = random.choice((0.0, 0.5, 1.0, 2.0, 4.0, 9.0, 30.0, 100.0))
    ball = f"within({radius!r}D, {', '.join(f'{name}, {middle[name]}' for name in names)})"
    return ball + random.choice(["", "", "", "", " AND x >= 0D", " AND s = 'a'", " AND n IS NOT NULL", f" AND {ball}"])


@pytest.mark.long
@pytest.mark.parametrize("text", MIXED, ids=["bounded", "unbounded"])
def test_the_engine_finds_what_pairwise_finds(text: str) -> None:
    space, random = Space.parse(text), Random(SEED)
    everything = [Region.everything(space), space.where("x IS NOT NULL AND y IS NOT NULL"), Region.nothing(space)]
    pool = [space.where(mixed_clause(random)) for _ in range(160)] + everything
    engine, pairwise, members = ProjectionEngine(space), PairwiseEngine(space, form="linear"), dict[int, Region]()
    found = 0
    for number in range(140):
        region = random.choice(pool)
        if members and random.random() < 0.3:
            gone = random.choice(list(members))
            del members[gone]
            engine.discard(gone)
            pairwise.discard(gone)
        verdict, expected = engine.check(region), pairwise.check(region)
        assert bool(verdict) == bool(expected), region.to_sql()
        assert verify(verdict, region, members)
        found += bool(verdict)
        if number % 2:
            assert engine.members_within(region) == pairwise.members_within(region), region.to_sql()
        if region not in everything:
            members[number] = region
            engine.add(number, region)
            pairwise.add(number, region)
    assert list(engine) == list(members) and found > 30
    engine.check_invariants()


def test_members_may_be_loaded_together() -> None:
    space = Space.parse(MIXED[0])
    random = Random(SEED)
    regions = [space.where(mixed_clause(random)) for _ in range(120)]
    together, alone = ProjectionEngine(space), ProjectionEngine(space)
    together.load(range(120), regions)
    for number, region in enumerate(regions):
        alone.add(number, region)
    assert list(together) == list(alone)
    together.check_invariants()
    for region in regions[:40]:
        assert bool(together.check(region)) == bool(alone.check(region))
        assert together.members_within(region) == alone.members_within(region)
    with pytest.raises(CallerError):
        together.load([500, 0], regions[:2])
    assert len(together) == 120


def test_a_batch_decides_as_one_by_one() -> None:
    """Some are covered by members from before, some by one of the batch, some by nobody."""
    space, random = Space.parse(MIXED[0]), Random(SEED)
    clauses = [mixed_clause(random) for _ in range(160)]
    regions = [space.where(clause) for clause in clauses if "30.0D" not in clause and "100.0D" not in clause]
    together, alone = ProjectionEngine(space), ProjectionEngine(space)
    members = dict(enumerate(regions[:20]))
    for engine in (together, alone):
        engine.load(list(members), list(members.values()))
    batch = dict(enumerate(regions[20:], 20))
    verdicts = together.add_many(list(batch), list(batch.values()))
    origins = set()
    for (id, region), verdict in zip(batch.items(), verdicts, strict=True):
        expected = alone.check(region)
        assert bool(verdict) == bool(expected) and verify(verdict, region, members), region.to_sql()
        if isinstance(verdict, Covered):
            origins |= {"batch" if name >= 20 else "before" for name in verdict.certificate}
        else:
            alone.add(id, region)
            members[id] = region
            origins.add("nobody")
    assert list(together) == list(alone) == list(members) and origins == {"batch", "before", "nobody"}
    together.check_invariants()
    with pytest.raises(CallerError, match="member already"):
        together.add_many([500, 0], regions[:2])
    assert len(together) == len(members)


def test_what_an_engine_refuses() -> None:
    space, engine = plane_engine()
    with pytest.raises(CallerError, match="form"):
        ProjectionEngine(space, form="forest")
    with pytest.raises(CallerError, match="projections"):
        ProjectionEngine(space, vectors=-2)
    with pytest.raises(CallerError, match="one ball"):
        engine.candidates(space.where("x > 1"))
    engine.add("a", space.where("within(1, x, 0, y, 0)"))
    with pytest.raises(CallerError, match="cubes"):
        engine.candidates(space.where("within(1, x, 0, y, 0)"), by="guesses")  # type: ignore[arg-type]


def test_balls_too_large_to_square() -> None:
    space, engine = plane_engine()
    huge = space.where("within(1e300, x, 0, y, 0)")
    engine.add("huge", huge)
    assert engine.check(huge) == Covered(("huge",)) and engine.members_within(huge) == ["huge"]
    assert engine.check(space.where("within(1e299, x, 0, y, 0)")) == Covered(("huge",))
    engine.add("small", space.where("within(1, x, 0, y, 0)"))
    assert engine.members_within(huge) == ["huge", "small"]
    assert not engine.check(space.where("within(1e299, x, 1, y, 0)"))
    engine.check_invariants()
