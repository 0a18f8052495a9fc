"""Which keys and cells suit events and subscriptions, and what a join on them would have to look at: NumPy only.

Each attribute gets one grid. Of the keys of one, two or three attributes the choice takes the one that spares the most
comparisons, then the best for the subscriptions that this does not suit, and so on, while another key spares more than
asking for it costs; a subscription then takes the key of which it touches the fewest cells. Samples decide what is
fast, never what is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

import msgspec
import numpy as np

from thatch.spark.matching.cells import ATTRIBUTES_MAX, CELLS_MAX, HASHES, AxisGrid, Key, code_of
from thatch.spark.matching.facts import JoinEstimate

KEYS_MAX = 48
PIECES = 8  # of a grid
SIZES = (8, 16, 32, 64, 128, 256, 1024, 4096)  # cells of one attribute
TRIED = 10  # attributes that keys of several are made of
HOT = 0.02  # of the events in one cell are many
EVEN = 0.05  # of the range, that a quantile may be away from where even events would have it
FARTHEST = 1e300  # a knot may be: the distance between two must be finite

# What things cost, in nanoseconds of one core, as measured (docs/spark.md): to write out one row of a subscription and
# put it into a hash table, to look up an event by one key, to compare it with one candidate.
ROW, PROBE, CANDIDATE = 1500.0, 150.0, 15.0


class Native(msgspec.Struct):
    """Keys, and what they are expected to cost."""

    keys: list[Key]
    candidates: float  # per event
    rows: float  # per subscription
    matches: float  # per event
    cost: float  # nanoseconds, of all
    hot: list[tuple[int, float]]  # codes that many events have, and their share

    @property
    def estimate(self) -> JoinEstimate:
        return JoinEstimate(self.candidates, self.matches, self.cost)


class KeyChoice:
    """The choice of keys for so many events and subscriptions: of the attributes that subscriptions bound, by number,
    and whether the cells of each are hashes."""

    def __init__(self, attributes: Sequence[int], hashes: Sequence[bool], events: float, subscriptions: float) -> None:
        self._attributes, self._hashes = list(attributes), list(hashes)
        self._events, self._subscriptions = events, subscriptions

    def chosen(self, rows: list[dict[str, Any]]) -> Native:
        """`rows` are both samples: `low`, `high`, `null` and `lists` of each, an item for each attribute. An event has
        its values in `low`, and no `high`."""
        points = np.array([row["low"] for row in rows if row["high"] is None], np.float64)
        boxes = [row for row in rows if row["high"] is not None]
        if not len(points) or not boxes:
            return Native([], float(self._subscriptions), 1.0, 0.0, 0.0, [])
        samples = Samples(points.reshape(len(points), -1), boxes, self._attributes, self._hashes)
        plans = [self._greedy(samples, [])]
        for shrink in (1, 2, 4, 8):  # several attributes together need fewer cells of each
            sides = [side for side in samples.sides(shrink) if side.suits.any()]
            sides = sorted(sides, key=lambda side: side.met.mean())[:TRIED]
            for size in range(1, min(ATTRIBUTES_MAX, len(sides)) + 1):
                plans.append(self._greedy(samples, [Tried.of(each, samples) for each in combinations(sides, size)]))
        return min(plans, key=lambda plan: plan.cost)

    def _greedy(self, samples: Samples, tried: list[Tried]) -> Native:
        scale = self._subscriptions / samples.boxes
        left = np.ones(samples.boxes, np.bool_)
        chosen: list[Tried] = []
        while len(chosen) < KEYS_MAX:
            gains = [
                self._events * (CANDIDATE * scale * (1 - each.met[own]).sum() - PROBE)
                - ROW * scale * (each.touched[own] - 1).sum()
                for each in tried
                for own in [each.suits & left]
            ]
            if not gains or max(gains) <= 0:
                break
            best = tried[int(np.argmax(gains))]
            own = best.suits & left
            chosen.append(best)
            left &= ~own
        # Each box with its own key: the fewest cells.
        touched, met = np.full(samples.boxes, np.inf), np.ones(samples.boxes)
        for each in chosen:
            better = each.suits & (each.touched < touched)
            touched, met = np.where(better, each.touched, touched), np.where(better, each.met, met)
        touched = np.where(left, 1.0, touched)
        candidates, rows = float(met.sum()) * scale, float(touched.sum())
        asked = len(chosen) + bool(left.any())
        cost = self._events * (asked * PROBE + candidates * CANDIDATE) + rows * scale * ROW
        keys = [each.key for each in chosen]
        return Native(keys, candidates, rows / samples.boxes, samples.matches() * scale, cost, samples.hot(keys))


class Side(NamedTuple):
    """A grid of one attribute, and for each box:"""

    grid: AxisGrid
    suits: Any  # whether it may be used
    touched: Any  # how many cells it touches
    met: Any  # the share of events in them
    shared: Any  # [events, boxes]: which


class Tried(NamedTuple):
    """A key, and for each box the same."""

    key: Key
    suits: Any
    touched: Any
    met: Any

    @classmethod
    def of(cls, sides: Sequence[Side], samples: Samples) -> Tried:
        suits, touched, shared = sides[0].suits, sides[0].touched, sides[0].shared
        for side in sides[1:]:
            suits, touched, shared = suits & side.suits, touched * side.touched, shared & side.shared
        if all(side.grid.knots for side in sides):
            suits = suits & (touched <= CELLS_MAX)
        return cls(tuple(side.grid for side in sides), suits, touched, shared.mean(axis=0))


class Samples:
    """Events against boxes: who shares a cell with whom."""

    def __init__(self, points: Any, boxes: list[dict[str, Any]], attributes: list[int], hashes: list[bool]) -> None:
        self.points, self.boxes, self.attributes, self.hashes = points, len(boxes), attributes, hashes
        self.low, self.high = (np.array([box[side] for box in boxes], np.float64) for side in ("low", "high"))
        self.null = np.array([box["null"] for box in boxes], np.bool_)
        self.lists = [box["lists"] for box in boxes]
        self._best: list[int] | None = None

    def sides(self, shrink: int) -> list[Side]:
        """A grid for each attribute: of the sizes the best for this attribute alone, or fewer cells."""
        if self._best is None:
            self._best = [self._best_size(place) for place in range(len(self.attributes))]
        return [self._side(place, max(2, best // shrink)) for place, best in enumerate(self._best)]

    def _best_size(self, place: int) -> int:
        def cost(size: int) -> float:
            side = self._side(place, size)
            rows = np.where(side.suits, side.touched, 1.0).sum() * ROW
            return float(np.where(side.suits, side.met, 1.0).sum() * len(self.points) * 64 * CANDIDATE + rows)

        return HASHES if self.hashes[place] else min(SIZES, key=cost)

    def _side(self, place: int, size: int) -> Side:
        values, null = self.points[:, place], self.null[:, place]
        if self.hashes[place]:
            shared = np.zeros((len(values), self.boxes), np.bool_)
            touched = np.zeros(self.boxes)
            for box, lists in enumerate(self.lists):
                if lists[place] is not None:
                    touched[box] = len(set(lists[place]))
                    shared[:, box] = np.isin(values, lists[place])
            return Side(AxisGrid(self.attributes[place]), (touched > 0) & ~null, touched, shared.mean(axis=0), shared)
        grid = grid_of(self.attributes[place], values, size)
        at, first, last = (grid.cells(each) for each in (values, self.low[:, place], self.high[:, place]))
        touched = (last - first + 1).astype(np.float64)
        suits = (touched <= CELLS_MAX) & (touched > 0) & ~null
        shared = (first[None, :] <= at[:, None]) & (at[:, None] <= last[None, :]) & ~np.isnan(values)[:, None]
        return Side(grid, suits, touched, shared.mean(axis=0), shared)

    def matches(self) -> float:
        """How many boxes hold an event."""
        inside = np.ones((len(self.points), self.boxes), np.bool_)
        for place in range(len(self.attributes)):
            values = self.points[:, place]
            if self.hashes[place]:
                listed = np.array([lists[place] is not None for lists in self.lists])
                inside &= ~listed[None, :] | self._side(place, HASHES).shared
                continue
            low, high = self.low[:, place], self.high[:, place]
            within = (values[:, None] >= low[None, :]) & ((values[:, None] <= high[None, :]) | np.isnan(high)[None, :])
            inside &= np.where(np.isnan(values)[:, None], self.null[None, :, place], within)
        return float(inside.sum()) / len(self.points)

    def hot(self, keys: Sequence[Key]) -> list[tuple[int, float]]:
        """The codes that more than a few of the events have, and their share."""
        found = [(code_of(len(keys), ()), 1.0)]
        for number, key in enumerate(keys):
            columns = []
            for grid in key:
                values = self.points[:, self.attributes.index(grid.attribute)]
                columns.append(grid.cells(values) if grid.knots else np.nan_to_num(values, nan=0.0).astype(np.int64))
            cells, counts = np.unique(np.stack(columns, axis=1), axis=0, return_counts=True)
            shares = counts / len(self.points)
            found += [
                (code_of(number, own.tolist()), float(share))
                for own, share in zip(cells, shares, strict=True)
                if share > HOT
            ]
        return found


def grid_of(attribute: int, values: Any, cells: int) -> AxisGrid:
    """Cells of equal width between quantiles of the events, so that a crowded part has more of them. The first and the
    last cell take what lies beyond."""
    seen = np.clip(values[~np.isnan(values)], -FARTHEST, FARTHEST)
    if not len(seen):
        seen = np.zeros(1)
    shares = np.linspace(0, 1, min(PIECES, cells) + 1)
    knots = np.quantile(seen, shares)
    if np.abs(knots - np.interp(shares, (0, 1), (knots[0], knots[-1]))).max() <= EVEN * (knots[-1] - knots[0]):
        knots = knots[[0, -1]]  # spread evenly: one piece, and less to compute
    knots = np.unique(knots)
    knots = np.append(knots[:-1], np.nextafter(knots[-1], np.inf)) if len(knots) > 1 else knots
    if len(knots) < 2:
        knots = np.array([knots[0], np.nextafter(knots[0], np.inf)])
    pieces = len(knots) - 1
    return AxisGrid(attribute, tuple(knots.tolist()), (max(1, cells // pieces),) * pieces)
