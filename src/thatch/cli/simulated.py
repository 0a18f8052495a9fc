"""`thatch simulate`: a scenario by name, its measurements in a Parquet file, pictures, and a summary."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thatch.cli.tabular import table
from thatch.cli.terminal import clear_progress, show_progress
from thatch.errors import CallerError, unknown
from thatch.sim.network import Network
from thatch.sim.plots import draw
from thatch.sim.record import Recorder
from thatch.sim.scenarios import SCENARIOS, Options

PROGRESS_EVERY = 0.25  # seconds of a person's time
LOG_KINDS = ("Subscribe", "Unsubscribe", "Replace", "Publish")


@dataclass(frozen=True, slots=True)
class Result:
    scenario: str
    policy: str
    simulated: float  # seconds
    seconds: float
    summary: dict[str, Any]
    tiers: list[dict[str, Any]]
    files: list[str]

    def text(self) -> str:
        rows = [["tier", *list(self.tiers[0])[1:]]]
        rows += [[_shown(value) for value in tier.values()] for tier in self.tiers]
        facts = ", ".join(f"{name} {_shown(value)}" for name, value in self.summary.items())
        head = f"{self.scenario}, {self.policy}: {self.simulated:,.1f} s simulated in {self.seconds:.1f} s"
        return "\n".join([head, facts, "", table(rows), "", *(f"wrote {name}" for name in self.files)])


def simulate(name: str, options: Options, folder: Path | None, plots: bool, interval: float) -> Result:
    if name not in SCENARIOS:
        raise CallerError(unknown("scenario", name, SCENARIOS))
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    recorder = Recorder(interval)
    began = time.perf_counter()
    net = SCENARIOS[name].build(options, recorder).network
    run_to_end(net)
    measured = recorder.table()
    files = []
    if folder is not None:
        recorder.write(folder / "measured.parquet")
        files.append(str(folder / "measured.parquet"))
        if plots:
            files += map(str, draw(measured, folder, f"{name}, {options.policy}, seed {options.seed}"))
    delays = measured.filter(pc.equal(measured["measure"], "delay"))["value"].to_numpy()
    summary = {
        "subscriptions": SCENARIOS[name].chosen(options).subscriptions, "published": recorder.published_count,
        "delivered": recorder.delivered_count, "delay ms, mean": 1e3 * _or_zero(np.mean, delays),
        "99 %": 1e3 * _or_zero(lambda each: np.quantile(each, 0.99), delays),
        "most": 1e3 * _or_zero(np.max, delays),
    }  # fmt: skip
    seconds = time.perf_counter() - began
    return Result(name, str(options.policy), net.now, seconds, summary, _tiers(measured), files)


def run_to_end(network: Network) -> None:
    shown = _Progress(network, time.perf_counter())
    network.run(progress=shown)
    shown.clear()


def _or_zero(measure: Any, values: Any) -> float:
    return float(measure(values)) if len(values) else 0.0


def _tiers(measured: pa.Table) -> list[dict[str, Any]]:
    """Of each tier: brokers, the longest queue, table sizes at the end, messages by kind, false positives."""
    rows: dict[str, dict[str, dict[str, list[float]]]] = {}
    for row in measured.to_pylist():
        if row["measure"] != "delay":
            rows.setdefault(row["tier"], {}).setdefault(row["measure"], {}).setdefault(row["broker"], []).append(
                row["value"]
            )
    found = []
    for tier, measures in sorted(rows.items()):
        last = {measure: [values[-1] for values in of.values()] for measure, of in measures.items()}
        found.append(
            {
                "tier": tier, "brokers": len(measures["queue"]),
                "queue max": max(max(values) for values in measures["queue"].values()),
                "table mean": float(np.mean(last["table"])), "table max": max(last["table"]),
                **{kind: sum(last.get(f"handled {kind}", [0])) for kind in LOG_KINDS},
                "events in": sum(last["events in"]), "false positives": sum(last["false positives"]),
            }
        )  # fmt: skip
    return found


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:,.1f}" if value % 1 else f"{value:,.0f}"


class _Progress:
    """One line on a terminal; nothing in a pipe."""

    def __init__(self, network: Any, began: float) -> None:
        self.network, self.began, self._last = network, began, began
        self._on = sys.stderr.isatty()

    def __call__(self) -> None:
        now = time.perf_counter()
        if not self._on or now - self._last < PROGRESS_EVERY:
            return
        self._last = now
        handled = sum(sum(node.handled.values()) for node in self.network.nodes.values())
        waiting = sum(node.waiting for node in self.network.nodes.values())
        text = f"{self.network.now:,.1f} s simulated, {handled:,} messages handled, {waiting:,} waiting"
        show_progress(f"{text}, {now - self.began:.0f} s")

    def clear(self) -> None:
        clear_progress()
