"""Events in JSON lines: an object a line. Attributes are read as Spark casts their text; other columns get the type
that all their values have.

The first pass over the files finds the columns and their types, the second the rows.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa

from thatch.errors import CallerError
from thatch.local.events import BLOCK, ROWS, EventBatch, EventSource
from thatch.local.files import read_problem
from thatch.local.text_values import arrow_type, values_of
from thatch.space.space import Space
from thatch.space.structs import json_problem


class JsonEvents(EventSource):
    """Files with an object a line."""

    has_types = False

    def __init__(self, files: Sequence[str]) -> None:
        self.files = files
        kinds: dict[str, pa.DataType] = {}
        is_empty, unread = True, ""
        for path in files:
            for rows, malformed in _chunks(path):
                is_empty, unread = False, unread or (malformed or [""])[0]
                for name in {name: None for row in rows for name in row}:
                    kind = _kind([_plain(row.get(name)) for row in rows])
                    kinds[name] = kind if name not in kinds else _united(kinds[name], kind)
        if not kinds:
            lines = "an object a line belongs here (where records span lines, --multiline is needed)"
            why = f"; the first record: {json_problem(unread, dict[str, Any])}" if unread else ""
            what = "it is empty" if is_empty else f"has no columns: {lines}{why}"
            raise CallerError(f"{', '.join(files)}: {what}")
        # As Spark does: a column without any value is text, and columns are in the order of their names.
        self.schema = pa.schema([(name, _certain(kinds[name])) for name in sorted(kinds)])

    def value_schema(self, space: Space) -> pa.Schema:
        fields = []
        for field in self.schema:
            index = space.index(field.name)
            fields.append(field if index is None else field.with_type(arrow_type(space.attributes[index])))
        return pa.schema(fields)

    def read_schema(self, space: Space) -> pa.Schema:
        fields = [field if space.index(field.name) is None else field.with_type(pa.string()) for field in self.schema]
        return pa.schema(fields)

    def batches(self, space: Space) -> Iterator[EventBatch]:
        for path in self.files:
            first = 0
            for rows, malformed in _chunks(path):
                yield self._batch(rows, malformed, first, path, space)
                first += len(rows)

    def _batch(
        self, rows: list[dict[str, Any]], malformed: list[str], first: int, path: str, space: Space
    ) -> EventBatch:
        read, values, wrong = [], [], dict[int, str]()
        for field in self.schema:
            index, column = space.index(field.name), [row.get(field.name) for row in rows]
            if index is not None or pa.types.is_string(field.type):
                array = pa.array([_text(value) for value in column], pa.string())
            else:
                array = _array([_plain(value) for value in column], field.type)
            read.append(array)
            if index is not None:
                array, bad = values_of(array, space.attributes[index])
                wrong = bad | wrong
            values.append(array)
        as_read = pa.record_batch(read, schema=self.read_schema(space))
        typed = pa.record_batch(values, schema=self.value_schema(space))
        return EventBatch(typed, first, path, wrong, malformed, as_read, line_of=partial(_line_of, path))


def _chunks(path: str) -> Iterator[tuple[list[dict[str, Any]], list[str]]]:
    """Rows and malformed records, some thousand at a time. Numbers with a fraction are text: nothing is rounded."""
    rows: list[dict[str, Any]] = []
    malformed: list[str] = []
    try:
        with pa.input_stream(path, compression="detect") as stream:
            lines = io.BufferedReader(stream)
            while line := lines.readline(BLOCK + 1):
                if len(line) > BLOCK:
                    raise CallerError(f"{path}: a record is longer than {BLOCK // 2**20} MB")
                if not line.strip():
                    continue
                found = rows_of_line(line)
                if found is None:
                    malformed.append(line.decode(errors="replace").rstrip("\r\n"))
                else:
                    rows += found
                if len(rows) + len(malformed) >= ROWS:
                    yield rows, malformed
                    rows, malformed = [], []
    except (OSError, pa.ArrowException) as error:
        raise CallerError(f"{path}: cannot be read as JSON: {read_problem(error)}") from None
    if rows or malformed:
        yield rows, malformed


def _line_of(path: str, row: int, read: Sequence[Any]) -> int | None:
    with pa.input_stream(path, compression="detect") as stream:
        for number, line in enumerate(io.BufferedReader(stream), 1):
            row -= len((line.strip() and rows_of_line(line)) or ())
            if row < 0:
                return number
    return None


class _Number(str):
    """A number as it was written."""


_DECODER = msgspec.json.Decoder(float_hook=_Number)


def rows_of_line(line: bytes) -> list[dict[str, Any]] | None:
    """The rows of a line, one or, in an array, several; None if it is malformed."""
    try:
        found = _DECODER.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None
    many = found if isinstance(found, list) else [found]
    return many if all(isinstance(each, dict) for each in many) else None


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value if value is None else str(value)
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else msgspec.json.encode(value).decode()


def _plain(value: Any) -> Any:
    """With numbers as doubles."""
    if isinstance(value, _Number):
        return float(value)
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _kind(values: list[Any]) -> pa.DataType:
    """The type that all these have, or text: `infer_type` may look at the first ones only."""
    try:
        return pa.array(values).type
    except (pa.ArrowException, OverflowError, TypeError):
        return pa.string()


def _united(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    try:
        schemas = [pa.schema([("x", each)]) for each in (one, other)]
        united = pa.unify_schemas(schemas, promote_options="permissive").field("x").type
    except pa.ArrowException:
        return pa.string()
    return united


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_floating(kind):  # of ints, the nearest doubles
        values = [float(value) if isinstance(value, int) else value for value in values]
    return pa.array(values, kind)


def _certain(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_null(kind) else kind
