"""Brokers of a random run that differ in what they must agree on, or need not agree on."""

from __future__ import annotations

import random

from msgspec.structs import replace

from thatch.broker import Settings
from thatch.broker.cells import Cells
from thatch.sim.network import Network
from thatch.sim.oracle import Failed

STRANGER = "X"  # a broker that routes otherwise
GREETING_SECONDS = 1.0  # in which it is refused
EXPECTED = ("would close a cycle", "set the same routing at both")  # reasons to hang up


def with_own_cells(settings: Settings, seed: int, name: str) -> Settings:
    """Now and then a broker has another partition than the others, or none."""
    rng = random.Random(f"cells {seed} {name}")
    if settings.cells is None or rng.random() < 0.6:
        return settings
    return replace(settings, cells=rng.choice((None, Cells(("y", "x"), bits=2), Cells(("x", "y"), bits=1))))


def with_cells_of_period(settings: Settings, seed: int, period: int) -> Settings:
    """What all brokers have that start in a period: another partition than in the one before, and none now and then."""
    if settings.cells is None or (seed + period) % 5 == 4:
        return replace(settings, cells=None)
    return replace(settings, cells=Cells(("x", "y") if period % 2 else ("y", "x"), bits=2))


class Agreement:
    def __init__(self, network: Network) -> None:
        self._network = network

    def add_stranger(self, neighbour: str, settings: Settings) -> None:
        """A broker that routes otherwise greets, and must not come in."""
        network, node = self._network, self._network.nodes.get(neighbour)
        if node is None or not node.is_up or STRANGER in network.nodes:
            return
        network.add_broker(STRANGER, settings)
        network.join(neighbour, STRANGER, 0.002)
        network.at(network.now + GREETING_SECONDS, self._send_away, neighbour)

    def _send_away(self, neighbour: str) -> None:
        network = self._network
        for one, other in ((neighbour, STRANGER), (STRANGER, neighbour)):
            node = network.nodes.get(one)
            if node is not None and node.is_up and other in node.broker.links and node.broker.links[other].is_met:
                raise Failed(f"{one} let {other} in, which routes otherwise")
        for wire in network.wires_of(STRANGER):
            network.cut(wire, forget=True)
        network.crash(STRANGER, keep_store=False)
        del network.nodes[STRANGER]
