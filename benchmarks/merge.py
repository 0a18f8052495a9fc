"""Claim: merging tells a neighbour a fraction of the regions; what it adds is small where the measure fits the events.

Workloads of benchmarks/cover.py (the negative-space setting and the monte-carlo comparison), and ClassBench rules. Each
is merged all at once, without covering before and after exact covering (only what is active is merged): perfectly, and
within budgets, of value widths or of 2,000 sampled events. `false positives` is the share of other random events, among
those in what is told, that no subscription wants; a budget bounds what one merger adds to its own members. Events are
uniform; those of ClassBench are drawn from the ends of rules, since uniform ones would hit nothing: there volume says
little, and the sample more.

`intervals` counts the intervals of all sides told, as a share of those of `none`: a perfect merger may have many.
`us` is the time for each subscription that is merged; `un-merge us` that for each of 100 that leave and come back, both
in one.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import report
from benchmarks.classbench import SPACE, read_rules, rule_sets
from benchmarks.cover import DOMAIN, WIDE_DOMAIN, Boxes, comparison_boxes, space_of, zipf_boxes
from thatch import Region, Space
from thatch.cover import ActiveSet, region_of_box
from thatch.merge.merge import MergeSet

POLICIES = ((0.0, "-"), (0.05, "width"), (0.2, "width"), (1.0, "width"), (0.05, "events"), (0.2, "events"))
EVENTS = 20_000
SAMPLED = 2_000  # of them; false positives are counted among the others
Points = NDArray[np.int64]


def workloads(sizes: list[int]) -> Iterator[tuple[str, Space, Boxes, Points]]:
    """Each with events."""
    draw = np.random.default_rng(7)
    for count in sizes:
        for attributes, exponent in ((3, 0), (5, 1)):
            boxes = zipf_boxes(count, attributes, exponent, seed=1)
            events = draw.integers(0, DOMAIN + 1, (EVENTS, attributes))
            yield f"{count} zipf, {attributes}-D a={exponent}", space_of(attributes, DOMAIN), boxes, events
        for attributes in (10, 20):
            boxes = comparison_boxes(count, attributes, seed=1)
            events = draw.integers(0, WIDE_DOMAIN + 1, (EVENTS, attributes))
            yield f"{count} comparison, {attributes}-D", space_of(attributes, WIDE_DOMAIN), boxes, events
    for name, path in rule_sets().items():
        low, high = read_rules(path)
        if len(low) <= max(sizes):
            ends = np.concatenate([low, high])
            events = np.stack([draw.choice(ends[:, axis], EVENTS) for axis in range(ends.shape[1])], axis=1)
            yield f"{len(low)} rules, {name}", SPACE, (low, high), events


def held_by(regions: list[Region], events: Points) -> NDArray[np.bool_]:
    """Which events are in the union. Those found are not asked again."""
    found = np.zeros(len(events), np.bool_)
    for region in regions:
        left = np.flatnonzero(~found)
        columns = [np.ascontiguousarray(events[left, axis]) for axis in range(events.shape[1])]
        found[left] = region.contains_points(columns)
    return found


def intervals(regions: Iterable[Region]) -> int:
    """What it takes to write regions down."""
    return sum(len(side) for region in regions for term in region.terms for _, side in term.sides)


def rows_of(name: str, space: Space, boxes: Boxes, events: Points) -> Iterator[dict[str, Any]]:
    everyone = {
        number: region_of_box(*each, space)
        for number, each in enumerate(zip(boxes[0].tolist(), boxes[1].tolist(), strict=True))
    }
    told = ActiveSet(space)
    told.subscribe_many(list(everyone), list(everyone.values()))
    active = {number: everyone[number] for number in told.active}
    sample = {attribute.name: events[:SAMPLED, axis] for axis, attribute in enumerate(space.attributes)}
    events = events[SAMPLED:]
    wanted = held_by(list(active.values()), events)
    for covering, regions in (("no", everyone), ("exact", active)):
        row: dict[str, Any] = {"workload": name, "covering": covering, "none": len(regions)}
        size = intervals(regions.values())
        for budget, measure in POLICIES:
            start = time.perf_counter()
            merging = MergeSet(space, budget, sample if measure == "events" else None)
            merging.update(regions)
            taken = time.perf_counter() - start
            now = merging.regions
            reached = held_by(list(now.values()), events)
            if (wanted & ~reached).any():
                raise AssertionError(f"{name}, budget {budget}: an event that somebody wants is not told")
            leaving = random.Random(5).sample(sorted(regions), min(100, len(regions)))
            start = time.perf_counter()
            for id in leaving:
                merging.discard(id)
                merging.add(id, regions[id])
            back = time.perf_counter() - start
            false = (reached & ~wanted).sum() / max(1, reached.sum())
            yield {
                **row,
                "budget": "perfect" if budget == 0 else budget,
                "by": measure,
                "told": len(now),
                "of none": f"{len(now) / len(regions):.1%}",
                "intervals": f"{intervals(now.values()) / size:.1%}",
                "false positives": f"{false:.1%}",
                "us": taken / len(regions) * 1e6,
                "un-merge us": back / len(leaving) * 1e6,
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000], help="numbers of subscriptions")
    options = parser.parse_args()
    rows = [row for workload in workloads(options.sizes) for row in rows_of(*workload)]
    report("merge", rows)


if __name__ == "__main__":
    main()
