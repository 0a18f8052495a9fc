"""Members with balls, and with sets too large to expand: what an engine on boxes asks of them, and what it costs."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from helpers.cover_oracles import ints, region_of
from helpers.strategies import soaked
from helpers.yardstick import yardsticks
from thatch import Space
from thatch.cover import Covered, ExactEngine, Uncovered, engine, verify
from thatch.cover.vague import VagueMembers
from thatch.region.region import Region

SEED = 20261119
PLANE = "x double not null 0..100, y double not null 0..100, kind int not null 0..9999"
EVENS = ", ".join(str(number) for number in range(0, 10_000, 2))  # too many to expand


def random_vague(random: Random) -> str:
    ball = f"within({random.uniform(0.5, 20):.3f}, x, {random.uniform(0, 100):.3f}, y, {random.uniform(0, 100):.3f})"
    roll = random.random()
    if roll < 0.4:
        return ball
    if roll < 0.6:
        return f"{ball} AND kind BETWEEN {random.randrange(5000)} AND {random.randrange(5000, 10_000)}"
    if roll < 0.8:
        low = random.uniform(0, 90)
        return f"kind IN ({EVENS}) AND x BETWEEN {low:.3f} AND {low + random.uniform(0, 20):.3f}"
    return f"{ball} OR (y < {random.uniform(0, 5):.3f} AND kind <> 5)"


def test_what_is_near_holds_every_member_that_meets_the_question() -> None:
    space, random = Space.parse(PLANE), Random(SEED)
    for _ in range(soaked(5, 50)):
        members = {number: space.where(random_vague(random)) for number in range(40)}
        vague = VagueMembers(space)
        for number, region in members.items():
            vague.add(str(number), number, region)
        for number in random.sample(range(40), 10):
            vague.discard(str(number))
            del members[number]
        vague.check_invariants()
        for _ in range(30):
            low, least = [random.uniform(0, 100) for _ in range(2)], random.randrange(10_000)
            high = [min(100.0, each + random.choice((0, 5, 40))) for each in low]
            question = space.where(
                f"x BETWEEN {low[0]} AND {high[0]} AND y BETWEEN {low[1]} AND {high[1]} AND kind >= {least}"
            )
            near = vague.near(question.terms)
            assert list(near) == sorted(near, key=int), "in the order in which they were added"
            for _ in range(40):
                event = {
                    "x": random.uniform(low[0], high[0]),
                    "y": random.uniform(low[1], high[1]),
                    "kind": random.randint(least, 9999),
                }
                holding = {str(number) for number, region in members.items() if region.contains(event)}
                assert holding <= near.keys()
                assert vague.holds(space.encode(event)) == bool(holding)
    assert not VagueMembers(space).near(space.where("TRUE").terms) and not VagueMembers(space).holds([0, 0, 0])


@pytest.mark.parametrize("name", ["exact", "negative"])
def test_a_gap_of_a_large_set_that_no_corner_shows_is_found(name: str) -> None:
    """Both ends of the question are even, and so is the point that boxes leave first."""
    space = Space.parse("kind int not null 0..9999")
    members = {"even": space.where(f"kind IN ({EVENS})"), "few": space.where("kind IN (1, 3, 5, 9)")}
    checking = engine(name, space)
    for id, region in members.items():
        checking.add(id, region)
    for clause, covered in (("kind BETWEEN 0 AND 6", True), ("kind BETWEEN 0 AND 10", False), ("kind = 9", True)):
        question = space.where(clause)
        verdict = checking.check(question)
        assert isinstance(verdict, Covered if covered else Uncovered), (clause, verdict)
        assert verify(verdict, question, members)
    checking.check_invariants()


def test_parts_leave_nothing_behind_in_the_index() -> None:
    space = Space.parse("kind int not null 0..9999, x int not null 0..9")
    checking = ExactEngine(space)
    checking.add("even", space.where(f"kind IN ({EVENS})"))
    checking.add("odd", space.where("kind IN (1, 3, 5, 7, 9)"))
    before, slots = len(checking.index), checking.index.taken()
    for _ in range(20):
        assert checking.check(space.where("kind BETWEEN 0 AND 10"))
        assert not checking.check(space.where("kind BETWEEN 0 AND 12"))
    assert len(checking.index) == before and checking.index.taken() == slots
    checking.check_invariants()


@pytest.mark.parametrize("more", ["within(0.4, a, 5, b, 5)", f"a IN ({', '.join(map(str, range(0, 6000, 3)))})"])
def test_one_ball_or_large_set_among_boxes_costs_little(more: str) -> None:
    """Boxes that no member covers, asked with and without one member that is no box."""
    random = Random(SEED)
    space = ints(6000, 6000, 6000, 6000) if "within" not in more else Space.parse(
        ", ".join(f"{name} double not null 0..6000" for name in "abcd")
    )  # fmt: skip
    names = [attribute.name for attribute in space]
    more = more.replace(" a ", f" {names[0]} ").replace("a IN", f"{names[0]} IN")
    plain, mixed = ExactEngine(space), ExactEngine(space)
    draw = np.random.default_rng(SEED)
    for number, corner in enumerate(draw.integers(0, 5000, (soaked(2_000, 10_000), 4)).tolist()):
        sides = " AND ".join(f"{name} BETWEEN {low} AND {low + 900}" for name, low in zip(names, corner, strict=True))
        region = space.where(sides)
        plain.add(number, region)
        mixed.add(number, region)
    mixed.add("more", space.where(more))
    questions = [space.where(" AND ".join(f"{name} >= {random.randrange(3000)}" for name in names)) for _ in range(50)]
    assert not any(map(plain.check, questions)) and not any(map(mixed.check, questions))
    without = yardsticks(lambda: [plain.check(each) for each in questions], 0.0)
    assert yardsticks(lambda: [mixed.check(each) for each in questions], 10 * without) < 10 * without


def test_regions_of_points_stay_apart() -> None:
    """A ball that lies between two boxes covers neither of them."""
    space = Space.parse("x double not null 0..10")
    checking = ExactEngine(space)
    regions: dict[str, Region] = {"left": space.where("x < 4"), "ball": space.where("within(1, x, 5)")}
    for id, region in regions.items():
        checking.add(id, region)
    assert checking.check(space.where("x BETWEEN 4.5 AND 5.5")) == Covered(("ball",))
    verdict = checking.check(space.where("x < 7"))
    assert isinstance(verdict, Uncovered) and verify(verdict, space.where("x < 7"), regions)
    assert checking.check(region_of(space, [space.low[0][0]], [space.encode({"x": 3.0})[0]])) == Covered(("left",))
