"""`thatch reduce`, `thatch learn` and `thatch audit`: what they print, what they write, and how they fail."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
import pyarrow as pa
import pyarrow.parquet as pq

from helpers.spark_oracles import SOAK
from thatch import Space
from thatch.cli import learn
from thatch.cli.main import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPACE = "symbol string, price double not null 0..1000"
CLAUSES = [
    "price < 20",
    "price >= 20",
    "symbol = 'A' AND price < 30",
    "price < 10",
    "price < 20",
    "price > 5 AND price < 4",
]
EVENTS = "symbol,price\nA,5\nA,25\nB,700\n,8\n"

Run = Callable[..., tuple[int, Any, str]]


@pytest.fixture(params=["spark", "local"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def run(engine: str, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> Run:
    """Runs a command in a folder of its own, in the session of the tests or without one."""
    monkeypatch.chdir(tmp_path)
    Path("rules.txt").write_text("# alerts\n" + "\n".join(CLAUSES) + "\n", encoding="utf-8")
    Path("events.csv").write_text(EVENTS, encoding="utf-8")

    def call(*arguments: str, where: str = "rules.txt") -> tuple[int, Any, str]:
        space = [] if "--time-zone" in arguments else ["--space", SPACE]  # else it is taken from the events
        status = main([*arguments, *space, "--where", where, "--engine", engine])
        captured = capsys.readouterr()
        return (
            status,
            json.loads(captured.out) if "--json" in arguments and captured.out else captured.out,
            captured.err,
        )

    return call


def test_reduce(run: Run) -> None:
    status, out, _ = run("reduce")
    assert status == 0 and "6 subscriptions: 2 active, 4 passive" in out
    assert "rules.txt:7: no event can match it" in out and "rules.txt:6: covered by rules.txt:2" in out
    status, result, _ = run("reduce", "--json", "--merge", "0", "--output", "out.parquet")
    assert status == 0 and (result["active"], result["passive"], result["mergers"]) == (2, 4, 1)
    rows = {row["id"]: row for row in pq.read_table("out.parquet").to_pylist()}
    assert rows["rules.txt:5"]["covered_by"] == ["rules.txt:2"]
    assert {row["merger"] for row in rows.values() if row["status"] == "active"} == {"rules.txt:2"}
    assert rows["rules.txt:2"]["merged_where"] == "TRUE"
    status, _, err = run("reduce", "--output", "out.parquet")
    assert status == 2 and "exists already" in err
    Path("one.txt").write_text("price < 5\n", encoding="utf-8")
    assert run("reduce", where="one.txt")[0] == 1
    assert run("reduce", "--overwrite", "--output", "out.csv", where="one.txt")[0] == 1


@pytest.mark.soak("spark")
def test_bad_input(run: Run) -> None:
    Path("bad.txt").write_text("price < 5\nprize < 3\n", encoding="utf-8")
    for command in (["reduce"], ["audit"], ["learn", "events.csv"]):
        status, out, err = run(*command, where="bad.txt")
        assert (status, out) == (2, "") and "bad.txt:2" in err and "no attribute 'prize'" in err
    assert run("reduce", "--on-error", "skip", where="bad.txt")[0] == 1
    status, _, err = run("reduce", "--merge", "-1")
    assert status == 2 and "merge is the share" in err
    status, _, err = run("reduce", where="nowhere.txt")
    assert status == 2 and "nowhere.txt" in err


def test_audit(run: Run, engine: str) -> None:
    status, out, _ = run("audit", "--events", "events.csv", "--output", "report")
    assert status == 1 and "6 rules; 2 are enough, 4 are redundant" in out
    assert "'rules.txt:6' is a duplicate: it wants what 'rules.txt:2' wants, no more and no less.\n" in out
    assert "'rules.txt:7' can match nothing: no event can meet its conditions.\n" in out
    assert "(1 said twice, 1 within another one, 1 within several together, 1 matching nothing)" in out
    assert "0 rules never fired on 4 events\n" in out
    report = json.loads(Path("report/audit.json").read_text(encoding="utf-8"))
    assert {each["id"]: each["saves"]["matches"] for each in report["findings"]}["rules.txt:4"] == 2
    assert report["events"] == 4 and report["duplicates"] == [["rules.txt:2", "rules.txt:6"]]
    assert "<svg" in Path("report/audit.html").read_text(encoding="utf-8")
    Path("clean.txt").write_text("price < 5\nprice > 7\n", encoding="utf-8")
    if engine == "local" or SOAK:
        status, result, _ = run("audit", "--json", where="clean.txt")
        assert status == 0 and result["audit"]["findings"] == [] and result["redundant"] == 0
    status, out, _ = run("audit", "--events", "events.csv", where="clean.txt")
    assert status == 0 and "1 rule never fired on 4 events\n" in out
    assert "'clean.txt:1' never fired on the 4 events.\n    price < 5\n" in out
    status, _, err = run("audit", "--output", "report")
    assert status == 2 and "exists already" in err
    Path("mine").mkdir()
    status, _, err = run("audit", "--output", "mine", "--overwrite")
    assert status == 2 and "was not written by this command" in err and Path("mine").is_dir()


@pytest.mark.soak("spark")  # test_spark_engines.py compares what it says with that of the other engine
def test_learn(run: Run, engine: str) -> None:
    status, result, _ = run("learn", "events.csv", "--json", "--output", "learnt")
    assert status == 0 and result["events"] == 4 and result["subscriptions"] == 6 and result["engine"] == engine
    assert {row["attribute"] for row in result["selectivity"]} == {"symbol", "price"}
    assert "<svg" in Path("learnt/learn.html").read_text(encoding="utf-8")
    columns = {
        "selectivity": ["attribute", "share", "bounded", "place", "left"],
        "cells": ["attribute", "cell", "begins"],
        "matches": ["id", "matches", "share"],
        "phi": ["id", "events", "root", "phi"],
        "pairs": ["one", "other", "both", "either", "similarity"],
        "regions": ["kind", "where", "words", "events", "sampled", "unwanted", "subscriptions"],
    }
    assert {name: pq.read_table(f"learnt/{name}").schema.names for name in columns} == columns
    assert sorted(pq.read_table("learnt/matches").column("matches").to_pylist()) == [0, 2, 2, 2, 2, 2]
    assert json.loads(Path("learnt/hilbert.json").read_text())["attributes"] == result["attributes"]
    lines = list(learn.summary(result))
    assert "to be indexed: price" in lines[1] and "4 events, 6 subscriptions" in lines[-3]
    assert lines[-2] == f"engine {engine}: it was asked for"
    assert lines[-1] == "written to learnt: learn.html shows it"
    status, _, err = run("learn", "events.csv", "--output", "learnt")
    assert status == 2 and "exists already" in err


@pytest.mark.soak("spark")
def test_reduce_keeps_further_columns(run: Run) -> None:
    Path("rules.csv").write_text("id,where,owner\n1,price < 20,ann\n2,price < 10,bob\n", encoding="utf-8")
    status, out, _ = run("reduce", "--output", "out.json", "--json", where="rules.csv")
    assert status == 0 and out["passive"] == 1
    rows = [json.loads(line) for part in Path("out.json").glob("part-*") for line in part.read_text().splitlines()]
    assert sorted((row["id"], row["subscription_owner"]) for row in rows) == [(1, "ann"), (2, "bob")]


@pytest.mark.soak("spark")
def test_without_a_space(
    engine: str, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"price": [1.0, 7.0], "odd": [[1], None]}), "events.parquet")
    Path("rules.txt").write_text("price < 20\nprice < 10\n", encoding="utf-8")
    common = ["--where", "rules.txt", "--engine", engine]
    assert main(["audit", *common, "--events", "events.parquet"]) == 1
    assert "rules.txt:2" in capsys.readouterr().out
    assert main(["reduce", *common, "--merge", "0", "--events", "events.parquet"]) == 0
    assert main(["audit", *common]) == 2
    assert "give " in capsys.readouterr().err


@pytest.mark.soak("spark")
def test_learn_says_what_nobody_wants(run: Run) -> None:
    """The space is that of the events."""
    rows = [{"price": 5.0 * at, "symbol": "AB"[at % 2]} for at in range(100)]
    pq.write_table(pa.Table.from_pylist(rows), "events.parquet")
    Path("some.txt").write_text("symbol = 'A' AND price < 100\nprice > 700 AND symbol = 'C'\n", encoding="utf-8")
    status, out, _ = run("learn", "events.parquet", "--time-zone", "UTC", where="some.txt")
    lines = out.splitlines()
    said = [at for at, line in enumerate(lines) if "that nobody wants: " in line]
    assert status == 0 and 1 <= len(said) <= 3
    events = [int(lines[at].split()[0]) for at in said]
    assert events == sorted(events, reverse=True)
    space = Space.infer(pa.Table.from_pylist(rows), ["symbol = 'A' AND price < 100"])
    for at, count in zip(said, events, strict=True):
        assert sum(space.where(lines[at + 1]).contains(row) for row in rows) == count


@pytest.mark.soak("spark")
def test_learn_with_bad_events(run: Run) -> None:
    Path("bad.csv").write_text("symbol,price\nA,5\nB,many\nC,2000\nD,8\n", encoding="utf-8")
    status, out, err = run("learn", "bad.csv")
    assert (status, out) == (2, "") and "'many'" in err
    status, result, _ = run("learn", "bad.csv", "--json", "--on-error", "skip")
    assert status == 0 and (result["events"], result["subscriptions"]) == (2, 6)
    Path("wrong.txt").write_text("price < 20\nprise < 20\n", encoding="utf-8")
    status, result, _ = run(
        "learn", "events.csv", "--json", "--on-error", "skip", "--output", "some", where="wrong.txt"
    )
    assert status == 0 and (result["events"], result["subscriptions"], result["skipped"]) == (4, 1, 1)
    assert pq.read_table("some/matches").column("id").to_pylist() == ["wrong.txt:1"]
    for command in ("reduce", "audit"):
        _, out, _ = run(command, "--on-error", "skip", where="wrong.txt")
        assert "left out 1 wrong rule: `thatch validate` lists them" in out
    status, _, err = run("learn", "events.csv", "--time-zone", "UTC")
    assert status == 2 and "CSV and JSON have no types" in err
