"""Is each subscription covered by those before it? Cell by cell, in workers; then what its cells say is put together.

    CellPlace     a subscription once for each cell that it meets (divide.py), cut at the border of the cell
    Decide    all that meets a cell, broad ones first: each is covered there by those before it that are not, or not
    Unite     covered in all of its cells: passive, and its certificate has the names of all of them; else active

Within a cell a certificate names only what is not covered in that cell, and what is not covered in one cell is active.
So certificates name active ones only, and no name has to be replaced by a certificate of its own.

Several cells may need many names where few would do. Past NAMES_MAX the whole is asked again of those that it names,
and the long certificate stays if that proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType

from thatch.cover.active_set import NAMES_MAX
from thatch.cover.box_rows import Boxed
from thatch.cover.boxed import BOXES_MAX, COVERED
from thatch.cover.exact import ExactEngine
from thatch.cover.verdict import Covered
from thatch.region.box_sets import region_of_box
from thatch.region.region import Region
from thatch.region.term import boxes_to_terms
from thatch.space.arrays import Ints
from thatch.space.space import Space
from thatch.spark.encoded import Source, packed_boxes, packed_region, unpacked_boxes, unpacked_region
from thatch.spark.reducing.divide import Division
from thatch.spark.reducing.guard import Sample

ACTIVE, PASSIVE = "active", "passive"
NOWHERE = -1  # the cell of what no event can match


class SampleBoxes:
    """In a worker: batches of subscriptions to their boxes; `plain` are those that are their boxes, and not within."""

    def __init__(self, source: Source) -> None:
        self._source = source

    @staticmethod
    def schema(id: str) -> str:
        return f"id {id}, breadth double, plain boolean, boxes binary"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        space = self._source.new_space()
        for batch in batches:
            boxed = self._source.boxed(batch, space)
            plain = np.ones(len(boxed.ids), np.bool_)
            plain[list(boxed.odd)] = False
            boxes = packed_boxes(boxed.low, boxed.high, np.diff(boxed.starts))
            columns = [boxed.ids, pa.array(boxed.breadths(space)), pa.array(plain), boxes]
            yield pa.record_batch(columns, names=["id", "breadth", "plain", "boxes"])


def sample_of(table: pa.Table, attributes: int) -> Sample:
    """What `SampleBoxes` gave."""
    low, high, starts = unpacked_boxes(_chunk(table, "boxes"), attributes)
    owner = np.repeat(np.arange(len(table)), np.diff(starts))
    plain = _chunk(table, "plain").to_numpy(zero_copy_only=False)
    return Sample(low, high, owner, _chunk(table, "breadth").to_numpy(), table.column("id").to_pylist(), plain)


class CellPlace:
    """In a worker: batches of subscriptions to rows, one for each cell that one meets."""

    def __init__(self, source: Source, division: Any, keys: list[int]) -> None:
        """`division` is a broadcast; `keys` are what Spark hashes to each task."""
        self._source, self._division, self._keys = source, division, keys

    @staticmethod
    def schema(id: str) -> str:
        return (
            f"task int, part int, mute boolean, clips int, breadth double, id {id}, boxes binary, region binary,"
            " whole binary"
        )

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        space, division = self._source.new_space(), self._division.value
        keys = np.array(self._keys, np.int32)
        for batch in batches:
            yield _placed(self._source.boxed(batch, space), space, division, keys)


def _placed(boxed: Boxed, space: Space, division: Division, keys: Any) -> pa.RecordBatch:
    sizes = np.diff(boxed.starts)
    box, cell = division.placed(boxed.low, boxed.high)
    row = np.repeat(np.arange(len(sizes)), sizes)[box]
    order = np.lexsort((box, cell, row))
    box, cell, row = box[order], cell[order], row[order]
    begins = np.flatnonzero(np.concatenate(([True], (row[1:] != row[:-1]) | (cell[1:] != cell[:-1])))[: len(row)])
    held = np.diff(np.append(begins, len(row)))
    low, high = np.maximum(boxed.low[box], division.low[cell]), np.minimum(boxed.high[box], division.high[cell])
    empty = np.flatnonzero(sizes == 0)
    rows, cells = np.concatenate((row[begins], empty)), np.concatenate((cell[begins], np.full(len(empty), NOWHERE)))
    clips = np.bincount(rows, minlength=len(sizes))[rows]
    wholes = packed_boxes(boxed.low, boxed.high, sizes)
    regions = pa.array(_cut_regions(boxed, space, division, rows, cells), pa.binary())
    has_whole = (clips > 1) & regions.is_null().to_numpy(zero_copy_only=False)
    breadths, count = boxed.breadths(space), len(begins)
    pairs, parts, mute = division.guards.dealt(breadths, boxed.ids, rows[:count], cells[:count])
    nowhere = np.arange(count, len(rows))
    pairs, parts = np.concatenate((pairs, nowhere)), np.concatenate((parts, np.full(len(nowhere), NOWHERE)))
    boxes = packed_boxes(low, high, np.concatenate((held, np.zeros(len(empty), np.int64))))
    row_of, taken = rows[pairs], pa.array(pairs)
    return pa.record_batch(
        {
            "task": pa.array(keys[np.where(parts == NOWHERE, 0, division.task[parts])], pa.int32()),
            "part": pa.array(parts, pa.int32()),
            "mute": pa.array(np.concatenate((mute, np.zeros(len(nowhere), np.bool_)))),
            "clips": pa.array(clips[pairs], pa.int32()),
            "breadth": pa.array(breadths[row_of]),
            "id": boxed.ids.take(pa.array(row_of)),
            "boxes": boxes.take(taken),
            "region": regions.take(taken),
            "whole": wholes.take(pa.array(row_of, mask=~has_whole[pairs])),
        }
    )


def _cut_regions(boxed: Boxed, space: Space, division: Division, rows: Ints, cells: Ints) -> list[bytes | None]:
    """What each cell has of a region that boxes do not say; None for the others."""
    if not boxed.odd:
        return [None] * len(rows)
    found: list[bytes | None] = []
    for row, cell in zip(rows.tolist(), cells.tolist(), strict=True):
        region = boxed.odd.get(row)
        if region is None:
            found.append(None)
        else:
            border = region_of_box(division.low[cell].tolist(), division.high[cell].tolist(), space)
            found.append(packed_region(region & border))
    return found


class Decide:
    """In a worker: all rows of its cells to what each cell says. `names` are of those that cover it there, `held` their
    boxes, and `whole` its own, for rows of more than one cell."""

    def __init__(self, source: Source, nodes_max: int | None) -> None:
        self._source, self._nodes_max = source, nodes_max

    @staticmethod
    def schema(id: str) -> str:
        return f"id {id}, clips int, covered boolean, names array<{id}>, held array<binary>, whole binary"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts = list(batches)
        if not parts:
            return
        table = pa.Table.from_batches(parts)
        order = [("part", "ascending"), ("breadth", "descending"), ("id", "ascending")]
        table = table.sort_by(order).combine_chunks()
        columns = {name: _chunk(table, name) for name in table.column_names}
        part = columns["part"].to_numpy()
        edges = [0, *(np.flatnonzero(np.diff(part)) + 1).tolist(), len(part)]
        space = self._source.new_space()
        for start, stop in pairwise(edges):
            own = {name: column.slice(start, stop - start) for name, column in columns.items()}
            yield self._decided(own, part[start] == NOWHERE, space)

    def _decided(self, rows: dict[str, pa.Array], is_empty: bool, space: Space) -> pa.RecordBatch:
        n = len(rows["id"])
        found = Found.all_covered(n) if is_empty else self._asked(rows, space)
        ids, clips = rows["id"], rows["clips"].to_numpy()
        names = pa.ListArray.from_arrays(pa.array(found.begins, pa.int32()), ids.take(pa.array(found.names)))
        # What Unite may need to prove it again: boxes of the names, where there is more than one cell.
        wanted = np.repeat((clips > 1) & found.covered, np.diff(found.begins))
        named = pa.array(found.names[wanted])
        boxes = pc.if_else(pc.equal(rows["clips"], 1), rows["boxes"], rows["whole"])
        boxes = pc.if_else(pc.is_valid(rows["region"]), pa.scalar(None, pa.binary()), boxes)
        ends = np.concatenate(([0], np.cumsum(np.where((clips > 1) & found.covered, np.diff(found.begins), 0))))
        held = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), boxes.take(named))
        whole = pc.if_else(pa.array(found.covered), rows["whole"], pa.scalar(None, pa.binary()))
        columns = [ids, rows["clips"], pa.array(found.covered), names, held, whole]
        decided = pa.record_batch(columns, names=["id", "clips", "covered", "names", "held", "whole"])
        return decided.filter(pc.invert(rows["mute"]))

    def _asked(self, rows: dict[str, pa.Array], space: Space) -> Found:
        n = len(rows["id"])
        engine = ExactEngine(space) if self._nodes_max is None else ExactEngine(space, self._nodes_max)
        low, high, starts = unpacked_boxes(rows["boxes"], len(space))
        if rows["region"].null_count == n:
            verdicts = engine.add_unions(range(n), low, high, starts)
            return Found(verdicts.codes == COVERED, *verdicts.certificates())
        odd = {
            row: unpacked_region(data, space) for row, data in enumerate(rows["region"].to_pylist()) if data is not None
        }
        certificates = _with_regions(engine, low, high, starts, odd)
        names = [certificates.get(row, ()) for row in range(n)]
        begins = np.concatenate(([0], np.cumsum([len(each) for each in names])))
        covered = np.array([row in certificates for row in range(n)])
        return Found(covered, np.array([name for each in names for name in each], np.int64), begins)


def _with_regions(
    engine: ExactEngine, low: Ints, high: Ints, starts: Ints, odd: dict[int, Region]
) -> dict[int, tuple[int, ...]]:
    """Rows of which some are regions that boxes do not say: the certificates of those that are covered. Boxes that come
    near none of these regions are decided about many at a time."""
    near = np.zeros(len(low), np.bool_)
    for row in odd:
        for box in range(starts[row], starts[row + 1]):
            near |= ((low <= high[box]) & (high >= low[box])).all(axis=1)
    sizes = np.diff(starts)
    is_near = np.zeros(len(sizes), np.bool_)
    np.logical_or.at(is_near, np.repeat(np.arange(len(sizes)), sizes), near)
    is_near[list(odd)] = True  # also those of which a cell has nothing
    # Parts of balls prove no more than the balls do, and making them takes most of the time.
    engine.takes_parts = any(term.box_count() > BOXES_MAX for region in odd.values() for term in region.terms)
    found: dict[int, tuple[int, ...]] = {}
    edges = [0, *(np.flatnonzero(np.diff(is_near)) + 1).tolist(), len(sizes)]
    for start, stop in pairwise(edges):
        if not is_near[start]:
            own = slice(starts[start], starts[stop])
            verdicts = engine.add_unions(range(start, stop), low[own], high[own], starts[start : stop + 1] - own.start)
            for place in np.flatnonzero(verdicts.codes == COVERED).tolist():
                verdict = verdicts[place]
                assert isinstance(verdict, Covered)
                found[start + place] = verdict.certificate
            continue
        for row in range(start, stop):
            boxes = slice(starts[row], starts[row + 1])
            region = odd[row] if row in odd else _union(low[boxes], high[boxes], engine.space)
            verdict = engine.check(region)
            if isinstance(verdict, Covered):
                found[row] = verdict.certificate
            else:
                engine.add(row, region)
    return found


class Found(NamedTuple):
    """What a cell says of its rows."""

    covered: Any  # [rows]
    names: Ints  # rows
    begins: Ints  # where the names of each begin

    @classmethod
    def all_covered(cls, rows: int) -> Found:
        return cls(np.ones(rows, np.bool_), np.zeros(0, np.int64), np.zeros(rows + 1, np.int64))


class Unite:
    """In a worker: all that cells say of its subscriptions to `id`, `status`, `covered_by`."""

    def __init__(self, source: Source, id: DataType) -> None:
        self._source, self._id = source, to_arrow_type(id)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rest = []
        for batch in batches:
            single = pc.equal(batch.column("clips"), 1)
            yield self._rows(*(batch.filter(single).column(name) for name in ("id", "covered", "names")))
            rest.append(batch.filter(pc.invert(single)))
        if rest:
            table = pa.Table.from_batches(rest).sort_by("id").combine_chunks()
            if len(table):
                yield self._united(table)

    def _rows(self, ids: pa.Array, covered: pa.Array, names: pa.Array) -> pa.RecordBatch:
        status = pc.if_else(covered, PASSIVE, ACTIVE).cast(pa.string())
        nothing = pa.scalar(None, pa.list_(self._id))
        proofs = pc.if_else(covered, names.cast(pa.list_(self._id)), nothing)
        return pa.record_batch([ids, status, proofs], names=["id", "status", "covered_by"])

    def _united(self, table: pa.Table) -> pa.RecordBatch:
        ids, clips = _chunk(table, "id"), _chunk(table, "clips").to_numpy()
        begins = []
        row = 0
        while row < len(clips):
            begins.append(row)
            row += int(clips[row])
        covered = np.logical_and.reduceat(_chunk(table, "covered").to_numpy(zero_copy_only=False), begins)
        names: list[list[Any] | None] = [None] * len(begins)
        for place in np.flatnonzero(covered).tolist():
            own = table.slice(begins[place], int(clips[begins[place]]))
            named = [each for cell in own.column("names").to_pylist() for each in cell]
            names[place] = list(dict.fromkeys(named))
            if len(names[place] or ()) > NAMES_MAX:
                held = [each for cell in own.column("held").to_pylist() for each in cell]
                names[place] = self._shorter(own.column("whole")[0].as_py(), dict(zip(named, held, strict=True)))
        return self._rows(ids.take(pa.array(begins)), pa.array(covered), pa.array(names, pa.list_(self._id)))

    def _shorter(self, whole: bytes | None, held: dict[Any, bytes | None]) -> list[Any]:
        """The certificate of a row whose whole is asked of those that it names."""
        names = list(held)
        if whole is None:
            return names
        space = self._source.new_space()
        engine = ExactEngine(space)
        known = [name for name in names if held[name] is not None]
        engine.load(known, [_region(held[name] or b"", space) for name in known])
        verdict = engine.check(_region(whole, space))
        shorter = isinstance(verdict, Covered) and len(verdict.certificate) < len(names)
        return list(verdict.certificate) if isinstance(verdict, Covered) and shorter else names


def _chunk(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _union(low: Ints, high: Ints, space: Space) -> Region:
    return Region(space, boxes_to_terms(low, high, space))


def _region(data: bytes, space: Space) -> Region:
    both = np.frombuffer(data, "<i8").astype(np.int64).reshape(-1, 2 * len(space))
    return _union(both[:, : len(space)], both[:, len(space) :], space)
