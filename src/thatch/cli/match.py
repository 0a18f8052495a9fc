"""`thatch match`: files of events against subscriptions."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import asdict
from importlib.abc import MetaPathFinder
from typing import Any

from thatch.cli.arguments import NO, OK, add_json, add_space, as_text, shown_value
from thatch.cli.engine_choice import add_engine, chosen_engine
from thatch.cli.match_request import MatchRequest
from thatch.cli.spark_arguments import add_running, add_where, on_spark, request_fields, seconds_text
from thatch.cli.tabular import counted, table
from thatch.space.json_values import readable

CELL_SHOWN = 40  # characters of a value in a table


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
    engine, why = chosen_engine(options, request.events, request.where, request.reading)
    if options.explain:
        return _explain(options, request, engine, why)
    done = _on_spark(options, request) if engine == "spark" else _in_this_process(options, request)
    result = {"engine": engine, "engine_reason": why} | done
    for row in result.get("first", ()):
        row.update((name, readable(value)) for name, value in row.items())
    print(as_text(result) if options.json else "\n".join(summary(result)))
    return OK if result["matches"] else NO


class _WithoutPandas(MetaPathFinder):
    """Arrow looks for pandas before it makes an array. To load it takes longer than to match a small table."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> None:
        if name == "pandas":
            raise ImportError("a command has no use for pandas")


def _in_this_process(options: argparse.Namespace, request: MatchRequest) -> dict[str, Any]:
    if options.is_program and "pandas" not in sys.modules:
        sys.meta_path.insert(0, _WithoutPandas())
    from thatch.cli.local_jobs.match import match

    return match(request)


def _on_spark(options: argparse.Namespace, request: MatchRequest) -> dict[str, Any]:
    from thatch.cli.spark_jobs.session import check_spark_is_there

    check_spark_is_there()
    from thatch.cli.spark_jobs import match

    result, starting = on_spark(options, request.session_zone, lambda session: match.run(session, request))
    return result | {"seconds_to_start_spark": starting}


def _explain(options: argparse.Namespace, request: MatchRequest, engine: str, why: str) -> int:
    if engine == "local":
        print(as_text({"engine": engine, "reason": why}) if options.json else f"engine: local\nbecause: {why}")
        return OK
    from thatch.cli.spark_jobs.session import check_spark_is_there

    check_spark_is_there()
    from thatch.cli.spark_jobs import match

    plan, _ = on_spark(options, request.session_zone, lambda session: match.explained(session, request))
    print(as_text({"engine": engine} | asdict(plan)) if options.json else f"engine: spark, because {why}\n{plan}")
    return OK


def summary(result: dict[str, Any]) -> Iterator[str]:
    first = result.get("first")
    if first:
        rows = [list(first[0]), *([_cell(value) for value in row.values()] for row in first)]
        yield table(rows)
        left = result["matches"] - len(first)
        yield f"and {left:,} more; --output PATH writes them all\n" if left else ""
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
