"""Claim: covering by a union, exactly and with proofs, for about the price of a linear scan for one that covers.

Workloads: the negative-space setting (10,000 boxes, domain 1000, lower end Zipf with exponent a, size uniform in what
is left) in 2 to 5 attributes, and the monte-carlo comparison (5,000 boxes over 10, 15, 20 attributes, chosen by
Zipf(2.0), centre Pareto(1.0), size normal). The paper leaves open how many attributes a subscription has, and scales:
we take 2..m/2 of them (3..m/2 of 20), centre scale 5 %, size 30 % +- 15 % of the domain, which gives the active
shares that it prints (pairwise about 15, 15, 50 %, group below 10, 10 and about 33 %).

The unit is a compiled linear scan over the boxes kept so far, keeping those that no single one contains. `exact` runs
through `add_many`; `pairwise indexed` one by one from Python, overhead included. Then: what a single check costs from
Python beside its kernel, rechecks on unsubscription, and growth to a million boxes. Then all engines side by side
(benchmarks/cover_engines.py), and balls (benchmarks/cover_balls.py).
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import cover_balls, cover_engines, interleaved, print_speed, report
from benchmarks.linear_scan import scan_and_add
from thatch import Space
from thatch.cover import ActiveSet, Covered, ExactEngine, PairwiseEngine, Unproven, region_of_box, verify
from thatch.cover.search import cover_union

Boxes = tuple[NDArray[np.int64], NDArray[np.int64]]
DOMAIN = 1_000
WIDE_DOMAIN = 10_000


def zipf_boxes(count: int, attributes: int, exponent: float, seed: int) -> Boxes:
    draw = np.random.default_rng(seed)
    weights = 1 / np.arange(1, DOMAIN + 2) ** exponent
    low = draw.choice(DOMAIN + 1, size=(count, attributes), p=weights / weights.sum()).astype(np.int64)
    return low, low + np.floor(draw.random((count, attributes)) * (DOMAIN - low + 1)).astype(np.int64)


def comparison_boxes(count: int, attributes: int, seed: int) -> Boxes:
    draw = np.random.default_rng(seed)
    low = np.zeros((count, attributes), np.int64)
    high = np.full((count, attributes), WIDE_DOMAIN, np.int64)
    weights = 1 / np.arange(1, attributes + 1) ** 2.0
    least = 3 if attributes >= 20 else 2
    for row in range(count):
        size = int(draw.integers(least, attributes // 2 + 1))
        chosen = draw.choice(attributes, size=size, replace=False, p=weights / weights.sum())
        centre = np.minimum(draw.pareto(1.0, size) * 0.05, 1) * WIDE_DOMAIN
        half = np.abs(draw.normal(0.3 * WIDE_DOMAIN, 0.15 * WIDE_DOMAIN, size)) / 2
        low[row, chosen] = np.clip(centre - half, 0, WIDE_DOMAIN).astype(np.int64)
        high[row, chosen] = np.clip(centre + half, 0, WIDE_DOMAIN).astype(np.int64)
    return low, high


def space_of(attributes: int, domain: int) -> Space:
    return Space.parse(", ".join(f"x{number} int not null 0..{domain}" for number in range(attributes)))


def workloads(scale: float) -> dict[str, tuple[Space, Boxes]]:
    found = {}
    for exponent in (0, 1):
        for d in (2, 3, 4, 5):
            boxes = zipf_boxes(int(10_000 * scale), d, exponent, seed=1)
            found[f"{d}-D a={exponent}"] = space_of(d, DOMAIN), boxes
    for m in (10, 15, 20):
        found[f"{m} attributes"] = space_of(m, WIDE_DOMAIN), comparison_boxes(int(5_000 * scale), m, seed=1)
    return found


def linear_scan(boxes: Boxes) -> int:
    """How many of the boxes one kept before them contains."""
    low, high = boxes
    covered_by = np.empty(len(low), np.int64)
    return len(low) - int(scan_and_add(low, high, np.empty_like(low), np.empty_like(high), covered_by))


def insertions(rounds: int, scale: float) -> None:
    rows: list[dict[str, Any]] = []
    for name, (space, boxes) in workloads(scale).items():
        n = len(boxes[0])
        ids = list(range(n))
        regions = [region_of_box(*each, space) for each in zip(boxes[0].tolist(), boxes[1].tolist(), strict=True)]
        exact, pairwise = ExactEngine(space), PairwiseEngine(space)
        verdicts = exact.add_many(ids, boxes)
        pairwise_found = sum(isinstance(verdict, Covered) for verdict in pairwise.add_many(ids, regions))
        proofs = [number for number in ids if isinstance(verdicts[number], Covered)]
        members = dict(zip(ids, regions, strict=True))
        wrong = sum(not verify(verdicts[number], regions[number], members) for number in proofs)
        seconds = interleaved(
            {
                "linear": lambda boxes=boxes: linear_scan(boxes),  # type: ignore[misc]
                "exact": lambda ids=ids, boxes=boxes, space=space: ExactEngine(space).add_many(ids, boxes),  # type: ignore[misc]
            },
            rounds,
        )
        start = time.perf_counter()
        PairwiseEngine(space).add_many(ids, regions)
        one_by_one = time.perf_counter() - start
        unit = seconds["linear"]
        unproven = sum(isinstance(verdict, Unproven) for verdict in verdicts)
        for engine, time_taken, found, memory in (
            ("linear scan", unit, linear_scan(boxes), 2 * boxes[0].nbytes),
            ("exact", seconds["exact"], len(proofs), exact.nbytes),
            ("pairwise indexed, from Python", one_by_one, pairwise_found, 0),
        ):
            is_exact = engine == "exact"
            rows.append(
                {
                    "workload": name,
                    "engine": engine,
                    "us per insertion": time_taken / n * 1e6,
                    "x linear": time_taken / unit,
                    "redundant": found,
                    "wrong": wrong if is_exact else "-",
                    "unproven": unproven if is_exact else "-",
                    "MB": round(memory / 1e6, 2) if memory else "-",
                }
            )
    report("cover", rows)


def ours() -> None:
    """Insertions in one call, and checks and unsubscriptions one by one from Python."""
    ways: dict[str, Callable[[], object]] = {}
    for name, (space, boxes) in workloads(0.5).items():
        if name in ("3-D a=0", "4-D a=1", "5-D a=0", "10 attributes", "20 attributes"):
            ways[f"insertions, {name}"] = lambda space=space, boxes=boxes: ExactEngine(space).add_many(  # type: ignore[misc]
                list(range(len(boxes[0]))), boxes
            )
    for d in (3, 5):
        space, boxes = space_of(d, DOMAIN), zipf_boxes(4_000, d, 0, seed=2)
        regions = [region_of_box(*each, space) for each in zip(boxes[0].tolist(), boxes[1].tolist(), strict=True)]
        engine = ExactEngine(space)
        engine.add_many(list(range(3_000)), regions[:3_000])
        ways[f"checks, {d}-D"] = lambda engine=engine, asked=regions[3_000:]: [engine.check(each) for each in asked]  # type: ignore[misc]
    ways["unsubscriptions, 3-D"] = lambda: unsubscribed(3, 1_000, 100)
    print_speed(ways, rounds=9)


def single_checks() -> None:
    """What a check costs from Python, and its kernel alone on the same boxes."""
    rows = []
    for d in (3, 5):
        space, boxes = space_of(d, DOMAIN), zipf_boxes(4_000, d, 0, seed=2)
        engine = ExactEngine(space)
        engine.add_many(list(range(3_000)), (boxes[0][:3_000], boxes[1][:3_000]))
        asked = [
            region_of_box(*each, space)
            for each in zip(boxes[0][3_000:].tolist(), boxes[1][3_000:].tolist(), strict=True)
        ]
        arrays = [(boxes[0][i : i + 1], boxes[1][i : i + 1]) for i in range(3_000, 4_000)]
        whole, kernel = [], []
        for _ in range(5):
            start = time.perf_counter()
            for region in asked:
                engine.check(region)
            whole.append(time.perf_counter() - start)
            start = time.perf_counter()
            for low, high in arrays:
                cover_union(
                    engine.index.rows, low, high, 0, len(low), engine._scratch, engine.nodes_max, engine.tests_max
                )
            kernel.append(time.perf_counter() - start)
        from_python, alone = (statistics.median(each) / len(asked) * 1e6 for each in (whole, kernel))
        rows.append(
            {"attributes": d, "check us": from_python, "kernel call us": alone, "over it us": from_python - alone}
        )
    report("cover_check", rows)


def unsubscriptions(scale: float) -> None:
    """Rechecks by certificate against rechecking every passive one that meets the departed; both run, step by step."""
    rows = [unsubscribed(attributes, int(10_000 * scale), int(1_000 * scale)) for attributes in (3, 4)]
    report("cover_unsubscribe", rows)


def unsubscribed(attributes: int, count: int, leaving: int) -> dict[str, Any]:
    """One workload; an error if the two ways ever promote different ones."""
    space, (low, high) = space_of(attributes, DOMAIN), zipf_boxes(count, attributes, 0, seed=3)
    ids = list(range(count))
    regions = [region_of_box(*each, space) for each in zip(low.tolist(), high.tolist(), strict=True)]
    told, plain = ActiveSet(space), ExactEngine(space)
    told.subscribe_many(ids, regions)
    plain.add_many(ids, (low, high))
    is_passive = np.ones(count, np.bool_)
    is_passive[list(plain)] = False
    rechecks_of_all = promoted = 0
    for id in random.Random(4).sample(ids, leaving):
        expected = []
        if id in plain:
            plain.discard(id)
            meets = ((low <= high[id]) & (high >= low[id])).all(axis=1) & is_passive
            for passive in np.flatnonzero(meets).tolist():
                rechecks_of_all += 1
                if not plain.check(regions[passive]):
                    plain.add(passive, regions[passive])
                    expected.append(passive)
        change = told.unsubscribe(id)
        if change.forward != expected:
            raise AssertionError(f"{id} leaves: {change.forward} by certificate, {expected} by rechecking all")
        is_passive[[id, *expected]] = False
        promoted += len(expected)
    return {
        "attributes": attributes,
        "unsubscriptions": leaving,
        "rechecks by certificate": told.rechecks,
        "rechecks of all that meet": rechecks_of_all,
        "times fewer": rechecks_of_all / max(told.rechecks, 1),
        "promoted, the same": promoted,
    }


def growth(largest: int) -> None:
    """Time per insertion at each power of ten."""
    rows = []
    for d, most in ((3, largest), (5, largest // 10)):
        space = space_of(d, DOMAIN)
        boxes = zipf_boxes(most, d, 0, seed=5)
        engine, done = ExactEngine(space), 0
        size = 1_000
        while size <= most:
            part = boxes[0][done:size], boxes[1][done:size]
            start = time.perf_counter()
            engine.add_many(list(range(done, size)), part)
            taken = time.perf_counter() - start
            rows.append(
                {
                    "attributes": d,
                    "boxes": size,
                    "us per insertion": taken / (size - done) * 1e6,
                    "active": len(engine),
                    "MB": round(engine.nbytes / 1e6, 1),
                }
            )
            done, size = size, size * 10
    report("cover_growth", rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="a share of the sizes, for a quick look")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20.0, help="for each engine on each workload")
    parts = ("insertions", "checks", "unsubscriptions", "growth", "engines", "negative", "montecarlo", "balls")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(parts)}; all by default")
    parser.add_argument("--ours", action="store_true", help="ours alone, no parts; a speed comes last")
    options = parser.parse_args()
    if options.ours:
        ours()
        return
    for part in options.parts or parts:
        if part == "insertions":
            insertions(options.rounds, options.scale)
        elif part == "checks":
            single_checks()
        elif part == "unsubscriptions":
            unsubscriptions(options.scale)
        elif part == "growth":
            growth(max(10_000, int(1_000_000 * options.scale)))
        elif part == "engines":
            cover_engines.all_engines(workloads(options.scale), options.seconds)
        elif part == "negative":
            cover_engines.against_negative(workloads(options.scale), options.rounds)
        elif part == "montecarlo":
            cover_engines.errors(workloads(options.scale), options.scale)
        elif part == "balls":
            cover_balls.all_balls(cover_balls.SIZES, cover_balls.DIMENSIONS, options.rounds, options.scale)
        else:
            parser.error(f"no part {part!r}; there are {', '.join(parts)}")


if __name__ == "__main__":
    main()
