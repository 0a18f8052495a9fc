"""The rows of test_where_spark.py, and literals in every form Spark reads them.

Literals are drawn from the rows' own values and one step to either side, so that most bounds fall exactly on, just
before or just after a row. Nothing is written that Spark refuses.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

SPACE = (
    "flag bool, live bool not null, day date, due date not null '1900-01-01'..'2100-12-31', at timestamp,"
    " seen timestamp not null, count int, serial int not null, size int -100..100, amount decimal(10,2),"
    " wide decimal(18,6), fee decimal(6,3) not null 0..250, price double, ratio double not null 0..1000,"
    " kind enum('a','b','Zed',''), mode enum('on','off','50%_x','é😀') not null, name string, code string not null"
)

_BIG = 2**63
_INTS = [0, 1, -1, 2, 5, -5, 7, 100, 127, -128, 1000, 32767, 2**31, 10**18, 2**62, -(2**53) - 1]
_INTS += [2**53 + step for step in (-1, 0, 1, 2, 3)] + [_BIG - step for step in (1, 2, 512, 513, 1536)]
_INTS += [-_BIG + step for step in (1, 2, 512, 513)]
_SIZES = [-100, -99, -5, -1, 0, 1, 2, 5, 7, 50, 99, 100]
_DOUBLES = [0.0, -0.0, 1.0, -1.0, 0.1, 0.30000000000000004, 5.0, 5.5, -2.25, 1e3, 1e15, 1e22, 3.4028234663852886e38]
_DOUBLES += [2.0**53, 2.0**53 + 2, -(2.0**63), 2.0**63, 5e-324, -5e-324, 2.2250738585072014e-308, 1e-310]
_DOUBLES += [1.7976931348623157e308, -1.7976931348623157e308, math.inf, -math.inf, math.nan, 0.10000000149011612]
_STRINGS = ["", "a", "ab", "abc", "abc\0", "abc\x01", "abd", "abcd", "b", "A", "Zed", "é", "e\u0301", "\uffff"]
_STRINGS += ["\uffffa", "\U0010ffff", "😀", "😀a", "it's", 'say "x"', "back\\slash", "\\", "\\%", "100%", "100%x"]
_STRINGS += ["a_b", "axb", "%", "_", "!", "a!b", "a\nb", "\t", " ", " a", "a ", "\0", "\x01", "\x1a", "\x7f", "\x80"]
_STRINGS += ["NULL", "--", "/*", "*/", "5", "01"]
_DATES = [date(2020, 2, 29), date(2020, 3, 1), date(2020, 2, 3), date(2019, 12, 31), date(2000, 2, 29)]
_DATES += [date(1999, 12, 31), date(1970, 1, 1), date(1969, 12, 31), date(1900, 2, 28), date(2100, 12, 31)]
_DATES += [date(1900, 1, 1)]
_EDGE_DATES = [date.min, date.max, date(1582, 10, 10), date(1, 12, 31), date(9999, 1, 1)]
_TIMES = [datetime(2020, 2, 29, 10, 0), datetime(2020, 2, 29), datetime(2020, 1, 1), datetime(2020, 3, 29, 1, 30)]
_TIMES += [datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(1970, 1, 1), datetime(1970, 1, 1, 0, 0, 0, 1)]
_TIMES += [datetime(2020, 2, 29, 10, 0, 0, 123456), datetime(2020, 2, 29, 10, 0, 0, 123000), datetime(1900, 1, 1, 5)]
_TIMES += [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999), datetime(1582, 10, 10, 12)]
_TIMES += [datetime(2020, 12, 1), datetime(2020, 10, 25, 0, 30), datetime(2020, 10, 25, 1, 30)]


def _decimals(text: str) -> list[Decimal]:
    return [Decimal(each) for each in text.split()]


_AMOUNTS = _decimals("0 0.01 -0.01 1 1.01 5.5 6 -5.5 5.01 0.99 100 99999999.99 -99999999.99 99999999.98 1234567.89")
_WIDES = _decimals("0 0.000001 -0.000001 0.5 1 5.25 -7.5 9007199254.740993 9007199254.740992 999999999999.999998")
_WIDES += _decimals("999999999999.999999 -999999999999.999999 123456789012.345678 123456789012.345679 123456789012")
_FEES = _decimals("0 0.001 0.1 1 5.005 5.5 99.999 100 249.999 250")
_RATIOS = [0.0, -0.0, 5e-324, 0.1, 0.5, 1.0, 5.5, 10.0, 99.99, 999.9999999999999, 1000.0]


@dataclass(frozen=True)
class Column:
    """An attribute as the writer sees it: its family decides which literals and rules fit."""

    name: str
    family: str  # bool, date, timestamp, int, decimal, double, string or enum
    arrow: pa.DataType
    sql: str
    values: Sequence[Any]
    nullable: bool = True
    beyond: Sequence[Any] = ()  # values outside its domain


_MOMENT = pa.timestamp("us", "UTC")
_UTC_TIMES = [moment.replace(tzinfo=UTC) for moment in _TIMES]
COLUMNS = [
    Column("flag", "bool", pa.bool_(), "boolean", [True, False]),
    Column("live", "bool", pa.bool_(), "boolean", [True, False], nullable=False),
    Column("day", "date", pa.date32(), "date", _DATES + _EDGE_DATES),
    Column("due", "date", pa.date32(), "date", _DATES, False, [date(1, 1, 1), date(2101, 1, 1)]),
    Column("at", "timestamp", _MOMENT, "timestamp", _UTC_TIMES),
    Column("seen", "timestamp", _MOMENT, "timestamp", _UTC_TIMES, nullable=False),
    Column("count", "int", pa.int64(), "bigint", _INTS),
    Column("serial", "int", pa.int64(), "bigint", [*_INTS, -_BIG], nullable=False),
    Column("size", "int", pa.int64(), "bigint", _SIZES, True, [-1000, 101, 2**40]),
    Column("amount", "decimal", pa.decimal128(10, 2), "decimal(10,2)", _AMOUNTS),
    Column("wide", "decimal", pa.decimal128(18, 6), "decimal(18,6)", _WIDES),
    Column("fee", "decimal", pa.decimal128(6, 3), "decimal(6,3)", _FEES, False, _decimals("-0.001 250.001 999")),
    Column("price", "double", pa.float64(), "double", _DOUBLES),
    Column("ratio", "double", pa.float64(), "double", _RATIOS, False, [-5e-324, 1e9, math.inf, math.nan]),
    Column("kind", "enum", pa.string(), "string", ["a", "b", "Zed", ""]),
    Column("mode", "enum", pa.string(), "string", ["on", "off", "50%_x", "é😀"], nullable=False),
    Column("name", "string", pa.string(), "string", _STRINGS),
    Column("code", "string", pa.string(), "string", _STRINGS, nullable=False),
]
SPARK_SCHEMA = ", ".join(f"{each.name} {each.sql}{'' if each.nullable else ' not null'}" for each in COLUMNS)


def make_rows(random: Random, count: int) -> list[dict[str, Any]]:
    """Rows in which every value of every column occurs, and one nullable value in seven is NULL."""
    rows: list[dict[str, Any]] = [{} for _ in range(count)]
    for column in COLUMNS:
        values = list(itertools.islice(itertools.cycle(column.values), count))
        if column.nullable:
            values[-(count // 7) :] = [None] * (count // 7)
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


PARIS, NEW_YORK = ZoneInfo("Europe/Paris"), ZoneInfo("America/New_York")
_ESCAPES = {"\n": r"\n", "\t": r"\t", "\0": r"\0", "\x1a": r"\Z", "\b": r"\b", "\r": r"\r"}
_BEYOND = ["99999999999999999999", "9223372036854775808", "9223372036854775807.5", "-9223372036854775809"]
_BEYOND += ["-99999999999999999999", "9" * 38, "-" + "9" * 38, "-9223372036854775808.5", "1.5e19BD"]
_FINE = ["0." + "9" * 38, "0." + "0" * 37 + "1", "5." + "0" * 28 + "1", "-0." + "9" * 38, "4." + "9" * 37, "9" * 38]

Forms = dict[str, Callable[[], str]]


class LiteralWriter:
    """Writes values as literals and notes, by name, the rules it uses."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.rules: set[str] = set()

    def note(self, *rules: str) -> None:
        self.rules.update(rules)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def keyword(self, word: str) -> str:
        return word.lower() if self.chance(0.2) else word.upper()

    def value(self, column: Column) -> Any:
        """A value of the rows, or its neighbour, or one beyond the domain."""
        if column.beyond and self.chance(0.1):
            self.note("beyond domain")
            return self.random.choice(column.beyond)
        value, step = self.random.choice(column.values), self.random.choice((-1, 0, 0, 1))
        try:
            return _stepped(column, value, step, self.random)
        except OverflowError:  # no day before the first or after the last
            return value

    def forms(self, column: Column, value: Any) -> Forms:
        writers: dict[str, Callable[[Any], Forms]] = {
            "int": self._int_forms,
            "decimal": self._decimal_forms,
            "double": self._double_forms,
            "date": self._date_forms,
            "timestamp": self._timestamp_forms,
            "bool": lambda value: {"bool": lambda: self.keyword(str(value))},
        }
        write = writers.get(column.family, lambda value: {"own text": lambda: self.text(value)})
        return write(value)

    def literal(self, column: Column, value: Any, form: str | None = None, numeric: bool = False) -> str:
        """The value (or one close to it, where the form cannot hold it) as a literal."""
        forms = self.forms(column, value)
        if numeric:
            forms = {name: write for name, write in forms.items() if "string" not in name} or {"D": lambda: "1.5D"}
        name = form if form in forms else self.random.choice(list(forms))
        self.note(name)
        text = forms[name]()
        if text.startswith("-") and self.chance(0.1):
            self.note("sign apart")
            text = "- " + text[1:]
        return text

    def _int_forms(self, value: int) -> Forms:
        room = 38 - len(str(abs(value)))
        forms: Forms = {
            "integer": lambda: str(value),
            "decimal": lambda: f"{value}.{self.random.choice(('0', '5', '50', '00'))}",
            "decimal .5": lambda: self.random.choice((".5", "-.5", ".0")),
            "decimal 5.": lambda: f"{value}.",
            "BD": lambda: f"{value}{self.random.choice(('BD', '.5BD', 'bd'))}",
            "D": lambda: f"{value}{self.random.choice(('D', '.0D', 'd'))}",
            "exponent": lambda: f"{float(value):.16e}",
            "F": lambda: f"{value}F",
            "beyond int64": lambda: self.random.choice(_BEYOND),
            "many digits": lambda: f"{value}.{self.random.choice(('9' * room, '0' * (room - 1) + '1'))}",
        }
        if -_BIG <= value < _BIG:
            forms["L"] = lambda: f"{value}L"
            forms["string as int"] = lambda: self._padded(str(value))
        if abs(value) < 2**15:
            forms["S"] = lambda: f"{value}S"
        if abs(value) < 2**7:
            forms["Y"] = lambda: f"{value}Y"
        return forms

    def _decimal_forms(self, value: Decimal) -> Forms:
        text = f"{value:f}" if "." in f"{value:f}" else f"{value:f}.0"
        room = 38 - len(text.lstrip("-0").replace(".", ""))
        forms: Forms = {
            "integer": lambda: str(int(value)),
            "L": lambda: f"{int(value)}L",
            "decimal": lambda: text + self.random.choice(("", "", "0", "5")),
            "decimal 5.": lambda: f"{int(value)}.",
            "BD": lambda: f"{text}BD",
            "D": lambda: f"{text}D",
            "exponent": lambda: f"{value:e}",
            "F": lambda: f"{text}F",
            "beyond int64": lambda: self.random.choice(_BEYOND),
            "many digits": lambda: self.random.choice((text + "0" * (room - 1) + "1", text + "9" * room, *_FINE)),
            "string as double": lambda: self._padded(text),
        }
        if 0 < abs(value) < 1:
            forms["decimal .5"] = lambda: text.replace("0.", ".", 1)
        return forms

    def _double_forms(self, value: float) -> Forms:
        if not math.isfinite(value):
            names = ["Infinity", "+inf", "INF", "1e400"] if value > 0 else ["-Infinity", "-inf", "-INF", "-1e400"]
            if math.isnan(value):
                names = ["NaN", "nan", "+NaN"]
            return {"string not finite": lambda: self._padded(self.random.choice(names))}
        forms: Forms = {
            "D": lambda: f"{value!r}D",
            "exponent": lambda: f"{value:.16e}",
            "string as double": lambda: self._padded(
                self.random.choice((f"{value!r}", f"{value:.20e}", f"{value!r}d"))
            ),
        }
        if abs(value) < 3e38:
            forms["F"] = lambda: f"{value!r}F"
        if abs(value) < 1e30:
            forms["integer"] = lambda: str(int(value))
            forms["decimal"] = lambda: f"{value:.6f}"
            forms["BD"] = lambda: f"{value!r}BD" if 1e-15 < abs(value) else "0BD"
            forms["beyond int64"] = lambda: self.random.choice(_BEYOND)
            forms["many digits"] = lambda: self._exact_or_half(value)
        return forms

    def _exact_or_half(self, value: float) -> str:
        """The double in 38 digits, or as near as they get to the middle between it and the next one."""
        exact, half = Fraction(value), (Fraction(value) + Fraction(math.nextafter(value, math.inf))) / 2
        places = 38 - len(str(int(abs(value))))
        scaled = int(self.random.choice((exact, half)) * 10**places)
        digits = f"{abs(scaled):0{places + 1}d}"
        return f"{'-' if scaled < 0 else ''}{digits[:-places]}.{digits[-places:]}"

    def _date_forms(self, value: date) -> Forms:
        pick, year, month = self.random.choice, f"{value.year:04d}", value.month
        times = ("", " 00:00:00", " 00:00:00.000001", " 10:00:00")
        return {
            "date": lambda: f"{pick(('DATE', 'date', 'DATE '))}'{value}'",
            "string as date": lambda: self._padded(pick((str(value), f"{year}-{month}-{value.day}"))),
            "partial date": lambda: self._padded(pick((year, f"{year}-{month}", f"{year}-{month:02d}"))),
            "date with time": lambda: self.text(str(value) + pick((" 10:00:00", "T23:59:59Z"))),
            "timestamp for date": lambda: f"TIMESTAMP'{value}{pick(times)}'",
        }

    def _timestamp_forms(self, value: datetime) -> Forms:
        pick, plain = self.random.choice, value.replace(tzinfo=None)
        text, day = plain.isoformat(" "), plain.date().isoformat()
        to_second, fraction = text[:19], f"{plain.microsecond:06d}" + pick(("789", "000"))
        parts = (day[:4], day[:7], day, f"{day[:4]}-{plain.month}-{plain.day}", text[:16])
        forms: Forms = {
            "timestamp": lambda: f"{pick(('TIMESTAMP', 'timestamp '))}'{text}'",
            "string as timestamp": lambda: self._padded(text),
            "T separator": lambda: self._padded(plain.isoformat("T")),
            "fraction": lambda: self._padded(f"{to_second}.{fraction[: pick(range(1, 10))]}"),
            "partial timestamp": lambda: self._padded(pick(parts)),
            "date for timestamp": lambda: f"DATE'{day}'",
        }
        if 1970 < value.year < 2037:
            suffix, zone = pick((("Z", UTC), (" UTC", UTC), (" Europe/Paris", PARIS), ("America/New_York", NEW_YORK)))
            forms["zone name"] = lambda: self._padded(_wall_clock(value.astimezone(zone)) + suffix)
        if 1 < value.year < 9999:
            offset = timezone(timedelta(minutes=30 * pick(range(-28, 29))))
            forms["zone offset"] = lambda: self._padded(value.astimezone(offset).isoformat(" "))
        return forms

    # Texts

    def _padded(self, text: str) -> str:
        if self.chance(0.15):
            self.note("padded string")
            text = self.random.choice((f" {text} ", f"\t{text}", f"{text}\n"))
        return self.text(text)

    def text(self, value: str) -> str:
        """A string literal: quotes, raw strings and escapes as Spark reads them."""
        quote = "'" if self.chance(0.8) else '"'
        self.note("'text'" if quote == "'" else '"text"')
        if quote not in value and self.chance(0.15):
            self.note("raw text")
            return f"{self.random.choice('rR')}{quote}{value}{quote}"
        pieces = re.findall(r"(?s)\\[%_]|.", value)
        pairs = itertools.pairwise([*pieces, ""])
        return quote + "".join(self._character(each, after, quote) for each, after in pairs) + quote

    def _character(self, each: str, after: str, quote: str) -> str:
        rule, text = "", each
        if each == quote:
            rule, text = self.random.choice((("quote doubled", quote * 2), ("quote escaped", "\\" + quote)))
        elif each in ("\\%", "\\_") and self.chance(0.5):
            rule = "backslash kept"  # in Spark '\%' and '\\%' are the same two characters
        elif each[0] == "\\":
            text = "\\" + each
        elif each in _ESCAPES and not after.isdigit() and self.chance(0.7):
            rule, text = "named escape", _ESCAPES[each]
        elif each < "\x80" and self.chance(0.015):
            rule, text = "octal escape", f"\\{ord(each):03o}"
        elif self.chance(0.02):
            rule, text = "unicode escape", f"\\u{ord(each):04x}" if each <= "\uffff" else f"\\U{ord(each):08X}"
        elif each in "acdefx!- " and self.chance(0.03):
            rule, text = "needless escape", "\\" + each
        if rule:
            self.note(rule)
        return text


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _wall_clock(moment: datetime) -> str:
    return moment.replace(tzinfo=None).isoformat(" ")


def _stepped(column: Column, value: Any, step: int, random: Random) -> Any:
    """The next value up or down, as the column orders them (for text: one that differs at its end)."""
    if step == 0 or column.family == "bool":
        return value
    if column.family == "int":
        return value + step
    if column.family == "decimal":
        return value + step * Decimal(1).scaleb(-column.arrow.scale)
    if column.family == "double":
        return math.nextafter(value, step * math.inf)
    if column.family in ("date", "timestamp"):
        return value + (timedelta(days=step) if column.family == "date" else timedelta(microseconds=step))
    last = chr(min(max(ord(value[-1]) + step, 0), 0x10FFFF)) if value else "\0"
    if "\ud800" <= last <= "\udfff":
        last = "\ud7ff"
    return random.choice((value + "\0", value[:-1], value[:-1] + last))
