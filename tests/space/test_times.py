"""Dates and timestamps from text, against the standard library's calendar, clock and time zones."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.strategies import examples
from thatch.space import times

ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Pacific/Apia"]
BERLIN = ZoneInfo("Europe/Berlin")
MICRO = timedelta(microseconds=1)


def micros(moment: datetime) -> int:
    return (moment - times.EPOCH) // MICRO


@examples(200)
@given(st.dates())
def test_days_of_civil_is_the_ordinal(day: date) -> None:
    days = day.toordinal() - date(1970, 1, 1).toordinal()
    assert times.days_of_civil(day.year, day.month, day.day) == days
    assert times.days_of_text(day.isoformat()) == days
    assert times.days_of_text(f"\t{day.year:05}-{day.month}-{day.day}T25:99 anything ") == days


@examples(100)
@given(st.dates(), st.integers(-700, 700))
def test_the_calendar_repeats_every_400_years(day: date, cycles: int) -> None:
    shifted = times.days_of_civil(day.year + 400 * cycles, day.month, day.day)
    assert shifted == times.days_of_civil(day.year, day.month, day.day) + cycles * 146_097


def test_years_that_python_does_not_have() -> None:
    assert times.days_of_text("10000-01-01") == times.DAY_LAST + 1
    assert times.days_of_text("0000-12-31") == times.days_of_text("-0000-12-31") == times.DAY_FIRST - 1
    assert times.days_of_text("0000-02-29") == times.days_of_text("0000-03-01") - 1
    assert times.days_of_text("-0001-12-31") == times.days_of_text("0000-01-01") - 1
    assert times.micros_of_text("10000-01-01", ZoneInfo("UTC")) == (times.DAY_LAST + 1) * times.MICROS_PER_DAY
    assert times.micros_of_text("10000-01-01", BERLIN) == (times.DAY_LAST + 1) * times.MICROS_PER_DAY - 3600 * 10**6


@pytest.mark.parametrize("zone", ZONES)
@examples(60)
@given(st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)))
def test_text_without_zone_is_local_time(zone: str, local: datetime) -> None:
    """fold=0: in a gap and in an overlap the offset from before the transition, as Java chooses."""
    expected = micros(local.replace(tzinfo=ZoneInfo(zone)))
    assert times.micros_of_text(local.isoformat(sep=" "), ZoneInfo(zone)) == expected
    assert times.micros_of_text(local.isoformat(), ZoneInfo(zone)) == expected


@examples(100)
@given(st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)), st.integers(-18 * 60, 18 * 60), st.sampled_from(ZONES))
def test_an_offset_in_the_text_overrules_the_zone(local: datetime, minutes: int, zone: str) -> None:
    aware = local.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    assert times.micros_of_text(aware.isoformat(), ZoneInfo(zone)) == micros(aware)
    assert times.micros_of_text(f"{local.isoformat()} {zone}", BERLIN) == micros(local.replace(tzinfo=ZoneInfo(zone)))


@pytest.mark.parametrize("suffix", ["Z", "UTC", "GMT", "+0", "-00:00", "UTC+00:00", " Z", "GMT-0"])
def test_ways_to_say_utc(suffix: str) -> None:
    assert times.micros_of_text("1970-01-01 00:00:00" + suffix, BERLIN) == 0


@pytest.mark.parametrize(
    ("local", "instant"),
    [
        ("2020-03-29 01:59:59.999999", "2020-03-29 00:59:59.999999"),
        ("2020-03-29 02:00:00", "2020-03-29 01:00:00"),  # the gap begins: reads as 03:00
        ("2020-03-29 02:30:00", "2020-03-29 01:30:00"),
        ("2020-03-29 03:00:00", "2020-03-29 01:00:00"),
        ("2020-10-25 02:00:00", "2020-10-25 00:00:00"),  # twice; the earlier one counts
        ("2020-10-25 02:59:59", "2020-10-25 00:59:59"),
        ("2020-10-25 03:00:00", "2020-10-25 02:00:00"),
    ],
)
def test_gaps_and_overlaps(local: str, instant: str) -> None:
    assert times.micros_of_text(local, BERLIN) == times.micros_of_text(instant, ZoneInfo("UTC"))


def test_first_instants_of_days() -> None:
    sao_paulo = ZoneInfo("America/Sao_Paulo")  # clocks went forward at midnight: the day began at 01:00
    day = times.days_of_text("2018-11-04")
    assert times.micros_of_day(day, sao_paulo) == micros(datetime(2018, 11, 4, 3, tzinfo=UTC))
    assert times.micros_of_day(day, ZoneInfo("UTC")) == day * times.MICROS_PER_DAY


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2020", datetime(2020, 1, 1)),
        ("2020-3", datetime(2020, 3, 1)),
        ("2020-3-4", datetime(2020, 3, 4)),
        ("2020-03-04 5", datetime(2020, 3, 4, 5)),
        ("2020-03-04T5:6", datetime(2020, 3, 4, 5, 6)),
        ("2020-03-04 5:6:7", datetime(2020, 3, 4, 5, 6, 7)),
        ("2020-03-04 05:06:07.", datetime(2020, 3, 4, 5, 6, 7)),
        ("2020-03-04 05:06:07.1", datetime(2020, 3, 4, 5, 6, 7, 100_000)),
        ("2020-03-04 05:06:07.1234569", datetime(2020, 3, 4, 5, 6, 7, 123_456)),  # cut, not rounded
        (" \n2020-03-04\t ", datetime(2020, 3, 4)),
    ],
)
def test_parts_may_be_left_out(text: str, moment: datetime) -> None:
    assert times.micros_of_text(text, ZoneInfo("UTC")) == micros(moment.replace(tzinfo=UTC))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2020-",
        "202",
        "20200101",
        "2020-13",
        "2020-00-01",
        "2020-02-30",
        "2021-02-29",
        "1900-02-29",
        "2020-1-",
        "2020-01-01x",
        "2020/01/01",
        "01-01-2020",
        "１９７０-01-01",
        "12345678",
        "--2020",
        "\xa02020-01-01",
        "2020-001-01",
        "tomorrow",
    ],
)
def test_rejected_dates(text: str) -> None:
    with pytest.raises(ValueError, match=r"^is not a date"):
        times.days_of_text(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2020-",
        "10:00:00",
        "T10:00",
        "2020-01-01 24:00:00",
        "2020-01-01 23:60:00",
        "2020-01-01 23:59:60",
        "2020-02-30 00:00:00",
        "1234567",
        "2020-01-01 10:00:00 Mars/Olympus",
        "2020-01-01 10:00:00+19",
        "2020-01-01 10:00:00+18:01",
        "2020-01-01 10:00:00 ../etc/passwd",
        "2020-01-01 10:00:00.5.5",
        "2020-01-01 1:2:3 right/UTC",
        "2020-01-01 10:00:00 +01:00 x",
        "now",
    ],
)
def test_rejected_timestamps(text: str) -> None:
    with pytest.raises(ValueError, match=r"^(is not a|has a|has the unknown time zone)"):
        times.micros_of_text(text, ZoneInfo("UTC"))


@pytest.mark.parametrize(
    "name", ["", "Mars/Olympus", "/etc/localtime", "../UTC", "right/UTC", "posixrules", "a b", "Europe"]
)
def test_unknown_zones(name: str) -> None:
    with pytest.raises(ValueError, match="unknown time zone"):
        times.zone_of(name)
