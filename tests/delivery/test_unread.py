"""Kept events that a neighbour cannot read yet wait for the space in which they can be read (T2.11c)."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.peers import neighbour
from thatch import Space
from thatch.broker import Broker, Cells, Policy, Settings
from thatch.protocol.messages import OPERATOR, Extend, Publish
from thatch.sim.network import Clauses
from thatch.sim.node_clients import Program
from thatch.sim.node_network import NodeNetwork, NodeObserver
from thatch.sim.node_process import Machine

SPACE = Space.parse("x int not null 0..9")
GROWN = Space.parse("x int not null 0..9, more int")


class Arrivals(NodeObserver):
    """What came to ann, and why nodes hung up."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.reasons: list[str] = []

    def handed_on(self, program: Program, id: str, number: int, event: Publish) -> None:
        if event.event not in self.got:
            self.got.append(event.event)

    def hung_up(self, machine: Machine, peer: str, reason: str, code: str) -> None:
        self.reasons.append(reason)


class Pair(NodeNetwork):
    """B1 with the publisher p, and B2 with ann's durable subscription; a backup of B2; then the space grows."""

    def __init__(self, seen: Arrivals, cells: Cells | None = None) -> None:
        super().__init__(Clauses(SPACE), Settings("subscriptions"), 0, 0.05, seen)
        self.cells = cells
        for name, dials, accepts in (("B1", [], ["B2"]), ("B2", ["B1"], [])):
            self.start(self.add_machine(name, dials, accepts, 0.001))
        for name, home in (("ann", "B2"), ("p", "B1")):
            self.add_program(name, home).come()
        self.passes(1.0)
        self.programs["ann"].keep("all", "TRUE")
        self.passes(1.0)
        self.back_up(self.machines["B2"])
        self.driver("B1").take(Extend(0, GROWN.to_json()), OPERATOR)
        self.passes(2.0)
        assert self.broker("B1").open_space == self.broker("B2").open_space == GROWN

    def settings_of(self, machine: Machine) -> Settings:
        return Settings("subscriptions", Policy("exact"), cells=self.cells, holds_events=True)

    def passes(self, seconds: float) -> None:
        self.agenda.run(self.now + seconds)

    def driver(self, name: str) -> Any:
        process = self.machines[name].process
        assert process is not None
        return process.driver

    def broker(self, name: str) -> Broker:
        broker = self.driver(name).broker
        assert isinstance(broker, Broker)
        return broker


@pytest.mark.parametrize("count", [1, 40])
def test_a_neighbour_from_before_the_growth_gets_what_it_could_not_read(count: int) -> None:
    """Hole 11: it refused the event, and acknowledged it with all that came behind it."""
    seen = Arrivals()
    network = Pair(seen)
    events = [{"x": at % 10, "more": at} for at in range(count)] + [{"x": at} for at in range(3)]
    network.kill(network.machines["B2"], 1.0)
    for event in events:
        network.programs["p"].publish(event)
    network.passes(1.0)
    assert len(network.machines["B1"].disk.events[neighbour("B2")]) == len(events)
    network.put_back(network.machines["B2"], "restore")
    network.start(network.machines["B2"])
    assert network.broker("B2").space == SPACE
    network.passes(10.0)
    assert seen.got == events
    assert network.broker("B2").open_space == GROWN
    assert not network.machines["B1"].disk.events[neighbour("B2")]
    assert seen.reasons.count("the space has grown: send again what was not acknowledged") == 1
    assert [each for each in seen.reasons if "'more'" in each] == [], "nobody hangs up because of an event"
