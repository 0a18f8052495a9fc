"""The strategy `files`: workers read Parquet themselves, next to the index.

Spark's own scan would turn columns into rows, rows into Arrow batches, and send them to a worker. Here a task is a list
of pieces of files; the worker reads the row groups that begin in them with pyarrow and sends back matches only. Pieces
are dealt out in turn, so that a run of events that match much (a sorted file) is spread over all tasks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from thatch.errors import CallerError
from thatch.space.schemas import ColumnPath
from thatch.spark.failures import map_batches

BATCH_ROWS = 65_536
PIECE_MAX = 64 << 20  # bytes of a file that one piece spans
PIECE_MIN = 4 << 20
TASKS_PER_CORE = 3  # so that a core that is done early takes another
CHANGING = ("mergeschema", "modifiedbefore", "modifiedafter", "datetimerebasemode", "int96rebasemode")  # what is read
LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")


class Piece(NamedTuple):
    path: str
    start: int  # bytes: a row group belongs to the piece that its middle is in, as Spark has it
    stop: int


class ParquetScan(NamedTuple):
    """A plain scan of Parquet files: every row of them, some of their columns."""

    paths: list[str]
    schema: StructType


def plain_scan(events: DataFrame) -> ParquetScan | None:
    """What a DataFrame scans, if that is all it does."""
    plan = events._jdf.queryExecution().optimizedPlan()
    if plan.nodeName() == "Project" and all(
        each.nodeName() == "AttributeReference" for each in _each(plan.projectList())
    ):
        plan = plan.child()
    if plan.nodeName() != "LogicalRelation":
        return None
    relation = plan.relation()
    if relation.getClass().getSimpleName() != "HadoopFsRelation" or relation.partitionSchema().size():
        return None
    if relation.fileFormat().getClass().getSimpleName() != "ParquetFileFormat":
        return None
    if not set(events.columns) <= set(relation.dataSchema().fieldNames()):  # renamed, or hidden: `_metadata`
        return None
    if any(key.lower() in CHANGING for key in _each(relation.options().keys())):
        return None
    paths = [_local(uri) for uri in events.inputFiles()]
    return ParquetScan(paths, events.schema) if all(paths) else None  # type: ignore[arg-type]


def _each(sequence: Any) -> Iterator[Any]:
    """The members of one of Scala's collections."""
    iterator = sequence.iterator()
    while iterator.hasNext():
        yield iterator.next()


def _local(uri: str) -> str | None:
    """The path of a file that every executor can open as this one does; None for those in stores elsewhere."""
    parts = urlparse(uri)
    return unquote(parts.path) if parts.scheme in ("", "file") and not parts.netloc else None


def pieces(
    paths: Sequence[str], cores: int, piece_min: int = PIECE_MIN, piece_max: int = PIECE_MAX
) -> list[list[Piece]]:
    """The pieces of each task, and of how many bytes a piece is."""
    sizes = [os.path.getsize(path) for path in paths]
    total = sum(sizes)
    wanted = min(max(cores, total // piece_min), cores * TASKS_PER_CORE)  # tasks of a few bytes only cost their start
    length = min(max(total // wanted, piece_min), piece_max)
    found = []
    for path, size in zip(paths, sizes, strict=True):
        count = max(1, -(-size // length))
        edges = [size * each // count for each in range(count + 1)]
        found += [Piece(path, start, stop) for start, stop in pairwise(edges)]
    tasks = max(1, min(len(found), max(wanted, total // piece_max)))
    return [found[task::tasks] for task in range(tasks)]


class MatchFiles:
    """In a worker: numbers of tasks to the matches in their pieces."""

    def __init__(
        self, shipped: Any, tasks: list[list[Piece]], attributes: list[ColumnPath], schema: StructType, skip: bool
    ) -> None:
        self._shipped, self._tasks, self._attributes = shipped, tasks, attributes
        self._schema, self._skip = schema, skip

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        index, wanted = self._shipped.value, to_arrow_schema(self._schema, timezone="UTC")
        for batch in batches:
            for task in batch.column(0).to_pylist():
                for piece in self._tasks[task]:
                    for events in read(piece, wanted):
                        yield from index.matched(events, self._attributes, self._skip)


def read(piece: Piece, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a piece, in the types that Spark has for them."""
    try:
        file = pq.ParquetFile(piece.path, memory_map=True, coerce_int96_timestamp_unit="us")
    except (OSError, pa.ArrowException) as error:
        raise CallerError(f"{piece.path}: cannot be read as Parquet: {error}") from None
    with file:
        facts = file.metadata
        if any(key in (facts.metadata or {}) for key in LEGACY) and any(
            pa.types.is_temporal(each.type) for each in wanted
        ):
            raise CallerError(f"{piece.path}: has dates of the calendar before Spark 3; match it with strategy='arrow'")
        groups = [
            each for each in range(facts.num_row_groups) if piece.start <= _middle(facts.row_group(each)) < piece.stop
        ]
        if not groups:
            return
        own = {name.lower(): name for name in file.schema_arrow.names}
        names = [own[name.lower()] for name in wanted.names if name.lower() in own]
        if len(own) < len(file.schema_arrow.names):
            raise CallerError(f"{piece.path}: has columns that differ by case only; match it with strategy='arrow'")
        batches = file.iter_batches(BATCH_ROWS, row_groups=groups, columns=names, use_threads=False)
        while (batch := _next(batches, piece.path)) is not None:
            yield as_spark(batch, wanted, piece.path)


def _next(batches: Iterator[pa.RecordBatch], path: str) -> pa.RecordBatch | None:
    try:
        return next(batches, None)
    except (OSError, pa.ArrowException):
        raise CallerError(f"{path}: cannot be read as Parquet: it is damaged or not whole") from None


def read_all(scan: ParquetScan) -> pa.Table:
    """All rows of a scan."""
    wanted = to_arrow_schema(scan.schema, timezone="UTC")
    batches = [batch for path in scan.paths for batch in read(Piece(path, 0, os.path.getsize(path)), wanted)]
    return pa.Table.from_batches(batches, wanted)


def _middle(group: Any) -> int:
    if not group.num_rows:
        return -1
    first, last = group.column(0), group.column(group.num_columns - 1)
    starts = [place for place in (first.dictionary_page_offset, first.data_page_offset) if place]
    return (min(starts) + last.data_page_offset + last.total_compressed_size) // 2


def as_spark(batch: pa.RecordBatch, wanted: pa.Schema, path: str) -> pa.RecordBatch:
    """Columns in the order and the types that Spark expects. One that the file lacks is NULL, as Spark has it."""
    known = {name.lower(): column for name, column in zip(batch.schema.names, batch.columns, strict=True)}
    columns = []
    for own in wanted:
        column = known.get(own.name.lower())
        if column is None:
            column = pa.nulls(batch.num_rows, own.type)
        elif column.type != own.type:
            column = _as_type(column, own, path)
        columns.append(column)
    return pa.record_batch(columns, schema=wanted)


def _as_type(column: pa.Array, own: pa.Field, path: str) -> pa.Array:
    kinds = pa.types
    if kinds.is_timestamp(own.type) and kinds.is_timestamp(column.type):
        if column.type.tz is None and own.type.tz is not None:  # Parquet's INT96 come without a zone, and are of UTC
            column = column.cast(pa.timestamp("us")).cast(pa.int64())
        return column.cast(own.type)
    if not _is_wider(column.type, own.type):
        raise CallerError(
            f"{path}: the column {own.name!r} is {column.type}, Spark expects {own.type}; take strategy='arrow'"
        )
    return column.cast(own.type)


def _is_wider(given: pa.DataType, own: pa.DataType) -> bool:
    """Whether one type holds every value of another, so that a cast changes none."""
    kinds = pa.types
    if kinds.is_integer(own):
        signs = kinds.is_unsigned_integer(given)
        if kinds.is_duration(given):
            return own == pa.int64()
        return kinds.is_integer(given) and given.bit_width + signs <= own.bit_width
    if kinds.is_dictionary(given):
        return given.value_type == own or _is_wider(given.value_type, own)
    if kinds.is_decimal(own):
        digits = own.precision - own.scale
        return kinds.is_decimal(given) and given.scale <= own.scale and given.precision - given.scale <= digits
    texts = (kinds.is_string, kinds.is_large_string, kinds.is_string_view)
    bytes_ = (kinds.is_binary, kinds.is_large_binary, kinds.is_binary_view, kinds.is_fixed_size_binary)
    return (
        (kinds.is_float64(own) and kinds.is_floating(given))
        or (kinds.is_date(own) and kinds.is_date(given))
        or kinds.is_nested(own)
        or any(all(any(test(kind) for test in family) for kind in (given, own)) for family in (texts, bytes_))
    )


def match_files(
    session: SparkSession, scan: ParquetScan, shipped: Any, attributes: list[ColumnPath], schema: StructType, skip: bool
) -> DataFrame:
    tasks = pieces(scan.paths, session.sparkContext.defaultParallelism)
    numbers = session.range(0, len(tasks), 1, len(tasks))
    return map_batches(numbers, MatchFiles(shipped, tasks, attributes, scan.schema, skip), schema)
