"""Geofences: circles and boxes on a map, a week of real earthquakes, and positions that are not known exactly.

Run it: `python examples/geofences.py`
"""

from __future__ import annotations

from thatch import Region, Space, SubscriptionTable
from thatch.cli.demo_earthquakes import earthquakes
from thatch.cover import Covered, Uncovered

SPACE = Space.parse(
    "longitude double not null -180..180, latitude double not null -90..90, magnitude double not null -2..10"
)

# Degrees are plain numbers here: a circle is round on the map, not on the globe.
FENCES = {
    "los-angeles": "within(1.5, longitude, -118.24, latitude, 34.05) AND magnitude >= 1",
    "downtown": "within(0.5, longitude, -118.24, latitude, 34.05) AND magnitude >= 2",  # inside the one above
    "san-francisco": "within(1.5, longitude, -122.42, latitude, 37.77)",
    "anchorage": "within(2, longitude, -149.9, latitude, 61.2) AND magnitude >= 2",
    "taiwan": "longitude BETWEEN 119 AND 123 AND latitude BETWEEN 21 AND 26",
    "california-north": "longitude BETWEEN -125 AND -114 AND latitude BETWEEN 36 AND 42 AND magnitude >= 1",
    "california-south": "longitude BETWEEN -125 AND -114 AND latitude BETWEEN 32 AND 36 AND magnitude >= 1",
    "anything-strong": "magnitude >= 6",
}


def somewhere(longitude: float, latitude: float, error: float, magnitude: float) -> Region:
    """An event whose position is only known to lie in a box."""
    return SPACE.where(
        f"longitude BETWEEN {longitude - error}D AND {longitude + error}D AND "
        f"latitude BETWEEN {latitude - error}D AND {latitude + error}D AND magnitude = {magnitude}D"
    )


def main() -> None:
    table = SubscriptionTable(SPACE)
    for id, clause in FENCES.items():
        table.subscribe(id, clause)
    events = earthquakes()
    columns = {name: [event[name] for event in events] for name in ("longitude", "latitude", "magnitude")}
    found: dict[str, list[int]] = {id: [] for id in FENCES}
    for pair in table.match_batch(columns).to_pylist():
        found[pair["subscription_id"]].append(pair["event_index"])

    print(f"{len(events):,} earthquakes of one week, {len(table)} fences")
    for id, rows in found.items():
        strongest = max((events[row] for row in rows), key=lambda event: event["magnitude"], default=None)
        best = "-" if strongest is None else f"M {strongest['magnitude']:.1f} {strongest['place']}"
        print(f"  {id:<17}{len(rows):>5}  strongest: {best}")
    for each in table.values():
        if not each.active:
            print(table.explain(each.id))

    reports = {
        "near Pasadena, to 0.1 degrees": somewhere(-118.1, 34.2, 0.1, 3.0),
        "on the border of the two halves of California": somewhere(-119.0, 36.0, 0.2, 3.0),
        "off the coast of Taiwan, to 1 degree": somewhere(122.8, 24.0, 1.0, 4.5),
    }
    for what, region in reports.items():
        answer = table.match_region(region)
        print(f"\nA report from {what}")
        print(f"  certainly wanted by {answer.certain or 'nobody'}, possibly by {answer.possible}")
        if isinstance(answer.jointly, Covered):
            print(f"  wherever it was, one of these wants it: {list(answer.jointly.certificate)}")
        elif isinstance(answer.jointly, Uncovered):
            place = SPACE.decode(answer.jointly.witness)
            print(f"  nobody wants it if it was at {place['longitude']}, {place['latitude']}")


if __name__ == "__main__":
    main()
