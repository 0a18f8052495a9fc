"""Claim: `thatch match` on 50,000 rows and 7 alerts, from a cold process, is 10 times faster than on Spark.

Beside it: the same command of an earlier commit, which always starts Spark, in a worktree; and 10,000,000 rows by both
engines, with the memory that the one in this process takes. Kernels are cached by a run before.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import report
from benchmarks.earlier import EARLIER, HERE, MAIN, earlier_tree, environment_of

SPACE = "symbol string, price double, lots int, at timestamp"
ALERTS = [
    "price < 1",
    "symbol = 'IBM' AND price > 999",
    "lots = 5 AND price BETWEEN 1 AND 2",
    "symbol IN ('SAP', 'X') AND lots > 98 AND price < 10",
    "at < '1970-01-02'",
    "within(1, price, 5, lots, 3)",
    "price > 999.9 OR lots IS NULL",
]


def write_events(path: Path, rows: int) -> None:
    draw = np.random.default_rng(1)
    with pq.ParquetWriter(path, _batch(draw, 1).schema) as writer:
        for start in range(0, rows, 1_000_000):
            writer.write_batch(_batch(draw, min(1_000_000, rows - start)))


def _batch(draw: np.random.Generator, rows: int) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "symbol": pa.array(draw.choice(["IBM", "SAP", "AAPL", "X"], rows)),
            "price": draw.uniform(0, 1000, rows),
            "lots": draw.integers(0, 100, rows),
            "at": pa.array(draw.integers(0, 10**15, rows), pa.timestamp("us", "UTC")),
            "note": pa.array(draw.choice(["", "late", "block"], rows)),
        }
    )


MEASURED = (
    f"{MAIN}import resource\n"
    "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)\nsys.exit(status)"
)


class Run(NamedTuple):
    """One cold run of the command."""

    seconds: float
    matches: int
    megabytes: float  # of the Python process at most


def run(tree: Path, folder: Path, events: str, *more: str, without_java: bool = False) -> Run:
    environment = environment_of(tree)
    if without_java:
        environment |= {"PATH": str(folder), "JAVA_HOME": str(folder)}
    asked = ["match", events, "--where", "alerts.txt", "--space", SPACE, "--json", *more]
    start = time.perf_counter()
    said = subprocess.run(
        [sys.executable, "-c", MEASURED, *asked],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    taken = time.perf_counter() - start
    return Run(taken, int(json.loads(said.stdout)["matches"]), int(said.stderr.split()[-1]) / 1024)


def compared(case: str, ours: Callable[[], Run], peer: str, theirs: Callable[[], Run], runs: int) -> dict[str, Any]:
    """Interleaved, after one run of each."""
    pairs = [(ours(), theirs()) for _ in range(runs + 1)][1:]
    for own, other in pairs:
        assert own.matches == other.matches, f"{case}: {own.matches} matches, {other.matches} by {peer}"
    return {
        "case": case,
        "ours, seconds": statistics.median(own.seconds for own, _ in pairs),
        "peer": peer,
        "peer, seconds": statistics.median(other.seconds for _, other in pairs),
        "times faster": statistics.median(other.seconds / own.seconds for own, other in pairs),
        "ours, MB": max(own.megabytes for own, _ in pairs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--rows", type=int, default=10_000_000, help="of the large table")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "alerts.txt").write_text("\n".join(ALERTS) + "\n")
        write_events(folder / "small.parquet", 50_000)
        write_events(folder / "large.parquet", options.rows)
        with earlier_tree() as earlier:
            small = compared(
                "50,000 rows, 7 alerts, cold",
                lambda: run(HERE, folder, "small.parquet", without_java=True),
                f"Spark, at {EARLIER}",
                lambda: run(earlier, folder, "small.parquet"),
                options.runs,
            )
        large = compared(
            f"{options.rows:,} rows, 7 alerts, cold",
            lambda: run(HERE, folder, "large.parquet", "--engine", "local", without_java=True),
            "Spark",
            lambda: run(HERE, folder, "large.parquet", "--engine", "spark"),
            max(1, options.runs // 2),
        )
    report("first_minute", [small, large])


if __name__ == "__main__":
    main()
