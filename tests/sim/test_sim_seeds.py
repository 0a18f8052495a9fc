"""Random runs of the real broker, each with a policy and an engine of its own, compared with covering off.

A failure names its seed and the shortest prefix of steps that still fails. More seeds: `make soak`, or by hand
`python tests/sim/test_sim_seeds.py 1000 2000`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from zlib import crc32

import pytest
from msgspec.structs import replace

from thatch.broker import Policy, Settings
from thatch.broker.outbound import OutboundTable
from thatch.broker.statistics import Distances
from thatch.sim.run import Observed, clauses_of_scripts, draw_settings, run, shortest_prefix
from thatch.sim.script import draw

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


if __name__ == "__main__":
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        seen(number)
        print(f"\r{number}", end="", flush=True)
