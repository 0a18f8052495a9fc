"""`thatch.spark.reduce` compared with the in-process table run in the same order, on one cell and on hundreds.

Every certificate is verified, and names active ones only: so the active ones have the union of all.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from helpers.spark_oracles import (
    SEED,
    SOAK,
    Workload,
    crowd,
    every_type,
    frame_of,
    quakes,
    random_bounds,
    table_of_boxes,
)
from helpers.strategies import soaked
from thatch import Region, Space, SubscriptionTable
from thatch.cover import Covered, Unproven, region_of_box, verify
from thatch.cover.breadth import breadth
from thatch.errors import CallerError, EmptyRegionWarning
from thatch.region.columns import boxes_of_columns, regions_of_boxes
from thatch.region.term import hulls
from thatch.space.axis import EnumAxis

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("pyspark")
from benchmarks.classbench import SPACE as PACKETS
from benchmarks.classbench import VENDORED, read_rules
from pyspark.sql import functions as F

import thatch.spark as ts
from thatch.spark.reducing.divide import Tuning
from thatch.spark.reducing.reduce import Reduction, keys_of_tasks
from thatch.where.enum_bounds import within_enum

Answers = dict[Any, tuple[str, list[Any] | None]]


def in_order(regions: Mapping[Any, Region]) -> list[Any]:
    """Broad ones first, ties by id."""
    broad = {id: -1e9 if region.is_empty else breadth(region) for id, region in regions.items()}
    return sorted(regions, key=lambda id: (-broad[id], id))


def by_table(regions: Mapping[Any, Region], space: Space) -> tuple[SubscriptionTable, set[Any]]:
    """The table after all came in order, and those that it could not prove."""
    ids = in_order(regions)
    table = SubscriptionTable(space)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EmptyRegionWarning)
        changes = table.subscribe_many(ids, [regions[id] for id in ids])
    return table, {id for id, change in zip(ids, changes, strict=True) if isinstance(change.verdict, Unproven)}


def answers(reduced: DataFrame) -> Answers:
    rows = reduced.toArrow().to_pylist()
    found = {row["id"]: (row["status"], row["covered_by"]) for row in rows}
    assert len(found) == len(rows)
    return found


def check(found: Answers, regions: Mapping[Any, Region], space: Space) -> None:
    assert found.keys() == regions.keys()
    table, unproven = by_table(regions, space)
    active = {id for id, (status, _) in found.items() if status == "active"}
    differ = {id for id in regions if table[id].active != (id in active)}
    # Cells decide about less than the whole: what the table could not prove they may, hardly ever the other way round.
    assert differ <= unproven, sorted(differ - unproven, key=str)[:5]
    check_union(regions, active, space)
    for id, (status, names) in found.items():
        assert status in ("active", "passive") and (names is None) == (status == "active")
        if names is not None:
            assert set(names) <= active and len(set(names)) == len(names)
            assert verify(Covered(tuple(names)), regions[id], regions), f"{id!r} is not covered by {names}"


def check_union(regions: Mapping[Any, Region], active: set[Any], space: Space) -> None:
    """Corners of regions: what one of all wants, an active one wants."""
    points = [
        corner for region in regions.values() for low, high in [hulls(region.terms, space)] for corner in (low, high)
    ]
    some = np.random.default_rng(SEED).permutation(np.concatenate(points))[:500]
    columns = [np.ascontiguousarray(some[:, at]) for at in range(len(space))]
    held = {id: region.contains_points(columns) for id, region in regions.items()}
    assert (np.any(list(held.values()), axis=0) == np.any([held[id] for id in active], axis=0)).all()


def many_cells(boxes: int = 8, **others: float) -> Tuning:
    """As if work grew so fast that cells must be small."""
    return Tuning(**{"linear": 1e-9, "pairwise": 1.0 / boxes, "task_rows": 2000} | others)  # type: ignore[arg-type]


def check_workload(workload: Workload, spark: SparkSession, tuning: Tuning) -> Answers:
    space = Space.from_json(workload.space.to_json())
    found = answers(ts.reduce(workload.subscriptions(spark), space, tuning=tuning))
    check(found, {id: space.where(clause) for id, clause in workload.our_clauses.items()}, space)
    return found


def test_clauses_over_every_type(spark: SparkSession) -> None:
    found = check_workload(every_type([SEED, SEED + 1], 400 if SOAK else 80, 1), spark, many_cells())
    assert 20 < sum(status == "passive" for status, _ in found.values())


@pytest.mark.parametrize("cells", ["one", "many"])
def test_watchlists_balls_and_crowds(cells: str, spark: SparkSession) -> None:
    tuning = many_cells() if cells == "many" else Tuning()
    check_workload(crowd(SEED, 1, 40 if SOAK else 6), spark, tuning)
    check_workload(quakes(SEED, 200 if SOAK else 30), spark, tuning)


def test_typed_bounds_over_every_type(spark: SparkSession) -> None:
    from helpers.clause_rows import COLUMNS, SPACE
    from helpers.spark_oracles import bound_names

    space, table = Space.parse(SPACE), random_bounds(SEED, 2000 if SOAK else 400)
    found = answers(ts.reduce(frame_of(spark, table), space, tuning=many_cells(20)))
    names = {column.name: bound_names(column) for column in COLUMNS}
    enums = [at for at, attribute in enumerate(space) if isinstance(attribute.axis, EnumAxis)]
    plain = {name: own for name, own in names.items() if space.index(name) not in enums}
    low, high = ({name: table[own[side]].combine_chunks() for name, own in plain.items()} for side in (0, 1))
    regions = regions_of_boxes(boxes_of_columns(low, high, len(table), space), space)
    for at in enums:
        least, most = (table[each].to_pylist() for each in names[space.attributes[at].name])
        regions = within_enum(regions, at, least, most, space)
    check(found, dict(zip(table["id"].to_pylist(), regions, strict=True)), space)
    assert sum(status == "passive" for status, _ in found.values()) > 50


def random_boxes(seed: int, n: int, d: int, width: float) -> tuple[Any, Any, Space]:
    draw = np.random.default_rng(seed)
    space = Space.parse(", ".join(f"x{axis} int not null 0..999" for axis in range(d)))
    centre, half = draw.integers(0, 1000, (n, d)), draw.integers(0, int(width * 500) + 1, (n, d))
    return np.maximum(centre - half, 0), np.minimum(centre + half, 999), space


@pytest.mark.soak("0.02", "0.5")
@pytest.mark.parametrize(("d", "width", "n"), [(1, 0.02, 500), (2, 0.2, 1000), (3, 0.5, 1000), (4, 1.4, 600)])
def test_random_boxes(d: int, width: float, n: int, spark: SparkSession) -> None:
    tuning = many_cells(gain=4.0, cells_max=50) if d == 4 else many_cells()  # with four attributes no cut pays
    low, high, space = random_boxes(SEED + d, n, d, width)
    low[n // 2 :: 7], high[n // 2 :: 7] = low[: len(low[n // 2 :: 7])], high[: len(low[n // 2 :: 7])]  # duplicates
    reduction = Reduction(table_of_boxes(spark, low, high, space), space, tuning=tuning)
    found = answers(reduction.result())
    regions = {
        int(at) * 3 - 100: region_of_box(*box, space)
        for at, box in enumerate(zip(low.tolist(), high.tolist(), strict=True))
    }
    assert len(reduction.division) > 20
    assert sum(status == "passive" for status, _ in found.values()) > 20
    check(found, regions, space)


def crowd_of_boxes(n: int) -> tuple[Any, Any, Space]:
    """Places follow a power law, a fifth of the boxes is about one point, a twentieth is one and the same."""
    draw = np.random.default_rng(SEED)
    space = Space.parse("x int not null 0..9999, y int not null 0..9999, z int not null 0..9999")
    centre = (draw.uniform(0, 1, (n, 3)) ** 4 * 9999).astype(np.int64)
    centre[::5] = 4000 + draw.integers(0, 40, (len(centre[::5]), 3))
    half = (10 / draw.uniform(0.05, 1, (n, 3))).astype(np.int64)
    half[::5] += 20
    low, high = np.maximum(centre - half, 0), np.minimum(centre + half, 9999)
    low[7::20], high[7::20] = 5000, 5010
    return low, high, space


def test_tasks_have_about_as_much_to_do(spark: SparkSession) -> None:
    tuning = Tuning(linear=1.0, pairwise=0.002, task_rows=400)
    low, high, space = crowd_of_boxes(6_000)
    reduction = Reduction(table_of_boxes(spark, low, high, space), space, tuning=tuning)
    assert (reduction.division.guards.parts > 1).sum() >= 2  # about the point, and the one that there is often
    sizes = reduction.placed().groupBy(F.spark_partition_id()).count().toArrow()["count"].to_numpy()
    assert len(sizes) == reduction.division.tasks >= 8
    assert sizes.max() <= 4 * np.median(sizes)
    boxes = enumerate(zip(low.tolist(), high.tolist(), strict=True))
    check(answers(reduction.result()), {at * 3 - 100: region_of_box(*box, space) for at, box in boxes}, space)


def test_packet_filters(spark: SparkSession) -> None:
    for name in ("acl1_1k", "fw1_1k"):
        low, high = read_rules(VENDORED / name)
        found = answers(ts.reduce(table_of_boxes(spark, low, high, PACKETS), PACKETS, tuning=many_cells(40)))
        boxes = enumerate(zip(low.tolist(), high.tolist(), strict=True))
        check(found, {at * 3 - 100: region_of_box(*box, PACKETS) for at, box in boxes}, PACKETS)


def test_long_certificates_are_proven_again(spark: SparkSession) -> None:
    """A strip over a hundred tiles, each found first in its cell; but one is missing there, so a board is named, too,
    which holds all of the strip but its first tile."""
    tuning = many_cells(4, gain=4.0, cells_max=150)
    space = Space.parse("x int not null 0..999, y int not null 0..999")
    rows = [(at, f"x BETWEEN {10 * at} AND {10 * at + 9} AND y <= 600") for at in range(100) if at != 50]
    rows += [(100, "x >= 10 AND y BETWEEN 597 AND 602"), (200, "y BETWEEN 598 AND 600")]
    reduction = Reduction(spark.createDataFrame(rows, "id int, where string"), space, tuning=tuning)
    cells = reduction.decided(reduction.placed()).where("id = 200").toArrow().to_pylist()
    assert len({name for cell in cells for name in cell["names"]}) > 32
    found = answers(reduction.result())
    assert found[200][0] == "passive" and sorted(found[200][1] or []) == [0, 100]
    check(found, {id: space.where(where) for id, where in rows}, space)


def test_little(spark: SparkSession) -> None:
    space = Space.parse("x int not null 0..9, s string")
    none = spark.createDataFrame([], "id string, where string")
    assert answers(ts.reduce(none, space)) == {}
    rows = [("b", "x < 5"), ("a", "x < 5"), ("c", "x > 3 AND x < 4"), ("d", "x >= 5"), ("e", "s = 'q'")]
    found = answers(ts.reduce(spark.createDataFrame(rows, "id string, where string"), space))
    wanted = {"a": ("active", None), "b": ("passive", ["a"]), "c": ("passive", []), "d": ("active", None)}
    assert found == {**wanted, "e": ("passive", ["a", "d"])}


def test_what_is_refused(spark: SparkSession) -> None:
    space = Space.parse("x int not null 0..9")
    rows = [("a", "x < 5"), ("b", "y < 5"), ("c", "x < 3")]
    frame = spark.createDataFrame(rows, "id string, where string")
    with pytest.raises(ts.WrongClauses, match="subscription 'b', line 1, column 1: no attribute 'y'"):
        ts.reduce(frame, space)
    assert answers(ts.reduce(frame, space, on_error="skip")) == {"a": ("active", None), "c": ("passive", ["a"])}
    twice = spark.createDataFrame([("a", "x < 5"), ("a", "x < 3")], "id string, where string")
    with pytest.raises(CallerError, match="two subscriptions have the id 'a'"):
        ts.reduce(twice, space)
    with pytest.raises(CallerError, match="has no id"):
        ts.reduce(spark.createDataFrame([(None, "x < 5")], "id string, where string"), space)
    with pytest.raises(CallerError, match="on_error"):
        ts.reduce(frame, space, on_error="ignore")


def test_tasks_are_what_spark_makes_of_keys(spark: SparkSession) -> None:
    for tasks in (1, 7, 36):
        keys = spark.createDataFrame([(key,) for key in keys_of_tasks(tasks)], "task int")
        found = keys.selectExpr(f"pmod(hash(task), {tasks}) AS place").toArrow()["place"].to_pylist()
        assert found == list(range(tasks))


def test_over_budget_stays_active(spark: SparkSession) -> None:
    """A box that lies in three strips, which takes more than one node to prove."""
    space = Space.parse("x int not null 0..79, y int not null 0..79")
    rows = [(f"{x}{y}", x * 10, x * 10 + 9, y * 10, y * 10 + 9) for x in range(8) for y in range(8)]
    columns = "id string, low_x int, high_x int, low_y int, high_y int"
    rows.append(("zz", 11, 48, 11, 30))
    wide = [(f"w{at}", low, high, 0, 79) for at, (low, high) in enumerate(pairwise(range(0, 81, 20)))]
    frame = spark.createDataFrame(rows + [(id, a, b - 1, c, d) for id, a, b, c, d in wide], columns)
    assert answers(ts.reduce(frame, space))["zz"][0] == "passive"
    assert answers(ts.reduce(frame, space, nodes_max=1))["zz"][0] == "active"


# --- Back ------------------------------------------------------------------------------------------------------------


def test_into_a_table(spark: SparkSession) -> None:
    workload = quakes(SEED, 30)
    space = Space.from_json(workload.space.to_json())
    subscriptions = workload.subscriptions(spark)
    reduced = ts.reduce(subscriptions, space)
    table = ts.load(reduced, subscriptions, space)
    table.check_invariants()
    found = answers(reduced)
    assert {id: (None if each.certificate is None else sorted(each.certificate)) for id, each in table.items()} == {
        id: None if names is None else sorted(names) for id, (_, names) in found.items()
    }
    whole = SubscriptionTable(space, cover=None)
    whole.subscribe_many(list(workload.our_clauses), list(workload.our_clauses.values()))
    assert table.match_batch(workload.events).equals(whole.match_batch(workload.events))
    decided = ts.decisions(reduced, subscriptions)
    assert {id: each.where for id, each in decided.items()} == workload.our_clauses
    assert all(decided[name].certificate is None for each in decided.values() for name in each.certificate or ())


def test_bounds_into_a_table(spark: SparkSession) -> None:
    low, high, space = random_boxes(SEED, 300, 2, 0.3)
    frame = table_of_boxes(spark, low, high, space)
    reduced = ts.reduce(frame, space)
    table = ts.load(reduced, frame, space, cover="negative")
    table.check_invariants()
    assert {id for id, each in table.items() if each.active} == {
        id for id, (status, _) in answers(reduced).items() if status == "active"
    }
    with pytest.raises(CallerError, match="of which the reduction speaks"):
        ts.load(reduced, frame.where("id > 0"), space)


# --- Mergers ---------------------------------------------------------------------------------------------------------


def test_mergers(spark: SparkSession) -> None:
    """Perfect ones are the union of their members; those within a budget hold them, and add no more than it."""
    tuning = many_cells(100)
    low, high, space = random_boxes(SEED, 400, 2, 0.1)
    regions = {
        at * 3 - 100: region_of_box(*box, space) for at, box in enumerate(zip(low.tolist(), high.tolist(), strict=True))
    }
    frame = table_of_boxes(spark, low, high, space)
    plain, draw = answers(ts.reduce(frame, space, tuning=tuning)), np.random.default_rng(SEED)
    table = pa.table({a.name: draw.integers(0, 1000, 3000) for a in space})
    events, columns = spark.createDataFrame(table), space.encode_batch(table)
    for budget, sample in soaked(((0.0, None), (0.5, events)), ((0.0, None), (0.5, None), (0.5, events))):
        rows = ts.reduce(frame, space, merge=budget, events=sample, tuning=tuning).toArrow().to_pylist()
        assert {row["id"]: (row["status"], row["covered_by"]) for row in rows} == plain
        members: dict[Any, list[Any]] = {}
        for row in rows:
            if row["merger"] is not None:
                assert row["status"] == "active"
                members.setdefault(row["merger"], []).append(row["id"])
        heads = {row["id"]: row for row in rows if row["merged_where"] is not None}
        assert heads.keys() == members.keys() and (budget == 0.0 or len(members) > 10)
        for id, row in heads.items():
            merger = space.where(row["merged_where"])
            assert row["merged"] == len(members[id]) > 1 and 0 <= row["added"] <= budget
            assert all(verify(Covered((0,)), regions[each], {0: merger}) for each in members[id])
            if budget == 0.0:
                assert verify(Covered(tuple(members[id])), merger, regions)
            if sample is not None:
                held = np.any([regions[each].contains_points(columns) for each in members[id]], axis=0)
                added = merger.contains_points(columns).sum() - held.sum()
                assert row["added_events"] == (pytest.approx(added / held.sum()) if held.any() else 0.0)
                assert row["added_events"] <= budget
    with pytest.raises(CallerError, match="events weigh mergers"):
        ts.reduce(frame, space, events=events)
    with pytest.raises(CallerError, match="merge is the share"):
        ts.reduce(frame, space, merge=-1)
