"""`thatch reduce`, `thatch learn` and `thatch audit` in this process: files of subscriptions, and of events."""

from __future__ import annotations

import json
import time
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from thatch.cli.local_jobs.match import all_or_nothing, check_clauses, rows_of
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
from thatch.cli.wrong_rows import named_options
from thatch.local.audit import audit_of
from thatch.local.learn import Learning
from thatch.local.reduce import LocalReduction
from thatch.local.writing import output_kind
from thatch.merge.weighing import budget_of
from thatch.reports.audit import Audit
from thatch.space.event_columns import detail_names

SHOWN = 10  # rows, where there is no output


def reduced(request: ReduceRequest) -> dict[str, Any]:
    """What the summary says; the result goes to the output, or its first rows into the summary."""
    start = time.perf_counter()
    with named_options():
        budget = budget_of(request.merge)
        work = _reduction(request)
        result = _with_details(work.result(budget), work)
        passive = result.filter(pc.equal(result.column("status"), "passive"))
        summary: dict[str, Any] = {
            "subscriptions": len(result),
            "active": len(result) - len(passive),
            "passive": len(passive),
            "skipped": len(work.compiled.wrong),
        }
        if budget is not None:
            merged = result.column("merged")
            summary |= {"mergers": len(merged) - merged.null_count, "merged": pc.sum(merged).as_py() or 0}
        if request.output is not None:
            _write(result, request)
            summary["output"] = request.output
        else:
            summary["first"] = passive.sort_by("id").slice(0, SHOWN).select(["id", "covered_by"]).to_pylist()
    return summary | {"seconds": time.perf_counter() - start}


def _with_details(result: pa.Table, work: LocalReduction) -> pa.Table:
    """And the further columns of the rules."""
    details = work.compiled.details
    if details is None:
        return result
    for name, column in zip(detail_names(details.schema.names, result.schema.names), details.columns, strict=True):
        result = result.append_column(name, column)
    return result


def _write(result: pa.Table, request: ReduceRequest) -> None:
    assert request.output is not None
    kind = output_kind(request.output)
    if kind == "csv":  # which has no arrays
        texts = [None if names is None else json.dumps(names) for names in result.column("covered_by").to_pylist()]
        result = result.set_column(2, "covered_by", pa.array(texts, pa.string()))
    with all_or_nothing(request.output, kind, result.schema, request.overwrite) as output:
        output.check_keeps([*request.rule_files, *request.events])
        for batch in result.to_batches():
            output.write(batch)
        output.finish()


def learnt(request: LearnRequest) -> dict[str, Any]:
    """What the summary says; a page and tables go into the folder."""
    start = time.perf_counter()
    with named_options():
        rows = rows_of(request.where, request.reading, request.skip)
        work = Learning.of(
            list(request.events), rows, request.space, request.on_error, request.reading, request.time_zone
        )
        check_clauses(work.match.compiled.wrong, request.skip)
        check_report(request)
        found = work.result()
        summary = learnt_summary(found) | {"skipped": len(work.match.compiled.wrong)}
        if request.output is not None:
            with report_folder(request) as folder:
                for name in (*SHORT, *LONG):
                    write_table(folder, name, getattr(found, name))
                write_learnt_page(found, folder)
            summary["output"] = request.output
    return summary | {"seconds": time.perf_counter() - start}


def audited(request: AuditRequest) -> tuple[Audit, dict[str, Any]]:
    """The audit and what the summary says; page and JSON go into the folder."""
    start = time.perf_counter()
    with named_options():
        budget = budget_of(request.merge)
        work = _reduction(request)
        check_report(request)
        found = audit_of(work, budget)
        summary = written_audit(found, request) | {"skipped": len(work.compiled.wrong)}
    return found, summary | {"seconds": time.perf_counter() - start}


def _reduction(request: Request) -> LocalReduction:
    rows = rows_of(request.where, request.reading, request.skip)
    events = list(request.events) or None
    work = LocalReduction.of(rows, request.space, events, request.on_error, request.reading, request.time_zone)
    check_clauses(work.compiled.wrong, request.skip)
    return work
