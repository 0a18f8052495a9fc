"""`thatch learn`: what do events and subscriptions look like?"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from thatch.cli.arguments import OK, add_json, as_text
from thatch.cli.spark_arguments import add_rules, on_spark, request_fields, seconds_text
from thatch.cli.tabular import counted, table


def add(commands: Any) -> None:
    command = commands.add_parser(
        "learn",
        help="describe events and subscriptions, on Spark",
        description="Describe events and subscriptions: which attributes separate subscriptions, where cells should "
        "begin, how often each subscription matches, how similar they are, where events are that nobody wants. "
        "With --output: tables and a page of plots.",
        epilog="example: thatch learn trades.parquet --space 'price double, symbol string' --where alerts.txt "
        "--output learnt",
    )
    command.add_argument("events", nargs="+", metavar="EVENTS", help="files, folders or globs, as for match")
    add_rules(command, "a folder for learn.html, hilbert.json and tables in Parquet")
    add_json(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from thatch.cli.spark_jobs.session import check_spark_is_there

    check_spark_is_there()
    from thatch.cli.rules_request import RulesRequest
    from thatch.cli.spark_jobs.rules import learnt

    request = RulesRequest(**request_fields(options))
    result, starting = on_spark(options, request.session_zone, lambda session: learnt(session, request))
    result["seconds_to_start_spark"] = starting
    print(as_text(result) if options.json else "\n".join(summary(result)))
    return OK


def summary(result: Mapping[str, Any]) -> Iterator[str]:
    rows = [["attribute", "leaves", "jointly", "bounded by"]]
    for row in result["selectivity"]:
        rows.append([row["attribute"], *(f"{row[name]:.1%}" for name in ("share", "left", "bounded"))])
    yield table(rows)
    yield f"\nto be indexed: {', '.join(result['attributes'])}"
    for row in result["regions"]:
        events, wanted = counted(row["events"], "event"), counted(row["subscriptions"], "subscription")
        yield f"{events if row['events'] else wanted} and {row['kind']}: {row['where']}"
    events, wanted = counted(result["events"], "event"), counted(result["subscriptions"], "subscription")
    yield f"{events}, {wanted}, {seconds_text(result)}"
    if "output" in result:
        yield f"written to {result['output']}: learn.html shows it"
