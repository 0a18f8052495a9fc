"""Brokers of a random run that differ in what they must agree on, or need not agree on."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from thatch.broker import Settings
from thatch.broker.cells import Cells
from thatch.errors import EventError
from thatch.protocol.messages import Extend
from thatch.protocol.records import SpaceRecord
from thatch.sim.network import Network
from thatch.sim.oracle import Failed
from thatch.space.space import Space
from thatch.space.union import union_of

STRANGER = "X"  # a broker that routes otherwise
GREETING_SECONDS = 1.0  # in which it is refused
# Reasons to hang up. Of two brokers that both have lost their disks one gets the space of the overlay before the other.
EXPECTED = ("would close a cycle", "set the same routing at both", "uses another space")


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
        self._wishes: dict[str, Space] = {}  # what an operator of a broker wants, together
        self._lost: list[Space] = []  # what one wanted whose broker has lost it: it has to be said again

    # --- Spaces that grow ---------------------------------------------------------------------------------------------

    def grow(self, broker: str, text: str) -> None:
        """An operator wants more; what has been opened he knows."""
        node = self._network.nodes.get(broker)
        if node is not None and node.is_up:
            self._want(broker, self._network.clauses.read_space(Space.parse(text).to_json()))

    def _want(self, broker: str, wanted: Space) -> None:
        network = self._network
        known = self._wishes.get(broker, wanted)
        self._wishes[broker] = union_of(known, wanted).space
        space = union_of(network.nodes[broker].broker.open_space, wanted).space
        network.operate(broker, Extend(0, space.to_json()))

    def note_crash(self, broker: str) -> None:
        """A broker has crashed, or left for good: its operator looks whether it knows what he wanted."""
        wanted = self._wishes.get(broker)
        if wanted is None:
            return
        node = self._network.nodes.get(broker)
        for record in node.store if node is not None else ():
            if isinstance(record, SpaceRecord):
                for text in (record.space, record.wanted):
                    if text and _holds(self._network.clauses.read_space(text), wanted):
                        return
        del self._wishes[broker]
        self._lost.append(wanted)

    def grow_again(self) -> None:
        """What was lost with a disk, or with a broker, is said again."""
        lost, self._lost = self._lost, []
        for wanted in lost:
            if not all(_holds(node.broker.open_space, wanted) for node in self._network.nodes.values()):
                self._want(next(iter(self._network.nodes)), wanted)

    @property
    def has_grown(self) -> bool:
        """Whether all has opened everywhere that operators want."""
        nodes = self._network.nodes.values()
        return not self._lost and all(
            _holds(node.broker.open_space, wanted) for node in nodes for wanted in self._wishes.values()
        )

    def check_rest(self) -> None:
        """All brokers have one space, and it has opened."""
        spaces = {name: (node.broker.space, node.broker.open_space) for name, node in self._network.nodes.items()}
        texts = {space.to_json() for pair in spaces.values() for space in pair}
        steps = {name: node.broker.open_step for name, node in self._network.nodes.items()}
        if len(texts) > 1 or len(set(steps.values())) > 1 or not self.has_grown:
            said = {name: f"{space}, open {opened}, step {steps[name]}" for name, (space, opened) in spaces.items()}
            raise Failed(f"the space has not grown everywhere: {said}; operators want {self._wishes}")

    def config(self, broker: str, base: Space) -> Space:
        """The space in the settings of a broker that has lost its disk: what its operator wants, once others have
        opened something."""
        others = [node.broker.open_step for name, node in self._network.nodes.items() if name != broker]
        return self._wishes.get(broker, base) if min(others, default=0) else base

    def can_carry(self, event: Mapping[str, Any]) -> bool:
        """Whether events may carry what this one does, everywhere."""
        try:
            for node in self._network.nodes.values():
                node.broker.open_space.encode(event)
        except EventError:
            return False
        return all(node.broker.open_space.index(name) is not None
                   for node in self._network.nodes.values() for name in event)  # fmt: skip

    # --- Routing ------------------------------------------------------------------------------------------------------

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


def _holds(space: Space, wanted: Space) -> bool:
    """Whether a space has all that is wanted."""
    return union_of(space, wanted).space == space
