"""`thatch reduce`: which subscriptions do the others make redundant?"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from thatch.cli.arguments import NO, OK, add_json, as_text
from thatch.cli.engine_choice import add_engine, chosen_engine
from thatch.cli.parser import number
from thatch.cli.rules_request import ReduceRequest
from thatch.cli.table_arguments import add_rules, request_fields, seconds_text, skipped_text
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
        "--merge", type=number, metavar="SHARE", help="find mergers that add at most this share; 0: perfect ones only"
    )
    command.add_argument(
        "--events", action="append", default=[], metavar="FILE", help="events to weigh mergers with; as for match"
    )
    add_json(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    request = ReduceRequest(**request_fields(options), merge=options.merge)
    engine, why = chosen_engine(options, request)
    result = {"engine": engine.name, "engine_reason": why} | engine.reduce(request)
    print(as_text(result) if options.json else "\n".join(summary(result)))
    return OK if result["passive"] else NO


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
    yield from skipped_text(result)
    yield f"engine {result['engine']}: {result['engine_reason']}"
    if "output" in result:
        yield f"written to {result['output']}"
