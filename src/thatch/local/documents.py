"""YAML, TOML and JSON documents of rules, with the line of each part as far as the format tells it.

A document is a list of rules, a mapping of ids to rules, or a mapping with one of these under a key such as `rules`. A
rule is a clause, or a mapping with `id`, `where` and whatever else belongs to it. Values keep the text that was
written, so that an id `007` or `no` stays what it is; a key that is given twice is an error, not the last of the two.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from datetime import date, time
from typing import Any, NamedTuple

import msgspec

from thatch.errors import CallerError, shown, toml_problem
from thatch.space.structs import GivenTwice, json_problem, unique

BYTES_MAX = 256 * 2**20  # of a document, which is held in memory
DEPTH_MAX = 32
VALUES_MAX = 20_000_000  # of a document, whatever its aliases stand for
CONTAINERS = ("rules", "subscriptions", "alerts", "queries")  # keys that rules are looked for under first
CLAUSE_NAMES = ("where", "clause", "condition")  # of the column or key with the clause, the first that there is
ID_NAMES = ("id", "name")


class Plain(str):
    """Text that stands without quotes, so that it may mean a number, a truth or NULL."""


class LinedList(list[Any]):
    """A list, and the line of each of its items."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[int] = []


class LinedMapping(dict[str, Any]):
    """A mapping, and the line of each of its keys."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, int] = {}


class DocumentRule(NamedTuple):
    """A rule as it stands in a document."""

    key: str | None  # its id, in a mapping of ids to rules
    rule: Any  # a clause, or a mapping
    number: int  # from 1
    line: int | None

    @property
    def place(self) -> str:
        return f", rule {self.number}" if self.line is None else f":{self.line}"


def value_of(value: Any) -> Any:
    """What a value means: text without quotes may be a number, a truth or NULL.

    >>> [value_of(each) for each in (Plain("5"), Plain("007"), Plain("1.5"), Plain("true"), Plain("~"), "5")]
    [5, '007', 1.5, True, None, '5']
    """
    if isinstance(value, Plain):
        if value in ("", "~") or value.lower() == "null":
            return None
        if value.lower() in ("true", "false"):
            return value.lower() == "true"
        if re.fullmatch(r"0|-?[1-9][0-9]{0,17}", value):
            return int(value)
        is_number = re.fullmatch(r"-?[0-9]{1,20}(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?", value)
        return float(value) if is_number and re.search(r"[.eE]", value) else str(value)
    if isinstance(value, dict):
        return {key: value_of(each) for key, each in value.items()}
    return [value_of(each) for each in value] if isinstance(value, list) else value


def document_rules(text: str, kind: str, path: str) -> list[DocumentRule]:
    """The rules of a document in `yaml`, `toml` or `json`."""
    read = {"yaml": _yaml, "toml": _toml, "json": _json}[kind]
    found: list[DocumentRule] = []
    try:
        for document in read(text, path):
            _check_depth(document, path)
            for key, rule, line in _rules(document, path):
                found.append(DocumentRule(key, rule, len(found) + 1, line))
    except RecursionError:
        raise CallerError(f"{path}: is nested too deep") from None
    return found


def _check_depth(value: Any, path: str) -> None:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(DEPTH_MAX):
        within = [each for own in level for each in (own.values() if isinstance(own, dict) else own)]
        level = [each for each in within if isinstance(each, dict | list)]
        if not level:
            return
    raise CallerError(f"{path}: is nested more than {DEPTH_MAX} deep")


def _rules(document: Any, path: str) -> Iterator[tuple[str | None, Any, int | None]]:
    rules = _contained(document, path)
    if isinstance(rules, dict) and len(rules) == 1 and key_of(rules, CONTAINERS) is not None:
        ((key, held),) = rules.items()
        if as_text(held) in (None, ""):
            raise CallerError(f"{path}: `{key}` holds nothing")
    if isinstance(rules, list):
        lines = getattr(rules, "lines", None)
        for at, rule in enumerate(rules):
            yield None, rule, lines[at] if lines else None
    elif isinstance(rules, dict) and key_of(rules, CLAUSE_NAMES) is not None and key_of(rules, ID_NAMES) is not None:
        yield None, rules, min(getattr(rules, "lines", {}).values(), default=None)
    elif isinstance(rules, dict):
        known: dict[str, int] = getattr(rules, "lines", {})
        for key, rule in rules.items():
            yield key, rule, known.get(key)
    elif rules is not None and rules != "":
        raise CallerError(f"{path}: holds {shown(rules)}, where a list of rules or a mapping of ids to rules belongs")


def _contained(document: Any, path: str) -> Any:
    """What holds the rules: the document, or what is under the one key of it that has rules. Whatever stands beside it
    must not look like a rule, or a rule would be lost."""
    if not isinstance(document, dict) or key_of(document, CLAUSE_NAMES) is not None:
        return document
    inner = {key: value for key, value in document.items() if isinstance(value, list | dict)}
    if not inner or all(is_rule(value) for value in document.values()):
        return document
    named = [name for name in CONTAINERS if name in inner] or [key for key in inner if not is_rule(inner[key])]
    others = [key for key in inner if key not in named and (is_rule(inner[key]) or _holds_rules(inner[key]))]
    if len(named) == 1 and not others and (named[0] in CONTAINERS or not _clauses_among(document, inner)):
        return inner[named[0]]
    if all(isinstance(value, str) or is_rule(value) for value in document.values()):
        return document
    if all(
        isinstance(value, str | list) and not (isinstance(value, list) and _holds_rules(value))
        for value in document.values()
    ):
        return document  # its lists are no rules, and are refused by their ids
    listed = ", ".join(map(repr, [*named, *others, *_clauses_among(document, inner)][:8]))
    raise CallerError(
        f"{path}: rules are a list, or a mapping of ids to rules, at the top or under one key such as `rules`; here "
        f"they may be under several: {listed}"
    )


def _clauses_among(document: Mapping[str, Any], inner: Mapping[str, Any]) -> list[str]:
    return [key for key, value in document.items() if key not in inner and _may_be_clause(value)]


def _may_be_clause(value: Any) -> bool:
    """A text with a blank or a comparison, as no version or name of a file has."""
    return isinstance(value, str) and re.search(r"[ <>=]", value) is not None


def _holds_rules(value: Any) -> bool:
    each = list(value.values()) if isinstance(value, dict) else value
    return any(is_rule(one) or _may_be_clause(one) for one in each)


def is_rule(value: Any) -> bool:
    """Whether a value is a mapping that has a clause, or bounds."""
    if not isinstance(value, dict):
        return False
    return key_of(value, CLAUSE_NAMES) is not None or any(BOUND.search(key.lower()) for key in value)


BOUND = re.compile(r"^(low|high)_|_(low|high)$")  # of the name of a column of bounds


def key_of(rule: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    """The key of a rule that has one of these names, in any case."""
    by_name = {key.lower(): key for key in rule}
    return next((by_name[name] for name in names if name in by_name), None)


# YAML


def _yaml(text: str, path: str) -> list[Any]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _Builder(path).documents(yaml.parse(text, Loader=loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = path if mark is None else f"{path}:{mark.line + 1}, column {mark.column + 1}"
        line = "" if mark is None else next(iter(text.split("\n")[mark.line : mark.line + 1]), "")
        raise CallerError(f"{place}: is not YAML: {_yaml_problem(error.problem or '', line)}") from None
    except (yaml.YAMLError, UnicodeError):
        raise CallerError(f"{path}: is not YAML: it holds characters that YAML does not allow") from None


# What its parser says, and what that means to somebody who writes a file.
_YAML_PROBLEMS = {
    "mapping values are not allowed": "a colon is too much, or the text before it wants quotes",
    "cannot start any token": "a text that begins with this character wants quotes",
    "expected ':'": "a colon after a key is missing",
    "did not find expected key": "the indentation does not fit the lines above, or a text wants quotes",
    "did not find expected '-'": "the indentation does not fit the list above",
    "expected <block end>": "the indentation does not fit the lines above",
    "unexpected end of stream": "a quote or a bracket is not closed",
    "did not find expected ','": "a comma or a closing bracket is missing",
    "expected ',' or": "a comma or a closing bracket is missing",
    "escape": "a backslash within double quotes begins nothing that YAML knows",
}


def _yaml_problem(said: str, line: str) -> str:
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return "a tab: indent with spaces"
    return next((ours for theirs, ours in _YAML_PROBLEMS.items() if theirs in said), "it cannot be read from here on")


class _Builder:
    """Values from a parser's events, without recursion: nesting, and what aliases stand for, are bounded."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.anchors: dict[str, tuple[Any, int]] = {}  # a value, and how many it consists of
        self.count = 0

    def documents(self, events: Any) -> list[Any]:
        found: list[Any] = []
        open_ones: list[_Open] = []
        for event in events:
            kind, line = type(event).__name__, event.start_mark.line + 1
            if kind in ("MappingStartEvent", "SequenceStartEvent"):
                if len(open_ones) >= DEPTH_MAX:
                    raise CallerError(f"{self.path}:{line}: is nested more than {DEPTH_MAX} deep")
                value: Any = LinedMapping() if kind == "MappingStartEvent" else LinedList()
                open_ones.append(_Open(value, event.anchor, line, self.count))
                continue
            if kind in ("MappingEndEvent", "SequenceEndEvent"):
                ended = open_ones.pop()
                value, line = ended.value, ended.line
                if ended.anchor:
                    self.anchors[ended.anchor] = value, self.count - ended.first
            elif kind == "ScalarEvent":
                value = Plain(event.value) if not event.style and event.tag is None else event.value
                self._add(1, line)
                if event.anchor:
                    self.anchors[event.anchor] = value, 1
            elif kind == "AliasEvent":
                if event.anchor not in self.anchors:
                    raise CallerError(f"{self.path}:{line}: there is no anchor &{event.anchor} before *{event.anchor}")
                value, size = self.anchors[event.anchor]
                self._add(size, line)
            else:
                if kind == "DocumentStartEvent":
                    self.anchors = {}
                continue
            if open_ones:
                open_ones[-1].take(value, line, self.path)
            else:
                found.append(value_of(value) if isinstance(value, Plain) else value)
        return found

    def _add(self, size: int, line: int) -> None:
        self.count += size
        if self.count > VALUES_MAX:
            raise CallerError(f"{self.path}:{line}: stands for more than {VALUES_MAX:,} values: leave out aliases")


class _Open:
    """A list or a mapping that has not ended."""

    def __init__(self, value: Any, anchor: str | None, line: int, first: int) -> None:
        self.value, self.anchor, self.line, self.first = value, anchor, line, first
        self.key: str | None = None

    def take(self, value: Any, line: int, path: str) -> None:
        if isinstance(self.value, LinedList):
            self.value.append(value)
            self.value.lines.append(line)
        elif self.key is None:
            if not isinstance(value, str):
                raise CallerError(f"{path}:{line}: a key is text")
            self.key, self.key_line = value, line
        else:
            self._put(self.key, value, path)
            self.key = None

    def _put(self, key: str, value: Any, path: str) -> None:
        if isinstance(key, Plain) and key == "<<":  # what is merged gives way to what is written out
            for each in value if isinstance(value, list) else [value]:
                if not isinstance(each, dict):
                    raise CallerError(f"{path}:{self.key_line}: << merges a mapping")
                for name, own in each.items():
                    self.value.setdefault(name, own)
            return
        if key in self.value.lines:
            twice = f"the key {shown(str(key))} is given twice, first in line {self.value.lines[key]}"
            raise CallerError(f"{path}:{self.key_line}: {twice}")
        self.value[str(key)] = value
        self.value.lines[str(key)] = self.key_line


# TOML and JSON


def _toml(text: str, path: str) -> list[Any]:
    try:
        document = tomllib.loads(text, parse_float=Plain)
    except ValueError as error:  # also an int of more digits than Python reads
        raise CallerError(f"{path}: is not TOML: {toml_problem(error, text)}") from None
    return [_with_toml_lines(document, text)]


_HEADER = re.compile(r"\s*(\[\[?)\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?")
_KEY = re.compile(r"""\s*(?:"([^"\\]+)"|'([^']+)'|([\w-]+))\s*=""")


def _with_toml_lines(document: dict[str, Any], text: str) -> dict[str, Any]:
    """The document with the lines of its tables and keys, which the parser does not tell: those that look like the
    only one. A text that looks like a header only makes them unknown."""
    headers: dict[str, list[int]] = {}
    keys: dict[tuple[str, str], list[int]] = {}
    table = ""
    for number, line in enumerate(text.split("\n"), 1):
        header, key = _HEADER.fullmatch(line.rstrip("\r")), _KEY.match(line)
        if header:
            table = re.sub(r"""["']""", "", header[2])
            headers.setdefault(table, []).append(number)
        elif key:
            keys.setdefault((table, key[1] or key[2] or key[3]), []).append(number)

    def lined(value: Any, name: str) -> Any:
        if isinstance(value, list) and all(isinstance(each, dict) for each in value):
            known = headers.get(name, [])
            return _lined_list(value, known) if len(known) == len(value) else value
        if isinstance(value, dict):
            found = LinedMapping()
            for key, own in value.items():
                full = f"{name}.{key}" if name else key
                places = [*headers.get(full, []), *keys.get((name, key), [])]
                if len(places) == 1:
                    found.lines[key] = places[0]
                found[key] = lined(own, full)
            return found
        return value

    result: dict[str, Any] = lined(document, "")
    return result


def _lined_list(values: list[Any], lines: list[int]) -> LinedList:
    found = LinedList()
    found.extend(values)
    found.lines = lines
    return found


def _json(text: str, path: str) -> list[Any]:
    import json

    try:
        return [json.loads(text, object_pairs_hook=unique, parse_int=Plain, parse_float=Plain, parse_constant=Plain)]
    except GivenTwice as twice:
        raise CallerError(f"{path}: the key {shown(twice.args[0])} is given twice") from None
    except json.JSONDecodeError:
        raise CallerError(f"{path}: is not JSON: {json_problem(text)}") from None


def as_text(value: Any) -> str | None:
    """An id or a clause as it was written; None if nothing was."""
    if value is None or (isinstance(value, Plain) and value_of(value) is None):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    is_plain = isinstance(value, str | int | date | time)
    return str(value) if is_plain else msgspec.json.encode(value_of(value)).decode()
