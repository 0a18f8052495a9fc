"""What only a terminal gets: colours and progress. In a pipe or a file there is the plain text."""

from __future__ import annotations

import os
import sys
import time
from typing import Literal, TextIO

STYLES = {"bold": "1", "red": "31", "green": "32", "dim": "2"}


def is_terminal(stream: TextIO) -> bool:
    """Whether somebody looks at the stream, so that progress may be shown."""
    return not stream.closed and stream.isatty()


def has_colours(stream: TextIO) -> bool:
    """Whether the stream is a terminal with colours, and nobody asked for none (https://no-color.org)."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def styled(text: str, style: Literal["bold", "red", "green", "dim"], stream: TextIO) -> str:
    """The text for this stream: with a style if it has colours."""
    return f"\033[{STYLES[style]}m{text}\033[0m" if has_colours(stream) else text


class _Line:
    """The line on the terminal that says how far some work is."""

    width = 0  # of what stands there


def show_progress(text: str) -> None:
    """A line on a terminal in place of the one before; nothing in a pipe. No escapes where there are no colours."""
    if is_terminal(sys.stderr):
        start = "\r\033[K" if has_colours(sys.stderr) else f"\r{' ' * _Line.width}\r"
        print(f"{start}{text}", end="", file=sys.stderr, flush=True)
        _Line.width = len(text)


def clear_progress() -> None:
    if _Line.width:
        show_progress("")


class Counter:
    """How many of a number of steps are done, on a terminal, if the work takes its time.

    >>> Counter("rules", 3_000)(1_200)  # in a pipe, nothing
    """

    def __init__(self, what: str, total: int, after: float = 1.0, every: float = 0.25) -> None:
        self._what, self._total, self._every = what, total, every
        self._next = time.monotonic() + after

    def __call__(self, done: int) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + self._every
            show_progress(f"{done:,} of {self._total:,} {self._what}")
