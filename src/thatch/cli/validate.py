"""`thatch validate`: check WHERE clauses against a space."""

from __future__ import annotations

import argparse
from typing import Any

from thatch.cli.arguments import NO, OK, add_files, add_json, add_space, as_text, clauses_of, counted_up, space_of
from thatch.errors import CallerError, ClauseError
from thatch.space.space import Space


def add(commands: Any) -> None:
    command = commands.add_parser(
        "validate",
        help="check WHERE clauses against a space",
        description="Check WHERE clauses against a space. Errors name their place. Exit status 1 if a clause is wrong.",
        epilog="example: thatch validate --space 'price double not null 0..1000, symbol string' \"price < 20\"",
    )
    command.add_argument("clauses", nargs="*", metavar="CLAUSE", help="a clause")
    add_space(command)
    add_files(command)
    add_json(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
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
