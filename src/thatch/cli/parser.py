"""The parser of arguments: what it refuses is said in one sentence, with the name that was meant, and an example."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn

from thatch.cli.arguments import BAD_INPUT
from thatch.cli.terminal import styled
from thatch.errors import closest, shown, suggestion

# What argparse says in its own terms, and what we say.
_WORDS = (
    (r"expected (one|at least one) argument", "a value is missing"),
    (r"not allowed with argument (\S+)", r"cannot be given together with \1"),
    (r"ambiguous option: (\S+) could match (.*)", r"\1 is the beginning of several options: \2"),
    (r"ignored explicit argument .*", "takes no value"),
)
_REQUIRED = "the following arguments are required: "  # how argparse begins this sentence


# What an option is called elsewhere, and by which name a command of ours may know it.
_OTHER_NAMES = {
    "--rules": "--where", "--file": "--where", "--subscriptions": "--where", "--schema": "--space", "--out": "--output",
}  # fmt: skip


class WrongUsage(SystemExit):
    """Arguments that cannot be used; `said` is what was answered."""

    def __init__(self, said: str) -> None:
        super().__init__(BAD_INPUT)
        self.said = said


class Parser(argparse.ArgumentParser):
    """A parser that answers a mistake with what to do instead of a list of all that there is."""

    _given: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._given = given = list(sys.argv[1:] if args is None else args)
        known, seen = self._option_string_actions, set[str]()
        for token in self._own_options(given):
            name = token.partition("=")[0]
            meant = [name] if name in known else [option for option in known if option.startswith(name)]
            if not meant:
                other = _OTHER_NAMES.get(name)
                meaning = other if other in known else _meant_option(name, known)
                listed = f" (did you mean {meaning!r}?)" if meaning else f"; `{self.prog} --help` lists them"
                self.error(f"no option {name}{listed}")
            once = len(meant) == 1 and isinstance(known[meant[0]], argparse._StoreAction)
            if once and meant[0] in seen:
                self.error(f"{meant[0]} is given twice")
            seen.add(meant[0])
        return super().parse_known_args(given, namespace)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        options, rest = self.parse_known_args(args, namespace)
        if rest:
            what = f"no option {rest[0]}" if rest[0].startswith("-") else f"{shown(rest[0])} is one argument too many"
            command = getattr(options, "command_parser", self)
            takes_clauses = any(each.metavar == "CLAUSE" for each in command._actions)
            if " " in rest[0] and "--by" in command._option_string_actions and " " in options.clause:
                command.error(f"{what}: the clauses that may cover it go into --by: --by {shown(rest[0])}")
            hint = ": a clause with spaces stands in quotes, and so does a space"
            command.error(f"{what}{hint if takes_clauses and not rest[0].startswith('-') else ''}")
        return options

    def _own_options(self, given: Sequence[str]) -> Iterator[str]:
        """The options among the arguments, up to a command, which has options of its own."""
        for token in given:
            if token == "--" or (self._subparsers is not None and not token.startswith("-")):
                return
            if token.startswith("--") and " " not in token:
                yield token

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """A choice that there is not."""
        if action.choices is None or value in action.choices:
            return
        known = [str(each) for each in action.choices]
        if isinstance(action, argparse._SubParsersAction):
            close = closest(value, known)
            what = f"did you mean `{self.prog} {close}`?" if close else f"the {action.metavar}s are {', '.join(known)}"
            self.error(f"no {action.metavar} {shown(value)}: {what}")
        raise argparse.ArgumentError(
            action, f"is one of {', '.join(known)}, not {shown(value)}{suggestion(value, known)}"
        )

    def error(self, message: str) -> NoReturn:
        """One sentence, an example, and where to read on."""
        command = self.prog.partition(" ")[2]
        for theirs, ours in _WORDS:
            message = re.sub(theirs, ours, message)
        if message.startswith(_REQUIRED):
            said = f"{command} needs {message.removeprefix(_REQUIRED)}{self._file_of(message)}"
        else:
            said = (f"{command}: " if command else "") + message.removeprefix("argument ")
        lines = [f"{styled('thatch:', 'red', sys.stderr)} {said}"]
        if self.epilog and self.epilog.startswith("example: "):
            lines.append(f"  {self.epilog}")
        lines.append(f"  `{self.prog} --help` says more")
        self._print_message("\n".join(lines) + "\n", sys.stderr)
        raise WrongUsage(said)

    def _file_of(self, message: str) -> str:
        """A file that was given without the option that it belongs to."""
        missing = re.findall(r"--(?:where|space)\b", message)
        files = [token for token in self._given if not token.startswith("-") and os.path.isfile(token)]
        takes_files = any(not each.option_strings for each in self._actions)
        return f": {missing[0]} {files[0]}" if missing == ["--where"] and files and not takes_files else ""


def _meant_option(name: str, known: Iterable[str]) -> str | None:
    """The option that a misspelt one is likely to mean, by its letters: all options have the hyphens."""
    by_letters = {each.lstrip("-"): each for each in known if each.startswith("--")}
    close = closest(name.lstrip("-"), by_letters)
    return None if close is None else by_letters[close]


def number(text: str) -> float:
    """A number of an option."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"a number is expected, not {shown(text)}") from None


def whole_number(text: str) -> int:
    """A whole number of an option."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"a whole number is expected, not {shown(text)}") from None
