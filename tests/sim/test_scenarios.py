"""Scenarios run, and what they are made of."""

from __future__ import annotations

import random

import pytest

from thatch import Space
from thatch.broker import Settings
from thatch.cli.main import main
from thatch.protocol.messages import Extend
from thatch.sim.network import Network
from thatch.sim.workflow import draw_processes, workflow_space

# --- Events first -----------------------------------------------------------------------------------------------------


def test_events_do_not_overtake_the_space_that_they_are_read_in() -> None:
    """A slow broker joins an overlay whose space has grown, while events carry what is new."""
    settings, event = Settings("events"), {"kind": "c"}
    network = Network(Space.parse("kind enum('a','b')"), events_first=True)
    for name in "AB":
        network.add_broker(name, settings)
    network.join("A", "B")
    client = network.add_client("publisher")
    network.join("A", client.name)
    network.run()
    network.operate("A", Extend(0, Space.parse("kind enum('a','b','c')").to_json()))
    network.run()
    slow = network.add_broker("C", settings, lambda message, took, broker: 0.005)
    network.join("B", "C")
    for at in range(60):
        network.at(network.now + at / 1000, lambda: network.tell("publisher", client.publish("A", event)))
    network.run()
    assert network.hang_ups == [] and slow.links["B"].counts.events_in > 30


# --- Scenarios --------------------------------------------------------------------------------------------------------


SMALL = [
    "--subscriptions",
    "60",
    "--degree",
    "9",
    "--events",
    "40",
    "--unsubscriptions",
    "2",
    "--interval",
    "60",
    "--json",
]


@pytest.mark.long
@pytest.mark.soak("clustered", "complex", "mobile", "mobile-all")
@pytest.mark.parametrize("scenario", ["unsubscriptions", "complex", "clustered", "mobile", "mobile-all"])
def test_scenarios_run(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", scenario, *SMALL, "--cover", "pairwise", "--retract", "--packed", "--theta", "0.9"]) == 0
    assert '"published": 40' in capsys.readouterr().out


def test_workflows_are_made_of_processes_whose_activities_wait_for_one_another() -> None:
    engines = [f"E{at}" for at in range(24)]
    processes = draw_processes(engines, random.Random(1))
    assert [len([each for each in processes if len(each.engines) == size]) for size in (3, 10, 26)] == [80, 80, 40]
    assert all(len(set(each.engines)) == 1 for each in processes[:80])
    space = workflow_space()
    for process in processes[::20]:
        for _, engine, where in process.subscriptions():
            assert engine in process.engines and not space.where(where).is_empty
