"""An audit of a set of rules in this process: reduced, and described in words (reports/audit.py)."""

from __future__ import annotations

from typing import Any

from thatch.local.match import Match
from thatch.local.reduce import LocalReduction
from thatch.local.sources import events_of
from thatch.local.subscriptions import SubscriptionRows
from thatch.merge.weighing import budget_of
from thatch.reports.audit import Audit, audited, duplicates
from thatch.space.space import Space


def audit(
    subscriptions: Any,
    space: Space | None = None,
    *,
    merge: float | None = 0.0,
    events: Any = None,
    on_error: str = "raise",
) -> Audit:
    """Which rules are redundant and why, which could be merged (`merge` is the share that a merger may add; None: no
    mergers), and what it saves; with `events`, also how many matches less there are, and mergers are weighed by them.
    Rules and events are as for `match`; the space is taken from the events if none is given."""
    budget = budget_of(merge)
    work = LocalReduction.of(subscriptions, space, events, on_error)
    work.check_clauses()
    return audit_of(work, budget)


def audit_of(work: LocalReduction, budget: float | None) -> Audit:
    regions, passive = work.regions, work.certificates()
    mergers = {}
    if budget is not None:
        found, measured = work.mergers({id: region for id, region in regions.items() if id not in passive}, budget)
        mergers = {each.members[0]: (each, measured.get(each.members[0])) for each in found.values()}
    named = {*passive, *(id for names in passive.values() for id in names)}
    named.update(id for each, _ in mergers.values() for id in each.members)
    named.update(id for group in duplicates(regions) for id in group)
    clauses = _clauses(work.rows, regions)
    matches, count = _matches(work) if work.events is not None else (None, None)
    if matches is not None:
        named.update(id for id in regions if id not in matches)
    suggestions = [
        (sorted(each.members, key=str), each.region.to_sql(), each.added, share) for each, share in mergers.values()
    ]
    return audited(
        len(regions),
        {id: clauses[id] for id in named},
        {id: regions[id] for id in named},
        {id: list(names) for id, names in passive.items()},
        suggestions,
        matches,
        count,
    )


def _clauses(rows: SubscriptionRows, regions: dict[Any, Any]) -> dict[Any, str]:
    """As they were written; of bounds, what they say."""
    if rows.clauses is None:
        return {id: region.to_sql() for id, region in regions.items()}
    return {id: clause or "" for id, clause in zip(rows.ids.to_pylist(), rows.clauses, strict=True)}


def _matches(work: LocalReduction) -> tuple[dict[Any, int], int]:
    """How many events each rule wants, and how many there are."""
    counted = Match(events_of(work.events, work.format), work.compiled, work.space, work.skip)
    counts = counted.counts().tolist()
    found = {id: count for id, count in zip(work.compiled.ids.to_pylist(), counts, strict=True) if count}
    return found, counted.seen - counted.bad
