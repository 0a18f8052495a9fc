"""Events in CSV.

CSV has a header in every file, the same in all, and doubles a quote to escape it; an empty field is NULL, and `""` is
the empty string. A record with a field too few or too many is malformed, and so is one whose quotes hold a line break,
unless records may span lines. Columns of attributes are read as Spark casts text; the others stay text.

Blocks of whole records are read in the thread that asks for them, and given to the parser as memory: it never calls
Python from a thread of its own, which would wait for an interpreter that is about to end.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thatch.errors import CallerError
from thatch.local.events import BLOCK, MALFORMED, EventBatch, EventSource
from thatch.local.files import Format, decoded, read_problem
from thatch.local.text_values import arrow_type, values_of
from thatch.space.space import Space

GUESSED = 1 << 12  # bytes of a file by which types are guessed


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
        for block in self._blocks(path, []):
            names: list[str] = self._parsed(_header(block), path, None, []).schema.names
            return names
        raise CallerError(f"{path}: cannot be read as CSV: it is empty")

    def batches(self, space: Space) -> Iterator[EventBatch]:
        for path in self.files:
            malformed: list[str] = []
            names, first = None, 0
            for block in self._blocks(path, malformed):
                table = self._parsed(block, path, names, malformed)
                names = self.schema.names
                for batch in table.to_batches():
                    yield self._valued(batch, first, path, space, malformed)
                    first += batch.num_rows
            if malformed:
                nothing = pa.RecordBatch.from_pylist([], self.value_schema(space))
                none_read = pa.RecordBatch.from_pylist([], self.schema)
                yield EventBatch(nothing, first, path, {}, malformed, none_read, self._why)

    def _blocks(self, path: str, malformed: list[str]) -> Iterator[bytes]:
        """The file in blocks of whole records; lines in which a quote is not closed are noted as malformed, unless
        records may span lines."""
        rest, lines, is_over = b"", 0, False
        try:
            with pa.input_stream(path, compression="detect") as stream:
                while not is_over:
                    block = stream.read(BLOCK)
                    data, is_over = rest + block, not block
                    cut = self._end(data, is_over, path, lines)
                    whole, rest = data[:cut], data[cut:]
                    if len(rest) > BLOCK:
                        raise CallerError(f"{path}: a record is longer than {BLOCK // 2**20} MB")
                    if not whole.isascii():
                        decoded(whole, path, lines)
                    lines += whole.count(b"\n")
                    if not self.format.multiline:
                        whole = _with_closed_quotes(whole, malformed)
                    if whole.strip():
                        yield whole
        except (pa.ArrowException, OSError) as error:
            raise CallerError(f"{path}: cannot be read as CSV: {read_problem(error)}") from None

    def _end(self, data: bytes, is_over: bool, path: str, lines: int) -> int:
        """Where the last record ends that is whole."""
        if not self.format.multiline:
            return len(data) if is_over else data.rfind(b"\n") + 1
        if not is_over:
            return last_end(data, self.format.delimiter)
        if data and last_end(data + b"\n", self.format.delimiter) <= len(data):
            start = last_end(data, self.format.delimiter)
            decoded(data, path, lines)  # of another kind of file, this is what is wrong
            line = lines + data.count(b"\n", 0, start) + 1
            raise CallerError(f"{path}:{line}: a quote is not closed")
        return len(data)

    @property
    def guessed(self) -> pa.Schema:
        from pyarrow import csv as arrow_csv

        block = next(self._blocks(self.files[0], []))
        end = block.find(b"\n", GUESSED) + 1 or len(block)
        parse = arrow_csv.ParseOptions(delimiter=self.format.delimiter, invalid_row_handler=lambda row: "skip")
        reading = arrow_csv.ReadOptions(use_threads=False)
        try:
            return arrow_csv.read_csv(pa.BufferReader(block[:end]), reading, parse).schema
        except pa.ArrowException:
            return self.schema

    def _parsed(self, block: bytes, path: str, names: list[str] | None, malformed: list[str]) -> pa.Table:
        """A block as text; without names, it begins with the header."""
        from pyarrow import csv as arrow_csv

        def note(row: Any) -> str:
            malformed.append(row.text or "")
            return "skip"

        reading = arrow_csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=names)
        parse = arrow_csv.ParseOptions(
            delimiter=self.format.delimiter, newlines_in_values=self.format.multiline, invalid_row_handler=note
        )
        types = {} if names is None and not hasattr(self, "schema") else dict.fromkeys(self.schema.names, pa.string())
        convert = arrow_csv.ConvertOptions(column_types=types, null_values=[""], strings_can_be_null=True)
        convert.quoted_strings_can_be_null = False
        try:
            return arrow_csv.read_csv(pa.BufferReader(block), reading, parse, convert)
        except pa.ArrowException as error:
            raise CallerError(f"{path}: cannot be read as CSV: {read_problem(error)}") from None

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
        rows = pa.record_batch(columns, self.value_schema(space))
        return EventBatch(rows, first, path, wrong, noted, batch, self._why, partial(self._line_of, path))

    def _line_of(self, path: str, row: int, read: Sequence[Any]) -> int | None:
        """Rows are counted as they are read; what stands at the line decides whether it is that of the row."""
        if self.format.multiline:
            return None
        width, left = len(self.schema), row + 1  # and the header
        with pa.input_stream(path, compression="detect") as stream:
            for number, line in enumerate(io.BufferedReader(stream), 1):
                record = line.decode(errors="replace").rstrip("\r\n")
                if record.count('"') % 2 or not record:
                    continue
                fields = fields_in(record, self.format.delimiter)
                if len(fields) == width and not left:
                    return number if fields == [each or "" for each in read] else None
                left -= len(fields) == width
        return None

    def fields_of(self, record: str) -> list[str | None]:
        found = fields_in(record, self.format.delimiter)
        size = len(self.schema)
        return [each or None for each in found[:size]] + [None] * (size - len(found))

    def _why(self, record: str) -> str:
        width = len(self.schema)
        return (None if record.count('"') % 2 else width_problem(record, self.format.delimiter, width)) or MALFORMED

    def value_schema(self, space: Space) -> pa.Schema:
        fields = []
        for name in self.schema.names:
            index = space.index(name)
            fields.append((name, pa.string() if index is None else arrow_type(space.attributes[index])))
        return pa.schema(fields)


def _header(block: bytes) -> bytes:
    """The beginning of a block up to the end of its first record."""
    end = -1
    while (end := block.find(b"\n", end + 1)) >= 0:
        if block[:end].strip() and block.count(b'"', 0, end) % 2 == 0:
            return block[: end + 1]
    return block


def _with_closed_quotes(data: bytes, malformed: list[str]) -> bytes:
    """A block without lines in which a quote is opened and not closed, which are noted as malformed: the parser would
    take them to go on in the next line."""
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
        malformed.append(data[first:last].decode("utf-8", "replace").rstrip("\r\n"))
        start = last
    return b"".join([*parts, data[start:]])


def last_end(data: bytes, delimiter: str) -> int:
    """Where the last record of a block ends that is whole; 0 if there is none. Only a quote at the beginning of a field
    opens it. Where no quote stands elsewhere, a line ends a record if it has an even number of quotes before it."""
    letters = np.frombuffer(data, np.uint8)
    quotes = np.flatnonzero(letters == ord('"'))
    if not len(quotes):
        return data.rfind(b"\n") + 1
    opening = quotes[::2]
    before = letters[np.maximum(opening - 1, 0)]
    if not (np.isin(before, np.frombuffer(b'"\r\n' + delimiter.encode(), np.uint8)) | (opening == 0)).all():
        return _last_end_by_field(data, delimiter)
    ends = np.flatnonzero(letters == ord("\n"))
    whole = ends[np.searchsorted(quotes, ends) % 2 == 0]
    return int(whole[-1]) + 1 if len(whole) else 0


def _last_end_by_field(data: bytes, delimiter: str) -> int:
    mark, end = re.escape(delimiter.encode()), 0
    field = re.compile(rb'(?:"(?:[^"]|"")*+"[^%b\n]*+|(?!")[^%b\n]*+)(?:%b|(\n))' % (mark, mark, mark))
    scanner = field.scanner(data)  # type: ignore[attr-defined]
    while (found := scanner.match()) is not None:
        end = found.end() if found[1] else end
    return end


# Malformed records


def fields_in(record: str, delimiter: str) -> list[str]:
    return next(csv.reader(io.StringIO(record, newline=""), delimiter=delimiter), [])


def width_problem(record: str, delimiter: str, width: int) -> str | None:
    """How the number of fields of a record differs from that of the header; None if it does not."""
    count = len(fields_in(record, delimiter))
    return None if count == width else f"malformed: {count} field{'s' * (count > 1)}, the header has {width}"
