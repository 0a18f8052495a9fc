"""`thatch learn`: what do events and subscriptions look like?"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from thatch.cli.arguments import OK, add_json, as_text
from thatch.cli.engine_choice import add_engine, chosen_engine
from thatch.cli.rules_request import LearnRequest
from thatch.cli.table_arguments import add_rules, request_fields, seconds_text, skipped_text
from thatch.cli.tabular import counted, table
from thatch.errors import CallerError

SHOWN = 3  # regions of each kind


def add(commands: Any) -> None:
    command = commands.add_parser(
        "learn",
        help="describe events and subscriptions",
        description="Describe events and subscriptions: which attributes separate subscriptions, where cells should "
        "begin, how often each subscription matches, how similar they are, which events nobody wants, and which "
        "subscriptions look where no event is. With --output: tables and a page of plots.",
        epilog="example: thatch learn trades.parquet --where alerts.txt --output learnt",
    )
    command.add_argument("events", nargs="+", metavar="EVENTS", help="files, folders or globs, as for match")
    add_engine(command)
    add_rules(command, "a folder for learn.html, hilbert.json and tables in Parquet")
    add_json(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    request = LearnRequest(**request_fields(options))
    engine, why = chosen_engine(options, request)
    result = {"engine": engine.name, "engine_reason": why} | engine.learn(request)
    if not result["events"]:
        raise CallerError("there are no events: nothing can be learnt")
    print(as_text(result) if options.json else "\n".join(summary(result)))
    return OK


def summary(result: Mapping[str, Any]) -> Iterator[str]:
    from thatch.reports.learn import KINDS, region_sentence, rest_sentence

    rows = [["attribute", "leaves", "jointly", "bounded by"]]
    for row in result["selectivity"]:
        rows.append([row["attribute"], *(f"{row[name]:.1%}" for name in ("share", "left", "bounded"))])
    yield table(rows)
    yield f"\nto be indexed: {', '.join(result['attributes'])}"
    for kind in KINDS:
        regions = [row for row in result["regions"] if row["kind"] == kind]
        for row in regions[:SHOWN]:
            yield region_sentence(row, result["events"], result["subscriptions"])
            yield f"    {row['where']}"
        if regions[SHOWN:]:
            yield rest_sentence(regions[SHOWN:], result["events"])
    events, wanted = counted(result["events"], "event"), counted(result["subscriptions"], "subscription")
    yield f"{events}, {wanted}, {seconds_text(result)}"
    yield from skipped_text(result)
    yield f"engine {result['engine']}: {result['engine_reason']}"
    if "output" in result:
        yield f"written to {result['output']}: learn.html shows it"
