"""`thatch reduce`, `thatch learn`, `thatch audit`: files of subscriptions, and of events, to what is known of them."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import thatch.spark as ts
from thatch.cli.report_files import (
    LONG,
    SHORT,
    check_report,
    learnt_summary,
    report_folder,
    write_learnt_page,
    write_table,
    written_audit,
)
from thatch.cli.request import Request
from thatch.cli.rules_request import AuditRequest, LearnRequest, ReduceRequest
from thatch.cli.spark_jobs.failures import check_readable, translated_failures, wrong
from thatch.cli.spark_jobs.inputs import Events
from thatch.cli.spark_jobs.outputs import Output
from thatch.cli.spark_jobs.rule_files import RuleFiles, SubscriptionFiles, inferred_space
from thatch.cli.spark_jobs.session import progress
from thatch.local.writing import output_kind
from thatch.reports.audit import Audit
from thatch.reports.learn import Learned

SHOWN = 10  # rows, where there is no output


class Inputs:
    """The tables of a request; errors in them name their place."""

    def __init__(self, session: SparkSession, request: Request) -> None:
        self.session, self.request = session, request
        with translated_failures(None, None, request.space):
            self.events: Events | None = None
            rules = RuleFiles(session, request.where, request.reading)
            self.space = request.space or inferred_space(
                session, request.events, rules, request.time_zone, request.on_error
            )
            if request.events:
                self.events = Events(session, request.events, self.space, request.reading)
            self.subscriptions: SubscriptionFiles = rules.read(self.space)
        if not request.skip:
            check_readable(self.subscriptions)

    @property
    def rules(self) -> DataFrame:
        return self.subscriptions.frame

    @property
    def usable(self) -> DataFrame | None:
        return None if self.events is None else self.events.usable(self.request.skip)

    def skipped(self) -> int:
        """How many rules are left out."""
        bad = wrong(self.subscriptions, self.space) if self.request.skip else None
        return 0 if bad is None else bad.count()

    def translated_failures(self) -> Any:
        return translated_failures(None if self.request.skip else self.events, self.subscriptions, self.space)


def reduced(session: SparkSession, request: ReduceRequest) -> dict[str, Any]:
    """What the summary says; the result goes to the output, or its first rows into the summary."""
    start, inputs = time.perf_counter(), Inputs(session, request)
    output = None
    if request.output is not None:
        output = Output(session, request.output, output_kind(request.output), request.overwrite)
        output.check_keeps_inputs([*inputs.rules.inputFiles(), *request.rule_files])
    with inputs.translated_failures(), progress(session):
        result = ts.reduce(
            inputs.rules, inputs.space, merge=request.merge, events=inputs.usable, on_error=request.on_error
        ).localCheckpoint()
        counts = {row["status"]: row["count"] for row in result.groupBy("status").count().collect()}
        active, passive = counts.get("active", 0), counts.get("passive", 0)
        summary: dict[str, Any] = {"subscriptions": active + passive, "active": active, "passive": passive}
        summary["skipped"] = inputs.skipped()
        if request.merge is not None:
            row = result.agg(F.count("merged_where"), F.coalesce(F.sum("merged"), F.lit(0))).first()
            assert row is not None
            summary |= {"mergers": row[0], "merged": row[1]}
        if output is not None:
            written = inputs.subscriptions.with_details(result, "id")
            if output_kind(request.output) == "csv":  # which has no arrays
                written = written.withColumn("covered_by", F.to_json("covered_by"))
            output.write(written)
            summary["output"] = request.output
        else:
            first = result.where("status = 'passive'").orderBy("id").limit(SHOWN).toArrow().to_pylist()
            summary["first"] = [{name: row[name] for name in ("id", "covered_by")} for row in first]
    return summary | {"seconds": time.perf_counter() - start}


def learnt(session: SparkSession, request: LearnRequest) -> dict[str, Any]:
    """What the summary says; a page and tables go into the folder."""
    start, inputs = time.perf_counter(), Inputs(session, request)
    check_report(request)
    usable = inputs.usable
    assert usable is not None
    with inputs.translated_failures(), progress(session):
        found = ts.learn(usable, inputs.rules, inputs.space, on_error=request.on_error)
        summary = learnt_summary(found) | {"skipped": inputs.skipped()}
        if request.output is not None:
            with report_folder(request) as folder:
                _write_learnt(found, folder, session)
            summary["output"] = request.output
    return summary | {"seconds": time.perf_counter() - start}


def _write_learnt(found: Learned[DataFrame], folder: Path, session: SparkSession) -> None:
    written: dict[str, Any] = {}
    for name in SHORT:  # without a Spark job for each
        rows = getattr(found, name).toArrow()
        write_table(folder, name, rows)
        written[name] = session.createDataFrame(rows)
    for name in LONG:
        path, rows = str(folder.resolve() / name), getattr(found, name)
        rows.write.parquet(path)
        written[name] = session.read.schema(rows.schema).parquet(path)
    kept = written.pop("phi")
    write_learnt_page(replace(found, **written, find_phi=lambda: kept), folder)  # which need not count again


def audited(session: SparkSession, request: AuditRequest) -> tuple[Audit, dict[str, Any]]:
    """The audit and what the summary says; page and JSON go into the folder."""
    start, inputs = time.perf_counter(), Inputs(session, request)
    check_report(request)
    with inputs.translated_failures(), progress(session):
        found = ts.audit(
            inputs.rules, inputs.space, merge=request.merge, events=inputs.usable, on_error=request.on_error
        )
        skipped = inputs.skipped()
    summary = written_audit(found, request) | {"skipped": skipped}
    return found, summary | {"seconds": time.perf_counter() - start}
