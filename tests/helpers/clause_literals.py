"""Values written as literals, in every form in which Spark reads them.

They are drawn from the rows' own values and one step to either side, so that most bounds fall exactly on,
just before or just after a row. Nothing is written that Spark refuses.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Context, Decimal
from fractions import Fraction
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

from helpers.clause_rows import Column

_BEYOND = ["99999999999999999999", "9223372036854775808", "9223372036854775807.5", "-9223372036854775809"]
_BEYOND += ["-99999999999999999999", "9" * 38, "-" + "9" * 38, "-9223372036854775808.5", "1.5e19BD"]
_FINE = ["0." + "9" * 38, "-0." + "9" * 38, "0." + "0" * 37 + "1", "5." + "0" * 28 + "1", "4." + "9" * 37]
_ZONES = [("Z", "UTC"), (" UTC", "UTC"), (" Europe/Paris", "Europe/Paris"), ("Asia/Kolkata", "Asia/Kolkata")]
_ESCAPES = {"\n": r"\n", "\t": r"\t", "\0": r"\0", "\x1a": r"\Z", "\b": r"\b", "\r": r"\r"}

EXACT = Context(prec=80)  # the default one rounds to 28 digits

# The name of a grammar rule, and how to write a literal by it.
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
            "timestamp_ntz": self._clock_forms,
            "bool": lambda value: {"bool": lambda: self.keyword(str(value))},
        }
        write = writers.get(column.family, lambda value: {"own text": lambda: self.text(value)})
        return write(value)

    def literal(self, column: Column, value: Any, form: str | None = None, numeric: bool = False) -> str:
        """The value (or one close to it, where the form cannot hold it) as a literal."""
        forms = self.forms(column, value)
        if numeric:
            forms = {name: write for name, write in forms.items() if "string" not in name}
            forms = forms or {"D": lambda: "1.5D"}  # a double that is not finite is written as a string only
        name = form if form in forms else self.random.choice(list(forms))
        self.note(name)
        text = forms[name]()
        if text.startswith("-") and self.chance(0.1):
            self.note("sign apart")
            text = "- " + text[1:]
        return text

    # Numbers

    def _int_forms(self, value: int) -> Forms:
        pick, room = self.random.choice, 38 - len(str(abs(value)))
        forms: Forms = {
            "integer": lambda: str(value),
            "decimal": lambda: f"{value}.{pick(('0', '5', '50', '00'))}",
            "decimal .5": lambda: pick((".5", "-.5", ".0")),
            "decimal 5.": lambda: f"{value}.",
            "BD": lambda: f"{value}{pick(('BD', '.5BD', 'bd'))}",
            "D": lambda: f"{value}{pick(('D', '.0D', 'd'))}",
            "exponent": lambda: f"{float(value):.16e}",
            "F": lambda: f"{value}F",
            "beyond int64": lambda: pick(_BEYOND),
            "many digits": lambda: f"{value}.{pick(('9' * room, f'{1:0{room}d}'))}",
        }
        if -(2**63) <= value < 2**63:
            forms["L"] = lambda: f"{value}L"
            forms["string as int"] = lambda: self._padded(str(value))
        if abs(value) < 2**15:
            forms["S"] = lambda: f"{value}S"
        if abs(value) < 2**7:
            forms["Y"] = lambda: f"{value}Y"
        return forms

    def _decimal_forms(self, value: Decimal) -> Forms:
        pick, text = self.random.choice, f"{value:f}"
        text = text if "." in text else text + (".0" if len(text.lstrip("-")) < 38 else ".")
        room = 38 - max(len(text.lstrip("-0").replace(".", "")), len(text.partition(".")[2]))
        forms: Forms = {
            "integer": lambda: str(int(value)),
            "decimal": lambda: text + pick(("", "", "0", "5") if room else ("",)),
            "decimal 5.": lambda: f"{int(value)}.",
            "BD": lambda: f"{text}BD",
            "D": lambda: f"{text}D",
            "exponent": lambda: f"{value:e}",
            "F": lambda: f"{text}F",
            "beyond int64": lambda: pick(_BEYOND),
            "many digits": lambda: pick((f"{text}{1:0{room}d}" if room else text, text + "9" * room, *_FINE)),
            "string as double": lambda: self._padded(text),
        }
        if abs(int(value)) < 2**63:
            forms["L"] = lambda: f"{int(value)}L"
        if 0 < abs(value) < 1:
            forms["decimal .5"] = lambda: text.replace("0.", ".", 1)
        return forms

    def _double_forms(self, value: float) -> Forms:
        pick = self.random.choice
        if not math.isfinite(value):
            names = ["NaN", "nan", "+NaN"]
            if math.isinf(value):
                names = ["Infinity", "+inf", "INF", "1e400"] if value > 0 else ["-Infinity", "-inf", "-1e400"]
            return {"string not finite": lambda: self._padded(pick(names))}
        forms: Forms = {
            "D": lambda: f"{value!r}D",
            "exponent": lambda: f"{value:.16e}",
            "string as double": lambda: self._padded(pick((f"{value!r}", f"{value:.20e}", f"{value!r}d"))),
        }
        if abs(value) < 3e38:
            forms["F"] = lambda: f"{value!r}F"
        if abs(value) < 1e30:
            forms["integer"] = lambda: str(int(value))
            forms["decimal"] = lambda: f"{value:.6f}"
            forms["BD"] = lambda: f"{value!r}BD" if abs(value) > 1e-15 else "0BD"
            forms["beyond int64"] = lambda: pick(_BEYOND)
            forms["many digits"] = lambda: self._exact_or_half(value)
        return forms

    def _exact_or_half(self, value: float) -> str:
        """The double in 38 digits, or as near as they get to the middle between it and the next one."""
        exact, half = Fraction(value), (Fraction(value) + Fraction(math.nextafter(value, math.inf))) / 2
        places = 38 - len(str(int(abs(value))))
        scaled = int(self.random.choice((exact, half)) * 10**places)
        digits = f"{abs(scaled):0{places + 1}d}"
        return f"{'-' if scaled < 0 else ''}{digits[:-places]}.{digits[-places:]}"

    # Dates and times

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
            suffix, zone = pick(_ZONES)
            local = value.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
            forms["zone name"] = lambda: self._padded(local.isoformat(" ") + suffix)
        if 1 < value.year < 9999:
            offset = timezone(timedelta(minutes=30 * pick(range(-28, 29))))
            forms["zone offset"] = lambda: self._padded(value.astimezone(offset).isoformat(" "))
        return forms

    def _clock_forms(self, value: datetime) -> Forms:
        """Without a zone: what is compared is the reading of a clock."""
        forms = self._timestamp_forms(value.replace(tzinfo=UTC))
        return {name: write for name, write in forms.items() if not name.startswith("zone")}

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
            rule = "unicode escape"
            text = f"\\u{ord(each):04x}" if each <= "\uffff" else f"\\U{ord(each):08X}"
        elif each in "acdefx!- " and self.chance(0.03):
            rule, text = "needless escape", "\\" + each
        if rule:
            self.note(rule)
        return text


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _stepped(column: Column, value: Any, step: int, random: Random) -> Any:
    """The next value up or down, as the column orders them (for text: one that differs at its end)."""
    if step == 0 or column.family == "bool":
        return value
    if column.family == "int":
        return value + step
    if column.family == "decimal":
        unscaled = int(value.scaleb(column.arrow.scale, EXACT)) + step
        return Decimal(unscaled).scaleb(-column.arrow.scale, EXACT) if abs(unscaled) < 10**38 else value
    if column.family == "double":
        return math.nextafter(value, step * math.inf)
    if column.family in ("date", "timestamp", "timestamp_ntz"):
        return value + (timedelta(days=step) if column.family == "date" else timedelta(microseconds=step))
    last = chr(min(max(ord(value[-1]) + step, 0), 0x10FFFF)) if value else "\0"
    if "\ud800" <= last <= "\udfff":
        last = "\ud7ff"
    return random.choice((value + "\0", value[:-1], value[:-1] + last))
