"""Claim: of the engines that cover by a union, `exact` is the fastest that loses nothing, and finds the most.

Part of `python -m benchmarks.cover`. Three tables:

1. `cover_engines`: every engine on every workload of benchmarks.cover, inserting what it does not find covered, for at
   most so many seconds each: how many it got through, time per insertion, how often that of `exact` on the same
   subscriptions, how many it found redundant, proofs that the verifier refuses, Unproven, rectangles kept.
2. `cover_negative`: exact against exact negative space on the same index, interleaved, medians.
3. `cover_montecarlo`: the error that monte-carlo claims, and its real one: `exact` is asked the same questions about
   the same members. Apart: answers for which it ran all trials that it asked for, and those that its cap cut short; and
   the paper's extreme non-cover (2.c: k = 50 boxes of m = 5 attributes that leave a gap of g % on one of them).
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import interleaved, report
from thatch import Space
from thatch.cover import (
    Covered,
    CoverEngine,
    ExactEngine,
    Likely,
    MonteCarloEngine,
    NegativeEngine,
    Uncovered,
    Unproven,
    engine,
    region_of_box,
    verify,
)
from thatch.errors import TooManyBoxes
from thatch.region.region import Region

Boxes = tuple[NDArray[np.int64], NDArray[np.int64]]
Workloads = dict[str, tuple[Space, Boxes]]
ENGINES: dict[str, tuple[str, dict[str, Any]]] = {
    "exact": ("exact", {}),
    "pairwise": ("pairwise", {}),
    "negative": ("negative", {}),
    "negative, merging": ("negative", {"merge": True}),
    "negative, k = 50": ("negative", {"k": 50}),
    "negative, k = 50 dynamic": ("negative", {"k": 50, "dynamic": True}),
    "hilbert, 8 bits": ("hilbert", {}),
    "montecarlo, 1e-6": ("montecarlo", {"delta": 1e-6}),
}
STEP = 50  # subscriptions inserted between looks at the clock
NAMES_MAX = 64
PROOFS = 20  # certificates that the verifier sees, evenly spread


def all_engines(workloads: Workloads, seconds_max: float) -> None:
    rows: list[dict[str, Any]] = []
    for workload, (space, boxes) in workloads.items():
        exact_seconds: list[float] = []
        for name, (kind, options) in ENGINES.items():
            row, taken = inserted(engine(kind, space, **options), space, boxes, seconds_max)
            if kind == "exact":
                exact_seconds = taken
            done = len(taken)
            print(f"{workload}, {name}: {row['inserted']:,} in {sum(taken):.1f} s", flush=True)
            rows.append(
                {
                    "workload": workload,
                    "engine": name,
                    **row,
                    "x exact": sum(taken) / sum(exact_seconds[:done]),
                }
            )
    report("cover_engines", rows)


def inserted(asked: CoverEngine, space: Space, boxes: Boxes, seconds_max: float) -> tuple[dict[str, Any], list[float]]:
    """Insert in steps until the time is over: what came of it, and the seconds of each step."""
    verdicts: list[Any] = []
    taken: list[float] = []
    low, high = boxes
    type(asked)(space).add_many(list(range(4)), (low[:4], high[:4]))  # compiled before
    while len(verdicts) < len(low) and sum(taken) < seconds_max:
        part = slice(len(verdicts), min(len(verdicts) + STEP, len(low)))
        start = time.perf_counter()
        found = asked.add_many(list(range(part.start, part.stop)), (low[part], high[part]))
        taken.append(time.perf_counter() - start)
        verdicts += found
    regions = {id: region_of_box(low[id].tolist(), high[id].tolist(), space) for id in range(len(verdicts))}
    proofs = [id for id, verdict in enumerate(verdicts) if isinstance(verdict, Covered)]
    seen = proofs[:: max(1, len(proofs) // PROOFS)]
    return {
        "inserted": len(verdicts),
        "us per insertion": sum(taken) / len(verdicts) * 1e6,
        "redundant": len(proofs),
        "proofs refused": refused(verdicts, seen, regions),
        "unproven": sum(isinstance(verdict, Unproven) for verdict in verdicts),
        "rectangles": len(asked.negative) if isinstance(asked, NegativeEngine) else "-",
    }, taken


def refused(verdicts: list[Any], seen: list[int], regions: dict[int, Region]) -> str:
    """Of some certificates; the verifier subtracts box by box, which takes too long for those of hundreds of names."""
    wrong = beyond = 0
    for id in seen:
        if len(verdicts[id].certificate) > NAMES_MAX:
            beyond += 1
            continue
        try:
            wrong += not verify(verdicts[id], regions[id], regions)
        except TooManyBoxes:
            beyond += 1
    return f"{wrong} of {len(seen)}" + (f", {beyond} not seen" if beyond else "")


def unbounded(space: Space, merge: bool = False) -> NegativeEngine:
    """Exact to the end, whatever it takes."""
    return NegativeEngine(space, merge=merge, rectangles_max=10_000_000)


def against_negative(workloads: Workloads, rounds: int) -> None:
    """Sizes that exact negative space gets through: its rectangles grow as n^d."""
    rows = []
    for workload, size in (
        ("2-D a=0", 10_000), ("3-D a=0", 10_000), ("4-D a=0", 2_000), ("5-D a=0", 300),
        ("2-D a=1", 10_000), ("3-D a=1", 10_000), ("4-D a=1", 2_000), ("5-D a=1", 300),
    ):  # fmt: skip
        space, (low, high) = workloads[workload]
        part = low[:size], high[:size]
        ids = list(range(len(part[0])))
        kept = {"plain": unbounded(space), "merging": unbounded(space, merge=True)}
        found = {name: int((each.add_many(ids, part).codes == 1).sum()) for name, each in kept.items()}  # type: ignore[attr-defined]
        exact = ExactEngine(space)
        found["exact"] = int((exact.add_many(ids, part).codes == 1).sum())  # type: ignore[attr-defined]
        if len(set(found.values())) > 1:
            raise AssertionError(f"{workload}: exact methods disagree: {found}")
        seconds = interleaved(
            {
                "exact": lambda space=space, part=part, ids=ids: ExactEngine(space).add_many(ids, part),  # type: ignore[misc]
                "negative": lambda space=space, part=part, ids=ids: unbounded(space).add_many(ids, part),  # type: ignore[misc]
                "merging": lambda space=space, part=part, ids=ids: unbounded(space, merge=True).add_many(ids, part),  # type: ignore[misc]
            },
            rounds,
        )
        rows.append(
            {
                "workload": workload,
                "subscriptions": len(ids),
                "redundant": found["exact"],
                "exact us": seconds["exact"] / len(ids) * 1e6,
                "negative x exact": seconds["negative"] / seconds["exact"],
                "merging x exact": seconds["merging"] / seconds["exact"],
                "rectangles": len(kept["plain"].negative),
                "merged": len(kept["merging"].negative),
                "MB exact": exact.nbytes / 1e6,
                "MB negative": kept["plain"].nbytes / 1e6,
            }
        )
    report("cover_negative", rows)


def errors(workloads: Workloads, scale: float) -> None:
    rows = []
    for workload, (space, boxes) in workloads.items():
        count = int(min(len(boxes[0]), 5_000 * scale))
        for delta in (1e-3, 1e-6, 1e-10):
            rows.append({"workload": workload, "delta": delta, **error_of(space, boxes, count, delta)})
    for gap in (0.5, 1.5, 2.5, 4.5):
        for delta in (1e-3, 1e-6, 1e-10):
            rows.append(
                {"workload": f"gap of {gap} %", "delta": delta, **extreme_non_cover(gap, delta, int(3_000 * scale))}
            )
    report("cover_montecarlo", rows)


def error_of(space: Space, boxes: Boxes, count: int, delta: float) -> dict[str, Any]:
    """Insert one by one what is not called covered, into an exact engine as well, which is asked the same."""
    guessing, exact = MonteCarloEngine(space, delta=delta, seed=1), ExactEngine(space)
    tally = {"likely": 0, "wrong": 0, "cut short": 0, "wrong, cut short": 0, "claimed": 0.0}
    trials: list[int] = []
    for id in range(count):
        region = region_of_box(boxes[0][id].tolist(), boxes[1][id].tolist(), space)
        verdict = guessing.check(region)
        if isinstance(verdict, Likely):
            is_wrong = isinstance(exact.check(region), Uncovered)
            is_cut = verdict.trials_run < verdict.trials_asked
            tally["cut short" if is_cut else "likely"] += 1
            tally["wrong, cut short" if is_cut else "wrong"] += is_wrong
            tally["claimed"] += 0 if is_cut else verdict.delta
            trials.append(verdict.trials_run)
        if not verdict:
            guessing.add(id, region)
            exact.add(id, region)
    full = max(tally["likely"], 1)
    return {
        "questions": count,
        "called covered, all trials": tally["likely"],
        "of these wrong": tally["wrong"],
        "claimed to be wrong": tally["claimed"],
        "error": tally["wrong"] / full,
        "called covered, cut short": tally["cut short"],
        "wrong, cut short": tally["wrong, cut short"],
        "median trials": statistics.median(trials) if trials else 0,
    }


def extreme_non_cover(gap: float, delta: float, runs: int) -> dict[str, Any]:
    """Scenario 2.c: every box covers s on all attributes but the first, where all leave the same gap."""
    domain, attributes, members = 10_000, 5, 50
    space = Space.parse(", ".join(f"x{number} int not null 0..{domain - 1}" for number in range(attributes)))
    draw = np.random.default_rng(7)
    width = int(domain * gap / 100)
    wrong = claimed = 0.0
    guesses = []
    for run in range(runs):
        begin = int(draw.integers(domain // 4, 3 * domain // 4))
        guessing = MonteCarloEngine(space, delta=delta, fast=False, minimize=False, seed=run)
        for id in range(members):
            low, high = np.zeros(attributes, np.int64), np.full(attributes, domain - 1)
            if id % 2:
                low[0], high[0] = begin + width, int(draw.integers(begin + width, domain))
            else:
                low[0], high[0] = int(draw.integers(0, begin)), begin - 1
            if id < 2:  # the first two reach the gap from the ends, so that only the gap is left
                low[0], high[0] = (begin + width, domain - 1) if id else (0, begin - 1)
            guessing.add(id, region_of_box(low.tolist(), high.tolist(), space))
        verdict = guessing.check(region_of_box([0] * attributes, [domain - 1] * attributes, space))
        if isinstance(verdict, Likely):
            wrong += 1
            claimed += verdict.delta
            guesses.append(verdict.trials_run)
    return {
        "questions": runs,
        "called covered, all trials": int(wrong),
        "of these wrong": int(wrong),
        "claimed to be wrong": runs * delta,
        "error": wrong / runs,
        "called covered, cut short": 0,
        "wrong, cut short": 0,
        "median trials": statistics.median(guesses) if guesses else 0,
    }
