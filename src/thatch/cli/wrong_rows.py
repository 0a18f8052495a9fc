"""Subscriptions and events that cannot be used, in the words of the command line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from thatch.cli.tabular import marked
from thatch.errors import BadRows

NAMED = 3  # clauses or events that an error names
CLAUSE_SHOWN = 200  # characters of a clause that an error repeats
SKIP = "--on-error skip"
MORE_RULES = "and more: `thatch validate --file FILE` lists them all"


def wrong_clause(
    id: Any, clause: str | None, line: int | None, column: int | None, rule: str, place: str | None = None
) -> str:
    """One subscription with the place of its mistake: where it stands, and where in its clause."""
    within = "" if line is None else f"line {line}, column {column}: "
    if clause is None:
        text = ""
    elif line is None or column is None:
        text = "\n    " + clause.rstrip()[:CLAUSE_SHOWN].replace("\n", "\n    ")
    else:
        text = f"\n{marked(clause, line, column)}"
    stands = "" if place is None or place == id else f"{place}: "
    named = "" if id is None and stands else f"subscription {'?' if id is None else id}: "
    return f"{stands}{named}{within}{rule}{text}"


def raise_if_any(lines: Sequence[str], more: str = "and more") -> None:
    """The error that names the first few; one more than that says that there are more."""
    if lines:
        raise BadRows(lines[:NAMED], more if len(lines) > NAMED else "", SKIP)


@contextmanager
def named_options() -> Iterator[None]:
    """How to leave bad rows out is said as an option of the command."""
    try:
        yield
    except BadRows as error:
        raise BadRows(error.lines, error.more, SKIP) from None
