"""The command line. Exit status: 0, or 1 if the answer is no, or 2 for bad input."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from thatch import __version__
from thatch.cli import (
    audit,
    broker,
    covers,
    demo,
    explain,
    learn,
    match,
    plan,
    publish,
    reduce,
    simulate,
    subscribe,
    validate,
    warm,
)
from thatch.cli.arguments import BAD_INPUT, INTERRUPTED, OK
from thatch.errors import ThatchError

COMMANDS = (
    demo, validate, covers, explain, match, reduce, learn, audit, simulate, plan, broker, subscribe, publish, warm,
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    options.is_program = arguments is None  # this process does nothing else
    try:
        status: int = options.run(options)
        sys.stdout.flush()
        return status
    except ThatchError as error:
        return _failed(str(error))
    except OSError as error:
        if isinstance(error, BrokenPipeError):  # the reader went away: `thatch … | head`
            sys.stderr.close()
            return OK
        return _failed(f"{error.filename or ''}: {error.strerror or error}")
    except KeyboardInterrupt:
        return INTERRUPTED


def _failed(message: str) -> int:
    print(f"thatch: {message}", file=sys.stderr)
    return BAD_INPUT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="thatch", description="Who wants this event, and is this subscription already covered by the others?"
    )
    parser.add_argument("--version", action="version", version=f"thatch {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")
    for each in COMMANDS:
        each.add(commands)
    return parser
