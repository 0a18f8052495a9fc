"""`thatch covers`: is a clause covered by others, and which ones prove it?"""

from __future__ import annotations

import argparse
from typing import Any

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
    space_of,
)


def add(commands: Any) -> None:
    command = commands.add_parser(
        "covers",
        help="is a clause covered by others, and which ones prove it?",
        description="Is a clause covered by the union of the others? Exit status 1 if it is not, or not proven.",
        epilog="example: thatch covers --space 'price int not null' --by 'price < 20' --by 'price >= 20' 'price < 50'",
    )
    command.add_argument("clause", metavar="CLAUSE", help="the clause that may be covered")
    command.add_argument("--by", action="append", default=[], metavar="CLAUSE", help="a clause that may cover it")
    command.add_argument("--cover", default="exact", metavar="ENGINE", help="a cover engine (default exact)")
    add_space(command)
    add_files(command)
    add_json(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from thatch.cli.evidence import evidence
    from thatch.cover import covers

    space = space_of(options.space, options.time_zone)
    clauses = named_clauses(clauses_of(options.by, options.file))
    members = {place: compiled(place, clause, space) for place, clause in clauses.items()}
    verdict = covers(members, compiled(THE_CLAUSE, options.clause, space), space, options.cover)
    result, lines = evidence(verdict, clauses, space)
    print(as_text(result) if options.json else "\n".join(lines))
    return OK if result["covered"] else NO
