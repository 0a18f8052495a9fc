"""Clauses, parsed by Spark's workers: to regions for the driver, or to what is wrong with them.

Labels mean something only with their cuts, so each batch travels as regions with the labels that they were
made with, and is read again in the space of the index.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from thatch.errors import ClauseError, shown
from thatch.region.packing import PackedLabels, Regions, pack_labels, pack_regions, restore_labels, unpack_regions
from thatch.region.region import Region
from thatch.space.space import Space
from thatch.space.times import zone_of
from thatch.where.many import compile_many
from thatch.where.names import names_in

WRONG_SHOWN = 3  # clauses that an error names


class Wrong(msgspec.Struct, array_like=True):
    """A clause that cannot be used, and why. Lines and columns count from 1."""

    id: str
    clause: str
    line: int
    column: int
    rule: str

    def __str__(self) -> str:
        return f"subscription {self.id}, line {self.line}, column {self.column}: {self.rule}\n    {shown(self.clause)}"


class WrongClauses(ClauseError):
    """Clauses of a table that cannot be used, `total` in number; `wrong` are the first few. The rule, the line and the
    column are those of the first."""

    def __init__(self, wrong: Sequence[Wrong], total: int) -> None:
        self.wrong, self.total = msgspec.convert(tuple(wrong[:WRONG_SHOWN]), tuple[Wrong, ...]), total
        first = self.wrong[0]
        super().__init__(first.rule, first.line, first.column)
        more = f"\nand {total - WRONG_SHOWN:,} more" if total > WRONG_SHOWN else ""
        listed = "\n".join(map(str, self.wrong))
        self.args = (f"{listed}{more}\nCorrect the clauses, or leave them out with on_error='skip'",)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (tuple(map(msgspec.structs.astuple, self.wrong)), self.total)

    @property
    def subscription_id(self) -> Any:
        """The id of the first one; the beginning of its text, if it is a long string."""
        try:
            return ast.literal_eval(self.wrong[0].id)
        except (SyntaxError, ValueError):
            return self.wrong[0].id


def wrong_clauses(wrong: Sequence[Wrong]) -> WrongClauses:
    """The error that names them, the first few in full."""
    return WrongClauses(wrong, len(wrong))


def compiled(batch: pa.RecordBatch, space: Space) -> tuple[list[int], list[Region], list[Wrong]]:
    """Of a batch of ids and clauses: the rows that have a region, the regions, and the others."""
    ids, clauses = (column.to_pylist() for column in batch.columns)
    rows, regions, wrong = compile_many(clauses, space)
    named = [
        Wrong(repr(ids[row]), clauses[row] or "", error.line, error.column, error.reason)
        for row, error in wrong.items()
    ]
    return rows, regions, named


class Packed(msgspec.Struct):
    """One batch of subscriptions on its way to the driver."""

    ids: bytes  # an Arrow stream
    regions: Regions
    labels: PackedLabels
    wrong: list[Wrong]


class PackClauses:
    """In a worker: batches of ids and clauses to rows of one column, `packed`."""

    schema = "packed binary"

    def __init__(self, space: Space) -> None:
        self._space = space.to_json()

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            space = Space.from_json(self._space)
            rows, regions, wrong = compiled(batch, space)
            ids = batch.column(0).take(pa.array(rows, pa.int64()))
            packed = Packed(
                stream_of(ids),
                pack_regions([region.terms for region in regions]),
                pack_labels(space.label_codes),
                wrong,
            )
            yield pa.record_batch({"packed": pa.array([msgspec.msgpack.encode(packed)], pa.binary())})


def unpacked(rows: Sequence[bytes], space: Space) -> tuple[list[pa.Array], list[Region], list[Wrong]]:
    """On the driver: ids and regions in this space, and the clauses that are wrong."""
    batches = [msgspec.msgpack.decode(row, type=Packed) for row in rows]
    labelled = space.labelled_axes
    for position, axis in enumerate(labelled):  # all at once: one by one they would be recoded again and again
        axis.cut_many([cut for batch in batches for cut in batch.labels[position][0]])
    ids, regions, wrong = [], [], []
    for batch in batches:
        own = Space.from_json(space.to_json())
        restore_labels(own, batch.labels)
        ids.append(array_of(batch.ids))
        known = unpack_regions(batch.regions, own)
        regions += [region.in_space(space) for region in known] if labelled else known
        wrong += batch.wrong
    return ids, regions, wrong


class ListWrong:
    """In a worker: batches of ids and clauses to rows of those that cannot be used."""

    def __init__(self, space: Space) -> None:
        self._space = space.to_json()

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        space = Space.from_json(self._space)
        for batch in batches:
            good, _, wrong = compiled(batch, space)
            bad = np.setdiff1d(np.arange(batch.num_rows), np.array(good, np.int64))
            rows = batch.take(pa.array(bad))
            facts: dict[str, Any] = {
                "line": pa.array([each.line for each in wrong], pa.int32()),
                "column": pa.array([each.column for each in wrong], pa.int32()),
                "error": pa.array([each.rule for each in wrong], pa.string()),
            }
            yield pa.record_batch([*rows.columns, *facts.values()], names=[*rows.schema.names, *facts])


class MentionNames:
    """In a worker: batches of clauses to the names of columns that they mention, once a task."""

    schema = "path array<string>"

    def __init__(self, time_zone: str) -> None:
        self._zone = time_zone

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        clauses = (clause for batch in batches for clause in batch.column(0).to_pylist() if clause is not None)
        found = sorted(names_in(clauses, zone_of(self._zone)))
        yield pa.record_batch({"path": pa.array([list(path) for path in found], pa.list_(pa.string()))})


def stream_of(array: pa.Array) -> bytes:
    """An Arrow array as bytes."""
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"array": array})
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def array_of(data: bytes) -> pa.Array:
    """What `stream_of` was given."""
    return pa.ipc.open_stream(data).read_all().column(0).combine_chunks()
