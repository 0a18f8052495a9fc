"""Dates and timestamps as Spark reads them from text: days and microseconds since 1970-01-01.

Follows Spark's cast from string under ANSI (proleptic Gregorian calendar, years of 4 to 7 digits, parts may be
left out from the right). What Spark would refuse is refused; so are texts without a date, whose meaning depends on
the day they are read.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

MICROS_PER_SECOND = 1_000_000
MICROS_PER_DAY = 86_400 * MICROS_PER_SECOND
EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
DAY_FIRST = date.min.toordinal() - EPOCH_ORDINAL
DAY_LAST = date.max.toordinal() - EPOCH_ORDINAL
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_DATE = re.compile(r"([+-]?)(\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.ASCII | re.DOTALL)
_TIMESTAMP = re.compile(
    r"([+-]?)(\d{4,6})(?:-(\d{1,2})(?:-(\d{1,2})"
    r"(?:[ T](\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?(?: ?([A-Za-z+-].*))?)?)?)?)?)?",
    re.ASCII,
)
BLANKS = "".join(map(chr, range(0x21)))  # what Spark trims: blanks and control characters, not Unicode spaces
_OFFSET = re.compile(
    r"(?:UTC|GMT|UT)?([+-])(?:(\d{1,2})(?::([0-5]\d)(?::([0-5]\d))?)?|(\d\d)([0-5]\d)(?:([0-5]\d))?)", re.ASCII
)
_MONTH_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class HasTimeZone(ValueError):
    """A text has a time zone where none belongs."""


def days_of_civil(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 of any proleptic Gregorian date, also outside Python's years 1 to 9999."""
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not 1 <= month <= 12 or not 1 <= day <= _MONTH_DAYS[month - 1] or (month == 2 and day == 29 and not leap):
        raise ValueError("is not a date of the calendar")
    cycles, within = divmod(year, 400)  # the calendar repeats after 400 years, which are 146,097 days
    return date(within + 400, month, day).toordinal() + (cycles - 1) * 146_097 - EPOCH_ORDINAL


def days_of_text(text: str) -> int:
    """
    >>> days_of_text("1970-1-2"), days_of_text("1970-01-02 10:00:00"), days_of_text("1971")
    (1, 1, 365)
    """
    match = _DATE.fullmatch(text.strip(BLANKS))
    if match is None:
        raise ValueError("is not a date like '2020-02-29'")
    sign, year, month, day = match.groups()
    return days_of_civil(int(sign + year), int(month or 1), int(day or 1))


def micros_of_text(text: str, zone: ZoneInfo) -> int:
    """
    >>> micros_of_text("1970-01-01 00:00:01.5", ZoneInfo("UTC"))
    1500000
    >>> micros_of_text("1970-01-01T01:00:00+01:00", ZoneInfo("UTC"))
    0
    """
    local, suffix = _read(text)
    offset = _offset_of_suffix(suffix) if suffix else None
    return local - offset if isinstance(offset, int) else micros_of_local(local, offset or zone)


def local_micros_of_text(text: str) -> int:
    """The reading of a clock, for a timestamp without a zone.

    >>> local_micros_of_text("1970-01-01 00:00:01")
    1000000
    """
    local, suffix = _read(text)
    if suffix:
        raise HasTimeZone("has a time zone, which a timestamp_ntz has not")
    return local


def _read(text: str) -> tuple[int, str | None]:
    """The reading of the clock in a text, and the zone that is written after it."""
    match = _TIMESTAMP.fullmatch(text.strip(BLANKS))
    if match is None:
        raise ValueError("is not a timestamp like '2020-02-29 13:45:00.5'")
    sign, year, month, day, hour, minute, second, fraction, suffix = match.groups()
    days = days_of_civil(int(sign + year), int(month or 1), int(day or 1))
    hours, minutes, seconds = int(hour or 0), int(minute or 0), int(second or 0)
    if hours > 23 or minutes > 59 or seconds > 59:
        raise ValueError("is not a time of day")
    micros = int((fraction or "").ljust(6, "0")[:6])
    local = days * MICROS_PER_DAY + ((hours * 60 + minutes) * 60 + seconds) * MICROS_PER_SECOND + micros
    return local, suffix


def micros_of_local(local: int, zone: ZoneInfo) -> int:
    """A wall clock reading, in microseconds, to the instant. In a gap or an overlap the earlier offset counts."""
    if zone.key == "UTC":
        return local
    days = min(max(local // MICROS_PER_DAY, DAY_FIRST), DAY_LAST)
    nearest = datetime.min + timedelta(days=days - DAY_FIRST, microseconds=local % MICROS_PER_DAY)
    offset = zone.utcoffset(nearest)
    assert offset is not None
    return local - offset // timedelta(microseconds=1)


def micros_of_day(days: int, zone: ZoneInfo) -> int:
    """The first instant of a day: what a date becomes when compared with a timestamp. Where clocks skip midnight, the
    day begins when they do."""
    start = micros_of_local(days * MICROS_PER_DAY, zone)
    if zone.key == "UTC" or not DAY_FIRST < days < DAY_LAST:
        return start
    midnight = datetime.min + timedelta(days=days - DAY_FIRST)
    before, after = zone.utcoffset(midnight), zone.utcoffset(midnight.replace(fold=1))
    assert before is not None and after is not None
    if before >= after:  # no gap: in one, the offset grows
        return start
    first = start - (after - before) // timedelta(microseconds=1)  # before the clocks change; start is not
    while first + 1 < start:
        middle = (first + start) // 2
        moment = (EPOCH + timedelta(microseconds=middle)).astimezone(zone)
        first, start = (first, middle) if moment.utcoffset() == after else (middle, start)
    return start


def _offset_of_suffix(suffix: str) -> int | ZoneInfo:
    if suffix in ("Z", "UTC", "GMT", "UT"):
        return 0
    match = _OFFSET.fullmatch(suffix)
    if match is not None:
        sign, *parts = match.groups()
        hours, minutes, seconds = parts[:3] if parts[0] else parts[3:]
        total = int(hours) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)
        if total > 18 * 3600:
            raise ValueError("has a time zone offset beyond 18 hours")
        return (total if sign == "+" else -total) * MICROS_PER_SECOND
    return zone_of(suffix)


def zone_of(name: str) -> ZoneInfo:
    """
    >>> zone_of("Mars/Olympus")
    Traceback (most recent call last):
      ...
    ValueError: has the unknown time zone 'Mars/Olympus'
    """
    try:
        if re.fullmatch(r"(?!right/|posix)[A-Za-z][\w+/-]*", name, re.ASCII):
            return ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        pass
    raise ValueError(f"has the unknown time zone {name[:40]!r}")
