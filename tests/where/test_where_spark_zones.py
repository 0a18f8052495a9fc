"""Dates against timestamps in zones where midnight may not exist, days are skipped and clocks change: Spark decides."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest

from thatch import ClauseError, Space

DAYS = [
    date(2018, 11, 4),  # São Paulo: the day begins at 01:00
    date(2018, 2, 18),  # and here its last hour comes twice
    date(2020, 3, 29),  # Berlin: 02:30 does not exist
    date(2020, 10, 25),  # and here it comes twice
    date(2011, 12, 30),  # Apia: the whole day does not exist
    date(1919, 3, 31),  # Toronto: clocks went from 23:30 to 00:30
    date(1900, 1, 1),  # local mean time, with seconds
    date(9999, 12, 30),
]


def clauses() -> list[str]:
    found = []
    for day in DAYS:
        text = day.isoformat()
        for operator in ("=", "<", "<=", ">="):
            found += [
                f"at {operator} DATE'{text}'",
                f"day {operator} TIMESTAMP'{text} 00:00:00'",
                f"day {operator} TIMESTAMP'{text} 23:30:00Z'",
                f"day {operator} TIMESTAMP'{text} 04:30:00Z'",
                f"day {operator} TIMESTAMP'{text} 04:45:00Z'",
                f"at {operator} '{text} 00:30:00'",
                f"at {operator} '{text} 02:30:00'",
                f"wall {operator} '{text} 02:30:00'",
                f"wall {operator} DATE'{text}'",
            ]
        found.append(f"wall IN ('{text}', DATE'2018-11-04')")
        found.append(f"at IN ('{text}', DATE'2018-11-04')")
    return found


@pytest.mark.parametrize("zone", ["America/Sao_Paulo", "America/Toronto", "Europe/Berlin", "Pacific/Apia"])
def test_zones(spark: Any, zone: str) -> None:
    hours = [(0, 0), (1, 30), (2, 0), (3, 30), (4, 30), (5, 0), (23, 30)]
    times = [datetime(d.year, d.month, d.day, *hour, tzinfo=UTC) for d in DAYS for hour in hours]
    rows = [(time.date(), time, time.replace(tzinfo=None)) for time in times] + [(None, None, None)]
    space, texts = Space.parse("day date, at timestamp, wall timestamp_ntz", time_zone=zone), clauses()
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        frame = spark.createDataFrame(rows, "day date, at timestamp, wall timestamp_ntz").coalesce(1)
        answers = frame.selectExpr(*[f"({text}) AS c{number}" for number, text in enumerate(texts)]).collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    for number, text in enumerate(texts):
        region = space.where(text)
        for (day, at, wall), answer in zip(rows, answers, strict=True):
            event = {"day": day, "at": at, "wall": wall}
            assert region.contains(event) == (answer[number] is True), (zone, text, event)
    with pytest.raises(ClauseError, match=r"when a clock in .* is not always clear"):
        space.where("wall < TIMESTAMP'2020-01-01 00:00:00'")
