"""`thatch.spark.learn` compared with brute force over a small table."""

from __future__ import annotations

import re
from itertools import combinations
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from helpers.spark_oracles import SEED
from thatch import Region, Space, SubscriptionTable
from thatch.cover import Covered, verify
from thatch.errors import CallerError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("pyspark")
import thatch.spark as ts


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    return frame.toArrow().to_pylist()


SPACE = Space.parse("x double not null 0..100, y int not null 0..99, s string")
WORDS = ("ash", "beech", "cedar", None)


def clauses_of(dice: Random) -> dict[str, str]:
    """Boxes, most of them in the west and in the south; nested, equal and of several terms."""
    clauses = {}
    for at in range(24):
        x, y, size = dice.uniform(0, 40), dice.randrange(60), dice.choice((3, 8, 15))
        clauses[f"box{at}"] = f"x BETWEEN {x:.2f} AND {x + size:.2f} AND y BETWEEN {y} AND {y + size}"
        if at % 4 == 0:
            clauses[f"inner{at}"] = f"x BETWEEN {x + 1:.2f} AND {x + 2:.2f} AND y BETWEEN {y} AND {y + size}"
        if at % 8 == 0:
            clauses[f"equal{at}"] = clauses[f"box{at}"]
            clauses[f"word{at}"] = f"{clauses[f'box{at}']} AND s IN ('ash', 'oak')"
    return clauses | {
        "far": "x > 90 AND y > 80",
        "two": "x < 1 AND y < 5 OR x > 99 AND y < 5",
        "none": "x < 5 AND x > 6",
    }


@pytest.fixture(scope="module")
def world(spark: SparkSession) -> tuple[ts.Learned[Any], dict[str, Region], pa.Table, dict[str, Any]]:
    """What was learnt, the regions, the events, and which of them each wants."""
    dice, space = Random(SEED), Space.from_json(SPACE.to_json())
    rows = [(dice.uniform(0, 60), dice.randrange(100), dice.choice(WORDS)) for _ in range(3000)]
    schema = pa.schema([pa.field("x", pa.float64(), False), pa.field("y", pa.int64(), False), ("s", pa.string())])
    events = pa.Table.from_arrays(list(map(pa.array, zip(*rows, strict=True))), schema=schema)
    clauses = clauses_of(dice)
    frame = spark.createDataFrame(list(clauses.items()), "id string, where string")
    learned = ts.learn(spark.createDataFrame(events), frame, space)
    regions = {id: space.where(clause) for id, clause in clauses.items()}
    return learned, regions, events, {id: region.contains_batch(events) for id, region in regions.items()}


def inside(one: Region, other: Region) -> bool:
    return verify(Covered((0,)), one, {0: other})


def test_matches_of_all_events(world: Any) -> None:
    learned, _, events, held = world
    assert {row["id"]: row["matches"] for row in rows_of(learned.matches)} == {id: h.sum() for id, h in held.items()}
    assert all(row["share"] == row["matches"] / len(events) for row in rows_of(learned.matches))


def test_phi_as_the_paper_defines_it(world: Any) -> None:
    """NRS by what is forwarded without S and not with it, INC by covering; on sets of events."""
    learned, regions, _, held = world
    found = {row["id"]: row for row in rows_of(learned.phi)}
    assert found.keys() == {id for id, own in held.items() if own.any()}
    covers = {(a, b) for a in regions for b in regions if a != b and held[b].any() and inside(regions[b], regions[a])}

    def roots(ids: set[str]) -> set[str]:
        """Covered by no other; of equal ones, all."""
        return {b for b in ids if not any((a, b) in covers and (b, a) not in covers for a in ids)}

    ids, checked = set(found), set()
    for id, row in found.items():
        successors = roots(ids - {id}) - roots(ids)
        equal = {each for each in ids if (each, id) in covers and (id, each) in covers}
        is_root = id in roots(ids)
        successors |= equal if is_root else set()
        meeting = {e for e in ids - {id} if (e, id) not in covers and (id, e) not in covers}
        shared = np.zeros(len(held[id]), np.bool_)
        for each in successors | meeting:
            shared |= held[each] & held[id]
        assert row["root"] == is_root and row["events"] == held[id].sum()
        assert row["phi"] == pytest.approx(shared.sum() / held[id].sum()), id
        checked.add((is_root, 0 < row["phi"] < 1))
    assert checked >= {(True, True), (False, True)}


def test_pairs(world: Any) -> None:
    learned, _, _, held = world
    wanted = {}
    for one, other in combinations(sorted(id for id, own in held.items() if own.any()), 2):
        both = int((held[one] & held[other]).sum())
        if both:
            wanted[one, other] = both, int((held[one] | held[other]).sum())
    found = {(row["one"], row["other"]): (row["both"], row["either"]) for row in rows_of(learned.pairs)}
    assert found == wanted
    assert all(row["similarity"] == row["both"] / row["either"] for row in rows_of(learned.pairs))


def test_regions_without_events_or_subscriptions(world: Any) -> None:
    learned, regions, events, _ = world
    assert set(learned.attributes[:2]) == {"x", "y"}
    rows, space = rows_of(learned.regions), learned.space
    assert {row["kind"] for row in rows} == {"no subscription", "no event"}
    for row in rows:
        cell = space.where(row["where"])
        meeting = sum(not (cell & region).is_empty for region in regions.values())
        held = int(cell.contains_batch(events).sum())
        assert (meeting, held) == (row["subscriptions"], row["events"])
        assert (meeting == 0) == (row["kind"] == "no subscription") and (held == 0) == (row["kind"] == "no event")
    assert learned.places.events.sum() == learned.places.sampled.sum() == 3000
    unwanted = ~np.any([region.contains_batch(events) for region in regions.values()], axis=0)
    assert learned.places.unwanted.sum() == unwanted.sum()


def test_selectivity_and_cells_for_hilbert(spark: SparkSession) -> None:
    """`b` repeats `a`, `c` is bounded by few: the best two are `a` and `d`."""
    space = Space.parse("c int not null 0..999, b int not null 0..999, a int not null 0..999, d int not null 0..999")
    draw = np.random.default_rng(SEED)
    low = {"a": draw.integers(0, 950, 400), "d": draw.integers(0, 900, 400), "c": np.zeros(400, np.int64)}
    low["b"] = np.maximum(low["a"] - 2, 0)
    width = {"a": 49, "b": 60, "c": 999, "d": 99}
    columns: dict[str, Any] = {"id": pa.array(np.arange(400))}
    for name in "abcd":
        columns |= {f"low_{name}": low[name], f"high_{name}": np.minimum(low[name] + width[name], 999)}
    a = (draw.uniform(0, 1, 4000) ** 3 * 999).astype(np.int64)
    table = pa.table({"a": a, "b": a, "c": draw.integers(0, 1000, 4000), "d": draw.integers(0, 1000, 4000)})
    learned = ts.learn(spark.createDataFrame(table), spark.createDataFrame(pa.table(columns)), space)
    assert learned.attributes == ["a", "d"]
    found = {row["attribute"]: row for row in rows_of(learned.selectivity)}
    for name in "abcd":
        held = (table[name].to_numpy()[:, None] >= low[name]) & (
            table[name].to_numpy()[:, None] <= low[name] + width[name]
        )
        assert found[name]["share"] == pytest.approx(held.mean(), abs=0.01)
        assert found[name]["bounded"] == (name != "c")
    counts = np.histogram(a, [0, *learned.boundaries["a"], 1000])[0]
    assert len(counts) > 50 and np.median(counts) < 4 * len(a) / len(counts)
    options = learned.hilbert(bits=5)
    assert options["attributes"] == ["a", "d"] and all(len(each) <= 30 for each in options["cells"].values())
    subscriptions = SubscriptionTable(space, "hilbert", **options)
    names = list("abcd")
    subscriptions.subscribe_many(
        list(range(400)), low={n: columns[f"low_{n}"] for n in names}, high={n: columns[f"high_{n}"] for n in names}
    )
    subscriptions.check_invariants()


def test_the_page_needs_nothing_but_itself(world: Any) -> None:
    text = world[0].page()
    assert text.count("<svg") >= 6 and "<script" not in text
    assert not re.findall(r"""(?:src|href|url)\\s*[=(]|@import|https?:""", text)
    assert "phi of subscriptions" in text and "<h2>Where events are</h2>" in text


@pytest.mark.filterwarnings("ignore:1 clauses are wrong")
def test_bad_events_are_left_out(spark: SparkSession) -> None:
    space = Space.parse("x int not null 0..9")
    events = spark.createDataFrame([(3,), (12,), (None,), (7,)], "x int")
    clauses = spark.createDataFrame([("a", "x < 5"), ("b", "x < "), ("c", "x > 1")], "id string, where string")
    learned = ts.learn(events, clauses, space, on_error="skip")
    found = {row["id"]: row["matches"] for row in rows_of(learned.matches)}
    assert (found["a"], found["c"]) == (1, 2) and learned.places.events.sum() == 2
    reduced = ts.reduce(clauses, space, merge=0.5, events=events, on_error="skip")
    assert sorted(row["id"] for row in rows_of(reduced)) == ["a", "c"]
    with pytest.raises(CallerError, match="on_error"):
        ts.learn(events, clauses, space, on_error="ignore")
    stream = spark.readStream.format("rate").load().selectExpr("CAST(value AS INT) AS x")
    with pytest.raises(CallerError, match="the events are a stream"):
        ts.learn(stream, clauses.where("id = 'a'"), space)
    with pytest.raises(CallerError, match="the events are a stream"):
        ts.reduce(clauses.where("id = 'a'"), space, merge=0.5, events=stream)


def test_little(spark: SparkSession) -> None:
    space = Space.parse("x int, s string")
    nothing = spark.createDataFrame([], "x int, s string")
    clauses = spark.createDataFrame([("a", "x < 5"), ("b", "s = 'q'")], "id string, where string")
    learned = ts.learn(nothing, clauses, space)
    assert rows_of(learned.phi) == [] and "<svg" in learned.page()
    one = ts.learn(spark.createDataFrame([(3, "q")], "x int, s string"), clauses.where("id = 'c'"), space)
    assert rows_of(one.matches) == []
