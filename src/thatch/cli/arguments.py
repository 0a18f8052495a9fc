"""What several commands take: a space, clauses with their places, JSON. And how they end."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

import msgspec

from thatch.errors import CallerError, ClauseError
from thatch.region.region import Region
from thatch.space.space import Space

OK, NO, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130  # exit statuses
THE_CLAUSE = "the clause"  # its place in messages, like `clause 1` and `file:7`


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
        action="append",
        default=[],
        metavar="FILE",
        help="clauses, one a line, # starts a comment line; - is stdin",
    )


def add_json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print JSON")


def space_of(text: str, time_zone: str | None) -> Space:
    """A space written out, or in a file; JSON if it looks like it."""
    if len(text) < 4096 and "\0" not in text and Path(text).is_file():
        try:
            text = Path(text).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise CallerError(f"{text}: not UTF-8 text: {error.reason} at byte {error.start}") from None
    elif " " not in text.strip():
        raise CallerError(f"--space {text!r} is neither a space like 'price double' nor a file that exists")
    if text.lstrip().startswith("{"):
        if time_zone is not None:
            raise CallerError("a space in JSON has its own time zone: leave out --time-zone")
        return Space.from_json(text)
    return Space.parse(text, time_zone or "UTC")


def clauses_of(given: Sequence[str], files: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each clause with its place: an argument's number, or file and line."""
    for number, clause in enumerate(given, 1):
        yield f"clause {number}", clause
    for name in files:
        if name == "-":
            yield from _lines("stdin", sys.stdin)
        else:
            with open(name, encoding="utf-8") as file:
                yield from _lines(name, file)


def _lines(name: str, file: TextIO) -> Iterator[tuple[str, str]]:
    try:
        for number, line in enumerate(file, 1):
            if line.strip() and not line.lstrip().startswith("#"):
                yield f"{name}:{number}", line.rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise CallerError(f"{name}: not UTF-8 text: {error.reason} at byte {error.start}") from None


def counted_up(items: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Count long work on a terminal; quiet in a pipe."""
    loud = sys.stderr.isatty()
    count = 0
    for count, item in enumerate(items, 1):
        if loud and count % 5_000 == 0:
            print(f"\r{count:,} clauses", end="", file=sys.stderr, flush=True)
        yield item
    if loud and count >= 5_000:
        print("\r" + " " * 30 + "\r", end="", file=sys.stderr, flush=True)


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
        raise CallerError(f"{place}: {error}") from None
