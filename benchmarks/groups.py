"""Passive subscriptions below active hits: one index of all, two indexes, or lists below each active one (monte-carlo,
algorithm 5 and its multi-level form). Batches of events, of which some or nearly none are wanted by anybody.

    python -m benchmarks.groups
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from benchmarks import interleaved, report
from benchmarks.cover import space_of, workloads
from thatch import SubscriptionTable
from thatch.jit import kernel
from thatch.matching import TreeMatcher
from thatch.matching.groups import Groups
from thatch.matching.tree import sort_unique_pairs
from thatch.space.arrays import Ints
from thatch.space.axis import Coordinates

EVENTS = 100_000


@kernel
def below_hits(rows: Ints, hits: Ints, starts: Ints, lists: Ints, low: Ints, high: Ints, points: Ints) -> Any:
    """For each (event, active) pair the passive ones listed below that hold the event."""
    count = 0
    for pair in range(len(rows)):
        count += starts[hits[pair] + 1] - starts[hits[pair]]
    found = np.empty((2, count), np.int64)
    kept = 0
    for pair in range(len(rows)):
        row = rows[pair]
        for place in range(starts[hits[pair]], starts[hits[pair] + 1]):
            holds = True
            for axis in range(points.shape[1]):
                value = points[row, axis]
                holds &= (low[lists[place], axis] <= value) & (value <= high[lists[place], axis])
            if holds:
                found[0, kept], found[1, kept] = row, lists[place]
                kept += 1
    return found[:, :kept]


def run(scale: float = 1.0) -> list[dict[str, Any]]:
    rows = []
    for name in ("3-D a=0", "4-D a=0", "5-D a=1"):
        space, (low, high) = workloads(scale)[name]
        names = [attribute.name for attribute in space.attributes]
        table = SubscriptionTable(space)
        table.subscribe_many(
            list(range(len(low))),
            low={each: low[:, axis] for axis, each in enumerate(names)},
            high={each: high[:, axis] for axis, each in enumerate(names)},
        )
        for wanted in (True, False):
            rows.append({"workload": name, **compared(table, low, high, wanted, int(EVENTS * scale))})
    return rows


def compared(table: SubscriptionTable, low: Ints, high: Ints, wanted: bool, count: int) -> dict[str, Any]:
    """`wanted`: uniform events; else uniform over a space three times as wide: nearly none is wanted by anybody."""
    d = low.shape[1]
    space = space_of(d, 3000) if not wanted else table.space
    passive = [int(number) for number in table if not table[number].active]
    active = [int(number) for number in table if table[number].active]
    together, groups = TreeMatcher(space), Groups(space, apart=True)
    together.add_many(np.arange(len(low)), (low, high))
    for members, is_active in ((active, True), (passive, False)):
        groups.add_many(np.array(members), (low[members], high[members]), is_active)
    below: dict[int, list[int]] = {number: [] for number in range(len(low))}
    for number in passive:
        for name in table[number].certificate or ():
            below[int(name)].append(number)
    starts = np.cumsum([0, *(len(each) for each in below.values())])
    lists = np.array([number for each in below.values() for number in each], np.int64)
    points = np.random.default_rng(7).integers(space.low[0], space.high[0] + 1, (max(count, 64), d))
    columns: list[Coordinates] = [np.ascontiguousarray(points[:, axis]) for axis in range(d)]
    upper = groups.active.view()

    def listed() -> Any:
        rows, hits = upper.match_points(columns)
        more = below_hits(rows, hits, starts, lists, low, high, points)
        return sort_unique_pairs(np.concatenate((rows, more[0])), np.concatenate((hits, more[1])), len(points))

    whole, apart = together.view(), groups.view()
    ways = {
        "one index": lambda: whole.match_points(columns),
        "two indexes": lambda: apart.match_points(columns),
        "lists below": listed,
    }
    expected = ways["one index"]()
    for way in ways.values():
        assert all(np.array_equal(one, other) for one, other in zip(way(), expected, strict=True))
    seconds = interleaved(ways)
    return {
        "active": len(active),
        "passive": len(passive),
        "events with a hit": round(len(np.unique(expected[0])) / len(points), 3),
        "matches per event": round(len(expected[0]) / len(points), 2),
        **{f"{way}, ns per event": seconds[way] / len(points) * 1e9 for way in ways},
        "one / two": seconds["one index"] / seconds["two indexes"],
    }


if __name__ == "__main__":
    report("match_groups", run(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0))
