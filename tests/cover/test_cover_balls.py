"""The contract of cover engines: balls are never covered wrongly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from itertools import product
from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers.cover_contract import PLANE, SEED, Engine, ball, filled, one_by_one, sampled
from thatch import Space
from thatch.cover import Covered, Uncovered, verify
from thatch.region.region import Region


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
    assert list(engine.members_within(Region.everything(space))) == list(members)


def test_balls_that_do_not_meet_hold_nothing(engine_class: Engine) -> None:
    space = Space.parse(PLANE)
    region = space.where(f"{ball(1.0, 0.0, 0.0)} AND {ball(1.0, 10.0, 0.0)}")
    verdict = engine_class(space).check(region)
    assert not isinstance(verdict, Uncovered)
    assert verify(verdict, region, {})
