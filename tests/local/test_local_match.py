"""`thatch.match`: tables and files in this process, compared with each subscription asked of each event."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import thatch
from helpers.clause_rows import SPACE, make_rows, make_table
from helpers.clauses import ClauseWriter
from thatch import CallerError, Space
from thatch.local import events as local_events
from thatch.local.files import Format
from thatch.local.match import FEW, Match

COLUMNS = [each.split()[0] for each in SPACE.split(", ")]


def pairs(found: pa.Table) -> Counter[Any]:
    return Counter(zip(found.column("row").to_pylist(), found.column("subscription_id").to_pylist(), strict=True))


@pytest.mark.parametrize("count", [1, FEW, FEW + 1, 60])
@pytest.mark.parametrize("given", ["table", "parquet", "batches"])
def test_random_clauses_over_every_type(
    count: int, given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(count)
    rows, writer = make_rows(random, 300), ClauseWriter(random)
    table = make_table(rows).append_column("row", pa.array(range(300)))
    clauses = {number: writer.clause().ours for number in range(count)}
    space = Space.parse(SPACE)
    regions = {number: space.where(clause) for number, clause in clauses.items()}
    wanted = Counter(
        (row, number) for number, region in regions.items() for row, event in enumerate(rows) if region.contains(event)
    )
    monkeypatch.setattr(local_events, "ROWS", 77 if given == "batches" else 65_536)
    source: Any = table
    if given == "parquet":
        source = tmp_path / "events"
        source.mkdir()
        pq.write_table(table.slice(0, 200), source / "one.parquet", row_group_size=64)
        pq.write_table(table.slice(200), source / "two.parquet")
        (source / "_SUCCESS").touch()
    found = thatch.match(source, clauses, space)
    assert pairs(found) == wanted
    assert found.schema.names == [*table.schema.names, "subscription_id"]
    assert found.column("row").to_pylist() == sorted(found.column("row").to_pylist())
    assert found.drop("subscription_id").equals(table.take(found.column("row")).combine_chunks()) or _has_nan(found)


def _has_nan(found: pa.Table) -> bool:
    return any(pa.types.is_floating(field.type) for field in found.schema)


def test_nothing_is_declared(tmp_path: Path) -> None:
    table = pa.table(
        {
            "price": [1.5, None, 7.0],
            "tags": [[1], [2], None],
            "detail": [{"state": "x"}, None, {"state": "y"}],
            "w": pa.array([0.1, 0.2, 0.3], pa.float32()),
        }
    )
    clauses = {7: "price < 5", 8: "detail.state = 'y' OR w > 0.25", 9: "TRUE"}
    wanted = [(1.5, 7), (1.5, 9), (None, 9), (7.0, 8), (7.0, 9)]
    path = tmp_path / "odd [1].parquet"
    pq.write_table(table, path)
    forms: list[Any] = [table, path, str(path), [str(path)], table.to_batches()[0], table.to_pandas()]
    polars = pytest.importorskip("polars")
    for each in [*forms, polars.from_arrow(table)]:
        found = thatch.match(each, clauses)
        assert list(zip(found["price"].to_pylist(), found["subscription_id"].to_pylist(), strict=True)) == wanted
        assert found.schema.field("subscription_id").type == pa.int64()


def test_tables_of_subscriptions(tmp_path: Path) -> None:
    events = pa.table({"n": [1, 5, 9], "kind": ["a", "b", None]})
    bounds = pa.table({"id": ["x", "y"], "low_n": [2, None], "n_high": [None, 5], "low_kind": ["b", None]})
    found = thatch.match(events, bounds)
    assert [(row["n"], row["subscription_id"]) for row in found.to_pylist()] == [(1, "y"), (5, "x"), (5, "y")]
    (tmp_path / "alerts.csv").write_text("id,where\none,n > 4\n2,\"kind = 'a', OR\"\n")
    with pytest.raises(CallerError, match=r"(?s)subscription '2', line 1, column 11: .*Correct them"):
        thatch.match(events, tmp_path / "alerts.csv")
    with pytest.warns(UserWarning, match="1 clauses are wrong"):
        found = thatch.match(events, tmp_path / "alerts.csv", on_error="skip")
    assert found.column("subscription_id").to_pylist() == ["one", "one"]
    pq.write_table(pa.table({"id": [3, 4], "where": ["n = 1", "kind IS NULL"]}), tmp_path / "alerts.parquet")
    assert thatch.match(events, tmp_path / "alerts.parquet").column("subscription_id").to_pylist() == [3, 4]


WRONG: list[tuple[Any, Any, str]] = [
    ({"n": [1]}, {"id": ["a", "a"], "where": ["n = 1", "n = 2"]}, "two subscriptions have the id 'a'"),
    ({"n": [1]}, {"id": [None], "where": ["n = 1"]}, "ids are strings or integers"),
    ({"n": [1]}, {"id": ["a", None], "where": ["n = 1", "n = 1"]}, "a subscription has no id"),
    ({"n": [1]}, {"id": [1.5], "where": ["n = 1"]}, "ids are strings or integers, the column 'id' is double"),
    ({"n": [1]}, {"name": ["a"]}, "has no column 'id'; its columns are 'name'"),
    ({"n": [1]}, {"id": ["a"], "where": [5]}, "the column 'where' must be a string"),
    ({"n": [1]}, {"id": ["a"], "level": [5]}, "has no column 'where' of clauses, nor columns of bounds"),
    ({"n": [1], "N": [2]}, {"id": ["a"], "where": ["n = 1"]}, "which case does not tell apart"),
    ({"n": [1], "subscription_id": [2]}, {"id": ["a"], "where": ["n = 1"]}, "where the result has its ids: rename it"),
]


@pytest.mark.parametrize(("events", "subscriptions", "message"), WRONG)
def test_refusals(events: Any, subscriptions: Any, message: str) -> None:
    with pytest.raises(CallerError) as refused:
        thatch.match(pa.table(events), pa.table(subscriptions), Space.parse("n int"))
    assert message in str(refused.value)


def test_what_is_no_table() -> None:
    with pytest.raises(CallerError, match=r"events are an Arrow table, a pandas or Polars frame, or .*, not int"):
        thatch.match(5, {"a": "TRUE"})
    with pytest.raises(CallerError, match=r"nowhere\.parquet: no such file or folder"):
        thatch.match("nowhere.parquet", {"a": "TRUE"})
    with pytest.raises(CallerError, match="nowhere: no such file or folder"):
        thatch.match("nowhere", {"a": "TRUE"})
    with pytest.raises(CallerError, match="the events have no column 'm'"):
        thatch.match(pa.table({"n": [1]}), {"a": "TRUE"}, Space.parse("m int"))


def test_columns_that_do_not_fit_their_attribute_are_refused() -> None:
    """As on Spark: a value that would be rounded, or a field that is not there, is no NULL."""
    day = pa.table({"n": [1], "at": pa.array([0], pa.timestamp("us")), "detail": [{"state": "x"}], "none": pa.nulls(1)})
    refused = {
        "n double": "the events' column 'n' is bigint, the attribute 'n' is double: cast it",
        "n string": "the events' column 'n' is bigint, the attribute 'n' is string: cast it",
        "detail string": "the events' column 'detail' is struct, the attribute 'detail' is string: cast it",
    }
    for declared, message in refused.items():
        for work in (lambda space: thatch.match(day, {"a": "TRUE"}, space), reduced_with(day)):
            with pytest.raises(CallerError) as error:
                work(Space.parse(declared))
            assert str(error.value) == message
    there = Space.infer(pa.schema([("detail", pa.struct([("county", pa.string())]))]), ["detail.county = 'x'"])
    with pytest.raises(CallerError, match=r"the events have no column 'detail\.county'"):
        thatch.match(day, {"a": "TRUE"}, there)
    times = Space.parse("at timestamp, none int")
    assert len(thatch.match(day, {"a": "at = TIMESTAMP'1970-01-01' AND none IS NULL"}, times)) == 1


def reduced_with(events: pa.Table) -> Callable[[Space], pa.Table]:
    return lambda space: thatch.reduce({"a": "TRUE"}, space, merge=0.0, events=events)


def test_parquet_files_that_write_a_column_in_another_case(tmp_path: Path) -> None:
    pq.write_table(pa.table({"price": [1, 9]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"Price": [5, 20]}), tmp_path / "b.parquet")
    found = thatch.match(tmp_path, {"cheap": "price < 10"}, Space.parse("price int"))
    assert found.column("price").to_pylist() == [1, 9, 5]
    pq.write_table(pa.table({"Price": [5], "PRICE": [6]}), tmp_path / "c.parquet")
    with pytest.raises(CallerError, match=r"c\.parquet: has the columns 'Price' and 'PRICE', which case does not tell"):
        thatch.match(tmp_path, {"cheap": "price < 10"}, Space.parse("price int"))


def test_bad_events(tmp_path: Path) -> None:
    space = Space.parse("n int not null 0..10, kind enum('a')")
    table = pa.table({"n": [1, 50, None, 3], "kind": ["a", "a", "a", "z"]})
    with pytest.raises(CallerError) as refused:
        thatch.match(table, {"all": "TRUE"}, space)
    assert "the events, row 1: attribute 'n': 50 is outside the domain 0..10" in str(refused.value)
    assert "row 2: attribute 'n': is refused" in str(refused.value) and "row 3" in str(refused.value)
    assert thatch.match(table, {"all": "TRUE"}, space, on_error="skip").column("n").to_pylist() == [1]


def test_csv_as_spark_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text(
        "n,price,name,day,at,flag,rest\n"
        '1,1.5,"a, ""b""",2020-02-29,2020-02-29T10:00:00Z,true,x\n'
        ' 2 ,1e3,"",2020-2-9,2020-02-29 10:00:00.5,N,\n'
        ",,,,,,\n"
        '+3,-Infinity,é,2020,2020-02-29,0,"y"\n'
    )
    space = Space.parse("n int, price double, name string, day date, at timestamp, flag bool")
    rows = thatch.match(path, {"all": "TRUE"}, space).to_pylist()
    assert [row["n"] for row in rows] == [1, 2, None, 3]
    assert [row["price"] for row in rows] == [1.5, 1000.0, None, -np.inf]
    assert [row["name"] for row in rows] == ['a, "b"', "", None, "é"]
    assert [str(row["day"]) for row in rows] == ["2020-02-29", "2020-02-09", "None", "2020-01-01"]
    assert [row["flag"] for row in rows] == [True, False, None, False]
    assert [row["rest"] for row in rows] == ["x", None, None, "y"]
    found = thatch.match(path, {"s": "name = ''", "n": "name IS NULL", "t": "at < '2020-02-29 10:00:00.4'"}, space)
    assert [(row["n"], row["subscription_id"]) for row in found.to_pylist()] == [
        (1, "t"),
        (2, "s"),
        (None, "n"),
        (3, "t"),
    ]
    with pytest.raises(CallerError, match="CSV and JSON have no types: declare a space"):
        thatch.match(path, {"all": "TRUE"})


BAD_TEXTS = [
    ("n int", "5.5", "'5.5' is not an int of 64 bits"),
    ("n int", "99999999999999999999", "is not an int of 64 bits"),
    ("n double", "x", "'x' is not a double"),
    ("n double", "1e999", "is beyond all doubles"),
    ("n float", "1e39", "is beyond all floats"),
    ("n decimal(4,1)", "1.25", "has more than the 1 decimal places of decimal(4,1)"),
    ("n date", "2020-02-30", "is not a date like 2020-02-29"),
    ("n timestamp", "10:00", "is not a timestamp like"),
    ("n timestamp_ntz", "2020-01-01 00:00:00Z", "has a time zone"),
    ("n bool", "maybe", "is not a bool like true"),
]


@pytest.mark.parametrize(("space", "text", "rule"), BAD_TEXTS)
def test_malformed_text_is_an_error_and_never_null(space: str, text: str, rule: str, tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text(f"n,m\n{text},1\n,2\n{text},3\n")
    with pytest.raises(CallerError) as refused:
        thatch.match(path, {"all": "TRUE"}, Space.parse(space))
    assert f"{path}:2: attribute 'n': " in str(refused.value) and rule in str(refused.value)
    found = thatch.match(path, {"all": "TRUE"}, Space.parse(space), on_error="skip")
    assert found.column("m").to_pylist() == ["2"]


def test_malformed_records(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text('n,m\n1,2\n3\n4,5,6\n7,"8\n9"\n10,11\n')
    with pytest.raises(CallerError, match=r"(?s)malformed: not a record of this table"):
        thatch.match(path, {"all": "TRUE"}, Space.parse("n int"))
    found = thatch.match(path, {"all": "TRUE"}, Space.parse("n int"), on_error="skip")
    assert found.column("n").to_pylist() == [1, 10]


def test_old_timestamps_and_unsigned_numbers(tmp_path: Path) -> None:
    path = str(tmp_path / "old.parquet")
    table = pa.table({"at": pa.array([0, 10**6], pa.timestamp("us")), "n": pa.array([1, 2**32 - 1], pa.uint32())})
    pq.write_table(table, path, use_deprecated_int96_timestamps=True)
    found = thatch.match(path, {"a": "at = '1970-01-01T00:00:01Z'", "b": "n > 4000000000"})
    assert found.column("n").to_pylist() == [2**32 - 1] * 2 and found.schema.field("at").type.tz == "UTC"


def test_no_compiler_no_spark_no_pandas_for_a_few_subscriptions(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1.5, 2.5], "s": ["a", None]}), tmp_path / "events.parquet")
    (tmp_path / "alerts.txt").write_text("x < 2 AND s IN ('a', 'c')\nwithin(1, x, 2)\n")
    script = (
        "import sys\nfrom thatch.cli.main import main\nstatus = main()\n"
        "print(sorted({'numba', 'pandas', 'pyspark', 'aiohttp'} & set(sys.modules)), status)"
    )
    command = [sys.executable, "-c", script, "match", "events.parquet", "--where", "alerts.txt"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={"PATH": "/nowhere"}, check=True)
    assert said.stdout.endswith("[] 0\n") and "3 matches" in said.stdout, said


def test_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(
        '{"price": 12.50, "symbol": "A", "tags": {"x": [1]}, "n": 1}\n\n'
        '{"price": 0.1, "symbol": 7, "n": 2.5, "flag": true}\n'
        '[{"price": 3}, {"price": null, "tags": null}]\n'
    )
    space = Space.parse("price decimal(6,2), symbol string")
    found = thatch.match(path, {1: "price < 10", 2: "symbol IN ('A', '7')", 3: "price IS NULL"}, space)
    assert found.schema.names == ["flag", "n", "price", "symbol", "tags", "subscription_id"]
    assert found.schema.field("n").type == pa.float64()
    assert [(str(row["price"]), row["subscription_id"]) for row in found.to_pylist()] == [
        ("12.50", 2), ("0.10", 1), ("0.10", 2), ("3.00", 1), ("None", 3),
    ]  # fmt: skip
    path.write_text('{"price": "abc"}\n{"price": 1\n5\n{"price": 2}\n')
    with pytest.raises(CallerError, match=r"(?s)malformed: .*jsonl?:1: attribute 'price': 'abc' is not a decimal"):
        thatch.match(path, {1: "TRUE"}, Space.parse("price decimal(6,2)"))
    assert len(thatch.match(path, {1: "TRUE"}, Space.parse("price decimal(6,2)"), on_error="skip")) == 1
    (tmp_path / "alerts.json").write_text('{"id": 5, "where": "n > 1"}\n{"id": 6, "where": "n < 1"}\n')
    events = pa.table({"n": [0, 5]})
    assert thatch.match(events, tmp_path / "alerts.json").column("subscription_id").to_pylist() == [6, 5]
    (tmp_path / "empty.json").write_text("\n")
    with pytest.raises(CallerError, match=r"empty\.json: it is empty"):
        thatch.match(tmp_path / "empty.json", {1: "TRUE"}, space)


@pytest.mark.parametrize(
    ("name", "text", "options", "place"),
    [
        ("e.csv", 'n,m\n\n1,"a"\n1,2,3\n"2,5\n\nx,""\n', {}, ":7"),
        ("e.csv.gz", "n,m\n1,a\nx,b\n", {}, ":3"),
        ("e.csv", "n,m\r\n1,a\r\nx,b\r\n", {}, ":3"),
        ("e.csv", 'n,m\n1,"a\nb"\nx,b\n', {"multiline": True}, ", row 1"),
        ("e.json", '{"n": 1}\n\n{"n"\n[{"n": 2}, {"n": "x"}]\n', {}, ":4"),
        ("e.parquet", "", {}, ", row 1"),
    ],
)
def test_a_bad_value_in_a_file_of_lines_has_its_line(
    name: str, text: str, options: dict[str, Any], place: str, tmp_path: Path
) -> None:
    """Also where lines that are empty or malformed stand before it; in other files it has the number of its row."""
    path, space = tmp_path / name, Space.parse("n int 0..9")
    if name.endswith(".parquet"):
        pq.write_table(pa.table({"n": [1, 50]}), path)
    else:
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    with pytest.raises(CallerError) as refused:
        list(Match.of(str(path), {"all": "TRUE"}, space, "raise", Format(**options)).matches())
    assert f"{path}{place}: attribute 'n': " in str(refused.value)
