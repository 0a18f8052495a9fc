"""All commands, what they have in common, and how they end."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from thatch import __version__
from thatch.cli import (
    admin,
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
from thatch.cli.arguments import BAD_INPUT, FAULT, OK, OLD_COPY, AnsweredError, as_text
from thatch.cli.clause_help import CLAUSES
from thatch.cli.parser import Parser, WrongUsage
from thatch.cli.streams import OutputError, take_streams
from thatch.cli.terminal import clear_progress, styled
from thatch.errors import EmptyRegionWarning, OldCopyError, ThatchError, closest, missing_extra, shown

DEBUG = "THATCH_DEBUG"  # an environment variable
MESSAGE_SHOWN = 300  # characters of an error that nobody foresaw
HELP_ON_CLAUSES = ["help", "clauses"]
COMMANDS = (
    demo, validate, covers, explain, match, reduce, learn, audit, simulate, plan, broker, admin, subscribe, publish,
    warm, completion,
)  # fmt: skip


def run(arguments: Sequence[str] | None = None) -> int:
    """`arguments`: None for those of this process, which then does nothing else."""
    if arguments is None:
        take_streams()
    given = _meant(list(sys.argv[1:] if arguments is None else arguments))
    if given == HELP_ON_CLAUSES:
        print(CLAUSES, end="")
        return OK
    is_json = "--json" in given
    try:
        parser = _parser()
        _check_topic(arguments, parser)
        options = parser.parse_args(given)
        if not hasattr(options, "run"):
            parser.print_help()
            return OK
        options.is_program = arguments is None
        options.parser = parser
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            folder = _missing_folder(options)
            status: int = options.run(options)
        if folder and os.path.isdir(folder):
            print(f"thatch: made the folder {folder}", file=sys.stderr)
        sys.stdout.flush()
        return status
    except WrongUsage as error:
        if is_json:
            _print_json(error.said)
        raise
    except (ThatchError, OSError, ModuleNotFoundError) as error:
        if isinstance(error, BrokenPipeError):  # the reader went away: `thatch … | head`
            sys.stderr.close()
            return OK
        said, is_json = _sentence(error), is_json and not isinstance(error, AnsweredError)
        if isinstance(error, OldCopyError):
            return _failed(str(error), is_json, OLD_COPY)
        return _failed(said, is_json) if said is not None else _unexpected(error, is_json)
    except Exception as error:
        return _unexpected(error, is_json)


def _check_topic(arguments: Sequence[str] | None, parser: Parser) -> None:
    """Refuse `thatch help claus`, where the page is meant and no command."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["help"] and len(given) == 2 and given[1] not in _names():
        page = HELP_ON_CLAUSES[1]
        if closest(given[1], [*_names(), page]) == page:
            parser.error(f"no command {shown(given[1])}: did you mean `thatch help {page}`?")


def _names() -> list[str]:
    return [each.__name__.rpartition(".")[2] for each in COMMANDS]


def _meant(given: list[str]) -> list[str]:
    """What is asked for in the way of other programs: `thatch help match`, `thatch match help`, `thatch version`."""
    if given[:1] == ["help"] and given != HELP_ON_CLAUSES:
        return [*given[1:2], "--help"]
    if given[1:] == ["help"] and given[0] in _names():
        return [given[0], "--help"]
    return ["--version"] if given == ["version"] else given


def _missing_folder(options: Any) -> str:
    """The folder that an output would stand in, if it is not there; "" if it is, or if there is no output."""
    output = getattr(options, "output", None)
    folder = os.path.dirname(str(output or "").rstrip("/"))
    return folder if folder and not os.path.exists(folder) and "://" not in folder else ""


def _sentence(error: BaseException) -> str | None:
    """What an error says to people; None if it is a fault of ours."""
    if isinstance(error, ThatchError):
        return str(error)
    if isinstance(error, OSError):
        what = error.strerror or type(error).__name__
        return what if error.filename is None else f"{error.filename}: {what[:1].lower()}{what[1:]}"
    return missing_extra(error) if isinstance(error, ModuleNotFoundError) else None


def _failed(message: str, is_json: bool, status: int = BAD_INPUT) -> int:
    clear_progress()
    print(styled("thatch:", "red", sys.stderr), message, file=sys.stderr)
    if is_json:
        _print_json(message)
    return status


def _print_json(message: str) -> None:
    with suppress(OSError, OutputError):  # an output that is closed or full has been said where errors go
        print(as_text({"error": message}), flush=True)


def _show_warning(message: Warning | str, *about: Any, **more: Any) -> None:
    """Rules that no event can match are worth a line; what libraries warn of is not for people."""
    if isinstance(message, EmptyRegionWarning):
        print(styled("thatch:", "red", sys.stderr), message, file=sys.stderr)


def _unexpected(error: BaseException, is_json: bool) -> int:
    """An error that nobody foresaw is ours. The stack trace is for those who ask for it."""
    has_trace = bool(os.environ.get(DEBUG))
    if has_trace:
        traceback.print_exception(error)
    what = " ".join(f"{type(error).__name__}: {error}".split())[:MESSAGE_SHOWN]
    how = "" if has_trace else f"; {DEBUG}=1 shows where it happened"
    return _failed(f"this is a mistake in Thatch, please report it: {what}{how}", is_json, FAULT)


def _parser() -> Parser:
    parser = Parser(
        prog="thatch",
        description="Who wants this event, and is this subscription already covered by the others?",
        epilog="Begin with `thatch demo`. `thatch COMMAND --help` has an example for each command; "
        "`thatch help clauses` says what a clause may say.",
    )
    parser.add_argument("--version", "-V", "-v", action="version", version=f"thatch {__version__}")
    commands = parser.add_subparsers(metavar="command")
    for each in COMMANDS:
        each.add(commands)
    for command in commands.choices.values():
        command.set_defaults(command_parser=command)
    return parser
