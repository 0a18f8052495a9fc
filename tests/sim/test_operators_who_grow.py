"""Operators of whole nodes who grow the space: when they say what they want, and say it again."""

from __future__ import annotations

from thatch.broker import Policy, Settings
from thatch.sim.node_growth import NodeGrowth
from thatch.sim.node_network import NodeNetwork, NodeObserver
from thatch.sim.node_run import run_nodes
from thatch.sim.node_script import NodeScript
from thatch.sim.run import clauses_of_scripts
from thatch.sim.script import GROWN, OTHER, Step


def test_an_operator_of_a_broker_that_lost_its_disk_waits_until_it_has_met_its_neighbours() -> None:
    """It would open alone what it was told, and then be refused by neighbours that have opened more."""
    grown = [Step(1.5, "grow", ("B0", GROWN)), Step(1.5, "grow", ("B1", OTHER))]
    steps = (*grown, Step(3.5, "rest", ()), Step(3.8, "lose_disk", ("B1",)), Step(5.0, "rest", ()))
    script = NodeScript(
        seed=1,
        links=[("B0", "B1")],
        commit_seconds=(0.05, 0.001),
        latency=0.005,
        homes={"p0": "B0"},
        publishers=("p0",),
        routing="subscriptions",
        kept_bytes=2**30,
        kept_seconds=100_000.0,
        steps=steps,
    )
    assert run_nodes(script).steps["grow"] == 2


def test_a_neighbour_that_has_compared_nothing_yet_is_not_met() -> None:
    """Its link may go down and be forgotten, and then nobody is asked."""
    network = NodeNetwork(clauses_of_scripts(), Settings("subscriptions", Policy("exact")), 1, 0.03, NodeObserver())
    one, other = network.add_machine("B0", ["B1"], [], 0.001), network.add_machine("B1", [], ["B0"], 0.001)
    growth = NodeGrowth(network.clauses, {"B0": ["B1"], "B1": ["B0"]}.__getitem__)
    assert not growth.grow(one, GROWN), "it is down"
    network.start(one)
    network.start(other)
    assert one.process is not None
    links = one.process.driver.broker.links
    assert not growth.grow(one, GROWN)
    while "B1" not in links:
        network.agenda.run(network.now + 0.001)
    assert links["B1"].admission.is_new and not growth.grow(one, GROWN)
    network.agenda.run(network.now + 1.0)
    assert growth.grow(one, GROWN)
