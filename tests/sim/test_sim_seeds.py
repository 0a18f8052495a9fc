"""Random runs of the real broker, each with a policy and an engine of its own, compared with covering off.

A failure names its seed and the shortest prefix of steps that still fails. More seeds: `make soak`, or by hand
`python tests/sim/test_sim_seeds.py 1000 2000`. One hash over the effects of all messages, to compare before and after a
change of structure: `python tests/sim/test_sim_seeds.py --hash 0 500`.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any
from zlib import crc32

import msgspec
import pytest
from msgspec.structs import replace

from thatch.broker import Policy, Settings
from thatch.broker.outbound import OutboundTable
from thatch.broker.statistics import Distances
from thatch.protocol.messages import Effect, Message, Send, Subscribe, Synced
from thatch.sim.network import Clauses
from thatch.sim.run import Observed, Run, clauses_of_scripts, draw_settings, run, shortest_prefix
from thatch.sim.script import Script, draw

SOAK = bool(os.environ.get("THATCH_SOAK"))
SEEDS, GROUP = (10_000, 100) if SOAK else (500, 25)


def seen(seed: int) -> Observed:
    """The run of a seed, and of some seeds also that it delivers what covering off delivers. The oracle knows who wants
    an event at rest, so that the run with covering off is one more policy rather than a second oracle."""
    script = draw(seed)
    settings = draw_settings(seed, script.routing)
    without = Settings(settings.routing, Policy(None))
    clauses = clauses_of_scripts()
    for each in (settings, without) if SOAK or seed % 5 == 0 else (settings,):
        try:
            found = run(script, each, clauses)
        except Exception as error:
            steps, why = shortest_prefix(script, each)
            lines = "\n".join(f"    {step}" for step in script.steps[:steps])
            pytest.fail(f"seed {seed}, {each.policy}: {error}\n  fails after {steps} steps: {why}\n{lines}")
        if each is settings:
            own = found
    assert own.calm == found.calm, f"seed {seed}, {settings.policy}: delivered at rest, unlike with covering off"
    return own


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, SEEDS, GROUP))
def test_seeds(first: int) -> None:
    runs = [seen(seed) for seed in range(first, first + GROUP)]
    assert sum(each.guaranteed for each in runs) > 10 * GROUP, "the runs promise too little to test anything"


@pytest.mark.long
def test_whatever_history_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few events come in a run, so that most of what leaves is kept at its own broker. Here it is taken back any number
    of hops, at a pace that matters."""
    kept: Counter[bool] = Counter()
    preserve = OutboundTable.preserve

    def prune(self: Distances, id: str, advertisements: Iterable[str], theta: float, now: float) -> dict[str, int]:
        return {each: crc32(f"{id} {each} {now}".encode()) % 5 for each in advertisements}

    def counted(self: OutboundTable, id: str, further: dict[str, int], at_once: float) -> bool:
        found = preserve(self, id, further, at_once)
        kept[bool(further)] += found
        return found

    monkeypatch.setattr(Distances, "prune", prune)
    monkeypatch.setattr(OutboundTable, "preserve", counted)
    for seed in range(1_000 if SOAK else 100):
        script = draw(seed)
        drawn = draw_settings(seed, script.routing)
        if script.routing == "advertisements":
            incremental = replace(drawn, cells=None, replacements_per_second_max=0.3).tuned(theta=0.5)
            try:
                run(script, incremental)
            except Exception as error:
                pytest.fail(f"seed {seed}, {incremental.policy}: {error}")
    assert min(kept[True], kept[False]) > 15, kept


@pytest.mark.long
def test_the_same_seed_gives_the_same_trace_in_any_process() -> None:
    script = (
        "from thatch.sim.run import draw_settings, run\n"
        "from thatch.sim.script import draw\n"
        "for seed in range(6):\n    drawn = draw(seed)\n"
        "    print(run(drawn, draw_settings(seed, drawn.routing)).trace)"
    )
    command, pipe = [sys.executable, "-c", script], subprocess.PIPE
    processes = [
        subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=os.environ | {"PYTHONHASHSEED": hash_seed})
        for hash_seed in ("1", "2")
    ]
    said = [each.communicate() for each in processes]
    assert [each.returncode for each in processes] == [0, 0], said
    traces = [out.split() for out, _ in said]
    assert len(traces[0]) == 6 and traces[0] == traces[1]


# --- The hash of what brokers do --------------------------------------------------------------------------------------


class HashedRun(Run):
    """A run, with a hash of the effects of every message: tags and field values, whatever the wire format."""

    def __init__(self, script: Script, settings: Settings, clauses: Clauses) -> None:
        self.hash = hashlib.sha256()
        super().__init__(script, settings, clauses)

    def handled(self, broker: str, message: Message, link: str, effects: list[Effect], now: float) -> None:
        self.hash.update(f"{now!r} {broker} {link} {plain(message)} {plain(effects)}\n".encode())


def plain(value: Any) -> Any:
    """A struct as its tag and its fields by name; what it holds, likewise."""
    if isinstance(value, msgspec.Struct):
        fields = {name: plain(getattr(value, name)) for name in sorted(value.__struct_fields__)}
        return value.__struct_config__.tag or type(value).__name__, fields
    if isinstance(value, Mapping):
        return [(plain(key), plain(each)) for key, each in value.items()]  # in order: the receiver follows it
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


def hash_of(seed: int) -> bytes:
    """Of what all brokers do in the runs of a seed, by its policy and with covering off."""
    script = draw(seed)
    settings = draw_settings(seed, script.routing)
    clauses, found = clauses_of_scripts(), hashlib.sha256()
    for each in (settings, Settings(settings.routing, Policy(None))):
        hashed = HashedRun(script, each, clauses)
        hashed.all()
        found.update(hashed.hash.digest())
    return found.digest()


def hash_of_all(first: int, end: int, processes: int) -> str:
    """Of seeds from the first to before the end, the same by however many processes."""
    found = hashlib.sha256()
    with multiprocessing.Pool(processes) as pool:
        for digest in pool.imap(hash_of, range(first, end), chunksize=4):
            found.update(digest)
    return found.hexdigest()


def test_the_hash_is_of_tags_and_fields() -> None:
    effect = Send("B2", Subscribe(7, "s", "x < 5", retracts=("a", "b")))
    name, fields = plain(effect)
    tag, inner = fields["message"]
    assert (name, fields["link"], tag) == ("Send", "B2", "Subscribe")
    assert inner == {"seq": 7, "id": "s", "where": "x < 5", "expires": None, "retracts": ["a", "b"], "cells": []}
    assert plain(Synced(1, 1, {0: {"s": ("x < 5", None)}}))[1]["subscriptions"] == [(0, [("s", ["x < 5", None])])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=int)
    parser.add_argument("end", type=int, help="the seed after the last")
    parser.add_argument("--hash", action="store_true", help="print one hash over the effects of all messages")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    if options.hash:
        print(hash_of_all(options.first, options.end, options.processes))
        return
    for number in range(options.first, options.end):
        seen(number)
        print(f"\r{number}", end="", flush=True)


if __name__ == "__main__":
    main()
