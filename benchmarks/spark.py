"""Claim: `thatch.spark.match` is faster than every join that Spark offers and than the one an expert writes by hand;
subscriptions too many to broadcast are matched without filling the driver; a value that half of the events have does
not make one task long.

Parts, all of them or those named on the command line:

small  200,000 events against the boxes of match.py's `peers`: (a) 20,000 of 4 attributes, each side 1/64 of the domain;
       (b) 100,000 of 4, widths uniform up to 10 %; (c) 20,000 that constrain 3 random ones of 10 by 2 to 5 %. (a zipf):
       20,000 of 4 and events, both Zipf, as in match.py's `growth` (d). Contenders: ours as `auto` chooses and by each
       strategy, and those of spark_peers.py.
big    The same with 4,000,000 events.
large  200,000 events against 5,000,000 narrow boxes of 4 attributes, about one match an event, on two executors of
       1 GB: seconds, and the most memory that the driver had, beside that for a tenth of the boxes. The matches of
       some events are counted again by brute force. Each run is a process of its own, on a local cluster.
skew   2,000,000 events, half of them on one value of x0, against 20,000 boxes of which a third cover that value: the
       longest task of the stage that matches, by the median one. Events in random order, and sorted by x0.

Timed, for `small` and `big`: from DataFrames of events and subscriptions (Parquet, not cached) to all rows of the
result, every column of the event and the id, written to Spark's `noop`; planning, collecting subscriptions, building
and shipping the index are in it. DuckDB and Polars: from the same files to a result in memory. Contenders take turns
within a round; the median of the rounds counts. Not timed: starting Spark, writing the files (Spark wrote them, 4 to a
folder), reading their schema, and a warm-up of each contender with all subscriptions and a few events: compilers on
both sides, Python's workers. It is repeated right before each run of each contender, because Spark ends workers that
had nothing to do for a minute, which would depend on who comes before. A peer that would take over a minute (the nested
loop: over half a minute) gets so many of the first events as take about 20 seconds, and what it takes beyond a run with
few events is scaled.

Checked, not timed: with few events all contenders give the same rows, every column; with all that it is asked, each
gives the pairs that ours gives.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession

import thatch.spark as ts
from benchmarks import report
from benchmarks.match import Options as MatchOptions
from benchmarks.match import fingerprint, growing, peer_workload, placed, progress, workload, zipf
from benchmarks.match_peers import Values, Workload, columns_of
from benchmarks.spark_peers import CORES, HAND_WRITTEN, ID, NESTED_LOOP, Contender, Tables, in_spark, peers

ROWS = ("a", "a zipf", "b", "c")
STRATEGIES = ("auto", "native", "arrow", "files")
OURS = "thatch auto"

# Times faster than a peer: at least, and the goal.
FLOORS: dict[tuple[str, str], dict[str, tuple[float, float]]] = {
    ("small", NESTED_LOOP): {"a": (50, 100), "b": (200, 400), "c": (100, 200)},
    ("big", HAND_WRITTEN): {"a": (1.3, 3), "a zipf": (1, 1), "b": (4, 8), "c": (4, 20)},
}
FILES = 4  # of a folder of events
EVENTS_WARM = 2_000
GROWTH = 8  # of the events, from one pilot run to the next
SECONDS_MAX = {NESTED_LOOP: 30.0}  # longer peers get fewer events
SECONDS_MAX_OTHERS = 60.0
SECONDS_SAMPLE = 20.0  # what they get takes about so long
LONGEST_MAX = 2.0  # times the median task
EVENTS_CHECKED = 50  # of `large`, by brute force
SHARE_BROADCAST = 1 << 28  # bytes: what `match` would broadcast to executors of 1 GB


@dataclass(frozen=True)
class Options:
    scale: float
    rounds: int
    only: tuple[str, ...] = ()  # contenders beside `thatch auto`; all of them if empty

    def count(self, full: int) -> int:
        return max(10, int(full * self.scale))

    def report(self, name: str, rows: list[dict[str, Any]]) -> None:
        progress("")
        report(f"spark_{name}" if self.scale == 1 else f"spark_{name}_scaled", rows)


# Sessions


def session_with(master: str, **settings: str) -> SparkSession:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.log.level": "OFF",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "8",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **settings,
    }
    builder = SparkSession.builder.master(master).appName("thatch-benchmarks")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def local_session() -> SparkSession:
    return session_with(f"local[{CORES}]", **{"spark.driver.memory": "4g"})


# Workloads, in Parquet


def boxes_of(name: str, options: Options) -> Workload:
    """Boxes, and the events of `small`."""
    if name == "a zipf":
        w = growing("d", options.count(20_000), options.count(200_000), "double")
        return replace(w, name=name, grid_attributes=4, grid_cells=128)
    return peer_workload(name, MatchOptions(options.scale, options.rounds, "double"))


def drawn(w: Workload, count: int) -> Values:
    """More events like those of a workload."""
    draw = np.random.default_rng(11)
    shape = count, len(w.space)
    return (zipf(shape, draw) if w.name == "a zipf" else draw.random(shape)) * w.domain


def write_events(session: SparkSession, events: Values, folder: Path, files: int = FILES) -> None:
    """As Spark writes them, in order, with their numbers."""
    first = 0
    for part in np.array_split(events, files):
        table = pa.table({"n": np.arange(first, first + len(part)), **columns_of(part)})
        with tempfile.TemporaryDirectory() as stage:
            pq.write_table(table, f"{stage}/part.parquet")
            session.read.parquet(stage).coalesce(1).write.mode("append").parquet(str(folder))
        first += len(part)


def write_boxes(w: Workload, folder: Path, first: int = 0) -> None:
    """Typed bounds, NULL where a box does not constrain an attribute; ids from `first` on."""
    free = ~w.constrained()
    columns = {"id": pa.array(np.arange(first, first + len(w.low)))}
    for axis in range(len(w.space)):
        for side, values in (("low", w.low), ("high", w.high)):
            columns[f"{side}_x{axis}"] = pa.array(values[:, axis], mask=free[:, axis])
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), folder / f"part-{first}.parquet")


@dataclass
class Data:
    """A workload in Parquet, and on demand its first events alone."""

    session: SparkSession
    w: Workload
    folder: Path
    events: Values
    _known: dict[int, Tables] = field(default_factory=dict)

    def __post_init__(self) -> None:
        write_boxes(self.w, self.folder / "subscriptions")

    def first(self, count: int) -> Tables:
        if count not in self._known:
            path = self.folder / f"events-{count}"
            write_events(self.session, self.events[:count], path)
            self._known[count] = Tables(self.session, self.w, path, self.folder / "subscriptions", count)
        return self._known[count]


# Contenders side by side


def ours() -> list[Contender]:
    return [
        in_spark(f"thatch {strategy}", partial(matched, strategy), partial(plan_of, strategy))
        for strategy in STRATEGIES
    ]


def matched(strategy: str, tables: Tables) -> Any:
    return ts.match(tables.events, tables.subscriptions, tables.space, strategy=strategy)


def plan_of(strategy: str, tables: Tables) -> str:
    plan = ts.explain(tables.events, tables.subscriptions, tables.space, strategy=strategy)
    if plan.strategy != "native":
        return plan.strategy
    keys = plan.keys[0] if len(plan.keys) == 1 else f"{len(plan.keys)} keys"
    return f"native: {keys}, {plan.estimates['native']:,.1f} candidates"


@dataclass
class Entry:
    """A contender with the events that it is asked, and what it took."""

    contender: Contender
    tables: Tables
    few: Tables
    start: float  # seconds with few events
    pairs: int = 0
    seconds: list[float] = field(default_factory=list)

    def run(self) -> None:
        self.seconds.append(timed(self.contender, self.tables, self.few))

    def median(self, count: int) -> float:
        """For so many events; scaled if fewer were asked."""
        taken, few = statistics.median(self.seconds), self.few.count
        if self.tables.count == count:
            return taken
        return self.start + (taken - self.start) * (count - few) / (self.tables.count - few)


def timed(contender: Contender, tables: Tables, few: Tables) -> float:
    assert tables.session.sparkContext._jvm is not None
    contender.run(few)
    gc.collect()
    tables.session.sparkContext._jvm.System.gc()  # one contender's garbage is not another's
    start = time.perf_counter()
    contender.run(tables)
    return time.perf_counter() - start


def entered(contender: Contender, data: Data, few: Tables) -> Entry:
    """With all events, or with as many as it does in good time: more and more are tried."""
    most = SECONDS_MAX.get(contender.name, SECONDS_MAX_OTHERS)
    start = timed(contender, few, few)
    count, whole = few.count, len(data.events)
    while count < whole:
        count = min(count * GROWTH, whole)
        taken = timed(contender, data.first(count), few)
        slope = (taken - start) / (count - few.count)
        if taken > start + 2 and start + slope * (whole - few.count) > most:
            wanted = few.count + int((SECONDS_SAMPLE - start) / slope)
            count = min(max(wanted, 2 * few.count), whole)
            break
    return Entry(contender, data.first(count), few, start)


def contest(part: str, data: Data, options: Options) -> list[dict[str, Any]]:
    """A row for each contender, the first one ours; an error if one gives other rows."""
    name, whole = data.w.name, len(data.events)
    few = data.first(min(EVENTS_WARM, whole))
    wanted_too = {OURS, *options.only}
    contenders = [each for each in (*ours(), *peers()) if not options.only or each.name in wanted_too]
    expected = None
    for contender in contenders:
        progress(f"{part} ({name}): {contender.name}, warm-up")
        found = ordered(contender.table(few))
        expected = found if expected is None else expected
        if not found.equals(expected):
            raise AssertionError(
                f"({name}) {contender.name}: {found.num_rows} rows, {expected.num_rows} by {OURS}, or others"
            )
        contender.run(few)
    entries: list[Entry] = []
    by_ours = None
    for contender in contenders:
        progress(f"{part} ({name}): {contender.name}, pilot")
        entry = entered(contender, data, few)
        table = contender.table(entry.tables)
        pairs = table["n"].to_numpy(), table[ID].to_numpy()
        by_ours = pairs if by_ours is None else by_ours
        same, wanted = (fingerprint(each, entry.tables.count) for each in (pairs, by_ours))
        if same != wanted:
            raise AssertionError(f"({name}) {contender.name}: {same} pairs and their sum, {wanted} by {OURS}")
        entry.pairs = same[0]
        entries.append(entry)
    for number in range(options.rounds):
        for entry in entries:
            progress(f"{part} ({name}): round {number + 1}, {entry.contender.name}")
            entry.run()
    unit = entries[0].median(whole)
    progress(f"{part} ({name}): plans")
    return [
        {
            "row": name,
            "contender": entry.contender.name,
            "seconds": entry.median(whole),
            "x ours": entry.median(whole) / unit,
            "events asked": "all" if entry.tables.count == whole else f"{entry.tables.count}, scaled",
            "pairs, the same": entry.pairs,
            "how": entry.contender.about(data.first(whole)),
        }
        for entry in entries
    ]


def ordered(table: pa.Table) -> pa.Table:
    """Rows and columns in one order, the columns in one type."""
    names = sorted(table.column_names)
    rows = table.select(names).sort_by([("n", "ascending"), (ID, "ascending")]).combine_chunks()
    return pa.table({name: rows[name].combine_chunks() for name in names})


def beside_peers(part: str, events: int, options: Options) -> None:
    rows: list[dict[str, Any]] = []
    floors: list[dict[str, Any]] = []
    session = local_session()
    for name in ROWS:
        w = boxes_of(name, options)
        count = options.count(events)
        with tempfile.TemporaryDirectory() as folder:
            own = w.events if count == len(w.events) else drawn(w, count)
            found = contest(part, Data(session, w, Path(folder), own), options)
        rows += found
        for (of_part, peer), limits in FLOORS.items():
            if of_part == part and name in limits:
                row = next((row for row in found if row["contender"] == peer), None)
                if row is None:
                    continue
                floors.append(
                    {
                        "row": name,
                        "events": count,
                        "peer": peer,
                        "ours s": found[0]["seconds"],
                        "its s": row["seconds"],
                        "x ours": row["x ours"],
                        "floor": limits[name][0],
                        "goal": limits[name][1],
                    }
                )
    options.report(part, rows)
    options.report(f"{part}_floors", floors)


# Too many to broadcast


@dataclass(frozen=True)
class Large:
    """What a process found out."""

    plan: str
    seconds: float
    python_mb: float
    jvm_mb: float
    heap_mb: float
    matches: int
    sample: tuple[list[int], list[int]]  # pairs of the first events


def large(options: Options) -> None:
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        most, events = options.count(5_000_000), options.count(200_000)
        w = growing("a", 1_000, events, "double")
        for boxes in (most // 10, most):
            write_narrow(boxes, folder / f"{boxes}")
        pq_folder = folder / "events"
        pq_folder.mkdir()
        for number, part in enumerate(np.array_split(np.arange(events), FILES)):
            table = pa.table({"n": part, **columns_of(w.events[part])})
            pq.write_table(table, pq_folder / f"{number}.parquet")
        limit = int(SHARE_BROADCAST * options.scale)
        for boxes, strategy, own_limit in (
            (most // 10, "auto", limit),
            (most // 10, "native", 0),
            (most, "auto", limit),
        ):
            progress(f"large: {boxes} boxes, {strategy}")
            spawned = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(1, mp_context=spawned) as processes:
                found = processes.submit(match_large, folder, boxes, strategy, own_limit).result()
            check_large(folder / f"{boxes}", w.events[:EVENTS_CHECKED], found)
            rows.append(
                {
                    "boxes": boxes,
                    "asked": f"{strategy}, at most {own_limit >> 20} MB broadcast",
                    "plan": found.plan,
                    "seconds": found.seconds,
                    "driver's Python, peak MB": found.python_mb,
                    "driver's JVM, peak MB": found.jvm_mb,
                    "its heap after collections, peak MB": found.heap_mb,
                    "matches per event": found.matches / events,
                    f"as brute force, {EVENTS_CHECKED} events": "yes",
                }
            )
    options.report("large", rows)


def write_narrow(boxes: int, folder: Path) -> None:
    draw = np.random.default_rng(12)
    for first in range(0, boxes, 250_000):
        count = min(250_000, boxes - first)
        widths = np.full((count, 4), boxes ** -(1 / 4))
        write_boxes(workload("narrow", placed(widths, draw), np.zeros((0, 4)), "double"), folder, first)


def match_large(folder: Path, boxes: int, strategy: str, limit: int) -> Large:
    """In a process of its own: a driver and two executors of 1 GB each."""
    home = folder / f"home-{os.getpid()}"  # Spark's, but with a folder of ours to work in
    home.mkdir()
    for each in Path(pyspark.__file__).parent.iterdir():
        (home / each.name).symlink_to(each)
    os.environ["SPARK_HOME"] = str(home)
    session = session_with("local-cluster[2,1,1024]", **{"spark.driver.memory": "1g", "spark.executor.memory": "1g"})
    space = growing("a", 10, 10, "double").space
    events, subscriptions = (session.read.parquet(str(folder / each)) for each in ("events", str(boxes)))
    start = time.perf_counter()
    with LiveHeap(session) as heap:
        result = ts.match(events, subscriptions, space, strategy=strategy, broadcast_limit=limit).select("n", ID)
        pairs = result.toArrow()
    seconds = time.perf_counter() - start
    assert SparkContext._gateway is not None
    jvm, python = peak_mb(SparkContext._gateway.proc.pid), peak_mb(os.getpid())
    plan = ts.explain(events, subscriptions, space, strategy=strategy, broadcast_limit=limit).strategy
    if plan == "native":
        text = result._jdf.queryExecution().executedPlan().toString()
        plan += ", broadcast" if "BroadcastHashJoin" in text else ", shuffled"
    first = pairs.filter(pc.less(pairs["n"], EVENTS_CHECKED))
    session.stop()
    return Large(
        plan, seconds, python, jvm, heap.peak_mb, pairs.num_rows, (first["n"].to_pylist(), first[ID].to_pylist())
    )


def peak_mb(process: int) -> float:
    """The most memory that a process had."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


class LiveHeap:
    """The most that a driver's JVM held on to, garbage apart: looked at after a collection, again and again."""

    def __init__(self, session: SparkSession) -> None:
        self._jvm: Any = session.sparkContext._jvm
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.peak_mb = 0.0

    def __enter__(self) -> LiveHeap:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        memory = self._jvm.java.lang.management.ManagementFactory.getMemoryMXBean()
        while not self._stop.wait(0.5):
            self._jvm.System.gc()
            self.peak_mb = max(self.peak_mb, memory.getHeapMemoryUsage().getUsed() / 2**20)


def check_large(folder: Path, events: Values, found: Large) -> None:
    expected: list[tuple[int, int]] = []
    for path in sorted(folder.iterdir()):
        table = pq.read_table(path)
        inside = np.ones((len(events), table.num_rows), np.bool_)
        for axis in range(events.shape[1]):
            low, high = (table[f"{side}_x{axis}"].to_numpy() for side in ("low", "high"))
            inside &= (events[:, axis, None] >= low) & (events[:, axis, None] <= high)
        event, box = np.nonzero(inside)
        expected += zip(event.tolist(), table["id"].to_numpy()[box].tolist(), strict=True)
    if sorted(expected) != sorted(zip(*found.sample, strict=True)):
        raise AssertionError(f"{folder.name} boxes, {found.plan}: not the matches of brute force")


# One value that half of the events have


def skew(options: Options) -> None:
    rows, session = [], local_session()
    w = skewed(options)
    session.conf.set("spark.sql.files.maxPartitionBytes", "8m")  # so that there are tasks to compare
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_boxes(w, folder / "subscriptions")
        for order, events in (("random", w.events), ("by x0", w.events[np.argsort(w.events[:, 0], kind="stable")])):
            path = folder / order.replace(" ", "-")
            write_events(session, np.asfortranarray(events), path, 16)
            tables = Tables(session, w, path, folder / "subscriptions", len(events))
            for way, (strategy, limit) in WAYS.items():
                progress(f"skew: {way}, {order}")
                taken = [
                    tasks_of(tables, f"{way} {order} {number}", strategy, limit) for number in range(options.rounds + 1)
                ]
                middle = sorted(taken[1:], key=lambda each: max(each) / statistics.median(each))[options.rounds // 2]
                rows.append(
                    {
                        "way": way,
                        "events": order,
                        "tasks": len(middle),
                        "median s": statistics.median(middle),
                        "longest s": max(middle),
                        "longest / median": max(middle) / statistics.median(middle),
                        "at most": LONGEST_MAX if order == "random" or strategy == "files" else "-",
                    }
                )
    session.conf.unset("spark.sql.files.maxPartitionBytes")
    options.report("skew", rows)


WAYS: dict[str, tuple[str, int | None]] = {
    "native, broadcast": ("native", None),
    "native, shuffled": ("native", 0),
    "arrow": ("arrow", None),
    "files": ("files", None),
}


def skewed(options: Options) -> Workload:
    """An event on the crowded value has some matches, another one hardly any."""
    draw = np.random.default_rng(13)
    count, events = options.count(20_000), draw.random((options.count(2_000_000), 4))
    events[draw.random(len(events)) < 0.5, 0] = 0.5
    low, high = placed(np.tile([1 / 64, 1 / 16, 1 / 16, 1 / 16], (count, 1)), draw)
    around = draw.random(count) < 1 / 3
    low[around, 0] = 0.5 - draw.random(around.sum()) / 64
    high[around, 0] = low[around, 0] + 1 / 64
    return workload("skew", (low, high), events, "double")


def tasks_of(tables: Tables, group: str, strategy: str, limit: int | None) -> list[float]:
    """The seconds of each task of the stage that matches: the last one."""
    context = tables.session.sparkContext
    result = ts.match(tables.events, tables.subscriptions, tables.space, strategy=strategy, broadcast_limit=limit)
    context.setJobGroup(group, group)
    result.write.format("noop").mode("overwrite").save()
    context.setJobGroup("", "")
    infos = [context.statusTracker().getJobInfo(job) for job in context.statusTracker().getJobIdsForGroup(group)]
    stage = max(stage for info in infos if info is not None for stage in info.stageIds)
    store: Any = context._jsc.sc().statusStore()
    for _ in range(100):  # what tasks took comes to the store a little later
        attempt = store.lastStageAttempt(stage)
        listed = list(each(store.taskList(stage, attempt.attemptId(), 1_000_000)))
        done = [task.taskMetrics().get() for task in listed if task.taskMetrics().isDefined()]
        if attempt.status().toString() == "COMPLETE" and len(done) == attempt.numTasks():
            return [metrics.executorRunTime() / 1_000 for metrics in done]
        time.sleep(0.05)
    raise AssertionError(f"{group}: stage {stage} never ended")


def each(sequence: Any) -> Iterator[Any]:
    """The members of one of Scala's."""
    iterator = sequence.iterator()
    while iterator.hasNext():
        yield iterator.next()


PARTS: dict[str, Callable[[Options], None]] = {
    "small": partial(beside_peers, "small", 200_000),
    "big": partial(beside_peers, "big", 4_000_000),
    "large": large,
    "skew": skew,
}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"some of: {' '.join(PARTS)} (default: all)")
    parser.add_argument("--scale", type=float, default=1.0, help="a share of the sizes, for a quick look")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="a contender beside ours (small, big)"
    )
    options = parser.parse_args(arguments)
    unknown = [part for part in options.parts if part not in PARTS]
    if unknown:
        parser.error(f"no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    for part in options.parts or PARTS:
        PARTS[part](Options(options.scale, options.rounds, tuple(options.only)))


if __name__ == "__main__":
    main()
