"""`thatch match` in this process: files in, files out."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from thatch.cli.arguments import check_rules
from thatch.cli.match_request import MatchRequest
from thatch.cli.terminal import clear_progress, show_progress
from thatch.cli.wrong_rows import MORE_RULES, NAMED, named_options, raise_if_any, wrong_clause
from thatch.local.events import MALFORMED, EventBatch
from thatch.local.files import Format
from thatch.local.match import Match
from thatch.local.rule_files import rules_in
from thatch.local.subscriptions import (
    WRONG_SCHEMA,
    SubscriptionRows,
    WrongClause,
    joined,
    rows_of_rules,
    without_rules,
    wrong_table,
)
from thatch.local.writing import OutputFolder

SHOWN = 10  # matches, where there is no output
SHOWN_AFTER = 1.0  # seconds: short work shows no progress


def match(request: MatchRequest) -> dict[str, Any]:
    """Match, write the output, and return what the summary says."""
    start = time.perf_counter()
    on_error = "skip" if request.skip else "raise"
    with named_options():
        rows = rows_of(request.where, request.reading, request.skip)
        work = Match.of(list(request.events), rows, request.space, on_error, request.reading, request.time_zone)
        work.with_details = True
        check_clauses(work.compiled.wrong, request.skip)
        result = _written(work, request)
    return result | {"seconds": time.perf_counter() - start}


def rows_of(files: Sequence[str], reading: Format, skip: bool) -> SubscriptionRows:
    """The rules of all files."""
    parts = [rows_of_rules(rules_in(path, reading)) for path in files]
    check_rules(*without_rules(files, parts))
    rows = joined(parts)
    check_clauses(list(rows.wrong), skip)
    return rows


def check_clauses(wrong: list[WrongClause], skip: bool) -> None:
    if not skip:
        raise_if_any([wrong_clause(*each) for each in wrong[: NAMED + 1]], MORE_RULES)


def _written(work: Match, request: MatchRequest) -> dict[str, Any]:
    wrong, matches, first = work.compiled.wrong, 0, list[dict[str, Any]]()
    with ExitStack() as stack:
        outputs: dict[str, OutputFolder] = {}
        schemas = {"matches": work.schema, "events": _judged_schema(work), "clauses": WRONG_SCHEMA}
        for name, (path, kind) in request.outputs.items():
            outputs[name] = stack.enter_context(all_or_nothing(path, kind, schemas[name], request.overwrite, name))
            outputs[name].check_keeps([*work.events.files, *request.rule_files])
        if request.skip:
            work.on_bad = lambda batch, why: outputs["events"].write(_judged(batch, why, schemas["events"], work))
            if wrong:
                for listed in wrong_table(wrong).to_batches():
                    outputs["clauses"].write(listed)
        for batch in _counted_up(work):
            matches += batch.num_rows
            if "matches" in outputs:
                outputs["matches"].write(batch)
            elif len(first) < SHOWN:
                for row in batch.slice(0, SHOWN - len(first)).to_pylist():
                    first.append({name: _plain(value, work.space.zone) for name, value in row.items()})
        for name, output in outputs.items():
            if name == "matches" or output.rows:
                output.finish()
            else:
                output.remove()
    result: dict[str, Any] = {
        "events": work.seen,
        "subscriptions": len(work.compiled.ids) + len(wrong),
        "matches": matches,
        "skipped": {"events": work.bad, "clauses": len(wrong)},
    }
    if work.bad or wrong:
        result["skipped"]["path"] = request.skipped_path
    return result | ({"output": request.output} if request.output else {"first": first})


@contextmanager
def all_or_nothing(
    path: str, kind: str, schema: pa.Schema, overwrite: bool, name: str = "matches"
) -> Iterator[OutputFolder]:
    option = "another path" if name == "matches" else "another one with --skipped PATH"
    output = OutputFolder(path, kind, schema, overwrite, option)
    try:
        yield output
    finally:
        output.give_up()


def _judged_schema(work: Match) -> pa.Schema:
    """Of events that are left out: as they were read, what is wrong, and of text the record that is no row."""
    read = work.events.read_schema(work.space)
    taken = {name.lower() for name in read.names}
    names = ["error"] if work.events.has_types else ["error", "record"]
    added = [pa.field(name if name not in taken else f"thatch_{name}", pa.string()) for name in names]
    return pa.schema([*read, *added])


def _judged(batch: EventBatch, wrong: dict[int, str], schema: pa.Schema, work: Match) -> pa.RecordBatch:
    rows = sorted(wrong)
    taken = batch.read.take(pa.array(rows, pa.int64()))
    fields = [work.events.fields_of(record) for record in batch.malformed]
    columns = [
        pa.concat_arrays([column, pa.array([each[at] for each in fields], column.type)])
        for at, column in enumerate(taken.columns)
    ]
    columns.append(pa.array([wrong[row] for row in rows] + [MALFORMED] * len(fields), pa.string()))
    if len(schema) > len(columns):
        columns.append(pa.array([None] * len(rows) + batch.malformed, pa.string()))
    return pa.record_batch(columns, schema=schema)


def _plain(value: Any, zone: ZoneInfo) -> Any:
    """What has no plain form in JSON is text, times in the zone of the space."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return str(value.astimezone(zone).replace(tzinfo=None))
    return value.hex().upper() if isinstance(value, bytes) else value


def _counted_up(work: Match) -> Iterator[pa.RecordBatch]:
    """On a terminal, how many events were looked at; nothing in a pipe."""
    start = time.monotonic()
    for batch in work.matches():
        seconds = time.monotonic() - start
        if seconds > SHOWN_AFTER:
            show_progress(f"{work.seen:,} events, {seconds:.0f} s")
        yield batch
    clear_progress()
