"""The command line: `thatch`. The commands are imported within `main`, so that Ctrl-C while they load ends it, too."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

INTERRUPTED = 130  # the exit status after Ctrl-C


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command, and returns its exit status: 0; 1 if the answer is no; 2 for bad input; 3 if Thatch is at fault;
    4 of a broker that a neighbour refuses because its store is an old copy; 130 after Ctrl-C."""
    try:
        with _quiet(arguments is None):
            from thatch.cli.commands import run

        return run(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED


@contextmanager
def _quiet(is_program: bool) -> Iterator[None]:
    """While libraries load, Ctrl-C ends the program at once: some of them print what interrupts them."""
    if not is_program or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
