"""Random runs of whole nodes: what is acknowledged arrives, whatever fails, and nothing is acknowledged too early.

A failure names its seed and the shortest prefix of steps that still fails. More seeds: `make soak`, or by hand
`python tests/sim/test_sim_nodes.py 1000 2000`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable

import pytest

from thatch.sim.network import Clauses
from thatch.sim.node_run import NodesObserved, run_nodes, shortest_node_prefix
from thatch.sim.node_script import NodeScript, draw_absence, draw_nodes
from thatch.sim.run import clauses_of_scripts

SOAK = bool(os.environ.get("THATCH_SOAK"))
SEEDS, GROUP = (10_000, 200) if SOAK else (500, 100)
ABSENCES, EVENTS = (2_000, 40) if SOAK else (40, 6)  # runs, and events of each new publisher
# Each kind of step that a group of runs contains, and does something.
FAULTS = (
    "kill", "cut", "fill", "away", "cancel", "back_up", "put_back", "lose_disk", "copy", "decide", "accept", "forget",
    "destroy", "attach", "move", "step_clock", "grow", "strange",
)  # fmt: skip


def seen(seed: int, clauses: Clauses, draw: Callable[[int], NodeScript] = draw_nodes) -> NodesObserved:
    script = draw(seed)
    try:
        return run_nodes(script, clauses)
    except Exception as error:
        steps, why = shortest_node_prefix(script)
        lines = "\n".join(f"    {step}" for step in script.steps[:steps])
        pytest.fail(f"seed {seed}: {error}\n  fails after {steps} steps: {why}\n{lines}")


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, SEEDS, GROUP))
def test_seeds(first: int) -> None:
    clauses = clauses_of_scripts()
    runs = [seen(seed, clauses) for seed in range(first, first + GROUP)]
    assert sum(each.guaranteed for each in runs) > 8 * GROUP, "the runs promise too little to test anything"
    assert sum(each.noticed for each in runs) > GROUP // 10, "the limits cost too little to test anything"
    steps = sum((each.steps for each in runs), Counter[str]())
    assert [kind for kind in FAULTS if not steps[kind]] == []


@pytest.mark.long
def test_nothing_is_lost_by_not_waiting_for_a_neighbour_that_is_away() -> None:
    """Subscribers at B2 have settled, B2 goes away, new publishers at B1 and two hops behind it advertise and publish,
    B1 is killed, B2 returns: all arrive (T1.3)."""
    clauses = clauses_of_scripts()
    runs = [seen(seed, clauses, lambda seed: draw_absence(seed, EVENTS)) for seed in range(ABSENCES)]
    assert sum(each.guaranteed for each in runs) > EVENTS * ABSENCES, "the runs promise too little to test anything"


@pytest.mark.long
def test_the_same_seed_gives_the_same_trace_in_any_process() -> None:
    script = (
        "from thatch.sim.node_run import run_nodes\n"
        "from thatch.sim.node_script import draw_nodes\n"
        "for seed in range(12):\n    print(run_nodes(draw_nodes(seed)).trace)"
    )
    command, pipe = [sys.executable, "-c", script], subprocess.PIPE
    processes = [
        subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=os.environ | {"PYTHONHASHSEED": hash_seed})
        for hash_seed in ("1", "2")
    ]
    said = [each.communicate() for each in processes]
    assert [each.returncode for each in processes] == [0, 0], said
    traces = [out.split() for out, _ in said]
    assert len(set(traces[0])) == 12 and traces[0] == traces[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=int)
    parser.add_argument("end", type=int, help="the seed after the last")
    parser.add_argument("--absences", action="store_true", help="a neighbour that is away for long")
    options = parser.parse_args()
    clauses = clauses_of_scripts()
    for number in range(options.first, options.end):
        seen(number, clauses, draw_absence if options.absences else draw_nodes)
        print(f"\r{number}", end="", flush=True)


if __name__ == "__main__":
    main()
