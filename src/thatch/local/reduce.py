"""Which subscriptions are redundant, and which ones prove it, in this process.

Broad ones first, ties by id (cover/breadth.py): a subscription is redundant if the union of those before it covers it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from thatch.cover.active_set import ActiveSet
from thatch.cover.breadth import breadth
from thatch.errors import CallerError, check_on_error
from thatch.local.files import Format
from thatch.local.inferred import checked_space
from thatch.local.match import raise_bad_events
from thatch.local.sources import events_of
from thatch.local.subscriptions import Compiled, SubscriptionRows, compiled, raise_wrong, subscriptions_of, warn_wrong
from thatch.merge.merge import Merger, merged
from thatch.merge.weighing import budget_of, share_of_events, share_of_values
from thatch.region.region import Region
from thatch.space.axis import Coordinates
from thatch.space.space import Space

EVENTS = 10_000  # that mergers are weighed with
TOGETHER = 2_048  # subscriptions that are merged at once: the cost grows with the square


def reduce(
    subscriptions: Any,
    space: Space | None = None,
    *,
    merge: float | None = None,
    events: Any = None,
    on_error: str = "raise",
) -> pa.Table:
    """Which subscriptions the others make redundant: `id`, `status` ('active' or 'passive'), `covered_by`.

    The active ones want what all want; `covered_by` of a passive one are active ones whose union holds it, and it is
    NULL for an active one. Subscriptions and events are as for `match`; the space is taken from the events if none is
    given. `merge` is the share that a merger of active ones may add to what they want, 0 for perfect mergers: by
    values, and given `events` also by a sample of them. More columns then: `merger`, the first of those that are
    merged; and in its row `merged_where`, the clause that says them all, `merged`, how many they are, `added` and
    `added_events`.

    >>> from thatch import Space
    >>> space = Space.parse("price int not null 0..100")
    >>> found = reduce({"a": "price < 60", "b": "price >= 50", "c": "price BETWEEN 45 AND 65"}, space)
    >>> found.to_pylist()[2]
    {'id': 'c', 'status': 'passive', 'covered_by': ['a', 'b']}
    """
    budget = budget_of(merge)
    if events is not None and space is not None and budget is None:
        raise CallerError("events weigh mergers: give merge=, the share that a merger may add")
    work = LocalReduction.of(subscriptions, space, events, on_error)
    work.check_clauses()
    return work.result(budget)


@dataclass
class LocalReduction:
    """A reduction that is about to be done."""

    rows: SubscriptionRows
    compiled: Compiled
    space: Space
    events: Any
    format: Format
    skip: bool

    @classmethod
    def of(
        cls,
        subscriptions: Any,
        space: Space | None,
        events: Any,
        on_error: str,
        format: Format | None = None,
        time_zone: str = "UTC",
    ) -> LocalReduction:
        check_on_error(on_error)
        format = format or Format()
        rows = subscriptions_of(subscriptions, format)
        source = None if events is None else events_of(events, format)
        space = checked_space(space, source, rows, time_zone, on_error)
        return cls(rows, compiled(rows, space), space, events, format, on_error == "skip")

    def check_clauses(self) -> None:
        """Wrong clauses are an error, or left out with a warning."""
        if self.compiled.wrong and not self.skip:
            raise_wrong(self.compiled.wrong)
        warn_wrong(len(self.compiled.wrong))

    @property
    def regions(self) -> dict[Any, Region]:
        return dict(zip(self.compiled.ids.to_pylist(), self.compiled.regions, strict=True))

    def certificates(self) -> dict[Any, tuple[Any, ...]]:
        """Of those that are redundant: the active ones that prove it, none if no event can match it."""
        regions, found = self.regions, ActiveSet(self.space)
        full = [id for id, region in regions.items() if not region.is_empty]
        breadths = {id: breadth(regions[id]) for id in full}
        full.sort(key=lambda id: (-breadths[id], id))
        found.subscribe_many(full, [regions[id] for id in full])
        return {id: () for id, region in regions.items() if region.is_empty} | dict(found.passive)

    def result(self, budget: float | None) -> pa.Table:
        passive, ids, kind = self.certificates(), self.compiled.ids.to_pylist(), self.compiled.ids.type
        columns: dict[str, pa.Array] = {
            "id": self.compiled.ids,
            "status": pa.array(["passive" if id in passive else "active" for id in ids], pa.string()),
            "covered_by": pa.array([list(passive[id]) if id in passive else None for id in ids], pa.list_(kind)),
        }
        if budget is None:
            return pa.table(columns)
        found, measured = self.mergers({id: region for id, region in self.regions.items() if id not in passive}, budget)
        heads = [found[id] if id in found and found[id].members[0] == id else None for id in ids]
        shares = [None if each is None else measured.get(each.members[0]) for each in heads]
        columns["merger"] = pa.array([found[id].members[0] if id in found else None for id in ids], kind)
        columns["merged_where"] = pa.array([each and each.region.to_sql() for each in heads], pa.string())
        columns["merged"] = pa.array([each and len(each.members) for each in heads], pa.int32())
        columns["added"] = pa.array([each and each.added for each in heads], pa.float64())
        columns["added_events"] = pa.array(shares, pa.float64())
        return pa.table(columns)

    def mergers(self, active: Mapping[Any, Region], budget: float) -> tuple[dict[Any, Merger], dict[Any, float]]:
        """The merger of each that is merged, and what mergers add by events, by their first member."""
        found: dict[Any, Merger] = {}
        measured: dict[Any, float] = {}
        columns, ids = self._sample(), sorted(active)
        for place in range(0, len(ids), TOGETHER):
            some = {id: active[id] for id in ids[place : place + TOGETHER]}
            for each in merged(some, self.space, budget):
                if len(each.members) == 1:
                    continue
                if columns is not None:
                    measured[each.members[0]] = share_of_events(each, some, columns)
                if measured.get(each.members[0], 0.0) <= budget:
                    found.update(dict.fromkeys(each.members, replace(each, added=share_of_values(each, some))))
        return found, measured

    def _sample(self) -> list[Coordinates] | None:
        """Some of the events, or all if they are few."""
        if self.events is None:
            return None
        source, space = events_of(self.events, self.format), self.space
        total = sum(batch.rows.num_rows for batch in source.batches(space))
        few = total <= EVENTS
        chosen = np.arange(total) if few else np.array(sorted(Random(1).sample(range(total), EVENTS)))
        parts, first = [space.encode_batch(source.value_schema(space).empty_table())], 0
        for batch in source.batches(space):
            last = first + batch.rows.num_rows
            own = chosen[np.searchsorted(chosen, first) : np.searchsorted(chosen, last)] - first
            own = own[~np.isin(own, list(batch.wrong))] if self.skip else own
            columns, good = space.encode_valid(batch.rows.take(pa.array(own)))
            wrong = batch.wrong | dict.fromkeys(own[~good].tolist(), "")
            if (wrong or batch.malformed) and not self.skip:
                raise_bad_events(batch, wrong, space)
            parts.append(columns)
            first = last
        return [np.concatenate(each) for each in zip(*parts, strict=True)]
