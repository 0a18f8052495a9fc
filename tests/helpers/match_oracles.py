"""Oracles for matching, and sets of regions and events to ask them about.

Two ways to say who wants an event that share nothing with the match indexes:

1. `inside`: brute force in NumPy over the int64 coordinates of plain boxes.
2. `Region.contains`, one region and one event at a time, for everything that a clause can say (Spark vouches for it).

A `Case` is one set with its events and the right answers; a `Ledger` has the right answers for fixed events while
regions come and go. The rest makes cases: families of boxes that are hard for some index, and regions out of clauses
over every type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import cached_property, partial
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.random import Generator
from numpy.typing import NDArray

from helpers.clause_rows import SPACE, make_rows, without_some_nulls
from helpers.clauses import ClauseWriter
from helpers.cover_oracles import MIXED_SPACES, Cells, clause_pool, ints
from helpers.strategies import soaked
from thatch import Space
from thatch.region.intervals import Intervals
from thatch.region.region import Region
from thatch.region.term import Term
from thatch.space.axis import BoolAxis, DateAxis, IntAxis, TimestampAxis, TimestampNtzAxis
from thatch.space.decimals import DecimalAxis
from thatch.space.floating import DoubleAxis, FloatAxis

SEED = 20240301
INT_MIN, INT_MAX = -(2**63), 2**63 - 1
Numbers = NDArray[np.int64]
Coordinates = NDArray[np.int64]
Mask = NDArray[np.bool_]
Pairs = tuple[Numbers, Numbers]  # rows and numbers, ascending
Boxes = tuple[Space, Coordinates, Coordinates]
Event = dict[str, Any]


# --- The right answers -----------------------------------------------------------------------------------------------


def inside(low: Coordinates, high: Coordinates, points: Coordinates) -> Mask:
    """Which of the points[m, d] lie in which of the boxes low[n, d], high[n, d]: a mask [m, n]."""
    found = np.ones((len(points), len(low)), np.bool_)
    for axis in range(points.shape[1]):
        at = points[:, axis, None]
        found &= (low[:, axis] <= at) & (at <= high[:, axis])
    return found


def pairs_by_force(numbers: Numbers, low: Coordinates, high: Coordinates, points: Coordinates) -> Pairs:
    order = np.argsort(numbers)
    rows, found = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    chunk = max(1, 2**22 // max(1, len(numbers)))  # masks of a few megabytes
    for start in range(0, len(points), chunk):
        mask = inside(low[order], high[order], points[start : start + chunk])
        row, position = np.nonzero(mask)
        rows.append(row + start)
        found.append(numbers[order][position])
    return np.concatenate(rows), np.concatenate(found)


def pairs_of(mask: Mask, numbers: Numbers) -> Pairs:
    """From a mask [rows, regions]."""
    order = np.argsort(numbers)
    rows, positions = np.nonzero(mask[:, order])
    return rows, numbers[order][positions]


def contained(regions: Sequence[Region], events: Sequence[Event]) -> Mask:
    """`Region.contains` of every region and event, one by one but for the encoding: a mask [rows, regions]."""
    if not regions:
        return np.zeros((len(events), 0), np.bool_)
    points = [regions[0].space.encode(event) for event in events]
    answers = [[region.contains_point(point) for region in regions] for point in points]
    return np.array(answers, np.bool_).reshape(len(events), len(regions))


@dataclass
class Case:
    """Regions under numbers, and events; for plain boxes the coordinates of both instead of regions."""

    name: str
    space: Space
    numbers: Numbers  # of the regions, in the order in which they come
    events: list[Event]
    given: Sequence[Region] = ()
    boxes: tuple[Coordinates, Coordinates] | None = None
    points: Coordinates | None = None

    @cached_property
    def regions(self) -> list[Region]:
        if self.boxes is None:
            return list(self.given)
        low, high = self.boxes
        return [region_of_boxes(self.space, low[[at]], high[[at]]) for at in range(len(low))]

    @cached_property
    def pairs(self) -> Pairs:
        if self.boxes is not None and self.points is not None:
            return pairs_by_force(self.numbers, *self.boxes, self.points)
        return pairs_of(contained(self.regions, self.events), self.numbers)

    @cached_property
    def batch(self) -> dict[str, Any]:
        """The events as a dict of arrays."""
        return columns_of(self.space, self.events)

    @cached_property
    def table(self) -> pa.Table:
        return arrow_of(self.space, self.events)

    def numbers_of(self, row: int) -> list[int]:
        rows, numbers = self.pairs
        return numbers[np.searchsorted(rows, row) : np.searchsorted(rows, row, "right")].tolist()

    def singles(self, count: int) -> range:
        """Rows to ask one by one, spread evenly."""
        return range(0, len(self.events), max(1, len(self.events) // count))

    def share(self) -> float:
        """Of all pairs, those that match."""
        return len(self.pairs[0]) / max(1, len(self.events) * len(self.numbers))


def columns_of(space: Space, events: Sequence[Event]) -> dict[str, Any]:
    """A dict of arrays: NumPy where it holds the values exactly, lists elsewhere."""
    columns: dict[str, Any] = {}
    for attribute in space.attributes:
        values = [event.get(attribute.name) for event in events]
        kind = {IntAxis: np.int64, DoubleAxis: np.float64, BoolAxis: np.bool_}.get(type(attribute.axis))
        columns[attribute.name] = values if kind is None or None in values else np.array(values, kind)
    return columns


def arrow_of(space: Space, events: Sequence[Event]) -> pa.Table:
    columns = {}
    for attribute in space.attributes:
        axis, kind = attribute.axis, pa.string()
        if isinstance(axis, DecimalAxis):
            kind = pa.decimal128(axis.precision, axis.scale)
        for known, arrow in _ARROW.items():
            kind = arrow if isinstance(axis, known) else kind
        columns[attribute.name] = pa.array([event.get(attribute.name) for event in events], kind)
    return pa.table(columns)


_ARROW = {
    BoolAxis: pa.bool_(),
    IntAxis: pa.int64(),
    DoubleAxis: pa.float64(),
    FloatAxis: pa.float32(),
    TimestampNtzAxis: pa.timestamp("us"),
    DateAxis: pa.date32(),
    TimestampAxis: pa.timestamp("us", "UTC"),
}


class Ledger:
    """What must be said of a fixed batch of events while regions come and go under numbers below a limit."""

    def __init__(self, rows: int, limit: int) -> None:
        self.members: dict[int, None] = {}  # in the order in which they came
        self._hits = np.zeros((rows, limit), np.bool_)

    def add(self, numbers: Iterable[int], hits: Mask) -> None:
        """With a mask [rows, numbers]."""
        for position, number in enumerate(numbers):
            assert number not in self.members
            self.members[number] = None
            self._hits[:, number] = hits[:, position]

    def discard(self, number: int) -> None:
        self.members.pop(number, None)
        self._hits[:, number] = False

    def numbers_of(self, row: int) -> list[int]:
        return np.flatnonzero(self._hits[row]).tolist()

    def pairs(self) -> Pairs:
        rows, numbers = np.nonzero(self._hits)
        return rows, numbers


# --- Families of boxes -----------------------------------------------------------------------------------------------

EDGES = [INT_MIN, INT_MIN + 1, INT_MIN + 2, -(2**62), -(2**53) - 1, -2, -1, 0, 1, 2, 2**53, 2**53 + 1, 2**62]
EDGES += [INT_MAX - 2, INT_MAX - 1, INT_MAX]
DOUBLES = [math.nan, math.inf, -math.inf, 0.0, 5e-324, -5e-324, 1e-310, -1e-310, 2.2250738585072014e-308, 1.0, -1.0]
DOUBLES += [math.nextafter(1.0, 2.0), math.nextafter(1.0, 0.0), 0.1, 1e300, 1.7976931348623157e308]


def scattered(rng: Generator, attributes: int, count: int, share: float, size: int = 1000) -> Boxes:
    """Uniform boxes whose sides are up to this share of the axis."""
    low = rng.integers(0, size, (count, attributes))
    high = np.minimum(low + rng.integers(0, max(1, int(size * share)), low.shape), size - 1)
    return ints(*[size] * attributes), low, high


def zipf(rng: Generator) -> Boxes:
    """Most boxes in one corner of the first attributes, small; a few large."""
    low = np.minimum(rng.zipf(1.4, (400, 4)), 10**6) - 1
    return ints(*[10**7] * 4), low, np.minimum(low + np.minimum(rng.zipf(1.3, low.shape), 10**6), 10**7 - 1)


def log_uniform(rng: Generator) -> Boxes:
    """Ends of every magnitude: whatever cuts an axis evenly sees all of them in its first cell."""
    ends = np.sort(np.exp(rng.uniform(0, math.log(2e18), (300, 3, 2))).astype(np.int64), axis=2)
    return Space.parse("a int not null, b int not null, c int not null"), ends[:, :, 0], ends[:, :, 1]


def nested(rng: Generator) -> Boxes:
    depth = rng.permutation(300)[:, None]
    return ints(600, 700, 1000), depth + np.array([0, 20, 0]), np.array([599, 679, 999]) - depth * np.array([1, 1, 2])


def equal(rng: Generator) -> Boxes:
    return ints(1000, 1000, 1000), np.full((300, 3), 400), np.full((300, 3), 600)


def equal_points(rng: Generator) -> Boxes:
    """No median tells any two of these apart, and none of them has an inside."""
    return ints(1000, 1000), np.full((700, 2), 400), np.full((700, 2), 400)


def repeated(rng: Generator) -> Boxes:
    """A few boxes, many times each."""
    space, low, high = scattered(rng, 3, 7, 0.5)
    chosen = rng.integers(0, 7, 400)
    return space, low[chosen], high[chosen]


def slabs(rng: Generator) -> Boxes:
    """One or two coordinates thick in one attribute, everything in the others."""
    space = ints(1000, 1000, 1000, 1000)
    low, high = np.zeros((400, 4), np.int64), np.full((400, 4), 999)
    thin = np.arange(400), rng.integers(0, 4, 400)
    low[thin] = rng.integers(0, 999, 400)
    high[thin] = low[thin] + rng.integers(0, 2, 400)
    return space, low, high


def one_unconstrained(rng: Generator) -> Boxes:
    space, low, high = scattered(rng, 3, 400, 0.01)
    low[123], high[123] = 0, 999
    return space, low, high


def few_of_twenty(rng: Generator) -> Boxes:
    """Twenty attributes, each box constrains three of its own choice."""
    low, high = np.zeros((300, 20), np.int64), np.full((300, 20), 99)
    for box in range(300):
        for axis in rng.permutation(20)[:3]:
            low[box, axis], high[box, axis] = np.sort(rng.integers(0, 100, 2))
    return ints(*[100] * 20), low, high


def same_of_twenty(rng: Generator) -> Boxes:
    """Twenty attributes, all boxes constrain the same three; full ranges in the others."""
    space = Space.parse(", ".join(f"a{index} int{' not null' if index % 2 else ''}" for index in range(20)))
    low, high = space.low.repeat(300, 0), space.high.repeat(300, 0)
    low[:, [3, 10, 19]] = rng.integers(0, 1000, (300, 3))
    high[:, [3, 10, 19]] = low[:, [3, 10, 19]] + rng.integers(0, 200, (300, 3))
    return space, low, high


def cells(rng: Generator) -> Boxes:
    """A tiling: neighbours touch, and no two meet."""
    low = np.stack(np.meshgrid(np.arange(18), np.arange(19)), -1).reshape(-1, 2) * 7
    return ints(18 * 7, 19 * 7), low, low + 6


def diagonal(rng: Generator) -> Boxes:
    low = np.arange(300)[:, None].repeat(3, 1) * 3
    return ints(1000, 1000, 1000), low, low + 5


def staircase(rng: Generator) -> Boxes:
    """All begin at one corner; the ends differ."""
    return ints(1000, 1000, 1000), np.zeros((300, 3), np.int64), np.sort(rng.integers(0, 1000, (300, 3)), 0)


def outlier(rng: Generator) -> Boxes:
    """One box at 10^18 among boxes at 0..1000."""
    _, low, high = scattered(rng, 3, 400, 0.1)
    low[77], high[77] = 10**18, 10**18 + 5
    low[78], high[78] = -(10**18), 10**18
    return Space.parse("a int not null, b int not null, c int"), low, high


def far(rng: Generator) -> Boxes:
    """Narrow boxes so far out that no float tells neighbours apart."""
    low = rng.choice([2**62, -(2**62), 2**53, INT_MAX - 40, INT_MIN + 1], (300, 2)) + rng.integers(0, 30, (300, 2))
    return Space.parse("a int not null, b int"), low, low + rng.integers(0, 6, low.shape)


def extreme(rng: Generator, text: str) -> Boxes:
    """Ends at the ends of the axes, next to them, at zero, and at doubles that are easy to get wrong."""
    space = Space.parse(text)
    low, high = space.low.repeat(260, 0), space.high.repeat(260, 0)
    for index, attribute in enumerate(space.attributes):
        first, last = attribute.low, attribute.last
        ends = {min(max(edge, first), last) for edge in EDGES} | {attribute.first, min(first + 1, last)}
        ends |= {max(last - 1, first), last}
        if isinstance(attribute.axis, DoubleAxis):
            codes = map(attribute.axis.encode, DOUBLES)
            ends |= {min(max(code, attribute.first), last) for code in codes}
        chosen = np.sort(rng.choice(np.array(sorted(ends), np.int64), (260, 2)), axis=1)
        bounded = rng.random(260) < 0.8
        low[bounded, index], high[bounded, index] = chosen[bounded].T
    return space, low, high


def some_empty(rng: Generator) -> Boxes:
    """Every third box ends before it begins."""
    space, low, high = scattered(rng, 3, 300, 0.4)
    low[::3, 1] = high[::3, 1] + 1
    return space, np.minimum(low, 999), np.where(low > 999, 998, high)


COUNTS = (0, 1, 2, 63, 64, 65, 255, 256, 257, 4095, 4096, 4097)
ATTRIBUTES = (1, 2, 3, 4, 5, 8, 13, 20)
EXTREME_SPACES = (
    "x int not null",
    "x int",
    "x double",
    "x int not null, y int not null",
    "x int, y double, z int not null",
    "s timestamp, d decimal(18,4), x int not null, y double not null",
    "a int not null 7..7, b int 3..3, c bool not null, d int not null -2..2",
    f"a int not null {INT_MAX}..{INT_MAX}, b int not null {INT_MIN}..{INT_MIN + 1}",
)
FAMILIES: dict[str, Callable[[Generator], Boxes]] = {
    **{f"{count} boxes": partial(scattered, attributes=3, count=count, share=0.25) for count in COUNTS},
    **{f"{d} attributes": partial(scattered, attributes=d, count=300, share=min(0.9, 0.15 * d)) for d in ATTRIBUTES},
    **{f"extreme {at}": partial(extreme, text=text) for at, text in enumerate(EXTREME_SPACES)},
    **{
        each.__name__: each
        for each in (
            zipf, log_uniform, nested, equal, equal_points, repeated, slabs, one_unconstrained, few_of_twenty,
            same_of_twenty, cells, diagonal, staircase, outlier, far, some_empty,
        )
    },
}  # fmt: skip


def box_case(name: str) -> Case:
    """A family by its name, its boxes under shuffled numbers with gaps."""
    rng = np.random.default_rng([SEED, *name.encode()])
    space, low, high = FAMILIES[name](rng)
    points = telling_points(rng, space, low, high)
    numbers = rng.permutation(3 * len(low))[: len(low)]
    return Case(name, space, numbers, decoded(space, points), boxes=(low, high), points=points)


def decoded(space: Space, points: Coordinates) -> list[Event]:
    return [space.decode(point) for point in points.tolist()]


def telling_points(rng: Generator, space: Space, low: Coordinates, high: Coordinates) -> Coordinates:
    """For every box: points inside but for one attribute, which is at low - 1, low, high, high + 1; and anywhere.

    Every attribute in turn for a small set; for a larger one any attribute, and, but for `make soak`, either end; of
    thousands of boxes only some.
    """
    count, attributes = low.shape
    anywhere = rng.integers(space.low, space.high, (60, attributes), np.int64, endpoint=True)
    if not count:
        return anywhere
    if 4 * count * attributes <= 2500:
        box, axis, kind = (each.ravel() for each in np.indices((count, attributes, 4)))
    else:
        chosen = np.arange(count) if count <= 1000 else rng.permutation(count)[:500]
        box, kind = (each.ravel() for each in np.meshgrid(chosen, np.arange(soaked(2, 4))))
        if not soaked(0, 1):
            kind = np.where(
                rng.random(len(kind)) < 0.5, kind, 3 - kind
            )  # before or after; the first or the last inside
        axis = rng.integers(0, attributes, len(box))
    points = rng.integers(low[box], np.maximum(low[box], high[box]), dtype=np.int64, endpoint=True)
    begin, end = low[box, axis], high[box, axis]
    before = np.where(begin > space.low[0, axis], begin - 1, begin)
    after = np.where(end < space.high[0, axis], end + 1, end)
    points[np.arange(len(box)), axis] = np.choose(kind, [before, begin, end, after])
    corners = rng.integers(0, count, 30)
    return np.concatenate([points, low[corners], high[corners], anywhere])


def region_of_boxes(space: Space, low: Coordinates, high: Coordinates) -> Region:
    """The union of some boxes; those that end before they begin hold nothing."""
    terms = []
    for least, most in zip(low.tolist(), high.tolist(), strict=True):
        sides = []
        for index, attribute in enumerate(space.attributes):
            if (least[index], most[index]) != (attribute.low, attribute.last):
                sides.append((index, Intervals.between(least[index], most[index])))
        if all(intervals.ends for _, intervals in sides):
            terms.append(Term(tuple(sides)))
    return Region(space, terms)


# --- Regions of clauses ----------------------------------------------------------------------------------------------


def clause_case(name: str, space: Space, clauses: Iterable[str], events: Sequence[Event]) -> Case:
    regions = [space.where(clause) for clause in clauses]
    random = Random(f"{SEED}/{name}")
    numbers = np.array(random.sample(range(3 * len(regions)), len(regions)), np.int64)
    return Case(name, space, numbers, list(events), regions)


def every_type() -> Case:
    """Random clauses over eighteen attributes of every type, `within` among them."""
    random = Random(f"{SEED}/every type")
    writer = ClauseWriter(random)
    events = [without_some_nulls(random, row) for row in make_rows(random, soaked(60, 90))]
    clauses = [writer.clause().ours for _ in range(soaked(120, 180))]
    return clause_case("every type", Space.parse(SPACE), clauses, events)


def mixed(text: str) -> Case:
    """Clauses of few attributes, and an event of every cell that they cut the space into."""
    space, pool = clause_pool(text, soaked(50, 90), SEED)
    events = [space.decode(point) for point in Cells(space, pool).points()]
    random = Random(f"{SEED}/{text}")
    numbers = np.array(random.sample(range(300), len(pool)), np.int64)
    return Case(f"mixed: {text}", space, numbers, random.sample(events, min(soaked(120, 260), len(events))), pool)


def doubles() -> Case:
    space = Space.parse("x double, y double not null, z double not null -1..1")
    texts = [written(value) for value in [*DOUBLES, -0.0]]
    shapes = [
        "x = {}",
        "x < {}",
        "x >= {}",
        "x <=> {}",
        "x <> {}",
        "y > {}",
        "NOT (x < {})",
        "z <= {}",
        "y IN ({}, 2D)",
    ]
    clauses = [shape.format(text) for shape in shapes for text in texts]
    clauses += [f"x BETWEEN {low} AND {high}" for low in texts[1::3] for high in texts[::4]]
    clauses += [f"x NOT IN ({', '.join(texts[::2])})", f"y IN ({', '.join(texts)}) AND x IS NOT NULL", "x IS NULL"]
    values = [*DOUBLES, -0.0, None, math.nextafter(1e300, 0)]
    rest = [value for value in values if value is not None]
    events: list[Event] = [
        {"x": value, "y": rest[(at * 5) % len(rest)], "z": rest[3 + (at + turn) % 9]}
        for turn in range(6)
        for at, value in enumerate(values)
    ]
    return clause_case("doubles", space, clauses, [event for event in events if abs(event["z"]) <= 1])


def written(value: float) -> str:
    """A double as a literal; those without one as the text that Spark casts."""
    if math.isfinite(value):
        return f"{value!r}D"
    return "'NaN'" if math.isnan(value) else "'Infinity'" if value > 0 else "'-Infinity'"


def nulls() -> Case:
    space = Space.parse("a int 0..3, b bool, c string, d double, e enum('x', 'y'), f int not null 0..2")
    clauses = [f"{name} {test}" for name in "abcde" for test in ("IS NULL", "IS NOT NULL", "<=> NULL", "= NULL")]
    clauses += ["a <=> 1", "NOT (a <=> 1)", "a <> 1", "NOT (a = 1)", "a NOT IN (1, 2)", "a IN (0, NULL)", "a >= 0"]
    clauses += ["b", "NOT b", "b IS TRUE", "b IS NOT TRUE", "b IS FALSE", "b IS NOT FALSE", "b IS UNKNOWN"]
    clauses += ["a IS NULL AND b IS NULL", "a IS NULL OR b", "NOT (a IS NULL OR c IS NULL)", "a < 2 OR a IS NULL"]
    clauses += ["c <=> 'x' OR d IS NULL", "c IS DISTINCT FROM 'x'", "d <=> 'NaN'", "f < 1 AND e IS NULL", "TRUE"]
    clauses += ["a IS NULL AND a IS NOT NULL", "a = NULL OR f = 1", "NOT (a < 2 AND c = 'x')", "e <> 'x' OR a = 3"]
    choices = product([None, 0, 1, 3], [None, True, False], [None, "x", "w"], [None, math.nan, 0.5], [None, "x"])
    events = [dict(zip("abcde", values, strict=True)) for values in choices]
    for at, event in enumerate(events):  # half of the NULLs are left out
        events[at] = {name: value for name, value in event.items() if value is not None or at % 2} | {"f": at % 3}
    return clause_case("nulls", space, clauses, events)


BALL_SPACE = "x double, y double not null -1000..1000, n int, p decimal(6,2) not null -50..50"


def balls() -> Case:
    """Events exactly on the radius (3² + 4² = 5²) and one step off it, NULLs, and radii of every size."""
    space, random = Space.parse(BALL_SPACE), Random(f"{SEED}/balls")
    clauses = ["within(0, x, 3, y, 4)", "within(1e-200, x, 3, y, 4)", "within(1e200, x, 0, y, 0)", "within(5, x, 0)"]
    clauses += ["within(5, n, 3, p, 4)", "within(2.5, p, 1.5)", "within(NULL, x, 0)", "within(0, n, 7)"]
    clauses += ["within(13, x, 0, y, 0, n, 0)", "within(5, x, 0, y, 0) OR n = 3", "within(5, x, 0, y, 0) OR x > 3D"]
    clauses += ["within(5, x, 0, y, 0) AND n IN (1, 3, 5)", "within(5, x, 0, y, 0) AND within(5, x, 6, y, 8)"]
    clauses += ["within(5, x, 0, y, 0) AND within(5, x, 6, y, 0)", "x IS NULL", "n IS NULL AND y > 0D"]
    events: list[Event] = []
    for _ in range(soaked(90, 150)):
        scale, cx, cy = random.choice((0.1, 1.0, 5.0)), float(random.randint(-9, 9)), float(random.randint(-9, 9))
        clauses.append(f"within({5 * scale!r}D, x, {cx!r}D, y, {cy!r}D)" + random.choice(("", "", " AND n > 2")))
        dx, dy = random.choice(((3, 4), (4, -3), (-5, 0), (0, 5), (-3, -4)))
        x, y = cx + dx * scale, cy + dy * scale
        x = random.choice((x, math.nextafter(x, math.inf), math.nextafter(x, -math.inf)))
        events.append({"x": x, "y": y, "n": random.choice((None, *range(8))), "p": random.randint(-50, 50)})
    odd: tuple[float | None, ...] = (3.0, -5.0, 0.0, -0.0, math.nan, math.inf, None)
    for own_x, own_y in product(odd, (4.0, 0.0, math.nextafter(4, 5), 1000.0)):
        events.append(
            {"x": own_x, "y": own_y, "n": random.choice((None, 3, 7)), "p": random.choice((-1, 4, Decimal("1.5")))}
        )
    return clause_case("balls", space, clauses, events)


STRINGS = ["", "\0", "a", "ab", "abc", "abc\0", "abc\x01", "abcd", "abc\U0010ffff", "abd", "ac", "b", "B", "é", "😀"]
STRINGS += ["zz", "\uffff", "\U0010ffff", "abc%", "it's"]


def strings() -> Case:
    """Prefixes, ranges between known boundaries, and texts that fall in the gaps between them."""
    space = Space.parse("name string, code string not null, size int 0..9")
    quoted = [text.replace("'", "''").replace("\0", "\\0") for text in STRINGS]
    clauses = [f"name {operator} '{text}'" for text in quoted for operator in ("=", "<", ">=", "<>")]
    clauses += [f"name LIKE '{prefix}%'" for prefix in ("", "a", "ab", "abc", "abcd", "é", "😀", "b", "q")]
    clauses += [f"code NOT LIKE '{prefix}%' AND size > 3" for prefix in ("a", "abc", "z")]
    clauses += [f"code BETWEEN '{low}' AND '{high}'" for low in ("a", "abc", "b") for high in ("abc", "abcz", "é")]
    clauses += ["name LIKE 'abc%' AND code LIKE 'ab%'", "name LIKE 'abc%' OR name = 'b' OR size = 3"]
    clauses += ["name > 'abc' AND name < 'abd'", "name > 'abc' AND name < 'abcd'", "name NOT IN ('a', 'b', 'abc')"]
    between = [text + tail for text in STRINGS for tail in ("", "\0", "~", "ab")] + ["Q", "aa", "abb", "zzz"]
    random = Random(f"{SEED}/strings")
    events = [{"name": text, "code": random.choice(between), "size": at % 10} for at, text in enumerate(between)]
    events += [{"name": None, "code": text} for text in between[::3]]
    return clause_case("strings", space, clauses, events)


def unions() -> Case:
    """Terms that overlap: most events lie in several terms of one region, which is named once."""
    space, random = ints(12, 12, 12), Random(f"{SEED}/unions")
    clauses = []
    for _ in range(soaked(60, 100)):
        terms = []
        for _ in range(random.choice((2, 3, 5, 9))):
            sides = []
            for name in random.sample(("a0", "a1", "a2"), random.randint(1, 3)):
                low = random.randint(0, 8)
                sides.append(f"{name} BETWEEN {low} AND {random.randint(low, 12)}")
            terms.append(" AND ".join(sides))
        clauses.append(" OR ".join(f"({term})" for term in terms))
    events = [{f"a{axis}": random.randint(0, 11) for axis in range(3)} for _ in range(soaked(100, 200))]
    return clause_case("unions", space, clauses, events)


LONG_LIST = soaked(5_000, 50_000)
LIST_SIZES = (1, 15, 16, 17, 300, LONG_LIST)


def watchlists() -> Case:
    """IN and NOT IN lists of every third value, alone, combined with others, and next to them."""
    space = Space.parse("id int, weight double, name string, size int not null 0..99")
    writers: dict[str, Callable[[int], str]] = {
        "id": str,
        "weight": lambda at: f"{at}.5D",
        "name": lambda at: f"'s{at:06d}'",
    }
    clauses = ["size < 50", "TRUE", "1 = 0"]
    for attribute, write in writers.items():
        for size in LIST_SIZES:
            texts = ", ".join(write(3 * at) for at in range(size))
            clauses.append(f"{attribute} IN ({texts}) AND size < 50")
            if size < LONG_LIST:
                clauses += [f"{attribute} IN ({texts})", f"{attribute} NOT IN ({texts})"]
                clauses += [f"{attribute} IN ({texts}) OR size = 7", f"{attribute} NOT IN ({texts}) AND size >= 50"]
    for size in (2, 16, 300):
        lists = [f"{name} IN ({', '.join(write(3 * at) for at in range(size))})" for name, write in writers.items()]
        clauses += [" AND ".join(lists), " OR ".join(lists), f"{lists[0]} AND NOT ({lists[2]})"]
    random = Random(f"{SEED}/watchlists")
    events = []
    last = 3 * LONG_LIST
    for at in [-3, -1, *range(55), 897, 898, 899, 900, 903, last - 6, last - 3, last - 2, last, 10**6]:
        for turn in range(2):
            near = [at, at, at + random.choice((-1, 1, 3)), None]
            id, weight, name = (random.choice(near) for _ in range(3)) if turn else (at, at, at)
            event: Event = {"id": id, "size": random.choice((0, 7, 49, 50, 99))}
            event["weight"] = None if weight is None else weight + random.choice((0.5, 0.5, 0.5, 0.25))
            event["name"] = None if name is None else f"s{name:06d}" + random.choice(("", "", "", "\0", "x"))
            events.append(event)
    return clause_case("watchlists", space, clauses, events)


def times() -> Case:
    """Dates, timestamps and decimals at their bounds and one step off."""
    space = Space.parse(
        "day date, at timestamp not null, price decimal(8,2) -100..100, ok bool, kind enum('a','b','c')"
    )
    days, moments, prices = (28, 29), (0, 999_999), ("-100", "-0.01", "0", "0.01", "19.99", "20", "100")
    clauses = [f"day {operator} DATE'2020-02-{day}'" for operator in ("=", "<", ">=") for day in days]
    clauses += [
        f"at {operator} TIMESTAMP'2020-02-29 10:00:00.{moment:06d}'"
        for operator in ("<=", ">", "=")
        for moment in moments
    ]
    clauses += [f"price {operator} {price}" for operator in ("<", "<=", "=", "<>") for price in prices]
    clauses += [f"kind {test} AND ok" for test in ("= 'a'", "> 'a'", "LIKE '%'", "IN ('a', 'c')", "<> 'b'")]
    clauses += ["day IS NULL", "day < '2020-02-29' AND price BETWEEN 0 AND 20 OR NOT ok", "price IS NULL OR kind = 'c'"]
    random = Random(f"{SEED}/times")
    base = datetime(2020, 2, 29, 10, tzinfo=UTC)
    events = []
    for at in range(soaked(100, 180)):
        second, micro = random.choice(((0, 0), (0, 1), (0, 999_998), (0, 999_999), (1, 0)))
        price = random.choice((None, "-100.00", "-99.99", "-0.01", "0.00", "0.01", "0.02", "19.99", "20.00", "100.00"))
        event: Event = {"at": base.replace(second=second, microsecond=micro), "kind": random.choice("abc")}
        event["price"] = None if price is None else Decimal(price)
        event["day"] = None if at % 9 == 0 else base.replace(day=random.choice((1, 27, 28, 29))).date()
        event["ok"] = random.choice((None, True, False))
        events.append(event)
    return clause_case("times", space, clauses, events)


CLAUSES: dict[str, Callable[[], Case]] = {
    "every type": every_type,
    **{f"mixed {at}": partial(mixed, text) for at, text in enumerate(MIXED_SPACES)},
    "doubles": doubles,
    "nulls": nulls,
    "balls": balls,
    "strings": strings,
    "unions": unions,
    "watchlists": watchlists,
    "times": times,
}


# --- Regions that come and go ----------------------------------------------------------------------------------------


@dataclass
class Pool:
    """Regions to draw from, fixed events, and which event lies in which region."""

    space: Space
    regions: list[Region]
    events: list[Event]
    mask: Mask  # [rows, regions]

    @cached_property
    def table(self) -> pa.Table:
        return arrow_of(self.space, self.events)


def box_pool(rng: Generator, space: Space, boxes: tuple[Coordinates, Coordinates], points: Coordinates) -> Pool:
    """Unions of one to four of the boxes; the mask is brute force."""
    regions, masks = [], []
    for _ in range(150):
        chosen = rng.integers(0, len(boxes[0]), rng.choice([1, 1, 2, 4]))
        low, high = boxes[0][chosen], boxes[1][chosen]
        regions.append(region_of_boxes(space, low, high))
        masks.append(inside(low, high, points).any(axis=1))
    return Pool(space, regions, decoded(space, points), np.stack(masks, axis=1))


def mixed_pool(text: str) -> Pool:
    """Regions of clauses, with OR, IN, NULL and strings. A space of its own: its strings may be recoded."""
    case = mixed(text)
    return Pool(case.space, case.regions, case.events, contained(case.regions, case.events))
