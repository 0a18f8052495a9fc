"""The first part of the demo: a year of flights and thousands of subscriptions, in this process and without Java."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thatch.cli.demo_flights import (
    BUSIEST,
    KINDS,
    SPACE,
    SUBSCRIPTIONS,
    FlightAlert,
    Found,
    busiest_text,
    by_subscription,
    cut,
    flights,
    subscriptions,
)
from thatch.errors import CallerError
from thatch.local.writing import check_can_write

if TYPE_CHECKING:
    import pyarrow as pa

EXAMPLES = ("traveller", "late", "around")  # kinds of which a subscription is shown


def run(rows: int | None = None, count: int = SUBSCRIPTIONS) -> tuple[dict[str, Any], pa.Table, list[FlightAlert]]:
    """What the report needs, and the flights and subscriptions for the same question on Spark. `rows`: of the flights,
    the first so many."""
    start = time.perf_counter()
    known = flights().slice(0, rows)
    made = subscriptions(known, count)
    loaded = time.perf_counter()
    found = matched(known, made)
    done = time.perf_counter()
    busiest = sorted(range(len(made)), key=lambda id: -found[id][0])[:BUSIEST]
    examples = [next(each for each in made if each.kind == kind) for kind in EXAMPLES]
    return (
        {
            "events": known.num_rows,
            "subscriptions": len(made),
            "examples": [{"kind": each.kind, "where": each.where} for each in examples],
            "matches": sum(matches for matches, _ in found),
            "without_match": sum(not matches for matches, _ in found),
            "seconds_to_load": loaded - start,
            "seconds": done - loaded,
            "busiest": [
                {"id": id, "kind": made[id].kind, "where": made[id].where, "matches": found[id][0]} for id in busiest
            ],
            "found": found,
        },
        known,
        made,
    )


def matched(known: pa.Table, made: list[FlightAlert]) -> list[Found]:
    """For each subscription, how many flights it wants, and the sum of their numbers."""
    from thatch.local.match import match

    return by_subscription(match(known, {id: each.where for id, each in enumerate(made)}, SPACE), len(made))


def shown(result: dict[str, Any]) -> str:
    """The result as text for a terminal."""
    events, asked, matches = result["events"], result["subscriptions"], result["matches"]
    width = max(map(len, KINDS))
    took = f"{result['seconds']:.1f} s, after {result['seconds_to_load']:.1f} s to load"
    return "\n".join(
        [
            f"Loaded: {events:,} flights that left New York in 2013, and {asked:,} subscriptions, such as",
            *(f"  {each['kind']:<{width}}  {cut(each['where'])}" for each in result["examples"]),
            "Question: who wants which flight?",
            f"Answer: {matches:,} matches in {took}. The busiest subscriptions:",
            busiest_text(result),
        ]
    )


def save(folder: Path) -> tuple[Path, Path]:
    """The flights and the subscriptions as files that `thatch match` reads."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import csv

    if folder.is_file():
        raise CallerError(f"{folder} is a file, a folder is needed")
    check_can_write(str(folder))
    if folder.exists() and any(folder.iterdir()):
        raise CallerError(f"{folder} exists already: choose another folder")
    known = flights()
    made = subscriptions(known)
    folder.mkdir(parents=True, exist_ok=True)
    events, rules = folder / "flights.parquet", folder / "alerts.csv"
    pq.write_table(known, events, row_group_size=1 << 16)
    ids = pa.array([f"{each.kind}-{id}" for id, each in enumerate(made)])
    csv.write_csv(pa.table({"id": ids, "where": pa.array([each.where for each in made])}), rules)
    return events, rules
