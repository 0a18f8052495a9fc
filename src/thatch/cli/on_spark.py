"""`thatch match`, `reduce`, `learn` and `audit`: what they take, and how they are called. All on Spark."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from thatch.cli.arguments import NO, OK, add_space, as_text, clauses_of, counted_up, shown_value, space_of
from thatch.errors import CallerError
from thatch.space.json_values import readable

CELL_SHOWN = 40  # characters of a value in a table


def add_spark_commands(commands: Any) -> None:
    match = commands.add_parser(
        "match",
        help="files of events against subscriptions, on Spark",
        description="Match files of events against subscriptions on Spark: every event with the id of every "
        "subscription that wants it, in the column subscription_id. Exit status 1 if there is no match at all.",
        epilog="example: thatch match trades.parquet --space 'price double, symbol string' --where alerts.txt "
        "--output matches.parquet",
    )
    _add_match(match)
    match.set_defaults(run=_match)

    reduce = commands.add_parser(
        "reduce",
        help="which subscriptions do the others make redundant? On Spark",
        description="Which subscriptions are covered by the union of the others, and which ones prove it: id, status "
        "(active or passive), covered_by. The active ones match every "
        "event that any of them matches. Exit status 1 if none is redundant.",
        epilog="example: thatch reduce --space 'price double, symbol string' --where alerts.txt --output kept.parquet",
    )
    _add_rules(reduce, "a folder for the result; without it, the first redundant ones are printed")
    reduce.add_argument(
        "--merge", type=float, metavar="SHARE", help="find mergers that add at most this share; 0: perfect ones only"
    )
    reduce.add_argument(
        "--events", action="append", default=[], metavar="FILE", help="events to weigh mergers with; as for match"
    )
    reduce.set_defaults(run=_reduce)

    learn = commands.add_parser(
        "learn",
        help="what do events and subscriptions look like? On Spark",
        description="Which attributes tell subscriptions apart, where cells should begin, how often each matches, how "
        "alike they are, where events are that nobody wants. With --output: tables and a page of plots.",
        epilog="example: thatch learn trades.parquet --space 'price double, symbol string' --where alerts.txt "
        "--output learnt",
    )
    learn.add_argument("events", nargs="+", metavar="EVENTS", help="files, folders or globs, as for match")
    _add_rules(learn, "a folder for learn.html, hilbert.json and tables in Parquet")
    learn.set_defaults(run=_learn)

    audit = commands.add_parser(
        "audit",
        help="a report over a rule set: duplicates, shadowed rules with their proof, mergers. On Spark",
        description="A report over a rule set: rules that match nothing, duplicates, rules that others make redundant "
        "with the proof in words, rules that could be merged, and what it saves. Exit status 1 if a rule is redundant.",
        epilog="example: thatch audit --space 'price double, symbol string' --where alerts.txt --output report",
    )
    _add_rules(audit, "a folder for audit.html and audit.json")
    audit.add_argument(
        "--merge",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="suggest mergers that add at most this share (default 0: perfect ones)",
    )
    audit.add_argument(
        "--events", action="append", default=[], metavar="FILE", help="events to count matches of; as for match"
    )
    audit.set_defaults(run=_audit)
    for command in (match, reduce, learn, audit):
        command.add_argument("--json", action="store_true", help="print JSON")


def _add_match(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "events",
        nargs="+",
        metavar="EVENTS",
        help="Parquet, CSV (with a header) or JSON (an object a line): files, folders or globs",
    )
    add_space(command)
    _add_where(command)
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
        help="clauses that are wrong and events with a value that their attribute does not allow: fail (default), or "
        "leave them out and write them to --skipped",
    )
    errors.add_argument(
        "--skipped",
        metavar="PATH",
        help="a folder for what is left out, in `events` and `clauses` (default: OUTPUT.skipped, or thatch-skipped)",
    )
    running = _add_running(command)
    running.add_argument(
        "--strategy", choices=("auto", "native", "arrow", "files"), default="auto", help="default: auto, see --explain"
    )
    running.add_argument("--explain", action="store_true", help="say which strategy would be taken and why; do nothing")


def _add_where(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--where",
        action="append",
        required=True,
        metavar="FILE",
        help="clauses, one a line, # starts a comment line, the id is FILE:LINE, - is stdin; or a table (.parquet, "
        ".csv, .json) of id and where, or of id and bounds low_NAME, high_NAME. May be given several times",
    )
    reading = command.add_argument_group("reading")
    reading.add_argument(
        "--input-format", choices=("parquet", "csv", "json"), help="default: by the names of the files"
    )
    reading.add_argument("--delimiter", default=",", metavar="CHARACTER", help="of CSV (default: a comma)")
    reading.add_argument(
        "--multiline", action="store_true", help="records may span lines: breaks within quotes, JSON in an array"
    )


def _add_rules(command: argparse.ArgumentParser, output: str) -> None:
    """What commands about subscriptions have in common."""
    add_space(command)
    _add_where(command)
    command.add_argument("--output", metavar="PATH", help=output)
    command.add_argument("--overwrite", action="store_true", help="replace an output that exists")
    command.add_argument(
        "--on-error",
        choices=("fail", "skip"),
        default="fail",
        help="clauses that are wrong and events with a value that their attribute does not allow: fail (default), or "
        "leave them out",
    )
    _add_running(command)


def _add_running(command: argparse.ArgumentParser) -> Any:
    running = command.add_argument_group("running")
    running.add_argument("--master", metavar="URL", help="of Spark (default local[*]: all cores of this machine)")
    running.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of Spark; may be given several times",
    )
    return running


def _match(options: argparse.Namespace) -> int:
    from thatch.cli.session import check_spark_is_there, spark_session

    check_spark_is_there()
    from thatch.cli import match

    settings = dict(_setting(each) for each in options.conf)
    request = match.MatchRequest(
        **_given(options), strategy=options.strategy, writing=options.format, skipped=options.skipped
    )
    start = time.perf_counter()
    with spark_session(request.space.time_zone, options.master, settings) as session:
        starting = time.perf_counter() - start
        if options.explain:
            plan = match.explained(session, request)
            print(as_text(asdict(plan)) if options.json else plan)
            return OK
        result = {**match.run(session, request), "seconds_to_start_spark": starting}
    for row in result.get("first", ()):
        row.update((name, readable(value)) for name, value in row.items())
    print(as_text(result) if options.json else "\n".join(_summary(result)))
    return OK if result["matches"] else NO


def _with_rules(options: argparse.Namespace, command: str) -> tuple[Any, float]:
    """What a command about subscriptions found, and the seconds that Spark took to start."""
    from thatch.cli.session import check_spark_is_there, spark_session

    check_spark_is_there()
    from thatch.cli import rules

    settings = dict(_setting(each) for each in options.conf)
    request = rules.RulesRequest(**_given(options), merge=getattr(options, "merge", None))
    start = time.perf_counter()
    with spark_session(request.space.time_zone, options.master, settings) as session:
        starting = time.perf_counter() - start
        return getattr(rules, command)(session, request), starting


def _given(options: argparse.Namespace) -> dict[str, Any]:
    """What all of them take, as fields of a request."""
    from thatch.cli.inputs import Format, is_table

    space = space_of(options.space, options.time_zone)
    lines = [name for name in options.where if not is_table(name)]
    return {
        "space": space,
        "clauses": list(counted_up(clauses_of([], lines))),
        "tables": [name for name in options.where if is_table(name)],
        "events": options.events,
        "reading": Format(options.input_format, options.delimiter, options.multiline),
        "skip": options.on_error == "skip",
        "output": options.output,
        "overwrite": options.overwrite,
    }


def _reduce(options: argparse.Namespace) -> int:
    result, starting = _with_rules(options, "reduced")
    result["seconds_to_start_spark"] = starting
    print(as_text(result) if options.json else _text("reduced_text", result))
    return OK if result["passive"] else NO


def _learn(options: argparse.Namespace) -> int:
    result, starting = _with_rules(options, "learnt")
    result["seconds_to_start_spark"] = starting
    print(as_text(result) if options.json else _text("learnt_text", result))
    return OK


def _audit(options: argparse.Namespace) -> int:
    (found, result), starting = _with_rules(options, "audited")
    result["seconds_to_start_spark"] = starting
    if options.json:
        print(as_text(result if options.output else {**result, "audit": found.to_json()}))
    else:
        print(_text("audited_text", found, result))
    return NO if found.findings else OK


def _text(name: str, *arguments: Any) -> str:
    from thatch.cli import rules_text as rules_text

    return "\n".join(getattr(rules_text, name)(*arguments))


def _cell(value: Any) -> str:
    text = " ".join(shown_value(value)[: CELL_SHOWN * 2].splitlines())
    return text if len(text) <= CELL_SHOWN else text[: CELL_SHOWN - 3] + "..."


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise CallerError(f"--conf is KEY=VALUE, not {text!r}")
    return name, value


def _summary(result: dict[str, Any]) -> Iterator[str]:
    from thatch.cli.tabular import counted, table

    first = result.get("first")
    if first:
        rows = [list(first[0]), *([_cell(value) for value in row.values()] for row in first)]
        yield table(rows)
        left = result["matches"] - len(first)
        yield f"and {left:,} more; --output PATH writes them all\n" if left else ""
    yield (
        f"{counted(result['events'], 'event')}, {counted(result['subscriptions'], 'subscription')}: "
        f"{counted(result['matches'], 'match')} in {result['seconds']:.1f} s, after "
        f"{result['seconds_to_start_spark']:.1f} s to start Spark"
    )
    yield f"strategy {result['strategy']}: {result['reason']}"
    skipped = result["skipped"]
    if "path" in skipped:
        events, clauses = counted(skipped["events"], "event"), counted(skipped["clauses"], "clause")
        yield f"skipped {events} and {clauses}: they are in {skipped['path']}"
    if "output" in result:
        yield f"written to {result['output']}"
