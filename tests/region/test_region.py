"""Regions against brute force: what they contain, their algebra, their normal form, their SQL, and their counts."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.conditions import Condition, World, conditions, worlds
from helpers.strategies import examples, values_of
from thatch.errors import CallerError, EventError, TooManyBoxes
from thatch.region.ball import Ball
from thatch.region.intervals import Intervals
from thatch.region.region import Region
from thatch.region.term import Term
from thatch.space.attribute import Attribute
from thatch.space.axis import StringAxis
from thatch.space.floating import DoubleAxis
from thatch.space.space import Space


@st.composite
def cases(draw: st.DrawFn, clauses: int = 1, balls: bool = True, finite: bool = False) -> tuple[World, list[Condition]]:
    world = draw(worlds(finite))
    sizes = st.integers(1, 5)
    return world, [draw(conditions(world.columns, draw(sizes), balls)) for _ in range(clauses)]


def check_normal_form(region: Region) -> None:
    """Written independently of region.py: by the sides of each pair of terms."""
    region.check_invariants()
    whole = {index: Intervals.between(a.low, a.last) for index, a in enumerate(region.space.attributes)}
    full = [(whole | dict(term.sides), set(term.balls)) for term in region.terms]
    assert list(region.terms) == sorted(region.terms, key=lambda term: term.order)
    for position, (sides, balls) in enumerate(full):
        assert all(intervals.ends for intervals in sides.values())
        for other_sides, other_balls in full[:position] + full[position + 1 :]:
            within = all((sides[index] - other_sides[index]).count() == 0 for index in whole)
            assert not (within and other_balls <= balls), "a term inside another one"
            differing = sum(sides[index] != other_sides[index] for index in whole)
            assert differing > 1 or balls != other_balls, "two terms that are one"


def check(world: World, region: Region, expected: Any) -> None:
    assert (world.found(region) == expected).all()
    check_normal_form(region)
    assert region.space.where(region.to_sql(), terms_max=10_000) == region
    if not region.has_balls:
        assert region.is_empty == (not expected.any())
        if world.is_finite:
            assert region.count() == expected.sum()


# --- What a clause means ----------------------------------------------------------------------------------------------


@examples(200)
@given(cases())
def test_clauses(case: tuple[World, list[Condition]]) -> None:
    world, (condition,) = case
    region = world.space().where(condition.sql)
    expected = world.truth(condition)
    check(world, region, expected)
    for event, holds in list(zip(world.events, expected, strict=True))[:: max(1, len(world.events) // 40)]:
        assert region.contains(event) == holds
        assert region.contains({name: value for name, value in event.items() if value is not None}) == holds


@examples(150)
@given(cases(clauses=2))
def test_algebra(case: tuple[World, list[Condition]]) -> None:
    world, (one, other) = case
    space = world.space()
    a, b = space.where(one.sql), space.where(other.sql)
    in_a, in_b = world.truth(one), world.truth(other)
    check(world, a & b, in_a & in_b)
    check(world, a | b, in_a | in_b)
    if b.has_balls:
        return
    check(world, a - b, in_a & ~in_b)
    if not a.has_balls:
        assert a.is_within(b) == bool((in_b | ~in_a).all())
        everything = Region.everything(space)
        assert (everything - a).is_within(everything - (a & b))
        assert (a - b) & b == Region.nothing(space)
    assert (a & b).is_within(b) and a.is_within(Region.everything(space))


@examples(150)
@given(cases(balls=False))
def test_disjoint_boxes_and_count(case: tuple[World, list[Condition]]) -> None:
    world, (condition,) = case
    region = world.space().where(condition.sql)
    expected = world.truth(condition)
    disjoint = region.disjoint()
    check(world, disjoint, expected)
    pieces = [world.found(Region(region.space, [term])) for term in disjoint.terms]
    assert sum(piece.astype(int) for piece in pieces).max(initial=0) <= 1 if pieces else True  # type: ignore[union-attr]
    low, high = region.boxes()
    assert low.shape == high.shape == (sum(term.box_count() for term in region.terms), len(region.space))
    names = [column.name for column in world.columns]
    points = np.stack(region.space.encode_batch({n: [event[n] for event in world.events] for n in names}), axis=1)
    inside = (low[None] <= points[:, None]) & (points[:, None] <= high[None])
    assert (np.any(np.all(inside, axis=2), axis=1) == expected).all()
    assert region.count() == disjoint.count()


def test_count_is_exact_where_floats_are_not() -> None:
    space = Space.parse("n int, m int not null, b bool")
    assert Region.everything(space).count() == 2**64 * 2**64 * 3
    assert space.where("n <> 5 AND m >= 0 AND b").count() == (2**64 - 2) * 2**63
    assert Region.nothing(space).count() == 0


@pytest.mark.parametrize("seed", range(4))
def test_many_terms(seed: int) -> None:
    """More terms than are handled one by one: the kernels take over."""
    random = Random(seed)
    space = Space.parse("n int not null 0..15, m int 0..14")

    def clause(terms: int) -> tuple[str, Any]:
        sides = [[sorted((random.randrange(16), random.randrange(16))) for _ in "nm"] for _ in range(terms)]
        text = " OR ".join(
            f"(n BETWEEN {n[0]} AND {n[1]} AND " + ("m IS NULL)" if m[1] < 4 else f"m BETWEEN {m[0]} AND {m[1]})")
            for n, m in sides
        )
        grid = np.zeros((16, 16), np.bool_)  # column 15 is NULL
        for n, m in sides:
            columns = slice(15, 16) if m[1] < 4 else slice(m[0], min(m[1], 14) + 1)
            grid[n[0] : n[1] + 1, columns] = True
        return text, grid.ravel()

    def found(region: Region) -> Any:
        rows = np.arange(16)
        m = [None if value == 15 else value for value in np.tile(rows, 16).tolist()]
        return region.contains_batch({"n": np.repeat(rows, 16), "m": m})

    (one, in_a), (other, in_b) = clause(40), clause(25)
    a, b = space.where(one), space.where(other)
    for region, expected in ((a, in_a), (b, in_b), (a & b, in_a & in_b), (a | b, in_a | in_b), (a - b, in_a & ~in_b)):
        assert (found(region) == expected).all()
        assert region.count() == expected.sum()
        check_normal_form(region)
        assert space.where(region.to_sql()) == region
    assert a.is_within(b) == bool((in_b | ~in_a).all()) and (a & b).is_within(a)


# --- The examples of the design ---------------------------------------------------------------------------------------


def test_a_bool_its_negation_and_null_are_everything() -> None:
    space = Space.parse("b bool, n int")
    true, false, null = space.where("b"), space.where("NOT b"), space.where("b IS NULL")
    everything = Region.everything(space)
    assert true | false | null == everything == space.where("b OR NOT b OR b IS NULL") == space.where("TRUE")
    assert true | false != everything and true | false == space.where("b IS NOT NULL")
    assert everything - true - false == null
    assert everything.is_within(true | false | null) and not everything.is_within(true | false)


def test_prices_below_and_from_20_are_everything() -> None:
    space = Space.parse("symbol string, price double not null 0..1000, volume int")
    cheap, dear = space.where("price < 20"), space.where("price >= 20")
    everything = Region.everything(space)
    assert cheap | dear == everything and (cheap & dear).is_empty
    assert everything - cheap == dear and everything - dear == cheap
    assert everything.is_within(cheap | dear)
    assert space.where("price < 50").is_within(cheap | dear) and not space.where("price < 50").is_within(cheap)
    nullable = Space.parse("price double 0..1000")
    assert nullable.where("price < 20") | nullable.where("price >= 20") == nullable.where("price IS NOT NULL")


def test_literals_outside_the_domain() -> None:
    space = Space.parse("price double 0..1000")
    assert space.where("price = 2000").is_empty and space.where("price > 1000").is_empty
    assert space.where("price <> 2000") == space.where("price IS NOT NULL") == space.where("price < 2000")
    assert space.where("NOT price <=> 2000") == Region.everything(space)
    assert space.where("price NOT IN (2000, 3000)") == space.where("price IS NOT NULL")
    with pytest.raises(EventError, match="outside the domain"):
        space.where("price < 2000").contains({"price": 2000.0})


def test_the_readme_example() -> None:
    space = Space.parse("symbol string, price double not null 0..1000, volume int")
    region = space.where("price BETWEEN 10 AND 20 AND symbol IN ('A','B')")
    assert region.contains({"symbol": "A", "price": 12.5, "unknown": 1})
    assert not region.contains({"symbol": "C", "price": 12.5}) and not region.contains({"price": 12.5})
    assert len(region.terms) == 1


# --- Balls ------------------------------------------------------------------------------------------------------------


@examples(150)
@given(st.data())
def test_bounds_of_a_ball_hold_it(data: st.DataObject) -> None:
    """Values right at the rim, where rounding decides, must not be lost to an interval that is too narrow."""
    declared = data.draw(
        st.sampled_from(["int not null", "double not null", "decimal(18,4) not null", "decimal(5,2) not null"])
    )
    space = Space.parse(f"a {declared}")
    attribute = space.attributes[0]
    sizes = st.sampled_from([0.0, 5e-324, 1e-200, 1e-160, 0.1, 1.0, 3.7, 1e9, 2.0**53, 2.0**60, 1e155, 1e200, 1.7e308])
    middle = data.draw(sizes) * data.draw(st.sampled_from([1, -1]))
    radius = data.draw(sizes)
    ball = Ball((0,), (middle,), radius)
    bounds = ball.bounds(space)[0]
    coordinates = {attribute.first, attribute.last, attribute.encode(data.draw(values_of(attribute)))}
    for rim in (middle - radius, middle + radius):
        scale = 10 ** getattr(attribute.axis, "scale", 0)
        if math.isfinite(rim * scale):
            near = attribute.encode(rim) if "double" in declared else round(rim * scale)
            coordinates |= {min(max(near + step, attribute.first), attribute.last) for step in (-2, -1, 0, 1, 2)}
    for coordinate in coordinates:
        if ball.contains([coordinate], space):
            assert coordinate in bounds
    region = space.where(f"within({radius!r}D, a, {middle!r}D)")
    assert [bool(each) for each in region.contains_points([np.array(sorted(coordinates))])] == [
        ball.contains([coordinate], space) for coordinate in sorted(coordinates)
    ]


def nudged(attribute: Attribute, value: float, steps: int) -> int:
    """The coordinate of a number, moved by so many, on the axis."""
    if isinstance(attribute.axis, DoubleAxis):
        coordinate = attribute.encode(value)
    else:
        coordinate = round(Fraction(value) * 10 ** getattr(attribute.axis, "scale", 0))
    return min(max(coordinate + steps, attribute.first), attribute.last)


@st.composite
def two_balls(draw: st.DrawFn) -> tuple[Space, Ball, Ball]:
    """The second about as large as it must be to hold the first, by a few ulps, by the margin, or amply."""
    k = draw(st.integers(1, 4))
    kinds = st.sampled_from(["double not null", "double not null", "int not null", "decimal(18,4) not null"])
    space = Space.parse(", ".join(f"a{number} {draw(kinds)}" for number in range(k)))
    size = draw(
        st.sampled_from([0.0, 5e-324, 1e-200, 1e-155, 1e-150, 0.1, 1.0, 3.7, 1e9, 2.0**60, 1e140, 1e152, 1e200])
    )
    parts = st.sampled_from([0.0, 1.0, 0.1, 3.0, 0.7, -0.3, -5.0])
    looked_at = draw(st.permutations(range(k)))
    inner = Ball(tuple(looked_at), tuple(draw(parts) * size for _ in range(k)), abs(draw(parts)) * size)
    kept = looked_at[: draw(st.integers(1, k))]
    if draw(st.booleans()):
        kept = draw(st.permutations(kept))
    far = draw(st.sampled_from([0.0, 2.0**-50, 1e-9, 0.1, 1.0, 40.0, 1e9]))
    centre = tuple(inner.centre[looked_at.index(index)] + draw(parts) * size * far for index in kept)
    there = tuple(inner.centre[looked_at.index(index)] for index in kept)
    margin = draw(st.sampled_from([-(2**3), -1, 0, 1, 2, 8, 24, 60, 2**7, 2**9, 2**40, 2**52])) * 2.0**-52
    return space, inner, Ball(tuple(kept), centre, (inner.radius + math.dist(there, centre)) * (1 + margin))


@examples(400)
@given(two_balls(), st.randoms(use_true_random=False))
def test_a_ball_that_holds_another_misses_none_of_its_points(case: tuple[Space, Ball, Ball], random: Random) -> None:
    """Points at the rim of the inner ball, far side first, stepped coordinate by coordinate."""
    space, inner, outer = case
    if not outer.holds(inner):
        return
    away = dict(zip(outer.attributes, outer.centre, strict=True))
    directions = [[c - away.get(i, c) for i, c in zip(inner.attributes, inner.centre, strict=True)]]
    directions += [[random.uniform(-1, 1) for _ in inner.centre] for _ in range(4)]
    directions += [[float(i == j) * side for j in range(len(inner.centre))] for i in range(2) for side in (-1, 1)]
    for direction in directions:
        length = math.hypot(*direction)
        for reach in (inner.radius, max(inner.radius, 2.0**-520), 2.0**-500):
            for steps in (0, 1, -1, 2, -2, 5):
                point = [0] * len(space)
                for index, middle, step in zip(inner.attributes, inner.centre, direction, strict=True):
                    value = middle + (step / length * reach if length > 0 else 0.0)
                    outward = steps if step >= 0 else -steps
                    point[index] = nudged(space.attributes[index], value, outward)
                assert outer.contains(point, space) or not inner.contains(point, space), (inner, outer, point)


@examples(200)
@given(two_balls())
def test_a_ball_holds_what_it_amply_contains_and_nothing_else(case: tuple[Space, Ball, Ball]) -> None:
    """In exact arithmetic; a thousandth more is always enough, while nothing overflows or underflows."""
    _, inner, outer = case
    at = dict(zip(inner.attributes, inner.centre, strict=True))
    ends = [(Fraction(at[i]), Fraction(c)) for i, c in zip(outer.attributes, outer.centre, strict=True)]
    square = sum(((a - b) ** 2 for a, b in ends), Fraction(0))
    reach = Fraction(outer.radius) - Fraction(inner.radius)
    inside = reach >= 0 and square <= reach**2
    assert inside or not outer.holds(inner)
    ample = Ball(outer.attributes, outer.centre, outer.radius * 1.001)
    if inside and 2.0**-490 < outer.radius < 2.0**490:
        assert ample.holds(inner)
    assert not (outer.holds(inner) and inner.holds(outer)) or outer.radius == inner.radius


def test_rounding_decides_at_the_point_where_balls_touch() -> None:
    """Balls that touch from within miss points of one another by an ulp or two; none of those may be held."""
    random, missed, held = Random(7), 0, 0
    for _ in range(1500):
        k = random.randint(1, 6)
        space = Space.parse(", ".join(f"a{number} double not null" for number in range(k)))
        centre = tuple(random.uniform(-1, 1) for _ in range(k))
        other = tuple(random.uniform(-1, 1) * random.choice((1, 1e-3, 30)) for _ in range(k))
        inner, distance = Ball(tuple(range(k)), centre, random.random()), math.dist(centre, other)
        touching = Ball(inner.attributes, other, inner.radius + distance)
        wider = [Ball(inner.attributes, other, touching.radius * (1 + ulps * 2.0**-52)) for ulps in (0, 1, 8, 40, 130)]
        assert not touching.holds(inner) and wider[-1].holds(inner)
        for _ in range(3):
            point = []
            for attribute, a, b in zip(space.attributes, centre, other, strict=True):
                steps = random.randint(-1, 2) * (1 if a > b else -1)
                point.append(nudged(attribute, a + (a - b) / distance * inner.radius, steps))
            if inner.contains(point, space):
                missed += not touching.contains(point, space)
                for outer in wider:
                    held += outer.holds(inner)
                    assert outer.contains(point, space) or not outer.holds(inner)
    assert missed > 300 and held > 1500


def test_which_ball_holds_which() -> None:
    ball = Ball((0, 1), (3.0, 4.0), 5.0)
    assert ball.holds(Ball((0, 1), (3.0, 4.0), 5.0)) and not ball.holds(Ball((0, 1), (3.0, 4.0), 5.000000001))
    assert ball.holds(Ball((0, 1), (6.0, 4.0), 1.999)) and not ball.holds(Ball((0, 1), (6.0, 4.0), 2.0))  # tangent
    assert not ball.holds(Ball((0,), (3.0,), 1.0))  # any a1
    assert Ball((1,), (4.0,), 5.0).holds(ball) and Ball((1,), (4.5,), 5.51).holds(ball)
    assert Ball((1, 0), (4.0, 3.0), 5.01).holds(ball) and not Ball((2,), (4.0,), 9.0).holds(ball)
    assert Ball((0, 1), (math.inf, 0.0), math.inf).holds(Ball((0, 1), (math.inf, 0.0), 1e300))
    for centre in (math.inf, math.nan, 1e308):
        for radius in (1.0, 1e308, math.inf):
            assert not Ball((0,), (1.0,), 1e308).holds(Ball((0,), (centre,), radius))
            assert not Ball((0,), (centre,), radius).holds(Ball((0,), (1.0,), 0.5))


def test_terms_that_lie_inside_each_other_do_not_both_vanish() -> None:
    """Two balls, one inside the other, are as good as the smaller one alone; one of the two terms stays."""
    space = Space.parse("x double not null, y double not null, n int not null")
    for wider in ("within(2, x, 0)", "within(3, x, 0.5)", "within(1, y, 0)"):
        clause = f"(within(1, x, 0, y, 0) AND {wider}) OR within(1, x, 0, y, 0)"
        assert space.where(clause).contains({"x": 0.5, "y": 0.5, "n": 0}), clause
        many = " OR ".join(f"({clause}) AND n = {2 * number}" for number in range(20))
        region = space.where(many)
        check_normal_form(region)
        assert region.contains({"x": 0.5, "y": 0.5, "n": 8}) and not region.contains({"x": 0.5, "y": 0.5, "n": 9})


def test_balls() -> None:
    space = Space.parse("x double, y double not null, n int, s string")
    ball = space.where("within(5, x, 0, y, 0)")
    assert ball.contains({"x": 3.0, "y": 4.0}) and not ball.contains({"x": 3.0, "y": math.nextafter(4.0, 5)})
    assert not ball.contains({"x": None, "y": 0.0}) and not ball.contains({"x": math.nan, "y": 0.0})
    assert ball & ball == ball | ball == ball and len((ball & space.where("n = 1 OR s = 'a'")).terms) == 2
    assert (ball & space.where("x > 6")).is_empty and not (ball & space.where("x > 4.9")).is_empty
    assert (ball - space.where("x > 6")).contains({"x": 3.0, "y": 4.0})
    assert (ball - space.where("x IS NOT NULL")).is_empty
    assert ball.is_within(space.where("x IS NOT NULL"))
    for refused in (lambda: space.where("x > 4") - ball, lambda: Region.everything(space).is_within(ball)):
        with pytest.raises(CallerError, match="outside a ball"):
            refused()
    for uncounted in (ball.count, ball.volume, ball.boxes):
        with pytest.raises(CallerError, match="within"):
            uncounted()


@pytest.mark.parametrize("declared", ["double", "int", "decimal(5,2)", "double not null 0..5"])
@pytest.mark.parametrize("centre", ["'NaN'", "'Infinity'", "'-Infinity'", "1e308"])
@pytest.mark.parametrize("radius", ["1", "'Infinity'", "1e308", "0"])
def test_balls_that_are_not_finite(declared: str, centre: str, radius: str) -> None:
    space = Space.parse(f"a {declared}")
    region = space.where(f"within({radius}, a, {centre})")
    attribute = space.attributes[0]
    middle, reach = float(centre.strip("'")), float(radius.strip("'"))
    for coordinate in (attribute.first, attribute.last, attribute.encode(2)):
        value = float(attribute.decode(coordinate))
        assert region.contains_point([coordinate]) == ((value - middle) * (value - middle) <= reach * reach)
    assert space.where(region.to_sql()) == region


def test_a_radius_that_is_not_a_number() -> None:
    """NaN is above every number to Spark, so `(a-1)*(a-1) <= NaN*NaN` is true; refusing it would be right too."""
    space = Space.parse("a double")
    try:
        region = space.where("within('NaN', a, 1)")
    except CallerError:
        return
    assert region.contains({"a": 1.0}) and region.contains({"a": math.nan})


def test_a_ball_may_be_subtracted_where_it_does_not_meet() -> None:
    space = Space.parse("x double, y double not null, n int")
    ball = space.where("within(5, x, 0, y, 0) AND n = 1")
    for clause in ("x > 6", "y < -6 AND n = 1", "n = 2", "x IS NULL"):
        region = space.where(clause)
        assert region - ball == region and region.is_within(region - ball)


def test_between_is_one_condition_on_one_attribute() -> None:
    """ORs of BETWEEN on one attribute are one set of intervals, as ORs of `=` are: they are united, not expanded."""
    space = Space.parse("a int, b int, c int")
    ranges = {name: " OR ".join(f"{name} BETWEEN {9 * i} AND {9 * i + 4}" for i in range(12)) for name in "abc"}
    region = space.where(" AND ".join(f"({each})" for each in ranges.values()))
    assert len(region.terms) == 1 and region.terms[0].box_count() == 12**3
    assert len(space.where(" OR ".join(f"a BETWEEN {9 * i} AND {9 * i + 4}" for i in range(1_100))).terms) == 1


# --- Strings: equal spaces, and numberings that change ----------------------------------------------------------------


def recode(space: Space, more: list[str]) -> None:
    """As if the labels of every string attribute had been used up."""
    for attribute in space.attributes:
        if isinstance(attribute.axis, StringAxis):
            attribute.axis.labels = attribute.axis.labels.recoded(more)


@examples(80)
@given(cases(clauses=2), st.lists(st.sampled_from(["", "a", "aa", "b", "zz", "\0"]), max_size=4))
def test_regions_of_equal_spaces_mix(case: tuple[World, list[Condition]], other_strings: list[str]) -> None:
    world, (one, other) = case
    here, there = world.space(), world.space()
    recode(there, other_strings)
    a, b = here.where(one.sql), there.where(other.sql)
    in_a, in_b = world.truth(one), world.truth(other)
    check(world, a & b, in_a & in_b)
    check(world, b | a, in_a | in_b)
    if not b.has_balls:
        check(world, a - b, in_a & ~in_b)
    assert here.where(other.sql) == b and there.where(one.sql) == a
    assert hash(here.where(other.sql)) == hash(b)


@examples(80)
@given(cases(), st.lists(st.sampled_from(["", "a", "aa", "b", "zz", "\0"]), max_size=4))
def test_regions_survive_recoding(case: tuple[World, list[Condition]], more: list[str]) -> None:
    world, (condition,) = case
    space = world.space()
    region, same = space.where(condition.sql), space.where(condition.sql)
    text = region.to_sql()
    expected = world.truth(condition)
    recode(space, more)
    check(world, region, expected)
    assert region.to_sql() == text
    assert region == space.where(condition.sql) == same
    recode(space, [])
    assert [region.contains(event) for event in world.events[:20]] == expected[:20].tolist()
    assert region & same == region | same == region


def test_regions_of_different_spaces_do_not_mix() -> None:
    one, other = Space.parse("n int"), Space.parse("n int not null")
    operations: list[Callable[[Region, Region], object]] = [
        lambda a, b: a & b,
        lambda a, b: a | b,
        lambda a, b: a - b,
        lambda a, b: a.is_within(b),
    ]
    for operation in operations:
        with pytest.raises(CallerError, match="regions of different spaces do not mix"):
            operation(one.where("n = 1"), other.where("n = 1"))
    assert one.where("n = 1") != other.where("n = 1")


def used_up(space: Space) -> str:
    """Use up the labels just above the empty string; the text that the next cut there would need."""
    axis = space.attributes[0].axis
    assert isinstance(axis, StringAxis)
    text = "m"
    while axis.labels.cut(text) is not None:
        text = "\0" * len(text) + "\x01"
    return text


@pytest.mark.parametrize("operation", ["&", "|", "-", "==", "is_within"])
def test_an_operation_that_makes_a_string_axis_recode(operation: str) -> None:
    """Reading a region of an equal space mentions its strings here: that alone may change every label."""
    here, there = Space.parse("s string"), Space.parse("s string")
    here.where("s BETWEEN 'p' AND 'q'")
    text = used_up(here)
    a = here.where("s BETWEEN 'q' AND 'z'")
    written = text.replace("\0", "\\u0000").replace("\x01", "\\u0001")
    b = there.where(f"s < '{written}' OR s BETWEEN 'r' AND 't' OR s >= 'y'")
    labels = here.attributes[0].axis.labels  # type: ignore[attr-defined]
    strings = ["", "\0", text, "o", "p", "q", "q\0", "r", "s", "t", "t\0", "y", "z", "z\0"]
    events = [{"s": each} for each in strings]
    in_a = ["q" <= each <= "z" for each in strings]
    in_b = [each < text or "r" <= each <= "t" or each >= "y" for each in strings]
    if operation == "==":
        assert a != b
    elif operation == "is_within":
        assert not a.is_within(b)
    else:
        logic: dict[str, Callable[[bool, bool], bool]] = {
            "&": lambda p, q: p and q,
            "|": lambda p, q: p or q,
            "-": lambda p, q: p and not q,
        }
        both = logic[operation]
        region = {"&": a.__and__, "|": a.__or__, "-": a.__sub__}[operation](b)
        found = [region.contains(event) for event in events]
        assert found == [both(p, q) for p, q in zip(in_a, in_b, strict=True)]
    assert here.attributes[0].axis.labels is not labels, "this test wants a recoding"  # type: ignore[attr-defined]
    assert [a.contains(event) for event in events] == in_a


# --- The rest of the surface ------------------------------------------------------------------------------------------


def test_batches_are_rows() -> None:
    space = Space.parse("n int, x double not null, s string")
    region = space.where("n > 0 AND s LIKE 'a%' OR within(1, x, 0) OR s IN ('p', 'q', 'r')")
    random = Random(3)
    rows = [
        {
            "n": random.choice([None, -1, 0, 1, 2**63 - 1]),
            "x": random.choice([0.0, 1.0, 1.1, math.nan, -math.inf]),
            "s": random.choice([None, "", "a", "ab", "b", "q", "z"]),
        }
        for _ in range(200)
    ]
    batch = {name: [row[name] for row in rows] for name in ("n", "x", "s")}
    found = region.contains_batch(batch)
    assert found.dtype == np.bool_ and found.tolist() == [region.contains(row) for row in rows]
    assert region.contains_batch({"n": [], "x": [], "s": []}).tolist() == []
    with pytest.raises(EventError, match="attribute 'x', row 1"):
        region.contains_batch({"n": [1, 2], "x": [1.0, None]})


def test_a_region_has_no_truth_value() -> None:
    with pytest.raises(TypeError, match="is_empty"):
        bool(Space.parse("n int").where("n = 1"))


def test_boxes_are_capped() -> None:
    space = Space.parse("n int, m int")
    region = space.where("n IN (1, 3, 5) AND m IN (1, 3, 5, 7) OR n = 9")
    low, _ = region.boxes()
    assert len(low) == 13
    with pytest.raises(TooManyBoxes, match="needs 13 boxes, at most 12"):
        region.boxes(cap=12)


def test_to_sql_of_the_ends() -> None:
    space = Space.parse("n int, x double, s string, b bool")
    assert Region.everything(space).to_sql() == "TRUE" and Region.nothing(space).to_sql() == "FALSE"
    assert space.where("TRUE") == Region.everything(space) and space.where("FALSE") == Region.nothing(space)
    for clause in (
        "n > -9223372036854775807",
        "n = 9223372036854775807",
        "n <> 9223372036854775807",
        "x = 'NaN'",
        "x < 'NaN'",
        "x > 'Infinity'",
        "x IN ('Infinity', 'NaN', '-Infinity')",
        "x > '-Infinity' AND x <= 0",
        "x <> 0 AND x IS NOT NULL",
        "s = '' OR s IS NULL",
        "s > ''",
        r"s LIKE '\u0000%' OR s = '\\' OR s = '\'' OR s LIKE '100\%%'",
        r"s >= 'a\u0000' AND s < 'a\u0000\u0000'",
        "NOT b OR b IS NULL",
    ):
        region = space.where(clause)
        assert not region.is_empty
        assert space.where(region.to_sql()) == region, region.to_sql()


@pytest.mark.parametrize(
    "clause",
    [
        "n NOT IN ({list}) AND n > 0",
        "n NOT IN ({list})",
        "n IN ({list}) OR n IS NULL",
        "n NOT IN ({list}) AND (m = 1 OR n < 10 AND m = 2)",
    ],
)
def test_long_lists_can_be_read_back(clause: str) -> None:
    space = Space.parse("n int, m int")
    region = space.where(clause.format(list=", ".join(str(3 * i) for i in range(5_000))))
    assert space.where(region.to_sql()) == region


@pytest.mark.parametrize(
    ("declared", "clause", "volume"),
    [
        ("x double 0..1000", "x <= 1", 1.0),
        ("x double 0..1000", "x >= 1", 999.0),
        ("x double 0..1000", "TRUE", 1000.0),
        ("x double 0..1000", "x = 5 OR x IS NULL", 0.0),
        ("x double 0..1000", "x BETWEEN 1 AND 3 OR x BETWEEN 2 AND 4", 3.0),
        ("n int 1..10, x double 0..10", "n >= 6 OR x <= 5", 75.0),
        ("d date '2020-01-01'..'2020-01-31'", "TRUE", 31.0),
        ("t timestamp '2020-01-01'..'2020-01-02'", "t < TIMESTAMP'2020-01-01 00:01:00'", 60.0),
        ("a decimal(5,2) 0..9.99", "a < 5", 5.0),
        ("s string", "s IN ('a', 'b')", 2.0),
        ("e enum('a','b','c')", "e > 'a'", 2.0),
        ("x double", "x > 0", math.inf),
        ("x double", "x = 'Infinity'", 0.0),
        ("x double", "x >= 'Infinity'", 0.0),
        ("x double, y double", "x = 1", 0.0),
    ],
)
def test_volume_in_values(declared: str, clause: str, volume: float) -> None:
    assert Space.parse(declared).where(clause).volume() == pytest.approx(volume)


def test_terms_compare_by_what_they_hold() -> None:
    one = Term(((0, Intervals.between(1, 2)),), (Ball((1,), (0.0,), 1.0),))
    assert one == Term(((0, Intervals.of([(1, 2)])),), (Ball((1,), (-0.0,), 1.0),)) and hash(one) == hash(
        Term(((0, Intervals.of([(1, 1), (2, 2)])),), (Ball((1,), (0.0,), 1.0),))
    )
    assert one != Term(((0, Intervals.between(1, 2)),)) and one != "term"
