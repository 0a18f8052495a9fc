"""Where events are and where subscriptions are: counts by cell, and the cells that have one and lack the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Places:
    """Counts [cells of the first attribute, cells of the second]; of one attribute, the second has one cell."""

    schema = "kind string, where string, events bigint, sampled bigint, unwanted bigint, subscriptions bigint"

    attributes: list[str]
    clauses: list[list[str]]
    events: Any
    sampled: Any
    unwanted: Any  # sampled events that nobody wants
    subscriptions: Any

    def rows(self) -> list[tuple[str, str, int, int, int, int]]:
        """Cells that lack one or the other, those with most of the rest first."""
        found = []
        for at in np.ndindex(self.events.shape):
            events, wanted = int(self.events[at]), int(self.subscriptions[at])
            if bool(events) != bool(wanted):
                kind, where = "no subscription" if events else "no event", self.clauses[at[0]][at[1]]
                found.append((kind, where, events, int(self.sampled[at]), int(self.unwanted[at]), wanted))
        return sorted(found, key=lambda row: (row[0], -row[2], -row[5], row[1]))
