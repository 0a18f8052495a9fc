"""`thatch.spark.learn` and `thatch.learn` compared with brute force over a small table."""

from __future__ import annotations

import re
from itertools import combinations
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import thatch
from helpers.learning import assert_same_learned, clauses_to_learn, events_to_learn, rows_of, space_to_learn
from helpers.spark_oracles import SEED
from thatch import Region, Space, SubscriptionTable
from thatch.cover import Covered, verify
from thatch.errors import CallerError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")
import thatch.spark as ts

World = tuple[thatch.Learned[Any], dict[str, Region], pa.Table, dict[str, Any]]


@pytest.fixture(scope="module")
def worlds(spark: SparkSession) -> dict[str, World]:
    """What each engine learnt, the regions, the events, and which of them each wants."""
    dice, space = Random(SEED), space_to_learn()
    events, clauses = events_to_learn(dice), clauses_to_learn(dice)
    frame = spark.createDataFrame(list(clauses.items()), "id string, where string")
    regions = {id: space.where(clause) for id, clause in clauses.items()}
    wanted = {id: region.contains_batch(events) for id, region in regions.items()}
    learned: dict[str, thatch.Learned[Any]] = {
        "spark": ts.learn(spark.createDataFrame(events), frame, space),
        "local": thatch.learn(events, clauses, space),
    }
    return {engine: (found, regions, events, wanted) for engine, found in learned.items()}


@pytest.fixture(params=["spark", "local"])
def world(request: pytest.FixtureRequest, worlds: dict[str, World]) -> World:
    return worlds[request.param]


def test_both_engines_learn_the_same(worlds: dict[str, World]) -> None:
    ours, theirs = worlds["local"][0], worlds["spark"][0]
    assert_same_learned(ours, theirs)
    assert ours.page() == theirs.page()


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
    cells = learned.places
    lonely = int(cells.events[cells.subscriptions == 0].sum())
    assert sum(row["events"] for row in rows) == lonely, "merged regions hold what their cells hold"
    assert len(rows) < np.count_nonzero((cells.events > 0) != (cells.subscriptions > 0))
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
    assert_same_learned(thatch.learn(table, pa.table(columns), space), learned, with_phi=False)
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


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore:1 clauses are wrong")
def test_bad_events_are_left_out(spark: SparkSession) -> None:
    space = Space.parse("x int not null 0..9")
    values = [3, 12, None, 7]
    events = spark.createDataFrame([(each,) for each in values], "x int")
    rows = {"a": "x < 5", "b": "x < ", "c": "x > 1"}
    clauses = spark.createDataFrame(list(rows.items()), "id string, where string")
    learned = ts.learn(events, clauses, space, on_error="skip")
    assert_same_learned(thatch.learn(pa.table({"x": values}), rows, space, on_error="skip"), learned)
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
    rows = {"a": "x < 5 OR x IN (7, 9)", "b": "s = 'q'"}
    clauses = spark.createDataFrame(list(rows.items()), "id string, where string")
    learned = ts.learn(nothing, clauses, space)
    assert_same_learned(thatch.learn(nothing.toArrow(), rows, space), learned)
    assert rows_of(learned.phi) == [] and "<svg" in learned.page()
    one = ts.learn(spark.createDataFrame([(3, "q")], "x int, s string"), clauses.where("id = 'c'"), space)
    assert rows_of(one.matches) == []
    assert_same_learned(thatch.learn(pa.table({"x": [3], "s": ["q"]}), {}, space), one, with_phi=False)
