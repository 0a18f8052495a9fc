"""`thatch warm`: compile the kernels now, so that no later call has to wait for it.

What was compiled is kept beside the source, or in the user's cache directory. A kernel is compiled for the types that
it is called with, so each is called here as the library calls it, on small data.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TYPE_CHECKING, Any

from thatch.cli.arguments import OK, add_json, as_text
from thatch.cli.terminal import clear_progress, show_progress

if TYPE_CHECKING:
    from thatch.region.region import Region
    from thatch.space.space import Space

COUNT = 200  # subscriptions of an index: enough for blocks and trees
LISTED = 40  # values of a watchlist: enough for a list by value
ROWS = 90  # events of a batch: enough to be matched together
MEMBERS = 16  # of an engine


def add(commands: Any) -> None:
    command = commands.add_parser(
        "warm",
        help="compile now what later calls would compile",
        description="Compile the hot code now, and keep it: otherwise the first call of each kind waits for it. A "
        "second call finds everything compiled. `make setup` does this.",
    )
    add_json(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    start, seconds = time.perf_counter(), {}
    # Each process compiles kernels that the other does not need.
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        started = {pool.submit(_timed, name): name for name in TASKS}
        for done in as_completed(started):
            seconds[started[done]] = round(done.result(), 2)
            show_progress(f"compiled {len(seconds)} of {len(TASKS)} parts")
    clear_progress()
    total = time.perf_counter() - start
    if options.json:
        print(as_text({"seconds": round(total, 2), "parts": seconds}))
    else:
        print(f"Everything is compiled ({total:.0f} s).")
    return OK


def _timed(name: str) -> float:
    from thatch import jit

    jit.announcer.is_silent = True  # that is what the command is for
    start = time.perf_counter()
    TASKS[name]()
    return time.perf_counter() - start


def _match() -> None:
    """The index of a table: watchlists, balls and boxes, one event and many."""
    import pyarrow as pa

    from thatch.table.table import SubscriptionTable

    space, clauses = _space(), _clauses()
    table = SubscriptionTable(space)
    table.subscribe(-1, clauses[0])
    table.match(_events()[0])
    table.subscribe_many(range(MEMBERS), clauses[:MEMBERS])
    table.match_batch(pa.Table.from_pylist(_events()))
    for event in _events():
        table.match(event)
    table.match_region(clauses[1])
    for id in range(0, MEMBERS, 3):
        table.unsubscribe(id)
    table.match_batch(pa.Table.from_pylist(_events()))


def _indexes() -> None:
    import pyarrow as pa

    from thatch.matching import MATCHERS

    space = _space()
    regions = [space.where(clause) for clause in _clauses()]
    listed = ", ".join(f"'L{each}'" for each in range(LISTED))
    regions[1] = space.where(f"symbol IN ({listed}) AND price < 20")
    few, many = pa.Table.from_pylist(_events()), pa.Table.from_pylist(_events() * (ROWS // 3))
    for kind in MATCHERS.values():
        matcher = kind(space)
        matcher.add_many(list(range(COUNT)), regions)
        matcher.add(COUNT, regions[0])
        matcher.match_batch(few)
        matcher.match_batch(many)
        matcher.match(_events()[0])
        matcher.meeting(regions[1])
        matcher.discard(3)


def _covering_by(*names: str) -> Callable[[], None]:
    def task() -> None:
        from thatch.cover import ENGINES

        for name in names:
            for space, regions in (_boxes(), _general()):
                engine, few = ENGINES[name](space), len(regions) // 2
                for id, region in enumerate(regions[:few]):
                    engine.check(region)
                    engine.add(id, region)
                engine.add_many(list(range(few, len(regions))), regions[few:])
                for region in regions[:4]:
                    engine.check(region)
                    engine.members_within(region)
                    engine.members_meeting(region)
                for id in range(0, len(regions), 3):
                    engine.discard(id)
                engine.check(regions[0])

    return task


def _merge() -> None:
    from thatch.merge import MergeSet

    space, regions = _boxes()
    merged = MergeSet(space, budget=0.5)
    for id, region in enumerate(regions):
        merged.add(id, region)
    for id in range(0, MEMBERS, 2):
        merged.discard(id)


def _space() -> Space:
    from thatch.space.space import Space

    return Space.parse("price double not null, lots int, symbol string, side enum('buy', 'sell'), at timestamp")


def _clauses() -> list[str]:
    return [
        (
            f"price BETWEEN {each} AND {each + 20} AND lots > {each % 7}",
            f"symbol IN ('A{each}', 'B{each % 5}', 'C') AND price < {each}",
            f"within({each + 1}, price, {each}, lots, 3)",
            f"side = 'buy' OR symbol IS NULL OR lots < {each}",
        )[each % 4]
        for each in range(COUNT)
    ]


def _events() -> list[dict[str, Any]]:
    from datetime import UTC, datetime

    moment = datetime(2026, 1, 1, tzinfo=UTC)
    row = {"price": 17.5, "lots": 3, "symbol": "B2", "side": "buy", "at": moment}
    return [row, row | {"price": 40.0, "lots": None}, row | {"symbol": None}]


def _boxes() -> tuple[Space, list[Region]]:
    from thatch.space.space import Space

    space = Space.parse("x int not null 0..1023, y int not null 0..1023")
    clauses = (
        f"x BETWEEN {each * 37 % 900} AND {each * 37 % 900 + 90} AND y >= {each * 11 % 700}" for each in range(MEMBERS)
    )
    return space, [space.where(clause) for clause in clauses]


def _general() -> tuple[Space, list[Region]]:
    space = _space()
    return space, [space.where(clause) for clause in _clauses()[:MEMBERS]]


TASKS: dict[str, Callable[[], None]] = {
    "the exact engine": _covering_by("exact"),
    "a table": _match,
    "negative space": _covering_by("negative", "pairwise"),
    "match indexes": _indexes,
    "Monte Carlo and projections": _covering_by("montecarlo", "projection"),
    "merging": _merge,
    "cells": _covering_by("hilbert", "dominance"),
}
