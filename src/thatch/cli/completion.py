"""`thatch completion`: a script with which a shell completes commands and options."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from thatch.cli.arguments import OK

FILES = {"FILE", "PATH", "CONFIG", "EVENTS", "FOLDER"}  # metavars of arguments that are completed as files
SHELLS = ("bash", "zsh", "tcsh")


def add(commands: Any) -> None:
    command = commands.add_parser(
        "completion",
        help="print a script that completes commands in a shell",
        description="Print a script with which the shell completes commands, options, their choices and files. "
        "bash: `thatch completion bash > ~/.local/share/bash-completion/completions/thatch`. zsh: `thatch completion "
        "zsh > DIRECTORY/_thatch`, where DIRECTORY is in fpath. It is for new shells.",
        epilog="example: thatch completion bash > ~/.local/share/bash-completion/completions/thatch",
    )
    command.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    import shtab

    for action in _actions(options.parser):
        if action.metavar in FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(options.parser, options.shell))
    return OK


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The arguments of a parser and of its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from _actions(each)
