"""The space of subscriptions over events in this process: as it was given, or as the events have it."""

from __future__ import annotations

import re

import pyarrow as pa

from thatch.errors import CallerError, shown
from thatch.local.events import EventSource
from thatch.local.subscriptions import SubscriptionRows
from thatch.space.event_columns import event_columns, holds_in_memory
from thatch.space.space import Space

EXAMPLE_COLUMNS = 8


def _example(schema: pa.Schema) -> str:
    """A space that events might have, by the looks of their first rows."""
    found = []
    for field in schema:
        kinds = pa.types
        if re.fullmatch(r"[A-Za-z_]\w*", field.name):
            tests = {
                "int": kinds.is_integer,
                "double": kinds.is_floating,
                "bool": kinds.is_boolean,
                "date": kinds.is_date,
            }
            tests["timestamp"] = kinds.is_timestamp
            found.append(f"{field.name} {next((name for name, test in tests.items() if test(field.type)), 'string')}")
    return ", ".join(found[:EXAMPLE_COLUMNS]) or "price double, symbol string"


def checked_space(
    space: Space | None, events: EventSource | None, rows: SubscriptionRows, time_zone: str, on_error: str
) -> Space:
    """The space, after a look at whether the events have its attributes; nothing is read yet."""
    given: object = space
    if space is not None and not isinstance(given, Space):
        meant = "give a table of events as events="
        if isinstance(given, str):
            meant = f"write space=Space.parse({shown(given)})"
        raise CallerError(f"space is a Space, not {type(space).__name__}: {meant}")
    if space is None:
        if events is None:
            raise CallerError(
                "there is neither a space nor events whose schema it could be taken from: give one of them, "
                "space (--space) or events (--events) that have types, such as a Parquet file"
            )
        if not events.has_types:
            raise CallerError(
                f"CSV and JSON have no types: declare a space with --space, such as '{_example(events.guessed)}'; in "
                "Python, as space=Space.parse(…)"
            )
        space = Space.of_columns(events.schema, rows.paths(events.schema, time_zone), time_zone, on_error)
    if events is not None:
        event_columns(events.value_schema(space), space, holds_in_memory)
    return space
