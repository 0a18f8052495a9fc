"""Errors, split by whose fault they are.

Every error names the rule that was broken, the value that broke it, where, and what to do about it.
`CallerError` is a `ValueError`: code that guards against bad input in general catches it too.
"""

from __future__ import annotations

import difflib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from datetime import date
from decimal import Decimal
from itertools import islice
from typing import Any, Literal, cast, get_args

# What a refusal says to programs, over the wire too. docs/protocol.md says what each means; none changes its meaning.
Code = Literal[
    "advertisement", "clause", "cycle", "disk_full", "event", "history", "id", "invalid", "kind", "later", "lease",
    "limit", "moved", "name", "not_allowed", "order", "protocol", "routing", "space", "store", "unaccepted",
    "unknown_id", "version",
]  # fmt: skip
TOO_LARGE, TOO_MANY_TERMS = "clause too large", "too many terms"  # constructs of errors about limits of clauses
NAMES_LISTED = 12  # of what there is, in an error about a name that is not known
NAMES_COMPARED, NAME_COMPARED = 500, 80  # names, and characters of each, that a misspelt one is compared with


class ThatchError(Exception):
    """Anything that Thatch raises on purpose. `code` is for programs: it stays when the words of an error change."""

    code: Code = "invalid"

    def __init__(self, *args: Any, code: Code | None = None) -> None:
        super().__init__(*args)
        if code is not None:
            self.code = code


class CallerError(ThatchError, ValueError):
    """The caller handed in something that cannot be used."""


class SpaceError(CallerError):
    """A space, or an attribute of one, is not well defined. `line` and `column` say where in its text; 0 if nowhere."""

    code: Code = "space"
    line, column = 0, 0
    rule = ""  # the error without its place

    def within(self, file: str) -> SpaceError:
        """The same error, with the file that the space is in."""
        place = f"{file}:{self.line}:{self.column}" if self.line else file
        return SpaceError(f"{place}: {self.rule or self}")


class EventError(CallerError):
    """A value does not fit its attribute: wrong type, outside the domain, or missing."""

    code: Code = "event"

    def __init__(self, attribute: str, value: Any, rule: str, row: int | None = None) -> None:
        place = f"attribute {attribute!r}" if row is None else f"attribute {attribute!r}, row {row}"
        super().__init__(f"{place}: {_plain(value, rule)} {rule}")
        self.attribute = attribute
        self.value = value
        self.rule = rule
        self.row = row

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.attribute, self.value, self.rule, self.row)

    def at_row(self, row: int) -> EventError:
        return EventError(self.attribute, self.value, self.rule, row)


def _plain(value: Any, rule: str) -> str:
    """A value of an event for an error: as SQL and JSON have it, and as Python does where its type is what is wrong."""
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "true", False: "false"}[value]
    if isinstance(value, Decimal | date) and not rule.startswith("is not"):
        return str(value)
    text = shown(value)
    return re.sub(r"Decimal\('([^']*)'\)", r"\1", text) if isinstance(value, list | dict) else text


MALFORMED_CLAUSE = "malformed clause"  # the construct of most errors in clauses


class ClauseError(CallerError):
    """A WHERE clause is malformed, or uses what is not supported. Lines and columns count from 1. `construct` names
    what it is that cannot be used, so that many errors can be counted by it."""

    offset = 0  # the place in characters from the beginning of the clause

    def __init__(
        self, rule: str, line: int = 1, column: int = 1, hint: str = "", construct: str = MALFORMED_CLAUSE
    ) -> None:
        text = f"line {line}, column {column}: {rule}" + (f" ({hint})" if hint else "")
        super().__init__(text, code="limit" if construct in (TOO_LARGE, TOO_MANY_TERMS) else "clause")
        self.rule = rule
        self.line = line
        self.column = column
        self.hint = hint
        self.construct = construct

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.rule, self.line, self.column, self.hint, self.construct)

    @property
    def reason(self) -> str:
        """The rule and the hint, without the place."""
        return self.rule + (f" ({self.hint})" if self.hint else "")

    def within(self, place: str) -> ClauseError:
        """The same error, with the place of the clause."""
        error = copy(self)
        error.args = (f"{place}: {self}",)
        return error


class BadRows(CallerError):
    """Rows of tables that cannot be used: what is wrong with the first few, and how to leave them out."""

    def __init__(self, lines: Sequence[str], more: str = "", skip: str = "on_error='skip'") -> None:
        listed = "\n".join([*lines, *([more] if more else [])])
        super().__init__(f"{listed}\nCorrect them" + (f", or leave them out with {skip}" if skip else ""))
        self.lines, self.more, self.skip = list(lines), more, skip

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.lines, self.more, self.skip)


class TooManyTerms(ClauseError):
    """A clause, written out as a union of terms, has more of them than the cap allows."""

    def __init__(self, needed: int, cap: int) -> None:
        super().__init__(
            f"the clause needs {needed:,} terms, at most {cap:,} are allowed",
            hint="split it into several subscriptions, or write alternatives of one attribute as an IN list",
            construct=TOO_MANY_TERMS,
        )
        self.needed = needed
        self.cap = cap

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.needed, self.cap)


class UnknownSubscription(CallerError, KeyError):
    """No subscription has this id."""

    code: Code = "unknown_id"

    def __init__(self, id: Any) -> None:
        super().__init__(f"no subscription {shown(id)}")
        self.id = id

    def __str__(self) -> str:  # KeyError's would quote the message
        return str(self.args[0])

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.id,)


class PeerError(ThatchError):
    """A neighbour or a client broke the protocol: it gets the reason, and is hung up on."""

    code: Code = "protocol"


class SnapshotError(CallerError):
    """A file is not a snapshot of a table, or is damaged."""


class StoreError(ThatchError):
    """The store of a broker cannot be used: it belongs to another broker, is damaged, or its disk fails."""


class OldCopyError(StoreError):
    """The store of a broker is an old copy, or another copy of it is in use: a neighbour that knows more refuses it."""

    code: Code = "history"


class ConfigError(CallerError):
    """A setting of a broker cannot be used."""


class Unavailable(ThatchError):
    """A broker cannot be reached, or cannot do it now: worth another try later."""


class TimedOut(Unavailable, TimeoutError):
    """A call has waited too long. `awaited` says for what: it may still come about."""

    def __init__(self, awaited: str, seconds: float) -> None:
        super().__init__(f"waited {seconds:g} seconds for {awaited}")
        self.awaited = awaited
        self.seconds = seconds

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.awaited, self.seconds)


class EmptyRegionWarning(UserWarning):
    """A subscription that no event can match: legal, and hardly meant."""


class TooManyBoxes(CallerError):
    """A region, expanded into plain boxes, has more of them than the caller allows."""

    def __init__(self, needed: int, cap: int) -> None:
        super().__init__(f"the region needs {needed:,} boxes, at most {cap:,} are allowed here")
        self.needed = needed
        self.cap = cap

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.needed, self.cap)


def code_of(text: str) -> Code:
    """The code that a peer sent; one that is not known here, or none, says no more than that it was refused."""
    return cast(Code, text) if text in get_args(Code) else "invalid"


# What may be missing, and the extra that has it.
EXTRAS = {"aiohttp": "node", "pyspark": "spark", "py4j": "spark", "pandas": "spark", "matplotlib": "sim"}


def missing_extra(error: ModuleNotFoundError, extra: str | None = None) -> str | None:
    """What to install for a module that is missing; None if it is of no extra of ours. `extra`: the one to name, where
    several have it.

    >>> missing_extra(ModuleNotFoundError(name="pyspark.sql"))
    "this needs pyspark, which is not installed: pip install 'thatch[spark]'"
    """
    name = (error.name or "").partition(".")[0]
    if name not in EXTRAS:
        return None
    return f"this needs {name}, which is not installed: pip install 'thatch[{extra or EXTRAS[name]}]'"


@contextmanager
def imports_of_extra(extra: str) -> Iterator[None]:
    """Around imports: if a module is missing, the error says which extra has it."""
    try:
        yield
    except ModuleNotFoundError as error:
        advice = missing_extra(error, extra)
        if advice is None:
            raise
        raise ModuleNotFoundError(advice, name=error.name) from None


# What may stand at a path where a regular file is expected, by the type in its mode.
_NOT_FILES = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a symbolic link",
}


def what_is_no_file(path: str | os.PathLike[str], follow: bool = True) -> str:
    """What stands at a path, if it is there and no regular file, without opening it; else "". `follow`: what symbolic
    links lead to is meant.

    >>> what_is_no_file("/dev/null"), what_is_no_file("/")
    ('a device', 'a folder')
    """
    try:
        mode = os.stat(path, follow_symlinks=follow).st_mode
    except (OSError, ValueError):  # the latter of what no file can be called
        return ""
    return "" if stat.S_ISREG(mode) else _NOT_FILES.get(stat.S_IFMT(mode), "no file")


def check_regular(path: str | os.PathLike[str], follow: bool = True) -> None:
    """Refuse what is there and no regular file: opening a pipe may wait for ever, and a device may never end."""
    what = what_is_no_file(path, follow)
    if what:
        raise CallerError(f"{os.fspath(path)} is not a regular file: it is {what}")


def check_on_error(on_error: str) -> None:
    """What a call does with bad rows: it raises, or leaves them out."""
    if on_error not in ("raise", "skip"):
        close = suggestion(on_error, ("raise", "skip"))
        raise CallerError(f"on_error is 'raise' or 'skip', not {shown(on_error)}{close}")


def closest(name: Any, known: Iterable[str]) -> str | None:
    """The known name that a misspelt one is likely to mean, whatever its case.

    >>> closest("Prise", ["symbol", "price"]), closest("x", ["symbol", "price"])
    ('price', None)
    """
    by_lower = {each[:NAME_COMPARED].lower(): each for each in islice(known, NAMES_COMPARED)}
    found = difflib.get_close_matches(str(name)[:NAME_COMPARED].lower(), by_lower, 1)
    return by_lower[found[0]] if found else None


def suggestion(name: Any, known: Iterable[str]) -> str:
    """What to add to an error about a name that is not known: the name it resembles, if there is one.

    >>> suggestion("prise", ["symbol", "price"]), suggestion("x", ["symbol", "price"])
    (" (did you mean 'price'?)", '')
    """
    close = closest(name, known)
    return "" if close is None else f" (did you mean {close!r}?)"


def toml_problem(error: ValueError, text: str = "") -> str:
    """Where a text is not TOML, and why, in words of ours: the parser's place, and a look at the text there.

    >>> import tomllib
    >>> for text in ("a = 1\\nb = x", "a = 1\\na = 2", "a = 'x", "a = [1"):
    ...     try:
    ...         tomllib.loads(text)
    ...     except ValueError as error:
    ...         print(toml_problem(error, text))
    line 2, column 5 cannot be read: texts stand in quotes, a key and its value are joined by =
    line 2: 'a' is given twice
    line 1: a quote is not closed
    line 1: a bracket is not closed
    """
    said = str(error)
    place = re.search(r"\(at (?:line (\d+), column (\d+)|end of document)\)", said)
    if place is None:
        return "it is not UTF-8 text" if isinstance(error, UnicodeError) else "a value in it cannot be read"
    lines = text.splitlines()
    number = int(place[1]) if place[1] else max(len(text.rstrip().splitlines()), 1)
    line = lines[number - 1] if number <= len(lines) else ""
    if "Cannot overwrite" in said or "Cannot declare" in said or "Cannot mutate" in said:
        key = line.partition("=")[0] if "=" in line else line.partition("#")[0]
        name = key.strip().strip("[]").strip(" \"'")
        return f"line {number}: {name!r} is given twice" if name else f"line {number}: a key is given twice"
    if said.startswith(("Unterminated string", "Illegal character '\\n'", 'Expected "\'"', "Expected '\"'")):
        return f"line {number}: a quote is not closed"
    if "Unclosed" in said or "Expected ']'" in said or "Expected '}'" in said:
        return f"line {number}: a bracket is not closed"
    if place[1] is None and (opened := [at for at, each in enumerate(lines, 1) if each.count("[") > each.count("]")]):
        return f"line {opened[-1]}: a bracket is not closed"
    if place[1] is None:
        return "it ends too early: a quote or a bracket is not closed, or a value is missing"
    return (
        f"line {number}, column {place[2]} cannot be read: texts stand in quotes, a key and its value are joined by ="
    )


def unknown(what: str, name: Any, known: Iterable[str]) -> str:
    """An error about a name that is not known: the one it resembles, or those that there are.

    >>> unknown("cover engine", "exat", ["exact", "pairwise"])
    "no cover engine 'exat' (did you mean 'exact'?)"
    >>> unknown("cover engine", "magic", ["exact", "pairwise"])
    "no cover engine 'magic'; there are exact, pairwise"
    """
    names = list(known)
    listed = ", ".join(names[:NAMES_LISTED]) + (", …" if len(names) > NAMES_LISTED else "")
    return f"no {what} {shown(name)}" + (suggestion(name, names) or f"; there are {listed}")


def shown(value: Any, width: int = 80) -> str:
    """A value for an error message, cut so that a huge one does not flood the log.

    >>> shown("x" * 1000, 12)
    "'xxxxxxxx..."
    """
    if isinstance(value, int) and value.bit_length() > 1024:
        return f"an int of {value.bit_length():,} bits"
    text = repr(value[: width * 2] if isinstance(value, str | bytes) else value)
    return text if len(text) <= width else text[: width - 3] + "..."
