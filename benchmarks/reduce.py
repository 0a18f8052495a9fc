"""Claim: `thatch.spark.reduce` finds the redundant ones of a million boxes in time that grows about linearly, with a
driver that does not grow, and with tasks of about one size; what it says is proven.

curve  Boxes of 4 attributes, 100,000 to 1,000,000. (uniform) places uniform, sides uniform up to 10 % of each domain;
       (crowded) places and sides by a power law, a fifth of the boxes within 1 % of each domain. Each row is a process
       of its own: a driver and two executors of one core. Timed: from a DataFrame (Parquet) to all rows of the result
       written to Parquet, sampling and planning included; a small run before it warms up both compilers. `by linear`
       is the time by that of the first row times the ratio of the sizes. Memory is the most that the driver's Python
       and the most that its JVM held. `largest task` is rows of the largest by those of the median one.
peers  The same decisions in one process (the exact engine, in the same order, on one core); and what is written today,
       a self-join that finds boxes inside one other box, which is less: on a sample of the boxes, scaled.

Checked, not timed: certificates of a sample are verified, and name active ones only; `peers` agree on every status.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from numpy.typing import NDArray
from pyspark import SparkContext
from pyspark.sql import functions as F

import thatch.spark as ts
from benchmarks import report
from benchmarks.spark import peak_mb, session_with
from thatch import Space
from thatch.cover import Covered, ExactEngine, region_of_box, verify
from thatch.cover.boxed import COVERED
from thatch.cover.breadth import breadths
from thatch.space.arrays import Ints
from thatch.spark.reducing.reduce import Reduction

SIZES = (100_000, 300_000, 1_000_000)
ATTRIBUTES, FILES, VERIFIED = 4, 8, 2_000
SPACE = Space.parse(", ".join(f"x{axis} double not null 0..1000" for axis in range(ATTRIBUTES)))
Values = NDArray[np.float64]


def uniform(count: int, draw: np.random.Generator) -> tuple[Values, Values]:
    return draw.uniform(0, 1000, (count, ATTRIBUTES)), draw.uniform(0, 100, (count, ATTRIBUTES))


def crowded(count: int, draw: np.random.Generator) -> tuple[Values, Values]:
    centre = 1000 * draw.uniform(0, 1, (count, ATTRIBUTES)) ** 3
    width = np.minimum(20 / draw.uniform(0.02, 1, (count, ATTRIBUTES)) ** 0.7, 500)
    hot = draw.uniform(0, 1, count) < 0.2
    centre[hot] = 400 + draw.uniform(0, 10, (int(hot.sum()), ATTRIBUTES))
    return centre, width


WORKLOADS = {"uniform": uniform, "crowded": crowded}


def write_boxes(name: str, count: int, folder: Path) -> None:
    folder.mkdir(parents=True)
    draw = np.random.default_rng(7)
    for number in range(FILES):
        first, last = count * number // FILES, count * (number + 1) // FILES
        centre, width = WORKLOADS[name](last - first, draw)
        columns: dict[str, Any] = {"id": np.arange(first, last)}
        for axis in range(ATTRIBUTES):
            columns[f"low_x{axis}"] = np.maximum(centre[:, axis] - width[:, axis] / 2, 0)
            columns[f"high_x{axis}"] = np.minimum(centre[:, axis] + width[:, axis] / 2, 1000)
        pq.write_table(pa.table(columns), folder / f"{number}.parquet")


@dataclass
class Run:
    seconds: float
    python_mb: float
    jvm_mb: float
    cells: int
    tasks: int
    clips: int
    largest: float


def reduce_alone(folder: Path, size: int) -> Run:
    """In a process of its own: a driver and two executors."""
    home = folder.parent / f"home-{os.getpid()}"  # Spark's, but with a folder of ours to work in
    home.mkdir()
    for each in Path(pyspark.__file__).parent.iterdir():
        (home / each.name).symlink_to(each)
    os.environ["SPARK_HOME"] = str(home)
    session = session_with("local-cluster[2,1,2048]", **{"spark.driver.memory": "1g", "spark.executor.memory": "2g"})
    boxes = session.read.parquet(str(folder))
    ts.reduce(boxes.limit(5_000), SPACE).write.format("noop").mode("overwrite").save()
    start = time.perf_counter()
    ts.reduce(boxes, SPACE).write.parquet(f"{folder}-reduced", mode="overwrite")
    seconds = time.perf_counter() - start
    assert SparkContext._gateway is not None
    jvm, python = peak_mb(SparkContext._gateway.proc.pid), peak_mb(os.getpid())
    reduction = Reduction(boxes, SPACE, "raise", None)
    counts = reduction.placed().groupBy(F.spark_partition_id().alias("task")).count().toArrow()["count"].to_numpy()
    tasks = np.concatenate((counts, np.zeros(reduction.division.tasks - len(counts))))
    largest = float(counts.max() / max(np.median(tasks), 1))
    session.stop()
    return Run(seconds, python, jvm, len(reduction.division), len(tasks), int(counts.sum()), largest)


def check(folder: Path) -> tuple[int, int]:
    """How many are active and passive; some certificates are verified."""
    boxes, found = pq.read_table(folder).sort_by("id"), pq.read_table(f"{folder}-reduced").sort_by("id")
    assert found["id"].equals(boxes["id"]), "every box has one row"
    low, high = as_boxes(boxes)
    status = found["status"].to_numpy()
    passive = np.flatnonzero(status == "passive")
    chosen = np.random.default_rng(1).permutation(passive)[:VERIFIED]
    for row, names in zip(chosen.tolist(), found["covered_by"].take(pa.array(chosen)).to_pylist(), strict=True):
        assert (status[names] == "active").all()
        members = {name: region_of_box(low[name].tolist(), high[name].tolist(), SPACE) for name in names}
        region = region_of_box(low[row].tolist(), high[row].tolist(), SPACE)
        assert verify(Covered(tuple(names)), region, members), f"{row} is not covered by {names}"
    return len(boxes) - len(passive), len(passive)


def as_boxes(table: pa.Table) -> tuple[Ints, Ints]:
    low, high = (
        np.stack([a.axis.encode_array(table[f"{side}_{a.name}"].combine_chunks()) for a in SPACE], axis=1)  # type: ignore[misc]
        for side in ("low", "high")
    )
    return np.ascontiguousarray(low), np.ascontiguousarray(high)


def alone(folder: Path, size: int) -> Run:
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawned) as processes:
        return processes.submit(reduce_alone, folder, size).result()


def curve(folder: Path, scale: float) -> None:
    rows: list[dict[str, Any]] = []
    for name in WORKLOADS:
        first: tuple[int, float] | None = None
        for size in (int(each * scale) for each in SIZES):
            place = folder / f"{name}-{size}"
            write_boxes(name, size, place)
            run = alone(place, size)
            active, passive = check(place)
            first = first or (size, run.seconds)
            rows.append(
                {
                    "boxes": f"{name} {size:,}",
                    "seconds": run.seconds,
                    "microseconds a box": 1e6 * run.seconds / size,
                    "by linear": run.seconds / (first[1] * size / first[0]),
                    "active": active,
                    "passive": passive,
                    "cells": run.cells,
                    "rows in cells, by boxes": run.clips / size,
                    "tasks": run.tasks,
                    "largest task, by median": run.largest,
                    "driver's Python, peak MB": run.python_mb,
                    "driver's JVM, peak MB": run.jvm_mb,
                    "certificates verified": min(VERIFIED, passive),
                }
            )
            print(rows[-1], flush=True)
            shutil.rmtree(place)
    report("reduce_curve", rows)


def peers(folder: Path, scale: float) -> None:
    rows = []
    for size in (int(each * scale) for each in (SIZES[0], SIZES[-1])):
        place = folder / f"peers-{size}"
        write_boxes("uniform", size, place)
        ours = alone(place, size).seconds
        engine_seconds, covered = in_process(place)
        found = pq.read_table(f"{place}-reduced").sort_by("id")
        assert ((found["status"].to_numpy() == "passive") == covered).all(), "the same decisions"
        join_seconds, inside = self_join(place, size)
        rows.append(
            {
                "boxes": size,
                "ours, seconds": ours,
                "one process, by ours": engine_seconds / ours,
                "self-join by one, by ours": join_seconds / ours,
                "redundant by a union": int(covered.sum()),
                "redundant by one": inside,
            }
        )
        print(rows[-1], flush=True)
    report("reduce_peers", rows)


def in_process(folder: Path) -> tuple[float, NDArray[np.bool_]]:
    """The exact engine on one core, in the same order."""
    table = pq.read_table(folder).sort_by("id")
    low, high = as_boxes(table)
    ExactEngine(SPACE).add_many(range(100), (low[:100], high[:100]))
    start = time.perf_counter()
    order = np.lexsort((np.arange(len(low)), -breadths(low, high, np.arange(len(low) + 1), SPACE)))
    verdicts: Any = ExactEngine(SPACE).add_many(order.tolist(), (low[order], high[order]))
    seconds = time.perf_counter() - start
    covered = np.zeros(len(low), np.bool_)
    covered[order] = verdicts.codes == COVERED
    return seconds, covered


def self_join(folder: Path, size: int) -> tuple[float, int]:
    """Boxes inside one other, by Spark's nested loop: of a sample, scaled."""
    session = session_with("local[2]", **{"spark.driver.memory": "2g"})
    boxes = session.read.parquet(str(folder)).alias("b")
    some = max(1, min(size, 1_000_000_000 // size))
    inside = " AND ".join(
        f"a.low_x{axis} >= b.low_x{axis} AND a.high_x{axis} <= b.high_x{axis}" for axis in range(ATTRIBUTES)
    )

    def counted(rows: int) -> tuple[float, int]:
        asked = session.read.parquet(str(folder)).where(f"id % {max(1, size // rows)} = 0").alias("a")
        start = time.perf_counter()
        found = asked.join(boxes, F.expr(f"a.id <> b.id AND {inside}"), "left_semi").count()
        return time.perf_counter() - start, found * max(1, size // rows)

    counted(2)
    few = counted(2)[0]
    seconds, found = counted(some)
    session.stop()
    return few + (seconds - few) * (size / some), found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=["curve", "peers", []], help="all of them if none is named")
    parser.add_argument("--scale", type=float, default=1.0, help="a share of the boxes, to try it out")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        for part, run in (("curve", curve), ("peers", peers)):
            if not options.parts or part in options.parts:
                run(Path(name), options.scale)


if __name__ == "__main__":
    main()
