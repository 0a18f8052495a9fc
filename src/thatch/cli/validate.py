"""`thatch validate`: check WHERE clauses against a space."""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from thatch.cli.arguments import (
    NO,
    OK,
    NamedClause,
    add_delimiter,
    add_files,
    add_json,
    add_space,
    as_text,
    clauses_of,
    counted_up,
    space_of,
)
from thatch.cli.tabular import marked
from thatch.errors import CallerError, ClauseError
from thatch.space.space import Space
from thatch.space.times import zone_of
from thatch.where.names import names_in
from thatch.where.reasons import why_empty

COUNTED = 20  # constructs that are listed
UNREADABLE = "rule without an id of its own or without a clause"


def add(commands: Any) -> None:
    command = commands.add_parser(
        "validate",
        help="check WHERE clauses against a space",
        description="Check WHERE clauses against a space. Errors name their place, and are counted by what cannot be "
        "used. Exit status 1 if a clause is wrong.",
        epilog="example: thatch validate --space 'price double not null 0..1000, symbol string' \"price < 20\"",
    )
    command.add_argument("clauses", nargs="*", metavar="CLAUSE", help="a clause")
    add_space(command, required=False)
    command.add_argument(
        "--events", metavar="FILE", help="Parquet files whose columns the clauses are about, in place of --space"
    )
    add_files(command)
    add_delimiter(command)
    add_json(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if not options.clauses and not options.file:
        raise CallerError("nothing to validate: give a CLAUSE or --file FILE")
    for clause in options.clauses:
        if os.path.isfile(clause):
            raise CallerError(f"{clause} is a file: --file {clause}")
    given = list(_unique(clauses_of(options.clauses, options.file, options.delimiter)))
    space = _space(options, given)
    checked = [_checked(each, space) for each in counted_up(iter(given))]
    constructs = Counter(each["construct"] for each in checked if not each["valid"])
    wrong = constructs.total()
    if options.json:
        result = {"clauses": checked, "valid": len(checked) - wrong, "invalid": wrong}
        print(as_text(result | {"refused_by_construct": dict(constructs.most_common())}))
    else:
        for each in checked:
            if not each["valid"]:
                print(_pointed(each))
            elif len(checked) == 1:
                print(f"valid: {each['sql']}")
            if each.get("note"):
                named = "" if each["id"] == each["place"] else f", rule {each['id']}"
                print(f"{each['place']}{named}: valid, {each['note']}")
        if wrong > 1:
            print("\n".join(_counts(constructs)))
        print(f"{len(checked) - wrong:,} of {len(checked):,} clauses are valid")
    return NO if wrong else OK


def _unique(clauses: Iterator[NamedClause]) -> Iterator[NamedClause]:
    """A rule with the id of another one is refused where the others are used."""
    places: dict[str, str] = {}
    for each in clauses:
        if each.problem is None and each.name in places:
            each = each._replace(problem=f"has the id {each.name!r}, which {places[each.name]} has, too")
        else:
            places[each.name] = each.place
        yield each


def _space(options: argparse.Namespace, given: Sequence[NamedClause]) -> Space:
    if (options.space is None) == (options.events is None):
        raise CallerError("give either --space, or --events FILE in Parquet, whose columns clauses are about")
    if options.space is not None:
        return space_of(options.space, options.time_zone)
    from thatch.local.files import Format
    from thatch.local.sources import events_of

    source = events_of(options.events, Format())
    if not source.has_types:
        raise CallerError("CSV and JSON have no types: declare the space of the events with --space")
    zone = "UTC" if options.time_zone is None else options.time_zone
    paths = names_in([each.clause for each in given], zone_of(zone))
    return Space.of_columns(source.schema, paths, zone, on_error="skip")


def _counts(constructs: Counter[str]) -> Iterator[str]:
    """How many clauses are refused for what, the most first."""
    yield "refused:"
    width = len(f"{max(constructs.values()):,}")
    for construct, count in constructs.most_common(COUNTED):
        yield f"  {count:>{width},}  {construct}"
    rest = constructs.total() - sum(count for _, count in constructs.most_common(COUNTED))
    if rest:
        yield f"  {rest:>{width},}  others"


def _checked(each: NamedClause, space: Space) -> dict[str, Any]:
    found: dict[str, Any] = {"place": each.place, "id": each.name, "clause": each.clause}
    if each.problem is not None:
        wrong = {"construct": UNREADABLE, "line": None, "column": None, "rule": each.problem, "hint": ""}
        return found | {"valid": False} | wrong
    try:
        region = space.where(each.clause)
    except ClauseError as error:
        found |= {"valid": False, "construct": error.construct, "line": error.line, "column": error.column}
        return found | {"rule": error.rule, "hint": error.hint}
    found |= {"valid": True, "sql": region.to_sql(), "terms": len(region.terms)}
    if found["sql"] == "FALSE":
        why = why_empty(each.clause, space)
        found["note"] = "but no event can match it" + (f": {why}" if why else "")
    elif found["sql"] == "TRUE" and each.clause.strip().upper() != "TRUE":
        found["note"] = "and it matches every event"
    return found


def _pointed(wrong: dict[str, Any]) -> str:
    """An error with the line it is in and a mark below the column, as compilers do."""
    if wrong["line"] is None:
        record = f"\n    {wrong['clause']}" if wrong["clause"] else ""
        return f"{wrong['place']}: {wrong['rule']}{record}"
    where = wrong["place"]
    if wrong["id"] != where:
        where = f"{where}, rule {wrong['id']}, line {wrong['line']}, column {wrong['column']}"
    else:
        where += f":{wrong['column']}" if wrong["line"] == 1 else f", line {wrong['line']}"
    hint = f" ({wrong['hint']})" if wrong["hint"] else ""
    return f"{where}: {wrong['rule']}{hint}\n{marked(wrong['clause'], wrong['line'], wrong['column'])}"
