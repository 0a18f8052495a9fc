"""Claim: on boxes the match index is faster than every way an expert has to do without it, and a hundred times more
subscriptions cost it about three times more.

Parts, all of them or those named on the command line:

peers       Boxes, and 200,000 uniform events: (a) 20,000 of 4 attributes, each side 1/64 of the domain; (b) 100,000
            of 4, widths uniform up to 10 %; (c) 20,000 that constrain 3 random ones of 10 by 2 to 5 %. From values to
            pairs on both sides: encoding, building and matching, one thread each. Every contender must find the same
            pairs. A peer that would take over two minutes gets the first events only, and is scaled. Floor and goal
            are set beside the best peer that is asked for the join and does it: DuckDB's joins as written and guided to
            a band, Polars' join_where, a NumPy block scan, rtree, counting. Indexes that an expert can build by hand
            with the same tools (sorted runs, equi-joins on buckets of one attribute or on grids over several, tuned to
            each row) have columns of their own. (d) Watchlists: 10,000 of 2,000 out of 20,000 symbols, and up to
            2 % of the prices; report only.
growth      10,000 to 1,000,000 subscriptions with about one match an event, the index built before: (a) equal and
            narrow; (b) widths uniform up to w; (c) 3 of 10 attributes; (d) boxes and events Zipf (exponent 1, 1,000
            ranks from the low end); (e) widths mixed 1:100, log-uniform. `whole` has encoding in it, `index` has not.
            Building is compared with sorting the boxes once: np.lexsort by all their lower bounds.
single      One event at a time, from Python.
updates     Subscribing and unsubscribing while another thread matches.
snapshot    A table to a file and back.
classbench  Packets against rule sets (see classbench.py): the matches of a linear scan, and how fast.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks import interleaved, print_speed, report
from benchmarks.classbench import ROOT, read_rules, rule_sets
from benchmarks.classbench import SPACE as PACKETS
from benchmarks.match_peers import Pairs, Peer, Query, Values, Watchlists, Workload, columns_of, peers, watchlist_peers
from thatch import Region, Space, SubscriptionTable
from thatch.cover import region_of_box
from thatch.matching import MATCHERS
from thatch.matching.matcher import Matcher
from thatch.region.box_sets import Boxes
from thatch.region.intervals import Intervals
from thatch.region.term import Term
from thatch.rivals.counting import CountingMatcher

OURS = MATCHERS["tree"]
CONTENDERS = {**MATCHERS, CountingMatcher.name: CountingMatcher}

DOMAINS = {"double": 1_000.0, "int": 1_000_000.0}
FLOORS = {"a": (50, 100), "b": (80, 200), "c": (40, 100)}  # times faster than the best peer: at least, and the goal
GROWTH_MAX = {"a": 3, "b": 3, "c": 4}  # from the least to the most subscriptions
SECONDS_MAX = 120  # longer peers get fewer events
SECONDS_QUICK = 2  # quicker ones run in every round
EVENTS_CHECKED = 50  # of each index of `growth`, by brute force


@dataclass(frozen=True)
class Options:
    scale: float
    rounds: int
    kind: str

    def count(self, full: int) -> int:
        return max(10, int(full * self.scale))

    def report(self, name: str, rows: list[dict[str, Any]]) -> None:
        progress("")
        report(f"match_{name}" if self.scale == 1 else f"match_{name}_scaled", rows)


def progress(text: str) -> None:
    """What is being done, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r{text:<79}\r", end="", file=sys.stderr, flush=True)


# Workloads, drawn in the unit cube


def space_of(attributes: int, kind: str) -> Space:
    return Space.parse(", ".join(f"x{axis} {kind} not null 0..{DOMAINS[kind]:.0f}" for axis in range(attributes)))


def workload(name: str, boxes: tuple[Values, Values], events: Values, kind: str, **cells: int) -> Workload:
    """The domain's values of the unit cube's."""
    domain = DOMAINS[kind]

    def values(units: Values) -> Values:
        scaled = np.minimum(units * domain, domain)
        return np.asfortranarray(scaled if kind == "double" else np.floor(scaled).astype(np.int64))

    low, high = (values(side) for side in boxes)
    return Workload(name, space_of(low.shape[1], kind), low, high, values(events), domain, **cells)


def placed(widths: Values, draw: np.random.Generator) -> tuple[Values, Values]:
    """Boxes of these widths, anywhere."""
    low = draw.random(widths.shape) * (1 - widths)
    return low, low + widths


def sparse(count: int, attributes: int, least: float, most: float, draw: np.random.Generator) -> Values:
    """Widths of boxes that constrain 3 random attributes."""
    widths = np.ones((count, attributes))
    chosen = draw.random((count, attributes)).argsort(axis=1)[:, :3]
    np.put_along_axis(widths, chosen, draw.uniform(least, most, (count, 3)), axis=1)
    return widths


def peer_workload(name: str, options: Options) -> Workload:
    draw = np.random.default_rng(1)
    events = options.count(200_000)
    if name == "a":
        boxes = placed(np.full((options.count(20_000), 4), 1 / 64), draw)
        cells = {"cells": 256, "grid_attributes": 4, "grid_cells": 32}
    elif name == "b":
        boxes = placed(draw.random((options.count(100_000), 4)) * 0.1, draw)
        cells = {"cells": 256, "grid_attributes": 4, "grid_cells": 16}
    else:
        boxes = placed(sparse(options.count(20_000), 10, 0.02, 0.05, draw), draw)
        cells = {"cells": 128, "grid_attributes": 2, "grid_cells": 64}
    return workload(name, boxes, draw.random((events, boxes[0].shape[1])), options.kind, **cells)


def watchlists(options: Options) -> Watchlists:
    draw = np.random.default_rng(2)
    space = Space.parse("symbol string not null, price double not null 0..1000")
    symbols = [f"S{number:05}" for number in range(options.count(20_000))]
    count, size = options.count(10_000), options.count(2_000)
    everyone = space.where("symbol IN (" + ", ".join(f"'{symbol}'" for symbol in symbols) + ")")
    ((_, intervals),) = everyone.terms[0].sides  # one for each symbol, in their order
    ends = intervals.to_numpy().reshape(-1, 2)
    lists = np.stack([np.sort(draw.permutation(len(symbols))[:size]) for _ in range(count)]).astype(np.int32)
    low, high = (side[:, 0] * 1_000 for side in placed(draw.random((count, 1)) * 0.02, draw))
    bounds = np.stack([space.encode_batch({"symbol": symbols[:1] * count, "price": side})[1] for side in (low, high)])
    regions = [
        Region(space, [Term(((0, Intervals(ends[chosen].ravel().tolist())), (1, Intervals.between(*pair))))])
        for chosen, pair in zip(lists, bounds.T.tolist(), strict=True)
    ]
    events = options.count(200_000)
    event_symbols = pa.array([symbols[number] for number in draw.integers(len(symbols), size=events).tolist()])
    prices = draw.random(events) * 1_000
    return Watchlists("d", space, regions, symbols, lists, low, high, event_symbols, prices, 1_000.0)


def growing(name: str, count: int, events: int, kind: str) -> Workload:
    """About one match an event, however many boxes."""
    draw = np.random.default_rng(3)
    side = count ** -(1 / 4)  # of a box of volume 1 / count
    attributes = 10 if name == "c" else 4
    points = draw.random((events, attributes))
    if name == "a":
        boxes = placed(np.full((count, 4), side), draw)
    elif name == "b":
        boxes = placed(np.minimum(draw.random((count, 4)) * 2 * side, 1), draw)
    elif name == "c":
        mean = count ** -(1 / 3)
        boxes = placed(np.minimum(sparse(count, 10, mean * 4 / 7, mean * 10 / 7, draw), 1), draw)
    elif name == "d":
        points, centres = zipf((events, 4), draw), zipf((count, 4), draw)
        distances = np.abs(zipf((200_000,), draw) - zipf((200_000,), draw))
        half = np.quantile(distances, side)
        boxes = np.maximum(centres - half, 0), np.minimum(centres + half, 1)
    else:
        widths = 100 ** draw.random((count, 4))
        boxes = placed(np.minimum(widths * side * np.log(100) / 99, 1), draw)
    return workload(name, boxes, points, kind)


def zipf(shape: tuple[int, ...], draw: np.random.Generator) -> Values:
    weights = np.cumsum(1 / np.arange(1, 1_001))
    return (np.searchsorted(weights, draw.random(shape) * weights[-1]) + draw.random(shape)) / 1_000


# Contenders


def coordinates(w: Workload) -> Boxes:
    low, high = (np.stack(w.space.encode_batch(columns_of(side)), axis=1) for side in (w.low, w.high))
    return low, high


def built(w: Workload, matcher: type[Matcher] = OURS) -> Matcher:
    index = matcher(w.space)
    index.add_many(np.arange(len(w.low)), coordinates(w))
    return index


def ask_matcher(matcher: type[Matcher], w: Workload) -> Query:
    index = built(w, matcher)
    return lambda count: index.match_batch(columns_of(w.events[:count]))


def ask_watchlists(matcher: type[Matcher], w: Watchlists) -> Query:
    index = matcher(w.space)
    index.add_many(np.arange(len(w.regions)), w.regions)
    return lambda count: index.match_batch({"symbol": w.event_symbols[:count], "price": w.event_prices[:count]})


def table_of(w: Workload, cover: str | None = None) -> SubscriptionTable:
    table = SubscriptionTable(w.space, cover=cover)
    table.subscribe_many(list(range(len(w.low))), low=columns_of(w.low), high=columns_of(w.high))
    return table


def ask_table(w: Workload) -> Query:
    table = table_of(w)

    def query(count: int) -> Pairs:
        found = table.match_batch(columns_of(w.events[:count]))
        return found["event_index"].to_numpy(), found["subscription_id"].to_numpy()

    return query


def own(ask: Callable[[type[Matcher], Any], Query]) -> list[Peer]:
    """Ours; counting, the peer from the literature; and cells along a curve, which are ours as well."""
    return [Peer("thatch", name, partial(ask, CONTENDERS[name])) for name in (OURS.name, "counting", "hilbert")]


# Ours beside the peers


@dataclass(frozen=True)
class Timed:
    seconds: float  # for all events, scaled if fewer were asked
    events: int  # that were asked
    cores: float
    build: float
    pairs: Pairs


def run(peer: Peer, w: Any, count: int) -> Timed:
    start, cpu = time.perf_counter(), time.process_time()
    query = peer.build(w)
    ready = time.perf_counter()
    pairs = query(count)
    end = time.perf_counter()
    return Timed(end - start, count, (time.process_time() - cpu) / (end - start), ready - start, pairs)


def tried(peer: Peer, w: Any, count: int) -> Timed:
    """One run; of fewer events where all would take too long. What building takes is not scaled."""
    small, larger = count // 50 or count, count // 12 or count
    pilot = run(peer, w, small)
    predicted = pilot.seconds * count / small
    if predicted > SECONDS_MAX:  # some of it does not grow with the events
        second = run(peer, w, larger)
        slope = (second.seconds - pilot.seconds) / (larger - small)
        predicted = pilot.seconds + slope * (count - small)
        if predicted > SECONDS_MAX:
            asked = second.seconds - second.build
            return Timed(second.build + asked * count / larger, larger, second.cores, second.build, second.pairs)
    return run(peer, w, count)


def fingerprint(pairs: Pairs, events: int) -> tuple[int, int]:
    """How many pairs the first events have, and a sum over them that does not ask for their order."""
    event, number = (side.astype(np.uint64) for side in pairs)
    event, number = event[pairs[0] < events], number[pairs[0] < events]
    mixed = (event * np.uint64(0x9E3779B97F4A7C15)) ^ (number * np.uint64(0xC2B2AE3D27D4EB4F))
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return len(event), int((mixed ^ (mixed >> np.uint64(32))).sum())


def contest(w: Any, contenders: list[Peer], events: int, rounds: int) -> list[dict[str, Any]]:
    """A row for each contender, the first one ours; an error if one finds other pairs."""
    first: dict[str, Timed] = {}
    for peer in contenders:
        progress(f"peers ({w.name}): {peer.name}")
        timed = tried(peer, w, events)
        ours = first.setdefault(contenders[0].name, timed)
        found, expected = (fingerprint(pairs, timed.events) for pairs in (timed.pairs, ours.pairs))
        if found != expected:
            raise AssertionError(
                f"({w.name}) {peer.name}: {found} pairs and their sum, {expected} by {contenders[0].name}"
            )
        first[peer.name] = timed
    whole = [peer for peer in contenders if first[peer.name].events == events]
    quick = [peer for peer in whole if peer is contenders[0] or first[peer.name].seconds < SECONDS_QUICK]
    seconds = {name: timed.seconds for name, timed in first.items()}
    for peer in whole:
        if peer not in quick and seconds[peer.name] < SECONDS_MAX / 4:
            seconds[peer.name] = min(seconds[peer.name], run(peer, w, events).seconds)
    progress(f"peers ({w.name}): rounds")
    seconds |= interleaved({peer.name: partial(run, peer, w, events) for peer in quick}, rounds)
    unit = seconds[contenders[0].name]
    return [
        {
            "row": w.name,
            "contender": peer.name,
            "seconds": seconds[peer.name],
            "x ours": seconds[peer.name] / unit,
            "cores": round(first[peer.name].cores, 2),
            "runs": rounds if peer in quick else "1-2",
            "events asked": "all" if peer in whole else f"{first[peer.name].events}, scaled",
            "pairs, the same": len(first[peer.name].pairs[0]),
        }
        for peer in contenders
    ]


def beside_peers(options: Options) -> None:
    rows, best = [], []
    for name in FLOORS:
        w = peer_workload(name, options)
        others = peers()
        table = Peer("thatch", "table", ask_table)
        mine = own(ask_matcher)
        found = contest(w, [*mine, table, *others], len(w.events), options.rounds)
        rows += found
        by_hand = {peer.name for peer in others if peer.is_by_hand}
        not_peers = {mine[0].name, mine[-1].name, table.name}
        as_is = min(
            (row for row in found if row["contender"] not in by_hand | not_peers), key=lambda row: row["x ours"]
        )
        expert = min((row for row in found if row["contender"] in by_hand), key=lambda row: row["x ours"], default={})
        best.append(
            {
                "row": name,
                "ours s": found[0]["seconds"],
                "best peer": as_is["contender"],
                "its s": as_is["seconds"],
                "x ours": as_is["x ours"],
                "floor": FLOORS[name][0],
                "goal": FLOORS[name][1],
                "best index by hand": expert.get("contender", "-"),
                "by hand s": expert.get("seconds", "-"),
                "by hand x ours": expert.get("x ours", "-"),
            }
        )
    lists = watchlists(options)
    rows += contest(lists, [*own(ask_watchlists), *watchlist_peers()], len(lists.event_prices), options.rounds)
    options.report("peers", rows)
    options.report("best_peer", best)


# Growth


def growth(options: Options) -> None:
    rows, ratios = [], []
    for name in "ac":  # compiled before anything is timed
        grown(growing(name, 1_000, 1_000, options.kind), {})
    for name in "abcde":
        sizes = [options.count(full) for full in (10_000, 100_000, 1_000_000)]
        asks: dict[str, Callable[[], object]] = {}
        about: list[dict[str, Any]] = []
        for size in sizes:
            progress(f"growth ({name}): {size} subscriptions")
            found = grown(growing(name, size, options.count(200_000), options.kind), asks)
            about.append({"set": name, "subscriptions": size, **found})
        seconds = interleaved(asks, options.rounds)
        events = options.count(200_000)
        for row in about:
            size = row["subscriptions"]
            row |= {f"{way} ns": seconds[f"{way} {size}"] / events * 1e9 for way in ("whole", "index")}
        rows += about
        ratios.append(
            {
                "set": name,
                **{
                    f"{way} {sizes[-1]}/{sizes[0]}": about[-1][f"{way} ns"] / about[0][f"{way} ns"]
                    for way in ("whole", "index")
                },
                "at most": GROWTH_MAX.get(name, "-"),
                "bytes per box": about[-1]["bytes per box"],
                "bytes at most": 40,
                "build x sort": about[-1]["build x sort"],
            }
        )
    options.report("growth", rows)
    options.report("growth_ratio", ratios)


def grown(w: Workload, asks: dict[str, Callable[[], object]]) -> dict[str, Any]:
    """What an index of a workload took, its matches checked; ways to ask it are added."""
    low, high = coordinates(w)
    size = len(low)
    start = time.perf_counter()
    np.lexsort(low.T)
    sorting = time.perf_counter() - start
    index = OURS(w.space)
    start = time.perf_counter()
    index.add_many(np.arange(size), (low, high))
    view = index.view()
    building = time.perf_counter() - start
    events = columns_of(w.events)
    columns = w.space.encode_batch(events)
    pairs = index.match_batch(events)
    for event in range(min(EVENTS_CHECKED, len(w.events))):
        point = [column[event] for column in columns]
        expected = np.flatnonzero(((low <= point) & (high >= point)).all(axis=1))
        found = pairs[1][np.searchsorted(pairs[0], event) : np.searchsorted(pairs[0], event, "right")]
        if not np.array_equal(found, expected):
            raise AssertionError(f"({w.name}) {size}: event {event} matches {expected}, not {found}")
    asks[f"whole {size}"] = partial(index.match_batch, events)
    asks[f"index {size}"] = partial(view.match_points, columns)
    return {
        "matches per event": len(pairs[0]) / len(w.events),
        "bytes per box": index.nbytes / size,
        "build s": building,
        "build x sort": building / sorting,
    }


# One event at a time, updates, snapshots


def single(options: Options) -> None:
    progress("single")
    w = peer_workload("a", options)
    index, table, some = built(w), table_of(w), w.events[: options.count(20_000)].tolist()
    events = [{f"x{axis}": value for axis, value in enumerate(event)} for event in some]
    view, points = index.view(), [w.space.encode(event) for event in events]
    ways: dict[str, Callable[[], object]] = {
        "matcher.match(event)": lambda: [index.match(event) for event in events],
        "space.encode(event) alone": lambda: [w.space.encode(event) for event in events],
        "view.match_point(point) alone": lambda: [view.match_point(point) for point in points],
        "table.match(event)": lambda: [table.match(event) for event in events],
    }
    seconds = interleaved(ways, options.rounds)
    rows = [
        {
            "way": way,
            "us each": taken / len(events) * 1e6,
            "per second": len(events) / taken,
            "floor": "-" if way.endswith("alone") else 100_000,
        }
        for way, taken in seconds.items()
    ]
    options.report("single", rows)


def updates(options: Options) -> None:
    progress("updates")
    w = growing("a", options.count(1_000_000), options.count(20_000), options.kind)
    table, size, few = table_of(w), len(w.low), options.count(20_000)
    low, high = (side[:few].tolist() for side in coordinates(w))
    regions = [region_of_box(*box, w.space) for box in zip(low, high, strict=True)]
    clauses = [region.to_sql() for region in regions]
    events = [{f"x{axis}": value for axis, value in enumerate(event)} for event in w.events.tolist()]
    leaving = np.random.default_rng(4).permutation(size).tolist()
    seconds = 5 if options.scale == 1 else 0.2
    ways: dict[str, tuple[list[Any], int]] = {
        "regions, one by one": (regions, 1),
        "regions, 100 at once": (regions, 100),
        "clauses, one by one": (clauses, 1),
    }
    rows: list[dict[str, Any]] = []
    for name, (wheres, batch) in ways.items():
        first = size * (2 + len(rows))  # ids that nobody has had
        table.subscribe(first - 1, wheres[0])  # whatever is loaded at first use is loaded now
        table.unsubscribe(first - 1)
        rows.append({"new ones": name, **while_matching(table, wheres, events, leaving, first, batch, seconds)})
    options.report("updates", rows)


def while_matching(
    table: SubscriptionTable,
    wheres: list[Any],
    events: list[dict[str, Any]],
    leaving: list[int],
    first: int,
    batch: int,
    seconds: float,
) -> dict[str, Any]:
    """As many subscribe as unsubscribe, for some seconds, while another thread matches."""
    matching, changing = Pauses(), Pauses()
    size, next_id, stop = len(table), first, threading.Event()

    def match() -> None:
        while not stop.is_set():
            matching.time(partial(table.match, events[matching.count % len(events)]))

    reader = threading.Thread(target=match)
    reader.start()
    start = time.perf_counter()
    while time.perf_counter() - start < seconds and len(leaving) >= batch:
        ids = list(range(next_id, next_id + batch))
        chosen = [wheres[id % len(wheres)] for id in ids]
        if batch == 1:
            changing.time(partial(table.subscribe, ids[0], chosen[0]))
        else:
            changing.time(partial(table.subscribe_many, ids, chosen))
        for _ in ids:
            changing.time(partial(table.unsubscribe, leaving.pop()))
        next_id += batch
    taken = time.perf_counter() - start
    stop.set()
    reader.join()
    if len(table) != size:
        raise AssertionError(f"{len(table)} subscriptions are left of {size}, and as many came as went")
    return {
        "subscriptions": size,
        "subscribes and unsubscribes per second, half each": 2 * (next_id - first) / taken,
        "floor": 10_000,
        "matched per second": matching.count / taken,
        "longest update ms": changing.longest * 1e3,
        "longest match ms": matching.longest * 1e3,
    }


class Pauses:
    """Counts calls and keeps the longest."""

    def __init__(self) -> None:
        self.count, self.longest = 0, 0.0

    def time(self, call: Callable[[], object]) -> None:
        start = time.perf_counter()
        call()
        self.longest = max(self.longest, time.perf_counter() - start)
        self.count += 1


def snapshot(options: Options) -> None:
    w = growing("a", options.count(100_000), 1_000, options.kind)
    rows = []
    for cover in (None, "exact"):
        progress(f"snapshot, cover={cover}")
        rows.append({"cover": str(cover), **there_and_back(table_of(w, cover), columns_of(w.events), options.rounds)})
    options.report("snapshot", rows)


def there_and_back(table: SubscriptionTable, events: dict[str, Values], rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table"
        ways = {"save": lambda: table.snapshot(path), "load": lambda: SubscriptionTable.load(path)}
        seconds = interleaved(ways, rounds)
        size, again = path.stat().st_size, SubscriptionTable.load(path)
    if not again.match_batch(events).equals(table.match_batch(events)):
        raise AssertionError("a table that was loaded matches otherwise than the one that was saved")
    return {
        "subscriptions": len(table),
        "save s": seconds["save"],
        "load s": seconds["load"],
        "at most s": 2,
        "MB": size / 1e6,
    }


# Rule sets


def classbench(options: Options) -> None:
    data = Path(os.environ.get("THATCH_DATA", ROOT.parent / "shared" / "data")) / "classbench"
    sets = rule_sets()
    if (data / "jia_acl1_1k").is_file():
        sets["jia_acl1_1k"] = data / "jia_acl1_1k"
    rows = []
    for name, path in sets.items():
        progress(f"classbench: {name}")
        low, high = read_rules(path)
        trace = path.with_name(f"{name}_trace")
        packets = read_trace(trace) if trace.is_file() else drawn_packets(low, high, options.count(100_000))
        events = {attribute.name: packets[:, axis].copy() for axis, attribute in enumerate(PACKETS)}
        index, scan = OURS(PACKETS), MATCHERS["scan"](PACKETS)
        for each in (index, scan):
            each.add_many(np.arange(len(low)), (low, high))
        found, expected = index.match_batch(events), scan.match_batch(events)
        if not all(np.array_equal(*sides) for sides in zip(found, expected, strict=True)):
            raise AssertionError(f"{name}: {len(found[0])} matches, {len(expected[0])} by the scan, or others")
        seconds = interleaved({"index": partial(index.match_batch, events)}, options.rounds)["index"]
        rows.append(
            {
                "set": name,
                "rules": len(low),
                "packets": len(packets),
                "from": "trace" if trace.is_file() else "rules and uniform",
                "matches per packet": len(found[0]) / len(packets),
                "as the scan": "yes",
                "packets per second": len(packets) / seconds,
                "bytes per rule": index.nbytes / len(low),
            }
        )
    options.report("classbench", rows)


def read_trace(path: Path) -> NDArray[np.int64]:
    return np.array([line.split()[:5] for line in path.read_text().splitlines() if line.strip()], np.int64)


def drawn_packets(low: NDArray[np.int64], high: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Half inside random rules, half anywhere."""
    draw = np.random.default_rng(5)
    rule = draw.integers(len(low), size=count // 2)
    inside = draw.integers(low[rule], high[rule], endpoint=True)
    return np.concatenate([inside, draw.integers(PACKETS.low, PACKETS.high, (count - count // 2, 5), endpoint=True)])


def ours() -> None:
    """Built and asked in batches, watchlists among them; one event at a time; subscribing."""
    options = Options(0.2, 1, "double")
    ways: dict[str, Callable[[], object]] = {}
    for name in ("a", "b", "c"):
        w = peer_workload(name, options)
        ways[f"{name}, built and matched"] = lambda w=w: ask_matcher(OURS, w)(len(w.events))  # type: ignore[misc]
    lists = watchlists(options)
    ways["d, built and matched"] = lambda: ask_watchlists(OURS, lists)(options.count(200_000))
    w = peer_workload("a", options)
    index, table = built(w), table_of(w)
    events = [dict(zip(("x0", "x1", "x2", "x3"), event, strict=True)) for event in w.events[:5_000].tolist()]
    ways["matcher.match"] = lambda: [index.match(event) for event in events]
    ways["table.match"] = lambda: [table.match(event) for event in events]
    ways["table, subscribed"] = lambda: table_of(w, "exact")
    print_speed(ways, rounds=7)


PARTS: dict[str, Callable[[Options], None]] = {
    "peers": beside_peers,
    "growth": growth,
    "single": single,
    "updates": updates,
    "snapshot": snapshot,
    "classbench": classbench,
}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"some of: {' '.join(PARTS)} (default: all)")
    parser.add_argument("--scale", type=float, default=1.0, help="a share of the sizes, for a quick look")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--type", choices=DOMAINS, default="double", help="of the attributes")
    parser.add_argument("--ours", action="store_true", help="ours alone, no parts; a speed comes last")
    options = parser.parse_args(arguments)
    if options.ours:
        ours()
        return
    unknown = [part for part in options.parts if part not in PARTS]
    if unknown:
        parser.error(f"no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    for part in options.parts or PARTS:
        PARTS[part](Options(options.scale, options.rounds, options.type))


if __name__ == "__main__":
    main()
