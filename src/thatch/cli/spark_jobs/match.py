"""`thatch match`: files of events, files of subscriptions, and the pairs in files again or on the terminal."""

from __future__ import annotations

import time
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from thatch.cli.match_request import MatchRequest
from thatch.cli.spark_jobs.failures import check_readable, translated_failures, wrong
from thatch.cli.spark_jobs.inputs import Events
from thatch.cli.spark_jobs.outputs import Output
from thatch.cli.spark_jobs.rule_files import RuleFiles, SubscriptionFiles, inferred_space
from thatch.cli.spark_jobs.session import progress
from thatch.space.event_columns import ID
from thatch.space.space import Space
from thatch.spark import MatchPlan
from thatch.spark.matching.match import Job
from thatch.spark.text import name_sql

SHOWN = 10  # matches, where there is no output


def explained(session: SparkSession, request: MatchRequest) -> MatchPlan:
    """The plan of a match; nothing is done."""
    with translated_failures(None, None, request.space):
        space, events, subscriptions = _inputs(session, request)
        with translated_failures(None if request.skip else events, subscriptions, space), progress(session):
            return _job(events, subscriptions, request, space).plan()


def matched(session: SparkSession, request: MatchRequest) -> dict[str, Any]:
    """Match, write the output, and return what the summary says."""
    start = time.perf_counter()
    with translated_failures(None, None, request.space):
        space, events, subscriptions = _inputs(session, request)
        outputs = _outputs(session, request)
        for each in outputs.values():
            each.check_keeps_inputs([*events.read.inputFiles(), *subscriptions.frame.inputFiles(), *request.rule_files])
    with translated_failures(None if request.skip else events, subscriptions, space), progress(session):
        job = _job(events, subscriptions, request, space)
        plan = job.plan(estimate=False)
        skipped, unread = _skip_clauses(subscriptions, space, outputs["clauses"]) if request.skip else (0, 0)
        matches, first = _matched(subscriptions.with_details(job.result(), ID), outputs.get("matches"))
        total, bad = _skip_events(events, outputs["events"]) if request.skip else (events.read.count(), 0)
    result: dict[str, Any] = {
        "events": total,
        "subscriptions": plan.subscriptions + unread,
        "matches": matches,
        "skipped": {"events": bad, "clauses": skipped},
        "seconds": time.perf_counter() - start,
        "strategy": plan.strategy,
        "reason": plan.reason,
    }
    if bad or skipped:
        result["skipped"]["path"] = request.skipped_path
    if request.output:
        result["output"] = request.output
    else:
        result["first"] = first
    return result


def _inputs(session: SparkSession, request: MatchRequest) -> tuple[Space, Events, SubscriptionFiles]:
    space, rules = request.space, RuleFiles(session, request.where, request.reading)
    if space is None:
        space = inferred_space(session, request.events, rules, request.time_zone, request.on_error)
    events = Events(session, request.events, space, request.reading)
    return space, events, rules.read(space)


def _outputs(session: SparkSession, request: MatchRequest) -> dict[str, Output]:
    return {name: Output(session, path, kind, request.overwrite) for name, (path, kind) in request.outputs.items()}


def _job(events: Events, subscriptions: SubscriptionFiles, request: MatchRequest, space: Space) -> Job:
    if not request.skip:
        check_readable(subscriptions)
    on_error = "skip" if request.skip else "raise"
    return Job(
        events.usable(request.skip),
        subscriptions.frame,
        space,
        request.strategy,
        on_error,
        broadcast_limit=None,
    )


def _matched(matches: DataFrame, output: Output | None) -> tuple[int, list[dict[str, Any]]]:
    """How many there are, and without an output the first of them: one pass."""
    count = Observation()
    if output is not None:
        output.write(matches.observe(count, F.count(F.lit(1)).alias("matches")))
        return count.get.get("matches", 0), []
    # The number of a row within its partition: the first of each partition come to the driver, all are counted.
    numbered = matches.select(
        *[_plain(matches, name) for name in matches.columns], F.monotonically_increasing_id().alias("__row")
    )
    observed = numbered.observe(count, F.count(F.lit(1)).alias("matches"))
    rows = observed.where(F.col("__row").bitwiseAND(F.lit((1 << 33) - 1)) < SHOWN).drop("__row").collect()
    return count.get.get("matches", 0), [row.asDict() for row in rows[:SHOWN]]


def _plain(frame: DataFrame, name: str) -> Any:
    """What has no plain form in JSON is text, times in the zone of the session."""
    kind, column = frame.schema[name].dataType.typeName(), F.col(name_sql(name))
    if kind == "binary":
        column = F.hex(column)
    elif kind not in ("string", "boolean", "byte", "short", "integer", "long", "float", "double"):
        column = column.cast("string")
    return column.alias(name)


# What is left out


def _skip_clauses(subscriptions: SubscriptionFiles, space: Space, output: Output) -> tuple[int, int]:
    """How many subscriptions cannot be used, and how many of them could not even be read."""
    bad, malformed = wrong(subscriptions, space), subscriptions.malformed
    counts = (0 if bad is None else bad.count()), (0 if malformed is None else malformed.count())
    if bad is not None and counts[0]:
        output.write(bad)
    else:
        output.remove()
    return counts


def _skip_events(events: Events, output: Output) -> tuple[int, int]:
    """How many events there are, and how many are bad."""
    judged, error = events.judged(), F.col(name_sql(events.error_name))
    row = judged.agg(F.count(F.lit(1)), F.count(error)).first()
    assert row is not None
    if row[1]:
        output.write(judged.where(error.isNotNull()))
    else:
        output.remove()
    return row[0], row[1]
