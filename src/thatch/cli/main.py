"""The command line. Exit status: 0, or 1 if the answer is no, or 2 for bad input."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from thatch import __version__
from thatch.cli import (
    audit,
    broker,
    completion,
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
from thatch.cli.clause_help import CLAUSES
from thatch.cli.parser import Parser
from thatch.cli.terminal import styled
from thatch.errors import ThatchError, missing_extra

COMMANDS = (
    demo, validate, covers, explain, match, reduce, learn, audit, simulate, plan, broker, subscribe, publish, warm,
    completion,
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given == ["help", "clauses"]:
        print(CLAUSES, end="")
        return OK
    if given[:1] == ["help"]:  # as in other programs
        given = [*given[1:2], "--help"]
    options = parser.parse_args(given)
    if not hasattr(options, "run"):
        parser.print_help()
        return OK
    options.is_program = arguments is None  # this process does nothing else
    options.parser = parser
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
        what = error.strerror or type(error).__name__
        return _failed(what if error.filename is None else f"{error.filename}: {what}")
    except ModuleNotFoundError as error:
        advice = missing_extra(error)
        if advice is None:
            raise
        return _failed(advice)
    except KeyboardInterrupt:
        return INTERRUPTED


def _failed(message: str) -> int:
    print(styled("thatch:", "red", sys.stderr), message, file=sys.stderr)
    return BAD_INPUT


def _parser() -> Parser:
    parser = Parser(
        prog="thatch",
        description="Who wants this event, and is this subscription already covered by the others?",
        epilog="Begin with `thatch demo`. `thatch COMMAND --help` has an example for each command; "
        "`thatch help clauses` says what a clause may say.",
    )
    parser.add_argument("--version", action="version", version=f"thatch {__version__}")
    commands = parser.add_subparsers(metavar="command")
    for each in COMMANDS:
        each.add(commands)
    for command in commands.choices.values():
        command.set_defaults(command_parser=command)
    return parser
