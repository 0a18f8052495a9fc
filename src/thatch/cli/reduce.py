"""`thatch reduce`: which subscriptions do the others make redundant?"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from thatch.cli.arguments import NO, OK, add_json, as_text
from thatch.cli.engine_choice import add_engine, chosen_engine
from thatch.cli.rules_request import RulesRequest
from thatch.cli.spark_arguments import add_rules, on_spark, request_fields, seconds_text
from thatch.cli.tabular import counted


def add(commands: Any) -> None:
    command = commands.add_parser(
        "reduce",
        help="find the subscriptions that others make redundant",
        description="Find the subscriptions that are covered by the union of the others, and those that prove it: id, "
        "status (active or passive), covered_by. The active ones match every event that any of them matches. Exit "
        "status 1 if none is redundant.",
        epilog="example: thatch reduce --space 'price double, symbol string' --where alerts.txt --output kept.parquet",
    )
    add_engine(command)
    add_rules(command, "a folder for the result; without it, the first redundant ones are printed")
    command.add_argument(
        "--merge", type=float, metavar="SHARE", help="find mergers that add at most this share; 0: perfect ones only"
    )
    command.add_argument(
        "--events", action="append", default=[], metavar="FILE", help="events to weigh mergers with; as for match"
    )
    add_json(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    request = RulesRequest(**request_fields(options), merge=options.merge)
    engine, why = chosen_engine(options, [*request.tables, *request.events], request.reading)
    done = _on_spark(options, request) if engine == "spark" else _in_this_process(request)
    result = {"engine": engine, "engine_reason": why} | done
    print(as_text(result) if options.json else "\n".join(summary(result)))
    return OK if result["passive"] else NO


def _in_this_process(request: RulesRequest) -> dict[str, Any]:
    from thatch.cli.local_jobs.rules import reduced

    return reduced(request)


def _on_spark(options: argparse.Namespace, request: RulesRequest) -> dict[str, Any]:
    from thatch.cli.spark_jobs.session import check_spark_is_there

    check_spark_is_there()
    from thatch.cli.spark_jobs.rules import reduced

    result, starting = on_spark(options, request.session_time_zone, lambda session: reduced(session, request))
    return result | {"seconds_to_start_spark": starting}


def summary(result: Mapping[str, Any]) -> Iterator[str]:
    first = result.get("first", ())
    for row in first:
        names = row["covered_by"]
        yield f"{row['id']}: " + (f"covered by {', '.join(map(str, names))}" if names else "no event can match it")
    left = result["passive"] - len(first)
    if first and left:
        yield f"and {left:,} more; --output PATH writes them all"
    yield (
        f"{counted(result['subscriptions'], 'subscription')}: {result['active']:,} active, {result['passive']:,} "
        f"passive, {seconds_text(result)}"
    )
    if "mergers" in result:
        yield f"{counted(result['mergers'], 'merger')} of {result['merged']:,} active ones"
    yield f"engine {result['engine']}: {result['engine_reason']}"
    if "output" in result:
        yield f"written to {result['output']}"
