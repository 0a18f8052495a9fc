"""JSON and settings as typed values. What does not fit is said in words for people: where it stands, what belongs
there, and which name was meant."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from thatch.errors import CallerError, ThatchError, closest, shown, suggestion

T = TypeVar("T")
NEAR_SHOWN = 20  # characters of a text from where it breaks

# What Python's parser of JSON says, by the beginning, and what it means.
_BREAKS = {
    "Expecting property name": "a name in double quotes is missing",
    "Expecting ':'": "a colon is missing",
    "Expecting ','": "a comma is missing, or the end",
    "Expecting value": "a value is missing: texts stand in double quotes",
    "Extra data": "it goes on after its end",
    "Unterminated string": "a text does not end: a double quote is missing",
    "Invalid control character": "a text has a line break or another control character in it: write \\n",
    "Invalid \\": "a backslash stands before a character that it does not go with: write \\\\",
    "Illegal trailing comma": "a comma stands before the end",
}
_NAMES: dict[Any, str] = {
    inspect.BoolType: "true or false",
    inspect.IntType: "a whole number",
    inspect.FloatType: "a number",
    inspect.StrType: "a text",
    inspect.DictType: "an object",
    inspect.StructType: "an object",
    inspect.ListType: "a list",
    inspect.VarTupleType: "a list",
    inspect.NoneType: "null",
}
_FITTING: dict[type, type | tuple[type, ...]] = {
    inspect.BoolType: bool,
    inspect.IntType: int,
    inspect.FloatType: (int, float),
    inspect.StrType: str,
    inspect.DictType: dict,
    inspect.StructType: dict,
    inspect.ListType: list,
    inspect.VarTupleType: list,
    inspect.TupleType: list,
    inspect.NoneType: type(None),
}


def json_problem(text: str | bytes, kind: Any = Any) -> str:
    """What is wrong with a text that cannot be decoded as JSON of this kind.

    >>> json_problem("{bad", dict[str, Any])
    "line 1, column 2: a name in double quotes is missing, near 'bad'"
    >>> json_problem("[1]", dict[str, Any])
    'an object is expected, not a list'
    """
    try:
        text = text.decode() if isinstance(text, bytes) else text
        value = json.loads(text, parse_int=_number, parse_float=_number, parse_constant=_raise_not_json)
    except json.JSONDecodeError as error:
        if not text[error.pos :].strip():
            return (
                "it is empty" if not text.strip() else f"line {error.lineno}, column {error.colno}: it ends too early"
            )
        what = next((words for start, words in _BREAKS.items() if error.msg.startswith(start)), "it is malformed")
        return f"line {error.lineno}, column {error.colno}: {what}, near {shown(text[error.pos :][:NEAR_SHOWN])}"
    except RecursionError:
        return "it is nested too deep"
    except _NotJsonError as error:
        return f"{error} is no JSON: write it as a string, {json.dumps(str(error))}"
    except ValueError:
        return "it is not UTF-8 text"
    return next(_problems(value, inspect.type_info(kind), ""), "it has numbers or texts that JSON does not have")


class GivenTwice(Exception):
    """A key that an object in JSON has twice."""


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these, for Python's parser of JSON, which would take the last of two."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen = set[str]()
        raise GivenTwice(next(key for key, _ in pairs if key in seen or seen.add(key)))  # type: ignore[func-returns-value]
    return found


def key_given_twice(text: str | bytes) -> str | None:
    """A key that some object in JSON has twice; None if there is none, or the text is not JSON.

    >>> key_given_twice('{"a": 1, "b": {"c": 1, "c": 2}}')
    'c'
    """
    try:
        json.loads(text, object_pairs_hook=unique, parse_int=str)  # a long number is not read
    except GivenTwice as twice:
        return str(twice.args[0])
    except (ValueError, RecursionError):
        return None
    return None


class _NotJsonError(Exception):
    """NaN or Infinity, which Python reads."""


def _raise_not_json(text: str) -> None:
    raise _NotJsonError(text)


def _number(text: str) -> float:
    """A number of any length; which one does not matter here."""
    return int(text) if len(text) < 20 and text.lstrip("-").isdigit() else float(text[:300])


def struct_of(given: Any, kind: type[T]) -> T:
    """A struct of what a document holds. An error names every key and value that does not fit."""
    problems = list(_problems(given, inspect.type_info(kind), ""))
    if problems:
        raise CallerError("; ".join(problems))
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        cause = error.__cause__
        if isinstance(cause, ThatchError):
            raise cause from None
        raise CallerError("its values are not those of a " + kind.__name__) from None


def _problems(value: Any, kind: Any, path: str) -> Iterator[str]:
    """What does not fit, with the path to it."""
    if isinstance(kind, inspect.AnyType):
        return
    if isinstance(kind, inspect.UnionType):
        yield from _union_problems(value, kind, path)
    elif isinstance(kind, inspect.LiteralType):
        if value not in kind.values:
            listed = ", ".join(map(repr, kind.values))
            yield f"{path or 'it'} is one of {listed}, not {shown(value)}{suggestion(value, map(str, kind.values))}"
    elif not _has_shape(value, kind):
        name = _NAMES.get(type(kind), "another value")
        said = shown(value) if value is None or isinstance(value, str | int | float) else _NAMES[_SHAPES[type(value)]]
        yield f"{path} is {name}, not {said}" if path else f"{name} is expected, not {said}"
    elif isinstance(kind, inspect.StructType):
        yield from _field_problems(value, kind, path)
    elif isinstance(kind, inspect.DictType):
        for key, each in value.items():
            yield from _problems(each, kind.value_type, _joined(path, key))
    elif isinstance(kind, inspect.ListType | inspect.VarTupleType):
        for at, each in enumerate(value):
            yield from _problems(each, kind.item_type, f"{path}[{at}]")
    elif isinstance(kind, inspect.TupleType):
        if len(value) != len(kind.item_types):
            yield f"{path} has {len(kind.item_types)} members, not {len(value)}"
        for at, (each, item) in enumerate(zip(value, kind.item_types, strict=False)):
            yield from _problems(each, item, f"{path}[{at}]")


_SHAPES: dict[type, type] = {dict: inspect.DictType, list: inspect.ListType}


def _has_shape(value: Any, kind: Any) -> bool:
    if isinstance(value, bool) and not isinstance(kind, inspect.BoolType):
        return False
    fitting = _FITTING.get(type(kind))
    return fitting is None or isinstance(value, fitting)


def _union_problems(value: Any, kind: inspect.UnionType, path: str) -> Iterator[str]:
    fitting = [each for each in kind.types if _has_shape(value, each)]
    if len(fitting) == 1:
        yield from _problems(value, fitting[0], path)
    elif not fitting:
        names = " or ".join(dict.fromkeys(_NAMES.get(type(each), "another value") for each in kind.types))
        said = shown(value)
        yield f"{path} is {names}, not {said}" if path else f"{names} is expected, not {said}"


def _field_problems(value: dict[str, Any], kind: inspect.StructType, path: str) -> Iterator[str]:
    fields = {field.encode_name: field for field in kind.fields}
    for key, each in value.items():
        if key in fields:
            yield from _problems(each, fields[key].type, _joined(path, key))
        elif kind.forbid_unknown_fields:
            close = closest(key, fields)
            known = ", ".join(fields)
            hint = f"; there are {known}" if close is None else f" (did you mean {_joined(path, close)!r}?)"
            yield f"no setting {_joined(path, str(key))!r}{hint}"
    for name, field in fields.items():
        if field.required and name not in value:
            yield f"{_joined(path, name)} is missing"


def _joined(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
