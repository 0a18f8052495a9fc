"""Standard input, output and errors of a program, also where they are closed or full.

A program may be started without them (`>&-`), and then Python has None in their places and gives their numbers to
whatever is opened next. What a command prints may not fit (`> /dev/full`); what was done before that stays done.
"""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn

from thatch.errors import CallerError, ThatchError


class OutputError(ThatchError):
    """What a command prints cannot be written."""


class _Input:
    """Standard input that is closed: nobody reads it by mistake, and whoever does hears why there is nothing."""

    closed = False

    def isatty(self) -> bool:
        return False

    def __getattr__(self, name: str) -> NoReturn:
        raise CallerError("standard input is closed")

    def __iter__(self) -> NoReturn:
        raise CallerError("standard input is closed")


class _Output:
    """Standard output: an error of writing it is told from those of other files."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream  # None: it is closed

    @property
    def closed(self) -> bool:
        return self._stream is None or self._stream.closed

    def isatty(self) -> bool:
        return not self.closed and self._stream.isatty()

    def write(self, text: str) -> int:
        return self._done("write", text)

    def flush(self) -> None:
        self._done("flush")

    def _done(self, what: str, *arguments: Any) -> Any:
        if self._stream is None:
            if what == "flush":
                return None
            raise OutputError("standard output is closed")
        try:
            return getattr(self._stream, what)(*arguments)
        except OSError as error:
            _discard(self._stream, 1)
            if isinstance(error, BrokenPipeError):
                raise
            raise OutputError(f"standard output: {(error.strerror or 'it cannot be written').lower()}") from None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Errors(_Output):
    """Standard error: what cannot be said there changes nothing about what a command does."""

    def _done(self, what: str, *arguments: Any) -> Any:
        try:
            return getattr(self._stream, what)(*arguments) if self._stream is not None else None
        except OSError:
            _discard(self._stream, 2)
            return None


def _discard(stream: Any, number: int) -> None:
    """What the stream still holds has nowhere to go: at the end of the program it would be an error once more."""
    if stream.fileno() == number:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, number)
        os.close(null)


def take_streams() -> None:
    """Of this process, before it opens anything else."""
    while (opened := os.open(os.devnull, os.O_RDWR)) <= 2:  # a file that got the number would be written into
        os.set_inheritable(opened, True)
    os.close(opened)
    stdin: Any = sys.stdin or _Input()
    stdout: Any = _Output(sys.stdout)
    stderr: Any = _Errors(sys.stderr)
    sys.stdin, sys.stdout, sys.stderr = stdin, stdout, stderr


def check_output() -> None:
    """Before events are taken from a broker: is there somewhere to print them?"""
    if sys.stdout is None or sys.stdout.closed:
        raise OutputError("standard output is closed")
