"""What was learnt of events and subscriptions, and one page of plots that shows it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from thatch.grid.grid import BITS
from thatch.learning.regions import NO_EVENT, NO_SUBSCRIPTION, OneSidedRegion, Places
from thatch.learning.sketch import Sketch
from thatch.reports import page
from thatch.space.axis import LabelledAxis
from thatch.space.space import Space

BINS, LISTED = 12, 20
KINDS = {NO_SUBSCRIPTION: "Events that nobody wants", NO_EVENT: "Subscriptions where no event is"}
SELECTIVITY = pa.schema(
    [
        ("attribute", pa.string()),
        ("share", pa.float64()),
        ("bounded", pa.float64()),
        ("place", pa.int32()),
        ("left", pa.float64()),
    ]
)
CELLS = pa.schema([("attribute", pa.string()), ("cell", pa.int32()), ("begins", pa.string())])
REGIONS = pa.schema(
    [(name, pa.string() if name in ("kind", "where", "words") else pa.int64()) for name in OneSidedRegion._fields]
)

Rows = TypeVar("Rows")  # an Arrow table, or a DataFrame of Spark
Listed = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Learned(Generic[Rows]):
    """What events and subscriptions look like, in tables: Arrow's, or Spark's DataFrames. `page` shows them, `hilbert`
    are options of the cover engine and of a `Grid`."""

    space: Space
    events: int
    subscriptions: int
    attributes: list[str]  # to be indexed, the best first
    boundaries: dict[str, list[Any]]  # where cells begin, by attribute
    selectivity: Rows  # attribute, share, bounded, place, left
    cells: Rows  # attribute, cell, begins
    matches: Rows  # id, matches, share; of all events
    pairs: Rows  # one, other, both, either, similarity
    regions: Rows  # kind, where, words, events, sampled, unwanted, subscriptions
    places: Places
    find_phi: Callable[[], Rows]

    @cached_property
    def phi(self) -> Rows:
        """`id`, `events`, `root`, `phi`; of the sample. Who covers whom is found out when somebody looks at it."""
        return self.find_phi()

    def page(self) -> str:
        """One page of plots, in HTML that needs nothing but itself. Counts all matches."""
        return page.page(
            "What events and subscriptions look like",
            page.paragraph(f"{self.events:,} events, {self.subscriptions:,} subscriptions."),
            *_selectivity(listed(self.selectivity), self.attributes),
            *_boundaries(self.attributes, self.boundaries),
            *_matches(listed(self.matches)),
            *_similarity(listed(self.phi), listed(self.pairs)),
            *_places(self.places),
            *_regions(listed(self.regions), self.events, self.subscriptions),
        )

    def hilbert(self, bits: int = BITS) -> dict[str, Any]:
        """Attributes and cells for `SubscriptionTable(space, "hilbert", **learned.hilbert())`. Strings have no cells
        of their own here: between strings that nobody mentions no cell can begin."""
        room = (1 << bits) - 2
        cells = {}
        for name in self.attributes:
            at = self.space.index(name)
            if at is not None and not isinstance(self.space.attributes[at].axis, LabelledAxis):
                starts = self.boundaries[name]
                step = max(1, math.ceil(len(starts) / room))
                cells[name] = starts[step - 1 :: step]
        return {"attributes": list(self.attributes), "bits": bits, "cells": cells}


def listed(rows: Any) -> Listed:
    """The rows of a table, of either engine."""
    table = rows if isinstance(rows, pa.Table) else rows.toArrow()
    return list(table.to_pylist())


def selectivity_table(sketch: Sketch) -> pa.Table:
    return pa.Table.from_pylist([each._asdict() for each in sketch.selectivity], SELECTIVITY)


def cells_table(sketch: Sketch) -> pa.Table:
    starts = [
        {"attribute": name, "cell": at, "begins": str(value)}
        for name, own in sketch.boundaries.items()
        for at, value in enumerate(own, 1)
    ]
    return pa.Table.from_pylist(starts, CELLS)


def regions_table(regions: Sequence[OneSidedRegion]) -> pa.Table:
    return pa.Table.from_pylist([each._asdict() for each in regions], REGIONS)


def region_sentence(row: Mapping[str, Any], events: int, subscriptions: int) -> str:
    """A region that has events and no subscription, or the reverse, as a sentence. The totals are of all.

    >>> row = {"kind": "no subscription", "words": "price from 10 to 80", "events": 1204, "subscriptions": 0}
    >>> region_sentence(row, 38_000, 7)
    '1,204 events (3.2 %) that nobody wants: price from 10 to 80'
    """
    if row["kind"] == NO_SUBSCRIPTION:
        verb = "that nobody wants"
        return f"{counted_share(row['events'], events, 'event')} {verb}: {row['words']}"
    verb = "looks where no event is" if row["subscriptions"] == 1 else "look where no event is"
    return f"{counted_share(row['subscriptions'], subscriptions, 'subscription')} {verb}: {row['words']}"


def rest_sentence(rows: Listed, events: int) -> str:
    """How much regions of one kind hold that are not named."""
    places = f"{len(rows):,} more such region{'' if len(rows) == 1 else 's'}"
    if rows[0]["kind"] == NO_SUBSCRIPTION:
        return f"and {places} with {counted_share(sum(row['events'] for row in rows), events, 'event')}"
    most = rows[0]["subscriptions"]
    if len(rows) == 1:
        return f"and {places} with {most:,} subscription{'' if most == 1 else 's'}"
    return f"and {places} with at most {most:,} subscription{'' if most == 1 else 's'} each"


def counted_share(count: int, total: int, what: str) -> str:
    share = count / max(total, 1)
    percent = f"{share:.1%}" if share == 0 or share >= 0.0005 else "< 0.1%"
    return f"{count:,} {what}{'' if count == 1 else 's'} ({percent.replace('%', ' %')})"


def _selectivity(selectivity: Listed, attributes: Sequence[str]) -> list[str]:
    rows = sorted(selectivity, key=lambda row: row["place"])
    return [
        page.heading("Which attributes tell subscriptions apart"),
        page.paragraph(
            "Of all pairs of an event and a subscription, the share that each attribute leaves on its own. The less it "
            f"leaves, the better it is to index. To be indexed, the best first: {', '.join(attributes)}."
        ),
        page.bars([row["attribute"] for row in rows], [row["share"] for row in rows]),
        page.paragraph("The same jointly, one attribute after the other:"),
        page.bars([f"… and {row['attribute']}" for row in rows], [row["left"] for row in rows]),
    ]


def _boundaries(attributes: Sequence[str], boundaries: Mapping[str, Sequence[Any]]) -> list[str]:
    parts = [
        page.heading("Where cells should begin"),
        page.paragraph("So that each cell holds as many events, of the attributes to be indexed."),
    ]
    rows = []
    for name in attributes:
        starts = list(boundaries[name])
        step = max(1, len(starts) // 8)
        rows.append([name, len(starts) + 1, ", ".join(map(str, starts[step // 2 :: step][:8]))])
    return [*parts, page.table(["attribute", "cells", "some of them begin at"], rows)]


def _matches(matches: Listed) -> list[str]:
    counts = np.array([row["matches"] for row in matches], np.int64)
    most = int(counts.max()) if len(counts) else 0
    edges = sorted({0, 1, *(int(10**power) for power in np.arange(0.5, 12.1, 0.5) if 10**power <= most), most + 1})
    held, _ = np.histogram(counts, edges)
    top = sorted(matches, key=lambda row: (-row["matches"], str(row["id"])))[:LISTED]
    return [
        page.heading("How often subscriptions match"),
        page.paragraph("How many subscriptions want so many of the events."),
        page.histogram(held.tolist(), [f"{edge:,}" for edge in edges]),
        page.paragraph("Those that match most:"),
        page.bars([str(row["id"]) for row in top], [row["matches"] for row in top]),
    ]


def _similarity(phi: Listed, pairs: Listed) -> list[str]:
    roots = [row["phi"] for row in phi if row["root"]]
    held, edges = np.histogram(roots, BINS, (0.0, 1.0))
    best = sorted(pairs, key=lambda row: (-row["similarity"], row["one"], row["other"]))[:LISTED]
    rows = [[row["one"], row["other"], row["both"], row["similarity"]] for row in best]
    return [
        page.heading("How alike subscriptions are"),
        page.paragraph(
            "phi of subscriptions that no other covers: the share of their events that somebody else wants, too. Where "
            "it is high, little is spared by withdrawing one."
        ),
        page.histogram(held.tolist(), [f"{edge:.2f}" for edge in edges]),
        page.paragraph("The most similar pairs of those that match most, by events that both want of those of either:"),
        page.table(["one", "other", "events of both", "similarity"], rows),
    ]


def _places(where: Places) -> list[str]:
    across, upward = where.attributes[0], where.attributes[1] if len(where.attributes) > 1 else ""
    return [
        page.heading("Where events are"),
        page.heat(where.events.tolist(), across, upward, where.clauses),
        page.heading("Where subscriptions are"),
        page.heat(where.subscriptions.tolist(), across, upward, where.clauses),
    ]


def _regions(regions: Listed, events: int, subscriptions: int) -> list[str]:
    parts = []
    for kind, title in KINDS.items():
        own = [row for row in regions if row["kind"] == kind]
        column, total = ("events", events) if kind == NO_SUBSCRIPTION else ("subscriptions", subscriptions)
        rows = [[row["words"], row[column], f"{row[column] / max(total, 1):.1%}", row["where"]] for row in own[:LISTED]]
        parts.append(page.heading(title))
        parts.append(page.table(["region", column, "share", "clause"], rows))
        if own[LISTED:]:
            parts.append(page.paragraph(rest_sentence(own[LISTED:], events)))
    return parts
