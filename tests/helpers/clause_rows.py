"""The rows of test_where_spark.py: every type, nullable and not, and the values easy to get wrong."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

SPACE = (
    "flag bool, live bool not null, day date, due date not null '1900-01-01'..'2100-12-31', at timestamp,"
    " seen timestamp not null, count int, serial int not null, size int -100..100, amount decimal(10,2),"
    " wide decimal(18,6), fee decimal(6,3) not null 0..250, price double, ratio double not null 0..1000,"
    " kind enum('a','b','Zed',''), mode enum('on','off','50%_x','é😀') not null, name string,"
    " code string not null, weight float, load float not null -1000..1000, tiny tinyint, small smallint not null,"
    " wall timestamp_ntz, huge decimal(38,10), unsigned decimal(20,0) not null 0..18446744073709551615,"
    " share decimal(38,38)"
)


def _decimals(text: str) -> list[Decimal]:
    return [Decimal(each) for each in text.split()]


_EDGE = 2**63
_INTS = [0, 1, -1, 2, 5, -5, 7, 100, 127, -128, 1000, 32767, 2**31, 10**18, 2**62, -(2**53) - 1]
_INTS += [2**53 + step for step in (-1, 0, 1, 2, 3)] + [_EDGE - step for step in (1, 2, 512, 513, 1536)]
_INTS += [-_EDGE + step for step in (1, 2, 512, 513)]
_SIZES = [-100, -99, -5, -1, 0, 1, 2, 5, 7, 50, 99, 100]
_AMOUNTS = _decimals("0 0.01 -0.01 0.99 1 1.01 5.01 5.5 6 -5.5 100 1234567.89 99999999.98 99999999.99")
_AMOUNTS += _decimals("-99999999.99")
_WIDES = _decimals("0 0.000001 -0.000001 0.5 1 5.25 -7.5 9007199254.740993 9007199254.740992 123456789012")
_WIDES += _decimals("123456789012.345678 123456789012.345679 999999999999.999998 999999999999.999999")
_WIDES += _decimals("-999999999999.999999")
_HUGE = _decimals(
    "0 0.0000000001 -0.0000000001 4 4.0000000001 5 5.5 -7.25 9007199254740993 9007199254740993.0000000001"
)
_HUGE += _decimals("12345678901234567890.1234567890 12345678901234567890.1234567891 1e20 99999999999999991611392 1e27")
_HUGE += _decimals("9999999999999999999999999999.9999999998 9999999999999999999999999999.9999999999")
_HUGE += _decimals("-9999999999999999999999999999.9999999999 -12345678901234567890.1234567890")
_UNSIGNED = _decimals("0 1 2 5 7 9007199254740993 9223372036854775807 9223372036854775808 9223372036854776832")
_UNSIGNED += _decimals("18446744073709551614 18446744073709551615")
_OTHER_UNSIGNED = _decimals("-1 18446744073709551616 99999999999999999999")
_SHARES = _decimals("0 1e-38 -1e-38 0.1 0.5 -0.5 0.25 0.99999999999999999999999999999999999999")
_SHARES += _decimals("0.49999999999999999999999999999999999999 0.1000000000000000055511151231257827021")
_SHARES += _decimals("0.99999999999999999999999999995 0.99999999999999999999999999994999999999 -0.99999999999999999995")
_FEES = _decimals("0 0.001 0.1 1 5.005 5.5 99.999 100 249.999 250")
_OTHER_FEES = _decimals("-0.001 250.001 999")
_DOUBLES = [0.0, -0.0, 1.0, -1.0, 0.1, 0.10000000149011612, 0.30000000000000004, 5.0, 5.5, -2.25, 1e3, 1e15]
_DOUBLES += [1e22, 2.0**53, 2.0**53 + 2, 2.0**63, -(2.0**63), 3.4028234663852886e38, 5e-324, -5e-324, 1e-310]
_DOUBLES += [2.2250738585072014e-308, sys.float_info.max, -sys.float_info.max, math.inf, -math.inf, math.nan]
_FLOATS = [0.0, -0.0, 1.0, -1.0, 0.10000000149011612, 0.30000001192092896, 5.5, -2.25, 16777216.0, 16777218.0]
_FLOATS += [1.401298464324817e-45, -1.401298464324817e-45, 1.1754943508222875e-38, 3.4028234663852886e38]
_FLOATS += [-3.4028234663852886e38, math.inf, -math.inf, math.nan]
_LOADS = [0.0, 0.10000000149011612, 0.5, -1000.0, 999.9999389648438, 1000.0]
_TINY = [0, 1, -1, 5, 7, 126, 127, -127, -128]
_RATIOS = [0.0, -0.0, 5e-324, 0.1, 0.5, 1.0, 5.5, 10.0, 99.99, 999.9999999999999, 1000.0]
_STRINGS = ["", "a", "ab", "abc", "abc\0", "abc\x01", "abd", "abcd", "b", "A", "Zed", "é", "e\u0301", "\x80"]
_STRINGS += ["\uffff", "\uffffa", "\U0010ffff", "😀", "😀a", "it's", 'say "x"', "back\\slash", "\\", "\\%"]
_STRINGS += ["100%", "100%x", "a_b", "axb", "%", "_", "!", "a!b", "a\nb", "\t", " ", " a", "a ", "\0", "\x01"]
_STRINGS += ["\x1a", "\x7f", "NULL", "--", "/*", "*/", "5", "01"]
_DATES = [date(2020, 2, 29), date(2020, 3, 1), date(2020, 2, 3), date(2020, 2, 1), date(2020, 1, 1)]
_DATES += [date(2019, 12, 31), date(2000, 2, 29), date(1999, 12, 31), date(1970, 1, 1), date(1969, 12, 31)]
_DATES += [date(1900, 1, 1), date(1900, 2, 28), date(2100, 12, 31)]
_FAR_DATES = [date.min, date.max, date(1582, 10, 10), date(1, 12, 31), date(9999, 1, 1)]
_TIMES = [datetime(2020, 2, 29, 10), datetime(2020, 2, 29), datetime(2020, 1, 1), datetime(2020, 2, 1)]
_TIMES += [datetime(2020, 2, 29, 10, 0, 0, 123456), datetime(2020, 2, 29, 10, 0, 0, 123000)]
_TIMES += [datetime(2020, 3, 29, 1, 30), datetime(2020, 10, 25, 0, 30), datetime(2020, 10, 25, 1, 30)]
_TIMES += [datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(1970, 1, 1), datetime(1970, 1, 1, 0, 0, 0, 1)]
_TIMES += [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999), datetime(1582, 10, 10, 12)]
_TIMES += [datetime(1900, 1, 1, 5), datetime(2020, 12, 1)]
_MOMENTS = [each.replace(tzinfo=UTC) for each in _TIMES]


@dataclass(frozen=True)
class Column:
    """An attribute as the writer of clauses sees it: its family decides which literals and rules fit."""

    name: str
    family: str  # bool, date, timestamp, timestamp_ntz, int, decimal, double, string or enum
    arrow: pa.DataType
    values: Sequence[Any]
    nullable: bool = True
    beyond: Sequence[Any] = ()  # values outside its domain

    @property
    def is_number(self) -> bool:
        """Whether `within` takes it, which needs decimals of up to 18 digits."""
        if self.family == "decimal":
            return bool(self.arrow.precision <= 18)
        return self.family in ("int", "double")


COLUMNS = [
    Column("flag", "bool", pa.bool_(), [True, False]),
    Column("live", "bool", pa.bool_(), [True, False], nullable=False),
    Column("day", "date", pa.date32(), _DATES + _FAR_DATES),
    Column("due", "date", pa.date32(), _DATES, False, [date(1, 1, 1), date(2101, 1, 1)]),
    Column("at", "timestamp", pa.timestamp("us", "UTC"), _MOMENTS),
    Column("seen", "timestamp", pa.timestamp("us", "UTC"), _MOMENTS, nullable=False),
    Column("count", "int", pa.int64(), _INTS),
    Column("serial", "int", pa.int64(), [*_INTS, -_EDGE], nullable=False),
    Column("size", "int", pa.int64(), _SIZES, True, [-1000, 101, 2**40]),
    Column("amount", "decimal", pa.decimal128(10, 2), _AMOUNTS),
    Column("wide", "decimal", pa.decimal128(18, 6), _WIDES),
    Column("fee", "decimal", pa.decimal128(6, 3), _FEES, False, _OTHER_FEES),
    Column("price", "double", pa.float64(), _DOUBLES),
    Column("ratio", "double", pa.float64(), _RATIOS, False, [-5e-324, 1e9, math.inf, math.nan]),
    Column("kind", "enum", pa.string(), ["a", "b", "Zed", ""]),
    Column("mode", "enum", pa.string(), ["on", "off", "50%_x", "é😀"], nullable=False),
    Column("name", "string", pa.string(), _STRINGS),
    Column("code", "string", pa.string(), _STRINGS, nullable=False),
    Column("weight", "double", pa.float32(), _FLOATS),
    Column("load", "double", pa.float32(), _LOADS, False, [-2000.0, 1e9, math.inf, math.nan]),
    Column("tiny", "int", pa.int8(), _TINY),
    Column("small", "int", pa.int16(), [*_TINY, 1000, 32767, -32768], nullable=False),
    Column("wall", "timestamp_ntz", pa.timestamp("us"), _TIMES),
    Column("huge", "decimal", pa.decimal128(38, 10), _HUGE),
    Column("unsigned", "decimal", pa.decimal128(20, 0), _UNSIGNED, False, _OTHER_UNSIGNED),
    Column("share", "decimal", pa.decimal128(38, 38), _SHARES),
]


def make_rows(random: Random, count: int) -> list[dict[str, Any]]:
    """Rows in which every value of every column occurs, and one nullable value in seven is NULL."""
    rows: list[dict[str, Any]] = [{} for _ in range(count)]
    for column in COLUMNS:
        nulls = count // 7 if column.nullable else 0
        values = [*itertools.islice(itertools.cycle(column.values), count - nulls), *[None] * nulls]
        random.shuffle(values)
        for row, value in zip(rows, values, strict=True):
            row[column.name] = value
    return rows


def make_table(rows: Sequence[dict[str, Any]]) -> pa.Table:
    """The rows as Arrow, with the nullability of the columns."""
    schema = pa.schema([pa.field(each.name, each.arrow, each.nullable) for each in COLUMNS])
    return pa.Table.from_pylist(list(rows), schema)


def without_some_nulls(random: Random, row: dict[str, Any]) -> dict[str, Any]:
    """The same event with half of its NULLs left out: missing is NULL."""
    return {name: value for name, value in row.items() if value is not None or random.random() < 0.5}
