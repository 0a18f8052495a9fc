"""`thatch match`: files of events against subscriptions."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from thatch.cli.arguments import NO, OK, add_json, add_space, as_text, shown_value
from thatch.cli.engine import Engine
from thatch.cli.engine_choice import add_engine, chosen_engine
from thatch.cli.match_request import MatchRequest
from thatch.cli.table_arguments import add_running, add_where, request_fields, seconds_text
from thatch.cli.tabular import counted, table
from thatch.space.event_columns import DETAIL
from thatch.space.json_values import readable

CELL_SHOWN = 40  # characters of a value in a table
COLUMNS_SHOWN = 10  # of a table on the terminal: the ids, and the first of the events


def add(commands: Any) -> None:
    command = commands.add_parser(
        "match",
        help="match files of events against subscriptions",
        description="Match files of events against subscriptions: every event with the id of every subscription that "
        "wants it, in the column subscription_id. Exit status 1 if there is no match.",
        epilog="example: thatch match trades.parquet --where alerts.txt --output matches.parquet",
    )
    _add_arguments(command)
    add_json(command)
    command.set_defaults(run=run)


def _add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "events",
        nargs="+",
        metavar="EVENTS",
        help="Parquet, CSV (with a header) or JSON (an object a line): files, folders or globs",
    )
    add_space(command, required=False)
    add_where(command)
    add_engine(command)
    writing = command.add_argument_group("writing")
    writing.add_argument("--output", metavar="PATH", help="a folder for the matches; without it, the first are printed")
    writing.add_argument(
        "--format", choices=("parquet", "csv", "json"), help="of the output (default: by its name, or Parquet)"
    )
    writing.add_argument("--overwrite", action="store_true", help="replace outputs that exist")
    errors = command.add_argument_group("errors")
    errors.add_argument(
        "--on-error",
        choices=("fail", "skip"),
        default="fail",
        help="what to do with wrong clauses and with events that have a bad value: fail (default), or leave them out "
        "and write them to --skipped",
    )
    errors.add_argument(
        "--skipped",
        metavar="PATH",
        help="a folder for what is left out, in `events` and `clauses` (default: OUTPUT.skipped, or thatch-skipped)",
    )
    running = add_running(command)
    running.add_argument(
        "--strategy", choices=("auto", "native", "arrow", "files"), default="auto", help="default: auto, see --explain"
    )
    running.add_argument("--explain", action="store_true", help="say which strategy would be taken and why; do nothing")


def run(options: argparse.Namespace) -> int:
    request = MatchRequest(
        **request_fields(options),
        strategy=options.strategy,
        writing=options.format,
        skipped=options.skipped,
    )
    engine, why = chosen_engine(options, request)
    if options.explain:
        return _explain(options, engine, request, why)
    result = {"engine": engine.name, "engine_reason": why} | engine.match(request)
    for row in result.get("first", ()):
        row.update((name, readable(value)) for name, value in row.items())
    print(as_text(result) if options.json else "\n".join(summary(result)))
    return OK if result["matches"] else NO


def _explain(options: argparse.Namespace, engine: Engine, request: MatchRequest, why: str) -> int:
    plan = engine.explain(request)
    text = plan.pop("text", None)
    if options.json:
        print(as_text({"engine": engine.name} | (plan or {"reason": why})))
    elif text is None:
        print(f"engine: {engine.name}\nbecause: {why}")
    else:
        print(f"engine: {engine.name}, because {why}\n{text}")
    return OK


def summary(result: dict[str, Any]) -> Iterator[str]:
    first = result.get("first")
    if first:
        names = sorted(first[0], key=lambda name: not name.startswith(DETAIL))  # what a table has first is seen
        yield table([names[:COLUMNS_SHOWN], *([_cell(row[name]) for name in names[:COLUMNS_SHOWN]] for row in first)])
        if len(names) > COLUMNS_SHOWN:
            yield f"and {counted(len(names) - COLUMNS_SHOWN, 'more column')}"
        left = result["matches"] - len(first)
        yield f"and {counted(left, 'more match')}; --output PATH writes them all\n" if left else ""
    yield (
        f"{counted(result['events'], 'event')}, {counted(result['subscriptions'], 'subscription')}: "
        f"{counted(result['matches'], 'match')} {seconds_text(result)}"
    )
    yield f"engine {result['engine']}: {result['engine_reason']}"
    if "strategy" in result:
        yield f"strategy {result['strategy']}: {result['reason']}"
    skipped = result["skipped"]
    if "path" in skipped:
        events, clauses = counted(skipped["events"], "event"), counted(skipped["clauses"], "clause")
        yield f"skipped {events} and {clauses}: they are in {skipped['path']}"
    if "output" in result:
        yield f"written to {result['output']}"


def _cell(value: Any) -> str:
    text = " ".join(shown_value(value)[: CELL_SHOWN * 2].splitlines())
    return text if len(text) <= CELL_SHOWN else text[: CELL_SHOWN - 3] + "..."
