"""Operators of whole nodes who grow the space, and what must hold of it at rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from thatch.protocol.messages import OPERATOR, Extend
from thatch.region.region import Region
from thatch.sim.network import Clauses
from thatch.sim.node_process import Machine
from thatch.sim.oracle import Failed
from thatch.sim.script import ALL
from thatch.space.space import Space
from thatch.space.union import union_of

NEW_REFUSED = ("later", "event")  # codes of refusals of an event that uses what has not opened


class NodeGrowth:
    def __init__(self, clauses: Clauses, neighbours: Callable[[str], Iterable[str]]) -> None:
        """`neighbours` of a broker, by its name."""
        self._clauses, self._neighbours = clauses, neighbours
        self._end = clauses.read_space(Space.parse(ALL).to_json())
        self._wishes: list[tuple[Machine, Space]] = []

    def region(self, where: str) -> Region:
        """In the space as it may be in the end: an event that carries nothing new is in it or not as before."""
        return self._clauses.compiled(where, self._end)

    def grow(self, machine: Machine, text: str) -> bool:
        """An operator wants more in the space."""
        if not self._may_grow(machine):
            return False
        self._wishes.append((machine, Space.parse(text)))
        _say(machine, self._wishes[-1][1])
        return True

    def say_again(self) -> None:
        """What a crash or an old store took."""
        for machine, wanted in self._wishes:
            if self._may_grow(machine) and not _holds(machine, wanted):
                _say(machine, wanted)

    def _may_grow(self, machine: Machine) -> bool:
        """A broker that has not met its neighbours, because it is new or lost its disk, opens alone what it is told,
        and is another overlay from then on: its operator waits."""
        if machine.process is None:
            return False
        links = machine.process.driver.broker.links
        return all(name in links and not links[name].admission.is_new for name in self._neighbours(machine.name))

    def restless(self, machine: Machine) -> str:
        """Why the space has not grown; empty if it has."""
        assert machine.process is not None
        broker = machine.process.driver.broker
        if broker.open_space is broker.space and all(_holds(machine, wanted) for _, wanted in self._wishes):
            return ""
        return f"the space grows: {broker.space}, open {broker.open_space}"

    def check_rest(self, machines: Iterable[Machine]) -> None:
        """All have opened the same."""
        said = {}
        for machine in machines:
            assert machine.process is not None
            broker = machine.process.driver.broker
            said[machine.name] = f"{broker.open_space}, step {broker.open_step}"
        if len(set(said.values())) > 1:
            raise Failed(f"brokers have grown differently: {said}")


def _say(machine: Machine, wanted: Space) -> None:
    assert machine.process is not None
    driver = machine.process.driver
    driver.take(Extend(0, union_of(driver.broker.open_space, wanted).space.to_json()), OPERATOR)


def _holds(machine: Machine, wanted: Space) -> bool:
    assert machine.process is not None
    space = machine.process.driver.broker.space
    return union_of(space, wanted).space == space
