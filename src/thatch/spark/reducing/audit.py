"""An audit of a table of rules: reduced on Spark, described in words (reports/audit.py).

The driver gets the rules that a claim is about: those that are redundant, that prove it, that are merged, that want the
same as another one, or that match none of the events; not the others.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from thatch.merge.weighing import budget_of
from thatch.reports.audit import Audit, audited
from thatch.space.event_columns import ID, event_columns
from thatch.space.space import Space
from thatch.spark.failures import translated_errors
from thatch.spark.matching.match import match
from thatch.spark.reducing.loaded import regions_of
from thatch.spark.reducing.reduce import Reduction
from thatch.spark.reducing.same import groups_of_same
from thatch.spark.tables import SubscriptionFrame, is_wrong_event
from thatch.spark.text import name_sql


def audit(
    subscriptions: DataFrame,
    space: Space,
    *,
    merge: float | None = 0.0,
    events: DataFrame | None = None,
    on_error: str = "raise",
) -> Audit:
    """Which rules are redundant and why, which could be merged (`merge` is the share that a merger may add; None: no
    mergers), and what it saves; with `events`, also how many matches less there are, and mergers are weighed by
    them."""
    known = SubscriptionFrame.of(subscriptions, space)
    with translated_errors():
        budget, reduction = budget_of(merge), Reduction(subscriptions, space, on_error, None)
        if budget is None:
            reduced = reduction.result().selectExpr("*", "CAST(NULL AS STRING) AS merger")
        else:
            reduced = reduction.merged(budget, events)
        reduced = reduced.localCheckpoint()
        rules = reduced.count() if reduction.skip else reduction.count
        named = reduced.where("status = 'passive' OR merger IS NOT NULL")
        proofs = reduced.where("status = 'passive'").select(F.explode("covered_by").alias("id"))
        wanted = named.select("id").union(proofs).union(groups_of_same(known).select("id"))
        matches = None if events is None else _matches(events, subscriptions, space, on_error)
        if matches is not None:
            wanted = wanted.union(reduced.select("id").join(matches.select("id"), "id", "left_anti"))
        wanted = wanted.distinct()
        claimed = subscriptions.join(wanted.select(F.col("id").alias(known.id)), known.id, "left_semi")
        regions = regions_of(claimed, space)
        clauses = _clauses(claimed, known, regions)
        rows = named.toArrow().to_pylist()
        counts: dict[Any, int] | None = None
        if matches is not None:
            own = matches.join(wanted, "id", "left_semi").collect()
            counts = {row["id"]: row["count"] for row in own}
        count = None if events is None else _usable(events, space, on_error).count()
    certificates = {row["id"]: row["covered_by"] for row in rows if row["status"] == "passive"}
    mergers = _mergers([row for row in rows if row["merger"] is not None])
    return audited(rules, clauses, regions, certificates, mergers, counts, count)


def _usable(events: DataFrame, space: Space, on_error: str) -> DataFrame:
    if on_error != "skip":
        return events
    return events.where(f"NOT {is_wrong_event(event_columns(events.schema, space), space)}")


def _clauses(claimed: DataFrame, known: SubscriptionFrame, regions: dict[Any, Any]) -> dict[Any, str]:
    """As they were written; of bounds, what they say."""
    if known.where is None:
        return {id: region.to_sql() for id, region in regions.items()}
    rows = claimed.select(name_sql(known.id), name_sql(known.where)).toArrow()
    return dict(zip(rows.column(0).to_pylist(), rows.column(1).to_pylist(), strict=True))


def _mergers(rows: list[dict[str, Any]]) -> list[tuple[list[Any], str, float, float | None]]:
    members: dict[Any, list[Any]] = {}
    for row in rows:
        members.setdefault(row["merger"], []).append(row["id"])
    heads = [row for row in rows if row["merged_where"] is not None]
    return [
        (sorted(members[row["id"]], key=str), row["merged_where"], row["added"], row["added_events"]) for row in heads
    ]


def _matches(events: DataFrame, rules: DataFrame, space: Space, on_error: str) -> DataFrame:
    """How many events each rule wants that wants some: `id`, `count`."""
    found = match(events, rules, space, on_error=on_error)
    return found.groupBy(F.col(ID).alias("id")).count().localCheckpoint()
