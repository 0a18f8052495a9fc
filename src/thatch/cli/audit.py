"""`thatch audit`: a report over a rule set."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from thatch.cli.arguments import NO, OK, add_json, as_text
from thatch.cli.engine_choice import add_engine, chosen_engine
from thatch.cli.rules_request import RulesRequest
from thatch.cli.spark_arguments import add_rules, on_spark, request_fields, seconds_text
from thatch.cli.tabular import counted
from thatch.reports.audit import Audit

SHOWN = 10  # findings, and as many mergers


def add(commands: Any) -> None:
    command = commands.add_parser(
        "audit",
        help="report duplicates, redundant rules with their proof, and mergers",
        description="Report on a rule set: rules that match nothing, duplicates, rules that others make redundant, "
        "with the proof in words, rules that could be merged, and what it saves. Exit status 1 if a rule is redundant.",
        epilog="example: thatch audit --space 'price double, symbol string' --where alerts.txt --output report",
    )
    add_engine(command)
    add_rules(command, "a folder for audit.html and audit.json")
    command.add_argument(
        "--merge",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="suggest mergers that add at most this share (default 0: perfect ones)",
    )
    command.add_argument(
        "--events", action="append", default=[], metavar="FILE", help="events to count matches of; as for match"
    )
    add_json(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    request = RulesRequest(**request_fields(options), merge=options.merge)
    engine, why = chosen_engine(options, [*request.tables, *request.events], request.reading)
    found, done = _on_spark(options, request) if engine == "spark" else _in_this_process(request)
    result = {"engine": engine, "engine_reason": why} | done
    if options.json:
        print(as_text(result if options.output else {**result, "audit": found.to_json()}))
    else:
        print("\n".join(summary(found, result)))
    return NO if found.findings else OK


def _in_this_process(request: RulesRequest) -> tuple[Audit, dict[str, Any]]:
    from thatch.cli.local_jobs.rules import audited

    return audited(request)


def _on_spark(options: argparse.Namespace, request: RulesRequest) -> tuple[Audit, dict[str, Any]]:
    from thatch.cli.spark_jobs.session import check_spark_is_there

    check_spark_is_there()
    from thatch.cli.spark_jobs.rules import audited

    both, starting = on_spark(options, request.session_time_zone, lambda session: audited(session, request))
    found, result = both
    return found, result | {"seconds_to_start_spark": starting}


def summary(found: Audit, result: Mapping[str, Any]) -> Iterator[str]:
    for each in found.findings[:SHOWN]:
        yield f"{each.id}: {each.where}\n    {each.kind}: {each.proof}"
    for merger in found.mergers[:SHOWN]:
        yield f"{', '.join(map(str, merger.members[:8]))} could be one: {merger.where}"
    yield (
        f"{counted(found.rules, 'rule')}; {found.kept:,} are enough, {len(found.findings):,} are redundant, "
        f"{counted(len(found.mergers), 'merger')} possible, {seconds_text(result)}"
    )
    yield f"engine {result['engine']}: {result['engine_reason']}"
    if "output" in result:
        yield f"written to {result['output']}: audit.html shows it, audit.json has all of it"
