"""What was learnt, as one page of plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from thatch.reports import page
from thatch.reports.places import Places

BINS, LISTED = 12, 20


class Shown(NamedTuple):
    """What the page is made of: rows of tables that are small, or counted."""

    events: int
    subscriptions: int
    attributes: Sequence[str]
    boundaries: Mapping[str, Sequence[Any]]
    selectivity: Sequence[Mapping[str, Any]]
    matches: Sequence[Mapping[str, Any]]
    phi: Sequence[Mapping[str, Any]]
    pairs: Sequence[Mapping[str, Any]]
    places: Places


def shown_page(shown: Shown) -> str:
    return page.page(
        "What events and subscriptions look like",
        page.paragraph(f"{shown.events:,} events, {shown.subscriptions:,} subscriptions."),
        *_selectivity(shown),
        *_boundaries(shown),
        *_matches(shown),
        *_similarity(shown),
        *_places(shown.places),
    )


def _selectivity(shown: Shown) -> list[str]:
    rows = sorted(shown.selectivity, key=lambda row: row["place"])
    return [
        page.heading("Which attributes tell subscriptions apart"),
        page.paragraph(
            "Of all pairs of an event and a subscription, the share that each attribute leaves on its own. The less it "
            f"leaves, the better it is to index. To be indexed, the best first: {', '.join(shown.attributes)}."
        ),
        page.bars([row["attribute"] for row in rows], [row["share"] for row in rows]),
        page.paragraph("The same jointly, one attribute after the other:"),
        page.bars([f"… and {row['attribute']}" for row in rows], [row["left"] for row in rows]),
    ]


def _boundaries(shown: Shown) -> list[str]:
    parts = [
        page.heading("Where cells should begin"),
        page.paragraph("So that each cell holds as many events, of the attributes to be indexed."),
    ]
    rows = []
    for name in shown.attributes:
        starts = list(shown.boundaries[name])
        step = max(1, len(starts) // 8)
        rows.append([name, len(starts) + 1, ", ".join(map(str, starts[step // 2 :: step][:8]))])
    return [*parts, page.table(["attribute", "cells", "some of them begin at"], rows)]


def _matches(shown: Shown) -> list[str]:
    counts = np.array([row["matches"] for row in shown.matches], np.int64)
    most = int(counts.max()) if len(counts) else 0
    edges = sorted({0, 1, *(int(10**power) for power in np.arange(0.5, 12.1, 0.5) if 10**power <= most), most + 1})
    held, _ = np.histogram(counts, edges)
    top = sorted(shown.matches, key=lambda row: (-row["matches"], str(row["id"])))[:LISTED]
    return [
        page.heading("How often subscriptions match"),
        page.paragraph("How many subscriptions want so many of the events."),
        page.histogram(held.tolist(), [f"{edge:,}" for edge in edges]),
        page.paragraph("Those that match most:"),
        page.bars([str(row["id"]) for row in top], [row["matches"] for row in top]),
    ]


def _similarity(shown: Shown) -> list[str]:
    roots = [row["phi"] for row in shown.phi if row["root"]]
    held, edges = np.histogram(roots, BINS, (0.0, 1.0))
    rows = [[row["one"], row["other"], row["both"], row["similarity"]] for row in shown.pairs]
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
    rows = where.rows()
    lacking = [row for row in rows if row[0] == "no subscription"]
    idle = [row for row in rows if row[0] == "no event"]
    columns = ["where", "events", "subscriptions"]
    return [
        page.heading("Where events are"),
        page.heat(where.events.tolist(), across, upward, where.clauses),
        page.heading("Where subscriptions are"),
        page.heat(where.subscriptions.tolist(), across, upward, where.clauses),
        page.heading("Events and no subscription"),
        page.table(columns, [[r[1], r[2], r[5]] for r in lacking[:LISTED]], len(lacking) - LISTED),
        page.heading("Subscriptions and no event"),
        page.table(columns, [[r[1], r[2], r[5]] for r in idle[:LISTED]], len(idle) - LISTED),
    ]
