"""Claim: what the demo needs for its first result on Spark is half of what it needed, and a first match costs little.

Every run is a new process, and on Spark a new JVM; contenders take turns. Kernels are cached, as they are after set-up.

- The demo, from the start of the process to its first result on Spark, less an empty session and one trivial job in the
  same round; compared with an earlier commit in a worktree. Ours matches the flights in its own process before.
- A process that imports thatch, subscribes and matches once, compared with one that only imports numba and pyarrow.
- The demo's first result of all, with Java and without, compared with 15 seconds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.earlier import EARLIER, HERE, MAIN, earlier_tree, environment_of

FIRST_RESULT_SECONDS = 15.0
ANSWER = " matches in "  # in the line with a result

# What any program on Spark waits for, with the settings of the demo.
EMPTY = """
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.ui.showConsoleProgress", "false")
builder = builder.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
session = builder.config("spark.sql.shuffle.partitions", "4").getOrCreate()
print(session.range(1).count(), " matches in ")
"""
ONCE = """
import thatch
table = thatch.SubscriptionTable(thatch.Space.parse("price double, symbol string"))
table.subscribe("ann", "price < 20 AND symbol IN ('A', 'B')")
assert table.match({"price": 12.5, "symbol": "A"}) == ["ann"]
"""
IMPORTS = "import numba, pyarrow"


def seconds_to_answer(code: str, arguments: list[str], environment: dict[str, str], number: int = 1) -> float:
    """From the start of a process until it has printed so many results. It is left to end by itself."""
    start = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        taken = None
        for line in process.stdout:
            number -= ANSWER in line
            if taken is None and number == 0:
                taken = time.perf_counter() - start
    assert taken is not None and process.returncode == 0, f"{arguments}: exit status {process.returncode}"
    return taken


def seconds_of(code: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], env=environment_of(HERE), check=True)
    return time.perf_counter() - start


def row(case: str, ours: list[float], peer: str, theirs: list[float], limit: float) -> dict[str, Any]:
    return {
        "case": case,
        "ours, seconds": statistics.median(ours),
        "peer": peer,
        "peer, seconds": statistics.median(theirs),
        "ratio": statistics.median(own / other for own, other in zip(ours, theirs, strict=True)),
        "at most": limit,
    }


def on_spark(runs: int) -> dict[str, Any]:
    ours, theirs = [], []
    with earlier_tree() as earlier:
        for _ in range(runs + 1):  # the first time, kernels are compiled
            empty = seconds_to_answer(EMPTY, [], environment_of(HERE))
            own = seconds_to_answer(MAIN, ["demo"], environment_of(HERE), 2)
            other = seconds_to_answer(MAIN, ["demo"], environment_of(earlier))
            print(f"an empty session {empty:.2f} s, the demo {own:.2f} s, at {EARLIER} {other:.2f} s", flush=True)
            ours.append(own - empty)
            theirs.append(other - empty)
    return row("the demo's first result on Spark, less an empty session", ours[1:], f"at {EARLIER}", theirs[1:], 0.5)


def alternating(ours: Callable[[], float], theirs: Callable[[], float], runs: int) -> tuple[list[float], list[float]]:
    """The seconds of both, in turns, after one run of each."""
    pairs = [(ours(), theirs()) for _ in range(runs + 1)][1:]
    return [own for own, _ in pairs], [other for _, other in pairs]


def first_match(runs: int) -> dict[str, Any]:
    ours, theirs = alternating(lambda: seconds_of(ONCE), lambda: seconds_of(IMPORTS), runs)
    return row("import thatch, subscribe, match once", ours, "import numba, pyarrow", theirs, 1.5)


def first_result(runs: int) -> list[dict[str, Any]]:
    """Of the whole demo, as `make demo` runs it; once with a PATH that has no Java."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for case, java in (("with Java", True), ("without Java", False)):
            environment = environment_of(HERE)
            if not java:
                environment = _without_java(environment, Path(name))
            taken = [seconds_to_answer(MAIN, ["demo", "--all"], environment) for _ in range(runs)]
            limit = [FIRST_RESULT_SECONDS] * runs
            rows.append(row(f"the demo's first result, {case}", taken, "the limit", limit, 1.0))
    return rows


def _without_java(environment: dict[str, str], folder: Path) -> dict[str, str]:
    """With a PATH that has every program but Java."""
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).glob("*"):
            if program.name != "java" and not (folder / program.name).exists():
                (folder / program.name).symlink_to(program)
    assert shutil.which("java", path=str(folder)) is None
    return {name: value for name, value in environment.items() if name != "JAVA_HOME"} | {"PATH": str(folder)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    rows = [on_spark(options.runs), first_match(4 * options.runs), *first_result(max(1, options.runs // 2))]
    report("cold_start", rows)


if __name__ == "__main__":
    main()
