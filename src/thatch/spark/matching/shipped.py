"""A match index on its way to the workers: broadcast once, written once on each executor, mapped by each worker.

Executors share no disk with the driver, so the index travels as a Spark broadcast. Where it arrives, unpickling it
writes a file into the executor's own folder and maps that (match/mapped.py): the workers of an executor share its
pages, and a worker keeps it from task to task for as long as Spark keeps the broadcast. The file goes with the first
worker that lets go of it; one that comes later writes it again. A broadcast, unlike a file that is added to the job, is
forgotten with the last plan that mentions it.
"""

from __future__ import annotations

import os
import secrets
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import SparkContext, SparkFiles

from thatch.matching.index import TreeView
from thatch.matching.mapped import opened, packed
from thatch.space.schemas import ColumnPath
from thatch.space.space import field_of
from thatch.spark.clauses import array_of, stream_of

ROWS_MAX = 65_536  # of a batch that is handed on
TRIES = 8


class Shipped:
    """What the driver broadcasts; in a worker it comes out as an `Arrived`."""

    def __init__(self, view: TreeView, ids: pa.Array) -> None:
        self._token = secrets.token_hex(16)
        self._index = packed(view)
        self._ids = stream_of(ids)

    @property
    def nbytes(self) -> int:
        return len(self._index) + len(self._ids)

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrive, (self._token, self._index, self._ids)


def ship(context: SparkContext, view: TreeView, ids: pa.Array) -> Any:
    """The broadcast of an index and the ids of its numbers."""
    return context.broadcast(Shipped(view, ids))


class Arrived:
    """An index in a worker."""

    def __init__(self, path: Path, ids: pa.Array) -> None:
        self.view = opened(path)
        self.space = self.view.space
        self._ids = ids
        weakref.finalize(self, path.unlink, missing_ok=True)

    def matched(self, batch: pa.RecordBatch, attributes: list[ColumnPath], skip: bool) -> Iterator[pa.RecordBatch]:
        """The rows of a batch, each as often as it matches, with the ids. `attributes` are the columns of the batch
        that hold the attributes of the space, in its order; `skip`: rows with a bad value match nothing."""
        events = {
            attribute.name: field_of(batch.column(path[0]), path[1:])
            for attribute, path in zip(self.space.attributes, attributes, strict=True)
        }
        if skip:
            columns, good = self.space.encode_valid(events)
            rows, numbers = self.view.match_points(columns)
            rows = np.flatnonzero(good)[rows]
        else:
            rows, numbers = self.view.match_points(self.space.encode_batch(events))
        for start in range(0, len(rows), ROWS_MAX):
            part = slice(start, start + ROWS_MAX)
            taken = batch.take(pa.array(rows[part]))
            yield taken.append_column("subscription_id", self._ids.take(pa.array(numbers[part])))


def _arrive(token: str, index: bytes, ids: bytes) -> Arrived:
    folder = Path(SparkFiles.getRootDirectory())
    path = folder / f"thatch-{token}.index"
    for _ in range(TRIES):
        with suppress(FileNotFoundError):  # another worker may let go of it between the write and the look
            return Arrived(path, array_of(ids))
        part = folder / f"thatch-{token}.{os.getpid()}.part"
        part.write_bytes(index)
        part.replace(path)  # a reader finds all of it
    return Arrived(path, array_of(ids))
