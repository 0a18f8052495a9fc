"""`thatch.reduce` and `thatch.audit`: every claim is verified, and the active ones want what all want."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import thatch
from helpers.clause_rows import SPACE, make_rows, make_table
from helpers.clauses import ClauseWriter
from thatch import CallerError, Covered, Space
from thatch.cover import verify


def alerts(random: Random, count: int) -> dict[Any, str]:
    clauses = {}
    for number in range(count):
        low, place = random.randrange(90), random.randrange(60)
        clauses[f"r{number}"] = random.choice(
            (
                f"x BETWEEN {low} AND {low + random.randrange(1, 60)} AND y >= {place}",
                f"x < {low} OR y IN ({place}, {place + 1}, 7)",
                f"s = '{random.choice('abc')}' AND x > {low}",
                "x > 5 AND x < 4",
            )
        )
    return clauses


@pytest.mark.parametrize("seed", range(6))
def test_every_claim_is_verified(seed: int) -> None:
    random = Random(seed)
    space = Space.parse("x int not null 0..99, y int 0..99, s string")
    clauses = alerts(random, 60)
    regions = {id: space.where(clause) for id, clause in clauses.items()}
    rows = {row["id"]: row for row in thatch.reduce(clauses, space, merge=0.1).to_pylist()}
    assert list(rows) == list(clauses)
    active = [id for id, row in rows.items() if row["status"] == "active"]
    assert 0 < len(active) < len(clauses)
    for id, row in rows.items():
        if row["status"] == "passive":
            assert set(row["covered_by"]) <= set(active)
            assert verify(Covered(tuple(row["covered_by"])), regions[id], regions)
        else:
            assert row["covered_by"] is None
    for id, row in rows.items():
        if row["merged_where"] is not None:
            members = [regions[each] for each in rows if rows[each]["merger"] == id]
            whole = space.where(row["merged_where"])
            assert len(members) == row["merged"] > 1
            assert all(isinstance(thatch.covers([whole], member, space), Covered) for member in members)
            if row["added"] == 0:
                assert isinstance(thatch.covers(members, whole, space), Covered)


def test_every_type_and_events(tmp_path: Path) -> None:
    random = Random(5)
    writer, space = ClauseWriter(random), Space.parse(SPACE)
    clauses = {number: writer.clause().ours for number in range(40)} | {40: "TRUE", 41: "price > 5 AND price < 4"}
    table = make_table(make_rows(random, 200))
    path = tmp_path / "events.parquet"
    pq.write_table(table, path)
    found = {row["id"]: row for row in thatch.reduce(clauses, space, merge=0.5, events=path).to_pylist()}
    active = [id for id, row in found.items() if row["status"] == "active"]
    assert 0 < len(active) < 10
    assert found[41]["covered_by"] == []
    report = thatch.audit(clauses, space, events=table)
    assert report.rules == 42 and report.kept == len(active) and report.events == 200
    del clauses[40]
    report = thatch.audit(clauses, space, events=table)
    wanted = thatch.match(table, clauses, space).column("subscription_id").to_pylist()
    for each in report.findings:
        assert each.saves["matches"] == wanted.count(each.id), each


def test_refusals() -> None:
    with pytest.raises(CallerError, match="there is neither a space nor events"):
        thatch.reduce({"a": "x > 1"})
    with pytest.raises(CallerError, match="events weigh mergers"):
        thatch.reduce({"a": "x > 1"}, Space.parse("x int"), events=pa.table({"x": [1]}))
    with pytest.raises(CallerError, match="space is a Space, not Table: give a table of events as events="):
        thatch.reduce({"a": "x > 1"}, pa.table({"x": [1]}))
    assert len(thatch.reduce({"a": "x > 1"}, events=pa.table({"x": [1]}))) == 1
    with pytest.raises(CallerError, match="merge is the share"):
        thatch.reduce({"a": "x > 1"}, Space.parse("x int"), merge=-1)
    with pytest.raises(CallerError, match="no attribute 'y'"):
        thatch.audit({"a": "y > 1"}, Space.parse("x int"))
    with pytest.raises(CallerError, match="row 1: attribute 'x': 50 is outside the domain"):
        thatch.reduce({"a": "x > 1"}, Space.parse("x int 0..9"), merge=0, events=pa.table({"x": [1, 50]}))
    with pytest.warns(UserWarning, match="1 clauses are wrong and left out"):
        assert len(thatch.reduce({"a": "y > 1"}, Space.parse("x int"), on_error="skip")) == 0
    assert str(thatch.reduce({1: "x > 1"}, merge=0, events=pa.table({"x": [1, 50]})).column("status")[0]) == "active"
