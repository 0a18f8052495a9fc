"""The command line: `thatch`. The commands are imported within `main`, so that Ctrl-C while they load ends it, too."""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command, and returns its exit status: 0; 1 if the answer is no; 2 for bad input; 3 if Thatch is at fault;
    4 of a broker that a neighbour refuses because its store is an old copy; 130 after Ctrl-C."""
    try:
        from thatch.cli.commands import run

        return run(arguments)
    except KeyboardInterrupt:
        return 130
