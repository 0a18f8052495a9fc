"""`thatch explain`: why is a clause active or passive, and why does it not match an event?"""

from __future__ import annotations

import argparse
import sys
import warnings
from typing import TYPE_CHECKING, Any

from thatch.cli.arguments import (
    NO,
    OK,
    THE_CLAUSE,
    add_files,
    add_json,
    add_space,
    as_text,
    clauses_of,
    compiled,
    named_clauses,
    shown_value,
    space_of,
)
from thatch.errors import CallerError, EmptyRegionWarning, shown, unknown
from thatch.region.region import Region
from thatch.space.json_values import read_json, readable, typed_event
from thatch.space.space import Space
from thatch.where.reasons import why_empty

if TYPE_CHECKING:
    from thatch.table.explain import Explanation


def add(commands: Any) -> None:
    command = commands.add_parser(
        "explain",
        help="why is a clause active or passive, and why does it not match an event?",
        description="Explain a clause as a subscription among others: passive, with those that cover it, or active, "
        "with an event that only it wants. With --event: whether it matches that event, and which conditions fail; "
        "exit status 1 if it does not match.",
        epilog="example: thatch explain --space 'price int not null, day date' --by 'price < 20' \"price < 50 AND "
        'day >= DATE\'2026-01-01\'" --event \'{"price": 5, "day": "2025-12-31"}\'',
    )
    command.add_argument("clause", metavar="CLAUSE", help="the clause to explain")
    command.add_argument("--by", action="append", default=[], metavar="CLAUSE", help="another subscription")
    command.add_argument(
        "--event",
        metavar="JSON",
        help="an object: dates, timestamps and NaN as strings, decimals as either; missing attributes are NULL, "
        "unknown ones are named and ignored",
    )
    add_space(command)
    add_files(command)
    add_json(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from thatch.cli.evidence import evidence
    from thatch.table.table import SubscriptionTable

    space = space_of(options.space, options.time_zone)
    given = None if options.event is None else _object(options.event)
    for name in given or ():
        if space.index(name) is None:
            print(_stranger(name, space), file=sys.stderr)
    event = None if given is None else typed_event(given, space)
    clauses = named_clauses(clauses_of(options.by, options.file))
    table = SubscriptionTable(space)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EmptyRegionWarning)  # said below, or not asked for
        table.subscribe_many(list(clauses), [compiled(place, clause, space) for place, clause in clauses.items()])
        region = compiled(THE_CLAUSE, options.clause, space)
        verdict = table.subscribe(THE_CLAUSE, region).verdict
    assert verdict is not None  # covering is on
    if event is None:
        status = "active" if table[THE_CLAUSE].active else "passive"
        result, lines = evidence(verdict, clauses, space)
        print(
            as_text({"status": status, **result}) if options.json else "\n".join([f"{status}: {lines[0]}", *lines[1:]])
        )
        return OK
    why = table.explain(THE_CLAUSE, event)
    print(as_text(_outcome(why)) if options.json else "\n".join(_explained(why, region, options.clause)))
    return OK if why.matches else NO


def _outcome(why: Explanation) -> dict[str, Any]:
    failures = [
        {"condition": each.condition, "values": {name: readable(value) for name, value in each.values.items()}}
        for each in why.failures or ()
    ]
    return {"matches": why.matches, "failures": failures}


def _stranger(name: str, space: Space) -> str:
    """A key of the event that no clause can ask for."""
    names = [attribute.name for attribute in space]
    return f"thatch: {shown(name)} of the event is ignored: {unknown('attribute', name, names)}"


def _object(text: str) -> dict[str, Any]:
    """The event that is typed after --event."""
    if not text.lstrip().startswith(("{", "[")):
        given = "give the object itself, such as '{\"price\": 5}'"
        raise CallerError(f"--event is not an object in JSON: {given}, not {shown(text)}")
    found: dict[str, Any] = read_json(text, "--event")
    return found


def _explained(why: Explanation, region: Region, clause: str) -> list[str]:
    if why.matches:
        return ["the event matches"]
    if region.is_empty:
        reason = why_empty(clause, region.space)
        return ["the event does not match: no event can match the clause" + (f": {reason}" if reason else "")]
    count = len(region.terms)
    lines = ["the event does not match:" if count == 1 else f"none of {count:,} alternatives matches; the nearest one:"]
    for each in why.failures or ():
        values = ", ".join(f"{name} is {shown_value(readable(value))}" for name, value in each.values.items())
        lines.append(f"  {each.condition} fails: {values}")
    return lines
