"""`thatch.learn`: over tables and files, against brute force; how it fails; and what it loads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import thatch
from helpers.learning import clauses_to_learn, events_to_learn, space_to_learn
from helpers.paths import SOURCE
from thatch import CallerError, Space
from thatch.learning.sketch import EVENTS


@pytest.mark.parametrize("seed", [0, 2])
def test_counts_of_more_events_than_the_sample_has(seed: int, tmp_path: Path) -> None:
    """Matches and regions are of all events, the rest of the sample."""
    dice, space = Random(seed), space_to_learn()
    events, clauses = events_to_learn(dice, EVENTS + 2_000), clauses_to_learn(dice)
    path = tmp_path / "events.parquet"
    pq.write_table(events, path)
    learned = thatch.learn(path, clauses, space)
    regions = {id: space.where(clause) for id, clause in clauses.items()}
    held = {id: region.contains_batch(events) for id, region in regions.items()}
    assert {row["id"]: row["matches"] for row in learned.matches.to_pylist()} == {id: h.sum() for id, h in held.items()}
    assert learned.events == len(events) and learned.places.sampled.sum() == EVENTS
    assert learned.places.events.sum() == len(events)
    rows = learned.regions.to_pylist()
    assert "no subscription" in {row["kind"] for row in rows}
    for row in rows:
        cell = space.where(row["where"])
        assert row["events"] == cell.contains_batch(events).sum()
        assert row["subscriptions"] == sum(not (cell & region).is_empty for region in regions.values())
    assert "<svg" in learned.page() and learned.hilbert()["attributes"] == learned.attributes


def test_similar_pairs_and_phi() -> None:
    dice, space = Random(5), space_to_learn()
    events, clauses = events_to_learn(dice, 500), clauses_to_learn(dice)
    learned = thatch.learn(events, clauses, space)
    held = {id: space.where(clause).contains_batch(events) for id, clause in clauses.items()}
    pairs = learned.pairs.to_pylist()
    for row in pairs:
        one, other = held[row["one"]], held[row["other"]]
        assert (row["both"], row["either"]) == ((one & other).sum(), (one | other).sum()) and row["one"] < row["other"]
    shares = [row["similarity"] for row in pairs]
    assert shares == sorted(shares, reverse=True) and len(pairs) > 10
    crowd = np.sum(list(held.values()), axis=0)
    for row in learned.phi.to_pylist():
        own = held[row["id"]]
        assert row["events"] == own.sum()
        if row["root"]:  # of a root, the share of its events that somebody else wants
            assert row["phi"] == (crowd[own] > 1).sum() / own.sum()


def test_the_space_of_the_caller_stays_as_it_is() -> None:
    space = Space.parse("x int, s string")
    events = pa.table({"x": [1, 2, 3], "s": ["a", "b", None]})
    first = thatch.learn(events, {"a": "s = 'b'", "b": "x > 1"}, space)
    space.where("s IN ('aa', 'ab', 'zz')")
    again = thatch.learn(events, {"b": "x > 1", "a": "s = 'b'"}, space)
    assert first.regions == again.regions and first.selectivity == again.selectivity and first.space is space


def test_bad_events_and_clauses(tmp_path: Path) -> None:
    space = Space.parse("x int not null 0..9, s string")
    path = tmp_path / "events.csv"
    path.write_text("x,s\n3,a\n12,b\nfive,b\n7,c\n8,d,e\n")
    with pytest.raises(CallerError, match=r"events\.csv"):
        thatch.learn(path, {"a": "x < 5"}, space)
    with pytest.raises(CallerError, match="row 1: attribute 'x': 12 is outside the domain"):
        thatch.learn(pa.table({"x": [3, 12], "s": ["a", "b"]}), {"a": "x < 5"}, space)
    with pytest.warns(UserWarning, match="1 clauses are wrong"):
        learned = thatch.learn(path, {"a": "x < 5", "b": "x < "}, space, on_error="skip")
    assert learned.matches.to_pylist() == [{"id": "a", "matches": 1, "share": 0.5}]
    assert (learned.events, learned.subscriptions, learned.places.events.sum()) == (2, 1, 2)
    with pytest.raises(CallerError, match="line 1"):
        thatch.learn(path, {"b": "x < "}, space)
    for wrong in ({"on_error": "ignore"}, {"cells": 1}):
        with pytest.raises(CallerError, match=r"on_error|cells is a number"):
            thatch.learn(path, {"a": "x < 5"}, space, **wrong)
    with pytest.raises(CallerError, match="CSV and JSON have no types"):
        thatch.learn(path, {"a": "x < 5"})
    with pytest.raises(CallerError, match="two subscriptions have the id"):
        thatch.learn(pa.table({"x": [1]}), pa.table({"id": ["a", "a"], "where": ["x < 5", "x > 5"]}))


@pytest.mark.long
def test_no_spark_no_java(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1.5, 2.5], "s": ["a", None]}), tmp_path / "events.parquet")
    (tmp_path / "alerts.txt").write_text("x < 2 AND s IN ('a', 'c')\nwithin(1, x, 2)\n")
    script = (
        "import sys\nfrom thatch.cli.main import main\nstatus = main()\n"
        "print(sorted({'pyspark', 'py4j', 'aiohttp'} & set(sys.modules)), status)"
    )
    command = [sys.executable, "-c", script, "learn", "events.parquet", "--where", "alerts.txt", "--output", "learnt"]
    places = {"PATH": "/nowhere", "PYTHONPATH": str(SOURCE.parent)}
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=places, check=True)
    assert said.stdout.endswith("[] 0\n") and "2 events, 2 subscriptions" in said.stdout, said
    assert (tmp_path / "learnt" / "learn.html").exists()
