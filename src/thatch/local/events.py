"""Tables and files of events, batch by batch, with the place of each row and what is wrong with its text.

CSV has a header in every file, the same in all, and doubles a quote to escape it; an empty field is NULL, and `""` is
the empty string. A record with a field too few or too many is malformed, and so is one whose quotes hold a line break,
unless records may span lines. Columns of attributes are read as Spark casts text; the others stay text.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thatch.errors import CallerError
from thatch.local.files import Format, parquet_problem, read_problem
from thatch.local.text_values import arrow_type, values_of
from thatch.space.space import Space

ROWS = 65_536  # of a batch: its columns fit into the caches, and Python is called seldom
BLOCK = 1 << 24  # bytes of CSV read at once, and so the longest record
MALFORMED = "malformed: not a record of this table (where records span lines, --multiline is needed)"


class EventBatch(NamedTuple):
    rows: pa.RecordBatch
    first: int  # the number of its first row in its file or table, from 0
    file: str | None
    wrong: dict[int, str]  # rows of it whose text cannot be read, and why
    malformed: list[str]  # records that are no rows
    read: pa.RecordBatch  # the rows as they were read: text, of text


class EventSource:
    """Where events come from. The schema is that of their values."""

    schema: pa.Schema
    has_types = True  # else its columns are text
    files: Sequence[str] = ()

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
            for batch in file.iter_batches(ROWS, columns=list(names.values())):
                rows = _in_schema(batch, self.schema, names, path)
                yield EventBatch(rows, first, path, {}, [], rows)
                first += batch.num_rows


class ClosedQuotes:
    """A stream of lines without those in which a quote is opened and not closed, which are noted as malformed: the
    parser would take them to go on in the next line. Lines are looked at by the block, since most files have none."""

    closed = False

    def __init__(self, stream: Any, malformed: list[str]) -> None:
        self._stream, self._malformed = stream, malformed
        self._ready, self._rest, self._at_end = memoryview(b""), b"", False

    def read(self, size: int = -1) -> bytes:
        while not len(self._ready) and not self._at_end:
            block = self._stream.read(BLOCK)
            self._at_end = not block
            data = self._rest + block
            cut = len(data) if self._at_end else data.rfind(b"\n") + 1
            self._rest = data[cut:]
            if len(self._rest) > BLOCK:
                raise CallerError(f"a record is longer than {BLOCK // 2**20} MB")
            self._ready = memoryview(self._checked(data[:cut]))
        size = len(self._ready) if size < 0 else size
        found, self._ready = bytes(self._ready[:size]), self._ready[size:]
        return found

    def _checked(self, data: bytes) -> bytes:
        letters = np.frombuffer(data, np.uint8)
        quotes = np.flatnonzero(letters == ord('"'))
        if not len(quotes):
            return data
        ends = np.flatnonzero(letters == ord("\n")) + 1
        if not len(ends) or ends[-1] < len(data):
            ends = np.append(ends, len(data))
        odd = np.flatnonzero(np.diff(np.searchsorted(quotes, ends), prepend=0) % 2)
        if not len(odd):
            return data
        parts, start = [], 0
        for line in odd.tolist():
            first, last = int(ends[line - 1]) if line else 0, int(ends[line])
            parts.append(data[start:first])
            self._malformed.append(data[first:last].decode("utf-8", "replace").rstrip("\r\n"))
            start = last
        return b"".join([*parts, data[start:]])

    def close(self) -> None:
        self._stream.close()


class CsvEvents(EventSource):
    """CSV files with the same header."""

    has_types = False

    def __init__(self, files: Sequence[str], format: Format) -> None:
        self.files, self.format = files, format
        names = self._names(files[0])
        for path in files[1:]:
            if self._names(path) != names:
                raise CallerError(f"{path}: its header differs from that of {files[0]}: {', '.join(names)}")
        if len({name.lower() for name in names}) < len(names):
            raise CallerError(f"{files[0]}: two columns have one name: {', '.join(map(repr, names))}")
        self.schema = pa.schema([(name, pa.string()) for name in names])

    def _names(self, path: str) -> list[str]:
        names: list[str] = self._open(path, {}, []).schema.names
        return names

    def _open(self, path: str, types: dict[str, pa.DataType], malformed: list[str]) -> Any:
        from pyarrow import csv as arrow_csv

        def note(row: Any) -> str:
            malformed.append(row.text or "")
            return "skip"

        parse = arrow_csv.ParseOptions(
            delimiter=self.format.delimiter, newlines_in_values=self.format.multiline, invalid_row_handler=note
        )
        convert = arrow_csv.ConvertOptions(column_types=types, null_values=[""], strings_can_be_null=True)
        convert.quoted_strings_can_be_null = False
        try:
            stream = pa.input_stream(path, compression="detect")
            if not self.format.multiline:
                stream = pa.PythonFile(ClosedQuotes(stream, malformed), "r")
            return arrow_csv.open_csv(
                stream, arrow_csv.ReadOptions(use_threads=False, block_size=BLOCK), parse, convert
            )
        except (pa.ArrowException, OSError) as error:
            raise CallerError(f"{path}: cannot be read as CSV: {read_problem(error)}") from None

    def batches(self, space: Space) -> Iterator[EventBatch]:
        types = dict.fromkeys(self.schema.names, pa.string())
        for path in self.files:
            malformed: list[str] = []
            reader, first = self._open(path, types, malformed), 0
            while True:
                try:
                    batch = reader.read_next_batch()
                except StopIteration:
                    break
                except pa.ArrowException as error:
                    raise CallerError(f"{path}: cannot be read as CSV: {read_problem(error)}") from None
                yield self._valued(batch, first, path, space, malformed)
                first += batch.num_rows
            if malformed:
                nothing = pa.RecordBatch.from_pylist([], self.value_schema(space))
                none_read = pa.RecordBatch.from_pylist([], self.schema)
                yield EventBatch(nothing, first, path, {}, malformed, none_read)

    def _valued(self, batch: pa.RecordBatch, first: int, path: str, space: Space, malformed: list[str]) -> EventBatch:
        columns, wrong = [], dict[int, str]()
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if not self.format.multiline:
                broken = pc.indices_nonzero(pc.match_substring(column, "\n").fill_null(False)).to_pylist()
                wrong |= dict.fromkeys(broken, MALFORMED)
            index = space.index(name)
            if index is not None:
                column, own = values_of(column, space.attributes[index])
                wrong = own | wrong
            columns.append(column)
        noted, malformed[:] = list(malformed), []
        return EventBatch(pa.record_batch(columns, self.value_schema(space)), first, path, wrong, noted, batch)

    def fields_of(self, record: str) -> list[str | None]:
        found = next(csv.reader([record], delimiter=self.format.delimiter), [])
        size = len(self.schema)
        return [each or None for each in found[:size]] + [None] * (size - len(found))

    def value_schema(self, space: Space) -> pa.Schema:
        fields = []
        for name in self.schema.names:
            index = space.index(name)
            fields.append((name, pa.string() if index is None else arrow_type(space.attributes[index])))
        return pa.schema(fields)


def parquet_file(path: str) -> Any:
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path, memory_map=True, coerce_int96_timestamp_unit="us")
    except (pa.ArrowException, OSError):
        raise CallerError(f"{path}: cannot be read as Parquet: {parquet_problem(path)}") from None


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
