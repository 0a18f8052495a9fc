"""What several commands take: a space, clauses with their places, JSON. And how they end."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from thatch.cli.tabular import marked
from thatch.cli.terminal import clear_progress, is_terminal, show_progress
from thatch.errors import CallerError, ClauseError, SpaceError, shown, what_is_no_file
from thatch.region.region import Region
from thatch.space.space import Space

OK, NO, BAD_INPUT, FAULT, OLD_COPY = 0, 1, 2, 3, 4  # exit statuses
STDIN = "-"
THE_CLAUSE = "the clause"  # its place in messages, like `clause 1` and `file:7`


class AnsweredError(CallerError):
    """An error that the answer in JSON, which has been printed, names already."""


def add_space(command: argparse.ArgumentParser, required: bool = True) -> None:
    default = "" if required else "; default: as the events have it, if they are Parquet"
    command.add_argument(
        "--space",
        required=required,
        help=f"'name type [not null] [low..high], …', or a file that holds it (text or JSON){default}",
    )
    command.add_argument("--time-zone", help="of dates and timestamps without one (default UTC; JSON has its own)")


def add_files(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--file",
        "--where",
        dest="file",
        action="append",
        default=[],
        metavar="FILE",
        help="rules: a clause a line, # starts a comment line, - is stdin; or a .yaml, .toml, .json, .csv or "
        ".parquet file with id and where",
    )


def add_delimiter(command: Any) -> None:
    command.add_argument(
        "--delimiter", default=",", metavar="CHARACTER", help="of CSV (default: a comma; a tab in .tsv), or `tab`"
    )


def delimiter_of(text: str) -> str:
    """A character, also as people write a tab on a command line."""
    mark = "\t" if text in ("\\t", "tab") else text
    if len(mark) != 1 or not mark.isascii() or mark in '"\r\n':
        raise CallerError(f"--delimiter is one character, such as ';', not {shown(text)}")
    return mark


def announce_stdin(files: Sequence[str]) -> None:
    """Somebody at a terminal is told that it is up to them."""
    if STDIN in files and is_terminal(sys.stdin):
        print("clauses, one a line; Ctrl-D ends", file=sys.stderr)


def add_json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print JSON")


def space_of(text: str, time_zone: str | None) -> Space:
    """A space written out, or in a file; JSON if it looks like it."""
    file = None
    if _is_file(text):
        file, text = text, _content(text)
    elif os.path.isdir(text):
        raise CallerError(f"--space: {text} is a folder: give a file in it, or a space like 'price double'")
    elif " " not in text.strip() and not text.startswith("{"):
        raise CallerError(
            f"--space {text!r} is neither a space like 'price double' nor a file that exists; a space stands in quotes"
        )
    return _parsed(text, time_zone, file)


def _parsed(text: str, time_zone: str | None, file: str | None) -> Space:
    """`file`: where the text stood, if it did in one."""
    if text.lstrip().startswith("{") and time_zone is not None:
        raise CallerError("a space in JSON has its own time zone: leave out --time-zone")
    try:
        if text.lstrip().startswith("{"):
            return Space.from_json(text)
        return Space.parse(text, "UTC" if time_zone is None else time_zone)
    except SpaceError as error:
        if file is None:
            raise
        meant = ". Is this a file of rules? They are given with --where" if _has_rules(file, text) else ""
        raise CallerError(f"{error.within(file)}{meant}") from None


def space_text(text: str) -> str:
    """A space written out, or what its file holds; checked if it is a file."""
    if not _is_file(text):
        if os.path.isdir(text) or (text and " " not in text.strip() and not text.startswith("{")):
            space_of(text, None)  # refuses it
        return text
    content = _content(text)
    _parsed(content, None, text)
    return content


def _is_file(text: str) -> bool:
    """Whether it is the path of a file, or of a pipe such as `<(…)` makes; False of what no file can be called."""
    return os.path.isfile(text) or what_is_no_file(text) == "a named pipe"


def _content(file: str) -> str:
    from thatch.local.files import decoded

    return decoded(Path(file).read_bytes(), file).removeprefix("\ufeff")


def _has_rules(file: str, text: str) -> bool:
    """Whether a file that holds no space looks like one of rules."""
    first = text[:1_000].lower()
    return file.endswith((".yaml", ".yml", ".toml", ".csv")) or any(
        each in first for each in ("<", ">", " = ", "where", " in (", " like ", " between ", " is ")
    )


class NamedClause(NamedTuple):
    name: str  # `clause 1`, or the id in a file of rules
    clause: str
    place: str  # the same, or file and line
    problem: str | None = None  # why there is no clause


def clauses_of(given: Sequence[str], files: Sequence[str], delimiter: str = ",") -> Iterator[NamedClause]:
    """Clauses of arguments and of files of rules."""
    for number, clause in enumerate(given, 1):
        yield NamedClause(f"clause {number}", clause, f"clause {number}")
    announce_stdin(files)
    empty, has_rules = list[str](), bool(given)
    for name in files:
        rules = list(_rules(name, delimiter_of(delimiter)))
        yield from rules
        empty += [] if rules else [name]
        has_rules |= bool(rules)
    check_rules(empty, has_rules)


def check_rules(empty: Sequence[str], has_rules: bool) -> None:
    """Files without rules: an error if there are no others, else a warning."""
    for name in empty:
        if not has_rules:
            raise CallerError(f"{name}: holds no rules")
        print(f"thatch: {name}: holds no rules", file=sys.stderr)


def _rules(name: str, delimiter: str) -> Iterator[NamedClause]:
    from thatch.local.files import Format
    from thatch.local.rule_files import columns_problem, rules_in

    rules = rules_in(name, Format(None, delimiter))
    problem = columns_problem(rules.table.schema.names, needs_clauses=True)
    if problem is not None:
        raise CallerError(f"{name}: {problem}")
    for each in rules.unread:
        yield NamedClause(str(each.id or "?"), each.clause or "", each.place or name, each.rule)
    ids, clauses = (rules.table.column(column).to_pylist() for column in ("id", "where"))
    places = ids if rules.places is None else rules.places(range(len(ids)))
    for id, clause, place in zip(ids, clauses, places, strict=True):
        problem = "the clause is NULL: write TRUE for a subscription to everything" if clause is None else None
        yield NamedClause(str(id), clause or "", place, problem)


def counted_up(items: Iterator[NamedClause]) -> Iterator[NamedClause]:
    """Count long work on a terminal; quiet in a pipe."""
    for count, item in enumerate(items, 1):
        if count % 5_000 == 0:
            show_progress(f"{count:,} clauses")
        yield item
    clear_progress()


def named_clauses(items: Iterator[NamedClause]) -> dict[str, str]:
    """Clauses by their names, which are given once."""
    found: dict[str, str] = {}
    for name, clause, place, problem in counted_up(items):
        if problem is not None:
            raise CallerError(f"{place}: {problem}")
        if name in found:
            raise CallerError(f"{place}: two rules have the id {shown(name)}: an id is given once")
        found[name] = clause
    return found


def as_text(value: Any) -> str:
    """Text that is not valid Unicode, as a shell may pass it, is shown with its bytes escaped."""
    try:
        encoded = msgspec.json.encode(value)
    except UnicodeEncodeError:
        encoded = json.dumps(value).encode()
    return msgspec.json.format(encoded, indent=1).decode()


def shown_value(value: Any) -> str:
    return "NULL" if value is None else str(value)


def compiled(place: str, clause: str, space: Space) -> Region:
    """The region of a clause; an error names its place."""
    try:
        return space.where(clause)
    except ClauseError as error:
        raise CallerError(f"{place}: {error}\n{marked(clause, error.line, error.column)}") from None
