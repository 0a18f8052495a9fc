"""Spaces: text, JSON and Spark schemas in and out, equality, names, and what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as spark

from helpers.strategies import declarations, examples, names, values_of
from thatch.errors import EventError, SpaceError
from thatch.space.attribute import Attribute
from thatch.space.axis import DateAxis, StringAxis
from thatch.space.decimals import decimal_axis
from thatch.space.space import Space

EVERY_TYPE = (
    "flag bool, n int, size int not null -100..100, amount decimal(10,2), fee decimal(6,3) not null 0.000..250.000,"
    " x double, ratio double not null 0.0..1000.0, day date, due date '1900-01-01'..'2100-12-31', at timestamp,"
    " kind enum('a', 'b'), name string not null"
)


def outline(space: Space) -> list[tuple[Any, ...]]:
    return [(a.name, a.axis.sql, a.nullable, a.first, a.last, a.null, a.low) for a in space]


# --- Text and JSON ----------------------------------------------------------------------------------------------------


@examples(250)
@given(declarations(), st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kathmandu"]))
def test_text_and_json_round_trip(text: str, zone: str) -> None:
    space = Space.parse(text, zone)
    for again in (Space.parse(str(space), zone), Space.from_json(space.to_json()), eval(repr(space), {"Space": Space})):
        assert outline(again) == outline(space)
        assert again == space and hash(again) == hash(space) and again.fingerprint == space.fingerprint
        assert again.to_json() == space.to_json() and str(again) == str(space) and again.time_zone == zone


@examples(60)
@given(declarations(3), st.data())
def test_events_round_trip(text: str, data: st.DataObject) -> None:
    space = Space.parse(text)
    event = {a.name: data.draw(values_of(a)) for a in space}
    point = space.encode(event)
    decoded = space.decode(point)
    assert list(decoded) == [a.name for a in space]
    assert space.encode(decoded) == point
    assert [column.tolist() for column in space.encode_batch({n: [v, v] for n, v in event.items()})] == [
        [coordinate, coordinate] for coordinate in point
    ]


def test_parse() -> None:
    space = Space.parse(EVERY_TYPE)
    assert str(space) == EVERY_TYPE.replace("  ", " ")
    assert len(space) == 12 and [a.name for a in space][:2] == ["flag", "n"]
    assert Space.parse("A BIGINT NOT NULL, b\n\tLong,c Boolean") == Space.parse("A int not null,b int,c bool")
    assert Space.parse("x double 0..1000 not null") == Space.parse("x double not null 0..1000")
    assert str(Space.parse("x int ..5, y int 5.., z double -1e-3..+2.5E2")) == (
        "x int -9223372036854775807..5, y int 5..9223372036854775807, z double -0.001..250.0"
    )
    assert Space.parse(r"e enum('it''s', 'back\\slash', 'a\'b')").attributes[0].axis.decode(0) == "it's"
    assert Space.parse("x double 0.. .5") == Space.parse("x double 0.0..0.5")
    assert Space.parse("x double 0..inf") != Space.parse("x double 0..nan")
    assert Space.parse("d date '2020-02-29'..").attributes[0].first == 18321


def test_a_domain_that_says_nothing_is_none() -> None:
    assert Space.parse("n int -9223372036854775807..9223372036854775807") == Space.parse("n int")
    assert Space.parse("x double -inf..nan") == Space.parse("x double")
    assert Space.parse("d decimal(3,1) -99.9..99.9") == Space.parse("d decimal(3,1)")
    assert Space.parse("n int not null -9223372036854775808..9223372036854775807") == Space.parse("n int not null")


def test_domains_in_the_zone_of_the_space() -> None:
    berlin = Space.parse("at timestamp '2020-07-01 00:00:00'..", "Europe/Berlin")
    assert berlin.attributes[0].first == Space.parse("at timestamp '2020-06-30 22:00:00'..").attributes[0].first
    assert Space.from_json(berlin.to_json()) == berlin != Space.parse("at timestamp '2020-07-01 00:00:00'..")
    assert berlin.encode({"at": datetime(2020, 7, 1)}) == berlin.encode({"at": datetime(2020, 6, 30, 22, tzinfo=UTC)})


@pytest.mark.parametrize("name", ["inf", "nan", "Inf", "not", "bool", "a b", "5", "é", "a.b", "`", "a`b", "x\ny", "``"])
def test_names_that_spark_may_have_round_trip_or_are_refused(name: str) -> None:
    try:
        space = Space.from_spark(spark.StructType([spark.StructField(name, spark.LongType())]))
    except SpaceError:
        return
    assert space == Space.parse(str(space)) == Space.from_json(space.to_json())
    region = space.where(f"`{name.replace('`', '``')}` > 5")
    assert region.contains({name: 6}) and not region.contains({name: 5})
    assert space.where(region.to_sql()) == region


MALFORMED = [
    ("", "the space ends where an attribute name is expected"),
    ("   ", "the space ends where an attribute name is expected"),
    ("a", "the space ends where a type is expected"),
    ("a int,", "the space ends where an attribute name is expected"),
    (", a int", "column 1 of the space: expected an attribute name, found ','"),
    ("a int b int", "column 7 of the space: expected `,` or the end, found 'b'"),
    ("a blob", "column 3 of the space: expected a type: bool, tinyint"),
    ("a varchar(10)", "column 3 of the space: expected a type"),
    ("a int not", "the space ends where `null` after `not` is expected"),
    ("a int not 5", "column 11 of the space: expected `null` after `not`"),
    ("a int not null not null", "expected `,` or the end, found 'not'"),
    ("a int 0..5 0..5", "expected `,` or the end"),
    ("a int 5", "`..` in a domain"),
    ("a int 5 6", "expected `..` in a domain"),
    ("a int 5..3", "attribute 'a': the domain of int is empty, as the lower bound is above the upper: write 3..5"),
    ("a int 0..1.5", "attribute 'a': domain bound '1.5' is not an int"),
    ("a int 0..9223372036854775808", "the domain of int is empty or beyond the type"),
    ("a int -9223372036854775808..0", "a nullable int starts at -9223372036854775807; make it `not null`"),
    ("a int -9223372036854775809..0", "the domain of int is empty or beyond the type"),
    ("a double 'x'..5", "attribute 'a': domain bound 'x' is not a double"),
    ("a double nan..0", "the domain of double is empty"),
    ("a decimal", "the space ends where `(` is expected"),
    ("a decimal(5)", "decimal(precision, scale)"),
    ("a decimal(5,2", "the space ends where `)` is expected"),
    ("a decimal(39,2)", "decimal(39,2) needs 1 to 38 digits"),
    ("a decimal(5,6)", "decimal(5,6) needs"),
    ("a decimal(0,0)", "decimal(0,0) needs"),
    ("a decimal(5.5,1)", "5.5"),
    ("a decimal(5,2) 0..0.001", "more than the 2 decimal places"),
    ("a decimal(5,2) 0..inf", "no finite value"),
    ("a date '2020-02-30'..", "attribute 'a': domain bound '2020-02-30' is not a date"),
    ("a date ..'10000-01-01'", "the domain of date is empty or beyond the type"),
    ("a timestamp '25:00'..", "attribute 'a': domain bound '25:00' is not a timestamp"),
    ("a enum()", "expected a text"),
    ("a enum('x','x')", "an enum names each value once"),
    ("a enum(x)", "expected a text"),
    ("a enum('x", "column 8 of the space"),
    ("a enum('x') 'x'..'y'", "takes no domain"),
    ("a string 'x'..'y'", "attribute 'a': string takes no domain"),
    ("a bool 0..1", "attribute 'a': bool takes no domain"),
    ("`a int", "expected an attribute name"),
    ("`` int", "expected an attribute name"),
    ("5a int", "expected an attribute name"),
    ("a int; drop", "expected `,` or the end, found ';'"),
    ("a int, A double", "attribute 'A' is ambiguous"),
    ("é int, É double", "is ambiguous"),
]


@pytest.mark.parametrize(("text", "message"), MALFORMED)
def test_malformed_text(text: str, message: str) -> None:
    with pytest.raises(SpaceError, match=re.escape(message)):
        Space.parse(text)


@examples(100)
@given(declarations(2), st.data())
def test_mutated_text_is_read_or_refused(text: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(text)))
    width = data.draw(st.integers(0, 3))
    inserted = data.draw(st.sampled_from(["", "'", "..", "(", ",", "`", "-", "9", " null "]))
    mutated = text[:place] + inserted + text[place + width :]
    try:
        space = Space.parse(mutated)
    except SpaceError:
        return
    assert Space.parse(str(space)) == space


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("", "not a space in JSON"),
        ("[]", "not a space in JSON"),
        ("{}", "not a space in JSON: attributes is missing"),
        ("[" * 100_000, "not a space in JSON"),
        (b"\xff\xfe", "not a space in JSON"),
        ('{"attributes": []}', "a space needs at least one attribute"),
        ('{"attributes": [{"name": "a"}]}', "attributes[0].type is missing"),
        ('{"attributes": [{"name": "a", "type": "int", "extra": 1}]}', "no setting 'attributes[0].extra'"),
        (
            '{"attributes": [{"name": "a", "type": "int", "nullable": 1}]}',
            "attributes[0].nullable is true or false, not 1",
        ),
        ('{"attributes": [{"name": "a", "type": "int int"}]}', "expected `,` or the end"),
        ('{"attributes": [{"name": "a", "type": "blob"}]}', "expected a type"),
        ('{"attributes": [{"name": "a", "type": "int", "domain": [1]}]}', "not a space in JSON"),
        ('{"attributes": [{"name": "a", "type": "int", "domain": [1.5, 2]}]}', "1.5 is not an int"),
        ('{"attributes": [{"name": "a", "type": "int", "domain": [5, 2]}]}', "the domain of int is empty"),
        ('{"attributes": [{"name": "a", "type": "string", "domain": ["a", "b"]}]}', "cannot bound a string"),
        ('{"attributes": [{"name": "a", "type": "int"}, {"name": "A", "type": "int"}]}', "is ambiguous"),
        ('{"attributes": [{"name": "a", "type": "int"}], "time_zone": "Mars/Olympus"}', "unknown time zone"),
        ('{"attributes": [{"name": "", "type": "int"}]}', "name"),
    ],
)
def test_malformed_json(document: str | bytes, message: str) -> None:
    with pytest.raises(SpaceError, match=re.escape(message)):
        Space.from_json(document)


def test_json_takes_numbers_as_bounds() -> None:
    document = {"attributes": [{"name": "x", "type": "double", "domain": [0, 1.5]}, {"name": "n", "type": "int"}]}
    assert Space.from_json(json.dumps(document)) == Space.parse("x double 0..1.5, n int")


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "../../etc/passwd", "right/UTC"])
def test_unknown_time_zones(zone: str) -> None:
    makes: list[Callable[[], Space]] = [
        lambda: Space.parse("a int", zone),
        lambda: Space.from_spark(spark.StructType([spark.StructField("a", spark.LongType())]), zone),
        lambda: Space(list(Space.parse("a int").attributes), zone),
    ]
    for make in makes:
        with pytest.raises(SpaceError, match="the space has the unknown time zone"):
            make()


# --- Equality ---------------------------------------------------------------------------------------------------------


def test_equality_and_fingerprint_ignore_the_strings_mentioned() -> None:
    one, other = Space.parse("s string, n int"), Space.parse("s string, n int")
    fingerprint = one.fingerprint
    one.where("s IN ('a', 'b', 'c') OR s LIKE 'x%'")
    assert one == other and hash(one) == hash(other) and one.fingerprint == other.fingerprint == fingerprint
    assert re.fullmatch("[0-9a-f]{32}", fingerprint)


@pytest.mark.parametrize(
    "other",
    ["b int", "a int not null", "a int 0..5", "a double", "a decimal(5,2)", "a decimal(5,1)", "a int, b int", "A int",
     "a enum('x')", "a enum('y')", "a enum('x','y')", "a enum('y','x')"],
)  # fmt: skip
def test_spaces_that_differ(other: str) -> None:
    assert Space.parse("a int") != Space.parse(other)
    assert Space.parse("a int").fingerprint != Space.parse(other).fingerprint
    assert Space.parse(other) == Space.parse(other)


def test_the_time_zone_is_part_of_a_space() -> None:
    assert Space.parse("a int") != Space.parse("a int", "Europe/Berlin")
    assert Space.parse("a int") != "a int"


# --- Spark ------------------------------------------------------------------------------------------------------------


def schema(**columns: Any) -> spark.StructType:
    return spark.StructType([spark.StructField(name, kind) for name, kind in columns.items()])


def test_from_spark() -> None:
    found = Space.from_spark(
        spark.StructType(
            [
                spark.StructField("flag", spark.BooleanType(), False),
                spark.StructField("tiny", spark.ByteType()),
                spark.StructField("small", spark.ShortType(), False),
                spark.StructField("n", spark.IntegerType()),
                spark.StructField("big", spark.LongType()),
                spark.StructField("amount", spark.DecimalType(18, 6)),
                spark.StructField("total", spark.DecimalType(38, 6)),
                spark.StructField("x", spark.DoubleType(), False),
                spark.StructField("day", spark.DateType()),
                spark.StructField("At", spark.TimestampType()),
                spark.StructField("some name", spark.StringType()),
                spark.StructField("weight", spark.FloatType()),
                spark.StructField("wall", spark.TimestampNTZType(), False),
            ]
        ),
        "Europe/Berlin",
    )
    assert found == Space.parse(
        "flag bool not null, tiny int -128..127, small int not null -32768..32767, n int -2147483648..2147483647,"
        " big int, amount decimal(18,6), total decimal(38,6), x double not null, day date, At timestamp,"
        " `some name` string, weight float, wall timestamp_ntz not null",
        "Europe/Berlin",
    )
    assert found.attributes[3].null == -(2**31) - 1


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (spark.StringType("UTF8_LCASE"), "string collate UTF8_LCASE cannot be held exactly; only the collation"),
        (spark.StringType("UNICODE"), "only the collation UTF8_BINARY"),
        (spark.ArrayType(spark.LongType()), "array<bigint> cannot be held exactly"),
        (spark.MapType(spark.StringType(), spark.LongType()), "map<string,bigint> cannot be held exactly"),
        (schema(a=spark.LongType()), "struct<a:bigint> cannot be held exactly"),
        (spark.BinaryType(), "binary cannot be held exactly"),
        (spark.VarcharType(10), "varchar(10) cannot be held exactly"),
        (spark.CharType(3), "char(3) cannot be held exactly"),
        (spark.NullType(), "void cannot be held exactly"),
        (spark.DayTimeIntervalType(), "interval day to second cannot be held exactly"),
        (spark.VariantType(), "variant cannot be held exactly"),
    ],
)
def test_spark_types_that_are_refused_by_name(kind: Any, message: str) -> None:
    with pytest.raises(SpaceError) as refused:
        Space.from_spark(schema(good=spark.LongType(), bad=kind))
    assert str(refused.value).startswith("column 'bad': ")
    assert message.lower() in str(refused.value).lower()


def test_ambiguous_and_empty_schemas() -> None:
    with pytest.raises(SpaceError, match="'A' is ambiguous"):
        Space.from_spark(schema(a=spark.LongType(), A=spark.LongType()))
    with pytest.raises(SpaceError, match="at least one attribute"):
        Space.from_spark(spark.StructType([]))


# --- Events -----------------------------------------------------------------------------------------------------------


def test_events_resolve_case_and_ignore_what_the_space_does_not_have() -> None:
    space = Space.parse("Price double not null 0..1000, symbol string, n int")
    plain = space.encode({"Price": 5.0, "n": 3})
    assert plain == space.encode({"PRICE": 5.0, "N": 3, "other": object(), "Symbol": None})
    assert space.decode(plain) == {"Price": 5.0, "symbol": None, "n": 3}
    assert space.index("pRICE") == 0 and space.index("prices") is None
    batch = {"PRICE": [5.0], "n": pa.array([3]), "other": ["x"]}
    assert [column.tolist() for column in space.encode_batch(batch)] == [[coordinate] for coordinate in plain]


def test_events_that_name_an_attribute_twice() -> None:
    space = Space.parse("price double, n int")
    for event in ({"price": 1.0, "Price": 2.0}, {"PRICE": 1.0, "price": 1.0}):
        with pytest.raises(EventError, match=r"attribute 'price': .* names the attribute a second time"):
            space.encode(event)
        with pytest.raises(EventError, match="names the attribute a second time"):
            space.encode_batch({name: [value] for name, value in event.items()})


def test_events_whose_keys_are_no_names() -> None:
    space = Space.parse("n int")
    assert space.encode({5: "other", None: 1, "n": 3}) == [3]  # type: ignore[dict-item]


def test_refused_events() -> None:
    space = Space.parse(EVERY_TYPE)
    with pytest.raises(EventError, match=r"attribute 'size': .* is missing"):
        space.encode({"fee": 1, "ratio": 0.5, "name": "x"})
    with pytest.raises(EventError, match=r"attribute 'size': .* is NULL"):
        space.encode({"size": None, "fee": 1, "ratio": 0.5, "name": "x"})
    with pytest.raises(EventError, match=r"attribute 'ratio': 2000.0 is outside the domain 0.0..1000.0 of double"):
        space.encode({"size": 1, "fee": 1, "ratio": 2000.0, "name": "x"})


def test_batches() -> None:
    space = Space.parse("n int, s string")
    table = pa.table({"N": [1, None, 3], "s": ["a", "b", None]})
    first = [column.tolist() for column in space.encode_batch(table)]
    assert first == [column.tolist() for column in space.encode_batch({"n": [1, None, 3], "S": ["a", "b", None]})]
    assert first == [column.tolist() for column in space.encode_batch(table.to_batches()[0])]
    assert [column.tolist() for column in space.encode_batch(table.slice(1))] == [column[1:] for column in first]
    assert [column.tolist() for column in space.encode_batch({})] == [[], []]
    assert [column.tolist() for column in space.encode_batch({"other": [1, 2]})] == [[-(2**63)] * 2, [-1] * 2]
    with pytest.raises(SpaceError, match=r"one length, not \[1, 2\]"):
        space.encode_batch({"n": [1], "s": ["a", "b"]})
    with pytest.raises(SpaceError, match="an Arrow table or a dict of arrays, not list"):
        space.encode_batch([{"n": 1}])
    with pytest.raises(EventError, match=r"attribute 'n', row 1: 2\.5 is not an int"):
        space.encode_batch({"n": [1, 2.5]})


def test_arrow_tables_with_a_column_twice() -> None:
    table = pa.table([pa.array([1]), pa.array([2])], ["n", "n"])
    with pytest.raises(EventError, match=r"attribute 'n'.* names the attribute a second time"):
        Space.parse("n int").encode_batch(table)
    other = pa.table([pa.array([1]), pa.array([2]), pa.array([3])], ["x", "x", "n"])
    assert Space.parse("n int").encode_batch(other)[0].tolist() == [3]  # it has no say over what it does not know


@examples(100)
@given(names)
def test_any_name_works_in_a_clause(name: str) -> None:
    space = Space([Attribute(name, decimal_axis(3, 1)), Attribute("other " + name, StringAxis())])
    region = space.where(f"`{name}` BETWEEN 1 AND 2.5")
    assert region.contains({name: 2}) and not region.contains({name: 3})
    assert space.where(region.to_sql()) == region


def test_an_attribute_of_one_day() -> None:
    attribute = Attribute("d", DateAxis(Space.parse("a int").zone), False, 0, 0)
    assert str(attribute) == "d date not null '1970-01-01'..'1970-01-01'"
    assert attribute.encode(date(1970, 1, 1)) == 0
    with pytest.raises(SpaceError, match="domain of date is empty"):
        Attribute("d", DateAxis(Space.parse("a int").zone), False, 1, 0)
