"""Claim: a box becomes ranges along a curve 40 times faster by descent than by enumerating its cells, and a table of
such ranges takes a subscription and matches an event in a time that hardly grows with the table (MICS).

Parts, all of them or those named on the command line; bits = 8 (256 cells an attribute), sizes in cells:

descent     Ranges of one box, by descent, by enumeration, and by enumeration as good as we could make it (bits of each
            axis interleaved by table). Both rivals are compiled: they number all cells of the box, sort the numbers and
            join them. Calls from Python are in it, 3 microseconds each, which is all there is at small sizes.
ranges      Mean ranges of a box against S/(2d), for three curves.
growth      Subscriptions of one link, as boxes of one size with uniform or Zipf (exponent 1) lower bounds, and uniform
            events: stored ranges before and after merging, what was forwarded, time to insert one, and to match an
            event: is it wanted at all (`table`, from Python, one by one)? by whom (`index`, a batch; and `tree`, our
            default index)? Compiled linear scans answer both questions, too.
many        7 attributes, boxes of which 2 to 7 are bounded: projection on 3 of them (how many forwarded events nobody
            wants), indexing on 3 (candidates left to compare), groups of 3 + 2 + 2; attributes chosen in order, by
            selectivity, and jointly. Times beside our default index.
cells       Zipf events, 2 attributes of doubles, few cells: equal ones against quantiles of the events.
told        A link's interest as boxes, as cells (64 an axis), and as a summary for each attribute: bytes against the
            share of events let through that nobody wants.
brokers     Events at P, subscribers at S and T, brokers P-A-B, B-C-S and B-D-T: time that a broker on the way (A to D)
            takes to handle an event when it reads its values and searches its index, and when neighbours agree on a
            partition and it looks up the event's cell. Handling only: no encoding or network. And the share of events
            that reach S and T as false positives.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks import interleaved, report
from thatch import Space
from thatch.broker import Cells, Settings
from thatch.cover import CellTable, ExactEngine, region_of_box
from thatch.grid.choice import choose_attributes
from thatch.grid.curve import CURVES, Curve, curve, descend, expected_ranges
from thatch.grid.grid import Grid
from thatch.jit import kernel
from thatch.matching import HilbertMatcher, Matcher, TreeMatcher
from thatch.protocol.messages import Publish
from thatch.rivals.summary import LinkSummary
from thatch.sim.overlay import Overlay
from thatch.sim.topology import chain
from thatch.sim.workload import DOMAIN, box_clause, space_of
from thatch.space.arrays import Ints

CELLS = 256
BITS = 8
FLOOR, GOAL = 15, 40  # times faster than enumeration in 4 attributes at size 16
COUNTS = (20_000, 60_000, 100_000, 150_000)
Boxes = tuple[Ints, Ints]


@dataclass(frozen=True)
class Options:
    scale: float
    rounds: int

    def count(self, full: int) -> int:
        return max(10, int(full * self.scale))

    def report(self, name: str, rows: list[dict[str, Any]]) -> None:
        report(f"hilbert_{name}" if self.scale == 1 else f"hilbert_{name}_scaled", rows)


# Rivals


@kernel
def number_cells(path: Curve, low: Ints, high: Ints, out: Ints) -> None:
    """The numbers of all cells of a box, in no order."""
    axes, bits, places, turns = path.axes, path.bits, path.place, path.turn
    cell = low.copy()
    for row in range(len(out)):
        index, state = 0, 0
        for level in range(bits - 1, -1, -1):
            half = 0
            for axis in range(axes):
                half |= ((cell[axis] >> level) & 1) << axis
            w = places[state, half]
            index = (index << axes) | w
            state = turns[state, w]
        out[row] = index
        for axis in range(axes):
            cell[axis] += 1
            if cell[axis] <= high[axis]:
                break
            cell[axis] = low[axis]


@kernel
def number_interleaved(path: Curve, low: Ints, high: Ints, spread: Ints, out: Ints) -> None:
    """The same; spread[v] has the bits of v an axis count apart."""
    axes, bits, places, turns = path.axes, path.bits, path.place, path.turn
    cell, every = low.copy(), (1 << path.axes) - 1
    above = 0  # the bits of all axes but the first
    for axis in range(1, axes):
        above |= spread[cell[axis]] << axis
    for row in range(len(out)):
        word = above | spread[cell[0]]
        index, state = 0, 0
        for level in range(bits - 1, -1, -1):
            w = places[state, (word >> (level * axes)) & every]
            index = (index << axes) | w
            state = turns[state, w]
        out[row] = index
        for axis in range(axes):
            cell[axis] += 1
            if cell[axis] <= high[axis]:
                break
            cell[axis] = low[axis]
        if cell[0] == low[0]:
            above = 0
            for axis in range(1, axes):
                above |= spread[cell[axis]] << axis


@kernel
def join_numbers(numbers: Ints, out: Ints) -> int:
    count = 0
    for place in range(len(numbers)):
        if count > 0 and numbers[place] == out[count - 1, 1] + 1:
            out[count - 1, 1] = numbers[place]
        else:
            out[count, 0] = out[count, 1] = numbers[place]
            count += 1
    return count


@kernel
def scan_any(low: Ints, high: Ints, points: Ints) -> int:
    """How many points are in some box: a scan each that ends at the first."""
    wanted = 0
    for row in range(len(points)):
        for box in range(len(low)):
            holds = True
            for axis in range(points.shape[1]):
                if points[row, axis] < low[box, axis] or points[row, axis] > high[box, axis]:
                    holds = False
                    break
            if holds:
                wanted += 1
                break
    return wanted


@kernel
def scan_all(low: Ints, high: Ints, points: Ints) -> int:
    """How many pairs of a point and a box that holds it."""
    pairs = 0
    for row in range(len(points)):
        for box in range(len(low)):
            holds = True
            for axis in range(points.shape[1]):
                if points[row, axis] < low[box, axis] or points[row, axis] > high[box, axis]:
                    holds = False
                    break
            pairs += holds
    return pairs


# Workloads


def zipf(shape: tuple[int, ...], values: int, draw: np.random.Generator) -> Ints:
    weights = np.cumsum(1 / np.arange(1, values + 1))
    return np.searchsorted(weights, draw.random(shape) * weights[-1]).astype(np.int64)


def cell_space(attributes: int) -> Space:
    return Space.parse(", ".join(f"x{at} int not null 0..{CELLS - 1}" for at in range(attributes)))


def cell_boxes(kind: str, count: int, attributes: int, size: int, draw: np.random.Generator) -> Boxes:
    """Boxes of one size; a lower bound is one that leaves room for it."""
    values, shape = CELLS - size + 1, (count, attributes)
    low = zipf(shape, values, draw) if kind == "zipf" else draw.integers(0, values, shape)
    return low, low + size - 1


# Parts


def descents(options: Options) -> None:
    options.report("descent", [descent(options, axes, size) for axes in (2, 3, 4) for size in (2, 4, 8, 16)])


def descent(options: Options, axes: int, size: int) -> dict[str, Any]:
    draw, path = np.random.default_rng(1), curve("hilbert", axes, BITS)
    spread = np.array([sum(((v >> b) & 1) << (b * axes) for b in range(BITS)) for v in range(CELLS)], np.int64)
    boxes = [(low, low + size - 1) for low in draw.integers(0, CELLS - size + 1, (options.count(50), axes))]
    numbers, out = np.empty(size**axes, np.int64), np.empty((size**axes, 2), np.int64)

    def by_descent() -> list[int]:
        return [descend(path, low, high, 0, False, 0, out) for low, high in boxes]

    def by_cells() -> list[int]:
        counts = []
        for low, high in boxes:
            number_cells(path, low, high, numbers)
            numbers.sort()
            counts.append(join_numbers(numbers, out))
        return counts

    def by_interleaved_cells() -> list[int]:
        counts = []
        for low, high in boxes:
            number_interleaved(path, low, high, spread, numbers)
            numbers.sort()
            counts.append(join_numbers(numbers, out))
        return counts

    assert by_descent() == by_cells() == by_interleaved_cells()
    contenders = {"descent": by_descent, "cells": by_cells, "interleaved": by_interleaved_cells}
    seconds = interleaved(contenders, options.rounds)
    ratio, is_claim = seconds["cells"] / seconds["descent"], axes == 4 and size == 16
    return {
        "attributes": axes,
        "size": size,
        "ranges": float(np.mean(by_descent())),
        "descent us": seconds["descent"] / len(boxes) * 1e6,
        "times enumeration": ratio,
        "times interleaved": seconds["interleaved"] / seconds["descent"],
        "floor": FLOOR if is_claim else "",
        "goal": GOAL if is_claim else "",
        "verdict": ("goal" if ratio >= GOAL else "floor" if ratio >= FLOOR else "MISSED") if is_claim else "",
    }


def range_counts(options: Options) -> None:
    rows = []
    for axes in (2, 3, 4):
        for size in (2, 4, 8, 16, 32, 64):
            draw = np.random.default_rng(2)
            lows = draw.integers(0, CELLS - size + 1, (options.count(60), axes))
            expected = float(expected_ranges(np.zeros(axes, np.int64), np.full(axes, size - 1), 0))
            row: dict[str, Any] = {"attributes": axes, "size": size, "S/(2d)": expected}
            out = np.empty((8 * size ** (axes - 1) + 64, 2), np.int64)
            for name in CURVES:
                path = curve(name, axes, BITS)
                counts = [descend(path, low, low + size - 1, 0, False, 0, out) for low in lows]
                assert min(counts) > 0
                row[name] = float(np.mean(counts))
                row[f"{name} / formula"] = row[name] / expected
            rows.append(row)
    options.report("ranges", rows)


def growth(options: Options) -> None:
    rows = []
    for size in (2, 4):
        for axes in (2, 3, 4):
            for kind in ("uniform", "zipf"):
                first: dict[str, Any] = {}
                for full in COUNTS:
                    row = grown_to(options, kind, options.count(full), axes, size)
                    first = first or row
                    row["insert growth"] = row["insert us"] / first["insert us"]
                    row["match growth"] = row["table us"] / first["table us"]
                    rows.append(row)
    options.report("growth", rows)


def grown_to(options: Options, kind: str, count: int, axes: int, size: int) -> dict[str, Any]:
    draw, space = np.random.default_rng([3, axes, size]), cell_space(axes)
    low, high = cell_boxes(kind, count, axes, size, draw)
    points = draw.integers(0, CELLS, (options.count(20_000), axes))
    few = points[: max(5, min(len(points), 20_000_000 // count))]  # for the scans
    table, forwarded = CellTable(Grid(space)), 0
    regions = [region_of_box(*box, space) for box in zip(low[:200].tolist(), high[:200].tolist(), strict=True)]
    for id, region in enumerate(regions):  # compiled by then
        table.subscribe(-1 - id, region)
    for id in range(len(regions)):
        table.unsubscribe(-1 - id)
    boxes = zip(low.tolist(), high.tolist(), strict=True)
    regions = [region_of_box(*box, space) for box in boxes]
    start = time.perf_counter()
    for id, region in enumerate(regions):
        forwarded += len(table.subscribe(id, region)) > 0
    inserting = time.perf_counter() - start
    columns, numbers = list(points.T), table.grid.numbers(points)
    indexes: dict[str, Matcher] = {"index": HilbertMatcher(space), "tree": TreeMatcher(space)}
    building = {}
    for name, index in indexes.items():
        start = time.perf_counter()
        index.add_many(np.arange(count), (low, high))
        building[name] = time.perf_counter() - start
    views = {name: index.view() for name, index in indexes.items()}
    found = [view.match_points([column[: len(few)] for column in columns]) for view in views.values()]
    assert len(found[0][0]) == len(found[1][0]) == scan_all(low, high, few)
    assert [each.tolist() for each in found[0]] == [each.tolist() for each in found[1]]
    some = numbers[:2_000].tolist()
    wanted = [table.matches_number(number) for number in some]
    assert sum(wanted[: len(few)]) == scan_any(
        low, high, few[: len(some)]
    )  # boxes of whole cells: nothing is augmented
    seconds = interleaved(
        {
            "table": lambda: [table.matches_number(number) for number in some],
            "index": lambda: views["index"].match_points(columns),
            "tree": lambda: views["tree"].match_points(columns),
            "any": lambda: scan_any(low, high, few),
            "all": lambda: scan_all(low, high, few),
        },
        options.rounds,
    )
    each = {"table": len(some), "index": len(points), "tree": len(points), "any": len(few), "all": len(few)}
    micros = {name: taken / each[name] * 1e6 for name, taken in seconds.items()}
    return {
        "size": size,
        "attributes": axes,
        "bounds": kind,
        "boxes": count,
        "forwarded": forwarded,
        "ranges": table.range_count,
        "merged": len(table.merged()),
        "insert us": inserting / count * 1e6,
        "table us": micros["table"],
        "scan / table": micros["any"] / micros["table"],
        "index us": micros["index"],
        "scan / index": micros["all"] / micros["index"],
        "index / tree": micros["index"] / micros["tree"],
        "build / tree": building["index"] / building["tree"],
        "bytes a box": indexes["index"].nbytes / count,
    }


def many_boxes(kind: str, count: int, draw: np.random.Generator) -> tuple[Boxes, Ints]:
    """7 attributes: x0 to x2 rarely bounded, and widely; x3 and x4 narrowly, at one place; x5 and x6 on their own."""
    sizes = np.array([128, 128, 128, 3, 3, 4, 8])
    values = CELLS - sizes + 1
    low = np.stack([zipf((count,), n, draw) if kind == "zipf" else draw.integers(0, n, count) for n in values], axis=1)
    low[:, 4] = low[:, 3]
    high = low + sizes - 1
    free = draw.random((count, 7)) < np.array([0.7, 0.7, 0.7, 0, 0, 0.1, 0.1])
    low[free], high[free] = 0, CELLS - 1
    events = 10_000
    points = zipf((events, 7), CELLS, draw) if kind == "zipf" else draw.integers(0, CELLS, (events, 7))
    points[:, 4] = np.clip(points[:, 3] + draw.integers(-1, 2, events), 0, CELLS - 1)
    return (low, high), points


def many(options: Options) -> None:
    rows = []
    for kind in ("uniform", "zipf"):
        for full in (COUNTS[0], COUNTS[-1]):
            rows += ways_to_many(options, kind, options.count(full))
    options.report("many", rows)


def ways_to_many(options: Options, kind: str, count: int) -> list[dict[str, Any]]:
    space = cell_space(7)
    boxes, points = many_boxes(kind, count, np.random.default_rng(5))
    points, sample = points[: options.count(3_000)], points[-1_000:]
    ways: dict[str, dict[str, Any]] = {
        "the first 3": {"attributes": ["x0", "x1", "x2"]},
        "3 by selectivity": {"attributes": choose_attributes(space, boxes, 3, "selectivity", sample)},
        "3 jointly": {"attributes": choose_attributes(space, boxes, 3, "joint", sample)},
        "groups 3 + 2 + 2": {"groups": [["x0", "x1", "x2"], ["x3", "x4"], ["x5", "x6"]]},
        "groups, best first": {"groups": [["x3", "x5", "x6"], ["x0", "x1"], ["x2", "x4"]]},
    }
    tree = TreeMatcher(space)
    tree.add_many(np.arange(count), boxes)
    columns = list(points.T)
    expected = tree.view().match_points(columns)
    true, rows = len(np.unique(expected[0])), []
    views: dict[str, Any] = {"tree": tree.view()}
    for way, given in ways.items():
        matcher = HilbertMatcher(space, **given)
        matcher.add_many(np.arange(count), boxes)
        views[way] = matcher.view()
        answer = views[way].match_points(columns)
        assert all(np.array_equal(one, other) for one, other in zip(answer, expected, strict=True))
    contenders: dict[str, Callable[[], object]] = {
        name: partial(view.match_points, columns) for name, view in views.items()
    }
    seconds = interleaved(contenders | {"scan": partial(scan_all, *boxes, points[:100])}, options.rounds)
    for way, given in ways.items():
        named = [(np.unique(places), found) for places, _, found in views[way].candidates(points)]
        reached = len(np.unique(np.concatenate([places for places, _ in named])))
        rows.append(
            {
                "bounds": kind,
                "boxes": count,
                "way": way,
                "attributes": " ".join(given.get("attributes") or ["+".join(each) for each in given["groups"]]),
                "wanted": true,
                "forwarded": reached,
                "false %": 100 * (reached - true) / max(1, reached),
                "candidates": sum(found for _, found in named) / len(points),
                "matches": len(expected[0]) / len(points),
                "scan / index": seconds["scan"] / min(100, len(points)) * len(points) / seconds[way],
                "index / tree": seconds[way] / seconds["tree"],
            }
        )
    return rows


def cells(options: Options) -> None:
    """Events and the places of boxes crowd at the low end; all is finer than a cell, so cells matter."""
    space, rows = Space.parse("x double not null 0..1000, y double not null 0..1000"), []
    draw = np.random.default_rng(6)

    def crowded(count: int) -> Any:
        return np.minimum(zipf((count, 2), 1_000, draw) + draw.random((count, 2)), 1_000)

    events = crowded(options.count(20_000))
    for count in (200, 2_000):
        low = crowded(options.count(count))
        high = np.minimum(low + 2, 1_000)
        sides = [
            np.stack(space.encode_batch({"x": each[:, 0], "y": each[:, 1]}), axis=1) for each in (low, high, events)
        ]
        for bits in (4, 6, 8):
            shares = np.arange(1, 1 << bits) / (1 << bits)
            quantiles = {name: np.quantile(events[:, at], shares).tolist() for at, name in enumerate("xy")}
            row: dict[str, Any] = {"boxes": len(low), "cells an axis": 1 << bits}
            for name, given in (("equal", None), ("quantiles", quantiles)):
                grid = Grid(space, bits=bits, cells=given)
                table = CellTable(grid)
                for id, box in enumerate(zip(sides[0].tolist(), sides[1].tolist(), strict=True)):
                    table.subscribe(id, region_of_box(*box, space))
                merged, numbers = table.merged(), grid.numbers(sides[2])
                place = np.searchsorted(merged[:, 0], numbers, "right") - 1
                reached = int(((place >= 0) & (merged[place, 1] >= numbers)).sum())
                true = scan_any(sides[0], sides[1], sides[2])
                row |= {"wanted": true, name: reached, f"{name}: false %": 100 * (reached - true) / max(1, reached)}
                row[f"{name}: ranges"] = len(merged)
            rows.append(row)
    options.report("cells", rows)


def told(options: Options) -> None:
    """The same boxes told as boxes (those that the others do not cover), as cells, and attribute by attribute."""
    rows = []
    for axes, count in ((2, 100), (2, 1_000), (3, 100), (3, 1_000), (4, 100), (4, 1_000)):
        draw, space = np.random.default_rng(8), cell_space(axes)
        low, high = cell_boxes("uniform", options.count(count), axes, 16, draw)
        points = draw.integers(0, CELLS, (options.count(50_000), axes))
        wanted = scan_any(low, high, points)
        exact, table, summary = ExactEngine(space), CellTable(Grid(space, bits=6)), LinkSummary(space)
        exact.add_many(list(range(len(low))), (low, high))
        for id, box in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
            region = region_of_box(*box, space)
            table.subscribe(id, region)
            summary.add(id, region)
        merged, numbers = table.merged(), table.grid.numbers(points)
        place = np.searchsorted(merged[:, 0], numbers, "right") - 1
        reached = {
            "cells": int(((place >= 0) & (merged[place, 1] >= numbers)).sum()),
            "summary": int(summary.may_want(points).sum()),
        }
        row: dict[str, Any] = {"attributes": axes, "boxes": len(low), "wanted %": 100 * wanted / len(points)}
        row |= {"boxes: bytes": len(exact) * 16 * axes, "cells: bytes": merged.nbytes, "summary: bytes": summary.nbytes}
        row |= {f"{name}: false %": 100 * (count - wanted) / max(1, count) for name, count in reached.items()}
        rows.append(row)
    options.report("told", rows)


def brokers(options: Options) -> None:
    rows = []
    for what, attributes, width in (("2 attributes", 2, 20), ("4 attributes", 4, 300), ("4 attributes, wide", 4, 600)):
        rows.append({"what": what, **_on_the_way(options, attributes, width)})
    options.report("brokers", rows)


def _on_the_way(options: Options, attributes: int, width: int) -> dict[str, Any]:
    """Boxes of one size in 0..10,000, and uniform events, half of them inside some box."""
    links, rng = [*chain("PABCS"), ("B", "D"), ("D", "T")], random.Random(attributes)
    cells = Cells(bits=8 if attributes == 2 else 5)
    lows = [[rng.randrange(DOMAIN - width) for _ in range(attributes)] for _ in range(options.count(10_000))]
    points = [
        {f"x{axis}": rng.randrange(DOMAIN) for axis in range(attributes)}
        if at % 2
        else {f"x{axis}": low + rng.randrange(width) for axis, low in enumerate(rng.choice(lows))}
        for at in range(options.count(4_000))
    ]
    nets: dict[str, tuple[Overlay, list[float]]] = {}
    for name, settings in (("index", Settings()), ("cells", Settings(cells=cells))):
        net = Overlay(space_of(attributes), links, ["S", "T"], ["P"], settings)
        for at, low in enumerate(lows):
            net.subscribe(f"s{at}", box_clause(low, [each + width for each in low]))
        net.network.run()
        spent: list[float] = []
        for broker in "ABCD":
            _timed(net.network.nodes[broker].broker, spent)
        nets[name] = net, spent
    times: dict[str, list[float]] = {name: [] for name in nets}
    wrong: dict[str, float] = {}
    for _ in range(options.rounds):
        for name, (net, spent) in nets.items():
            spent.clear()
            for event in points:
                net.publish(event)
            net.network.run()
            times[name].append(float(np.median(spent)))
            ends = [net.network.nodes[here].broker.links[there].counts for here, there in (("S", "C"), ("T", "D"))]
            wrong[name] = sum(each.false_positives for each in ends) / max(1, sum(each.events_in for each in ends))
    index, by_cell = (float(np.median(times[name])) for name in ("index", "cells"))
    return {
        "subscriptions": len(lows), "index us": 1e6 * index, "cells us": 1e6 * by_cell, "times faster": index / by_cell,
        "false positives, index": wrong["index"], "false positives, cells": wrong["cells"],
    }  # fmt: skip


def _timed(broker: Any, spent: list[float]) -> None:
    """Note how long each event takes to be handled."""
    handle = broker.handle

    def timed(message: Any, link: str, now: float) -> Any:
        began = time.perf_counter()
        effects = handle(message, link, now)
        if isinstance(message, Publish):
            spent.append(time.perf_counter() - began)
        return effects

    broker.handle = timed


PARTS: dict[str, Callable[[Options], None]] = {
    "descent": descents,
    "ranges": range_counts,
    "growth": growth,
    "many": many,
    "cells": cells,
    "told": told,
    "brokers": brokers,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=", ".join(PARTS))
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full sizes")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if not set(arguments.parts) <= set(PARTS):
        parser.error(f"there are {', '.join(PARTS)}")
    for name in arguments.parts or PARTS:
        PARTS[name](Options(arguments.scale, arguments.rounds))


if __name__ == "__main__":
    main()
