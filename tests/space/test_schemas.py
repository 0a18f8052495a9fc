"""Spaces from the schemas of tables: what clauses mention, of any table."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from thatch import ClauseError, Space, SpaceError

TABLE = pa.schema(
    [
        pa.field("price", pa.float64(), nullable=False),
        ("weight", pa.float32()),
        ("tags", pa.list_(pa.string())),
        ("small", pa.int16()),
        ("count", pa.uint32()),
        ("huge", pa.uint64()),
        ("symbol", pa.dictionary(pa.int32(), pa.string())),
        ("detail", pa.struct([("State", pa.large_string()), ("place", pa.struct([("lat", pa.float64())]))])),
        ("a.b", pa.date32()),
        ("it`s odd", pa.bool_()),
        ("wall", pa.timestamp("ns")),
        ("at", pa.timestamp("ms", "Europe/Berlin")),
        ("blob", pa.binary()),
        ("amount", pa.decimal128(12, 2)),
        ("wide", pa.decimal128(30, 2)),
        ("widest", pa.decimal256(39, 2)),
    ]
)

INFERRED = {
    "price > 5 AND symbol = 'A'": "price double not null, symbol string",
    "SMALL IN (1, 2) OR Weight < 0.5": "weight float, small int -32768..32767",
    "detail.state = 'x' AND detail . Place.lat < 3": "detail.State string, detail.place.lat double",
    "`detail`.`state` IS NULL": "detail.State string",
    "`a.b` > '2020-01-01' AND `it``s odd`": "`a.b` date, `it``s odd` bool",
    "wall < '2020-01-01' AND at > '2020-01-01'": "wall timestamp_ntz, at timestamp",
    "count = 5 AND amount > 2": "count int, amount decimal(12,2)",
    "huge > 5 AND wide < 0.5": "huge decimal(20,0), wide decimal(30,2)",
    "within(3, price, 1, count, 2)": "price double not null, count int",
    "price > 5 AND symbol <> 'tags' -- tags": "price double not null, symbol string",
    "TRUE": "price double not null",
}


@pytest.mark.parametrize("clause", INFERRED)
def test_what_a_clause_mentions(clause: str) -> None:
    space = Space.infer(TABLE, [clause])
    assert str(space) == INFERRED[clause]
    region = space.where(clause)
    assert space.where(region.to_sql()) == region
    assert Space.parse(str(space)) == space == Space.from_json(space.to_json())


def test_a_table_will_do() -> None:
    table = pa.table({"x": [1.0], "y": [[1]]})
    assert str(Space.infer(table, ["x > 1", "x < "])) == "x double"
    assert str(Space.from_arrow(table.select(["x"]).schema)) == "x double"


def test_all_refusals_of_a_schema_come_at_once() -> None:
    with pytest.raises(SpaceError) as refused:
        Space.infer(TABLE, ["tags = 1 AND price > 2", "blob = 2 OR detail IS NULL", "widest > 5"])
    lines = str(refused.value).splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "column 'tags'",
        "column 'detail'",
        "column 'blob'",
        "column 'widest'",
    ]
    assert "name one of its fields, like detail.State" in lines[1]
    assert "decimal(39,2) cannot be held exactly; decimals go to 38 digits" in lines[3]
    with pytest.raises(SpaceError, match="no column that can be an attribute"):
        Space.infer(pa.schema([("tags", pa.list_(pa.string()))]), ["TRUE"])
    with pytest.raises(SpaceError, match="a schema is Arrow's or Spark's, not dict"):
        Space.infer({}, ["TRUE"])


def test_a_misspelt_name_is_compared_with_all_columns() -> None:
    space = Space.infer(TABLE, ["price > 5", "symbl = 'A'"])
    with pytest.raises(ClauseError, match=r"no attribute 'symbl' \(did you mean 'symbol'\?\)"):
        space.where("symbl = 'A'")


MALFORMED: list[Any] = [
    ("detail. = 5", "a field belongs after the dot"),
    ("detail.", "a field belongs after the dot"),
    ("detail..state = 5", "a field belongs after the dot"),
    (".detail = 5", "unexpected '.'"),
    ("5.detail = 5", ""),
    ("detail.state.more = 5", "no attribute 'detail.state.more'"),
    ("`detail.State` = 'x'", "no attribute 'detail.State'"),
    ("detail.`` = 5", "a field belongs after the dot"),
    (f"detail.{'x' * 2000} = 5", "a name of more than"),
]


@pytest.mark.parametrize(("clause", "message"), MALFORMED, ids=[clause[:20] for clause, _ in MALFORMED])
def test_malformed_paths(clause: str, message: str) -> None:
    space = Space.parse("detail.State string, price double")
    with pytest.raises(ClauseError) as refused:
        space.where(clause)
    assert message in str(refused.value)


def test_events_with_fields() -> None:
    space = Space.parse("detail.state string, detail.place.lat double, price double")
    region = space.where("detail.state = 'x' AND detail.place.lat > 1 OR price = 3")
    for event, wanted in (
        ({"detail": {"State": "x", "place": {"lat": 2.0}}}, True),
        ({"Detail": {"state": "x", "place": None}}, False),
        ({"detail": {}}, False),
        ({"detail": None, "price": 3.0}, True),
        ({"detail.state": "x", "detail.place.lat": 5.0}, True),
        ({}, False),
    ):
        assert region.contains(event) == wanted, event
    rows = [{"detail": {"state": "x", "place": {"lat": 2.0}}, "price": None}, {"detail": None, "price": 3.0}]
    assert region.contains_batch(pa.Table.from_pylist(rows)).tolist() == [True, True]
    assert region.contains_batch(pa.RecordBatch.from_pylist(rows[1:])).tolist() == [True]
