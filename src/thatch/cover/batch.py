"""Deciding about many regions in one call of a kernel, for engines whose kernels insert what they decide on.

The verdicts come back as arrays (codes, names, witnesses), and become objects when somebody looks at them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress
from typing import Any, NamedTuple, overload

import numpy as np

from thatch.cover.boxed import COVERED, UNCOVERED, BoxedEngine, surely_inside
from thatch.cover.verdict import Covered, Uncovered, Verdict
from thatch.region.box_sets import Boxes, as_boxes, as_regions
from thatch.region.recoding import recode_point
from thatch.region.region import Region
from thatch.space.arrays import Ints

PART = 16_384  # regions that a kernel is given at a time


class BatchPart(NamedTuple):
    """Some regions, and where a kernel writes what it decided."""

    low: Ints  # [boxes, d]
    high: Ints
    starts: Ints  # [regions + 1]: where the boxes of each region begin
    codes: Ints  # [regions]
    witness_low: Ints  # [regions, d]: after UNCOVERED, a box that holds a witness
    witness_high: Ints


class BatchedEngine(BoxedEngine):
    def _cover_and_add(self, part: BatchPart) -> tuple[Ints, Ints]:
        """Decide about each region in turn, and insert it, numbered upward from `_number`, into slots that were never
        used, unless it is covered. Certificates as names, and the place where each region's begin."""
        raise NotImplementedError

    def _state(self) -> tuple[int, Any]:
        """What changes when members leave, or when an axis is recoded."""
        return self._departures, self._label_codes

    def _uncovered_before(self, low: Ints, high: Ints, number: int, state: tuple[int, Any]) -> Uncovered:
        """As `_uncovered`, of the members before one with that number, and as they were then."""
        point = tuple(low.tolist())
        if not self.space.is_current(state[1]):
            point = recode_point(point, self.space, state[1])[0]
        return Uncovered(point, space=self.space)

    def add_many(self, ids: Sequence[Any], regions: Sequence[Region] | Boxes) -> Sequence[Verdict]:  # type: ignore[override]
        """In one call of the kernel, where every region is a union of plain boxes."""
        boxes = as_boxes(ids, regions, self.space)
        if not len(ids):
            return []
        self.check_new(ids)
        checked: list[Region] = []
        if boxes is not None and not self._label_codes and (boxes[0] <= boxes[1]).all():
            low, high = boxes
            starts = np.arange(len(ids) + 1, dtype=np.int64)
        else:
            checked = as_regions(ids, regions, self.space)
            flat = [surely_inside(region.terms_in(self.space), self.space) for region in checked]
            self._align()
            if not flat or not all(whole and len(low) for low, _, whole in flat):
                return super().add_many(ids, checked)
            starts = np.cumsum([0] + [len(each) for each, _, _ in flat])
            low = np.concatenate([each for each, _, _ in flat])
            high = np.concatenate([each for _, each, _ in flat])
        if self._vague:
            return super().add_many(ids, regions)
        verdicts = self._add_boxes(ids, low, high, starts)
        added = verdicts.codes != COVERED
        self._remember(compress(ids, added), compress(checked, added))
        return verdicts

    def add_unions(self, ids: Sequence[Any], low: Ints, high: Ints, starts: Ints) -> Verdicts:
        """`add_many` of unions of plain boxes of the space, given as arrays: those of each, one or more, begin at
        starts[i]. For callers that have coordinates that are good, under the present label codes, and no regions:
        nothing is looked at before it is used, and where an axis is recoded these members are lost."""
        self.check_new(ids)
        return self._add_boxes(ids, low, high, starts)

    def _add_boxes(self, ids: Sequence[Any], low: Ints, high: Ints, starts: Ints) -> Verdicts:
        """In parts, so that room is made for what is kept and not for all that comes."""
        ids = list(ids)  # verdicts name them later, whatever the caller does with the list
        n, d = len(ids), len(self.space)
        codes = np.zeros(n, np.int64)
        witness_low, witness_high = np.zeros((n, d), np.int64), np.zeros((n, d), np.int64)
        first_number, first_slots = self._number, np.zeros(n, np.int64)
        parts: list[tuple[Ints, Ints]] = []
        for start in range(0, n, PART):
            regions = slice(start, min(start + PART, n))
            boxes = slice(starts[start], starts[regions.stop])
            own_starts = starts[start : regions.stop + 1] - starts[start]
            slot = int(self.index.rows.used[0])
            part = BatchPart(
                low[boxes], high[boxes], own_starts, codes[regions], witness_low[regions], witness_high[regions]
            )
            parts.append(self._cover_and_add(part))
            sizes = np.where(codes[regions] != COVERED, np.diff(own_starts), 0)
            first_slots[regions] = slot + np.cumsum(sizes) - sizes
            self._number += regions.stop - start
        added = codes != COVERED
        kept = list(compress(ids, added.tolist()))
        self._ids.update(zip((first_number + np.flatnonzero(added)).tolist(), kept, strict=True))
        slots, sizes = first_slots[added].tolist(), np.diff(starts)[added]
        runs: Iterable[tuple[int, ...]] = zip(slots, strict=True)  # of one slot each, the usual case
        if (sizes != 1).any():
            runs = (tuple(range(slot, slot + size)) for slot, size in zip(slots, sizes.tolist(), strict=True))
        self._slots.update(zip(kept, runs, strict=True))
        names = np.concatenate([names for names, _ in parts])
        begins = np.concatenate(([0], *(np.diff(each) for _, each in parts))).cumsum()
        earlier = {int(name): self._ids[int(name)] for name in np.unique(names[names < first_number])}
        return Verdicts(self, ids, first_number, earlier, codes, names, begins, witness_low, witness_high)


class Verdicts(Sequence[Verdict]):
    """The verdicts of `add_many`, made into objects when they are looked at: most never are."""

    def __init__(
        self,
        engine: BatchedEngine,
        ids: Sequence[Any],
        number: int,
        earlier: dict[int, Any],
        codes: Ints,
        names: Ints,
        begins: Ints,
        low: Ints,
        high: Ints,
    ) -> None:
        self._engine, self._ids, self._number, self._earlier = engine, ids, number, earlier
        self.codes, self._names, self._begins, self._low, self._high = codes, names, begins, low, high
        self._state = engine._state()

    def __len__(self) -> int:
        return len(self.codes)

    @overload
    def __getitem__(self, position: int) -> Verdict: ...
    @overload
    def __getitem__(self, position: slice) -> list[Verdict]: ...
    def __getitem__(self, position: int | slice) -> Verdict | list[Verdict]:
        if isinstance(position, slice):
            return [self[each] for each in range(*position.indices(len(self)))]
        position = range(len(self))[position]
        code, engine = self.codes[position], self._engine
        if code == COVERED:
            names = self._names[self._begins[position] : self._begins[position + 1]]
            return Covered(tuple(self._id(name) for name in sorted(set(names.tolist()))))
        if code == UNCOVERED:
            box = self._low[position], self._high[position]
            return engine._uncovered_before(*box, self._number + position, self._state)
        return engine._undecided()

    def certificates(self) -> tuple[Ints, Ints]:
        """The positions in the batch of those that each names, and where the names of each begin. Of a batch that was
        the engine's first."""
        assert self._number == 0
        return self._names, self._begins

    def _id(self, name: int) -> Any:
        return self._ids[name - self._number] if name >= self._number else self._earlier[name]
