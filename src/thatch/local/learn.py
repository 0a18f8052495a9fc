"""What events and subscriptions look like together, in this process.

Events are read twice: once to draw a sample, which says where cells begin, and once to count all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from thatch.cover.box_rows import Boxed, boxed_regions
from thatch.learning.cells import CellGrid
from thatch.learning.regions import Places, one_sided_regions
from thatch.learning.similar import SimilarPair, Wanted, phi, similar_pairs
from thatch.learning.sketch import BOXES, CELLS, EVENTS, Sketch, check_cells
from thatch.local.events import EventBatch
from thatch.local.files import Format
from thatch.local.match import THREADS, Match, in_order, raise_bad_events
from thatch.local.subscriptions import raise_wrong, subscriptions_of, warn_wrong
from thatch.matching.index import TreeMatcher
from thatch.reports.learn import Learned, cells_table, regions_table, selectivity_table
from thatch.space.arrays import Ints
from thatch.space.attribute import MISSING
from thatch.space.axis import Coordinates
from thatch.space.space import Space, field_of


def learn(
    events: Any, subscriptions: Any, space: Space | None = None, *, on_error: str = "raise", cells: int = CELLS
) -> Learned[pa.Table]:
    """What events and subscriptions look like, in Arrow tables: which attributes tell subscriptions apart, where cells
    should begin, how often each subscription matches, how alike they are, and where one side lacks the other.

    Events and subscriptions are as for `match`; the space is taken from the events if none is given. Matches and
    regions are counted over all events; the rest is of a sample of 10,000 events. `cells` is how many each attribute is
    cut into. `on_error="skip"` leaves out clauses that are wrong and events with a bad value.

    >>> trades = pa.table({"symbol": ["IBM", "SAP", "IBM"], "price": [12.5, 80.0, None]})
    >>> learned = learn(trades, {"cheap": "price < 20", "ibm": "symbol = 'IBM'"})
    >>> learned.matches.to_pylist()[1]
    {'id': 'ibm', 'matches': 2, 'share': 0.6666666666666666}
    """
    check_cells(cells)
    work = Learning.of(events, subscriptions, space, on_error)
    if work.match.compiled.wrong and not work.match.skip:
        raise_wrong(work.match.compiled.wrong)
    warn_wrong(len(work.match.compiled.wrong))
    return work.result(cells)


class Counted(NamedTuple):
    """Events of the second reading."""

    cells: Ints  # in the shape of the grid
    matches: Ints  # by subscription


@dataclass
class Learning:
    """A learning that is about to be done."""

    match: Match
    given: Space | None

    @classmethod
    def of(
        cls,
        events: Any,
        subscriptions: Any,
        space: Space | None,
        on_error: str,
        format: Format | None = None,
        time_zone: str = "UTC",
    ) -> Learning:
        """The regions are of a space of their own, which knows no literals but theirs: label codes say where cells of
        strings begin."""
        rows = subscriptions_of(subscriptions, format or Format())
        own = None if space is None else Space.from_json(space.to_json())
        return cls(Match.of(events, rows, own, on_error, format, time_zone), space)

    def result(self, cells: int = CELLS) -> Learned[pa.Table]:
        space = _evenly_coded(self.match.space)
        ids, regions = self.match.compiled.ids, [each.in_space(space) for each in self.match.compiled.regions]
        boxed = boxed_regions(ids, regions, space)
        total, drawn = self._sample(space)
        columns, table = self._encoded_sample(drawn, space)
        points = np.ascontiguousarray(np.stack(columns, axis=1))
        sketch = Sketch.of(space, _some_boxes(boxed), points, lambda name: _texts(table, name, space), cells)
        matcher = TreeMatcher(space)
        matcher.add_many(np.arange(len(regions)), regions)
        view = matcher.view()
        wanted = Wanted.of(*view.match_points(columns))
        counted = self._counted(space, sketch.grid, view, len(regions))
        alone = np.delete(sketch.cells, np.unique(wanted.event))
        by_cell = counted.cells, sketch.grid.count_cells(sketch.cells), sketch.grid.count_cells(alone)
        meeting = sketch.grid.count_boxes(boxed)
        sides = one_sided_regions(
            sketch.grid, space, by_cell, meeting, lambda boxes: sketch.grid.count_boxes_in(boxed, boxes)
        )
        return Learned(
            self.given or self.match.space,
            total,
            len(ids),
            sketch.attributes,
            sketch.boundaries,
            selectivity_table(sketch),
            cells_table(sketch),
            self._matches(counted.matches, total),
            _pairs_table(similar_pairs(wanted, ids.to_pylist()), ids.type),
            regions_table(sides),
            Places.of(sketch.grid, space, *by_cell, meeting),
            lambda: _phi_table(wanted, boxed, space),
        )

    def _readable(self, batch: EventBatch, space: Space) -> pa.RecordBatch:
        """The rows of a batch whose text could be read. Others are an error, unless they are left out."""
        if not batch.wrong and not batch.malformed:
            return batch.rows
        if not self.match.skip:
            raise_bad_events(batch, batch.wrong, space)
        good = np.ones(batch.rows.num_rows, np.bool_)
        good[list(batch.wrong)] = False
        return batch.rows.filter(pa.array(good))

    def _encoded(self, batch: EventBatch, space: Space) -> list[Coordinates]:
        """The coordinates of the events of a batch. Bad ones are an error, unless they are left out."""
        columns, good = space.encode_valid(self._readable(batch, space))
        if not self.match.skip and not good.all():
            raise_bad_events(batch, dict.fromkeys(np.flatnonzero(~good).tolist(), ""), space)
        return columns

    def _sample(self, space: Space) -> tuple[int, pa.Table]:
        """How many events there are that can be used, and some of them, or all if they are few: those with the least of
        random numbers."""
        source, draw, total = self.match.events, np.random.default_rng(1), 0
        schema = source.value_schema(space)
        roots = {attribute.path[0].lower() for attribute in space}
        names = [name for name in schema.names if name.lower() in roots]
        chosen, keys = schema.empty_table().select(names), np.zeros(0)
        for batch in source.batches(space):
            rows = self._readable(batch, space)
            if self.match.skip:
                rows = rows.filter(pa.array(space.encode_valid(rows)[1]))
            rows = rows.select(names)
            total += rows.num_rows
            chosen = pa.concat_tables([chosen, pa.Table.from_batches([rows])])
            keys = np.concatenate((keys, draw.random(rows.num_rows)))
            if len(keys) > EVENTS:
                kept = np.sort(np.argpartition(keys, EVENTS)[:EVENTS])
                chosen, keys = chosen.take(pa.array(kept)).combine_chunks(), keys[kept]
        return total, chosen.combine_chunks()

    def _encoded_sample(self, table: pa.Table, space: Space) -> tuple[list[Coordinates], pa.Table]:
        """The coordinates of sampled events, and these without the bad ones."""
        columns, good = space.encode_valid(table)
        if good.all():
            return columns, table
        if not self.match.skip:
            for batch in self.match.events.batches(space):  # which names the place of a bad event
                self._encoded(batch, space)
        return columns, table.filter(pa.array(good))

    def _counted(self, space: Space, grid: CellGrid, view: Any, subscriptions: int) -> Counted:
        def counted(batch: EventBatch) -> Counted:
            columns = self._encoded(batch, space)
            numbers = view.match_points(columns)[1]
            return Counted(grid.count_cells(grid.cells_of(columns)), np.bincount(numbers, minlength=subscriptions))

        total = Counted(np.zeros(grid.shape, np.int64), np.zeros(subscriptions, np.int64))
        parts: Iterator[Counted] = in_order(self.match.events.batches(space), counted, THREADS)
        for part in parts:
            total = Counted(total.cells + part.cells, total.matches + part.matches)
        return total

    def _matches(self, counts: Ints, total: int) -> pa.Table:
        return pa.table(
            {
                "id": self.match.compiled.ids,
                "matches": pa.array(counts, pa.int64()),
                "share": pa.array(counts / max(total, 1), pa.float64()),
            }
        )


def _evenly_coded(space: Space) -> Space:
    """The same with codes that depend on the strings only, and not on who mentioned them first."""
    if not space.labelled_axes:
        return space
    fresh = Space.from_json(space.to_json())
    for axis, labels in zip(fresh.labelled_axes, space.label_codes, strict=True):
        axis.cut_many(labels.to_pairs()[0])
    return fresh


def _some_boxes(boxed: Boxed) -> tuple[Ints, Ints]:
    """The boxes of a sample of subscriptions, or of all if they are few."""
    count = len(boxed.ids)
    if count <= BOXES:
        return boxed.low, boxed.high
    chosen = np.zeros(count, np.bool_)
    chosen[np.random.default_rng(1).permutation(count)[:BOXES]] = True
    kept = np.repeat(chosen, np.diff(boxed.starts))
    return boxed.low[kept], boxed.high[kept]


def _texts(table: pa.Table, name: str, space: Space) -> Sequence[str | None]:
    """The values of a string attribute; of one that the table does not have, none."""
    index = space.index(name)
    assert index is not None
    path = space.attributes[index].path
    column = next(table.column(each) for each in table.schema.names if each.lower() == path[0].lower())
    found = field_of(column, path[1:])
    return () if found is MISSING else found.to_pylist()


def _pairs_table(pairs: Sequence[SimilarPair], kind: pa.DataType) -> pa.Table:
    types = (kind, kind, pa.int64(), pa.int64(), pa.float64())
    schema = pa.schema(list(zip(SimilarPair._fields, types, strict=True)))
    return pa.Table.from_pylist([each._asdict() for each in pairs], schema)


def _phi_table(wanted: Wanted, boxed: Boxed, space: Space) -> pa.Table:
    found = phi(wanted, boxed, space)
    columns = {"id": boxed.ids.take(pa.array(found.subscription)), "events": pa.array(found.events, pa.int64())}
    return pa.table(columns | {"root": pa.array(found.root), "phi": pa.array(found.phi)})
