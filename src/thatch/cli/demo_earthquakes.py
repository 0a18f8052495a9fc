"""`thatch demo --earthquakes`: a week of real earthquakes, a dozen subscriptions, and who gets what; no Spark."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from importlib import resources
from typing import Any

import msgspec
import numpy as np

from thatch.cli.tabular import table
from thatch.region.region import Region
from thatch.space.space import Space

SPACE = Space.parse(
    "place string not null, region string, magnitude double not null -2..10, depth double, "
    "longitude double not null -180..180, latitude double not null -90..90, at timestamp not null, "
    "kind enum('earthquake','explosion','quarry blast') not null, status enum('automatic','reviewed') not null, "
    "tsunami bool not null, felt int 0.., stations int 0.., alert enum('green','yellow','orange','red')"
)

SUBSCRIPTIONS = {
    "tsunami-centre": "tsunami OR (magnitude >= 6.0 AND depth < 70)",
    "night-desk": "magnitude >= 4.5 AND at >= TIMESTAMP'2018-02-05 22:00:00'",
    "los-angeles": "within(1.5, longitude, -118.24, latitude, 34.05) AND magnitude > 1",
    "anchorage": "within(2, longitude, -149.9, latitude, 61.2) AND kind = 'earthquake'",
    "california": "region = 'CA' AND magnitude BETWEEN 2 AND 10",
    "islands": "region IN ('Hawaii', 'Puerto Rico', 'U.S. Virgin Islands', 'Guam', 'Northern Mariana Islands')",
    "new-somewhere": "region LIKE 'New %'",
    "deep-earth": "depth > 150",
    "felt": "felt >= 10 OR alert <> 'green'",
    "mines": "kind <> 'earthquake'",
    "quality": "stations IS NULL OR NOT (stations >= 5 OR status = 'reviewed')",
    "everything": "TRUE",
}


def earthquakes() -> list[dict[str, Any]]:
    """The example events."""
    text = resources.files("thatch.cli").joinpath("example_data/earthquakes.json").read_bytes()
    return [_event(feature) for feature in msgspec.json.decode(text)["features"]]


def _event(feature: dict[str, Any]) -> dict[str, Any]:
    about = feature["properties"]
    longitude, latitude, depth = feature["geometry"]["coordinates"]
    place, _, region = about["place"].rpartition(", ")
    return {
        "place": about["place"],
        "region": region if place else None,
        "magnitude": about["mag"],
        "depth": depth,
        "longitude": longitude,
        "latitude": latitude,
        "at": datetime.fromtimestamp(about["time"] / 1000, UTC),
        "kind": about["type"],
        "status": about["status"],
        "tsunami": bool(about["tsunami"]),
        "felt": about["felt"],
        "stations": about["nst"],
        "alert": about["alert"],
    }


def run() -> dict[str, Any]:
    """Match every event against every subscription; what the report needs."""
    events = earthquakes()
    start = time.perf_counter()
    regions = {name: SPACE.where(clause) for name, clause in SUBSCRIPTIONS.items()}
    compiled = time.perf_counter()
    batch = {attribute.name: [event[attribute.name] for event in events] for attribute in SPACE}
    columns = SPACE.encode_batch(batch)
    found = {name: region.contains_points(columns) for name, region in regions.items()}
    done = time.perf_counter()
    strongest = sorted(range(len(events)), key=lambda row: -events[row]["magnitude"])
    return {
        "events": len(events),
        "compile_ms": (compiled - start) * 1000,
        "match_ms": (done - compiled) * 1000,
        "subscriptions": [_row(name, regions[name], found[name], strongest, events) for name in SUBSCRIPTIONS],
        "strongest": [
            {
                "event": f"M {events[row]['magnitude']:.1f} {events[row]['place']}",
                "wanted_by": [name for name in SUBSCRIPTIONS if found[name][row]],
            }
            for row in strongest[:6]
        ],
    }


def _row(
    name: str,
    region: Region,
    found: np.ndarray[Any, np.dtype[np.bool_]],
    strongest: list[int],
    events: list[dict[str, Any]],
) -> dict[str, Any]:
    best = next((row for row in strongest if found[row]), None)
    return {
        "subscription": name,
        "where": SUBSCRIPTIONS[name],
        "region": region.to_sql(),
        "events": int(found.sum()),
        "strongest": None if best is None else f"M {events[best]['magnitude']:.1f} {events[best]['place']}",
    }


def shown(result: dict[str, Any]) -> str:
    """The result as text for a terminal."""
    rows = [["subscription", "events", "strongest", "where"]]
    for row in result["subscriptions"]:
        rows.append([row["subscription"], f"{row['events']:,}", row["strongest"] or "-", row["where"]])
    lines = [f"{result['events']:,} earthquakes of one week, {len(SUBSCRIPTIONS)} subscriptions\n", table(rows), ""]
    lines.append("Who wants the strongest ones?")
    lines += [f"  {each['event']}: {', '.join(each['wanted_by'])}" for each in result["strongest"]]
    lines.append(
        f"\nClauses compiled in {result['compile_ms']:.0f} ms, events read and matched in {result['match_ms']:.0f} ms "
        "(the first run also compiles the kernels)."
    )
    return "\n".join(lines)
