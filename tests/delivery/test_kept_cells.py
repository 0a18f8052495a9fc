"""What is kept of an event has no number of a cell: the partition may be another one when it is sent (T2.12)."""

from __future__ import annotations

from typing import Any

import msgspec

from helpers.peers import durable_queue, neighbour
from thatch import Space
from thatch.broker import Cells, Policy, Settings
from thatch.protocol.messages import Publish
from thatch.protocol.records import PeerKey
from thatch.sim.network import Clauses
from thatch.sim.node_clients import Program
from thatch.sim.node_network import NodeNetwork, NodeObserver
from thatch.sim.node_process import Machine

SPACE = Space.parse("x int not null 0..7, y int not null 0..7")
POINTS = [(x, y) for x in range(8) for y in range(0, 8, 3)]


class Partitioned(NodeNetwork):
    """B1 with the publisher p, and B2 with ann, who wants small x; they have the same partition, maybe soon another."""

    def __init__(self, observer: NodeObserver) -> None:
        super().__init__(Clauses(SPACE), Settings("subscriptions"), 0, 0.001, observer)
        self.cells = Cells(("x", "y"), bits=3)
        for name, dials, accepts in (("B1", ["B2"], []), ("B2", [], ["B1"])):
            self.start(self.add_machine(name, dials, accepts, 0.001))
        for name, home in (("ann", "B2"), ("p", "B1")):
            self.add_program(name, home).come()

    def settings_of(self, machine: Machine) -> Settings:
        return Settings("subscriptions", Policy("exact"), cells=self.cells, holds_events=True)

    def passes(self, seconds: float) -> None:
        self.agenda.run(self.now + seconds)

    def restart_all(self) -> None:
        for machine in self.machines.values():
            self.kill(machine, 1.0)
            self.start(machine)

    def kept(self, broker: str, peer: PeerKey) -> list[Publish]:
        rows = self.machines[broker].disk.events.get(peer, {})
        return [msgspec.msgpack.decode(each.event, type=Publish) for each in rows.values()]


class Arrivals(NodeObserver):
    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []

    def handed_on(self, program: Program, id: str, number: int, event: Publish) -> None:
        self.got.append(event.event)


def test_kept_events_are_not_read_by_a_partition_that_has_changed() -> None:
    """Hole 10: they carried the number of their cell, and were read in another partition when both had it."""
    seen = Arrivals()
    network = Partitioned(seen)
    network.passes(1.0)
    network.programs["ann"].keep("small", "x <= 2")
    network.passes(2.0)
    network.kill(network.machines["B2"], 1.0)
    for x, y in POINTS:
        network.programs["p"].publish({"x": x, "y": y})
    network.passes(1.0)
    kept = network.kept("B1", neighbour("B2"))
    assert {each.cell for each in kept} == {-1}
    network.cells = Cells(("y", "x"), bits=2)
    network.restart_all()
    network.passes(5.0)
    assert all(link.agrees for link in _links_between(network)), "else the numbers would not be used at all"
    assert sorted((each["x"], each["y"]) for each in seen.got) == [each for each in POINTS if each[0] <= 2]


def test_a_durable_queue_keeps_no_cells_and_what_goes_at_once_has_them() -> None:
    network = Partitioned(NodeObserver())
    network.passes(1.0)
    network.programs["ann"].keep("small", "x <= 2")
    network.passes(2.0)
    network.programs["ann"].leave()
    process = network.machines["B1"].process
    assert process is not None
    gone: list[bytes] = []
    stream = process.driver.stream("B2")
    send = stream._send
    assert send is not None
    stream._send = lambda numbers, events: gone.extend(events) or send(numbers, events)  # type: ignore[func-returns-value]
    network.programs["p"].publish({"x": 1, "y": 1})
    network.passes(1.0)
    assert [msgspec.msgpack.decode(each, type=Publish).cell >= 0 for each in gone] == [True]
    assert [each.cell for each in network.kept("B2", durable_queue("ann@small"))] == [-1]


def _links_between(network: NodeNetwork) -> list[Any]:
    found = []
    for one, other in (("B1", "B2"), ("B2", "B1")):
        process = network.machines[one].process
        assert process is not None
        found.append(process.driver.broker.links[other])
    return found
