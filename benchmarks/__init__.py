"""How benchmarks measure and report: interleaved rounds, medians, ratios, a JSON file beside the table.

Machines are noisy, so contenders take turns within each round and the median over rounds counts; what is claimed is
a ratio between contenders of one run, never an absolute time.
"""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent.parent / "results"


def interleaved(contenders: Mapping[str, Callable[[], object]], rounds: int = 5) -> dict[str, float]:
    """The median seconds of each contender; every one is called once before, to warm up."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for run in contenders.values():
        run()
    for _ in range(rounds):
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(each) for name, each in times.items()}


def print_speed(contenders: Mapping[str, Callable[[], object]], rounds: int = 5) -> None:
    """What `--ours` prints: the median seconds of each part of ours, and last their speed: how often a second all parts
    run, by the geometric mean of their seconds, so that no part outweighs the others."""
    seconds = interleaved(contenders, rounds)
    for name, taken in seconds.items():
        print(f"{name}: {taken:.4g} s")
    print(f"speed: {1 / statistics.geometric_mean(seconds.values()):.6g}")


def report(name: str, rows: list[dict[str, Any]]) -> None:
    """Print rows as a table and write them to results/NAME.json."""
    columns = list(rows[0])
    texts = [[_shown(row[column]) for column in columns] for row in rows]
    widths = [max(len(column), *(len(line[i]) for line in texts)) for i, column in enumerate(columns)]
    print(f"\n{name}")
    for line in [columns, *texts]:
        print("  " + "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())
    RESULTS.mkdir(exist_ok=True)
    machine = {"machine": platform.machine(), "python": platform.python_version()}
    (RESULTS / f"{name}.json").write_text(json.dumps({"benchmark": name, **machine, "rows": rows}, indent=1) + "\n")


def _shown(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else str(value)
