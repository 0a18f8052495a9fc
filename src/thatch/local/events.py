"""Tables and files of events, batch by batch, with the place of each row and what is wrong with its text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from thatch.errors import CallerError
from thatch.local.files import DAMAGED, parquet_problem
from thatch.space.space import Space

ROWS = 65_536  # of a batch: its columns fit into the caches, and Python is called seldom
BLOCK = 1 << 24  # bytes of text read at once, and so the longest record
MALFORMED = "malformed: not a record of this table (where records span lines, --multiline is needed)"


class EventBatch(NamedTuple):
    rows: pa.RecordBatch
    first: int  # the number of its first row in its file or table, from 0
    file: str | None
    wrong: dict[int, str]  # rows of it whose text cannot be read, and why
    malformed: list[str]  # records that are no rows
    read: pa.RecordBatch  # the rows as they were read: text, of text
    why: Callable[[str], str] = lambda record: MALFORMED  # what is wrong with a record that is no row
    # The line of a row, by its number in the file and what was read; None if the file has no lines, or spans some.
    line_of: Callable[[int, Sequence[Any]], int | None] = lambda row, read: None


class EventSource:
    """Where events come from. The schema is that of their values."""

    schema: pa.Schema
    has_types = True  # else its columns are text
    files: Sequence[str] = ()

    @property
    def guessed(self) -> pa.Schema:
        """The schema, of text with the types that its first rows might have."""
        return self.schema

    def value_schema(self, space: Space) -> pa.Schema:
        """The schema of the batches, with the attributes of this space."""
        return self.schema

    def read_schema(self, space: Space) -> pa.Schema:
        """The schema of what was read: attributes in text are text."""
        return self.schema

    def fields_of(self, record: str) -> list[str | None]:
        """The fields of a record that is no row, as far as there are columns for them."""
        return [None] * len(self.schema)

    def batches(self, space: Space) -> Iterator[EventBatch]:
        """All of them, in order; in text, the attributes of this space as their values."""
        raise NotImplementedError


class TableEvents(EventSource):
    """A table in memory, or a stream of batches."""

    def __init__(self, reader: pa.Table) -> None:
        self.table, self.schema = reader, reader.schema

    def batches(self, space: Space) -> Iterator[EventBatch]:
        first = 0
        for batch in self.table.to_batches(ROWS):
            yield EventBatch(batch, first, None, {}, [], batch)
            first += batch.num_rows


class ParquetEvents(EventSource):
    """Parquet files: the columns of the first; in another one, those that it lacks are NULL."""

    def __init__(self, files: Sequence[str]) -> None:
        self.files = files
        self.schema = _as_spark_reads(parquet_file(files[0]))

    def batches(self, space: Space) -> Iterator[EventBatch]:
        for path in self.files:
            file, first = parquet_file(path), 0
            names = _names_in(file.schema_arrow, self.schema, path)
            for batch in _whole_batches(file, list(names.values()), path):
                rows = _in_schema(batch, self.schema, names, path)
                yield EventBatch(rows, first, path, {}, [], rows)
                first += batch.num_rows


def parquet_file(path: str) -> Any:
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path, memory_map=True, coerce_int96_timestamp_unit="us")
    except (pa.ArrowException, OSError):
        raise CallerError(f"{path}: cannot be read as Parquet: {parquet_problem(path)}") from None


def _whole_batches(file: Any, names: list[str], path: str) -> Iterator[pa.RecordBatch]:
    batches = file.iter_batches(ROWS, columns=names)
    while True:
        try:
            batch = next(batches, None)
        except (pa.ArrowException, OSError):
            raise CallerError(f"{path}: cannot be read as Parquet: {DAMAGED}") from None
        if batch is None:
            return
        yield batch


def _as_spark_reads(file: Any) -> pa.Schema:
    """The schema of a file, in the types that Spark has for its columns: signed integers, and instants for the old
    timestamps of 96 bits."""
    old = {
        column.path
        for column in (file.schema.column(at) for at in range(len(file.schema)))
        if column.physical_type == "INT96"
    }
    signed = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}
    signed[pa.uint64()] = pa.decimal128(20, 0)
    fields = []
    for field in file.schema_arrow:
        kind = pa.timestamp("us", "UTC") if field.name in old else signed.get(field.type, field.type)
        fields.append(field.with_type(kind))
    return pa.schema(fields)


def _names_in(own: pa.Schema, schema: pa.Schema, path: str) -> dict[str, str]:
    """What a file calls the columns of the schema, which it may write in another case."""
    by_name: dict[str, str] = {}
    for name in own.names:
        if by_name.setdefault(name.lower(), name) != name:
            raise CallerError(
                f"{path}: has the columns {by_name[name.lower()]!r} and {name!r}, which case does not tell apart: "
                "rename one"
            )
    return {name: by_name[name.lower()] for name in schema.names if name.lower() in by_name}


def _in_schema(batch: pa.RecordBatch, schema: pa.Schema, names: dict[str, str], path: str) -> pa.RecordBatch:
    columns = []
    for field in schema:
        if field.name not in names:
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        column = batch.column(batch.schema.get_field_index(names[field.name]))
        if column.type == field.type:
            columns.append(column)
        else:
            try:
                columns.append(column.cast(field.type))
            except pa.ArrowException:
                own = column.type
                raise CallerError(
                    f"{path}: its column {field.name!r} is {own}, that of the first file {field.type}"
                ) from None
    return pa.record_batch(columns, schema=schema)
