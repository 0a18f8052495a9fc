"""Every attribute type: round trips, order, contiguity, whole columns against single values, and what is refused."""

from __future__ import annotations

import math
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from helpers.strategies import examples, ints, texts, values_of
from thatch.errors import EventError, shown
from thatch.space.attribute import MISSING, Attribute
from thatch.space.axis import EnumAxis, LabelledAxis, StringAxis
from thatch.space.decimals import decimal_of
from thatch.space.floating import DoubleAxis
from thatch.space.space import Space

TYPES = [
    "bool",
    "bool not null",
    "int",
    "int not null",
    "int -5..5",
    "int not null -9223372036854775808..-9223372036854775000",
    "decimal(1,0)",
    "decimal(10,2)",
    "decimal(10,2) not null -1.50..1000",
    "decimal(18,18)",
    "decimal(18,0) not null",
    "decimal(19,0)",
    "decimal(20,0) not null 0..18446744073709551615",
    "decimal(38,10)",
    "decimal(38,38) not null -0.5..0.5",
    "double",
    "double not null 0..1000",
    "double not null -inf..0",
    "float",
    "float not null -2.5..1000",
    "tinyint",
    "smallint not null",
    "timestamp_ntz",
    "timestamp_ntz not null '1999-12-31'..'2000-03-01 12:00:00.000001'",
    "date",
    "date not null '1999-12-31'..'2000-03-01'",
    "timestamp",
    "timestamp not null '1999-12-31'..'2000-03-01 12:00:00.000001'",
    "enum('b','a','é','')",
    "enum('x') not null",
    "string",
    "string not null",
]


def attribute_of(declared: str, zone: str = "UTC") -> Attribute:
    return Space.parse(f"a {declared}", zone).attributes[0]


ATTRIBUTES = {declared: attribute_of(declared) for declared in TYPES}
each_type = pytest.mark.parametrize("declared", TYPES)


def same(one: Any, other: Any) -> bool:
    """Equal as Spark sees it: NaN is itself."""
    return bool(one == other or (one != one and other != other))


def rank(attribute: Attribute, value: Any) -> Any:
    """The order that Spark gives the values of a type; NULL first, enums in the order of their declaration."""
    if value is None:
        return (0,)
    if isinstance(attribute.axis, DoubleAxis):
        return (1, value != value, 0.0 if value != value else value)
    if isinstance(attribute.axis, EnumAxis):
        return (1, attribute.axis.values.index(value))
    return (1, value.encode() if isinstance(value, str) else value)


# --- One value --------------------------------------------------------------------------------------------------------


@each_type
@examples(20)
@given(st.data())
def test_round_trip_and_order(declared: str, data: st.DataObject) -> None:
    attribute = attribute_of(declared)
    one, other = data.draw(values_of(attribute)), data.draw(values_of(attribute))
    if isinstance(attribute.axis, LabelledAxis):
        for value in (one, other):
            if value is not None:  # a value that is mentioned is distinguished from all others
                attribute.axis.cut(attribute.axis.edge(value))
                attribute.axis.cut(attribute.axis.edge_after(value))
    left, right = attribute.encode(one), attribute.encode(other)
    assert attribute.low <= left <= attribute.last
    assert same(attribute.decode(left), one)
    assert (left < right) == (rank(attribute, one) < rank(attribute, other))
    assert (left == right) == (rank(attribute, one) == rank(attribute, other))


@each_type
@examples(20)
@given(st.data())
def test_every_coordinate_decodes_and_encodes_to_itself(declared: str, data: st.DataObject) -> None:
    attribute = ATTRIBUTES[declared]
    near = attribute.encode(data.draw(values_of(attribute)))
    for middle in (near, attribute.low, attribute.first, attribute.last):
        for coordinate in range(middle - 3, middle + 4):
            if not attribute.low <= coordinate <= attribute.last:
                with pytest.raises(ValueError, match=f"attribute 'a': {coordinate} is no coordinate of it"):
                    attribute.decode(coordinate)
                continue
            value = attribute.decode(coordinate)
            again = attribute.encode(value)
            if isinstance(attribute.axis, LabelledAxis) and value is not None:
                labels = attribute.axis.labels
                assert labels.cut_at(again) == labels.cut_at(coordinate)
            else:
                assert again == coordinate
                assert type(value) is type(attribute.decode(attribute.last)) or value is None


@examples(60)
@given(texts, texts)
def test_unmentioned_strings_keep_their_order(one: str, other: str) -> None:
    attribute = attribute_of("string not null")
    assert isinstance(attribute.axis, StringAxis)
    attribute.axis.cut("M")
    if one.encode() <= other.encode():
        assert attribute.encode(one) <= attribute.encode(other)
    assert (attribute.encode(one) < attribute.encode("M")) == (one.encode() < b"M")


def test_doubles_follow_spark() -> None:
    ascending = [-math.inf, -1.5, -5e-324, 0.0, 5e-324, 1.0, math.inf, math.nan]
    attribute = ATTRIBUTES["double"]
    coordinates = [attribute.encode(value) for value in ascending]
    assert coordinates == sorted(set(coordinates))
    assert attribute.encode(-0.0) == attribute.encode(0.0) == attribute.encode(0) == 0
    assert attribute.encode(-math.nan) == attribute.encode(math.nan) == attribute.last
    assert attribute.encode(np.float32(0.1)) == attribute.encode(0.10000000149011612)


def test_decimals_by_value_not_by_form() -> None:
    attribute = ATTRIBUTES["decimal(10,2)"]
    forms = ["1.5", "1.50", "1.5000", "15E-1", "0.15E+1", "000001.5"]
    assert {attribute.encode(Decimal(form)) for form in forms} == {150}
    assert attribute.encode(Decimal("0E+1000")) == attribute.encode(Decimal("-0.0000")) == attribute.encode(0) == 0
    assert attribute.encode(Decimal("1E+3")) == attribute.encode(1000) == attribute.encode(np.int8(100)) * 10


def test_timestamps_are_instants() -> None:
    berlin = attribute_of("timestamp", "Europe/Berlin")
    noon = datetime(2020, 6, 1, 12, tzinfo=UTC)
    assert berlin.encode(noon) == berlin.encode(noon.astimezone(timezone(timedelta(hours=-5))))
    assert berlin.encode(datetime(2020, 6, 1, 14)) == berlin.encode(noon)
    assert berlin.encode(np.datetime64("2020-06-01T14:00")) == berlin.encode(noon)
    assert berlin.encode(datetime(2020, 10, 25, 2, 30)) == berlin.encode(datetime(2020, 10, 25, 0, 30, tzinfo=UTC))
    assert berlin.decode(berlin.encode(noon)) == noon


def test_where_null_lies() -> None:
    for declared, attribute in ATTRIBUTES.items():
        assert attribute.nullable == ("not null" not in declared)
        if attribute.nullable:
            assert attribute.null == attribute.first - 1 == attribute.encode(None) == attribute.encode(MISSING)
            assert attribute.decode(attribute.first - 1) is None
    assert ATTRIBUTES["int"].first == -(2**63) + 1
    assert ATTRIBUTES["int not null"].encode(-(2**63)) == ATTRIBUTES["int not null"].first == -(2**63)


# --- Whole columns: the same answers and the same errors as value by value --------------------------------------------


def outcome(attribute: Attribute, values: list[Any]) -> Any:
    """What encoding value by value gives: coordinates, or the first row that is refused and why."""
    coordinates = []
    for row, value in enumerate(values):
        try:
            coordinates.append(attribute.encode(value))
        except EventError as error:
            return (row, error.rule)
    return coordinates


def check_column(attribute: Attribute, column: Any, values: list[Any]) -> None:
    found: Any
    try:
        coordinates = attribute.encode_array(column, len(values))
    except EventError as error:
        found = (error.row, error.rule)
    else:
        assert coordinates.dtype == np.int64, "coordinates are int64"
        found = coordinates.tolist()
    assert found == outcome(attribute, values)


halves = st.floats(width=16)
singles = st.floats(width=32)
moments = st.datetimes(datetime(1700, 1, 1), datetime(2250, 1, 1))
ARROW_TYPES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    *((getattr(pa, f"int{bits}")(), st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)) for bits in (8, 16, 32)),
    *((getattr(pa, f"uint{bits}")(), st.integers(0, 2**bits - 1)) for bits in (8, 16, 32, 64)),
    (pa.int64(), ints.filter(lambda value: -(2**63) <= value < 2**63)),
    (pa.int16(), st.integers(-6, 6)),
    (pa.bool_(), st.booleans()),
    (pa.null(), st.none()),
    (pa.float32(), singles),
    (pa.float64(), st.floats() | st.floats(-1, 1001)),
    *((kind, texts | st.sampled_from(["a", "b", "é", "", "x"])) for kind in (pa.string(), pa.large_string())),
    (pa.string_view(), texts),
    (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["a", "b", "é", ""])),
    (pa.dictionary(pa.int32(), pa.large_string()), st.sampled_from(["x", "y"])),
    (pa.binary(), st.binary(max_size=2)),
    *((kind, st.dates()) for kind in (pa.date32(), pa.date64())),
    (pa.date32(), st.dates(date(1999, 12, 30), date(2000, 3, 2))),
    *((pa.timestamp(unit), moments.map(lambda m: m.replace(microsecond=0))) for unit in ("s", "ms")),
    *((pa.timestamp(unit, zone), moments) for unit in ("us", "ns") for zone in (None, "UTC", "Europe/Berlin")),
    (pa.timestamp("us", "+05:30"), st.datetimes(datetime(1999, 12, 31), datetime(2000, 3, 1))),
    (pa.timestamp("ns"), st.integers(-(2**62), 2**62)),
    (pa.decimal128(10, 2), st.integers(-(10**10) + 1, 10**10 - 1).map(lambda v: Decimal(v).scaleb(-2))),
    (pa.decimal128(12, 4), st.integers(-5, 5).map(lambda v: Decimal(v * 50).scaleb(-4))),
    (pa.decimal128(38, 0), st.sampled_from([Decimal(v) for v in (0, -1, 9, 10**17, 10**18, 2**64 + 5, 10**37)])),
    (pa.decimal128(38, 10), st.integers(1 - 10**38, 10**38 - 1).map(lambda v: decimal_of(v, 10))),
    (pa.decimal128(5, 0), st.integers(-(10**5) + 1, 10**5 - 1).map(Decimal)),
    (pa.decimal256(40, 3), st.integers(-(10**6), 10**6).map(lambda v: Decimal(v * 10).scaleb(-3))),
]


@st.composite
def arrow_columns(draw: st.DrawFn) -> Any:
    """An array of any type, with nulls; often sliced, or in chunks."""
    kind, values = draw(st.sampled_from(ARROW_TYPES))
    rows = draw(st.lists(st.none() | values if draw(st.booleans()) else values, max_size=8))
    array = pa.array(rows, kind)
    how = draw(st.sampled_from(["whole", "sliced", "chunked", "no chunks"]))
    if how == "sliced":
        start = draw(st.integers(0, len(rows)))
        return array.slice(start, draw(st.integers(0, len(rows) - start)))
    if how == "chunked":
        middle = draw(st.integers(0, len(rows)))
        return pa.chunked_array([array[:middle], array[middle:], array[:0]], kind)
    return pa.chunked_array([], kind) if how == "no chunks" else array


@each_type
@examples(30)
@given(arrow_columns())
@example(pa.array([], pa.decimal256(40, 3)))
@example(pa.array([Decimal("1.5"), None], pa.decimal256(40, 3)))
def test_arrow_columns(declared: str, column: Any) -> None:
    check_column(ATTRIBUTES[declared], column, column.to_pylist())


@each_type
@examples(12)
@given(st.data())
def test_arrow_columns_that_fit(declared: str, data: st.DataObject) -> None:
    attribute = ATTRIBUTES[declared]
    rows = data.draw(st.lists(values_of(attribute), min_size=1, max_size=8))
    array = pa.array(rows)
    check_column(attribute, array, rows)
    check_column(attribute, array[1:], rows[1:])
    check_column(attribute, pa.chunked_array([array[:1], array[1:]]), rows)
    check_column(attribute, rows, rows)


def test_nulls_inside_a_dictionary() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([1, 0, None], pa.int8()), pa.array(["a", None]))
    for declared in ("string", "enum('b','a','é','')", "string not null"):
        check_column(ATTRIBUTES[declared], column, [None, "a", None])


def test_a_dictionary_may_hold_values_that_no_row_uses() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([1, 1], pa.int8()), pa.array(["unknown", "a"]))
    check_column(ATTRIBUTES["enum('b','a','é','')"], column, ["a", "a"])


def test_naive_timestamps_are_read_in_the_zone_of_the_space() -> None:
    berlin = attribute_of("timestamp", "Europe/Berlin")
    rows = [datetime(2020, 3, 29, 2, 30), datetime(2020, 10, 25, 2, 30), None, datetime(1850, 1, 1)]
    check_column(berlin, pa.array(rows, pa.timestamp("us")), rows)
    check_column(berlin, np.array([row for row in rows if row], "M8[us]"), [row for row in rows if row])
    aware = [row and row.replace(tzinfo=UTC) for row in rows]
    check_column(berlin, pa.array(aware, pa.timestamp("us", "UTC")), aware)


NUMPY_TYPES: list[tuple[str, st.SearchStrategy[Any]]] = [
    *((f"i{size}", st.integers(-(2 ** (8 * size - 1)), 2 ** (8 * size - 1) - 1)) for size in (1, 2, 4, 8)),
    *((f"u{size}", st.integers(0, 2 ** (8 * size) - 1)) for size in (1, 2, 4, 8)),
    ("i8", st.integers(-5, 5)),
    ("?", st.booleans()),
    ("f2", halves),
    ("f4", singles),
    ("f8", st.floats() | st.floats(0, 1000)),
    ("U6", texts.map(lambda text: text.rstrip("\0"))),
    ("S3", st.binary(max_size=3).map(lambda text: text.rstrip(b"\0"))),
    ("M8[D]", st.dates()),
    *((f"M8[{unit}]", moments) for unit in ("s", "ms", "us", "ns")),
    ("m8[s]", st.integers(-5, 5)),
]


@each_type
@examples(25)
@given(st.data())
def test_numpy_columns(declared: str, data: st.DataObject) -> None:
    kind, values = data.draw(st.sampled_from(NUMPY_TYPES))
    array = np.array(data.draw(st.lists(values, max_size=6)), kind)
    step = data.draw(st.sampled_from([1, 2, -1]))
    check_column(ATTRIBUTES[declared], array[::step], list(array[::step]))


@pytest.mark.parametrize("kind", [">i8", ">f8", "f16", "M8[M]", "M8[h]", "m8[D]", "c16", "V1"])
@pytest.mark.parametrize("declared", ["int", "double", "timestamp"])
def test_numpy_columns_that_arrow_does_not_take(declared: str, kind: str) -> None:
    array = np.array([b"1"] if kind == "V1" else [1, 2], kind)
    check_column(ATTRIBUTES[declared], array, list(array))


@pytest.mark.parametrize("declared", ["timestamp", "date"])
def test_not_a_time_is_the_same_alone_and_in_a_column(declared: str) -> None:
    unit: Literal["D", "us"] = "D" if declared == "date" else "us"
    check_column(ATTRIBUTES[declared], np.array(["NaT"], f"M8[{unit}]"), [np.datetime64("NaT", unit)])


anything = st.one_of(
    st.none(),
    st.booleans(),
    ints,
    st.just(2**70),
    st.floats(),
    st.sampled_from([Decimal("1.5"), Decimal("0.001"), Decimal("NaN"), Decimal(7), Decimal("1E+30")]),
    texts,
    st.sampled_from(["a", "b", "\ud800", "5"]),
    st.binary(max_size=2),
    st.dates(),
    st.datetimes(),
    st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=3))])),
    st.sampled_from([np.int8(3), np.float32(0.1), np.bool_(True), np.str_("a")]),
    st.lists(st.integers(), max_size=1),
)


@each_type
@examples(25)
@given(st.lists(anything, max_size=5))
@example([1, 2.5])
@example([1.5, True])
@example([date(2020, 1, 1), datetime(2020, 1, 1, 5)])
@example([datetime(2020, 1, 1, 5, tzinfo=UTC), datetime(2020, 1, 1, 5)])
def test_lists_of_anything(declared: str, rows: list[Any]) -> None:
    check_column(ATTRIBUTES[declared], rows, rows)
    check_column(ATTRIBUTES[declared], tuple(rows), rows)
    objects = np.empty(len(rows), object)
    objects[:] = rows
    check_column(ATTRIBUTES[declared], objects, rows)


def test_no_list_crashes_the_process() -> None:
    """`pa.array` of a NumPy datetime next to another NumPy scalar is a segmentation fault in pyarrow 26."""
    program = (
        "import numpy as np; from thatch import EventError, Space\n"
        "for other in (np.int8(3), np.True_, np.float32(0.1)):\n"
        "    try: Space.parse('a timestamp').encode_batch({'a': [np.datetime64('2020-01-01T00'), other]})\n"
        "    except EventError as error: print(error.row)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "1\n1\n1\n"), done.stderr


@pytest.mark.parametrize(
    "rows",
    [
        [datetime(2020, 1, 1, 5, tzinfo=UTC), datetime(2020, 1, 1, 5)],
        [datetime(2020, 1, 1, 5), datetime(2020, 1, 1, 5, tzinfo=UTC)],
        [datetime(2020, 1, 1, 5), datetime(2020, 7, 1, 5)],
    ],
)
def test_lists_of_datetimes_with_and_without_zone(rows: list[datetime]) -> None:
    check_column(attribute_of("timestamp", "Europe/Berlin"), rows, rows)


def test_pandas_timestamps() -> None:
    pandas = pytest.importorskip("pandas")
    attribute = ATTRIBUTES["timestamp"]
    for rows in (
        [pandas.Timestamp(2_000)],
        [pandas.Timestamp(1)],
        [pandas.Timestamp("2020-01-01", tz="Europe/Berlin")],
    ):
        check_column(attribute, rows, rows)
        check_column(attribute, pandas.Series(rows), rows)


@pytest.mark.parametrize("column", [[], pa.array([]), np.array([]), (), pa.array([], pa.binary())])
@each_type
def test_empty_columns(declared: str, column: Any) -> None:
    assert ATTRIBUTES[declared].encode_array(column, 0).tolist() == []


def test_missing_columns() -> None:
    assert ATTRIBUTES["int"].encode_array(MISSING, 3).tolist() == [-(2**63)] * 3
    assert ATTRIBUTES["int not null"].encode_array(MISSING, 0).tolist() == []
    with pytest.raises(EventError, match="is missing"):
        ATTRIBUTES["int not null"].encode_array(MISSING, 1)


def test_columns_do_not_write_into_the_caller_s_array() -> None:
    array = np.array([1, 2, 3])
    for column in (array, pa.array(array), pa.array([1, None, 3])):
        before = np.array(column.to_pylist() if isinstance(column, pa.Array) else column.tolist(), object).tolist()
        ATTRIBUTES["int -5..5"].encode_array(column, 3)
        assert (column.to_pylist() if isinstance(column, pa.Array) else column.tolist()) == before


# --- Refusals name attribute, value, rule and row ---------------------------------------------------------------------

REFUSED: list[tuple[str, Any, str]] = [
    ("bool", 1, "is not a bool"),
    ("bool", "true", "is not a bool"),
    ("int", True, "is not an int"),
    ("int", np.bool_(False), "is not an int"),
    ("int", 1.0, "is not an int"),
    ("int", Decimal(1), "is not an int"),
    ("int", "1", "is not an int"),
    ("int", 2**63, "is outside the domain"),
    ("int", -(2**63), "NULL has its place"),
    ("int", -(2**64), "is outside the domain"),
    ("int -5..5", 6, "is outside the domain -5..5 of int"),
    ("int", np.array(1.5), "is not an int"),
    ("int", np.array([1, 2]), "is not an int"),
    ("decimal(10,2)", 1.5, "is not a Decimal or an int"),
    ("decimal(10,2)", True, "is not a Decimal or an int"),
    ("decimal(10,2)", "1.5", "is not a Decimal or an int"),
    ("decimal(10,2)", Decimal("0.001"), "more than the 2 decimal places"),
    ("decimal(10,2)", Decimal("1E-400"), "more than the 2 decimal places"),
    ("decimal(10,2)", Decimal("100000000"), "more than the 10 digits"),
    ("decimal(10,2)", 10**30, "more than the 10 digits"),
    ("decimal(10,2)", Decimal("NaN"), "no finite value"),
    ("decimal(10,2)", Decimal("-Infinity"), "no finite value"),
    ("decimal(10,2) not null -1.50..1000", Decimal("-1.51"), "is outside the domain -1.50..1000.00"),
    ("double", "1.5", "is not a float"),
    ("double", True, "is not a float"),
    ("double", Decimal("1.5"), "is not a float"),
    ("double", 2**53 + 1, "is an int that no double equals"),
    ("double", 10**400, "is an int that no double equals"),
    ("double not null 0..1000", math.nan, "is outside the domain 0.0..1000.0 of double"),
    ("double not null 0..1000", -5e-324, "is outside the domain"),
    ("double not null 0..1000", math.inf, "is outside the domain"),
    ("float", "1.5", "is not a float"),
    ("float", 0.1, "no float of 32 bits equals"),
    ("float", 1e300, "no float of 32 bits equals"),
    ("float", 10**400, "no float of 32 bits equals"),
    ("float", 2**24 + 1, "no float of 32 bits equals"),
    ("float not null -2.5..1000", math.nan, "is outside the domain -2.5..1000.0 of float"),
    ("tinyint", 128, "is outside the domain -128..127"),
    ("smallint not null", -32769, "is outside the domain -32768..32767"),
    ("timestamp_ntz", datetime(2020, 1, 1, tzinfo=UTC), "has a time zone"),
    ("timestamp_ntz", date(2020, 1, 1), "is not a datetime"),
    ("timestamp_ntz", np.datetime64(1, "ns"), "is finer than a microsecond"),
    ("date", datetime(2020, 1, 1), "is not a date"),
    ("date", "2020-01-01", "is not a date"),
    ("date", 18262, "is not a date"),
    ("date", np.datetime64("2020-01-01T00"), "is not a date"),
    ("date", np.datetime64(2**40, "D"), "is outside the domain"),
    ("date not null '1999-12-31'..'2000-03-01'", date(2000, 3, 2), "is outside the domain 1999-12-31..2000-03-01"),
    ("timestamp", date(2020, 1, 1), "is not a datetime"),
    ("timestamp", "2020-01-01", "is not a datetime"),
    ("timestamp", 0, "is not a datetime"),
    ("timestamp", np.datetime64(1, "ns"), "is finer than a microsecond"),
    ("timestamp", np.datetime64(2**62, "s"), "is outside the domain"),
    ("timestamp", datetime.min.replace(tzinfo=timezone(timedelta(hours=1))), "is outside the domain"),
    ("enum('b','a','é','')", "c", "is not a value of enum('b', 'a', 'é', '')"),
    ("enum('b','a','é','')", 0, "is not a value of enum"),
    ("string", 5, "is not a string"),
    ("string", b"a", "is not a string"),
    ("string", "a\ud800", "half a surrogate pair"),
    ("int not null", None, "the attribute is not null and the value is NULL"),
    ("int not null", MISSING, "the attribute is not null and the value is missing"),
]


@pytest.mark.parametrize(("declared", "value", "rule"), REFUSED)
def test_refusals(declared: str, value: Any, rule: str) -> None:
    attribute = ATTRIBUTES[declared]
    with pytest.raises(EventError) as alone:
        attribute.encode(value)
    assert alone.value.attribute == "a" and alone.value.row is None
    assert rule in str(alone.value) and str(alone.value).startswith("attribute 'a': ")
    if value is MISSING:
        return
    written = {None: "NULL", True: "true"}.get(value, str(value)) if value.__hash__ else str(value)
    assert alone.value.value is value and (shown(value) in str(alone.value) or written in str(alone.value))
    good = attribute.decode(attribute.last)
    with pytest.raises(EventError) as listed:
        attribute.encode_array([good, good, value, good, value], 5)
    assert listed.value.row == 2 and str(listed.value).startswith("attribute 'a', row 2: ")
    assert rule in str(listed.value)


@pytest.mark.parametrize(
    ("declared", "column"),
    [
        ("date", pa.array([0, 10**8], pa.int32()).cast(pa.date32())),
        ("date", pa.array([0, -(10**14)], pa.int64()).cast(pa.date64())),
        ("timestamp", pa.array([0, 2**62]).cast(pa.timestamp("us"))),
        ("timestamp", pa.array([0, 2**62]).cast(pa.timestamp("s"))),
        ("timestamp", pa.array([0, 1]).cast(pa.timestamp("ns"))),
        ("int", pa.array([0, 2**63], pa.uint64())),
        ("double", pa.array([0, 2**53 + 1], pa.int64())),
    ],
)
def test_refused_arrow_values_that_python_may_not_hold(declared: str, column: pa.Array) -> None:
    with pytest.raises(EventError, match="attribute 'a', row 1: "):
        ATTRIBUTES[declared].encode_array(column, 2)


def test_a_decimal_with_a_huge_exponent_is_refused_at_once() -> None:
    """10 to the power of a million has 100 kB already; of a thousand million it does not end."""
    attribute = ATTRIBUTES["decimal(10,2)"]
    for text in ("1E-1000000", "1E-1000001", "1E+1000000", "-3E-1000002"):
        with pytest.raises(EventError, match=r"more than the (2 decimal places|10 digits)"):
            attribute.encode(Decimal(text))
    import tracemalloc

    tracemalloc.start()
    with pytest.raises(EventError):
        attribute.encode(Decimal("1E-3000000"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


def test_huge_values_do_not_flood_the_message() -> None:
    with pytest.raises(EventError) as refused:
        ATTRIBUTES["int"].encode("x" * 10**6)
    assert len(str(refused.value)) < 200
