"""Events in JSON, as people write and read them: what JSON does not have is text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import msgspec

from thatch.errors import CallerError, EventError, shown
from thatch.space.attribute import Attribute
from thatch.space.axis import BoolAxis, DateAxis, TimestampAxis, TimestampNtzAxis
from thatch.space.decimals import DecimalAxis
from thatch.space.floating import FloatingAxis
from thatch.space.space import Space
from thatch.space.structs import json_problem, key_given_twice

TIMES = (DateAxis, TimestampAxis, TimestampNtzAxis)
WRITTEN = (*TIMES, DecimalAxis, FloatingAxis)  # as text


def read_json(text: str | bytes, what: str, kind: Any = dict[str, Any]) -> Any:
    """JSON of a kind, an object by default. Numbers are read as decimals first: a decimal attribute is never
    rounded."""
    try:
        found = msgspec.json.Decoder(kind, float_hook=Decimal).decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        name = "an object" if kind == dict[str, Any] else "what is expected"
        raise CallerError(f"{what} is not {name} in JSON: {json_problem(text, kind)}") from None
    colons = text.count(b":") if isinstance(text, bytes) else text.count(":")
    objects = found if isinstance(found, list) else [found]
    if colons != sum(len(each) for each in objects if isinstance(each, dict)):  # else none is given twice
        twice = key_given_twice(text)
        if twice is not None:
            raise CallerError(f"{what}: the key {shown(twice)} is given twice")
    return found


def typed_event(given: Mapping[str, Any], space: Space, unknown: bool = False) -> dict[str, Any]:
    """The values of an event that was read from JSON. Attributes that the space does not have are left out, or stay as
    they are if `unknown`."""
    event = {}
    for name, value in given.items():
        index = space.index(name)
        if index is not None:
            event[name] = _value(space.attributes[index], value)
        elif unknown:
            event[name] = value
    return event


def _value(attribute: Attribute, value: Any) -> Any:
    """JSON has no dates, times or NaN: these are written as text, as domains are."""
    axis = attribute.axis
    if isinstance(value, str) and isinstance(axis, WRITTEN):
        try:
            return axis.read(value)
        except ValueError as error:
            raise EventError(attribute.name, value, str(error)) from None
    is_time = isinstance(axis, TIMES)
    misfits = isinstance(value, bool) and not isinstance(axis, BoolAxis)
    if misfits or isinstance(value, list | dict) or (is_time and isinstance(value, int | Decimal)):
        article = "an" if axis.sql[0] in "aeiou" else "a"
        hint = ": write it as a string" if is_time else ""
        raise EventError(attribute.name, value, f"is not {article} {axis.sql}{hint}")
    if isinstance(value, Decimal) and not isinstance(axis, DecimalAxis):
        number = float(value)
        return number if math.isfinite(number) else value  # what is beyond all doubles is refused, not rounded
    return value


def readable(value: Any) -> Any:
    """A value that JSON and people can read: decimals, times and what is not finite as text."""
    plain = value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value))
    return value if plain else str(value)
