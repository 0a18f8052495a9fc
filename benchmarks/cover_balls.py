"""Claim: one of a million balls that covers a ball is found, or found missing, at least 5 times as fast as by a plain
scan, in up to 12 attributes.

Workload (projection): centres uniform in [0, 1]^d, radii in (0, 1), uniform or Pareto ("80-20", shape 1.16; the paper
prints no scale, we take 0.01 and draw again what is 1 or more). The plain scan is compiled, over arrays in order of
arrival; it compares radii first, gives up a distance as soon as it is too large, and stops at the first hit. Both are
asked many balls in one call, compiled alike, and a hit of either counts if it is sure, else `Ball.holds` is asked; then
ball by ball from Python, where a call costs microseconds whatever it does.

Questions are `drawn` as the balls are, or drawn with uniform radii until so many are `uncovered`: those are what a
broker must forward, and no scan can stop early for them. As many as keep the plain scan busy for a while, up to 10,000.

Then: every ball that a ball covers, insertions, removals; and how many candidates the projections of the paper and the
cubes of its Proposition 2.2 leave, with the three shares of wrong ones.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import interleaved, report
from benchmarks.linear_scan import scan_balls, scan_balls_many, scan_covered
from thatch.cover.balls import BallIndex, random_vectors, sure_margin, surely_held
from thatch.cover.projection import bounding_cubes_cover, inscribed_cubes_cover
from thatch.region.ball import Ball
from thatch.space.arrays import Floats, Ints

PARETO_SHAPE, PARETO_SCALE = 1.16, 0.01
DIMENSIONS = [4, 8, 12, 16, 20]
SIZES = [10_000, 100_000, 1_000_000]
KINDS = ("uniform", "pareto")
BUSY_SECONDS = 0.02
Balls = tuple[Floats, Floats]


def drawn_balls(kind: str, count: int, attributes: int, seed: int) -> Balls:
    """Centres [n, d] and radii [n]."""
    draw = np.random.default_rng(seed)
    centres = draw.random((count, attributes))
    if kind == "uniform":
        return centres, draw.random(count)
    radii = np.empty(0)
    while len(radii) < count:
        more = PARETO_SCALE * (1 + draw.pareto(PARETO_SHAPE, count))
        radii = np.concatenate((radii, more[more < 1]))
    return centres, radii[:count]


def as_balls(balls: Balls) -> list[Ball]:
    attributes = tuple(range(balls[0].shape[1]))
    return [
        Ball(attributes, tuple(centre), radius) for centre, radius in zip(*map(np.ndarray.tolist, balls), strict=True)
    ]


class PlainScan:
    """The peer: the same balls in order of arrival, and the same verification."""

    def __init__(self, balls: Balls) -> None:
        self.centres, self.radii = balls
        self.attributes = tuple(range(self.centres.shape[1]))
        self.found = np.empty(len(self.radii), np.int64)

    def coverer(self, ball: Ball) -> int | None:
        centre, start = np.array(ball.centre), 0
        while scan_balls(self.centres, self.radii, start, centre, ball.radius, self.found, 1):
            slot = int(self.found[0])
            if ball.is_within(tuple(self.centres[slot].tolist()), float(self.radii[slot])):
                return slot
            start = slot + 1
        return None

    def coverers(self, centres: Floats, radii: Floats) -> Ints:
        asked, answers = np.column_stack((centres, radii)), np.empty(len(radii), np.int64)
        scan_balls_many(self.centres, self.radii, asked, sure_margin(len(self.attributes)), answers)
        for question in np.flatnonzero(answers == -2).tolist():
            slot = self.coverer(Ball(self.attributes, tuple(centres[question].tolist()), float(radii[question])))
            answers[question] = -1 if slot is None else slot
        return answers

    def covered(self, ball: Ball) -> list[int]:
        count = scan_covered(self.centres, self.radii, np.array(ball.centre), ball.radius, self.found)
        found = self.found[:count]
        rows = np.column_stack((self.centres[found], self.radii[found]))
        held = surely_held(ball, rows)
        for position in np.flatnonzero(~held).tolist():
            *centre, radius = rows[position].tolist()
            held[position] = ball.holds(Ball(self.attributes, tuple(centre), radius))
        return found[held].tolist()


def uncovered_balls(index: BallIndex, count: int, seed: int) -> Balls:
    found: list[Balls] = []
    draw = np.random.default_rng(seed)
    while sum(len(radii) for _, radii in found) < count:
        centres, radii = draw.random((256, len(index.attributes))), draw.random(256)
        missing = index.coverers(centres, radii) < 0
        found.append((centres[missing], radii[missing]))
    return np.concatenate([each for each, _ in found])[:count], np.concatenate([each for _, each in found])[:count]


def enough(plain: PlainScan, balls: Balls) -> Balls:
    """As many of the balls as keep the plain scan busy, at least 100."""
    few = balls[0][:25], balls[1][:25]
    plain.coverers(*few)  # compiled before
    start = time.perf_counter()
    plain.coverers(*few)
    count = max(100, int(25 * BUSY_SECONDS / (time.perf_counter() - start)))
    return balls[0][:count], balls[1][:count]


def each_timed(ask: Callable[[Ball], object], balls: list[Ball]) -> list[float]:
    times = []
    for ball in balls:
        start = time.perf_counter()
        ask(ball)
        times.append(time.perf_counter() - start)
    return times


def queries(sizes: list[int], dimensions: list[int], rounds: int) -> None:
    rows = []
    for kind in KINDS:
        for d in dimensions:
            for n in sizes:
                stored = drawn_balls(kind, n, d, seed=1)
                plain, index, falling = (
                    PlainScan(stored),
                    BallIndex(tuple(range(d))),
                    BallIndex(tuple(range(d)), form="scan"),
                )
                index.insert_all(*stored)
                falling.insert_all(*stored)
                asked = {
                    "drawn": enough(plain, drawn_balls(kind, 10_000, d, seed=2)),
                    "uncovered": uncovered_balls(index, 25 if n > 100_000 else 100, seed=3),
                }
                rows += [
                    {"radii": kind, "d": d, "n": n, "asked": name, **compared(plain, index, falling, balls, rounds)}
                    for name, balls in asked.items()
                ]
    report("balls", rows)


def compared(plain: PlainScan, index: BallIndex, falling: BallIndex, asked: Balls, rounds: int) -> dict[str, Any]:
    """An error if one of the three says covered where another does not."""
    contenders: dict[str, PlainScan | BallIndex] = {"plain": plain, "index": index, "falling": falling}
    answers = {name: each.coverers(*asked) >= 0 for name, each in contenders.items()}
    if not all((each == answers["plain"]).all() for each in answers.values()):
        raise AssertionError("the index and the scans differ")
    seconds = interleaved(
        {name: lambda each=each: each.coverers(*asked) for name, each in contenders.items()},  # type: ignore[misc]
        rounds,
    )
    balls = as_balls((asked[0][:100], asked[1][:100]))
    medians = {name: statistics.median(each_timed(each.coverer, balls)) for name, each in contenders.items()}
    means = {name: taken / len(asked[0]) * 1e6 for name, taken in seconds.items()}
    return {
        "questions": len(asked[0]),
        "covered %": 100 * float(answers["plain"].mean()),
        "plain us": means["plain"],
        "by falling radius us": means["falling"],
        "index us": means["index"],
        "times faster": means["plain"] / means["index"],
        "one from Python, plain us": medians["plain"] * 1e6,
        "index, one from Python, us": medians["index"] * 1e6,
    }


def changes(sizes: list[int], dimensions: list[int], rounds: int) -> None:
    """All balls that a ball covers, and what changes cost."""
    rows = []
    for kind in KINDS:
        for d in dimensions:
            for n in sizes:
                stored = drawn_balls(kind, n, d, seed=1)
                plain, index = PlainScan(stored), BallIndex(tuple(range(d)))
                start = time.perf_counter()
                slots = index.insert_all(*stored)
                bulk = time.perf_counter() - start
                balls = as_balls(drawn_balls(kind, 30, d, seed=4))
                for ball in balls:
                    if index.covered(ball) != plain.covered(ball):
                        raise AssertionError("the index and the scan find different balls")
                found = statistics.mean(len(index.covered(ball)) for ball in balls)
                seconds = interleaved(
                    {
                        "plain": lambda plain=plain, balls=balls: [plain.covered(ball) for ball in balls],  # type: ignore[misc]
                        "index": lambda index=index, balls=balls: [index.covered(ball) for ball in balls],  # type: ignore[misc]
                    },
                    rounds,
                )
                one_by_one = as_balls(drawn_balls(kind, min(n, 20_000), d, seed=5))
                start = time.perf_counter()
                for ball in one_by_one:
                    index.insert(ball)
                inserted = time.perf_counter() - start
                leaving = np.random.default_rng(6).permutation(slots)[: min(n // 2, 20_000)].tolist()
                start = time.perf_counter()
                for slot in leaving:
                    index.remove(slot)
                removed = time.perf_counter() - start
                rows.append(
                    {
                        "radii": kind, "d": d, "n": n, "covered by one": found,
                        "plain us": seconds["plain"] / len(balls) * 1e6,
                        "index us": seconds["index"] / len(balls) * 1e6,
                        "times faster": seconds["plain"] / seconds["index"],
                        "us per ball, all at once": bulk / n * 1e6,
                        "us per insertion": inserted / len(one_by_one) * 1e6,
                        "us per removal": removed / len(leaving) * 1e6,
                        "MB": index.nbytes / 1e6,
                    }
                )  # fmt: skip
    report("balls_changes", rows)


def wrong_shares(balls: Balls, passes: Callable[[Floats, Floats, Floats, float], Any]) -> dict[str, float]:
    """Of a test that reports pairs (coverer, covered): how many it reports for a ball, and the share of wrong ones
    among all ordered pairs (the paper's "frequency"), among those reported, and among pairs that do not cover though
    r >= r'."""
    centres, radii = balls
    n = len(radii)
    reported = wrong = not_covering = 0
    for position in range(n):
        centre, radius = centres[position], float(radii[position])
        found = passes(centres, radii, centre, radius)
        covers = np.sqrt(((centres - centre) ** 2).sum(axis=1)) <= radii - radius
        found[position] = covers[position] = False
        if (covers & ~found).any():
            raise AssertionError("a ball that covers was thrown out")
        reported += int(found.sum())
        wrong += int((found & ~covers).sum())
        not_covering += int((~covers & (radii >= radius)).sum()) - 1  # itself
    return {
        "candidates": reported / n,
        "wrong % of pairs": 100 * wrong / (n * (n - 1)),
        "wrong % of reported": 100 * wrong / max(reported, 1),
        "wrong % of r >= r'": 100 * wrong / max(not_covering, 1),
    }


def by_projections(vectors: Floats) -> Callable[[Floats, Floats, Floats, float], Any]:
    """The paper's test: every shadow covers."""

    def passes(centres: Floats, radii: Floats, centre: Floats, radius: float) -> Any:
        reach = radii - radius
        offsets = np.abs((centres - centre) @ vectors.T)
        return (reach >= 0) & (offsets <= reach[:, None] * (1 + 2.0**-40)).all(axis=1)

    return passes


def candidates(n: int, dimensions: list[int]) -> None:
    rows = []
    for kind in KINDS:
        for d in dimensions:
            balls = drawn_balls(kind, n, d, seed=7)
            tests = {f"{k} projections": by_projections(random_vectors(d, k, True, 0)) for k in (1, 2, 4)}
            tests["bounding cubes"] = bounding_cubes_cover
            sure = sum(
                int(inscribed_cubes_cover(*balls, centre, radius).sum()) - 1
                for centre, radius in zip(balls[0], balls[1].tolist(), strict=True)
            )
            rows += [
                {"radii": kind, "d": d, "n": n, "test": name, **wrong_shares(balls, passes), "sure by cubes": sure / n}
                for name, passes in tests.items()
            ]
    report("balls_candidates", rows)


def all_balls(sizes: list[int], dimensions: list[int], rounds: int, scale: float) -> None:
    sizes = [max(100, int(size * scale)) for size in sizes]
    queries(sizes, dimensions, rounds)
    changes(sizes, dimensions, rounds)
    candidates(max(100, int(2_500 * scale)), dimensions)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="a share of the sizes, for a quick look")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--dimensions", type=int, nargs="+", default=DIMENSIONS)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    all_balls(options.sizes, options.dimensions, options.rounds, options.scale)


if __name__ == "__main__":
    main()
